import { afterAll, beforeAll, expect, test } from "bun:test";
import { activateAccount, renameAccount, suspendAccount } from "../../src/accounts/accounts_store.ts";
import { type Device, openSessions } from "../../src/accounts/sessions.ts";
import { beginViewing, endViewing, pruneSessions } from "../../src/accounts/sessions_store.ts";
import { setPassword } from "../../src/accounts/sign_in_store.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { sha256 } from "../../src/platform/runtime.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

const HOST = "panel.tollgate.example";
const DEVICE = { userAgent: "Firefox", address: "192.0.2.7" };
const IDLE_SECONDS = 600;
const MAX_SECONDS = 3600;

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

/** Sessions with a test clock; `age` moves their times in the database. */
function open() {
  const clock = { ms: 1_000_000 };
  const config = {
    ...world.deps.config,
    sessionIdleSeconds: IDLE_SECONDS,
    sessionMaxSeconds: MAX_SECONDS,
    cacheTtlMs: 3_600_000,
  };
  const sessions = openSessions({ ...world.deps, config, nowMs: () => clock.ms });
  /** Signs in an account of the test world, which has no password: that is what was verified. */
  const begin = async ({ accountId }: { accountId: number }, device: Partial<Device> = {}) => {
    const proof = { passwordHash: null, totpEnabled: false };
    const begun = await sessions.begin({ accountId, host: HOST, device: { ...DEVICE, ...device }, proof });
    if (!begun) throw new Error("the proof did not hold");
    return begun;
  };
  return { clock, sessions, begin };
}

/** Makes every session of an account some seconds older. */
async function age(accountId: number, seconds: number): Promise<void> {
  await world.sql`update sessions set seen_at = seen_at - make_interval(secs => ${seconds}), expires_at = expires_at - make_interval(secs => ${seconds})
    where account_id = ${accountId}`;
}

async function unseenSeconds(accountId: number): Promise<number> {
  const [row] =
    await world.sql`select extract(epoch from clock_timestamp() - seen_at)::float8 as s from sessions where account_id = ${accountId}`;
  return row?.s;
}

test("the token has 32 bytes and is stored as its digest; the session has the account and the expected CSRF token", async () => {
  const reseller = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  const { sessions, begin } = open();
  const begun = await begin(person);
  expect(Buffer.from(begun.token, "base64url")).toHaveLength(32);
  expect(begun.csrfToken).not.toBe(begun.token);
  const [row] = await world.sql`select digest, host from sessions where account_id = ${person.accountId}`;
  expect(Buffer.from(row?.digest)).toEqual(Buffer.from(sha256(begun.token)));
  expect(await sessions.find(begun.token, HOST)).toMatchObject({
    ...person,
    role: "customer",
    tenantId: reseller.accountId,
    host: HOST,
    csrfToken: begun.csrfToken,
  });
});

test("a session is bound to its host; a wrong token finds no session", async () => {
  const person = await world.addCustomer();
  const { sessions, begin } = open();
  const { token } = await begin(person);
  expect(await sessions.find(token, "ai.other.example")).toBeUndefined();
  for (const wrong of ["", "x", token.slice(1), `${token}a`, `${token.slice(0, -1)}!`, "A".repeat(43)]) {
    expect(await sessions.find(wrong, HOST)).toBeUndefined();
  }
  expect(await sessions.find(token, HOST)).toBeDefined();
});

test("a session in use ends at its maximum age, also in the cache", async () => {
  const person = await world.addCustomer();
  const { clock, sessions, begin } = open();
  const { token } = await begin(person);
  for (let passed = 0; passed + 500 < MAX_SECONDS; passed += 500) {
    expect(await sessions.find(token, HOST)).toBeDefined();
    clock.ms += 500_000;
    await age(person.accountId, 500);
  }
  expect(await sessions.find(token, HOST)).toBeDefined();
  clock.ms += 101_000;
  await age(person.accountId, 101);
  expect(await sessions.find(token, HOST)).toBeUndefined();
});

test("a session that is idle for too long ends, also in the cache", async () => {
  const person = await world.addCustomer();
  const { clock, sessions, begin } = open();
  const { token } = await begin(person);
  expect(await sessions.find(token, HOST)).toBeDefined();
  clock.ms += (IDLE_SECONDS + 1) * 1000;
  await age(person.accountId, IDLE_SECONDS + 1);
  expect(await sessions.find(token, HOST)).toBeUndefined();
});

test("use of a session is recorded at most once a minute", async () => {
  const person = await world.addCustomer();
  const { clock, sessions, begin } = open();
  const { token } = await begin(person);
  const pass = async (seconds: number) => {
    clock.ms += seconds * 1000;
    await age(person.accountId, seconds);
    await Promise.all(Array.from({ length: 5 }, () => sessions.find(token, HOST)));
    return unseenSeconds(person.accountId);
  };
  expect(await pass(0)).toBeLessThan(5);
  expect(await pass(59)).toBeGreaterThan(55);
  expect(await pass(2)).toBeLessThan(5);
  expect(await pass(58)).toBeGreaterThan(55);
});

