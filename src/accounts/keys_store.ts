import { and, desc, eq, lt, ne, or, type SQL, sql } from "drizzle-orm";
import type { Config } from "../config.ts";
import { InputError, sentence } from "../errors.ts";
import {
  KEY_BUDGETS,
  KEY_DAILY_REQUESTS,
  KEY_NAME_CHARS_MAX,
  type KeyBudgetField,
  MONEY_NANO_USD_MAX,
  SCOPE_MODELS_MAX,
} from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { newApiKey } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { inSlices } from "../platform/prune.ts";
import type { RateLimits } from "../platform/rate_tallies.ts";
import { accounts, hosts, keys, keyUses } from "../platform/schema_accounts.ts";
import { keyDays } from "../platform/schema_ledger.ts";
import { type HostConfig, ownHosts } from "./host_names.ts";
import { checkInstant, checkInteger, checkList, checkName, checkOverlap, isRowId } from "./input_checks.ts";
import { isUsable } from "./key_snapshots_store.ts";
import { lockAccountRow, lockAccounts } from "./locks_store.ts";
import { checkModelIds } from "./model_scope_store.ts";
import { appliedLimits, checkRateLimits, type LimitSetInput } from "./rate_limits.ts";
import { selectLimits } from "./rate_limits_store.ts";

/**
 * API keys. The secret is returned once, when the key is created; lists show its first and last characters. A change that ends a
 * key's right takes the account's lock first, so that no request is granted after it.
 */

/** Keys of one account, without revoked ones. */
const KEYS_MAX = 200;
/** Revoked keys that the account's page still shows. */
const REVOKED_SHOWN = 50;
const HOSTS_MAX = 50;
const PAGE_MAX = 1000;
/** Keys deleted in one statement. Each deletion invalidates caches. */
const PRUNE_ROWS = 500;
const DAYS_AHEAD_MAX = 3660;

export type KeyMode = "package" | "payg";

/** Who made a key or a token. `isMember`: still a member of its account. */
export type Maker = { personId: number; name: string; isMember: boolean };

export type Key = {
  keyId: number;
  accountId: number;
  name: string;
  /** null: the operator. */
  madeBy: Maker | null;
  /** First and last characters, as in `sk-7Qf…x9Kd`. */
  masked: string;
  mode: KeyMode;
  /** The models and hosts that the key may be used with; null: all of the account. */
  modelIds: string[] | null;
  hosts: string[] | null;
  status: "enabled" | "disabled" | "revoked" | "expired";
  expiresAt: string | null;
  /** Of the days, weeks and months of its own limits. */
  timeZone: string;
  /** The first day that counts against its limit in total; null: it has none. */
  totalSpendFrom: string | null;
  /** The key's own limits of requests and tokens a minute, and of requests at once; null: none. */
  limits: RateLimits | null;
  createdAt: string;
} & Ceilings;

export type NewKey = {
  accountId: number;
  name: string;
  mode: KeyMode;
  modelIds: readonly string[] | null;
  hosts: readonly string[] | null;
  /** As `checkInstant` takes it, in the future; null: never. */
  expiresAt: string | null;
  limits?: LimitSetInput | null | undefined;
} & Partial<Ceilings>;

/** A key's own limits: requests a day, and nano-USD of the balance by day, week, month and in total. null: none. */
export type Ceilings = { dailyUnitsMax: number | null } & Record<KeyBudgetField, bigint | null>;

/** A new key and its secret, which cannot be shown again. */
export type CreatedKey = { secret: string; key: Key };

type KeyOf = { accountId: number; keyId: number };

/** Creates a key. Throws InputError. Source: KEY-3, KEY-4, KEY-6. */
export async function createKey(
  deps: ChangeDeps & { config: HostConfig & Pick<Config, "billingTimeZone"> },
  wanted: NewKey,
): Promise<CreatedKey> {
  const name = checkName(wanted.name, { param: "name", charsMax: KEY_NAME_CHARS_MAX });
  const { modelIds = null, hosts: hostList = null } = checkScope(wanted);
  checkCeilings(wanted);
  return changing(deps, async (tx) => {
    await lockKeySet(tx, wanted.accountId);
    await checkModelIds(tx, modelIds);
    await checkHosts(tx, { accountId: wanted.accountId, own: ownHosts(deps.config), hostList });
    const expiresAt = await checkExpiry(tx, wanted.expiresAt);
    const timeZone = deps.config.billingTimeZone;
    const limits = await checkKeyLimits(tx, wanted.accountId, wanted.limits ?? null);
    return insertKey(tx, {
      ...wanted,
      madeBy: deps.by?.accountId,
      limits,
      name,
      modelIds,
      hosts: hostList,
      expiresAt,
      timeZone,
    });
  });
}

