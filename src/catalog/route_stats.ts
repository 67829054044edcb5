import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import { bucketOf } from "../platform/durations.ts";
import type { Log } from "../platform/log.ts";
import { addRouteStats } from "./route_stats_store.ts";
import { type AnswerKind, addSums, noSums, type RouteSums } from "./route_sums.ts";

/**
 * Counts of routes: attempts, errors, durations and input tokens. Each replica keeps sums in memory, and adds them to
 * the shared sums
 * in Postgres every few seconds (`buffered_writes.ts`). A replica that dies loses what it has not added yet; a write whose reply was
 * lost may be added twice. So no decision about money depends on them. Source: PRV-22.
 */

/** Sums in memory between two writes: of streams and of whole answers for each of 10,000 routes, about 7 MB. */
const SUMS_MAX = 20_000;
/** The most tokens that are counted for one answer: a provider can report any number. */
const TOKENS_MAX = 2_000_000_000;
/** The same for its cost: a thousand dollars. */
const NANO_USD_MAX = 1_000_000_000_000;

export type RouteStats = {
  /** A route answered after `ms`: with the whole answer, or the first event of a stream. */
  answered(routeId: number, kind: AnswerKind, ms: number): void;
  /** The provider failed. */
  failed(routeId: number, kind: AnswerKind): void;
  /** The provider refused the request itself, or cannot serve it: neither an answer nor an error. */
  rejected(routeId: number, kind: AnswerKind): void;
  /** A stream that had begun broke off. */
  brokeOff(routeId: number): void;
  /** What an answer used, as the provider reports it. */
  used(routeId: number, kind: AnswerKind, tokens: { promptTokens: number; cachedTokens: number }): void;
  /** What an answer cost the operator, as the provider reports it, and what it costs by the model's prices. */
  cost(routeId: number, kind: AnswerKind, amounts: { costNanoUsd: number; pricedNanoUsd: number }): void;
} & Pick<BufferedWrites<number, RouteSums>, "flush" | "stop">;

/** Opens the sums of this replica. */
export function openRouteStats({ db, log }: { db: Db; log: Log }): RouteStats {
  const buffer = createBufferedWrites<number, RouteSums>({
    name: "route statistics",
    max: SUMS_MAX,
    merge: addSums,
    write: (sums) => addRouteStats({ db }, sums),
    log,
  });

  /** Dropped, and so lost, if there are too many. */
  function sumsOf(routeId: number, kind: AnswerKind): RouteSums {
    const key = kind === "stream" ? -routeId : routeId;
    const known = buffer.entry(key);
    if (known !== undefined) return known;
    const sums = noSums(routeId, kind);
    buffer.note(key, sums);
    return sums;
  }

  return {
    answered(routeId, kind, ms) {
      const sums = sumsOf(routeId, kind);
      const bucket = bucketOf(ms);
      sums.requests += 1;
      sums.durations[bucket] = (sums.durations[bucket] ?? 0) + 1;
    },
    failed(routeId, kind) {
      const sums = sumsOf(routeId, kind);
      sums.requests += 1;
      sums.errors += 1;
    },
    rejected(routeId, kind) {
      sumsOf(routeId, kind).requests += 1;
    },
    brokeOff(routeId) {
      sumsOf(routeId, "stream").errors += 1;
    },
    used(routeId, kind, { promptTokens, cachedTokens }) {
      const sums = sumsOf(routeId, kind);
      const input = Math.min(TOKENS_MAX, promptTokens);
      sums.inputTokens += input;
      sums.cachedTokens += Math.min(input, cachedTokens);
    },
    cost(routeId, kind, { costNanoUsd, pricedNanoUsd }) {
      const sums = sumsOf(routeId, kind);
      sums.costNanoUsd += Math.min(NANO_USD_MAX, costNanoUsd);
      sums.pricedNanoUsd += Math.min(NANO_USD_MAX, pricedNanoUsd);
    },
    flush: buffer.flush,
    stop: buffer.stop,
  };
}
