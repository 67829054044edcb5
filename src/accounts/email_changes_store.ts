import { and, count, eq, gt, isNull, ne, or, type SQL, sql } from "drizzle-orm";
import type { Config } from "../config.ts";
import { InputError, sentence } from "../errors.ts";
import { type Actor, type ChangeDeps, changing } from "../platform/changes_store.ts";
import { digestOfToken, encrypt, newToken } from "../platform/crypto.ts";
import { type Db, sqlState, type Tx, UNIQUE_VIOLATION } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts, links } from "../platform/schema_accounts.ts";
import { emailChanges } from "../platform/schema_sign_in.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { emailTaken } from "./accounts_store.ts";
import { checkEmail } from "./input_checks.ts";
import { lockAccountRow, lockMailedAddress } from "./locks_store.ts";
import { isItsReseller, reseller, resellerIsActive, signsInOn } from "./reseller_store.ts";
import type { Role } from "./roles.ts";
import { endSessions } from "./sessions_store.ts";

/**
 * Changes of an account's own e-mail address. Links go to the old and to the new address; the change is made when both have confirmed
 * it. Asking never reveals whether the new address is in use: only who reads its mail is told. Source: SGN-5, SGN-6, SGN-7.
 */

const LINK_HOURS = 24;
/** Each sends mail to an address that somebody typed. */
const CHANGES_PER_DAY_MAX = 5;
/** Of all accounts of a tenant: many accounts could otherwise mail one person as often as they like. */
const TO_ADDRESS_PER_DAY_MAX = 5;

/** The address that a link was sent to. */
export type Side = "old" | "new";
/** A change that is not complete. `expiresAt` is ISO 8601. */
export type PendingEmailChange = {
  newEmail: string;
  oldConfirmed: boolean;
  newConfirmed: boolean;
  expiresAt: string;
};
/** A change as the person who opens a link sees it. `isConfirmed`: by this link. */
export type OpenedEmailChange = { side: Side; newEmail: string; isConfirmed: boolean; expiresAt: string };

type Deps = ChangeDeps & { by: Actor; config: Pick<Config, "secretKey"> };
type Wanted = {
  accountId: number;
  email: string;
  /** The digest of the session that asks; it goes on after the change. */
  sessionDigest: Buffer;
  /** The origin of the links. */
  site: string;
};

/**
 * Sends the two links, and ends an earlier change that is not complete. Throws InputError for `email`: no address, the present one, or
 * too many changes within 24 hours, of this account or to this address.
 */
export async function beginEmailChange(
  deps: Deps,
  { accountId, email, sessionDigest, site }: Wanted,
): Promise<PendingEmailChange> {
  const newEmail = checkEmail(email);
  const { secretKey } = deps.config;
  return changing(deps, async (tx) => {
    await lockAccountRow(tx, accountId);
    const [account] = await tx
      .select({ email: accounts.email, resellerId: accounts.resellerId })
      .from(accounts)
      .where(eq(accounts.id, accountId));
    const oldEmail = account?.email ?? "";
    if (newEmail === oldEmail.toLowerCase()) throw new InputError("This is already your e-mail address.", "email");
    await checkChangesPerDay(tx, { accountId, newEmail, tenantId: account?.resellerId ?? 0 });
    await endEmailChanges(tx, accountId);
    const [old, fresh] = [newToken(), newToken()];
    const [put] = await tx
      .insert(emailChanges)
      .values({
        ...{ accountId, oldEmail, newEmail, sessionDigest, oldDigest: old.digest, newDigest: fresh.digest },
        expiresAt: sql`clock_timestamp() + make_interval(hours => ${LINK_HOURS})`,
      })
      .returning({ expiresAt: emailChanges.expiresAt });
    if (!put) throw new Error("an insert returned nothing");
    await holdSecretKey(tx, secretKey);
    const expiresAt = toIso(put.expiresAt);
    for (const [to, token] of [["old", old.token] as const, ["new", fresh.token] as const]) {
      const urlCiphertext = encrypt(secretKey, `${site}/email/${token}`).toString("base64");
      await tell(tx, { kind: "email_change", accountId, data: { urlCiphertext, to, address: newEmail, expiresAt } });
    }
    return { newEmail, oldConfirmed: false, newConfirmed: false, expiresAt };
  });
}

