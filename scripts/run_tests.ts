/**
 * Runs every `test/**\/*.test.ts` against a real PostgreSQL and Redis, each file in its own process. The last line is
 * `N passed, N failed`. Arguments select files by a part of their path: `bun run test ledger panel/api`. Selected files always run.
 * The contract suite runs with its replicas on Bun, and its core on Deno too. `--all` adds what is slow by design: the whole contract
 * suite on Deno, and SLOW_FILES. `--deno` runs only what runs on Deno.
 * Nothing is skipped silently: a skipped or todo test, and a file that has no tests, does not load or never ends, count as failed. A
 * file that needs a missing program is skipped with a message; with CI set it runs, and fails.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { Glob } from "bun";
import { Redis } from "ioredis";
import { buildPanel, isPanelBuilt } from "./build_panel.ts";
import { builtReplica } from "./build_replica.ts";
import { CHROMIUM } from "./chromium.ts";
import { type Services, startServices } from "./services.ts";

/** These only end what waits in vain: a machine with ten others at work on it is ten times as slow. */
const TEST_MS_MAX = 180_000;
const FILE_MS_MAX = 15 * 60_000;
/** Concurrent tests of a file that run at once. Many of them start a replica: twelve starts at once leave a slow machine no time for leases. */
const TESTS_AT_ONCE_MAX = 4;
const DAY_MS = 86_400_000;
/** Daily limits are counted by UTC days: a file that begins so shortly before midnight would meet two of them. */
const DAY_END_MS = 3 * 60_000;
/** Each file uses half of a processor: two processors run four at once. */
const ORDINARY_AT_ONCE_MAX = availableParallelism() >= 2 ? 4 : 1;
/** Files that mostly wait, for leases, time limits and slow clients, use a sixth of a processor: they run beside the others. */
const WAITING_AT_ONCE_MAX = availableParallelism() >= 2 ? 2 : 1;
const WAITING_FILES =
  /^test\/(?:commerce\/renewal_deaths|faults\/(?:clocks|locks|postgres_silent|frozen|spool)|gateway\/(?:leaving|long_reads|own_mistakes|slow_clients|tracing)|ledger\/upkeep|platform\/(?:bus|changes_store|idempotency_claims|long_reads|rate_limit)|server\/internal)\.test/;
/** Files that compute all the time. More than two of them at once would make tests of time limits fail. */
const BUSY_AT_ONCE_MAX = 2;
const BUSY_FILES =
  /^test\/(?:browser\/|deploy\/|chaos|bench|docs|backup|demo|ledger\/properties|model\/|gateway\/overload)/;
