import { and, desc, eq, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import type { Db } from "../platform/db.ts";
import { accounts, keys, type Overhead } from "../platform/schema.ts";
import { isRowId } from "./input_checks.ts";
import { type Role, tenantOf } from "./roles.ts";

/** What the gateway must know of a key before it asks the ledger. Read by the key lookup, and by the panel's own requests. */

/** What `admit` must know of a key. Status and expiry are the ledger's to check a second time. */
export type KeySnapshot = {
  keyId: number;
  accountId: number;
  /** The reseller whose customer the account is; a reseller's own id; else 0. */
  tenantId: number;
  role: Role;
  mode: "package" | "payg";
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

/** Keys of an account that are enabled, not expired, and may be used on `host`. */
export function isUsable({ accountId, host }: { accountId: number; host: string }): SQL | undefined {
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
      tenantId: tenantOf({ ...row, resellerId }),
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
