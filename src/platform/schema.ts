import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  customType,
  date,
  index,
  integer,
  jsonb,
  numeric,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";

/**
 * Every table. Money is nano-USD, prices are micro-USD per million tokens (which is pico-USD a token) or micro-USD
 * an image. Only the ledger's SQL functions write `balances`, `balance_entries`, `packages`, `package_days`, `holds`
 * and `receipts`; the CHECKs enforce the limits a second time.
 */

const bytea = customType<{ data: Buffer }>({ dataType: () => "bytea" });
const id = () => bigint({ mode: "number" }).primaryKey().generatedAlwaysAsIdentity();
const instant = () => timestamp({ withTimezone: true, mode: "string" });
const nanoUsd = () => bigint({ mode: "bigint" });
const xid8 = customType<{ data: string }>({ dataType: () => "xid8" });
const sum = () => numeric().notNull().default("0");
/** The transaction that last wrote the row. It shows which rows are new since a snapshot, independent of clocks. */
const writtenIn = () => xid8().notNull().default(sql`pg_current_xact_id()`);

/** Customers, resellers and admins. A customer may belong to a reseller, its tenant; this never changes. */
export const accounts = pgTable(
  "accounts",
  {
    id: id(),
    role: text({ enum: ["customer", "reseller", "admin"] }).notNull(),
    resellerId: bigint({ mode: "number" }),
    email: text().notNull(),
    name: text().notNull(),
    status: text({ enum: ["active", "suspended"] })
      .notNull()
      .default("active"),
    /** Suspended by an admin or the command line: a reseller cannot undo it. */
    suspendedByOperator: boolean().notNull().default(false),
    /** An admin's permission for a reseller to switch pay-as-you-go of its customers. */
    maySwitchPayg: boolean().notNull().default(false),
    passwordHash: text(),
    /** The second factor's secret, encrypted. Valid once `totpEnabledAt` is set. */
    totpCiphertext: bytea(),
    totpEnabledAt: instant(),
    /** The last 30-second step whose code was accepted: a code works once. */
    totpLastStep: bigint({ mode: "number" }).notNull().default(0),
    /** When the Home page warns: percent of the package left, available balance, days before the package ends. */
    noticeUnitsPercent: integer().notNull().default(20),
    noticeBalanceNanoUsd: nanoUsd().notNull().default(sql`1000000000`),
    noticeDays: integer().notNull().default(3),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    check(
      "accounts_notices",
      sql`${t.noticeUnitsPercent} between 0 and 100 and ${t.noticeBalanceNanoUsd} >= 0 and ${t.noticeDays} between 0 and 30`,
    ),
    uniqueIndex("accounts_email_in_tenant").on(sql`coalesce(${t.resellerId}, 0)`, sql`lower(${t.email})`),
    index("accounts_reseller").on(t.resellerId),
    index("accounts_email_begins").on(sql`lower(${t.email}) text_pattern_ops`),
    index("accounts_name_begins").on(sql`lower(${t.name}) text_pattern_ops`),
    check("accounts_role", sql`${t.role} in ('customer', 'reseller', 'admin')`),
    check("accounts_status", sql`${t.status} in ('active', 'suspended')`),
    check("accounts_only_customers_belong", sql`${t.resellerId} is null or ${t.role} = 'customer'`),
    check("accounts_only_resellers_switch_payg", sql`not ${t.maySwitchPayg} or ${t.role} = 'reseller'`),
  ],
);

/** Recovery codes for a lost second factor, as digests. A code is deleted when used. */
export const recoveryCodes = pgTable(
  "recovery_codes",
  {
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    digest: bytea().notNull(),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.digest] })],
);

/** Links to set a password: an invitation, or a reset by an admin or reseller. At most one per account. */
export const links = pgTable(
  "links",
  {
    digest: bytea().primaryKey(),
    kind: text({ enum: ["invitation", "reset"] }).notNull(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .unique()
      .references(() => accounts.id),
    createdBy: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    expiresAt: instant().notNull(),
  },
  (t) => [check("links_kind", sql`${t.kind} in ('invitation', 'reset')`)],
);

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
    kind: text({ enum: ["top_up", "charge", "wholesale", "transfer", "correction"] }).notNull(),
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
    check("balance_entries_kind", sql`${t.kind} in ('top_up', 'charge', 'wholesale', 'transfer', 'correction')`),
  ],
);

