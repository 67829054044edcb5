import type { Socket } from "bun";
import { answerQuestions, sharedMicros } from "./helper.ts";
import { STAMP_DIGITS } from "./workloads.ts";

/**
 * The bench's provider: a process of its own, HTTP/1.1 over bare sockets, made to be no bottleneck. Each request says in
 * its first message what it wants: `[[delay chunks every mark]]`. The mark comes back in the answer, and every chunk
 * carries the moment at which it was written. It counts its calls. `BENCH_BREAKS_ONE_IN=n` breaks every n-th answer.
 */

export type ProviderQuestion = "count" | "end streams";
export type ProviderReply = { calls: number; open: number };
export type ProviderReady = { port: number };

/** The plan stands within so many bytes of a body. */
const PLAN_WITHIN_BYTES = 4096;
/** Whether usage is asked for is looked up in bodies up to this size; larger ones are no streams. */
const SEARCHED_BYTES_MAX = 64 * 1024;
const HEAD_BYTES_MAX = 32 * 1024;
const ANSWER_CONTENT_BYTES = 700;

/** Chunks without a pause are written so many at a time: written one by one, the provider would work more than a proxy. */
const TOGETHER = 4;

const USAGE = '"usage":{"prompt_tokens":120,"completion_tokens":50,"total_tokens":170}';
const EVENT_START =
  'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"chat-a","choices":[{"index":0,"delta":{"content":"';
const EVENT_END = '"},"finish_reason":null}]}\n\n';
const FINISH =
  'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"chat-a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n';
const USAGE_EVENT = `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"chat-a","choices":[],${USAGE}}\n\n`;
const STREAM_HEAD =
  "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
const BROKEN = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
const CHUNK_LENGTH = (EVENT_START.length + STAMP_DIGITS + 1 + EVENT_END.length).toString(16);
const CHUNK_START = `${CHUNK_LENGTH}\r\n${EVENT_START}`;
const CHUNK_END = ` ${EVENT_END}\r\n`;

const breaksOneIn = Number(process.env.BENCH_BREAKS_ONE_IN ?? 0);
let calls = 0;
const open = new Set<Stream>();

type Client = Socket<Connection>;

const server = Bun.listen<Connection>({
  hostname: "127.0.0.1",
  port: 0,
  socket: {
    open(socket) {
      // Small writes one behind the other would wait for each other's acknowledgement.
      socket.setNoDelay(true);
      socket.data = new Connection(socket);
    },
    data: (socket, bytes) => socket.data.take(bytes),
    drain: (socket) => socket.data.flush(),
    close: (socket) => socket.data.close(),
    error: (socket) => socket.data.close(),
  },
});

answerQuestions<ProviderQuestion, ProviderReply>({ port: server.port } satisfies ProviderReady, async (question) => {
  if (question === "end streams") for (const stream of [...open]) stream.finish();
  return { calls, open: open.size };
});

