import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  beginSecondFactor,
  confirmSecondFactor,
  renewRecoveryCodes,
  takeCode,
} from "../../src/accounts/second_factor.ts";
import { removeTotp, secondFactorOf } from "../../src/accounts/second_factor_store.ts";
import { openSessions } from "../../src/accounts/sessions.ts";
import { InputError } from "../../src/errors.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import type { Person } from "../world.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";
import { codeAt, wrongCode } from "./authenticator.ts";

/** Source: ACC-7, RFC 6238 (codes and steps; 5.2: a code is taken once), RFC 4226 (digits). */

/** A digest that no session has. */
const KEEP_NONE = Buffer.alloc(32);

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

const begin = (person: Person) =>
  beginSecondFactor(world.deps, { ...person, issuer: "ai.acme.example", label: "ann@example.com" });
const confirm = (person: Person, code: string) =>
  confirmSecondFactor(world.deps, { ...person, code, keepSession: KEEP_NONE });
/** An account with a second factor; the codes of the previous and the current step are used up. */
async function addSecured() {
  const person = await world.addCustomer();
  const { secret } = await begin(person);
  const unixMs = Date.now();
  const recoveryCodes = (await confirm(person, codeAt(secret, 0, unixMs))) ?? [];
  /** In steps from the one that confirmed it. */
  return { person, secret, recoveryCodes, code: (steps: number) => codeAt(secret, steps, unixMs) };
}
const reset = (person: Person) => world.sql`update accounts set totp_last_step = 0 where id = ${person.accountId}`;
const results = <T>(count: number, attempt: () => Promise<T>) => Promise.all(Array.from({ length: count }, attempt));

test("the otpauth URL names issuer, account and secret; the secret is stored encrypted, and is required once confirmed", async () => {
  const person = await world.addCustomer();
  const { secret, uri } = await begin(person);
  expect(secret).toMatch(/^[A-Z2-7]{32}$/);
  const url = new URL(uri);
  expect([url.protocol, url.host, decodeURIComponent(url.pathname)]).toEqual([
    "otpauth:",
    "totp",
    "/ai.acme.example:ann@example.com",
  ]);
  expect(Object.fromEntries(url.searchParams)).toEqual({
    issuer: "ai.acme.example",
    secret,
    algorithm: "SHA1",
    digits: "6",
    period: "30",
  });
  const [row] = await world.sql`select totp_ciphertext from accounts where id = ${person.accountId}`;
  expect(Buffer.from(row?.totp_ciphertext).toString("latin1")).not.toContain(secret);
  expect(await secondFactorOf(world.deps, person.accountId)).toEqual({ totpEnabled: false, recoveryCodesLeft: 0 });
  expect(await takeCode(world.deps, person.accountId, codeAt(secret))).toBe(false);
  expect(await confirm(person, wrongCode(secret))).toBeNull();
  expect(await confirm(person, codeAt(secret))).toHaveLength(10);
  expect(await secondFactorOf(world.deps, person.accountId)).toEqual({ totpEnabled: true, recoveryCodesLeft: 10 });
});

test("a pending secret is replaced by the next; while the second factor is on, none can be begun or confirmed", async () => {
  const person = await world.addCustomer();
  const first = await begin(person);
  const second = await begin(person);
  expect(second.secret).not.toBe(first.secret);
  expect(await confirm(person, codeAt(first.secret))).toBeNull();
  expect(await confirm(person, codeAt(second.secret))).toHaveLength(10);
  await expect(begin(person)).rejects.toThrow("already on");
  await expect(confirm(person, codeAt(second.secret, 1))).rejects.toThrow("Start again");
  const other = await world.addCustomer();
  await expect(confirm(other, "123456")).rejects.toThrow("Start again");
});

test("two concurrent confirmations: one set of recovery codes", async () => {
  const person = await world.addCustomer();
  const { secret } = await begin(person);
  const settled = await Promise.allSettled(Array.from({ length: 8 }, () => confirm(person, codeAt(secret))));
  expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  expect((await secondFactorOf(world.deps, person.accountId)).recoveryCodesLeft).toBe(10);
});

