import { afterAll, beforeAll, expect, test } from "bun:test";
import { activateAccount, suspendAccount } from "../../src/accounts/accounts_store.ts";
import { startCheck, startDueChecks } from "../../src/accounts/domain_checks_store.ts";
import { openHostLookup } from "../../src/accounts/host_lookup.ts";
import { checkDomain, isHostName, labelOf, ownHosts } from "../../src/accounts/host_names.ts";
import { addHost, findHost, listHosts, removeHost, setHostStatus } from "../../src/accounts/hosts_store.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

/** Source: KEY-1, DOM-1, DOM-3. */

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

const OWN = ownHosts({
  baseUrl: "https://api.tollgate.example/v1",
  aliasUrl: "https://tollgate.test/v1",
  panelUrl: "https://panel.tollgate.example:8443",
  allowLocalHosts: true,
});

test("the service's own hosts are those of its URLs, without ports, and local ones where allowed", () => {
  expect([...OWN].sort()).toEqual([
    "127.0.0.1",
    "api.tollgate.example",
    "localhost",
    "panel.tollgate.example",
    "tollgate.test",
  ]);
});

test("a reseller's domain is a lowercase subdomain in ASCII", () => {
  for (const domain of [
    "ai.acme.com",
    "a.b.c.d.example",
    "ai.acme.co.uk",
    "xn--mnchen-3ya.example.com",
    "api.tollgate.example.com",
    "mytollgate.test.com",
    "1a-b.acme.com",
    `${"x".repeat(63)}.acme.com`,
  ]) {
    expect(checkDomain(` ${domain} `, OWN)).toBe(domain);
  }
});

test.each([
  ["AI.acme.com", "lower case"],
  ["acme.com", "subdomain"],
  ["acme.co.uk", "subdomain"],
  ["münchen.example.com", "ASCII"],
  ["ai.acme.com\u200b", "ASCII"],
  ["localhost", "not a domain name"],
  ["", "not a domain name"],
  ["192.168.0.1", "not a domain name"],
  ["0x7f.0.0.1", "not a domain name"],
  ["ai.acme.1", "not a domain name"],
  ["[::1]", "not a domain name"],
  ["ai.acme.com.", "not a domain name"],
  ["ai..acme.com", "not a domain name"],
  ["-ai.acme.com", "not a domain name"],
  ["ai_x.acme.com", "not a domain name"],
  ["*.acme.com", "not a domain name"],
  ["ai.acme.com:443", "not a domain name"],
  ["https://ai.acme.com", "not a domain name"],
  ["xn--a.acme.com", "not a domain name"],
  [`${"x".repeat(64)}.acme.com`, "not a domain name"],
  [`${"x.".repeat(126)}ab.com`, "not a domain name"],
  ["api.tollgate.example", "belongs to the service"],
  ["x.panel.tollgate.example", "belongs to the service"],
  ["x.y.tollgate.test", "belongs to the service"],
  // A wildcard record of the operator's zone would verify these for any reseller.
  ["login.tollgate.example", "belongs to the service"],
  ["ai.acme.localhost", "belongs to the service"],
  [`${"x".repeat(60)}.${"y".repeat(60)}.${"z".repeat(60)}.${"w".repeat(55)}.com`, "at most 240"],
  ["ai.acme.com\nai.other.com", "ASCII"],
  ["ai.acme.com\0", "ASCII"],
  ["аi.acme.com", "ASCII"],
  ["ai。acme。com", "ASCII"],
  ["ai.acme.com/", "not a domain name"],
  ["ai.acme.com?x", "not a domain name"],
  ["ai acme.com", "not a domain name"],
  ["user@ai.acme.com", "not a domain name"],
  ["ai%2eacme.com", "not a domain name"],
  ["2130706433", "not a domain name"],
  ["com", "not a domain name"],
  ["co.uk", "subdomain"],
])("no domain of a reseller: %p (%s)", (domain, why) => {
  expect(() => checkDomain(domain, OWN)).toThrow(why);
});

