import { sql } from "drizzle-orm";
import { bigint, check, index, jsonb, pgTable, text, uniqueIndex } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { id, instant, nanoUsd } from "./schema_columns.ts";
import type { OrderTax } from "./schema_offerings.ts";

/** One line of an invoice. Amounts are strings of billionths of the currency, because JSON numbers would round them. */
export type StoredLine = { text: string; quantity: number; amountNano: string };

/**
 * Invoices and credit notes, numbered without gaps per seller. Seller and buyer are written as they were on that day. A trigger refuses
 * every change.
 */
export const invoices = pgTable(
  "invoices",
  {
    id: id(),
    /** 0: the operator; else the account of a reseller. */
    sellerId: bigint({ mode: "number" }).notNull(),
    number: bigint({ mode: "number" }).notNull(),
    kind: text({ enum: ["invoice", "credit_note"] }).notNull(),
    /** The tag of the language of its words. */
    language: text().notNull().default("en"),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    orderId: bigint({ mode: "number" }),
    /** Of a credit note: the invoice that it corrects; null: none is known. Of an invoice: the credit note that it takes back. */
    correctsNumber: bigint({ mode: "number" }),
    /** null: the seller had not entered it. */
    sellerName: text(),
    sellerAddress: text(),
    taxLine: text(),
    buyerName: text().notNull(),
    buyerEmail: text().notNull(),
    buyerAddress: text(),
    buyerTaxNumber: text(),
    lines: jsonb().$type<StoredLine[]>().notNull(),
    currency: text().notNull().default("usd"),
    /** As of its order; null: no tax was charged. */
    tax: jsonb().$type<OrderTax>(),
    /** The tax in `totalNano`. The lines are without it. */
    taxNano: nanoUsd().notNull().default(sql`0`),
    /** Above zero, also for a credit note. Billionths of the currency. */
    totalNano: nanoUsd().notNull(),
    issuedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("invoices_number").on(t.sellerId, t.number),
    index("invoices_account").on(t.accountId, t.id),
    index("invoices_seller_time").on(t.sellerId, t.issuedAt),
    index("invoices_seller").on(t.sellerId, t.id),
    index("invoices_order").on(t.orderId),
    uniqueIndex("invoices_order_once").on(t.orderId).where(sql`${t.kind} = 'invoice' and ${t.correctsNumber} is null`),
    check("invoices_kind", sql`${t.kind} in ('invoice', 'credit_note')`),
    uniqueIndex("invoices_takes_back_once").on(t.sellerId, t.correctsNumber).where(sql`${t.kind} = 'invoice'`),
    check("invoices_total", sql`${t.totalNano} > 0 and ${t.taxNano} between 0 and ${t.totalNano}`),
  ],
);

/** What an account's invoices say about it. Without a row: its name. */
export const buyerDetails = pgTable("buyer_details", {
  accountId: bigint({ mode: "number" })
    .primaryKey()
    .references(() => accounts.id),
  name: text(),
  address: text(),
  taxNumber: text(),
  /** Of the EU, checked; apart from `taxNumber`, which is printed as it is. */
  vatNumber: text(),
});
