import { and, eq, gt, inArray, not, sql } from "drizzle-orm";
import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import { type Actor, type ChangeDeps, changing } from "../platform/changes_store.ts";
import { digestOfToken, encrypt, newToken } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts, hosts, links } from "../platform/schema_accounts.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { type Account, emailIs, insertAccount, type NewAccount } from "./accounts_store.ts";
import { endEmailChanges } from "./email_changes_store.ts";
import { isItsReseller, reseller, resellerIsActive, signsInOn } from "./reseller_store.ts";
import type { Role } from "./roles.ts";
import { endSessions } from "./sessions_store.ts";

/**
 * Links that set a password: an invitation or a reset that somebody who manages the account made, at most one of an account, and *own*
 * resets, which the person asked for by mail. They are valid side by side, because strangers can ask for an own reset, too; the first
 * that is used ends the others. The database has the digests of their tokens. A link works only on hosts where its account signs in, and
 * does not replace the second factor.
 */

const INVITATION_HOURS = 7 * 24;
const RESET_HOURS = 24;
/** A reset by mail is used at once. */
const OWN_RESET_HOURS = 1;
/**
 * One mail to an account in this time, because anyone can ask for it. The link of the last mail is still valid, so a request in between
 * needs no other.
 */
const OWN_RESET_PAUSE_MINUTES = 5;
/** After this many mails within a day, the pause is as long as a link is valid. */
const OWN_RESETS_QUICK = 3;

export type LinkKind = "invitation" | "reset";
/** A new link. Its `token` cannot be shown again. `expiresAt` is ISO 8601. */
export type NewLink = { kind: LinkKind; token: string; expiresAt: string };
/** A link as the person who opens it sees it. */
export type OpenedLink = { accountId: number; kind: LinkKind; name: string; email: string; expiresAt: string };

/** `config`: encrypts the links of mails. */
type By = ChangeDeps & { by: Actor; config: { secretKey: Uint8Array } };

/** `site`: where the account signs in. `isMailed`: the link is mailed too. */
type Sending = { site: string; isMailed: boolean };

/** Adds an account without a password, and its invitation. Throws InputError. */
export async function inviteAccount(
  deps: By,
  wanted: Omit<NewAccount, "passwordHash">,
  sending: Sending,
): Promise<{ account: Account; link: NewLink }> {
  return changing(deps, async (tx) => {
    const account = await insertAccount(tx, { ...wanted, passwordHash: null });
    return { account, link: await putLink(tx, account.accountId, { ...deps, ...sending }) };
  });
}

/**
 * Creates a link for an account, and replaces the previous one that was made for it: an invitation while it has no password, otherwise a reset. Throws
 * InputError for a suspended account, and for an admin with a password: another admin could impersonate that one unnoticed.
 */
export async function createLink(deps: By, accountId: number, sending: Sending): Promise<NewLink> {
  return changing(deps, (tx) => putLink(tx, accountId, { ...deps, ...sending }));
}

type Putting = Pick<By, "by" | "config"> & Sending;

async function putLink(tx: Tx, accountId: number, { by, config, site, isMailed }: Putting): Promise<NewLink> {
  const [account] = await tx
    .select({ role: accounts.role, status: accounts.status, hasPassword: sql<boolean>`password_hash is not null` })
    .from(accounts)
    .where(eq(accounts.id, accountId))
    .for("no key update");
  if (!account) throw new InputError("There is no such account.", "accountId");
  if (account.status !== "active") throw new InputError("This account is suspended. Activate it first.");
  if (account.role === "admin" && account.hasPassword)
    throw new InputError("An admin's password is reset on the server, with the command: account password.");
  const kind: LinkKind = account.hasPassword ? "reset" : "invitation";
  const { token, digest } = newToken();
  const row = {
    digest,
    kind,
    createdBy: by.accountId,
    createdAt: sql`clock_timestamp()`,
    expiresAt: sql`clock_timestamp() + make_interval(hours => ${kind === "reset" ? RESET_HOURS : INVITATION_HOURS})`,
  };
  const [put] = await tx
    .insert(links)
    .values({ accountId, ...row })
    .onConflictDoUpdate({ target: links.accountId, targetWhere: sql`not is_own`, set: row })
    .returning({ expiresAt: links.expiresAt });
  if (!put) throw new Error("an insert returned nothing");
  const link = { kind, token, expiresAt: toIso(put.expiresAt) };
  // Decided now, and not by the mail server that there may be later: whoever made the link was told whether it is mailed.
  if (!isMailed) return link;
  await holdSecretKey(tx, config.secretKey);
  // The token must not stand in a table: whoever reads it could take the account.
  const urlCiphertext = encrypt(config.secretKey, linkUrl(site, link)).toString("base64");
  await tell(tx, {
    kind: kind === "reset" ? "password_reset" : "invitation",
    accountId,
    data: { urlCiphertext, expiresAt: link.expiresAt },
  });
  return link;
}