test("a domain that the operator adds may be in its own zone, but not be a host of the service", () => {
  for (const domain of ["login.tollgate.example", "x.panel.tollgate.example"])
    expect(checkDomain(domain, OWN, true)).toBe(domain);
  expect(() => checkDomain("api.tollgate.example", OWN, true)).toThrow("belongs to the service");
});

test("the name of a record relative to its zone", () => {
  const labels = ["ai.acme.com", "_verify.ai.acme.com", "a.b.acme.co.uk", "_verify.ai.acme.com.au", "x.y.acme.dev"];
  expect(labels.map(labelOf)).toEqual(["ai", "_verify.ai", "a.b", "_verify.ai", "x.y"]);
});

test("no Host header causes an internal error", () => {
  for (const host of ["", ".", "a".repeat(10_000), "a.b\0", "💥.example.com", "a b.example.com"])
    expect(isHostName(host)).toBe(false);
});

test("a reseller adds a domain once, and it waits for its check; several resellers may claim a name", async () => {
  const [one, two] = [await world.addReseller(), await world.addReseller()];
  const customer = await world.addCustomer();
  const added = await addHost(world.deps, { host: "ai.one.example", resellerId: one.accountId });
  expect(added).toMatchObject({
    host: "ai.one.example",
    resellerId: one.accountId,
    status: "pending",
    contested: false,
    nextCheckAt: null,
    activatedAt: null,
    report: null,
  });
  expect(added.token).toMatch(/^[0-9a-f]{32}$/);
  await expect(addHost(world.deps, { host: "ai.one.example", resellerId: one.accountId })).rejects.toThrow(
    "added before",
  );
  const claim = await addHost(world.deps, { host: "ai.one.example", resellerId: two.accountId });
  expect(claim).toMatchObject({ status: "pending", contested: true });
  expect(claim.token).not.toBe(added.token);
  expect(await findHost(world.deps, { host: "ai.one.example" })).toBeUndefined();
  expect(await findHost(world.deps, { host: "ai.one.example", resellerId: one.accountId })).toMatchObject({
    contested: true,
  });
  expect(await removeHost(world.deps, claim, false)).toBe(true);
  await expect(addHost(world.deps, { host: "ai.two.example", resellerId: customer.accountId })).rejects.toThrow(
    "no such reseller",
  );
  await expect(addHost(world.deps, { host: "api.tollgate.example", resellerId: one.accountId })).rejects.toThrow(
    "belongs to the service",
  );
  expect(await listHosts(world.deps, { resellerId: one.accountId })).toEqual([added]);
  expect(await findHost(world.deps, { host: "ai.one.example", resellerId: two.accountId })).toBeUndefined();
  expect(await findHost(world.deps, { host: "ai.one.example" })).toEqual(added);
});

test("a name is contested by open claims and by former owners, not by former claims", async () => {
  const [one, two] = [await world.addReseller(), await world.addReseller()];
  const host = "ai.contested.example";
  const [mine, theirs] = [one, two].map(({ accountId }) => ({ host, resellerId: accountId })) as [Ref, Ref];
  const isContested = async () => (await findHost(world.deps, mine))?.contested;
  await addHost(world.deps, mine);
  for (const status of ["pending", "verifying", "failed", "active", "suspended"]) {
    await world.sql`delete from hosts where host = ${host} and reseller_id = ${two.accountId}`;
    await world.sql`insert into hosts (host, reseller_id, status) values (${host}, ${two.accountId}, ${status})`;
    expect([status, await isContested()]).toEqual([status, true]);
  }
  await removeHost(world.deps, theirs, true);
  expect(await isContested()).toBe(false);
  await addHost(world.deps, { ...theirs, status: "active" });
  await removeHost(world.deps, theirs, true);
  expect(await isContested()).toBe(true);
});
type Ref = { host: string; resellerId: number };

