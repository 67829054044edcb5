import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  date,
  index,
  integer,
  jsonb,
  numeric,
  pgTable,
  primaryKey,
  smallint,
  text,
  uuid,
} from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { areLimits, bytea, id, instant, limits, nanoUsd, requestBounds, sum, writtenIn } from "./schema_columns.ts";
import { offerings } from "./schema_offerings.ts";

/** Units and money. Only the ledger's SQL functions write these tables; the CHECKs enforce the limits a second time. */

/** One row per account: its balance. Available = balance − held (the reserved amount). */
export const balances = pgTable(
  "balances",
  {
    accountId: bigint({ mode: "number" })
      .primaryKey()
      .references(() => accounts.id),
    balanceNanoUsd: nanoUsd().notNull().default(sql`0`),
    heldNanoUsd: nanoUsd().notNull().default(sql`0`),
    paygEnabled: boolean().notNull().default(false),
    tokensUsed: bigint({ mode: "number" }).notNull().default(0),
  },
  (t) => [
    check("balances_cover_holds", sql`${t.heldNanoUsd} >= 0 and ${t.balanceNanoUsd} >= ${t.heldNanoUsd}`),
    // Nine million dollars: times 1,000 it still fits a bigint, which the ledger's pico-USD arithmetic needs.
    check("balances_range", sql`${t.balanceNanoUsd} <= 9000000000000000`),
  ],
);

/** Append-only. An account's balance is the sum of its entries. */
export const balanceEntries = pgTable(
  "balance_entries",
  {
    id: id(),
    accountId: bigint({ mode: "number" }).notNull(),
    amountNanoUsd: nanoUsd().notNull(),
    kind: text({
      enum: ["top_up", "charge", "wholesale", "package", "transfer", "correction", "refund", "earning"],
    }).notNull(),
    /** The reason: a request, a package, or the other account of a transfer. */
    requestId: uuid(),
    packageId: bigint({ mode: "number" }),
    counterpartId: bigint({ mode: "number" }),
    reason: text(),
    actorId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    writtenIn: writtenIn(),
  },
  (t) => [
    index("balance_entries_account").on(t.accountId, t.id),
    index("balance_entries_written").on(t.writtenIn),
    index("balance_entries_movements").on(t.accountId, t.createdAt).where(sql`${t.kind} <> 'charge'`),
    index("balance_entries_earnings").on(t.accountId, t.amountNanoUsd).where(sql`${t.kind} = 'earning'`),
    check(
      "balance_entries_kind",
      sql`${t.kind} in ('top_up', 'charge', 'wholesale', 'package', 'transfer', 'correction', 'refund', 'earning')`,
    ),
  ],
);

/**
 * An account's packages, one after another. The active one is that whose [starts_at, ends_at) contains now. Ending a package
 * early sets `ends_at` to that moment and moves the queued ones up.
 */
export const packages = pgTable(
  "packages",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    offeringId: bigint({ mode: "number" }).references(() => offerings.id),
    name: text().notNull(),
    startsAt: instant().notNull(),
    endsAt: instant().notNull(),
    /** The date of `starts_at` in the package's zone: day 1 of its calendar. */
    firstDay: date({ mode: "string" }).notNull(),
    days: integer().notNull(),
    timeZone: text().notNull(),
    dailyLimit: integer().notNull(),
    totalLimit: integer().notNull(),
    carryover: boolean().notNull(),
    tokenLimit: bigint({ mode: "number" }),
    limits: limits(),
    requestBounds: requestBounds(),
    modelIds: text().array(),
    /** Used or drawn: what is drawn, and by whom, is in `escrows`. */
    unitsTaken: integer().notNull().default(0),
    /** The same of the token allowance. Without one no rule reads it, and newer tokens are counted in `escrows.used_tokens`. */
    tokensTaken: bigint({ mode: "number" }).notNull().default(0),
    endedEarly: text({ enum: ["replaced", "ended"] }),
    paidByAccountId: bigint({ mode: "number" }),
    /** What a unit is worth: what the account paid its seller, and the operator's share of it, ÷ `total_limit`, rounded down. Never changed. */
    unitNanoUsd: nanoUsd().notNull().default(sql`0`),
    unitCostNanoUsd: nanoUsd().notNull().default(sql`0`),
    /** The allotment that gave a piece instead of a payment. */
    allotmentId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("packages_account").on(t.accountId, t.endsAt),
    index("packages_ends").on(t.endsAt, t.id),
    index("packages_offering").on(t.offeringId).where(sql`${t.offeringId} is not null`),
    index("packages_allotment").on(t.allotmentId).where(sql`${t.allotmentId} is not null`),
    check("packages_span", sql`${t.endsAt} >= ${t.startsAt}`),
    check("packages_limits", areLimits(t.limits)),
    check("packages_request_bounds", areLimits(t.requestBounds)),
    check("packages_days", sql`${t.days} between 1 and 30`),
    check("packages_unit_worth", sql`${t.unitNanoUsd} >= 0 and ${t.unitCostNanoUsd} >= 0`),
    check("packages_units", sql`${t.unitsTaken} between 0 and ${t.totalLimit}`),
    check(
      "packages_tokens",
      sql`${t.tokensTaken} >= 0 and (${t.tokenLimit} is null or ${t.tokensTaken} <= ${t.tokenLimit})`,
    ),
  ],
);

