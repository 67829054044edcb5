import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { createGzip } from "node:zlib";
import { giantPieces, type Piece } from "./chat.ts";
import type { Behaviour } from "./faults.ts";
import type { Call } from "./journal.ts";
import { ProviderError } from "./request.ts";

const GATE_POLL_MS = 5;
const GZIP_BOMB_BYTES = 256 * 1024 * 1024;
const ENDLESS_CHARS = 16 * 1024;
const ENDLESS = {
  events: `data: {"id":"chatcmpl-endless","object":"chat.completion.chunk","created":1,"model":"endless","choices":[{"index":0,"delta":{"content":"${"x".repeat(ENDLESS_CHARS)}"},"finish_reason":null}]}\n\n`,
  line: "x".repeat(ENDLESS_CHARS),
  comments: `: ${"x".repeat(ENDLESS_CHARS)}\n\n`,
};
const HTML_PAGE =
  "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1><hr>simulated-proxy</body></html>";

/** One reply, ready to be written. `paceMs`: the wait before each chunk of a stream, or before a whole JSON body. */
export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly pieces: readonly Piece[];
  readonly paceMs: number;
  /** A stream has no Content-Length, and its headers are flushed immediately. */
  readonly stream: boolean;
}

/** The reply as changed by a behaviour. Pure. What a behaviour does during writing is in `writeReply`. */
export function changeReply(reply: Reply, behaviour: Behaviour): Reply {
  const headers: Record<string, string> = { ...reply.headers };
  let { status, pieces, stream, paceMs } = reply;
  const replace = (text: string, contentType: string) => {
    pieces = [{ text, chunk: true }];
    headers["content-type"] = contentType;
    stream = false;
    paceMs = 0;
  };
  status = behaviour.status ?? status;
  if (behaviour.redirectTo !== undefined) {
    replace("", "text/plain");
    headers.location = behaviour.redirectTo;
    status = behaviour.status ?? 302;
  } else if (behaviour.body !== undefined) replace(behaviour.body, "application/json");
  else if (behaviour.html) replace(HTML_PAGE, "text/html; charset=utf-8");
  else if (status >= 400 && behaviour.status !== undefined) replace(failureOf(status).body(), "application/json");

  if (behaviour.contentType !== undefined) headers["content-type"] = behaviour.contentType;
  if (!stream && behaviour.giantLineBytes) pieces = [...giantPieces(behaviour.giantLineBytes), ...pieces];
  const stopsInside = behaviour.hang === "mid_stream" || Boolean(behaviour.gateInside?.afterChunks);
  if (!stream && (stopsInside || behaviour.cutAfterChunks !== undefined)) pieces = splitInHalves(pieces);
  return {
    status,
    pieces,
    stream: stream || behaviour.chunked === true,
    paceMs,
    headers: { ...headers, ...behaviour.headers },
  };
}

/**
 * Writes a reply with its behaviour, at the pace of the slower of sender and reader. Returns early, without an error, when the
 * caller leaves.
 */
