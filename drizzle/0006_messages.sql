-- The outbox of messages.
CREATE TABLE "outbox_messages" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "outbox_messages_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"kind" text NOT NULL,
	"account_id" bigint NOT NULL,
	"data" jsonb NOT NULL,
	"once_key" text,
	"routed_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX "outbox_messages_once" ON "outbox_messages" USING btree ("once_key") WHERE "outbox_messages"."once_key" is not null;
--> statement-breakpoint
CREATE INDEX "outbox_messages_waiting" ON "outbox_messages" USING btree ("id") WHERE "outbox_messages"."routed_at" is null;
--> statement-breakpoint
CREATE INDEX "outbox_messages_account" ON "outbox_messages" USING btree ("account_id","id");
--> statement-breakpoint
CREATE INDEX "outbox_messages_erased" ON "outbox_messages" USING btree ("id") WHERE "outbox_messages"."kind" = 'account_erased';
--> statement-breakpoint
CREATE TABLE "outbox_recipients" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "outbox_recipients_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"tenant_id" bigint NOT NULL,
	"account_id" bigint NOT NULL,
	"channel" text NOT NULL,
	"address" text NOT NULL,
	"next_at" timestamp with time zone,
	"claim_id" uuid,
	"failures" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "outbox_recipients_channel" CHECK ("outbox_recipients"."channel" in ('mail', 'webhook'))
);
--> statement-breakpoint
CREATE UNIQUE INDEX "outbox_recipients_address" ON "outbox_recipients" USING btree ("tenant_id","channel","address");
--> statement-breakpoint
CREATE INDEX "outbox_recipients_due" ON "outbox_recipients" USING btree ("tenant_id","channel","next_at") WHERE "outbox_recipients"."next_at" is not null;
--> statement-breakpoint
CREATE TABLE "outbox_deliveries" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "outbox_deliveries_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"message_id" bigint NOT NULL REFERENCES "outbox_messages"("id") ON DELETE CASCADE,
	"recipient_id" bigint NOT NULL REFERENCES "outbox_recipients"("id"),
	"account_id" bigint NOT NULL,
	"tenant_id" bigint NOT NULL,
	"endpoint_id" bigint,
	"status" text DEFAULT 'waiting' NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL,
	"error" text,
	"deadline_at" timestamp with time zone NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"ended_at" timestamp with time zone,
	CONSTRAINT "outbox_deliveries_status" CHECK ("outbox_deliveries"."status" in ('waiting', 'sent', 'failed'))
);
--> statement-breakpoint
CREATE INDEX "outbox_deliveries_waiting" ON "outbox_deliveries" USING btree ("recipient_id","id") WHERE "outbox_deliveries"."status" = 'waiting';
--> statement-breakpoint
CREATE INDEX "outbox_deliveries_recipient" ON "outbox_deliveries" USING btree ("recipient_id");
--> statement-breakpoint
CREATE INDEX "outbox_deliveries_unsent" ON "outbox_deliveries" USING btree ("status","ended_at") WHERE "outbox_deliveries"."status" <> 'sent';
--> statement-breakpoint
CREATE INDEX "outbox_deliveries_tenant" ON "outbox_deliveries" USING btree ("tenant_id","id");
--> statement-breakpoint
CREATE INDEX "outbox_deliveries_endpoint" ON "outbox_deliveries" USING btree ("endpoint_id","id") WHERE "outbox_deliveries"."endpoint_id" is not null;
--> statement-breakpoint
CREATE INDEX "outbox_deliveries_message" ON "outbox_deliveries" USING btree ("message_id");
--> statement-breakpoint
CREATE INDEX "outbox_deliveries_ended" ON "outbox_deliveries" USING btree ("ended_at") WHERE "outbox_deliveries"."ended_at" is not null;
--> statement-breakpoint
CREATE TABLE "outbox_attempts" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "outbox_attempts_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"delivery_id" bigint NOT NULL REFERENCES "outbox_deliveries"("id") ON DELETE CASCADE,
	"at" timestamp with time zone NOT NULL,
	"took_ms" integer NOT NULL,
	"ok" boolean NOT NULL,
	"status" integer,
	"answer" text NOT NULL
);
--> statement-breakpoint
CREATE INDEX "outbox_attempts_delivery" ON "outbox_attempts" USING btree ("delivery_id","id");
--> statement-breakpoint
CREATE TABLE "webhook_endpoints" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "webhook_endpoints_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL,
	"url" text NOT NULL,
	"kinds" text[] NOT NULL,
	"secret_ciphertext" "bytea" NOT NULL,
	"old_secret_ciphertext" "bytea",
	"old_secret_until" timestamp with time zone,
	"enabled" boolean DEFAULT true NOT NULL,
	"paused_why" text,
	"failing_since" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE INDEX "webhook_endpoints_account" ON "webhook_endpoints" USING btree ("account_id");