test("the owner need not prove a name that others claim, also after it was off; after another owner it must", async () => {
  const [one, two] = [await world.addReseller(), await world.addReseller()];
  const host = "ai.owner.example";
  const [mine, theirs] = [one, two].map(({ accountId }) => ({ host, resellerId: accountId })) as [Ref, Ref];
  await addHost(world.deps, { ...mine, status: "active" });
  await addHost(world.deps, theirs);
  expect(await findHost(world.deps, mine)).toMatchObject({ status: "active", contested: false });
  expect(await setHostStatus(world.deps, { ...mine, status: "suspended" })).toMatchObject({ contested: false });
  await setHostStatus(world.deps, { ...theirs, status: "active" });
  expect(await findHost(world.deps, mine)).toMatchObject({ status: "suspended", contested: true });
  await removeHost(world.deps, theirs, true);
  expect(await findHost(world.deps, mine)).toMatchObject({ contested: true });
});

test("a removed domain is not served; its row is kept; added again it has a new token", async () => {
  const { accountId: resellerId } = await world.addReseller();
  const ref = { host: "ai.again.example", resellerId };
  const first = await addHost(world.deps, { ...ref, status: "active" });
  await removeHost(world.deps, ref, false);
  expect(await findHost(world.deps, ref)).toBeUndefined();
  expect(await removeHost(world.deps, ref, false)).toBe(false);
  await expect(setHostStatus(world.deps, { ...ref, status: "active" })).rejects.toThrow("no such domain");
  const [kept] = await world.sql`select status, activated_at from hosts where host = ${ref.host}`;
  expect(kept).toMatchObject({ status: "removed", activated_at: expect.anything() });
  const again = await addHost(world.deps, ref);
  expect(again).toMatchObject({ status: "pending", contested: false, checkedAt: null, nextCheckAt: null, failures: 0 });
  expect(again.token).not.toBe(first.token);
});

test("set by hand: no check is scheduled, another reseller's active domain cannot be taken, and only an admin removes a domain that was switched off", async () => {
  const [one, two] = [await world.addReseller(), await world.addReseller()];
  const host = "ai.byhand.example";
  const mine = { host, resellerId: one.accountId };
  expect(await addHost(world.deps, { ...mine, status: "active" })).toMatchObject({ byHand: true, nextCheckAt: null });
  await expect(addHost(world.deps, { host, resellerId: two.accountId, status: "active" })).rejects.toThrow(
    "Another reseller has this domain active",
  );
  expect(await listHosts(world.deps, { resellerId: two.accountId })).toEqual([]);
  await setHostStatus(world.deps, { host, status: "suspended" });
  expect(await startDueChecks(world.deps, 10)).toEqual([]);
  expect(await startCheck(world.deps, mine)).toMatchObject({ isDue: false, plannedAt: null });
  expect(await findHost(world.deps, mine)).toMatchObject({ status: "suspended", byHand: true, nextCheckAt: null });
  await expect(removeHost(world.deps, mine, false)).rejects.toThrow("Only an admin");
  expect(await removeHost(world.deps, mine, true)).toBe(true);
});

test("a new owner of a name ends others' sessions on it, and all earlier proofs", async () => {
  const [one, two] = [await world.addReseller(), await world.addReseller()];
  const [customer, stranger] = [await world.addCustomer(one.accountId), await world.addCustomer(two.accountId)];
  const host = "ai.sessions.example";
  await addHost(world.deps, { host, resellerId: two.accountId, status: "active" });
  const before = await setHostStatus(world.deps, { host, status: "suspended" });
  for (const { accountId } of [one, two, customer, stranger])
    await world.sql`insert into sessions (digest, account_id, host, csrf_token, expires_at)
      values (${Buffer.from(`${host}${accountId}`)}, ${accountId}, ${host}, 'c', now() + interval '1 day')`;
  await addHost(world.deps, { host, resellerId: one.accountId, status: "active" });
  const left = await world.sql`select account_id from sessions where host = ${host}`;
  expect(left.map((row) => Number(row.account_id)).sort()).toEqual([one.accountId, customer.accountId].sort());
  const after = await findHost(world.deps, { host, resellerId: two.accountId });
  expect(after?.token).not.toBe(before.token);
});

