import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { drawn } from "../ledger/ledger_world.ts";
import { sleep, until } from "../platform/own_redis.ts";
import {
  type Buyer,
  behave,
  behaveHeld,
  booksAtRest,
  callsOf,
  flowing,
  HELD_USAGE,
  openCall,
  receiptsOf,
} from "./fault_shop.ts";
import { type MovedReplica, startMovedReplica } from "./moved_replica.ts";

/**
 * The database's clock decides: a replica's own clock changes no grant, no expiry, no day and no lease. Source: QUO-2,
 * REL-2.
 */
const LEASE_SECONDS = 3;
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ env: { LEASE_SECONDS: String(LEASE_SECONDS) } });
});
afterAll(async () => {
  try {
    await shop.world.setClock(null);
    await booksAtRest(shop);
  } finally {
    await shop.close();
  }
});

const startMoved = (aheadMs: number, env: Record<string, string> = {}) =>
  startMovedReplica(shop, aheadMs, { LEASE_SECONDS: String(LEASE_SECONDS), ...env });

describe("two replicas with clocks ten minutes ahead and ten minutes behind", () => {
  let ahead: MovedReplica;
  let behind: MovedReplica;
  beforeAll(async () => {
    [ahead, behind] = await Promise.all([startMoved(10 * MINUTE_MS), startMoved(-10 * MINUTE_MS)]);
  });
  afterAll(() => Promise.all([ahead.kill(), behind.kill()]));
  const both = () => [ahead, behind];

  test.concurrent("serve their requests, and write the database's time and day", async () => {
    const customer = await shop.customer({ dailyLimit: 2 });
    const [before] = await shop.world.sql`select clock_timestamp()::text as now`;
    for (const { origin } of both()) expect((await shop.chat(customer.secret, {}, { origin })).status).toBe(200);
    // The day is used up on both, whatever their clocks say.
    for (const { origin } of both())
      expectRefusal(await shop.chat(customer.secret, {}, { origin }), "daily_quota_exceeded");
    const [after] = await shop.world.sql`select clock_timestamp()::text as now`;
    const receipts = await receiptsOf(shop, customer.accountId);
    expect(receipts).toHaveLength(2);
    for (const { createdAt, finishedAt, day } of receipts) {
      expect(Date.parse(createdAt)).toBeGreaterThanOrEqual(Date.parse(before?.now));
      expect(Date.parse(finishedAt)).toBeLessThanOrEqual(Date.parse(after?.now));
      expect([before?.now.slice(0, 10), after?.now.slice(0, 10)]).toContain(day);
    }
    // Their ids have their own clocks' times, far apart, and both are accepted.
    const times = receipts.map(({ requestId }) => Number.parseInt(requestId.replaceAll("-", "").slice(0, 12), 16));
    expect(Math.abs((times[0] ?? 0) - (times[1] ?? 0))).toBeGreaterThan(19 * MINUTE_MS);
  });

  test.concurrent("end a package when the database says so: not ten minutes early, not ten minutes late", async () => {
    const [open, over] = [await shop.customer(), await shop.customer()];
    const endIn = (accountId: number, minutes: number) =>
      shop.world.sql`
        update packages set ends_at = clock_timestamp() + make_interval(mins => ${minutes}),
          starts_at = clock_timestamp() - interval '1 hour' where account_id = ${accountId}`;
    await endIn(open.accountId, 5);
    await endIn(over.accountId, -5);
    for (const { origin } of both()) {
      expect((await shop.chat(open.secret, {}, { origin })).status).toBe(200);
      expectRefusal(await shop.chat(over.secret, {}, { origin }), "package_expired");
    }
  });

  test.concurrent("give no metered answer to a key that has expired by the database's clock, even on the replica that lags behind", async () => {
    const { origin } = behind;
    // A key that lives as long as this machine needs to serve it once.
    const served = async (seconds: number): Promise<Buyer> => {
      const [row] = await shop.world.sql`select (clock_timestamp() + make_interval(secs => ${seconds}))::text as at`;
      const made = await shop.customer({}, { expiresAt: String(row?.at) });
      if ((await shop.chat(made.secret, {}, { origin })).status !== 200) return served(seconds * 2);
      await until(async () => {
        const [now] = await shop.world
          .sql`select clock_timestamp() > ${String(row?.at)}::text::timestamptz as "isOver"`;
        return now?.isOver === true;
      });
      return made;
    };
    const customer = await served(4);
    const mark = behave(shop, {});
    for (const stream of [false, true])
      expectRefusal(await shop.chat(customer.secret, { stream, ...mark }, { origin }), "invalid_api_key");
    expect(callsOf(shop, mark)).toBe(0);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 1, holds: 0, released: 0 });
  });

  test.concurrent("give no answer to an expired key from units that another key of its account has drawn ahead", async () => {
    const customer = await shop.customer();
    const expired = await shop.world.addKey(customer, { expiresAt: new Date(Date.now() - MINUTE_MS).toISOString() });
    const { origin } = behind;
    await until(async () => {
      expect((await shop.chat(customer.secret, {}, { origin })).status).toBe(200);
      return (await drawn(shop.world, customer.accountId)).idle_units > 0;
    });
    expectRefusal(await shop.chat(expired.secret, {}, { origin }), "invalid_api_key");
  });

  // Alone and last: it moves the clocks for all.
  test("measure leases by monotonic clocks: streams longer than a lease continue, even if the wall clock jumps by hours", async () => {
    const customer = await shop.customer();
    const { mark, open } = behaveHeld(shop, { tokens: 10, usage: HELD_USAGE });
    const calls = both().map(({ origin }) => openCall(origin, customer.secret, { stream: true, ...mark }));
    await flowing(calls);
    ahead.moveTo(5 * HOUR_MS);
    behind.moveTo(-5 * HOUR_MS);
    await sleep((LEASE_SECONDS + 1) * 1000);
    open();
    await Promise.all(calls.map(({ ended }) => ended));
    for (const call of calls) expect(call.got()).toEndWith("data: [DONE]\n\n");
    const receipts = await receiptsOf(shop, customer.accountId);
    expect(receipts).toHaveLength(2);
    for (const { outcome, reason, livedSeconds } of receipts) {
      expect({ outcome, reason }).toEqual({ outcome: "settled", reason: "complete" });
      expect(livedSeconds).toBeGreaterThan(LEASE_SECONDS);
    }
  });
});

