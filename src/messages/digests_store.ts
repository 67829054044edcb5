import type postgres from "postgres";
import type { MessageKind } from "../platform/outbox_store.ts";
import { BY_OTHERS } from "./kinds.ts";

/**
 * Mails about what others do: a reader gets a few of each kind an hour one by one, and one digest of the rest, so that strangers cannot
 * flood them. Runs in the transaction that routes, under its lock: a message is mailed or counted for a digest, and a digest is written,
 * once. Webhooks are called for each message. Source: MSG-14.
 */

/** Mails of one kind that a reader gets one by one in an hour. */
export const NOTICES_HOUR_MAX = 20;

type Mailed = { accountId: string; kind: MessageKind; channel: "mail" | "webhook" };
type Hour = { accountId: string; kind: MessageKind; mailed: number; held: number };

/** Writes the digests of hours that have ended. */
export async function writeDigests(sql: postgres.TransactionSql): Promise<void> {
  // One that begins in the future was written before the database's clock was set back.
  await sql`
    with clock as materialized (select ledger_now() as now),
    ended as (
      delete from notice_hours where began_at <= (select now from clock) - interval '1 hour' or began_at > (select now from clock) returning *
    )
    insert into outbox_messages (kind, account_id, data)
    select 'notices_digest', account_id, jsonb_build_object('counts', jsonb_object_agg(kind, held),
      'since', to_char(min(began_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
    from ended where held > 0 group by account_id order by account_id`;
}

/** Those of `targets` that are told one by one, in their order. The others are counted for the digest of their reader. */
export async function withinHour<Target extends Mailed>(
  sql: postgres.TransactionSql,
  targets: readonly Target[],
): Promise<Target[]> {
  const isCounted = ({ channel, kind }: Mailed) => channel === "mail" && BY_OTHERS.includes(kind);
  const counted = targets.filter(isCounted);
  if (counted.length === 0) return [...targets];
  const ids = `{${[...new Set(counted.map(({ accountId }) => accountId))].join(",")}}`;
  const stored = await sql<Hour[]>`
    select account_id as "accountId", kind, mailed, held from notice_hours where account_id = any(${ids}::text::bigint[])`;
  const hours = new Map(stored.map((hour) => [keyOf(hour), hour]));
  const told = targets.filter((target) => {
    if (!isCounted(target)) return true;
    const { accountId, kind } = target;
    const hour = hours.get(keyOf(target)) ?? { accountId, kind, mailed: 0, held: 0 };
    hours.set(keyOf(target), hour);
    const isWithin = hour.mailed < NOTICES_HOUR_MAX;
    if (isWithin) hour.mailed++;
    else hour.held++;
    return isWithin;
  });
  await writeHours(sql, [...hours.values()]);
  return told;
}

function keyOf({ accountId, kind }: Pick<Mailed, "accountId" | "kind">): string {
  return `${accountId} ${kind}`;
}

async function writeHours(sql: postgres.TransactionSql, hours: readonly Hour[]): Promise<void> {
  const rows = hours.map(({ accountId, ...hour }) => ({ account_id: Number(accountId), ...hour }));
  await sql`
    insert into notice_hours (account_id, kind, began_at, mailed, held)
    select t.account_id, t.kind, coalesce((select min(h.began_at) from notice_hours h where h.account_id = t.account_id), clock.now), t.mailed, t.held
    from (select ledger_now() as now offset 0) clock, jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb)
      as t(account_id bigint, kind text, mailed int, held int)
    on conflict (account_id, kind) do update set mailed = excluded.mailed, held = excluded.held`;
}
