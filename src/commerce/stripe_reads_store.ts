import { eq, sql } from "drizzle-orm";
import type { Db } from "../platform/db.ts";
import { stripeReads } from "../platform/schema_payments.ts";

/** How far Stripe's events were read for each seller. Source: BUY-10. */

const EVERY_SECONDS = 300;
/** Each reading begins this much before the last one: Stripe lists some events late, and its clock may differ. */
const OVERLAP_SECONDS = 600;

/** `from`: Unix time in seconds. `until`: what to store if all events were read. */
export type DueRead = { sellerId: number; from: number; until: string };

/**
 * Claims the sellers with Stripe whose events are to be read now. Several replicas may call it: each seller is claimed
 * by one.
 */
export async function takeDueReads({ db }: { db: Db }, sellersMax: number): Promise<DueRead[]> {
  await db.orm.execute(sql`
    insert into stripe_reads (seller_id) select seller_id from sellers s where stripe_key_ciphertext is not null
      and not exists (select from stripe_reads r where r.seller_id = s.seller_id) on conflict do nothing`);
  const taken = await db.orm.execute<{ seller_id: string; from_seconds: string; until: string }>(sql`
    update stripe_reads set due_at = clock_timestamp() + make_interval(secs => ${EVERY_SECONDS}) where seller_id in (
      select r.seller_id from stripe_reads r join sellers s on s.seller_id = r.seller_id and s.stripe_key_ciphertext is not null
      where r.due_at <= clock_timestamp() order by r.due_at limit ${sellersMax} for update of r skip locked)
    returning seller_id, floor(extract(epoch from read_until - make_interval(secs => ${OVERLAP_SECONDS})))::bigint::text as from_seconds,
      clock_timestamp()::text as until`);
  return taken.map((row) => ({ sellerId: Number(row.seller_id), from: Number(row.from_seconds), until: row.until }));
}

/** All events before `until` are known. */
export async function noteRead({ db }: { db: Db }, sellerId: number, until: string): Promise<void> {
  await db.orm.update(stripeReads).set({ readUntil: until }).where(eq(stripeReads.sellerId, sellerId));
}