for (const [what, aheadMs] of [
  ["two hours ahead", 2 * HOUR_MS],
  ["two hours behind", -2 * HOUR_MS],
] as const) {
  test.concurrent(`answer 503 on a replica that is ${what}, and log it; nothing is dispatched or charged`, async () => {
    const replica = await startMoved(aheadMs);
    try {
      const customer = await shop.customer();
      const mark = behave(shop, { tokens: 5 });
      for (const stream of [false, true]) {
        const answer = await shop.chat(customer.secret, { stream, ...mark }, { origin: replica.origin });
        expectRefusal(answer, "service_unavailable");
      }
      expect(callsOf(shop, mark)).toBe(0);
      expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 0, released: 0, holds: 0, units: 0 });
      const said = () =>
        replica
          .logged()
          .split("\n")
          .find((text) => text.includes("clock_skew"));
      await until(() => said() !== undefined);
      const line = said();
      expect(line).toContain('"level":"error"');
      expect(line).toContain("this machine's clock differs from the database's by more than an hour");
      // Replicas with correct clocks continue to serve.
      expect((await shop.chat(customer.secret)).status).toBe(200);
    } finally {
      await replica.kill();
    }
  });
}

/** The database's clock moves on while a stream is open. In rising order: a replica's request ids never go back. */
type Passing = { name: string; zone: string; from: string; to: string; day: string; next: string };
const PASSINGS: Passing[] = [
  {
    name: "midnight, UTC",
    zone: "UTC",
    from: "2031-02-28T23:59:50Z",
    to: "2031-03-01T00:00:10Z",
    day: "2031-02-28",
    next: "2031-03-01",
  },
  {
    name: "midnight, far from UTC",
    zone: "Pacific/Auckland",
    from: "2031-03-10T10:59:50Z",
    to: "2031-03-10T11:00:10Z",
    day: "2031-03-10",
    next: "2031-03-11",
  },
  {
    name: "the hour that is left out in spring: the same day",
    zone: "Europe/Berlin",
    from: "2031-03-30T00:59:50Z",
    to: "2031-03-30T01:00:10Z",
    day: "2031-03-30",
    next: "2031-03-30",
  },
  {
    name: "midnight after the day of 23 hours",
    zone: "Europe/Berlin",
    from: "2031-03-30T21:59:50Z",
    to: "2031-03-30T22:00:10Z",
    day: "2031-03-30",
    next: "2031-03-31",
  },
  {
    name: "the hour that comes twice in autumn: the same day",
    zone: "Europe/Berlin",
    from: "2031-10-26T00:59:50Z",
    to: "2031-10-26T01:00:10Z",
    day: "2031-10-26",
    next: "2031-10-26",
  },
  {
    name: "midnight after the day of 25 hours",
    zone: "Europe/Berlin",
    from: "2031-10-26T22:59:50Z",
    to: "2031-10-26T23:00:10Z",
    day: "2031-10-26",
    next: "2031-10-27",
  },
];

