import { afterAll, beforeAll, expect, test } from "bun:test";
import { INVARIANTS } from "../../src/books/invariants.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { givePassword, type PanelSession, signInTo } from "./panel_client.ts";

/**
 * The admin's books, replicas and landing page. Source: PAN-10, REL-8.
 */

const SLOW_MS = 60_000;
const NAMES = INVARIANTS.map(({ name }) => String(name));
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

let shop: Shop;
let admin: PanelSession;

beforeAll(async () => {
  shop = await openShop({ env: { LEASE_SECONDS: "2" } });
  admin = await signInTo(shop, await shop.world.addAdmin());
}, SLOW_MS);
afterAll(() => shop.close(), SLOW_MS);

const books = async () => (await admin.get("/admin/books")).json;

async function until(isSo: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new Error("waited 10 s in vain");
    await Bun.sleep(100);
  }
}

test("the admin's pages are not there for customers and resellers, nor for strangers", async () => {
  const doors = [
    ["get", "/admin/overview"],
    ["get", "/admin/replicas"],
    ["get", "/admin/books"],
    ["post", "/admin/books/check"],
    ["get", "/admin/books/inv_bounds/rows"],
  ] as const;
  for (const person of [await shop.world.addCustomer(), await shop.world.addReseller()]) {
    const session = await signInTo(shop, person);
    for (const [method, path] of doors) expectRefusal(await session[method](path), "not_found");
  }
  for (const [method, path] of doors) {
    const body = method === "post" ? { body: {} } : {};
    expectRefusal(await shop.call(`/api/panel${path}`, { host: admin.host, ...body }), "session_required");
  }
  const headers = { cookie: admin.cookie, origin: `http://${admin.host}` };
  const forged = await shop.call("/api/panel/admin/books/check", {
    host: admin.host,
    method: "POST",
    body: {},
    headers,
  });
  expectRefusal(forged, "csrf_failed");
});

