/**
 * Reads the width and height of an image from the beginning of its data URL: PNG, JPEG, GIF and WebP. Pure. A provider bills an image
 * by its size, so the size that is read must be no smaller than the one that any decoder finds. Whatever is unusual is therefore
 * unknown: other formats, characters that some decoders skip, a header that is incomplete or longer than the bytes that are read.
 * Source: MON-3.
 */

/** In pixels. */
export type ImageSize = { width: number; height: number };

/** Bytes that are read of an image: few first, which suffice for most, then more, since the profile of a JPEG may stand before its size. */
const READ_BYTES = [1_536, 196_608] as const;
const DATA_URL = /^data:image\/[a-z0-9.+-]{1,40};base64,/;
/** Without white space or other alphabets: decoders differ in what they skip, and then in what they see. */
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
const MARKER = 0xff;

/** undefined: unknown. */
export function imageSizeOf(url: string): ImageSize | undefined {
  const begins = DATA_URL.exec(url)?.[0].length;
  if (begins === undefined) return undefined;
  for (const bytes of READ_BYTES) {
    const text = url.slice(begins, begins + (bytes / 3) * 4);
    if (!BASE64.test(text)) return undefined;
    const size = sizeIn(Buffer.from(text, "base64"));
    if (size !== undefined) return size.width > 0 && size.height > 0 ? size : undefined;
    if (text.length === url.length - begins) return undefined;
  }
  return undefined;
}

function sizeIn(bytes: Buffer): ImageSize | undefined {
  if (isAt(bytes, 0, "\x89PNG\r\n\x1a\n")) return pngSize(bytes);
  if (isAt(bytes, 0, "\xff\xd8")) return jpegSize(bytes);
  if (isAt(bytes, 0, "GIF87a") || isAt(bytes, 0, "GIF89a")) return gifSize(bytes);
  return isAt(bytes, 0, "RIFF") && isAt(bytes, 8, "WEBP") ? webpSize(bytes) : undefined;
}

/** The largest size of any header before the data: some decoders take the last of several. */
function pngSize(bytes: Buffer): ImageSize | undefined {
  let size: ImageSize | undefined;
  let at = 8;
  while (at + 16 <= bytes.length && !isAt(bytes, at + 4, "IDAT")) {
    if (isAt(bytes, at + 4, "IHDR"))
      size = largerOf(size, { width: bytes.readUInt32BE(at + 8), height: bytes.readUInt32BE(at + 12) });
    at += 12 + bytes.readUInt32BE(at);
  }
  return isAt(bytes, at + 4, "IDAT") ? size : undefined;
}

/** The largest size of any frame header before the first scan. A height of zero is unknown: it comes later. */
function jpegSize(bytes: Buffer): ImageSize | undefined {
  let size: ImageSize | undefined;
  let at = 2;
  while (at + 9 <= bytes.length) {
    if (bytes[at] !== MARKER) return undefined;
    const marker = bytes[at + 1] ?? 0;
    if (marker === MARKER) {
      at += 1; // A fill byte.
      continue;
    }
    if (marker === 0xda) return size;
    // Markers without a length, which do not belong here.
    if (marker < 0xc0 || (marker >= 0xd0 && marker <= 0xd9)) return undefined;
    if (isFrame(marker)) {
      const [height, width] = [bytes.readUInt16BE(at + 5), bytes.readUInt16BE(at + 7)];
      if (height === 0) return undefined;
      size = largerOf(size, { width, height });
    }
    const length = bytes.readUInt16BE(at + 2);
    if (length < 2) return undefined;
    at += 2 + length;
  }
  return undefined;
}

function isFrame(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

/** The larger of the screen and the first frame: some decoders enlarge the screen to it. */
function gifSize(bytes: Buffer): ImageSize | undefined {
  if (bytes.length < 13) return undefined;
  const screen = { width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
  const flags = bytes[10] ?? 0;
  let at = 13 + (flags & 0x80 ? 3 * 2 ** ((flags & 7) + 1) : 0);
  while (bytes[at] === 0x21) {
    at += 2;
    for (let length = bytes[at]; length !== 0; length = bytes[at]) {
      if (length === undefined) return undefined;
      at += 1 + length;
    }
    at += 1;
  }
  if (bytes[at] !== 0x2c || at + 9 > bytes.length) return undefined;
  const [left, top] = [bytes.readUInt16LE(at + 1), bytes.readUInt16LE(at + 3)];
  const frame = { width: left + bytes.readUInt16LE(at + 5), height: top + bytes.readUInt16LE(at + 7) };
  return largerOf(screen, frame);
}

function webpSize(bytes: Buffer): ImageSize | undefined {
  if (bytes.length < 30) return undefined;
  if (isAt(bytes, 12, "VP8X")) return { width: 1 + bytes.readUIntLE(24, 3), height: 1 + bytes.readUIntLE(27, 3) };
  if (isAt(bytes, 12, "VP8L") && bytes[20] === 0x2f) {
    const bits = bytes.readUInt32LE(21);
    return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) };
  }
  if (!isAt(bytes, 12, "VP8 ") || !isAt(bytes, 23, "\x9d\x01\x2a")) return undefined;
  return { width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff };
}

function largerOf(one: ImageSize | undefined, other: ImageSize): ImageSize {
  if (one === undefined) return other;
  return { width: Math.max(one.width, other.width), height: Math.max(one.height, other.height) };
}

function isAt(bytes: Buffer, at: number, text: string): boolean {
  return bytes.length >= at + text.length && bytes.toString("latin1", at, at + text.length) === text;
}
