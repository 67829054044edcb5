import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { ACCOUNTS_DEFAULT } from "./contenders.ts";
import type { Goal } from "./goals.ts";
import {
  CONTENDERS,
  type ContenderName,
  FIXED,
  fixedWorkloads,
  isPeer,
  OWN_CONTENDERS,
  PEER_NAMES,
  RATES,
  RESPONSES,
  responsesWorkloads,
  type Workload,
  workloads,
} from "./workloads.ts";
import { checkPlace } from "./written.ts";

/** The command line of `bun run bench`. */

export type Options = {
  workloads: Workload[];
  contenders: ContenderName[];
  /** How many accounts share the load. */
  accounts: number;
  isQuick: boolean;
  rounds: number;
  seconds: number;
  /** The longest warm-up of a contender, in seconds. */
  warmUp: number;
  json: string | undefined;
  /** The goals as earlier runs measured them. */
  earlier: Goal[][];
  pictures: string | undefined;
  write: string | undefined;
  profile: string | undefined;
  givenServices: boolean;
  /** The provider breaks every n-th answer: for the bench's own test. */
  breaksOneIn: number;
};

/** Printed to standard error; the process ends with 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** Where the tables are in a page. */
export const PLACE = "figures";
/** The contender whose ratios are compared with the goals. */
const QUICK_CONTENDERS = ["bare", "tollgate"] as const;
const ROUNDS_MAX = 100;
const SECONDS_MAX = 120;
const WARM_UP_MAX = 600;
const RATE_MAX = 1_000_000;
/** Each is created before the run. */
const ACCOUNTS_MAX = 1_000;

export const USAGE = `bun run bench [flags]
  --quick            the workloads of the goals but memory's, against the bare proxy alone, in fewer and shorter rounds
  --only NAME,…      only these workloads; those of POST /v1/responses (${RESPONSES}) and those at a fixed rate (${FIXED}) run only so
  --rates N,…        requests a second of the JSON workloads at a fixed rate; default ${RATES.join(",")}
  --contenders NAME,…  only these of ${OWN_CONTENDERS.join(", ")}, ${PEER_NAMES.join(", ")}
  --peers            also other gateways, installed on first use into .cache/bench-peers: ${PEER_NAMES.join(", ")}
  --accounts N       accounts that share the load; 1: one hot account; default ${ACCOUNTS_DEFAULT}
  --rounds N         rounds of each workload
  --seconds N        how long a round is measured
  --warm-up N        seconds of the same work before, at most: until a request costs no less CPU
  --json FILE        all figures as JSON; - for standard output
  --earlier FILE,…   the goals of these runs, from their JSON, beside this one's
  --pictures DIR     bar charts as SVG
  --write FILE       the tables into a Markdown file, between <!-- ${PLACE} --> and <!-- /${PLACE} -->
  --profile DIR      a CPU profile of the gateway
  --given-services   the Postgres and Redis of DATABASE_URL and REDIS_URL in place of the bench's own`;

/** Throws UsageError in one line, also if `--write` would fail after the measurement. */
export function readOptions(args: string[]): Options | "help" {
  const values = parsed(args);
  if (values.help) return "help";
  const isQuick = values.quick ?? false;
  const measured = workloadsOf(values, isQuick);
  const contenders = contendersOf(values).filter((name) =>
    measured.some((workload) => workload.contenders.includes(name)),
  );
  if (contenders.length === 0) throw new UsageError("--contenders: none of them has these workloads");
  return {
    workloads: measured,
    contenders,
    accounts: number("--accounts", values.accounts ?? String(ACCOUNTS_DEFAULT), { max: ACCOUNTS_MAX, isWhole: true }),
    isQuick,
    rounds: number("--rounds", values.rounds ?? (isQuick ? "2" : "3"), { max: ROUNDS_MAX, isWhole: true }),
    seconds: number("--seconds", values.seconds ?? (isQuick ? "1" : "1.5"), { max: SECONDS_MAX, isWhole: false }),
    warmUp: number("--warm-up", values["warm-up"] ?? (isQuick ? "6" : "80"), { max: WARM_UP_MAX, isWhole: false }),
    json: values.json,
    earlier: values.earlier,
    pictures: values.pictures,
    write: values.write,
    profile: values.profile,
    givenServices: values["given-services"] ?? false,
    breaksOneIn: number("--breaks-one-in", values["breaks-one-in"] ?? "1000000000", { max: 1e9, isWhole: true }),
  };
}