/** Units by calendar day of the package. `units_max`: the most that the day may have. */
export const packageDays = pgTable(
  "package_days",
  {
    packageId: bigint({ mode: "number" }).notNull(),
    day: date({ mode: "string" }).notNull(),
    unitsTaken: integer().notNull().default(0),
    unitsMax: integer().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.packageId, t.day] }),
    check("package_days_units", sql`${t.unitsTaken} between 0 and ${t.unitsMax}`),
  ],
);

/**
 * What each replica has drawn of an account, and not yet settled or given back: units of a package's day, nano-USD of the balance, and
 * what counts against a key's daily limits. It all counts as held. No foreign keys, for speed: checked under the account's lock.
 */
export const escrows = pgTable(
  "escrows",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    /** The process that has drawn it. */
    leaseId: uuid().notNull(),
    /** 0: the balance, or a key's daily limits. */
    packageId: bigint({ mode: "number" }).notNull(),
    /** A key whose daily limits count this; otherwise 0. */
    keyId: bigint({ mode: "number" }).notNull(),
    /** The day of the package or of the key's limits; -infinity: the balance. */
    day: date({ mode: "string" }).notNull(),
    /** The number of the replica's last draw that ran. An earlier one that arrives later does nothing. */
    drawNumber: bigint({ mode: "number" }).notNull(),
    units: integer().notNull(),
    tokens: bigint({ mode: "number" }).notNull(),
    nanoUsd: nanoUsd().notNull(),
    /** The part that no request used when the replica drew last. */
    idleUnits: integer().notNull(),
    idleNanoUsd: nanoUsd().notNull(),
    /** What settled requests used of a package without a token allowance, until the row is deleted: so a settlement writes one row less. */
    usedTokens: bigint({ mode: "number" }).notNull().default(0),
    /** The epochs of the account and of its tenant that the last draw read. */
    epoch: bigint({ mode: "number" }).notNull(),
    tenantEpoch: bigint({ mode: "number" }).notNull(),
    /** Another replica needs what is idle here. */
    recalled: boolean().notNull().default(false),
  },
  (t) => [
    primaryKey({ columns: [t.accountId, t.leaseId, t.packageId, t.keyId, t.day] }),
    // With the account: whichever index the planner takes without statistics, it finds a row without reading the rest of the lease.
    index("escrows_lease").on(t.leaseId, t.accountId),
    check("escrows_amounts", sql`${t.units} >= 0 and ${t.tokens} >= 0 and ${t.nanoUsd} >= 0`),
  ],
);

/** A process may draw while its lease runs. When the lease has ended, its escrows are given back, and it needs a new lease. */
export const leases = pgTable("leases", {
  id: uuid().primaryKey(),
  endsAt: instant().notNull(),
  ended: boolean().notNull().default(false),
});

/** Raised by every change that may end or change what an account (and, for a reseller, its customers) may use. */
export const epochs = pgTable("epochs", {
  accountId: bigint({ mode: "number" }).primaryKey(),
  epoch: bigint({ mode: "number" }).notNull(),
});

/**
 * Every finished hold: the receipt of a request. `outcome = 'settled'` makes it a usage record. Partitioned by month of
 * the UUIDv7 request id (the migration adds PARTITION BY).
 */