async function checkChangesPerDay(
  tx: Tx,
  { accountId, newEmail, tenantId }: { accountId: number; newEmail: string; tenantId: number },
): Promise<void> {
  const isToday = gt(emailChanges.createdAt, sql`clock_timestamp() - make_interval(hours => 24)`);
  const today = async (where: SQL) =>
    (await tx.select({ asked: count() }).from(emailChanges).where(and(where, isToday)))[0]?.asked ?? 0;
  if ((await today(eq(emailChanges.accountId, accountId))) >= CHANGES_PER_DAY_MAX)
    throw new InputError(
      sentence("You have asked for {changesPerDayMax} changes within 24 hours. Try again tomorrow.", {
        changesPerDayMax: CHANGES_PER_DAY_MAX,
      }),
      "email",
    );
  await lockMailedAddress(tx, { kind: "email_change", tenantId, email: newEmail });
  const toAddress = sql`${emailChanges.newEmail} = ${newEmail} and coalesce((select a.reseller_id from accounts a
    where a.id = ${emailChanges.accountId}), 0) = ${tenantId}`;
  if ((await today(toAddress)) >= TO_ADDRESS_PER_DAY_MAX)
    throw new InputError("Changes to this address were asked for often within 24 hours. Try again tomorrow.", "email");
}

/** Ends a change that is not complete: a later one replaces it, or the password has changed. The caller has locked the account's row. */
export async function endEmailChanges(tx: Tx, accountId: number): Promise<void> {
  await tx.update(emailChanges).set({ outcome: "replaced" }).where(isPendingOf(accountId));
}

/** Cancels an account's own change. False: none is pending. */
export async function cancelEmailChange(deps: ChangeDeps, accountId: number): Promise<boolean> {
  const cancel = async (tx: Tx) => {
    await lockAccountRow(tx, accountId);
    const ended = await tx
      .update(emailChanges)
      .set({ outcome: "cancelled" })
      .where(isPendingOf(accountId))
      .returning({ id: emailChanges.id });
    return ended.length > 0;
  };
  return changing(deps, cancel, { protects: true });
}

function isPendingOf(accountId: number): SQL | undefined {
  return and(eq(emailChanges.accountId, accountId), isNull(emailChanges.outcome));
}

/** An account's change that still waits for a confirmation; null: none. */
export async function pendingEmailChangeOf({ db }: { db: Db }, accountId: number): Promise<PendingEmailChange | null> {
  const [row] = await db.orm
    .select({
      newEmail: emailChanges.newEmail,
      oldConfirmed: sql<boolean>`${emailChanges.oldConfirmedAt} is not null`,
      newConfirmed: sql<boolean>`${emailChanges.newConfirmedAt} is not null`,
      expiresAt: emailChanges.expiresAt,
    })
    .from(emailChanges)
    .where(and(isPendingOf(accountId), isLive()));
  return row ? { ...row, expiresAt: toIso(row.expiresAt) } : null;
}

function isLive(): SQL | undefined {
  return and(isNull(emailChanges.outcome), gt(emailChanges.expiresAt, sql`clock_timestamp()`));
}

type Opened = OpenedEmailChange & { changeId: number; accountId: number; role: Role; resellerId: number | null };

/**
 * Finds the change whose link is opened on a host (`resellerId` of the host; null: the service's own). undefined: unknown, ended or
 * expired, the account is suspended, or does not sign in there.
 */
export async function findEmailChange(
  { db }: { db: Db },
  { token, resellerId }: { token: string; resellerId: number | null },
): Promise<Opened | undefined> {
  const digest = digestOfToken(token);
  if (digest === undefined) return undefined;
  const [row] = await db.orm
    .select({
      changeId: emailChanges.id,
      accountId: accounts.id,
      role: accounts.role,
      resellerId: accounts.resellerId,
      side: sql<Side>`case ${emailChanges.oldDigest} when ${digest} then 'old' else 'new' end`,
      newEmail: emailChanges.newEmail,
      isConfirmed: sql<boolean>`case ${emailChanges.oldDigest} when ${digest}
        then ${emailChanges.oldConfirmedAt} else ${emailChanges.newConfirmedAt} end is not null`,
      expiresAt: emailChanges.expiresAt,
    })
    .from(emailChanges)
    .innerJoin(accounts, and(eq(accounts.id, emailChanges.accountId), eq(accounts.status, "active")))
    .leftJoin(reseller, isItsReseller)
    .where(
      and(
        or(eq(emailChanges.oldDigest, digest), eq(emailChanges.newDigest, digest)),
        isLive(),
        resellerIsActive,
        signsInOn(resellerId),
      ),
    );
  return row && { ...row, expiresAt: toIso(row.expiresAt) };
}

