/**
 * Finds or starts a real PostgreSQL and a real Redis for tests. As a command (`bun run scripts/services.ts`) it starts both,
 * prints their URLs as shell exports and stops them at Ctrl-C.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../src/demo/free_port.ts";
import { startEmbeddedPostgres } from "../src/demo/postgres/embedded_postgres.ts";
import { type OwnedProcess, processExists, startOwnedProcess } from "../src/demo/postgres/owned_process.ts";
import { redisProgram } from "./redis_program.ts";

const REDIS_START_MS_MAX = 15_000;
const POLL_MS = 20;
const PORT_TRIES_MAX = 5;
const CONNECT_MS_MAX = 3_000;
/** Of the server that all files of a run share: each replica has ten connections or so, and some files start five. */
const SHARED = { max_connections: 500 };
const LEFTOVER_AGE_MS = 6 * 3_600_000;

/** A server that was started here. Tests may send any signal to `pid`; `stop` still works. */
export interface Service {
  url: string;
  port: number;
  pid: number;
  /** Stops the process, and deletes its folder unless the caller chose it. Idempotent. */
  stop(): Promise<void>;
}

export interface Services {
  databaseUrl: string;
  redisUrl: string;
  /** Stops what was started here. Servers from the environment keep running. */
  stop(): Promise<void>;
}

type Log = (message: string) => void;

/**
 * PostgreSQL from DATABASE_URL or the embedded package; Redis from REDIS_URL or started here.
 * Throws an Error with one sentence if one of them can be neither found nor started.
 */
export async function startServices(log: Log = (message) => console.error(message)): Promise<Services> {
  removeLeftovers();
  const { DATABASE_URL, REDIS_URL } = process.env;
  const [postgres, redis] = await Promise.allSettled([
    DATABASE_URL ? existing("DATABASE_URL", DATABASE_URL, 5432) : startPostgres({ log, settings: SHARED }),
    REDIS_URL ? existing("REDIS_URL", REDIS_URL, 6379) : startRedis({ log }),
  ]);
  const started = [postgres, redis].flatMap((service) => (service.status === "fulfilled" ? [service.value] : []));
  const stop = async () => {
    await Promise.all(started.map((service) => service.stop()));
  };
  if (postgres.status === "fulfilled" && redis.status === "fulfilled") {
    return { databaseUrl: postgres.value.url, redisUrl: redis.value.url, stop };
  }
  await stop();
  throw [postgres, redis].find((service) => service.status === "rejected")?.reason;
}

export interface PostgresOptions {
  port?: number;
  /** Kept after `stop`. Default: a temporary folder, deleted by `stop`. */
  dataDir?: string;
  settings?: Record<string, string | number>;
  log?: Log;
}

/** Starts a PostgreSQL. To crash and restart it, set `dataDir` and `port`. */
export async function startPostgres(options: PostgresOptions = {}): Promise<Service> {
  const dataDir = options.dataDir ?? temporaryFolder("postgres");
  const remove = () => {
    if (!options.dataDir) rmSync(dataDir, { recursive: true, force: true });
  };
  try {
    const { url, pid, stop } = await startEmbeddedPostgres({ ...options, dataDir });
    const port = Number(new URL(url).port);
    return { url, port, pid, stop: () => stop().finally(remove) };
  } catch (error) {
    remove();
    throw error;
  }
}

export interface RedisOptions {
  port?: number;
  log?: Log;
  /** Additional arguments of the server, e.g. `["--maxmemory", "10mb"]`. */
  args?: string[];
}