test("the codes of the current, previous and next step are accepted; those three steps away are not", async () => {
  const { person, secret } = await addSecured();
  for (const steps of [-3, 3]) expect(await takeCode(world.deps, person.accountId, codeAt(secret, steps))).toBe(false);
  for (const steps of [-1, 0, 1]) {
    await reset(person);
    expect(await takeCode(world.deps, person.accountId, codeAt(secret, steps))).toBe(true);
  }
});

test("a code works once, and no earlier code works after it", async () => {
  const { person, code } = await addSecured();
  for (const steps of [0, -1]) expect(await takeCode(world.deps, person.accountId, code(steps))).toBe(false);
  expect(await takeCode(world.deps, person.accountId, code(1))).toBe(true);
  expect(await takeCode(world.deps, person.accountId, code(1))).toBe(false);
});

test("of thirty concurrent uses of one code exactly one succeeds", async () => {
  const { person, code } = await addSecured();
  const one = code(1);
  expect((await results(30, () => takeCode(world.deps, person.accountId, one))).filter(Boolean)).toHaveLength(1);
});

test("wrong: other lengths, letters, another account's code, and any code while the second factor is off", async () => {
  const [mine, theirs] = [await addSecured(), await addSecured()];
  const wrong = [
    "",
    "12345",
    "1234567",
    "abcdef",
    "１２３４５６",
    "-1",
    "1e5",
    "0x1234",
    "\0\0\0\0\0\0",
    " ".repeat(40),
  ];
  for (const code of [...wrong, codeAt(theirs.secret, 1), theirs.recoveryCodes[0] ?? "", wrongCode(mine.secret)])
    expect({ code, taken: await takeCode(world.deps, mine.person.accountId, code) }).toEqual({ code, taken: false });
  const off = await world.addCustomer();
  expect(await takeCode(world.deps, off.accountId, codeAt(mine.secret, 1))).toBe(false);
  expect(await takeCode(world.deps, 999_999, codeAt(mine.secret, 1))).toBe(false);
  const typed = codeAt(mine.secret, 1);
  expect(await takeCode(world.deps, mine.person.accountId, ` ${typed.slice(0, 3)} ${typed.slice(3)} `)).toBe(true);
});

test("ten recovery codes, stored as digests; each works once, in any case, with or without dashes", async () => {
  const { person, recoveryCodes } = await addSecured();
  expect(new Set(recoveryCodes).size).toBe(10);
  for (const code of recoveryCodes) expect(code).toMatch(/^([A-HJ-NP-Z2-9]{4}-){3}[A-HJ-NP-Z2-9]{4}$/);
  const stored = await world.sql`select digest from recovery_codes where account_id = ${person.accountId}`;
  expect(stored.map(({ digest }) => Buffer.from(digest).length)).toEqual(Array(10).fill(32));
  const [first = "", second = ""] = recoveryCodes;
  expect(await takeCode(world.deps, person.accountId, first.toLowerCase().replaceAll("-", ""))).toBe(true);
  expect(await takeCode(world.deps, person.accountId, first)).toBe(false);
  expect((await results(20, () => takeCode(world.deps, person.accountId, second))).filter(Boolean)).toHaveLength(1);
  expect((await secondFactorOf(world.deps, person.accountId)).recoveryCodesLeft).toBe(8);
});

test("new recovery codes replace the old ones; after ten concurrent renewals there are ten codes, of one set", async () => {
  const { person, recoveryCodes } = await addSecured();
  const by = { ...person, requestId: newRequestId() };
  const sets = await results(10, () => renewRecoveryCodes({ ...world.deps, by }, person.accountId));
  expect((await secondFactorOf(world.deps, person.accountId)).recoveryCodesLeft).toBe(10);
  expect(await takeCode(world.deps, person.accountId, recoveryCodes[0] ?? "")).toBe(false);
  const taken = await Promise.all(sets.map(([code = ""]) => takeCode(world.deps, person.accountId, code)));
  expect(taken.filter(Boolean)).toHaveLength(1);
  const off = await world.addCustomer();
  await expect(renewRecoveryCodes(world.deps, off.accountId)).rejects.toThrow("is off");
  const noted = await world.sql`select actor_id::int, after from audit_entries where subject = 'recovery_codes'`;
  expect(noted).toHaveLength(10);
  expect(noted[0]).toEqual({ actor_id: person.accountId, after: { codes: 10 } });
});

