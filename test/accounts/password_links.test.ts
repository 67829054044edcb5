import { afterAll, beforeAll, expect, test } from "bun:test";
import { addAccount, findAccount, type NewAccount, suspendAccount } from "../../src/accounts/accounts_store.ts";
import {
  createLink,
  findLink,
  inviteAccount,
  pendingLinkOf,
  signInHostOf,
  takeLink,
} from "../../src/accounts/password_links_store.ts";
import { openSessions } from "../../src/accounts/sessions.ts";
import { findSignIn } from "../../src/accounts/sign_in_store.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { sha256 } from "../../src/platform/runtime.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

/** Source: ACC-6. */

const SITE = "https://panel.tollgate.example";

let world: AccountsWorld;
let names = 0;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

const add = (wanted: Partial<NewAccount> = {}) =>
  addAccount(world.deps, {
    role: "customer",
    name: "Somebody",
    email: `somebody${++names}@example.com`,
    resellerId: null,
    passwordHash: null,
    ...wanted,
  });
const acting = () => ({ ...world.deps, by: { accountId: 1, requestId: newRequestId() } });
const link = (accountId: number) => createLink(acting(), accountId, { site: SITE, isMailed: true });
const opens = async (token: string, resellerId: number | null = null) =>
  (await findLink(world.deps, { token, resellerId })) !== undefined;
/** Hours from the creation of a link to its end, both by the database's clock. */
async function hoursOf(token: string): Promise<number> {
  const [row] = await world.deps.db.sql`
    select extract(epoch from expires_at - created_at)::float8 / 3600 as hours from links where digest = ${Buffer.from(sha256(token))}`;
  return Number(row?.hours);
}

test("an account without a password gets an invitation, one with a password a reset; the token has 32 bytes and is stored as its digest", async () => {
  const { accountId } = await add();
  const invitation = await link(accountId);
  expect(invitation.kind).toBe("invitation");
  expect(await hoursOf(invitation.token)).toBeCloseTo(168, 1);
  expect(Buffer.from(invitation.token, "base64url")).toHaveLength(32);
  const [row] = await world.sql`select digest, kind, created_by::int from links where account_id = ${accountId}`;
  expect(Buffer.from(row?.digest)).toEqual(Buffer.from(sha256(invitation.token)));
  expect(row).toMatchObject({ kind: "invitation", created_by: 1 });
  expect(await findLink(world.deps, { token: invitation.token, resellerId: null })).toEqual({
    accountId,
    kind: "invitation",
    name: "Somebody",
    email: `somebody${names}@example.com`,
    expiresAt: invitation.expiresAt,
  });
  expect(await takeLink(world.deps, { token: invitation.token, accountId, passwordHash: "h" })).toEqual({
    totpEnabled: false,
  });
  expect((await findAccount(world.deps, accountId))?.hasPassword).toBe(true);
  const reset = await link(accountId);
  expect(reset.kind).toBe("reset");
  expect(await hoursOf(reset.token)).toBeCloseTo(24, 1);
});

test("an account and its invitation are created together or not at all", async () => {
  const wanted = { role: "customer", name: "New", email: "together@example.com", resellerId: null } as const;
  const { account, link: invited } = await inviteAccount(acting(), wanted, { site: SITE, isMailed: true });
  expect(account.hasPassword).toBe(false);
  expect(await pendingLinkOf(world.deps, account.accountId)).toEqual({
    kind: "invitation",
    expiresAt: invited.expiresAt,
  });
  await expect(inviteAccount(acting(), wanted, { site: SITE, isMailed: true })).rejects.toThrow("already in use");
  expect(await opens(invited.token)).toBe(true);
});

test("a new link replaces the former one; of ten concurrent ones one works", async () => {
  const { accountId } = await add();
  const first = await link(accountId);
  const made = await Promise.all(Array.from({ length: 10 }, () => link(accountId)));
  expect(await opens(first.token)).toBe(false);
  expect((await Promise.all(made.map(({ token }) => opens(token)))).filter(Boolean)).toHaveLength(1);
});

test("a link works once: of twenty concurrent uses one sets the password", async () => {
  const { accountId } = await add();
  const { token } = await link(accountId);
  const taken = await Promise.all(
    Array.from({ length: 20 }, (_, i) => takeLink(world.deps, { token, accountId, passwordHash: `hash${i}` })),
  );
  expect(taken.filter(Boolean)).toHaveLength(1);
  expect(await opens(token)).toBe(false);
  const winner = taken.findIndex(Boolean);
  const [row] = await world.sql`select password_hash from accounts where id = ${accountId}`;
  expect(row?.password_hash).toBe(`hash${winner}`);
});

test("an expired link opens nothing and sets nothing", async () => {
  const { accountId } = await add();
  const { token } = await link(accountId);
  await world.sql`update links set expires_at = clock_timestamp() where account_id = ${accountId}`;
  expect(await opens(token)).toBe(false);
  expect(await takeLink(world.deps, { token, accountId, passwordHash: "h" })).toBeUndefined();
  expect(await pendingLinkOf(world.deps, accountId)).toBeNull();
  expect((await findAccount(world.deps, accountId))?.hasPassword).toBe(false);
});

test("a malformed token, an unknown one and one with another account's id open nothing", async () => {
  const [mine, other] = [await add(), await add()];
  const { token } = await link(mine.accountId);
  for (const wrong of ["", "x", token.slice(1), `${token}A`, `${token.slice(0, -1)}!`, "A".repeat(43), "\0".repeat(43)])
    expect(await opens(wrong)).toBe(false);
  expect(await takeLink(world.deps, { token, accountId: other.accountId, passwordHash: "h" })).toBeUndefined();
  expect(await opens(token)).toBe(true);
});

