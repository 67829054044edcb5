import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import process from "node:process";
import { checkNow } from "../../src/books/check_runs_store.ts";
import { connect } from "../../src/platform/db.ts";
import { type PgBouncer, startPgBouncer } from "../deploy/pgbouncer.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { startTcpProxy, type TcpProxy } from "../tcp_proxy.ts";
import {
  type Buyer,
  behave,
  behaveHeld,
  booksAtRest,
  callsOf,
  flowing,
  HELD_NANO_USD,
  HELD_USAGE,
  openCall,
  receiptsOf,
} from "./fault_shop.ts";
import { type Load, startLoad } from "./pair_load.ts";
import { type PostgresPair, postgresPair } from "./postgres_pair.ts";

/**
 * A failover of a pair of Postgres servers behind PgBouncer, under load. With synchronous replication nothing is lost and nothing is
 * charged twice. Source: REL-4, END-14, docs/operations.md.
 */
const POOL_SIZE = 16;
/** Answers before the fault, and again after it. */
const ANSWERS = 80;
const REFUSALS = 8;
const REPLICA = { LEDGER_TIMEOUT_MS: "1800", DB_PREPARE: "false" };

type Site = {
  pair: PostgresPair;
  pooler: PgBouncer;
  /** The test's own way to the primary. */
  name: TcpProxy;
  shop: Shop;
  /** Two behind the pooler, and one that has both servers in its DATABASE_URL. */
  replicas: ReplicaProcess[];
  close(): Promise<void>;
};

/** Three replicas in front of a pair. */
async function openSite(options: { synchronous: boolean }): Promise<Site> {
  const before = process.env.DATABASE_URL;
  const pair = await postgresPair(options);
  const name = await startTcpProxy(pair.primaryUrl);
  const pooler = await startPgBouncer({
    databaseUrl: pair.primaryUrl,
    role: "postgres",
    password: "any",
    poolSize: POOL_SIZE,
  });
  process.env.DATABASE_URL = name.url;
  const shop = await openShop({
    replicas: 2,
    env: REPLICA,
    throughUrl: async (url) => pooler.urlOf(new URL(url).pathname.slice(1)),
  });
  const database = new URL(shop.world.url).pathname;
  const direct = await shop.start({
    DATABASE_URL: `postgres://postgres@${pair.hosts.join()}${database}?target_session_attrs=primary`,
    PGPORT: pair.port,
    DB_PREPARE: "true",
  });
  return {
    pair,
    pooler,
    name,
    shop,
    replicas: [...shop.replicas, direct],
    async close() {
      await direct.kill();
      await shop.close();
      await pooler.stop();
      await name.close();
      await pair.remove();
      if (before === undefined) delete process.env.DATABASE_URL;
      else process.env.DATABASE_URL = before;
    },
  };
}

/** Kills the primary, promotes the standby, and leads everyone there. Prints how long that took, and how long requests were refused. */
async function failOver({ pair, pooler, name }: Site, load: Load): Promise<void> {
  const refusedBefore = load.refusedCount();
  const killedAt = performance.now();
  await pair.killPrimary();
  await until(() => load.refusedCount() >= refusedBefore + REFUSALS);
  const promotedFrom = performance.now();
  pair.promote();
  await pooler.moveTo(pair.standbyUrl);
  name.moveTo(pair.standbyUrl);
  const movedAt = performance.now();
  const servedBefore = load.servedCount();
  await until(() => load.servedCount() >= servedBefore + ANSWERS);
  const ms = (value: number) => `${Math.round(value)} ms`;
  console.log(
    `failover: detected after ${ms(promotedFrom - killedAt)} (by the test), promotion and RELOAD ${ms(movedAt - promotedFrom)}, the last refusal ${ms(load.refusedMs(killedAt))} after the kill, ${load.refusedCount() - refusedBefore} refusals`,
  );
}