/**
 * Offerings: a daily package (1 day, 100–2000 requests) or a custom one (1–30 days). Only `enabled` (for sale) ever changes.
 * Source: PAY-8.
 */
export const offerings = pgTable(
  "offerings",
  {
    id: id(),
    name: text().notNull().unique(),
    kind: text({ enum: ["daily", "custom"] }).notNull(),
    days: integer().notNull(),
    dailyLimit: integer().notNull(),
    totalLimit: integer().notNull(),
    carryover: boolean().notNull().default(false),
    tokenLimit: bigint({ mode: "number" }),
    modelIds: text().array(),
    timeZone: text().notNull(),
    wholesaleNanoUsd: nanoUsd().notNull(),
    enabled: boolean().notNull().default(true),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    check(
      "offerings_bounds",
      sql`(${t.kind} = 'daily' and ${t.days} = 1 and ${t.dailyLimit} between 100 and 2000)
        or (${t.kind} = 'custom' and ${t.days} between 1 and 30 and ${t.dailyLimit} between 1 and 1000000)`,
    ),
    check("offerings_total", sql`${t.totalLimit} between 1 and 30000000`),
    check("offerings_tokens", sql`${t.tokenLimit} > 0`),
    check("offerings_wholesale", sql`${t.wholesaleNanoUsd} >= 0`),
  ],
);

/** Pieces of an offering that an admin granted a reseller to assign without paying. */
export const allotments = pgTable(
  "allotments",
  {
    id: id(),
    resellerId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    offeringId: bigint({ mode: "number" })
      .notNull()
      .references(() => offerings.id),
    granted: integer().notNull(),
    used: integer().notNull().default(0),
    reason: text(),
    actorId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("allotments_reseller").on(t.resellerId, t.offeringId),
    check("allotments_pieces", sql`${t.granted} between 0 and 100000 and ${t.used} between 0 and ${t.granted}`),
  ],
);

/** Orders of packages and top-ups. The account's reseller, or an admin if it has none, fulfils or declines them. */
export const orders = pgTable(
  "orders",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    kind: text({ enum: ["package", "top_up"] }).notNull(),
    offeringId: bigint({ mode: "number" }).references(() => offerings.id),
    amountNanoUsd: nanoUsd(),
    note: text(),
    status: text({ enum: ["open", "fulfilled", "declined", "withdrawn"] })
      .notNull()
      .default("open"),
    /** The message of the person who decided. */
    answer: text(),
    decidedBy: bigint({ mode: "number" }),
    decidedAt: instant(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("orders_account").on(t.accountId, t.id),
    index("orders_open").on(t.id).where(sql`${t.status} = 'open'`),
    index("orders_decided").on(t.decidedAt).where(sql`${t.status} <> 'open'`),
    check(
      "orders_kind",
      sql`(${t.kind} = 'package' and ${t.offeringId} is not null and ${t.amountNanoUsd} is null)
      or (${t.kind} = 'top_up' and ${t.offeringId} is null and ${t.amountNanoUsd} > 0)`,
    ),
    check("orders_status", sql`${t.status} in ('open', 'fulfilled', 'declined', 'withdrawn')`),
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
    modelIds: text().array(),
    unitsUsed: integer().notNull().default(0),
    unitsHeld: integer().notNull().default(0),
    tokensUsed: bigint({ mode: "number" }).notNull().default(0),
    tokensHeld: bigint({ mode: "number" }).notNull().default(0),
    endedEarly: text({ enum: ["replaced", "ended"] }),
    /** Units that were left when it ended early. */
    unitsDropped: integer(),
    paidByAccountId: bigint({ mode: "number" }),
    /** The allotment that gave a piece instead of a payment. */
    allotmentId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("packages_account").on(t.accountId, t.endsAt),
    index("packages_allotment").on(t.allotmentId).where(sql`${t.allotmentId} is not null`),
    check("packages_span", sql`${t.endsAt} >= ${t.startsAt}`),
    check("packages_days", sql`${t.days} between 1 and 30`),
    check(
      "packages_units",
      sql`${t.unitsUsed} >= 0 and ${t.unitsHeld} >= 0 and ${t.unitsUsed} + ${t.unitsHeld} <= ${t.totalLimit}`,
    ),
    check(
      "packages_tokens",
      sql`${t.tokensUsed} >= 0 and ${t.tokensHeld} >= 0 and (${t.tokenLimit} is null or ${t.tokensUsed} + ${t.tokensHeld} <= ${t.tokenLimit})`,
    ),
  ],
);

