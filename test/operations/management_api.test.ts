import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { revokeToken, rotateToken } from "../../src/accounts/tokens_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { createLog } from "../../src/platform/log.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { PANEL } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import type { Person } from "../world.ts";
import { type Management, managementOf } from "./management_client.ts";

/** The management API: tokens, pages, idempotency, and bad input. Source: MGT-1, MGT-2, MGT-3, MGT-4, MGT-5, MGT-6, MGT-7. */

const USD = 1_000_000_000;
/** Entries of the audit log that a reseller may add a day. */
const CHANGES_A_DAY_MAX = 5_000;

let shop: Shop;
/** Another replica, which shares only the database. */
let second: ReplicaProcess;
let admin: Management;
let seller: Management;
let reseller: Person;
let customers: Person[];

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  second = await shop.start();
  const { world } = shop;
  admin = await managementOf(shop, await world.addAdmin(), "admin");
  reseller = await world.addReseller("ai.ours.test");
  await world.setBalance(reseller, BigInt(1_000 * USD));
  customers = [];
  for (let i = 0; i < 5; i++) customers.push(await world.addCustomer(reseller.accountId));
  seller = await managementOf(shop, reseller, "reseller");
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await second.kill();
  await shop.close();
});

const customer = (i: number): Person => customers[i] as Person;

async function balanceOf({ accountId }: Person): Promise<number> {
  const [row] = await shop.world.sql`select balance_nano_usd from balances where account_id = ${accountId}`;
  return Number(row?.balance_nano_usd);
}

const topUp = (amountNanoUsd: string) => ({ kind: "top_up", amountNanoUsd });

async function changeToken(work: (deps: Parameters<typeof revokeToken>[0]) => Promise<unknown>): Promise<void> {
  const db = shop.world.openDb(1);
  await work({ db, bus: inProcessBus(createLog("silent")) });
  await db.close();
}

