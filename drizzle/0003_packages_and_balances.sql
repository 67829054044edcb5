-- What people change: packages and balances. Each function takes the accounts' locks first. Source: MON-2, RES-1, RES-3.

-- The end of a package: the same local time, that many calendar days later. Not 24-hour steps.
CREATE FUNCTION package_end(p_start timestamptz, p_days int, p_zone text) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT ((p_start AT TIME ZONE p_zone) + make_interval(days => p_days)) AT TIME ZONE p_zone
$$;
--> statement-breakpoint

-- Moves the queued packages of an account, in their order, so that the first starts at p_from. They have not begun: nothing is counted yet.
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

-- Whether a replica has drawn money of this account that no request uses. It counts as reserved until its holder returns it.
CREATE FUNCTION has_idle_money(p_account bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM escrows WHERE account_id = p_account AND idle_nano_usd > 0)
$$;
--> statement-breakpoint

-- The reserved amount of a balance, without what replicas have drawn ahead and no request uses. To people that is available.
CREATE FUNCTION reserved_as_shown(b balances) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT b.held_nano_usd - coalesce(sum(least(idle_nano_usd, nano_usd)), 0)::bigint FROM escrows
  WHERE account_id = b.account_id AND package_id = 0 AND key_id = 0
$$;
--> statement-breakpoint

-- Assigns an offering. p_when: now (replaces the active package and drops what was left of it) or after (behind
-- all others). p_payer pays the wholesale price from its available balance, or gives a piece of its allotment; null: the operator
-- pays. p_reason is kept with the payer's transaction. p_price: what the account pays its seller; null: not known. The package keeps
-- what a unit is worth (MON-21). Returns the package, or a code: not_found, insufficient_balance,
-- allotment_used_up, idle (money lies unused in an escrow).
CREATE FUNCTION assign_package(p_account bigint, p_offering bigint, p_when text, p_payer bigint, p_actor bigint,
  p_from_allotment boolean DEFAULT false, p_reason text DEFAULT NULL, p_price bigint DEFAULT NULL,
  OUT code text, OUT package_id bigint, OUT free_nano_usd bigint) LANGUAGE plpgsql AS $$
DECLARE
  v_now timestamptz;
  v_start timestamptz;
  v_allotment bigint;
  v_price bigint;
  v_is_resold boolean;
  v_share bigint;
  f record;
BEGIN
  PERFORM lock_accounts(ARRAY[p_account, p_payer]);
  v_now := ledger_now();
  SELECT * INTO f FROM offerings WHERE id = p_offering AND enabled;
  SELECT reseller_id IS NOT NULL INTO v_is_resold FROM accounts WHERE id = p_account;
  IF f.id IS NULL OR v_is_resold IS NULL THEN
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
      code := CASE WHEN has_idle_money(p_payer) THEN 'idle' ELSE 'insufficient_balance' END;
      SELECT balance_nano_usd - held_nano_usd INTO free_nano_usd FROM balances WHERE account_id = p_payer;
      RETURN;
    END IF;
  END IF;

  IF p_when = 'now' THEN
    UPDATE packages SET ends_at = v_now, ended_early = 'replaced'
    WHERE account_id = p_account AND starts_at <= v_now AND ends_at > v_now;
    v_start := v_now;
  ELSE
    SELECT greatest(v_now, max(ends_at)) INTO v_start FROM packages WHERE account_id = p_account;
  END IF;
  -- The operator's share: the wholesale price that was paid, and what an account without a reseller pays it.
  v_share := v_price + CASE WHEN v_is_resold THEN 0 ELSE coalesce(p_price, 0) END;
  INSERT INTO packages (account_id, offering_id, name, starts_at, ends_at, first_day, days, time_zone, daily_limit, total_limit,
    carryover, token_limit, limits, request_bounds, model_ids, paid_by_account_id, allotment_id, unit_nano_usd, unit_cost_nano_usd)
  VALUES (p_account, f.id, f.name, v_start, package_end(v_start, f.days, f.time_zone), (v_start AT TIME ZONE f.time_zone)::date,
    f.days, f.time_zone, f.daily_limit, f.total_limit, f.carryover, f.token_limit, f.limits, f.request_bounds, f.model_ids, p_payer, v_allotment,
    CASE WHEN v_is_resold THEN coalesce(p_price, 0) ELSE v_share END / f.total_limit, v_share / f.total_limit)
  RETURNING id INTO package_id;
  IF p_when = 'now' THEN
    PERFORM requeue_packages(p_account, v_now, (SELECT ends_at FROM packages WHERE id = assign_package.package_id));
  END IF;
  IF v_price > 0 THEN
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, package_id, reason, actor_id)
    VALUES (p_payer, -v_price, 'wholesale', assign_package.package_id, p_reason, p_actor);
  END IF;
