import { join } from "node:path";
import type { Ledger } from "../src/ledger/ledger.ts";
import { openLedger } from "../src/ledger/open_ledger.ts";
import { newRequestId } from "../src/platform/crypto.ts";
import { openDb } from "../src/platform/db.ts";
import { createLog } from "../src/platform/log.ts";
import { answerQuestions } from "./helper.ts";

/** One replica's ledger in a process of its own, and the requests that ask it: `bun run bench:scale` starts two. */

export type Account = { accountId: number; keyId: number };

/**
 * A load. Closed: a fixed number of requests at a time, each after its last. Paced: a fixed number a second, whatever
 * happens.
 */
export type Load = {
  name: string;
  accounts: Account[];
  /** zipf: the n-th account has 1/n of the requests of the first. */
  pick: "uniform" | "zipf";
  inFlight?: number;
  perSecond?: number;
};
export type DriveQuestion = { loads: Load[]; warmMs: number; runMs: number };
/** ms of a reserve and a settle, one figure a pair that ended while it was measured. */
export type DriveReply = {
  /** All pairs, those of the warm-up too. */
  pairs: number;
  taken: Record<string, number[]>;
  seconds: number;
  cpuMs: number;
};

const PACE_MS = 5;
const HOST = "api.example.com";
const USAGE = { promptTokens: 100, cachedTokens: 0, completionTokens: 50, chargeNanoUsd: 0n, estimated: false };
const log = createLog("warn");

/** As a replica has it, but with room for every load. */
async function open(databaseUrl: string, spoolDir: string): Promise<Ledger> {
  return await openLedger({
    config: {
      databaseUrl,
      dbPrepare: true,
      ledgerLanes: Number(process.env.BENCH_LANES),
      ledgerQueueMax: 100_000,
      ledgerTimeoutMs: 30_000,
      leaseSeconds: 600,
      escrowUnitsMax: 256,
      escrowShare: 8,
      spoolDir: join(spoolDir, `scale-${process.pid}`),
      spoolBytesMax: 1024 * 1024 * 1024,
    },
    db: openDb({ databaseUrl, dbPrepare: true, dbPoolMax: 1 }),
    log,
    nowMs: () => performance.now(),
    wallMs: Date.now,
    startedMs: 0,
  });
}

const ledger = await open(process.env.BENCH_DATABASE_URL ?? "", process.env.BENCH_SPOOL_DIR ?? "");
answerQuestions<DriveQuestion, DriveReply>({}, drive);

async function drive({ loads, warmMs, runMs }: DriveQuestion): Promise<DriveReply> {
  let pairs = 0;
  let isMeasured = false;
  let isOver = false;
  const taken: DriveReply["taken"] = Object.fromEntries(loads.map(({ name }) => [name, []]));
  const pair = async (load: Load, account: Account) => {
    const beganMs = performance.now();
    await ledger.settle(await ledger.reserve(askOf(account)), USAGE);
    pairs++;
    if (isMeasured) taken[load.name]?.push(performance.now() - beganMs);
  };
  const running = loads.flatMap((load) => {
    const pick = picker(load);
    const closed = Array.from({ length: load.inFlight ?? 0 }, async () => {
      while (!isOver) await pair(load, pick());
    });
    return load.perSecond === undefined ? closed : [...closed, paced(load.perSecond, () => pair(load, pick()))];
  });

  async function paced(perSecond: number, next: () => Promise<void>): Promise<void> {
    const under = new Set<Promise<void>>();
    const beganMs = performance.now();
    for (let begun = 0; !isOver; await Bun.sleep(PACE_MS)) {
      for (; begun < ((performance.now() - beganMs) * perSecond) / 1000; begun++) {
        const one = next().finally(() => under.delete(one));
        under.add(one);
      }
    }
    await Promise.all(under);
  }

  const over = Promise.all(running);
  over.catch(() => {}); // Thrown below, once, and not for each request in flight.
  await Bun.sleep(warmMs);
  isMeasured = true;
  const cpuBefore = process.cpuUsage();
  const beganMs = performance.now();
  await Bun.sleep(runMs);
  const cpu = process.cpuUsage(cpuBefore);
  const seconds = (performance.now() - beganMs) / 1000;
  isMeasured = false;
  isOver = true;
  await over;
  return { pairs, taken, seconds, cpuMs: (cpu.user + cpu.system) / 1000 };
}

function askOf({ accountId, keyId }: Account) {
  return {
    ...{ requestId: newRequestId(), accountId, keyId, tenantId: 0, host: HOST, ownHost: true, modelId: "model-a" },
    ...{
      promptPico: 0n,
      outputPico: -1n,
      capMax: 1,
      capMin: 1,
      promptTokens: 100,
      choices: 0,
      sendsCap: false,
      priceVersionId: 1,
      markupBasisPoints: 0,
    },
    // As after a fresh look-up of the key.
    known: { mode: "package" as const, epoch: Number.MAX_SAFE_INTEGER, tenantEpoch: 0 },
  };
}

function picker({ accounts, pick }: Load): () => Account {
  const any = (place: number) => accounts[Math.min(place, accounts.length - 1)] as Account;
  if (pick === "uniform") return () => any(Math.floor(Math.random() * accounts.length));
  let sum = 0;
  const sums = accounts.map((_, i) => {
    sum += 1 / (i + 1);
    return sum;
  });
  return () => {
    const wanted = Math.random() * sum;
    let [from, to] = [0, sums.length - 1];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((sums[middle] as number) < wanted) from = middle + 1;
      else to = middle;
    }
    return any(from);
  };
}
