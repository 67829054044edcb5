/**
 * The colour and texture of a series in a chart. They follow only from its place, so that a model looks the same on every page. Five
 * colours that people with any colour vision can tell apart, and five textures for series that share a colour.
 * Source: PAN-6.
 */

const COLORS = ["var(--chart-1)", "var(--chart-2)", "var(--chart-3)", "var(--chart-4)", "var(--chart-5)"];
const TEXTURES = ["solid", "rising", "falling", "level", "dots"] as const;
const OTHER_COLOR = "var(--chart-other)";
/** Number of different looks. */
export const CHART_LOOKS = COLORS.length * TEXTURES.length;
const TILE_PX = 6;

type Texture = (typeof TEXTURES)[number];
export type Look = { color: string; texture: Texture };

/**
 * The looks of series in one chart, by their places; null is the place of "Other". If there are more places than looks and two
 * series have the same look, the later one gets another texture and keeps its colour.
 */
export function looksOf(places: readonly (number | null)[]): Look[] {
  const taken = new Set<string>();
  const byPlace = new Map<number, Look>();
  for (const place of places.filter((each) => each !== null).sort((a, b) => a - b)) {
    const color = COLORS[place % COLORS.length] ?? OTHER_COLOR;
    const first = Math.floor(place / COLORS.length);
    const turned = TEXTURES.map((_, turn) => TEXTURES[(first + turn) % TEXTURES.length] ?? "solid");
    const texture = turned.find((each) => !taken.has(`${color} ${each}`)) ?? "solid";
    taken.add(`${color} ${texture}`);
    byPlace.set(place, { color, texture });
  }
  const other: Look = { color: OTHER_COLOR, texture: "solid" };
  return places.map((place) => (place === null ? other : (byPlace.get(place) ?? other)));
}

/** The SVG fill of a series; `chartId` is the id of the chart's `Textures`. */
export function fillOf({ color, texture }: Look, chartId: string): string {
  return texture === "solid" ? color : `url(#${patternId(chartId, { color, texture })})`;
}

/** The patterns of a chart, to be drawn once in one of its SVGs. */
export function Textures({ chartId, looks }: { chartId: string; looks: readonly Look[] }) {
  return (
    <defs>
      {looks.map((look) =>
        look.texture === "solid" ? null : (
          <pattern
            key={patternId(chartId, look)}
            id={patternId(chartId, look)}
            width={TILE_PX}
            height={TILE_PX}
            patternUnits="userSpaceOnUse"
            {...(look.texture === "rising" && { patternTransform: "rotate(-45)" })}
            {...(look.texture === "falling" && { patternTransform: "rotate(45)" })}
          >
            <rect width={TILE_PX} height={TILE_PX} fill={look.color} />
            {look.texture === "dots" ? (
              <circle cx={TILE_PX / 2} cy={TILE_PX / 2} r={TILE_PX / 4} fill="var(--surface)" />
            ) : (
              <rect width={TILE_PX} height={TILE_PX / 3} fill="var(--surface)" />
            )}
          </pattern>
        ),
      )}
    </defs>
  );
}

export function Swatch({ look, chartId }: { look: Look; chartId: string }) {
  return (
    <svg
      aria-hidden
      data-look={`${look.color} ${look.texture}`}
      width={12}
      height={12}
      className="flex-none rounded-[2px] forced-color-adjust-none"
    >
      <rect width={12} height={12} fill={fillOf(look, chartId)} />
    </svg>
  );
}

function patternId(chartId: string, { color, texture }: Look): string {
  return `${chartId}-${COLORS.indexOf(color)}-${texture}`;
}
