import { ANSWER_MEMORY_FULL, type HeldAnswer } from "../platform/answer_memory.ts";
import { deadline } from "../platform/deadline.ts";
import type { ShedReason } from "../platform/metrics.ts";
import { type Owner, ShareLimit } from "../platform/share_limit.ts";
import type { Stop } from "../platform/stop.ts";
import { messageOf } from "../platform/thrown.ts";
import { ChunkRewriter, type Relayed, type StreamFacts, type StreamRewriter } from "./chunks.ts";
import { type EventSink, isDone, OversizedEvent, type SseReader } from "./sse.ts";

/**
 * Relays a provider's stream to the client until the first of its possible ends. Nothing here knows about money: `stream_ends.ts` says
 * what each end means for the hold.
 */

/** A client that was sent nothing for this long is sent a comment, because proxies close idle connections. */
export const KEEP_ALIVE_AFTER_MS = 15_000;
const WATCH_EVERY_MS = 1_000;
const CLOSE_AFTER_DONE_MS = 1_000;
/** A client that takes nothing for this long holds up the provider, which may then break off for that reason. */
const HELD_UP_MS = 2_000;
/** Maximum number of answers that are read to their end at once after their clients have left. Further ones are aborted. */
const READ_ON_MAX = 1_000;
/** The most of them that one account, and one tenant, may have: as fractions. */
const READ_ON_SHARES = { account: 0.25, tenant: 0.5 };
const NOBODY: Owner = { accountId: 0, tenantId: 0 };
const LF = 10;
const CR = 13;
const UTF_8 = new TextEncoder();
export const KEEP_ALIVE = UTF_8.encode(": keep-alive\n\n");

/** A stream whose first event has arrived. From here on nothing is retried. */
export type OpenedStream = {
  reader: ReadableStreamDefaultReader<Uint8Array>;
  sse: SseReader;
  /** What of it is held because it cannot be passed on yet. */
  held: HeldAnswer;
  /** The payloads that arrived before the first event of the answer, and it. */
  first: string[];
  /** What arrived with it: whole lines that were not read yet. */
  rest: string;
  /** What makes the client's events, if they are not chunks of a chat. */
  rewriter?: StreamRewriter;
  /** Aborts the provider's call. Not a closure, which would keep the request's body in memory while the stream is open. */
  call: Stop;
};

/** How a stream is relayed. */
export type StreamPlan = StreamFacts & {
  /** Read the provider to its end if the client leaves: only its report says what the answer costs. */
  readsOn?: boolean;
  /** Whose share of the answers is used that are read on. Without it, only their number counts. */
  payer?: Owner;
};

export type ProviderRead = Awaited<ReturnType<OpenedStream["reader"]["read"]>>;

/** How a stream ended. */
export type RelayEnd =
  /** The provider finished. */
  | { how: "complete"; relayed: Relayed }
  /** The provider broke off before it finished. */
  | { how: "broke_off"; why: string }
  /** The provider sent nothing for `providerIdleMs`. */
  | { how: "fell_silent"; why: string }
  /** The provider sent an event that is too large to be read. */
  | { how: "oversized"; why: string }
  /** The provider broke off after it had sent a finish_reason. */
  | { how: "broke_after_finish"; relayed: Relayed; why: string }
  /** The provider broke off before it finished, after the client had held it up. */
  | { how: "broke_held_up"; relayed: Relayed; why: string }
  /**
   * The client left, or read too slowly. With `readsOn` this is reported when the provider has been read to its end. `isWhole`: the usage
   * is that of the whole answer; otherwise it is what the provider reported last, if anything.
   */
  | { how: "client_left"; relayed: Relayed; isWhole: boolean }
  /** The replica shuts down. */
  | { how: "ended_by_us" }
  /** A step of ours threw, so how the stream really ended is not known. */
  | { how: "failed"; error: unknown };

/** How a provider ends a stream that it has not finished. */
type Break = "broke_off" | "fell_silent" | "oversized";

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

/** All open streams of this replica. One timer serves them all: idle limits, keep-alive. */
export type Relays = {
  start(opened: OpenedStream, plan: StreamPlan, owner: StreamOwner): ReadableStream<Uint8Array>;
  /** The number of open streams. */
  count(): number;
  /** The number of answers that are read on after their clients have left. */
  readOn(): number;
  /**
   * Ends all streams with an error event, also those that start later. Answers that are read on are settled by what is known.
   * Resolves when their holds have ended; never rejects.
   */
  endAll(): Promise<void>;
  close(): void;
};

