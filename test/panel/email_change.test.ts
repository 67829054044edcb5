import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import type { Shop } from "../gateway/shop.ts";
import type { Person } from "../world.ts";
import { ACME, mailedTo, openMailingShop } from "./mailed_links.ts";
import { addSecondFactor, ok, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";
import { addPasskeyTo } from "./software_authenticator.ts";

/** A person's change of their own e-mail address. Source: SGN-5, SGN-6, SGN-7, SGN-8. */

const NEW_PASSWORD = "an even longer password";
const CHANGES_PER_DAY = 5;

let shop: Shop;
let acme: Person;
let count = 0;

beforeAll(async () => {
  ({ shop, acme } = await openMailingShop());
});
afterAll(() => shop.close());

const newEmail = () => `new${++count}@example.com`;
const somebody = async () => signInTo(shop, await shop.world.addCustomer());
const newAddress = () => `198.51.100.${++count % 250}`;

const change = (session: PanelSession, email: unknown, proof: unknown = { password: PASSWORD }) =>
  session.post("/settings/email", { email, proof });

/** Asks for a change. The tokens of the links in the two mails. */
async function begin(session: PanelSession, email: string) {
  ok(await change(session, email));
  const mails = (await mailedTo(shop, session)).slice(-2);
  const tokenOf = (side: string) => mails.find(({ to }) => to === side)?.token ?? "";
  return { old: tokenOf("old"), new: tokenOf("new"), mails };
}

const open = (token: string, host = PANEL) =>
  shop.call(`/api/panel/email-changes/${token}`, { host, headers: { "x-forwarded-for": newAddress() } });
const answer = (
  token: string,
  value: unknown = "confirm",
  { host = PANEL, origin }: { host?: string; origin?: string } = {},
) =>
  shop.call(`/api/panel/email-changes/${token}`, {
    host,
    body: { answer: value },
    headers: { origin: origin ?? `http://${host}`, "x-forwarded-for": newAddress() },
  });
const emailOf = async ({ accountId }: { accountId: number }) =>
  (await shop.world.sql`select email from accounts where id = ${accountId}`)[0]?.email;
const pendingOf = async (session: PanelSession) => ok(await session.get("/settings")).emailChange;

describe("the change", () => {
  for (const first of ["old", "new"] as const) {
    test(`takes effect when both addresses have confirmed it, the ${first} one first; other sessions and the password link end`, async () => {
      const session = await somebody();
      const elsewhere = await signInTo(shop, session);
      const email = newEmail();
      const links = await begin(session, ` ${email.toUpperCase()} `);
      expect(links.mails).toMatchObject([
        { kind: "email_change", to: "old", address: email, url: `http://${PANEL}/email/${links.old}` },
        { kind: "email_change", to: "new", address: email, url: `http://${PANEL}/email/${links.new}` },
      ]);
      const second = first === "old" ? "new" : "old";
      expect(ok(await open(links[first]))).toEqual({
        ...{ side: first, newEmail: email, isConfirmed: false },
        expiresAt: expect.any(String),
      });
      expect(ok(await answer(links[first]))).toEqual({ outcome: "waiting" });
      // Opening it again is harmless.
      expect(ok(await answer(links[first]))).toEqual({ outcome: "waiting" });
      expect(await emailOf(session)).toBe(session.email);
      expect(await pendingOf(session)).toMatchObject({
        ...{ newEmail: email, oldConfirmed: first === "old", newConfirmed: first === "new" },
      });
      expect((await elsewhere.get("/me")).status).toBe(200);
      expect(ok(await answer(links[second]))).toEqual({ outcome: "changed" });
      expect(await emailOf(session)).toBe(email);
      expect((await session.get("/me")).json.person.email).toBe(email);
      expect(await pendingOf(session)).toBeNull();
      expectRefusal(await elsewhere.get("/me"), "session_required");
      for (const token of [links.old, links.new]) expectRefusal(await answer(token), "not_found");
      const entries = await shop.world.sql`
        select actor_id::int, subject, after from audit_entries where account_id = ${session.accountId} order by id`;
      expect(entries.filter(({ subject }) => subject === "accounts").at(-1)).toMatchObject({
        actor_id: session.accountId,
        after: { email },
      });
      const text = JSON.stringify(entries);
      expect(text).not.toContain(links.old);
      expect(text).not.toContain("\\\\x");
    });
  }

  test("the link of the new address does not tell the old one", async () => {
    const session = await somebody();
    const links = await begin(session, newEmail());
    expect((await open(links.new)).text).not.toContain(session.email);
  });

  test("needs the password, and a code if the second factor is on; or a passkey", async () => {
    const session = await somebody();
    const email = newEmail();
    expectRefusal(await change(session, email, {}), "validation_failed", { param: "password" });
    expectRefusal(await change(session, email, { password: "a wrong password" }), "validation_failed", {
      param: "password",
    });
    const passkey = await addPasskeyTo(session);
    const { code } = await addSecondFactor(session);
    expectRefusal(await change(session, email), "validation_failed", { param: "code" });
    expect(await mailedTo(shop, session)).toEqual([]);
    const challenge = ok(await session.post("/settings/passkeys/challenge"));
    ok(await change(session, email, { passkey: passkey.get(challenge) }));
    ok(await change(session, newEmail(), { password: PASSWORD, code: code(1) }));
  });

  test("is cancelled by either link or in the settings, and cannot be confirmed afterwards", async () => {
    for (const side of ["old", "new", "settings"] as const) {
      const session = await somebody();
      const links = await begin(session, newEmail());
      ok(await answer(links.new));
      if (side === "settings") expect(ok(await session.post("/settings/email/cancel"))).toEqual({ cancelled: true });
      else expect(ok(await answer(links[side], "cancel"))).toEqual({ outcome: "cancelled" });
      for (const token of [links.old, links.new]) {
        expectRefusal(await open(token), "not_found");
        expectRefusal(await answer(token), "not_found");
      }
      expect(await emailOf(session)).toBe(session.email);
      expect(await pendingOf(session)).toBeNull();
      expect(ok(await session.post("/settings/email/cancel"))).toEqual({ cancelled: false });
    }
  });

  test("ends when another change, a new password or a used reset link follows", async () => {
    const replaced = await somebody();
    const earlier = await begin(replaced, newEmail());
    const later = await begin(replaced, newEmail());
    expectRefusal(await answer(earlier.old), "not_found");
    expect((await open(later.old)).status).toBe(200);
    ok(await replaced.post("/settings/password", { next: NEW_PASSWORD, proof: { password: PASSWORD } }));
    expectRefusal(await answer(later.old), "not_found");
    const reset = await somebody();
    const links = await begin(reset, newEmail());
    const forgot = { host: PANEL, body: { email: reset.email }, headers: { origin: `http://${PANEL}` } };
    ok(await shop.call("/api/panel/sign-in/forgot", forgot));
    const token = (await mailedTo(shop, reset)).at(-1)?.token ?? "";
    ok(await shop.call(`/api/panel/links/${token}`, { ...forgot, body: { password: NEW_PASSWORD } }));
    for (const link of [links.old, links.new]) expectRefusal(await answer(link), "not_found");
  });

  test("an expired link, a suspended account's link, and a link on another tenant's host get the answer of an unknown link", async () => {
    const { sql } = shop.world;
    const session = await somebody();
    const links = await begin(session, newEmail());
    for (const token of [links.old, links.new, "A".repeat(43), "x", "%00"]) {
      expectRefusal(await open(token, ACME), "not_found");
      expectRefusal(await answer(token, "confirm", { host: ACME }), "not_found");
    }
    await sql`update accounts set status = 'suspended' where id = ${session.accountId}`;
    expectRefusal(await answer(links.old), "not_found");
    await sql`update accounts set status = 'active' where id = ${session.accountId}`;
    expect((await open(links.old)).status).toBe(200);
    await sql`update email_changes set expires_at = clock_timestamp() where account_id = ${session.accountId}`;
    for (const token of [links.old, links.new]) expectRefusal(await answer(token), "not_found");
    expect(await emailOf(session)).toBe(session.email);
  });

  test("two concurrent confirmations make one change", async () => {
    for (let i = 0; i < 5; i++) {
      const session = await somebody();
      const email = newEmail();
      const links = await begin(session, email);
      const outcomes = await Promise.all([answer(links.old), answer(links.new)]);
      expect(outcomes.map((one) => ok(one).outcome).sort()).toEqual(["changed", "waiting"]);
      expect(await emailOf(session)).toBe(email);
    }
  });
});

describe("addresses of others", () => {
  test("a request for a taken address gets the answer of any other; a mail tells the holder of the address, and nothing changes", async () => {
    const [session, other] = [await somebody(), await somebody()];
    const [taken, free] = [await change(session, other.email), await change(session, newEmail())];
    const shape = ({ status, json }: typeof taken) => ({ status, ...json, newEmail: "", expiresAt: "" });
    expect(shape(taken)).toEqual(shape(free));
    const links = await begin(session, other.email);
    expect(ok(await answer(links.old))).toEqual({ outcome: "waiting" });
    const refused = await answer(links.new);
    expectRefusal(refused, "validation_failed", { param: "email" });
    expect(await emailOf(session)).toBe(session.email);
    expect(await emailOf(other)).toBe(other.email);
  });

  test("one of two accounts that confirm the same address concurrently gets it", async () => {
    for (let i = 0; i < 5; i++) {
      const email = newEmail();
      const both = [await somebody(), await somebody()];
      const links = await Promise.all(both.map((session) => begin(session, email)));
      for (const one of links) ok(await answer(one.old));
      const answers = await Promise.all(links.map((one) => answer(one.new)));
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 422]);
      for (const refused of answers.filter(({ status }) => status === 422))
        expectRefusal(refused, "validation_failed", {
          param: "email",
        });
      const [row] = await shop.world.sql`select count(*)::int as having from accounts where email = ${email}`;
      expect(row?.having).toBe(1);
    }
  });

  test("the last confirmation is refused if an invitation has taken the address meanwhile", async () => {
    const session = await somebody();
    const email = newEmail();
    const links = await begin(session, email);
    ok(await answer(links.new));
    const admin = await signInTo(shop, await shop.world.addAdmin());
    ok(await admin.post("/people", { email, name: "Ann" }));
    expectRefusal(await answer(links.old), "validation_failed", { param: "email" });
    expect(await emailOf(session)).toBe(session.email);
  });

  test("a reseller and its customers never share an address after a change on either side; another tenant may have the same address", async () => {
    const { sql } = shop.world;
    const host = `ai.tenant${++count}.test`;
    const reseller = await shop.world.addReseller(host);
    const [seller, outside] = [await signInTo(shop, reseller), await somebody()];
    const customer = await shop.world.addCustomer(reseller.accountId);
    const [row] = await sql`select email from accounts where id = ${customer.accountId}`;
    const links = await begin(seller, String(row?.email));
    ok(await answer(links.old));
    expectRefusal(await answer(links.new), "validation_failed", { param: "email" });
    // The customer's own row, as if its reseller could send mail.
    const own = await begin(outside, seller.email);
    await sql`update accounts set reseller_id = ${reseller.accountId} where id = ${outside.accountId}`;
    ok(await answer(own.old, "confirm", { host }));
    expectRefusal(await answer(own.new, "confirm", { host }), "validation_failed", { param: "email" });
    const elsewhere = await somebody();
    const free = await begin(elsewhere, String(row?.email));
    ok(await answer(free.old));
    expect(ok(await answer(free.new))).toEqual({ outcome: "changed" });
  });
});

