import process from "node:process";
import { parseArgs } from "node:util";
import { type Random, randomOf } from "../random.ts";
import { COLUMNS, type Counts, check, type Finding } from "./checker.ts";
import { FAULTS, type Fault, type Need } from "./faults.ts";
import { type Entry, type Load, openLoad } from "./load.ts";
import { openStage, type Seat, type Stage, sleep } from "./stage.ts";

/**
 * `bun run chaos`: mixed load through three replicas while everything around them breaks, then one question: do the
 * clients' history, the providers' journals and the books agree? Exits with 1 if they do not.
 */

const SECONDS_DEFAULT = 60;
const SECONDS_MAX = 3_600;
const SEATS = 3;
/** The maximum number of concurrent faults; at least one replica is always left alone. */
const HANDS = 4;
/** The number of rounds that may be open, so that faults that wait for a resource do not delay others. */
const ROUNDS_MAX = 3;
const BETWEEN_FAULTS_MS = [100, 700] as const;
const PROGRESS_EVERY_MS = 5_000;
const BOOKS_EVERY_MS = 4_000;
const LOG_EVERY_MS = 500;
/** Effects of a fault may show up this long after its repair. */
const AFTERMATH_MS = 3_000;
const REST_MS_MAX = 120_000;
/** How much longer the load may last on a slow machine. */
const MORE_MS_MAX = 180_000;
const FINDINGS_SHOWN_MAX = 40;

/** One occurrence of a fault. */
export type Injection = { fault: string; fromMs: number; toMs: number };
export type Report = {
  seed: number;
  injections: Injection[];
  history: readonly Entry[];
  findings: Finding[];
  counts: Counts;
  spooled: number;
};

/** What is to be tried at least: answers that were complete, and different faults. */
type Least = { complete: number; faults: number };
type Options = { seed: number; seconds: number; least?: Least; only?: Fault | undefined; print?: Print };
type Print = (line: string) => void;

/** One run: stage, load, faults, rest, check. `seconds` is the time of load, which a slow machine extends until the `least` is tried; the other steps come in addition. */
export async function runChaos({
  seed,
  seconds,
  least = { complete: 0, faults: 0 },
  only,
  print = () => {},
}: Options): Promise<Report> {
  print(`seed ${seed}: starting Postgres, Redis, two providers and ${SEATS} replicas`);
  let stage: Stage | undefined;
  const takeBack = onInterrupt(async () => {
    print("interrupted");
    await stage?.close();
  });
  try {
    stage = await openStage(SEATS, print);
    return await runOn(stage, { seed, seconds, least, only, print });
  } finally {
    takeBack();
    await stage?.close();
  }
}

/** Load, faults, rest, check. */
async function runOn(
  stage: Stage,
  { seed, seconds, least, only, print }: Options & { least: Least; print: Print },
): Promise<Report> {
  const random = randomOf(seed);
  const load = await openLoad(stage, random.fork("load"));
  const injections: Injection[] = [];
  const watching = watch(stage, load, injections, print);
  let isOver = false;
  const play = { stage, load, injections, isOver: () => isOver, faults: only === undefined ? FAULTS : [only] };
  const playing = playFaults(play, random.fork("faults"));
  await sleep(seconds * 1000);
  const isTried = () =>
    load.history.filter(({ saw }) => saw === "complete").length >= least.complete &&
    new Set(injections.map(({ fault }) => fault)).size >= least.faults;
  for (const endsAt = Date.now() + MORE_MS_MAX; !isTried() && Date.now() < endsAt; ) await sleep(500);
  isOver = true;
  await load.finish();
  await playing;
  await comeToRest(stage, load, print);
  await watching.stop();
  print("the books are at rest; comparing");
  const { findings, counts } = await check(stage, load.history);
  const all = [...stage.findings, ...findings];
  if (all.length > 0) print(`the replicas' logs are kept in ${stage.keepLogs(`tollgate-chaos-seed-${seed}`)}`);
  return { seed, injections, history: load.history, findings: all, counts, spooled: replayedIn(stage) };
}

