import type postgres from "postgres";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { arrayOf } from "../platform/row_literals.ts";
import { serverId } from "./folding_store.ts";
import { advanced, type Snapshot, toSnapshot, toText } from "./snapshots.ts";

/**
 * The cursor of the export of receipts. It has the form of the one of folding (`folding_store.ts`), so no clock is
 * involved, and a receipt that commits late is not passed over: what was delivered is what a stored snapshot sees. A
 * batch is planned before it is sent, with an id of its own, and the cursor advances when it was delivered: a crash in
 * between sends the same batch again. Within a transaction the order is that of the request ids, so that a transaction
 * with more receipts than a batch is divided.
 *
 * A late settlement writes a receipt anew, in a transaction of its own. Such a receipt leaves the batch that it was
 * planned in, unless that was delivered, and is part of a later one.
 */

/** A batch that is not ended within this time may be sent by another replica. Longer than a call may take. */
export const CLAIM_SECONDS = 60;
const PLAN_MS_MAX = 5_000;

type Tx = postgres.TransactionSql;
type Cursor = { snapshot: Snapshot; within: bigint | null; to: string | null };

export type ExportedReceipt = Record<string, unknown> & { requestId: string; finishedAt: string };
export type ReceiptBatch = {
  batchId: string;
  /** Counts batches, from 1. After a restore it may say again what it said before; the id never does. */
  number: number;
  plannedAt: string;
  receipts: ExportedReceipt[];
  /** Of the batch before, since its last success. */
  failures: number;
};
/** `oldestSeconds`: since when the next receipt has been waiting; null: none waits. `receipts`: delivered so far. */
export type ExportState = {
  oldestSeconds: number | null;
  isDue: boolean;
  receipts: number;
  failures: number;
  failure: string | null;
};

/** How far behind the export is. */
export async function exportState({ db }: { db: Db }): Promise<ExportState> {
  return await db.sql.begin(async (tx) => {
    await tx.unsafe(BEGINNING);
    const [row] = await tx`
      select receipts, failures, failure, due_at <= ledger_now() as is_due, ${cursorColumns(tx)}, ${isForeign(tx)} as is_foreign
      from receipt_export`;
    const cursor = row?.is_foreign === true ? BEFORE_ALL : toCursor(row);
    const [next] = await tx`
      select extract(epoch from ledger_now() - finished_at)::float8 as seconds
      from receipts join (${unsent(tx, cursor, 1)}) next using (request_id)`;
    return {
      oldestSeconds: next === undefined ? null : Math.max(0, Number(next.seconds)),
      isDue: row?.is_due === true,
      receipts: Number(row?.receipts),
      failures: Number(row?.failures),
      failure: row?.failure ?? null,
    };
  });
}

/**
 * Claims the next batch for CLAIM_SECONDS, and plans it unless it is planned. undefined: nothing waits, another replica
 * sends, or the pause after a failure is not over.
 */
export async function claimBatch(
  { db }: { db: Db },
  { claimId, rowsMax }: { claimId: string; rowsMax: number },
): Promise<ReceiptBatch | undefined> {
  return await db.sql.begin(async (tx) => {
    await tx.unsafe(BEGINNING);
    const [row] = await tx`
      update receipt_export set claim_id = ${claimId}, due_at = ledger_now() + make_interval(secs => ${CLAIM_SECONDS})
      where due_at <= ledger_now()
      returning batch_id, ${isForeign(tx)} as is_foreign`;
    if (row === undefined) return undefined;
    if (row.is_foreign) await beginAnew(tx);
    else if (row.batch_id !== null) return await plannedBatch(tx);
    const [state] = await tx`select ${cursorColumns(tx)} from receipt_export`;
    if (await plan(tx, toCursor(state), rowsMax)) return await plannedBatch(tx);
    await tx`update receipt_export set claim_id = null, due_at = ledger_now()`;
    return undefined;
  });
}

/** The batch was delivered. False: another replica has the claim, and sends it again. */
export async function batchDelivered(
  { db }: { db: Db },
  { claimId, batch }: { claimId: string; batch: Pick<ReceiptBatch, "batchId" | "receipts"> },
): Promise<boolean> {
  const rows = await db.sql`
    update receipt_export set sent = planned, sent_within = planned_within, sent_to = planned_to,
      batch_id = null, planned = null, planned_within = null, planned_to = null, planned_at = null,
      receipts = receipts + ${batch.receipts.length}, claim_id = null, due_at = ledger_now(), failures = 0, failure = null
    where claim_id = ${claimId} and batch_id = ${batch.batchId} returning 1`;
  return rows.length > 0;
}

