import { Refusal } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import type { MessageKind } from "../platform/outbox_store.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { inSlices } from "../platform/prune.ts";
import { MAILED_TO_ADDRESS } from "./kinds.ts";
import { GIVE_UP_HOURS } from "./routing_store.ts";

/**
 * Deliveries of the outbox as pages show them: listed, sent again, counted, finally deleted. Times are ISO 8601.
 * Source: MSG-4, MSG-11.
 */

const ATTEMPTS_SHOWN = 20;
const PAGE_MAX = 100;
const KEEP_DAYS = 30;
const PRUNE_MAX = 2_000;

export type DeliveryStatus = "waiting" | "sent" | "failed";
/** A delivery as the pages show it. */
export type Delivery = {
  deliveryId: number;
  kind: MessageKind;
  channel: "mail" | "webhook";
  /** The e-mail address, or the endpoint's URL, or its id when it is gone. */
  address: string;
  accountId: number;
  /** Empty: the address has no account. */
  accountName: string;
  status: DeliveryStatus;
  attempts: number;
  error: string | null;
  createdAt: string;
  endedAt: string | null;
  /** When the next attempt is due, at the earliest; null unless it waits. */
  nextAt: string | null;
};

/** `tenantId` undefined: everyone's. `endpointId`: those of one endpoint. */
export type DeliveryFilter = {
  tenantId?: number;
  /**
   * The reader of the list, unless all of it is their own. Endpoints of others are shown by origin and status only: a
   * path can be a secret, and an answer can repeat it.
   */
  viewerId?: number;
  endpointId?: number;
  status?: DeliveryStatus;
  before?: number;
  limit?: number;
};

/** Deliveries, newest first. */
export async function listDeliveries(
  { db }: { db: Db },
  { tenantId, viewerId, endpointId, status, before, limit = 50 }: DeliveryFilter,
): Promise<Page<Delivery>> {
  const { sql } = db;
  const isOthers = viewerId === undefined ? sql`false` : sql`r.channel = 'webhook' and d.account_id <> ${viewerId}`;
  const size = pageSize(limit, PAGE_MAX);
  const rows = await sql`
    select d.id, m.kind, r.channel, d.account_id, a.name, d.status, d.attempts,
      coalesce(case when ${isOthers} then substring(e.url from '^https?://[^/?#]+') else e.url end, r.address) as address,
      case when ${isOthers} and d.error is not null then coalesce((
        select 'Status ' || t.status from outbox_attempts t where t.delivery_id = d.id order by t.id desc limit 1), d.error)
        else d.error end as error,
      d.created_at::text as created_at, d.ended_at::text as ended_at,
      case when d.status = 'waiting' then greatest(coalesce(r.next_at, d.created_at), b.next_at) end::text as next_at
    from outbox_deliveries d
    join outbox_messages m on m.id = d.message_id
    join outbox_recipients r on r.id = d.recipient_id
    left join accounts a on a.id = d.account_id and m.kind <> all(${MAILED_TO_ADDRESS as string[]})
    left join webhook_endpoints e on e.id = d.endpoint_id
    left join mail_breakers b on r.channel = 'mail' and b.tenant_id = r.tenant_id
    where true
      ${tenantId === undefined ? sql`` : sql`and d.tenant_id = ${tenantId}`}
      ${endpointId === undefined ? sql`` : sql`and d.endpoint_id = ${endpointId}`}
      ${status === undefined ? sql`` : sql`and d.status = ${status}`}
      ${before === undefined ? sql`` : sql`and d.id < ${before}`}
    order by d.id desc limit ${size + 1}`;
  return pageOf(
    rows.map((row) => ({
      deliveryId: Number(row.id),
      kind: row.kind,
      channel: row.channel,
      address: String(row.address),
      accountId: Number(row.account_id),
      accountName: String(row.name ?? ""),
      status: row.status,
      attempts: Number(row.attempts),
      error: row.error,
      createdAt: toIso(String(row.created_at)),
      endedAt: toIso(row.ended_at as string | null),
      nextAt: toIso(row.next_at as string | null),
    })),
    size,
  );
}

export type Attempt = { at: string; tookMs: number; ok: boolean; status: number | null; answer: string };

/** The last attempts of an endpoint's delivery, newest first. */
export async function listAttempts(
  { db }: { db: Db },
  { deliveryId, endpointId }: { deliveryId: number; endpointId: number },
): Promise<Attempt[]> {
  const rows = await db.sql`
    select at::text as at, took_ms, ok, a.status, answer from outbox_attempts a join outbox_deliveries d on d.id = a.delivery_id
    where d.id = ${deliveryId} and d.endpoint_id = ${endpointId}
    order by a.id desc limit ${ATTEMPTS_SHOWN}`;
  return rows.map((row) => ({
    at: toIso(String(row.at)),
    tookMs: Number(row.took_ms),
    ok: row.ok === true,
    status: row.status === null ? null : Number(row.status),
    answer: String(row.answer),
  }));
}

/** Which deliveries a person may send again: of one tenant, or of one endpoint; undefined: all. */
type Owned = { deliveryId: number; tenantId?: number; endpointId?: number };

/**
 * Sends a delivery again. A waiting one becomes due now; a webhook may be repeated even if it has arrived. Throws
 * not_found, also for another tenant's delivery and for a mail that has arrived.
 */
