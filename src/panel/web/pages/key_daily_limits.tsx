import { KEY_DAILY_REQUESTS, MONEY_USD_MAX } from "../../../limits.ts";
import { formatMoney, formatOf, formatZoneTime, parseUsd, toUsdInput } from "../format.ts";
import { CountField, DollarField } from "../ui/fields.tsx";
import type { FieldState } from "../ui/form.tsx";
import type { OwnKey } from "./account_queries.ts";
import { checkCount, checkUsd, readCount } from "./typed_numbers.ts";

/** A key's own daily limits, for the forms that create and edit keys. They are kept as typed; an empty field is no limit. */

export type DailyLimits = { dailyUnitsMax: string; dailySpendMaxNanoUsd: string };
type LimitErrors = Record<keyof DailyLimits, string | null>;

export const NO_DAILY_LIMITS: DailyLimits = { dailyUnitsMax: "", dailySpendMaxNanoUsd: "" };

export function typedDailyLimits({ dailyUnitsMax, dailySpendMaxNanoUsd }: OwnKey): DailyLimits {
  return {
    dailyUnitsMax: dailyUnitsMax === null ? "" : String(dailyUnitsMax),
    dailySpendMaxNanoUsd: dailySpendMaxNanoUsd === null ? "" : toUsdInput(dailySpendMaxNanoUsd),
  };
}

export function checkDailyLimits({ dailyUnitsMax, dailySpendMaxNanoUsd: usd }: DailyLimits): LimitErrors {
  const isZero = usd.trim() !== "" && parseUsd(usd) === "0";
  return {
    dailyUnitsMax: checkCount(dailyUnitsMax, { ...KEY_DAILY_REQUESTS, optional: true }),
    dailySpendMaxNanoUsd:
      checkUsd(usd, { maxUsd: MONEY_USD_MAX, decimals: 9, optional: true }) ??
      (isZero ? "Enter more than $0, or leave it empty for no limit." : null),
  };
}

/** Typed limits as the server takes them; null: no limit. */
export function readDailyLimits({ dailyUnitsMax, dailySpendMaxNanoUsd: usd }: DailyLimits) {
  return {
    dailyUnitsMax: readCount(dailyUnitsMax),
    dailySpendMaxNanoUsd: usd.trim() === "" ? null : parseUsd(usd),
  };
}

/** "500 requests, $2.00", or "none". */
export function dailyLimitsText(typed: DailyLimits): string {
  const errors = checkDailyLimits(typed);
  const { dailyUnitsMax, dailySpendMaxNanoUsd } = readDailyLimits(typed);
  const parts = [
    errors.dailyUnitsMax === null && dailyUnitsMax !== null && formatOf(dailyUnitsMax, "request"),
    errors.dailySpendMaxNanoUsd === null && dailySpendMaxNanoUsd !== null && formatMoney(dailySpendMaxNanoUsd),
  ].filter(Boolean);
  return parts.length === 0 ? "none" : parts.join(", ");
}

export function DailyLimitFields({
  field,
  zone,
}: {
  field: (name: keyof DailyLimits) => FieldState;
  /** The time zone of the days. */
  zone: string;
}) {
  return (
    <div className="grid gap-3">
      <div className="grid gap-3 sm:grid-cols-2">
        <CountField label="Requests per day" optional {...field("dailyUnitsMax")} />
        <DollarField label="Spending per day" optional {...field("dailySpendMaxNanoUsd")} />
      </div>
      <p className="text-12 text-ink-3">
        The most that this key may use of the package and spend from the balance per day, in {formatZoneTime(zone)}.
      </p>
    </div>
  );
}
