import type { Log } from "../platform/log.ts";
import { type Batcher, LedgerError } from "./batch.ts";
import type { Escrow } from "./escrow.ts";
import type { Hold, Unpaid, Usage } from "./ledger.ts";
import type { EndReason, Finish, FinishResult } from "./ledger_store.ts";
import { reportedUsage } from "./reported_usage.ts";
import type { Spool } from "./spool.ts";
import { triedText } from "./tried_routes.ts";

/** Ends of holds on their way to the database; to the spool if the database is away. */

const COUNT_MAX = 2_000_000_000;
const NANO_MAX = 9_000_000_000_000_000n;

export type Finisher = {
  /** Sends one end to the database, or writes it to the spool. Never fails because of the database. */
  finish(row: Finish): Promise<FinishResult | "spooled">;
  /** Sends all that the spool holds. Throws LedgerError if the database is still away. */
  replay(): Promise<number>;
  /** Rows that the database rejects and the disk does not take as set aside: they wait in the spool. */
  notSetAside(): number;
  /** Resolves when no `finish` is in progress. */
  idle(): Promise<void>;
};

type FinisherOptions = {
  batcher: Batcher;
  escrow: Escrow;
  spool: Spool;
  log: Log;
  nowMs: () => number;
  /** Called for each end that somebody else than its payer bears, also of the spool. */
  onUnpaid: (unpaid: Unpaid) => void;
  /** Called once for each `finish`, also if neither the database nor the spool took the row. */
  onEnded: (row: Finish, tookMs: number, isSpooled: boolean) => void;
};

export function createFinisher({ batcher, escrow, spool, log, nowMs, onUnpaid, onEnded }: FinisherOptions): Finisher {
  let inProgress = 0;
  const rejected = createRejected({ escrow, spool, log });
  const onIdle: (() => void)[] = [];

  async function send(row: Finish): Promise<FinishResult> {
    const result = await batcher.finish(row);
    const unpaid = unpaidOf(row, result);
    if (unpaid.nanoUsd > 0n || unpaid.tokens > 0) onUnpaid(unpaid);
    return result;
  }

  return {
    async finish(row) {
      const startMs = nowMs();
      let isSpooled = false;
      inProgress++;
      try {
        return await send(row);
      } catch (error) {
        if (error instanceof LedgerError && error.kind === "bad_row") await rejected.setAsideOrKeep(row);
        // By the time of the replay the response has been sent: what the balance does not cover is a loss, not a refusal.
        else await spool.add({ ...row, strict: false });
        isSpooled = true;
        return "spooled";
      } finally {
        onEnded(row, nowMs() - startMs, isSpooled);
        inProgress--;
        if (inProgress === 0) for (const resolve of onIdle.splice(0)) resolve();
      }
    },

    replay() {
      return spool.replay(async (row) => {
        try {
          await send(row);
          rejected.wasTaken(row);
        } catch (error) {
          if (!(error instanceof LedgerError) || error.kind !== "bad_row") throw error;
          await rejected.setAside(row);
        }
      });
    },

    notSetAside: rejected.waiting,

    idle: () => (inProgress === 0 ? Promise.resolve() : new Promise((resolve) => onIdle.push(resolve))),
  };
}

/** Rows that the database rejects, whatever is tried: an operator has to look at them. */
function createRejected({ escrow, spool, log }: Pick<FinisherOptions, "escrow" | "spool" | "log">) {
  /** The requests of the rows that are not set aside yet. They are in the spool, so its size bounds them. */
  const waiting = new Set<string>();

  /** What was drawn for it goes back. Throws if the disk does not take it; it must be tried again then. */
  async function setAside(row: Finish): Promise<void> {
    waiting.add(row.requestId);
    await spool.setAside(row);
    waiting.delete(row.requestId);
    escrow.ended(row, true);
    log.error({ requestId: row.requestId }, "the end of a request was set aside");
  }

  return {
    setAside,
    /** Sets a row aside, or, while the disk takes nothing, keeps it in the spool, whose replay sets it aside. */
    async setAsideOrKeep(row: Finish): Promise<void> {
      try {
        await setAside(row);
      } catch (err) {
        const { requestId } = row;
        log.error({ err, requestId }, "the end of a request cannot be set aside yet: it waits in the spool");
        await spool.add({ ...row, strict: false });
      }
    },
    /** The database has taken it after all. */
    wasTaken: ({ requestId }: Finish) => void waiting.delete(requestId),
    /** How many wait in the spool. */
    waiting: () => waiting.size,
  };
}

