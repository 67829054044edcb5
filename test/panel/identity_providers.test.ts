import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { lookForProofs, startIdentityProofs } from "../../src/accounts/identity_proofs.ts";
import { setProvedDomains } from "../../src/accounts/identity_providers_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { createLog } from "../../src/platform/log.ts";
import { type DnsServer, deadResolver, startDnsServer } from "../dns_server.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { type Lie, type LyingIssuer, startLyingIssuer } from "./lying_issuer.ts";
import { ACME, MAIL } from "./mailed_links.ts";
import { ok, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";
import { CLIENT, type RealIssuer, signInThere, startRealIssuer } from "./real_issuer.ts";
import { TERMS } from "./sign_up_form.ts";

/** Signing in by identity providers, on two replicas. Source: OIDC-1, OIDC-2, OIDC-3, OIDC-4, OIDC-5, OIDC-6, OIDC-7, OIDC-8, OIDC-9, OIDC-10. */

const proof = { password: PASSWORD };
const OTHER = "ai.other.test";
/** A zone of mail that no reseller serves. */
const ZONE = "mail.test";
let shop: Shop;
let real: RealIssuer;
let liar: LyingIssuer;
let dns: DnsServer[];
let acme: Person;
let admin: PanelSession;
let seller: PanelSession;
let counted = 0;
const newAddress = () => `192.0.2.${++counted}`;
const newName = () => `Provider ${++counted}`;
const newEmail = () => `person${++counted}@example.com`;

beforeAll(async () => {
  real = await startRealIssuer();
  real.serve([`http://${PANEL}`, `http://${ACME}`]);
  liar = await startLyingIssuer();
  dns = await Promise.all([startDnsServer({ [ZONE]: [] }), startDnsServer({ [ZONE]: [] })]);
  shop = await openShop({
    replicas: 2,
    env: {
      TRUSTED_PROXIES: "127.0.0.1,::1",
      IDENTITY_ALLOW_PRIVATE: `${real.hostPort},${liar.hostPort}`,
      DNS_RESOLVERS: dns.map(({ resolver }) => resolver).join(","),
      ...MAIL,
    },
  });
  acme = await shop.world.addReseller(ACME);
  await shop.world.addReseller(OTHER);
  admin = await signInTo(shop, await shop.world.addAdmin(), { address: newAddress() });
  seller = await signInTo(shop, acme, { host: ACME, address: newAddress() });
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
  await Promise.all([real.stop(), liar.stop(), ...dns.map((server) => server.stop())]);
});

const replica = (index: number) => shop.replicas[index]?.origin ?? "";

/** Adds a provider of the operator, of the lying issuer unless another is named. */
async function addProvider(wanted: object = {}, by = admin): Promise<number> {
  const body = { kind: "oidc", name: newName(), issuer: liar.issuer, ...CLIENT, ...wanted, proof };
  return ok(await by.post("/identity-providers", body)).identityProviderId;
}

type Leaving = { host?: string; origin?: string };

/** Begins a sign-in: where the browser goes, and its cookie. */
async function leave(identityProviderId: number, { host = PANEL, origin = replica(0) }: Leaving = {}) {
  const answer = await shop.call("/api/panel/sign-in/identity", {
    ...{ host, origin, body: { identityProviderId } },
    headers: { origin: `http://${host}`, "x-forwarded-for": newAddress() },
  });
  return { url: String(ok(answer).url), cookie: cookieNamed(answer, "tollgate_identity") };
}

/** Comes back to the other replica. */
function comeBack(query: string, cookie: string, { host = PANEL, origin = replica(1) }: Leaving = {}): Promise<Answer> {
  return shop.call("/api/panel/sign-in/identity/finish", {
    ...{ host, origin, body: { query } },
    headers: { cookie, origin: `http://${host}`, "x-forwarded-for": newAddress() },
  });
}

/** A whole sign-in at the lying issuer. */
async function signIn(identityProviderId: number, subject: string, lie: Lie = {}, at: Leaving = {}): Promise<Answer> {
  const { url, cookie } = await leave(identityProviderId, at);
  return comeBack(await liar.code(url, subject, lie), cookie, { ...at, origin: replica(1) });
}

function cookieNamed(answer: Answer, name: string): string {
  return (
    answer.headers
      .getSetCookie()
      .find((one) => one.startsWith(`${name}=`))
      ?.split(";", 1)[0] ?? ""
  );
}

async function me(answer: Answer, host = PANEL) {
  ok(answer);
  const cookie = cookieNamed(answer, "tollgate_session");
  return ok(await shop.call("/api/panel/me", { host, headers: { cookie } }));
}

/** Links an identity of the lying issuer to who is signed in. */
async function link(session: PanelSession, identityProviderId: number, subject: string, lie: Lie = {}) {
  const begun = await session.post("/settings/identities/begin", { identityProviderId, proof });
  const { url } = ok(begun);
  const cookie = `${session.cookie}; ${cookieNamed(begun, "tollgate_identity")}`;
  return comeBack(await liar.code(url, subject, lie), cookie, { host: session.host });
}

const customer = async (resellerId?: number, host = PANEL) =>
  signInTo(shop, await shop.world.addCustomer(resellerId), { host, address: newAddress() });

const openSignUp = (session: PanelSession, isOpen = true) =>
  session.patch("/sign-up/settings", { isOpen, ...TERMS, allowedDomains: [], forbiddenDomains: [] });

const AGAIN = /has ended, or was used before/;
const NOT_TRUSTED = /cannot be trusted/;

function expectNot(answer: Answer, message: RegExp) {
  expectRefusal(answer, "session_required");
  expect(answer.json.error.message).toMatch(message);
  expect(cookieNamed(answer, "tollgate_session")).toBe("");
}

describe("a sign-in through a real OpenID Connect server", () => {
  test("a new person signs up, comes in again with the same identity, and signs out there too", async () => {
    const identityProviderId = await addProvider({ name: "Real", issuer: real.issuer });
    ok(await openSignUp(admin));
    real.people.set("ann", { email: "Ann@Example.com", email_verified: true, name: "Ann Lee" });
    const publicBrand = await shop.call("/api/panel/brand/public", { host: PANEL });
    expect(ok(publicBrand).identityProviders).toContainEqual({ identityProviderId, name: "Real", kind: "oidc" });
    const first = await leave(identityProviderId);
    expect(Object.fromEntries(new URL(first.url).searchParams)).toMatchObject({
      ...{ response_type: "code", code_challenge_method: "S256", redirect_uri: `http://${PANEL}/sign-in/callback` },
      ...{ state: expect.stringMatching(/^[\w-]{43}$/), nonce: expect.stringMatching(/^[\w-]{43}$/) },
    });
    const entered = await comeBack(await signInThere(first.url, "ann"), first.cookie);
    const seen = await me(entered);
    expect(seen).toMatchObject({ person: { email: "ann@example.com", name: "Ann Lee" }, member: "owner" });
    const [consent] = await shop.world.sql`
      select terms_url, seller_id::int from signed_up where account_id = ${seen.account.accountId}`;
    expect(consent).toEqual({ terms_url: TERMS.termsUrl, seller_id: 0 });
    // The other replica takes them back too.
    const again = await leave(identityProviderId, { origin: replica(1) });
    const second = await comeBack(await signInThere(again.url, "ann"), again.cookie, { origin: replica(0) });
    expect((await me(second)).person).toEqual(seen.person);
    const out = await shop.call("/api/panel/sign-out", {
      ...{ host: PANEL, method: "POST" },
      headers: {
        cookie: cookieNamed(second, "tollgate_session"),
        origin: `http://${PANEL}`,
        "x-csrf-token": String(second.json.csrfToken),
      },
    });
    const page = new URL(ok(out).goTo);
    expect(page.origin).toBe(real.issuer);
    expect(Object.fromEntries(page.searchParams)).toEqual({
      client_id: CLIENT.clientId,
      post_logout_redirect_uri: `http://${PANEL}/sign-in`,
    });
    expect((await fetch(page)).status).toBe(200);
  });

  test("works on a reseller's own host, for the domains that it has proved", async () => {
    const wanted = { issuer: real.issuer, mailDomains: [ACME, "unproved.test"] };
    const identityProviderId = await addProvider(wanted, seller);
    const { identityProviders } = ok(await seller.get("/identity-providers"));
    expect(identityProviders[0]).toMatchObject({
      mailDomains: [
        { domain: ACME, isProved: true },
        { domain: "unproved.test", isProved: false },
      ],
      records: [{ type: "TXT", name: "_verify.unproved.test", value: expect.stringMatching(/^[\w-]{32}$/) }],
      redirectUris: [`http://${ACME}/sign-in/callback`],
    });
    expect(JSON.stringify(identityProviders)).not.toContain(CLIENT.clientSecret);
    await shop.world.sql`
      insert into mail_servers (reseller_id, host, port, from_address, from_name) values (${acme.accountId}, '127.0.0.1', 2525, 'a@acme.test', 'Acme')`;
    ok(await openSignUp(seller));
    const at = { host: ACME };
    real.people.set("bob", { email: `bob@${ACME}`, email_verified: true, name: "Bob" });
    real.people.set("eve", { email: "eve@unproved.test", email_verified: true });
    const good = await leave(identityProviderId, at);
    const entered = await comeBack(await signInThere(good.url, "bob"), good.cookie, at);
    expect((await me(entered, ACME)).person.email).toBe(`bob@${ACME}`);
    const bad = await leave(identityProviderId, at);
    expectNot(await comeBack(await signInThere(bad.url, "eve"), bad.cookie, at), /may not sign in here/);
  });
});

describe("a mail domain that a reseller does not serve", () => {
  const setRecords = (index: number, ...records: string[]) => dns[index]?.setRecords(ZONE, records);
  const tokenOf = async (identityProviderId: number) => {
    const { identityProviders } = ok(await seller.get("/identity-providers"));
    const found = identityProviders.find(
      (one: { identityProviderId: number }) => one.identityProviderId === identityProviderId,
    );
    return String(found.records[0]?.value);
  };

  test("signs in once every resolver has its TXT record, with the domains below it; a record that is gone proves nothing", async () => {
    const identityProviderId = await addProvider({ mailDomains: [ZONE] }, seller);
    const prove = async () =>
      ok(await seller.post(`/identity-providers/${identityProviderId}/prove`)).mailDomains[0].isProved;
    const lie = (domain: string) => ({ claims: { email: `person${++counted}@${domain}` } });
    const at = (domain: string) => signIn(identityProviderId, `new-${++counted}`, lie(domain), { host: ACME });
    ok(await openSignUp(seller));
    const right = `_verify TXT "${await tokenOf(identityProviderId)}"`;
    expect(await prove()).toBe(false);
    setRecords(0, right);
    setRecords(1, '_verify TXT "another value"');
    expect(await prove()).toBe(false);
    expectNot(await at(ZONE), /may not sign in here/);
    setRecords(1, right, '_verify TXT "another value"');
    expect(await prove()).toBe(true);
    ok(await at(ZONE));
    ok(await at(`eu.${ZONE}`));
    expectNot(await at(`${ZONE}.evil.test`), /may not sign in here/);
    // A domain that is added has no proof yet, and keeps none of one that was taken out.
    const change = (mailDomains: string[]) =>
      seller.patch(`/identity-providers/${identityProviderId}`, { mailDomains, proof });
    expect(ok(await change(["other.test"])).mailDomains).toEqual([{ domain: "other.test", isProved: false }]);
    expect(ok(await change([ZONE])).mailDomains).toEqual([{ domain: ZONE, isProved: false }]);
    setRecords(0);
    expect(await prove()).toBe(false);
    expectNot(await at(ZONE), /may not sign in here/);
  });

  test("two hundred domains are looked for in one click", async () => {
    const mailDomains = [ZONE, ...Array.from({ length: 199 }, (_, i) => `d${i}.${ZONE}`)];
    const identityProviderId = await addProvider({ mailDomains }, seller);
    const token = await tokenOf(identityProviderId);
    const records = [`_verify TXT "${token}"`, `_verify.d198 TXT "${token}"`];
    for (const index of [0, 1]) setRecords(index, ...records);
    const proved = async () =>
      ok(await seller.post(`/identity-providers/${identityProviderId}/prove`))
        .mailDomains.filter(({ isProved }: { isProved: boolean }) => isProved)
        .map(({ domain }: { domain: string }) => domain);
    expect(await proved()).toEqual([ZONE, `d198.${ZONE}`]);
    ok(await seller.delete(`/identity-providers/${identityProviderId}`));
  });

  test("a proof that is gone for three days ends, with the sessions it allowed, and the reseller is told; an outage of resolvers ends none", async () => {
    const identityProviderId = await addProvider({ mailDomains: [ZONE, ACME], name: "Proved" }, seller);
    const proofToken = await tokenOf(identityProviderId);
    const right = `_verify TXT "${proofToken}"`;
    for (const index of [0, 1]) setRecords(index, right);
    ok(await seller.post(`/identity-providers/${identityProviderId}/prove`));
    ok(await openSignUp(seller));
    const claims = { email: `person${++counted}@${ZONE}` };
    const subject = `new-${++counted}`;
    const enter = () => signIn(identityProviderId, subject, { claims }, { host: ACME });
    const headers = { cookie: cookieNamed(await enter(), "tollgate_session") };
    const { sql } = shop.world;
    const db = shop.world.openDb();
    const log = createLog("silent");
    const job = (resolvers = dns.map(({ resolver }) => resolver)) =>
      startIdentityProofs({ db, bus: inProcessBus(log), config: { dnsResolvers: resolvers }, log, tickMs: 0 });
    /** Hours pass, and two replicas look for due checks. */
    const pass = async (hours: number, resolvers?: string[]) => {
      await sql`update identity_providers set checked_at = checked_at - make_interval(hours => ${hours}),
        failing_since = coalesce((select jsonb_object_agg(key, value::text::timestamptz - make_interval(hours => ${hours}))
          from jsonb_each_text(failing_since)), '{}')`;
      await Promise.all([job(resolvers).checkDue(), job(resolvers).checkDue()]);
    };
    const proved = async () =>
      (await sql`select proved_domains from identity_providers where id = ${identityProviderId}`)[0];
    const isOn = { proved_domains: [ZONE] };
    await pass(0);
    // Neither when the reseller asks, nor later.
    const silent = [dns[0]?.resolver ?? "", await deadResolver()];
    const proofs = await lookForProofs({ dnsResolvers: silent }, { domains: [ZONE], proofToken });
    const bus = inProcessBus(log);
    await setProvedDomains({ db, bus }, { sellerId: acme.accountId, identityProviderId, proofs });
    expect(await proved()).toEqual(isOn);
    for (const hours of [100, 100]) await pass(hours, silent);
    expect(await proved()).toEqual(isOn);
    // One of the resolvers has it no more, for less than three days.
    setRecords(0);
    await pass(6);
    await pass(65);
    expect(await proved()).toEqual(isOn);
    setRecords(0, right);
    await pass(6);
    setRecords(0);
    await pass(6);
    // It is checked every six hours only.
    await pass(1);
    expect(await proved()).toEqual(isOn);
    expect((await shop.call("/api/panel/me", { host: ACME, headers })).status).toBe(200);
    await pass(100);
    expect(await proved()).toEqual({ proved_domains: [] });
    expectNot(await enter(), /may not sign in here/);
    await until(async () => (await shop.call("/api/panel/me", { host: ACME, headers })).status === 401);
    const told =
      await sql`select data from outbox_messages where kind = 'mail_domain_lost' and account_id = ${acme.accountId}`;
    expect(told.map(({ data }) => data)).toEqual([{ domain: ZONE, identityProvider: "Proved" }]);
    const [entry] = await sql`select actor_id, before, after from audit_entries
      where subject = 'identity_providers' and subject_id = ${String(identityProviderId)} order by id desc limit 1`;
    expect(entry).toMatchObject({ actor_id: null, before: { proved_domains: [ZONE] }, after: { proved_domains: [] } });
    await db.close();
  });
});

describe("an answer that is not this sign-in's", () => {
  let identityProviderId: number;
  let subject: string;
  beforeAll(async () => {
    identityProviderId = await addProvider();
    const session = await customer();
    subject = `subject-${++counted}`;
    expect(ok(await link(session, identityProviderId, subject))).toEqual({ linked: true });
    expect((await me(await signIn(identityProviderId, subject))).person.accountId).toBe(session.accountId);
  });

  const seconds = () => Math.floor(Date.now() / 1000);
  const LIES: Record<string, () => Lie> = {
    "for another audience": () => ({ claims: { aud: "another-client" } }),
    "for another audience beside ours": () => ({
      claims: { aud: ["another-client", CLIENT.clientId], azp: "another-client" },
    }),
    "of another issuer": () => ({ claims: { iss: "https://accounts.google.com" } }),
    "that has expired": () => ({ claims: { iat: seconds() - 3_600, exp: seconds() - 120 } }),
    "of another sign-in's nonce": () => ({ claims: { nonce: "a nonce of another sign-in" } }),
    "without a nonce": () => ({ claims: { nonce: undefined } }),
    "that is not signed": () => ({ signed: "not at all" }),
    "that is signed by a stranger": () => ({ signed: "by another key" }),
    "that was changed after it was signed": () => ({ signed: "changed afterwards" }),
    "whose user data is of somebody else": () => ({ userInfo: { sub: "somebody-else" } }),
    "without a subject": () => ({ claims: { sub: undefined } }),
    "whose subject is too long": () => ({ claims: { sub: "s".repeat(300) }, userInfo: { sub: "s".repeat(300) } }),
  };
  for (const [what, lie] of Object.entries(LIES))
    test(`an ID token ${what} signs nobody in`, async () => {
      expectNot(await signIn(identityProviderId, subject, lie()), NOT_TRUSTED);
    });

  test("an answer that is sent again signs nobody in, on either replica", async () => {
    const { url, cookie } = await leave(identityProviderId);
    const query = await liar.code(url, subject);
    ok(await comeBack(query, cookie));
    for (const origin of [replica(0), replica(1)]) expectNot(await comeBack(query, cookie, { origin }), AGAIN);
    // The code of one sign-in in another: its token has another nonce.
    const next = await leave(identityProviderId);
    const mixed = new URLSearchParams(query);
    mixed.set("state", new URL(next.url).searchParams.get("state") ?? "");
    expectNot(await comeBack(`?${mixed}`, next.cookie), NOT_TRUSTED);
  });

  test("of two answers at the same moment, one signs in", async () => {
    const { url, cookie } = await leave(identityProviderId);
    const query = await liar.code(url, subject);
    const both = await Promise.all([0, 1].map((index) => comeBack(query, cookie, { origin: replica(index) })));
    expect(both.map(({ status }) => status).sort()).toEqual([200, 401]);
  });

  test("another browser, another state, and another host sign nobody in", async () => {
    const mine = await leave(identityProviderId);
    const query = await liar.code(mine.url, subject);
    expectNot(await comeBack(query, ""), AGAIN);
    const theirs = await leave(identityProviderId);
    expectNot(await comeBack(query, theirs.cookie), NOT_TRUSTED);
    expectNot(await comeBack(query, mine.cookie, { host: ACME }), AGAIN);
  });

  test("a sign-in ends after ten minutes", async () => {
    const { url, cookie } = await leave(identityProviderId);
    await shop.world.sql`update identity_sign_ins set expires_at = expires_at - interval '10 minutes'`;
    expectNot(await comeBack(await liar.code(url, subject), cookie), AGAIN);
  });

  test("a person who gives up there reads that, and nobody comes in", async () => {
    const { url, cookie } = await leave(identityProviderId);
    const state = new URL(url).searchParams.get("state");
    expectNot(await comeBack(`?error=access_denied&state=${state}`, cookie), /You were not signed in at/);
  });

  test("a page of another site cannot begin or end one", async () => {
    const headers = { origin: "https://evil.example", "x-forwarded-for": newAddress() };
    const begin = { host: PANEL, body: { identityProviderId }, headers };
    expectRefusal(await shop.call("/api/panel/sign-in/identity", begin), "csrf_failed");
    const finish = { host: PANEL, body: { query: "?code=1&state=2" }, headers };
    expectRefusal(await shop.call("/api/panel/sign-in/identity/finish", finish), "csrf_failed");
  });
});

describe("an address that somebody has here", () => {
  test("is not linked by a sign-in, also of an admin and of a reseller; the person links it once signed in", async () => {
    const identityProviderId = await addProvider();
    ok(await openSignUp(admin));
    const session = await customer();
    for (const { email } of [session, admin]) {
      const claims = { email: email.toUpperCase() };
      expectNot(await signIn(identityProviderId, `new-${++counted}`, { claims }), /has an account here already/);
    }
    const subject = `subject-${++counted}`;
    const wrong = { identityProviderId, proof: { password: "not the password" } };
    expectRefusal(await session.post("/settings/identities/begin", wrong), "validation_failed", { param: "password" });
    ok(await link(session, identityProviderId, subject));
    const listed = ok(await session.get("/settings/identities"));
    expect(listed.identities).toMatchObject([{ identityProviderId, email: `${subject}@example.com`, enabled: true }]);
    const { sql } = shop.world;
    const told = await sql`select kind from outbox_messages where account_id = ${session.accountId} order by id`;
    expect(told.map(({ kind }) => kind)).toContain("identity_linked");
    const audit = await sql`select subject, action, actor_id::int, after from audit_entries
      where account_id = ${session.accountId} and subject = 'identities'`;
    expect([...audit]).toMatchObject([
      { action: "added", actor_id: session.accountId, after: { subject: "(hidden)", email: `${subject}@example.com` } },
    ]);
  });

  test("of another brand is another person", async () => {
    const identityProviderId = await addProvider();
    const theirs = await customer(acme.accountId, ACME);
    const entered = await me(await signIn(identityProviderId, `new-${++counted}`, { claims: { email: theirs.email } }));
    expect(entered.person.accountId).not.toBe(theirs.accountId);
    expect(entered.person.email).toBe(theirs.email);
  });

  test("an identity is one person's, and is linked only in the session that confirmed it", async () => {
    const identityProviderId = await addProvider();
    const [first, second] = [await customer(), await customer()];
    const subject = `subject-${++counted}`;
    ok(await link(first, identityProviderId, subject));
    expectRefusal(await link(second, identityProviderId, subject), "validation_failed");
    expectRefusal(await link(first, identityProviderId, `${subject}-b`), "validation_failed");
    const begun = await second.post("/settings/identities/begin", { identityProviderId, proof });
    const query = await liar.code(ok(begun).url, `${subject}-c`);
    const stolen = `${first.cookie}; ${cookieNamed(begun, "tollgate_identity")}`;
    expectNot(await comeBack(query, stolen), AGAIN);
    // Unlinking confirms who they are, too; and ends what the identity can do.
    const [{ id }] = ok(await first.get("/settings/identities")).identities;
    expectRefusal(await second.post(`/settings/identities/${id}/remove`, { proof }), "not_found");
    ok(await first.post(`/settings/identities/${id}/remove`, { proof }));
    ok(await openSignUp(admin, false));
    expectNot(await signIn(identityProviderId, subject), /no one can sign up/);
  });
});

describe("who may come in", () => {
  test("an address that the provider has not verified makes nobody", async () => {
    ok(await openSignUp(admin));
    const identityProviderId = await addProvider();
    for (const claims of [{ email_verified: false }, { email_verified: "true" }, { email: undefined }])
      expectNot(await signIn(identityProviderId, `new-${++counted}`, { claims }), /not verified your e-mail/);
  });

  test("Google's word counts for its own domain, and for domains that it manages", async () => {
    ok(await openSignUp(admin));
    const identityProviderId = await addProvider({ kind: "google" });
    const at = (claims: object) => signIn(identityProviderId, `new-${++counted}`, { claims: { ...claims } });
    expectNot(await at({ email: newEmail() }), /not verified your e-mail/);
    ok(await at({ email: newEmail(), hd: "example.com" }));
    ok(await at({ email: `someone${++counted}@gmail.com` }));
  });

  test("only addresses of the provider's domains, also when they were linked before", async () => {
    ok(await openSignUp(admin));
    const identityProviderId = await addProvider({ mailDomains: ["corp.example"] });
    const subject = `new-${++counted}`;
    const inside = { claims: { email: `${subject}@mail.corp.example` } };
    ok(await signIn(identityProviderId, subject, inside));
    expectNot(await signIn(identityProviderId, subject), /may not sign in here/);
    expectNot(
      await signIn(identityProviderId, `new-${++counted}`, { claims: { email: "a@corp.example.evil.test" } }),
      /may not sign in here/,
    );
  });

  test("nobody new while sign-up is off; nobody who is suspended", async () => {
    const identityProviderId = await addProvider();
    ok(await openSignUp(admin, false));
    expectNot(await signIn(identityProviderId, `new-${++counted}`), /no one can sign up/);
    const session = await customer();
    const subject = `subject-${++counted}`;
    ok(await link(session, identityProviderId, subject));
    await shop.world.sql`update accounts set status = 'suspended' where id = ${session.accountId}`;
    expectNot(await signIn(identityProviderId, subject), /suspended/);
  });

  test("a provider of one brand signs nobody in at another one", async () => {
    const identityProviderId = await addProvider();
    for (const host of [ACME, OTHER]) {
      const answer = await shop.call("/api/panel/sign-in/identity", {
        ...{ host, body: { identityProviderId } },
        headers: { origin: `http://${host}`, "x-forwarded-for": newAddress() },
      });
      expectRefusal(answer, "not_found");
    }
    expectRefusal(
      await seller.patch(`/identity-providers/${identityProviderId}`, { name: "Mine", proof }),
      "not_found",
    );
  });
});

describe("roles by a claim", () => {
  const ROLES = [
    { value: "staff", role: "developer" },
    { value: "bosses", role: "owner" },
  ];
  const withRoles = (accountId: number) => addProvider({ accountId, roleClaim: "realm.groups", roles: ROLES });
  const groups = (...values: unknown[]): Lie => ({ claims: { realm: { groups: values } } });

  test("a new person is a member of the account with the role, and of nothing else; the role follows the claim", async () => {
    ok(await openSignUp(admin, false));
    const account = await shop.world.addCustomer();
    const identityProviderId = await withRoles(account.accountId);
    const subject = `new-${++counted}`;
    const seen = await me(await signIn(identityProviderId, subject, groups("staff", "others")));
    expect(seen).toMatchObject({
      member: "developer",
      account: { accountId: account.accountId, role: "customer" },
      accounts: [{ accountId: account.accountId, role: "developer" }],
    });
    expect((await me(await signIn(identityProviderId, subject, groups("bosses")))).member).toBe("owner");
    const audit = await shop.world.sql`
      select action, actor_id::int from audit_entries where subject = 'members' and account_id = ${account.accountId} order by id`;
    const { accountId: personId } = seen.person;
    expect([...audit]).toEqual([
      { action: "added", actor_id: personId },
      { action: "changed", actor_id: personId },
    ]);
  });

  test("a claim that names an admin, or more than one role, or none gives nothing", async () => {
    const account = await shop.world.addCustomer();
    const identityProviderId = await withRoles(account.accountId);
    const at = (lie: Lie) => signIn(identityProviderId, `new-${++counted}`, lie);
    for (const lie of [groups("admin"), groups("Staff"), groups(), groups(["staff"]), {}])
      expectNot(await at(lie), /gives you no role/);
    expectNot(await at(groups("staff", "bosses")), /more than one role/);
    expect((await me(await at(groups("staff", "staff")))).member).toBe("developer");
    for (const role of ["admin", "reseller"]) {
      const wanted = { accountId: account.accountId, roleClaim: "role", roles: [{ value: "a", role }] };
      const body = { kind: "oidc", name: newName(), issuer: liar.issuer, ...CLIENT, ...wanted, proof };
      expectRefusal(await admin.post("/identity-providers", body), "validation_failed", { param: "roles.0.role" });
    }
  });

  test("only in a customer's account of the seller", async () => {
    const body = { kind: "oidc", issuer: liar.issuer, ...CLIENT, roleClaim: "role", roles: ROLES, proof };
    const theirs = await shop.world.addCustomer();
    for (const accountId of [theirs.accountId, acme.accountId, admin.accountId])
      expectRefusal(
        await seller.post("/identity-providers", { ...body, name: newName(), mailDomains: [ACME], accountId }),
        "validation_failed",
        { param: "accountId" },
      );
  });

  test("who was removed stays out, and the last owner stays one", async () => {
    const account = await shop.world.addCustomer();
    const identityProviderId = await withRoles(account.accountId);
    const owner = await signInTo(shop, account, { address: newAddress() });
    const subject = `new-${++counted}`;
    const seen = await me(await signIn(identityProviderId, subject, groups("staff")));
    ok(await owner.delete(`/members/${seen.person.accountId}`));
    expectNot(await signIn(identityProviderId, subject, groups("bosses")), /no longer a member/);
    const own = `subject-${++counted}`;
    ok(await link(owner, identityProviderId, own));
    expect((await me(await signIn(identityProviderId, own, groups("staff")))).member).toBe("owner");
  });
});

describe("GitHub", () => {
  test("a person is their id there, with the primary address if it is verified", async () => {
    ok(await openSignUp(admin));
    const identityProviderId = await addProvider({ kind: "github" });
    const email = newEmail();
    const at = async (id: unknown, emails: unknown) => {
      const { url, cookie } = await leave(identityProviderId);
      expect(new URL(url).pathname).toBe("/login/oauth/authorize");
      return comeBack(liar.githubCode(url, { id, login: "octo", name: null }, emails), cookie);
    };
    const other = { email: newEmail(), primary: false, verified: true };
    expectNot(await at(7, [other, { email, primary: true, verified: false }]), /not verified your e-mail/);
    const first = await me(await at(7, [other, { email, primary: true, verified: true }]));
    expect(first.person).toMatchObject({ email, name: "octo" });
    // The same person, whatever the address is by now.
    const second = await me(await at(7, [{ email: newEmail(), primary: true, verified: true }]));
    expect(second.person.accountId).toBe(first.person.accountId);
    expectNot(await at("seven", [{ email: newEmail(), primary: true, verified: true }]), NOT_TRUSTED);
  });

  test("has no claims that give roles", async () => {
    const { accountId } = await shop.world.addCustomer();
    const roles = { accountId, roleClaim: "role", roles: [{ value: "a", role: "viewer" }] };
    const body = { kind: "github", name: newName(), issuer: liar.issuer, ...CLIENT, ...roles, proof };
    expectRefusal(await admin.post("/identity-providers", body), "validation_failed", { param: "accountId" });
  });
});

describe("while the provider is away", () => {
  test("the person reads so, and signs in another way; nothing is counted as a failed attempt", async () => {
    const away = await startLyingIssuer();
    const more = await shop.start({ IDENTITY_ALLOW_PRIVATE: away.hostPort, TRUSTED_PROXIES: "127.0.0.1,::1" });
    try {
      const body = { kind: "oidc", name: "Away", issuer: away.issuer, ...CLIENT, proof };
      const added = await admin.call("/identity-providers", { body, origin: more.origin });
      const { identityProviderId } = ok(added);
      const { url, cookie } = await leave(identityProviderId, { origin: more.origin });
      for (const state of ["failing", "huge", "elsewhere"] as const) {
        away.set(state);
        const fresh = await leave(identityProviderId, { origin: more.origin });
        const query = `?code=1&state=${new URL(fresh.url).searchParams.get("state")}`;
        const answer = await comeBack(query, fresh.cookie, { origin: more.origin });
        expectRefusal(answer, state === "elsewhere" ? "session_required" : "service_unavailable");
      }
      // The other replicas ask it anew, and send no browser to a script.
      away.set("a script");
      const other = await shop.start({ IDENTITY_ALLOW_PRIVATE: away.hostPort });
      expectRefusal(await begin(identityProviderId, other.origin), "service_unavailable");
      await other.stop();
      away.set("failing");
      const query = `?code=1&state=${new URL(url).searchParams.get("state")}`;
      const answer = await comeBack(query, cookie, { origin: more.origin });
      expectRefusal(answer, "service_unavailable");
      expect(answer.json.error.message).toMatch(/Away does not answer/);
      await away.stop();
      // A replica that may not call it.
      expectRefusal(await begin(identityProviderId), "service_unavailable");
    } finally {
      await more.stop();
    }
  });

  const begin = (identityProviderId: number, origin = replica(0)) =>
    shop.call("/api/panel/sign-in/identity", {
      ...{ host: PANEL, origin, body: { identityProviderId } },
      headers: { origin: `http://${PANEL}`, "x-forwarded-for": newAddress() },
    });

  test("a person without a password gets a link by mail; switching it off ends its sessions, and removing it waits for them", async () => {
    ok(await openSignUp(admin));
    const identityProviderId = await addProvider();
    const subject = `new-${++counted}`;
    const entered = await signIn(identityProviderId, subject);
    const { person } = await me(entered);
    expectRefusal(await admin.delete(`/identity-providers/${identityProviderId}`), "validation_failed");
    ok(await admin.patch(`/identity-providers/${identityProviderId}`, { enabled: false, proof }));
    const cookie = cookieNamed(entered, "tollgate_session");
    expectRefusal(await shop.call("/api/panel/me", { host: PANEL, headers: { cookie } }), "session_required");
    expectRefusal(await begin(identityProviderId), "not_found");
    const forgot = { email: person.email };
    const headers = { origin: `http://${PANEL}`, "x-forwarded-for": newAddress() };
    ok(await shop.call("/api/panel/sign-in/forgot", { host: PANEL, body: forgot, headers }));
    const mailed = await shop.world.sql`
      select kind from outbox_messages where account_id = ${person.accountId} and kind = 'password_reset'`;
    expect(mailed).toHaveLength(1);
    await signInTo(shop, person, { address: newAddress() });
    ok(await admin.delete(`/identity-providers/${identityProviderId}`));
  });
});

describe("a seller's settings", () => {
  test("the issuer is asked first; a private address, plain http and a wrong issuer are refused", async () => {
    const body = { kind: "oidc", name: newName(), ...CLIENT, proof };
    for (const issuer of [
      ...["http://login.example.com", "https://127.0.0.1:1", "https://[::1]", "https://169.254.169.254", "nonsense"],
      ...[`${liar.issuer}/elsewhere`, "https://user:pw@example.com", "https://example.com?x=1"],
    ])
      expectRefusal(await admin.post("/identity-providers", { ...body, issuer }), "validation_failed", {
        param: "issuer",
      });
    expect(
      ok(await admin.get("/identity-providers")).identityProviders.map(({ name }: { name: string }) => name),
    ).not.toContain(body.name);
  });

  test("the secret is encrypted, and hidden in the audit log and in answers", async () => {
    const clientSecret = `secret-${++counted}-of-some-length`;
    const identityProviderId = await addProvider({ clientSecret });
    ok(await admin.patch(`/identity-providers/${identityProviderId}`, { clientSecret: `${clientSecret}-2`, proof }));
    const [row] = await shop.world.sql`
      select (select jsonb_agg(to_jsonb(a)) from audit_entries a)::text || (select jsonb_agg(to_jsonb(p)) from identity_providers p)::text as all`;
    expect(row?.all).not.toContain(clientSecret);
    const audit = await shop.world.sql`select action, after from audit_entries
      where subject = 'identity_providers' and subject_id = ${String(identityProviderId)} order by id`;
    expect([...audit]).toMatchObject([
      { action: "added", after: { secret_ciphertext: "(hidden)", issuer: liar.issuer, client_id: CLIENT.clientId } },
      { action: "changed", after: { secret_ciphertext: "(hidden)" } },
    ]);
  });

  test("a reseller names its mail domains, and confirms who it is", async () => {
    const body = { kind: "oidc", name: newName(), issuer: liar.issuer, ...CLIENT };
    expectRefusal(await seller.post("/identity-providers", { ...body, proof }), "validation_failed", {
      param: "mailDomains",
    });
    const wrong = { ...body, mailDomains: [ACME], proof: { password: "not the password" } };
    expectRefusal(await seller.post("/identity-providers", wrong), "validation_failed", { param: "password" });
  });
});