/** The pages of links, by what they are for. */
const PAGES = { invitation: "invite", reset: "reset", sign_up: "confirm" } as const;

/** The address of a link's page. */
export function linkUrl(site: string, { kind, token }: { kind: keyof typeof PAGES; token: string }): string {
  return `${site}/${PAGES[kind]}/${token}`;
}

/**
 * Mails a link for the first password to an account that was invited and has none, beside the link that it has. The caller limits how
 * often. Source: SUP-2.
 */
export async function inviteAgain(
  tx: Tx,
  accountId: number,
  { site, secretKey }: { site: string; secretKey: Uint8Array },
): Promise<void> {
  const isOwn = and(eq(links.accountId, accountId), links.isOwn);
  await tx.delete(links).where(and(isOwn, sql`${links.expiresAt} < clock_timestamp()`));
  await mailOwnLink(tx, { accountId, kind: "invitation", hours: RESET_HOURS, site, secretKey });
}

type OwnLink = { accountId: number; kind: LinkKind; hours: number; site: string; secretKey: Uint8Array };

/** Mails a link that the account's owner, or a stranger, asked for. */
async function mailOwnLink(tx: Tx, { accountId, kind, hours, site, secretKey }: OwnLink): Promise<void> {
  const { token, digest } = newToken();
  const expiresAt = sql`clock_timestamp() + make_interval(hours => ${hours})`;
  const [put] = await tx
    .insert(links)
    .values({ digest, kind, accountId, isOwn: true, expiresAt })
    .returning({ expiresAt: links.expiresAt });
  if (!put) throw new Error("an insert returned nothing");
  await holdSecretKey(tx, secretKey);
  const urlCiphertext = encrypt(secretKey, linkUrl(site, { kind, token })).toString("base64");
  const data = { urlCiphertext, expiresAt: toIso(put.expiresAt) };
  await tell(tx, { kind: kind === "reset" ? "password_reset" : "invitation", accountId, data });
}

type Forgotten = {
  email: string;
  /** Who can be mailed. */
  roles: readonly Exclude<Role, "admin">[];
  /** Of the host where it was asked for; null: the service's own. */
  resellerId: number | null;
  /** The origin of the link. */
  site: string;
};

/**
 * Sends a link to the account that signs in with this address on the host, beside the links that it has. Does nothing, and says nothing,
 * if there is no such account, it is suspended or of another role (an admin's always), has no password yet, or was sent a link in the last
 * minutes. Source: SGN-1, SGN-2, SGN-3.
 */
export async function sendOwnReset(
  deps: ChangeDeps & { config: Pick<Config, "secretKey"> },
  { email, roles, resellerId, site }: Forgotten,
): Promise<void> {
  const { secretKey } = deps.config;
  await changing(deps, async (tx) => {
    const [account] = await tx
      .select({ accountId: accounts.id })
      .from(accounts)
      .leftJoin(reseller, isItsReseller)
      .where(
        and(
          emailIs(email),
          signsInOn(resellerId),
          inArray(accounts.role, [...roles]),
          eq(accounts.status, "active"),
          sql`(${accounts.passwordHash} is not null or exists (select from identities i where i.account_id = accounts.id))`,
          resellerIsActive,
        ),
      )
      .for("no key update", { of: accounts });
    if (!account) return;
    const { accountId } = account;
    // The account's row is locked: of concurrent requests, one sends.
    if (!(await mayMailReset(tx, accountId))) return;
    await mailOwnLink(tx, { accountId, kind: "reset", hours: OWN_RESET_HOURS, site, secretKey });
  });
}

