import { BarChart3, Table2 } from "lucide-react";
import { type KeyboardEvent, type PointerEvent, useEffect, useId, useRef, useState } from "react";
import { formatCalendarDay, formatCompact, formatCount, formatOf, formatZoneTime } from "../format.ts";
import { Button } from "./buttons.tsx";
import { fillOf, type Look, looksOf, Swatch, Textures } from "./chart_looks.tsx";
import { ScrollingTable } from "./scrolling.tsx";

/**
 * Amounts by day, one bar a day, stacked by model, key or host: the five largest and "Other".
 *
 *   <DayChart
 *     title="Requests by model" unit="requests" zone="Europe/Berlin"
 *     days={["2026-11-21", …]}
 *     series={[{ name: "model-a", place: 0, values: [120, …] }]}       // one value a day
 *     format={formatCount}
 *   />
 *
 * Days are calendar days of the zone, which the chart names. Arrow keys, Home and End move from day to day; "Show as table" has
 * every number. Drawn as SVG with the page's own colours, so that it follows the theme and needs no library.
 */

/** `place`: a number that belongs to this series on every page; its colour follows from it. */
export type Series = { name: string; place: number; values: readonly number[] };
type Shown = { name: string; values: readonly number[]; look: Look };

const SERIES_MAX = 5;
const OTHER = "Other";
const HEIGHT = 220;
const PAD = { top: 8, right: 0, bottom: 24, left: 44 };
const GRID_LINES = 4;
const BAR_MAX = 32;
const LABEL_WIDTH = 56;
const TIP_WIDTH = 192;

export function DayChart({
  title,
  unit,
  zone,
  days,
  series,
  format = formatCount,
  formatAxis = formatCompact,
}: {
  title: string;
  /** "requests", "tokens". */
  unit: string;
  zone: string;
  days: readonly string[];
  series: readonly Series[];
  format?: (amount: number) => string;
  formatAxis?: (amount: number) => string;
}) {
  const [isTable, setTable] = useState(false);
  const chartId = useId();
  const shown = largest(series, days.length);
  return (
    <figure className="grid min-w-0 gap-3">
      <figcaption>
        <span className="sr-only">{title}</span>
        <svg aria-hidden width={0} height={0} className="absolute">
          <Textures chartId={chartId} looks={shown.map(({ look }) => look)} />
        </svg>
        <Legend series={shown} chartId={chartId} />
      </figcaption>
      {isTable ? (
        <NumbersTable title={title} days={days} series={shown} format={format} />
      ) : (
        <Bars {...{ title, unit, days, chartId, format, formatAxis }} series={shown} />
      )}
      <div className="-mb-2 flex flex-wrap items-center justify-between gap-x-4">
        <p className="text-12 text-ink-3">
          {formatOf(days.length, "day")} in {formatZoneTime(zone)}
        </p>
        <Button
          variant="quiet"
          size="sm"
          icon={isTable ? BarChart3 : Table2}
          onClick={() => setTable(!isTable)}
          className="-mr-3"
        >
          {isTable ? "Show as chart" : "Show as table"}
        </Button>
      </div>
    </figure>
  );
}

/** The largest series by their sums, and the rest as one series. */
function largest(series: readonly Series[], days: number): Shown[] {
  const sum = ({ values }: Series) => values.reduce((total, value) => total + value, 0);
  const sorted = [...series].sort((a, b) => sum(b) - sum(a));
  const rest = sorted.slice(SERIES_MAX);
  const values = Array.from({ length: days }, (_, day) =>
    rest.reduce((total, each) => total + (each.values[day] ?? 0), 0),
  );
  const shown = [...sorted.slice(0, SERIES_MAX), ...(rest.length > 0 ? [{ name: OTHER, place: null, values }] : [])];
  const looks = looksOf(shown.map(({ place }) => place));
  return shown.flatMap(({ name, values }, index) => {
    const look = looks[index];
    return look ? [{ name, values, look }] : [];
  });
}

