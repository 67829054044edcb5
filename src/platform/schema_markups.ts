import { sql } from "drizzle-orm";
import { bigint, check, date, index, integer, pgTable, primaryKey, text } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { instant, nanoUsd } from "./schema_columns.ts";

/** What a reseller adds to the operator's prices of requests that its customers' balances pay. Source: MRK-1. */
export const markups = pgTable(
  "markups",
  {
    resellerId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    /** Empty: every model that has no markup of its own. */
    modelId: text().notNull(),
    basisPoints: integer().notNull(),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.resellerId, t.modelId] }),
    check("markups_range", sql`${t.basisPoints} between 0 and 100000`),
  ],
);

/** What a reseller earned by markups on a UTC day, once the day is closed, and how much of it its balance was credited. Source: MRK-6. */
export const earnings = pgTable(
  "earnings",
  {
    resellerId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    day: date({ mode: "string" }).notNull(),
    requests: bigint({ mode: "number" }).notNull(),
    earnedNanoUsd: nanoUsd().notNull(),
    creditedNanoUsd: nanoUsd().notNull().default(sql`0`),
  },
  (t) => [
    primaryKey({ columns: [t.resellerId, t.day] }),
    index("earnings_due").on(t.resellerId).where(sql`${t.creditedNanoUsd} < ${t.earnedNanoUsd}`),
    check("earnings_once", sql`${t.creditedNanoUsd} between 0 and ${t.earnedNanoUsd}`),
  ],
);
