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
    passwordHash: text(),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    uniqueIndex("accounts_email_in_tenant").on(sql`coalesce(${t.resellerId}, 0)`, sql`lower(${t.email})`),
    index("accounts_reseller").on(t.resellerId),
    check("accounts_role", sql`${t.role} in ('customer', 'reseller', 'admin')`),
    check("accounts_status", sql`${t.status} in ('active', 'suspended')`),
    check("accounts_only_customers_belong", sql`${t.resellerId} is null or ${t.role} = 'customer'`),
  ],
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
    kind: text({ enum: ["top_up", "charge", "wholesale", "correction"] }).notNull(),
    requestId: uuid(),
    reason: text(),
    actorId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("balance_entries_account").on(t.accountId, t.id),
    check("balance_entries_kind", sql`${t.kind} in ('top_up', 'charge', 'wholesale', 'correction')`),
  ],
);

/** What can be sold: a daily package (1 day, 100–2000 requests) or a custom one (1–30 days). Source: contract › Limits. */
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
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("packages_account").on(t.accountId, t.endsAt),
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
    leaseEndsAt: instant().notNull(),
    createdAt: instant().notNull(),
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
    createdAt: instant().notNull(),
    finishedAt: instant().notNull(),
  },
  (t) => [
    index("receipts_usage").on(t.accountId, t.requestId).where(sql`${t.outcome} = 'settled'`),
    index("receipts_released").on(t.accountId, t.requestId).where(sql`${t.outcome} = 'released'`),
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
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("keys_account").on(t.accountId, t.id),
    check("keys_mode", sql`${t.mode} in ('package', 'payg')`),
    check("keys_status", sql`${t.status} in ('enabled', 'disabled', 'revoked')`),
  ],
);

/** White-label domains of resellers. The service's own hosts stand in the configuration. */
export const hosts = pgTable(
  "hosts",
  {
    host: text().primaryKey(),
    resellerId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    status: text({ enum: ["pending", "verifying", "active", "failed", "suspended"] }).notNull(),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [check("hosts_status", sql`${t.status} in ('pending', 'verifying', 'active', 'failed', 'suspended')`)],
);

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
    /** Bound × margin / 1,000: raised when a provider overran the bound. */
    marginPermille: integer().notNull().default(1000),
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

/** Price of one generated image, by size. */
export const imagePrices = pgTable(
  "image_prices",
  {
    modelId: text()
      .notNull()
      .references(() => models.id),
    size: text().notNull(),
    microUsd: bigint({ mode: "number" }).notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.modelId, t.size] }),
    check("image_prices_range", sql`${t.microUsd} between 0 and 1000000000`),
  ],
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
    enabled: boolean().notNull().default(true),
  },
  (t) => [
    uniqueIndex("routes_once").on(t.modelId, t.providerId, t.upstreamModel),
    check("routes_weight", sql`${t.weight} between 1 and 1000`),
    check("routes_cap_field", sql`${t.capField} in ('max_tokens', 'max_completion_tokens')`),
  ],
);

/** Replicas that are up, by their heartbeat. */
export const replicas = pgTable("replicas", {
  id: uuid().primaryKey(),
  startedAt: instant().notNull().default(sql`clock_timestamp()`),
  seenAt: instant().notNull().default(sql`clock_timestamp()`),
});

/**
 * What changed, for the caches: written by triggers in the changing transaction, read by every replica each second.
 * `xid` orders them by commit without a gap (see `platform/changes_store.ts`).
 */
export const changes = pgTable(
  "changes",
  {
    id: id(),
    xid: customType<{ data: string }>({ dataType: () => "xid8" })()
      .notNull()
      .default(sql`pg_current_xact_id()`),
    kind: text({ enum: ["account", "catalog", "host", "session"] }).notNull(),
    ref: text().notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [index("changes_xid").on(t.xid)],
);
