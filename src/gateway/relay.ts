import { deadline } from "../platform/deadline.ts";
import type { Stop } from "../platform/stop.ts";
import { ChunkRewriter, type Relayed, type StreamFacts } from "./chunks.ts";
import type { SseReader } from "./sse.ts";

/**
 * Carries a provider's stream to the client: bytes through, usage out, and one end, whichever comes first. The caller says
 * what an end means for the hold; nothing here knows about money.
 */

/** A client that has been sent nothing for this long is sent a comment: proxies in between cut what is silent. */
const KEEP_ALIVE_AFTER_MS = 15_000;
const WATCH_EVERY_MS = 1_000;
const CLOSE_AFTER_DONE_MS = 1_000;
/** Answers read to their end for clients who have left, at once. A further one is ended when its client leaves. */
const READ_ON_MAX = 1_000;
const LF = 10;
const CR = 13;
const UTF_8 = new TextEncoder();
const KEEP_ALIVE = UTF_8.encode(": keep-alive\n\n");

/** A stream whose first event has arrived: from here on nothing is retried. */
export type OpenedStream = {
  reader: ReadableStreamDefaultReader<Uint8Array>;
  sse: SseReader;
  /** Payloads that came with the first event. */
  first: string[];
  /** Ends the provider's call. No closure: one would keep the request's body for as long as the stream is open. */
  call: Stop;
};

/** What the client asked for, and whether the provider is read to its end though the client has left. */
export type StreamPlan = StreamFacts & {
  /** Of a model that hides tokens: only the end of its answer says how many there were. */
  readsOn?: boolean;
};

export type ProviderRead = Awaited<ReturnType<OpenedStream["reader"]["read"]>>;

/** How a stream ended. */
export type RelayEnd =
  /** The provider finished. */
  | { how: "complete"; relayed: Relayed }
  /** The provider broke off before it finished. */
  | { how: "broke_off"; why: string }
  /** The provider broke off after it had sent a finish_reason. */
  | { how: "broke_after_finish"; relayed: Relayed; why: string }
  /**
   * The client left, or read too slowly. With `readsOn` this is told when the provider has been read to its end. `isWhole`: the usage
   * is that of the whole answer; otherwise it is what the provider reported last, if anything.
   */
  | { how: "client_left"; relayed: Relayed; isWhole: boolean }
  /** The replica shuts down. */
  | { how: "ended_by_us" };

/** Whom the relay tells how a stream ended. */
export type StreamOwner = {
  /**
   * Called exactly once for every stream, before its last event is sent. Returns the payload of the error event that the client is
   * sent, if any.
   */
  ended(end: RelayEnd): Promise<string | undefined>;
  /** Called after `ended`, when the last byte has been handed over. */
  closed?(bytesOut: number): void;
};

/** All streams that are open in this replica, under one timer: silence of either side, keep-alive, and drain. */
export type Relays = {
  start(opened: OpenedStream, plan: StreamPlan, owner: StreamOwner): ReadableStream<Uint8Array>;
  /** How many are open. */
  count(): number;
  /** How many are read on for clients who have left. */
  readOn(): number;
  /**
   * Ends all with an error event, those that still come too. What is read on for clients who have left is settled by what is known.
   * Resolves when their holds have ended; never rejects.
   */
  endAll(): Promise<void>;
  close(): void;
};

/** Which side was silent for too long. */
export type IdleLimit = "provider_idle" | "client_idle";

export type RelayOptions = {
  /** Without a whole line from the provider, comments included. */
  providerIdleMs: number;
  /** Without the client taking what was written. */
  clientIdleMs: number;
  /** For so long, an answer is read on for a client who has left. */
  readOnMs: number;
  readOnMax?: number;
  nowMs: () => number;
  /** A stream was cut for this silence. */
  onTimeout?: (limit: IdleLimit) => void;
  /** An end could not be told to the ledger: the hold waits for its lease to end. */
  onFailure?: (error: unknown) => void;
};

/** Makes the replica's set of open streams. */
export function createRelays(options: RelayOptions): Relays {
  const sets: RelaySets = { open: new Set(), readOn: new Set(), over: false };
  const { open, readOn } = sets;
  const timer = setInterval(() => {
    const now = options.nowMs();
    for (const relay of open) relay.watch(now);
    for (const relay of readOn) relay.watchReadOn(now);
  }, WATCH_EVERY_MS);
  return {
    start(opened, plan, owner) {
      const relay = new Relay(opened, { plan, owner, options, sets });
      if (sets.over) void relay.endByUs();
      return relay.stream;
    },
    count: () => open.size,
    readOn: () => readOn.size,
    async endAll() {
      sets.over = true;
      const ended = [...open].map((relay) => relay.endByUs());
      await Promise.all([...ended, ...[...readOn].map((relay) => relay.endReadOn())]);
    },
    close: () => clearInterval(timer),
  };
}

/** The relays of a replica: each is in one of the sets until its hold ends. */
type RelaySets = {
  readonly open: Set<Relay>;
  /** Their clients have left. */
  readonly readOn: Set<Relay>;
  /** All were ended. */
  over: boolean;
};