export const receipts = pgTable(
  "receipts",
  {
    requestId: uuid().primaryKey(),
    accountId: bigint({ mode: "number" }).notNull(),
    keyId: bigint({ mode: "number" }).notNull(),
    modelId: text().notNull(),
    host: text().notNull(),
    mode: text({ enum: ["package", "payg"] }).notNull(),
    packageId: bigint({ mode: "number" }),
    day: date({ mode: "string" }),
    /** The day that it counts in for the key's daily limits; null: the key has none. */
    keyDay: date({ mode: "string" }),
    outcome: text({ enum: ["settled", "released"] }).notNull(),
    /** One of END_REASONS in `ledger/ledger_store.ts`, `late` or `overrun_refused`. */
    reason: text().notNull(),
    units: smallint().notNull(),
    heldNanoUsd: nanoUsd().notNull(),
    chargedNanoUsd: nanoUsd().notNull(),
    /** Cost that could not be charged: the operator's loss. */
    shortfallNanoUsd: nanoUsd().notNull(),
    promptTokens: integer().notNull(),
    cachedTokens: integer().notNull(),
    completionTokens: integer().notNull(),
    /** Tokens counted against the package's token allowance or the balance's total. */
    chargedTokens: bigint({ mode: "number" }).notNull(),
    estimated: boolean().notNull(),
    /** The prices of the reservation, which the charge uses; null: the model had none. */
    priceVersionId: bigint({ mode: "number" }),
    /** Parts of the tokens that may have prices of their own, and an image's price key: FurtherCounts of `ledger/price.ts`. null: none. */
    furtherCounts: jsonb().$type<unknown>(),
    /** Other counts of the provider: see `ledger/reported_usage.ts`. null: none. */
    reportedUsage: jsonb().$type<unknown>(),
    /** The routes that were tried, for admins: see `ledger/tried_routes.ts`. null: the first one answered. */
    tried: jsonb().$type<unknown>(),
    /** The reseller's markup at the reservation, in basis points, and the operator's price of what is charged; null: no markup. */
    markupBasisPoints: integer(),
    costNanoUsd: nanoUsd(),
    /** Which route answered, how soon, and what its provider charges: see `ledger/answered_by.ts`. null: not known. */
    routeId: bigint({ mode: "number" }),
    firstMs: integer(),
    providerCostNanoUsd: nanoUsd(),
    createdAt: instant().notNull(),
    finishedAt: instant().notNull(),
    /** A late settlement sets it again, so that the closed sums are updated. */
    writtenIn: writtenIn(),
  },
  (t) => [
    index("receipts_written").on(t.writtenIn),
    index("receipts_usage").on(t.accountId, t.requestId).where(sql`${t.outcome} = 'settled'`),
    index("receipts_losses").on(t.requestId).where(sql`${t.shortfallNanoUsd} > 0`),
    index("receipts_released").on(t.accountId, t.requestId).where(sql`${t.outcome} = 'released'`),
    index("receipts_all_released").on(t.requestId).where(sql`${t.outcome} = 'released'`),
    check(
      "receipts_released_is_free",
      sql`${t.outcome} = 'settled' or (${t.units} = 0 and ${t.chargedNanoUsd} = 0 and ${t.chargedTokens} = 0)`,
    ),
    check(
      "receipts_markup",
      sql`(${t.markupBasisPoints} is null) = (${t.costNanoUsd} is null) and ${t.markupBasisPoints} > 0`,
    ),
  ],
);

/**
 * The daily use of a key with daily limits. What is used and reserved is within the highest limits of the day, except for what answers cost
 * beyond their reservation, which respected the limit.
 */
export const keyDays = pgTable(
  "key_days",
  {
    keyId: bigint({ mode: "number" }).notNull(),
    day: date({ mode: "string" }).notNull(),
    unitsTaken: integer().notNull().default(0),
    takenNanoUsd: nanoUsd().notNull().default(sql`0`),
    /** What the key used that day before it had limits: nothing was counted then. */
    unitsBefore: integer().notNull().default(0),
    nanoUsdBefore: nanoUsd().notNull().default(sql`0`),
    /** What answers cost beyond what was reserved for them. */
    overrunNanoUsd: nanoUsd().notNull().default(sql`0`),
    /** The highest limits under which something was reserved that day since they were last changed; the greatest number: none. */
    unitsMax: integer().notNull().default(2_147_483_647),
    spendMaxNanoUsd: nanoUsd().notNull().default(sql`9223372036854775807`),
  },
  (t) => [
    primaryKey({ columns: [t.keyId, t.day] }),
    check("key_days_units_max", sql`${t.unitsTaken} + ${t.unitsBefore} <= ${t.unitsMax}`),
    check(
      "key_days_spend_max",
      sql`${t.takenNanoUsd} + ${t.nanoUsdBefore} - ${t.overrunNanoUsd} <= ${t.spendMaxNanoUsd}`,
    ),
    check("key_days_counts", sql`${t.unitsTaken} >= 0 and ${t.takenNanoUsd} >= 0 and ${t.overrunNanoUsd} >= 0`),
  ],
);

