import { afterAll, beforeAll, expect, test } from "bun:test";
import { codeAt, wrongCode } from "../accounts/authenticator.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { givePassword, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";

/** Source: ACC-4, ACC-5, ACC-7, RFC 6238. */

const NEW_PASSWORD = "an even longer password";
const WRONG = "a wrong password";

let shop: Shop;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
}, 60_000);
afterAll(() => shop.close());

const person = () => shop.world.addCustomer();
/** A person, signed in. */
const somebody = async () => signInTo(shop, await person());

/** Switches the second factor on. `code` counts its steps from the one confirmed with. */
async function secure(session: PanelSession) {
  const { secret } = (await session.post("/settings/totp", { password: PASSWORD })).json;
  const unixMs = Date.now();
  const confirmed = await session.post("/settings/totp/confirm", { code: codeAt(secret, 0, unixMs) });
  expect(confirmed.status).toBe(200);
  const recoveryCodes: string[] = confirmed.json.recoveryCodes;
  return { secret, recoveryCodes, code: (steps: number) => codeAt(secret, steps, unixMs) };
}

const audit = async ({ accountId }: PanelSession) =>
  shop.world.sql`select actor_id::int, request_id, action, subject, before, after from audit_entries
    where account_id = ${accountId} order by id`;

test("settings say what is set; those of nobody else", async () => {
  const session = await somebody();
  expect((await session.get("/settings")).json).toEqual({
    name: expect.any(String),
    email: session.email,
    totpEnabled: false,
    recoveryCodesLeft: 0,
    notices: { unitsPercent: 20, balanceNanoUsd: "1000000000", days: 3 },
  });
  for (const path of ["/settings", "/settings/devices"])
    expectRefusal(await shop.call(`/api/panel${path}`, { host: PANEL }), "session_required");
});