test("switching it on or off ends all other sessions; off deletes the secret and the recovery codes", async () => {
  const person = await world.addCustomer();
  const sessions = openSessions({ ...world.deps, nowMs: () => performance.now() });
  const signIn = async (totpEnabled: boolean) => {
    const device = { userAgent: "", address: "" };
    const proof = { passwordHash: null, totpEnabled };
    const begun = await sessions.begin({ ...person, host: "localhost", device, proof });
    return begun?.token ?? "";
  };
  const lives = async (token: string) => (await sessions.find(token, "localhost")) !== undefined;
  const [here, elsewhere] = [await signIn(false), await signIn(false)];
  const keepSession = Buffer.from((await sessions.find(here, "localhost"))?.digestHex ?? "", "hex");
  const { secret } = await begin(person);
  expect([await lives(here), await lives(elsewhere)]).toEqual([true, true]);
  await confirmSecondFactor(world.deps, { ...person, code: codeAt(secret), keepSession });
  expect([await lives(here), await lives(elsewhere)]).toEqual([true, false]);
  const third = await signIn(true);
  expect(await lives(third)).toBe(true);
  expect(await removeTotp(world.deps, person.accountId, keepSession)).toBe(true);
  expect([await lives(here), await lives(third)]).toEqual([true, false]);
  expect(await removeTotp(world.deps, person.accountId)).toBe(false);
  const [row] = await world.sql`select totp_ciphertext, totp_enabled_at, totp_last_step::int,
    (select count(*)::int from recovery_codes where account_id = ${person.accountId}) as codes from accounts where id = ${person.accountId}`;
  expect({ ...row }).toEqual({ totp_ciphertext: null, totp_enabled_at: null, totp_last_step: 0, codes: 0 });
  const again = await begin(person);
  expect(await confirm(person, codeAt(again.secret))).toHaveLength(10);
});

test("the audit log says that it changed, but never the secret, a code or a digest", async () => {
  const { person, secret, recoveryCodes } = await addSecured();
  await takeCode(world.deps, person.accountId, codeAt(secret, 1));
  await removeTotp(world.deps, person.accountId);
  const rows =
    await world.sql`select before, after from audit_entries where account_id = ${person.accountId} order by id`;
  const text = JSON.stringify(rows);
  for (const hidden of [secret, ...recoveryCodes, "\\\\x"]) expect(text).not.toContain(hidden);
  expect(rows.slice(1).map(({ after }) => after)).toEqual([
    { totp_ciphertext: "(hidden)" },
    { totp_enabled_at: expect.any(String) },
    null,
  ]);
});

test("a secret encrypted with a lost SECRET_KEY: every code is refused with the advice to use a recovery code, which works", async () => {
  const { person, recoveryCodes, code } = await addSecured();
  const pending = await world.addCustomer();
  const { secret } = await begin(pending);
  const other = { ...world.deps, config: { ...world.deps.config, secretKey: Buffer.alloc(32, 9) } };
  await expect(takeCode(other, person.accountId, code(1))).rejects.toThrow(InputError);
  await expect(takeCode(other, person.accountId, code(1))).rejects.toThrow("Use a recovery code");
  const confirmed = { ...pending, code: codeAt(secret), keepSession: KEEP_NONE };
  await expect(confirmSecondFactor(other, confirmed)).rejects.toThrow("Start again");
  expect(await takeCode(other, person.accountId, recoveryCodes[0] ?? "")).toBe(true);
  // Nothing is encrypted with a key that is not the database's.
  const third = await world.addCustomer();
  const names = { issuer: "ai.acme.example", label: "ann@example.com" };
  await expect(beginSecondFactor(other, { ...third, ...names })).rejects.toThrow("SECRET_KEY is not the key");
  const [row] = await world.sql`select totp_ciphertext from accounts where id = ${third.accountId}`;
  expect(row?.totp_ciphertext).toBeNull();
  // With the right key the codes work as before.
  expect(await takeCode(world.deps, person.accountId, code(1))).toBe(true);
});
