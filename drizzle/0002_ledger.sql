-- Reserve, settle, release: the hot path of the ledger. Source: QUO-2, QUO-3, MON-2, MON-6, MON-7, END-13, END-15.
--
-- Every function that decides does this in order: take the accounts' advisory locks in a statement of its own, read the clock,
-- read the rows, decide, write. (A statement that locks and reads at once reads a snapshot from before the lock, and oversells.)
-- Lock keys: an account's id; for a tenant minus the reseller's id, which the requests of its customers share.

-- Holds come and go by the thousand per second, and every batch rewrites the counters' rows. So: vacuum early and often, leave
-- room on each page for the next row version, and never lock a table to truncate its end.
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

-- Takes the locks of accounts and waits for them, in ascending order so that two callers cannot deadlock. Held to the end of the transaction.
CREATE FUNCTION lock_accounts(p_ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_id bigint;
BEGIN
  FOR v_id IN SELECT DISTINCT id FROM unnest(p_ids) AS ids(id) WHERE id IS NOT NULL ORDER BY id LOOP
    PERFORM pg_advisory_xact_lock(v_id);
  END LOOP;
END $$;
--> statement-breakpoint

-- Takes a reseller's tenant lock and its account lock, and waits for them. Afterwards no request of the tenant is granted
-- until commit.
CREATE FUNCTION lock_tenant(p_reseller bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(-p_reseller);
  PERFORM pg_advisory_xact_lock(p_reseller);
END $$;
--> statement-breakpoint

-- Takes the locks of a batch: the accounts, and a shared lock of each tenant (0: none). Returns the accounts that are locked by
-- others. With p_wait it waits instead (at most lock_timeout, then error 55P03) and returns none.
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

-- Reserves. The caller holds the locks. The array arguments describe the requests and must have the same order:
-- - run_*: one element per run. A run is a sequence of requests that differ only in ids and amounts. run_lasts is the number of
--   its last request, counted from 1. The runs of an account are in the order in which its requests arrived.
-- - request_*: one element per request. request_prompt_pico is the upper bound of the prompt (or the image) in pico-USD, margin
--   included. run_output_pico is the same for one output token; −1: the model has no balance price. request_cap_max is the wanted
--   output cap, request_cap_min the lowest acceptable one. request_token_bound is what to reserve of a token allowance.
-- - answer_* (internal): one element per answer. An answer is for one or more consecutive requests.
-- Returns one row per answer; `places` are the requests it is for, counted from 1. code null: granted.
CREATE FUNCTION ledger_reserve(
  p_now timestamptz, p_lease interval, p_retry boolean, p_busy bigint[],
  run_lasts int[], run_accounts bigint[], run_tenants bigint[], run_keys bigint[], run_hosts text[], run_own_hosts boolean[],
  run_models text[], run_output_pico bigint[], run_price_versions bigint[],
  request_ids uuid[], request_prompt_pico bigint[], request_cap_max int[], request_cap_min int[], request_token_bound bigint[]
) RETURNS TABLE (
  places int[], code text, mode text, held_nano_usd bigint, cap_tokens int,
  quota_limit bigint, quota_used bigint, quota_remaining bigint, resets_at timestamptz
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  -- Ids within an hour of now are accepted: others may belong to a month that has no partition.
  v_id_from uuid := request_id_floor(p_now - interval '1 hour');
  v_id_to uuid := request_id_floor(p_now + interval '1 hour');
  run record;            -- a run, with the state of its key, package and balance before the batch
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
  -- What is left of the daily limits of the account's keys (null: no such limit), and the place of the run's key.
  limit_keys bigint[];
  limit_units int[];
  limit_nano bigint[];
  v_limit int;
  -- Codes of requests that are decided before anything else, in their order; null: there are none.
  v_first_codes text[];
  -- An answer is for the requests answer_from to answer_to of the run answer_run. A null code means granted.
  n int := 0;
  answer_run int[];
  answer_from int[];
  answer_to int[];
  answer_code text[];
  answer_mode text[];
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
  -- Whether anything was granted: at all, from a package, from a balance, to a key with daily limits.
  v_granted boolean := false;
  v_of_package boolean := false;
  v_of_balance boolean := false;
  v_of_limit boolean := false;
BEGIN
  IF p_retry OR NOT (v_id_from <= ALL (request_ids) AND v_id_to > ALL (request_ids)) THEN
    SELECT array_agg(
      CASE
        WHEN live.request_id IS NOT NULL THEN 'again'
        WHEN done.request_id IS NOT NULL THEN 'ended'
        WHEN r.request_id < v_id_from OR r.request_id >= v_id_to THEN 'clock_skew'
      END ORDER BY r.ord)
    INTO v_first_codes
    FROM unnest(request_ids) WITH ORDINALITY AS r(request_id, ord)
    LEFT JOIN holds live ON p_retry AND live.request_id = r.request_id
    LEFT JOIN receipts done ON p_retry AND done.request_id = r.request_id;
  END IF;

  FOR run IN
    SELECT r.run_no, coalesce(run_lasts[r.run_no - 1], 0) + 1 AS first_request, run_lasts[r.run_no] AS last_request, r.account_id, r.model_id,
      run_output_pico[r.run_no] AS output_pico, k.mode = 'payg' AS by_balance,
      CASE WHEN k.daily_units_max IS NOT NULL OR k.daily_spend_max_nano_usd IS NOT NULL THEN k.id END AS limited_key,
      k.daily_units_max, k.daily_spend_max_nano_usd, k.time_zone AS key_time_zone, c.today AS key_day,
      coalesce(u.units_used + u.units_held, 0) AS key_units, coalesce(u.spent_nano_usd + u.held_nano_usd, 0) AS key_nano,
      CASE
        WHEN k.id IS NULL OR k.account_id <> r.account_id OR k.status <> 'enabled' OR k.expires_at <= p_now
          OR a.id IS NULL OR a.status <> 'active' OR coalesce(t.status, 'active') <> 'active' THEN 'invalid_api_key'
        WHEN NOT (coalesce(r.host = ANY (k.hosts), true)
          AND (run_own_hosts[r.run_no] OR coalesce(h.status = 'active', false))) THEN 'host_not_allowed'
        WHEN NOT coalesce(r.model_id = ANY (k.model_ids), true) THEN 'model_not_found'
      END AS code,
      p.id AS package_id, p.package, p.today, coalesce(d.units_used + d.units_held, 0) AS day_units,
      coalesce(b.payg_enabled, false) AS payg_enabled, coalesce(b.balance_nano_usd, 0) AS balance,
      coalesce(b.held_nano_usd, 0) AS held,
      CASE WHEN p.id IS NULL THEN EXISTS (
        SELECT FROM packages e WHERE e.account_id = r.account_id AND e.ends_at <= p_now AND e.ends_at > e.starts_at) END AS expired
    FROM unnest(run_accounts, run_tenants, run_keys, run_hosts, run_models) WITH ORDINALITY
      AS r(account_id, tenant_id, key_id, host, model_id, run_no)
    LEFT JOIN keys k ON k.id = r.key_id
    LEFT JOIN accounts a ON a.id = r.account_id
    LEFT JOIN accounts t ON t.id = r.tenant_id
    LEFT JOIN hosts h ON NOT run_own_hosts[r.run_no] AND h.host = r.host AND h.reseller_id = r.tenant_id
    LEFT JOIN LATERAL (SELECT (p_now AT TIME ZONE k.time_zone)::date AS today
      WHERE k.daily_units_max IS NOT NULL OR k.daily_spend_max_nano_usd IS NOT NULL) c ON true
    LEFT JOIN key_days u ON u.key_id = k.id AND u.day = c.today
    LEFT JOIN LATERAL (
      SELECT x.id, x AS package, (p_now AT TIME ZONE x.time_zone)::date AS today FROM packages x
      WHERE x.account_id = r.account_id AND x.starts_at <= p_now AND x.ends_at > p_now
      ORDER BY x.starts_at DESC LIMIT 1
    ) p ON true
    LEFT JOIN package_days d ON d.package_id = p.id AND d.day = p.today
    LEFT JOIN balances b ON b.account_id = r.account_id
    ORDER BY r.account_id, r.run_no
  LOOP
    IF run.account_id IS DISTINCT FROM v_account THEN
      v_account := run.account_id;
      v_available := run.balance - run.held;
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
      v_last := CASE WHEN v_first_codes IS NULL THEN run.last_request ELSE i END;
      n := n + 1;
      answer_run[n] := run.run_no;
      answer_from[n] := i;
      answer_to[n] := v_last;
      v_code := CASE WHEN run.account_id = ANY (p_busy) THEN 'busy' ELSE coalesce(v_first_codes[i], run.code) END;
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
        IF run.package_id IS NULL THEN
          v_code := CASE WHEN run.expired THEN 'package_expired' ELSE 'package_required' END;
        ELSIF NOT (v_package.model_ids IS NULL OR run.model_id = ANY (v_package.model_ids)) THEN
          v_code := 'model_not_in_package';
        ELSIF v_left > 0 AND (v_tokens_left IS NULL OR v_tokens_left > 0) THEN
          -- All requests at once that there are units for. With a token allowance one by one: each reserves its own tokens.
          IF v_tokens_left IS NULL THEN
            v_last := least(v_last, i - 1 + v_left, i - 1 + limit_units[v_limit]);
          ELSE
            v_last := i;
            answer_tokens[n] := least(request_token_bound[i], v_tokens_left);
            v_package.tokens_held := v_package.tokens_held + answer_tokens[n];
            v_tokens_left := v_tokens_left - answer_tokens[n];
          END IF;
          v_count := v_last - i + 1;
          v_package.units_held := v_package.units_held + v_count;
          v_day_units := v_day_units + v_count;
          v_left := v_left - v_count;
          answer_to[n] := v_last;
          answer_mode[n] := 'package';
          answer_package[n] := run.package_id;
          answer_day[n] := run.today;
          answer_units_max[n] := CASE WHEN v_package.carryover THEN v_package.total_limit ELSE v_package.daily_limit END;
          IF v_limit IS NOT NULL THEN
            answer_key_day[n] := run.key_day;
            limit_units[v_limit] := limit_units[v_limit] - v_count;
            v_of_limit := true;
          END IF;
          v_of_package := true;
          v_granted := true;
          CONTINUE;
        ELSIF package_day_left(v_package, run.today, v_day_units) <= 0 THEN
          v_code := CASE WHEN v_package.carryover THEN 'carryover_quota_exceeded' ELSE 'daily_quota_exceeded' END;
        ELSIF v_left > 0 THEN
          v_code := 'package_tokens_exceeded';
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
          ELSIF v_code = 'package_tokens_exceeded' THEN
            answer_limit[n] := v_package.token_limit;
            answer_used[n] := v_package.token_limit - v_tokens_left;
            answer_remaining[n] := 0;
          ELSIF v_code = 'package_quota_exceeded' THEN
            answer_limit[n] := v_package.total_limit;
            answer_used[n] := v_package.units_used + v_package.units_held;
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
          answer_mode[n] := 'payg';
          answer_nano[n] := v_amount;
          answer_cap[n] := v_cap;
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
    SELECT request_ids[i], run_accounts[answer_run[x]], run_keys[answer_run[x]], run_models[answer_run[x]], run_hosts[answer_run[x]],
           answer_mode[x], answer_package[x], answer_day[x], coalesce(answer_nano[x], 0), coalesce(answer_tokens[x], 0),
           answer_cap[x], answer_key_day[x], p_now + p_lease, p_now, run_price_versions[answer_run[x]]
    FROM (SELECT x, generate_series(answer_from[x], answer_to[x]) AS i FROM generate_series(1, n) AS x
          WHERE answer_mode[x] IS NOT NULL) granted;
  END IF;

  IF v_of_package THEN
    UPDATE packages p SET units_held = p.units_held + s.units, tokens_held = p.tokens_held + s.tokens
    FROM (SELECT answer_package[x] AS package_id, sum(answer_to[x] - answer_from[x] + 1)::int AS units,
                 sum(coalesce(answer_tokens[x], 0))::bigint AS tokens
          FROM generate_series(1, n) AS x WHERE answer_package[x] IS NOT NULL GROUP BY 1) s
    WHERE p.id = s.package_id;

    INSERT INTO package_days AS d (package_id, day, units_held, units_max)
    SELECT answer_package[x], answer_day[x], sum(answer_to[x] - answer_from[x] + 1)::int, max(answer_units_max[x])
    FROM generate_series(1, n) AS x WHERE answer_package[x] IS NOT NULL GROUP BY 1, 2
    ON CONFLICT (package_id, day) DO UPDATE SET units_held = d.units_held + excluded.units_held;
  END IF;

  IF v_of_limit THEN
    INSERT INTO key_days AS d (key_id, day, units_held, held_nano_usd)
    SELECT run_keys[answer_run[x]], answer_key_day[x], sum(answer_to[x] - answer_from[x] + 1)::int,
           sum(coalesce(answer_nano[x], 0))::bigint
    FROM generate_series(1, n) AS x WHERE answer_key_day[x] IS NOT NULL GROUP BY 1, 2
    ON CONFLICT (key_id, day) DO UPDATE SET units_held = d.units_held + excluded.units_held,
      held_nano_usd = d.held_nano_usd + excluded.held_nano_usd;
  END IF;

  IF v_of_balance THEN
    UPDATE balances b SET held_nano_usd = b.held_nano_usd + s.nano
    FROM (SELECT run_accounts[answer_run[x]] AS account_id, sum(answer_nano[x])::bigint AS nano
          FROM generate_series(1, n) AS x WHERE answer_nano[x] IS NOT NULL GROUP BY 1) s
    WHERE b.account_id = s.account_id;
  END IF;

  IF v_first_codes IS NULL THEN
    RETURN QUERY
    SELECT ARRAY(SELECT generate_series(answer_from[x], answer_to[x])), answer_code[x], answer_mode[x],
           coalesce(answer_nano[x], 0), answer_cap[x], answer_limit[x], answer_used[x], answer_remaining[x], answer_resets[x]
    FROM generate_series(1, n) AS x;
  ELSE
    -- One request per answer. A request that was granted before gets the same answer again.
    RETURN QUERY
    SELECT ARRAY[answer_from[x]], nullif(answer_code[x], 'again'), coalesce(h.mode, answer_mode[x]),
           coalesce(h.held_nano_usd, answer_nano[x], 0), coalesce(h.cap_tokens, answer_cap[x]),
           answer_limit[x], answer_used[x], answer_remaining[x], answer_resets[x]
    FROM generate_series(1, n) AS x
    LEFT JOIN holds h ON answer_code[x] = 'again' AND h.request_id = request_ids[answer_from[x]];
  END IF;
END $$;
--> statement-breakpoint

-- Ends holds. The caller holds the locks. finish_*: one element per hold to end:
-- - kind: settle, release, or reap (a release that only applies when the lease has ended).
-- - charge: nano-USD at the prices of the reservation; 0 for a package.
-- - strict: nothing was sent to the client yet, so a charge that the balance does not cover becomes a refusal. Otherwise only the
--   held amount is charged and the rest is the operator's loss.
-- - reported: other counts of the provider, JSON; an empty array: none at all.
-- hold_*: one element per hold that this call ended. end_*: how it ended.
-- Outcomes: settled, released, refused (strict only), alive (reap of a hold whose lease runs), already (settled before), gone
-- (released before, for good), unknown, busy. Returns one row per outcome; `places` are the elements it is for, counted from 1.
CREATE FUNCTION ledger_finish(
  p_now timestamptz, p_busy bigint[],
  finish_ids uuid[], finish_accounts bigint[], finish_kinds text[], finish_reasons text[], finish_prompt int[], finish_cached int[],
  finish_completion int[], finish_charge bigint[], finish_strict boolean[], finish_estimated boolean[], finish_reported text[]
) RETURNS TABLE (places int[], outcome text, charged_nano_usd bigint, shortfall_nano_usd bigint, units int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  n int := cardinality(finish_ids);
  h record;
  v_account bigint;
  v_available bigint;
  v_units int;
  v_extra bigint;
  v_tokens bigint;
  v_tokens_package bigint; -- the package that v_tokens is about
  v_package packages;
  i int;                    -- a place in finish_*
  -- The holds that this call ended: the place in finish_* that ended it, and the hold's row.
  v_ended int;
  v_overrun boolean;        -- a charge is above the reserved amount
  hold_places int[];
  hold_accounts bigint[];
  hold_keys bigint[];
  hold_models text[];
  hold_hosts text[];
  hold_modes text[];
  hold_packages bigint[];
  hold_days date[];
  hold_key_days date[];
  hold_nano bigint[];
  hold_tokens bigint[];
  hold_created timestamptz[];
  hold_price_versions bigint[];
  -- Those of their packages that have a token allowance.
  v_limited bigint[];
  -- Overruns: nano-USD and tokens that may be taken beyond the hold, and refusals. Null: none.
  extra_nano bigint[];
  extra_tokens bigint[];
  end_refused boolean[];
  -- How each of these holds ended.
  end_settles boolean[];
  end_units int[];
  end_charged bigint[];
  end_short bigint[];
  end_tokens bigint[];
  -- The answers for elements without an open hold, by place.
  answer_outcome text[];
  answer_charged bigint[];
  answer_short bigint[];
  answer_units int[];
BEGIN
  -- 1. Delete the holds.
  WITH gone AS (
    DELETE FROM holds l USING generate_series(1, n) AS place
    WHERE l.request_id = finish_ids[place] AND l.account_id <> ALL (p_busy)
      AND (finish_kinds[place] <> 'reap' OR l.lease_ends_at <= p_now)
    RETURNING place, l.account_id, l.key_id, l.model_id, l.host, l.mode, l.package_id, l.day, l.key_day, l.held_nano_usd,
      l.held_tokens, l.created_at, l.price_version_id
  )
  SELECT count(*), coalesce(bool_or(finish_charge[place] > held_nano_usd), false), array_agg(place), array_agg(account_id), array_agg(key_id),
         array_agg(model_id), array_agg(host), array_agg(mode), array_agg(package_id), array_agg(day), array_agg(key_day),
         array_agg(held_nano_usd), array_agg(held_tokens), array_agg(created_at), array_agg(price_version_id)
  INTO v_ended, v_overrun, hold_places, hold_accounts, hold_keys, hold_models, hold_hosts, hold_modes,
       hold_packages, hold_days, hold_key_days, hold_nano, hold_tokens, hold_created, hold_price_versions
  FROM gone;

  IF v_ended > 0 THEN
    SELECT coalesce(array_agg(id), '{}') INTO v_limited FROM packages WHERE id = ANY (hold_packages) AND token_limit IS NOT NULL;

    -- 2. Overruns, rare: the provider used more than was reserved. In arrival order. If the available balance covers the whole
    -- rest, it is taken, else none of it. Of a token allowance all that is left is taken. See docs/decisions.md.
    IF v_overrun OR cardinality(v_limited) > 0 THEN
      FOR h IN
        SELECT x, hold_places[x] AS place, hold_accounts[x] AS account_id, hold_nano[x] AS held_nano_usd, hold_modes[x] AS mode,
               hold_packages[x] AS package_id, finish_charge[hold_places[x]] - hold_nano[x] AS nano,
               finish_prompt[hold_places[x]]::bigint + finish_completion[hold_places[x]] - hold_tokens[x] AS tokens
        FROM generate_series(1, v_ended) AS x
        WHERE finish_kinds[hold_places[x]] = 'settle'
          AND (finish_charge[hold_places[x]] > hold_nano[x]
            OR (hold_packages[x] = ANY (v_limited) AND finish_prompt[hold_places[x]]::bigint + finish_completion[hold_places[x]] > hold_tokens[x]))
        ORDER BY 3, 6, 2
      LOOP
        IF v_account IS DISTINCT FROM h.account_id THEN
          v_account := h.account_id;
          SELECT balance_nano_usd - held_nano_usd INTO v_available FROM balances WHERE account_id = v_account;
        END IF;
        IF h.mode = 'payg' THEN
          IF h.nano > v_available AND finish_strict[h.place] THEN
            end_refused[h.x] := true;
            v_available := v_available + h.held_nano_usd; -- its hold is released
          ELSIF h.nano <= v_available THEN
            extra_nano[h.x] := h.nano;
            v_available := v_available - h.nano;
          END IF;
        ELSE
          IF v_tokens_package IS DISTINCT FROM h.package_id THEN
            v_tokens_package := h.package_id;
            SELECT greatest(0, package_tokens_left(p)) INTO v_tokens FROM packages p WHERE p.id = v_tokens_package;
          END IF;
          extra_tokens[h.x] := least(h.tokens, v_tokens);
          v_tokens := v_tokens - extra_tokens[h.x];
        END IF;
      END LOOP;
    END IF;

    -- 3. Compute the charges, write the receipts, update the counters.
    FOR x IN 1 .. v_ended LOOP
      i := hold_places[x];
      end_settles[x] := finish_kinds[i] = 'settle' AND end_refused[x] IS NOT TRUE;
      end_units[x] := CASE WHEN end_settles[x] AND hold_modes[x] = 'package' THEN 1 ELSE 0 END;
      v_extra := coalesce(extra_nano[x], 0);
      end_charged[x] := CASE WHEN end_settles[x] THEN least(finish_charge[i], hold_nano[x] + v_extra) ELSE 0 END;
      end_short[x] := CASE WHEN end_settles[x] THEN finish_charge[i] - end_charged[x] ELSE 0 END;
      v_tokens := finish_prompt[i]::bigint + finish_completion[i];
      end_tokens[x] := CASE WHEN NOT end_settles[x] THEN 0
                          WHEN hold_packages[x] = ANY (v_limited) THEN least(v_tokens, hold_tokens[x] + coalesce(extra_tokens[x], 0))
                          ELSE v_tokens END;
    END LOOP;

    INSERT INTO receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, key_day, outcome, reason, units,
      held_nano_usd, charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens,
      estimated, price_version_id, reported_usage, created_at, finished_at)
    SELECT finish_ids[o], hold_accounts[x], hold_keys[x], hold_models[x], hold_hosts[x], hold_modes[x],
      hold_packages[x], hold_days[x], hold_key_days[x],
      CASE WHEN end_settles[x] THEN 'settled' ELSE 'released' END,
      CASE WHEN end_refused[x] THEN 'overrun_refused' ELSE finish_reasons[o] END,
      end_units[x], hold_nano[x], end_charged[x], end_short[x], finish_prompt[o], finish_cached[o],
      finish_completion[o], end_tokens[x], finish_estimated[o],
      hold_price_versions[x], finish_reported[o]::jsonb, hold_created[x], p_now
    FROM (SELECT x, hold_places[x] AS o FROM generate_series(1, v_ended) AS x) ended;

    IF array_position(hold_modes, 'package') IS NOT NULL THEN
      UPDATE packages p SET units_held = p.units_held - s.held, units_used = p.units_used + s.used,
        tokens_held = p.tokens_held - s.tokens_held, tokens_used = p.tokens_used + s.tokens_used
      FROM (SELECT hold_packages[x] AS package_id, count(*)::int AS held, sum(end_units[x])::int AS used,
                   sum(hold_tokens[x])::bigint AS tokens_held, sum(end_tokens[x])::bigint AS tokens_used
            FROM generate_series(1, v_ended) AS x WHERE hold_packages[x] IS NOT NULL GROUP BY 1) s
      WHERE p.id = s.package_id;

      UPDATE package_days d SET units_held = d.units_held - s.held, units_used = d.units_used + s.used
      FROM (SELECT hold_packages[x] AS package_id, hold_days[x] AS day, count(*)::int AS held, sum(end_units[x])::int AS used
            FROM generate_series(1, v_ended) AS x WHERE hold_packages[x] IS NOT NULL GROUP BY 1, 2) s
      WHERE d.package_id = s.package_id AND d.day = s.day;
    END IF;

    IF array_position(hold_modes, 'payg') IS NOT NULL THEN
      UPDATE balances b SET held_nano_usd = b.held_nano_usd - s.held, balance_nano_usd = b.balance_nano_usd - s.charged,
        tokens_used = b.tokens_used + s.tokens
      FROM (SELECT hold_accounts[x] AS account_id, sum(hold_nano[x])::bigint AS held, sum(end_charged[x])::bigint AS charged,
                   sum(end_tokens[x])::bigint AS tokens
            FROM generate_series(1, v_ended) AS x WHERE hold_modes[x] = 'payg' GROUP BY 1) s
      WHERE b.account_id = s.account_id;

      INSERT INTO balance_entries (account_id, amount_nano_usd, kind, request_id)
      SELECT hold_accounts[x], -end_charged[x], 'charge', finish_ids[hold_places[x]]
      FROM generate_series(1, v_ended) AS x WHERE end_charged[x] > 0;
    END IF;

    IF array_remove(hold_key_days, NULL) <> '{}' THEN
      UPDATE key_days d SET units_held = d.units_held - s.units_held, units_used = d.units_used + s.units_used,
        held_nano_usd = d.held_nano_usd - s.held, spent_nano_usd = d.spent_nano_usd + s.charged
      FROM (SELECT hold_keys[x] AS key_id, hold_key_days[x] AS key_day, count(*)::int AS units_held,
                   count(*) FILTER (WHERE end_settles[x])::int AS units_used, sum(hold_nano[x])::bigint AS held,
                   sum(end_charged[x])::bigint AS charged
            FROM generate_series(1, v_ended) AS x WHERE hold_key_days[x] IS NOT NULL GROUP BY 1, 2) s
      WHERE d.key_id = s.key_id AND d.day = s.key_day;
    END IF;

    RETURN QUERY
    SELECT array_agg(hold_places[x]), CASE WHEN end_refused[x] THEN 'refused' WHEN end_settles[x] THEN 'settled' ELSE 'released' END,
           end_charged[x], end_short[x], end_units[x]
    FROM generate_series(1, v_ended) AS x GROUP BY 2, 3, 4, 5;
  END IF;

  -- 4. Elements without an open hold, rare: repeated, released by the reaper before, or unknown.
  IF v_ended < n THEN
    FOR i IN SELECT x FROM generate_series(1, n) AS x WHERE x <> ALL (coalesce(hold_places, '{}')) ORDER BY x LOOP
      IF finish_accounts[i] = ANY (p_busy) THEN
        answer_outcome[i] := 'busy';
        CONTINUE;
      END IF;
      -- One by one: a batch may contain the same settlement twice, and the second must see what the first wrote.
      SELECT i AS place, finish_kinds[i] AS kind, l.request_id IS NOT NULL AS alive, d.* INTO h
      FROM (SELECT finish_ids[i] AS request_id) r
      LEFT JOIN holds l ON l.request_id = r.request_id
      LEFT JOIN receipts d ON d.request_id = r.request_id;
      IF h.alive THEN
        answer_outcome[h.place] := 'alive';
      ELSIF h.request_id IS NULL THEN
        answer_outcome[h.place] := 'unknown';
      ELSIF h.outcome = 'settled' THEN
        answer_outcome[h.place] := 'already';
        answer_charged[h.place] := h.charged_nano_usd;
        answer_short[h.place] := h.shortfall_nano_usd;
        answer_units[h.place] := h.units;
      ELSIF h.kind = 'settle' AND h.reason = 'overrun_refused' AND finish_strict[i] THEN
        answer_outcome[h.place] := 'refused'; -- the same answer again
      -- When the reply to a strict refusal was lost, the client got the response after all. Its settlement comes again, not strict.
      ELSIF h.kind <> 'settle' OR h.reason NOT IN ('lease_ended', 'overrun_refused') THEN
        answer_outcome[h.place] := 'gone';
      ELSE
        -- A late settlement. The receipt becomes settled. It takes the units and the money that were reserved as far as they are
        -- still available; the rest is the operator's loss.
        v_units := 0;
        v_extra := 0;
        v_tokens := finish_prompt[h.place]::bigint + finish_completion[h.place];
        IF h.mode = 'package' THEN
          SELECT * INTO v_package FROM packages p WHERE p.id = h.package_id;
          IF v_package.token_limit IS NOT NULL THEN
            v_tokens := greatest(0, least(v_tokens, package_tokens_left(v_package)));
          END IF;
          v_units := late_unit_left(h.package_id, h.day);
          IF v_units = 0 THEN v_tokens := 0; END IF;
          UPDATE packages p SET units_used = p.units_used + v_units, tokens_used = p.tokens_used + v_tokens WHERE p.id = h.package_id;
          UPDATE package_days d SET units_used = d.units_used + v_units WHERE d.package_id = h.package_id AND d.day = h.day;
        ELSE
          -- Not more than was reserved, unless the available balance covers the whole charge.
          SELECT CASE WHEN finish_charge[h.place] <= available THEN finish_charge[h.place] ELSE least(h.held_nano_usd, available) END INTO v_extra
          FROM (SELECT balance_nano_usd - held_nano_usd AS available FROM balances WHERE account_id = h.account_id) b;
          UPDATE balances b SET balance_nano_usd = b.balance_nano_usd - v_extra, tokens_used = b.tokens_used + v_tokens
          WHERE b.account_id = h.account_id;
          IF v_extra > 0 THEN
            INSERT INTO balance_entries (account_id, amount_nano_usd, kind, request_id) VALUES (h.account_id, -v_extra, 'charge', h.request_id);
          END IF;
        END IF;
        UPDATE key_days d SET units_used = d.units_used + 1, spent_nano_usd = d.spent_nano_usd + v_extra
        WHERE d.key_id = h.key_id AND d.day = h.key_day;
        UPDATE receipts d SET outcome = 'settled', reason = 'late', units = v_units, charged_nano_usd = v_extra,
          shortfall_nano_usd = finish_charge[h.place] - v_extra, prompt_tokens = finish_prompt[h.place], cached_tokens = finish_cached[h.place],
          completion_tokens = finish_completion[h.place], charged_tokens = v_tokens, estimated = finish_estimated[h.place],
          reported_usage = finish_reported[h.place]::jsonb, finished_at = p_now, written_in = DEFAULT
        WHERE d.request_id = h.request_id;
        answer_outcome[h.place] := 'settled';
        answer_charged[h.place] := v_extra;
        answer_short[h.place] := finish_charge[h.place] - v_extra;
        answer_units[h.place] := v_units;
      END IF;
    END LOOP;
    RETURN QUERY
    SELECT ARRAY[x], answer_outcome[x], coalesce(answer_charged[x], 0), coalesce(answer_short[x], 0), coalesce(answer_units[x], 0)
    FROM generate_series(1, n) AS x WHERE answer_outcome[x] IS NOT NULL;
  END IF;
END $$;
--> statement-breakpoint

-- One batch: take the locks, read the clock, end holds (this frees what the reservations may use), reserve. p_wait: wait for
-- accounts that are locked by others. locked_accounts, locked_tenants: the batch's accounts and their tenants, each once.
-- Returns rows with part 'finish' or 'reserve' and the places that the row is for.
CREATE FUNCTION ledger_batch(
  p_wait boolean, p_retry boolean, p_lease interval, locked_accounts bigint[], locked_tenants bigint[],
  finish_ids uuid[], finish_accounts bigint[], finish_kinds text[], finish_reasons text[], finish_prompt int[], finish_cached int[],
  finish_completion int[], finish_charge bigint[], finish_strict boolean[], finish_estimated boolean[], finish_reported text[],
  run_lasts int[], run_accounts bigint[], run_tenants bigint[], run_keys bigint[], run_hosts text[], run_own_hosts boolean[],
  run_models text[], run_output_pico bigint[], run_price_versions bigint[],
  request_ids uuid[], request_prompt_pico bigint[], request_cap_max int[], request_cap_min int[], request_token_bound bigint[]
) RETURNS TABLE (
  part text, places int[], outcome text, mode text, nano_usd bigint, shortfall_nano_usd bigint, units_or_cap int,
  quota_limit bigint, quota_used bigint, quota_remaining bigint, resets_at timestamptz
) LANGUAGE plpgsql
-- Every statement reads a few rows by key. Without these settings the planner would choose other plans, because the statistics of
-- `holds` change from empty to full of dead rows within moments. A generic plan, because planning takes longer than the batch.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_busy bigint[];
  v_now timestamptz;
BEGIN
  v_busy := lock_batch(locked_accounts, locked_tenants, p_wait);
  v_now := ledger_now();
  IF cardinality(finish_ids) > 0 THEN
    RETURN QUERY SELECT 'finish', f.places, f.outcome, NULL::text, f.charged_nano_usd, f.shortfall_nano_usd, f.units,
        NULL::bigint, NULL::bigint, NULL::bigint, NULL::timestamptz
      FROM ledger_finish(v_now, v_busy, finish_ids, finish_accounts, finish_kinds, finish_reasons, finish_prompt, finish_cached,
                         finish_completion, finish_charge, finish_strict, finish_estimated, finish_reported) f;
  END IF;
  IF cardinality(request_ids) > 0 THEN
    RETURN QUERY SELECT 'reserve', r.places, r.code, r.mode, r.held_nano_usd, 0::bigint, r.cap_tokens,
        r.quota_limit, r.quota_used, r.quota_remaining, r.resets_at
      FROM ledger_reserve(v_now, p_lease, p_retry, v_busy, run_lasts, run_accounts, run_tenants, run_keys, run_hosts,
                          run_own_hosts, run_models, run_output_pico, run_price_versions, request_ids, request_prompt_pico,
                          request_cap_max, request_cap_min, request_token_bound) r;
  END IF;
END $$;
--> statement-breakpoint

-- Renews the leases of the given holds. A lease that has ended is not renewed. Returns the renewed ones.
CREATE FUNCTION renew_leases(p_ids uuid[], p_lease interval) RETURNS SETOF uuid LANGUAGE sql AS $$
  UPDATE holds SET lease_ends_at = ledger_now() + p_lease
  WHERE request_id = ANY (p_ids) AND lease_ends_at > ledger_now() RETURNING request_id
$$;
--> statement-breakpoint

SELECT make_receipt_months(3);
