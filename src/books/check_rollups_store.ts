import { hasTime, type Slices, type SliceTx, slice } from "./short_transactions_store.ts";
import { ID_MAX, ID_MIN } from "./usage_records_store.ts";
import {
  ALL_KEYS,
  CLOCKS_APART,
  COST_UNKNOWN,
  COUNTS,
  DAY,
  EARNED,
  EVERYONE,
  FIRST_MARK,
  HELD,
  HOLDERS_SUMMED,
  HOUR,
  MONTH,
  PROVIDER_COST,
  QUARTER,
  RESELLERS,
  SUMMED,
  UNITS,
  UNITS_COST,
  USED_COLUMNS,
  WHOLE_MARK,
  WORTH,
} from "./usage_rollups_store.ts";

/**
 * A sweep that compares the rollups, and the sums of what keys used uncounted, with the receipts they were made of, so that a row
 * changed past folding is found. It goes in steps: whole accounts, or whole UTC days of a large account, of about as many receipts as a slice takes.
 *
 * A step compares two numbers, its *prints*. A row's print is a hash of its key (account, key, span, …) times a
 * weighted sum of its counts. It is linear in the counts, so it also equals the sum of what each of the row's receipts
 * adds to it. So receipts are printed page by page, whatever rows they belong to, and need not be grouped.
 *
 * The days of uncounted use are those of its key's zone. So a step of days compares the sums of these days, and reads the receipts of all that
 * may be in them.
 *
 * After the last account, the rows of scopes are compared with those of the accounts, month by month.
 */

/** Accounts of one step. */
const ACCOUNTS_MAX = 200;
/** The comparison of a month's scopes reads a row of each account and kind, in one statement. */
const SCOPES_MS_MAX = 20_000;

/** The weights are large and irregular, so that changes of two counts do not cancel out. */
const WEIGHED = `(738492615049281047::numeric * requests + 296174830561927423::numeric * charges
  + 851930274618350917::numeric * prompt_tokens + 417253986104827351::numeric * cached_tokens
  + 964817203591746203::numeric * completion_tokens + 583061947260315869::numeric * charged_nano_usd
  + 372958160472913661::numeric * earned_nano_usd + 694105827361940357::numeric * units_nano_usd
  + 248619350729481563::numeric * units_cost_nano_usd + 517340962858203719::numeric * provider_cost_nano_usd
  + 906281473516029347::numeric * cost_unknown + 128640759318274691::numeric * first_marks
  + 763915820467351879::numeric * whole_marks)`;
const hashOfRow = (key: string, span: string, begins: string) =>
  `hash_record_extended(row(account_id, ${key}, ${span}::smallint, ${begins}, kind_id), 0)::numeric`;
const printOfUncounted = (rows: string) =>
  `hash_record_extended(row(key_id, day), 0)::numeric * (629174350816293741::numeric * ${rows} + 185306274917350829::numeric * nano_usd)`;
const hashOfCrossing = (begins: string, ends: string) =>
  `hash_record_extended(row(account_id, ${begins}, ${ends}, kind_id), 0)::numeric`;

/**
 * Accounts `first` to `last`. For one large account, its UTC days from `since` to before `upto`; otherwise these are
 * infinite.
 */
type Step = { first: string; last: string; since: string; upto: string };
/** How far the time of a request's id may be from the days of a step: the clocks', and that of a zone from UTC. */
const IDS_APART = `interval '${CLOCKS_APART}' + interval '15 hours'`;
/** The print of a step's rollups, the part of it whose receipts were dropped, and the snapshot that was folded in them. */
type Rollups = { print: bigint; droppedPrint: bigint; folded: string; isSumOfDays: boolean };

/**
 * Compares the rollups of about `requestsMax` requests, from where the last sweep ended, or up to the end. Returns how
 * many steps differed. Throws what Postgres throws.
 */
