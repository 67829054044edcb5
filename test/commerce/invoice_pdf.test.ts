import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import PDFDocument from "pdfkit";
import sharp from "sharp";
import { invoicePdf } from "../../src/commerce/invoice_pdf.ts";
import { titleOf } from "../../src/commerce/invoice_titles.ts";
import { fontFile, pathOf, printable, SCRIPTS, scriptOf, unprintable } from "../../src/commerce/pdf_fonts.ts";
import { INVOICE as invoice, LOOKS, textOf } from "./sample_invoice.ts";

/** The PDF of an invoice: its text, its letters, and its number of pages. Source: INV-4. */

const line = { text: "Pro, 30 days", quantity: 2, amountNano: 58_000_000_000n };
const pagesOf = (pdf: Uint8Array) => textOf(pdf).split("\f").length - 1;

test("an invoice has seller, buyer, lines, amounts and the date in the seller's time zone", async () => {
  const text = textOf(await invoicePdf(invoice, LOOKS));
  for (const said of [
    "Invoice",
    "00042",
    "24 November 2026",
    "A1B2C3D4E5F6",
    "Acme Inference GmbH",
    "Torstraße 12",
    "VAT ID DE123456789",
    "Ada",
    "ada@example.com",
    "Tax number: PL1",
    "Łódź",
    "Pro, 30 days",
    "$29.00",
    "$58.00",
    "$1,176.50",
    "$1,234.50",
    "Page 1 of 1",
  ])
    expect(text).toContain(said);
  // The number of the service's orders must not be revealed.
  expect(text).not.toContain("117");
});

test("without the seller's address it is a receipt; a credit note names its invoice and has negative amounts", async () => {
  const receipt = { ...invoice, seller: { name: null, address: null, taxLine: null } };
  expect(titleOf(receipt)).toBe("Receipt");
  const text = textOf(await invoicePdf(receipt, LOOKS));
  expect(text).toContain("Acme");
  expect(text).not.toContain("Invoice");
  const again = textOf(await invoicePdf({ ...invoice, correctsNumber: 41 }, LOOKS));
  expect(again).toContain("The refund of credit note 00041 was not made. Nothing is due.");
  expect(again).toMatch(/Takes back credit note\s+00041/);
  const note = textOf(await invoicePdf({ ...invoice, kind: "credit_note", correctsNumber: 41 }, LOOKS));
  expect(note).toContain("Credit note");
  expect(note).toContain("00041");
  expect(note).toContain("−$1,234.50");
});

test("with tax it has the net sum, the tax and the total in its currency; by reverse charge also why, and both VAT numbers", async () => {
  const tax = {
    ...{ country: "DE", rate: 19_000, reverseCharge: false },
    ...{ sellerVatNumber: "DE136695976", buyerVatNumber: null },
  };
  const lines = [{ text: "Top-up", quantity: 1, amountNano: 92_000_000_000n }];
  const taxed = { ...invoice, lines, currency: "eur", tax, taxNano: 17_480_000_000n, totalNano: 109_480_000_000n };
  const text = textOf(await invoicePdf(taxed, LOOKS));
  expect(text).toMatch(/Net +€92\.00\s+VAT 19 % +€17\.48\s+Total in EUR +€109\.48/);
  expect(text).toContain("VAT number: DE136695976");
  expect(text).not.toContain("everse charge");
  const reversed = { ...tax, reverseCharge: true, buyerVatNumber: "ATU13585627" };
  const free = textOf(await invoicePdf({ ...taxed, tax: reversed, taxNano: 0n, totalNano: 92_000_000_000n }, LOOKS));
  expect(free).toMatch(/VAT, reverse charge +€0\.00\s+Total in EUR +€92\.00/);
  expect(free).toContain("Reverse charge: the recipient owes the tax");
  expect(free).toContain("VAT number: ATU13585627");
  const note = { ...taxed, kind: "credit_note" as const, correctsNumber: 41, currency: "jpy" };
  expect(textOf(await invoicePdf({ ...note, taxNano: 17_000_000_000n, totalNano: 109_000_000_000n }, LOOKS))).toMatch(
    /Net +−¥92\s+VAT 19 % +−¥17\s+Total in JPY +−¥109/,
  );
});

