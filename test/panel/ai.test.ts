import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { hashPassword } from "../../src/accounts/passwords.ts";
import { type Expected, expectRefusal, withoutEffect } from "../gateway/checks.ts";
import { type Answer, chatBody, eventsOf, imageBody, openShop, type Shop } from "../gateway/shop.ts";
import type { OfferingSpec, Person } from "../world.ts";

/** Source: ERR-9, ERR-10, KEY-7, DOM-5, ACC-1, ACC-2. */

const PANEL = "panel.tollgate.test";
const BASE = "api.tollgate.test";
const ACME = "ai.acme.test";
const OTHER = "ai.other.test";
const PASSWORD = "correct horse battery";
const CHAT = "/api/panel/ai/chat";
const IMAGE = "/api/panel/ai/image";

let shop: Shop;
let passwordHash: string;
let acme: Person;
let other: Person;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  passwordHash = await hashPassword(PASSWORD);
  acme = await withPassword(await shop.world.addReseller());
  other = await withPassword(await shop.world.addReseller());
  await shop.world
    .sql`insert into hosts (host, reseller_id, status) values (${ACME}, ${acme.accountId}, 'active'), (${OTHER}, ${other.accountId}, 'active')`;
}, 60_000);
afterAll(() => shop.close());

async function withPassword<P extends Person>(person: P): Promise<P> {
  await shop.world.sql`update accounts set password_hash = ${passwordHash} where id = ${person.accountId}`;
  return person;
}

async function emailOf({ accountId }: Person): Promise<string> {
  const [row] = await shop.world.sql`select email from accounts where id = ${accountId}`;
  return String(row?.email);
}

/** A customer with a password and a package (none if null), and with no key yet. */
async function addPerson(spec: OfferingSpec | null = {}, resellerId?: number): Promise<Person> {
  const person = await withPassword(await shop.world.addCustomer(resellerId));
  if (spec !== null) await shop.world.givePackage(person, spec);
  return person;
}

type Session = { host: string; cookie: string; csrf: string };
type Call = { host?: string; origin?: string | null; headers?: Record<string, string>; at?: string; method?: string };

/** A POST as the panel's own page sends it, unless told otherwise. */
function post(
  path: string,
  body: unknown,
  { host = PANEL, origin = `http://${host}`, headers, at }: Call = {},
): Promise<Answer> {
  return shop.call(path, {
    body,
    host,
    headers: { ...(origin !== null && { origin }), ...headers },
    ...(at !== undefined && { origin: at }),
  });
}

function trySignIn(email: string, password: string, call: Call = {}): Promise<Answer> {
  return post("/api/panel/sign-in", { email, password }, call);
}

async function signIn(person: Person, call: Call = {}): Promise<Session> {
  const answer = await trySignIn(await emailOf(person), PASSWORD, call);
  expect({ status: answer.status, error: answer.json?.error }).toEqual({ status: 200, error: undefined });
  const cookie = answer.headers.get("set-cookie")?.split(";", 1)[0] ?? "";
  return { host: call.host ?? PANEL, cookie, csrf: answer.json.csrfToken };
}

/** A call of a signed-in page. */
function as(session: Session, path: string, body: unknown, call: Call = {}): Promise<Answer> {
  return post(path, body, {
    host: session.host,
    ...call,
    headers: { cookie: session.cookie, "x-csrf-token": session.csrf, ...call.headers },
  });
}

function me(session: Session, host = session.host): Promise<Answer> {
  return shop.call("/api/panel/me", { host, headers: { cookie: session.cookie } });
}

async function lastReceipt({ accountId }: Person): Promise<{ key: number; host: string; mode: string }> {
  const [row] = await shop.world
    .sql`select key_id::int as key, host, mode from receipts where account_id = ${accountId} order by request_id desc limit 1`;
  return row as unknown as { key: number; host: string; mode: string };
}

