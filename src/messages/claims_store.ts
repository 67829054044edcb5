import type postgres from "postgres";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import type { MessageKind } from "../platform/outbox_store.ts";

/**
 * Deliveries that are due: claimed, and finished. All times are the database's, read in the statement that uses them, since replicas'
 * clocks may be minutes apart. A replica claims a recipient by postponing it; if the replica dies, the recipient is due again when
 * the claim has run out. Source: MSG-1, MSG-3, MSG-4, REL-2.
 */

/** Longer than an attempt and its result may take. */
const CLAIM_SECONDS = 150;
/** The pause after a failure doubles from the first to the longest. Each is shortened at random, by at most half. */
const PAUSE_SECONDS = { first: 10, longest: 1_800 };
const ERROR_CHARS_MAX = 300;
/** Endpoints of a tenant, the ones due first, among which accounts take turns in one claim. An account has at most WEBHOOKS_MAX. */
const NEAR_MAX = 400;

/** A claimed delivery: what to send to whom. */
export type Claimed = {
  claimId: string;
  recipientId: number;
  deliveryId: number;
  messageId: number;
  kind: MessageKind;
  data: Record<string, unknown>;
  /** The account that the message is about. */
  concernsId: number;
  /** The account that is told. */
  accountId: number;
  tenantId: number;
  channel: "mail" | "webhook";
  address: string;
  endpointId: number | null;
  createdAt: string;
  /** When it was claimed: Unix time, ms. */
  claimedUnixMs: number;
  /** For a mail that probes a server which did not answer: the failures so far. null: no probe. */
  probe: number | null;
};

/** What one replica sends at most at the same time, of one tenant and of one account. */
export type Shares = {
  /** Of a tenant: mails, and mails and calls that have not taken long yet. */
  tenant: number;
  /** Calls of a tenant, with those that take long. */
  tenantCalls: number;
  /** Calls of an account, with those that take long. */
  accountCalls: number;
};
/** What it sends now: who, on which channel, and whether it takes long. */
export type Sending = Pick<Claimed, "tenantId" | "accountId" | "channel"> & { isSlow: boolean };
type Claiming = { max: number; shares: Shares; sending: readonly Sending[] };

/**
 * Claims at most `max` recipients that are due, taking tenants in turn and of each its accounts in turn, and returns the first waiting
 * delivery of each. No recipient has two claims at a time. If a mail server does not answer, only a probe is claimed, when it is due.
 * Source: MSG-3, MSG-12.
 */