/** Units by calendar day of the package. `units_max`: the most that the day may have. */
export const packageDays = pgTable(
  "package_days",
  {
    packageId: bigint({ mode: "number" }).notNull(),
    day: date({ mode: "string" }).notNull(),
    unitsUsed: integer().notNull().default(0),
    unitsHeld: integer().notNull().default(0),
    unitsMax: integer().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.packageId, t.day] }),
    check(
      "package_days_units",
      sql`${t.unitsUsed} >= 0 and ${t.unitsHeld} >= 0 and ${t.unitsUsed} + ${t.unitsHeld} <= ${t.unitsMax}`,
    ),
  ],
);

/** Open holds: requests that are reserved, and not yet settled or released. No foreign keys, for speed: checked under the lock. */
export const holds = pgTable(
  "holds",
  {
    requestId: uuid().primaryKey(),
    accountId: bigint({ mode: "number" }).notNull(),
    keyId: bigint({ mode: "number" }).notNull(),
    modelId: text().notNull(),
    host: text().notNull(),
    mode: text({ enum: ["package", "payg"] }).notNull(),
    packageId: bigint({ mode: "number" }),
    day: date({ mode: "string" }),
    heldNanoUsd: nanoUsd().notNull(),
    heldTokens: bigint({ mode: "number" }).notNull(),
    /** The output cap that the hold pays for; null in package mode. */
    capTokens: integer(),
    /** The day that it counts in for the key's daily limits; null: the key has none. */
    keyDay: date({ mode: "string" }),
    leaseEndsAt: instant().notNull(),
    createdAt: instant().notNull(),
    /** The prices of the reservation; null: the model had none. */
    priceVersionId: bigint({ mode: "number" }),
  },
  (t) => [
    index("holds_lease").on(t.leaseEndsAt),
    check("holds_amounts", sql`${t.heldNanoUsd} >= 0 and ${t.heldTokens} >= 0`),
    check(
      "holds_mode",
      sql`(${t.mode} = 'package') = (${t.packageId} is not null) and (${t.packageId} is null) = (${t.day} is null)`,
    ),
  ],
);

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
    /** As in `holds`. */
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
    /** As in `holds`. The charge uses these prices. */
    priceVersionId: bigint({ mode: "number" }),
    /** Other counts of the provider: see `ledger/reported_usage.ts`. null: none. */
    reportedUsage: jsonb().$type<unknown>(),
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
  ],
);

/** API keys: a SHA-256 digest, and the parts that are shown to recognize a key. */
export const keys = pgTable(
  "keys",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    name: text().notNull(),
    digest: bytea().notNull().unique(),
    prefix: text().notNull(),
    suffix: text().notNull(),
    mode: text({ enum: ["package", "payg"] }).notNull(),
    modelIds: text().array(),
    hosts: text().array(),
    status: text({ enum: ["enabled", "disabled", "revoked"] })
      .notNull()
      .default("enabled"),
    expiresAt: instant(),
    /** Daily limits of the key, in its time zone: requests, and spending from the balance. null: no limit. */
    dailyUnitsMax: integer(),
    dailySpendMaxNanoUsd: nanoUsd(),
    timeZone: text().notNull().default("UTC"),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    revokedAt: instant(),
  },
  (t) => [
    index("keys_revoked").on(t.revokedAt).where(sql`${t.status} = 'revoked'`),
    check(
      "keys_ceilings",
      sql`${t.dailyUnitsMax} between 1 and 30000000 and ${t.dailySpendMaxNanoUsd} between 1 and 9000000000000000`,
    ),
    index("keys_account").on(t.accountId, t.id),
    check("keys_mode", sql`${t.mode} in ('package', 'payg')`),
    check("keys_status", sql`${t.status} in ('enabled', 'disabled', 'revoked')`),
  ],
);

/**
 * The daily use of a key with daily limits. Spending has no upper CHECK: an overrun of the provider or a late settlement may
 * exceed the limit that the reservation respected.
 */
