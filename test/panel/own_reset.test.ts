import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import type { Shop } from "../gateway/shop.ts";
import type { Person } from "../world.ts";
import { ACME, mailedTo, openMailingShop } from "./mailed_links.ts";
import { addSecondFactor, cookieOf, givePassword, ok, PANEL, PASSWORD, signInTo } from "./panel_client.ts";
import { databaseMs, expectSince } from "./stored.ts";

/** A password reset that a person asks for by mail. Source: SGN-1, SGN-2, SGN-3, SGN-4. */

const NEW_PASSWORD = "an even longer password";

let shop: Shop;
let acme: Person;
let addresses = 0;

beforeAll(async () => {
  ({ shop, acme } = await openMailingShop());
});
afterAll(() => shop.close());

const newAddress = () => `192.0.2.${++addresses}`;

async function post(
  path: string,
  body: unknown,
  { host = PANEL, address = newAddress(), origin }: { host?: string; address?: string; origin?: string } = {},
) {
  return shop.call(`/api/panel${path}`, {
    host,
    body,
    headers: { origin: origin ?? `http://${host}`, "x-forwarded-for": address },
  });
}
const forgot = (email: unknown, options: Parameters<typeof post>[2] = {}) =>
  post("/sign-in/forgot", { email }, options);
const open = (token: string, host = PANEL) =>
  shop.call(`/api/panel/links/${token}`, { host, headers: { "x-forwarded-for": newAddress() } });

async function addPerson(resellerId?: number) {
  const person = await shop.world.addCustomer(resellerId);
  return { ...person, email: await givePassword(shop, person) };
}

test("the link is mailed once, is valid for an hour, sets a password and ends every session; the database has only its digest", async () => {
  const person = await addPerson();
  const session = await signInTo(shop, person);
  const askedMs = await databaseMs(shop);
  expect(ok(await forgot(` ${person.email.toUpperCase()} `))).toEqual({ accepted: true });
  const [mail, ...more] = await mailedTo(shop, person);
  expect(more).toEqual([]);
  expect(mail?.url).toMatch(new RegExp(`^http://${PANEL.replaceAll(".", "\\.")}/reset/[\\w-]{43}$`));
  await expectSince(shop, new Date(Date.parse(mail?.expiresAt ?? "") - 3_600_000).toISOString(), askedMs);
  const token = mail?.token ?? "";
  const { sql } = shop.world;
  const [stored] = await sql`
    select (select jsonb_agg(to_jsonb(m)) from outbox_messages m)::text || (select jsonb_agg(to_jsonb(l)) from links l)::text
      || (select jsonb_agg(to_jsonb(a)) from audit_entries a)::text as everything`;
  expect(stored?.everything).not.toContain(token);
  // Until it is used, nothing has changed.
  expect((await session.get("/me")).status).toBe(200);
  expect(ok(await open(token))).toMatchObject({ kind: "reset", email: person.email });
  const set = await post(`/links/${token}`, { password: NEW_PASSWORD });
  expect(set.json.signIn).toBe(false);
  expectRefusal(await session.get("/me"), "session_required");
  expectRefusal(await open(token), "not_found");
  const told = await sql`select kind from outbox_messages where account_id = ${person.accountId} order by id`;
  expect(told.map(({ kind }) => kind)).toEqual(["password_reset", "password_changed"]);
  expectRefusal(await post(`/links/${token}`, { password: NEW_PASSWORD }), "not_found");
  expectRefusal(await post("/sign-in", { email: person.email, password: PASSWORD }), "session_required");
  expect(cookieOf(await post("/sign-in", { email: person.email, password: NEW_PASSWORD }))).not.toBe("");
});

test("every address gets the same answer, and only accounts get mail", async () => {
  const { sql } = shop.world;
  const [known, suspended] = [await addPerson(), await addPerson()];
  await sql`update accounts set status = 'suspended' where id = ${suspended.accountId}`;
  const admin = await shop.world.addAdmin();
  const invited = await shop.world.addCustomer();
  const [row] = await sql`select email from accounts where id = ${invited.accountId}`;
  const customer = await addPerson(acme.accountId);
  const emails = [
    ...[known.email, suspended.email, await givePassword(shop, admin), String(row?.email), customer.email],
    ...["nobody@example.com", "x@y", "not an address", "a@b\r\nBcc: c@d.example", "null\0@example.com", "%@_"],
  ];
  const texts = new Set<string>();
  for (const email of emails) {
    const { status, text, headers } = await forgot(email);
    texts.add(`${status} ${text} ${[...headers.keys()].sort()}`);
  }
  expect([...texts]).toHaveLength(1);
  expect(await mailedTo(shop, known)).toHaveLength(1);
  for (const nobody of [suspended, admin, invited, customer]) expect(await mailedTo(shop, nobody)).toEqual([]);
});

