import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { bytea, id, instant, snapshot, xid8 } from "./schema_columns.ts";

/** Messages to people and to their webhooks, each written in the transaction of what it tells of. `messages/` delivers them. */
export const outboxMessages = pgTable(
  "outbox_messages",
  {
    id: id(),
    /** A `MessageKind` of `outbox_store.ts`. */
    kind: text().notNull(),
    /** Whom it concerns, and who is told unless the kind says otherwise. */
    accountId: bigint({ mode: "number" }).notNull(),
    /** What the texts need: ids, names, amounts. Secrets of links are encrypted. */
    data: jsonb().$type<Record<string, unknown>>().notNull(),
    /** Two messages with the same key are one message. */
    onceKey: text(),
    /** When its deliveries were written; null: not yet. */
    routedAt: instant(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    uniqueIndex("outbox_messages_once").on(t.onceKey).where(sql`${t.onceKey} is not null`),
    index("outbox_messages_waiting").on(t.id).where(sql`${t.routedAt} is null`),
    index("outbox_messages_account").on(t.accountId, t.id),
    index("outbox_messages_erased").on(t.id).where(sql`${t.kind} = 'account_erased'`),
  ],
);

/**
 * Whom messages go to: an e-mail address or a webhook endpoint, for one sender. A replica claims a recipient, not a message, so that
 * each recipient gets its messages one after the other.
 */
export const outboxRecipients = pgTable(
  "outbox_recipients",
  {
    id: id(),
    /** Who sends: 0 the operator, else the reseller. */
    tenantId: bigint({ mode: "number" }).notNull(),
    /** Whose address or endpoint it is: accounts take turns. Of an address that was told for several, the first. */
    accountId: bigint({ mode: "number" }).notNull(),
    channel: text({ enum: ["mail", "webhook"] }).notNull(),
    /** The e-mail address in lower case, or the id of the endpoint. */
    address: text().notNull(),
    /** When its first waiting delivery is due; a claim postpones it. null: nothing waits. */
    nextAt: instant(),
    /** Of the replica that sends now. */
    claimId: uuid(),
    /** Failed attempts in a row. */
    failures: integer().notNull().default(0),
  },
  (t) => [
    uniqueIndex("outbox_recipients_address").on(t.tenantId, t.channel, t.address),
    index("outbox_recipients_due").on(t.tenantId, t.channel, t.nextAt).where(sql`${t.nextAt} is not null`),
    check("outbox_recipients_channel", sql`${t.channel} in ('mail', 'webhook')`),
  ],
);

/** One message to one recipient. */
export const outboxDeliveries = pgTable(
  "outbox_deliveries",
  {
    id: id(),
    messageId: bigint({ mode: "number" })
      .notNull()
      .references(() => outboxMessages.id, { onDelete: "cascade" }),
    recipientId: bigint({ mode: "number" })
      .notNull()
      .references(() => outboxRecipients.id),
    /** Who is told: the account of the address or of the endpoint. */
    accountId: bigint({ mode: "number" }).notNull(),
    /** As in `outbox_recipients`. */
    tenantId: bigint({ mode: "number" }).notNull(),
    /** The endpoint of a webhook. */
    endpointId: bigint({ mode: "number" }),
    status: text({ enum: ["waiting", "sent", "failed"] })
      .notNull()
      .default("waiting"),
    attempts: integer().notNull().default(0),
    /** Why the last attempt failed. */
    error: text(),
    /** Given up after this. */
    deadlineAt: instant().notNull(),
    createdAt: instant().notNull(),
    endedAt: instant(),
  },
  (t) => [
    index("outbox_deliveries_waiting").on(t.recipientId, t.id).where(sql`${t.status} = 'waiting'`),
    index("outbox_deliveries_recipient").on(t.recipientId),
    index("outbox_deliveries_unsent").on(t.status, t.endedAt).where(sql`${t.status} <> 'sent'`),
    index("outbox_deliveries_tenant").on(t.tenantId, t.id),
    index("outbox_deliveries_endpoint").on(t.endpointId, t.id).where(sql`${t.endpointId} is not null`),
    index("outbox_deliveries_message").on(t.messageId),
    index("outbox_deliveries_ended").on(t.endedAt).where(sql`${t.endedAt} is not null`),
    check("outbox_deliveries_status", sql`${t.status} in ('waiting', 'sent', 'failed')`),
  ],
);

/** Each try to send a delivery. */
export const outboxAttempts = pgTable(
  "outbox_attempts",
  {
    id: id(),
    deliveryId: bigint({ mode: "number" })
      .notNull()
      .references(() => outboxDeliveries.id, { onDelete: "cascade" }),
    at: instant().notNull(),
    tookMs: integer().notNull(),
    ok: boolean().notNull(),
    /** The status of the answer; null: there was none. */
    status: integer(),
    /** The first bytes of the answer, or why there was none. */
    answer: text().notNull(),
  },
  (t) => [index("outbox_attempts_delivery").on(t.deliveryId, t.id)],
);

/** Addresses that accounts want to be called at. */
export const webhookEndpoints = pgTable(
  "webhook_endpoints",
  {
    id: id(),
    accountId: bigint({ mode: "number" }).notNull(),
    url: text().notNull(),
    kinds: text().array().notNull(),
    /** Signs; encrypted. */
    secretCiphertext: bytea().notNull(),
    /** The secret before the last rotation: signs too until then. */
    oldSecretCiphertext: bytea(),
    oldSecretUntil: instant(),
    enabled: boolean().notNull().default(true),
    /** Why it was switched off by the service; null: it is on, or a person switched it off. */
    pausedWhy: text(),
    failingSince: instant(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [index("webhook_endpoints_account").on(t.accountId)],
);

/** The SMTP servers of resellers. The operator's is in the configuration. */
export const mailServers = pgTable(
  "mail_servers",
  {
    resellerId: bigint({ mode: "number" }).primaryKey(),
    host: text().notNull(),
    port: integer().notNull(),
    userName: text(),
    smtpPasswordCiphertext: bytea(),
    fromAddress: text().notNull(),
    fromName: text().notNull(),
    updatedAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [check("mail_servers_port", sql`${t.port} in (25, 465, 587, 2525)`)],
);

/** Mail servers that do not answer: one row for each, until it has answered. While there is one, mails are sent one at a time, as probes. */
export const mailBreakers = pgTable("mail_breakers", {
  /** As in `outbox_recipients`. */
  tenantId: bigint({ mode: "number" }).primaryKey(),
  /** When the first attempt failed. */
  since: instant().notNull(),
  /** Probes that failed, and the attempt before them. */
  failures: integer().notNull(),
  /** Why the last one failed. */
  why: text().notNull(),
  /** When the next probe is due; a claim postpones it. */
  nextAt: instant().notNull(),
});

/** What an account does not want to be mailed. */
export const mutedMails = pgTable(
  "muted_mails",
  { accountId: bigint({ mode: "number" }).notNull(), kind: text().notNull() },
  (t) => [primaryKey({ columns: [t.accountId, t.kind] })],
);

/** What an account was mailed of what others did, in an hour that begins with the first mail. Kinds of one account begin and end together. */
export const noticeHours = pgTable(
  "notice_hours",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    /** A `MessageKind`. */
    kind: text().notNull(),
    beganAt: instant().notNull(),
    /** Mailed one by one. */
    mailed: integer().notNull(),
    /** Left for the digest at the end of the hour. */
    held: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.kind] }), index("notice_hours_began").on(t.beganAt)],
);

