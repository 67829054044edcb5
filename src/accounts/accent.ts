import { InputError } from "../errors.ts";

/**
 * The panel's accent colours, derived from a brand's colour. Computed in OKLCH (Ottosson's matrices), with contrasts by WCAG 2.2. Pure
 * and without dependencies, so that the brand page can call it for a preview. Source: PAN-7.
 */

const HEX = /^#[0-9a-f]{6}$/i;
const CHROMA_MAX = 0.2;
/** Contrast of text on every background of its theme: slightly above WCAG's 4.5. */
const TEXT_CONTRAST_MIN = 4.6;
/** Contrast of a fill against every background, and of text on the fill. */
const FILL_CONTRAST_MIN = 3;
const ON_FILL_CONTRAST_MIN = 4.5;
/** Lightness changes in these steps until the contrast is reached. */
const STEP = 0.0025;
const STEPS = 1 / STEP;
const HALVINGS = 20;

/** Lightness 0 to 1, chroma, hue in degrees. */
type Oklch = readonly [lightness: number, chroma: number, hue: number];
type Rgb = readonly [red: number, green: number, blue: number];

/** The backgrounds of app.css, and the soft background made from the accent: its lightness and maximum chroma. */
export const GROUNDS: Readonly<
  Record<"light" | "dark", { grounds: readonly Oklch[]; soft: { lightness: number; chromaMax: number } }>
> = {
  light: {
    grounds: [
      [0.985, 0.003, 230],
      [1, 0, 0],
      [0.962, 0.005, 230],
      [1, 0, 0],
    ],
    soft: { lightness: 0.955, chromaMax: 0.022 },
  },
  dark: {
    grounds: [
      [0.165, 0.012, 240],
      [0.205, 0.014, 240],
      [0.14, 0.011, 240],
      [0.245, 0.016, 240],
    ],
    soft: { lightness: 0.29, chromaMax: 0.04 },
  },
};
const WHITE = "#ffffff";
/** Text on fills where white has too little contrast. */
const INK = hexOf([0.19, 0.03, 225]);

/** The colours of the charts' series in app.css: each is told apart from the others by people with any colour vision. */
export const CHART_COLOURS: Readonly<Record<"light" | "dark", readonly string[]>> = {
  light: ["#006e89", "#d27b3b", "#7e6cf7", "#961e49", "#094600"],
  dark: ["#78d5df", "#eb7d00", "#7378ef", "#ac4c6f", "#d5f38f"],
};

/** How the chosen colour was changed. `softer`: less chroma, same lightness. */
export type Change = "none" | "darker" | "lighter" | "softer";
/** One theme's colours, each #rrggbb. */
export type Shades = {
  accent: string;
  onAccent: string;
  accentText: string;
  accentSoft: string;
  /** Of the charts' series: the accent, and the colours of app.css without the one that is nearest to it. */
  charts: readonly string[];
  fillChange: Change;
  textChange: Change;
};
/** `css` overrides app.css's variables for both themes (`light-dark`). `adjusted`: in the light theme, fills or text differ from the chosen colour. */
export type Accent = { css: string; adjusted: boolean; light: Shades; dark: Shades };

/** The accent colours of #rrggbb: its hue, in lightnesses with enough contrast. Throws InputError. */
export function accentCss(hex: string): Accent {
  if (!HEX.test(hex)) throw new InputError("Write the colour as #rrggbb, as in #0a7d5c.", "accent");
  const chosen = hex.toLowerCase();
  const light = shadesOf(chosen, "light");
  const dark = shadesOf(chosen, "dark");
  const atNight = accentVariables(dark);
  const rules = Object.entries(accentVariables(light)).map(
    ([name, colour]) => `${name}:light-dark(${colour},${atNight[name]});`,
  );
  return {
    css: `:root{${rules.join("")}}\n`,
    // Nearly every colour is made lighter in the dark theme: only a change in the light theme is worth reporting.
    adjusted: light.fillChange !== "none" || light.textChange !== "none",
    light,
    dark,
  };
}

/** The variables of app.css that a brand's colour changes, with their values in one theme. */
export function accentVariables({ accent, onAccent, accentText, accentSoft, charts }: Shades): Record<string, string> {
  const series = charts.map((colour, place) => [`--chart-${place + 1}`, colour]);
  return {
    "--accent": accent,
    "--on-accent": onAccent,
    "--accent-text": accentText,
    "--accent-soft": accentSoft,
    // A fill has the contrast that a ring needs, on every background.
    "--focus": accent,
    ...Object.fromEntries(series),
  };
}

