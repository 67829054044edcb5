CREATE TABLE "accounts" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "accounts_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"role" text NOT NULL,
	"reseller_id" bigint,
	"email" text NOT NULL,
	"name" text NOT NULL,
	"language" text,
	"only_person" boolean DEFAULT false NOT NULL,
	"status" text DEFAULT 'active' NOT NULL,
	"suspended_by_operator" boolean DEFAULT false NOT NULL,
	"may_switch_payg" boolean DEFAULT false NOT NULL,
	"limits" jsonb,
	"password_hash" text,
	"totp_ciphertext" "bytea",
	"totp_enabled_at" timestamp with time zone,
	"totp_last_step" bigint DEFAULT 0 NOT NULL,
	"notice_units_percent" integer DEFAULT 20 NOT NULL,
	"notice_balance_nano_usd" bigint DEFAULT 1000000000 NOT NULL,
	"notice_days" integer DEFAULT 3 NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"erased_at" timestamp with time zone,
	CONSTRAINT "accounts_notices" CHECK ("accounts"."notice_units_percent" between 0 and 100 and "accounts"."notice_balance_nano_usd" >= 0 and "accounts"."notice_days" between 0 and 30),
	CONSTRAINT "accounts_limits" CHECK (jsonb_typeof("accounts"."limits") = 'object' and not jsonb_path_exists("accounts"."limits", '$.** ? (@.type() == "number" && (@ < 1 || @ > 1000000000))')),
	CONSTRAINT "accounts_role" CHECK ("accounts"."role" in ('customer', 'reseller', 'admin')),
	CONSTRAINT "accounts_status" CHECK ("accounts"."status" in ('active', 'suspended')),
	CONSTRAINT "accounts_erased" CHECK ("accounts"."erased_at" is null or "accounts"."status" = 'suspended'),
	CONSTRAINT "accounts_only_customers_belong" CHECK ("accounts"."reseller_id" is null or "accounts"."role" = 'customer'),
	CONSTRAINT "accounts_only_resellers_switch_payg" CHECK (not "accounts"."may_switch_payg" or "accounts"."role" = 'reseller')
);
--> statement-breakpoint
CREATE TABLE "allotments" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "allotments_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"reseller_id" bigint NOT NULL,
	"offering_id" bigint NOT NULL,
	"granted" integer NOT NULL,
	"used" integer DEFAULT 0 NOT NULL,
	"reason" text,
	"actor_id" bigint,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "allotments_pieces" CHECK ("allotments"."granted" between 0 and 100000 and "allotments"."used" between 0 and "allotments"."granted")
);
--> statement-breakpoint
CREATE TABLE "audit_entries" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "audit_entries_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"actor_id" bigint,
	"token_id" bigint,
	"request_id" uuid,
	"action" text NOT NULL,
	"subject" text NOT NULL,
	"subject_id" text NOT NULL,
	"account_id" bigint,
	"before" jsonb,
	"after" jsonb,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "balance_entries" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "balance_entries_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL,
	"amount_nano_usd" bigint NOT NULL,
	"kind" text NOT NULL,
	"request_id" uuid,
	"package_id" bigint,
	"counterpart_id" bigint,
	"reason" text,
	"actor_id" bigint,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"written_in" "xid8" DEFAULT pg_current_xact_id() NOT NULL,
	CONSTRAINT "balance_entries_kind" CHECK ("balance_entries"."kind" in ('top_up', 'charge', 'wholesale', 'package', 'transfer', 'correction', 'refund', 'earning'))
);
--> statement-breakpoint
CREATE TABLE "balances" (
	"account_id" bigint PRIMARY KEY NOT NULL,
	"balance_nano_usd" bigint DEFAULT 0 NOT NULL,
	"held_nano_usd" bigint DEFAULT 0 NOT NULL,
	"payg_enabled" boolean DEFAULT false NOT NULL,
	"tokens_used" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "balances_cover_holds" CHECK ("balances"."held_nano_usd" >= 0 and "balances"."balance_nano_usd" >= "balances"."held_nano_usd"),
	CONSTRAINT "balances_range" CHECK ("balances"."balance_nano_usd" <= 9000000000000000)
);
--> statement-breakpoint
CREATE TABLE "book_checks" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "book_checks_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"checked_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"took_ms" integer NOT NULL,
	"results" jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "book_closing" (
	"id" smallint PRIMARY KEY DEFAULT 1 NOT NULL,
	"folded" "pg_snapshot" DEFAULT '3:3:' NOT NULL,
	"server" text DEFAULT '' NOT NULL,
	"receipts_to" bigint DEFAULT -1 NOT NULL,
	"entries_to" bigint DEFAULT -1 NOT NULL,
	"packages_to" bigint DEFAULT 0 NOT NULL,
	"keys_to" bigint DEFAULT 0 NOT NULL,
	"key_days_to" date DEFAULT '-infinity' NOT NULL,
	"accounts_to" bigint DEFAULT 0 NOT NULL,
	"usage_to" bigint DEFAULT 0 NOT NULL,
	"usage_days_to" date DEFAULT 'infinity' NOT NULL,
	"prices_to" uuid DEFAULT '00000000-0000-0000-0000-000000000000' NOT NULL,
	"earnings_to" date DEFAULT '-infinity' NOT NULL,
	CONSTRAINT "book_closing_one_row" CHECK ("book_closing"."id" = 1)
);
--> statement-breakpoint
CREATE TABLE "book_due" (
	"kind" text NOT NULL,
	"id" bigint NOT NULL,
	"day" date DEFAULT '-infinity' NOT NULL,
	"request_id" uuid DEFAULT '00000000-0000-0000-0000-000000000000' NOT NULL,
	CONSTRAINT "book_due_kind_id_day_request_id_pk" PRIMARY KEY("kind","id","day","request_id")
);
--> statement-breakpoint
CREATE TABLE "book_sums" (
	"kind" text NOT NULL,
	"id" bigint NOT NULL,
	"day" date DEFAULT '-infinity' NOT NULL,
	"rows" bigint NOT NULL,
	"units" numeric DEFAULT '0' NOT NULL,
	"tokens" numeric DEFAULT '0' NOT NULL,
	"nano_usd" numeric DEFAULT '0' NOT NULL,
	"digest" numeric DEFAULT '0' NOT NULL,
	CONSTRAINT "book_sums_kind_id_day_pk" PRIMARY KEY("kind","id","day")
);
--> statement-breakpoint
CREATE TABLE "bound_uses" (
	"model_id" text NOT NULL,
	"day" date NOT NULL,
	"part" text NOT NULL,
	"bounds" text NOT NULL,
	"requests" bigint NOT NULL,
	"overruns" bigint NOT NULL,
	"most_permille" integer NOT NULL,
	CONSTRAINT "bound_uses_model_id_day_part_bounds_pk" PRIMARY KEY("model_id","day","part","bounds"),
	CONSTRAINT "bound_uses_part" CHECK ("bound_uses"."part" in ('text', 'overhead', 'images', 'files', 'output'))
);
--> statement-breakpoint
CREATE TABLE "brands" (
	"reseller_id" bigint PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"accent" text,
	"css" text DEFAULT '' NOT NULL,
	"support" text,
	"language" text,
	"logo_light" "bytea",
	"logo_dark" "bytea",
	"icon" "bytea",
	"icon_own" boolean DEFAULT false NOT NULL,
	"version" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "changes" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "changes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"xid" "xid8" DEFAULT pg_current_xact_id() NOT NULL,
	"kind" text NOT NULL,
	"ref" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "epochs" (
	"account_id" bigint PRIMARY KEY NOT NULL,
	"epoch" bigint NOT NULL
);
--> statement-breakpoint
CREATE TABLE "error_sums" (
	"account_id" bigint NOT NULL,
	"begins" timestamp with time zone NOT NULL,
	"code" text NOT NULL,
	"model_id" text NOT NULL,
	"requests" bigint NOT NULL,
	"span" smallint NOT NULL,
	CONSTRAINT "error_sums_account_id_span_begins_code_model_id_pk" PRIMARY KEY("account_id","span","begins","code","model_id")
);
--> statement-breakpoint
CREATE TABLE "escrows" (
	"account_id" bigint NOT NULL,
	"lease_id" uuid NOT NULL,
	"package_id" bigint NOT NULL,
	"key_id" bigint NOT NULL,
	"day" date NOT NULL,
	"draw_number" bigint NOT NULL,
	"units" integer NOT NULL,
	"tokens" bigint NOT NULL,
	"nano_usd" bigint NOT NULL,
	"idle_units" integer NOT NULL,
	"idle_nano_usd" bigint NOT NULL,
	"used_tokens" bigint DEFAULT 0 NOT NULL,
	"epoch" bigint NOT NULL,
	"tenant_epoch" bigint NOT NULL,
	"recalled" boolean DEFAULT false NOT NULL,
	CONSTRAINT "escrows_account_id_lease_id_package_id_key_id_day_pk" PRIMARY KEY("account_id","lease_id","package_id","key_id","day"),
	CONSTRAINT "escrows_amounts" CHECK ("escrows"."units" >= 0 and "escrows"."tokens" >= 0 and "escrows"."nano_usd" >= 0)
);
--> statement-breakpoint
CREATE TABLE "hosts" (
	"host" text NOT NULL,
	"reseller_id" bigint NOT NULL,
	"status" text NOT NULL,
	"token" text DEFAULT replace(gen_random_uuid()::text, '-', '') NOT NULL,
	"activated_at" timestamp with time zone,
	"checked_at" timestamp with time zone,
	"next_check_at" timestamp with time zone,
	"failures" integer DEFAULT 0 NOT NULL,
	"report" jsonb,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "hosts_host_reseller_id_pk" PRIMARY KEY("host","reseller_id"),
	CONSTRAINT "hosts_status" CHECK ("hosts"."status" in ('pending', 'verifying', 'active', 'failed', 'suspended', 'removed'))
);
--> statement-breakpoint
CREATE TABLE "image_prices" (
	"model_id" text NOT NULL,
	"size" text NOT NULL,
	"quality" text DEFAULT 'standard' NOT NULL,
	"micro_usd" bigint NOT NULL,
	CONSTRAINT "image_prices_model_id_size_quality_pk" PRIMARY KEY("model_id","size","quality"),
	CONSTRAINT "image_prices_range" CHECK ("image_prices"."micro_usd" between 0 and 1000000000),
	CONSTRAINT "image_prices_quality" CHECK ("image_prices"."quality" ~ '^[a-z0-9_-]{1,20}$')
);
--> statement-breakpoint
CREATE TABLE "key_days" (
	"key_id" bigint NOT NULL,
	"day" date NOT NULL,
	"units_taken" integer DEFAULT 0 NOT NULL,
	"taken_nano_usd" bigint DEFAULT 0 NOT NULL,
	"units_before" integer DEFAULT 0 NOT NULL,
	"nano_usd_before" bigint DEFAULT 0 NOT NULL,
	"overrun_nano_usd" bigint DEFAULT 0 NOT NULL,
	"units_max" integer DEFAULT 2147483647 NOT NULL,
	"spend_max_nano_usd" bigint DEFAULT 9223372036854775807 NOT NULL,
	CONSTRAINT "key_days_key_id_day_pk" PRIMARY KEY("key_id","day"),
	CONSTRAINT "key_days_units_max" CHECK ("key_days"."units_taken" + "key_days"."units_before" <= "key_days"."units_max"),
	CONSTRAINT "key_days_spend_max" CHECK ("key_days"."taken_nano_usd" + "key_days"."nano_usd_before" - "key_days"."overrun_nano_usd" <= "key_days"."spend_max_nano_usd"),
	CONSTRAINT "key_days_counts" CHECK ("key_days"."units_taken" >= 0 and "key_days"."taken_nano_usd" >= 0 and "key_days"."overrun_nano_usd" >= 0)
);
--> statement-breakpoint
CREATE TABLE "key_uses" (
	"key_id" bigint PRIMARY KEY NOT NULL,
	"last_used_at" timestamp with time zone NOT NULL,
	"host" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "keys" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "keys_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL,
	"made_by" bigint,
	"name" text NOT NULL,
	"digest" "bytea" NOT NULL,
	"prefix" text NOT NULL,
	"suffix" text NOT NULL,
	"mode" text NOT NULL,
	"model_ids" text[],
	"hosts" text[],
	"status" text DEFAULT 'enabled' NOT NULL,
	"expires_at" timestamp with time zone,
	"daily_units_max" integer,
	"daily_spend_max_nano_usd" bigint,
	"weekly_spend_max_nano_usd" bigint,
	"monthly_spend_max_nano_usd" bigint,
	"total_spend_max_nano_usd" bigint,
	"total_spend_from" date,
	"time_zone" text DEFAULT 'UTC' NOT NULL,
	"limits" jsonb,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"revoked_at" timestamp with time zone,
	CONSTRAINT "keys_digest_unique" UNIQUE("digest"),
	CONSTRAINT "keys_ceilings" CHECK ("keys"."daily_units_max" between 1 and 30000000 and "keys"."daily_spend_max_nano_usd" between 1 and 9000000000000000
        and "keys"."weekly_spend_max_nano_usd" between 1 and 9000000000000000 and "keys"."monthly_spend_max_nano_usd" between 1 and 9000000000000000
        and "keys"."total_spend_max_nano_usd" between 1 and 9000000000000000),
	CONSTRAINT "keys_limits" CHECK (jsonb_typeof("keys"."limits") = 'object' and not jsonb_path_exists("keys"."limits", '$.** ? (@.type() == "number" && (@ < 1 || @ > 1000000000))')),
	CONSTRAINT "keys_mode" CHECK ("keys"."mode" in ('package', 'payg')),
	CONSTRAINT "keys_status" CHECK ("keys"."status" in ('enabled', 'disabled', 'revoked'))
);
--> statement-breakpoint
CREATE TABLE "leases" (
	"id" uuid PRIMARY KEY NOT NULL,
	"ends_at" timestamp with time zone NOT NULL,
	"ended" boolean DEFAULT false NOT NULL
);
--> statement-breakpoint
CREATE TABLE "links" (
	"digest" "bytea" PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"account_id" bigint NOT NULL,
	"is_own" boolean DEFAULT false NOT NULL,
	"created_by" bigint,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "links_kind" CHECK ("links"."kind" in ('invitation', 'reset'))
);
--> statement-breakpoint
CREATE TABLE "losses" (
	"holder" text NOT NULL,
	"holder_id" bigint NOT NULL,
	"kind" text NOT NULL,
	"hour_began_at" timestamp with time zone NOT NULL,
	"hour_amount" bigint NOT NULL,
	"amount" bigint NOT NULL,
	"times" bigint NOT NULL,
	"last_at" timestamp with time zone NOT NULL,
	CONSTRAINT "losses_holder_holder_id_kind_pk" PRIMARY KEY("holder","holder_id","kind"),
	CONSTRAINT "losses_holder" CHECK ("losses"."holder" in ('account', 'tenant'))
);
--> statement-breakpoint
CREATE TABLE "models" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"owned_by" text NOT NULL,
	"context_length" integer,
	"status" text DEFAULT 'active' NOT NULL,
	"modality" text DEFAULT 'text' NOT NULL,
	"architecture" jsonb,
	"enabled" boolean DEFAULT true NOT NULL,
	"input_micro_usd" bigint,
	"cached_input_micro_usd" bigint,
	"output_micro_usd" bigint,
	"further_prices" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"default_cap_tokens" integer DEFAULT 4096 NOT NULL,
	"request_tokens" integer DEFAULT 640 NOT NULL,
	"message_tokens" integer DEFAULT 16 NOT NULL,
	"image_base_tokens" integer DEFAULT 2833 NOT NULL,
	"image_tile_tokens" integer DEFAULT 5667 NOT NULL,
	"image_tile_pixels" integer DEFAULT 512 NOT NULL,
	"image_most_tokens" integer DEFAULT 50000 NOT NULL,
	"file_most_tokens" integer DEFAULT 1048576 NOT NULL,
	"margin_permille" integer DEFAULT 1000 NOT NULL,
	"hides_tokens" boolean,
	"route_choice" text DEFAULT 'order' NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "models_status" CHECK ("models"."status" in ('active', 'preview', 'deprecated')),
	CONSTRAINT "models_modality" CHECK ("models"."modality" in ('text', 'image', 'multimodal', 'embedding', 'rerank')),
	CONSTRAINT "models_prices_together" CHECK (("models"."input_micro_usd" is null) = ("models"."output_micro_usd" is null)),
	CONSTRAINT "models_price_range" CHECK ("models"."input_micro_usd" between 0 and 1000000000 and "models"."cached_input_micro_usd" between 0 and "models"."input_micro_usd" and "models"."output_micro_usd" between 0 and 1000000000),
	CONSTRAINT "models_further_prices" CHECK (jsonb_typeof("models"."further_prices") = 'object' and ("models"."input_micro_usd" is not null or "models"."further_prices" = '{}')),
	CONSTRAINT "models_cap" CHECK ("models"."default_cap_tokens" between 1 and 1000000),
	CONSTRAINT "models_bounds" CHECK ("models"."request_tokens" between 0 and 1000000 and "models"."message_tokens" between 0 and 10000 and "models"."image_base_tokens" between 0 and 1000000 and "models"."image_tile_tokens" between 0 and 1000000 and "models"."image_tile_pixels" between 8 and 100000 and "models"."image_most_tokens" between 0 and 10000000 and "models"."file_most_tokens" between 0 and 100000000),
	CONSTRAINT "models_margin" CHECK ("models"."margin_permille" between 1000 and 100000),
	CONSTRAINT "models_route_choice" CHECK ("models"."route_choice" in ('order', 'weight', 'price', 'latency'))
);
--> statement-breakpoint
CREATE TABLE "offerings" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "offerings_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"name" text NOT NULL,
	"kind" text NOT NULL,
	"days" integer NOT NULL,
	"daily_limit" integer NOT NULL,
	"total_limit" integer NOT NULL,
	"carryover" boolean DEFAULT false NOT NULL,
	"token_limit" bigint,
	"limits" jsonb,
	"request_bounds" jsonb DEFAULT '{"choices":4,"inputs":128,"promptTokens":2000000,"outputTokens":null}'::jsonb NOT NULL,
	"model_ids" text[],
	"time_zone" text NOT NULL,
	"wholesale_nano_usd" bigint NOT NULL,
	"enabled" boolean DEFAULT true NOT NULL,
	"measured" boolean DEFAULT false NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "offerings_bounds" CHECK (("offerings"."kind" = 'daily' and "offerings"."days" = 1 and "offerings"."daily_limit" between 100 and 2000)
        or ("offerings"."kind" = 'custom' and "offerings"."days" between 1 and 30 and "offerings"."daily_limit" between 1 and 1000000)),
	CONSTRAINT "offerings_total" CHECK ("offerings"."total_limit" between 1 and 30000000),
	CONSTRAINT "offerings_limits" CHECK (jsonb_typeof("offerings"."limits") = 'object' and not jsonb_path_exists("offerings"."limits", '$.** ? (@.type() == "number" && (@ < 1 || @ > 1000000000))')),
	CONSTRAINT "offerings_request_bounds" CHECK (jsonb_typeof("offerings"."request_bounds") = 'object' and not jsonb_path_exists("offerings"."request_bounds", '$.** ? (@.type() == "number" && (@ < 1 || @ > 1000000000))')),
	CONSTRAINT "offerings_tokens" CHECK ("offerings"."token_limit" > 0),
	CONSTRAINT "offerings_wholesale" CHECK ("offerings"."wholesale_nano_usd" >= 0)
);
--> statement-breakpoint
CREATE UNIQUE INDEX "offerings_name_unique" ON "offerings" USING btree ("name") WHERE not "offerings"."measured";
--> statement-breakpoint
CREATE UNIQUE INDEX "offerings_measured" ON "offerings" USING btree ("days","daily_limit","wholesale_nano_usd","time_zone") WHERE "offerings"."measured";
--> statement-breakpoint
CREATE TABLE "orders" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "orders_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL,
	"kind" text NOT NULL,
	"offering_id" bigint,
	"amount_nano_usd" bigint,
	"note" text,
	"status" text DEFAULT 'open' NOT NULL,
	"answer" text,
	"decided_by" bigint,
	"decided_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "orders_kind" CHECK (("orders"."kind" = 'package' and "orders"."offering_id" is not null and "orders"."amount_nano_usd" is null)
      or ("orders"."kind" = 'top_up' and "orders"."offering_id" is null and "orders"."amount_nano_usd" > 0)),
	CONSTRAINT "orders_status" CHECK ("orders"."status" in ('open', 'fulfilled', 'declined', 'withdrawn'))
);
--> statement-breakpoint
CREATE TABLE "package_days" (
	"package_id" bigint NOT NULL,
	"day" date NOT NULL,
	"units_taken" integer DEFAULT 0 NOT NULL,
	"units_max" integer NOT NULL,
	CONSTRAINT "package_days_package_id_day_pk" PRIMARY KEY("package_id","day"),
	CONSTRAINT "package_days_units" CHECK ("package_days"."units_taken" between 0 and "package_days"."units_max")
);
--> statement-breakpoint
CREATE TABLE "packages" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "packages_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL,
	"offering_id" bigint,
	"name" text NOT NULL,
	"starts_at" timestamp with time zone NOT NULL,
	"ends_at" timestamp with time zone NOT NULL,
	"first_day" date NOT NULL,
	"days" integer NOT NULL,
	"time_zone" text NOT NULL,
	"daily_limit" integer NOT NULL,
	"total_limit" integer NOT NULL,
	"carryover" boolean NOT NULL,
	"token_limit" bigint,
	"limits" jsonb,
	"request_bounds" jsonb DEFAULT '{"choices":4,"inputs":128,"promptTokens":2000000,"outputTokens":null}'::jsonb NOT NULL,
	"model_ids" text[],
	"units_taken" integer DEFAULT 0 NOT NULL,
	"tokens_taken" bigint DEFAULT 0 NOT NULL,
	"ended_early" text,
	"paid_by_account_id" bigint,
	"unit_nano_usd" bigint DEFAULT 0 NOT NULL,
	"unit_cost_nano_usd" bigint DEFAULT 0 NOT NULL,
	"allotment_id" bigint,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "packages_span" CHECK ("packages"."ends_at" >= "packages"."starts_at"),
	CONSTRAINT "packages_limits" CHECK (jsonb_typeof("packages"."limits") = 'object' and not jsonb_path_exists("packages"."limits", '$.** ? (@.type() == "number" && (@ < 1 || @ > 1000000000))')),
	CONSTRAINT "packages_request_bounds" CHECK (jsonb_typeof("packages"."request_bounds") = 'object' and not jsonb_path_exists("packages"."request_bounds", '$.** ? (@.type() == "number" && (@ < 1 || @ > 1000000000))')),
	CONSTRAINT "packages_days" CHECK ("packages"."days" between 1 and 30),
	CONSTRAINT "packages_unit_worth" CHECK ("packages"."unit_nano_usd" >= 0 and "packages"."unit_cost_nano_usd" >= 0),
	CONSTRAINT "packages_units" CHECK ("packages"."units_taken" between 0 and "packages"."total_limit"),
	CONSTRAINT "packages_tokens" CHECK ("packages"."tokens_taken" >= 0 and ("packages"."token_limit" is null or "packages"."tokens_taken" <= "packages"."token_limit"))
);
--> statement-breakpoint
CREATE TABLE "price_versions" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "price_versions_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"model_id" text NOT NULL,
	"prices" jsonb NOT NULL,
	"valid_from" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "provider_key_pauses" (
	"key_id" bigint NOT NULL,
	"model" text NOT NULL,
	"since" timestamp with time zone NOT NULL,
	"until" timestamp with time zone NOT NULL,
	"met_account_id" bigint,
	"met_payer_id" bigint,
	CONSTRAINT "provider_key_pauses_key_id_model_pk" PRIMARY KEY("key_id","model")
);
--> statement-breakpoint
CREATE TABLE "provider_keys" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "provider_keys_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"provider_id" bigint NOT NULL,
	"name" text NOT NULL,
	"key_ciphertext" "bytea" NOT NULL,
	"weight" integer DEFAULT 1 NOT NULL,
	"enabled" boolean DEFAULT true NOT NULL,
	"state" text DEFAULT 'active' NOT NULL,
	"since" timestamp with time zone DEFAULT now() NOT NULL,
	"until" timestamp with time zone,
	"why" text,
	"failures" integer DEFAULT 0 NOT NULL,
	"probed_at" timestamp with time zone,
	"met_account_id" bigint,
	"met_payer_id" bigint,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "provider_keys_weight" CHECK ("provider_keys"."weight" between 1 and 1000),
	CONSTRAINT "provider_keys_state" CHECK ("provider_keys"."state" in ('active', 'quarantined')),
	CONSTRAINT "provider_keys_until" CHECK (("provider_keys"."until" is null) = ("provider_keys"."state" = 'active'))
);
--> statement-breakpoint
CREATE TABLE "providers" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "providers_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"name" text NOT NULL,
	"base_url" text NOT NULL,
	"dialect" text DEFAULT 'generic' NOT NULL,
	"facts" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"enabled" boolean DEFAULT true NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "providers_name_unique" UNIQUE("name"),
	CONSTRAINT "providers_dialect" CHECK ("providers"."dialect" ~ '^[a-z0-9.-]{1,40}$'),
	CONSTRAINT "providers_facts" CHECK (jsonb_typeof("providers"."facts") = 'object')
);
--> statement-breakpoint
-- Partitioned by hand: drizzle's schema has no word for it.
CREATE TABLE "receipts" (
	"request_id" uuid PRIMARY KEY NOT NULL,
	"account_id" bigint NOT NULL,
	"key_id" bigint NOT NULL,
	"model_id" text NOT NULL,
	"host" text NOT NULL,
	"mode" text NOT NULL,
	"package_id" bigint,
	"day" date,
	"key_day" date,
	"outcome" text NOT NULL,
	"reason" text NOT NULL,
	"units" smallint NOT NULL,
	"held_nano_usd" bigint NOT NULL,
	"charged_nano_usd" bigint NOT NULL,
	"shortfall_nano_usd" bigint NOT NULL,
	"prompt_tokens" integer NOT NULL,
	"cached_tokens" integer NOT NULL,
	"completion_tokens" integer NOT NULL,
	"charged_tokens" bigint NOT NULL,
	"estimated" boolean NOT NULL,
	"price_version_id" bigint,
	"further_counts" jsonb,
	"reported_usage" jsonb,
	"tried" jsonb,
	"markup_basis_points" integer,
	"cost_nano_usd" bigint,
	"route_id" bigint,
	"first_ms" integer,
	"provider_cost_nano_usd" bigint,
	"created_at" timestamp with time zone NOT NULL,
	"finished_at" timestamp with time zone NOT NULL,
	"written_in" "xid8" DEFAULT pg_current_xact_id() NOT NULL,
	CONSTRAINT "receipts_released_is_free" CHECK ("receipts"."outcome" = 'settled' or ("receipts"."units" = 0 and "receipts"."charged_nano_usd" = 0 and "receipts"."charged_tokens" = 0)),
	CONSTRAINT "receipts_markup" CHECK (("receipts"."markup_basis_points" is null) = ("receipts"."cost_nano_usd" is null) and "receipts"."markup_basis_points" > 0)
) PARTITION BY RANGE ("request_id");
--> statement-breakpoint
CREATE TABLE "recovery_codes" (
	"account_id" bigint NOT NULL,
	"digest" "bytea" NOT NULL,
	CONSTRAINT "recovery_codes_account_id_digest_pk" PRIMARY KEY("account_id","digest")
);
--> statement-breakpoint
CREATE TABLE "refusal_counts" (
	"account_id" bigint NOT NULL,
	"key_id" bigint NOT NULL,
	"code" text NOT NULL,
	"model_id" text NOT NULL,
	"minute" timestamp with time zone NOT NULL,
	"count" integer NOT NULL,
	"last_request_id" uuid NOT NULL,
	"host" text NOT NULL,
	CONSTRAINT "refusal_counts_account_id_minute_key_id_code_model_id_pk" PRIMARY KEY("account_id","minute","key_id","code","model_id")
);
--> statement-breakpoint
CREATE TABLE "replicas" (
	"id" uuid PRIMARY KEY NOT NULL,
	"started_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"seen_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"version" text DEFAULT '' NOT NULL,
	"status" jsonb
);
--> statement-breakpoint
CREATE TABLE "route_stats" (
	"route_id" bigint NOT NULL,
	"kind" text NOT NULL,
	"span" smallint NOT NULL,
	"begins" timestamp with time zone NOT NULL,
	"requests" bigint NOT NULL,
	"errors" bigint NOT NULL,
	"input_tokens" bigint NOT NULL,
	"cached_tokens" bigint NOT NULL,
	"cost_nano_usd" bigint DEFAULT 0 NOT NULL,
	"priced_nano_usd" bigint DEFAULT 0 NOT NULL,
	"durations" integer[] NOT NULL,
	CONSTRAINT "route_stats_route_id_span_begins_kind_pk" PRIMARY KEY("route_id","span","begins","kind"),
	CONSTRAINT "route_stats_kind" CHECK ("route_stats"."kind" in ('stream', 'whole')),
	CONSTRAINT "route_stats_span" CHECK ("route_stats"."span" in (5, 60, 1440))
);
--> statement-breakpoint
CREATE TABLE "routes" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "routes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"model_id" text NOT NULL,
	"provider_id" bigint NOT NULL,
	"upstream_model" text NOT NULL,
	"priority" integer DEFAULT 0 NOT NULL,
	"weight" integer DEFAULT 1 NOT NULL,
	"facts" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"own_responses" boolean DEFAULT false NOT NULL,
	"allowed_params" text[] DEFAULT '{}' NOT NULL,
	"dropped_params" text[] DEFAULT '{}' NOT NULL,
	"cost_input_micro_usd" bigint,
	"cost_output_micro_usd" bigint,
	"cost_image_micro_usd" bigint,
	"enabled" boolean DEFAULT true NOT NULL,
	CONSTRAINT "routes_weight" CHECK ("routes"."weight" between 1 and 1000),
	CONSTRAINT "routes_facts" CHECK (jsonb_typeof("routes"."facts") = 'object'),
	CONSTRAINT "routes_allowed_params" CHECK (cardinality("routes"."allowed_params") <= 50),
	CONSTRAINT "routes_dropped_params" CHECK (cardinality("routes"."dropped_params") <= 50 and not "routes"."allowed_params" && "routes"."dropped_params"),
	CONSTRAINT "routes_costs_together" CHECK (("routes"."cost_input_micro_usd" is null) = ("routes"."cost_output_micro_usd" is null)),
	CONSTRAINT "routes_cost_range" CHECK ("routes"."cost_input_micro_usd" between 0 and 1000000000 and "routes"."cost_output_micro_usd" between 0 and 1000000000 and "routes"."cost_image_micro_usd" between 0 and 1000000000)
);
--> statement-breakpoint
CREATE TABLE "secret_key_check" (
	"id" smallint PRIMARY KEY DEFAULT 1 NOT NULL,
	"ciphertext" "bytea" NOT NULL,
	"set_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "secret_key_check_one_row" CHECK ("secret_key_check"."id" = 1)
);
--> statement-breakpoint
CREATE TABLE "sent_forms" (
	"account_id" bigint NOT NULL,
	"form_key" text NOT NULL,
	"body_digest" "bytea" NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "sent_forms_account_id_form_key_pk" PRIMARY KEY("account_id","form_key")
);
--> statement-breakpoint
CREATE TABLE "sessions" (
	"digest" "bytea" PRIMARY KEY NOT NULL,
	"account_id" bigint NOT NULL,
	"host" text NOT NULL,
	"csrf_token" text NOT NULL,
	"user_agent" text DEFAULT '' NOT NULL,
	"address" text DEFAULT '' NOT NULL,
	"viewing_account_id" bigint,
	"work_account_id" bigint,
	"identity_provider_id" bigint,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"seen_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
-- Partitioned by hand, as receipts are. The bytes are encrypted: compressing them again would only take time.
CREATE TABLE "stored_responses" (
	"account_id" bigint NOT NULL,
	"id" uuid NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"item_ids" text[] NOT NULL,
	"input" "bytea" NOT NULL,
	"response" "bytea" NOT NULL,
	CONSTRAINT "stored_responses_account_id_id_created_at_pk" PRIMARY KEY("account_id","id","created_at")
) PARTITION BY RANGE ("created_at");
--> statement-breakpoint
ALTER TABLE "stored_responses" ALTER COLUMN "input" SET STORAGE EXTERNAL, ALTER COLUMN "response" SET STORAGE EXTERNAL;
--> statement-breakpoint
CREATE TABLE "usage_crossings" (
	"account_id" bigint NOT NULL,
	"begins" timestamp with time zone NOT NULL,
	"ends" timestamp with time zone NOT NULL,
	"requests" bigint NOT NULL,
	"charges" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"cached_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"charged_nano_usd" numeric NOT NULL,
	"earned_nano_usd" numeric NOT NULL,
	"units_nano_usd" numeric NOT NULL,
	"units_cost_nano_usd" numeric NOT NULL,
	"provider_cost_nano_usd" numeric NOT NULL,
	"cost_unknown" bigint NOT NULL,
	"first_marks" numeric NOT NULL,
	"whole_marks" numeric NOT NULL,
	"kind_id" integer NOT NULL,
	CONSTRAINT "usage_crossings_account_id_begins_ends_kind_id_pk" PRIMARY KEY("account_id","begins","ends","kind_id")
);
--> statement-breakpoint
CREATE TABLE "usage_holders" (
	"scope" bigint NOT NULL,
	"begins" timestamp with time zone NOT NULL,
	"holder_id" bigint NOT NULL,
	"requests" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"cached_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"charged_nano_usd" bigint NOT NULL,
	"earned_nano_usd" bigint NOT NULL,
	"units_nano_usd" bigint NOT NULL,
	"units_cost_nano_usd" bigint NOT NULL,
	"provider_cost_nano_usd" bigint NOT NULL,
	"cost_unknown" bigint NOT NULL,
	"span" smallint NOT NULL,
	CONSTRAINT "usage_holders_scope_span_begins_holder_id_pk" PRIMARY KEY("scope","span","begins","holder_id")
);
--> statement-breakpoint
CREATE TABLE "usage_kinds" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "usage_kinds_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"model_id" text NOT NULL,
	"host" text NOT NULL,
	"mode" text NOT NULL,
	"route_id" bigint DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "usage_sums" (
	"account_id" bigint NOT NULL,
	"key_id" bigint NOT NULL,
	"begins" timestamp with time zone NOT NULL,
	"requests" bigint NOT NULL,
	"charges" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"cached_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"charged_nano_usd" numeric NOT NULL,
	"earned_nano_usd" numeric NOT NULL,
	"units_nano_usd" numeric NOT NULL,
	"units_cost_nano_usd" numeric NOT NULL,
	"provider_cost_nano_usd" numeric NOT NULL,
	"cost_unknown" bigint NOT NULL,
	"first_marks" numeric NOT NULL,
	"whole_marks" numeric NOT NULL,
	"kind_id" integer NOT NULL,
	"span" smallint NOT NULL,
	CONSTRAINT "usage_sums_account_id_key_id_span_begins_kind_id_pk" PRIMARY KEY("account_id","key_id","span","begins","kind_id")
);
--> statement-breakpoint
ALTER TABLE "allotments" ADD CONSTRAINT "allotments_reseller_id_accounts_id_fk" FOREIGN KEY ("reseller_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "allotments" ADD CONSTRAINT "allotments_offering_id_offerings_id_fk" FOREIGN KEY ("offering_id") REFERENCES "public"."offerings"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "balances" ADD CONSTRAINT "balances_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "brands" ADD CONSTRAINT "brands_reseller_id_accounts_id_fk" FOREIGN KEY ("reseller_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "hosts" ADD CONSTRAINT "hosts_reseller_id_accounts_id_fk" FOREIGN KEY ("reseller_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "image_prices" ADD CONSTRAINT "image_prices_model_id_models_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."models"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "keys" ADD CONSTRAINT "keys_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "links" ADD CONSTRAINT "links_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "orders" ADD CONSTRAINT "orders_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "orders" ADD CONSTRAINT "orders_offering_id_offerings_id_fk" FOREIGN KEY ("offering_id") REFERENCES "public"."offerings"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "packages" ADD CONSTRAINT "packages_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "packages" ADD CONSTRAINT "packages_offering_id_offerings_id_fk" FOREIGN KEY ("offering_id") REFERENCES "public"."offerings"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "provider_key_pauses" ADD CONSTRAINT "provider_key_pauses_key_id_provider_keys_id_fk" FOREIGN KEY ("key_id") REFERENCES "public"."provider_keys"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "provider_keys" ADD CONSTRAINT "provider_keys_provider_id_providers_id_fk" FOREIGN KEY ("provider_id") REFERENCES "public"."providers"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "recovery_codes" ADD CONSTRAINT "recovery_codes_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "routes" ADD CONSTRAINT "routes_model_id_models_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."models"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "routes" ADD CONSTRAINT "routes_provider_id_providers_id_fk" FOREIGN KEY ("provider_id") REFERENCES "public"."providers"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sessions" ADD CONSTRAINT "sessions_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "accounts_email_in_tenant" ON "accounts" USING btree (coalesce("reseller_id", 0),lower("email"));--> statement-breakpoint
CREATE INDEX "accounts_reseller" ON "accounts" USING btree ("reseller_id");--> statement-breakpoint
CREATE INDEX "accounts_email_begins" ON "accounts" USING btree (lower("email") text_pattern_ops);--> statement-breakpoint
CREATE INDEX "accounts_name_begins" ON "accounts" USING btree (lower("name") text_pattern_ops);--> statement-breakpoint
CREATE INDEX "allotments_reseller" ON "allotments" USING btree ("reseller_id","offering_id");--> statement-breakpoint
CREATE INDEX "audit_entries_subject" ON "audit_entries" USING btree ("subject","id");--> statement-breakpoint
CREATE INDEX "audit_entries_account" ON "audit_entries" USING btree ("account_id","id");--> statement-breakpoint
CREATE INDEX "audit_entries_actor" ON "audit_entries" USING btree ("actor_id","id");--> statement-breakpoint
CREATE INDEX "balance_entries_account" ON "balance_entries" USING btree ("account_id","id");--> statement-breakpoint
CREATE INDEX "balance_entries_written" ON "balance_entries" USING btree ("written_in");--> statement-breakpoint
CREATE INDEX "balance_entries_movements" ON "balance_entries" USING btree ("account_id","created_at") WHERE "balance_entries"."kind" <> 'charge';--> statement-breakpoint
CREATE INDEX "changes_xid" ON "changes" USING btree ("xid");--> statement-breakpoint
CREATE INDEX "escrows_lease" ON "escrows" USING btree ("lease_id","account_id");--> statement-breakpoint
CREATE UNIQUE INDEX "hosts_one_owner" ON "hosts" USING btree ("host") WHERE "hosts"."status" = 'active';--> statement-breakpoint
CREATE INDEX "hosts_reseller" ON "hosts" USING btree ("reseller_id");--> statement-breakpoint
CREATE INDEX "hosts_next_check" ON "hosts" USING btree ("next_check_at");--> statement-breakpoint
CREATE UNIQUE INDEX "links_one_made" ON "links" USING btree ("account_id") WHERE not "links"."is_own";--> statement-breakpoint
CREATE INDEX "links_account" ON "links" USING btree ("account_id");--> statement-breakpoint
CREATE INDEX "keys_revoked" ON "keys" USING btree ("revoked_at") WHERE "keys"."status" = 'revoked';--> statement-breakpoint
CREATE INDEX "keys_account" ON "keys" USING btree ("account_id","id");--> statement-breakpoint
CREATE INDEX "losses_hour" ON "losses" USING btree ("hour_began_at");--> statement-breakpoint
CREATE INDEX "orders_account" ON "orders" USING btree ("account_id","id");--> statement-breakpoint
CREATE INDEX "orders_open" ON "orders" USING btree ("id") WHERE "orders"."status" = 'open';--> statement-breakpoint
CREATE INDEX "orders_offering" ON "orders" USING btree ("offering_id") WHERE "orders"."offering_id" is not null;--> statement-breakpoint
CREATE INDEX "orders_decided" ON "orders" USING btree ("decided_at") WHERE "orders"."status" <> 'open';--> statement-breakpoint
CREATE INDEX "packages_account" ON "packages" USING btree ("account_id","ends_at");--> statement-breakpoint
CREATE INDEX "packages_offering" ON "packages" USING btree ("offering_id") WHERE "packages"."offering_id" is not null;--> statement-breakpoint
CREATE INDEX "packages_allotment" ON "packages" USING btree ("allotment_id") WHERE "packages"."allotment_id" is not null;--> statement-breakpoint
CREATE INDEX "price_versions_model" ON "price_versions" USING btree ("model_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "provider_keys_name" ON "provider_keys" USING btree ("provider_id","name");--> statement-breakpoint
CREATE INDEX "receipts_written" ON "receipts" USING btree ("written_in");--> statement-breakpoint
CREATE INDEX "receipts_usage" ON "receipts" USING btree ("account_id","request_id") WHERE "receipts"."outcome" = 'settled';--> statement-breakpoint
CREATE INDEX "receipts_losses" ON "receipts" USING btree ("request_id") WHERE "receipts"."shortfall_nano_usd" > 0;--> statement-breakpoint
CREATE INDEX "receipts_released" ON "receipts" USING btree ("account_id","request_id") WHERE "receipts"."outcome" = 'released';--> statement-breakpoint
CREATE INDEX "receipts_all_released" ON "receipts" USING btree ("request_id") WHERE "receipts"."outcome" = 'released';--> statement-breakpoint
CREATE INDEX "refusal_counts_minute" ON "refusal_counts" USING btree ("minute");--> statement-breakpoint
CREATE INDEX "route_stats_begins" ON "route_stats" USING btree ("span","begins");--> statement-breakpoint
CREATE UNIQUE INDEX "routes_once" ON "routes" USING btree ("model_id","provider_id","upstream_model");--> statement-breakpoint
CREATE INDEX "sent_forms_age" ON "sent_forms" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "sessions_account" ON "sessions" USING btree ("account_id");--> statement-breakpoint
CREATE INDEX "sessions_work_account" ON "sessions" USING btree ("work_account_id") WHERE "sessions"."work_account_id" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "usage_kinds_once" ON "usage_kinds" USING btree ("model_id","host","mode","route_id");