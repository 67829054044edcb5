import type { I18n } from "@lingui/core";
import PDFDocument from "pdfkit";
import { LANGUAGES, languageTag } from "../languages/languages.ts";
import { localesOf, textsIn } from "../languages/server_texts.ts";
import { decimalAmount, formatAmount } from "../platform/currencies.ts";
import { numberText, titleIn } from "./invoice_titles.ts";
import type { Invoice } from "./invoices_store.ts";
import { printable, unprintable } from "./pdf_fonts.ts";
import { drawText, heightOf, type Sheet, type Style } from "./pdf_text.ts";
import { taxWord } from "./tax_words.ts";

/**
 * An invoice, receipt or credit note as a PDF file: A4, drawn anew from the stored row each time. It takes 60 to 400 ms, so it is drawn in a
 * worker: see `pdf_drawer.ts`. In the language of the invoice; if that is written from right to left, the page is mirrored. Source: INV-4, LNG-3,
 * LNG-5.
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

export type Looks = {
  /** The seller's name if it has entered none. */
  brandName: string;
  /** PNG; null: the name is printed instead. */
  logo: Uint8Array | null;
  /** The time zone of the date. */
  timeZone: string;
};

type Page = Sheet & { i18n: I18n };

/** Draws the file. `i18n`: only tests set it. */
export async function invoicePdf(
  invoice: Invoice,
  looks: Looks,
  i18n = textsIn(invoice.language),
): Promise<Uint8Array> {
  const seller = printable(invoice.seller.name ?? looks.brandName) ?? "";
  const title = `${titleIn(i18n, invoice)} ${numberText(invoice.number)}`;
  const doc = new PDFDocument({
    size: "A4",
    margin: 0,
    bufferPages: true,
    lang: i18n.locale,
    displayTitle: true,
    // None: each line names its own. Otherwise pdfkit loads Helvetica.
    font: "",
    // Replaces the library's name: a reseller's file must not show how it was made.
    info: { Title: title, Author: seller, Creator: seller, Producer: seller, CreationDate: new Date(invoice.issuedAt) },
  });
  const parts: Uint8Array[] = [];
  doc.on("data", (part: Uint8Array) => parts.push(part));
  const written = new Promise<void>((resolve, reject) => doc.on("end", resolve).on("error", reject));
  const page = { doc, i18n, direction: LANGUAGES[languageTag(i18n.locale) ?? "en"].direction };
  let y = drawHead(page, { invoice, looks, seller, logo: looks.logo && Buffer.from(looks.logo) });
  y = drawParties(page, { invoice, seller, y });
  y = drawLines(page, { invoice, y });
  drawTotal(page, { invoice, looks, y });
  drawFooters(page, `${seller} · ${title}`);
  doc.end();
  await written;
  return Buffer.concat(parts);
}

type Head = { invoice: Invoice; looks: Looks; seller: string; logo: Buffer | null };

function drawHead(page: Page, { invoice, looks, seller, logo }: Head): number {
  const { i18n } = page;
  const { kind, number, reference, correctsNumber, issuedAt } = invoice;
  const top = PAGE.margin;
  if (logo) drawLogo(page, logo, top);
  const nameHeight = logo ? LOGO.height : drawText(page, seller, start(top, COLUMN), NAME);
  const titleHeight = drawText(page, titleIn(i18n, invoice), end(top - 4, COLUMN), TITLE);
  const corrects = kind === "credit_note" ? i18n.t("Corrects invoice") : i18n.t("Takes back credit note");
  const facts: [string, string | null][] = [
    [i18n.t("Number"), numberText(number)],
    [i18n.t("Date"), dateText(i18n, issuedAt, looks.timeZone)],
    [i18n.t("Order"), reference],
    [corrects, correctsNumber === null ? null : numberText(correctsNumber)],
  ];
  let y = top + titleHeight + 8;
  for (const [label, value] of facts) {
    if (value === null) continue;
    drawText(page, label, { x: PAGE.margin + COLUMN, y: y + 1, width: COLUMN - 130, align: "end" }, LABEL);
    y += drawText(page, value, end(y, 120), TEXT) + 2;
  }
  return Math.max(top + nameHeight, y) + 32;
}

/** The logo, where a line begins. */
function drawLogo({ doc, direction }: Page, logo: Buffer, y: number): void {
  const { width, height } = LOGO;
  const x = direction === "rtl" ? PAGE.width - PAGE.margin - width : PAGE.margin;
  doc.image(logo, x, y, { fit: [width, height], align: direction === "rtl" ? "right" : undefined });
}