test("before the first check the books say so; a check now says each invariant in words, and how many rows break it", async () => {
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

test("holds alive and the age of the oldest, losses of 30 days, waiting spools, and the reaper's last run", async () => {
  const { secret } = await shop.customer();
  shop.provider.next({ delayMs: 2500 });
  const calls = shop.provider.callCount();
  const asking = shop.chat(secret);
  await shop.provider.waitForCalls(calls + 1);
  await Bun.sleep(300);
  const during = await books();
  expect(during.holds.alive).toBe(1);
  expect(during.holds.oldestAgeMs).toBeGreaterThanOrEqual(300);
  expect(during.holds.oldestAgeMs).toBeLessThan(2500);
  expect(during).toMatchObject({ spoolsWaiting: 0, lossesNanoUsd: "0" });
  await asking;
  await until(async () => (await books()).reapedAt !== null);
  const after = await books();
  expect(after.holds).toEqual({ alive: 0, oldestAgeMs: null });
  expect(after.reapedAt).toMatch(INSTANT);

  // As a provider's overrun leaves it; one of two months ago does not count.
  const { secret: other } = await shop.customer();
  for (let i = 0; i < 2; i++) await shop.chat(other);
  await shop.world
    .sql`update receipts set shortfall_nano_usd = 9007199254740993 where request_id = (select request_id from receipts order by request_id desc limit 1)`;
  expect((await books()).lossesNanoUsd).toBe("9007199254740993");
  await shop.world.sql`update receipts set shortfall_nano_usd = 0`;
});

test("a broken invariant is counted and its rows are shown as text, also what no double could carry", async () => {
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

test("the rows of every invariant can be asked for, and of nothing else", async () => {
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

test("checks asked for at the same time are one check, over all replicas", async () => {
  const other = await shop.start();
  try {
    const there = await signInTo(shop, await shop.world.addAdmin(), { origin: other.origin });
    const [before] = await shop.world.sql`select count(*)::int as n from book_checks`;
    // Held open until all have asked.
    const locked = shop.world.sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtextextended('tollgate.books_check', 0))`;
      await Bun.sleep(1000);
    });
    const asked = [admin, admin, there, there].map((session) => session.post("/admin/books/check"));
    await locked;
    const checks = (await Promise.all(asked)).map(({ json }) => json.check.checkedAt);
    const [after] = await shop.world.sql`select count(*)::int as n from book_checks`;
    // The first to get the lock stores one; the other replica takes that for its answer.
    expect(new Set(checks).size).toBe(1);
    expect(Number(after?.n)).toBe(Number(before?.n) + 1);
  } finally {
    await other.kill();
  }
});

test("replicas say how they are: version, load, latency of the ledger, reaper, bus and runtime", async () => {
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
      queued: 0,
      spoolEmpty: true,
      inFlight: 0,
      ledgerP99Ms: expect.any(Number),
      reapedAt: expect.stringMatching(INSTANT),
      draining: false,
      busHealthy: true,
      databaseUp: true,
      runtime: "bun",
    },
  });
  expect(found.ageMs).toBeLessThan(5000);
});

test("a replica that drains is shown as draining and then is gone; one that is killed stays, growing old", async () => {
  const ids = async () => (await admin.get("/admin/replicas")).json.replicas as { id: string; ageMs: number }[];
  const known = new Set((await ids()).map(({ id }) => id));
  const added = async () => (await ids()).find(({ id }) => !known.has(id));
  const drained = await shop.start();
  await until(async () => (await added()) !== undefined);
  expect(await drained.stop()).toBe(0);
  expect(await added()).toBeUndefined();

  const killed = await shop.start();
  await until(async () => (await added()) !== undefined);
  await killed.kill();
  await Bun.sleep(1500);
  expect((await added())?.ageMs).toBeGreaterThan(1000);
});

test("the landing page counts requests of 24 hours, accounts, open orders and failing domains", async () => {
  const overview = async () => (await admin.get("/admin/overview")).json;
  const before = await overview();
  const { accountId, secret } = await shop.customer();
  await shop.chat(secret);
  shop.provider.next({ status: 500 });
  await shop.chat(secret);
  // Only who has set a password is active; the others have an invitation. The suspended one could be either.
  await givePassword(shop, { accountId });
  const suspended = await shop.world.addCustomer();
  await shop.world.sql`update accounts set status = 'suspended' where id = ${suspended.accountId}`;
  await shop.world.sql`insert into orders (account_id, kind, amount_nano_usd) values (${accountId}, 'top_up', 5)`;
  const reseller = await shop.world.addReseller();
  // Its reseller answers this one, not an admin.
  const theirs = await shop.world.addCustomer(reseller.accountId);
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
    ordersOpen: before.ordersOpen + 1,
    domainsFailing: before.domainsFailing + 2,
    requests: { settled: before.requests.settled + 1, released: before.requests.released + 1 },
    providersFailing: [],
    books: { checkedAt: expect.stringMatching(INSTANT), broken: 0, uncounted: 0 },
  });
});

test("every figure of the landing page is the length of the list that it leads to", async () => {
  const { json } = await admin.get("/admin/overview");
  const count = async (path: string, rows: string) => (await admin.get(path)).json[rows].length;
  expect(await count("/people?state=active&limit=200", "people")).toBe(json.accountsActive);
  expect(await count("/people?state=invited&limit=200", "people")).toBe(json.accountsInvited);
  expect(await count("/people?state=suspended&limit=200", "people")).toBe(json.accountsSuspended);
  expect(await count("/orders/incoming?status=open&limit=100", "orders")).toBe(json.ordersOpen);
  expect(await count("/admin/domains?status=failing&limit=200", "domains")).toBe(json.domainsFailing);
  const start = new Date(Date.now() - 86_400_000).toISOString();
  const requests = async (kind: string) => count(`/admin/requests?kind=${kind}&start=${start}&limit=200`, "rows");
  expect(await requests("charged")).toBe(json.requests.settled);
  expect(await requests("released")).toBe(json.requests.released);
  // None of them is empty here, so that each of these says something.
  for (const figure of [json.accountsActive, json.accountsInvited, json.ordersOpen, json.requests.released])
    expect(figure).toBeGreaterThan(0);
});

test("figures that take too long are left out, and the pages answer all the same", async () => {
  await shop.world.sql.begin(async (tx) => {
    await tx`lock table receipts in access exclusive mode`;
    const startMs = performance.now();
    const [overview, view] = await Promise.all([admin.get("/admin/overview"), admin.get("/admin/books")]);
    expect(performance.now() - startMs).toBeLessThan(4000);
    expect([overview.status, overview.json.requests]).toEqual([200, null]);
    expect([view.status, view.json.lossesNanoUsd]).toEqual([200, null]);
    expect(view.json.last.results).toHaveLength(NAMES.length);
  });
});

test("the books balance after all of this", async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
});
