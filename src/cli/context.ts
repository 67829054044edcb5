import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { type Config, readConfig } from "../config.ts";
import { ExistsError } from "../errors.ts";
import { type Bus, inProcessBus, redisBus } from "../platform/bus.ts";
import { type Db, openDb } from "../platform/db.ts";
import { createLog, type Log } from "../platform/log.ts";
import { setNameServers } from "../platform/names.ts";
import { type Output, toJson } from "./output.ts";
import { terminal } from "./terminal.ts";

/** Defines commands: gives each its database, its bus and its output. */

/** Connections of a command, which runs one query after another. */
const POOL_MAX = 2;
/** How long a command waits for Redis to notify running replicas. By then they have read the change in the database. */
const REDIS_WAIT_MS = 1_000;
const REDIS_POLL_MS = 10;
const NOT_NOTIFIED =
  "The change is made, but Redis does not answer: running replicas read it in the database within two seconds";
/** For commands that neither read nor write secrets. */
const NO_SECRET_KEY = "0".repeat(64);
const NO_DATABASE = "postgres://none.invalid/none";

export type Context = { config: Config; db: Db; bus: Bus; log: Log };
/**
 * `changes`: running replicas must be notified. `secretKey`: secrets are read or written. `adds`: what it adds may be there already; the
 * command has --if-missing, so that a script can be run again.
 */
export type Need = {
  changes?: boolean;
  secretKey?: boolean;
  adds?: boolean;
  /** Whether these options name a server, so that no database is needed. */
  server?: (options: object) => boolean;
};

/**
 * Gives a command its --json option and its action. `Options` are the types of its parsed options; `args` are its arguments
 * as typed.
 */
export function defineCommand<Options extends object>(
  command: Command,
  need: Need,
  work: (context: Context, options: Options, args: readonly string[]) => Promise<Output>,
): void {
  if (need.adds) command.option("--if-missing", "if it is there already, change nothing and succeed");
  command.option("--json", "print one JSON document").action(async () => {
    const options = command.opts<Options & { json?: true; ifMissing?: true }>();
    const run = (context: Context) => work(context, options, command.args);
    const withParts = need.server?.(options) ? withoutDatabase : withContext;
    const { text, json, exitCode = 0 } = await withParts(need, options.ifMissing ? unlessThere(run) : run);
    terminal().out(`${options.json ? toJson(json) : text}\n`);
    terminal().exitsWith(exitCode);
  });
}

/** The same command, for which it is no error that what it adds is there already. */
function unlessThere(work: (context: Context) => Promise<Output>): (context: Context) => Promise<Output> {
  return async (context) => {
    try {
      return await work(context);
    } catch (error) {
      if (!(error instanceof ExistsError)) throw error;
      return { text: `${error.message} Nothing is changed.`, json: { exists: true, message: error.message } };
    }
  };
}

/** For a command that asks a server: its parts connect only when they are used. */
async function withoutDatabase<T>(_: Need, work: (context: Context) => Promise<T>): Promise<T> {
  const { env } = terminal();
  const config = readConfig({
    ...env,
    DATABASE_URL: env.DATABASE_URL || NO_DATABASE,
    SECRET_KEY: env.SECRET_KEY || NO_SECRET_KEY,
  });
  const log = createLog("silent");
  return await work({ config, log, db: openDb({ ...config, dbPoolMax: POOL_MAX }), bus: inProcessBus(log) });
}

async function withContext<T>(need: Need, work: (context: Context) => Promise<T>): Promise<T> {
  const { env } = terminal();
  const config = readConfig(need.secretKey ? env : { ...env, SECRET_KEY: env.SECRET_KEY || NO_SECRET_KEY });
  setNameServers(config.nameServers);
  let done = false;
  const warn = warnings();
  // Closing the bus logs that Redis is lost, which is expected.
  const log = createLog("warn", { write: (line) => void (done || warn(line)) });
  const db = openDb({ ...config, dbPoolMax: POOL_MAX });
  const bus = need.changes && config.redisUrl ? commandBus(config.redisUrl, log) : inProcessBus(log);
  try {
    return await work({ config, db, bus, log });
  } finally {
    done = true;
    bus.close();
    await db.close();
  }
}

/**
 * The bus of a command, which connects while the command works. A change is committed before it is published: only then does
 * the command wait for Redis, once. Without Redis, replicas learn of the change from the changes table.
 */
function commandBus(redisUrl: string, log: Log): Bus {
  const bus = redisBus(redisUrl, log);
  let connected: Promise<boolean> | undefined;
  return {
    ...bus,
    async publish(changes) {
      connected ??= becomesHealthy(bus);
      if (await connected) await bus.publish(changes);
      else log.warn(NOT_NOTIFIED);
    },
  };
}

async function becomesHealthy(bus: Bus): Promise<boolean> {
  for (let waitedMs = 0; !bus.healthy(); waitedMs += REDIS_POLL_MS) {
    if (waitedMs >= REDIS_WAIT_MS) return false;
    await sleep(REDIS_POLL_MS);
  }
  return true;
}

/** Shows log lines to a person: each message once. */
function warnings(): (line: string) => void {
  const { err } = terminal();
  const warned = new Set<string>();
  return (line) => {
    const { message } = JSON.parse(line) as { message: string };
    if (!warned.has(message)) err(`Warning: ${message}.\n`);
    warned.add(message);
  };
}
