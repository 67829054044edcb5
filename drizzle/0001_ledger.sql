-- The ledger: the only code that moves units or money. Source: rulings › Counting, Money, Who pays when something breaks.
--
-- Every function that decides does so in this order: take the accounts' advisory locks in a statement of their own (a
-- statement that locks and reads sees a snapshot from before the lock, and oversells), read the clock, read the rows,
-- decide, write. Lock keys: an account's id; a tenant's is minus the reseller's id, shared by its customers' requests.

-- Holds come and go by the thousand a second, and the counters' rows are rewritten with every batch: vacuum early and often,
-- leave room on the page for the next version, and never lock the table to give its tail back.
ALTER TABLE holds SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, vacuum_truncate = false);
--> statement-breakpoint
ALTER TABLE packages SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
ALTER TABLE package_days SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
ALTER TABLE key_days SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
ALTER TABLE balances SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
--> statement-breakpoint
-- The newest rows of the rollups are rewritten with every fold.
ALTER TABLE usage_sums SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
--> statement-breakpoint

-- The ledger's clock: the database's, read when asked and not at the transaction's start. Tests replace it.
CREATE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$;
--> statement-breakpoint

-- The smallest UUIDv7 of a moment: its first 48 bits are Unix milliseconds. Of a difference and not of the moment itself: that
-- is immutable by Postgres's own account too, so that the function dissolves into what calls it.
CREATE FUNCTION request_id_floor(p_at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex(floor(extract(epoch FROM p_at - timestamptz '1970-01-01 00:00:00+00') * 1000)::bigint), 12, '0')
    || '00000000000000000000')::uuid
$$;
--> statement-breakpoint

-- The instant at which a zone's calendar comes to a day. Clocks that are set back over midnight show it twice: AT TIME ZONE
-- takes the second, but the day began with the first, right behind the day before. Where that day's last hour is left out, its
-- end does not exist and is read an hour late: so the earlier of the two.
CREATE FUNCTION day_begins(p_day date, p_zone text) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT least(p_day::timestamp AT TIME ZONE p_zone,
               (p_day::timestamp - interval '1 microsecond') AT TIME ZONE p_zone + interval '1 microsecond')
$$;
--> statement-breakpoint

-- Makes the partitions of receipts from last month to p_ahead months ahead; returns how many were made. Months are of UTC.
-- CREATE, then ATTACH: attaching takes a weaker lock than creating in place, so that settlements go on.
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

