import { and, eq, inArray, isNotNull, sql } from "drizzle-orm";
import { Refusal } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { orders } from "../platform/schema_offerings.ts";
import { cardCharges } from "../platform/schema_renewals.ts";
import { cardIn, type SavedCard } from "./cards_store.ts";
import { lockOrderOf } from "./order_fulfilment_store.ts";
import { factsOfOrder, type Order, oneOrder } from "./orders_store.ts";
import { chargeFailed } from "./renewals_store.ts";

/**
 * Orders that are charged to the card on file, without the person: which try is due, and how each ended. Every order has one payment at
 * Stripe, which can succeed once, however often and by however many replicas it is tried. Source: CRD-3, CRD-4.
 */

/** A replica that claimed a charge has this long, and so does a replica that died. */
const CLAIM_SECONDS = 60;
const UNANSWERED_SECONDS_MAX = 3_600;

export type ChargeProblem = NonNullable<(typeof cardCharges.$inferSelect)["problem"]>;

export type NewCharge = Pick<
  typeof cardCharges.$inferInsert,
  "orderId" | "accountId" | "sellerId" | "purpose" | "triesMax" | "retrySeconds" | "until"
>;

/** Has an order, which was placed in the same transaction, charged to the card now. */
export async function addCharge(tx: Tx, charge: NewCharge): Promise<void> {
  await tx.insert(cardCharges).values(charge);
}

/** A try that this replica makes. `tries`: which one it is. */
export type Charge = {
  orderId: number;
  accountId: number;
  sellerId: number;
  requestKey: string;
  intentId: string | null;
  tries: number;
  order: Order;
  card: SavedCard | undefined;
  /** Why nothing may be charged now; null: it may. */
  blocked: ChargeProblem | null;
};

/**
 * Claims charges that are due, and those whose replica has died. Several replicas may call it: each is claimed by one.
 */
export async function takeDueCharges({ db }: { db: Db }, chargesMax: number): Promise<Charge[]> {
  const taken = await db.orm
    .update(cardCharges)
    .set({
      status: "charging",
      tries: sql`${cardCharges.tries} + (${cardCharges.status} = 'due')::int`,
      tryAt: sql`clock_timestamp() + make_interval(secs => ${CLAIM_SECONDS})`,
    })
    .where(sql`${cardCharges.orderId} in (select order_id from card_charges where status in ('due', 'charging')
      and try_at <= clock_timestamp() order by try_at limit ${chargesMax} for update skip locked)`)
    .returning();
  return await Promise.all(taken.map((row) => withOrder(db.orm, row)));
}

async function withOrder(tx: Tx, row: typeof cardCharges.$inferSelect): Promise<Charge> {
  const { orderId, accountId, sellerId, requestKey, intentId, tries } = row;
  const order = await oneOrder(tx, eq(orders.id, orderId));
  const [facts] = await tx.execute<{ is_late: boolean; account: string; seller: string | null }>(sql`
    select coalesce(${row.until}::text::timestamptz <= ledger_now(), false) as is_late, a.status as account, s.status as seller
    from accounts a left join accounts s on s.id = ${sellerId}::bigint where a.id = ${accountId}::bigint`);
  const card = await cardIn(tx, { accountId, sellerId });
  const blocked = facts?.is_late
    ? "too_late"
    : order.status !== "open"
      ? "withdrawn"
      : facts?.account !== "active"
        ? "account_suspended"
        : (facts.seller ?? "active") !== "active"
          ? "seller_suspended"
          : order.unpayable !== null
            ? "not_on_sale"
            : card === undefined
              ? "no_card"
              : null;
  return { orderId, accountId, sellerId, requestKey, intentId, tries, order, card, blocked };
}

/** Stores the payment that Stripe has made, before it is confirmed: so it is known, whatever happens then. Returns the one to confirm. */
export async function noteIntent({ db }: { db: Db }, { orderId }: Charge, intentId: string): Promise<string> {
  await db.orm
    .update(cardCharges)
    .set({ intentId })
    .where(and(eq(cardCharges.orderId, orderId), sql`${cardCharges.intentId} is null`));
  const [row] = await db.orm
    .select({ intentId: cardCharges.intentId })
    .from(cardCharges)
    .where(eq(cardCharges.orderId, orderId));
  return row?.intentId ?? intentId;
}

