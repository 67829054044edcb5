import type { Config } from "../config.ts";
import { connect, type Sql } from "../platform/db.ts";
import { every, type Job } from "../platform/every.ts";
import type { Log } from "../platform/log.ts";
import { dropMonths, lastMonthBefore } from "./dropped_months_store.ts";
import { sealDue } from "./seals_store.ts";
import { openSlices } from "./short_transactions_store.ts";

/**
 * Every replica asks now and then whether a month of receipts is due to be sealed, or dropped. Slices of several replicas run one after
 * another, and each begins where the last one ended.
 */

const EVERY_MS = 600_000;
/** A round ends after this; the next one goes on. */
const ROUND_MS_MAX = 120_000;

type Options = { config: Pick<Config, "databaseUrl" | "dbPrepare" | "receiptsKeepMonths" | "receiptExport">; log: Log };

/** Starts the timer. Rounds use a connection of their own, so that neither the ledger nor the pool waits for them. */
export function startReceiptUpkeep({ config, log }: Options): Job {
  let open: Sql | undefined;
  const job = every({
    ...{ name: "receipt_seals", ms: EVERY_MS, log },
    failure: "months of receipts could not be sealed or dropped",
    async run() {
      const sql = connect({ ...config, fetchTypes: false }, 1);
      open = sql;
      try {
        await sealAndDrop(sql, { config, log });
      } finally {
        open = undefined;
        await sql.end({ timeout: 1 });
      }
    },
  });
  return {
    /** Ends the connection of a round: it fails, and the next one goes on. */
    async close() {
      const ended = job.close();
      await open?.end({ timeout: 0 });
      await ended;
    },
  };
}

/** Seals the months that are due, and drops those that are older than they are kept. Source: RET-1, RET-4. */
export async function sealAndDrop(sql: Sql, { config, log }: Options): Promise<void> {
  const slices = openSlices(sql, { budgetMs: ROUND_MS_MAX });
  // In the log a seal has a copy outside of the database.
  for (const { month, receipts, seal } of await sealDue(slices))
    log.info({ month, receipts, seal }, "sealed the receipts of a month");
  if (config.receiptsKeepMonths === 0) return;
  const upTo = await lastMonthBefore(sql, config.receiptsKeepMonths);
  const isExportUsed = config.receiptExport !== undefined;
  const { months, stoppedBy } = await dropMonths(slices, { isExportUsed, upTo });
  for (const month of months) log.info({ month }, "dropped the receipts of a sealed month");
  if (stoppedBy) log.warn(stoppedBy, "the receipts of a month were not dropped");
}
