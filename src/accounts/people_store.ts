import { and, desc, eq, lt, or, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { InputError } from "../errors.ts";
import type { Bus } from "../platform/bus.ts";
import { changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { accounts, balances, sessions } from "../platform/schema.ts";
import { checkEmail, checkName, isRowId, toIso } from "./checks.ts";
import { lockAccounts, lockTenant } from "./locks_store.ts";

/** Accounts: customers, resellers and admins. A customer may belong to a reseller, for good: that is its tenant. */

const NAME_CHARS_MAX = 100;
const PAGE_MAX = 1000;

export type Role = "customer" | "reseller" | "admin";

export type Account = {
  accountId: number;
  role: Role;
  /** The reseller a customer belongs to, or null. */
  resellerId: number | null;
  email: string;
  name: string;
  status: "active" | "suspended";
  hasPassword: boolean;
  balanceNanoUsd: bigint;
  heldNanoUsd: bigint;
  paygEnabled: boolean;
  createdAt: string;
};

export type NewAccount = {
  role: Role;
  email: string;
  name: string;
  resellerId: number | null;
  passwordHash: string | null;
};

/** Adds an account with an empty balance. Throws InputError. */
export async function addAccount(
  deps: { db: Db; bus: Bus },
  { role, email, name, resellerId, passwordHash }: NewAccount,
): Promise<Account> {
  const row = {
    role,
    email: checkEmail(email),
    name: checkName(name, { param: "name", charsMax: NAME_CHARS_MAX }),
    resellerId,
    passwordHash,
  };
  if (resellerId !== null && role !== "customer")
    throw new InputError("Only a customer can belong to a reseller.", "resellerId");
  return changing(deps, async (tx) => {
    if (resellerId !== null) await checkReseller(tx, resellerId, row.email);
    const [added] = await tx.insert(accounts).values(row).onConflictDoNothing().returning({ accountId: accounts.id });
    if (!added) throw emailTaken();
    await tx.insert(balances).values({ accountId: added.accountId });
    const account = await find(tx, eq(accounts.id, added.accountId));
    if (!account) throw new Error(`account ${added.accountId} vanished`);
    return account;
  });
}

async function checkReseller(tx: Tx, resellerId: number, email: string): Promise<void> {
  const reseller = isRowId(resellerId) ? await find(tx, eq(accounts.id, resellerId)) : undefined;
  if (reseller?.role !== "reseller") throw new InputError("There is no such reseller.", "resellerId");
  // Both sign in on the reseller's host, where an address must mean one person.
  if (reseller.email === email) throw emailTaken();
}

/** Accounts, newest first. `before` is the last id of the page before; `resellerId` lists its customers. */
export async function listAccounts(
  { db }: { db: Db },
  { role, resellerId, before, limit = 100 }: { role?: Role; resellerId?: number; before?: number; limit?: number } = {},
): Promise<{ rows: Account[]; hasMore: boolean }> {
  const size = Math.min(Math.max(limit, 1), PAGE_MAX);
  const rows = await select(
    db.orm,
    and(
      role === undefined ? undefined : eq(accounts.role, role),
      resellerId === undefined ? undefined : eq(accounts.resellerId, resellerId),
      before === undefined ? undefined : lt(accounts.id, before),
    ),
    size + 1,
  );
  return { rows: rows.slice(0, size), hasMore: rows.length > size };
}

/** One account; with `resellerId` only if it is that reseller's customer. */
export async function findAccount(
  { db }: { db: Db },
  accountId: number,
  resellerId?: number,
): Promise<Account | undefined> {
  if (!isRowId(accountId)) return undefined;
  return find(
    db.orm,
    and(eq(accounts.id, accountId), resellerId === undefined ? undefined : eq(accounts.resellerId, resellerId)),
  );
}

/** Every account with this address, one a tenant at most. */
export async function findAccountsByEmail({ db }: { db: Db }, email: string): Promise<Account[]> {
  return select(db.orm, emailIs(email), PAGE_MAX);
}

/** `suspended`: the account or its reseller is. */
export type SignIn = { accountId: number; role: Role; passwordHash: string | null; suspended: boolean };

/**
 * Who signs in with this address: on a reseller's host that reseller or one of its customers, on the service's own host
 * (`resellerId` null) anybody who belongs to no reseller. Source: rulings › Domains.
 */
export async function findSignIn(
  { db }: { db: Db },
  { email, resellerId }: { email: string; resellerId: number | null },
): Promise<SignIn | undefined> {
  const tenant =
    resellerId === null
      ? sql`coalesce(${accounts.resellerId}, 0) = 0`
      : or(eq(accounts.resellerId, resellerId), and(eq(accounts.id, resellerId), eq(accounts.role, "reseller")));
  const reseller = alias(accounts, "reseller");
  const [row] = await db.orm
    .select({
      accountId: accounts.id,
      role: accounts.role,
      passwordHash: accounts.passwordHash,
      suspended: sql<boolean>`${accounts.status} <> 'active' or coalesce(${reseller.status} <> 'active', false)`,
    })
    .from(accounts)
    .leftJoin(reseller, eq(reseller.id, accounts.resellerId))
    .where(and(emailIs(email), tenant))
    .limit(1);
  return row;
}

/** Sets the password and ends the account's sessions, but for the one with `keepSession` as its digest. False: no such account. */
export async function setPassword(
  deps: { db: Db; bus: Bus },
  { accountId, passwordHash, keepSession }: { accountId: number; passwordHash: string; keepSession?: Buffer },
): Promise<boolean> {
  if (!isRowId(accountId)) return false;
  return changing(deps, async (tx) => {
    const set = await tx
      .update(accounts)
      .set({ passwordHash })
      .where(eq(accounts.id, accountId))
      .returning({ id: accounts.id });
    if (set.length === 0) return false;
    await tx
      .delete(sessions)
      .where(
        and(
          eq(sessions.accountId, accountId),
          keepSession === undefined ? undefined : sql`${sessions.digest} <> ${keepSession}`,
        ),
      );
    return true;
  });
}

/** Suspends an account, and with a reseller its customers; the account's own sessions end. False: no such account. */
export async function suspendAccount(deps: { db: Db; bus: Bus }, accountId: number): Promise<boolean> {
  const account = await findAccount(deps, accountId);
  if (!account) return false;
  return changing(deps, async (tx) => {
    // A role never changes, so what was read before the lock still holds.
    if (account.role === "reseller") await lockTenant(tx, accountId);
    else await lockAccounts(tx, [accountId]);
    await tx.update(accounts).set({ status: "suspended" }).where(eq(accounts.id, accountId));
    await tx.delete(sessions).where(eq(sessions.accountId, accountId));
    return true;
  });
}

/** Undoes a suspension. False: no such account. */
export async function activateAccount(deps: { db: Db; bus: Bus }, accountId: number): Promise<boolean> {
  if (!isRowId(accountId)) return false;
  return changing(deps, async (tx) => {
    const set = await tx
      .update(accounts)
      .set({ status: "active" })
      .where(eq(accounts.id, accountId))
      .returning({ id: accounts.id });
    return set.length > 0;
  });
}

function emailIs(email: string): SQL {
  return sql`lower(${accounts.email}) = ${email.trim().toLowerCase().replaceAll("\0", "")}`;
}

function emailTaken(): InputError {
  return new InputError("This e-mail address is already in use.", "email");
}

async function find(tx: Tx, where: SQL | undefined): Promise<Account | undefined> {
  return (await select(tx, where, 1))[0];
}

async function select(tx: Tx, where: SQL | undefined, limit: number): Promise<Account[]> {
  const rows = await tx
    .select({
      accountId: accounts.id,
      role: accounts.role,
      resellerId: accounts.resellerId,
      email: accounts.email,
      name: accounts.name,
      status: accounts.status,
      hasPassword: sql<boolean>`${accounts.passwordHash} is not null`,
      balanceNanoUsd: sql<string>`coalesce(${balances.balanceNanoUsd}, 0)`.mapWith(BigInt),
      heldNanoUsd: sql<string>`coalesce(${balances.heldNanoUsd}, 0)`.mapWith(BigInt),
      paygEnabled: sql<boolean>`coalesce(${balances.paygEnabled}, false)`,
      createdAt: accounts.createdAt,
    })
    .from(accounts)
    .leftJoin(balances, eq(balances.accountId, accounts.id))
    .where(where)
    .orderBy(desc(accounts.id))
    .limit(limit);
  return rows.map((row) => ({ ...row, createdAt: toIso(row.createdAt) }));
}
