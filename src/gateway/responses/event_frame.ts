import { copyOf, LETTERS, PLAIN } from "../chunks.ts";

/**
 * Recognizes an event that differs from an earlier one only in a few values: its text, its number, and letters without meaning. It is
 * valid JSON if these values are, so nothing else of it is parsed.
 */

/** A value that may change, and its place in the payload. `text`, `letters`: the inside of a JSON string. */
export type Slot = { kind: "text" | "letters" | "number"; start: number; end: number };

/** Events with longer payloads have no frame, because it is kept as long as the stream is open. */
const PAYLOAD_CHARS_MAX = 4 * 1024;
const NUMBER = /^(?:0|[1-9]\d{0,14})$/;
const EVENT_END = "\n\n";

export class EventFrame {
  /** The values of the event that was recognized last. */
  text = "";
  number: number | undefined;
  readonly #kinds: readonly Slot["kind"][];
  /** What is before the first value, and behind each. Copied, because it lives as long as the stream. */
  readonly #head: string;
  readonly #behind: readonly string[];

  /** `before`: what is before the payload, which `hasFrame`. */
  constructor(before: string, payload: string, slots: readonly Slot[]) {
    const inOrder = slots.toSorted((a, b) => a.start - b.start);
    this.#kinds = inOrder.map(({ kind }) => kind);
    this.#head = copyOf(before + payload.slice(0, inOrder[0]?.start));
    this.#behind = inOrder.map(({ end }, i) => {
      const next = inOrder[i + 1]?.start;
      return copyOf(next === undefined ? payload.slice(end) + EVENT_END : payload.slice(end, next));
    });
  }

  /** Returns the index after the event that begins at `at`, if it has this frame; otherwise −1. */
  match(received: string, at: number): number {
    if (!received.startsWith(this.#head, at)) return -1;
    let start = at + this.#head.length;
    const over = received.indexOf(EVENT_END, start) + EVENT_END.length;
    for (let i = 0; i < this.#kinds.length; i++) {
      const behind = this.#behind[i] as string;
      const end = received.indexOf(behind, start);
      if (end < 0 || end + behind.length > over) return -1;
      if (!this.#take(this.#kinds[i] as Slot["kind"], received.slice(start, end))) return -1;
      start = end + behind.length;
    }
    return start;
  }

  #take(kind: Slot["kind"], raw: string): boolean {
    if (kind === "letters") return LETTERS.test(raw);
    if (kind === "number") {
      this.number = Number(raw);
      return NUMBER.test(raw);
    }
    const text = PLAIN.test(raw) ? raw : unescaped(raw);
    this.text = text ?? "";
    return text !== undefined;
  }
}

/** Whether the event of a payload may have a frame. One that came on several lines is sent on in another form. */
export function hasFrame(payload: string): boolean {
  return payload.length <= PAYLOAD_CHARS_MAX && !payload.includes("\n");
}

/** The text of the inside of a JSON string; undefined if it is none. */
function unescaped(raw: string): string | undefined {
  try {
    return JSON.parse(`"${raw}"`);
  } catch {
    return undefined;
  }
}
