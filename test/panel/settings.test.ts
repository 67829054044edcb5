import { afterAll, beforeAll, expect, test } from "bun:test";
import { codeAt, wrongCode } from "../accounts/authenticator.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { addSecondFactor, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";

/** Source: ACC-4, ACC-5, ACC-7, RFC 6238. */

const NEW_PASSWORD = "an even longer password";
const WRONG = "a wrong password";

let shop: Shop;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
});
afterAll(() => shop.close());

const person = () => shop.world.addCustomer();
/** A customer, signed in. */
/** The kinds of messages that were sent to an account. */
const toldKinds = async ({ accountId }: { accountId: number }) =>
  (await shop.world.sql`select kind from outbox_messages where account_id = ${accountId} order by id`).map(
    ({ kind }) => kind,
  );
const somebody = async () => signInTo(shop, await person());

const audit = async ({ accountId }: PanelSession) =>
  shop.world.sql`select actor_id::int, request_id, action, subject, before, after from audit_entries
    where account_id = ${accountId} order by id`;

test("GET /settings returns the account's own settings", async () => {
  const session = await somebody();
  expect((await session.get("/settings")).json).toEqual({
    name: expect.any(String),
    email: session.email,
    emailChange: null,
    sendsMail: false,
    totpEnabled: false,
    recoveryCodesLeft: 0,
    notices: { unitsPercent: 20, balanceNanoUsd: "1000000000", days: 3 },
  });
});

test("the name is changed, stored as text and immediately in /me; the audit log has the actor", async () => {
  const session = await somebody();
  const name = `<script>alert("x")</script> & 'Zoë'`;
  const saved = await session.patch("/settings/profile", { name: ` ${name} ` });
  expect(saved.status).toBe(200);
  expect((await session.get("/me")).json.person.name).toBe(name);
  for (const wrong of ["", "  ", "x".repeat(101), "x".repeat(500), "a\u0000b", "a\nb", 5, null])
    expectRefusal(await session.patch("/settings/profile", { name: wrong }), "validation_failed", { param: "name" });
  expectRefusal(await session.patch("/settings/profile", { name: "A", role: "admin" }), "validation_failed", {
    param: "role",
  });
  const entry = (await audit(session)).at(-1);
  expect(entry).toMatchObject({
    actor_id: session.accountId,
    request_id: saved.headers.get("x-request-id"),
    action: "changed",
    subject: "accounts",
    after: { name },
  });
});

test("notices are changed one by one, within their limits", async () => {
  const session = await somebody();
  expect((await session.patch("/settings/notices", { balanceNanoUsd: "9000000000000000" })).status).toBe(200);
  expect((await session.patch("/settings/notices", { unitsPercent: 5, days: 0 })).status).toBe(200);
  const wrong: [body: Record<string, unknown>, param: string][] = [
    [{ unitsPercent: 101 }, "unitsPercent"],
    [{ unitsPercent: 1.5 }, "unitsPercent"],
    [{ days: 31 }, "days"],
    [{ days: -1 }, "days"],
    [{ balanceNanoUsd: "9000000000000001" }, "balanceNanoUsd"],
    [{ balanceNanoUsd: "-1" }, "balanceNanoUsd"],
    [{ balanceNanoUsd: 5 }, "balanceNanoUsd"],
    [{ balanceNanoUsd: "9".repeat(30) }, "balanceNanoUsd"],
  ];
  for (const [body, param] of wrong)
    expectRefusal(await session.patch("/settings/notices", body), "validation_failed", { param });
  expect((await session.get("/settings")).json.notices).toEqual({
    unitsPercent: 5,
    balanceNanoUsd: "9000000000000000",
    days: 0,
  });
});

