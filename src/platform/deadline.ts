import { setInterval } from "node:timers";

/**
 * Cheap timers for time limits that are rarely reached. Every request has several, and a timer for each would cost too much. Limits of
 * one length end in the order they began, so one timer serves all of them.
 */

/** A limit may be late by this fraction of its length, and by at most LATE_MS_MAX. */
const LATE_SHARE = 0.05;
const LATE_MS_MAX = 1_000;

type Limits = { open: Set<Limit>; timer: NodeJS.Timeout };
type Limit = { dueMs: number; end: () => void };

const byLength = new Map<number, Limits>();

/**
 * Calls `end`, which must not throw, after `ms` or a little later, unless the returned function is called first. Each different
 * length costs a timer, so `ms` must come from the configuration or a constant.
 */
export function deadline(ms: number, end: () => void): () => void {
  const limits = byLength.get(ms) ?? begin(ms);
  const limit = { dueMs: performance.now() + ms, end };
  limits.open.add(limit);
  return () => limits.open.delete(limit);
}

function begin(ms: number): Limits {
  const open = new Set<Limit>();
  const timer = setInterval(() => look(ms, open), Math.max(1, Math.min(ms * LATE_SHARE, LATE_MS_MAX)));
  const limits = { open, timer };
  byLength.set(ms, limits);
  return limits;
}

function look(ms: number, open: Set<Limit>): void {
  const nowMs = performance.now();
  for (const limit of open) {
    if (limit.dueMs > nowMs) return;
    open.delete(limit);
    limit.end();
  }
  // None is left: the next limit starts a new timer.
  clearInterval(byLength.get(ms)?.timer);
  byLength.delete(ms);
}