export async function sweepRollups(slices: Slices, requestsMax: number): Promise<number> {
  let wrong = 0;
  for (let read = 0; read < requestsMax && hasTime(slices); ) {
    const found = await slice(slices, async (tx, rows) => {
      const next = await nextStep(tx, rows);
      return next && { ...next, rollups: await readRollups(tx, next.step) };
    });
    if (!found) {
      wrong += await wrongScopes(slices);
      break;
    }
    const { step, requests, rollups } = found;
    const print = (await printOfReceipts(slices, step, rollups.folded)) + rollups.droppedPrint;
    if (!rollups.isSumOfDays || print !== rollups.print) wrong++;
    read += requests;
  }
  return wrong;
}

/**
 * Advances to the next accounts or days, and says how many requests they had. Undefined at the end: the next sweep
 * starts over.
 */
async function nextStep(tx: SliceTx, rowsMax: number): Promise<{ step: Step; requests: number } | undefined> {
  const rows = await tx`
    with at as (select usage_to, usage_days_to from book_closing), next as (
      (select usage_to as id, usage_days_to::text as since from at where usage_days_to < 'infinity')
      union all
      (select id, '-infinity' from accounts where id > (select usage_to from at) order by accounts.id limit ${ACCOUNTS_MAX}))
    select id::text, since, (select coalesce(sum(requests), 0) from usage_sums
      where account_id = next.id and key_id = ${ALL_KEYS} and span = ${MONTH})::float8 as requests from next order by next.id`;
  const accounts = rows.map((row) => ({
    id: String(row.id),
    since: String(row.since),
    requests: Number(row.requests),
  }));
  const [large] = accounts;
  if (!large) {
    await tx`update book_closing set usage_to = 0, usage_days_to = 'infinity'`;
    return undefined;
  }
  const { id: first, since } = large;
  let [last, upto, requests] = [first, "infinity", 0];
  if (since !== "-infinity" || large.requests > rowsMax)
    ({ upto, requests } = await someDays(tx, { accountId: first, since, rowsMax }));
  else
    for (const account of accounts) {
      if (requests + account.requests > rowsMax) break;
      last = account.id;
      requests += account.requests;
    }
  await tx`update book_closing set usage_to = ${last}::text::bigint, usage_days_to = ${upto}::text::date`;
  return { step: { first, last, since, upto }, requests };
}

/** At least one day of an account: where the days end, and how many requests they had. */
async function someDays(
  tx: SliceTx,
  { accountId, since, rowsMax }: { accountId: string; since: string; rowsMax: number },
): Promise<{ upto: string; requests: number }> {
  const days = await tx`
    select (begins at time zone 'UTC')::date::text as day, sum(requests)::float8 as requests from usage_sums
    where account_id = ${accountId}::text::bigint and key_id = ${ALL_KEYS} and span = ${DAY}
      and begins >= ${since}::text::timestamp at time zone 'UTC'
    group by begins order by begins`;
  let requests = 0;
  for (const [i, day] of days.entries()) {
    if (i > 0 && requests + Number(day.requests) > rowsMax) return { upto: String(day.day), requests };
    requests += Number(day.requests);
  }
  return { upto: "infinity", requests };
}

/** A step as parameters: accounts $1 to $2, from $3 to before $4. */
const toParameters = ({ first, last, since, upto }: Step): string[] => [first, last, since, upto];
const ACCOUNTS = "account_id >= $1::text::bigint and account_id <= $2::text::bigint";
const SINCE = "$3::text::timestamp at time zone 'UTC'";
const UPTO = "$4::text::timestamp at time zone 'UTC'";

