import { afterAll, beforeAll, expect, test } from "bun:test";
import { INVARIANTS } from "../../src/books/invariants.ts";
import { troublesOf } from "../../src/ledger/replica_health.ts";
import type { Replica } from "../../src/ledger/replicas_store.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until as untilWithin } from "../platform/own_redis.ts";
import { RUNTIME } from "../replica.ts";
import { givePassword, type PanelSession, signInTo } from "./panel_client.ts";
import { BEHIND_MS_MAX, databaseMs } from "./stored.ts";

/** The admin's books, replicas and overview. Source: PAN-10, REL-8. */

const NAMES = INVARIANTS.map(({ name }) => String(name));
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

let shop: Shop;
let admin: PanelSession;

beforeAll(async () => {
  shop = await openShop({ env: { LEASE_SECONDS: "2" } });
  admin = await signInTo(shop, await shop.world.addAdmin());
});
afterAll(() => shop.close());

const books = async () => (await admin.get("/admin/books")).json;

const until = (isSo: () => Promise<boolean>) => untilWithin(isSo, BEHIND_MS_MAX);

test("there is no result before the first check; a check names each invariant in words, with the number of rows that break it", async () => {
  await shop.world.sql`delete from book_checks`;
  expect(await books()).toMatchObject({ last: null, history: [] });
  const { running, check } = (await admin.post("/admin/books/check")).json;
  expect(running).toBe(false);
  expect(check).toEqual({
    checkedAt: expect.stringMatching(INSTANT),
    tookMs: expect.any(Number),
    results: INVARIANTS.map(({ name, says }) => ({ name, says, rows: 0 })),
  });
  for (const { says } of check.results) expect(says).toMatch(/^[A-Z].{20,}\.$/);
  const view = await books();
  expect(view.last).toEqual(check);
  expect(view.history).toEqual([{ checkedAt: check.checkedAt, tookMs: check.tookMs, broken: 0, uncounted: 0 }]);
});

test("the books show open holds, the oldest one's age, losses of 30 days, waiting spools and the reaper's last run", async () => {
  const { secret } = await shop.customer();
  const calls = shop.provider.callCount();
  const { held, open } = shop.provider.gate();
  shop.provider.next(held);
  const askedMs = await databaseMs(shop);
  const asking = shop.chat(secret);
  await shop.provider.waitForCalls(calls + 1);
  // As of the replica's last heartbeat.
  await until(async () => (await books()).holds.oldestAgeMs >= 300);
  const during = await books();
  expect(during.holds.alive).toBe(1);
  expect(during.holds.oldestAgeMs).toBeLessThanOrEqual((await databaseMs(shop)) - askedMs);
  expect(during).toMatchObject({ spoolsWaiting: 0, lossesNanoUsd: "0" });
  open();
  expect((await asking).status).toBe(200);
  await until(async () => (await books()).reapedAt !== null);
  await until(async () => (await books()).holds.alive === 0);
  const after = await books();
  expect(after.holds).toEqual({ alive: 0, oldestAgeMs: null });
  expect(after.reapedAt).toMatch(INSTANT);

  // The state after a request that cost more than its hold.
  const { secret: other } = await shop.customer();
  for (let i = 0; i < 2; i++) await shop.chat(other);
  await shop.world
    .sql`update receipts set shortfall_nano_usd = 9007199254740993 where request_id = (select request_id from receipts order by request_id desc limit 1)`;
  expect((await books()).lossesNanoUsd).toBe("9007199254740993");
  await shop.world.sql`update receipts set shortfall_nano_usd = 0`;
});

