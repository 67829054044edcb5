import type { SliceTx } from "./short_transactions_store.ts";

/**
 * The rollups: usage records summed by account, key, kind (model, host, billing mode and route) and the time they began, so
 * that the cost of a chart depends on its bars and not on the number of records. They are written by folding, never by
 * requests. Usage records that are not folded yet are read from the receipts, in the same statement as the rollups:
 * every sum is exact, and of one moment.
 *
 * In every time zone days begin at a quarter of an hour UTC. So there are rollups for quarters of an hour and UTC days,
 * of each key and of all keys (key 0), and for UTC months of all keys. The usage between two moments is that of the UTC
 * days between the nearest midnights, plus or minus the quarters between each moment and its midnight
 * (`usage_sums_store.ts`). A statement's month contains what ended in it: the few requests that began in another month
 * are also in `usage_crossings` (`statement_store.ts`). `check_rollups_store.ts` compares rollups with their receipts.
 *
 * `usage_holders` has the same sums without kinds, by account within a scope, so that the accounts with the most usage are
 * found without reading the rows of each.
 *
 * Besides those of accounts there are rows of _scopes_, without keys: everyone (account 0), and the customers of a
 * reseller (the negative id of its account). They are for figures over many accounts (`figures_store.ts`).
 *
 * When receipts of a sealed month are dropped, its rollups stay. `sealed_usage` has what they are counted again from, should everything be
 * folded anew (`dropped_months_store.ts`).
 */

/** Spans of `usage_sums`, in minutes: a quarter of an hour, a UTC day; 0: a UTC month. */
export const QUARTER = 15;
/** The shortest span of `usage_holders`. */
export const HOUR = 60;
export const DAY = 1440;
export const MONTH = 0;
/** The key of rows that sum up all keys of an account. */
export const ALL_KEYS = 0;
/** The account of the rows that sum up all accounts. */
export const EVERYONE = 0;
/** The columns of a receipt that rollups are made of. */
export const USED_COLUMNS = `account_id, key_id, model_id, host, mode, coalesce(route_id, 0) as route_id, package_id, units, prompt_tokens,
  cached_tokens, completion_tokens, charged_nano_usd, cost_nano_usd, provider_cost_nano_usd, first_ms, created_at, finished_at`;
/** Joins what a unit of a receipt's package is worth. Source: MON-21. */
export const WORTH =
  "left join lateral (select unit_nano_usd, unit_cost_nano_usd from packages where packages.id = package_id) worth on true";
/** What a receipt's units are worth: to the account's seller, and of that the operator's share. */
export const UNITS = "coalesce(units * unit_nano_usd, 0)";
export const UNITS_COST = "coalesce(units * unit_cost_nano_usd, 0)";
/** What the provider charges for a receipt, as far as it is known; 1 if it is not. Source: MON-22. */
export const PROVIDER_COST = "coalesce(provider_cost_nano_usd, 0)";
export const COST_UNKNOWN = "(provider_cost_nano_usd is null)::int";
/** A receipt's marks in the histograms: of the time to the first event, if a route answered, and of the whole request. Source: MON-25. */
export const FIRST_MARK = "duration_mark(first_ms)";
export const WHOLE_MARK = "duration_mark(floor(extract(epoch from finished_at - created_at) * 1000)::bigint)";
/**
 * Usage records that are not folded yet, as a table expression. `offset 0` is an optimizer fence: they are looked up by
 * transaction id.
 */
export const UNFOLDED_RECORDS = `(
  select * from receipts where written_in >= (select pg_snapshot_xmax(folded) from book_closing) and outcome = 'settled'
  union all
  select * from receipts
  where written_in = any(array(select pg_snapshot_xip(folded) from book_closing)) and outcome = 'settled' offset 0)`;
/** Condition: the receipt is folded. */
export const IS_FOLDED = "pg_visible_in_snapshot(written_in, (select folded from book_closing))";
/** How far a request id's time and the database's clock may differ (`ledger_draw` compares the clocks). */
export const CLOCKS_APART = "1 hour";

export const COUNTS =
  "requests, charges, prompt_tokens, cached_tokens, completion_tokens, charged_nano_usd, earned_nano_usd, units_nano_usd, units_cost_nano_usd, provider_cost_nano_usd, cost_unknown, first_marks, whole_marks";