describe("input", () => {
  test("an invalid address, one that could forge a mail header, and the current address are refused, and the error names the field", async () => {
    const session = await somebody();
    const wrong: unknown[] = [
      ...[
        "",
        "x",
        "@",
        "a@",
        "@b",
        "a b@example.com",
        "a@b@c",
        "x".repeat(300),
        "x".repeat(1001),
        5,
        null,
        ["a@b.example"],
      ],
      ...["a@example.com\r\nBcc: b@example.com", "a@example.com\nb", "a@example.com\0", "a@example.com,b@example.com"],
      ...[
        "a@example.com;b@example.com",
        "Ann <a@example.com>",
        '"a"@example.com',
        "a(b)@example.com",
        "a\u202e@example.com",
      ],
      ...[
        "\ud800@example.com",
        "a:b@example.com",
        "a\\@example.com",
        "a@[127.0.0.1]",
        session.email,
        session.email.toUpperCase(),
      ],
    ];
    for (const email of wrong) expectRefusal(await change(session, email), "validation_failed", { param: "email" });
    expect(await mailedTo(shop, session)).toEqual([]);
    expectRefusal(await session.post("/settings/email", { email: "y".repeat(1024 * 1024) }), "request_too_large");
    expectRefusal(
      await session.post("/settings/email", { email: newEmail(), proof: { password: PASSWORD }, accountId: 1 }),
      "validation_failed",
      { param: "accountId" },
    );
  });

  test("a link is confirmed or cancelled only by a POST from the page's own origin; opening it never confirms", async () => {
    const session = await somebody();
    const links = await begin(session, newEmail());
    for (const value of ["yes", "", null, true, ["confirm"]])
      expectRefusal(await answer(links.old, value), "validation_failed", { param: "answer" });
    expectRefusal(await answer(links.old, "confirm", { origin: "http://evil.test" }), "csrf_failed");
    for (const token of [links.old, links.new, links.old, links.new]) await open(token);
    expect(await pendingOf(session)).toMatchObject({ oldConfirmed: false, newConfirmed: false });
  });

  test("an account can ask for at most five changes within 24 hours, concurrent ones included", async () => {
    const session = await somebody();
    const answers = await Promise.all(Array.from({ length: CHANGES_PER_DAY + 3 }, () => change(session, newEmail())));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(CHANGES_PER_DAY);
    for (const one of answers.filter(({ status }) => status !== 200))
      expectRefusal(one, "validation_failed", { param: "email" });
    expect(await mailedTo(shop, session)).toHaveLength(2 * CHANGES_PER_DAY);
    await shop.world
      .sql`update email_changes set created_at = created_at - interval '25 hours' where account_id = ${session.accountId}`;
    ok(await change(session, newEmail()));
  });

  test("an address is mailed at most five of them within 24 hours, whoever asks: many accounts cannot flood one mailbox", async () => {
    const sessions = await Promise.all(Array.from({ length: CHANGES_PER_DAY + 3 }, () => somebody()));
    const victim = newEmail();
    const answers = await Promise.all(sessions.map((session) => change(session, victim)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(CHANGES_PER_DAY);
    for (const one of answers.filter(({ status }) => status !== 200))
      expectRefusal(one, "validation_failed", { param: "email" });
    await shop.world
      .sql`update email_changes set created_at = created_at - interval '25 hours' where new_email = ${victim}`;
    for (const [index, session] of sessions.entries())
      if (answers[index]?.status !== 200) ok(await change(session, victim));
  });

  test("without a mail server the address cannot be changed, and the settings say so", async () => {
    const session = await signInTo(shop, await shop.world.addCustomer(acme.accountId), { host: ACME });
    expect(ok(await session.get("/settings"))).toMatchObject({ sendsMail: false, emailChange: null });
    const refused = await change(session, newEmail());
    expectRefusal(refused, "validation_failed");
    expect(refused.json.error.message).toStartWith("No mail is sent from here");
    // The reseller itself is mailed by the operator, on its own domain too.
    const reseller = await signInTo(shop, acme, { host: ACME });
    expect(ok(await reseller.get("/settings")).sendsMail).toBe(true);
    expect((await begin(reseller, newEmail())).mails).toHaveLength(2);
  });
});
