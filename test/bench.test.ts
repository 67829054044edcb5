import { describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LEFT_OUT } from "../bench/left_out.ts";
import { readOptions } from "../bench/options.ts";
import { Quiet } from "../bench/quiet.ts";
import { goalsTable } from "../bench/report.ts";
import { wrongInLastEvent, wrongInResponse } from "../bench/response_checks.ts";
import { RESPONSES_STREAMS } from "./gateway/responses_streams.ts";

/** The bench as it is run, only shorter: on the tests' Postgres and Redis. */

const TEST_MS_MAX = 180_000;
const REPOSITORY = join(import.meta.dirname, "..");
const SHORT = ["--given-services", "--rounds", "1", "--seconds", "0.5", "--warm-up", "1"];

type Figures = {
  workload: string;
  contender: string;
  measured: number;
  perSecond: number;
  gatewayCpuUs: number | null;
};

async function bench(...args: string[]) {
  const child = Bun.spawn([process.execPath, "bench/run.ts", ...args], {
    cwd: REPOSITORY,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [stdout, stderr, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { stdout, stderr, code };
}

describe("bench", () => {
  test("each line that bench:parts leaves out is in the source exactly once", () => {
    for (const { file, from } of Object.values(LEFT_OUT).flat()) {
      const source = readFileSync(join(REPOSITORY, "src", file), "utf8");
      expect({ file, from, times: source.split(from).length - 1 }).toEqual({ file, from, times: 1 });
    }
  });

  test(
    "a run prints the figures of every contender, equal books, and the ratios last, and exits with 0",
    async () => {
      const folder = mkdtempSync(join(tmpdir(), "tollgate-bench-test-"));
      const file = join(folder, "figures.json");
      try {
        const only = ["--only", "json32,stream50", "--contenders", "bare,tollgate"];
        const { stdout, stderr, code } = await bench(...SHORT, ...only, "--json", file, "--pictures", folder);
        expect({ code, stderr: code === 0 ? "" : stderr }).toEqual({ code: 0, stderr: "" });
        const report: { figures: Figures[]; failures: string[] } = JSON.parse(readFileSync(file, "utf8"));
        expect(report.failures).toEqual([]);
        expect(report.figures.map((f) => `${f.workload} ${f.contender}`).sort()).toEqual([
          "json32 bare",
          "json32 tollgate",
          "stream50 bare",
          "stream50 tollgate",
        ]);
        for (const figures of report.figures) {
          expect(figures.measured).toBeGreaterThan(0);
          expect(figures.perSecond).toBeGreaterThan(0);
          if (process.platform === "linux") expect(figures.gatewayCpuUs).toBeGreaterThan(0);
        }
        expect(stdout.slice(stdout.lastIndexOf("\n\n"))).toMatch(
          /^\n\nGoals\n[\s\S]*JSON, 32 in flight, 0 ms: rate against bare/,
        );
        expect(readFileSync(join(folder, "rate.svg"), "utf8")).toContain("json32");
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
    TEST_MS_MAX,
  );

  test(
    "a run of the responses measures them in turns with chats of the same size, and prints only their goals",
    async () => {
      const { stdout, stderr, code } = await bench(...SHORT, "--only", "responses");
      expect({ code, stderr: code === 0 ? "" : stderr }).toEqual({ code: 0, stderr: "" });
      const [table = "", goals = ""] = stdout.split("\n\n").slice(-2);
      expect(table.split("\n").map((line) => line.split(":")[0])).toEqual([
        ...["POST /v1/responses against chat", expect.stringContaining("× chat")],
        ...["chat-json", "own-json", "translated-json", "chat-stream", "own-stream", "translated-stream"],
        expect.stringContaining("in turns"),
      ]);
      expect(goals.match(/CPU against chat.*(met|MISSED)$/gm)).toHaveLength(4);
      expect(goals).not.toContain("against bare");
    },
    TEST_MS_MAX,
  );

  test(
    "a run at a fixed rate prints the latencies that are added, the machine, and equal books",
    async () => {
      const only = ["--only", "fixed-json-50,fixed-stream-100", "--rates", "50", "--contenders", "bare,tollgate"];
      const { stdout, stderr, code } = await bench(...SHORT, ...only);
      expect({ code, stderr: code === 0 ? "" : stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout).toMatch(
        /^bun run bench .*\n.* cores shared by client, provider, gateway, Redis and Postgres, \d+ GB/,
      );
      const [json = "", streams = "", kept = ""] = stdout.split("\n\n").slice(2);
      expect(json).toMatch(/^fixed-json-50: JSON 1 KB, 50 requests a second[\s\S]*\nbare [\s\S]*\ntollgate /);
      expect(streams).toMatch(/^fixed-stream-100: 100 streams a second of 50 chunks[\s\S]*\ntollgate /);
      expect(kept).toStartWith("The highest of these rates at which each kept up");
      expect(stdout).not.toContain("Goals");
    },
    TEST_MS_MAX,
  );

  test(
    "a run against a provider that breaks one answer in a hundred fails, and says why",
    async () => {
      const args = ["--only", "json32", "--contenders", "tollgate", "--breaks-one-in", "100"];
      const { stdout, code } = await bench(...SHORT, ...args);
      expect(code).toBe(1);
      expect(stdout).toMatch(/FAILED\nwarm-up, tollgate, round 0: \d+ × status 50\d in place of 200/);
      expect(stdout).toMatch(/\d+ good answers, but \d+ calls of the provider/);
    },
    TEST_MS_MAX,
  );

  test.each([
    { args: ["--only", "json33"], says: "--only: no such name: json33; one of json1, json32" },
    { args: ["--rounds", "0"], says: '--rounds must be a whole number above 0 and at most 100, not "0"' },
    { args: ["--seconds", "long"], says: '--seconds must be a number above 0 and at most 120, not "long"' },
    { args: ["--contenders", "apache"], says: "--contenders: no such name: apache" },
    { args: ["--accounts", "0"], says: '--accounts must be a whole number above 0 and at most 1000, not "0"' },
    { args: ["--accounts", "1.5"], says: '--accounts must be a whole number above 0 and at most 1000, not "1.5"' },
    { args: ["--write", "README.md"], says: "README.md has no <!-- figures --> and <!-- /figures --> behind it" },
    { args: ["--earlier", "package.json"], says: "package.json is no JSON of bun run bench" },
    { args: ["--only", "responses", "--contenders", "bare"], says: "--contenders: none of them has these workloads" },
    { args: ["--rates", "3000"], says: "--rates is of the workloads of --only fixed" },
    {
      args: ["--only", "fixed", "--rates", "0"],
      says: '--rates must be a whole number above 0 and at most 1000000, not "0"',
    },
    { args: ["--only", "fixed", "--rates", "1e9"], says: "--rates must be a whole number above 0 and at most" },
    { args: ["--only", "fixed-json-7"], says: "--only: no such name: fixed-json-7" },
    { args: ["--fast"], says: "Unknown option '--fast'" },
  ])("bad flags end with 2 and one clear line: $args", async ({ args, says }) => {
    const { stderr, code } = await bench(...args);
    expect(code).toBe(2);
    expect(stderr).toStartWith(says);
  });
});

test("the goals of several runs have a column each, and the number of runs that met them", () => {
  const goal = (what: string, measured: string, met: boolean | null) => ({ what, goal: "≤ 1", measured, met });
  const first = [goal("rate", "0.9", true), goal("CPU", "3", false), goal("memory", "–", null)];
  const last = [goal("rate", "1.1", false), goal("CPU", "2", false), goal("memory", "1", true)];
  const { head, rows } = goalsTable(last, [first]);
  expect(head.slice(2)).toEqual(["run 1", "run 2", ""]);
  expect(rows).toEqual([
    ["rate", "≤ 1", "0.9", "1.1", "met in 1 of 2"],
    ["CPU", "≤ 1", "3", "2", "MISSED"],
    ["memory", "≤ 1", "–", "1", "met"],
  ]);
});

describe("options", () => {
  test.each([
    { args: [], contenders: ["direct", "bare", "bare-js", "nginx", "tollgate", "peer"] },
    { args: ["--peers"], contenders: ["direct", "bare", "bare-js", "nginx", "tollgate", "peer", "portkey", "litellm"] },
    { args: ["--quick", "--peers"], contenders: ["bare", "tollgate", "portkey", "litellm"] },
    { args: ["--contenders", "litellm,bare"], contenders: ["bare", "litellm"] },
    { args: ["--only", "responses"], contenders: ["tollgate"] },
    { args: ["--contenders", "tollgate", "--peers"], contenders: ["tollgate", "portkey", "litellm"] },
  ])("other gateways are measured only when asked for: $args", ({ args, contenders }) => {
    expect(readOptions([...args])).toMatchObject({ contenders });
  });

  test("32 accounts share the load unless --accounts says otherwise", () => {
    expect(readOptions([])).toMatchObject({ accounts: 32 });
    expect(readOptions(["--accounts", "1"])).toMatchObject({ accounts: 1 });
  });
});

describe("responses", () => {
  const SAID = "All that was said.";
  const [{ json, ending }] = RESPONSES_STREAMS;
  const answer = json(SAID).replace("gpt-4o-mini-2024-07-18", "own-a");
  const expected = { model: "own-a", isSaid: (text: string) => text === SAID };
  const lastEvent = (ending(SAID, 3).split("\ndata: ").at(-1) ?? "").replace("gpt-4o-mini-2024-07-18", "own-a");

  test("a whole answer, and a last event with its number, are right", () => {
    expect([wrongInResponse(answer, expected), wrongInLastEvent(lastEvent, 11, expected)]).toEqual([
      undefined,
      undefined,
    ]);
    expect(wrongInLastEvent(lastEvent, 10, expected)).toBe("a stream of 10 events, whose last one has the number 10");
  });

  test.each([
    { from: '"completed","background"', to: '"incomplete","background"', says: "a response that is incomplete" },
    { from: "own-a", to: "up-a", says: "a response of the model up-a" },
    { from: SAID, to: SAID.slice(0, -1), says: "a response with another output" },
    { from: '"output":[', to: '"output":[{},', says: "a response with another output" },
    { from: '"total_tokens":18', to: '"total_tokens":17', says: "a response with the usage" },
    { from: "}}", to: "", says: "a response that is undefined" },
  ])("the generator says what is wrong: $says", ({ from, to, says }) => {
    expect(answer).toContain(from);
    expect(wrongInResponse(answer.replace(from, to), expected)).toStartWith(says);
    expect(wrongInLastEvent(lastEvent.replace(from, to), 11, expected)).toBeString();
  });
});

describe("quiet", () => {
  /** CPU that grows by one second at each reading, until `readings` are over. */
  const busyFor = (readings: number) => {
    let read = 0;
    return () => ({ postgres: 1000 * Math.min(++read, readings), redis: 0 });
  };

  test("waits until the processes are quiet, and then reports nothing", async () => {
    const said: string[] = [];
    let readings = 0;
    const cpuOf = busyFor(3);
    const read = () => {
      readings++;
      return cpuOf();
    };
    const quiet = new Quiet({ pids: { postgres: 1, redis: 2 }, say: (line) => said.push(line), read });
    await quiet.wait(TEST_MS_MAX);
    // Two windows, each read at its begin and at its end: in the first the CPU grew.
    expect(readings).toBe(4);
    expect({ said, summary: quiet.summary() }).toEqual({ said: [], summary: undefined });
  });

  test("continues after its time limit, and names the busy processes", async () => {
    const said: string[] = [];
    const quiet = new Quiet({ pids: { postgres: 1, redis: 2 }, say: (line) => said.push(line), read: busyFor(1e9) });
    await quiet.wait(1);
    expect(said).toHaveLength(1);
    expect(said[0]).toMatch(/^not quiet after \d+\.\d s: postgres \d+ %; measuring nevertheless$/);
    expect(quiet.summary()).toStartWith("1 of 1 times");
  });
});
