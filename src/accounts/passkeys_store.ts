import { and, count, desc, eq, isNull, lt, or, type SQL, sql } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import { PASSKEY_NAME_CHARS_MAX, PASSKEYS_MAX } from "../limits.ts";
import { type Actor, type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { passkeys, usedChallenges } from "../platform/schema_sign_in.ts";
import { checkName, isRowId } from "./input_checks.ts";
import { lockAccountRow } from "./locks_store.ts";
import { isItsReseller, reseller, resellerIsActive, signsInOn } from "./reseller_store.ts";
import { endSessions } from "./sessions_store.ts";

/** Passkeys in the database. Each condition is part of the statement that writes: of two concurrent calls, one succeeds. */

const PRUNE_MAX = 1000;

/** A passkey as its owner's settings list it. Times are ISO 8601. `cloned`: it no longer signs in, because there is a copy of it. */
export type ListedPasskey = {
  id: number;
  name: string;
  host: string;
  synced: boolean;
  cloned: boolean;
  createdAt: string;
  lastUsedAt: string | null;
};

/** A passkey to check a signature with. `mayEnter`: its account is active, and signs in on the host that was asked for. */
export type StoredPasskey = {
  passkeyId: number;
  accountId: number;
  credentialId: Buffer;
  publicKey: Buffer;
  mayEnter: boolean;
};

export type NewPasskey = {
  accountId: number;
  host: string;
  credentialId: Buffer;
  publicKey: Buffer;
  counter: number;
  transports: string[];
  synced: boolean;
  name: string;
};

/** A challenge that was signed. It is valid until `expiresUnixMs`, on the database's clock. */
export type SignedChallenge = { digest: Buffer; expiresUnixMs: number };

/** An account's passkeys, newest first. */
export async function listPasskeys({ db }: { db: Db }, accountId: number): Promise<ListedPasskey[]> {
  const rows = await db.orm
    .select({
      id: passkeys.id,
      name: passkeys.name,
      host: passkeys.host,
      synced: passkeys.synced,
      cloned: sql<boolean>`${passkeys.clonedAt} is not null`,
      createdAt: passkeys.createdAt,
      lastUsedAt: passkeys.lastUsedAt,
    })
    .from(passkeys)
    .where(eq(passkeys.accountId, accountId))
    .orderBy(desc(passkeys.id));
  return rows.map((row) => ({
    ...row,
    createdAt: toIso(row.createdAt),
    lastUsedAt: row.lastUsedAt === null ? null : toIso(row.lastUsedAt),
  }));
}

/** What a browser needs to find an account's passkeys of a host, and so as not to make a second one. */
export async function credentialsOf(
  { db }: { db: Db },
  { accountId, host }: { accountId: number; host: string },
): Promise<{ credentialId: Buffer; transports: string[] }[]> {
  return db.orm
    .select({ credentialId: passkeys.credentialId, transports: passkeys.transports })
    .from(passkeys)
    .where(and(eq(passkeys.accountId, accountId), eq(passkeys.host, host), isNull(passkeys.clonedAt)));
}

/** The passkey with this credential id on a host (`resellerId` of the host; null: the service's own). */
export async function findPasskey(
  { db }: { db: Db },
  { host, resellerId, credentialId }: { host: string; resellerId: number | null; credentialId: Buffer },
): Promise<StoredPasskey | undefined> {
  const [row] = await db.orm
    .select({
      passkeyId: passkeys.id,
      accountId: passkeys.accountId,
      credentialId: passkeys.credentialId,
      publicKey: passkeys.publicKey,
      mayEnter: sql<boolean>`${accounts.status} = 'active' and ${resellerIsActive}
        and (${signsInOn(resellerId)})`,
    })
    .from(passkeys)
    .innerJoin(accounts, eq(accounts.id, passkeys.accountId))
    .leftJoin(reseller, isItsReseller)
    .where(and(eq(passkeys.host, host), eq(passkeys.credentialId, credentialId)));
  return row;
}

/** Adds a passkey, and tells its owner. False: its challenge was used before or has expired. Throws InputError. Source: SGN-14. */
export async function insertPasskey(
  deps: ChangeDeps,
  { name, ...passkey }: NewPasskey,
  challenge: SignedChallenge,
): Promise<boolean> {
  const row = { ...passkey, name: checkPasskeyName(name) };
  return changing(deps, async (tx) => {
    await lockAccountRow(tx, passkey.accountId);
    const [own] = await tx
      .select({ passkeys: count() })
      .from(passkeys)
      .where(eq(passkeys.accountId, passkey.accountId));
    if (own && own.passkeys >= PASSKEYS_MAX)
      throw new InputError(
        sentence("You have {passkeysMax} passkeys, the most that an account may have. Remove one first.", {
          passkeysMax: PASSKEYS_MAX,
        }),
      );
    if (!(await takeChallenge(tx, challenge))) return false;
    const added = await tx.insert(passkeys).values(row).onConflictDoNothing().returning({ id: passkeys.id });
    if (added.length === 0) throw new InputError("This passkey is already in use.", "response");
    const { accountId, host } = row;
    await tell(tx, { kind: "passkey_added", accountId, data: { name: row.name, host } });
    return true;
  });
}

function checkPasskeyName(name: string): string {
  return checkName(name, { param: "name", charsMax: PASSKEY_NAME_CHARS_MAX });
}

/**
 * Records that a passkey has signed a challenge. `replayed`: the challenge was used before or has expired. `cloned`: the counter did not
 * rise, or had not risen at an earlier use: the passkey no longer signs in. `gone`: it was removed.
 */
export async function recordUse(
  deps: ChangeDeps,
  { passkeyId, counter, challenge }: { passkeyId: number; counter: number; challenge: SignedChallenge },
): Promise<"used" | "replayed" | "cloned" | "gone"> {
  const isThis = eq(passkeys.id, passkeyId);
  return changing(deps, async (tx) => {
    if (!(await takeChallenge(tx, challenge))) return "replayed";
    const used = await tx
      .update(passkeys)
      .set({ counter, lastUsedAt: sql`clock_timestamp()` })
      .where(and(isThis, isNull(passkeys.clonedAt), hasRisen(counter)))
      .returning({ id: passkeys.id });
    if (used.length > 0) return "used";
    const marked = await tx
      .update(passkeys)
      .set({ clonedAt: sql`coalesce(${passkeys.clonedAt}, clock_timestamp())` })
      .where(isThis)
      .returning({ id: passkeys.id });
    return marked.length > 0 ? "cloned" : "gone";
  });
}

/** Authenticators that do not count always send 0. Source: W3C Web Authentication Level 3 › 6.1.1. */
function hasRisen(counter: number): SQL | undefined {
  return or(lt(passkeys.counter, counter), counter === 0 ? eq(passkeys.counter, 0) : undefined);
}

/** Uses a challenge up. False: it was used before, or has expired. */
export async function takeChallenge(tx: Tx, { digest, expiresUnixMs }: SignedChallenge): Promise<boolean> {
  const taken = await tx.execute(sql`
    insert into used_challenges (digest, expires_at)
    select ${digest}, at from (select to_timestamp(${expiresUnixMs}::float8 / 1000) as at) expiry where at > clock_timestamp()
    on conflict do nothing returning 1`);
  return taken.length > 0;
}

/** The database's clock, by which challenges expire. */
export async function databaseUnixMs({ db }: { db: Db }): Promise<number> {
  const [row] = await db.orm.execute<{ now: string }>(
    sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now`,
  );
  if (!row) throw new Error("a select returned nothing");
  return Number(row.now);
}

/** Renames one of an account's passkeys. False: no such passkey. Throws InputError. */
export async function renamePasskey(
  deps: ChangeDeps & { by: Actor },
  { accountId, passkeyId, name }: { accountId: number; passkeyId: number; name: string },
): Promise<boolean> {
  const checked = checkPasskeyName(name);
  if (!isRowId(passkeyId)) return false;
  return changing(deps, async (tx) => {
    const renamed = await tx
      .update(passkeys)
      .set({ name: checked })
      .where(and(eq(passkeys.id, passkeyId), eq(passkeys.accountId, accountId)))
      .returning({ id: passkeys.id });
    return renamed.length > 0;
  });
}

/**
 * Removes one of an account's passkeys, tells its owner, and ends its sessions except `keepSession` (a digest). Returns which one the browser may forget;
 * undefined: no such passkey.
 */
export async function removePasskey(
  deps: ChangeDeps,
  { accountId, passkeyId, keepSession }: { accountId: number; passkeyId: number; keepSession: Buffer },
): Promise<{ host: string; credentialId: Buffer } | undefined> {
  if (!isRowId(passkeyId)) return undefined;
  const remove = async (tx: Tx) => {
    await lockAccountRow(tx, accountId);
    const [removed] = await tx
      .delete(passkeys)
      .where(and(eq(passkeys.id, passkeyId), eq(passkeys.accountId, accountId)))
      .returning({ name: passkeys.name, host: passkeys.host, credentialId: passkeys.credentialId });
    if (!removed) return undefined;
    await endSessions(tx, accountId, keepSession);
    await tell(tx, { kind: "passkey_removed", accountId, data: { names: [removed.name] } });
    return removed;
  };
  return changing(deps, remove, { protects: true });
}

/** Removes all of an account's passkeys, tells its owner, and ends its sessions. Returns how many there were. */
export async function removePasskeysOf(deps: ChangeDeps, accountId: number): Promise<number> {
  const remove = async (tx: Tx) => {
    await lockAccountRow(tx, accountId);
    const removed = await tx
      .delete(passkeys)
      .where(eq(passkeys.accountId, accountId))
      .returning({ name: passkeys.name });
    if (removed.length === 0) return 0;
    await endSessions(tx, accountId);
    await tell(tx, { kind: "passkey_removed", accountId, data: { names: removed.map(({ name }) => name) } });
    return removed.length;
  };
  return changing(deps, remove, { protects: true });
}

/** Deletes used challenges that have expired, at most PRUNE_MAX; returns how many. Called by a job. */
export async function pruneChallenges({ db }: { db: Db }): Promise<number> {
  const expired = db.orm
    .select({ digest: usedChallenges.digest })
    .from(usedChallenges)
    .where(lt(usedChallenges.expiresAt, sql`clock_timestamp()`))
    .limit(PRUNE_MAX);
  const deleted = await db.orm
    .delete(usedChallenges)
    .where(sql`${usedChallenges.digest} in ${expired}`)
    .returning({ digest: usedChallenges.digest });
  return deleted.length;
}
