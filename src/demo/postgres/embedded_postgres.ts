/** Starts and stops a real PostgreSQL 18 on a machine that has none installed, for the demo and the tests. */
import { existsSync, readFileSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort, isListening } from "../free_port.ts";
import { type PostgresFolder, preparePostgresFolder, serverEnv, takeOwnership } from "./folder.ts";
import { readLockFile, waitForPredecessor } from "./lock.ts";
import { type OwnedProcess, startOwnedProcess } from "./owned_process.ts";

const START_MS_MAX = 60_000;
const POLL_MS = 20;
/** After a crash, the old server's children keep its shared memory until they notice that it has ended. */
const ORPHANS_MS_MAX = 15_000;
const PORT_TRIES_MAX = 5;

export interface EmbeddedPostgresOptions {
  /** Created if missing, and kept: the next start finds the same data. */
  dataDir: string;
  /** Default: any free port. */
  port?: number;
  /** Called with a sentence about slow or unusual steps. */
  log?: (message: string) => void;
  /** Server settings, e.g. `{ log_lock_waits: "on" }`. `fsync` is always on. */
  settings?: Record<string, string | number>;
}

export interface EmbeddedPostgres {
  /** With user, generated password and database: postgres://postgres:…@127.0.0.1:port/postgres */
  url: string;
  /** Process id of the postmaster. */
  pid: number;
  /** Fast shutdown: ends sessions, keeps the data, and waits for the process to end. Idempotent. */
  stop(): Promise<void>;
}

/**
 * Starts PostgreSQL on 127.0.0.1 and resolves when it accepts connections. Recovers from an earlier crash. Throws an Error with
 * one sentence if the package is missing, the folder is in use or has data of another version, or the server does not start.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const folder = preparePostgresFolder(resolve(options.dataDir), options.log ?? (() => {}));
  await waitForPredecessor(folder.data);
  takeOwnership(folder);
  const { server, port } = await startServer(folder, options);
  return {
    url: `postgres://postgres:${folder.password}@127.0.0.1:${port}/postgres`,
    pid: server.pid,
    stop: () => server.stop(),
  };
}

async function startServer(
  folder: PostgresFolder,
  options: EmbeddedPostgresOptions,
): Promise<{ server: OwnedProcess; port: number }> {
  const startedAt = performance.now();
  for (let tryNumber = 1; ; ) {
    const port = options.port ?? (await freePort());
    const outcome = await tryStart(folder, port, options.settings ?? {});
    if (typeof outcome !== "string") return { server: outcome, port };
    const isPortTaken = /could not bind|could not create any TCP/.test(outcome);
    const hasOrphans = /pre-existing shared memory/.test(outcome);
    if (isPortTaken && options.port === undefined && tryNumber++ < PORT_TRIES_MAX) continue;
    if (!hasOrphans || performance.now() - startedAt > ORPHANS_MS_MAX) {
      throw new Error(`PostgreSQL did not start: ${outcome}`);
    }
    await sleep(10 * POLL_MS);
  }
}

/** Returns the server when it is ready, or the reason why it did not start. */
async function tryStart(folder: PostgresFolder, port: number, settings: Record<string, string | number>) {
  const outputFile = join(folder.path, "postgres.log");
  const outputStart = existsSync(outputFile) ? statSync(outputFile).size : 0;
  const { prefix, uid, gid } = folder.identity;
  const postgres = join(folder.native, "bin", "postgres");
  const [command = "", ...args] = [...prefix, postgres, "-D", folder.data, ...settingArguments(port, settings)];
  const env = serverEnv();
  const server = startOwnedProcess({ command, args, env, outputFile, uid, gid, cwd: "/", stopSignal: "SIGINT" });
  const startedAt = performance.now();
  while (!(await isReady(folder.data, server.pid, port))) {
    if (server.hasExited()) return exitReason(outputFile, outputStart);
    if (performance.now() - startedAt > START_MS_MAX) {
      await server.stop();
      return `not ready after ${START_MS_MAX / 1000} s, see ${outputFile}`;
    }
    await sleep(POLL_MS);
  }
  return server;
}

function settingArguments(port: number, settings: Record<string, string | number>): string[] {
  const defaults = { max_connections: 200, timezone: "UTC", log_timezone: "UTC" };
  // The demo and the tests must be as durable as production. Only this machine may connect.
  const fixed = { fsync: "on", listen_addresses: "127.0.0.1", port, unix_socket_directories: "" };
  const all = { ...defaults, ...settings, ...fixed };
  return Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}

/** Connects first: a stale lock file may by chance have the same process id and "ready". */
async function isReady(data: string, pid: number, port: number): Promise<boolean> {
  if (!(await isListening("127.0.0.1", port))) return false;
  const lock = readLockFile(data);
  return lock?.pid === pid && lock.status === "ready";
}

function exitReason(outputFile: string, outputStart: number): string {
  // A large file was emptied at the start, so `outputStart` may be past its end.
  const output = readFileSync(outputFile);
  const recent = output.subarray(output.length < outputStart ? 0 : outputStart).toString("utf8");
  const lines = recent.trim().split("\n");
  const errors = lines.filter((line) => /FATAL|PANIC|could not bind|error while loading|not found/.test(line));
  return (errors.length > 0 ? errors : lines.slice(-3)).join(" ");
}
