import type { Socket } from "bun";
import { PROVIDER_STREAMS, type ProviderStream } from "../test/gateway/provider_streams.ts";
import { RESPONSES_STREAMS } from "../test/gateway/responses_streams.ts";
import { answerQuestions, sharedMicros } from "./helper.ts";
import { STAMP_DIGITS, STAMP_SIGN } from "./workloads.ts";

/**
 * The bench's provider: a separate process, HTTP/1.1 over bare sockets, so that it is not the bottleneck. The first
 * message of each request has its plan: `[[delay chunks every mark shape perWrite]]`; `shape` is an index of PROVIDER_STREAMS, and `perWrite`
 * says how many chunks are in each write. It answers chat completions and /responses. The mark is repeated in the answer, and every chunk contains the time at which it was written. It
 * counts its calls. `BENCH_BREAKS_ONE_IN=n` breaks every n-th answer. `BENCH_PAUSE_AT=n:ms` stands still for that time at the n-th call.
 */

export type ProviderQuestion = "count" | "end streams";
export type ProviderReply = { calls: number; open: number };
export type ProviderReady = { port: number };

/** The plan is within this many bytes of a body. */
const PLAN_WITHIN_BYTES = 4096;
const HEAD_BYTES_MAX = 32 * 1024;
const ANSWER_CONTENT_BYTES = 700;

