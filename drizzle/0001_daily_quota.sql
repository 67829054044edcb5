-- THE RULE OF THE DAILY QUOTA. It is only here: `ledger_draw` decides with these functions, late settlements and the checks of
-- the books use them, and the API and the panel show `package_quota`. Source: QUO-2, QUO-4, QUO-5.
--
-- Days are calendar days in the package's time zone. What is taken is used, or drawn by a replica: both count as used.

-- The clock of all rules: the database's time now, not at the start of the transaction. Tests replace this function.
CREATE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$;
--> statement-breakpoint

-- The instant when a calendar day begins in a time zone. When clocks are set back over midnight, that day's midnight occurs
-- twice: AT TIME ZONE returns the second, but the day began with the first, right after the day before. When clocks skip the last
-- hour of the day before, its end does not exist and AT TIME ZONE returns a time one hour late. So: the earlier of the two.
CREATE FUNCTION day_begins(p_day date, p_zone text) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT least(p_day::timestamp AT TIME ZONE p_zone,
               (p_day::timestamp - interval '1 microsecond') AT TIME ZONE p_zone + interval '1 microsecond')
$$;
--> statement-breakpoint

-- Units that a package has granted for requests of a day. Standard: that day's limit. Carryover: the daily limit of every day
-- from the first to this one, together.
CREATE FUNCTION package_granted(p packages, p_day date) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p.carryover THEN p.daily_limit * least(p_day - p.first_day + 1, p.days) ELSE p.daily_limit END
$$;
--> statement-breakpoint

-- Units left of them. p_day_units: what that day has used. Carryover counts the units of all days.
CREATE FUNCTION package_day_left(p packages, p_day date, p_day_units int) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT package_granted(p, p_day) - CASE WHEN p.carryover THEN p.units_taken ELSE p_day_units END
$$;
--> statement-breakpoint

-- Units left of the whole package.
CREATE FUNCTION package_total_left(p packages) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT p.total_limit - p.units_taken
$$;
--> statement-breakpoint

-- Tokens left of the token allowance; null: the package has none.
CREATE FUNCTION package_tokens_left(p packages) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT p.token_limit - p.tokens_taken
$$;
--> statement-breakpoint

-- Tokens of the allowance that are used for good: not what running requests have reserved.
CREATE FUNCTION package_tokens_spent(p_package bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT p.tokens_taken - coalesce((SELECT sum(e.tokens) FROM escrows e WHERE e.account_id = p.account_id AND e.package_id = p.id), 0)::bigint
  FROM packages p WHERE p.id = p_package
$$;
--> statement-breakpoint

-- Units left for requests of a day: of the day, and of the whole package.
CREATE FUNCTION package_left(p packages, p_day date, p_day_units int) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT least(package_total_left(p), package_day_left(p, p_day, p_day_units))
$$;
--> statement-breakpoint

-- Units that become available at the midnight after a day. 0 when the package ends before, when its tokens or its units are used
-- up, and on the last day of a carryover package.
CREATE FUNCTION package_left_at_reset(p packages, p_day date) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN package_tokens_left(p) <= 0 OR day_begins(p_day + 1, p.time_zone) >= p.ends_at THEN 0
    WHEN p.carryover THEN package_left(p, p_day + 1, 0) - package_left(p, p_day, 0)
    ELSE package_left(p, p_day + 1, 0) END
$$;
--> statement-breakpoint

-- When more becomes available: that midnight; null: never.
CREATE FUNCTION package_resets_at(p packages, p_day date) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN package_left_at_reset(p, p_day) > 0 THEN day_begins(p_day + 1, p.time_zone) END
$$;
--> statement-breakpoint

-- Units that replicas have drawn ahead and that no request uses (src/ledger/README.md). To people they are left, not used. Source: ESC-7.
CREATE FUNCTION package_idle(p_account bigint, p_package bigint, p_day date) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(least(idle_units, units)), 0)::int FROM escrows
  WHERE account_id = p_account AND package_id = p_package AND (p_day IS NULL OR day = p_day)
$$;
--> statement-breakpoint

-- Units that replicas have drawn and no request has used for good. What is taken beyond them is used.
CREATE FUNCTION package_drawn(p packages) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(units), 0)::int FROM escrows WHERE account_id = p.account_id AND package_id = p.id
$$;
--> statement-breakpoint

-- Tokens of a package, for people: reserved ones of an allowance included.
CREATE FUNCTION package_tokens_shown(p packages) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT p.tokens_taken + coalesce(sum(used_tokens), 0)::bigint FROM escrows WHERE account_id = p.account_id AND package_id = p.id
$$;
--> statement-breakpoint

-- The same package as if they had been given back.
CREATE FUNCTION package_as_shown(p packages) RETURNS packages LANGUAGE plpgsql STABLE AS $$
BEGIN
  p.units_taken := p.units_taken - package_idle(p.account_id, p.id, NULL);
  RETURN p;
END $$;
--> statement-breakpoint

-- All figures of a package at one moment, for the API and the panel. `granted` and `used` are of today, with carryover of all days
-- so far; `left_now` is never above `left_total`.
CREATE FUNCTION package_quota(p packages, p_now timestamptz) RETURNS TABLE (
  days_begun int, granted int, used int, used_today int, left_now int, left_total int, tokens_left bigint,
  resets_at timestamptz, left_at_reset int
) LANGUAGE sql STABLE AS $$
  SELECT least(t.today - p.first_day + 1, p.days), package_granted(s, t.today),
    package_granted(s, t.today) - package_day_left(s, t.today, d.units), d.units, package_left(s, t.today, d.units),
    package_total_left(s), package_tokens_left(s), package_resets_at(s, t.today), package_left_at_reset(s, t.today)
  FROM (SELECT (p_now AT TIME ZONE p.time_zone)::date AS today, package_as_shown(p) AS s OFFSET 0) t
  CROSS JOIN LATERAL (
    SELECT (coalesce(sum(units_taken), 0) - package_idle(p.account_id, p.id, t.today))::int AS units
    FROM package_days WHERE package_id = p.id AND day = t.today
  ) d
$$;
--> statement-breakpoint

-- 1 if a unit is left for a late settlement of p_day, else 0. With carryover every day from p_day on must have room, because a
-- unit used on one day is gone on all later days.
CREATE FUNCTION late_unit_left(p_package bigint, p_day date) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT count(*)::int FROM packages p JOIN package_days d ON d.package_id = p.id AND d.day = p_day
  WHERE p.id = p_package AND package_total_left(p) > 0 AND CASE WHEN p.carryover
    THEN NOT EXISTS (
      SELECT FROM (SELECT x.day, sum(x.units_taken) OVER (ORDER BY x.day) AS so_far
                   FROM package_days x WHERE x.package_id = p.id) sums
      WHERE sums.day >= p_day AND sums.so_far >= package_granted(p, sums.day))
    ELSE package_day_left(p, p_day, d.units_taken) > 0 END
$$;
