import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { connect } from "../../src/platform/db.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { signInTo } from "../panel/panel_client.ts";
import { sleep, until } from "../platform/own_redis.ts";
import {
  type Buyer,
  behave,
  CALM,
  clocked,
  closeAtRest,
  flowing,
  openCall,
  receiptsOf,
  withReplica,
} from "./fault_shop.ts";

/**
 * A session holds a lock for long, or a pool has no free connection: requests that need it are refused in time, all
 * others are served, and everything works again within seconds. Source: REL-5.
 */

setDefaultTimeout(120_000);
const LEASE_SECONDS = 4;
/**
 * Twice the default, so that it stays well above the 0.8 s that one attempt waits for a lock, also on a slow machine.
 */
const LEDGER_TIMEOUT_MS = 3_600;
const SHED_MS_MAX = 5_500;
const RECOVERED_MS_MAX = 10_000;
const PANEL_READ_MS_MAX = 15_000;
const LONG_READ_MS_MAX = 3_000;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({
    replicas: 2,
    env: { ...CALM, LEASE_SECONDS: String(LEASE_SECONDS), LEDGER_TIMEOUT_MS: String(LEDGER_TIMEOUT_MS) },
  });
});
afterAll(() => closeAtRest(shop));

const origins = () => shop.replicas.map(({ origin }) => origin);

/** Runs `work` while another transaction holds the locks of `statement`. */
async function whileHeld<T>(statement: string, work: () => Promise<T>): Promise<T> {
  const client = connect({ databaseUrl: shop.world.url, dbPrepare: false }, 1);
  const session = await client.reserve();
  try {
    await session.unsafe("begin");
    await session.unsafe(statement);
    return await work();
  } finally {
    await session.unsafe("rollback");
    session.release();
    await client.end({ timeout: 5 });
  }
}

const accountLock = ({ accountId }: Buyer) => `select pg_advisory_xact_lock(${accountId})`;

type Asked = { value: Answer; tookMs: number };

/** Two callers at each replica send requests of this buyer, one after the other, until the time is over. */
async function hammer(buyer: Buyer, forMs: number): Promise<Asked[]> {
  const endsAt = performance.now() + forMs;
  const asked: Asked[] = [];
  const ask = async (origin: string) => {
    while (performance.now() < endsAt) asked.push(await clocked(shop.chat(buyer.secret, {}, { origin })));
  };
  await Promise.all(origins().flatMap((origin) => [ask(origin), ask(origin)]));
  return asked;
}

/** It is served again, by every replica. */
async function servedAgain(buyer: Buyer): Promise<void> {
  for (const origin of origins())
    await until(async () => (await shop.chat(buyer.secret, {}, { origin })).status === 200, RECOVERED_MS_MAX);
}

async function customers(count: number): Promise<Buyer[]> {
  const buyers = await Promise.all(Array.from({ length: count }, () => shop.customer({ dailyLimit: 100_000 })));
  // So that every replica knows their keys.
  for (const buyer of buyers) await servedAgain(buyer);
  return buyers;
}

test("locks of two accounts held: their requests are shed in time; both replicas serve every other account immediately", async () => {
  const held = await customers(2);
  const others = await customers(6);
  const settledBefore = await Promise.all(held.map(({ accountId }) => shop.counters(accountId)));
  const [ofHeld, ofOthers] = await whileHeld(held.map(accountLock).join("; "), () =>
    Promise.all([
      Promise.all(held.map((buyer) => hammer(buyer, 5_000))),
      Promise.all(others.map((buyer) => hammer(buyer, 5_000))),
    ]),
  );
  for (const { value, tookMs } of ofHeld.flat()) {
    expectRefusal(value, "service_unavailable");
    expect(tookMs).toBeLessThan(SHED_MS_MAX);
  }
  // Both replicas always contend for these accounts, which must not put them behind the locked ones.
  const outcomes = ofOthers.flat().map(({ value }) => value.status);
  expect(outcomes.filter((status) => status !== 200)).toEqual([]);
  expect(outcomes.length).toBeGreaterThan(50);
  const startedMs = performance.now();
  for (const buyer of held) await servedAgain(buyer);
  console.log(`served again ${Math.round(performance.now() - startedMs)} ms after the locks were gone`);
  for (const [i, { accountId }] of held.entries())
    expect((await shop.counters(accountId)).usage).toBe((settledBefore[i]?.usage ?? 0) + 2);
});

test.concurrent("an account's lock held while its stream ends: the client gets the complete answer; the settlement waits and is applied once", async () => {
  const [buyer, other] = (await customers(2)) as [Buyer, Buyer];
  const before = await shop.counters(buyer.accountId);
  // Long enough that the lock is taken before it ends, also while the other tests of this file keep the machine busy.
  const mark = behave(shop, { tokens: 10, chunkDelayMs: 400 });
  const call = openCall(shop.origin, buyer.secret, { stream: true, ...mark });
  await flowing([call]);
  await whileHeld(accountLock(buyer), async () => {
    expect(call.over()).toBe(false);
    await call.ended;
    expect(call.got()).toEndWith("data: [DONE]\n\n");
    expect((await shop.counters(buyer.accountId)).usage).toBe(before.usage);
    // Requests that wait for one account do not delay the settlements of others.
    expect((await shop.chat(other.secret)).status).toBe(200);
    await sleep(1_500);
  });
  const settled = async () => (await shop.counters(buyer.accountId)).usage === before.usage + 1;
  await until(settled, 20_000);
  expect(await shop.counters(buyer.accountId)).toMatchObject({ units: before.units + 1, holds: 0 });
  expect((await receiptsOf(shop, buyer.accountId)).at(-1)).toMatchObject({ outcome: "settled", shortfall: 0 });
});

