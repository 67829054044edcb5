import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type Service, startPostgres } from "../../scripts/services.ts";
import { processExists } from "../../src/demo/postgres/owned_process.ts";
import { until } from "../platform/own_redis.ts";

export type OwnPostgres = {
  /** Worlds are created in it: DATABASE_URL names it until `remove`. */
  url: string;
  /**
   * Ends it without a shutdown: SIGQUIT stops all sessions immediately, SIGKILL kills the postmaster under them.
   * Resolves when it has ended.
   */
  crash(signal: "SIGQUIT" | "SIGKILL"): Promise<void>;
  /** Starts it on the same data and port; it recovers from its log. */
  start(): Promise<void>;
  /** Stops it for good, and deletes its data. */
  remove(): Promise<void>;
};

/** A PostgreSQL that a test may crash, fsync on. Worlds made from now on are in it. */
export async function ownPostgres(): Promise<OwnPostgres> {
  const dataDir = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-postgres-`));
  const before = process.env.DATABASE_URL;
  let running: Service = await startPostgres({ dataDir });
  const { url, port } = running;
  process.env.DATABASE_URL = url;
  return {
    url,
    async crash(signal) {
      const { pid } = running;
      process.kill(pid, signal);
      await until(() => !processExists(pid));
    },
    async start() {
      running = await startPostgres({ dataDir, port });
    },
    async remove() {
      if (before === undefined) delete process.env.DATABASE_URL;
      else process.env.DATABASE_URL = before;
      await running.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}