/** The batch was not delivered: it is due again after a pause, for any replica. */
export async function batchFailed(
  { db }: { db: Db },
  { claimId, failure, pauseMs }: { claimId: string; failure: string; pauseMs: number },
): Promise<void> {
  await db.sql`
    update receipt_export set claim_id = null, due_at = ledger_now() + make_interval(secs => ${pauseMs / 1000}::float8),
      failures = failures + 1, failure = ${failure}
    where claim_id = ${claimId}`;
}

/** One core, and index scans even where the planner has no statistics yet of a month that is filling. */
const BEGINNING = `
  set local statement_timeout = ${PLAN_MS_MAX}; set local max_parallel_workers_per_gather = 0; set local jit = off;
  set local enable_seqscan = off`;

const cursorColumns = (tx: Tx) => tx`sent::text as sent, sent_within::text as sent_within, sent_to`;

function toCursor(row: Record<string, unknown> | undefined): Cursor {
  const { sent, sent_within: within, sent_to: to } = row ?? {};
  return {
    snapshot: toSnapshot(sent),
    within: typeof within === "string" ? BigInt(within) : null,
    to: typeof to === "string" ? to : null,
  };
}

const BEFORE_ALL: Cursor = { snapshot: { xmax: 3n, open: [] }, within: null, to: null };

/**
 * The cursor is of another server, or of transaction ids that this one has not reached: the database was restored. Also
 * before the first batch.
 */
const isForeign = (tx: Tx) => tx`
  (server <> (${serverId(tx)}) or pg_snapshot_xmax(sent) > pg_snapshot_xmax(pg_current_snapshot()))`;

async function beginAnew(tx: Tx): Promise<void> {
  await tx`
    update receipt_export set sent = default, sent_within = null, sent_to = null, batch_id = null, planned = null,
      planned_within = null, planned_to = null, planned_at = null, receipts = 0, server = (${serverId(tx)})`;
}

/** The next receipts after the cursor, in its order. */
function unsent(tx: Tx, { snapshot, within, to }: Cursor, rowsMax: number) {
  const left = tx`(written_in, request_id) > (${String(within ?? 0n)}::text::xid8, ${to ?? NO_ID}::text::uuid)`;
  const first = (where: ReturnType<typeof tx>) => tx`
    (select written_in, request_id from receipts where ${where} order by written_in, request_id limit ${rowsMax})`;
  // Restored rows may have transaction ids that this server has not reached: folding gives them others.
  return tx`
    select written_in, request_id from (
      select r.* from unnest(${arrayOf(snapshot.open)}::text::xid8[]) ended (id)
        cross join lateral ${first(tx`written_in = ended.id and (written_in <> ${String(within ?? 0n)}::text::xid8 or ${left})`)} r
      union all
      select r.* from ${first(tx`
        written_in >= ${String(snapshot.xmax)}::text::xid8 and written_in < pg_snapshot_xmax(pg_current_snapshot())
        and (written_in <> ${String(within ?? 0n)}::text::xid8 or ${left})`)} r) waiting
    order by written_in, request_id limit ${rowsMax}`;
}

const NO_ID = "00000000-0000-0000-0000-000000000000";

/** Plans the next batch of at most `rowsMax` receipts. False: none waits. */
async function plan(tx: Tx, sent: Cursor, rowsMax: number): Promise<boolean> {
  const next = sent.within === null ? await nextOf(tx, sent, rowsMax) : await restOf(tx, sent, sent.within, rowsMax);
  if (next === undefined) return false;
  const { snapshot, within, to } = next;
  await tx`
    update receipt_export set batch_id = gen_random_uuid(), batches = batches + 1, planned_at = ledger_now(),
      planned = ${toText(snapshot)}::text::pg_snapshot, planned_within = ${within === null ? null : String(within)}::text::xid8,
      planned_to = ${to}::text::uuid`;
  return true;
}

/** The cursor after the next receipts; undefined: none waits. */
async function nextOf(tx: Tx, sent: Cursor, rowsMax: number): Promise<Cursor | undefined> {
  // One statement: its snapshot is the one that it reads.
  const [found] = await tx`
    with next as materialized (${unsent(tx, sent, rowsMax + 1)})
    select pg_current_snapshot()::text as seen, written_in::text as within, request_id as to,
      (select written_in::text from next order by next.written_in, request_id offset ${rowsMax} limit 1) as over
    from (select * from next order by written_in, request_id limit ${rowsMax}) taken
    order by taken.written_in desc, request_id desc limit 1`;
  if (found === undefined) return undefined;
  const over = found.over === null ? undefined : BigInt(String(found.over));
  const snapshot = advanced(sent.snapshot, toSnapshot(found.seen), over);
  const isDivided = found.over === found.within;
  return { snapshot, within: isDivided ? (over ?? null) : null, to: isDivided ? String(found.to) : null };
}

