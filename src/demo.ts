import { join, relative, resolve } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { destination } from "pino";
import { DIALECT_NAMES, type DialectName } from "./catalog/dialects.ts";
import { checkDialect } from "./catalog/facts_input.ts";
import { type Config, ConfigError, readConfig } from "./config.ts";
import { type DemoFolder, openDemoFolder } from "./demo/demo_folder.ts";
import { connectProvider, type DemoProvider, hostAndPort, startSimulated } from "./demo/demo_provider.ts";
import { canListen, freePort, isListening } from "./demo/free_port.ts";
import { startEmbeddedPostgres } from "./demo/postgres/embedded_postgres.ts";
import { type Seeded, seed } from "./demo/seed.ts";
import { welcome } from "./demo/welcome.ts";
import { inProcessBus } from "./platform/bus.ts";
import { openDb } from "./platform/db.ts";
import { createLog, type Log } from "./platform/log.ts";
import { migrate } from "./platform/migrate.ts";
import { raiseFetchLimit } from "./platform/runtime.ts";
import { startReplica } from "./replica.ts";

/**
 * Runs the whole product with nothing installed: PostgreSQL, a simulated provider, people, keys and one replica. Then prints
 * commands to paste. Ctrl-C stops everything. It reads from the environment: PORT, LISTEN_HOST, DEMO_DATA_DIR,
 * PROVIDER_BASE_URL with PROVIDER_API_KEY for a real provider, and the gateway's limits. It ignores DATABASE_URL and
 * REDIS_URL, so that no demo data gets into a real database. `--dialect NAME` lets the simulated provider play another one.
 *
 * The replica runs in this process, so a crash of the gateway is visible here immediately. PostgreSQL and the simulated
 * provider are child processes, each with a guard that stops it even if this process is killed.
 */

const PORT_DEFAULT = "8080";
const PORTS_TRIED_MAX = 50;
const PORT_MAX = 65_535;
const TITLE_WIDTH = 62;
/** Streams may finish for this long after Ctrl-C. */
const DRAIN_SECONDS = "3";
/** One Ctrl-C may arrive twice: from the terminal, and from the program that started this one. A later one means "stop now". */
const SAME_SIGNAL_MS = 1_000;
/** How long to wait for our own signal after a child process failed. */
const SIGNAL_WAIT_MS = 50;
const IN_FLIGHT_DEFAULT = 10_000;
/** Fetches beyond the requests in flight: health checks and images. */
const FETCHES_EXTRA = 1_000;

const DIALECT_HINT = `NAME is the provider that the simulated one plays: ${DIALECT_NAMES.join(", ")}.`;

const repository = join(import.meta.dirname, "..");
const ending = new AbortController();
/** Stop functions of everything that was started, called in reverse order. */
const stops: (() => Promise<unknown>)[] = [];

raiseFetchLimit((readableInteger(process.env.IN_FLIGHT_MAX) ?? IN_FLIGHT_DEFAULT) + FETCHES_EXTRA);
// If the terminal is closed, writing fails, but everything must still stop in order.
process.stdout.on("error", () => {});
process.stderr.on("error", () => {});
process.exit(await main());

async function main(): Promise<number> {
  endOnSignals();
  let exitCode = 0;
  try {
    await run();
  } catch (error) {
    // Ctrl-C reaches initdb too, and its failure arrives before our own signal.
    await sleep(SIGNAL_WAIT_MS);
    if (!ending.signal.aborted) {
      process.stderr.write(`\n${sentenceOf(error)}\n`);
      exitCode = 1;
    }
  }
  for (const stop of stops.reverse()) {
    await stop().catch((error: unknown) => {
      process.stderr.write(`${sentenceOf(error)}\n`);
      exitCode = 1;
    });
  }
  if (exitCode === 0) say("Stopped.");
  return exitCode;
}

