import { connect, type Socket } from "node:net";

/** One client on its own socket that records what it sees, without retries. */

/** Longer than the freeze of a replica and the answer of a provider together. */
const ANSWER_MS_MAX = 40_000;
const SIP_MS = 60;
/** A reader that stops continues after this time; by then it should have been disconnected. */
const STOP_MS = 5_000;

/**
 * complete: a whole good answer · error_event: a stream that ended in one · refused: an error answer · left: we went ·
 * cut: broken off after its headers · no_answer: broken off before · nobody: nobody listened ·
 * unclean: whole, and yet neither good nor an error · hung: nothing came to an end within 40 s
 */
export type Saw = "complete" | "error_event" | "refused" | "left" | "cut" | "no_answer" | "nobody" | "unclean" | "hung";

export type Heard = {
  saw: Saw;
  status: number;
  /** X-Request-Id, if headers came. */
  requestId: string | undefined;
  code: string | undefined;
  /** As the answer tells it. */
  usage: { prompt: number; completion: number } | undefined;
  /** Content events of a stream. */
  chunks: number;
};

/**
 * How a client behaves. `slow`: "sips" waits after each read; "stops" reads nothing for 5 s once the answer has begun.
 */
export type Conduct = { leaveAfterMs?: number; slow?: "sips" | "stops" };
export type Call = { port: number; path: string; secret: string; body: string | undefined };
export type Asking = { done: Promise<Heard>; leave(): void };

/** Sends one request. `done` never rejects. */
export function ask(call: Call, conduct: Conduct = {}): Asking {
  const answer = new HttpAnswer();
  const socket = connect(call.port, "127.0.0.1");
  const { promise: done, resolve } = Promise.withResolvers<Heard>();
  let ended: Saw | undefined;
  const end = (how: Saw) => {
    if (ended !== undefined) return;
    ended = how;
    clearTimeout(patience);
    clearTimeout(leaving);
    socket.destroy();
    resolve(judge(answer, how));
  };
  const patience = setTimeout(() => end("hung"), ANSWER_MS_MAX);
  const leaving = conduct.leaveAfterMs === undefined ? undefined : setTimeout(() => end("left"), conduct.leaveAfterMs);
  let stops = conduct.slow === "stops";
  socket.on("connect", () => socket.write(requestText(call)));
  socket.on("data", (bytes: Buffer) => {
    answer.push(bytes);
    if (answer.isWhole) end("complete");
    else if (conduct.slow === "sips") rest(socket, SIP_MS);
    else if (stops && answer.status > 0) {
      stops = false;
      rest(socket, STOP_MS);
    }
  });
  socket.on("error", (error) => {
    if ("code" in error && error.code === "ECONNREFUSED") end("nobody");
  });
  // A client that does not read is disconnected, which counts as leaving.
  socket.on("close", () => end(conduct.slow === "stops" ? "left" : answer.status > 0 ? "cut" : "no_answer"));
  return { done, leave: () => end("left") };
}

function rest(socket: Socket, ms: number): void {
  socket.pause();
  setTimeout(() => socket.resume(), ms);
}

function requestText({ path, secret, body }: Call): string {
  const head = [
    `${body === undefined ? "GET" : "POST"} ${path} HTTP/1.1`,
    "host: localhost",
    `authorization: Bearer ${secret}`,
    "connection: close",
  ];
  if (body !== undefined) head.push("content-type: application/json", `content-length: ${Buffer.byteLength(body)}`);
  return `${head.join("\r\n")}\r\n\r\n${body ?? ""}`;
}

/** The meaning of the bytes that arrived, whatever ended them. */
function judge(answer: HttpAnswer, how: Saw): Heard {
  const heard: Heard = {
    saw: how,
    status: answer.status,
    requestId: answer.header("x-request-id"),
    code: undefined,
    usage: undefined,
    chunks: 0,
  };
  const isStream = answer.header("content-type")?.startsWith("text/event-stream") ?? false;
  if (isStream) return judgeStream(answer, heard);
  if (!answer.isWhole) return heard;
  const json = parse(answer.text());
  if (answer.status === 200)
    return { ...heard, saw: json === undefined ? "unclean" : "complete", usage: usageIn(json) };
  const code = textAt(at(json, "error"), "code");
  return { ...heard, saw: code === undefined ? "unclean" : "refused", code };
}

