import { sql } from "drizzle-orm";
import { bigint, date, index, integer, numeric, pgTable, primaryKey, text, uuid } from "drizzle-orm/pg-core";
import { bytea, instant, sum } from "./schema_columns.ts";

/** Seals of months of receipts, and what the books keep of months whose receipts were dropped: `books/seals_store.ts`. */

const month = () => date({ mode: "string" }).notNull();
const count = () => bigint({ mode: "number" }).notNull();

/** A month of UTC that is closed: its receipts cannot change any more. `seal` names the one before, in `previous`. */
export const receiptSeals = pgTable("receipt_seals", {
  month: month().primaryKey(),
  closedAt: instant().notNull().default(sql`clock_timestamp()`),
  sealedAt: instant(),
  receipts: bigint({ mode: "number" }),
  /** SHA-256 of the hashes of its blocks, of its totals, and of both with the seal before; null: not sealed yet. */
  blocksDigest: bytea(),
  totalsDigest: bytea(),
  previous: bytea(),
  seal: bytea(),
  exportedAt: instant(),
  droppedAt: instant(),
  /** The last account whose usage was counted again since everything is folded anew; -1: none. null: all are in the sums. */
  recountedTo: bigint({ mode: "number" }),
});

/** The receipts of a month in pieces of a few thousand, in the order of their ids. */
export const receiptBlocks = pgTable(
  "receipt_blocks",
  {
    month: month(),
    number: integer().notNull(),
    lastId: uuid().notNull(),
    receipts: integer().notNull(),
    /** SHA-256 of its receipts as `receipt_line` writes them. */
    digest: bytea().notNull(),
  },
  (t) => [primaryKey({ columns: [t.month, t.number] })],
);

/** Totals of a sealed month, by account and billing mode. `receipts`: with those of released requests. */
export const receiptTotals = pgTable(
  "receipt_totals",
  {
    month: month(),
    accountId: bigint({ mode: "number" }).notNull(),
    mode: text().notNull(),
    receipts: count(),
    settled: count(),
    units: count(),
    promptTokens: count(),
    cachedTokens: count(),
    completionTokens: count(),
    chargedTokens: numeric().notNull(),
    chargedNanoUsd: numeric().notNull(),
    shortfallNanoUsd: numeric().notNull(),
    costNanoUsd: numeric().notNull(),
    providerCostNanoUsd: numeric().notNull(),
  },
  (t) => [primaryKey({ columns: [t.month, t.accountId, t.mode] })],
);

/** What a month's receipts add to `book_sums`. */
export const sealedSums = pgTable(
  "sealed_sums",
  {
    month: month(),
    kind: text().notNull(),
    id: bigint({ mode: "number" }).notNull(),
    day: date({ mode: "string" }).notNull(),
    rows: count(),
    units: sum(),
    tokens: sum(),
    nanoUsd: sum(),
  },
  (t) => [
    primaryKey({ columns: [t.month, t.kind, t.id, t.day] }),
    index("sealed_sums_counter").on(t.kind, t.id, t.day),
  ],
);

/**
 * What they add to the rollups: the quarters of `usage_sums` of each key, from which the other rows follow. `ends`: infinity, or a row
 * of `usage_crossings`.
 */
export const sealedUsage = pgTable(
  "sealed_usage",
  {
    month: month(),
    accountId: bigint({ mode: "number" }).notNull(),
    keyId: bigint({ mode: "number" }).notNull(),
    begins: instant().notNull(),
    ends: instant().notNull(),
    kindId: integer().notNull(),
    requests: count(),
    charges: count(),
    promptTokens: count(),
    cachedTokens: count(),
    completionTokens: count(),
    chargedNanoUsd: numeric().notNull(),
    earnedNanoUsd: numeric().notNull(),
    unitsNanoUsd: numeric().notNull(),
    unitsCostNanoUsd: numeric().notNull(),
    providerCostNanoUsd: numeric().notNull(),
    costUnknown: count(),
    firstMarks: numeric().notNull(),
    wholeMarks: numeric().notNull(),
  },
  (t) => [primaryKey({ columns: [t.month, t.accountId, t.keyId, t.begins, t.ends, t.kindId] })],
);