export async function sendAgain({ db }: { db: Db }, { deliveryId, tenantId, endpointId }: Owned): Promise<void> {
  await db.sql.begin(async (sql) => {
    const [found] = await sql`
      select d.recipient_id, r.tenant_id, r.channel from outbox_deliveries d join outbox_recipients r on r.id = d.recipient_id
      left join webhook_endpoints e on e.id = d.endpoint_id
      where d.id = ${deliveryId}
        ${tenantId === undefined ? sql`` : sql`and d.tenant_id = ${tenantId}`}
        ${endpointId === undefined ? sql`` : sql`and d.endpoint_id = ${endpointId}`}
        and (r.channel = 'mail' and d.status <> 'sent' or r.channel = 'webhook' and e.enabled)`;
    if (!found) throw new Refusal("not_found");
    // The person who asks may have repaired the server: the next probe is due now.
    if (found.channel === "mail")
      await sql`update mail_breakers set next_at = ledger_now() where tenant_id = ${found.tenant_id}`;
    // The recipient's row first, as everywhere. A running claim stays; a claim of a recipient that is not due is left
    // over from an endpoint that was switched off, or from mails that were given up.
    await sql`
      update outbox_recipients set failures = 0,
        next_at = case when claim_id is null or next_at is null then ledger_now() else next_at end
      where id = ${found.recipient_id}`;
    await sql`
      update outbox_deliveries set status = 'waiting', ended_at = null,
        deadline_at = ledger_now() + make_interval(hours => ${GIVE_UP_HOURS}) where id = ${deliveryId}`;
  });
}

/** What waits and what failed. `oldestAt` is ISO 8601; null: nothing waits. `oldestSeconds`: its age. */
export type OutboxState = { waiting: number; oldestAt: string | null; oldestSeconds: number; failed: number };

/**
 * Counts what waits, including messages without deliveries, and what failed in the last 24 hours. `tenantId`
 * undefined: all.
 */
export async function outboxState({ db }: { db: Db }, { tenantId }: { tenantId?: number } = {}): Promise<OutboxState> {
  const { sql } = db;
  const own = tenantId === undefined ? sql`` : sql`and tenant_id = ${tenantId}`;
  const [row] = await sql`
    with clock as materialized (select ledger_now() as now)
    select w.waiting + u.unrouted as waiting, least(w.oldest, u.oldest)::text as oldest, f.failed,
      greatest(0, extract(epoch from (select now from clock) - least(w.oldest, u.oldest)))::float8 as seconds from
      (select count(*) as waiting, min(created_at) as oldest from outbox_deliveries where status = 'waiting' ${own}) w,
      (select count(*) as unrouted, min(created_at) as oldest from outbox_messages where routed_at is null ${tenantId === undefined ? sql`` : sql`and false`}) u,
      (select count(*) as failed from outbox_deliveries where status = 'failed' and ended_at > (select now from clock) - interval '24 hours' ${own}) f`;
  return {
    waiting: Number(row?.waiting),
    oldestAt: toIso(row?.oldest ?? null),
    oldestSeconds: Number(row?.seconds ?? 0),
    failed: Number(row?.failed),
  };
}

/** Deletes deliveries that ended long ago, and at once those that tell of an erasure, in slices. Source: RET-10. */
export async function pruneOutbox({ db }: { db: Db }): Promise<void> {
  await inSlices(PRUNE_MAX, async () => {
    const deleted = await db.sql`
      delete from outbox_messages where id in (
        select id from outbox_messages m where kind = 'account_erased' and routed_at is not null
          and not exists (select from outbox_deliveries d where d.message_id = m.id and d.status = 'waiting') limit ${PRUNE_MAX}) returning 1`;
    return deleted.length;
  });
  await inSlices(PRUNE_MAX, async () => {
    const deleted = await db.sql`
      delete from outbox_deliveries where id in (
        select id from outbox_deliveries where ended_at < clock_timestamp() - make_interval(days => ${KEEP_DAYS}) limit ${PRUNE_MAX}) returning 1`;
    return deleted.length;
  });
  await inSlices(PRUNE_MAX, async () => {
    const deleted = await db.sql`
      delete from outbox_messages where id in (
        select id from outbox_messages m where routed_at < clock_timestamp() - make_interval(days => ${KEEP_DAYS})
          and not exists (select from outbox_deliveries d where d.message_id = m.id)
          and (once_key is null or routed_at < clock_timestamp() - interval '400 days') order by id limit ${PRUNE_MAX}) returning 1`;
    return deleted.length;
  });
  await inSlices(PRUNE_MAX, () => pruneRecipients({ db }));
}

/** Deletes recipients without deliveries. Returns how many. */
async function pruneRecipients({ db }: { db: Db }): Promise<number> {
  return await db.sql.begin(async (sql) => {
    // A locked recipient is getting a delivery.
    const found = await sql`
      select id from outbox_recipients r where next_at is null
        and not exists (select from outbox_deliveries d where d.recipient_id = r.id)
      order by id limit ${PRUNE_MAX} for update skip locked`;
    const ids = `{${found.map(({ id }) => id).join(",")}}`;
    // A separate statement, so that it sees the deliveries that were written before the lock was taken.
    const deleted = await sql`
      delete from outbox_recipients r where id = any(${ids}::text::bigint[])
        and not exists (select from outbox_deliveries d where d.recipient_id = r.id) returning 1`;
    return deleted.length;
  });
}