/** A client that has read [DONE] has a complete answer, even if the connection broke afterwards. */
function judgeStream(answer: HttpAnswer, heard: Heard): Heard {
  // Text after the last empty line is not yet an event.
  const events = answer.text().split("\n\n").slice(0, -1);
  const payloads = events.filter((event) => event.startsWith("data: ")).map((event) => event.slice(6));
  for (const payload of payloads) {
    const chunk = payload === "[DONE]" ? undefined : parse(payload);
    heard.usage = usageIn(chunk) ?? heard.usage;
    const choices = at(chunk, "choices");
    const delta = at(Array.isArray(choices) ? choices[0] : undefined, "delta");
    if ((textAt(delta, "content") ?? "") !== "") heard.chunks++;
  }
  const last = payloads.at(-1);
  if (last === "[DONE]") return { ...heard, saw: "complete" };
  const code = textAt(at(parse(last ?? ""), "error"), "code");
  if (code !== undefined) return { ...heard, saw: "error_event", code };
  return { ...heard, saw: answer.isWhole ? "unclean" : heard.saw };
}

function usageIn(value: unknown): Heard["usage"] {
  const usage = at(value, "usage");
  const [prompt, completion] = [at(usage, "prompt_tokens"), at(usage, "completion_tokens")];
  return typeof prompt === "number" && typeof completion === "number" ? { prompt, completion } : undefined;
}

function at(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && name in value
    ? Object.getOwnPropertyDescriptor(value, name)?.value
    : undefined;
}

function textAt(value: unknown, name: string): string | undefined {
  const text = at(value, name);
  return typeof text === "string" ? text : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // The caller decides what that means.
  }
}

/** Parses an HTTP/1.1 answer as its bytes arrive, with a length or in chunks. */
class HttpAnswer {
  status = 0;
  isWhole = false;
  #rest: Buffer = Buffer.alloc(0);
  readonly #body: Buffer[] = [];
  readonly #headers = new Map<string, string>();
  /** Bytes of the body, or of the chunk, that are still to come. Undefined: a chunk's size comes next. */
  #due: number | undefined;
  #chunked = false;

  header(name: string): string | undefined {
    return this.#headers.get(name);
  }

  text(): string {
    return Buffer.concat(this.#body).toString();
  }

  push(bytes: Buffer): void {
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    if (this.status === 0 && !this.#readHead()) return;
    while (!this.isWhole && (this.#due === undefined ? this.#readSize() : this.#readBody()));
  }

  #readHead(): boolean {
    const end = this.#rest.indexOf("\r\n\r\n");
    if (end < 0) return false;
    const [line = "", ...fields] = this.#rest.subarray(0, end).toString().split("\r\n");
    for (const field of fields) {
      const colon = field.indexOf(":");
      this.#headers.set(field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim());
    }
    this.#rest = this.#rest.subarray(end + 4);
    this.#chunked = this.header("transfer-encoding") === "chunked";
    this.#due = this.#chunked ? undefined : Number(this.header("content-length") ?? 0);
    this.isWhole = this.#due === 0;
    this.status = Number(line.split(" ")[1] ?? 0);
    return true;
  }

  #readSize(): boolean {
    // The line end of the previous chunk precedes the size.
    const start = this.#body.length > 0 ? 2 : 0;
    const end = this.#rest.indexOf("\r\n", start);
    if (end < 0) return false;
    this.#due = Number.parseInt(this.#rest.subarray(start, end).toString(), 16);
    this.#rest = this.#rest.subarray(end + 2);
    if (this.#due === 0) this.isWhole = true;
    return true;
  }

  #readBody(): boolean {
    if (this.#rest.length === 0 || this.#due === undefined) return false;
    const part = this.#rest.subarray(0, this.#due);
    this.#body.push(part);
    this.#rest = this.#rest.subarray(part.length);
    this.#due -= part.length;
    if (this.#due > 0) return false;
    if (this.#chunked) this.#due = undefined;
    else this.isWhole = true;
    return true;
  }
}
