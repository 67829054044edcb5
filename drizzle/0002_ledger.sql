-- Draw, settle, release: the hot path of the ledger. Source: QUO-2, QUO-3, MON-2, MON-6, MON-7, END-13,
-- END-15, ESC-1, ESC-2, ESC-8.
--
-- A replica draws units of a package, or nano-USD of a balance, ahead of the requests that use them (src/ledger/README.md says why).
-- What it has drawn, and not yet settled or given back, is its escrow: rows of `escrows`, which count as held. Nothing is held twice.
--
-- Every function that decides does this in order: take the accounts' advisory locks in a statement of its own, read the clock,
-- read the rows, decide, write. (A statement that locks and reads at once reads a snapshot from before the lock, and oversells.)

-- Every batch rewrites the counters' rows. So: vacuum early and often, leave room on each page for the next row version, and never
-- lock a table to truncate its end.
ALTER TABLE escrows SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false);
--> statement-breakpoint
ALTER TABLE packages SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
ALTER TABLE package_days SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
ALTER TABLE key_days SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
ALTER TABLE balances SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint

-- Every fold rewrites the newest rows of the rollups.
ALTER TABLE usage_sums SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
--> statement-breakpoint
ALTER TABLE usage_holders SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
--> statement-breakpoint

-- The smallest UUIDv7 of an instant: its first 48 bits are Unix milliseconds. It subtracts instants, because Postgres treats
-- that as immutable, and only then inlines the function.
CREATE FUNCTION request_id_floor(p_at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex(floor(extract(epoch FROM p_at - timestamptz '1970-01-01 00:00:00+00') * 1000)::bigint), 12, '0')
    || '00000000000000000000')::uuid
$$;
--> statement-breakpoint