type Play = { stage: Stage; load: Load; injections: Injection[]; isOver: () => boolean; faults: readonly Fault[] };

/** Several workers take faults from one list, in its order, each as soon as its resources are free. */
async function playFaults({ stage, load, injections, isOver, faults }: Play, random: Random): Promise<void> {
  const taken = new Set<Need | Seat>();
  const deck: Fault[] = [];
  let turn = 0;

  function draw(prefersReplicas: boolean): { fault: Fault; seat: Seat; holds: Need | Seat } | undefined {
    const free = stage.replicas.filter((seat) => !taken.has(seat));
    const isFree = ({ needs }: Fault) => (needs === "replica" ? free.length > 1 : !taken.has(needs));
    if (!deck.some(isFree) && deck.length < faults.length * (ROUNDS_MAX - 1)) deck.push(...random.shuffled(faults));
    const suits = deck.findIndex((fault) => isFree(fault) && (fault.needs === "replica") === prefersReplicas);
    const index = suits < 0 ? deck.findIndex(isFree) : suits;
    const [fault] = index < 0 ? [] : deck.splice(index, 1);
    if (fault === undefined) return undefined;
    const seat = random.pick(free.length > 0 ? free : stage.replicas);
    return { fault, seat, holds: fault.needs === "replica" ? seat : fault.needs };
  }

  async function hand(_: unknown, index: number): Promise<void> {
    // Faults of replicas are many and take long, so some workers only do them.
    const prefersReplicas = index < stage.replicas.length - 1;
    await sleep(random.whole(...BETWEEN_FAULTS_MS));
    while (!isOver()) {
      const drawn = draw(prefersReplicas);
      if (drawn === undefined) {
        await sleep(50);
        continue;
      }
      const { fault, seat, holds } = drawn;
      taken.add(holds);
      await injectOne({ stage, load, seat, fault, injections }, random.fork(`${fault.name} ${++turn}`));
      taken.delete(holds);
      await sleep(random.whole(...BETWEEN_FAULTS_MS));
    }
  }
  await Promise.all(Array.from({ length: HANDS }, hand));
}

type One = { stage: Stage; load: Load; seat: Seat; fault: Fault; injections: Injection[] };

async function injectOne({ stage, load, seat, fault, injections }: One, random: Random): Promise<void> {
  const injection: Injection = { fault: fault.name, fromMs: Date.now(), toMs: Number.POSITIVE_INFINITY };
  injections.push(injection);
  try {
    const heal = await fault.inject({ stage, load, seat }, random);
    await sleep(random.whole(...fault.lastsMs));
    await heal();
  } catch (error) {
    stage.note("broken", `"${fault.name}" could not be played: ${error instanceof Error ? error.stack : error}`);
  }
  injection.toMs = Date.now() + AFTERMATH_MS;
}

/** Reads the replicas' logs and the books continuously, and reports the progress of the run. */
function watch(stage: Stage, load: Load, injections: readonly Injection[], print: (line: string) => void) {
  const startedMs = Date.now();
  let balancedMs = startedMs;
  let over = false;
  const every = async (ms: number, work: () => Promise<void> | void) => {
    while (!over) {
      await work();
      await sleep(ms);
    }
  };
  const loops = [
    every(LOG_EVERY_MS, () => {
      for (const seat of stage.replicas) seat.readLog();
    }),
    every(BOOKS_EVERY_MS, async () => {
      const askedMs = Date.now();
      for (const what of await stage.books(() => stage.world.unbalanced()))
        stage.note("unbalanced", what, { fromMs: balancedMs, toMs: askedMs });
      balancedMs = askedMs;
    }),
    every(PROGRESS_EVERY_MS, () => {
      const now = Date.now();
      const active = injections.filter(({ toMs }) => toMs > now + AFTERMATH_MS).map(({ fault }) => fault);
      print(
        `${String(Math.round((now - startedMs) / 1000)).padStart(4)} s  ${tally(load.history)}  now: ${active.join(", ")}`,
      );
    }),
  ];
  return {
    async stop(): Promise<void> {
      over = true;
      await Promise.all(loops);
    },
  };
}

