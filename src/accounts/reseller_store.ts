import { and, eq, or, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { accounts } from "../platform/schema_accounts.ts";

/** The reseller of an account in queries of `accounts`: `.leftJoin(reseller, isItsReseller)`. Who has none is the service's own. */

export const reseller = alias(accounts, "reseller");
export const isItsReseller = eq(reseller.id, accounts.resellerId);
/** It has none, or one that is not suspended. */
export const resellerIsActive: SQL<boolean> = sql`coalesce(${reseller.status}, 'active') = 'active'`;

/**
 * Whether an account may sign in on a host. On a reseller's host: that reseller and its customers. On the service's own
 * (`resellerId` null): every account without a reseller. Source: DOM-5.
 */
export function signsInOn(resellerId: number | null): SQL | undefined {
  if (resellerId === null) return sql`coalesce(${accounts.resellerId}, 0) = 0`;
  return or(eq(accounts.resellerId, resellerId), and(eq(accounts.id, resellerId), eq(accounts.role, "reseller")));
}
