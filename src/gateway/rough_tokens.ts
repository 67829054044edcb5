/**
 * An estimate of the tokens of a text that no tokenizer has counted: a bound for what people and programs write, by kinds of characters.
 * Ordinary text of any language is estimated as its tokens at least, and as less than three times as many: without a vocabulary, code and
 * base64 cannot be told from prose. A text of characters drawn at random may have up to twice as many tokens as are estimated. Source: END-5.
 */

/** Tokens of the first character of a row of one kind, and of each further one. */
type Rates = { first: number; next: number };

/** ASCII, where a tokenizer divides a text between kinds of characters. */
const ASCII_KINDS = {
  space: { first: 0.3, next: 0.02 }, // The last of a row is a part of the word behind it.
  tab: { first: 0.5, next: 0.1 },
  newline: { first: 1, next: 0.3 },
  control: { first: 1, next: 1 },
  digit: { first: 1, next: 0.35 }, // Three are a token.
  lower: { first: 1, next: 0.5 }, // English words have 1.2 tokens, identifiers and base64 one of two letters.
  upper: { first: 1, next: 0.6 },
  sign: { first: 1, next: 0.6 },
} as const satisfies Record<string, Rates>;
type Kind = keyof typeof ASCII_KINDS;
const ASCII_END = 0x7f;
const KIND_OF: readonly Kind[] = Array.from({ length: ASCII_END + 1 }, (_, unit) => kindOf(String.fromCharCode(unit)));

/** Tokens of each UTF-16 unit beyond ASCII, by its script, up to the last unit of each. */
const SCRIPTS: readonly { upTo: number; tokens: number }[] = [
  { upTo: 0x24f, tokens: 1 }, // Latin with accents.
  { upTo: 0x36f, tokens: 1.5 }, // Phonetic letters, accents alone.
  { upTo: 0x5ff, tokens: 0.8 }, // Greek, Cyrillic, Armenian, Hebrew.
  { upTo: 0xdff, tokens: 1 }, // Arabic, scripts of India.
  { upTo: 0xeff, tokens: 0.9 }, // Thai, Lao.
  { upTo: 0x109f, tokens: 1.5 }, // Tibetan, Burmese.
  { upTo: 0x10ff, tokens: 1 }, // Georgian.
  { upTo: 0x11ff, tokens: 1.5 }, // Korean letters.
  { upTo: 0x1dff, tokens: 2.4 }, // Amharic, Khmer, Mongolian and others.
  { upTo: 0x2bff, tokens: 1 }, // Vietnamese, punctuation, arrows, symbols.
  { upTo: 0x2fff, tokens: 2.4 },
  { upTo: 0x33ff, tokens: 1 }, // Japanese syllables.
  { upTo: 0x4dbf, tokens: 3 }, // Rare Chinese.
  { upTo: 0x9fff, tokens: 1.3 }, // Chinese.
  { upTo: 0xabff, tokens: 3 }, // Yi, Vai and others.
  { upTo: 0xd7ff, tokens: 1.2 }, // Korean.
  { upTo: 0xdfff, tokens: 1.6 }, // Half of an emoji.
  { upTo: 0xf8ff, tokens: 3 },
  { upTo: 0xffff, tokens: 1.5 }, // Wide forms.
];

export function roughTokens(text: string): number {
  let tokens = 0;
  let before: Kind | undefined;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    const kind = KIND_OF[unit];
    if (kind === undefined) tokens += SCRIPTS.find(({ upTo }) => unit <= upTo)?.tokens ?? 1;
    else tokens += ASCII_KINDS[kind][isSameWord(before, kind) ? "next" : "first"];
    before = kind;
  }
  // No token is less than a byte.
  return Math.min(tokens, Buffer.byteLength(text));
}

/** Whether a character of `kind` continues the row of the one before it; so does "ords" behind "W". */
function isSameWord(before: Kind | undefined, kind: Kind): boolean {
  return before === kind || (before === "upper" && kind === "lower");
}

function kindOf(character: string): Kind {
  if (character === " ") return "space";
  if (character === "\t") return "tab";
  if (/[\r\n]/.test(character)) return "newline";
  if (/[0-9]/.test(character)) return "digit";
  if (/[a-z]/.test(character)) return "lower";
  if (/[A-Z]/.test(character)) return "upper";
  return character > " " && character < "\x7f" ? "sign" : "control";
}
