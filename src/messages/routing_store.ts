import type postgres from "postgres";
import type { Db } from "../platform/db.ts";
import type { MessageKind } from "../platform/outbox_store.ts";
import { withinHour, writeDigests } from "./digests_store.ts";
import {
  MAILED_MEMBERS,
  MAILED_TO_ADDRESS,
  MAILED_TO_SELLER,
  OWN_WEBHOOK_KINDS,
  SELLER_WEBHOOK_KINDS,
} from "./kinds.ts";

/**
 * Decides who is told of each message of the outbox, and how, and writes its deliveries. Source: MSG-2, MSG-3, MSG-6, MSG-14.
 */

/** Messages of one transaction. */
const BATCH = 200;
/**
 * The id of a lock: one replica routes at a time, so that a recipient's deliveries have the order of the messages. Any
 * fixed number.
 */
const ROUTER_LOCK = 5_318_008_461;
/** Admins that are told of one message. */
const ADMINS_MAX = 50;
/** A delivery is given up after this time. Source: MSG-4. */
export const GIVE_UP_HOURS = 48;

type Target = {
  messageId: string;
  kind: MessageKind;
  accountId: string;
  tenantId: string;
  channel: "mail" | "webhook";
  address: string;
  endpointId: string | null;
};

/**
 * Writes the deliveries of the oldest messages that have none. Returns how many messages were routed: 0 while another
 * replica routes. `operatorMails`: whether the operator has a mail server.
 */
export async function routeMessages(
  { db }: { db: Db },
  { operatorMails }: { operatorMails: boolean },
): Promise<{ routed: number; isMore: boolean }> {
  return await db.sql.begin(async (sql) => {
    const [lock] = await sql`select pg_try_advisory_xact_lock(${ROUTER_LOCK}) as taken`;
    if (lock?.taken !== true) return { routed: 0, isMore: false };
    await writeDigests(sql);
    const batch = await sql`select id from outbox_messages where routed_at is null order by id limit ${BATCH}`;
    if (batch.length === 0) return { routed: 0, isMore: false };
    const ids = `{${batch.map(({ id }) => id).join(",")}}`;
    const targets = await sql<Target[]>`
      with batch as (select * from outbox_messages where id = any(${ids}::text::bigint[])),
      concerned as (
        select m.id, m.kind, m.data, a.id as account_id, a.reseller_id from batch m join accounts a on a.id = m.account_id
        where m.kind <> all(${MAILED_TO_ADDRESS as string[]})
      ),
      sellers as (
        select c.id, c.kind, c.data, a.id as account_id from concerned c join accounts a on a.id = c.reseller_id
        where c.kind = any(${SELLER_WEBHOOK_KINDS as string[]}) or c.kind = any(${MAILED_TO_SELLER as string[]})
        union all
        select c.id, c.kind, c.data, a.id from concerned c
          cross join (select id from accounts where role = 'admin' and status = 'active' order by id limit ${ADMINS_MAX}) a
        where c.reseller_id is null and (c.kind = any(${SELLER_WEBHOOK_KINDS as string[]}) or c.kind = any(${MAILED_TO_SELLER as string[]}))
      ),
      told as (
        select id, kind, data, account_id from concerned where kind <> all(${MAILED_TO_SELLER as string[]})
        union all select id, kind, data, account_id from sellers where kind = any(${MAILED_TO_SELLER as string[]})
      ),
      fitting as materialized (select ${JSON.stringify(MAILED_MEMBERS)}::text::jsonb as by_kind),
      mailed as (
        select t.id, t.kind, t.data, t.account_id from told t cross join fitting where not by_kind ? t.kind
        union all
        select t.id, t.kind, t.data, m.person_id from told t cross join fitting
          join accounts a on a.id = t.account_id and a.status = 'active'
          join members m on m.account_id = t.account_id and by_kind -> t.kind ? m.role
      ),
      called as (
        select id, kind, account_id from concerned where kind = any(${OWN_WEBHOOK_KINDS as string[]})
        union select id, kind, account_id from sellers where kind = any(${SELLER_WEBHOOK_KINDS as string[]})
      )
      select m.id as "messageId", m.kind, a.id as "accountId", coalesce(a.reseller_id, 0) as "tenantId", 'mail' as channel,
        lower(case when m.kind = 'email_change' and m.data ->> 'to' = 'new' then m.data ->> 'address' else a.email end) as address,
        null::bigint as "endpointId"
      from mailed m join accounts a on a.id = m.account_id and a.status = 'active'
      left join accounts r on r.id = a.reseller_id
      where coalesce(r.status, 'active') = 'active'
        and not exists (select from muted_mails x where x.account_id = a.id and x.kind = m.kind)
        and (a.reseller_id is null and ${operatorMails} or exists (select from mail_servers s where s.reseller_id = a.reseller_id))
      union all
      select m.id, m.kind, m.account_id, m.account_id, 'mail', lower(m.data ->> 'address'), null
      from batch m left join accounts r on r.id = m.account_id
      where m.kind = any(${MAILED_TO_ADDRESS as string[]}) and coalesce(r.status, 'active') = 'active'
        and (m.account_id = 0 and ${operatorMails} or exists (select from mail_servers s where s.reseller_id = m.account_id))
      union all
      select m.id, m.kind, a.id, coalesce(a.reseller_id, 0), 'webhook', e.id::text, e.id
      from called m join accounts a on a.id = m.account_id and a.status = 'active'
      join webhook_endpoints e on e.account_id = a.id and e.enabled and m.kind = any(e.kinds)
      left join accounts r on r.id = a.reseller_id
      where coalesce(r.status, 'active') = 'active'
      order by "messageId", channel, address`;
    const reachable = targets.filter(({ address }) => address !== null);
    await writeDeliveries(sql, await withinHour(sql, reachable));
    await sql`update outbox_messages set routed_at = ledger_now() where id = any(${ids}::text::bigint[])`;
    return { routed: batch.length, isMore: batch.length === BATCH };
  });
}

