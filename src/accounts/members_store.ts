import { and, asc, eq, isNull, ne, or, type SQL, sql } from "drizzle-orm";
import { InputError, Refusal } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { accounts, sessions } from "../platform/schema_accounts.ts";
import { members } from "../platform/schema_members.ts";
import { isRowId } from "./input_checks.ts";
import { lockAccountRow } from "./locks_store.ts";
import type { MemberRole } from "./member_roles.ts";
import { isItsReseller, reseller, resellerIsActive } from "./reseller_store.ts";

/**
 * Members: who works in which account. Every change locks the account's row, so that of two owners who leave at once one stays. The
 * caches of sessions and tokens learn of it by a trigger. Source: MEM-1, MEM-3, MEM-4.
 */

export type Member = { personId: number; name: string; email: string; role: MemberRole; createdAt: string };
export type MemberOf = { accountId: number; personId: number };

/** The members of an account, the first ones first. */
export async function listMembers({ db }: { db: Db }, accountId: number): Promise<Member[]> {
  return select(db.orm, eq(members.accountId, accountId));
}

/** An account in which a person works. */
export type Workplace = { accountId: number; name: string; role: MemberRole };

/**
 * The accounts in which a person can work on a host (`resellerId` of the host; null: the service's own), the person's own first, without
 * suspended ones.
 */
export async function workplacesOf(
  { db }: { db: Db },
  personId: number,
  resellerId: number | null,
): Promise<Workplace[]> {
  return workplaces(db.orm, personId, resellerId);
}

/** As `workplacesOf`, in the caller's transaction; without `resellerId`, on any host. */
export async function workplaces(tx: Tx, personId: number, resellerId?: number | null): Promise<Workplace[]> {
  const isServed =
    typeof resellerId === "number"
      ? or(eq(accounts.resellerId, resellerId), eq(accounts.id, resellerId))
      : resellerId === null && isNull(accounts.resellerId);
  return tx
    .select({ accountId: accounts.id, name: accounts.name, role: members.role })
    .from(members)
    .innerJoin(accounts, and(eq(accounts.id, members.accountId), eq(accounts.status, "active")))
    .leftJoin(reseller, isItsReseller)
    .where(and(eq(members.personId, personId), isServed || undefined, resellerIsActive))
    .orderBy(sql`${members.accountId} <> ${members.personId}`, asc(accounts.id));
}

/** Gives a member another role. Throws not_found; InputError if no owner would stay. */
export async function changeMember(
  deps: ChangeDeps,
  { role, ...of }: MemberOf & { role: MemberRole },
): Promise<Member> {
  const change = async (tx: Tx) => {
    const before = await lockMember(tx, of);
    requireOwnerItself(deps, before);
    if (before.role === "owner" && role !== "owner") await requireOtherOwner(tx, of);
    if (before.role !== role) await tx.update(members).set({ role }).where(isMember(of));
    return one(tx, of);
  };
  return changing(bySelf(deps, of), change, { protects: true });
}

/**
 * Removes a member and ends their sessions in the account. Their keys stay; their tokens are worth nothing. Throws not_found; InputError
 * if no owner would stay.
 */
export async function removeMember(deps: ChangeDeps, of: MemberOf): Promise<Member> {
  const remove = async (tx: Tx) => {
    const removed = await lockMember(tx, of);
    if (removed.role === "owner") await requireOtherOwner(tx, of);
    await tx.delete(members).where(isMember(of));
    await tx
      .delete(sessions)
      .where(
        and(
          eq(sessions.accountId, of.personId),
          sql`coalesce(${sessions.workAccountId}, ${sessions.accountId}) = ${of.accountId}`,
        ),
      );
    return removed;
  };
  return changing(bySelf(deps, of), remove, { protects: true });
}

/**
 * Locks a membership until the transaction ends, so that nothing is written with a role whose change has returned. Throws
 * insufficient_role if it is another one by now.
 */
export async function requireMember(tx: Tx, { role, ...of }: MemberOf & { role: MemberRole }): Promise<void> {
  const rows = await tx
    .select({ role: members.role })
    .from(members)
    .where(and(isMember(of), eq(members.role, role)))
    .for("share");
  if (rows.length === 0)
    throw new Refusal("insufficient_role", { message: "Your role in this account has just changed." });
}

/** A change of one's own membership ends the role that it is made with: that is checked under the account's lock, not at the end. */
function bySelf(deps: ChangeDeps, { personId }: MemberOf): ChangeDeps {
  return deps.by?.accountId === personId ? { ...deps, by: { ...deps.by, beforeCommit: undefined } } : deps;
}

/** Throws insufficient_role. */
function requireOwnerItself({ by }: ChangeDeps, { personId, role }: Member): void {
  if (by?.accountId === personId && role !== "owner") throw new Refusal("insufficient_role");
}

/** Serializes changes of an account's members. Throws not_found. */
async function lockMember(tx: Tx, of: MemberOf): Promise<Member> {
  await lockAccountRow(tx, of.accountId);
  return one(tx, of);
}

async function one(tx: Tx, of: MemberOf): Promise<Member> {
  const [member] = isRowId(of.personId) ? await select(tx, isMember(of)) : [];
  if (member === undefined) throw new Refusal("not_found", { message: "There is no such member." });
  return member;
}

/**
 * Gives a member the role that an identity provider says, in the caller's transaction. The last owner stays one. False: they are no member,
 * and do not become one. Source: OIDC-5, MEM-3.
 */
export async function giveRole(tx: Tx, { role, ...of }: MemberOf & { role: MemberRole }): Promise<boolean> {
  await lockAccountRow(tx, of.accountId);
  const [before] = await select(tx, isMember(of));
  if (before === undefined) return false;
  const stays = before.role === role || (before.role === "owner" && !(await hasOtherOwner(tx, of)));
  if (!stays) await tx.update(members).set({ role }).where(isMember(of));
  return true;
}

async function requireOtherOwner(tx: Tx, of: MemberOf): Promise<void> {
  if (!(await hasOtherOwner(tx, of)))
    throw new InputError("This is the only owner of the account. Make another member an owner first.", "personId");
}

async function hasOtherOwner(tx: Tx, { accountId, personId }: MemberOf): Promise<boolean> {
  const others = await tx
    .select({ personId: members.personId })
    .from(members)
    .where(and(eq(members.accountId, accountId), eq(members.role, "owner"), ne(members.personId, personId)))
    .limit(1);
  return others.length > 0;
}

function isMember({ accountId, personId }: MemberOf): SQL | undefined {
  return and(eq(members.accountId, accountId), eq(members.personId, personId));
}

async function select(tx: Tx, where: SQL | undefined): Promise<Member[]> {
  const rows = await tx
    .select({
      personId: members.personId,
      name: accounts.name,
      email: accounts.email,
      role: members.role,
      createdAt: members.createdAt,
    })
    .from(members)
    .innerJoin(accounts, eq(accounts.id, members.personId))
    .where(where)
    .orderBy(members.createdAt, members.personId);
  return rows.map((row) => ({ ...row, createdAt: toIso(row.createdAt) }));
}