test("a broken invariant is counted, and its rows are shown as text, numbers beyond a double included", async () => {
  const person = await shop.world.addCustomer();
  await shop.world.sql`
    insert into balance_entries (account_id, amount_nano_usd, kind) values (${person.accountId}, -9007199254740993, 'correction')`;
  const { check } = (await admin.post("/admin/books/check")).json;
  expect(check.results.filter(({ rows }: { rows: number }) => rows !== 0)).toMatchObject([
    { name: "inv_balance_entries", rows: 1 },
  ]);
  expect((await books()).history[0]).toMatchObject({ broken: 1, uncounted: 0 });
  expect((await admin.get("/admin/overview")).json.books).toMatchObject({ broken: 1, uncounted: 0 });
  expect((await admin.get("/admin/books/inv_balance_entries/rows")).json).toEqual({
    name: "inv_balance_entries",
    says: "A balance equals the sum of its transactions.",
    rows: [{ account_id: String(person.accountId), balance_nano_usd: "0", entries: "-9007199254740993" }],
    hasMore: false,
  });

  const second = await shop.world.addCustomer();
  await shop.world
    .sql`insert into balance_entries (account_id, amount_nano_usd, kind) values (${second.accountId}, 1, 'correction')`;
  const limited = (await admin.get("/admin/books/inv_balance_entries/rows?limit=1")).json;
  expect(limited.rows).toHaveLength(1);
  expect(limited.hasMore).toBe(true);
  await shop.world.sql`delete from balance_entries where account_id in (${person.accountId}, ${second.accountId})`;
});

test("rows are shown for every invariant; 404 for any other name, 422 for a wrong limit", async () => {
  for (const name of NAMES) expect((await admin.get(`/admin/books/${name}/rows`)).json.rows).toEqual([]);
  for (const name of [
    "accounts",
    "inv_nothing",
    "INV_BOUNDS",
    "inv_bounds;select 1",
    "pg_user",
    "%00",
    "x".repeat(100),
  ])
    expectRefusal(await admin.get(`/admin/books/${encodeURIComponent(name)}/rows`), "not_found");
  for (const limit of ["0", "-1", "101", "x", "1.5"])
    expectRefusal(await admin.get(`/admin/books/inv_bounds/rows?limit=${limit}`), "validation_failed", {
      param: "limit",
    });
});

