import { type Commit, type Figures, type HeldFigures, pairedRatio, type Range, rangeOf } from "./figures.ts";
import { HELD_STREAMS } from "./workloads.ts";

/** What the full work may cost against a bare proxy that does none of it, and whether this run kept to it. */

const RSS_RATIO_MAX = 1.1;
const BYTES_A_STREAM_MAX = 24 * 1024;
const ADDED_P50_MS = 1;
const ADDED_P99_MS = 5;

export type Goal = { what: string; goal: string; measured: string; met: boolean | null };

export type Measured = { figures: Figures[]; held: HeldFigures[]; commits: Commit[] };

/** All goals in their order; `met` is null where this run did not measure it. */
export function goalsOf(measured: Measured): Goal[] {
  const { figures } = measured;
  const rate = (workload: string, what: string, min: number) =>
    ratioGoal(figures, { workload, what: `${what}: rate against bare`, min, pick: (f) => f.perSecond });
  const cpu = (workload: string, what: string, max: number) =>
    ratioGoal(figures, { workload, what: `${what}: CPU against bare`, max, pick: (f) => f.gatewayCpuUs });
  return [
    rate("json32", "JSON, 32 in flight, 0 ms", 0.5),
    cpu("json32", "JSON, 32 in flight, 0 ms", 1.5),
    rate("json256-20", "JSON, 256 in flight, 20 ms", 0.95),
    cpu("json256-20", "JSON, 256 in flight, 20 ms", 1.25),
    rate("stream200", "stream of 200 chunks, 0 ms", 0.9),
    cpu("stream50x10", "stream of 50 chunks, 10 ms, 200 open", 1.15),
    // A stream's first byte waits for one commit (the hold), a JSON answer's for two: it is whole, so it is settled.
    ...addedTime(measured, "stream1", "stream", 1),
    ...addedTime(measured, "json1", "JSON", 2),
    ...memory(measured.held),
    cpu("body100k", "bodies of 100 KB", 1.8),
  ];
}

type RatioGoal = {
  workload: string;
  what: string;
  min?: number;
  max?: number;
  pick: (figures: Figures) => number | null;
};

function ratioGoal(figures: Figures[], { workload, what, min, max, pick }: RatioGoal): Goal {
  const range = pairedRatio(figures, { workload, contender: "tollgate", to: "bare" }, pick);
  const goal = min !== undefined ? `≥ ${min}` : `≤ ${max}×`;
  const isIn = (value: number) => (min === undefined || value >= min) && (max === undefined || value <= max);
  return { what, goal, measured: rangeText(range), met: range === null ? null : isIn(range.median) };
}

/** What the gateway adds to the time to the first byte when it has nothing else to do, against `commits` commits. */
function addedTime({ figures, commits }: Measured, workload: string, what: string, commitsAwaited: number): Goal[] {
  const added = (share: "p50" | "p99") =>
    rangeOf(
      figures
        .filter((f) => f.workload === workload && f.contender === "tollgate")
        .map((our) => {
          const bare = figures.find((f) => f.workload === workload && f.contender === "bare" && f.round === our.round);
          return bare === undefined ? null : our.firstByteMs[share] - bare.firstByteMs[share];
        }),
    );
  const commit = (share: "p50" | "p99") =>
    rangeOf(commits.filter((c) => c.workload === workload).map((c) => c.ms[share]))?.median ?? null;
  const goal = (share: "p50" | "p99", more: number): Goal => {
    const [ours, one] = [added(share), commit(share)];
    const most = one === null ? null : commitsAwaited * one + more;
    const times = commitsAwaited === 1 ? "one commit" : `${commitsAwaited} commits`;
    return {
      what: `${what}, idle gateway: added to the first byte, ${share}`,
      goal: `≤ ${times} + ${more} ms${most === null ? "" : ` = ${most.toFixed(2)} ms`}`,
      measured: ours === null ? "–" : `${rangeText(ours)} ms`,
      met: ours === null || most === null ? null : ours.median <= most,
    };
  };
  return [goal("p50", ADDED_P50_MS), goal("p99", ADDED_P99_MS)];
}

function memory(held: HeldFigures[]): Goal[] {
  const ours = held.find(({ contender }) => contender === "tollgate");
  const each = ours && (ours.openBytes - ours.startBytes) / ours.streams;
  const back = ours && ours.endBytes / ours.startBytes;
  return [
    {
      what: `memory of an open stream, ${HELD_STREAMS.toLocaleString("en")} open`,
      goal: `≤ ${BYTES_A_STREAM_MAX / 1024} KB`,
      measured: each === undefined ? "–" : `${(each / 1024).toFixed(1)} KB`,
      met: each === undefined ? null : each <= BYTES_A_STREAM_MAX,
    },
    {
      what: "memory when they are closed, against the start",
      goal: `≤ ${RSS_RATIO_MAX}×`,
      measured: back === undefined ? "–" : `${back.toFixed(2)}×`,
      met: back === undefined ? null : back <= RSS_RATIO_MAX,
    },
  ];
}

/** "0.43 (0.41–0.45)". */
export function rangeText(range: Range | null): string {
  if (range === null) return "–";
  const text = (value: number) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2));
  return range.min === range.max ? text(range.median) : `${text(range.median)} (${text(range.min)}–${text(range.max)})`;
}