/** What a reseller earned by a receipt: what was charged above the operator's price (MRK-5). Without a markup \`greatest\` ignores the null. */
export const EARNED = "greatest(charged_nano_usd - cost_nano_usd, 0)";
const COUNTED = `count(*) as requests, count(*) filter (where charged_nano_usd > 0) as charges,
  sum(prompt_tokens)::bigint as prompt_tokens, sum(cached_tokens)::bigint as cached_tokens,
  sum(completion_tokens)::bigint as completion_tokens, sum(charged_nano_usd) as charged_nano_usd,
  sum(${EARNED}) as earned_nano_usd, sum(${UNITS}) as units_nano_usd, sum(${UNITS_COST}) as units_cost_nano_usd,
  sum(${PROVIDER_COST}) as provider_cost_nano_usd, sum(${COST_UNKNOWN})::bigint as cost_unknown,
  sum(${FIRST_MARK}) as first_marks, sum(${WHOLE_MARK}) as whole_marks`;
export const SUMMED = `sum(requests)::bigint as requests, sum(charges)::bigint as charges, sum(prompt_tokens)::bigint as prompt_tokens,
  sum(cached_tokens)::bigint as cached_tokens, sum(completion_tokens)::bigint as completion_tokens,
  sum(charged_nano_usd) as charged_nano_usd, sum(earned_nano_usd) as earned_nano_usd, sum(units_nano_usd) as units_nano_usd,
  sum(units_cost_nano_usd) as units_cost_nano_usd, sum(provider_cost_nano_usd) as provider_cost_nano_usd,
  sum(cost_unknown)::bigint as cost_unknown, sum(first_marks) as first_marks, sum(whole_marks) as whole_marks`;
export const ADDED = `requests = s.requests + excluded.requests, charges = s.charges + excluded.charges,
  prompt_tokens = s.prompt_tokens + excluded.prompt_tokens, cached_tokens = s.cached_tokens + excluded.cached_tokens,
  completion_tokens = s.completion_tokens + excluded.completion_tokens,
  charged_nano_usd = s.charged_nano_usd + excluded.charged_nano_usd,
  earned_nano_usd = s.earned_nano_usd + excluded.earned_nano_usd, units_nano_usd = s.units_nano_usd + excluded.units_nano_usd,
  units_cost_nano_usd = s.units_cost_nano_usd + excluded.units_cost_nano_usd,
  provider_cost_nano_usd = s.provider_cost_nano_usd + excluded.provider_cost_nano_usd,
  cost_unknown = s.cost_unknown + excluded.cost_unknown, first_marks = s.first_marks + excluded.first_marks,
  whole_marks = s.whole_marks + excluded.whole_marks`;

/** The counts of `usage_holders`. */
const HOLDER_COLUMNS = [
  "requests",
  "prompt_tokens",
  "cached_tokens",
  "completion_tokens",
  "charged_nano_usd",
  "earned_nano_usd",
  "units_nano_usd",
  "units_cost_nano_usd",
  "provider_cost_nano_usd",
  "cost_unknown",
];
export const HOLDER_COUNTS = HOLDER_COLUMNS.join(", ");
export const HOLDERS_SUMMED = HOLDER_COLUMNS.map((count) => `sum(${count}) as ${count}`).join(", ");
const HOLDERS_ADDED = HOLDER_COLUMNS.map((count) => `${count} = s.${count} + excluded.${count}`).join(", ");
/** The scope of `usage_holders` whose holders are resellers, by their negative id: far from any account's id. */
export const RESELLERS = "-9000000000000000000";
/** In which scopes an account `a` is a holder: its own row in that of everyone and of its reseller, and its reseller's row. */
export const HELD = `(select ${EVERYONE}::bigint as scope, a.id as holder_id
  union all select ${RESELLERS}, -a.reseller_id where a.reseller_id is not null
  union all select -a.reseller_id, a.id where a.reseller_id is not null)`;

/**
 * CTEs: the settled receipts of `taken` as rows of the rollups. `used`: by key and quarter, from which all others but the crossings follow;
 * `crossings`: rows of `usage_crossings`.
 */
