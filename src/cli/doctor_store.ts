import { outboxState } from "../messages/deliveries_store.ts";
import { type DownServer, listDownServers } from "../messages/mail_breakers_store.ts";
import type { Db } from "../platform/db.ts";

/** The server's version number, as 170002. */
export async function readServer({ db }: { db: Db }): Promise<{ version: number }> {
  const [row] = await db.sql`select current_setting('server_version_num')::int as version`;
  return { version: Number(row?.version) };
}

/** Number of replicas whose last heartbeat is younger than `seconds`. */
export async function replicasUp({ db }: { db: Db }, seconds: number): Promise<number> {
  const [row] = await db.sql`
    select count(*)::int as up from replicas where seen_at > clock_timestamp() - make_interval(secs => ${seconds})`;
  return Number(row?.up);
}

/**
 * The number of waiting deliveries, the age of the oldest in seconds, those given up in the last 24 hours, and mail
 * servers that do not answer.
 */
export async function readOutbox({
  db,
}: {
  db: Db;
}): Promise<{ waiting: number; oldestSeconds: number; failed: number; downServers: DownServer[] }> {
  const { waiting, oldestSeconds, failed } = await outboxState({ db });
  return { waiting, oldestSeconds, failed, downServers: await listDownServers({ db }) };
}
