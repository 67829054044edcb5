import { type DeltaFrame, deltaFrame, type EventText, Pieces } from "./event_text.ts";
import { customInput, type ToolName } from "./tools.ts";

/**
 * The items of an output: reasoning, message, calls. Each writes its own events: `added`, its parts with their deltas, `done`. It keeps its
 * text, because its last events and the end of the response repeat it. Source: RSP-9.
 */

/** How an item ended. */
export type ItemStatus = "completed" | "incomplete";

/** The id of an item, and its index in the output. */
export type ItemPlace = { id: string; index: number };

export interface OutputItem {
  /** Writes its last events. */
  close(status: ItemStatus): void;
  /** The item as JSON. */
  json(status: ItemStatus): string;
}

const json = JSON.stringify;

function added(events: EventText, index: number, item: string): void {
  events.write("response.output_item.added", `"output_index":${index},"item":${item}`);
}

function done(events: EventText, index: number, item: string): void {
  events.write("response.output_item.done", `"output_index":${index},"item":${item}`);
}

/** Reasoning as a summary, because clients show it only in this form. */
export class ReasoningItem implements OutputItem {
  readonly #place: ItemPlace;
  readonly #events: EventText;
  readonly #seal: ((text: string) => string | null) | undefined;
  readonly #at: string;
  readonly #frame: DeltaFrame;
  readonly #pieces = new Pieces();
  #json: string | undefined;

  constructor(place: ItemPlace, events: EventText, seal: ((text: string) => string | null) | undefined) {
    this.#place = place;
    this.#events = events;
    this.#seal = seal;
    this.#at = `"item_id":"${place.id}","output_index":${place.index},"summary_index":0`;
    this.#frame = deltaFrame("response.reasoning_summary_text.delta", this.#at);
    added(events, place.index, `{"id":"${place.id}","type":"reasoning","summary":[]}`);
    events.write("response.reasoning_summary_part.added", `${this.#at},"part":{"type":"summary_text","text":""}`);
  }

  add(delta: string): void {
    this.#pieces.add(delta);
    this.#events.writeDelta(this.#frame, delta);
  }

