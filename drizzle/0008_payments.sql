-- Payments: what orders cost, how they were paid, what was given back. Source: BUY-1, BUY-2, BUY-3, BUY-4, BUY-5, BUY-6, BUY-7, BUY-8, BUY-9.
ALTER TABLE "orders"
	ADD COLUMN "seller_id" bigint DEFAULT 0 NOT NULL,
	ADD COLUMN "reference" text DEFAULT upper(substr(replace(gen_random_uuid()::text, '-', ''), 1, 12)) NOT NULL,
	ADD COLUMN "price_nano_usd" bigint,
	ADD COLUMN "currency" text DEFAULT 'usd' NOT NULL,
	ADD COLUMN "net_nano" bigint,
	ADD COLUMN "tax_nano" bigint DEFAULT 0 NOT NULL,
	ADD COLUMN "usd_rate_nano" bigint,
	ADD COLUMN "tax" jsonb,
	ADD COLUMN "method" text,
	ADD COLUMN "paid_at" timestamp with time zone,
	ADD COLUMN "waits_for" text,
	ADD COLUMN "try_at" timestamp with time zone,
	ADD COLUMN "package_id" bigint,
	ADD COLUMN "entry_id" bigint,
	DROP CONSTRAINT "orders_status",
	ADD CONSTRAINT "orders_status" CHECK ("orders"."status" in ('open', 'paid', 'fulfilled', 'refunded', 'declined', 'withdrawn')),
	ADD CONSTRAINT "orders_price" CHECK ("orders"."price_nano_usd" > 0),
	ADD CONSTRAINT "orders_amounts" CHECK ("orders"."tax_nano" >= 0 and ("orders"."tax_nano" = 0 or "orders"."tax" is not null) and (("orders"."currency" = 'usd' and "orders"."net_nano" is null and "orders"."usd_rate_nano" is null)
      or ("orders"."currency" <> 'usd' and "orders"."net_nano" > 0 and "orders"."usd_rate_nano" > 0 and "orders"."price_nano_usd" is not null))),
	ADD CONSTRAINT "orders_method" CHECK ("orders"."method" in ('stripe', 'instructions', 'shop')),
	ADD CONSTRAINT "orders_paid" CHECK (("orders"."status" not in ('paid', 'refunded') or "orders"."paid_at" is not null) and ("orders"."paid_at" is null or "orders"."price_nano_usd" is not null)),
	ADD CONSTRAINT "orders_waits_for" CHECK ("orders"."waits_for" in ('seller_balance', 'seller'));