async function readRollups(tx: SliceTx, step: Step): Promise<Rollups> {
  const [row] = await tx.unsafe(
    // Key by key, so that no other days of a large account are read.
    `with recursive keys_used (of_account, of_key) as (
      (select account_id, key_id from usage_sums where ${ACCOUNTS} order by account_id, key_id limit 1)
      union all
      select next.* from keys_used cross join lateral (
        select account_id, key_id from usage_sums
        where (account_id, key_id) > (of_account, of_key) and ${ACCOUNTS} order by account_id, key_id limit 1) next
    )
    select (select folded::text from book_closing) as folded, (coalesce((
        select sum(${hashOfRow("key_id", "span", "begins")} * ${WEIGHED})
        from keys_used cross join (values (${QUARTER}::smallint), (${DAY}::smallint)) as spans(length) cross join lateral (
          select * from usage_sums where account_id = of_account and key_id = of_key and span = length and begins >= ${SINCE} and begins < ${UPTO}
          offset 0) u), 0)
      + coalesce((
        select sum(${hashOfCrossing("begins", "ends")} * ${WEIGHED})
        from usage_crossings where ${ACCOUNTS} and begins >= ${SINCE} and begins < ${UPTO}), 0)
      + coalesce((
        select sum(${printOfUncounted("rows")}) from (
          select s.id as key_id, s.day, s.rows, s.nano_usd from keys join book_sums s on s.kind = 'uncounted' and s.id = keys.id
          where ${ACCOUNTS} and s.day >= $3::text::date and s.day < $4::text::date) uncounted), 0))::text as print`,
    toParameters(step),
  );
  return {
    print: BigInt(String(row?.print)),
    droppedPrint: await printOfDropped(tx, step),
    folded: String(row?.folded),
    // Months have no print: after an account's last day was read, they must equal its days summed up.
    isSumOfDays: step.upto !== "infinity" || (await monthsEqualDays(tx, step)),
  };
}

/** The print of what was kept of dropped receipts. */
async function printOfDropped(tx: SliceTx, step: Step): Promise<bigint> {
  const [key, allKeys] = ["key_id", `${ALL_KEYS}::bigint`];
  const day = `span_begins(${DAY}, begins)`;
  const hashes = `case when ends < 'infinity' then ${hashOfCrossing("begins", "ends")}
    else ${hashOfRow(key, String(QUARTER), "begins")} + ${hashOfRow(allKeys, String(QUARTER), "begins")}
      + ${hashOfRow(key, String(DAY), day)} + ${hashOfRow(allKeys, String(DAY), day)} end`;
  const [row] = await tx.unsafe(
    `select (coalesce((
        select sum(${WEIGHED} * (${hashes})) from receipt_seals m cross join lateral (
          select * from sealed_usage where month = m.month and ${ACCOUNTS} and begins >= ${SINCE} and begins < ${UPTO} offset 0) u
        where m.dropped_at is not null), 0)
      + coalesce((
        select sum(${printOfUncounted("rows")}) from (
          select s.id as key_id, s.day, s.rows, s.nano_usd from keys join dropped_sums s on s.kind = 'uncounted' and s.id = keys.id
          where ${ACCOUNTS} and s.day >= $3::text::date and s.day < $4::text::date) uncounted), 0))::text as print`,
    toParameters(step),
  );
  return BigInt(String(row?.print));
}

async function monthsEqualDays(tx: SliceTx, { first, last }: Step): Promise<boolean> {
  const [row] = await tx.unsafe(
    `with days as (
      select account_id, span_begins(${MONTH}, begins) as begins, kind_id, ${SUMMED} from usage_sums
      where ${ACCOUNTS} and key_id = ${ALL_KEYS} and span = ${DAY} group by 1, 2, 3
    ), months as (
      select account_id, begins, kind_id, ${COUNTS} from usage_sums where ${ACCOUNTS} and key_id = ${ALL_KEYS} and span = ${MONTH}
    )
    select not exists ((table days except table months) union all (table months except table days)) as same`,
    [first, last],
  );
  return row?.same === true;
}