describe("sign-in", () => {
  test("sets a cookie that scripts cannot read, and gives the page its CSRF token", async () => {
    const person = await addPerson();
    const answer = await trySignIn(await emailOf(person), PASSWORD);
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
      const call = { at: secure.origin, origin: `https://${PANEL}` };
      const answer = await trySignIn(await emailOf(await addPerson()), PASSWORD, call);
      const cookie = answer.headers.get("set-cookie") ?? "";
      expect(cookie).toMatch(/^__Host-\w+_session=/);
      expect(cookie.toLowerCase()).toContain("; secure");
      expect(cookie.toLowerCase()).toContain("path=/");
      expect(cookie.toLowerCase()).not.toContain("domain");
      const headers = { cookie: cookie.split(";", 1)[0] ?? "" };
      expect((await shop.call("/api/panel/me", { host: PANEL, headers, origin: secure.origin })).status).toBe(200);
    } finally {
      await secure.kill();
    }
  });

  test("/me says who is signed in; the e-mail is matched whatever its case", async () => {
    const person = await addPerson();
    const email = await emailOf(person);
    const answer = await trySignIn(email.toUpperCase(), PASSWORD);
    const session = {
      host: PANEL,
      cookie: answer.headers.get("set-cookie")?.split(";", 1)[0] ?? "",
      csrf: answer.json.csrfToken,
    };
    expect((await me(session)).json).toMatchObject({
      person: { accountId: person.accountId, role: "customer", email, name: expect.any(String) },
      viewing: null,
      host: PANEL,
      csrfToken: session.csrf,
    });
  });

  test("401 with one message: wrong password, unknown e-mail, no password set, suspended", async () => {
    const person = await addPerson();
    const suspended = await addPerson();
    await shop.world.sql`update accounts set status = 'suspended' where id = ${suspended.accountId}`;
    const noPassword = await shop.world.addCustomer();
    const answers = [
      await trySignIn(await emailOf(person), "wrong horse battery"),
      await trySignIn("nobody@example.com", PASSWORD),
      await trySignIn(await emailOf(noPassword), PASSWORD),
      await trySignIn(await emailOf(suspended), PASSWORD),
    ];
    for (const answer of answers) {
      expectRefusal(answer, "session_required");
      expect(answer.headers.get("set-cookie")).toBeNull();
    }
    expect(new Set(answers.map(({ json }) => JSON.stringify(json.error))).size).toBe(1);
  });

  test("422 validation_failed for a body that is none, 415 and 413 as ever", async () => {
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
    for (const [body, param] of bodies)
      expectRefusal(await post("/api/panel/sign-in", body), "validation_failed", { param });
    expectRefusal(
      await post("/api/panel/sign-in", "x", { headers: { "content-type": "text/plain" } }),
      "unsupported_media_type",
    );
    expectRefusal(await post("/api/panel/sign-in", { email, password: "x".repeat(20_000) }), "request_too_large");
  });

  test("403 csrf_failed without an Origin, or with a foreign one; 405 for GET", async () => {
    const email = await emailOf(await addPerson());
    const origins = [
      null,
      "null",
      "http://evil.test",
      `http://${BASE}`,
      `http://${PANEL}.evil.test`,
      `http://evil.test/${PANEL}`,
      `http://${PANEL}:8080`,
      "x",
    ];
    for (const origin of origins) {
      const answer = await trySignIn(email, PASSWORD, { origin });
      expectRefusal(answer, "csrf_failed");
      expect(answer.headers.get("set-cookie")).toBeNull();
    }
    expectRefusal(await shop.call("/api/panel/sign-in", { host: PANEL }), "method_not_allowed");
  });

  test("ten wrong passwords: 429, for the right one too, and for an e-mail that has no account alike", async () => {
    const strict = await shop.start();
    try {
      const email = await emailOf(await addPerson());
      const at = strict.origin;
      for (let i = 0; i < 10; i++)
        expectRefusal(await trySignIn(email, `wrong password ${i}`, { at }), "session_required");
      const answer = await trySignIn(email, PASSWORD, { at });
      expectRefusal(answer, "too_many_requests");
      expect(Number(answer.headers.get("retry-after"))).toBeLessThanOrEqual(900);
      expectRefusal(await trySignIn("nobody@example.com", PASSWORD, { at }), "too_many_requests");
    } finally {
      await strict.kill();
    }
  });
});

