import PDFDocument from "pdfkit";
import { decimalAmount, formatAmount } from "../platform/currencies.ts";
import { numberText, titleOf } from "./invoice_titles.ts";
import type { Invoice } from "./invoices_store.ts";
import { printable, unprintable } from "./pdf_fonts.ts";
import { drawText, heightOf, type Style } from "./pdf_text.ts";
import { taxText } from "./tax_words.ts";

/**
 * An invoice, receipt or credit note as a PDF file: A4, drawn anew from the stored row each time. It takes 60 to 400 ms, so it is drawn in a
 * worker: see `pdf_drawer.ts`. Source: INV-4.
 */

/** Points: 72 an inch. */
const PAGE = { width: 595.28, height: 841.89, margin: 56 };
const INNER = PAGE.width - 2 * PAGE.margin;
const FOOTER_Y = PAGE.height - 44;
/** Only the footer is below. */
const BODY_END = PAGE.height - 72;
const LOGO = { width: 180, height: 40 };
const COLUMN = INNER / 2;
const AMOUNT = 84;
const QUANTITY = 48;
/** Of a sum above the total. */
const SUM_HEIGHT = 18;
const DESCRIPTION = INNER - QUANTITY - 2 * AMOUNT - 3 * 12;

const INK = "#12202b";
const QUIET = "#5a6873";
const LINE = "#d6dce0";
const TEXT: Style = { size: 9.5, color: INK };
const FIGURES: Style = { ...TEXT, isFigures: true };
const BOLD: Style = { ...TEXT, weight: "bold" };
const LABEL: Style = { size: 8, color: QUIET };
const TITLE: Style = { size: 20, weight: "bold", color: INK };
const NAME: Style = { size: 14, weight: "bold", color: INK };
const TOTAL: Style = { size: 12, weight: "bold", color: INK, isFigures: true };

const REVERSE_CHARGE = "Reverse charge: the recipient owes the tax (Article 196 of Council Directive 2006/112/EC).";

type Doc = PDFKit.PDFDocument;

export type Looks = {
  /** The seller's name if it has entered none. */
  brandName: string;
  /** PNG; null: the name is printed instead. */
  logo: Uint8Array | null;
  /** The time zone of the date. */
  timeZone: string;
};

/** Draws the file. */
export async function invoicePdf(invoice: Invoice, looks: Looks): Promise<Uint8Array> {
  const seller = printable(invoice.seller.name ?? looks.brandName) ?? "";
  const title = `${titleOf(invoice)} ${numberText(invoice.number)}`;
  const doc = new PDFDocument({
    size: "A4",
    margin: 0,
    bufferPages: true,
    lang: "en",
    displayTitle: true,
    // None: each line names its own. Otherwise pdfkit loads Helvetica.
    font: "",
    // Replaces the library's name: a reseller's file must not show how it was made.
    info: { Title: title, Author: seller, Creator: seller, Producer: seller, CreationDate: new Date(invoice.issuedAt) },
  });
  const parts: Uint8Array[] = [];
  doc.on("data", (part: Uint8Array) => parts.push(part));
  const written = new Promise<void>((resolve, reject) => doc.on("end", resolve).on("error", reject));
  let y = drawHead(doc, { invoice, looks, seller, logo: looks.logo && Buffer.from(looks.logo) });
  y = drawParties(doc, { invoice, seller, y });
  y = drawLines(doc, { invoice, y });
  drawTotal(doc, { invoice, looks, y });
  drawFooters(doc, `${seller} · ${title}`);
  doc.end();
  await written;
  return Buffer.concat(parts);
}

function correctsLabel({ kind }: Invoice): string {
  return kind === "credit_note" ? "Corrects invoice" : "Takes back credit note";
}

type Head = { invoice: Invoice; looks: Looks; seller: string; logo: Buffer | null };

