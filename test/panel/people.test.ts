import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal, withoutEffect } from "../gateway/checks.ts";
import { type Answer, chatBody, openShop, type Shop } from "../gateway/shop.ts";
import { type OwnRedis, ownRedis, until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { givePassword, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";
import { BEHIND_MS_MAX } from "./stored.ts";

/** Source: DOM-6, ACC-3, ACC-8, ACC-9. */

const ACME = "ai.acme.test";
const OTHER = "ai.other.test";

let redis: OwnRedis;
let shop: Shop;
/** Two resellers and an admin; a customer of each reseller, and one of the operator (`house`). */
let acme: PanelSession;
let other: PanelSession;
let admin: PanelSession;
let mine: Person;
let theirs: Person;
let house: Person;

beforeAll(async () => {
  redis = await ownRedis();
  // What a replica has in memory grows old in an hour: a change is seen because it is told.
  shop = await openShop({ redisUrl: redis.url, replicas: 2, env: { CACHE_TTL_MS: "3600000" } });
  const [one, two] = [await shop.world.addReseller(ACME), await shop.world.addReseller(OTHER)];
  acme = await signInTo(shop, one, { host: ACME });
  other = await signInTo(shop, two);
  admin = await signInTo(shop, await shop.world.addAdmin());
  mine = await shop.world.addCustomer(one.accountId);
  theirs = await shop.world.addCustomer(two.accountId);
  house = await shop.world.addCustomer();
});
afterAll(async () => {
  await shop.close();
  await redis.stop();
});

const ids = (answer: Answer) => answer.json.people.map(({ accountId }: Person) => accountId);
/** The audit log's entries about an account, newest first. */
const audit = async ({ accountId }: Person) => (await admin.get(`/audit?accountId=${accountId}`)).json.entries;
let names = 0;
const newEmail = () => `new${++names}@example.com`;
/** A call with the same session to one of the replicas. */
const atReplica = (session: PanelSession, replica: number, path: string, body?: unknown) =>
  shop.call(`/api/panel${path}`, {
    host: session.host,
    origin: shop.replicas[replica]?.origin ?? "",
    ...(body !== undefined && { body }),
    headers: { cookie: session.cookie, origin: `http://${session.host}`, "x-csrf-token": session.csrf },
  });

describe("visibility of accounts", () => {
  test("a reseller lists its own customers, an admin all accounts", async () => {
    expect(ids(await acme.get("/people"))).toEqual([mine.accountId]);
    expect(ids(await other.get("/people"))).toEqual([theirs.accountId]);
    const all = ids(await admin.get("/people?limit=200"));
    for (const { accountId } of [mine, theirs, house, acme, other, admin]) expect(all).toContain(accountId);
  });

  test("a row has no secret", async () => {
    await shop.world.givePackage(mine);
    await shop.world.setBalance(mine, 5_000_000_001n);
    const [row] = (await acme.get("/people")).json.people;
    expect(row).toEqual({
      accountId: mine.accountId,
      role: "customer",
      resellerId: acme.accountId,
      resellerName: expect.any(String),
      language: null,
      email: expect.any(String),
      name: expect.any(String),
      status: "active",
      hasPassword: false,
      hasIdentity: false,
      totpEnabled: false,
      packageName: expect.stringContaining("offering"),
      balanceNanoUsd: "5000000001",
      heldNanoUsd: "0",
      paygEnabled: true,
      maySwitchPayg: false,
      createdAt: expect.any(String),
    });
    expect((await admin.get(`/people/${mine.accountId}`)).json).toEqual({
      ...row,
      link: null,
      canSwitchPayg: true,
      limits: { own: null, package: null, reseller: null, applied: null },
    });
  });

  test("paging and search stay within the tenant", async () => {
    const world = shop.world;
    const { accountId } = await world.addReseller();
    const reseller = await signInTo(shop, { accountId });
    const made: number[] = [];
    for (let i = 0; i < 5; i++) made.unshift((await world.addCustomer(accountId)).accountId);
    const first = await reseller.get("/people?limit=3");
    expect([ids(first), first.json.hasMore]).toEqual([made.slice(0, 3), true]);
    const second = await reseller.get(`/people?limit=3&before=${made[2]}`);
    expect([ids(second), second.json.hasMore]).toEqual([made.slice(3), false]);
    expect(ids(await reseller.get("/people?q=CUSTOMER"))).toEqual(made);
    expect(ids(await reseller.get(`/people?q=${encodeURIComponent("%")}`))).toEqual([]);
    expect(ids(await reseller.get("/people?role=admin"))).toEqual([]);
    expect(ids(await admin.get("/people?role=reseller&limit=200"))).toContain(accountId);
    for (const query of [
      "limit=0",
      "limit=201",
      "limit=x",
      "before=0",
      "before=-1",
      "role=god",
      `q=${"x".repeat(255)}`,
      "q=%00",
      "resellerId=1",
    ])
      expectRefusal(await reseller.get(`/people?${query}`), "validation_failed", { param: query.split("=")[0] });
  });

  test("a reseller gets the answer of an unknown id for accounts that are not its customers, in every endpoint", async () => {
    const key = await shop.world.addKey(theirs);
    const texts = new Set<string>();
    const strangers = [theirs, house, other, admin, acme].map(({ accountId }) => accountId);
    const before = await shop.world.sql`select id, status, name, password_hash from accounts order by id`;
    for (const id of [...strangers, 999_999, 0, -1, "x", "1e3", "9007199254740993"]) {
      const answers = [
        await acme.get(`/people/${id}`),
        await acme.patch(`/people/${id}`, { name: "Taken over" }),
        await acme.post(`/people/${id}/suspend`),
        await acme.post(`/people/${id}/activate`),
        await acme.post(`/people/${id}/link`),
        await acme.post(`/people/${id}/remove-second-factor`),
        await acme.get(`/people/${id}/keys`),
        await acme.post(`/people/${id}/keys/${key.keyId}/disable`),
      ];
      for (const answer of answers) {
        expectRefusal(answer, "not_found");
        texts.add(JSON.stringify(answer.json.error));
      }
    }
    expect(texts.size).toBe(1);
    expectRefusal(await acme.post(`/people/${mine.accountId}/keys/${key.keyId}/disable`), "not_found");
    expect(await shop.world.sql`select id, status, name, password_hash from accounts order by id`).toEqual(before);
    expect(await shop.world.sql`select 1 from links`).toHaveLength(0);
    const [row] = await shop.world.sql`select status from keys where id = ${key.keyId}`;
    expect(row?.status).toBe("enabled");
  });
});

describe("adding people", () => {
  test("a reseller adds a customer: the invitation is on its domain, returned once, and sets a password there", async () => {
    const email = newEmail();
    const added = await acme.post("/people", { email: ` ${email.toUpperCase()} `, name: "<script>alert(1)</script>" });
    expect(added.json).toEqual({
      account: expect.objectContaining({
        role: "customer",
        resellerId: acme.accountId,
        email,
        name: "<script>alert(1)</script>",
        hasPassword: false,
        hasIdentity: false,
      }),
      link: {
        kind: "invitation",
        url: expect.stringMatching(/^http:\/\/ai\.acme\.test\/invite\/[\w-]{43}$/),
        expiresAt: expect.any(String),
        mailed: false,
      },
    });
    const { accountId } = added.json.account;
    const detail = (await acme.get(`/people/${accountId}`)).json;
    expect(detail.link).toEqual({ kind: "invitation", expiresAt: added.json.link.expiresAt });
    const { pathname } = new URL(added.json.link.url);
    expect(JSON.stringify(detail)).not.toContain(pathname.split("/")[2]);
    const set = await shop.call(`/api/panel/links/${pathname.split("/")[2]}`, {
      host: ACME,
      body: { password: PASSWORD },
      headers: { origin: `http://${ACME}` },
    });
    expect(set.status).toBe(200);
    expect((await acme.get(`/people/${accountId}`)).json).toMatchObject({ hasPassword: true, link: null });
    const entries = await audit({ accountId });
    const who = (accountId: number) => expect.objectContaining({ accountId });
    expect(entries.map(({ actor, action, subject }: Record<string, unknown>) => [actor, action, subject])).toEqual([
      [who(accountId), "changed", "accounts"],
      [who(accountId), "removed", "links"],
      [who(acme.accountId), "added", "links"],
      [who(acme.accountId), "added", "accounts"],
    ]);
    expect(entries[3].requestId).toBe(added.headers.get("x-request-id"));
  });

  test("a reseller cannot add resellers, admins or another reseller's customers", async () => {
    const add = (more: Record<string, unknown>) => acme.post("/people", { email: newEmail(), name: "X", ...more });
    for (const role of ["reseller", "admin"])
      expectRefusal(await add({ role }), "validation_failed", { param: "role" });
    expectRefusal(await add({ resellerId: other.accountId }), "validation_failed", { param: "resellerId" });
    expectRefusal(await add({ resellerId: null }), "validation_failed", { param: "resellerId" });
    expect((await add({ role: "customer", resellerId: acme.accountId })).status).toBe(200);
  });

  test("an admin adds any role; links of a reseller's customers are on its domain, all others on the panel's host", async () => {
    const add = async (more: Record<string, unknown>) =>
      (await admin.post("/people", { email: newEmail(), name: "X", ...more })).json;
    for (const role of ["customer", "reseller", "admin", undefined]) {
      const { account, link } = await add({ role });
      expect(account.role).toBe(role ?? "customer");
      expect(link.url).toStartWith(`http://${PANEL}/invite/`);
    }
    const customer = await add({ resellerId: other.accountId });
    expect(customer.account.resellerId).toBe(other.accountId);
    expect(customer.link.url).toStartWith(`http://${OTHER}/invite/`);
    const wrong: [body: Record<string, unknown>, param: string][] = [
      [{ resellerId: 999_999 }, "resellerId"],
      [{ resellerId: house.accountId }, "resellerId"],
      [{ role: "admin", resellerId: acme.accountId }, "resellerId"],
      [{ role: "god" }, "role"],
      [{ email: "nobody" }, "email"],
      [{ email: "nul\u0000@example.com" }, "email"],
      [{ email: `${"x".repeat(260)}@example.com` }, "email"],
      [{ name: "" }, "name"],
      [{ name: "x".repeat(101) }, "name"],
      [{ name: "a\u0000b" }, "name"],
      [{ passwordHash: "x" }, "passwordHash"],
    ];
    for (const [more, param] of wrong)
      expectRefusal(await admin.post("/people", { email: newEmail(), name: "X", ...more }), "validation_failed", {
        param,
      });
  });

  test("a customer is added without a link if its reseller has no active domain", async () => {
    const reseller = await signInTo(shop, await shop.world.addReseller());
    const { account, link } = (await reseller.post("/people", { email: newEmail(), name: "X" })).json;
    expect(link).toBeNull();
    const made = await reseller.post(`/people/${account.accountId}/link`);
    expectRefusal(made, "validation_failed");
    expect(made.json.error.message).toContain("domain");
    expect(await shop.world.sql`select 1 from links where account_id = ${account.accountId}`).toHaveLength(0);
  });

  test("422 validation_failed for an e-mail address that is in use within the tenant", async () => {
    const email = newEmail();
    const answers = await Promise.all([1, 2, 3].map(() => acme.post("/people", { email, name: "Twice" })));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 422, 422]);
    expectRefusal(await acme.post("/people", { email, name: "X" }), "validation_failed", { param: "email" });
    expect((await other.post("/people", { email, name: "X" })).status).toBe(200);
    expect((await admin.post("/people", { email, name: "X" })).status).toBe(200);
    expect(ids(await acme.get(`/people?q=${email}`))).toHaveLength(1);
  });
});

