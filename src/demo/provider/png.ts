import { crc32, deflateSync } from "node:zlib";

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
/** PNG colour type 3: one byte a pixel, an index into at most 256 RGB colours. */
const COLOUR_TYPE_PALETTE = 3;
const SKY_COLOURS = 192;
const SUN = SKY_COLOURS;
const FIRST_HILL = SUN + 1;
const HILLS = 3;

/**
 * A small landscape as PNG bytes: a sky gradient, a sun and three hills, all derived from the seed. The same seed and size give
 * the same bytes. Areas of one palette colour keep a 1024x1024 image below about 20 KB.
 */
export function drawPng(seed: number, width: number, height: number): Buffer {
  const next = randomFrom(seed);
  const palette = paletteFrom(Math.floor(next() * 360), Math.floor(next() * 360));
  const sun = {
    x: width * (0.2 + 0.6 * next()),
    y: height * (0.15 + 0.3 * next()),
    radius: width * (0.06 + 0.08 * next()),
  };
  const hills = Array.from({ length: HILLS }, (_, i) => ({
    base: height * (0.55 + 0.13 * i),
    rise: height * (0.05 + 0.08 * next()),
    waves: 1 + 2 * next(),
    phase: next() * 2 * Math.PI,
  }));

  const tops = hills.map(({ base, rise, waves, phase }) =>
    Float64Array.from({ length: width }, (_, x) => base + rise * Math.sin((x / width) * waves * 2 * Math.PI + phase)),
  );
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y++) {
    const start = y * (width + 1) + 1; // Byte 0 of each row is its filter. 0 is none: other filters do not help with a palette.
    rows.fill(Math.floor((y / height) * SKY_COLOURS), start, start + width);
    const half = Math.sqrt(sun.radius ** 2 - (y - sun.y) ** 2);
    if (half > 0)
      rows.fill(SUN, start + Math.max(0, Math.round(sun.x - half)), start + Math.min(width, Math.round(sun.x + half)));
    tops.forEach((top, hill) => {
      for (let x = 0; x < width; x++) if (y >= (top[x] ?? height)) rows[start + x] = FIRST_HILL + hill;
    });
  }
  return encodePalettePng(width, height, palette, rows);
}

/** PNG bytes of 8-bit palette pixels. `palette`: RGB triplets. `rows`: each with a filter byte in front. */
function encodePalettePng(width: number, height: number, palette: Uint8Array, rows: Uint8Array): Buffer {
  const header = Buffer.alloc(13); // Compression and filter method can only be 0; interlace 0 is none.
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header[8] = 8;
  header[9] = COLOUR_TYPE_PALETTE;
  return Buffer.concat([
    SIGNATURE,
    section("IHDR", header),
    section("PLTE", palette),
    section("IDAT", deflateSync(rows)),
    section("IEND", Buffer.alloc(0)),
  ]);
}

function section(type: string, data: Uint8Array): Buffer {
  const typed = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const framed = Buffer.alloc(typed.length + 8);
  framed.writeUInt32BE(data.length, 0);
  typed.copy(framed, 4);
  framed.writeUInt32BE(crc32(typed), typed.length + 4);
  return framed;
}

function paletteFrom(skyHue: number, landHue: number): Uint8Array {
  const colours: number[] = [];
  for (let i = 0; i < SKY_COLOURS; i++) {
    const down = i / SKY_COLOURS;
    colours.push(...rgbFromHsl(skyHue + 50 * down, 0.65, 0.35 + 0.45 * down));
  }
  colours.push(...rgbFromHsl(skyHue + 180, 0.9, 0.85));
  for (let hill = 0; hill < HILLS; hill++) colours.push(...rgbFromHsl(landHue + 12 * hill, 0.4, 0.38 - 0.11 * hill));
  return Uint8Array.from(colours);
}

function rgbFromHsl(hue: number, saturation: number, lightness: number): [number, number, number] {
  const spread = saturation * Math.min(lightness, 1 - lightness);
  const channel = (shift: number) => {
    const k = (shift + hue / 30) % 12;
    return Math.round(255 * (lightness - spread * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}

/** Mulberry32: numbers in 0..1 that depend only on the seed, so that an image can be reproduced. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
