import { and, desc, eq, type SQL, type SQLWrapper, sql } from "drizzle-orm";
import type { RequestBounds } from "../limits.ts";
import type { Db } from "../platform/db.ts";
import type { RequestLimits } from "../platform/rate_tallies.ts";
import { accounts, keys } from "../platform/schema_accounts.ts";
import { epochs } from "../platform/schema_ledger.ts";
import { isRowId } from "./input_checks.ts";
import { type Markups, sharedMarkups } from "./markups.ts";
import { requestLimits } from "./rate_limits.ts";
import { packageGoodMs, packageLimits, packageRequestBounds } from "./rate_limits_store.ts";
import { isItsReseller, reseller } from "./reseller_store.ts";
import { type Role, tenantOf } from "./roles.ts";

/** What the gateway must know of a key before it asks the ledger. Read by the key lookup, and by the panel's own requests. */

/** What the gateway knows of a key. The ledger checks status and expiry again under its lock. */
export type KeySnapshot = {
  keyId: number;
  accountId: number;
  /** The reseller of a customer; a reseller's own id; otherwise 0. */
  tenantId: number;
  role: Role;
  mode: "package" | "payg";
  modelIds: ReadonlySet<string> | null;
  hosts: ReadonlySet<string> | null;
  status: "enabled" | "disabled" | "revoked";
  accountStatus: "active" | "suspended";
  /** The status of the tenant's reseller; active if there is no tenant. */
  tenantStatus: "active" | "suspended";
  /** Unix time in ms. */
  expiresAtMs: number | null;
  /** Whether the key has daily limits of its own. */
  hasLimits: boolean;
  /** What was set for the key and its account beyond the configured limits; null: nothing. */
  limits: RequestLimits | null;
  /** What one request may ask for; null: the key uses the balance, or there is no package. Source: QUO-11. */
  requestBounds: RequestBounds | null;
  /** How long the account's active package stays the same, in ms from the read; null: no package begins or ends later. */
  packageGoodMs: number | null;
  /** The epochs of the account and of its tenant when this was read: the ledger grants nothing from an older snapshot. */
  epoch: number;
  tenantEpoch: number;
  /** What the account's reseller adds to balance prices; null: nothing. Source: MRK-1. */
  markups: Markups | null;
};

/** The snapshots of the keys with these SHA-256 digests (hex). Unknown digests are left out. */
export async function loadKeySnapshots(
  { db }: { db: Db },
  digests: readonly string[],
): Promise<Map<string, KeySnapshot>> {
  // One array literal, so that the statement is the same for any number of digests.
  const literal = `{${digests.map((digest) => `"\\\\x${digest}"`).join(",")}}`;
  return new Map(await snapshots(db, sql`${keys.digest} = any(${literal}::text::bytea[])`, digests.length));
}

/**
 * The key that a panel request uses: the named one, or the newest, if it is enabled, not expired, and allowed on
 * `host`. Source: KEY-7.
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

/** Keys of an account that are enabled, not expired, and may be used on `host`. */
export function isUsable({ accountId, host }: { accountId: number; host: string }): SQL | undefined {
  return and(
    eq(keys.accountId, accountId),
    eq(keys.status, "enabled"),
    sql`coalesce(${keys.expiresAt} > ledger_now(), true)`,
    sql`coalesce(${host} = any(${keys.hosts}), true)`,
  );
}

/** Pairs of digest (hex) and snapshot, newest key first. */
async function snapshots(db: Db, where: SQL | undefined, rowsMax: number): Promise<[string, KeySnapshot][]> {
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
      hasLimits: sql<boolean>`is_limited(${keys})`,
      keyLimits: keys.limits,
      accountLimits: { own: accounts.limits, package: packageLimits(accounts.id), reseller: reseller.limits },
      requestBounds: sql<RequestBounds | null>`case ${keys.mode} when 'package' then ${packageRequestBounds(accounts.id)} end`,
      packageGoodMs: packageGoodMs(accounts.id),
      epoch: epochOf(keys.accountId),
      tenantEpoch: epochOf(
        sql`coalesce(${accounts.resellerId}, case when ${accounts.role} = 'reseller' then ${accounts.id} end)`,
      ),
      markups: MARKUPS_OF_RESELLER,
    })
    .from(keys)
    .innerJoin(accounts, eq(accounts.id, keys.accountId))
    .leftJoin(reseller, isItsReseller)
    .where(where)
    .orderBy(desc(keys.id))
    .limit(rowsMax);
  return rows.map(({ digest, resellerId, resellerStatus, expiresAt, modelIds, hosts: hostList, markups, ...rest }) => {
    const { keyLimits, accountLimits, ...row } = rest;
    const snapshot = {
      ...row,
      limits: requestLimits(keyLimits, accountLimits),
      tenantId: tenantOf({ ...row, resellerId }),
      tenantStatus: resellerStatus ?? (row.role === "reseller" ? row.accountStatus : "active"),
      modelIds: modelIds && new Set(modelIds),
      hosts: hostList && new Set(hostList),
      expiresAtMs: expiresAt === null ? null : Date.parse(expiresAt),
      markups: resellerId === null || markups === null ? null : sharedMarkups(resellerId, markups),
    };
    return [digest.toString("hex"), snapshot];
  });
}

/** The epoch of an account: see `epochs` in schema_ledger.ts. */
export function epochOf(accountId: SQLWrapper): SQL<number> {
  return sql<number>`coalesce((select ${epochs.epoch} from ${epochs} where ${epochs.accountId} = ${accountId}), 0)`.mapWith(
    Number,
  );
}

/** The markups of the reseller of the key's account, as JSON text: few rows differ, so it is parsed once. */
const MARKUPS_OF_RESELLER = sql<string | null>`(
  select json_object_agg(model_id, basis_points order by model_id)::text from markups where markups.reseller_id = ${accounts.resellerId})`;