/** Stripe gave no answer: the same try is made again later, ever less often. */
export async function noteUnanswered({ db }: { db: Db }, { orderId }: Charge): Promise<void> {
  const waited = sql`extract(epoch from clock_timestamp() - ${cardCharges.createdAt})`;
  await db.orm
    .update(cardCharges)
    .set({
      tryAt: sql`clock_timestamp() + make_interval(secs => least(${UNANSWERED_SECONDS_MAX}, greatest(${CLAIM_SECONDS}, ${waited} / 4)))`,
    })
    .where(and(eq(cardCharges.orderId, orderId), eq(cardCharges.status, "charging")));
}

/** `isFinal`: it is not tried again. `intentEnded`: the payment was cancelled at Stripe, and a further try needs a new one. */
export type Failure = { problem: ChargeProblem; isFinal: boolean; intentEnded: boolean };

/** Records that a try failed. Concurrent reports of one try count once. */
export async function noteFailure(deps: ChangeDeps, charge: Charge, failure: Failure): Promise<void> {
  await changing(deps, async (tx) => {
    const order = await lockOrderOf(tx, charge.orderId);
    const [row] = await tx.select().from(cardCharges).where(isTry(charge)).for("update");
    if (!row) return;
    const isFinal = failure.isFinal || row.tries >= row.triesMax || order.status !== "open";
    const [noted] = await tx
      .update(cardCharges)
      .set({
        status: isFinal ? "failed" : "due",
        problem: failure.problem,
        tryAt: sql`clock_timestamp() + make_interval(secs => ${row.retrySeconds})`,
        ...(failure.intentEnded && { intentId: null, requestKey: sql`gen_random_uuid()::text` }),
      })
      .where(eq(cardCharges.orderId, charge.orderId))
      .returning({ tryAt: cardCharges.tryAt });
    const retriesAt = isFinal ? null : toIso(String(noted?.tryAt));
    await chargeFailed(tx, { order, problem: failure.problem, isFirst: row.tries === 1, retriesAt });
  });
}

/** The bank wants the person, who is sent the order's page. The payment at Stripe was cancelled before. */
export async function leaveCharge(deps: ChangeDeps, charge: Charge): Promise<void> {
  await changing(deps, async (tx) => {
    const order = await lockOrderOf(tx, charge.orderId);
    const [left] = await tx
      .update(cardCharges)
      .set({ status: "person", problem: "needs_person" })
      .where(isTry(charge))
      .returning({ purpose: cardCharges.purpose });
    if (!left || order.status !== "open") return;
    await tell(tx, {
      kind: "payment_needs_you",
      accountId: charge.accountId,
      data: { ...factsOfOrder(order), purpose: left.purpose },
      onceKey: `payment_needs_you:${charge.orderId}`,
    });
  });
}

/** The order that a payment at Stripe is charged for; undefined: the payment is another one. */
export async function orderOfIntent(
  { db }: { db: Db },
  sellerId: number,
  intentId: string,
): Promise<string | undefined> {
  const [row] = await db.orm
    .select({ reference: orders.reference })
    .from(cardCharges)
    .innerJoin(orders, eq(orders.id, cardCharges.orderId))
    .where(and(eq(cardCharges.sellerId, sellerId), eq(cardCharges.intentId, intentId)));
  return row?.reference;
}

/**
 * In the transaction that changes a seller's account at Stripe: payments that the former account made cannot be confirmed any more. Throws
 * service_unavailable if one is being confirmed.
 */
export async function requireNoCharges(tx: Tx, sellerId: number): Promise<void> {
  const made = and(eq(cardCharges.sellerId, sellerId), isNotNull(cardCharges.intentId));
  const open = await tx
    .update(cardCharges)
    .set({ intentId: null, requestKey: sql`gen_random_uuid()::text` })
    .where(and(made, inArray(cardCharges.status, ["due", "charging"])))
    .returning({ status: cardCharges.status });
  if (open.some(({ status }) => status === "charging"))
    throw new Refusal("service_unavailable", {
      message: "A customer's card is being charged. Nothing was changed. Try again.",
      retryAfterSeconds: 1,
    });
}

function isTry({ orderId, tries }: Charge) {
  return and(eq(cardCharges.orderId, orderId), eq(cardCharges.status, "charging"), eq(cardCharges.tries, tries));
}
