import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts, links } from "../platform/schema_accounts.ts";
import { emailIs } from "./accounts_store.ts";
import { endEmailChanges } from "./email_changes_store.ts";
import { isRowId } from "./input_checks.ts";
import { isItsReseller, reseller, signsInOn } from "./reseller_store.ts";
import type { Role } from "./roles.ts";
import { endSessions } from "./sessions_store.ts";

/** Who may sign in where, and the password they sign in with. */

/** `suspended`: the account or its reseller. `totpEnabled`: a code is required too. */
export type SignIn = {
  accountId: number;
  role: Role;
  passwordHash: string | null;
  totpEnabled: boolean;
  suspended: boolean;
};

/** The account that signs in with this address on a reseller's host, or (`resellerId` null) on the service's own. */
export async function findSignIn(
  { db }: { db: Db },
  { email, resellerId }: { email: string; resellerId: number | null },
): Promise<SignIn | undefined> {
  const [row] = await db.orm
    .select({
      accountId: accounts.id,
      role: accounts.role,
      passwordHash: accounts.passwordHash,
      totpEnabled: sql<boolean>`${accounts.totpEnabledAt} is not null`,
      suspended: sql<boolean>`${accounts.status} <> 'active' or coalesce(${reseller.status} <> 'active', false)`,
    })
    .from(accounts)
    .leftJoin(reseller, isItsReseller)
    .where(and(emailIs(email), signsInOn(resellerId)))
    .limit(1);
  return row;
}

/** The hash of an account's password, to check the current password; null: none. */
export async function passwordHashOf({ db }: { db: Db }, accountId: number): Promise<string | null> {
  const [row] = await db.orm
    .select({ passwordHash: accounts.passwordHash })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  return row?.passwordHash ?? null;
}

export type NewPassword = {
  accountId: number;
  passwordHash: string;
  /** The hash of the current password (null: none), read before the person confirmed the change. If it has changed since, nothing is set. */
  was?: string | null;
  /** The digest of the one session that stays. */
  keepSession?: Buffer;
};

/**
 * Sets the password, and tells its owner. Ends the account's sessions, its password link and its change of address. False: no such account,
 * or `was` is not its hash. Source: SGN-14.
 */
export async function setPassword(
  deps: ChangeDeps,
  { accountId, passwordHash, was, keepSession }: NewPassword,
): Promise<boolean> {
  if (!isRowId(accountId)) return false;
  const set = async (tx: Tx) => {
    const found = await tx
      .update(accounts)
      .set({ passwordHash })
      .where(and(eq(accounts.id, accountId), was === undefined ? undefined : hasHash(was)))
      .returning({ id: accounts.id });
    if (found.length === 0) return false;
    await tx.delete(links).where(eq(links.accountId, accountId));
    await endEmailChanges(tx, accountId);
    await endSessions(tx, accountId, keepSession);
    await tell(tx, { kind: "password_changed", accountId, data: {} });
    return true;
  };
  return changing(deps, set, { protects: true });
}

function hasHash(passwordHash: string | null): SQL {
  return passwordHash === null ? isNull(accounts.passwordHash) : eq(accounts.passwordHash, passwordHash);
}
