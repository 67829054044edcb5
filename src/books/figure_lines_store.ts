import { type SQL, sql } from "drizzle-orm";
import { momentsOf, spanned, timesEach } from "./spans_store.ts";
import { ALL_KEYS, FIRST_MARK, QUARTER, UNFOLDED_RECORDS, WHOLE_MARK } from "./usage_rollups_store.ts";

/** Statements for figures: errors of a scope, and errors and latency of the accounts that a list shows. Source: MON-25, MON-26. */

const ERRORS = {
  table: "error_sums",
  step: QUARTER,
  sums: "sum(requests) as requests",
  counts: "requests",
};

/** Errors by part and code, and by model if that is asked for. `holder`: the account id of the rows. */
export function errorsBetween({
  holder,
  isByModel,
  edges,
}: {
  holder: number;
  isByModel: boolean;
  edges: readonly number[];
}): SQL {
  const groups = isByModel ? ["code", "model_id"] : ["code"];
  const within = spanned(momentsOf(edges), { ...ERRORS, condition: sql`account_id = ${holder}::bigint`, groups });
  return sql`
    with ${within}
    select i, ${sql.raw(groups.join(", "))}, sum(times * requests)::bigint as requests from rolled_up
    where i between 1 and ${edges.length - 1}::int group by i, ${sql.raw(groups.join(", "))} having sum(times * requests) > 0`;
}

type OfHolders = { ids: readonly number[]; edges: readonly [number, number] };

const isOneOf = (ids: readonly number[]): SQL => sql`account_id = any(${`{${ids.join(",")}}`}::text::bigint[])`;

/** Errors of accounts, or by their negative ids of resellers' customers. */
export function lineErrorsBetween({ ids, edges }: OfHolders): SQL {
  const within = spanned(momentsOf(edges), { ...ERRORS, condition: isOneOf(ids), groups: ["account_id"] });
  return sql`
    with ${within}
    select account_id as id, sum(times * requests)::bigint as requests from rolled_up where i = 1 group by 1`;
}

/** The histograms of accounts, or by their negative ids of resellers' customers. */
export function marksBetween({ ids, edges }: OfHolders): SQL {
  const moments = momentsOf(edges);
  const counts = "first_marks, whole_marks";
  const within = spanned(moments, {
    table: "usage_sums",
    condition: sql`${isOneOf(ids)} and key_id = ${ALL_KEYS}`,
    step: QUARTER,
    groups: ["account_id"],
    sums: "sum(first_marks) as first_marks, sum(whole_marks) as whole_marks",
    counts,
  });
  return sql`
    with ${within}, parts as (
      select i, account_id, ${timesEach(counts)} from rolled_up
      union all
      select width_bucket(tail.created_at, ${moments}), held.account_id, ${sql.raw(FIRST_MARK)}, ${sql.raw(WHOLE_MARK)}
      from ${sql.raw(UNFOLDED_RECORDS)} tail join (select id, reseller_id from accounts) a on a.id = tail.account_id
        cross join lateral (select a.id union all select -a.reseller_id where a.reseller_id is not null) as held(account_id)
      where held.${isOneOf(ids)}
    )
    select account_id as id, sum(first_marks) as first_marks, sum(whole_marks) as whole_marks from parts where i = 1 group by 1`;
}
