import { and, eq, inArray, isNotNull, sql } from "drizzle-orm";
import { lockAccounts } from "../accounts/locks_store.ts";
import { InputError, Refusal } from "../errors.ts";
import { addBalanceIn, lastEntryOf, transferIn } from "../ledger/balances_store.ts";
import { assignIn, type Package, type PayWith, payerOf } from "../ledger/packages_store.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { orders } from "../platform/schema_offerings.ts";
import { payments } from "../platform/schema_payments.ts";
import { chargePaid, orderFulfilled, requireNotCharging } from "./order_ends_store.ts";
import { orderPaid } from "./order_paid.ts";
import {
  alreadyDecided,
  type Decider,
  factsOfOrder,
  isFencedBy,
  isOrder,
  type Order,
  oneOrder,
} from "./orders_store.ts";
import { OPERATOR } from "./sellers_store.ts";

/**
 * Fulfils orders: assigns the package or tops up the balance, and marks the order, in one transaction. So an order is fulfilled once.
 * Locks: the accounts', then the order's row. Source: BUY-4.
 */

/** A paid order that could not be fulfilled is tried again after this. */
const TRY_AGAIN_SECONDS = 60;

export type Fulfilment = Decider & {
  orderId: number;
  /** For a package: replace the active one, or follow all others, as the buyer was told. Source: BUY-4. */
  when: "now" | "after";
  /** undefined: the balance of the account's reseller, or the operator if it has none. */
  payWith: PayWith | undefined;
};

/**
 * Fulfils an order for a person. An open order with a price is recorded as paid to the seller. A top-up is a transfer
 * from the reseller's balance; without a reseller, or if the operator pays, the amount is added. Throws not_found,
 * insufficient_balance, and InputError
 * if the order was decided.
 */
export async function fulfilOrder(
  deps: ChangeDeps,
  { orderId, resellerId, when, payWith }: Fulfilment,
): Promise<{ order: Order; package: Package | null }> {
  const actorId = deps.by?.accountId ?? null;
  return changing(deps, async (tx) => {
    const known = await oneOrder(tx, and(isOrder(orderId), isFencedBy({ resellerId })));
    const payer = payerByHand(known, payWith);
    const order = await lockOrder(tx, orderId, [known.account.accountId, payer.payerId]);
    if (order.status !== "open" && order.status !== "paid") throw alreadyDecided(order.status);
    await requireNotCharging(tx, orderId);
    if (order.status === "open" && order.priceNanoUsd !== null) await markPaid(tx, order, paidByHand(order));
    const how = { ...payer, when, actorId };
    return await fulfilIn(tx, await oneOrder(tx, eq(orders.id, orderId)), how);
  });
}

/** Locks the accounts of an order, its buyer's and its seller's, then the order. Throws not_found. */
export async function lockOrderOf(tx: Tx, orderId: number): Promise<Order> {
  const { account, sellerId } = await oneOrder(tx, eq(orders.id, orderId));
  return lockOrder(tx, orderId, [account.accountId, sellerId || null]);
}

/** Locks the accounts, then the order. Throws not_found. */
async function lockOrder(tx: Tx, orderId: number, accountIds: readonly (number | null)[]): Promise<Order> {
  await lockAccounts(
    tx,
    accountIds.filter((id) => id !== null),
  );
  await tx.select({ id: orders.id }).from(orders).where(eq(orders.id, orderId)).for("update");
  return oneOrder(tx, eq(orders.id, orderId));
}

export type NewPayment = Pick<
  typeof payments.$inferInsert,
  "method" | "externalId" | "currency" | "amountNano" | "problem"
>;

/** Records the payment of an open, locked order, and marks it. Source: BUY-3. */
export async function markPaid(tx: Tx, order: Order, payment: NewPayment): Promise<void> {
  const { orderId, sellerId } = order;
  await tx.insert(payments).values({ ...payment, orderId, sellerId, accountId: order.account.accountId });
  const [paid] = await tx
    .update(orders)
    .set({ status: "paid", paidAt: sql`clock_timestamp()`, tryAt: sql`clock_timestamp()` })
    .where(and(eq(orders.id, orderId), eq(orders.status, "open")))
    .returning({ id: orders.id });
  if (!paid) throw new Error("an order that was locked is not open");
  await chargePaid(tx, orderId);
  await orderPaid(tx, order, payment.method);
}

type How = { payerId: number | null; fromAllotment: boolean; when: "now" | "after"; actorId: number | null };