describe("managing accounts", () => {
  test("a name is changed, and the audit log has the actor", async () => {
    const changed = await acme.patch(`/people/${mine.accountId}`, { name: "Named Anew" });
    expect(changed.json).toMatchObject({ accountId: mine.accountId, name: "Named Anew" });
    const [entry] = await audit(mine);
    expect(entry).toMatchObject({
      actor: { accountId: acme.accountId, email: acme.email, name: expect.any(String) },
      requestId: changed.headers.get("x-request-id"),
      action: "changed",
      subject: "accounts",
      subjectId: String(mine.accountId),
      account: { accountId: mine.accountId, name: "Named Anew" },
      before: { name: expect.any(String) },
      after: { name: "Named Anew" },
    });
    expectRefusal(await acme.patch(`/people/${mine.accountId}`, { name: "" }), "validation_failed", { param: "name" });
    const more = await acme.patch(`/people/${mine.accountId}`, { status: "active" });
    expectRefusal(more, "validation_failed", { param: "status" });
  });

  test("a suspension stops keys and sessions on every replica immediately; keys work again when it ends", async () => {
    const customer = await shop.world.addCustomer(acme.accountId);
    await shop.world.givePackage(customer);
    const { secret } = await shop.world.addKey(customer);
    const session = await signInTo(shop, customer, { host: ACME });
    const chat = (replica: number) =>
      shop.chat(secret, chatBody(), { host: "api.tollgate.test", origin: shop.replicas[replica]?.origin ?? "" });
    for (const replica of [0, 1]) {
      expect((await atReplica(session, replica, "/me")).status).toBe(200);
      expect((await chat(replica)).status).toBe(200);
    }
    expect((await acme.post(`/people/${customer.accountId}/suspend`)).json.status).toBe("suspended");
    await withoutEffect(shop, async () =>
      expect((await session.post("/ai/chat", chatBody())).status).toBeGreaterThanOrEqual(400),
    );
    // The ledger refuses immediately; the other replica's caches are told through Redis.
    const status = async (replica: number) => (await atReplica(session, replica, "/me")).status;
    for (const replica of [0, 1]) {
      expectRefusal(await chat(replica), "invalid_api_key");
      await until(async () => (await status(replica)) === 401);
    }
    expect((await acme.post(`/people/${customer.accountId}/activate`)).json.status).toBe("active");
    expect((await chat(0)).status).toBe(200);
    expectRefusal(await session.get("/me"), "session_required");
  });

  test("a suspended reseller's customers and domains are refused with it", async () => {
    const reseller = await shop.world.addReseller();
    const host = "ai.shut.test";
    await shop.world.addHost(reseller, host);
    const customer = await shop.world.addCustomer(reseller.accountId);
    await shop.world.givePackage(customer);
    const { secret } = await shop.world.addKey(customer);
    const session = await signInTo(shop, customer, { host });
    expect((await shop.chat(secret, {}, { host: "api.tollgate.test" })).status).toBe(200);
    expect((await admin.post(`/people/${reseller.accountId}/suspend`)).json.status).toBe("suspended");
    expectRefusal(await shop.chat(secret, {}, { host: "api.tollgate.test" }), "invalid_api_key");
    await until(async () => (await session.get("/me")).status === 403);
    expectRefusal(await session.get("/me"), "host_not_allowed");
    expectRefusal(
      await session.call("/sign-in", { body: { email: session.email, password: PASSWORD } }),
      "host_not_allowed",
    );
  });

  test("a reseller cannot undo an admin's suspension; an admin can undo a reseller's", async () => {
    const customer = await shop.world.addCustomer(acme.accountId);
    const [suspend, activate] = ["suspend", "activate"].map((act) => `/people/${customer.accountId}/${act}`) as [
      string,
      string,
    ];
    await admin.post(suspend);
    expectRefusal(await acme.post(activate), "validation_failed");
    // After a second suspension by the reseller, the suspension is still the operator's.
    await acme.post(suspend);
    expectRefusal(await acme.post(activate), "validation_failed");
    expect((await admin.post(activate)).json.status).toBe("active");
    await acme.post(suspend);
    expect((await acme.post(activate)).json.status).toBe("active");
    await acme.post(suspend);
    expect((await admin.post(activate)).json.status).toBe("active");
  });

  test("nobody suspends their own account; one of two admins who suspend each other stays active", async () => {
    expectRefusal(await admin.post(`/people/${admin.accountId}/suspend`), "validation_failed");
    const pair = [await signInTo(shop, await shop.world.addAdmin()), await signInTo(shop, await shop.world.addAdmin())];
    const [one, two] = pair as [PanelSession, PanelSession];
    await shop.world
      .sql`update accounts set status = 'suspended' where role = 'admin' and id not in ${shop.world.sql(pair.map(({ accountId }) => accountId))}`;
    const answers = await Promise.all([
      one.post(`/people/${two.accountId}/suspend`),
      two.post(`/people/${one.accountId}/suspend`),
    ]);
    const rows = await shop.world.sql`select 1 from accounts where role = 'admin' and status = 'active'`;
    await shop.world.sql`update accounts set status = 'active' where role = 'admin'`;
    expect(rows).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 200).length).toBeLessThanOrEqual(1);
    // The other tests' admin works again when each replica has read the table of changes.
    for (const replica of [0, 1]) await until(async () => (await atReplica(admin, replica, "/me")).status === 200);
  });

  test("an account without a password gets an invitation link, another one a reset link; admins get no reset link", async () => {
    const customer = await shop.world.addCustomer(acme.accountId);
    const link = async (by: PanelSession, { accountId }: Person) => (await by.post(`/people/${accountId}/link`)).json;
    expect((await link(acme, customer)).kind).toBe("invitation");
    await givePassword(shop, customer);
    const reset = await link(acme, customer);
    expect(reset).toEqual({
      kind: "reset",
      url: expect.stringMatching(/^http:\/\/ai\.acme\.test\/reset\/[\w-]{43}$/),
      expiresAt: expect.any(String),
      mailed: false,
    });
    expect((await link(admin, acme)).url).toStartWith(`http://${PANEL}/reset/`);
    const colleague = await shop.world.addAdmin();
    expect((await link(admin, colleague)).kind).toBe("invitation");
    await givePassword(shop, colleague);
    for (const { accountId } of [colleague, admin])
      expectRefusal(await admin.post(`/people/${accountId}/link`), "validation_failed");
  });

  test("removing a customer's second factor ends its sessions; one's own and an admin's cannot be removed this way", async () => {
    const customer = await shop.world.addCustomer(acme.accountId);
    const session = await signInTo(shop, customer, { host: ACME });
    await shop.world
      .sql`update accounts set totp_ciphertext = 'x', totp_enabled_at = now() where id = ${customer.accountId}`;
    const removed = await acme.post(`/people/${customer.accountId}/remove-second-factor`);
    expect(removed.json).toMatchObject({ accountId: customer.accountId, totpEnabled: false });
    expectRefusal(await session.get("/me"), "session_required");
    expect((await audit(customer))[0]).toMatchObject({
      actor: { accountId: acme.accountId },
      before: { totp_ciphertext: "(hidden)" },
      after: null,
    });
    expectRefusal(await admin.post(`/people/${admin.accountId}/remove-second-factor`), "validation_failed");
    // An admin's stolen session can invite a second admin, who must not remove the first one's second factor.
    const colleague = await shop.world.addAdmin();
    await shop.world
      .sql`update accounts set totp_ciphertext = 'x', totp_enabled_at = now() where id = ${colleague.accountId}`;
    expectRefusal(await admin.post(`/people/${colleague.accountId}/remove-second-factor`), "validation_failed");
    expect((await admin.get(`/people/${colleague.accountId}`)).json.totpEnabled).toBe(true);
    expectRefusal(await acme.post(`/people/${acme.accountId}/remove-second-factor`), "not_found");
  });

  test("keys are listed without their secret, and can be disabled", async () => {
    const customer = await shop.world.addCustomer(acme.accountId);
    await shop.world.givePackage(customer);
    const { keyId, secret } = await shop.world.addKey(customer);
    expect((await shop.chat(secret, {}, { host: "api.tollgate.test" })).status).toBe(200);
    const listed = await acme.get(`/people/${customer.accountId}/keys`);
    expect(listed.json).toEqual({
      keys: [
        {
          keyId,
          name: "key",
          masked: `${secret.slice(0, 9)}…${secret.slice(-4)}`,
          mode: "package",
          status: "enabled",
          expiresAt: null,
          createdAt: expect.any(String),
        },
      ],
      hasMore: false,
    });
    const disabled = await acme.post(`/people/${customer.accountId}/keys/${keyId}/disable`);
    expect(disabled.json).toMatchObject({ keyId, status: "disabled" });
    expectRefusal(await shop.chat(secret, {}, { host: "api.tollgate.test" }), "invalid_api_key");
    expect((await audit(customer))[0]).toMatchObject({ actor: { accountId: acme.accountId }, subject: "keys" });
    expectRefusal(await acme.post(`/people/${customer.accountId}/keys/999999/disable`), "not_found");
    expectRefusal(await acme.get(`/people/${customer.accountId}/keys?limit=0`), "validation_failed", {
      param: "limit",
    });
  });
});

