import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { KEY_BUDGETS, KEY_DAILY_REQUESTS, type KeyBudgetField, MONEY_USD_MAX } from "../../../../limits.ts";
import { formatMoney, formatZoneTime, parseUsd, toUsdInput } from "../../format.ts";
import type { OwnKey } from "../../shared/account_queries.ts";
import { checkCount, checkUsd, readCount } from "../../shared/typed_numbers.ts";
import { CountField, DollarField } from "../../ui/fields.tsx";
import type { FieldState } from "../../ui/form.tsx";

/** A key's own limits, for the forms that create and edit keys. They are kept as typed; an empty field is no limit. */

export type OwnLimits = Record<"dailyUnitsMax" | KeyBudgetField, string>;
export const OWN_LIMIT_FIELDS = ["dailyUnitsMax", ...KEY_BUDGETS.map(({ field }) => field)] as const;

/** A key's limit of each period: its field, and the limit in words. */
const PERIODS = {
  day: { label: t`Spending a day`, text: (amount: string) => t`${amount} a day` },
  week: { label: t`Spending a week`, text: (amount: string) => t`${amount} a week` },
  month: { label: t`Spending a month`, text: (amount: string) => t`${amount} a month` },
  total: { label: t`Spending in total`, text: (amount: string) => t`${amount} in total` },
} as const;

export const NO_OWN_LIMITS: OwnLimits = { dailyUnitsMax: "", ...budgets(() => "") };

export function typedOwnLimits(key: OwnKey): OwnLimits {
  const { dailyUnitsMax } = key;
  return {
    ...budgets((field) => (key[field] === null ? "" : toUsdInput(key[field]))),
    dailyUnitsMax: dailyUnitsMax === null ? "" : String(dailyUnitsMax),
  };
}

export function checkOwnLimits(typed: OwnLimits): Record<keyof OwnLimits, string | null> {
  const wrong = (usd: string) =>
    checkUsd(usd, { maxUsd: MONEY_USD_MAX, decimals: 9, optional: true }) ??
    (usd.trim() !== "" && parseUsd(usd) === "0" ? t`Enter more than $0, or leave it empty for no limit.` : null);
  return {
    ...budgets((field) => wrong(typed[field])),
    dailyUnitsMax: checkCount(typed.dailyUnitsMax, { ...KEY_DAILY_REQUESTS, optional: true }),
  };
}

/** Typed limits as the server takes them; null: no limit. */
export function readOwnLimits(typed: OwnLimits) {
  const amount = (usd: string) => (usd.trim() === "" ? null : parseUsd(usd));
  return { ...budgets((field) => amount(typed[field])), dailyUnitsMax: readCount(typed.dailyUnitsMax) };
}

/** "500 requests a day, $2.00 a month", or "none". */
export function ownLimitsText(typed: OwnLimits): string {
  const errors = checkOwnLimits(typed);
  const read = readOwnLimits(typed);
  const { dailyUnitsMax: requests } = read;
  const parts = [
    errors.dailyUnitsMax === null &&
      requests !== null &&
      plural(requests, { one: "# request a day", other: "# requests a day" }),
    ...KEY_BUDGETS.map(({ field, period }) => {
      const nanoUsd = read[field];
      return errors[field] === null && nanoUsd !== null && PERIODS[period].text(formatMoney(nanoUsd));
    }),
  ].filter(Boolean);
  return parts.length === 0 ? t({ message: "none", context: "limits" }) : parts.join(", ");
}

export function OwnLimitFields({
  field,
  zone,
}: {
  field: (name: keyof OwnLimits) => FieldState;
  /** The time zone of the days, weeks and months. */
  zone: string;
}) {
  return (
    <div className="grid gap-3">
      <div className="grid gap-3 sm:grid-cols-2">
        <CountField label={t`Requests a day`} optional {...field("dailyUnitsMax")} />
        {KEY_BUDGETS.map(({ field: name, period }) => (
          <DollarField key={name} label={PERIODS[period].label} optional {...field(name)} />
        ))}
      </div>
      <p className="text-12 text-ink-3">
        <Trans>
          The most that this key may use of the package and spend from the balance. Days begin at midnight in{" "}
          {{ zone: formatZoneTime(zone) }}, weeks on Monday. The total counts from the day on which you set it.
        </Trans>
      </p>
    </div>
  );
}

function budgets<Value>(read: (field: KeyBudgetField) => Value): Record<KeyBudgetField, Value> {
  const [day, week, month, total] = KEY_BUDGETS;
  return {
    [day.field]: read(day.field),
    [week.field]: read(week.field),
    [month.field]: read(month.field),
    [total.field]: read(total.field),
  };
}