/** How many months have rows of scopes, or of holders, that are not the sums of their accounts. */
async function wrongScopes(slices: Slices): Promise<number> {
  const months = await slice(
    slices,
    (tx) => tx`
      select span_begins(${MONTH}, month)::text as begins from (
        select least(request_day((select request_id from receipts order by request_id limit 1)), (select min(month) from receipt_seals)) - interval '1 day' as first,
          request_day((select request_id from receipts order by request_id desc limit 1)) + interval '1 day' as last) r cross join lateral generate_series(date_trunc('month', first at time zone 'UTC'), last at time zone 'UTC', interval '1 month') as month`,
  );
  let wrong = 0;
  for (const { begins } of months)
    for (const isEqual of [scopesEqualAccounts, holdersEqualAccounts])
      if (!(await slice(slices, (tx) => isEqual(tx, String(begins))))) wrong++;
  return wrong;
}

async function scopesEqualAccounts(tx: SliceTx, month: string): Promise<boolean> {
  await tx`select set_config('statement_timeout', ${String(SCOPES_MS_MAX)}, true)`;
  const of = (span: number) => `
    select scope, kind_id, ${SUMMED} from scopes cross join lateral (
      select * from usage_sums where account_id = scope and key_id = ${ALL_KEYS} and span = ${span}
        and begins >= $1::text::timestamptz and begins < next offset 0) u
    group by 1, 2`;
  const [row] = await tx.unsafe(
    `with scopes as materialized (
      select scope, span_begins(${MONTH}, $1::text::timestamptz + interval '45 days') as next
      from (select ${EVERYONE}::bigint as scope union all select -id from accounts where role = 'reseller') s
    ), accounts_summed as (
      select scope, kind_id, ${SUMMED} from accounts a cross join lateral (
        select * from usage_sums where account_id = a.id and key_id = ${ALL_KEYS} and span = ${MONTH}
          and begins = $1::text::timestamptz offset 0) u
      cross join lateral (select ${EVERYONE}::bigint as scope union all select -a.reseller_id where a.reseller_id is not null) s
      group by 1, 2
    ), months as (${of(MONTH)}), days as (${of(DAY)}), quarters as (${of(QUARTER)})
    select not exists (
      (table accounts_summed except table months) union all (table months except table accounts_summed)
      union all (table months except table days) union all (table days except table months)
      union all (table days except table quarters) union all (table quarters except table days)) as same`,
    [month],
  );
  return row?.same === true;
}

async function holdersEqualAccounts(tx: SliceTx, month: string): Promise<boolean> {
  await tx`select set_config('statement_timeout', ${String(SCOPES_MS_MAX)}, true)`;
  const of = (span: number) => `
    select h.scope, holder_id, ${HOLDERS_SUMMED} from scopes cross join lateral (
      select * from usage_holders where scope = scopes.scope and span = ${span}
        and begins >= $1::text::timestamptz and begins < next offset 0) h
    group by 1, 2`;
  const [row] = await tx.unsafe(
    `with scopes as materialized (
      select scope, span_begins(${MONTH}, $1::text::timestamptz + interval '45 days') as next
      from (select ${EVERYONE}::bigint as scope union all select ${RESELLERS} union all select -id from accounts where role = 'reseller') s
    ), accounts_summed as (
      select scope, holder_id, ${HOLDERS_SUMMED} from accounts a cross join lateral (
        select * from usage_sums where account_id = a.id and key_id = ${ALL_KEYS} and span = ${MONTH}
          and begins = $1::text::timestamptz offset 0) u
      cross join lateral ${HELD} held
      group by 1, 2
    ), days as (${of(DAY)}), hours as (${of(HOUR)})
    select not exists (
      (table accounts_summed except table days) union all (table days except table accounts_summed)
      union all (table days except table hours) union all (table hours except table days)) as same`,
    [month],
  );
  return row?.same === true;
}

/** The print that a step's rollups should have, from the receipts that were folded in them, page by page. */
async function printOfReceipts(slices: Slices, step: Step, folded: string): Promise<bigint> {
  let print = 0n;
  for (let after: Position | undefined = { accountId: step.first, id: ID_MIN }; after; ) {
    const from: Position = after;
    const page = await slice(slices, (tx, rows) => printOfPage(tx, step, { folded, from, rows }));
    print += page.print;
    after = page.after;
  }
  return print;
}