--> statement-breakpoint
-- Orders from before belong to whoever decides them.
UPDATE "orders" SET "seller_id" = a.reseller_id FROM "accounts" a WHERE a.id = "orders"."account_id" AND a.role = 'customer' AND a.reseller_id IS NOT NULL;
--> statement-breakpoint
CREATE UNIQUE INDEX "orders_reference" ON "orders" USING btree ("reference");
--> statement-breakpoint
CREATE UNIQUE INDEX "orders_package" ON "orders" USING btree ("package_id");
--> statement-breakpoint
CREATE UNIQUE INDEX "orders_entry" ON "orders" USING btree ("entry_id");
--> statement-breakpoint
CREATE INDEX "orders_paid_waiting" ON "orders" USING btree ("try_at") WHERE "orders"."status" = 'paid';
--> statement-breakpoint
CREATE TABLE "payments" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "payments_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"order_id" bigint NOT NULL,
	"account_id" bigint NOT NULL,
	"seller_id" bigint NOT NULL,
	"method" text NOT NULL,
	"external_id" text NOT NULL,
	"currency" text NOT NULL,
	"amount_nano" bigint NOT NULL,
	"problem" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "payments_amount" CHECK ("payments"."amount_nano" >= 0 and ("payments"."problem" is not null or "payments"."amount_nano" > 0)),
	CONSTRAINT "payments_method" CHECK ("payments"."method" in ('stripe', 'instructions', 'shop')),
	CONSTRAINT "payments_problem" CHECK ("payments"."problem" in ('wrong_amount', 'wrong_currency', 'paid_twice', 'order_closed', 'test_money'))
);
--> statement-breakpoint
CREATE TABLE "checkouts" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "checkouts_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"order_id" bigint NOT NULL,
	"seller_id" bigint NOT NULL,
	"request_key" text NOT NULL,
	"session_id" text,
	"url" text,
	"status" text DEFAULT 'open' NOT NULL,
	"return_to" text NOT NULL,
	"asked" integer DEFAULT 0 NOT NULL,
	"asked_at" timestamp with time zone,
	"ask_at" timestamp with time zone DEFAULT clock_timestamp() + interval '1 minute' NOT NULL,
	"expires_at" timestamp with time zone DEFAULT clock_timestamp() + interval '2 hours' NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "checkouts_status" CHECK ("checkouts"."status" in ('open', 'closed'))
);
--> statement-breakpoint
CREATE TABLE "refunds" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "refunds_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"payment_id" bigint NOT NULL,
	"order_id" bigint NOT NULL,
	"account_id" bigint NOT NULL,
	"seller_id" bigint NOT NULL,
	"amount_nano" bigint NOT NULL,
	"origin" text DEFAULT 'seller' NOT NULL,
	"tax_nano" bigint DEFAULT 0 NOT NULL,
	"worth_nano_usd" bigint NOT NULL,
	"shortfall_nano_usd" bigint DEFAULT 0 NOT NULL,
	"reason" text,
	"status" text NOT NULL,
	"request_key" text NOT NULL,
	"external_id" text,
	"credit_note" bigint,
	"problem" text,
	"entry_id" bigint,
	"return_entry_id" bigint,
	"try_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"actor_id" bigint,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "refunds_amount" CHECK ("refunds"."amount_nano" > 0 and "refunds"."tax_nano" between 0 and "refunds"."amount_nano" and "refunds"."worth_nano_usd" >= 0),
	CONSTRAINT "refunds_origin" CHECK ("refunds"."origin" in ('seller', 'stripe', 'dispute')),
	CONSTRAINT "refunds_shortfall" CHECK ("refunds"."shortfall_nano_usd" between 0 and "refunds"."worth_nano_usd" and ("refunds"."origin" <> 'seller' or "refunds"."shortfall_nano_usd" = 0)),
	CONSTRAINT "refunds_status" CHECK ("refunds"."status" in ('pending', 'done', 'failed'))
);
--> statement-breakpoint
CREATE TABLE "disputes" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "disputes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"payment_id" bigint NOT NULL,
	"order_id" bigint NOT NULL,
	"account_id" bigint NOT NULL,
	"seller_id" bigint NOT NULL,
	"external_id" text NOT NULL,
	"currency" text NOT NULL,
	"amount_nano" bigint NOT NULL,
	"reason" text NOT NULL,
	"status" text NOT NULL,
	"due_at" timestamp with time zone,
	"asked_at" timestamp with time zone NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "disputes_amount" CHECK ("disputes"."amount_nano" >= 0)
);
--> statement-breakpoint
CREATE TABLE "stripe_reads" (
	"seller_id" bigint PRIMARY KEY NOT NULL,
	"read_until" timestamp with time zone DEFAULT clock_timestamp() - interval '30 days' NOT NULL,
	"due_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "checkouts" ADD CONSTRAINT "checkouts_order_id_orders_id_fk" FOREIGN KEY ("order_id") REFERENCES "public"."orders"("id") ON DELETE cascade ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "payments" ADD CONSTRAINT "payments_order_id_orders_id_fk" FOREIGN KEY ("order_id") REFERENCES "public"."orders"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "payments" ADD CONSTRAINT "payments_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "refunds" ADD CONSTRAINT "refunds_payment_id_payments_id_fk" FOREIGN KEY ("payment_id") REFERENCES "public"."payments"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "refunds" ADD CONSTRAINT "refunds_order_id_orders_id_fk" FOREIGN KEY ("order_id") REFERENCES "public"."orders"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "refunds" ADD CONSTRAINT "refunds_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "disputes" ADD CONSTRAINT "disputes_payment_id_payments_id_fk" FOREIGN KEY ("payment_id") REFERENCES "public"."payments"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "disputes" ADD CONSTRAINT "disputes_order_id_orders_id_fk" FOREIGN KEY ("order_id") REFERENCES "public"."orders"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
ALTER TABLE "disputes" ADD CONSTRAINT "disputes_account_id_accounts_id_fk" FOREIGN KEY ("account_id") REFERENCES "public"."accounts"("id") ON DELETE no action ON UPDATE no action;
--> statement-breakpoint
CREATE UNIQUE INDEX "checkouts_session" ON "checkouts" USING btree ("seller_id","session_id");
--> statement-breakpoint
CREATE INDEX "checkouts_order" ON "checkouts" USING btree ("order_id");
--> statement-breakpoint
CREATE INDEX "checkouts_ask" ON "checkouts" USING btree ("ask_at") WHERE "checkouts"."status" = 'open';
--> statement-breakpoint
CREATE UNIQUE INDEX "payments_external" ON "payments" USING btree ("seller_id","method","external_id");
--> statement-breakpoint
CREATE UNIQUE INDEX "payments_order_once" ON "payments" USING btree ("order_id") WHERE "payments"."problem" is null;
--> statement-breakpoint
CREATE INDEX "payments_order" ON "payments" USING btree ("order_id");
--> statement-breakpoint
CREATE INDEX "payments_seller" ON "payments" USING btree ("seller_id","id");
--> statement-breakpoint
CREATE INDEX "refunds_payment" ON "refunds" USING btree ("payment_id");
--> statement-breakpoint
CREATE INDEX "refunds_order" ON "refunds" USING btree ("order_id");
--> statement-breakpoint
CREATE INDEX "refunds_pending" ON "refunds" USING btree ("try_at") WHERE "refunds"."status" = 'pending';
--> statement-breakpoint
CREATE UNIQUE INDEX "refunds_entry" ON "refunds" USING btree ("entry_id");
--> statement-breakpoint
CREATE UNIQUE INDEX "refunds_external" ON "refunds" USING btree ("seller_id","external_id") WHERE "refunds"."status" <> 'failed';
--> statement-breakpoint
CREATE UNIQUE INDEX "disputes_external" ON "disputes" USING btree ("seller_id","external_id");
--> statement-breakpoint
CREATE INDEX "disputes_payment" ON "disputes" USING btree ("payment_id");
--> statement-breakpoint
CREATE INDEX "disputes_order" ON "disputes" USING btree ("order_id");
--> statement-breakpoint
CREATE INDEX "stripe_reads_due" ON "stripe_reads" USING btree ("due_at");
--> statement-breakpoint
-- Takes a refund from a balance, as far as it is available, and gives it to p_to: the reseller whose transfer the top-up was. null: the
-- operator sold it, and no balance gets it. p_partial: what is not available is left out; else nothing is taken. Returns the id of the
-- account's entry (null: nothing was taken) and how much was taken, or a code: not_found, insufficient_balance, idle.
CREATE FUNCTION refund_balance(p_account bigint, p_to bigint, p_nano_usd bigint, p_reason text, p_actor bigint, p_partial boolean DEFAULT false,
  OUT code text, OUT entry_id bigint, OUT free_nano_usd bigint, OUT taken_nano_usd bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF p_nano_usd <= 0 THEN RAISE EXCEPTION 'a refund is above zero'; END IF;
  taken_nano_usd := 0;
  PERFORM lock_accounts(ARRAY[p_account, p_to]);
  SELECT balance_nano_usd - held_nano_usd INTO free_nano_usd FROM balances WHERE account_id = p_account;
  IF NOT FOUND OR p_account = p_to OR (p_to IS NOT NULL AND NOT EXISTS (SELECT FROM balances WHERE account_id = p_to)) THEN
    code := 'not_found';
  ELSIF free_nano_usd < p_nano_usd AND has_idle_money(p_account) THEN
    code := 'idle';
  ELSIF free_nano_usd < p_nano_usd AND NOT p_partial THEN
    code := 'insufficient_balance';
  ELSE
    taken_nano_usd := least(p_nano_usd, greatest(free_nano_usd, 0));
    IF taken_nano_usd = 0 THEN RETURN; END IF;
    UPDATE balances SET balance_nano_usd = balance_nano_usd - taken_nano_usd WHERE account_id = p_account;
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, counterpart_id, reason, actor_id)
    VALUES (p_account, -taken_nano_usd, 'refund', p_to, p_reason, p_actor) RETURNING id INTO entry_id;
    IF p_to IS NOT NULL THEN
      UPDATE balances SET balance_nano_usd = balance_nano_usd + taken_nano_usd WHERE account_id = p_to;
      INSERT INTO balance_entries (account_id, amount_nano_usd, kind, counterpart_id, reason, actor_id)
      VALUES (p_to, taken_nano_usd, 'refund', p_account, p_reason, p_actor);
    END IF;
  END IF;
END $$;
--> statement-breakpoint
-- What an order costs with its tax, in billionths of its currency; null: it has no price.
CREATE FUNCTION order_total(o orders) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(o.net_nano, o.price_nano_usd) + o.tax_nano
$$;
--> statement-breakpoint
-- What is wrong with an order, its payments and its refunds; null: nothing. The view and the check of the books use it.
CREATE FUNCTION order_problem(o orders) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN o.paid_at IS NULL AND EXISTS (SELECT FROM payments WHERE order_id = o.id AND problem IS NULL) THEN 'has a payment and is not paid'
    WHEN o.paid_at IS NOT NULL AND NOT EXISTS (SELECT FROM payments WHERE order_id = o.id AND problem IS NULL
      AND amount_nano = order_total(o) AND currency = o.currency AND seller_id = o.seller_id AND account_id = o.account_id) THEN 'is paid without its payment'
    WHEN o.status <> 'fulfilled' AND (o.package_id IS NOT NULL OR o.entry_id IS NOT NULL) THEN 'is fulfilled and does not say so'
    WHEN o.status = 'fulfilled' AND o.paid_at IS NOT NULL AND o.kind = 'package'
      AND NOT EXISTS (SELECT FROM packages p WHERE p.id = o.package_id AND p.account_id = o.account_id AND p.offering_id = o.offering_id) THEN 'is fulfilled without its package'
    WHEN o.status = 'fulfilled' AND o.paid_at IS NOT NULL AND o.kind = 'top_up'
      AND NOT EXISTS (SELECT FROM balance_entries e WHERE e.id = o.entry_id AND e.account_id = o.account_id AND e.amount_nano_usd = o.amount_nano_usd) THEN 'is fulfilled without its top-up'
    WHEN EXISTS (SELECT FROM payments p JOIN refunds r ON r.payment_id = p.id AND r.status <> 'failed' WHERE p.order_id = o.id
      GROUP BY p.id, p.amount_nano HAVING sum(r.amount_nano) > p.amount_nano) THEN 'has more refunds than payments'
    WHEN EXISTS (SELECT FROM refunds r JOIN payments p ON p.id = r.payment_id WHERE r.order_id = o.id
      AND (p.order_id <> o.id OR p.seller_id <> r.seller_id OR p.account_id <> r.account_id)) THEN 'has a refund of another order'
    -- The tax and the worth of its refunds are those of the order at most, and exactly those if all was refunded.
    WHEN EXISTS (SELECT FROM payments p JOIN refunds r ON r.payment_id = p.id AND r.status <> 'failed' WHERE p.order_id = o.id AND p.problem IS NULL
      GROUP BY p.amount_nano HAVING sum(r.tax_nano) > o.tax_nano OR sum(r.worth_nano_usd) > o.price_nano_usd
        OR (sum(r.amount_nano) = p.amount_nano AND (sum(r.tax_nano) <> o.tax_nano OR sum(r.worth_nano_usd) <> o.price_nano_usd))) THEN 'has refunds with another tax'
    -- In proportion to what was paid back; each refund, also one that failed later, has rounded down once.
    WHEN EXISTS (SELECT FROM payments p JOIN refunds r ON r.payment_id = p.id WHERE p.order_id = o.id AND p.problem IS NULL
      GROUP BY p.amount_nano HAVING abs(sum(r.worth_nano_usd) FILTER (WHERE r.status <> 'failed')
        - sum(r.amount_nano) FILTER (WHERE r.status <> 'failed') * o.price_nano_usd / p.amount_nano) > count(*)) THEN 'has refunds of another worth'
    WHEN o.status = 'refunded' AND order_total(o) IS DISTINCT FROM (SELECT sum(r.amount_nano) FROM refunds r JOIN payments p ON p.id = r.payment_id
      WHERE r.order_id = o.id AND r.status <> 'failed' AND p.problem IS NULL) THEN 'is refunded without its refunds'
    WHEN o.status = 'paid' AND o.try_at IS NOT NULL AND EXISTS (SELECT FROM refunds r JOIN payments p ON p.id = r.payment_id
      WHERE r.order_id = o.id AND r.status <> 'failed' AND p.problem IS NULL) THEN 'has a refund and waits to be fulfilled'
    WHEN EXISTS (SELECT FROM refunds r JOIN payments p ON p.id = r.payment_id
      WHERE r.order_id = o.id AND r.entry_id IS NOT NULL AND (o.kind <> 'top_up' OR p.problem IS NOT NULL)) THEN 'has a refund that took too much'
    -- It goes back to the balance that the top-up came from.
    WHEN EXISTS (SELECT FROM refunds r LEFT JOIN balance_entries e ON e.id = r.entry_id WHERE r.order_id = o.id AND r.entry_id IS NOT NULL
      AND (e.id IS NULL OR e.kind <> 'refund' OR e.amount_nano_usd <> r.shortfall_nano_usd - r.worth_nano_usd OR e.account_id <> o.account_id
        OR e.counterpart_id IS DISTINCT FROM (SELECT counterpart_id FROM balance_entries WHERE id = o.entry_id))) THEN 'has a refund without its entry'
    WHEN o.kind = 'top_up' AND o.status = 'fulfilled' AND EXISTS (SELECT FROM refunds r JOIN payments p ON p.id = r.payment_id
      WHERE r.order_id = o.id AND r.status <> 'failed' AND p.problem IS NULL AND r.entry_id IS NULL AND r.shortfall_nano_usd < r.worth_nano_usd AND r.created_at >= o.decided_at) THEN 'has a refund that took nothing from the balance'
    -- The reason names the refund, so no entry returns two of them.
    WHEN EXISTS (SELECT FROM refunds r LEFT JOIN balance_entries e ON e.id = r.return_entry_id WHERE r.order_id = o.id
      AND (r.status = 'failed' AND r.entry_id IS NOT NULL) IS DISTINCT FROM (e.id IS NOT NULL AND e.amount_nano_usd = r.worth_nano_usd - r.shortfall_nano_usd
        AND e.account_id = o.account_id AND e.reason = 'refund ' || r.id || ' failed')) THEN 'has a failed refund that was not returned'
    WHEN EXISTS (SELECT FROM refunds r JOIN payments p ON p.id = r.payment_id
      WHERE r.order_id = o.id AND r.status = 'done' AND (p.problem IS NULL) <> (r.credit_note IS NOT NULL)) THEN 'has a refund without its credit note'
    WHEN EXISTS (SELECT FROM disputes d JOIN payments p ON p.id = d.payment_id WHERE d.order_id = o.id AND (p.order_id <> o.id OR p.seller_id <> d.seller_id))
      THEN 'has a dispute of another order'
  END
$$;
--> statement-breakpoint
CREATE VIEW inv_payments AS
  SELECT o.id AS order_id, order_problem(o) AS problem FROM orders o WHERE order_problem(o) IS NOT NULL;
--> statement-breakpoint
CREATE TRIGGER payments_audit AFTER INSERT OR DELETE OR UPDATE ON payments FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'order_id');
--> statement-breakpoint
CREATE TRIGGER refunds_audit AFTER INSERT OR DELETE OR UPDATE ON refunds FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'order_id');
--> statement-breakpoint
CREATE TRIGGER disputes_audit AFTER INSERT OR DELETE OR UPDATE OF status ON disputes FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id', 'order_id');
