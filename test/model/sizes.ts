import type { Check } from "./checker.ts";

/**
 * The sizes of the escrow model that are checked, and its faults. Each size looks at one part of the protocol, so that all its states can be
 * visited; together they would be too many. The constants are explained in escrow.pml.
 */

const LIMIT = ["N=2", "NREQ=3"];
const LOST = ["N=2", "NREQ=2", "LOST=1", "RENEW", "RIDE"];
/** An end that was given up runs after a draw that brought idle units. */
const LATE_END = ["N=3", "NREQ=2", "LOST=1"];
const PAUSE = ["N=2", "NREQ=2", "SPARE=1", "T=2"];
const KEY_PAUSE = ["N=1", "NREQ=2", "CEILING=1", "SPARE=1", "T=2"];
const SCAN = ["N=2", "NREQ=1", "SPARE=1", "T=2", "SPLIT"];
/** Leases outlast the clock: only what was revoked matters. */
const KEY = ["REVOKE=KEY", "N=2", "NREQ=2", "L=3"];
const PACKAGE = ["REVOKE=PACKAGE", "N=2", "NREQ=2", "L=3", "RENEW"];
const TENANT = ["REVOKE=TENANT", "N=2", "NREQ=2", "L=3", "SPLIT"];
const DAY = ["N=2", "NREQ=2", "D=1", "T=2", "V=2", "L=3", "RENEW"];

/** No error may be found in these. */
export const SIZES: Check[] = [
  { name: "the limit is reached: recalls, refusals, two replicas", defines: LIMIT, states: 54_000 },
  { name: "three replicas", defines: ["R=3", "N=2", "NREQ=3"], states: 155_000 },
  { name: "an answer is lost, its statement may run late", defines: LOST, states: 84_000 },
  { name: "an end is given up and runs after a later draw", defines: LATE_END, states: 110_000 },
  { name: "the reaper, while a draw that read the lease before is under way", defines: SCAN },
  { name: "a package is revoked", defines: [...PACKAGE, "V=2"], states: 42_000 },
  { name: "a tenant is suspended, and draws do not take its lock", defines: [...TENANT, "T=1"], states: 142_000 },
  {
    name: "money: a charge is less or more than its hold",
    defines: ["MONEY", "N=5", "NREQ=2", "AHEAD=3"],
    states: 9_000,
  },
  { name: "a day ends", defines: DAY, states: 48_000 },
  { name: "a day ends, with carryover", defines: [...DAY, "CARRYOVER"], states: 64_000 },
  { name: "a replica drains, an answer lost", defines: ["N=2", "NREQ=2", "LOST=1", "DRAIN"], states: 114_000 },
];

/** Sizes that take more than five seconds: they run with `--all`, and after a change of the model. */
export const LARGE_SIZES: Check[] = [
  { name: "a replica sleeps past its lease, and takes a new one", defines: PAUSE, states: 262_000 },
  {
    name: "a replica dies and starts again; settlements wait on its disk",
    defines: ["N=1", "NREQ=2", "SPARE=1", "T=2", "CRASHES=1", "SPOOL"],
    states: 334_000,
  },
  { name: "a key is revoked", defines: KEY, states: 427_000 },
  {
    name: "a key with a daily limit: two rows drawn together, an answer lost",
    defines: ["N=2", "NREQ=2", "CEILING=1", "LOST=1"],
    states: 229_000,
  },
  {
    name: "an end is given up and runs after a later draw; another replica needs what is idle",
    defines: ["N=3", "NREQ=3", "LOST=1", "AHEAD=1", "T=0"],
    states: 483_000,
  },
  { name: "a longer sleep", defines: ["N=2", "NREQ=2", "SPARE=1", "T=3"], states: 769_000 },
  { name: "a key is revoked, with renewals", defines: [...KEY, "T=2", "RENEW"], states: 1_477_000 },
  { name: "a package is revoked, with renewals", defines: [...PACKAGE, "T=2"], states: 284_000 },
  { name: "a tenant is suspended", defines: [...TENANT, "T=2"], states: 432_000 },
  { name: "a key with a daily limit, three requests", defines: ["N=2", "NREQ=3", "CEILING=1"], states: 380_000 },
  {
    name: "a replica dies and starts again, an answer lost",
    defines: ["N=1", "NREQ=2", "SPARE=1", "T=2", "CRASHES=1", "SPOOL", "LOST=1"],
    states: 4_329_000,
  },
  {
    name: "a replica dies and starts again, a longer time",
    defines: ["N=1", "NREQ=2", "SPARE=1", "T=3", "CRASHES=1", "SPOOL"],
    states: 904_000,
  },
  { name: "money, an answer lost", defines: ["MONEY", "N=5", "NREQ=2", "AHEAD=3", "LOST=1", "RIDE"], states: 199_000 },
  {
    name: "money, a replica sleeps past its lease",
    defines: ["MONEY", "N=5", "NREQ=2", "AHEAD=3", "SPARE=1", "T=2"],
    states: 686_000,
  },
  {
    name: "a key with a daily limit, a replica sleeps past its lease",
    defines: KEY_PAUSE,
    states: 139_000,
  },
  {
    name: "a day ends, with carryover, three requests",
    defines: ["N=2", "NREQ=3", "D=1", "T=1", "V=2", "L=3", "CARRYOVER"],
    states: 249_000,
  },
];

