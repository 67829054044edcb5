import { constants } from "node:fs";
import { access, mkdir } from "node:fs/promises";
import process from "node:process";
import { knownSentence } from "./cli/errors.ts";
import { type Config, ConfigError, readConfig } from "./config.ts";
import { createLog, type Log } from "./platform/log.ts";
import { migrationState, schemaSentence } from "./platform/migrate.ts";
import { raiseFetchLimit, runtimeName } from "./platform/runtime.ts";
import { createStartWait, type StartWait } from "./platform/start_wait.ts";
import { within } from "./platform/time_limit.ts";
import type { Replica } from "./replica.ts";

/**
 * Starts one replica: configuration → spool folder → schema → replica. Runs until SIGTERM or SIGINT, then drains. With PROCESSES it starts
 * processes that do so.
 */

/** Besides the requests in flight, for health checks and images. */
const FETCHES_BESIDE = 1000;
/** After the drain's times: to settle, to write the spool and to close. */
const CLOSE_SECONDS_MAX = 15;
/** A process that exits at once takes at most this long to write its spool, and its log. */
const ABANDON_MS_MAX = 1_000;
const LOG_MS_MAX = 500;
/** Under `bun run`, one Ctrl-C arrives twice: from the terminal, and from the parent process. */
const SAME_SIGNAL_MS = 1_000;

await main().catch((error) => {
  process.stderr.write(`${knownSentence(error) ?? error?.stack ?? error}\n`);
  process.exit(1);
});

async function main(): Promise<void> {
  const config = readConfig(process.env);
  if (config.processes > 1 && config.processSocket === null) return await runAll(config);
  const fetches = raiseFetchLimit(config.inFlightMax + FETCHES_BESIDE);
  const log = createLog(config.logLevel);
  if (fetches < config.inFlightMax)
    log.warn({ fetches }, "the runtime allows fewer requests to providers than IN_FLIGHT_MAX");
  await run(config, log).catch(async (error) => {
    await written(log);
    throw error;
  });
}

/** The first of several processes: it only starts and stops the others. */
async function runAll(config: Config): Promise<void> {
  await checkSpoolDir(config.spoolDir);
  const { runProcesses } = await import("./processes.ts");
  const log = createLog(config.logLevel);
  const code = await runProcesses(config, log).catch(async (error) => {
    await written(log);
    throw error;
  });
  await exit(log, code);
}

async function run(config: Config, log: Log): Promise<void> {
  let onSignal = (signal: string) => {
    log.info({ signal }, "stopped before it was listening");
    void exit(log, 0);
  };
  // From the beginning: PID 1 of a container ignores signals that it does not handle.
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => onSignal(signal));
  await checkSpoolDir(config.spoolDir);
  const machine = { nowMs: () => performance.now(), wallMs: () => Date.now() };
  const { nowMs } = machine;
  const wait = createStartWait({ waitSeconds: config.dbWaitSeconds, log, nowMs, sentenceOf: knownSentence });
  await checkSchema(config, wait);
  // Loaded only now: a process that replaces itself to raise its fetch limit would load everything twice.
  const { startReplica } = await import("./replica.ts");
  const replica = await startReplica(config, machine, log, wait);
  const { port, internalPort } = replica;
  // Before the log line: whoever reads it may send a signal.
  onSignal = drainer(replica, log, config.drainNoticeSeconds + config.drainSeconds + CLOSE_SECONDS_MAX);
  const facts = { port, internalPort, runtime: runtimeName, pid: process.pid };
  if (config.processSocket === null) return log.info(facts, "listening");
  log.info(facts, "one of several processes serves");
  const { joinProcesses } = await import("./processes.ts");
  joinProcesses(config.processSocket, internalPort, () => onSignal("the first process has ended"));
}

async function exit(log: Log, code: number): Promise<void> {
  await written(log);
  process.exit(code);
}

/** Waits for the log to be written. One that nobody reads must not keep the process alive. */
async function written(log: Log): Promise<void> {
  await within(LOG_MS_MAX, log.flush()).catch(() => {});
}

/** The first signal drains, and exits with 0 if everything is settled. A later one, or `secondsMax`, exits at once with 1. */
function drainer(replica: Replica, log: Log, secondsMax: number): (signal: string) => void {
  const endNow = async (why: string) => {
    log.error({ why }, "exits at once: settlements under way go to the spool, open holds end with their leases");
    await within(ABANDON_MS_MAX, replica.abandon()).catch((err) =>
      log.fatal({ err }, "a settlement could not be written to the spool"),
    );
    await exit(log, 1);
  };
  let firstMs: number | undefined;
  return (signal) => {
    if (firstMs !== undefined) {
      if (performance.now() - firstMs > SAME_SIGNAL_MS) void endNow("a second signal");
      return;
    }
    firstMs = performance.now();
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

/** Checks at the start that settlements can be spooled. Throws ConfigError. */
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

/** Checks that the schema is the one of this release. Throws ConfigError that says what to do, or the last error of Postgres. */
async function checkSchema({ databaseUrl }: Config, wait: StartWait): Promise<void> {
  const state = await wait.step("the schema", () => migrationState(databaseUrl));
  if (state.schema !== "current") throw new ConfigError(schemaSentence(state));
}
