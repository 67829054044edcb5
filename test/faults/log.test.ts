import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../../src/demo/free_port.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { PATIENT, TEST_SECRET_KEY } from "../replica.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { behave, callsOf, closeAtRest } from "./fault_shop.ts";

/** The disk of the log is full, or nobody reads it: the replica serves, and ends when it is told to. */
/** Their lines fill a pipe. */
const REQUESTS = 300;
const REQUESTS_AT_ONCE = 20;
/** Short, so that a lost hold returns soon. A replica that is to serve every request has the usual one: a busy machine stops it for seconds. */
const SHORT_LEASE = { LEASE_SECONDS: "4" };
/** Signals within a second are one. */
const LATER_MS = 1_200;
let folder: string;
let shop: Shop;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-log-`));
  // It takes back what dead replicas held, as soon as their leases have ended.
  shop = await openShop({ env: SHORT_LEASE });
});
afterAll(() => closeAtRest(shop, () => rmSync(folder, { recursive: true })));

type Logging = { origin: string; process: ChildProcess; spoolDir: string };

/** Starts a replica that logs to this file, and waits until it answers. */
async function loggingTo(
  path: string,
  databaseUrl = shop.world.url,
  env: Record<string, string> = {},
): Promise<Logging> {
  const port = await freePort();
  const spoolDir = join(folder, `spool${port}`);
  const main = new URL("../../src/main.ts", import.meta.url).pathname;
  const child = spawn("sh", ["-c", 'exec "$1" "$2" > "$0"', path, process.execPath, main], {
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      PORT: String(port),
      LISTEN_HOST: "127.0.0.1",
      SECRET_KEY: TEST_SECRET_KEY,
      DATABASE_URL: databaseUrl,
      REDIS_URL: process.env.REDIS_URL ?? "",
      SPOOL_DIR: spoolDir,
      ...PATIENT,
      LEDGER_TIMEOUT_MS: "10000",
      BASE_URL: "http://api.tollgate.test/v1",
      PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port}`,
      RATE_PER_MINUTE: "100000",
      ...env,
    },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const origin = `http://127.0.0.1:${port}`;
  await until(() => isHealthy(origin)).catch((error) => {
    child.kill("SIGKILL");
    throw error;
  });
  return { origin, process: child, spoolDir };
}

async function isHealthy(origin: string): Promise<boolean> {
  const answer = await fetch(`${origin}/healthz`, { signal: AbortSignal.timeout(5_000) }).catch(() => undefined);
  return answer?.status === 200;
}

/** Sends requests of a new customer; how often each status was answered. */
async function ask(origin: string): Promise<Record<number, number>> {
  const { secret } = await shop.customer({ dailyLimit: REQUESTS });
  const statuses: Record<number, number> = {};
  for (let sent = 0; sent < REQUESTS; sent += REQUESTS_AT_ONCE) {
    const answers = Array.from({ length: REQUESTS_AT_ONCE }, () => shop.chat(secret, { max_tokens: 10 }, { origin }));
    for (const { status } of await Promise.all(answers)) statuses[status] = (statuses[status] ?? 0) + 1;
  }
  return statuses;
}

/** Sends SIGTERM; its exit code, or undefined if it does not end. */
async function endOf(child: ChildProcess): Promise<number | null | undefined> {
  child.kill("SIGTERM");
  await until(() => child.exitCode !== null || child.signalCode !== null);
  return child.exitCode;
}

test("the disk of the log is full: every request is served, and SIGTERM ends the replica with exit code 0", async () => {
  const replica = await loggingTo("/dev/full");
  try {
    expect(await ask(replica.origin)).toEqual({ 200: REQUESTS });
    expect(await endOf(replica.process)).toBe(0);
  } finally {
    replica.process.kill("SIGKILL");
  }
});

test("nobody reads the log any more: every request is served, and SIGTERM ends the replica with exit code 0", async () => {
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  const reader = spawn("sh", ["-c", 'exec < "$0"; head -c 1 > /dev/null; exec sleep 60', pipe]);
  const replica = await loggingTo(pipe);
  try {
    expect(await ask(replica.origin)).toEqual({ 200: REQUESTS });
    expect(await endOf(replica.process)).toBe(0);
  } finally {
    replica.process.kill("SIGKILL");
    reader.kill("SIGKILL");
  }
});

test("the disk of the log is full, and a settlement cannot be written anywhere: a second SIGTERM ends the replica with exit code 1", async () => {
  const database = await startTcpProxy(shop.world.url);
  const replica = await loggingTo("/dev/full", database.url, SHORT_LEASE);
  try {
    const { secret } = await shop.customer();
    const mark = behave(shop, { delayMs: 1_500 });
    const cut = shop.chat(secret, { max_tokens: 10, ...mark }, { origin: replica.origin }).catch(() => "cut");
    await until(() => callsOf(shop, mark) === 1);
    database.cut();
    rmSync(replica.spoolDir, { recursive: true });
    writeFileSync(replica.spoolDir, "a file, not a folder");
    for (const { id, generation } of shop.provider.calls()) if (generation) await shop.provider.waitForEnd(id);
    replica.process.kill("SIGTERM");
    await sleep(LATER_MS);
    expect(await endOf(replica.process)).toBe(1);
    expect(await cut).toBe("cut");
  } finally {
    replica.process.kill("SIGKILL");
    await database.close();
  }
});
