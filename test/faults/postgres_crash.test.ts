import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import postgresClient from "postgres";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { signInTo } from "../panel/panel_client.ts";
import { sleep, until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import {
  accountAtRest,
  behave,
  behaveHeld,
  callsOf,
  closeAtRest,
  flowing,
  HELD_NANO_USD,
  HELD_USAGE,
  openCall,
  PROMPT,
  receiptsOf,
  withReplica,
} from "./fault_shop.ts";
import { type OwnPostgres, ownPostgres } from "./own_postgres.ts";

/**
 * Postgres crashes while requests are being held and while streams are open. Committed data is there when it is back;
 * settlements that it could not accept wait in the spool. Source: END-14.
 */
const LEASE_SECONDS = 4;
let postgres: OwnPostgres;
let shop: Shop;

beforeAll(async () => {
  postgres = await ownPostgres();
  shop = await openShop({ env: { ...PROMPT, LEASE_SECONDS: String(LEASE_SECONDS) } });
});
afterAll(() => closeAtRest(shop, () => postgres.remove()));

const ready = async ({ origin }: ReplicaProcess) => (await shop.call("/readyz", { origin })).status === 200;

/** The replica deletes a file when all of it is applied, perhaps after it was listed. */
function textIfThere(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return "";
    throw error;
  }
}

/** The settlements in a replica's spool. */
function spooledIn(folder: string): string[] {
  const text = readdirSync(folder)
    .filter((name) => name.endsWith(".spool"))
    .map((name) => textIfThere(join(folder, name)))
    .join("");
  return text
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line).requestId);
}

const idOf = ({ headers }: Answer) => headers.get("x-request-id") ?? "";

/** Successful answers and usage records belong to the same requests, one for one. */
async function expectOneRecordEach(accountId: number, answers: readonly Answer[]): Promise<string[]> {
  await accountAtRest(shop, accountId);
  const good = answers.filter(({ status }) => status === 200).map(idOf);
  const settled = (await receiptsOf(shop, accountId)).filter(({ outcome }) => outcome === "settled");
  expect(settled.map(({ requestId }) => requestId).sort()).toEqual([...good].sort());
  expect(await shop.counters(accountId)).toMatchObject({ usage: good.length, units: good.length });
  return good;
}

/** Sixty requests, one every few milliseconds, and a crash among them. */
async function crashAmongReserves(origin: string, secret: string): Promise<Answer[]> {
  const mark = behave(shop, { tokens: 10 });
  const answers: Promise<Answer>[] = [];
  let crashed = Promise.resolve();
  for (let i = 0; i < 60; i++) {
    answers.push(shop.chat(secret, { stream: i % 2 === 0, ...mark }, { origin }));
    if (i === 25) crashed = postgres.crash("SIGQUIT").then(() => postgres.start());
    await sleep(4);
  }
  await crashed;
  return await Promise.all(answers);
}

test("a crash during reserves: each request gets 503, or an answer with one usage record under its request id", async () => {
  const customer = await shop.customer({ dailyLimit: 1000 });
  expect((await shop.chat(customer.secret)).status).toBe(200);
  const warm = await receiptsOf(shop, customer.accountId);
  const answers = await crashAmongReserves(shop.origin, customer.secret);
  for (const answer of answers) if (answer.status !== 200) expectRefusal(answer, "service_unavailable");
  const first = { status: 200, headers: new Headers({ "x-request-id": warm[0]?.requestId ?? "" }) } as Answer;
  await expectOneRecordEach(customer.accountId, [first, ...answers]);
  await until(() => ready(shop.replicas[0] as ReplicaProcess));
});

test("with a long LEDGER_TIMEOUT_MS every reserve outlives the crash: each request is held once, under its own id, and served", async () => {
  const patient = () => shop.start({ LEDGER_TIMEOUT_MS: "40000" });
  await withReplica(patient, async (replica) => {
    const customer = await shop.customer({ dailyLimit: 1000 });
    const first = await shop.chat(customer.secret, {}, { origin: replica.origin });
    const answers = [first, ...(await crashAmongReserves(replica.origin, customer.secret))];
    const good = await expectOneRecordEach(customer.accountId, answers);
    // Only requests whose key had to be looked up during the outage are refused. No hold was released, so none was
    // granted twice.
    expect(await receiptsOf(shop, customer.accountId)).toHaveLength(good.length);
    expect(good.length).toBeGreaterThan(30);
  });
});

