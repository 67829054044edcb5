-- The books: functions that folding uses, and the invariants as views.

CREATE TABLE "receipt_blocks" (
	"month" date NOT NULL,
	"number" integer NOT NULL,
	"last_id" uuid NOT NULL,
	"receipts" integer NOT NULL,
	"digest" "bytea" NOT NULL,
	CONSTRAINT "receipt_blocks_month_number_pk" PRIMARY KEY("month","number")
);
--> statement-breakpoint
CREATE TABLE "receipt_seals" (
	"month" date PRIMARY KEY NOT NULL,
	"closed_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"sealed_at" timestamp with time zone,
	"receipts" bigint,
	"blocks_digest" "bytea",
	"totals_digest" "bytea",
	"previous" "bytea",
	"seal" "bytea",
	"exported_at" timestamp with time zone,
	"dropped_at" timestamp with time zone,
	"compared_at" timestamp with time zone,
	"problems" text[] DEFAULT '{}' NOT NULL,
	"recounted_to" bigint
);
--> statement-breakpoint
CREATE TABLE "receipt_totals" (
	"month" date NOT NULL,
	"account_id" bigint NOT NULL,
	"mode" text NOT NULL,
	"receipts" bigint NOT NULL,
	"settled" bigint NOT NULL,
	"units" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"cached_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"charged_tokens" numeric NOT NULL,
	"charged_nano_usd" numeric NOT NULL,
	"shortfall_nano_usd" numeric NOT NULL,
	"cost_nano_usd" numeric NOT NULL,
	"provider_cost_nano_usd" numeric NOT NULL,
	CONSTRAINT "receipt_totals_month_account_id_mode_pk" PRIMARY KEY("month","account_id","mode")
);
--> statement-breakpoint
CREATE TABLE "sealed_sums" (
	"month" date NOT NULL,
	"kind" text NOT NULL,
	"id" bigint NOT NULL,
	"day" date NOT NULL,
	"rows" bigint NOT NULL,
	"units" numeric DEFAULT '0' NOT NULL,
	"tokens" numeric DEFAULT '0' NOT NULL,
	"nano_usd" numeric DEFAULT '0' NOT NULL,
	CONSTRAINT "sealed_sums_month_kind_id_day_pk" PRIMARY KEY("month","kind","id","day")
);
--> statement-breakpoint
CREATE TABLE "sealed_usage" (
	"month" date NOT NULL,
	"account_id" bigint NOT NULL,
	"key_id" bigint NOT NULL,
	"begins" timestamp with time zone NOT NULL,
	"ends" timestamp with time zone NOT NULL,
	"kind_id" integer NOT NULL,
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
	CONSTRAINT "sealed_usage_month_account_id_key_id_begins_ends_kind_id_pk" PRIMARY KEY("month","account_id","key_id","begins","ends","kind_id")
);
--> statement-breakpoint
CREATE INDEX "sealed_sums_counter" ON "sealed_sums" USING btree ("kind","id","day");
--> statement-breakpoint