/** A receipt's position in the order of reading. */
type Position = { accountId: string; id: string };

/** The print of `rows` receipts after a position. `after` is where the next page begins, if there may be one. */
async function printOfPage(
  tx: SliceTx,
  step: Step,
  { folded, from, rows }: { folded: string; from: Position; rows: number },
): Promise<{ print: bigint; after: Position | undefined }> {
  const [quarter, ended] = [`span_begins(${QUARTER}, created_at)`, `span_begins(${QUARTER}, finished_at)`];
  const day = `span_begins(${DAY}, created_at)`;
  const [key, allKeys] = ["key_id", `${ALL_KEYS}::bigint`];
  const hashes = `${hashOfRow(key, String(QUARTER), quarter)} + ${hashOfRow(allKeys, String(QUARTER), quarter)}
    + ${hashOfRow(key, String(DAY), day)} + ${hashOfRow(allKeys, String(DAY), day)}
    + case when crosses_month(created_at, finished_at) then ${hashOfCrossing(quarter, ended)} else 0 end`;
  const [row] = await tx.unsafe(
    `with ids as materialized (
      select coalesce(request_id_floor(nullif(${SINCE}, '-infinity') - (${IDS_APART})), '${ID_MIN}') as first,
        coalesce(request_id_floor(nullif(${UPTO}, 'infinity') + ${IDS_APART}), '${ID_MAX}') as last
    ), page as materialized (
      select request_id, written_in, key_day, reason, ${USED_COLUMNS}, 1 as requests, (charged_nano_usd > 0)::int as charges, ${EARNED} as earned_nano_usd from receipts
      where outcome = 'settled' and request_id >= (select first from ids) and request_id < (select last from ids)
        and ${ACCOUNTS} and (account_id, request_id) > ($5::text::bigint, greatest($6::text::uuid, (select first from ids)))
        and (account_id, request_id) < ($2::text::bigint, (select last from ids))
      order by account_id, request_id limit $7::text::bigint
    ), last as (select account_id, request_id from page order by page.account_id desc, page.request_id desc limit 1)
    select (select count(*)::int from page) as rows, (select account_id::text from last) as account_id,
      (select request_id::text from last) as request_id, ((
        select coalesce(sum(${WEIGHED} * (${hashes})), 0)
        from (
          select p.account_id, p.key_id, p.written_in, p.created_at, p.finished_at, requests, charges, prompt_tokens, cached_tokens,
            completion_tokens, charged_nano_usd, earned_nano_usd, ${UNITS} as units_nano_usd, ${UNITS_COST} as units_cost_nano_usd,
            ${PROVIDER_COST} as provider_cost_nano_usd, ${COST_UNKNOWN} as cost_unknown,
            ${FIRST_MARK} as first_marks, ${WHOLE_MARK} as whole_marks, coalesce(k.id, -1) as kind_id
          from page p left join usage_kinds k using (model_id, host, mode, route_id) ${WORTH}) p
        where created_at >= ${SINCE} and created_at < ${UPTO} and pg_visible_in_snapshot(written_in, $8::text::pg_snapshot)
      ) + (
        select coalesce(sum(${printOfUncounted("1")}), 0) from (
          select p.key_id, (p.created_at at time zone k.time_zone)::date as day, p.charged_nano_usd as nano_usd
          from page p join keys k on k.id = p.key_id
          where is_uncounted('settled', p.key_day, p.reason, p.units, p.charged_nano_usd)
            and pg_visible_in_snapshot(p.written_in, $8::text::pg_snapshot)) uncounted
        where day >= $3::text::date and day < $4::text::date
      ))::text as print`,
    [...toParameters(step), from.accountId, from.id, String(rows), folded],
  );
  const isLast = Number(row?.rows) < rows;
  const after = isLast ? undefined : { accountId: String(row?.account_id), id: String(row?.request_id) };
  return { print: BigInt(String(row?.print)), after };
}
