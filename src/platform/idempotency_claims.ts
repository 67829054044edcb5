import { LRUCache } from "lru-cache";
import type { Log } from "./log.ts";

/**
 * Idempotency claims: a request that may be served once claims an id before it begins. When it is done, the claim records that, and
 * keeps the answer for a while. When it fails, the id is free again. This file does not know what an id stands for; answers
 * arrive encrypted.
 */

const MINUTE_MS = 60_000;

export type ClaimLimits = {
  /** How long a done request is remembered. */
  doneKeptMs: number;
  answerKeptMs: number;
  /** Size of one encrypted answer. */
  answerBytesMax: number;
  /** Done requests remembered at once. Beyond that, Redis remembers new ones for `answerKeptMs` only; a process forgets the oldest. */
  doneMax: number;
  ownerDoneMax: number;
  /** Bytes of all answers kept at once. Beyond that, Redis keeps no new ones; a process forgets the oldest. */
  answersBytesMax: number;
  ownerAnswersBytesMax: number;
};

/** Shared by all replicas. */
export const REDIS_LIMITS: ClaimLimits = {
  doneKeptMs: 24 * 60 * MINUTE_MS,
  answerKeptMs: 10 * MINUTE_MS,
  // An image in base64 is about 2 MiB.
  answerBytesMax: 4 * 1024 * 1024,
  doneMax: 1_000_000,
  ownerDoneMax: 50_000,
  answersBytesMax: 256 * 1024 * 1024,
  ownerAnswersBytesMax: 32 * 1024 * 1024,
};
/** In the memory of the only replica. */
const PROCESS_LIMITS: ClaimLimits = { ...REDIS_LIMITS, doneMax: 100_000, answersBytesMax: 64 * 1024 * 1024 };

/** A request that may be served once. */
export type Wanted = {
  /** A digest of what identifies the request. */
  id: string;
  /** The account whose limits it counts against. */
  owner: string;
  requestId: string;
  /** Identifies the process that serves it, for whoever finds that it died. */
  servedBy: string;
  /** Digest of the body. The same id with another digest is another request. */
  content: string;
};

/** The request that has claimed an id. */
export type Holder = { requestId: string; servedBy: string; content: string };

export type Found =
  | { state: "ours"; claim: IdempotencyClaim }
  | ({ state: "in_flight" } & Holder)
  /** Its replica has not renewed the lease. Whether the request was done, the books know. */
  | ({ state: "lapsed"; lapsed: Lapsed } & Holder)
  /** `answer` as passed to `finish`; undefined: not kept, or not any more. */
  | ({ state: "done"; answer: Uint8Array | undefined } & Holder);

/** One attempt, from `take` to `finish` or `free`, which throw nothing: if the end cannot be recorded, the claim lapses. */
export type IdempotencyClaim = {
  /** Whether the lease still holds. If not, another attempt may have taken over: begin nothing new. */
  alive(): boolean;
  /** The request was done. The answer is not kept if it exceeds a limit. */
  finish(answer?: Uint8Array): Promise<void>;
  /** The request was not done: the id is free again. */
  free(): Promise<void>;
};

export type Lapsed = {
  /** Claims the id for a new attempt; undefined: the old one was renewed, or another took over first. Throws service_unavailable. */
  takeOver(): Promise<IdempotencyClaim | undefined>;
  /** Records that the old attempt was done. Throws nothing. */
  finish(): Promise<void>;
};

export type IdempotencyClaims = {
  /** Claims an id, or returns who has it. Throws service_unavailable if that cannot be determined. */
  take(wanted: Wanted): Promise<Found>;
  /** Resolves when the ends of all attempts are recorded. */
  close(): Promise<void>;
};

export type ClaimOptions = {
  /** A claim that is not renewed for this long lapses: its replica has died. */
  leaseMs: number;
  /** Monotonic clock. */
  nowMs: () => number;
  log: Log;
  limits?: Partial<ClaimLimits>;
  /** Longest wait for an answer of Redis. */
  budgetMs?: number;
};

/** For a single replica. Its claims end with the process, so none ever lapses. */
export function inProcessIdempotencyClaims({
  nowMs,
  limits: given,
}: Pick<ClaimOptions, "nowMs" | "limits">): IdempotencyClaims {
  const limits = { ...PROCESS_LIMITS, ...given };
  // Bounded by the gate: one for each request in flight.
  const open = new Map<string, Holder>();
  const done = new LRUCache<string, Holder & { endsMs: number }>({ max: limits.doneMax });
  const answers = new LRUCache<string, { bytes: Uint8Array; endsMs: number }>({
    maxSize: limits.answersBytesMax,
    maxEntrySize: limits.answerBytesMax,
    sizeCalculation: ({ bytes }) => Math.max(1, bytes.byteLength),
  });

  function claimOf(id: string, holder: Holder): IdempotencyClaim {
    open.set(id, holder);
    return {
      alive: () => true,
      async finish(answer) {
        open.delete(id);
        done.set(id, { ...holder, endsMs: nowMs() + limits.doneKeptMs });
        if (answer) answers.set(id, { bytes: answer, endsMs: nowMs() + limits.answerKeptMs });
      },
      async free() {
        open.delete(id);
      },
    };
  }

  return {
    async take({ id, requestId, servedBy, content }) {
      const holder = open.get(id);
      if (holder) return { state: "in_flight", ...holder };
      const known = done.get(id);
      if (known === undefined || known.endsMs <= nowMs()) {
        answers.delete(id);
        return { state: "ours", claim: claimOf(id, { requestId, servedBy, content }) };
      }
      const kept = answers.get(id);
      const answer = kept && kept.endsMs > nowMs() ? kept.bytes : undefined;
      const { requestId: knownId, servedBy: knownBy } = known;
      return { state: "done", requestId: knownId, servedBy: knownBy, content: known.content, answer };
    },
    close: async () => {},
  };
}
