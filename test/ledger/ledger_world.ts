import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { Refusal } from "../../src/errors.ts";
import { accountsOfEndedLeases, reapAccount, takeLease } from "../../src/ledger/leases_store.ts";
import type { Hold, Ledger, Usage } from "../../src/ledger/ledger.ts";
import {
  type BatchOutput,
  type Draw,
  type Finish,
  type FinishResult,
  type ReserveRequest,
  type ReserveResult,
  runBatch,
} from "../../src/ledger/ledger_store.ts";
import { openLedger } from "../../src/ledger/open_ledger.ts";
import type { ReserveLatency } from "../../src/ledger/reserve_latency.ts";
import type { Bus } from "../../src/platform/bus.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import type { DatabaseClock } from "../../src/platform/database_clock_store.ts";
import type { Db, Sql } from "../../src/platform/db.ts";
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
    wallMs?: () => number;
    latency?: ReserveLatency;
    escrowUnitsMax?: number;
    escrowShare?: number;
    bus?: Pick<Bus, "publish" | "subscribe" | "onGap">;
    /** With a bus and a clock, refusals are remembered. */
    clock?: Pick<DatabaseClock, "earliestMs">;
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
      // Nothing renews the lease while a test runs, and a slow machine may take minutes.
      leaseSeconds: options.leaseSeconds ?? 3600,
      escrowUnitsMax: options.escrowUnitsMax ?? 256,
      escrowShare: options.escrowShare ?? 8,
      spoolDir: join(world.spoolDir, options.spool ?? `ledger${++ledgers}`),
      spoolBytesMax: 1024 * 1024,
    },
    db,
    log: createLog("silent"),
    nowMs: options.nowMs ?? (() => performance.now()),
    wallMs: options.wallMs ?? world.unixMs,
    startedMs: Date.now(),
    ...(options.latency && { latency: options.latency }),
    ...(options.bus && { bus: options.bus }),
    ...(options.clock && { clock: options.clock }),
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

/** Ends a lease immediately, as if its replica had died, and reaps the rows of ended leases. Returns the number of rows that held something. */
export async function reapLease({ sql }: World, leaseId: string): Promise<number> {
  await sql`update leases set ended = true where id = ${leaseId}`;
  let rows = 0;
  for (let left = await accountsOfEndedLeases(sql, 100_000); left.length > 0; ) {
    const locked: number[] = [];
    for (const accountId of left) {
      const reaped = await reapAccount(sql, accountId);
      if (reaped === undefined) locked.push(accountId);
      rows += reaped ?? 0;
    }
    left = locked;
  }
  return rows;
}

/** The caller knows of every change, so such a request may be granted from units and money drawn ahead. */
export const knownAs = (mode: "package" | "payg"): ReserveRequest["known"] => ({
  mode,
  epoch: Number.MAX_SAFE_INTEGER,
  tenantEpoch: Number.MAX_SAFE_INTEGER,
});

/** Makes the replicas return their idle units and money. */
export async function returnIdle(world: World, bus: Pick<Bus, "publish">): Promise<void> {
  for (const deadlineMs = performance.now() + 10_000; ; await Bun.sleep(5)) {
    const rows = await world.sql`
      select distinct account_id::text as ref from escrows where idle_units > 0 or idle_nano_usd > 0`;
    if (rows.length === 0) return;
    if (performance.now() > deadlineMs) throw new Error("idle units were not returned");
    await bus.publish(rows.map(({ ref }) => ({ kind: "escrow", ref: String(ref) })));
  }
}

/** The amounts drawn in all escrows, and the idle part of them. */
export async function drawn({ sql }: World, accountId: number | null = null) {
  const [row] = await sql`
    select coalesce(sum(units) filter (where key_id = 0), 0)::int as units, coalesce(sum(idle_units), 0)::int as idle_units,
      coalesce(sum(nano_usd) filter (where key_id = 0), 0)::int as nano_usd, coalesce(sum(idle_nano_usd), 0)::int as idle_nano_usd
    from escrows where account_id = coalesce(${accountId}, account_id)`;
  return { ...row } as { units: number; idle_units: number; nano_usd: number; idle_nano_usd: number };
}

