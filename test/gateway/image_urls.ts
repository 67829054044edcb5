/** Data URLs of images that have nothing but a size. */

/** A PNG of this size: its header, and the beginning of its data. */
export function pngUrl(width: number, height: number): string {
  const bytes = Buffer.alloc(45);
  bytes.write("\x89PNG\r\n\x1a\n", 0, "latin1");
  bytes.writeUInt32BE(13, 8);
  bytes.write("IHDR", 12, "latin1");
  bytes.writeUInt32BE(width, 16);
  bytes.writeUInt32BE(height, 20);
  bytes.write("\x08\x02", 24, "latin1");
  bytes.write("IDAT", 37, "latin1");
  return `data:image/png;base64,${bytes.toString("base64")}`;
}
