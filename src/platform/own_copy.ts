/**
 * The same text in a string of its own: a slice keeps the string that it was cut from in memory, and a concatenation all its parts.
 * By JSON and not by UTF-8, which has no half of a surrogate pair: a text may be cut within an emoji.
 */
export function ownCopy(text: string): string {
  return JSON.parse(JSON.stringify(text)) as string;
}
