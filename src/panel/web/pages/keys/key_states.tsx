import { t } from "@lingui/core/macro";
import { KEY_BUDGETS } from "../../../../limits.ts";
import { formatDay, formatDuration } from "../../format.ts";
import type { OwnKey } from "../../shared/account_queries.ts";
import { nowMs } from "../../ui/clock.ts";
import { Status } from "../../ui/states.tsx";

/** In which state a key is: on or off, ended, unused, or at a limit of its own. */

const DAY_MS = 86_400_000;
/** After so many days without use, a key is marked as unused; a key that was never used, after a week. */
const UNUSED_DAYS = 30;
const NEVER_USED_DAYS = 7;
const ENDING_DAYS = 7;
/** The periods of its limits: what is spent in one, and its name after "12 of 50 left". */
export const PERIODS = {
  day: { label: t`Spending today`, name: t({ message: "today", context: "after: 12 of 50 left" }) },
  week: { label: t`Spending this week`, name: t({ message: "this week", context: "after: 12 of 50 left" }) },
  month: { label: t`Spending this month`, name: t({ message: "this month", context: "after: 12 of 50 left" }) },
  total: { label: t`Spending in total`, name: t({ message: "in total", context: "after: 12 of 50 left" }) },
} as const;
const VIEWER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function isLive({ status }: OwnKey): boolean {
  return status === "enabled" || status === "disabled";
}

/** The number of days without use; null if that is not long, or if the key is off or has ended. */
export function unusedDays({ status, lastUsedAt, createdAt }: OwnKey): number | null {
  if (status !== "enabled") return null;
  const days = Math.floor((nowMs() - Date.parse(lastUsedAt ?? createdAt)) / DAY_MS);
  return days >= (lastUsedAt === null ? NEVER_USED_DAYS : UNUSED_DAYS) ? days : null;
}

/** Whether the key has reached one of its own limits. */
export function isUsedUp(row: OwnKey): boolean {
  const { used, dailyUnitsMax } = row;
  if (used === null) return false;
  if (dailyUnitsMax !== null && used.units >= dailyUnitsMax) return true;
  return KEY_BUDGETS.some(({ field }) => row[field] !== null && BigInt(used.spentNanoUsd[field]) >= BigInt(row[field]));
}

export function KeyStatus({ row: { status, expiresAt } }: { row: OwnKey }) {
  if (status === "disabled") return <Status kind="disabled" />;
  if (status === "revoked" || status === "expired") return <Status kind={status} />;
  if (expiresAt === null) return <Status kind="active" />;
  const leftMs = Date.parse(expiresAt) - nowMs();
  if (leftMs < ENDING_DAYS * DAY_MS)
    return <Status kind="ending">{t`Ends in ${{ time: formatDuration(leftMs) }}`}</Status>;
  return <Status kind="active">{t`Active until ${{ day: formatDay(expiresAt, VIEWER_ZONE, nowMs()) }}`}</Status>;
}
