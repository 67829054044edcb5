import { formatDay, formatOf, formatTime, formatZoneTime } from "../../format.ts";
import { nowMs } from "../../ui/clock.ts";
import { ErrorLine } from "../../ui/states.tsx";
import { useBilling } from "./queries.ts";

/** "on 24 Dec at 00:00 Berlin time". */
export function startText({ startsAt, timeZone }: { startsAt: string; timeZone: string }): string {
  const day = formatDay(startsAt, timeZone, nowMs());
  return `on ${day} at ${formatTime(startsAt, timeZone)} ${formatZoneTime(timeZone)}`;
}

function capital(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
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
  if (!last) return "As soon as it is paid";
  const { endsAt, timeZone, name } = last;
  return (
    <span className="grid gap-1">
      <span className="font-medium">{capital(startText({ startsAt: endsAt, timeZone }))}</span>
      <span className="text-ink-2">
        {live.length > 1 ? `After your ${formatOf(live.length, "package")}` : `When ${name} has ended`}: packages run
        one after the other. If you need it sooner, ask before you pay.
      </span>
    </span>
  );
}
