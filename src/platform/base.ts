import type { Config } from "../config.ts";
import type { Bus } from "./bus.ts";
import type { Clock } from "./clock.ts";
import type { DatabaseClock } from "./database_clock_store.ts";
import type { Db } from "./db.ts";
import type { Failpoint } from "./failpoints.ts";
import type { IdempotencyClaims } from "./idempotency_claims.ts";
import type { Log } from "./log.ts";
import type { LongReads } from "./long_reads.ts";
import type { Metrics } from "./metrics.ts";
import type { RateLimiter } from "./rate_limit.ts";
import type { Tracing } from "./tracing.ts";

/**
 * What the parts of every room are built from. A room says in its `parts.ts` which parts a replica has of it; `replica.ts` opens the rooms
 * one after the other. What has to be closed is added to `closing` when it is opened, and is closed in the reverse order.
 */
export type Base = {
  config: Config;
  log: Log;
  metrics: Metrics;
  /** Undefined if no trace collector is configured. */
  tracing: Tracing | undefined;
  db: Db;
  /** For reads that may take long, instead of `db`. */
  longReads: LongReads;
  bus: Bus;
  clock: Clock & Pick<DatabaseClock, "earliestMs">;
  limiter: RateLimiter;
  /** Idempotency claims: requests with the same Idempotency-Key are served once. */
  claims: IdempotencyClaims;
  failpoint: Failpoint;
  /** The monotonic clock. */
  nowMs: () => number;
  closing: DisposableStack;
};

/** How a part of `closing` is closed. */
export const close = (part: { close(): void }): void => part.close();
