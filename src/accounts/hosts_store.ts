import { and, asc, desc, eq, ne, type SQL, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import { DOMAIN_REASON_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { accounts, auditEntries, hosts, sessions } from "../platform/schema.ts";
import { checkName, isRowId, toIso } from "./checks.ts";
import { type DnsReport, isDnsReport } from "./dns_check.ts";
import { afterCheck, type DomainState, type HostStatus, type Step } from "./domain_states.ts";
import { checkDomain, type HostConfig, isHostName, ownHosts } from "./host_names.ts";
import { lockTenant } from "./locks_store.ts";
import { signsInOn } from "./people_store.ts";

/**
 * Resellers' own domains. Several may claim a name; one has it active, and only then it is answered. Whoever comes after
 * that one proves the name by a token that is newer than the present owner's activation.
 * Source: contract › What the service does, 3; rulings › Domains.
 */

/** Living domains of a reseller. */
const HOSTS_MAX = 50;
/** With those it removed, which are kept. */
const HOSTS_EVER_MAX = 1000;
const LIST_MAX = 1000;
const PAGE_MAX = 200;
/** A check that was begun and never ended, because its replica died, is begun again after this. */
const CLAIM_SECONDS = 30;
/** Between two checks of a domain, whoever asks for them. Longer than a check takes: so there is one at a time. */
export const CHECK_GAP_SECONDS = 5;

/** Times are ISO 8601 in UTC. */
export type ResellerHost = DomainState & {
  host: string;
  resellerId: number;
  /** What the TXT record must say. */
  token: string;
  /** Whether this reseller must prove the name: another one claims it, or has had it active after this one. */
  contested: boolean;
  createdAt: string;
  /** When it became active last. */
  activatedAt: string | null;
  checkedAt: string | null;
  nextCheckAt: string | null;
  /** What the last check saw. */
  report: DnsReport | null;
};

export type HostRef = { host: string; resellerId: number };
type NewHost = HostRef & { status?: "pending" | "active" };

/**
 * Adds a reseller's domain, waiting until its check is asked for, or active by hand: then it may be a name below the
 * service's own. One that was removed begins anew. Throws InputError.
 */
export async function addHost(
  deps: ChangeDeps & { config: HostConfig },
  { host, resellerId, status = "pending" }: NewHost,
): Promise<ResellerHost> {
  const isGiven = status === "active";
  const ref = { host: checkDomain(host, ownHosts(deps.config), isGiven), resellerId };
  return changing(deps, async (tx) => {
    await checkRoom(tx, resellerId);
    await lockClaims(tx, ref.host);
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

/** Living domains by name, of one reseller or of all. */
export async function listHosts(
  { db }: { db: Db },
  { resellerId }: { resellerId?: number } = {},
): Promise<ResellerHost[]> {
  return select(db.orm, and(isLiving, resellerId === undefined ? undefined : eq(hosts.resellerId, resellerId)));
}

/** A living domain: with `resellerId` that reseller's; without, the one that is active, or the only one of its name. */
export async function findHost(
  { db }: { db: Db },
  { host, resellerId }: { host: string; resellerId?: number },
): Promise<ResellerHost | undefined> {
  if (host.includes("\0") || (resellerId !== undefined && !isRowId(resellerId))) return undefined;
  const found = await select(
    db.orm,
    and(isLiving, eq(hosts.host, host), resellerId === undefined ? undefined : eq(hosts.resellerId, resellerId)),
  );
  return found.find(({ status }) => status === "active") ?? (found.length === 1 ? found[0] : undefined);
}

export type HostFilter = {
  /** null: all but removed ones. `failing`: off for its checks, or live and its last check did not succeed. */
  status: HostStatus | "failing" | null;
  /** Part of the name. */
  q: string;
  /** The last row of the page before. */
  before: HostRef | null;
  limit?: number;
};

/** Every reseller's domains, the last added first. */
export async function pageOfHosts(
  { db }: { db: Db },
  { status, q, before, limit = 50 }: HostFilter,
): Promise<{ rows: (ResellerHost & { resellerName: string })[]; hasMore: boolean }> {
  const size = Math.min(Math.max(limit, 1), PAGE_MAX);
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
  return {
    rows: rows.slice(0, size).map(({ resellerName, ...row }) => ({ ...toHost(row), resellerName })),
    hasMore: rows.length > size,
  };
}

type ByHand = { host: string; resellerId?: number; status: "active" | "suspended"; reason?: string };

/**
 * Sets a domain's status by hand: no check comes by itself from then on. Leaving `active` stops its requests: none is
 * granted after it. Throws InputError, also if another reseller has it active.
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
  return changing(deps, async (tx) => {
    if (status === "active") {
      await activateByHand(tx, ref);
    } else {
      await lockTenant(tx, ref.resellerId);
      await tx
        .update(hosts)
        .set({ status, nextCheckAt: null })
        .where(and(isLiving, of(ref)));
    }
    if (why !== undefined) await noteReason(tx, deps, ref, why);
    return findOrThrow(tx, ref);
  });
}

/**
 * Takes a domain from a reseller: none of its requests is granted after it. False: there is no such domain. What an admin
 * has switched off only an admin removes, since whoever removes a domain may bring it again. Throws InputError.
 */
export async function removeHost(deps: ChangeDeps, ref: HostRef, isAdmin: boolean): Promise<boolean> {
  if (!(await findHost(deps, ref))) return false;
  const remove = async (tx: Tx) => {
    await lockTenant(tx, ref.resellerId);
    await lockClaims(tx, ref.host);
    const [row] = await select(tx, and(isLiving, of(ref)));
    if (!row) return false;
    if (row.byHand && row.status === "suspended" && !isAdmin)
      throw new InputError("This domain was switched off by hand, and only an admin can remove it.", "host");
    await tx.update(hosts).set({ status: "removed", nextCheckAt: null }).where(of(ref));
    return true;
  };
  return changing(deps, remove, { protects: true });
}

/** Since when a domain that is suspended is so, and why if an admin said it; the audit log knows. */
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

/** Of these names, in lower case, those that are active domains of active resellers, and whose. */
export async function loadActiveHosts({ db }: { db: Db }, names: readonly string[]): Promise<Map<string, HostRef>> {
  // One literal, so that the statement is the same for any number. Names of hosts have no character that it would have to quote.
  const literal = `{${names.filter(isHostName).join(",")}}`;
  const rows = await db.orm
    .select({ host: hosts.host, resellerId: hosts.resellerId })
    .from(hosts)
    .innerJoin(accounts, and(eq(accounts.id, hosts.resellerId), eq(accounts.status, "active")))
    .where(and(sql`${hosts.host} = any(${literal}::text::text[])`, eq(hosts.status, "active")));
  return new Map(rows.map((row) => [row.host, row]));
}

/** A check that was begun: whoever has the claim makes it, and nobody else meanwhile. */
export type CheckClaim = HostRef & {
  token: string;
  /** Whether the TXT record is asked for. */
  contested: boolean;
  claimedAt: string;
  /** Whether it counts. */
  isDue: boolean;
  /** When the next one was planned for, before the claim. */
  plannedAt: string | null;
};

/** Begins checks of domains that are due, at most `max`: no two callers get the same one, and a crash only delays it. */
export async function claimDueChecks({ db }: { db: Db }, max: number): Promise<CheckClaim[]> {
  return claim(
    db.orm,
    // now(): a clock that runs on while the statement does would keep the index from use.
    sql`next_check_at <= now() and status in ('verifying', 'active', 'suspended')
      order by next_check_at limit ${max} for update skip locked`,
  );
}

/** Begins a check that was asked for; a domain that waits for its first begins to be verified. Undefined: too soon after the last. */
export async function claimCheck(deps: ChangeDeps, { host, resellerId }: HostRef): Promise<CheckClaim | undefined> {
  return changing(deps, async (tx) => {
    const [claimed] = await claim(
      tx,
      sql`host = ${host} and reseller_id = ${resellerId} and status <> 'removed'
        and (checked_at is null or checked_at <= clock_timestamp() - make_interval(secs => ${CHECK_GAP_SECONDS})) for update`,
    );
    return claimed;
  });
}

/** The next check is put off, never brought forward: a crash must not make failures count faster. */
async function claim(tx: Tx, which: SQL): Promise<CheckClaim[]> {
  const rows: Record<string, unknown>[] = await tx.execute(sql`
    with taken as (select host, reseller_id, status, next_check_at from hosts where ${which})
    update hosts set
      checked_at = clock_timestamp(),
      status = case when taken.status in ('pending', 'failed') then 'verifying' else taken.status end,
      failures = case when taken.status in ('pending', 'failed') then 0 else failures end,
      next_check_at = case when taken.next_check_at is null and taken.status in ('active', 'suspended') then null
        else greatest(taken.next_check_at, clock_timestamp() + make_interval(secs => ${CLAIM_SECONDS})) end
    from taken where hosts.host = taken.host and hosts.reseller_id = taken.reseller_id
    returning hosts.host, hosts.reseller_id, hosts.token, ${contested} as contested, hosts.checked_at::text as claimed_at,
      taken.next_check_at::text as planned_at,
      taken.status in ('pending', 'failed') or coalesce(taken.next_check_at <= clock_timestamp(), false) as is_due`);
  return rows.map((row) => ({
    host: String(row.host),
    resellerId: Number(row.reseller_id),
    token: String(row.token),
    contested: row.contested === true,
    claimedAt: String(row.claimed_at),
    isDue: row.is_due === true,
    plannedAt: typeof row.planned_at === "string" ? row.planned_at : null,
  }));
}

/** What a check did to a domain; undefined: the domain was changed while it was checked, and nothing counts. */
export type Settled = { from: HostStatus; to: HostStatus } | undefined;

/**
 * Writes down what a check saw, and what becomes of the domain. A claimant who proved a contested name takes it over: in
 * this transaction its former owner's row goes off, and no request of the former owner is granted after it.
 */
export async function settleCheck(deps: ChangeDeps, done: CheckClaim, report: DnsReport): Promise<Settled> {
  return changing(deps, async (tx) => {
    // Its owner may lose the domain by this: to another one, or for being wrong. Locks first, rows after.
    const ownerId = await ownerOf(tx, done.host);
    const mayLose = report.verdict === (ownerId === done.resellerId ? "wrong" : "ok");
    if (ownerId !== undefined && mayLose) await lockTenant(tx, ownerId);
    await lockClaims(tx, done.host);
    const [row] = await select(
      tx,
      // With another token the proof was another one's; with another time, somebody else has begun a check.
      and(isLiving, of(done), eq(hosts.token, done.token), eq(hosts.checkedAt, done.claimedAt)),
    );
    if (!row) return undefined;
    const step = afterCheck(row, report.verdict, done.isDue);
    const becomesActive = step.status === "active" && row.status !== "active";
    if (becomesActive && row.contested && !done.contested) {
      // Somebody else has claimed the name meanwhile: it is checked again, with its proof.
      await tx.update(hosts).set({ nextCheckAt: now }).where(of(done));
      return undefined;
    }
    if (becomesActive) await takeFromOthers(tx, done);
    await tx
      .update(hosts)
      .set({
        status: step.status,
        failures: step.failures,
        report,
        checkedAt: now,
        nextCheckAt: nextCheckAt(step, done),
        ...(becomesActive && { activatedAt: now }),
      })
      .where(of(done));
    return { from: row.status, to: step.status };
  });
}

const now = sql`clock_timestamp()`;
const newToken = sql`default`;
const isLiving = ne(hosts.status, "removed");
const isFailing = sql`(${hosts.status} = 'failed' or (${hosts.status} = 'active' and ${hosts.failures} > 0))`;

function nextCheckAt({ nextSeconds }: Step, { plannedAt }: CheckClaim): SQL | string | null {
  if (nextSeconds === "kept") return plannedAt;
  return nextSeconds === null ? null : after(nextSeconds);
}

function after(seconds: number): SQL {
  return sql`clock_timestamp() + make_interval(secs => ${seconds})`;
}

function of({ host, resellerId }: HostRef): SQL | undefined {
  return and(eq(hosts.host, host), eq(hosts.resellerId, resellerId));
}

/**
 * Whether the reseller of a row must prove the name. Its owner need not: anybody can claim any name. Nor need one whose
 * domain was switched off while nobody else has had it since. In plain SQL: a column inside must keep its table's name.
 */
const contested = sql<boolean>`(hosts.status <> 'active' and exists (
  select from hosts other where other.host = hosts.host and other.reseller_id <> hosts.reseller_id
    and (other.status = 'active' or (
      (other.status <> 'removed' or other.activated_at is not null)
      and not coalesce(hosts.status = 'suspended' and hosts.activated_at > coalesce(other.activated_at, '-infinity'), false)))))`;

async function ownerOf(tx: Tx, host: string): Promise<number | undefined> {
  const [row] = await tx
    .select({ resellerId: hosts.resellerId })
    .from(hosts)
    .where(and(eq(hosts.host, host), eq(hosts.status, "active")));
  return row?.resellerId;
}

/** Every row of a name, so that its claimants come one after the other. Before it the tenant's lock, where one is needed. */
async function lockClaims(tx: Tx, host: string): Promise<void> {
  await tx
    .select({ resellerId: hosts.resellerId })
    .from(hosts)
    .where(eq(hosts.host, host))
    .orderBy(asc(hosts.resellerId))
    .for("update");
}

async function activateByHand(tx: Tx, ref: HostRef): Promise<void> {
  await lockClaims(tx, ref.host);
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
    .where(and(isLiving, of(ref)));
}

/** From here on the name is this reseller's: the owner before it is off, older proofs are void, and its people signed out. */
async function takeFromOthers(tx: Tx, { host, resellerId }: HostRef): Promise<void> {
  const others = and(isLiving, eq(hosts.host, host), ne(hosts.resellerId, resellerId));
  await tx.update(hosts).set({ token: newToken }).where(others);
  // Checked again soon, so that the owner before reads what is asked of it now.
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

/** The triggers write down what changed; they cannot know why. */
async function noteReason(tx: Tx, { by }: ChangeDeps, { host, resellerId }: HostRef, reason: string): Promise<void> {
  await tx.insert(auditEntries).values({
    actorId: by?.accountId ?? null,
    requestId: by?.requestId ?? null,
    action: "changed",
    subject: "hosts",
    subjectId: host,
    accountId: resellerId,
    after: { reason },
  });
}

async function checkRoom(tx: Tx, resellerId: number): Promise<void> {
  const found = isRowId(resellerId)
    ? await tx
        .select({ id: accounts.id })
        .from(accounts)
        .where(and(eq(accounts.id, resellerId), eq(accounts.role, "reseller")))
        .for("no key update")
    : [];
  if (found.length === 0) throw new InputError("There is no such reseller.", "resellerId");
  const [counted] = await tx
    .select({
      living: sql<number>`count(*) filter (where ${hosts.status} <> 'removed')::int`,
      ever: sql<number>`count(*)::int`,
    })
    .from(hosts)
    .where(eq(hosts.resellerId, resellerId));
  if ((counted?.living ?? 0) >= HOSTS_MAX)
    throw new InputError(`A reseller may have ${HOSTS_MAX} domains.`, "resellerId");
  if ((counted?.ever ?? 0) >= HOSTS_EVER_MAX)
    throw new InputError("Too many domains have been added and removed here. Ask for help.", "resellerId");
}

async function findOrThrow(tx: Tx, ref: HostRef): Promise<ResellerHost> {
  const [row] = await select(tx, and(isLiving, of(ref)));
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

async function select(tx: Tx, where: SQL | undefined): Promise<ResellerHost[]> {
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
