import { ByteBlocks } from "../platform/byte_blocks.ts";
import { isRecord } from "../platform/records.ts";

/**
 * Parses Server-Sent Events: bytes in, payloads of `data:` out. Comments, other fields and events without data are dropped. CR, LF
 * and CRLF end lines. Chunks may split a payload anywhere, even inside a character. Every byte is read once, however small the
 * chunks are. Source: STR-5.
 */

/** Maximum size of one event, in bytes, and in characters of its complete lines. Without it an endless event would fill the memory. */
export const EVENT_SIZE_MAX = 8 * 1024 * 1024;
/** At most, of a text in memory. */
const BYTES_OF_CHAR = 2;
/** A longer payload is none of its spellings. */
const DONE_CHARS_MAX = 64;
const LF = 10;
const CR = 13;
const OPENING_BRACE = 123;
const DATA = "data:";
const EVENT = "event:";
/** llama.cpp's older servers have it in place of `data`. */
const ERROR = "error:";
/** A line of JSON that lost its `data`: a gateway passes on an error of the provider behind it as it came. */
const BARE_OBJECT = /^ {0,8}\{/;
/** Events with such a name are errors, whatever their data is. */
const ERROR_EVENT = /^ ?[\w.-]{0,64}(?:error|exception) *$/i;
const BARE_CHARS = 9;
/** The word, in quotes, spaces and whole brackets, also twice or with the name of its field. Half a bracket is a stream that was cut. */
const DONE =
  /^[\s"']*(?:data:\s*)?(?:\[\s*DONE\s*\]|<\|?DONE\|?>|DONE)(?:[^\w[<]*(?:data:\s*)?(?:\[\s*DONE\s*\]|<\|?DONE\|?>|DONE))*[^\w[<]*$/i;
/** The same in a line without its field. */
const BARE_DONE = /^[ \t]{0,8}\[[ \t]{0,8}DONE[ \t]{0,8}\][ \t]{0,8}$/i;
/** The name of the field, with spaces around it or in capital letters. */
const LOOSE_DATA = /^[ \t]{0,8}data[ \t]{0,8}:/i;
const LOOSE_DATA_CHARS_MAX = 32;
/** Before data: the name of its field once more, as some gateways write it twice, or a byte order mark. */
const IN_FRONT = /^(?:data: ?(?=\{)|\uFEFF)/;
/** Data that says nothing, as providers send it to keep a connection open. */
const NOTHING = /^(?:null|["']?(?:ping|heart_?-?beat|keep_?-?alive)["']?)?$/i;
const NOTHING_CHARS_MAX = 16;
const NULL = "null";
/** Completes the last line and the last event. */
const BLANK_LINES = Uint8Array.of(LF, LF);
const BYTE_ORDER_MARK = 0xfeff;
/** Has no state between calls: only whole lines are decoded. */
const UTF_8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** The data of an event that is a list. */
const LIST = /^\s{0,9}\[\s{0,9}\{/;

/** Whether a payload is the end of a chat stream. Its spelling differs among providers. */
export function isDone(payload: string): boolean {
  if (payload.charCodeAt(0) === OPENING_BRACE) return false;
  const text = payload.trim();
  return text.length <= DONE_CHARS_MAX && DONE.test(text);
}

export class OversizedEvent extends Error {
  override readonly name = "OversizedEvent";
}

/** Receives the events of a stream in their order. */
export type EventSink = {
  /**
   * Called where an event may begin, with text that ends with a complete line. Returns the index after the event if it has taken it
   * as it stands in the text, with the blank line; otherwise −1, and the event is parsed.
   */
  takeEvent(text: string, at: number): number;
  /** Called with the payload of each event that `takeEvent` has not taken. */
  takePayload(payload: string): void;
};

/** Parses one stream. */
export class SseReader {
  /** The beginning of a line whose end has not arrived. Made for the first one: most events arrive whole. */
  #partial: ByteBlocks | undefined;
  #isFirstLine = true;
  /** The last line ended with CR: an LF that follows belongs to it. */
  #afterCr = false;
  /** The data of the current event; undefined if there was no data line yet. */
  #data: string | undefined;
  /** The current event is an error by its name. */
  #isError = false;

  /** Returns the payloads that this chunk completes. Throws OversizedEvent. */
  push(chunk: Uint8Array): string[] {
    const payloads: string[] = [];
    this.read(chunk, { takeEvent: () => -1, takePayload: (payload) => payloads.push(payload) });
    return payloads;
  }

  /** Gives `sink` the events that this chunk completes. Throws OversizedEvent, and what the sink throws. */
  read(chunk: Uint8Array, sink: EventSink): void {
    let at = this.#afterCr && chunk[0] === LF ? 1 : 0;
    if (chunk.length > 0) this.#afterCr = false;
    const end = endOfLines(chunk);
    if (end > at) {
      // All complete lines are decoded at once: decoding them one by one costs more than parsing them.
      const isWhole = at === 0 && end === chunk.length && this.#partialBytes === 0;
      this.readLines(UTF_8.decode(isWhole ? chunk : this.#lineWith(chunk.subarray(at, end))), sink);
      this.#afterCr = end === chunk.length && chunk[end - 1] === CR;
      at = end;
    }
    if (this.#partialBytes + chunk.length - at + (this.#data?.length ?? 0) > EVENT_SIZE_MAX) throw oversized();
    if (at === chunk.length) return;
    this.#partial ??= new ByteBlocks();
    this.#partial.add(chunk.subarray(at));
  }

  /** Returns the payload that the end of the stream completes, if any: some providers leave out the last blank line. */
  end(): string[] {
    return this.push(BLANK_LINES);
  }

  /** Gives `sink` the event that the end of the stream completes, if any. */
  finish(sink: EventSink): void {
    this.read(BLANK_LINES, sink);
  }

  /** Bytes of memory that the beginning of an event takes, whose end has not arrived. */
  get heldBytes(): number {
    return (this.#partial?.allocated ?? 0) + BYTES_OF_CHAR * (this.#data?.length ?? 0);
  }

  get #partialBytes(): number {
    return this.#partial?.size ?? 0;
  }

  #lineWith(rest: Uint8Array): Uint8Array {
    return this.#partial === undefined || this.#partial.size === 0 ? rest : this.#partial.takeWith(rest);
  }

  /** As `read`, of whole lines that a sink took without reading them. */
  readLines(text: string, sink: EventSink): void {
    let at = 0;
    let lf = -1;
    let cr = -1;
    while (at < text.length) {
      const next = this.#data === undefined && !this.#isError ? sink.takeEvent(text, at) : -1;
      if (next > at) {
        at = next;
        continue;
      }
      // Each search continues from the last result. Otherwise a text without CR would be searched to its end for every line.
      if (lf < at) lf = indexFrom(text, "\n", at);
      if (cr < at) cr = indexFrom(text, "\r", at);
      const end = Math.min(lf, cr);
      const payload = this.#endLine(text, at, end);
      if (payload !== undefined && LIST.test(payload)) for (const one of entriesOf(payload)) sink.takePayload(one);
      else if (payload !== undefined) sink.takePayload(payload);
      at = lf === cr + 1 ? lf + 1 : end + 1;
    }
  }

  /** Parses one line. Returns the payload that it completes, if any. */
  #endLine(text: string, start: number, end: number): string | undefined {
    const from = this.#isFirstLine && text.charCodeAt(start) === BYTE_ORDER_MARK ? start + 1 : start;
    this.#isFirstLine = false;
    if (from === end) return this.#endEvent();
    if (text.startsWith(DATA, from)) return this.#addData(text.slice(from + DATA.length, end));
    if (text.startsWith(EVENT, from)) this.#isError = ERROR_EVENT.test(text.slice(from + EVENT.length, end));
    else if (text.startsWith(ERROR, from)) {
      this.#isError = true;
      return this.#addData(text.slice(from + ERROR.length, end));
    } else return this.#addLoose(text, from, end);
    return undefined;
  }

  /** A line whose field is missing or misspelled. Returns the payload that it completes, if any. */
  #addLoose(text: string, from: number, end: number): string | undefined {
    const [name = ""] = LOOSE_DATA.exec(text.slice(from, Math.min(end, from + LOOSE_DATA_CHARS_MAX))) ?? [];
    if (name !== "") return this.#addData(text.slice(from + name.length, end));
    if (BARE_OBJECT.test(text.slice(from, from + BARE_CHARS))) {
      const line = text.slice(from, end).trim();
      return isObject(line) ? this.#addData(line) : undefined;
    }
    const isEnd = end - from <= DONE_CHARS_MAX && BARE_DONE.test(text.slice(from, end));
    return isEnd ? this.#addData(text.slice(from, end)) : undefined;
  }

  /** The payload of the event that ends, if any. */
  #endEvent(): string | undefined {
    const payload = this.#data;
    const isError = this.#isError;
    this.#data = undefined;
    this.#isError = false;
    // An event without data is dropped.
    if (payload === undefined || (payload.length <= NOTHING_CHARS_MAX && NOTHING.test(payload))) return undefined;
    return isError ? errorOf(payload) : payload;
  }

  /**
   * Adds a line of data to the event. Some providers forget the blank line between events: data that is a whole object ends its event
   * where other data follows. Returns the payload of that event, if any.
   */
  #addData(line: string): string | undefined {
    const value = (line.startsWith(" ") ? line.slice(1) : line).replace(IN_FRONT, "");
    const before = this.#data === NULL ? undefined : this.#data;
    const isOther = value.startsWith("{") || value === NULL || isDone(value);
    const endsEvent = before !== undefined && isOther && isObject(before);
    const ended = endsEvent ? this.#endEvent() : undefined;
    this.#data = before === undefined || endsEvent ? value : `${before}\n${value}`;
    if (this.#data.length > EVENT_SIZE_MAX) throw oversized();
    return ended;
  }
}

/** Whether a single line is a JSON object: of several lines each would be parsed again with every further line. */
function isObject(line: string): boolean {
  return line.startsWith("{") && line.endsWith("}") && !line.includes("\n") && isJson(line);
}

/** The payloads of an event whose data is a list of several objects: some gateways collect what arrives together. Any other is one. */
function entriesOf(payload: string): string[] {
  let entries: unknown;
  try {
    entries = JSON.parse(payload);
  } catch {
    return [payload];
  }
  if (!Array.isArray(entries) || entries.length < 2 || !entries.every(isRecord)) return [payload];
  return entries.map((entry) => JSON.stringify(entry));
}

/** The data of an event that is an error by its name, as an object that says so. */
function errorOf(data: string): string {
  return `{"object":"error","error":${isJson(data) ? data : JSON.stringify(data)}}`;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function oversized(): OversizedEvent {
  return new OversizedEvent("an event of the provider's stream is too large");
}

/** The index after the last complete line. */
function endOfLines(chunk: Uint8Array): number {
  if (chunk[chunk.length - 1] === LF) return chunk.length;
  return 1 + Math.max(chunk.lastIndexOf(LF), chunk.lastIndexOf(CR));
}

/** The index of the next `character` at or after `from`; the length of the text if there is none. */
function indexFrom(text: string, character: string, from: number): number {
  const found = text.indexOf(character, from);
  return found < 0 ? text.length : found;
}