class Connection {
  readonly #socket: Client;
  /** What is read of a head, or the parts of a body. */
  #parts: Buffer[] = [];
  #bodyLeft = -1;
  #unsent: Buffer | undefined;
  #stream: Stream | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(socket: Client) {
    this.#socket = socket;
  }

  take(bytes: Buffer): void {
    if (this.#bodyLeft < 0) this.#takeHead(bytes);
    else this.#takeBody(bytes);
  }

  #takeHead(bytes: Buffer): void {
    const head = this.#parts.length === 0 ? bytes : Buffer.concat([...this.#parts, bytes]);
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) {
      this.#parts = [head];
      if (head.length > HEAD_BYTES_MAX) this.#socket.end();
      return;
    }
    const length = /\r\ncontent-length: *(\d+)/i.exec(head.toString("latin1", 0, end))?.[1];
    if (length === undefined) {
      this.#socket.end("HTTP/1.1 411 Length Required\r\ncontent-length: 0\r\n\r\n");
      return;
    }
    this.#parts = [];
    this.#bodyLeft = Number(length);
    this.#takeBody(head.subarray(end + 4));
  }

  #takeBody(bytes: Buffer): void {
    this.#bodyLeft -= bytes.length;
    this.#parts.push(bytes);
    if (this.#bodyLeft <= 0) this.#answer();
  }

  #answer(): void {
    const parts = this.#parts;
    const whole = parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts, bytesUpTo(parts));
    const text = whole.toString("latin1", 0, SEARCHED_BYTES_MAX);
    this.#parts = [];
    this.#bodyLeft = -1;
    const plan = /\[\[(\d+) (-?\d+) (\d+) (\w+)\]\]/.exec(text.slice(0, PLAN_WITHIN_BYTES));
    if (plan === null) {
      this.write("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
      return;
    }
    calls++;
    const [, delay, chunks, every, mark = ""] = plan;
    const isBroken = breaksOneIn > 0 && calls % breaksOneIn === 0;
    const begin = () => {
      if (chunks === "0") return this.write(isBroken ? BROKEN : jsonAnswer(mark));
      const wantsUsage = text.includes('"include_usage":true');
      this.#stream = new Stream(this, { mark, chunks: Number(chunks), everyMs: Number(every), wantsUsage, isBroken });
    };
    if (delay === "0") begin();
    else this.#timer = setTimeout(begin, Number(delay));
  }

  /** Writes at once what the socket takes, and the rest when it takes more. */
  write(text: string): void {
    if (this.#unsent !== undefined) {
      this.#unsent = Buffer.concat([this.#unsent, Buffer.from(text, "latin1")]);
      return;
    }
    const written = this.#socket.write(text);
    if (written >= 0 && written < text.length) this.#unsent = Buffer.from(text.slice(written), "latin1");
  }

  flush(): void {
    if (this.#unsent === undefined) return;
    const written = this.#socket.write(this.#unsent);
    this.#unsent = written < this.#unsent.length ? this.#unsent.subarray(Math.max(written, 0)) : undefined;
  }

  breakOff(): void {
    this.#socket.end();
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#stream?.stop();
  }
}

type StreamPlan = { mark: string; chunks: number; everyMs: number; wantsUsage: boolean; isBroken: boolean };

class Stream {
  readonly #to: Connection;
  readonly #plan: StreamPlan;
  readonly #timer: ReturnType<typeof setInterval> | undefined;
  #left: number;

  constructor(to: Connection, plan: StreamPlan) {
    this.#to = to;
    this.#plan = plan;
    this.#left = plan.chunks < 0 ? Number.POSITIVE_INFINITY : plan.chunks;
    open.add(this);
    to.write(STREAM_HEAD);
    const first = `${EVENT_START}${stamp()} ${plan.mark} ${EVENT_END}`;
    to.write(`${first.length.toString(16)}\r\n${first}\r\n`);
    this.#left--;
    if (plan.everyMs > 0) this.#timer = setInterval(() => this.#next(), plan.everyMs);
    else while (open.has(this)) this.#next();
  }

  #next(): void {
    if (this.#left === 0) this.finish();
    else if (this.#plan.isBroken && this.#left < this.#plan.chunks / 2) {
      this.stop();
      this.#to.breakOff();
    } else {
      const together = this.#plan.everyMs > 0 ? 1 : Math.min(this.#left, TOGETHER);
      this.#to.write((CHUNK_START + stamp() + CHUNK_END).repeat(together));
      this.#left -= together;
    }
  }

  finish(): void {
    if (!open.has(this)) return;
    this.stop();
    const rest = `${FINISH}${this.#plan.wantsUsage ? USAGE_EVENT : ""}data: [DONE]\n\n`;
    this.#to.write(`${rest.length.toString(16)}\r\n${rest}\r\n0\r\n\r\n`);
  }

  stop(): void {
    clearInterval(this.#timer);
    open.delete(this);
  }
}

function stamp(): string {
  return String(Math.round(sharedMicros())).padStart(STAMP_DIGITS, "0");
}

function jsonAnswer(mark: string): string {
  const content = mark.padEnd(ANSWER_CONTENT_BYTES, " Tolls are paid at the gate.");
  const body = `{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"chat-a","choices":[{"index":0,"message":{"role":"assistant","content":"${content}"},"finish_reason":"stop"}],${USAGE}}`;
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

/** As many of the parts' bytes as are looked at. */
function bytesUpTo(parts: Buffer[]): number {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  return Math.min(bytes, SEARCHED_BYTES_MAX);
}
