import type { AtRate, GeneratorReply } from "./generator.ts";
import type { ContenderName, Workload } from "./workloads.ts";

export type Spread = { p50: number; p99: number; p999: number };

/** The results of one contender in one round of one workload. null: not measured, or not measurable. */
export type Figures = {
  workload: string;
  round: number;
  contender: ContenderName;
  /** Requests, streams or refusals that ended. */
  measured: number;
  perSecond: number;
  /** µs of CPU a request. */
  gatewayCpuUs: number | null;
  postgresCpuUs: number | null;
  redisCpuUs: number | null;
  /** Share of one core. */
  providerLoad: number | null;
  generatorLoad: number | null;
  wholeMs: Spread;
  firstByteMs: Spread;
  relayMs: Spread | null;
  /** Of the gateway, when the round ended. */
  residentMb: number | null;
  /** null: not at a fixed rate. */
  atRate: AtRate | null;
};

/** Memory of one gateway while many streams are open, bytes. */
export type HeldFigures = {
  contender: ContenderName;
  streams: number;
  /** At rest, after a first round with as many streams. */
  startBytes: number;
  openBytes: number;
  /** At rest again. */
  endBytes: number;
};

/** One insert in its own transaction, on the Postgres of the run while it is idle; ms. */
export type Commit = { workload: string; round: number; ms: Spread };

/** Smallest, middle and largest of the rounds. */
export type Range = { min: number; median: number; max: number };

/** How the channel's reply is written down. */
export function figuresOf(
  reply: GeneratorReply,
  about: { workload: string; round: number; contender: ContenderName },
): Figures {
  const a = (name: string) => {
    const ms = reply.cpuMs[name];
    return ms === null || ms === undefined || reply.measured === 0 ? null : (ms * 1000) / reply.measured;
  };
  const load = (name: string) => {
    const ms = reply.cpuMs[name];
    return ms === null || ms === undefined ? null : ms / (reply.seconds * 1000);
  };
  return {
    ...about,
    measured: reply.measured,
    perSecond: reply.measured / reply.seconds,
    gatewayCpuUs: a("gateway"),
    postgresCpuUs: a("postgres"),
    redisCpuUs: a("redis"),
    providerLoad: load("provider"),
    generatorLoad: load("generator"),
    wholeMs: reply.wholeMs,
    firstByteMs: reply.firstByteMs,
    relayMs: reply.relayMs,
    residentMb: reply.residentBytes === null ? null : reply.residentBytes / 1024 / 1024,
    atRate: reply.atRate,
  };
}

/** The range of the measured values; null: none. */
export function rangeOf(values: readonly (number | null | undefined)[]): Range | null {
  const sorted = values.filter((value) => typeof value === "number" && Number.isFinite(value)) as number[];
  sorted.sort((a, b) => a - b);
  const [min] = sorted;
  const max = sorted.at(-1);
  if (min === undefined || max === undefined) return null;
  const low = sorted[Math.floor((sorted.length - 1) / 2)] as number;
  const high = sorted[Math.ceil((sorted.length - 1) / 2)] as number;
  return { min, median: (low + high) / 2, max };
}

/** The contender's figure over the other's of the same round, over all rounds that have both. */
export function pairedRatio(
  all: readonly Figures[],
  { workload, contender, to }: { workload: string; contender: ContenderName; to: ContenderName },
  pick: (figures: Figures) => number | null,
): Range | null {
  return ratioOf(all, { ours: { workload, contender }, theirs: { workload, contender: to } }, pick);
}

/** The contender's figure less the other's of the same round, over all rounds that have both. */
export function pairedDifference(
  all: readonly Figures[],
  { workload, contender, to }: { workload: string; contender: ContenderName; to: ContenderName },
  pick: (figures: Figures) => number | null,
): Range | null {
  return pairedRange(all, { ours: { workload, contender }, theirs: { workload, contender: to } }, (a, b) => {
    const [ours, theirs] = [pick(a), pick(b)];
    return ours === null || theirs === null ? null : ours - theirs;
  });
}

/** The gateway's figure over that of the workload with which this one is compared, round by round. */
export function againstChat(
  all: readonly Figures[],
  { name, against = "" }: Pick<Workload, "name" | "against">,
  pick: (figures: Figures) => number | null,
): Range | null {
  const contender = "tollgate";
  return ratioOf(all, { ours: { workload: name, contender }, theirs: { workload: against, contender } }, pick);
}

type Side = { workload: string; contender: ContenderName };

function ratioOf(
  all: readonly Figures[],
  { ours, theirs }: { ours: Side; theirs: Side },
  pick: (figures: Figures) => number | null,
): Range | null {
  return pairedRange(all, { ours, theirs }, (our, their) => {
    const [a, b] = [pick(our), pick(their)];
    return a === null || b === null || b === 0 ? null : a / b;
  });
}

/** `compare` of both sides' figures of a round, over all rounds that have both. */
function pairedRange(
  all: readonly Figures[],
  { ours, theirs }: { ours: Side; theirs: Side },
  compare: (our: Figures, their: Figures) => number | null,
): Range | null {
  const of = ({ workload, contender }: Side) => all.filter((f) => f.workload === workload && f.contender === contender);
  const others = of(theirs);
  return rangeOf(
    of(ours).map((our) => {
      const their = others.find((f) => f.round === our.round);
      return their === undefined ? null : compare(our, their);
    }),
  );
}

/** The rate that a core carries if it is busy for this fraction of the time. */
const CORE_SHARE = 0.7;

export function perCore(us: number): number {
  return (CORE_SHARE * 1_000_000) / us;
}

/** NaN where there is nothing to spread. */
export function spread(values: readonly number[]): Spread {
  const sorted = Float64Array.from(values).sort();
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  return { p50: at(0.5), p99: at(0.99), p999: at(0.999) };
}