/**
 * One stream. Whoever ends it first, ends it: the provider, the client, silence, or we. No method rejects, so that a call
 * which nobody waits for (a timer's, a cancelled stream's) cannot end the process.
 */
class Relay implements UnderlyingDefaultSource<Uint8Array> {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #opened: OpenedStream;
  readonly #owner: StreamOwner;
  readonly #options: RelayOptions;
  readonly #sets: RelaySets;
  readonly #readsOn: boolean;
  readonly #rewriter: ChunkRewriter;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #ended = false;
  /** The provider said [DONE], or closed its side. */
  #sawDone = false;
  #sawEnd = false;
  /** Payloads not yet written. */
  #payloads: string[];
  /** The provider is being read: one read at a time, begun only when the client has taken what came before. */
  #isReading = false;
  /** Since when the provider's next line is waited for; undefined: it is not. */
  #awaitsProviderSinceMs: number | undefined;
  /** When the client was last sent something. */
  #wroteMs: number;
  #bytesOut = 0;
  /** Since the client left a provider that is read on: what had been relayed, and until when. */
  #left: { relayed: Relayed; untilMs: number } | undefined;

  constructor(
    opened: OpenedStream,
    { plan, owner, options, sets }: { plan: StreamPlan; owner: StreamOwner; options: RelayOptions; sets: RelaySets },
  ) {
    this.#opened = opened;
    this.#owner = owner;
    this.#options = options;
    this.#sets = sets;
    this.#readsOn = plan.readsOn === true;
    this.#payloads = opened.first;
    this.#rewriter = new ChunkRewriter(plan);
    this.#wroteMs = options.nowMs();
    sets.open.add(this);
    this.stream = new ReadableStream<Uint8Array>(this);
  }

