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

-- Gives back what replicas no longer keep. The caller holds the locks. Each element is one escrow row and how much is given back.
CREATE FUNCTION give_back(
  back_accounts bigint[], back_leases uuid[], back_packages bigint[], back_keys bigint[], back_days date[],
  back_units int[], back_tokens bigint[], back_nano bigint[]
) RETURNS void LANGUAGE sql AS $$
  WITH back AS (
    SELECT * FROM unnest(back_accounts, back_leases, back_packages, back_keys, back_days, back_units, back_tokens, back_nano)
      AS b(account_id, lease_id, package_id, key_id, day, units, tokens, nano)
  ), escrow_rows AS (
    UPDATE escrows e SET units = e.units - b.units, tokens = e.tokens - b.tokens, nano_usd = e.nano_usd - b.nano
    FROM back b WHERE (e.account_id, e.lease_id, e.package_id, e.key_id, e.day) = (b.account_id, b.lease_id, b.package_id, b.key_id, b.day)
  ), package_rows AS (
    UPDATE packages p SET units_held = p.units_held - s.units, tokens_held = p.tokens_held - s.tokens
    FROM (SELECT package_id, sum(units)::int AS units, sum(tokens)::bigint AS tokens FROM back WHERE package_id > 0 GROUP BY 1) s
    WHERE p.id = s.package_id
  ), package_day_rows AS (
    UPDATE package_days d SET units_held = d.units_held - s.units
    FROM (SELECT package_id, day, sum(units)::int AS units FROM back WHERE package_id > 0 GROUP BY 1, 2) s
    WHERE d.package_id = s.package_id AND d.day = s.day
  ), balance_rows AS (
    UPDATE balances b SET held_nano_usd = b.held_nano_usd - s.nano
    FROM (SELECT account_id, sum(nano)::bigint AS nano FROM back WHERE package_id = 0 AND key_id = 0 GROUP BY 1) s
    WHERE b.account_id = s.account_id
  )
  UPDATE key_days d SET units_held = d.units_held - s.units, held_nano_usd = d.held_nano_usd - s.nano
  FROM (SELECT key_id, day, sum(units)::int AS units, sum(nano)::bigint AS nano FROM back WHERE key_id > 0 GROUP BY 1, 2) s
  WHERE d.key_id = s.key_id AND d.day = s.day
$$;
--> statement-breakpoint

-- A key's daily limits change in the middle of a day. What it has used of the day without being counted counts from now on, so that limits that
-- are set at noon are limits of the day. Late settlements get no more than the new limits have left. Requests in flight are not counted if
-- the key had no limits when they began. The caller holds the account's lock.
CREATE FUNCTION begin_key_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_day date := (ledger_now() AT TIME ZONE NEW.time_zone)::date;
  v_units int := 0;
  v_nano bigint := 0;
  v_units_max int := coalesce(NEW.daily_units_max, 2147483647);
  v_nano_max bigint := coalesce(NEW.daily_spend_max_nano_usd, 9223372036854775807);
BEGIN
  IF NEW.daily_units_max IS NULL AND NEW.daily_spend_max_nano_usd IS NULL THEN
    UPDATE key_days SET units_max = v_units_max, spend_max_nano_usd = v_nano_max WHERE key_id = NEW.id AND day = v_day;
    RETURN NULL;
  END IF;
  -- `request_id` has the clock of a replica, so it only bounds what is read: a day more. A late settlement that took nothing counts as nothing.
  SELECT count(*), coalesce(sum(r.charged_nano_usd), 0) INTO v_units, v_nano FROM receipts r
  WHERE r.account_id = NEW.account_id AND r.request_id >= request_id_floor(day_begins(v_day, NEW.time_zone) - interval '1 day')
    AND r.outcome = 'settled' AND r.key_id = NEW.id AND r.key_day IS NULL AND (r.created_at AT TIME ZONE NEW.time_zone)::date = v_day
    AND NOT (r.reason = 'late' AND r.units = 0 AND r.charged_nano_usd = 0);
  -- A key without a row has used nothing yet: the first request of the day writes it.
  INSERT INTO key_days AS d (key_id, day, units_before, nano_usd_before, units_max, spend_max_nano_usd)
  SELECT NEW.id, v_day, v_units, v_nano, greatest(v_units_max, v_units), greatest(v_nano_max, v_nano)
  WHERE v_units > 0 OR EXISTS (SELECT FROM key_days WHERE key_id = NEW.id AND day = v_day)
  ON CONFLICT (key_id, day) DO UPDATE SET units_before = v_units, nano_usd_before = v_nano,
    units_max = greatest(v_units_max, d.units_used + d.units_held + v_units),
    spend_max_nano_usd = greatest(v_nano_max, d.spent_nano_usd + d.held_nano_usd + v_nano);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER keys_limited AFTER UPDATE OF daily_units_max, daily_spend_max_nano_usd ON keys FOR EACH ROW
WHEN ((OLD.daily_units_max, OLD.daily_spend_max_nano_usd) IS DISTINCT FROM (NEW.daily_units_max, NEW.daily_spend_max_nano_usd))
EXECUTE FUNCTION begin_key_limits();
--> statement-breakpoint

