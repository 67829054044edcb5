-- Resellers' markups on balance prices, and what they earn by them. Source: MRK-1, MRK-6, MRK-7.
CREATE TABLE "markups" (
	"reseller_id" bigint NOT NULL REFERENCES "accounts"("id"),
	"model_id" text NOT NULL,
	"basis_points" integer NOT NULL,
	"updated_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "markups_reseller_id_model_id_pk" PRIMARY KEY("reseller_id","model_id"),
	CONSTRAINT "markups_range" CHECK ("markups"."basis_points" between 0 and 100000)
);
--> statement-breakpoint
CREATE TABLE "earnings" (
	"reseller_id" bigint NOT NULL REFERENCES "accounts"("id"),
	"day" date NOT NULL,
	"requests" bigint NOT NULL,
	"earned_nano_usd" bigint NOT NULL,
	"credited_nano_usd" bigint DEFAULT 0 NOT NULL,
	CONSTRAINT "earnings_reseller_id_day_pk" PRIMARY KEY("reseller_id","day"),
	CONSTRAINT "earnings_once" CHECK ("earnings"."credited_nano_usd" between 0 and "earnings"."earned_nano_usd")
);
--> statement-breakpoint
CREATE INDEX "earnings_due" ON "earnings" USING btree ("reseller_id") WHERE "earnings"."credited_nano_usd" < "earnings"."earned_nano_usd";
--> statement-breakpoint
-- The check of the books sums all entries of this kind, without reading the others.
CREATE INDEX "balance_entries_earnings" ON "balance_entries" USING btree ("account_id","amount_nano_usd") WHERE "balance_entries"."kind" = 'earning';
--> statement-breakpoint
-- A key's snapshot has the markups of the key's reseller.
CREATE TRIGGER markups_changed AFTER INSERT OR DELETE OR UPDATE ON markups FOR EACH ROW EXECUTE FUNCTION note_change('account', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER markups_audit AFTER INSERT OR DELETE OR UPDATE OF basis_points ON markups FOR EACH ROW EXECUTE FUNCTION note_audit('model_id', 'reseller_id', 'basis_points');
--> statement-breakpoint

-- Credits a reseller what closed days have earned and it was not credited yet: one entry for each such day. Whoever comes second, or
-- after a crash, finds nothing left. Returns the number of entries. Waits for a lock for a second (error 55P03), so that an account that
-- stays locked does not hold up the others.
CREATE FUNCTION credit_earnings(p_reseller bigint) RETURNS int LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
DECLARE
  v_due record;
  v_code text;
  v_entries int := 0;
BEGIN
  -- A statement of its own: the loop sees what the holder before has credited.
  PERFORM lock_accounts(ARRAY[p_reseller]);
  FOR v_due IN
    SELECT day, earned_nano_usd - credited_nano_usd AS nano_usd FROM earnings
    WHERE reseller_id = p_reseller AND credited_nano_usd < earned_nano_usd ORDER BY day
  LOOP
    SELECT code INTO v_code FROM add_balance(p_reseller, v_due.nano_usd, 'earning', 'Earnings of ' || v_due.day, NULL);
    IF v_code IS NOT NULL THEN RAISE EXCEPTION 'account % has no balance', p_reseller; END IF;
    UPDATE earnings SET credited_nano_usd = earned_nano_usd WHERE reseller_id = p_reseller AND day = v_due.day;
    v_entries := v_entries + 1;
  END LOOP;
  RETURN v_entries;
END $$;
--> statement-breakpoint

-- A reseller's entries equal what its days were credited (day -infinity), and a closed day has earned what its receipts say. Of the
-- newest closed day a receipt may still be missing: it is added with the next day.
CREATE VIEW inv_earnings AS
  SELECT coalesce(e.account_id, c.reseller_id) AS reseller_id, '-infinity'::date AS day, coalesce(e.nano_usd, 0) AS counted, coalesce(c.nano_usd, 0) AS expected
  FROM (SELECT account_id, sum(amount_nano_usd) AS nano_usd FROM balance_entries WHERE kind = 'earning' GROUP BY account_id) e
  FULL JOIN (SELECT reseller_id, sum(credited_nano_usd) AS nano_usd FROM earnings GROUP BY reseller_id) c ON c.reseller_id = e.account_id
  WHERE coalesce(e.nano_usd, 0) <> coalesce(c.nano_usd, 0)
  UNION ALL
  SELECT reseller_id, day, coalesce(e.earned_nano_usd, 0), coalesce(r.nano_usd, 0)
  FROM earnings e FULL JOIN (
    SELECT reseller_id, day, sum(nano_usd) AS nano_usd FROM (
      SELECT a.reseller_id, (r.finished_at AT TIME ZONE 'UTC')::date AS day, r.charged_nano_usd - r.cost_nano_usd AS nano_usd
      FROM receipts r JOIN accounts a ON a.id = r.account_id
      WHERE r.outcome = 'settled' AND r.charged_nano_usd > r.cost_nano_usd AND a.reseller_id IS NOT NULL
      UNION ALL SELECT id, day, nano_usd FROM dropped_sums WHERE kind = 'earning') earned GROUP BY 1, 2
  ) r USING (reseller_id, day), book_closing b
  WHERE (day < b.earnings_to AND coalesce(e.earned_nano_usd, 0) <> coalesce(r.nano_usd, 0)) OR e.earned_nano_usd > coalesce(r.nano_usd, 0);
