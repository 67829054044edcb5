import { join } from "node:path";
import { PROVIDER_STREAMS } from "../test/gateway/provider_streams.ts";
import { type Contender, startContender, startProvider } from "./contenders.ts";
import { rangeOf } from "./figures.ts";
import type { GeneratorQuestion, GeneratorReply, Job } from "./generator.ts";
import { type Helper, startHelper } from "./helper.ts";
import { startBenchServices } from "./servers.ts";

/**
 * `bun run bench:streams --in-place`: what an event costs a running replica, and a bare proxy in JavaScript, by the shapes of providers:
 * the CPU of streams with many events less that of streams with few, for each event between them. The shapes are measured in turns; those above the aim are named. CPU
 * is read from /proc: Linux only.
 */

const FEW = 20;
const MANY = 820;
const ROUNDS = 5;
const RUN_MS = 1_500;
const WARM_MS = 500;
const IN_FLIGHT = 8;
const REPLY_MS_MAX = 120_000;
/** The most that an event may cost more than in the bare proxy. */
const AIM_MICROS = 3;

type Generator = Helper<GeneratorQuestion, GeneratorReply | "held">;

/** Measures all shapes, or those whose name has `only` in it, and prints a table. */
export async function measureInPlace(only: string): Promise<void> {
  const stops: (() => Promise<unknown>)[] = [];
  try {
    const services = await startBenchServices(false, say);
    stops.push(services.stop);
    process.env.DATABASE_URL = services.databaseUrl;
    const provider = await startProvider({ BENCH_BREAKS_ONE_IN: "1000000000" });
    stops.push(provider.helper.stop);
    const file = join(import.meta.dirname, "generator.ts");
    const { helper } = await startHelper<GeneratorQuestion, GeneratorReply | "held", object>(file, {});
    stops.push(helper.stop);
    const options = { provider, redisUrl: services.redisUrl, profileDir: undefined };
    const contenders: Contender[] = [];
    for (const name of ["tollgate", "bare-js"] as const) {
      const contender = await startContender(name, options);
      stops.push(contender.stop);
      contenders.push(contender);
    }
    await measureAll(helper, contenders, only);
  } finally {
    for (const stop of stops.reverse()) await stop();
  }
}

async function measureAll(generator: Generator, contenders: readonly Contender[], only: string): Promise<void> {
  const shapes = [...PROVIDER_STREAMS.keys()].filter((shape) => PROVIDER_STREAMS[shape]?.name.includes(only));
  const found = new Map(shapes.map((shape) => [shape, contenders.map((): number[] => [])]));
  for (let round = 1; round <= ROUNDS; round++) {
    for (const shape of shapes)
      for (const [i, contender] of contenders.entries())
        found.get(shape)?.[i]?.push(await eventMicros(generator, contender, shape));
    say(`round ${round} of ${ROUNDS}`);
  }
  console.log(
    `CPU of the process an event, µs; the median of ${ROUNDS} rounds; ${IN_FLIGHT} streams at once, without a pause\n`,
  );
  console.log(
    `| shape | ${contenders.map(({ name }) => name).join(" | ")} | above the bare proxy |\n| --- |${" --- |".repeat(contenders.length + 1)}`,
  );
  const above: string[] = [];
  for (const [shape, figures] of found) {
    const [own = Number.NaN, bare = Number.NaN] = figures.map((micros) => rangeOf(micros)?.median);
    const { name = "" } = PROVIDER_STREAMS[shape] ?? {};
    if (own - bare > AIM_MICROS) above.push(name);
    console.log(`| ${[name, ...[own, bare, own - bare].map((micros) => micros.toFixed(2))].join(" | ")} |`);
  }
  console.log(`\nAbove ${AIM_MICROS} µs: ${above.join("; ") || "none"}`);
}

async function eventMicros(generator: Generator, contender: Contender, shape: number): Promise<number> {
  const few = await requestMicros(generator, contender, { shape, chunks: FEW });
  const many = await requestMicros(generator, contender, { shape, chunks: MANY });
  return (many - few) / (MANY - FEW);
}

/** CPU of the contender's process for a stream, in µs. */
async function requestMicros(
  generator: Generator,
  { port, host, shop, pid }: Contender,
  plan: { shape: number; chunks: number },
): Promise<number> {
  const job: Job = {
    ...{ port, host, secrets: shop?.secrets ?? [], inFlight: IN_FLIGHT, bodyBytes: 1_024, status: 200 },
    ...{ plan: { delayMs: 0, everyMs: 0, ...plan }, warmMs: WARM_MS, runMs: RUN_MS, answersMin: 1, held: false },
    ...{ gatewayPid: null, pids: { gateway: pid ?? 0 } },
  };
  const reply = await generator.ask({ kind: "run", job }, REPLY_MS_MAX);
  if (reply === "held") throw new Error("the generator held what it should have measured");
  if (reply.problems.length > 0) throw new Error(reply.problems.join("\n"));
  return ((reply.cpuMs.gateway ?? Number.NaN) * 1_000) / reply.measured;
}

function say(line: string): void {
  console.error(line);
}
