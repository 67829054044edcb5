-- The management API: its tokens, and its writes that carry an Idempotency-Key.
CREATE TABLE "api_tokens" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "api_tokens_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL,
	"made_by" bigint,
	"name" text NOT NULL,
	"digest" "bytea" NOT NULL,
	"prefix" text NOT NULL,
	"scopes" text[] NOT NULL,
	"networks" text[],
	"status" text DEFAULT 'active' NOT NULL,
	"expires_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"last_used_at" timestamp with time zone,
	"revoked_at" timestamp with time zone,
	CONSTRAINT "api_tokens_digest_unique" UNIQUE("digest"),
	CONSTRAINT "api_tokens_status" CHECK ("api_tokens"."status" in ('active', 'revoked'))
);
--> statement-breakpoint
CREATE TABLE "api_writes" (
	"account_id" bigint NOT NULL,
	"write_key" text NOT NULL,
	"body_digest" "bytea" NOT NULL,
	"request_id" uuid NOT NULL,
	"claimed_until" timestamp with time zone NOT NULL,
	"committed_at" timestamp with time zone,
	"answer_ciphertext" "bytea",
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "api_writes_account_id_write_key_pk" PRIMARY KEY("account_id","write_key")
);
--> statement-breakpoint
ALTER TABLE "api_tokens" ADD CONSTRAINT "api_tokens_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
CREATE INDEX "api_tokens_account" ON "api_tokens" USING btree ("account_id","id");
--> statement-breakpoint
CREATE INDEX "api_writes_age" ON "api_writes" USING btree ("created_at");
--> statement-breakpoint

-- A use of a token is no change.
CREATE TRIGGER api_tokens_changed AFTER INSERT OR DELETE OR UPDATE OF name, scopes, networks, status, expires_at ON api_tokens FOR EACH ROW EXECUTE FUNCTION note_change('session', 'account_id');
--> statement-breakpoint
CREATE TRIGGER api_tokens_audit AFTER INSERT OR DELETE OR UPDATE OF name, scopes, networks, status, expires_at ON api_tokens FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'name');