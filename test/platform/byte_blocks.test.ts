import { expect, test } from "bun:test";
import { ByteBlocks } from "../../src/platform/byte_blocks.ts";

/** Bytes that arrive in pieces. Source: ADM-5, ADM-12. */

const KIB = 1024;

function filledWith(pieces: readonly Uint8Array[]): ByteBlocks {
  const blocks = new ByteBlocks();
  for (const piece of pieces) blocks.add(piece);
  return blocks;
}

const numbered = (size: number) => Uint8Array.from({ length: size }, (_, i) => i % 251);

test.each([[1], [7], [1_000], [16 * KIB], [64 * KIB], [100_000], [1_000_000]])(
  "pieces of %i bytes are kept in their order, and take at most twice their bytes, or a block",
  async (pieceBytes) => {
    const bytes = numbered(1_000_000);
    const blocks = new ByteBlocks();
    for (let at = 0; at < bytes.length; at += pieceBytes) {
      blocks.add(bytes.subarray(at, at + pieceBytes));
      expect(blocks.allocated).toBeLessThanOrEqual(Math.max(2 * blocks.size, blocks.size + 64 * KIB, KIB));
    }
    expect(blocks.size).toBe(bytes.length);
    expect(Buffer.compare(Buffer.from(await blocks.toBlob().arrayBuffer()), bytes)).toBe(0);
    const rest = numbered(10);
    expect(Buffer.compare(blocks.takeWith(rest), Buffer.concat([bytes, rest]))).toBe(0);
    expect(blocks).toMatchObject({ size: 0, allocated: 0 });
  },
);

test("blocks that were taken are used again for what comes next", () => {
  const blocks = filledWith([numbered(5_000)]);
  blocks.takeWith(new Uint8Array(0));
  blocks.add(numbered(3));
  expect(blocks.takeWith(Uint8Array.of(9))).toEqual(Uint8Array.of(0, 1, 2, 9));
  expect(new ByteBlocks().takeWith(Uint8Array.of(7))).toEqual(Uint8Array.of(7));
});
