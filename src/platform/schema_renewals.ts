import { sql } from "drizzle-orm";
import { bigint, boolean, check, index, integer, pgTable, primaryKey, text, uniqueIndex } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { id, instant, nanoUsd } from "./schema_columns.ts";
import { packages } from "./schema_ledger.ts";
import { orders } from "./schema_offerings.ts";

/** Cards on file, what is charged to them, renewals of packages, and automatic top-ups. */

/** An account's card at its seller's Stripe account. The number is at Stripe; here is what a person recognises it by. */
export const cards = pgTable(
  "cards",
  {
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    sellerId: bigint({ mode: "number" }).notNull(),
    /** Stripe's customer. It stays when the card is removed, so that all cards of the account belong to one. */
    customerId: text().notNull(),
    /** Stripe's payment method; null: no card is saved. */
    paymentMethodId: text(),
    brand: text(),
    lastFour: text(),
    expiresMonth: integer(),
    expiresYear: integer(),
    /** Cards that were removed here and that Stripe is yet to forget. */
    toDetach: text().array().notNull().default(sql`'{}'`),
    /** When Stripe is next told to forget them. */
    tryAt: instant().notNull().default(sql`clock_timestamp()`),
    savedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.accountId, t.sellerId] }),
    index("cards_to_detach").on(t.tryAt).where(sql`${t.toDetach} <> '{}'`),
    check(
      "cards_shown",
      sql`(${t.paymentMethodId} is null) = (${t.lastFour} is null) and (${t.paymentMethodId} is null) = (${t.brand} is null)`,
    ),
    check("cards_expiry", sql`${t.expiresMonth} between 1 and 12 and ${t.expiresYear} between 2000 and 9999`),
  ],
);

/** Pages of Stripe on which a card can be saved. Open ones are asked after, in case a webhook is lost. */
export const cardSetups = pgTable(
  "card_setups",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    sellerId: bigint({ mode: "number" }).notNull(),
    /** Sent to Stripe as the idempotency key. */
    requestKey: text().notNull(),
    /** null: Stripe has not answered yet. */
    sessionId: text(),
    status: text({ enum: ["open", "closed"] })
      .notNull()
      .default("open"),
    askAt: instant().notNull().default(sql`clock_timestamp() + interval '1 minute'`),
    expiresAt: instant().notNull().default(sql`clock_timestamp() + interval '2 hours'`),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("card_setups_session").on(t.sellerId, t.sessionId),
    index("card_setups_account").on(t.accountId),
    index("card_setups_ask").on(t.askAt).where(sql`${t.status} = 'open'`),
    check("card_setups_status", sql`${t.status} in ('open', 'closed')`),
  ],
);

/** Why a renewal, or a charge to a card, did not work. */
export const CHARGE_PROBLEMS = [
  "no_card",
  "card_refused",
  "card_expired",
  "needs_person",
  "stripe",
  "not_on_sale",
  "unpayable",
  "price_changed",
  "seller_suspended",
  "account_suspended",
  "balance_low",
  "seller_balance",
  "too_late",
  "withdrawn",
] as const;

/**
 * An order that is charged to the card on file, without the person. `due`: at `try_at`; `charging`: Stripe is being asked; `person`: the
 * person pays on the order's page, and nothing is charged automatically any more.
 */