/** The cursor after the next receipts of the transaction of which a part was delivered: it is completed before others. */
async function restOf(tx: Tx, { snapshot, to }: Cursor, within: bigint, rowsMax: number): Promise<Cursor> {
  const [last] = await tx`
    select max(request_id::text) as to, count(*)::int as rows from (
      select request_id from receipts where written_in = ${String(within)}::text::xid8 and request_id > ${to}::text::uuid
      order by request_id limit ${rowsMax}) taken`;
  if (last?.rows === rowsMax) return { snapshot, within, to: String(last.to) };
  const xmax = within >= snapshot.xmax ? within + 1n : snapshot.xmax;
  return { snapshot: { xmax, open: snapshot.open.filter((id) => id !== within) }, within: null, to: null };
}

async function plannedBatch(tx: Tx): Promise<ReceiptBatch> {
  const [row] = await tx`
    select batch_id, batches, failures, planned_at::text as planned_at, planned::text as planned,
      planned_within::text as planned_within, ${cursorColumns(tx)} from receipt_export`;
  const sent = toCursor(row);
  const planned = toSnapshot(row?.planned);
  const within = BigInt(String(row?.planned_within ?? 0));
  const upto = within >= planned.xmax ? within + 1n : planned.xmax;
  const columns = tx.unsafe(
    Object.entries(COLUMNS)
      .map(([name, sql]) => `${sql} as "${name}"`)
      .join(", "),
  );
  const of = (where: ReturnType<typeof tx>) => tx`
    select ${columns}, written_in as w, request_id as r from receipts, receipt_export e
    where ${where}
      and (pg_visible_in_snapshot(written_in, planned) or (written_in = planned_within and request_id <= planned_to))
      and (written_in = sent_within and request_id <= sent_to) is not true`;
  const rows = await tx`
    select * from (
      ${of(tx`written_in = any(${arrayOf(sent.snapshot.open)}::text::xid8[])`)}
      union all
      ${of(tx`written_in >= ${String(sent.snapshot.xmax)}::text::xid8 and written_in < ${String(upto)}::text::xid8`)}) batch
    order by w, r`;
  return {
    batchId: String(row?.batch_id),
    number: Number(row?.batches),
    plannedAt: toIso(String(row?.planned_at)),
    failures: Number(row?.failures),
    receipts: rows.map(toReceipt),
  };
}

/** The fields of an exported receipt, and what they are in Postgres. Money is text: it may not fit into a JSON number. */
const COLUMNS = {
  requestId: "request_id",
  outcome: "outcome",
  reason: "reason",
  accountId: "account_id::float8",
  keyId: "key_id::float8",
  modelId: "model_id",
  host: "host",
  mode: "mode",
  packageId: "package_id::float8",
  day: "day::text",
  units: "units",
  promptTokens: "prompt_tokens",
  cachedTokens: "cached_tokens",
  completionTokens: "completion_tokens",
  chargedTokens: "charged_tokens::float8",
  estimated: "estimated",
  furtherCounts: "further_counts",
  reportedUsage: "reported_usage",
  heldNanoUsd: "held_nano_usd::text",
  chargedNanoUsd: "charged_nano_usd::text",
  shortfallNanoUsd: "shortfall_nano_usd::text",
  costNanoUsd: "cost_nano_usd::text",
  markupBasisPoints: "markup_basis_points",
  priceVersionId: "price_version_id::float8",
  routeId: "route_id::float8",
  firstMs: "first_ms",
  providerCostNanoUsd: "provider_cost_nano_usd::text",
  createdAt: "created_at::text",
  finishedAt: "finished_at::text",
} as const;
/** For docs/webhooks.md. */
export const EXPORTED_FIELDS = Object.keys(COLUMNS);

function toReceipt({ w: _, r: __, ...row }: Record<string, unknown>): ExportedReceipt {
  const [createdAt, finishedAt] = [toIso(String(row.createdAt)), toIso(String(row.finishedAt))];
  return { ...row, requestId: String(row.requestId), createdAt, finishedAt };
}
