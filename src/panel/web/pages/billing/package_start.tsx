import { plural, t } from "@lingui/core/macro";
import { formatDay, formatTime, formatZoneTime } from "../../format.ts";
import { nowMs } from "../../ui/clock.ts";
import { ErrorLine } from "../../ui/states.tsx";
import { useBilling } from "./queries.ts";

/** "on 24 Dec at 00:00 Berlin time". */
export function startText({ startsAt, timeZone }: { startsAt: string; timeZone: string }): string {
  const day = formatDay(startsAt, timeZone, nowMs());
  return t`on ${day} at ${{ time: formatTime(startsAt, timeZone) }} ${{ zone: formatZoneTime(timeZone) }}`;
}

/**
 * The start of a package that is bought now. One package is active at a time, so it starts after all packages of the
 * viewer. Source: BUY-4.
 */
export function PackageStart() {
  const { data, error } = useBilling(null);
  if (data === undefined) return error ? <ErrorLine error={error} /> : "…";
  const live = data.packages.filter(({ state }) => state !== "ended");
  // The list begins with the one that ends last.
  const last = live[0];
  if (!last) return t`As soon as it is paid`;
  const { endsAt, timeZone, name } = last;
  const day = formatDay(endsAt, timeZone, nowMs());
  return (
    <span className="grid gap-1">
      <span className="font-medium">
        {t`On ${day} at ${{ time: formatTime(endsAt, timeZone) }} ${{ zone: formatZoneTime(timeZone) }}`}
      </span>
      <span className="text-ink-2">
        {live.length > 1
          ? t`After your ${plural({ count: live.length }, { one: "# package", other: "# packages" })}: packages run one after the other.`
          : t`When ${name} has ended: packages run one after the other.`}{" "}
        {t`If you need it sooner, ask before you pay.`}
      </span>
    </span>
  );
}