export const keyDays = pgTable(
  "key_days",
  {
    keyId: bigint({ mode: "number" }).notNull(),
    day: date({ mode: "string" }).notNull(),
    unitsUsed: integer().notNull().default(0),
    unitsHeld: integer().notNull().default(0),
    spentNanoUsd: nanoUsd().notNull().default(sql`0`),
    heldNanoUsd: nanoUsd().notNull().default(sql`0`),
  },
  (t) => [
    primaryKey({ columns: [t.keyId, t.day] }),
    check(
      "key_days_counts",
      sql`${t.unitsUsed} >= 0 and ${t.unitsHeld} >= 0 and ${t.spentNanoUsd} >= 0 and ${t.heldNanoUsd} >= 0`,
    ),
  ],
);

/** When and where a key was last used. Written every few seconds from memory; no decision depends on it. */
export const keyUses = pgTable("key_uses", {
  keyId: bigint({ mode: "number" }).primaryKey(),
  lastUsedAt: instant().notNull(),
  host: text().notNull(),
});

/** Refusals per minute. Written every few seconds from memory, so that a refusal costs no write. Kept for a week. */
export const refusalCounts = pgTable(
  "refusal_counts",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    keyId: bigint({ mode: "number" }).notNull(),
    code: text().notNull(),
    modelId: text().notNull(),
    minute: instant().notNull(),
    count: integer().notNull(),
    lastRequestId: uuid().notNull(),
    host: text().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.accountId, t.minute, t.keyId, t.code, t.modelId] }),
    index("refusal_counts_minute").on(t.minute),
  ],
);

/**
 * White-label domains of resellers, including removed ones. The service's own hosts are in the configuration. Several
 * resellers may claim a name; one has it. Source: DOM-3.
 */
export const hosts = pgTable(
  "hosts",
  {
    host: text().notNull(),
    resellerId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    status: text({ enum: ["pending", "verifying", "active", "failed", "suspended", "removed"] }).notNull(),
    /** The TXT record that proves the name when several claim it. */
    token: text().notNull().default(sql`replace(gen_random_uuid()::text, '-', '')`),
    /** When it last became active: later claims must prove the name. */
    activatedAt: instant(),
    checkedAt: instant(),
    nextCheckAt: instant(),
    /** Consecutive failed checks. */
    failures: integer().notNull().default(0),
    /** The last check's result: a DnsReport. */
    report: jsonb().$type<unknown>(),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    primaryKey({ columns: [t.host, t.resellerId] }),
    uniqueIndex("hosts_one_owner").on(t.host).where(sql`${t.status} = 'active'`),
    index("hosts_reseller").on(t.resellerId),
    index("hosts_next_check").on(t.nextCheckAt),
    check("hosts_status", sql`${t.status} in ('pending', 'verifying', 'active', 'failed', 'suspended', 'removed')`),
  ],
);

/** The brand of a reseller's hosts. Pictures are decoded and encoded again on upload. */
export const brands = pgTable("brands", {
  resellerId: bigint({ mode: "number" })
    .primaryKey()
    .references(() => accounts.id),
  name: text().notNull(),
  /** As chosen, #rrggbb; `css` is computed from it. */
  accent: text(),
  css: text().notNull().default(""),
  support: text(),
  logoLight: bytea(),
  logoDark: bytea(),
  icon: bytea(),
  /** Whether the icon was uploaded. Otherwise it is made from the logo. */
  iconOwn: boolean().notNull().default(false),
  /** A new value with every change: part of the URLs of css and pictures. */
  version: text().notNull(),
});

