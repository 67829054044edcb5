import { and, eq, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Tx } from "../platform/db.ts";
import type { MessageKind } from "../platform/outbox_store.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { isRowId } from "./input_checks.ts";

/**
 * Locks. The ledger's locks come first in a transaction that ends a right (suspend, revoke, rotate, a domain going off), each in a
 * statement of its own, and are held to the commit: no request is granted meanwhile on what was read before. Order: tenants, then
 * accounts, then rows.
 */

/** Until commit, no request of these accounts is granted. */
export async function lockAccounts(tx: Tx, accountIds: readonly number[]): Promise<void> {
  await tx.execute(sql`select lock_accounts(${`{${accountIds.join(",")}}`}::text::bigint[])`);
}

/** Until commit, no request of the reseller or of its customers is granted. */
export async function lockTenant(tx: Tx, resellerId: number): Promise<void> {
  await tx.execute(sql`select lock_tenant(${resellerId}::bigint)`);
}

/** Serializes changes of what an account owns, such as its keys. Requests of the account go on. Throws InputError. */
export async function lockAccountRow(tx: Tx, accountId: number): Promise<void> {
  const rows = isRowId(accountId)
    ? await tx.select({ id: accounts.id }).from(accounts).where(eq(accounts.id, accountId)).for("no key update")
    : [];
  if (rows.length === 0) throw new InputError("There is no such account.", "accountId");
}

/** Serializes what mails links to an address that somebody typed, so that its limit holds. `tenantId`: 0 for the operator's own. */
export async function lockMailedAddress(
  tx: Tx,
  { kind, tenantId, email }: { kind: MessageKind; tenantId: number; email: string },
): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`${kind} ${tenantId} ${email}`}, 0))`);
}

/** Serializes changes of what a reseller owns, such as its domains and its brand. Requests go on. Throws InputError. */
export async function lockResellerRow(tx: Tx, resellerId: number): Promise<void> {
  const rows = isRowId(resellerId)
    ? await tx
        .select({ id: accounts.id })
        .from(accounts)
        .where(and(eq(accounts.id, resellerId), eq(accounts.role, "reseller")))
        .for("no key update")
    : [];
  if (rows.length === 0) throw new InputError("There is no such reseller.", "resellerId");
}
