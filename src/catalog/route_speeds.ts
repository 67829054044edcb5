import type { Db } from "../platform/db.ts";
import { percentileMs } from "../platform/durations.ts";
import { every } from "../platform/every.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import type { Catalog, Model } from "./catalog.ts";
import { readRouteStats } from "./route_stats_store.ts";
import type { AnswerKind, RouteSums } from "./route_sums.ts";

/**
 * The speeds of routes, for models that choose by latency. They come from the sums of all replicas in the last 10 to 15
 * minutes, so that all replicas choose alike. Read every few seconds, and only while a model chooses by latency. If
 * Postgres is away, the last ranks stay.
 * Source: PRV-21.
 */

const READ_EVERY_MS = 10_000;
/** A reading that takes longer fails. */
const READ_MS_MAX = 5_000;
/** A route with fewer attempts than this counts as the fastest, until it has shown how fast it is. */
const ATTEMPTS_MIN = 5;
/**
 * Routes that need at most this many times as long as the fastest one count as equal, so that not all requests go to
 * one of them.
 */
const NEARLY = 1.25;
/** The rank of a route that never answered. */
const NEVER = Number.MAX_SAFE_INTEGER;

/** Ranks by route id: 0 for the fastest route and those that are nearly as fast, and for routes that are not listed. */
export type SpeedRanks = ReadonlyMap<number, number>;

export type RouteSpeeds = {
  /** The current ranks for streams (by their first event) or for whole answers. */
  ranks(kind: AnswerKind): SpeedRanks;
  close(): void;
};

/** Starts reading. Until the first ranks are there, all routes are equally fast. */
export function openRouteSpeeds({ db, catalog, log }: { db: Db; catalog: Catalog; log: Log }): RouteSpeeds {
  let present: Record<AnswerKind, SpeedRanks> = { stream: new Map(), whole: new Map() };

  async function read(): Promise<void> {
    const models = catalog.models().filter(({ routeChoice, routes }) => routeChoice === "latency" && routes.length > 1);
    const ids = models.flatMap(({ routes }) => routes.map(({ id }) => id));
    const sums = ids.length === 0 ? [] : await within(READ_MS_MAX, readRouteStats({ db }, "recent", ids));
    present = { stream: speedRanks(models, sums, "stream"), whole: speedRanks(models, sums, "whole") };
  }

  const failure = "the speed of routes could not be read; the last one stays in use";
  const job = every({ name: "route_speeds", ms: READ_EVERY_MS, run: read, log, failure, isNow: true });
  return {
    ranks: (kind) => present[kind],
    close: () => void job.close(),
  };
}

/**
 * The ranks of the routes of these models: the median time that an answer needs, divided by the fraction of attempts that are answered,
 * because a failed attempt costs time too. Pure.
 */
export function speedRanks(
  models: readonly Pick<Model, "routes">[],
  sums: readonly RouteSums[],
  kind: AnswerKind,
): SpeedRanks {
  const times = new Map(sums.filter((sum) => sum.kind === kind).map((sum) => [sum.routeId, expectedMs(sum)]));
  const ranks = new Map<number, number>();
  for (const { routes } of models) {
    const known = routes.map(({ id }) => times.get(id) ?? null).filter((ms) => ms !== null);
    const fastestMs = Math.min(...known);
    for (const { id } of routes) {
      const ms = times.get(id) ?? null;
      if (ms !== null && ms > fastestMs * NEARLY) ranks.set(id, ms);
    }
  }
  return ranks;
}

/** Null if there were too few attempts to know. */
function expectedMs({ requests, errors, durations }: RouteSums): number | null {
  if (requests < ATTEMPTS_MIN) return null;
  const medianMs = percentileMs(durations, 0.5);
  if (medianMs === null) return errors === 0 ? null : NEVER;
  return (medianMs * requests) / Math.max(1, requests - errors);
}
