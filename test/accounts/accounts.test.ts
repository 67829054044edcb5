import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  activateAccount,
  addAccount,
  findAccount,
  findAccountsByEmail,
  listAccounts,
  type NewAccount,
  noticesOf,
  renameAccount,
  setNotices,
  suspendAccount,
} from "../../src/accounts/accounts_store.ts";
import { checkLines } from "../../src/accounts/input_checks.ts";
import { openKeyLookup } from "../../src/accounts/key_lookup.ts";
import { createKey } from "../../src/accounts/keys_store.ts";
import { hashPassword, verifyPassword } from "../../src/accounts/passwords.ts";
import { openSessions } from "../../src/accounts/sessions.ts";
import { findSignIn, setPassword } from "../../src/accounts/sign_in_store.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { openDb } from "../../src/platform/db.ts";
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

test("an e-mail address is unique within a tenant, and can be used in another", async () => {
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

test("twenty concurrent creations with one address make one account", async () => {
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => add({ email: "race@example.com" })));
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
});

test("a customer cannot have its reseller's address, because both sign in on one host", async () => {
  const reseller = await add({ email: "boss@resellers.example", role: "reseller" });
  await expect(add({ email: "boss@resellers.example", resellerId: reseller.accountId })).rejects.toThrow(
    "already in use",
  );
});

test("only a customer can belong to another account, which must be a reseller", async () => {
  const customer = await add({ email: "c@example.com" });
  await expect(add({ email: "d@example.com", resellerId: customer.accountId })).rejects.toThrow("no such reseller");
  await expect(add({ email: "e@example.com", resellerId: 999_999 })).rejects.toThrow("no such reseller");
  const reseller = await add({ email: "f@example.com", role: "reseller" });
  await expect(add({ email: "g@example.com", role: "reseller", resellerId: reseller.accountId })).rejects.toThrow(
    "Only a customer",
  );
});

