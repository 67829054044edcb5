import { createHash } from "node:crypto";
import type { Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { receiptMoves, TAKEN_COLUMNS } from "./folding_store.ts";
import { hasTime, type Slices, type SliceTx, slice } from "./short_transactions_store.ts";
import { ADDED, COUNTS, usedOfTaken } from "./usage_rollups_store.ts";

/**
 * Seals of months of receipts. A month is _closed_ when nothing of it can change any more, _sealed_ after its receipts were hashed
 * and summed, and then they may be _dropped_ (`dropped_months_store.ts`).
 *
 * Receipts are hashed in blocks, in the order of their ids, each in a slice of its own together with what it adds to the sums that stay:
 * a crash continues with the next block, and replicas that seal at once take turns. The seal is a hash of the hashes of the blocks, of the
 * totals, and of the seal before it. So a change of any receipt, total or seal shows, unless all later seals are made again too; their
 * copies outside of the database (log, manifests) then differ. Source: RET-1, RET-2, RET-3.
 */

/** A month is closed this long after its end: as long may settlements wait on the disk of a replica that is down. */
export const CLOSED_AFTER_DAYS = 7;
/** Receipts of a block: it is the smallest part that a check can name, and one statement. */
export const BLOCK_RECEIPTS_MAX = 5_000;
/** Rows of the totals that are hashed at once. Part of the form of the hash. */
const TOTALS_PAGE = 10_000;
const FORM = "receipts seal 1";
export const NO_SEAL = "0".repeat(64);

export type Seal = {
  /** As 2030-01. */
  month: string;
  receipts: number;
  /** SHA-256 in hexadecimal digits. */
  blocks: string;
  totals: string;
  previous: string;
  seal: string;
  sealedAt: string;
};

/** A closed month. `seal`: null while it is not sealed; `receipts` then counts those that are hashed. */
export type ClosedMonth = {
  month: string;
  receipts: number;
  seal: Seal | null;
  exportedAt: string | null;
  droppedAt: string | null;
  /** When it was last compared with its seal, and what differed. */
  comparedAt: string | null;
  problems: string[];
};

/** Closed months, the oldest first. */
export async function listClosedMonths(sql: Sql | SliceTx): Promise<ClosedMonth[]> {
  const rows = await sql`
    select to_char(month, 'YYYY-MM') as month, coalesce(receipts,
        (select coalesce(sum(receipts), 0) from receipt_blocks b where b.month = s.month))::float8 as receipts,
      encode(blocks_digest, 'hex') as blocks, encode(totals_digest, 'hex') as totals, encode(previous, 'hex') as previous,
      encode(seal, 'hex') as seal, sealed_at::text as sealed_at, exported_at::text as exported_at, dropped_at::text as dropped_at,
      compared_at::text as compared_at, problems
    from receipt_seals s order by s.month`;
  return rows.map(toClosedMonth);
}

function toClosedMonth(row: Record<string, unknown>): ClosedMonth {
  const [month, receipts] = [String(row.month), Number(row.receipts)];
  const at = (value: unknown) => (value === null ? null : toIso(String(value)));
  const seal = {
    ...{ month, receipts, blocks: String(row.blocks), totals: String(row.totals) },
    ...{ previous: String(row.previous), seal: String(row.seal), sealedAt: at(row.sealed_at) ?? "" },
  };
  return {
    ...{ month, receipts, seal: row.seal === null ? null : seal },
    ...{ exportedAt: at(row.exported_at), droppedAt: at(row.dropped_at), comparedAt: at(row.compared_at) },
    problems: Array.isArray(row.problems) ? row.problems.map(String) : [],
  };
}

/** A month of UTC, as 2030-01, that has a partition of receipts and is over; `isDue`: long enough to be closed. */
export type OpenMonth = { month: string; isDue: boolean; isEmpty: boolean };

/** The months that are over and not closed, the oldest first. */
export async function listOpenMonths(sql: Sql | SliceTx): Promise<OpenMonth[]> {
  const rows = await sql`
    select to_char(month, 'YYYY-MM') as month,
      ended + make_interval(days => ${CLOSED_AFTER_DAYS}) <= (ledger_now() at time zone 'UTC') as is_due,
      not exists (select from receipts where request_id >= receipt_month_floor(month) and request_id < receipt_month_floor(ended::date)) as is_empty
    from (
      select to_date(right(relname, 7), 'YYYY_MM') as month from pg_inherits join pg_class on oid = inhrelid
      where inhparent = 'receipts'::regclass) partitions
    cross join lateral (select month + interval '1 month' as ended) e
    where ended <= (ledger_now() at time zone 'UTC') and month not in (select month from receipt_seals)
    order by partitions.month`;
  return rows.map(({ month, is_due, is_empty }) => ({
    month: String(month),
    isDue: is_due === true,
    isEmpty: is_empty === true,
  }));
}

/**
 * Closes and seals the months that are due, the oldest first, and goes on with one that was begun. Returns the seals that it made.
 * Stops between two slices when its time is over; the next call goes on. Throws what Postgres throws.
 */
export async function sealDue(slices: Slices): Promise<Seal[]> {
  const made: Seal[] = [];
  while (hasTime(slices)) {
    const month = await slice(slices, nextToSeal);
    if (month === undefined) break;
    slices.doing = `sealing ${month}`;
    while (hasTime(slices) && (await slice(slices, (tx, rows) => sealBlock(tx, month, rows))));
    if (!hasTime(slices)) break;
    const seal = await finishSeal(slices, month);
    if (seal) made.push(seal);
  }
  return made;
}

/** The month that is closed but not sealed; else the next one that is due, which it closes. */
async function nextToSeal(tx: SliceTx): Promise<string | undefined> {
  const begun = (await listClosedMonths(tx)).find(({ seal }) => seal === null);
  if (begun) return begun.month;
  const [open] = await listOpenMonths(tx);
  if (!open?.isDue) return undefined;
  await tx`select close_receipt_month(${firstDay(open.month)}::text::date)`;
  return open.month;
}

export const firstDay = (month: string): string => `${month}-01`;

/** Of a month: its first id, and the first id after it. */
export const monthFloor = (tx: SliceTx | Sql, month: string) => tx`receipt_month_floor(${firstDay(month)}::text::date)`;
export const nextMonthFloor = (tx: SliceTx | Sql, month: string) =>
  tx`receipt_month_floor((${firstDay(month)}::text::date + interval '1 month')::date)`;

/** What the receipts of a part are hashed as: their lines. */
export const LINES_DIGEST =
  "sha256(convert_to(coalesce(string_agg(line || E'\\n', '' order by request_id), ''), 'UTF8'))";

/** The totals of receipts. */
export const TOTALLED = `count(*) as receipts, count(*) filter (where settled) as settled, sum(units)::bigint as units,
  sum(prompt_tokens)::bigint as prompt_tokens, sum(cached_tokens)::bigint as cached_tokens,
  sum(completion_tokens)::bigint as completion_tokens, sum(charged_tokens) as charged_tokens, sum(charged_nano_usd) as charged_nano_usd,
  sum(shortfall_nano_usd) as shortfall_nano_usd, coalesce(sum(cost_nano_usd), 0) as cost_nano_usd,
  coalesce(sum(provider_cost_nano_usd), 0) as provider_cost_nano_usd`;
const TOTALS = [
  ...["receipts", "settled", "units", "prompt_tokens", "cached_tokens", "completion_tokens", "charged_tokens"],
  ...["charged_nano_usd", "shortfall_nano_usd", "cost_nano_usd", "provider_cost_nano_usd"],
];
const TOTALS_ADDED = TOTALS.map((name) => `${name} = t.${name} + excluded.${name}`).join(", ");

/** Hashes and sums the next block. False: there was none, or another replica has sealed the month. */
async function sealBlock(tx: SliceTx, month: string, rowsMax: number): Promise<boolean> {
  const day = tx`${firstDay(month)}::text::date`;
  const [at] = await tx`
    select coalesce(max(number), 0)::int as number, (select seal is not null from receipt_seals where month = ${day}) as is_sealed,
      (select last_id::text from receipt_blocks where month = ${day} order by number desc limit 1) as last
    from receipt_blocks where month = ${day}`;
  if (at?.is_sealed !== false) return false;
  const after =
    at.last === null ? tx`request_id >= ${monthFloor(tx, month)}` : tx`request_id > ${String(at.last)}::text::uuid`;
  const [block] = await tx`
    with taken as materialized (
      select receipt_line(receipts) as line, ${tx.unsafe(TAKEN_COLUMNS)} from receipts
      where ${after} and request_id < ${nextMonthFloor(tx, month)} order by request_id limit ${Math.min(rowsMax, BLOCK_RECEIPTS_MAX)}),
    block as (
      insert into receipt_blocks (month, number, last_id, receipts, digest)
      select ${day}, ${Number(at.number) + 1}, (select request_id from taken t order by t.request_id desc limit 1), count(*), ${tx.unsafe(LINES_DIGEST)}
      from taken having count(*) > 0 returning receipts),
    totals as (
      insert into receipt_totals as t (month, account_id, mode, ${tx.unsafe(TOTALS.join(", "))})
      select ${day}, account_id, mode, ${tx.unsafe(TOTALLED)} from taken group by account_id, mode
      on conflict (month, account_id, mode) do update set ${tx.unsafe(TOTALS_ADDED)}),
    moves (kind, id, day, rows, units, tokens, nano_usd, digest) as materialized (${receiptMoves(tx)}),
    summed as (
      insert into sealed_sums as s (month, kind, id, day, rows, units, tokens, nano_usd)
      select ${day}, kind, id, day, rows, units, tokens, nano_usd from moves
      on conflict (month, kind, id, day) do update set rows = s.rows + excluded.rows, units = s.units + excluded.units,
        tokens = s.tokens + excluded.tokens, nano_usd = s.nano_usd + excluded.nano_usd),
    ${usedOfTaken(tx)},
    rolled_up as (
      insert into sealed_usage as s (month, account_id, key_id, begins, ends, kind_id, ${tx.unsafe(COUNTS)})
      select ${day}, account_id, key_id, begins, timestamptz 'infinity', kind_id, ${tx.unsafe(COUNTS)} from used
      union all select ${day}, account_id, 0, begins, ends, kind_id, ${tx.unsafe(COUNTS)} from crossings
      on conflict (month, account_id, key_id, begins, ends, kind_id) do update set ${tx.unsafe(ADDED)})
    select receipts from block`;
  return block !== undefined;
}

/** Undefined: another replica was faster, or the time is over. */
async function finishSeal(slices: Slices, month: string): Promise<Seal | undefined> {
  const totals = await totalsDigest(slices, month);
  return await slice(slices, async (tx) => {
    const months = await listClosedMonths(tx);
    const at = months.findIndex((closed) => closed.month === month);
    if (months[at]?.seal !== null) return undefined;
    const { receipts, digest: blocks } = await blocksDigest(tx, month);
    const previous = months[at - 1]?.seal?.seal ?? NO_SEAL;
    const seal = sealOf({ month, receipts, blocks, totals, previous });
    await tx`
      update receipt_seals set receipts = ${receipts}, blocks_digest = decode(${blocks}, 'hex'), totals_digest = decode(${totals}, 'hex'),
        previous = decode(${previous}, 'hex'), seal = decode(${seal}, 'hex'), sealed_at = ledger_now()
      where month = ${firstDay(month)}::text::date`;
    return (await listClosedMonths(tx))[at]?.seal ?? undefined;
  });
}

/** The seal of these facts. */
export function sealOf({ month, receipts, blocks, totals, previous }: Omit<Seal, "seal" | "sealedAt">): string {
  return sha256([FORM, month, receipts, blocks, totals, previous].join("\n"));
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

export type Block = { number: number; lastId: string; receipts: number; digest: string };

export async function listBlocks(tx: SliceTx | Sql, month: string): Promise<Block[]> {
  const rows = await tx`
    select number, last_id::text as last_id, receipts, encode(digest, 'hex') as digest from receipt_blocks
    where month = ${firstDay(month)}::text::date order by receipt_blocks.number`;
  return rows.map((row) => ({
    ...{ number: Number(row.number), lastId: String(row.last_id) },
    ...{ receipts: Number(row.receipts), digest: String(row.digest) },
  }));
}

/** What the blocks of a month are hashed as, and how many receipts they have. */
export async function blocksDigest(tx: SliceTx | Sql, month: string): Promise<{ receipts: number; digest: string }> {
  const blocks = await listBlocks(tx, month);
  const lines = blocks.map(({ number, lastId, receipts, digest }) => `${number} ${lastId} ${receipts} ${digest}\n`);
  return { receipts: blocks.reduce((sum, { receipts }) => sum + receipts, 0), digest: sha256(lines.join("")) };
}

/** The tables that stay of a month, with their keys and the types of these. */
const TOTALS_TABLES = [
  { table: "receipt_totals", key: { account_id: "bigint", mode: "text" } },
  { table: "sealed_sums", key: { kind: "text", id: "bigint", day: "date" } },
  {
    table: "sealed_usage",
    key: { account_id: "bigint", key_id: "bigint", begins: "timestamptz", ends: "timestamptz", kind_id: "int" },
  },
] as const;

/** The hash of the totals of a month, read page by page: each page is hashed with the hash before it. */
export async function totalsDigest(slices: Slices, month: string): Promise<string> {
  let digest = sha256(month);
  for (const { table, key } of TOTALS_TABLES) {
    const names = Object.keys(key).join(", ");
    for (let after: readonly string[] | undefined = []; after; ) {
      const from: readonly string[] = after;
      const [page] = await slice(slices, async (tx) => {
        // The text of a row depends on these.
        await tx`select set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, YMD', true)`;
        const position = Object.values(key).map((type, i) => `$${i + 2}::text::${type}`);
        const isAfter = from.length === 0 ? "" : `and (${names}) > (${position.join(", ")})`;
        return await tx.unsafe(
          `with page as materialized (
            select * from ${table} where month = $1::text::date ${isAfter} order by ${names} limit ${TOTALS_PAGE})
          select count(*)::int as rows, encode(sha256(convert_to(coalesce(string_agg(page::text || E'\\n', '' order by ${names}), ''), 'UTF8')), 'hex') as digest,
            (select array_to_json(array[${Object.keys(key).map((name) => `${name}::text`)}]) from page
              order by ${Object.keys(key).map((name) => `page.${name} desc`)} limit 1) as last
          from page`,
          [firstDay(month), ...from],
        );
      });
      if (Number(page?.rows) > 0) digest = sha256(`${digest}\n${table}\n${page?.digest}`);
      after = Number(page?.rows) === TOTALS_PAGE && Array.isArray(page?.last) ? page.last.map(String) : undefined;
    }
  }
  return digest;
}

/** Notes that the files of a month were compared with its seal. */
export async function noteExported(sql: Sql, month: string): Promise<void> {
  await sql`update receipt_seals set exported_at = ledger_now() where month = ${firstDay(month)}::text::date`;
}

/** The receipts of a block as lines of JSON: those after an id, or the month's first, up to another one. */
export async function linesOf(
  slices: Slices,
  month: string,
  { after, upTo }: { after: string | null; upTo: string },
): Promise<string> {
  const [row] = await slice(
    slices,
    (tx) => tx`
      select coalesce(string_agg(receipt_line(receipts) || E'\n', '' order by request_id), '') as lines from receipts
      where ${after === null ? tx`request_id >= ${monthFloor(tx, month)}` : tx`request_id > ${after}::text::uuid`}
        and request_id <= ${upTo}::text::uuid`,
  );
  return String(row?.lines);
}
