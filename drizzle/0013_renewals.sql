-- Cards on file, what is charged to them, renewals of packages, and automatic top-ups. Source: CRD-1, CRD-3, REN-1, REN-5, ATU-1.
CREATE TABLE "auto_top_ups" (
	"account_id" bigint PRIMARY KEY NOT NULL,
	"below_nano_usd" bigint NOT NULL,
	"amount_nano_usd" bigint NOT NULL,
	"month_max_nano_usd" bigint NOT NULL,
	"told_nano" bigint NOT NULL,
	"told_currency" text DEFAULT 'usd' NOT NULL,
	"status" text DEFAULT 'on' NOT NULL,
	"order_id" bigint,
	"problem" text,
	"next_at" timestamp with time zone DEFAULT ledger_now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "auto_top_ups_status" CHECK ("auto_top_ups"."status" in ('on', 'paused')),
	CONSTRAINT "auto_top_ups_amounts" CHECK ("auto_top_ups"."below_nano_usd" > 0 and "auto_top_ups"."amount_nano_usd" > 0 and "auto_top_ups"."month_max_nano_usd" >= "auto_top_ups"."amount_nano_usd")
);
--> statement-breakpoint
CREATE TABLE "card_charges" (
	"order_id" bigint PRIMARY KEY NOT NULL,
	"account_id" bigint NOT NULL,
	"seller_id" bigint NOT NULL,
	"purpose" text NOT NULL,
	"status" text DEFAULT 'due' NOT NULL,
	"request_key" text DEFAULT gen_random_uuid()::text NOT NULL,
	"intent_id" text,
	"tries" integer DEFAULT 0 NOT NULL,
	"tries_max" integer NOT NULL,
	"retry_seconds" integer NOT NULL,
	"try_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"until" timestamp with time zone,
	"problem" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "card_charges_purpose" CHECK ("card_charges"."purpose" in ('renewal', 'top_up')),
	CONSTRAINT "card_charges_status" CHECK ("card_charges"."status" in ('due', 'charging', 'paid', 'person', 'failed')),
	CONSTRAINT "card_charges_tries" CHECK ("card_charges"."tries" between 0 and "card_charges"."tries_max" and "card_charges"."retry_seconds" >= 0)
);
--> statement-breakpoint
CREATE TABLE "card_setups" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "card_setups_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"account_id" bigint NOT NULL,
	"seller_id" bigint NOT NULL,
	"request_key" text NOT NULL,
	"session_id" text,
	"status" text DEFAULT 'open' NOT NULL,
	"ask_at" timestamp with time zone DEFAULT clock_timestamp() + interval '1 minute' NOT NULL,
	"expires_at" timestamp with time zone DEFAULT clock_timestamp() + interval '2 hours' NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "card_setups_status" CHECK ("card_setups"."status" in ('open', 'closed'))
);
--> statement-breakpoint
CREATE TABLE "cards" (
	"account_id" bigint NOT NULL,
	"seller_id" bigint NOT NULL,
	"customer_id" text NOT NULL,
	"payment_method_id" text,
	"brand" text,
	"last_four" text,
	"expires_month" integer,
	"expires_year" integer,
	"to_detach" text[] DEFAULT '{}' NOT NULL,
	"try_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"saved_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "cards_account_id_seller_id_pk" PRIMARY KEY("account_id","seller_id"),
	CONSTRAINT "cards_shown" CHECK (("cards"."payment_method_id" is null) = ("cards"."last_four" is null) and ("cards"."payment_method_id" is null) = ("cards"."brand" is null)),
	CONSTRAINT "cards_expiry" CHECK ("cards"."expires_month" between 1 and 12 and "cards"."expires_year" between 2000 and 9999)
);
--> statement-breakpoint
CREATE TABLE "renewals" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "renewals_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"package_id" bigint NOT NULL,
	"account_id" bigint NOT NULL,
	"source" text NOT NULL,
	"status" text DEFAULT 'on' NOT NULL,
	"continues" boolean DEFAULT true NOT NULL,
	"told_nano" bigint,
	"told_currency" text DEFAULT 'usd' NOT NULL,
	"told_at" timestamp with time zone,
	"tries" integer DEFAULT 0 NOT NULL,
	"next_at" timestamp with time zone DEFAULT ledger_now() NOT NULL,
	"order_id" bigint,
	"paid_nano_usd" bigint,
	"new_package_id" bigint,
	"problem" text,
	"ended_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "renewals_source" CHECK ("renewals"."source" in ('card', 'balance')),
	CONSTRAINT "renewals_status" CHECK ("renewals"."status" in ('on', 'ordered', 'done', 'failed', 'cancelled')),
	CONSTRAINT "renewals_done" CHECK (("renewals"."status" = 'done') = ("renewals"."new_package_id" is not null and "renewals"."paid_nano_usd" is not null))
);
--> statement-breakpoint
ALTER TABLE "auto_top_ups" ADD CONSTRAINT "auto_top_ups_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "auto_top_ups" ADD CONSTRAINT "auto_top_ups_order_id_orders_id_fk" FOREIGN KEY ("order_id") REFERENCES "public"."orders"("id") ON DELETE set null ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "card_charges" ADD CONSTRAINT "card_charges_order_id_orders_id_fk" FOREIGN KEY ("order_id") REFERENCES "public"."orders"("id") ON DELETE cascade ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "card_charges" ADD CONSTRAINT "card_charges_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "card_setups" ADD CONSTRAINT "card_setups_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "cards" ADD CONSTRAINT "cards_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "renewals" ADD CONSTRAINT "renewals_package_id_packages_id_fk" FOREIGN KEY ("package_id") REFERENCES "public"."packages"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "renewals" ADD CONSTRAINT "renewals_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "renewals" ADD CONSTRAINT "renewals_order_id_orders_id_fk" FOREIGN KEY ("order_id") REFERENCES "public"."orders"("id") ON DELETE set null ON UPDATE no action;
--> statement-breakpoint
CREATE UNIQUE INDEX "auto_top_ups_order" ON "auto_top_ups" USING btree ("order_id");
--> statement-breakpoint
CREATE UNIQUE INDEX "card_charges_intent" ON "card_charges" USING btree ("seller_id","intent_id");
--> statement-breakpoint
CREATE INDEX "card_charges_try" ON "card_charges" USING btree ("try_at") WHERE "card_charges"."status" in ('due', 'charging');
--> statement-breakpoint
CREATE INDEX "card_charges_account" ON "card_charges" USING btree ("account_id","created_at");
--> statement-breakpoint
CREATE UNIQUE INDEX "card_setups_session" ON "card_setups" USING btree ("seller_id","session_id");
--> statement-breakpoint
CREATE INDEX "card_setups_account" ON "card_setups" USING btree ("account_id");
--> statement-breakpoint
CREATE INDEX "card_setups_ask" ON "card_setups" USING btree ("ask_at") WHERE "card_setups"."status" = 'open';
--> statement-breakpoint
CREATE INDEX "cards_to_detach" ON "cards" USING btree ("try_at") WHERE "cards"."to_detach" <> '{}';
--> statement-breakpoint
CREATE UNIQUE INDEX "renewals_package" ON "renewals" USING btree ("package_id");
--> statement-breakpoint
CREATE UNIQUE INDEX "renewals_order" ON "renewals" USING btree ("order_id");
--> statement-breakpoint
CREATE UNIQUE INDEX "renewals_new_package" ON "renewals" USING btree ("new_package_id");
--> statement-breakpoint
CREATE INDEX "renewals_account" ON "renewals" USING btree ("account_id","id");
--> statement-breakpoint
CREATE INDEX "renewals_next" ON "renewals" USING btree ("next_at") WHERE "renewals"."status" = 'on';
--> statement-breakpoint
-- A package that ends at another time renews at another time.
CREATE FUNCTION note_renewal_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.ends_at <> OLD.ends_at THEN
    UPDATE renewals SET next_at = ledger_now() WHERE package_id = NEW.id AND status = 'on';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER packages_renewal AFTER UPDATE OF ends_at ON packages FOR EACH ROW EXECUTE FUNCTION note_renewal_moved();
