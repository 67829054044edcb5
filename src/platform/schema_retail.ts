import { sql } from "drizzle-orm";
import { bigint, boolean, check, index, integer, jsonb, pgTable, primaryKey, text } from "drizzle-orm/pg-core";
import { instant, nanoUsd } from "./schema_columns.ts";
import { offerings } from "./schema_offerings.ts";

/**
 * What a seller's customers pay for an offering, in whole cents. An offering without a row has no price there. The trigger
 * `retail_prices_wholesale` refuses a price below the wholesale price that was not confirmed. Source: RTL-1, RTL-2.
 */
export const retailPrices = pgTable(
  "retail_prices",
  {
    /** 0: the operator; else the account of a reseller. */
    sellerId: bigint({ mode: "number" }).notNull(),
    offeringId: bigint({ mode: "number" })
      .notNull()
      .references(() => offerings.id),
    /** Billionths of `currency`. Without effect while the seller sells in another one. */
    priceNano: nanoUsd().notNull(),
    /** The seller knew that this price is below the wholesale price. False for any other price. */
    belowWholesaleConfirmed: boolean().notNull().default(false),
    currency: text().notNull().default("usd"),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.sellerId, t.offeringId] }),
    index("retail_prices_offering").on(t.offeringId),
    check("retail_prices_seller", sql`${t.sellerId} >= 0`),
    check(
      "retail_prices_price",
      sql`${t.priceNano} between 10000000 and 900000000000000000 and ${t.priceNano} % 10000000 = 0`,
    ),
  ],
);

/** A price for 1,000 requests, in billionths of the currency as digits, of packages with at least so many requests. */
export type StoredStep = { fromRequests: number; nano: string };

/**
 * Prices of made-to-measure packages, by the requests in them. `retail`: what a seller's customers pay. `wholesale`: what resellers pay
 * the operator. Source: MTM-1.
 */
export const measuredPrices = pgTable(
  "measured_prices",
  {
    /** 0: the operator; else the account of a reseller. */
    sellerId: bigint({ mode: "number" }).notNull(),
    kind: text({ enum: ["retail", "wholesale"] }).notNull(),
    /** Of the prices. Without effect while the seller sells in another one. */
    currency: text().notNull().default("usd"),
    /** Whether it is sold. */
    isOpen: boolean().notNull().default(false),
    daysMin: integer().notNull(),
    daysMax: integer().notNull(),
    dailyMin: integer().notNull(),
    dailyMax: integer().notNull(),
    /** By their number of requests; the first one begins at 0. */
    steps: jsonb().$type<StoredStep[]>().notNull(),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.sellerId, t.kind] }),
    check(
      "measured_prices_kind",
      sql`${t.kind} = 'retail' or (${t.kind} = 'wholesale' and ${t.sellerId} = 0 and ${t.currency} = 'usd')`,
    ),
    check("measured_prices_seller", sql`${t.sellerId} >= 0`),
    check("measured_prices_days", sql`${t.daysMin} between 1 and 30 and ${t.daysMax} between ${t.daysMin} and 30`),
    check(
      "measured_prices_daily",
      sql`${t.dailyMin} between 1 and 1000000 and ${t.dailyMax} between ${t.dailyMin} and 1000000`,
    ),
  ],
);
