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
