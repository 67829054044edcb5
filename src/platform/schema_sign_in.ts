import { sql } from "drizzle-orm";
import { bigint, boolean, check, index, pgTable, text, uniqueIndex } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { bytea, id, instant } from "./schema_columns.ts";

/** Passkeys, and changes of e-mail addresses that wait for their confirmations. */

/** Public keys that sign in, each on one host. */
export const passkeys = pgTable(
  "passkeys",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    /** The relying party id: browsers offer the passkey on this host alone. */
    host: text().notNull(),
    credentialId: bytea().notNull(),
    /** In COSE form. */
    publicKey: bytea().notNull(),
    /** The signatures that the authenticator has counted; 0: it does not count. */
    counter: bigint({ mode: "number" }).notNull(),
    /** How browsers reach the authenticator, as in "internal" and "usb". */
    transports: text().array().notNull(),
    name: text().notNull(),
    /** Whether a password manager keeps it on several devices. */
    synced: boolean().notNull(),
    /** When a signature had a lower counter than one before: there is a copy of the key, and it no longer signs in. */
    clonedAt: instant(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    lastUsedAt: instant(),
  },
  (t) => [
    uniqueIndex("passkeys_credential").on(t.host, t.credentialId),
    index("passkeys_account").on(t.accountId),
    check("passkeys_counter", sql`${t.counter} between 0 and 4294967295`),
  ],
);

/** Challenges that a passkey has signed, until they expire: each works once. */
export const usedChallenges = pgTable(
  "used_challenges",
  { digest: bytea().primaryKey(), expiresAt: instant().notNull() },
  (t) => [index("used_challenges_expiry").on(t.expiresAt)],
);

/** Changes of e-mail addresses. One of an account at a time is pending; the others count against the limit per day. */
export const emailChanges = pgTable(
  "email_changes",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    oldEmail: text().notNull(),
    newEmail: text().notNull(),
    /** Digests of the tokens in the links that are sent to the old and to the new address. */
    oldDigest: bytea().notNull(),
    newDigest: bytea().notNull(),
    /** The session that asked for it, which goes on after the change. */
    sessionDigest: bytea().notNull(),
    oldConfirmedAt: instant(),
    newConfirmedAt: instant(),
    /** null: pending, or expired. `replaced`: by a later change, or by a new password. */
    outcome: text({ enum: ["changed", "cancelled", "replaced"] }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    expiresAt: instant().notNull(),
  },
  (t) => [
    uniqueIndex("email_changes_old").on(t.oldDigest),
    uniqueIndex("email_changes_new").on(t.newDigest),
    uniqueIndex("email_changes_pending").on(t.accountId).where(sql`${t.outcome} is null`),
    index("email_changes_account").on(t.accountId, t.createdAt),
    index("email_changes_address").on(t.newEmail, t.createdAt),
    check("email_changes_outcome", sql`${t.outcome} in ('changed', 'cancelled', 'replaced')`),
  ],
);
