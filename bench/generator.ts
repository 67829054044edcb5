import type { Socket } from "bun";
import { cpuMs, residentBytes } from "./cpu.ts";
import { type Spread, spread } from "./figures.ts";
import { answerQuestions, sharedMicros } from "./helper.ts";
import { AnswerReader } from "./http_reader.ts";
import { Pace, STEP_MS, Window } from "./pace.ts";
import { wrongInLastEvent, wrongInResponse } from "./response_checks.ts";
import { type Api, MARK_DIGITS, MODEL, OWN_MODEL, type Plan, STAMP_DIGITS, STAMP_SIGN } from "./workloads.ts";

/**
 * The load generator, a separate process: each client has its own socket, and sends its next request when the last one
 * is answered; at a fixed rate (`pace.ts`), when one is due. It checks every answer: the status, the mark that it sent, each chunk counted, and [DONE]; of a response, its whole
 * text and its usage.
 */

export type Job = {
  port: number;
  /** The Host header. */
  host: string;
  /** Headers besides the usual ones. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Client n uses key n, modulo their number. Empty: each request has an unknown key. */
  secrets: string[];
  /** Default: chat. */
  api?: Api | undefined;
  /** Clients; at a fixed rate, the most that wait for an answer at once. */
  inFlight: number;
  /** Requests a second, whether or not earlier ones are answered; default: each client sends when it has its answer. */
  perSecond?: number | undefined;
  /** A run at a fixed rate ends when a request that is due has waited this long for a client. Default: BEHIND_MS_MAX. */
  behindMsMax?: number;
  plan: Plan;
  bodyBytes: number;
  status: number;
  /** Not counted: in this time connections are made, and streams spread over time. */
  warmMs: number;
  runMs: number;
  /** The measurement is extended, up to a limit, until this many answers have arrived. */
  answersMin: number;
  /** Every client sends only one request; "held" is answered when all streams have begun. */
  held: boolean;
  /** Processes whose CPU is measured. */
  pids: Record<string, number>;
  /** Its memory is measured. */
  gatewayPid: number | null;
};

export type GeneratorQuestion = { kind: "run"; job: Job } | { kind: "finish" };

export type GeneratorReply = {
  /** All successful answers, including those outside the measurement. */
  good: number;
  /** The errors, a few of each kind. */
  problems: string[];
  /** Successful answers that ended during the measurement, and its duration. */
  measured: number;
  seconds: number;
  chunks: number;
  /** From the request's first byte to the answer's last, and to its body's first; ms. At a fixed rate, from its intended start. */
  wholeMs: Spread;
  firstByteMs: Spread;
  /** The time between the provider's write of a chunk and the read here, in ms; null: no streams. */
  relayMs: Spread | null;
  /** CPU during the measurement, in ms. */
  cpuMs: Record<string, number | null>;
  residentBytes: number | null;
  /** null: not at a fixed rate. */
  atRate: AtRate | null;
};

/** How well a fixed rate was kept. */
export type AtRate = {
  perSecond: number;
  isCarried: boolean;
  /** From the intended start of a request to its first byte, ms: what of the latencies is the generator's own. */
  lateMs: Spread;
};

/** At a fixed rate the server has given up, for the bench, when it is this far behind. */
const BEHIND_MS_MAX = 2_000;
/** What is due at the very end of a time belongs to the next one. */
const EPSILON_MS = 1e-6;
/** Between the reading of the CPU, for which nothing is sent, and the measured time. */
const CALM_MS = 100;
const PROBLEMS_MAX = 5;
const PROBLEM_CHARACTERS_MAX = 240;
const ANSWERED_MS_MAX = 30_000;
/** Held streams are started in groups of this many. */
const OPENING_MAX = 100;
/** A round is measured for at most this multiple of the requested time. */
const LONGER_MAX = 5;
const POLL_MS = 5;
const SAMPLES_MAX = 2_000_000;
const EVENT_END = "\n\n";
const STAMPED = `"${STAMP_SIGN}`;
const KEY_CHARACTERS = 49;
/** How the events of a response's stream begin: those with a text, and the last one. */
const DELTA = "event: response.output_text.delta\ndata: ";
const COMPLETED = "event: response.completed\ndata: ";

let running: Run | undefined;

answerQuestions<GeneratorQuestion, GeneratorReply | "held">({}, async (question) => {
  if (question.kind === "run") {
    running = new Run(question.job);
    if (question.job.held) return await running.hold();
    return await (question.job.perSecond === undefined ? running.measure() : running.measureAtRate());
  }
  if (running === undefined) throw new Error("nothing was begun");
  return await running.finish();
});

