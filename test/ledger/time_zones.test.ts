import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { releaseOf, settlementOf } from "../../src/ledger/finisher.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import type { FinishResult, ReserveResult } from "../../src/ledger/ledger_store.ts";
import { holds, TIMES } from "../property.ts";
import { createWorld, type OfferingSpec, type World } from "../world.ts";
import { openSqlReplica, reapLease, requestFor, type SqlReplica, tally, usageOf } from "./ledger_world.ts";
import { dateIn, daysLaterMs, nextDayMs, toIso, wallMs } from "./model.ts";

/**
 * Days are calendar days, in any zone: of 23, 24.5 and 25 hours, with a midnight that does not exist or occurs twice, and a date that
 * a whole country skipped. Source: QUO-2.
 */
const RUNS = 100;
const SEARCH_MS_MAX = 2 * 60_000 * TIMES;
const TEST_TIMEOUT_MS = SEARCH_MS_MAX + 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Zones whose data differ between the database and the runtime, because one of them is older. */
const STALE_ZONES_MAX = 10;
const YEAR_FROM_MS = Date.parse("2026-01-01T00:00:00Z");
const YEAR_DAYS = 365;

let world: World;
let zones: string[] = [];
let nowMs = 0;
let replica: SqlReplica;

beforeAll(async () => {
  world = await createWorld();
  await clock("2026-01-15T00:00:00Z");
  await world.sql`select make_receipt_months(14)`;
  replica = await openSqlReplica(world);
  zones = await sharedZones();
});
afterAll(() => world.close());

async function clock(at: string | number): Promise<void> {
  nowMs = typeof at === "number" ? at : Date.parse(at);
  await world.setClock(toIso(nowMs));
}

/** The zones in which the database and the runtime agree about every noon and midnight of the year. */
async function sharedZones(): Promise<string[]> {
  const names = Intl.supportedValuesOf("timeZone");
  const halfDays = Array.from({ length: YEAR_DAYS * 2 }, (_, i) => YEAR_FROM_MS + (i * DAY_MS) / 2);
  const rows = await world.sql`
    select z.name, string_agg((floor(extract(epoch from (t at time zone z.name)) * 1000)::bigint)::text, ',' order by t) as walls
    from pg_timezone_names z, generate_series(${toIso(YEAR_FROM_MS)}::timestamptz,
      ${toIso(YEAR_FROM_MS)}::timestamptz + make_interval(days => ${YEAR_DAYS}) - interval '1 second', interval '12 hours') t
    where z.name = any(${names}) group by z.name`;
  const walls = new Map(rows.map((row) => [String(row.name), String(row.walls)]));
  const shared = names.filter((name) => walls.get(name) === halfDays.map((ms) => wallMs(name, ms)).join(","));
  console.log(`time zones: ${shared.length} of ${names.length} are the same in the database and here`);
  return shared;
}

type Customer = {
  accountId: number;
  packageId: number;
  ask(replica?: SqlReplica): Promise<ReserveResult & { hold: Hold }>;
  settle(hold: Hold): Promise<FinishResult>;
  release(hold: Hold): Promise<FinishResult>;
  /** Units by day, held and used. */
  days(): Promise<Record<string, [held: number, used: number]>>;
};

async function customer(spec: OfferingSpec, key: { unitsMax?: number; timeZone?: string } = {}): Promise<Customer> {
  const person = await world.addCustomer();
  const testKey = await world.addKey(person);
  await world.sql`
    update keys set daily_units_max = ${key.unitsMax ?? null}, time_zone = ${key.timeZone ?? "UTC"}
    where id = ${testKey.keyId}`;
  const packageId = await world.givePackage(person, spec);
  return {
    accountId: person.accountId,
    packageId,
    async ask(from = replica) {
      const row = requestFor(person, testKey);
      const [result] = (await from.reserve([row])) as [ReserveResult];
      return { ...result, hold: from.holdOf(row, result) };
    },
    async settle(hold) {
      const usage = usageOf({ promptTokens: 1, completionTokens: 1 });
      const [result] = await replica.finish([settlementOf(hold, usage, { strict: false, reason: "complete" })]);
      return result as FinishResult;
    },
    async release(hold) {
      const [result] = await replica.finish([releaseOf(hold, "provider_failed")]);
      return result as FinishResult;
    },
    async days() {
      const rows = await world.sql`
        select d.day::text, coalesce(sum(e.units), 0)::int as held, (units_taken - coalesce(sum(e.units), 0))::int as used
        from package_days d left join escrows e on e.package_id = d.package_id and e.day = d.day
        where d.package_id = ${packageId} group by d.day, units_taken order by d.day`;
      return Object.fromEntries(rows.map(({ day, held, used }) => [day, [held, used]]));
    },
  };
}

