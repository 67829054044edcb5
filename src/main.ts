import { constants } from "node:fs";
import { access, mkdir } from "node:fs/promises";
import process from "node:process";
import { knownSentence } from "./cli/errors.ts";
import { type Config, ConfigError, readConfig } from "./config.ts";
import { isPassing } from "./platform/db.ts";
import { createLog, type Log } from "./platform/log.ts";
import { migrationState, schemaSentence } from "./platform/migrate.ts";
import { raiseFetchLimit, runtimeName } from "./platform/runtime.ts";
import { within } from "./platform/time_limit.ts";
import type { Replica } from "./replica.ts";

/** Starts one replica: config → spool's folder → schema → replica → until SIGTERM or SIGINT, then drain. */

/** Beside the requests under way, for probes and images. */
const FETCHES_BESIDE = 1000;
/** Postgres may come up after us: waits double from the first to the longest, for DB_WAIT_SECONDS in all. */
const DATABASE_WAIT_MS = { first: 500, longest: 8_000 };
/** One attempt: to connect, and to be answered. */
const DATABASE_ATTEMPT_MS_MAX = 6_000;
/** After the notice and the grace of a drain: to settle, to spool and to close. */
const CLOSE_SECONDS_MAX = 15;
/** A process that ends at once takes no longer than this to spool, and than that to log. */
const ABANDON_MS_MAX = 1_000;
const LOG_MS_MAX = 500;

await main().catch((error) => {
  process.stderr.write(`${knownSentence(error) ?? error?.stack ?? error}\n`);
  process.exit(1);
});

async function main(): Promise<void> {
  const config = readConfig(process.env);
  const fetches = raiseFetchLimit(config.inFlightMax + FETCHES_BESIDE);
  const log = createLog(config.logLevel);
  let onSignal = (signal: string) => {
    log.info({ signal }, "ended before it listened");
    void exit(log, 0);
  };
  // From the beginning: the first process of a container is not ended by a signal that it does not listen to.
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => onSignal(signal));
  if (fetches < config.inFlightMax)
    log.warn({ fetches }, "the runtime allows fewer requests to providers than IN_FLIGHT_MAX");
  await checkSpoolDir(config.spoolDir);
  await checkSchema(config, log);
  // Not before: a process that replaces itself for its fetch limit would load all of it twice.
  const { startReplica } = await import("./replica.ts");
  const replica = await startReplica(config, { nowMs: () => performance.now(), unixMs: () => Date.now() }, log);
  const { port, internalPort } = replica;
  // First: whoever reads that it listens may tell it to end.
  onSignal = drainer(replica, log, config.drainNoticeSeconds + config.drainSeconds + CLOSE_SECONDS_MAX);
  log.info({ port, internalPort, runtime: runtimeName, pid: process.pid }, "listening");
}

async function exit(log: Log, code: number): Promise<void> {
  await within(LOG_MS_MAX, log.flush()).catch(() => {}); // Nobody reads the log: that must not keep us.
  process.exit(code);
}

/** The first signal drains and ends with 0 if all is settled; a second one, or `secondsMax`, ends at once, with 1. */
function drainer(replica: Replica, log: Log, secondsMax: number): (signal: string) => void {
  const endNow = async (why: string) => {
    log.error({ why }, "ends at once: what is being settled goes to the spool, what is open has a lease");
    await within(ABANDON_MS_MAX, replica.abandon()).catch((err) => log.fatal({ err }, "the spool takes no settlement"));
    await exit(log, 1);
  };
  let draining = false;
  return (signal) => {
    if (draining) return void endNow("a second signal");
    draining = true;
    log.info({ signal }, "draining");
    setTimeout(() => void endNow("the deadline"), secondsMax * 1000);
    replica.drain().then(
      (settled) => {
        if (settled) log.info("drained");
        else log.error("settlements wait in the spool for the next start");
        return exit(log, settled ? 0 : 1);
      },
      (err) => {
        log.fatal({ err }, "draining failed");
        return exit(log, 1);
      },
    );
  };
}

/** What cannot be settled must be kept: a replica that could not write there would find that out too late. Throws ConfigError. */
async function checkSpoolDir(directory: string): Promise<void> {
  try {
    await mkdir(directory, { recursive: true });
    await access(directory, constants.W_OK | constants.X_OK);
  } catch (error) {
    const why = error instanceof Error && "code" in error ? String(error.code) : String(error);
    throw new ConfigError(`SPOOL_DIR names a folder that cannot be written to (${why}): ${directory}`, {
      cause: error,
    });
  }
}

/** A replica does not run on a schema that it does not know. Throws ConfigError with what to do, or what Postgres said last. */
async function checkSchema({ databaseUrl, dbWaitSeconds }: Config, log: Log): Promise<void> {
  const givenUpMs = performance.now() + dbWaitSeconds * 1000;
  for (let waitMs = DATABASE_WAIT_MS.first; ; waitMs = Math.min(2 * waitMs, DATABASE_WAIT_MS.longest)) {
    try {
      const state = await within(DATABASE_ATTEMPT_MS_MAX, migrationState(databaseUrl), databaseIsSilent);
      if (state.schema === "current") return;
      throw new ConfigError(schemaSentence(state));
    } catch (err) {
      if (!isPassing(err) || performance.now() + waitMs > givenUpMs) throw err;
      log.warn({ err, why: knownSentence(err), againInMs: waitMs }, "Postgres is not there yet");
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

function databaseIsSilent(): Error {
  return Object.assign(new Error(`no answer within ${DATABASE_ATTEMPT_MS_MAX} ms`), { code: "CONNECT_TIMEOUT" });
}
