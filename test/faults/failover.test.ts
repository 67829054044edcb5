import { afterAll, beforeAll, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import process from "node:process";
import postgres from "postgres";
import { type Service, startPostgres } from "../../scripts/services.ts";
import { ESCROW_VALID_MS } from "../../src/platform/changes_store.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { closeAtRest, withReplica } from "./fault_shop.ts";
import { type OwnPostgres, ownPostgres } from "./own_postgres.ts";

/**
 * A failover of Postgres. For a moment its name leads to a server that takes no writes; connections that were opened then
 * stay there. Source: REL-4.
 */
let shop: Shop;
beforeAll(async () => {
  shop = await openShop({ env: { LEDGER_TIMEOUT_MS: "5000" } });
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
  await until(async () => (await chat()) === 200);
  await becomeReadOnly(true);
  try {
    const unready = { status: "not_ready", reason: "database_unreachable" };
    await until(async () => Bun.deepEquals(await ready(), unready));
    await sleep(ESCROW_VALID_MS + 500);
    expect(await ready()).toEqual(unready);
    // Every lane and the pool have connections to it.
    expect(await Promise.all(Array.from({ length: 20 }, chat))).toContain(503);
  } finally {
    await becomeReadOnly(false);
  }
  await until(async () => (await ready()).status === "ready" && (await chat()) === 200);
  // Not only on the connections that happened to be replaced.
  for (let i = 0; i < 5; i++) {
    expect(await Promise.all(Array.from({ length: 20 }, chat))).toEqual(Array.from({ length: 20 }, () => 200));
    await sleep(300);
  }
});

async function dataDirectoryOf(url: string): Promise<string> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    const [row] = await sql`select setting as "at" from pg_settings where name = 'data_directory'`;
    return String(row?.at);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** The server comes back as a standby that receives nothing. Returns a primary with the data of this moment. */
async function failOver(former: OwnPostgres, dataDir: string): Promise<Service> {
  const from = await dataDirectoryOf(former.url);
  await former.crash("SIGQUIT");
  const to = join(dataDir, basename(from));
  execFileSync("cp", ["-a", from, to]);
  rmSync(join(to, "postmaster.pid"), { force: true });
  writeFileSync(join(from, "standby.signal"), "");
  await former.start();
  return await startPostgres({ dataDir });
}

test("lists that were read from a standby are read from the primary after the failover", async () => {
  const before = process.env.DATABASE_URL;
  const former = await ownPostgres();
  const dataDir = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-postgres-`));
  const own = await openShop({ env: { LEDGER_TIMEOUT_MS: "5000" } });
  await own.replicas[0]?.kill();
  const name = await startTcpProxy(own.world.url);
  let primary: Service | undefined;
  try {
    const { secret } = await own.customer({ dailyLimit: 1000 });
    await withReplica(
      () => own.start({ DATABASE_URL: name.url }),
      async ({ origin }) => {
        const chat = async () => (await own.chat(secret, { max_tokens: 10 }, { origin })).status;
        const listed = async () => (await own.call("/v1/usage", { secret, origin })).json?.data?.length;
        await until(async () => (await chat()) === 200);
        primary = await failOver(former, dataDir);
        // The name still leads to the former primary.
        await until(async () => (await listed()) === 1);
        name.moveTo(primary.url);
        await until(async () => (await chat()) === 200);
        await until(async () => (await listed()) === 2);
      },
    );
  } finally {
    await name.close();
    await primary?.stop();
    await own.provider.stop();
    await own.second.stop();
    await own.world.sql.end({ timeout: 5 });
    rmSync(own.world.spoolDir, { recursive: true, force: true });
    await former.remove();
    expect(process.env.DATABASE_URL).toBe(before);
    rmSync(dataDir, { recursive: true, force: true });
  }
});