test("only an active domain of an active reseller is found; every change is seen immediately", async () => {
  const reseller = await world.addReseller();
  const host = "ai.lookup.example";
  const lookup = openHostLookup({ ...world.deps, nowMs: () => performance.now() });
  expect(lookup.isOwn("api.tollgate.example")).toBe(true);
  expect(lookup.isOwn(host)).toBe(false);
  expect(await lookup.get(host)).toBeUndefined();
  await addHost(world.deps, { host, resellerId: reseller.accountId });
  expect(await lookup.get(host)).toBeUndefined();
  await setHostStatus(world.deps, { host, status: "active" });
  expect(await lookup.get(host)).toMatchObject({ resellerId: reseller.accountId });
  await suspendAccount(world.deps, reseller.accountId);
  expect(await lookup.get(host)).toBeUndefined();
  await activateAccount(world.deps, reseller.accountId);
  expect(await lookup.get(host)).toMatchObject({ resellerId: reseller.accountId });
  expect(lookup.peek(host)).toMatchObject({ resellerId: reseller.accountId });
  await setHostStatus(world.deps, { host, status: "suspended" });
  expect(await lookup.get(host)).toBeUndefined();
  expect(lookup.peek(host)).toBeNull();
});

test("2,000 unknown names are read in a few statements, and a domain among them is found", async () => {
  const reseller = await world.addReseller();
  await addHost(world.deps, { host: "ai.among.example", resellerId: reseller.accountId, status: "active" });
  const { db } = world.deps;
  let reads = 0;
  const orm = new Proxy(db.orm, {
    get(target, name) {
      if (name === "select") reads++;
      return Reflect.get(target, name);
    },
  });
  const counted = { sql: db.sql, orm, reset: db.reset, underWay: db.underWay, close: db.close };
  const lookup = openHostLookup({ ...world.deps, db: counted, nowMs: () => performance.now() });
  const names = Array.from({ length: 2_000 }, (_, i) => `x${i}.stranger.example`);
  names[1_000] = "ai.among.example";
  const found = await Promise.all(names.map((name) => lookup.get(name)));
  expect(found.filter((host) => host !== undefined)).toMatchObject([{ resellerId: reseller.accountId }]);
  expect(reads).toBeLessThanOrEqual(Math.ceil(2_000 / 256) + 1);
  // From memory.
  expect(names.map((name) => lookup.peek(name)).filter((host) => host === null)).toHaveLength(1_999);
});

test("suspending a domain waits for the tenant's ledger batches", async () => {
  const reseller = await world.addReseller();
  await addHost(world.deps, { host: "ai.locked.example", resellerId: reseller.accountId, status: "active" });
  const lock = `select pg_advisory_xact_lock_shared(-${reseller.accountId})`;
  await world.whileLocked(lock, () => setHostStatus(world.deps, { host: "ai.locked.example", status: "suspended" }));
  await addHost(world.deps, { host: "ai.removed.example", resellerId: reseller.accountId, status: "active" });
  const ref = { host: "ai.removed.example", resellerId: reseller.accountId };
  await world.whileLocked(lock, () => removeHost(world.deps, ref, false));
  await expect(setHostStatus(world.deps, { host: "ai.absent.example", status: "active" })).rejects.toThrow(
    "no such domain",
  );
});

test("a reseller has at most 50 domains, also when more are added concurrently", async () => {
  const reseller = await world.addReseller();
  const added = await Promise.allSettled(
    Array.from({ length: 60 }, (_, i) =>
      addHost(world.deps, { host: `ai${i}.many.example`, resellerId: reseller.accountId }),
    ),
  );
  expect(added.filter(({ status }) => status === "fulfilled")).toHaveLength(50);
  const [first] = await listHosts(world.deps, { resellerId: reseller.accountId });
  expect(first && (await removeHost(world.deps, first, false))).toBe(true);
  const one = { host: "ai.room.example", resellerId: reseller.accountId };
  expect((await addHost(world.deps, one)).status).toBe("pending");
  await world.sql`insert into hosts (host, reseller_id, status)
    select 'old' || i || '.many.example', ${reseller.accountId}, 'removed' from generate_series(1, 1000) i`;
  await removeHost(world.deps, one, false);
  await expect(addHost(world.deps, one)).rejects.toThrow("Too many domains have been added and removed");
});
