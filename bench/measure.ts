import { booksOf, type Contender, type Provider } from "./contenders.ts";
import { residentBytes } from "./cpu.ts";
import { type Commit, type Figures, figuresOf, type HeldFigures } from "./figures.ts";
import type { GeneratorQuestion, GeneratorReply, Job } from "./generator.ts";
import type { Helper } from "./helper.ts";
import type { Quiet } from "./quiet.ts";
import type { BenchServices } from "./servers.ts";
import { type Api, isPeer, type Workload } from "./workloads.ts";

/**
 * Alternating rounds of every workload. After each phase it compares all counts: successful answers, provider calls,
 * charged units and usage records.
 */

const WARM_MS = 300;
/**
 * The warm-up continues in steps until a request has cost hardly less CPU than before in this many of them. A single step may be chance:
 * after twenty seconds the compiler still takes a tenth of a large program's CPU.
 */
const STEP_MS = 4_000;
const STEADY_STEPS = 2;
/** Some programs continue to start after their first answer, such as further workers. */
const STARTED_MS_MAX = 60_000;
const STEADY_RATIO = 0.95;
const REPLY_MS_MAX = 120_000;
/** Measured commits, and answers of a single client: with 100 or fewer, the p99 would be the slowest one. */
const COMMITS_A_ROUND = 200;
const ANSWERS_MIN_ALONE = 200;
/** While all streams are open. */
const HELD_MS = 1_500;
const REST_MS_MAX = 20_000;
const REST_LOOK_MS = 500;
/** A gateway is at rest when its memory has not fallen for this long; ours returns memory within this time. */
const REST_STABLE_MS = 11_000;
const REST_RATIO_MAX = 1.05;

export type Stage = {
  contenders: Contender[];
  provider: Provider;
  generator: Helper<GeneratorQuestion, GeneratorReply | "held">;
  services: BenchServices;
  /** Waited for before each measurement. */
  quiet: Quiet;
  rounds: number;
  roundMs: number;
  /** The most that a contender is warmed up for. */
  warmUpMs: number;
  /** Progress, a line each. */
  say(line: string): void;
};

export type Results = {
  figures: Figures[];
  held: HeldFigures[];
  commits: Commit[];
  /** What was wrong; the run fails. */
  failures: string[];
  /** Notes for readers of the figures, such as a workload that failed on a peer; they do not fail the run. */
  notes: string[];
};

/** Runs the workloads one after the other, or in turns if they are compared with each other. Stops at the first phase with a failure. */
export async function measure(stage: Stage, workloads: readonly Workload[]): Promise<Results> {
  const results: Results = { figures: [], held: [], commits: [], failures: [], notes: [] };
  await warmUp(stage, results, workloads);
  for (const inTurns of turnsOf(workloads)) {
    if (results.failures.length > 0) break;
    for (const { name, what } of inTurns) stage.say(`${name}: ${what}`);
    const measured = inTurns.flatMap((workload) =>
      stage.contenders
        .filter(({ name }) => workload.contenders.includes(name))
        .map((contender) => ({ workload, contender })),
    );
    const held = measured.filter(({ workload }) => workload.held);
    for (const { workload, contender } of held) await hold(stage, workload, contender, results);
    if (held.length === 0) await rounds(stage, measured, results);
  }
  if (results.failures.length === 0) await checkViews(stage, results);
  const busy = stage.quiet.summary();
  if (busy !== undefined) results.notes.push(busy);
  return results;
}

/** The workloads that are measured in turns: those that are compared with the same one. Any other by itself. */
function turnsOf(workloads: readonly Workload[]): Workload[][] {
  return [...Map.groupBy(workloads, ({ name, against }) => against ?? name).values()];
}

type Measured = { workload: Workload; contender: Contender };

async function rounds(stage: Stage, measured: readonly Measured[], results: Results): Promise<void> {
  const exhausted = measured.filter(({ workload }) => workload.status === 402);
  await exhaust(
    exhausted.map(({ contender }) => contender),
    results,
  );
  const failed = new Set<Measured>();
  for (let round = 1; round <= stage.rounds; round++) {
    for (const one of inTurn(measured, round)) {
      if (failed.has(one)) continue;
      await stage.quiet.wait();
      const reply = await phase(stage, results, { ...one, round, runMs: stage.roundMs });
      if (reply === undefined) {
        if (results.failures.length > 0) return;
        failed.add(one);
        continue;
      }
      const { workload, contender } = one;
      results.figures.push(figuresOf(reply, { workload: workload.name, round, contender: contender.name }));
    }
    // A goal depends on the time of a commit, so that is measured in the same minute.
    for (const { name, inFlight, plan } of new Set(measured.map(({ workload }) => workload))) {
      if (inFlight !== 1 || plan.delayMs !== 0) continue;
      await stage.quiet.wait();
      results.commits.push({ workload: name, round, ms: await stage.services.commitMs(COMMITS_A_ROUND) });
    }
  }
}