export function usedOfTaken(tx: SliceTx) {
  return tx.unsafe(`
    kinds_used as materialized (select distinct model_id, host, mode, route_id from taken where settled),
    kinds_added as (
      insert into usage_kinds (model_id, host, mode, route_id) select * from kinds_used u
      where not exists (select from usage_kinds k
        where k.model_id = u.model_id and k.host = u.host and k.mode = u.mode and k.route_id = u.route_id)
      returning id, model_id, host, mode, route_id
    ),
    kinds as materialized (
      select k.id as kind_id, model_id, host, mode, route_id from kinds_used join usage_kinds k using (model_id, host, mode, route_id)
      union all select id, model_id, host, mode, route_id from kinds_added
    ),
    used as materialized (
      select account_id, key_id, span_begins(${QUARTER}, created_at) as begins, kind_id, ${COUNTED}
      from taken join kinds using (model_id, host, mode, route_id) ${WORTH} where settled group by 1, 2, 3, 4
    ),
    crossings as materialized (
      select account_id, span_begins(${QUARTER}, created_at) as begins, span_begins(${QUARTER}, finished_at) as ends, kind_id, ${COUNTED}
      from taken join kinds using (model_id, host, mode, route_id) ${WORTH} where settled and crosses_month(created_at, finished_at) group by 1, 2, 3, 4
    )`);
}

/** CTEs: add `used` and `crossings` to the rollups. */
export function addToRollups(tx: SliceTx) {
  return tx.unsafe(`
    scoped as materialized (
      select scope, begins, kind_id, ${SUMMED} from used join accounts a on a.id = account_id
        cross join lateral (select ${EVERYONE} as scope union all select -reseller_id where reseller_id is not null) scopes
      group by 1, 2, 3
    ),
    rolled_up as (
      insert into usage_sums as s (account_id, key_id, begins, kind_id, span, ${COUNTS})
      select account_id, key_id, begins, kind_id, ${QUARTER}, ${COUNTS} from used
      union all select account_id, ${ALL_KEYS}, begins, kind_id, ${QUARTER}, ${SUMMED} from used group by 1, 3, 4
      union all select account_id, key_id, span_begins(${DAY}, begins), kind_id, ${DAY}, ${SUMMED} from used group by 1, 2, 3, 4
      union all select account_id, ${ALL_KEYS}, span_begins(${DAY}, begins), kind_id, ${DAY}, ${SUMMED} from used group by 1, 3, 4
      union all select account_id, ${ALL_KEYS}, span_begins(${MONTH}, begins), kind_id, ${MONTH}, ${SUMMED} from used group by 1, 3, 4
      union all select scope, ${ALL_KEYS}, begins, kind_id, ${QUARTER}, ${COUNTS} from scoped
      union all select scope, ${ALL_KEYS}, span_begins(${DAY}, begins), kind_id, ${DAY}, ${SUMMED} from scoped group by 1, 3, 4
      union all select scope, ${ALL_KEYS}, span_begins(${MONTH}, begins), kind_id, ${MONTH}, ${SUMMED} from scoped group by 1, 3, 4
      order by 1, 2, 5, 3, 4 -- In the index's order it takes half the time.
      on conflict (account_id, key_id, span, begins, kind_id) do update set ${ADDED}
    ),
    held as materialized (
      select scope, holder_id, span_begins(${HOUR}, begins) as begins, ${HOLDERS_SUMMED}
      from used join accounts a on a.id = account_id cross join lateral ${HELD} h group by 1, 2, 3
    ),
    holders_added as (
      insert into usage_holders as s (scope, holder_id, begins, span, ${HOLDER_COUNTS})
      select scope, holder_id, begins, ${HOUR}, ${HOLDER_COUNTS} from held
      union all select scope, holder_id, span_begins(${DAY}, begins), ${DAY}, ${HOLDERS_SUMMED} from held group by 1, 2, 3
      order by 1, 4, 3, 2
      on conflict (scope, span, begins, holder_id) do update set ${HOLDERS_ADDED}
    ),
    crossed as (
      insert into usage_crossings as s (account_id, begins, ends, kind_id, ${COUNTS})
      select account_id, begins, ends, kind_id, ${COUNTS} from crossings
      on conflict (account_id, begins, ends, kind_id) do update set ${ADDED}
    )`);
}
