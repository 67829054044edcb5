import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { command, type Flags } from "./command.ts";
import { type Contender, type Provider, startContender, startProvider } from "./contenders.ts";
import { threadMs } from "./cpu.ts";
import { type Range, rangeOf } from "./figures.ts";
import type { GeneratorQuestion, GeneratorReply, Job } from "./generator.ts";
import { rangeText } from "./goals.ts";
import { type Helper, startHelper } from "./helper.ts";
import { disturbances, machine } from "./machine.ts";
import { asMarkdown, asText } from "./report.ts";
import { type BenchServices, startBenchServices } from "./servers.ts";
import { writeFigures } from "./written.ts";

/**
 * `bun run bench:parts`: what each part of a JSON request costs in CPU, and adds to p50 and p99. The gateway runs complete, and then with one more part removed
 * at a time (`bench/without.ts`), beside the bare proxy, in alternating rounds. A part costs the CPU per request that its removal
 * saves. The lean gateway beside them does the least that is possible with this ledger. For the bare proxy and the whole gateway it also
 * shows the CPU of each thread. CPU is read from /proc, so it needs Linux. Exits with 1 if a response was not the expected one.
 */

const BARE = "bare proxy";
const WHOLE = "whole";
/** One gateway per line, without the parts in `without`. `part` is what the next line's gateway lacks in addition. */
const LINES: readonly { what: string; part: string; without: readonly string[] }[] = [
  { what: WHOLE, part: "the rate limiter, in Redis", without: [] },
  { what: "without the rate limiter", part: "the ledger: reserve and settle", without: ["limiter"] },
  { what: "… and the ledger", part: "the call to the provider", without: ["limiter", "ledger"] },
  {
    what: "… and the call to the provider",
    part: "the flow: model, bounds, failover, the answer read and patched",
    without: ["limiter", "ledger", "provider"],
  },
  {
    what: "… and the flow",
    part: "admission: host, key, body read, parsed and checked",
    without: ["limiter", "ledger", "provider", "flow"],
  },
  {
    what: "… and admission",
    part: "the server and the router",
    without: ["limiter", "ledger", "provider", "flow", "admission"],
  },
];
/** Gateways that are measured beside those: see `bench/lean.ts`. */
const LEAN = [
  { what: "lean, no ledger", without: ["ledger"], isLean: true },
  { what: "lean", without: [], isLean: true },
] as const;
const IN_FLIGHT = [32, 256];
const BODY_BYTES = 1024;
/** As `threadMs` names them. */
const THREADS_SHOWN = ["JavaScript", "fetch", "garbage collector", "compiler", "allocator", "others"];
const WARM_MS = 300;
const WARM_UP_MS = 30_000;
const REPLY_MS_MAX = 60_000;
const FULL = { rounds: 5, runMs: 3_000 } as const;
const QUICK = { rounds: 3, runMs: 1_500 } as const;

/** `us`: CPU of the gateway per request, in µs; `threadUs`: the same by thread; `p50`, `p99`: of the whole answer, in ms. */
type Measured = {
  inFlight: number;
  round: number;
  what: string;
  us: number;
  threadUs: Record<string, number>;
  p50: number;
  p99: number;
};
type Stage = {
  services: BenchServices;
  provider: Provider;
  generator: Helper<GeneratorQuestion, GeneratorReply | "held">;
  contenders: { what: string; contender: Contender }[];
  problems: string[];
};

await command("parts", async (flags, atEnd) => {
  if (process.platform !== "linux") throw new Error("CPU is read from /proc, which this system does not have.");
  const host = machine();
  for (const line of disturbances(host)) say(`note: ${line}`);
  const services = await startBenchServices(false, say);
  atEnd(services.stop);
  process.env.DATABASE_URL = services.databaseUrl;
  const provider = await startProvider({ BENCH_BREAKS_ONE_IN: "0" });
  atEnd(provider.helper.stop);
  const { helper: generator } = await startHelper<GeneratorQuestion, GeneratorReply | "held", object>(
    join(import.meta.dirname, "generator.ts"),
    {},
  );
  atEnd(generator.stop);
  const stage: Stage = { services, provider, generator, contenders: [], problems: [] };
  const options = { provider, redisUrl: services.redisUrl };
  const bare = await startContender("bare", options);
  atEnd(bare.stop);
  stage.contenders.push({ what: BARE, contender: bare });
  for (const { what, without, isLean } of [...LEAN, ...LINES.map((line) => ({ ...line, isLean: false }))]) {
    const contender = await startContender("tollgate", { ...options, without, isLean });
    atEnd(contender.stop);
    stage.contenders.push({ what, contender });
  }
  return await run(stage, flags, [
    `bun run bench:parts ${process.argv.slice(2).join(" ")}`.trim(),
    `${host.cpu}, ${host.cores} cores shared by client, provider, gateway, Redis and Postgres, Bun ${host.bun}`,
    ...disturbances(host).map((line) => `note: ${line}`),
  ]);
});