-- Takes account locks, waiting; sorted, so that two callers cannot wait for each other. Held to the transaction's end.
CREATE FUNCTION lock_accounts(p_ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_id bigint;
BEGIN
  FOR v_id IN SELECT DISTINCT id FROM unnest(p_ids) AS ids(id) WHERE id IS NOT NULL ORDER BY id LOOP
    PERFORM pg_advisory_xact_lock(v_id);
  END LOOP;
END $$;
--> statement-breakpoint

-- Takes a reseller's tenant lock and its own account lock, waiting: after it, no request of the tenant is granted until commit.
CREATE FUNCTION lock_tenant(p_reseller bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(-p_reseller);
  PERFORM pg_advisory_xact_lock(p_reseller);
END $$;
--> statement-breakpoint

-- Takes the locks of a batch: accounts with their tenants (0: none), each once. Returns the accounts that are busy; when
-- p_wait, waits instead (not for ever: error 55P03) and returns none.
CREATE FUNCTION lock_batch(p_accounts bigint[], p_tenants bigint[], p_wait boolean) RETURNS bigint[] LANGUAGE plpgsql
SET lock_timeout = '800ms' AS $$
DECLARE
  v_key bigint;
  v_busy bigint[];
BEGIN
  -- One account, as on a hot lane: nothing to sort.
  IF NOT p_wait AND cardinality(p_accounts) = 1 THEN
    RETURN CASE WHEN (p_tenants[1] = 0 OR pg_try_advisory_xact_lock_shared(-p_tenants[1])) AND pg_try_advisory_xact_lock(p_accounts[1])
      THEN '{}' ELSE p_accounts END;
  END IF;
  IF p_wait THEN
    FOR v_key IN
      SELECT -tenant FROM unnest(p_tenants) AS t(tenant) WHERE tenant > 0
      UNION SELECT account FROM unnest(p_accounts) AS a(account) ORDER BY 1
    LOOP
      IF v_key < 0 THEN PERFORM pg_advisory_xact_lock_shared(v_key); ELSE PERFORM pg_advisory_xact_lock(v_key); END IF;
    END LOOP;
    RETURN '{}';
  END IF;
  SELECT array_agg(account) INTO v_busy
  FROM (
    SELECT account,
           CASE WHEN tenant = 0 OR pg_try_advisory_xact_lock_shared(-tenant)
                THEN pg_try_advisory_xact_lock(account) ELSE false END AS free
    FROM (SELECT DISTINCT account, tenant FROM unnest(p_accounts, p_tenants) AS r(account, tenant) ORDER BY 1, 2) AS sorted
    OFFSET 0
  ) AS tried
  WHERE NOT free;
  RETURN coalesce(v_busy, '{}');
END $$;
--> statement-breakpoint

-- Reserves. The caller holds the locks. One result row an answer, with the asks (counted from 1) it is for: code null means
-- granted.
-- Asks come in runs: neighbours that differ in nothing but their ids and amounts. d_* describe a run, d_lasts is its last ask;
-- an account's runs stand in the order in which its asks came. p_* describe an ask.
-- prompt_pico and output_pico are pico-USD, margin included: the bound of the prompt (or of the image), and of one output
-- token; output_pico −1 means the model has no balance price. cap_max is the output cap wanted, cap_min the lowest that
-- makes sense. token_bound is what a token allowance is asked to hold.
CREATE FUNCTION ledger_reserve(
  p_now timestamptz, p_lease interval, p_retry boolean, p_busy bigint[],
  d_lasts int[], d_accounts bigint[], d_tenants bigint[], d_keys bigint[], d_hosts text[], d_own_hosts boolean[],
  d_models text[], d_output_pico bigint[], d_price_versions bigint[],
  p_ids uuid[], p_prompt_pico bigint[], p_cap_max int[], p_cap_min int[], p_token_bound bigint[]
) RETURNS TABLE (
  ords int[], code text, mode text, held_nano_usd bigint, cap_tokens int,
  quota_limit bigint, quota_used bigint, quota_remaining bigint, resets_at timestamptz
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  n int := cardinality(p_ids);
  -- Ids of an hour around now: another could fall into a month that has no partition.
  v_id_from uuid := request_id_floor(p_now - interval '1 hour');
  v_id_to uuid := request_id_floor(p_now + interval '1 hour');
  g record;            -- a run, with all that is known of its key, package and balance before the batch
  o int;               -- the ask
  v_last int;          -- the last ask that may share its answer
  v_account bigint;
  v_left int;          -- units the package can still grant in this batch
  v_day_left int;      -- of today (standard) or accumulated (carryover)
  v_total_left int;
  v_tokens_left bigint;
  v_free bigint;       -- nano-USD neither spent nor held
  v_spendable bigint;  -- of it, what the key may spend
  v_resets timestamptz;
  v_code text;
  v_amount bigint;
  v_cap int;
  v_units int;         -- granted of the package so far
  -- What is left of the account's keys that have ceilings (null: none of that kind).
  c_keys bigint[];
  c_units int[];
  c_nano bigint[];
  c int;
  -- Asks that are decided without the rights, in their order; null: none.
  v_first_codes text[];
  -- The answers: asks e_from to e_to of run e_run. Of a null code is what was granted, and a hold is written.
  e int := 0;
  e_run int[];
  e_from int[];
  e_to int[];
  e_code text[];
  e_mode text[];
  e_package bigint[];
  e_day date[];
  e_units_max int[];
  e_nano bigint[];
  e_tokens bigint[];
  e_cap int[];
  e_key_day date[];
  e_limit bigint[];
  e_used bigint[];
  e_remaining bigint[];
  e_resets timestamptz[];
  -- Whether anything was granted at all, of a package, of a balance, by a key with ceilings.
  v_granted boolean := false;
  v_of_package boolean := false;
  v_of_balance boolean := false;
  v_of_ceiling boolean := false;
BEGIN
  IF p_retry OR NOT (v_id_from <= ALL (p_ids) AND v_id_to > ALL (p_ids)) THEN
    SELECT array_agg(
      CASE
        WHEN live.request_id IS NOT NULL THEN 'again'
        WHEN done.request_id IS NOT NULL THEN 'ended'
        WHEN r.request_id < v_id_from OR r.request_id >= v_id_to THEN 'clock_skew'
      END ORDER BY r.ord)
    INTO v_first_codes
    FROM unnest(p_ids) WITH ORDINALITY AS r(request_id, ord)
    LEFT JOIN holds live ON p_retry AND live.request_id = r.request_id
    LEFT JOIN receipts done ON p_retry AND done.request_id = r.request_id;
  END IF;

  FOR g IN
    SELECT r.run, coalesce(d_lasts[r.run - 1], 0) + 1 AS first_ask, d_lasts[r.run] AS last_ask, r.account_id, r.model_id,
      d_output_pico[r.run] AS output_pico, k.mode = 'payg' AS by_balance,
      CASE WHEN k.daily_units_max IS NOT NULL OR k.daily_spend_max_nano_usd IS NOT NULL THEN k.id END AS ceiling_key,
      k.daily_units_max, k.daily_spend_max_nano_usd, k.time_zone AS key_time_zone, c.today AS key_day,
      coalesce(u.units_used + u.units_held, 0) AS key_units, coalesce(u.spent_nano_usd + u.held_nano_usd, 0) AS key_nano,
      CASE
        WHEN k.id IS NULL OR k.account_id <> r.account_id OR k.status <> 'enabled' OR k.expires_at <= p_now
          OR a.id IS NULL OR a.status <> 'active' OR coalesce(t.status, 'active') <> 'active' THEN 'invalid_api_key'
        WHEN NOT (coalesce(r.host = ANY (k.hosts), true)
          AND (d_own_hosts[r.run] OR coalesce(h.status = 'active', false))) THEN 'host_not_allowed'
        WHEN NOT coalesce(r.model_id = ANY (k.model_ids), true) THEN 'model_not_found'
      END AS code,
      p.id AS package_id, p.first_day, p.days, p.time_zone, p.daily_limit, p.total_limit, p.carryover,
      p.token_limit, p.model_ids AS scope, p.units_used + p.units_held AS units, p.tokens_used + p.tokens_held AS tokens,
      p.ends_at, p.today, coalesce(d.units_used + d.units_held, 0) AS today_units,
      coalesce(b.payg_enabled, false) AS payg_enabled, coalesce(b.balance_nano_usd, 0) AS balance,
      coalesce(b.held_nano_usd, 0) AS held,
      CASE WHEN p.id IS NULL THEN EXISTS (SELECT FROM packages e WHERE e.account_id = r.account_id AND e.ends_at <= p_now AND e.ends_at > e.starts_at) END AS expired
    FROM unnest(d_accounts, d_tenants, d_keys, d_hosts, d_models) WITH ORDINALITY
      AS r(account_id, tenant_id, key_id, host, model_id, run)
    LEFT JOIN keys k ON k.id = r.key_id
    LEFT JOIN accounts a ON a.id = r.account_id
    LEFT JOIN accounts t ON t.id = r.tenant_id
    LEFT JOIN hosts h ON NOT d_own_hosts[r.run] AND h.host = r.host AND h.reseller_id = r.tenant_id
    LEFT JOIN LATERAL (SELECT (p_now AT TIME ZONE k.time_zone)::date AS today
      WHERE k.daily_units_max IS NOT NULL OR k.daily_spend_max_nano_usd IS NOT NULL) c ON true
    LEFT JOIN key_days u ON u.key_id = k.id AND u.day = c.today
    LEFT JOIN LATERAL (
      SELECT *, (p_now AT TIME ZONE x.time_zone)::date AS today FROM packages x
      WHERE x.account_id = r.account_id AND x.starts_at <= p_now AND x.ends_at > p_now
      ORDER BY x.starts_at DESC LIMIT 1
    ) p ON true
    LEFT JOIN package_days d ON d.package_id = p.id AND d.day = p.today
    LEFT JOIN balances b ON b.account_id = r.account_id
    ORDER BY r.account_id, r.run
  LOOP
    IF g.account_id IS DISTINCT FROM v_account THEN
      v_account := g.account_id;
      v_free := g.balance - g.held;
      v_units := 0;
      c_keys := '{}';
      IF g.package_id IS NOT NULL THEN
        v_total_left := g.total_limit - g.units;
        v_day_left := CASE WHEN g.carryover
          THEN g.daily_limit * least(g.today - g.first_day + 1, g.days) - g.units
          ELSE g.daily_limit - g.today_units END;
        v_left := least(v_total_left, v_day_left);
        v_tokens_left := g.token_limit - g.tokens;
      END IF;
    END IF;
    c := NULL;
    IF g.ceiling_key IS NOT NULL THEN
      c := array_position(c_keys, g.ceiling_key);
      IF c IS NULL THEN
        c := cardinality(c_keys) + 1;
        c_keys[c] := g.ceiling_key;
        c_units[c] := g.daily_units_max - g.key_units;
        c_nano[c] := g.daily_spend_max_nano_usd - g.key_nano;
      END IF;
    END IF;

    v_last := g.first_ask - 1;
    WHILE v_last < g.last_ask LOOP
      o := v_last + 1;
      v_last := CASE WHEN v_first_codes IS NULL THEN g.last_ask ELSE o END;
      e := e + 1;
      e_run[e] := g.run;
      e_from[e] := o;
      e_to[e] := v_last;
      v_code := CASE WHEN g.account_id = ANY (p_busy) THEN 'busy' ELSE coalesce(v_first_codes[o], g.code) END;
      IF v_code IS NOT NULL THEN
        e_code[e] := v_code;
        CONTINUE;
      END IF;

      -- The key's own ceiling of requests.
      IF c_units[c] <= 0 THEN
        e_code[e] := 'key_request_limit_exceeded';
        e_limit[e] := g.daily_units_max;
        e_used[e] := g.daily_units_max - c_units[c];
        e_remaining[e] := 0;
        e_resets[e] := day_begins(g.key_day + 1, g.key_time_zone);
        CONTINUE;
      END IF;

      IF NOT g.by_balance THEN
        -- The package first.
        IF g.package_id IS NULL THEN
          v_code := CASE WHEN g.expired THEN 'package_expired' ELSE 'package_required' END;
        ELSIF NOT (g.scope IS NULL OR g.model_id = ANY (g.scope)) THEN
          v_code := 'model_not_in_package';
        ELSIF v_left > 0 AND (v_tokens_left IS NULL OR v_tokens_left > 0) THEN
          -- As many at once as there are units for; one by one where each takes its own share of an allowance.
          IF v_tokens_left IS NULL THEN
            v_last := least(v_last, o - 1 + v_left, o - 1 + c_units[c]);
          ELSE
            v_last := o;
            e_tokens[e] := least(p_token_bound[o], v_tokens_left);
            v_tokens_left := v_tokens_left - e_tokens[e];
          END IF;
          v_left := v_left - (v_last - o + 1);
          v_units := v_units + (v_last - o + 1);
          e_to[e] := v_last;
          e_mode[e] := 'package';
          e_package[e] := g.package_id;
          e_day[e] := g.today;
          e_units_max[e] := CASE WHEN g.carryover THEN g.total_limit ELSE g.daily_limit END;
          IF c IS NOT NULL THEN
            e_key_day[e] := g.key_day;
            c_units[c] := c_units[c] - (v_last - o + 1);
            v_of_ceiling := true;
          END IF;
          v_of_package := true;
          v_granted := true;
          CONTINUE;
        ELSIF v_day_left - v_units <= 0 THEN
          v_code := CASE WHEN g.carryover THEN 'carryover_quota_exceeded' ELSE 'daily_quota_exceeded' END;
        ELSIF v_left > 0 THEN
          v_code := 'package_tokens_exceeded';
        ELSE
          v_code := 'package_quota_exceeded';
        END IF;

        IF NOT (g.payg_enabled AND g.balance > 0) THEN
          e_code[e] := v_code;
          IF v_code IN ('daily_quota_exceeded', 'carryover_quota_exceeded') THEN
            -- The next reset is the package's next midnight, if it still counts then.
            v_resets := day_begins(g.today + 1, g.time_zone);
            IF v_resets >= g.ends_at OR v_total_left - v_units <= 0 OR v_tokens_left <= 0
              OR (g.carryover AND g.today - g.first_day + 1 >= g.days) THEN v_resets := NULL; END IF;
            e_limit[e] := v_day_left + CASE WHEN g.carryover THEN g.units ELSE g.today_units END;
            e_used[e] := e_limit[e] - (v_day_left - v_units);
            e_remaining[e] := 0;
            e_resets[e] := v_resets;
          ELSIF v_code = 'package_tokens_exceeded' THEN
            e_limit[e] := g.token_limit;
            e_used[e] := g.token_limit - v_tokens_left;
            e_remaining[e] := 0;
          ELSIF v_code = 'package_quota_exceeded' THEN
            e_limit[e] := g.total_limit;
            e_used[e] := g.units + v_units;
            e_remaining[e] := 0;
          END IF;
          CONTINUE;
        END IF;
      END IF;

      -- The balance.
      IF NOT g.payg_enabled THEN
        e_code[e] := 'package_required';
      ELSIF g.output_pico < 0 THEN
        e_code[e] := 'payg_pricing_unavailable';
      ELSE
        -- One by one: each has its own amount.
        v_last := o;
        e_to[e] := o;
        v_cap := p_cap_max[o];
        v_amount := (p_prompt_pico[o] + v_cap * g.output_pico + 999) / 1000;
        -- What may be spent: what is free, and at most what the key's own ceiling leaves.
        v_spendable := least(v_free, c_nano[c]);
        IF v_amount > v_spendable AND v_cap > p_cap_min[o] THEN
          -- A cap the client did not ask for is lowered to what can be spent.
          -- What the prompt alone overspends may be beyond an int: cast last.
          v_cap := greatest(p_cap_min[o]::bigint, (v_spendable * 1000 - p_prompt_pico[o]) / greatest(g.output_pico, 1))::int;
          v_amount := (p_prompt_pico[o] + v_cap * g.output_pico + 999) / 1000;
        END IF;
        IF v_amount > v_free THEN
          e_code[e] := 'insufficient_balance';
          e_limit[e] := v_amount;
          e_remaining[e] := v_free;
        ELSIF v_amount > v_spendable THEN
          e_code[e] := 'key_spend_limit_exceeded';
          e_limit[e] := g.daily_spend_max_nano_usd;
          e_used[e] := g.daily_spend_max_nano_usd - c_nano[c];
          e_remaining[e] := greatest(v_spendable, 0);
          e_resets[e] := day_begins(g.key_day + 1, g.key_time_zone);
        ELSE
          IF c IS NOT NULL THEN
            e_key_day[e] := g.key_day;
            c_units[c] := c_units[c] - 1;
            c_nano[c] := c_nano[c] - v_amount;
            v_of_ceiling := true;
          END IF;
          v_free := v_free - v_amount;
          e_mode[e] := 'payg';
          e_nano[e] := v_amount;
          e_cap[e] := v_cap;
          v_of_balance := true;
          v_granted := true;
        END IF;
      END IF;
    END LOOP;
  END LOOP;

  -- A refusal writes nothing.
  IF v_granted THEN
    INSERT INTO holds (request_id, account_id, key_id, model_id, host, mode, package_id, day, held_nano_usd, held_tokens,
                       cap_tokens, key_day, lease_ends_at, created_at, price_version_id)
    SELECT p_ids[o], d_accounts[e_run[x]], d_keys[e_run[x]], d_models[e_run[x]], d_hosts[e_run[x]], e_mode[x], e_package[x],
           e_day[x], coalesce(e_nano[x], 0), coalesce(e_tokens[x], 0), e_cap[x], e_key_day[x], p_now + p_lease, p_now,
           d_price_versions[e_run[x]]
    FROM (SELECT x, generate_series(e_from[x], e_to[x]) AS o FROM generate_series(1, e) AS x
          WHERE e_mode[x] IS NOT NULL) granted;
  END IF;

  IF v_of_package THEN
    UPDATE packages p SET units_held = p.units_held + s.units, tokens_held = p.tokens_held + s.tokens
    FROM (SELECT e_package[x] AS package_id, sum(e_to[x] - e_from[x] + 1)::int AS units, sum(coalesce(e_tokens[x], 0))::bigint AS tokens
          FROM generate_series(1, e) AS x WHERE e_package[x] IS NOT NULL GROUP BY 1) s
    WHERE p.id = s.package_id;

    INSERT INTO package_days AS d (package_id, day, units_held, units_max)
    SELECT e_package[x], e_day[x], sum(e_to[x] - e_from[x] + 1)::int, max(e_units_max[x])
    FROM generate_series(1, e) AS x WHERE e_package[x] IS NOT NULL GROUP BY 1, 2
    ON CONFLICT (package_id, day) DO UPDATE SET units_held = d.units_held + excluded.units_held;
  END IF;

  IF v_of_ceiling THEN
    INSERT INTO key_days AS d (key_id, day, units_held, held_nano_usd)
    SELECT d_keys[e_run[x]], e_key_day[x], sum(e_to[x] - e_from[x] + 1)::int, sum(coalesce(e_nano[x], 0))::bigint
    FROM generate_series(1, e) AS x WHERE e_key_day[x] IS NOT NULL GROUP BY 1, 2
    ON CONFLICT (key_id, day) DO UPDATE SET units_held = d.units_held + excluded.units_held,
      held_nano_usd = d.held_nano_usd + excluded.held_nano_usd;
  END IF;

  IF v_of_balance THEN
    UPDATE balances b SET held_nano_usd = b.held_nano_usd + s.nano
    FROM (SELECT d_accounts[e_run[x]] AS account_id, sum(e_nano[x])::bigint AS nano
          FROM generate_series(1, e) AS x WHERE e_nano[x] IS NOT NULL GROUP BY 1) s
    WHERE b.account_id = s.account_id;
  END IF;

  IF v_first_codes IS NULL THEN
    RETURN QUERY
    SELECT ARRAY(SELECT generate_series(e_from[x], e_to[x])), e_code[x], e_mode[x], coalesce(e_nano[x], 0), e_cap[x],
           e_limit[x], e_used[x], e_remaining[x], e_resets[x]
    FROM generate_series(1, e) AS x;
  ELSE
    -- One ask an answer. What was granted before is told again.
    RETURN QUERY
    SELECT ARRAY[e_from[x]], nullif(e_code[x], 'again'), coalesce(h.mode, e_mode[x]), coalesce(h.held_nano_usd, e_nano[x], 0),
           coalesce(h.cap_tokens, e_cap[x]), e_limit[x], e_used[x], e_remaining[x], e_resets[x]
    FROM generate_series(1, e) AS x
    LEFT JOIN holds h ON e_code[x] = 'again' AND h.request_id = p_ids[e_from[x]];
  END IF;
END $$;
--> statement-breakpoint

-- 1 if a unit is still there for a late settlement of p_day, else 0. On a carryover package every day from p_day on must
-- have room, since what is used on one day is gone on all that follow.
CREATE FUNCTION late_unit_left(p_package bigint, p_day date) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT count(*)::int FROM packages p JOIN package_days d ON d.package_id = p.id AND d.day = p_day
  WHERE p.id = p_package AND p.units_used + p.units_held < p.total_limit AND d.units_used + d.units_held < d.units_max
    AND NOT (p.carryover AND EXISTS (
      SELECT FROM (SELECT x.day, sum(x.units_used + x.units_held) OVER (ORDER BY x.day) AS so_far
                   FROM package_days x WHERE x.package_id = p.id) sums
      WHERE sums.day >= p_day AND sums.so_far >= p.daily_limit * least(sums.day - p.first_day + 1, p.days)))
$$;
--> statement-breakpoint

-- Ends holds. The caller holds the locks. kinds: settle, release, reap (a release that only takes when the lease ended).
-- charge is nano-USD by the prices the request was admitted at (0 for a package). strict: an answer not yet sent, so that a
-- charge the balance does not cover turns it into a refusal; otherwise only the hold is charged, and the rest is the operator's loss.
-- reported is what the provider counted beside these counts, JSON; empty: nothing of any of them.
-- Results: settled, released, refused (strict), alive (reap of a living hold), already (settled before), gone (released
-- before for good), unknown, busy. One result row a result, with the rows (counted from 1) it is for.
CREATE FUNCTION ledger_finish(
  p_now timestamptz, p_busy bigint[],
  p_ids uuid[], p_accounts bigint[], p_kinds text[], p_reasons text[], p_prompt int[], p_cached int[], p_completion int[],
  p_charge bigint[], p_strict boolean[], p_estimated boolean[], p_reported text[]
) RETURNS TABLE (ords int[], outcome text, charged_nano_usd bigint, shortfall_nano_usd bigint, units int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  n int := cardinality(p_ids);
  h record;
  v_account bigint;
  v_free bigint;
  v_units int;
  v_extra bigint;
  v_tokens bigint;
  v_of bigint;           -- the package whose tokens these are
  v_package packages;
  i int;                 -- a row
  -- The ended holds: which row ended it, and what it held.
  v_ended int;
  v_overrun boolean;     -- a charge is above what was held
  g_ords int[];
  g_accounts bigint[];
  g_keys bigint[];
  g_models text[];
  g_hosts text[];
  g_modes text[];
  g_packages bigint[];
  g_days date[];
  g_key_days date[];
  g_nano bigint[];
  g_tokens bigint[];
  g_created timestamptz[];
  g_price_versions bigint[];
  -- Of their packages those with a token allowance.
  v_limited bigint[];
  -- Beyond the hold, decided in arrival order: nano-USD and tokens that may be taken, and refusals. Null: none.
  x_nano bigint[];
  x_tokens bigint[];
  x_refused boolean[];
  -- How each ended.
  e_settles boolean[];
  e_units int[];
  e_charged bigint[];
  e_short bigint[];
  e_tokens bigint[];
  -- What had no live hold, by row.
  r_outcome text[];
  r_charged bigint[];
  r_short bigint[];
  r_units int[];
BEGIN
  -- 1. The holds end.
  WITH gone AS (
    DELETE FROM holds l USING generate_series(1, n) AS ord
    WHERE l.request_id = p_ids[ord] AND l.account_id <> ALL (p_busy)
      AND (p_kinds[ord] <> 'reap' OR l.lease_ends_at <= p_now)
    RETURNING ord, l.account_id, l.key_id, l.model_id, l.host, l.mode, l.package_id, l.day, l.key_day, l.held_nano_usd,
      l.held_tokens, l.created_at, l.price_version_id
  )
  SELECT count(*), coalesce(bool_or(p_charge[ord] > held_nano_usd), false), array_agg(ord), array_agg(account_id), array_agg(key_id),
         array_agg(model_id), array_agg(host), array_agg(mode), array_agg(package_id), array_agg(day), array_agg(key_day),
         array_agg(held_nano_usd), array_agg(held_tokens), array_agg(created_at), array_agg(price_version_id)
  INTO v_ended, v_overrun, g_ords, g_accounts, g_keys, g_models, g_hosts, g_modes, g_packages, g_days, g_key_days, g_nano,
       g_tokens, g_created, g_price_versions
  FROM gone;

  IF v_ended > 0 THEN
    SELECT coalesce(array_agg(id), '{}') INTO v_limited FROM packages WHERE id = ANY (g_packages) AND token_limit IS NOT NULL;

    -- 2. Overruns, rare: providers that used more than the hold. In arrival order, against what is free. Of a balance the whole
    -- rest is taken if it covers it, else nothing. Of a token allowance as much as is left: see docs/decisions.md.
    IF v_overrun OR cardinality(v_limited) > 0 THEN
      FOR h IN
        SELECT x, g_ords[x] AS ord, g_accounts[x] AS account_id, g_nano[x] AS held_nano_usd, g_modes[x] AS mode,
               g_packages[x] AS package_id, p_charge[g_ords[x]] - g_nano[x] AS nano,
               p_prompt[g_ords[x]]::bigint + p_completion[g_ords[x]] - g_tokens[x] AS tokens
        FROM generate_series(1, v_ended) AS x
        WHERE p_kinds[g_ords[x]] = 'settle'
          AND (p_charge[g_ords[x]] > g_nano[x]
            OR (g_packages[x] = ANY (v_limited) AND p_prompt[g_ords[x]]::bigint + p_completion[g_ords[x]] > g_tokens[x]))
        ORDER BY 3, 6, 2
      LOOP
        IF v_account IS DISTINCT FROM h.account_id THEN
          v_account := h.account_id;
          SELECT balance_nano_usd - held_nano_usd INTO v_free FROM balances WHERE account_id = v_account;
        END IF;
        IF h.mode = 'payg' THEN
          IF h.nano > v_free AND p_strict[h.ord] THEN
            x_refused[h.x] := true;
            v_free := v_free + h.held_nano_usd; -- its hold is given back
          ELSIF h.nano <= v_free THEN
            x_nano[h.x] := h.nano;
            v_free := v_free - h.nano;
          END IF;
        ELSE
          IF v_of IS DISTINCT FROM h.package_id THEN
            v_of := h.package_id;
            SELECT greatest(0, token_limit - tokens_used - tokens_held) INTO v_tokens FROM packages WHERE id = v_of;
          END IF;
          x_tokens[h.x] := least(h.tokens, v_tokens);
          v_tokens := v_tokens - x_tokens[h.x];
        END IF;
      END LOOP;
    END IF;

    -- 3. What each is charged; its receipt; the counters follow.
    FOR x IN 1 .. v_ended LOOP
      i := g_ords[x];
      e_settles[x] := p_kinds[i] = 'settle' AND x_refused[x] IS NOT TRUE;
      e_units[x] := CASE WHEN e_settles[x] AND g_modes[x] = 'package' THEN 1 ELSE 0 END;
      v_extra := coalesce(x_nano[x], 0);
      e_charged[x] := CASE WHEN e_settles[x] THEN least(p_charge[i], g_nano[x] + v_extra) ELSE 0 END;
      e_short[x] := CASE WHEN e_settles[x] THEN p_charge[i] - e_charged[x] ELSE 0 END;
      v_tokens := p_prompt[i]::bigint + p_completion[i];
      e_tokens[x] := CASE WHEN NOT e_settles[x] THEN 0
                          WHEN g_packages[x] = ANY (v_limited) THEN least(v_tokens, g_tokens[x] + coalesce(x_tokens[x], 0))
                          ELSE v_tokens END;
    END LOOP;

    INSERT INTO receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, key_day, outcome, reason, units,
      held_nano_usd, charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens,
      estimated, price_version_id, reported_usage, created_at, finished_at)
    SELECT p_ids[o], g_accounts[x], g_keys[x], g_models[x], g_hosts[x], g_modes[x], g_packages[x], g_days[x], g_key_days[x],
      CASE WHEN e_settles[x] THEN 'settled' ELSE 'released' END,
      CASE WHEN x_refused[x] THEN 'overrun_refused' ELSE p_reasons[o] END,
      e_units[x], g_nano[x], e_charged[x], e_short[x], p_prompt[o], p_cached[o], p_completion[o], e_tokens[x], p_estimated[o],
      g_price_versions[x], p_reported[o]::jsonb, g_created[x], p_now
    FROM (SELECT x, g_ords[x] AS o FROM generate_series(1, v_ended) AS x) ended;

    IF array_position(g_modes, 'package') IS NOT NULL THEN
      UPDATE packages p SET units_held = p.units_held - s.held, units_used = p.units_used + s.used,
        tokens_held = p.tokens_held - s.tokens_held, tokens_used = p.tokens_used + s.tokens_used
      FROM (SELECT g_packages[x] AS package_id, count(*)::int AS held, sum(e_units[x])::int AS used,
                   sum(g_tokens[x])::bigint AS tokens_held, sum(e_tokens[x])::bigint AS tokens_used
            FROM generate_series(1, v_ended) AS x WHERE g_packages[x] IS NOT NULL GROUP BY 1) s
      WHERE p.id = s.package_id;

      UPDATE package_days d SET units_held = d.units_held - s.held, units_used = d.units_used + s.used
      FROM (SELECT g_packages[x] AS package_id, g_days[x] AS day, count(*)::int AS held, sum(e_units[x])::int AS used
            FROM generate_series(1, v_ended) AS x WHERE g_packages[x] IS NOT NULL GROUP BY 1, 2) s
      WHERE d.package_id = s.package_id AND d.day = s.day;
    END IF;

    IF array_position(g_modes, 'payg') IS NOT NULL THEN
      UPDATE balances b SET held_nano_usd = b.held_nano_usd - s.held, balance_nano_usd = b.balance_nano_usd - s.charged,
        tokens_used = b.tokens_used + s.tokens
      FROM (SELECT g_accounts[x] AS account_id, sum(g_nano[x])::bigint AS held, sum(e_charged[x])::bigint AS charged,
                   sum(e_tokens[x])::bigint AS tokens
            FROM generate_series(1, v_ended) AS x WHERE g_modes[x] = 'payg' GROUP BY 1) s
      WHERE b.account_id = s.account_id;

      INSERT INTO balance_entries (account_id, amount_nano_usd, kind, request_id)
      SELECT g_accounts[x], -e_charged[x], 'charge', p_ids[g_ords[x]]
      FROM generate_series(1, v_ended) AS x WHERE e_charged[x] > 0;
    END IF;

    IF array_remove(g_key_days, NULL) <> '{}' THEN
      UPDATE key_days d SET units_held = d.units_held - s.units_held, units_used = d.units_used + s.units_used,
        held_nano_usd = d.held_nano_usd - s.held, spent_nano_usd = d.spent_nano_usd + s.charged
      FROM (SELECT g_keys[x] AS key_id, g_key_days[x] AS key_day, count(*)::int AS units_held,
                   count(*) FILTER (WHERE e_settles[x])::int AS units_used, sum(g_nano[x])::bigint AS held,
                   sum(e_charged[x])::bigint AS charged
            FROM generate_series(1, v_ended) AS x WHERE g_key_days[x] IS NOT NULL GROUP BY 1, 2) s
      WHERE d.key_id = s.key_id AND d.day = s.key_day;
    END IF;

    RETURN QUERY
    SELECT array_agg(g_ords[x]), CASE WHEN x_refused[x] THEN 'refused' WHEN e_settles[x] THEN 'settled' ELSE 'released' END,
           e_charged[x], e_short[x], e_units[x]
    FROM generate_series(1, v_ended) AS x GROUP BY 2, 3, 4, 5;
  END IF;

  -- 4. What had no live hold, rare: told again, reaped before, or never there.
  IF v_ended < n THEN
    FOR i IN SELECT x FROM generate_series(1, n) AS x WHERE x <> ALL (coalesce(g_ords, '{}')) ORDER BY x LOOP
      IF p_accounts[i] = ANY (p_busy) THEN
        r_outcome[i] := 'busy';
        CONTINUE;
      END IF;
      -- Read one by one: the same settlement may stand in a batch twice, and the second must see what the first wrote.
      SELECT i AS ord, p_kinds[i] AS kind, l.request_id IS NOT NULL AS alive, d.* INTO h
      FROM (SELECT p_ids[i] AS request_id) r
      LEFT JOIN holds l ON l.request_id = r.request_id
      LEFT JOIN receipts d ON d.request_id = r.request_id;
      IF h.alive THEN
        r_outcome[h.ord] := 'alive';
      ELSIF h.request_id IS NULL THEN
        r_outcome[h.ord] := 'unknown';
      ELSIF h.outcome = 'settled' THEN
        r_outcome[h.ord] := 'already';
        r_charged[h.ord] := h.charged_nano_usd;
        r_short[h.ord] := h.shortfall_nano_usd;
        r_units[h.ord] := h.units;
      ELSIF h.kind = 'settle' AND h.reason = 'overrun_refused' AND p_strict[i] THEN
        r_outcome[h.ord] := 'refused'; -- told again
      -- A strict refusal whose reply was lost was followed by the answer all the same: then it comes once more, and is not strict.
      ELSIF h.kind <> 'settle' OR h.reason NOT IN ('lease_ended', 'overrun_refused') THEN
        r_outcome[h.ord] := 'gone';
      ELSE
        -- A late settlement: the record is written; units and money as far as they are still there and were held, the rest is a loss.
        v_units := 0;
        v_extra := 0;
        v_tokens := p_prompt[h.ord]::bigint + p_completion[h.ord];
        IF h.mode = 'package' THEN
          SELECT * INTO v_package FROM packages p WHERE p.id = h.package_id;
          IF v_package.token_limit IS NOT NULL THEN
            v_tokens := greatest(0, least(v_tokens, v_package.token_limit - v_package.tokens_used - v_package.tokens_held));
          END IF;
          v_units := late_unit_left(h.package_id, h.day);
          IF v_units = 0 THEN v_tokens := 0; END IF;
          UPDATE packages p SET units_used = p.units_used + v_units, tokens_used = p.tokens_used + v_tokens WHERE p.id = h.package_id;
          UPDATE package_days d SET units_used = d.units_used + v_units WHERE d.package_id = h.package_id AND d.day = h.day;
        ELSE
          -- Never more than was held, unless the balance covers the whole charge.
          SELECT CASE WHEN p_charge[h.ord] <= free THEN p_charge[h.ord] ELSE least(h.held_nano_usd, free) END INTO v_extra
          FROM (SELECT balance_nano_usd - held_nano_usd AS free FROM balances WHERE account_id = h.account_id) b;
          UPDATE balances b SET balance_nano_usd = b.balance_nano_usd - v_extra, tokens_used = b.tokens_used + v_tokens
          WHERE b.account_id = h.account_id;
          IF v_extra > 0 THEN
            INSERT INTO balance_entries (account_id, amount_nano_usd, kind, request_id) VALUES (h.account_id, -v_extra, 'charge', h.request_id);
          END IF;
        END IF;
        UPDATE key_days d SET units_used = d.units_used + 1, spent_nano_usd = d.spent_nano_usd + v_extra
        WHERE d.key_id = h.key_id AND d.day = h.key_day;
        UPDATE receipts d SET outcome = 'settled', reason = 'late', units = v_units, charged_nano_usd = v_extra,
          shortfall_nano_usd = p_charge[h.ord] - v_extra, prompt_tokens = p_prompt[h.ord], cached_tokens = p_cached[h.ord],
          completion_tokens = p_completion[h.ord], charged_tokens = v_tokens, estimated = p_estimated[h.ord],
          reported_usage = p_reported[h.ord]::jsonb, finished_at = p_now, written_in = DEFAULT
        WHERE d.request_id = h.request_id;
        r_outcome[h.ord] := 'settled';
        r_charged[h.ord] := v_extra;
        r_short[h.ord] := p_charge[h.ord] - v_extra;
        r_units[h.ord] := v_units;
      END IF;
    END LOOP;
    RETURN QUERY
    SELECT ARRAY[x], r_outcome[x], coalesce(r_charged[x], 0), coalesce(r_short[x], 0), coalesce(r_units[x], 0)
    FROM generate_series(1, n) AS x WHERE r_outcome[x] IS NOT NULL;
  END IF;
END $$;
--> statement-breakpoint

-- One batch: locks, clock, finishes (they free what the reserves may take), reserves. p_wait: wait for busy accounts. l_*: its
-- accounts and their tenants, each once.
-- Result rows: part 'finish' or 'reserve', and the rows of it that the answer is for.
CREATE FUNCTION ledger_batch(
  p_wait boolean, p_retry boolean, p_lease interval, l_accounts bigint[], l_tenants bigint[],
  f_ids uuid[], f_accounts bigint[], f_kinds text[], f_reasons text[], f_prompt int[], f_cached int[], f_completion int[],
  f_charge bigint[], f_strict boolean[], f_estimated boolean[], f_reported text[],
  d_lasts int[], d_accounts bigint[], d_tenants bigint[], d_keys bigint[], d_hosts text[], d_own_hosts boolean[],
  d_models text[], d_output_pico bigint[], d_price_versions bigint[],
  p_ids uuid[], p_prompt_pico bigint[], p_cap_max int[], p_cap_min int[], p_token_bound bigint[]
) RETURNS TABLE (
  part text, ords int[], outcome text, mode text, nano_usd bigint, shortfall_nano_usd bigint, units_or_cap int,
  quota_limit bigint, quota_used bigint, quota_remaining bigint, resets_at timestamptz
) LANGUAGE plpgsql
-- Everything here is a look-up by key of a few rows. Statistics of a table that is empty now and full of dead rows a moment
-- later would talk the planner out of it. Nor does it plan anew for every batch: that takes longer than the batch.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_busy bigint[];
  v_now timestamptz;
BEGIN
  v_busy := lock_batch(l_accounts, l_tenants, p_wait);
  v_now := ledger_now();
  IF cardinality(f_ids) > 0 THEN
    RETURN QUERY SELECT 'finish', f.ords, f.outcome, NULL::text, f.charged_nano_usd, f.shortfall_nano_usd, f.units,
        NULL::bigint, NULL::bigint, NULL::bigint, NULL::timestamptz
      FROM ledger_finish(v_now, v_busy, f_ids, f_accounts, f_kinds, f_reasons, f_prompt, f_cached, f_completion, f_charge,
                         f_strict, f_estimated, f_reported) f;
  END IF;
  IF cardinality(p_ids) > 0 THEN
    RETURN QUERY SELECT 'reserve', r.ords, r.code, r.mode, r.held_nano_usd, 0::bigint, r.cap_tokens,
        r.quota_limit, r.quota_used, r.quota_remaining, r.resets_at
      FROM ledger_reserve(v_now, p_lease, p_retry, v_busy, d_lasts, d_accounts, d_tenants, d_keys, d_hosts, d_own_hosts,
                          d_models, d_output_pico, d_price_versions, p_ids, p_prompt_pico, p_cap_max, p_cap_min, p_token_bound) r;
  END IF;
END $$;
--> statement-breakpoint

-- Longer leases for holds that are still at work, named one by one. A hold whose lease has ended is not revived.
CREATE FUNCTION renew_leases(p_ids uuid[], p_lease interval) RETURNS SETOF uuid LANGUAGE sql AS $$
  UPDATE holds SET lease_ends_at = ledger_now() + p_lease
  WHERE request_id = ANY (p_ids) AND lease_ends_at > ledger_now() RETURNING request_id
$$;
--> statement-breakpoint

-- Moves an account's queued packages, in their order, behind p_from. They have not begun, so nothing is counted in them yet.
CREATE FUNCTION requeue_packages(p_account bigint, p_now timestamptz, p_from timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q record;
  v_from timestamptz := p_from;
BEGIN
  FOR q IN SELECT id, days, time_zone FROM packages WHERE account_id = p_account AND starts_at > p_now ORDER BY starts_at, id LOOP
    UPDATE packages SET starts_at = v_from, ends_at = package_end(v_from, q.days, q.time_zone),
      first_day = (v_from AT TIME ZONE q.time_zone)::date WHERE id = q.id
    RETURNING ends_at INTO v_from;
  END LOOP;
END $$;
--> statement-breakpoint

-- A package ends at the same local time, that many dates later: never 24-hour steps.
CREATE FUNCTION package_end(p_start timestamptz, p_days int, p_zone text) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT ((p_start AT TIME ZONE p_zone) + make_interval(days => p_days)) AT TIME ZONE p_zone
$$;
--> statement-breakpoint

-- Assigns an offering. p_when: now (takes over at once; what was left of the active one is recorded) or after (behind all
-- others). p_payer pays the wholesale price from its free balance, or gives a piece of its allotment; null: the operator gives
-- it. Returns code null and the package, or a code: not_found, insufficient_balance, allotment_used_up.
CREATE FUNCTION assign_package(p_account bigint, p_offering bigint, p_when text, p_payer bigint, p_actor bigint,
  p_from_allotment boolean DEFAULT false,
  OUT code text, OUT package_id bigint, OUT free_nano_usd bigint) LANGUAGE plpgsql AS $$
DECLARE
  v_now timestamptz;
  v_start timestamptz;
  v_allotment bigint;
  v_price bigint;
  f record;
BEGIN
  PERFORM lock_accounts(ARRAY[p_account, p_payer]);
  v_now := ledger_now();
  SELECT * INTO f FROM offerings WHERE id = p_offering AND enabled;
  IF NOT FOUND OR NOT EXISTS (SELECT FROM accounts WHERE id = p_account) THEN
    code := 'not_found';
    RETURN;
  END IF;

  v_price := CASE WHEN p_payer IS NULL OR p_from_allotment THEN 0 ELSE f.wholesale_nano_usd END;
  IF p_from_allotment THEN
    -- The oldest grant first. Withdrawing pieces takes the payer's lock too.
    UPDATE allotments SET used = used + 1
    WHERE id = (SELECT id FROM allotments WHERE reseller_id = p_payer AND offering_id = p_offering AND used < granted ORDER BY id LIMIT 1)
    RETURNING id INTO v_allotment;
    IF NOT FOUND THEN
      code := 'allotment_used_up';
      RETURN;
    END IF;
  ELSIF v_price > 0 THEN
    UPDATE balances SET balance_nano_usd = balance_nano_usd - v_price
    WHERE account_id = p_payer AND balance_nano_usd - held_nano_usd >= v_price;
    IF NOT FOUND THEN
      code := 'insufficient_balance';
      SELECT balance_nano_usd - held_nano_usd INTO free_nano_usd FROM balances WHERE account_id = p_payer;
      RETURN;
    END IF;
  END IF;

  IF p_when = 'now' THEN
    UPDATE packages SET ends_at = v_now, ended_early = 'replaced', units_dropped = total_limit - units_used - units_held
    WHERE account_id = p_account AND starts_at <= v_now AND ends_at > v_now;
    v_start := v_now;
  ELSE
    SELECT greatest(v_now, max(ends_at)) INTO v_start FROM packages WHERE account_id = p_account;
  END IF;
  INSERT INTO packages (account_id, offering_id, name, starts_at, ends_at, first_day, days, time_zone, daily_limit, total_limit,
    carryover, token_limit, model_ids, paid_by_account_id, allotment_id)
  VALUES (p_account, f.id, f.name, v_start, package_end(v_start, f.days, f.time_zone), (v_start AT TIME ZONE f.time_zone)::date,
    f.days, f.time_zone, f.daily_limit, f.total_limit, f.carryover, f.token_limit, f.model_ids, p_payer, v_allotment)
  RETURNING id INTO package_id;
  IF p_when = 'now' THEN
    PERFORM requeue_packages(p_account, v_now, (SELECT ends_at FROM packages WHERE id = assign_package.package_id));
  END IF;
  IF v_price > 0 THEN
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, package_id, actor_id)
    VALUES (p_payer, -v_price, 'wholesale', assign_package.package_id, p_actor);
  END IF;
END $$;
--> statement-breakpoint

-- Ends a package before its time, active or queued; those behind it move up. False: there is none such, or it has ended.
CREATE FUNCTION end_package(p_account bigint, p_package bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_now timestamptz;
  v_from timestamptz;
BEGIN
  PERFORM lock_accounts(ARRAY[p_account]);
  v_now := ledger_now();
  UPDATE packages SET starts_at = least(starts_at, v_now), ends_at = v_now, ended_early = 'ended',
    units_dropped = total_limit - units_used - units_held
  WHERE id = p_package AND account_id = p_account AND ends_at > v_now;
  IF NOT FOUND THEN RETURN false; END IF;
  SELECT coalesce(max(ends_at), v_now) INTO v_from FROM packages WHERE account_id = p_account AND starts_at <= v_now AND ends_at > v_now;
  PERFORM requeue_packages(p_account, v_now, v_from);
  RETURN true;
END $$;
--> statement-breakpoint

-- Adds to a balance (a correction may take away, never below what is held). Returns the new balance, null if refused.
CREATE FUNCTION add_balance(p_account bigint, p_nano_usd bigint, p_kind text, p_reason text, p_actor bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_balance bigint;
BEGIN
  PERFORM lock_accounts(ARRAY[p_account]);
  UPDATE balances SET balance_nano_usd = balance_nano_usd + p_nano_usd
  WHERE account_id = p_account AND balance_nano_usd + p_nano_usd >= held_nano_usd
  RETURNING balance_nano_usd INTO v_balance;
  IF FOUND THEN
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, reason, actor_id)
    VALUES (p_account, p_nano_usd, p_kind, p_reason, p_actor);
  END IF;
  RETURN v_balance;
END $$;
--> statement-breakpoint

-- Moves money from one balance to another: a reseller's top-up of its customer. Returns code null, or a code: not_found (either
-- has no balance, or they are one), insufficient_balance with what is free. Past what a balance may hold, the table's check
-- refuses.
CREATE FUNCTION transfer_balance(p_from bigint, p_to bigint, p_nano_usd bigint, p_reason text, p_actor bigint,
  OUT code text, OUT free_nano_usd bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF p_nano_usd <= 0 THEN RAISE EXCEPTION 'a transfer is above zero'; END IF;
  PERFORM lock_accounts(ARRAY[p_from, p_to]);
  SELECT balance_nano_usd - held_nano_usd INTO free_nano_usd FROM balances WHERE account_id = p_from;
  IF NOT FOUND OR p_from = p_to OR NOT EXISTS (SELECT FROM balances WHERE account_id = p_to) THEN
    code := 'not_found';
  ELSIF free_nano_usd < p_nano_usd THEN
    code := 'insufficient_balance';
  ELSE
    UPDATE balances SET balance_nano_usd = balance_nano_usd - p_nano_usd WHERE account_id = p_from;
    UPDATE balances SET balance_nano_usd = balance_nano_usd + p_nano_usd WHERE account_id = p_to;
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, counterpart_id, reason, actor_id)
    VALUES (p_from, -p_nano_usd, 'transfer', p_to, p_reason, p_actor), (p_to, p_nano_usd, 'transfer', p_from, p_reason, p_actor);
    free_nano_usd := free_nano_usd - p_nano_usd;
  END IF;
END $$;
--> statement-breakpoint

-- Switches pay-as-you-go. False: no such account.
CREATE FUNCTION set_payg(p_account bigint, p_enabled boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lock_accounts(ARRAY[p_account]);
  UPDATE balances SET payg_enabled = p_enabled WHERE account_id = p_account;
  RETURN FOUND;
END $$;
--> statement-breakpoint

-- What a model costs now, as a PriceParts of src/ledger/price.ts: micro-USD per million tokens, or an image of a size, or size/quality.
-- A part without a price is left out; cached input without one costs what input costs.
CREATE FUNCTION prices_of(p_model text) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_strip_nulls(jsonb_build_object(
    'tokens', CASE WHEN m.input_micro_usd IS NOT NULL THEN jsonb_build_object('input', m.input_micro_usd,
      'cached_input', coalesce(m.cached_input_micro_usd, m.input_micro_usd), 'output', m.output_micro_usd) END,
    'images', (SELECT jsonb_object_agg(CASE i.quality WHEN 'standard' THEN i.size ELSE i.size || '/' || i.quality END, i.micro_usd) FROM image_prices i WHERE i.model_id = m.id)))
  FROM models m WHERE m.id = p_model
$$;
--> statement-breakpoint
-- Writes the next version of a model's prices, if they are others than in the last one. Triggers, so that no writer can forget
-- it, at the end of the transaction, so that what it changes is one version. The model's row is locked first: of two that
-- change prices at once, the second one sees what the first has written. Argument: the column that names the model.
CREATE FUNCTION note_price_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_model text := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END) ->> TG_ARGV[0];
  v_prices jsonb;
BEGIN
  PERFORM FROM models WHERE id = v_model FOR NO KEY UPDATE;
  v_prices := prices_of(v_model);
  IF v_prices IS DISTINCT FROM (SELECT prices FROM price_versions WHERE model_id = v_model ORDER BY id DESC LIMIT 1)
    AND v_prices IS NOT NULL THEN
    INSERT INTO price_versions (model_id, prices) VALUES (v_model, v_prices);
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER models_price_version AFTER INSERT OR UPDATE OF input_micro_usd, cached_input_micro_usd, output_micro_usd ON models
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_price_version('id');
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER image_prices_price_version AFTER INSERT OR DELETE OR UPDATE ON image_prices
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_price_version('model_id');
--> statement-breakpoint
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed: receipts name them', TG_TABLE_NAME;
END $$;
--> statement-breakpoint
CREATE TRIGGER price_versions_fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON price_versions FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
--> statement-breakpoint

-- What changed, for the caches. A trigger, so that no writer can forget it, a person with psql included.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_row jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
BEGIN
  INSERT INTO changes (kind, ref) VALUES (TG_ARGV[0], coalesce(v_row ->> TG_ARGV[1], ''));
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER accounts_changed AFTER INSERT OR DELETE OR UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION note_change('account', 'id');
--> statement-breakpoint
CREATE TRIGGER keys_changed AFTER INSERT OR DELETE OR UPDATE ON keys FOR EACH ROW EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
CREATE TRIGGER packages_changed AFTER INSERT OR DELETE OR UPDATE OF starts_at, ends_at ON packages FOR EACH ROW EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
CREATE TRIGGER entries_changed AFTER INSERT ON balance_entries FOR EACH ROW WHEN (NEW.kind <> 'charge') EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
CREATE TRIGGER payg_changed AFTER UPDATE OF payg_enabled ON balances FOR EACH ROW EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
CREATE TRIGGER hosts_changed AFTER INSERT OR DELETE OR UPDATE ON hosts FOR EACH ROW EXECUTE FUNCTION note_change('host', 'host');
--> statement-breakpoint
CREATE TRIGGER brands_changed AFTER INSERT OR DELETE OR UPDATE ON brands FOR EACH ROW EXECUTE FUNCTION note_change('account', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER models_changed AFTER INSERT OR DELETE OR UPDATE ON models FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'id');
--> statement-breakpoint
CREATE TRIGGER image_prices_changed AFTER INSERT OR DELETE OR UPDATE ON image_prices FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'model_id');
--> statement-breakpoint
CREATE TRIGGER routes_changed AFTER INSERT OR DELETE OR UPDATE ON routes FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'model_id');
--> statement-breakpoint
CREATE TRIGGER route_overheads_changed AFTER INSERT OR DELETE OR UPDATE ON route_overheads FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'route_id');
--> statement-breakpoint
CREATE TRIGGER own_overheads_changed AFTER INSERT OR DELETE OR UPDATE ON route_overheads FOR EACH ROW EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
CREATE TRIGGER providers_changed AFTER INSERT OR DELETE OR UPDATE ON providers FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'name');
--> statement-breakpoint
CREATE TRIGGER sessions_changed AFTER DELETE OR UPDATE OF expires_at, viewing_account_id ON sessions FOR EACH ROW EXECUTE FUNCTION note_change('session', 'account_id');
--> statement-breakpoint

