import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bars, type Group } from "./bars.ts";
import { type Contender, GATEWAY_SETTINGS, type Provider, startContender, startProvider } from "./contenders.ts";
import { type Figures, pairedRatio, rangeOf } from "./figures.ts";
import type { GeneratorQuestion, GeneratorReply } from "./generator.ts";
import { goalsOf } from "./goals.ts";
import { type Helper, startHelper } from "./helper.ts";
import { disturbances, machine, possible } from "./machine.ts";
import { measure, type Results } from "./measure.ts";
import { type Options, PLACE, readOptions, USAGE, UsageError } from "./options.ts";
import { installPeers, startPeer } from "./peers.ts";
import { Quiet } from "./quiet.ts";
import {
  asMarkdown,
  asText,
  commitLine,
  fixedTables,
  goalsTable,
  heldTable,
  responsesTable,
  workloadTables,
  workTable,
} from "./report.ts";
import { type BenchServices, startBenchServices } from "./servers.ts";
import { CONTENDERS, type ContenderName, isPeer, type Workload } from "./workloads.ts";
import { writeFigures } from "./written.ts";

/**
 * `bun run bench`: the gateway with all its work, on real Postgres and Redis, against proxies that do none of it, in
 * alternating rounds. Ends with 1 when an answer was wrong or the books differ, with 2 when the command line is.
 */

type Report = {
  command: string;
  machine: ReturnType<typeof machine>;
  services: string;
  missing: string[];
  workloads: Workload[];
} & Results;

/** What was started, in order. Ended backwards, whatever happens. */
const started: (() => Promise<void>)[] = [];

await main().catch(async (error) => {
  await stopAll();
  console.error(error instanceof Error ? error.message : error);
  process.exit(error instanceof UsageError ? 2 : 1);
});

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2));
  if (options === "help") return console.log(USAGE);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(signal, () => void stopAll().finally(() => process.exit(130)));
  }
  const report = await run(options);
  await stopAll();
  show(report, options);
  process.exit(report.failures.length === 0 ? 0 : 1);
}

async function stopAll(): Promise<void> {
  for (let stop = started.pop(); stop !== undefined; stop = started.pop()) await stop();
}

async function run(options: Options): Promise<Report> {
  const host = machine();
  const { workloads, contenders, missing } = possible(options.workloads, options.contenders);
  const say = (line: string) => console.error(line);
  const cannot = await installPeers(contenders, say);
  const names = contenders.filter((name) => !isPeer(name) || !cannot.has(name));
  say("starting Postgres, Redis, the provider, the load generator and the contenders");
  const services = await startBenchServices(options.givenServices, say);
  started.push(services.stop);
  process.env.DATABASE_URL = services.databaseUrl;
  const stage = await startContenders(options, names, services, say);
  const lacks = [...disturbances(host), ...missing, ...cannot.values(), ...stage.missing, ...services.missing];
  for (const line of lacks) say(`note: ${line}`);
  const times = { rounds: options.rounds, roundMs: options.seconds * 1000, warmUpMs: options.warmUp * 1000 };
  const quiet = new Quiet({ pids: pidsOf(stage, services), say });
  const results = await measure({ ...stage, ...times, services, quiet, say }, workloads);
  const command = ["bun run bench", ...process.argv.slice(2)].join(" ");
  const notes = [...lacks, ...results.notes];
  return { command, machine: host, services: services.about, missing: notes, workloads, ...results };
}

type Started = {
  provider: Provider;
  generator: Helper<GeneratorQuestion, GeneratorReply | "held">;
  contenders: Contender[];
  /** A sentence for each peer that did not start. */
  missing: string[];
};

