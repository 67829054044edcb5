/** Where things are in a chart of bars, in pixels; its axes. */

export const HEIGHT = 220;
export const PAD = { top: 8, right: 0, bottom: 24, left: 44 };
const GRID_LINES = 4;
const BAR_MAX = 32;
const LABEL_WIDTH = 56;

/** Positions in the drawing, in pixels. */
export function plotOf({
  days,
  highest,
  topMin,
  width,
}: {
  days: number;
  highest: readonly number[];
  topMin: number;
  width: number;
}) {
  const top = niceTop(Math.max(topMin, ...highest));
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
export type Plot = ReturnType<typeof plotOf>;

export function Axes({
  plot,
  names,
  width,
  formatAxis,
}: {
  plot: Plot;
  names: readonly string[];
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
      {dayLabels(names.length, width, plot).map(({ day, middle }) => (
        <text key={day} x={middle} y={HEIGHT - 6} textAnchor="middle" className="fill-ink-3 text-12 tabular-nums">
          {names[day]}
        </text>
      ))}
    </g>
  );
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