/** Waits until no hold lives and no settlement waits; each replica then serves once more, and ends with 0 at SIGTERM. */
async function comeToRest(stage: Stage, load: Load, print: (line: string) => void): Promise<void> {
  print("the load is over; the books come to rest");
  const endsAt = Date.now() + REST_MS_MAX;
  const isAtRest = async () => {
    const [row] = await stage.world.sql`select count(*)::int as holds from escrows where units > 0 or nano_usd > 0`;
    const spooled = stage.replicas.reduce((sum, seat) => sum + seat.spooled().length, 0);
    return row?.holds === 0 && spooled === 0;
  };
  while (!(await stage.books(isAtRest))) {
    if (Date.now() > endsAt) {
      stage.note("broken", `the books do not come to rest within ${REST_MS_MAX / 1000} s`);
      break;
    }
    await sleep(200);
  }
  await Promise.all(stage.replicas.map((seat) => retire(stage, load, seat)));
}

async function retire(stage: Stage, load: Load, seat: Seat): Promise<void> {
  if (!(await soon(() => seat.isReady()))) stage.note("broken", `replica ${seat.index} is not ready again`);
  if (!(await soon(() => load.serves(seat)))) stage.note("broken", `replica ${seat.index} does not serve again`);
  if (seat.setAside()) stage.note("lost", `replica ${seat.index} has set settlements aside`);
  const code = await seat.term();
  if (code !== 0) stage.note("broken", `replica ${seat.index} ended with ${code} at its last SIGTERM`);
  seat.readLog();
}

/**
 * A breaker that a fault has opened may stay open for half a minute; a process that was frozen needs a moment first.
 */
async function soon(isSo: () => Promise<boolean>): Promise<boolean> {
  const endsAt = Date.now() + REST_MS_MAX;
  while (!(await isSo())) {
    if (Date.now() > endsAt) return false;
    await sleep(300);
  }
  return true;
}

/** Settlements that were replayed from a spool, by the replicas' logs. */
function replayedIn(stage: Stage): number {
  const logs = stage.replicas.flatMap((seat) => seat.logs()).join("\n");
  return [...logs.matchAll(/"replayed":(\d+)/g)].reduce((sum, match) => sum + Number(match[1]), 0);
}

function tally(history: readonly Entry[]): string {
  const counts = new Map<string, number>();
  for (const { saw } of history) counts.set(saw, (counts.get(saw) ?? 0) + 1);
  const parts = [...counts].sort(([, a], [, b]) => b - a).map(([saw, count]) => `${saw.replace("_", " ")} ${count}`);
  return `${history.length} requests: ${parts.join(", ")}`;
}

/** The faults that were active in the time of a finding. */
function faultsAt({ fromMs, toMs }: Finding, injections: readonly Injection[]): string[] {
  if (!Number.isFinite(fromMs)) return [];
  const there = injections.filter((injection) => injection.fromMs <= toMs && injection.toMs >= fromMs);
  return [...new Set(there.map(({ fault }) => fault))];
}

const WHOLE_RUN = "(the run as a whole)";
const NO_FAULT = "(no fault near)";

/** The table: fault × times × requests during it × findings. A finding counts for every fault that was active. */
export function tableOf({ injections, history, findings }: Report, faults: readonly Fault[] = FAULTS): string {
  const rows = faults.map(({ name }) => {
    const mine = injections.filter(({ fault }) => fault === name);
    const beside = history.filter((entry) =>
      mine.some(({ fromMs, toMs }) => fromMs <= entry.endedMs && toMs >= entry.startedMs),
    );
    return { name, times: String(mine.length), requests: String(beside.length) };
  });
  for (const name of [NO_FAULT, WHOLE_RUN])
    rows.push({ name, times: "", requests: name === WHOLE_RUN ? String(history.length) : "" });
  const placed = findings.map((finding) => {
    const there = faultsAt(finding, injections);
    return {
      column: finding.column,
      rows: there.length > 0 ? there : [Number.isFinite(finding.fromMs) ? NO_FAULT : WHOLE_RUN],
    };
  });
  const lines = rows.map(({ name, times, requests }) => {
    const cells = COLUMNS.map((column) => placed.filter((p) => p.column === column && p.rows.includes(name)).length);
    return [name, times, requests, ...cells.map(String)];
  });
  const head = ["fault", "times", "requests", ...COLUMNS];
  const widths = head.map((title, i) => Math.max(title.length, ...lines.map((line) => line[i]?.length ?? 0)));
  const format = (line: string[]) =>
    line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join("  ");
  return [head, widths.map((width) => "-".repeat(width)), ...lines].map(format).join("\n");
}

