-- Passkeys and changes of e-mail addresses.
CREATE TABLE "passkeys" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "passkeys_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL REFERENCES "accounts"("id"),
	"host" text NOT NULL,
	"credential_id" "bytea" NOT NULL,
	"public_key" "bytea" NOT NULL,
	"counter" bigint NOT NULL,
	"transports" text[] NOT NULL,
	"name" text NOT NULL,
	"synced" boolean NOT NULL,
	"cloned_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"last_used_at" timestamp with time zone,
	CONSTRAINT "passkeys_counter" CHECK ("passkeys"."counter" between 0 and 4294967295)
);
--> statement-breakpoint
CREATE UNIQUE INDEX "passkeys_credential" ON "passkeys" USING btree ("host","credential_id");
--> statement-breakpoint
CREATE INDEX "passkeys_account" ON "passkeys" USING btree ("account_id");
--> statement-breakpoint
CREATE TABLE "used_challenges" (
	"digest" "bytea" PRIMARY KEY NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE INDEX "used_challenges_expiry" ON "used_challenges" USING btree ("expires_at");
--> statement-breakpoint
CREATE TABLE "email_changes" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "email_changes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL REFERENCES "accounts"("id"),
	"old_email" text NOT NULL,
	"new_email" text NOT NULL,
	"old_digest" "bytea" NOT NULL,
	"new_digest" "bytea" NOT NULL,
	"session_digest" "bytea" NOT NULL,
	"old_confirmed_at" timestamp with time zone,
	"new_confirmed_at" timestamp with time zone,
	"outcome" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "email_changes_outcome" CHECK ("email_changes"."outcome" in ('changed', 'cancelled', 'replaced'))
);
--> statement-breakpoint
CREATE UNIQUE INDEX "email_changes_old" ON "email_changes" USING btree ("old_digest");
--> statement-breakpoint
CREATE UNIQUE INDEX "email_changes_new" ON "email_changes" USING btree ("new_digest");
--> statement-breakpoint
CREATE UNIQUE INDEX "email_changes_pending" ON "email_changes" USING btree ("account_id") WHERE "email_changes"."outcome" is null;
--> statement-breakpoint
CREATE INDEX "email_changes_account" ON "email_changes" USING btree ("account_id","created_at");
--> statement-breakpoint
-- A use of a passkey is no change; that its counter went back is one.
CREATE TRIGGER passkeys_audit AFTER INSERT OR DELETE OR UPDATE OF name, cloned_at ON passkeys FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'name,host');
--> statement-breakpoint
-- Its rows are deleted only when they are old.
CREATE TRIGGER email_changes_audit AFTER INSERT OR UPDATE ON email_changes FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'new_email');
