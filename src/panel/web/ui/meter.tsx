import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { RotateCw, TriangleAlert } from "lucide-react";
import { type ReactNode, useEffect, useEffectEvent, useRef, useState } from "react";
import { formatCount, formatDuration, formatShare, formatUtc } from "../format.ts";
import { announce } from "./announce.ts";
import { nowMs, useNow } from "./clock.ts";
import { cx } from "./cx.ts";
import { inPlace } from "./in_place.tsx";

/**
 * How much is left, in figures and as a bar, and when more comes.
 *
 *   <Meter label="Available now" used={188} limit={500} unit="requests" resets={<Countdown to={resetsAt} onZero={refetch} />} />
 *   <Meter label="Package" used={3_188} limit={15_000} unit="requests" />     // without `resets`: never refills
 *   <Countdown to={iso} onZero={refetch} />                                   // "5 h 12 min", seconds in the last minute
 *
 * A limit that resets is one smooth bar with a turning arrow; one that does not is a strip of tickets. Both show what is left.
 */

/** Warns when this fraction or less is left. */
const WARN_SHARE = 0.2;
const TICKETS = 20;

export function Meter({
  label,
  used,
  limit,
  unit = "",
  resets,
  format = formatCount,
  size = "md",
  period = "",
}: {
  label: string;
  used: number;
  limit: number;
  /** "requests"; follows the figures. */
  unit?: string;
  /** When the limit resets. Without it, it does not. */
  resets?: ReactNode;
  format?: (amount: number) => string;
  /** "sm": one line, for tables. */
  size?: "md" | "sm";
  /** "today", "this month"; follows "left" in the line of a table. */
  period?: string;
}) {
  const left = Math.min(limit, Math.max(0, limit - used));
  const share = limit <= 0 ? 0 : left / limit;
  const level = share <= 0 ? "bad" : share <= WARN_SHARE ? "warn" : "fine";
  const shown = format(left);
  const most = format(limit);
  const words = unit === "" ? t`${shown} of ${most} left` : t`${shown} of ${most} ${unit} left`;
  const bar = (
    // biome-ignore lint/a11y/useSemanticElements: <meter> cannot be drawn as tickets.
    <div
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={limit}
      aria-valuenow={left}
      aria-valuetext={words}
      className={cx(size === "sm" ? "h-1.5" : "h-2", "w-full")}
    >
      {resets === undefined ? <Tickets share={share} level={level} size={size} /> : <Bar share={share} level={level} />}
    </div>
  );
  if (size === "sm") {
    return (
      <div className="grid min-w-28 gap-1">
        <span className={cx("text-12 tabular-nums", level === "fine" ? "text-ink-2" : LEVEL_TEXT[level])}>
          {period === "" ? t`${shown} of ${most} left` : t`${shown} of ${most} left ${period}`}
        </span>
        {bar}
      </div>
    );
  }
  return (
    <div className="grid min-w-0 content-start gap-2">
      <div className="text-12 font-medium text-ink-3">{label}</div>
      <div className="flex flex-wrap items-baseline gap-x-2">
        <Left {...{ shown, most, unit }} />
      </div>
      {bar}
      <Below share={share} level={level} resets={resets} />
    </div>
  );
}

/** "312 of 500 requests left", the first figure large. */
function Left({ shown, most, unit }: { shown: string; most: string; unit: string }) {
  return unit === "" ? (
    <Trans>
      <span className={LEFT}>{shown}</span>
      <span className={OF_LIMIT}>of {most} left</span>
    </Trans>
  ) : (
    <Trans>
      <span className={LEFT}>{shown}</span>
      <span className={OF_LIMIT}>
        of {most} {unit} left
      </span>
    </Trans>
  );
}

const LEFT = "text-28 font-semibold text-ink tabular-nums";
const OF_LIMIT = "text-13 text-ink-2 tabular-nums";