/** One row: when the replicas last looked for packages and balances to warn of, and after which they go on. */
export const noticeRuns = pgTable("notice_runs", {
  id: smallint().primaryKey(),
  ranAt: instant().notNull(),
  /** 0: the next run begins anew. */
  balancesAfter: bigint({ mode: "number" }).notNull().default(0),
  /** Packages are looked at in the order of their end. '-infinity': the next run begins anew. */
  packagesAfterEnd: instant().notNull().default(sql`'-infinity'`),
  packagesAfter: bigint({ mode: "number" }).notNull().default(0),
});

/** Accounts that were told that their balance is low, until it is not low any more. */
export const toldLowBalances = pgTable("told_low_balances", { accountId: bigint({ mode: "number" }).primaryKey() });

/** How far receipts are exported to the operator's own warehouse. One row: `books/receipt_export_store.ts`. */
export const receiptExport = pgTable(
  "receipt_export",
  {
    id: smallint().primaryKey().default(1),
    /** The receipts that this snapshot sees were delivered. Of the transaction `sentWithin`, which it does not see, those up to `sentTo`. */
    sent: snapshot().notNull().default("3:3:"),
    sentWithin: xid8(),
    sentTo: uuid(),
    /** The batch that is being delivered: its id, and what will have been delivered after it. null: none is planned. */
    batchId: uuid(),
    planned: snapshot(),
    plannedWithin: xid8(),
    plannedTo: uuid(),
    plannedAt: instant(),
    /** Batches planned so far. */
    batches: bigint({ mode: "number" }).notNull().default(0),
    /** Receipts delivered so far; those that were sent twice count once. */
    receipts: bigint({ mode: "number" }).notNull().default(0),
    /** The server of these transaction ids: a restored backup is on another one. */
    server: text().notNull().default(""),
    /** Who sends, and when another may: a claim that was not ended ends then. */
    claimId: uuid(),
    dueAt: instant().notNull().default("-infinity"),
    /** Failures since the last success, and the last one in words. */
    failures: integer().notNull().default(0),
    failure: text(),
  },
  (t) => [
    check("receipt_export_one_row", sql`${t.id} = 1`),
    check("receipt_export_planned", sql`(${t.batchId} is null) = (${t.planned} is null)`),
  ],
);
