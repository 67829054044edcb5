import { and, desc, eq, lt, ne, or, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import { KEY_DAILY_REQUESTS, KEY_NAME_CHARS_MAX, MONEY_NANO_USD_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { newApiKey } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { inSlices } from "../platform/prune.ts";
import { accounts, hosts, keyDays, keys, keyUses, type Overhead } from "../platform/schema.ts";
import { checkInteger, checkList, checkName, isRowId, toIso } from "./checks.ts";
import { type HostConfig, ownHosts } from "./host_names.ts";
import { lockAccounts } from "./locks_store.ts";
import { checkModelIds } from "./model_scope_store.ts";

/**
 * API keys. The secret leaves this file once, when its key is made; a listing shows the first and last characters.
 * Whatever ends a key's right takes the account's lock first, so that no request is granted after it.
 */

/** Keys of one account that are not revoked. */
const KEYS_MAX = 200;
/** Revoked ones that its page still shows. */
const REVOKED_SHOWN = 50;
const MODELS_MAX = 200;
const HOSTS_MAX = 50;
const PAGE_MAX = 1000;
/** Keys that are forgotten in one statement: each is told to the caches. */
const PRUNE_ROWS = 500;
const OVERLAP_SECONDS_MAX = 30 * 86_400;
const DAYS_AHEAD_MAX = 3660;

export type KeyMode = "package" | "payg";

export type Key = {
  keyId: number;
  accountId: number;
  name: string;
  /** First and last characters, as in `sk-7Qf…x9Kd`. */
  masked: string;
  mode: KeyMode;
  /** Models and hosts the key may name; null: all that the account has. */
  modelIds: string[] | null;
  hosts: string[] | null;
  status: "enabled" | "disabled" | "revoked" | "expired";
  expiresAt: string | null;
  /** Its own ceilings: requests a day, and money of the balance a day, both by the days of `timeZone`; null: none. */
  dailyUnitsMax: number | null;
  dailySpendMaxNanoUsd: bigint | null;
  timeZone: string;
  createdAt: string;
};

export type NewKey = {
  accountId: number;
  name: string;
  mode: KeyMode;
  modelIds: readonly string[] | null;
  hosts: readonly string[] | null;
  /** ISO 8601 with its zone, in the future; null: never. */
  expiresAt: string | null;
} & Partial<Ceilings>;

/** A key's own ceilings a day: requests, and nano-USD of the balance. null: none. */
export type Ceilings = { dailyUnitsMax: number | null; dailySpendMaxNanoUsd: bigint | null };

/** A new key and its secret, which cannot be shown again. */
export type CreatedKey = { secret: string; key: Key };

type KeyOf = { accountId: number; keyId: number };

/** Creates a key. Throws InputError. Source: contract › Authentication, 1. */
export async function createKey(
  deps: ChangeDeps & { config: HostConfig & Pick<Config, "billingTimeZone"> },
  wanted: NewKey,
): Promise<CreatedKey> {
  const name = checkName(wanted.name, { param: "name", charsMax: KEY_NAME_CHARS_MAX });
  const modelIds = checkList(wanted.modelIds, { param: "modelIds", what: "models", max: MODELS_MAX });
  const hostList = checkList(wanted.hosts, { param: "hosts", what: "hosts", max: HOSTS_MAX });
  const { dailyUnitsMax = null, dailySpendMaxNanoUsd = null } = wanted;
  checkCeilings({ dailyUnitsMax, dailySpendMaxNanoUsd });
  return changing(deps, async (tx) => {
    await lockKeySet(tx, wanted.accountId);
    await checkModelIds(tx, modelIds);
    await checkHosts(tx, { accountId: wanted.accountId, own: ownHosts(deps.config), hostList });
    const expiresAt = await checkExpiry(tx, wanted.expiresAt);
    const timeZone = deps.config.billingTimeZone;
    return insertKey(tx, {
      ...wanted,
      name,
      modelIds,
      hosts: hostList,
      expiresAt,
      dailyUnitsMax,
      dailySpendMaxNanoUsd,
      timeZone,
    });
  });
}

/** Keys, newest first, of one account or of all. `before` is the last id of the page before. */
export async function listKeys(
  { db }: { db: Db },
  { accountId, before, limit = 100 }: { accountId?: number; before?: number; limit?: number } = {},
): Promise<{ rows: Key[]; hasMore: boolean }> {
  const size = Math.min(Math.max(limit, 1), PAGE_MAX);
  const rows = await select(
    db.orm,
    and(
      accountId === undefined ? undefined : eq(keys.accountId, accountId),
      before === undefined ? undefined : lt(keys.id, before),
    ),
    size + 1,
  );
  return { rows: rows.slice(0, size), hasMore: rows.length > size };
}

/** One key; with `accountId` only if it is that account's. */
export async function findKey(
  { db }: { db: Db },
  { keyId, accountId }: { keyId: number; accountId?: number },
): Promise<Key | undefined> {
  if (!isRowId(keyId)) return undefined;
  return find(db.orm, and(eq(keys.id, keyId), accountId === undefined ? undefined : eq(keys.accountId, accountId)));
}

/** A key as its page shows it. */
export type ShownKey = Key & {
  /** When and where a request of it was granted last, as of a few seconds ago. */
  lastUsedAt: string | null;
  lastHost: string | null;
  /** What counts against its ceilings today, live holds included; null: it has none. */
  today: { units: number; spentNanoUsd: bigint } | null;
};

/** Every key of an account that is not revoked and the latest of those that are, newest first. */
export async function listShownKeys({ db }: { db: Db }, accountId: number): Promise<ShownKey[]> {
  const revoked = db.orm
    .select({ id: keys.id })
    .from(keys)
    .where(and(eq(keys.accountId, accountId), eq(keys.status, "revoked")))
    .orderBy(desc(keys.id))
    .limit(REVOKED_SHOWN);
  const rows = await db.orm
    .select({
      ...COLUMNS,
      lastUsedAt: keyUses.lastUsedAt,
      lastHost: keyUses.host,
      units: sql<number>`coalesce(${keyDays.unitsUsed} + ${keyDays.unitsHeld}, 0)::int`,
      spent: sql<string>`coalesce(${keyDays.spentNanoUsd} + ${keyDays.heldNanoUsd}, 0)`,
    })
    .from(keys)
    .leftJoin(keyUses, eq(keyUses.keyId, keys.id))
    .leftJoin(
      keyDays,
      and(eq(keyDays.keyId, keys.id), sql`${keyDays.day} = (ledger_now() at time zone ${keys.timeZone})::date`),
    )
    .where(and(eq(keys.accountId, accountId), or(ne(keys.status, "revoked"), sql`${keys.id} in ${revoked}`)))
    .orderBy(desc(keys.id))
    .limit(KEYS_MAX + REVOKED_SHOWN);
  return rows.map(({ units, spent, lastUsedAt, ...row }) => ({
    ...toKey(row),
    lastUsedAt: toIso(lastUsedAt),
    today:
      row.dailyUnitsMax === null && row.dailySpendMaxNanoUsd === null ? null : { units, spentNanoUsd: BigInt(spent) },
  }));
}

export type KeyChange = { name?: string } & Partial<Ceilings>;

/**
 * Names a key anew, or sets its ceilings; what is left out stays. A new ceiling counts from now on. Throws InputError; a
 * revoked key stays as it is.
 */
export async function updateKey(deps: ChangeDeps, { accountId, keyId }: KeyOf, change: KeyChange): Promise<Key> {
  const { dailyUnitsMax, dailySpendMaxNanoUsd } = change;
  const name =
    change.name === undefined ? undefined : checkName(change.name, { param: "name", charsMax: KEY_NAME_CHARS_MAX });
  checkCeilings({ dailyUnitsMax: dailyUnitsMax ?? null, dailySpendMaxNanoUsd: dailySpendMaxNanoUsd ?? null });
  const limits = dailyUnitsMax !== undefined || dailySpendMaxNanoUsd !== undefined;
  return changing(deps, async (tx) => {
    if (limits) await lockAccounts(tx, [accountId]);
    const before = await findOf(tx, { accountId, keyId });
    if (before.status === "revoked") throw new InputError("This key is revoked, which cannot be undone.", "keyId");
    if (name === undefined && !limits) return before;
    await tx.update(keys).set({ name, dailyUnitsMax, dailySpendMaxNanoUsd }).where(eq(keys.id, keyId));
    return findOf(tx, { accountId, keyId });
  });
}

/** Switches a key off until it is enabled again. Throws InputError. */
export async function disableKey(deps: ChangeDeps, key: KeyOf): Promise<Key> {
  return endRight(deps, key, "disabled");
}

/** Switches a disabled key on. Throws InputError; a revoked key stays revoked. */
export async function enableKey(deps: ChangeDeps, { accountId, keyId }: KeyOf): Promise<Key> {
  return changing(deps, (tx) => setStatus(tx, { accountId, keyId }, "enabled"));
}

/** Ends a key for good. Throws InputError. */
export async function revokeKey(deps: ChangeDeps, key: KeyOf): Promise<Key> {
  return endRight(deps, key, "revoked");
}

/**
 * Replaces a key by a new one with the same settings. The old one works for `overlapSeconds` more (0: not any more).
 * Throws InputError if it is not enabled.
 */
export async function rotateKey(
  deps: ChangeDeps,
  { accountId, keyId, overlapSeconds }: KeyOf & { overlapSeconds: number },
): Promise<CreatedKey & { old: Key }> {
  checkInteger(overlapSeconds, {
    param: "overlapSeconds",
    what: "overlap in seconds",
    min: 0,
    max: OVERLAP_SECONDS_MAX,
  });
  return changing(deps, async (tx) => {
    await lockAccounts(tx, [accountId]);
    await lockKeySet(tx, accountId);
    const before = await findOf(tx, { accountId, keyId });
    if (before.status !== "enabled")
      throw new InputError(`This key is ${before.status}: only an enabled key can be rotated.`, "keyId");
    const created = await insertKey(tx, before);
    // least() passes over null, which here means never.
    await tx
      .update(keys)
      .set({ expiresAt: sql`least(${keys.expiresAt}, ledger_now() + make_interval(secs => ${overlapSeconds}))` })
      .where(eq(keys.id, keyId));
    return { ...created, old: await findOf(tx, { accountId, keyId }) };
  });
}

/**
 * Forgets keys that were revoked more than so many days ago, and returns how many. Receipts keep their ids, and so do the days of
 * their ceilings, which the books count.
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

/** What `admit` must know of a key. Status and expiry are the ledger's to check a second time. */
export type KeySnapshot = {
  keyId: number;
  accountId: number;
  /** The reseller whose customer the account is; a reseller's own id; else 0. */
  tenantId: number;
  role: "customer" | "reseller" | "admin";
  mode: KeyMode;
  modelIds: ReadonlySet<string> | null;
  hosts: ReadonlySet<string> | null;
  status: "enabled" | "disabled" | "revoked";
  accountStatus: "active" | "suspended";
  /** Of the tenant's reseller; active where there is none. */
  tenantStatus: "active" | "suspended";
  /** Unix time in ms. */
  expiresAtMs: number | null;
  /** What the account's own requests have shown models to use beyond their bounds, by model; null: nothing. Source: rulings › Money. */
  overheads: ReadonlyMap<string, Overhead> | null;
};

/** The snapshot of the key with this SHA-256 digest. */
export async function loadKeySnapshot({ db }: { db: Db }, digest: Buffer): Promise<KeySnapshot | undefined> {
  const hex = digest.toString("hex");
  return (await loadKeySnapshots({ db }, [hex])).get(hex);
}

/** The snapshots of the keys with these SHA-256 digests, in hex; those that nobody has are left out. */
export async function loadKeySnapshots(
  { db }: { db: Db },
  digests: readonly string[],
): Promise<Map<string, KeySnapshot>> {
  // One literal, so that the statement is the same for any number.
  const literal = `{${digests.map((digest) => `"\\\\x${digest}"`).join(",")}}`;
  return new Map(await snapshots(db, sql`${keys.digest} = any(${literal}::text::bytea[])`, digests.length));
}

/**
 * The key a panel call uses: the named one, or the latest created, that is not disabled, revoked or expired and may be
 * used on `host`. Source: rulings › Hosts and keys.
 */
export async function findUsableKey(
  { db }: { db: Db },
  { accountId, host, keyId }: { accountId: number; host: string; keyId?: number },
): Promise<KeySnapshot | undefined> {
  if (keyId !== undefined && !isRowId(keyId)) return undefined;
  const usable = and(isUsable({ accountId, host }), keyId === undefined ? undefined : eq(keys.id, keyId));
  const [found] = await snapshots(db, usable, 1);
  return found?.[1];
}

/** All keys that a panel call on `host` could use, the one it takes by itself first. Source: rulings › Hosts and keys. */
export async function listUsableKeys({ db }: { db: Db }, of: { accountId: number; host: string }): Promise<Key[]> {
  return select(db.orm, isUsable(of), KEYS_MAX);
}

function isUsable({ accountId, host }: { accountId: number; host: string }): SQL | undefined {
  return and(
    eq(keys.accountId, accountId),
    eq(keys.status, "enabled"),
    sql`coalesce(${keys.expiresAt} > ledger_now(), true)`,
    sql`coalesce(${host} = any(${keys.hosts}), true)`,
  );
}

/** Snapshots by their digests in hex, the latest created first. */
async function snapshots(db: Db, where: SQL | undefined, rowsMax: number): Promise<[string, KeySnapshot][]> {
  const reseller = alias(accounts, "reseller");
  const rows = await db.orm
    .select({
      digest: keys.digest,
      keyId: keys.id,
      accountId: keys.accountId,
      resellerId: accounts.resellerId,
      role: accounts.role,
      mode: keys.mode,
      modelIds: keys.modelIds,
      hosts: keys.hosts,
      status: keys.status,
      accountStatus: accounts.status,
      resellerStatus: reseller.status,
      expiresAt: keys.expiresAt,
      overheads: OWN_OVERHEADS,
    })
    .from(keys)
    .innerJoin(accounts, eq(accounts.id, keys.accountId))
    .leftJoin(reseller, eq(reseller.id, accounts.resellerId))
    .where(where)
    .orderBy(desc(keys.id))
    .limit(rowsMax);
  return rows.map(({ digest, resellerId, resellerStatus, expiresAt, modelIds, hosts: hostList, overheads, ...row }) => [
    digest.toString("hex"),
    {
      ...row,
      tenantId: resellerId ?? (row.role === "reseller" ? row.accountId : 0),
      tenantStatus: resellerStatus ?? (row.role === "reseller" ? row.accountStatus : "active"),
      modelIds: modelIds && new Set(modelIds),
      hosts: hostList && new Set(hostList),
      expiresAtMs: expiresAt === null ? null : Date.parse(expiresAt),
      overheads: overheads && new Map(overheads.map(({ modelId, ...overhead }) => [modelId, overhead])),
    },
  ]);
}

/** Of each part the most that any of a model's routes has shown to the key's account. Hardly any account has one. */
const OWN_OVERHEADS = sql<(Overhead & { modelId: string })[] | null>`(
  select json_agg(own) from (
    select model_id as "modelId", max(constant_tokens) as "constantTokens", max(image_tokens) as "imageTokens",
      max(factor_permille) as "factorPermille"
    from route_overheads join routes on routes.id = route_id
    where route_overheads.account_id = ${keys.accountId} group by model_id
  ) as own)`;

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
  // Revoking a second time changes nothing and is no error.
  if (set.length === 0 && status !== "revoked")
    throw new InputError("This key is revoked, which cannot be undone: create a new one.", "keyId");
  return set.length === 0 ? before : findOf(tx, { accountId, keyId });
}

/** Lets one creation at a time pass, so that KEYS_MAX holds; the ledger, which only reads the row, goes on meanwhile. */
async function lockKeySet(tx: Tx, accountId: number): Promise<void> {
  const rows = isRowId(accountId)
    ? await tx.select({ id: accounts.id }).from(accounts).where(eq(accounts.id, accountId)).for("no key update")
    : [];
  if (rows.length === 0) throw new InputError("There is no such account.", "accountId");
  const [counted] = await tx
    .select({ count: sql<number>`count(*)::int` })
    .from(keys)
    .where(and(eq(keys.accountId, accountId), ne(keys.status, "revoked")));
  if ((counted?.count ?? 0) >= KEYS_MAX)
    throw new InputError(`An account may have ${KEYS_MAX} keys: revoke one first.`, "accountId");
}

async function insertKey(
  tx: Tx,
  { accountId, name, mode, modelIds, hosts: hostList, ...rest }: NewKey & Ceilings & { timeZone: string },
): Promise<CreatedKey> {
  const { secret, digest, prefix, suffix } = newApiKey();
  const [added] = await tx
    .insert(keys)
    .values({
      accountId,
      name,
      mode,
      digest,
      prefix,
      suffix,
      modelIds: modelIds && [...modelIds],
      hosts: hostList && [...hostList],
      expiresAt: rest.expiresAt,
      dailyUnitsMax: rest.dailyUnitsMax,
      dailySpendMaxNanoUsd: rest.dailySpendMaxNanoUsd,
      timeZone: rest.timeZone,
    })
    .returning({ keyId: keys.id });
  if (!added) throw new Error("an insert returned nothing");
  return { secret, key: await findOf(tx, { accountId, keyId: added.keyId }) };
}

/** A key may name the service's own hosts and its reseller's domains. */
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
      `The host ${unknown} is neither the service's own nor a domain of the account's reseller.`,
      "hosts",
    );
}

