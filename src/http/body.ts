import type { Config } from "../config.ts";
import { Refusal, sentence } from "../errors.ts";
import { ByteBlocks } from "../platform/byte_blocks.ts";
import { deadline } from "../platform/deadline.ts";
import type { Metrics } from "../platform/metrics.ts";
import { runtimeName } from "../platform/runtime.ts";
import type { Owner } from "../platform/share_limit.ts";
import { keepIntegers } from "./json_quirks.ts";
import { DEPTH_MAX, scanObject, TooDeep, TooManyValues, VALUES_MAX } from "./json_scan.ts";
import { DuplicateField, type Span } from "./json_text.ts";
import { closeAfterAnswer } from "./request_facts.ts";

/** A request body. `text` is sent on, as received or patched; `value` is what it parses to. The body's bytes are the UTF-8 of `text`. */
export type Body = {
  text: string;
  value: unknown;
  spans: ReadonlyMap<string, Span>;
  /** Its reservation of memory: close it when the text is no longer used. */
  room: BodyRoom;
};

/** The memory that is reserved for one body. */
export type BodyRoom = {
  /** Reserves more: for a body without a declared length, or what is made of it. Throws as `open`, and an Error once the room is closed. */
  grow(bytes: number): void;
  /** The body has been read; its bytes are still kept. */
  wasRead(): void;
  /** The text is no longer kept; idempotent. */
  close(): void;
};

type BodyDeps = {
  config: Pick<Config, "bodyReadMs">;
  metrics: Pick<Metrics, "timedOut">;
  bodies: { open(owner: Owner, bytes: number): BodyRoom };
};

type BodyOptions = {
  bytesMax: number;
  /** Whose share of the replica it uses; undefined if nobody is signed in. */
  owner: Owner | undefined;
  /** Numbers that it may have beyond VALUES_MAX: lists of token ids. */
  numbersMax?: number | undefined;
};

/** A body up to this size must arrive within SMALL_BODY_READ_MS, so that clients that send nothing do not take places for long. */
const SMALL_BODY_BYTES = 64 * 1024;
const SMALL_BODY_READ_MS = 10_000;
/** Characters of a field's path that an error message repeats. */
const PATH_CHARS_MAX = 100;
const UTF_8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** What a lenient decoder makes of bytes that are not UTF-8. */
const REPLACEMENT = "\uFFFD";
/** For a body that counts for nobody. */
export const NO_ROOM: BodyRoom = { grow() {}, wasRead() {}, close() {} };

const JSON_TYPE: BodyType<Body> = { pattern: /^application\/json\s*(;|$)/i, refusal: {}, parse: bodyOf };
const FORM_TYPE: BodyType<string> = {
  pattern: /^(application\/x-www-form-urlencoded|multipart\/form-data)\s*(;|$)/i,
  refusal: { message: "Send the form as application/x-www-form-urlencoded or multipart/form-data." },
  parse(text, room) {
    room.close();
    return text;
  },
};

/**
 * Whether a request has a body. Deno has a stream for every method but GET and HEAD, also where nothing was sent; Bun has null.
 * Source: RFC 9112 §6.3.
 */
export function hasBody({ body, headers }: Request): boolean {
  if (body === null || headers.get("content-length") === "0") return false;
  return ["content-length", "transfer-encoding", "content-type"].some((name) => headers.has(name));
}

/**
 * Reads, decodes and parses a JSON object. No byte is read before memory is reserved for it. Throws unsupported_media_type,
 * request_too_large, too_many_requests and service_unavailable (no room), invalid_request (also when it takes longer than
 * BODY_READ_MS, or a small body longer than 10 s). Source: ERR-7, ADM-5.
 */
export function readBody(deps: BodyDeps, request: Request, options: BodyOptions): Promise<Body> {
  return readAs(JSON_TYPE, deps, request, options);
}

/** Reads a form as it was sent, of nobody's account. Throws as `readBody`. */
export function readForm(deps: BodyDeps, request: Request, bytesMax: number): Promise<string> {
  return readAs(FORM_TYPE, deps, request, { bytesMax, owner: undefined });
}

