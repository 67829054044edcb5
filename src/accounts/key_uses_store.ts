import type { Db } from "../platform/db.ts";

/** A use of a key; `atMs` is on the monotonic clock of this replica. */
export type KeyUse = { keyId: number; host: string; atMs: number };

/** Stores the last uses, in one statement. The stored time is the database's clock minus the age of the use. */
export async function saveKeyUses({ db }: { db: Db }, uses: readonly KeyUse[], nowMs: number): Promise<void> {
  // Sorted, so that two replicas do not deadlock.
  await db.sql`
    insert into key_uses as u (key_id, last_used_at, host)
    select key_id, statement_timestamp() - age_ms * interval '1 millisecond', host
    from unnest(${uses.map(({ keyId }) => keyId)}::bigint[], ${uses.map(({ atMs }) => nowMs - atMs)}::float8[],
      ${uses.map(({ host }) => host)}::text[]) as seen(key_id, age_ms, host)
    order by key_id
    on conflict (key_id) do update set last_used_at = excluded.last_used_at, host = excluded.host
    where excluded.last_used_at > u.last_used_at`;
}