test("concurrent checks run as one check, over all replicas", async () => {
  const other = await shop.start();
  try {
    const there = await signInTo(shop, await shop.world.addAdmin(), { origin: other.origin });
    const [before] = await shop.world.sql`select count(*)::int as n from book_checks`;
    const waiting = async () => {
      const [row] = await shop.world.sql`
        select count(*)::int as n from pg_stat_activity where datname = current_database()
          and state like 'idle in transaction%' and query like '%pg_try_advisory_xact_lock%tollgate.books_check%'`;
      return Number(row?.n);
    };
    const sessions = [admin, admin, there, there];
    // Keeps the check waiting until all have asked.
    const asked = await shop.world.sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtextextended('tollgate.books_check', 0))`;
      const answers = sessions.map((session) => session.post("/admin/books/check"));
      await until(async () => (await waiting()) >= 2);
      // A replica that has answered a later request has read the earlier ones.
      for (const session of sessions) expect((await session.get("/me")).status).toBe(200);
      return { answers };
    });
    const checks = (await Promise.all(asked.answers)).map(({ json }) => json.check.checkedAt);
    const [after] = await shop.world.sql`select count(*)::int as n from book_checks`;
    // The first to get the lock stores a result; the other replica returns that one.
    expect(new Set(checks).size).toBe(1);
    expect(Number(after?.n)).toBe(Number(before?.n) + 1);
  } finally {
    await other.kill();
  }
});

test("the list of replicas has version, load, ledger latency, reaper, bus and runtime", async () => {
  const { secret } = await shop.customer();
  await shop.chat(secret);
  type Seen = { status: { ledgerP99Ms: number | null; inFlight: number } };
  const find = async () =>
    (await admin.get("/admin/replicas")).json.replicas.find(
      ({ status }: Seen) => status.ledgerP99Ms !== null && status.inFlight === 0,
    );
  await until(async () => (await find()) !== undefined);
  const found = await find();
  const { version } = (await import("../../package.json")).default;
  expect(found).toEqual({
    id: expect.any(String),
    version,
    startedAt: expect.stringMatching(INSTANT),
    seenAt: expect.stringMatching(INSTANT),
    ageMs: expect.any(Number),
    status: {
      holds: 0,
      oldestHoldMs: null,
      queued: 0,
      spoolEmpty: true,
      inFlight: 0,
      ledgerP99Ms: expect.any(Number),
      reapedAt: expect.stringMatching(INSTANT),
      draining: false,
      busHealthy: true,
      databaseUp: true,
      runtime: RUNTIME,
      routes: expect.any(Array),
    },
  });
  expect(found.ageMs).toBeLessThanOrEqual((await databaseMs(shop)) - Date.parse(found.seenAt) + 1);
});

test("a replica that drains leaves the list; a killed replica stays, its age grows, and the overview counts it as not healthy", async () => {
  const list = async () => (await admin.get("/admin/replicas")).json.replicas as Replica[];
  const known = new Set((await list()).map(({ id }) => id));
  const added = async () => (await list()).find(({ id }) => !known.has(id));
  const drained = await shop.start();
  await until(async () => (await added()) !== undefined);
  expect(await drained.stop()).toBe(0);
  expect(await added()).toBeUndefined();

  const killed = await shop.start();
  await until(async () => (await added()) !== undefined);
  await killed.kill();
  await until(async () => ((await added())?.ageMs ?? 0) > 1000);
  const isSilent = (one: Replica) => troublesOf(one).includes("silent");
  await until(async () => (await list()).some(isSilent));
  await until(async () => {
    const [all, { replicas }] = [await list(), (await admin.get("/admin/overview")).json];
    const unwell = all.filter((one) => troublesOf(one).length > 0).length;
    return replicas.all === all.length && replicas.unwell === unwell && unwell > 0;
  });
});

/** Payments with disputes: two whose bank waits for an answer, and others. */
async function addDisputes(accountId: number, sellerId: number): Promise<void> {
  const { sql } = shop.world;
  for (const [status, canAnswer] of [
    ["needs_response", true],
    ["warning_needs_response", true],
    ["needs_response", false],
    ["under_review", true],
    ["won", true],
    ["lost", true],
  ] as const) {
    const [order] = await sql`
      insert into orders (account_id, seller_id, kind, amount_nano_usd, price_nano_usd, status, decided_at)
      values (${accountId}, ${sellerId}, 'top_up', 5, 5, 'declined', now()) returning id`;
    const name = `${sellerId}-${order?.id}`;
    const [payment] = await sql`
      insert into payments (order_id, account_id, seller_id, method, external_id, currency, amount_nano, problem)
      values (${Number(order?.id)}, ${accountId}, ${sellerId}, 'stripe', ${`pi_${name}`}, 'usd', 5, 'order_closed') returning id`;
    await sql`
      insert into disputes (payment_id, order_id, account_id, seller_id, external_id, currency, amount_nano, reason, status, due_at, asked_at)
      values (${Number(payment?.id)}, ${Number(order?.id)}, ${accountId}, ${sellerId}, ${`du_${name}`}, 'usd', 5, 'fraudulent', ${status},
        ${canAnswer ? "2031-01-01" : null}, now())`;
  }
}

test("the overview counts requests of 24 hours, accounts, open orders and failing domains", async () => {
  const overview = async () => (await admin.get("/admin/overview")).json;
  const before = await overview();
  const { accountId, secret } = await shop.customer();
  await shop.chat(secret);
  shop.provider.next({ status: 500 });
  await shop.chat(secret);
  // An account with a password is active, one without is invited.
  await givePassword(shop, { accountId });
  const suspended = await shop.world.addCustomer();
  await shop.world.sql`update accounts set status = 'suspended' where id = ${suspended.accountId}`;
  await shop.world.sql`insert into orders (account_id, kind, amount_nano_usd) values (${accountId}, 'top_up', 5)`;
  await shop.world
    .sql`insert into orders (account_id, kind, amount_nano_usd, method) values (${accountId}, 'top_up', 5, 'instructions')`;
  await addDisputes(accountId, 0);
  const reseller = await shop.world.addReseller();
  // A reseller's orders are not counted for admins.
  const theirs = await shop.world.addCustomer(reseller.accountId);
  await addDisputes(theirs.accountId, reseller.accountId);
  await shop.world
    .sql`insert into orders (account_id, kind, amount_nano_usd) values (${theirs.accountId}, 'top_up', 5)`;
  for (const [host, status, failures] of [
    ["a.fails.test", "failed", 3],
    ["b.wobbles.test", "active", 1],
    ["c.well.test", "active", 0],
    ["d.waits.test", "pending", 2],
  ] as const)
    await shop.world.sql`
      insert into hosts (host, reseller_id, status, failures) values (${host}, ${reseller.accountId}, ${status}, ${failures})`;
  expect(await overview()).toEqual({
    accountsActive: before.accountsActive + 1,
    accountsInvited: before.accountsInvited + 2,
    accountsSuspended: before.accountsSuspended + 1,
    ordersOpen: before.ordersOpen + 2,
    ordersByHand: before.ordersByHand + 1,
    disputesToAnswer: before.disputesToAnswer + 2,
    domains: before.domains + 4,
    domainsLive: before.domainsLive + 2,
    domainsFailing: before.domainsFailing + 2,
    // The state of a route follows when its sums are written: the request that failed may count already.
    providers: {
      failing: expect.any(Array),
      degraded: expect.any(Number),
      answering: expect.any(Number),
      untested: expect.any(Number),
    },
    replicas: { all: expect.any(Number), unwell: expect.any(Number) },
    requests: { settled: before.requests.settled + 1, released: before.requests.released + 1 },
    books: { checkedAt: expect.stringMatching(INSTANT), broken: 0, uncounted: 0 },
  });
});

test("every figure of the overview equals the length of the list that it links to", async () => {
  const { json } = await admin.get("/admin/overview");
  const count = async (path: string, rows: string) => (await admin.get(path)).json[rows].length;
  expect(await count("/people?state=active&limit=200", "people")).toBe(json.accountsActive);
  expect(await count("/people?state=invited&limit=200", "people")).toBe(json.accountsInvited);
  expect(await count("/people?state=suspended&limit=200", "people")).toBe(json.accountsSuspended);
  expect(await count("/orders/incoming?status=open&limit=100", "orders")).toBe(json.ordersOpen);
  expect(await count("/payments?show=to_answer", "payments")).toBe(json.disputesToAnswer);
  expect(await count("/admin/domains?status=failing&limit=200", "domains")).toBe(json.domainsFailing);
  const start = new Date(Date.now() - 86_400_000).toISOString();
  const requests = async (kind: string) => count(`/requests?outcome=${kind}&start=${start}&limit=100`, "rows");
  expect(await requests("charged")).toBe(json.requests.settled);
  expect(await requests("released")).toBe(json.requests.released);
  // No list is empty, so that each comparison proves something.
  for (const figure of [
    json.accountsActive,
    json.accountsInvited,
    json.ordersOpen,
    json.disputesToAnswer,
    json.requests.released,
  ])
    expect(figure).toBeGreaterThan(0);
});

test("figures that take too long are null, and the pages are still served", async () => {
  await shop.world.sql.begin(async (tx) => {
    await tx`lock table receipts in access exclusive mode`;
    // The table stays locked until both are answered.
    const [overview, view] = await Promise.all([admin.get("/admin/overview"), admin.get("/admin/books")]);
    expect([overview.status, overview.json.requests]).toEqual([200, null]);
    expect([view.status, view.json.lossesNanoUsd]).toEqual([200, null]);
    expect(view.json.last.results).toHaveLength(NAMES.length);
  });
});

test("the books balance at the end", async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
});
