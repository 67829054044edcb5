import type { Config } from "../config.ts";
import { RETRY_AFTER_SECONDS_MAX, Refusal, sentence } from "../errors.ts";
import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import { every, type Job } from "../platform/every.ts";
import type { Log } from "../platform/log.ts";
import type { LossKind, Metrics } from "../platform/metrics.ts";
import type { Owner } from "../platform/share_limit.ts";
import { decimalUsd } from "../platform/usd.ts";
import { addLosses, type Loss, type LossBound, readStops, type Stop } from "./losses_store.ts";

/**
 * What the operator bears for requests that nobody pays, bounded in each hour by account and by tenant. Who has reached a bound is
 * stopped until the hour ends: 429.
 *
 * Losses are rare. A replica adds its own to the database, which sums those of all replicas, and reads who is stopped: after each write,
 * and every two seconds. A request only looks at what was read. What is lost between a write and the next look, and with what is in
 * flight by then, exceeds the bound. Source: LOS-1, LOS-2, LOS-3.
 */

/** Accounts with losses that wait to be written. */
const WAITING_MAX = 20_000;
/** From a loss to the write; further losses join it. */
const WRITE_AFTER_MS = 20;
/** How often it is read who is stopped: other replicas write too. */
const READ_EVERY_MS = 2_000;
const MS_A_MINUTE = 60_000;
const NANO_PER_USD = 1_000_000_000n;

type Kind = {
  /** For those who are stopped: what their requests did, and what to do instead. Does not reveal the reseller to its customers. */
  refused: string;
  /** An amount, for people. */
  shown: (amount: bigint) => string;
};
/** The kinds of losses. Their amounts are whole numbers of a unit. A kind has its bounds in `lossBoundsOf`. */
export const LOSS_KINDS = {
  /** Time in which providers worked for requests that reached a time limit of ours, in ms. */
  provider_time: {
    refused:
      "Too many requests of {holder, select, account {this account} other {this service}} ended unpaid at a time limit within an hour. Ask for shorter answers, and try again later.",
    shown: (ms) => `${Math.ceil(Number(ms) / MS_A_MINUTE)} min`,
  },
  /** What answers cost beyond what could be charged, in nano-USD. */
  shortfall: {
    refused:
      "Too many requests of {holder, select, account {this account} other {this service}} cost more than could be charged within an hour. Top up the balance, or ask for shorter answers with max_tokens, and try again later.",
    shown: (nanoUsd) => `$${decimalUsd(nanoUsd)}`,
  },
  /** What answers used beyond what their package had, in tokens. */
  tokens: {
    refused:
      "Too many requests of {holder, select, account {this account} other {this service}} used more tokens than their package had left within an hour. Get another package, or ask for shorter answers with max_tokens, and try again later.",
    shown: (tokens) => `${tokens} tokens`,
  },
} as const satisfies Record<LossKind, Kind>;

/** The most that is borne of each kind in an hour, for an account and for a tenant. */
export type LossBounds = Readonly<Record<LossKind, { account: bigint; tenant: bigint }>>;

type BoundSettings = Pick<
  Config,
  | "unpaidAccountMinutes"
  | "unpaidTenantMinutes"
  | "unpaidAccountUsd"
  | "unpaidTenantUsd"
  | "unpaidAccountTokens"
  | "unpaidTenantTokens"
>;

export function lossBoundsOf(settings: BoundSettings): LossBounds {
  const { unpaidAccountMinutes, unpaidTenantMinutes, unpaidAccountUsd, unpaidTenantUsd } = settings;
  const { unpaidAccountTokens, unpaidTenantTokens } = settings;
  const of = (unit: bigint, account: number, tenant: number) => ({
    account: BigInt(account) * unit,
    tenant: BigInt(tenant) * unit,
  });
  return {
    provider_time: of(BigInt(MS_A_MINUTE), unpaidAccountMinutes, unpaidTenantMinutes),
    shortfall: of(NANO_PER_USD, unpaidAccountUsd, unpaidTenantUsd),
    tokens: of(1n, unpaidAccountTokens, unpaidTenantTokens),
  };
}

/** Whose loss it is. `tenantId`: undefined: the account's own. */
type LossOwner = { accountId: number; tenantId?: number };

export type Losses = {
  /** The operator bears so much of a request of this account. Never throws. */
  note(owner: LossOwner, kind: LossKind, amount: bigint): void;
  /** Throws too_many_requests if the account or its tenant is stopped. */
  check(owner: Owner): void;
  /** How many accounts and tenants are stopped. */
  stopped(): Record<Stop["holder"], number>;
  /** Writes what waits, and stops. */
  stop(): Promise<void>;
};