/** The longest files start first, so that the run does not end with one of them running alone. */
const LONGEST_FIRST = [
  "browser/looks",
  "test/chaos",
  "long_reads",
  "renewal_deaths",
  "compat/compat",
  "browser/",
  "gateway/leaving",
  "gateway/slow_clients",
  "faults/",
  "test/docs",
  "gateway/floods",
  "test/demo",
  "test/canary",
  "deploy/",
  "gateway/tracing",
  "gateway/relay.",
  "ledger/properties",
  "ledger/upkeep",
  "books/",
  "test/backup",
  "test/start",
];
/** The contract suite: files in these folders that start replicas, and test their API, panel and internal port over HTTP. */
const CONTRACT_FOLDERS = /^test\/(?:gateway|http|server|panel|commerce|messages|books|compat)\//;
const STARTS_REPLICAS = /\bopen(?:\w*Shop|Billing)\(/;
/** Tests outside the contract suite that run something on Deno themselves. */
const DENO_FILES = /^test\/(?:deno\/|platform\/deno)/;
/** What always runs on Deno: responses, errors and streams, and a file of the panel. The rest needs `--all`. */
const DENO_CORE = /^test\/(?:gateway\/(?:errors|hosts|stream)|panel\/statement)\.test/;
/**
 * Slow by design: minutes of random faults, millions of rows, every page at every size, millions of states, clients to install, the package
 * as npx runs it, upgrades, a whole month and a whole quarter of trade, 5,000 turns of conversations, 1,000 webhooks, benches.
 */
const SLOW_FILES =
  /^test\/(?:chaos|bench|books\/(?:long_reads|month|quarter)|ledger\/long_reads|browser\/looks|model\/escrow_large|gateway\/(?:affinity|rolling|relay_cuts)|messages\/many|commerce\/webhook_storm|operations\/(?:many_writes|month)|response_clients|agent_clients|npx|upgrade\/upgrade)\.test/;
/** Databases of a Redis that was started here: each running file has one, because ids of accounts and keys begin at 1 in every file. */
const REDIS_DATABASES = 16;
/** Lines of output of each failed file that are repeated at the end. */
const FAILURE_LINES_MAX = 30;
/** Files whose time is listed at the end of a run. */
const SLOWEST_SHOWN = 10;
const repository = dirname(import.meta.dirname);
/** Programs that some tests need, and where Debian installs them. */
const PROGRAMS = [
  {
    files: /^test\/(?:accounts\/dns_check|accounts\/domains|panel\/domains|browser\/reseller)\.test\.ts$/,
    name: "knot",
    path: "/usr/sbin/knotd",
  },
  { files: /^test\/(?:backup|faults\/failover_pair)\.test\.ts$/, name: "postgresql", path: "/usr/bin/pg_dump" },
  { files: /^test\/browser\//, name: "chromium-headless-shell", path: CHROMIUM },
  { files: /^test\/deploy\/(?:first_steps_tls|topology)\.test\.ts$/, name: "caddy", path: "/usr/bin/caddy" },
  {
    files: /^test\/(?:deploy\/pgbouncer|faults\/failover_pair)\.test\.ts$/,
    name: "pgbouncer",
    path: "/usr/sbin/pgbouncer",
  },
  { files: /^test\/deploy\/promtool\.test\.ts$/, name: "prometheus", path: "/usr/bin/promtool" },
  { files: /^test\/model\//, name: "spin", path: "/usr/bin/spin" },
  { files: /^test\/model\//, name: "gcc", path: "/usr/bin/gcc" },
  {
    files: /^test\/(?:browser\/(?:shop_walk|vouchers)|commerce\/(?:invoice_pdf|pdf_drawer))\.test\.ts$/,
    name: "poppler-utils",
    path: "/usr/bin/pdftotext",
  },
  { files: /^test\/messages\/mail_tls\.test\.ts$/, name: "openssl", path: "/usr/bin/openssl" },
];

type RuntimeName = "bun" | "deno";

/** One test file, and the runtime of its replicas. */
interface Job {
  file: string;
  runtime: RuntimeName;
  isContract: boolean;
}

interface FileResult {
  passed: number;
  failed: number;
  /** Problems besides failed tests, e.g. "3 skipped". */
  remarks: string[];
  output: string;
  seconds: number;
}

const runningPids = new Set<number>();
let services: Services | undefined;
let reports: string | undefined;
let isInterrupted = false;
/** Files were selected by arguments. */
const isSelected = process.argv.slice(2).some((arg) => !arg.startsWith("--"));

async function main(): Promise<number> {
  const jobs = findJobs(process.argv.slice(2));
  if (jobs.length === 0) {
    console.log("No path of a test file contains that.");
    return printResult({ passed: 0, failed: 1 });
  }
  reports = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-reports-`));
  services = await startServices();
  // Replicas serve the built panel.
  if (!(await isPanelBuilt())) await buildPanel();
  const { databaseUrl, redisUrl } = services;
  const env = { ...process.env, DATABASE_URL: databaseUrl, TOLLGATE_REPLICA: await builtReplica() };
  const redisOf = process.env.REDIS_URL ? sharedRedis(redisUrl) : redisDatabases(redisUrl);
  const results = await runAll(jobs, { env, redisOf }, reports);
  // After an interruption, `interrupt` prints the result and exits.
  if (isInterrupted) return new Promise<number>(() => {});
  await cleanUp();
  // Failures are repeated at the end, where people look for them.
  for (const [job, result] of results)
    if (result.failed > 0) console.log(`FAILED ${nameOf(job)}\n${failureText(result)}`);
  if (jobs.length > SLOWEST_SHOWN) console.log(slowestLines(results));
  if (jobs.some(({ isContract }) => isContract)) console.log(contractLine(results));
  return printResult({
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
    const isContract =
      CONTRACT_FOLDERS.test(file) && STARTS_REPLICAS.test(readFileSync(join(repository, file), "utf8"));
    const onBun: Job = { file, runtime: "bun", isContract };
    if (SLOW_FILES.test(file) && !isAll) return [];
    return isContract && (isAll || DENO_CORE.test(file)) ? [onBun, { ...onBun, runtime: "deno" }] : [onBun];
  });
  if (!isAll) console.log("Without --all, slow test files and most of the contract suite on Deno are not run.");
  const wanted = args.includes("--deno")
    ? jobs.filter(({ file, runtime }) => runtime === "deno" || DENO_FILES.test(file))
    : jobs;
  return wanted.sort((a, b) => rankOf(a) - rankOf(b));
}

/** Position in the order of start. Files that also run on Deno are not short: their Deno runs precede the remaining files. */
function rankOf({ file, runtime }: Job): number {
  const place = LONGEST_FIRST.findIndex((part) => file.includes(part));
  if (place >= 0) return place;
  return LONGEST_FIRST.length + Number(runtime === "bun");
}

function nameOf({ file, runtime }: Job): string {
  return runtime === "deno" ? `${file} on Deno` : file;
}

function contractLine(results: ReadonlyMap<Job, FileResult>): string {
  const contract = [...results].filter(([{ isContract }]) => isContract);
  const counts = (["bun", "deno"] as const).flatMap((runtime) => {
    const own = contract.filter(([job]) => job.runtime === runtime).map(([, result]) => result);
    const where = runtime === "deno" ? "Deno" : "Bun";
    return own.length > 0 ? [`${sum(own, ({ passed }) => passed)} passed on ${where}`] : [];
  });
  return `contract suite: ${counts.join(", ")}`;
}

/** The files that took longest. */
function slowestLines(results: ReadonlyMap<Job, FileResult>): string {
  const slowest = [...results].sort(([, a], [, b]) => b.seconds - a.seconds).slice(0, SLOWEST_SHOWN);
  return slowest.map(([job, { seconds }]) => `${seconds.toFixed(1).padStart(6)} s  ${nameOf(job)}`).join("\n");
}

function canRun(file: string): boolean {
  const missing = PROGRAMS.find(({ files, path }) => files.test(file) && !existsSync(path));
  if (missing === undefined || process.env.CI) return true;
  console.log(`Skipped: ${file} needs ${missing.name} (apt-get install ${missing.name}).`);
  return false;
}

/** An empty Redis for one file, until it is given back. */
type RedisOf = () => Promise<{ url: string; giveBack(): void }>;

/** A Redis that was there before is left as it is: its other databases may belong to somebody. */
function sharedRedis(url: string): RedisOf {
  return async () => ({ url, giveBack() {} });
}

function redisDatabases(redisUrl: string): RedisOf {
  const free = Array.from({ length: REDIS_DATABASES }, (_, database) => database);
  return async () => {
    const database = free.shift();
    if (database === undefined) throw new Error("more files run at once than Redis has databases");
    const client = new Redis(redisUrl, { db: database });
    await client.flushdb();
    client.disconnect();
    return { url: `${redisUrl}/${database}`, giveBack: () => void free.push(database) };
  };
}

type Given = { env: NodeJS.ProcessEnv; redisOf: RedisOf };

async function runAll(jobs: Job[], { env, redisOf }: Given, folder: string): Promise<Map<Job, FileResult>> {
  const results = new Map<Job, FileResult>();
  const waiting = [...jobs];
  const running = new Map<Job, Promise<void>>();
  const run = async (job: Job) => {
    const redis = await redisOf();
    const jobEnv = { ...env, REDIS_URL: redis.url, TOLLGATE_RUNTIME: job.runtime };
    const result = await runFile(job.file, jobEnv, join(folder, `${jobs.indexOf(job)}.xml`));
    redis.giveBack();
    results.set(job, result);
    print(nameOf(job), result);
    running.delete(job);
  };
  while (!isInterrupted && (waiting.length > 0 || running.size > 0)) {
    await pastDayEnd();
    const next = waiting.findIndex((job) => canStart(job, [...running.keys()]));
    const [job] = next < 0 ? [] : waiting.splice(next, 1);
    if (job !== undefined) running.set(job, run(job));
    else await Promise.race(running.values());
  }
  return results;
}

/** Waits until midnight if it is near. */
async function pastDayEnd(): Promise<void> {
  const leftMs = DAY_MS - (Date.now() % DAY_MS);
  if (leftMs > DAY_END_MS) return;
  console.log("Waiting for midnight UTC, so that no file of tests meets two days.");
  await new Promise((resolve) => setTimeout(resolve, leftMs + 1_000));
}

function canStart({ file }: Job, running: readonly Job[]): boolean {
  const count = (files: RegExp) => running.filter((job) => files.test(job.file)).length;
  const waiting = count(WAITING_FILES);
  if (WAITING_FILES.test(file)) return waiting < WAITING_AT_ONCE_MAX;
  if (BUSY_FILES.test(file) && count(BUSY_FILES) >= BUSY_AT_ONCE_MAX) return false;
  return running.length - waiting < ORDINARY_AT_ONCE_MAX;
}

async function runFile(file: string, env: NodeJS.ProcessEnv, report: string): Promise<FileResult> {
  const startedAt = performance.now();
  // With "./", bun runs this one file. Without it, bun runs every file whose path contains the argument.
  const args = [
    "test",
    `./${file}`,
    "--timeout",
    String(TEST_MS_MAX),
    "--max-concurrency",
    String(TESTS_AT_ONCE_MAX),
    "--reporter=junit",
    "--reporter-outfile",
    report,
  ];
  // In its own process group, so that a hanging file is killed with everything that it started.
  const child = spawn(process.execPath, args, {
    cwd: repository,
    env,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { pid } = child;
  if (pid !== undefined) runningPids.add(pid);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (text: string) => {
      output += text;
    });
  }
  let isTimedOut = false;
  const timer = setTimeout(() => {
    isTimedOut = true;
    killGroup(pid);
  }, FILE_MS_MAX);
  // Not "close": a process that the file left behind may keep the pipe open forever.
  const code = await new Promise<number>((resolve) => {
    child.once("exit", (exitCode) => resolve(exitCode ?? 1));
    child.once("error", () => resolve(1));
  });
  clearTimeout(timer);
  // Reads what is still in the pipes.
  await new Promise((resolve) => setTimeout(resolve, 50));
  killGroup(pid);
  if (pid !== undefined) runningPids.delete(pid);
  const seconds = (performance.now() - startedAt) / 1000;
  return { ...judge(code, isTimedOut, readReport(report)), output, seconds };
}

interface Counts {
  tests: number;
  failures: number;
  skipped: number;
}

function judge(
  code: number,
  isTimedOut: boolean,
  counts: Counts | null,
): Pick<FileResult, "passed" | "failed" | "remarks"> {
  const { tests, failures, skipped } = counts ?? { tests: 0, failures: 0, skipped: 0 };
  const passed = tests - failures - skipped;
  let failed = failures + skipped;
  const remarks: string[] = [];
  if (skipped > 0) remarks.push(`${skipped} skipped or todo`);
  if (isTimedOut) remarks.push(`killed after ${FILE_MS_MAX / 60_000} minutes`);
  // Bun's report does not mention a file that fails to load, has no tests or exits its own process.
  if (!counts || tests === 0) remarks.push(`no test was reported, exit code ${code}`);
  else if (code !== 0 && failures === 0) remarks.push(`exit code ${code} with no failed test`);
  if (remarks.length > 0 && failed === 0) failed = 1;
  return { passed, failed, remarks };
}

/** Reads the sums from the outermost element of the JUnit report. Null if there is no readable report. */
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

/**
 * Prints the names of passed tests, which are the rules that hold. Of a failed file, and of files that were selected by arguments, the
 * whole output: tests print what they measured, and their seeds.
 */
function print(name: string, { passed, failed, remarks, output, seconds }: FileResult): void {
  const shown =
    failed > 0 || isSelected
      ? output.trim()
      : output
          .split("\n")
          .filter((line) => line.startsWith("(pass)"))
          .join("\n");
  const counts = [`${passed} passed`, `${failed} failed`, ...remarks].join(", ");
  console.log(`${shown}\n${failed > 0 ? "FAIL" : "ok  "} ${name}: ${counts}, ${seconds.toFixed(1)} s\n`);
}

/** The output of a failed file up to its last failed test, without passed tests. */
function failureText({ output, remarks }: FileResult): string {
  const lines = output.split("\n").filter((line) => line.trim() !== "" && !line.startsWith("(pass)"));
  const lastFailed = lines.findLastIndex((line) => line.startsWith("(fail)"));
  const end = lastFailed < 0 ? lines.length : lastFailed + 1;
  return [...lines.slice(Math.max(0, end - FAILURE_LINES_MAX), end), ...remarks].map((line) => `  ${line}`).join("\n");
}

function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch {
    // The group has already ended.
  }
}

async function cleanUp(): Promise<void> {
  for (const pid of runningPids) killGroup(pid);
  await services?.stop();
  if (reports) rmSync(reports, { recursive: true, force: true });
}

async function interrupt(): Promise<void> {
  if (isInterrupted) return;
  isInterrupted = true;
  console.log("Interrupted.");
  await cleanUp();
  process.exit(printResult({ passed: 0, failed: 1 }, 130));
}

/** Prints the last line, synchronously, because other programs parse it. Returns the exit code. */
function printResult({ passed, failed }: { passed: number; failed: number }, failureCode = 1): number {
  try {
    writeSync(1, `${passed} passed, ${failed} failed\n`);
  } catch {
    // Whoever started this has gone. It ends nevertheless.
  }
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
  process.exit(printResult({ passed: 0, failed: 1 }));
}