test("signing out ends one session, signing out everywhere ends all others, on every replica", async () => {
  const person = await world.addCustomer();
  const [{ sessions, begin }, { sessions: otherReplica }] = [open(), open()];
  const tokens: string[] = [];
  for (let i = 0; i < 3; i++) tokens.push((await begin(person)).token);
  const [a = "", b = "", c = ""] = tokens;
  const alive = async () => {
    const found = await Promise.all([a, b, c].map((token) => otherReplica.find(token, HOST)));
    return found.map((session) => session !== undefined);
  };
  expect(await alive()).toEqual([true, true, true]);
  expect(await sessions.list(person.accountId)).toHaveLength(3);
  const session = await sessions.find(a, HOST);
  if (session) await sessions.end(session);
  expect(await alive()).toEqual([false, true, true]);
  expect(await sessions.endAll(person.accountId, await sessions.find(b, HOST))).toBe(1);
  expect(await alive()).toEqual([false, true, false]);
  expect(await sessions.endAll(person.accountId)).toBe(1);
  expect(await alive()).toEqual([false, false, false]);
});

test("only its owner can end a listed session", async () => {
  const [person, other] = [await world.addCustomer(), await world.addCustomer()];
  const { sessions, begin } = open();
  const { token } = await begin(person);
  const [listed] = await sessions.list(person.accountId);
  expect(await sessions.endListed(other.accountId, listed?.sessionId ?? "")).toBe(false);
  expect(await sessions.endListed(person.accountId, "zz")).toBe(false);
  expect(await sessions.find(token, HOST)).toBeDefined();
  expect(await sessions.endListed(person.accountId, listed?.sessionId ?? "")).toBe(true);
  expect(await sessions.find(token, HOST)).toBeUndefined();
});

test("a suspension ends the account's sessions for good, and blocks its customers' sessions while it lasts", async () => {
  const reseller = await world.addReseller();
  const customer = await world.addCustomer(reseller.accountId);
  const { sessions, begin } = open();
  const mine = (await begin(reseller)).token;
  const theirs = (await begin(customer)).token;
  expect([await sessions.find(mine, HOST), await sessions.find(theirs, HOST)]).not.toContain(undefined);
  await suspendAccount(world.deps, reseller.accountId);
  expect([await sessions.find(mine, HOST), await sessions.find(theirs, HOST)]).toEqual([undefined, undefined]);
  await activateAccount(world.deps, reseller.accountId);
  expect(await sessions.find(mine, HOST)).toBeUndefined();
  expect(await sessions.find(theirs, HOST)).toMatchObject(customer);
});

test("the fifty-first session replaces the one that was unused for longest", async () => {
  const person = await world.addCustomer();
  const { sessions, begin } = open();
  const first = (await begin(person)).token;
  const second = (await begin(person)).token;
  for (let i = 0; i < 49; i++) await begin(person);
  expect(await sessions.list(person.accountId)).toHaveLength(50);
  expect(await sessions.find(first, HOST)).toBeUndefined();
  expect(await sessions.find(second, HOST)).toBeDefined();
});

test("ended sessions are deleted, open ones stay", async () => {
  const [gone, here] = [await world.addCustomer(), await world.addCustomer()];
  const { sessions, begin } = open();
  await begin(gone);
  const { token } = await begin(here);
  await age(gone.accountId, IDLE_SECONDS + 1);
  expect(await pruneSessions(world.deps, IDLE_SECONDS)).toBeGreaterThanOrEqual(1);
  expect(await pruneSessions(world.deps, IDLE_SECONDS)).toBe(0);
  expect(await sessions.find(token, HOST)).toBeDefined();
});

test("a device is stored as one line of text, cut to its limit", async () => {
  const person = await world.addCustomer();
  const { sessions, begin } = open();
  const userAgent = `<b>Fire\u0000fox\r\n</b>\ud800${"x".repeat(400)}`;
  const { token } = await begin(person, { userAgent, address: "2001:db8::1" });
  const [listed] = await sessions.list(person.accountId);
  expect(listed?.userAgent).toBe(`<b>Firefox</b>${"x".repeat(286)}`);
  expect(listed?.address).toBe("2001:db8::1");
  expect(listed?.sessionId).toMatch(/^[0-9a-f]{24}$/);
  expect((await sessions.find(token, HOST))?.digestHex.startsWith(listed?.sessionId ?? "none")).toBe(true);
});

