import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { openRouteStats } from "../../src/catalog/route_stats.ts";
import { addRouteStats, pruneRouteStats, readRouteStats } from "../../src/catalog/route_stats_store.ts";
import { noSums } from "../../src/catalog/route_sums.ts";
import { bucketOf } from "../../src/platform/durations.ts";
import { type CatalogWorld, createCatalogWorld } from "./catalog_world.ts";

/** The sums of routes that replicas share. Source: PRV-22. */

let world: CatalogWorld;
let deps: CatalogWorld["deps"];
beforeAll(async () => {
  world = await createCatalogWorld();
  deps = world.deps;
});
beforeEach(async () => {
  await world.sql`delete from route_stats`;
  await world.setClock("2031-01-01 12:02");
});
afterAll(() => world.close());

const day = (routeIds?: number[]) => readRouteStats(deps, "day", routeIds);

test("the sums that two replicas write at the same time add up exactly", async () => {
  const replicas = [openRouteStats(deps), openRouteStats(deps)];
  for (let round = 0; round < 20; round++) {
    for (const stats of replicas) {
      for (let routeId = 1; routeId <= 5; routeId++) {
        stats.answered(routeId, "whole", 100);
        stats.answered(routeId, "stream", 10);
        stats.failed(routeId, "whole");
        stats.rejected(routeId, "stream");
        stats.brokeOff(routeId);
        stats.used(routeId, "stream", { promptTokens: 100, cachedTokens: 60 });
      }
    }
    await Promise.all(replicas.map((stats) => stats.flush()));
  }
  await Promise.all(replicas.map((stats) => stats.stop()));
  const sums = await day();
  expect(sums.length).toBe(10);
  for (const { kind, durations, routeId, ...counts } of sums) {
    expect(durations.reduce((sum, count) => sum + count, 0)).toBe(40);
    expect(durations[bucketOf(kind === "whole" ? 100 : 10)]).toBe(40);
    const none = { costNanoUsd: 0, pricedNanoUsd: 0 };
    expect(counts).toEqual(
      kind === "whole"
        ? { requests: 80, errors: 40, inputTokens: 0, cachedTokens: 0, ...none }
        : { requests: 80, errors: 40, inputTokens: 4_000, cachedTokens: 2_400, ...none },
    );
  }
  expect(world.lines.filter(({ level }) => level === "warn")).toEqual([]);
});

test("hostile token counts are bounded: no sum is too large for the table", async () => {
  const stats = openRouteStats(deps);
  for (let i = 0; i < 3; i++) stats.used(1, "whole", { promptTokens: Number.MAX_SAFE_INTEGER, cachedTokens: 1e300 });
  await stats.stop();
  expect(await day()).toMatchObject([{ inputTokens: 6e9, cachedTokens: 6e9 }]);
});

test("a day is the current hour and the 23 before it; recent means the current 5 minutes and the 10 before; older rows are deleted", async () => {
  const sums = { ...noSums(7, "whole"), requests: 1 };
  for (const at of ["2031-01-01 12:02", "2031-01-01 12:04", "2031-01-01 12:14"]) {
    await world.setClock(at);
    await addRouteStats(deps, [sums]);
  }
  expect(await readRouteStats(deps, "recent", [7])).toMatchObject([{ requests: 3 }]);
  await world.setClock("2031-01-02 11:59");
  await addRouteStats(deps, [sums]);
  expect(await day()).toMatchObject([{ requests: 4 }]);
  expect(await readRouteStats(deps, "recent")).toMatchObject([{ requests: 1 }]);
  await world.setClock("2031-01-02 12:00");
  expect(await day()).toMatchObject([{ requests: 1 }]);
  expect(await readRouteStats(deps, "recent", [8])).toEqual([]);
  // Rows of 5 minutes: 12:00 and 12:10 of the day before. The hour's row is deleted an hour later.
  expect(await pruneRouteStats(deps)).toBe(2);
  await world.setClock("2031-01-02 13:01");
  expect(await pruneRouteStats(deps)).toBe(2);
  expect(await pruneRouteStats(deps)).toBe(0);
});

test("a month is today and the 29 days before it, in UTC days; older days are deleted", async () => {
  const add = async (at: string, routeId: number, requests: number, errors: number) => {
    await world.setClock(at);
    const sums = { ...noSums(routeId, "stream"), requests, errors };
    sums.durations[20] = requests - errors;
    await addRouteStats(deps, [sums]);
  };
  await add("2031-03-01 23:59", 7, 5, 5);
  await add("2031-03-02 00:00", 7, 3, 1);
  await add("2031-03-30 10:00", 7, 9_999, 0);
  await add("2031-03-31 12:00", 9, 4, 4);
  expect(await readRouteStats(deps, "month", [7])).toMatchObject([{ requests: 10_002, errors: 1 }]);

  await world.setClock("2031-04-30 23:59");
  await pruneRouteStats(deps);
  expect(await world.sql`select 1 from route_stats where span <> 1440`).toHaveLength(0);
  const left = await world.sql`select to_char(begins at time zone 'UTC', 'MM-DD') as day from route_stats group by 1`;
  expect(left.map(({ day }) => day)).toEqual(["03-31"]);
});

test("while the database is away, sums are kept and written later", async () => {
  const stats = openRouteStats(deps);
  stats.answered(3, "whole", 100);
  await world.sql`alter table route_stats rename to route_stats_away`;
  await stats.flush();
  stats.answered(3, "whole", 100);
  await world.sql`alter table route_stats_away rename to route_stats`;
  await stats.stop();
  expect(await day([3])).toMatchObject([{ requests: 2 }]);
});
