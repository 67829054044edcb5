import type { Sql } from "../platform/db.ts";
import {
  type Block,
  blocksDigest,
  type ClosedMonth,
  firstDay,
  LINES_DIGEST,
  listBlocks,
  listClosedMonths,
  monthFloor,
  NO_SEAL,
  nextMonthFloor,
  sealOf,
  TOTALLED,
  totalsDigest,
} from "./seals_store.ts";
import { type Slices, type SliceTx, slice } from "./short_transactions_store.ts";

/** Compares seals with what they were made of, and says what differs: which month, which part of it, whose receipts. Source: RET-2, RET-5. */

/** Accounts that a problem names. */
const ACCOUNTS_NAMED_MAX = 5;
/** Comparing the accounts of a month reads all of it in one statement. It runs only after a difference was found. */
const ACCOUNTS_MS_MAX = 120_000;

export type MonthProblem = { month: string; problem: string };

/**
 * The problems of all seals, in the order of their months, which are also stored with each month. Reads every receipt of a sealed month
 * that is still there.
 */
export async function verifySeals(slices: Slices): Promise<MonthProblem[]> {
  const months = await listClosedMonths(slices.sql);
  const problems = await missingSeals(slices.sql);
  for (const [i, closed] of months.entries()) {
    slices.doing = `comparing ${closed.month} with its seal`;
    if (closed.seal === null) continue;
    const found = [...chainProblems(closed, months[i - 1]), ...(await verifyMonth(slices, closed.month)).problems];
    await noteCompared(slices.sql, closed.month, found);
    problems.push(...found);
  }
  return problems;
}

async function noteCompared(sql: Sql, month: string, found: readonly MonthProblem[]): Promise<void> {
  const problems = found.map(({ problem }) => problem);
  await sql`
    update receipt_seals set compared_at = ledger_now(),
      problems = array(select jsonb_array_elements_text(${JSON.stringify(problems)}::text::jsonb))
    where month = ${firstDay(month)}::text::date`;
}

/** Whether each seal names the one before it, without reading what they were made of. */
export function chainProblems({ month, seal }: ClosedMonth, before: ClosedMonth | undefined): MonthProblem[] {
  if (seal === null) return [];
  const problems: string[] = [];
  if (seal.previous !== (before === undefined ? NO_SEAL : before.seal?.seal))
    problems.push(`its seal does not name the seal of ${before?.month ?? "no month"}, which is the one before it`);
  if (sealOf(seal) !== seal.seal) problems.push("its seal was changed, or one of the figures that it was made of");
  return problems.map((problem) => ({ month, problem }));
}

/** Months that were closed and have no seal: the newest ones, which no later seal names. */
export async function missingSeals(sql: Sql): Promise<MonthProblem[]> {
  const rows = await sql`
    select to_char(month, 'YYYY-MM') as month from (
      select to_date(right(relname, 7), 'YYYY_MM') as month from pg_trigger join pg_class c on c.oid = tgrelid
      where tgname = 'receipts_sealed') closed
    where month not in (select month from receipt_seals) order by closed.month`;
  return rows.map(({ month }) => ({ month: String(month), problem: "it was closed, and its seal is missing" }));
}

/**
 * Compares a sealed month with its seal: the hashes of its blocks and totals, and the receipts unless they were dropped.
 * `undelivered`: receipts that the export of receipts (MSG-15) has not delivered.
 */
export async function verifyMonth(
  slices: Slices,
  month: string,
): Promise<{ problems: MonthProblem[]; undelivered: number }> {
  const closed = (await listClosedMonths(slices.sql)).find((other) => other.month === month);
  if (!closed?.seal) return { problems: [{ month, problem: "it is not sealed" }], undelivered: 0 };
  const problems: string[] = [];
  const blocks = await listBlocks(slices.sql, month);
  const { receipts, digest } = await blocksDigest(slices.sql, month);
  if (digest !== closed.seal.blocks || receipts !== closed.seal.receipts)
    problems.push("the list of its blocks is not the one that was sealed");
  if ((await totalsDigest(slices, month)) !== closed.seal.totals)
    problems.push("its totals are not the ones that were sealed");
  if (!(await slice(slices, (tx) => isGuarded(tx, month))))
    problems.push("its table lacks the triggers that refuse changes");
  if (closed.droppedAt !== null) {
    if (await slice(slices, (tx) => hasReceipts(tx, month))) problems.push("it has receipts, though they were dropped");
    return { problems: problems.map((problem) => ({ month, problem })), undelivered: 0 };
  }
  const compared = await compareBlocks(slices, month, blocks);
  if (compared.changed.length > 0) {
    problems.push(...compared.changed);
    problems.push(...(await changedAccounts(slices, month)));
  }
  return { problems: problems.map((problem) => ({ month, problem })), undelivered: compared.undelivered };
}