describe("tokens", () => {
  test("a revoked token is refused on every replica, although its entry was in memory", async () => {
    const own = await managementOf(shop, reseller, "reseller");
    const on = (origin: string) => own.call("GET", "/accounts", undefined, { origin });
    for (const origin of [shop.origin, second.origin]) expect((await on(origin)).status).toBe(200);
    await changeToken((deps) => revokeToken(deps, { accountId: reseller.accountId, tokenId: own.tokenId }));
    // Without Redis, replicas read the change in the database.
    await until(async () => (await on(shop.origin)).status === 401 && (await on(second.origin)).status === 401);
    expectRefusal(await on(second.origin), "invalid_token");
  });

  test("a rotated token works until its overlap is over, and the new one has the same scopes", async () => {
    const own = await managementOf(shop, reseller, "reseller", { scopes: ["keys:read"] });
    let secret = "";
    const rotated = { accountId: reseller.accountId, tokenId: own.tokenId };
    await changeToken(async (deps) => {
      ({ secret } = await rotateToken(deps, { ...rotated, overlapSeconds: 3600 }));
    });
    const fresh = (path: string) => shop.call(`/api/v1${path}`, { secret, host: PANEL });
    expect((await fresh("/keys")).status).toBe(200);
    expectRefusal(await fresh("/accounts"), "insufficient_scope");
    expect((await own.get("/keys")).status).toBe(200);
    await shop.world.sql`update api_tokens set expires_at = now() where id = ${own.tokenId}`;
    await until(async () => (await own.get("/keys")).status === 401);
  });

  test("a token is refused from an address outside of its networks", async () => {
    const inside = await managementOf(shop, reseller, "reseller", { networks: ["127.0.0.0/8", "::1/128"] });
    const outside = await managementOf(shop, reseller, "reseller", { networks: ["192.0.2.0/24"] });
    expect((await inside.get("/keys")).status).toBe(200);
    expectRefusal(await outside.get("/keys"), "invalid_token");
  });

  test("a scope that the owner has lost no longer counts", async () => {
    const person = await shop.world.addAdmin();
    const own = await managementOf(shop, person, "admin");
    expect((await own.get("/offerings")).status).toBe(200);
    await shop.world.sql`update accounts set role = 'reseller' where id = ${person.accountId}`;
    const create = () =>
      own.post("/offerings", { name: "Lost", kind: "daily", dailyLimit: 100, wholesaleNanoUsd: "1" });
    await until(async () => (await create()).status === 404);
    expect((await own.get("/offerings")).status).toBe(200);
    await shop.world.sql`update accounts set status = 'suspended' where id = ${person.accountId}`;
    await until(async () => (await own.get("/offerings")).status === 401);
  });

  test("no token gives itself more rights: it adds no admin, and makes no link for an admin or for a reseller who has a password", async () => {
    const own = await managementOf(shop, await shop.world.addAdmin(), "admin", { scopes: ["accounts:write"] });
    const person = (role: string) => ({ name: "More", email: `${role}@more.test`, role });
    expectRefusal(await own.post("/accounts", person("admin")), "insufficient_scope");
    expect(await shop.world.sql`select from accounts where email = 'admin@more.test'`).toHaveLength(0);
    const link = ({ accountId }: { accountId: number }) => own.post(`/accounts/${accountId}/link`, {});
    expectRefusal(await link(await shop.world.addAdmin()), "insufficient_scope");
    const added = await own.post("/accounts", person("reseller"));
    expect(added.status).toBe(200);
    expect((await link(added.json.account)).status).toBe(200);
    await shop.world.sql`update accounts set password_hash = 'set' where email = 'reseller@more.test'`;
    expectRefusal(await link(added.json.account), "insufficient_scope");
    expect((await link(customer(0))).status).toBe(200);
  });

  test("on a reseller's domain only its own tokens work", async () => {
    const there = (own: Management) => own.call("GET", "/keys", undefined, { host: "ai.ours.test" });
    expect((await there(seller)).status).toBe(200);
    expectRefusal(await there(admin), "invalid_token");
    expectRefusal(await admin.call("GET", "/keys", undefined, { host: "api.unknown.test" }), "host_not_allowed");
  });

  test("the audit log names the token, and its use is shown", async () => {
    const own = await managementOf(shop, reseller, "reseller", { name: "billing program" });
    await own.call("PATCH", `/accounts/${customer(0).accountId}`, { name: "Renamed" });
    const [entry] = await shop.world.sql`
      select token_id, actor_id from audit_entries where subject = 'accounts' and subject_id = ${String(customer(0).accountId)} order by id desc limit 1`;
    expect({ token: Number(entry?.token_id), actor: Number(entry?.actor_id) }).toEqual({
      token: own.tokenId,
      actor: reseller.accountId,
    });
    const [used] = await shop.world.sql`select last_used_at from api_tokens where id = ${own.tokenId}`;
    expect(used?.last_used_at).not.toBeNull();
    // A use is no change: it is not in the audit log.
    const notes = await shop.world
      .sql`select 1 from audit_entries where subject = 'api_tokens' and subject_id = ${String(own.tokenId)}`;
    expect(notes.length).toBe(1);
  });

  test("requests of a token are limited", async () => {
    const narrow = await shop.start({ RATE_PER_MINUTE: "2" });
    const own = await managementOf(shop, reseller, "reseller");
    const answers = [];
    for (let i = 0; i < 3; i++) answers.push(await own.call("GET", "/keys", undefined, { origin: narrow.origin }));
    await narrow.kill();
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 429]);
  });
});

