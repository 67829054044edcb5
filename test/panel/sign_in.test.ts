import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { wrongCode } from "../accounts/authenticator.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { ownRedis } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { addSecondFactor, cookieOf, givePassword, PANEL, PASSWORD, signInTo } from "./panel_client.ts";

/** Sign-in by password and second factor, the session that starts, and links that set a password. Source: ERR-1, DOM-5, ACC-4. */

const ACME = "ai.acme.test";
const OTHER = "ai.other.test";
const NEW_PASSWORD = "an even longer password";
const PROXIED = { TRUSTED_PROXIES: "127.0.0.1,::1" };

let shop: Shop;
let acme: Person;
let addresses = 0;

beforeAll(async () => {
  // Without Redis each replica counts failures by itself; they share the database.
  shop = await openShop({ redisUrl: "", replicas: 2, env: PROXIED });
  acme = await shop.world.addReseller(ACME);
  await shop.world.addReseller(OTHER);
});
afterAll(() => shop.close());

type Call = { host?: string; address?: string; replica?: number; headers?: Record<string, string> };

/** An unused address, so that one test's failures do not count against another's. */
const newAddress = () => `198.18.${++addresses >> 8}.${addresses & 255}`;

function post(path: string, body: unknown, { host = PANEL, address = newAddress(), replica = 0, headers }: Call = {}) {
  return shop.call(`/api/panel${path}`, {
    host,
    body,
    origin: shop.replicas[replica]?.origin ?? "",
    headers: { origin: `http://${host}`, "x-forwarded-for": address, ...headers },
  });
}

const trySignIn = (body: { email: string; password?: string; code?: string }, call: Call = {}) =>
  post("/sign-in", { password: PASSWORD, ...body }, call);
const me = (cookie: string, host = PANEL) => shop.call("/api/panel/me", { host, headers: { cookie } });

async function addPerson(resellerId?: number) {
  const person = await shop.world.addCustomer(resellerId);
  return { ...person, email: await givePassword(shop, person) };
}

/** A customer with the second factor on, set up through the panel. `code(n)` is n half minutes after the confirmed code. */
async function addSecured(resellerId?: number) {
  const person = await addPerson(resellerId);
  const session = await signInTo(shop, person, { host: resellerId === undefined ? PANEL : ACME });
  return { ...person, session, ...(await addSecondFactor(session)) };
}

