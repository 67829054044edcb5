import { join } from "node:path";
import type { Ledger, Usage } from "../../src/ledger/ledger.ts";
import type { ReserveRequest } from "../../src/ledger/ledger_store.ts";
import { openLedger } from "../../src/ledger/open_ledger.ts";
import type { ReserveLatency } from "../../src/ledger/reserve_latency.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import type { Db } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import type { Person, TestKey, World } from "../world.ts";

/** One ledger as a replica has it: its own lanes and spool, on the world's database unless told otherwise. */
export type OpenLedger = { ledger: Ledger; db: Db; close(): Promise<void> };

let ledgers = 0;

export async function openWorldLedger(
  world: World,
  options: {
    leaseSeconds?: number;
    timeoutMs?: number;
    spool?: string;
    databaseUrl?: string;
    nowMs?: () => number;
    latency?: ReserveLatency;
  } = {},
): Promise<OpenLedger> {
  const db = world.openDb();
  const ledger = await openLedger({
    config: {
      databaseUrl: options.databaseUrl ?? world.url,
      dbPrepare: true,
      ledgerLanes: 4,
      ledgerQueueMax: 20_000,
      ledgerTimeoutMs: options.timeoutMs ?? 10_000,
      leaseSeconds: options.leaseSeconds ?? 60,
      spoolDir: join(world.spoolDir, options.spool ?? `ledger${++ledgers}`),
      spoolBytesMax: 1024 * 1024,
    },
    db,
    log: createLog("silent"),
    nowMs: options.nowMs ?? (() => performance.now()),
    startedMs: Date.now(),
    ...(options.latency && { latency: options.latency }),
  });
  return {
    ledger,
    db,
    async close() {
      await ledger.close();
      await db.close();
    },
  };
}

/** An ask of a priceless model for one unit, unless told otherwise. */
export function requestFor(person: Person, key: TestKey, over: Partial<ReserveRequest> = {}): ReserveRequest {
  return {
    requestId: newRequestId(),
    accountId: person.accountId,
    tenantId: 0,
    keyId: key.keyId,
    host: "api.example.com",
    ownHost: true,
    modelId: "model-a",
    promptPico: 0n,
    outputPico: -1n,
    capMax: 1000,
    capMin: 1000,
    tokenBound: 100,
    priceVersionId: null,
    ...over,
  };
}

export const usageOf = (over: Partial<Usage> = {}): Usage => ({
  promptTokens: 10,
  cachedTokens: 0,
  completionTokens: 20,
  chargeNanoUsd: 0n,
  estimated: false,
  ...over,
});

/** The code of the refusal a promise ends in; "granted" if it does not. */
export async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return "granted";
  } catch (error) {
    if (error instanceof Error && "code" in error) return String(error.code);
    throw error;
  }
}

/** How often each word stands in a list. */
export function tally(words: string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}
