import { and, asc, desc, eq, inArray, isNotNull, isNull, lt, not, or, type SQL, sql } from "drizzle-orm";
import { ExistsError, InputError } from "../errors.ts";
import { type LanguageTag, languageTag } from "../languages/languages.ts";
import { MONEY_NANO_USD_MAX, NOTICE_DAYS, NOTICE_PERCENT, PERSON_NAME_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { balances } from "../platform/schema_ledger.ts";
import { checkEmail, checkInteger, checkName, emailForm, isRowId } from "./input_checks.ts";
import { lockAccounts, lockTenant } from "./locks_store.ts";
import { isItsReseller, reseller } from "./reseller_store.ts";
import type { Role } from "./roles.ts";
import { endSessionsIn } from "./sessions_store.ts";

/** Accounts: customers, resellers and admins. A customer may belong to a reseller, permanently: its tenant. */

const PAGE_MAX = 1000;

export type Account = {
  accountId: number;
  role: Role;
  /** The reseller a customer belongs to, or null. */
  resellerId: number | null;
  resellerName: string | null;
  email: string;
  name: string;
  /** The language that its person chose; null: none. */
  language: LanguageTag | null;
  status: "active" | "suspended";
  hasPassword: boolean;
  /** Whether its person has linked an identity. */
  hasIdentity: boolean;
  totpEnabled: boolean;
  /** The package that is active now, or null. */
  packageName: string | null;
  balanceNanoUsd: bigint;
  heldNanoUsd: bigint;
  paygEnabled: boolean;
  /** For a reseller: whether it may switch pay-as-you-go for its customers. */
  maySwitchPayg: boolean;
  createdAt: string;
};

export type NewAccount = {
  role: Role;
  email: string;
  name: string;
  language?: LanguageTag | null;
  resellerId: number | null;
  passwordHash: string | null;
  /** A person without an account of their own. */
  onlyPerson?: boolean;
};

/** Adds an account with an empty balance. Throws InputError. */
export async function addAccount(deps: ChangeDeps, wanted: NewAccount): Promise<Account> {
  return changing(deps, (tx) => insertAccount(tx, wanted));
}

/** As `addAccount`, in the caller's transaction. */
export async function insertAccount(
  tx: Tx,
  { role, email, name, language = null, resellerId, passwordHash, onlyPerson = false }: NewAccount,
): Promise<Account> {
  const checked = { email: checkEmail(email), name: checkAccountName(name) };
  const row = { role, ...checked, language, resellerId, passwordHash, onlyPerson };
  if (resellerId !== null && role !== "customer")
    throw new InputError("Only a customer can belong to a reseller.", "resellerId");
  if (resellerId !== null) await checkReseller(tx, resellerId, row.email);
  const [added] = await tx.insert(accounts).values(row).onConflictDoNothing().returning({ accountId: accounts.id });
  if (!added) throw await takenBy(tx, row);
  if (!onlyPerson) await tx.insert(balances).values({ accountId: added.accountId });
  const account = await find(tx, eq(accounts.id, added.accountId));
  if (!account) throw new Error(`account ${added.accountId} vanished`);
  return account;
}

function checkAccountName(name: string): string {
  return checkName(name, { param: "name", charsMax: PERSON_NAME_CHARS_MAX });
}

/** An account of the same role is the one that should be added; whoever else has the address is somebody else. */
async function takenBy(tx: Tx, { email, resellerId, role }: Pick<NewAccount, "email" | "resellerId" | "role">) {
  const inTenant = sql`coalesce(${accounts.resellerId}, 0) = ${resellerId ?? 0}`;
  const found = await find(tx, and(emailIs(email), inTenant, isAccount));
  const { message, param } = emailTaken();
  return found?.role === role ? new ExistsError(message, param) : emailTaken();
}

async function checkReseller(tx: Tx, resellerId: number, email: string): Promise<void> {
  if (!isRowId(resellerId)) throw new InputError("There is no such reseller.", "resellerId");
  // Locked, so that the reseller cannot change its own address to this one meanwhile.
  const [reseller] = await tx
    .select({ role: accounts.role, email: accounts.email })
    .from(accounts)
    .where(eq(accounts.id, resellerId))
    .for("share");
  if (reseller?.role !== "reseller") throw new InputError("There is no such reseller.", "resellerId");
  // Both sign in on the reseller's host, where an e-mail address must identify one person.
  if (reseller.email.toLowerCase() === email) throw emailTaken();
}

/** `invited`: has no password yet, and no linked identity. */
export type AccountState = "active" | "invited" | "suspended";

export type AccountSort = "added" | "name" | "balance";

export type AccountFilter = {
  role?: Role;
  state?: AccountState;
  /** Only this reseller's customers. */
  resellerId?: number;
  /** Prefix of the e-mail address or of the name; case-insensitive. */
  q?: string;
  /** Newest first, by name, or the smallest balance first. */
  sort?: AccountSort;
  /** The last id of the previous page. */
  before?: number;
  limit?: number;
};

/** Accounts, newest first unless `sort` says otherwise. */
export async function listAccounts(
  { db }: { db: Db },
  { role, state, resellerId, q, sort = "added", before, limit = 100 }: AccountFilter = {},
): Promise<Page<Account>> {
  const size = pageSize(limit, PAGE_MAX);
  const rows = await select(
    db.orm,
    and(
      isAccount,
      role === undefined ? undefined : eq(accounts.role, role),
      state === undefined ? undefined : isInState(state),
      resellerId === undefined ? undefined : eq(accounts.resellerId, resellerId),
      q === undefined ? undefined : beginsWith(q),
      before === undefined ? undefined : isAfter(sort, before, resellerId),
    ),
    size + 1,
    ORDERS[sort],
  );
  return pageOf(rows, size);
}

const isAccount = eq(accounts.onlyPerson, false);

/** By the id last, so that the order is total. */
const ORDERS: Record<AccountSort, SQL[]> = {
  added: [desc(accounts.id)],
  name: [asc(sql`lower(${accounts.name})`), asc(accounts.id)],
  balance: [asc(sql`coalesce(${balances.balanceNanoUsd}, 0)`), asc(accounts.id)],
};

/** Whether a row comes after the account `before`, which must be in the same list: else its name could be guessed by comparing. */
function isAfter(sort: AccountSort, before: number, resellerId: number | undefined): SQL {
  if (sort === "added") return lt(accounts.id, before);
  if (!isRowId(before)) return sql`false`;
  const value = { name: sql`lower(${accounts.name})`, balance: sql`coalesce(${balances.balanceNanoUsd}, 0)` }[sort];
  const last = { name: sql`lower(last.name)`, balance: sql`coalesce(b.balance_nano_usd, 0)` }[sort];
  return sql`(${value}, ${accounts.id}) > (
    select ${last}, last.id from accounts last left join balances b on b.account_id = last.id
    where last.id = ${before} and ${resellerId === undefined ? sql`true` : sql`last.reseller_id = ${resellerId}`})`;
}

function isInState(state: AccountState): SQL | undefined {
  if (state === "suspended") return eq(accounts.status, "suspended");
  const signsIn = or(isNotNull(accounts.passwordHash), hasIdentity());
  return and(eq(accounts.status, "active"), state === "invited" ? not(signsIn ?? sql`false`) : signsIn);
}

function hasIdentity(): SQL<boolean> {
  return sql<boolean>`exists (select from identities i where i.account_id = accounts.id)`;
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

/** One account; with `resellerId`, only if it is that reseller's customer. */
export async function findAccount(
  { db }: { db: Db },
  accountId: number,
  resellerId?: number,
): Promise<Account | undefined> {
  if (!isRowId(accountId)) return undefined;
  return find(
    db.orm,
    and(
      eq(accounts.id, accountId),
      isAccount,
      resellerId === undefined ? undefined : eq(accounts.resellerId, resellerId),
    ),
  );
}

/** A person, by the id of the account that they began, or without one. */
export async function findPerson({ db }: { db: Db }, personId: number): Promise<Account | undefined> {
  return find(db.orm, eq(accounts.id, personId));
}

/** Names by account id. */
export async function namesOf({ db }: { db: Db }, accountIds: readonly number[]): Promise<Map<number, string>> {
  if (accountIds.length === 0) return new Map();
  const rows = await db.orm
    .select({ accountId: accounts.id, name: accounts.name })
    .from(accounts)
    .where(inArray(accounts.id, [...new Set(accountIds)]));
  return new Map(rows.map(({ accountId, name }) => [accountId, name]));
}

/** Every account with this e-mail address; at most one per tenant. */
export async function findAccountsByEmail({ db }: { db: Db }, email: string): Promise<Account[]> {
  return select(db.orm, and(emailIs(email), isAccount), PAGE_MAX);
}

/** Renames an account. False: no such account. Throws InputError. */
export async function renameAccount(deps: ChangeDeps, accountId: number, name: string): Promise<boolean> {
  return update(deps, accountId, { name: checkAccountName(name) });
}

/** Sets a person's language; null: that of the brand. False: no such person. */
export async function setLanguage(deps: ChangeDeps, personId: number, language: LanguageTag | null): Promise<boolean> {
  return update(deps, personId, { language });
}

/**
 * Grants a reseller the right to switch pay-as-you-go for its customers, or withdraws it. Customers keep what was switched on. Throws
 * InputError if the account is not a reseller.
 */
export async function setPaygRight(deps: ChangeDeps, accountId: number, granted: boolean): Promise<void> {
  const account = await findAccount(deps, accountId);
  // A role never changes.
  if (account?.role !== "reseller") throw new InputError("Only a reseller can have this right.");
  await update(deps, accountId, { maySwitchPayg: granted });
}

/** When Home warns: at this percentage of a package left, below this balance, this many days before the end. */
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

/** Changes the given values. False: no such account. Throws InputError. */
export async function setNotices(deps: ChangeDeps, accountId: number, wanted: Partial<Notices>): Promise<boolean> {
  const { unitsPercent, balanceNanoUsd, days } = wanted;
  if (unitsPercent !== undefined) checkInteger(unitsPercent, { param: "unitsPercent", ...NOTICE_PERCENT });
  if (days !== undefined) checkInteger(days, { param: "days", ...NOTICE_DAYS });
  if (balanceNanoUsd !== undefined && (balanceNanoUsd < 0n || balanceNanoUsd > MONEY_NANO_USD_MAX))
    throw new InputError("The balance must be from $0 to $9,000,000.", "balanceNanoUsd");
  return update(deps, accountId, {
    ...(unitsPercent !== undefined && { noticeUnitsPercent: unitsPercent }),
    ...(balanceNanoUsd !== undefined && { noticeBalanceNanoUsd: balanceNanoUsd }),
    ...(days !== undefined && { noticeDays: days }),
  });
}

/** Who suspends or activates: a reseller cannot undo a suspension by the operator. */
type Party = "operator" | "reseller";

/**
 * Suspends an account; a reseller's customers are suspended with it. The account's sessions end. False: no such account. Throws
 * InputError for the last active admin, since nobody could undo it.
 */
export async function suspendAccount(deps: ChangeDeps, accountId: number, party: Party = "operator"): Promise<boolean> {
  const account = await findAccount(deps, accountId);
  if (!account) return false;
  const suspend = async (tx: Tx) => {
    // A role never changes, so the role read before the lock is still right.
    if (account.role === "reseller") await lockTenant(tx, accountId);
    else await lockAccounts(tx, [accountId]);
    if (account.role === "admin") await checkOtherAdmins(tx, accountId);
    await tx
      .update(accounts)
      .set({ status: "suspended", ...(party === "operator" && { suspendedByOperator: true }) })
      .where(eq(accounts.id, accountId));
    await endSessionsIn(tx, accountId);
    return true;
  };
  return changing(deps, suspend, { protects: true, endsTenantRight: () => account.role === "reseller" });
}

/** Locks the rows, so that of two admins who suspend each other at the same time only one succeeds. */
export async function checkOtherAdmins(tx: Tx, accountId: number): Promise<void> {
  const admins = await tx
    .select({ accountId: accounts.id, status: accounts.status })
    .from(accounts)
    .where(eq(accounts.role, "admin"))
    .orderBy(accounts.id)
    .for("no key update");
  if (!admins.some((admin) => admin.accountId !== accountId && admin.status === "active"))
    throw new InputError("This is the only active admin. Nobody could undo it.");
}

/** Undoes a suspension. False: no such account. Throws InputError for an erased account, and if a reseller tries to undo the operator's suspension. */
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
      .where(and(eq(accounts.id, accountId), isNull(accounts.erasedAt), mayUndo))
      .returning({ id: accounts.id });
    if (set.length > 0) return true;
    const erased = await tx
      .select({ id: accounts.id })
      .from(accounts)
      .where(and(eq(accounts.id, accountId), isNotNull(accounts.erasedAt)));
    if (erased.length > 0) throw new InputError("This account was erased, which cannot be undone.");
    if (await find(tx, eq(accounts.id, accountId)))
      throw new InputError("This account was suspended by the operator. Ask the operator to activate it.");
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

/** Matches case-insensitively. */
export function emailIs(email: string): SQL {
  const form = emailForm(email);
  // Postgres refuses NUL in text. It is not removed: then a guesser could write one address in many ways, each with its own limit.
  return form.includes("\0") ? sql`false` : sql`lower(${accounts.email}) = ${form}`;
}

export function emailTaken(): InputError {
  return new InputError("This e-mail address is already in use.", "email");
}

async function find(tx: Tx, where: SQL | undefined): Promise<Account | undefined> {
  return (await select(tx, where, 1))[0];
}

async function select(tx: Tx, where: SQL | undefined, limit: number, order = ORDERS.added): Promise<Account[]> {
  const rows = await tx
    .select({
      accountId: accounts.id,
      role: accounts.role,
      resellerId: accounts.resellerId,
      resellerName: reseller.name,
      email: accounts.email,
      name: accounts.name,
      language: accounts.language,
      status: accounts.status,
      hasPassword: sql<boolean>`${accounts.passwordHash} is not null`,
      hasIdentity: hasIdentity(),
      totpEnabled: sql<boolean>`${accounts.totpEnabledAt} is not null`,
      // The clock is read in a subquery: called in the condition, it would prevent the use of the index.
      packageName: sql<string | null>`(select p.name from packages p, (select ledger_now() as now offset 0) clock
        where p.account_id = ${accounts.id} and p.starts_at <= clock.now and p.ends_at > clock.now
        order by p.starts_at desc limit 1)`,
      balanceNanoUsd: sql<string>`coalesce(${balances.balanceNanoUsd}, 0)`.mapWith(BigInt),
      heldNanoUsd: sql<string>`coalesce(reserved_as_shown(${balances}), 0)`.mapWith(BigInt),
      paygEnabled: sql<boolean>`coalesce(${balances.paygEnabled}, false)`,
      maySwitchPayg: accounts.maySwitchPayg,
      createdAt: accounts.createdAt,
    })
    .from(accounts)
    .leftJoin(balances, eq(balances.accountId, accounts.id))
    .leftJoin(reseller, isItsReseller)
    .where(where)
    .orderBy(...order)
    .limit(limit);
  return rows.map((row) => ({ ...row, language: languageTag(row.language) ?? null, createdAt: toIso(row.createdAt) }));
}