/** The full check of the books, as `doctor --full` runs it. */
async function expectBooksRight(shop: Shop): Promise<void> {
  await booksAtRest(shop);
  const sql = connect({ databaseUrl: shop.world.url, dbPrepare: false }, 2);
  try {
    const { results } = await checkNow(sql, { full: true });
    expect(results.filter(({ rows }) => rows !== 0)).toEqual([]);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Ids of the requests that the books know as served, by account. */
async function settledOf(shop: Shop, accountId: number): Promise<string[]> {
  const receipts = await receiptsOf(shop, accountId);
  return receipts.filter(({ outcome }) => outcome === "settled").map(({ requestId }) => requestId);
}

const spoolsOf = (shop: Shop, ending = ".spool") =>
  readdirSync(shop.world.spoolDir, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(ending));
const idOf = (answer: Answer | undefined) => answer?.headers.get("x-request-id") ?? "";

async function buyersOf(shop: Shop) {
  const packages = [await shop.customer({ dailyLimit: 100_000 }), await shop.customer({ dailyLimit: 100_000 })];
  const payers = [await shop.payer(1_000_000n * HELD_NANO_USD), await shop.payer(1_000_000n * HELD_NANO_USD)];
  return { packages, payers, all: [...packages, ...payers] };
}

describe("a synchronous pair", () => {
  let site: Site;
  let known: Buyer;
  beforeAll(async () => {
    site = await openSite({ synchronous: true });
  });
  afterAll(() => site.close());

  test("the primary is killed under load: each whole answer has one receipt on the new one, and nothing else was charged", async () => {
    const { shop, replicas } = site;
    const { packages, payers, all } = await buyersOf(shop);
    shop.provider.always({ tokens: 10, usage: HELD_USAGE });
    const load = startLoad(
      shop,
      replicas.map(({ origin }) => origin),
      all,
    );
    await until(() => load.servedCount() >= ANSWERS);
    // These end while there is no primary: their settlements wait in the spool.
    const { mark, open } = behaveHeld(shop, { tokens: 10, usage: HELD_USAGE });
    const inFlight = await Promise.all([shop.customer({ dailyLimit: 100 }), shop.payer(100n * HELD_NANO_USD)]);
    known = inFlight[0];
    const streams = replicas.flatMap(({ origin }) =>
      inFlight.map(({ secret }) => openCall(origin, secret, { stream: true, ...mark })),
    );
    await flowing(streams);
    const killing = failOver(site, load);
    await until(() => load.refusedCount() > 0);
    open();
    await Promise.all(streams.map(({ ended }) => ended));
    expect(streams.map((stream) => stream.got().endsWith("data: [DONE]\n\n"))).toEqual(streams.map(() => true));
    await killing;
    await load.stop();

    await until(() => spoolsOf(shop).length === 0);
    await expectBooksRight(shop);
    let receipts = 0;
    for (const { accountId } of all) {
      const settled = await settledOf(shop, accountId);
      expect(settled.sort()).toEqual(load.served.get(accountId)?.sort() ?? []);
      receipts += settled.length;
    }
    for (const { accountId } of inFlight) expect(await settledOf(shop, accountId)).toHaveLength(replicas.length);
    expect(shop.provider.callCount()).toBe(receipts + streams.length);
    for (const { accountId } of packages)
      expect(await shop.counters(accountId)).toMatchObject({ units: load.served.get(accountId)?.length, holds: 0 });
    for (const { accountId } of payers) {
      const charged = BigInt(load.served.get(accountId)?.length ?? 0) * HELD_NANO_USD;
      expect((await shop.counters(accountId)).balance).toBe(Number(1_000_000n * HELD_NANO_USD - charged));
    }
  });

  test("the former primary comes back, and PgBouncer leads to it: nothing is sold there, because its commits wait for its standby", async () => {
    const { shop, pair, pooler, replicas } = site;
    const pooled = replicas.slice(0, 2);
    await pair.restartPrimary();
    await pooler.moveTo(pair.primaryUrl);
    const mark = behave(shop, { tokens: 10 });
    const before = await settledOf(shop, known.accountId);
    for (const { origin } of [...pooled, ...pooled]) {
      const answer = await shop.chat(known.secret, mark, { origin });
      expectRefusal(answer, "service_unavailable");
    }
    expect(callsOf(shop, mark)).toBe(0);
    await pooler.moveTo(pair.standbyUrl);
    for (const { origin } of pooled)
      await until(async () => (await shop.chat(known.secret, mark, { origin })).status === 200);
    await expectBooksRight(shop);
    const after = await settledOf(shop, known.accountId);
    expect(after.length - before.length).toBe(callsOf(shop, mark));
  });
});

describe("an asynchronous pair", () => {
  let site: Site;
  beforeAll(async () => {
    site = await openSite({ synchronous: false });
  });
  afterAll(() => site.close());

  test("the standby has not received the last requests: they are free, the books of the others are right, and the former primary and the log name them", async () => {
    const { shop, pair, pooler, name, replicas } = site;
    const { packages, payers, all } = await buyersOf(shop);
    shop.provider.always({ tokens: 10, usage: HELD_USAGE });
    const served = new Map<number, string[]>(all.map(({ accountId }) => [accountId, []]));
    const round = async () => {
      const ids: string[] = [];
      for (const { origin } of replicas)
        for (const { accountId, secret } of all) {
          const answer = await shop.chat(secret, { max_tokens: 10 }, { origin });
          expect(answer.status).toBe(200);
          ids.push(idOf(answer));
          served.get(accountId)?.push(idOf(answer));
        }
      return ids;
    };
    await round();
    await pair.caughtUp();
    await pair.stopSending();
    const lost = await round();
    const { mark, open } = behaveHeld(shop, { tokens: 10, usage: HELD_USAGE });
    // Their draws are lost. The last account is lost itself.
    const streams = [...all, await shop.customer({ dailyLimit: 100 })].map(({ secret }) =>
      openCall(replicas[0]?.origin ?? "", secret, { stream: true, max_tokens: 10, ...mark }),
    );
    await flowing(streams);
    await pair.killPrimary();
    open();
    await Promise.all(streams.map(({ ended }) => ended));
    pair.promote();
    await pooler.moveTo(pair.standbyUrl);
    name.moveTo(pair.standbyUrl);
    for (const { origin } of replicas)
      for (const { accountId, secret } of all) {
        let answer: Answer | undefined;
        await until(async () => {
          answer = await shop.chat(secret, { max_tokens: 10 }, { origin });
          return answer.status === 200;
        });
        served.get(accountId)?.push(idOf(answer));
      }
    await until(() => spoolsOf(shop).length === 0);
    await expectBooksRight(shop);

    for (const { accountId } of all) {
      const kept = served.get(accountId)?.filter((id) => !lost.includes(id)) ?? [];
      const settled = await settledOf(shop, accountId);
      expect(settled).toEqual(expect.arrayContaining(kept));
      // One more: the stream. Its settlement came from the spool, and is charged although its draw is lost.
      expect(settled).toHaveLength(kept.length + 1);
    }
    for (const { accountId } of packages) expect(await shop.counters(accountId)).toMatchObject({ units: 7, holds: 0 });
    for (const { accountId } of payers)
      expect((await shop.counters(accountId)).balance).toBe(Number(999_993n * HELD_NANO_USD));
    expect(spoolsOf(shop, ".jsonl")).toEqual([]);

    // Who looks for them finds them in the log of requests, and on the disk of the former primary.
    const known = new Set((await Promise.all(all.map(({ accountId }) => settledOf(shop, accountId)))).flat());
    const missing = (ids: readonly string[]) => ids.filter((id) => !known.has(id)).sort();
    const accounts = all.map(({ accountId }) => accountId);
    const logged = () =>
      missing(
        replicas.flatMap((replica) =>
          requestsIn(replica.logged()).flatMap(({ requestId, status, accountId }) =>
            status === 200 && accounts.includes(accountId) ? [requestId] : [],
          ),
        ),
      );
    await until(() => Bun.deepEquals(logged(), [...lost].sort()));
    await pair.restartPrimary();
    const former = new URL(pair.primaryUrl);
    former.pathname = new URL(shop.world.url).pathname;
    const receipts = await pair.ask(former.href, "select request_id from receipts");
    expect(missing(receipts.map((row) => String(row.request_id)))).toEqual([...lost].sort());
  });
});

type RequestLine = { message: string; requestId: string; status: number; accountId: number };

/** The lines about requests in the output of a replica. */
function requestsIn(output: string): RequestLine[] {
  return output
    .split("\n")
    .filter((line) => line.includes('"message":"request"'))
    .map((line) => JSON.parse(line));
}
