import { sql } from "drizzle-orm";
import { bigint, boolean, check, index, pgTable, text, uniqueIndex } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { bytea, instant, nanoUsd } from "./schema_columns.ts";
import { offerings } from "./schema_offerings.ts";

/** Sign-up: who may sign up with a seller, requests that wait for their confirmation, and the accounts that came of them. */

/** How strangers may sign up with a seller (0: the operator). Without a row they may not. */
export const signUpSettings = pgTable(
  "sign_up_settings",
  {
    sellerId: bigint({ mode: "number" }).primaryKey(),
    isOpen: boolean().notNull().default(false),
    /** What people accept. */
    termsUrl: text(),
    privacyUrl: text(),
    /** What a new account gets; both null: nothing. */
    trialOfferingId: bigint({ mode: "number" }).references(() => offerings.id),
    trialNanoUsd: nanoUsd(),
    /** How a reseller pays for the package of a trial. */
    trialPayWith: text({ enum: ["balance", "allotment"] })
      .notNull()
      .default("balance"),
    /** Mail domains, each with those below it. Empty: all are allowed. */
    allowedDomains: text().array().notNull().default([]),
    forbiddenDomains: text().array().notNull().default([]),
    /** Whether addresses of services that anyone can read for a few minutes are allowed. */
    disposableAllowed: boolean().notNull().default(false),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    check("sign_up_settings_seller", sql`${t.sellerId} >= 0`),
    check("sign_up_settings_open", sql`not ${t.isOpen} or (${t.termsUrl} is not null and ${t.privacyUrl} is not null)`),
    check("sign_up_settings_trial", sql`${t.trialOfferingId} is null or ${t.trialNanoUsd} is null`),
    check("sign_up_settings_pay_with", sql`${t.trialPayWith} in ('balance', 'allotment')`),
  ],
);

/** Requests to sign up that were mailed, until they are confirmed or end. See `commerce/sign_ups_store.ts`. */
export const signUps = pgTable(
  "sign_ups",
  {
    /** Of the token in the mailed link. */
    digest: bytea().primaryKey(),
    sellerId: bigint({ mode: "number" }).notNull(),
    email: text().notNull(),
    name: text().notNull(),
    /** The tag of the language of the page; the account's later. */
    language: text(),
    /** What the person accepted, and when. */
    termsUrl: text().notNull(),
    privacyUrl: text().notNull(),
    acceptedAt: instant().notNull().default(sql`clock_timestamp()`),
    /** The address had an account already: its owner was told, and there is nothing to confirm. The row counts mails. */
    isKnown: boolean().notNull(),
    expiresAt: instant().notNull(),
  },
  (t) => [
    index("sign_ups_email").on(t.sellerId, t.email, t.acceptedAt),
    index("sign_ups_expiry").on(t.expiresAt),
    check("sign_ups_seller", sql`${t.sellerId} >= 0`),
  ],
);

/** Accounts that people made by signing up: what they accepted, and what became of the trial. */
export const signedUp = pgTable(
  "signed_up",
  {
    accountId: bigint({ mode: "number" })
      .primaryKey()
      .references(() => accounts.id),
    sellerId: bigint({ mode: "number" }).notNull(),
    termsUrl: text().notNull(),
    privacyUrl: text().notNull(),
    acceptedAt: instant().notNull(),
    confirmedAt: instant().notNull().default(sql`clock_timestamp()`),
    /** A digest of the address in the form that is the same for all spellings of one mailbox. */
    personDigest: bytea().notNull(),
    /** The registered domain of the address; null: of a mail provider, where anyone gets a mailbox, or one that the seller allows by name. */
    ownedDomain: text(),
    /**
     * `none`: none was offered. `taken`: this person had one before. `domain`: too many of its domain had one. `waits`: the seller cannot pay
     * for it yet.
     */
    trial: text({ enum: ["none", "taken", "domain", "waits", "given"] }).notNull(),
    /** The trial as it was offered. */
    trialOfferingId: bigint({ mode: "number" }).references(() => offerings.id),
    trialNanoUsd: nanoUsd(),
    trialPayWith: text({ enum: ["balance", "allotment"] }),
    /** Why it waits. */
    trialWhy: text({ enum: ["balance", "allotment", "offering", "payg"] }),
    trialTryAt: instant().notNull().default(sql`clock_timestamp()`),
    trialGivenAt: instant(),
  },
  (t) => [
    // Once a person and seller, whatever happens at the same time.
    uniqueIndex("signed_up_trial_once").on(t.sellerId, t.personDigest).where(sql`${t.trial} in ('waits', 'given')`),
    index("signed_up_domain").on(t.sellerId, t.ownedDomain, t.confirmedAt).where(sql`${t.ownedDomain} is not null`),
    index("signed_up_seller").on(t.sellerId, t.accountId),
    index("signed_up_offering").on(t.trialOfferingId).where(sql`${t.trialOfferingId} is not null`),
    index("signed_up_waiting").on(t.trialTryAt).where(sql`${t.trial} = 'waits'`),
    check("signed_up_trial", sql`${t.trial} in ('none', 'taken', 'domain', 'waits', 'given')`),
    check(
      "signed_up_trial_is_something",
      sql`${t.trial} in ('none', 'taken', 'domain') or num_nonnulls(${t.trialOfferingId}, ${t.trialNanoUsd}) = 1`,
    ),
    check("signed_up_trial_why", sql`${t.trialWhy} in ('balance', 'allotment', 'offering', 'payg')`),
    check("signed_up_trial_pay_with", sql`${t.trialPayWith} in ('balance', 'allotment')`),
  ],
);