/** Throws InputError. */
function checkCeilings({ dailyUnitsMax, dailySpendMaxNanoUsd }: Ceilings): void {
  if (dailyUnitsMax !== null)
    checkInteger(dailyUnitsMax, { param: "dailyUnitsMax", what: "requests a day", ...KEY_DAILY_REQUESTS });
  if (dailySpendMaxNanoUsd !== null && (dailySpendMaxNanoUsd < 1n || dailySpendMaxNanoUsd > MONEY_NANO_USD_MAX))
    throw new InputError("The spending a day must be above zero, and at most $9,000,000.", "dailySpendMaxNanoUsd");
}

/** The expiry in UTC. */
async function checkExpiry(tx: Tx, expiresAt: string | null): Promise<string | null> {
  if (expiresAt === null) return null;
  const utc = Number.isFinite(Date.parse(expiresAt)) ? toIso(expiresAt) : "";
  if (!/^\d{4}-/.test(utc))
    throw new InputError("The expiry is not a date and time, as in 2030-01-31T00:00:00Z.", "expiresAt");
  const result = await tx.execute<{ fits: boolean }>(sql`
    select ${utc}::text::timestamptz > ledger_now() and ${utc}::text::timestamptz < ledger_now() + make_interval(days => ${DAYS_AHEAD_MAX}) as fits`);
  if (!result[0]?.fits) throw new InputError("The expiry must lie in the future, within ten years.", "expiresAt");
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

const COLUMNS = {
  keyId: keys.id,
  accountId: keys.accountId,
  name: keys.name,
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
  timeZone: keys.timeZone,
  createdAt: keys.createdAt,
};

function toKey<Row extends { expiresAt: string | null; createdAt: string }>(row: Row): Row {
  return { ...row, expiresAt: toIso(row.expiresAt), createdAt: toIso(row.createdAt) };
}