test("a link opens only where its account signs in", async () => {
  const [acme, other] = [await add({ role: "reseller" }), await add({ role: "reseller" })];
  const [customer, direct, admin] = [
    await add({ resellerId: acme.accountId }),
    await add(),
    await add({ role: "admin" }),
  ];
  const hosts = [null, acme.accountId, other.accountId];
  const where = async ({ accountId }: { accountId: number }) => {
    const { token } = await link(accountId);
    return Promise.all(hosts.map((resellerId) => opens(token, resellerId)));
  };
  expect(await where(customer)).toEqual([false, true, false]);
  expect(await where(acme)).toEqual([true, true, false]);
  expect(await where(direct)).toEqual([true, false, false]);
  expect(await where(admin)).toEqual([true, false, false]);
});

test("a suspended account's link does not work and none is made; nor does that of a suspended reseller's customer", async () => {
  const reseller = await add({ role: "reseller" });
  const customer = await add({ resellerId: reseller.accountId });
  const suspended = await add();
  const [theirs, mine] = [await link(customer.accountId), await link(suspended.accountId)];
  await suspendAccount(world.deps, suspended.accountId);
  expect(await opens(mine.token)).toBe(false);
  const wanted = { token: mine.token, accountId: suspended.accountId, passwordHash: "h" };
  expect(await takeLink(world.deps, wanted)).toBeUndefined();
  await expect(link(suspended.accountId)).rejects.toThrow("suspended");
  expect(await opens(theirs.token, reseller.accountId)).toBe(true);
  await suspendAccount(world.deps, reseller.accountId);
  expect(await opens(theirs.token, reseller.accountId)).toBe(false);
});

test("an admin with a password gets no link: the command line resets it", async () => {
  const admin = await add({ role: "admin" });
  const { token, kind } = await link(admin.accountId);
  expect(kind).toBe("invitation");
  await takeLink(world.deps, { token, accountId: admin.accountId, passwordHash: "h" });
  await expect(link(admin.accountId)).rejects.toThrow("on the server");
  await expect(link(999_999)).rejects.toThrow("no such account");
});

test("setting a password by a link ends all sessions, and keeps the second factor", async () => {
  const { accountId } = await add({ passwordHash: "old" });
  const sessions = openSessions({ ...world.deps, nowMs: () => performance.now() });
  const device = { userAgent: "", address: "" };
  await world.sql`update accounts set totp_ciphertext = 'x', totp_enabled_at = now() where id = ${accountId}`;
  const proof = { passwordHash: "old", totpEnabled: true };
  await sessions.begin({ accountId, host: "localhost", device, proof });
  const { token } = await link(accountId);
  expect(await sessions.list(accountId)).toHaveLength(1);
  expect(await takeLink(world.deps, { token, accountId, passwordHash: "new" })).toEqual({ totpEnabled: true });
  expect(await sessions.list(accountId)).toHaveLength(0);
  const email = (await findAccount(world.deps, accountId))?.email ?? "";
  expect(await findSignIn(world.deps, { email, resellerId: null })).toMatchObject({ totpEnabled: true });
});

test("a reseller and its customers sign in on the domain of the request if it is active, or on the oldest active domain, or on none", async () => {
  const reseller = await add({ role: "reseller" });
  const where = (preferred: string) => signInHostOf(world.deps, { resellerId: reseller.accountId, preferred });
  expect(await where("panel.tollgate.example")).toBeUndefined();
  const put = (host: string, status: string, at: string | null) =>
    world.sql`insert into hosts (host, reseller_id, status, activated_at) values (${host}, ${reseller.accountId}, ${status}, ${at})`;
  await put("off.links.example", "suspended", "2020-01-01");
  await put("new.links.example", "active", "2024-01-01");
  await put("old.links.example", "active", "2023-01-01");
  expect(await where("panel.tollgate.example")).toBe("old.links.example");
  expect(await where("new.links.example")).toBe("new.links.example");
  expect(await where("off.links.example")).toBe("old.links.example");
});

test("the audit log names who made a link and how it ended, never its token", async () => {
  const admin = await add({ role: "admin" });
  const { accountId } = await add();
  const by = { accountId: admin.accountId, requestId: newRequestId() };
  const { token } = await createLink({ ...world.deps, by }, accountId, { site: SITE, isMailed: true });
  const own = { accountId, requestId: newRequestId() };
  await takeLink({ ...world.deps, by: own }, { token, accountId, passwordHash: "$argon2id$secret" });
  const rows = await world.sql`select actor_id::int, request_id, action, subject, before, after
    from audit_entries where account_id = ${accountId} order by id`;
  expect(rows.map(({ actor_id, action, subject }) => [actor_id, action, subject])).toEqual([
    [null, "added", "accounts"],
    [admin.accountId, "added", "links"],
    [accountId, "removed", "links"],
    [accountId, "changed", "accounts"],
  ]);
  expect(rows[1]).toMatchObject({ request_id: by.requestId, after: { kind: "invitation", digest: "(hidden)" } });
  const text = JSON.stringify(rows);
  for (const hidden of [token, Buffer.from(sha256(token)).toString("hex"), "argon2id"])
    expect(text).not.toContain(hidden);
});