-- The audit log: what a person changed, in the transaction that changed it, so that no writer can forget it. Who it was stands
-- in the transaction's settings (`changing` puts it there); without, it was the command line or the service itself. Arguments:
-- the column that names the row, the one that names the account it concerns, '' if none, and those that are shown though they did
-- not change, if any, with commas. What the service alone keeps up is left out; of secrets and pictures only that they changed.
CREATE FUNCTION note_audit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  k_kept_up text[] := '{totp_last_step,revoked_at,checked_at,next_check_at,failures,report,css,version,units_used,units_held,tokens_used,tokens_held,balance_nano_usd,held_nano_usd,used}';
  k_hidden text[] := '{password_hash,totp_ciphertext,digest,key_ciphertext,token,logo_light,logo_dark,icon}';
  v_old jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - k_kept_up END;
  v_new jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - k_kept_up END;
  v_row jsonb := coalesce(v_new, v_old);
  v_before jsonb;
  v_after jsonb;
BEGIN
  IF v_old = v_new THEN RETURN NULL; END IF;
  SELECT jsonb_object_agg(key, CASE WHEN key = ANY (k_hidden) THEN '"(hidden)"' ELSE v_old -> key END) FILTER (WHERE v_old ->> key IS NOT NULL),
         jsonb_object_agg(key, CASE WHEN key = ANY (k_hidden) THEN '"(hidden)"' ELSE v_new -> key END) FILTER (WHERE v_new ->> key IS NOT NULL)
  INTO v_before, v_after
  FROM jsonb_object_keys(v_row) AS key WHERE v_old -> key IS DISTINCT FROM v_new -> key OR key = ANY (string_to_array(TG_ARGV[2], ','));
  INSERT INTO audit_entries (actor_id, request_id, action, subject, subject_id, account_id, before, after)
  VALUES (nullif(current_setting('tollgate.actor_id', true), '')::bigint, nullif(current_setting('tollgate.request_id', true), '')::uuid,
    CASE TG_OP WHEN 'INSERT' THEN 'added' WHEN 'DELETE' THEN 'removed' ELSE 'changed' END,
    TG_TABLE_NAME, v_row ->> TG_ARGV[0], (v_row ->> nullif(TG_ARGV[1], ''))::bigint, v_before, v_after);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER accounts_audit AFTER INSERT OR DELETE OR UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'id');