describe("the session", () => {
  test("401 session_required without one, with a wrong one, and with one that signed out", async () => {
    const person = await addPerson();
    await shop.world.addKey(person);
    const session = await signIn(person);
    const name = session.cookie.split("=", 1)[0];
    const cookies = [
      "",
      `${name}=`,
      `${name}=${"A".repeat(43)}`,
      `${name}=${"x".repeat(5_000)}`,
      `other=${session.cookie.split("=")[1]}`,
    ];
    await withoutEffect(shop, async () => {
      for (const cookie of cookies) {
        const wrong = { ...session, cookie };
        expectRefusal(await me(wrong), "session_required");
        for (const [path, body] of [
          [CHAT, chatBody()],
          [IMAGE, imageBody()],
          ["/api/panel/sign-out", {}],
        ] as const) {
          expectRefusal(await as(wrong, path, body), "session_required");
        }
      }
    });
    expect((await as(session, CHAT, chatBody())).status).toBe(200);
    const out = await as(session, "/api/panel/sign-out", {});
    expect(out.status).toBe(200);
    expect(out.headers.get("set-cookie")).toMatch(/Max-Age=0/i);
    expectRefusal(await me(session), "session_required");
    await withoutEffect(shop, async () => expectRefusal(await as(session, CHAT, chatBody()), "session_required"));
  });

  test("403 csrf_failed without the CSRF header, with another session's, or from a foreign origin; GET needs neither", async () => {
    const person = await addPerson();
    await shop.world.addKey(person);
    const session = await signIn(person);
    const second = await signIn(person);
    expect(second.cookie).not.toBe(session.cookie);
    const wrong: Call[] = [
      { headers: { "x-csrf-token": "" } },
      { headers: { "x-csrf-token": second.csrf } },
      { headers: { "x-csrf-token": `${session.csrf}x` } },
      { origin: null },
      { origin: "http://evil.test" },
      { origin: `http://${ACME}` },
    ];
    await withoutEffect(shop, async () => {
      for (const call of wrong) {
        for (const [path, body] of [
          [CHAT, chatBody()],
          [IMAGE, imageBody()],
          ["/api/panel/sign-out", {}],
        ] as const) {
          expectRefusal(await as(session, path, body, call), "csrf_failed");
        }
      }
      const bare = await post(CHAT, chatBody(), { headers: { cookie: session.cookie } });
      expectRefusal(bare, "csrf_failed");
    });
    expect((await me(session)).status).toBe(200);
  });

  test("a session does not work on another host, and the panel answers on no host of the API alone", async () => {
    const customer = await addPerson({}, acme.accountId);
    await shop.world.addKey(customer);
    const there = await signIn(customer, { host: ACME });
    expect((await me(there)).json.host).toBe(ACME);
    for (const host of [PANEL, OTHER, "localhost"]) expectRefusal(await me(there, host), "session_required");
    const here = await signIn(await addPerson());
    expectRefusal(await me(here, ACME), "session_required");
    for (const host of [BASE, "tollgate.test", "foreign.test"]) {
      expectRefusal(await me(here, host), "host_not_allowed");
      expectRefusal(await trySignIn("a@example.com", PASSWORD, { host }), "host_not_allowed");
    }
  });

  test("the API does not answer on the panel's host, and takes no cookie", async () => {
    const person = await addPerson();
    const { secret } = await shop.world.addKey(person);
    const session = await signIn(person);
    expectRefusal(await shop.call("/v1/models", { secret, host: PANEL }), "host_not_allowed");
    expectRefusal(
      await shop.call("/v1/models", { host: BASE, headers: { cookie: session.cookie } }),
      "invalid_api_key",
    );
    expectRefusal(await post(CHAT, chatBody(), { headers: { authorization: `Bearer ${secret}` } }), "session_required");
  });

  test("admins sign in on the panel's host only; resellers on both; customers of a reseller on its host alone", async () => {
    const admin = await withPassword(await shop.world.addAdmin());
    const customer = await addPerson({}, acme.accountId);
    const direct = await addPerson();
    const allowed: [Person, string, boolean][] = [
      [admin, PANEL, true],
      [admin, ACME, false],
      [acme, PANEL, true],
      [acme, ACME, true],
      [acme, OTHER, false],
      [customer, ACME, true],
      [customer, PANEL, false],
      [customer, OTHER, false],
      [direct, PANEL, true],
      [direct, ACME, false],
    ];
    // Each wrong attempt counts against the address, so the replica is one that has not seen any.
    const fresh = await shop.start();
    try {
      for (const [person, host, may] of allowed) {
        const answer = await trySignIn(await emailOf(person), PASSWORD, { host, at: fresh.origin });
        expect({ person: person.accountId, host, status: answer.status }).toEqual({
          person: person.accountId,
          host,
          status: may ? 200 : 401,
        });
        if (!may) expectRefusal(answer, "session_required");
      }
    } finally {
      await fresh.kill();
    }
  });

  test("a suspension ends the session, and metered work at once", async () => {
    const person = await addPerson();
    await shop.world.addKey(person);
    const session = await signIn(person);
    expect((await as(session, CHAT, chatBody())).status).toBe(200);
    await shop.world.sql`update accounts set status = 'suspended' where id = ${person.accountId}`;
    await withoutEffect(shop, async () =>
      expect((await as(session, CHAT, chatBody())).status).toBeGreaterThanOrEqual(400),
    );
    await Bun.sleep(1500);
    expectRefusal(await me(session), "session_required");
    await withoutEffect(shop, async () => expectRefusal(await as(session, CHAT, chatBody()), "session_required"));
  });

  test("a customer of a suspended reseller is refused with it", async () => {
    const reseller = await shop.world.addReseller();
    await shop.world
      .sql`insert into hosts (host, reseller_id, status) values ('ai.shut.test', ${reseller.accountId}, 'active')`;
    const customer = await addPerson({}, reseller.accountId);
    const session = await signIn(customer, { host: "ai.shut.test" });
    await shop.world.sql`update accounts set status = 'suspended' where id = ${reseller.accountId}`;
    await Bun.sleep(1500);
    expectRefusal(await me(session), "host_not_allowed");
    expectRefusal(await trySignIn(await emailOf(customer), PASSWORD, { host: "ai.shut.test" }), "host_not_allowed");
  });
});

