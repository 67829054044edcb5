import type { Config } from "../config.ts";
import { Refusal } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import type { LaneName } from "../platform/metrics.ts";
import { type Answer, LedgerError, openBatcher } from "./batch.ts";
import {
  type Ask,
  type EndReason,
  type Finish,
  type FinishResult,
  type ReserveResult,
  renewLeases,
} from "./ledger_store.ts";
import { reportedUsage } from "./reported_usage.ts";
import { openSpool } from "./spool.ts";

/**
 * The ledger: a hold for every request that is let through, and exactly one end for every hold. What decides is the SQL
 * in drizzle/0001_ledger.sql; this file gives it words.
 */

const COUNT_MAX = 2_000_000_000;
const NANO_MAX = 9_000_000_000_000_000n;
const RENEWALS_A_STATEMENT = 1000;
/** The reasons of the ledger's refusals, by the codes that `ledger_reserve` gives. */
const REFUSALS = new Set([
  "invalid_api_key",
  "host_not_allowed",
  "model_not_found",
  "model_not_in_package",
  "package_required",
  "package_expired",
  "package_quota_exceeded",
  "daily_quota_exceeded",
  "carryover_quota_exceeded",
  "key_request_limit_exceeded",
  "key_spend_limit_exceeded",
  "insufficient_balance",
  "payg_pricing_unavailable",
] as const);
/** What the ledger has a word of its own for, and clients have not. */
const TOKENS_EXCEEDED = "package_tokens_exceeded";
const SENTENCES = {
  tokensExceeded: "The package's token allowance is used up.",
  overSpendLimit: "This request could cost more than what is left of this key's own spending limit for today.",
};
type RefusalCode = typeof REFUSALS extends Set<infer Code> ? Code : never;

/** A granted request, until it is settled or released. */
export type Hold = {
  readonly requestId: string;
  readonly accountId: number;
  readonly mode: "package" | "payg";
  readonly heldNanoUsd: bigint;
  /** The output cap that the balance pays for; null in package mode. */
  readonly capTokens: number | null;
};

/** What an answer used. Counts are made whole, not negative and in range; money is 0 for a package. */
export type Usage = {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  chargeNanoUsd: bigint;
  estimated: boolean;
  /** The provider's usage object as it came, if there was one: what else it counts is kept with the receipt. */
  rawUsage?: unknown;
};

export type Settlement = { chargedNanoUsd: bigint; shortfallNanoUsd: bigint; spooled: boolean };

export type Ledger = {
  /** Holds one request. Throws the entitlement's refusal, or service_unavailable. Source: contract › Limits. */
  reserve(ask: Ask): Promise<Hold>;
  /** Whether the hold's lease still runs. Past it nothing may be dispatched: the reaper may have given it back. */
  alive(hold: Hold): boolean;
  /**
   * Ends a hold whose answer was, or is about to be, delivered. Never fails for want of a database: then it is spooled.
   * With `strict` (nothing sent yet) throws insufficient_balance if the provider overran what the balance covers, and
   * service_unavailable if the hold was given back for good, because a retry of the same request was served instead.
   */
  settle(hold: Hold, usage: Usage, end?: { strict?: boolean; reason?: EndReason }): Promise<Settlement>;
  /** Ends a hold that nobody pays for. */
  release(hold: Hold, reason: EndReason): Promise<{ spooled: boolean }>;
  /** Releases a hold of any replica if its lease has ended. */
  reap(requestId: string, accountId: number): Promise<boolean>;
  /** Replays the spool; throws LedgerError when the database is still away. */
  replaySpool(): Promise<number>;
  /** Renews the leases of the holds this replica is at work on. */
  renewLeases(): Promise<void>;
  /** Whether new work may be taken: there is room in the spool. */
  ready(): boolean;
  status(): { holds: number; queued: number; spoolEmpty: boolean };
  /** Rows that wait for a lane, by the lanes they wait for. */
  waiting(): Record<LaneName, number>;
  /** What waits in the spool. */
  spooled(): { bytes: number; settlements: number };
  /** Settlements that the ledger would not take, set aside in the spool's folder. */
  aside(): number;
  /** Refuses what comes. Resolves when what is under way has ended, in the database or on disk. */
  close(): Promise<void>;
  /** Spools at once whatever is being settled, without waiting for the database. For a process that has to end now. */
  abandon(): Promise<void>;
};

type LedgerOptions = {
  config: Pick<
    Config,
    | "databaseUrl"
    | "dbPrepare"
    | "ledgerLanes"
    | "ledgerQueueMax"
    | "ledgerTimeoutMs"
    | "leaseSeconds"
    | "spoolDir"
    | "spoolBytesMax"
  >;
  db: Db;
  log: Log;
  /** The monotonic clock, in ms. */
  nowMs: () => number;
  /** Unix time in ms when the process started. */
  startedMs: number;
  /** Told of each reserve that the queue or the time limit turned away. */
  onShed?: (reason: "ledger_queue" | "ledger_timeout") => void;
  /** Told of each batch. */
  onBatch?: (lane: LaneName, rows: number) => void;
};

