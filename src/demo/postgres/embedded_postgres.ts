/** A real PostgreSQL 18 for demo and tests on a machine that has none: one call starts it, one stops it. */
import { existsSync, readFileSync, statSync } from "node:fs";
import { connect } from "node:net";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../free_port.ts";
import { type PostgresFolder, preparePostgresFolder, serverEnv, takeOverData } from "./folder.ts";
import { outlivePredecessor, readLockFile } from "./lock.ts";
import { type OwnedProcess, startOwnedProcess } from "./owned_process.ts";

const startWaitMs = 60_000;
const pollMs = 20;
/** After a crash the old server's children hold its shared memory until they notice. */
const orphanWaitMs = 15_000;
const portTriesMax = 5;

export interface EmbeddedPostgresOptions {
  /** Made if missing and kept: the next start finds the same data. */
  dataDir: string;
  /** A free one if not given. */
  port?: number;
  /** Told in a sentence what takes time or is unusual. */
  log?: (message: string) => void;
  /** Server settings, e.g. `{ log_lock_waits: "on" }`. `fsync` stays on whatever they say. */
  settings?: Record<string, string | number>;
}

export interface EmbeddedPostgres {
  /** With user, generated password and database: postgres://postgres:…@127.0.0.1:port/postgres */
  url: string;
  /** The postmaster's process. */
  pid: number;
  /** Fast shutdown (sessions are cut, data is safe) and wait for the end of the process. May be called again. */
  stop(): Promise<void>;
}

/**
 * Starts PostgreSQL on 127.0.0.1 and resolves when it answers. Survives what a crash leaves behind.
 * Throws one sentence when the package is missing, the folder is in use or of another version, or the server does not start.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const place = preparePostgresFolder(resolve(options.dataDir), options.log ?? (() => {}));
  await outlivePredecessor(place.data);
  takeOverData(place);
  const { server, port } = await startServer(place, options);
  return {
    url: `postgres://postgres:${place.password}@127.0.0.1:${port}/postgres`,
    pid: server.pid,
    stop: () => server.stop(),
  };
}

async function startServer(
  place: PostgresFolder,
  options: EmbeddedPostgresOptions,
): Promise<{ server: OwnedProcess; port: number }> {
  const startedAt = performance.now();
  for (let tryNumber = 1; ; ) {
    const port = options.port ?? (await freePort());
    const outcome = await tryStart(place, port, options.settings ?? {});
    if (typeof outcome !== "string") return { server: outcome, port };
    const isPortTaken = /could not bind|could not create any TCP/.test(outcome);
    const isOrphaned = /pre-existing shared memory/.test(outcome);
    if (isPortTaken && options.port === undefined && tryNumber++ < portTriesMax) continue;
    if (!isOrphaned || performance.now() - startedAt > orphanWaitMs) {
      throw new Error(`PostgreSQL did not start: ${outcome}`);
    }
    await sleep(10 * pollMs);
  }
}

/** Answers the server when it is ready, or the reason why it ended. */
async function tryStart(place: PostgresFolder, port: number, settings: Record<string, string | number>) {
  const outputFile = join(place.folder, "postgres.log");
  const outputStart = existsSync(outputFile) ? statSync(outputFile).size : 0;
  const { prefix, uid, gid } = place.identity;
  const postgres = join(place.native, "bin", "postgres");
  const [command = "", ...args] = [...prefix, postgres, "-D", place.data, ...settingArguments(port, settings)];
  const env = serverEnv();
  const server = startOwnedProcess({ command, args, env, outputFile, uid, gid, cwd: "/", stopSignal: "SIGINT" });
  const startedAt = performance.now();
  while (!(await isReady(place.data, server.pid, port))) {
    if (server.hasExited()) return whyEnded(outputFile, outputStart);
    if (performance.now() - startedAt > startWaitMs) {
      await server.stop();
      return `not ready after ${startWaitMs / 1000} s, see ${outputFile}`;
    }
    await sleep(pollMs);
  }
  return server;
}

/** The last of two settings of one name counts. */
function settingArguments(port: number, settings: Record<string, string | number>): string[] {
  const defaults = { max_connections: 200, timezone: "UTC", log_timezone: "UTC" };
  // Durability is what we sell, also in the demo; and only this machine may connect.
  const fixed = { fsync: "on", listen_addresses: "127.0.0.1", port, unix_socket_directories: "" };
  const all = { ...defaults, ...settings, ...fixed };
  return Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}

/** The connection comes first: a stale lock file may by chance name the same process number and "ready". */
async function isReady(data: string, pid: number, port: number): Promise<boolean> {
  if (!(await accepts(port))) return false;
  const lock = readLockFile(data);
  return lock?.pid === pid && lock.status === "ready";
}

function whyEnded(outputFile: string, outputStart: number): string {
  // The file is emptied when it has grown large, so the start may lie behind its end.
  const output = readFileSync(outputFile);
  const recent = output.subarray(output.length < outputStart ? 0 : outputStart).toString("utf8");
  const lines = recent.trim().split("\n");
  const telling = lines.filter((line) => /FATAL|PANIC|could not bind|error while loading|not found/.test(line));
  return (telling.length > 0 ? telling : lines.slice(-3)).join(" ");
}

function accepts(port: number): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect({ host: "127.0.0.1", port });
    const finish = (isOpen: boolean) => {
      socket.destroy();
      done(isOpen);
    };
    socket.once("connect", () => finish(true));
    socket.once("error", () => finish(false));
  });
}