function drawHead(doc: Doc, { invoice, looks, seller, logo }: Head): number {
  const top = PAGE.margin;
  if (logo) doc.image(logo, PAGE.margin, top, { fit: [LOGO.width, LOGO.height] });
  const nameHeight = logo ? LOGO.height : drawText(doc, seller, left(top, COLUMN), NAME);
  const titleHeight = drawText(doc, titleOf(invoice), right(top - 4, COLUMN), TITLE);
  const facts: [string, string][] = [
    ["Number", numberText(invoice.number)],
    ["Date", dateText(invoice.issuedAt, looks.timeZone)],
    ...(invoice.reference === null ? [] : [["Order", invoice.reference] as [string, string]]),
    ...(invoice.correctsNumber === null
      ? []
      : [[correctsLabel(invoice), numberText(invoice.correctsNumber)] as [string, string]]),
  ];
  let y = top + titleHeight + 8;
  for (const [label, value] of facts) {
    drawText(doc, label, { x: PAGE.margin + COLUMN, y: y + 1, width: COLUMN - 130, align: "right" }, LABEL);
    y += drawText(doc, value, right(y, 120), TEXT) + 2;
  }
  return Math.max(top + nameHeight, y) + 32;
}

function drawParties(doc: Doc, { invoice, seller, y }: { invoice: Invoice; seller: string; y: number }): number {
  const { seller: from, buyer, tax } = invoice;
  const width = COLUMN - 16;
  const sellerEnd = drawParty(doc, ["From", seller, [from.address, vatText(tax?.sellerVatNumber), from.taxLine]], {
    x: PAGE.margin,
    y,
    width,
  });
  const name = printable(buyer.name) ?? buyer.email;
  const taxNumber = buyer.taxNumber === null ? null : `Tax number: ${buyer.taxNumber}`;
  const email = name === buyer.email ? null : buyer.email;
  const place = { x: PAGE.margin + COLUMN, y, width: COLUMN };
  return (
    Math.max(
      sellerEnd,
      drawParty(doc, ["To", name, [buyer.address, vatText(tax?.buyerVatNumber), taxNumber, email]], place),
    ) + 32
  );
}

function vatText(vatNumber: string | null | undefined): string | null {
  return vatNumber ? `VAT number: ${vatNumber}` : null;
}

type Party = readonly [label: string, name: string, lines: readonly (string | null)[]];

function drawParty(doc: Doc, [label, name, lines]: Party, place: { x: number; y: number; width: number }): number {
  let y = place.y + drawText(doc, label, place, LABEL) + 2;
  y += drawText(doc, name, { ...place, y }, BOLD);
  for (const line of lines) if (line !== null) y += drawText(doc, line, { ...place, y }, TEXT);
  return y;
}

/** The columns of the table: where each begins, and how wide it is. */
const COLUMNS = {
  what: { x: PAGE.margin, width: DESCRIPTION },
  quantity: { x: PAGE.margin + DESCRIPTION + 12, width: QUANTITY, align: "right" },
  unit: { x: PAGE.margin + DESCRIPTION + QUANTITY + 24, width: AMOUNT, align: "right" },
  amount: { x: PAGE.margin + INNER - AMOUNT, width: AMOUNT, align: "right" },
} as const;

function drawLines(doc: Doc, { invoice, y: start }: { invoice: Invoice; y: number }): number {
  let y = drawTableHead(doc, start);
  for (const { text, quantity, amountNano } of invoice.lines) {
    const said = printable(text) ?? "";
    const height = heightOf(doc, said, DESCRIPTION, TEXT) + 14;
    if (y + height > BODY_END) {
      doc.addPage({ size: "A4", margin: 0 });
      y = drawTableHead(doc, PAGE.margin);
    }
    drawText(doc, said, { ...COLUMNS.what, y: y + 7 }, TEXT);
    drawText(doc, quantity.toLocaleString("en-US"), { ...COLUMNS.quantity, y: y + 7 }, FIGURES);
    const unit = amountNano / BigInt(quantity);
    if (unit * BigInt(quantity) === amountNano)
      drawText(doc, signed(invoice, unit), { ...COLUMNS.unit, y: y + 7 }, FIGURES);
    drawText(doc, signed(invoice, amountNano), { ...COLUMNS.amount, y: y + 7 }, FIGURES);
    y += height;
    rule(doc, y);
  }
  return y;
}