for (const signal of ["SIGQUIT", "SIGKILL"] as const) {
  test(`a crash (${signal}) during streams: they complete, and their settlements wait in the spool and are applied once`, async () => {
    const folder = join(shop.world.spoolDir, `stream-${signal}`);
    const start = () => shop.start({ SPOOL_DIR: folder, LEASE_SECONDS: "60", LEDGER_TIMEOUT_MS: "10000" });
    const customer = await shop.customer({ dailyLimit: 10 });
    const payer = await shop.payer(10n * HELD_NANO_USD);
    const { mark, open } = behaveHeld(shop, { tokens: 10, usage: HELD_USAGE });
    await withReplica(start, async (replica) => {
      const { origin } = replica;
      const calls = [customer, payer].flatMap(({ secret }) =>
        Array.from({ length: 4 }, () => openCall(origin, secret, { stream: true, ...mark })),
      );
      await flowing(calls);
      await postgres.crash(signal);
      open();
      await Promise.all(calls.map(({ ended }) => ended));
      for (const call of calls) expect(call.got()).toEndWith("data: [DONE]\n\n");
      expect(spooledIn(folder)).toHaveLength(8);
      expect(await shop.call("/readyz", { origin })).toMatchObject({
        status: 503,
        json: { reason: "database_unreachable" },
      });
      expect((await shop.call("/healthz", { origin })).status).toBe(200);
      expectRefusal(await shop.chat(customer.secret, {}, { origin }), "service_unavailable");
      await postgres.start();
      await until(() => spooledIn(folder).length === 0);
      await until(async () => (await shop.counters(payer.accountId)).usage === 4);
      expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 4, units: 4, holds: 0 });
      const left = Number(6n * HELD_NANO_USD);
      expect(await shop.counters(payer.accountId)).toMatchObject({ usage: 4, balance: left, holds: 0 });
      for (const receipt of [
        ...(await receiptsOf(shop, customer.accountId)),
        ...(await receiptsOf(shop, payer.accountId)),
      ])
        expect(receipt).toMatchObject({ outcome: "settled", reason: "complete", shortfall: 0 });
      expect(callsOf(shop, mark)).toBe(8);
      await until(() => ready(replica));
      expect((await shop.chat(customer.secret, {}, { origin })).status).toBe(200);
    });
  });
}

for (const how of ["a crash", "a connection that is closed"] as const) {
  test(`${how} while changes wait in transactions: they get 503, none is made, and the replica keeps running`, async () => {
    const proxy = await startTcpProxy(shop.world.url);
    const start = () => shop.start({ DATABASE_URL: proxy.url });
    await withReplica(start, async (replica) => {
      const { origin } = replica;
      const customer = await shop.customer();
      const session = await signInTo(shop, customer, { origin });
      const holder = postgresClient(shop.world.url, { max: 1, onnotice: () => {} });
      const held = await holder.reserve();
      await held.unsafe(`begin; select pg_advisory_xact_lock(${customer.accountId})`);
      const changes = Array.from({ length: 3 }, () => session.post(`/keys/${customer.keyId}/disable`));
      await until(async () => (await waiting(customer.accountId)) === 3);
      if (how === "a crash") await postgres.crash("SIGQUIT");
      else proxy.cut();
      for (const change of await Promise.all(changes)) expectRefusal(change, "service_unavailable");
      expect((await shop.call("/healthz", { origin })).status).toBe(200);
      expect(replica.process.exitCode).toBeNull();
      if (how === "a crash") await postgres.start();
      else await held.unsafe("rollback");
      proxy.mend();
      await holder.end({ timeout: 0 });
      await until(() => ready(replica));
      expect((await shop.chat(customer.secret, {}, { origin })).status).toBe(200);
      expect((await session.post(`/keys/${customer.keyId}/disable`)).status).toBe(200);
    }).finally(proxy.close);
  });
}

/** How many sessions wait for the account's lock. */
async function waiting(accountId: number): Promise<number> {
  const [row] = await shop.world.sql`
    select count(*)::int as n from pg_locks where locktype = 'advisory' and objid = ${accountId} and not granted
      and database = (select oid from pg_database where datname = current_database())`;
  return Number(row?.n);
}

test("Postgres and the replica crash: the settlements in the spool are applied once after both restart", async () => {
  const SPOOL_DIR = join(shop.world.spoolDir, "two-lives");
  const replica = await shop.start({ SPOOL_DIR, LEASE_SECONDS: "60", LEDGER_TIMEOUT_MS: "10000" });
  const customer = await shop.customer({ dailyLimit: 10 });
  const { mark, open } = behaveHeld(shop, { tokens: 10 });
  const calls = Array.from({ length: 3 }, () => openCall(replica.origin, customer.secret, { stream: true, ...mark }));
  let next: ReplicaProcess | undefined;
  try {
    await flowing(calls);
    await postgres.crash("SIGQUIT");
    open();
    await Promise.all(calls.map(({ ended }) => ended));
    expect(spooledIn(SPOOL_DIR)).toHaveLength(3);
    await replica.kill();
    await postgres.start();
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 0, holds: 3 });
    next = await shop.start({ SPOOL_DIR, LEASE_SECONDS: "60", LEDGER_TIMEOUT_MS: "10000" });
    await until(async () => (await shop.counters(customer.accountId)).usage === 3);
    await until(() => spooledIn(SPOOL_DIR).length === 0);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 3, units: 3, holds: 0, released: 0 });
  } finally {
    await replica.kill();
    await next?.kill();
  }
});
