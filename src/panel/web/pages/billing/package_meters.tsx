import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ReactNode } from "react";
import { formatCompact, formatCount, formatDay, formatReset } from "../../format.ts";
import { nowMs } from "../../ui/clock.ts";
import { Countdown, Meter } from "../../ui/meter.tsx";
import { Figure } from "../../ui/page.tsx";

/** The active package in meters: today's requests, the whole package, its tokens, and when it ends. */

type MeteredPackage = {
  carryover: boolean;
  dailyLimit: number;
  totalLimit: number;
  /** Requests that are used or reserved. */
  totalUsed: number;
  availableNow: number;
  tokenLimit: number | null;
  tokensUsed: number;
  timeZone: string;
  /** The next midnight that adds requests; null if there is none. */
  resetsAt: string | null;
  /** Requests that are available then; with carryover, how many it adds. */
  availableAtReset: number;
  endsAt: string;
};

export function PackageMeters({
  row,
  onTurn,
  note,
}: {
  row: MeteredPackage;
  /** Called when the day or the package ends: load again. */
  onTurn: () => void;
  /** Below the first meter. */
  note?: ReactNode;
}) {
  const { totalUsed, totalLimit, tokenLimit, timeZone, resetsAt, endsAt } = row;
  const available = Math.max(0, row.availableNow);
  // The length of the bar. The available requests are the server's figure.
  const limit = row.carryover ? totalUsed + available : row.dailyLimit;
  const more = row.availableAtReset;
  const count = formatCount(more);
  const time = resetsAt === null ? "" : formatReset(resetsAt, timeZone);
  return (
    <div className="grid gap-x-12 gap-y-8 sm:grid-cols-2 lg:grid-cols-3">
      <div className="grid content-start gap-1">
        <Meter
          label={t`Available now`}
          used={limit - available}
          limit={limit}
          unit={t`requests`}
          {...(resetsAt !== null &&
            more > 0 && {
              resets: row.carryover ? (
                <Trans>
                  +{count} in <Countdown to={resetsAt} onZero={onTurn} />, at {time}
                </Trans>
              ) : (
                <Trans>
                  Back to {count} in <Countdown to={resetsAt} onZero={onTurn} />, at {time}
                </Trans>
              ),
            })}
        />
        {note}
      </div>
      <Meter label={t`Whole package`} used={totalUsed} limit={totalLimit} unit={t`requests`} />
      {tokenLimit !== null && (
        <Meter label={t`Tokens`} used={row.tokensUsed} limit={tokenLimit} unit={t`tokens`} format={formatCompact} />
      )}
      <Figure label={t`Ends in`} note={`${formatDay(endsAt, timeZone, nowMs())}, ${formatReset(endsAt, timeZone)}`}>
        <Countdown to={endsAt} onZero={onTurn} />
      </Figure>
    </div>
  );
}