describe("pages", () => {
  test("a list is read in pages, each row once, newest first", async () => {
    const seen: number[] = [];
    let cursor = "";
    do {
      const { status, json } = await seller.get(`/accounts?limit=2${cursor && `&cursor=${cursor}`}`);
      expect(status).toBe(200);
      seen.push(...json.data.map(({ accountId }: Person) => accountId));
      expect(json.hasMore).toBe(json.nextCursor !== null);
      cursor = json.nextCursor ?? "";
    } while (cursor !== "");
    expect(seen).toEqual(customers.map(({ accountId }) => accountId).reverse());
  });

  test("400 for a cursor that was changed, of another filter, of another list or of another token", async () => {
    const { json } = await seller.get("/accounts?limit=2");
    const cursor: string = json.nextCursor;
    const other = await managementOf(shop, reseller, "reseller");
    const changed = cursor.replace(/^./, (first) => (first === "M" ? "N" : "M"));
    for (const [who, path] of [
      [seller, `/accounts?limit=2&cursor=${changed}`],
      [seller, `/accounts?limit=2&role=customer&cursor=${cursor}`],
      [seller, `/keys?limit=2&cursor=${cursor}`],
      [other, `/accounts?limit=2&cursor=${cursor}`],
      [seller, "/accounts?cursor=1"],
    ] as const)
      expectRefusal(await who.get(path), "invalid_request", { param: "cursor" });
    expectRefusal(await seller.get("/accounts?before=5"), "invalid_request", { param: "before" });
    // The size of a page may change.
    expect((await seller.get(`/accounts?limit=1&cursor=${cursor}`)).status).toBe(200);
  });

  test("a token that is narrowed or revoked while a list is paged gets no further page", async () => {
    const own = await managementOf(shop, reseller, "reseller");
    const { json } = await own.get("/accounts?limit=2");
    await shop.world.sql`update api_tokens set scopes = '{keys:read}' where id = ${own.tokenId}`;
    const next = () => own.get(`/accounts?limit=2&cursor=${json.nextCursor}`);
    await until(async () => (await next()).status === 403);
    await shop.world.sql`update api_tokens set status = 'revoked' where id = ${own.tokenId}`;
    await until(async () => (await next()).status === 401);
  });

  test("a token that ends while a list is paged gets no further page, on any replica", async () => {
    const own = await managementOf(shop, reseller, "reseller", { expiresAt: "2035-01-01T00:00:00Z" });
    const { json } = await own.get("/accounts?limit=2");
    const next = (origin: string) =>
      own.call("GET", `/accounts?limit=2&cursor=${json.nextCursor}`, undefined, { origin });
    for (const origin of [shop.origin, second.origin]) expect((await next(origin)).status).toBe(200);
    await shop.world
      .sql`update api_tokens set expires_at = clock_timestamp() + interval '1 s' where id = ${own.tokenId}`;
    await until(async () => (await next(shop.origin)).status === 401 && (await next(second.origin)).status === 401);
    expectRefusal(await next(second.origin), "invalid_token");
  });

  test("expand adds the packages of every row in one request", async () => {
    await shop.world.givePackage(customer(1));
    const { json } = await seller.get("/accounts?expand=packages");
    const row = json.data.find(({ accountId }: Person) => accountId === customer(1).accountId);
    expect(row.packages.map(({ state }: { state: string }) => state)).toEqual(["active"]);
    expect((await seller.get("/accounts")).json.data[0]).not.toHaveProperty("packages");
    expectRefusal(await seller.get("/accounts?expand=secrets"), "invalid_request", { param: "expand" });
  });
});

