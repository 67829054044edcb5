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
/** A command that changes something waits this long for Redis before it starts. */
const REDIS_WAIT_MS = 2500;
const REDIS_POLL_MS = 10;
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
  const bus = need.changes && config.redisUrl ? redisBus(config.redisUrl, log) : inProcessBus(log);
  try {
    await untilHealthy(bus);
    return await work({ config, db, bus, log });
  } finally {
    done = true;
    bus.close();
    await db.close();
  }
}

/** Its connection takes a moment, and it sends nothing before. Without Redis the change is made all the same. */
async function untilHealthy(bus: Bus): Promise<void> {
  for (let waitedMs = 0; !bus.healthy() && waitedMs < REDIS_WAIT_MS; waitedMs += REDIS_POLL_MS) {
    await new Promise((resolve) => setTimeout(resolve, REDIS_POLL_MS));
  }
}

const warned = new Set<string>();

/** A line of the log, for a person: its message, once. */
function warn(line: string): void {
  const { message } = JSON.parse(line) as { message: string };
  if (!warned.has(message)) process.stderr.write(`Warning: ${message}.\n`);
  warned.add(message);
}
