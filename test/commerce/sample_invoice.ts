import { expect } from "bun:test";
import type { Invoice } from "../../src/commerce/invoices_store.ts";

/** An invoice to draw, and the text of its file. */

const USD = 1_000_000_000n;
export const LOOKS = { brandName: "Acme", logo: null, timeZone: "Europe/Berlin" };
const line = { text: "Pro, 30 days", quantity: 2, amountNano: 58n * USD };
export const INVOICE: Invoice = {
  invoiceId: 1,
  sellerId: 3,
  accountId: 5,
  number: 42,
  kind: "invoice",
  language: "en",
  orderId: 117,
  reference: "A1B2C3D4E5F6",
  correctsNumber: null,
  seller: { name: "Acme Inference GmbH", address: "Torstraße 12\n10119 Berlin", taxLine: "VAT ID DE123456789" },
  buyer: { name: "Ada", email: "ada@example.com", address: "Rynek 1\nŁódź", taxNumber: "PL1" },
  lines: [line, { text: "Top-up", quantity: 1, amountNano: 1_176_500_000_000n }],
  ...{ currency: "usd", tax: null, taxNano: 0n },
  totalNano: 1_234_500_000_000n,
  issuedAt: "2026-11-23T23:30:00.000Z",
};

/** The text as a reader extracts it. */
export function textOf(pdf: Uint8Array): string {
  const read = Bun.spawnSync(["pdftotext", "-layout", "-", "-"], { stdin: pdf });
  expect(read.exitCode).toBe(0);
  return read.stdout.toString();
}
