import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { BarChart3, Table2 } from "lucide-react";
import { type KeyboardEvent, type PointerEvent, useEffect, useId, useRef, useState } from "react";
import { formatCalendarDay, formatCompact, formatCount, formatMonth, formatTime, formatZoneTime } from "../format.ts";
import { DIRECTION } from "../language.ts";
import { Button } from "./buttons.tsx";
import { fillOf, type Look, looksOf, Swatch, Textures } from "./chart_looks.tsx";
import { Axes, HEIGHT, PAD, type Plot, plotOf } from "./chart_plot.tsx";
import { ScrollingTable } from "./scrolling.tsx";

/**
 * Amounts by day, hour or month, one bar each, stacked by model, key or host: the five largest and "Other". Amounts that are no parts
 * of a whole, as revenue and cost, stand beside each other instead (`isBeside`).
 *
 *   <DayChart
 *     title="Requests by model" unit="requests" zone="Europe/Berlin"
 *     days={["2026-11-21", …]}
 *     series={[{ name: "model-a", place: 0, values: [120, …] }]}       // one value a day
 *     format={formatCount}
 *   />
 *
 * Days are calendar days of the zone, which the chart names; hours and months are the moments when they begin. Arrow keys, Home and End
 * move from one to the next; "Show as table" has every number. Drawn as SVG with the page's own colours, so that it follows the theme and needs no library.
 */

/** `place`: a number that belongs to this series on every page; its colour follows from it. */
export type Series = { name: string; place: number; values: readonly number[] };
type Shown = { name: string; values: readonly number[]; look: Look };

/** What a bar is of, and how it is called. */
const STEPS = {
  hour: {
    head: t`Hour`,
    keys: t`Arrow keys move from hour to hour.`,
    spanOf: (count: number, zone: string) => plural(count, { one: `# hour in ${zone}`, other: `# hours in ${zone}` }),
    nameOf: (iso: string, zone: string) => formatTime(iso, zone),
  },
  day: {
    head: t`Day`,
    keys: t`Arrow keys move from day to day.`,
    spanOf: (count: number, zone: string) => plural(count, { one: `# day in ${zone}`, other: `# days in ${zone}` }),
    nameOf: (day: string) => formatCalendarDay(day),
  },
  month: {
    head: t`Month`,
    keys: t`Arrow keys move from month to month.`,
    spanOf: (count: number, zone: string) => plural(count, { one: `# month in ${zone}`, other: `# months in ${zone}` }),
    nameOf: (iso: string) => formatMonth(iso.slice(0, 7)),
  },
} as const;

const SERIES_MAX = 5;
const OTHER = t({ message: "Other", context: "all other series of a chart" });
const TIP_WIDTH = 192;

export function DayChart({
  title,
  unit,
  zone,
  days,
  series,
  step = "day",
  isBeside = false,
  topMin = 0,
  format = formatCount,
  formatAxis = formatCompact,
}: {
  title: string;
  /** "requests", "tokens". */
  unit: string;
  zone: string;
  days: readonly string[];
  series: readonly Series[];
  step?: keyof typeof STEPS;
  isBeside?: boolean;
  /** The axis reaches at least this far. */
  topMin?: number;
  format?: (amount: number) => string;
  formatAxis?: (amount: number) => string;
}) {
  const [isTable, setTable] = useState(false);
  const chartId = useId();
  const shown = isBeside ? withLooks(series) : largest(series, days.length);
  const { head, keys, spanOf, nameOf } = STEPS[step];
  const names = days.map((day) => nameOf(day, zone));
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
        <NumbersTable {...{ title, head, days, names, isBeside, format }} series={shown} />
      ) : (
        <Bars {...{ title, unit, keys, days, names, isBeside, topMin, chartId, format, formatAxis }} series={shown} />
      )}
      <div className="-mb-2 flex flex-wrap items-center justify-between gap-x-4">
        <p className="text-12 text-ink-3">{spanOf(days.length, formatZoneTime(zone))}</p>
        <Button
          variant="quiet"
          size="sm"
          icon={isTable ? BarChart3 : Table2}
          onClick={() => setTable(!isTable)}
          className="-me-3"
        >
          {isTable ? t`Show as chart` : t`Show as table`}
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
  return withLooks(shown);
}

function withLooks(shown: readonly { name: string; place: number | null; values: readonly number[] }[]): Shown[] {
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
  /** How the keys move. */
  keys: string;
  days: readonly string[];
  names: readonly string[];
  isBeside: boolean;
  topMin: number;
  series: readonly Shown[];
  chartId: string;
  format: (amount: number) => string;
  formatAxis: (amount: number) => string;
};

