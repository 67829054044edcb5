import type { Db } from "../platform/db.ts";
import { inSlices } from "../platform/prune.ts";
import {
  BOUND_PARTS,
  BOUND_USES_DAYS,
  type BoundedModel,
  type BoundUse,
  boundsKey,
  type ModelUses,
} from "./bound_advice.ts";

/** How much of the reserved tokens answers used, of all replicas, by model, day and part. Source: MON-8. */

/** Rows deleted in one statement. */
const PRUNE_MAX = 20_000;

/** Adds a replica's counts to the shared ones, in one statement. */
export async function addBoundUses({ db }: { db: Db }, uses: readonly ModelUses[]): Promise<void> {
  const rows = uses.flatMap(({ modelId, key, parts }) =>
    parts.filter(({ requests }) => requests > 0).map((use) => ({ ...use, modelId, key })),
  );
  const column = <T>(pick: (row: (typeof rows)[number]) => T) => rows.map(pick);
  // Sorted, so that two replicas do not deadlock; and grouped, because two snapshots may have the same model.
  await db.sql`
    insert into bound_uses as u (model_id, day, part, bounds, requests, overruns, most_permille)
    select a.model_id, (ledger_now() at time zone 'UTC')::date, a.part, a.bounds, sum(a.requests), sum(a.overruns), max(a.most_permille)
    from unnest(${column((r) => r.modelId)}::text[], ${column((r) => r.part)}::text[], ${column((r) => r.key)}::text[],
        ${column((r) => r.requests)}::bigint[], ${column((r) => r.overruns)}::bigint[], ${column((r) => r.mostPermille)}::int[])
      as a(model_id, part, bounds, requests, overruns, most_permille)
    group by a.model_id, a.part, a.bounds order by 1, 3, 4
    on conflict (model_id, day, part, bounds) do update set requests = u.requests + excluded.requests,
      overruns = u.overruns + excluded.overruns, most_permille = greatest(u.most_permille, excluded.most_permille)`;
}

/** The uses of models under their present bounds, by id; parts without a request are omitted. */
export async function readBoundUses(
  { db }: { db: Db },
  models: readonly (BoundedModel & { id: string })[],
): Promise<Map<string, BoundUse[]>> {
  const rows = await db.sql`
    select model_id, part, sum(requests)::float8 as requests, sum(overruns)::float8 as overruns, max(most_permille)::int as most
    from unnest(${models.map(({ id }) => id)}::text[], ${models.map(boundsKey)}::text[]) as m(id, bounds)
    join bound_uses u on u.model_id = m.id and u.bounds = m.bounds
    where u.day > (ledger_now() at time zone 'UTC')::date - ${BOUND_USES_DAYS}::int
    group by model_id, part`;
  const uses = new Map<string, BoundUse[]>();
  for (const part of BOUND_PARTS)
    for (const row of rows) {
      if (row.part !== part) continue;
      const use = { part, requests: row.requests, overruns: row.overruns, mostPermille: row.most };
      uses.set(row.model_id, [...(uses.get(row.model_id) ?? []), use]);
    }
  return uses;
}

/** Deletes rows that are no longer read; returns how many. Called by a job. */
export async function pruneBoundUses({ db }: { db: Db }): Promise<number> {
  return await inSlices(PRUNE_MAX, async () => {
    const deleted = await db.sql`
      delete from bound_uses where ctid = any (array(
        select ctid from bound_uses where day <= (ledger_now() at time zone 'UTC')::date - ${BOUND_USES_DAYS}::int limit ${PRUNE_MAX}))
      returning 1`;
    return deleted.length;
  });
}