test("a new password needs the current one, ends every other session, and is in no audit entry", async () => {
  const account = await person();
  const [here, elsewhere] = [await signInTo(shop, account), await signInTo(shop, account)];
  const change = (body: unknown) => here.post("/settings/password", body);
  expectRefusal(await change({ next: NEW_PASSWORD, proof: { password: WRONG } }), "validation_failed", {
    param: "password",
  });
  for (const next of ["short", "x".repeat(201)])
    expectRefusal(await change({ next, proof: { password: PASSWORD } }), "validation_failed", { param: "next" });
  expect((await elsewhere.get("/me")).status).toBe(200);
  expect((await change({ next: NEW_PASSWORD, proof: { password: PASSWORD } })).status).toBe(200);
  expect((await here.get("/me")).status).toBe(200);
  expectRefusal(await elsewhere.get("/me"), "session_required");
  expectRefusal(await change({ next: NEW_PASSWORD, proof: { password: PASSWORD } }), "validation_failed", {
    param: "password",
  });
  const rows = await audit(here);
  expect(rows.at(-1)).toMatchObject({ actor_id: here.accountId, after: { password_hash: "(hidden)" } });
  expect(JSON.stringify(rows)).not.toMatch(/argon2|password_hash":"\$/);
});

test("after ten wrong passwords in the settings the right one gets 429 with Retry-After in every form; the sign-in still works", async () => {
  const session = await somebody();
  for (let i = 0; i < 10; i++) {
    const [path, body] =
      i % 2 === 0
        ? ["/settings/password", { next: NEW_PASSWORD, proof: { password: `${WRONG} ${i}` } }]
        : ["/settings/totp", { proof: { password: `${WRONG} ${i}` } }];
    expectRefusal(await session.post(path as string, body), "validation_failed", { param: "password" });
  }
  const answer = await session.post("/settings/password", { next: NEW_PASSWORD, proof: { password: PASSWORD } });
  expectRefusal(answer, "too_many_requests");
  expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(800);
  expectRefusal(await session.post("/settings/totp", { proof: { password: PASSWORD } }), "too_many_requests");
  const renew = { proof: { password: PASSWORD, code: "123456" } };
  expectRefusal(await session.post("/settings/recovery-codes", renew), "too_many_requests");
  // Sign-in counts its own failures.
  expect((await (await signInTo(shop, session)).get("/me")).status).toBe(200);
});

test("one of eight concurrent password changes succeeds; the others name a password that is no longer current", async () => {
  const session = await somebody();
  const next = (i: number) => `${NEW_PASSWORD} ${i}`;
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, i) =>
      session.post("/settings/password", { next: next(i), proof: { password: PASSWORD } }),
    ),
  );
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  const refused = answers.filter(({ status }) => status !== 200).map(({ json }) => json.error.code);
  expect(refused).toEqual(Array(7).fill("validation_failed"));
});

test("devices are listed with the current one marked, and signed out one by one, by their owner only", async () => {
  const account = await person();
  const [here, elsewhere] = [await signInTo(shop, account), await signInTo(shop, account)];
  const { devices } = (await here.get("/settings/devices")).json;
  expect(devices).toHaveLength(2);
  expect(devices.filter(({ current }: { current: boolean }) => current)).toHaveLength(1);
  for (const secret of [here.cookie.split("=")[1], here.csrf]) expect(JSON.stringify(devices)).not.toContain(secret);
  const other = devices.find(({ current }: { current: boolean }) => !current);
  const stranger = await somebody();
  for (const id of [other.id, "x", "%00", "a".repeat(24), "a".repeat(101)])
    expectRefusal(await stranger.delete(`/settings/devices/${id}`), "not_found");
  expect((await elsewhere.get("/me")).status).toBe(200);
  expect((await here.delete(`/settings/devices/${other.id}`)).status).toBe(200);
  expectRefusal(await elsewhere.get("/me"), "session_required");
  expectRefusal(await here.delete(`/settings/devices/${other.id}`), "not_found");
  expect((await here.get("/settings/devices")).json.devices).toHaveLength(1);
});

