import { serveJobs, yieldToRequests } from "../platform/worker_side.ts";
import { invoicePdf } from "./invoice_pdf.ts";
import type { PdfJob } from "./pdf_drawer.ts";

/** Draws PDF files in a worker. */

yieldToRequests();
serveJobs(({ invoice, looks }: PdfJob) => invoicePdf(invoice, looks));
