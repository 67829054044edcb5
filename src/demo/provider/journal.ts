import type { IncomingHttpHeaders } from "node:http";

const CALLS_MAX = 100_000;
const BODY_CHARS_MAX = 256 * 1024 * 1024;

/** open: being answered; complete: answered to the end; aborted: the caller left first; faulted: failed on purpose. */
export type Outcome = "open" | "complete" | "aborted" | "faulted";

/** One call as the provider saw it. Times are Unix milliseconds. */
export interface Call {
  readonly id: number;
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** The raw text. Empty until it was read completely. */
  body: string;
  readonly headers: IncomingHttpHeaders;
  readonly at: number;
  /** A model call: a POST under /v1, which a provider would charge for. */
  readonly generation: boolean;
  /** HTTP status; 0 until headers are sent. */
  status: number;
  outcome: Outcome;
  /** Content events written so far; 1 for a whole JSON body. */
  chunksSent: number;
  /** Bytes of the whole answer that the system has taken; set when it has ended. */
  bytesSent: number;
  abortedAtMs: number | null;
}

export interface Counters {
  calls: number;
  /** Model calls: POSTs under /v1. */
  generations: number;
  open: number;
  complete: number;
  aborted: number;
  faulted: number;
}

/** The calls that the provider received, oldest first. Bounded in calls and in body text: the oldest are dropped. */
export class Journal {
  /** A ring buffer: index = id modulo size. A Map finds its oldest entry more and more slowly. */
  readonly #ring: (Call | undefined)[] = [];
  readonly #callsMax: number;
  readonly #now: () => number;
  #counters = newCounters();
  #bodyChars = 0;
  #firstId = 1;
  #lastId = 0;

  constructor(now: () => number, callsMax = CALLS_MAX) {
    this.#now = now;
    this.#callsMax = callsMax;
  }

  /** Records a call when its headers arrive. `close` must be called once, when the answer has ended. */
  open(
    method: string,
    path: string,
    headers: IncomingHttpHeaders,
  ): { call: Call; close(outcome: Exclude<Outcome, "open">): void } {
    const generation = method === "POST" && path.startsWith("/v1/");
    const call: Call = {
      id: ++this.#lastId,
      method,
      path,
      body: "",
      headers,
      at: this.#now(),
      generation,
      status: 0,
      outcome: "open",
      chunksSent: 0,
      bytesSent: 0,
      abortedAtMs: null,
    };
    const counters = this.#counters; // A call that ends after a reset counts in the counters from before it.
    counters.calls++;
    counters.open++;
    if (generation) counters.generations++;
    this.#evict();
    this.#ring[call.id % this.#callsMax] = call;
    return {
      call,
      close: (outcome) => {
        call.outcome = outcome;
        if (outcome === "aborted") call.abortedAtMs = this.#now();
        counters.open--;
        counters[outcome]++;
      },
    };
  }

  setBody(call: Call, body: string): void {
    call.body = body;
    if (call.id < this.#firstId) return;
    this.#bodyChars += body.length;
    this.#evict();
  }

  get(id: number): Readonly<Call> | undefined {
    return id >= this.#firstId && id <= this.#lastId ? this.#ring[id % this.#callsMax] : undefined;
  }

  /** The recorded calls with an id above `after`, oldest first. */
  list(after = 0, limit = Number.POSITIVE_INFINITY): Readonly<Call>[] {
    const found: Readonly<Call>[] = [];
    for (let id = Math.max(after + 1, this.#firstId); id <= this.#lastId && found.length < limit; id++) {
      const call = this.get(id);
      if (call) found.push(call);
    }
    return found;
  }

  counters(): Readonly<Counters> {
    return { ...this.#counters };
  }

  /** Forgets all calls and counts. Ids continue, so that an old id never means a new call. */
  reset(): void {
    this.#ring.fill(undefined);
    this.#firstId = this.#lastId + 1;
    this.#bodyChars = 0;
    this.#counters = newCounters();
  }

  /** Drops the oldest calls until both limits hold. */
  #evict(): void {
    while (this.#lastId - this.#firstId >= this.#callsMax || this.#bodyChars > BODY_CHARS_MAX) {
      const oldest = this.get(this.#firstId++);
      if (!oldest) return;
      this.#bodyChars -= oldest.body.length;
      this.#ring[oldest.id % this.#callsMax] = undefined;
    }
  }
}

function newCounters(): Counters {
  return { calls: 0, generations: 0, open: 0, complete: 0, aborted: 0, faulted: 0 };
}
