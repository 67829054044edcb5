import { and, asc, desc, eq, gte, isNull, lt, type SQL, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { type LanguageTag, languageTag } from "../languages/languages.ts";
import { INVOICE_LINE_CHARS_MAX, INVOICE_LINES_MAX } from "../limits.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { accounts, brands } from "../platform/schema_accounts.ts";
import { buyerDetails, invoices, type StoredLine } from "../platform/schema_invoices.ts";
import { type OrderTax, orders } from "../platform/schema_offerings.ts";
import { sellers } from "../platform/schema_sellers.ts";
import { TOTAL_NANO_MAX } from "./order_amounts.ts";
import { OPERATOR } from "./sellers_store.ts";

/**
 * Invoices and credit notes. Each is issued in the transaction of its payment or refund, with the details that seller
 * and buyer have then, and is never changed afterwards. Source: INV-1, INV-2, INV-3.
 */

const PAGE_MAX = 100;
const QUANTITY_MAX = 1_000_000;

export type InvoiceKind = "invoice" | "credit_note";

export type InvoiceLine = {
  /** On one line. */
  text: string;
  quantity: number;
  /** Of the whole line without tax, above zero, in billionths of the currency; also in a credit note. */
  amountNano: bigint;
};

export type NewInvoice = {
  /** 0: the operator. */
  sellerId: number;
  /** The buyer. */
  accountId: number;
  /** The order that was paid or refunded; null: none. */
  orderId: number | null;
  lines: readonly InvoiceLine[];
  currency: string;
  /** null: no tax is charged. `taxNano`: on all lines together. */
  tax: OrderTax | null;
  taxNano: bigint;
  kind: InvoiceKind;
  /** Of its words, also in the lines. Default: `invoiceLanguage`. */
  language?: LanguageTag;
  /** For an invoice: the number of the order's credit note that it reverses, because the refund was not made. */
  takesBack?: number;
};

export type Invoice = {
  invoiceId: number;
  sellerId: number;
  accountId: number;
  /** Without gaps, per seller. */
  number: number;
  kind: InvoiceKind;
  /** Of its words. */
  language: LanguageTag;
  orderId: number | null;
  /** Of the order: the name that people use for it. */
  reference: string | null;
  /** The number of the invoice that a credit note corrects, or of the credit note that an invoice reverses. */
  correctsNumber: number | null;
  /** As entered on the day of the invoice; null: not entered. */
  seller: { name: string | null; address: string | null; taxLine: string | null };
  buyer: { name: string; email: string; address: string | null; taxNumber: string | null };
  lines: InvoiceLine[];
  /** In lower case, as in `usd`. */
  currency: string;
  /** How it was taxed, and the VAT numbers of both; null: no tax. */
  tax: OrderTax | null;
  taxNano: bigint;
  /** The sum of the lines, and the tax. */
  totalNano: bigint;
  issuedAt: string;
};

/**
 * Issues the next invoice of a seller, in the caller's transaction: call it when an order becomes paid, and with `credit_note` for each
 * refund. The seller's row is locked until the commit, so that numbers have no gaps: take all accounts' locks before,
 * and call it last. Throws InputError, also for a second invoice of an order, and for credit notes above the order's
 * invoice.
 */
export async function issueInvoice(
  tx: Tx,
  { sellerId, accountId, orderId, lines, currency, tax, taxNano, kind, takesBack, ...rest }: NewInvoice,
): Promise<{ invoiceId: number; number: number }> {
  const { stored, netNano } = checkLines(lines, taxNano);
  const totalNano = netNano + taxNano;
  const amounts = { currency, tax, taxNano, totalNano };
  const buyer = await buyerOf(tx, accountId);
  const language = rest.language ?? (await invoiceLanguage(tx, { sellerId, accountId }));
  const seller = await takeNumber(tx, sellerId);
  const correctsNumber =
    orderId === null ? null : await checkOrder(tx, { sellerId, orderId, kind, takesBack, currency, totalNano });
  const [added] = await tx
    .insert(invoices)
    .values({
      ...{ sellerId, accountId, orderId, kind, language, correctsNumber },
      ...{ ...seller, ...buyer, ...amounts, lines: stored },
    })
    .returning({ invoiceId: invoices.id, number: invoices.number });
  if (!added) throw new Error("an insert returned nothing");
  return added;
}

/** The language of an invoice that is issued now: the buyer's; else that of the reseller's brand, or English. Source: LNG-3. */
export async function invoiceLanguage(
  tx: Tx,
  { sellerId, accountId }: Pick<NewInvoice, "sellerId" | "accountId">,
): Promise<LanguageTag> {
  const [row] = await tx
    .select({ buyer: accounts.language, brand: brands.language })
    .from(accounts)
    .leftJoin(brands, eq(brands.resellerId, sellerId))
    .where(eq(accounts.id, accountId));
  return languageTag(row?.buyer) ?? languageTag(row?.brand) ?? "en";
}

/** Takes the seller's next number. A rollback returns it. */
async function takeNumber(tx: Tx, sellerId: number) {
  if (sellerId !== OPERATOR && !isRowId(sellerId)) throw new InputError("There is no such seller.", "sellerId");
  await tx.insert(sellers).values({ sellerId }).onConflictDoNothing();
  const [row] = await tx
    .update(sellers)
    .set({ nextInvoice: sql`${sellers.nextInvoice} + 1` })
    .where(eq(sellers.sellerId, sellerId))
    .returning({
      next: sellers.nextInvoice,
      sellerName: sellers.invoiceName,
      sellerAddress: sellers.invoiceAddress,
      taxLine: sellers.taxLine,
    });
  if (!row) throw new Error(`seller ${sellerId} vanished`);
  const { next, ...seller } = row;
  return { ...seller, number: next - 1 };
}

type OfOrder = Pick<NewInvoice, "sellerId" | "kind" | "takesBack" | "currency"> & {
  orderId: number;
  totalNano: bigint;
};

/** Called under the lock of the seller's row. Returns the number of the corrected document: see `Invoice`. */
async function checkOrder(tx: Tx, { sellerId, orderId, kind, takesBack, currency, totalNano }: OfOrder) {
  const before = await tx
    .select({
      number: invoices.number,
      kind: invoices.kind,
      correctsNumber: invoices.correctsNumber,
      currency: invoices.currency,
      totalNano: invoices.totalNano,
    })
    .from(invoices)
    .where(and(eq(invoices.sellerId, sellerId), eq(invoices.orderId, orderId)));
  if (takesBack !== undefined) {
    const note = before.find((row) => row.kind === "credit_note" && row.number === takesBack);
    if (kind !== "invoice" || note?.totalNano !== totalNano || note.currency !== currency)
      throw new InputError(sentence("Order {orderId} has no such credit note.", { orderId }), "takesBack");
    return takesBack;
  }
  const invoice = before.find((row) => row.kind === "invoice" && row.correctsNumber === null);
  if (kind === "invoice") {
    if (invoice)
      throw new InputError(
        sentence("Order {orderId} already has invoice {number}.", { orderId, number: invoice.number }),
        "orderId",
      );
    return null;
  }
  if (!invoice) return null;
  const takenBack = new Set(before.flatMap((row) => (row.kind === "invoice" ? [row.correctsNumber] : [])));
  const credited = before
    .filter((row) => row.kind === "credit_note" && !takenBack.has(row.number))
    .reduce((sum, row) => sum + row.totalNano, 0n);
  if (invoice.currency !== currency) throw new InputError("A credit note has the currency of its invoice.", "currency");
  if (credited + totalNano > invoice.totalNano)
    throw new InputError("Credit notes cannot be above what was invoiced.", "lines");
  return invoice.number;
}

async function buyerOf(tx: Tx, accountId: number) {
  const [row] = isRowId(accountId)
    ? await tx
        .select({
          buyerName: sql<string>`coalesce(${buyerDetails.name}, ${accounts.name})`,
          buyerEmail: accounts.email,
          buyerAddress: buyerDetails.address,
          buyerTaxNumber: buyerDetails.taxNumber,
        })
        .from(accounts)
        .leftJoin(buyerDetails, eq(buyerDetails.accountId, accounts.id))
        .where(eq(accounts.id, accountId))
    : [];
  if (!row) throw new InputError("There is no such account.", "accountId");
  return row;
}

/** A line is above zero, except where a small refund is all tax. */
function checkLines(lines: readonly InvoiceLine[], taxNano: bigint): { stored: StoredLine[]; netNano: bigint } {
  if (lines.length < 1 || lines.length > INVOICE_LINES_MAX)
    throw new InputError(
      sentence("An invoice has 1 to {invoiceLinesMax} lines.", { invoiceLinesMax: INVOICE_LINES_MAX }),
      "lines",
    );
  let netNano = 0n;
  const stored = lines.map(({ text, quantity, amountNano }, index) => {
    const param = `lines.${index}`;
    const chars = [...text].length;
    if (chars < 1 || chars > INVOICE_LINE_CHARS_MAX || /[\p{Cc}\p{Cs}]/u.test(text))
      throw new InputError(
        sentence("The text of a line is one line of 1 to {invoiceLineCharsMax} characters.", {
          invoiceLineCharsMax: INVOICE_LINE_CHARS_MAX,
        }),
        `${param}.text`,
      );
    if (!Number.isSafeInteger(quantity) || quantity < 1 || quantity > QUANTITY_MAX)
      throw new InputError(
        sentence("The quantity must be a whole number from 1 to {quantityMax}.", { quantityMax: QUANTITY_MAX }),
        `${param}.quantity`,
      );
    if (amountNano < (taxNano > 0n ? 0n : 1n) || amountNano > TOTAL_NANO_MAX)
      throw new InputError("The amount must be above zero, and at most 900,000,000.", `${param}.amountNano`);
    netNano += amountNano;
    return { text, quantity, amountNano: String(amountNano) };
  });
  if (netNano > TOTAL_NANO_MAX) throw new InputError("An invoice can be at most 900,000,000.", "lines");
  return { stored, netNano };
}

/** Which invoices: those that a seller issued, or those that an account received. */
export type InvoicesOf = { sellerId: number } | { accountId: number };

/** Invoices, newest first. `before`: the last id of the previous page. */
export async function listInvoices(
  { db }: { db: Db },
  { before, limit = PAGE_MAX, ...whose }: InvoicesOf & { before?: number; limit?: number },
): Promise<Page<Invoice>> {
  const size = pageSize(limit, PAGE_MAX);
  const where = and(isOf(whose), before === undefined ? undefined : lt(invoices.id, before));
  const rows = await select(db.orm, where, size + 1);
  return pageOf(rows, size);
}

/** Throws not_found, also for invoices of others. */
export async function findInvoice({ db }: { db: Db }, whose: InvoicesOf, invoiceId: number): Promise<Invoice> {
  const [invoice] = isRowId(invoiceId) ? await select(db.orm, and(isOf(whose), eq(invoices.id, invoiceId)), 1) : [];
  if (!invoice) throw new Refusal("not_found", { message: "There is no such invoice." });
  return invoice;
}

/**
 * The invoice of an order that the account paid, not its credit notes, nor an invoice that reverses one of them; null: it has none.
 */
export async function invoiceOfOrder(
  { db }: { db: Db },
  { accountId, orderId }: { accountId: number; orderId: number },
): Promise<Invoice | null> {
  const isFirst = and(eq(invoices.kind, "invoice"), isNull(invoices.correctsNumber));
  const isOfOrder = and(isOf({ accountId }), eq(invoices.orderId, orderId), isFirst);
  return (await select(db.orm, isOfOrder, 1))[0] ?? null;
}

/**
 * A seller's invoices of a calendar month in a time zone, in the order in which they were issued. `month` is as in 2030-01; `after`: the
 * last id of the previous page.
 */
export async function invoicesOfMonth(
  { db }: { db: Db },
  { sellerId, month, timeZone, after, limit }: MonthPage,
): Promise<Page<Invoice>> {
  const start = sql`(${`${month}-01`}::date)::timestamp at time zone ${timeZone}`;
  const end = sql`(${`${month}-01`}::date + interval '1 month') at time zone ${timeZone}`;
  const isLater =
    after === undefined
      ? undefined
      : sql`(${invoices.issuedAt}, ${invoices.id}) > (select issued_at, id from invoices where id = ${after})`;
  const inMonth = and(
    eq(invoices.sellerId, sellerId),
    gte(invoices.issuedAt, start),
    lt(invoices.issuedAt, end),
    isLater,
  );
  const rows = await select(db.orm, inMonth, limit + 1, [asc(invoices.issuedAt), asc(invoices.id)]);
  return pageOf(rows, limit);
}

type MonthPage = { sellerId: number; month: string; timeZone: string; after: number | undefined; limit: number };

function isOf(whose: InvoicesOf): SQL {
  return "sellerId" in whose ? eq(invoices.sellerId, whose.sellerId) : eq(invoices.accountId, whose.accountId);
}

async function select(
  tx: Tx,
  where: SQL | undefined,
  limit: number,
  order: SQL[] = [desc(invoices.id)],
): Promise<Invoice[]> {
  const rows = await tx
    .select({ row: invoices, reference: orders.reference })
    .from(invoices)
    .leftJoin(orders, eq(orders.id, invoices.orderId))
    .where(where)
    .orderBy(...order)
    .limit(limit);
  return rows.map(({ row, reference }) => ({
    invoiceId: row.id,
    sellerId: row.sellerId,
    accountId: row.accountId,
    number: row.number,
    kind: row.kind,
    language: languageTag(row.language) ?? "en",
    orderId: row.orderId,
    reference,
    correctsNumber: row.correctsNumber,
    seller: { name: row.sellerName, address: row.sellerAddress, taxLine: row.taxLine },
    buyer: {
      name: row.buyerName,
      email: row.buyerEmail,
      address: row.buyerAddress,
      taxNumber: row.buyerTaxNumber,
    },
    lines: row.lines.map((line) => ({ ...line, amountNano: BigInt(line.amountNano) })),
    currency: row.currency,
    tax: row.tax,
    taxNano: row.taxNano,
    totalNano: row.totalNano,
    issuedAt: toIso(row.issuedAt),
  }));
}
