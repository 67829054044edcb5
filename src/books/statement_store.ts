import { type SQL, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf } from "../platform/pages.ts";
import { TRANSACTION_KINDS, type TransactionKind } from "./balance_transactions_store.ts";
import { resellerMoney } from "./usage_money.ts";
import { ALL_KEYS, EARNED, MONTH, QUARTER, UNFOLDED_RECORDS, UNITS, UNITS_COST, WORTH } from "./usage_rollups_store.ts";

/**
 * A reseller's monthly statement: what its customers used on each host, the packages it assigned, and every transaction
 * of its balance between the opening and the closing one. It is derived from what the ledger wrote only, so that a
 * closed month reads the same whenever it is asked for; only the names of people and customers may change.
 *
 * A request, and its charge, counts in the month in which it ended. Rollups count when it began: so the quarters of an
 * hour by which the zone's month differs from the UTC month are added or subtracted, and so are the requests that began
 * in another month (`usage_crossings`). Usage that is not folded yet is read from the receipts. All parts of a
 * statement are of one moment.
 */

/** When a month counts as closed: what was written in its last moments is committed by then. */
const CLOSED_AFTER = "10 minutes";
/** A package and the transaction of its price are written in one statement, so no further apart than this. */
const WRITTEN_WITHIN = "1 hour";
/** Time limit of each part. */
const STATEMENT_MS_MAX = 2_000;
/** Time zones differ from UTC by less than this: adding it gives the UTC month nearest to a zone's month. */
const ZONES_APART = "15 hours";
const MONTH_NAME = /^20\d{2}-(?:0[1-9]|1[0-2])$/;

export type StatementQuery = {
  resellerId: number;
  /** As in 2026-11, a month of `timeZone`. */
  month: string;
  timeZone: string;
  /** Only usage of this host. Packages and the balance belong to no host, and are complete. */
  host?: string;
  /** Also lists the prices of packages among the transactions, though `packages` has them. */
  pricesAsTransactions?: boolean;
  /** Rows of each part at most. */
  rowsMax: number;
};

export type UsageLine = {
  host: string;
  customerId: number;
  customerName: string;
  modelId: string;
} & UsageSums;
export type UsageSums = {
  requests: number;
  /** Of these, the requests that a package paid for. */
  packageRequests: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** Charged to the customers' balances. */
  chargedNanoUsd: bigint;
  /** Of that the operator's prices, and what the reseller earned: charged = cost + earned. Source: MRK-9. */
  costNanoUsd: bigint;
  earnedNanoUsd: bigint;
  /** What the units of packages are worth: at the prices that customers paid, and at what the reseller paid. */
  unitsNanoUsd: bigint;
  unitsCostNanoUsd: bigint;
  /** charged + units; cost + units' cost; the difference. Source: MON-21, MON-23. */
  usageRevenueNanoUsd: bigint;
  usageCostNanoUsd: bigint;
  marginNanoUsd: bigint;
};

export type PackageLine = {
  at: string;
  packageId: number;
  customerId: number;
  customerName: string;
  offeringId: number | null;
  name: string;
  /** What the reseller paid; 0 from an allotment. */
  priceNanoUsd: bigint;
  allotmentId: number | null;
};

/**
 * A transaction of the reseller's balance, except the charges of its own requests, which are summed, and unless asked for
 * the prices of packages.
 */
export type TransactionLine = {
  at: string;
  entryId: number;
  kind: StatementTransactionKind;
  amountNanoUsd: bigint;
  reason: string | null;
  packageId: number | null;
  /** Who sent or received the money. */
  counterpartId: number | null;
  counterpartName: string | null;
};
/** A statement sums charges. */
export type StatementTransactionKind = Exclude<TransactionKind, "charge">;