function drawTableHead(doc: Doc, y: number): number {
  drawText(doc, "Description", { ...COLUMNS.what, y }, LABEL);
  drawText(doc, "Quantity", { ...COLUMNS.quantity, y }, LABEL);
  drawText(doc, "Price", { ...COLUMNS.unit, y }, LABEL);
  drawText(doc, "Amount", { ...COLUMNS.amount, y }, LABEL);
  rule(doc, y + 18, INK);
  return y + 18;
}

function drawTotal(doc: Doc, { invoice, looks, y: start }: { invoice: Invoice; looks: Looks; y: number }): void {
  const note = noteOf(invoice, looks);
  const { tax, taxNano, totalNano, currency } = invoice;
  const sums: [string, bigint][] =
    tax === null
      ? []
      : [
          ["Net", totalNano - taxNano],
          [tax.reverseCharge ? "VAT, reverse charge" : taxText(tax), taxNano],
        ];
  const height = 76 + sums.length * SUM_HEIGHT + (tax?.reverseCharge ? 28 : 0);
  let y = start;
  if (y + height > BODY_END) {
    doc.addPage({ size: "A4", margin: 0 });
    y = PAGE.margin;
  }
  y += 14;
  for (const [label, nano] of sums) {
    drawText(doc, label, { x: PAGE.margin, y, width: INNER - 160, align: "right" }, TEXT);
    drawText(doc, signed(invoice, nano), right(y, 148), FIGURES);
    y += SUM_HEIGHT;
  }
  drawText(
    doc,
    currency === "usd" ? "Total in US dollars" : `Total in ${currency.toUpperCase()}`,
    { x: PAGE.margin, y, width: INNER - 160, align: "right" },
    TOTAL,
  );
  drawText(doc, signed(invoice, totalNano), right(y, 148), TOTAL);
  y += 36;
  if (tax?.reverseCharge) y += drawText(doc, REVERSE_CHARGE, { x: PAGE.margin, y, width: INNER }, TEXT) + 6;
  drawText(doc, note, { x: PAGE.margin, y, width: INNER }, { ...TEXT, color: QUIET });
}

function noteOf({ kind, correctsNumber, issuedAt }: Invoice, { timeZone }: Looks): string {
  if (kind === "invoice" && correctsNumber !== null)
    return `The refund of credit note ${numberText(correctsNumber)} was not made. Nothing is due.`;
  if (kind === "invoice") return `Paid on ${dateText(issuedAt, timeZone)}. Nothing is due.`;
  const of = correctsNumber === null ? "" : ` of invoice ${numberText(correctsNumber)}`;
  return `Refund${of} on ${dateText(issuedAt, timeZone)}.`;
}

/** Drawn on every page, when their number is known. */
function drawFooters(doc: Doc, said: string): void {
  const { start, count } = doc.bufferedPageRange();
  for (let page = start; page < start + count; page++) {
    doc.switchToPage(page);
    rule(doc, FOOTER_Y - 8);
    drawText(doc, said, { x: PAGE.margin, y: FOOTER_Y, width: INNER - 80 }, LABEL);
    drawText(doc, `Page ${page - start + 1} of ${count}`, right(FOOTER_Y, 80), LABEL);
  }
}

function rule(doc: Doc, y: number, color = LINE): void {
  doc
    .moveTo(PAGE.margin, y)
    .lineTo(PAGE.margin + INNER, y)
    .lineWidth(0.75)
    .strokeColor(color)
    .stroke();
}

function left(y: number, width: number) {
  return { x: PAGE.margin, y, width };
}

function right(y: number, width: number) {
  return { x: PAGE.margin + INNER - width, y, width, align: "right" } as const;
}

/** The amounts of a credit note are printed with a minus. */
function signed({ kind, currency }: Invoice, nano: bigint): string {
  return `${kind === "credit_note" && nano > 0n ? "−" : ""}${moneyText(nano, currency)}`;
}

/** "$1,234.50"; with the code of the currency if the fonts lack its sign. */
function moneyText(nano: bigint, currency: string): string {
  const text = formatAmount(nano, currency);
  return unprintable(text).length === 0 ? text : `${currency.toUpperCase()} ${decimalAmount(nano, currency)}`;
}

/** "23 November 2026". */
function dateText(iso: string, timeZone: string): string {
  return new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone }).format(
    new Date(iso),
  );
}