describe("viewing an account", () => {
  test("the view starts and ends on every replica immediately; both are in the audit log", async () => {
    const customer = await shop.world.addCustomer(acme.accountId);
    const looking = await signInTo(shop, await shop.world.addAdmin());
    for (const replica of [0, 1]) expect((await atReplica(looking, replica, "/me")).json.viewing).toBeNull();
    expect((await looking.post(`/people/${customer.accountId}/view`)).json).toEqual({ viewing: customer.accountId });
    const viewing = async (replica: number) => (await atReplica(looking, replica, "/me")).json.viewing;
    for (const replica of [1, 0]) {
      // Within the time that Redis needs, well below the life of a cached session.
      await until(async () => (await viewing(replica)) !== null);
      expect((await atReplica(looking, replica, "/me")).json).toMatchObject({
        person: { accountId: looking.accountId, role: "admin" },
        viewing: {
          accountId: customer.accountId,
          role: "customer",
          name: expect.any(String),
          email: expect.any(String),
        },
      });
      expect((await atReplica(looking, replica, "/settings")).json.email).toStartWith("customer");
      expectRefusal(await atReplica(looking, replica, "/people"), "not_found");
      expectRefusal(await atReplica(looking, replica, "/audit"), "not_found");
    }
    const [began] = await audit(customer);
    const left = await atReplica(looking, 1, "/view/leave", {});
    expect(left.json).toEqual({ left: true });
    for (const replica of [0, 1]) await until(async () => (await viewing(replica)) === null);
    expect((await looking.get("/people")).status).toBe(200);
    const [ended] = await audit(customer);
    const about = { action: "viewed", subject: "accounts", subjectId: String(customer.accountId) };
    const by = { actor: { accountId: looking.accountId }, account: { accountId: customer.accountId } };
    expect(began).toMatchObject({ ...about, ...by, before: { viewing: false }, after: { viewing: true } });
    expect(ended).toMatchObject({ ...about, ...by, before: { viewing: true }, after: { viewing: false } });
    expect(ended.requestId).toBe(left.headers.get("x-request-id"));
    expect((await looking.post("/view/leave")).json).toEqual({ left: true });
    expect((await audit(customer))[0].id).toBe(ended.id);
  });

  test("a suspended account can be viewed; an admin's and an unknown one cannot", async () => {
    const customer = await shop.world.addCustomer();
    await shop.world.sql`update accounts set status = 'suspended' where id = ${customer.accountId}`;
    const colleague = await shop.world.addAdmin();
    const looking = await signInTo(shop, await shop.world.addAdmin());
    for (const { accountId } of [colleague, looking])
      expectRefusal(await looking.post(`/people/${accountId}/view`), "validation_failed");
    expectRefusal(await looking.post("/people/999999/view"), "not_found");
    expect((await looking.post(`/people/${customer.accountId}/view`)).status).toBe(200);
    expect((await looking.get("/settings")).status).toBe(200);
  });

  test("only an admin's session can view another account: any other session shows its own, whatever its row says", async () => {
    const session = await signInTo(shop, house);
    await shop.world
      .sql`update sessions set viewing_account_id = ${theirs.accountId} where account_id = ${house.accountId}`;
    // Written directly, changes reach the replicas through the table of changes, in order: a later one is seen.
    await shop.world.sql`update accounts set name = 'Told last' where id = ${house.accountId}`;
    for (const replica of [0, 1]) {
      await until(
        async () => (await atReplica(session, replica, "/me")).json.person.name === "Told last",
        BEHIND_MS_MAX,
      );
      const seen = (await atReplica(session, replica, "/me")).json;
      expect(seen).toMatchObject({ person: { accountId: house.accountId }, viewing: null });
      expect((await atReplica(session, replica, "/settings")).json.email).toBe(session.email);
    }
    expectRefusal(await session.post(`/people/${theirs.accountId}/view`), "not_found");
  });
});

