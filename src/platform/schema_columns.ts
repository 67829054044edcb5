import { type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { bigint, customType, jsonb, numeric, timestamp } from "drizzle-orm/pg-core";
import { REQUEST_BOUNDS_DEFAULT, type RequestBounds } from "../limits.ts";
import type { RateLimits } from "./rate_tallies.ts";

/** Columns that tables share. */

export const bytea = customType<{ data: Buffer }>({ dataType: () => "bytea" });
export const id = () => bigint({ mode: "number" }).primaryKey().generatedAlwaysAsIdentity();
export const instant = () => timestamp({ withTimezone: true, mode: "string" });
export const nanoUsd = () => bigint({ mode: "bigint" });
export const xid8 = customType<{ data: string }>({ dataType: () => "xid8" });
export const snapshot = customType<{ data: string }>({ dataType: () => "pg_snapshot" });
export const sum = () => numeric().notNull().default("0");
/** The transaction that last wrote the row. It shows which rows are new since a snapshot, independent of clocks. */
export const writtenIn = () => xid8().notNull().default(sql`pg_current_xact_id()`);

/** Limits of requests and tokens; null: none. `accounts/rate_limits.ts` checks them. */
export const limits = () => jsonb().$type<RateLimits>();

/** What one request of a package may ask for. `accounts/request_bounds.ts` checks it. */
export const requestBounds = () => jsonb().$type<RequestBounds>().notNull().default(REQUEST_BOUNDS_DEFAULT);

/** Every number in them is positive, and not above what any kind of limit may be. */
export const areLimits = (column: SQLWrapper): SQL =>
  sql`jsonb_typeof(${column}) = 'object' and not jsonb_path_exists(${column}, '$.** ? (@.type() == "number" && (@ < 1 || @ > 1000000000))')`;
