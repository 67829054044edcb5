import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { openAnswerSums } from "../../src/catalog/answer_sums.ts";
import {
  addAnswerSums,
  pruneAnswerSums,
  readAnswerDays,
  readRecentAnswers,
} from "../../src/catalog/answer_sums_store.ts";
import { modelHealths } from "../../src/catalog/model_health.ts";
import { type CatalogWorld, createCatalogWorld } from "./catalog_world.ts";

/** The sums of answered requests that replicas share. Source: STA-1. */

let world: CatalogWorld;
let deps: CatalogWorld["deps"];
beforeAll(async () => {
  world = await createCatalogWorld();
  deps = world.deps;
});
beforeEach(async () => {
  await world.sql`delete from answer_sums`;
  await world.setClock("2031-01-01 12:02");
});
afterAll(() => world.close());

const API = [["api", "api"]] as const;

test("the sums that two replicas write at the same time add up exactly", async () => {
  const replicas = [openAnswerSums(deps), openAnswerSums(deps)];
  for (let round = 0; round < 20; round++) {
    for (const sums of replicas)
      for (const component of ["api", "panel", "model:a"] as const) {
        sums.note(component, true);
        sums.note(component, true);
        sums.note(component, false);
      }
    await Promise.all(replicas.map((sums) => sums.flush()));
  }
  await Promise.all(replicas.map((sums) => sums.stop()));
  const days = await readAnswerDays(deps, [...API, ["panel", "both"], ["model:a", "both"]], 90);
  expect([...days]).toEqual([
    ["api", [{ day: "2031-01-01", answered: 80, failed: 40 }]],
    ["both", [{ day: "2031-01-01", answered: 160, failed: 80 }]],
  ]);
});

test("days are UTC days, whatever the zone of a daylight saving change; recent is a quarter of an hour", async () => {
  const add = async (at: string) => {
    await world.setClock(at);
    await addAnswerSums(deps, [{ component: "api", answered: 1, failed: 0 }]);
  };
  // In Berlin clocks are set forward in this night, at 01:00 UTC.
  for (const at of ["2031-03-29 23:59", "2031-03-30 00:00", "2031-03-30 01:00", "2031-03-30 23:59"]) await add(at);
  const sums = async (days: number) => (await readAnswerDays(deps, API, days)).get("api");
  expect(await sums(90)).toEqual([
    { day: "2031-03-29", answered: 1, failed: 0 },
    { day: "2031-03-30", answered: 3, failed: 0 },
  ]);
  expect(await sums(1)).toEqual([{ day: "2031-03-30", answered: 3, failed: 0 }]);
  expect(await readRecentAnswers(deps, API)).toEqual(new Map([["api", { answered: 1, failed: 0 }]]));
  await world.setClock("2031-03-31 00:10");
  expect(await readRecentAnswers(deps, API)).toEqual(new Map());
});

test("90 days are read and 92 kept; rows of 5 minutes are kept for an hour", async () => {
  await addAnswerSums(deps, [{ component: "api", answered: 1, failed: 0 }]);
  await world.setClock("2031-03-31 23:59");
  expect((await readAnswerDays(deps, API, 90)).get("api")).toHaveLength(1);
  await world.setClock("2031-04-01 00:00");
  expect((await readAnswerDays(deps, API, 900)).size).toBe(0);
  expect(await pruneAnswerSums(deps)).toBe(1);
  await world.setClock("2031-04-03 00:01");
  expect(await pruneAnswerSums(deps)).toBe(1);
  expect(await world.sql`select 1 from answer_sums`).toHaveLength(0);
});

test("the health of a model: today and the 29 days before it; a share is rounded down; read again after a minute", async () => {
  const add = async (at: string, component: "model:m" | "model:n", answered: number, failed: number) => {
    await world.setClock(at);
    await addAnswerSums(deps, [{ component, answered, failed }]);
  };
  await add("2031-03-01 23:59", "model:m", 0, 5);
  await add("2031-03-02 00:00", "model:m", 2, 1);
  await add("2031-03-30 10:00", "model:m", 39_998, 1);
  await add("2031-03-31 12:00", "model:n", 0, 4);
  let nowMs = 0;
  const healthOf = modelHealths({ ...deps, clock: { nowMs: () => nowMs } });
  const model = { id: "m", routes: [] };
  const health = await healthOf(model);
  expect(health).toEqual({
    answered: 0.9999,
    days: [
      { day: "2031-03-02", answered: 0.6666 },
      { day: "2031-03-30", answered: 0.9999 },
    ],
    firstEvent: null,
  });
  expect(await healthOf({ id: "none", routes: [] })).toEqual({ answered: null, days: [], firstEvent: null });
  await add("2031-03-31 12:01", "model:m", 0, 1);
  nowMs = 59_999;
  expect(await healthOf(model)).toEqual(health);
  nowMs = 60_000;
  expect((await healthOf(model)).days).toHaveLength(3);
});

test("while the database is away, sums are kept and written later", async () => {
  const sums = openAnswerSums(deps);
  sums.note("api", true);
  await world.sql`alter table answer_sums rename to answer_sums_away`;
  await sums.flush();
  sums.note("api", false);
  await world.sql`alter table answer_sums_away rename to answer_sums`;
  await sums.stop();
  expect((await readAnswerDays(deps, API, 1)).get("api")).toEqual([{ day: "2031-01-01", answered: 1, failed: 1 }]);
});