/** The line below the bar: a warning, and when the limit resets. */
function Below({ share, level, resets }: { share: number; level: Level; resets: ReactNode }) {
  return (
    <div className="flex min-h-5 flex-wrap items-baseline gap-x-3 text-13 text-ink-2">
      {level !== "fine" && (
        <span className={cx("inline-flex items-baseline gap-1.5 font-medium", LEVEL_TEXT[level])}>
          <TriangleAlert size={14} aria-hidden className="flex-none translate-y-0.5" />
          {level === "bad" ? t`Used up` : t`${{ share: formatShare(Math.max(1, Math.floor(share * 100)) / 100) }} left`}
        </span>
      )}
      {resets === undefined ? (
        <span className="text-ink-3">
          <Trans>Does not reset</Trans>
        </span>
      ) : (
        <span className="flex items-baseline gap-1.5">
          <RotateCw size={14} aria-hidden className="flex-none translate-y-0.5 text-ink-3" />
          <span>{resets}</span>
        </span>
      )}
    </div>
  );
}

type Level = "fine" | "warn" | "bad";
const LEVEL_FILL: Record<Level, string> = { fine: "bg-accent", warn: "bg-warn", bad: "bg-bad-fill" };
const LEVEL_TEXT: Record<Level, string> = { fine: "text-ink", warn: "text-warn", bad: "text-bad" };

function Bar({ share, level }: { share: number; level: Level }) {
  return (
    <div className="h-full overflow-hidden rounded-full bg-sunken ring-1 ring-edge/40 ring-inset">
      <div
        className={cx(
          "h-full rounded-full forced-color-adjust-none transition-[width] duration-[180ms]",
          LEVEL_FILL[level],
        )}
        style={{ width: `${share * 100}%` }}
      />
    </div>
  );
}

function Tickets({ share, level, size }: { share: number; level: Level; size: "md" | "sm" }) {
  const count = size === "sm" ? TICKETS / 2 : TICKETS;
  return (
    <div className="flex h-full gap-0.5">
      {inPlace(Array.from({ length: count }), (_, ticket) => {
        const filled = Math.min(1, Math.max(0, share * count - ticket));
        return (
          <span className="h-full flex-1 overflow-hidden rounded-[2px] bg-sunken ring-1 ring-edge/40 ring-inset">
            {filled > 0 && (
              <span
                className={cx("block h-full forced-color-adjust-none", LEVEL_FILL[level])}
                style={{ width: `${filled * 100}%` }}
              />
            )}
          </span>
        );
      })}
    </div>
  );
}

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
/** A screen reader is told when this much is left, and at the end. */
const SPOKEN_MS = [60 * MINUTE_MS, 5 * MINUTE_MS];
/** `onZero` is called this much after zero, so that the server's day has certainly ended. */
const AFTER_ZERO_MS = 500;

/** Time until a moment, by the server's clock. Calls `onZero` once when it is reached. */
export function Countdown({ to, onZero, zeroText = t`now` }: { to: string; onZero?: () => void; zeroText?: string }) {
  const endsAtMs = Date.parse(to);
  const [isLastMinute, setLastMinute] = useState(endsAtMs - nowMs() <= MINUTE_MS);
  const now = useNow(isLastMinute ? SECOND_MS : MINUTE_MS / 4);
  const leftMs = endsAtMs - (isLastMinute ? now : Math.max(now, nowMs()));
  useEffect(() => setLastMinute(leftMs <= MINUTE_MS + MINUTE_MS / 4), [leftMs]);

  useSpoken(leftMs);
  const atZero = useEffectEvent(() => onZero?.());
  useEffect(() => {
    const waitMs = endsAtMs - nowMs();
    // A moment that has passed before is not reported. A timer can wait 24 days at most.
    if (waitMs <= 0 || waitMs > 2 ** 31 - 1) return;
    const timer = setTimeout(() => atZero(), waitMs + AFTER_ZERO_MS);
    return () => clearTimeout(timer);
  }, [endsAtMs]);

  return (
    <span role="timer">
      <time dateTime={to} title={formatUtc(to)}>
        {leftMs > 0 ? formatDuration(leftMs) : zeroText}
      </time>
    </span>
  );
}

/** Announces the time left when it passes one of the marks. */
function useSpoken(leftMs: number): void {
  const before = useRef(leftMs);
  useEffect(() => {
    const mark = [...SPOKEN_MS, 0].find((each) => before.current > each && leftMs <= each);
    before.current = leftMs;
    if (mark !== undefined) announce(mark === 0 ? t`Time is up.` : t`${{ time: formatDuration(mark) }} left.`);
  }, [leftMs]);
}
