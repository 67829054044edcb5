import { setInterval } from "node:timers";

/**
 * Time limits that hardly ever come, as every request has some: a timer of its own for each would cost more than all that it
 * guards. Those of one length end in the order they began in, so that one timer looks after all of them.
 */

/** A limit may come later than it should by this share of it, and by no more than a second. */
const LATE_SHARE = 0.05;
const LATE_MS_MAX = 1_000;

type Limits = { open: Set<Limit>; timer: NodeJS.Timeout };
type Limit = { dueMs: number; end: () => void };

const byLength = new Map<number, Limits>();

/**
 * Calls `end`, which throws nothing, when `ms` have passed, or a little later, unless what it returns is called before. Each
 * length that is in use costs a timer: `ms` comes from the configuration or a constant.
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
  // None is left: the next one begins anew.
  clearInterval(byLength.get(ms)?.timer);
  byLength.delete(ms);
}
