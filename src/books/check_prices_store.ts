import { Value } from "@sinclair/typebox/value";
import { FurtherCounts, PriceParts, recompute } from "../ledger/price.ts";
import { arrayOf } from "../platform/row_literals.ts";
import type { Violation } from "./invariants.ts";
import { hasTime, type Slices, type SliceTx, slice } from "./short_transactions_store.ts";
import { ID_MIN } from "./usage_records_store.ts";

/**
 * Every charge computed again from its receipt and the price version that it names, by the function that charges requests. A
 * sweep over all receipts, which continues where the last check ended. The view `inv_prices` has the same rule in SQL.
 * Source: MON-17, MRK-4.
 */

/** Receipts of one slice: computing them keeps the event loop busy for some milliseconds. */
const PAGE_ROWS_MAX = 2_000;
/** Broken receipts that are computed again in each check, though nothing has changed. */
const DUE_MAX = 1_000;

/** Receipts whose charge differs from its parts: those found before, and among about `rowsMax` after the last ones. */
export async function brokenPrices(slices: Slices, rowsMax: number): Promise<Violation[]> {
  const broken = new Set(await slice(slices, brokenStill));
  for (let read = 0; read < rowsMax; ) {
    const page = await slice(slices, (tx, rows) => checkPage(tx, Math.min(rows, PAGE_ROWS_MAX)));
    for (const id of page.broken) broken.add(id);
    read += page.rows;
    if (page.ended || !hasTime(slices)) break;
  }
  return [...broken].map((ref) => ({ name: "inv_prices", ref }));
}

/** The receipts on `book_due` that are broken still; takes the others off it. */
async function brokenStill(tx: SliceTx): Promise<string[]> {
  const due = await tx`
    select request_id::text as id from book_due where kind = 'price' order by request_id limit ${DUE_MAX}`;
  const ids = due.map(({ id }) => String(id));
  const broken = new Set(
    await brokenAmong(tx, await tx`${receipts(tx)} where request_id = any(${arrayOf(ids)}::text::uuid[])`),
  );
  const repaired = arrayOf(ids.filter((id) => !broken.has(id)));
  await tx`delete from book_due where kind = 'price' and request_id = any(${repaired}::text::uuid[])`;
  return [...broken];
}

/** Advances over the next receipts. `ended`: there were no more, and the next page is the first. */
async function checkPage(tx: SliceTx, rowsMax: number): Promise<{ broken: string[]; rows: number; ended: boolean }> {
  const rows = await tx`
    ${receipts(tx)} where request_id > (select prices_to from book_closing) order by request_id limit ${rowsMax}`;
  const broken = await brokenAmong(tx, rows);
  await tx`
    insert into book_due (kind, id, request_id)
    select 'price', 0, id from unnest(${arrayOf(broken)}::text::uuid[]) as broken(id) on conflict do nothing`;
  const ended = rows.length < rowsMax;
  const last = ended ? ID_MIN : String(rows.at(-1)?.id);
  await tx`update book_closing set prices_to = ${last}::text::uuid`;
  return { broken, rows: rows.length, ended };
}

function receipts(tx: SliceTx) {
  return tx`
    select request_id::text as id, outcome, mode, (charged_nano_usd + shortfall_nano_usd)::text as cost,
      prompt_tokens, cached_tokens, completion_tokens, further_counts,
      markup_basis_points, cost_nano_usd::text as wholesale, price_version_id::text as version_id from receipts`;
}

/** The same condition as in the view `inv_prices`. A charge that names no price version cannot be computed again. */
async function brokenAmong(tx: SliceTx, rows: readonly Record<string, unknown>[]): Promise<string[]> {
  const charged = rows.filter(
    ({ outcome, mode, version_id }) => outcome === "settled" && mode === "payg" && version_id !== null,
  );
  const versions = await versionsOf(tx, new Set(charged.map(({ version_id }) => String(version_id))));
  const broken = charged.filter((row) => {
    const prices = versions.get(String(row.version_id));
    return prices !== undefined && !isExact(row, prices);
  });
  return broken.map(({ id }) => String(id));
}

async function versionsOf(tx: SliceTx, ids: ReadonlySet<string>): Promise<Map<string, unknown>> {
  if (ids.size === 0) return new Map();
  const rows = await tx`
    select id::text, prices from price_versions where id = any(${arrayOf([...ids])}::text::bigint[])`;
  return new Map(rows.map(({ id, prices }) => [String(id), prices]));
}

function isExact(row: Record<string, unknown>, prices: unknown): boolean {
  const further = row.further_counts ?? undefined;
  if (!Value.Check(PriceParts, prices)) return false;
  if (further !== undefined && !Value.Check(FurtherCounts, further)) return false;
  const counts = {
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    further,
  };
  const again = recompute(prices, counts, Number(row.markup_basis_points ?? 0));
  if (again === null || again.nanoUsd !== BigInt(String(row.cost))) return false;
  return row.wholesale === null || again.costNanoUsd === BigInt(String(row.wholesale));
}
