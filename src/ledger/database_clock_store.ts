import { toIso } from "../accounts/checks.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/runtime.ts";

/** The database's clock as a replica knows it without asking each time. Its own wall clock may be minutes off. */

/** A reading is used for this long, and a new one is taken, once somebody asks, after half of it. */
const READING_MS_MAX = 10_000;
const READ_TIMEOUT_MS = 2_000;

export type DatabaseClock = {
  /**
   * The earliest moment, in ms of the monotonic clock, at which the database's clock may come to `at` (ISO 8601).
   * −Infinity: the database has not been asked lately; it is now, and nobody waits for it.
   */
  earliestMs(at: string): number;
};

/** Reads nothing until it is asked. `nowMs` is the monotonic clock. */
export function openDatabaseClock({ db, log, nowMs }: { db: Db; log: Log; nowMs: () => number }): DatabaseClock {
  let reading = { unixMs: 0, askedMs: Number.NEGATIVE_INFINITY };
  let underWay = false;

  async function read(): Promise<void> {
    underWay = true;
    const askedMs = nowMs();
    try {
      const [row] = await within(READ_TIMEOUT_MS, db.sql`select ledger_now()::text as now`);
      reading = { unixMs: Date.parse(toIso(String(row?.now))), askedMs };
    } catch (err) {
      log.warn({ err }, "the database's clock was not read");
    } finally {
      underWay = false;
    }
  }

  return {
    earliestMs(at) {
      const ageMs = nowMs() - reading.askedMs;
      if (ageMs > READING_MS_MAX / 2 && !underWay) void read();
      if (ageMs > READING_MS_MAX) return Number.NEGATIVE_INFINITY;
      // It was read after it was asked for, and cut to whole ms: it is at most this much later there.
      return reading.askedMs + Date.parse(at) - reading.unixMs - 1;
    },
  };
}
