import type { DnsReport } from "./dns_check.ts";

/**
 * A domain's way: pending → verifying → active, or failed; from active to suspended and back; removed. Here is what a check
 * makes of it, and when the next one comes. Pure. Source: rulings › Domains.
 */

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** While it is verified: every minute for ten minutes, then ever slower, for 72 hours together. Checks, and seconds between. */
const VERIFYING_PACE = [
  { checks: 10, everySeconds: MINUTE },
  { checks: 10, everySeconds: 5 * MINUTE },
  { checks: 20, everySeconds: 15 * MINUTE },
  { checks: 66, everySeconds: HOUR },
];
const VERIFYING_SLOWEST_SECONDS = HOUR;
const ACTIVE_SECONDS = DAY;
/** A domain that answered wrong is asked again this much later; at the third time in a row it goes off, a day after the first. */
const WRONG_SECONDS = DAY / 2;
const WRONG_MAX = 3;
/** An active domain of which nothing is known. */
const UNKNOWN_SECONDS = HOUR;
const SUSPENDED_SECONDS = HOUR;

/** Removed ones are kept: whoever brings the name after its owner must prove it. */
export type HostStatus = "pending" | "verifying" | "active" | "failed" | "suspended" | "removed";

export type DomainState = {
  status: HostStatus;
  /** Checks in a row that counted and did not succeed. */
  failures: number;
  /** Set by an admin, active or suspended: no check comes by itself. */
  byHand: boolean;
};
/** `nextSeconds`: until the next check; null: none comes by itself; "kept": as it was planned before. */
export type Step = { status: HostStatus; failures: number; nextSeconds: number | null | "kept" };

/**
 * What a check makes of a domain that is verifying, active or suspended. One that was not due only shows how things are:
 * it may switch a domain on, and brings nothing nearer to being off. What is not known switches nothing off.
 */
export function afterCheck(state: DomainState, verdict: DnsReport["verdict"], isDue: boolean): Step {
  const { status, failures, byHand } = state;
  const same: Step = { status, failures, nextSeconds: "kept" };
  if (byHand && status === "suspended") return same;
  // Also ends "by hand": the checks can vouch for it from here on.
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

/** Answers that did not come slow the checks down too, but only a wrong one ends them. */
function whileVerifying(failures: number, verdict: "wrong" | "unknown"): Step {
  let checks = 0;
  for (const pace of VERIFYING_PACE) {
    checks += pace.checks;
    if (failures <= checks) return { status: "verifying", failures, nextSeconds: pace.everySeconds };
  }
  if (verdict === "wrong") return { status: "failed", failures, nextSeconds: null };
  return { status: "verifying", failures, nextSeconds: VERIFYING_SLOWEST_SECONDS };
}
