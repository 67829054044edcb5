import { afterAll, beforeAll, expect, test } from "bun:test";
import { readUnsubscribeToken, unsubscribeToken } from "../../src/messages/unsubscribe.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { Person } from "../world.ts";
import { ok, PANEL, PASSWORD, signInTo } from "./panel_client.ts";

/** Links in mails that switch off one kind of mail, without signing in. Source: MSG-13. */
const ACME = "ai.acme.test";
const OTHER = "ai.other.test";
const KEY = Buffer.from(TEST_SECRET_KEY, "base64");
const FORM = "application/x-www-form-urlencoded";
const ONE_CLICK = "List-Unsubscribe=One-Click";
/** Failures that one address may cause in the window of the limit. */
const BAD_TOKENS_MAX = 30;

let shop: Shop;
let acme: Person;
let count = 0;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { TRUSTED_PROXIES: "127.0.0.1,::1" } });
  acme = await shop.world.addReseller();
  const other = await shop.world.addReseller();
  await shop.world
    .sql`insert into hosts (host, reseller_id, status) values (${ACME}, ${acme.accountId}, 'active'), (${OTHER}, ${other.accountId}, 'active')`;
});
afterAll(() => shop.close());

const tokenFor = (accountId: number, kind: "balance_low" | "package_ending" = "balance_low") =>
  unsubscribeToken(KEY, { accountId, kind });
const address = () => ({ "x-forwarded-for": `203.0.113.${++count % 250}` });
const look = (token: string, { host = PANEL, headers = address() } = {}) =>
  shop.call(`/api/panel/unsubscribe/${token}`, { host, headers });
type From = { host?: string; origin?: string; headers?: Record<string, string> };
const press = (token: string, { host = PANEL, origin, headers = address() }: From = {}) =>
  shop.call(`/api/panel/unsubscribe/${token}`, {
    ...{ host, method: "POST", headers: { ...headers, origin: origin ?? `http://${host}` } },
  });
const oneClick = (token: string, { host = PANEL, body = ONE_CLICK, type = FORM } = {}) =>
  shop.call(`/unsubscribe/${token}`, {
    host,
    method: "POST",
    body,
    headers: { ...address(), "content-type": type },
  });
const mutedOf = async ({ accountId }: { accountId: number }) =>
  (await shop.world.sql`select kind from muted_mails where account_id = ${accountId} order by kind`).map(
    ({ kind }) => kind,
  );

test("opening the link, or reading its endpoint, changes nothing; the button switches off exactly this kind", async () => {
  const person = await shop.world.addCustomer();
  const [neighbour, token] = [await shop.world.addCustomer(), tokenFor(person.accountId)];
  for (let i = 0; i < 3; i++) expect(ok(await look(token))).toEqual({ kind: "balance_low", mailed: true });
  for (const method of ["GET", "HEAD"]) {
    const opened = await shop.call(`/unsubscribe/${token}`, { host: PANEL, method, headers: { accept: "text/html" } });
    expect(opened.status).toBeLessThan(500);
  }
  expect(await mutedOf(person)).toEqual([]);
  expect(ok(await press(token))).toEqual({ mailed: false });
  expect(ok(await press(token))).toEqual({ mailed: false });
  expect(await mutedOf(person)).toEqual(["balance_low"]);
  expect(await mutedOf(neighbour)).toEqual([]);
  expect(ok(await look(token))).toEqual({ kind: "balance_low", mailed: false });
  const audit = await shop.world
    .sql`select actor_id::int as actor from audit_entries where account_id = ${person.accountId} and subject = 'muted_mails'`;
  expect(audit).toMatchObject([{ actor: person.accountId }]);
});

test("a mail program's POST switches the kind off: without a session, cookie or origin, as either kind of form", async () => {
  const multipart = `--x\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--x--\r\n`;
  for (const [body, type] of [
    [ONE_CLICK, FORM],
    [multipart, "multipart/form-data; boundary=x"],
  ] as const) {
    const person = await shop.world.addCustomer();
    const answer = await oneClick(tokenFor(person.accountId, "package_ending"), { body, type });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-request-id")).not.toBeNull();
    expect(answer.headers.get("set-cookie")).toBeNull();
    expect(await mutedOf(person)).toEqual(["package_ending"]);
  }
  const person = await shop.world.addCustomer();
  expectRefusal(await oneClick(tokenFor(person.accountId), { body: "" }), "invalid_request");
  expectRefusal(await oneClick(tokenFor(person.accountId), { type: "application/json" }), "unsupported_media_type");
  expectRefusal(await oneClick(tokenFor(person.accountId), { body: "x".repeat(5_000) }), "request_too_large");
  expect(await mutedOf(person)).toEqual([]);
});

