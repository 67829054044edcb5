import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import sharp from "sharp";
import { imageSizeOf } from "../../src/gateway/image_size.ts";
import { holds } from "../property.ts";

/** The size of an image from the beginning of its data URL: as a decoder finds it, or unknown; never smaller. Source: MON-3. */

const FORMATS = ["png", "jpeg", "gif", "webp"] as const;
const urlOf = (bytes: Uint8Array, type = "png") => `data:image/${type};base64,${Buffer.from(bytes).toString("base64")}`;
const imageOf = (width: number, height: number, format: (typeof FORMATS)[number]) =>
  sharp({ create: { width, height, channels: 3, background: "red" } }).toFormat(format);

describe("an image as encoders write it", () => {
  for (const format of FORMATS)
    test(`${format}: its width and height, whatever type the URL names`, async () => {
      for (const [width, height] of [
        [1, 1],
        [640, 480],
        [2_048, 3],
        [3, 2_049],
      ] as const) {
        const bytes = await imageOf(width, height, format).toBuffer();
        expect(imageSizeOf(urlOf(bytes, format))).toEqual({ width, height });
        expect(imageSizeOf(urlOf(bytes, "svg+xml"))).toEqual({ width, height });
      }
    });

  test("WebP without loss, with transparency, and animated; a progressive JPEG; an animated GIF", async () => {
    const size = { width: 300, height: 200 };
    const clear = sharp({ create: { ...size, channels: 4, background: { r: 1, g: 2, b: 3, alpha: 0.5 } } });
    expect(imageSizeOf(urlOf(await clear.webp({ lossless: true }).toBuffer()))).toEqual(size);
    expect(imageSizeOf(urlOf(await clear.webp({ quality: 50 }).toBuffer()))).toEqual(size);
    expect(imageSizeOf(urlOf(await imageOf(300, 200, "jpeg").jpeg({ progressive: true }).toBuffer()))).toEqual(size);
    const frames = await sharp({ create: { width: 300, height: 600, channels: 3, background: "blue" } })
      .raw()
      .toBuffer();
    const animated = sharp(frames, { raw: { width: 300, height: 600, channels: 3, pageHeight: 200 } });
    expect(imageSizeOf(urlOf(await animated.clone().gif().toBuffer()))).toEqual(size);
    expect(imageSizeOf(urlOf(await animated.clone().webp().toBuffer()))).toEqual(size);
  });

  test("a JPEG with a profile and a large comment before its size", async () => {
    const jpeg = await imageOf(800, 600, "jpeg").withIccProfile("srgb").toBuffer();
    const comment = Buffer.concat([Buffer.from([0xff, 0xfe, 0xff, 0xff]), Buffer.alloc(0xffff - 2)]);
    const padded = (times: number) =>
      urlOf(Buffer.concat([jpeg.subarray(0, 2), ...Array.from({ length: times }, () => comment), jpeg.subarray(2)]));
    expect(imageSizeOf(padded(2))).toEqual({ width: 800, height: 600 });
    // Beyond the bytes that are read.
    expect(imageSizeOf(padded(9))).toBeUndefined();
  });
});