/** What its payer does not bear of a request. A settlement that comes after its release finds nothing to charge. Source: LOS-1. */
function unpaidOf(row: Finish, { outcome, shortfallNanoUsd, unpaidTokens }: FinishResult): Unpaid {
  const { accountId, packageId, settles, chargeNanoUsd, promptTokens, completionTokens } = row;
  if (outcome === "already") return { accountId, nanoUsd: 0n, tokens: 0 };
  if (outcome !== "gone" || !settles) return { accountId, nanoUsd: shortfallNanoUsd, tokens: unpaidTokens };
  return { accountId, nanoUsd: chargeNanoUsd, tokens: packageId > 0 ? promptTokens + completionTokens : 0 };
}

/** The end of a hold that is charged. Everything that comes from a provider is clamped here. */
export function settlementOf(
  hold: Hold,
  usage: Usage,
  { strict, reason }: { strict: boolean; reason: EndReason },
): Finish {
  const { chargeNanoUsd, costNanoUsd } = usage;
  const providerCost = hold.answeredBy?.providerCostNanoUsd ?? null;
  return {
    ...releaseOf(hold, reason),
    settles: true,
    promptTokens: clampCount(usage.promptTokens),
    cachedTokens: clampCount(usage.cachedTokens),
    completionTokens: clampCount(usage.completionTokens),
    chargeNanoUsd: clampNano(chargeNanoUsd),
    costNanoUsd: costNanoUsd === undefined ? null : clampNano(costNanoUsd),
    providerCostNanoUsd: providerCost === null ? null : clampNano(providerCost),
    estimated: usage.estimated,
    furtherCounts: usage.further === undefined ? null : JSON.stringify(usage.further),
    reportedUsage: reportedUsage(usage.rawUsage, usage.estimated ? undefined : usage),
    strict,
  };
}

/** The end of a hold that is not charged. */
export function releaseOf(hold: Hold, reason: EndReason): Finish {
  const { requestId, accountId, keyId, host, modelId, priceVersionId, leaseId, packageId, day, keyDay } = hold;
  const { markupBasisPoints, heldNanoUsd, heldTokens, capTokens, reservedAtUs, answeredBy } = hold;
  return {
    ...{ requestId, accountId, keyId, host, modelId, priceVersionId, leaseId, packageId, day, keyDay },
    ...{ markupBasisPoints, heldNanoUsd, heldTokens, capTokens, reservedAtUs },
    settles: false,
    reason,
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    chargeNanoUsd: 0n,
    costNanoUsd: null,
    strict: false,
    estimated: false,
    furtherCounts: null,
    reportedUsage: null,
    tried: triedText(hold),
    routeId: answeredBy?.routeId ?? null,
    firstMs: answeredBy?.firstMs ?? null,
    // Nobody can say what a provider charges for an answer that was not counted.
    providerCostNanoUsd: null,
  };
}

function clampNano(nanoUsd: bigint): bigint {
  return nanoUsd < 0n ? 0n : nanoUsd > NANO_MAX ? NANO_MAX : nanoUsd;
}

function clampCount(n: number): number {
  return Number.isFinite(n) ? Math.min(Math.max(Math.trunc(n), 0), COUNT_MAX) : 0;
}