function Legend({ series, chartId }: { series: readonly Shown[]; chartId: string }) {
  return (
    <ul className="flex min-w-0 flex-wrap gap-x-4 gap-y-1 text-13 text-ink-2">
      {series.map(({ name, look }) => (
        <li key={name} className="flex min-w-0 items-center gap-1.5">
          <Swatch look={look} chartId={chartId} />
          <span className="truncate">{name}</span>
        </li>
      ))}
    </ul>
  );
}

type BarsProps = {
  title: string;
  unit: string;
  days: readonly string[];
  series: readonly Shown[];
  chartId: string;
  format: (amount: number) => string;
  formatAxis: (amount: number) => string;
};

/** Positions in the drawing, in pixels. */
function plotOf({ days, totals, width }: { days: number; totals: readonly number[]; width: number }) {
  const top = niceTop(Math.max(0, ...totals));
  const plot = { width: Math.max(0, width - PAD.left - PAD.right), height: HEIGHT - PAD.top - PAD.bottom };
  const step = days === 0 ? 0 : plot.width / days;
  return {
    ...plot,
    top,
    step,
    bar: Math.max(1, Math.min(BAR_MAX, step * 0.72)),
    /** The left edge of a day. */
    x: (day: number) => PAD.left + step * day,
    y: (amount: number) => PAD.top + plot.height * (1 - amount / top),
    /** The day at a distance from the left edge of the drawing, or null. */
    dayAt: (left: number) => {
      const day = Math.floor((left - PAD.left) / Math.max(1, step));
      return day >= 0 && day < days ? day : null;
    },
  };
}
type Plot = ReturnType<typeof plotOf>;

function Bars(props: BarsProps) {
  const { title, unit, days, series, chartId, format, formatAxis } = props;
  const hintId = useId();
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [active, setActive] = useState<number | null>(null);
  const { tabStop, setTabStop, onKeyDown } = useDayKeys(days.length, box, () => setActive(null));
  const totals = days.map((_, day) => series.reduce((total, { values }) => total + (values[day] ?? 0), 0));
  const plot = plotOf({ days: days.length, totals, width });
  const point = (event: PointerEvent<SVGSVGElement>) =>
    setActive(plot.dayAt(event.clientX - event.currentTarget.getBoundingClientRect().left));
  return (
    <div ref={box} className="relative min-w-0">
      <span id={hintId} className="sr-only">
        Arrow keys move from day to day.
      </span>
      {/* biome-ignore lint/a11y/useSemanticElements: a drawing has no fieldset. */}
      <svg
        width={width}
        height={HEIGHT}
        role="group"
        aria-label={title}
        aria-describedby={hintId}
        className="block touch-pan-y overflow-visible"
        onPointerMove={point}
        onPointerDown={point}
        onPointerLeave={() => setActive(null)}
        onKeyDown={onKeyDown}
      >
        <Axes {...{ plot, days, width, formatAxis }} />
        {days.map((day, index) => (
          <DayBar
            key={day}
            {...{ index, plot, series, chartId }}
            isActive={active === index}
            isTabStop={index === tabStop}
            label={spoken(day, totals[index] ?? 0, series, index, unit, format)}
            onFocus={() => {
              setActive(index);
              setTabStop(index);
            }}
            onBlur={() => setActive(null)}
          />
        ))}
      </svg>
      {active !== null && (
        <Tip
          x={besideBar(plot.x(active) + plot.step / 2, plot.bar, width)}
          day={days[active] ?? ""}
          index={active}
          series={series}
          total={totals[active] ?? 0}
          unit={unit}
          format={format}
          chartId={chartId}
        />
      )}
    </div>
  );
}

