import { and, desc, eq, inArray, isNotNull, isNull, lt, or, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { InputError } from "../errors.ts";
import { MONEY_NANO_USD_MAX, NOTICE_DAYS, NOTICE_PERCENT, PERSON_NAME_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { accounts, balances, links } from "../platform/schema.ts";
import { checkEmail, checkInteger, checkName, isRowId, toIso } from "./checks.ts";
import { lockAccounts, lockTenant } from "./locks_store.ts";
import { endSessions } from "./sessions_store.ts";

/** Accounts: customers, resellers and admins. A customer may belong to a reseller, for good: that is its tenant. */

const PAGE_MAX = 1000;

export type Role = "customer" | "reseller" | "admin";

export type Account = {
  accountId: number;
  role: Role;
  /** The reseller a customer belongs to, or null. */
  resellerId: number | null;
  resellerName: string | null;
  email: string;
  name: string;
  status: "active" | "suspended";
  hasPassword: boolean;
  totpEnabled: boolean;
  /** Of the package that is active now, or null. */
  packageName: string | null;
  balanceNanoUsd: bigint;
  heldNanoUsd: bigint;
  paygEnabled: boolean;
  /** Of a reseller: it may switch pay-as-you-go for its customers. */
  maySwitchPayg: boolean;
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
export async function addAccount(deps: ChangeDeps, wanted: NewAccount): Promise<Account> {
  return changing(deps, (tx) => insertAccount(tx, wanted));
}

/** As `addAccount`, in the caller's transaction. */
export async function insertAccount(
  tx: Tx,
  { role, email, name, resellerId, passwordHash }: NewAccount,
): Promise<Account> {
  const row = { role, email: checkEmail(email), name: checkAccountName(name), resellerId, passwordHash };
  if (resellerId !== null && role !== "customer")
    throw new InputError("Only a customer can belong to a reseller.", "resellerId");
  if (resellerId !== null) await checkReseller(tx, resellerId, row.email);
  const [added] = await tx.insert(accounts).values(row).onConflictDoNothing().returning({ accountId: accounts.id });
  if (!added) throw emailTaken();
  await tx.insert(balances).values({ accountId: added.accountId });
  const account = await find(tx, eq(accounts.id, added.accountId));
  if (!account) throw new Error(`account ${added.accountId} vanished`);
  return account;
}

function checkAccountName(name: string): string {
  return checkName(name, { param: "name", charsMax: PERSON_NAME_CHARS_MAX });
}

async function checkReseller(tx: Tx, resellerId: number, email: string): Promise<void> {
  const reseller = isRowId(resellerId) ? await find(tx, eq(accounts.id, resellerId)) : undefined;
  if (reseller?.role !== "reseller") throw new InputError("There is no such reseller.", "resellerId");
  // Both sign in on the reseller's host, where an address must mean one person.
  if (reseller.email === email) throw emailTaken();
}

/** `invited`: no password was set yet. */
export type AccountState = "active" | "invited" | "suspended";

export type AccountFilter = {
  role?: Role;
  state?: AccountState;
  /** Only this reseller's customers. */
  resellerId?: number;
  /** How the e-mail address or the name begins, whatever its case. */
  q?: string;
  /** The last id of the page before. */
  before?: number;
  limit?: number;
};

/** Accounts, newest first. */
export async function listAccounts(
  { db }: { db: Db },
  { role, state, resellerId, q, before, limit = 100 }: AccountFilter = {},
): Promise<{ rows: Account[]; hasMore: boolean }> {
  const size = Math.min(Math.max(limit, 1), PAGE_MAX);
  const rows = await select(
    db.orm,
    and(
      role === undefined ? undefined : eq(accounts.role, role),
      state === undefined ? undefined : isInState(state),
      resellerId === undefined ? undefined : eq(accounts.resellerId, resellerId),
      q === undefined ? undefined : beginsWith(q),
      before === undefined ? undefined : lt(accounts.id, before),
    ),
    size + 1,
  );
  return { rows: rows.slice(0, size), hasMore: rows.length > size };
}

function isInState(state: AccountState): SQL | undefined {
  if (state === "suspended") return eq(accounts.status, "suspended");
  return and(
    eq(accounts.status, "active"),
    state === "invited" ? isNull(accounts.passwordHash) : isNotNull(accounts.passwordHash),
  );
}

function beginsWith(q: string): SQL | undefined {
  const pattern = `${q
    .trim()
    .replaceAll("\0", "")
    .replace(/[\\%_]/g, "\\$&")}%`;
  return or(
    sql`lower(${accounts.email}) like lower(${pattern}::text)`,
    sql`lower(${accounts.name}) like lower(${pattern}::text)`,
  );
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

/** The names of some accounts, by id. */
export async function namesOf({ db }: { db: Db }, accountIds: readonly number[]): Promise<Map<number, string>> {
  if (accountIds.length === 0) return new Map();
  const rows = await db.orm
    .select({ accountId: accounts.id, name: accounts.name })
    .from(accounts)
    .where(inArray(accounts.id, [...new Set(accountIds)]));
  return new Map(rows.map(({ accountId, name }) => [accountId, name]));
}

/** Every account with this address, one a tenant at most. */
export async function findAccountsByEmail({ db }: { db: Db }, email: string): Promise<Account[]> {
  return select(db.orm, emailIs(email), PAGE_MAX);
}

/** `suspended`: the account or its reseller is. `totpEnabled`: a code is asked for too. */
export type SignIn = {
  accountId: number;
  role: Role;
  passwordHash: string | null;
  totpEnabled: boolean;
  suspended: boolean;
};

/** Who signs in with this address on a reseller's host, or (`resellerId` null) on the service's own. */
export async function findSignIn(
  { db }: { db: Db },
  { email, resellerId }: { email: string; resellerId: number | null },
): Promise<SignIn | undefined> {
  const reseller = alias(accounts, "reseller");
  const [row] = await db.orm
    .select({
      accountId: accounts.id,
      role: accounts.role,
      passwordHash: accounts.passwordHash,
      totpEnabled: sql<boolean>`${accounts.totpEnabledAt} is not null`,
      suspended: sql<boolean>`${accounts.status} <> 'active' or coalesce(${reseller.status} <> 'active', false)`,
    })
    .from(accounts)
    .leftJoin(reseller, eq(reseller.id, accounts.resellerId))
    .where(and(emailIs(email), signsInOn(resellerId)))
    .limit(1);
  return row;
}

/**
 * Whether an account signs in on a host: on a reseller's that reseller or one of its customers, on the service's own
 * (`resellerId` null) anybody who belongs to no reseller. Source: rulings › Domains.
 */
export function signsInOn(resellerId: number | null): SQL | undefined {
  if (resellerId === null) return sql`coalesce(${accounts.resellerId}, 0) = 0`;
  return or(eq(accounts.resellerId, resellerId), and(eq(accounts.id, resellerId), eq(accounts.role, "reseller")));
}

/** The hash of an account's password, for a person who must prove to be that account; null if there is none. */
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
  /** The hash of the password that was proven; if it is no longer the account's, nothing is set. */
  was?: string;
  /** The digest of the one session that goes on. */
  keepSession?: Buffer;
};

/** Sets the password; the account's sessions end, and a link to set one. False: no such account, or `was` is not its hash. */
export async function setPassword(
  deps: ChangeDeps,
  { accountId, passwordHash, was, keepSession }: NewPassword,
): Promise<boolean> {
  if (!isRowId(accountId)) return false;
  const set = async (tx: Tx) => {
    const found = await tx
      .update(accounts)
      .set({ passwordHash })
      .where(and(eq(accounts.id, accountId), was === undefined ? undefined : eq(accounts.passwordHash, was)))
      .returning({ id: accounts.id });
    if (found.length === 0) return false;
    await tx.delete(links).where(eq(links.accountId, accountId));
    await endSessions(tx, accountId, keepSession);
    return true;
  };
  return changing(deps, set, { protects: true });
}

/** Changes the name. False: no such account. Throws InputError. */
export async function renameAccount(deps: ChangeDeps, accountId: number, name: string): Promise<boolean> {
  return update(deps, accountId, { name: checkAccountName(name) });
}

/**
 * Grants a reseller the right to switch pay-as-you-go for its own customers, or withdraws it. Those whose it has switched on stay
 * so. Throws InputError for an account that is no reseller.
 */
export async function setPaygRight(deps: ChangeDeps, accountId: number, granted: boolean): Promise<void> {
  const account = await findAccount(deps, accountId);
  // A role never changes.
  if (account?.role !== "reseller") throw new InputError("Only a reseller can be granted this.");
  await update(deps, accountId, { maySwitchPayg: granted });
}

/** When Home warns: at this share of a package left, below this balance, this many days before the end. */
export type Notices = { unitsPercent: number; balanceNanoUsd: bigint; days: number };

export async function noticesOf({ db }: { db: Db }, accountId: number): Promise<Notices | undefined> {
  const [row] = await db.orm
    .select({
      unitsPercent: accounts.noticeUnitsPercent,
      balanceNanoUsd: accounts.noticeBalanceNanoUsd,
      days: accounts.noticeDays,
    })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  return row;
}

/** Changes those that are given. False: no such account. Throws InputError. */
export async function setNotices(deps: ChangeDeps, accountId: number, wanted: Partial<Notices>): Promise<boolean> {
  const { unitsPercent, balanceNanoUsd, days } = wanted;
  if (unitsPercent !== undefined)
    checkInteger(unitsPercent, { param: "unitsPercent", what: "share", ...NOTICE_PERCENT });
  if (days !== undefined) checkInteger(days, { param: "days", what: "number of days", ...NOTICE_DAYS });
  if (balanceNanoUsd !== undefined && (balanceNanoUsd < 0n || balanceNanoUsd > MONEY_NANO_USD_MAX))
    throw new InputError("The balance must be from $0 to $9,000,000.", "balanceNanoUsd");
  return update(deps, accountId, {
    ...(unitsPercent !== undefined && { noticeUnitsPercent: unitsPercent }),
    ...(balanceNanoUsd !== undefined && { noticeBalanceNanoUsd: balanceNanoUsd }),
    ...(days !== undefined && { noticeDays: days }),
  });
}

/** Who suspends, or undoes it: what the operator did, a reseller cannot undo. */
type Party = "operator" | "reseller";

/**
 * Suspends an account, and with a reseller its customers; the account's own sessions end. False: no such account.
 * Throws InputError for the last active admin: there would be nobody left to undo it.
 */
export async function suspendAccount(deps: ChangeDeps, accountId: number, party: Party = "operator"): Promise<boolean> {
  const account = await findAccount(deps, accountId);
  if (!account) return false;
  const suspend = async (tx: Tx) => {
    // A role never changes, so what was read before the lock still holds.
    if (account.role === "reseller") await lockTenant(tx, accountId);
    else await lockAccounts(tx, [accountId]);
    if (account.role === "admin") await checkOtherAdmins(tx, accountId);
    await tx
      .update(accounts)
      .set({ status: "suspended", ...(party === "operator" && { suspendedByOperator: true }) })
      .where(eq(accounts.id, accountId));
    await endSessions(tx, accountId);
    return true;
  };
  return changing(deps, suspend, { protects: true });
}

/** The rows are locked, so that two admins who suspend each other at once do not both succeed. */
async function checkOtherAdmins(tx: Tx, accountId: number): Promise<void> {
  const admins = await tx
    .select({ accountId: accounts.id, status: accounts.status })
    .from(accounts)
    .where(eq(accounts.role, "admin"))
    .orderBy(accounts.id)
    .for("no key update");
  if (!admins.some((admin) => admin.accountId !== accountId && admin.status === "active"))
    throw new InputError("This is the only active admin: nobody could undo it.");
}

/** Undoes a suspension. False: no such account. Throws InputError for a reseller where the operator suspended it. */
export async function activateAccount(
  deps: ChangeDeps,
  accountId: number,
  party: Party = "operator",
): Promise<boolean> {
  if (!isRowId(accountId)) return false;
  return changing(deps, async (tx) => {
    const mayUndo = party === "operator" ? undefined : eq(accounts.suspendedByOperator, false);
    const set = await tx
      .update(accounts)
      .set({ status: "active", suspendedByOperator: false })
      .where(and(eq(accounts.id, accountId), mayUndo))
      .returning({ id: accounts.id });
    if (set.length > 0) return true;
    if (await find(tx, eq(accounts.id, accountId)))
      throw new InputError("This account was suspended from above: ask there to have it activated.");
    return false;
  });
}

async function update(
  deps: ChangeDeps,
  accountId: number,
  values: Partial<typeof accounts.$inferInsert>,
): Promise<boolean> {
  if (!isRowId(accountId)) return false;
  if (Object.keys(values).length === 0) return (await findAccount(deps, accountId)) !== undefined;
  return changing(deps, async (tx) => {
    const set = await tx.update(accounts).set(values).where(eq(accounts.id, accountId)).returning({ id: accounts.id });
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
  const reseller = alias(accounts, "reseller");
  const rows = await tx
    .select({
      accountId: accounts.id,
      role: accounts.role,
      resellerId: accounts.resellerId,
      resellerName: reseller.name,
      email: accounts.email,
      name: accounts.name,
      status: accounts.status,
      hasPassword: sql<boolean>`${accounts.passwordHash} is not null`,
      totpEnabled: sql<boolean>`${accounts.totpEnabledAt} is not null`,
      // The clock in a query of its own: as a function in the condition it would keep the index from use.
      packageName: sql<string | null>`(select p.name from packages p, (select ledger_now() as now offset 0) clock
        where p.account_id = ${accounts.id} and p.starts_at <= clock.now and p.ends_at > clock.now
        order by p.starts_at desc limit 1)`,
      balanceNanoUsd: sql<string>`coalesce(${balances.balanceNanoUsd}, 0)`.mapWith(BigInt),
      heldNanoUsd: sql<string>`coalesce(${balances.heldNanoUsd}, 0)`.mapWith(BigInt),
      paygEnabled: sql<boolean>`coalesce(${balances.paygEnabled}, false)`,
      maySwitchPayg: accounts.maySwitchPayg,
      createdAt: accounts.createdAt,
    })
    .from(accounts)
    .leftJoin(balances, eq(balances.accountId, accounts.id))
    .leftJoin(reseller, eq(reseller.id, accounts.resellerId))
    .where(where)
    .orderBy(desc(accounts.id))
    .limit(limit);
  return rows.map((row) => ({ ...row, createdAt: toIso(row.createdAt) }));
}
