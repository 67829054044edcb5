import { invoicePdf } from "../src/commerce/invoice_pdf.ts";
import { createPdfDrawer } from "../src/commerce/pdf_drawer.ts";
import { createLog } from "../src/platform/log.ts";

/** How long the event loop pauses while invoices are drawn: in the process itself, and in the worker. `bun run bench:pdf`. */

const FILES = 20;
const TICK_MS = 1;
const USD = 1_000_000_000n;

const LOOKS = { brandName: "Acme", logo: null, timeZone: "Europe/Berlin" };
const line = { text: "Pro, 30 days", quantity: 1, amountNano: 58n * USD };
const invoice = {
  ...{
    invoiceId: 1,
    sellerId: 3,
    accountId: 5,
    number: 42,
    kind: "invoice" as const,
    language: "en" as const,
    orderId: 117,
    reference: "A1B2C3D4E5F6",
    correctsNumber: null,
  },
  seller: { name: "Acme Inference GmbH", address: "Torstraße 12\n10119 Berlin", taxLine: "VAT ID DE123456789" },
  buyer: { name: "Ada", email: "ada@example.com", address: "Rynek 1\nŁódź", taxNumber: "PL1" },
  ...{
    lines: [line],
    currency: "usd",
    tax: null,
    taxNano: 0n,
    totalNano: 58n * USD,
    issuedAt: "2026-11-23T23:30:00.000Z",
  },
};
const scripts = {
  ...invoice,
  buyer: { ...invoice.buyer, name: "Ελένη Παπαδοπούλου", address: "ул. Тверская 1\nМосква" },
};
const long = { ...invoice, lines: Array.from({ length: 200 }, () => line) };

/** The longest time between two ticks while `work` runs, and the time of one file, in ms. */
async function measured(work: () => Promise<unknown>, files: number): Promise<{ pauseMs: number; fileMs: number }> {
  let last = performance.now();
  let pauseMs = 0;
  const timer = setInterval(() => {
    const now = performance.now();
    pauseMs = Math.max(pauseMs, now - last - TICK_MS);
    last = now;
  }, TICK_MS);
  let sumMs = 0;
  for (let i = 0; i < files; i++) {
    const start = performance.now();
    await work();
    sumMs += performance.now() - start;
    // One file after the other, so that no pause covers more than one file.
    await new Promise((resolve) => setTimeout(resolve, 5 * TICK_MS));
  }
  const fileMs = sumMs / files;
  clearInterval(timer);
  return { pauseMs, fileMs };
}

const drawer = createPdfDrawer(createLog("info"));
for (const [name, drawn, files] of [
  ["first file", invoice, 1],
  ["Latin letters", invoice, FILES],
  ["three scripts", scripts, FILES],
  ["200 lines", long, 3],
] as const)
  for (const [where, draw] of [
    ["in the process", () => invoicePdf(drawn, LOOKS)],
    ["in the worker", () => drawer.draw(drawn, LOOKS)],
  ] as const) {
    const { pauseMs, fileMs } = await measured(draw, files);
    console.log(
      `${name}, ${where}: the event loop pauses ${pauseMs.toFixed(0)} ms at most, a file takes ${fileMs.toFixed(0)} ms`,
    );
  }
drawer.close();