/** One tab stop for all days; arrow keys, Home and End move it, Esc hides the tip. */
function useDayKeys(days: number, box: React.RefObject<HTMLDivElement | null>, onEscape: () => void) {
  const [tabStop, setTabStop] = useState(Math.max(0, days - 1));
  const onKeyDown = (event: KeyboardEvent) => {
    const last = days - 1;
    const next = { ArrowRight: Math.min(last, tabStop + 1), ArrowLeft: Math.max(0, tabStop - 1), Home: 0, End: last }[
      event.key
    ];
    if (event.key === "Escape") onEscape();
    if (next === undefined) return;
    event.preventDefault();
    setTabStop(next);
    box.current?.querySelector<SVGGElement>(`[data-day="${next}"]`)?.focus();
  };
  return { tabStop, setTabStop, onKeyDown };
}

function Axes({
  plot,
  days,
  width,
  formatAxis,
}: {
  plot: Plot;
  days: readonly string[];
  width: number;
  formatAxis: (amount: number) => string;
}) {
  const { y } = plot;
  return (
    <g aria-hidden>
      {ticksOf(plot.top).map((amount) => (
        <g key={amount}>
          <line
            x1={PAD.left}
            x2={width}
            y1={Math.round(y(amount)) + 0.5}
            y2={Math.round(y(amount)) + 0.5}
            stroke={amount === 0 ? "var(--edge)" : "var(--line)"}
          />
          <text x={PAD.left - 8} y={y(amount) + 4} textAnchor="end" className="fill-ink-3 text-12 tabular-nums">
            {formatAxis(amount)}
          </text>
        </g>
      ))}
      {dayLabels(days.length, width, plot).map(({ day, middle }) => (
        <text key={day} x={middle} y={HEIGHT - 6} textAnchor="middle" className="fill-ink-3 text-12 tabular-nums">
          {formatCalendarDay(days[day] ?? "")}
        </text>
      ))}
    </g>
  );
}

function DayBar({
  index,
  plot,
  series,
  chartId,
  isActive,
  isTabStop,
  label,
  onFocus,
  onBlur,
}: {
  index: number;
  plot: Plot;
  series: readonly Shown[];
  chartId: string;
  isActive: boolean;
  isTabStop: boolean;
  label: string;
  onFocus: () => void;
  onBlur: () => void;
}) {
  const { x, y, step, bar, height } = plot;
  return (
    // biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: a day is read, not activated.
    <g
      data-day={index}
      role="img"
      tabIndex={isTabStop ? 0 : -1}
      aria-label={label}
      onFocus={onFocus}
      onBlur={onBlur}
      className="outline-none"
    >
      <rect
        x={x(index)}
        y={PAD.top}
        width={step}
        height={height}
        fill={isActive ? "var(--hover)" : "transparent"}
        className="[g:focus-visible>&]:stroke-focus [g:focus-visible>&]:stroke-2"
      />
      <Stack {...{ index, series, chartId, y }} x={x(index) + (step - bar) / 2} width={bar} />
    </g>
  );
}

/** One day's bar, the largest series at the bottom, with gaps between the pieces, so that they differ not only by colour. */
function Stack({
  index,
  series,
  chartId,
  x,
  width,
  y,
}: {
  index: number;
  series: readonly Shown[];
  chartId: string;
  x: number;
  width: number;
  y: (amount: number) => number;
}) {
  let below = 0;
  return series.map(({ name, values, look }, at) => {
    const amount = values[index] ?? 0;
    const from = y(below);
    below += amount;
    const height = from - y(below);
    if (height <= 0) return null;
    const gap = at > 0 && height > 2 ? 1 : 0;
    return (
      <rect
        key={name}
        x={x}
        y={y(below)}
        width={width}
        height={Math.max(0.5, height - gap)}
        rx={1}
        fill={fillOf(look, chartId)}
        className="forced-color-adjust-none"
      />
    );
  });
}

