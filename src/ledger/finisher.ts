import type { Log } from "../platform/log.ts";
import { type Batcher, LedgerError } from "./batch.ts";
import type { Usage } from "./ledger.ts";
import type { EndReason, Finish, FinishResult } from "./ledger_store.ts";
import { reportedUsage } from "./reported_usage.ts";
import type { Spool } from "./spool.ts";

/** Ends of holds on their way to the database; to the spool if the database is away. */

const COUNT_MAX = 2_000_000_000;
const NANO_MAX = 9_000_000_000_000_000n;

export type Finisher = {
  /** Sends one end to the database, or writes it to the spool. Never fails because of the database. */
  finish(row: Finish): Promise<FinishResult | "spooled">;
  /** Sends all that the spool holds. Throws LedgerError if the database is still away. */
  replay(): Promise<number>;
  /** Resolves when no `finish` is in progress. */
  idle(): Promise<void>;
};

export function createFinisher({ batcher, spool, log }: { batcher: Batcher; spool: Spool; log: Log }): Finisher {
  let inProgress = 0;
  const onIdle: (() => void)[] = [];

  async function send(row: Finish): Promise<FinishResult> {
    const { result } = await batcher.finish(row);
    // Happens after an older backup was restored: the usage of this request is lost.
    if (result.outcome === "unknown") log.error({ requestId: row.requestId }, "the ledger has no such hold");
    return result;
  }

  return {
    async finish(row) {
      inProgress++;
      try {
        return await send(row);
      } catch (error) {
        if (error instanceof LedgerError && error.kind === "bad_row") await spool.setAside(row);
        // By the time of the replay the response has been sent: what the balance does not cover is a loss, not a refusal.
        else await spool.add({ ...row, strict: false });
        return "spooled";
      } finally {
        inProgress--;
        if (inProgress === 0) for (const resolve of onIdle.splice(0)) resolve();
      }
    },

    replay() {
      return spool.replay(async (row) => {
        try {
          await send(row);
        } catch (error) {
          if (!(error instanceof LedgerError) || error.kind !== "bad_row") throw error;
          await spool.setAside(row);
        }
      });
    },

    idle: () => (inProgress === 0 ? Promise.resolve() : new Promise((resolve) => onIdle.push(resolve))),
  };
}

type Target = { requestId: string; accountId: number };

/** The end of a hold that is charged. Everything that comes from a provider is clamped here. */
export function settlementOf(
  hold: Target,
  usage: Usage,
  { strict, reason }: { strict: boolean; reason: EndReason },
): Finish {
  const { chargeNanoUsd } = usage;
  return {
    ...releaseOf(hold, reason),
    kind: "settle",
    promptTokens: clampCount(usage.promptTokens),
    cachedTokens: clampCount(usage.cachedTokens),
    completionTokens: clampCount(usage.completionTokens),
    chargeNanoUsd: chargeNanoUsd < 0n ? 0n : chargeNanoUsd > NANO_MAX ? NANO_MAX : chargeNanoUsd,
    estimated: usage.estimated,
    reportedUsage: reportedUsage(usage.rawUsage, usage.estimated ? undefined : usage),
    strict,
  };
}

/** The end of a hold that is not charged. */
export function releaseOf({ requestId, accountId }: Target, reason: EndReason): Finish {
  return {
    requestId,
    accountId,
    kind: "release",
    reason,
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    chargeNanoUsd: 0n,
    strict: false,
    estimated: false,
  };
}

function clampCount(n: number): number {
  return Number.isFinite(n) ? Math.min(Math.max(Math.trunc(n), 0), COUNT_MAX) : 0;
}