/**
 * Confirms or cancels a change that `findEmailChange` found. `changed`: both have confirmed; the account's other sessions and its
 * password link have ended. undefined: it has ended meanwhile. Throws InputError if another account of the tenant has the new address.
 */
export async function answerEmailChange(
  deps: ChangeDeps,
  opened: Opened,
  answer: "confirm" | "cancel",
): Promise<"waiting" | "changed" | "cancelled" | undefined> {
  const { changeId, accountId, side } = opened;
  const isThis = and(eq(emailChanges.id, changeId), isLive());
  const answered = async (tx: Tx) => {
    await lockTenantRows(tx, opened);
    if (answer === "cancel") {
      const ended = await tx.update(emailChanges).set({ outcome: "cancelled" }).where(isThis).returning();
      return ended.length > 0 ? "cancelled" : undefined;
    }
    // The first confirmation counts: a link may be opened twice.
    const at = sql`clock_timestamp()`;
    const [change] = await tx
      .update(emailChanges)
      .set(
        side === "old"
          ? { oldConfirmedAt: sql`coalesce(${emailChanges.oldConfirmedAt}, ${at})` }
          : { newConfirmedAt: sql`coalesce(${emailChanges.newConfirmedAt}, ${at})` },
      )
      .where(isThis)
      .returning();
    if (!change) return undefined;
    const isComplete = change.oldConfirmedAt !== null && change.newConfirmedAt !== null;
    if (!isComplete && side === "old") return "waiting";
    if (await isTaken(tx, opened)) throw emailTaken();
    if (!isComplete) return "waiting";
    await tx.update(accounts).set({ email: change.newEmail }).where(eq(accounts.id, accountId));
    await tx.update(emailChanges).set({ outcome: "changed" }).where(eq(emailChanges.id, changeId));
    // It was sent to the old address.
    await tx.delete(links).where(eq(links.accountId, accountId));
    await endSessions(tx, accountId, change.sessionDigest);
    return "changed";
  };
  return changing(deps, answered, { protects: answer === "cancel" }).catch((error: unknown) => {
    // Taken by an account that was added, or changed, between the question above and the update.
    throw sqlState(error) === UNIQUE_VIOLATION ? emailTaken() : error;
  });
}

/** Locks the reseller's row, whose own address its customers may not have, then the account's. */
async function lockTenantRows(tx: Tx, { accountId, resellerId }: Opened): Promise<void> {
  if (resellerId !== null)
    await tx.select({ id: accounts.id }).from(accounts).where(eq(accounts.id, resellerId)).for("share");
  await lockAccountRow(tx, accountId);
}

/** Whether another account that signs in on the same hosts has the address. */
async function isTaken(tx: Tx, { accountId, resellerId, newEmail }: Opened): Promise<boolean> {
  const [row] = await tx
    .select({ id: accounts.id })
    .from(accounts)
    .where(
      and(
        sql`lower(${accounts.email}) = ${newEmail}`,
        ne(accounts.id, accountId),
        or(
          sql`coalesce(${accounts.resellerId}, 0) = ${resellerId ?? 0}`,
          eq(accounts.resellerId, accountId),
          resellerId === null ? undefined : eq(accounts.id, resellerId),
        ),
      ),
    )
    .limit(1);
  return row !== undefined;
}

/** Deletes changes that count towards no limit any more and whose links have expired. Called by a job. */
export async function pruneEmailChanges({ db }: { db: Db }): Promise<void> {
  await db.orm
    .delete(emailChanges)
    .where(sql`${emailChanges.createdAt} < clock_timestamp() - make_interval(hours => ${2 * LINK_HOURS})`);
}