export type Statement = {
  resellerId: number;
  month: string;
  timeZone: string;
  /** The beginning of the month, and of the next one. */
  from: string;
  to: string;
  /** False while it may still change: then the closing balance is the current one. */
  closed: boolean;
  host: string | null;
  usage: Page<UsageLine> & { totals: UsageSums };
  packages: Page<PackageLine>;
  entries: Page<TransactionLine>;
  /** opening + the eight sums = closing, always. */
  balance: {
    openingNanoUsd: bigint;
    sumsNanoUsd: Record<StatementTransactionKind | "charge", bigint>;
    charges: number;
    closingNanoUsd: bigint;
  };
};

/** The statement of a month that has begun. Throws InputError, and an error if it takes too long to read. */
export async function statementOf({ db }: { db: Db }, query: StatementQuery): Promise<Statement> {
  const { resellerId, month, timeZone, host = null } = query;
  return await reading(db, query, async (tx, span) => ({
    resellerId,
    month,
    timeZone,
    host,
    ...span,
    usage: await usageOf(tx, query, span),
    packages: await packagesOf(tx, query, span),
    entries: await transactionsOf(tx, query, span),
    balance: await balanceOf(tx, query, span),
  }));
}

/** The sums of the statement's usage alone. Throws as `statementOf`. */
export async function usageTotalsOf(
  { db }: { db: Db },
  month: Pick<StatementQuery, "resellerId" | "month" | "timeZone">,
): Promise<UsageSums> {
  const query = { ...month, rowsMax: 0 };
  return await reading(db, query, async (tx, span) => (await usageOf(tx, query, span)).totals);
}

/** Reads parts of a statement, all of one moment. */
async function reading<T>(db: Db, query: StatementQuery, work: (tx: Tx, span: Span) => Promise<T>): Promise<T> {
  if (!MONTH_NAME.test(query.month)) throw new InputError("The month must be written as in 2026-11.", "month");
  return await db.orm.transaction(
    async (tx) => {
      // Locked before the snapshot is taken: to an older snapshot, rollups that are being rebuilt would look empty.
      await tx.execute(sql`lock table usage_sums, usage_crossings in access share mode`);
      // Index scans only: the planner has poor statistics of a month that is filling, and would read all of it.
      await tx.execute(sql`
        select set_config('statement_timeout', ${String(STATEMENT_MS_MAX)}, true), set_config('jit', 'off', true),
          set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`);
      return await work(tx, await spanOf(tx, query));
    },
    { isolationLevel: "repeatable read", accessMode: "read only" },
  );
}

type Span = { from: string; to: string; closed: boolean };

async function spanOf(tx: Tx, { month, timeZone }: StatementQuery): Promise<Span> {
  const [row] = await tx.execute<{ from: string; to: string; closed: boolean; begun: boolean }>(sql`
    with month as (select ${`${month}-01`}::text::timestamp as first), span as (
      select first at time zone ${timeZone} as since, (first + interval '1 month') at time zone ${timeZone} as until from month
    )
    select since as from, until as to, ledger_now() >= until + ${CLOSED_AFTER}::text::interval as closed,
      ledger_now() >= since as begun from span`);
  if (!row?.begun) throw new InputError("That month has not begun.", "month");
  return { from: toIso(String(row.from)), to: toIso(String(row.to)), closed: row.closed };
}

/**
 * Usage that ended in these spans, as a table with the columns `name` (the span's), account_id, host, model_id, mode,
 * requests and the sums. `accounts` is a table of account_id; `spans` one of name, since and upto, which are month
 * boundaries or infinite. Fenced (offset 0), so that each account's rows are looked up by their time.
 */