describe("the audit log", () => {
  test("is listed newest first, filtered and paged; a change from the command line has no actor", async () => {
    const customer = await shop.world.addCustomer();
    await admin.patch(`/people/${customer.accountId}`, { name: "By An Admin" });
    await shop.world.sql`update accounts set name = 'By the command line' where id = ${customer.accountId}`;
    const all = await audit(customer);
    expect(
      all.map(({ action, actor }: { action: string; actor: Person | null }) => [action, actor?.accountId]),
    ).toEqual([
      ["changed", undefined],
      ["changed", admin.accountId],
      ["added", undefined],
    ]);
    expect(all[0]).toEqual({
      id: expect.any(Number),
      at: expect.stringMatching(/^\d{4}-.*Z$/),
      actor: null,
      token: null,
      requestId: null,
      action: "changed",
      subject: "accounts",
      subjectId: String(customer.accountId),
      subjectName: null,
      account: { accountId: customer.accountId, name: "By the command line" },
      before: { name: "By An Admin" },
      after: { name: "By the command line" },
    });
    const page = (await admin.get(`/audit?accountId=${customer.accountId}&limit=2`)).json;
    expect([page.entries.length, page.hasMore]).toEqual([2, true]);
    const rest = (await admin.get(`/audit?accountId=${customer.accountId}&before=${page.entries[1].id}`)).json;
    expect([rest.entries.map(({ action }: { action: string }) => action), rest.hasMore]).toEqual([["added"], false]);
    const byAdmin = (await admin.get(`/audit?actorId=${admin.accountId}&subject=accounts&limit=1`)).json.entries[0];
    expect(byAdmin.actor).toEqual({ accountId: admin.accountId, email: admin.email, name: expect.any(String) });
    // `subjectName` is the current name, also in older entries.
    const { keyId } = await shop.world.addKey(customer);
    await shop.world.sql`update keys set status = 'disabled' where id = ${keyId}`;
    await shop.world.sql`update keys set name = 'build' where id = ${keyId}`;
    const ofKeys = (await admin.get(`/audit?accountId=${customer.accountId}&subject=keys`)).json.entries;
    expect(
      ofKeys.map(({ after, subjectName }: { after: { status?: string }; subjectName: string }) => [
        after.status,
        subjectName,
      ]),
    ).toEqual([
      [undefined, "build"],
      ["disabled", "build"],
      ["enabled", "build"],
    ]);
    for (const query of ["limit=0", "limit=201", "before=x", "accountId=-1", "subject=Robert'--", "actor=1"])
      expectRefusal(await admin.get(`/audit?${query}`), "validation_failed", { param: query.split("=")[0] });
  });

  test("contains no password hash, digest, token or second factor", async () => {
    const [row] = await shop.world.sql`select json_agg(e)::text as text from audit_entries e`;
    const text = String(row?.text);
    expect(text).toContain("(hidden)");
    expect(text).not.toMatch(/argon2/);
    for (const name of ["password_hash", "totp_ciphertext", "digest"])
      expect(text).not.toMatch(new RegExp(`"${name}": ?"(?!\\(hidden\\))`));
  });
});