function drawParties(page: Page, { invoice, seller, y }: { invoice: Invoice; seller: string; y: number }): number {
  const { i18n } = page;
  const { seller: from, buyer, tax } = invoice;
  const ofSeller = [from.address, vatText(i18n, tax?.sellerVatNumber), from.taxLine];
  const sellerEnd = drawParty(page, [i18n.t("From"), seller, ofSeller], start(y, COLUMN - 16));
  const name = printable(buyer.name) ?? buyer.email;
  const taxNumber = buyer.taxNumber && i18n.t("Tax number: {number}", { number: buyer.taxNumber });
  const email = name === buyer.email ? null : buyer.email;
  const ofBuyer = [buyer.address, vatText(i18n, tax?.buyerVatNumber), taxNumber, email];
  const place = { x: PAGE.margin + COLUMN, y, width: COLUMN };
  return Math.max(sellerEnd, drawParty(page, [i18n.t("To"), name, ofBuyer], place)) + 32;
}

function vatText(i18n: I18n, vatNumber: string | null | undefined): string | null {
  return vatNumber ? i18n.t("VAT number: {number}", { number: vatNumber }) : null;
}

type Party = readonly [label: string, name: string, lines: readonly (string | null)[]];

function drawParty(page: Page, [label, name, lines]: Party, place: { x: number; y: number; width: number }): number {
  let y = place.y + drawText(page, label, place, LABEL) + 2;
  y += drawText(page, name, { ...place, y }, BOLD);
  for (const line of lines) if (line !== null) y += drawText(page, line, { ...place, y }, TEXT);
  return y;
}

/** The columns of the table: where each begins, and how wide it is. */
const COLUMNS = {
  what: { x: PAGE.margin, width: DESCRIPTION },
  quantity: { x: PAGE.margin + DESCRIPTION + 12, width: QUANTITY, align: "end" },
  unit: { x: PAGE.margin + DESCRIPTION + QUANTITY + 24, width: AMOUNT, align: "end" },
  amount: { x: PAGE.margin + INNER - AMOUNT, width: AMOUNT, align: "end" },
} as const;

function drawLines(page: Page, { invoice, y: top }: { invoice: Invoice; y: number }): number {
  const { doc, i18n } = page;
  let y = drawTableHead(page, top);
  for (const { text, quantity, amountNano } of invoice.lines) {
    const said = printable(text) ?? "";
    const height = heightOf(page, said, DESCRIPTION, TEXT) + 14;
    if (y + height > BODY_END) {
      doc.addPage({ size: "A4", margin: 0 });
      y = drawTableHead(page, PAGE.margin);
    }
    drawText(page, said, { ...COLUMNS.what, y: y + 7 }, TEXT);
    const count = quantity.toLocaleString(localesOf(i18n).numbers);
    drawText(page, count, { ...COLUMNS.quantity, y: y + 7 }, FIGURES);
    const unit = amountNano / BigInt(quantity);
    if (unit * BigInt(quantity) === amountNano)
      drawText(page, signed(i18n, invoice, unit), { ...COLUMNS.unit, y: y + 7 }, FIGURES);
    drawText(page, signed(i18n, invoice, amountNano), { ...COLUMNS.amount, y: y + 7 }, FIGURES);
    y += height;
    rule(doc, y);
  }
  return y;
}

function drawTableHead(page: Page, y: number): number {
  const { doc, i18n } = page;
  drawText(page, i18n.t("Description"), { ...COLUMNS.what, y }, LABEL);
  drawText(page, i18n.t("Quantity"), { ...COLUMNS.quantity, y }, LABEL);
  drawText(page, i18n.t("Unit price"), { ...COLUMNS.unit, y }, LABEL);
  drawText(page, i18n.t("Amount"), { ...COLUMNS.amount, y }, LABEL);
  rule(doc, y + 18, INK);
  return y + 18;
}