describe("writing once", () => {
  const path = (i: number) => `/accounts/${customer(i).accountId}/balance`;

  test("the same request with the same key is made once, and gets the same answer", async () => {
    const key = { "idempotency-key": "once-1" };
    const first = await seller.post(path(0), topUp(String(USD)), key);
    const again = await seller.post(path(0), topUp(String(USD)), key);
    expect(first.status).toBe(200);
    expect(again.json).toEqual(first.json);
    expect([first, again].map(({ headers }) => headers.get("idempotent-replayed"))).toEqual([null, "true"]);
    expect(await balanceOf(customer(0))).toBe(USD);
  });

  test("422 idempotency_mismatch for the same key with another body or path; nothing is made", async () => {
    const key = { "idempotency-key": "once-2" };
    await seller.post(path(1), topUp("5"), key);
    for (const [where, amount] of [
      [path(1), "6"],
      [path(2), "5"],
    ] as const)
      expectRefusal(await seller.post(where, topUp(amount), key), "idempotency_mismatch", { status: 422 });
    expect([await balanceOf(customer(1)), await balanceOf(customer(2))]).toEqual([5, 0]);
  });

  test("of many at once one is made; the others get its answer or 409", async () => {
    const key = { "idempotency-key": "once-3" };
    const answers = await Promise.all(Array.from({ length: 20 }, () => seller.post(path(3), topUp("7"), key)));
    for (const answer of answers.filter(({ status }) => status !== 200)) expectRefusal(answer, "idempotency_conflict");
    expect(answers.some(({ status }) => status === 200)).toBe(true);
    expect(await balanceOf(customer(3))).toBe(7);
  });

  test("a write that failed may be sent again with the same key", async () => {
    const key = { "idempotency-key": "once-4" };
    const poor = await shop.world.addReseller();
    const own = await managementOf(shop, poor, "reseller");
    const theirs = await shop.world.addCustomer(poor.accountId);
    const send = () => own.post(`/accounts/${theirs.accountId}/balance`, topUp("9"), key);
    expect((await send()).json.error.code).toBe("insufficient_balance");
    await shop.world.setBalance(poor, 9n);
    expect((await send()).status).toBe(200);
    expect(await balanceOf(theirs)).toBe(9);
  });

  test("a write whose replica died before its answer was kept is not made again, and one that was not committed is", async () => {
    const key = (name: string) => ({ "idempotency-key": name });
    const { sql } = shop.world;
    await seller.post(path(4), topUp("11"), key("died-after"));
    await sql`update api_writes set answer_ciphertext = null where write_key = 'died-after'`;
    const after = await seller.post(path(4), topUp("11"), key("died-after"));
    expectRefusal(after, "idempotency_conflict");
    expect(after.json.error.message).toContain("was made");
    await sql`update api_writes set write_key = 'died-before', committed_at = null, claimed_until = now() - interval '1 s' where write_key = 'died-after'`;
    expect((await seller.post(path(4), topUp("11"), key("died-before"))).status).toBe(200);
    expect(await balanceOf(customer(4))).toBe(22);
  });

  test("a request that lost its claim commits nothing", async () => {
    const { sql } = shop.world;
    // Holds the seller's lock, so that the write waits with its claim.
    const held = await sql.reserve();
    await held`begin`;
    await held`select lock_accounts(array[${reseller.accountId}]::bigint[])`;
    const sent = seller.post(path(2), topUp("13"), { "idempotency-key": "lost-claim" });
    await until(async () => (await sql`select 1 from api_writes where write_key = 'lost-claim'`).length === 1);
    await sql`update api_writes set request_id = gen_random_uuid() where write_key = 'lost-claim'`;
    await held`commit`;
    held.release();
    expect([409, 503]).toContain((await sent).status);
    expect(await balanceOf(customer(2))).toBe(0);
  });

  test("a secret is shown once, in the answer and in its replay, and is stored nowhere in the clear", async () => {
    const key = { "idempotency-key": "secret-1" };
    const wanted = { name: "program's", mode: "package" };
    const first = await seller.post("/keys", wanted, key);
    const again = await seller.post("/keys", wanted, key);
    expect(again.json).toEqual(first.json);
    expect(first.json.secret).toStartWith("sk-");
    const [row] = await shop.world.sql`select answer_ciphertext from api_writes where write_key = 'secret-1'`;
    expect(Buffer.from(row?.answer_ciphertext).includes(first.json.secret)).toBe(false);
  });
});

test("a key's use has what counts against its limits, and when each period begins anew; another account's key is not found", async () => {
  const wanted = { name: "limited", mode: "package", dailyUnitsMax: 5, weeklySpendMaxNanoUsd: "9" };
  const { key, secret } = (await seller.post("/keys", wanted)).json;
  const free = (await seller.post("/keys", { name: "free", mode: "package" })).json;
  await shop.world.givePackage(reseller);
  expect((await shop.chat(secret)).status).toBe(200);
  const use = await seller.get(`/keys/${key.keyId}/use`);
  expect(use.json).toMatchObject({
    keyId: key.keyId,
    used: { units: 1, spentNanoUsd: { weeklySpendMaxNanoUsd: "0" }, resetsAt: { week: expect.stringMatching(/Z$/) } },
  });
  expect((await seller.get(`/keys/${free.key.keyId}/use`)).json).toMatchObject({ lastUsedAt: null, used: null });
  const narrowed = await seller.call("PATCH", `/keys/${key.keyId}`, { modelIds: ["vendor/chat-b"] });
  expect(narrowed.json).toMatchObject({ modelIds: ["vendor/chat-b"], dailyUnitsMax: 5 });
  expectRefusal(await shop.chat(secret), "model_not_found", { param: "model" });
  const theirs = await shop.world.addKey(customer(0));
  for (const id of [theirs.keyId, 999_999, 0, "x"]) expectRefusal(await seller.get(`/keys/${id}/use`), "not_found");
});

