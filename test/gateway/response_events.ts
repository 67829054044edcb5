import { expect } from "bun:test";

/** Reads the events of a response's stream as strict clients do, and checks its life cycle. Source: RSP-9. */

// biome-ignore lint/suspicious/noExplicitAny: each test decides what it expects in an event.
export type ResponseEvent = { type: string; sequence_number: number } & Record<string, any>;
const ENDS = new Set(["response.completed", "response.incomplete", "response.failed"]);

/** The events of a stream; each has its type as its name too. */
export function readEvents(text: string): ResponseEvent[] {
  return text
    .split("\n\n")
    .filter((event) => event.startsWith("event: "))
    .map((event) => {
      const [name = "", data = ""] = event.split("\n");
      const parsed = JSON.parse(data.slice("data: ".length));
      expect(name).toBe(`event: ${parsed.type}`);
      return parsed;
    });
}

type Item = { id: string; said: string; isDone: boolean };

/** Checks a stream from its first to its last event, and returns the last event's response. */
// biome-ignore lint/suspicious/noExplicitAny: as above.
export function checkLifeCycle(events: readonly ResponseEvent[]): any {
  expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, i) => i));
  expect(events.slice(0, 2).map(({ type }) => type)).toEqual(["response.created", "response.in_progress"]);
  const last = events.at(-1);
  expect(events.filter(({ type }) => ENDS.has(type))).toEqual([last as ResponseEvent]);
  const items: Item[] = [];
  const parts = new Set<string>();
  for (const event of events) {
    const { type, output_index: index, item, delta } = event;
    if (type === "response.output_item.added") {
      expect(index).toBe(items.length);
      expect(items.some(({ id }) => id === item.id)).toBe(false);
      items.push({ id: item.id, said: "", isDone: false });
    } else if (index !== undefined) {
      const known = items[index] as Item;
      expect(event.item_id ?? item.id).toBe(known.id);
      expect(known.isDone).toBe(false);
      if (type.endsWith("part.added")) parts.add(`${known.id} ${event.content_index ?? event.summary_index}`);
      if (/(text|refusal)\.delta$/.test(type))
        expect(parts.has(`${known.id} ${event.content_index ?? event.summary_index}`)).toBe(true);
      if (delta !== undefined) known.said += delta;
      if (type === "response.output_item.done") {
        known.isDone = true;
        expect(saidIn(item)).toBe(known.said);
      }
    }
  }
  const { response } = last as ResponseEvent;
  expect(response.status).toBe(last?.type.slice("response.".length));
  expect(new Set(events.filter((event) => event.response).map((event) => event.response.id)).size).toBe(1);
  expect(response.output.map((item: { id: string }) => item.id)).toEqual(items.map(({ id }) => id));
  expect(response.output.map(saidIn)).toEqual(items.map(({ said }) => said));
  if (response.status !== "failed") expect(items.every(({ isDone }) => isDone)).toBe(true);
  return response;
}

// biome-ignore lint/suspicious/noExplicitAny: as above.
function saidIn(item: any): string {
  const parts = [...(item.content ?? []), ...(item.summary ?? [])];
  return item.arguments ?? item.input ?? parts.map((part) => part.text ?? part.refusal).join("");
}
