import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { type Provider, startProvider } from "../bench/contenders.ts";
import { type Figures, spread } from "../bench/figures.ts";
import type { GeneratorQuestion, GeneratorReply, Job } from "../bench/generator.ts";
import { type Helper, startHelper } from "../bench/helper.ts";
import { Pace, Window } from "../bench/pace.ts";
import { asText, fixedTables } from "../bench/report.ts";
import { fixedWorkloads } from "../bench/workloads.ts";

/** The bench at a fixed rate: what is due, that a pause of the server is seen by everybody who would have waited, and what is reported. */

setDefaultTimeout(120_000);

const REPLY_MS_MAX = 100_000;
/** A machine that stands still for some seconds does not end a run. */
const PATIENT_MS = 60_000;

const stops: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const stop of stops.reverse()) await stop();
});

describe("pace", () => {
  test("requests are due in steps of a millisecond, as many as the rate says, and each once", () => {
    const pace = new Pace({ perSecond: 2_500, startMs: 100 });
    const due: number[] = [];
    for (let at = pace.take(109.9); at !== undefined; at = pace.take(109.9)) due.push(at);
    expect(due).toHaveLength(25);
    expect(due.slice(0, 8)).toEqual([100, 100, 100, 101, 101, 102, 102, 102]);
    expect([due.at(-1), pace.nextMs, pace.take(109.9)]).toEqual([109, 110, undefined]);
  });

  test("a rate below one a step, and one that no step divides, lose no request", () => {
    for (const perSecond of [1, 3, 700, 999, 3_333]) {
      const pace = new Pace({ perSecond, startMs: 0 });
      let taken = 0;
      while (pace.take(9_999) !== undefined) taken++;
      expect([perSecond, taken]).toEqual([perSecond, 10 * perSecond]);
    }
  });

  test("a server kept up if nearly all that should have started was answered when the time ended", () => {
    const window = (answered: number) => {
      const one = new Window({ fromMs: 0, toMs: 100, planMs: 10 });
      for (let i = 0; i < 100; i++) one.sent(i);
      for (let i = 0; i < answered; i++) one.answered(i, 110);
      for (let i = answered; i < 100; i++) one.answered(i, 111);
      // What should have started before or after counts neither way.
      for (const outside of [-1, 100, 250]) one.sent(outside);
      return one.isCarried;
    };
    expect([window(100), window(98), window(97), window(0)]).toEqual([true, true, false, false]);
    expect(new Window({ fromMs: 0, toMs: 100, planMs: 0 }).isCarried).toBe(false);
  });

  test("a pause of half a second in ten: at a fixed rate it is seen by a twentieth of the requests, by a client that waits for its answers as one", () => {
    /** A server with one place that takes 1 ms for a request, and begins none from 5,000 to 5,500. */
    const server = () => {
      let freeMs = 0;
      return (atMs: number): number => {
        const begins = Math.max(atMs, freeMs);
        freeMs = (begins >= 5_000 && begins < 5_500 ? 5_500 : begins) + 1;
        return freeMs;
      };
    };
    const open: number[] = [];
    const serve = server();
    const pace = new Pace({ perSecond: 500, startMs: 0 });
    for (let at = pace.take(9_999); at !== undefined; at = pace.take(9_999)) open.push(serve(at) - at);
    const closed: number[] = [];
    const alone = server();
    for (let now = 0; now < 10_000; ) {
      const end = alone(now);
      closed.push(end - now);
      now = end;
    }
    const slow = (taken: number[]) => taken.filter((ms) => ms > 100).length;
    expect([open.length, slow(open)]).toEqual([5_000, 401]);
    expect(spread(open).p99).toBeGreaterThan(400);
    expect([closed.length, slow(closed), spread(closed)]).toEqual([9_500, 1, { p50: 1, p99: 1, p999: 1 }]);
  });
});

type Generator = Helper<GeneratorQuestion, GeneratorReply | "held">;

async function startBoth(pauseAt = ""): Promise<{ provider: Provider; generator: Generator }> {
  const provider = await startProvider({ BENCH_PAUSE_AT: pauseAt });
  stops.push(provider.helper.stop);
  const file = join(import.meta.dirname, "../bench/generator.ts");
  const { helper } = await startHelper<GeneratorQuestion, GeneratorReply | "held", object>(file, {});
  stops.push(helper.stop);
  return { provider, generator: helper };
}

async function ran({ provider, generator }: Awaited<ReturnType<typeof startBoth>>, job: Partial<Job>) {
  const whole: Job = {
    ...{
      port: provider.port,
      host: "provider",
      secrets: ["sk-unused"],
      inFlight: 256,
      perSecond: 500,
      bodyBytes: 1_024,
    },
    ...{ plan: { delayMs: 0, chunks: 0, everyMs: 0 }, status: 200, held: false, answersMin: 1 },
    ...{ warmMs: 100, runMs: 1_000, pids: {}, gatewayPid: null, behindMsMax: PATIENT_MS, ...job },
  };
  const reply = await generator.ask({ kind: "run", job: whole }, REPLY_MS_MAX);
  if (reply === "held") throw new Error("the generator held what it should have measured");
  const { calls } = await provider.helper.ask("count", REPLY_MS_MAX);
  return { ...reply, calls };
}