export async function claimDeliveries({ db }: { db: Db }, { max, shares, sending }: Claiming): Promise<Claimed[]> {
  const tenants = JSON.stringify(tallied(sending, "tenantId"));
  const accounts = tallied(sending, "accountId");
  const full = `{${accounts.filter(({ calls }) => calls >= shares.accountCalls).map(({ id }) => id)}}`;
  const rows = await db.sql`
    with recursive clock as materialized (select ledger_now() as now),
    tenants as (
      (select tenant_id from outbox_recipients where next_at is not null order by tenant_id limit 1)
      union all
      select (select r.tenant_id from outbox_recipients r where r.next_at is not null and r.tenant_id > t.tenant_id order by r.tenant_id limit 1)
      from tenants t where t.tenant_id is not null
    ),
    busy_tenants as (select * from jsonb_to_recordset(${tenants}::text::jsonb) as b(id bigint, calls int, mails int, fast int)),
    busy_accounts as (select * from jsonb_to_recordset(${JSON.stringify(accounts)}::text::jsonb) as b(id bigint, calls int)),
    senders as (
      select t.tenant_id, greatest(0, ${shares.tenant}::int - coalesce(b.fast, 0)) as free,
        greatest(0, ${shares.tenant}::int - coalesce(b.mails, 0)) as mails_free, greatest(0, ${shares.tenantCalls}::int - coalesce(b.calls, 0)) as calls_free,
        m.tenant_id is not null as is_down, coalesce(m.next_at <= (select now from clock), false) as may_probe
      from tenants t left join busy_tenants b on b.id = t.tenant_id left join mail_breakers m using (tenant_id) where t.tenant_id is not null
    ),
    chosen as (
      select c.id, c.is_probe, s.tenant_id from senders s
      cross join lateral (
        select id, next_at, is_probe, row_number() over (order by account_turn, next_at, id) as turn from (
          (select near.id, next_at, false as is_probe,
              coalesce(a.calls, 0) + row_number() over (partition by account_id order by next_at, near.id) as account_turn
            from (select id, next_at, account_id from outbox_recipients r
              where r.tenant_id = s.tenant_id and r.channel = 'webhook' and r.next_at <= (select now from clock)
                and r.account_id <> all(${full}::text::bigint[]) order by next_at, id limit ${NEAR_MAX}) near
            left join busy_accounts a on a.id = account_id
            order by account_turn, next_at, near.id limit s.calls_free)
          union all
          (select id, next_at, s.is_down, 1 from outbox_recipients r
            where r.tenant_id = s.tenant_id and r.channel = 'mail' and r.next_at <= (select now from clock)
            order by next_at, id limit case when not s.is_down then s.mails_free when s.may_probe then least(1, s.mails_free) else 0 end)
        ) due
        where is_probe or account_turn <= ${shares.accountCalls}
        order by account_turn, next_at, id limit s.free
      ) c
      order by c.turn, c.next_at limit ${max}
    ),
    probing as (
      update mail_breakers set next_at = (select now from clock) + make_interval(secs => ${CLAIM_SECONDS}) where tenant_id in (
        select tenant_id from mail_breakers where tenant_id in (select tenant_id from chosen where is_probe) and next_at <= (select now from clock)
        for update skip locked)
      returning tenant_id, failures
    ),
    locked as (
      select r.id, p.failures as probe from chosen c join outbox_recipients r on r.id = c.id
      left join probing p on c.is_probe and p.tenant_id = c.tenant_id
      where r.next_at <= (select now from clock) and (not c.is_probe or p.tenant_id is not null) for update of r skip locked
    ),
    claimed as (
      update outbox_recipients r set next_at = (select now from clock) + make_interval(secs => ${CLAIM_SECONDS}), claim_id = gen_random_uuid()
      from locked where r.id = locked.id returning r.*, locked.probe
    )
    select c.claim_id, c.id as recipient_id, d.id as delivery_id, d.message_id, m.kind, m.data, m.account_id as concerns_id, d.account_id,
      c.tenant_id, c.channel, c.address, c.probe, d.endpoint_id, m.created_at::text as created_at,
      floor(extract(epoch from (select now from clock)) * 1000)::float8 as claimed_unix_ms
    from claimed c
    cross join lateral (select * from outbox_deliveries w where w.recipient_id = c.id and w.status = 'waiting' order by w.id limit 1) d
    join outbox_messages m on m.id = d.message_id`;
  return rows.map(toClaimed);
}

/** What is sent now, counted by tenant or by account. */
function tallied(sending: readonly Sending[], by: "tenantId" | "accountId") {
  const tallies = new Map<number, { id: number; calls: number; mails: number; fast: number }>();
  for (const { [by]: id, channel, isSlow } of sending) {
    const tally = tallies.get(id) ?? { id, calls: 0, mails: 0, fast: 0 };
    if (channel === "mail") tally.mails++;
    else tally.calls++;
    if (!isSlow) tally.fast++;
    tallies.set(id, tally);
  }
  return [...tallies.values()];
}

function toClaimed(row: postgres.Row): Claimed {
  return {
    claimId: String(row.claim_id),
    recipientId: Number(row.recipient_id),
    deliveryId: Number(row.delivery_id),
    messageId: Number(row.message_id),
    kind: row.kind,
    data: row.data,
    concernsId: Number(row.concerns_id),
    accountId: Number(row.account_id),
    tenantId: Number(row.tenant_id),
    channel: row.channel,
    address: String(row.address),
    endpointId: row.endpoint_id === null ? null : Number(row.endpoint_id),
    createdAt: toIso(String(row.created_at)),
    claimedUnixMs: Number(row.claimed_unix_ms),
    probe: row.probe === null ? null : Number(row.probe),
  };
}

