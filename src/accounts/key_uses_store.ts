import type { Db } from "../platform/db.ts";

/** A use of a key, by the monotonic clock of the replica that saw it. */
export type KeyUse = { keyId: number; host: string; atMs: number };

/** Writes when keys were used last, in one statement. The moment is the database's: its now, less how long ago it was. */
export async function saveKeyUses({ db }: { db: Db }, uses: readonly KeyUse[], nowMs: number): Promise<void> {
  // In one order, so that two replicas do not wait for each other.
  await db.sql`
    insert into key_uses as u (key_id, last_used_at, host)
    select key_id, statement_timestamp() - age_ms * interval '1 millisecond', host
    from unnest(${uses.map(({ keyId }) => keyId)}::bigint[], ${uses.map(({ atMs }) => nowMs - atMs)}::float8[],
      ${uses.map(({ host }) => host)}::text[]) as seen(key_id, age_ms, host)
    order by key_id
    on conflict (key_id) do update set last_used_at = excluded.last_used_at, host = excluded.host
    where excluded.last_used_at > u.last_used_at`;
}
