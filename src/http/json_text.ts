/** Characters and strings of JSON text, for the code that reads it without parsing it. */

/** Character codes. Files on the hot path take them into constants of their own: engines do not fold imported ones. */
export const CODES = {
  QUOTE: '"'.charCodeAt(0),
  BACKSLASH: "\\".charCodeAt(0),
  COLON: ":".charCodeAt(0),
  COMMA: ",".charCodeAt(0),
  OPEN_OBJECT: "{".charCodeAt(0),
  CLOSE_OBJECT: "}".charCodeAt(0),
  OPEN_LIST: "[".charCodeAt(0),
  CLOSE_LIST: "]".charCodeAt(0),
} as const;

const { BACKSLASH, COMMA, CLOSE_OBJECT, CLOSE_LIST } = CODES;

/** Position of a field: its value is `text.slice(start, end)`, its name begins at `keyStart`. */
export type Span = { keyStart: number; start: number; end: number };

/** An object has two fields of the same name: the value that was checked may not be the one that the provider reads. */
export class DuplicateField extends Error {
  override readonly name = "DuplicateField";
  /** Path of the field, as in `messages.0.role`. */
  readonly field: string;

  constructor(field: string) {
    super(`the field ${field} is repeated`);
    this.field = field;
  }
}

export function isSpace(code: number): boolean {
  return code === 32 || code === 10 || code === 13 || code === 9;
}

export function skipSpace(text: string, from: number): number {
  let i = from;
  while (isSpace(text.charCodeAt(i))) i++;
  return i;
}

/** Whether a number, true, false or null ends before this character. */
export function endsPrimitive(code: number): boolean {
  return code === COMMA || code === CLOSE_OBJECT || code === CLOSE_LIST || isSpace(code);
}

/** The index after the string that begins at `from`, or −1. */
export function stringEnd(text: string, from: number): number {
  let i = from + 1;
  for (;;) {
    const quote = text.indexOf('"', i);
    if (quote < 0) return -1;
    let slashes = quote;
    while (slashes > i && text.charCodeAt(slashes - 1) === BACKSLASH) slashes--;
    if ((quote - slashes) % 2 === 0) return quote + 1;
    i = quote + 1;
  }
}

/** The name between its quotes, unescaped. An invalid escape stays: the parser will reject the whole text. */
export function unescapedName(raw: string): string {
  if (!raw.includes("\\")) return raw;
  try {
    return JSON.parse(`"${raw}"`);
  } catch {
    return raw;
  }
}
