import { sql } from "drizzle-orm";
import { bigint, boolean, check, integer, pgTable, text } from "drizzle-orm/pg-core";
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
    /** In which it sells, in lower case as in `usd`. `usdRateNano`: billionths of it for one US dollar; null: it is the US dollar. */
    currency: text().notNull().default("usd"),
    usdRateNano: bigint({ mode: "bigint" }),
    /** ISO 3166-1, in upper case; null: no tax is charged. */
    taxCountry: text(),
    vatNumber: text(),
    /** The rates of its taxes, in thousandths of a percent. */
    packageTax: integer().notNull().default(0),
    topUpTax: integer().notNull().default(0),
    /** Whether prices of packages contain the tax. */
    pricesWithTax: boolean().notNull().default(false),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    check("sellers_id", sql`${t.sellerId} >= 0`),
    check("sellers_next_invoice", sql`${t.nextInvoice} > 0`),
    check(
      "sellers_currency",
      sql`${t.currency} ~ '^[a-z]{3}$' and (${t.currency} = 'usd') = (${t.usdRateNano} is null) and (${t.usdRateNano} is null or ${t.usdRateNano} > 0)`,
    ),
    check(
      "sellers_tax",
      sql`${t.packageTax} between 0 and 100000 and ${t.topUpTax} between 0 and 100000
      and (${t.taxCountry} is not null or (${t.packageTax} = 0 and ${t.topUpTax} = 0 and ${t.vatNumber} is null and not ${t.pricesWithTax}))`,
    ),
  ],
);
