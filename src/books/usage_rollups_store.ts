import type { SliceTx } from "./short_transactions_store.ts";

/**
 * The rollups: usage records summed by account, key, kind (model, host and mode) and the time they began, so that a chart costs
 * its bars and not its records. The closing folds them with its other sums: requests write nothing for them. What it has
 * not come to, the tail, is read from the receipts, in the statement that reads the rollups: so every sum is exact at any
 * moment, and of one.
 *
 * Days of every zone begin at a quarter of an hour of UTC. So a rollup has rows for quarters and for days of UTC, of each key
 * and of all keys (key 0), and for months of all keys. What lies between two moments is the days between the midnights of UTC
 * that are nearest to them, more or less the quarters between each and its midnight: `usage_sums_store.ts`. A statement's month
 * has what ended in it: the few requests that may have begun in another one stand in `usage_crossings` besides, see
 * `statement_store.ts`. `rollups_walk_store.ts` compares rollups with their receipts.
 *
 * Nothing drops receipts. Where an operator drops a month of them, the next walk over them finds rows gone, and everything is
 * folded anew: then rollups say what is left.
 */

/** Rows of `usage_sums`: a quarter of an hour, a day and a month of UTC. */
export const QUARTER = 15;
export const DAY = 1440;
export const MONTH = 0;
/** Of all keys of the account. */
export const ALL_KEYS = 0;
/** What a rollup is made of, in a receipt. */
export const USED_COLUMNS = `account_id, key_id, model_id, host, mode, prompt_tokens, cached_tokens, completion_tokens,
  charged_nano_usd, created_at, finished_at`;
/** The usage records that are not folded yet, as a table. Fenced, so that they are looked for by their transaction. */
export const UNFOLDED_RECORDS = `(
  select * from receipts where written_in >= (select pg_snapshot_xmax(folded) from book_closing) and outcome = 'settled'
  union all
  select * from receipts
  where written_in = any(array(select pg_snapshot_xip(folded) from book_closing)) and outcome = 'settled' offset 0)`;
/** Whether a receipt is folded. */
export const IS_FOLDED = "pg_visible_in_snapshot(written_in, (select folded from book_closing))";
/** A request id and the database's clock may be so far apart (ledger_reserve holds replicas to that). */
export const CLOCKS_APART = "1 hour";

export const COUNTS = "requests, charges, prompt_tokens, cached_tokens, completion_tokens, charged_nano_usd";
const COUNTED = `count(*) as requests, count(*) filter (where charged_nano_usd > 0) as charges,
  sum(prompt_tokens)::bigint as prompt_tokens, sum(cached_tokens)::bigint as cached_tokens,
  sum(completion_tokens)::bigint as completion_tokens, sum(charged_nano_usd) as charged_nano_usd`;
export const SUMMED = `sum(requests)::bigint as requests, sum(charges)::bigint as charges, sum(prompt_tokens)::bigint as prompt_tokens,
  sum(cached_tokens)::bigint as cached_tokens, sum(completion_tokens)::bigint as completion_tokens,
  sum(charged_nano_usd) as charged_nano_usd`;
const ADDED = `requests = s.requests + excluded.requests, charges = s.charges + excluded.charges,
  prompt_tokens = s.prompt_tokens + excluded.prompt_tokens, cached_tokens = s.cached_tokens + excluded.cached_tokens,
  completion_tokens = s.completion_tokens + excluded.completion_tokens,
  charged_nano_usd = s.charged_nano_usd + excluded.charged_nano_usd`;

/** Parts of the closing's statement: adds the settled receipts of `taken` to the rollups. */
export function addToRollups(tx: SliceTx) {
  return tx.unsafe(`
    kinds_used as materialized (select distinct model_id, host, mode from taken where settled),
    kinds_added as (
      insert into usage_kinds (model_id, host, mode) select * from kinds_used u
      where not exists (select from usage_kinds k where k.model_id = u.model_id and k.host = u.host and k.mode = u.mode)
      returning id, model_id, host, mode
    ),
    kinds as materialized (
      select k.id as kind_id, model_id, host, mode from kinds_used join usage_kinds k using (model_id, host, mode)
      union all select id, model_id, host, mode from kinds_added
    ),
    used as materialized (
      select account_id, key_id, span_begins(${QUARTER}, created_at) as begins, kind_id, ${COUNTED}
      from taken join kinds using (model_id, host, mode) where settled group by 1, 2, 3, 4
    ),
    rolled_up as (
      insert into usage_sums as s (account_id, key_id, begins, kind_id, span, ${COUNTS})
      select account_id, key_id, begins, kind_id, ${QUARTER}, ${COUNTS} from used
      union all select account_id, ${ALL_KEYS}, begins, kind_id, ${QUARTER}, ${SUMMED} from used group by 1, 3, 4
      union all select account_id, key_id, span_begins(${DAY}, begins), kind_id, ${DAY}, ${SUMMED} from used group by 1, 2, 3, 4
      union all select account_id, ${ALL_KEYS}, span_begins(${DAY}, begins), kind_id, ${DAY}, ${SUMMED} from used group by 1, 3, 4
      union all select account_id, ${ALL_KEYS}, span_begins(${MONTH}, begins), kind_id, ${MONTH}, ${SUMMED} from used group by 1, 3, 4
      order by 1, 2, 5, 3, 4 -- In the index's order it takes half the time.
      on conflict (account_id, key_id, span, begins, kind_id) do update set ${ADDED}
    ),
    crossed as (
      insert into usage_crossings as s (account_id, begins, ends, kind_id, ${COUNTS})
      select account_id, span_begins(${QUARTER}, created_at), span_begins(${QUARTER}, finished_at), kind_id, ${COUNTED}
      from taken join kinds using (model_id, host, mode) where settled and crosses_month(created_at, finished_at) group by 1, 2, 3, 4
      on conflict (account_id, begins, ends, kind_id) do update set ${ADDED}
    )`);
}
