import { rm } from "node:fs/promises";
import { join } from "node:path";
import { startServices } from "../scripts/services.ts";
import { openLedger } from "../src/ledger/ledger.ts";
import type { Ask, Finish } from "../src/ledger/ledger_store.ts";
import { runBatch } from "../src/ledger/ledger_store.ts";
import { newRequestId } from "../src/platform/crypto.ts";
import { connect } from "../src/platform/db.ts";
import { createLog } from "../src/platform/log.ts";
import { createWorld, type World } from "../test/world.ts";

/**
 * Reserve + settle pairs a second on ONE hot account: group commit against a transaction for each step, alternating in
 * one run, on the same database, with the same SQL. Prints the ratio, and counts that nothing was lost or doubled.
 */

const IN_FLIGHT = [64, 256, 1000] as const;
const ROUNDS = 3;
const ROUND_MS = 3_000;
/** Connections of the one-by-one contender: the hot account lets one of them commit at a time. */
const PEER_CONNECTIONS = 32;

type Pair = () => Promise<void>;

const services = await startServices();
process.env.DATABASE_URL = services.databaseUrl;
const world = await createWorld();
try {
  await run(world);
} finally {
  await world.close();
  await services.stop();
}

async function run(world: World): Promise<void> {
  const hot = await world.addCustomer();
  const key = await world.addKey(hot);
  await world.givePackage(hot, { dailyLimit: 1_000_000, totalLimit: 30_000_000 });
  const ask = (): Ask => ({
    requestId: newRequestId(),
    accountId: hot.accountId,
    tenantId: 0,
    keyId: key.keyId,
    host: "api.example.com",
    ownHost: true,
    modelId: "model-a",
    promptPico: 0n,
    outputPico: -1n,
    capMax: 1,
    capMin: 1,
    tokenBound: 100,
  });
  const usage = { promptTokens: 100, cachedTokens: 0, completionTokens: 50, chargeNanoUsd: 0n, estimated: false };

  const log = createLog("warn");
  const db = world.openDb();
  const ledger = await openLedger({
    config: {
      databaseUrl: world.url,
      dbPrepare: true,
      ledgerLanes: 4,
      ledgerQueueMax: 100_000,
      ledgerTimeoutMs: 30_000,
      leaseSeconds: 600,
      spoolDir: join(world.spoolDir, "bench"),
    },
    db,
    log,
    nowMs: () => performance.now(),
    startedMs: 0,
  });
  const grouped: Pair = async () => {
    await ledger.settle(await ledger.reserve(ask()), usage);
  };

  const peers = Array.from({ length: PEER_CONNECTIONS }, () =>
    connect({ databaseUrl: world.url, dbPrepare: true, fetchTypes: false }, 1),
  );
  let turn = 0;
  const oneByOne: Pair = async () => {
    const sql = peers[turn++ % peers.length];
    if (sql === undefined) return;
    const asked = ask();
    const step = (asks: Ask[], finishes: Finish[]) =>
      runBatch(sql, true, { asks, finishes, wait: true, retry: false, leaseSeconds: 600 });
    await step([asked], []);
    const settle: Finish = {
      ...usage,
      requestId: asked.requestId,
      accountId: hot.accountId,
      kind: "settle",
      reason: "complete",
      strict: false,
    };
    await step([], [settle]);
  };

  await drive(grouped, 64, 500);
  let pairs = 0;
  console.log("reserve + settle pairs a second on one hot account, commits durable");
  console.log("in flight   group commit   transaction per step   ratio (per round)");
  for (const inFlight of IN_FLIGHT) {
    const rates: { grouped: number; single: number }[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const a = await drive(grouped, inFlight, ROUND_MS);
      const b = await drive(oneByOne, Math.min(inFlight, 256), ROUND_MS);
      pairs += a.pairs + b.pairs;
      rates.push({ grouped: a.perSecond, single: b.perSecond });
    }
    const ratios = rates.map((r) => r.grouped / r.single).sort((x, y) => x - y);
    const middle = rates[Math.floor(rates.length / 2)];
    console.log(
      `${String(inFlight).padStart(9)}   ${String(Math.round(median(rates.map((r) => r.grouped)))).padStart(12)}   ` +
        `${String(Math.round(median(rates.map((r) => r.single)))).padStart(20)}   ${median(ratios).toFixed(1)} (${ratios.map((r) => r.toFixed(1)).join(", ")})`,
    );
    if (middle === undefined) throw new Error("no round was run");
  }

  const [counted] = await world.sql`
    select sum(units_used)::int as used, sum(units_held)::int as held, (select count(*)::int from receipts where outcome = 'settled') as receipts
    from packages`;
  const broken = await world.unbalanced();
  console.log(
    `pairs driven after warm-up: ${pairs}; units used: ${counted?.used}, held: ${counted?.held}, usage records: ${counted?.receipts}; books that do not balance: ${broken.length}`,
  );
  await Promise.all(peers.map((sql) => sql.end()));
  await ledger.close();
  await db.close();
  await rm(join(world.spoolDir, "bench"), { recursive: true, force: true });
  if (counted?.used !== counted?.receipts || counted?.held !== 0 || broken.length > 0) {
    console.log(broken.join("\n"));
    process.exitCode = 1;
  }
}

async function drive(pair: Pair, inFlight: number, forMs: number): Promise<{ pairs: number; perSecond: number }> {
  const startMs = performance.now();
  let pairs = 0;
  await Promise.all(
    Array.from({ length: inFlight }, async () => {
      while (performance.now() - startMs < forMs) {
        await pair();
        pairs++;
      }
    }),
  );
  return { pairs, perSecond: (pairs / (performance.now() - startMs)) * 1000 };
}

function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
