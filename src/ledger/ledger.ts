import type { LaneName } from "./batch.ts";
import type { EndReason, ReserveRequest } from "./ledger_store.ts";

/**
 * The ledger as other rooms see it: a hold for every admitted request, and exactly one end for every hold.
 * `open_ledger.ts` builds it. The SQL in drizzle/0002_ledger.sql makes every decision.
 */

/** A reserved request, until it is settled or released. */
export type Hold = {
  readonly requestId: string;
  readonly accountId: number;
  readonly mode: "package" | "payg";
  /** The reserved amount; 0 in package mode. */
  readonly heldNanoUsd: bigint;
  /** The output cap that the balance pays for; null in package mode. */
  readonly capTokens: number | null;
};

/** What a request used. The ledger truncates and clamps the counts to its range. */
export type Usage = {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** 0 for a package. */
  chargeNanoUsd: bigint;
  estimated: boolean;
  /** The provider's usage object, unchanged, if there was one. The receipt keeps its other counts (`reported_usage.ts`). */
  rawUsage?: unknown;
};

export type Settlement = { chargedNanoUsd: bigint; shortfallNanoUsd: bigint; spooled: boolean };

export type Ledger = {
  /** Reserves one request. Throws the Refusal of `ledger_reserve`, or service_unavailable. Source: PAY-9. */
  reserve(request: ReserveRequest): Promise<Hold>;
  /** Whether the hold's lease is still running. After it ends do not dispatch: the reaper may have released the hold. */
  alive(hold: Hold): boolean;
  /**
   * Ends a hold and charges it. If the database is away, the settlement is spooled: that is no error.
   * With `strict` (nothing was sent to the client yet) throws insufficient_balance if the provider used more than the
   * balance covers, and service_unavailable if the hold is gone because a retry of the same request replaced it.
   */
  settle(hold: Hold, usage: Usage, end?: { strict?: boolean; reason?: EndReason }): Promise<Settlement>;
  /** Ends a hold without a charge. */
  release(hold: Hold, reason: EndReason): Promise<{ spooled: boolean }>;
  /** Releases a hold of any replica if its lease has ended. Returns whether it did. */
  reap(requestId: string, accountId: number): Promise<boolean>;
  /** Settles what the spool holds. Returns how many. Throws LedgerError if the database is still away. */
  replaySpool(): Promise<number>;
  /** Renews the leases of this replica's open holds. */
  renewLeases(): Promise<void>;
  /** Whether new work may be admitted: false while the spool is full or its disk fails. */
  ready(): boolean;
  status(): { holds: number; queued: number; spoolEmpty: boolean };
  /** Rows waiting, by lane. */
  waiting(): Record<LaneName, number>;
  /** What the spool holds. */
  spooled(): { bytes: number; settlements: number };
  /** Settlements that the database rejected, kept in the spool's folder for an operator. */
  aside(): number;
  /** Rejects new work. Resolves when all work in progress is in the database or on disk. */
  close(): Promise<void>;
  /** Spools all settlements in progress without waiting for the database. For a process that must exit now. */
  abandon(): Promise<void>;
};
