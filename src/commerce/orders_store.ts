import { and, desc, eq, isNull, lt, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { checkLines, isRowId } from "../accounts/input_checks.ts";
import type { Role } from "../accounts/roles.ts";
import { InputError, Refusal } from "../errors.ts";
import { CENT_NANO_USD, MONEY_NANO_USD_MAX, ORDER_PAYABLE_DAYS, ORDER_TEXT_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { inSlices } from "../platform/prune.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { offerings, orders } from "../platform/schema_offerings.ts";
import { payments, refunds } from "../platform/schema_payments.ts";
import { requireMeasured, type Size, sellsMeasured } from "./measured_store.ts";
import { requireOffered } from "./retail_prices_store.ts";
import { sellerIdOf } from "./sellers_store.ts";

/**
 * Orders: an account chooses a package or a top-up, pays for it, and gets it. Its seller is its reseller, or the operator if it has
 * none. The seller decides about an order without a price, and is paid outside. `order_fulfilment_store.ts` fulfils
 * orders, `payments_store.ts`
 * records what was paid. Source: BUY-1.
 */

const OPEN_MAX = 5;
const PAGE_MAX = 100;
/** Orders deleted per statement. */
const PRUNE_ROWS = 500;

/** `paid`: not fulfilled yet. `refunded`: paid, and refunded instead of fulfilled. */
export type OrderStatus = "open" | "paid" | "fulfilled" | "refunded" | "declined" | "withdrawn";
export type Method = "stripe" | "instructions" | "shop";

export type Order = {
  orderId: number;
  account: { accountId: number; name: string; email: string; role: Role; resellerId: number | null };
  kind: "package" | "top_up";
  /** null for a top-up. */
  offering: { offeringId: number; name: string; wholesaleNanoUsd: bigint; enabled: boolean } | null;
  /** null for a package. */
  amountNanoUsd: bigint | null;
  note: string | null;
  status: OrderStatus;
  /** 0: the operator. */
  sellerId: number;
  /** The name that people and payment providers use for it. */
  reference: string;
  /** At the time of ordering; null: a person decides, and is paid outside. */
  priceNanoUsd: bigint | null;
  /** Why an open order can no longer be paid, though it has a price; null: it can, or it is not open. Source: BUY-1. */
  unpayable: "not_on_sale" | "too_old" | null;
  /** How the customer chose to pay; null: not yet, or the seller took the money. */
  method: Method | null;
  paidAt: string | null;
  /** Why a paid order is not fulfilled yet: the reseller's balance is too low, or the seller must check it. */
  waitsFor: "seller_balance" | "seller" | null;
  /** The package that fulfilled it. */
  packageId: number | null;
  /** Total of the refunds, those of duplicate payments included, and those in other currencies left out. */
  refundedNanoUsd: bigint;
  /** The message of the person who decided. */
  answer: string | null;
  decidedAt: string | null;
  createdAt: string;
};

export type NewOrder =
  | { kind: "package"; offeringId: number; note?: string | null }
  | { kind: "top_up"; amountNanoUsd: bigint; note?: string | null }
  | MeasuredOrder;
/** A made-to-measure package. `priceNanoUsd`: as the customer saw it. Source: MTM-2. */
type MeasuredOrder = Size & { kind: "measured"; priceNanoUsd: bigint; timeZone: string; note?: string | null };

/** A reseller decides its customers' orders; an admin (`null`) decides all orders. */
export type Decider = { resellerId: number | null };

/**
 * Places an order at today's price. Throws InputError if there is no such offering, or the account has too many open orders.
 * Source: BUY-1.
 */
export async function placeOrder(deps: ChangeDeps, accountId: number, wanted: NewOrder): Promise<Order> {
  const amountNanoUsd = wanted.kind === "top_up" ? checkAmount(wanted.amountNanoUsd) : null;
  const note = checkLines(wanted.note ?? null, { param: "note", charsMax: ORDER_TEXT_CHARS_MAX });
  return changing(deps, async (tx) => {
    const { role, resellerId } = await lockBuyer(tx, accountId);
    const sellerId = sellerIdOf({ role, resellerId });
    const sold = await soldBy(tx, { role, resellerId, sellerId }, wanted);
    const priceNanoUsd = amountNanoUsd ?? sold.priceNanoUsd;
    const kind = wanted.kind === "top_up" ? wanted.kind : "package";
    const [added] = await tx
      .insert(orders)
      .values({ accountId, kind, offeringId: sold.offeringId, amountNanoUsd, note, sellerId, priceNanoUsd })
      .returning({ id: orders.id });
    const order = await oneOrder(tx, eq(orders.id, Number(added?.id)));
    await tell(tx, {
      kind: "order_placed",
      accountId,
      data: { ...factsOfOrder(order), note: order.note },
      onceKey: `order_placed:${order.orderId}`,
    });
    return order;
  });
}

type Buying = { role: Role; resellerId: number | null; sellerId: number };

/** The offering of an order, and what its buyer pays for it now. Throws InputError. */
async function soldBy(
  tx: Tx,
  { role, resellerId, sellerId }: Buying,
  wanted: NewOrder,
): Promise<{ offeringId: number | null; priceNanoUsd: bigint | null }> {
  if (wanted.kind === "top_up") return { offeringId: null, priceNanoUsd: null };
  if (wanted.kind === "package") {
    const { offeringId } = wanted;
    const listed = await requireOffered(tx, { role, tenantId: resellerId ?? 0 }, offeringId);
    // A reseller buys packages for their wholesale price, from its balance.
    return { offeringId, priceNanoUsd: role === "customer" ? listed : null };
  }
  if (role !== "customer") throw new InputError("Only customers order made-to-measure packages.", "kind");
  const { days, dailyLimit, timeZone, priceNanoUsd: seenNanoUsd } = wanted;
  return requireMeasured(tx, { sellerId, days, dailyLimit, timeZone, seenNanoUsd });
}

/** The data of messages about an order. */
export function factsOfOrder({ orderId, sellerId, reference, account, offering, amountNanoUsd, priceNanoUsd }: Order) {
  return {
    orderId,
    sellerId,
    reference,
    customerName: account.name,
    offeringName: offering?.name ?? null,
    amountNanoUsd: amountNanoUsd === null ? null : String(amountNanoUsd),
    priceNanoUsd: priceNanoUsd === null ? null : String(priceNanoUsd),
  };
}

/** Locks the account's row, so that concurrent orders are counted one after the other. */
async function lockBuyer(tx: Tx, accountId: number) {
  const [buyer] = isRowId(accountId)
    ? await tx
        .select({ role: accounts.role, resellerId: accounts.resellerId })
        .from(accounts)
        .where(eq(accounts.id, accountId))
        .for("no key update")
    : [];
  if (buyer === undefined) throw notFound();
  const [open] = await tx
    .select({ count: sql<number>`count(*)::int` })
    .from(orders)
    .where(and(eq(orders.accountId, accountId), eq(orders.status, "open")));
  if ((open?.count ?? 0) >= OPEN_MAX)
    throw new InputError(`You have ${OPEN_MAX} open orders: pay for one, wait for an answer, or withdraw one.`);
  return buyer;
}

/** An account's own orders, newest first. `before`: the last id of the previous page. */
export async function listOrders(
  { db }: { db: Db },
  { accountId, ...page }: { accountId: number } & Wanted,
): Promise<Page<Order>> {
  return paged(db.orm, eq(orders.accountId, accountId), page);
}

/** Orders that a person can decide, newest first. `houseOnly`: without those of resellers' customers. */
export async function listIncoming(
  { db }: { db: Db },
  { resellerId, houseOnly = false, ...page }: Decider & { houseOnly?: boolean } & Wanted,
): Promise<Page<Order>> {
  return paged(db.orm, and(isFencedBy({ resellerId }), houseOnly ? isNull(accounts.resellerId) : undefined), page);
}

/** An account's own order. Throws not_found. */
export async function findOrder(
  { db }: { db: Db },
  { accountId, orderId }: { accountId: number; orderId: number },
): Promise<Order> {
  return oneOrder(db.orm, and(isOrder(orderId), eq(orders.accountId, accountId)));
}

/** Withdraws an account's own open order. Throws not_found, and InputError if it was decided. */
export async function withdrawOrder(
  deps: ChangeDeps,
  { accountId, orderId }: { accountId: number; orderId: number },
): Promise<Order> {
  const withdraw = async (tx: Tx) => {
    await oneOrder(tx, and(isOrder(orderId), eq(orders.accountId, accountId)));
    await decide(tx, orderId, { status: "withdrawn", decidedBy: deps.by?.accountId ?? null });
    return oneOrder(tx, eq(orders.id, orderId));
  };
  return changing(deps, withdraw, { protects: true });
}

/** Declines an open order; the message is optional. Throws not_found, and InputError if it was decided. */
export async function declineOrder(
  deps: ChangeDeps,
  { orderId, resellerId, answer }: Decider & { orderId: number; answer: string | null },
): Promise<Order> {
  const said = checkLines(answer, { param: "answer", charsMax: ORDER_TEXT_CHARS_MAX });
  return changing(deps, async (tx) => {
    await oneOrder(tx, and(isOrder(orderId), isFencedBy({ resellerId })));
    await decide(tx, orderId, { status: "declined", answer: said, decidedBy: deps.by?.accountId ?? null });
    const order = await oneOrder(tx, eq(orders.id, orderId));
    const data = { ...factsOfOrder(order), answer: said };
    await tell(tx, {
      kind: "order_declined",
      accountId: order.account.accountId,
      data,
      onceKey: `order_declined:${orderId}`,
    });
    return order;
  });
}

/**
 * Deletes orders that were decided or withdrawn more than `keptDays` ago, and for which no money arrived. Returns how many. Their
 * packages and transactions stay.
 */
export async function pruneOrders({ db }: { db: Db }, keptDays: number): Promise<number> {
  return await inSlices(PRUNE_ROWS, async () => {
    const deleted = await db.orm.execute(sql`
      delete from orders where id in (
        select id from orders where decided_at < clock_timestamp() - make_interval(days => ${keptDays}::int) and status <> 'open'
          and not exists (select from payments where order_id = orders.id)
        order by decided_at limit ${PRUNE_ROWS} for update skip locked)
      returning 1`);
    return deleted.length;
  });
}

type Decision = { status: "declined" | "withdrawn"; answer?: string | null; decidedBy: number | null };

/** Decides an open order. The second of two concurrent calls waits for the row and throws InputError. */
async function decide(tx: Tx, orderId: number, decision: Decision): Promise<void> {
  const decided = await tx
    .update(orders)
    .set({ ...decision, decidedAt: sql`clock_timestamp()` })
    .where(and(eq(orders.id, orderId), eq(orders.status, "open")))
    .returning({ id: orders.id });
  if (decided.length > 0) return;
  throw alreadyDecided((await oneOrder(tx, eq(orders.id, orderId))).status);
}

/** The error for a change of an order that is not open any more. */
export function alreadyDecided(status: OrderStatus): InputError {
  const next = status === "paid" ? " It can be fulfilled or refunded." : "";
  return new InputError(`This order is already ${status}. Nothing was changed.${next}`);
}

/** Whole cents, since Stripe and a shop take nothing else. */
function checkAmount(nanoUsd: bigint): bigint {
  if (nanoUsd <= 0n || nanoUsd > MONEY_NANO_USD_MAX)
    throw new InputError("The amount must be above zero, and at most $9,000,000.", "amountNanoUsd");
  if (nanoUsd % CENT_NANO_USD !== 0n) throw new InputError("The amount must be in whole cents.", "amountNanoUsd");
  return nanoUsd;
}

function notFound(): Refusal {
  return new Refusal("not_found", { message: "There is no such order." });
}

/** Matches nothing if the id is out of range. */
export function isOrder(orderId: number): SQL {
  return isRowId(orderId) ? eq(orders.id, orderId) : sql`false`;
}

/** Limits the orders to those of the reseller's customers: others are not found. */
export function isFencedBy({ resellerId }: Decider): SQL | undefined {
  return resellerId === null ? undefined : eq(accounts.resellerId, resellerId);
}

type Wanted = { status?: OrderStatus; before?: number; limit?: number };

async function paged(tx: Tx, where: SQL | undefined, { status, before, limit = PAGE_MAX }: Wanted) {
  const size = pageSize(limit, PAGE_MAX);
  const rows = await select(
    tx,
    and(
      where,
      status === undefined ? undefined : eq(orders.status, status),
      before === undefined ? undefined : lt(orders.id, before),
    ),
    size + 1,
  );
  return pageOf(rows, size);
}

/** The first order that meets a condition. Throws not_found. */
export async function oneOrder(tx: Tx, where: SQL | undefined): Promise<Order> {
  const [order] = await select(tx, where, 1);
  if (!order) throw notFound();
  return order;
}

async function select(tx: Tx, where: SQL | undefined, limit: number): Promise<Order[]> {
  const sold = alias(offerings, "sold");
  const rows = await tx
    .select({
      orderId: orders.id,
      account: {
        accountId: accounts.id,
        name: accounts.name,
        email: accounts.email,
        role: accounts.role,
        resellerId: accounts.resellerId,
      },
      kind: orders.kind,
      offering: {
        offeringId: sold.id,
        name: sold.name,
        wholesaleNanoUsd: sold.wholesaleNanoUsd,
        enabled: sold.enabled,
      },
      amountNanoUsd: orders.amountNanoUsd,
      note: orders.note,
      status: orders.status,
      sellerId: orders.sellerId,
      reference: orders.reference,
      priceNanoUsd: orders.priceNanoUsd,
      unpayable: sql<Order["unpayable"]>`case
        when ${orders.status} <> 'open' or ${orders.priceNanoUsd} is null then null
        when not ${sold.enabled} then 'not_on_sale'
        when ${sold.measured} and not ${sellsMeasured(orders.sellerId)} then 'not_on_sale'
        when ${orders.createdAt} < clock_timestamp() - make_interval(days => ${ORDER_PAYABLE_DAYS}::int) then 'too_old' end`,
      method: orders.method,
      paidAt: orders.paidAt,
      waitsFor: orders.waitsFor,
      packageId: orders.packageId,
      refundedNanoUsd: sql<bigint>`coalesce((select sum(${refunds.amountNano}) from ${refunds}
        join ${payments} on ${payments.id} = ${refunds.paymentId} and ${payments.currency} = 'usd'
        where ${refunds.orderId} = ${orders.id} and ${refunds.status} <> 'failed'), 0)`.mapWith(BigInt),
      answer: orders.answer,
      decidedAt: orders.decidedAt,
      createdAt: orders.createdAt,
    })
    .from(orders)
    .innerJoin(accounts, eq(accounts.id, orders.accountId))
    .leftJoin(sold, eq(sold.id, orders.offeringId))
    .where(where)
    .orderBy(desc(orders.id))
    .limit(limit);
  return rows.map((row) => ({
    ...row,
    paidAt: toIso(row.paidAt),
    decidedAt: toIso(row.decidedAt),
    createdAt: toIso(row.createdAt),
  }));
}
