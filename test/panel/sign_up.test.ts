import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { newSignUpChallenge } from "../../src/accounts/sign_up_challenge.ts";
import { pruneSignUps } from "../../src/commerce/sign_ups_store.ts";
import { giveWaitingTrials } from "../../src/commerce/trials_store.ts";
import { takePlaceOf } from "../../src/panel/api/sign_up.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import type { Db } from "../../src/platform/db.ts";
import { createFailedAttemptLimiter } from "../../src/platform/failed_attempt_limit.ts";
import { createLog } from "../../src/platform/log.ts";
import { BAD_SIGN_UPS, WRONG_PROOF } from "../commerce/bad_cases.ts";
import { expectRefusal } from "../gateway/checks.ts";
import type { Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { Person } from "../world.ts";
import { ACME, openMailingShop } from "./mailed_links.ts";
import { cookieOf, givePassword, ok, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";
import { confirm, linksTo, newNetwork, openLink, signedUpAs, signUp, solve, solved, TERMS } from "./sign_up_form.ts";

/** Sign-up, over HTTP. Source: SUP-1, SUP-2, SUP-3, SUP-4, SUP-5, SUP-6, SUP-7, SUP-8. */

const USD = 1_000_000_000n;
const SLOW_MS = 300_000;
const NO_TRIAL = { trialOfferingId: null, trialAmountNanoUsd: null };
const OPEN = {
  isOpen: true,
  ...TERMS,
  ...NO_TRIAL,
  allowedDomains: [],
  forbiddenDomains: [],
  disposableAllowed: false,
};

let shop: Shop;
let db: Db;
let acme: Person;
let admin: PanelSession;
let seller: PanelSession;
let people = 0;

beforeAll(async () => {
  ({ shop, acme } = await openMailingShop());
  const { sql } = shop.world;
  db = shop.world.openDb();
  await sql`insert into mail_servers (reseller_id, host, port, from_address, from_name) values (${acme.accountId}, 'mail.example', 587, 'a@mail.example', 'A')`;
  await sql`select add_balance(${acme.accountId}, ${String(100n * USD)}, 'top_up', 'test', null)`;
  admin = await signInTo(shop, await shop.world.addAdmin(), { address: newNetwork() });
  seller = await signInTo(shop, acme, { host: ACME, address: newNetwork() });
}, SLOW_MS);
beforeEach(async () => {
  for (const session of [admin, seller]) ok(await session.patch("/sign-up/settings", OPEN));
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await db.close();
  await shop.close();
});

const newEmail = () => `new${++people}@people${people}.example`;
const form = async (host = PANEL) => ok(await shop.call("/api/panel/sign-up", { host }));
const accountOf = async (email: string) =>
  (await shop.world.sql`select id, reseller_id, name, role from accounts where email = ${email}`)[0];
const kindsTo = async (accountId: number) =>
  (await shop.world.sql`select kind from outbox_messages where account_id = ${accountId} order by id`).map(
    ({ kind }) => kind,
  );
const giveAgain = async () => {
  await shop.world.sql`update signed_up set trial_try_at = now() where trial = 'waits'`;
  const failed: unknown[] = [];
  await giveWaitingTrials(
    { db, bus: inProcessBus(createLog("silent")) },
    { trialsMax: 50, onFailure: (error) => failed.push(error) },
  );
  expect(failed).toEqual([]);
};

describe("an account", () => {
  test("is made by the link that was mailed, with the password that is chosen there; before that there is none", async () => {
    const email = newEmail();
    expect(ok(await signUp(shop, { email: ` ${email.toUpperCase()} `, name: " Ann Lee " }))).toEqual({
      accepted: true,
    });
    expect(await accountOf(email)).toBeUndefined();
    const [token = "", ...more] = await linksTo(shop, email);
    expect(more).toEqual([]);
    const { sql } = shop.world;
    const [stored] = await sql`
      select (select jsonb_agg(to_jsonb(m)) from outbox_messages m)::text || (select jsonb_agg(to_jsonb(l)) from sign_ups l)::text
        || (select jsonb_agg(to_jsonb(a)) from audit_entries a)::text as everything`;
    expect(stored?.everything).not.toContain(token);
    // Opening changes nothing: mail programs open links too.
    for (let i = 0; i < 2; i++)
      expect(ok(await openLink(shop, token))).toMatchObject({ kind: "sign_up", name: "Ann Lee", email });
    expect(await accountOf(email)).toBeUndefined();
    const confirmed = await confirm(shop, token);
    expect(ok(confirmed).signIn).toBe(false);
    const account = await accountOf(email);
    expect(account).toMatchObject({ reseller_id: null, name: "Ann Lee", role: "customer" });
    // Of the seller: the mail and the webhook that tell it.
    const told = await sql`select kind, data from outbox_messages where account_id = ${account?.id}`;
    expect([...told] as unknown).toEqual([
      { kind: "customer_signed_up", data: { name: "Ann Lee", email, trial: "none" } },
    ]);
    const me = await shop.call("/api/panel/me", { host: PANEL, headers: { cookie: cookieOf(confirmed) } });
    expect(ok(me).person).toMatchObject({ email, role: "customer" });
    const again = await shop.call("/api/panel/sign-in", {
      host: PANEL,
      body: { email, password: PASSWORD },
      headers: { origin: `http://${PANEL}`, "x-forwarded-for": newNetwork() },
    });
    expect(again.status).toBe(200);
    const { rows } = ok(await admin.get("/sign-up/accounts"));
    expect(rows[0]).toMatchObject({ accountId: Number(account?.id), email, ...TERMS, trial: "none", trialWhy: null });
    expect(Date.parse(rows[0].acceptedAt)).toBeLessThanOrEqual(Date.parse(rows[0].confirmedAt));
  });

  test("belongs to the reseller on whose domain it was made; the link works on no other host", async () => {
    const email = newEmail();
    ok(await signUp(shop, { email }, { host: ACME }));
    const [token = ""] = await linksTo(shop, email);
    const [told] = await shop.world
      .sql`select account_id from outbox_messages where kind = 'sign_up' and data ->> 'address' = ${email}`;
    expect(Number(told?.account_id)).toBe(acme.accountId);
    expectRefusal(await openLink(shop, token), "not_found");
    expectRefusal(await confirm(shop, token), "not_found");
    expect(await accountOf(email)).toBeUndefined();
    ok(await confirm(shop, token, { host: ACME }));
    expect(Number((await accountOf(email))?.reseller_id)).toBe(acme.accountId);
    expect(ok(await seller.get("/sign-up/accounts")).rows[0]).toMatchObject({ email });
    expect(ok(await admin.get("/sign-up/accounts")).rows).not.toContainEqual(expect.objectContaining({ email }));
  });

  test("confirmed twice, or by another person with the link: the first one has it, and the link no longer works", async () => {
    const email = newEmail();
    ok(await signUp(shop, { email }));
    const [token = ""] = await linksTo(shop, email);
    const answers = await Promise.all(
      ["a password of the first one", "a password of the second"].map((password) => confirm(shop, token, { password })),
    );
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses).toEqual([200, 404]);
    expectRefusal(await confirm(shop, token), "not_found");
    expectRefusal(await openLink(shop, token), "not_found");
    const [count] = await shop.world.sql`select count(*)::int as n from accounts where email = ${email}`;
    expect(count?.n).toBe(1);
  });

  test("is not made after the link's end; ended requests are deleted", async () => {
    const email = newEmail();
    ok(await signUp(shop, { email }));
    const [token = ""] = await linksTo(shop, email);
    const { sql } = shop.world;
    const [row] =
      await sql`select extract(epoch from expires_at - accepted_at)::float8 as seconds from sign_ups where email = ${email}`;
    expect(Number(row?.seconds)).toBeCloseTo(86_400, 0);
    await sql`update sign_ups set expires_at = clock_timestamp() where email = ${email}`;
    expectRefusal(await openLink(shop, token), "not_found");
    expectRefusal(await confirm(shop, token), "not_found");
    expect(await accountOf(email)).toBeUndefined();
    expect(await pruneSignUps({ db })).toBeGreaterThan(0);
    expect(await sql`select 1 from sign_ups where email = ${email}`).toHaveLength(0);
  });

  test("a password that is too short is refused, and the link still works", async () => {
    const email = newEmail();
    ok(await signUp(shop, { email }));
    const [token = ""] = await linksTo(shop, email);
    expectRefusal(await confirm(shop, token, { password: "short" }), "validation_failed", { param: "password" });
    ok(await confirm(shop, token));
  });

  test("an address that a seller invited meanwhile is refused when it is confirmed", async () => {
    const email = newEmail();
    ok(await signUp(shop, { email }));
    const [token = ""] = await linksTo(shop, email);
    ok(await admin.post("/people", { email, name: "Invited" }));
    expectRefusal(await confirm(shop, token), "validation_failed", { param: "email" });
    expect((await accountOf(email))?.name).toBe("Invited");
  });
});

describe("the answer", () => {
  test("is the same whether or not the address has an account; the mail tells its owner", async () => {
    const { sql } = shop.world;
    const known = await shop.world.addCustomer();
    const suspended = await shop.world.addCustomer();
    const invited = await shop.world.addCustomer();
    const emails: string[] = [newEmail(), await givePassword(shop, known), await givePassword(shop, suspended)];
    await sql`update accounts set status = 'suspended' where id = ${suspended.accountId}`;
    const [row] = await sql`select email from accounts where id = ${invited.accountId}`;
    emails.push(String(row?.email), admin.email);
    const texts = new Set<string>();
    for (const email of emails) {
      const { status, text, headers } = await signUp(shop, { email });
      texts.add(`${status} ${text} ${[...headers.keys()].sort()}`);
    }
    expect([...texts]).toHaveLength(1);
    expect(await kindsTo(known.accountId)).toEqual(["sign_up_known"]);
    // An account without a password gets its invitation again, and the link that was made for it stays.
    expect(await kindsTo(invited.accountId)).toEqual(["invitation"]);
    expect(await kindsTo(admin.accountId)).toEqual(["sign_up_known"]);
    for (const email of emails.slice(1)) expect(await linksTo(shop, email)).toEqual([]);
  });

  test("one of many requests for an address within five minutes sends mail, and after three within a day one an hour", async () => {
    const email = newEmail();
    const { sql } = shop.world;
    const proofs = await Promise.all(Array.from({ length: 4 }, () => solved(shop)));
    for (const answer of await Promise.all(proofs.map((proof) => signUp(shop, { email, proof })))) ok(answer);
    expect(await linksTo(shop, email)).toHaveLength(1);
    const mailsAfter = async (minutes: number) => {
      await sql`update sign_ups set accepted_at = accepted_at - make_interval(mins => ${minutes}) where email = ${email}`;
      ok(await signUp(shop, { email }));
      return (await linksTo(shop, email)).length;
    };
    expect(await mailsAfter(6)).toBe(2);
    expect(await mailsAfter(6)).toBe(3);
    expect(await mailsAfter(6)).toBe(3);
    expect(await mailsAfter(55)).toBe(4);
    // All are valid, since a stranger may have asked for the later ones. The first that is used ends the others.
    const [first = "", second = ""] = await linksTo(shop, email);
    for (const token of [first, second]) ok(await openLink(shop, token));
    ok(await confirm(shop, first));
    expectRefusal(await openLink(shop, second), "not_found");
  });

  test("with a mail server that is away, the answer is the same and the mail waits", async () => {
    // Nothing listens at the address of the shop's mail server.
    const email = newEmail();
    ok(await signUp(shop, { email }));
    expect(await linksTo(shop, email)).toHaveLength(1);
    await until(async () => (await db.sql`select 1 from outbox_recipients where address = ${email}`).length > 0);
    const { messages } = ok(await admin.get("/messages"));
    expect(messages).toContainEqual(
      expect.objectContaining({ kind: "sign_up", address: email, accountName: "", status: "waiting" }),
    );
  });
});

describe("who may sign up", () => {
  test("nobody, until a seller opens sign-up; without a mail server or terms it cannot", async () => {
    const other = await shop.world.addReseller("ai.other.test");
    const session = await signInTo(shop, other, { host: "ai.other.test", address: newNetwork() });
    expect(ok(await session.get("/sign-up/settings"))).toMatchObject({ isOpen: false, trialsWaiting: 0 });
    expect(await form("ai.other.test")).toEqual({ isOpen: false, termsUrl: null, privacyUrl: null, trial: null });
    expect(ok(await shop.call("/api/panel/brand/public", { host: "ai.other.test" })).signUp).toBe(false);
    expectRefusal(await signUp(shop, { email: newEmail() }, { host: "ai.other.test" }), "validation_failed");
    const patch = (body: object) => session.patch("/sign-up/settings", body);
    expectRefusal(await patch({ isOpen: true }), "validation_failed", { param: "termsUrl" });
    expectRefusal(await patch({ isOpen: true, termsUrl: TERMS.termsUrl }), "validation_failed", {
      param: "privacyUrl",
    });
    expectRefusal(await patch({ isOpen: true, ...TERMS }), "validation_failed", { param: "isOpen" });
    await shop.world
      .sql`insert into mail_servers (reseller_id, host, port, from_address, from_name) values (${other.accountId}, 'mail.example', 587, 'a@mail.example', 'A')`;
    expect(ok(await patch({ isOpen: true, ...TERMS }))).toMatchObject({ isOpen: true, ...TERMS });
    expect(ok(await shop.call("/api/panel/brand/public", { host: "ai.other.test" })).signUp).toBe(true);
    expect(await form("ai.other.test")).toEqual({ isOpen: true, ...TERMS, trial: null });
    await shop.world.sql`delete from mail_servers where reseller_id = ${other.accountId}`;
    expect((await form("ai.other.test")).isOpen).toBe(false);
  });

  test("switched off between form and confirmation: the link is refused, and works again when it is on", async () => {
    const email = newEmail();
    ok(await signUp(shop, { email }));
    const [token = ""] = await linksTo(shop, email);
    ok(await admin.patch("/sign-up/settings", { isOpen: false }));
    expectRefusal(await signUp(shop, { email: newEmail() }), "validation_failed");
    expectRefusal(await openLink(shop, token), "not_found");
    expectRefusal(await confirm(shop, token), "not_found");
    expect(await accountOf(email)).toBeUndefined();
    ok(await admin.patch("/sign-up/settings", { isOpen: true }));
    ok(await confirm(shop, token));
  });

  test("a suspended seller: nobody can sign up, and its links do not work", async () => {
    const email = newEmail();
    ok(await signUp(shop, { email }, { host: ACME }));
    const [token = ""] = await linksTo(shop, email);
    const proof = await solved(shop, { host: ACME });
    ok(await admin.post(`/people/${acme.accountId}/suspend`));
    try {
      const late = newEmail();
      expect((await signUp(shop, { email: late, proof }, { host: ACME })).status).not.toBe(200);
      expect(await linksTo(shop, late)).toEqual([]);
      for (const answer of [await openLink(shop, token, { host: ACME }), await confirm(shop, token, { host: ACME })])
        expect(answer.status).not.toBe(200);
      expect(await accountOf(email)).toBeUndefined();
    } finally {
      ok(await admin.post(`/people/${acme.accountId}/activate`));
    }
    ok(await confirm(shop, token, { host: ACME }));
    seller = await signInTo(shop, acme, { host: ACME, address: newNetwork() });
  });

  for (const [what, change, param] of BAD_SIGN_UPS)
    test(`${what}: ${param} is refused, and nothing is mailed`, async () => {
      ok(await admin.patch("/sign-up/settings", { forbiddenDomains: ["@Rivals.example ", "bücher.example"] }));
      const mails = async () => (await shop.world.sql`select count(*)::int as n from sign_ups`)[0]?.n;
      const before = await mails();
      const body = { email: newEmail(), name: "Ann", accepted: true, proof: await solved(shop), ...(change as object) };
      expectRefusal(await postForm(body), "validation_failed", { param: param ?? null });
      expect(await mails()).toBe(before);
    });

  test("addresses of domains that are not on the list of allowed ones are refused; disposable ones can be allowed", async () => {
    const refused = async (email: string) =>
      expectRefusal(await signUp(shop, { email, proof: WRONG_PROOF }), "validation_failed", { param: "email" });
    ok(await admin.patch("/sign-up/settings", { allowedDomains: ["school.example"], disposableAllowed: true }));
    await refused("a@people.example");
    await refused("a@notschool.example");
    ok(await signUp(shop, { email: "a@cs.school.example" }));
    ok(await admin.patch("/sign-up/settings", { allowedDomains: [] }));
    ok(await signUp(shop, { email: "a@mailinator.com" }));
    ok(await admin.patch("/sign-up/settings", { forbiddenDomains: ["@Rivals.example ", "bücher.example"] }));
    const { forbiddenDomains } = ok(await admin.get("/sign-up/settings"));
    expect(forbiddenDomains).toEqual(["rivals.example", "xn--bcher-kva.example"]);
  });

  test("a domain that was forbidden after the mail is refused when it is confirmed", async () => {
    const email = "late@rivals2.example";
    ok(await signUp(shop, { email }));
    const [token = ""] = await linksTo(shop, email);
    ok(await admin.patch("/sign-up/settings", { forbiddenDomains: ["rivals2.example"] }));
    expectRefusal(await confirm(shop, token), "validation_failed", { param: "email" });
    expect(await accountOf(email)).toBeUndefined();
  });

  test("a form from another site is refused, and one that is no JSON", async () => {
    const whole = { email: newEmail(), name: "Ann", accepted: true, proof: WRONG_PROOF };
    expectRefusal(await postForm(whole, "http://evil.test"), "csrf_failed");
    expectRefusal(await postForm("{"), "validation_failed");
    expectRefusal(await postForm({ ...whole, name: "x".repeat(1024 * 1024) }), "request_too_large");
  });
});

const postForm = (body: unknown, origin = `http://${PANEL}`) =>
  shop.call("/api/panel/sign-up", { host: PANEL, body, headers: { origin, "x-forwarded-for": newNetwork() } });

/** The solution of a challenge that was made at another time, by the database's clock. */
async function solvedAt(unixMs: number) {
  const orm = { execute: async () => [{ now: String(unixMs) }] };
  const deps = { config: { secretKey: Buffer.from(TEST_SECRET_KEY, "base64") }, db: { orm } as unknown as Db };
  return solve(await newSignUpChallenge(deps, PANEL));
}

describe("a flood", () => {
  test(
    "of a thousand from one network: ten are looked at; other networks are served",
    async () => {
      const address = newNetwork();
      const mailed = async () => (await shop.world.sql`select count(*)::int as n from sign_ups`)[0]?.n;
      const before = await mailed();
      const answers: number[] = [];
      for (let i = 0; i < 20; i++) {
        const some = Array.from({ length: 50 }, (_, n) =>
          signUp(shop, { email: `f${i}x${n}@people.example`, proof: WRONG_PROOF }, { address }),
        );
        answers.push(...(await Promise.all(some)).map(({ status }) => status));
      }
      expect(answers.filter((status) => status === 422)).toHaveLength(10);
      expect(answers.filter((status) => status === 429)).toHaveLength(990);
      expect(await mailed()).toBe(before);
      ok(await signUp(shop, { email: newEmail() }));
    },
    SLOW_MS,
  );

  test(
    "of many addresses in a /24, or of many /64 in a /48: sixty are looked at",
    async () => {
      for (const addressOf of [(n: number) => `172.16.9.${n}`, (n: number) => `2001:db8:9:${n.toString(16)}::1`]) {
        const answers: number[] = [];
        for (let n = 1; n <= 70; n++)
          answers.push(
            (await signUp(shop, { email: newEmail(), proof: WRONG_PROOF }, { address: addressOf(n) })).status,
          );
        expect(answers.filter((status) => status === 422)).toHaveLength(60);
        expect(answers.slice(60)).toEqual(Array(10).fill(429));
      }
    },
    SLOW_MS,
  );

  test(
    "of one proof, sent 320 times from as many networks, takes none of its seller's places",
    async () => {
      const proof = await solved(shop, { host: ACME });
      ok(await signUp(shop, { email: newEmail(), proof }, { host: ACME }));
      for (let i = 0; i < 20; i++) {
        const some = Array.from({ length: 16 }, () => signUp(shop, { email: newEmail(), proof }, { host: ACME }));
        for (const answer of await Promise.all(some)) expectRefusal(answer, "validation_failed", { param: "proof" });
      }
      // A network from which somebody has asked before, too.
      for (let i = 1; i <= 2; i++)
        ok(await signUp(shop, { email: newEmail() }, { host: ACME, address: `172.20.0.${i}` }));
    },
    SLOW_MS,
  );

  test("from a few networks takes 300 places of a seller, and 300 others are for the first request of each network", async () => {
    const signInLimiter = createFailedAttemptLimiter({
      ...{ redisUrl: "", points: 10, windowSeconds: 900, name: "sign-in", log: createLog("silent"), now: () => 1 },
    });
    const take = (sellerId: number, network: string) => takePlaceOf({ signInLimiter }, sellerId, network);
    for (let i = 0; i < 305; i++) await take(1, `flood ${i % 5}`);
    for (let i = 0; i < 5; i++)
      await expect(take(1, `flood ${i}`)).rejects.toMatchObject({ code: "too_many_requests" });
    for (let i = 0; i < 295; i++) await take(1, `network ${i}`);
    await expect(take(1, "network 0")).rejects.toMatchObject({ code: "too_many_requests" });
    await expect(take(1, "one more")).rejects.toMatchObject({ code: "too_many_requests" });
    await take(2, "flood 1");
    signInLimiter.close();
  });

  test("a proof of work is valid once, on its host, unchanged, and not after its end", async () => {
    const refused = async (proof: unknown, host = PANEL) =>
      expectRefusal(await signUp(shop, { email: newEmail(), proof }, { host }), "validation_failed", {
        param: "proof",
      });
    await refused(WRONG_PROOF);
    const proof = await solved(shop);
    const { parameters } = proof.challenge;
    await refused(proof, ACME);
    await refused({ ...proof, solution: { ...proof.solution, derivedKey: "00".repeat(32) } });
    const longer = { ...parameters, data: { ...parameters.data, endsUnixMs: 4e12 } };
    await refused({ ...proof, challenge: { ...proof.challenge, parameters: longer } });
    ok(await signUp(shop, { email: newEmail(), proof }));
    await refused(proof);
    await refused(await solvedAt(Date.now() - 11 * 60_000));
    ok(await signUp(shop, { email: newEmail(), proof: await solvedAt(Date.now() - 60_000) }));
  });
});

describe("a trial", () => {
  test("of a package: the reseller pays its wholesale price at the confirmation, once", async () => {
    const offering = await shop.world.addOffering({ days: 3, dailyLimit: 100, wholesaleNanoUsd: 2n * USD });
    ok(await seller.patch("/sign-up/settings", { trialOfferingId: offering, trialAmountNanoUsd: null }));
    expect((await form(ACME)).trial).toEqual({ name: expect.any(String), amountNanoUsd: null });
    const before = await balanceOf(acme);
    const accountId = await signedUpAs(shop, newEmail(), { host: ACME });
    expect(await packagesOf(accountId)).toEqual([
      { offering_id: String(offering), paid_by_account_id: String(acme.accountId) },
    ]);
    expect(await balanceOf(acme)).toBe(before - 2n * USD);
    await giveAgain();
    expect(await packagesOf(accountId)).toHaveLength(1);
    const [entry] = await shop.world
      .sql`select reason from balance_entries where account_id = ${acme.accountId} order by id desc limit 1`;
    expect(entry?.reason).toBe("trial");
  });

  test("is given once a person: other spellings of the mailbox get an account without one", async () => {
    const offering = await shop.world.addOffering();
    ok(await admin.patch("/sign-up/settings", { trialOfferingId: offering }));
    const spellings = ["jo.hn+a@gmail.com", "john@gmail.com", "J.O.H.N+b@googlemail.com"];
    for (const [index, email] of spellings.entries()) {
      const accountId = await signedUpAs(shop, email);
      expect(await packagesOf(accountId)).toHaveLength(index === 0 ? 1 : 0);
      expect(ok(await admin.get("/sign-up/accounts")).rows[0]).toMatchObject({
        accountId,
        trial: index === 0 ? "given" : "taken",
      });
    }
    // Dots are another mailbox elsewhere; a person of one seller is new to another.
    expect(await packagesOf(await signedUpAs(shop, "jo.hn@people.example"))).toHaveLength(1);
    expect(await packagesOf(await signedUpAs(shop, "john@people.example"))).toHaveLength(1);
    ok(await seller.patch("/sign-up/settings", { trialOfferingId: offering }));
    expect(await packagesOf(await signedUpAs(shop, "john@gmail.com", { host: ACME }))).toHaveLength(1);
  });

  test("five of a registered domain in 30 days have one, whatever its mailboxes are called; at a mail provider anyone has", async () => {
    const offering = await shop.world.addOffering();
    ok(await admin.patch("/sign-up/settings", { trialOfferingId: offering }));
    const emails = [
      "a@owned.example",
      "b@owned.example",
      "c@x.owned.example",
      "d@y.x.owned.example",
      "e@owned.example",
    ];
    for (const email of emails) expect(await packagesOf(await signedUpAs(shop, email))).toHaveLength(1);
    // Two more at the same time.
    for (const email of ["f@owned.example", "g@z.owned.example"]) ok(await signUp(shop, { email }));
    const tokens = [...(await linksTo(shop, "f@owned.example")), ...(await linksTo(shop, "g@z.owned.example"))];
    for (const answer of await Promise.all(tokens.map((token) => confirm(shop, token)))) ok(answer);
    const rows: { trial: string }[] = ok(await admin.get("/sign-up/accounts")).rows;
    expect(rows.slice(0, 2).map(({ trial }) => trial)).toEqual(["domain", "domain"]);
    // Another seller counts its own.
    ok(await seller.patch("/sign-up/settings", { trialOfferingId: offering }));
    expect(await packagesOf(await signedUpAs(shop, "h@owned.example", { host: ACME }))).toHaveLength(1);
    for (const name of "abcdef") expect(await packagesOf(await signedUpAs(shop, `${name}@gmx.de`))).toHaveLength(1);
    // A domain that the seller allows by name has no limit; after 30 days the others have none any more.
    ok(await admin.patch("/sign-up/settings", { allowedDomains: ["owned.example"] }));
    expect(await packagesOf(await signedUpAs(shop, "i@owned.example"))).toHaveLength(1);
    ok(await admin.patch("/sign-up/settings", { allowedDomains: [] }));
    expect(await packagesOf(await signedUpAs(shop, "j@owned.example"))).toHaveLength(0);
    await shop.world.sql`
      update signed_up set confirmed_at = confirmed_at - interval '30 days' where owned_domain = 'owned.example'`;
    expect(await packagesOf(await signedUpAs(shop, "k@owned.example"))).toHaveLength(1);
  });

  test("two spellings of a mailbox, confirmed at the same time: one trial", async () => {
    ok(await admin.patch("/sign-up/settings", { trialOfferingId: await shop.world.addOffering() }));
    const emails = ["twin+1@people.example", "twin+2@people.example", "twin+3@people.example"];
    for (const email of emails) ok(await signUp(shop, { email }));
    const tokens = (await Promise.all(emails.map((email) => linksTo(shop, email)))).flat();
    for (const answer of await Promise.all(tokens.map((token) => confirm(shop, token)))) ok(answer);
    const rows = await shop.world.sql`
      select trial from signed_up join accounts a on a.id = account_id where a.email = any(${emails}) order by trial`;
    expect(rows.map(({ trial }) => trial)).toEqual(["given", "taken", "taken"]);
  });

  test("of an amount: moved from the reseller's balance, with pay-as-you-go, which the reseller must be allowed to enable", async () => {
    const wanted = { trialOfferingId: null, trialAmountNanoUsd: String(3n * USD) };
    const { sql } = shop.world;
    expectRefusal(await seller.patch("/sign-up/settings", wanted), "validation_failed", {
      param: "trialAmountNanoUsd",
    });
    await sql`update accounts set may_switch_payg = true where id = ${acme.accountId}`;
    ok(await seller.patch("/sign-up/settings", wanted));
    expect((await form(ACME)).trial).toEqual({ name: null, amountNanoUsd: String(3n * USD) });
    const before = await balanceOf(acme);
    const accountId = await signedUpAs(shop, newEmail(), { host: ACME });
    expect(await balanceOf({ accountId })).toBe(3n * USD);
    expect(await balanceOf(acme)).toBe(before - 3n * USD);
    const paygOf = async (id: number) =>
      (await sql`select payg_enabled from balances where account_id = ${id}`)[0]?.payg_enabled;
    expect(await paygOf(accountId)).toBe(true);
    // The right was withdrawn: the amount would pay for nothing, so it is not taken either.
    await sql`update accounts set may_switch_payg = false where id = ${acme.accountId}`;
    const later = await signedUpAs(shop, newEmail(), { host: ACME });
    expect(await balanceOf({ accountId: later })).toBe(0n);
    expect(ok(await seller.get("/sign-up/accounts")).rows[0]).toMatchObject({ trial: "waits", trialWhy: "payg" });
    await sql`update accounts set may_switch_payg = true where id = ${acme.accountId}`;
    await giveAgain();
    expect(await balanceOf({ accountId: later })).toBe(3n * USD);
    await sql`update accounts set may_switch_payg = false where id = ${acme.accountId}`;
  });

  test("that the seller cannot pay waits, and is given once when it can; the account is there meanwhile", async () => {
    const offering = await shop.world.addOffering({ wholesaleNanoUsd: 1n * USD });
    ok(await seller.patch("/sign-up/settings", { trialOfferingId: offering, trialPayWith: "allotment" }));
    const accountId = await signedUpAs(shop, newEmail(), { host: ACME });
    expect(await packagesOf(accountId)).toEqual([]);
    expect(ok(await seller.get("/sign-up/settings")).trialsWaiting).toBe(1);
    expect(ok(await seller.get("/sign-up/accounts")).rows[0]).toMatchObject({ trial: "waits", trialWhy: "allotment" });
    ok(
      await admin.post(
        "/allotments",
        { resellerId: acme.accountId, offeringId: offering, pieces: 1, reason: "x" },
        { "idempotency-key": crypto.randomUUID() },
      ),
    );
    const before = await balanceOf(acme);
    await Promise.all([giveAgain(), giveAgain()]);
    expect(await packagesOf(accountId)).toHaveLength(1);
    expect(await balanceOf(acme)).toBe(before);
    expect(ok(await seller.get("/sign-up/settings")).trialsWaiting).toBe(0);
    ok(await seller.patch("/sign-up/settings", { trialPayWith: "balance" }));
  });

  test("of the operator costs nobody; one whose offering is off sale waits", async () => {
    const offering = await shop.world.addOffering({ wholesaleNanoUsd: 1n * USD });
    ok(await admin.patch("/sign-up/settings", { trialOfferingId: offering }));
    expect(await packagesOf(await signedUpAs(shop, newEmail()))).toEqual([
      { offering_id: String(offering), paid_by_account_id: null },
    ]);
    const { sql } = shop.world;
    await sql`update offerings set enabled = false where id = ${offering}`;
    // What was chosen stays when something else is changed.
    ok(await admin.patch("/sign-up/settings", { disposableAllowed: true }));
    const accountId = await signedUpAs(shop, newEmail());
    expect(await packagesOf(accountId)).toEqual([]);
    expect(ok(await admin.get("/sign-up/accounts")).rows[0]).toMatchObject({ trial: "waits", trialWhy: "offering" });
    await sql`update offerings set enabled = true where id = ${offering}`;
    await giveAgain();
    expect(await packagesOf(accountId)).toHaveLength(1);
  });
});

describe("settings", () => {
  test("bad values are refused with their field, and change nothing", async () => {
    const offering = await shop.world.addOffering();
    const cases: [body: object, param: string][] = [
      [{ termsUrl: "http://acme.example/terms" }, "termsUrl"],
      [{ termsUrl: "javascript:alert(1)" }, "termsUrl"],
      [{ privacyUrl: "https://ann:secret@acme.example/" }, "privacyUrl"],
      [{ privacyUrl: null }, "privacyUrl"],
      [{ trialOfferingId: 999_999 }, "trialOfferingId"],
      [{ trialOfferingId: offering, trialAmountNanoUsd: String(USD) }, "trialAmountNanoUsd"],
      [{ trialAmountNanoUsd: "1" }, "trialAmountNanoUsd"],
      [{ trialAmountNanoUsd: "0" }, "trialAmountNanoUsd"],
      [{ allowedDomains: ["example"] }, "allowedDomains"],
      [{ allowedDomains: ["a b.example"] }, "allowedDomains"],
      [{ forbiddenDomains: ["-a.example"] }, "forbiddenDomains"],
      [{ forbiddenDomains: Array.from({ length: 201 }, (_, n) => `d${n}.example`) }, "forbiddenDomains"],
      [{ trialPayWith: "operator" }, "trialPayWith"],
      [{ isOpen: "yes" }, "isOpen"],
      [{ sellerId: 0 }, "sellerId"],
    ];
    const before = ok(await seller.get("/sign-up/settings"));
    for (const [body, param] of cases)
      expectRefusal(await seller.patch("/sign-up/settings", body), "validation_failed", { param });
    expect(ok(await seller.get("/sign-up/settings"))).toEqual(before);
  });

  test("the audit log has who changed them, and what a person accepted; not who asked and never confirmed", async () => {
    ok(await admin.patch("/sign-up/settings", { forbiddenDomains: ["audited.example"] }));
    const { sql } = shop.world;
    const [entry] =
      await sql`select actor_id, after from audit_entries where subject = 'sign_up_settings' order by id desc limit 1`;
    expect(Number(entry?.actor_id)).toBe(admin.accountId);
    expect(entry?.after).toMatchObject({ forbidden_domains: ["audited.example"] });
    const accountId = await signedUpAs(shop, newEmail());
    const [accepted] =
      await sql`select after from audit_entries where subject = 'signed_up' and account_id = ${accountId}`;
    expect(accepted?.after).toMatchObject({ terms_url: TERMS.termsUrl, privacy_url: TERMS.privacyUrl, trial: "none" });
    ok(await signUp(shop, { email: newEmail() }));
    expect(await sql`select 1 from audit_entries where subject = 'sign_ups'`).toHaveLength(0);
  });
});

const balanceOf = async ({ accountId }: { accountId: number }) => {
  const [row] = await shop.world.sql`select balance_nano_usd from balances where account_id = ${accountId}`;
  return BigInt(String(row?.balance_nano_usd));
};
const packagesOf = async (accountId: number) => [
  ...(await shop.world
    .sql`select offering_id::text, paid_by_account_id::text from packages where account_id = ${accountId} order by id`),
];