/** The contenders take turns in beginning a round, and every second round runs backwards. */
function inTurn<T>(list: readonly T[], round: number): T[] {
  const turned = list.map((_, i) => list[(i + round - 1) % list.length] as T);
  return round % 2 === 0 ? turned.reverse() : turned;
}

/**
 * Runs until code is compiled, pools are filled and caches are warm: a large program needs a minute to reach its
 * normal speed.
 */
async function warmUp(stage: Stage, results: Results, workloads: readonly Workload[]): Promise<void> {
  const apis = new Set<Api>(["chat", ...workloads.map(({ api = "chat" }) => api)]);
  const kinds = [...apis].flatMap((api) => [
    { api, inFlight: 128, plan: { delayMs: 0, chunks: 0, everyMs: 0 } },
    { api, inFlight: 32, plan: { delayMs: 0, chunks: 100, everyMs: 0 } },
  ]);
  await stage.quiet.wait(STARTED_MS_MAX);
  for (const contender of stage.contenders.filter(({ name }) => name !== "direct")) {
    stage.say(`${contender.name}: warming up, ${Math.ceil(stage.warmUpMs / 1000)} s at most`);
    for (const kind of kinds) {
      const workload: Workload = {
        ...{ name: "warm-up", what: "", bodyBytes: 1024, status: 200, held: false, contenders: [], quick: true },
        ...kind,
      };
      await warmUpWith(stage, results, { workload, contender, maxMs: stage.warmUpMs / kinds.length });
      if (results.failures.length > 0) return;
    }
  }
}

async function warmUpWith(
  stage: Stage,
  results: Results,
  { workload, contender, maxMs }: { workload: Workload; contender: Contender; maxMs: number },
): Promise<void> {
  const endMs = performance.now() + maxMs;
  const of = { workload, contender, round: 0, runMs: Math.min(STEP_MS, maxMs) };
  let leastUs = Number.POSITIVE_INFINITY;
  for (let steady = 0; steady < STEADY_STEPS && performance.now() < endMs; ) {
    const reply = await phase(stage, results, of);
    if (reply === undefined) return;
    const us = ((reply.cpuMs.gateway ?? 0) * 1000) / reply.measured;
    steady = us > leastUs * STEADY_RATIO ? steady + 1 : 0;
    leastUs = Math.min(leastUs, us);
  }
}

type Phase = { workload: Workload; contender: Contender; round: number; runMs: number };

/** One contender, one round. Undefined: it failed, and the error is in the failures, or for a peer in the notes. */
async function phase(stage: Stage, results: Results, of: Phase): Promise<GeneratorReply | undefined> {
  const { workload, contender, round } = of;
  const where = `${workload.name}, ${contender.name}, round ${round}`;
  const check = await counting(stage, contender);
  const reply = await stage.generator.ask({ kind: "run", job: jobOf(stage, of) }, REPLY_MS_MAX);
  if (reply === "held") throw new Error("the generator held what it should have measured");
  const failures = [...reply.problems, ...(await check(workload.status === 200 ? reply.good : 0))];
  if (reply.measured === 0) failures.push("no request ended while it was measured");
  const into = isPeer(contender.name) ? results.notes : results.failures;
  for (const failure of failures) {
    into.push(`${where}: ${failure}`);
    stage.say(`${where}: ${failure}`);
  }
  return failures.length === 0 ? reply : undefined;
}

function jobOf({ services, provider, generator }: Stage, { workload, contender, runMs }: Phase): Job {
  const { api, inFlight, perSecond, plan, bodyBytes, status, held } = workload;
  const secrets = status === 402 ? contender.shop?.exhausted : contender.shop?.secrets;
  const { postgresPid, redisPid } = services;
  return {
    ...{
      port: contender.port,
      host: contender.host,
      headers: contender.headers,
      api,
      inFlight,
      perSecond,
      plan,
      bodyBytes,
      status,
      held,
    },
    ...{ warmMs: WARM_MS, runMs, answersMin: inFlight === 1 ? ANSWERS_MIN_ALONE : 1 },
    secrets: status === 401 ? [] : (secrets ?? ["sk-unused"]),
    pids: {
      provider: provider.helper.pid,
      generator: generator.pid,
      ...(contender.pid !== null && { gateway: contender.pid }),
      ...(contender.shop !== null && postgresPid !== null && { postgres: postgresPid }),
      ...(contender.shop !== null && redisPid !== null && { redis: redisPid }),
    },
    gatewayPid: contender.pid,
  };
}

