import { sql } from "drizzle-orm";
import { bigint, boolean, check, index, pgTable, primaryKey } from "drizzle-orm/pg-core";
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
    priceNanoUsd: nanoUsd().notNull(),
    /** The seller knew that this price is below the wholesale price. False for any other price. */
    belowWholesaleConfirmed: boolean().notNull().default(false),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.sellerId, t.offeringId] }),
    index("retail_prices_offering").on(t.offeringId),
    check("retail_prices_seller", sql`${t.sellerId} >= 0`),
    check(
      "retail_prices_price",
      sql`${t.priceNanoUsd} between 10000000 and 9000000000000000 and ${t.priceNanoUsd} % 10000000 = 0`,
    ),
  ],
);