export async function writeReply(writer: ReplyWriter, reply: Reply, call: Call, behaviour: Behaviour): Promise<void> {
  const { gate, gateInside } = behaviour;
  if (gate !== undefined) await writer.passes(gate);
  await writer.sleep(behaviour.delayMs ?? 0);
  if (writer.isClosed) return;
  if (behaviour.cutBeforeHeaders) return writer.cut();
  if (behaviour.hang === "connect" || behaviour.hang === "headers") return writer.hang();

  call.status = reply.status;
  if (behaviour.gzipBomb) return writer.gzip(reply, behaviour.gzipBomb === true ? GZIP_BOMB_BYTES : behaviour.gzipBomb);
  writer.start(reply);
  const hasLateBody = behaviour.firstByteDelayMs || behaviour.hang === "first_byte" || gateInside?.afterChunks === 0;
  if (hasLateBody || reply.stream) writer.response.flushHeaders();
  if (behaviour.hang === "first_byte") return writer.hang();
  await writer.sleep(behaviour.firstByteDelayMs ?? 0);

  const chunksTotal = reply.pieces.reduce((sum, { chunk }) => sum + Number(chunk), 0);
  const hangAt = behaviour.hang === "mid_stream" ? (behaviour.cutAfterChunks ?? Math.max(1, chunksTotal >> 1)) : -1;
  const cutAt = behaviour.hang === "mid_stream" ? -1 : (behaviour.cutAfterChunks ?? -1);
  const waitMs = behaviour.chunkDelayMs ?? reply.paceMs;
  let bytesLeft = behaviour.cutAfterBytes ?? Number.POSITIVE_INFINITY;
  for (const { text, chunk } of reply.pieces) {
    if (chunk && call.chunksSent === cutAt) return writer.cut(behaviour);
    if (chunk && call.chunksSent === hangAt) return writer.hang();
    if (call.chunksSent === gateInside?.afterChunks) await writer.passes(gateInside.gate);
    if (chunk && waitMs > 0) await writer.sleep(waitMs);
    if (writer.isClosed) return;
    const bytes = bytesLeft === Number.POSITIVE_INFINITY ? text : Buffer.from(text).subarray(0, bytesLeft);
    if (behaviour.splitEvery) await writer.writeSplit(bytes, behaviour.splitEvery);
    else if (!writer.response.write(bytes)) await writer.drained();
    if (chunk && !writer.isClosed) call.chunksSent++;
    if (typeof bytes !== "string") bytesLeft -= bytes.length;
    if (bytesLeft <= 0) return writer.cut(behaviour);
    if (chunk && behaviour.endless) return writer.endless(ENDLESS[behaviour.endless], behaviour.cutWhenBlockedMs);
    // Checked here too: after the last chunk, the finish event must not be sent.
    if (chunk && call.chunksSent === cutAt) return writer.cut(behaviour);
    if (chunk && call.chunksSent === hangAt) return writer.hang();
  }
  writer.response.end();
}

/** Writes a whole body in one call: the fast path for load tests. */
export function writeWhole({ response }: ReplyWriter, reply: Reply, call: Call): void {
  call.status = reply.status;
  call.chunksSent = 1;
  const [first, ...others] = reply.pieces;
  const body = Buffer.from(others.length > 0 || !first ? reply.pieces.map(({ text }) => text).join("") : first.text);
  response.writeHead(reply.status, { ...reply.headers, "content-length": body.length });
  response.end(body);
}

/** Runs something once, so many ms later. Returns what cancels that. */
export type Later = (run: () => void, ms: number) => () => void;

/** What holds an answer back: time, and gates. */
export interface Waits {
  readonly later: Later;
  isOpen(gate: string): boolean;
}

/** By this machine's timers. */
export const later: Later = (run, ms) => {
  const timer = setTimeout(run, ms);
  return () => clearTimeout(timer);
};

/** Writes one response. Its waits end early when the connection closes, so that nothing is kept for a caller who left. */
export class ReplyWriter {
  readonly response: ServerResponse;
  isClosed = false;
  /** Whether this side cut the connection. */
  isCut = false;
  #wake: (() => void) | undefined;
  readonly #socket: Socket | null;
  /** What the connection had sent before. */
  readonly #before: number;
  readonly #waits: Waits;

  /** `onClose` runs once, when the response is finished or its connection closes. */
  constructor(response: ServerResponse, waits: Waits, onClose: (writer: ReplyWriter) => void) {
    this.response = response;
    this.#waits = waits;
    this.#socket = response.socket;
    this.#before = this.#socket?.bytesWritten ?? 0;
    response.on("error", () => {}); // "close" follows.
    response.once("close", () => {
      this.isClosed = true;
      onClose(this);
      this.#wake?.();
    });
  }

  /** Bytes of this answer that the system has taken. */
  get bytesSent(): number {
    return (this.#socket?.bytesWritten ?? 0) - this.#before;
  }

  start({ status, headers, pieces, stream }: Reply): void {
    const length = stream
      ? {}
      : { "content-length": pieces.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0) };
    this.response.writeHead(status, { ...headers, ...length });
  }

