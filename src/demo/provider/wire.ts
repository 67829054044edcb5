import type { ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { createGzip } from "node:zlib";
import type { Piece } from "./answers.ts";
import { giantPieces } from "./answers.ts";
import type { Behaviour } from "./faults.ts";
import type { Call } from "./journal.ts";
import { ProviderError } from "./request.ts";

const GZIP_BOMB_BYTES = 256 * 1024 * 1024;
const ENDLESS_CHARS = 16 * 1024;
const ENDLESS = {
  events: `data: {"id":"chatcmpl-endless","object":"chat.completion.chunk","created":1,"model":"endless","choices":[{"index":0,"delta":{"content":"${"x".repeat(ENDLESS_CHARS)}"},"finish_reason":null}]}\n\n`,
  line: "x".repeat(ENDLESS_CHARS),
  comments: `: ${"x".repeat(ENDLESS_CHARS)}\n\n`,
};
const HTML_PAGE =
  "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1><hr>simulated-proxy</body></html>";

/** One answer, ready to be written. `paceMs`: the wait before each chunk of a stream, or before the whole of a JSON body. */
export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly pieces: readonly Piece[];
  readonly paceMs: number;
  /** A stream's length is not known beforehand, and its headers go out at once. */
  readonly stream: boolean;
}

/** The reply that a behaviour puts in place of a good one. Pure; what happens while it is written is `deliver`'s. */
export function spoilReply(reply: Reply, behaviour: Behaviour): Reply {
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
  else if (status >= 400 && behaviour.status !== undefined) replace(errorOf(status).body(), "application/json");

  if (behaviour.contentType !== undefined) headers["content-type"] = behaviour.contentType;
  if (!stream && behaviour.giantLineBytes) pieces = [...giantPieces(behaviour.giantLineBytes), ...pieces];
  if (!stream && (behaviour.hang === "mid_stream" || behaviour.cutAfterChunks !== undefined)) pieces = inHalves(pieces);
  return {
    status,
    pieces,
    stream: stream || behaviour.chunked === true,
    paceMs,
    headers: { ...headers, ...behaviour.headers },
  };
}

/**
 * Writes a reply as its behaviour wants it, at the pace of the slower of sender and reader. Ends early, without an error, once the caller is gone.
 */
export async function deliver(line: Line, reply: Reply, call: Call, behaviour: Behaviour): Promise<void> {
  await line.sleep(behaviour.delayMs ?? 0);
  if (line.gone) return;
  if (behaviour.cutBeforeHeaders) return line.cut();
  if (behaviour.hang === "connect" || behaviour.hang === "headers") return line.hang();

  call.status = reply.status;
  if (behaviour.gzipBomb) return line.gzip(reply, behaviour.gzipBomb === true ? GZIP_BOMB_BYTES : behaviour.gzipBomb);
  line.start(reply);
  if (behaviour.firstByteDelayMs || behaviour.hang === "first_byte" || reply.stream) line.response.flushHeaders();
  if (behaviour.hang === "first_byte") return line.hang();
  await line.sleep(behaviour.firstByteDelayMs ?? 0);

  const chunksTotal = reply.pieces.reduce((sum, { chunk }) => sum + Number(chunk), 0);
  const hangAt = behaviour.hang === "mid_stream" ? (behaviour.cutAfterChunks ?? Math.max(1, chunksTotal >> 1)) : -1;
  const cutAt = behaviour.hang === "mid_stream" ? -1 : (behaviour.cutAfterChunks ?? -1);
  const waitMs = behaviour.chunkDelayMs ?? reply.paceMs;
  let bytesLeft = behaviour.cutAfterBytes ?? Number.POSITIVE_INFINITY;
  for (const { text, chunk } of reply.pieces) {
    if (chunk && call.chunksSent === cutAt) return line.cut(behaviour.cutDelayMs);
    if (chunk && call.chunksSent === hangAt) return line.hang();
    if (chunk && waitMs > 0) await line.sleep(waitMs);
    if (line.gone) return;
    const bytes = bytesLeft === Number.POSITIVE_INFINITY ? text : Buffer.from(text).subarray(0, bytesLeft);
    if (behaviour.splitEvery) await line.writeSplit(bytes, behaviour.splitEvery);
    else if (!line.response.write(bytes)) await line.drained();
    if (chunk && !line.gone) call.chunksSent++;
    if (typeof bytes !== "string") bytesLeft -= bytes.length;
    if (bytesLeft <= 0) return line.cut(behaviour.cutDelayMs);
    if (chunk && behaviour.endless) return line.endless(ENDLESS[behaviour.endless]);
    // Chunks may be the last pieces that count: the finish event must not slip out behind them.
    if (chunk && call.chunksSent === cutAt) return line.cut(behaviour.cutDelayMs);
    if (chunk && call.chunksSent === hangAt) return line.hang();
  }
  line.response.end();
}

