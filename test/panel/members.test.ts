import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { MEMBER_ROLES, type MemberRole } from "../../src/accounts/member_roles.ts";
import { decrypt } from "../../src/platform/crypto.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { managementWith } from "../operations/management_client.ts";
import { until } from "../platform/own_redis.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { Person } from "../world.ts";
import { ACME, MAIL } from "./mailed_links.ts";
import { cookieOf, givePassword, ok, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";

/** Members of an account, on two replicas. Source: MEM-1, MEM-2, MEM-3, MEM-4, MEM-5, MEM-6, MEM-7, MEM-8. */

const proof = { password: PASSWORD };
let shop: Shop;
let acme: Person;
let addresses = 0;
const newAddress = () => `192.0.2.${++addresses}`;

beforeAll(async () => {
  shop = await openShop({ replicas: 2, env: { TRUSTED_PROXIES: "127.0.0.1,::1", ...MAIL } });
  acme = await shop.world.addReseller(ACME);
  await shop.world.sql`
    insert into mail_servers (reseller_id, host, port, from_address, from_name) values (${acme.accountId}, '127.0.0.1', 2525, 'a@acme.test', 'Acme')`;
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

const signIn = (person: Person, more: Parameters<typeof signInTo>[2] = {}) =>
  signInTo(shop, person, { address: newAddress(), ...more });
const second = () => shop.replicas[1]?.origin ?? "";

const rolesOf = async ({ accountId }: Person) =>
  (
    await shop.world
      .sql`select person_id, role from members where account_id = ${accountId} order by created_at, person_id`
  ).map(({ person_id, role }) => [Number(person_id), role]);

/** The token of the last invitation that was mailed to an address. */
async function mailedToken(email: string): Promise<string> {
  const [row] = await shop.world.sql`
    select data from outbox_messages where kind = 'member_invitation' and data ->> 'address' = ${email} order by id desc limit 1`;
  const url = decrypt(Buffer.from(TEST_SECRET_KEY, "base64"), Buffer.from(row?.data.urlCiphertext ?? "", "base64"));
  return url.split("/join/")[1] ?? "";
}

const open = (token: string, host = PANEL) =>
  shop.call(`/api/panel/join/${token}`, { host, headers: { "x-forwarded-for": newAddress() } });
const join = (token: string, body: object, host = PANEL) =>
  shop.call(`/api/panel/join/${token}`, {
    host,
    body,
    headers: { origin: `http://${host}`, "x-forwarded-for": newAddress() },
  });

async function invited(owner: PanelSession, email: string, role: MemberRole = "developer"): Promise<string> {
  const answer = ok(await owner.post("/members/invitations", { email, role, proof }));
  expect(answer).toMatchObject({ email, role });
  return mailedToken(email);
}

describe("an invitation", () => {
  test("a new person joins with a name and a password, works in the account, and the audit log names them", async () => {
    const account = await shop.world.addCustomer();
    const owner = await signIn(account);
    const token = await invited(owner, "new.person@example.com");
    expect(ok(await owner.get("/members")).invitations).toHaveLength(1);
    expect(ok(await open(token))).toMatchObject({ email: "new.person@example.com", role: "developer", isNew: true });
    const joined = await join(token, { name: "Nina New", password: "a fine long password" });
    expect(joined.status).toBe(200);
    const cookie = cookieOf(joined);
    const me = ok(await shop.call("/api/panel/me", { host: PANEL, headers: { cookie } }));
    expect(me).toMatchObject({
      ...{ person: { name: "Nina New", email: "new.person@example.com" }, member: "developer" },
      account: { accountId: account.accountId, role: "customer" },
      accounts: [{ accountId: account.accountId, role: "developer" }],
    });
    const made = await shop.call("/api/panel/keys", {
      host: PANEL,
      body: { name: "Nina's", mode: "package" },
      headers: { cookie, origin: `http://${PANEL}`, "x-csrf-token": String(joined.json.csrfToken) },
    });
    expect(ok(made).key).toMatchObject({
      accountId: account.accountId,
      madeBy: { personId: me.person.accountId, name: "Nina New", isMember: true },
    });
    const audit = await shop.world.sql`
      select subject, actor.name, account_id from audit_entries left join accounts actor on actor.id = actor_id
      where account_id = ${account.accountId} and subject in ('members', 'keys') order by audit_entries.id`;
    expect(audit.map(({ subject, name, account_id }) => [subject, name, Number(account_id)])).toEqual([
      ["members", "Nina New", account.accountId],
      ["keys", "Nina New", account.accountId],
    ]);
    // They are no customer of anybody.
    const admin = await signIn(await shop.world.addAdmin());
    expect(ok(await admin.get("/people?q=new.person")).people).toEqual([]);
    expectRefusal(await admin.get(`/people/${me.person.accountId}`), "not_found");
    // Signing in again leads to the account.
    const again = await shop.call("/api/panel/sign-in", {
      host: PANEL,
      body: { email: "new.person@example.com", password: "a fine long password" },
      headers: { origin: `http://${PANEL}`, "x-forwarded-for": newAddress() },
    });
    const seen = ok(await shop.call("/api/panel/me", { host: PANEL, headers: { cookie: cookieOf(again) } }));
    expect(seen.account.accountId).toBe(account.accountId);
  });

  test("a person who is known proves it with their password, and switches between their accounts", async () => {
    const [account, other] = [await shop.world.addCustomer(), await shop.world.addCustomer()];
    const email = await givePassword(shop, other);
    const token = await invited(await signIn(account), email, "billing");
    expect(ok(await open(token))).toMatchObject({ isNew: false });
    expectRefusal(await join(token, { password: "not the password" }), "session_required");
    const joined = await join(token, { password: PASSWORD });
    expect(joined.status).toBe(200);
    const cookie = cookieOf(joined);
    const me = async () => ok(await shop.call("/api/panel/me", { host: PANEL, headers: { cookie } }));
    expect(await me()).toMatchObject({ account: { accountId: account.accountId }, member: "billing" });
    const workIn = (accountId: number) =>
      shop.call("/api/panel/work-in", {
        host: PANEL,
        body: { accountId },
        headers: { cookie, origin: `http://${PANEL}`, "x-csrf-token": String(joined.json.csrfToken) },
      });
    ok(await workIn(other.accountId));
    expect(await me()).toMatchObject({ account: { accountId: other.accountId }, member: "owner" });
    expect((await me()).accounts.map((one: { accountId: number }) => one.accountId)).toEqual([
      ...[other.accountId, account.accountId],
    ]);
    expectRefusal(await workIn((await shop.world.addCustomer()).accountId), "not_found");
  });

  test("it works once, until its end, and not after it was revoked or replaced", async () => {
    const account = await shop.world.addCustomer();
    const owner = await signIn(account);
    const ends = "This invitation no longer works: it was accepted, revoked or replaced, or it has expired.";
    const isEnded = async (token: string) => {
      for (const answer of [await open(token), await join(token, { name: "X", password: "a fine long password" })]) {
        expectRefusal(answer, "not_found");
        expect(answer.json.error.message).toBe(ends);
      }
    };
    const used = await invited(owner, "used@example.com");
    const body = { name: "Una", password: "a fine long password" };
    const both = await Promise.all([join(used, body), join(used, body)]);
    expect(both.map(({ status }) => status).filter((status) => status === 200)).toHaveLength(1);
    await isEnded(used);
    const first = await invited(owner, "late@example.com");
    const late = await invited(owner, "late@example.com");
    await isEnded(first);
    await shop.world
      .sql`update member_invitations set expires_at = now() - interval '1 second' where email = 'late@example.com'`;
    await isEnded(late);
    const revoked = await invited(owner, "revoked@example.com");
    const [{ invitationId }] = ok(await owner.get("/members")).invitations;
    ok(await owner.delete(`/members/invitations/${invitationId}`));
    await isEnded(revoked);
    await isEnded("x".repeat(43));
    expect(await rolesOf(account)).toHaveLength(2);
  });

  test("another address and another tenant cannot use it, and nobody learns who exists where", async () => {
    const account = await shop.world.addCustomer(acme.accountId);
    const theirs = await shop.world.addCustomer();
    const email = await givePassword(shop, theirs);
    const owner = await signIn(account, { host: ACME });
    // The same answer whether or not the address is one of another tenant.
    const token = await invited(owner, email);
    const unknown = await invited(owner, "nobody@example.com");
    const shown = async (one: string) => ({ ...ok(await open(one, ACME)), email: null, expiresAt: null });
    expect(await shown(token)).toEqual(await shown(unknown));
    // Where the other tenant's person signs in, there is no such invitation.
    expectRefusal(await open(token), "not_found");
    expectRefusal(await join(token, { password: PASSWORD }), "not_found");
    // The account's tenant has its own person with this address.
    expect((await join(token, { name: "Same Address", password: "a fine long password" }, ACME)).status).toBe(200);
    expect(await rolesOf(account)).not.toContainEqual([theirs.accountId, "developer"]);
    // An invitation that is bound to one address is not accepted with the password of another.
    const [known, other] = [await shop.world.addCustomer(acme.accountId), await shop.world.addCustomer(acme.accountId)];
    await givePassword(shop, other);
    await shop.world.sql`update accounts set password_hash = null where id = ${known.accountId}`;
    const [row] = await shop.world.sql`select email from accounts where id = ${known.accountId}`;
    expectRefusal(await join(await invited(owner, row?.email), { password: PASSWORD }, ACME), "session_required");
    // The reseller itself and an admin sign in on the hosts, and work in no customer's account.
    const resellers = await invited(owner, await givePassword(shop, acme));
    expect((await join(resellers, { password: PASSWORD, name: "A" }, ACME)).status).toBe(422);
    const admin = await shop.world.addAdmin();
    const operators = await invited(await signIn(theirs), await givePassword(shop, admin));
    expect((await join(operators, { password: PASSWORD })).status).toBe(422);
    expect(await rolesOf(theirs)).toHaveLength(1);
  });

  test("it needs a proof, an owner, and a day's limits hold", async () => {
    const account = await shop.world.addCustomer();
    const owner = await signIn(account);
    const wrong = { email: "a@example.com", role: "viewer", proof: { password: "wrong" } };
    expect((await owner.post("/members/invitations", wrong)).json.error.param).toBe("password");
    for (let i = 0; i < 5; i++) await invited(owner, "often@example.com", "viewer");
    const often = await owner.post("/members/invitations", { email: "often@example.com", role: "viewer", proof });
    expect(often.json.error).toMatchObject({ param: "email" });
    for (let i = 0; i < 15; i++) await invited(owner, `many${i}@example.com`, "viewer");
    expect(
      (await owner.post("/members/invitations", { email: "more@example.com", role: "viewer", proof })).status,
    ).toBe(422);
    expect((await owner.post("/members/invitations", { email: owner.email, role: "viewer", proof })).status).toBe(422);
  });
});

describe("a member who is removed or narrowed", () => {
  test("the open session ends on every replica; the keys go on and name their maker; the tokens end", async () => {
    const account = await shop.world.addReseller();
    await shop.world.givePackage(account);
    const owner = await signIn(account);
    const person = await shop.world.addMember(account, "developer");
    const here = await signIn(person);
    const there = await signIn(person, { origin: second() });
    const key = ok(await there.post("/keys", { name: "theirs", mode: "package" }));
    const { secret: tokenSecret } = ok(await here.post("/tokens", { name: "program", scopes: ["keys:read"], proof }));
    const api = managementWith(shop, tokenSecret);
    expect((await api.get("/keys")).status).toBe(200);
    ok(await owner.delete(`/members/${person.accountId}`));
    expectRefusal(await here.get("/me"), "session_required");
    await until(async () => (await there.get("/me")).status === 401);
    expectRefusal(await api.get("/keys"), "invalid_token");
    const chat = await shop.call("/v1/models", { secret: key.secret });
    expect(chat.status).toBe(200);
    const [row] = ok(await owner.get("/keys")).rows;
    expect(row.madeBy).toEqual({ personId: person.accountId, name: "The developer", isMember: false });
    expect(ok(await owner.get("/tokens")).tokens[0].madeBy).toMatchObject({ isMember: false });
    // They cannot come back by themselves.
    const again = await shop.call("/api/panel/sign-in", {
      host: PANEL,
      body: { email: here.email, password: PASSWORD },
      headers: { origin: `http://${PANEL}`, "x-forwarded-for": newAddress() },
    });
    expectRefusal(again, "session_required");
    expect(again.json.error.message).toBe("You are no longer a member of an account here.");
  });

  test("a narrowed role counts at once on every replica, also for a change that has begun", async () => {
    const account = await shop.world.addCustomer();
    const owner = await signIn(account);
    const person = await shop.world.addMember(account, "developer");
    const there = await signIn(person, { origin: second() });
    ok(await there.post("/keys", { name: "before", mode: "package" }));
    ok(await owner.patch(`/members/${person.accountId}`, { role: "viewer", proof }));
    // Whether or not this replica knows yet: nothing is written with the former role.
    expectRefusal(await there.post("/keys", { name: "after", mode: "package" }), "insufficient_role");
    await until(async () => ok(await there.get("/me")).member === "viewer");
    expect(ok(await there.get("/keys")).rows).toHaveLength(1);
  });
});

describe("the last owner", () => {
  test("cannot leave, be removed or narrowed; with a second one the first can go", async () => {
    const account = await shop.world.addCustomer();
    const owner = await signIn(account);
    const path = `/members/${account.accountId}`;
    for (const answer of [
      await owner.post("/members/leave"),
      await owner.delete(path),
      await owner.patch(path, { role: "viewer", proof }),
    ]) {
      expectRefusal(answer, "validation_failed", { param: "personId" });
      expect(answer.json.error.message).toContain("only owner");
    }
    expect(await rolesOf(account)).toEqual([[account.accountId, "owner"]]);
    const person = await shop.world.addMember(account, "owner");
    ok(await owner.post("/members/leave"));
    expectRefusal(await owner.get("/me"), "session_required");
    expect(await rolesOf(account)).toEqual([[person.accountId, "owner"]]);
    expect(ok(await (await signIn(person)).get("/me")).account.accountId).toBe(account.accountId);
  });

  test("two owners who go at once, on two replicas: one stays", async () => {
    const leave = (session: PanelSession) => session.post("/members/leave");
    const narrow = (session: PanelSession, id: number) => session.patch(`/members/${id}`, { role: "viewer", proof });
    for (let round = 0; round < 6; round++) {
      const account = await shop.world.addCustomer();
      const person = await shop.world.addMember(account, "owner");
      const [a, b] = [await signIn(account), await signIn(person, { origin: second() })];
      const both =
        round % 3 === 0
          ? [leave(a), leave(b)]
          : round % 3 === 1
            ? [narrow(a, person.accountId), narrow(b, account.accountId)]
            : [a.delete(`/members/${person.accountId}`), b.delete(`/members/${account.accountId}`)];
      const statuses = (await Promise.all(both)).map(({ status }) => status);
      expect(statuses.filter((status) => status === 200)).toHaveLength(1);
      expect((await rolesOf(account)).filter(([, role]) => role === "owner")).toHaveLength(1);
    }
  });
});

/** A change of each subject in the panel, by who may make it beside the owner. */
const CHANGES: readonly (readonly [method: "post" | "put" | "patch" | "delete", path: string, MemberRole[]])[] = [
  ["post", "/keys", ["developer"]],
  ["post", "/keys/1/revoke", ["developer"]],
  ["post", "/ai/chat", ["developer"]],
  ["post", "/ai/image/", ["developer"]],
  ["post", "/webhooks", ["developer"]],
  ["post", "/orders", ["billing"]],
  ["post", "/vouchers/redeem", ["billing"]],
  ["post", "/card", ["billing"]],
  ["put", "/auto-top-up", ["billing"]],
  ["post", "/renewals/cancel", ["billing"]],
  ["put", "/settings/invoices", ["billing"]],
  ["put", "/settings/invoices/", ["billing"]],
  ["patch", "/settings/notices", ["billing"]],
  ["post", "/members/invitations", []],
  ["patch", "/members/1", []],
  ["delete", "/members/1", []],
  ["patch", "/settings/profile", ["developer", "billing", "viewer"]],
  ["put", "/settings/mails", ["developer", "billing", "viewer"]],
];

test("each role changes what the table says, and nothing else; all read", async () => {
  const account = await shop.world.addCustomer();
  for (const role of MEMBER_ROLES) {
    const session = await signIn(await shop.world.addMember(account, role));
    for (const [method, path, writers] of CHANGES) {
      const answer = await session[method](path, {});
      const isRefused = answer.json?.error?.code === "insufficient_role";
      expect([role, path, isRefused]).toEqual([role, path, role !== "owner" && !writers.includes(role)]);
    }
    for (const path of ["/keys", "/billing", "/home", "/usage", "/members", "/webhooks", "/invoices", "/orders"])
      expect([path, (await session.get(path)).status]).toEqual([path, 200]);
  }
});

test("a member changes their own sign-in and name, not the account's", async () => {
  const account = await shop.world.addCustomer();
  const session = await signIn(await shop.world.addMember(account, "viewer"));
  ok(await session.patch("/settings/profile", { name: "Vera" }));
  ok(await session.post("/settings/password", { next: "another long password", proof }));
  const members = ok(await session.get("/members")).members;
  expect(members.map(({ name }: { name: string }) => name)).toEqual([expect.stringMatching(/^customer/), "Vera"]);
  expect(ok(await session.get("/settings"))).toMatchObject({ name: "Vera" });
  ok(await (await signIn(account)).get("/me"));
});

describe("a billing member makes no key", () => {
  test("not in the panel, and not with a token; nor does a viewer's token write", async () => {
    const account = await shop.world.addReseller();
    const billing = await signIn(await shop.world.addMember(account, "billing"));
    expectRefusal(await billing.post("/keys", { name: "k", mode: "package" }), "insufficient_role");
    // No token has a scope that its maker lacks.
    expect(ok(await billing.get("/tokens")).scopes).not.toContain("keys:write");
    const asked = { name: "t", scopes: ["keys:write"], proof };
    expect((await billing.post("/tokens", asked)).json.error.param).toBe("scopes");
    const viewer = await signIn(await shop.world.addMember(account, "viewer"));
    expectRefusal(await viewer.post("/tokens", { ...asked, scopes: ["keys:read"] }), "insufficient_role");
    // A token that was made with more rights has those of its maker now.
    const person = await shop.world.addMember(account, "developer");
    const developer = await signIn(person);
    const { secret } = ok(await developer.post("/tokens", { ...asked, scopes: ["keys:write", "orders:read"] }));
    const api = managementWith(shop, secret);
    ok(await api.post("/keys", { name: "k", mode: "package" }));
    const [row] = ok(await developer.get("/keys")).rows;
    expect(row.madeBy.personId).toBe(person.accountId);
    for (const role of ["billing", "viewer"]) {
      ok(await (await signIn(account)).patch(`/members/${person.accountId}`, { role, proof }));
      expectRefusal(await api.post("/keys", { name: "k", mode: "package" }), "insufficient_scope");
      expectRefusal(await api.get("/keys"), "insufficient_scope");
      expect((await api.get("/orders")).status).toBe(200);
    }
  });

  test("a token makes nobody an owner of its reseller", async () => {
    const account = await shop.world.addReseller();
    const owner = await signIn(account);
    const asked = { name: "t", scopes: ["members:write"], proof };
    const api = managementWith(shop, ok(await owner.post("/tokens", asked)).secret);
    const invitation = { email: "thief@example.com", role: "owner", accountId: account.accountId };
    expectRefusal(await api.post("/members/invitations", invitation), "insufficient_scope");
    const person = await shop.world.addMember(account, "viewer");
    expectRefusal(
      await api.call("PATCH", `/members/${person.accountId}`, { role: "owner", accountId: account.accountId }),
      "insufficient_scope",
    );
    // Its customers' members it manages.
    const customer = await shop.world.addCustomer(account.accountId);
    const one = await shop.world.addMember(customer, "viewer");
    const change = { role: "developer", accountId: customer.accountId };
    expect(ok(await api.call("PATCH", `/members/${one.accountId}`, change))).toMatchObject({ role: "developer" });
    expect(ok(await api.get(`/members?accountId=${customer.accountId}`)).members).toHaveLength(2);
  });
});

test("mails go to the members whose role fits", async () => {
  const account = await shop.world.addCustomer();
  const people = Object.fromEntries(
    await Promise.all(MEMBER_ROLES.map(async (role) => [role, await shop.world.addMember(account, role)] as const)),
  );
  const { sql } = shop.world;
  for (const kind of ["balance_low", "webhook_paused", "password_changed"])
    await sql`insert into outbox_messages (kind, account_id, data) values (${kind}, ${account.accountId}, '{}')`;
  const told = async (kind: string) =>
    (
      await sql`select d.account_id from outbox_deliveries d join outbox_messages m on m.id = d.message_id
        where m.kind = ${kind} and m.account_id = ${account.accountId} order by 1`
    ).map(({ account_id }) => Number(account_id));
  await until(async () => (await told("password_changed")).length > 0);
  const ids = (...roles: MemberRole[]) =>
    [account.accountId, ...roles.map((role) => people[role]?.accountId ?? 0)].sort((a, b) => a - b);
  expect(await told("balance_low")).toEqual(ids("owner", "billing"));
  expect(await told("webhook_paused")).toEqual(ids("owner", "developer"));
  expect(await told("password_changed")).toEqual([account.accountId]);
});
