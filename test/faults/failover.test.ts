import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { ESCROW_VALID_MS } from "../../src/platform/changes_store.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { CALM, closeAtRest } from "./fault_shop.ts";

/**
 * A failover of Postgres. For a moment its name leads to a server that takes no writes; connections that were opened then
 * stay there. Source: REL-4.
 */

setDefaultTimeout(60_000);
/** The heartbeat finds a connection each second; the rest is for a slow machine. */
const RECOVERED_MS_MAX = 15_000;
let shop: Shop;
beforeAll(async () => {
  shop = await openShop({ env: { ...CALM, LEDGER_TIMEOUT_MS: "1800" } });
});
afterAll(() => closeAtRest(shop));

/** What new sessions of the database may do. All present ones of replicas end. */
async function becomeReadOnly(on: boolean): Promise<void> {
  const { sql, url } = shop.world;
  const database = new URL(url).pathname.slice(1);
  if (!on) await sql.unsafe(`alter database ${database} reset default_transaction_read_only`);
  else {
    await sql.unsafe(`alter database ${database} set default_transaction_read_only = on`);
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${database} and application_name = 'tollgate'`;
  }
}

test("connections that were opened to a read-only server are replaced: the replica is not ready, and then serves", async () => {
  const { secret } = await shop.customer({ dailyLimit: 1000 });
  const chat = async () => (await shop.chat(secret, { max_tokens: 10 })).status;
  const ready = async () => (await shop.call("/readyz")).json;
  expect(await chat()).toBe(200);
  await becomeReadOnly(true);
  try {
    const unready = { status: "not_ready", reason: "database_unreachable" };
    await until(async () => Bun.deepEquals(await ready(), unready), RECOVERED_MS_MAX);
    await sleep(ESCROW_VALID_MS + 500);
    expect(await ready()).toEqual(unready);
    // Every lane and the pool have connections to it.
    expect(await Promise.all(Array.from({ length: 20 }, chat))).toContain(503);
  } finally {
    await becomeReadOnly(false);
  }
  await until(async () => (await ready()).status === "ready" && (await chat()) === 200, RECOVERED_MS_MAX);
  // Not only on the connections that happened to be replaced.
  for (let i = 0; i < 5; i++) {
    expect(await Promise.all(Array.from({ length: 20 }, chat))).toEqual(Array.from({ length: 20 }, () => 200));
    await sleep(300);
  }
});
