import { describe, expect, test } from "bun:test";
import { renderToStaticMarkup } from "react-dom/server";
import { Router } from "wouter";
import { BrandPreview } from "../../src/panel/web/pages/brand/brand_preview.tsx";
import { DayChart, type Series } from "../../src/panel/web/ui/chart.tsx";
import { CHART_LOOKS, looksOf } from "../../src/panel/web/ui/chart_looks.tsx";
import { Meter } from "../../src/panel/web/ui/meter.tsx";

/** What the panel's meters and charts show. Source: PAN-1, PAN-6. */

const widths = (html: string) => [...html.matchAll(/width:([\d.]+)%/g)].map(([, width]) => Number(width));
const sum = (amounts: readonly number[]) => amounts.reduce((total, amount) => total + amount, 0);

describe("a meter", () => {
  test("shows the rest in words, in the bar and to a screen reader", () => {
    const resets = renderToStaticMarkup(<Meter label="Today" used={642} limit={1_500} unit="requests" resets="" />);
    expect(resets).toContain('aria-valuenow="858"');
    expect(resets).toContain('aria-valuemax="1500"');
    expect(resets).toContain('aria-valuetext="858 of 1,500 requests left"');
    expect(widths(resets)[0]).toBeCloseTo(57.2);
    const tickets = renderToStaticMarkup(<Meter label="Package" used={642} limit={1_500} size="sm" />);
    expect(tickets).toContain('aria-valuenow="858"');
    expect(sum(widths(tickets)) / 10).toBeCloseTo(57.2);
  });

  test("is full when nothing is used, and empty with a warning when all is used", () => {
    const full = renderToStaticMarkup(<Meter label="Today" used={0} limit={500} resets="" />);
    expect(widths(full)).toEqual([100]);
    for (const used of [500, 501]) {
      const empty = renderToStaticMarkup(<Meter label="Today" used={used} limit={500} resets="" />);
      expect(empty).toContain('aria-valuenow="0"');
      expect(widths(empty)).toEqual([0]);
      expect(empty).toContain("Used up");
    }
  });

  test("warns when a fifth or less is left", () => {
    const at = (used: number) => renderToStaticMarkup(<Meter label="Today" used={used} limit={500} resets="" />);
    expect(at(399)).not.toContain("% left");
    expect(at(400)).toContain("20% left");
    expect(at(499)).toContain("1% left");
    expect(at(450)).not.toContain("% used");
  });

  test("in a table, what is used up or nearly so is not grey", () => {
    const at = (used: number) =>
      renderToStaticMarkup(<Meter size="sm" label="Today" used={used} limit={5} resets="" />);
    expect(at(5)).toContain("text-bad");
    expect(at(4)).toContain("text-warn");
    expect(at(0)).toContain("text-ink-2");
  });

  test("in the brand's preview, the bar matches its words", () => {
    const html = renderToStaticMarkup(
      <Router ssrPath="/brand">
        <BrandPreview
          name="Acme"
          support=""
          pictures={{ logoLight: null, logoDark: null, icon: null }}
          shades={null}
          sendsMail
          signUp={false}
        />
      </Router>,
    );
    const [, left, limit] = /(\d+) of (\d+) left/.exec(html) ?? [];
    expect(widths(html)[0]).toBeCloseTo((100 * Number(left)) / Number(limit), 0);
  });
});

describe("a chart", () => {
  /** Colour and pattern of each name in the legend. */
  function looks(series: readonly Series[]): Record<string, string> {
    const html = renderToStaticMarkup(
      <DayChart title="Requests" unit="requests" zone="UTC" days={["2026-11-21", "2026-11-22"]} series={series} />,
    );
    const items = [...html.matchAll(/<li[^>]*>.*?data-look="([^"]+)".*?<span class="truncate">([^<]+)<\/span><\/li>/g)];
    return Object.fromEntries(items.map(([, look, name]) => [name, look]));
  }

  test("gives a model the same colour, whatever its usage and the other series", () => {
    const [a, b, c] = [
      { name: "a", place: 0, values: [1, 1] },
      { name: "b", place: 1, values: [5, 5] },
      { name: "c", place: 2, values: [3, 3] },
    ] as const;
    const all = looks([a, b, c]);
    expect(new Set(Object.values(all)).size).toBe(3);
    expect(looks([{ ...a, values: [90, 90] }, b, c])).toEqual(all);
    expect(looks([c, { ...b, values: [0, 1] }, a])).toEqual(all);
    for (const one of [a, b, c]) expect(looks([one])).toEqual({ [one.name]: all[one.name] as string });
  });

  test("gives any five series different looks", () => {
    const key = ({ color, texture }: ReturnType<typeof looksOf>[number]) => `${color} ${texture}`;
    for (let first = 0; first < 3 * CHART_LOOKS; first++) {
      for (const step of [1, 2, 5, 7, CHART_LOOKS]) {
        const places = Array.from({ length: 5 }, (_, index) => first + index * step);
        expect(new Set(looksOf(places).map(key)).size).toBe(5);
      }
    }
  });

  test("changes only the texture to tell two series apart, and only if there are more series than looks", () => {
    const alone = Array.from({ length: 3 * CHART_LOOKS }, (_, place) => looksOf([place])[0]);
    for (const places of [
      [0, 5, 10, 15, 20],
      [24, 3, 8, 13, 1],
    ])
      expect(looksOf(places)).toEqual(places.map((place) => alone[place] as (typeof alone)[number] & object));
    const clash = [3, 3 + CHART_LOOKS, 3 + 2 * CHART_LOOKS];
    expect(looksOf(clash).map(({ color }) => color)).toEqual(clash.map((place) => alone[place]?.color as string));
    expect(looksOf([...clash].reverse()).reverse()).toEqual(looksOf(clash));
  });
});