const USAGE = '"usage":{"prompt_tokens":120,"completion_tokens":50,"total_tokens":170}';
/** The last event of a stream whose capture has no usage. */
const USAGE_EVENT = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763856000,"model":"up","choices":[],${USAGE}}\n\n`;
const RESPONSES_LINE = "POST /v1/responses ";
const STREAM_HEAD =
  "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
const BROKEN = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
/** A stream repeats this many different events: real ones differ in the length of their padding, and in their usage. */
const EVENTS_OF_A_SHAPE = 64;
const LAST_CHUNK = "0\r\n\r\n";
/** A placeholder for the text while an event's frame is made. */
const TEXT_PLACE = "@text@";

const breaksOneIn = Number(process.env.BENCH_BREAKS_ONE_IN ?? 0);
const [pauseAt = 0, pauseMs = 0] = (process.env.BENCH_PAUSE_AT ?? "").split(":").map(Number);
let calls = 0;
const open = new Set<Stream>();

type Client = Socket<Connection>;

const server = Bun.listen<Connection>({
  hostname: "127.0.0.1",
  port: 0,
  socket: {
    open(socket) {
      // Otherwise small consecutive writes would wait for each other's acknowledgement.
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
  /** The bytes read of a head, or the parts of a body. */
  #parts: Buffer[] = [];
  #bodyLeft = -1;
  #isResponse = false;
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
    this.#isResponse = head.toString("latin1", 0, RESPONSES_LINE.length) === RESPONSES_LINE;
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
    this.#parts = [];
    this.#bodyLeft = -1;
    const plan = /\[\[(\d+) (-?\d+) (\d+) (\w+) (\d+)(?: (\d+))?\]\]/.exec(
      whole.toString("latin1", 0, PLAN_WITHIN_BYTES),
    );
    if (plan === null) {
      this.write("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
      return;
    }
    calls++;
    if (calls === pauseAt) Bun.sleepSync(pauseMs);
    const [, delay, chunks, every, mark = "", shape, perWrite = "1"] = plan;
    const isBroken = breaksOneIn > 0 && calls % breaksOneIn === 0;
    const isResponse = this.#isResponse;
    const begin = () => {
      if (chunks === "0") return this.write(isBroken ? BROKEN : jsonAnswer(mark, isResponse));
      const wire = isResponse ? responsesWire : shapeAt(Number(shape));
      this.#stream = new Stream(this, {
        ...{ mark, chunks: Number(chunks), everyMs: Number(every), perWrite: Number(perWrite), wire, isBroken },
      });
    };
    if (delay === "0") begin();
    else this.#timer = setTimeout(begin, Number(delay));
  }

  /** Writes as much as the socket accepts now, and the rest when it accepts more. */
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

/** What is around the text of an event: some providers send the text twice. */
type EventFrame = readonly string[];

/** A provider's stream as HTTP chunks: those before the first text and after the last of `texts`, and the frame of the n-th event. */
type Wire = { opening: string; frame(n: number): EventFrame; ending(whole: string, texts: number): string };

const wires = new Map<number, Wire>();

/** Throws if there is no such shape. */
function shapeAt(index: number): Wire {
  const known = wires.get(index);
  if (known !== undefined) return known;
  const stream = PROVIDER_STREAMS[index];
  if (stream === undefined) throw new Error(`there is no shape ${index}`);
  const wire = wireOf(stream);
  wires.set(index, wire);
  return wire;
}

function wireOf({ opening, event, ending }: ProviderStream): Wire {
  const frames = Array.from({ length: EVENTS_OF_A_SHAPE }, (_, n) => frameOf(`data: ${event(TEXT_PLACE, n)}\n\n`));
  const end = `${httpChunk(withUsage(ending))}${LAST_CHUNK}`;
  return {
    opening: httpChunk(opening),
    frame: (n) => frames[n % frames.length] as EventFrame,
    ending: () => end,
  };
}

/**
 * The ending with a usage before `[DONE]`. Some captures have none, because their clients did not ask for it. A gateway that charges asks
 * for it, and must otherwise count the tokens of the text.
 */
function withUsage(ending: string): string {
  return ending.includes('"usage":{') ? ending : ending.replace(/data: \[DONE\]\n\n$/, (done) => USAGE_EVENT + done);
}

/** The provider's own /responses. Each event has its number, and the last ones repeat the whole text. */
const responsesWire = responsesWireOf();

function responsesWireOf(): Wire {
  const [{ opening, event, ending }] = RESPONSES_STREAMS;
  const frames: EventFrame[] = [];
  return {
    opening: httpChunk(opening),
    frame(n) {
      frames[n] ??= frameOf(event(TEXT_PLACE, n));
      return frames[n];
    },
    ending: (whole, texts) => `${httpChunk(ending(whole, texts))}${LAST_CHUNK}`,
  };
}

function frameOf(event: string): EventFrame {
  return event.split(TEXT_PLACE);
}

/** An HTTP chunk; the text is ASCII. A chunk of no length would end the answer. */
function httpChunk(text: string): string {
  return text === "" ? "" : `${text.length.toString(16)}\r\n${text}\r\n`;
}

type StreamPlan = { mark: string; chunks: number; everyMs: number; perWrite: number; wire: Wire; isBroken: boolean };

class Stream {
  readonly #to: Connection;
  readonly #plan: StreamPlan;
  readonly #timer: ReturnType<typeof setInterval> | undefined;
  #written = 0;
  #whole = "";

  constructor(to: Connection, plan: StreamPlan) {
    this.#to = to;
    this.#plan = plan;
    open.add(this);
    to.write(STREAM_HEAD + plan.wire.opening);
    this.#events(`${plan.mark} `);
    if (plan.everyMs > 0) this.#timer = setInterval(() => this.#next(), plan.everyMs);
    else setImmediate(this.#nextOfMany);
  }

  /** Without a pause, each turn of the event loop writes one event of each stream, as a provider that serves many at once. */
  readonly #nextOfMany = (): void => {
    if (!open.has(this)) return;
    this.#next();
    setImmediate(this.#nextOfMany);
  };

  #next(): void {
    const { chunks, isBroken } = this.#plan;
    if (this.#written === chunks) this.finish();
    else if (isBroken && this.#written > chunks / 2) {
      this.stop();
      this.#to.breakOff();
    } else this.#events("");
  }

  /** Writes the next events at once. */
  #events(mark: string): void {
    const { chunks, perWrite } = this.#plan;
    const last = chunks < 0 ? this.#written + 1 : Math.min(this.#written + perWrite, chunks);
    let bytes = this.#event(mark);
    while (this.#written < last) bytes += this.#event("");
    this.#to.write(bytes);
  }

  #event(mark: string): string {
    const frame = this.#plan.wire.frame(this.#written++);
    const text = `${STAMP_SIGN}${stamp()} ${mark}`;
    this.#whole += text;
    return httpChunk(frame.join(text));
  }

  finish(): void {
    if (!open.has(this)) return;
    this.stop();
    this.#to.write(this.#plan.wire.ending(this.#whole, this.#written));
  }

  stop(): void {
    clearInterval(this.#timer);
    open.delete(this);
  }
}

function stamp(): string {
  return String(Math.round(sharedMicros())).padStart(STAMP_DIGITS, "0");
}

function jsonAnswer(mark: string, isResponse: boolean): string {
  const content = mark.padEnd(ANSWER_CONTENT_BYTES, " Tolls are paid at the gate.");
  const body = isResponse ? RESPONSES_STREAMS[0].json(content) : chatAnswer(content);
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

function chatAnswer(content: string): string {
  return `{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"chat-a","choices":[{"index":0,"message":{"role":"assistant","content":"${content}"},"finish_reason":"stop"}],${USAGE}}`;
}

/** How many of the parts' bytes are read. */
function bytesUpTo(parts: Buffer[]): number {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  return Math.min(bytes, PLAN_WITHIN_BYTES);
}
