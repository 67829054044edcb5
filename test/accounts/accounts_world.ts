import { expect } from "bun:test";
import { readConfig } from "../../src/config.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { createLog } from "../../src/platform/log.ts";
import { createWorld } from "../world.ts";

/** Long enough to observe that an operation waits. */
const WAIT_MS = 200;

export type AccountsWorld = Awaited<ReturnType<typeof createAccountsWorld>>;

/** A separate database, and the arguments that the stores of `src/accounts` take. `connections`: for what is to be at once. */
export async function createAccountsWorld({ connections }: { connections?: number } = {}) {
  const world = await createWorld();
  const log = createLog("silent");
  const config = readConfig({
    DATABASE_URL: world.url,
    SECRET_KEY: "11".repeat(32),
    BASE_URL: "https://api.tollgate.example/v1",
    PANEL_URL: "https://panel.tollgate.example",
  });
  const deps = { db: world.openDb(connections), bus: inProcessBus(log), config };
  return {
    ...world,
    deps,

    /** Runs `work` while another transaction has the lock that `lock` takes. `work` must wait for that transaction's end, and no longer. */
    async whileLocked<T>(lock: string, work: () => Promise<T>): Promise<T> {
      let running: Promise<T> | undefined;
      await world.sql.begin(async (tx) => {
        await tx.unsafe(lock);
        let ended = false;
        running = work().finally(() => (ended = true));
        // It may be refused before the caller awaits it: while this transaction's end is on its way.
        running.catch(() => {});
        await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
        expect(ended).toBe(false);
      });
      if (!running) throw new Error("nothing was run");
      return running;
    },

    async close(): Promise<void> {
      await deps.db.close();
      await world.close();
    },
  };
}
