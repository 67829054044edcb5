-- Passkeys, changes of e-mail addresses, sign-up, members, and identity providers.
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
CREATE INDEX "email_changes_address" ON "email_changes" USING btree ("new_email","created_at");
--> statement-breakpoint
-- A use of a passkey is no change; that its counter went back is one.
CREATE TRIGGER passkeys_audit AFTER INSERT OR DELETE OR UPDATE OF name, cloned_at ON passkeys FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'name,host');
--> statement-breakpoint
-- Its rows are deleted only when they are old.
CREATE TRIGGER email_changes_audit AFTER INSERT OR UPDATE ON email_changes FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'new_email');
--> statement-breakpoint
CREATE TABLE "sign_up_settings" (
	"seller_id" bigint PRIMARY KEY NOT NULL,
	"is_open" boolean DEFAULT false NOT NULL,
	"terms_url" text,
	"privacy_url" text,
	"trial_offering_id" bigint,
	"trial_nano_usd" bigint,
	"trial_pay_with" text DEFAULT 'balance' NOT NULL,
	"allowed_domains" text[] DEFAULT '{}' NOT NULL,
	"forbidden_domains" text[] DEFAULT '{}' NOT NULL,
	"disposable_allowed" boolean DEFAULT false NOT NULL,
	"updated_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "sign_up_settings_seller" CHECK ("sign_up_settings"."seller_id" >= 0),
	CONSTRAINT "sign_up_settings_open" CHECK (not "sign_up_settings"."is_open" or ("sign_up_settings"."terms_url" is not null and "sign_up_settings"."privacy_url" is not null)),
	CONSTRAINT "sign_up_settings_trial" CHECK ("sign_up_settings"."trial_offering_id" is null or "sign_up_settings"."trial_nano_usd" is null),
	CONSTRAINT "sign_up_settings_pay_with" CHECK ("sign_up_settings"."trial_pay_with" in ('balance', 'allotment'))
);
--> statement-breakpoint
CREATE TABLE "sign_ups" (
	"digest" "bytea" PRIMARY KEY NOT NULL,
	"seller_id" bigint NOT NULL,
	"email" text NOT NULL,
	"name" text NOT NULL,
	"language" text,
	"terms_url" text NOT NULL,
	"privacy_url" text NOT NULL,
	"accepted_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"is_known" boolean NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "sign_ups_seller" CHECK ("sign_ups"."seller_id" >= 0)
);
--> statement-breakpoint
CREATE TABLE "signed_up" (
	"account_id" bigint PRIMARY KEY NOT NULL,
	"seller_id" bigint NOT NULL,
	"terms_url" text NOT NULL,
	"privacy_url" text NOT NULL,
	"accepted_at" timestamp with time zone NOT NULL,
	"confirmed_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"person_digest" "bytea" NOT NULL,
	"owned_domain" text,
	"trial" text NOT NULL,
	"trial_offering_id" bigint,
	"trial_nano_usd" bigint,
	"trial_pay_with" text,
	"trial_why" text,
	"trial_try_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"trial_given_at" timestamp with time zone,
	CONSTRAINT "signed_up_trial" CHECK ("signed_up"."trial" in ('none', 'taken', 'domain', 'waits', 'given')),
	CONSTRAINT "signed_up_trial_is_something" CHECK ("signed_up"."trial" in ('none', 'taken', 'domain') or num_nonnulls("signed_up"."trial_offering_id", "signed_up"."trial_nano_usd") = 1),
	CONSTRAINT "signed_up_trial_why" CHECK ("signed_up"."trial_why" in ('balance', 'allotment', 'offering', 'payg')),
	CONSTRAINT "signed_up_trial_pay_with" CHECK ("signed_up"."trial_pay_with" in ('balance', 'allotment'))
);
--> statement-breakpoint
ALTER TABLE "sign_up_settings" ADD CONSTRAINT "sign_up_settings_trial_offering_id_offerings_id_fk" FOREIGN KEY ("trial_offering_id") REFERENCES "public"."offerings"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "signed_up" ADD CONSTRAINT "signed_up_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "signed_up" ADD CONSTRAINT "signed_up_trial_offering_id_offerings_id_fk" FOREIGN KEY ("trial_offering_id") REFERENCES "public"."offerings"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
CREATE INDEX "sign_ups_email" ON "sign_ups" USING btree ("seller_id","email","accepted_at");
--> statement-breakpoint
CREATE INDEX "sign_ups_expiry" ON "sign_ups" USING btree ("expires_at");
--> statement-breakpoint
CREATE UNIQUE INDEX "signed_up_trial_once" ON "signed_up" USING btree ("seller_id","person_digest") WHERE "signed_up"."trial" in ('waits', 'given');
--> statement-breakpoint
CREATE INDEX "signed_up_domain" ON "signed_up" USING btree ("seller_id","owned_domain","confirmed_at") WHERE "signed_up"."owned_domain" is not null;
--> statement-breakpoint
CREATE INDEX "signed_up_seller" ON "signed_up" USING btree ("seller_id","account_id");
--> statement-breakpoint
CREATE INDEX "signed_up_offering" ON "signed_up" USING btree ("trial_offering_id") WHERE "signed_up"."trial_offering_id" is not null;
--> statement-breakpoint
CREATE INDEX "signed_up_waiting" ON "signed_up" USING btree ("trial_try_at") WHERE "signed_up"."trial" = 'waits';
--> statement-breakpoint
CREATE TRIGGER sign_up_settings_audit AFTER INSERT OR DELETE OR UPDATE ON sign_up_settings FOR EACH ROW EXECUTE FUNCTION note_audit('seller_id', 'seller_id');
--> statement-breakpoint
-- Requests that nobody has confirmed are no changes: strangers would fill the log.
CREATE TRIGGER signed_up_audit AFTER INSERT OR DELETE OR UPDATE OF trial ON signed_up FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id');
--> statement-breakpoint
CREATE TABLE "members" (
	"account_id" bigint NOT NULL,
	"person_id" bigint NOT NULL,
	"role" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "members_account_id_person_id_pk" PRIMARY KEY("account_id","person_id"),
	CONSTRAINT "members_role" CHECK ("members"."role" in ('owner', 'developer', 'billing', 'viewer'))
);
--> statement-breakpoint
CREATE TABLE "member_invitations" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "member_invitations_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL,
	"email" text NOT NULL,
	"role" text NOT NULL,
	"digest" "bytea" NOT NULL,
	"created_by" bigint,
	"outcome" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "member_invitations_digest_unique" UNIQUE("digest"),
	CONSTRAINT "member_invitations_role" CHECK ("member_invitations"."role" in ('owner', 'developer', 'billing', 'viewer')),
	CONSTRAINT "member_invitations_outcome" CHECK ("member_invitations"."outcome" in ('accepted', 'revoked', 'replaced'))
);
--> statement-breakpoint
ALTER TABLE "members" ADD CONSTRAINT "members_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "members" ADD CONSTRAINT "members_person_id_accounts_id_fk" FOREIGN KEY ("person_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "member_invitations" ADD CONSTRAINT "member_invitations_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
CREATE INDEX "members_person" ON "members" USING btree ("person_id");
--> statement-breakpoint
CREATE INDEX "member_invitations_account" ON "member_invitations" USING btree ("account_id","id");
--> statement-breakpoint
CREATE INDEX "member_invitations_email" ON "member_invitations" USING btree ("email","created_at");
--> statement-breakpoint
CREATE INDEX "member_invitations_age" ON "member_invitations" USING btree ("created_at");
--> statement-breakpoint
-- Whoever begins an account is its owner. A trigger, so that no writer can forget it.
CREATE FUNCTION add_first_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO members (account_id, person_id, role) VALUES (NEW.id, NEW.id, 'owner');
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER accounts_first_owner AFTER INSERT ON accounts FOR EACH ROW WHEN (NOT NEW.only_person) EXECUTE FUNCTION add_first_owner();
--> statement-breakpoint
CREATE TRIGGER members_changed AFTER INSERT OR DELETE OR UPDATE ON members FOR EACH ROW EXECUTE FUNCTION note_change('session', 'person_id');
--> statement-breakpoint
-- The first owner is the new account itself.
CREATE TRIGGER members_added_audit AFTER INSERT ON members FOR EACH ROW WHEN (NEW.account_id <> NEW.person_id) EXECUTE FUNCTION note_audit('person_id', 'account_id', 'person_id,role');
--> statement-breakpoint
CREATE TRIGGER members_audit AFTER DELETE OR UPDATE ON members FOR EACH ROW EXECUTE FUNCTION note_audit('person_id', 'account_id', 'person_id,role');
--> statement-breakpoint
-- Its rows are deleted only when they are old.
CREATE TRIGGER member_invitations_audit AFTER INSERT OR UPDATE ON member_invitations FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'email,role');
--> statement-breakpoint
CREATE TABLE "identities" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "identities_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"identity_provider_id" bigint NOT NULL,
	"subject" text NOT NULL,
	"account_id" bigint NOT NULL,
	"email" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"last_used_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "identity_providers" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "identity_providers_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"seller_id" bigint NOT NULL,
	"kind" text NOT NULL,
	"name" text NOT NULL,
	"issuer" text NOT NULL,
	"client_id" text NOT NULL,
	"secret_ciphertext" "bytea" NOT NULL,
	"scopes" text NOT NULL,
	"mail_domains" text[] DEFAULT '{}' NOT NULL,
	"proof_token" text NOT NULL,
	"proved_domains" text[] DEFAULT '{}' NOT NULL,
	"checked_at" timestamp with time zone,
	"failing_since" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"account_id" bigint,
	"role_claim" text,
	"roles" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"enabled" boolean DEFAULT true NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "identity_providers_seller" CHECK ("identity_providers"."seller_id" >= 0),
	CONSTRAINT "identity_providers_kind" CHECK ("identity_providers"."kind" in ('oidc', 'google', 'github')),
	CONSTRAINT "identity_providers_roles" CHECK (("identity_providers"."account_id" is null) = ("identity_providers"."role_claim" is null))
);
--> statement-breakpoint
CREATE TABLE "identity_sign_ins" (
	"digest" "bytea" PRIMARY KEY NOT NULL,
	"identity_provider_id" bigint NOT NULL,
	"host" text NOT NULL,
	"session_digest" "bytea",
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "identities" ADD CONSTRAINT "identities_identity_provider_id_identity_providers_id_fk" FOREIGN KEY ("identity_provider_id") REFERENCES "public"."identity_providers"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "identities" ADD CONSTRAINT "identities_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "identity_providers" ADD CONSTRAINT "identity_providers_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "identity_sign_ins" ADD CONSTRAINT "identity_sign_ins_identity_provider_id_identity_providers_id_fk" FOREIGN KEY ("identity_provider_id") REFERENCES "public"."identity_providers"("id") ON DELETE cascade ON UPDATE no action;
--> statement-breakpoint
CREATE UNIQUE INDEX "identities_subject" ON "identities" USING btree ("identity_provider_id","subject");
--> statement-breakpoint
CREATE UNIQUE INDEX "identities_account" ON "identities" USING btree ("account_id","identity_provider_id");
--> statement-breakpoint
CREATE UNIQUE INDEX "identity_providers_name" ON "identity_providers" USING btree ("seller_id","name");
--> statement-breakpoint
CREATE INDEX "identity_providers_account" ON "identity_providers" USING btree ("account_id") WHERE "identity_providers"."account_id" is not null;
--> statement-breakpoint
CREATE INDEX "identity_providers_checked" ON "identity_providers" USING btree ("checked_at") WHERE "identity_providers"."proved_domains" <> '{}';
--> statement-breakpoint
CREATE INDEX "identity_sign_ins_expiry" ON "identity_sign_ins" USING btree ("expires_at");
--> statement-breakpoint
CREATE INDEX "identity_sign_ins_provider" ON "identity_sign_ins" USING btree ("identity_provider_id");
--> statement-breakpoint
CREATE TRIGGER identity_providers_audit AFTER INSERT OR DELETE OR UPDATE ON identity_providers FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'seller_id', 'name');
--> statement-breakpoint
-- A sign-in is no change.
CREATE TRIGGER identities_audit AFTER INSERT OR DELETE ON identities FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'email,identity_provider_id');