describe("the database's clock moves on while a stream is open", () => {
  let replica: MovedReplica;
  beforeAll(async () => {
    replica = await startMoved(0, { LEASE_SECONDS: "600" });
  });
  afterAll(() => replica.kill());

  /** Sets the database's clock, and the replica's with it. */
  async function setClocks(at: string): Promise<void> {
    await shop.world.setClock(at);
    replica.moveTo(Date.parse(at) - Date.now());
    await shop.world.sql`select make_receipt_months(1)`;
  }

  /** A stream that has begun before the clock moves, and ends after. */
  async function streamOver(secret: string, to: string): Promise<void> {
    const { mark, open } = behaveHeld(shop, { tokens: 10, usage: HELD_USAGE });
    const call = openCall(replica.origin, secret, { stream: true, ...mark });
    await flowing([call]);
    await setClocks(to);
    open();
    await call.ended;
    expect(call.got()).toEndWith("data: [DONE]\n\n");
  }

  for (const { name, zone, from, to, day, next } of PASSINGS) {
    test(`${name}: the stream settles on the day of its reservation`, async () => {
      await setClocks(from);
      const customer = await shop.customer({ dailyLimit: 1, days: 5, timeZone: zone });
      await streamOver(customer.secret, to);
      expect(await receiptsOf(shop, customer.accountId)).toMatchObject([
        { outcome: "settled", reason: "complete", units: 1, day },
      ]);
      const another = await shop.chat(customer.secret, {}, { origin: replica.origin });
      if (next === day) {
        expectRefusal(another, "daily_quota_exceeded");
      } else {
        expect(another.status).toBe(200);
        expect((await receiptsOf(shop, customer.accountId)).at(-1)).toMatchObject({ units: 1, day: next });
      }
      const days = await shop.world.sql`
        select day::text, d.units_taken, package_drawn(p) as held from package_days d join packages p on p.id = d.package_id
        where p.account_id = ${customer.accountId} order by day`;
      const used = [...new Set([day, next])].map((one) => ({ day: one, units_taken: 1, held: 0 }));
      expect([...days] as unknown).toEqual(used);
    });
  }

  test("the package ends: the stream settles on that package; later requests are refused", async () => {
    await setClocks("2031-11-05T12:00:00Z");
    const customer = await shop.customer({ dailyLimit: 5, days: 1 });
    await setClocks("2031-11-06T11:59:50Z");
    await streamOver(customer.secret, "2031-11-06T12:00:10Z");
    expect(await receiptsOf(shop, customer.accountId)).toMatchObject([
      { outcome: "settled", reason: "complete", units: 1, day: "2031-11-06" },
    ]);
    const { origin } = replica;
    expectRefusal(await shop.chat(customer.secret, {}, { origin }), "package_expired");
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
  });
});
