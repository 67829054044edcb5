import { and, count, eq, gt, isNull, lt, type SQL, sql } from "drizzle-orm";
import { InputError, Refusal, sentence } from "../errors.ts";
import { MEMBERS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { digestOfToken, encrypt, newToken } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { memberInvitations, members } from "../platform/schema_members.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { emailIs, insertAccount } from "./accounts_store.ts";
import { checkEmail, isRowId } from "./input_checks.ts";
import { lockAccountRow, lockMailedAddress } from "./locks_store.ts";
import type { MemberRole } from "./member_roles.ts";
import { isItsReseller, reseller, resellerIsActive } from "./reseller_store.ts";

/**
 * Invitations of members. The link is only mailed: whoever opens it reads the address's mail. It works once, until its end, on the hosts of
 * the account's tenant. Whether the address belongs to a person already is told to nobody but its reader. Source: MEM-5.
 */

const LINK_HOURS = 7 * 24;
/** Each sends mail to an address that somebody typed. */
const OF_ACCOUNT_PER_DAY_MAX = 20;
const TO_ADDRESS_PER_DAY_MAX = 5;
/** Ended invitations are kept for the limits; their audit entries stay. */
const KEPT_DAYS = 30;
const PRUNE_MAX = 1000;

export type Invitation = {
  invitationId: number;
  email: string;
  role: MemberRole;
  createdAt: string;
  expiresAt: string;
};
/** As the person who opens it sees it. `isNew`: the address belongs to nobody here yet. */
export type OpenedInvitation = {
  accountId: number;
  accountName: string;
  email: string;
  role: MemberRole;
  isNew: boolean;
  expiresAt: string;
};

type Wanted = { accountId: number; email: string; role: MemberRole; site: string };

/** Mails an invitation, which replaces an earlier one of the address. Throws InputError. */
export async function inviteMember(
  deps: ChangeDeps & { config: { secretKey: Uint8Array } },
  { accountId, role, site, ...typed }: Wanted,
): Promise<Invitation> {
  const email = checkEmail(typed.email);
  const { secretKey } = deps.config;
  return changing(deps, async (tx) => {
    await lockAccountRow(tx, accountId);
    const [account] = await tx
      .select({ resellerId: accounts.resellerId, status: accounts.status, language: accounts.language })
      .from(accounts)
      .where(eq(accounts.id, accountId));
    if (account?.status !== "active") throw new InputError("This account is suspended. Activate it first.");
    await checkMembers(tx, { accountId, email });
    await checkPerDay(tx, { accountId, email, resellerId: account.resellerId });
    await tx
      .update(memberInvitations)
      .set({ outcome: "replaced" })
      .where(and(isPendingOf(accountId), eq(memberInvitations.email, email)));
    const { token, digest } = newToken();
    const [put] = await tx
      .insert(memberInvitations)
      .values({
        ...{ accountId, email, role, digest, createdBy: deps.by?.accountId },
        expiresAt: sql`clock_timestamp() + make_interval(hours => ${LINK_HOURS})`,
      })
      .returning(COLUMNS);
    if (!put) throw new Error("an insert returned nothing");
    await holdSecretKey(tx, secretKey);
    const urlCiphertext = encrypt(secretKey, `${site}/join/${token}`).toString("base64");
    const invitation = shown(put);
    await tell(tx, {
      kind: "member_invitation",
      accountId: account.resellerId ?? 0,
      data: { urlCiphertext, expiresAt: invitation.expiresAt, address: email, language: account.language },
    });
    return invitation;
  });
}

/** The invitations of an account that can still be accepted. */
export async function listInvitations({ db }: { db: Db }, accountId: number): Promise<Invitation[]> {
  const rows = await db.orm
    .select(COLUMNS)
    .from(memberInvitations)
    .where(isPendingOf(accountId))
    .orderBy(memberInvitations.id);
  return rows.map(shown);
}

/** Ends an invitation. Throws not_found. */
export async function revokeInvitation(
  deps: ChangeDeps,
  { accountId, invitationId }: { accountId: number; invitationId: number },
): Promise<Invitation> {
  const revoke = async (tx: Tx) => {
    const [ended] = isRowId(invitationId)
      ? await tx
          .update(memberInvitations)
          .set({ outcome: "revoked" })
          .where(and(isPendingOf(accountId), eq(memberInvitations.id, invitationId)))
          .returning(COLUMNS)
      : [];
    if (!ended) throw new Refusal("not_found", { message: "There is no such invitation." });
    return shown(ended);
  };
  return changing(deps, revoke, { protects: true });
}

/** An invitation that is opened on a host (`resellerId` of the host; null: the service's own). undefined: it works no more, or not there. */
export async function findInvitation(
  { db }: { db: Db },
  { token, resellerId }: { token: string; resellerId: number | null },
): Promise<OpenedInvitation | undefined> {
  const digest = digestOfToken(token);
  if (digest === undefined) return undefined;
  const [row] = await db.orm
    .select({
      accountId: accounts.id,
      accountName: accounts.name,
      email: memberInvitations.email,
      role: memberInvitations.role,
      isNew: sql<boolean>`not exists (select from accounts p where lower(p.email) = ${memberInvitations.email}
        and coalesce(p.reseller_id, 0) = coalesce(${accounts.resellerId}, 0))`,
      expiresAt: memberInvitations.expiresAt,
    })
    .from(memberInvitations)
    .innerJoin(accounts, and(eq(accounts.id, memberInvitations.accountId), eq(accounts.status, "active")))
    .leftJoin(reseller, isItsReseller)
    .where(
      and(
        eq(memberInvitations.digest, digest),
        isPending,
        sql`coalesce(${accounts.resellerId}, 0) = ${resellerId ?? 0}`,
        resellerIsActive,
      ),
    );
  return row && { ...row, expiresAt: toIso(row.expiresAt) };
}

/** Who accepts: a new person, or one who has just proved to be the one with the address. */
export type Joining = { name: string; passwordHash: string } | { personId: number };

/**
 * Accepts an invitation that `findInvitation` found. Of two concurrent calls one succeeds; the other returns undefined. Returns the person.
 * Throws InputError if the person cannot be a member.
 */
export async function acceptInvitation(
  deps: ChangeDeps & { by?: never },
  { token, accountId, requestId, joining }: { token: string; accountId: number; requestId: string; joining: Joining },
): Promise<{ personId: number } | undefined> {
  const digest = digestOfToken(token);
  if (digest === undefined) return undefined;
  return changing(deps, async (tx) => {
    // Lock order: the account's row before the invitation's.
    await lockAccountRow(tx, accountId);
    const [taken] = await tx
      .update(memberInvitations)
      .set({ outcome: "accepted" })
      .where(and(isPendingOf(accountId), eq(memberInvitations.digest, digest)))
      .returning({ email: memberInvitations.email, role: memberInvitations.role });
    if (!taken) return undefined;
    await checkMembers(tx, { accountId, email: null });
    const personId = await personOf(tx, { accountId, email: taken.email, joining });
    // The audit log names who joins, also a person who was unknown when the transaction began.
    await tx.execute(
      sql`select set_config('tollgate.actor_id', ${String(personId)}, true), set_config('tollgate.request_id', ${requestId}, true)`,
    );
    await tx.insert(members).values({ accountId, personId, role: taken.role }).onConflictDoNothing();
    return { personId };
  });
}

async function personOf(
  tx: Tx,
  { accountId, email, joining }: { accountId: number; email: string; joining: Joining },
): Promise<number> {
  const [account] = await tx
    .select({ resellerId: accounts.resellerId, status: accounts.status })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  if (account?.status !== "active") throw cannotJoin();
  const { resellerId } = account;
  if (!("personId" in joining)) {
    const person = { role: "customer", resellerId, email, ...joining, onlyPerson: true } as const;
    return (await insertAccount(tx, person)).accountId;
  }
  const found = await tx
    .select({ id: accounts.id })
    .from(accounts)
    .where(
      and(
        eq(accounts.id, joining.personId),
        emailIs(email),
        eq(accounts.status, "active"),
        // Another tenant's person, and an admin, work in no account of this one.
        sql`coalesce(${accounts.resellerId}, 0) = ${resellerId ?? 0} and ${accounts.role} <> 'admin'`,
      ),
    )
    .for("share");
  if (found.length === 0) throw cannotJoin();
  return joining.personId;
}

function cannotJoin(): InputError {
  return new InputError("With this address you cannot join this account. Ask for an invitation to another address.");
}

/** Deletes old invitations, at most PRUNE_MAX; returns how many. Called by a job. */
export async function pruneInvitations({ db }: { db: Db }): Promise<number> {
  const old = db.orm
    .select({ id: memberInvitations.id })
    .from(memberInvitations)
    .where(lt(memberInvitations.createdAt, sql`clock_timestamp() - make_interval(days => ${KEPT_DAYS})`))
    .limit(PRUNE_MAX);
  const deleted = await db.orm
    .delete(memberInvitations)
    .where(sql`${memberInvitations.id} in ${old}`)
    .returning({ id: memberInvitations.id });
  return deleted.length;
}

/** An account has at most MEMBERS_MAX members, with those who are invited to (another than) `email`. Throws InputError. */
export async function checkMembers(
  tx: Tx,
  { accountId, email }: { accountId: number; email: string | null },
): Promise<void> {
  const [row] = await tx
    .select({
      members: count(),
      isMember: sql<boolean>`coalesce(bool_or(lower(${accounts.email}) = ${email}), false)`,
      invited: sql<number>`(select count(*)::int from member_invitations i where i.account_id = ${accountId}
        and i.outcome is null and i.expires_at > clock_timestamp() and i.email <> ${email ?? ""})`,
    })
    .from(members)
    .innerJoin(accounts, eq(accounts.id, members.personId))
    .where(eq(members.accountId, accountId));
  if (row?.isMember) throw new InputError("This person is already a member.", "email");
  if (row && row.members + row.invited >= MEMBERS_MAX)
    throw new InputError(
      sentence("An account may have {membersMax} members. Remove one, or an invitation, first.", {
        membersMax: MEMBERS_MAX,
      }),
    );
}

/** Of the account, and to the address from its whole tenant. */
async function checkPerDay(
  tx: Tx,
  { accountId, email, resellerId }: { accountId: number; email: string; resellerId: number | null },
): Promise<void> {
  const isToday = gt(memberInvitations.createdAt, sql`clock_timestamp() - interval '24 hours'`);
  const today = async (where: SQL) =>
    (await tx.select({ sent: count() }).from(memberInvitations).where(and(where, isToday)))[0]?.sent ?? 0;
  if ((await today(eq(memberInvitations.accountId, accountId))) >= OF_ACCOUNT_PER_DAY_MAX)
    throw new InputError(
      sentence("An account invites {ofAccountPerDayMax} times within 24 hours. Try again tomorrow.", {
        ofAccountPerDayMax: OF_ACCOUNT_PER_DAY_MAX,
      }),
    );
  await lockMailedAddress(tx, { kind: "member_invitation", tenantId: resellerId ?? 0, email });
  const toAddress = sql`${memberInvitations.email} = ${email} and coalesce((select a.reseller_id from accounts a
    where a.id = ${memberInvitations.accountId}), 0) = ${resellerId ?? 0}`;
  if ((await today(toAddress)) >= TO_ADDRESS_PER_DAY_MAX)
    throw new InputError("This address was invited often within 24 hours. Try again tomorrow.", "email");
}

const isPending = and(isNull(memberInvitations.outcome), gt(memberInvitations.expiresAt, sql`clock_timestamp()`));

function isPendingOf(accountId: number): SQL | undefined {
  return and(eq(memberInvitations.accountId, accountId), isPending);
}

const COLUMNS = {
  invitationId: memberInvitations.id,
  email: memberInvitations.email,
  role: memberInvitations.role,
  createdAt: memberInvitations.createdAt,
  expiresAt: memberInvitations.expiresAt,
};

function shown<Row extends { createdAt: string; expiresAt: string }>(row: Row): Row {
  return { ...row, createdAt: toIso(row.createdAt), expiresAt: toIso(row.expiresAt) };
}