async function run(stage: Stage, { isQuick, write, json }: Flags, facts: string[]): Promise<boolean> {
  const { rounds, runMs } = isQuick ? QUICK : FULL;
  const measured: Measured[] = [];
  for (const { what, contender } of stage.contenders) {
    say(`${what}: warming up`);
    await measure(stage, contender, { inFlight: 128, runMs: WARM_UP_MS });
  }
  for (const inFlight of IN_FLIGHT) {
    for (let round = 1; round <= rounds; round++) {
      say(`${inFlight} in flight, round ${round} of ${rounds}`);
      const inTurn = round % 2 === 0 ? stage.contenders.toReversed() : stage.contenders;
      for (const { what, contender } of inTurn)
        measured.push({ round, what, ...(await measure(stage, contender, { inFlight, runMs })) });
    }
  }
  const tables = [...IN_FLIGHT.map((inFlight) => tableOf(measured, inFlight, rounds)), threadTable(measured)];
  for (const line of facts) console.log(line);
  for (const table of tables) console.log(asText(table));
  if (json !== undefined) writeFileSync(json, `${JSON.stringify({ facts, measured }, null, 1)}\n`);
  if (write !== undefined && stage.problems.length === 0)
    writeFigures(write, "parts", [...facts.map((fact) => `- ${fact}`), "", ...tables.map(asMarkdown)].join("\n"));
  for (const problem of stage.problems) console.error(`FAILED ${problem}`);
  return stage.problems.length === 0;
}

async function measure(
  stage: Stage,
  contender: Contender,
  load: { inFlight: number; runMs: number },
): Promise<Omit<Measured, "round" | "what">> {
  const { generator, provider } = stage;
  const before = threadMs(contender.pid ?? 0);
  const job: Job = {
    ...{ port: contender.port, host: contender.host, secrets: contender.shop?.secrets ?? ["sk-unused"] },
    ...{ plan: { delayMs: 0, chunks: 0, everyMs: 0 }, bodyBytes: BODY_BYTES, status: 200, held: false },
    ...{ warmMs: WARM_MS, answersMin: 1, ...load, gatewayPid: contender.pid },
    pids: { provider: provider.helper.pid, generator: generator.pid, gateway: contender.pid ?? 0 },
  };
  const reply = await generator.ask({ kind: "run", job }, REPLY_MS_MAX);
  if (reply === "held") throw new Error("the generator held the streams open instead of measuring them");
  stage.problems.push(...reply.problems);
  const after = threadMs(contender.pid ?? 0);
  const threadUs = Object.fromEntries(
    Object.entries(after).map(([work, ms]) => [work, ((ms - (before[work] ?? 0)) * 1000) / reply.good]),
  );
  const { p50, p99 } = reply.wholeMs;
  const us = ((reply.cpuMs.gateway ?? 0) * 1000) / reply.measured;
  return { inFlight: load.inFlight, us, threadUs, p50, p99 };
}

function tableOf(measured: readonly Measured[], inFlight: number, rounds: number) {
  const one = (what: string, round: number) =>
    measured.find((m) => m.inFlight === inFlight && m.what === what && m.round === round);
  const of = (what: string, round: number) => one(what, round)?.us ?? Number.NaN;
  const overRounds = (pick: (round: number) => number) =>
    rangeOf(Array.from({ length: rounds }, (_, i) => pick(i + 1)));
  const us = (range: Range | null) =>
    range === null ? "–" : `${range.median.toFixed(0)} (${range.min.toFixed(0)}–${range.max.toFixed(0)})`;
  const cpu = (what: string) => {
    const ratio = what === BARE ? "1" : rangeText(overRounds((round) => of(what, round) / of(BARE, round)));
    const ms = (of: "p50" | "p99") =>
      overRounds((round) => one(what, round)?.[of] ?? Number.NaN)?.median.toFixed(2) ?? "–";
    return [what, ms("p50"), ms("p99"), us(overRounds((round) => of(what, round))), ratio];
  };
  const rows = LINES.map(({ what, part }, i) => {
    const next = LINES[i + 1]?.what;
    const cost = overRounds((round) => of(what, round) - (next === undefined ? 0 : of(next, round)));
    return [...cpu(what), part, us(cost)];
  });
  const beside = [BARE, ...LEAN.map(({ what }) => what)].map((what) => [...cpu(what), "", ""]);
  return {
    title: `${inFlight} in flight`,
    note: `CPU of the gateway, µs a request: median (smallest–largest) of ${rounds} rounds; p50 and p99 of the whole answer: the median of the rounds`,
    head: ["gateway", "p50 ms", "p99 ms", "CPU µs", "× bare", "what the next line lacks", "costs µs"],
    rows: [...beside, ...rows],
  };
}

/** The fetch thread runs none of our code: what it costs more in the gateway than in the bare proxy, it costs by where it runs. */
function threadTable(measured: readonly Measured[]) {
  const columns = IN_FLIGHT.flatMap((inFlight) => [BARE, WHOLE].map((what) => ({ inFlight, what })));
  const cell = (work: string, { inFlight, what }: (typeof columns)[number]) => {
    const rounds = measured.filter((one) => one.inFlight === inFlight && one.what === what);
    return rangeOf(rounds.map(({ threadUs }) => threadUs[work] ?? 0))?.median.toFixed(1) ?? "–";
  };
  return {
    title: "By thread",
    note: "CPU, µs a request: median of the rounds, with the requests before each measurement",
    head: ["thread", ...columns.map(({ inFlight, what }) => `${what}, ${inFlight} in flight`)],
    rows: THREADS_SHOWN.map((work) => [work, ...columns.map((column) => cell(work, column))]),
  };
}

function say(line: string): void {
  console.error(line);
}
