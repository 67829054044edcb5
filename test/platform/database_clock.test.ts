import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { openDatabaseClock } from "../../src/platform/database_clock_store.ts";
import type { Db } from "../../src/platform/db.ts";
import { createWorld, type World } from "../world.ts";
import { until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";

/** What a replica knows of the database's clock. Source: REL-2. */
const AT = "2031-03-01T12:00:00.000Z";
const AT_MS = Date.parse(AT);
let world: World;
let db: Db;
beforeAll(async () => {
  world = await createWorld();
  db = world.openDb();
});
beforeEach(() => world.setClock(AT));
afterAll(async () => {
  await db.close();
  await world.close();
});

/** A clock whose machine the test moves. A reading takes `answerMs`. */
function opened(database: Db = db) {
  const machine = { nowMs: 50_000, wallMs: 7_000_000, answerMs: 0, readings: 0 };
  const pass = (ms: number) => {
    machine.nowMs += ms;
    machine.wallMs += ms;
  };
  const sql = ((...args: Parameters<Db["sql"]>) => {
    machine.readings++;
    const answer = database.sql(...args);
    pass(machine.answerMs);
    return answer;
  }) as Db["sql"];
  const { log, lines } = quietLog();
  const clock = openDatabaseClock({
    db: { ...database, sql },
    log,
    nowMs: () => machine.nowMs,
    wallMs: () => machine.wallMs,
  });
  return { clock, machine, pass, lines };
}

test("the estimate runs on with the monotonic clock, without a query for five seconds", async () => {
  const { clock, machine, pass } = opened();
  expect(() => clock.unixMs()).toThrow("was not read yet");
  await clock.read();
  expect(clock.unixMs()).toBe(AT_MS);
  pass(5_000);
  expect(clock.unixMs()).toBe(AT_MS + 5_000);
  const { readings } = machine;
  expect(readings).toBeLessThanOrEqual(2);
  pass(1);
  clock.unixMs();
  expect(machine.readings).toBe(readings + 1);
});

test("the estimate is never ahead of the database, and a slow answer does not make it worse", async () => {
  const { clock, machine, pass } = opened();
  machine.answerMs = 40;
  await clock.read();
  // The database may have read its clock just before it answered.
  expect(clock.unixMs()).toBe(AT_MS);
  pass(1_000);
  await world.setClock("2031-03-01T12:00:01.050Z");
  machine.answerMs = 2_000;
  await clock.read();
  // By the last answer alone it could be 12:00:01.050, and by the first it is two seconds later than a second after 12.
  expect(clock.unixMs()).toBe(AT_MS + 3_000);
});

test("a database whose clock was set back is followed", async () => {
  const { clock, pass } = opened();
  await clock.read();
  pass(60_000);
  await world.setClock("2031-03-01T11:00:00.000Z");
  await clock.read();
  // To the millisecond that its clock was cut to.
  expect(clock.unixMs() - Date.parse("2031-03-01T11:00:00.000Z")).toBeOneOf([0, 1]);
});

test("a machine that was suspended reads the clock as soon as it is asked", async () => {
  const { clock, machine } = opened();
  await clock.read();
  const { readings } = machine;
  // The monotonic clock stood still meanwhile.
  machine.wallMs += 3_600_000;
  await world.setClock("2031-03-01T13:00:00.000Z");
  clock.unixMs();
  expect(machine.readings).toBe(readings + 1);
  await until(() => clock.unixMs() === AT_MS + 3_600_000);
});

test("a wall clock that is wrong changes nothing", async () => {
  const { clock, machine } = opened();
  machine.wallMs = 0;
  await clock.read();
  expect(clock.unixMs()).toBe(AT_MS);
});

test("while the database cannot be read the estimate runs on, but says no more when a moment comes; the log says so", async () => {
  const { clock, pass, machine, lines } = opened();
  await clock.read();
  expect(clock.earliestMs("2031-03-01T12:00:01.000Z")).toBe(machine.nowMs + 999);
  await world.sql`alter function ledger_now() rename to ledger_gone`;
  try {
    pass(10_001);
    expect(clock.earliestMs("2031-03-01T12:00:01.000Z")).toBe(Number.NEGATIVE_INFINITY);
    await until(() => lines.some(({ message }) => message === "could not read the database's clock"));
    expect(clock.unixMs()).toBe(AT_MS + 10_001);
  } finally {
    await world.sql`alter function ledger_gone() rename to ledger_now`;
  }
});