describe("the password", () => {
  test("90 right sign-ins at once from ten networks do not keep ten other people out", async () => {
    const [busy, others] = await Promise.all([
      Promise.all(Array.from({ length: 10 }, () => addPerson())),
      Promise.all(Array.from({ length: 10 }, () => addPerson())),
    ]);
    const networks = busy.map(() => newAddress());
    const flood = Array.from({ length: 90 }, (_, i) =>
      trySignIn({ email: busy[i % 10]?.email ?? "" }, { address: networks[(i + Math.floor(i / 10)) % 10] ?? "" }),
    );
    const statuses: number[] = [];
    for (const { email } of others) statuses.push((await trySignIn({ email })).status);
    expect(statuses).toEqual(others.map(() => 200));
    for (const answer of await Promise.all(flood)) expect([200, 429]).toContain(answer.status);
  });

  test("after 60 right sign-ins within a quarter of an hour, an account gets 429, from any network; others sign in", async () => {
    const [person, other] = [await addPerson(), await addPerson()];
    for (let i = 0; i < 60; i++) expect((await trySignIn(person)).status).toBe(200);
    expectRefusal(await trySignIn(person), "too_many_requests");
    expect((await trySignIn(other)).status).toBe(200);
  });

  test("sign-in sets a cookie that scripts cannot read, and returns the page's CSRF token", async () => {
    const answer = await trySignIn(await addPerson());
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
    expect(answer.headers.get("cache-control")).toBe("no-store");
    const [pair = "", ...attributes] = (answer.headers.get("set-cookie") ?? "").split("; ");
    expect(pair).toMatch(/^\w+_session=[\w-]{43}$/);
    expect(attributes.map((one) => one.toLowerCase())).toEqual(
      expect.arrayContaining(["httponly", "samesite=lax", "path=/"]),
    );
    expect(attributes.join(";").toLowerCase()).not.toMatch(/domain=|secure/);
    expect(answer.text).not.toContain(pair.split("=")[1] ?? "none");
    expect(answer.json).toEqual({ csrfToken: expect.stringMatching(/^[\w-]{43}$/), expiresAt: expect.any(String) });
  });

  test("over TLS the cookie is Secure and bound to its host by __Host-", async () => {
    const secure = await shop.start({ PANEL_URL: `https://${PANEL}` });
    try {
      const { origin } = secure;
      const body = { email: (await addPerson()).email, password: PASSWORD };
      const headers = { origin: `https://${PANEL}` };
      const answer = await shop.call("/api/panel/sign-in", { host: PANEL, origin, headers, body });
      const cookie = answer.headers.get("set-cookie") ?? "";
      expect(cookie).toMatch(/^__Host-\w+_session=/);
      expect(cookie.toLowerCase()).toContain("; secure");
      expect(cookie.toLowerCase()).toContain("path=/");
      expect(cookie.toLowerCase()).not.toContain("domain");
      const signedIn = { host: PANEL, headers: { cookie: cookieOf(answer) }, origin };
      expect((await shop.call("/api/panel/me", signedIn)).status).toBe(200);
    } finally {
      await secure.kill();
    }
  });

  test("the e-mail address is matched in any case", async () => {
    const { email, accountId } = await addPerson();
    const answer = await trySignIn({ email: email.toUpperCase() });
    expect((await me(cookieOf(answer))).json.person).toMatchObject({ accountId, email });
  });

  test("the same 401 for a wrong password, an unknown e-mail, an account without a password and a suspended one", async () => {
    const [person, suspended] = [await addPerson(), await addPerson()];
    await shop.world.sql`update accounts set status = 'suspended' where id = ${suspended.accountId}`;
    const noPassword = await shop.world.addCustomer();
    const [row] = await shop.world.sql`select email from accounts where id = ${noPassword.accountId}`;
    const answers = [
      await trySignIn({ email: person.email, password: "a wrong password" }),
      await trySignIn({ email: "nobody@example.com" }),
      await trySignIn({ email: String(row?.email) }),
      await trySignIn({ email: suspended.email }),
    ];
    for (const answer of answers) {
      expectRefusal(answer, "session_required");
      expect(answer.headers.get("set-cookie")).toBeNull();
    }
    expect(new Set(answers.map(({ json }) => JSON.stringify(json.error))).size).toBe(1);
  });

  test("422, 415 and 413 for malformed bodies", async () => {
    const email = "a@example.com";
    const bodies: [body: unknown, param: string | null][] = [
      ["{", null],
      ["[]", null],
      [{ password: PASSWORD }, "email"],
      [{ email }, "password"],
      [{ email: 5, password: PASSWORD }, "email"],
      [{ email, password: "" }, "password"],
      [{ email, password: { $ne: 1 } }, "password"],
      [{ email, password: "x".repeat(1001) }, "password"],
    ];
    for (const [body, param] of bodies) expectRefusal(await post("/sign-in", body), "validation_failed", { param });
    const plainText = { headers: { "content-type": "text/plain" } };
    expectRefusal(await post("/sign-in", "x", plainText), "unsupported_media_type");
    expectRefusal(await post("/sign-in", { email, password: "x".repeat(20_000) }), "request_too_large");
  });

  test("403 csrf_failed without an Origin or with a foreign one; 405 for GET", async () => {
    const { email } = await addPerson();
    const origins = [
      "",
      "null",
      "http://evil.test",
      "http://api.tollgate.test",
      `http://${PANEL}.evil.test`,
      `http://evil.test/${PANEL}`,
      `http://${PANEL}:8080`,
      "x",
    ];
    for (const origin of origins) {
      const answer = await trySignIn({ email }, { headers: { origin } });
      expectRefusal(answer, "csrf_failed");
      expect(answer.headers.get("set-cookie")).toBeNull();
    }
    expectRefusal(await shop.call("/api/panel/sign-in", { host: PANEL }), "method_not_allowed");
  });

  test("ten wrong passwords get 429 for the right one too, and for every e-mail from that address", async () => {
    const { email } = await addPerson();
    const address = newAddress();
    for (let i = 0; i < 10; i++)
      expectRefusal(await trySignIn({ email, password: `wrong password ${i}` }, { address }), "session_required");
    const answer = await trySignIn({ email });
    expectRefusal(answer, "too_many_requests");
    expect(Number(answer.headers.get("retry-after"))).toBeLessThanOrEqual(900);
    for (const other of ["nobody@example.com", (await addPerson()).email])
      expectRefusal(await trySignIn({ email: other }, { address }), "too_many_requests");
  });

  test("no other spelling of an address has a limit of its own", async () => {
    const { email } = await addPerson();
    // Postgres has no NUL in text: an address with one is nobody's, whatever is around it.
    for (const at of [0, 3, email.length])
      expectRefusal(await trySignIn({ email: `${email.slice(0, at)}\0${email.slice(at)}` }), "session_required");
    for (let i = 0; i < 10; i++) {
      const spelling = [email, ` ${email} `, email.toUpperCase()][i % 3] ?? "";
      expectRefusal(await trySignIn({ email: spelling, password: `wrong password ${i}` }), "session_required");
    }
    expectRefusal(await trySignIn({ email }), "too_many_requests");
  });

  test("admins sign in on the panel's host only, resellers there and on their domains, a reseller's customers on its domains only", async () => {
    const admin = await shop.world.addAdmin();
    const customer = await addPerson(acme.accountId);
    const direct = await addPerson();
    const rows: [email: string, hosts: string[]][] = [
      [await givePassword(shop, admin), [PANEL]],
      [await givePassword(shop, acme), [PANEL, ACME]],
      [customer.email, [ACME]],
      [direct.email, [PANEL]],
    ];
    for (const [email, allowed] of rows) {
      for (const host of [PANEL, ACME, OTHER]) {
        const answer = await trySignIn({ email }, { host });
        if (allowed.includes(host))
          expect({ email, host, status: answer.status }).toEqual({ email, host, status: 200 });
        else expectRefusal(answer, "session_required");
      }
    }
  });
});