/** Sessions of the panel: a digest of a 32-byte token, bound to the host of the sign-in. */
export const sessions = pgTable(
  "sessions",
  {
    digest: bytea().primaryKey(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    host: text().notNull(),
    csrfToken: text().notNull(),
    /** User agent and IP address at sign-in, for the list of devices. */
    userAgent: text().notNull().default(""),
    address: text().notNull().default(""),
    /** The account whose panel an admin is viewing, read-only. */
    viewingAccountId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    seenAt: instant().notNull().default(sql`clock_timestamp()`),
    expiresAt: instant().notNull(),
  },
  (t) => [index("sessions_account").on(t.accountId)],
);

/** The models for sale. A model without prices is sold by package only. */
export const models = pgTable(
  "models",
  {
    id: text().primaryKey(),
    name: text().notNull(),
    ownedBy: text().notNull(),
    contextLength: integer(),
    status: text({ enum: ["active", "preview", "deprecated"] })
      .notNull()
      .default("active"),
    modality: text({ enum: ["text", "image", "multimodal"] })
      .notNull()
      .default("text"),
    architecture: jsonb().$type<Record<string, unknown>>(),
    enabled: boolean().notNull().default(true),
    inputMicroUsd: bigint({ mode: "number" }),
    cachedInputMicroUsd: bigint({ mode: "number" }),
    outputMicroUsd: bigint({ mode: "number" }),
    /** The output cap of a pay-as-you-go request that has none. */
    defaultCapTokens: integer().notNull().default(4096),
    /** Input tokens per image in a prompt. */
    imageInputTokens: integer().notNull().default(2048),
    /** The operator's margin on reservations: bound × margin / 1,000. What is learned from overruns is in `route_overheads`. */
    marginPermille: integer().notNull().default(1000),
    /** Whether it bills hidden tokens; null: unknown, to be learned from its responses. */
    hidesTokens: boolean(),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    check("models_status", sql`${t.status} in ('active', 'preview', 'deprecated')`),
    check("models_modality", sql`${t.modality} in ('text', 'image', 'multimodal')`),
    check("models_prices_together", sql`(${t.inputMicroUsd} is null) = (${t.outputMicroUsd} is null)`),
    check(
      "models_price_range",
      sql`${t.inputMicroUsd} between 0 and 1000000000 and ${t.cachedInputMicroUsd} between 0 and ${t.inputMicroUsd} and ${t.outputMicroUsd} between 0 and 1000000000`,
    ),
    check("models_cap", sql`${t.defaultCapTokens} between 1 and 1000000`),
    check("models_margin", sql`${t.marginPermille} between 1000 and 100000`),
  ],
);

/** Price of one generated image, by size and quality. */
export const imagePrices = pgTable(
  "image_prices",
  {
    modelId: text()
      .notNull()
      .references(() => models.id),
    size: text().notNull(),
    /** `standard`: for requests without a quality. */
    quality: text().notNull().default("standard"),
    microUsd: bigint({ mode: "number" }).notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.modelId, t.size, t.quality] }),
    check("image_prices_range", sql`${t.microUsd} between 0 and 1000000000`),
    check("image_prices_quality", sql`${t.quality} ~ '^[a-z0-9_-]{1,20}$'`),
  ],
);

/**
 * The prices of a model from a moment on, one row per change; holds and receipts refer to it. Triggers write it in the
 * transaction that changes `models` or `image_prices` (`note_price_version` in drizzle/0004_prices_changes_audit.sql). Rows
 * never change. `prices` is a PriceParts of `ledger/price.ts`.
 */
export const priceVersions = pgTable(
  "price_versions",
  {
    id: id(),
    modelId: text().notNull(),
    prices: jsonb().$type<unknown>().notNull(),
    validFrom: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [index("price_versions_model").on(t.modelId, t.id)],
);

/** Upstream AI services. Their keys are encrypted with SECRET_KEY. */
export const providers = pgTable("providers", {
  id: id(),
  name: text().notNull().unique(),
  baseUrl: text().notNull(),
  keyCiphertext: bytea().notNull(),
  enabled: boolean().notNull().default(true),
  createdAt: instant().notNull().defaultNow(),
});

/** Routes: a model at a provider. The lowest priority number first; equal ones by weight. */
export const routes = pgTable(
  "routes",
  {
    id: id(),
    modelId: text()
      .notNull()
      .references(() => models.id),
    providerId: bigint({ mode: "number" })
      .notNull()
      .references(() => providers.id),
    upstreamModel: text().notNull(),
    priority: integer().notNull().default(0),
    weight: integer().notNull().default(1),
    capField: text({ enum: ["max_tokens", "max_completion_tokens"] })
      .notNull()
      .default("max_tokens"),
    streamOptions: boolean().notNull().default(true),
    /** Parameters that this route forwards beyond those of src/gateway/parameters.ts. */
    allowedParams: text().array().notNull().default(sql`'{}'`),
    enabled: boolean().notNull().default(true),
    /** When its learned overhead was last reset. */
    overheadResetAt: instant(),
  },
  (t) => [
    uniqueIndex("routes_once").on(t.modelId, t.providerId, t.upstreamModel),
    check("routes_weight", sql`${t.weight} between 1 and 1000`),
    check("routes_cap_field", sql`${t.capField} in ('max_tokens', 'max_completion_tokens')`),
    check("routes_allowed_params", sql`cardinality(${t.allowedParams}) <= 50`),
  ],
);

/**
 * The overhead of a route beyond the reserved amount, learned from an account's requests. It decays; `decayedAt`: up to when.
 * Overhead that several payers have seen applies to all requests of the route. Source: MON-8.
 */
export const routeOverheads = pgTable(
  "route_overheads",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    routeId: bigint({ mode: "number" })
      .notNull()
      .references(() => routes.id, { onDelete: "cascade" }),
    /** The account's reseller, or the account itself. */
    payerId: bigint({ mode: "number" }).notNull(),
    /** Input tokens per request. */
    constantTokens: integer().notNull(),
    /** Input tokens per image in a prompt. */
    imageTokens: integer().notNull(),
    /** Text and output × factor / 1,000. */
    factorPermille: integer().notNull(),
    firstAt: instant().notNull(),
    lastAt: instant().notNull(),
    decayedAt: instant().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.accountId, t.routeId] }),
    index("route_overheads_route").on(t.routeId),
    check("route_overheads_constant", sql`${t.constantTokens} between 0 and 262144`),
    check("route_overheads_image", sql`${t.imageTokens} between 0 and 262144`),
    check("route_overheads_factor", sql`${t.factorPermille} between 1000 and 100000`),
  ],
);
export type Overhead = Readonly<
  Pick<typeof routeOverheads.$inferSelect, "constantTokens" | "imageTokens" | "factorPermille">
