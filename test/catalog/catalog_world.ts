import { randomBytes } from "node:crypto";
import { inProcessBus } from "../../src/platform/bus.ts";
import { openDb } from "../../src/platform/db.ts";
import { createTestDatabase } from "../database.ts";
import { quietLog } from "../platform/quiet_log.ts";

export type CatalogWorld = Awaited<ReturnType<typeof createCatalogWorld>>;

/** A database of its own, a bus, and what the catalog's functions take. Providers may be on 127.0.0.1:9000. */
export async function createCatalogWorld() {
  const database = await createTestDatabase();
  const db = openDb({ databaseUrl: database.url, dbPrepare: true, dbPoolMax: 4 });
  const { log, lines } = quietLog();
  const config = { secretKey: randomBytes(32), providerAllowPrivate: ["127.0.0.1:9000", "127.0.0.1:9001"] };
  return {
    url: database.url,
    sql: db.sql,
    lines,
    deps: { db, bus: inProcessBus(log), config, log },
    async close(): Promise<void> {
      await db.close();
      await database.drop();
    },
  };
}
