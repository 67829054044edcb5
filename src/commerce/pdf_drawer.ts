import { inTurn, toPng } from "../accounts/pictures.ts";
import { Refusal } from "../errors.ts";
import type { Log } from "../platform/log.ts";
import { createWorkerJobs } from "../platform/worker_jobs.ts";
import type { Looks } from "./invoice_pdf.ts";
import type { Invoice } from "./invoices_store.ts";

/**
 * Draws invoices in a worker, so that no stream of the gateway waits for them. The worker starts with the first file.
 * Source: INV-4.
 */

/** Files of one replica that are being drawn or wait, and of them of one account. */
const QUEUE_MAX = 16;
const ACCOUNT_QUEUE_MAX = 4;
/** Time limit of one file, including its time in the queue and the start of the worker. */
const WAIT_MS = 15_000;
/** The longest invoice takes about two seconds. */
const STUCK_MS = 10_000;
const RETRY_AFTER_SECONDS = 5;

export type PdfJob = { invoice: Invoice; looks: Looks };

export type PdfDrawer = {
  /**
   * Draws a file. `logo` is a picture that `toLogo` has made. Throws too_many_requests and service_unavailable while too
   * many pictures or files wait, and service_unavailable if the worker cannot be used.
   */
  draw(invoice: Invoice, looks: Looks): Promise<Uint8Array>;
  /** Terminates the worker. */
  close(): void;
};

type Options = { startWorker?: () => Worker; waitMs?: number; stuckMs?: number };

export function createPdfDrawer(
  log: Log,
  { startWorker = newWorker, waitMs = WAIT_MS, stuckMs = STUCK_MS }: Options = {},
): PdfDrawer {
  const jobs = createWorkerJobs<PdfJob, Uint8Array>({
    ...{ name: "pdf", log, startWorker, isLazy: true },
    ...{ queueMax: QUEUE_MAX, shares: { account: ACCOUNT_QUEUE_MAX, tenant: QUEUE_MAX } },
    ...{ waitMs, stuckMs },
  });
  return {
    async draw(invoice, looks) {
      const stored = looks.logo;
      const logo = stored && new Uint8Array(await inTurn(invoice.accountId, (turn) => toPng(turn, stored)));
      const owner = { accountId: invoice.accountId, tenantId: 0 };
      const file = await jobs.run({ invoice, looks: { ...looks, logo } }, { owner });
      if (file !== undefined) return file;
      throw new Refusal("service_unavailable", {
        message: "Too many files are being drawn right now. Try again in a few seconds.",
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    },
    close: jobs.close.bind(jobs),
  };
}

function newWorker(): Worker {
  return new Worker(new URL("./pdf_worker.ts", import.meta.url), { type: "module" });
}