describe("bad input", () => {
  test("an unknown field is refused by its name, and nothing is made", async () => {
    const where = `/accounts/${customer(2).accountId}/balance`;
    const wrong = { ...topUp("5"), reson: "typo" };
    expectRefusal(await seller.post(where, wrong), "invalid_request", { param: "reson" });
    expectRefusal(await seller.post(where, { ...topUp("5"), accountId: customer(1).accountId }), "invalid_request", {
      param: "accountId",
    });
    expectRefusal(await seller.get("/accounts?rol=customer"), "invalid_request", { param: "rol" });
    expectRefusal(await seller.get("/accounts?limit=2&limit=3"), "invalid_request", { param: "limit" });
    expectRefusal(await seller.post(`${where}?kind=top_up`, topUp("5")), "invalid_request", { param: "kind" });
    expect(await balanceOf(customer(2))).toBe(0);
  });

  test("amounts below zero, of zero, beyond any, with fractions and with too many digits are refused", async () => {
    const where = `/accounts/${customer(2).accountId}/balance`;
    const amounts = ["-5", "0", "1.5", "1e9", " 5", "9000000000000001", "99999999999999999", "1".repeat(400), 5, null];
    for (const amountNanoUsd of amounts) {
      const answer = await seller.post(where, { kind: "top_up", amountNanoUsd });
      expectRefusal(answer, "invalid_request", { param: "amountNanoUsd" });
    }
    expect(await balanceOf(customer(2))).toBe(0);
  });

  test("a body of 20 MiB, one that is no JSON object, and one of another type are refused", async () => {
    const large = { name: "x".repeat(20 * 1024 * 1024), mode: "package" };
    const answer = await seller.post("/keys", large);
    expect([answer.status, answer.json.error.code]).toEqual([413, "request_too_large"]);
    for (const body of ["[]", "{", "null", '{"name":"a","name":"b","mode":"package"}'])
      expect((await seller.post("/keys", body)).json.error.code).toBe("invalid_request");
    const typed = await seller.post("/keys", "name=x", { "content-type": "text/plain" });
    expectRefusal(typed, "unsupported_media_type");
  });

  test("a malformed Idempotency-Key is refused", async () => {
    const answer = await seller.post("/keys", { name: "x", mode: "package" }, { "idempotency-key": "a b" });
    expectRefusal(answer, "invalid_request");
  });

  test("two that create the same name at once: one is made, the other is told", async () => {
    const wanted = { name: "Twice", kind: "daily", dailyLimit: 100, wholesaleNanoUsd: "1000000000" };
    const answers = await Promise.all(Array.from({ length: 8 }, () => admin.post("/offerings", wanted)));
    expect(answers.filter(({ status }) => status === 200).length).toBe(1);
    for (const answer of answers.filter(({ status }) => status !== 200))
      expectRefusal(answer, "already_exists", { param: "name" });
  });

  test("an invalid id in a path reads like an unknown one", async () => {
    for (const id of ["0", "x", "1.5", "99999999999999999999", "-1"])
      expectRefusal(await seller.get(`/accounts/${id}`), "not_found");
    expectRefusal(await seller.get("/nothing"), "not_found");
    expectRefusal(await seller.call("DELETE", "/accounts"), "method_not_allowed");
  });

  test("a reseller's writes are made until its limit of changes a day, and what is refused leaves nothing", async () => {
    const busy = await shop.world.addReseller();
    const own = await managementOf(shop, busy, "reseller");
    const theirs = await shop.world.addCustomer(busy.accountId);
    await shop.world.setBalance(busy, BigInt(USD));
    await shop.world.sql`
      insert into audit_entries (actor_id, action, subject, subject_id)
      select ${busy.accountId}, 'changed', 'accounts', '1' from generate_series(1, ${CHANGES_A_DAY_MAX - 20})`;
    const send = () => own.post(`/accounts/${theirs.accountId}/balance`, topUp("1"));
    const statuses = [];
    for (let i = 0; i < 30; i++) statuses.push((await send()).status);
    const made = statuses.filter((status) => status === 200).length;
    // A transfer writes an entry for each side.
    expect(statuses).toEqual([...Array(10).fill(200), ...Array(20).fill(429)]);
    expect(await balanceOf(theirs)).toBe(made);
    const [kept] = await shop.world
      .sql`select count(*)::int as count from api_writes where account_id = ${busy.accountId}`;
    expect(kept?.count).toBe(made);
  });
});