test("an invalid address or name is refused", async () => {
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
  // After a mark of direction, an amount that is shown behind the name would read backwards.
  for (const name of ["  ", "x".repeat(101), "two\nlines", "two\u2028lines", "Ann\u202e", "Ann\u2066"])
    await expect(add({ email: "h@example.com", name })).rejects.toThrow("name");
  for (const text of ["a\0b", "a\u202eb", "a\u2067b"])
    expect(() => checkLines(text, { param: "note", charsMax: 100 })).toThrow("must be plain text");
  const texts = [
    "two\nlines",
    "\u05d0\u05d1 \u200e(1)",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u{1f469}\u200d\u{1f680}",
  ];
  expect(texts.map((text) => checkLines(text, { param: "note", charsMax: 100 }))).toEqual(texts);
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

test("sign-in: a reseller's host serves that reseller and its customers, the service's own host all other accounts", async () => {
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

test("customers of a suspended reseller cannot sign in", async () => {
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

test("a suspension waits for the ledger batch that has the account's lock", async () => {
  const { accountId } = await add({ email: "locked@example.com" });
  await world.whileLocked(`select lock_accounts(array[${accountId}]::bigint[])`, () =>
    suspendAccount(world.deps, accountId),
  );
});

test("a reseller's suspension waits for its customers' ledger batches, and reaches their cached keys immediately", async () => {
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

test("a new password ends all sessions except the one that set it", async () => {
  const passwordHash = await hashPassword("an old password");
  const { accountId } = await add({ email: "secret@example.com", passwordHash });
  const sessions = openSessions({ ...world.deps, nowMs: () => performance.now() });
  const begin = async () => {
    const device = { userAgent: "Firefox", address: "192.0.2.7" };
    const proof = { passwordHash, totpEnabled: false };
    const begun = await sessions.begin({ accountId, host: "localhost", device, proof });
    if (!begun) throw new Error("the proof did not hold");
    return begun;
  };
  const [here, elsewhere] = [await begin(), await begin()];
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

test("of ten concurrent changes that give the same current password, one succeeds", async () => {
  const { accountId } = await add({ email: "once@example.com", passwordHash: "old" });
  const results = await Promise.all(
    Array.from({ length: 10 }, (_, i) => setPassword(world.deps, { accountId, was: "old", passwordHash: `new${i}` })),
  );
  expect(results.filter(Boolean)).toHaveLength(1);
});

test("a new password removes an open password link", async () => {
  const { accountId } = await add({ email: "linked@example.com" });
  await world.sql`insert into links (digest, kind, account_id, expires_at) values ('x', 'reset', ${accountId}, now() + interval '1 day')`;
  await setPassword(world.deps, { accountId, passwordHash: "new" });
  expect(await world.sql`select 1 from links where account_id = ${accountId}`).toHaveLength(0);
});

test("people are found by the beginning of their address or name, in any case; % and _ are not wildcards", async () => {
  const reseller = await add({ email: "search@r.example", role: "reseller", name: "Search Ltd" });
  const { accountId: resellerId } = reseller;
  await add({ email: "zoe@example.com", name: "Zoë Ünal", resellerId });
  await add({ email: "q_1@example.com", name: "100% Cotton", resellerId });
  await add({ email: "qa1@example.com", name: "1000 Cottons", resellerId });
  const names = async (q: string, more = {}) =>
    (await listAccounts(world.deps, { q, resellerId, ...more })).rows.map(({ name }) => name);
  expect(await names("ZOE@")).toEqual(["Zoë Ünal"]);
  expect(await names(" zoË ü")).toEqual(["Zoë Ünal"]);
  expect(await names("100%")).toEqual(["100% Cotton"]);
  expect(await names("q_")).toEqual(["100% Cotton"]);
  expect(await names("\\")).toEqual([]);
  expect(await names("nul\0")).toEqual([]);
  expect(await names("ünal")).toEqual([]);
  expect(await names("", { limit: 2 })).toEqual(["1000 Cottons", "100% Cotton"]);
  expect(await names("search")).toEqual([]);
  const [found] = (await listAccounts(world.deps, { q: "zoe", resellerId })).rows;
  expect(found).toMatchObject({ resellerName: "Search Ltd", packageName: null, totpEnabled: false });
});

test("a row shows the active package, not an ended or queued one", async () => {
  const { accountId } = await add({ email: "packed@example.com" });
  const name = async () => (await findAccount(world.deps, accountId))?.packageName;
  expect(await name()).toBeNull();
  const first = await world.givePackage({ accountId });
  await world.assign({ accountId }, await world.addOffering(), "after");
  const [row] = await world.sql`select name from packages where id = ${first}`;
  expect(await name()).toBe(row?.name);
  await world.sql`update packages set ends_at = clock_timestamp() where id = ${first}`;
  expect(await name()).toBeNull();
});

test("the last active admin cannot be suspended, also when two suspend each other concurrently", async () => {
  await world.sql`update accounts set status = 'suspended' where role = 'admin'`;
  const [one, two] = [
    await add({ email: "one@admins.example", role: "admin" }),
    await add({ email: "two@admins.example", role: "admin" }),
  ];
  const results = await Promise.allSettled([one, two].map(({ accountId }) => suspendAccount(world.deps, accountId)));
  expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  const [left] = await world.sql`select id::int from accounts where role = 'admin' and status = 'active'`;
  await expect(suspendAccount(world.deps, left?.id)).rejects.toThrow("only active admin");
});

test("a changed name is checked; notices keep fields that are not given, and have limits", async () => {
  const { accountId } = await add({ email: "notices@example.com" });
  expect(await renameAccount(world.deps, accountId, "  <script>alert(1)</script> ")).toBe(true);
  expect((await findAccount(world.deps, accountId))?.name).toBe("<script>alert(1)</script>");
  for (const name of ["", "x".repeat(101), "a\u0000b", "a\nb"])
    await expect(renameAccount(world.deps, accountId, name)).rejects.toThrow("name");
  expect(await renameAccount(world.deps, 999_999, "Nobody")).toBe(false);
  expect(await noticesOf(world.deps, accountId)).toEqual({
    unitsPercent: 20,
    balanceNanoUsd: 1_000_000_000n,
    days: 3,
  });
  expect(await setNotices(world.deps, accountId, { balanceNanoUsd: 0n })).toBe(true);
  expect(await setNotices(world.deps, accountId, { unitsPercent: 0, days: 30 })).toBe(true);
  expect(await setNotices(world.deps, accountId, {})).toBe(true);
  expect(await setNotices(world.deps, 999_999, { days: 1 })).toBe(false);
  for (const wrong of [
    { unitsPercent: 101 },
    { unitsPercent: -1 },
    { unitsPercent: 1.5 },
    { days: 31 },
    { days: -1 },
    { balanceNanoUsd: -1n },
    { balanceNanoUsd: 9_000_000_000_000_001n },
  ])
    await expect(setNotices(world.deps, accountId, wrong)).rejects.toThrow("must be");
  expect(await noticesOf(world.deps, accountId)).toEqual({ unitsPercent: 0, balanceNanoUsd: 0n, days: 30 });
});

test("the audit log names the actor of each change: a later change on the same connection, by the command line, names none", async () => {
  const [{ accountId }, admin] = [await add({ email: "acted@example.com" }), await add({ email: "actor@example.com" })];
  const db = openDb({ databaseUrl: world.url, dbPrepare: true, dbPoolMax: 1 });
  const by = { accountId: admin.accountId, requestId: newRequestId() };
  await renameAccount({ ...world.deps, db, by }, accountId, "By Somebody");
  await renameAccount({ ...world.deps, db }, accountId, "By Nobody");
  await db.close();
  const rows = await world.sql`select actor_id::int, request_id, after from audit_entries
    where account_id = ${accountId} and action = 'changed' order by id`;
  expect([...rows]).toEqual([
    { actor_id: admin.accountId, request_id: by.requestId, after: { name: "By Somebody" } },
    { actor_id: null, request_id: null, after: { name: "By Nobody" } },
  ]);
});