  close(): void {
    const text = json(this.#pieces.text);
    this.#events.write("response.reasoning_summary_text.done", `${this.#at},"text":${text}`);
    const part = `{"type":"summary_text","text":${text}}`;
    this.#events.write("response.reasoning_summary_part.done", `${this.#at},"part":${part}`);
    done(this.#events, this.#place.index, this.json());
  }

  json(): string {
    if (this.#json !== undefined) return this.#json;
    const { text } = this.#pieces;
    const sealed = this.#seal === undefined ? "" : `,"encrypted_content":${json(this.#seal(text))}`;
    this.#json = `{"id":"${this.#place.id}","type":"reasoning","summary":[{"type":"summary_text","text":${json(text)}}]${sealed}}`;
    return this.#json;
  }
}

type PartKind = "output_text" | "refusal";

/** A part of a message: its text, or the model's refusal. */
class MessagePart {
  readonly kind: PartKind;
  readonly #events: EventText;
  readonly #at: string;
  readonly #frame: DeltaFrame;
  readonly #pieces = new Pieces();
  #json: string | undefined;

  constructor(kind: PartKind, events: EventText, at: string) {
    this.kind = kind;
    this.#events = events;
    this.#at = at;
    this.#frame = deltaFrame(`response.${kind}.delta`, at, kind === "output_text" ? `,"logprobs":[]` : "");
    events.write("response.content_part.added", `${at},"part":${this.#partJson('""')}`);
  }

  add(delta: string): void {
    this.#pieces.add(delta);
    this.#events.writeDelta(this.#frame, delta);
  }

  close(): void {
    const text = json(this.#pieces.text);
    const fields = this.kind === "output_text" ? `"text":${text},"logprobs":[]` : `"refusal":${text}`;
    this.#events.write(`response.${this.kind}.done`, `${this.#at},${fields}`);
    this.#json = this.#partJson(text);
    this.#events.write("response.content_part.done", `${this.#at},"part":${this.#json}`);
  }

  json(): string {
    return this.#json ?? this.#partJson(json(this.#pieces.text));
  }

  #partJson(text: string): string {
    if (this.kind === "refusal") return `{"type":"refusal","refusal":${text}}`;
    return `{"type":"output_text","text":${text},"annotations":[],"logprobs":[]}`;
  }
}

export class MessageItem implements OutputItem {
  readonly #place: ItemPlace;
  readonly #events: EventText;
  readonly #parts: MessagePart[] = [];
  #part: MessagePart | undefined;

  constructor(place: ItemPlace, events: EventText) {
    this.#place = place;
    this.#events = events;
    added(events, place.index, this.#itemJson("in_progress", ""));
  }

  add(kind: PartKind, delta: string): void {
    if (this.#part?.kind !== kind) this.#part = this.#begin(kind);
    this.#part.add(delta);
  }

  /** A message always has a part, because some clients read the first one. */
  close(status: ItemStatus): void {
    this.#part ??= this.#begin("output_text");
    this.#part.close();
    done(this.#events, this.#place.index, this.json(status));
  }

  json(status: ItemStatus): string {
    return this.#itemJson(status, this.#parts.map((part) => part.json()).join(","));
  }

  #begin(kind: PartKind): MessagePart {
    this.#part?.close();
    const { id, index } = this.#place;
    const at = `"item_id":"${id}","output_index":${index},"content_index":${this.#parts.length}`;
    const part = new MessagePart(kind, this.#events, at);
    this.#parts.push(part);
    return part;
  }

  #itemJson(status: string, parts: string): string {
    return `{"id":"${this.#place.id}","type":"message","status":"${status}","role":"assistant","content":[${parts}]}`;
  }
}

/**
 * A call of a function or of a custom tool. The input of a custom tool is inside the function's arguments, so it is
 * sent in one piece.
 */
export class CallItem implements OutputItem {
  #callId: string;
  readonly #place: ItemPlace;
  readonly #events: EventText;
  readonly #tool: ToolName;
  readonly #at: string;
  readonly #frame: DeltaFrame;
  readonly #pieces = new Pieces();
  #isEmpty = true;

  constructor(place: ItemPlace, events: EventText, { callId, tool }: { callId: string; tool: ToolName }) {
    this.#callId = callId;
    this.#place = place;
    this.#events = events;
    this.#tool = tool;
    this.#at = `"item_id":"${place.id}","output_index":${place.index}`;
    this.#frame = deltaFrame(
      tool.isCustom ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta",
      this.#at,
    );
    added(events, place.index, this.#itemJson("in_progress", '""'));
  }

  /** From here on the item has another id: what it must keep came late. */
  rename(callId: string): void {
    this.#callId = callId;
  }

  add(delta: string): void {
    if (delta === "") return;
    this.#isEmpty = false;
    this.#pieces.add(delta);
    if (!this.#tool.isCustom) this.#events.writeDelta(this.#frame, delta);
  }

  close(status: ItemStatus): void {
    if (this.#tool.isCustom) {
      const input = customInput(this.#pieces.text);
      this.#events.writeDelta(this.#frame, input);
      this.#events.write("response.custom_tool_call_input.done", `${this.#at},"input":${json(input)}`);
    } else {
      // A call without arguments has an empty object, because clients parse it.
      if (this.#isEmpty) this.add("{}");
      const name = json(this.#tool.name);
      this.#events.write(
        "response.function_call_arguments.done",
        `${this.#at},"name":${name},"arguments":${json(this.#pieces.text)}`,
      );
    }
    done(this.#events, this.#place.index, this.json(status));
  }

  json(status: ItemStatus): string {
    const { text } = this.#pieces;
    return this.#itemJson(status, json(this.#tool.isCustom ? customInput(text) : text));
  }

  #itemJson(status: string, said: string): string {
    const { name, namespace, isCustom } = this.#tool;
    const scope = namespace === undefined ? "" : `,"namespace":${json(namespace)}`;
    return (
      `{"id":"${this.#place.id}","type":"${isCustom ? "custom_tool_call" : "function_call"}","status":"${status}",` +
      `"call_id":${json(this.#callId)},"name":${json(name)}${scope},"${isCustom ? "input" : "arguments"}":${said}}`
    );
  }
}
