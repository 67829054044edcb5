/** Memory over time as a picture: one SVG that reads on light and dark pages alike. */

const WIDTH = 900;
const HEIGHT = 320;
const LEFT = 56;
const RIGHT = 60;
const TOP = 40;
const BOTTOM = 36;
const TICKS = 5;

export type Sample = { atSeconds: number; megabytes: number; open: number };

/** The memory of `samples` as a line, the number of open streams as an area behind it, the memory at the start as a rule. */
export function curve(samples: readonly Sample[], { startMegabytes }: { startMegabytes: number }): string {
  const seconds = Math.max(1, ...samples.map((sample) => sample.atSeconds));
  const most = niceAbove(Math.max(startMegabytes, ...samples.map((sample) => sample.megabytes)));
  const openMost = niceAbove(Math.max(1, ...samples.map((sample) => sample.open)));
  const x = (at: number) => round(LEFT + (at / seconds) * (WIDTH - LEFT - RIGHT));
  const y = (share: number) => round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM));
  const line = samples.map((s) => `${x(s.atSeconds)},${y(s.megabytes / most)}`).join(" ");
  const area = [
    `${x(samples[0]?.atSeconds ?? 0)},${y(0)}`,
    ...samples.map((s) => `${x(s.atSeconds)},${y(s.open / openMost)}`),
    `${x(seconds)},${y(0)}`,
  ].join(" ");
  const marks = Array.from({ length: TICKS + 1 }, (_, i) => i / TICKS);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="12">
<title>Resident memory of one replica over time, and the number of open streams</title>
<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>
<text x="${LEFT}" y="20" fill="#1f2937" font-size="14">Resident memory of one replica, MB (line), and open streams (area)</text>
${marks.map((share) => `<path d="M${LEFT} ${y(share)}H${WIDTH - RIGHT}" stroke="#e5e7eb"/><text x="${LEFT - 8}" y="${y(share) + 4}" text-anchor="end" fill="#4b5563">${Math.round(share * most)}</text><text x="${WIDTH - RIGHT + 8}" y="${y(share) + 4}" fill="#4b5563">${Math.round(share * openMost)}</text>`).join("\n")}
${marks.map((share) => `<text x="${x(share * seconds)}" y="${HEIGHT - 12}" text-anchor="middle" fill="#4b5563">${Math.round(share * seconds)} s</text>`).join("\n")}
<polygon points="${area}" fill="#bfdbfe" fill-opacity="0.6"/>
<path d="M${LEFT} ${y(startMegabytes / most)}H${WIDTH - RIGHT}" stroke="#4b5563" stroke-dasharray="4 4"/>
<text x="${WIDTH - RIGHT - 4}" y="${y(startMegabytes / most) - 6}" text-anchor="end" fill="#4b5563">at the start: ${startMegabytes} MB</text>
<polyline points="${line}" fill="none" stroke="#1d4ed8" stroke-width="2"/>
</svg>
`;
}

/** The next round number: 1, 2 or 5 times a power of ten. */
function niceAbove(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((step) => step * power >= value) ?? 10) * power;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