test("at 500 a second, one second has 500 requests, each asked and answered once, in JSON and in streams", async () => {
  const both = await startBoth();
  const json = await ran(both, {});
  expect(json).toMatchObject({ problems: [], measured: 500, seconds: 1, relayMs: null, calls: json.good });
  // Before the measured time: 100 ms, and those until it begins.
  expect(json.good).toBeGreaterThanOrEqual(600);
  const streams = await ran(both, { perSecond: 100, plan: { delayMs: 0, chunks: 20, everyMs: 5 } });
  expect(streams).toMatchObject({ problems: [], measured: 100, calls: json.good + streams.good });
  expect(streams.atRate).toMatchObject({ perSecond: 100 });
  // Every chunk of the measured time, whoever began it.
  expect(streams.chunks).toBeGreaterThanOrEqual(20 * 80);
});

test("chunks that are written together arrive one by one, each counted, with the mark in the first", async () => {
  const plan = { delayMs: 0, chunks: 200, everyMs: 0, perWrite: 200 };
  const bursts = await ran(await startBoth(), { perSecond: 20, plan });
  expect(bursts).toMatchObject({ problems: [], measured: 20 });
  const uneven = await ran(await startBoth(), { perSecond: 20, plan: { ...plan, everyMs: 1, perWrite: 64 } });
  expect(uneven).toMatchObject({ problems: [], measured: 20 });
});

test("a provider that stands still for 400 ms of the second shows in the p99: whoever should have started meanwhile has waited", async () => {
  const pauseMs = 400;
  // The 150th request is due in the measured time, and 200 requests are due in the pause.
  // Four clients would have sent only four requests: fewer than one in a hundred.
  const reply = await ran(await startBoth(`150:${pauseMs}`), { inFlight: 4 });
  expect(reply).toMatchObject({ problems: [], measured: 500 });
  expect(reply.wholeMs.p99).toBeGreaterThan(pauseMs * 0.75);
  expect(reply.wholeMs.p999).toBeGreaterThan(pauseMs * 0.75);
});

test("a server that falls too far behind did not keep up: the run ends, and every request that was sent has its answer", async () => {
  const reply = await ran(await startBoth("150:1500"), { inFlight: 4, behindMsMax: 200 });
  expect(reply.problems).toEqual([]);
  expect(reply.atRate).toMatchObject({ perSecond: 500, isCarried: false });
  expect(reply.measured).toBeLessThan(500);
  expect(reply.calls).toBe(reply.good);
});

test("the report: what is added is less bare's of the same round, and who did not keep up has no latency", () => {
  const workloads = fixedWorkloads([3_000, 10_000]);
  const figures = (contender: "bare" | "tollgate", workload: string, ms: number, isCarried = true): Figures => ({
    ...{ contender, workload, round: 1, measured: 3, perSecond: 3, gatewayCpuUs: ms * 100, postgresCpuUs: null },
    ...{ redisCpuUs: null, providerLoad: null, generatorLoad: null, relayMs: null, residentMb: null },
    wholeMs: { p50: ms, p99: 2 * ms, p999: 4 * ms },
    firstByteMs: { p50: 0, p99: 0, p999: 0 },
    atRate: { perSecond: 3, isCarried, lateMs: { p50: 0.1, p99: 0.2, p999: 0.3 } },
  });
  const all = [
    ...[figures("bare", "fixed-json-3000", 1), figures("tollgate", "fixed-json-3000", 3)],
    ...[figures("bare", "fixed-json-10000", 2), figures("tollgate", "fixed-json-10000", 900, false)],
  ];
  const [slow, fast, kept] = fixedTables(workloads, all);
  expect(slow?.rows).toEqual([
    ["bare", "1 of 1", "1.00", "2.00", "4.00", "–", "–", "–", "100", "1", "–", "–", "–", "0.10", "0.20"],
    [
      "tollgate",
      "1 of 1",
      "3.00",
      "6.00",
      "12.00",
      "2.00",
      "4.00",
      "8.00",
      "300",
      "3.00–3.00–3.00",
      "–",
      "–",
      "–",
      "0.10",
      "0.20",
    ],
  ]);
  expect(fast?.rows[1]?.slice(0, 9)).toEqual(["tollgate", "0 of 1", ...Array.from({ length: 7 }, () => "–")]);
  expect(kept?.rows).toEqual([
    ["bare", "10,000", "none"],
    ["tollgate", "3,000", "none"],
  ]);
  expect(asText(kept ?? { title: "", note: "", head: [], rows: [] })).toContain("JSON a second");
});
