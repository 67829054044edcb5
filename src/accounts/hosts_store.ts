import { and, asc, desc, eq, ne, type SQL, sql } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import { DOMAIN_REASON_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { accounts, hosts, sessions } from "../platform/schema_accounts.ts";
import { auditEntries } from "../platform/schema_service.ts";
import { type DnsReport, isDnsReport } from "./dns_check.ts";
import type { DomainState, HostStatus } from "./domain_states.ts";
import { checkDomain, type HostConfig, isHostName, ownHosts } from "./host_names.ts";
import { checkName, isRowId } from "./input_checks.ts";
import { epochOf } from "./key_snapshots_store.ts";
import { lockResellerRow, lockTenant } from "./locks_store.ts";
import { signsInOn } from "./reseller_store.ts";

/**
 * Resellers' own domains. Several resellers may claim a name, and at most one has it active: the owner. Only active domains are
 * served. A later claimant proves the name with a token that is newer than the owner's activation.
 * Source: DOM-1, DOM-3.
 */

/** Domains of a reseller, without removed ones. */
const HOSTS_MAX = 50;
/** The same with removed ones, which are kept. */
const HOSTS_EVER_MAX = 1000;
const LIST_MAX = 1000;
const PAGE_MAX = 200;
/** Minimum time between two checks of a domain. Longer than a check takes, so that there is one at a time. */
export const CHECK_GAP_SECONDS = 5;

/** Times are ISO 8601 in UTC. */
export type ResellerHost = DomainState & {
  host: string;
  resellerId: number;
  /** The value of the TXT record that proves the name. */
  token: string;
  /** Whether this reseller must prove the name: another one claims it, or had it active later. */
  contested: boolean;
  createdAt: string;
  /** When it last became active. */
  activatedAt: string | null;
  checkedAt: string | null;
  nextCheckAt: string | null;
  /** The result of the last check. */
  report: DnsReport | null;
};

export type HostRef = { host: string; resellerId: number };
type NewHost = HostRef & { status?: "pending" | "active" };

/**
 * Adds a reseller's domain: pending until a check is requested, or active by hand, in which case it may be below the service's own
 * domain. A removed domain starts over. Throws InputError.
 */
export async function addHost(
  deps: ChangeDeps & { config: HostConfig },
  { host, resellerId, status = "pending" }: NewHost,
): Promise<ResellerHost> {
  const isGiven = status === "active";
  const ref = { host: checkDomain(host, ownHosts(deps.config), isGiven), resellerId };
  return changing(deps, async (tx) => {
    await checkDomainCount(tx, resellerId);
    await lockName(tx, ref.host);
    const added = await tx
      .insert(hosts)
      .values({ ...ref, status: "pending" })
      .onConflictDoUpdate({
        target: [hosts.host, hosts.resellerId],
        set: {
          status: "pending",
          token: newToken,
          failures: 0,
          report: null,
          checkedAt: null,
          nextCheckAt: null,
          createdAt: sql`clock_timestamp()`,
        },
        setWhere: sql`hosts.status = 'removed'`,
      })
      .returning({ host: hosts.host });
    if (added.length === 0) throw new InputError("This domain was added before.", "host");
    if (isGiven) await activateByHand(tx, ref);
    return findOrThrow(tx, ref);
  });
}

/** Domains of one reseller or of all, by name, without removed ones. */
export async function listHosts(
  { db }: { db: Db },
  { resellerId }: { resellerId?: number } = {},
): Promise<ResellerHost[]> {
  return selectHosts(db.orm, and(isLiving, resellerId === undefined ? undefined : eq(hosts.resellerId, resellerId)));
}

/** A domain that is not removed: with `resellerId`, that reseller's; without, the active one, or the only one of its name. */
export async function findHost(
  { db }: { db: Db },
  { host, resellerId }: { host: string; resellerId?: number },
): Promise<ResellerHost | undefined> {
  if (host.includes("\0") || (resellerId !== undefined && !isRowId(resellerId))) return undefined;
  const found = await selectHosts(
    db.orm,
    and(isLiving, eq(hosts.host, host), resellerId === undefined ? undefined : eq(hosts.resellerId, resellerId)),
  );
  return found.find(({ status }) => status === "active") ?? (found.length === 1 ? found[0] : undefined);
}

export type HostFilter = {
  /** null: all but removed ones. `failing`: failed, or active with a last check that did not succeed. */
  status: HostStatus | "failing" | null;
  /** Part of the name. */
  q: string;
  /** The last row of the previous page. */
  before: HostRef | null;
  limit?: number;
};

/** Every reseller's domains, newest first. */
export async function pageOfHosts(
  { db }: { db: Db },
  { status, q, before, limit = 50 }: HostFilter,
): Promise<Page<ResellerHost & { resellerName: string }>> {
  const size = pageSize(limit, PAGE_MAX);
  const rows = await db.orm
    .select({ ...columns, resellerName: accounts.name })
    .from(hosts)
    .innerJoin(accounts, eq(accounts.id, hosts.resellerId))
    .where(
      and(
        status === "failing" ? isFailing : status === null ? isLiving : eq(hosts.status, status),
        q === "" ? undefined : sql`position(${q}::text in ${hosts.host}) > 0`,
        before === null
          ? undefined
          : sql`(${hosts.createdAt}, ${hosts.host}, ${hosts.resellerId}) <
              (select created_at, host, reseller_id from hosts where host = ${before.host} and reseller_id = ${before.resellerId})`,
      ),
    )
    .orderBy(desc(hosts.createdAt), desc(hosts.host), desc(hosts.resellerId))
    .limit(size + 1);
  return pageOf(
    rows.map(({ resellerName, ...row }) => ({ ...toHost(row), resellerName })),
    size,
  );
}

type ByHand = { host: string; resellerId?: number; status: "active" | "suspended"; reason?: string };

/**
 * Sets a domain's status by hand; from then on it is not checked automatically. After it leaves `active`, none of its requests is
 * granted. Throws InputError, also if another reseller has it active.
 */
export async function setHostStatus(
  deps: ChangeDeps,
  { host, resellerId, status, reason }: ByHand,
): Promise<ResellerHost> {
  const why =
    reason === undefined ? undefined : checkName(reason, { param: "reason", charsMax: DOMAIN_REASON_CHARS_MAX });
  const known = await findHost(deps, { host, ...(resellerId !== undefined && { resellerId }) });
  if (!known) throw noSuchHost();
  const ref = { host, resellerId: known.resellerId };
  const change = async (tx: Tx) => {
    if (status === "active") {
      await activateByHand(tx, ref);
    } else {
      await lockTenant(tx, ref.resellerId);
      await tx
        .update(hosts)
        .set({ status, nextCheckAt: null })
        .where(and(isLiving, isRow(ref)));
    }
    if (why !== undefined) await noteReason(tx, deps, ref, why);
    return findOrThrow(tx, ref);
  };
  return changing(deps, change, { endsTenantRight: () => status !== "active" });
}

/**
 * Removes a domain from a reseller; afterwards none of its requests is granted. False: no such domain. Only an admin may remove a
 * domain that an admin has suspended: a reseller could remove and add it again. Throws InputError.
 */
export async function removeHost(deps: ChangeDeps, ref: HostRef, isAdmin: boolean): Promise<boolean> {
  if (!(await findHost(deps, ref))) return false;
  const remove = async (tx: Tx) => {
    await lockTenant(tx, ref.resellerId);
    await lockName(tx, ref.host);
    const [row] = await selectHosts(tx, and(isLiving, isRow(ref)));
    if (!row) return false;
    if (row.byHand && row.status === "suspended" && !isAdmin)
      throw new InputError("This domain was suspended by an admin. Only an admin can remove it.", "host");
    await tx.update(hosts).set({ status: "removed", nextCheckAt: null }).where(isRow(ref));
    return true;
  };
  return changing(deps, remove, { protects: true, endsTenantRight: () => true });
}

/** When a suspended domain was suspended, and the reason if an admin gave one. Read from the audit log. */
export async function suspensionOf(
  { db }: { db: Db },
  { host, resellerId }: HostRef,
): Promise<{ since: string; reason: string | null } | undefined> {
  const ofHost = sql`subject = 'hosts' and subject_id = ${host} and account_id = ${resellerId}`;
  const [row]: Record<string, unknown>[] = await db.orm.execute(sql`
    select switched.created_at::text as since, (
        select after ->> 'reason' from audit_entries
        where ${ofHost} and id > switched.id and after ? 'reason' order by id desc limit 1) as reason
    from audit_entries switched
    where ${ofHost} and after ->> 'status' = 'suspended' order by id desc limit 1`);
  if (!row) return undefined;
  return { since: toIso(String(row.since)), reason: typeof row.reason === "string" ? row.reason : null };
}

/** Which of these names (lower case) are active domains of active resellers, and whose. */
export async function loadActiveHosts(
  { db }: { db: Db },
  names: readonly string[],
): Promise<Map<string, HostRef & { tenantEpoch: number }>> {
  // One array literal, so that the statement is the same for any number. Host names need no quoting in it.
  const literal = `{${names.filter(isHostName).join(",")}}`;
  const rows = await db.orm
    .select({ host: hosts.host, resellerId: hosts.resellerId, tenantEpoch: epochOf(hosts.resellerId) })
    .from(hosts)
    .innerJoin(accounts, and(eq(accounts.id, hosts.resellerId), eq(accounts.status, "active")))
    .where(and(sql`${hosts.host} = any(${literal}::text::text[])`, eq(hosts.status, "active")));
  return new Map(rows.map((row) => [row.host, row]));
}

export const now = sql`clock_timestamp()`;
const newToken = sql`default`;
export const isLiving = ne(hosts.status, "removed");
const isFailing = sql`(${hosts.status} = 'failed' or (${hosts.status} = 'active' and ${hosts.failures} > 0))`;

export function after(seconds: number): SQL {
  return sql`clock_timestamp() + make_interval(secs => ${seconds})`;
}

export function isRow({ host, resellerId }: HostRef): SQL | undefined {
  return and(eq(hosts.host, host), eq(hosts.resellerId, resellerId));
}

/**
 * Whether the reseller of a row must prove the name. The owner need not, since anybody can claim any name; nor a reseller whose domain
 * was suspended and had by nobody else since. A new one must also if the last check found a wildcard record. Plain SQL, because the inner
 * columns must keep their table's name.
 */
export const contested = sql<boolean>`(hosts.status <> 'active' and (
  hosts.status <> 'suspended' and coalesce(hosts.report ->> 'wildcard', '') = 'true'
  or exists (
    select from hosts other where other.host = hosts.host and other.reseller_id <> hosts.reseller_id
      and (other.status = 'active' or (
        (other.status <> 'removed' or other.activated_at is not null)
        and not coalesce(hosts.status = 'suspended' and hosts.activated_at > coalesce(other.activated_at, '-infinity'), false))))))`;

export async function ownerOf(tx: Tx, host: string): Promise<number | undefined> {
  const [row] = await tx
    .select({ resellerId: hosts.resellerId })
    .from(hosts)
    .where(and(eq(hosts.host, host), eq(hosts.status, "active")));
  return row?.resellerId;
}

/** Locks every row of a name, which serializes its claimants. A tenant's lock, if needed, comes before it. */
export async function lockName(tx: Tx, host: string): Promise<void> {
  await tx
    .select({ resellerId: hosts.resellerId })
    .from(hosts)
    .where(eq(hosts.host, host))
    .orderBy(asc(hosts.resellerId))
    .for("update");
}

async function activateByHand(tx: Tx, ref: HostRef): Promise<void> {
  await lockName(tx, ref.host);
  const ownerId = await ownerOf(tx, ref.host);
  if (ownerId !== undefined && ownerId !== ref.resellerId)
    throw new InputError("Another reseller has this domain active. Suspend or remove it there first.", "host");
  await takeFromOthers(tx, ref);
  await tx
    .update(hosts)
    .set({
      status: "active",
      failures: 0,
      nextCheckAt: null,
      activatedAt: sql`case when hosts.status = 'active' then hosts.activated_at else clock_timestamp() end`,
    })
    .where(and(isLiving, isRow(ref)));
}

/** Makes the reseller the only owner: suspends the previous owner's row, voids older proofs, and ends other tenants' sessions. */
export async function takeFromOthers(tx: Tx, { host, resellerId }: HostRef): Promise<void> {
  const others = and(isLiving, eq(hosts.host, host), ne(hosts.resellerId, resellerId));
  await tx.update(hosts).set({ token: newToken }).where(others);
  // Checked again soon, so that the previous owner sees what it must prove now.
  await tx
    .update(hosts)
    .set({ status: "suspended", nextCheckAt: after(CHECK_GAP_SECONDS) })
    .where(and(others, eq(hosts.status, "active")));
  await tx
    .delete(sessions)
    .where(
      and(
        eq(sessions.host, host),
        sql`${sessions.accountId} in (select id from accounts where (${signsInOn(resellerId)}) is not true)`,
      ),
    );
}

/** Adds the reason to the audit log: triggers record what changed, but not why. */
async function noteReason(tx: Tx, { by }: ChangeDeps, { host, resellerId }: HostRef, reason: string): Promise<void> {
  await tx.insert(auditEntries).values({
    actorId: by?.accountId ?? null,
    tokenId: by?.tokenId ?? null,
    requestId: by?.requestId ?? null,
    action: "changed",
    subject: "hosts",
    subjectId: host,
    accountId: resellerId,
    after: { reason },
  });
}

async function checkDomainCount(tx: Tx, resellerId: number): Promise<void> {
  await lockResellerRow(tx, resellerId);
  const [counted] = await tx
    .select({
      living: sql<number>`count(*) filter (where ${hosts.status} <> 'removed')::int`,
      ever: sql<number>`count(*)::int`,
    })
    .from(hosts)
    .where(eq(hosts.resellerId, resellerId));
  if ((counted?.living ?? 0) >= HOSTS_MAX)
    throw new InputError(sentence("A reseller may have {hostsMax} domains.", { hostsMax: HOSTS_MAX }), "resellerId");
  if ((counted?.ever ?? 0) >= HOSTS_EVER_MAX)
    throw new InputError("Too many domains have been added and removed. Contact support.", "resellerId");
}

async function findOrThrow(tx: Tx, ref: HostRef): Promise<ResellerHost> {
  const [row] = await selectHosts(tx, and(isLiving, isRow(ref)));
  if (!row) throw noSuchHost();
  return row;
}

function noSuchHost(): InputError {
  return new InputError("There is no such domain.", "host");
}

const columns = {
  host: hosts.host,
  resellerId: hosts.resellerId,
  status: hosts.status,
  token: hosts.token,
  contested,
  failures: hosts.failures,
  createdAt: hosts.createdAt,
  activatedAt: hosts.activatedAt,
  checkedAt: hosts.checkedAt,
  nextCheckAt: hosts.nextCheckAt,
  report: hosts.report,
};

type Row = {
  [Name in keyof typeof columns]: Name extends "contested"
    ? boolean
    : (typeof hosts.$inferSelect)[Exclude<Name, "contested">];
};

export async function selectHosts(tx: Tx, where: SQL | undefined): Promise<ResellerHost[]> {
  const rows = await tx
    .select(columns)
    .from(hosts)
    .where(where)
    .orderBy(asc(hosts.host), asc(hosts.resellerId))
    .limit(LIST_MAX);
  return rows.map(toHost);
}

function toHost({ createdAt, activatedAt, checkedAt, nextCheckAt, report, ...row }: Row): ResellerHost {
  return {
    ...row,
    byHand: nextCheckAt === null && (row.status === "active" || row.status === "suspended"),
    createdAt: toIso(createdAt),
    activatedAt: toIso(activatedAt),
    checkedAt: toIso(checkedAt),
    nextCheckAt: toIso(nextCheckAt),
    report: isDnsReport(report) ? report : null,
  };
}
