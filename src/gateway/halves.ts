/**
 * Some providers divide a character beyond 16 bits between two deltas, each with half of it as an escape: "\ud83d", "\ude00". Strict
 * parsers refuse a half, so it is sent with the delta that completes it. Source: STR-12.
 */
export class Halves {
  /** The first halves of characters, by the text that they end. */
  readonly #held = new Map<string, string>();

  /** Whether the text of a later delta depends on one before. */
  get isHolding(): boolean {
    return this.#held.size > 0;
  }

  /** The next piece of a text, which is well-formed: it begins with the half that is held, and its own last half is held. */
  completed(name: string, piece: string): string {
    const before = this.#held.get(name);
    if (before === undefined && piece.isWellFormed()) return piece;
    if (piece === "") return piece;
    this.#held.delete(name);
    let text = (before ?? "") + piece;
    if (isFirstHalf(text.charCodeAt(text.length - 1))) {
      this.#held.set(name, text.slice(-1));
      text = text.slice(0, -1);
    }
    return text.toWellFormed();
  }
}

function isFirstHalf(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}
