import { LRUCache } from "lru-cache";
import type { Log } from "./log.ts";

/**
 * IdempotencyClaims: what may be done once is claimed under an id before it is begun, and the claim says afterwards that it was done,
 * for a while with its answer. A claim that ends in failure frees its id. Nothing here knows what an id stands for; answers
 * come in encrypted.
 */

const MINUTE_MS = 60_000;

export type ClaimLimits = {
  /** How long it is remembered that something was done. */
  doneKeptMs: number;
  answerKeptMs: number;
  /** One answer, encrypted. */
  answerBytesMax: number;
  /** Done and remembered at once. In Redis what comes beyond is remembered for `answerKeptMs`; in a process the oldest is forgotten. */
  doneMax: number;
  ownerDoneMax: number;
  /** All answers kept at once. In Redis what comes beyond is not kept; in a process the oldest is forgotten. */
  answersBytesMax: number;
  ownerAnswersBytesMax: number;
};

/** Shared by all replicas. */
export const REDIS_LIMITS: ClaimLimits = {
  doneKeptMs: 24 * 60 * MINUTE_MS,
  answerKeptMs: 10 * MINUTE_MS,
  // An image in base64 is some 2 MiB.
  answerBytesMax: 4 * 1024 * 1024,
  doneMax: 1_000_000,
  ownerDoneMax: 50_000,
  answersBytesMax: 256 * 1024 * 1024,
  ownerAnswersBytesMax: 32 * 1024 * 1024,
};
/** In the replica's own memory: with one replica. */
const PROCESS_LIMITS: ClaimLimits = { ...REDIS_LIMITS, doneMax: 100_000, answersBytesMax: 64 * 1024 * 1024 };

/** Something that is to be done once. */
export type Wanted = {
  /** What is claimed: a digest. */
  id: string;
  /** Whose share of the room it takes. */
  owner: string;
  requestId: string;
  /** Digest of what is asked for: with another one it is not the same thing. */
  content: string;
};

/** Who has an id: the request that claimed it, and what that asked for. */
export type Holder = { requestId: string; content: string };

export type Found =
  | { state: "ours"; claim: IdempotencyClaim }
  | ({ state: "in_flight" } & Holder)
  /** Its replica has not been heard of for a lease. Whether it was done is for others to say. */
  | ({ state: "lapsed"; lapsed: Lapsed } & Holder)
  /** `answer` as it was given to `finish`, as long as it is kept. */
  | ({ state: "done"; answer: Uint8Array | undefined } & Holder);

/** One attempt, from `take` to its one end. The ends throw nothing: one that cannot be noted leaves a claim that lapses. */
export type IdempotencyClaim = {
  /** Whether the id is ours for sure. When not, another attempt may have taken over, and nothing new may be begun. */
  alive(): boolean;
  /** It was done. An answer that is too large, or for which there is no room, is not kept. */
  finish(answer?: Uint8Array): Promise<void>;
  /** It was not done: the id is free. */
  free(): Promise<void>;
};

export type Lapsed = {
  /** The id for a new attempt; undefined: the old one was heard of again, or another was faster. Throws service_unavailable. */
  takeOver(): Promise<IdempotencyClaim | undefined>;
  /** It turned out to have been done. Throws nothing. */
  finish(): Promise<void>;
};

export type IdempotencyClaims = {
  /** IdempotencyClaims an id, or says who has it. Throws service_unavailable where that cannot be known. */
  take(wanted: Wanted): Promise<Found>;
  /** Resolves when the ends of all attempts are noted. */
  close(): Promise<void>;
};

export type ClaimOptions = {
  /** A claim that is not renewed for this long lapses: its replica died. */
  leaseMs: number;
  /** Monotonic. */
  nowMs: () => number;
  log: Log;
  limits?: Partial<ClaimLimits>;
  /** What Redis may take to answer. */
  budgetMs?: number;
};

/** For one replica. Its claims die with it, so that none lapses. */
export function inProcessIdempotencyClaims({
  nowMs,
  limits: given,
}: Pick<ClaimOptions, "nowMs" | "limits">): IdempotencyClaims {
  const limits = { ...PROCESS_LIMITS, ...given };
  // As many as the gate lets in.
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
    async take({ id, requestId, content }) {
      const holder = open.get(id);
      if (holder) return { state: "in_flight", ...holder };
      const known = done.get(id);
      if (known === undefined || known.endsMs <= nowMs()) {
        answers.delete(id);
        return { state: "ours", claim: claimOf(id, { requestId, content }) };
      }
      const kept = answers.get(id);
      const answer = kept && kept.endsMs > nowMs() ? kept.bytes : undefined;
      return { state: "done", requestId: known.requestId, content: known.content, answer };
    },
    close: async () => {},
  };
}