test("one of many requests for an account within five minutes sends mail; the others get the same answer and leave the link valid", async () => {
  const person = await addPerson();
  const answers = await Promise.all(Array.from({ length: 5 }, () => forgot(person.email)));
  for (const answer of answers) expect(ok(answer)).toEqual({ accepted: true });
  const mails = await mailedTo(shop, person);
  expect(mails).toHaveLength(1);
  expect((await open(mails[0]?.token ?? "")).status).toBe(200);
  await shop.world
    .sql`update links set created_at = created_at - interval '6 minutes' where account_id = ${person.accountId}`;
  ok(await forgot(person.email));
  const [first, second] = await mailedTo(shop, person);
  // Both are valid: a stranger may have asked for the second.
  for (const mail of [first, second]) expect((await open(mail?.token ?? "")).status).toBe(200);
  expect((await post(`/links/${first?.token}`, { password: NEW_PASSWORD })).status).toBe(200);
  expectRefusal(await open(second?.token ?? ""), "not_found");
});

test("a stranger who asks again and again ends no link that was made for the account, and does not lock its owner out", async () => {
  const person = await addPerson();
  const admin = await shop.world.addAdmin();
  const manager = await signInTo(shop, admin);
  const made = ok(await manager.post(`/people/${person.accountId}/link`));
  const madeToken = String(made.url).split("/").at(-1) ?? "";
  for (let i = 0; i < 15; i++) ok(await forgot(person.email));
  expect((await open(madeToken)).status).toBe(200);
  // The owner gets the answer that everyone gets, and the link of the mail that the stranger caused is valid for it.
  expect(ok(await forgot(person.email))).toEqual({ accepted: true });
  const own = (await mailedTo(shop, person)).at(-1)?.token ?? "";
  expect((await post(`/links/${own}`, { password: NEW_PASSWORD })).status).toBe(200);
  expectRefusal(await open(madeToken), "not_found");
});

test("after three mails within a day, an account gets one an hour, so there is always a valid link; the days before do not count", async () => {
  const person = await addPerson();
  const { sql } = shop.world;
  const shift = (minutes: number) =>
    sql`update links set created_at = created_at - make_interval(mins => ${minutes}),
      expires_at = expires_at - make_interval(mins => ${minutes}) where account_id = ${person.accountId}`;
  const mailsAfter = async (minutes: number) => {
    await shift(minutes);
    ok(await forgot(person.email));
    return (await mailedTo(shop, person)).length;
  };
  expect(await mailsAfter(0)).toBe(1);
  expect(await mailsAfter(6)).toBe(2);
  expect(await mailsAfter(6)).toBe(3);
  expect(await mailsAfter(6)).toBe(3);
  expect(await mailsAfter(53)).toBe(3);
  expect((await open((await mailedTo(shop, person)).at(-1)?.token ?? "")).status).toBe(200);
  expect(await mailsAfter(2)).toBe(4);
  expect(await mailsAfter(24 * 60)).toBe(5);
  expect(await mailsAfter(6)).toBe(6);
  const [kept] = await sql`select count(*)::int as count from links where account_id = ${person.accountId}`;
  expect(kept?.count).toBe(2);
});

test("the eleventh request from one network address gets 429; other people are served", async () => {
  const person = await addPerson();
  const address = newAddress();
  await Promise.all(Array.from({ length: 10 }, (_, i) => forgot(`nobody${i}@example.com`, { address })));
  expectRefusal(await forgot("nobody-else@example.com", { address }), "too_many_requests");
  // Neither the sign-in nor anyone else is limited by it.
  expect((await post("/sign-in", { email: person.email, password: PASSWORD }, { address })).status).toBe(200);
  ok(await forgot((await addPerson()).email));
});

test("an expired link, and a link on another tenant's host, get the answer of an unknown link", async () => {
  const person = await addPerson();
  ok(await forgot(person.email));
  const token = (await mailedTo(shop, person))[0]?.token ?? "";
  expectRefusal(await open(token, ACME), "not_found");
  expectRefusal(await post(`/links/${token}`, { password: NEW_PASSWORD }, { host: ACME }), "not_found");
  expect((await open(token)).status).toBe(200);
  await shop.world.sql`update links set expires_at = clock_timestamp() where account_id = ${person.accountId}`;
  expectRefusal(await open(token), "not_found");
  expectRefusal(await post(`/links/${token}`, { password: NEW_PASSWORD }), "not_found");
});

test("the link does not replace the second factor", async () => {
  const person = await addPerson();
  const session = await signInTo(shop, person);
  await addSecondFactor(session);
  ok(await forgot(person.email));
  const token = (await mailedTo(shop, person))[0]?.token ?? "";
  const set = await post(`/links/${token}`, { password: NEW_PASSWORD });
  expect(set.json).toEqual({ signIn: true });
  expect(set.headers.get("set-cookie")).toBeNull();
});