async function startContenders(
  options: Options,
  names: readonly ContenderName[],
  services: BenchServices,
  say: (line: string) => void,
): Promise<Started> {
  const provider = await startProvider({ BENCH_BREAKS_ONE_IN: String(options.breaksOneIn) });
  started.push(provider.helper.stop);
  const { helper: generator } = await startHelper<GeneratorQuestion, GeneratorReply | "held", object>(
    join(import.meta.dirname, "generator.ts"),
    {},
  );
  started.push(generator.stop);
  const contenders: Contender[] = [];
  const missing: string[] = [];
  const { redisUrl } = services;
  const { accounts, profile: profileDir } = options;
  for (const name of names) {
    try {
      const contender = isPeer(name)
        ? await startPeer(name, provider)
        : await startContender(name, { provider, redisUrl, accounts, profileDir });
      started.push(contender.stop);
      contenders.push(contender);
      if (contender.pid !== null) say(`${name}: process ${contender.pid}, port ${contender.port}`);
    } catch (error) {
      if (!isPeer(name)) throw error;
      missing.push(`${name} is left out: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return { provider, generator, contenders, missing };
}

/** The processes that must be quiet before a measurement. */
function pidsOf({ provider, generator, contenders }: Started, services: BenchServices): Record<string, number> {
  const { postgresPid, redisPid } = services;
  const pids: Record<string, number> = { provider: provider.helper.pid, generator: generator.pid };
  for (const { name, pid } of contenders) if (pid !== null) pids[name] = pid;
  // A Postgres and Redis that were given may have work of others, which does not end.
  if (redisPid !== null)
    Object.assign(pids, { redis: redisPid, ...(postgresPid !== null && { postgres: postgresPid }) });
  return pids;
}

/** Writes tables and files, and finally the goals or the errors. */
function show(report: Report, options: Options): void {
  const say = options.json === "-" ? console.error : console.log;
  const goals = goalsOf(report);
  const tables = [
    ...workTable(report.figures),
    ...workloadTables(report.workloads, report.figures),
    ...fixedTables(report.workloads, report.figures),
    ...responsesTable(report.workloads, report.figures),
    ...heldTable(report.held),
  ];
  const { cpu, cores, memoryGb, system, bun } = report.machine;
  const facts = [
    `${report.command}: ${options.rounds} rounds of ${options.seconds} s each, ${options.accounts} ${options.accounts === 1 ? "account" : "accounts"}`,
    `${cpu}, ${cores} cores shared by client, provider, gateway, Redis and Postgres, ${memoryGb} GB, ${system}, Bun ${bun}`,
    report.services,
    `the gateway's settings other than its defaults: ${Object.entries(GATEWAY_SETTINGS)
      .map((pair) => pair.join("="))
      .join(" ")}`,
    ...commitLine(report.commits),
    ...report.missing.map((line) => `note: ${line}`),
  ];
  say(facts.join("\n"));
  for (const table of tables) say(asText(table));
  if (options.json !== undefined) {
    const text = `${JSON.stringify({ ...report, settings: GATEWAY_SETTINGS, goals }, null, 1)}\n`;
    if (options.json === "-") process.stdout.write(text);
    else writeFileSync(options.json, text);
  }
  if (options.pictures !== undefined) draw(report, options.pictures);
  if (options.write !== undefined && report.failures.length === 0) {
    const lines = [...facts.map((fact) => `- ${fact}`), ""].join("\n");
    writeFigures(
      options.write,
      PLACE,
      [
        lines,
        ...(goals.length > 0 ? [goalsTable(goals, options.earlier)] : []).map(asMarkdown),
        ...tables.map(asMarkdown),
      ].join("\n"),
    );
  }
  if (goals.length > 0) say(asText(goalsTable(goals, options.earlier)));
  if (report.failures.length > 0) say(`\nFAILED\n${report.failures.join("\n")}`);
}

function draw(report: Report, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const series = CONTENDERS.filter((name) => report.figures.some((f) => f.contender === name));
  const groups = (
    pick: (name: string, contender: (typeof CONTENDERS)[number]) => number | undefined,
    digits: number,
  ): Group[] =>
    report.workloads
      .map(({ name }) => ({
        name,
        bars: series.flatMap((contender) => {
          const value = pick(name, contender);
          return value === undefined ? [] : [{ series: contender, value, label: value.toFixed(digits) }];
        }),
      }))
      .filter((group) => group.bars.length > 1);
  const ratios = (pick: (f: Figures) => number | null) =>
    groups((workload, contender) => {
      if (contender === "direct") return undefined;
      return pairedRatio(report.figures, { workload, contender, to: "bare" }, pick)?.median;
    }, 2);
  const relay = groups(
    (workload, contender) =>
      rangeOf(
        report.figures.filter((f) => f.workload === workload && f.contender === contender).map((f) => f.relayMs?.p99),
      )?.median,
    2,
  );
  const picture = (name: string, text: string) => writeFileSync(join(folder, name), text);
  picture(
    "rate.svg",
    bars(
      "Requests or streams a second, against the bare proxy in the same round",
      series,
      ratios((f) => f.perSecond),
      1,
    ),
  );
  picture(
    "cpu.svg",
    bars(
      "CPU of the gateway a request, against the bare proxy in the same round",
      series,
      ratios((f) => f.gatewayCpuUs),
      1,
    ),
  );
  picture(
    "relay.svg",
    bars("From the provider's write of a chunk to the client's read, 99th percentile, ms", series, relay),
  );
}
