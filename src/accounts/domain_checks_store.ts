import { and, eq, type SQL, sql } from "drizzle-orm";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { hosts } from "../platform/schema_accounts.ts";
import type { DnsReport } from "./dns_check.ts";
import { afterCheck, type HostStatus, type Step } from "./domain_states.ts";
import {
  after,
  CHECK_GAP_SECONDS,
  contested,
  type HostRef,
  isLiving,
  isRow,
  lockName,
  now,
  ownerOf,
  selectHosts,
  takeFromOthers,
} from "./hosts_store.ts";
import { lockTenant } from "./locks_store.ts";

/**
 * DNS checks of resellers' domains in the database: a check is started, which keeps other replicas from it, then made with no
 * transaction open, then finished.
 */

/** A check that was started and not finished, because its replica died, is started again after this. */
const START_SECONDS = 30;

/** A started check. Nobody else checks the domain meanwhile. */
export type StartedCheck = HostRef & {
  token: string;
  /** Whether the TXT record is checked too. */
  contested: boolean;
  /** Whether it has yet to become active: then a wildcard record is no proof. */
  isNew: boolean;
  claimedAt: string;
  /** Whether a failure counts: it was scheduled, not requested early. */
  isDue: boolean;
  /** When the next check was scheduled, before this one started. */
  plannedAt: string | null;
};

/** Starts at most `max` due checks. Two callers never get the same one; a crash only delays it. */
export async function startDueChecks({ db }: { db: Db }, max: number): Promise<StartedCheck[]> {
  return start(
    db.orm,
    // now(), not clock_timestamp(): a volatile function would prevent the use of the index.
    sql`next_check_at <= now() and status in ('verifying', 'active', 'suspended')
      order by next_check_at limit ${max} for update skip locked`,
  );
}

/** Starts a requested check; a pending domain becomes verifying. undefined: too soon after the last check. */
export async function startCheck(deps: ChangeDeps, { host, resellerId }: HostRef): Promise<StartedCheck | undefined> {
  return changing(deps, async (tx) => {
    const [claimed] = await start(
      tx,
      sql`host = ${host} and reseller_id = ${resellerId} and status <> 'removed'
        and (checked_at is null or checked_at <= clock_timestamp() - make_interval(secs => ${CHECK_GAP_SECONDS})) for update`,
    );
    return claimed;
  });
}

/** The next check is only postponed, never brought forward: a crash must not make failures count faster. */
async function start(tx: Tx, which: SQL): Promise<StartedCheck[]> {
  const rows: Record<string, unknown>[] = await tx.execute(sql`
    with taken as (select host, reseller_id, status, next_check_at from hosts where ${which})
    update hosts set
      checked_at = clock_timestamp(),
      status = case when taken.status in ('pending', 'failed') then 'verifying' else taken.status end,
      failures = case when taken.status in ('pending', 'failed') then 0 else failures end,
      next_check_at = case when taken.next_check_at is null and taken.status in ('active', 'suspended') then null
        else greatest(taken.next_check_at, clock_timestamp() + make_interval(secs => ${START_SECONDS})) end
    from taken where hosts.host = taken.host and hosts.reseller_id = taken.reseller_id
    returning hosts.host, hosts.reseller_id, hosts.token, ${contested} as contested,
      hosts.status = 'verifying' as is_new, hosts.checked_at::text as claimed_at,
      taken.next_check_at::text as planned_at,
      taken.status in ('pending', 'failed') or coalesce(taken.next_check_at <= clock_timestamp(), false) as is_due`);
  return rows.map((row) => ({
    host: String(row.host),
    resellerId: Number(row.reseller_id),
    token: String(row.token),
    contested: row.contested === true,
    isNew: row.is_new === true,
    claimedAt: String(row.claimed_at),
    isDue: row.is_due === true,
    plannedAt: typeof row.planned_at === "string" ? row.planned_at : null,
  }));
}

/** What a check did to a domain; undefined: the domain changed meanwhile, so the result is discarded. */
export type CheckOutcome = { from: HostStatus; to: HostStatus } | undefined;

/**
 * Stores the result of a check and the domain's next state. A claimant who has proved a contested name takes it over: this transaction
 * suspends the previous owner's row, and afterwards none of the previous owner's requests is granted.
 */
export async function finishCheck(deps: ChangeDeps, done: StartedCheck, report: DnsReport): Promise<CheckOutcome> {
  let ends = false;
  const finish = async (tx: Tx): Promise<CheckOutcome> => {
    // The owner may lose the domain, to a claimant or because its records are wrong. Locks first, rows after.
    const ownerId = await ownerOf(tx, done.host);
    const mayLose = report.verdict === (ownerId === done.resellerId ? "wrong" : "ok");
    if (ownerId !== undefined && mayLose) await lockTenant(tx, ownerId);
    await lockName(tx, done.host);
    const [row] = await selectHosts(
      tx,
      // Another token: the proof is void. Another time: somebody else has started a check.
      and(isLiving, isRow(done), eq(hosts.token, done.token), eq(hosts.checkedAt, done.claimedAt)),
    );
    if (!row) return undefined;
    const step = afterCheck(row, report.verdict, done.isDue);
    const becomesActive = step.status === "active" && row.status !== "active";
    if (becomesActive && row.contested && !done.contested) {
      // Another reseller has claimed the name meanwhile: check again, with the TXT record.
      await tx.update(hosts).set({ nextCheckAt: now }).where(isRow(done));
      return undefined;
    }
    if (becomesActive) {
      if (ownerId !== undefined && ownerId !== done.resellerId)
        await tellLost(tx, { host: done.host, resellerId: ownerId });
      await takeFromOthers(tx, done);
    }
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
      .where(isRow(done));
    if (row.status === "active" && step.status !== "active") await tellLost(tx, done);
    ends = (row.status === "active" && step.status !== "active") || (becomesActive && row.contested);
    return { from: row.status, to: step.status };
  };
  return changing(deps, finish, { endsTenantRight: () => ends });
}

async function tellLost(tx: Tx, { host, resellerId }: HostRef): Promise<void> {
  await tell(tx, { kind: "domain_lost", accountId: resellerId, data: { host } });
}

function nextCheckAt({ nextSeconds }: Step, { plannedAt }: StartedCheck): SQL | string | null {
  if (nextSeconds === "kept") return plannedAt;
  return nextSeconds === null ? null : after(nextSeconds);
}
