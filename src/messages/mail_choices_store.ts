import { and, eq } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import { isItsReseller, reseller, resellerIsActive, signsInOn } from "../accounts/reseller_store.ts";
import { InputError } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db } from "../platform/db.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { mutedMails } from "../platform/schema_outbox.ts";
import { isOptional, type OptionalKind } from "./kinds.ts";

/** What each account is mailed about: every kind that it has not switched off. Source: MSG-6. */

/** The kinds that an account has switched off. */
export async function mutedKinds({ db }: { db: Db }, accountId: number): Promise<string[]> {
  const rows = await db.orm
    .select({ kind: mutedMails.kind })
    .from(mutedMails)
    .where(eq(mutedMails.accountId, accountId));
  return rows.map(({ kind }) => kind);
}

/**
 * Whether an account gets mails of a kind, asked on a host (`resellerId` of the host; null: the service's own).
 * undefined: the account does not sign in there, or is suspended.
 */
export async function findMailChoice(
  { db }: { db: Db },
  { accountId, kind, resellerId }: { accountId: number; kind: OptionalKind; resellerId: number | null },
): Promise<{ isMailed: boolean } | undefined> {
  if (!isRowId(accountId)) return undefined;
  const [row] = await db.orm
    .select({ muted: mutedMails.kind })
    .from(accounts)
    .leftJoin(reseller, isItsReseller)
    .leftJoin(mutedMails, and(eq(mutedMails.accountId, accounts.id), eq(mutedMails.kind, kind)))
    .where(and(eq(accounts.id, accountId), eq(accounts.status, "active"), resellerIsActive, signsInOn(resellerId)));
  return row && { isMailed: row.muted === null };
}

/** Switches a kind on or off. Throws InputError for a kind that cannot be switched off. */
export async function setMailed(
  deps: ChangeDeps,
  { accountId, kind, mailed }: { accountId: number; kind: string; mailed: boolean },
): Promise<void> {
  if (!isOptional(kind)) throw new InputError("This kind of mail is not known, or it cannot be switched off.", "kind");
  await changing(deps, async (tx) => {
    if (mailed) await tx.delete(mutedMails).where(and(eq(mutedMails.accountId, accountId), eq(mutedMails.kind, kind)));
    else await tx.insert(mutedMails).values({ accountId, kind }).onConflictDoNothing();
  });
}