/** Whether an account may be mailed another own link by now. Deletes own links of the days before, which count no more. */
async function mayMailReset(tx: Tx, accountId: number): Promise<boolean> {
  const own = and(eq(links.accountId, accountId), links.isOwn);
  await tx.delete(links).where(and(own, sql`${links.createdAt} < clock_timestamp() - interval '1 day'`));
  const pause = sql`case when count(*) < ${OWN_RESETS_QUICK} then make_interval(mins => ${OWN_RESET_PAUSE_MINUTES})
    else make_interval(hours => ${OWN_RESET_HOURS}) end`;
  const [mailed] = await tx
    .select({ isLongAgo: sql<boolean>`coalesce(max(${links.createdAt}) < clock_timestamp() - ${pause}, true)` })
    .from(links)
    .where(own);
  return mailed?.isLongAgo === true;
}

/** The link that was made for an account and has not expired, for those who manage the account. */
export async function pendingLinkOf(
  { db }: { db: Db },
  accountId: number,
): Promise<{ kind: LinkKind; expiresAt: string } | null> {
  const [row] = await db.orm
    .select({ kind: links.kind, expiresAt: links.expiresAt })
    .from(links)
    .where(and(eq(links.accountId, accountId), not(links.isOwn), gt(links.expiresAt, sql`clock_timestamp()`)));
  return row ? { kind: row.kind, expiresAt: toIso(row.expiresAt) } : null;
}

/**
 * Finds a link opened on a host (`resellerId` of the host; null: the service's own). undefined: unknown, used or expired, the account
 * is suspended, or does not sign in there.
 */
export async function findLink(
  { db }: { db: Db },
  { token, resellerId }: { token: string; resellerId: number | null },
): Promise<OpenedLink | undefined> {
  const digest = digestOfToken(token);
  if (digest === undefined) return undefined;
  const [row] = await db.orm
    .select({
      accountId: accounts.id,
      kind: links.kind,
      name: accounts.name,
      email: accounts.email,
      expiresAt: links.expiresAt,
    })
    .from(links)
    .innerJoin(accounts, and(eq(accounts.id, links.accountId), eq(accounts.status, "active")))
    .leftJoin(reseller, isItsReseller)
    .where(
      and(
        eq(links.digest, digest),
        gt(links.expiresAt, sql`clock_timestamp()`),
        resellerIsActive,
        signsInOn(resellerId),
      ),
    );
  return row && { ...row, expiresAt: toIso(row.expiresAt) };
}

/**
 * Sets the password with a link that `findLink` found. All links of the account are deleted; its sessions and its change of
 * address end, and the owner of a changed password is told. Of two concurrent calls one succeeds; the other returns undefined. `totpEnabled`: the person still has to sign in, with a code.
 */
export async function takeLink(
  deps: ChangeDeps,
  { token, accountId, passwordHash }: { token: string; accountId: number; passwordHash: string },
): Promise<{ totpEnabled: boolean } | undefined> {
  const digest = digestOfToken(token);
  if (digest === undefined) return undefined;
  const take = async (tx: Tx) => {
    // Lock order: the account's row before the link's.
    const [account] = await tx
      .select({
        totpEnabled: sql<boolean>`totp_enabled_at is not null`,
        hadPassword: sql<boolean>`password_hash is not null`,
      })
      .from(accounts)
      .where(and(eq(accounts.id, accountId), eq(accounts.status, "active")))
      .for("no key update");
    if (!account) return undefined;
    const used = await tx
      .delete(links)
      .where(and(eq(links.digest, digest), eq(links.accountId, accountId), gt(links.expiresAt, sql`clock_timestamp()`)))
      .returning({ accountId: links.accountId });
    if (used.length === 0) return undefined;
    await tx.delete(links).where(eq(links.accountId, accountId));
    await tx.update(accounts).set({ passwordHash }).where(eq(accounts.id, accountId));
    await endEmailChanges(tx, accountId);
    await endSessions(tx, accountId);
    if (account.hadPassword) await tell(tx, { kind: "password_changed", accountId, data: {} });
    return { totpEnabled: account.totpEnabled };
  };
  return changing(deps, take, { protects: true });
}

/**
 * The domain on which a reseller and its customers sign in: `preferred` if it is one of the reseller's active domains, otherwise the
 * one active for the longest time. undefined: none is active.
 */
export async function signInHostOf(
  { db }: { db: Db },
  { resellerId, preferred }: { resellerId: number; preferred: string },
): Promise<string | undefined> {
  const [row] = await db.orm
    .select({ host: hosts.host })
    .from(hosts)
    .where(and(eq(hosts.resellerId, resellerId), eq(hosts.status, "active")))
    .orderBy(sql`${hosts.host} = ${preferred} desc`, hosts.activatedAt, hosts.host)
    .limit(1);
  return row?.host;
}