/** The report at the end. */
export function reportText(report: Report, faults?: readonly Fault[]): string {
  const { seed, findings, counts, history, injections, spooled } = report;
  const shown = findings.slice(0, FINDINGS_SHOWN_MAX).map((finding) => {
    const there = faultsAt(finding, injections);
    return `${finding.column}: ${finding.what}\n    beside: ${there.join(", ") || "no fault"}`;
  });
  return [
    tableOf(report, faults),
    "",
    tally(history),
    `${counts.providerCalls} calls of providers; ${counts.settled} settled, ${counts.released} released; ` +
      `${counts.unfinished} of a replica that died or stood still, ${counts.late} settled late; ${spooled} replayed from spools; ${counts.losses} losses recorded`,
    ...(shown.length > 0 ? ["", ...shown] : []),
    ...(findings.length > shown.length ? [`and ${findings.length - shown.length} more`] : []),
    "",
    findings.length === 0 ? `seed ${seed}: everything agrees` : `seed ${seed}: ${findings.length} FINDINGS`,
  ].join("\n");
}

/** Ctrl-C ends the run and leaves nothing behind. Returns a function that removes the handlers. */
function onInterrupt(cleanUp: () => Promise<void>): () => void {
  let isEnding = false;
  const end = () => {
    if (isEnding) return;
    isEnding = true;
    cleanUp().finally(() => process.exit(INTERRUPTED));
  };
  for (const signal of SIGNALS) process.on(signal, end);
  return () => {
    for (const signal of SIGNALS) process.off(signal, end);
  };
}
/** As in shells: 128 plus SIGINT's number. */
const INTERRUPTED = 130;
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Throws one sentence for an invalid option. */
function readOptions(): Options | "list" {
  const { values } = parseArgs({
    options: {
      seconds: { type: "string", default: String(SECONDS_DEFAULT) },
      seed: { type: "string" },
      fault: { type: "string" },
      list: { type: "boolean", default: false },
    },
  });
  if (values.list) return "list";
  const whole = (name: string, text: string, max: number) => {
    const number = Number(text);
    if (!/^\d+$/.test(text) || number < 1 || number > max)
      throw new Error(`--${name} is a whole number from 1 to ${max}.`);
    return number;
  };
  const only = FAULTS.find(({ name }) => name.toLowerCase() === values.fault?.toLowerCase());
  if (values.fault !== undefined && only === undefined)
    throw new Error(`There is no fault "${values.fault}"; --list names them all.`);
  const seed = values.seed === undefined ? newSeed() : whole("seed", values.seed, SEED_MAX);
  return { seed, seconds: whole("seconds", values.seconds, SECONDS_MAX), only };
}

const SEED_MAX = 2 ** 32 - 1;
export const newSeed = () => 1 + Math.floor(Math.random() * (SEED_MAX - 1));

async function main(): Promise<number> {
  const options = readOptions();
  if (options === "list") {
    const width = Math.max(...FAULTS.map(({ name }) => name.length));
    for (const { name, does } of FAULTS) console.log(`${name.padEnd(width)}  ${does}`);
    return 0;
  }
  const report = await runChaos({ ...options, print: (line) => console.log(line) });
  console.log(`\n${reportText(report, options.only && [options.only])}`);
  return report.findings.length === 0 ? 0 : 1;
}

if (import.meta.main) {
  main().then(
    (code) => process.exit(code),
    (error: unknown) => {
      console.error(error instanceof Error ? error.message : error);
      process.exit(1);
    },
  );
}