test("the second factor is switched on by password, then code; it returns ten recovery codes once and ends every other session", async () => {
  const account = await person();
  const [here, elsewhere] = [await signInTo(shop, account), await signInTo(shop, account)];
  expectRefusal(await here.post("/settings/totp", { proof: { password: WRONG } }), "validation_failed", {
    param: "password",
  });
  expectRefusal(await here.post("/settings/totp/confirm", { code: "123456" }), "validation_failed", { param: "code" });
  const begun = await here.post("/settings/totp", { proof: { password: PASSWORD } });
  expect(begun.headers.get("cache-control")).toBe("no-store");
  const { secret, uri } = begun.json;
  // A reseller's customers must not see the operator's name.
  expect(decodeURIComponent(uri)).toStartWith(`otpauth://totp/${PANEL}:${here.email}?issuer=${PANEL}&secret=${secret}`);
  expect((await here.get("/settings")).json.totpEnabled).toBe(false);
  const wrong = await here.post("/settings/totp/confirm", { code: wrongCode(secret) });
  expectRefusal(wrong, "validation_failed", { param: "code" });
  expect((await elsewhere.get("/me")).status).toBe(200);
  const confirmed = await here.post("/settings/totp/confirm", { code: codeAt(secret) });
  expect(confirmed.json.recoveryCodes).toHaveLength(10);
  expect((await here.get("/settings")).json).toMatchObject({ totpEnabled: true, recoveryCodesLeft: 10 });
  expectRefusal(await elsewhere.get("/me"), "session_required");
  expectRefusal(await here.post("/settings/totp", { proof: { password: PASSWORD } }), "validation_failed", {
    param: "code",
  });
  const [recoveryCode] = confirmed.json.recoveryCodes;
  const again = await here.post("/settings/totp", { proof: { password: PASSWORD, code: recoveryCode } });
  expectRefusal(again, "validation_failed");
  const text = JSON.stringify(await audit(here));
  for (const hidden of [secret, ...confirmed.json.recoveryCodes]) expect(text).not.toContain(hidden);
});

test("new recovery codes need the password and a current code, and replace the old ones", async () => {
  const session = await somebody();
  const renew = (proof: unknown) => session.post("/settings/recovery-codes", { proof });
  expectRefusal(await renew({ password: PASSWORD, code: "123456" }), "validation_failed", { param: "code" });
  const { recoveryCodes, secret, code } = await addSecondFactor(session);
  expectRefusal(await renew({ password: WRONG, code: code(1) }), "validation_failed", { param: "password" });
  // With the password alone, new codes could remove the second factor.
  expectRefusal(await renew({ password: PASSWORD }), "validation_failed", { param: "code" });
  expectRefusal(await renew({ password: PASSWORD, code: wrongCode(secret) }), "validation_failed", { param: "code" });
  const [first = "", second = ""] = recoveryCodes;
  const renewed: string[] = (await renew({ password: PASSWORD, code: code(1) })).json.recoveryCodes;
  expect(new Set([...recoveryCodes, ...renewed]).size).toBe(20);
  expectRefusal(await renew({ password: PASSWORD, code: first }), "validation_failed", { param: "code" });
  const again: string[] = (await renew({ password: PASSWORD, code: renewed[0] })).json.recoveryCodes;
  expect(again).toHaveLength(10);
  const remove = (typed = "") => session.post("/settings/totp/remove", { proof: { password: PASSWORD, code: typed } });
  for (const old of [second, renewed[1]]) expectRefusal(await remove(old), "validation_failed", { param: "code" });
  expect((await remove(again[0])).status).toBe(200);
  // One message: a second factor that was never on, or is off, cannot be switched off.
  expect((await remove(again[1])).status).toBe(422);
  expect(await toldKinds(session)).toEqual(["second_factor_off"]);
});

test("with the second factor on, a new password needs a code too; a password that is too short uses up no code", async () => {
  const session = await somebody();
  const { secret, code } = await addSecondFactor(session);
  const change = (proof: object, next = NEW_PASSWORD) =>
    session.post("/settings/password", { next, proof: { password: PASSWORD, ...proof } });
  expectRefusal(await change({}), "validation_failed", { param: "code" });
  expectRefusal(await change({ code: wrongCode(secret) }), "validation_failed", { param: "code" });
  expectRefusal(await change({ code: code(1) }, "short"), "validation_failed", { param: "next" });
  expectRefusal(await change({ code: code(1), password: WRONG }), "validation_failed", { param: "password" });
  expect(await toldKinds(session)).toEqual([]);
  expect((await change({ code: code(1) })).status).toBe(200);
  expect(await toldKinds(session)).toEqual(["password_changed"]);
  expect((await session.get("/settings")).json.totpEnabled).toBe(true);
});

