import { sql } from "drizzle-orm";
import { bigint, check, index, pgTable, primaryKey, text } from "drizzle-orm/pg-core";
import { accounts } from "./schema_accounts.ts";
import { bytea, id, instant } from "./schema_columns.ts";

/** Who works in which account, and with which role. Source: MEM-1. */

/** A person and an account. The person who began an account has its id; a trigger adds them as its owner. */
export const members = pgTable(
  "members",
  {
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    personId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    role: text({ enum: ["owner", "developer", "billing", "viewer"] }).notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ columns: [t.accountId, t.personId] }),
    index("members_person").on(t.personId),
    check("members_role", sql`${t.role} in ('owner', 'developer', 'billing', 'viewer')`),
  ],
);

/** Invitations of members, by mail. Those of the last days count against the limits. */
export const memberInvitations = pgTable(
  "member_invitations",
  {
    id: id(),
    accountId: bigint({ mode: "number" })
      .notNull()
      .references(() => accounts.id),
    /** In small letters. */
    email: text().notNull(),
    role: text({ enum: ["owner", "developer", "billing", "viewer"] }).notNull(),
    digest: bytea().notNull().unique(),
    /** The person who invited; null: the command line. */
    createdBy: bigint({ mode: "number" }),
    /** null: pending, or expired. `replaced`: by a later one to the same address. */
    outcome: text({ enum: ["accepted", "revoked", "replaced"] }),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
    expiresAt: instant().notNull(),
  },
  (t) => [
    index("member_invitations_account").on(t.accountId, t.id),
    index("member_invitations_email").on(t.email, t.createdAt),
    index("member_invitations_age").on(t.createdAt),
    check("member_invitations_role", sql`${t.role} in ('owner', 'developer', 'billing', 'viewer')`),
    check("member_invitations_outcome", sql`${t.outcome} in ('accepted', 'revoked', 'replaced')`),
  ],
);