function drawTotal(page: Page, { invoice, looks, y: top }: { invoice: Invoice; looks: Looks; y: number }): void {
  const { doc, i18n } = page;
  const note = noteOf(i18n, invoice, looks);
  const { tax, taxNano, totalNano, currency } = invoice;
  const sums: [string, bigint][] =
    tax === null
      ? []
      : [
          [i18n.t("Net"), totalNano - taxNano],
          [taxText(i18n, tax), taxNano],
        ];
  const height = 76 + sums.length * SUM_HEIGHT + (tax?.reverseCharge ? 28 : 0);
  let y = top;
  if (y + height > BODY_END) {
    doc.addPage({ size: "A4", margin: 0 });
    y = PAGE.margin;
  }
  y += 14;
  for (const [label, nano] of sums) {
    drawText(page, label, { x: PAGE.margin, y, width: INNER - 160, align: "end" }, TEXT);
    drawText(page, signed(i18n, invoice, nano), end(y, 148), FIGURES);
    y += SUM_HEIGHT;
  }
  const total =
    currency === "usd"
      ? i18n.t("Total in US dollars")
      : i18n.t("Total in {currency}", { currency: currency.toUpperCase() });
  drawText(page, total, { x: PAGE.margin, y, width: INNER - 160, align: "end" }, TOTAL);
  drawText(page, signed(i18n, invoice, totalNano), end(y, 148), TOTAL);
  y += 36;
  if (tax?.reverseCharge) {
    const reason = i18n.t("Reverse charge: the recipient owes the tax (Article 196 of Council Directive 2006/112/EC).");
    y += drawText(page, reason, start(y, INNER), TEXT) + 6;
  }
  drawText(page, note, start(y, INNER), { ...TEXT, color: QUIET });
}

function taxText(i18n: I18n, { country, rate, reverseCharge }: NonNullable<Invoice["tax"]>): string {
  if (reverseCharge) return i18n.t("VAT, reverse charge");
  const percent = rate / 1000;
  return taxWord(country) === "VAT"
    ? i18n.t("VAT {percent, number} %", { percent })
    : i18n.t("Tax {percent, number} %", { percent });
}

function noteOf(i18n: I18n, { kind, correctsNumber, issuedAt }: Invoice, { timeZone }: Looks): string {
  const date = dateText(i18n, issuedAt, timeZone);
  const number = correctsNumber === null ? null : numberText(correctsNumber);
  if (kind === "invoice" && number !== null)
    return i18n.t("The refund of credit note {number} was not made. Nothing is due.", { number });
  if (kind === "invoice") return i18n.t("Paid on {date}. Nothing is due.", { date });
  if (number === null) return i18n.t("Refund on {date}.", { date });
  return i18n.t("Refund of invoice {number} on {date}.", { number, date });
}

/** Drawn on every page, when their number is known. */
function drawFooters(page: Page, said: string): void {
  const { doc, i18n } = page;
  const { start: first, count: pages } = doc.bufferedPageRange();
  for (let index = 0; index < pages; index++) {
    doc.switchToPage(first + index);
    rule(doc, FOOTER_Y - 8);
    drawText(page, said, start(FOOTER_Y, INNER - 80), LABEL);
    drawText(page, i18n.t("Page {number} of {pages}", { number: index + 1, pages }), end(FOOTER_Y, 80), LABEL);
  }
}

function rule(doc: PDFKit.PDFDocument, y: number, color = LINE): void {
  doc
    .moveTo(PAGE.margin, y)
    .lineTo(PAGE.margin + INNER, y)
    .lineWidth(0.75)
    .strokeColor(color)
    .stroke();
}

/** Where a line begins. */
function start(y: number, width: number) {
  return { x: PAGE.margin, y, width };
}

/** Where a line ends. */
function end(y: number, width: number) {
  return { x: PAGE.margin + INNER - width, y, width, align: "end" } as const;
}

/** The amounts of a credit note are printed with a minus. */
function signed(i18n: I18n, { kind, currency }: Invoice, nano: bigint): string {
  return `${kind === "credit_note" && nano > 0n ? "−" : ""}${moneyText(i18n, nano, currency)}`;
}

/** "$1,234.50"; with the code of the currency if the fonts lack its sign. */
function moneyText(i18n: I18n, nano: bigint, currency: string): string {
  const text = formatAmount(nano, currency, localesOf(i18n).numbers).replace(/\p{Cf}/gu, "");
  return unprintable(text).length === 0 ? text : `${currency.toUpperCase()} ${decimalAmount(nano, currency)}`;
}

/** "23 November 2026". */
function dateText(i18n: I18n, iso: string, timeZone: string): string {
  const options = { day: "numeric", month: "long", year: "numeric", timeZone } as const;
  return new Intl.DateTimeFormat(localesOf(i18n).dates, options).format(new Date(iso));
}
