/**
 * Where tokens of o200k_base begin, whatever the text around. A text that is cut there has as many tokens as its parts. Elsewhere a cut
 * makes one more, or what stood on its two sides becomes one.
 */

/** So many characters are searched for such a place. Long words, and rows of one character, have none. */
export const SEARCHED_CHARS = 64;

const SPACE = 0x20;
const NEWLINE = 0x0a;

/** Whether one begins at `at`: the last space in front of a word, or a line that does not begin with white space. */
export function beginsToken(text: string, at: number): boolean {
  const unit = text.charCodeAt(at);
  if (unit === SPACE) return !isWhite(text.charCodeAt(at + 1));
  return text.charCodeAt(at - 1) === NEWLINE && !isWhite(unit);
}

/**
 * About `chars` characters of `text`, which has SEARCHED_CHARS more: from the first place where a token begins to the first such place
 * behind `chars`. So every token is as likely to be in a piece at a random place as its length says, and none is in it by half.
 */
export function pieceOfTokens(text: string, chars: number): string {
  return text.slice(startFrom(text, 0), startFrom(text, chars));
}

function startFrom(text: string, from: number): number {
  for (let at = from; at < from + SEARCHED_CHARS && at < text.length; at++) if (beginsToken(text, at)) return at;
  return from;
}

/** White space of ASCII, and the end of a text: what follows it is unknown. */
function isWhite(unit: number): boolean {
  return Number.isNaN(unit) || unit === SPACE || (unit >= 0x09 && unit <= 0x0d);
}