--> statement-breakpoint
-- Assigns a package that its account pays for from its balance. p_payer: the reseller that sells it, gets the price, and pays the wholesale
-- price; null: the operator sells it. Returns the package, or a code; then roll back: not_found, insufficient_balance, idle, and of the
-- reseller seller_balance, seller_idle.
-- A package that renews automatically is not about to end, unless its renewal fails.
CREATE FUNCTION package_renews(p_package bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM renewals WHERE package_id = p_package AND status IN ('on', 'ordered') AND continues AND problem IS NULL)
$$;
--> statement-breakpoint
CREATE FUNCTION renew_from_balance(p_account bigint, p_offering bigint, p_payer bigint, p_price bigint,
  OUT code text, OUT package_id bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF p_price <= 0 THEN RAISE EXCEPTION 'a price is above zero'; END IF;
  PERFORM lock_accounts(ARRAY[p_account, p_payer]);
  UPDATE balances SET balance_nano_usd = balance_nano_usd - p_price
  WHERE account_id = p_account AND balance_nano_usd - held_nano_usd >= p_price;
  IF NOT FOUND THEN
    code := CASE WHEN has_idle_money(p_account) THEN 'idle' ELSE 'insufficient_balance' END;
    RETURN;
  END IF;
  -- First: it may be what the wholesale price is paid from.
  UPDATE balances SET balance_nano_usd = balance_nano_usd + p_price WHERE account_id = p_payer;
  SELECT a.code, a.package_id INTO code, package_id
  FROM assign_package(p_account, p_offering, 'after', p_payer, NULL, false, 'renewal', p_price) a;
  IF code IS NOT NULL THEN
    code := CASE code WHEN 'insufficient_balance' THEN 'seller_balance' WHEN 'idle' THEN 'seller_idle' ELSE code END;
    RETURN;
  END IF;
  INSERT INTO balance_entries (account_id, amount_nano_usd, kind, package_id, counterpart_id, reason)
  VALUES (p_account, -p_price, 'package', renew_from_balance.package_id, p_payer, 'renewal');
  IF p_payer IS NOT NULL THEN
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, package_id, counterpart_id, reason)
    VALUES (p_payer, p_price, 'package', renew_from_balance.package_id, p_account, 'renewal');
  END IF;
END $$;
--> statement-breakpoint
-- What a customer chose is audited; what the service then does is in orders, packages and transactions.
CREATE TRIGGER cards_audit AFTER INSERT OR DELETE OR UPDATE OF payment_method_id, brand, last_four, expires_month, expires_year ON cards
  FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER renewals_audit AFTER INSERT OR UPDATE OF source, status, continues ON renewals
  FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'package_id');
--> statement-breakpoint
CREATE TRIGGER auto_top_ups_audit AFTER INSERT OR DELETE OR UPDATE OF below_nano_usd, amount_nano_usd, month_max_nano_usd, status ON auto_top_ups
  FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id');
