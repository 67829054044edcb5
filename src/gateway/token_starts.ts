/**
 * Where tokens of o200k_base begin, whatever the text around. A text that is cut there has as many tokens as its parts. Elsewhere a cut
 * makes one more, or what stood on its two sides becomes one.
 */

/** So many characters are searched for such a place, at most. Longer words, and longer rows of one character, have none. */
export const SEARCHED_CHARS = 256;

const SPACE = 0x20;
const NEWLINE = 0x0a;
/** A row of so many equal signs is made of tokens of its own. */
const ROW_CHARS = 4;
/** The tokens of a longer row are, nearly, those of parts of this length. */
const ROW_PART_CHARS = 128;

/**
 * Whether one begins at `at`: the last space in front of a word, a line that does not begin with white space, a row of one character
 * behind a row of another, or a word behind signs. (One sign may belong to the word behind it.)
 */
export function beginsToken(text: string, at: number): boolean {
  const unit = text.charCodeAt(at);
  if (unit === SPACE) return !isWhite(text.charCodeAt(at + 1));
  const before = text.charCodeAt(at - 1);
  if (before === NEWLINE) return !isWhite(unit);
  if (isWordUnit(unit)) return isSign(before) && isSign(text.charCodeAt(at - 2));
  return unit !== before && !isWhite(unit) && isRow(text, at - ROW_CHARS) && isRow(text, at);
}

/** Of a long row of one character around `end`: the last place up to `end` that is whole parts behind where it begins, at `from` or later. */
export function partOfRow(text: string, from: number, end: number): number | undefined {
  let row = end;
  while (row > from && text.charCodeAt(row - 1) === text.charCodeAt(end)) row--;
  return end - row < ROW_CHARS ? undefined : end - ((end - row) % ROW_PART_CHARS);
}

/** Whether a row of one character begins at `at`. */
function isRow(text: string, at: number): boolean {
  for (let next = at + 1; next < at + ROW_CHARS; next++)
    if (text.charCodeAt(next) !== text.charCodeAt(at)) return false;
  return true;
}

/**
 * About `chars` characters of `text`, which has up to SEARCHED_CHARS more: from the first place where a token begins to the first such
 * place behind `chars`. So every token is as likely to be in a piece at a random place as its length says, and none is in it by half.
 */
export function pieceOfTokens(text: string, chars: number): string {
  const searched = Math.max(0, text.length - chars);
  return text.slice(startFrom(text, 0, searched), startFrom(text, chars, searched));
}

function startFrom(text: string, from: number, searched: number): number {
  for (let at = from; at < from + searched; at++) if (beginsToken(text, at)) return at;
  return from;
}

/** An ASCII letter or digit. */
function isWordUnit(unit: number): boolean {
  return (unit >= 0x30 && unit <= 0x39) || (unit >= 0x41 && unit <= 0x5a) || (unit >= 0x61 && unit <= 0x7a);
}

/** An ASCII sign. */
function isSign(unit: number): boolean {
  return unit > SPACE && unit < 0x7f && !isWordUnit(unit);
}

/** White space of ASCII, and the end of a text: what follows it is unknown. */
function isWhite(unit: number): boolean {
  return Number.isNaN(unit) || unit === SPACE || (unit >= 0x09 && unit <= 0x0d);
}
