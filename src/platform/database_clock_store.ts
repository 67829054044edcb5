import type { Db } from "./db.ts";
import type { Log } from "./log.ts";
import { within } from "./time_limit.ts";

/**
 * The database's clock, as a replica estimates it without a query each time: a reading, and the time that has passed since by the
 * monotonic clock. The machine's own clock may be minutes off. A statement that decides by the time reads the clock itself
 * (`ledger_now()`); this is for decisions without a statement. Source: REL-2.
 */

/** How long a reading is exact enough to say when a moment comes. After half of it, the next use starts a new reading. */
const READING_MS_MAX = 10_000;
const READ_TIMEOUT_MS = 5_000;
/** The machine was suspended, or its clock was set, if its two clocks differ by this much more than at the reading. */
const JUMP_MS = 1_000;

export type DatabaseClock = {
  /** Reads the database's clock. Rejects if it cannot be read within `msMax` (READ_TIMEOUT_MS). */
  read(msMax?: number): Promise<void>;
  /**
   * Unix time by the database's clock, ms: behind it by at most the time that a reading took, and never ahead of it. Throws before the first
   * `read`.
   */
  unixMs(): number;
  /**
   * The earliest time, in ms of the monotonic clock, when the database's clock may reach `at` (ISO 8601). −Infinity: there is
   * no exact reading; one is started in the background.
   */
  earliestMs(at: string): number;
};

type Options = {
  db: Db;
  log: Log;
  /** The monotonic clock. */
  nowMs: () => number;
  /** The machine's wall clock. Nothing follows from it but a new reading. */
  wallMs: () => number;
};

type Reading = {
  unixMs: number;
  askedMs: number;
  /** How far the wall clock was ahead of the monotonic one. */
  wallAheadMs: number;
  /** The least by which the database's clock is ahead of the monotonic one. */
  aheadMs: number;
};

/** Reads the clock anew when it is used and the reading has become old. */
export function openDatabaseClock({ db, log, nowMs, wallMs }: Options): DatabaseClock {
  let reading: Reading | undefined;
  let underWay: Promise<void> | undefined;

  async function ask(msMax = READ_TIMEOUT_MS): Promise<void> {
    const askedMs = nowMs();
    const query = db.sql`select floor(extract(epoch from ledger_now()) * 1000)::float8 as unix_ms`;
    const [row] = await within(msMax, query);
    const answeredMs = nowMs();
    const unixMs = Number(row?.unix_ms);
    // It read its clock between the two moments. A slow answer makes no former, better estimate worse.
    const [least, most] = [unixMs - answeredMs, unixMs + 1 - askedMs];
    const aheadMs = Math.min(Math.max(reading?.aheadMs ?? least, least), most);
    reading = { unixMs, askedMs, wallAheadMs: wallMs() - answeredMs, aheadMs };
  }

  function read(msMax?: number): Promise<void> {
    underWay ??= ask(msMax).finally(() => (underWay = undefined));
    return underWay;
  }

  function readIfOld(now: number): void {
    const isExact =
      reading !== undefined &&
      now - reading.askedMs <= READING_MS_MAX / 2 &&
      Math.abs(wallMs() - now - reading.wallAheadMs) < JUMP_MS;
    if (isExact || underWay !== undefined) return;
    read().catch((err: unknown) => log.warn({ err }, "could not read the database's clock"));
  }

  return {
    read,
    unixMs() {
      const now = nowMs();
      readIfOld(now);
      if (reading === undefined) throw new Error("the database's clock was not read yet");
      return Math.floor(now + reading.aheadMs);
    },
    earliestMs(at) {
      const now = nowMs();
      readIfOld(now);
      if (reading === undefined || now - reading.askedMs > READING_MS_MAX) return Number.NEGATIVE_INFINITY;
      // The database read its clock after `askedMs`, and the value is truncated to whole ms.
      return reading.askedMs + Date.parse(at) - reading.unixMs - 1;
    },
  };
}