-- Draws for requests, and ahead of them. The caller holds the locks. Arrays of one kind have the same order:
-- - draw_*: one element per account. draw_numbers: the number of this draw; a draw runs only if no later one of the same lease and
--   account has run, so a statement that was given up can do no harm when it runs late. draw_units, draw_nano: how much to draw ahead.
--   draw_known_epochs: the account's epoch of which the replica knows.
--   draw_returns: the replica keeps less than it has drawn, or does not know what an earlier draw gave. draw_keep_lasts: the number of
--   the account's last keep, counted from 1; its first one follows the last one of the account before.
-- - keep_*: one element per escrow row of the replica: what it still accounts for (requests in flight, their ends that are on the way,
--   idle units), idle_*: the part of it that no request uses. What its row has beyond that is given back.
-- - run_*: one element per run. A run is a sequence of requests that differ only in amounts. run_places: the place of its account's draw;
--   runs are in the order of their places, and of arrival. run_lasts: the number of its last request, counted from 1. A draw for which there is
--   no request has one run, without a request and without a key.
-- - request_*: one element per request. request_prompt_pico is the upper bound of the prompt (or the image) in pico-USD, margin
--   included. run_output_pico is the same for one output token; −1: the model has no balance price. request_cap_max is the wanted
--   output cap, request_cap_min the lowest acceptable one. Of a token allowance it reserves request_prompt_tokens, and the output cap for
--   each of request_choices.
-- - answer_* (internal): one element per answer. An answer is for one or more consecutive requests.
-- p_share: at most one part in p_share of what is left is drawn ahead. p_sent_at: the replica's clock.
-- Returns rows with part 'reserve' (`places`: the requests it is for, counted from 1; code null: granted; recall: units lie unused in an
-- escrow and have been asked for) and one row with part 'draw' per account (`places`: the account's place; code null: it has run;
-- good_ms: how long units of that package and day may be used; recalled: another replica had asked for what lies unused here; now_us: p_now in
-- Unix microseconds).
CREATE FUNCTION ledger_draw(
  p_now timestamptz, p_lease uuid, p_share int, p_sent_at timestamptz, p_busy bigint[],
  draw_accounts bigint[], draw_tenants bigint[], draw_numbers bigint[], draw_units int[], draw_nano bigint[], draw_known_epochs bigint[], draw_returns boolean,
  draw_keep_lasts int[], keep_packages bigint[], keep_keys bigint[], keep_days date[], keep_units int[], keep_tokens bigint[],
  keep_nano bigint[], idle_units int[], idle_nano bigint[],
  run_places int[], run_lasts int[], run_keys bigint[], run_hosts text[], run_own_hosts boolean[],
  run_models text[], run_output_pico bigint[],
  request_prompt_pico bigint[], request_cap_max int[], request_cap_min int[],
  request_prompt_tokens bigint[], request_choices int[]
) RETURNS TABLE (
  part text, places int[], code text, package_id bigint, day date, key_day date, nano_usd bigint, tokens bigint, cap_tokens int,
  quota_limit bigint, quota_used bigint, quota_remaining bigint, resets_at timestamptz,
  units int, good_ms bigint, model_ids text[], epoch bigint, tenant_epoch bigint, recalled boolean, now_us bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  -- What keeps an account's draw from running: busy, stale (a later one has run), lease_ended, clock_skew. null: nothing.
  draw_codes text[];
  draw_recalled boolean[];
  v_refused text;
  run record;          -- an account and one of its runs (or none), with the state before the batch
  i int;               -- a request
  v_last int;          -- the last request that may share its answer
  v_account bigint;
  v_package packages;  -- the account's active package, with what this batch has reserved so far
  v_day_units int;     -- used and reserved today, with this batch
  v_left int;          -- units left
  v_tokens_left bigint;
  v_count int;         -- requests of an answer
  v_available bigint;  -- nano-USD neither spent nor reserved
  v_spendable bigint;  -- the part of it that the key may spend
  v_code text;
  v_amount bigint;
  v_cap int;
  v_tokens bigint;     -- tokens that a request reserves; null: the package has no token allowance
  v_short boolean;     -- somebody waits for what lies unused: nothing is drawn ahead
  v_units int;
  v_nano bigint;
  -- What is left of the daily limits of the account's keys (null: no such limit), and the place of the run's key.
  limit_keys bigint[];
  limit_units int[];
  limit_nano bigint[];
  v_limit int;
  -- An answer is for the requests answer_from to answer_to of the run answer_run. A null code means granted.
  n int := 0;
  answer_run int[];
  answer_from int[];
  answer_to int[];
  answer_code text[];
  answer_package bigint[];
  answer_day date[];
  answer_units_max int[];
  answer_nano bigint[];
  answer_tokens bigint[];
  answer_cap int[];
  answer_key_day date[];
  answer_limit bigint[];
  answer_used bigint[];
  answer_remaining bigint[];
  answer_resets timestamptz[];
  -- One element per account: what is drawn ahead, and the package it is of.
  ahead_package bigint[];
  ahead_day date[];
  ahead_units int[];
  ahead_units_max int[];
  ahead_nano bigint[];
  ahead_good_ms bigint[];
  ahead_models jsonb[];
  draw_epochs bigint[];
  draw_tenant_epochs bigint[];
  -- Whether anything was drawn from a package, from a balance, for a key with daily limits.
  v_of_package boolean := false;
  v_of_balance boolean := false;
  v_of_limit boolean := false;
BEGIN
  v_refused := CASE
    WHEN NOT EXISTS (SELECT FROM leases l WHERE l.id = p_lease AND NOT l.ended) THEN 'lease_ended'
    WHEN p_sent_at NOT BETWEEN p_now - interval '1 hour' AND p_now + interval '1 hour' THEN 'clock_skew' END;
  SELECT array_agg(CASE WHEN d.account_id = ANY (p_busy) THEN 'busy' WHEN v_refused IS NOT NULL THEN v_refused
                        WHEN d.number <= e.number THEN 'stale' END ORDER BY d.ord),
         array_agg(coalesce(e.recalled, false) ORDER BY d.ord)
  INTO draw_codes, draw_recalled
  FROM unnest(draw_accounts, draw_numbers) WITH ORDINALITY AS d(account_id, number, ord)
  CROSS JOIN LATERAL (
    SELECT max(x.draw_number) AS number, bool_or(x.recalled) AS recalled FROM escrows x
    WHERE x.account_id = d.account_id AND x.lease_id = p_lease) e;

  IF draw_returns AND v_refused IS NULL THEN
    PERFORM give_back(array_agg(b.account_id), array_agg(p_lease), array_agg(b.package_id), array_agg(b.key_id), array_agg(b.day),
                      array_agg(b.units), array_agg(b.tokens), array_agg(b.nano))
    FROM (
      SELECT e.account_id, e.package_id, e.key_id, e.day, greatest(e.units - coalesce(keep_units[k], 0), 0) AS units,
        greatest(e.tokens - coalesce(keep_tokens[k], 0), 0) AS tokens, greatest(e.nano_usd - coalesce(keep_nano[k], 0), 0) AS nano
      FROM unnest(draw_accounts, draw_codes) WITH ORDINALITY AS d(account_id, code, place)
      JOIN escrows e ON e.account_id = d.account_id AND e.lease_id = p_lease
      LEFT JOIN LATERAL (
        SELECT y AS k FROM generate_series(coalesce(draw_keep_lasts[d.place - 1], 0) + 1, draw_keep_lasts[d.place]) AS y
        WHERE (keep_packages[y], keep_keys[y], keep_days[y]) = (e.package_id, e.key_id, e.day)) AS kept ON true
      WHERE d.code IS NULL AND (e.units > coalesce(keep_units[k], 0) OR e.tokens > coalesce(keep_tokens[k], 0)
        OR e.nano_usd > coalesce(keep_nano[k], 0))
    ) b HAVING count(*) > 0;

    -- Rows that the replica does not name: it does not know of them, and nothing of them is idle.
    UPDATE escrows e SET draw_number = d.number, idle_units = 0, idle_nano_usd = 0, recalled = false
    FROM unnest(draw_accounts, draw_numbers, draw_codes) AS d(account_id, number, code)
    WHERE e.account_id = d.account_id AND e.lease_id = p_lease AND d.code IS NULL;
  END IF;

  FOR run IN
    SELECT r.place, w.account_id, draw_codes[r.place] AS draw_code, r.run_no, coalesce(run_lasts[r.run_no - 1], 0) + 1 AS first_request,
      run_lasts[r.run_no] AS last_request, r.model_id, run_places[r.run_no + 1] IS DISTINCT FROM r.place AS is_last,
      run_output_pico[r.run_no] AS output_pico, k.mode = 'payg' AS by_balance,
      CASE WHEN k.daily_units_max IS NOT NULL OR k.daily_spend_max_nano_usd IS NOT NULL THEN k.id END AS limited_key,
      k.daily_units_max, k.daily_spend_max_nano_usd, k.time_zone AS key_time_zone, c.today AS key_day,
      coalesce(u.units_used + u.units_held + u.units_before, 0) AS key_units,
      coalesce(u.spent_nano_usd + u.held_nano_usd + u.nano_usd_before, 0) AS key_nano,
      CASE
        WHEN k.id IS NULL OR k.account_id <> w.account_id OR k.status <> 'enabled' OR k.expires_at <= p_now
          OR a.id IS NULL OR a.status <> 'active' OR coalesce(t.status, 'active') <> 'active' THEN 'invalid_api_key'
        WHEN NOT (coalesce(r.host = ANY (k.hosts), true)
          AND (run_own_hosts[r.run_no] OR coalesce(h.status = 'active', false))) THEN 'host_not_allowed'
        WHEN NOT coalesce(r.model_id = ANY (k.model_ids), true) THEN 'model_not_found'
      END AS code,
      a.status = 'active' AND coalesce(t.status, 'active') = 'active' AS is_active,
      p.id AS package_id, p.package, p.today, coalesce(d.units, 0) AS day_units,
      coalesce(b.payg_enabled, false) AS payg_enabled, coalesce(b.balance_nano_usd, 0) AS balance,
      coalesce(b.held_nano_usd, 0) AS held, coalesce(ae.epoch, 0) AS epoch, coalesce(te.epoch, 0) AS tenant_epoch,
      CASE WHEN p.id IS NULL THEN EXISTS (
        SELECT FROM packages e WHERE e.account_id = w.account_id AND e.ends_at <= p_now AND e.ends_at > e.starts_at) END AS expired
    -- `LIMIT 1` has each row look up its own by key. Without it, and before there are statistics, the planner would compare all rows with all.
    FROM unnest(run_places, run_keys, run_hosts, run_models) WITH ORDINALITY AS r(place, key_id, host, model_id, run_no)
    CROSS JOIN LATERAL (SELECT draw_accounts[r.place] AS account_id, draw_tenants[r.place] AS tenant_id) w
    LEFT JOIN keys k ON k.id = r.key_id
    LEFT JOIN accounts a ON a.id = w.account_id
    LEFT JOIN accounts t ON t.id = w.tenant_id
    LEFT JOIN epochs ae ON ae.account_id = w.account_id
    LEFT JOIN epochs te ON te.account_id = w.tenant_id
    LEFT JOIN LATERAL (
      SELECT status FROM hosts x WHERE NOT run_own_hosts[r.run_no] AND x.host = r.host AND x.reseller_id = w.tenant_id LIMIT 1) h ON true
    LEFT JOIN LATERAL (SELECT (p_now AT TIME ZONE k.time_zone)::date AS today
      WHERE k.daily_units_max IS NOT NULL OR k.daily_spend_max_nano_usd IS NOT NULL) c ON true
    LEFT JOIN key_days u ON u.key_id = k.id AND u.day = c.today
    LEFT JOIN LATERAL (
      SELECT x.id, x AS package, (p_now AT TIME ZONE x.time_zone)::date AS today FROM packages x
      WHERE x.account_id = w.account_id AND x.starts_at <= p_now AND x.ends_at > p_now
      ORDER BY x.starts_at DESC LIMIT 1
    ) p ON true
    LEFT JOIN LATERAL (
      SELECT x.units_used + x.units_held AS units FROM package_days x WHERE x.package_id = p.id AND x.day = p.today LIMIT 1) d ON true
    LEFT JOIN balances b ON b.account_id = w.account_id
    ORDER BY r.run_no
  LOOP
    IF run.account_id IS DISTINCT FROM v_account THEN
      v_account := run.account_id;
      v_available := run.balance - run.held;
      v_short := draw_recalled[run.place];
      limit_keys := '{}';
      IF run.package_id IS NOT NULL THEN
        v_package := run.package;
        v_day_units := run.day_units;
        v_left := package_left(v_package, run.today, v_day_units);
        v_tokens_left := package_tokens_left(v_package);
      END IF;
    END IF;
    v_limit := NULL;
    IF run.limited_key IS NOT NULL THEN
      v_limit := array_position(limit_keys, run.limited_key);
      IF v_limit IS NULL THEN
        v_limit := cardinality(limit_keys) + 1;
        limit_keys[v_limit] := run.limited_key;
        limit_units[v_limit] := run.daily_units_max - run.key_units;
        limit_nano[v_limit] := run.daily_spend_max_nano_usd - run.key_nano;
      END IF;
    END IF;

    v_last := run.first_request - 1;
    WHILE v_last < run.last_request LOOP
      i := v_last + 1;
      v_last := run.last_request;
      n := n + 1;
      answer_run[n] := run.run_no;
      answer_from[n] := i;
      answer_to[n] := v_last;
      v_code := coalesce(run.draw_code, run.code);
      IF v_code IS NOT NULL THEN
        answer_code[n] := v_code;
        CONTINUE;
      END IF;

      -- The key's daily limit of requests.
      IF limit_units[v_limit] <= 0 THEN
        answer_code[n] := 'key_request_limit_exceeded';
        answer_limit[n] := run.daily_units_max;
        answer_used[n] := run.daily_units_max - limit_units[v_limit];
        answer_remaining[n] := 0;
        answer_resets[n] := day_begins(run.key_day + 1, run.key_time_zone);
        CONTINUE;
      END IF;

      IF NOT run.by_balance THEN
        -- The package pays first.
        v_tokens := NULL;
        IF run.package_id IS NOT NULL AND v_tokens_left IS NOT NULL AND v_left > 0 THEN
          -- The output cap is lowered to what the token allowance affords; request_cap_min is lower only if the client asked for no cap.
          v_last := i;
          answer_to[n] := i;
          v_cap := least(request_cap_max[i], greatest(request_cap_min[i],
                         (v_tokens_left - request_prompt_tokens[i]) / greatest(request_choices[i], 1)))::int;
          v_tokens := request_prompt_tokens[i] + v_cap::bigint * request_choices[i];
        END IF;
        IF run.package_id IS NULL THEN
          v_code := CASE WHEN run.expired THEN 'package_expired' ELSE 'package_required' END;
        ELSIF NOT (v_package.model_ids IS NULL OR run.model_id = ANY (v_package.model_ids)) THEN
          v_code := 'model_not_in_package';
        ELSIF v_left > 0 AND coalesce(v_tokens_left > 0 AND v_tokens <= v_tokens_left, true) THEN
          -- All requests at once that there are units for. With a token allowance one by one: each reserves its own tokens.
          IF v_tokens IS NULL THEN
            v_last := least(v_last, i - 1 + v_left, i - 1 + limit_units[v_limit]);
          ELSE
            answer_tokens[n] := v_tokens;
            answer_cap[n] := v_cap;
            v_package.tokens_held := v_package.tokens_held + v_tokens;
            v_tokens_left := v_tokens_left - v_tokens;
          END IF;
          v_count := v_last - i + 1;
          v_package.units_held := v_package.units_held + v_count;
          v_day_units := v_day_units + v_count;
          v_left := v_left - v_count;
          answer_to[n] := v_last;
          answer_package[n] := run.package_id;
          answer_day[n] := run.today;
          answer_units_max[n] := CASE WHEN v_package.carryover THEN v_package.total_limit ELSE v_package.daily_limit END;
          IF v_limit IS NOT NULL THEN
            answer_key_day[n] := run.key_day;
            limit_units[v_limit] := limit_units[v_limit] - v_count;
            v_of_limit := true;
          END IF;
          v_of_package := true;
          CONTINUE;
        ELSIF v_left <= 0 AND recall_idle(v_account, run.package_id, p_lease, EXISTS (
            SELECT FROM generate_series(coalesce(draw_keep_lasts[run.place - 1], 0) + 1, draw_keep_lasts[run.place]) AS y
            WHERE keep_packages[y] = run.package_id AND idle_units[y] > 0)) THEN
          -- Not refused, and nobody else pays, while units lie unused.
          v_short := true;
          answer_code[n] := 'recall';
          CONTINUE;
        ELSIF package_day_left(v_package, run.today, v_day_units) <= 0 THEN
          v_code := CASE WHEN v_package.carryover THEN 'carryover_quota_exceeded' ELSE 'daily_quota_exceeded' END;
        ELSIF v_left > 0 THEN
          -- Used up for good, or too little left for this request: then what running requests have reserved may come back.
          v_code := CASE WHEN v_package.tokens_used >= v_package.token_limit THEN 'package_tokens_exceeded' ELSE 'package_tokens_short' END;
        ELSE
          v_code := 'package_quota_exceeded';
        END IF;

        IF NOT (run.payg_enabled AND run.balance > 0) THEN
          answer_code[n] := v_code;
          IF v_code IN ('daily_quota_exceeded', 'carryover_quota_exceeded') THEN
            answer_limit[n] := package_granted(v_package, run.today);
            answer_used[n] := answer_limit[n] - package_day_left(v_package, run.today, v_day_units);
            answer_remaining[n] := 0;
            answer_resets[n] := package_resets_at(v_package, run.today);
          ELSIF v_code IN ('package_tokens_exceeded', 'package_tokens_short') THEN
            answer_limit[n] := v_package.token_limit;
            answer_used[n] := v_package.token_limit - v_tokens_left;
            answer_remaining[n] := v_tokens_left;
          ELSIF v_code = 'package_quota_exceeded' THEN
            answer_limit[n] := v_package.total_limit;
            answer_used[n] := v_package.total_limit - package_total_left(v_package);
            answer_remaining[n] := 0;
          END IF;
          CONTINUE;
        END IF;
      END IF;

      -- The balance pays.
      IF NOT run.payg_enabled THEN
        answer_code[n] := 'package_required';
      ELSIF run.output_pico < 0 THEN
        answer_code[n] := 'payg_pricing_unavailable';
      ELSE
        -- One by one: each request has its own amount.
        v_last := i;
        answer_to[n] := i;
        v_cap := request_cap_max[i];
        v_amount := (request_prompt_pico[i] + v_cap * run.output_pico + 999) / 1000;
        -- At most what is available, and what is left of the key's daily spending limit.
        v_spendable := least(v_available, limit_nano[v_limit]);
        IF v_amount > v_available AND recall_idle(v_account, 0, p_lease, EXISTS (
            SELECT FROM generate_series(coalesce(draw_keep_lasts[run.place - 1], 0) + 1, draw_keep_lasts[run.place]) AS y
            WHERE idle_nano[y] > 0)) THEN
          -- Neither refused, nor with a lower output cap, while money lies unused.
          v_short := true;
          answer_code[n] := 'recall';
          CONTINUE;
        END IF;
        IF v_amount > v_spendable AND v_cap > request_cap_min[i] THEN
          -- Lower the output cap to what can be paid; request_cap_min is lower only if the client asked for no cap.
          -- Cast last: the difference may be far below the range of int.
          v_cap := greatest(request_cap_min[i]::bigint,
                            (v_spendable * 1000 - request_prompt_pico[i]) / greatest(run.output_pico, 1))::int;
          v_amount := (request_prompt_pico[i] + v_cap * run.output_pico + 999) / 1000;
        END IF;
        IF v_amount > v_available THEN
          answer_code[n] := 'insufficient_balance';
          answer_limit[n] := v_amount;
          answer_remaining[n] := v_available;
        ELSIF v_amount > v_spendable THEN
          answer_code[n] := 'key_spend_limit_exceeded';
          answer_limit[n] := run.daily_spend_max_nano_usd;
          answer_used[n] := run.daily_spend_max_nano_usd - limit_nano[v_limit];
          answer_remaining[n] := greatest(v_spendable, 0);
          answer_resets[n] := day_begins(run.key_day + 1, run.key_time_zone);
        ELSE
          IF v_limit IS NOT NULL THEN
            answer_key_day[n] := run.key_day;
            limit_units[v_limit] := limit_units[v_limit] - 1;
            limit_nano[v_limit] := limit_nano[v_limit] - v_amount;
            v_of_limit := true;
          END IF;
          v_available := v_available - v_amount;
          answer_nano[n] := v_amount;
          answer_cap[n] := v_cap;
          v_of_balance := true;
        END IF;
      END IF;
    END LOOP;

    IF run.is_last THEN
      draw_epochs[run.place] := run.epoch;
      draw_tenant_epochs[run.place] := run.tenant_epoch;
      IF run.draw_code IS NULL AND run.is_active THEN
        IF run.package_id IS NOT NULL AND v_package.token_limit IS NULL THEN
          -- What was drawn earlier stays good, also when nothing more is drawn.
          v_units := CASE WHEN v_short THEN 0 ELSE least(draw_units[run.place], v_left / p_share) END;
          ahead_package[run.place] := run.package_id;
          ahead_day[run.place] := run.today;
          ahead_units_max[run.place] := CASE WHEN v_package.carryover THEN v_package.total_limit ELSE v_package.daily_limit END;
          ahead_models[run.place] := to_jsonb(v_package.model_ids);
          ahead_good_ms[run.place] := floor(extract(epoch FROM least(v_package.ends_at, day_begins(run.today + 1, v_package.time_zone)) - p_now) * 1000);
          IF v_units > 0 THEN
            ahead_units[run.place] := v_units;
            v_of_package := true;
          END IF;
        END IF;
        IF run.payg_enabled THEN
          v_nano := CASE WHEN v_short THEN 0 ELSE least(draw_nano[run.place], v_available / p_share) END;
          ahead_nano[run.place] := greatest(v_nano, 0);
          v_of_balance := v_of_balance OR v_nano > 0;
        END IF;
      END IF;
    END IF;
  END LOOP;

  -- What is kept, what requests were granted, and what is drawn ahead, by escrow row. A refusal alone writes nothing.
  INSERT INTO escrows AS e (account_id, lease_id, package_id, key_id, day, draw_number, units, tokens, nano_usd, idle_units, idle_nano_usd,
                            epoch, tenant_epoch)
  SELECT draw_accounts[s.place], p_lease, s.package_id, s.key_id, s.day, draw_numbers[s.place],
    sum(s.units)::int, sum(s.tokens)::bigint, sum(s.nano)::bigint, sum(s.idle_units)::int, sum(s.idle_nano)::bigint,
    -- What is kept idle may still be granted by what the replica knew when it sent this draw: a change waits until it draws again.
    CASE WHEN sum(s.kept) > 0 THEN least(draw_epochs[s.place], draw_known_epochs[s.place]) ELSE draw_epochs[s.place] END,
    draw_tenant_epochs[s.place]
  FROM (
    SELECT d.place::int, keep_packages[y] AS package_id, keep_keys[y] AS key_id, keep_days[y] AS day, 0 AS units, 0::bigint AS tokens,
      0::bigint AS nano, idle_units[y] AS idle_units, idle_nano[y] AS idle_nano, idle_units[y] + idle_nano[y] AS kept
    FROM unnest(draw_keep_lasts) WITH ORDINALITY AS d(keep_last, place),
      generate_series(coalesce(draw_keep_lasts[d.place - 1], 0) + 1, d.keep_last) AS y
    UNION ALL
    SELECT run_places[answer_run[x]], coalesce(answer_package[x], 0), 0, coalesce(answer_day[x], '-infinity'),
      CASE WHEN answer_package[x] IS NULL THEN 0 ELSE answer_to[x] - answer_from[x] + 1 END, coalesce(answer_tokens[x], 0),
      coalesce(answer_nano[x], 0), 0, 0, 0
    FROM generate_series(1, n) AS x WHERE answer_package[x] IS NOT NULL OR answer_nano[x] IS NOT NULL
    UNION ALL
    SELECT run_places[answer_run[x]], 0, run_keys[answer_run[x]], answer_key_day[x], answer_to[x] - answer_from[x] + 1, 0,
      coalesce(answer_nano[x], 0), 0, 0, 0
    FROM generate_series(1, n) AS x WHERE answer_key_day[x] IS NOT NULL
    UNION ALL
    SELECT x, ahead_package[x], 0, ahead_day[x], ahead_units[x], 0, 0, ahead_units[x], 0, 0
    FROM generate_series(1, cardinality(draw_accounts)) AS x WHERE ahead_units[x] > 0
    UNION ALL
    SELECT x, 0, 0, '-infinity', 0, 0, ahead_nano[x], 0, ahead_nano[x], 0
    FROM generate_series(1, cardinality(draw_accounts)) AS x WHERE ahead_nano[x] > 0
  ) s
  WHERE draw_codes[s.place] IS NULL
  GROUP BY s.place, s.package_id, s.key_id, s.day
  ON CONFLICT (account_id, lease_id, package_id, key_id, day) DO UPDATE SET draw_number = excluded.draw_number,
    units = e.units + excluded.units, tokens = e.tokens + excluded.tokens, nano_usd = e.nano_usd + excluded.nano_usd,
    idle_units = excluded.idle_units, idle_nano_usd = excluded.idle_nano_usd, epoch = excluded.epoch,
    tenant_epoch = excluded.tenant_epoch, recalled = false;

  IF v_of_package THEN
    INSERT INTO package_days AS d (package_id, day, units_held, units_max)
    SELECT s.package_id, s.day, sum(s.units)::int, max(s.units_max)
    FROM (
      SELECT answer_package[x] AS package_id, answer_day[x] AS day, answer_to[x] - answer_from[x] + 1 AS units, answer_units_max[x] AS units_max
      FROM generate_series(1, n) AS x WHERE answer_package[x] IS NOT NULL
      UNION ALL
      SELECT ahead_package[x], ahead_day[x], ahead_units[x], ahead_units_max[x]
      FROM generate_series(1, cardinality(draw_accounts)) AS x WHERE ahead_units[x] > 0
    ) s GROUP BY 1, 2
    ON CONFLICT (package_id, day) DO UPDATE SET units_held = d.units_held + excluded.units_held;

    UPDATE packages p SET units_held = p.units_held + s.units, tokens_held = p.tokens_held + s.tokens
    FROM (
      SELECT g.package_id, sum(g.units)::int AS units, sum(g.tokens)::bigint AS tokens
      FROM (
        SELECT answer_package[x] AS package_id, answer_to[x] - answer_from[x] + 1 AS units, coalesce(answer_tokens[x], 0) AS tokens
        FROM generate_series(1, n) AS x WHERE answer_package[x] IS NOT NULL
        UNION ALL
        SELECT ahead_package[x], ahead_units[x], 0 FROM generate_series(1, cardinality(draw_accounts)) AS x WHERE ahead_units[x] > 0
      ) g GROUP BY 1) s
    WHERE p.id = s.package_id;
  END IF;

  IF v_of_limit THEN
    INSERT INTO key_days AS d (key_id, day, units_held, held_nano_usd, units_max, spend_max_nano_usd)
    SELECT k.id, answer_key_day[x], sum(answer_to[x] - answer_from[x] + 1)::int, sum(coalesce(answer_nano[x], 0))::bigint,
           coalesce(k.daily_units_max, 2147483647), coalesce(k.daily_spend_max_nano_usd, 9223372036854775807)
    FROM generate_series(1, n) AS x JOIN keys k ON k.id = run_keys[answer_run[x]]
    WHERE answer_key_day[x] IS NOT NULL GROUP BY k.id, answer_key_day[x]
    ON CONFLICT (key_id, day) DO UPDATE SET units_held = d.units_held + excluded.units_held,
      held_nano_usd = d.held_nano_usd + excluded.held_nano_usd, units_max = greatest(d.units_max, excluded.units_max),
      spend_max_nano_usd = greatest(d.spend_max_nano_usd, excluded.spend_max_nano_usd);
  END IF;

  IF v_of_balance THEN
    UPDATE balances b SET held_nano_usd = b.held_nano_usd + s.nano
    FROM (
      SELECT g.account_id, sum(g.nano)::bigint AS nano
      FROM (
        SELECT draw_accounts[run_places[answer_run[x]]] AS account_id, answer_nano[x] AS nano
        FROM generate_series(1, n) AS x WHERE answer_nano[x] IS NOT NULL
        UNION ALL
        SELECT draw_accounts[x], ahead_nano[x] FROM generate_series(1, cardinality(draw_accounts)) AS x WHERE ahead_nano[x] > 0
      ) g GROUP BY 1) s
    WHERE b.account_id = s.account_id;
  END IF;

  RETURN QUERY
  SELECT 'reserve', ARRAY(SELECT generate_series(answer_from[x], answer_to[x])), answer_code[x], answer_package[x], answer_day[x],
    answer_key_day[x], coalesce(answer_nano[x], 0), answer_tokens[x], answer_cap[x], answer_limit[x], answer_used[x], answer_remaining[x],
    answer_resets[x], NULL::int, NULL::bigint, NULL::text[], NULL::bigint, NULL::bigint, NULL::boolean, NULL::bigint
  FROM generate_series(1, n) AS x;
  RETURN QUERY
  SELECT 'draw', ARRAY[x], draw_codes[x], ahead_package[x], ahead_day[x], NULL::date, ahead_nano[x], NULL::bigint, NULL::int, NULL::bigint,
    NULL::bigint, NULL::bigint, NULL::timestamptz, coalesce(ahead_units[x], 0), ahead_good_ms[x],
    CASE WHEN jsonb_typeof(ahead_models[x]) = 'array' THEN ARRAY(SELECT jsonb_array_elements_text(ahead_models[x])) END,
    draw_epochs[x], draw_tenant_epochs[x], draw_recalled[x], (extract(epoch FROM p_now) * 1000000)::bigint
  FROM generate_series(1, cardinality(draw_accounts)) AS x;
END $$;
--> statement-breakpoint

-- Ends holds. The caller holds the locks. finish_*: one element per request that ends:
-- - leases, packages (0: the balance pays), days, key_days (null: its key has no daily limits), held_nano, held_tokens (null: no token
--   allowance): what was drawn for it. An escrow row that still exists under that lease gives it; if the reaper has returned it, the
--   settlement is late.
-- - reserved_us: when it was reserved, by this database's clock, in Unix microseconds. settles: charged; otherwise released.
-- - charge: nano-USD at the prices of the reservation; 0 for a package.
-- - strict: nothing was sent to the client yet, so a charge that the balance does not cover becomes a refusal, and all of it the
--   operator's loss. Otherwise the held amount is charged, and the rest is the operator's loss.
-- - further, reported, tried: further counts with a price, other counts of the provider, the routes that were tried; JSON; an empty array:
--   none at all. markups, costs: the markup on the operator's price, in basis points, and that price in nano-USD; null: none.
-- - idle_units, idle_nano: what was idle in the escrow row that gives it when the batch was sent. idle_draws: the number of the last
--   draw that the replica had the answer of then; 0: none under that lease. The figures are written only if this draw is still the row's
--   last one. Under one draw they can only fall, so the lowest is the newest. A batch that was given up may run after a later draw.
-- Outcomes: settled, released, refused (strict only), already (settled before), gone (over for good, and not charged), busy, recall
-- (the charge, or a late settlement, needs money or a unit that lies unused in an escrow; it has been asked for).
-- unpaid_tokens: what a package's request used and no package pays. Returns one row per outcome; `places` are the elements it is for, counted from 1.
CREATE FUNCTION ledger_finish(
  p_now timestamptz, p_busy bigint[],
  finish_ids uuid[], finish_leases uuid[], finish_accounts bigint[], finish_keys bigint[], finish_models text[], finish_hosts text[],
  finish_packages bigint[], finish_days date[], finish_key_days date[], finish_held_nano bigint[], finish_held_tokens bigint[],
  finish_price_versions bigint[], finish_reserved_us bigint[], finish_settles boolean[], finish_reasons text[], finish_prompt int[],
  finish_cached int[], finish_completion int[], finish_charge bigint[], finish_strict boolean[], finish_estimated boolean[],
  finish_further text[], finish_reported text[], finish_tried text[], finish_markups int[], finish_costs bigint[], finish_idle_draws bigint[], finish_idle_units int[], finish_idle_nano bigint[]
) RETURNS TABLE (places int[], outcome text, charged_nano_usd bigint, shortfall_nano_usd bigint, units int, unpaid_tokens bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done int[];
  -- Whether any of them was of a package, of a balance, of a key with daily limits.
  v_of_package boolean;
  v_of_balance boolean;
  v_of_limit boolean;
  i int;
BEGIN
  -- Nearly always: the escrow row is there, the charge is within the hold, and the request has no receipt yet. One statement.
  WITH wanted AS (
    SELECT DISTINCT ON (f.request_id) f.*, CASE WHEN f.settles THEN 1 ELSE 0 END AS used,
      CASE WHEN f.settles THEN f.prompt::bigint + f.completion ELSE 0 END AS charged_tokens
    FROM unnest(finish_ids, finish_leases, finish_accounts, finish_keys, finish_models, finish_hosts, finish_packages, finish_days,
        finish_key_days, finish_held_nano, finish_held_tokens, finish_price_versions, finish_reserved_us, finish_settles, finish_reasons,
        finish_prompt, finish_cached, finish_completion, finish_charge, finish_estimated, finish_idle_draws, finish_idle_units, finish_idle_nano)
        WITH ORDINALITY
      AS f(request_id, lease_id, account_id, key_id, model_id, host, package_id, day, key_day, held_nano, held_tokens, price_version_id,
        reserved_us, settles, reason, prompt, cached, completion, charge, estimated, idle_draw, idle_units, idle_nano, place)
    WHERE f.account_id <> ALL (p_busy) AND f.charge <= f.held_nano AND coalesce(f.prompt::bigint + f.completion <= f.held_tokens, true)
      AND EXISTS (SELECT FROM escrows e WHERE e.account_id = f.account_id AND e.lease_id = f.lease_id AND e.package_id = f.package_id
                  AND e.key_id = 0 AND e.day = coalesce(f.day, '-infinity'))
  ), written AS (
    INSERT INTO receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, key_day, outcome, reason, units,
      held_nano_usd, charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens,
      estimated, price_version_id, further_counts, reported_usage, tried, markup_basis_points, cost_nano_usd, created_at, finished_at)
    SELECT request_id, account_id, key_id, model_id, host, CASE WHEN package_id > 0 THEN 'package' ELSE 'payg' END,
      nullif(package_id, 0), day, key_day, CASE WHEN settles THEN 'settled' ELSE 'released' END, reason,
      CASE WHEN package_id > 0 THEN used ELSE 0 END, held_nano, CASE WHEN settles THEN charge ELSE 0 END, 0, prompt, cached, completion,
      charged_tokens, estimated, price_version_id, finish_further[place]::jsonb, finish_reported[place]::jsonb, finish_tried[place]::jsonb,
      finish_markups[place], finish_costs[place],
      least(p_now, instant_of(reserved_us)), p_now
    FROM wanted ON CONFLICT (request_id) DO NOTHING RETURNING request_id
  ), ended AS MATERIALIZED (
    -- Not as a join: without statistics that would compare every row with every other one. `coalesce` makes it a hash table.
    SELECT * FROM wanted WHERE coalesce(request_id IN (SELECT request_id FROM written), false)
  ), escrow_rows AS (
    UPDATE escrows e SET units = e.units - s.units, tokens = e.tokens - s.tokens, nano_usd = e.nano_usd - s.nano,
      idle_units = CASE WHEN e.draw_number = s.idle_draw THEN least(e.idle_units, s.idle_units) ELSE e.idle_units END,
      idle_nano_usd = CASE WHEN e.draw_number = s.idle_draw THEN least(e.idle_nano_usd, s.idle_nano) ELSE e.idle_nano_usd END
    FROM (
      SELECT account_id, lease_id, package_id, coalesce(day, '-infinity') AS day,
        (count(*) FILTER (WHERE package_id > 0))::int AS units, sum(coalesce(held_tokens, 0))::bigint AS tokens, sum(held_nano)::bigint AS nano,
        -- All ends of a batch say the same of a row.
        min(idle_draw) AS idle_draw, min(idle_units) AS idle_units, min(idle_nano) AS idle_nano
      FROM ended GROUP BY 1, 2, 3, 4
    ) s
    WHERE (e.account_id, e.lease_id, e.package_id, e.key_id, e.day) = (s.account_id, s.lease_id, s.package_id, 0, s.day)
  )
  SELECT array_agg(place), coalesce(bool_or(package_id > 0), false), coalesce(bool_or(package_id = 0), false),
    coalesce(bool_or(key_day IS NOT NULL), false)
  INTO v_done, v_of_package, v_of_balance, v_of_limit FROM ended;

  -- The counters, each only if there is something to count: a statement costs as much as many rows.
  IF v_of_package THEN
    WITH days AS (
      UPDATE package_days d SET units_held = d.units_held - s.held, units_used = d.units_used + s.used
      FROM (SELECT finish_packages[x] AS package_id, finish_days[x] AS day, count(*)::int AS held,
              (count(*) FILTER (WHERE finish_settles[x]))::int AS used
            FROM unnest(v_done) AS d(x) WHERE finish_packages[x] > 0 GROUP BY 1, 2) s
      WHERE d.package_id = s.package_id AND d.day = s.day
    )
    UPDATE packages p SET units_held = p.units_held - s.held, units_used = p.units_used + s.used,
      tokens_held = p.tokens_held - s.tokens_held, tokens_used = p.tokens_used + s.tokens_used
    FROM (SELECT finish_packages[x] AS package_id, count(*)::int AS held, (count(*) FILTER (WHERE finish_settles[x]))::int AS used,
            sum(coalesce(finish_held_tokens[x], 0))::bigint AS tokens_held,
            coalesce(sum(finish_prompt[x]::bigint + finish_completion[x]) FILTER (WHERE finish_settles[x]), 0)::bigint AS tokens_used
          FROM unnest(v_done) AS d(x) WHERE finish_packages[x] > 0 GROUP BY 1) s
    WHERE p.id = s.package_id;
  END IF;

  IF v_of_balance THEN
    WITH entry_rows AS (
      INSERT INTO balance_entries (account_id, amount_nano_usd, kind, request_id)
      SELECT finish_accounts[x], -finish_charge[x], 'charge', finish_ids[x]
      FROM unnest(v_done) AS d(x) WHERE finish_packages[x] = 0 AND finish_settles[x] AND finish_charge[x] > 0
    )
    UPDATE balances b SET held_nano_usd = b.held_nano_usd - s.held, balance_nano_usd = b.balance_nano_usd - s.charged,
      tokens_used = b.tokens_used + s.tokens
    FROM (SELECT finish_accounts[x] AS account_id, sum(finish_held_nano[x])::bigint AS held,
            coalesce(sum(finish_charge[x]) FILTER (WHERE finish_settles[x]), 0)::bigint AS charged,
            coalesce(sum(finish_prompt[x]::bigint + finish_completion[x]) FILTER (WHERE finish_settles[x]), 0)::bigint AS tokens
          FROM unnest(v_done) AS d(x) WHERE finish_packages[x] = 0 GROUP BY 1) s
    WHERE b.account_id = s.account_id;
  END IF;

  IF v_of_limit THEN
    WITH limited AS (
      SELECT finish_accounts[x] AS account_id, finish_leases[x] AS lease_id, finish_keys[x] AS key_id, finish_key_days[x] AS day,
        count(*)::int AS held, (count(*) FILTER (WHERE finish_settles[x]))::int AS used, sum(finish_held_nano[x])::bigint AS nano,
        coalesce(sum(finish_charge[x]) FILTER (WHERE finish_settles[x]), 0)::bigint AS charged
      FROM unnest(v_done) AS d(x) WHERE finish_key_days[x] IS NOT NULL GROUP BY 1, 2, 3, 4
    ), escrow_rows AS (
      UPDATE escrows e SET units = e.units - l.held, nano_usd = e.nano_usd - l.nano
      FROM limited l WHERE (e.account_id, e.lease_id, e.package_id, e.key_id, e.day) = (l.account_id, l.lease_id, 0, l.key_id, l.day)
    )
    UPDATE key_days d SET units_held = d.units_held - s.held, units_used = d.units_used + s.used,
      held_nano_usd = d.held_nano_usd - s.nano, spent_nano_usd = d.spent_nano_usd + s.charged
    FROM (SELECT key_id, day, sum(held)::int AS held, sum(used)::int AS used, sum(nano)::bigint AS nano, sum(charged)::bigint AS charged
          FROM limited GROUP BY 1, 2) s
    WHERE d.key_id = s.key_id AND d.day = s.day;
  END IF;

  IF v_done IS NOT NULL THEN
    RETURN QUERY
    SELECT array_agg(x), CASE WHEN finish_settles[x] THEN 'settled' ELSE 'released' END,
      CASE WHEN finish_settles[x] THEN finish_charge[x] ELSE 0 END, 0::bigint,
      CASE WHEN finish_settles[x] AND finish_packages[x] > 0 THEN 1 ELSE 0 END, 0::bigint
    FROM unnest(v_done) AS d(x) GROUP BY 2, 3, 5;
  END IF;
  IF coalesce(cardinality(v_done), 0) < cardinality(finish_ids) THEN
    -- The others, one by one: each must see what the one before it wrote.
    FOR i IN SELECT x FROM generate_series(1, cardinality(finish_ids)) AS x WHERE x <> ALL (coalesce(v_done, '{}')) ORDER BY x LOOP
      RETURN QUERY SELECT ARRAY[i], f.* FROM finish_one(p_now, p_busy, finish_ids[i], finish_leases[i], finish_accounts[i], finish_keys[i],
        finish_models[i], finish_hosts[i], finish_packages[i], finish_days[i], finish_key_days[i], finish_held_nano[i], finish_held_tokens[i],
        finish_price_versions[i], least(p_now, instant_of(finish_reserved_us[i])), finish_settles[i], finish_reasons[i],
        finish_prompt[i], finish_cached[i], finish_completion[i], finish_charge[i], finish_strict[i], finish_estimated[i],
        finish_further[i], finish_reported[i], finish_tried[i], finish_markups[i], finish_costs[i]) f;
    END LOOP;
  END IF;
END $$;
--> statement-breakpoint

-- Ends one hold that `ledger_finish` does not end at once, rare: the provider used more than was reserved, the same end came twice, or
-- the reaper has returned what was drawn for it (late).
CREATE FUNCTION finish_one(
  p_now timestamptz, p_busy bigint[], p_id uuid, p_lease uuid, p_account bigint, p_key bigint, p_model text, p_host text,
  p_package bigint, p_day date, p_key_day date, p_held_nano bigint, p_held_tokens bigint, p_price_version bigint, p_created timestamptz,
  p_settles boolean, p_reason text, p_prompt int, p_cached int, p_completion int, p_charge bigint, p_strict boolean, p_estimated boolean,
  p_further text, p_reported text, p_tried text, p_markup int, p_cost bigint
) RETURNS TABLE (outcome text, charged_nano_usd bigint, shortfall_nano_usd bigint, units int, unpaid_tokens bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  d receipts;
  v_live boolean;      -- what was drawn for it is still there
  v_refused boolean := false;
  v_settles boolean := p_settles;
  v_available bigint;
  v_units int := 0;
  v_charged bigint := 0;
  v_tokens bigint := 0;
  v_key key_days;
  v_key_day date := p_key_day;  -- null: it counts towards no limit of its key
  v_key_nano bigint;            -- what its key may still spend
  v_shortfall bigint;  -- what nobody pays: the rest of the charge, and all of it if the answer is refused
  v_package packages;
BEGIN
  IF p_account = ANY (p_busy) THEN
    RETURN QUERY SELECT 'busy', 0::bigint, 0::bigint, 0, 0::bigint;
    RETURN;
  END IF;
  SELECT * INTO d FROM receipts r WHERE r.request_id = p_id;
  IF FOUND AND d.outcome = 'settled' THEN
    RETURN QUERY SELECT 'already', d.charged_nano_usd, d.shortfall_nano_usd, d.units::int, 0::bigint;
    RETURN;
  -- When the reply to a strict refusal was lost, the client got the response after all. Its settlement comes again, not strict.
  ELSIF d.reason = 'overrun_refused' AND p_settles THEN
    IF p_strict THEN
      RETURN QUERY SELECT 'refused', 0::bigint, 0::bigint, 0, 0::bigint;
      RETURN;
    END IF;
  ELSIF d.request_id IS NOT NULL THEN
    RETURN QUERY SELECT 'gone', 0::bigint, 0::bigint, 0, 0::bigint;
    RETURN;
  END IF;

  v_live := d.request_id IS NULL AND EXISTS (
    SELECT FROM escrows e WHERE e.account_id = p_account AND e.lease_id = p_lease AND e.package_id = p_package AND e.key_id = 0
      AND e.day = coalesce(p_day, '-infinity'));
  -- No loss, no refusal and no free unit, while money or units lie unused.
  IF p_settles AND (CASE
      WHEN p_package > 0 THEN NOT v_live AND late_unit_left(p_package, p_day) = 0
      ELSE p_charge > CASE WHEN v_live THEN p_held_nano ELSE 0 END
        + (SELECT balance_nano_usd - held_nano_usd FROM balances WHERE account_id = p_account) END)
    AND recall_idle(p_account, p_package, p_lease, EXISTS (
      SELECT FROM escrows e WHERE e.account_id = p_account AND e.lease_id = p_lease AND e.package_id = p_package
        AND (e.idle_units > 0 OR e.idle_nano_usd > 0))) THEN
    RETURN QUERY SELECT 'recall', 0::bigint, 0::bigint, 0, 0::bigint;
    RETURN;
  END IF;
  IF NOT v_live AND NOT p_settles THEN
    RETURN QUERY SELECT 'gone', 0::bigint, 0::bigint, 0, 0::bigint;
    RETURN;
  END IF;

  -- What was drawn goes back, then the charge is taken. Above what was held: if the available balance covers the whole charge, all of
  -- it, else the held amount or what is still there of it. Of a token allowance all that is left. See docs/decisions.md.
  IF v_live THEN
    PERFORM give_back(
      array_remove(ARRAY[p_account, CASE WHEN p_key_day IS NOT NULL THEN p_account END], NULL), ARRAY[p_lease, p_lease],
      ARRAY[p_package, 0], ARRAY[0, p_key], ARRAY[coalesce(p_day, '-infinity'), p_key_day],
      ARRAY[CASE WHEN p_package > 0 THEN 1 ELSE 0 END, 1], ARRAY[coalesce(p_held_tokens, 0), 0], ARRAY[p_held_nano, p_held_nano]);
  END IF;
  -- A late settlement takes what its key has left of that day, too. Without a unit of the key it takes nothing. See docs/decisions.md.
  IF v_settles AND NOT v_live AND p_key_day IS NOT NULL THEN
    SELECT * INTO v_key FROM key_days k WHERE k.key_id = p_key AND k.day = p_key_day;
    IF v_key.units_max - v_key.units_used - v_key.units_held - v_key.units_before <= 0 THEN v_key_day := NULL; END IF;
    v_key_nano := CASE WHEN v_key_day IS NULL THEN 0
      ELSE greatest(0, v_key.spend_max_nano_usd - v_key.spent_nano_usd - v_key.held_nano_usd - v_key.nano_usd_before) END;
  END IF;
  IF v_settles AND p_package > 0 THEN
    SELECT * INTO v_package FROM packages p WHERE p.id = p_package;
    v_units := CASE WHEN v_live THEN 1 WHEN v_key_day IS NULL AND p_key_day IS NOT NULL THEN 0
      ELSE late_unit_left(p_package, p_day) END;
    v_tokens := p_prompt::bigint + p_completion;
    IF v_package.token_limit IS NOT NULL THEN v_tokens := greatest(0, least(v_tokens, package_tokens_left(v_package))); END IF;
    IF v_units = 0 THEN v_tokens := 0; END IF;
    UPDATE packages p SET units_used = p.units_used + v_units, tokens_used = p.tokens_used + v_tokens WHERE p.id = p_package;
    UPDATE package_days x SET units_used = x.units_used + v_units WHERE x.package_id = p_package AND x.day = p_day;
  ELSIF v_settles THEN
    SELECT balance_nano_usd - held_nano_usd INTO v_available FROM balances WHERE account_id = p_account;
    v_refused := v_live AND p_strict AND p_charge > v_available;
    v_settles := NOT v_refused;
    v_charged := CASE WHEN v_refused THEN 0 WHEN p_charge <= v_available THEN p_charge ELSE least(p_held_nano, v_available) END;
    v_charged := least(v_charged, v_key_nano);
    v_tokens := CASE WHEN v_refused THEN 0 ELSE p_prompt::bigint + p_completion END;
    UPDATE balances b SET balance_nano_usd = b.balance_nano_usd - v_charged, tokens_used = b.tokens_used + v_tokens WHERE b.account_id = p_account;
    IF v_charged > 0 THEN
      INSERT INTO balance_entries (account_id, amount_nano_usd, kind, request_id) VALUES (p_account, -v_charged, 'charge', p_id);
    END IF;
  END IF;
  IF v_settles THEN
    UPDATE key_days k SET units_used = k.units_used + 1, spent_nano_usd = k.spent_nano_usd + v_charged,
      overrun_nano_usd = k.overrun_nano_usd + CASE WHEN v_live THEN greatest(0, v_charged - p_held_nano) ELSE 0 END
    WHERE k.key_id = p_key AND k.day = v_key_day;
  END IF;

  v_shortfall := CASE WHEN v_settles OR v_refused THEN p_charge - v_charged ELSE 0 END;
  INSERT INTO receipts AS r (request_id, account_id, key_id, model_id, host, mode, package_id, day, key_day, outcome, reason, units,
    held_nano_usd, charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens,
    estimated, price_version_id, further_counts, reported_usage, tried, markup_basis_points, cost_nano_usd, created_at, finished_at)
  VALUES (p_id, p_account, p_key, p_model, p_host, CASE WHEN p_package > 0 THEN 'package' ELSE 'payg' END, nullif(p_package, 0), p_day,
    v_key_day, CASE WHEN v_settles THEN 'settled' ELSE 'released' END,
    CASE WHEN v_refused THEN 'overrun_refused' WHEN v_live THEN p_reason ELSE 'late' END, v_units, p_held_nano, v_charged,
    v_shortfall, p_prompt, p_cached, p_completion, v_tokens, p_estimated, p_price_version,
    p_further::jsonb, p_reported::jsonb, p_tried::jsonb, p_markup, p_cost, p_created, p_now)
  ON CONFLICT (request_id) DO UPDATE SET outcome = excluded.outcome, reason = excluded.reason, units = excluded.units, key_day = excluded.key_day,
    charged_nano_usd = excluded.charged_nano_usd, shortfall_nano_usd = excluded.shortfall_nano_usd, prompt_tokens = excluded.prompt_tokens,
    cached_tokens = excluded.cached_tokens, completion_tokens = excluded.completion_tokens, charged_tokens = excluded.charged_tokens,
    estimated = excluded.estimated, further_counts = excluded.further_counts, reported_usage = excluded.reported_usage, tried = excluded.tried,
    markup_basis_points = excluded.markup_basis_points, cost_nano_usd = excluded.cost_nano_usd, finished_at = excluded.finished_at, written_in = DEFAULT;
  RETURN QUERY SELECT CASE WHEN v_refused THEN 'refused' WHEN v_settles THEN 'settled' ELSE 'released' END, v_charged, v_shortfall, v_units,
    CASE WHEN v_settles AND p_package > 0 THEN p_prompt::bigint + p_completion - v_tokens ELSE 0 END;
END $$;
--> statement-breakpoint

-- One batch: take the locks, read the clock, end holds (this frees what draws may use), draw. p_wait: wait for accounts that are locked
-- by others. locked_accounts: the batch's accounts, each once. Returns the rows of `ledger_finish` (part 'finish') and of `ledger_draw`.
CREATE FUNCTION ledger_batch(
  p_wait boolean, locked_accounts bigint[],
  finish_ids uuid[], finish_leases uuid[], finish_accounts bigint[], finish_keys bigint[], finish_models text[], finish_hosts text[],
  finish_packages bigint[], finish_days date[], finish_key_days date[], finish_held_nano bigint[], finish_held_tokens bigint[],
  finish_price_versions bigint[], finish_reserved_us bigint[], finish_settles boolean[], finish_reasons text[], finish_prompt int[],
  finish_cached int[], finish_completion int[], finish_charge bigint[], finish_strict boolean[], finish_estimated boolean[],
  finish_further text[], finish_reported text[], finish_tried text[], finish_markups int[], finish_costs bigint[], finish_idle_draws bigint[], finish_idle_units int[], finish_idle_nano bigint[],
  p_lease uuid, p_share int, p_sent_at timestamptz,
  draw_accounts bigint[], draw_tenants bigint[], draw_numbers bigint[], draw_units int[], draw_nano bigint[], draw_known_epochs bigint[], draw_returns boolean,
  draw_keep_lasts int[], keep_packages bigint[], keep_keys bigint[], keep_days date[], keep_units int[], keep_tokens bigint[],
  keep_nano bigint[], idle_units int[], idle_nano bigint[],
  run_places int[], run_lasts int[], run_keys bigint[], run_hosts text[], run_own_hosts boolean[],
  run_models text[], run_output_pico bigint[],
  request_prompt_pico bigint[], request_cap_max int[], request_cap_min int[],
  request_prompt_tokens bigint[], request_choices int[]
) RETURNS TABLE (
  part text, places int[], code text, package_id bigint, day date, key_day date, nano_usd bigint, tokens bigint, cap_tokens int,
  quota_limit bigint, quota_used bigint, quota_remaining bigint, resets_at timestamptz,
  units int, good_ms bigint, model_ids text[], epoch bigint, tenant_epoch bigint, recalled boolean, now_us bigint
) LANGUAGE plpgsql
-- Every statement reads a few rows by key. Without these settings the planner would choose other plans, because the statistics change
-- within moments. A generic plan, because planning takes longer than the batch.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_busy bigint[] := lock_batch(locked_accounts, p_wait);
  v_now timestamptz := ledger_now();
BEGIN
  IF cardinality(finish_ids) > 0 THEN
    RETURN QUERY SELECT 'finish', f.places, f.outcome, NULL::bigint, NULL::date, NULL::date, f.charged_nano_usd, f.shortfall_nano_usd,
        NULL::int, f.unpaid_tokens, NULL::bigint, NULL::bigint, NULL::timestamptz, f.units, NULL::bigint, NULL::text[], NULL::bigint, NULL::bigint, NULL::boolean, NULL::bigint
      FROM ledger_finish(v_now, v_busy, finish_ids, finish_leases, finish_accounts, finish_keys, finish_models, finish_hosts,
        finish_packages, finish_days, finish_key_days, finish_held_nano, finish_held_tokens, finish_price_versions, finish_reserved_us,
        finish_settles, finish_reasons, finish_prompt, finish_cached, finish_completion, finish_charge, finish_strict, finish_estimated,
        finish_further, finish_reported, finish_tried, finish_markups, finish_costs, finish_idle_draws, finish_idle_units, finish_idle_nano) f;
  END IF;
  IF cardinality(draw_accounts) > 0 THEN
    RETURN QUERY SELECT * FROM ledger_draw(v_now, p_lease, p_share, p_sent_at, v_busy, draw_accounts, draw_tenants, draw_numbers,
      draw_units, draw_nano, draw_known_epochs, draw_returns, draw_keep_lasts, keep_packages, keep_keys, keep_days, keep_units, keep_tokens, keep_nano,
      idle_units, idle_nano, run_places, run_lasts, run_keys, run_hosts, run_own_hosts, run_models, run_output_pico,
      request_prompt_pico, request_cap_max, request_cap_min,
      request_prompt_tokens, request_choices);
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
  PERFORM give_back(array_agg(e.account_id), array_agg(e.lease_id), array_agg(e.package_id), array_agg(e.key_id), array_agg(e.day),
                    array_agg(e.units), array_agg(e.tokens), array_agg(e.nano_usd))
  FROM escrows e JOIN leases l ON l.id = e.lease_id WHERE e.account_id = p_account AND l.ended HAVING count(*) > 0;
  DELETE FROM escrows e USING leases l WHERE l.id = e.lease_id AND e.account_id = p_account AND l.ended;
  RETURN v_rows;
END $$;
--> statement-breakpoint

SELECT make_receipt_months(3);
--> statement-breakpoint
SELECT turn_response_days(24);
