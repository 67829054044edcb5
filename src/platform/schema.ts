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
 * and `receipts`; the CHECKs hold its limits a second time.
 */

const bytea = customType<{ data: Buffer }>({ dataType: () => "bytea" });
const id = () => bigint({ mode: "number" }).primaryKey().generatedAlwaysAsIdentity();
const instant = () => timestamp({ withTimezone: true, mode: "string" });
const nanoUsd = () => bigint({ mode: "bigint" });
const xid8 = customType<{ data: string }>({ dataType: () => "xid8" });
const sum = () => numeric().notNull().default("0");
/** The transaction that wrote a row last: which rows are new since a snapshot, whatever the clocks say. */
const writtenIn = () => xid8().notNull().default(sql`pg_current_xact_id()`);

/** Customers, resellers and admins. A customer may belong to a reseller, for good: that is its tenant. */
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
    /** By an admin or the command line: then a reseller cannot undo it. */
    suspendedByOperator: boolean().notNull().default(false),
    /** A reseller's right to let its own customers pay by balance, or no more; granted by an admin. */
    maySwitchPayg: boolean().notNull().default(false),
    passwordHash: text(),
    /** The second factor's secret, encrypted; it counts once `totpEnabledAt` is set. */
    totpCiphertext: bytea(),
    totpEnabledAt: instant(),
    /** The last 30-second step whose code was taken: a code works once. */
    totpLastStep: bigint({ mode: "number" }).notNull().default(0),
    /** When Home warns: at this share of a package left, below this balance, this many days before the end. */
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

/** What replaces a lost second factor: digests of codes, each gone once used. */
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

/** Links with which a person sets a password: an invitation, or a reset that an admin or reseller hands over. One an account. */
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

/** One row an account: its pay-as-you-go balance. Free = balance − held. */
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
    /** What it was for: a request, a package, or money from or to another account. */
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
 * What can be sold: a daily package (1 day, 100–2000 requests) or a custom one (1–30 days). It never changes, only its being
 * for sale. Source: contract › Limits.
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

/** Pieces of an offering that an admin granted a reseller to hand out without paying. */
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

/** What a customer asked for: a package or a top-up. The reseller, or where there is none an admin, fulfils or declines it. */
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
    /** What the one who decided says to it. */
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
 * An account's packages, one after another: active is the one whose [starts_at, ends_at) holds now. Ending one early
 * moves `ends_at` to that moment; queued ones are moved up behind it.
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
    /** The allotment it was taken from, instead of a price. */
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

/** Units by calendar day of the package. `units_max` is what that day could hold at most when its row was made. */
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

/** Live holds: granted, dispatched or about to be, not yet settled or released. No foreign keys: hot, and checked under the lock. */
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
    /** The day of the key's own ceilings that it counts in; null: the key has none. */
    keyDay: date({ mode: "string" }),
    leaseEndsAt: instant().notNull(),
    createdAt: instant().notNull(),
    /** The prices it was admitted at; null: the model had none. */
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
    /** Why it ended so: one of the reasons in `ledger/ledger.ts`. */
    reason: text().notNull(),
    units: smallint().notNull(),
    heldNanoUsd: nanoUsd().notNull(),
    chargedNanoUsd: nanoUsd().notNull(),
    /** What the request cost beyond what could be charged: the operator's loss. */
    shortfallNanoUsd: nanoUsd().notNull(),
    promptTokens: integer().notNull(),
    cachedTokens: integer().notNull(),
    completionTokens: integer().notNull(),
    /** Tokens counted against the package's token allowance or the balance's total. */
    chargedTokens: bigint({ mode: "number" }).notNull(),
    estimated: boolean().notNull(),
    /** As in `holds`: the prices that it was charged by. */
    priceVersionId: bigint({ mode: "number" }),
    /** What the provider counted beside the three counts above: see `ledger/reported_usage.ts`. null: nothing. */
    reportedUsage: jsonb().$type<unknown>(),
    createdAt: instant().notNull(),
    finishedAt: instant().notNull(),
    /** Set anew by a late settlement: it is folded into the closed sums by its new one. */
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

/** API keys: a SHA-256 digest and what a person needs to know one again. */
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
    /** Ceilings of the key itself, a day of its zone: requests, and money of the balance. null: none. */
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
 * What a key with ceilings used on a day. Spending has no upper check: a provider's overrun, or a late settlement, may
 * pass the ceiling that the hold kept to.
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

/** When and where a key last did something: noted in memory, written every few seconds. Nothing is decided by it. */
export const keyUses = pgTable("key_uses", {
  keyId: bigint({ mode: "number" }).primaryKey(),
  lastUsedAt: instant().notNull(),
  host: text().notNull(),
});

/** Refusals, counted by minute and written every few seconds: a refused request must not cost a write. Kept a week. */
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
 * White-label domains of resellers, those they gave up included. The service's own hosts stand in the configuration.
 * Several may claim a name; one has it. Source: rulings › Domains.
 */
