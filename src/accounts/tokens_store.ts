import { and, desc, eq, ne, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { InputError, Refusal } from "../errors.ts";
import { isNetwork } from "../http/client_address.ts";
import { API_TOKEN_NAME_CHARS_MAX, API_TOKEN_NETWORKS_MAX, API_TOKENS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { newApiToken } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { accounts, apiTokens } from "../platform/schema_accounts.ts";
import { checkInstant, checkList, checkName, checkOverlap, isRowId } from "./input_checks.ts";
import { lockAccountRow } from "./locks_store.ts";
import { type Role, tenantOf } from "./roles.ts";
import { checkScopes } from "./scopes.ts";

/**
 * Tokens of the management API. The secret is returned once, when the token is made; the database has its SHA-256 digest. Callers check
 * whose tokens a person may see. Source: MGT-1.
 */

/** Revoked tokens that the owner's page still shows. */
const REVOKED_SHOWN = 20;
const DAYS_AHEAD_MAX = 3660;

export type ApiToken = {
  tokenId: number;
  name: string;
  /** The first characters, as in `mt-7Qf0aB`. */
  prefix: string;
  scopes: string[];
  /** The addresses that it may be used from; null: all. */
  networks: string[] | null;
  status: "active" | "revoked" | "expired";
  expiresAt: string | null;
  /** A minute late at most. */
  lastUsedAt: string | null;
  createdAt: string;
};

export type NewToken = {
  accountId: number;
  name: string;
  scopes: readonly string[];
  /** Addresses, and ranges as in 192.0.2.0/24; null: all. */
  networks: readonly string[] | null;
  /** As `checkInstant` takes it, in the future; null: never. */
  expiresAt: string | null;
};

/** A new token and its secret, which cannot be shown again. */
export type CreatedToken = { secret: string; token: ApiToken };
export type TokenOf = { accountId: number; tokenId: number };

/** Makes a token of an admin or a reseller. Throws InputError. */
export async function createToken(deps: ChangeDeps, wanted: NewToken): Promise<CreatedToken> {
  const { accountId } = wanted;
  const name = checkName(wanted.name, { param: "name", charsMax: API_TOKEN_NAME_CHARS_MAX });
  const networks = checkNetworks(wanted.networks);
  return changing(deps, async (tx) => {
    const role = await lockTokens(tx, accountId);
    const scopes = checkScopes(wanted.scopes, role);
    return insert(tx, { accountId, name, networks, scopes, expiresAt: await checkEnd(tx, wanted.expiresAt) });
  });
}

/** The tokens of an account that are not revoked, and the latest revoked ones, newest first. */
export async function listTokens({ db }: { db: Db }, accountId: number): Promise<ApiToken[]> {
  const own = eq(apiTokens.accountId, accountId);
  const [living, revoked] = await Promise.all([
    select(db.orm, and(own, ne(apiTokens.status, "revoked")), API_TOKENS_MAX),
    select(db.orm, and(own, eq(apiTokens.status, "revoked")), REVOKED_SHOWN),
  ]);
  return [...living, ...revoked].sort((a, b) => b.tokenId - a.tokenId);
}

/**
 * Replaces a token with a new one that has the same settings. The old one works for `overlapSeconds` more; 0: it ends now. Throws
 * not_found, InputError.
 */
export async function rotateToken(
  deps: ChangeDeps,
  { accountId, tokenId, overlapSeconds }: TokenOf & { overlapSeconds: number },
): Promise<CreatedToken & { old: ApiToken }> {
  checkOverlap(overlapSeconds);
  return changing(deps, async (tx) => {
    const role = await lockTokens(tx, accountId);
    const before = await one(tx, { accountId, tokenId });
    if (before.status !== "active")
      throw new InputError(`This token is ${before.status}: only an active token can be rotated.`, "tokenId");
    const created = await insert(tx, { ...before, accountId, scopes: checkScopes(before.scopes, role) });
    // least() ignores null, which here means never.
    await tx
      .update(apiTokens)
      .set({
        expiresAt: sql`least(${apiTokens.expiresAt}, clock_timestamp() + make_interval(secs => ${overlapSeconds}))`,
      })
      .where(eq(apiTokens.id, tokenId));
    return { ...created, old: await one(tx, { accountId, tokenId }) };
  });
}

/** Ends a token permanently. Revoking it twice is no error. Throws not_found. */
export async function revokeToken(deps: ChangeDeps, { accountId, tokenId }: TokenOf): Promise<ApiToken> {
  const revoke = async (tx: Tx) => {
    await one(tx, { accountId, tokenId });
    await tx
      .update(apiTokens)
      .set({ status: "revoked", revokedAt: sql`clock_timestamp()` })
      .where(and(eq(apiTokens.id, tokenId), ne(apiTokens.status, "revoked")));
    return one(tx, { accountId, tokenId });
  };
  return changing(deps, revoke, { protects: true });
}

/** A token as requests are checked by it. */
export type TokenSnapshot = {
  tokenId: number;
  tokenName: string;
  scopes: string[];
  networks: string[] | null;
  accountId: number;
  role: Role;
  /** A reseller's own id; an admin's is 0. */
  tenantId: number;
  name: string;
  email: string;
  /** ms until it ends and since it was last used, both at the time of the query; null: never. */
  endsInMs: number | null;
  unusedMs: number | null;
};

/** The tokens with these digests (hex), without those that have ended or whose owner is suspended. */
export async function loadTokens({ db }: { db: Db }, digests: readonly string[]): Promise<Map<string, TokenSnapshot>> {
  const literal = `{${digests.map((digest) => `"\\\\x${digest}"`).join(",")}}`;
  const reseller = alias(accounts, "reseller");
  const rows = await db.orm
    .select({
      digest: apiTokens.digest,
      tokenId: apiTokens.id,
      tokenName: apiTokens.name,
      scopes: apiTokens.scopes,
      networks: apiTokens.networks,
      accountId: accounts.id,
      role: accounts.role,
      resellerId: accounts.resellerId,
      name: accounts.name,
      email: accounts.email,
      endsInMs: msSql(sql`${apiTokens.expiresAt} - clock_timestamp()`),
      unusedMs: msSql(sql`clock_timestamp() - ${apiTokens.lastUsedAt}`),
    })
    .from(apiTokens)
    .innerJoin(accounts, and(eq(accounts.id, apiTokens.accountId), eq(accounts.status, "active")))
    .leftJoin(reseller, eq(reseller.id, accounts.resellerId))
    .where(
      and(
        sql`${apiTokens.digest} = any(${literal}::text::bytea[])`,
        isLiving,
        sql`coalesce(${reseller.status}, 'active') = 'active'`,
      ),
    );
  return new Map(
    rows.map(({ digest, resellerId, ...row }) => [
      digest.toString("hex"),
      { ...row, tenantId: tenantOf({ ...row, resellerId }) },
    ]),
  );
}

/**
 * Locks a token until the transaction ends, so that nothing is written with a token whose revocation has returned. Throws invalid_token.
 */
export async function requireLiving(tx: Tx, tokenId: number): Promise<void> {
  const rows = await tx
    .select({ id: apiTokens.id })
    .from(apiTokens)
    .where(and(eq(apiTokens.id, tokenId), isLiving))
    .for("share");
  if (rows.length === 0) throw new Refusal("invalid_token");
}

/** Notes that a token was used now. */
export async function touchToken({ db }: { db: Db }, tokenId: number): Promise<void> {
  await db.orm.update(apiTokens).set({ lastUsedAt: sql`clock_timestamp()` }).where(eq(apiTokens.id, tokenId));
}

const isLiving = and(
  eq(apiTokens.status, "active"),
  sql`coalesce(${apiTokens.expiresAt}, 'infinity') > clock_timestamp()`,
);

function msSql(span: SQL) {
  return sql<number | null>`floor(extract(epoch from ${span}) * 1000)::float8`;
}

/** Serializes what makes tokens of an account, so that API_TOKENS_MAX holds. Returns the account's role. Throws InputError. */
async function lockTokens(tx: Tx, accountId: number): Promise<Role> {
  await lockAccountRow(tx, accountId);
  const [row] = await tx
    .select({
      role: accounts.role,
      tokens: sql<number>`(select count(*)::int from api_tokens where account_id = ${accountId} and status = 'active')`,
    })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  if (row === undefined || row.role === "customer")
    throw new InputError("Only admins and resellers have tokens of the management API.", "accountId");
  if (row.tokens >= API_TOKENS_MAX)
    throw new InputError(`An account may have ${API_TOKENS_MAX} tokens. Revoke one first.`);
  return row.role;
}

function checkNetworks(wanted: readonly string[] | null): string[] | null {
  const networks = checkList(wanted, { param: "networks", what: "networks", max: API_TOKEN_NETWORKS_MAX });
  const wrong = networks?.find((one) => !isNetwork(one));
  if (wrong !== undefined)
    throw new InputError("A network is an address, or a range as in 192.0.2.0/24 or 2001:db8::/32.", "networks");
  return networks;
}

/** Returns the end in UTC. Throws InputError. */
async function checkEnd(tx: Tx, expiresAt: string | null): Promise<string | null> {
  if (expiresAt === null) return null;
  const utc = checkInstant(expiresAt, { param: "expiresAt", what: "end" });
  const [row] = await tx.execute<{ fits: boolean }>(sql`
    select ${utc}::text::timestamptz > clock_timestamp()
      and ${utc}::text::timestamptz < clock_timestamp() + make_interval(days => ${DAYS_AHEAD_MAX}) as fits`);
  if (!row?.fits) throw new InputError("The end must be in the future, within ten years.", "expiresAt");
  return utc;
}

async function insert(
  tx: Tx,
  {
    accountId,
    name,
    scopes,
    networks,
    expiresAt,
  }: Pick<ApiToken, "name" | "scopes" | "networks" | "expiresAt"> & { accountId: number },
): Promise<CreatedToken> {
  const { secret, digest, prefix } = newApiToken();
  const [added] = await tx
    .insert(apiTokens)
    .values({ accountId, name, digest, prefix, scopes, networks, expiresAt })
    .returning({ tokenId: apiTokens.id });
  return { secret, token: await one(tx, { accountId, tokenId: Number(added?.tokenId) }) };
}

/** Throws not_found. */
async function one(tx: Tx, { accountId, tokenId }: TokenOf): Promise<ApiToken> {
  const where = and(eq(apiTokens.id, tokenId), eq(apiTokens.accountId, accountId));
  const [token] = isRowId(tokenId) ? await select(tx, where, 1) : [];
  if (token === undefined) throw new Refusal("not_found", { message: "There is no such token." });
  return token;
}

async function select(tx: Tx, where: SQL | undefined, limit: number): Promise<ApiToken[]> {
  const rows = await tx
    .select({
      tokenId: apiTokens.id,
      name: apiTokens.name,
      prefix: apiTokens.prefix,
      scopes: apiTokens.scopes,
      networks: apiTokens.networks,
      status: sql<
        ApiToken["status"]
      >`case when ${apiTokens.status} = 'active' and ${apiTokens.expiresAt} <= clock_timestamp() then 'expired' else ${apiTokens.status} end`,
      expiresAt: apiTokens.expiresAt,
      lastUsedAt: apiTokens.lastUsedAt,
      createdAt: apiTokens.createdAt,
    })
    .from(apiTokens)
    .where(where)
    .orderBy(desc(apiTokens.id))
    .limit(limit);
  return rows.map((row) => ({
    ...row,
    expiresAt: toIso(row.expiresAt),
    lastUsedAt: toIso(row.lastUsedAt),
    createdAt: toIso(row.createdAt),
  }));
}
