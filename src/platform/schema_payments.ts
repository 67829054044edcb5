import { sql } from "drizzle-orm";
import { bigint, check, index, integer, pgTable, text, uniqueIndex } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { id, instant, nanoUsd } from "./schema_columns.ts";
import { orders } from "./schema_offerings.ts";

/** How orders are paid: the ways a customer may choose, and where money came from. */
export const METHODS = ["stripe", "instructions", "shop"] as const;
/** Why a payment does not pay for its order. It is kept, and its seller gives it back. */
export const PAYMENT_PROBLEMS = ["wrong_amount", "wrong_currency", "paid_twice", "order_closed", "test_money"] as const;

/** Money that arrived for an order. A row is never changed. At most one of an order has no problem. */
export const payments = pgTable(
  "payments",
  {
    id: id(),
    orderId: bigint({ mode: "number" })
      .notNull()
      .references(() => orders.id),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    sellerId: bigint({ mode: "number" }).notNull(),
    method: text({ enum: METHODS }).notNull(),
    /** The payment at Stripe or in the shop. A second message about the same one changes nothing. */
    externalId: text().notNull(),
    /** In lower case, as in `usd`. */
    currency: text().notNull(),
    /** Billionths of the currency. */
    amountNano: nanoUsd().notNull(),
    problem: text({ enum: PAYMENT_PROBLEMS }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("payments_external").on(t.sellerId, t.method, t.externalId),
    uniqueIndex("payments_order_once").on(t.orderId).where(sql`${t.problem} is null`),
    index("payments_order").on(t.orderId),
    index("payments_seller").on(t.sellerId, t.id),
    check("payments_amount", sql`${t.amountNano} >= 0 and (${t.problem} is not null or ${t.amountNano} > 0)`),
    check("payments_method", sql`${t.method} in ('stripe', 'instructions', 'shop')`),
    check(
      "payments_problem",
      sql`${t.problem} in ('wrong_amount', 'wrong_currency', 'paid_twice', 'order_closed', 'test_money')`,
    ),
  ],
);

/** Pages of Stripe on which an order can be paid. Open ones are asked after, in case a webhook is lost. */
export const checkouts = pgTable(
  "checkouts",
  {
    id: id(),
    orderId: bigint({ mode: "number" })
      .notNull()
      .references(() => orders.id, { onDelete: "cascade" }),
    sellerId: bigint({ mode: "number" }).notNull(),
    /** Sent to Stripe as the idempotency key: after a crash the same page is returned. */
    requestKey: text().notNull(),
    /** null: Stripe has not answered yet. */
    sessionId: text(),
    url: text(),
    status: text({ enum: ["open", "closed"] })
      .notNull()
      .default("open"),
    /** The order's page, to which the customer returns. */
    returnTo: text().notNull(),
    /** How often Stripe was asked about it, when last, and when it is asked next. */
    asked: integer().notNull().default(0),
    askedAt: instant(),
    askAt: instant().notNull().default(sql`clock_timestamp() + interval '1 minute'`),
    expiresAt: instant().notNull().default(sql`clock_timestamp() + interval '2 hours'`),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("checkouts_session").on(t.sellerId, t.sessionId),
    index("checkouts_order").on(t.orderId),
    index("checkouts_ask").on(t.askAt).where(sql`${t.status} = 'open'`),
    check("checkouts_status", sql`${t.status} in ('open', 'closed')`),
  ],
);

/** Who took money back: the seller's button here, somebody in Stripe's dashboard, or a bank, by a dispute that was lost. */
export const REFUND_ORIGINS = ["seller", "stripe", "dispute"] as const;

/** Money given back. `entry_id`: the entry that takes a top-up from the balance again. */
export const refunds = pgTable(
  "refunds",
  {
    id: id(),
    paymentId: bigint({ mode: "number" })
      .notNull()
      .references(() => payments.id),
    orderId: bigint({ mode: "number" })
      .notNull()
      .references(() => orders.id),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    sellerId: bigint({ mode: "number" }).notNull(),
    /** Of the payment's currency, as in `payments`. */
    amountNano: nanoUsd().notNull(),
    origin: text({ enum: REFUND_ORIGINS }).notNull().default("seller"),
    /** The tax in it, and what the rest is worth in US dollars: what a top-up gives back of the balance. 0 of what paid for no order. */
    taxNano: nanoUsd().notNull().default(sql`0`),
    worthNanoUsd: nanoUsd().notNull(),
    /** What of its worth could not be taken from the balance again, because it was spent. Only of what Stripe did by itself. */
    shortfallNanoUsd: nanoUsd().notNull().default(sql`0`),
    reason: text(),
    /** `pending`: Stripe has not confirmed it yet. `failed`: nothing was given back, and a balance has its money again. */
    status: text({ enum: ["pending", "done", "failed"] }).notNull(),
    /** Sent to Stripe as the idempotency key. */
    requestKey: text().notNull(),
    /** The refund or the dispute at Stripe. */
    externalId: text(),
    /** The number of its credit note; null: none was issued. */
    creditNote: bigint({ mode: "number" }),
    /** What Stripe said. */
    problem: text(),
    entryId: bigint({ mode: "number" }),
    /** The entry that put the money back, of a refund that failed. */
    returnEntryId: bigint({ mode: "number" }),
    tryAt: instant().notNull().default(sql`clock_timestamp()`),
    actorId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("refunds_payment").on(t.paymentId),
    index("refunds_order").on(t.orderId),
    index("refunds_pending").on(t.tryAt).where(sql`${t.status} = 'pending'`),
    uniqueIndex("refunds_entry").on(t.entryId),
    uniqueIndex("refunds_external").on(t.sellerId, t.externalId).where(sql`${t.status} <> 'failed'`),
    check(
      "refunds_amount",
      sql`${t.amountNano} > 0 and ${t.taxNano} between 0 and ${t.amountNano} and ${t.worthNanoUsd} >= 0`,
    ),
    check("refunds_origin", sql`${t.origin} in ('seller', 'stripe', 'dispute')`),
    check(
      "refunds_shortfall",
      sql`${t.shortfallNanoUsd} between 0 and ${t.worthNanoUsd} and (${t.origin} <> 'seller' or ${t.shortfallNanoUsd} = 0)`,
    ),
    check("refunds_status", sql`${t.status} in ('pending', 'done', 'failed')`),
  ],
);

/** Payments that a customer disputes at its bank, as Stripe reported them last. What a lost one takes is in `refunds`. */
export const disputes = pgTable(
  "disputes",
  {
    id: id(),
    paymentId: bigint({ mode: "number" })
      .notNull()
      .references(() => payments.id),
    orderId: bigint({ mode: "number" })
      .notNull()
      .references(() => orders.id),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    sellerId: bigint({ mode: "number" }).notNull(),
    /** The dispute at Stripe. */
    externalId: text().notNull(),
    /** As in `payments`. */
    currency: text().notNull(),
    amountNano: nanoUsd().notNull(),
    /** Stripe's words: `fraudulent` and others; `needs_response`, `under_review`, `won`, `lost` and others. */
    reason: text().notNull(),
    status: text().notNull(),
    /** Until when the seller can answer in Stripe's dashboard; null: it cannot. */
    dueAt: instant(),
    /** When Stripe was asked. An answer to an earlier question changes nothing. */
    askedAt: instant().notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("disputes_external").on(t.sellerId, t.externalId),
    index("disputes_payment").on(t.paymentId),
    index("disputes_order").on(t.orderId),
    check("disputes_amount", sql`${t.amountNano} >= 0`),
  ],
);

/** Of `disputes`, in SQL: Stripe waits for the seller's answer. */
export const WAITS_FOR_SELLER = "(disputes.due_at is not null and disputes.status like '%needs_response')";

/** How far Stripe's list of events was read for each seller, in case webhooks are lost. */
export const stripeReads = pgTable(
  "stripe_reads",
  {
    sellerId: bigint({ mode: "number" }).primaryKey(),
    /** Events from before this are known. Stripe keeps them for 30 days. */
    readUntil: instant().notNull().default(sql`clock_timestamp() - interval '30 days'`),
    dueAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [index("stripe_reads_due").on(t.dueAt)],
);