>;

/** A word encrypted with SECRET_KEY, to check that all processes have the same key. One row. */
export const secretKeyCheck = pgTable(
  "secret_key_check",
  {
    id: smallint().primaryKey().default(1),
    ciphertext: bytea().notNull(),
    setAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [check("secret_key_check_one_row", sql`${t.id} = 1`)],
);

/** Replicas, with their last heartbeat. */
export const replicas = pgTable("replicas", {
  id: uuid().primaryKey(),
  startedAt: instant().notNull().default(sql`clock_timestamp()`),
  seenAt: instant().notNull().default(sql`clock_timestamp()`),
  version: text().notNull().default(""),
  /** A ReplicaStatus. */
  status: jsonb().$type<unknown>(),
});

/** The last checks of the books: the number of rows that violate each invariant. */
export const bookChecks = pgTable("book_checks", {
  id: id(),
  checkedAt: instant().notNull().default(sql`clock_timestamp()`),
  tookMs: integer().notNull(),
  results: jsonb().$type<{ name: string; rows: number }[]>().notNull(),
});

/** Closed sums: sums of folded receipts and transactions, see `books/folding_store.ts`. `kind` says what the columns mean. */
export const bookSums = pgTable(
  "book_sums",
  {
    kind: text({ enum: ["package", "key", "account", "receipts", "entries", "losses"] }).notNull(),
    id: bigint({ mode: "number" }).notNull(),
    /** For packages, keys and losses; −infinity: not by day. */
    day: date({ mode: "string" }).notNull().default("-infinity"),
    rows: bigint({ mode: "number" }).notNull(),
    units: sum(),
    tokens: sum(),
    nanoUsd: sum(),
    /** Sum of the rows' hashes, to detect changed rows. */
    digest: sum(),
  },
  (t) => [primaryKey({ columns: [t.kind, t.id, t.day] })],
);

/** Combinations of model, host and mode, with a number that the rollups use. */
export const usageKinds = pgTable(
  "usage_kinds",
  {
    id: integer().primaryKey().generatedAlwaysAsIdentity(),
    modelId: text().notNull(),
    host: text().notNull(),
    mode: text({ enum: ["package", "payg"] }).notNull(),
  },
  (t) => [uniqueIndex("usage_kinds_once").on(t.modelId, t.host, t.mode)],
);

const counted = () => bigint({ mode: "number" }).notNull();
/** The sums of a rollup's row. */
const usageCounts = () => ({
  requests: counted(),
  /** Requests with a charge: each has its transaction. */
  charges: counted(),
  promptTokens: counted(),
  cachedTokens: counted(),
  completionTokens: counted(),
  chargedNanoUsd: numeric().notNull(),
});

/** Rollups: folded usage records, summed by their start. See `books/usage_rollups_store.ts`. */
export const usageSums = pgTable(
  "usage_sums",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    /** 0: all keys of the account. */
    keyId: bigint({ mode: "number" }).notNull(),
    begins: instant().notNull(),
    ...usageCounts(),
    kindId: integer().notNull(),
    /** In minutes: 15, or 1,440 (a UTC day); 0: a UTC month. */
    span: smallint().notNull(),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.keyId, t.span, t.begins, t.kindId] })],
);