test("Latin, Greek, Cyrillic, Vietnamese and Chinese names are printed; a name in other scripts is replaced by the e-mail address", async () => {
  for (const name of [
    "Παπαδόπουλος & Σία",
    "ООО «Ромашка»",
    "Żółć Łódź ğüşı",
    "Nguyễn Thị Ánh",
    "Ґалаґан Їжак",
    "Łukasz Ångström",
    "北京智谱华章科技有限公司（鑫淼）",
  ]) {
    const text = textOf(await invoicePdf({ ...invoice, buyer: { ...invoice.buyer, name } }, LOOKS));
    expect(text.normalize("NFC").replace(/\s+/g, "")).toContain(name.replace(/\s+/g, ""));
  }
  const text = textOf(await invoicePdf({ ...invoice, buyer: { ...invoice.buyer, name: "주식회사" } }, LOOKS));
  expect(text.match(/ada@example\.com/g)).toHaveLength(1);
  expect(printable("a\u202eb\u0000 주 c")).toBe("ab c");
  expect(printable("שלום")).toBeUndefined();
  expect(unprintable("ok주ok주")).toEqual(["주"]);
});

test("an Arabic invoice is mirrored, and its letters are joined from right to left", async () => {
  const arabic = { ...invoice, language: "ar" as const, buyer: { ...invoice.buyer, name: "فاتورة" } };
  const words = (layout: string) => layout.split("\n").find((row) => row.includes("Berlin")) ?? "";
  // The seller stands at the side where a line begins.
  expect(words(textOf(await invoicePdf(invoice, LOOKS)))).toStartWith("10119 Berlin");
  expect(words(textOf(await invoicePdf(arabic, LOOKS))).replace(/[\u202a-\u202e]/g, "")).toMatch(/10119 Berlin$/);
  expect(textOf(await invoicePdf(arabic, LOOKS))).toContain(arabic.buyer.name);
});

test("many lines continue on further pages, each with the table's head and a page number", async () => {
  const lines = Array.from({ length: 200 }, (_, i) => ({
    ...line,
    text: `Line ${i + 1} ${"word ".repeat(30)}`.trim(),
  }));
  const pdf = await invoicePdf({ ...invoice, lines }, LOOKS);
  const pages = pagesOf(pdf);
  expect(pages).toBeGreaterThan(5);
  const text = textOf(pdf);
  for (let i = 1; i <= 200; i++) expect(text).toContain(`Line ${i} `);
  expect(text.match(/Description/g)).toHaveLength(pages);
  expect(text).toContain(`Page ${pages} of ${pages}`);
});

test("a word longer than the line is broken, and text never leaves the page", async () => {
  const text = textOf(await invoicePdf({ ...invoice, buyer: { ...invoice.buyer, name: "W".repeat(100) } }, LOOKS));
  expect(text.match(/W/g)?.length).toBeGreaterThanOrEqual(100);
  expect(text.split("\n").every((row) => !/W{60}/.test(row))).toBe(true);
});

test("the file names neither the library nor the operator, and has the logo", async () => {
  const logo = await sharp({ create: { width: 320, height: 80, channels: 4, background: "#0a7d5c" } })
    .png()
    .toBuffer();
  const pdf = Buffer.from(await invoicePdf(invoice, { ...LOOKS, logo })).toString("latin1");
  expect(pdf).toContain("/Subtype /Image");
  expect(pdf).not.toMatch(/pdfkit|tollgate/i);
});

/** The font as the library has parsed it. */
function parsed(file: Buffer) {
  const doc = new PDFDocument({ font: file as unknown as string });
  return (doc as unknown as { _font: { font: { hasGlyphForCodePoint(point: number): boolean } } })._font.font;
}

test("the table of printable characters equals the characters of the font files", () => {
  for (const script of SCRIPTS) {
    for (const weight of ["regular", "bold"] as const) {
      const woff = readFileSync(pathOf(script, weight));
      for (const font of [parsed(woff), parsed(fontFile(script, weight))]) {
        for (let point = 0x20; point < 0x10000; point++) {
          if (scriptOf(String.fromCodePoint(point)) === script)
            expect([script, weight, point, font.hasGlyphForCodePoint(point)]).toEqual([script, weight, point, true]);
        }
      }
    }
  }
});