/** Writes a whole body at once: the short way that a load test takes. */
export function deliverAtOnce({ response }: Line, reply: Reply, call: Call): void {
  call.status = reply.status;
  call.chunksSent = 1;
  const [first, ...others] = reply.pieces;
  const body = Buffer.from(others.length > 0 || !first ? reply.pieces.map(({ text }) => text).join("") : first.text);
  response.writeHead(reply.status, { ...reply.headers, "content-length": body.length });
  response.end(body);
}

/** The sending end of one answer. Its waits end early when the caller leaves, so that nothing is kept for somebody who is gone. */
export class Line {
  readonly response: ServerResponse;
  gone = false;
  /** Whether it was this side that broke the answer off. */
  broken = false;
  #wake: (() => void) | undefined;

  /** `onClose` runs once, when the connection is done with this answer. */
  constructor(response: ServerResponse, onClose: (line: Line) => void) {
    this.response = response;
    response.on("error", () => {}); // "close" follows, and tells enough.
    response.once("close", () => {
      this.gone = true;
      onClose(this);
      this.#wake?.();
    });
  }

  start({ status, headers, pieces, stream }: Reply): void {
    const length = stream
      ? {}
      : { "content-length": pieces.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0) };
    this.response.writeHead(status, { ...headers, ...length });
  }

  async sleep(ms: number): Promise<void> {
    if (ms > 0 && !this.gone) await this.#pause(ms);
  }

  /** Waits until the caller has read what was written. */
  async drained(): Promise<void> {
    if (this.gone || !this.response.writableNeedDrain) return;
    this.response.once("drain", () => this.#wake?.());
    await this.#pause();
  }

  /** Nothing more, until the caller gives up. */
  async hang(): Promise<void> {
    if (!this.gone) await this.#pause();
  }

  /** Closes the socket in the middle of the answer, once what was written before is on its way, and has had `afterMs` to arrive. */
  async cut(afterMs = 0): Promise<void> {
    if (this.response.headersSent) await this.#flush("");
    await this.sleep(afterMs);
    if (this.gone) return;
    this.broken = true; // Before the socket is closed: whoever hears "close" reads it.
    this.response.socket?.destroy();
  }

  /** The same text again and again, as fast as it is read, until the caller gives up. */
  async endless(text: string): Promise<void> {
    while (!this.gone) {
      if (!this.response.write(text)) await this.drained();
      else await new Promise((resolve) => setImmediate(resolve)); // The caller's leaving must be seen.
    }
  }

  async writeSplit(text: string | Buffer, bytesEach: number): Promise<void> {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length && !this.gone; at += bytesEach) {
      await this.#flush(bytes.subarray(at, at + bytesEach));
      await new Promise((resolve) => setImmediate(resolve)); // Else the system may join two writes into one segment.
    }
  }

  /** The reply gzipped, after `bytes` spaces that take next to nothing on the wire. */
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
      if (this.gone) return resolve();
      this.#wake = resolve;
      this.response.write(bytes, () => resolve());
    });
  }

  /** Until `#wake` is called, as it is when the caller leaves, or the time is over. */
  #pause(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(() => this.#wake?.(), ms);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
    });
  }
}

/** What an unwell provider says. It names an organization, which no caller of a gateway should ever read. */
function errorOf(status: number): ProviderError {
  const type = status === 429 ? "requests" : status >= 500 ? "server_error" : "invalid_request_error";
  const code = status === 429 ? "rate_limit_exceeded" : status === 401 ? "invalid_api_key" : undefined;
  return new ProviderError(
    status,
    `The simulated provider failed on purpose with ${status} (organization org-simulated).`,
    { type, code },
  );
}

function inHalves(pieces: readonly Piece[]): Piece[] {
  const whole = Buffer.concat(pieces.map(({ text }) => Buffer.from(text)));
  const middle = whole.length >> 1;
  return [
    { text: whole.subarray(0, middle), chunk: true },
    { text: whole.subarray(middle), chunk: true },
  ];
}