--> statement-breakpoint
CREATE TABLE "mail_servers" (
	"reseller_id" bigint PRIMARY KEY NOT NULL,
	"host" text NOT NULL,
	"port" integer NOT NULL,
	"user_name" text,
	"smtp_password_ciphertext" "bytea",
	"from_address" text NOT NULL,
	"from_name" text NOT NULL,
	"updated_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "mail_servers_port" CHECK ("mail_servers"."port" in (25, 465, 587, 2525))
);
--> statement-breakpoint
CREATE TABLE "mail_breakers" (
	"tenant_id" bigint PRIMARY KEY NOT NULL,
	"since" timestamp with time zone NOT NULL,
	"failures" integer NOT NULL,
	"why" text NOT NULL,
	"next_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "muted_mails" (
	"account_id" bigint NOT NULL,
	"kind" text NOT NULL,
	CONSTRAINT "muted_mails_account_id_kind_pk" PRIMARY KEY("account_id","kind")
);
--> statement-breakpoint
CREATE TABLE "notice_hours" (
	"account_id" bigint NOT NULL,
	"kind" text NOT NULL,
	"began_at" timestamp with time zone NOT NULL,
	"mailed" integer NOT NULL,
	"held" integer NOT NULL,
	CONSTRAINT "notice_hours_account_id_kind_pk" PRIMARY KEY("account_id","kind")
);
--> statement-breakpoint
CREATE TABLE "notice_runs" (
	"id" smallint PRIMARY KEY NOT NULL,
	"ran_at" timestamp with time zone NOT NULL,
	"balances_after" bigint DEFAULT 0 NOT NULL,
	"packages_after_end" timestamp with time zone DEFAULT '-infinity' NOT NULL,
	"packages_after" bigint DEFAULT 0 NOT NULL
);
--> statement-breakpoint
INSERT INTO "notice_runs" ("id", "ran_at") VALUES (1, 'epoch');
--> statement-breakpoint
CREATE TRIGGER webhook_endpoints_audit AFTER INSERT OR DELETE OR UPDATE OF url, kinds, secret_ciphertext, enabled, paused_why ON webhook_endpoints FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER mail_servers_audit AFTER INSERT OR DELETE OR UPDATE ON mail_servers FOR EACH ROW EXECUTE FUNCTION note_audit('reseller_id', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER muted_mails_audit AFTER INSERT OR DELETE ON muted_mails FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id', 'kind');
--> statement-breakpoint
CREATE INDEX "notice_hours_began" ON "notice_hours" USING btree ("began_at");
--> statement-breakpoint
CREATE INDEX "packages_ends" ON "packages" USING btree ("ends_at","id");
--> statement-breakpoint
CREATE TABLE "told_low_balances" (
	"account_id" bigint PRIMARY KEY NOT NULL
);
--> statement-breakpoint
-- How far receipts are exported.
CREATE TABLE "receipt_export" (
	"id" smallint PRIMARY KEY DEFAULT 1 NOT NULL,
	"sent" "pg_snapshot" DEFAULT '3:3:' NOT NULL,
	"sent_within" "xid8",
	"sent_to" uuid,
	"batch_id" uuid,
	"planned" "pg_snapshot",
	"planned_within" "xid8",
	"planned_to" uuid,
	"planned_at" timestamp with time zone,
	"batches" bigint DEFAULT 0 NOT NULL,
	"receipts" bigint DEFAULT 0 NOT NULL,
	"server" text DEFAULT '' NOT NULL,
	"claim_id" uuid,
	"due_at" timestamp with time zone DEFAULT '-infinity' NOT NULL,
	"failures" integer DEFAULT 0 NOT NULL,
	"failure" text,
	CONSTRAINT "receipt_export_one_row" CHECK ("receipt_export"."id" = 1),
	CONSTRAINT "receipt_export_planned" CHECK (("receipt_export"."batch_id" is null) = ("receipt_export"."planned" is null))
);
--> statement-breakpoint
INSERT INTO receipt_export DEFAULT VALUES;