test.concurrent("a row of `keys` locked by a transaction: metered requests are served, the key owner's included", async () => {
  const [owner, other] = (await customers(2)) as [Buyer, Buyer];
  await whileHeld(`select 1 from keys where id = ${owner.keyId} for update`, async () => {
    const asked = await Promise.all([hammer(owner, 1_500), hammer(other, 1_500)]);
    for (const { value } of asked.flat()) expect(value.status).toBe(200);
    const session = await signInTo(shop, owner);
    const changed = await clocked(session.post(`/keys/${owner.keyId}/disable`));
    expectRefusal(changed.value, "service_unavailable");
    expect(changed.tookMs).toBeLessThan(SHED_MS_MAX);
  });
  await servedAgain(owner);
});

test.concurrent("a change that waits for a lock in a pool of one connection is shed in time, and frees the pool", async () => {
  const narrow = () => shop.start({ DB_POOL_MAX: "1" });
  await withReplica(narrow, async ({ origin }) => {
    const [held, other] = (await customers(2)) as [Buyer, Buyer];
    const session = await signInTo(shop, held, { origin });
    const others = await signInTo(shop, other, { origin });
    await whileHeld(accountLock(held), async () => {
      const change = clocked(session.post(`/keys/${held.keyId}/disable`));
      await sleep(200);
      const startedMs = performance.now();
      // A key that this replica has not seen must be looked up, in the pool.
      const fresh = await shop.customer();
      await until(async () => (await shop.chat(fresh.secret, {}, { origin })).status === 200, SHED_MS_MAX);
      await until(async () => (await others.get("/keys")).status === 200, SHED_MS_MAX);
      await until(async () => (await shop.call("/readyz", { origin })).status === 200, SHED_MS_MAX);
      expect(performance.now() - startedMs).toBeLessThan(SHED_MS_MAX);
      const { value, tookMs } = await change;
      expectRefusal(value, "service_unavailable");
      expect(tookMs).toBeLessThan(SHED_MS_MAX);
    });
    // Refused changes were not made.
    await servedAgain(held);
    expect((await session.post(`/keys/${held.keyId}/disable`)).status).toBe(200);
  });
});

test("a page of the panel that waits for a locked table gets 503 in time, and is served as soon as the table is free", async () => {
  const session = await signInTo(shop, await shop.world.addAdmin());
  // Long reads have a shorter limit, on separate connections.
  for (const [path, table, msMax] of [
    ["/offerings", "offerings", PANEL_READ_MS_MAX],
    ["/audit", "audit_entries", LONG_READ_MS_MAX],
  ] as const) {
    expect((await session.get(path)).status).toBe(200);
    await whileHeld(`lock table ${table} in access exclusive mode`, async () => {
      const { value, tookMs } = await clocked(session.get(path));
      expectRefusal(value, "service_unavailable");
      expect(tookMs).toBeGreaterThan(msMax - 1_000);
      expect(tookMs).toBeLessThan(msMax + 5_000);
    });
    expect((await session.get(path)).status).toBe(200);
  }
});

test("requests are shed in time while every connection of a pool waits for a locked table, and served as soon as it is free", async () => {
  const narrow = () => shop.start({ DB_POOL_MAX: "1" });
  await withReplica(narrow, async ({ origin }) => {
    const [known] = (await customers(1)) as [Buyer];
    expect((await shop.chat(known.secret, {}, { origin })).status).toBe(200);
    const fresh = await shop.customer();
    await whileHeld("lock table accounts in access exclusive mode", async () => {
      const refusals = await Promise.all([
        clocked(shop.chat(fresh.secret, {}, { origin })),
        clocked(shop.chat(known.secret, {}, { origin })),
        clocked(shop.call("/v1/balance", { secret: fresh.secret, origin })),
        clocked(shop.call("/v1/usage", { secret: fresh.secret, origin })),
      ]);
      for (const { value, tookMs } of refusals) {
        expectRefusal(value, "service_unavailable");
        expect(tookMs).toBeLessThan(SHED_MS_MAX);
      }
      expect((await shop.call("/healthz", { origin })).status).toBe(200);
      expect((await shop.call("/readyz", { origin })).status).toBe(503);
    });
    const startedMs = performance.now();
    for (const { secret } of [fresh, known])
      await until(async () => (await shop.chat(secret, {}, { origin })).status === 200, RECOVERED_MS_MAX);
    console.log(`served again ${Math.round(performance.now() - startedMs)} ms after the table was free`);
    await until(async () => (await shop.call("/readyz", { origin })).status === 200, RECOVERED_MS_MAX);
  });
});