END $$;
--> statement-breakpoint

-- Ends an active or queued package now; later ones move up. Returns false if there is no such package or it has ended.
CREATE FUNCTION end_package(p_account bigint, p_package bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_now timestamptz;
  v_from timestamptz;
BEGIN
  PERFORM lock_accounts(ARRAY[p_account]);
  v_now := ledger_now();
  UPDATE packages SET starts_at = least(starts_at, v_now), ends_at = v_now, ended_early = 'ended'
  WHERE id = p_package AND account_id = p_account AND ends_at > v_now;
  IF NOT FOUND THEN RETURN false; END IF;
  SELECT coalesce(max(ends_at), v_now) INTO v_from FROM packages WHERE account_id = p_account AND starts_at <= v_now AND ends_at > v_now;
  PERFORM requeue_packages(p_account, v_now, v_from);
  RETURN true;
END $$;
--> statement-breakpoint

-- Adds to a balance. A correction may subtract, but never below the reserved amount. Returns the new balance, or null and a code:
-- refused, or idle (money lies unused in an escrow).
CREATE FUNCTION add_balance(p_account bigint, p_nano_usd bigint, p_kind text, p_reason text, p_actor bigint,
  OUT code text, OUT balance bigint) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lock_accounts(ARRAY[p_account]);
  UPDATE balances SET balance_nano_usd = balance_nano_usd + p_nano_usd
  WHERE account_id = p_account AND balance_nano_usd + p_nano_usd >= held_nano_usd
  RETURNING balance_nano_usd INTO balance;
  IF FOUND THEN
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, reason, actor_id)
    VALUES (p_account, p_nano_usd, p_kind, p_reason, p_actor);
  ELSE
    code := CASE WHEN has_idle_money(p_account) THEN 'idle' ELSE 'refused' END;
  END IF;
END $$;
--> statement-breakpoint

-- Moves money between two balances: a reseller's top-up of its customer. Returns null, or a code: not_found (one of them has
-- no balance, or both are the same account), insufficient_balance, idle (money lies unused in an escrow). The table's check refuses a balance above its limit.
CREATE FUNCTION transfer_balance(p_from bigint, p_to bigint, p_nano_usd bigint, p_reason text, p_actor bigint,
  OUT code text, OUT free_nano_usd bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF p_nano_usd <= 0 THEN RAISE EXCEPTION 'a transfer is above zero'; END IF;
  PERFORM lock_accounts(ARRAY[p_from, p_to]);
  SELECT balance_nano_usd - held_nano_usd INTO free_nano_usd FROM balances WHERE account_id = p_from;
  IF NOT FOUND OR p_from = p_to OR NOT EXISTS (SELECT FROM balances WHERE account_id = p_to) THEN
    code := 'not_found';
  ELSIF free_nano_usd < p_nano_usd THEN
    code := CASE WHEN has_idle_money(p_from) THEN 'idle' ELSE 'insufficient_balance' END;
  ELSE
    UPDATE balances SET balance_nano_usd = balance_nano_usd - p_nano_usd WHERE account_id = p_from;
    UPDATE balances SET balance_nano_usd = balance_nano_usd + p_nano_usd WHERE account_id = p_to;
    INSERT INTO balance_entries (account_id, amount_nano_usd, kind, counterpart_id, reason, actor_id)
    VALUES (p_from, -p_nano_usd, 'transfer', p_to, p_reason, p_actor), (p_to, p_nano_usd, 'transfer', p_from, p_reason, p_actor);
    free_nano_usd := free_nano_usd - p_nano_usd;
  END IF;
END $$;
--> statement-breakpoint

-- Switches pay-as-you-go on or off. Returns false if there is no such account.
CREATE FUNCTION set_payg(p_account bigint, p_enabled boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lock_accounts(ARRAY[p_account]);
  UPDATE balances SET payg_enabled = p_enabled WHERE account_id = p_account;
  RETURN FOUND;
END $$;
