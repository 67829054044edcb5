import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  date,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { areLimits, bytea, id, instant, limits, nanoUsd } from "./schema_columns.ts";

/** Accounts and what opens them: links, keys, hosts, brands and sessions. */

/** Customers, resellers and admins: each an account, and the person who began it. A customer may belong to a reseller, its tenant; this never changes. */
export const accounts = pgTable(
  "accounts",
  {
    id: id(),
    role: text({ enum: ["customer", "reseller", "admin"] }).notNull(),
    resellerId: bigint({ mode: "number" }),
    email: text().notNull(),
    name: text().notNull(),
    /** The tag of the language that the person chose; null: that of the brand. No check: the list of languages grows without a migration. */
    language: text(),
    /** A person without an account of their own, who was invited as a member of others. */
    onlyPerson: boolean().notNull().default(false),
    status: text({ enum: ["active", "suspended"] })
      .notNull()
      .default("active"),
    /** Suspended by an admin or the command line: a reseller cannot undo it. */
    suspendedByOperator: boolean().notNull().default(false),
    /** An admin's permission for a reseller to switch pay-as-you-go of its customers. */
    maySwitchPayg: boolean().notNull().default(false),
    /** Of all its keys together. A reseller's are also the most that each of its customers may have. */
    limits: limits(),
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
    /** The person was erased: the account has a number and no name, and nobody can sign in again. */
    erasedAt: instant(),
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
    check("accounts_limits", areLimits(t.limits)),
    check("accounts_role", sql`${t.role} in ('customer', 'reseller', 'admin')`),
    check("accounts_status", sql`${t.status} in ('active', 'suspended')`),
    check("accounts_erased", sql`${t.erasedAt} is null or ${t.status} = 'suspended'`),
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

/**
 * Links to set a password: an invitation or a reset that an admin or reseller made, at most one of an account, and resets that the
 * person asked for. See `accounts/password_links_store.ts`.
 */
export const links = pgTable(
  "links",
  {
    digest: bytea().primaryKey(),
    kind: text({ enum: ["invitation", "reset"] }).notNull(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    /** The person asked for it by mail. Otherwise somebody who manages the account made it. */
    isOwn: boolean().notNull().default(false),
    createdBy: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    expiresAt: instant().notNull(),
  },
  (t) => [
    check("links_kind", sql`${t.kind} in ('invitation', 'reset')`),
    // Strangers can ask for an account's own links, so these replace none that was made for it.
    uniqueIndex("links_one_made").on(t.accountId).where(sql`not ${t.isOwn}`),
    index("links_account").on(t.accountId),
  ],
);

/**
 * Tokens of the management API: of an admin or a reseller. A SHA-256 digest, and the part that is shown to recognize a token. See
 * `accounts/tokens_store.ts`.
 */
export const apiTokens = pgTable(
  "api_tokens",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    /** The member who made it, without whom it is worth nothing; null: the person who began the account. */
    madeBy: bigint({ mode: "number" }),
    name: text().notNull(),
    digest: bytea().notNull().unique(),
    prefix: text().notNull(),
    /** What it may do, as in `keys:write`. */
    scopes: text().array().notNull(),
    /** The addresses that it may be used from, as in 192.0.2.0/24; null: all. */
    networks: text().array(),
    status: text({ enum: ["active", "revoked"] })
      .notNull()
      .default("active"),
    expiresAt: instant(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    lastUsedAt: instant(),
    revokedAt: instant(),
  },
  (t) => [
    index("api_tokens_account").on(t.accountId, t.id),
    check("api_tokens_status", sql`${t.status} in ('active', 'revoked')`),
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
    /** The person who made it; null: the command line. */
    madeBy: bigint({ mode: "number" }),
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
    /** The key's own limits, in its time zone: requests a day, and spending from the balance by day, week, month and in total. null: no limit. */
    dailyUnitsMax: integer(),
    dailySpendMaxNanoUsd: nanoUsd(),
    weeklySpendMaxNanoUsd: nanoUsd(),
    monthlySpendMaxNanoUsd: nanoUsd(),
    totalSpendMaxNanoUsd: nanoUsd(),
    /** The first day that counts in total: the one on which the total was set. */
    totalSpendFrom: date(),
    timeZone: text().notNull().default("UTC"),
    /** The key's own, never above those of its account when they were set. */
    limits: limits(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    revokedAt: instant(),
  },
  (t) => [
    index("keys_revoked").on(t.revokedAt).where(sql`${t.status} = 'revoked'`),
    check(
      "keys_ceilings",
      sql`${t.dailyUnitsMax} between 1 and 30000000 and ${t.dailySpendMaxNanoUsd} between 1 and 9000000000000000
        and ${t.weeklySpendMaxNanoUsd} between 1 and 9000000000000000 and ${t.monthlySpendMaxNanoUsd} between 1 and 9000000000000000
        and ${t.totalSpendMaxNanoUsd} between 1 and 9000000000000000`,
    ),
    index("keys_account").on(t.accountId, t.id),
    check("keys_limits", areLimits(t.limits)),
    check("keys_mode", sql`${t.mode} in ('package', 'payg')`),
    check("keys_status", sql`${t.status} in ('enabled', 'disabled', 'revoked')`),
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
 * What the operator bore of an account, or of a tenant, in the current hour and in all. An hour begins with its first loss. The unit is
 * that of the kind (`LOSS_KINDS` in `accounts/losses.ts`). Source: LOS-1.
 */
export const losses = pgTable(
  "losses",
  {
    holder: text({ enum: ["account", "tenant"] }).notNull(),
    holderId: bigint({ mode: "number" }).notNull(),
    kind: text().notNull(),
    hourBeganAt: instant().notNull(),
    hourAmount: bigint({ mode: "bigint" }).notNull(),
    amount: bigint({ mode: "bigint" }).notNull(),
    times: bigint({ mode: "number" }).notNull(),
    lastAt: instant().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.holder, t.holderId, t.kind] }),
    index("losses_hour").on(t.hourBeganAt),
    check("losses_holder", sql`${t.holder} in ('account', 'tenant')`),
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
  /** The tag of the language of readers who chose none; null: that of their browser. */
  language: text(),
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
    /** The person. */
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
    /** The account that the person works in; null: the one that they began. */
    workAccountId: bigint({ mode: "number" }),
    /** Where the person signed in; null: here. */
    identityProviderId: bigint({ mode: "number" }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    seenAt: instant().notNull().default(sql`clock_timestamp()`),
    expiresAt: instant().notNull(),
  },
  (t) => [
    index("sessions_account").on(t.accountId),
    index("sessions_work_account").on(t.workAccountId).where(sql`${t.workAccountId} is not null`),
  ],
);
