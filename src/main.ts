import process from "node:process";
import { ConfigError, readConfig } from "./config.ts";
import { createLog } from "./platform/log.ts";
import { migrationState } from "./platform/migrate.ts";
import { raiseFetchLimit, runtimeName } from "./platform/runtime.ts";
import { startReplica } from "./replica.ts";

/** Starts one replica: config → schema check → replica → until SIGTERM or SIGINT, then drain. */

/** Beside the requests under way, for probes and images. */
const FETCHES_BESIDE = 1000;
/** Postgres may come up after us: waits double from the first. */
const DATABASE_ATTEMPTS = 6;
const DATABASE_FIRST_WAIT_MS = 500;

await main().catch((error) => {
  process.stderr.write(`${error instanceof ConfigError ? error.message : (error?.stack ?? error)}\n`);
  process.exit(1);
});

async function main(): Promise<void> {
  const config = readConfig(process.env);
  const fetches = raiseFetchLimit(config.inFlightMax + FETCHES_BESIDE);
  const log = createLog(config.logLevel);
  if (fetches < config.inFlightMax)
    log.warn({ fetches }, "the runtime allows fewer requests to providers than IN_FLIGHT_MAX");
  await checkSchema(config.databaseUrl);
  const replica = await startReplica(config, { nowMs: () => performance.now(), unixMs: () => Date.now() }, log);
  log.info({ port: replica.port, runtime: runtimeName, pid: process.pid }, "listening");

  let draining = false;
  const onSignal = (signal: string) => {
    // A second signal: now. What is not settled is in the spool, or has a lease.
    if (draining) process.exit(1);
    draining = true;
    log.info({ signal }, "draining");
    replica.drain().then(
      async (settled) => {
        log[settled ? "info" : "error"](
          { settled },
          settled ? "drained" : "settlements wait in the spool for the next start",
        );
        await log.flush();
        process.exit(settled ? 0 : 1);
      },
      async (err) => {
        log.fatal({ err }, "draining failed");
        await log.flush();
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", () => onSignal("SIGTERM"));
  process.on("SIGINT", () => onSignal("SIGINT"));
}

/** A replica does not run on a schema that it does not know. Throws with what to do. */
async function checkSchema(databaseUrl: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const { known, applied } = await migrationState(databaseUrl);
      if (applied === known) return;
      throw new ConfigError(
        applied < known
          ? `The database has ${applied} of ${known} migrations. Run: bun run cli migrate`
          : `The database has ${applied} migrations and this release knows ${known}: it is older than the database.`,
      );
    } catch (error) {
      if (error instanceof ConfigError || attempt === DATABASE_ATTEMPTS) throw error;
      const waitMs = DATABASE_FIRST_WAIT_MS * 2 ** (attempt - 1);
      process.stderr.write(
        `Postgres does not answer (${error instanceof Error ? error.message : error}); trying again in ${waitMs / 1000} s\n`,
      );
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}
