-- Vouchers and invoices.
CREATE TABLE "buyer_details" (
	"account_id" bigint PRIMARY KEY NOT NULL,
	"name" text,
	"address" text,
	"tax_number" text,
	"vat_number" text
);
--> statement-breakpoint
CREATE TABLE "invoices" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "invoices_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"seller_id" bigint NOT NULL,
	"number" bigint NOT NULL,
	"kind" text NOT NULL,
	"language" text DEFAULT 'en' NOT NULL,
	"account_id" bigint NOT NULL,
	"order_id" bigint,
	"corrects_number" bigint,
	"seller_name" text,
	"seller_address" text,
	"tax_line" text,
	"buyer_name" text NOT NULL,
	"buyer_email" text NOT NULL,
	"buyer_address" text,
	"buyer_tax_number" text,
	"lines" jsonb NOT NULL,
	"currency" text DEFAULT 'usd' NOT NULL,
	"tax" jsonb,
	"tax_nano" bigint DEFAULT 0 NOT NULL,
	"total_nano" bigint NOT NULL,
	"issued_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "invoices_kind" CHECK ("invoices"."kind" in ('invoice', 'credit_note')),
	CONSTRAINT "invoices_total" CHECK ("invoices"."total_nano" > 0 and "invoices"."tax_nano" between 0 and "invoices"."total_nano")
);
--> statement-breakpoint
CREATE TABLE "voucher_batches" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "voucher_batches_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"seller_id" bigint NOT NULL,
	"name" text NOT NULL,
	"offering_id" bigint,
	"amount_nano_usd" bigint,
	"pay_with" text NOT NULL,
	"codes" integer NOT NULL,
	"uses_per_code" integer NOT NULL,
	"used" bigint DEFAULT 0 NOT NULL,
	"ends_at" timestamp with time zone NOT NULL,
	"disabled_at" timestamp with time zone,
	"created_by" bigint,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "voucher_batches_seller_id" CHECK ("voucher_batches"."seller_id" >= 0),
	CONSTRAINT "voucher_batches_kind" CHECK (("voucher_batches"."offering_id" is not null and "voucher_batches"."amount_nano_usd" is null)
      or ("voucher_batches"."offering_id" is null and "voucher_batches"."amount_nano_usd" > 0 and "voucher_batches"."pay_with" <> 'allotment')),
	CONSTRAINT "voucher_batches_pay_with" CHECK (("voucher_batches"."pay_with" = 'operator') = ("voucher_batches"."seller_id" = 0)),
	CONSTRAINT "voucher_batches_counts" CHECK ("voucher_batches"."codes" > 0 and "voucher_batches"."uses_per_code" > 0),
	CONSTRAINT "voucher_batches_used" CHECK ("voucher_batches"."used" >= 0 and "voucher_batches"."used" <= "voucher_batches"."codes"::bigint * "voucher_batches"."uses_per_code"::bigint)
);
--> statement-breakpoint
CREATE TABLE "voucher_guesses" (
	"account_id" bigint NOT NULL,
	"day" date NOT NULL,
	"seller_id" bigint NOT NULL,
	"wrong" integer DEFAULT 0 NOT NULL,
	"refused" integer DEFAULT 0 NOT NULL,
	"last_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "voucher_guesses_account_id_day_pk" PRIMARY KEY("account_id","day")
);
--> statement-breakpoint
CREATE TABLE "voucher_problems" (
	"batch_id" bigint PRIMARY KEY NOT NULL,
	"why" text NOT NULL,
	"count" integer DEFAULT 1 NOT NULL,
	"last_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "voucher_uses" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "voucher_uses_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"voucher_id" bigint NOT NULL,
	"batch_id" bigint NOT NULL,
	"account_id" bigint NOT NULL,
	"package_id" bigint,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "vouchers" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "vouchers_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"batch_id" bigint NOT NULL,
	"digest" "bytea" NOT NULL,
	"suffix" text NOT NULL,
	"uses_max" integer NOT NULL,
	"used" integer DEFAULT 0 NOT NULL,
	CONSTRAINT "vouchers_used" CHECK ("vouchers"."used" >= 0 and "vouchers"."used" <= "vouchers"."uses_max")
);
--> statement-breakpoint
ALTER TABLE "buyer_details" ADD CONSTRAINT "buyer_details_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "invoices" ADD CONSTRAINT "invoices_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "voucher_batches" ADD CONSTRAINT "voucher_batches_offering_id_offerings_id_fk" FOREIGN KEY ("offering_id") REFERENCES "public"."offerings"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "voucher_guesses" ADD CONSTRAINT "voucher_guesses_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "voucher_problems" ADD CONSTRAINT "voucher_problems_batch_id_voucher_batches_id_fk" FOREIGN KEY ("batch_id") REFERENCES "public"."voucher_batches"("id") ON DELETE cascade ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "voucher_uses" ADD CONSTRAINT "voucher_uses_voucher_id_vouchers_id_fk" FOREIGN KEY ("voucher_id") REFERENCES "public"."vouchers"("id") ON DELETE cascade ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "voucher_uses" ADD CONSTRAINT "voucher_uses_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "vouchers" ADD CONSTRAINT "vouchers_batch_id_voucher_batches_id_fk" FOREIGN KEY ("batch_id") REFERENCES "public"."voucher_batches"("id") ON DELETE cascade ON UPDATE no action;
--> statement-breakpoint
CREATE UNIQUE INDEX "invoices_number" ON "invoices" USING btree ("seller_id","number");
--> statement-breakpoint
CREATE INDEX "invoices_account" ON "invoices" USING btree ("account_id","id");
--> statement-breakpoint
CREATE INDEX "invoices_seller_time" ON "invoices" USING btree ("seller_id","issued_at");
--> statement-breakpoint
CREATE INDEX "invoices_seller" ON "invoices" USING btree ("seller_id","id");
--> statement-breakpoint
CREATE INDEX "invoices_order" ON "invoices" USING btree ("order_id");
--> statement-breakpoint
CREATE UNIQUE INDEX "invoices_order_once" ON "invoices" USING btree ("order_id") WHERE "invoices"."kind" = 'invoice' and "invoices"."corrects_number" is null;
--> statement-breakpoint
CREATE UNIQUE INDEX "invoices_takes_back_once" ON "invoices" USING btree ("seller_id","corrects_number") WHERE "invoices"."kind" = 'invoice';
--> statement-breakpoint
CREATE INDEX "voucher_batches_seller" ON "voucher_batches" USING btree ("seller_id","id");
--> statement-breakpoint
CREATE INDEX "voucher_batches_ends" ON "voucher_batches" USING btree ("ends_at");
--> statement-breakpoint
CREATE INDEX "voucher_guesses_seller" ON "voucher_guesses" USING btree ("seller_id","last_at");
--> statement-breakpoint
CREATE INDEX "voucher_guesses_day" ON "voucher_guesses" USING btree ("day");
--> statement-breakpoint
CREATE UNIQUE INDEX "voucher_uses_once" ON "voucher_uses" USING btree ("voucher_id","account_id");
--> statement-breakpoint
CREATE INDEX "voucher_uses_batch" ON "voucher_uses" USING btree ("batch_id","id");
--> statement-breakpoint
CREATE UNIQUE INDEX "vouchers_digest" ON "vouchers" USING btree ("digest");
--> statement-breakpoint
CREATE INDEX "vouchers_batch" ON "vouchers" USING btree ("batch_id","id");
--> statement-breakpoint

-- Invoices are evidence: nobody changes one, not even a person with psql. A mistake is corrected by a credit note. Source: INV-2.
CREATE FUNCTION refuse_invoice_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'an invoice is never changed or deleted: issue a credit note';
END $$;
--> statement-breakpoint
CREATE TRIGGER invoices_unchanged BEFORE UPDATE OR DELETE ON invoices FOR EACH ROW EXECUTE FUNCTION refuse_invoice_change();
--> statement-breakpoint
CREATE TRIGGER invoices_kept BEFORE TRUNCATE ON invoices FOR EACH STATEMENT EXECUTE FUNCTION refuse_invoice_change();
--> statement-breakpoint

-- Who made and disabled codes, and who redeemed one. The rows of codes are left out: the batch says how many there are.
CREATE TRIGGER voucher_batches_audit AFTER INSERT OR DELETE OR UPDATE OF disabled_at ON voucher_batches FOR EACH ROW EXECUTE FUNCTION note_audit('id', '', 'seller_id,name');
--> statement-breakpoint
CREATE TRIGGER voucher_uses_audit AFTER INSERT ON voucher_uses FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER buyer_details_audit AFTER INSERT OR DELETE OR UPDATE ON buyer_details FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id');
