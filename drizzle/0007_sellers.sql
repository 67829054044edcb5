-- Sellers and retail prices.
CREATE TABLE "sellers" (
	"seller_id" bigint PRIMARY KEY NOT NULL,
	"invoice_name" text,
	"invoice_address" text,
	"tax_line" text,
	"next_invoice" bigint DEFAULT 1 NOT NULL,
	"instructions" text,
	"stripe_key_ciphertext" "bytea",
	"stripe_webhook_ciphertext" "bytea",
	"shop_secret_ciphertext" "bytea",
	"shop_url" text,
	"prices_public" boolean DEFAULT false NOT NULL,
	"currency" text DEFAULT 'usd' NOT NULL,
	"usd_rate_nano" bigint,
	"tax_country" text,
	"vat_number" text,
	"package_tax" integer DEFAULT 0 NOT NULL,
	"top_up_tax" integer DEFAULT 0 NOT NULL,
	"prices_with_tax" boolean DEFAULT false NOT NULL,
	"updated_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "sellers_id" CHECK ("sellers"."seller_id" >= 0),
	CONSTRAINT "sellers_next_invoice" CHECK ("sellers"."next_invoice" > 0),
	CONSTRAINT "sellers_currency" CHECK ("sellers"."currency" ~ '^[a-z]{3}$' and ("sellers"."currency" = 'usd') = ("sellers"."usd_rate_nano" is null) and ("sellers"."usd_rate_nano" is null or "sellers"."usd_rate_nano" > 0)),
	CONSTRAINT "sellers_tax" CHECK ("sellers"."package_tax" between 0 and 100000 and "sellers"."top_up_tax" between 0 and 100000
      and ("sellers"."tax_country" is not null or ("sellers"."package_tax" = 0 and "sellers"."top_up_tax" = 0 and "sellers"."vat_number" is null and not "sellers"."prices_with_tax")))
);
--> statement-breakpoint
CREATE TABLE "retail_prices" (
	"seller_id" bigint NOT NULL,
	"offering_id" bigint NOT NULL,
	"price_nano" bigint NOT NULL,
	"below_wholesale_confirmed" boolean DEFAULT false NOT NULL,
	"currency" text DEFAULT 'usd' NOT NULL,
	"updated_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "retail_prices_pkey" PRIMARY KEY("seller_id","offering_id"),
	CONSTRAINT "retail_prices_seller" CHECK ("retail_prices"."seller_id" >= 0),
	CONSTRAINT "retail_prices_price" CHECK ("retail_prices"."price_nano" between 10000000 and 900000000000000000 and "retail_prices"."price_nano" % 10000000 = 0)
);
--> statement-breakpoint
ALTER TABLE "retail_prices" ADD CONSTRAINT "retail_prices_offering_id_offerings_id_fk" FOREIGN KEY ("offering_id") REFERENCES "public"."offerings"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
CREATE INDEX "retail_prices_offering" ON "retail_prices" USING btree ("offering_id");
--> statement-breakpoint
-- What a price of a seller is worth in US dollars without tax, at the seller's rates of today; null: it is in another currency than the seller's.
-- Rounded down, as `src/commerce/order_amounts.ts` does.
CREATE FUNCTION price_worth(p_seller bigint, p_currency text, p_price_nano bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT floor(net * 1000000000 / coalesce(usd_rate_nano, 1000000000))::bigint
  FROM (SELECT coalesce(s.currency, 'usd') AS currency, s.usd_rate_nano,
      CASE WHEN s.prices_with_tax THEN p_price_nano::numeric * 100000 / (100000 + s.package_tax) ELSE p_price_nano END AS net
    FROM (SELECT) one LEFT JOIN sellers s ON s.seller_id = p_seller) terms
  WHERE terms.currency = p_currency
$$;
--> statement-breakpoint
-- A price below wholesale is written only with its confirmation. The offering's row is locked, so that its wholesale price stays as it was read.
CREATE FUNCTION check_retail_price() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_wholesale bigint;
BEGIN
  SELECT wholesale_nano_usd INTO v_wholesale FROM offerings WHERE id = NEW.offering_id FOR SHARE;
  IF coalesce(price_worth(NEW.seller_id, NEW.currency, NEW.price_nano) >= v_wholesale, true) THEN
    -- A confirmation counts for the price that it was given for, and for no later one.
    NEW.below_wholesale_confirmed := false;
  ELSIF NOT NEW.below_wholesale_confirmed THEN
    RAISE EXCEPTION 'the retail price is below the wholesale price' USING ERRCODE = 'check_violation', CONSTRAINT = 'retail_prices_wholesale';
  END IF;
  RETURN NEW;
END $$;
--> statement-breakpoint
CREATE TRIGGER retail_prices_wholesale BEFORE INSERT OR UPDATE ON retail_prices FOR EACH ROW EXECUTE FUNCTION check_retail_price();
--> statement-breakpoint
-- The account concerned is the reseller; the operator is none, which an account id of 0 stands for.
CREATE TRIGGER retail_prices_audit AFTER INSERT OR DELETE OR UPDATE ON retail_prices FOR EACH ROW EXECUTE FUNCTION note_audit('offering_id', 'seller_id', 'price_nano,currency');
--> statement-breakpoint
CREATE TRIGGER sellers_audit AFTER INSERT OR DELETE OR UPDATE ON sellers FOR EACH ROW EXECUTE FUNCTION note_audit('seller_id', 'seller_id');
--> statement-breakpoint
CREATE TRIGGER sellers_prices_changed AFTER UPDATE OF prices_public ON sellers FOR EACH ROW EXECUTE FUNCTION note_change('account', 'seller_id');
--> statement-breakpoint
CREATE TABLE "measured_prices" (
	"seller_id" bigint NOT NULL,
	"kind" text NOT NULL,
	"currency" text DEFAULT 'usd' NOT NULL,
	"is_open" boolean DEFAULT false NOT NULL,
	"days_min" integer NOT NULL,
	"days_max" integer NOT NULL,
	"daily_min" integer NOT NULL,
	"daily_max" integer NOT NULL,
	"steps" jsonb NOT NULL,
	"updated_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "measured_prices_seller_id_kind_pk" PRIMARY KEY("seller_id","kind"),
	CONSTRAINT "measured_prices_kind" CHECK ("measured_prices"."kind" = 'retail' or ("measured_prices"."kind" = 'wholesale' and "measured_prices"."seller_id" = 0 and "measured_prices"."currency" = 'usd')),
	CONSTRAINT "measured_prices_seller" CHECK ("measured_prices"."seller_id" >= 0),
	CONSTRAINT "measured_prices_days" CHECK ("measured_prices"."days_min" between 1 and 30 and "measured_prices"."days_max" between "measured_prices"."days_min" and 30),
	CONSTRAINT "measured_prices_daily" CHECK ("measured_prices"."daily_min" between 1 and 1000000 and "measured_prices"."daily_max" between "measured_prices"."daily_min" and 1000000)
);
--> statement-breakpoint
CREATE TRIGGER measured_prices_audit AFTER INSERT OR DELETE OR UPDATE ON measured_prices FOR EACH ROW EXECUTE FUNCTION note_audit('seller_id', 'seller_id', 'kind');
