/**
 * Bytes that arrive in pieces of any size, copied into a few blocks. A sender may send one byte at a time, and on Deno each piece keeps a
 * buffer of 64 KiB. Blocks are not copied again when more arrives, so what is allocated is at most twice what has arrived, or a block.
 */

const BLOCK_BYTES_MIN = 1024;
const BLOCK_BYTES_MAX = 64 * 1024;
const NO_BLOCK = new Uint8Array(0);

export class ByteBlocks {
  /** Bytes that have arrived, and bytes that their blocks take. */
  size = 0;
  allocated = 0;
  #blocks: Uint8Array<ArrayBuffer>[] = [];
  #last = NO_BLOCK;
  #lastBytes = 0;

  add(piece: Uint8Array): void {
    for (let at = 0; at < piece.byteLength; ) {
      if (this.#lastBytes === this.#last.byteLength) this.#addBlock(piece.byteLength - at);
      const part = piece.subarray(at, at + this.#last.byteLength - this.#lastBytes);
      this.#last.set(part, this.#lastBytes);
      this.#lastBytes += part.byteLength;
      at += part.byteLength;
    }
    this.size += piece.byteLength;
  }

  /** Each block is twice as large as the one before it, or as large as the piece that begins it. */
  #addBlock(pieceBytes: number): void {
    const wanted = Math.max(BLOCK_BYTES_MIN, 2 * this.#last.byteLength, pieceBytes);
    this.#last = new Uint8Array(Math.min(BLOCK_BYTES_MAX, wanted));
    this.#lastBytes = 0;
    this.#blocks.push(this.#last);
    this.allocated += this.#last.byteLength;
  }

  /** What has arrived, followed by `rest`, in one piece. Empties the blocks. */
  takeWith(rest: Uint8Array): Uint8Array {
    const all = new Uint8Array(this.size + rest.byteLength);
    let at = 0;
    for (const block of this.#filled()) {
      all.set(block, at);
      at += block.byteLength;
    }
    all.set(rest, at);
    this.#blocks = [];
    this.#last = NO_BLOCK;
    this.#lastBytes = this.size = this.allocated = 0;
    return all;
  }

  toBlob(): Blob {
    return new Blob(this.#filled());
  }

  #filled(): Uint8Array<ArrayBuffer>[] {
    return this.size === 0 ? [] : [...this.#blocks.slice(0, -1), this.#last.subarray(0, this.#lastBytes)];
  }
}