type Rows = { reserves?: readonly ReserveRequest[]; finishes?: readonly Finish[]; sql?: Sql; wait?: boolean };

/** A replica without memory: it sends batches, draws nothing ahead, and returns units and money only by the ends of its requests. */
export type SqlReplica = {
  readonly leaseId: string;
  /** The draws of a batch with these requests, each with its number. */
  draws(reserves: readonly ReserveRequest[]): Draw[];
  batch(rows: Rows & { draws?: readonly Draw[] }): Promise<BatchOutput>;
  reserve(reserves: readonly ReserveRequest[], rows?: Rows): Promise<ReserveResult[]>;
  finish(finishes: readonly Finish[], rows?: Rows): Promise<FinishResult[]>;
  /** The hold of a granted request. */
  holdOf(request: ReserveRequest, result: ReserveResult): Hold;
};

export async function openSqlReplica(world: World, unixMs: () => number = world.unixMs): Promise<SqlReplica> {
  const leaseId = randomUUID();
  let number = 0;
  await takeLease(world.sql, leaseId, 3600);
  const replica: SqlReplica = {
    leaseId,
    draws(reserves) {
      const tenants = new Map(reserves.map(({ accountId, tenantId }) => [accountId, tenantId]));
      return [...tenants].map(([accountId, tenantId]) => ({
        ...{ accountId, tenantId, number: ++number, units: 0, nanoUsd: 0n, knownEpoch: 0, returns: false, keeps: [] },
      }));
    },
    batch: ({ reserves = [], finishes = [], sql = world.sql, wait = true, draws = replica.draws(reserves) }) =>
      runBatch(sql, true, {
        ...{ finishes, draws, reserves, leaseId },
        idles: finishes.map(() => ({ drawNumber: 0, units: 0, nanoUsd: 0n })),
        ...{ share: 8, nowUnixMs: unixMs(), wait },
      }),
    reserve: async (reserves, rows) => (await replica.batch({ ...rows, reserves })).reserved,
    finish: async (finishes, rows) => (await replica.batch({ ...rows, finishes })).finished,
    holdOf(request, { packageId, day, keyDay, heldNanoUsd, heldTokens, capTokens }) {
      const { requestId, accountId, keyId, host, modelId, priceVersionId, markupBasisPoints } = request;
      return {
        ...{
          requestId,
          accountId,
          keyId,
          host,
          modelId,
          priceVersionId,
          markupBasisPoints,
          leaseId,
          packageId: packageId ?? 0,
          day,
          keyDay,
        },
        ...{
          heldNanoUsd,
          heldTokens,
          capTokens,
          reservedAtUs: unixMs() * 1000,
          mode: packageId === null ? "payg" : "package",
        },
      };
    },
  };
  return replica;
}

/** A request for one unit, of a model without a price, unless told otherwise. */
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
    promptTokens: 100,
    choices: 0,
    sendsCap: false,
    priceVersionId: null,
    markupBasisPoints: 0,
    known: null,
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

/** The code of the refusal that a promise rejects with; "granted" if it resolves. */
export async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return "granted";
  } catch (error) {
    if (error instanceof Error && "code" in error) return String(error.code);
    throw error;
  }
}

/** The refusal of a reservation. Throws if it was granted, or failed otherwise. */
export async function refusalOf(promise: Promise<unknown>): Promise<Refusal> {
  const error = await promise.then(
    () => undefined,
    (thrown) => thrown,
  );
  if (!(error instanceof Refusal)) throw new Error(`expected a refusal, got ${error}`);
  return error;
}

/** Stops the ledger's clock; receipts need their month. */
export async function stopClock(world: World, at: string): Promise<void> {
  await world.setClock(at);
  await world.sql`select make_receipt_months(0)`;
}

/** The number of times that each word occurs in a list. */
export function tally(words: string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}
