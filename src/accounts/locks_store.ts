import { sql } from "drizzle-orm";
import type { Tx } from "../platform/db.ts";

/**
 * The ledger's locks, for whatever ends a right: taken first, in a statement of their own, and held to the commit, so
 * that no request is granted after it on what it saw before. Order: tenants, then accounts.
 */

/** After it no request of these accounts is granted until commit. */
export async function lockAccounts(tx: Tx, accountIds: readonly number[]): Promise<void> {
  await tx.execute(sql`select lock_accounts(${`{${accountIds.join(",")}}`}::text::bigint[])`);
}

/** After it no request of the reseller or of its customers is granted until commit. */
export async function lockTenant(tx: Tx, resellerId: number): Promise<void> {
  await tx.execute(sql`select lock_tenant(${resellerId}::bigint)`);
}