type LiveHold = Hold & { leaseUntilMs: number; ended: boolean };

/** Opens the ledger. Its spool may hold settlements of a former life: call `replaySpool` before taking work. */
export async function openLedger({
  config,
  db,
  log,
  nowMs,
  startedMs,
  onShed,
  onBatch,
}: LedgerOptions): Promise<Ledger> {
  const leaseMs = config.leaseSeconds * 1000;
  const spool = await openSpool({ directory: config.spoolDir, bytesMax: config.spoolBytesMax, startedMs, log });
  const batcher = openBatcher({
    databaseUrl: config.databaseUrl,
    dbPrepare: config.dbPrepare,
    lanes: config.ledgerLanes,
    queueMax: config.ledgerQueueMax,
    timeoutMs: config.ledgerTimeoutMs,
    leaseSeconds: config.leaseSeconds,
    log,
    nowMs,
    ...(onBatch && { onBatch }),
    onUnwanted: (ask) => void giveBack(ask),
  });
  const live = new Map<string, LiveHold>();
  /** Settlements and releases under way, and who waits for the last of them. */
  let endings = 0;
  const onEnded: (() => void)[] = [];

  async function reserve(ask: Ask): Promise<Hold> {
    let answer: Answer<ReserveResult>;
    try {
      answer = await batcher.reserve(ask);
    } catch (error) {
      // Its grant may have been committed, the answer lost. If the answer still comes, `onUnwanted` gives the grant back.
      if (error instanceof LedgerError && error.sent) void giveBack(ask);
      if (error instanceof LedgerError && error.kind === "full") onShed?.("ledger_queue");
      if (error instanceof LedgerError && error.kind === "unreachable") onShed?.("ledger_timeout");
      throw asRefusal(error);
    }
    const { result, firstSentMs } = answer;
    if (result.code !== null || result.mode === null) throw toRefusal(result, log);
    const hold: LiveHold = {
      requestId: ask.requestId,
      accountId: ask.accountId,
      mode: result.mode,
      heldNanoUsd: result.heldNanoUsd,
      capTokens: result.capTokens,
      leaseUntilMs: firstSentMs + leaseMs,
      ended: false,
    };
    live.set(hold.requestId, hold);
    return hold;
  }

  async function giveBack({ requestId, accountId }: Ask): Promise<void> {
    try {
      await batcher.finish(finishOf({ requestId, accountId }, "release", "reserve_timed_out"));
    } catch (error) {
      // The reaper will: the hold, if there is one, has a lease.
      log.warn({ err: error, requestId }, "an unanswered reserve waits for its lease to end");
    }
  }

  /** Takes the hold out of this replica's hands. A second end is a bug of the caller, and must not pass unseen. */
  function end(hold: Hold): void {
    const known = live.get(hold.requestId);
    if (known === undefined || known.ended) throw new Error(`hold ${hold.requestId} was ended twice`);
    known.ended = true;
  }

  /** As after a restore of an older copy: what it used is lost, and must not pass unseen. */
  function noteUnknown({ requestId }: Finish, { outcome }: FinishResult): void {
    if (outcome === "unknown") log.error({ requestId }, "the ledger knows no such hold");
  }

  async function finish(row: Finish): Promise<FinishResult | "spooled"> {
    endings++;
    try {
      const { result } = await batcher.finish(row);
      noteUnknown(row, result);
      return result;
    } catch (error) {
      if (error instanceof LedgerError && error.kind === "bad_row") {
        await spool.setAside(row);
        return "spooled";
      }
      // By the time it is replayed its answer has been delivered: what the balance does not cover is a loss, no refusal.
      await spool.add({ ...row, strict: false });
      return "spooled";
    } finally {
      live.delete(row.requestId);
      endings--;
      if (endings === 0) for (const tell of onEnded.splice(0)) tell();
    }
  }

  /** Resolves when no settlement or release is under way. */
  function allEnded(): Promise<void> {
    return endings === 0 ? Promise.resolve() : new Promise((resolve) => onEnded.push(resolve));
  }

  return {
    reserve,
    alive: (hold) => nowMs() < (live.get(hold.requestId)?.leaseUntilMs ?? 0),

    async settle(hold, usage, { strict = false, reason = "complete" } = {}) {
      end(hold);
      const row: Finish = { ...finishOf(hold, "settle", reason), ...clamp(usage), strict };
      const result = await finish(row);
      if (result === "spooled") return { chargedNanoUsd: 0n, shortfallNanoUsd: 0n, spooled: true };
      // Its lease ended, and a retry with the same Idempotency-Key took its place: the answer is that one's to give.
      if (strict && result.outcome === "gone") throw new Refusal("service_unavailable", { retryAfterSeconds: 1 });
      if (result.outcome === "refused") {
        throw new Refusal("insufficient_balance", {
          message: "The answer cost more than the balance covers. Nothing was charged.",
          limit: Number(row.chargeNanoUsd),
        });
      }
      return { chargedNanoUsd: result.chargedNanoUsd, shortfallNanoUsd: result.shortfallNanoUsd, spooled: false };
    },

    async release(hold, reason) {
      end(hold);
      return { spooled: (await finish(finishOf(hold, "release", reason))) === "spooled" };
    },

    async reap(requestId, accountId) {
      const { result } = await batcher.finish(finishOf({ requestId, accountId }, "reap", "lease_ended"));
      return result.outcome === "released";
    },

    replaySpool() {
      return spool.replay(async (row) => {
        try {
          noteUnknown(row, (await batcher.finish(row)).result);
        } catch (error) {
          if (!(error instanceof LedgerError) || error.kind !== "bad_row") throw error;
          await spool.setAside(row);
        }
      });
    },

    async renewLeases() {
      const dueMs = nowMs() + (leaseMs * 2) / 3;
      const due = [...live.values()].filter((hold) => !hold.ended && hold.leaseUntilMs < dueMs);
      for (let i = 0; i < due.length; i += RENEWALS_A_STATEMENT) {
        const part = due.slice(i, i + RENEWALS_A_STATEMENT);
        const sentMs = nowMs();
        const renewed = await renewLeases(
          db.sql,
          part.map((hold) => hold.requestId),
          config.leaseSeconds,
        );
        for (const hold of part) if (renewed.has(hold.requestId)) hold.leaseUntilMs = sentMs + leaseMs;
      }
    },

    ready: () => spool.ready(),
    status: () => ({ holds: live.size, queued: batcher.depth(), spoolEmpty: spool.empty() }),
    waiting: () => batcher.waiting(),
    spooled: () => spool.waiting(),
    aside: () => spool.aside(),
    async close() {
      await batcher.close();
      // What the closed lanes turned away is on its way to the disk.
      await allEnded();
    },
    async abandon() {
      batcher.abandon();
      await allEnded();
    },
  };
}

