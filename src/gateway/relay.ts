import { ChunkRewriter, type Relayed, type StreamFacts } from "./chunks.ts";
import type { SseReader } from "./sse.ts";

/**
 * Carries a provider's stream to the client: bytes through, usage out, and one end, whichever comes first. The caller says
 * what an end means for the hold; nothing here knows about money.
 */

const KEEP_ALIVE_AFTER_MS = 15_000;
const WATCH_EVERY_MS = 1_000;
const CLOSE_AFTER_DONE_MS = 1_000;
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

/** A stream whose first event has arrived: from here on nothing is retried. */
export type OpenedStream = {
  reader: ReadableStreamDefaultReader<Uint8Array>;
  sse: SseReader;
  /** Payloads that came with the first event. */
  first: string[];
  /** Ends the provider's call. */
  abort(): void;
};

export type StreamEnds = {
  /** The provider finished. Awaited before the last event goes out. */
  complete(relayed: Relayed): Promise<void>;
  /** The provider broke off. Returns the error event's payload. */
  brokeOff(why: string): Promise<string>;
  /** The client left, or reads too slowly. */
  clientLeft(relayed: Relayed): Promise<void>;
  /** We end it: draining. Returns the error event's payload. */
  endedByUs(): Promise<string>;
};

/** All streams that are open in this replica, under one timer: silence of either side, keep-alive, and drain. */
export type Relays = {
  start(opened: OpenedStream, facts: StreamFacts, ends: StreamEnds): ReadableStream<Uint8Array>;
  /** How many are open. */
  count(): number;
  /** Ends all with an error event. Resolves when their holds have ended. */
  endAll(): Promise<void>;
  close(): void;
};

type RelayOptions = { providerIdleMs: number; clientIdleMs: number; nowMs: () => number };

/** Makes the replica's set of open streams. */
export function createRelays({ providerIdleMs, clientIdleMs, nowMs }: RelayOptions): Relays {
  const open = new Set<Relay>();
  const timer = setInterval(() => {
    const now = nowMs();
    for (const relay of open) relay.watch(now, providerIdleMs, clientIdleMs);
  }, WATCH_EVERY_MS);
  return {
    start(opened, facts, ends) {
      const relay = new Relay(opened, facts, ends, nowMs, () => open.delete(relay));
      open.add(relay);
      return relay.stream;
    },
    count: () => open.size,
    async endAll() {
      await Promise.all([...open].map((relay) => relay.endByUs()));
    },
    close: () => clearInterval(timer),
  };
}

class Relay {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #opened: OpenedStream;
  readonly #ends: StreamEnds;
  readonly #nowMs: () => number;
  readonly #onEnd: () => void;
  readonly #rewriter: ChunkRewriter;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #ended = false;
  /** The provider said [DONE], or closed its side. */
  #sawDone = false;
  #sawEnd = false;
  /** Payloads not yet written. */
  #payloads: string[];
  /** Since when each side has kept the other waiting; undefined: it does not. */
  #awaitsProviderSinceMs: number | undefined;
  #awaitsClientSinceMs: number | undefined;
  #keptAliveMs: number;