function shadesOf(chosen: string, theme: "light" | "dark"): Shades {
  const { grounds, soft } = GROUNDS[theme];
  const [lightness, chroma, hue] = toOklch(chosen);
  const kept: Oklch = [lightness, Math.min(chroma, CHROMA_MAX), hue];
  const accentSoft = hexOf([soft.lightness, Math.min(chroma, soft.chromaMax), hue]);
  const lit = grounds.map((ground) => luminanceOf(inGamut(ground)));
  const fill = nearest(
    kept,
    (colour) => isOn(colour, lit, FILL_CONTRAST_MIN) && Math.max(...onFill(colour)) >= ON_FILL_CONTRAST_MIN,
  );
  const underText = [...lit, luminance(accentSoft)];
  const text = nearest(kept, (colour) => isOn(colour, underText, TEXT_CONTRAST_MIN));
  const [onWhite, onInk] = onFill(fill);
  return {
    accent: fill,
    onAccent: onWhite >= onInk ? WHITE : INK,
    accentText: text,
    accentSoft,
    charts: chartsWith(fill, CHART_COLOURS[theme]),
    fillChange: changeOf(chosen, fill),
    textChange: changeOf(chosen, text),
  };
}

/** The accent first, then the others without the nearest one, so that two series never look alike. */
function chartsWith(accent: string, colours: readonly string[]): string[] {
  const distances = colours.map((colour) => distance(accent, colour));
  const nearestAt = distances.indexOf(Math.min(...distances));
  return [accent, ...colours.filter((_, at) => at !== nearestAt)];
}

/** How different two colours look: the distance in OKLab. */
function distance(one: string, other: string): number {
  const [[l, a, b], [m, c, d]] = [toOklab(one), toOklab(other)];
  return Math.hypot(l - m, a - c, b - d);
}

function toOklab(hex: string): readonly [number, number, number] {
  const [lightness, chroma, hue] = toOklch(hex);
  const angle = (hue * Math.PI) / 180;
  return [lightness, chroma * Math.cos(angle), chroma * Math.sin(angle)];
}

/** The colour of this hue that passes, with the nearest lightness. At the latest, black or white passes. */
function nearest([lightness, chroma, hue]: Oklch, passes: (hex: string) => boolean): string {
  for (let step = 0; step <= STEPS; step++) {
    for (const moved of [lightness - step * STEP, lightness + step * STEP]) {
      const hex = hexOf([Math.min(Math.max(moved, 0), 1), chroma, hue]);
      if (passes(hex)) return hex;
    }
  }
  throw new Error("no lightness has the contrast");
}

function isOn(hex: string, grounds: readonly number[], contrastMin: number): boolean {
  const own = luminance(hex);
  return grounds.every((ground) => contrast(own, ground) >= contrastMin);
}

/** The contrasts of white and of ink text on a fill. */
function onFill(hex: string): [white: number, ink: number] {
  const own = luminance(hex);
  return [contrast(own, 1), contrast(own, luminance(INK))];
}

function changeOf(chosen: string, shown: string): Change {
  if (shown === chosen) return "none";
  const difference = toOklch(shown)[0] - toOklch(chosen)[0];
  // Rounding to eight bits per channel changes the lightness a little even if only chroma was reduced.
  if (Math.abs(difference) < STEP) return "softer";
  return difference < 0 ? "darker" : "lighter";
}

function contrast(one: number, other: number): number {
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}

function luminance(hex: string): number {
  return luminanceOf(linearOf(hex));
}

function luminanceOf([red, green, blue]: Rgb): number {
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function linearOf(hex: string): Rgb {
  const channel = (at: number) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [channel(1), channel(3), channel(5)];
}

/** The colour as #rrggbb, with its chroma reduced to the sRGB gamut. */
function hexOf(colour: Oklch): string {
  const digits = inGamut(colour).map((value) => {
    const encoded = value <= 0.0031308 ? value * 12.92 : 1.055 * value ** (1 / 2.4) - 0.055;
    return Math.round(encoded * 255)
      .toString(16)
      .padStart(2, "0");
  });
  return `#${digits.join("")}`;
}

/** Linear sRGB. Keeps lightness and hue, and reduces chroma as needed. */
function inGamut([lightness, chroma, hue]: Oklch): Rgb {
  let [low, high] = [0, chroma];
  if (isShown(toLinear([lightness, chroma, hue]))) low = chroma;
  else {
    for (let i = 0; i < HALVINGS; i++) {
      const middle = (low + high) / 2;
      if (isShown(toLinear([lightness, middle, hue]))) low = middle;
      else high = middle;
    }
  }
  const [red, green, blue] = toLinear([lightness, low, hue]);
  const clamp = (value: number) => Math.min(Math.max(value, 0), 1);
  return [clamp(red), clamp(green), clamp(blue)];
}

function isShown(rgb: Rgb): boolean {
  return rgb.every((value) => value > -1e-4 && value < 1 + 1e-4);
}

function toOklch(hex: string): Oklch {
  const [red, green, blue] = linearOf(hex);
  const l = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const m = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const s = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  const a = 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s;
  const b = 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s;
  const chroma = Math.hypot(a, b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    // A grey has no hue: what is left is a rounding error.
    chroma < 1e-4 ? 0 : chroma,
    (Math.atan2(b, a) * 180) / Math.PI,
  ];
}

function toLinear([lightness, chroma, hue]: Oklch): Rgb {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}
