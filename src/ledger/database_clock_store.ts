import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";

/** Estimates the database's clock without a query each time. The replica's own wall clock may be minutes off. */

/** How long a reading is valid. After half of it, the next use starts a new reading. */
const READING_MS_MAX = 10_000;
const READ_TIMEOUT_MS = 2_000;

export type DatabaseClock = {
  /**
   * The earliest time, in ms of the monotonic clock, when the database's clock may reach `at` (ISO 8601). −Infinity: there is
   * no valid reading; one is started in the background.
   */
  earliestMs(at: string): number;
};

/** Reads the clock on first use. `nowMs` is the monotonic clock. */
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
      log.warn({ err }, "could not read the database's clock");
    } finally {
      underWay = false;
    }
  }

  return {
    earliestMs(at) {
      const ageMs = nowMs() - reading.askedMs;
      if (ageMs > READING_MS_MAX / 2 && !underWay) void read();
      if (ageMs > READING_MS_MAX) return Number.NEGATIVE_INFINITY;
      // The database read its clock after `askedMs`, and the value is truncated to whole ms.
      return reading.askedMs + Date.parse(at) - reading.unixMs - 1;
    },
  };
}