describe("chat and image", () => {
  test("chat as JSON and as a stream, an image: the gateway's answers, metered like its own", async () => {
    const person = await addPerson({ dailyLimit: 10 });
    const { keyId } = await shop.world.addKey(person);
    const session = await signIn(person);
    const whole = await as(session, CHAT, chatBody());
    expect(whole.json).toMatchObject({ object: "chat.completion", model: "chat-a" });
    expect(whole.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
    const streamed = await as(session, CHAT, chatBody({ stream: true }));
    expect(streamed.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(streamed.headers.get("x-accel-buffering")).toBe("no");
    expect(eventsOf(streamed.text).at(-1)).toBe("[DONE]");
    const image = await as(session, IMAGE, imageBody({ response_format: "b64_json" }));
    expect(image.json.data[0].b64_json).toBeTruthy();
    expect(await lastReceipt(person)).toEqual({ key: keyId, host: BASE, mode: "package" });
    expect(await shop.counters(person.accountId)).toMatchObject({ usage: 3, units: 3, holds: 0 });
  });

  test("the host recorded is the base host, or the reseller's domain the call came from", async () => {
    const customer = await addPerson({}, acme.accountId);
    await shop.world.addKey(customer);
    expect((await as(await signIn(customer, { host: ACME }), CHAT, chatBody())).status).toBe(200);
    expect((await lastReceipt(customer)).host).toBe(ACME);
    const direct = await addPerson();
    await shop.world.addKey(direct);
    expect((await as(await signIn(direct, { host: "localhost" }), CHAT, chatBody())).status).toBe(200);
    expect((await lastReceipt(direct)).host).toBe(BASE);
  });

  test("without api_key_id the latest key that may act here; null reads as left out", async () => {
    const { sql, addKey } = shop.world;
    const person = await addPerson();
    const usable = await addKey(person);
    const disabled = await addKey(person);
    const revoked = await addKey(person);
    await addKey(person, { expiresAt: "2020-01-01T00:00:00Z" });
    await addKey(person, { hosts: ["tollgate.test"] });
    await sql`update keys set status = 'disabled' where id = ${disabled.keyId}`;
    await sql`update keys set status = 'revoked' where id = ${revoked.keyId}`;
    const session = await signIn(person);
    for (const body of [chatBody(), chatBody({ api_key_id: null })]) {
      expect((await as(session, CHAT, body)).status).toBe(200);
      expect((await lastReceipt(person)).key).toBe(usable.keyId);
    }
    const newest = await addKey(person, { hosts: [BASE] });
    expect((await as(session, CHAT, chatBody())).status).toBe(200);
    expect((await lastReceipt(person)).key).toBe(newest.keyId);
  });

  test("api_key_id names the key, and never reaches the provider", async () => {
    const person = await addPerson();
    const named = await shop.world.addKey(person);
    await shop.world.addKey(person);
    const session = await signIn(person);
    for (const [path, body] of [
      [CHAT, chatBody()],
      [CHAT, chatBody({ stream: true })],
      [IMAGE, imageBody()],
    ] as const) {
      expect((await as(session, path, { api_key_id: String(named.keyId), ...body })).status).toBe(200);
      expect((await lastReceipt(person)).key).toBe(named.keyId);
      expect(shop.provider.lastCall()?.body).not.toContain("api_key_id");
    }
  });

  test("422 no_active_key: none, another user's, an unusable one, no id at all: all the same", async () => {
    const { sql, addKey } = shop.world;
    const person = await addPerson();
    const session = await signIn(person);
    await withoutEffect(shop, async () => {
      expectRefusal(await as(session, CHAT, chatBody()), "no_active_key");
      expectRefusal(await as(session, IMAGE, imageBody()), "no_active_key");
    });
    const theirs = await shop.customer();
    const disabled = await addKey(person);
    await sql`update keys set status = 'disabled' where id = ${disabled.keyId}`;
    const texts = new Set<string>();
    await withoutEffect(shop, async () => {
      for (const id of [
        String(theirs.keyId),
        String(disabled.keyId),
        "999999",
        "0",
        "-1",
        "1e3",
        "x",
        "",
        "9".repeat(40),
        theirs.secret.slice(0, 40),
      ]) {
        const answer = await as(session, CHAT, chatBody({ api_key_id: id }));
        expectRefusal(answer, "no_active_key", { param: "api_key_id" });
        texts.add(JSON.stringify(answer.json.error));
      }
    });
    expect(texts.size).toBe(1);
  });

  test("422 validation_failed: what is 400 on the gateway, and api_key_id beyond 40 characters", async () => {
    const person = await addPerson();
    await shop.world.addKey(person);
    const session = await signIn(person);
    const cases: [path: string, body: unknown, param: string | null][] = [
      [CHAT, chatBody({ api_key_id: "9".repeat(41) }), "api_key_id"],
      [CHAT, chatBody({ api_key_id: 5 }), "api_key_id"],
      [IMAGE, imageBody({ api_key_id: ["1"] }), "api_key_id"],
      [CHAT, "{", null],
      [CHAT, "[]", null],
      [CHAT, '{"model": "chat-a", "model": "b"}', "model"],
      [CHAT, '{"api_key_id": "1", "api_key_id": "2"}', "api_key_id"],
      [CHAT, {}, "model"],
      [CHAT, chatBody({ messages: [] }), "messages"],
      [CHAT, chatBody({ messages: [{ role: "user" }] }), "messages.0.content"],
      [CHAT, chatBody({ temperature: 3 }), "temperature"],
      [CHAT, chatBody({ max_tokens: 0 }), "max_tokens"],
      [CHAT, chatBody({ model: "image-a" }), "model"],
      [IMAGE, imageBody({ prompt: "x" }), "prompt"],
      [IMAGE, imageBody({ size: "1x1" }), "size"],
      [IMAGE, imageBody({ n: 2 }), "n"],
      [IMAGE, imageBody({ response_format: "png" }), "response_format"],
      [IMAGE, imageBody({ model: "chat-a" }), "model"],
      [IMAGE, imageBody({ model: "nobody" }), "model"],
    ];
    await withoutEffect(shop, async () => {
      for (const [path, body, param] of cases)
        expectRefusal(await as(session, path, body), "validation_failed", { param });
      expectRefusal(await as(session, CHAT, chatBody({ model: "nobody" })), "model_not_found", { param: "model" });
      expectRefusal(
        await as(session, CHAT, chatBody(), { headers: { "content-type": "text/plain" } }),
        "unsupported_media_type",
      );
      expectRefusal(
        await as(session, CHAT, chatBody(), { headers: { "content-encoding": "gzip" } }),
        "unsupported_media_type",
      );
    });
  });

  test("what the provider refuses is 422 too, and charges nothing", async () => {
    const person = await addPerson();
    await shop.world.addKey(person);
    const session = await signIn(person);
    shop.provider.next({ status: 400, body: JSON.stringify({ error: { message: "Not that.", param: null } }) });
    expectRefusal(await as(session, CHAT, chatBody()), "validation_failed");
    shop.provider.next({ status: 503 });
    expectRefusal(await as(session, CHAT, chatBody()), "provider_unavailable");
    expect(await shop.counters(person.accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
  });

  test("no entitlement: chat 422 with the code, image 402; used-up quota and balance are 402 for both", async () => {
    const prove = async (
      person: Person,
      code: string,
      chatStatus: number,
      keySpec: Parameters<Shop["world"]["addKey"]>[1] = {},
      param: Expected["param"] = null,
    ) => {
      await shop.world.addKey(person, keySpec);
      const session = await signIn(person);
      await withoutEffect(shop, async () => {
        const cap = { max_tokens: 1000 };
        for (const stream of [false, true])
          expectRefusal(await as(session, CHAT, chatBody({ stream, ...cap })), code, { status: chatStatus, param });
        expectRefusal(await as(session, IMAGE, imageBody()), code, { param });
      });
    };
    await prove(await addPerson(null), "package_required", 422);
    await prove(await addPerson(null), "package_required", 422, { mode: "payg" });

    const expired = await addPerson();
    await shop.world
      .sql`select end_package(${expired.accountId}, (select id from packages where account_id = ${expired.accountId}))`;
    await prove(expired, "package_expired", 422);

    for (const [spec, code] of [
      [{ dailyLimit: 1 }, "daily_quota_exceeded"],
      [{ dailyLimit: 1, carryover: true }, "carryover_quota_exceeded"],
      [{ totalLimit: 1 }, "package_quota_exceeded"],
    ] as const) {
      const person = await addPerson(spec);
      await shop.world.addKey(person);
      expect((await as(await signIn(person), CHAT, chatBody())).status).toBe(200);
      await prove(person, code, 402);
    }

    const poor = await addPerson(null);
    await shop.world.setBalance(poor, 1n);
    await prove(poor, "insufficient_balance", 402, { mode: "payg" });
    await prove(await addPerson({ modelIds: ["chat-unpriced"] }), "model_not_in_package", 403, {}, "model");
  });

  test("order: session, CSRF, rate, body, key, model, entitlement", async () => {
    const keyless = await signIn(await addPerson(null));
    const nobody = { host: PANEL, cookie: "", csrf: "" };
    const bad = { model: "nobody", messages: [] };
    await withoutEffect(shop, async () => {
      expectRefusal(await as(keyless, CHAT, bad, { host: "foreign.test" }), "host_not_allowed");
      expectRefusal(await as(nobody, CHAT, bad, { origin: null }), "session_required");
      expectRefusal(await as(keyless, CHAT, "{", { origin: null }), "csrf_failed");
      expectRefusal(await as(keyless, CHAT, "{"), "validation_failed");
      expectRefusal(await as(keyless, CHAT, bad), "validation_failed", { param: "messages" });
      expectRefusal(await as(keyless, CHAT, chatBody({ messages: [{ role: "user" }] })), "validation_failed", {
        param: "messages.0.content",
      });
      expectRefusal(await as(keyless, IMAGE, { model: "nobody", prompt: "x" }), "validation_failed", {
        param: "prompt",
      });
      expectRefusal(await as(keyless, CHAT, chatBody({ model: "nobody" })), "no_active_key");
    });
    const poor = await addPerson(null);
    await shop.world.addKey(poor);
    const session = await signIn(poor);
    await withoutEffect(shop, async () =>
      expectRefusal(await as(session, CHAT, chatBody({ model: "nobody" })), "model_not_found", { param: "model" }),
    );
  });

  test("429 above a person's rate, after CSRF and before the body", async () => {
    const narrow = await shop.start({ RATE_PER_MINUTE: "2" });
    try {
      const person = await addPerson();
      await shop.world.addKey(person);
      const session = await signIn(person, { at: narrow.origin });
      const call = { at: narrow.origin };
      for (let i = 0; i < 2; i++) expect((await as(session, CHAT, chatBody(), call)).status).toBe(200);
      await withoutEffect(shop, async () => {
        expectRefusal(await as(session, CHAT, "{", call), "too_many_requests");
        expectRefusal(await as(session, IMAGE, imageBody(), call), "too_many_requests");
        expectRefusal(await as(session, CHAT, chatBody(), { ...call, origin: null }), "csrf_failed");
      });
    } finally {
      await narrow.kill();
    }
  });
});
