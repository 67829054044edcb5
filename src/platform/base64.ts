/** Base64 as others write it, in the form of RFC 4648: with line breaks, with the letters of URLs, with or without padding. */

const WHITE_SPACE = /\s+/g;
const LETTERS = /^[A-Za-z0-9+/]+$/;

/** The same bytes in base64 with padding and without line breaks; undefined if the text is no base64, or empty. */
export function strictBase64(text: string): string | undefined {
  const isBroken = text.includes("\n") || text.includes("\r") || text.includes(" ") || text.includes("\t");
  let letters = isBroken ? text.replace(WHITE_SPACE, "") : text;
  // Not by a regular expression: from each "=" it would read to the next other character.
  let end = letters.length;
  while (end > 0 && letters[end - 1] === "=") end--;
  if (letters.length - end > 2) return undefined;
  letters = letters.slice(0, end);
  if (letters.includes("-") || letters.includes("_")) letters = letters.replaceAll("-", "+").replaceAll("_", "/");
  if (letters.length % 4 === 1 || !LETTERS.test(letters)) return undefined;
  const strict = letters.padEnd(Math.ceil(letters.length / 4) * 4, "=");
  return strict === text ? text : strict;
}