function parsed(args: string[]) {
  try {
    const { values } = parseArgs({
      args,
      options: {
        help: { type: "boolean", short: "h" },
        quick: { type: "boolean" },
        only: { type: "string" },
        rates: { type: "string" },
        contenders: { type: "string" },
        peers: { type: "boolean" },
        accounts: { type: "string" },
        rounds: { type: "string" },
        seconds: { type: "string" },
        "warm-up": { type: "string" },
        json: { type: "string" },
        earlier: { type: "string" },
        pictures: { type: "string" },
        write: { type: "string" },
        profile: { type: "string" },
        "given-services": { type: "boolean" },
        "breaks-one-in": { type: "string" },
      },
    });
    if (values.write !== undefined) checkPlace(values.write, PLACE);
    return { ...values, earlier: values.earlier?.split(",").map(goalsIn) ?? [] };
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message.split(". ")[0] : String(error));
  }
}

/** The goals of an earlier run's `--json`. Throws when there are none. */
function goalsIn(file: string): Goal[] {
  const { goals }: { goals?: Goal[] } = JSON.parse(readFileSync(file, "utf8"));
  if (!Array.isArray(goals)) throw new Error(`${file} is no JSON of bun run bench`);
  return goals;
}

/** The workloads of `--only`, or those of a whole or a quick run. */
function workloadsOf({ only, rates }: { only?: string; rates?: string }, isQuick: boolean): Workload[] {
  const asked = rates?.split(",").map((rate) => number("--rates", rate.trim(), { max: RATE_MAX, isWhole: true }));
  if (asked !== undefined && only === undefined) throw new UsageError(`--rates is of the workloads of --only ${FIXED}`);
  if (only === undefined) return workloads(isQuick);
  const groups = { [RESPONSES]: responsesWorkloads(), [FIXED]: fixedWorkloads(asked && [...new Set(asked)]) };
  const all = [...workloads(false), ...Object.values(groups).flat()];
  const names = chosen("--only", only, [...all.map(({ name }) => name), ...Object.keys(groups)]);
  const grouped = Object.entries(groups).flatMap(([group, its]) => (names.includes(group) ? its : []));
  return all.filter((workload) => names.includes(workload.name) || grouped.includes(workload));
}

/** The contenders of `--contenders`, or all our own, and with `--peers` the peers, in the order of the tables. */
function contendersOf({ contenders, peers, quick }: { contenders?: string; peers?: boolean; quick?: boolean }) {
  const named = chosen("--contenders", contenders, CONTENDERS, quick ? QUICK_CONTENDERS : OWN_CONTENDERS);
  return CONTENDERS.filter((name) => named.includes(name) || (peers === true && isPeer(name)));
}

/** The names given with a flag; without the flag `otherwise`. */
function chosen<T extends string>(
  flag: string,
  value: string | undefined,
  known: readonly T[],
  otherwise: readonly T[] = known,
): T[] {
  if (value === undefined) return [...otherwise];
  const wanted = value.split(",").map((name) => name.trim());
  const strange = wanted.filter((name) => !known.some((one) => one === name));
  if (strange.length > 0)
    throw new UsageError(`${flag}: no such name: ${strange.join(", ")}; one of ${known.join(", ")}`);
  return known.filter((name) => wanted.includes(name));
}

function number(flag: string, value: string, { max, isWhole }: { max: number; isWhole: boolean }): number {
  const n = Number(value);
  if (!(n > 0 && n <= max) || (isWhole && !Number.isInteger(n)))
    throw new UsageError(
      `${flag} must be a ${isWhole ? "whole " : ""}number above 0 and at most ${max}, not "${value}"`,
    );
  return n;
}
