import { and, desc, eq, inArray, isNull, lt, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { checkLines, isRowId } from "../accounts/input_checks.ts";
import type { Role } from "../accounts/roles.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { CENT_NANO_USD, MONEY_NANO_USD_MAX, ORDER_PAYABLE_DAYS, ORDER_TEXT_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { inSlices } from "../platform/prune.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { type OrderTax, offerings, orders } from "../platform/schema_offerings.ts";
import { payments, refunds } from "../platform/schema_payments.ts";
import { deleteUnused, requireMeasured, type Size, sellsMeasured } from "./measured_store.ts";
import { type OrderAmounts, packageAmounts, topUpAmounts } from "./order_amounts.ts";
import { orderEnded, requireNotCharging } from "./order_ends_store.ts";
import { requireOffered } from "./retail_prices_store.ts";
import { sellerIdOf } from "./sellers_store.ts";
import { orderColumns, sellingTermsIn } from "./selling_terms_store.ts";

/**
 * Orders: an account chooses a package or a top-up, pays for it, and gets it. Its seller is its reseller, or the operator if it has
 * none. The seller decides about an order without a price, and is paid outside. `order_fulfilment_store.ts` fulfils
 * orders, `payments_store.ts`
 * records what was paid. Source: BUY-1.
 */

const OPEN_MAX = 5;
/** Orders of an account within 24 hours that were not paid, withdrawn ones included: each sends a mail to its seller, or to every admin. */
const UNPAID_PER_DAY_MAX = 20;
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
  /** What it sells for without tax, at the time of ordering; null: a person decides, and is paid outside. */
  priceNanoUsd: bigint | null;
  /** In which it is paid. As the tax and the rate of exchange, it is of the time of ordering. */
  currency: string;
  /** `priceNanoUsd` in the currency, the tax, and what is paid, in billionths of the currency; null: without a price. */
  netNano: bigint | null;
  taxNano: bigint;
  totalNano: bigint | null;
  /** Billionths of the currency for one US dollar; null: it is the US dollar. */
  usdRateNano: bigint | null;
  /** null: its seller charged no tax. */
  tax: OrderTax | null;
  /** Why an open order can no longer be paid, though it has a price; null: it can, or it is not open. Source: BUY-1. */
  unpayable: "not_on_sale" | "too_old" | null;
  /** How the customer chose to pay; null: not yet, or the seller took the money. */
  method: Method | null;
  paidAt: string | null;
  /** Why a paid order is not fulfilled yet: the reseller's balance is too low, or the seller must check it. */
  waitsFor: "seller_balance" | "seller" | null;
  /** The package that fulfilled it. */
  packageId: number | null;
  /** Total of the refunds, those of duplicate payments included, and those in other currencies than the order's left out. */
  refundedNano: bigint;
  /** The message of the person who decided. */
  answer: string | null;
  decidedAt: string | null;
  createdAt: string;
};

export type NewOrder =
  | { kind: "package"; offeringId: number; note?: string | null }
  | { kind: "top_up"; amountNanoUsd: bigint; note?: string | null }
  | MeasuredOrder;
/** A made-to-measure package. `priceNano`: as the customer saw it, in the seller's currency. Source: MTM-2. */
type MeasuredOrder = Size & { kind: "measured"; priceNano: bigint; timeZone: string; note?: string | null };

/** A reseller decides its customers' orders; an admin (`null`) decides all orders. */
export type Decider = { resellerId: number | null };

/**
 * Places an order at today's price. Throws InputError if there is no such offering, or the account has too many orders that are not paid.
 * Source: BUY-1.
 */
