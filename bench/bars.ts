/** Groups of bars as a picture: one SVG that reads on light and dark pages alike. */

const WIDTH = 900;
const GROUP_GAP = 14;
const BAR = 14;
const LEFT = 210;
const RIGHT = 80;
const TOP = 64;
const BOTTOM = 12;
const COLOURS = ["#94a3b8", "#0f766e", "#1d4ed8", "#b45309", "#7c3aed"];

export type Group = { name: string; bars: { series: string; value: number; label: string }[] };

/** Draws `groups` below each other, each with a bar per value in `series`; `rule` is a line at that value. */
export function bars(title: string, series: readonly string[], groups: readonly Group[], rule?: number): string {
  const most = Math.max(rule ?? 0, ...groups.flatMap((group) => group.bars.map((bar) => bar.value))) || 1;
  const x = (value: number) => Math.round((LEFT + (value / most) * (WIDTH - LEFT - RIGHT)) * 10) / 10;
  const colour = (name: string) => COLOURS[series.indexOf(name) % COLOURS.length];
  let y = TOP;
  const drawn: string[] = [];
  for (const group of groups) {
    const middle = y + (group.bars.length * BAR) / 2 + 4;
    drawn.push(`<text x="${LEFT - 8}" y="${middle}" text-anchor="end" fill="#1f2937">${asXml(group.name)}</text>`);
    for (const { series: name, value, label } of group.bars) {
      drawn.push(
        `<rect x="${LEFT}" y="${y}" width="${x(value) - LEFT}" height="${BAR - 2}" fill="${colour(name)}"/>` +
          `<text x="${x(value) + 4}" y="${y + BAR - 4}" fill="#4b5563" font-size="11">${asXml(label)}</text>`,
      );
      y += BAR;
    }
    y += GROUP_GAP;
  }
  const height = y + BOTTOM;
  const legend = series.map(
    (name, i) =>
      `<rect x="${LEFT + i * 110}" y="36" width="12" height="12" fill="${colour(name)}"/>` +
      `<text x="${LEFT + i * 110 + 18}" y="46" fill="#1f2937">${asXml(name)}</text>`,
  );
  const line =
    rule === undefined
      ? ""
      : `<path d="M${x(rule)} ${TOP - 6}V${y - GROUP_GAP + 6}" stroke="#4b5563" stroke-dasharray="4 4"/>\n`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="system-ui, sans-serif" font-size="12">
<title>${asXml(title)}</title>
<rect width="${WIDTH}" height="${height}" fill="#fff"/>
<text x="16" y="22" fill="#1f2937" font-size="14">${asXml(title)}</text>
${legend.join("\n")}
${line}${drawn.join("\n")}
</svg>
`;
}

function asXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
