import { eq } from "drizzle-orm";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { mailBreakers } from "../platform/schema_outbox.ts";
import { pauseSeconds, type ServerAnswer } from "./claims_store.ts";

/**
 * Breakers of mail servers, one for each tenant (0: the operator). An attempt without an answer opens the breaker: then
 * one mail at a time is sent as a probe, and the others wait without an attempt. An answer to a probe closes it.
 * Source: MSG-12.
 */

/**
 * The longest pause between two probes. It is shorter than that of a recipient, because all mails of the tenant wait
 * for it.
 */
const PROBE_PAUSE_SECONDS_MAX = 300;
/** Recipients whose deliveries are given up in one statement. */
const EXPIRED_MAX = 1_000;
const LISTED_MAX = 20;

type Met = {
  tenantId: number;
  answer: ServerAnswer;
  /** Why it failed. */
  why: string;
  /** Failures before this probe; null: it was no probe. */
  probe: number | null;
  /** 0 to 1. */
  random: number;
};

/** Records what an attempt says about the mail server. Returns whether the breaker has opened or closed. */
export async function noteMailServer(
  { db }: { db: Db },
  { tenantId, answer, why, probe, random }: Met,
): Promise<"opened" | "closed" | "unchanged"> {
  const { sql } = db;
  if (answer === "answered") {
    const closed = await sql`delete from mail_breakers where tenant_id = ${tenantId} returning 1`;
    return closed.length > 0 ? "closed" : "unchanged";
  }
  if (answer === "not_asked") {
    if (probe !== null) await sql`update mail_breakers set next_at = ledger_now() where tenant_id = ${tenantId}`;
    return "unchanged";
  }
  const nextIn = pauseSeconds((probe ?? 0) + 1, random, PROBE_PAUSE_SECONDS_MAX);
  if (probe === null) {
    const opened = await sql`
      insert into mail_breakers (tenant_id, since, failures, why, next_at)
      values (${tenantId}, ledger_now(), 1, ${why}, ledger_now() + make_interval(secs => ${nextIn}))
      on conflict do nothing returning 1`;
    return opened.length > 0 ? "opened" : "unchanged";
  }
  await sql`
    update mail_breakers set failures = failures + 1, why = ${why}, next_at = ledger_now() + make_interval(secs => ${nextIn})
    where tenant_id = ${tenantId}`;
  await giveUpExpired({ db }, { tenantId, why });
  return "unchanged";
}

/**
 * Gives up mails of a tenant that have waited too long. Without an attempt, nothing else would give them up. Source:
 * MSG-4.
 */
async function giveUpExpired({ db }: { db: Db }, { tenantId, why }: Pick<Met, "tenantId" | "why">): Promise<void> {
  await db.sql.begin(async (sql) => {
    // The recipients' rows first, as everywhere. A claimed recipient is not due.
    const found = await sql`
      with clock as materialized (select ledger_now() as now)
      select id from outbox_recipients r where tenant_id = ${tenantId} and channel = 'mail' and next_at <= (select now from clock)
        and exists (select from outbox_deliveries d where d.recipient_id = r.id and d.status = 'waiting' and d.deadline_at <= (select now from clock))
      order by id limit ${EXPIRED_MAX} for update skip locked`;
    if (found.length === 0) return;
    const ids = `{${found.map(({ id }) => id).join(",")}}`;
    await sql`
      update outbox_deliveries set status = 'failed', ended_at = ledger_now(), error = ${why}
      where recipient_id = any(${ids}::text::bigint[]) and status = 'waiting' and deadline_at <= ledger_now()`;
    await sql`
      update outbox_recipients r set next_at = null, failures = 0 where id = any(${ids}::text::bigint[])
        and not exists (select from outbox_deliveries d where d.recipient_id = r.id and d.status = 'waiting')`;
  });
}

/** Deletes a tenant's breaker, because its mail server was changed or removed. */
export async function forgetBreaker(tx: Tx, tenantId: number): Promise<void> {
  await tx.delete(mailBreakers).where(eq(mailBreakers.tenantId, tenantId));
}

/** A mail server that does not answer. `name`: of the reseller; null: the operator's own server. */
export type DownServer = { tenantId: number; name: string | null; since: string; why: string; nextAt: string };

/** Mail servers that do not answer, the one that has been down longest first. `tenantId` undefined: all. */
export async function listDownServers(
  { db }: { db: Db },
  { tenantId }: { tenantId?: number } = {},
): Promise<DownServer[]> {
  const { sql } = db;
  const rows = await sql`
    select m.tenant_id, a.name, m.since::text as since, m.why, m.next_at::text as next_at
    from mail_breakers m left join accounts a on a.id = m.tenant_id
    ${tenantId === undefined ? sql`` : sql`where m.tenant_id = ${tenantId}`}
    order by m.since limit ${LISTED_MAX}`;
  return rows.map((row) => ({
    tenantId: Number(row.tenant_id),
    name: row.name === null ? null : String(row.name),
    since: toIso(String(row.since)),
    why: String(row.why),
    nextAt: toIso(String(row.next_at)),
  }));
}

/** How many mail servers do not answer. */
export type DownCounts = { operator: number; reseller: number };

export async function countDownServers({ db }: { db: Db }): Promise<DownCounts> {
  const [row] = await db.sql`
    select count(*) filter (where tenant_id = 0) as operator, count(*) filter (where tenant_id <> 0) as reseller from mail_breakers`;
  return { operator: Number(row?.operator), reseller: Number(row?.reseller) };
}
