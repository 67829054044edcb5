import type { AnswerHolder } from "./answered_by.ts";
import type { Drawn, EndReason, ReserveRequest } from "./ledger_store.ts";
import type { FurtherCounts } from "./price.ts";
import type { TriedHolder } from "./tried_routes.ts";

/**
 * The ledger as other rooms see it: a hold for every admitted request, and exactly one end for every hold.
 * `open_ledger.ts` builds it. The SQL in drizzle/0002_ledger.sql decides what a replica may hold.
 */

/** A reserved request, until it is settled or released: what was drawn for it, and what its receipt says of it. */
export type Hold = Drawn & { readonly mode: "package" | "payg" } & TriedHolder & AnswerHolder;

/** What a request used. The ledger truncates and clamps the counts to its range. */
export type Usage = {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** Counts that may have prices of their own, and an image's price key; undefined: none. */
  further?: FurtherCounts | undefined;
  /** 0 for a package. */
  chargeNanoUsd: bigint;
  /** The operator's price, if the charge has a markup on it; undefined: it has none. */
  costNanoUsd?: bigint | undefined;
  estimated: boolean;
  /** The provider's usage object, unchanged, if there was one. The receipt keeps its other counts (`reported_usage.ts`). */
  rawUsage?: unknown;
};

/**
 * The queues of batch.ts: `free` for accounts that nobody has locked, `waiting` for accounts that are locked, `held` for
 * accounts that stay locked. The values are a metrics label.
 */
export type LaneName = "free" | "waiting" | "held";

/** What an answer cost or used beyond what its payer bears: the operator does. */
export type Unpaid = { accountId: number; nanoUsd: bigint; tokens: number };

export type Settlement = { chargedNanoUsd: bigint; shortfallNanoUsd: bigint; spooled: boolean };

export type Ledger = {
  /** Reserves one request from what this replica has drawn ahead; undefined: only `reserve` can decide. Source: ESC-1. */
  grant(request: ReserveRequest): Hold | undefined;
  /** Reserves one request. Throws the Refusal of `ledger_draw`, or service_unavailable. Source: PAY-9. */
  reserve(request: ReserveRequest): Promise<Hold>;
  /** Whether the lease under which it was drawn still runs. After it ends do not dispatch: the reaper may have returned it. */
  alive(hold: Hold): boolean;
  /**
   * Ends a hold and charges it. If the database is away, the settlement is spooled: that is no error.
   * With `strict` (nothing was sent to the client yet) throws insufficient_balance if the provider used more than the
   * balance covers, and service_unavailable if the hold is gone because a retry of the same request replaced it.
   */
  settle(hold: Hold, usage: Usage, end?: { strict?: boolean; reason?: EndReason }): Promise<Settlement>;
  /** Whether no end of the hold is on its way. */
  isOpen(hold: Hold): boolean;
  /** Ends a hold without a charge. */
  release(hold: Hold, reason: EndReason): Promise<{ spooled: boolean }>;
  /** `listener` is called once for what a request leaves unpaid, when the database has its end. */
  onUnpaid(listener: (unpaid: Unpaid) => void): void;
  /** Settles what the spool holds. Returns how many. Throws LedgerError if the database is still away. */
  replaySpool(): Promise<number>;
  /** The id of the lease under which this process draws. It changes when the lease has ended. */
  leaseId(): string;
  /** Renews the lease; takes a new one if it has ended. Throws what Postgres throws. */
  renewLease(): Promise<void>;
  /** Gives back rows of this lease in the database that this process does not know. */
  reconcile(): Promise<void>;
  /** Whether new work may be admitted: false while the spool is full or its disk fails. */
  ready(): boolean;
  status(): { holds: number; oldestHoldMs: number | null; queued: number; spoolEmpty: boolean };
  /** Rows waiting, by lane. */
  waiting(): Record<LaneName, number>;
  /** What the spool holds. */
  spooled(): { bytes: number; settlements: number };
  /** Settlements that the database rejected, kept in the spool's folder for an operator, or about to be: an operator has to look at them. */
  aside(): number;
  /** Rejects new work, and gives back what is idle. Resolves when all work in progress is in the database or on disk. */
  close(): Promise<void>;
  /** Spools all settlements in progress without waiting for the database. For a process that must exit now. */
  abandon(): Promise<void>;
};