type LossesOptions = {
  db: Db;
  log: Log;
  /** The monotonic clock, in ms. */
  nowMs: () => number;
  bounds: LossBounds;
  metrics: Pick<Metrics, "lost" | "shed">;
  readEveryMs?: number;
};

/** Opens the losses of a replica, and begins to read who is stopped. */
export function openLosses(options: LossesOptions): Losses {
  return new SharedLosses(options);
}

type Stopped = { kind: LossKind; untilMs: number };

class SharedLosses implements Losses {
  readonly #options: LossesOptions;
  readonly #bounds: readonly LossBound[];
  readonly #buffer: BufferedWrites<string, Loss>;
  readonly #job: Job;
  /** By holder, as in `account 7`. */
  #stops = new Map<string, Stopped>();
  #writing: ReturnType<typeof setTimeout> | undefined;
  #reading: Promise<void> | undefined;

  constructor(options: LossesOptions) {
    const { db, log, bounds, readEveryMs = READ_EVERY_MS } = options;
    this.#options = options;
    this.#bounds = Object.entries(bounds).map(([kind, most]) => ({ kind, ...most }));
    this.#buffer = createBufferedWrites<string, Loss>({
      name: "losses",
      max: WAITING_MAX,
      merge: (older, newer) => ({ ...newer, amount: older.amount + newer.amount, times: older.times + newer.times }),
      write: async (losses) => {
        await addLosses({ db }, losses, this.#bounds);
        // A read in progress may have begun before the write.
        await this.#reading?.catch(() => {});
        // The job reports what fails. Without the read they are stopped a little later.
        await this.#read().catch(() => {});
      },
      log,
    });
    const failure = "who is stopped for losses could not be read";
    this.#job = every({ name: "losses", ms: readEveryMs, run: () => this.#read(), log, failure, isNow: true });
  }

  note({ accountId, tenantId }: LossOwner, kind: LossKind, amount: bigint): void {
    if (amount <= 0n) return;
    this.#options.metrics.lost(kind, Number(amount));
    this.#buffer.note(`${accountId} ${kind}`, { accountId, tenantId: tenantId ?? null, kind, amount, times: 1 });
    this.#writing ??= setTimeout(() => {
      this.#writing = undefined;
      void this.#buffer.flush();
    }, WRITE_AFTER_MS);
  }

  check({ accountId, tenantId }: Owner): void {
    if (this.#stops.size === 0) return;
    this.#checkHolder("account", accountId);
    this.#checkHolder("tenant", tenantId);
  }

  /** An arrow function, because the metrics call it without `this`. */
  readonly stopped = () => {
    const counts = { account: 0, tenant: 0 };
    for (const id of this.#stops.keys()) counts[id.startsWith("account") ? "account" : "tenant"]++;
    return counts;
  };

  async stop(): Promise<void> {
    const ended = this.#job.close();
    clearTimeout(this.#writing);
    await Promise.all([ended, this.#buffer.stop()]);
  }

  #checkHolder(holder: Stop["holder"], id: number): void {
    const stopped = this.#stops.get(`${holder} ${id}`);
    if (stopped === undefined) return;
    const leftMs = stopped.untilMs - this.#options.nowMs();
    if (leftMs <= 0) return;
    this.#options.metrics.shed(`losses_per_${holder}`);
    throw tooMany(holder, stopped.kind, leftMs);
  }

  /** Callers at the same time share one attempt. Without an answer, known stops go on to the end of their hours. */
  #read(): Promise<void> {
    this.#reading ??= this.#readOnce().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readOnce(): Promise<void> {
    const { db, log, nowMs } = this.#options;
    const found = await readStops({ db }, this.#bounds);
    const now = nowMs();
    const before = this.#stops;
    this.#stops = new Map();
    for (const { holder, holderId, kind, leftMs } of found) {
      if (!isLossKind(kind)) continue;
      const id = `${holder} ${holderId}`;
      this.#stops.set(id, { kind, untilMs: now + leftMs });
      if (!before.has(id)) log.warn({ [`${holder}Id`]: holderId, kind, leftMs: Math.round(leftMs) }, STOPPED);
    }
  }
}

const STOPPED = "the losses of an hour have reached their bound: requests are refused until the hour ends";

function tooMany(holder: Stop["holder"], kind: LossKind, leftMs: number): Refusal {
  return new Refusal("too_many_requests", {
    message: sentence(LOSS_KINDS[kind].refused, { holder }),
    retryAfterSeconds: Math.max(1, Math.min(RETRY_AFTER_SECONDS_MAX, Math.ceil(leftMs / 1000))),
  });
}

/** A later release may know other kinds. */
export function isLossKind(kind: string): kind is LossKind {
  return Object.hasOwn(LOSS_KINDS, kind);
}
