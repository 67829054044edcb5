import { afterAll, beforeAll, expect, test } from "bun:test";
import { openHostLookup } from "../../src/accounts/host_lookup.ts";
import { checkDomain, isHostName, ownHosts } from "../../src/accounts/host_names.ts";
import { addHost, findHost, listHosts, setHostStatus } from "../../src/accounts/hosts_store.ts";
import { activateAccount, suspendAccount } from "../../src/accounts/people_store.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

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

test("the service's own hosts are those of its addresses, without ports, and the local ones where allowed", () => {
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
])("no domain of a reseller: %p (%s)", (domain, why) => {
  expect(() => checkDomain(domain, OWN)).toThrow(why);
});

test("a Host header of any spelling is no reason to fail", () => {
  for (const host of ["", ".", "a".repeat(10_000), "a.b\0", "💥.example.com", "a b.example.com"])
    expect(isHostName(host)).toBe(false);
});

test("a domain is added once, by a reseller, and waits for its check", async () => {
  const [one, two] = [await world.addReseller(), await world.addReseller()];
  const customer = await world.addCustomer();
  const added = await addHost(world.deps, { host: "ai.one.example", resellerId: one.accountId });
  expect(added).toMatchObject({ host: "ai.one.example", resellerId: one.accountId, status: "pending" });
  await expect(addHost(world.deps, { host: "ai.one.example", resellerId: two.accountId })).rejects.toThrow(
    "added before",
  );
  await expect(addHost(world.deps, { host: "ai.two.example", resellerId: customer.accountId })).rejects.toThrow(
    "no such reseller",
  );
  await expect(addHost(world.deps, { host: "api.tollgate.example", resellerId: one.accountId })).rejects.toThrow(
    "belongs to the service",
  );
  expect(await listHosts(world.deps, { resellerId: one.accountId })).toEqual([added]);
  expect(await findHost(world.deps, { host: "ai.one.example", resellerId: two.accountId })).toBeUndefined();
});

test("only an active domain of an active reseller is known; every change shows at once", async () => {
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

test("suspending a domain waits for the tenant's batches", async () => {
  const reseller = await world.addReseller();
  await addHost(world.deps, { host: "ai.locked.example", resellerId: reseller.accountId, status: "active" });
  const lock = `select pg_advisory_xact_lock_shared(-${reseller.accountId})`;
  await world.whileLocked(lock, () => setHostStatus(world.deps, { host: "ai.locked.example", status: "suspended" }));
  await expect(setHostStatus(world.deps, { host: "ai.absent.example", status: "active" })).rejects.toThrow(
    "no such domain",
  );
});

test("a reseller has at most 50 domains, however many are added at once", async () => {
  const reseller = await world.addReseller();
  const added = await Promise.allSettled(
    Array.from({ length: 60 }, (_, i) =>
      addHost(world.deps, { host: `ai${i}.many.example`, resellerId: reseller.accountId }),
    ),
  );
  expect(added.filter(({ status }) => status === "fulfilled")).toHaveLength(50);
});