test("a stolen session that uses up the day's changes does not stop its owner: address, second factor and password can be taken back", async () => {
  const person = await addPerson();
  const stolen = await signInTo(shop, person);
  ok(await stolen.post("/settings/email", { email: "thief@example.com", proof: { password: PASSWORD } }));
  const { code } = await addSecondFactor(stolen);
  ok(await forgot(person.email));
  await shop.world.sql`insert into audit_entries (actor_id, action, subject, subject_id, account_id)
    select ${person.accountId}, 'changed', 'accounts', ${String(person.accountId)}, ${person.accountId} from generate_series(1, 300)`;
  expectRefusal(await stolen.patch("/settings/profile", { name: "Thief" }), "too_many_requests");
  const mails = await mailedTo(shop, person);
  const tokenOf = (wanted: object) => mails.find((mail) => Bun.deepMatch(wanted, mail))?.token;
  const cancelled = await post(`/email-changes/${tokenOf({ to: "old" })}`, { answer: "cancel" });
  expect(ok(cancelled)).toEqual({ outcome: "cancelled" });
  ok(await stolen.post("/settings/totp/remove", { proof: { password: PASSWORD, code: code(1) } }));
  ok(await post(`/links/${tokenOf({ kind: "password_reset" })}`, { password: NEW_PASSWORD }));
  expectRefusal(await stolen.get("/me"), "session_required");
});

test("without a mail server the page says so, and nothing is written", async () => {
  const customer = await addPerson(acme.accountId);
  expect(ok(await shop.call("/api/panel/brand/public", { host: PANEL })).sendsMail).toBe(true);
  expect(ok(await shop.call("/api/panel/brand/public", { host: ACME })).sendsMail).toBe(false);
  const answer = await forgot(customer.email, { host: ACME });
  expectRefusal(answer, "validation_failed");
  expect(answer.json.error.message).toStartWith("No mail is sent from here.");
  expect(await mailedTo(shop, customer)).toEqual([]);
});

test("all addresses of an IPv6 /64 count as one", async () => {
  const ask = (n: number, network = "2001:db8:7:1") =>
    forgot(`nobody${n}@example.org`, { address: `${network}::${n.toString(16)}` });
  for (let n = 1; n <= 10; n++) ok(await ask(n));
  expectRefusal(await ask(11), "too_many_requests");
  ok(await ask(12, "2001:db8:7:2"));
});

test("a reseller keeps the link that an admin made if the operator cannot send mail, even if its own mail server works", async () => {
  const { sql } = shop.world;
  const quiet = await shop.start({ SMTP_URL: "", MAIL_FROM: "" });
  try {
    const reseller = await shop.world.addReseller();
    const { accountId } = reseller;
    await sql`insert into hosts (host, reseller_id, status) values ('ai.own-mail.test', ${accountId}, 'active')`;
    await sql`insert into mail_servers (reseller_id, host, port, from_address, from_name) values (${accountId}, 'mail.example', 587, 'a@mail.example', 'A')`;
    const customer = await addPerson(accountId);
    const email = await givePassword(shop, reseller);
    await sql`insert into links (account_id, kind, digest, expires_at, created_at) values (${accountId}, 'reset', '\\x01', now() + interval '1 day', now() - interval '1 hour')`;
    const ask = (address: string) =>
      shop.call("/api/panel/sign-in/forgot", {
        origin: quiet.origin,
        host: "ai.own-mail.test",
        body: { email: address },
        headers: { origin: "http://ai.own-mail.test", "x-forwarded-for": newAddress() },
      });
    for (const address of [email, customer.email]) expect(ok(await ask(address))).toEqual({ accepted: true });
    expect(await sql`select encode(digest, 'hex') as digest from links where account_id = ${accountId}`).toMatchObject([
      { digest: "01" },
    ]);
    expect(await mailedTo(shop, customer)).toHaveLength(1);
    expect(await mailedTo(shop, reseller)).toEqual([]);
  } finally {
    await quiet.kill();
  }
});

test("malformed bodies get 422 or 413, and a foreign Origin gets 403", async () => {
  for (const email of [undefined, null, 5, "", "ab", "x".repeat(255), ["a@b.c"], { $ne: 1 }])
    expectRefusal(await forgot(email), "validation_failed", { param: "email" });
  expectRefusal(await post("/sign-in/forgot", { email: "a@b.example", role: "admin" }), "validation_failed", {
    param: "role",
  });
  expectRefusal(await post("/sign-in/forgot", "{"), "validation_failed");
  expectRefusal(await forgot("x".repeat(1024 * 1024)), "request_too_large");
  expectRefusal(await forgot("a@b.example", { origin: "http://evil.test" }), "csrf_failed");
});
