import type { Db } from "../platform/db.ts";
import { answeredShare, modelComponent } from "./answer_counts.ts";
import { readAnswerDays } from "./answer_sums_store.ts";
import { readRouteStats } from "./route_stats_store.ts";
import { addSums, noSums, type Percentiles, reportsOf } from "./route_sums.ts";

/**
 * How a model did in the last 30 days, for everyone to see: shares and times, but no counts, routes or providers. Read once a minute for
 * each model, whoever asks. Source: RTL-10.
 */

export type ModelHealth = {
  /** Share of requests that were answered, by whichever route, from 0 to 1; null: there was none. */
  answered: number | null;
  /** The same by UTC day; days without a request are omitted. */
  days: { day: string; answered: number }[];
  /** Time to the first event of a stream; null: there was none. */
  firstEvent: Percentiles | null;
};

const FRESH_MS = 60_000;
/** Models in memory. More are read each time. */
const MODELS_MAX = 2_000;
/** Today and the days before it. */
const DAYS = 30;

type HealthDeps = { db: Db; clock: { nowMs(): number } };

/** The health of a model by its routes. One for a replica. */
export function modelHealths(deps: HealthDeps): (model: HealthOf) => Promise<ModelHealth> {
  const known = new Map<string, { readMs: number; health: Promise<ModelHealth> }>();
  return (model) => {
    const nowMs = deps.clock.nowMs();
    const before = known.get(model.id);
    if (before !== undefined && nowMs - before.readMs < FRESH_MS) return before.health;
    const health = readHealth(deps, model);
    if (known.size < MODELS_MAX || before !== undefined) {
      const read = { readMs: nowMs, health };
      known.set(model.id, read);
      // A failure is not kept.
      health.catch(() => known.get(model.id) === read && known.delete(model.id));
    }
    return health;
  };
}

type HealthOf = { id: string; routes: readonly { id: number }[] };

async function readHealth({ db }: HealthDeps, { id, routes }: HealthOf): Promise<ModelHealth> {
  const component = modelComponent(id);
  const routeIds = routes.map((route) => route.id);
  const [found, sums] = await Promise.all([
    readAnswerDays({ db }, [[component, component]], DAYS),
    readRouteStats({ db }, "month", routeIds),
  ]);
  const streams = sums.filter(({ kind }) => kind === "stream").reduce(addSums, noSums(0, "stream"));
  const [report] = reportsOf([streams]);
  const days = found.get(component) ?? [];
  const all = days.reduce(
    (sum, { answered, failed }) => ({ answered: sum.answered + answered, failed: sum.failed + failed }),
    { answered: 0, failed: 0 },
  );
  return {
    answered: answeredShare(all),
    days: days.map(({ day, ...counts }) => ({ day, answered: answeredShare(counts) ?? 0 })),
    firstEvent: report?.firstEvent ?? null,
  };
}