// Seals of months of receipts, and what the books keep of months whose receipts were dropped: `books/seals_store.ts`.

const month = () => date({ mode: "string" }).notNull();
const count = () => bigint({ mode: "number" }).notNull();

/** A month of UTC that is closed: its receipts cannot change any more. `seal` names the one before, in `previous`. */
export const receiptSeals = pgTable("receipt_seals", {
  month: month().primaryKey(),
  closedAt: instant().notNull().default(sql`clock_timestamp()`),
  sealedAt: instant(),
  receipts: bigint({ mode: "number" }),
  /** SHA-256 of the hashes of its blocks, of its totals, and of both with the seal before; null: not sealed yet. */
  blocksDigest: bytea(),
  totalsDigest: bytea(),
  previous: bytea(),
  seal: bytea(),
  exportedAt: instant(),
  droppedAt: instant(),
  /** When it was last compared with its seal, and what differed. */
  comparedAt: instant(),
  problems: text().array().notNull().default([]),
  /** The last account whose usage was counted again since everything is folded anew; -1: none. null: all are in the sums. */
  recountedTo: bigint({ mode: "number" }),
});

/** The receipts of a month in pieces of a few thousand, in the order of their ids. */
export const receiptBlocks = pgTable(
  "receipt_blocks",
  {
    month: month(),
    number: integer().notNull(),
    lastId: uuid().notNull(),
    receipts: integer().notNull(),
    /** SHA-256 of its receipts as `receipt_line` writes them. */
    digest: bytea().notNull(),
  },
  (t) => [primaryKey({ columns: [t.month, t.number] })],
);

/** Totals of a sealed month, by account and billing mode. `receipts`: with those of released requests. */
export const receiptTotals = pgTable(
  "receipt_totals",
  {
    month: month(),
    accountId: bigint({ mode: "number" }).notNull(),
    mode: text().notNull(),
    receipts: count(),
    settled: count(),
    units: count(),
    promptTokens: count(),
    cachedTokens: count(),
    completionTokens: count(),
    chargedTokens: numeric().notNull(),
    chargedNanoUsd: numeric().notNull(),
    shortfallNanoUsd: numeric().notNull(),
    costNanoUsd: numeric().notNull(),
    providerCostNanoUsd: numeric().notNull(),
  },
  (t) => [primaryKey({ columns: [t.month, t.accountId, t.mode] })],
);

/** What a month's receipts add to `book_sums`. */
export const sealedSums = pgTable(
  "sealed_sums",
  {
    month: month(),
    kind: text().notNull(),
    id: bigint({ mode: "number" }).notNull(),
    day: date({ mode: "string" }).notNull(),
    rows: count(),
    units: sum(),
    tokens: sum(),
    nanoUsd: sum(),
  },
  (t) => [
    primaryKey({ columns: [t.month, t.kind, t.id, t.day] }),
    index("sealed_sums_counter").on(t.kind, t.id, t.day),
  ],
);

/**
 * What they add to the rollups: the quarters of `usage_sums` of each key, from which the other rows follow. `ends`: infinity, or a row
 * of `usage_crossings`.
 */
export const sealedUsage = pgTable(
  "sealed_usage",
  {
    month: month(),
    accountId: bigint({ mode: "number" }).notNull(),
    keyId: bigint({ mode: "number" }).notNull(),
    begins: instant().notNull(),
    ends: instant().notNull(),
    kindId: integer().notNull(),
    requests: count(),
    charges: count(),
    promptTokens: count(),
    cachedTokens: count(),
    completionTokens: count(),
    chargedNanoUsd: numeric().notNull(),
    earnedNanoUsd: numeric().notNull(),
    unitsNanoUsd: numeric().notNull(),
    unitsCostNanoUsd: numeric().notNull(),
    providerCostNanoUsd: numeric().notNull(),
    costUnknown: count(),
    firstMarks: numeric().notNull(),
    wholeMarks: numeric().notNull(),
  },
  (t) => [primaryKey({ columns: [t.month, t.accountId, t.keyId, t.begins, t.ends, t.kindId] })],
);
