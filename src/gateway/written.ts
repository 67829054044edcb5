import { ownCopy } from "../platform/own_copy.ts";
import { pieceOfTokens, SEARCHED_CHARS } from "./token_starts.ts";

/**
 * The text that a model has written so far, for counting its tokens if its client leaves. A short text is kept whole, and of a longer
 * one a sample: equal parts, and of each a piece at a random place. So all of the text counts alike, in whatever order it stands.
 * Source: END-5.
 */

/** Length of a piece, in characters. Of a sample, a piece begins and ends where a token does, somewhat later. */
const PIECE_CHARS = 128;
/** When so many pieces are kept, one of each two neighbours is dropped. Up to 32 Ki characters are kept whole. */
const PIECES_MAX = 256;
/** A slice of a string keeps the whole string in memory. Once slices keep more than this alive, they are copied. */
const SLICED_CHARS_MAX = 2 * 1024;

/** `text`: all of the text, or a sample of it; `chars`: the length of all of it. */
export type WrittenText = { text: string; chars: number };

export class Written {
  /** Of all of the text, in characters. */
  length = 0;
  readonly #random: () => number;
  #pieces: string[] = [];
  /** What has arrived of the current piece, and where it begins. */
  #piece = "";
  #pieceAt = 0;
  /** Where the current part begins, and the length of a part. */
  #partAt = 0;
  #partChars = PIECE_CHARS;
  /** What is read for a piece. */
  #readChars = PIECE_CHARS;
  /** Length of the strings that the current piece has slices of. */
  #slicedChars = 0;

  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** `sourceChars`: the length of the part of the source that `text` is a slice of. */
  add(text: string, sourceChars: number): void {
    const at = this.length;
    this.length += text.length;
    while (this.length > this.#pieceAt) {
      const from = this.#pieceAt + this.#piece.length - at;
      const missing = this.#readChars - this.#piece.length;
      this.#piece += from === 0 && text.length <= missing ? text : text.slice(from, from + missing);
      if (this.#piece.length === this.#readChars) {
        this.#endPiece();
        continue;
      }
      this.#slicedChars += sourceChars;
      if (this.#slicedChars > SLICED_CHARS_MAX) this.#copyPiece();
      return;
    }
  }

  get soFar(): WrittenText {
    // Nothing stands between two pieces: it would be counted with each of them, and double what spaces take.
    return { text: [...this.#pieces, this.#piece.slice(0, PIECE_CHARS)].join(""), chars: this.length };
  }

  #endPiece(): void {
    const isWhole = this.#partChars === PIECE_CHARS;
    if (!isWhole) this.#piece = pieceOfTokens(this.#piece, PIECE_CHARS);
    this.#copyPiece();
    this.#pieces.push(this.#piece);
    this.#piece = "";
    const readTo = this.#pieceAt + this.#readChars;
    this.#partAt += this.#partChars;
    if (this.#pieces.length === PIECES_MAX) {
      this.#pieces = this.#halved(isWhole);
      this.#partChars *= 2;
      // Never more than a part: the pieces would fall behind the text, and its end would count less.
      this.#readChars = Math.min(this.#partChars, PIECE_CHARS + SEARCHED_CHARS);
    }
    // What was read for the last piece may end in this part.
    const place = this.#partAt + Math.floor(this.#random() * (this.#partChars - PIECE_CHARS));
    this.#pieceAt = Math.max(place, readTo);
  }

  /** One of each two neighbours. Of a whole text, neighbours are still one behind the other. */
  #halved(isWhole: boolean): string[] {
    const text = isWhole ? this.#pieces.join("") : "";
    const kept: string[] = [];
    for (let i = 0; i < PIECES_MAX; i += 2) {
      const at = this.#random() < 0.5 ? i : i + 1;
      const start = at * PIECE_CHARS;
      const cut = isWhole && pieceOfTokens(text.slice(start, start + 2 * PIECE_CHARS), PIECE_CHARS);
      kept.push(cut === false ? (this.#pieces[at] as string) : cut);
    }
    return kept;
  }

  #copyPiece(): void {
    this.#piece = ownCopy(this.#piece);
    this.#slicedChars = 0;
  }
}