test("a token that was not signed for this account and kind is refused, and changes nothing", async () => {
  const [person, victim] = [await shop.world.addCustomer(), await shop.world.addCustomer()];
  const good = tokenFor(person.accountId);
  const [, , signature = ""] = good.split(".");
  const otherKey = unsubscribeToken(Buffer.alloc(32, 7), { accountId: person.accountId, kind: "balance_low" });
  const bad = [
    `${victim.accountId}.balance_low.${signature}`,
    `${person.accountId}.package_ending.${signature}`,
    `${person.accountId}.password_reset.${signature}`,
    `${person.accountId}.nonsense.${signature}`,
    `0${good}`,
    `${good}x`,
    good.slice(0, -1),
    `${good.slice(0, -1)}${good.endsWith("A") ? "B" : "A"}`,
    good.toUpperCase(),
    otherKey,
    `${person.accountId}.balance_low.`,
    "x",
    "..",
    "%00",
    "9999999999999999999999.balance_low.x",
    "a".repeat(200),
  ];
  for (const token of bad) {
    expect([token, readUnsubscribeToken(KEY, token)]).toEqual([token, undefined]);
    const answers = [await look(encodeURIComponent(token)), await press(encodeURIComponent(token))];
    answers.push(await oneClick(encodeURIComponent(token)));
    for (const { status } of answers) expect([token, status]).toEqual([token, 404]);
  }
  expect((await look("a".repeat(300))).status).toBe(404);
  expect([await mutedOf(person), await mutedOf(victim)]).toEqual([[], []]);
});

test("security mails cannot be switched off, not even with a signed token", async () => {
  const { accountId } = await shop.world.addCustomer();
  for (const kind of ["invitation", "password_reset", "email_change", "password_changed", "passkey_added"]) {
    const token = unsubscribeToken(KEY, { accountId, kind: kind as "balance_low" });
    expectRefusal(await press(token), "not_found");
    expectRefusal(await oneClick(token), "not_found");
  }
  expect(await mutedOf({ accountId })).toEqual([]);
});

test("a link works where its account signs in, and not for a suspended account", async () => {
  const customer = await shop.world.addCustomer(acme.accountId);
  const token = tokenFor(customer.accountId);
  for (const host of [PANEL, OTHER]) {
    expectRefusal(await press(token, { host }), "not_found");
    expectRefusal(await oneClick(token, { host }), "not_found");
  }
  expect((await oneClick(token, { host: "unknown.test" })).status).toBe(403);
  await shop.world.sql`update accounts set status = 'suspended' where id = ${customer.accountId}`;
  expectRefusal(await press(token, { host: ACME }), "not_found");
  await shop.world.sql`update accounts set status = 'active' where id = ${customer.accountId}`;
  expect(ok(await press(token, { host: ACME }))).toEqual({ mailed: false });
});

test("another site's page cannot submit the form; the settings show the choice and can undo it", async () => {
  const person = await shop.world.addCustomer();
  const token = tokenFor(person.accountId);
  expectRefusal(await press(token, { origin: "http://evil.test" }), "csrf_failed");
  expect(await mutedOf(person)).toEqual([]);
  ok(await press(token));
  const session = await signInTo(shop, person, { address: "192.0.2.200" });
  const choice = async () =>
    ok(await session.get("/settings/mails")).kinds.find(({ kind }: { kind: string }) => kind === "balance_low");
  expect((await choice()).mailed).toBe(false);
  ok(await session.put("/settings/mails", { kind: "balance_low", mailed: true }));
  expect((await choice()).mailed).toBe(true);
});

test("guesses are limited by address; other addresses are served", async () => {
  const person = await shop.world.addCustomer();
  const headers = { "x-forwarded-for": "198.51.100.77" };
  let status = 404;
  for (let i = 0; i < BAD_TOKENS_MAX && status === 404; i++) status = (await look(`guess${i}`, { headers })).status;
  expect(status).toBe(429);
  expectRefusal(await press(tokenFor(person.accountId), { headers }), "too_many_requests");
  expect(ok(await press(tokenFor(person.accountId)))).toEqual({ mailed: false });
});

test("all addresses of an IPv6 /64 count as one", async () => {
  const from = (n: number, network = "2001:db8:8:1") => ({ "x-forwarded-for": `${network}::${n.toString(16)}` });
  let status = 404;
  for (let i = 1; i <= BAD_TOKENS_MAX && status === 404; i++)
    status = (await look(`guess${i}`, { headers: from(i) })).status;
  expect(status).toBe(429);
  expectRefusal(await look("guess", { headers: from(1, "2001:db8:8:2") }), "not_found");
});

test("a change of a person's sign-in is mailed to that person, without any secret", async () => {
  const person = await shop.world.addCustomer();
  const session = await signInTo(shop, person, { address: "192.0.2.201" });
  const next = "an even longer password";
  ok(await session.post("/settings/password", { next, proof: { password: PASSWORD } }));
  const told = await shop.world.sql`select kind, data from outbox_messages where account_id = ${person.accountId}`;
  expect(told).toMatchObject([{ kind: "password_changed", data: {} }]);
  expect((await session.put("/settings/mails", { kind: "password_changed", mailed: false })).status).toBe(422);
});
