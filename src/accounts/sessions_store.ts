import { and, desc, eq, isNull, ne, or, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { Refusal } from "../errors.ts";
import type { Bus } from "../platform/bus.ts";
import { type Actor, type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import type { RequestLimits } from "../platform/rate_tallies.ts";
import { accounts, sessions } from "../platform/schema_accounts.ts";
import { identities, identityProviders } from "../platform/schema_identities.ts";
import { members } from "../platform/schema_members.ts";
import { passkeys } from "../platform/schema_sign_in.ts";
import { noteAction } from "./audit_store.ts";
import type { MemberRole } from "./member_roles.ts";
import { workplaces } from "./members_store.ts";
import { requestLimits } from "./rate_limits.ts";
import { packageLimits } from "./rate_limits_store.ts";
import { isItsReseller, reseller, resellerIsActive } from "./reseller_store.ts";
import { type Role, tenantOf } from "./roles.ts";

/** Sessions in the database, with the digest of the token, never the token. Ages use the database's clock. */

/** Open sessions of one account; a further one replaces the least recently used. */
const SESSIONS_MAX = 50;
/** 96 bits of the digest. */
const SESSION_ID_CHARS = 24;
const PRUNE_MAX = 1000;

type Deps = { db: Db; bus: Bus };
type Ages = { idleSeconds: number; maxSeconds: number };

export type Viewed = {
  accountId: number;
  role: Role;
  tenantId: number;
  name: string;
  email: string;
};

/** A session as it is cached, and how long it lasts. */
export type StoredSession = {
  digestHex: string;
  /** Who signed in. */
  person: { accountId: number; name: string; email: string; language: string | null };
  /** Their role in the account. */
  member: MemberRole;
  /** The account that they work in, and what follows of it. */
  accountId: number;
  role: Role;
  /** The reseller of a customer; a reseller's own id; otherwise 0. */
  tenantId: number;
  email: string;
  name: string;
  host: string;
  csrfToken: string;
  /** What was set for the account beyond the configured limits, which requests of the playground count towards; null: nothing. */
  limits: RequestLimits | null;
  /** The account whose panel an admin views, read-only; null: their own. */
  viewing: Viewed | null;
  /** ms until the absolute end, and since the session was last used, both at the time of the query. */
  endsInMs: number;
  unseenMs: number;
};

/** A session in its owner's list. The id is a prefix of its digest. */
export type ListedSession = {
  sessionId: string;
  host: string;
  userAgent: string;
  address: string;
  createdAt: string;
  seenAt: string;
  expiresAt: string;
};

export type NewSession = {
  digest: Buffer;
  /** The person. */
  accountId: number;
  /** The account to work in; missing: the person's own, or else the first in which they work. */
  workIn?: number | undefined;
  host: string;
  /** Whose host it is (null: the service's own), where only some of the person's accounts are served; missing: all of them. */
  resellerId?: number | null;
  csrfToken: string;
  userAgent: string;
  address: string;
  proof: Proof;
};

/** The credentials of an account as they were when they were checked: its password, with a code if it has to; a passkey; or a linked identity. */
export type Proof =
  | { passwordHash: string | null; totpEnabled: boolean }
  | { passkeyId: number }
  | { identityId: number; identityProviderId: number };

/**
 * Stores a session. Deletes the person's ended sessions and those beyond SESSIONS_MAX. Returns its absolute end; undefined if the
 * password, the second factor, the passkey or the linked identity has changed since it was checked. Throws session_required if the person works in no account.
 */
export async function insertSession(
  deps: Deps,
  { proof, workIn, resellerId, ...session }: NewSession,
  { idleSeconds, maxSeconds }: Ages,
): Promise<string | undefined> {
  const { accountId } = session;
  return changing(deps, async (tx) => {
    if (!(await isStillProven(tx, accountId, proof))) return undefined;
    const places = await workplaces(tx, accountId, resellerId);
    const place = places.find((one) => one.accountId === workIn) ?? places[0];
    if (place === undefined)
      throw new Refusal("session_required", { message: "You are no longer a member of an account here." });
    const workAccountId = place.accountId === accountId ? null : place.accountId;
    await tx.execute(sql`
      delete from sessions where account_id = ${accountId} and (
        expires_at <= clock_timestamp() or seen_at <= clock_timestamp() - make_interval(secs => ${idleSeconds})
        or digest in (select digest from sessions where account_id = ${accountId} order by seen_at desc, digest offset ${SESSIONS_MAX - 1}))`);
    const identityProviderId = "identityProviderId" in proof ? proof.identityProviderId : null;
    const [row] = await tx
      .insert(sessions)
      .values({
        ...{ ...session, workAccountId, identityProviderId },
        expiresAt: sql`clock_timestamp() + make_interval(secs => ${maxSeconds})`,
      })
      .returning({ expiresAt: sessions.expiresAt });
    if (!row) throw new Error("an insert returned nothing");
    return toIso(row.expiresAt);
  });
}

/** Locks the account's row, which delays a concurrent change of the credentials; that change then ends this session with the others. */
async function isStillProven(tx: Tx, accountId: number, proof: Proof): Promise<boolean> {
  const isSame =
    "passwordHash" in proof
      ? and(
          sql`${accounts.passwordHash} is not distinct from ${proof.passwordHash}`,
          sql`(${accounts.totpEnabledAt} is not null) = ${proof.totpEnabled}`,
        )
      : undefined;
  const same = await tx
    .select({ accountId: accounts.id })
    .from(accounts)
    .where(and(eq(accounts.id, accountId), isSame))
    .for("share");
  if (same.length === 0 || "passwordHash" in proof) return same.length > 0;
  // A statement of its own, after the lock: it sees what was removed while this one waited.
  if ("identityId" in proof) return isLinked(tx, accountId, proof);
  const found = await tx
    .select({ id: passkeys.id })
    .from(passkeys)
    .where(and(eq(passkeys.id, proof.passkeyId), eq(passkeys.accountId, accountId), isNull(passkeys.clonedAt)));
  return found.length > 0;
}

/** Locks the provider too: switching it off waits, and then ends this session. */
async function isLinked(
  tx: Tx,
  accountId: number,
  { identityId, identityProviderId }: { identityId: number; identityProviderId: number },
): Promise<boolean> {
  const found = await tx
    .select({ id: identities.id })
    .from(identities)
    .innerJoin(
      identityProviders,
      and(eq(identityProviders.id, identities.identityProviderId), identityProviders.enabled),
    )
    .where(
      and(
        eq(identities.id, identityId),
        eq(identities.accountId, accountId),
        eq(identities.identityProviderId, identityProviderId),
      ),
    )
    .for("share");
  return found.length > 0;
}

/** The identity provider by which a session began; null: another way. */
export async function identityProviderOf({ db }: { db: Db }, digest: Buffer): Promise<number | null> {
  const [row] = await db.orm
    .select({ identityProviderId: sessions.identityProviderId })
    .from(sessions)
    .where(eq(sessions.digest, digest));
  return row?.identityProviderId ?? null;
}

/**
 * The sessions with these digests (hex), without those that have ended, whose person, account or its reseller is suspended, or whose person
 * is no longer a member of the account.
 */
export async function loadSessions(
  { db }: { db: Db },
  digests: readonly string[],
  idleSeconds: number,
): Promise<Map<string, StoredSession>> {
  const person = alias(accounts, "person");
  const viewed = alias(accounts, "viewed");
  // One array literal, so that the statement is the same for any number of digests.
  const literal = `{${digests.map((digest) => `"\\\\x${digest}"`).join(",")}}`;
  const rows = await db.orm
    .select({
      digest: sessions.digest,
      viewed: {
        accountId: viewed.id,
        role: viewed.role,
        resellerId: viewed.resellerId,
        name: viewed.name,
        email: viewed.email,
      },
      person: { accountId: person.id, name: person.name, email: person.email, language: person.language },
      member: members.role,
      accountId: accounts.id,
      resellerId: accounts.resellerId,
      role: accounts.role,
      email: accounts.email,
      name: accounts.name,
      host: sessions.host,
      csrfToken: sessions.csrfToken,
      accountLimits: { own: accounts.limits, package: packageLimits(accounts.id), reseller: reseller.limits },
      endsInMs: msSql(sql`${sessions.expiresAt} - clock_timestamp()`),
      unseenMs: msSql(sql`clock_timestamp() - ${sessions.seenAt}`),
    })
    .from(sessions)
    .innerJoin(person, and(eq(person.id, sessions.accountId), eq(person.status, "active")))
    .innerJoin(
      accounts,
      and(
        eq(accounts.id, sql`coalesce(${sessions.workAccountId}, ${sessions.accountId})`),
        eq(accounts.status, "active"),
      ),
    )
    .innerJoin(members, and(eq(members.accountId, accounts.id), eq(members.personId, person.id)))
    .leftJoin(reseller, isItsReseller)
    .leftJoin(
      viewed,
      and(eq(viewed.id, sessions.viewingAccountId), eq(accounts.role, "admin"), ne(viewed.role, "admin")),
    )
    .where(and(sql`${sessions.digest} = any(${literal}::text::bytea[])`, alive(idleSeconds), resellerIsActive));
  return new Map(
    rows.map(({ digest, resellerId, viewed: seen, accountLimits, ...rest }) => {
      const digestHex = digest.toString("hex");
      const session = {
        ...rest,
        limits: requestLimits(null, accountLimits),
        digestHex,
        tenantId: tenantOf({ ...rest, resellerId }),
        viewing: seen && { ...withoutReseller(seen), tenantId: tenantOf(seen) },
      };
      return [digestHex, session];
    }),
  );
}

function withoutReseller<T extends { resellerId: unknown }>({ resellerId, ...rest }: T): Omit<T, "resellerId"> {
  return rest;
}

/** Records a use of the session. False: it has ended. */
export async function touchSession({ db }: { db: Db }, digest: Buffer, idleSeconds: number): Promise<boolean> {
  const touched = await db.orm
    .update(sessions)
    .set({ seenAt: sql`clock_timestamp()` })
    .where(and(eq(sessions.digest, digest), alive(idleSeconds)))
    .returning({ accountId: sessions.accountId });
  return touched.length > 0;
}

/** An account's open sessions, the last used first. */
export async function listSessions(
  { db }: { db: Db },
  accountId: number,
  idleSeconds: number,
): Promise<ListedSession[]> {
  const rows = await db.orm
    .select({
      sessionId: sessionIdSql(),
      host: sessions.host,
      userAgent: sessions.userAgent,
      address: sessions.address,
      createdAt: sessions.createdAt,
      seenAt: sessions.seenAt,
      expiresAt: sessions.expiresAt,
    })
    .from(sessions)
    .where(and(eq(sessions.accountId, accountId), alive(idleSeconds)))
    .orderBy(desc(sessions.seenAt))
    .limit(SESSIONS_MAX);
  return rows.map((row) => ({
    ...row,
    createdAt: toIso(row.createdAt),
    seenAt: toIso(row.seenAt),
    expiresAt: toIso(row.expiresAt),
  }));
}

/** Ends one session of an account. False: no such session. */
export async function deleteSession(
  deps: Deps,
  { accountId, digest }: { accountId: number; digest: Buffer },
): Promise<boolean> {
  return (await remove(deps, and(eq(sessions.accountId, accountId), eq(sessions.digest, digest)))) > 0;
}

/** Ends one session of an account, by its id in the list. False: no such session. */
export async function deleteListedSession(
  deps: Deps,
  { accountId, sessionId }: { accountId: number; sessionId: string },
): Promise<boolean> {
  return (await remove(deps, and(eq(sessions.accountId, accountId), sql`${sessionIdSql()} = ${sessionId}`))) > 0;
}

/** A session's id in the list. */
export function sessionIdOf(digestHex: string): string {
  return digestHex.slice(0, SESSION_ID_CHARS);
}

function sessionIdSql(): SQL<string> {
  return sql<string>`left(encode(${sessions.digest}, 'hex'), ${sql.raw(String(SESSION_ID_CHARS))})`;
}

/** Ends every session of a person except `keep`. Returns how many. */
export async function deleteSessionsOf(
  deps: Deps,
  { accountId, keep }: { accountId: number; keep?: Buffer },
): Promise<number> {
  return changing(deps, (tx) => endSessions(tx, accountId, keep));
}

/** As `deleteSessionsOf`, in the transaction that changes the password or the second factor. */
export async function endSessions(tx: Tx, accountId: number, keep?: Buffer): Promise<number> {
  const ended = await tx
    .delete(sessions)
    .where(and(eq(sessions.accountId, accountId), keep === undefined ? undefined : ne(sessions.digest, keep)))
    .returning({ accountId: sessions.accountId });
  return ended.length;
}

/** Ends every session in which somebody works in an account, and every session of the person who began it. */
export async function endSessionsIn(tx: Tx, accountId: number): Promise<void> {
  await tx.delete(sessions).where(or(eq(sessions.accountId, accountId), eq(sessions.workAccountId, accountId)));
}

/** Makes a session work in another account of its person. False: they do not work there, or the session has ended. */
export async function workIn(
  deps: Deps,
  {
    personId,
    accountId,
    digest,
    resellerId,
  }: { personId: number; accountId: number; digest: Buffer; resellerId: number | null },
): Promise<boolean> {
  return changing(deps, async (tx) => {
    const places = await workplaces(tx, personId, resellerId);
    if (!places.some((one) => one.accountId === accountId)) return false;
    const set = await tx
      .update(sessions)
      .set({ workAccountId: accountId === personId ? null : accountId })
      .where(and(eq(sessions.digest, digest), eq(sessions.accountId, personId)))
      .returning({ digest: sessions.digest });
    return set.length > 0;
  });
}

/**
 * Makes an admin's session view another account's panel, read-only; writes the audit log. False: no such account, it is an admin, or
 * the session has ended.
 */
export async function beginViewing(
  deps: ChangeDeps & { by: Actor },
  { digest, accountId }: { digest: Buffer; accountId: number },
): Promise<boolean> {
  return changing(deps, async (tx) => {
    const [viewed] = await tx
      .select({ accountId: accounts.id })
      .from(accounts)
      .where(and(eq(accounts.id, accountId), ne(accounts.role, "admin")));
    if (!viewed) return false;
    const set = await tx
      .update(sessions)
      .set({ viewingAccountId: accountId })
      .where(and(eq(sessions.digest, digest), eq(sessions.accountId, deps.by.accountId)))
      .returning({ accountId: sessions.accountId });
    if (set.length === 0) return false;
    await noteViewing(tx, deps.by, { accountId, began: true });
    return true;
  });
}

/** Undoes `beginViewing`; writes the audit log. False: the session does not view this account. */
export async function endViewing(
  deps: ChangeDeps & { by: Actor },
  { digest, accountId }: { digest: Buffer; accountId: number },
): Promise<boolean> {
  return changing(deps, async (tx) => {
    const set = await tx
      .update(sessions)
      .set({ viewingAccountId: null })
      .where(and(eq(sessions.digest, digest), eq(sessions.viewingAccountId, accountId)))
      .returning({ accountId: sessions.accountId });
    if (set.length === 0) return false;
    await noteViewing(tx, deps.by, { accountId, began: false });
    return true;
  });
}

function noteViewing(tx: Tx, by: Actor, { accountId, began }: { accountId: number; began: boolean }): Promise<void> {
  const [before, after] = [{ viewing: !began }, { viewing: began }];
  return noteAction(tx, by, { action: "viewed", subject: "accounts", accountId, before, after });
}

/** Deletes expired sessions, at most PRUNE_MAX; returns how many. Called by a job. */
export async function pruneSessions(deps: Deps, idleSeconds: number): Promise<number> {
  const ended = deps.db.orm
    .select({ digest: sessions.digest })
    .from(sessions)
    .where(sql`not ${alive(idleSeconds)}`)
    .limit(PRUNE_MAX);
  return remove(deps, sql`${sessions.digest} in ${ended}`);
}

async function remove(deps: Deps, where: SQL | undefined): Promise<number> {
  return changing(
    deps,
    async (tx) => (await tx.delete(sessions).where(where).returning({ accountId: sessions.accountId })).length,
  );
}

function alive(idleSeconds: number): SQL {
  return sql`(${sessions.expiresAt} > clock_timestamp() and ${sessions.seenAt} > clock_timestamp() - make_interval(secs => ${idleSeconds}))`;
}

function msSql(interval: SQL): SQL<number> {
  return sql`(extract(epoch from ${interval}) * 1000)::float8`.mapWith(Number);
}