/** A type of body. `parse` makes of its text what is kept, and throws what refuses it. */
type BodyType<T> = {
  pattern: RegExp;
  refusal: { message?: string };
  parse: (text: string, room: BodyRoom, numbersMax: number | undefined) => T;
};

async function readAs<T>(type: BodyType<T>, deps: BodyDeps, request: Request, options: BodyOptions): Promise<T> {
  const { bytesMax, owner, numbersMax } = options;
  const { headers } = request;
  if (!type.pattern.test(onlyValue(headers.get("content-type"))))
    throw new Refusal("unsupported_media_type", type.refusal);
  const encoding = onlyValue(headers.get("content-encoding"));
  if (encoding !== "" && encoding !== "identity") throw new Refusal("unsupported_media_type");
  const length = headers.get("content-length");
  const declared = length === null ? undefined : Number(length);
  if (declared !== undefined && declared > bytesMax) throw tooLarge(bytesMax);
  const room = owner === undefined ? NO_ROOM : deps.bodies.open(owner, declared ?? 0);
  try {
    const blob = await readBlob(deps, request, { declared, bytesMax, room });
    const decoded = await blob.text();
    const text = isDecoded(decoded, blob) ? decoded : decode(await blob.arrayBuffer());
    room.grow(Math.max(0, memoryOf(text, blob.size) - blob.size));
    room.wasRead();
    return type.parse(text, room, numbersMax);
  } catch (error) {
    room.close();
    throw error;
  }
}

/**
 * The value of a header that should come once, in lower case. Equal values are one, since some clients and proxies add what is already
 * there; the runtimes join them with commas. "": none. Different ones give a text that no type matches. Source: RFC 9110 §5.3.
 */
function onlyValue(header: string | null): string {
  const text = (header ?? "").toLowerCase();
  if (!text.includes(",")) return text;
  // Commas inside quotes belong to a value.
  const [first = "", ...others] = (text.match(/(?:"(?:[^"\\]|\\.)*"|[^,])+/g) ?? []).map((value) => value.trim());
  return others.every((other) => other === first) ? first : `several: ${text}`;
}

/**
 * Parses a text into a body. Throws invalid_request for text that is not a JSON object, for a repeated field in an object of
 * any level, and for too many levels or values.
 */
export function bodyOf(text: string, room: BodyRoom, numbersMax = 0): Body {
  // Before parsing: a parser needs a hundred times the bytes of many small values.
  const found = { hasLong: false };
  const spans = spansOf(text, numbersMax, found);
  const value = parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Refusal("invalid_request", { message: "The body must be a JSON object." });
  }
  if (found.hasLong) keepIntegers(value, text);
  return { text, value, spans, room };
}

/** Bytes of memory that a text takes: both engines use two bytes a character for text that is not ASCII. */
export function memoryOf(text: string, bytes = Buffer.byteLength(text)): number {
  return text.length === bytes ? bytes : 2 * text.length;
}

/** Keeps texts that were made of a body in place of its own, which is dropped. Throws as `BodyRoom.grow` if they take more memory. */
export function keepInstead(body: Body, texts: readonly string[]): void {
  const kept = texts.reduce((sum, text) => sum + memoryOf(text), 0);
  body.room.grow(Math.max(0, kept - memoryOf(body.text)));
  body.text = "";
}

type Reading = { declared: number | undefined; bytesMax: number; room: BodyRoom };

/** A blob, because its text is made from the received bytes; other ways copy them first. */
function readBlob({ config, metrics }: BodyDeps, request: Request, reading: Reading): Promise<Blob> | Blob {
  const { declared } = reading;
  if (declared === undefined && request.body === null) return new Blob();
  return new Promise((resolve, reject) => {
    let arriving: Arriving;
    const late = () => {
      metrics.timedOut("body");
      arriving.giveUp();
      closeAfterAnswer(request);
      reject(new Refusal("invalid_request", { message: "The body did not arrive in time." }));
    };
    const { bodyReadMs } = config;
    const isSmall = declared === undefined || declared <= SMALL_BODY_BYTES;
    let stopClock = deadline(isSmall ? Math.min(bodyReadMs, SMALL_BODY_READ_MS) : bodyReadMs, late);
    const onLarge = () => {
      stopClock();
      stopClock = deadline(bodyReadMs, late);
    };
    arriving = beginReading(request, reading, onLarge);
    arriving.blob.then(
      (blob) => {
        stopClock();
        resolve(blob);
      },
      (error) => {
        stopClock();
        const message = "The body could not be read to its end.";
        reject(error instanceof Refusal ? error : new Refusal("invalid_request", { message }));
      },
    );
  });
}

