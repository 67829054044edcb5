import { type SQL, sql } from "drizzle-orm";
import { toIso } from "../accounts/checks.ts";
import { InputError } from "../errors.ts";
import type { Db, Tx } from "../platform/db.ts";

/**
 * A reseller's statement of a month, from the ledger alone: what its customers used on each host, the packages it handed out,
 * and every movement of its balance from the opening to the closing one. What a month says is fixed by what the ledger wrote,
 * so that a closed month reads the same whenever it is asked for; names, which people change, are no part of that.
 */

/** A request counts in the month it ended in, and is looked for in what began up to this long before. */
const LONGEST_REQUEST = "31 days";
/** A replica's clock, which request ids carry, may be this far ahead of the database's (ledger_reserve holds it to that). */
const CLOCK_AHEAD = "1 hour";
/** What was written in the month's last moments is committed by then. */
const CLOSED_AFTER = "10 minutes";
const TIMEOUT_MS = 20_000;
const MONTH = /^20\d{2}-(?:0[1-9]|1[0-2])$/;

export type StatementQuery = {
  resellerId: number;
  /** As in 2026-11, a month of `timeZone`. */
  month: string;
  timeZone: string;
  /** Only what was used on this host. Packages and the balance belong to no host, and are there in whole. */
  host?: string;
  /** Rows of each part at most. */
  rowsMax: number;
};

export type Rows<Row> = { rows: Row[]; hasMore: boolean };

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
  /** To the customers' balances. */
  chargedNanoUsd: bigint;
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

/** A movement of the reseller's balance, but for the charges of its own requests: those are one sum. */
export type EntryLine = {
  at: string;
  entryId: number;
  kind: MovementKind;
  amountNanoUsd: bigint;
  reason: string | null;
  packageId: number | null;
  /** From whom money came, or to whom it went. */
  counterpartId: number | null;
  counterpartName: string | null;
};
const MOVEMENT_KINDS = ["top_up", "wholesale", "transfer", "correction"] as const;
export type MovementKind = (typeof MOVEMENT_KINDS)[number];

export type Statement = {
  resellerId: number;
  month: string;
  timeZone: string;
  /** The month's first moment, and the next one's. */
  from: string;
  to: string;
  /** False while it may still change: then the closing balance is that of now. */
  closed: boolean;
  host: string | null;
  usage: Rows<UsageLine> & { totals: UsageSums };
  packages: Rows<PackageLine>;
  entries: Rows<EntryLine>;
  /** opening + the five sums = closing, always. */
  balance: {
    openingNanoUsd: bigint;
    sumsNanoUsd: Record<MovementKind | "charge", bigint>;
    charges: number;
    closingNanoUsd: bigint;
  };
};