function finishOf(
  { requestId, accountId }: { requestId: string; accountId: number },
  kind: Finish["kind"],
  reason: EndReason,
): Finish {
  return {
    requestId,
    accountId,
    kind,
    reason,
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    chargeNanoUsd: 0n,
    strict: false,
    estimated: false,
  };
}

/** Nothing from a provider reaches SQL unclamped. */
function clamp(
  usage: Usage,
): Pick<
  Finish,
  "promptTokens" | "cachedTokens" | "completionTokens" | "chargeNanoUsd" | "estimated" | "reportedUsage"
> {
  const count = (n: number) => (Number.isFinite(n) ? Math.min(Math.max(Math.trunc(n), 0), COUNT_MAX) : 0);
  const { chargeNanoUsd } = usage;
  return {
    promptTokens: count(usage.promptTokens),
    cachedTokens: count(usage.cachedTokens),
    completionTokens: count(usage.completionTokens),
    chargeNanoUsd: chargeNanoUsd < 0n ? 0n : chargeNanoUsd > NANO_MAX ? NANO_MAX : chargeNanoUsd,
    estimated: usage.estimated,
    reportedUsage: reportedUsage(usage.rawUsage, usage.estimated ? undefined : usage),
  };
}

function toRefusal(result: ReserveResult, log: Log): Refusal {
  const code = (result.code === TOKENS_EXCEEDED ? "package_quota_exceeded" : result.code) as RefusalCode;
  if (!REFUSALS.has(code)) {
    log.error(
      { code: result.code },
      result.code === "clock_skew"
        ? "this machine's clock is more than an hour off the database's: every request is refused until it is set"
        : "the ledger would not hold a request",
    );
    return new Refusal("service_unavailable");
  }
  const exhausted = result.remaining !== null;
  const overSpendLimit = code === "key_spend_limit_exceeded" && result.remaining !== 0;
  return new Refusal(code, {
    ...(result.code === TOKENS_EXCEEDED && { message: SENTENCES.tokensExceeded }),
    ...(overSpendLimit && { message: SENTENCES.overSpendLimit }),
    ...(result.limit !== null && { limit: result.limit }),
    ...(result.used !== null && { used: result.used }),
    ...(result.remaining !== null && { remaining: result.remaining }),
    ...(exhausted && code !== "insufficient_balance" && { resetsAt: result.resetsAt }),
    ...(code.startsWith("model_") && { param: "model" }),
  });
}

function asRefusal(error: unknown): Refusal {
  if (error instanceof LedgerError && error.kind === "bad_row") return new Refusal("internal_error");
  return new Refusal("service_unavailable", { retryAfterSeconds: 1 });
}