  async sleep(ms: number): Promise<void> {
    if (ms > 0 && !this.isClosed) await this.#pause(ms);
  }

  /** Waits until this gate is open. */
  async passes(gate: string): Promise<void> {
    while (!this.isClosed && !this.#waits.isOpen(gate)) await this.sleep(GATE_POLL_MS);
  }

  /** Waits until the caller has read what was written, at most `maxMs`. */
  async drained(maxMs?: number): Promise<void> {
    if (this.isClosed || !this.response.writableNeedDrain) return;
    this.response.once("drain", () => this.#wake?.());
    await this.#pause(maxMs);
  }

  /** Sends nothing more, and waits until the caller leaves. */
  async hang(): Promise<void> {
    if (!this.isClosed) await this.#pause();
  }

  /** Closes the socket in the middle of the response: flushes what was written, waits as it is told, then closes. */
  async cut({ cutDelayMs = 0, cutGate }: Behaviour = {}): Promise<void> {
    if (this.response.headersSent) await this.#flush("");
    await this.sleep(cutDelayMs);
    if (cutGate !== undefined) await this.passes(cutGate);
    this.#cutNow();
  }

  /** Writes the same text without end, as fast as it is read, until the caller leaves or takes nothing for `blockedMsMax`. */
  async endless(text: string, blockedMsMax?: number): Promise<void> {
    while (!this.isClosed) {
      if (this.response.write(text))
        await new Promise((resolve) => setImmediate(resolve)); // Lets the event loop report that the caller has left.
      else {
        await this.drained(blockedMsMax);
        if (blockedMsMax !== undefined && this.response.writableNeedDrain) return this.#cutNow();
      }
    }
  }

  #cutNow(): void {
    if (this.isClosed) return;
    this.isCut = true; // Before the socket is closed: the handler of "close" reads it.
    this.response.socket?.destroy();
  }

  async writeSplit(text: string | Buffer, bytesEach: number): Promise<void> {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length && !this.isClosed; at += bytesEach) {
      await this.#flush(bytes.subarray(at, at + bytesEach));
      await new Promise((resolve) => setImmediate(resolve)); // Otherwise the system may join two writes into one segment.
    }
  }

  /** Writes the reply gzipped, after `bytes` spaces, which compress to almost nothing. */
  async gzip(reply: Reply, bytes: number): Promise<void> {
    this.response.writeHead(reply.status, { "content-encoding": "gzip", ...reply.headers });
    const source = Readable.from([...giantPieces(bytes), ...reply.pieces].map(({ text }) => Buffer.from(text)));
    const packed = source.pipe(createGzip());
    packed.on("error", () => this.response.destroy());
    packed.pipe(this.response);
    await this.#pause();
    source.destroy();
    packed.destroy();
  }

  #flush(bytes: string | Buffer): Promise<void> {
    return new Promise((resolve) => {
      if (this.isClosed) return resolve();
      this.#wake = resolve;
      this.response.write(bytes, () => resolve());
    });
  }

  /** Waits until `#wake` is called (the connection closes or drains) or `ms` have passed. */
  #pause(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = ms === undefined ? undefined : this.#waits.later(() => this.#wake?.(), ms);
      this.#wake = () => {
        cancel?.();
        this.#wake = undefined;
        resolve();
      };
    });
  }
}

/** The error of a failing provider. It names an organization, which no customer of a gateway may see. */
function failureOf(status: number): ProviderError {
  const type = status === 429 ? "requests" : status >= 500 ? "server_error" : "invalid_request_error";
  const code = status === 429 ? "rate_limit_exceeded" : status === 401 ? "invalid_api_key" : undefined;
  return new ProviderError(
    status,
    `The simulated provider failed on purpose with ${status} (organization org-simulated).`,
    { type, code },
  );
}

function splitInHalves(pieces: readonly Piece[]): Piece[] {
  const whole = Buffer.concat(pieces.map(({ text }) => Buffer.from(text)));
  const middle = whole.length >> 1;
  return [
    { text: whole.subarray(0, middle), chunk: true },
    { text: whole.subarray(middle), chunk: true },
  ];
}