/** Starts an empty Redis without persistence. To crash and restart it, set `port`. */
export async function startRedis(options: RedisOptions = {}): Promise<Service> {
  const program = await redisProgram(options.log ?? (() => {}));
  const folder = temporaryFolder("redis");
  const outputFile = join(folder, "redis.log");
  const remove = () => rmSync(folder, { recursive: true, force: true });
  for (let triesLeft = options.port === undefined ? PORT_TRIES_MAX : 1; ; triesLeft--) {
    const port = options.port ?? (await freePort());
    const fixed = ["--bind", "127.0.0.1", "--port", String(port), "--save", "", "--appendonly", "no", "--dir", folder];
    const server = startOwnedProcess({
      command: program.command,
      args: [...fixed, ...(options.args ?? [])],
      env: { PATH: process.env.PATH ?? "", LC_ALL: "C", ...program.env },
      outputFile,
      stopSignal: "SIGTERM",
    });
    if (await redisAnswers(server, port)) {
      return { url: `redis://127.0.0.1:${port}`, port, pid: server.pid, stop: () => server.stop().finally(remove) };
    }
    await server.stop();
    if (triesLeft === 1) {
      const output = readFileSync(outputFile, "utf8").trim().split("\n").slice(-3).join(" ");
      remove();
      throw new Error(`Redis did not start on port ${port}: ${output}`);
    }
  }
}

async function redisAnswers(server: OwnedProcess, port: number): Promise<boolean> {
  const startedAt = performance.now();
  while (performance.now() - startedAt < REDIS_START_MS_MAX && !server.hasExited()) {
    // Another server on the same port answers too, so the answer must contain our process id.
    const answer = await probe("127.0.0.1", port, "INFO server\r\n");
    if (answer?.includes(`process_id:${server.pid}\r`)) return true;
    await sleep(POLL_MS);
  }
  return false;
}

/** A server from the environment. Throws an Error with one sentence if it does not listen. */
async function existing(name: string, url: string, defaultPort: number): Promise<Service> {
  if (!URL.canParse(url)) throw new Error(`${name} is not a URL.`);
  const { hostname, port } = new URL(url);
  const number = Number(port || defaultPort);
  if ((await probe(hostname || "127.0.0.1", number, null)) === null) {
    throw new Error(`${name} is ${hostname}:${number}, but no server listens there.`);
  }
  return { url, port: number, pid: 0, stop: async () => {} };
}

/** Connects, sends `question` if there is one, and returns the first bytes of the answer. Null if there is none within 3 s. */
function probe(host: string, port: number, question: string | null): Promise<string | null> {
  return new Promise((done) => {
    const socket = connect({ host, port });
    const timer = setTimeout(() => finish(null), CONNECT_MS_MAX);
    const finish = (answer: string | null) => {
      clearTimeout(timer);
      socket.destroy();
      done(answer);
    };
    socket.once("connect", () => (question === null ? finish("") : socket.write(question)));
    socket.once("data", (bytes) => finish(bytes.toString("utf8")));
    socket.once("error", () => finish(null));
    socket.once("close", () => finish(null));
  });
}

function temporaryFolder(purpose: string): string {
  return mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-${purpose}-`));
}

/** Deletes folders of killed test runs. Only old ones: another container may use the same folder but have other process ids. */
function removeLeftovers(): void {
  for (const name of readdirSync(tmpdir())) {
    const maker = /^tollgate-(\d+)-(?:postgres|redis)-/.exec(name)?.[1];
    if (!maker || processExists(Number(maker))) continue;
    const path = join(tmpdir(), name);
    try {
      if (Date.now() - statSync(path).mtimeMs > LEFTOVER_AGE_MS) rmSync(path, { recursive: true, force: true });
    } catch {
      // It belongs to another user, or was deleted meanwhile.
    }
  }
}

async function main(): Promise<void> {
  const services = await startServices();
  console.log(`export DATABASE_URL='${services.databaseUrl}'\nexport REDIS_URL='${services.redisUrl}'`);
  console.error("Running until Ctrl-C.");
  const alive = setInterval(() => {}, 60_000);
  let isStopping = false;
  const stop = async () => {
    // One Ctrl-C may arrive twice: from the terminal and from the program that started this one.
    if (isStopping) return;
    isStopping = true;
    await services.stop();
    clearInterval(alive);
    process.exit(0);
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
}

if (import.meta.main) {
  main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exit(1);
  });
}
