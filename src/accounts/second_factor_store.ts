import { and, eq, isNotNull, isNull, lt, sql } from "drizzle-orm";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { encrypt } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts, recoveryCodes } from "../platform/schema_accounts.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { noteAction } from "./audit_store.ts";
import { endSessions } from "./sessions_store.ts";

/** The second factor in the database. Each condition is part of the statement that writes: of two concurrent calls, one succeeds. */

export type StoredTotp = {
  /** The encrypted secret; pending until `enabled`. */
  ciphertext: Buffer | null;
  enabled: boolean;
  /** The database's clock. */
  nowUnixMs: number;
};

/** The stored secret of an account's app. */
export async function loadTotp({ db }: { db: Db }, accountId: number): Promise<StoredTotp | undefined> {
  const [row] = await db.orm
    .select({
      ciphertext: accounts.totpCiphertext,
      enabled: sql<boolean>`${accounts.totpEnabledAt} is not null`,
      nowUnixMs: sql`floor(extract(epoch from clock_timestamp()) * 1000)::float8`.mapWith(Number),
    })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  return row;
}

/** The state of the second factor, for the account's settings. */
export async function secondFactorOf(
  { db }: { db: Db },
  accountId: number,
): Promise<{ totpEnabled: boolean; recoveryCodesLeft: number }> {
  const [row] = await db.orm
    .select({
      totpEnabled: sql<boolean>`${accounts.totpEnabledAt} is not null`,
      recoveryCodesLeft: sql<number>`(select count(*)::int from recovery_codes where account_id = ${accountId})`,
    })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  return row ?? { totpEnabled: false, recoveryCodesLeft: 0 };
}

/**
 * Stores an unconfirmed secret, encrypted with `secretKey`. False: the second factor is on. Throws service_unavailable if the database
 * has another SECRET_KEY.
 */
export async function putPendingTotp(
  deps: ChangeDeps,
  { accountId, secret, secretKey }: { accountId: number; secret: string; secretKey: Uint8Array },
): Promise<boolean> {
  const ciphertext = encrypt(secretKey, secret);
  return changing(deps, async (tx) => {
    await holdSecretKey(tx, secretKey);
    const put = await tx
      .update(accounts)
      // The steps used with the previous secret do not matter for the new one.
      .set({ totpCiphertext: ciphertext, totpLastStep: 0 })
      .where(and(eq(accounts.id, accountId), isNull(accounts.totpEnabledAt)))
      .returning({ id: accounts.id });
    return put.length > 0;
  });
}

export type EnabledTotp = {
  accountId: number;
  /** The pending secret whose code was checked. */
  ciphertext: Buffer;
  step: number;
  digests: readonly Buffer[];
  keepSession: Buffer;
};

/** Enables the pending secret, stores the recovery codes, ends all sessions but one. False: another secret is pending, or one is enabled. */
export async function enableTotp(
  deps: ChangeDeps,
  { accountId, ciphertext, step, digests, keepSession }: EnabledTotp,
): Promise<boolean> {
  return changing(deps, async (tx) => {
    const enabled = await tx
      .update(accounts)
      .set({ totpEnabledAt: sql`clock_timestamp()`, totpLastStep: step })
      .where(and(eq(accounts.id, accountId), isNull(accounts.totpEnabledAt), eq(accounts.totpCiphertext, ciphertext)))
      .returning({ id: accounts.id });
    if (enabled.length === 0) return false;
    await putRecoveryCodes(tx, accountId, digests);
    await endSessions(tx, accountId, keepSession);
    return true;
  });
}

/** Uses up all codes up to `step`. False: it was used before, or the secret has changed. */
export async function takeTotpStep(
  deps: ChangeDeps,
  { accountId, ciphertext, step }: { accountId: number; ciphertext: Buffer; step: number },
): Promise<boolean> {
  return changing(deps, async (tx) => {
    const taken = await tx
      .update(accounts)
      .set({ totpLastStep: step })
      .where(
        and(
          eq(accounts.id, accountId),
          isNotNull(accounts.totpEnabledAt),
          eq(accounts.totpCiphertext, ciphertext),
          lt(accounts.totpLastStep, step),
        ),
      )
      .returning({ id: accounts.id });
    return taken.length > 0;
  });
}

/** Uses up a recovery code. False: no such code, or already used. */
export async function takeRecoveryCode({ db }: { db: Db }, accountId: number, digest: Buffer): Promise<boolean> {
  const taken = await db.orm
    .delete(recoveryCodes)
    .where(and(eq(recoveryCodes.accountId, accountId), eq(recoveryCodes.digest, digest)))
    .returning({ accountId: recoveryCodes.accountId });
  return taken.length > 0;
}

/** Replaces the recovery codes. False: the second factor is off. */
export async function replaceRecoveryCodes(
  deps: ChangeDeps,
  accountId: number,
  digests: readonly Buffer[],
): Promise<boolean> {
  return changing(deps, async (tx) => {
    const locked = await tx
      .select({ id: accounts.id })
      .from(accounts)
      .where(and(eq(accounts.id, accountId), isNotNull(accounts.totpEnabledAt)))
      .for("no key update");
    if (locked.length === 0) return false;
    await putRecoveryCodes(tx, accountId, digests);
    const entry = { subject: "recovery_codes", before: null, after: { codes: digests.length } };
    if (deps.by) await noteAction(tx, deps.by, { action: "changed", accountId, ...entry });
    return true;
  });
}

/**
 * Removes the second factor, also a pending one, and ends the account's sessions except `keepSession`. Its owner is told if it was on.
 * False: there was none. Source: SGN-14.
 */
export async function removeTotp(deps: ChangeDeps, accountId: number, keepSession?: Buffer): Promise<boolean> {
  const remove = async (tx: Tx) => {
    const [before] = await tx
      .select({ enabledAt: accounts.totpEnabledAt })
      .from(accounts)
      .where(eq(accounts.id, accountId))
      .for("no key update");
    const removed = await tx
      .update(accounts)
      .set({ totpCiphertext: null, totpEnabledAt: null, totpLastStep: 0 })
      .where(and(eq(accounts.id, accountId), isNotNull(accounts.totpCiphertext)))
      .returning({ id: accounts.id });
    if (removed.length === 0) return false;
    await putRecoveryCodes(tx, accountId, []);
    await endSessions(tx, accountId, keepSession);
    if (before?.enabledAt) await tell(tx, { kind: "second_factor_off", accountId, data: {} });
    return true;
  };
  return changing(deps, remove, { protects: true });
}

/** The caller has locked the account's row. */
async function putRecoveryCodes(tx: Tx, accountId: number, digests: readonly Buffer[]): Promise<void> {
  await tx.delete(recoveryCodes).where(eq(recoveryCodes.accountId, accountId));
  if (digests.length > 0) await tx.insert(recoveryCodes).values(digests.map((digest) => ({ accountId, digest })));
}
