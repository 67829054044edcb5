import { afterAll, beforeAll, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { checkNow } from "../../src/books/check_runs_store.ts";
import { connect, type Sql } from "../../src/platform/db.ts";
import { migrate } from "../../src/platform/migrate.ts";
import { booksAtRest } from "../faults/fault_shop.ts";
import { type Answer, eventsOf, openShop, PRICES, type Shop } from "../gateway/shop.ts";
import { signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { type PgBouncer, startPgBouncer } from "./pgbouncer.ts";

/**
 * Two replicas through PgBouncer in transaction mode, without prepared statements, as a role with its own time
 * limits: the books are as exact as without it. Source: docs/operations.md.
 */
/** Fewer than two replicas open: they share. */
const POOL_SIZE = 8;
const STATEMENT_MS = 10_000;
const IDLE_MS = 2_000;
const LIMITS = { statement_timeout: `${STATEMENT_MS}ms`, idle_in_transaction_session_timeout: `${IDLE_MS}ms` };

let shop: Shop;
let pooler: PgBouncer;
let pooledUrl: string;
let role: string;
let password: string;
const replicas: ReplicaProcess[] = [];

beforeAll(async () => {
  shop = await openShop();
  const { sql, url } = shop.world;
  // From here on only the pooler is used.
  await shop.replicas[0]?.stop();
  role = `tollgate_${randomBytes(6).toString("hex")}`;
  password = randomBytes(18).toString("base64url");
  await sql.unsafe(`create role ${role} login password '${password}'`);
  // The rights of the tables' owner: replicas create the months' partitions.
  await sql.unsafe(`grant ${decodeURIComponent(new URL(url).username) || "postgres"} to ${role}`);
  for (const [limit, value] of Object.entries(LIMITS)) await sql.unsafe(`alter role ${role} set ${limit} = '${value}'`);
  pooler = await startPgBouncer({ databaseUrl: url, role, password, poolSize: POOL_SIZE });
  pooledUrl = pooler.urlOf(new URL(url).pathname.slice(1));
  const env = {
    DATABASE_URL: pooledUrl,
    DB_PREPARE: "false",
  };
  replicas.push(...(await Promise.all([shop.start(env), shop.start(env)])));
});
afterAll(async () => {
  try {
    await booksAtRest(shop);
  } finally {
    await Promise.all(replicas.map((replica) => replica.kill()));
    await pooler?.stop();
    await shop?.close();
    // Dropping the database drops what the role owns: the months that its replicas created.
    const server = connect({ databaseUrl: process.env.DATABASE_URL ?? "", dbPrepare: false }, 1);
    await server.unsafe(`drop role if exists ${role}`);
    await server.end({ timeout: 5 });
  }
});

const origins = () => replicas.map(({ origin }) => origin);

/** One connection of the role through the pooler, for `work`. */
async function pooled<T>(work: (sql: Sql) => Promise<T>, max = 1): Promise<T> {
  const sql = connect({ databaseUrl: pooledUrl, dbPrepare: false }, max);
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Locks that are taken, or waited for, in the shop's database. */
const advisoryLocks = async () =>
  (
    await shop.world.sql`
      select 1 from pg_locks
      where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`
  ).length;

test("quota and balance are exact under concurrent chats, streams and panel requests through both replicas", async () => {
  const UNITS = 60;
  const ASKED = 100;
  const HELD = { prompt_tokens: 36, completion_tokens: 10 };
  const heldNanoUsd = BigInt((36 * PRICES.inputMicroUsd) / 1000) + BigInt((10 * PRICES.outputMicroUsd) / 1000);
  shop.provider.always({ usage: HELD, tokens: 10, delayMs: 50 });
  const buyers = [
    { ...(await shop.customer({ dailyLimit: UNITS, days: 5 })), code: "daily_quota_exceeded" },
    { ...(await shop.payer(BigInt(UNITS) * heldNanoUsd)), code: "insufficient_balance" },
  ];
  const reader = await signInTo(shop, await shop.world.addAdmin(), { origin: origins()[0] as string });
  const PAGES = ["/home", "/usage", "/admin/overview", "/admin/books", "/billing"];
  // As many at once as a page requests: an account has a share of long reads.
  const reads = (async () => {
    const answers: Answer[] = [];
    for (let i = 0; i < 30; i += PAGES.length)
      answers.push(...(await Promise.all(PAGES.map((page) => reader.get(page)))));
    return answers;
  })();
  for (const { secret, accountId, code, answers } of await Promise.all(
    buyers.map(async (buyer) => ({
      ...buyer,
      answers: await Promise.all(
        Array.from({ length: ASKED }, (_, i) =>
          shop.chat(buyer.secret, { stream: i % 4 < 2, max_tokens: 10 }, { origin: origins()[i % 2] as string }),
        ),
      ),
    })),
  )) {
    expect(secret).toStartWith("sk-");
    const served = answers.filter(({ status }) => status === 200);
    const refused = answers.filter(({ status }) => status !== 200);
    expect(refused.map(({ status, json }) => [status, json?.error?.code])).toEqual(
      Array.from({ length: ASKED - UNITS }, () => [402, code]),
    );
    for (const { headers, text } of served)
      if (headers.get("content-type")?.startsWith("text/event-stream")) expect(eventsOf(text).at(-1)).toBe("[DONE]");
    expect(await shop.counters(accountId)).toMatchObject({ usage: UNITS, released: 0, holds: 0, balance: 0 });
  }
  expect(shop.provider.callCount()).toBe(2 * UNITS);
  for (const { status, text } of await reads) expect([status, text]).toEqual([200, expect.any(String)]);
  await until(async () => (await advisoryLocks()) === 0);
});

test("concurrent queries on one connection are all answered, also beside other clients", async () => {
  // With the client's pipelining one of the first rounds is never answered.
  const others = (other: Sql, round: number) => [
    other`select pg_sleep(0.01), ${round}::int as round`,
    other`select ${round}::int as round`,
  ];
  await pooled(
    (other) =>
      pooled(async (sql) => {
        for (let round = 0; round < 60; round++) {
          const [, behind] = await Promise.all([
            sql`select pg_sleep(0.01)`,
            sql`select ${round}::int as round`,
            ...others(other, round),
          ]);
          expect(behind).toMatchObject([{ round }]);
        }
        const [inside] = await Promise.all([
          sql.begin((tx) => tx`select ${"in a transaction"}::text as it`),
          sql`select pg_sleep(0.01)`,
        ]);
        expect(inside).toMatchObject([{ it: "in a transaction" }]);
      }),
    3,
  );
});

test("the pooler has more client connections than connections to Postgres", async () => {
  const console_ = connect({ databaseUrl: pooler.urlOf("pgbouncer"), dbPrepare: false, fetchTypes: false }, 1);
  try {
    const pools = await console_.unsafe("show pools").simple();
    const ours = pools.find(({ database }) => pooledUrl.endsWith(`/${database}`));
    const servers = ["sv_active", "sv_idle", "sv_used", "sv_tested", "sv_login"].map((name) => Number(ours?.[name]));
    const clients = ["cl_active", "cl_waiting"].map((name) => Number(ours?.[name]));
    const sum = (of: number[]) => of.reduce((total, one) => total + one, 0);
    expect(ours?.pool_mode).toBe("transaction");
    expect(sum(servers)).toBeLessThanOrEqual(POOL_SIZE);
    expect(sum(clients)).toBeGreaterThan(POOL_SIZE);
  } finally {
    await console_.end({ timeout: 5 });
  }
});

test("time limits are set on the role, because the pooler refuses them as connection parameters", async () => {
  const shown = await pooled(
    (sql) => sql`select name, setting from pg_settings where name = any(${Object.keys(LIMITS)}::text[]) order by name`,
  );
  expect(shown.map(({ name, setting }) => [name, setting])).toEqual([
    ["idle_in_transaction_session_timeout", String(IDLE_MS)],
    ["statement_timeout", String(STATEMENT_MS)],
  ]);
  const withParameter = new URL(pooledUrl);
  withParameter.searchParams.set("statement_timeout", "1000");
  const client = connect({ databaseUrl: withParameter.href, dbPrepare: false }, 1);
  try {
    await expect(client`select 1`.execute()).rejects.toThrow(/unsupported startup parameter/);
  } finally {
    await client.end({ timeout: 1 });
  }
});

test("an idle transaction is ended, and the account that it had locked is free", async () => {
  const { secret, accountId } = await shop.customer();
  await pooled(async (sql) => {
    const { promise: served, resolve: done } = Promise.withResolvers<void>();
    const still = sql
      .begin(async (tx) => {
        await tx`select lock_accounts(array[${accountId}::bigint])`;
        const answer = await shop.chat(secret, {}, { origin: origins()[0] as string });
        expect(answer.status).toBe(200);
        done();
        await tx`select 1`;
      })
      .then(
        () => "it went on",
        () => "lost",
      );
    await served;
    expect(await still).toBe("lost");
  });
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
});

test("the check of the books keeps its transaction, which is idle while the check works", async () => {
  let slept = false;
  const onSlice = () => {
    if (slept) return;
    slept = true;
    Bun.sleepSync(2 * IDLE_MS);
  };
  const { results } = await pooled((sql) => checkNow(sql, { full: true, onSlice }), 2);
  expect(slept).toBe(true);
  expect(results.filter(({ rows }) => rows !== 0)).toEqual([]);
});

test("migrations go to Postgres directly; concurrent ones through the pooler do no harm", async () => {
  const name = `tollgate_pooled_${randomBytes(6).toString("hex")}`;
  await shop.world.sql.unsafe(`create database ${name} owner ${role}`);
  try {
    const direct = new URL(shop.world.url);
    direct.username = role;
    direct.password = password;
    direct.pathname = `/${name}`;
    const first = await migrate(direct.href);
    expect(first.before).toBe(0);
    expect(await migrate(pooler.urlOf(name))).toEqual({ before: first.applied, applied: first.applied });

    const owned = connect({ databaseUrl: direct.href, dbPrepare: false }, 1);
    await owned.unsafe("drop schema public cascade; drop schema drizzle cascade; create schema public");
    await owned.end({ timeout: 5 });
    const all = await Promise.all(Array.from({ length: 4 }, () => migrate(pooler.urlOf(name))));
    expect(all.map(({ before }) => before).sort((a, b) => a - b)).toEqual([0, ...Array(3).fill(first.applied)]);
  } finally {
    await shop.world.sql.unsafe(`drop database ${name} with (force)`);
  }
});