describe("what is unusual is unknown", () => {
  const JPEG_BEGINS = [0xff, 0xd8];
  const frame = (width: number, height: number) => [
    0xff,
    0xc0,
    0,
    8,
    8,
    height >> 8,
    height & 255,
    width >> 8,
    width & 255,
    1,
  ];
  const SCAN = [0xff, 0xda, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0];
  const jpeg = (...parts: number[][]) => imageSizeOf(urlOf(Uint8Array.from([JPEG_BEGINS, ...parts].flat())));
  const chunk = (name: string, ...values: number[]) => {
    const data = Buffer.alloc(values.length * 4);
    for (const [i, value] of values.entries()) data.writeUInt32BE(value, i * 4);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(data.length);
    return Buffer.concat([length, Buffer.from(name), data, Buffer.alloc(4)]);
  };
  const png = (...chunks: Buffer[]) =>
    imageSizeOf(urlOf(Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), ...chunks])));

  test("other formats, other URLs, no data, and what breaks off", async () => {
    const bytes = await imageOf(640, 480, "png").toBuffer();
    const url = urlOf(bytes);
    for (const other of [
      "https://example.com/a.png",
      "data:image/png,abc",
      "data:image/png;base64,",
      "data:image/svg+xml;base64,PHN2Zy8+",
      url.replace("data:image", "data:text"),
      url.replace(";base64", ";charset=utf-8;base64"),
      url.slice(0, 40),
      urlOf(await sharp(bytes).tiff().toBuffer()),
      urlOf(new Uint8Array(100_000)),
    ])
      expect([other.slice(0, 40), imageSizeOf(other)]).toEqual([other.slice(0, 40), undefined]);
  });

  test("characters that some decoders skip, so that they would see another image", async () => {
    const url = urlOf(await imageOf(8, 8, "png").toBuffer());
    const at = url.indexOf(",") + 9;
    for (const skipped of [" ", "\n", "-", "%0A", "=", "é", "\0"])
      expect(imageSizeOf(`${url.slice(0, at)}${skipped}${url.slice(at)}`)).toBeUndefined();
  });

  test("of several headers, the largest width and height count", () => {
    expect(png(chunk("IHDR", 1, 1), chunk("IHDR", 4_000, 3_000), chunk("IDAT", 0, 0))).toEqual({
      width: 4_000,
      height: 3_000,
    });
    expect(jpeg(frame(1, 1), frame(4_000, 3_000), SCAN)).toEqual({ width: 4_000, height: 3_000 });
    const gif = Buffer.from("GIF89a\x01\x00\x01\x00\x00\x00\x00,\x02\x00\x03\x00\x00\x10\x00\x10\x00", "latin1");
    expect(imageSizeOf(urlOf(gif))).toEqual({ width: 4_098, height: 4_099 });
  });

  test("a JPEG whose height comes later, or with markers that decoders read in different ways", () => {
    expect(jpeg(frame(8, 8), SCAN)).toEqual({ width: 8, height: 8 });
    expect(jpeg(frame(8, 0), SCAN)).toBeUndefined();
    for (const odd of [
      [0xff, 0xd0],
      [0xff, 0x01],
      [0xff, 0x00],
      [0xff, 0xd8],
      [0, 0],
      [0xff, 0xfe, 0, 1],
    ])
      expect(jpeg(odd, frame(8, 8), SCAN)).toBeUndefined();
    expect(jpeg(frame(8, 8))).toBeUndefined();
  });

  test("a width or height of zero", () => {
    expect(png(chunk("IHDR", 0, 5), chunk("IDAT", 0, 0))).toBeUndefined();
  });
});

test("bytes that are changed at random: never smaller than what a decoder finds, and no error", async () => {
  const images = await Promise.all(FORMATS.map((format) => imageOf(600, 500, format).toBuffer()));
  const edits = fc.array(fc.tuple(fc.nat(60), fc.nat(255)), { minLength: 1, maxLength: 4 });
  await holds(
    fc.asyncProperty(fc.constantFrom(...images), edits, async (image, changes) => {
      const bytes = Buffer.from(image);
      for (const [at, value] of changes) bytes[at] = value;
      const size = imageSizeOf(urlOf(bytes));
      if (size === undefined) return;
      const { width, height } = await sharp(bytes)
        .metadata()
        .catch(() => ({ width: 0, height: 0 }));
      expect([size.width >= width, size.height >= height]).toEqual([true, true]);
    }),
    { numRuns: 1_500 },
  );
  const starts = fc.constantFrom(
    "\x89PNG\r\n\x1a\n",
    "\xff\xd8\xff",
    "GIF89a",
    "RIFF\0\0\0\0WEBPVP8X",
    "RIFF\0\0\0\0WEBPVP8 ",
    "",
  );
  holds(
    fc.property(starts, fc.uint8Array({ maxLength: 400 }), (start, rest) => {
      imageSizeOf(urlOf(Buffer.concat([Buffer.from(start, "latin1"), rest])));
    }),
    { numRuns: 5_000 },
  );
});
