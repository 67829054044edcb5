import { and, desc, eq, ne, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { InputError, Refusal, sentence } from "../errors.ts";
import { isNetwork } from "../http/client_address.ts";
import { API_TOKEN_NAME_CHARS_MAX, API_TOKEN_NETWORKS_MAX, API_TOKENS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { newApiToken } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { accounts, apiTokens } from "../platform/schema_accounts.ts";
import { members } from "../platform/schema_members.ts";
import { checkInstant, checkList, checkName, checkOverlap, isRowId } from "./input_checks.ts";
import type { Maker } from "./keys_store.ts";
import { lockAccountRow } from "./locks_store.ts";
import type { MemberRole } from "./member_roles.ts";
import { isItsReseller, reseller, resellerIsActive } from "./reseller_store.ts";
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
  /** The member who made it, and without whose role it is worth nothing. */
  madeBy: Maker;
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
  /** Its maker; missing: the person who began the account. */
  madeBy?: number;
  name: string;
  scopes: readonly string[];
  /** Addresses, and ranges as in 192.0.2.0/24; null: all. */
  networks: readonly string[] | null;
  /** As `checkInstant` takes it, in the future; null: never. */
  expiresAt: string | null;
};

/** A new token and its secret, which cannot be shown again. */
export type CreatedToken = { secret: string; token: ApiToken };
/** `madeBy`: only if this person made it. */
export type TokenOf = { accountId: number; tokenId: number; madeBy?: number | undefined };

/** Makes a token of an admin or a reseller. Throws InputError. */
export async function createToken(deps: ChangeDeps, wanted: NewToken): Promise<CreatedToken> {
  const { accountId, madeBy = accountId } = wanted;
  const name = checkName(wanted.name, { param: "name", charsMax: API_TOKEN_NAME_CHARS_MAX });
  const networks = checkNetworks(wanted.networks);
  return changing(deps, async (tx) => {
    const { role, member } = await lockTokens(tx, { accountId, madeBy });
    const scopes = checkScopes(wanted.scopes, role, member);
    return insert(tx, { accountId, madeBy, name, networks, scopes, expiresAt: await checkEnd(tx, wanted.expiresAt) });
  });
}

/** The tokens of an account, or those that `madeBy` made, that are not revoked, and the latest revoked ones, newest first. */
export async function listTokens(
  { db }: { db: Db },
  { accountId, madeBy }: Omit<TokenOf, "tokenId">,
): Promise<ApiToken[]> {
  const own = and(eq(apiTokens.accountId, accountId), isMadeBy(madeBy));
  const [living, revoked] = await Promise.all([
    select(db.orm, and(own, ne(apiTokens.status, "revoked")), API_TOKENS_MAX),
    select(db.orm, and(own, eq(apiTokens.status, "revoked")), REVOKED_SHOWN),
  ]);
  return [...living, ...revoked].sort((a, b) => b.tokenId - a.tokenId);
}

/**
 * Replaces a token with one that `by` makes with the same settings. The old one works for `overlapSeconds` more; 0: it ends now. Throws
 * not_found, InputError.
 */
export async function rotateToken(
  deps: ChangeDeps,
  { overlapSeconds, ...of }: TokenOf & { overlapSeconds: number },
): Promise<CreatedToken & { old: ApiToken }> {
  checkOverlap(overlapSeconds);
  return changing(deps, async (tx) => {
    const { accountId, tokenId } = of;
    const before = await one(tx, of);
    const madeBy = deps.by?.accountId ?? before.madeBy.personId;
    const { role, member } = await lockTokens(tx, { accountId, madeBy });
    if (before.status !== "active")
      throw new InputError(
        sentence(
          "This token is {status, select, revoked {revoked} other {ended}}: only an active token can be rotated.",
          { status: before.status },
        ),
        "tokenId",
      );
    const created = await insert(tx, {
      ...before,
      ...{ accountId, madeBy, scopes: checkScopes(before.scopes, role, member) },
    });
    // least() ignores null, which here means never.
    await tx
      .update(apiTokens)
      .set({
        expiresAt: sql`least(${apiTokens.expiresAt}, clock_timestamp() + make_interval(secs => ${overlapSeconds}))`,
      })
      .where(eq(apiTokens.id, tokenId));
    return { ...created, old: await one(tx, of) };
  });
}

/** Ends a token permanently. Revoking it twice is no error. Throws not_found. */
export async function revokeToken(deps: ChangeDeps, of: TokenOf): Promise<ApiToken> {
  const revoke = async (tx: Tx) => {
    await one(tx, of);
    await tx
      .update(apiTokens)
      .set({ status: "revoked", revokedAt: sql`clock_timestamp()` })
      .where(and(eq(apiTokens.id, of.tokenId), ne(apiTokens.status, "revoked")));
    return one(tx, of);
  };
  return changing(deps, revoke, { protects: true });
}

/** A token as requests are checked by it. */
export type TokenSnapshot = {
  tokenId: number;
  tokenName: string;
  scopes: string[];
  networks: string[] | null;
  /** Who made it, and their role in the account. */
  madeBy: number;
  member: MemberRole;
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

/** The tokens with these digests (hex), without those that have ended, whose account or maker is suspended, or whose maker is no member. */
export async function loadTokens({ db }: { db: Db }, digests: readonly string[]): Promise<Map<string, TokenSnapshot>> {
  const literal = `{${digests.map((digest) => `"\\\\x${digest}"`).join(",")}}`;
  const maker = alias(accounts, "maker");
  const rows = await db.orm
    .select({
      digest: apiTokens.digest,
      tokenId: apiTokens.id,
      tokenName: apiTokens.name,
      scopes: apiTokens.scopes,
      networks: apiTokens.networks,
      madeBy: maker.id,
      member: members.role,
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
    .innerJoin(maker, and(eq(maker.id, MAKER), eq(maker.status, "active")))
    .innerJoin(members, and(eq(members.accountId, accounts.id), eq(members.personId, maker.id)))
    .leftJoin(reseller, isItsReseller)
    .where(and(sql`${apiTokens.digest} = any(${literal}::text::bytea[])`, isLiving, resellerIsActive));
  return new Map(
    rows.map(({ digest, resellerId, ...row }) => [
      digest.toString("hex"),
      { ...row, tenantId: tenantOf({ ...row, resellerId }) },
    ]),
  );
}

/**
 * Locks a token and its maker's role until the transaction ends, so that nothing is written with a token whose revocation, or a role whose
 * change, has returned. Throws invalid_token.
 */
export async function requireLiving(
  tx: Tx,
  { tokenId, member }: Pick<TokenSnapshot, "tokenId" | "member">,
): Promise<void> {
  const rows = await tx
    .select({ id: apiTokens.id })
    .from(apiTokens)
    .innerJoin(members, and(eq(members.accountId, apiTokens.accountId), eq(members.personId, MAKER)))
    .where(and(eq(apiTokens.id, tokenId), isLiving, eq(members.role, member)))
    .for("share");
  if (rows.length === 0) throw new Refusal("invalid_token");
}

/** Notes that a token was used now. */
export async function touchToken({ db }: { db: Db }, tokenId: number): Promise<void> {
  await db.orm.update(apiTokens).set({ lastUsedAt: sql`clock_timestamp()` }).where(eq(apiTokens.id, tokenId));
}

const MAKER = sql`coalesce(${apiTokens.madeBy}, ${apiTokens.accountId})`;

function isMadeBy(madeBy: number | undefined): SQL | undefined {
  return madeBy === undefined ? undefined : sql`${MAKER} = ${madeBy}`;
}

const isLiving = and(
  eq(apiTokens.status, "active"),
  sql`coalesce(${apiTokens.expiresAt}, 'infinity') > clock_timestamp()`,
);

function msSql(span: SQL) {
  return sql<number | null>`floor(extract(epoch from ${span}) * 1000)::float8`;
}

/** Serializes what makes tokens of an account, so that API_TOKENS_MAX holds. Returns the account's role and its maker's. Throws InputError. */
async function lockTokens(
  tx: Tx,
  { accountId, madeBy }: { accountId: number; madeBy: number },
): Promise<{ role: Role; member: MemberRole }> {
  await lockAccountRow(tx, accountId);
  const [row] = await tx
    .select({
      role: accounts.role,
      member: members.role,
      tokens: sql<number>`(select count(*)::int from api_tokens where account_id = ${accountId} and status = 'active')`,
    })
    .from(accounts)
    .innerJoin(members, and(eq(members.accountId, accounts.id), eq(members.personId, madeBy)))
    .where(eq(accounts.id, accountId));
  if (row === undefined || row.role === "customer")
    throw new InputError("Only admins and resellers have tokens of the management API.", "accountId");
  if (row.tokens >= API_TOKENS_MAX)
    throw new InputError(
      sentence("An account may have {apiTokensMax} tokens. Revoke one first.", { apiTokensMax: API_TOKENS_MAX }),
    );
  return row;
}

function checkNetworks(wanted: readonly string[] | null): string[] | null {
  const networks = checkList(wanted, { param: "networks", max: API_TOKEN_NETWORKS_MAX });
  const wrong = networks?.find((one) => !isNetwork(one));
  if (wrong !== undefined)
    throw new InputError("A network is an address, or a range as in 192.0.2.0/24 or 2001:db8::/32.", "networks");
  return networks;
}

/** Returns the end in UTC. Throws InputError. */
async function checkEnd(tx: Tx, expiresAt: string | null): Promise<string | null> {
  if (expiresAt === null) return null;
  const utc = checkInstant(expiresAt, "expiresAt");
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
    madeBy,
    name,
    scopes,
    networks,
    expiresAt,
  }: Pick<ApiToken, "name" | "scopes" | "networks" | "expiresAt"> & { accountId: number; madeBy: number },
): Promise<CreatedToken> {
  const { secret, digest, prefix } = newApiToken();
  const [added] = await tx
    .insert(apiTokens)
    .values({ accountId, madeBy, name, digest, prefix, scopes, networks, expiresAt })
    .returning({ tokenId: apiTokens.id });
  return { secret, token: await one(tx, { accountId, tokenId: Number(added?.tokenId) }) };
}

/** Throws not_found. */
async function one(tx: Tx, { accountId, tokenId, madeBy }: TokenOf): Promise<ApiToken> {
  const where = and(eq(apiTokens.id, tokenId), eq(apiTokens.accountId, accountId), isMadeBy(madeBy));
  const [token] = isRowId(tokenId) ? await select(tx, where, 1) : [];
  if (token === undefined) throw new Refusal("not_found", { message: "There is no such token." });
  return token;
}

async function select(tx: Tx, where: SQL | undefined, limit: number): Promise<ApiToken[]> {
  const rows = await tx
    .select({
      tokenId: apiTokens.id,
      madeBy: {
        personId: sql<number>`${MAKER}`.mapWith(Number),
        name: accounts.name,
        isMember: sql<boolean>`exists (select from members where account_id = ${apiTokens.accountId} and person_id = ${MAKER})`,
      },
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
    .innerJoin(accounts, eq(accounts.id, MAKER))
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