  /** The stream's own call, as are the next two. */
  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller;
  }

  /** The client takes more. No promise is returned: there would be one for each chunk, and nobody to wait for it. */
  pull(): void {
    if (!this.#isReading) this.#write();
  }

  cancel(): Promise<void> {
    return this.#clientLeft();
  }

  /** Writes what the provider has sent by now, in one piece, or ends the stream. If there is nothing, reads on. */
  #write(): void {
    if (this.#ended) return;
    try {
      const { out, broken } = this.#rewritten();
      // An end without [DONE] is a good one if a finish_reason came. Source: rulings › Who pays.
      const isWhole = this.#sawDone || (this.#sawEnd && this.#rewriter.finished);
      // At once, though the end may have come with it: only [DONE] has to wait for the settlement.
      if (out !== "") this.#enqueue(out);
      if (broken === undefined && isWhole) return void this.#complete();
      if (broken !== undefined) throw broken;
      if (this.#sawEnd) throw new Error("the stream ended without a finish_reason");
      if (out === "") this.#read();
    } catch (error) {
      this.#broke(error);
    }
  }

  #read(): void {
    this.#isReading = true;
    this.#awaitsProviderSinceMs ??= this.#options.nowMs();
    this.#opened.reader.read().then(this.#onRead, this.#broke);
  }

  readonly #onRead = ({ done, value }: ProviderRead): void => {
    this.#isReading = false;
    // A line is a sign of life, a comment too. Bytes that never make one are not.
    if (done || value.includes(LF) || value.includes(CR)) this.#awaitsProviderSinceMs = undefined;
    try {
      this.#payloads = done ? this.#opened.sse.end() : this.#opened.sse.push(value);
    } catch (error) {
      this.#broke(error);
      return;
    }
    this.#sawEnd = done;
    if (this.#left === undefined) this.#write();
    else this.#readForNobody();
  };

  readonly #broke = (error: unknown): void => {
    if (this.#left !== undefined) void this.endReadOn();
    else void this.#brokeOff(error instanceof Error ? error.message : String(error));
  };

  /** Rewrites the waiting payloads into one text. `broken`: what follows it is not a chunk; what came before is the client's. */
  #rewritten(): { out: string; broken?: unknown } {
    let out = "";
    const payloads = this.#payloads;
    this.#payloads = [];
    for (const payload of payloads) {
      if (payload === "[DONE]") {
        this.#sawDone = true;
        break;
      }
      try {
        const rewritten = this.#rewriter.rewrite(payload);
        if (rewritten !== undefined) out += `data: ${rewritten}\n\n`;
      } catch (broken) {
        return { out, broken };
      }
    }
    return { out };
  }

  async #complete(): Promise<void> {
    if (!this.#end()) return;
    if (!this.#sawEnd) this.#letProviderClose();
    // Settled before the last byte: a client that has read [DONE] has been charged exactly once.
    await this.#tell(async () => {
      await this.#owner.ended({ how: "complete", relayed: this.#rewriter.relayed });
      const usage = this.#rewriter.usageChunk();
      this.#close(`${usage === undefined ? "" : `data: ${usage}\n\n`}data: [DONE]\n\n`);
    });
  }

  /** A connection is only used again once its answer was read to the end, which comes right behind [DONE]. */
  #letProviderClose(): void {
    const { reader, call } = this.#opened;
    const stopClock = deadline(CLOSE_AFTER_DONE_MS, () => call.stop());
    reader.read().then(({ done }) => {
      stopClock();
      if (!done) call.stop();
    }, stopClock); // The answer is complete; how the connection ends does not matter any more.
  }

  async #brokeOff(why: string): Promise<void> {
    if (!this.#end()) return;
    this.#opened.call.stop();
    const { finished, relayed } = this.#rewriter;
    await this.#tell(async () => {
      const payload = await this.#owner.ended(
        finished ? { how: "broke_after_finish", relayed, why } : { how: "broke_off", why },
      );
      this.#close(`data: ${payload}\n\n`);
    });
  }

  async #clientLeft(): Promise<void> {
    if (!this.#end()) return;
    const { readOn, over } = this.#sets;
    const { nowMs, readOnMs, readOnMax = READ_ON_MAX } = this.#options;
    const { relayed } = this.#rewriter;
    // What has come and was not relayed may say what the answer used.
    this.#rewritten();
    if (this.#readsOn && !this.#isWhole() && !over && readOn.size < readOnMax) {
      this.#left = { relayed, untilMs: nowMs() + readOnMs };
      readOn.add(this);
      this.#readForNobody();
      return;
    }
    this.#opened.call.stop();
    await this.#tellLeft(relayed);
  }

  /** Takes the usage out of what has come, and reads on until the provider's end. */
  #readForNobody(): void {
    const { broken } = this.#rewritten();
    if (broken !== undefined || this.#sawDone || this.#sawEnd) void this.endReadOn();
    else if (!this.#isReading) this.#read();
  }

  /** Ends the reading for a client who has left, whatever has come by now. */
  async endReadOn(): Promise<void> {
    if (this.#left === undefined) return;
    const { relayed } = this.#left;
    this.#left = undefined;
    this.#sets.readOn.delete(this);
    if (this.#sawDone && !this.#sawEnd) this.#letProviderClose();
    else this.#opened.call.stop();
    await this.#tellLeft(relayed);
  }

  /** The text is what the client got; the usage is what the provider has said by now, of all of it. */
  #tellLeft(relayed: Relayed): Promise<void> {
    const { usage } = this.#rewriter;
    return this.#tell(() =>
      this.#owner.ended({ how: "client_left", relayed: { ...relayed, usage }, isWhole: this.#isWhole() }),
    );
  }

  /** The provider has finished the answer, and said what it used. */
  #isWhole(): boolean {
    return (this.#sawDone || this.#rewriter.finished) && this.#rewriter.usage !== undefined;
  }

  async endByUs(): Promise<void> {
    if (!this.#end()) return;
    this.#opened.call.stop();
    await this.#tell(async () => this.#close(`data: ${await this.#owner.ended({ how: "ended_by_us" })}\n\n`));
  }

  /** Tells the ledger of the end. If that fails the stream breaks off: a clean end would say that all is well. */
  async #tell(end: () => Promise<unknown>): Promise<void> {
    try {
      await end();
    } catch (error) {
      this.#controller.error(error);
      this.#options.onFailure?.(error);
    }
    this.#owner.closed?.(this.#bytesOut);
  }

  /** Called each second, while the stream is open. */
  watch(now: number): void {
    const { providerIdleMs, clientIdleMs, onTimeout } = this.#options;
    const isTaken = (this.#controller.desiredSize ?? 0) > 0;
    if (!isTaken && now - this.#wroteMs > clientIdleMs) {
      onTimeout?.("client_idle");
      void this.#clientLeft();
      this.#controller.error(new Error("the client reads too slowly"));
    } else if (this.#awaitsProviderSinceMs !== undefined && now - this.#awaitsProviderSinceMs > providerIdleMs) {
      onTimeout?.("provider_idle");
      void this.#brokeOff("the provider fell silent");
    } else if (isTaken && now - this.#wroteMs >= KEEP_ALIVE_AFTER_MS) {
      this.#send(KEEP_ALIVE);
    }
  }

  /** Called each second, while the provider is read on for a client who has left. */
  watchReadOn(now: number): void {
    const { providerIdleMs, onTimeout } = this.#options;
    const isSilent = this.#awaitsProviderSinceMs !== undefined && now - this.#awaitsProviderSinceMs > providerIdleMs;
    if (isSilent) onTimeout?.("provider_idle");
    if (isSilent || now > (this.#left?.untilMs ?? 0)) void this.endReadOn();
  }

  /** True for the first who ends the stream; all others came too late. */
  #end(): boolean {
    if (this.#ended) return false;
    this.#ended = true;
    this.#sets.open.delete(this);
    return true;
  }

  #enqueue(text: string): void {
    this.#send(UTF_8.encode(text));
  }

  #send(bytes: Uint8Array): void {
    this.#wroteMs = this.#options.nowMs();
    try {
      this.#controller.enqueue(bytes);
      this.#bytesOut += bytes.byteLength;
    } catch {
      // A stream that takes nothing has lost its client; if it has ended before, there is nobody to tell.
      void this.#clientLeft();
    }
  }

  #close(last: string): void {
    this.#enqueue(last);
    try {
      this.#controller.close();
    } catch {
      // The client left while its end was being settled.
    }
  }
}
