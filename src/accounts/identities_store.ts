import { and, asc, eq, lt, sql } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import { type Actor, type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { identities, identityProviders, identitySignIns } from "../platform/schema_identities.ts";
import type { IdentityKind } from "./identity_presets.ts";
import { isRowId } from "./input_checks.ts";
import { lockAccountRow } from "./locks_store.ts";
import { isItsReseller, reseller, resellerIsActive, signsInOn } from "./reseller_store.ts";
import { endSessions } from "./sessions_store.ts";

/** Identities that people have linked, and sign-ins that were begun at identity providers. Source: OIDC-2, OIDC-6, OIDC-8. */

/** How long a person may take at the provider. */
const SIGN_IN_MINUTES = 10;
const PRUNE_MAX = 1000;

/** An identity as its owner's settings list it. `enabled`: whether its provider is switched on. */
export type ListedIdentity = {
  id: number;
  identityProviderId: number;
  provider: string;
  kind: IdentityKind;
  email: string;
  enabled: boolean;
  createdAt: string;
  lastUsedAt: string | null;
};

/** A sign-in that was begun. `sessionDigest`: the session whose person links an identity; null: nobody is signed in. `at`: when, ISO 8601. */
export type BegunSignIn = { identityProviderId: number; sessionDigest: Buffer | null; at: string };

/** Remembers that a browser leaves for a provider. `digest`: of the token in its cookie. */
export async function noteSignIn(
  { db }: { db: Db },
  begun: { digest: Buffer; identityProviderId: number; host: string; sessionDigest: Buffer | null },
): Promise<void> {
  await db.orm
    .insert(identitySignIns)
    .values({ ...begun, expiresAt: sql`clock_timestamp() + make_interval(mins => ${SIGN_IN_MINUTES})` });
}

/** Uses a sign-in up. undefined: unknown, used before, expired, or begun on another host. */
export async function takeSignIn(
  { db }: { db: Db },
  { digest, host }: { digest: Buffer; host: string },
): Promise<BegunSignIn | undefined> {
  const [taken] = await db.orm
    .delete(identitySignIns)
    .where(eq(identitySignIns.digest, digest))
    .returning({
      identityProviderId: identitySignIns.identityProviderId,
      sessionDigest: identitySignIns.sessionDigest,
      at: identitySignIns.createdAt,
      isValid: sql<boolean>`${identitySignIns.expiresAt} > clock_timestamp() and ${identitySignIns.host} = ${host}`,
    });
  if (!taken?.isValid) return undefined;
  const { isValid: _, at, ...begun } = taken;
  return { ...begun, at: toIso(at) };
}

/** Deletes sign-ins that nobody came back from, at most PRUNE_MAX; returns how many. Called by a job. */
export async function pruneIdentitySignIns({ db }: { db: Db }): Promise<number> {
  const expired = db.orm
    .select({ digest: identitySignIns.digest })
    .from(identitySignIns)
    .where(lt(identitySignIns.expiresAt, sql`clock_timestamp()`))
    .limit(PRUNE_MAX);
  const deleted = await db.orm
    .delete(identitySignIns)
    .where(sql`${identitySignIns.digest} in ${expired}`)
    .returning({ digest: identitySignIns.digest });
  return deleted.length;
}

type Subject = { identityProviderId: number; subject: string };

/** The person who has linked an identity. `mayEnter`: active, and signs in on hosts of this reseller (null: the service's own). */
export async function findLinked(
  tx: Tx,
  { identityProviderId, subject, resellerId }: Subject & { resellerId: number | null },
): Promise<{ identityId: number; personId: number; mayEnter: boolean } | undefined> {
  const [row] = await tx
    .select({
      identityId: identities.id,
      personId: identities.accountId,
      mayEnter: sql<boolean>`${accounts.status} = 'active' and ${resellerIsActive}
        and (${signsInOn(resellerId)})`,
    })
    .from(identities)
    .innerJoin(accounts, eq(accounts.id, identities.accountId))
    .leftJoin(reseller, isItsReseller)
    .where(and(eq(identities.identityProviderId, identityProviderId), eq(identities.subject, subject)));
  return row;
}

/** Until commit: of two first sign-ins with one identity, the second finds what the first has made. */
export async function lockSubject(tx: Tx, { identityProviderId, subject }: Subject): Promise<void> {
  await tx.execute(
    sql`select pg_advisory_xact_lock(hashtextextended(${`identity ${identityProviderId} ${subject}`}, 0))`,
  );
}

type NewIdentity = Subject & { accountId: number; email: string };

/** Links an identity in the caller's transaction. undefined: it is linked to somebody, or the person has linked another one of the provider. */
export async function insertIdentity(tx: Tx, identity: NewIdentity): Promise<number | undefined> {
  const [added] = await tx
    .insert(identities)
    .values(identity)
    .onConflictDoNothing()
    .returning({ identityId: identities.id });
  return added?.identityId;
}

/** Records a sign-in with an identity, and the person's address there; undefined: it is not known. */
export async function noteUse(
  tx: Tx,
  { identityId, email }: { identityId: number; email: string | undefined },
): Promise<void> {
  await tx
    .update(identities)
    .set({ lastUsedAt: sql`clock_timestamp()`, ...(email !== undefined && { email }) })
    .where(eq(identities.id, identityId));
}

/** Links an identity to the person who is signed in, and tells them. Throws InputError. Source: OIDC-6. */
export async function linkIdentity(
  deps: ChangeDeps & { by: Actor },
  { provider, ...identity }: NewIdentity & { provider: string },
): Promise<void> {
  const { accountId, email } = identity;
  await changing(deps, async (tx) => {
    await lockAccountRow(tx, accountId);
    await lockSubject(tx, identity);
    if ((await insertIdentity(tx, identity)) === undefined)
      throw new InputError(
        sentence(
          "This sign-in at {provider} belongs to another person here, or you have linked another one of {provider}.",
          { provider },
        ),
      );
    await tell(tx, { kind: "identity_linked", accountId, data: { provider, email } });
  });
}

/** A person's identities, the first ones first. */
export async function listIdentities({ db }: { db: Db }, accountId: number): Promise<ListedIdentity[]> {
  const rows = await db.orm
    .select({
      id: identities.id,
      identityProviderId: identities.identityProviderId,
      provider: identityProviders.name,
      kind: identityProviders.kind,
      email: identities.email,
      enabled: identityProviders.enabled,
      createdAt: identities.createdAt,
      lastUsedAt: identities.lastUsedAt,
    })
    .from(identities)
    .innerJoin(identityProviders, eq(identityProviders.id, identities.identityProviderId))
    .where(eq(identities.accountId, accountId))
    .orderBy(asc(identities.id));
  return rows.map((row) => ({
    ...row,
    createdAt: toIso(row.createdAt),
    lastUsedAt: row.lastUsedAt === null ? null : toIso(row.lastUsedAt),
  }));
}

/**
 * Unlinks one of a person's identities, tells them, and ends their other sessions. False: no such identity. Throws InputError if it is their
 * only way to sign in. Source: OIDC-6.
 */
export async function unlinkIdentity(
  deps: ChangeDeps & { by: Actor },
  { accountId, identityId, keepSession }: { accountId: number; identityId: number; keepSession: Buffer },
): Promise<boolean> {
  if (!isRowId(identityId)) return false;
  const unlink = async (tx: Tx) => {
    await lockAccountRow(tx, accountId);
    const [removed] = await tx
      .delete(identities)
      .where(and(eq(identities.id, identityId), eq(identities.accountId, accountId)))
      .returning({ identityProviderId: identities.identityProviderId, email: identities.email });
    if (!removed) return false;
    await requireOtherWay(tx, accountId);
    const [provider] = await tx
      .select({ name: identityProviders.name })
      .from(identityProviders)
      .where(eq(identityProviders.id, removed.identityProviderId));
    await endSessions(tx, accountId, keepSession);
    const data = { provider: provider?.name ?? "", email: removed.email };
    await tell(tx, { kind: "identity_unlinked", accountId, data });
    return true;
  };
  return changing(deps, unlink, { protects: true });
}

async function requireOtherWay(tx: Tx, accountId: number): Promise<void> {
  const ways = await tx.execute(sql`
    select 1 from accounts a where a.id = ${accountId} and (a.password_hash is not null
      or exists (select from passkeys p where p.account_id = a.id and p.cloned_at is null)
      or exists (select from identities i join identity_providers p on p.id = i.identity_provider_id
        where i.account_id = a.id and p.enabled))`);
  if (ways.length === 0)
    throw new InputError("This is your only way to sign in. Set a password first, with “Forgot your password?”.");
}