/** The number of granted requests of `times`, and the code of the others. */
async function codes({ ask }: Customer, times: number): Promise<Record<string, number>> {
  const all: string[] = [];
  for (let i = 0; i < times; i++) all.push((await ask()).code ?? "granted");
  return tally(all);
}

/** Uses up the day. Returns `resetsAt` of the refusal. */
async function resetOf(one: Customer): Promise<string | null> {
  await one.ask();
  const { code, resetsAt } = await one.ask();
  expect(code).toMatch(/^(daily|carryover)_quota_exceeded$/);
  return resetsAt;
}

async function endOf({ packageId }: Customer): Promise<string> {
  const [row] = await world.sql`select ends_at from packages where id = ${packageId}`;
  return row?.ends_at.toISOString();
}

// One day is used up, and the next begins at midnight of its zone, not a millisecond earlier.
test.each([
  ["Europe/Berlin", "a day of 23 hours", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00.000Z"],
  ["Europe/Berlin", "a day of 25 hours", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00.000Z"],
  ["Australia/Lord_Howe", "a day of 24 and a half hours", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00.000Z"],
  ["America/Santiago", "the day begins at 01:00", "2026-09-05T12:00:00Z", "2026-09-06T04:00:00.000Z"],
  ["Africa/Cairo", "the day begins at 01:00", "2026-04-23T12:00:00Z", "2026-04-23T22:00:00.000Z"],
  ["Asia/Beirut", "the day begins at 01:00", "2026-03-28T12:00:00Z", "2026-03-28T22:00:00.000Z"],
  ["America/Havana", "the day begins at 01:00", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00.000Z"],
  ["America/Nuuk", "a day without its last hour", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00.000Z"],
  ["America/Nuuk", "23:00 stands twice", "2026-10-24T12:00:00Z", "2026-10-25T02:00:00.000Z"],
  ["America/Santiago", "23:00 stands twice", "2026-04-04T12:00:00Z", "2026-04-05T04:00:00.000Z"],
  ["America/Havana", "midnight stands twice: the first counts", "2026-10-31T12:00:00Z", "2026-11-01T04:00:00.000Z"],
  ["Atlantic/Azores", "midnight stands twice: the first counts", "2026-10-24T12:00:00Z", "2026-10-25T00:00:00.000Z"],
  ["Asia/Kathmandu", "a quarter past the hour of UTC", "2026-06-01T12:00:00Z", "2026-06-01T18:15:00.000Z"],
  ["Pacific/Chatham", "a quarter past the hour of UTC", "2026-06-01T06:00:00Z", "2026-06-01T11:15:00.000Z"],
  ["Asia/Kolkata", "half past the hour of UTC", "2026-06-01T12:00:00Z", "2026-06-01T18:30:00.000Z"],
  ["Pacific/Kiritimati", "fourteen hours ahead", "2026-06-01T12:00:00Z", "2026-06-02T10:00:00.000Z"],
  ["Pacific/Pago_Pago", "eleven hours behind", "2026-06-01T12:00:00Z", "2026-06-02T11:00:00.000Z"],
])("%s, %s", async (timeZone, _, from, resetsAt) => {
  await clock(from);
  const one = await customer({ dailyLimit: 1, days: 5, timeZone });
  expect(await resetOf(one)).toBe(resetsAt);
  await clock(Date.parse(resetsAt) - 1);
  expect((await one.ask()).code).toBe("daily_quota_exceeded");
  await clock(resetsAt);
  expect(await codes(one, 2)).toEqual({ granted: 1, daily_quota_exceeded: 1 });
});

test("a midnight that occurs twice begins one day, and an hour that occurs twice belongs to one day", async () => {
  await clock("2026-11-01T04:30:00Z"); // 00:30 in Havana, the first time
  const havana = await customer({ dailyLimit: 1, days: 3, timeZone: "America/Havana" });
  expect(await resetOf(havana)).toBe("2026-11-02T05:00:00.000Z");
  await clock("2026-11-01T05:30:00Z"); // 00:30, the second time
  expect((await havana.ask()).code).toBe("daily_quota_exceeded");

  await clock("2026-10-25T00:30:00Z");
  const berlin = await customer({ dailyLimit: 2, days: 3, timeZone: "Europe/Berlin" });
  await berlin.ask();
  await clock("2026-10-25T01:30:00Z");
  expect(await codes(berlin, 2)).toEqual({ granted: 1, daily_quota_exceeded: 1 });
  expect(await berlin.days()).toEqual({ "2026-10-25": [2, 0] });
});

test("the day that Samoa skipped: the next day begins at that instant, and days are counted by date", async () => {
  await clock("2011-12-29T22:00:00Z"); // noon of the 29th
  await world.sql`select make_receipt_months(1)`;
  const daily = await customer({ dailyLimit: 1, days: 5, timeZone: "Pacific/Apia" });
  const saved = await customer({ dailyLimit: 1, days: 5, carryover: true, timeZone: "Pacific/Apia" });
  expect(await resetOf(daily)).toBe("2011-12-30T10:00:00.000Z");
  await clock("2011-12-30T10:00:00Z"); // midnight of the 31st
  expect(await codes(daily, 2)).toEqual({ granted: 1, daily_quota_exceeded: 1 });
  expect(await daily.days()).toEqual({ "2011-12-29": [1, 0], "2011-12-31": [1, 0] });
  // The 29th, the 30th and the 31st have begun by the calendar's count.
  expect(await codes(saved, 4)).toEqual({ granted: 3, carryover_quota_exceeded: 1 });
  expect(await endOf(daily)).toBe("2012-01-02T22:00:00.000Z");
});

test("a request across midnight counts on the day of its reservation, whatever its end, also in days of 23 and 25 hours", async () => {
  for (const [before, after, day, next] of [
    ["2026-10-25T22:59:59.999Z", "2026-10-25T23:00:00Z", "2026-10-25", "2026-10-26"],
    ["2026-03-28T22:59:59.999Z", "2026-03-28T23:00:00Z", "2026-03-28", "2026-03-29"],
  ] as const) {
    await clock(before);
    const one = await customer({ dailyLimit: 3, days: 4, timeZone: "Europe/Berlin" });
    const dead = await openSqlReplica(world);
    const [settled, released, reaped] = [await one.ask(), await one.ask(), await one.ask(dead)];
    await clock(after);
    expect((await one.settle(settled.hold)).outcome).toBe("settled");
    expect((await one.release(released.hold)).outcome).toBe("released");
    expect(await one.days()).toEqual({ [day]: [1, 1] });
    // The new day has all its units: units that yesterday's requests return belong to yesterday.
    expect(await codes(one, 4)).toEqual({ granted: 3, daily_quota_exceeded: 1 });
    await reapLease(world, dead.leaseId);
    expect(await one.days()).toEqual({ [day]: [0, 1], [next]: [3, 0] });
    expect(await one.settle(reaped.hold)).toMatchObject({ outcome: "settled", units: 1 });
    expect(await one.days()).toEqual({ [day]: [0, 2], [next]: [3, 0] });
  }
});

test("carryover: a unit released after midnight can be used on the new day", async () => {
  await clock("2026-10-25T22:59:00Z");
  const one = await customer({ dailyLimit: 1, days: 3, carryover: true, timeZone: "Europe/Berlin" });
  const { hold } = await one.ask();
  await clock("2026-10-25T23:00:00Z");
  await one.release(hold);
  expect(await codes(one, 3)).toEqual({ granted: 2, carryover_quota_exceeded: 1 });
  expect(await one.days()).toEqual({ "2026-10-25": [0, 0], "2026-10-26": [2, 0] });
});

test("carryover adds the daily limit each calendar day, of any length, until all its days have begun", async () => {
  for (const from of ["2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"]) {
    await clock(from);
    const one = await customer({ dailyLimit: 2, days: 3, carryover: true, timeZone: "Europe/Berlin" });
    expect(await codes(one, 3)).toEqual({ granted: 2, carryover_quota_exceeded: 1 });
    const { resetsAt } = await one.ask();
    await clock(Date.parse(String(resetsAt)) - 1);
    expect((await one.ask()).code).toBe("carryover_quota_exceeded");
    await clock(String(resetsAt));
    expect(await codes(one, 3)).toEqual({ granted: 2, carryover_quota_exceeded: 1 });
    // The package's last day. The package is still active at its end, on a fourth date.
    await clock(nextDayMs("Europe/Berlin", nowMs));
    expect(await codes(one, 2)).toEqual({ granted: 2 });
    expect(await one.ask()).toMatchObject({ code: "carryover_quota_exceeded", limit: 6, used: 6, resetsAt: null });
    await clock(nextDayMs("Europe/Berlin", nowMs));
    expect((await one.ask()).code).toBe("carryover_quota_exceeded");
  }
});

test("a package ends at the same local time days later, through skipped and repeated hours", async () => {
  for (const [from, days, timeZone, ends] of [
    ["2026-03-28T12:00:00Z", 1, "Europe/Berlin", "2026-03-29T11:00:00.000Z"],
    ["2026-10-24T12:00:00Z", 1, "Europe/Berlin", "2026-10-25T13:00:00.000Z"],
    // 02:30 of the 29th is skipped: 03:30 summer time.
    ["2026-03-28T01:30:00Z", 1, "Europe/Berlin", "2026-03-29T01:30:00.000Z"],
    // 02:30 of the 25th occurs twice: the second.
    ["2026-10-24T00:30:00Z", 1, "Europe/Berlin", "2026-10-25T01:30:00.000Z"],
    ["2026-09-05T04:30:00Z", 1, "America/Santiago", "2026-09-06T04:30:00.000Z"],
    ["2026-03-28T12:00:00Z", 30, "Asia/Beirut", "2026-04-27T11:00:00.000Z"],
  ] as const) {
    await clock(from);
    const one = await customer({ dailyLimit: 5, days, timeZone });
    expect(await endOf(one)).toBe(ends);
    await clock(Date.parse(ends) - 1);
    const last = await one.ask();
    expect(last.code).toBeNull();
    await clock(ends);
    expect((await one.ask()).code).toBe("package_expired");
    expect((await one.settle(last.hold)).outcome).toBe("settled");
  }
});

test("a package that ends during a request is charged for it, and the next package is not", async () => {
  await clock("2026-10-24T12:00:00Z");
  const one = await customer({ dailyLimit: 3, days: 1, timeZone: "Europe/Berlin" });
  const [person, offering] = [{ accountId: one.accountId }, await world.addOffering({ dailyLimit: 3, days: 2 })];
  const { packageId: nextId } = await world.assign(person, offering, "after");
  const dead = await openSqlReplica(world);
  const [stream, broken, lost] = [await one.ask(), await one.ask(), await one.ask(dead)];
  await clock(await endOf(one));
  expect((await one.settle(stream.hold)).outcome).toBe("settled");
  expect((await one.release(broken.hold)).outcome).toBe("released");
  await reapLease(world, dead.leaseId);
  expect(await one.settle(lost.hold)).toMatchObject({ outcome: "settled", units: 1 });
  // The queued package started at that instant, and has all its units.
  expect(await codes(one, 4)).toEqual({ granted: 3, daily_quota_exceeded: 1 });
  const rows = await world.sql`
    select id::int, units_taken - package_drawn(packages) as used, package_drawn(packages) as held from packages where account_id = ${one.accountId} order by id`;
  expect(rows.map((row) => ({ ...row }))).toEqual([
    { id: one.packageId, used: 2, held: 0 },
    { id: nextId, used: 0, held: 3 },
  ]);
});

test("a key's limits reset at midnight in the key's time zone, the quota in the package's", async () => {
  await clock("2026-10-24T12:00:00Z");
  const one = await customer(
    { dailyLimit: 5, days: 5, timeZone: "Pacific/Kiritimati" },
    { unitsMax: 1, timeZone: "Atlantic/Azores" },
  );
  await one.ask();
  expect(await one.ask()).toMatchObject({ code: "key_request_limit_exceeded", resetsAt: "2026-10-25T00:00:00.000Z" });
  await clock("2026-10-24T23:59:59.999Z");
  expect((await one.ask()).code).toBe("key_request_limit_exceeded");
  await clock("2026-10-25T00:00:00Z");
  expect(await codes(one, 2)).toEqual({ granted: 1, key_request_limit_exceeded: 1 });
  await clock("2026-10-25T00:30:00Z"); // 23:30 has passed; 00:30, the first time
  expect((await one.ask()).resetsAt).toBe("2026-10-26T01:00:00.000Z");
});

/** A moment of the year; two in three within a day and a half of a change of the zone's clocks, if there is one. */
const moment = fc.record({
  zone: fc.nat(10_000),
  atMs: fc.integer({ min: 0, max: (YEAR_DAYS - 35) * DAY_MS }),
  change: fc.option(fc.nat(3), { freq: 3 }),
  beforeMs: fc.integer({ min: 0, max: 36 * HOUR_MS }),
  days: fc.integer({ min: 1, max: 5 }),
  carryover: fc.boolean(),
});

const changes = new Map<string, number[]>();

/** The days of the year in which a zone's clocks are changed. */
function changesOf(timeZone: string): number[] {
  let known = changes.get(timeZone);
  if (known === undefined) {
    const offset = (atMs: number) => wallMs(timeZone, atMs) - atMs;
    const days = Array.from({ length: YEAR_DAYS - 35 }, (_, i) => YEAR_FROM_MS + i * DAY_MS);
    known = days.filter((atMs) => offset(atMs) !== offset(atMs + DAY_MS)).map((atMs) => atMs + DAY_MS);
    changes.set(timeZone, known);
  }
  return known;
}

test(
  "in every zone, at any moment: a reset is exact to the instant, and a package ends by the calendar",
  async () => {
    expect(Intl.supportedValuesOf("timeZone").length - zones.length).toBeLessThanOrEqual(STALE_ZONES_MAX);
    const met = new Set<string>();
    let runs = 0;
    const property = fc.asyncProperty(moment, async ({ zone, atMs, change, beforeMs, days, carryover }) => {
      runs++;
      const timeZone = zones[zone % zones.length] as string;
      met.add(timeZone);
      const near = changesOf(timeZone);
      const changeMs = change === null || near.length === 0 ? undefined : near[change % near.length];
      const fromMs = changeMs === undefined ? YEAR_FROM_MS + atMs : changeMs - beforeMs;
      await clock(fromMs);
      const one = await customer({ dailyLimit: 1, totalLimit: days + 1, days, carryover, timeZone });
      const endsAtMs = daysLaterMs(timeZone, fromMs, days);
      expect([timeZone, toIso(fromMs), await endOf(one)]).toEqual([timeZone, toIso(fromMs), toIso(endsAtMs)]);

      const midnightMs = nextDayMs(timeZone, fromMs);
      const more = midnightMs < endsAtMs && !(carryover && days === 1);
      const resetsAt = await resetOf(one);
      expect([timeZone, toIso(fromMs), resetsAt]).toEqual([timeZone, toIso(fromMs), more ? toIso(midnightMs) : null]);
      if (resetsAt === null) return;
      await clock(midnightMs - 1);
      expect((await one.ask()).code).not.toBeNull();
      await clock(midnightMs);
      expect((await one.ask()).code).toBeNull();
      expect(Object.keys(await one.days())).toEqual([fromMs, midnightMs].map((ms) => dateIn(timeZone, ms)));
    });
    await holds(property, {
      numRuns: RUNS,
      interruptAfterTimeLimit: SEARCH_MS_MAX,
      markInterruptAsFailure: true,
    });
    console.log(`time zones: ${runs} moments in ${met.size} zones`);
  },
  TEST_TIMEOUT_MS,
);

test("the books balance after all of this, and nothing is drawn when the leases have ended", async () => {
  expect(await world.unbalanced()).toEqual([]);
  await reapLease(world, replica.leaseId);
  expect(await world.sql`select lease_id from escrows`).toHaveLength(0);
  expect(await world.unbalanced()).toEqual([]);
});