test("the name is changed, stored as text and shown in /me at once; the log names the person", async () => {
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

test("notices are changed one by one, within their bounds", async () => {
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

test("a new password asks for the old one, ends every other session, and stands in no log", async () => {
  const account = await person();
  const [here, elsewhere] = [await signInTo(shop, account), await signInTo(shop, account)];
  const change = (body: unknown) => here.post("/settings/password", body);
  expectRefusal(await change({ current: WRONG, next: NEW_PASSWORD }), "validation_failed", { param: "current" });
  for (const next of ["short", "x".repeat(201)])
    expectRefusal(await change({ current: PASSWORD, next }), "validation_failed", { param: "next" });
  expect((await elsewhere.get("/me")).status).toBe(200);
  expect((await change({ current: PASSWORD, next: NEW_PASSWORD })).status).toBe(200);
  expect((await here.get("/me")).status).toBe(200);
  expectRefusal(await elsewhere.get("/me"), "session_required");
  expectRefusal(await change({ current: PASSWORD, next: NEW_PASSWORD }), "validation_failed", { param: "current" });
  const rows = await audit(here);
  expect(rows.at(-1)).toMatchObject({ actor_id: here.accountId, after: { password_hash: "(hidden)" } });
  expect(JSON.stringify(rows)).not.toMatch(/argon2|password_hash":"\$/);
});

test("ten wrong passwords in the settings: 429 with Retry-After for the right one too, wherever it is asked", async () => {
  const session = await somebody();
  for (let i = 0; i < 10; i++) {
    const [path, body] =
      i % 2 === 0
        ? ["/settings/password", { current: `${WRONG} ${i}`, next: NEW_PASSWORD }]
        : ["/settings/totp", { password: `${WRONG} ${i}` }];
    expectRefusal(await session.post(path as string, body), "validation_failed", {
      param: i % 2 === 0 ? "current" : "password",
    });
  }
  const answer = await session.post("/settings/password", { current: PASSWORD, next: NEW_PASSWORD });
  expectRefusal(answer, "too_many_requests");
  expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(800);
  expectRefusal(await session.post("/settings/totp", { password: PASSWORD }), "too_many_requests");
  const renew = { password: PASSWORD, code: "123456" };
  expectRefusal(await session.post("/settings/recovery-codes", renew), "too_many_requests");
  // What was counted is the person in their settings, not the sign-in.
  expect((await (await signInTo(shop, session)).get("/me")).status).toBe(200);
});

test("eight changes of the password at once: one, since the others proved a password that is no more", async () => {
  const session = await somebody();
  const next = (i: number) => `${NEW_PASSWORD} ${i}`;
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, i) => session.post("/settings/password", { current: PASSWORD, next: next(i) })),
  );
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  for (const answer of answers.filter(({ status }) => status !== 200))
    expectRefusal(answer, "validation_failed", { param: "current" });
});

test("devices are listed with this one marked, signed out one by one, and are nobody else's to end", async () => {
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

test("the second factor: password, secret, code, ten recovery codes shown once; every other session ends", async () => {
  const account = await person();
  const [here, elsewhere] = [await signInTo(shop, account), await signInTo(shop, account)];
  expectRefusal(await here.post("/settings/totp", { password: WRONG }), "validation_failed", { param: "password" });
  expectRefusal(await here.post("/settings/totp/confirm", { code: "123456" }), "validation_failed", { param: "code" });
  const begun = await here.post("/settings/totp", { password: PASSWORD });
  expect(begun.headers.get("cache-control")).toBe("no-store");
  const { secret, uri } = begun.json;
  // A reseller's people know the service by the host they are on, and by nothing else.
  expect(decodeURIComponent(uri)).toStartWith(`otpauth://totp/${PANEL}:${here.email}?issuer=${PANEL}&secret=${secret}`);
  expect((await here.get("/settings")).json.totpEnabled).toBe(false);
  const wrong = await here.post("/settings/totp/confirm", { code: wrongCode(secret) });
  expectRefusal(wrong, "validation_failed", { param: "code" });
  expect((await elsewhere.get("/me")).status).toBe(200);
  const confirmed = await here.post("/settings/totp/confirm", { code: codeAt(secret) });
  expect(confirmed.json.recoveryCodes).toHaveLength(10);
  expect((await here.get("/settings")).json).toMatchObject({ totpEnabled: true, recoveryCodesLeft: 10 });
  expectRefusal(await elsewhere.get("/me"), "session_required");
  expectRefusal(await here.post("/settings/totp", { password: PASSWORD }), "validation_failed");
  const text = JSON.stringify(await audit(here));
  for (const hidden of [secret, ...confirmed.json.recoveryCodes]) expect(text).not.toContain(hidden);
});

test("new recovery codes ask for the password and a current code; the old ones are gone", async () => {
  const session = await somebody();
  const renew = (body: unknown) => session.post("/settings/recovery-codes", body);
  expectRefusal(await renew({ password: PASSWORD, code: "123456" }), "validation_failed", { param: "code" });
  const { recoveryCodes, secret, code } = await secure(session);
  expectRefusal(await renew({ password: WRONG, code: code(1) }), "validation_failed", { param: "password" });
  // The password alone: with the codes that it would give, the second factor could be removed without ever having had it.
  expectRefusal(await renew({ password: PASSWORD }), "validation_failed", { param: "code" });
  expectRefusal(await renew({ password: PASSWORD, code: wrongCode(secret) }), "validation_failed", { param: "code" });
  const [first = "", second = ""] = recoveryCodes;
  const renewed: string[] = (await renew({ password: PASSWORD, code: code(1) })).json.recoveryCodes;
  expect(new Set([...recoveryCodes, ...renewed]).size).toBe(20);
  expectRefusal(await renew({ password: PASSWORD, code: first }), "validation_failed", { param: "code" });
  const again: string[] = (await renew({ password: PASSWORD, code: renewed[0] })).json.recoveryCodes;
  expect(again).toHaveLength(10);
  const remove = (typed = "") => session.post("/settings/totp/remove", { password: PASSWORD, code: typed });
  for (const old of [second, renewed[1]]) expectRefusal(await remove(old), "validation_failed", { param: "code" });
  expect((await remove(again[0])).status).toBe(200);
});

test("a new password asks for a code too where the second factor is on; a new password that is too short uses none up", async () => {
  const session = await somebody();
  const { secret, code } = await secure(session);
  const change = (body: object) =>
    session.post("/settings/password", { current: PASSWORD, next: NEW_PASSWORD, ...body });
  expectRefusal(await change({}), "validation_failed", { param: "code" });
  expectRefusal(await change({ code: wrongCode(secret) }), "validation_failed", { param: "code" });
  expectRefusal(await change({ code: code(1), next: "short" }), "validation_failed", { param: "next" });
  expectRefusal(await change({ code: code(1), current: WRONG }), "validation_failed", { param: "current" });
  expect((await change({ code: code(1) })).status).toBe(200);
  expect((await session.get("/settings")).json.totpEnabled).toBe(true);
});

test("while the second factor is on, nothing that the password alone can do replaces it or takes it away", async () => {
  const session = await somebody();
  const { secret } = await secure(session);
  const [was] = await shop.world.sql`select totp_ciphertext from accounts where id = ${session.accountId}`;
  const digests = () =>
    shop.world.sql`select digest from recovery_codes where account_id = ${session.accountId} order by 1`;
  const codes = await digests();
  const tries: [path: string, body: object][] = [
    ["/settings/totp", { password: PASSWORD }],
    ["/settings/totp/confirm", { code: codeAt(secret, 1) }],
    ["/settings/recovery-codes", { password: PASSWORD }],
    ["/settings/totp/remove", { password: PASSWORD }],
    ["/settings/password", { current: PASSWORD, next: NEW_PASSWORD }],
  ];
  for (const [path, body] of tries) expect((await session.post(path, body)).status, path).toBe(422);
  const [now] = await shop.world
    .sql`select totp_ciphertext, totp_enabled_at is not null as on from accounts where id = ${session.accountId}`;
  expect({ ...now }).toEqual({ totp_ciphertext: was?.totp_ciphertext, on: true });
  expect(await digests()).toEqual(codes);
});

test("removing it asks for password and code together; every other session ends, and the next sign-in needs no code", async () => {
  const account = await person();
  const session = await signInTo(shop, account);
  const { code, secret } = await secure(session);
  const elsewhere = await signInTo(shop, account, { code: code(1) });
  const remove = (body: unknown) => session.post("/settings/totp/remove", body);
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

test("ten wrong codes: 429, the right code included; the right password in between buys no further guess", async () => {
  const session = await somebody();
  const { secret, code } = await secure(session);
  const remove = (typed: string) => session.post("/settings/totp/remove", { password: PASSWORD, code: typed });
  for (let i = 0; i < 10; i++) {
    expectRefusal(await remove(wrongCode(secret)), "validation_failed", { param: "code" });
    // Proves the password, and is refused since the second factor is on.
    if (i % 3 === 0) expectRefusal(await session.post("/settings/totp", { password: PASSWORD }), "validation_failed");
  }
  const answer = await remove(code(1));
  expectRefusal(answer, "too_many_requests");
  expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(800);
  const renew = { password: PASSWORD, code: code(1) };
  expectRefusal(await session.post("/settings/recovery-codes", renew), "too_many_requests");
  expectRefusal(
    await session.post("/settings/password", { current: PASSWORD, next: NEW_PASSWORD, code: code(1) }),
    "too_many_requests",
  );
});

test("ten wrong passwords leave the codes alone, and ten wrong codes the passwords", async () => {
  const session = await somebody();
  const { secret, code } = await secure(session);
  const remove = (password: string, typed: string) => session.post("/settings/totp/remove", { password, code: typed });
  for (let i = 0; i < 9; i++) {
    expectRefusal(await remove(WRONG, code(1)), "validation_failed", { param: "password" });
    expectRefusal(await remove(PASSWORD, wrongCode(secret)), "validation_failed", { param: "code" });
  }
  expect((await remove(PASSWORD, code(1))).status).toBe(200);
});

test("every change asks for the CSRF token", async () => {
  const session = await somebody();
  const changes: [method: string, path: string, body: unknown][] = [
    ["POST", "/settings/password", { current: PASSWORD, next: NEW_PASSWORD }],
    ["POST", "/settings/totp", { password: PASSWORD }],
    ["POST", "/settings/totp/confirm", { code: "123456" }],
    ["POST", "/settings/totp/remove", { password: PASSWORD, code: "123456" }],
    ["POST", "/settings/recovery-codes", { password: PASSWORD, code: "123456" }],
    ["PATCH", "/settings/profile", { name: "Other" }],
    ["PATCH", "/settings/notices", { days: 1 }],
    ["DELETE", "/settings/devices/x", undefined],
    ["POST", "/sign-out-everywhere", {}],
  ];
  for (const [method, path, body] of changes) {
    const at = { host: PANEL, method, ...(body !== undefined && { body }) };
    const own = { cookie: session.cookie, origin: `http://${PANEL}` };
    for (const headers of [
      own,
      { ...own, "x-csrf-token": "x" },
      { cookie: session.cookie, "x-csrf-token": session.csrf },
    ])
      expectRefusal(await shop.call(`/api/panel${path}`, { ...at, headers }), "csrf_failed");
    expectRefusal(
      await shop.call(`/api/panel${path}`, { ...at, headers: { origin: `http://${PANEL}` } }),
      "session_required",
    );
  }
  await givePassword(shop, session);
  expect((await session.get("/settings")).json).toMatchObject({ totpEnabled: false, notices: { days: 3 } });
});
