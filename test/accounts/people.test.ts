import { afterAll, beforeAll, expect, test } from "bun:test";
import { openKeyLookup } from "../../src/accounts/key_lookup.ts";
import { createKey } from "../../src/accounts/keys_store.ts";
import { hashPassword, verifyPassword } from "../../src/accounts/passwords.ts";
import {
  activateAccount,
  addAccount,
  findAccount,
  findAccountsByEmail,
  findSignIn,
  listAccounts,
  type NewAccount,
  setPassword,
  suspendAccount,
} from "../../src/accounts/people_store.ts";
import { openSessions } from "../../src/accounts/sessions.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

const add = (wanted: Partial<NewAccount> & { email: string }) =>
  addAccount(world.deps, { role: "customer", name: "Somebody", resellerId: null, passwordHash: null, ...wanted });

test("an e-mail address is trimmed and stored in lower case; the account has an empty balance", async () => {
  const account = await add({ email: "  Ann@Example.COM " });
  expect(account).toMatchObject({
    email: "ann@example.com",
    role: "customer",
    status: "active",
    balanceNanoUsd: 0n,
    heldNanoUsd: 0n,
    paygEnabled: false,
  });
  expect(account.hasPassword).toBe(false);
});

test("an e-mail address is unique within a tenant, and free in another", async () => {
  const [one, two] = [
    await add({ email: "one@resellers.example", role: "reseller" }),
    await add({ email: "two@resellers.example", role: "reseller" }),
  ];
  await add({ email: "bob@example.com", resellerId: one.accountId });
  await add({ email: "bob@example.com", resellerId: two.accountId });
  await add({ email: "bob@example.com" });
  await expect(add({ email: "BOB@example.com", resellerId: one.accountId })).rejects.toThrow("already in use");
  expect(await findAccountsByEmail(world.deps, "Bob@Example.com")).toHaveLength(3);
});

test("twenty at once with one address: one account", async () => {
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => add({ email: "race@example.com" })));
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
});

test("a customer cannot have its reseller's address: both sign in on one host", async () => {
  const reseller = await add({ email: "boss@resellers.example", role: "reseller" });
  await expect(add({ email: "boss@resellers.example", resellerId: reseller.accountId })).rejects.toThrow(
    "already in use",
  );
});

test("only a customer belongs to a reseller, and only to a reseller", async () => {
  const customer = await add({ email: "c@example.com" });
  await expect(add({ email: "d@example.com", resellerId: customer.accountId })).rejects.toThrow("no such reseller");
  await expect(add({ email: "e@example.com", resellerId: 999_999 })).rejects.toThrow("no such reseller");
  const reseller = await add({ email: "f@example.com", role: "reseller" });
  await expect(add({ email: "g@example.com", role: "reseller", resellerId: reseller.accountId })).rejects.toThrow(
    "Only a customer",
  );
});

test("what is no address and no name is refused", async () => {
  for (const email of [
    "",
    "nobody",
    "a b@example.com",
    "a@b@c",
    "nul\0@example.com",
    `${"x".repeat(250)}@example.com`,
  ]) {
    await expect(add({ email })).rejects.toThrow("not an e-mail address");
  }
  for (const name of ["  ", "x".repeat(101), "two\nlines"])
    await expect(add({ email: "h@example.com", name })).rejects.toThrow("name");
});

test("a list is paged by id and stays within a tenant", async () => {
  const reseller = await add({ email: "pages@resellers.example", role: "reseller" });
  for (let i = 0; i < 5; i++) await add({ email: `page${i}@example.com`, resellerId: reseller.accountId });
  const first = await listAccounts(world.deps, { resellerId: reseller.accountId, limit: 3 });
  expect(first.rows.map(({ email }) => email)).toEqual(["page4@example.com", "page3@example.com", "page2@example.com"]);
  expect(first.hasMore).toBe(true);
  const second = await listAccounts(world.deps, {
    resellerId: reseller.accountId,
    limit: 3,
    before: first.rows.at(-1)?.accountId ?? 0,
  });
  expect(second.rows.map(({ email }) => email)).toEqual(["page1@example.com", "page0@example.com"]);
  expect(second.hasMore).toBe(false);
});

