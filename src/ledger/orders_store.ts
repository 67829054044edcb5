import { and, desc, eq, isNull, lt, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { isRowId, toIso } from "../accounts/checks.ts";
import { lockAccounts } from "../accounts/locks_store.ts";
import type { Role } from "../accounts/people_store.ts";
import { InputError, Refusal } from "../errors.ts";
import { MONEY_NANO_USD_MAX, ORDER_TEXT_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { inSlices } from "../platform/prune.ts";
import { accounts, offerings, orders } from "../platform/schema.ts";
import type { Package } from "./holdings_store.ts";
import { addBalanceIn, assignIn, type PayWith, payerOf, transferIn } from "./packages_and_balances_store.ts";

/**
 * Orders: a package or a top-up that an account asks for. Its reseller, or where there is none an admin, fulfils or declines
 * it. Fulfilling is one transaction with what it hands out, so that an order is fulfilled once.
 */

const OPEN_MAX = 5;
const PAGE_MAX = 100;
/** Orders that are forgotten in one statement. */
const PRUNE_ROWS = 500;

export type OrderStatus = "open" | "fulfilled" | "declined" | "withdrawn";

export type Order = {
  orderId: number;
  account: { accountId: number; name: string; email: string; role: Role; resellerId: number | null };
  kind: "package" | "top_up";
  /** Of a package. */
  offering: { offeringId: number; name: string; wholesaleNanoUsd: bigint; enabled: boolean } | null;
  /** Of a top-up. */
  amountNanoUsd: bigint | null;
  note: string | null;
  status: OrderStatus;
  /** What the one who decided says to it. */
  answer: string | null;
  decidedAt: string | null;
  createdAt: string;
};

export type NewOrder =
  | { kind: "package"; offeringId: number; note?: string | null }
  | { kind: "top_up"; amountNanoUsd: bigint; note?: string | null };

/** Who decides: a reseller over its customers' orders, an admin (`null`) over everybody's. */
export type Decider = { resellerId: number | null };

/** Places an order. Throws InputError: no such offering, or as many open orders as an account may have. */
export async function placeOrder(deps: ChangeDeps, accountId: number, wanted: NewOrder): Promise<Order> {
  const row =
    wanted.kind === "package"
      ? { kind: wanted.kind, offeringId: wanted.offeringId, amountNanoUsd: null }
      : { kind: wanted.kind, offeringId: null, amountNanoUsd: checkAmount(wanted.amountNanoUsd) };
  const note = checkText(wanted.note ?? null, "note");
  return changing(deps, async (tx) => {
    // The row's lock, so that two at once are counted one after the other.
    const known = isRowId(accountId)
      ? await tx.select({ id: accounts.id }).from(accounts).where(eq(accounts.id, accountId)).for("no key update")
      : [];
    if (known.length === 0) throw notFound();
    const [open] = await tx
      .select({ count: sql<number>`count(*)::int` })
      .from(orders)
      .where(and(eq(orders.accountId, accountId), eq(orders.status, "open")));
    if ((open?.count ?? 0) >= OPEN_MAX)
      throw new InputError(`You have ${OPEN_MAX} open orders: wait for an answer, or withdraw one.`);
    if (row.offeringId !== null) await checkForSale(tx, row.offeringId);
    const [added] = await tx
      .insert(orders)
      .values({ accountId, ...row, note })
      .returning({ id: orders.id });
    return one(tx, eq(orders.id, Number(added?.id)));
  });
}

/** An account's own orders, newest first. `before` is the last id of the page before. */
export async function listOrders(
  { db }: { db: Db },
  { accountId, ...page }: { accountId: number } & Page,
): Promise<{ rows: Order[]; hasMore: boolean }> {
  return paged(db.orm, eq(orders.accountId, accountId), page);
}

/** Orders to decide, newest first; `houseOnly` leaves out those of resellers' customers. */
export async function listIncoming(
  { db }: { db: Db },
  { resellerId, houseOnly = false, ...page }: Decider & { houseOnly?: boolean } & Page,
): Promise<{ rows: Order[]; hasMore: boolean }> {
  return paged(db.orm, and(within({ resellerId }), houseOnly ? isNull(accounts.resellerId) : undefined), page);
}

/** Takes one's own open order back. Throws not_found, and InputError if it is decided. */
export async function withdrawOrder(
  deps: ChangeDeps,
  { accountId, orderId }: { accountId: number; orderId: number },
): Promise<Order> {
  const withdraw = async (tx: Tx) => {
    await one(tx, and(isOrder(orderId), eq(orders.accountId, accountId)));
    await decide(tx, orderId, { status: "withdrawn", decidedBy: deps.by?.accountId ?? null });
    return one(tx, eq(orders.id, orderId));
  };
  return changing(deps, withdraw, { protects: true });
}

/** Declines an open order, with an answer or without. Throws not_found, and InputError if it is decided. */
export async function declineOrder(
  deps: ChangeDeps,
  { orderId, resellerId, answer }: Decider & { orderId: number; answer: string | null },
): Promise<Order> {
  const said = checkText(answer, "answer");
  return changing(deps, async (tx) => {
    await one(tx, and(isOrder(orderId), within({ resellerId })));
    await decide(tx, orderId, { status: "declined", answer: said, decidedBy: deps.by?.accountId ?? null });
    return one(tx, eq(orders.id, orderId));
  });
}

export type Fulfilment = Decider & {
  orderId: number;
  /** Of a package: at once, or behind those the account has. */
  when: "now" | "after";
  /** Left out: the account's reseller by its balance, or where there is none the operator. */
  payWith: PayWith | undefined;
};

/**
 * Hands out what was ordered and marks the order, in one transaction. A top-up comes from the reseller's balance, or where
 * there is none (or an admin says so) is added. Throws not_found, insufficient_balance, and InputError if it is decided.
 */
export async function fulfilOrder(
  deps: ChangeDeps,
  { orderId, resellerId, when, payWith }: Fulfilment,
): Promise<{ order: Order; package: Package | null }> {
  const actorId = deps.by?.accountId ?? null;
  return changing(deps, async (tx) => {
    const order = await one(tx, and(isOrder(orderId), within({ resellerId })));
    const { payerId, fromAllotment } = payer(order, payWith);
    const { accountId } = order.account;
    // The ledger's locks before the order's row: whoever assigns has them in this order too.
    await lockAccounts(tx, payerId === null ? [accountId] : [accountId, payerId]);
    await decide(tx, orderId, { status: "fulfilled", decidedBy: actorId });
    const reason = `order ${orderId}`;
    let handedOut: Package | null = null;
    if (order.offering) {
      const { offeringId } = order.offering;
      handedOut = await assignIn(tx, { accountId, offeringId, when, payerId, fromAllotment, actorId });
    } else if (order.amountNanoUsd !== null) {
      const nanoUsd = order.amountNanoUsd;
      if (payerId === null) await addBalanceIn(tx, { accountId, nanoUsd, kind: "top_up", reason, actorId });
      else await transferIn(tx, { fromId: payerId, toId: accountId, nanoUsd, reason, actorId });
    }
    return { order: await one(tx, eq(orders.id, orderId)), package: handedOut };
  });
}

/** Forgets orders that were decided, or withdrawn, more than so many days ago, and returns how many. What they handed out stays. */
export async function pruneOrders({ db }: { db: Db }, keptDays: number): Promise<number> {
  return await inSlices(PRUNE_ROWS, async () => {
    const deleted = await db.orm.execute(sql`
      delete from orders where id in (
        select id from orders where decided_at < clock_timestamp() - make_interval(days => ${keptDays}::int) and status <> 'open'
        order by decided_at limit ${PRUNE_ROWS} for update skip locked)
      returning 1`);
    return deleted.length;
  });
}

/** A reseller's own top-up comes from the operator; it cannot come from its own balance. Throws InputError. */
function payer({ kind, account }: Order, payWith: PayWith | undefined) {
  if (kind === "package") return payerOf(account, payWith);
  if (payWith === "allotment") throw new InputError("An allotment pays for packages only.", "payWith");
  return payerOf({ ...account, role: "customer" }, payWith);
}

type Decision = { status: Exclude<OrderStatus, "open">; answer?: string | null; decidedBy: number | null };

/** Whoever comes second waits for the row, and then finds it decided. */
async function decide(tx: Tx, orderId: number, decision: Decision): Promise<void> {
  const decided = await tx
    .update(orders)
    .set({ ...decision, decidedAt: sql`clock_timestamp()` })
    .where(and(eq(orders.id, orderId), eq(orders.status, "open")))
    .returning({ id: orders.id });
  if (decided.length > 0) return;
  const { status } = await one(tx, eq(orders.id, orderId));
  throw new InputError(`This order is ${status} already: nothing was done.`);
}

async function checkForSale(tx: Tx, offeringId: number): Promise<void> {
  const found = isRowId(offeringId)
    ? await tx
        .select({ id: offerings.id })
        .from(offerings)
        .where(and(eq(offerings.id, offeringId), offerings.enabled))
    : [];
  if (found.length === 0) throw new InputError("There is no such offering for sale.", "offeringId");
}

function checkAmount(nanoUsd: bigint): bigint {
  if (nanoUsd <= 0n || nanoUsd > MONEY_NANO_USD_MAX)
    throw new InputError("The amount must be above zero, and at most $9,000,000.", "amountNanoUsd");
  return nanoUsd;
}

/** What people write to each other: plain text, several lines if need be; empty is none. */
function checkText(value: string | null, param: string): string | null {
  const text = value?.trim().replaceAll("\r\n", "\n") ?? "";
  if ([...text].length > ORDER_TEXT_CHARS_MAX)
    throw new InputError(`The ${param} may have at most ${ORDER_TEXT_CHARS_MAX} characters.`, param);
  if (/[^\P{Cc}\n]|\p{Cs}/u.test(text)) throw new InputError(`The ${param} must be plain text.`, param);
  return text === "" ? null : text;
}

function notFound(): Refusal {
  return new Refusal("not_found", { message: "There is no such order." });
}

/** What can be no row's id is nobody's order. */
function isOrder(orderId: number): SQL {
  return isRowId(orderId) ? eq(orders.id, orderId) : sql`false`;
}

/** Scope is part of the question: another's order is one that is not there. */
function within({ resellerId }: Decider): SQL | undefined {
  return resellerId === null ? undefined : eq(accounts.resellerId, resellerId);
}

type Page = { status?: OrderStatus; before?: number; limit?: number };

async function paged(tx: Tx, where: SQL | undefined, { status, before, limit = PAGE_MAX }: Page) {
  const size = Math.min(Math.max(limit, 1), PAGE_MAX);
  const rows = await select(
    tx,
    and(
      where,
      status === undefined ? undefined : eq(orders.status, status),
      before === undefined ? undefined : lt(orders.id, before),
    ),
    size + 1,
  );
  return { rows: rows.slice(0, size), hasMore: rows.length > size };
}

async function one(tx: Tx, where: SQL | undefined): Promise<Order> {
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
  return rows.map((row) => ({ ...row, decidedAt: toIso(row.decidedAt), createdAt: toIso(row.createdAt) }));
}