async function fulfilIn(tx: Tx, order: Order, how: How): Promise<{ order: Order; package: Package | null }> {
  const { orderId } = order;
  const { accountId } = order.account;
  const { payerId, fromAllotment, when, actorId } = how;
  let assigned: Package | null = null;
  let entryId: number | null = null;
  if (order.offering) {
    const { offeringId } = order.offering;
    const { priceNanoUsd } = order;
    assigned = await assignIn(tx, { accountId, offeringId, when, payerId, fromAllotment, priceNanoUsd, actorId });
  } else if (order.amountNanoUsd !== null) {
    const topUp = { nanoUsd: order.amountNanoUsd, reason: `order ${order.reference}`, actorId };
    if (payerId === null) await addBalanceIn(tx, { ...topUp, accountId, kind: "top_up" });
    else await transferIn(tx, { ...topUp, fromId: payerId, toId: accountId });
    entryId = await lastEntryOf(tx, accountId);
  }
  const fulfilled = await tx
    .update(orders)
    .set({
      status: "fulfilled",
      packageId: assigned?.packageId ?? null,
      entryId,
      waitsFor: null,
      tryAt: null,
      decidedBy: actorId,
      decidedAt: sql`clock_timestamp()`,
    })
    .where(and(eq(orders.id, orderId), inArray(orders.status, ["open", "paid"])))
    .returning({ id: orders.id });
  if (fulfilled.length === 0) throw new Error("an order that was locked is decided");
  await orderFulfilled(tx, { orderId, packageId: assigned?.packageId ?? null, priceNanoUsd: order.priceNanoUsd });
  await tell(tx, {
    kind: "order_fulfilled",
    accountId,
    data: { ...factsOfOrder(order), ...(assigned && timesOf(assigned)) },
    onceKey: `order_fulfilled:${orderId}`,
  });
  return { order: await oneOrder(tx, eq(orders.id, orderId)), package: assigned };
}

function timesOf({ startsAt, endsAt, timeZone }: Package) {
  return { startsAt, endsAt, timeZone };
}

/**
 * Fulfils a paid, locked order as its seller would: from the reseller's balance, and after all other packages. If the
 * seller must do something first, the reason is stored, and the order stays paid. Returns the order. Throws
 * IdleMoneyError. Source: BUY-4, BUY-5.
 */
export async function fulfilPaidIn(tx: Tx, order: Order): Promise<Order> {
  const payerId = order.sellerId === OPERATOR ? null : order.sellerId;
  try {
    // In a savepoint: a refusal undoes the fulfilment, not the payment.
    return await tx.transaction(async (part) => {
      const how = { payerId, fromAllotment: false, when: "after", actorId: null } as const;
      return (await fulfilIn(part, order, how)).order;
    });
  } catch (error) {
    const waitsFor = reasonOf(error);
    if (waitsFor === undefined) throw error;
    await tx
      .update(orders)
      .set({ waitsFor, tryAt: sql`clock_timestamp() + make_interval(secs => ${TRY_AGAIN_SECONDS})` })
      .where(eq(orders.id, order.orderId));
    // The key contains the reason: the seller is told once, and again only for another reason.
    const { accountId } = order.account;
    const data = { ...factsOfOrder(order), waitsFor };
    await tell(tx, { kind: "order_waits", accountId, data, onceKey: `order_waits:${order.orderId}:${waitsFor}` });
    return oneOrder(tx, eq(orders.id, order.orderId));
  }
}

/** Why a paid order must wait; undefined: the error is of another kind. */
function reasonOf(error: unknown): "seller_balance" | "seller" | undefined {
  if (error instanceof Refusal && error.code === "insufficient_balance") return "seller_balance";
  return error instanceof InputError ? "seller" : undefined;
}

/**
 * Fulfils paid orders that wait, the oldest first. Several replicas may call it: each order is claimed by one. Returns
 * how many were fulfilled. `onFailure` gets unforeseen errors; such an order is tried again later. Source: BUY-4.
 */
export async function fulfilWaiting(
  deps: ChangeDeps,
  { ordersMax, onFailure }: { ordersMax: number; onFailure: (error: unknown, orderId: number) => void },
): Promise<number> {
  const due = await deps.db.orm.execute<{ id: string }>(sql`
    update orders set try_at = clock_timestamp() + make_interval(secs => ${TRY_AGAIN_SECONDS}) where id in (
      select id from orders where status = 'paid' and try_at <= clock_timestamp() order by try_at limit ${ordersMax} for update skip locked)
    returning id`);
  let fulfilled = 0;
  for (const { id } of due) {
    try {
      if ((await fulfilPaid(deps, Number(id))).status === "fulfilled") fulfilled++;
    } catch (error) {
      onFailure(error, Number(id));
    }
  }
  return fulfilled;
}

/** Fulfils one order, unless it is not paid any more, or is for its seller to decide. Returns the order. */
async function fulfilPaid(deps: ChangeDeps, orderId: number): Promise<Order> {
  return changing(deps, async (tx) => {
    const order = await lockOrderOf(tx, orderId);
    const isTried = and(eq(orders.id, orderId), eq(orders.status, "paid"), isNotNull(orders.tryAt));
    const [row] = await tx.select({ id: orders.id }).from(orders).where(isTried);
    return row ? await fulfilPaidIn(tx, order) : order;
  });
}

/** A payment that a person has marked as arrived. At most one for each order. */
function paidByHand({ reference, currency, totalNano }: Order): NewPayment {
  if (totalNano === null) throw new Error("an order without a price is not paid");
  return { method: "instructions", externalId: reference, currency, amountNano: totalNano };
}

/** Who pays. A reseller's own top-up comes from the operator, not from its own balance. Throws InputError. */
function payerByHand({ kind, account }: Order, payWith: PayWith | undefined) {
  if (kind === "package") return payerOf(account, payWith);
  if (payWith === "allotment") throw new InputError("An allotment pays for packages only.", "payWith");
  return payerOf({ ...account, role: "customer" }, payWith);
}