export function endedIn(accounts: SQL, spans: SQL): SQL {
  const month = (at: SQL) => sql`span_begins(${MONTH}, ${at} + ${sql.raw(`interval '${ZONES_APART}'`)})`;
  const sums = (
    times: SQL,
  ) => sql`${times} * requests as requests, ${times} * charges as charges, ${times} * prompt_tokens as prompt_tokens,
    ${times} * cached_tokens as cached_tokens, ${times} * completion_tokens as completion_tokens, ${times} * charged_nano_usd as charged_nano_usd,
    ${times} * earned_nano_usd as earned_nano_usd, ${times} * units_nano_usd as units_nano_usd,
    ${times} * units_cost_nano_usd as units_cost_nano_usd`;
  return sql`(
    with accounts_asked as materialized (${accounts}),
    spans as materialized (select s.*, ${month(sql`since`)} as first, ${month(sql`upto`)} as next from (${spans}) s),
    lengths as materialized (
      select name, ${MONTH}::smallint as length, first as since, next as upto, 1 as times from spans
      union all
      select name, ${QUARTER}, least(since, first), greatest(since, first), case when since < first then 1 else -1 end from spans
      where since <> first
      union all
      select name, ${QUARTER}, least(upto, next), greatest(upto, next), case when upto < next then -1 else 1 end from spans
      where upto <> next
    ), rolled_up as (
      select l.name, a.account_id, kind_id, ${sums(sql`times`)}
      from accounts_asked a cross join lengths l cross join lateral (
        select * from usage_sums u where u.account_id = a.account_id and key_id = ${ALL_KEYS} and span = l.length
          and begins >= l.since and begins < l.upto offset 0) u
      union all
      select s.name, a.account_id, kind_id,
        ${sums(sql`((ends >= s.since and ends < s.upto)::int - (begins >= s.since and begins < s.upto)::int)`)}
      from accounts_asked a cross join spans s cross join lateral (
        select * from usage_crossings c where c.account_id = a.account_id offset 0) c
    )
    select name, account_id, host, model_id, mode, r.requests, charges, prompt_tokens, cached_tokens, completion_tokens, charged_nano_usd, earned_nano_usd,
      units_nano_usd, units_cost_nano_usd
    from rolled_up r join usage_kinds k on k.id = r.kind_id
    union all
    select s.name, account_id, host, model_id, mode, 1, (charged_nano_usd > 0)::int, prompt_tokens, cached_tokens, completion_tokens,
      charged_nano_usd, ${sql.raw(EARNED)}, ${sql.raw(UNITS)}, ${sql.raw(UNITS_COST)}
    from ${sql.raw(UNFOLDED_RECORDS)} tail join accounts_asked using (account_id) join spans s on finished_at >= s.since and finished_at < s.upto
    ${sql.raw(WORTH)})`;
}

async function usageOf(tx: Tx, { resellerId, host, rowsMax }: StatementQuery, { from, to }: Span) {
  const accounts = sql`
    select id as account_id from accounts where reseller_id = ${resellerId}::bigint union all select ${resellerId}::bigint`;
  const span = sql`select 'month' as name, ${from}::text::timestamptz as since, ${to}::text::timestamptz as upto`;
  const sums = sql`sum(requests) as requests, sum(package_requests) as package_requests, sum(prompt_tokens) as prompt_tokens,
    sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens, sum(charged_nano_usd) as charged_nano_usd,
    sum(earned_nano_usd) as earned_nano_usd, sum(units_nano_usd) as units_nano_usd, sum(units_cost_nano_usd) as units_cost_nano_usd`;
  const rows = await tx.execute<Record<string, unknown>>(sql`
    with lines as materialized (
      select host, account_id, model_id, ${sums}
      from (select *, case when mode = 'package' then requests else 0 end as package_requests from ${endedIn(accounts, span)} ended) ended
      where ${host === undefined ? sql`true` : sql`host = ${host}`}
      group by host, account_id, model_id having sum(requests) <> 0
    )
    (select l.*, a.name as customer from lines l join accounts a on a.id = l.account_id
    order by l.host collate "C", l.account_id, l.model_id collate "C" limit ${rowsMax + 1})
    union all
    select null, null, null, ${sums}, null from lines`);
  const totals = rows.find((row) => row.account_id === null);
  const lines = rows.flatMap((row): UsageLine[] =>
    row.account_id === null
      ? []
      : [
          {
            host: String(row.host),
            customerId: Number(row.account_id),
            customerName: String(row.customer),
            modelId: String(row.model_id),
            ...toUsageSums(row),
          },
        ],
  );
  return {
    ...cut(lines, rowsMax),
    totals: toUsageSums(totals ?? {}),
  };
}