function Bars(props: BarsProps) {
  const { title, unit, keys, days, names, isBeside, topMin, series, chartId, format, formatAxis } = props;
  const hintId = useId();
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [active, setActive] = useState<number | null>(null);
  const { tabStop, setTabStop, onKeyDown } = useDayKeys(days.length, box, () => setActive(null));
  const totals = days.map((_, day) => sumOf(series, day));
  const highest = isBeside ? series.flatMap(({ values }) => values) : totals;
  const plot = plotOf({ days: days.length, highest, topMin, width });
  const point = (event: PointerEvent<SVGSVGElement>) =>
    setActive(plot.dayAt(event.clientX - event.currentTarget.getBoundingClientRect().left));
  return (
    <div ref={box} dir="ltr" className="relative min-w-0">
      <span id={hintId} className="sr-only">
        {keys}
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
        <Axes {...{ plot, names, width, formatAxis }} />
        {days.map((day, index) => (
          <DayBar
            key={day}
            {...{ index, plot, series, isBeside, chartId }}
            isActive={active === index}
            isTabStop={index === tabStop}
            label={spoken(names[index] ?? day, isBeside ? null : (totals[index] ?? 0), series, index, unit, format)}
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
          day={names[active] ?? ""}
          index={active}
          series={series}
          total={isBeside ? null : (totals[active] ?? 0)}
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

function DayBar({
  index,
  plot,
  series,
  isBeside,
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
  isBeside: boolean;
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
      {isBeside ? (
        <Beside {...{ index, series, chartId, y }} x={x(index) + (step - bar) / 2} width={bar} />
      ) : (
        <Stack {...{ index, series, chartId, y }} x={x(index) + (step - bar) / 2} width={bar} />
      )}
    </g>
  );
}

type Pieces = {
  index: number;
  series: readonly Shown[];
  chartId: string;
  x: number;
  width: number;
  y: (amount: number) => number;
};

/** One day's amounts as bars of their own. */
function Beside({ index, series, chartId, x, width, y }: Pieces) {
  const each = width / Math.max(1, series.length);
  return series.map(({ name, values, look }, at) => {
    const amount = values[index] ?? 0;
    if (amount <= 0) return null;
    return (
      <rect
        key={name}
        x={x + each * at}
        y={y(amount)}
        width={Math.max(1, each - 1)}
        height={Math.max(0.5, y(0) - y(amount))}
        rx={1}
        fill={fillOf(look, chartId)}
        className="forced-color-adjust-none"
      />
    );
  });
}

/** One day's bar, the largest series at the bottom, with gaps between the pieces, so that they differ not only by colour. */
function Stack({ index, series, chartId, x, width, y }: Pieces) {
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
  /** null: the amounts are no parts of a whole. */
  total: number | null;
  unit: string;
  format: (amount: number) => string;
}) {
  return (
    <div
      dir={DIRECTION}
      aria-hidden
      className="pointer-events-none absolute top-0 z-10 w-48 animate-fade rounded-md bg-raised p-3 text-12 shadow-overlay"
      style={{ left: x }}
    >
      <div className="mb-1 flex justify-between gap-3 font-semibold">
        <span>{day}</span>
        {total !== null && (
          <span className="tabular-nums">
            {format(total)} {unit}
          </span>
        )}
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

type NumbersProps = Pick<BarsProps, "title" | "days" | "names" | "isBeside" | "series" | "format"> & { head: string };

function NumbersTable({ title, head, days, names, isBeside, series, format }: NumbersProps) {
  return (
    <ScrollingTable
      label={title}
      className="text-13"
      head={
        <>
          <th scope="col" className="text-start font-medium">
            {head}
          </th>
          {series.map(({ name }) => (
            <th key={name} scope="col" className="text-end font-medium">
              {name}
            </th>
          ))}
          {!isBeside && (
            <th scope="col" className="text-end font-medium">
              <Trans context="the sum of all series">All</Trans>
            </th>
          )}
        </>
      }
    >
      {days.map((day, index) => (
        <tr key={day} className="border-t border-line">
          <th scope="row" className="text-start font-medium whitespace-nowrap">
            {names[index]}
          </th>
          {series.map(({ name, values }) => (
            <td key={name} className="text-end">
              {format(values[index] ?? 0)}
            </td>
          ))}
          {!isBeside && <td className="text-end font-medium">{format(sumOf(series, index))}</td>}
        </tr>
      ))}
    </ScrollingTable>
  );
}

function sumOf(series: readonly Shown[], index: number): number {
  return series.reduce((total, { values }) => total + (values[index] ?? 0), 0);
}

function spoken(
  day: string,
  total: number | null,
  series: readonly Shown[],
  index: number,
  unit: string,
  format: (amount: number) => string,
): string {
  const parts = series
    .filter(({ values }) => (values[index] ?? 0) > 0)
    .map(({ name, values }) => `${name} ${format(values[index] ?? 0)}`);
  if (total === null) return `${day}: ${parts.join(", ") || format(0)}`;
  return [`${day}: ${format(total)} ${unit}`, ...parts].join(", ");
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