export const cardCharges = pgTable(
  "card_charges",
  {
    orderId: bigint({ mode: "number" })
      .primaryKey()
      .references(() => orders.id, { onDelete: "cascade" }),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    sellerId: bigint({ mode: "number" }).notNull(),
    purpose: text({ enum: ["renewal", "top_up"] }).notNull(),
    status: text({ enum: ["due", "charging", "paid", "person", "failed"] })
      .notNull()
      .default("due"),
    /** Part of Stripe's idempotency key when the payment is made there. */
    requestKey: text().notNull().default(sql`gen_random_uuid()::text`),
    /** The one payment at Stripe: it can succeed once, however often it is tried. null: not made yet. */
    intentId: text(),
    /** Tries that have begun, and how many there may be. */
    tries: integer().notNull().default(0),
    triesMax: integer().notNull(),
    retrySeconds: integer().notNull(),
    tryAt: instant().notNull().default(sql`clock_timestamp()`),
    /** Nothing is charged after this; null: no limit. */
    until: instant(),
    problem: text({ enum: CHARGE_PROBLEMS }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("card_charges_intent").on(t.sellerId, t.intentId),
    index("card_charges_try").on(t.tryAt).where(sql`${t.status} in ('due', 'charging')`),
    index("card_charges_account").on(t.accountId, t.createdAt),
    check("card_charges_purpose", sql`${t.purpose} in ('renewal', 'top_up')`),
    check("card_charges_status", sql`${t.status} in ('due', 'charging', 'paid', 'person', 'failed')`),
    check("card_charges_tries", sql`${t.tries} between 0 and ${t.triesMax} and ${t.retrySeconds} >= 0`),
  ],
);

/** The renewal of one package: `package_id` makes it one. The package that it becomes has a renewal of its own. */
export const renewals = pgTable(
  "renewals",
  {
    id: id(),
    packageId: bigint({ mode: "number" })
      .notNull()
      .references(() => packages.id),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    source: text({ enum: ["card", "balance"] }).notNull(),
    /** `ordered`: an order was placed, and is charged to the card. */
    status: text({ enum: ["on", "ordered", "done", "failed", "cancelled"] })
      .notNull()
      .default("on"),
    /** Whether the package that it becomes renews too. */
    continues: boolean().notNull().default(true),
    /** The highest price that the customer was told; null: none yet. */
    toldNano: nanoUsd(),
    toldCurrency: text().notNull().default("usd"),
    toldAt: instant(),
    tries: integer().notNull().default(0),
    /** When it is looked at next. */
    nextAt: instant().notNull().default(sql`ledger_now()`),
    orderId: bigint({ mode: "number" }).references(() => orders.id, { onDelete: "set null" }),
    /** What was paid, and the package that it paid for. */
    paidNanoUsd: nanoUsd(),
    newPackageId: bigint({ mode: "number" }),
    problem: text({ enum: CHARGE_PROBLEMS }),
    endedAt: instant(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("renewals_package").on(t.packageId),
    uniqueIndex("renewals_order").on(t.orderId),
    uniqueIndex("renewals_new_package").on(t.newPackageId),
    index("renewals_account").on(t.accountId, t.id),
    index("renewals_next").on(t.nextAt).where(sql`${t.status} = 'on'`),
    check("renewals_source", sql`${t.source} in ('card', 'balance')`),
    check("renewals_status", sql`${t.status} in ('on', 'ordered', 'done', 'failed', 'cancelled')`),
    check(
      "renewals_done",
      sql`(${t.status} = 'done') = (${t.newPackageId} is not null and ${t.paidNanoUsd} is not null)`,
    ),
  ],
);

/** When an account's balance falls below an amount, its card is charged. `order_id`: the one that is under way; null: none is. */
export const autoTopUps = pgTable(
  "auto_top_ups",
  {
    accountId: bigint({ mode: "number" })
      .primaryKey()
      .references(() => accounts.id),
    belowNanoUsd: nanoUsd().notNull(),
    amountNanoUsd: nanoUsd().notNull(),
    /** Of all automatic top-ups of a calendar month together. */
    monthMaxNanoUsd: nanoUsd().notNull(),
    /** What one cost with tax when the customer set them up, in billionths of the currency. */
    toldNano: nanoUsd().notNull(),
    toldCurrency: text().notNull().default("usd"),
    status: text({ enum: ["on", "paused"] })
      .notNull()
      .default("on"),
    orderId: bigint({ mode: "number" }).references(() => orders.id, { onDelete: "set null" }),
    /** Why it is paused. */
    problem: text({ enum: CHARGE_PROBLEMS }),
    /** When its balance is looked at again, if it was low and nothing could be done. */
    nextAt: instant().notNull().default(sql`ledger_now()`),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("auto_top_ups_order").on(t.orderId),
    check("auto_top_ups_status", sql`${t.status} in ('on', 'paused')`),
    check(
      "auto_top_ups_amounts",
      sql`${t.belowNanoUsd} > 0 and ${t.amountNanoUsd} > 0 and ${t.monthMaxNanoUsd} >= ${t.amountNanoUsd}`,
    ),
  ],
);
