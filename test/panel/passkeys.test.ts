import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHmac, randomBytes } from "node:crypto";
import { deriveKey } from "../../src/platform/crypto.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { Person } from "../world.ts";
import { addSecondFactor, cookieOf, ok, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";
import { addPasskeyTo, CERTIFIED, type Lie, type SoftwarePasskey, softwarePasskey } from "./software_authenticator.ts";
import { databaseMs, expectSince } from "./stored.ts";

/** Passkeys over HTTP, with an authenticator that can lie. Source: SGN-9, SGN-10, SGN-11, SGN-12, SGN-13, SEC-3. */

const ACME = "ai.acme.test";
const OTHER = "ai.other.test";
const WRONG = "a wrong password";
const NEW_PASSWORD = "an even longer password";
const PASSKEYS_MAX = 10;
/** Parts of a challenge. */
const NONCE_BYTES = 16;
const EXPIRY_BYTES = 6;

let shop: Shop;
let acme: Person;
let addresses = 0;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", replicas: 2, env: { TRUSTED_PROXIES: "127.0.0.1,::1" } });
  acme = await shop.world.addReseller(ACME);
  await shop.world.addReseller(OTHER);
});
afterAll(() => shop.close());

const newAddress = () => `192.0.2.${++addresses}`;
const at = (host: string) => ({ host, origin: `http://${host}` });
const me = (cookie: string, host = PANEL) => shop.call("/api/panel/me", { host, headers: { cookie } });

/** A customer, signed in; of ACME if `host` is that. */
async function somebody(host = PANEL): Promise<PanelSession> {
  const person = await shop.world.addCustomer(host === ACME ? acme.accountId : undefined);
  return signInTo(shop, person, { host });
}

/** The creation options that the server sends after the password. */
const begin = (session: PanelSession, proof: unknown = { password: PASSWORD }) =>
  session.post("/settings/passkeys/begin", { proof });

const list = async (session: PanelSession) => ok(await session.get("/settings/passkeys")).passkeys;

async function signInOptions(host = PANEL, replica = 0) {
  const origin = shop.replicas[replica]?.origin ?? "";
  return ok(
    await shop.call("/api/panel/sign-in/passkey", { host, origin, headers: { "x-forwarded-for": newAddress() } }),
  );
}

function sendSignIn(response: unknown, { host = PANEL, replica = 0, address = newAddress() } = {}) {
  return shop.call("/api/panel/sign-in/passkey", {
    host,
    origin: shop.replicas[replica]?.origin ?? "",
    body: { response },
    headers: { origin: `http://${host}`, "x-forwarded-for": address },
  });
}

const signIn = async (passkey: SoftwarePasskey, lie: Lie = {}, host = PANEL) =>
  sendSignIn(passkey.get(await signInOptions(host), lie), { host });

const audit = async ({ accountId }: { accountId: number }) => [
  ...(await shop.world.sql`select actor_id::int, action, subject, before, after from audit_entries
    where account_id = ${accountId} and subject = 'passkeys' order by id`),
];