describe("the second factor", () => {
  test("the right password alone gets 401 second_factor_required and no cookie; with the code it signs in", async () => {
    const { email, accountId, code } = await addSecured();
    const asked = await trySignIn({ email });
    expect(asked.status).toBe(401);
    expect(asked.json.error).toMatchObject({
      code: "second_factor_required",
      type: "authentication_error",
      param: null,
    });
    expect(asked.headers.get("set-cookie")).toBeNull();
    const entered = await trySignIn({ email, code: code(1) });
    expect(entered.status).toBe(200);
    expect((await me(cookieOf(entered))).json.person.accountId).toBe(accountId);
  });

  test("a wrong password gets the same 401 with and without a second factor, with and without a code", async () => {
    const [secured, plain] = [await addSecured(), await addPerson()];
    const password = "a wrong password";
    const answers = [
      await trySignIn({ email: plain.email, password }),
      await trySignIn({ email: secured.email, password }),
      await trySignIn({ email: secured.email, password, code: secured.code(1) }),
      await trySignIn({ email: "nobody@example.com", password, code: secured.code(1) }),
    ];
    for (const answer of answers) expectRefusal(answer, "session_required");
    expect(new Set(answers.map(({ json }) => JSON.stringify(json.error))).size).toBe(1);
    // The code was not used up by a wrong password.
    expect((await trySignIn({ email: secured.email, code: secured.code(1) })).status).toBe(200);
  });

  test("a sign-in that lacks only the code does not count as a failure", async () => {
    const { email, code } = await addSecured();
    const address = newAddress();
    for (let i = 0; i < 12; i++)
      expect((await trySignIn({ email }, { address })).json.error.code).toBe("second_factor_required");
    expect((await trySignIn({ email, code: code(1) }, { address })).status).toBe(200);
  });

  test("after ten wrong codes the right one gets 429 with Retry-After; the right password in between does not reset the count", async () => {
    const { email, secret, code } = await addSecured();
    for (let i = 0; i < 10; i++) {
      expectRefusal(await trySignIn({ email, code: wrongCode(secret) }), "session_required");
      if (i < 9) expect((await trySignIn({ email })).json.error.code).toBe("second_factor_required");
    }
    const answer = await trySignIn({ email, code: code(1) });
    expectRefusal(answer, "too_many_requests");
    expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(800);
    // The codes were guessed, not the password.
    expect((await trySignIn({ email })).json.error.code).toBe("second_factor_required");
  });

  test("wrong codes at sign-in and in the settings are counted together, per account", async () => {
    const { email, session, secret, code } = await addSecured();
    const remove = (typed: string) =>
      session.post("/settings/totp/remove", { proof: { password: PASSWORD, code: typed } });
    for (let i = 0; i < 5; i++) {
      expectRefusal(await trySignIn({ email, code: wrongCode(secret) }), "session_required");
      expectRefusal(await remove(wrongCode(secret)), "validation_failed", { param: "code" });
    }
    expectRefusal(await trySignIn({ email, code: code(1) }), "too_many_requests");
    expectRefusal(await remove(code(1)), "too_many_requests");
  });

  test("after ten wrong codes over two replicas with Redis, both replicas refuse the right one", async () => {
    const redis = await ownRedis();
    const shared = await openShop({ redisUrl: redis.url, replicas: 2, env: PROXIED });
    try {
      const person = await shared.world.addCustomer();
      const session = await signInTo(shared, person);
      const { secret, code } = await addSecondFactor(session);
      const enter = (replica: number, typed: string) =>
        shared.call("/api/panel/sign-in", {
          host: PANEL,
          origin: shared.replicas[replica]?.origin ?? "",
          headers: { origin: `http://${PANEL}`, "x-forwarded-for": newAddress() },
          body: { email: session.email, password: PASSWORD, code: typed },
        });
      const wrong = wrongCode(secret);
      for (let i = 0; i < 10; i++) expectRefusal(await enter(i % 2, wrong), "session_required");
      for (const replica of [0, 1]) expectRefusal(await enter(replica, code(1)), "too_many_requests");
    } finally {
      await shared.close();
      await redis.stop();
    }
  });

  test("wrong codes count against the address, together with wrong passwords", async () => {
    const { email, secret } = await addSecured();
    const address = newAddress();
    for (let i = 0; i < 5; i++) {
      await trySignIn({ email, code: wrongCode(secret) }, { address });
      await trySignIn({ email: `nobody${i}@example.com` }, { address });
    }
    expectRefusal(await trySignIn({ email: (await addPerson()).email }, { address }), "too_many_requests");
  });

  test("a code works once, also for eight concurrent sign-ins over two replicas", async () => {
    const { email, code } = await addSecured();
    const one = code(1);
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, i) => trySignIn({ email, code: one }, { replica: i % 2 })),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 200)) {
      expectRefusal(answer, "session_required");
      expect(answer.headers.get("set-cookie")).toBeNull();
    }
    expectRefusal(await trySignIn({ email, code: one }), "session_required");
  });

  test("a recovery code works once in place of a code, also for eight concurrent sign-ins over two replicas", async () => {
    const { email, session, recoveryCodes } = await addSecured();
    const [first = "", second = ""] = recoveryCodes;
    expect((await trySignIn({ email, code: first })).status).toBe(200);
    expectRefusal(await trySignIn({ email, code: first }), "session_required");
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, i) => trySignIn({ email, code: second.toLowerCase() }, { replica: i % 2 })),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect((await session.get("/settings")).json.recoveryCodesLeft).toBe(8);
  });

  test("422 validation_failed for a malformed code, 401 for one that is only wrong", async () => {
    const { email } = await addSecured();
    for (const code of ["", "x".repeat(41), 123456, null, ["1"]])
      expectRefusal(await post("/sign-in", { email, password: PASSWORD, code }), "validation_failed", {
        param: "code",
      });
    for (const code of ["123 45", "\0", "０１２３４５", "<script>"])
      expectRefusal(await trySignIn({ email, code }), "session_required");
  });
});

