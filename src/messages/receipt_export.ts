import {
  batchDelivered,
  batchFailed,
  claimBatch,
  type ExportState,
  exportState,
  type ReceiptBatch,
} from "../books/receipt_export_store.ts";
import type { Config } from "../config.ts";
import { newRequestId } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import { every } from "../platform/every.ts";
import type { Failpoint } from "../platform/failpoints.ts";
import type { Log } from "../platform/log.ts";
import { clean, type Outcome } from "./claims_store.ts";
import { otlpLogs, rejectedIn } from "./otlp_logs.ts";
import { callOutside, type OutsideCall, signatureOf } from "./webhook_call.ts";

/**
 * Sends every receipt to the operator's own warehouse: each at least once, in the order of a cursor in the database, by
 * one replica at a time, one batch after another. Requests wait for nothing of it. Source: MSG-15, MSG-16.
 */

const TICK_MS = 1_000;
const PAUSE_MS_FIRST = 1_000;
const PAUSE_MS_MAX = 300_000;
/** A pause is shortened at random by at most this fraction. */
const JITTER = 0.2;

export type ReceiptExport = {
  /** As last read. */
  status(): Pick<ExportState, "receipts" | "failures"> & { oldestSeconds: number };
  /** Sends until nothing waits or a call fails. For tests. */
  run(): Promise<void>;
  close(): Promise<void>;
};

type ExportOptions = {
  config: Pick<Config, "receiptExport" | "messagesAllowPrivate">;
  version: string;
  db: Db;
  log: Log;
  clock: { unixMs(): number };
  /** 0 to 1. */
  random: () => number;
  failpoint?: Failpoint;
  /** 0: only `run` sends. */
  tickMs?: number;
};
type Target = NonNullable<Config["receiptExport"]>;

/** Starts sending. undefined: no export is configured. */
export function startReceiptExport(options: ExportOptions): ReceiptExport | undefined {
  const { log, config, tickMs = TICK_MS } = options;
  const target = config.receiptExport;
  if (target === undefined) return undefined;
  let state: ExportState = { oldestSeconds: null, isDue: false, receipts: 0, failures: 0, failure: null };
  let isClosed = false;

  const run = async (): Promise<void> => {
    do state = await exportState(options);
    while (!isClosed && state.oldestSeconds !== null && state.isDue && (await sendNext(options, target)));
  };

  // A run that fails loses nothing: it is all in the database.
  const failure = "receipts could not be read for their export";
  const job = tickMs > 0 ? every({ name: "receipt_export", ms: tickMs, run, log, failure }) : undefined;
  return {
    status() {
      const { oldestSeconds, receipts, failures } = state;
      return { oldestSeconds: oldestSeconds ?? 0, receipts, failures };
    },
    run,
    async close() {
      isClosed = true;
      await job?.close();
    },
  };
}

/** Sends the next batch. False: there is none for this replica, or it was not delivered. */
async function sendNext(options: ExportOptions, target: Target): Promise<boolean> {
  const { log, failpoint, random } = options;
  const claimId = newRequestId();
  const batch = await claimBatch(options, { claimId, rowsMax: target.rowsMax });
  if (batch === undefined) return false;
  // Its receipts were all settled late meanwhile: they are part of later batches.
  const problem = batch.receipts.length === 0 ? undefined : problemOf(await call(options, target, batch));
  failpoint?.("after_export");
  const { batchId, number, failures } = batch;
  if (problem === undefined) {
    if (failures > 0) log.info({ batchId, number, failures }, "receipts are exported again");
    return await batchDelivered(options, { claimId, batch });
  }
  const pauseMs = pauseAfter(failures, random());
  if (failures === 0) log.warn({ batchId, number, problem }, "receipts could not be exported; they are sent again");
  await batchFailed(options, { claimId, failure: problem, pauseMs });
  return false;
}

/** Grows from a second to five minutes. */
export function pauseAfter(failures: number, random: number): number {
  return Math.min(PAUSE_MS_MAX, PAUSE_MS_FIRST * 2 ** Math.min(failures, 20)) * (1 - JITTER * random);
}

async function call(options: ExportOptions, target: Target, batch: ReceiptBatch): Promise<Outcome> {
  const { config, version } = options;
  const { url, headers, serviceName } = target;
  const { batchId, number, plannedAt, receipts } = batch;
  const to: Omit<OutsideCall, "body"> = { url, headers, allowPrivate: config.messagesAllowPrivate };
  if (target.form === "otlp")
    return await callOutside({ ...to, body: JSON.stringify(otlpLogs(batch, { serviceName, version })) });
  const body = JSON.stringify({ type: "receipts", timestamp: plannedAt, data: { batchId, number, receipts } });
  const messageId = `batch_${batchId}`;
  const signature = signatureOf({ secrets: target.secrets, messageId, unixMs: options.clock.unixMs(), body });
  return await callOutside({ ...to, headers: { ...headers, ...signature }, body });
}

/** Why a batch was not taken; undefined: it was. */
function problemOf({ ok, status, answer }: Outcome): string | undefined {
  if (ok) {
    const rejected = rejectedIn(answer);
    return rejected === 0 ? undefined : `the collector rejected ${rejected} receipts`;
  }
  return clean(status === null ? answer : `status ${status}: ${answer}`);
}