/**
 * What an attempt says about the mail server. `not_asked`: the mail could not be rendered, so the server was not
 * called.
 */
export type ServerAnswer = "answered" | "failed" | "not_asked";

/** How an attempt ended. `isFinal`: another attempt cannot succeed. `answer`: the first bytes of the answer, or why there was none. */
export type Outcome = {
  ok: boolean;
  isFinal: boolean;
  status: number | null;
  answer: string;
  tookMs: number;
  /** Of a mail. */
  server?: ServerAnswer;
};

/**
 * Writes how an attempt ended, and when the recipient is due again. Returns "lost" if the claim had run out meanwhile: then another
 * replica sends the delivery again. `random`: 0 to 1.
 */
export async function finishDelivery(
  { db }: { db: Db },
  { claimId, recipientId, deliveryId, endpointId, probe }: Claimed,
  { outcome, random }: { outcome: Outcome; random: number },
): Promise<"sent" | "waiting" | "failed" | "lost"> {
  const { ok, isFinal, status, tookMs } = outcome;
  const answer = clean(outcome.answer);
  return await db.sql.begin(async (sql) => {
    const [recipient] = await sql`
      select failures from outbox_recipients where id = ${recipientId} and claim_id = ${claimId}::uuid for update`;
    if (!recipient) return "lost";
    const [delivery] = await sql`
      update outbox_deliveries set attempts = attempts + 1, error = ${ok ? null : answer},
        status = case when ${ok} then 'sent' when ${isFinal} or deadline_at <= clock.now then 'failed' else 'waiting' end,
        ended_at = case when ${ok || isFinal} or deadline_at <= clock.now then clock.now end
      from (select ledger_now() as now offset 0) clock
      where id = ${deliveryId} and status = 'waiting' returning status`;
    // The endpoint was switched off or removed meanwhile.
    const ended = delivery?.status ?? "failed";
    if (delivery)
      await sql`
        insert into outbox_attempts (delivery_id, at, took_ms, ok, status, answer)
        values (${deliveryId}, ledger_now(), ${Math.round(tookMs)}, ${ok}, ${status}, ${answer})`;
    if (endpointId !== null)
      await sql`update webhook_endpoints set failing_since = ${ok ? null : sql`coalesce(failing_since, ledger_now())`} where id = ${endpointId}`;
    // A probe without an answer says nothing about its recipient, who is due again, after those that have waited
    // longer.
    const isServers = probe !== null && outcome.server === "failed";
    const failures = ok || ended === "failed" ? 0 : Number(recipient.failures) + (isServers ? 0 : 1);
    const isPaused = failures > 0 && !isServers;
    // A separate statement, so that it sees the deliveries that were written before the lock was taken.
    await sql`
      update outbox_recipients r set claim_id = null, failures = ${failures}, next_at = case
        when exists (select from outbox_deliveries d where d.recipient_id = r.id and d.status = 'waiting')
        then ledger_now() + make_interval(secs => ${isPaused ? pauseSeconds(failures, random) : 0}) end
      where id = ${recipientId}`;
    return ended;
  });
}

/** The pause before the next attempt, after so many failures in a row. */
export function pauseSeconds(failures: number, random: number, longest: number = PAUSE_SECONDS.longest): number {
  const whole = Math.min(PAUSE_SECONDS.first * 2 ** Math.min(failures - 1, 20), longest);
  return whole * (0.5 + random / 2);
}

/** A server's answer as it is stored: one line of limited length, without control characters. */
export function clean(text: string): string {
  // Half a code point or NUL at the end of an answer's first bytes would be refused by Postgres.
  return [...text.replace(/[\p{Cc}\p{Cs}]+/gu, " ").trim()].slice(0, ERROR_CHARS_MAX).join("");
}