test("while the second factor is on, the password alone can neither replace nor remove it", async () => {
  const session = await somebody();
  const { secret } = await addSecondFactor(session);
  const [was] = await shop.world.sql`select totp_ciphertext from accounts where id = ${session.accountId}`;
  const digests = () =>
    shop.world.sql`select digest from recovery_codes where account_id = ${session.accountId} order by 1`;
  const codes = await digests();
  const tries: [path: string, body: object][] = [
    ["/settings/totp", { proof: { password: PASSWORD } }],
    ["/settings/totp/confirm", { code: codeAt(secret, 1) }],
    ["/settings/recovery-codes", { proof: { password: PASSWORD } }],
    ["/settings/totp/remove", { proof: { password: PASSWORD } }],
    ["/settings/password", { next: NEW_PASSWORD, proof: { password: PASSWORD } }],
  ];
  for (const [path, body] of tries) expect((await session.post(path, body)).status, path).toBe(422);
  const [now] = await shop.world
    .sql`select totp_ciphertext, totp_enabled_at is not null as on from accounts where id = ${session.accountId}`;
  expect({ ...now }).toEqual({ totp_ciphertext: was?.totp_ciphertext, on: true });
  expect(await digests()).toEqual(codes);
});

test("removing the second factor needs password and code, and ends every other session; the next sign-in needs no code", async () => {
  const account = await person();
  const session = await signInTo(shop, account);
  const { code, secret } = await addSecondFactor(session);
  const elsewhere = await signInTo(shop, account, { code: code(1) });
  const remove = (proof: unknown) => session.post("/settings/totp/remove", { proof });
  expectRefusal(await remove({ password: PASSWORD }), "validation_failed", { param: "code" });
  expectRefusal(await remove({ password: WRONG, code: code(1) }), "validation_failed", { param: "password" });
  expectRefusal(await remove({ password: PASSWORD, code: wrongCode(secret) }), "validation_failed", { param: "code" });
  expectRefusal(await remove({ password: PASSWORD, code: code(1) }), "validation_failed", { param: "code" });
  await shop.world.sql`update accounts set totp_last_step = 0 where id = ${session.accountId}`;
  expect((await elsewhere.get("/me")).status).toBe(200);
  expect((await remove({ password: PASSWORD, code: code(1) })).status).toBe(200);
  expectRefusal(await elsewhere.get("/me"), "session_required");
  expect((await session.get("/settings")).json).toMatchObject({ totpEnabled: false, recoveryCodesLeft: 0 });
  expect((await (await signInTo(shop, account)).get("/me")).status).toBe(200);
});

test("after ten wrong codes the right one gets 429, in every form; the right password in between does not reset the count", async () => {
  const session = await somebody();
  const { secret, code } = await addSecondFactor(session);
  const remove = (typed: string) =>
    session.post("/settings/totp/remove", { proof: { password: PASSWORD, code: typed } });
  for (let i = 0; i < 10; i++) {
    expectRefusal(await remove(wrongCode(secret)), "validation_failed", { param: "code" });
    // The password is right, and the code is missing.
    if (i % 3 === 0)
      expectRefusal(await session.post("/settings/totp", { proof: { password: PASSWORD } }), "validation_failed", {
        param: "code",
      });
  }
  const answer = await remove(code(1));
  expectRefusal(answer, "too_many_requests");
  expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(800);
  const renew = { proof: { password: PASSWORD, code: code(1) } };
  expectRefusal(await session.post("/settings/recovery-codes", renew), "too_many_requests");
  expectRefusal(await session.post("/settings/password", { next: NEW_PASSWORD, ...renew }), "too_many_requests");
});

test("wrong passwords and wrong codes are counted apart", async () => {
  const session = await somebody();
  const { secret, code } = await addSecondFactor(session);
  const remove = (password: string, code: string) =>
    session.post("/settings/totp/remove", { proof: { password, code } });
  for (let i = 0; i < 9; i++) {
    expectRefusal(await remove(WRONG, code(1)), "validation_failed", { param: "password" });
    expectRefusal(await remove(PASSWORD, wrongCode(secret)), "validation_failed", { param: "code" });
  }
  expect((await remove(PASSWORD, code(1))).status).toBe(200);
});
