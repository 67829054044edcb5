import { randomBytes } from "node:crypto";
import { type Change, inProcessBus } from "../../src/platform/bus.ts";
import { openDb } from "../../src/platform/db.ts";
import { createTestDatabase } from "../database.ts";
import { quietLog } from "../platform/quiet_log.ts";

export type CatalogWorld = Awaited<ReturnType<typeof createCatalogWorld>>;

/** A separate database, a bus, and the arguments of the catalog's functions. Providers may be on 127.0.0.1:9000. */
export async function createCatalogWorld() {
  const database = await createTestDatabase();
  const db = openDb({ databaseUrl: database.url, dbPrepare: true, dbPoolMax: 4 });
  const { log, lines } = quietLog();
  const bus = inProcessBus(log);
  const changes: Change[] = [];
  bus.subscribe((told) => void changes.push(...told));
  const config = { secretKey: randomBytes(32), providerAllowPrivate: ["127.0.0.1:9000", "127.0.0.1:9001"] };
  return {
    url: database.url,
    sql: db.sql,
    lines,
    /** What was told to the bus; tests empty it. */
    changes,
    deps: { db, bus, config, log },
    /** Sets the database's clock, in UTC. */
    async setClock(at: string): Promise<void> {
      await db.sql.unsafe(`create or replace function ledger_now() returns timestamptz language sql volatile as $$
        select timestamptz '${at}+00' $$`);
    },
    async close(): Promise<void> {
      await db.close();
      await database.drop();
    },
  };
}