/** The side that was silent for too long. */
export type IdleLimit = "provider_idle" | "client_idle";

export type RelayOptions = {
  /** Maximum time without a complete line from the provider; comments count. */
  providerIdleMs: number;
  /** Maximum time in which the client takes nothing of what was written. */
  clientIdleMs: number;
  /** Maximum time that an answer is read on after its client has left. */
  readOnMs: number;
  readOnMax?: number;
  /** Called when an answer is not read on, because there are too many. */
  onShed?: (reason: ShedReason) => void;
  nowMs: () => number;
  /** Called when a stream is ended because one side was silent. */
  onTimeout?: (limit: IdleLimit) => void;
  /** Called with what a step of ours threw at the end of a stream. */
  onFailure?: (error: unknown) => void;
};

/** Makes the replica's set of open streams. */
export function createRelays(options: RelayOptions): Relays {
  const readOnPlaces = new ShareLimit({
    max: options.readOnMax ?? READ_ON_MAX,
    fractions: READ_ON_SHARES,
    what: "answers that are read on",
    reasons: { replica: "read_on_full", account: "read_on_per_account", tenant: "read_on_per_tenant" },
    onShed: options.onShed ?? (() => {}),
  });
  const sets: RelaySets = { open: new Set(), readOn: new Set(), readOnPlaces, over: false };
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

/** The relays of a replica. Each is in one of the sets until it has ended. */
type RelaySets = {
  readonly open: Set<Relay>;
  /** Relays whose clients have left. */
  readonly readOn: Set<Relay>;
  readonly readOnPlaces: ShareLimit;
  /** `endAll` was called. */
  over: boolean;
};

/**
 * One stream. The first event that ends it decides: from the provider, the client, an idle limit or the replica. No method rejects,
 * because calls by a timer or a cancelled stream are not awaited, and a rejection would end the process.
 */
class Relay implements UnderlyingDefaultSource<Uint8Array>, EventSink {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #reader: OpenedStream["reader"];
  readonly #sse: SseReader;
  readonly #held: HeldAnswer;
  readonly #call: Stop;
  readonly #owner: StreamOwner;
  readonly #options: RelayOptions;
  readonly #sets: RelaySets;
  readonly #readsOn: boolean;
  readonly #payer: Owner;
  readonly #rewriter: StreamRewriter;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #ended = false;
  /** The provider sent its last event: [DONE] in chat. */
  #sawDone = false;
  /** The provider closed its stream. */
  #sawEnd = false;
  /** The first payloads and lines, until the client can take them. */
  #first: Pick<OpenedStream, "first" | "rest"> | undefined;
  /** Events that were rewritten and not sent yet. */
  #out = "";
  /** The error of a payload that is not a chunk. What came before it is sent first. */
  #broken: unknown;
  /** A read of the provider is pending. There is one at a time, started only when the client has taken what came before. */
  #isReading = false;
  /** Since when the next line of the provider is awaited; undefined if it is not. */
  #awaitsProviderSinceMs: number | undefined;
  /** When the client was last sent bytes. */
  #wroteMs: number;
  /** The client once took nothing for so long that the provider may have noticed. */
  #wasHeldUp = false;
  #bytesOut = 0;
  /** Set while the provider is read on: what had been relayed when the client left, and the deadline. */
  #left: { relayed: Relayed; untilMs: number } | undefined;

  constructor(
    opened: OpenedStream,
    { plan, owner, options, sets }: { plan: StreamPlan; owner: StreamOwner; options: RelayOptions; sets: RelaySets },
  ) {
    this.#reader = opened.reader;
    this.#sse = opened.sse;
    this.#held = opened.held;
    this.#held.onFull = this.#onFull;
    this.#call = opened.call;
    this.#owner = owner;
    this.#options = options;
    this.#sets = sets;
    this.#readsOn = plan.readsOn === true;
    this.#payer = plan.payer ?? NOBODY;
    this.#first = { first: opened.first, rest: opened.rest };
    this.#rewriter = opened.rewriter ?? new ChunkRewriter(plan);
    this.#wroteMs = options.nowMs();
    sets.open.add(this);
    this.stream = new ReadableStream<Uint8Array>(this);
  }

  /** Called by the stream, like `pull` and `cancel`. */
  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller;
  }

  /** The client can take more. Returns no promise, which would be one for each chunk. */
  pull(): void {
    if (this.#isReading) return;
    if (this.#options.nowMs() - this.#wroteMs > HELD_UP_MS) this.#wasHeldUp = true;
    this.#write();
  }

  cancel(): Promise<void> {
    return this.#clientLeft();
  }

  /** Sends all events that were received in one piece, or ends the stream. If there are none, reads the provider. */
  #write(): void {
    if (this.#ended) return;
    try {
      this.#takeFirst();
      const out = this.#out;
      const broken = this.#broken;
      this.#out = "";
      // An end without [DONE] is a good one if a finish_reason came. Source: END-3, END-11.
      const isWhole = this.#sawDone || (this.#sawEnd && this.#rewriter.finished);
      // Sent immediately, even if the end arrived with it: only [DONE] waits for the settlement.
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
    this.#reader.read().then(this.#onRead, this.#broke);
  }

  readonly #onRead = ({ done, value }: ProviderRead): void => {
    this.#isReading = false;
    // A complete line shows that the provider is alive, even a comment. Bytes without a line end do not.
    if (done || value.includes(LF) || value.includes(CR)) this.#awaitsProviderSinceMs = undefined;
    try {
      if (done) this.#sse.finish(this);
      else this.#sse.read(value, this);
    } catch (error) {
      this.#noteBroken(error);
    }
    this.#sawEnd = done;
    this.#held.hold(this.#sse.heldBytes);
    if (this.#left === undefined) this.#write();
    else this.#readAfterLeave();
  };

  readonly #broke = (error: unknown): void => {
    const isOversized = this.#held.isFull || error instanceof OversizedEvent;
    if (this.#left !== undefined) void this.endReadOn();
    else void this.#brokeOff(messageOf(error), isOversized ? "oversized" : "broke_off");
  };

  /** Of all streams this one holds the most of events that have not fully arrived. */
  readonly #onFull = (): void => {
    this.#rewriter.oversized?.();
    this.#broke(new OversizedEvent(ANSWER_MEMORY_FULL));
  };

  /** Called by the SseReader, like `takePayload`. Nothing behind [DONE] or a broken payload is read. */
  takeEvent(text: string, at: number): number {
    if (this.#sawDone) return -1;
    const end = this.#rewriter.rewriteEvent?.(text, at) ?? -1;
    if (end > 0) this.#out += this.#rewriter.takeRewritten?.() ?? "";
    return end;
  }

  takePayload(payload: string): void {
    if (this.#sawDone) return;
    if (isDone(payload) && this.#rewriter.endsWithDone) {
      this.#sawDone = true;
      return;
    }
    this.#out += this.#rewriter.rewrite(payload) ?? "";
    if (this.#rewriter.isOver) this.#sawDone = true;
  }

  /** Takes what arrived before the stream was opened. */
  #takeFirst(): void {
    if (this.#first === undefined) return;
    const { first, rest } = this.#first;
    this.#first = undefined;
    try {
      for (const payload of first) this.takePayload(payload);
      this.#sse.readLines(rest, this);
    } catch (error) {
      this.#noteBroken(error);
    }
  }

  #noteBroken(error: unknown): void {
    if (error instanceof OversizedEvent) this.#rewriter.oversized?.();
    this.#broken ??= error;
  }

  async #complete(): Promise<void> {
    if (!this.#end()) return;
    if (!this.#sawEnd) this.#letProviderClose();
    // Settled before the last byte is sent: a client that has read [DONE] has been charged, exactly once.
    await this.#tell(
      () => ({ how: "complete", relayed: this.#rewriter.relayed }),
      () => this.#rewriter.lastEvents(),
    );
  }

  /** Reads the end of the stream behind [DONE]: only then can the connection be used again. */
  #letProviderClose(): void {
    const call = this.#call;
    const stopClock = deadline(CLOSE_AFTER_DONE_MS, () => call.stop());
    this.#reader.read().then(({ done }) => {
      stopClock();
      if (!done) call.stop();
    }, stopClock); // The answer is complete; how the connection ends no longer matters.
  }

  async #brokeOff(why: string, how: Break): Promise<void> {
    if (!this.#end()) return;
    this.#call.stop();
    await this.#tell(
      () => this.#breakOf(this.#rewriter.relayed, why, how),
      (payload) => this.#rewriter.errorEvents(payload),
    );
  }

  #breakOf(relayed: Relayed, why: string, how: Break): RelayEnd {
    if (this.#rewriter.finished && !this.#rewriter.wentOn) return { how: "broke_after_finish", relayed, why };
    return this.#wasHeldUp ? { how: "broke_held_up", relayed, why } : { how, why };
  }

  async #clientLeft(): Promise<void> {
    if (!this.#end()) return;
    const { readOn, readOnPlaces, over } = this.#sets;
    const { nowMs, readOnMs } = this.#options;
    let relayed: Relayed;
    try {
      relayed = this.#rewriter.relayed;
      // Payloads that were received and not relayed may contain the usage.
      this.#takeFirst();
    } catch (error) {
      this.#call.stop();
      await this.#tell(() => ({ how: "failed", error }));
      return;
    }
    if (this.#readsOn && !this.#isWhole() && !over && readOnPlaces.tryTake(this.#payer, 1)) {
      this.#left = { relayed, untilMs: nowMs() + readOnMs };
      readOn.add(this);
      this.#readAfterLeave();
      return;
    }
    this.#call.stop();
    await this.#tellLeft(relayed);
  }

  /** Takes the usage out of the received payloads, and reads on until the provider's end. */
  #readAfterLeave(): void {
    this.#out = "";
    if (this.#broken !== undefined || this.#sawDone || this.#sawEnd) void this.endReadOn();
    else if (!this.#isReading) this.#read();
  }

  /** Stops reading on, and reports the end with what is known by now. */
  async endReadOn(): Promise<void> {
    if (this.#left === undefined) return;
    const { relayed } = this.#left;
    this.#left = undefined;
    this.#sets.readOn.delete(this);
    this.#sets.readOnPlaces.give(this.#payer, 1);
    if (this.#sawDone && !this.#sawEnd) this.#letProviderClose();
    else this.#call.stop();
    await this.#tellLeft(relayed);
  }

  /** The text is what the client was sent; the usage is what the provider reported last, for the whole answer. */
  #tellLeft(relayed: Relayed): Promise<void> {
    return this.#tell(() => {
      const { usage, coverage } = this.#rewriter.relayed;
      return { how: "client_left", relayed: { ...relayed, usage, coverage }, isWhole: this.#isWhole() };
    });
  }

  /** The provider has finished the answer, and reported its usage. */
  #isWhole(): boolean {
    return (this.#sawDone || (this.#rewriter.finished && !this.#rewriter.wentOn)) && this.#rewriter.usage !== undefined;
  }

  async endByUs(): Promise<void> {
    if (!this.#end()) return;
    this.#call.stop();
    await this.#tell(
      () => ({ how: "ended_by_us" }),
      (payload) => this.#rewriter.errorEvents(payload),
    );
  }

  /**
   * Tells the owner how the stream ended, whatever throws on the way, and then the client by `last`. If a step fails the stream is cut: a
   * clean end would report success.
   */
  async #tell(endOf: () => RelayEnd, last?: (payload: string | undefined) => string): Promise<void> {
    const { onFailure } = this.#options;
    this.#held.close();
    try {
      const payload = await this.#owner.ended(this.#endOr(endOf));
      if (last !== undefined) this.#close(last(payload));
    } catch (error) {
      onFailure?.(error);
      this.#controller.error(error);
    }
    try {
      this.#owner.closed?.(this.#bytesOut);
    } catch (error) {
      onFailure?.(error);
    }
  }

  #endOr(endOf: () => RelayEnd): RelayEnd {
    try {
      return endOf();
    } catch (error) {
      return { how: "failed", error };
    }
  }

  /** Called every second while the stream is open. */
  watch(now: number): void {
    const { providerIdleMs, clientIdleMs, onTimeout } = this.#options;
    const isTaken = (this.#controller.desiredSize ?? 0) > 0;
    if (!isTaken && now - this.#wroteMs > clientIdleMs) {
      onTimeout?.("client_idle");
      void this.#clientLeft();
      this.#controller.error(new Error("the client reads too slowly"));
    } else if (this.#awaitsProviderSinceMs !== undefined && now - this.#awaitsProviderSinceMs > providerIdleMs) {
      onTimeout?.("provider_idle");
      void this.#brokeOff("the provider fell silent", "fell_silent");
    } else if (isTaken && now - this.#wroteMs >= KEEP_ALIVE_AFTER_MS) {
      this.#send(KEEP_ALIVE);
    }
  }

  /** Called every second while the provider is read on after its client has left. */
  watchReadOn(now: number): void {
    const { providerIdleMs, onTimeout } = this.#options;
    const isSilent = this.#awaitsProviderSinceMs !== undefined && now - this.#awaitsProviderSinceMs > providerIdleMs;
    if (isSilent) onTimeout?.("provider_idle");
    if (isSilent || now > (this.#left?.untilMs ?? 0)) void this.endReadOn();
  }

  /** Returns true for the first end of the stream, and false for all later ones. */
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
      // The stream is closed, so the client has left. If the stream had ended before, this changes nothing.
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