test("no session begins if the password changed or a second factor was switched on after the check", async () => {
  const person = await world.addCustomer();
  const { sessions } = open();
  const owner = { ...person, host: HOST, device: DEVICE };
  for (const proof of [
    { passwordHash: "another hash", totpEnabled: false },
    { passwordHash: null, totpEnabled: true },
  ]) {
    expect(await sessions.begin({ ...owner, proof })).toBeUndefined();
  }
  expect(await sessions.list(person.accountId)).toEqual([]);
});

test("a sign-in during a change of the password waits for it, and begins no session", async () => {
  const person = await world.addCustomer();
  const { sessions } = open();
  const begun = await world.whileLocked(
    `update accounts set password_hash = 'new' where id = ${person.accountId}`,
    () =>
      sessions.begin({
        ...person,
        host: HOST,
        device: DEVICE,
        proof: { passwordHash: null, totpEnabled: false },
      }),
  );
  expect(begun).toBeUndefined();
});

test("twenty sign-ins while the password changes: no session remains", async () => {
  const person = await world.addCustomer();
  await world.sql`update accounts set password_hash = 'old' where id = ${person.accountId}`;
  const { sessions } = open();
  const signIn = () =>
    sessions.begin({ ...person, host: HOST, device: DEVICE, proof: { passwordHash: "old", totpEnabled: false } });
  const change = () => setPassword(world.deps, { ...person, passwordHash: "new" });
  const attempts = Array.from({ length: 20 }, (_, i) => (i === 10 ? change() : signIn()));
  await Promise.all(attempts);
  expect(await sessions.list(person.accountId)).toEqual([]);
});

test("viewing an account's panel takes effect on every replica immediately, is recorded, and shows the account as it is now", async () => {
  const [admin, person] = [await world.addAdmin(), await world.addCustomer()];
  const [{ sessions, begin }, { sessions: otherReplica }] = [open(), open()];
  const { token } = await begin(admin);
  const session = await sessions.find(token, HOST);
  expect((await otherReplica.find(token, HOST))?.viewing).toBeNull();
  const by = { ...admin, requestId: newRequestId() };
  const view = { digest: Buffer.from(session?.digestHex ?? "", "hex"), accountId: person.accountId };
  expect(await beginViewing({ ...world.deps, by }, view)).toBe(true);
  expect((await sessions.find(token, HOST))?.viewing).toMatchObject(person);
  expect((await otherReplica.find(token, HOST))?.viewing).toMatchObject(person);
  await renameAccount(world.deps, person.accountId, "Another Name");
  expect((await otherReplica.find(token, HOST))?.viewing?.name).toBe("Another Name");
  await suspendAccount(world.deps, person.accountId);
  expect((await otherReplica.find(token, HOST))?.viewing).toMatchObject(person);
  expect(await endViewing({ ...world.deps, by }, view)).toBe(true);
  expect(await endViewing({ ...world.deps, by }, view)).toBe(false);
  expect((await otherReplica.find(token, HOST))?.viewing).toBeNull();
  const rows = await world.sql`select actor_id::int, request_id, subject, subject_id, account_id::int, before, after
    from audit_entries where action = 'viewed' order by id`;
  const same = { actor_id: admin.accountId, request_id: by.requestId, subject: "accounts" };
  const about = { subject_id: String(person.accountId), account_id: person.accountId };
  expect([...rows]).toEqual([
    { ...same, ...about, before: { viewing: false }, after: { viewing: true } },
    { ...same, ...about, before: { viewing: true }, after: { viewing: false } },
  ]);
});

test("only an admin can view an account, and never an admin's, whatever the session's row says", async () => {
  const [admin, otherAdmin, person, other] = [
    await world.addAdmin(),
    await world.addAdmin(),
    await world.addCustomer(),
    await world.addCustomer(),
  ];
  const { sessions, begin } = open();
  const mine = await begin(admin);
  const theirs = await begin(person);
  const digest = Buffer.from((await sessions.find(mine.token, HOST))?.digestHex ?? "", "hex");
  const by = { ...admin, requestId: newRequestId() };
  const before = await world.sql`select id from audit_entries where action = 'viewed'`;
  expect(await beginViewing({ ...world.deps, by }, { digest, ...otherAdmin })).toBe(false);
  expect(await beginViewing({ ...world.deps, by }, { digest, accountId: 999_999 })).toBe(false);
  const stranger = { ...world.deps, by: { ...otherAdmin, requestId: newRequestId() } };
  expect(await beginViewing(stranger, { digest, ...person })).toBe(false);
  expect(await world.sql`select id from audit_entries where action = 'viewed'`).toHaveLength(before.length);
  await world.sql`update sessions set viewing_account_id = ${otherAdmin.accountId} where account_id = ${admin.accountId}`;
  await world.sql`update sessions set viewing_account_id = ${other.accountId} where account_id = ${person.accountId}`;
  const { sessions: fresh } = open();
  expect((await fresh.find(mine.token, HOST))?.viewing).toBeNull();
  expect(await fresh.find(theirs.token, HOST)).toMatchObject({ ...person, viewing: null });
});