type Numbers = { whole: number[]; first: number[]; relay: number[]; late: number[] };
const noNumbers = (): Numbers => ({ whole: [], first: [], relay: [], late: [] });

class Run {
  readonly job: Job;
  good = 0;
  isOver = false;
  numbers: Numbers | undefined;
  readonly #problems = new Map<string, number>();
  #clients: Client[] = [];
  #seconds = 0;
  /** At a fixed rate: what is due, what is measured, the clients without a request, and all answers. */
  #pace: Pace | undefined;
  #window: Window | undefined;
  #idle: Client[] = [];
  #answers = 0;
  #cpu: Record<string, number | null> = {};
  #residentBytes: number | null = null;

  constructor(job: Job) {
    this.job = job;
  }

  async measure(): Promise<GeneratorReply> {
    const { job } = this;
    this.#clients = await Promise.all(Array.from({ length: job.inFlight }, (_, i) => Client.open(this, i)));
    const streamMs = planMs(job.plan);
    this.#clients.forEach((client, i) => {
      // Spread over one request's time, so that they do not all end at the same moment forever.
      setTimeout(() => client.next(), (streamMs * i) / job.inFlight);
    });
    await Bun.sleep(job.warmMs + streamMs);
    const before = cpuMs(job.pids);
    const beganMs = performance.now();
    this.numbers = noNumbers();
    await Bun.sleep(job.runMs);
    const answers = () => this.numbers?.whole.length ?? 0;
    await until(() => answers() >= job.answersMin, job.runMs * (LONGER_MAX - 1));
    // On a machine that is busy with other work, even the first one may take longer.
    await until(() => answers() > 0, ANSWERED_MS_MAX);
    this.#seconds = (performance.now() - beganMs) / 1000;
    const after = cpuMs(job.pids);
    const { numbers } = this;
    this.numbers = undefined;
    if (job.gatewayPid !== null) this.#residentBytes = residentBytes(job.gatewayPid);
    for (const name of Object.keys(job.pids)) {
      const [from, to] = [before[name] ?? null, after[name] ?? null];
      this.#cpu[name] = from === null || to === null ? null : to - from;
    }
    this.isOver = true;
    return await this.#end(numbers);
  }

  /**
   * Sends what is due, until all that should have started within the measured time has its answer, or the server is too far behind. The
   * CPU is that of all requests from before the measured time to the last answer, for as many as were measured.
   */
  async measureAtRate(): Promise<GeneratorReply> {
    const { perSecond = 0, inFlight, warmMs, runMs, plan, pids, gatewayPid, behindMsMax = BEHIND_MS_MAX } = this.job;
    this.#clients = await Promise.all(Array.from({ length: inFlight }, (_, i) => Client.open(this, i)));
    this.#idle = [...this.#clients];
    this.#pace = new Pace({ perSecond, startMs: performance.now() });
    await this.#sendFor(warmMs + planMs(plan), behindMsMax);
    const before = { cpu: cpuMs(pids), answers: this.#answers };
    const fromMs = performance.now() + CALM_MS;
    this.#window = new Window({ fromMs, toMs: fromMs + runMs, planMs: planMs(plan) });
    this.numbers = noNumbers();
    const keptUp = await this.#sendFor(CALM_MS + runMs, behindMsMax);
    this.isOver = true;
    if (gatewayPid !== null) this.#residentBytes = residentBytes(gatewayPid);
    await this.#answered();
    const after = { cpu: cpuMs(pids), answers: this.#answers };
    this.#seconds = runMs / 1000;
    const share = this.numbers.whole.length / Math.max(after.answers - before.answers, 1);
    for (const name of Object.keys(pids)) {
      const [from, to] = [before.cpu[name] ?? null, after.cpu[name] ?? null];
      this.#cpu[name] = from === null || to === null ? null : (to - from) * share;
    }
    const isCarried = keptUp && this.#window.isCarried;
    return await this.#end(this.numbers, { perSecond, isCarried, lateMs: spread(this.numbers.late) });
  }

  /** Sends everything that is due within `ms` from now. Returns false if it was given up. */
  async #sendFor(ms: number, behindMsMax: number): Promise<boolean> {
    const pace = this.#pace as Pace;
    const endMs = performance.now() + ms;
    while (pace.nextMs < endMs) {
      const now = performance.now();
      if (now - pace.nextMs > behindMsMax) return false;
      // Backwards: a client that has just had its answer is the warmest.
      for (let client = this.#idle.pop(); client !== undefined; client = this.#idle.pop()) {
        if (this.#begin(client, Math.min(now, endMs - EPSILON_MS))) continue;
        this.#idle.push(client);
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, Math.max(pace.nextMs - performance.now(), STEP_MS / 2)));
    }
    return true;
  }

  /** Gives a client the next request that is due. Returns false if there is none. */
  #begin(client: Client, nowMs: number): boolean {
    const intendedMs = this.#pace?.take(nowMs);
    if (intendedMs === undefined) return false;
    this.#window?.sent(intendedMs);
    if (this.#window?.has(intendedMs)) this.numbers?.late.push(performance.now() - intendedMs);
    client.next(intendedMs);
    return true;
  }

  /** A client without a request. */
  free(client: Client): void {
    if (this.isOver || this.job.held) return;
    if (this.#pace === undefined) client.next();
    else if (!this.#begin(client, performance.now())) this.#idle.push(client);
  }

  /** A client without a request has lost its connection. */
  lost(client: Client): void {
    this.#idle = this.#idle.filter((one) => one !== client);
  }

  /** Notes a good answer to a request that started, or should have started, at `startMs`. */
  answer(startMs: number, firstMs: number): void {
    const now = performance.now();
    this.good++;
    this.#answers++;
    this.#window?.answered(startMs, now);
    if (this.#window !== undefined && !this.#window.has(startMs)) return;
    this.numbers?.whole.push(now - startMs);
    this.numbers?.first.push(firstMs - startMs);
  }

  /** Begins every stream; all are open when it resolves. */
  async hold(): Promise<"held"> {
    this.numbers = noNumbers();
    let opening = 0;
    for (let i = 0; i < this.job.inFlight; i++) {
      while (opening >= OPENING_MAX) await Bun.sleep(1);
      const client = await Client.open(this, i);
      this.#clients.push(client);
      opening++;
      client.onFirst = () => {
        client.onFirst = undefined;
        opening--;
      };
      client.next();
    }
    await until(() => opening === 0, ANSWERED_MS_MAX);
    this.isOver = true;
    return "held";
  }

  finish(): Promise<GeneratorReply> {
    return this.#end(this.numbers as Numbers);
  }

  problem(text: string): void {
    const short = text.slice(0, PROBLEM_CHARACTERS_MAX);
    // Request ids and marks differ, and do not make a new kind of error.
    const kind = short.replace(/[0-9a-f-]{8,}/g, "…");
    this.#problems.set(kind, (this.#problems.get(kind) ?? 0) + 1);
  }

  /** Waits for the answers of all requests that were sent. */
  #answered(): Promise<void> {
    return until(() => this.#clients.every((client) => !client.isBusy), ANSWERED_MS_MAX);
  }

  async #end(numbers: Numbers, atRate: AtRate | null = null): Promise<GeneratorReply> {
    await this.#answered();
    const unanswered = this.#clients.filter((client) => client.isBusy).length;
    if (unanswered > 0) this.problem(`${unanswered} requests had no answer after ${ANSWERED_MS_MAX / 1000} s`);
    for (const client of this.#clients) client.close();
    return {
      good: this.good,
      problems: [...this.#problems].slice(0, PROBLEMS_MAX).map(([what, times]) => `${times} × ${what}`),
      measured: numbers.whole.length,
      seconds: this.#seconds,
      chunks: numbers.relay.length,
      wholeMs: spread(numbers.whole),
      firstByteMs: spread(numbers.first),
      relayMs: this.job.plan.chunks === 0 ? null : spread(numbers.relay),
      cpuMs: this.#cpu,
      residentBytes: this.#residentBytes,
      atRate,
    };
  }
}

class Client {
  /** Called when its first answer begins, or fails. */
  onFirst: (() => void) | undefined;
  isBusy = false;
  readonly #run: Run;
  readonly #request: Buffer;
  readonly #mark: Buffer;
  readonly #key: Buffer | undefined;
  readonly #index: number;
  readonly #isResponse: boolean;
  readonly #reader: AnswerReader;
  #socket: Socket<Client> | undefined;
  #sent = 0;
  #unsent: Buffer | undefined;
  #startMs = 0;
  #firstMs = 0;
  #status = 0;
  #parts: Buffer[] = [];
  /** The beginning of an event that is not complete yet. */
  #tail = "";
  #chunks = 0;
  #sawMark = false;
  #sawDone = false;
  /** Of a response's stream: all events, the texts, the data of the last event. */
  #events = 0;
  #said = "";
  #last = "";

  static async open(run: Run, index: number): Promise<Client> {
    const client = new Client(run, index);
    await client.#connect();
    return client;
  }

  private constructor(run: Run, index: number) {
    this.#run = run;
    this.#index = index;
    this.#isResponse = isResponseOf(run.job);
    const { request, markAt, keyAt } = requestOf(run.job, index);
    this.#request = request;
    this.#mark = request.subarray(markAt, markAt + MARK_DIGITS);
    this.#key = run.job.secrets.length === 0 ? request.subarray(keyAt, keyAt + KEY_CHARACTERS) : undefined;
    this.#reader = new AnswerReader({
      head: (status) => {
        this.#status = status;
      },
      body: (bytes) => this.#body(bytes),
      end: () => this.#end(),
    });
  }

  /** Sends its next request. `startMs`: when it should have been sent; latencies count from there. */
  next(startMs?: number): void {
    if (this.#run.isOver) return;
    this.isBusy = true;
    writeDigits(this.#mark, this.#index * 1_000_000 + (this.#sent++ % 1_000_000));
    if (this.#key !== undefined) writeDigits(this.#key.subarray(0, MARK_DIGITS), this.#index * 1_000_000 + this.#sent);
    this.#status = 0;
    this.#firstMs = 0;
    this.#parts = [];
    this.#tail = "";
    this.#chunks = 0;
    this.#sawMark = false;
    this.#sawDone = false;
    this.#events = 0;
    this.#said = "";
    this.#last = "";
    this.#startMs = startMs ?? performance.now();
    this.#write(this.#request);
  }

  close(): void {
    this.#socket?.terminate();
  }

  async #connect(): Promise<void> {
    const handlers = {
      data: (_: Socket<Client>, bytes: Buffer) => this.#take(bytes),
      drain: () => this.#write(this.#unsent),
      close: () => this.#closed(),
      error: () => {},
    };
    const { port } = this.#run.job;
    this.#socket = await Bun.connect<Client>({ hostname: "127.0.0.1", port, socket: handlers });
    this.#socket.setNoDelay(true);
  }

  #write(bytes: Buffer | undefined): void {
    if (bytes === undefined) return;
    const written = Math.max(this.#socket?.write(bytes) ?? 0, 0);
    this.#unsent = written < bytes.length ? bytes.subarray(written) : undefined;
  }

  #take(bytes: Buffer): void {
    try {
      this.#reader.push(bytes);
    } catch (error) {
      this.#run.problem(String(error));
      this.close();
    }
  }

  #closed(): void {
    if (!this.isBusy && this.#run.isOver) return;
    const wasBusy = this.isBusy;
    this.isBusy = false;
    if (wasBusy) {
      this.#run.problem(`the connection was cut ${this.#status === 0 ? "before" : "in the middle of"} an answer`);
      this.onFirst?.();
    }
    // A client whose connection was closed between two requests, or cut, continues on another one.
    if (this.#run.isOver || this.#run.job.held) return;
    this.#run.lost(this);
    this.#connect().then(() => this.#run.free(this));
  }

  #body(bytes: Buffer): void {
    if (this.#firstMs === 0) {
      this.#firstMs = performance.now();
      this.onFirst?.();
    }
    if (this.#run.job.plan.chunks === 0 || this.#status !== 200) this.#parts.push(bytes);
    else this.#takeEvents(bytes);
  }

  #takeEvents(bytes: Buffer): void {
    const nowMicros = sharedMicros();
    const relay = this.#run.numbers?.relay;
    const text = this.#tail + bytes.toString("latin1");
    let at = 0;
    for (let end = text.indexOf(EVENT_END); end >= 0; end = text.indexOf(EVENT_END, at)) {
      const stampAt = this.#isResponse ? this.#takeResponseEvent(text, at, end) : stampOf(text, at, end);
      if (stampAt >= 0) {
        const stamped = Number(text.slice(stampAt, stampAt + STAMP_DIGITS));
        if (this.#chunks++ === 0) this.#sawMark = text.slice(stampAt, end).includes(this.#mark.toString("latin1"));
        if (relay !== undefined && relay.length < SAMPLES_MAX) relay.push((nowMicros - stamped) / 1000);
      } else if (text.startsWith("data: [DONE]", at)) this.#sawDone = true;
      at = end + EVENT_END.length;
    }
    this.#tail = at === 0 ? text : text.slice(at);
  }

  /** Where the stamp of an event is that brings a text; otherwise −1. The done events repeat the texts with their stamps. */
  #takeResponseEvent(text: string, at: number, end: number): number {
    this.#events++;
    if (text.startsWith(COMPLETED, at)) {
      this.#last = text.slice(at + COMPLETED.length, end);
      this.#sawDone = true;
    }
    const stampAt = text.startsWith(DELTA, at) ? stampOf(text, at, end) : -1;
    if (stampAt >= 0) this.#said += text.slice(stampAt - STAMP_SIGN.length, text.indexOf('"', stampAt));
    return stampAt;
  }

  #end(): void {
    const wrong = this.#wrong(this.#run.job);
    if (wrong !== undefined) this.#run.problem(wrong);
    else this.#run.answer(this.#startMs, this.#firstMs);
    this.isBusy = false;
    this.onFirst?.(); // An answer without a body.
    this.#run.free(this);
  }

  /** The error of the answer. */
  #wrong({ status, plan }: Job): string | undefined {
    const text = () => Buffer.concat(this.#parts).toString("utf8");
    if (this.#status !== status) return `status ${this.#status} in place of ${status}: ${text()}`;
    if (status !== 200) return undefined;
    const mark = this.#mark.toString("latin1");
    const model = modelOf(this.#run.job);
    if (plan.chunks === 0 && this.#isResponse)
      return wrongInResponse(text(), { model, isSaid: (said) => said.includes(mark) });
    if (plan.chunks === 0) {
      const [first] = this.#parts;
      const isWhole = this.#parts.length === 1 && first !== undefined && first.includes(this.#mark);
      return isWhole || text().includes(mark) ? undefined : `another's answer: ${text()}`;
    }
    if (!this.#sawDone) return `a stream without its last event, ${this.#chunks} chunks: ${this.#tail}`;
    if (!this.#sawMark) return "another's stream";
    if (plan.chunks > 0 && this.#chunks !== plan.chunks) return `a stream of ${this.#chunks} chunks`;
    if (!this.#isResponse) return undefined;
    return wrongInLastEvent(this.#last, this.#events, { model, isSaid: (said) => said === this.#said });
  }
}

/** Where the stamp of an event is; −1: it has none. */
function stampOf(text: string, at: number, end: number): number {
  const contentAt = text.indexOf(STAMPED, at);
  return contentAt >= 0 && contentAt < end ? contentAt + STAMPED.length : -1;
}

function isResponseOf({ api = "chat" }: Job): boolean {
  return api !== "chat";
}

function modelOf({ api }: Job): string {
  return api === "own" ? OWN_MODEL : MODEL;
}

/** The bytes of client `index`'s request, made once; the mark and a wrong key are written anew into each. */
function requestOf(job: Job, index: number): { request: Buffer; markAt: number; keyAt: number } {
  const { delayMs, chunks, everyMs, shape = 0, perWrite = 1 } = job.plan;
  const mark = "0".repeat(MARK_DIGITS);
  const plan = `[[${delayMs} ${chunks} ${everyMs} ${mark} ${shape} ${perWrite}]]`;
  const isResponse = isResponseOf(job);
  const start = `{"model":"${modelOf(job)}","${isResponse ? "input" : "messages"}":[{"role":"user","content":"${plan} `;
  const options = isResponse ? "" : ',"stream_options":{"include_usage":true}';
  const end = `"}]${chunks === 0 ? "" : `,"stream":true${options}`}}`;
  const filling = "Tell me what a gate is for, and who pays. ";
  const body = start + filling.repeat(Math.ceil(job.bodyBytes / filling.length)).slice(start.length + end.length) + end;
  const secret = job.secrets[index % job.secrets.length] ?? `sk-${"0".repeat(KEY_CHARACTERS)}`;
  const more = Object.entries(job.headers ?? {}).map(([name, value]) => `${name}: ${value}\r\n`);
  const head =
    `POST ${isResponse ? "/v1/responses" : "/v1/chat/completions"} HTTP/1.1\r\nhost: ${job.host}\r\nauthorization: Bearer ${secret}\r\n` +
    `content-type: application/json\r\n${more.join("")}content-length: ${body.length}\r\n\r\n`;
  const keyAt = head.indexOf(secret) + "sk-".length;
  return { request: Buffer.from(head + body, "latin1"), markAt: head.length + body.indexOf(mark), keyAt };
}

function writeDigits(into: Buffer, value: number): void {
  let rest = value;
  for (let at = into.length - 1; at >= 0; at--) {
    into[at] = 48 + (rest % 10);
    rest = Math.floor(rest / 10);
  }
}

/** How long an answer takes by its plan; ms. */
function planMs({ delayMs, chunks, everyMs, perWrite = 1 }: Plan): number {
  return delayMs + Math.ceil(Math.max(chunks, 0) / perWrite) * everyMs;
}

/** Returns when the condition holds, or after `msMax`. */
async function until(isSo: () => boolean, msMax: number): Promise<void> {
  const lastMs = performance.now() + msMax;
  while (!isSo() && performance.now() < lastMs) await Bun.sleep(POLL_MS);
}
