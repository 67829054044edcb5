import {
  againstChat,
  type Commit,
  type Figures,
  type HeldFigures,
  pairedDifference,
  pairedRatio,
  type Range,
  rangeOf,
} from "./figures.ts";
import { HELD_STREAMS, responsesWorkloads } from "./workloads.ts";

/**
 * The goals for the cost of the full work against a bare proxy, and for responses against chats, and whether this run met
 * them.
 */

const RSS_RATIO_MAX = 1.1;
const BYTES_A_STREAM_MAX = 28 * 1024;

export type Goal = { what: string; goal: string; measured: string; met: boolean | null };

export type Measured = { figures: Figures[]; held: HeldFigures[]; commits: Commit[] };

/** CPU of a response against a chat of the same size. */
const RESPONSES_RATIO_MAX = { own: 1.3, translated: 2 } as const;

/**
 * All goals in their order; `met` is null where this run did not measure it. Those of responses only if it measured them; none, if it
 * measured fixed rates alone, which have no goal.
 */
export function goalsOf(measured: Measured): Goal[] {
  const [gateway, responses] = [gatewayGoals(measured), responsesGoals(measured.figures)];
  const isAtRate = measured.figures.some(({ atRate }) => atRate !== null);
  const isAlone = (responses.length > 0 || isAtRate) && gateway.every(({ met }) => met === null);
  return isAlone ? responses : [...gateway, ...responses];
}

function responsesGoals(figures: Figures[]): Goal[] {
  return responsesWorkloads().flatMap((workload) => {
    const { what, api } = workload;
    const range = againstChat(figures, workload, (f) => f.gatewayCpuUs);
    if (range === null || (api !== "own" && api !== "translated")) return [];
    const max = RESPONSES_RATIO_MAX[api];
    const goal = { what: `${what}: CPU against chat`, goal: `≤ ${max}×`, measured: rangeText(range) };
    return [{ ...goal, met: range.median <= max }];
  });
}

function gatewayGoals(measured: Measured): Goal[] {
  const { figures } = measured;
  const rate = (workload: string, what: string, min: number) =>
    ratioGoal(figures, { workload, what: `${what}: rate against bare`, min, pick: (f) => f.perSecond });
  const cpu = (workload: string, what: string, max: number) =>
    ratioGoal(figures, { workload, what: `${what}: CPU against bare`, max, pick: (f) => f.gatewayCpuUs });
  return [
    // The first byte of a warm account's stream waits for no commit. A JSON answer is sent as a whole, so it waits for
    // its settlement: one commit.
    addedTime(measured, {
      workload: "stream1",
      what: "stream, idle gateway",
      share: "p50",
      commitsAwaited: 0,
      moreMs: 0.4,
    }),
    addedTime(measured, {
      workload: "stream1",
      what: "stream, idle gateway",
      share: "p99",
      commitsAwaited: 0,
      moreMs: 2,
    }),
    addedTime(measured, {
      workload: "json1",
      what: "JSON, idle gateway",
      share: "p50",
      commitsAwaited: 1,
      moreMs: 0.4,
    }),
    postgres(figures, "json1", "JSON, idle gateway", 250),
    rate("json32", "JSON, 32 in flight, 0 ms", 0.3),
    cpu("json32", "JSON, 32 in flight, 0 ms", 3),
    postgres(figures, "json32", "JSON, 32 in flight, 0 ms", 30),
    rate("json256-20", "JSON, 256 in flight, 20 ms", 0.8),
    cpu("json256-20", "JSON, 256 in flight, 20 ms", 2.4),
    postgres(figures, "json256-20", "JSON, 256 in flight, 20 ms", 20),
    rate("stream200", "stream of 200 chunks, 32 open", 0.55),
    cpu("stream200", "stream of 200 chunks, 32 open", 1.7),
    cpu("stream50x10", "stream of 50 chunks, 10 ms, 200 open", 1.5),
    cpu("burst200", "bursts of 200 chunks, OpenAI's shape", 3),
    cpu("burst200-other", "bursts of 200 chunks, a shape unforeseen", 4),
    addedTime(measured, { workload: "stream50x10", what: "200 open", share: "p50", commitsAwaited: 0, moreMs: 2 }),
    ...memory(measured.held),
    cpu("body100k", "bodies of 100 KB", 2),
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

/** CPU of Postgres a request. */
function postgres(all: Figures[], workload: string, what: string, maxUs: number): Goal {
  const ours = all.filter((each) => each.workload === workload && each.contender === "tollgate");
  const range = rangeOf(ours.flatMap(({ postgresCpuUs }) => postgresCpuUs ?? []));
  return {
    what: `${what}: CPU of Postgres`,
    goal: `≤ ${maxUs} µs`,
    measured: range === null ? "–" : `${rangeText(range)} µs`,
    met: range === null ? null : range.median <= maxUs,
  };
}

type AddedTime = { workload: string; what: string; share: "p50" | "p99"; commitsAwaited: number; moreMs: number };

/** The time that the gateway adds before the first byte: at most `commitsAwaited` commits and `moreMs`. */
function addedTime({ figures, commits }: Measured, { workload, what, share, commitsAwaited, moreMs }: AddedTime): Goal {
  const added = pairedDifference(figures, { workload, contender: "tollgate", to: "bare" }, (f) => f.firstByteMs[share]);
  const commit = rangeOf(commits.filter((c) => c.workload === workload).map((c) => c.ms[share]))?.median ?? null;
  const mostMs = commitsAwaited === 0 ? moreMs : commit === null ? null : commitsAwaited * commit + moreMs;
  const goal =
    commitsAwaited === 0
      ? `${moreMs} ms`
      : `one commit + ${moreMs} ms${mostMs === null ? "" : ` = ${mostMs.toFixed(2)} ms`}`;
  return {
    what: `${what}: added to the first byte, ${share}`,
    goal: `≤ ${goal}`,
    measured: added === null ? "–" : `${rangeText(added)} ms`,
    met: added === null || mostMs === null ? null : added.median <= mostMs,
  };
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
