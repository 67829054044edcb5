import { eq, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import type { Role } from "../accounts/roles.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { sellers } from "../platform/schema_sellers.ts";

/** Who sells to whom, and whether a seller shows its models and their prices to everyone or only to those who signed in. Source: RTL-6. */

/** The operator, as a seller: it is no account. */
export const OPERATOR = 0;

/** The seller that an account buys from: its reseller, or the operator, who also sells to resellers. Source: BUY-1. */
export function sellerIdOf({ role, resellerId }: { role: Role; resellerId: number | null }): number {
  return role === "customer" ? (resellerId ?? OPERATOR) : OPERATOR;
}

/** The same by the account's id; null: there is no such account. */
export async function findSellerOf(tx: Tx, accountId: number): Promise<number | null> {
  if (!isRowId(accountId)) return null;
  const [row] = await tx
    .select({ resellerId: accounts.resellerId, role: accounts.role })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  return row ? sellerIdOf(row) : null;
}

/** The seller whose data a person sees: the operator for an admin, the reseller itself for a reseller. */
export function sellerOfPerson({ role, accountId }: { role: Role; accountId: number }): number {
  return role === "admin" ? OPERATOR : accountId;
}

/** Also false for a seller without a row. */
export async function arePricesPublic({ db }: { db: Db }, sellerId: number): Promise<boolean> {
  const [row] = await db.orm
    .select({ pricesPublic: sellers.pricesPublic })
    .from(sellers)
    .where(eq(sellers.sellerId, sellerId));
  return row?.pricesPublic === true;
}

export async function setPricesPublic(
  deps: ChangeDeps,
  { sellerId, pricesPublic }: { sellerId: number; pricesPublic: boolean },
): Promise<void> {
  await changing(deps, async (tx) => {
    // The row is inserted first: the audit log records changes of this column only, because others are secrets.
    await tx.insert(sellers).values({ sellerId }).onConflictDoNothing();
    await tx
      .update(sellers)
      .set({ pricesPublic, updatedAt: sql`clock_timestamp()` })
      .where(eq(sellers.sellerId, sellerId));
  });
}