/** Writes the deliveries of targets, and that their recipients are due. */
async function writeDeliveries(sql: postgres.TransactionSql, known: readonly Target[]): Promise<void> {
  if (known.length === 0) return;
  // Sorted, and locked by the upsert: a replica that finishes a delivery looks for more under the same lock.
  await sql`
    insert into outbox_recipients as r (tenant_id, account_id, channel, address, next_at)
    select t.tenant_id, min(t.account_id), t.channel, t.address, min(clock.now)
    from (select ledger_now() as now offset 0) clock, jsonb_to_recordset(${rows(known)}::text::jsonb)
      as t(tenant_id bigint, account_id bigint, channel text, address text)
    group by t.tenant_id, t.channel, t.address order by t.tenant_id, t.channel, t.address
    on conflict (tenant_id, channel, address) do update set next_at = coalesce(r.next_at, excluded.next_at)`;
  await sql`
    insert into outbox_deliveries (message_id, recipient_id, account_id, tenant_id, endpoint_id, created_at, deadline_at)
    select t.message_id, r.id, t.account_id, t.tenant_id, t.endpoint_id, clock.now,
      clock.now + make_interval(hours => ${GIVE_UP_HOURS})
    from (select ledger_now() as now offset 0) clock, jsonb_to_recordset(${rows(known)}::text::jsonb)
      as t(message_id bigint, account_id bigint, tenant_id bigint, channel text, address text, endpoint_id bigint)
    join outbox_recipients r on r.tenant_id = t.tenant_id and r.channel = t.channel and r.address = t.address
    order by t.message_id`;
}

/** As JSON: one parameter for all. */
function rows(targets: readonly Target[]): string {
  const listed = targets.map(({ messageId, accountId, tenantId, channel, address, endpointId }) => ({
    message_id: Number(messageId),
    account_id: Number(accountId),
    tenant_id: Number(tenantId),
    channel,
    address,
    endpoint_id: endpointId === null ? null : Number(endpointId),
  }));
  return JSON.stringify(listed);
}
