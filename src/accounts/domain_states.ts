import type { DnsReport } from "./dns_check.ts";

/**
 * The states of a domain: pending → verifying → active or failed; active ↔ suspended; removed. This file decides the state after a
 * check, and when the next check is. Pure. Source: DOM-2, DOM-4.
 */

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** While verifying: every minute for ten minutes, then ever slower, for 72 hours in total. */
const VERIFYING_PACE = [
  { checks: 10, everySeconds: MINUTE },
  { checks: 10, everySeconds: 5 * MINUTE },
  { checks: 20, everySeconds: 15 * MINUTE },
  { checks: 66, everySeconds: HOUR },
];
const VERIFYING_SLOWEST_SECONDS = HOUR;
const ACTIVE_SECONDS = DAY;
/** An active domain with wrong records is checked again after this. The third failure in a row, a day after the first, suspends it. */
const WRONG_SECONDS = DAY / 2;
const WRONG_MAX = 3;
/** An active domain whose check had no clear result. */
const UNKNOWN_SECONDS = HOUR;
const SUSPENDED_SECONDS = HOUR;

/** Removed domains are kept: a reseller that adds the name after its owner must prove it. */
export type HostStatus = "pending" | "verifying" | "active" | "failed" | "suspended" | "removed";

export type DomainState = {
  status: HostStatus;
  /** Consecutive counted checks that did not succeed. */
  failures: number;
  /** An admin has set the status, active or suspended: no automatic checks. */
  byHand: boolean;
};
/** `nextSeconds`: until the next check; null: no automatic check; "kept": as scheduled before. */
export type Step = { status: HostStatus; failures: number; nextSeconds: number | null | "kept" };

/**
 * The state of a verifying, active or suspended domain after a check. A check that was not due may activate a domain, but its failure
 * does not count. An "unknown" verdict never suspends.
 */
export function afterCheck(state: DomainState, verdict: DnsReport["verdict"], isDue: boolean): Step {
  const { status, failures, byHand } = state;
  const same: Step = { status, failures, nextSeconds: "kept" };
  if (byHand && status === "suspended") return same;
  // Also ends "by hand": from here on the checks can be relied on.
  if (verdict === "ok") return { status: "active", failures: 0, nextSeconds: ACTIVE_SECONDS };
  if (byHand || !isDue) return same;
  if (status === "verifying") return whileVerifying(failures + 1, verdict);
  if (status === "suspended") return { ...same, nextSeconds: SUSPENDED_SECONDS };
  if (verdict === "unknown") return { ...same, nextSeconds: UNKNOWN_SECONDS };
  const isOver = failures + 1 >= WRONG_MAX;
  return {
    status: isOver ? "suspended" : status,
    failures: failures + 1,
    nextSeconds: isOver ? SUSPENDED_SECONDS : WRONG_SECONDS,
  };
}

/** An "unknown" verdict slows the checks down too, but only a wrong one ends them. */
function whileVerifying(failures: number, verdict: "wrong" | "unknown"): Step {
  let checks = 0;
  for (const pace of VERIFYING_PACE) {
    checks += pace.checks;
    if (failures <= checks) return { status: "verifying", failures, nextSeconds: pace.everySeconds };
  }
  if (verdict === "wrong") return { status: "failed", failures, nextSeconds: null };
  return { status: "verifying", failures, nextSeconds: VERIFYING_SLOWEST_SECONDS };
}