/** The fault is defined beside the size, as `F_…`. An error must be found. */
export const FAULTS: Check[] = [
  fault("what was drawn is valid for ever", "F_VALID_FOREVER", [...PACKAGE, "T=1"]),
  fault("validity starts at the answer", "F_VALID_FROM_ANSWER", [...TENANT, "T=1"]),
  fault("a late answer counts, after the lease", "F_ANSWER_UNBOUNDED", PAUSE),
  fault("a late answer counts, after a suspension", "F_ANSWER_UNBOUNDED", [...TENANT, "T=1"]),
  fault("validity is longer than the lease", "F_NO_LEASE_BOUND", [...PAUSE, "V=3"]),
  fault("an answer under the previous lease counts", "F_OTHER_LEASE", PAUSE),
  fault("a cached key may be older than the escrow", "F_KEY_EPOCH", KEY),
  fault("a draw acknowledges a revocation for what it keeps", "F_KEPT_EPOCH", [...PACKAGE, "V=2"]),
  fault("an answer renews units of a package that has ended", "F_RENEW_ANYWAY", [...PACKAGE, "T=2"]),
  fault("a revocation does not wait for idle units", "F_REVOKE_AT_ONCE", KEY),
  fault("draws are not numbered", "F_NUMBERS", LOST),
  fault("the answer of a draw that was given up counts", "F_LATE_ANSWER", LOST),
  fault("two transactions of an account are under way at once", "F_TWO_BATCHES", LIMIT),
  fault("an end that had to be repeated does not lead to another draw", "F_ALREADY", LOST),
  fault("an answer clears what became unknown since the draw was sent", "F_UNKNOWN_CLEARED", LOST),
  fault("a draw may raise what was drawn", "F_KEEP_RAISES", LOST),
  fault("a draw forgets settlements that are under way", "F_KEEP_FORGETS", LOST),
  fault("an end that was given up lowers what a later draw wrote as idle", "F_IDLE_UNNUMBERED", LATE_END),
  fault("a settlement that comes twice counts twice", "F_NO_RECEIPT", LOST),
  fault("a late settlement takes from the row of a new lease", "F_LATE_NEW_ROW", PAUSE),
  fault("a late settlement counts although its key has nothing left", "F_LATE_KEY", KEY_PAUSE),
  fault("refused without a look at what lies idle", "F_REFUSE_BLINDLY", LIMIT),
  fault("a freed unit is granted again, and its row does not say so", "F_REUSE", LIMIT),
  fault("the reaper looks only once", "F_SCAN_ONCE", SCAN),
  fault("the day's end is ignored", "F_DAY", DAY),
  fault("a draw reads before it has the lock", "F_SNAPSHOT", [...KEY, "SPLIT"]),
];

function fault(name: string, define: string, size: readonly string[]): Check {
  return { name: `${name} (${define})`, defines: [...size, define] };
}