-- A receipt as one line of JSON, as it is hashed for the seal of its month and exported: the same text on every server and in every session.
-- `written_in` is left out, because restoring a copy changes it.
CREATE FUNCTION receipt_line(r receipts) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT json_build_object('request_id', r.request_id, 'account_id', r.account_id, 'key_id', r.key_id, 'model_id', r.model_id, 'host', r.host,
    'mode', r.mode, 'package_id', r.package_id, 'day', to_char(r.day, 'YYYY-MM-DD'), 'key_day', to_char(r.key_day, 'YYYY-MM-DD'),
    'outcome', r.outcome, 'reason', r.reason, 'units', r.units, 'held_nano_usd', r.held_nano_usd, 'charged_nano_usd', r.charged_nano_usd,
    'shortfall_nano_usd', r.shortfall_nano_usd, 'prompt_tokens', r.prompt_tokens, 'cached_tokens', r.cached_tokens,
    'completion_tokens', r.completion_tokens, 'charged_tokens', r.charged_tokens, 'estimated', r.estimated,
    'price_version_id', r.price_version_id, 'further_counts', r.further_counts, 'reported_usage', r.reported_usage, 'tried', r.tried,
    'markup_basis_points', r.markup_basis_points, 'cost_nano_usd', r.cost_nano_usd, 'route_id', r.route_id, 'first_ms', r.first_ms,
    'provider_cost_nano_usd', r.provider_cost_nano_usd,
    'created_at', to_char(r.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'finished_at', to_char(r.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text
$$;
--> statement-breakpoint

-- The partition of receipts of a month.
CREATE FUNCTION receipt_partition(p_month date) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT 'receipts_' || extract(year FROM p_month) || '_' || lpad(extract(month FROM p_month)::text, 2, '0')
$$;
--> statement-breakpoint

-- The smallest request id of a month of UTC.
CREATE FUNCTION receipt_month_floor(p_month date) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT request_id_floor(p_month::timestamp AT TIME ZONE 'UTC')
$$;
--> statement-breakpoint

-- The smallest request id whose receipt is kept. Months are dropped in their order.
CREATE FUNCTION receipts_kept_from() RETURNS uuid LANGUAGE sql STABLE AS $$
  SELECT coalesce((SELECT receipt_month_floor((max(month) + interval '1 month')::date) FROM receipt_seals WHERE dropped_at IS NOT NULL),
    '00000000-0000-0000-0000-000000000000')
$$;
--> statement-breakpoint

CREATE VIEW dropped_sums AS
  SELECT s.* FROM sealed_sums s JOIN receipt_seals m USING (month) WHERE m.dropped_at IS NOT NULL;
--> statement-breakpoint

-- A settlement that comes after its month was closed fails as a row whose values are wrong does: its replica sets it aside, on disk.
CREATE FUNCTION refuse_sealed_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' AND current_setting('tollgate.dropping', true) = TG_TABLE_NAME THEN RETURN NULL; END IF;
  RAISE EXCEPTION 'the receipts of % are sealed', right(TG_TABLE_NAME, 7) USING ERRCODE = 'check_violation',
    HINT = 'A settlement that comes this late is set aside: see docs/retention.md.';
END $$;
--> statement-breakpoint

-- Closes a month: from the commit on, none of its receipts can be added, changed or removed. Creating the trigger waits for those that
-- write to the partition, and for no others. Only `written_in` may change, as after a restore. False: it was closed already.
CREATE FUNCTION close_receipt_month(p_month date) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
  v_name text := receipt_partition(p_month);
  v_columns text;
BEGIN
  IF EXISTS (SELECT FROM receipt_seals WHERE month = p_month) THEN RETURN false; END IF;
  SELECT string_agg(quote_ident(attname), ', ') INTO v_columns FROM pg_attribute
  WHERE attrelid = v_name::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'written_in';
  EXECUTE format('CREATE TRIGGER receipts_sealed BEFORE INSERT OR DELETE OR UPDATE OF %s ON %I FOR EACH ROW EXECUTE FUNCTION refuse_sealed_change()',
    v_columns, v_name);
  EXECUTE format('CREATE TRIGGER receipts_sealed_whole BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_sealed_change()', v_name);
  INSERT INTO receipt_seals (month) VALUES (p_month);
  RETURN true;
END $$;
--> statement-breakpoint

-- Removes the receipts of a sealed month. The partition stays, empty and closed: a settlement that comes now is refused, in place of being
-- charged a second time. Emptying it locks that partition alone, and waits for it only for a moment, because statements over several months
-- would wait behind it.
CREATE FUNCTION drop_receipt_month(p_month date) RETURNS void LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
  v_name text := receipt_partition(p_month);
BEGIN
  PERFORM set_config('tollgate.dropping', v_name, true);
  EXECUTE format('TRUNCATE %I', v_name);
  PERFORM set_config('tollgate.dropping', '', true);
  UPDATE receipt_seals SET dropped_at = ledger_now() WHERE month = p_month;
END $$;
--> statement-breakpoint

-- The closing adds receipts to closed sums (src/books/folding_store.ts). It counts and hashes them in pieces of 16 seconds of
-- request ids (2^14 ms).
INSERT INTO book_closing DEFAULT VALUES;
--> statement-breakpoint

CREATE FUNCTION receipts_piece(p_id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint >> 14
$$;
--> statement-breakpoint

-- The smallest request id of a piece.
CREATE FUNCTION receipts_piece_floor(p_piece bigint) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (lpad(to_hex(p_piece << 14), 12, '0') || repeat('0', 20))::uuid
$$;
--> statement-breakpoint

-- The UTC day of a request id.
CREATE FUNCTION request_day(p_id uuid) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT date '1970-01-01' + (('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 86400000)::int
$$;
--> statement-breakpoint

-- The start of a span of the rollups (`usage_sums`). Spans are in minutes of UTC; 0: a month of UTC.
CREATE FUNCTION span_begins(p_span int, p_at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE p_span
    WHEN 15 THEN date_bin('15 minutes', p_at, '2000-01-01 00:00:00+00'::timestamptz)
    WHEN 60 THEN date_bin('1 hour', p_at, '2000-01-01 00:00:00+00'::timestamptz)
    WHEN 1440 THEN date_bin('1 day', p_at, '2000-01-01 00:00:00+00'::timestamptz)
    WHEN 0 THEN date_trunc('month', p_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' END
$$;
--> statement-breakpoint

-- A duration in ms as a mark in a histogram: 10^12 to the power of its bucket (`bucketOf` in platform/durations.ts). The sum of marks has the
-- count of each bucket in twelve decimal digits of its own, so that histograms are added, and compared, as plain numbers. NULL: no mark.
CREATE FUNCTION duration_mark(p_ms bigint) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_ms IS NULL THEN 0 ELSE ('1e' || 12 * width_bucket(p_ms, '{1,2,2,2,2,3,3,4,4,5,6,7,8,10,12,14,16,20,23,27,32,39,46,54,64,77,91,108,128,153,182,216,256,305,363,431,512,609,725,862,1024,1218,1449,1723,2048,2436,2897,3445,4096,4871,5793,6889,8192,9742,11586,13778,16384,19484,23171,27555,32768,38968,46341,55109,65536,77936,92682,110218,131072,155872,185364,220436,262144,311744,370728,440872,524288,623488,741456,881744,1048576}'::bigint[]))::numeric END
$$;
--> statement-breakpoint

-- Whether a request may have ended in another month than it began, in some time zone: zones differ from UTC by at most 14 hours. Calculated
-- without time zone: arithmetic with one is not immutable, and Postgres would call this function for each row in place of inlining it.
CREATE FUNCTION crosses_month(p_began timestamptz, p_ended timestamptz) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT span_begins(15, p_began) <> span_begins(15, p_ended)
    AND date_trunc('month', least(p_began, p_ended) AT TIME ZONE 'UTC' - interval '15 hours')
      <> date_trunc('month', greatest(p_began, p_ended) AT TIME ZONE 'UTC' + interval '15 hours')
$$;
--> statement-breakpoint

-- The rates of prices (PriceParts) for a request with so many input tokens: those of its tier.
CREATE FUNCTION rates_for(p_prices jsonb, p_prompt bigint) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT coalesce(
    (SELECT t FROM jsonb_array_elements(p_prices #> '{tokens,tiers}') AS t WHERE p_prompt > (t ->> 'above_input_tokens')::bigint
     ORDER BY (t ->> 'above_input_tokens')::bigint DESC LIMIT 1), p_prices -> 'tokens')
$$;
--> statement-breakpoint

-- The counts of tokens in a provider's report that rates name no price for, by the name of that rate. They are charged at
-- the dearest rate of their kind. Reasoning is output by nature and is not among them. Providers have several names for one count. Source: IMP-6.
CREATE FUNCTION unpriced_counts(p_reported jsonb, p_rates jsonb) RETURNS TABLE (kind text, tokens bigint) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT n.kind, max((r.value #>> '{}')::bigint)
  FROM jsonb_each(p_reported) r JOIN (VALUES
    ('cache_creation_input_tokens', 'cache_write'),
    ('prompt_tokens_details.cache_creation_tokens', 'cache_write'),
    ('prompt_tokens_details.cache_write_tokens', 'cache_write'),
    ('cache_creation.ephemeral_1h_input_tokens', 'cache_write_1h'),
    ('prompt_tokens_details.audio_tokens', 'audio_input'),
    ('completion_tokens_details.audio_tokens', 'audio_output'),
    ('prompt_tokens_details.image_tokens', 'image_input'),
    ('completion_tokens_details.image_tokens', 'image_output')
  ) AS n (name, kind) ON n.name = r.key
  WHERE jsonb_typeof(r.value) = 'number' AND p_rates -> n.kind IS NULL
  GROUP BY n.kind
$$;
--> statement-breakpoint

-- Whether a receipt is of what a key used without being counted for limits of its own, which it had not. A late settlement that took nothing is
-- none.
CREATE FUNCTION is_uncounted(p_outcome text, p_key_day date, p_reason text, p_units smallint, p_charged bigint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT p_outcome = 'settled' AND p_key_day IS NULL AND NOT (p_reason = 'late' AND p_units = 0 AND p_charged = 0)
$$;
--> statement-breakpoint
-- What a key used uncounted, by its days. The caller holds the account's lock, so what this reads must not grow with the receipts: the folded
-- sums, and the receipts that are not folded yet. One statement reads both, of one snapshot. Only while everything is folded again, after a
-- restore or a change by hand, it reads the account's receipts. Sequential scans are off: nothing is known of the snapshot when it is planned.
CREATE FUNCTION uncounted_use(k keys, p_from date, p_to date) RETURNS TABLE (day date, units int, nano bigint) LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
  v_rows_max CONSTANT int := 100000;
  v_xmax xid8;
  v_open xid8[];
  v_is_of_here boolean;
BEGIN
  SELECT pg_snapshot_xmax(c.folded), ARRAY(SELECT pg_snapshot_xip(c.folded)),
    c.server IS NOT DISTINCT FROM (SELECT system_identifier::text FROM pg_control_system()) AND pg_snapshot_xmax(c.folded) <= pg_snapshot_xmax(pg_current_snapshot())
  INTO v_xmax, v_open, v_is_of_here FROM book_closing c;

  IF NOT v_is_of_here OR (SELECT count(*) FROM (SELECT FROM receipts r WHERE r.written_in >= v_xmax LIMIT v_rows_max) r) = v_rows_max
    OR EXISTS (SELECT FROM receipt_seals WHERE recounted_to IS NOT NULL) THEN
    -- `request_id` has the clock of a replica, so it only bounds what is read: a day more.
    RETURN QUERY SELECT d.day, sum(d.rows)::int, sum(d.nano_usd)::bigint FROM (
      SELECT s.day, s.rows, s.nano_usd FROM dropped_sums s WHERE s.kind = 'uncounted' AND s.id = k.id AND s.day BETWEEN p_from AND p_to
      UNION ALL SELECT (r.created_at AT TIME ZONE k.time_zone)::date, count(*), sum(r.charged_nano_usd) FROM receipts r
      WHERE r.account_id = k.account_id AND r.request_id >= request_id_floor(day_begins(p_from, k.time_zone) - interval '1 day') AND r.key_id = k.id
        AND is_uncounted(r.outcome, r.key_day, r.reason, r.units, r.charged_nano_usd) AND (r.created_at AT TIME ZONE k.time_zone)::date BETWEEN p_from AND p_to
      GROUP BY 1) d GROUP BY 1;
    RETURN;
  END IF;

  -- Materialized, so that they are found by their transactions: every index on settled receipts of an account would be read in whole.
  RETURN QUERY WITH unfolded AS MATERIALIZED (
    SELECT r.key_id, r.created_at, r.outcome, r.key_day, r.reason, r.units, r.charged_nano_usd FROM receipts r WHERE r.written_in >= v_xmax
    UNION ALL SELECT r.key_id, r.created_at, r.outcome, r.key_day, r.reason, r.units, r.charged_nano_usd FROM receipts r WHERE r.written_in = ANY (v_open)
  ), used AS (
    SELECT s.day, s.rows AS units, s.nano_usd AS nano FROM book_sums s WHERE s.kind = 'uncounted' AND s.id = k.id AND s.day BETWEEN p_from AND p_to
    UNION ALL SELECT (r.created_at AT TIME ZONE k.time_zone)::date, 1, r.charged_nano_usd FROM unfolded r
    WHERE r.key_id = k.id AND is_uncounted(r.outcome, r.key_day, r.reason, r.units, r.charged_nano_usd)
  )
  SELECT u.day, sum(u.units)::int, sum(u.nano)::bigint FROM used u WHERE u.day BETWEEN p_from AND p_to GROUP BY 1;
END $$;
--> statement-breakpoint

-- Invariants: each view is always empty. Source: src/ledger/README.md. Those that read no receipts and no transactions are also what the checks of the books
-- ask, for a range of ids at a time: they read by LATERAL, so that such a range is pushed down to the rows.
CREATE VIEW inv_package_units AS
  SELECT p.id AS package_id, p.units_taken, h.held, r.used, p.tokens_taken + coalesce(h.used_tokens, 0) AS tokens_taken, h.tokens AS tokens_held, r.tokens AS tokens_used
  FROM packages p
  LEFT JOIN (SELECT package_id, sum(units) AS held, sum(tokens) AS tokens, sum(used_tokens) AS used_tokens FROM escrows WHERE key_id = 0 GROUP BY package_id) h ON h.package_id = p.id
  LEFT JOIN (
    SELECT package_id, sum(units) AS used, sum(tokens) AS tokens FROM (
      SELECT package_id, units, charged_tokens AS tokens FROM receipts WHERE package_id IS NOT NULL
      UNION ALL SELECT id, units, tokens FROM dropped_sums WHERE kind = 'package') all_used GROUP BY package_id) r ON r.package_id = p.id
  WHERE p.units_taken <> coalesce(h.held, 0) + coalesce(r.used, 0)
    OR p.tokens_taken + coalesce(h.used_tokens, 0) <> coalesce(h.tokens, 0) + coalesce(r.tokens, 0);
--> statement-breakpoint
CREATE VIEW inv_package_days AS
  SELECT package_id, day, sum(taken) AS taken, sum(held) AS held, sum(used) AS used
  FROM (
    SELECT package_id, day, units_taken AS taken, 0 AS held, 0 AS used FROM package_days
    UNION ALL SELECT package_id, day, 0, units, 0 FROM escrows WHERE package_id > 0
    UNION ALL SELECT package_id, day, 0, 0, units FROM receipts WHERE package_id IS NOT NULL
    UNION ALL SELECT id, day, 0, 0, units FROM dropped_sums WHERE kind = 'package'
  ) AS both_sides GROUP BY package_id, day HAVING sum(taken) <> sum(held) + sum(used);
--> statement-breakpoint
CREATE VIEW inv_balance_entries AS
  SELECT b.account_id, b.balance_nano_usd, coalesce(e.total, 0) AS entries FROM balances b
  LEFT JOIN (SELECT account_id, sum(amount_nano_usd) AS total FROM balance_entries GROUP BY account_id) e USING (account_id)
  WHERE b.balance_nano_usd <> coalesce(e.total, 0);
--> statement-breakpoint
CREATE VIEW inv_balance_held AS
  SELECT b.account_id, b.held_nano_usd, h.drawn FROM balances b
  CROSS JOIN LATERAL (SELECT coalesce(sum(nano_usd), 0) AS drawn FROM escrows e WHERE e.account_id = b.account_id AND package_id = 0 AND key_id = 0) h
  WHERE b.held_nano_usd <> h.drawn;
--> statement-breakpoint
CREATE VIEW inv_bounds AS
  SELECT 'package' AS what, id, NULL::date AS day FROM packages WHERE units_taken NOT BETWEEN 0 AND total_limit OR tokens_taken < 0 OR tokens_taken > token_limit
  UNION ALL SELECT 'day', package_id, day FROM package_days WHERE units_taken NOT BETWEEN 0 AND units_max
  UNION ALL SELECT 'carryover', p.id, d.day FROM packages p CROSS JOIN LATERAL (
    SELECT day, sum(units_taken) OVER (ORDER BY day) AS so_far FROM package_days WHERE package_id = p.id) d
    WHERE p.carryover AND d.so_far > package_granted(p, d.day)
  UNION ALL SELECT 'balance', account_id, NULL FROM balances WHERE held_nano_usd < 0 OR balance_nano_usd < held_nano_usd;
--> statement-breakpoint
CREATE VIEW inv_charges AS
  SELECT r.request_id, r.charged_nano_usd, coalesce(e.total, 0) AS debited FROM receipts r
  LEFT JOIN (SELECT request_id, -sum(amount_nano_usd) AS total FROM balance_entries WHERE kind = 'charge' GROUP BY request_id) e USING (request_id)
  WHERE r.charged_nano_usd <> coalesce(e.total, 0) OR (r.outcome = 'released' AND r.charged_nano_usd > 0)
    OR (r.mode = 'package' AND r.charged_nano_usd > 0);
--> statement-breakpoint
-- What counts cost by a price version with a markup in basis points, in nano-USD, rounded up once; null: it has no price for them. The rule of the charges a
-- second time (MON-11 to MON-13), in another language: it shares nothing with src/ledger/price.ts, so that the view finds its errors.
CREATE FUNCTION charge_of(p_prices jsonb, p_prompt bigint, p_cached bigint, p_completion bigint, p_further jsonb, p_markup int) RETURNS numeric
LANGUAGE sql IMMUTABLE AS $$
  WITH rates AS (
    SELECT (r ->> 'input')::numeric AS input, (r ->> 'output')::numeric AS output, (r ->> 'cached_input')::numeric AS cached,
      (r ->> 'cache_write')::numeric AS written, (r ->> 'cache_write_1h')::numeric AS written_1h, (r ->> 'reasoning')::numeric AS reasoning,
      (r ->> 'audio_input')::numeric AS audio_in, (r ->> 'image_input')::numeric AS image_in,
      (r ->> 'audio_output')::numeric AS audio_out, (r ->> 'image_output')::numeric AS image_out
    FROM rates_for(p_prices, p_prompt) AS r
  ), parts AS (
    -- In the order in which they are cut to their whole. What they leave of it is ordinary input or output.
    SELECT whole, price, n, coalesce(sum(n) OVER (PARTITION BY side ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS taken
    FROM rates, LATERAL (VALUES
      ('in', 1, p_prompt, (p_further ->> 'cache_write_1h')::bigint, coalesce(written_1h, greatest(input, cached, written))),
      ('in', 2, p_prompt, (p_further ->> 'cache_write')::bigint, coalesce(written, greatest(input, cached, written_1h))),
      ('in', 3, p_prompt, (p_further ->> 'audio_input')::bigint, coalesce(audio_in, greatest(input, cached, written, written_1h, image_in))),
      ('in', 4, p_prompt, (p_further ->> 'image_input')::bigint, coalesce(image_in, greatest(input, cached, written, written_1h, audio_in))),
      ('in', 5, p_prompt, p_cached, coalesce(cached, input)),
      ('in', 6, p_prompt, p_prompt, input),
      ('out', 1, p_completion, (p_further ->> 'audio_output')::bigint, coalesce(audio_out, greatest(output, reasoning, image_out))),
      ('out', 2, p_completion, (p_further ->> 'image_output')::bigint, coalesce(image_out, greatest(output, reasoning, audio_out))),
      ('out', 3, p_completion, (p_further ->> 'reasoning')::bigint, coalesce(reasoning, output)),
      ('out', 4, p_completion, p_completion, output)) AS p(side, place, whole, reported, price), coalesce(reported, 0) AS n
  )
  SELECT ceil((10000 + p_markup) * CASE WHEN p_further ? 'image' THEN (p_prices -> 'images' ->> (p_further ->> 'image'))::numeric * 1000000
    ELSE (SELECT sum(greatest(0, least(n, whole - taken)) * price) FROM parts)
      + coalesce((p_prices ->> 'request')::numeric, 0) * 1000000 END / 10000000)
$$;
--> statement-breakpoint
-- The operator's price is checked as the charge is: the difference is the reseller's.
CREATE VIEW inv_prices AS
  SELECT r.request_id, r.price_version_id, r.charged_nano_usd + r.shortfall_nano_usd AS cost, c.recomputed, r.cost_nano_usd, o.recomputed AS recomputed_cost
  FROM receipts r JOIN price_versions v ON v.id = r.price_version_id,
    LATERAL charge_of(v.prices, r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.further_counts, coalesce(r.markup_basis_points, 0)) AS c(recomputed),
    LATERAL (SELECT CASE WHEN r.markup_basis_points IS NOT NULL
      THEN charge_of(v.prices, r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.further_counts, 0) END) AS o(recomputed)
  WHERE r.outcome = 'settled' AND r.mode = 'payg'
    AND (r.charged_nano_usd + r.shortfall_nano_usd, r.cost_nano_usd) IS DISTINCT FROM (c.recomputed, o.recomputed);
--> statement-breakpoint
CREATE VIEW inv_key_days AS
  SELECT key_id, day, sum(taken) AS taken, sum(units) AS units, sum(taken_nano) AS taken_nano, sum(nano) AS nano
  FROM (
    SELECT key_id, day, units_taken AS taken, taken_nano_usd AS taken_nano, 0 AS units, 0 AS nano FROM key_days
    UNION ALL SELECT key_id, day, 0, 0, units, nano_usd FROM escrows WHERE key_id > 0
    UNION ALL SELECT key_id, key_day, 0, 0, 1, charged_nano_usd FROM receipts WHERE key_day IS NOT NULL AND outcome = 'settled'
    UNION ALL SELECT id, day, 0, 0, units, nano_usd FROM dropped_sums WHERE kind = 'key'
  ) AS both_sides GROUP BY key_id, day HAVING sum(taken) <> sum(units) OR sum(taken_nano) <> sum(nano);
--> statement-breakpoint
CREATE VIEW inv_allotments AS
  SELECT a.id, a.granted, a.used, p.taken FROM allotments a
  CROSS JOIN LATERAL (SELECT count(*) AS taken FROM packages WHERE allotment_id = a.id) p
  WHERE a.used <> p.taken OR a.used > a.granted;
