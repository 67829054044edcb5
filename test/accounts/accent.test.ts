import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import {
  type Accent,
  accentCss,
  accentVariables,
  CHART_COLOURS,
  GROUNDS,
  type Shades,
} from "../../src/accounts/accent.ts";

/** Source: PAN-7. Contrasts and hues are computed by other formulas than the code's. */

const { converter, differenceEuclidean, formatHex } = createRequire(import.meta.url)("culori");
const toLinear = converter("lrgb");
const toOklch = converter("oklch");

const APP_CSS = readFileSync(new URL("../../src/panel/web/app.css", import.meta.url), "utf8");
const THEMES = ["light", "dark"] as const;

/** The value of a token of app.css in each theme. */
function tokenOf(name: string): { light: string; dark: string } {
  const [, light = "", dark = ""] =
    new RegExp(`--${name}: light-dark\\(((?:oklch\\([^)]*\\)|\\w+)), ((?:oklch\\([^)]*\\)|\\w+))\\);`).exec(APP_CSS) ??
    [];
  return { light, dark };
}

/** WCAG 2.2, relative luminance. */
function luminance(colour: string): number {
  const { r, g, b } = toLinear(colour);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(one: string, other: string): number {
  const [darker = 0, lighter = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (lighter + 0.05) / (darker + 0.05);
}

const TOKENS = ["bg", "surface", "sunken", "raised", "text", "text-2", "text-3"].map((name) => tokenOf(name));
const [BG, SURFACE, SUNKEN, RAISED, ...INKS] = TOKENS;
const GROUND_TOKENS = [BG, SURFACE, SUNKEN, RAISED];

/** Each rule that a colour breaks, in words. */
function broken(chosen: string, { light, dark }: Accent): string[] {
  const problems: string[] = [];
  const need = (what: string, value: number, min: number) => {
    if (!(value >= min)) problems.push(`${chosen}: ${what} ${value.toFixed(3)} < ${min}`);
  };
  for (const theme of THEMES) {
    const { accent, onAccent, accentText, accentSoft }: Shades = theme === "light" ? light : dark;
    const grounds = GROUND_TOKENS.map((token) => token?.[theme] ?? "");
    for (const ground of [...grounds, accentSoft])
      need(`${theme} text on ${ground}`, contrast(accentText, ground), 4.595);
    for (const ground of grounds) need(`${theme} fill on ${ground}`, contrast(accent, ground), 2.995);
    need(`${theme} on the fill`, contrast(onAccent, accent), 4.5);
    for (const ink of INKS) need(`${theme} ${ink[theme]} on the soft ground`, contrast(ink[theme], accentSoft), 4.5);
    for (const shade of [accent, accentText, accentSoft]) {
      const { c, h } = toOklch(shade);
      // Rounding to eight bits a channel changes a colour a little, dark ones more.
      need(`${theme} chroma of ${shade}, under its cap by`, 0.2 - c, -0.005);
      const turned = Math.abs((((h ?? 0) - (toOklch(chosen).h ?? 0) + 540) % 360) - 180);
      if (toOklch(chosen).c > 0.02 && c > 0.02)
        need(`${theme} hue of ${shade}, turned by`, -turned, -8 * (0.02 / c) - 2);
      if (toOklch(chosen).c < 0.001) need(`${theme} grey of ${shade}`, -c, -0.001);
    }
  }
  return problems;
}

test("the backgrounds used for contrasts are those of app.css", () => {
  for (const theme of THEMES) {
    const written = GROUNDS[theme].grounds.map(([l, c, h]) => `oklch(${Number((l * 100).toFixed(1))}% ${c} ${h})`);
    expect(written).toEqual(GROUND_TOKENS.map((token) => token?.[theme] ?? ""));
  }
});

test.each(["#ffffff", "#000000", "#ffd400", "#00ff00", "#ff0000", "#0000ff", "#777777", "#010101", "#fefefe"])(
  "%s: every contrast holds in both themes, hue and cap are kept",
  (hex) => {
    expect(broken(hex, accentCss(hex))).toEqual([]);
  },
);

test("512 colours: each has enough contrast in both themes, keeps its hue, and stays below the chroma limit", () => {
  const channel = [0, 0x24, 0x49, 0x6d, 0x92, 0xb6, 0xdb, 0xff].map((value) => value.toString(16).padStart(2, "0"));
  const colours = channel.flatMap((r) => channel.flatMap((g) => channel.map((b) => `#${r}${g}${b}`)));
  expect(colours.flatMap((hex) => broken(hex, accentCss(hex)))).toEqual([]);
});

test("a readable colour is not changed, in upper or lower case", () => {
  const { adjusted, light, dark } = accentCss("#0A5C7D");
  expect({ adjusted, light }).toMatchObject({
    adjusted: false,
    light: { accent: "#0a5c7d", accentText: "#0a5c7d", onAccent: "#ffffff", fillChange: "none", textChange: "none" },
  });
  expect(dark.textChange).toBe("lighter");
  // The opposite: a light colour is readable in the dark theme, and made darker in the light one.
  const yellow = accentCss("#ffd400");
  expect(yellow.dark).toMatchObject({
    accent: "#ffd400",
    accentText: "#ffd400",
    fillChange: "none",
    textChange: "none",
  });
  expect(yellow).toMatchObject({ adjusted: true, light: { fillChange: "darker", textChange: "darker" } });
});

test("chroma above the limit is removed and reported", () => {
  const { adjusted, light } = accentCss("#0000ff");
  expect(adjusted).toBe(true);
  expect(light).toMatchObject({ fillChange: "softer", textChange: "softer" });
  expect(toOklch(light.accent).l).toBeCloseTo(toOklch("#0000ff").l, 2);
});

test("no change is larger than needed: one step less would not be readable", () => {
  for (const hex of ["#ffd400", "#00ff00", "#ff8800", "#33ccff", "#ffffff"]) {
    const { accentText, accentSoft } = accentCss(hex).light;
    const { l, c, h } = toOklch(accentText);
    const back = formatHex({ mode: "oklch", l: l + 0.006, c, h });
    const grounds = [...GROUND_TOKENS.map((token) => token?.light ?? ""), accentSoft];
    expect(Math.min(...grounds.map((ground) => contrast(back, ground))), hex).toBeLessThan(4.6);
  }
});

test("the CSS sets variables of app.css by colour scheme, and nothing else", () => {
  const { css, light, dark } = accentCss("#e11d48");
  const [day, night] = [accentVariables(light), accentVariables(dark)];
  expect(css).toBe(
    `:root{${Object.keys(day)
      .map((name) => `${name}:light-dark(${day[name]},${night[name]});`)
      .join("")}}\n`,
  );
  const names = [...css.matchAll(/--([\w-]+):light-dark\(#[0-9a-f]{6},#[0-9a-f]{6}\);/g)].map(([, name]) => name ?? "");
  const charts = ["chart-1", "chart-2", "chart-3", "chart-4", "chart-5"];
  expect(names).toEqual(["accent", "on-accent", "accent-text", "accent-soft", "focus", ...charts]);
  for (const name of names) expect(APP_CSS, name).toContain(`--${name}: light-dark(`);
});

test("the focus ring and the first series of a chart have the brand's colour", () => {
  for (const hex of ["#e11d48", "#ffd400", "#d27b3b"]) {
    const { light, dark } = accentCss(hex);
    for (const shades of [light, dark]) {
      const variables = accentVariables(shades);
      expect([variables["--focus"], variables["--chart-1"]]).toEqual([shades.accent, shades.accent]);
    }
  }
});

test("the colours of the charts are those of app.css, and no two series of a brand look alike", () => {
  const distance = differenceEuclidean("oklab");
  for (const theme of THEMES) {
    const written = [1, 2, 3, 4, 5].map((place) => {
      const [, light = "", dark = ""] =
        new RegExp(`--chart-${place}: light-dark\\((#\\w+), (#\\w+)\\);`).exec(APP_CSS) ?? [];
      return theme === "light" ? light : dark;
    });
    expect(CHART_COLOURS[theme]).toEqual(written);
    const standard = Math.min(...pairs(written).map(([a, b]) => distance(a, b)));
    for (const hex of ["#e11d48", "#d27b3b", "#006e89", "#7e6cf7", "#094600", "#ffd400", "#777777"]) {
      const { charts } = accentCss(hex)[theme];
      expect(new Set(charts).size, hex).toBe(5);
      // The nearest colour was left out, so the accent is at least half as far from each as they are from each other.
      const nearest = Math.min(...charts.slice(1).map((colour) => distance(charts[0] ?? "", colour)));
      expect(nearest, `${theme} ${hex}`).toBeGreaterThan(standard / 2);
    }
  }
});

function pairs(colours: readonly string[]): [string, string][] {
  return colours.flatMap((one, at) => colours.slice(at + 1).map((other): [string, string] => [one, other]));
}

test.each(["", "#fff", "ffd400", "#ffd4000", "#ggg000", "red", "#ffd400;}", "#ffd400\n", " #ffd400", "oklch(1 0 0)"])(
  "no colour: %p",
  (hex) => {
    expect(() => accentCss(hex)).toThrow("#rrggbb");
  },
);