describe("adding a passkey", () => {
  test("needs the password; the passkey is then listed, and the audit log shows it without its key", async () => {
    const session = await somebody();
    expectRefusal(await begin(session, {}), "validation_failed", { param: "password" });
    expectRefusal(await begin(session, { password: WRONG }), "validation_failed", { param: "password" });
    const options = ok(await begin(session));
    expect(options).toMatchObject({
      rp: { id: PANEL, name: expect.any(String) },
      user: { name: session.email, id: expect.stringMatching(/^[\w-]{43}$/) },
      attestation: "none",
      authenticatorSelection: { residentKey: "required", userVerification: "required" },
      excludeCredentials: [],
    });
    const passkey = await addPasskeyTo(session, { name: " my <b>phone</b> " });
    expect(await list(session)).toEqual([
      {
        id: expect.any(Number),
        name: "my <b>phone</b>",
        host: PANEL,
        synced: false,
        cloned: false,
        createdAt: expect.any(String),
        lastUsedAt: null,
      },
    ]);
    expect(ok(await begin(session)).excludeCredentials).toEqual([
      { id: passkey.id, transports: ["internal"], type: "public-key" },
    ]);
    expect(await audit(session)).toEqual([
      {
        actor_id: session.accountId,
        action: "added",
        subject: "passkeys",
        before: null,
        after: expect.objectContaining({
          name: "my <b>phone</b>",
          host: PANEL,
          public_key: "(hidden)",
          credential_id: "(hidden)",
        }),
      },
    ]);
  });

  test("needs more than the password while the second factor is on", async () => {
    const session = await somebody();
    const { code } = await addSecondFactor(session);
    expectRefusal(await begin(session), "validation_failed", { param: "code" });
    ok(await begin(session, { password: PASSWORD, code: code(1) }));
  });

  test("a new passkey with a wrong origin, host, challenge, type, without verification or with a certificate is refused", async () => {
    const session = await somebody();
    const other = await somebody();
    const passkey = softwarePasskey(at(PANEL));
    const refuse = async (response: unknown, who = session) =>
      expectRefusal(await who.post("/settings/passkeys", { name: "x", response }), "validation_failed", {
        param: "response",
      });
    const lies: Lie[] = [
      { origin: "http://evil.test" },
      { origin: `https://${PANEL}` },
      { origin: `http://${PANEL}:8443` },
      { origin: `http://${PANEL}/` },
      { host: "evil.test" },
      { host: "tollgate.test" },
      { challenge: randomBytes(54).toString("base64url") },
      { challenge: "AAAA" },
      { challenge: "" },
      { type: "webauthn.get" },
      { verified: false },
    ];
    for (const lie of lies) await refuse(passkey.create(ok(await begin(session)), lie));
    await refuse(passkey.create(ok(await begin(session)), { statement: CERTIFIED }));
    await refuse(passkey.create(ok(await begin(session)), { statement: { fmt: "tpm", attStmt: Buffer.of(0xa0) } }));
    // A challenge is for one session and one purpose.
    await refuse(passkey.create(ok(await begin(other))));
    await refuse(passkey.create(await signInOptions()));
    await refuse(passkey.create(ok(await session.post("/settings/passkeys/challenge"))));
    expect(await list(session)).toEqual([]);
    ok(await session.post("/settings/passkeys", { name: "x", response: passkey.create(ok(await begin(session))) }));
  });

  test("a challenge adds only one passkey", async () => {
    const session = await somebody();
    const options = ok(await begin(session));
    ok(await session.post("/settings/passkeys", { name: "a", response: softwarePasskey(at(PANEL)).create(options) }));
    const again = { name: "b", response: softwarePasskey(at(PANEL)).create(options) };
    expectRefusal(await session.post("/settings/passkeys", again), "validation_failed", { param: "response" });
    expect(await list(session)).toHaveLength(1);
  });

  test("a credential of another account is refused, and stays with that account", async () => {
    const [owner, thief] = [await somebody(), await somebody()];
    const passkey = await addPasskeyTo(owner);
    const response = passkey.create(ok(await begin(thief)));
    expectRefusal(await thief.post("/settings/passkeys", { name: "mine", response }), "validation_failed", {
      param: "response",
    });
    const answer = await signIn(passkey);
    expect((await me(cookieOf(answer))).json.person.accountId).toBe(owner.accountId);
  });

  test("an account has at most ten passkeys, also when several are added concurrently", async () => {
    const session = await somebody();
    for (let i = 0; i < PASSKEYS_MAX - 2; i++) await addPasskeyTo(session);
    const forms = await Promise.all(
      Array.from({ length: 6 }, async (_, i) => ({
        name: `at once ${i}`,
        response: softwarePasskey(at(PANEL)).create(ok(await begin(session))),
      })),
    );
    const answers = await Promise.all(forms.map((form) => session.post("/settings/passkeys", form)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2);
    for (const answer of answers.filter(({ status }) => status !== 200))
      expect(answer.json.error).toMatchObject({ code: "validation_failed", message: expect.stringContaining("10") });
    expect(await list(session)).toHaveLength(PASSKEYS_MAX);
  });

  test("malformed answers of a browser get one clear error, and the challenge stays valid", async () => {
    const session = await somebody();
    const good = softwarePasskey(at(PANEL)).create(ok(await begin(session)));
    const inner = (over: Record<string, unknown>) => ({ ...good, response: { ...good.response, ...over } });
    const cases: [response: unknown, param: string][] = [
      [undefined, "response"],
      [null, "response"],
      [[], "response"],
      [{ ...good, id: "not base64url!" }, "response.id"],
      [{ ...good, id: "" }, "response.id"],
      [{ ...good, rawId: "a".repeat(1365) }, "response.rawId"],
      [{ ...good, type: "password" }, "response.type"],
      [{ ...good, isAdmin: true }, "response.isAdmin"],
      [inner({ attestationObject: 5 }), "response.response.attestationObject"],
      [inner({ attestationObject: "a".repeat(8193) }), "response.response.attestationObject"],
      [inner({ clientDataJSON: "++//" }), "response.response.clientDataJSON"],
      [inner({ transports: Array(11).fill("usb") }), "response.response.transports"],
      // The form is valid, the content is not.
      [inner({ attestationObject: "AAAA" }), "response"],
      [inner({ attestationObject: randomBytes(300).toString("base64url") }), "response"],
      [inner({ clientDataJSON: "AAAA" }), "response"],
      [inner({ clientDataJSON: Buffer.from("[]").toString("base64url") }), "response"],
      [inner({ clientDataJSON: Buffer.from("null").toString("base64url") }), "response"],
      [inner({ clientDataJSON: Buffer.from('{"challenge":{}}').toString("base64url") }), "response"],
      [{ ...good, id: "AAAA", rawId: "BBBB" }, "response"],
    ];
    for (const [response, param] of cases)
      expectRefusal(await session.post("/settings/passkeys", { name: "x", response }), "validation_failed", { param });
    expectRefusal(
      await session.post("/settings/passkeys", { name: "x", response: "y".repeat(1024 * 1024) }),
      "request_too_large",
    );
    for (const name of ["", " ", "x".repeat(61), "x".repeat(500), "a\nb", "a\u0000b", 5])
      expectRefusal(await session.post("/settings/passkeys", { name, response: good }), "validation_failed", {
        param: "name",
      });
    ok(await session.post("/settings/passkeys", { name: "x".repeat(60), response: good }));
  });
});

describe("signing in", () => {
  test("a passkey alone signs in, also with the second factor on, and on another replica than the one that made the challenge", async () => {
    const session = await somebody();
    const passkey = await addPasskeyTo(session);
    await addSecondFactor(session);
    const answer = await sendSignIn(passkey.get(await signInOptions(PANEL, 0)), { replica: 1 });
    expect(answer.json).toEqual({ csrfToken: expect.stringMatching(/^[\w-]{43}$/), expiresAt: expect.any(String) });
    expect(answer.headers.get("set-cookie")?.toLowerCase()).toContain("httponly");
    expect((await me(cookieOf(answer))).json.person.accountId).toBe(session.accountId);
    expect((await list(session))[0].lastUsedAt).toMatch(/^\d{4}-/);
    // Using a passkey is no change.
    expect(await audit(session)).toHaveLength(1);
  });

  test("a wrong origin, host, challenge, type or signature, and a missing user verification, get the same 401 and no cookie", async () => {
    const session = await somebody();
    const passkey = await addPasskeyTo(session);
    const lies: Lie[] = [
      { origin: "http://evil.test" },
      { origin: `https://${PANEL}` },
      { origin: `http://${PANEL}:81` },
      { origin: `http://${PANEL}.evil.test` },
      { host: "evil.test" },
      { challenge: randomBytes(54).toString("base64url") },
      { challenge: "A" },
      { type: "webauthn.create" },
      { verified: false },
      { forged: true },
    ];
    const messages = new Set<string>();
    for (const lie of lies) {
      const answer = await signIn(passkey, lie);
      expectRefusal(answer, "session_required");
      expect(answer.headers.get("set-cookie")).toBeNull();
      messages.add(answer.json.error.message);
    }
    const unknown = await signIn(softwarePasskey(at(PANEL)));
    expectRefusal(unknown, "session_required");
    messages.add(unknown.json.error.message);
    expect(messages.size).toBe(1);
    expect((await signIn(passkey)).status).toBe(200);
  });

  test("a challenge signs in once: one of eight concurrent copies of an answer succeeds, over two replicas", async () => {
    const passkey = await addPasskeyTo(await somebody());
    const signed = passkey.get(await signInOptions());
    const answers = await Promise.all(Array.from({ length: 8 }, (_, i) => sendSignIn(signed, { replica: i % 2 })));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 200)) expectRefusal(answer, "session_required");
    expectRefusal(await sendSignIn(signed), "session_required");
    // A passkey's answer that was sent twice does not count as a copy either.
    expect((await signIn(passkey)).status).toBe(200);
  });

  test("a challenge for adding or confirming, and a challenge of another host, do not sign in", async () => {
    const session = await somebody();
    const passkey = await addPasskeyTo(session);
    for (const options of [
      ok(await begin(session)),
      ok(await session.post("/settings/passkeys/challenge")),
      await signInOptions(ACME),
    ])
      expectRefusal(await sendSignIn(passkey.get(options)), "session_required");
  });

  test("a passkey works only on its own host", async () => {
    const reseller = await signInTo(shop, acme);
    const passkey = await addPasskeyTo(reseller);
    expect((await signIn(passkey)).status).toBe(200);
    // The reseller also signs in on its domain, but this passkey belongs to another host.
    expectRefusal(await signIn(passkey, { origin: `http://${ACME}`, host: ACME }, ACME), "session_required");
    const there = await somebody(ACME);
    const theirs = await addPasskeyTo(there);
    expect((await signIn(theirs, {}, ACME)).status).toBe(200);
    for (const host of [PANEL, OTHER])
      expectRefusal(await signIn(theirs, { origin: `http://${host}`, host }, host), "session_required");
  });

  test("a passkey of a domain that has moved to another tenant does not sign in there", async () => {
    const host = "ai.moving.test";
    const [from, to] = [await shop.world.addReseller(host), await shop.world.addReseller()];
    const { sql } = shop.world;
    const session = await signInTo(shop, from, { host });
    const passkey = await addPasskeyTo(session);
    expect((await signIn(passkey, {}, host)).status).toBe(200);
    await sql`update hosts set reseller_id = ${to.accountId} where host = ${host}`;
    // The replicas read the change within seconds.
    await until(async () => (await signIn(passkey, {}, host)).status === 401);
  });

  test("a passkey whose counter does not rise is refused as a copy and never signs in again; the audit log says so", async () => {
    const session = await somebody();
    const passkey = await addPasskeyTo(session, { counter: 5 });
    expect((await signIn(passkey, { counter: 9 })).status).toBe(200);
    const copied = await signIn(passkey, { counter: 9 });
    expectRefusal(copied, "session_required");
    expect(copied.json.error.message).toContain("copy");
    expect(copied.headers.get("set-cookie")).toBeNull();
    expectRefusal(await signIn(passkey, { counter: 20 }), "session_required");
    expect((await list(session))[0]).toMatchObject({ cloned: true });
    const entries = await audit(session);
    expect(entries).toHaveLength(2);
    expect(entries[1]).toMatchObject({ actor_id: null, action: "changed", after: { cloned_at: expect.any(String) } });
    // A forged signature does not mark the passkey as copied: otherwise others could switch it off.
    const safe = await addPasskeyTo(session, { counter: 5 });
    expectRefusal(await signIn(safe, { counter: 0, forged: true }), "session_required");
    expect((await signIn(safe, { counter: 6 })).status).toBe(200);
  });

  test("an authenticator that always sends the counter 0 is accepted", async () => {
    const passkey = await addPasskeyTo(await somebody(), { counter: 0 });
    for (let i = 0; i < 3; i++) expect((await signIn(passkey)).status).toBe(200);
  });

  test("a passkey of a suspended account, or of a suspended reseller's customer, gets the same 401", async () => {
    const { sql } = shop.world;
    const session = await somebody();
    const passkey = await addPasskeyTo(session);
    await sql`update accounts set status = 'suspended' where id = ${session.accountId}`;
    expectRefusal(await signIn(passkey), "session_required");
    await sql`update accounts set status = 'active' where id = ${session.accountId}`;
    expect((await signIn(passkey)).status).toBe(200);
    const customer = await somebody(ACME);
    const theirs = await addPasskeyTo(customer);
    await sql`update accounts set status = 'suspended' where id = ${acme.accountId}`;
    // As soon as the replica has read the change, the reseller's host is served no more.
    const { json } = await signIn(theirs, {}, ACME);
    expect(["session_required", "host_not_allowed"]).toContain(json.error.code);
    await sql`update accounts set status = 'active' where id = ${acme.accountId}`;
    await until(async () => (await signIn(theirs, {}, ACME)).status === 200);
  });

  test("an address gets 429 after ten refused answers", async () => {
    const passkey = await addPasskeyTo(await somebody());
    const address = newAddress();
    for (let i = 0; i < 10; i++)
      expectRefusal(
        await sendSignIn(passkey.get(await signInOptions(), { forged: true }), { address }),
        "session_required",
      );
    expectRefusal(await sendSignIn(passkey.get(await signInOptions()), { address }), "too_many_requests");
    expect((await sendSignIn(passkey.get(await signInOptions()))).status).toBe(200);
  });

  test("a foreign Origin gets 403, a body of a megabyte 413, a malformed answer 422", async () => {
    const passkey = await addPasskeyTo(await somebody());
    const signed = passkey.get(await signInOptions());
    const foreign = { host: PANEL, body: { response: signed }, headers: { origin: "http://evil.test" } };
    expectRefusal(await shop.call("/api/panel/sign-in/passkey", foreign), "csrf_failed");
    expectRefusal(await sendSignIn("x".repeat(1024 * 1024)), "request_too_large");
    const inner = (over: Record<string, unknown>) => ({ ...signed, response: { ...signed.response, ...over } });
    const cases: [response: unknown, param: string][] = [
      [{ ...signed, id: "+/=" }, "response.id"],
      [{ ...signed, rawId: 7 }, "response.rawId"],
      [inner({ signature: "" }), "response.response.signature"],
      [inner({ authenticatorData: "a".repeat(4097) }), "response.response.authenticatorData"],
      [inner({ accountId: 1 }), "response.response.accountId"],
    ];
    for (const [response, param] of cases) expectRefusal(await sendSignIn(response), "validation_failed", { param });
    for (const over of [{ authenticatorData: "AAAA" }, { signature: "AAAA" }, { clientDataJSON: "AAAA" }])
      expectRefusal(await sendSignIn(inner(over)), "session_required");
    expect((await sendSignIn(signed)).status).toBe(200);
  });

  test("a challenge is valid for five minutes by the database's clock, and its expiry cannot be changed", async () => {
    const passkey = await addPasskeyTo(await somebody());
    const askedMs = await databaseMs(shop);
    const { challenge } = await signInOptions();
    const bytes = Buffer.from(challenge, "base64url");
    const madeMs = bytes.readUIntBE(NONCE_BYTES, EXPIRY_BYTES) - 5 * 60_000;
    await expectSince(shop, new Date(madeMs).toISOString(), askedMs);
    bytes.writeUIntBE(Date.now() + 3_600_000, NONCE_BYTES, EXPIRY_BYTES);
    expectRefusal(await sendSignIn(passkey.get({ challenge: bytes.toString("base64url") })), "session_required");
    // Made with the service's own key; it has only expired.
    expect((await sendSignIn(passkey.get({ challenge: challengeUntil(Date.now() + 60_000) }))).status).toBe(200);
    const late = await sendSignIn(passkey.get({ challenge: challengeUntil(Date.now() - 1_000) }));
    expectRefusal(late, "session_required");
    expect(late.json.error.message).toContain("too long");
  });
});

