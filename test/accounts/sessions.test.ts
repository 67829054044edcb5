import { afterAll, beforeAll, expect, test } from "bun:test";
import { activateAccount, suspendAccount } from "../../src/accounts/people_store.ts";
import { openSessions } from "../../src/accounts/sessions.ts";
import { pruneSessions } from "../../src/accounts/sessions_store.ts";
import { sha256 } from "../../src/platform/runtime.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

const HOST = "panel.tollgate.example";
const IDLE_SECONDS = 600;
const MAX_SECONDS = 3600;

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

/** Sessions with a clock of their own; the database's ages are moved by `age`. */
function open() {
  const clock = { ms: 1_000_000 };
  const config = {
    ...world.deps.config,
    sessionIdleSeconds: IDLE_SECONDS,
    sessionMaxSeconds: MAX_SECONDS,
    cacheTtlMs: 3_600_000,
  };
  return { clock, sessions: openSessions({ ...world.deps, config, nowMs: () => clock.ms }) };
}

/** Makes every session of an account older by some seconds, as if they had passed. */
async function age(accountId: number, seconds: number): Promise<void> {
  await world.sql`update sessions set seen_at = seen_at - make_interval(secs => ${seconds}), expires_at = expires_at - make_interval(secs => ${seconds})
    where account_id = ${accountId}`;
}

async function unseenSeconds(accountId: number): Promise<number> {
  const [row] =
    await world.sql`select extract(epoch from clock_timestamp() - seen_at)::float8 as s from sessions where account_id = ${accountId}`;
  return row?.s;
}

test("the token is 32 bytes and stored as its digest; the session says who it is and which CSRF token is due", async () => {
  const reseller = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  const { sessions } = open();
  const begun = await sessions.begin({ ...person, host: HOST });
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

test("a session is bound to its host, and a wrong token finds none", async () => {
  const person = await world.addCustomer();
  const { sessions } = open();
  const { token } = await sessions.begin({ ...person, host: HOST });
  expect(await sessions.find(token, "ai.other.example")).toBeUndefined();
  for (const wrong of ["", "x", token.slice(1), `${token}a`, `${token.slice(0, -1)}!`, "A".repeat(43)]) {
    expect(await sessions.find(wrong, HOST)).toBeUndefined();
  }
  expect(await sessions.find(token, HOST)).toBeDefined();
});

test("a session that is used lives to its absolute end, also from memory", async () => {
  const person = await world.addCustomer();
  const { clock, sessions } = open();
  const { token } = await sessions.begin({ ...person, host: HOST });
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

test("a session that is not used for its idle time ends, also from memory", async () => {
  const person = await world.addCustomer();
  const { clock, sessions } = open();
  const { token } = await sessions.begin({ ...person, host: HOST });
  expect(await sessions.find(token, HOST)).toBeDefined();
  clock.ms += (IDLE_SECONDS + 1) * 1000;
  await age(person.accountId, IDLE_SECONDS + 1);
  expect(await sessions.find(token, HOST)).toBeUndefined();
});

test("being used is noted at most once a minute", async () => {
  const person = await world.addCustomer();
  const { clock, sessions } = open();
  const { token } = await sessions.begin({ ...person, host: HOST });
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

test("signing out ends one session, everywhere ends all but this one, on every replica", async () => {
  const person = await world.addCustomer();
  const [{ sessions }, { sessions: otherReplica }] = [open(), open()];
  const tokens: string[] = [];
  for (let i = 0; i < 3; i++) tokens.push((await sessions.begin({ ...person, host: HOST })).token);
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

test("a listed session can be ended by its owner only", async () => {
  const [person, other] = [await world.addCustomer(), await world.addCustomer()];
  const { sessions } = open();
  const { token } = await sessions.begin({ ...person, host: HOST });
  const [listed] = await sessions.list(person.accountId);
  expect(await sessions.endListed(other.accountId, listed?.digestHex ?? "")).toBe(false);
  expect(await sessions.endListed(person.accountId, "zz")).toBe(false);
  expect(await sessions.find(token, HOST)).toBeDefined();
  expect(await sessions.endListed(person.accountId, listed?.digestHex ?? "")).toBe(true);
  expect(await sessions.find(token, HOST)).toBeUndefined();
});

test("a suspension ends the account's sessions for good, and its customers' for as long as it lasts", async () => {
  const reseller = await world.addReseller();
  const customer = await world.addCustomer(reseller.accountId);
  const { sessions } = open();
  const mine = (await sessions.begin({ ...reseller, host: HOST })).token;
  const theirs = (await sessions.begin({ ...customer, host: HOST })).token;
  expect([await sessions.find(mine, HOST), await sessions.find(theirs, HOST)]).not.toContain(undefined);
  await suspendAccount(world.deps, reseller.accountId);
  expect([await sessions.find(mine, HOST), await sessions.find(theirs, HOST)]).toEqual([undefined, undefined]);
  await activateAccount(world.deps, reseller.accountId);
  expect(await sessions.find(mine, HOST)).toBeUndefined();
  expect(await sessions.find(theirs, HOST)).toMatchObject(customer);
});

test("the fifty-first session takes the place of the one unused for longest", async () => {
  const person = await world.addCustomer();
  const { sessions } = open();
  const first = (await sessions.begin({ ...person, host: HOST })).token;
  const second = (await sessions.begin({ ...person, host: HOST })).token;
  for (let i = 0; i < 49; i++) await sessions.begin({ ...person, host: HOST });
  expect(await sessions.list(person.accountId)).toHaveLength(50);
  expect(await sessions.find(first, HOST)).toBeUndefined();
  expect(await sessions.find(second, HOST)).toBeDefined();
});

test("ended sessions are forgotten, living ones stay", async () => {
  const [gone, here] = [await world.addCustomer(), await world.addCustomer()];
  const { sessions } = open();
  await sessions.begin({ ...gone, host: HOST });
  const { token } = await sessions.begin({ ...here, host: HOST });
  await age(gone.accountId, IDLE_SECONDS + 1);
  expect(await pruneSessions(world.deps, IDLE_SECONDS)).toBeGreaterThanOrEqual(1);
  expect(await pruneSessions(world.deps, IDLE_SECONDS)).toBe(0);
  expect(await sessions.find(token, HOST)).toBeDefined();
});