function Tip({
  x,
  day,
  index,
  series,
  chartId,
  total,
  unit,
  format,
}: {
  x: number;
  day: string;
  index: number;
  series: readonly Shown[];
  chartId: string;
  total: number;
  unit: string;
  format: (amount: number) => string;
}) {
  return (
    <div
      aria-hidden
      className="pointer-events-none absolute top-0 z-10 w-48 animate-fade rounded-md bg-raised p-3 text-12 shadow-overlay"
      style={{ left: x }}
    >
      <div className="mb-1 flex justify-between gap-3 font-semibold">
        <span>{formatCalendarDay(day)}</span>
        <span className="tabular-nums">
          {format(total)} {unit}
        </span>
      </div>
      {series.map(({ name, values, look }) =>
        (values[index] ?? 0) === 0 ? null : (
          <div key={name} className="flex items-center gap-2 text-ink-2">
            <Swatch look={look} chartId={chartId} />
            <span className="min-w-0 flex-1 truncate">{name}</span>
            <span className="tabular-nums">{format(values[index] ?? 0)}</span>
          </div>
        ),
      )}
    </div>
  );
}

/** Left edge of the tip: right of the bar if there is room, else left of it, always inside the drawing. */
function besideBar(middle: number, bar: number, width: number): number {
  const gap = bar / 2 + 8;
  const right = middle + gap;
  return right + TIP_WIDTH <= width ? right : Math.max(0, middle - gap - TIP_WIDTH);
}

function NumbersTable({ title, days, series, format }: Pick<BarsProps, "title" | "days" | "series" | "format">) {
  return (
    <ScrollingTable
      label={title}
      className="text-13"
      head={
        <>
          <th scope="col" className="text-left font-medium">
            Day
          </th>
          {series.map(({ name }) => (
            <th key={name} scope="col" className="text-right font-medium">
              {name}
            </th>
          ))}
          <th scope="col" className="text-right font-medium">
            All
          </th>
        </>
      }
    >
      {days.map((day, index) => (
        <tr key={day} className="border-t border-line">
          <th scope="row" className="text-left font-medium whitespace-nowrap">
            {formatCalendarDay(day)}
          </th>
          {series.map(({ name, values }) => (
            <td key={name} className="text-right">
              {format(values[index] ?? 0)}
            </td>
          ))}
          <td className="text-right font-medium">
            {format(series.reduce((total, { values }) => total + (values[index] ?? 0), 0))}
          </td>
        </tr>
      ))}
    </ScrollingTable>
  );
}

function spoken(
  day: string,
  total: number,
  series: readonly Shown[],
  index: number,
  unit: string,
  format: (amount: number) => string,
): string {
  const parts = series
    .filter(({ values }) => (values[index] ?? 0) > 0)
    .map(({ name, values }) => `${name} ${format(values[index] ?? 0)}`);
  return [`${formatCalendarDay(day)}: ${format(total)} ${unit}`, ...parts].join(", ");
}

/** The available width, updated when it changes. */
function useWidth(box: React.RefObject<HTMLDivElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [box]);
  return width;
}

/** The first 1, 2, 2.5 or 5 times a power of ten that is at least the largest bar and divides into whole steps. */
function niceTop(most: number): number {
  if (most <= GRID_LINES) return GRID_LINES;
  const power = 10 ** Math.floor(Math.log10(most));
  return ([1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10].find((factor) => factor * power >= most) ?? 10) * power;
}

function ticksOf(top: number): number[] {
  return Array.from({ length: GRID_LINES + 1 }, (_, line) => (top / GRID_LINES) * line);
}

/** The days that have a label, and its middle: as many days apart as labels need. The last day has one, moved so that it is not cut off. */
export function dayLabels(count: number, width: number, { x, step }: Pick<Plot, "x" | "step">) {
  const last = count - 1;
  const middleOf = (day: number) => Math.min(x(day) + step / 2, width - LABEL_WIDTH / 2 + 6);
  let apart = 1;
  // The moved label is the nearest to its neighbour. Rounded: equal distances must not differ by a fraction of a pixel.
  while (apart <= last && Math.round(middleOf(last) - middleOf(last - apart)) < LABEL_WIDTH) apart++;
  const days = Array.from({ length: count }, (_, day) => day).filter((day) => (last - day) % apart === 0);
  return days.map((day) => ({ day, middle: middleOf(day) }));
}