async function run(): Promise<void> {
  const startedAt = performance.now();
  say("Tollgate demo\n");
  const dialect = readDialect();
  const real = readProviderEnv();
  if (real && dialect) throw new Error("--dialect is for the simulated provider: leave it out, or PROVIDER_BASE_URL.");
  const folder = openDemoFolder(resolve(process.env.DEMO_DATA_DIR || join(repository, ".data")));
  const log = openLog(folder);
  const port = await choosePort();
  const base = { folder, port };

  // Before anything is started, so that a wrong address is reported immediately.
  const realProvider =
    real &&
    (await step(`provider at ${real.baseUrl}`, () =>
      connectProvider({ ...real, config: configOf(base, real.baseUrl) }, log),
    ));
  const database = await step(`PostgreSQL, with its data in ${shown(folder.postgresDir)}`, () =>
    startEmbeddedPostgres({ dataDir: folder.postgresDir, log: (message) => say(`  ${message}`) }),
  );
  stops.push(() => database.stop());
  await step("database schema", () => migrate(database.url));
  const provider =
    realProvider ??
    (await step("simulated provider, in its own process", () => startSimulated(folder.providerLogFile, dialect)));
  stops.push(() => provider.stop());
  const config = configOf({ ...base, databaseUrl: database.url }, provider.baseUrl);
  const seeded = await step("people, models, packages and keys", () => seedWith(config, { provider, folder, log }));
  const replica = await step(`gateway on port ${port}`, () =>
    startReplica(config, { nowMs: () => performance.now(), wallMs: () => Date.now() }, log),
  );
  stops.push(async () => {
    if (!(await replica.drain())) say("Some requests will be settled at the next start.");
    await log.flush();
  });

  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  const files = { credentialsFile: shown(folder.credentialsFile), logFile: shown(folder.logFile) };
  say(`\nReady in ${seconds} s.\n\n${welcome({ baseUrl: config.baseUrl, provider, seeded, ...files })}\n`);
  await new Promise<void>((done) => {
    ending.signal.addEventListener("abort", () => done());
    if (ending.signal.aborted) done();
  });
}

/** The dialect that the simulated provider plays: `--dialect deepseek`. Throws for an unknown one, and for any other argument. */
function readDialect(): DialectName | undefined {
  const { dialect } = readArguments();
  return dialect === undefined ? undefined : checkDialect(dialect);
}

function readArguments(): { dialect?: string | undefined } {
  try {
    return parseArgs({ options: { dialect: { type: "string" } } }).values;
  } catch (error) {
    const [what] = sentenceOf(error).split(". ");
    throw new Error(`${what}. The demo takes --dialect NAME, and nothing else. ${DIALECT_HINT}`);
  }
}

/** The provider in the environment, or undefined for the simulated one. Throws if only one of the two variables is set. */
function readProviderEnv(): { baseUrl: string; apiKey: string } | undefined {
  const baseUrl = (process.env.PROVIDER_BASE_URL ?? "").trim();
  const apiKey = (process.env.PROVIDER_API_KEY ?? "").trim();
  if (baseUrl === "" && apiKey === "") return undefined;
  if (apiKey === "")
    throw new Error(
      "PROVIDER_BASE_URL is set without PROVIDER_API_KEY: set both, or neither for the simulated provider.",
    );
  if (baseUrl === "")
    throw new Error(
      "PROVIDER_API_KEY is set without PROVIDER_BASE_URL: set both, or neither for the simulated provider.",
    );
  if (!URL.canParse(baseUrl) || !/^https?:$/.test(new URL(baseUrl).protocol)) {
    throw new Error("PROVIDER_BASE_URL is not an http or https URL, as in https://api.openai.com/v1.");
  }
  return { baseUrl: baseUrl.replace(/\/+$/, ""), apiKey };
}

type Base = { folder: DemoFolder; port: number; databaseUrl?: string };

