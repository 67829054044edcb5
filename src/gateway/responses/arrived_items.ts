import { isRecord } from "../../platform/records.ts";
import { Pieces } from "./event_text.ts";
import { OUTPUT_CHARS_MAX } from "./output.ts";

/**
 * The output of a provider's own stream, as far as it has arrived. If the stream breaks off, its last event has this
 * output. Source: RSP-9,
 * RSP-10.
 */

/** Where the text of a delta belongs: to a field of the item, or to a part of a list, by the event's index. */
type Place = { list?: List; field: string };
type List = "content" | "summary";

const PLACES: ReadonlyMap<string, Place> = new Map(
  Object.entries<Place>({
    "response.output_text.delta": { list: "content", field: "text" },
    "response.refusal.delta": { list: "content", field: "refusal" },
    "response.reasoning_text.delta": { list: "content", field: "text" },
    "response.reasoning_summary_text.delta": { list: "summary", field: "text" },
    "response.function_call_arguments.delta": { field: "arguments" },
    "response.custom_tool_call_input.delta": { field: "input" },
  }),
);
/** By event: the list to which it adds a part. */
const PARTS: ReadonlyMap<string, List> = new Map(
  Object.entries<List>({
    "response.content_part.added": "content",
    "response.reasoning_summary_part.added": "summary",
  }),
);

type Fields = Readonly<Record<string, unknown>>;
type Part = { fields: Fields; texts: Map<string, Pieces> };
/** An item that is not done. `parts`: by list and index, as in `content.0`. */
type OpenItem = { own: Part; parts: Map<string, Part> };

export class ArrivedItems {
  /** By output index: an item as JSON once it is done. */
  #items = new Map<number, OpenItem | string>();
  #chars = 0;

  /**
   * Reads an event. `chars`: its length as received. Above OUTPUT_CHARS_MAX the whole output is dropped, rather than
   * cut.
   */
  take(event: Fields, chars: number): void {
    const { type, output_index: index, item, part, delta } = event;
    if (typeof index !== "number" || this.#chars > OUTPUT_CHARS_MAX) return;
    if (type === "response.output_item.added" && isRecord(item)) {
      this.#items.set(index, { own: partOf(item), parts: new Map() });
    } else if (type === "response.output_item.done" && isRecord(item)) {
      this.#items.set(index, JSON.stringify(item));
    } else {
      const open = this.#items.get(index);
      if (typeof open !== "object") return;
      const list = typeof type === "string" ? PARTS.get(type) : undefined;
      if (list !== undefined && isRecord(part)) open.parts.set(`${list}.${indexOf(event, list)}`, partOf(part));
      else if (typeof delta !== "string" || !addText(open, event, delta)) return;
    }
    this.#chars += typeof delta === "string" ? delta.length : chars;
    if (this.#chars > OUTPUT_CHARS_MAX) this.#items.clear();
  }

  /** The items, each as JSON. An item that is not done is marked incomplete. */
  json(): string[] {
    return [...this.#items]
      .sort(([a], [b]) => a - b)
      .map(([, item]) => (typeof item === "string" ? item : JSON.stringify(itemOf(item))));
  }
}

function partOf(fields: Fields): Part {
  return { fields, texts: new Map() };
}

function indexOf(event: Fields, list: List): number {
  const index = event[`${list}_index`];
  return typeof index === "number" ? index : 0;
}

/** Adds the text of a delta. Returns false if its item or part is unknown. */
function addText(item: OpenItem, event: Fields, delta: string): boolean {
  const place = typeof event.type === "string" ? PLACES.get(event.type) : undefined;
  if (place === undefined) return false;
  const part = place.list ? item.parts.get(`${place.list}.${indexOf(event, place.list)}`) : item.own;
  if (part === undefined) return false;
  const text = part.texts.get(place.field) ?? new Pieces();
  part.texts.set(place.field, text);
  text.add(delta);
  return true;
}

function itemOf({ own, parts }: OpenItem): Fields {
  const item: Record<string, unknown> = { ...withTexts(own), status: "incomplete" };
  const lists = new Map<string, Fields[]>();
  for (const [name, part] of parts) {
    const [list = ""] = name.split(".");
    lists.set(list, [...(lists.get(list) ?? []), withTexts(part)]);
  }
  for (const [list, all] of lists) item[list] = all;
  return item;
}

function withTexts({ fields, texts }: Part): Fields {
  return { ...fields, ...Object.fromEntries([...texts].map(([field, text]) => [field, text.text])) };
}