  constructor(opened: OpenedStream, facts: StreamFacts, ends: StreamEnds, nowMs: () => number, onEnd: () => void) {
    this.#opened = opened;
    this.#ends = ends;
    this.#nowMs = nowMs;
    this.#onEnd = onEnd;
    this.#payloads = opened.first;
    this.#rewriter = new ChunkRewriter(facts);
    this.#keptAliveMs = nowMs();
    this.#awaitsClientSinceMs = nowMs();
    this.stream = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
      },
      pull: () => this.#pull(),
      cancel: () => this.#clientLeft(),
    });
  }

  /** One pull brings one write: what the provider has sent by then, in one piece. */
  async #pull(): Promise<void> {
    this.#awaitsClientSinceMs = undefined;
    try {
      for (;;) {
        const { out, broken } = this.#write();
        if (this.#ended) return;
        if (broken !== undefined) {
          if (out !== "") this.#enqueue(out);
          throw broken;
        }
        if (this.#sawDone || this.#sawEnd) return await this.#complete(out);
        if (out !== "") {
          this.#enqueue(out);
          this.#awaitsClientSinceMs = this.#nowMs();
          return;
        }
        await this.#read();
        if (this.#ended) return;
      }
    } catch (error) {
      await this.#brokeOff(error instanceof Error ? error.message : String(error));
    }
  }

  async #read(): Promise<void> {
    this.#awaitsProviderSinceMs = this.#nowMs();
    const { done, value } = await this.#opened.reader.read();
    this.#awaitsProviderSinceMs = undefined;
    if (!done) {
      this.#payloads = this.#opened.sse.push(value);
      return;
    }
    this.#payloads = this.#opened.sse.end();
    this.#sawEnd = true;
  }

  /** Rewrites the waiting payloads into one text. `broken`: what follows it is not a chunk; what came before is the client's. */
  #write(): { out: string; broken?: unknown } {
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

  async #complete(out: string): Promise<void> {
    if (!this.#sawDone && !this.#rewriter.finished) throw new Error("the stream ended without a finish_reason");
    if (!this.#end()) return;
    if (!this.#sawEnd) this.#letProviderClose();
    try {
      // Settled before the last byte: a client that has read [DONE] has been charged exactly once.
      await this.#ends.complete(this.#rewriter.relayed);
    } catch (error) {
      this.#controller.error(error);
      return;
    }
    const usage = this.#rewriter.usageChunk();
    this.#close(`${out}${usage === undefined ? "" : `data: ${usage}\n\n`}data: [DONE]\n\n`);
  }

  /** A connection is only used again once its answer was read to the end, which comes right behind [DONE]. */
  #letProviderClose(): void {
    const timer = setTimeout(() => this.#opened.abort(), CLOSE_AFTER_DONE_MS);
    this.#opened.reader
      .read()
      .then(({ done }) => !done && this.#opened.abort())
      .catch(() => {}) // The answer is complete; how the connection ends does not matter any more.
      .finally(() => clearTimeout(timer));
  }

  async #brokeOff(why: string): Promise<void> {
    if (!this.#end()) return;
    this.#opened.abort();
    this.#close(`data: ${await this.#ends.brokeOff(why)}\n\n`);
  }

  async #clientLeft(): Promise<void> {
    if (!this.#end()) return;
    this.#opened.abort();
    await this.#ends.clientLeft(this.#rewriter.relayed);
  }

  async endByUs(): Promise<void> {
    if (!this.#end()) return;
    this.#opened.abort();
    this.#close(`data: ${await this.#ends.endedByUs()}\n\n`);
  }

  /** Called each second. */
  watch(now: number, providerIdleMs: number, clientIdleMs: number): void {
    if (this.#awaitsProviderSinceMs !== undefined) {
      if (now - this.#awaitsProviderSinceMs > providerIdleMs) void this.#brokeOff("the provider fell silent");
      else if (now - Math.max(this.#keptAliveMs, this.#awaitsProviderSinceMs) >= KEEP_ALIVE_AFTER_MS) {
        this.#keptAliveMs = now;
        this.#controller.enqueue(KEEP_ALIVE);
      }
    } else if (this.#awaitsClientSinceMs !== undefined && now - this.#awaitsClientSinceMs > clientIdleMs) {
      void this.#clientLeft();
      this.#controller.error(new Error("the client reads too slowly"));
    }
  }

  /** True for the first who ends the stream; all others came too late. */
  #end(): boolean {
    if (this.#ended) return false;
    this.#ended = true;
    this.#onEnd();
    return true;
  }

  #enqueue(text: string): void {
    this.#controller.enqueue(new TextEncoder().encode(text));
  }

  #close(last: string): void {
    try {
      this.#enqueue(last);
      this.#controller.close();
    } catch {
      // The client left while its end was being settled: there is nobody to tell.
    }
  }
}
