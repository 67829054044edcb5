/**
 * Runs every `test/**\/*.test.ts` against a real PostgreSQL and Redis, each file in a process of its own, and closes with the
 * line `N passed, N failed`. Arguments choose files by a part of their path: `bun run test ledger panel/api`.
 * The contract suite runs with its replicas on Bun, and its core on Deno too. `--all` adds what is slow by nature: the whole contract
 * suite on Deno, and SLOW_FILES. `--deno` runs only what runs on Deno. Files that are named are always run.
 * A skipped or todo test, a file without tests, one that does not load or never ends count as failed: nothing is left out silently.
 * Files that need a program which this machine lacks are left out aloud; with CI set they run, and fail.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { Glob } from "bun";
import { buildPanel, isPanelBuilt } from "./build_panel.ts";
import { type Services, startServices } from "./services.ts";

const testWaitMs = 60_000;
const fileWaitMs = 8 * 60_000;
/** Tests wait more than they work: two processors run four files at once. Of files that work all the time, two: more would make tests of time limits fail. */
const atOnceMax = availableParallelism() >= 2 ? 4 : 1;
const busyAtOnceMax = 2;
const busyFiles = /^test\/(?:browser\/|deploy\/|chaos|cli|bench|docs|backup|demo|ledger\/properties|gateway\/overload)/;
const isBusy = ({ file }: Job) => busyFiles.test(file);
/** The longest begin first, so that none of them is what everybody waits for in the end. */
const longestFirst = [
  "browser/looks",
  "test/chaos",
  "long_reads",
  "test/cli",
  "browser/",
  "gateway/leaving",
  "gateway/floods",
  "gateway/slow_clients",
  "faults/",
  "test/docs",
  "deploy/",
  "ledger/properties",
  "books/check",
];
/** The contract suite: whatever speaks HTTP to the gateway, or to its internal listener, as replicas of its own serve it. */
const contractFolders = /^test\/(?:gateway|http|server)\//;
const opensReplicas = /\bopenShop\(/;
/** Beside it: tests that run something on Deno themselves. */
const denoFiles = /^test\/(?:deno\/|platform\/deno)/;
/** The part of the contract suite that runs on Deno each time: the shape of answers, errors and streams. The rest needs `--all`. */
const denoCore = /^test\/gateway\/(?:errors|stream|sdk|images)\.test/;
/** Slow by nature: minutes of random faults, millions of rows, every page at every size. */
const slowFiles =
  /^test\/(?:chaos|books\/long_reads|ledger\/long_reads|browser\/looks|gateway\/(?:rolling|relay_cuts))\.test/;
/** Of each failed file, told again at the end. */
const WHY_LINES_MAX = 30;
const repository = dirname(import.meta.dirname);
/** Programs that some tests cannot do without, and where Debian puts them. */
const programs = [
  {
    files: /^test\/(?:accounts\/dns_check|accounts\/domains|panel\/domains|browser\/reseller)\.test\.ts$/,
    name: "knot",
    path: "/usr/sbin/knotd",
  },
  { files: /^test\/backup\.test\.ts$/, name: "postgresql", path: "/usr/bin/pg_dump" },
  { files: /^test\/browser\//, name: "chromium", path: "/usr/bin/chromium" },
  { files: /^test\/deploy\/topology\.test\.ts$/, name: "caddy", path: "/usr/bin/caddy" },
  { files: /^test\/deploy\/pgbouncer\.test\.ts$/, name: "pgbouncer", path: "/usr/sbin/pgbouncer" },
  { files: /^test\/deploy\/promtool\.test\.ts$/, name: "prometheus", path: "/usr/bin/promtool" },
];

type RuntimeName = "bun" | "deno";

/** One file, and what its replicas run on. */
interface Job {
  file: string;
  runtime: RuntimeName;
  isContract: boolean;
}

interface FileResult {
  passed: number;
  failed: number;
  /** What went wrong besides failing tests, e.g. "3 skipped". */
  remarks: string[];
  output: string;
  seconds: number;
}

const running = new Set<number>();
let services: Services | undefined;
let reports: string | undefined;
let isInterrupted = false;

async function main(): Promise<number> {
  const jobs = findJobs(process.argv.slice(2));
  if (jobs.length === 0) {
    console.log("No test file has that in its path.");
    return closeWith({ passed: 0, failed: 1 });
  }
  reports = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-reports-`));
  services = await startServices();
  // Replicas serve the panel as it was built.
  if (!(await isPanelBuilt())) await buildPanel();
  const { databaseUrl, redisUrl } = services;
  const env = { ...process.env, DATABASE_URL: databaseUrl, REDIS_URL: redisUrl };
  const results = await runAll(jobs, env, reports);
  // Not all files were run: the interruption says how it ended, and nothing else does.
  if (isInterrupted) return new Promise<number>(() => {});
  await cleanUp();
  // Once more at the end, where it is looked for.
  for (const [job, result] of results) if (result.failed > 0) console.log(`FAILED ${nameOf(job)}\n${whyOf(result)}`);
  if (jobs.some(({ isContract }) => isContract)) console.log(contractLine(results));
  return closeWith({
    passed: sum(results.values(), (result) => result.passed),
    failed: sum(results.values(), (result) => result.failed),
  });
}

function findJobs(args: string[]): Job[] {
  const parts = args.filter((arg) => !arg.startsWith("--"));
  const isAll = args.includes("--all") || args.includes("--deno") || parts.length > 0;
  const all = [...new Glob("test/**/*.test.{ts,tsx}").scanSync({ cwd: repository })].sort();
  const chosen = parts.length === 0 ? all : all.filter((file) => parts.some((part) => file.includes(part)));
  const jobs = chosen.filter(canRun).flatMap((file): Job[] => {
    const isContract = contractFolders.test(file) && opensReplicas.test(readFileSync(join(repository, file), "utf8"));
    const onBun: Job = { file, runtime: "bun", isContract };
    if (slowFiles.test(file) && !isAll) return [];
    return isContract && (isAll || denoCore.test(file)) ? [onBun, { ...onBun, runtime: "deno" }] : [onBun];
  });
  if (!isAll)
    console.log("Not run without --all: files that are slow by nature, and most of the contract suite on Deno.");
  const wanted = args.includes("--deno")
    ? jobs.filter(({ file, runtime }) => runtime === "deno" || denoFiles.test(file))
    : jobs;
  return wanted.sort((a, b) => rankOf(a) - rankOf(b));
}

/** Files that are run a second time are no short ones: they stand before the rest, which fills the end. */
function rankOf({ file, runtime }: Job): number {
  const place = longestFirst.findIndex((part) => file.includes(part));
  if (place >= 0) return place;
  return longestFirst.length + Number(runtime === "bun");
}

function nameOf({ file, runtime }: Job): string {
  return runtime === "deno" ? `${file} on Deno` : file;
}

function contractLine(results: ReadonlyMap<Job, FileResult>): string {
  const contract = [...results].filter(([{ isContract }]) => isContract);
  const said = (["bun", "deno"] as const).flatMap((runtime) => {
    const own = contract.filter(([job]) => job.runtime === runtime).map(([, result]) => result);
    const where = runtime === "deno" ? "Deno" : "Bun";
    return own.length > 0 ? [`${sum(own, ({ passed }) => passed)} passed on ${where}`] : [];
  });
  return `contract suite: ${said.join(", ")}`;
}

function canRun(file: string): boolean {
  const missing = programs.find(({ files, path }) => files.test(file) && !existsSync(path));
  if (missing === undefined || process.env.CI) return true;
  console.log(`Left out: ${file} needs ${missing.name} (apt-get install ${missing.name}).`);
  return false;
}

async function runAll(jobs: Job[], env: NodeJS.ProcessEnv, folder: string): Promise<Map<Job, FileResult>> {
  const results = new Map<Job, FileResult>();
  const waiting = [...jobs];
  const running = new Map<Job, Promise<void>>();
  const run = async (job: Job) => {
    const jobEnv = { ...env, TOLLGATE_RUNTIME: job.runtime };
    const result = await runFile(job.file, jobEnv, join(folder, `${jobs.indexOf(job)}.xml`));
    results.set(job, result);
    print(nameOf(job), result);
    running.delete(job);
  };
  while (!isInterrupted && (waiting.length > 0 || running.size > 0)) {
    const busy = [...running.keys()].filter(isBusy).length;
    const next = running.size >= atOnceMax ? -1 : waiting.findIndex((job) => !isBusy(job) || busy < busyAtOnceMax);
    const [job] = next < 0 ? [] : waiting.splice(next, 1);
    if (job !== undefined) running.set(job, run(job));
    else await Promise.race(running.values());
  }
  return results;
}

async function runFile(file: string, env: NodeJS.ProcessEnv, report: string): Promise<FileResult> {
  const startedAt = performance.now();
  // With "./" bun takes the argument for this one file, without it for a part of many files' names.
  const args = ["test", `./${file}`, "--timeout", String(testWaitMs), "--reporter=junit", "--reporter-outfile", report];
  // A group of its own, so that a file that hangs is ended with all that it started.
  const child = spawn(process.execPath, args, {
    cwd: repository,
    env,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { pid } = child;
  if (pid !== undefined) running.add(pid);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (text: string) => {
      output += text;
    });
  }
  let isTooLate = false;
  const timer = setTimeout(() => {
    isTooLate = true;
    killGroup(pid);
  }, fileWaitMs);
  // Not "close": a process that the file left behind may hold the pipe open for ever.
  const code = await new Promise<number>((resolve) => {
    child.once("exit", (exitCode) => resolve(exitCode ?? 1));
    child.once("error", () => resolve(1));
  });
  clearTimeout(timer);
  // What is still in the pipes.
  await new Promise((resolve) => setTimeout(resolve, 50));
  killGroup(pid);
  if (pid !== undefined) running.delete(pid);
  const seconds = (performance.now() - startedAt) / 1000;
  return { ...judge(code, isTooLate, readReport(report)), output, seconds };
}

interface Counts {
  tests: number;
  failures: number;
  skipped: number;
}

function judge(
  code: number,
  isTooLate: boolean,
  counts: Counts | null,
): Pick<FileResult, "passed" | "failed" | "remarks"> {
  const { tests, failures, skipped } = counts ?? { tests: 0, failures: 0, skipped: 0 };
  const passed = tests - failures - skipped;
  let failed = failures + skipped;
  const remarks: string[] = [];
  if (skipped > 0) remarks.push(`${skipped} skipped or todo`);
  if (isTooLate) remarks.push(`killed after ${fileWaitMs / 60_000} minutes`);
  // Bun's report is silent about a file that fails to load, that holds no test or that ends its own process.
  if (!counts || tests === 0) remarks.push(`no test was reported, exit code ${code}`);
  else if (code !== 0 && failures === 0) remarks.push(`exit code ${code} with no failed test`);
  if (remarks.length > 0 && failed === 0) failed = 1;
  return { passed, failed, remarks };
}

/** The sums stand on the report's outermost element. Null when there is no readable report. */
function readReport(path: string): Counts | null {
  try {
    const outermost = /<testsuites\b[^>]*>/.exec(readFileSync(path, "utf8"))?.[0] ?? "";
    const count = (name: string) => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(outermost)?.[1]);
    const counts = { tests: count("tests"), failures: count("failures"), skipped: count("skipped") };
    return Object.values(counts).every(Number.isInteger) ? counts : null;
  } catch {
    return null;
  }
}

/** Names of passed tests are the rules that hold; of a failed file everything is shown. */
function print(name: string, { passed, failed, remarks, output, seconds }: FileResult): void {
  const shown =
    failed > 0
      ? output.trim()
      : output
          .split("\n")
          .filter((line) => line.startsWith("(pass)"))
          .join("\n");
  const counts = [`${passed} passed`, `${failed} failed`, ...remarks].join(", ");
  console.log(`${shown}\n${failed > 0 ? "FAIL" : "ok  "} ${name}: ${counts}, ${seconds.toFixed(1)} s\n`);
}

/** The last of what a failed file said, without the tests that passed. */
function whyOf({ output, remarks }: FileResult): string {
  const lines = output.split("\n").filter((line) => line.trim() !== "" && !line.startsWith("(pass)"));
  const lastFailed = lines.findLastIndex((line) => line.startsWith("(fail)"));
  const end = lastFailed < 0 ? lines.length : lastFailed + 1;
  return [...lines.slice(Math.max(0, end - WHY_LINES_MAX), end), ...remarks].map((line) => `  ${line}`).join("\n");
}

function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch {
    // Nothing of it is left.
  }
}

async function cleanUp(): Promise<void> {
  for (const pid of running) killGroup(pid);
  await services?.stop();
  if (reports) rmSync(reports, { recursive: true, force: true });
}

async function interrupt(): Promise<void> {
  if (isInterrupted) return;
  isInterrupted = true;
  console.log("Interrupted.");
  await cleanUp();
  process.exit(closeWith({ passed: 0, failed: 1 }, 130));
}

/** Written at once and last: other programs read this line. Answers the exit code. */
function closeWith({ passed, failed }: { passed: number; failed: number }, failureCode = 1): number {
  writeSync(1, `${passed} passed, ${failed} failed\n`);
  return failed > 0 ? failureCode : 0;
}

function sum<T>(items: Iterable<T>, count: (item: T) => number): number {
  let total = 0;
  for (const item of items) total += count(item);
  return total;
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, interrupt);

try {
  process.exit(await main());
} catch (error) {
  console.log(error instanceof Error ? error.message : error);
  await cleanUp();
  process.exit(closeWith({ passed: 0, failed: 1 }));
}