--> statement-breakpoint
CREATE TRIGGER links_audit AFTER INSERT OR DELETE OR UPDATE ON links FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER keys_audit AFTER INSERT OR DELETE OR UPDATE ON keys FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER packages_audit AFTER INSERT OR DELETE OR UPDATE OF starts_at, ends_at ON packages FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER payg_audit AFTER UPDATE OF payg_enabled ON balances FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER entries_audit AFTER INSERT ON balance_entries FOR EACH ROW WHEN (NEW.kind <> 'charge') EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER allotments_audit AFTER INSERT OR DELETE OR UPDATE ON allotments FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER orders_audit AFTER INSERT OR DELETE OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER hosts_audit AFTER INSERT OR DELETE OR UPDATE ON hosts FOR EACH ROW EXECUTE FUNCTION note_audit('host', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER brands_audit AFTER INSERT OR DELETE OR UPDATE ON brands FOR EACH ROW EXECUTE FUNCTION note_audit('reseller_id', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER offerings_audit AFTER INSERT OR DELETE OR UPDATE ON offerings FOR EACH ROW EXECUTE FUNCTION note_audit('id', '');
--> statement-breakpoint
CREATE TRIGGER models_audit AFTER INSERT OR DELETE OR UPDATE ON models FOR EACH ROW EXECUTE FUNCTION note_audit('id', '');
--> statement-breakpoint
CREATE TRIGGER image_prices_audit AFTER INSERT OR DELETE OR UPDATE ON image_prices FOR EACH ROW EXECUTE FUNCTION note_audit('model_id', '', 'size,quality');
--> statement-breakpoint
CREATE TRIGGER routes_audit AFTER INSERT OR DELETE OR UPDATE ON routes FOR EACH ROW EXECUTE FUNCTION note_audit('id', '');
--> statement-breakpoint
CREATE TRIGGER providers_audit AFTER INSERT OR DELETE OR UPDATE ON providers FOR EACH ROW EXECUTE FUNCTION note_audit('id', '');
--> statement-breakpoint

-- The closing folds receipts into sums: src/books/folding_store.ts. It counts and hashes them by piece, 16 seconds of request
-- ids each (2^14 ms).
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
-- The day of UTC that a request id carries.
CREATE FUNCTION request_day(p_id uuid) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT date '1970-01-01' + (('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 86400000)::int
$$;
--> statement-breakpoint
-- Where a span of the rollups (`usage_sums`) begins: minutes of UTC, or 0, a month of UTC.
CREATE FUNCTION span_begins(p_span int, p_at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE p_span
    WHEN 15 THEN date_bin('15 minutes', p_at, '2000-01-01 00:00:00+00'::timestamptz)
    WHEN 1440 THEN date_bin('1 day', p_at, '2000-01-01 00:00:00+00'::timestamptz)
    WHEN 0 THEN date_trunc('month', p_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' END
$$;
--> statement-breakpoint
-- Whether a request may have ended in another month than it began in, in some zone: zones are at most 14 hours from UTC.
CREATE FUNCTION crosses_month(p_began timestamptz, p_ended timestamptz) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT span_begins(15, p_began) <> span_begins(15, p_ended)
    AND span_begins(0, least(p_began, p_ended) - interval '15 hours') <> span_begins(0, greatest(p_began, p_ended) + interval '15 hours')
$$;
--> statement-breakpoint
-- The books. Each view is empty, always. Source: the ledger's README.
CREATE VIEW inv_package_units AS
  SELECT p.id AS package_id, p.units_held, h.held, p.units_used, r.used, p.tokens_held, p.tokens_used FROM packages p
  LEFT JOIN (SELECT package_id, count(*) AS held, sum(held_tokens) AS tokens FROM holds GROUP BY package_id) h ON h.package_id = p.id
  LEFT JOIN (SELECT package_id, sum(units) AS used, sum(charged_tokens) AS tokens FROM receipts GROUP BY package_id) r ON r.package_id = p.id
  WHERE p.units_held <> coalesce(h.held, 0) OR p.units_used <> coalesce(r.used, 0)
    OR p.tokens_held <> coalesce(h.tokens, 0) OR p.tokens_used <> coalesce(r.tokens, 0);
--> statement-breakpoint
CREATE VIEW inv_package_days AS
  SELECT package_id, day, sum(counted_held) AS counted_held, sum(held) AS held, sum(counted_used) AS counted_used, sum(used) AS used
  FROM (
    SELECT package_id, day, units_held AS counted_held, units_used AS counted_used, 0 AS held, 0 AS used FROM package_days
    UNION ALL SELECT package_id, day, 0, 0, 1, 0 FROM holds WHERE package_id IS NOT NULL
    UNION ALL SELECT package_id, day, 0, 0, 0, units FROM receipts WHERE package_id IS NOT NULL
  ) AS both_sides GROUP BY package_id, day HAVING sum(counted_held) <> sum(held) OR sum(counted_used) <> sum(used);
--> statement-breakpoint
CREATE VIEW inv_balance_entries AS
  SELECT b.account_id, b.balance_nano_usd, coalesce(e.total, 0) AS entries FROM balances b
  LEFT JOIN (SELECT account_id, sum(amount_nano_usd) AS total FROM balance_entries GROUP BY account_id) e USING (account_id)
  WHERE b.balance_nano_usd <> coalesce(e.total, 0);
--> statement-breakpoint
CREATE VIEW inv_balance_held AS
  SELECT b.account_id, b.held_nano_usd, coalesce(h.total, 0) AS holds FROM balances b
  LEFT JOIN (SELECT account_id, sum(held_nano_usd) AS total FROM holds GROUP BY account_id) h USING (account_id)
  WHERE b.held_nano_usd <> coalesce(h.total, 0);
--> statement-breakpoint
CREATE VIEW inv_bounds AS
  SELECT 'package' AS what, id FROM packages WHERE units_used < 0 OR units_held < 0 OR units_used + units_held > total_limit
    OR tokens_used < 0 OR tokens_held < 0 OR tokens_used + tokens_held > token_limit
  UNION ALL SELECT 'day', package_id FROM package_days WHERE units_used < 0 OR units_held < 0 OR units_used + units_held > units_max
  UNION ALL SELECT 'carryover', p.id FROM packages p JOIN (
    SELECT package_id, day, sum(units_used + units_held) OVER (PARTITION BY package_id ORDER BY day) AS so_far FROM package_days) d
    ON d.package_id = p.id WHERE p.carryover AND d.so_far > p.daily_limit * least(d.day - p.first_day + 1, p.days)
  UNION ALL SELECT 'balance', account_id FROM balances WHERE held_nano_usd < 0 OR balance_nano_usd < held_nano_usd;
--> statement-breakpoint
CREATE VIEW inv_hold_and_receipt AS
  SELECT request_id FROM holds JOIN receipts USING (request_id);
--> statement-breakpoint
CREATE VIEW inv_charges AS
  SELECT r.request_id, r.charged_nano_usd, coalesce(e.total, 0) AS debited FROM receipts r
  LEFT JOIN (SELECT request_id, -sum(amount_nano_usd) AS total FROM balance_entries WHERE kind = 'charge' GROUP BY request_id) e USING (request_id)
  WHERE r.charged_nano_usd <> coalesce(e.total, 0) OR (r.outcome = 'released' AND r.charged_nano_usd > 0)
    OR (r.mode = 'package' AND r.charged_nano_usd > 0);
--> statement-breakpoint

CREATE VIEW inv_key_days AS
  SELECT key_id, day, sum(counted_held) AS counted_held, sum(held) AS held, sum(counted_used) AS counted_used, sum(used) AS used,
    sum(counted_nano) AS counted_nano, sum(nano) AS nano
  FROM (
    SELECT key_id, day, units_held AS counted_held, units_used AS counted_used, held_nano_usd + spent_nano_usd AS counted_nano,
      0 AS held, 0 AS used, 0 AS nano FROM key_days
    UNION ALL SELECT key_id, key_day, 0, 0, 0, 1, 0, held_nano_usd FROM holds WHERE key_day IS NOT NULL
    UNION ALL SELECT key_id, key_day, 0, 0, 0, 0, 1, charged_nano_usd FROM receipts WHERE key_day IS NOT NULL AND outcome = 'settled'
  ) AS both_sides GROUP BY key_id, day
  HAVING sum(counted_held) <> sum(held) OR sum(counted_used) <> sum(used) OR sum(counted_nano) <> sum(nano);
--> statement-breakpoint
CREATE VIEW inv_allotments AS
  SELECT a.id, a.granted, a.used, coalesce(p.taken, 0) AS taken FROM allotments a
  LEFT JOIN (SELECT allotment_id, count(*) AS taken FROM packages WHERE allotment_id IS NOT NULL GROUP BY allotment_id) p ON p.allotment_id = a.id
  WHERE a.used <> coalesce(p.taken, 0) OR a.used > a.granted;
--> statement-breakpoint

SELECT make_receipt_months(3);