/** The statement of a month that has begun. Throws InputError. All parts are of one moment. */
export async function statementOf({ db }: { db: Db }, query: StatementQuery): Promise<Statement> {
  if (!MONTH.test(query.month)) throw new InputError("The month must be written as in 2026-11.", "month");
  return db.orm.transaction(
    async (tx) => {
      await tx.execute(sql`select set_config('statement_timeout', ${String(TIMEOUT_MS)}, true)`);
      const span = await spanOf(tx, query);
      const { resellerId, month, timeZone, host = null } = query;
      return {
        resellerId,
        month,
        timeZone,
        host,
        ...span,
        usage: await usageOf(tx, query, span),
        packages: await packagesOf(tx, query, span),
        entries: await entriesOf(tx, query, span),
        balance: await balanceOf(tx, query, span),
      };
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

async function usageOf(tx: Tx, { resellerId, host, rowsMax }: StatementQuery, { from, to }: Span) {
  const rows = await tx.execute<Record<string, unknown>>(sql`
    with sums as (
      select r.host, r.account_id, r.model_id, count(*) as requests, count(*) filter (where r.mode = 'package') as package_requests,
        sum(r.prompt_tokens) as prompt_tokens, sum(r.cached_tokens) as cached_tokens, sum(r.completion_tokens) as completion_tokens,
        sum(r.charged_nano_usd) as charged_nano_usd
      from receipts r
      where r.account_id in (select id from accounts where id = ${resellerId}::bigint or reseller_id = ${resellerId}::bigint)
        and r.outcome = 'settled'
        and r.request_id >= request_id_floor(${from}::text::timestamptz - ${LONGEST_REQUEST}::text::interval)
        and r.request_id < request_id_floor(${to}::text::timestamptz + ${CLOCK_AHEAD}::text::interval)
        and r.finished_at >= ${from}::text::timestamptz and r.finished_at < ${to}::text::timestamptz
        and ${host === undefined ? sql`true` : sql`r.host = ${host}`}
      group by 1, 2, 3
    )
    select sums.*, a.name, ${totals()}
    from sums join accounts a on a.id = sums.account_id
    order by sums.host collate "C", sums.account_id, sums.model_id collate "C" limit ${rowsMax + 1}`);
  const [first] = rows;
  return {
    ...cut(
      rows.map((row) => ({
        host: String(row.host),
        customerId: Number(row.account_id),
        customerName: String(row.name),
        modelId: String(row.model_id),
        ...toSums(row, ""),
      })),
      rowsMax,
    ),
    totals: toSums(first ?? {}, "all_"),
  };
}

/** The sums over all rows, in each row: also over those past the limit. */
function totals(): SQL {
  const columns = [
    "requests",
    "package_requests",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "charged_nano_usd",
  ];
  return sql.join(
    columns.map((name) => sql`sum(${sql.identifier(name)}) over () as ${sql.identifier(`all_${name}`)}`),
    sql`, `,
  );
}

function toSums(row: Record<string, unknown>, prefix: string): UsageSums {
  const count = (name: string) => Number(row[prefix + name] ?? 0);
  return {
    requests: count("requests"),
    packageRequests: count("package_requests"),
    promptTokens: count("prompt_tokens"),
    cachedTokens: count("cached_tokens"),
    completionTokens: count("completion_tokens"),
    chargedNanoUsd: BigInt(String(row[`${prefix}charged_nano_usd`] ?? 0)),
  };
}

/**
 * A package that was paid for counts when its entry was written, so that prices and entries add up in every month; one
 * from an allotment, or of an offering that costs nothing, has no entry and counts when it was made.
 */
async function packagesOf(
  tx: Tx,
  { resellerId, rowsMax }: StatementQuery,
  { from, to }: Span,
): Promise<Rows<PackageLine>> {
  const rows = await tx.execute<Record<string, unknown>>(sql`
    with paid as (
      select package_id, -amount_nano_usd as price, created_at as at
      from balance_entries where account_id = ${resellerId}::bigint and kind = 'wholesale'
        and created_at >= ${from}::text::timestamptz and created_at < ${to}::text::timestamptz
    ), handed_out as (
      select p.id, p.account_id, p.offering_id, p.name, p.allotment_id, paid.price, paid.at
      from paid join packages p on p.id = paid.package_id
      union all
      select p.id, p.account_id, p.offering_id, p.name, p.allotment_id, 0, p.created_at
      from accounts a join packages p on p.account_id = a.id join offerings f on f.id = p.offering_id
      where (a.id = ${resellerId}::bigint or a.reseller_id = ${resellerId}::bigint)
        and p.paid_by_account_id = ${resellerId}::bigint and (p.allotment_id is not null or f.wholesale_nano_usd = 0)
        and p.created_at >= ${from}::text::timestamptz and p.created_at < ${to}::text::timestamptz
    )
    select handed_out.*, a.name as customer from handed_out join accounts a on a.id = handed_out.account_id
    order by at, id limit ${rowsMax + 1}`);
  return cut(
    rows.map((row) => ({
      at: toIso(String(row.at)),
      packageId: Number(row.id),
      customerId: Number(row.account_id),
      customerName: String(row.customer),
      offeringId: row.offering_id === null ? null : Number(row.offering_id),
      name: String(row.name),
      priceNanoUsd: BigInt(String(row.price)),
      allotmentId: row.allotment_id === null ? null : Number(row.allotment_id),
    })),
    rowsMax,
  );
}

async function entriesOf(
  tx: Tx,
  { resellerId, rowsMax }: StatementQuery,
  { from, to }: Span,
): Promise<Rows<EntryLine>> {
  const rows = await tx.execute<Record<string, unknown>>(sql`
    select e.*, a.name as counterpart_name
    from balance_entries e left join accounts a on a.id = e.counterpart_id
    where e.account_id = ${resellerId}::bigint and e.kind <> 'charge'
      and e.created_at >= ${from}::text::timestamptz and e.created_at < ${to}::text::timestamptz
    order by e.id limit ${rowsMax + 1}`);
  return cut(
    rows.map((row) => ({
      at: toIso(String(row.created_at)),
      entryId: Number(row.id),
      kind: toMovement(row.kind),
      amountNanoUsd: BigInt(String(row.amount_nano_usd)),
      reason: row.reason === null ? null : String(row.reason),
      packageId: row.package_id === null ? null : Number(row.package_id),
      counterpartId: row.counterpart_id === null ? null : Number(row.counterpart_id),
      counterpartName: row.counterpart_name === null ? null : String(row.counterpart_name),
    })),
    rowsMax,
  );
}

async function balanceOf(tx: Tx, { resellerId }: StatementQuery, { from, to }: Span): Promise<Statement["balance"]> {
  const rows = await tx.execute<Record<string, unknown>>(sql`
    select kind, coalesce(sum(amount_nano_usd) filter (where created_at < ${from}::text::timestamptz), 0) as before,
      coalesce(sum(amount_nano_usd) filter (where created_at >= ${from}::text::timestamptz), 0) as within,
      count(*) filter (where created_at >= ${from}::text::timestamptz) as entries
    from balance_entries where account_id = ${resellerId}::bigint and created_at < ${to}::text::timestamptz group by kind`);
  const sumsNanoUsd = { top_up: 0n, wholesale: 0n, transfer: 0n, correction: 0n, charge: 0n };
  let openingNanoUsd = 0n;
  let closingNanoUsd = 0n;
  let charges = 0;
  for (const row of rows) {
    const [before, within] = [BigInt(String(row.before)), BigInt(String(row.within))];
    openingNanoUsd += before;
    closingNanoUsd += before + within;
    if (row.kind === "charge") charges = Number(row.entries);
    sumsNanoUsd[row.kind === "charge" ? "charge" : toMovement(row.kind)] = within;
  }
  return { openingNanoUsd, sumsNanoUsd, charges, closingNanoUsd };
}

function toMovement(kind: unknown): MovementKind {
  const known = MOVEMENT_KINDS.find((one) => one === kind);
  if (!known) throw new Error(`a balance entry of kind ${kind}`);
  return known;
}

function cut<Row>(rows: Row[], rowsMax: number): Rows<Row> {
  return { rows: rows.slice(0, rowsMax), hasMore: rows.length > rowsMax };
}
