import { sql } from "drizzle-orm";
import { bigint, boolean, check, pgTable, text } from "drizzle-orm/pg-core";
import { bytea, instant } from "./schema_columns.ts";

/**
 * How a seller is paid and what its invoices say. A seller is the operator (id 0) for its own customers and for resellers, or a
 * reseller (the id of its account) for its customers.
 */
export const sellers = pgTable(
  "sellers",
  {
    sellerId: bigint({ mode: "number" }).primaryKey(),
    /** Name, address and tax line of receipts and invoices. */
    invoiceName: text(),
    invoiceAddress: text(),
    taxLine: text(),
    /** The number of the next invoice: they have no gaps. */
    nextInvoice: bigint({ mode: "number" }).notNull().default(1),
    /** How to pay by bank transfer and the like; null: not offered. */
    instructions: text(),
    /** Stripe's secret key and the secret of its webhooks, encrypted; null: not offered. */
    stripeKeyCiphertext: bytea(),
    stripeWebhookCiphertext: bytea(),
    /** The secret by which another shop signs its webhooks, encrypted, and the shop's address; null: not offered. */
    shopSecretCiphertext: bytea(),
    shopUrl: text(),
    /** Whether everyone may read the list of models and prices, or only who signed in. */
    pricesPublic: boolean().notNull().default(false),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [check("sellers_id", sql`${t.sellerId} >= 0`), check("sellers_next_invoice", sql`${t.nextInvoice} > 0`)],
);
