/**
 * The text of a response's events. Each event has the next sequence number. Events of a JSON answer are not written. Source: RSP-9.
 */
export class EventText {
  readonly #isStreamed: boolean;
  #text = "";
  #sequence = 0;

  constructor(isStreamed: boolean) {
    this.#isStreamed = isStreamed;
  }

  /** Writes an event. `fields`: the inside of its JSON, without type and sequence number. */
  write(type: string, fields: string): void {
    if (this.#isStreamed) this.#text += eventText(type, this.#sequence++, fields);
  }

  /** Writes a delta. Nearly all events are deltas, so the text around the changing values is built once per item. */
  writeDelta({ head, middle, tail }: DeltaFrame, delta: string): void {
    if (this.#isStreamed) this.#text += head + this.#sequence++ + middle + JSON.stringify(delta) + tail;
  }

  /** The events since the last call. */
  take(): string {
    const text = this.#text;
    this.#text = "";
    return text;
  }
}

/** An event in its wire format. */
export function eventText(type: string, sequence: number, fields: string): string {
  return `event: ${type}\ndata: {"type":"${type}","sequence_number":${sequence},${fields}}\n\n`;
}

/** The text of a delta's event around its sequence number and its delta. */
export type DeltaFrame = { head: string; middle: string; tail: string };

/** `fields`: the fields that all deltas of the item have; `more`: the text after the delta. */
export function deltaFrame(type: string, fields: string, more = ""): DeltaFrame {
  return {
    head: `event: ${type}\ndata: {"type":"${type}","sequence_number":`,
    middle: `,${fields},"delta":`,
    tail: `${more}}\n\n`,
  };
}

/** Pieces are joined from time to time, because each would use its own memory while the stream is open. */
const PIECES_MAX = 256;

/** A text that arrives in pieces. */
export class Pieces {
  #joined = "";
  #pieces: string[] = [];

  add(piece: string): void {
    this.#pieces.push(piece);
    if (this.#pieces.length < PIECES_MAX) return;
    this.#joined = [this.#joined, ...this.#pieces].join("");
    this.#pieces = [];
  }

  get text(): string {
    return this.#pieces.length === 0 ? this.#joined : [this.#joined, ...this.#pieces].join("");
  }
}
