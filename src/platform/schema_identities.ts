import { sql } from "drizzle-orm";
import { bigint, boolean, check, index, jsonb, pgTable, text, uniqueIndex } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { bytea, id, instant } from "./schema_columns.ts";

/** Identity providers of sellers, and the identities that people have linked. Source: OIDC-1. */

/** What an identity provider speaks, and whose rules it follows. */
export const IDENTITY_KINDS = ["oidc", "google", "github"] as const;

/** A value of the role claim, and the role of a member that it gives. */
export type RoleOfClaim = { value: string; role: "owner" | "developer" | "billing" | "viewer" };

/** Where the people of a seller (0: the operator) sign in elsewhere. */
export const identityProviders = pgTable(
  "identity_providers",
  {
    id: id(),
    sellerId: bigint({ mode: "number" }).notNull(),
    kind: text({ enum: IDENTITY_KINDS }).notNull(),
    name: text().notNull(),
    /** Never changed: subjects are unique at their issuer only. */
    issuer: text().notNull(),
    clientId: text().notNull(),
    secretCiphertext: bytea().notNull(),
    scopes: text().notNull(),
    /** The domains of the addresses that sign in; empty: all, for the operator alone. */
    mailDomains: text().array().notNull().default([]),
    /** The TXT record that proves a domain of a reseller has this value; and the domains that it has proved. */
    proofToken: text().notNull(),
    provedDomains: text().array().notNull().default([]),
    /** When their TXT records were last looked for again, and since when those are gone that were not found: by domain, an instant. */
    checkedAt: instant(),
    failingSince: jsonb().$type<Record<string, string>>().notNull().default({}),
    /** The customer's account whose members sign in by it; null: each new person gets an account of their own. */
    accountId: bigint({ mode: "number" }).references(() => accounts.id),
    roleClaim: text(),
    roles: jsonb().$type<RoleOfClaim[]>().notNull().default([]),
    enabled: boolean().notNull().default(true),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("identity_providers_name").on(t.sellerId, t.name),
    index("identity_providers_account").on(t.accountId).where(sql`${t.accountId} is not null`),
    index("identity_providers_checked").on(t.checkedAt).where(sql`${t.provedDomains} <> '{}'`),
    check("identity_providers_seller", sql`${t.sellerId} >= 0`),
    check("identity_providers_kind", sql`${t.kind} in ('oidc', 'google', 'github')`),
    check("identity_providers_roles", sql`(${t.accountId} is null) = (${t.roleClaim} is null)`),
  ],
);

/** Who somebody is at an identity provider. A person links one identity of each. */
export const identities = pgTable(
  "identities",
  {
    id: id(),
    identityProviderId: bigint({ mode: "number" })
      .notNull()
      .references(() => identityProviders.id),
    /** The person's id at the issuer, which is never given to anybody else. */
    subject: text().notNull(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    /** Their address there, as it was at the last sign-in. */
    email: text().notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    lastUsedAt: instant(),
  },
  (t) => [
    uniqueIndex("identities_subject").on(t.identityProviderId, t.subject),
    uniqueIndex("identities_account").on(t.accountId, t.identityProviderId),
  ],
);

/** Sign-ins that were begun and have not come back, until they expire. */
export const identitySignIns = pgTable(
  "identity_sign_ins",
  {
    /** Of the token in the browser's cookie. */
    digest: bytea().primaryKey(),
    identityProviderId: bigint({ mode: "number" })
      .notNull()
      .references(() => identityProviders.id, { onDelete: "cascade" }),
    host: text().notNull(),
    /** The session whose person links an identity; null: a sign-in. */
    sessionDigest: bytea(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    expiresAt: instant().notNull(),
  },
  (t) => [
    index("identity_sign_ins_expiry").on(t.expiresAt),
    index("identity_sign_ins_provider").on(t.identityProviderId),
  ],
);