describe("the new session", () => {
  test("has a new token, even if the browser sent a cookie from before", async () => {
    const { email, accountId } = await addPerson();
    const planted = `tollgate_session=${"A".repeat(43)}`;
    const answer = await trySignIn({ email }, { headers: { cookie: planted } });
    expect(cookieOf(answer)).not.toBe(planted);
    expectRefusal(await me(planted), "session_required");
    expect((await me(cookieOf(answer))).json.person.accountId).toBe(accountId);
    const again = await trySignIn({ email }, { headers: { cookie: cookieOf(answer) } });
    expect(cookieOf(again)).not.toBe(cookieOf(answer));
  });

  test("is listed with its browser and address, as plain text within limits", async () => {
    const { email } = await addPerson();
    const headers = { "user-agent": `<script>alert(1)</script>\t${"x".repeat(400)}` };
    const answer = await trySignIn({ email }, { address: "203.0.113.9", headers });
    const { devices } = (
      await shop.call("/api/panel/settings/devices", { host: PANEL, headers: { cookie: cookieOf(answer) } })
    ).json;
    expect(devices).toEqual([
      {
        id: expect.stringMatching(/^[0-9a-f]{24}$/),
        host: PANEL,
        userAgent: `<script>alert(1)</script>${"x".repeat(275)}`,
        address: "203.0.113.9",
        createdAt: expect.any(String),
        seenAt: expect.any(String),
        expiresAt: expect.any(String),
        current: true,
      },
    ]);
  });

  test("/me returns the person, the host's brand and the API's base URL, which is the host itself on a reseller's domain", async () => {
    const [here, there] = [
      await signInTo(shop, await addPerson()),
      await signInTo(shop, await addPerson(acme.accountId), { host: ACME }),
    ];
    expect((await here.get("/me")).json).toEqual({
      person: {
        accountId: here.accountId,
        role: "customer",
        name: expect.any(String),
        email: here.email,
        language: null,
      },
      account: { accountId: here.accountId, role: "customer", name: expect.any(String), email: here.email },
      member: "owner",
      accounts: [{ accountId: here.accountId, name: expect.any(String), role: "owner" }],
      viewing: null,
      host: PANEL,
      brand: { name: "Tollgate", logoLight: null, logoDark: null, support: null },
      csrfToken: here.csrf,
      serverTime: expect.stringMatching(/^\d{4}-.*Z$/),
      billingTimeZone: "UTC",
      apiBaseUrl: "http://api.tollgate.test/v1",
    });
    expect((await there.get("/me")).json).toMatchObject({
      host: ACME,
      brand: { name: expect.stringMatching(/^reseller\d+$/), logoLight: null, logoDark: null, support: null },
      apiBaseUrl: `http://${ACME}/v1`,
    });
  });

  test("sign out everywhere ends all other sessions, and with `thisToo` this one", async () => {
    const person = await addPerson();
    const [one, two, three] = [
      await signInTo(shop, person),
      await signInTo(shop, person),
      await signInTo(shop, person),
    ];
    const lives = async () =>
      (await Promise.all([one, two, three].map((s) => s.get("/me")))).map(({ status }) => status);
    expect((await one.post("/sign-out-everywhere")).json).toEqual({ ended: 2 });
    expect(await lives()).toEqual([200, 401, 401]);
    expectRefusal(await one.post("/sign-out-everywhere", { thisToo: "yes" }), "validation_failed", {
      param: "thisToo",
    });
    const last = await one.post("/sign-out-everywhere", { thisToo: true });
    expect(last.json).toEqual({ ended: 1 });
    expect(last.headers.get("set-cookie")).toMatch(/Max-Age=0/i);
    expect(await lives()).toEqual([401, 401, 401]);
  });
});

