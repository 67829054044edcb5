import process from "node:process";
import type { Command } from "commander";
import { type Config, readConfig } from "../config.ts";
import { type Bus, inProcessBus, redisBus } from "../platform/bus.ts";
import { type Db, openDb } from "../platform/db.ts";
import { createLog, type Log } from "../platform/log.ts";
import { type Output, toJson } from "./output.ts";

/** How a command gets its database and bus, and says its result. */

/** Connections of a command: it does one thing after another. */
const POOL_MAX = 2;
/** A command that has changed something waits so long for Redis, to tell running replicas; by then they have read it in the database. */
const REDIS_WAIT_MS = 1_000;
const REDIS_POLL_MS = 10;
const NOT_TOLD =
  "The change is made, but Redis does not answer: running replicas read it in the database, within a second or two";
/** Stands in where no provider's key is read or written. */
const NO_SECRET_KEY = "0".repeat(64);

export type Context = { config: Config; db: Db; bus: Bus; log: Log };
/** `changes`: running replicas must notice. `secretKey`: providers' keys are read or written. */
export type Need = { changes?: boolean; secretKey?: boolean };

/**
 * Gives a command its --json and its action. `Options` are the types of its options, as their parsers make them; `args`
 * are its arguments as typed.
 */
export function does<Options extends object>(
  command: Command,
  need: Need,
  work: (context: Context, options: Options, args: readonly string[]) => Promise<Output>,
): void {
  command.option("--json", "print one JSON document").action(async () => {
    const options = command.opts<Options & { json?: true }>();
    const { text, json, exitCode = 0 } = await withContext(need, (context) => work(context, options, command.args));
    process.stdout.write(`${options.json ? toJson(json) : text}\n`);
    process.exitCode = exitCode;
  });
}

async function withContext<T>(need: Need, work: (context: Context) => Promise<T>): Promise<T> {
  const { env } = process;
  const config = readConfig(need.secretKey ? env : { ...env, SECRET_KEY: env.SECRET_KEY || NO_SECRET_KEY });
  let done = false;
  // At the end the bus says that it lost Redis, which is no news.
  const log = createLog("warn", { write: (line) => void (done || warn(line)) });
  const db = openDb({ ...config, dbPoolMax: POOL_MAX });
  const bus = need.changes && config.redisUrl ? tellingBus(config.redisUrl, log) : inProcessBus(log);
  try {
    return await work({ config, db, bus, log });
  } finally {
    done = true;
    bus.close();
    await db.close();
  }
}

/**
 * The bus of a command, which connects while the command works. What has changed is in the database by the time it is told:
 * only then is Redis waited for, once, and without it replicas learn from the changes table.
 */
function tellingBus(redisUrl: string, log: Log): Bus {
  const bus = redisBus(redisUrl, log);
  let connected: Promise<boolean> | undefined;
  return {
    ...bus,
    async publish(changes) {
      connected ??= becomesHealthy(bus);
      if (await connected) await bus.publish(changes);
      else log.warn(NOT_TOLD);
    },
  };
}

async function becomesHealthy(bus: Bus): Promise<boolean> {
  for (let waitedMs = 0; !bus.healthy(); waitedMs += REDIS_POLL_MS) {
    if (waitedMs >= REDIS_WAIT_MS) return false;
    await new Promise((resolve) => setTimeout(resolve, REDIS_POLL_MS));
  }
  return true;
}

const warned = new Set<string>();

/** A line of the log, for a person: its message, once. */
function warn(line: string): void {
  const { message } = JSON.parse(line) as { message: string };
  if (!warned.has(message)) process.stderr.write(`Warning: ${message}.\n`);
  warned.add(message);
}