/** A body that is being read. `giveUp`: nothing more is read, and what has arrived is dropped; then `blob` says nothing. */
type Arriving = { blob: Promise<Blob>; giveUp(): void };

/**
 * Calls `onLarge` once a body without a declared length is larger than a small body. Bun has a call for a body with a length, which does
 * not turn a body in one piece into a stream; once the connection is closed after the answer, nothing more is
 * read. Deno's would go on reading after the answer, into memory that nobody counts.
 */
function beginReading(request: Request, reading: Reading, onLarge: () => void): Arriving {
  const { declared } = reading;
  if (declared === undefined) return readChunks(request, reading, onLarge);
  if (runtimeName === "bun") return { blob: request.blob(), giveUp() {} };
  // The HTTP parser enforces a declared length, and its memory is reserved. Only a chunked body is counted while it arrives.
  return readChunks(request, { ...reading, room: NO_ROOM }, () => {});
}

function readChunks(request: Request, { bytesMax, room }: Reading, onLarge: () => void): Arriving {
  const reader = (request.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
  let blocks: ByteBlocks | undefined = new ByteBlocks();
  async function read(): Promise<Blob> {
    let size = 0;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (blocks === undefined) return new Blob();
        if (done) return blocks.toBlob();
        const before = size;
        size += value.byteLength;
        if (size > bytesMax) throw tooLarge(bytesMax);
        room.grow(value.byteLength);
        if (before <= SMALL_BODY_BYTES && size > SMALL_BODY_BYTES) onLarge();
        blocks.add(value);
      }
    } catch (error) {
      reader.releaseLock(); // The runtime reads on, so that the client reads why.
      throw error;
    }
  }
  return {
    blob: read(),
    giveUp() {
      // Not `cancel`: before the answer, it makes Deno read all that the client sends.
      blocks = undefined;
      reader.releaseLock();
    },
  };
}

function tooLarge(bytesMax: number): Refusal {
  return new Refusal("request_too_large", {
    message: sentence("The body is larger than {bytesMax} bytes.", { bytesMax }),
    limit: bytesMax,
  });
}

/**
 * Whether `Blob.text` has decoded the bytes without a loss: it replaces invalid bytes, and drops a byte order mark. ASCII text is as long
 * as its bytes.
 */
function isDecoded(text: string, { size }: Blob): boolean {
  return !text.includes(REPLACEMENT) && (text.length === size || Buffer.byteLength(text) === size);
}

/** Decodes bytes as UTF-8. Throws invalid_request for other bytes. */
function decode(bytes: ArrayBuffer): string {
  try {
    return UTF_8.decode(bytes);
  } catch {
    throw new Refusal("invalid_request", { message: "The body is not valid UTF-8." });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Nesting that is too deep for the parser ends here too.
    throw new Refusal("invalid_request", { message: "The body is not valid JSON." });
  }
}

function spansOf(text: string, numbersMax: number, found: { hasLong: boolean }): ReadonlyMap<string, Span> {
  try {
    return scanObject(text, numbersMax, found);
  } catch (error) {
    if (error instanceof TooDeep) throw refused(`The body is nested deeper than ${DEPTH_MAX} levels.`);
    if (error instanceof TooManyValues) {
      const more = numbersMax > 0 ? `, besides ${numbersMax} numbers` : "";
      throw refused(`The body has more than ${VALUES_MAX} values${more}.`, error.path);
    }
    if (!(error instanceof DuplicateField)) throw error;
    const path = error.field.slice(0, PATH_CHARS_MAX);
    throw refused(`The field ${path} is repeated.`, path);
  }
}

function refused(message: string, path = ""): Refusal {
  return new Refusal("invalid_request", { message, param: path.slice(0, PATH_CHARS_MAX) || null });
}
