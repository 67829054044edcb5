import { sql } from "drizzle-orm";
import { bigint, check, date, index, integer, pgTable, primaryKey, text, uniqueIndex } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { bytea, id, instant, nanoUsd } from "./schema_columns.ts";
import { offerings } from "./schema_offerings.ts";

/** Codes that a seller hands out in one go: all of one offering or one amount, with one end. */
export const voucherBatches = pgTable(
  "voucher_batches",
  {
    id: id(),
    /** 0: the operator; else the account of a reseller. */
    sellerId: bigint({ mode: "number" }).notNull(),
    /** What the seller calls it. Customers do not see it. */
    name: text().notNull(),
    /** What a code is for: an offering, or else an amount. */
    offeringId: bigint({ mode: "number" }).references(() => offerings.id),
    amountNanoUsd: nanoUsd(),
    /** What pays when a code is redeemed. An operator's code is paid by nobody. */
    payWith: text({ enum: ["operator", "balance", "allotment"] }).notNull(),
    codes: integer().notNull(),
    /** How many accounts can redeem each code, once each. */
    usesPerCode: integer().notNull(),
    /** How often its codes were redeemed. */
    used: bigint({ mode: "number" }).notNull().default(0),
    endsAt: instant().notNull(),
    disabledAt: instant(),
    createdBy: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("voucher_batches_seller").on(t.sellerId, t.id),
    index("voucher_batches_ends").on(t.endsAt),
    check("voucher_batches_seller_id", sql`${t.sellerId} >= 0`),
    check(
      "voucher_batches_kind",
      sql`(${t.offeringId} is not null and ${t.amountNanoUsd} is null)
      or (${t.offeringId} is null and ${t.amountNanoUsd} > 0 and ${t.payWith} <> 'allotment')`,
    ),
    check("voucher_batches_pay_with", sql`(${t.payWith} = 'operator') = (${t.sellerId} = 0)`),
    check("voucher_batches_counts", sql`${t.codes} > 0 and ${t.usesPerCode} > 0`),
    check("voucher_batches_used", sql`${t.used} >= 0 and ${t.used} <= ${t.codes}::bigint * ${t.usesPerCode}::bigint`),
  ],
);

/** The last redemption of a batch that its seller could not pay. Apart from the batch, whose row redemptions lock. */
export const voucherProblems = pgTable("voucher_problems", {
  batchId: bigint({ mode: "number" })
    .primaryKey()
    .references(() => voucherBatches.id, { onDelete: "cascade" }),
  why: text({ enum: ["balance", "allotment", "offering"] }).notNull(),
  count: integer().notNull().default(1),
  lastAt: instant().notNull().default(sql`clock_timestamp()`),
});

/** Codes: the database has their digests only. */
export const vouchers = pgTable(
  "vouchers",
  {
    id: id(),
    batchId: bigint({ mode: "number" })
      .notNull()
      .references(() => voucherBatches.id, { onDelete: "cascade" }),
    /** SHA-256 of the code without its hyphens. */
    digest: bytea().notNull(),
    /** The last characters, by which a seller finds the code that a customer asks about. */
    suffix: text().notNull(),
    usesMax: integer().notNull(),
    used: integer().notNull().default(0),
  },
  (t) => [
    uniqueIndex("vouchers_digest").on(t.digest),
    index("vouchers_batch").on(t.batchId, t.id),
    check("vouchers_used", sql`${t.used} >= 0 and ${t.used} <= ${t.usesMax}`),
  ],
);

/** Redemptions. One account redeems a code at most once. */
export const voucherUses = pgTable(
  "voucher_uses",
  {
    id: id(),
    voucherId: bigint({ mode: "number" })
      .notNull()
      .references(() => vouchers.id, { onDelete: "cascade" }),
    batchId: bigint({ mode: "number" }).notNull(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    /** null: the code was for an amount. */
    packageId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("voucher_uses_once").on(t.voucherId, t.accountId),
    index("voucher_uses_batch").on(t.batchId, t.id),
  ],
);

/** Wrong codes that an account has tried, by day, for its seller. */
export const voucherGuesses = pgTable(
  "voucher_guesses",
  {
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    day: date({ mode: "string" }).notNull(),
    sellerId: bigint({ mode: "number" }).notNull(),
    /** Codes that were looked up and do not exist for this account. */
    wrong: integer().notNull().default(0),
    /** Attempts that were refused because too many had failed. */
    refused: integer().notNull().default(0),
    lastAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.accountId, t.day] }),
    index("voucher_guesses_seller").on(t.sellerId, t.lastAt),
    index("voucher_guesses_day").on(t.day),
  ],
);