/** Null (a sum of no rows) becomes 0. */
function toUsageSums(row: Record<string, unknown>): UsageSums {
  const chargedNanoUsd = BigInt(String(row.charged_nano_usd ?? 0));
  const earnedNanoUsd = BigInt(String(row.earned_nano_usd ?? 0));
  const unitsNanoUsd = BigInt(String(row.units_nano_usd ?? 0));
  const unitsCostNanoUsd = BigInt(String(row.units_cost_nano_usd ?? 0));
  const money = resellerMoney({ chargedNanoUsd, earnedNanoUsd, unitsNanoUsd, unitsCostNanoUsd });
  return {
    requests: Number(row.requests ?? 0),
    packageRequests: Number(row.package_requests ?? 0),
    promptTokens: Number(row.prompt_tokens ?? 0),
    cachedTokens: Number(row.cached_tokens ?? 0),
    completionTokens: Number(row.completion_tokens ?? 0),
    chargedNanoUsd,
    costNanoUsd: chargedNanoUsd - earnedNanoUsd,
    earnedNanoUsd,
    unitsNanoUsd,
    unitsCostNanoUsd,
    usageRevenueNanoUsd: money.usageRevenueNanoUsd,
    usageCostNanoUsd: money.costNanoUsd,
    marginNanoUsd: money.marginNanoUsd,
  };
}

/**
 * The reseller's balance before and after the month, and its transactions: the sum of its own requests' charges, and
 * the others by kind.
 */
async function balanceOf(tx: Tx, { resellerId }: StatementQuery, { from, to }: Span): Promise<Statement["balance"]> {
  const own = sql`select ${resellerId}::bigint as account_id`;
  const spans = sql`
    select 'before' as name, '-infinity'::timestamptz as since, ${from}::text::timestamptz as upto
    union all select 'month', ${from}::text::timestamptz, ${to}::text::timestamptz`;
  const rows = await tx.execute<Record<string, unknown>>(sql`
    select name, 'charge' as kind, -sum(charged_nano_usd) as nano_usd, sum(charges) as entries
    from ${endedIn(own, spans)} ended group by name
    union all
    select case when created_at < ${from}::text::timestamptz then 'before' else 'month' end, kind, sum(amount_nano_usd), count(*)
    from balance_entries
    where account_id = ${resellerId}::bigint and kind <> 'charge' and created_at < ${to}::text::timestamptz group by 1, 2`);
  const balance: Statement["balance"] = {
    openingNanoUsd: 0n,
    sumsNanoUsd: {
      top_up: 0n,
      wholesale: 0n,
      package: 0n,
      transfer: 0n,
      correction: 0n,
      refund: 0n,
      earning: 0n,
      charge: 0n,
    },
    charges: 0,
    closingNanoUsd: 0n,
  };
  for (const { name, kind, nano_usd, entries } of rows) {
    const nanoUsd = BigInt(String(nano_usd));
    balance.closingNanoUsd += nanoUsd;
    if (name === "before") balance.openingNanoUsd += nanoUsd;
    else if (kind !== "charge") balance.sumsNanoUsd[toKind(kind)] += nanoUsd;
    else {
      balance.sumsNanoUsd.charge += nanoUsd;
      balance.charges += Number(entries);
    }
  }
  return balance;
}

/** The first transactions of the month, as `TransactionLine` says. */
async function transactionsOf(
  tx: Tx,
  { resellerId, pricesAsTransactions = false, rowsMax }: StatementQuery,
  { from, to }: Span,
): Promise<Page<TransactionLine>> {
  const listed = pricesAsTransactions ? sql`true` : sql`e.kind <> 'wholesale'`;
  const rows = await tx.execute<Record<string, unknown>>(sql`
    select e.id, e.kind, e.amount_nano_usd, e.created_at, e.reason, e.package_id, e.counterpart_id, a.name as counterpart
    from balance_entries e left join accounts a on a.id = e.counterpart_id
    where e.account_id = ${resellerId}::bigint and e.kind <> 'charge' and ${listed} and e.created_at >= ${from}::text::timestamptz
      and e.created_at < ${to}::text::timestamptz
    order by e.id limit ${rowsMax + 1}`);
  return cut(rows.map(toTransaction), rowsMax);
}