test("another tenant's account reads the same as an absent one", async () => {
  const [mine, other] = [
    await add({ email: "mine@r.example", role: "reseller" }),
    await add({ email: "other@r.example", role: "reseller" }),
  ];
  const customer = await add({ email: "theirs@example.com", resellerId: other.accountId });
  expect(await findAccount(world.deps, customer.accountId, mine.accountId)).toBeUndefined();
  expect(await findAccount(world.deps, customer.accountId, other.accountId)).toMatchObject({
    email: "theirs@example.com",
  });
  for (const id of [0, -1, 1.5, Number.NaN, 2 ** 60]) expect(await findAccount(world.deps, id)).toBeUndefined();
});

test("sign-in: a reseller's host knows that reseller and its customers, the service's own host everybody else", async () => {
  const reseller = await add({ email: "signin@r.example", role: "reseller" });
  const customer = await add({ email: "signin@example.com", resellerId: reseller.accountId });
  const direct = await add({ email: "signin@example.com" });
  const admin = await add({ email: "admin@example.com", role: "admin" });
  const on = async (email: string, resellerId: number | null) =>
    (await findSignIn(world.deps, { email, resellerId }))?.accountId;
  expect(await on(" SignIn@Example.com ", reseller.accountId)).toBe(customer.accountId);
  expect(await on("signin@example.com", null)).toBe(direct.accountId);
  expect(await on("signin@r.example", reseller.accountId)).toBe(reseller.accountId);
  expect(await on("signin@r.example", null)).toBe(reseller.accountId);
  expect(await on("admin@example.com", null)).toBe(admin.accountId);
  expect(await on("admin@example.com", reseller.accountId)).toBeUndefined();
});

test("a suspended reseller suspends the sign-in of its customers", async () => {
  const reseller = await add({ email: "closing@r.example", role: "reseller" });
  await add({ email: "left@example.com", resellerId: reseller.accountId });
  const suspended = async () =>
    (await findSignIn(world.deps, { email: "left@example.com", resellerId: reseller.accountId }))?.suspended;
  expect(await suspended()).toBe(false);
  await suspendAccount(world.deps, reseller.accountId);
  expect(await suspended()).toBe(true);
  await activateAccount(world.deps, reseller.accountId);
  expect(await suspended()).toBe(false);
});

test("a suspension waits for the batch that holds the account's lock", async () => {
  const { accountId } = await add({ email: "locked@example.com" });
  await world.whileLocked(`select lock_accounts(array[${accountId}]::bigint[])`, () =>
    suspendAccount(world.deps, accountId),
  );
});

test("a reseller's suspension waits for batches of its customers, and shows in their cached keys at once", async () => {
  const reseller = await add({ email: "tenant@r.example", role: "reseller" });
  const customer = await add({ email: "tenant@example.com", resellerId: reseller.accountId });
  const { secret } = await createKey(world.deps, {
    accountId: customer.accountId,
    name: "k",
    mode: "package",
    modelIds: null,
    hosts: null,
    expiresAt: null,
  });
  const lookup = openKeyLookup({ ...world.deps, nowMs: () => performance.now() });
  expect(await lookup.find(secret)).toMatchObject({ tenantId: reseller.accountId, tenantStatus: "active" });
  await world.whileLocked(`select pg_advisory_xact_lock_shared(-${reseller.accountId})`, () =>
    suspendAccount(world.deps, reseller.accountId),
  );
  expect(await lookup.find(secret)).toMatchObject({ tenantStatus: "suspended", accountStatus: "active" });
});

test("a new password ends every session but the one it was set in", async () => {
  const { accountId } = await add({ email: "secret@example.com", passwordHash: await hashPassword("an old password") });
  const sessions = openSessions({ ...world.deps, nowMs: () => performance.now() });
  const [here, elsewhere] = [
    await sessions.begin({ accountId, host: "localhost" }),
    await sessions.begin({ accountId, host: "localhost" }),
  ];
  const mine = await sessions.find(here.token, "localhost");
  await sessions.find(elsewhere.token, "localhost");
  await setPassword(world.deps, {
    accountId,
    passwordHash: await hashPassword("a new password"),
    keepSession: Buffer.from(mine?.digestHex ?? "", "hex"),
  });
  expect(await sessions.find(here.token, "localhost")).toBeDefined();
  expect(await sessions.find(elsewhere.token, "localhost")).toBeUndefined();
  const stored = await findSignIn(world.deps, { email: "secret@example.com", resellerId: null });
  expect(await verifyPassword(stored?.passwordHash, "a new password")).toBe(true);
  expect(await verifyPassword(stored?.passwordHash, "an old password")).toBe(false);
});