/** Keys of one account or of all, newest first. `before`: the last id of the previous page. */
export async function listKeys(
  { db }: { db: Db },
  { accountId, before, limit = 100 }: { accountId?: number; before?: number; limit?: number } = {},
): Promise<Page<Key>> {
  const size = pageSize(limit, PAGE_MAX);
  const rows = await select(
    db.orm,
    and(
      accountId === undefined ? undefined : eq(keys.accountId, accountId),
      before === undefined ? undefined : lt(keys.id, before),
    ),
    size + 1,
  );
  return pageOf(rows, size);
}

/** The names of an account's keys, by id. */
export async function keyNames({ db }: { db: Db }, accountId: number): Promise<Map<number, string>> {
  const rows = await db.orm.select({ id: keys.id, name: keys.name }).from(keys).where(eq(keys.accountId, accountId));
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/** One key; with `accountId`, only if it belongs to that account. */
export async function findKey(
  { db }: { db: Db },
  { keyId, accountId }: { keyId: number; accountId?: number },
): Promise<Key | undefined> {
  if (!isRowId(keyId)) return undefined;
  return find(db.orm, and(eq(keys.id, keyId), accountId === undefined ? undefined : eq(keys.accountId, accountId)));
}

/** A key as the account's page shows it. */
export type ShownKey = Key & {
  /** When and on which host a request was last granted; a few seconds late. */
  lastUsedAt: string | null;
  lastHost: string | null;
  /** null: it has no limits of its own. */
  used: KeyUse | null;
};

/** What counts against a key's own limits, holds included, by the limit's field; and when each period begins anew. */
export type KeyUse = {
  units: number;
  spentNanoUsd: Record<KeyBudgetField, bigint>;
  /** The total never does. */
  resetsAt: { day: string; week: string; month: string };
};

/** Every key of an account that is not revoked, and the latest revoked ones, newest first. */
export async function listShownKeys({ db }: { db: Db }, accountId: number): Promise<ShownKey[]> {
  const revoked = db.orm
    .select({ id: keys.id })
    .from(keys)
    .where(and(eq(keys.accountId, accountId), eq(keys.status, "revoked")))
    .orderBy(desc(keys.id))
    .limit(REVOKED_SHOWN);
  return selectShown(
    db.orm,
    and(eq(keys.accountId, accountId), or(ne(keys.status, "revoked"), sql`${keys.id} in ${revoked}`)),
  );
}

/** One key as its page shows it; with `accountId`, only if it belongs to that account. */
export async function findShownKey(
  { db }: { db: Db },
  { keyId, accountId }: { keyId: number; accountId?: number },
): Promise<ShownKey | undefined> {
  if (!isRowId(keyId)) return undefined;
  const where = and(eq(keys.id, keyId), accountId === undefined ? undefined : eq(keys.accountId, accountId));
  return (await selectShown(db.orm, where))[0];
}

async function selectShown(orm: Db["orm"], where: SQL | undefined): Promise<ShownKey[]> {
  const rows = await orm
    .select({
      ...COLUMNS,
      lastUsedAt: keyUses.lastUsedAt,
      lastHost: keyUses.host,
      units: sql<number>`coalesce(${keyDays.unitsTaken} + ${keyDays.unitsBefore}, 0)::int`,
      ...SPENT,
      ...NEXT,
    })
    .from(keys)
    .leftJoin(keyUses, eq(keyUses.keyId, keys.id))
    .leftJoin(
      keyDays,
      and(eq(keyDays.keyId, keys.id), sql`${keyDays.day} = (ledger_now() at time zone ${keys.timeZone})::date`),
    )
    .where(where)
    .orderBy(desc(keys.id))
    .limit(KEYS_MAX + REVOKED_SHOWN);
  return rows.map(({ units, day, week, month, total, nextDay, nextWeek, nextMonth, lastUsedAt, ...row }) => ({
    ...toKey(row),
    lastUsedAt: toIso(lastUsedAt),
    used: hasCeiling(row)
      ? {
          units,
          spentNanoUsd: {
            dailySpendMaxNanoUsd: BigInt(day),
            weeklySpendMaxNanoUsd: BigInt(week),
            monthlySpendMaxNanoUsd: BigInt(month),
            totalSpendMaxNanoUsd: BigInt(total),
          },
          resetsAt: { day: toIso(nextDay), week: toIso(nextWeek), month: toIso(nextMonth) },
        }
      : null,
  }));
}

export type KeyChange = {
  name?: string;
  modelIds?: readonly string[] | null | undefined;
  hosts?: readonly string[] | null | undefined;
  limits?: LimitSetInput | null | undefined;
} & Partial<Ceilings>;

/**
 * Renames a key, or sets its models, hosts and limits; omitted fields stay. When it returns, no request is granted by the former ones. A
 * new limit counts what the key has used of its period; the total begins today. Throws InputError, also for a revoked key.
 */
export async function updateKey(
  deps: ChangeDeps & { config: HostConfig },
  { accountId, keyId }: KeyOf,
  change: KeyChange,
): Promise<Key> {
  const ceilings = ceilingsOf(change);
  const name =
    change.name === undefined ? undefined : checkName(change.name, { param: "name", charsMax: KEY_NAME_CHARS_MAX });
  const scope = checkScope(change);
  checkCeilings(ceilings);
  const rights = Object.values({ ...scope, ...ceilings }).filter((value) => value !== undefined);
  return changing(deps, async (tx) => {
    if (rights.length > 0) await lockAccounts(tx, [accountId]);
    const before = await findOf(tx, { accountId, keyId });
    if (before.status === "revoked") throw new InputError("This key is revoked, which cannot be undone.", "keyId");
    if (name === undefined && rights.length === 0 && change.limits === undefined) return before;
    // What it already had may stay, though the model or domain is gone.
    await checkModelIds(tx, without(scope.modelIds, before.modelIds));
    await checkHosts(tx, { accountId, own: ownHosts(deps.config), hostList: without(scope.hosts, before.hosts) });
    const limits = change.limits === undefined ? undefined : await checkKeyLimits(tx, accountId, change.limits);
    await tx
      .update(keys)
      .set({ name, ...scope, ...ceilings, limits })
      .where(eq(keys.id, keyId));
    return findOf(tx, { accountId, keyId });
  });
}

/** The models and hosts that a key may be used with; undefined: not given. Throws InputError. */
function checkScope({ modelIds, hosts: hostList }: Pick<KeyChange, "modelIds" | "hosts">) {
  return {
    modelIds: modelIds === undefined ? undefined : checkList(modelIds, { param: "modelIds", max: SCOPE_MODELS_MAX }),
    hosts: hostList === undefined ? undefined : checkList(hostList, { param: "hosts", max: HOSTS_MAX }),
  };
}

function without(list: string[] | null | undefined, known: readonly string[] | null): string[] | null {
  return list?.filter((each) => !known?.includes(each)) ?? null;
}

/** A key that replaces another has used what that has used of the same days: a rotation brings no new limits. */
async function carryUse(tx: Tx, { from, to }: { from: number; to: number }): Promise<void> {
  await tx.execute(
    sql`update keys set total_spend_from = (select total_spend_from from keys where id = ${from}) where id = ${to}`,
  );
  await tx.execute(sql`
    insert into key_days (key_id, day, units_before, nano_usd_before, units_max, spend_max_nano_usd)
    select ${to}::bigint, d.day, d.units_taken + d.units_before, d.taken_nano_usd + d.nano_usd_before,
      greatest(d.units_max, d.units_taken + d.units_before), greatest(d.spend_max_nano_usd, d.taken_nano_usd + d.nano_usd_before)
    from keys k cross join lateral (select (ledger_now() at time zone k.time_zone)::date as today) c
    join key_days d on d.key_id = k.id and d.day >= least(c.today, (select min(b.first_day) from key_budgets(k, c.today) b))
    where k.id = ${from} and is_limited(k)`);
}

/** Disables a key until it is enabled again. Throws InputError. */
export async function disableKey(deps: ChangeDeps, key: KeyOf): Promise<Key> {
  return endRight(deps, key, "disabled");
}

/** Enables a disabled key. Throws InputError, also for a revoked key. */
export async function enableKey(deps: ChangeDeps, { accountId, keyId }: KeyOf): Promise<Key> {
  return changing(deps, (tx) => setStatus(tx, { accountId, keyId }, "enabled"));
}

/** Ends a key permanently. Throws InputError. */
export async function revokeKey(deps: ChangeDeps, key: KeyOf): Promise<Key> {
  return endRight(deps, key, "revoked");
}

/**
 * Replaces a key with a new one that has the same settings. The old key works for `overlapSeconds` more; 0: it ends now. Throws
 * InputError if the key is not enabled.
 */
export async function rotateKey(
  deps: ChangeDeps,
  { accountId, keyId, overlapSeconds }: KeyOf & { overlapSeconds: number },
): Promise<CreatedKey & { old: Key }> {
  checkOverlap(overlapSeconds);
  return changing(deps, async (tx) => {
    await lockAccounts(tx, [accountId]);
    await lockKeySet(tx, accountId);
    const before = await findOf(tx, { accountId, keyId });
    if (before.status !== "enabled")
      throw new InputError(
        sentence(
          "This key is {status, select, disabled {switched off} revoked {revoked} other {ended}}: only an enabled key can be rotated.",
          { status: before.status },
        ),
        "keyId",
      );
    const created = await insertKey(tx, { ...before, madeBy: deps.by?.accountId });
    await carryUse(tx, { from: keyId, to: created.key.keyId });
    // least() ignores null, which here means never.
    await tx
      .update(keys)
      .set({ expiresAt: sql`least(${keys.expiresAt}, ledger_now() + make_interval(secs => ${overlapSeconds}))` })
      .where(eq(keys.id, keyId));
    return { ...created, old: await findOf(tx, { accountId, keyId }) };
  });
}

/**
 * Deletes keys that were revoked more than `keptDays` ago; returns how many. Receipts and `key_days` keep their ids, which the books
 * need.
 */
export async function pruneKeys({ db }: { db: Db }, keptDays: number): Promise<number> {
  return await inSlices(PRUNE_ROWS, async () => {
    const deleted = await db.orm.execute(sql`
      with revoked as (
        select id from keys where revoked_at < clock_timestamp() - make_interval(days => ${keptDays}::int) and status = 'revoked'
        order by revoked_at limit ${PRUNE_ROWS} for update skip locked
      ), uses as (delete from key_uses using revoked where key_id = id)
      delete from keys using revoked where keys.id = revoked.id returning 1`);
    return deleted.length;
  });
}

/** All keys that a panel request on `host` can use; the default one first. Source: KEY-7. */
export async function listUsableKeys({ db }: { db: Db }, of: { accountId: number; host: string }): Promise<Key[]> {
  return select(db.orm, isUsable(of), KEYS_MAX);
}

async function endRight(deps: ChangeDeps, { accountId, keyId }: KeyOf, status: "disabled" | "revoked"): Promise<Key> {
  const end = async (tx: Tx) => {
    await lockAccounts(tx, [accountId]);
    return setStatus(tx, { accountId, keyId }, status);
  };
  return changing(deps, end, { protects: true });
}

async function setStatus(
  tx: Tx,
  { accountId, keyId }: KeyOf,
  status: "enabled" | "disabled" | "revoked",
): Promise<Key> {
  const before = await findOf(tx, { accountId, keyId });
  const set = await tx
    .update(keys)
    .set({ status, ...(status === "revoked" && { revokedAt: sql`clock_timestamp()` }) })
    .where(and(eq(keys.id, keyId), eq(keys.accountId, accountId), ne(keys.status, "revoked")))
    .returning({ id: keys.id });
  // Revoking twice is not an error.
  if (set.length === 0 && status !== "revoked")
    throw new InputError("This key is revoked, which cannot be undone. Create a new one.", "keyId");
  return set.length === 0 ? before : findOf(tx, { accountId, keyId });
}

/** Serializes creations, so that KEYS_MAX holds. The ledger only reads the row and is not blocked. */
async function lockKeySet(tx: Tx, accountId: number): Promise<void> {
  await lockAccountRow(tx, accountId);
  const [counted] = await tx
    .select({ count: sql<number>`count(*)::int` })
    .from(keys)
    .where(and(eq(keys.accountId, accountId), ne(keys.status, "revoked")));
  if ((counted?.count ?? 0) >= KEYS_MAX)
    throw new InputError(
      sentence("An account may have {keysMax} keys. Revoke one first.", { keysMax: KEYS_MAX }),
      "accountId",
    );
}

async function insertKey(
  tx: Tx,
  {
    accountId,
    name,
    mode,
    modelIds,
    hosts: hostList,
    ...rest
  }: Omit<NewKey, "limits"> & Pick<Key, "timeZone" | "limits"> & { madeBy: number | undefined },
): Promise<CreatedKey> {
  const { secret, digest, prefix, suffix } = newApiKey();
  const [added] = await tx
    .insert(keys)
    .values({
      accountId,
      madeBy: rest.madeBy,
      name,
      mode,
      digest,
      prefix,
      suffix,
      modelIds: modelIds && [...modelIds],
      hosts: hostList && [...hostList],
      expiresAt: rest.expiresAt,
      ...ceilingsOf(rest),
      timeZone: rest.timeZone,
      limits: rest.limits,
    })
    .returning({ keyId: keys.id });
  if (!added) throw new Error("an insert returned nothing");
  return { secret, key: await findOf(tx, { accountId, keyId: added.keyId }) };
}

/** A key may be limited to the service's own hosts and to its reseller's domains. */
async function checkHosts(
  tx: Tx,
  { accountId, own, hostList }: { accountId: number; own: ReadonlySet<string>; hostList: string[] | null },
): Promise<void> {
  const foreign = hostList?.filter((host) => !own.has(host)) ?? [];
  if (foreign.length === 0) return;
  const rows = await tx
    .select({ host: hosts.host })
    .from(hosts)
    .innerJoin(
      accounts,
      and(eq(accounts.id, accountId), sql`${hosts.resellerId} in (${accounts.resellerId}, ${accounts.id})`),
    )
    .where(ne(hosts.status, "removed"));
  const known = new Set(rows.map(({ host }) => host));
  const unknown = foreign.find((host) => !known.has(host));
  if (unknown !== undefined)
    throw new InputError(
      sentence("The host {unknown} belongs neither to the service nor to the account's reseller.", { unknown }),
      "hosts",
    );
}

/** A key may have at most what its account has. Throws InputError. Source: LIM-6. */
async function checkKeyLimits(tx: Tx, accountId: number, limits: LimitSetInput | null): Promise<RateLimits | null> {
  if (limits === null) return null;
  const applied = appliedLimits(await selectLimits(tx, accountId));
  const { requestsPerMinute, tokensPerMinute, requestsAtOnce } = limits;
  const given = { requestsPerMinute, tokensPerMinute, requestsAtOnce };
  return checkRateLimits(given, { limits: applied, of: "account" });
}

/** The limits alone; what is not given is undefined. */
function ceilingsOf(of: Partial<Ceilings>) {
  const { dailyUnitsMax, dailySpendMaxNanoUsd, weeklySpendMaxNanoUsd, monthlySpendMaxNanoUsd, totalSpendMaxNanoUsd } =
    of;
  return { dailyUnitsMax, dailySpendMaxNanoUsd, weeklySpendMaxNanoUsd, monthlySpendMaxNanoUsd, totalSpendMaxNanoUsd };
}

function hasCeiling(of: Ceilings): boolean {
  return Object.values(ceilingsOf(of)).some((value) => value !== null);
}

/** Throws InputError. */
function checkCeilings(of: Partial<Ceilings>): void {
  if (typeof of.dailyUnitsMax === "number")
    checkInteger(of.dailyUnitsMax, { param: "dailyUnitsMax", ...KEY_DAILY_REQUESTS });
  for (const { field } of KEY_BUDGETS) {
    const nanoUsd = of[field];
    const param: string = field;
    if (typeof nanoUsd === "bigint" && (nanoUsd < 1n || nanoUsd > MONEY_NANO_USD_MAX))
      throw new InputError(sentence("The field {param} must be above $0 and at most $9,000,000.", { param }), param);
  }
}

/** Returns the expiry in UTC. Throws InputError. */
async function checkExpiry(tx: Tx, expiresAt: string | null): Promise<string | null> {
  if (expiresAt === null) return null;
  const utc = checkInstant(expiresAt, "expiresAt");
  const result = await tx.execute<{ fits: boolean }>(sql`
    select ${utc}::text::timestamptz > ledger_now() and ${utc}::text::timestamptz < ledger_now() + make_interval(days => ${DAYS_AHEAD_MAX}) as fits`);
  if (!result[0]?.fits) throw new InputError("The expiry must be in the future, within ten years.", "expiresAt");
  return utc;
}

async function findOf(tx: Tx, { accountId, keyId }: KeyOf): Promise<Key> {
  const key = isRowId(keyId) ? await find(tx, and(eq(keys.id, keyId), eq(keys.accountId, accountId))) : undefined;
  if (!key) throw new InputError("There is no such key.", "keyId");
  return key;
}

async function find(tx: Tx, where: SQL | undefined): Promise<Key | undefined> {
  return (await select(tx, where, 1))[0];
}

async function select(tx: Tx, where: SQL | undefined, limit: number): Promise<Key[]> {
  const rows = await tx.select(COLUMNS).from(keys).where(where).orderBy(desc(keys.id)).limit(limit);
  return rows.map(toKey);
}

/** What the key has spent of each period that now is in; of the total since its first day. */
const SPENT = {
  day: spentSince(sql`c.today`),
  week: spentSince(sql`date_trunc('week', c.today)`),
  month: spentSince(sql`date_trunc('month', c.today)`),
  total: spentSince(keys.totalSpendFrom),
};

function spentSince(day: SQL | typeof keys.totalSpendFrom) {
  return sql<string>`(select coalesce(sum(d.taken_nano_usd + d.nano_usd_before), 0)
    from (select (ledger_now() at time zone ${keys.timeZone})::date as today) c, key_days d where d.key_id = ${keys.id} and d.day >= ${day})`;
}

/** When each period begins anew. */
const NEXT = {
  nextDay: beginsAt(sql`c.today + 1`),
  nextWeek: beginsAt(sql`(date_trunc('week', c.today) + interval '7 days')::date`),
  nextMonth: beginsAt(sql`(date_trunc('month', c.today) + interval '1 month')::date`),
};

function beginsAt(day: SQL) {
  return sql<string>`(select day_begins(${day}, ${keys.timeZone})
    from (select (ledger_now() at time zone ${keys.timeZone})::date as today) c)`;
}

const COLUMNS = {
  keyId: keys.id,
  accountId: keys.accountId,
  name: keys.name,
  // Not an admin: customers of a reseller know nobody of the operator.
  madeBy: sql<Maker | null>`(select json_build_object('personId', p.id, 'name', p.name, 'isMember', m.role is not null)
    from accounts a join accounts p on p.id = a.id or p.role <> 'admin' and p.reseller_id is not distinct from a.reseller_id
    left join members m on m.account_id = a.id and m.person_id = p.id where a.id = ${keys.accountId} and p.id = ${keys.madeBy})`,
  masked: sql<string>`${keys.prefix} || '…' || ${keys.suffix}`,
  mode: keys.mode,
  modelIds: keys.modelIds,
  hosts: keys.hosts,
  status: sql<
    Key["status"]
  >`case when ${keys.status} <> 'revoked' and ${keys.expiresAt} <= ledger_now() then 'expired' else ${keys.status} end`,
  expiresAt: keys.expiresAt,
  dailyUnitsMax: keys.dailyUnitsMax,
  dailySpendMaxNanoUsd: keys.dailySpendMaxNanoUsd,
  weeklySpendMaxNanoUsd: keys.weeklySpendMaxNanoUsd,
  monthlySpendMaxNanoUsd: keys.monthlySpendMaxNanoUsd,
  totalSpendMaxNanoUsd: keys.totalSpendMaxNanoUsd,
  totalSpendFrom: keys.totalSpendFrom,
  timeZone: keys.timeZone,
  limits: keys.limits,
  createdAt: keys.createdAt,
};

function toKey<Row extends { expiresAt: string | null; createdAt: string }>(row: Row): Row {
  return { ...row, expiresAt: toIso(row.expiresAt), createdAt: toIso(row.createdAt) };
}