function toTransaction(row: Record<string, unknown>): TransactionLine {
  return {
    at: toIso(String(row.created_at)),
    entryId: Number(row.id),
    kind: toKind(row.kind),
    amountNanoUsd: BigInt(String(row.amount_nano_usd)),
    reason: row.reason === null ? null : String(row.reason),
    packageId: row.package_id === null ? null : Number(row.package_id),
    counterpartId: row.counterpart_id === null ? null : Number(row.counterpart_id),
    counterpartName: row.counterpart === null ? null : String(row.counterpart),
  };
}

/**
 * The first packages by time. A paid package counts when its balance transaction was written, so that prices and
 * transactions add up in every month; one from an allotment, or of an offering that was free then, has no transaction
 * and counts when it was created.
 */
async function packagesOf(
  tx: Tx,
  { resellerId, rowsMax }: StatementQuery,
  { from, to }: Span,
): Promise<Page<PackageLine>> {
  const columns = sql`p.id, p.account_id, p.offering_id, p.name, p.allotment_id, a.name as customer`;
  const inMonth = (at: SQL) => sql`${at} >= ${from}::text::timestamptz and ${at} < ${to}::text::timestamptz`;
  // `paid` also has the transactions just before and after the month: a package and its transaction are written together. What the
  // offering costs now says nothing about a package of an earlier day.
  // `kind <> 'charge'` is redundant, but lets Postgres use the index of transactions that are no charges.
  const rows = await tx.execute<Record<string, unknown>>(sql`
    with accounts_asked as materialized (
      select id from accounts where reseller_id = ${resellerId}::bigint union all select ${resellerId}::bigint),
    paid as materialized (
      select package_id from balance_entries e where e.account_id = ${resellerId}::bigint and e.kind = 'wholesale' and e.kind <> 'charge'
        and e.created_at >= ${from}::text::timestamptz - ${WRITTEN_WITHIN}::text::interval
        and e.created_at < ${to}::text::timestamptz + ${WRITTEN_WITHIN}::text::interval)
    select * from (
      select ${columns}, -e.amount_nano_usd as price, e.created_at as at
      from balance_entries e join packages p on p.id = e.package_id join accounts a on a.id = p.account_id
      where e.account_id = ${resellerId}::bigint and e.kind = 'wholesale' and e.kind <> 'charge' and ${inMonth(sql`e.created_at`)}
      union all
      select ${columns}, 0, p.created_at
      from accounts_asked join accounts a on a.id = accounts_asked.id join packages p on p.account_id = a.id
      where p.paid_by_account_id = ${resellerId}::bigint and ${inMonth(sql`p.created_at`)}
        and not exists (select from paid where paid.package_id = p.id)) assigned
    order by at, id limit ${rowsMax + 1}`);
  const lines = rows.map((row) => ({
    at: toIso(String(row.at)),
    packageId: Number(row.id),
    customerId: Number(row.account_id),
    customerName: String(row.customer),
    offeringId: row.offering_id === null ? null : Number(row.offering_id),
    name: String(row.name),
    priceNanoUsd: BigInt(String(row.price)),
    allotmentId: row.allotment_id === null ? null : Number(row.allotment_id),
  }));
  return cut(lines, rowsMax);
}

function toKind(kind: unknown): StatementTransactionKind {
  const known = TRANSACTION_KINDS.find((one) => one === kind);
  if (known === undefined || known === "charge") throw new Error(`unknown kind of balance transaction: ${kind}`);
  return known;
}

function cut<Row>(rows: Row[], rowsMax: number): Page<Row> {
  return pageOf(rows, rowsMax);
}