-- STABLE, as its addition is: Postgres inlines no function that promises more than its body.
CREATE FUNCTION instant_of(p_unix_us bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT timestamptz '1970-01-01 00:00:00+00' + p_unix_us * interval '1 microsecond'
$$;
--> statement-breakpoint

-- Creates the partitions of receipts from last month to p_ahead months ahead. Months are UTC. Returns how many it created.
-- CREATE and then ATTACH: attaching takes a weaker lock than creating in place, so settlements continue.
CREATE FUNCTION make_receipt_months(p_ahead int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  v_month timestamp;
  v_name text;
  v_made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('tollgate.receipt_months', 0));
  FOR v_month IN
    SELECT generate_series(date_trunc('month', ledger_now() AT TIME ZONE 'UTC') - interval '1 month',
                           date_trunc('month', ledger_now() AT TIME ZONE 'UTC') + make_interval(months => p_ahead),
                           interval '1 month')
  LOOP
    v_name := 'receipts_' || to_char(v_month, 'YYYY_MM');
    CONTINUE WHEN to_regclass(v_name) IS NOT NULL;
    EXECUTE format('CREATE TABLE %I (LIKE receipts INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name);
    EXECUTE format('ALTER TABLE receipts ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', v_name,
                   request_id_floor(v_month AT TIME ZONE 'UTC'),
                   request_id_floor((v_month + interval '1 month') AT TIME ZONE 'UTC'));
    v_made := v_made + 1;
  END LOOP;
  RETURN v_made;
END $$;
--> statement-breakpoint

-- Creates the partitions of stored responses for yesterday, today and the next two days, and drops those whose responses are all older
-- than p_hours. Days are UTC.
CREATE FUNCTION turn_response_days(p_hours int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_day date;
  v_today date := (ledger_now() AT TIME ZONE 'UTC')::date;
  v_name text;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('tollgate.response_days', 0));
  FOR v_day IN SELECT generate_series(v_today - 1, v_today + 2, interval '1 day')::date
  LOOP
    v_name := 'stored_responses_' || to_char(v_day, 'YYYY_MM_DD');
    CONTINUE WHEN to_regclass(v_name) IS NOT NULL;
    EXECUTE format('CREATE TABLE %I (LIKE stored_responses INCLUDING CONSTRAINTS INCLUDING STORAGE)', v_name);
    EXECUTE format('ALTER TABLE stored_responses ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', v_name,
                   v_day::timestamp AT TIME ZONE 'UTC', (v_day + 1)::timestamp AT TIME ZONE 'UTC');
  END LOOP;
  FOR v_name IN
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'stored_responses'::regclass
      AND to_date(right(c.relname, 10), 'YYYY_MM_DD') < ((ledger_now() - make_interval(hours => p_hours)) AT TIME ZONE 'UTC')::date
      AND to_date(right(c.relname, 10), 'YYYY_MM_DD') < v_today - 1
  LOOP
    EXECUTE format('DROP TABLE %I', v_name);
  END LOOP;
END $$;
--> statement-breakpoint

-- Takes the locks of accounts and waits for them, in ascending order so that two callers cannot deadlock. Held to the end of the transaction.
CREATE FUNCTION lock_accounts(p_ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(id) FROM (SELECT DISTINCT id FROM unnest(p_ids) AS ids(id) WHERE id IS NOT NULL ORDER BY id OFFSET 0) AS sorted;
END $$;
--> statement-breakpoint

-- Takes a reseller's tenant lock, which serializes changes of its domains and its customers, and its account lock. Requests of its
-- customers do not take the tenant lock: whoever ends a right of a tenant waits until what was granted before has run out (see
-- `changing` in src/platform/changes_store.ts).
CREATE FUNCTION lock_tenant(p_reseller bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(-p_reseller);
  PERFORM pg_advisory_xact_lock(p_reseller);
END $$;
--> statement-breakpoint

-- Takes the locks of a batch's accounts. Returns the accounts that are locked by others. With p_wait it waits instead (at most
-- lock_timeout, then error 55P03) and returns none.
CREATE FUNCTION lock_batch(p_accounts bigint[], p_wait boolean) RETURNS bigint[] LANGUAGE plpgsql SET lock_timeout = '800ms' AS $$
BEGIN
  IF p_wait THEN
    PERFORM lock_accounts(p_accounts);
    RETURN '{}';
  END IF;
  -- One account, as on a hot lane: nothing to sort.
  IF cardinality(p_accounts) = 1 THEN
    RETURN CASE WHEN pg_try_advisory_xact_lock(p_accounts[1]) THEN '{}' ELSE p_accounts END;
  END IF;
  RETURN (
    SELECT coalesce(array_agg(account) FILTER (WHERE NOT free), '{}')
    FROM (SELECT account, pg_try_advisory_xact_lock(account) AS free
          FROM (SELECT account FROM unnest(p_accounts) AS a(account) ORDER BY 1) AS sorted OFFSET 0) AS tried);
END $$;
--> statement-breakpoint

-- Whether units of a package (p_package) or money of a balance (0) lie unused in an escrow of the account. If so, their holders are
-- asked for them: each meets the mark with its next draw. The caller holds the lock. p_lease, p_own: what the asking replica itself still
-- keeps, in its own words; null, false: no replica asks.
CREATE FUNCTION recall_idle(p_account bigint, p_package bigint, p_lease uuid, p_own boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE escrows SET recalled = true
  WHERE account_id = p_account AND lease_id IS DISTINCT FROM p_lease AND package_id = p_package AND (idle_units > 0 OR idle_nano_usd > 0);
  RETURN FOUND OR p_own;
END $$;
--> statement-breakpoint

-- The rows of a batch, as `ledger_batch` takes them. `src/ledger/ledger_store.ts` names the same columns in the same order.

-- The end of a hold.
-- - lease_id, package_id (0: the balance pays), day, key_day (null: its key has no daily limits), held_nano_usd, held_tokens (null: no token
--   allowance): what was drawn for it. An escrow row that still exists under that lease gives it; if the reaper has returned it, the
--   settlement is late.
-- - reserved_us: when it was reserved, by this database's clock, in Unix microseconds. settles: charged; otherwise released.
-- - charge_nano_usd: at the prices of the reservation; 0 for a package.
-- - is_strict: nothing was sent to the client yet, so a charge that the balance does not cover becomes a refusal, and all of it the
--   operator's loss. Otherwise the held amount is charged, and the rest is the operator's loss.
-- - further_counts, reported_usage, tried: further counts with a price, other counts of the provider, the routes that were tried.
-- - markup_basis_points, cost_nano_usd: the markup on the operator's price, and that price; null: none.
-- - route_id, first_ms, provider_cost_nano_usd: the route that answered, how soon, and what the provider charges; null: not known.
-- - idle_units, idle_nano_usd: what was idle in the escrow row that gives it when the batch was sent. idle_draw: the number of the last
--   draw that the replica had the answer of then; 0: none under that lease. The figures are written only if this draw is still the row's
--   last one. Under one draw they can only fall, so the lowest is the newest. A batch that was given up may run after a later draw.
CREATE TYPE finish_row AS (
  request_id uuid, lease_id uuid, account_id bigint, key_id bigint, model_id text, host text, package_id bigint, day date, key_day date,
  held_nano_usd bigint, held_tokens bigint, price_version_id bigint, reserved_us bigint, settles boolean, reason text,
  prompt_tokens int, cached_tokens int, completion_tokens int, charge_nano_usd bigint, is_strict boolean, estimated boolean,
  further_counts jsonb, reported_usage jsonb, tried jsonb, markup_basis_points int, cost_nano_usd bigint,
  route_id bigint, first_ms int, provider_cost_nano_usd bigint,
  idle_draw bigint, idle_units int, idle_nano_usd bigint
);
--> statement-breakpoint

-- What a replica still accounts for of one of its escrow rows: requests in flight, their ends that are on the way, idle units. idle_*: the
-- part of it that no request uses.
CREATE TYPE keep_row AS (
  package_id bigint, key_id bigint, day date, units int, tokens bigint, nano_usd bigint, idle_units int, idle_nano_usd bigint
);
--> statement-breakpoint

-- The draw of an account.
-- - number: a draw runs only if no later one of the same lease and account has run, so a statement that was given up can do no harm when
--   it runs late.
-- - units, nano_usd: how much to draw ahead. known_epoch: the account's epoch of which the replica knows.
-- - returns: the replica keeps less than it has drawn, or does not know what an earlier draw gave. What its rows have beyond `keeps` is
--   given back.
CREATE TYPE draw_row AS (
  account_id bigint, tenant_id bigint, number bigint, units int, nano_usd bigint, known_epoch bigint, returns boolean, keeps keep_row[]
);
--> statement-breakpoint

-- A sequence of requests of an account that differ only in amounts. place: of its account's draw, counted from 1; runs are in the order of
-- their places, and of arrival. The requests are first_request to last_request, counted from 1. A draw for which there is no request has
-- one run, without a request and without a key. output_pico: pico-USD of one output token; −1: the model has no balance price.
CREATE TYPE run_row AS (
  place int, ends_draw boolean, first_request int, last_request int, key_id bigint, host text, own_host boolean, model_id text, output_pico bigint
);
--> statement-breakpoint

-- The amounts of a request. prompt_pico: the upper bound of the prompt (or the image) in pico-USD, margin included. cap_max is the wanted
-- output cap, cap_min the lowest acceptable one. Of a token allowance it reserves prompt_tokens, and the output cap for each of `choices`.
CREATE TYPE request_row AS (prompt_pico bigint, cap_max int, cap_min int, prompt_tokens bigint, choices int);
--> statement-breakpoint

-- How the end at `place` (counted from 1) went, if not as it asked: settled, released, refused (strict only), already (settled before),
-- gone (over for good, and not charged), busy, recall (the charge, or a late settlement, needs money or a unit that lies unused in an escrow;
-- it has been asked for). unpaid_tokens: what a package's request used and no package pays.
CREATE TYPE finish_answer AS (
  place int, outcome text, charged_nano_usd bigint, shortfall_nano_usd bigint, units int, unpaid_tokens bigint
);
--> statement-breakpoint

-- One per draw, in their order. code null: it has run; else busy, stale (a later one has run), lease_ended, clock_skew. now_us: the
-- database's clock, Unix microseconds. good_ms: how long units of that package and day may be used. recalled: another replica had asked
-- for what lies unused here. units, nano_usd: drawn ahead; nano_usd null: pay-as-you-go is off.
CREATE TYPE draw_answer AS (
  code text, recalled boolean, now_us bigint, epoch bigint, tenant_epoch bigint, package_id bigint, day date, units int, nano_usd bigint,
  good_ms bigint, model_ids jsonb
);
--> statement-breakpoint

-- The answer for `many` consecutive requests of a run, from the request first_request on. code null: granted; recall: units lie unused
-- in an escrow and have been asked for.
CREATE TYPE reserve_answer AS (
  run_no int, first_request int, many int, code text, package_id bigint, day date, key_day date, nano_usd bigint, tokens bigint, cap_tokens int,
  quota_limit bigint, quota_used bigint, quota_remaining bigint, resets_at timestamptz
);
--> statement-breakpoint

-- What is given back of an escrow row.
CREATE TYPE returned_part AS (
  account_id bigint, lease_id uuid, package_id bigint, key_id bigint, day date, units int, tokens bigint, nano_usd bigint
);
--> statement-breakpoint

-- What a draw (at `place`) does to an escrow row: what it adds, and what of the row is idle then. kept: it was idle before.
CREATE TYPE drawn_part AS (
  place int, package_id bigint, key_id bigint, day date, units int, tokens bigint, nano_usd bigint, idle_units int, idle_nano_usd bigint, kept boolean
);
--> statement-breakpoint

-- Gives back what replicas no longer keep: it is no longer taken. The caller holds the locks. In PL/pgSQL, so that its plan is kept.
CREATE FUNCTION give_back(p_parts returned_part[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  WITH back AS (
    SELECT * FROM unnest(p_parts)
  ), escrow_rows AS (
    UPDATE escrows e SET units = e.units - b.units, tokens = e.tokens - b.tokens, nano_usd = e.nano_usd - b.nano_usd
    FROM back b WHERE (e.account_id, e.lease_id, e.package_id, e.key_id, e.day) = (b.account_id, b.lease_id, b.package_id, b.key_id, b.day)
  ), package_rows AS (
    UPDATE packages p SET units_taken = p.units_taken - s.units, tokens_taken = p.tokens_taken - s.tokens
    FROM (SELECT package_id, sum(units)::int AS units, sum(tokens)::bigint AS tokens FROM back WHERE package_id > 0 GROUP BY 1) s
    WHERE p.id = s.package_id
  ), package_day_rows AS (
    UPDATE package_days d SET units_taken = d.units_taken - s.units
    FROM (SELECT package_id, day, sum(units)::int AS units FROM back WHERE package_id > 0 GROUP BY 1, 2) s
    WHERE d.package_id = s.package_id AND d.day = s.day
  ), balance_rows AS (
    UPDATE balances b SET held_nano_usd = b.held_nano_usd - s.nano
    FROM (SELECT account_id, sum(nano_usd)::bigint AS nano FROM back WHERE package_id = 0 AND key_id = 0 GROUP BY 1) s
    WHERE b.account_id = s.account_id
  )
  UPDATE key_days d SET units_taken = d.units_taken - s.units, taken_nano_usd = d.taken_nano_usd - s.nano
  FROM (SELECT key_id, day, sum(units)::int AS units, sum(nano_usd)::bigint AS nano FROM back WHERE key_id > 0 GROUP BY 1, 2) s
  WHERE d.key_id = s.key_id AND d.day = s.day;
END $$;
--> statement-breakpoint
-- Whether a key has limits of its own that the ledger counts, and whether one of them is longer than a day.
CREATE FUNCTION has_budget(k keys) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(k.weekly_spend_max_nano_usd, k.monthly_spend_max_nano_usd, k.total_spend_max_nano_usd) IS NOT NULL
$$;
--> statement-breakpoint
CREATE FUNCTION is_limited(k keys) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT k.daily_units_max IS NOT NULL OR k.daily_spend_max_nano_usd IS NOT NULL OR has_budget(k)
$$;
--> statement-breakpoint
-- A key's budgets of more than a day, on a day of the key: the first day that each counts, and the first that it does not; null: it has no end.
-- Weeks begin on Mondays.
CREATE FUNCTION key_budgets(k keys, p_day date) RETURNS TABLE (spend_max bigint, first_day date, end_day date) LANGUAGE sql STABLE AS $$
  SELECT k.weekly_spend_max_nano_usd, date_trunc('week', p_day)::date, date_trunc('week', p_day)::date + 7 WHERE k.weekly_spend_max_nano_usd IS NOT NULL
  UNION ALL
  SELECT k.monthly_spend_max_nano_usd, date_trunc('month', p_day)::date, (date_trunc('month', p_day) + interval '1 month')::date
  WHERE k.monthly_spend_max_nano_usd IS NOT NULL
  UNION ALL
  SELECT k.total_spend_max_nano_usd, k.total_spend_from, NULL WHERE k.total_spend_max_nano_usd IS NOT NULL
$$;
--> statement-breakpoint
-- The budget of more than a day of which a key has the least left: its amount, what is left, and when it begins anew; null: never.
CREATE TYPE key_budget AS (spend_max bigint, nano_usd bigint, resets_at timestamptz);
--> statement-breakpoint
CREATE FUNCTION key_budget_left(k keys, p_day date) RETURNS key_budget LANGUAGE sql STABLE AS $$
  SELECT ROW(b.spend_max, b.spend_max - coalesce(used.nano, 0), day_begins(b.end_day, k.time_zone))::key_budget
  FROM key_budgets(k, p_day) b CROSS JOIN LATERAL (
    SELECT sum(d.taken_nano_usd + d.nano_usd_before)::bigint AS nano FROM key_days d
    WHERE d.key_id = k.id AND d.day >= b.first_day AND d.day < coalesce(b.end_day, 'infinity')) used
  ORDER BY b.spend_max - coalesce(used.nano, 0), b.end_day DESC NULLS FIRST LIMIT 1
$$;
--> statement-breakpoint
-- What a key may spend in total counts from the day on which that was set.
CREATE FUNCTION begin_key_total() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.total_spend_from := CASE WHEN NEW.total_spend_max_nano_usd IS NULL THEN NULL
    WHEN TG_OP = 'UPDATE' AND OLD.total_spend_max_nano_usd IS NOT NULL THEN OLD.total_spend_from
    ELSE (ledger_now() AT TIME ZONE NEW.time_zone)::date END;
  RETURN NEW;
END $$;
--> statement-breakpoint
CREATE TRIGGER keys_total_begins BEFORE INSERT OR UPDATE OF total_spend_max_nano_usd ON keys FOR EACH ROW EXECUTE FUNCTION begin_key_total();
--> statement-breakpoint
-- A key's own limits change in the middle of a day. What it has used of the day, the week or the month without being counted counts from now on,
-- so that limits that are set at noon are limits of the day. Late settlements get no more than the new limits have left. Requests in flight are not counted if
-- the key had no limits when they began. The caller holds the account's lock.
CREATE FUNCTION begin_key_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_day date := (ledger_now() AT TIME ZONE NEW.time_zone)::date;
  v_from date := least((SELECT min(b.first_day) FROM key_budgets(NEW, v_day) b), v_day);
  v_units_max int := coalesce(NEW.daily_units_max, 2147483647);
  v_nano_max bigint := coalesce(NEW.daily_spend_max_nano_usd, 9223372036854775807);
BEGIN
  IF NOT is_limited(NEW) THEN
    UPDATE key_days SET units_max = v_units_max, spend_max_nano_usd = v_nano_max WHERE key_id = NEW.id AND day = v_day;
    RETURN NULL;
  END IF;
  -- A key without a row has used nothing yet: the first request of the day writes it. Days that are over keep their daily limits.
  WITH counted AS (
    SELECT day, coalesce(u.units, 0) AS units, coalesce(u.nano, 0) AS nano
    FROM uncounted_use(NEW, v_from, v_day) u FULL JOIN (SELECT x.day FROM key_days x WHERE x.key_id = NEW.id AND x.day = v_day) today USING (day)
  )
  INSERT INTO key_days AS d (key_id, day, units_before, nano_usd_before, units_max, spend_max_nano_usd)
  SELECT NEW.id, c.day, c.units, c.nano, CASE WHEN c.day = v_day THEN greatest(v_units_max, c.units) ELSE 2147483647 END,
    CASE WHEN c.day = v_day THEN greatest(v_nano_max, c.nano) ELSE 9223372036854775807 END
  FROM counted c
  -- What a key has from the one that it replaced is in none of its own receipts.
  ON CONFLICT (key_id, day) DO UPDATE SET units_before = greatest(d.units_before, excluded.units_before),
    nano_usd_before = greatest(d.nano_usd_before, excluded.nano_usd_before),
    units_max = greatest(CASE WHEN d.day = v_day THEN v_units_max ELSE d.units_max END, d.units_taken + greatest(d.units_before, excluded.units_before)),
    spend_max_nano_usd = greatest(CASE WHEN d.day = v_day THEN v_nano_max ELSE d.spend_max_nano_usd END,
      d.taken_nano_usd + greatest(d.nano_usd_before, excluded.nano_usd_before));
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER keys_limited AFTER UPDATE OF daily_units_max, daily_spend_max_nano_usd, weekly_spend_max_nano_usd, monthly_spend_max_nano_usd,
  total_spend_max_nano_usd ON keys FOR EACH ROW
WHEN ((OLD.daily_units_max, OLD.daily_spend_max_nano_usd, OLD.weekly_spend_max_nano_usd, OLD.monthly_spend_max_nano_usd, OLD.total_spend_max_nano_usd)
  IS DISTINCT FROM (NEW.daily_units_max, NEW.daily_spend_max_nano_usd, NEW.weekly_spend_max_nano_usd, NEW.monthly_spend_max_nano_usd, NEW.total_spend_max_nano_usd))
EXECUTE FUNCTION begin_key_limits();
--> statement-breakpoint

-- The draws of a batch, before they have run: what keeps each from it, and whether what lies unused of it was asked for.
-- p_sent_at: the replica's clock.
CREATE FUNCTION begin_draws(p_now timestamptz, p_lease uuid, p_sent_at timestamptz, p_busy bigint[], p_draws draw_row[])
RETURNS draw_answer[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT ROW(
      CASE WHEN d.account_id = ANY (p_busy) THEN 'busy'
        WHEN (SELECT l.ended FROM leases l WHERE l.id = p_lease) IS NOT false THEN 'lease_ended'
        WHEN p_sent_at NOT BETWEEN p_now - interval '1 hour' AND p_now + interval '1 hour' THEN 'clock_skew'
        WHEN d.number <= e.number THEN 'stale' END,
      coalesce(e.recalled, false), (extract(epoch FROM p_now) * 1000000)::bigint, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL)::draw_answer
    FROM unnest(p_draws) WITH ORDINALITY AS d
    CROSS JOIN LATERAL (
      SELECT max(x.draw_number) AS number, bool_or(x.recalled) AS recalled FROM escrows x
      WHERE x.account_id = d.account_id AND x.lease_id = p_lease) e
    ORDER BY d.ordinality);
END $$;
--> statement-breakpoint

-- Gives back what the escrow rows of returning draws have beyond what their replica keeps. Of rows that it does not name it knows
-- nothing: nothing of them is idle.
CREATE FUNCTION return_surplus(p_lease uuid, p_draws draw_row[], drawn draw_answer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_parts returned_part[];
BEGIN
  v_parts := ARRAY(
    SELECT ROW(e.account_id, p_lease, e.package_id, e.key_id, e.day, greatest(e.units - coalesce(k.units, 0), 0),
      greatest(e.tokens - coalesce(k.tokens, 0), 0), greatest(e.nano_usd - coalesce(k.nano_usd, 0), 0))::returned_part
    FROM unnest(p_draws) WITH ORDINALITY AS d
    JOIN escrows e ON e.account_id = d.account_id AND e.lease_id = p_lease
    LEFT JOIN LATERAL (
      SELECT * FROM unnest(d.keeps) x WHERE (x.package_id, x.key_id, x.day) = (e.package_id, e.key_id, e.day)) k ON true
    WHERE d.returns AND (drawn[d.ordinality]).code IS NULL
      AND (e.units > coalesce(k.units, 0) OR e.tokens > coalesce(k.tokens, 0) OR e.nano_usd > coalesce(k.nano_usd, 0)));
  IF cardinality(v_parts) > 0 THEN PERFORM give_back(v_parts); END IF;

  UPDATE escrows e SET draw_number = d.number, idle_units = 0, idle_nano_usd = 0, recalled = false
  FROM unnest(p_draws) WITH ORDINALITY AS d
  WHERE e.account_id = d.account_id AND e.lease_id = p_lease AND d.returns AND (drawn[d.ordinality]).code IS NULL;
END $$;
--> statement-breakpoint

-- A run with the state of its account, package and key before the batch. code: what refuses its key, host or model. limited_key: its key, if
-- that has limits of its own; key_day: its day; key_units, key_nano_usd: what is left of them, null: no such limit. Of a key with a budget
-- of more than a day, `decide_draws` replaces the spending limit with the one that has the least left.
CREATE TYPE asked_run AS (
  run_no bigint, place int, ends_draw boolean, first_request int, last_request int, model_id text, output_pico bigint, account_id bigint,
  code text, by_balance boolean, limited_key bigint, has_budget boolean, units_max int, spend_max_nano_usd bigint, key_resets_at timestamptz,
  spend_resets_at timestamptz, key_day date, key_units int, key_nano_usd bigint, is_active boolean, package_id bigint, package packages, today date, day_units int,
  payg_enabled boolean, balance_nano_usd bigint, available_nano_usd bigint, epoch bigint, tenant_epoch bigint, expired boolean
);
--> statement-breakpoint

-- The runs of a batch in their order. In SQL, so that it becomes a part of the caller's plan. `LIMIT 1` has each row look up its own by
-- key: without it, and before there are statistics, the planner would compare all rows with all.
CREATE FUNCTION asked_runs(p_now timestamptz, p_draws draw_row[], p_runs run_row[]) RETURNS SETOF asked_run LANGUAGE sql STABLE AS $$
  SELECT r.ordinality, r.place, r.ends_draw, r.first_request, r.last_request, r.model_id, r.output_pico, w.account_id,
    CASE
      WHEN k.id IS NULL OR k.account_id <> w.account_id OR k.status <> 'enabled' OR k.expires_at <= p_now
        OR a.id IS NULL OR a.status <> 'active' OR coalesce(t.status, 'active') <> 'active' THEN 'invalid_api_key'
      WHEN NOT (coalesce(r.host = ANY (k.hosts), true) AND (r.own_host OR coalesce(h.status = 'active', false))) THEN 'host_not_allowed'
      WHEN NOT coalesce(r.model_id = ANY (k.model_ids), true) THEN 'model_not_found'
    END,
    k.mode = 'payg', CASE WHEN c.today IS NOT NULL THEN k.id END, has_budget(k), k.daily_units_max, k.daily_spend_max_nano_usd,
    c.resets_at, c.resets_at, c.today,
    k.daily_units_max - coalesce(u.units_taken + u.units_before, 0), k.daily_spend_max_nano_usd - coalesce(u.taken_nano_usd + u.nano_usd_before, 0),
    a.status = 'active' AND coalesce(t.status, 'active') = 'active', p.id, p.package, p.today, coalesce(d.units_taken, 0),
    coalesce(b.payg_enabled, false), coalesce(b.balance_nano_usd, 0), coalesce(b.balance_nano_usd - b.held_nano_usd, 0), coalesce(ae.epoch, 0), coalesce(te.epoch, 0),
    p.id IS NULL AND EXISTS (SELECT FROM packages e WHERE e.account_id = w.account_id AND e.ends_at <= p_now AND e.ends_at > e.starts_at)
  FROM unnest(p_runs) WITH ORDINALITY AS r
  CROSS JOIN LATERAL (SELECT (p_draws[r.place]).account_id, (p_draws[r.place]).tenant_id) w
  LEFT JOIN keys k ON k.id = r.key_id
  LEFT JOIN accounts a ON a.id = w.account_id
  LEFT JOIN accounts t ON t.id = w.tenant_id
  LEFT JOIN epochs ae ON ae.account_id = w.account_id
  LEFT JOIN epochs te ON te.account_id = w.tenant_id
  LEFT JOIN LATERAL (SELECT status FROM hosts x WHERE NOT r.own_host AND x.host = r.host AND x.reseller_id = w.tenant_id LIMIT 1) h ON true
  LEFT JOIN LATERAL (SELECT t.today, day_begins(t.today + 1, k.time_zone) AS resets_at FROM (SELECT (p_now AT TIME ZONE k.time_zone)::date AS today) t
    WHERE is_limited(k)) c ON true
  LEFT JOIN key_days u ON u.key_id = k.id AND u.day = c.today
  LEFT JOIN LATERAL (
    SELECT x.id, x AS package, (p_now AT TIME ZONE x.time_zone)::date AS today FROM packages x
    WHERE x.account_id = w.account_id AND x.starts_at <= p_now AND x.ends_at > p_now ORDER BY x.starts_at DESC LIMIT 1) p ON true
  LEFT JOIN LATERAL (SELECT x.units_taken FROM package_days x WHERE x.package_id = p.id AND x.day = p.today LIMIT 1) d ON true
  LEFT JOIN balances b ON b.account_id = w.account_id
  ORDER BY r.ordinality
$$;
--> statement-breakpoint

-- A refusal of p_many requests, and the limit that refuses them, of which p_left is left; null: no limit does.
CREATE FUNCTION refusal(p_code text, p_many int, p_limit bigint, p_left bigint, p_resets_at timestamptz) RETURNS reserve_answer
LANGUAGE sql IMMUTABLE AS $$
  SELECT ROW(NULL, NULL, p_many, p_code, NULL, NULL, NULL, NULL, NULL, NULL, p_limit, p_limit - p_left,
    CASE WHEN p_left IS NOT NULL THEN greatest(p_left, 0) END, p_resets_at)::reserve_answer
$$;
--> statement-breakpoint

-- What a package answers to the next requests of a run: it grants as many of p_many at once as it has units for, or refuses them all. With
-- a token allowance one by one, because each reserves its own tokens. p_day_units: taken on that day.
CREATE FUNCTION package_answer(p packages, p_day date, p_day_units int, p_model text, q request_row, p_many int)
RETURNS reserve_answer LANGUAGE plpgsql AS $$
DECLARE
  a reserve_answer;
  v_left int := package_left(p, p_day, p_day_units);
  v_tokens_left bigint := package_tokens_left(p);
BEGIN
  a.many := p_many;
  IF NOT coalesce(p_model = ANY (p.model_ids), true) THEN
    a.code := 'model_not_in_package';
  ELSIF v_left > 0 AND v_tokens_left IS NULL THEN
    a.many := least(p_many, v_left);
    a.package_id := p.id;
  ELSIF v_left > 0 THEN
    -- The output cap is lowered to what the token allowance affords; cap_min is lower only if the client asked for no cap.
    a.many := 1;
    a.cap_tokens := least(q.cap_max, greatest(q.cap_min, (v_tokens_left - q.prompt_tokens) / greatest(q.choices, 1)))::int;
    a.tokens := q.prompt_tokens + a.cap_tokens::bigint * q.choices;
    IF v_tokens_left > 0 AND a.tokens <= v_tokens_left THEN
      a.package_id := p.id;
    ELSE
      -- Used up for good, or too little left for this request: then what running requests have reserved may come back.
      RETURN refusal(CASE WHEN package_tokens_spent(p.id) >= p.token_limit THEN 'package_tokens_exceeded' ELSE 'package_tokens_short' END,
        1, p.token_limit, v_tokens_left, NULL);
    END IF;
  ELSIF package_day_left(p, p_day, p_day_units) <= 0 THEN
    RETURN refusal(CASE WHEN p.carryover THEN 'carryover_quota_exceeded' ELSE 'daily_quota_exceeded' END,
      p_many, package_granted(p, p_day), package_day_left(p, p_day, p_day_units), package_resets_at(p, p_day));
  ELSE
    RETURN refusal('package_quota_exceeded', p_many, p.total_limit, package_total_left(p), NULL);
  END IF;
  IF a.package_id IS NOT NULL THEN a.day := p_day; END IF;
  RETURN a;
END $$;
--> statement-breakpoint

-- The amount that a request reserves of a balance with that output cap, in nano-USD, rounded up.
CREATE FUNCTION reserved_nano(q request_row, p_cap bigint, p_output_pico bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT (q.prompt_pico + p_cap * p_output_pico + 999) / 1000
$$;
--> statement-breakpoint

-- What a balance answers to one request. The output cap is lowered to what can be paid; cap_min is lower only if the client asked for no
-- cap. p_available: neither spent nor reserved. p_key_nano: what is left of the key's own spending limit; null: it has none.
CREATE FUNCTION balance_answer(run asked_run, p_available bigint, p_key_nano bigint, q request_row) RETURNS reserve_answer LANGUAGE plpgsql AS $$
DECLARE
  a reserve_answer;
  v_spendable bigint := least(p_available, p_key_nano);
BEGIN
  a.many := 1;
  a.cap_tokens := q.cap_max;
  a.nano_usd := reserved_nano(q, a.cap_tokens, run.output_pico);
  IF a.nano_usd > v_spendable AND a.cap_tokens > q.cap_min THEN
    -- Cast last: the difference may be far below the range of int.
    a.cap_tokens := greatest(q.cap_min::bigint, (v_spendable * 1000 - q.prompt_pico) / greatest(run.output_pico, 1))::int;
    a.nano_usd := reserved_nano(q, a.cap_tokens, run.output_pico);
  END IF;
  IF a.nano_usd > p_available THEN
    a := refusal('insufficient_balance', 1, a.nano_usd, p_available, NULL);
    a.quota_used := NULL;
  ELSIF a.nano_usd > v_spendable THEN
    a := refusal('key_spend_limit_exceeded', 1, run.spend_max_nano_usd, p_key_nano, run.spend_resets_at);
  END IF;
  RETURN a;
END $$;
--> statement-breakpoint

-- Whether the replica still keeps units of a package (p_package), or money of a balance (0), that no request uses.
CREATE FUNCTION keeps_idle(d draw_row, p_package bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM unnest(d.keeps) k WHERE CASE WHEN p_package > 0 THEN k.package_id = p_package AND k.idle_units > 0 ELSE k.idle_nano_usd > 0 END);
END $$;
--> statement-breakpoint

-- Decides about the next requests of a run: the package pays first, then the balance. p, p_day_units, p_available, p_key_*: what is there
-- after the requests before them.
CREATE FUNCTION pay(p_lease uuid, d draw_row, run asked_run, p packages, p_day_units int, p_available bigint, p_key_units int, p_key_nano bigint,
  q request_row, p_many int) RETURNS reserve_answer LANGUAGE plpgsql AS $$
DECLARE
  a reserve_answer;
BEGIN
  IF p_key_units <= 0 THEN
    RETURN refusal('key_request_limit_exceeded', p_many, run.units_max, p_key_units, run.key_resets_at);
  END IF;
  IF NOT run.by_balance THEN
    IF run.package_id IS NULL THEN
      a := refusal(CASE WHEN run.expired THEN 'package_expired' ELSE 'package_required' END, p_many, NULL, NULL, NULL);
    ELSE
      a := package_answer(p, run.today, p_day_units, run.model_id, q, least(p_many, p_key_units));
    END IF;
    IF a.code IS NULL THEN RETURN a; END IF;
    -- Not refused, and nobody else pays, while units lie unused.
    IF a.code IN ('daily_quota_exceeded', 'carryover_quota_exceeded', 'package_quota_exceeded')
      AND recall_idle(run.account_id, run.package_id, p_lease, keeps_idle(d, run.package_id)) THEN
      RETURN refusal('recall', p_many, NULL, NULL, NULL);
    END IF;
    IF NOT (run.payg_enabled AND run.balance_nano_usd > 0) THEN RETURN a; END IF;
  END IF;
  IF NOT run.payg_enabled THEN
    RETURN refusal('package_required', p_many, NULL, NULL, NULL);
  ELSIF run.output_pico < 0 THEN
    -- Of a token allowance a later request may need less: the package refused only this one.
    RETURN refusal('payg_pricing_unavailable', coalesce(a.many, p_many), NULL, NULL, NULL);
  -- Neither refused, nor with a lower output cap, while money lies unused.
  ELSIF reserved_nano(q, q.cap_max, run.output_pico) > p_available
    AND recall_idle(run.account_id, 0, p_lease, keeps_idle(d, 0)) THEN
    RETURN refusal('recall', 1, NULL, NULL, NULL);
  END IF;
  RETURN balance_answer(run, p_available, p_key_nano, q);
END $$;
--> statement-breakpoint

-- The answer to a draw: what is drawn ahead. What was drawn earlier stays good, also when nothing more is drawn. p_share: at most one part
-- in p_share of what is left is drawn. p_short: somebody waits for what lies unused, so nothing is. a: as `begin_draws` gives it.
CREATE FUNCTION draw_ahead(p_now timestamptz, p_share int, d draw_row, run asked_run, p packages, p_day_units int, p_available bigint,
  p_short boolean, a draw_answer) RETURNS draw_answer LANGUAGE plpgsql AS $$
BEGIN
  a.epoch := run.epoch;
  a.tenant_epoch := run.tenant_epoch;
  IF a.code IS NOT NULL OR run.is_active IS NOT TRUE THEN RETURN a; END IF;
  IF run.package_id IS NOT NULL AND p.token_limit IS NULL THEN
    a.package_id := run.package_id;
    a.day := run.today;
    a.units := CASE WHEN p_short THEN 0 ELSE greatest(least(d.units, package_left(p, run.today, p_day_units) / p_share), 0) END;
    a.good_ms := floor(extract(epoch FROM least(p.ends_at, day_begins(run.today + 1, p.time_zone)) - p_now) * 1000);
    a.model_ids := to_jsonb(p.model_ids);
  END IF;
  IF run.payg_enabled THEN
    a.nano_usd := CASE WHEN p_short THEN 0 ELSE greatest(least(d.nano_usd, p_available / p_share), 0) END;
  END IF;
  RETURN a;
END $$;
--> statement-breakpoint

-- A run of a key with a budget of more than a day: its spending limit is the one that has the least left. All of them lose as much by each request.
CREATE FUNCTION within_budget(run asked_run) RETURNS asked_run LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_left key_budget;
BEGIN
  SELECT (key_budget_left(k, run.key_day)).* INTO v_left FROM keys k WHERE k.id = run.limited_key;
  IF run.key_nano_usd IS NULL OR v_left.nano_usd <= run.key_nano_usd THEN
    run.spend_max_nano_usd := v_left.spend_max;
    run.key_nano_usd := v_left.nano_usd;
    run.spend_resets_at := v_left.resets_at;
  END IF;
  RETURN run;
END $$;
--> statement-breakpoint

-- Decides about the requests of a batch in their order: each sees what the ones before it got. drawn: as `begin_draws` gives it; what is
-- drawn ahead is added.
CREATE FUNCTION decide_draws(p_now timestamptz, p_lease uuid, p_share int, p_draws draw_row[], p_runs run_row[], p_requests request_row[],
  INOUT drawn draw_answer[], OUT reserved reserve_answer[]) LANGUAGE plpgsql AS $$
DECLARE
  run asked_run;
  a reserve_answer;
  v_next int;
  v_account bigint;
  -- What the account has after the requests so far.
  v_package packages;
  v_day_units int;
  v_available bigint;
  v_short boolean := false;
  -- The account's keys with limits of their own, and what each has left; v_key: the place of the run's key.
  v_keys bigint[];
  v_key_units int[];
  v_key_nano bigint[];
  v_key int;
BEGIN
  FOR run IN SELECT * FROM asked_runs(p_now, p_draws, p_runs) LOOP
    IF run.account_id IS DISTINCT FROM v_account THEN
      v_account := run.account_id;
      v_package := run.package;
      v_day_units := run.day_units;
      v_available := run.available_nano_usd;
      v_short := drawn[run.place].recalled;
      v_keys := '{}';
    END IF;
    IF run.has_budget THEN run := within_budget(run); END IF;
    v_key := array_position(v_keys, run.limited_key);
    IF v_key IS NULL AND run.limited_key IS NOT NULL THEN
      v_key := cardinality(v_keys) + 1;
      v_keys[v_key] := run.limited_key;
      v_key_units[v_key] := run.key_units;
      v_key_nano[v_key] := run.key_nano_usd;
    END IF;

    v_next := run.first_request;
    WHILE v_next <= run.last_request LOOP
      IF coalesce(drawn[run.place].code, run.code) IS NOT NULL THEN
        a := refusal(coalesce(drawn[run.place].code, run.code), run.last_request - v_next + 1, NULL, NULL, NULL);
      ELSE
        a := pay(p_lease, p_draws[run.place], run, v_package, v_day_units, v_available, v_key_units[v_key], v_key_nano[v_key],
          p_requests[v_next], run.last_request - v_next + 1);
      END IF;
      a.run_no := run.run_no;
      a.first_request := v_next;
      v_next := v_next + a.many;
      IF a.code IS NULL THEN
        IF a.package_id IS NOT NULL THEN
          v_package.units_taken := v_package.units_taken + a.many;
          v_package.tokens_taken := v_package.tokens_taken + coalesce(a.tokens, 0);
          v_day_units := v_day_units + a.many;
        END IF;
        v_available := v_available - coalesce(a.nano_usd, 0);
        a.key_day := run.key_day;
        IF v_key IS NOT NULL THEN
          v_key_units[v_key] := v_key_units[v_key] - a.many;
          v_key_nano[v_key] := v_key_nano[v_key] - coalesce(a.nano_usd, 0);
        END IF;
      END IF;
      IF a.code = 'recall' THEN v_short := true; END IF;
      reserved := reserved || a;
    END LOOP;

    IF run.ends_draw THEN
      drawn[run.place] := draw_ahead(p_now, p_share, p_draws[run.place], run, v_package, v_day_units, v_available, v_short, drawn[run.place]);
    END IF;
  END LOOP;
END $$;
--> statement-breakpoint

-- Writes the escrow rows of draws. What is kept idle may still be granted by what the replica knew when it sent the draw: a change waits
-- until it draws again. A refusal alone writes nothing.
CREATE FUNCTION write_escrows(p_lease uuid, p_draws draw_row[], drawn draw_answer[], p_parts drawn_part[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO escrows AS e (account_id, lease_id, package_id, key_id, day, draw_number, units, tokens, nano_usd, idle_units, idle_nano_usd,
                            epoch, tenant_epoch)
  SELECT (p_draws[s.place]).account_id, p_lease, s.package_id, s.key_id, s.day, (p_draws[s.place]).number,
    sum(s.units)::int, sum(s.tokens)::bigint, sum(s.nano_usd)::bigint, sum(s.idle_units)::int, sum(s.idle_nano_usd)::bigint,
    CASE WHEN bool_or(s.kept) THEN least((drawn[s.place]).epoch, (p_draws[s.place]).known_epoch) ELSE (drawn[s.place]).epoch END,
    (drawn[s.place]).tenant_epoch
  FROM unnest(p_parts) AS s GROUP BY s.place, s.package_id, s.key_id, s.day
  ON CONFLICT (account_id, lease_id, package_id, key_id, day) DO UPDATE SET draw_number = excluded.draw_number,
    units = e.units + excluded.units, tokens = e.tokens + excluded.tokens, nano_usd = e.nano_usd + excluded.nano_usd,
    idle_units = excluded.idle_units, idle_nano_usd = excluded.idle_nano_usd, epoch = excluded.epoch,
    tenant_epoch = excluded.tenant_epoch, recalled = false;
END $$;
--> statement-breakpoint

-- Counts what draws took, each kind only if there is something to count: a statement costs as much as many rows.
CREATE FUNCTION count_taken(p_draws draw_row[], p_parts drawn_part[], p_of_package boolean, p_of_key boolean, p_of_balance boolean)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_of_package THEN
    WITH taken AS (
      SELECT package_id, day, sum(units)::int AS units, sum(tokens)::bigint AS tokens FROM unnest(p_parts) WHERE package_id > 0 AND units > 0 GROUP BY 1, 2
    ), counted AS (
      UPDATE packages p SET units_taken = p.units_taken + t.units, tokens_taken = p.tokens_taken + t.tokens
      FROM taken t WHERE p.id = t.package_id
      RETURNING p.id, t.day, t.units, CASE WHEN p.carryover THEN p.total_limit ELSE p.daily_limit END AS units_max
    )
    INSERT INTO package_days AS d (package_id, day, units_taken, units_max) SELECT * FROM counted
    ON CONFLICT (package_id, day) DO UPDATE SET units_taken = d.units_taken + excluded.units_taken;
  END IF;
  IF p_of_key THEN
    INSERT INTO key_days AS d (key_id, day, units_taken, taken_nano_usd, units_max, spend_max_nano_usd)
    SELECT k.id, t.day, sum(t.units)::int, sum(t.nano_usd)::bigint,
      coalesce(k.daily_units_max, 2147483647), coalesce(k.daily_spend_max_nano_usd, 9223372036854775807)
    FROM unnest(p_parts) AS t JOIN keys k ON k.id = t.key_id WHERE t.key_id > 0 AND t.units > 0 GROUP BY k.id, t.day
    ON CONFLICT (key_id, day) DO UPDATE SET units_taken = d.units_taken + excluded.units_taken,
      taken_nano_usd = d.taken_nano_usd + excluded.taken_nano_usd, units_max = greatest(d.units_max, excluded.units_max),
      spend_max_nano_usd = greatest(d.spend_max_nano_usd, excluded.spend_max_nano_usd);
  END IF;
  IF p_of_balance THEN
    UPDATE balances b SET held_nano_usd = b.held_nano_usd + s.nano
    FROM (SELECT (p_draws[place]).account_id AS account_id, sum(nano_usd)::bigint AS nano FROM unnest(p_parts)
          WHERE package_id = 0 AND key_id = 0 GROUP BY 1) s
    WHERE b.account_id = s.account_id AND s.nano > 0;
  END IF;
END $$;
--> statement-breakpoint

-- Draws for requests, and ahead of them. The caller holds the locks. What is written of each escrow row: what is kept idle, what requests
-- were granted, for them and for their keys' daily limits, and what is drawn ahead.
CREATE FUNCTION ledger_draw(p_now timestamptz, p_lease uuid, p_share int, p_sent_at timestamptz, p_returns boolean, p_busy bigint[],
  p_draws draw_row[], p_runs run_row[], p_requests request_row[], OUT drawn draw_answer[], OUT reserved reserve_answer[]) LANGUAGE plpgsql AS $$
DECLARE
  v_decided record;
  v_parts drawn_part[];
  v_of_package boolean;
  v_of_key boolean;
  v_of_balance boolean;
BEGIN
  drawn := begin_draws(p_now, p_lease, p_sent_at, p_busy, p_draws);
  IF p_returns THEN PERFORM return_surplus(p_lease, p_draws, drawn); END IF;
  v_decided := decide_draws(p_now, p_lease, p_share, p_draws, p_runs, p_requests, drawn);
  drawn := v_decided.drawn;
  reserved := v_decided.reserved;

  SELECT array_agg(part), bool_or((part).package_id > 0 AND (part).units > 0), bool_or((part).key_id > 0 AND (part).units > 0),
    bool_or((part).package_id = 0 AND (part).key_id = 0 AND (part).nano_usd > 0)
  INTO v_parts, v_of_package, v_of_key, v_of_balance
  FROM (
    SELECT ROW(d.ordinality, k.package_id, k.key_id, k.day, 0, 0, 0, k.idle_units, k.idle_nano_usd, k.idle_units + k.idle_nano_usd > 0)::drawn_part AS part
    FROM unnest(p_draws) WITH ORDINALITY AS d, unnest(d.keeps) AS k WHERE (drawn[d.ordinality]).code IS NULL
    UNION ALL
    SELECT ROW((p_runs[a.run_no]).place, coalesce(a.package_id, 0), 0, coalesce(a.day, '-infinity'), CASE WHEN a.package_id IS NULL THEN 0 ELSE a.many END,
      coalesce(a.tokens, 0), coalesce(a.nano_usd, 0), 0, 0, false)::drawn_part
    FROM unnest(reserved) AS a WHERE a.code IS NULL
    UNION ALL
    SELECT ROW((p_runs[a.run_no]).place, 0, (p_runs[a.run_no]).key_id, a.key_day, a.many, 0, coalesce(a.nano_usd, 0), 0, 0, false)::drawn_part
    FROM unnest(reserved) AS a WHERE a.code IS NULL AND a.key_day IS NOT NULL
    UNION ALL
    SELECT ROW(d.ordinality, d.package_id, 0, d.day, d.units, 0, 0, d.units, 0, false)::drawn_part
    FROM unnest(drawn) WITH ORDINALITY AS d WHERE d.units > 0
    UNION ALL
    SELECT ROW(d.ordinality, 0, 0, '-infinity', 0, 0, d.nano_usd, 0, d.nano_usd, false)::drawn_part
    FROM unnest(drawn) WITH ORDINALITY AS d WHERE d.nano_usd > 0) parts;
  IF v_parts IS NOT NULL THEN
    PERFORM write_escrows(p_lease, p_draws, drawn, v_parts);
    IF v_of_package OR v_of_key OR v_of_balance THEN PERFORM count_taken(p_draws, v_parts, v_of_package, v_of_key, v_of_balance); END IF;
  END IF;
END $$;
--> statement-breakpoint

-- Counts the ends of holds, each kind only if there is something to count. A settled unit was taken when it was drawn: nothing of it changes.
CREATE FUNCTION count_ends(p_ends finish_row[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_of_package boolean;
  v_of_balance boolean;
  v_of_key boolean;
BEGIN
  SELECT bool_or(package_id > 0 AND (NOT settles OR held_tokens IS NOT NULL)), bool_or(package_id = 0), bool_or(key_day IS NOT NULL)
  INTO v_of_package, v_of_balance, v_of_key FROM unnest(p_ends);
  IF v_of_package THEN
    WITH back AS (
      SELECT package_id, day, (count(*) FILTER (WHERE NOT settles))::int AS units,
        sum(coalesce(held_tokens, 0) - CASE WHEN settles AND held_tokens IS NOT NULL THEN prompt_tokens::bigint + completion_tokens ELSE 0 END)::bigint AS tokens
      FROM unnest(p_ends) WHERE package_id > 0 GROUP BY 1, 2
    ), days AS (
      UPDATE package_days d SET units_taken = d.units_taken - b.units FROM back b WHERE d.package_id = b.package_id AND d.day = b.day AND b.units > 0
    )
    UPDATE packages p SET units_taken = p.units_taken - s.units, tokens_taken = p.tokens_taken - s.tokens
    FROM (SELECT package_id, sum(units)::int AS units, sum(tokens)::bigint AS tokens FROM back GROUP BY 1) s
    WHERE p.id = s.package_id AND (s.units > 0 OR s.tokens > 0);
  END IF;
  IF v_of_balance THEN
    WITH entry_rows AS (
      INSERT INTO balance_entries (account_id, amount_nano_usd, kind, request_id)
      SELECT account_id, -charge_nano_usd, 'charge', request_id
      FROM unnest(p_ends) WHERE package_id = 0 AND settles AND charge_nano_usd > 0
    )
    UPDATE balances b SET held_nano_usd = b.held_nano_usd - s.held, balance_nano_usd = b.balance_nano_usd - s.charged,
      tokens_used = b.tokens_used + s.tokens
    FROM (SELECT account_id, sum(held_nano_usd)::bigint AS held, coalesce(sum(charge_nano_usd) FILTER (WHERE settles), 0)::bigint AS charged,
            coalesce(sum(prompt_tokens::bigint + completion_tokens) FILTER (WHERE settles), 0)::bigint AS tokens
          FROM unnest(p_ends) WHERE package_id = 0 GROUP BY 1) s
    WHERE b.account_id = s.account_id;
  END IF;
  IF v_of_key THEN
    WITH ended AS (
      SELECT account_id, lease_id, key_id, key_day AS day, count(*)::int AS units, sum(held_nano_usd)::bigint AS nano,
        (count(*) FILTER (WHERE NOT settles))::int AS units_back,
        sum(held_nano_usd - CASE WHEN settles THEN charge_nano_usd ELSE 0 END)::bigint AS nano_back
      FROM unnest(p_ends) WHERE key_day IS NOT NULL GROUP BY 1, 2, 3, 4
    ), escrow_rows AS (
      UPDATE escrows e SET units = e.units - x.units, nano_usd = e.nano_usd - x.nano
      FROM ended x WHERE (e.account_id, e.lease_id, e.package_id, e.key_id, e.day) = (x.account_id, x.lease_id, 0, x.key_id, x.day)
    )
    UPDATE key_days d SET units_taken = d.units_taken - s.units, taken_nano_usd = d.taken_nano_usd - s.nano
    FROM (SELECT key_id, day, sum(units_back)::int AS units, sum(nano_back)::bigint AS nano FROM ended GROUP BY 1, 2) s
    WHERE d.key_id = s.key_id AND d.day = s.day AND (s.units > 0 OR s.nano > 0);
  END IF;
END $$;
--> statement-breakpoint

-- Ends holds as they ask: writes the receipts, and takes them from the escrow rows. A package's settlement writes nothing else: its unit was
-- taken when it was drawn, and tokens that no allowance limits are counted in the escrow row.
CREATE FUNCTION end_as_asked(p_now timestamptz, p_ends finish_row[], p_counts boolean) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, key_day, outcome, reason, units,
    held_nano_usd, charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens,
    estimated, price_version_id, further_counts, reported_usage, tried, markup_basis_points, cost_nano_usd, route_id, first_ms,
    provider_cost_nano_usd, created_at, finished_at)
  SELECT request_id, account_id, key_id, model_id, host, CASE WHEN package_id > 0 THEN 'package' ELSE 'payg' END,
    nullif(package_id, 0), day, key_day, CASE WHEN settles THEN 'settled' ELSE 'released' END, reason,
    CASE WHEN package_id > 0 AND settles THEN 1 ELSE 0 END, held_nano_usd, CASE WHEN settles THEN charge_nano_usd ELSE 0 END, 0,
    prompt_tokens, cached_tokens, completion_tokens, CASE WHEN settles THEN prompt_tokens::bigint + completion_tokens ELSE 0 END,
    estimated, price_version_id, further_counts, reported_usage, tried, markup_basis_points, cost_nano_usd, route_id, first_ms,
    provider_cost_nano_usd, least(p_now, instant_of(reserved_us)), p_now
  FROM unnest(p_ends);
  UPDATE escrows e SET units = e.units - s.units, tokens = e.tokens - s.tokens, nano_usd = e.nano_usd - s.nano,
    used_tokens = e.used_tokens + s.used_tokens,
    idle_units = CASE WHEN e.draw_number = s.idle_draw THEN least(e.idle_units, s.idle_units) ELSE e.idle_units END,
    idle_nano_usd = CASE WHEN e.draw_number = s.idle_draw THEN least(e.idle_nano_usd, s.idle_nano) ELSE e.idle_nano_usd END
  FROM (
    SELECT account_id, lease_id, package_id, coalesce(day, '-infinity') AS day,
      (count(*) FILTER (WHERE package_id > 0))::int AS units, sum(coalesce(held_tokens, 0))::bigint AS tokens, sum(held_nano_usd)::bigint AS nano,
      coalesce(sum(prompt_tokens::bigint + completion_tokens) FILTER (WHERE settles AND package_id > 0 AND held_tokens IS NULL), 0)::bigint AS used_tokens,
      -- All ends of a batch say the same of a row.
      min(idle_draw) AS idle_draw, min(idle_units) AS idle_units, min(idle_nano_usd) AS idle_nano
    -- A limit that cuts nothing: for few groups each row is looked up by its key, also by a plan made while the table was small.
    FROM unnest(p_ends) GROUP BY 1, 2, 3, 4 LIMIT cardinality(p_ends)
  ) s
  WHERE (e.account_id, e.lease_id, e.package_id, e.key_id, e.day) = (s.account_id, s.lease_id, s.package_id, 0, s.day);
  IF p_counts THEN PERFORM count_ends(p_ends); END IF;
END $$;
--> statement-breakpoint

-- Whether an escrow row has what was drawn for a request. Not after a failover to a standby that has lost the draw.
CREATE FUNCTION covers(e escrows, p_package bigint, p_tokens bigint, p_nano bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT e.units >= (p_package > 0)::int AND e.tokens >= coalesce(p_tokens, 0) AND e.nano_usd >= p_nano;
$$;
--> statement-breakpoint

-- Ends holds. The caller holds the locks. Nearly always the escrow row has what was drawn, the charge is within the hold, and the request has no
-- receipt yet: `ended` counts these, which end together and as they ask. The others have an answer each. The locks keep what the first two
-- statements found: only a batch that has an account's lock writes its receipts and escrow rows.
CREATE FUNCTION ledger_finish(p_now timestamptz, p_busy bigint[], p_rows finish_row[], OUT ended int, OUT answers finish_answer[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_apart int[];     -- the places of those that do not
  v_ids uuid[];
  v_known uuid[];    -- the requests that have a receipt
  v_counts boolean;  -- one of them changes a counter
  v_places int[];
  v_place int;
BEGIN
  SELECT coalesce(array_agg(f.ordinality::int) FILTER (WHERE NOT coalesce(covers(found.e, f.package_id, f.held_tokens, f.held_nano_usd), false) OR f.account_id = ANY (p_busy)
        OR f.charge_nano_usd > f.held_nano_usd OR f.prompt_tokens::bigint + f.completion_tokens > f.held_tokens), '{}'),
      array_agg(DISTINCT f.request_id), bool_or(f.package_id = 0 OR NOT f.settles OR f.held_tokens IS NOT NULL OR f.key_day IS NOT NULL)
  INTO v_apart, v_ids, v_counts
  FROM unnest(p_rows) WITH ORDINALITY AS f
  -- OFFSET 0: each row is looked up by its key, also by a plan made while the table was small.
  LEFT JOIN LATERAL (SELECT e FROM escrows e
    WHERE (e.account_id, e.lease_id, e.package_id, e.key_id, e.day) = (f.account_id, f.lease_id, f.package_id, 0, coalesce(f.day, '-infinity'))
    OFFSET 0) found ON true;
  SELECT coalesce(array_agg(r.request_id), '{}') INTO v_known FROM receipts r WHERE r.request_id = ANY (v_ids);
  ended := cardinality(p_rows);
  IF cardinality(v_apart) + cardinality(v_known) = 0 AND cardinality(v_ids) = ended THEN
    PERFORM end_as_asked(p_now, p_rows, v_counts);
    RETURN;
  END IF;
  v_places := ARRAY(SELECT DISTINCT ON (f.request_id) f.ordinality::int FROM unnest(p_rows) WITH ORDINALITY AS f
    WHERE f.ordinality <> ALL (v_apart) AND f.request_id <> ALL (v_known));
  ended := cardinality(v_places);
  IF ended > 0 THEN PERFORM end_as_asked(p_now, ARRAY(SELECT p_rows[place] FROM unnest(v_places) AS d(place)), v_counts); END IF;
  -- One by one: each must see what the one before it wrote.
  FOR v_place IN SELECT x FROM generate_series(1, cardinality(p_rows)) AS x WHERE x <> ALL (v_places) ORDER BY x LOOP
    answers := answers || finish_one(p_now, p_busy, v_place, p_rows[v_place]);
  END LOOP;
END $$;
--> statement-breakpoint

-- Ends one hold that `ledger_finish` does not end at once, rare: the provider used more than was reserved, the same end came twice, or
-- what was drawn for it is gone (late): the reaper has returned it, or a failover has lost it.
CREATE FUNCTION finish_one(p_now timestamptz, p_busy bigint[], p_place int, f finish_row) RETURNS finish_answer LANGUAGE plpgsql AS $$
DECLARE
  a finish_answer := ROW(p_place, NULL, 0, 0, 0, 0);
  v_former receipts;
  v_live boolean;  -- what was drawn for it is still there
  v_idle boolean;  -- the replica still keeps some of it that no request uses
BEGIN
  SELECT * INTO v_former FROM receipts r WHERE r.request_id = f.request_id;
  SELECT coalesce(bool_or(covers(e, f.package_id, f.held_tokens, f.held_nano_usd)), false) AND v_former.request_id IS NULL, coalesce(bool_or(e.idle_units > 0 OR e.idle_nano_usd > 0), false) INTO v_live, v_idle
  FROM escrows e WHERE (e.account_id, e.lease_id, e.package_id, e.key_id, e.day) = (f.account_id, f.lease_id, f.package_id, 0, coalesce(f.day, '-infinity'));
  IF f.account_id = ANY (p_busy) THEN
    a.outcome := 'busy';
  ELSIF v_former.outcome = 'settled' THEN
    a.outcome := 'already';
    a.charged_nano_usd := v_former.charged_nano_usd;
    a.shortfall_nano_usd := v_former.shortfall_nano_usd;
    a.units := v_former.units;
  -- When the reply to a strict refusal was lost, the client got the response after all. Its settlement comes again, not strict.
  ELSIF v_former.reason = 'overrun_refused' AND f.settles AND f.is_strict THEN
    a.outcome := 'refused';
  ELSIF v_former.request_id IS NOT NULL AND NOT (v_former.reason = 'overrun_refused' AND f.settles) THEN
    a.outcome := 'gone';
  -- No loss, no refusal and no free unit, while money or units lie unused.
  ELSIF f.settles AND (CASE
      WHEN f.package_id > 0 THEN NOT v_live AND late_unit_left(f.package_id, f.day) = 0
      ELSE f.charge_nano_usd > CASE WHEN v_live THEN f.held_nano_usd ELSE 0 END
        + (SELECT balance_nano_usd - held_nano_usd FROM balances WHERE account_id = f.account_id) END)
    AND recall_idle(f.account_id, f.package_id, f.lease_id, v_idle) THEN
    a.outcome := 'recall';
  ELSIF NOT v_live AND NOT f.settles THEN
    a.outcome := 'gone';
  ELSE
    -- What was drawn goes back; then the charge is taken.
    IF v_live THEN
      PERFORM give_back(ARRAY[ROW(f.account_id, f.lease_id, f.package_id, 0, coalesce(f.day, '-infinity'), CASE WHEN f.package_id > 0 THEN 1 ELSE 0 END,
        coalesce(f.held_tokens, 0), f.held_nano_usd)::returned_part]);
      IF f.key_day IS NOT NULL THEN
        PERFORM give_back(ARRAY[ROW(f.account_id, f.lease_id, 0, f.key_id, f.key_day, 1, 0, f.held_nano_usd)::returned_part]);
      END IF;
    END IF;
    RETURN settle_one(p_now, v_live, f, a);
  END IF;
  RETURN a;
END $$;
--> statement-breakpoint

-- Charges and writes one end after what was drawn for it is back. Above what was held: if the available balance covers the whole charge,
-- all of it, else the held amount or what is still there of it. Of a token allowance all that is left. A late settlement (not p_live) takes what its
-- key has left of that day, too; without a unit of the key it takes nothing. See docs/decisions.md.
CREATE FUNCTION settle_one(p_now timestamptz, p_live boolean, f finish_row, a finish_answer) RETURNS finish_answer LANGUAGE plpgsql AS $$
DECLARE
  v_key key_days;
  v_key_nano bigint;   -- what its key may still spend
  v_package packages;
  v_available bigint;
  v_tokens bigint := 0;
BEGIN
  a.outcome := CASE WHEN f.settles THEN 'settled' ELSE 'released' END;
  IF f.settles AND NOT p_live AND f.key_day IS NOT NULL THEN
    SELECT * INTO v_key FROM key_days k WHERE k.key_id = f.key_id AND k.day = f.key_day;
    v_key_nano := greatest(0, least(v_key.spend_max_nano_usd - v_key.taken_nano_usd - v_key.nano_usd_before,
      (SELECT (key_budget_left(k, f.key_day)).nano_usd FROM keys k WHERE k.id = f.key_id)));
    IF v_key.units_max - v_key.units_taken - v_key.units_before <= 0 THEN
      f.key_day := NULL;
      v_key_nano := 0;
    END IF;
  END IF;
  IF f.settles AND f.package_id > 0 THEN
    SELECT * INTO v_package FROM packages p WHERE p.id = f.package_id;
    a.units := CASE WHEN p_live THEN 1 WHEN v_key_nano = 0 AND f.key_day IS NULL THEN 0 ELSE late_unit_left(f.package_id, f.day) END;
    v_tokens := CASE WHEN a.units = 0 THEN 0
      ELSE greatest(0, least(f.prompt_tokens::bigint + f.completion_tokens, package_tokens_left(v_package))) END;
    a.unpaid_tokens := f.prompt_tokens::bigint + f.completion_tokens - v_tokens;
    UPDATE packages p SET units_taken = p.units_taken + a.units, tokens_taken = p.tokens_taken + v_tokens WHERE p.id = f.package_id;
    UPDATE package_days x SET units_taken = x.units_taken + a.units WHERE x.package_id = f.package_id AND x.day = f.day;
  ELSIF f.settles THEN
    SELECT balance_nano_usd - held_nano_usd INTO v_available FROM balances WHERE account_id = f.account_id;
    IF p_live AND f.is_strict AND f.charge_nano_usd > v_available THEN
      a.outcome := 'refused';
      a.shortfall_nano_usd := f.charge_nano_usd;
    ELSE
      v_tokens := f.prompt_tokens::bigint + f.completion_tokens;
      a.charged_nano_usd := least(CASE WHEN f.charge_nano_usd <= v_available THEN f.charge_nano_usd ELSE least(f.held_nano_usd, v_available) END, v_key_nano);
      a.shortfall_nano_usd := f.charge_nano_usd - a.charged_nano_usd;
    END IF;
    UPDATE balances b SET balance_nano_usd = b.balance_nano_usd - a.charged_nano_usd, tokens_used = b.tokens_used + v_tokens WHERE b.account_id = f.account_id;
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, request_id)
    SELECT f.account_id, -a.charged_nano_usd, 'charge', f.request_id WHERE a.charged_nano_usd > 0;
  END IF;
  IF a.outcome = 'settled' THEN
    UPDATE key_days k SET units_taken = k.units_taken + 1, taken_nano_usd = k.taken_nano_usd + a.charged_nano_usd,
      overrun_nano_usd = k.overrun_nano_usd + CASE WHEN p_live THEN greatest(0, a.charged_nano_usd - f.held_nano_usd) ELSE 0 END
    WHERE k.key_id = f.key_id AND k.day = f.key_day;
  END IF;
  PERFORM write_receipt(p_now, CASE WHEN a.outcome = 'refused' THEN 'overrun_refused' WHEN p_live THEN f.reason ELSE 'late' END, v_tokens, f, a);
  RETURN a;
END $$;
--> statement-breakpoint

-- Writes the receipt of one end, in place of that of a strict refusal whose answer the client got after all.
CREATE FUNCTION write_receipt(p_now timestamptz, p_reason text, p_tokens bigint, f finish_row, a finish_answer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM receipts r WHERE r.request_id = f.request_id;
  INSERT INTO receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, key_day, outcome, reason, units,
    held_nano_usd, charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens,
    estimated, price_version_id, further_counts, reported_usage, tried, markup_basis_points, cost_nano_usd, route_id, first_ms,
    provider_cost_nano_usd, created_at, finished_at)
  VALUES (f.request_id, f.account_id, f.key_id, f.model_id, f.host, CASE WHEN f.package_id > 0 THEN 'package' ELSE 'payg' END,
    nullif(f.package_id, 0), f.day, f.key_day, CASE WHEN a.outcome = 'settled' THEN 'settled' ELSE 'released' END, p_reason, a.units,
    f.held_nano_usd, a.charged_nano_usd, a.shortfall_nano_usd, f.prompt_tokens, f.cached_tokens, f.completion_tokens, p_tokens,
    f.estimated, f.price_version_id, f.further_counts, f.reported_usage, f.tried, f.markup_basis_points, f.cost_nano_usd,
    f.route_id, f.first_ms, f.provider_cost_nano_usd, least(p_now, instant_of(f.reserved_us)), p_now);
END $$;
--> statement-breakpoint

-- One batch: take the locks, read the clock, end holds (this frees what draws may use), draw. p_wait: wait for accounts that are locked
-- by others. p_accounts: the batch's accounts, each once. p_returns: one of the draws returns something. Every statement reads a few rows by key. Without these settings the planner would
-- choose other plans, because the statistics change within moments. A generic plan, because planning takes longer than the batch.
CREATE FUNCTION ledger_batch(
  p_wait boolean, p_accounts bigint[], p_lease uuid, p_share int, p_sent_at timestamptz, p_returns boolean,
  p_finishes finish_row[], p_draws draw_row[], p_runs run_row[], p_requests request_row[],
  OUT ended int, OUT finished finish_answer[], OUT drawn draw_answer[], OUT reserved reserve_answer[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_busy bigint[] := lock_batch(p_accounts, p_wait);
  v_now timestamptz := ledger_now();
  v_end record;
  v_draw record;
BEGIN
  IF cardinality(p_finishes) > 0 THEN
    v_end := ledger_finish(v_now, v_busy, p_finishes);
    ended := v_end.ended;
    finished := v_end.answers;
  END IF;
  IF cardinality(p_draws) > 0 THEN
    v_draw := ledger_draw(v_now, p_lease, p_share, p_sent_at, p_returns, v_busy, p_draws, p_runs, p_requests);
    drawn := v_draw.drawn;
    reserved := v_draw.reserved;
  END IF;
END $$;
--> statement-breakpoint
-- Gives back what an account's escrow rows under ended leases hold, and deletes them. Returns how many rows held something. Waits
-- for a lock for a moment only (error 55P03), so that one account does not hold up the others.
CREATE FUNCTION reap_account(p_account bigint) RETURNS int LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
  v_rows int;
BEGIN
  PERFORM lock_accounts(ARRAY[p_account]);
  SELECT count(*) INTO v_rows FROM escrows e JOIN leases l ON l.id = e.lease_id
  WHERE e.account_id = p_account AND l.ended AND (e.units > 0 OR e.nano_usd > 0);
  PERFORM give_back(ARRAY(
    SELECT ROW(e.account_id, e.lease_id, e.package_id, e.key_id, e.day, e.units, e.tokens, e.nano_usd)::returned_part
    FROM escrows e JOIN leases l ON l.id = e.lease_id WHERE e.account_id = p_account AND l.ended));
  WITH gone AS (
    DELETE FROM escrows e USING leases l WHERE l.id = e.lease_id AND e.account_id = p_account AND l.ended RETURNING e.package_id, e.used_tokens
  )
  UPDATE packages p SET tokens_taken = p.tokens_taken + s.tokens
  FROM (SELECT package_id, sum(used_tokens)::bigint AS tokens FROM gone GROUP BY 1) s WHERE p.id = s.package_id AND s.tokens > 0;
  RETURN v_rows;
END $$;
--> statement-breakpoint

SELECT make_receipt_months(3);
--> statement-breakpoint
SELECT turn_response_days(24);