export async function placeOrder(deps: ChangeDeps, accountId: number, wanted: NewOrder): Promise<Order> {
  const amountNanoUsd = wanted.kind === "top_up" ? checkAmount(wanted.amountNanoUsd) : null;
  const note = checkLines(wanted.note ?? null, { param: "note", charsMax: ORDER_TEXT_CHARS_MAX });
  return changing(deps, async (tx) => {
    const { role, resellerId } = await lockBuyer(tx, accountId);
    const sellerId = sellerIdOf({ role, resellerId });
    const { offeringId, priceNano } = await soldBy(tx, { role, resellerId, sellerId }, wanted);
    const kind = wanted.kind === "top_up" ? wanted.kind : "package";
    const priced = await pricedIn(tx, { accountId, sellerId, creditNanoUsd: amountNanoUsd, priceNano });
    const [added] = await tx
      .insert(orders)
      .values({ accountId, kind, offeringId, amountNanoUsd, note, sellerId, ...priced?.columns })
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

type Priced = { accountId: number; sellerId: number; creditNanoUsd: bigint | null; priceNano: bigint | null };

/** What an order costs on the seller's terms of today, also as its columns. undefined: it has no price. Throws InputError. Source: TAX-1, CUR-2. */
async function pricedIn(tx: Tx, { accountId, sellerId, creditNanoUsd, priceNano }: Priced) {
  if (creditNanoUsd === null && priceNano === null) return undefined;
  const terms = await sellingTermsIn(tx, { accountId, sellerId });
  if (creditNanoUsd !== null) {
    const amounts = topUpAmounts(terms, creditNanoUsd);
    return { amounts, columns: orderColumns(terms, amounts, "top_up") };
  }
  if (priceNano === null) return undefined;
  const amounts = packageAmounts(terms, priceNano);
  return { amounts, columns: orderColumns(terms, amounts, "package") };
}

/** What a top-up costs today. Throws InputError if it cannot be paid. */
export async function topUpCost(
  tx: Tx,
  whose: { accountId: number; sellerId: number; creditNanoUsd: bigint },
): Promise<OrderAmounts> {
  const priced = await pricedIn(tx, { ...whose, priceNano: null });
  if (priced === undefined) throw new Error("a top-up has no price");
  return priced.amounts;
}

/**
 * A package at the price of its seller, or a top-up that credits an amount. `most`: what the customer knows that its card may be charged, in
 * billionths of the currency.
 */
export type AutomaticOrder = { accountId: number; sellerId: number; most: { currency: string; nano: bigint } } & (
  | { offeringId: number; priceNano: bigint }
  | { creditNanoUsd: bigint }
);

/**
 * Places an order that is charged to the card on file. It is in no limit of open orders. Returns its id; undefined: it costs more now than the
 * customer knows, or is in another currency. Throws InputError if it cannot be paid.
 */
export async function placeAutomatic(tx: Tx, wanted: AutomaticOrder): Promise<number | undefined> {
  const { accountId, sellerId, most } = wanted;
  const isTopUp = "creditNanoUsd" in wanted;
  const sold = isTopUp
    ? ({ kind: "top_up", amountNanoUsd: wanted.creditNanoUsd } as const)
    : ({ kind: "package", offeringId: wanted.offeringId } as const);
  const price = isTopUp ? { priceNano: null, ...wanted } : { creditNanoUsd: null, ...wanted };
  const priced = await pricedIn(tx, price);
  if (priced === undefined) throw new Error("an order without a price cannot be charged");
  if (priced.amounts.currency !== most.currency || priced.amounts.totalNano > most.nano) return undefined;
  const [added] = await tx
    .insert(orders)
    .values({ accountId, sellerId, ...sold, ...priced.columns, method: "stripe" })
    .returning({ id: orders.id });
  return Number(added?.id);
}

type Buying = { role: Role; resellerId: number | null; sellerId: number };

/** The offering of an order, and what its buyer pays for it now. Throws InputError. */
async function soldBy(
  tx: Tx,
  { role, resellerId, sellerId }: Buying,
  wanted: NewOrder,
): Promise<{ offeringId: number | null; priceNano: bigint | null }> {
  if (wanted.kind === "top_up") return { offeringId: null, priceNano: null };
  if (wanted.kind === "package") {
    const { offeringId } = wanted;
    const listed = await requireOffered(tx, { role, tenantId: resellerId ?? 0 }, offeringId);
    // A reseller buys packages for their wholesale price, from its balance.
    return { offeringId, priceNano: role === "customer" ? listed : null };
  }
  if (role !== "customer") throw new InputError("Only customers order made-to-measure packages.", "kind");
  const { days, dailyLimit, timeZone, priceNano: seenNano } = wanted;
  return requireMeasured(tx, { sellerId, days, dailyLimit, timeZone, seenNano });
}

/** The data of messages about an order. */
export function factsOfOrder(order: Order) {
  const { orderId, sellerId, reference, account, offering, amountNanoUsd, priceNanoUsd } = order;
  return {
    orderId,
    sellerId,
    reference,
    customerName: account.name,
    offeringName: offering?.name ?? null,
    amountNanoUsd: amountNanoUsd === null ? null : String(amountNanoUsd),
    priceNanoUsd: priceNanoUsd === null ? null : String(priceNanoUsd),
    orderCurrency: order.currency,
    taxNano: String(order.taxNano),
    totalNano: order.totalNano === null ? null : String(order.totalNano),
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
  const isOfToday = sql`${orders.createdAt} > clock_timestamp() - interval '24 hours'`;
  const [unpaid] = await tx
    .select({
      open: sql<number>`(count(*) filter (where ${orders.status} = 'open'))::int`,
      ofToday: sql<number>`(count(*) filter (where ${isOfToday}))::int`,
    })
    .from(orders)
    .where(and(eq(orders.accountId, accountId), inArray(orders.status, ["open", "withdrawn", "declined"])));
  if ((unpaid?.open ?? 0) >= OPEN_MAX)
    throw new InputError(
      sentence("You have {openMax} open orders: pay for one, wait for an answer, or withdraw one.", {
        openMax: OPEN_MAX,
      }),
    );
  if ((unpaid?.ofToday ?? 0) >= UNPAID_PER_DAY_MAX)
    throw new InputError(
      sentence(
        "You have placed {unpaidPerDayMax} orders within 24 hours that were not paid. Pay for an open one, or try again tomorrow.",
        { unpaidPerDayMax: UNPAID_PER_DAY_MAX },
      ),
    );
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
 * Deletes orders that were decided or withdrawn more than `keptDays` ago, and for which no money arrived, with the offerings that were made for
 * them. Returns how many orders. Their packages and transactions stay.
 */
export async function pruneOrders({ db }: { db: Db }, keptDays: number): Promise<number> {
  return await inSlices(PRUNE_ROWS, () =>
    db.orm.transaction(async (tx) => {
      const deleted = await tx.execute<{ offering_id: string | null }>(sql`
        delete from orders where id in (
          select id from orders where decided_at < clock_timestamp() - make_interval(days => ${keptDays}::int) and status <> 'open'
            and not exists (select from payments where order_id = orders.id)
          order by decided_at limit ${PRUNE_ROWS} for update skip locked)
        returning offering_id`);
      await deleteUnused(tx, [...new Set(deleted.flatMap(({ offering_id: id }) => (id === null ? [] : [Number(id)])))]);
      return deleted.length;
    }),
  );
}

type Decision = { status: "declined" | "withdrawn"; answer?: string | null; decidedBy: number | null };

/** Decides an open order. The second of two concurrent calls waits for the row and throws InputError. */
async function decide(tx: Tx, orderId: number, decision: Decision): Promise<void> {
  await requireNotCharging(tx, orderId);
  const decided = await tx
    .update(orders)
    .set({ ...decision, decidedAt: sql`clock_timestamp()` })
    .where(and(eq(orders.id, orderId), eq(orders.status, "open")))
    .returning({ id: orders.id });
  if (decided.length > 0) return await orderEnded(tx, orderId);
  throw alreadyDecided((await oneOrder(tx, eq(orders.id, orderId))).status);
}

/** The error for a change of an order that is not open any more. */
export function alreadyDecided(status: OrderStatus): InputError {
  const text =
    status === "paid"
      ? /*i18n*/ "This order is already paid. Nothing was changed. It can be fulfilled or refunded."
      : /*i18n*/ "This order is already {state, select, fulfilled {fulfilled} declined {declined} withdrawn {withdrawn} refunded {refunded} other {decided}}. Nothing was changed.";
  return new InputError(sentence(text, { state: status }));
}

/** Whole cents: what is credited. What is paid for it is rounded to what can be paid in the currency. */
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
      currency: orders.currency,
      netNano: sql<bigint | null>`coalesce(${orders.netNano}, ${orders.priceNanoUsd})`.mapWith(orders.netNano),
      taxNano: orders.taxNano,
      totalNano: sql<bigint | null>`coalesce(${orders.netNano}, ${orders.priceNanoUsd}) + ${orders.taxNano}`.mapWith(
        orders.netNano,
      ),
      usdRateNano: orders.usdRateNano,
      tax: orders.tax,
      unpayable: sql<Order["unpayable"]>`case
        when ${orders.status} <> 'open' or ${orders.priceNanoUsd} is null then null
        when not ${sold.enabled} then 'not_on_sale'
        when ${sold.measured} and not ${sellsMeasured(orders.sellerId)} then 'not_on_sale'
        when ${orders.createdAt} < clock_timestamp() - make_interval(days => ${ORDER_PAYABLE_DAYS}::int) then 'too_old' end`,
      method: orders.method,
      paidAt: orders.paidAt,
      waitsFor: orders.waitsFor,
      packageId: orders.packageId,
      refundedNano: sql<bigint>`coalesce((select sum(${refunds.amountNano}) from ${refunds}
        join ${payments} on ${payments.id} = ${refunds.paymentId} and ${payments.currency} = ${orders.currency}
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
