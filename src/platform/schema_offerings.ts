import { sql } from "drizzle-orm";
import { bigint, boolean, check, index, integer, jsonb, pgTable, text, uniqueIndex } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { areLimits, id, instant, limits, nanoUsd, requestBounds } from "./schema_columns.ts";

/** What is sold, by whom it may be assigned without paying, and what was ordered. */

/**
 * Offerings: a daily package (1 day, 100–2000 requests) or a custom one (1–30 days). Only `enabled` (for sale) ever changes.
 * Source: PAY-8.
 */
export const offerings = pgTable(
  "offerings",
  {
    id: id(),
    name: text().notNull(),
    kind: text({ enum: ["daily", "custom"] }).notNull(),
    days: integer().notNull(),
    dailyLimit: integer().notNull(),
    totalLimit: integer().notNull(),
    carryover: boolean().notNull().default(false),
    tokenLimit: bigint({ mode: "number" }),
    /** Of an account while it has a package of this offering. */
    limits: limits(),
    requestBounds: requestBounds(),
    modelIds: text().array(),
    timeZone: text().notNull(),
    wholesaleNanoUsd: nanoUsd().notNull(),
    enabled: boolean().notNull().default(true),
    /** Of one size that a customer ordered. It is not listed, and sold only by the order that made it. Source: MTM-3. */
    measured: boolean().notNull().default(false),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    uniqueIndex("offerings_name_unique").on(t.name).where(sql`not ${t.measured}`),
    // Orders of the same size at the same cost share one.
    uniqueIndex("offerings_measured")
      .on(t.days, t.dailyLimit, t.wholesaleNanoUsd, t.timeZone)
      .where(sql`${t.measured}`),
    check(
      "offerings_bounds",
      sql`(${t.kind} = 'daily' and ${t.days} = 1 and ${t.dailyLimit} between 100 and 2000)
        or (${t.kind} = 'custom' and ${t.days} between 1 and 30 and ${t.dailyLimit} between 1 and 1000000)`,
    ),
    check("offerings_total", sql`${t.totalLimit} between 1 and 30000000`),
    check("offerings_limits", areLimits(t.limits)),
    check("offerings_request_bounds", areLimits(t.requestBounds)),
    check("offerings_tokens", sql`${t.tokenLimit} > 0`),
    check("offerings_wholesale", sql`${t.wholesaleNanoUsd} >= 0`),
  ],
);

/** Pieces of an offering that an admin granted a reseller to assign without paying. */
export const allotments = pgTable(
  "allotments",
  {
    id: id(),
    resellerId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    offeringId: bigint({ mode: "number" })
      .notNull()
      .references(() => offerings.id),
    granted: integer().notNull(),
    used: integer().notNull().default(0),
    reason: text(),
    actorId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("allotments_reseller").on(t.resellerId, t.offeringId),
    check("allotments_pieces", sql`${t.granted} between 0 and 100000 and ${t.used} between 0 and ${t.granted}`),
  ],
);

/** How an order is taxed. `rate`: in thousandths of a percent. Of a reverse charge: the rate that is not charged. */
export type OrderTax = {
  /** Of the seller. */
  country: string;
  rate: number;
  reverseCharge: boolean;
  sellerVatNumber: string | null;
  buyerVatNumber: string | null;
};

/** Orders of packages and top-ups. The account's reseller, or an admin if it has none, fulfils or declines them. */
export const orders = pgTable(
  "orders",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    kind: text({ enum: ["package", "top_up"] }).notNull(),
    offeringId: bigint({ mode: "number" }).references(() => offerings.id),
    amountNanoUsd: nanoUsd(),
    note: text(),
    status: text({ enum: ["open", "paid", "fulfilled", "refunded", "declined", "withdrawn"] })
      .notNull()
      .default("open"),
    /** Whom it is bought from; 0: the operator. */
    sellerId: bigint({ mode: "number" }).notNull().default(0),
    /** What people and payment providers name it by. */
    reference: text().notNull().default(sql`upper(substr(replace(gen_random_uuid()::text, '-', ''), 1, 12))`),
    /**
     * What it sells for, without tax, at the time of ordering; null: a person decides, and is paid outside. In another currency it is what
     * `netNano` is worth.
     */
    priceNanoUsd: nanoUsd(),
    /** In which it is paid, in lower case as in `usd`. */
    currency: text().notNull().default("usd"),
    /** The price without tax, in billionths of a currency other than the US dollar; null: `priceNanoUsd` is it. */
    netNano: nanoUsd(),
    /** The tax that is paid besides, in billionths of the currency. */
    taxNano: nanoUsd().notNull().default(sql`0`),
    /** Billionths of the currency for one US dollar, when it was ordered. */
    usdRateNano: nanoUsd(),
    /** How it was taxed, when it was ordered; null: its seller charged no tax. */
    tax: jsonb().$type<OrderTax>(),
    /** How the customer chose to pay. */
    method: text({ enum: ["stripe", "instructions", "shop"] }),
    paidAt: instant(),
    /** Why a paid order is not fulfilled yet. */
    waitsFor: text({ enum: ["seller_balance", "seller"] }),
    /** When fulfilling a paid order is tried again. */
    tryAt: instant(),
    /** What fulfilled it: the package, or the entry of the customer's balance. */
    packageId: bigint({ mode: "number" }),
    entryId: bigint({ mode: "number" }),
    /** The message of the person who decided. */
    answer: text(),
    decidedBy: bigint({ mode: "number" }),
    decidedAt: instant(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("orders_account").on(t.accountId, t.id),
    index("orders_open").on(t.id).where(sql`${t.status} = 'open'`),
    index("orders_offering").on(t.offeringId).where(sql`${t.offeringId} is not null`),
    index("orders_decided").on(t.decidedAt).where(sql`${t.status} <> 'open'`),
    check(
      "orders_kind",
      sql`(${t.kind} = 'package' and ${t.offeringId} is not null and ${t.amountNanoUsd} is null)
      or (${t.kind} = 'top_up' and ${t.offeringId} is null and ${t.amountNanoUsd} > 0)`,
    ),
    check("orders_status", sql`${t.status} in ('open', 'paid', 'fulfilled', 'refunded', 'declined', 'withdrawn')`),
    check("orders_price", sql`${t.priceNanoUsd} > 0`),
    check(
      "orders_amounts",
      sql`${t.taxNano} >= 0 and (${t.taxNano} = 0 or ${t.tax} is not null) and ((${t.currency} = 'usd' and ${t.netNano} is null and ${t.usdRateNano} is null)
      or (${t.currency} <> 'usd' and ${t.netNano} > 0 and ${t.usdRateNano} > 0 and ${t.priceNanoUsd} is not null))`,
    ),
    check("orders_method", sql`${t.method} in ('stripe', 'instructions', 'shop')`),
    check(
      "orders_paid",
      sql`(${t.status} not in ('paid', 'refunded') or ${t.paidAt} is not null) and (${t.paidAt} is null or ${t.priceNanoUsd} is not null)`,
    ),
    check("orders_waits_for", sql`${t.waitsFor} in ('seller_balance', 'seller')`),
    uniqueIndex("orders_reference").on(t.reference),
    uniqueIndex("orders_package").on(t.packageId),
    uniqueIndex("orders_entry").on(t.entryId),
    index("orders_paid_waiting").on(t.tryAt).where(sql`${t.status} = 'paid'`),
  ],
);