describe("links", () => {
  /** A link as an admin, or `by`, creates it. */
  async function linkFor(person: Person, by?: { post: (path: string) => Promise<Answer> }) {
    const maker = by ?? (await signInTo(shop, await shop.world.addAdmin()));
    const answer = await maker.post(`/people/${person.accountId}/link`);
    expect(answer.status).toBe(200);
    return { ...answer.json, token: new URL(answer.json.url).pathname.split("/")[2] as string };
  }
  const open = (token: string, { host = PANEL, address = newAddress() }: Call = {}) =>
    shop.call(`/api/panel/links/${token}`, { host, headers: { "x-forwarded-for": address } });

  test("an invitation shows whom it is for, sets the password, signs in, and works once", async () => {
    const person = await shop.world.addCustomer();
    const { kind, token, expiresAt } = await linkFor(person);
    expect(kind).toBe("invitation");
    const opened = await open(token);
    expect(opened.json).toEqual({ kind, name: expect.any(String), email: expect.any(String), expiresAt });
    expect(opened.headers.get("cache-control")).toBe("no-store");
    const set = await post(`/links/${token}`, { password: NEW_PASSWORD });
    expect(set.json).toEqual({ signIn: false, csrfToken: expect.any(String), expiresAt: expect.any(String) });
    expect(set.headers.get("set-cookie")).toMatch(/HttpOnly/i);
    expect((await me(cookieOf(set))).json.person.accountId).toBe(person.accountId);
    expectRefusal(await open(token), "not_found");
    expectRefusal(await post(`/links/${token}`, { password: NEW_PASSWORD }), "not_found");
    expect((await trySignIn({ email: opened.json.email, password: NEW_PASSWORD })).status).toBe(200);
  });

  test("a reset ends every session and the old password", async () => {
    const person = await addPerson();
    const session = await signInTo(shop, person);
    const { kind, token } = await linkFor(person);
    expect(kind).toBe("reset");
    const set = await post(`/links/${token}`, { password: NEW_PASSWORD });
    expect(set.status).toBe(200);
    expectRefusal(await session.get("/me"), "session_required");
    expectRefusal(await trySignIn({ email: person.email }), "session_required");
    expect((await me(cookieOf(set))).status).toBe(200);
  });

  test("with the second factor on, a reset sets the password but does not sign in", async () => {
    const person = await addSecured();
    const { token } = await linkFor(person);
    const set = await post(`/links/${token}`, { password: NEW_PASSWORD });
    expect(set.json).toEqual({ signIn: true });
    expect(set.headers.get("set-cookie")).toBeNull();
    const { email } = person;
    expect((await trySignIn({ email, password: NEW_PASSWORD })).json.error.code).toBe("second_factor_required");
    expect((await trySignIn({ email, password: NEW_PASSWORD, code: person.code(1) })).status).toBe(200);
  });

  test("one of ten concurrent submits over two replicas sets the password", async () => {
    const person = await shop.world.addCustomer();
    const { token } = await linkFor(person);
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, i) =>
        post(`/links/${token}`, { password: `${NEW_PASSWORD} ${i}` }, { replica: i % 2 }),
      ),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 200)) expectRefusal(answer, "not_found");
  });

  test("an unknown, an expired and a replaced link get the same 404", async () => {
    const [expired, replaced] = [await shop.world.addCustomer(), await shop.world.addCustomer()];
    const links = [await linkFor(expired), await linkFor(replaced)];
    await linkFor(replaced);
    await shop.world
      .sql`update links set expires_at = now() - interval '1 second' where account_id = ${expired.accountId}`;
    const tokens = [...links.map(({ token }) => token), "A".repeat(43), "x", "%00", "a".repeat(100)];
    const texts = new Set<string>();
    for (const token of tokens) {
      const answers = [await open(token), await post(`/links/${token}`, { password: NEW_PASSWORD })];
      for (const answer of answers) {
        expectRefusal(answer, "not_found");
        expect(answer.headers.get("set-cookie")).toBeNull();
        texts.add(JSON.stringify(answer.json.error));
      }
    }
    expect(texts.size).toBe(1);
  });

  test("a link works only on hosts where its account may sign in", async () => {
    const reseller = await signInTo(shop, acme);
    const customer = await shop.world.addCustomer(acme.accountId);
    const { url, token } = await linkFor(customer, reseller);
    expect(url).toBe(`http://${ACME}/invite/${token}`);
    for (const host of [PANEL, OTHER]) {
      expectRefusal(await open(token, { host }), "not_found");
      expectRefusal(await post(`/links/${token}`, { password: NEW_PASSWORD }, { host }), "not_found");
    }
    expectRefusal(await open(token, { host: "api.tollgate.test" }), "host_not_allowed");
    expect((await open(token, { host: ACME })).status).toBe(200);
    const direct = await linkFor(await shop.world.addCustomer());
    expect(direct.url).toBe(`http://${PANEL}/invite/${direct.token}`);
    expectRefusal(await open(direct.token, { host: ACME }), "not_found");
    expect((await post(`/links/${token}`, { password: NEW_PASSWORD }, { host: ACME })).status).toBe(200);
  });

  test("a suspended account's link does not work", async () => {
    const person = await shop.world.addCustomer();
    const { token } = await linkFor(person);
    await shop.world.sql`update accounts set status = 'suspended' where id = ${person.accountId}`;
    expectRefusal(await open(token), "not_found");
    expectRefusal(await post(`/links/${token}`, { password: NEW_PASSWORD }), "not_found");
  });

  test("422 for a password that is too short or a malformed body; the link still works", async () => {
    const { token } = await linkFor(await shop.world.addCustomer());
    const bad = [
      {},
      { password: "short" },
      { password: "" },
      { password: 5 },
      { password: "x".repeat(201) },
      { password: "x".repeat(1001) },
    ];
    for (const body of bad)
      expectRefusal(await post(`/links/${token}`, body), "validation_failed", { param: "password" });
    expectRefusal(await post(`/links/${token}`, { password: "x".repeat(20_000) }), "request_too_large");
    expectRefusal(await post(`/links/${token}`, "{"), "validation_failed");
    expect((await open(token)).status).toBe(200);
  });

  test("403 csrf_failed with a foreign Origin; the link still works", async () => {
    const { token } = await linkFor(await shop.world.addCustomer());
    for (const origin of ["http://evil.test", `http://${ACME}`, "null"])
      expectRefusal(await post(`/links/${token}`, { password: NEW_PASSWORD }, { headers: { origin } }), "csrf_failed");
    expect((await open(token)).status).toBe(200);
  });

  test("ten wrong links from one address get 429, only for links and only from that address", async () => {
    const { token } = await linkFor(await shop.world.addCustomer());
    const address = newAddress();
    for (let i = 0; i < 10; i++) expectRefusal(await open(`${i}`.repeat(43), { address }), "not_found");
    expectRefusal(await open(token, { address }), "too_many_requests");
    expectRefusal(await post(`/links/${token}`, { password: NEW_PASSWORD }, { address }), "too_many_requests");
    expect((await open(token)).status).toBe(200);
    expect((await trySignIn({ email: (await addPerson()).email }, { address })).status).toBe(200);
  });
});
