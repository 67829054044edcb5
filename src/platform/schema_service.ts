import { sql } from "drizzle-orm";
import {
  bigint,
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
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { bytea, id, instant, snapshot, sum, writtenIn } from "./schema_columns.ts";

/** What the replicas share, what happened (the audit log, submitted forms, changes), and what reports and checks of the books keep. */

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
    /** The token of the management API that the actor used; null: none. */
    tokenId: bigint({ mode: "number" }),
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
 * Writes of the management API that carry an Idempotency-Key: the same write is made once. Kept for a day. See
 * `operations/writes_store.ts`.
 */
export const apiWrites = pgTable(
  "api_writes",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    writeKey: text().notNull(),
    /** SHA-256 of method, path and body: a different one is a different write. */
    bodyDigest: bytea().notNull(),
    /** The request that makes it. */
    requestId: uuid().notNull(),
    /** Until then nobody else may make it. */
    claimedUntil: instant().notNull(),
    /** Set in the transaction of the write. */
    committedAt: instant(),
    /** Status and body, encrypted: a body may have a secret. */
    answerCiphertext: bytea(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.writeKey] }), index("api_writes_age").on(t.createdAt)],
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
    kind: text({ enum: ["account", "catalog", "session"] }).notNull(),
    ref: text().notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [index("changes_xid").on(t.xid)],
);

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
    /** `package`, `key`, `uncounted` (use of a key that had no limits), `account`, `receipts`, `entries`, `losses`, or `unpriced_` with a rate (`books/unpriced_store.ts`). */
    kind: text().notNull(),
    id: bigint({ mode: "number" }).notNull(),
    /** For packages, keys (in their own zone), losses and unpriced counts; −infinity: not by day. */
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

/** Combinations of model, host, mode and route, with a number that the rollups use. */
export const usageKinds = pgTable(
  "usage_kinds",
  {
    id: integer().primaryKey().generatedAlwaysAsIdentity(),
    modelId: text().notNull(),
    host: text().notNull(),
    mode: text({ enum: ["package", "payg"] }).notNull(),
    /** The route that answered; 0: not known. */
    routeId: bigint({ mode: "number" }).notNull().default(0),
  },
  (t) => [uniqueIndex("usage_kinds_once").on(t.modelId, t.host, t.mode, t.routeId)],
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
  /** Of it, what is above the operator's price: the reseller's. */
  earnedNanoUsd: numeric().notNull(),
  /** What the units of packages are worth: to the account's seller, and of that the operator's share. Source: MON-21. */
  unitsNanoUsd: numeric().notNull(),
  unitsCostNanoUsd: numeric().notNull(),
  /** What providers charge the operator, and the requests of which that is not known. */
  providerCostNanoUsd: numeric().notNull(),
  costUnknown: counted(),
  /** Histograms of the time to the first event and of the whole request: see `duration_mark` in drizzle/0005_books.sql. */
  firstMarks: numeric().notNull(),
  wholeMarks: numeric().notNull(),
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

/**
 * Rollups by account without kinds, for lists of the accounts with the most usage: of everyone (scope 0), and of a reseller's
 * customers (scope: its negative id); and of resellers with all their customers (a scope of their own: `usage_rollups_store.ts`).
 */
export const usageHolders = pgTable(
  "usage_holders",
  {
    scope: bigint({ mode: "number" }).notNull(),
    begins: instant().notNull(),
    holderId: bigint({ mode: "number" }).notNull(),
    requests: counted(),
    promptTokens: counted(),
    cachedTokens: counted(),
    completionTokens: counted(),
    chargedNanoUsd: counted(),
    earnedNanoUsd: counted(),
    unitsNanoUsd: counted(),
    unitsCostNanoUsd: counted(),
    providerCostNanoUsd: counted(),
    costUnknown: counted(),
    /** In minutes: 60, or 1,440 (a UTC day). */
    span: smallint().notNull(),
  },
  (t) => [primaryKey({ columns: [t.scope, t.span, t.begins, t.holderId] })],
);

/**
 * Requests that ended with an error, by its code: counted by replicas every few seconds, in the rows of an account, of everyone
 * (account 0) and of a reseller's customers (its negative id). See `accounts/error_sums_store.ts`.
 */
export const errorSums = pgTable(
  "error_sums",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    begins: instant().notNull(),
    code: text().notNull(),
    /** "": no model of the catalog. */
    modelId: text().notNull(),
    requests: counted(),
    /** In minutes: 15, or 1,440 (a UTC day). */
    span: smallint().notNull(),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.span, t.begins, t.code, t.modelId] })],
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
    folded: snapshot().notNull().default("3:3:"),
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
    /** The last receipt whose charge was computed again. */
    pricesTo: uuid().notNull().default("00000000-0000-0000-0000-000000000000"),
    /** The last UTC day whose earnings are closed: see `earnings` in schema_markups.ts. */
    earningsTo: date({ mode: "string" }).notNull().default("-infinity"),
  },
  (t) => [check("book_closing_one_row", sql`${t.id} = 1`)],
);
