import { desc, eq, type SQL, sql } from "drizzle-orm";
import { isRowId, toIso } from "../accounts/checks.ts";
import { InputError, Refusal } from "../errors.ts";
import type { Bus } from "../platform/bus.ts";
import { changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { packages } from "../platform/schema.ts";

/**
 * The books: packages and balances as people change and read them, over the SQL functions in drizzle/0001_ledger.sql,
 * which take the accounts' locks and read the database's clock. Who may do what is the caller's to decide.
 */

const PACKAGES_MAX = 1000;
const USAGE_MAX = 1000;
const REASON_CHARS_MAX = 500;
/** Nine million dollars; `balances_range` says why. */
const BALANCE_NANO_USD_MAX = 9_000_000_000_000_000n;
const UUID_MS_MAX = 2 ** 48 - 1;
const REQUEST_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
/** How far ahead receipt months are looked for. */
const MONTHS_AHEAD_MAX = 24;

type Deps = { db: Db; bus: Bus };

export type Package = {
  packageId: number;
  accountId: number;
  offeringId: number | null;
  name: string;
  /** By the database's clock. */
  state: "active" | "queued" | "ended";
  startsAt: string;
  endsAt: string;
  timeZone: string;
  days: number;
  dailyLimit: number;
  totalLimit: number;
  carryover: boolean;
  tokenLimit: number | null;
  modelIds: string[] | null;
  unitsUsed: number;
  unitsHeld: number;
  tokensUsed: number;
  /** `replaced` by another, or `ended` by hand, with what was left of it; null: it ran or runs its time. */
  endedEarly: "replaced" | "ended" | null;
  unitsDropped: number | null;
  /** Who paid the wholesale price; null: the operator. */
  paidByAccountId: number | null;
};

export type Assignment = {
  accountId: number;
  offeringId: number;
  /** `now`: takes over at once, what was left of the active package is dropped. `after`: behind all others. */
  when: "now" | "after";
  /** Whose balance pays the wholesale price; null: the operator gives it. */
  payerId: number | null;
  actorId: number | null;
};

/**
 * Assigns an offering to an account. Throws InputError, and insufficient_balance if the payer's free balance does not
 * cover the wholesale price. Source: rulings › Which entitlement pays, Resellers.
 */
export async function assignPackage(
  deps: Deps,
  { accountId, offeringId, when, payerId, actorId }: Assignment,
): Promise<Package> {
  if (!isRowId(accountId) || !isRowId(offeringId)) throw notAssignable();
  return changing(deps, async (tx) => {
    const [row] = await tx.execute<{
      code: string | null;
      package_id: string | null;
      free_nano_usd: string | null;
    }>(sql`
      select * from assign_package(${accountId}::bigint, ${offeringId}::bigint, ${when}, ${payerId}::bigint, ${actorId}::bigint)`);
    if (row?.code === "insufficient_balance") {
      throw new Refusal("insufficient_balance", {
        message: "The payer's balance does not cover the wholesale price.",
        ...(row.free_nano_usd !== null && { remaining: Number(row.free_nano_usd) }),
      });
    }
    if (row?.code === "not_found") throw notAssignable();
    const [assigned] = await selectPackages(tx, eq(packages.id, Number(row?.package_id)));
    if (!assigned) throw new Error(`assign_package answered ${row?.code}`);
    return assigned;
  });
}

/** Ends an active or queued package now; those behind it move up. Throws InputError if there is none such. */
export async function endPackage(
  deps: Deps,
  { accountId, packageId }: { accountId: number; packageId: number },
): Promise<Package> {
  return changing(deps, async (tx) => {
    const [row] = await tx.execute<{ ended: boolean }>(
      sql`select end_package(${accountId}::bigint, ${packageId}::bigint) as ended`,
    );
    const [ended] = row?.ended ? await selectPackages(tx, eq(packages.id, packageId)) : [];
    if (!ended) throw new InputError("There is no such package, or it has ended.", "packageId");
    return ended;
  });
}

/** An account's packages, the latest first. */
export async function listPackages({ db }: { db: Db }, accountId: number): Promise<Package[]> {
  return isRowId(accountId) ? selectPackages(db.orm, eq(packages.accountId, accountId)) : [];
}

/** One package by its id. */
export async function findPackage({ db }: { db: Db }, packageId: number): Promise<Package | undefined> {
  return isRowId(packageId) ? (await selectPackages(db.orm, eq(packages.id, packageId)))[0] : undefined;
}

export type BalanceChange = {
  accountId: number;
  /** Above zero for a top-up; a correction may take away, but never what is held. */
  nanoUsd: bigint;
  kind: "top_up" | "correction";
  reason: string | null;
  actorId: number | null;
};

/** Adds to a balance, or corrects it. Returns the new balance in nano-USD. Throws InputError. */
export async function addBalance(
  deps: Deps,
  { accountId, nanoUsd, kind, reason, actorId }: BalanceChange,
): Promise<bigint> {
  if (kind === "top_up" ? nanoUsd <= 0n : nanoUsd === 0n)
    throw new InputError("The amount must be above zero; only a correction takes away.", "nanoUsd");
  if (nanoUsd > BALANCE_NANO_USD_MAX || nanoUsd < -BALANCE_NANO_USD_MAX) throw tooMuch();
  if (reason !== null && (reason.length > REASON_CHARS_MAX || /\p{Cc}/u.test(reason))) {
    throw new InputError(`The reason must be one line of at most ${REASON_CHARS_MAX} characters.`, "reason");
  }
  if (!isRowId(accountId)) throw noSuchAccount();
  return changing(deps, async (tx) => {
    const [row] = await tx.execute<{ balance: string | null }>(sql`
      select add_balance(${accountId}::bigint, ${String(nanoUsd)}::text::bigint, ${kind}, ${reason}, ${actorId}::bigint) as balance`);
    if (typeof row?.balance === "string") return BigInt(row.balance);
    const known = await tx.execute(sql`select 1 from balances where account_id = ${accountId}::bigint`);
    throw known.length === 0
      ? noSuchAccount()
      : new InputError("The balance is smaller than that, or holds of live requests need it.", "nanoUsd");
  }).catch((error: unknown) => {
    throw constraintOf(error) === "balances_range" ? tooMuch() : error;
  });
}

/** Lets an account pay by balance, or no more. Throws InputError if there is no such account. Source: contract › Limits, PAYG. */
export async function setPayg(deps: Deps, accountId: number, enabled: boolean): Promise<void> {
  const known =
    isRowId(accountId) &&
    (await changing(deps, async (tx) => {
      const [row] = await tx.execute<{ known: boolean }>(
        sql`select set_payg(${accountId}::bigint, ${enabled}) as known`,
      );
      return row?.known === true;
    }));
  if (!known) throw noSuchAccount();
}

export type UsageQuery = {
  accountId?: number;
  /** Only records of these hosts; null or left out: of all. */
  hosts?: readonly string[] | null;
  modelId?: string;
  /** ISO 8601: from `start` on, and before `end`. */
  start?: string;
  end?: string;
  /** The request id that the page before ended with. */
  after?: string;
  limit?: number;
};

export type UsageRow = {
  requestId: string;
  accountId: number;
  keyId: number;
  modelId: string;
  host: string;
  mode: "package" | "payg";
  units: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  chargedNanoUsd: bigint;
  /** What it cost beyond what could be charged: the operator's loss. */
  shortfallNanoUsd: bigint;
  estimated: boolean;
  /** How it ended: `complete`, `client_left`, `late`, … */
  reason: string;
  createdAt: string;
};

/** Usage records, newest first: requests that were settled. Throws InputError. Source: contract › GET /usage, rulings › Usage. */
export async function usage({ db }: { db: Db }, query: UsageQuery): Promise<{ rows: UsageRow[]; hasMore: boolean }> {
  const size = Math.min(Math.max(query.limit ?? 100, 1), USAGE_MAX);
  const conditions: SQL[] = [sql`outcome = 'settled'`];
  const where = (condition: SQL) => void conditions.push(condition);
  if (query.accountId !== undefined) where(sql`account_id = ${query.accountId}::bigint`);
  if (query.hosts) where(sql`host in ${query.hosts.length > 0 ? [...query.hosts] : [""]}`);
  if (query.modelId !== undefined) where(sql`model_id = ${query.modelId}`);
  // The request id carries its time, and receipts are partitioned by it: only the months asked for are read.
  if (query.start !== undefined) where(sql`request_id >= ${requestIdFloor(query.start, "start")}::text::uuid`);
  if (query.end !== undefined) where(sql`request_id < ${requestIdFloor(query.end, "end")}::text::uuid`);
  if (query.after !== undefined) where(sql`request_id < ${checkRequestId(query.after)}::text::uuid`);
  const rows = await db.orm.execute<Record<string, unknown>>(sql`
    select request_id, account_id, key_id, model_id, host, mode, units, prompt_tokens, cached_tokens, completion_tokens,
      charged_nano_usd, shortfall_nano_usd, estimated, reason, created_at
    from receipts where ${sql.join(conditions, sql` and `)} order by request_id desc limit ${size + 1}`);
  return { rows: rows.slice(0, size).map(toUsageRow), hasMore: rows.length > size };
}

/** How many rows break each of the books' invariants: 0, always. Source: the ledger's README. */
export async function checkInvariants({ db }: { db: Db }): Promise<{ name: string; rows: number }[]> {
  const views = await db.orm.execute<{ name: string }>(sql`
    select table_name as name from information_schema.views
    where table_schema = current_schema() and table_name like 'inv\\_%' order by 1`);
  const results: { name: string; rows: number }[] = [];
  for (const { name } of views) {
    const [counted] = await db.orm.execute<{ rows: number }>(
      sql`select count(*)::int as rows from ${sql.identifier(name)}`,
    );
    results.push({ name, rows: Number(counted?.rows) });
  }
  return results;
}

/** How many months after this one have their partition of receipts, without a gap. */
export async function receiptMonthsAhead({ db }: { db: Db }): Promise<number> {
  const [row] = await db.orm.execute<{ months: number }>(sql`
    select coalesce(min(n) - 1, ${MONTHS_AHEAD_MAX})::int as months from generate_series(1, ${MONTHS_AHEAD_MAX}) as n
    where to_regclass('receipts_' || to_char(
      date_trunc('month', ledger_now() at time zone 'UTC') + make_interval(months => n), 'YYYY_MM')) is null`);
  return Number(row?.months);
}

/** The smallest UUIDv7 of a moment: its first 48 bits are Unix milliseconds. */
function requestIdFloor(instant: string, param: string): string {
  const ms = Date.parse(instant);
  if (Number.isNaN(ms)) throw new InputError(`The ${param} is not a date or a time in ISO 8601.`, param);
  const hex = Math.min(Math.max(ms, 0), UUID_MS_MAX).toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

function checkRequestId(id: string): string {
  if (!REQUEST_ID.test(id)) throw new InputError("This is not a request id.", "after");
  return id;
}

/** The constraint that a write would have broken; drizzle keeps Postgres's error as the cause. */
function constraintOf(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined;
  if (typeof cause !== "object" || cause === null || !("constraint_name" in cause)) return undefined;
  return String(cause.constraint_name);
}

async function selectPackages(tx: Tx, where: SQL): Promise<Package[]> {
  const rows = await tx
    .select({
      packageId: packages.id,
      accountId: packages.accountId,
      offeringId: packages.offeringId,
      name: packages.name,
      state: sql<
        Package["state"]
      >`case when ${packages.endsAt} <= ledger_now() then 'ended' when ${packages.startsAt} > ledger_now() then 'queued' else 'active' end`,
      startsAt: packages.startsAt,
      endsAt: packages.endsAt,
      timeZone: packages.timeZone,
      days: packages.days,
      dailyLimit: packages.dailyLimit,
      totalLimit: packages.totalLimit,
      carryover: packages.carryover,
      tokenLimit: packages.tokenLimit,
      modelIds: packages.modelIds,
      unitsUsed: packages.unitsUsed,
      unitsHeld: packages.unitsHeld,
      tokensUsed: packages.tokensUsed,
      endedEarly: packages.endedEarly,
      unitsDropped: packages.unitsDropped,
      paidByAccountId: packages.paidByAccountId,
    })
    .from(packages)
    .where(where)
    .orderBy(desc(packages.endsAt), desc(packages.id))
    .limit(PACKAGES_MAX);
  return rows.map((row) => ({ ...row, startsAt: toIso(row.startsAt), endsAt: toIso(row.endsAt) }));
}

function toUsageRow(row: Record<string, unknown>): UsageRow {
  return {
    requestId: String(row.request_id),
    accountId: Number(row.account_id),
    keyId: Number(row.key_id),
    modelId: String(row.model_id),
    host: String(row.host),
    mode: row.mode === "payg" ? "payg" : "package",
    units: Number(row.units),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    chargedNanoUsd: BigInt(String(row.charged_nano_usd)),
    shortfallNanoUsd: BigInt(String(row.shortfall_nano_usd)),
    estimated: row.estimated === true,
    reason: String(row.reason),
    createdAt: toIso(String(row.created_at)),
  };
}

function notAssignable(): InputError {
  return new InputError("There is no such account, or no such offering for sale.", "offeringId");
}

function noSuchAccount(): InputError {
  return new InputError("There is no such account.", "accountId");
}

function tooMuch(): InputError {
  return new InputError("A balance may hold at most $9,000,000.", "nanoUsd");
}