/** Usage records that may have ended in another month than they began, in some time zone: by the quarter hours of both. */
export const usageCrossings = pgTable(
  "usage_crossings",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    begins: instant().notNull(),
    ends: instant().notNull(),
    ...usageCounts(),
    kindId: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.begins, t.ends, t.kindId] })],
);

/** What the next check of the books compares: what was folded since the last check, and what was broken then. */
export const bookDue = pgTable(
  "book_due",
  {
    /** `charge`: a request whose charge and transaction were not written together. */
    kind: text({ enum: ["package", "key", "account", "charge"] }).notNull(),
    /** The id of the package, key or account. */
    id: bigint({ mode: "number" }).notNull(),
    day: date({ mode: "string" }).notNull().default("-infinity"),
    requestId: uuid().notNull().default("00000000-0000-0000-0000-000000000000"),
  },
  (t) => [primaryKey({ columns: [t.kind, t.id, t.day, t.requestId] })],
);

/** The progress of folding and of the checks. One row. */
export const bookClosing = pgTable(
  "book_closing",
  {
    id: smallint().primaryKey().default(1),
    /** Exactly the rows that this snapshot sees are folded, each once. */
    folded: customType<{ data: string }>({ dataType: () => "pg_snapshot" })()
      .notNull()
      .default("3:3:"),
    /** The server of these transaction ids: a restored backup is on another one. */
    server: text().notNull().default(""),
    /** Progress of the sweeps over all rows: the last piece, package, key, day and account that was checked. */
    receiptsTo: bigint({ mode: "number" }).notNull().default(-1),
    entriesTo: bigint({ mode: "number" }).notNull().default(-1),
    packagesTo: bigint({ mode: "number" }).notNull().default(0),
    keysTo: bigint({ mode: "number" }).notNull().default(0),
    keyDaysTo: date({ mode: "string" }).notNull().default("-infinity"),
    accountsTo: bigint({ mode: "number" }).notNull().default(0),
    /** The last account and UTC day whose rollups were compared with receipts. */
    usageTo: bigint({ mode: "number" }).notNull().default(0),
    usageDaysTo: date({ mode: "string" }).notNull().default("infinity"),
  },
  (t) => [check("book_closing_one_row", sql`${t.id} = 1`)],
);

/**
 * The audit log: every change by a person, with who, what, before and after. Triggers write it in the same transaction
 * (`note_audit` in drizzle/0004_prices_changes_audit.sql). Without secrets.
 */
export const auditEntries = pgTable(
  "audit_entries",
  {
    id: id(),
    /** null: the command line or the service itself. */
    actorId: bigint({ mode: "number" }),
    requestId: uuid(),
    action: text({ enum: ["added", "changed", "removed", "viewed"] }).notNull(),
    /** The table and the row's id. */
    subject: text().notNull(),
    subjectId: text().notNull(),
    /** The account concerned, if any. */
    accountId: bigint({ mode: "number" }),
    before: jsonb().$type<Record<string, unknown>>(),
    after: jsonb().$type<Record<string, unknown>>(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("audit_entries_subject").on(t.subject, t.id),
    index("audit_entries_account").on(t.accountId, t.id),
    index("audit_entries_actor").on(t.actorId, t.id),
  ],
);

/** Keys of submitted forms: submitting the same form again does nothing. Kept for a day. */
export const sentForms = pgTable(
  "sent_forms",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    formKey: text().notNull(),
    /** SHA-256 of endpoint and body: a different one is a different form. */
    bodyDigest: bytea().notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.formKey] }), index("sent_forms_age").on(t.createdAt)],
);

/**
 * Changes, for the caches: triggers write them in the changing transaction, every replica reads them each second. With
 * `xid` none is missed (see `platform/changes_store.ts`).
 */
export const changes = pgTable(
  "changes",
  {
    id: id(),
    xid: writtenIn(),
    kind: text({ enum: ["account", "catalog", "host", "session"] }).notNull(),
    ref: text().notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [index("changes_xid").on(t.xid)],
);