export const hosts = pgTable(
  "hosts",
  {
    host: text().notNull(),
    resellerId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    status: text({ enum: ["pending", "verifying", "active", "failed", "suspended", "removed"] }).notNull(),
    /** What the TXT record must say when the name is contested. */
    token: text().notNull().default(sql`replace(gen_random_uuid()::text, '-', '')`),
    /** When it became active last: whoever comes after must prove the name. */
    activatedAt: instant(),
    checkedAt: instant(),
    nextCheckAt: instant(),
    /** Failed checks in a row. */
    failures: integer().notNull().default(0),
    /** What the last check saw: a DnsReport. */
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

/** How a reseller's hosts look. The pictures were decoded and encoded anew when they came. */
export const brands = pgTable("brands", {
  resellerId: bigint({ mode: "number" })
    .primaryKey()
    .references(() => accounts.id),
  name: text().notNull(),
  /** As chosen, #rrggbb; `css` is what became of it. */
  accent: text(),
  css: text().notNull().default(""),
  support: text(),
  logoLight: bytea(),
  logoDark: bytea(),
  icon: bytea(),
  /** The icon came by itself; otherwise it is made from the logo, and follows it. */
  iconOwn: boolean().notNull().default(false),
  /** Changes with every change, for the addresses of css and pictures. */
  version: text().notNull(),
});

/** Sessions of the panel: a digest of a 32-byte token, bound to the host they began on. */
export const sessions = pgTable(
  "sessions",
  {
    digest: bytea().primaryKey(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    host: text().notNull(),
    csrfToken: text().notNull(),
    /** What the browser says it is, and where it signed in from: for the list of devices. */
    userAgent: text().notNull().default(""),
    address: text().notNull().default(""),
    /** The account an admin looks at the panel as, read-only. */
    viewingAccountId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    seenAt: instant().notNull().default(sql`clock_timestamp()`),
    expiresAt: instant().notNull(),
  },
  (t) => [index("sessions_account").on(t.accountId)],
);

/** What the catalog sells. A model without prices is sold by package only. */
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
    /** Output cap of a balance request that names none. */
    defaultCapTokens: integer().notNull().default(4096),
    /** What one image in a prompt counts as. */
    imageInputTokens: integer().notNull().default(2048),
    /** Bound × margin / 1,000: what the operator holds on top. What overruns teach is in `route_overheads`. */
    marginPermille: integer().notNull().default(1000),
    /** It reports more tokens than it shows; null: not known, to be learned from its answers. */
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
    /** `standard`: of a request that asks for no quality. */
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
 * What a model cost from a moment on, a row for each change: receipts name the row that they were charged by. Written by
 * triggers in the transaction that changes `models` or `image_prices` (see `drizzle/0004_prices_changes_audit.sql`, note_price_version), and
 * never changed. `prices` is a PriceParts, see `ledger/price.ts`.
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

/** Upstream services. Their keys are encrypted with SECRET_KEY. */
export const providers = pgTable("providers", {
  id: id(),
  name: text().notNull().unique(),
  baseUrl: text().notNull(),
  keyCiphertext: bytea().notNull(),
  enabled: boolean().notNull().default(true),
  createdAt: instant().notNull().defaultNow(),
});

/** Where a model is served: lowest priority number first; within one, by weight. */
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
    /** Parameters that this route sends on beyond those of src/gateway/parameters.ts. */
    allowedParams: text().array().notNull().default(sql`'{}'`),
    enabled: boolean().notNull().default(true),
    /** What had been learned of its overhead until then was forgotten. */
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
 * What the answers to an account's requests have shown a route to use beyond their holds. It fades: `decayedAt` says up to when
 * that is done. What several payers have shown is the route's, and held for everybody. Source: rulings › Money.
 */
export const routeOverheads = pgTable(
  "route_overheads",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    routeId: bigint({ mode: "number" })
      .notNull()
      .references(() => routes.id, { onDelete: "cascade" }),
    /** Who answers for the account: its reseller, or the account itself. */
    payerId: bigint({ mode: "number" }).notNull(),
    /** Of every request, in input tokens. */
    constantTokens: integer().notNull(),
    /** Of each image in a prompt. */
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

/** A word encrypted with the database's SECRET_KEY, by which everybody knows whether theirs is the same: one row. */
export const secretKeyCheck = pgTable(
  "secret_key_check",
  {
    id: smallint().primaryKey().default(1),
    ciphertext: bytea().notNull(),
    setAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [check("secret_key_check_one_row", sql`${t.id} = 1`)],
);

/** Replicas that are up, by their heartbeat. */
export const replicas = pgTable("replicas", {
  id: uuid().primaryKey(),
  startedAt: instant().notNull().default(sql`clock_timestamp()`),
  seenAt: instant().notNull().default(sql`clock_timestamp()`),
  version: text().notNull().default(""),
  /** What the replica says of itself: a ReplicaStatus. */
  status: jsonb().$type<unknown>(),
});

/** The last checks of the books: how many rows broke each invariant. */
export const bookChecks = pgTable("book_checks", {
  id: id(),
  checkedAt: instant().notNull().default(sql`clock_timestamp()`),
  tookMs: integer().notNull(),
  results: jsonb().$type<{ name: string; rows: number }[]>().notNull(),
});

/** Sums of what is folded: receipts and entries, see `ledger/closing_store.ts`. Its columns mean what the kind says. */
export const bookSums = pgTable(
  "book_sums",
  {
    kind: text({ enum: ["package", "key", "account", "receipts", "entries", "losses"] }).notNull(),
    id: bigint({ mode: "number" }).notNull(),
    /** Of a package, a key or the losses; −infinity: the sum is of no day. */
    day: date({ mode: "string" }).notNull().default("-infinity"),
    rows: bigint({ mode: "number" }).notNull(),
    units: sum(),
    tokens: sum(),
    nanoUsd: sum(),
    /** Sum of the rows' hashes: whether they are still what was folded. */
    digest: sum(),
  },
  (t) => [primaryKey({ columns: [t.kind, t.id, t.day] })],
);

/** Models, hosts and modes that usage was of: the rollups name them by number. */
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
/** What the requests of a rollup's row add up to. */
const usageCounts = () => ({
  requests: counted(),
  /** Of these, those that cost money: each has its entry. */
  charges: counted(),
  promptTokens: counted(),
  cachedTokens: counted(),
  completionTokens: counted(),
  chargedNanoUsd: numeric().notNull(),
});

/** Rollups: usage records that are folded, summed by when they began. See `ledger/rollups_store.ts`. */
export const usageSums = pgTable(
  "usage_sums",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    /** 0: of all keys of the account. */
    keyId: bigint({ mode: "number" }).notNull(),
    begins: instant().notNull(),
    ...usageCounts(),
    kindId: integer().notNull(),
    /** In minutes: 15, or 1,440, a day of UTC; 0: a month of UTC. */
    span: smallint().notNull(),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.keyId, t.span, t.begins, t.kindId] })],
);

/** Those of them that began and ended on two sides of where a month may end in some zone: by the quarter of an hour of each. */
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

/** What the next check of the books compares: what was folded since the last one, and what was broken then. */
export const bookDue = pgTable(
  "book_due",
  {
    /** `charge`: a request whose charge and entry were not written together. */
    kind: text({ enum: ["package", "key", "account", "charge"] }).notNull(),
    /** Of the package, the key or the account. */
    id: bigint({ mode: "number" }).notNull(),
    day: date({ mode: "string" }).notNull().default("-infinity"),
    requestId: uuid().notNull().default("00000000-0000-0000-0000-000000000000"),
  },
  (t) => [primaryKey({ columns: [t.kind, t.id, t.day, t.requestId] })],
);

/** How far the closing and the checks' walks have come: one row. */
export const bookClosing = pgTable(
  "book_closing",
  {
    id: smallint().primaryKey().default(1),
    /** Folded is, exactly once, what this snapshot sees. */
    folded: customType<{ data: string }>({ dataType: () => "pg_snapshot" })()
      .notNull()
      .default("3:3:"),
    /** Whose transaction ids these are: a restored copy lives on another server. */
    server: text().notNull().default(""),
    /** Walks over all that is there: the last piece of receipts and entries, package, key's day and account seen. */
    receiptsTo: bigint({ mode: "number" }).notNull().default(-1),
    entriesTo: bigint({ mode: "number" }).notNull().default(-1),
    packagesTo: bigint({ mode: "number" }).notNull().default(0),
    keysTo: bigint({ mode: "number" }).notNull().default(0),
    keyDaysTo: date({ mode: "string" }).notNull().default("-infinity"),
    accountsTo: bigint({ mode: "number" }).notNull().default(0),
    /** The last account and day of UTC whose rollups were compared with their receipts. */
    usageTo: bigint({ mode: "number" }).notNull().default(0),
    usageDaysTo: date({ mode: "string" }).notNull().default("infinity"),
  },
  (t) => [check("book_closing_one_row", sql`${t.id} = 1`)],
);

/**
 * Every change that a person made: who, what, before, after. Written by triggers in the changing transaction (see
 * `drizzle/0004_prices_changes_audit.sql`, note_audit); secrets are left out.
 */
export const auditEntries = pgTable(
  "audit_entries",
  {
    id: id(),
    /** null: the operator's command line, or the service itself. */
    actorId: bigint({ mode: "number" }),
    requestId: uuid(),
    action: text({ enum: ["added", "changed", "removed", "viewed"] }).notNull(),
    /** The table, and the row's id in it. */
    subject: text().notNull(),
    subjectId: text().notNull(),
    /** The account it concerns, where there is one. */
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

/** Keys of forms that were sent: a second click with the same one does nothing. Kept a day. */
export const sentForms = pgTable(
  "sent_forms",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    formKey: text().notNull(),
    /** SHA-256 of where it was sent, and of its body: another one is another form. */
    bodyDigest: bytea().notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.formKey] }), index("sent_forms_age").on(t.createdAt)],
);

/**
 * What changed, for the caches: written by triggers in the changing transaction, read by every replica each second.
 * `xid` orders them by commit without a gap (see `platform/changes_store.ts`).
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