/** The environment may set limits. The demo sets addresses and folders itself. Throws ConfigError. */
function configOf({ folder, port, databaseUrl = "postgres://not.started.yet" }: Base, providerBaseUrl: string): Config {
  const { env } = process;
  return readConfig({
    DRAIN_SECONDS,
    LISTEN_HOST: "127.0.0.1",
    LOG_LEVEL: "warn",
    // An example address, so that the panel can show how to set up a reseller's domain.
    SERVER_ADDRESSES: "203.0.113.7",
    ...env,
    NODE_ENV: "development",
    ALLOW_LOCAL_HOSTS: "true",
    PORT: String(port),
    BASE_URL: `http://localhost:${port}/v1`,
    PANEL_URL: `http://localhost:${port}`,
    ALIAS_URL: "",
    DATABASE_URL: databaseUrl,
    DB_PREPARE: "true",
    REDIS_URL: "",
    SPOOL_DIR: folder.spoolDir,
    SECRET_KEY: folder.secretKey,
    // The operator named this provider, so any address is allowed.
    PROVIDER_ALLOW_PRIVATE: [env.PROVIDER_ALLOW_PRIVATE, hostAndPort(providerBaseUrl)].filter(Boolean).join(","),
  });
}

async function seedWith(
  config: Config,
  { provider, folder, log }: { provider: DemoProvider; folder: DemoFolder; log: Log },
): Promise<Seeded> {
  const db = openDb(config);
  try {
    const seeded = await seed({ db, bus: inProcessBus(log), config }, provider, folder.readCredentials());
    folder.writeCredentials(seeded.credentials);
    return seeded;
  } finally {
    await db.close();
  }
}

/** Logs to a file. The terminal has only what a person reads. */
function openLog({ logFile }: DemoFolder): Log {
  return createLog(process.env.LOG_LEVEL || "warn", destination({ dest: logFile, append: true, sync: true }));
}

/** PORT, or the next free port. Throws an Error with one sentence if PORT is invalid or there is no free port. */
async function choosePort(): Promise<number> {
  const wanted = process.env.PORT?.trim() || PORT_DEFAULT;
  const first = readableInteger(wanted);
  if (first === undefined || first > PORT_MAX) throw new Error(`PORT is not a port number: ${wanted}.`);
  if (first === 0) return freePort();
  for (let port = first; port < first + PORTS_TRIED_MAX && port <= PORT_MAX; port++) {
    if (await isTaken(port)) continue;
    if (port !== first) say(`  Port ${first} is taken, so the demo uses ${port}. Set PORT to choose another.`);
    return port;
  }
  throw new Error(`The ports from ${first} are taken: set PORT to a free one.`);
}

/** Checks both addresses: `localhost` may resolve to either, so a server on one of them would get our requests. */
async function isTaken(port: number): Promise<boolean> {
  return (await isListening("127.0.0.1", port)) || (await isListening("::1", port)) || !(await canListen(port));
}

/** Runs one step of the start and prints its duration. */
async function step<T>(title: string, work: () => Promise<T>): Promise<T> {
  ending.signal.throwIfAborted();
  const startedAt = performance.now();
  const result = await work();
  say(`  ${title.padEnd(TITLE_WIDTH)} ${((performance.now() - startedAt) / 1000).toFixed(1).padStart(5)} s`);
  return result;
}

function endOnSignals(): void {
  let firstAt: number | undefined;
  const onSignal = () => {
    firstAt ??= performance.now();
    // Exits immediately: the guards stop the child processes.
    if (performance.now() - firstAt > SAME_SIGNAL_MS) process.exit(1);
    if (ending.signal.aborted) return;
    say("\nStopping.");
    ending.abort();
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, onSignal);
}

function readableInteger(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,7}$/.test(text) ? Number(text) : undefined;
}

function shown(path: string): string {
  const short = relative(process.cwd(), path);
  return short.startsWith("..") ? path : short;
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function sentenceOf(error: unknown): string {
  if (error instanceof ConfigError) return error.message;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}
