import { randomUUID } from "node:crypto";
import { and, desc, eq, isNotNull, isNull, sql } from "drizzle-orm";
import { InputError, Refusal } from "../errors.ts";
import { ORDER_PAYABLE_DAYS } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { payableStepNano } from "../platform/currencies.ts";
import type { Db, Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { orders } from "../platform/schema_offerings.ts";
import { checkouts } from "../platform/schema_payments.ts";
import { sellers } from "../platform/schema_sellers.ts";
import { leaveToPerson } from "./order_ends_store.ts";
import { alreadyDecided, factsOfOrder, isOrder, type Method, type Order, oneOrder } from "./orders_store.ts";

/** How customers choose to pay, and Stripe's checkout pages on which they pay. Source: BUY-2, BUY-4. */

/** A page that expires sooner is not handed out any more. */
const PAGE_LEFT_MINUTES_MIN = 5;
/** Stripe makes no page that expires in less than 30 minutes. One more minute, for the call. */
const NEW_PAGE_LEFT_MINUTES_MIN = 31;
/** Stripe is asked at most this often while a customer waits. */
const ASK_SECONDS_MIN = 3;
/** Stripe is asked after 1, 2, 4 … minutes, at most this far apart. */
const ASK_SECONDS_MAX = 3600;
/** A bank debit may pay a completed page days later. After this time Stripe is not asked any more. */
const ASK_DAYS_MAX = 30;

export type Checkout = {
  checkoutId: number;
  orderId: number;
  sellerId: number;
  requestKey: string;
  sessionId: string | null;
  url: string | null;
  returnTo: string;
  /** Unix time in seconds. */
  expiresAt: number;
};

const columns = {
  checkoutId: checkouts.id,
  orderId: checkouts.orderId,
  sellerId: checkouts.sellerId,
  requestKey: checkouts.requestKey,
  sessionId: checkouts.sessionId,
  url: checkouts.url,
  returnTo: checkouts.returnTo,
  expiresAt: sql<number>`floor(extract(epoch from ${checkouts.expiresAt}))`.mapWith(Number),
};

const UNPAYABLE = {
  not_on_sale: "This package is no longer on sale. Withdraw the order, or ask the seller.",
  too_old: `An order can be paid for ${ORDER_PAYABLE_DAYS} days. Withdraw this one, and order again.`,
} as const;

export type Choice = { accountId: number; orderId: number; method: Method };

/**
 * Stores how the customer pays for an open order of its own. Throws not_found, and InputError if the order cannot be
 * paid, or not in that way.
 */
export async function chooseMethod(deps: ChangeDeps, { accountId, orderId, method }: Choice): Promise<Order> {
  return changing(deps, async (tx) => {
    const isOwn = and(isOrder(orderId), eq(orders.accountId, accountId));
    await tx.select({ id: orders.id }).from(orders).where(isOwn).for("update");
    const order = await oneOrder(tx, isOwn);
    await leaveToPerson(tx, orderId);
    if (order.status !== "open") throw alreadyDecided(order.status);
    if (order.totalNano === null)
      throw new InputError("This order has no price: wait for an answer before you pay.", "method");
    if (order.unpayable !== null) throw new InputError(UNPAYABLE[order.unpayable]);
    // A top-up that was ordered before they had to be whole cents.
    if (method !== "instructions" && order.totalNano % payableStepNano(order.currency) !== 0n)
      throw new InputError("Only whole cents can be paid in this way.", "method");
    if (order.method !== method) await tx.update(orders).set({ method }).where(eq(orders.id, orderId));
    return { ...order, method };
  });
}

/**
 * The page on which an order is paid: the open one, or a new one, which Stripe has yet to make. Read the seller's
 * secrets after this call: a change of the secrets before it closes pages that are yet to be made. Throws InputError
 * if the order is no longer open.
 */
export async function checkoutOf({ db }: { db: Db }, order: Order, returnTo: string): Promise<Checkout> {
  const { orderId, sellerId } = order;
  return db.orm.transaction(async (tx) => {
    const isIt = eq(orders.id, orderId);
    const [locked] = await tx.select({ status: orders.status }).from(orders).where(isIt).for("update");
    // It may have been paid in another way since the customer has chosen.
    if (locked && locked.status !== "open") throw alreadyDecided(locked.status);
    await tx.select({ id: sellers.sellerId }).from(sellers).where(eq(sellers.sellerId, sellerId)).for("share");
    const lasts = sql`${checkouts.expiresAt} > clock_timestamp() + make_interval(mins =>
      case when ${checkouts.url} is null then ${NEW_PAGE_LEFT_MINUTES_MIN} else ${PAGE_LEFT_MINUTES_MIN} end::int)`;
    const [open] = await tx
      .select(columns)
      .from(checkouts)
      .where(and(eq(checkouts.orderId, orderId), eq(checkouts.status, "open"), lasts))
      .orderBy(desc(checkouts.id))
      .limit(1);
    if (open) return open;
    const [added] = await tx
      .insert(checkouts)
      .values({ orderId, sellerId, returnTo, requestKey: randomUUID() })
      .returning(columns);
    if (!added) throw new Error("a checkout was not added");
    return added;
  });
}

/**
 * Stores the page that Stripe has made. Returns the address to hand out: that of the first page, if two were made
 * concurrently. Returns undefined if the seller has changed its account at Stripe, because nobody would ask about the
 * page.
 */
export async function noteSession(
  { db }: { db: Db },
  { checkoutId }: Checkout,
  { sessionId, url }: { sessionId: string; url: string },
): Promise<string | undefined> {
  const isOpen = and(eq(checkouts.id, checkoutId), eq(checkouts.status, "open"));
  await db.orm
    .update(checkouts)
    .set({ sessionId, url })
    .where(and(isOpen, isNull(checkouts.sessionId)));
  const [noted] = await db.orm.select({ url: checkouts.url }).from(checkouts).where(isOpen);
  return noted?.url ?? undefined;
}

/** The next try gets a new idempotency key: Stripe would repeat a failed answer for the same one. */
export async function renewRequestKey({ db }: { db: Db }, { checkoutId, requestKey }: Checkout): Promise<void> {
  await db.orm
    .update(checkouts)
    .set({ requestKey: randomUUID() })
    .where(and(eq(checkouts.id, checkoutId), eq(checkouts.requestKey, requestKey)));
}

/**
 * Closes a page on which nothing can be paid any more. `failed`: the customer believes to have paid, and is told that
 * no money arrived.
 */
export async function closeCheckout(
  { db }: { db: Db },
  { sellerId, sessionId, failed = false }: { sellerId: number; sessionId: string; failed?: boolean },
): Promise<void> {
  const isOpen = and(
    eq(checkouts.sellerId, sellerId),
    eq(checkouts.sessionId, sessionId),
    eq(checkouts.status, "open"),
  );
  await db.orm.transaction(async (tx) => {
    const [closed] = await tx.update(checkouts).set({ status: "closed" }).where(isOpen).returning();
    if (!closed || !failed) return;
    const order = await oneOrder(tx, eq(orders.id, closed.orderId));
    if (order.status !== "open") return;
    const { accountId } = order.account;
    const onceKey = `payment_failed:${closed.id}`;
    await tell(tx, { kind: "payment_failed", accountId, data: factsOfOrder(order), onceKey });
  });
}

/** A page to ask Stripe about. Says whether its order can still be paid, and whether the page has expired. */
export type Asked = Checkout & { reference: string; orderIsOpen: boolean; hasEnded: boolean };

const askedColumns = {
  ...columns,
  reference: sql<string>`(select reference from orders where orders.id = ${checkouts.orderId})`,
  orderIsOpen: sql<boolean>`(select status = 'open' from orders where orders.id = ${checkouts.orderId})`,
  hasEnded: sql<boolean>`${checkouts.expiresAt} <= clock_timestamp()`,
};

/** Open pages of a seller, those that expire first. */
export async function openPagesOf({ db }: { db: Db }, sellerId: number, pagesMax: number): Promise<Asked[]> {
  return await db.orm
    .select(askedColumns)
    .from(checkouts)
    .where(and(isOpenOf(sellerId), isNotNull(checkouts.sessionId)))
    .orderBy(checkouts.expiresAt)
    .limit(pagesMax);
}

/**
 * In the transaction that changes a seller's account at Stripe, after its row is locked: closes pages that Stripe has yet to make. Throws
 * service_unavailable if there is an open page.
 */
export async function requireNoPages(tx: Tx, sellerId: number): Promise<void> {
  const closed = await tx
    .update(checkouts)
    .set({ status: "closed" })
    .where(isOpenOf(sellerId))
    .returning({ sessionId: checkouts.sessionId });
  if (closed.some(({ sessionId }) => sessionId !== null))
    throw new Refusal("service_unavailable", {
      message: "Customers still have open checkout pages. Nothing was changed. Try again.",
      retryAfterSeconds: 1,
    });
}

function isOpenOf(sellerId: number) {
  return and(eq(checkouts.sellerId, sellerId), eq(checkouts.status, "open"));
}

/**
 * Claims the pages that Stripe is to be asked about now. Several replicas may call it: each page is claimed by one.
 * Pages that Stripe never made are closed once they would have expired.
 */
export async function takeDueCheckouts({ db }: { db: Db }, checkoutsMax: number): Promise<Asked[]> {
  await db.orm.execute(sql`
    update checkouts set status = 'closed' where status = 'open'
      and expires_at < clock_timestamp() - case when session_id is null then interval '0' else make_interval(days => ${ASK_DAYS_MAX}) end`);
  return await taken(
    db,
    sql`select id from checkouts where status = 'open' and session_id is not null and ask_at <= clock_timestamp()
      order by ask_at limit ${checkoutsMax} for update skip locked`,
  );
}

/** Claims the open pages of one order, because its customer waits. */
export async function takeCheckoutsOf({ db }: { db: Db }, orderId: number): Promise<Asked[]> {
  return await taken(
    db,
    sql`select id from checkouts where order_id = ${orderId}::bigint and status = 'open' and session_id is not null
      and (asked_at is null or asked_at < clock_timestamp() - make_interval(secs => ${ASK_SECONDS_MIN}))
      order by id for update skip locked`,
  );
}

async function taken(db: Db, ids: ReturnType<typeof sql>): Promise<Asked[]> {
  return await db.orm
    .update(checkouts)
    .set({
      asked: sql`${checkouts.asked} + 1`,
      askedAt: sql`clock_timestamp()`,
      askAt: sql`clock_timestamp() + make_interval(secs => least(${ASK_SECONDS_MAX}, 60 * 2 ^ least(${checkouts.asked}, 10)))`,
    })
    .where(sql`${checkouts.id} in (${ids})`)
    .returning(askedColumns);
}