/** Counts now. The returned function counts again, and reports differences from the `good` answers in between. */
async function counting({ provider }: Stage, { shop }: Contender): Promise<(good: number) => Promise<string[]>> {
  const count = async () => ({
    calls: (await provider.helper.ask("count", REPLY_MS_MAX)).calls,
    ...(shop !== null && (await booksOf(shop))),
  });
  const before = await count();
  return async (good) => {
    const after = await count();
    const more = (name: "calls" | "units" | "records") => (after[name] ?? 0) - (before[name] ?? 0);
    const differs: string[] = [];
    if (more("calls") !== good) differs.push(`${good} good answers, but ${more("calls")} calls of the provider`);
    if (shop === null) return differs;
    if (more("units") !== good) differs.push(`${good} good answers, but ${more("units")} units charged`);
    if (more("records") !== good) differs.push(`${good} good answers, but ${more("records")} usage records`);
    if (after.holds !== 0) differs.push(`${after.holds} holds have not ended`);
    return differs;
  };
}

/** The one request of each small package. */
async function exhaust(contenders: Contender[], results: Results): Promise<void> {
  for (const { port, host, name, shop } of contenders) {
    const body = JSON.stringify({ model: "chat-a", messages: [{ role: "user", content: "[[0 0 0 first 0]]" }] });
    for (const secret of shop?.exhausted ?? []) {
      const headers = { host, authorization: `Bearer ${secret}`, "content-type": "application/json" };
      const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, { method: "POST", headers, body });
      // 402: an earlier round has used it up.
      if (answer.status !== 200 && answer.status !== 402)
        results.failures.push(`${name}: a small package answers ${answer.status}: ${await answer.text()}`);
    }
  }
}

/** Memory with many streams open: opened once as a warm-up, and a second time to measure. */
async function hold(stage: Stage, workload: Workload, contender: Contender, results: Results): Promise<void> {
  const pid = contender.pid;
  if (pid === null || results.failures.length > 0) return;
  await stage.quiet.wait();
  await wave(stage, workload, contender, results);
  const startBytes = await atRest(pid);
  const openBytes = await wave(stage, workload, contender, results);
  const endBytes = await atRest(pid, startBytes);
  results.held.push({ contender: contender.name, streams: workload.inFlight, startBytes, openBytes, endBytes });
}

/** Opens all streams, measures, and ends them. Returns the memory while all were open. */
async function wave(stage: Stage, workload: Workload, contender: Contender, results: Results): Promise<number> {
  const { generator, provider } = stage;
  const check = await counting(stage, contender);
  const job = jobOf(stage, { workload, contender, round: 0, runMs: 0 });
  await generator.ask({ kind: "run", job }, REPLY_MS_MAX);
  await Bun.sleep(HELD_MS);
  const bytes = residentBytes(contender.pid ?? 0) ?? 0;
  const { open } = await provider.helper.ask("count", REPLY_MS_MAX);
  const failures = open === workload.inFlight ? [] : [`${open} of ${workload.inFlight} streams are open`];
  await provider.helper.ask("end streams", REPLY_MS_MAX);
  const reply = await generator.ask({ kind: "finish" }, REPLY_MS_MAX);
  if (reply === "held") throw new Error("the generator goes on holding");
  failures.push(...reply.problems, ...(await check(reply.good)));
  results.failures.push(...failures.map((failure) => `${workload.name}, ${contender.name}: ${failure}`));
  return bytes;
}

/** The lowest memory, once it no longer falls or is at the earlier level; bytes. */
async function atRest(pid: number, before = 0): Promise<number> {
  const beganMs = performance.now();
  let least = Number.POSITIVE_INFINITY;
  let fellMs = beganMs;
  for (;;) {
    await Bun.sleep(REST_LOOK_MS);
    const now = performance.now();
    const bytes = residentBytes(pid) ?? 0;
    if (bytes < least) {
      if (bytes < least / REST_RATIO_MAX) fellMs = now;
      least = bytes;
    }
    if (least <= before * REST_RATIO_MAX || now - fellMs > REST_STABLE_MS || now - beganMs > REST_MS_MAX) return least;
  }
}

/** Checks the ledger's own invariants, over everything that was measured. */
async function checkViews({ contenders, say }: Stage, results: Results): Promise<void> {
  for (const { name, shop } of contenders) {
    if (shop === null) continue;
    say(`${name}: the books are read`);
    results.failures.push(
      ...(await shop.world.unbalanced()).map((what) => `${name}: the books do not balance: ${what}`),
    );
  }
}