async function isGuarded(tx: SliceTx, month: string): Promise<boolean> {
  const rows = await tx`
    select 1 from pg_trigger where tgrelid = to_regclass(receipt_partition(${firstDay(month)}::text::date))
      and tgname in ('receipts_sealed', 'receipts_sealed_whole') and tgenabled = 'O'`;
  return rows.length === 2;
}

async function hasReceipts(tx: SliceTx, month: string): Promise<boolean> {
  const rows = await tx`
    select 1 from receipts where request_id >= ${monthFloor(tx, month)} and request_id < ${nextMonthFloor(tx, month)} limit 1`;
  return rows.length > 0;
}

/** Each block up to its last id; what comes after the last block, which is nothing, is compared too. */
async function compareBlocks(slices: Slices, month: string, blocks: readonly Block[]) {
  const changed: string[] = [];
  let undelivered = 0;
  let after: string | null = null;
  for (const block of [...blocks, undefined]) {
    const from: string | null = after;
    const found = await slice(slices, (tx) => readBlock(tx, month, { after: from, upTo: block?.lastId ?? null }));
    undelivered += found.undelivered;
    if (block === undefined ? found.receipts > 0 : found.digest !== block.digest)
      changed.push(
        `${block === undefined ? "there are receipts" : `block ${block.number} was changed: there are ${found.receipts} receipts, ${block.receipts} were sealed`}, ${spanOf(month, from, block?.lastId)}`,
      );
    after = block?.lastId ?? null;
  }
  return { changed, undelivered };
}

async function readBlock(tx: SliceTx, month: string, { after, upTo }: { after: string | null; upTo: string | null }) {
  const from = after === null ? tx`request_id >= ${monthFloor(tx, month)}` : tx`request_id > ${after}::text::uuid`;
  const to = upTo === null ? tx`request_id < ${nextMonthFloor(tx, month)}` : tx`request_id <= ${upTo}::text::uuid`;
  const [row] = await tx`
    with page as materialized (
      select request_id, receipt_line(receipts) as line, written_in from receipts where ${from} and ${to} order by request_id)
    select count(*)::int as receipts, encode(${tx.unsafe(LINES_DIGEST)}, 'hex') as digest,
      (count(*) filter (where not pg_visible_in_snapshot(written_in, (select sent from receipt_export))))::int as undelivered
    from page`;
  return { receipts: Number(row?.receipts), digest: String(row?.digest), undelivered: Number(row?.undelivered) };
}

/** The times between which the ids of a block are. */
function spanOf(month: string, after: string | null, upTo: string | undefined): string {
  const from = after === null ? `${month}-01` : instantOf(after);
  return `from ${from} to ${upTo === undefined ? "the end of the month" : instantOf(upTo)}`;
}

const instantOf = (requestId: string): string =>
  new Date(Number.parseInt(requestId.replaceAll("-", "").slice(0, 12), 16)).toISOString();

/** The accounts whose totals differ from the sealed ones. */
async function changedAccounts(slices: Slices, month: string): Promise<string[]> {
  const rows = await slice(slices, async (tx) => {
    await tx`select set_config('statement_timeout', ${String(ACCOUNTS_MS_MAX)}, true)`;
    return await tx`
      with is_now as (
        select account_id, mode, ${tx.unsafe(TOTALLED)} from (select *, outcome = 'settled' as settled from receipts
          where request_id >= ${monthFloor(tx, month)} and request_id < ${nextMonthFloor(tx, month)}) r group by 1, 2
      ), was as (select * from receipt_totals where month = ${firstDay(month)}::text::date)
      select distinct coalesce(is_now.account_id, was.account_id)::text as id
      from is_now full join was using (account_id, mode)
      where (is_now.receipts, is_now.settled, is_now.units, is_now.prompt_tokens, is_now.cached_tokens, is_now.completion_tokens,
          is_now.charged_tokens, is_now.charged_nano_usd, is_now.shortfall_nano_usd, is_now.cost_nano_usd, is_now.provider_cost_nano_usd)
        is distinct from (was.receipts, was.settled, was.units, was.prompt_tokens, was.cached_tokens, was.completion_tokens,
          was.charged_tokens, was.charged_nano_usd, was.shortfall_nano_usd, was.cost_nano_usd, was.provider_cost_nano_usd)
      order by 1`;
  });
  if (rows.length === 0) return [];
  const ids = rows.slice(0, ACCOUNTS_NAMED_MAX).map(({ id }) => String(id));
  const more = rows.length - ids.length;
  return [`the totals of account ${ids.join(", ")}${more > 0 ? ` and ${more} more` : ""} differ from the sealed ones`];
}