/** A challenge for signing in on PANEL, as the service makes it. */
function challengeUntil(unixMs: number): string {
  const body = randomBytes(NONCE_BYTES + EXPIRY_BYTES);
  body.writeUIntBE(unixMs, NONCE_BYTES, EXPIRY_BYTES);
  const key = deriveKey(Buffer.from(TEST_SECRET_KEY, "base64"), "passkey-challenge");
  const code = createHmac("sha256", key).update(body).update(`sign in\0${PANEL}\0`).digest();
  return Buffer.concat([body, code]).toString("base64url");
}

describe("confirming", () => {
  /** A person with a passkey, and with the second factor on if `isSecured`. */
  async function keyed({ isSecured = true, counter = 1 } = {}) {
    const session = await somebody();
    const passkey = await addPasskeyTo(session, { counter });
    const secured = isSecured ? await addSecondFactor(session) : null;
    const sign = async (lie: Lie = {}) => ({
      passkey: passkey.get(ok(await session.post("/settings/passkeys/challenge")), lie),
    });
    return { session, passkey, sign, ...secured };
  }

  const FORMS: [path: string, body: Record<string, unknown>, isSecured: boolean][] = [
    ["/settings/totp", {}, false],
    ["/settings/recovery-codes", {}, true],
    ["/settings/totp/remove", {}, true],
    ["/settings/password", { next: NEW_PASSWORD }, true],
  ];

  for (const [path, body, isSecured] of FORMS) {
    test(`${path}: a passkey confirms once; a forged answer, another session's challenge and another account's passkey do not confirm`, async () => {
      const { session, passkey, sign } = await keyed({ isSecured });
      const stranger = await keyed({ isSecured: false });
      const before = await session.get("/settings");
      const send = (proof: unknown) => session.post(path, { ...body, proof });
      const lies: Lie[] = [{ forged: true }, { verified: false }, { origin: "http://evil.test" }, { type: "x" }];
      const proofs = [
        ...(await Promise.all(lies.map((lie) => sign(lie)))),
        { passkey: passkey.get(await signInOptions()) },
        { passkey: passkey.get(ok(await stranger.session.post("/settings/passkeys/challenge"))) },
        { passkey: stranger.passkey.get(ok(await session.post("/settings/passkeys/challenge"))) },
      ];
      for (const proof of proofs) expectRefusal(await send(proof), "validation_failed", { param: "passkey" });
      expectRefusal(await send({}), "validation_failed", { param: "password" });
      expect((await session.get("/settings")).json).toEqual(before.json);
      const signed = await sign();
      ok(await send(signed));
      expectRefusal(await send(signed), "validation_failed", { param: "passkey" });
    });
  }

  test("a person who has forgotten the password sets a new one, which ends every other session", async () => {
    const { session, passkey, sign } = await keyed();
    const elsewhere = cookieOf(await signIn(passkey));
    const proof = await sign();
    const short = await session.post("/settings/password", { next: "short", proof });
    expectRefusal(short, "validation_failed", { param: "next" });
    // A refused new password has not used the signature up.
    ok(await session.post("/settings/password", { next: NEW_PASSWORD, proof }));
    expectRefusal(await me(elsewhere), "session_required");
    expect((await session.get("/me")).status).toBe(200);
    expect((await signIn(passkey)).status).toBe(200);
    expectRefusal(await begin(session, { password: PASSWORD }), "validation_failed", { param: "password" });
    expectRefusal(await begin(session, { password: NEW_PASSWORD }), "validation_failed", { param: "code" });
  });

  test("one of three concurrent new passwords is set, each confirmed by its own signature", async () => {
    // It does not count: otherwise signatures that arrive out of order would look like those of a copy.
    const { session, sign } = await keyed({ counter: 0 });
    const proofs: unknown[] = [];
    // As many requests of an account run at once.
    for (let i = 0; i < 3; i++) proofs.push(await sign());
    const { sql } = shop.world;
    let answering: Promise<Answer[]> | undefined;
    await sql.begin(async (holder) => {
      await holder`select from accounts where id = ${session.accountId} for update`;
      answering = Promise.all(
        proofs.map((proof, i) => session.post("/settings/password", { next: `${NEW_PASSWORD} ${i}`, proof })),
      );
      await until(async () => {
        const waiting =
          await sql`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
        return waiting.length === proofs.length;
      });
    });
    const answers = (await answering) ?? [];
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 200)) expectRefusal(answer, "validation_failed");
  });

  test("after ten refused answers the right one gets 429; the password still confirms", async () => {
    const { session, sign, code } = await keyed();
    const renew = (proof: unknown) => session.post("/settings/recovery-codes", { proof });
    for (let i = 0; i < 10; i++)
      expectRefusal(await renew(await sign({ forged: true })), "validation_failed", { param: "passkey" });
    expectRefusal(await renew(await sign()), "too_many_requests");
    ok(await renew({ password: PASSWORD, code: code?.(1) }));
  });
});

describe("renaming and removing", () => {
  test("removing needs the password or a passkey and ends the other sessions; the passkey no longer signs in", async () => {
    const session = await somebody();
    const passkey = await addPasskeyTo(session);
    const elsewhere = cookieOf(await signIn(passkey));
    const [{ id }] = await list(session);
    const remove = (proof: unknown) => session.post(`/settings/passkeys/${id}/remove`, { proof });
    expectRefusal(await remove({}), "validation_failed", { param: "password" });
    expectRefusal(await remove({ password: WRONG }), "validation_failed", { param: "password" });
    const challenge = ok(await session.post("/settings/passkeys/challenge"));
    expect(challenge.allowCredentials).toEqual([{ id: passkey.id, transports: ["internal"], type: "public-key" }]);
    expectRefusal(await remove({ passkey: passkey.get(challenge, { forged: true }) }), "validation_failed", {
      param: "passkey",
    });
    expectRefusal(await remove({ passkey: passkey.get(await signInOptions()) }), "validation_failed", {
      param: "passkey",
    });
    expect((await me(elsewhere)).status).toBe(200);
    expect(ok(await remove({ passkey: passkey.get(challenge) }))).toEqual({ host: PANEL, credentialId: passkey.id });
    expectRefusal(await me(elsewhere), "session_required");
    expect((await session.get("/me")).status).toBe(200);
    expect(await list(session)).toEqual([]);
    expectRefusal(await signIn(passkey), "session_required");
    expect((await audit(session)).at(-1)).toMatchObject({ action: "removed", actor_id: session.accountId });
    const told = await shop.world
      .sql`select kind, data from outbox_messages where account_id = ${session.accountId} order by id`;
    expect(told.map(({ kind, data }) => [kind, data])).toEqual([
      ["passkey_added", { name: expect.any(String), host: PANEL }],
      ["passkey_removed", { names: [told[0]?.data.name] }],
    ]);
  });

  test("another account's passkey confirms nothing, and cannot be renamed or removed", async () => {
    const [session, other] = [await somebody(), await somebody()];
    const [own, theirs] = [await addPasskeyTo(session), await addPasskeyTo(other)];
    const [{ id }] = await list(session);
    const challenge = ok(await session.post("/settings/passkeys/challenge"));
    const proof = { passkey: theirs.get(challenge) };
    expectRefusal(await session.post(`/settings/passkeys/${id}/remove`, { proof }), "validation_failed", {
      param: "passkey",
    });
    // The account's own passkey with a challenge of another session is refused too.
    const foreign = { passkey: own.get(ok(await other.post("/settings/passkeys/challenge"))) };
    expectRefusal(await session.post(`/settings/passkeys/${id}/remove`, { proof: foreign }), "validation_failed", {
      param: "passkey",
    });
    expectRefusal(await other.post(`/settings/passkeys/${id}/remove`, { proof: { password: PASSWORD } }), "not_found");
    expectRefusal(await other.patch(`/settings/passkeys/${id}`, { name: "mine" }), "not_found");
    expect((await list(session))[0]).toMatchObject({ id, name: "phone" });
  });

  test("a new name is checked, stored as text, and written to the audit log", async () => {
    const session = await somebody();
    await addPasskeyTo(session);
    const [{ id }] = await list(session);
    for (const name of ["", "x".repeat(61), "a\nb", 5, null])
      expectRefusal(await session.patch(`/settings/passkeys/${id}`, { name }), "validation_failed", { param: "name" });
    ok(await session.patch(`/settings/passkeys/${id}`, { name: `"><script>` }));
    expect((await list(session))[0].name).toBe(`"><script>`);
    expect((await audit(session)).at(-1)).toMatchObject({ before: { name: "phone" }, after: { name: `"><script>` } });
  });

  test("a sign-in that races with the removal of its passkey leaves no session", async () => {
    for (let i = 0; i < 5; i++) {
      const session = await somebody();
      const passkey = await addPasskeyTo(session);
      const [{ id }] = await list(session);
      const signed = passkey.get(await signInOptions());
      const removing = session.post(`/settings/passkeys/${id}/remove`, { proof: { password: PASSWORD } });
      const entering = sendSignIn(signed, { replica: i % 2 });
      expect((await removing).status).toBe(200);
      const entered = await entering;
      const left = await shop.world.sql`select 1 from sessions where account_id = ${session.accountId}`;
      expect({ status: entered.status, left: left.length }).toMatchObject({ left: 1 });
    }
  });

  test("an admin who views the account reads the list, and can add, rename, remove and confirm nothing", async () => {
    const session = await somebody();
    await addPasskeyTo(session);
    const [{ id }] = await list(session);
    const admin = await signInTo(shop, await shop.world.addAdmin());
    ok(await admin.post(`/people/${session.accountId}/view`));
    expect(await list(admin)).toEqual(await list(session));
    expectRefusal(await begin(admin), "read_only");
    expectRefusal(await admin.post("/settings/passkeys/challenge"), "read_only");
    expectRefusal(await admin.patch(`/settings/passkeys/${id}`, { name: "x" }), "read_only");
    expectRefusal(await admin.post(`/settings/passkeys/${id}/remove`, { proof: { password: PASSWORD } }), "read_only");
  });
});

test("used challenges are deleted when they expire", async () => {
  const passkey = await addPasskeyTo(await somebody());
  expect((await signIn(passkey)).status).toBe(200);
  const [row] = await shop.world.sql`
    select count(*) filter (where expires_at > clock_timestamp() + interval '6 minutes')::int as late, count(*)::int as kept from used_challenges`;
  expect(row?.late).toBe(0);
  expect(row?.kept).toBeGreaterThan(0);
});
