import { expect, test } from "bun:test";
import fc from "fast-check";
import { encode } from "gpt-tokenizer/encoding/o200k_base";
import { Prompt } from "../../src/gateway/prompt.ts";
import { countInRuns } from "../../src/gateway/tokens_worker.ts";
import { Written } from "../../src/gateway/written.ts";
import { holds } from "../property.ts";
import { randomOf } from "../random.ts";

/** All of a long text counts, in whatever order it stands. Source: END-5. */
const RUNS = 60;

/** Texts of one kind, by the number of characters. */
const KINDS: Record<string, (chars: number) => string> = {
  spaces: (chars) => " ".repeat(chars),
  "one letter": (chars) => "a".repeat(chars),
  Chinese: (chars) => "闸门按它卖出的计数并且说明这一点".repeat(chars).slice(0, chars),
  emoji: (chars) => "🫠🪿🧌🛞🪬🫥".repeat(chars).slice(0, chars - (chars % 2)),
  Amharic: (chars) => "የአማርኛ ጽሑፍ ረጅም መልስ ነው። ".repeat(chars).slice(0, chars),
  Yi: (chars) => "ꀀꀁꀂꀃꀄꀅꀆꀇꀈꀉꀊ".repeat(chars).slice(0, chars),
  prose: (chars) => "The gateway counts what it sells, and says so. ".repeat(chars).slice(0, chars),
  digits: (chars) => "31415926535".repeat(chars).slice(0, chars),
  base64: (chars) => Buffer.from("The gateway counts, 闸门".repeat(chars)).toString("base64").slice(0, chars),
};

/** Tokens of all of it, and as they are estimated from what is kept of it when it arrives in pieces of `pieceChars`. */
function compare(parts: readonly string[], pieceChars: number): { tokens: number; estimated: number; kept: number } {
  // The same places each time.
  const random = randomOf(parts.length);
  const written = new Written(random.next);
  let tokens = 0;
  for (const part of parts) {
    // Counted in short texts: the tokenizer takes the square of an unbroken text's length.
    for (let at = 0; at < part.length; at += 256) tokens += encode(part.slice(at, at + 256)).length;
    for (let at = 0; at < part.length; at += pieceChars) written.add(part.slice(at, at + pieceChars), pieceChars);
  }
  const { text, chars } = written.soFar;
  const counted = countInRuns(text, Number.POSITIVE_INFINITY, random.next);
  return { tokens, estimated: (counted.tokens * chars) / Math.max(1, text.length), kept: text.length };
}

test("a text of up to 32 Ki characters is kept as it is, however it arrives", () => {
  const text = "The gateway counts what it sells: 闸门 🫠. ".repeat(800).slice(0, 32 * 1024 - 1);
  for (const pieceChars of [1, 7, 128, 1_000, text.length]) {
    const written = new Written();
    for (let at = 0; at < text.length; at += pieceChars) written.add(text.slice(at, at + pieceChars), pieceChars);
    // A piece ends where it ends, also within an emoji, which is two units.
    expect(written.soFar).toEqual({ text, chars: text.length });
  }
});

type Part = readonly [kind: keyof typeof KINDS, chars: number];
const SHAPED: readonly { says: string; parts: readonly Part[] }[] = [
  {
    says: "spaces, then Chinese characters",
    parts: [
      ["spaces", 32_768],
      ["Chinese", 20_000],
    ],
  },
  {
    says: "spaces, then emoji",
    parts: [
      ["spaces", 32_768],
      ["emoji", 20_000],
    ],
  },
  {
    says: "one letter, then Amharic",
    parts: [
      ["one letter", 32_768],
      ["Amharic", 40_000],
    ],
  },
  {
    says: "a megabyte of prose with Yi at its end",
    parts: [
      ["prose", 1_000_000],
      ["Yi", 200_000],
    ],
  },
  {
    says: "Chinese, then spaces",
    parts: [
      ["Chinese", 40_000],
      ["spaces", 40_000],
    ],
  },
];

test.each(SHAPED)("$says: estimated within 10 % below and 25 % above", ({ parts }) => {
  const { tokens, estimated, kept } = compare(
    parts.map(([kind, chars]) => KINDS[kind]?.(chars) ?? ""),
    5,
  );
  expect(estimated / tokens).toBeGreaterThan(0.9);
  expect(estimated / tokens).toBeLessThan(1.25);
  expect(kept).toBeLessThan(33 * 1024);
});

test("spaces alone are estimated exactly", () => {
  // The first is kept whole, and of the second a sample.
  for (const chars of [256 * 20, 256 * 1_024]) {
    const { tokens, estimated } = compare([" ".repeat(chars)], 3);
    expect(estimated).toBe(tokens);
  }
});

const ROW = `| ${"cell".padEnd(30)} | ${"x".padEnd(60)} |\n| ${"-".repeat(30)} | ${"-".repeat(60)} |\n`;
const JSON_TEXT = JSON.stringify({ a: [{ b: [{ c: [{ d: 1, e: "f" }] }] }] }, null, 10);
/** Texts of few tokens for their length: what a cut adds to each piece counts most in them. */
const SPARSE: Record<string, string> = {
  spaces: " ",
  "one sign": "=",
  "lines of one sign": `${"=".repeat(80)}\n`,
  "long words": "internationalization misunderstanding responsibilities ",
  "a table": ROW,
  "JSON with wide margins": JSON_TEXT,
  "spaces between letters": `${" ".repeat(100)}x`,
  "wide spaces between letters": `${" ".repeat(120)}x`,
  "signs between words": `${"=".repeat(200)} word `,
  "rows of 64 signs": "=".repeat(64) + "-".repeat(64),
  "rows of 80 signs": "=".repeat(80) + "-".repeat(80),
  "code with tabs": "\t\t\t\tif (counted < asked) return refusal;\n\t\t\t}\n",
};

test.each(Object.entries(SPARSE))(
  "what an answer and a prompt are estimated at is within 12 %% of their tokens: %s",
  (_, row) => {
    const random = randomOf(7);
    for (const chars of [9_000, 40_000, 150_000]) {
      const text = row.repeat(Math.ceil(chars / row.length)).slice(0, chars);
      let tokens = 0;
      for (let at = 0; at < text.length; at += 8_192) tokens += encode(text.slice(at, at + 8_192)).length;
      const tokensOf = (sample: string) => countInRuns(sample, Number.POSITIVE_INFINITY, random.next).tokens;
      const shares = Array.from({ length: 5 }, () => {
        const written = new Written(random.next);
        for (let at = 0; at < text.length; at += 7) written.add(text.slice(at, at + 7), 7);
        const answer = written.soFar;
        const prompt = new Prompt([text], {}).sample(random.next);
        return [
          (tokensOf(answer.text) * answer.chars) / answer.text.length / tokens,
          (tokensOf(prompt.text) * prompt.textBytes) / Buffer.byteLength(prompt.text) / tokens,
        ];
      });
      for (const share of shares.flat()) {
        expect(share).toBeGreaterThan(0.88);
        expect(share).toBeLessThan(1.12);
      }
    }
  },
);

/** With a row of so many equal characters in turn, and the most that whole texts of them are estimated above their tokens. */
const LONG_ROWS: [name: string, row: (chars: number) => string, most: number][] = [
  ["spaces in front of a word", (chars) => `${" ".repeat(chars)}word`, 1.01],
  ["empty lines", (chars) => `${"\n".repeat(chars)}word`, 1.01],
  ["a letter", (chars) => `${"a".repeat(chars)} `, 1.07],
  ["lines of a sign", (chars) => `${"=".repeat(chars)}\n`, 1.11],
  ["a sign in front of a word", (chars) => `${"-".repeat(chars)}word`, 1.15],
  ["two signs in turn", (chars) => "*".repeat(chars) + "-".repeat(chars), 1.01],
  // A space and 65 signs are one token, and such a row has four others: a cut makes two of one.
  ["a space and a sign", (chars) => `${"=".repeat(chars)} word `, 1.41],
];

test.each(LONG_ROWS)(
  "rows longer than the tokenizer is given at once are cut where nearly no token is: %s",
  (_, row, most) => {
    for (const chars of [257, 300, 400, 500, 700, 1_000]) {
      const unit = row(chars);
      const units = Math.floor(30_000 / unit.length);
      const tokens = (encode(unit + unit).length - encode(unit).length) * units;
      const counted = countInRuns(unit.repeat(units), Number.POSITIVE_INFINITY).tokens;
      expect(counted / tokens).toBeWithin(0.99, most);
    }
  },
);

test("random orders of all kinds are estimated within 20 %", () => {
  const part = fc.tuple(fc.constantFrom(...Object.keys(KINDS)), fc.integer({ min: 2_000, max: 40_000 }));
  holds(
    fc.property(
      fc.array(part, { minLength: 3, maxLength: 8 }),
      fc.constantFrom(3, 5, 40, 5_000),
      (parts, pieceChars) => {
        const { tokens, estimated, kept } = compare(
          parts.map(([kind, chars]) => KINDS[kind]?.(chars) ?? ""),
          pieceChars,
        );
        // The sample is random: of 3,000 runs the furthest was 6 % off.
        expect(estimated / tokens).toBeGreaterThan(0.8);
        expect(estimated / tokens).toBeLessThan(1.2);
        expect(kept).toBeLessThan(33 * 1024);
      },
    ),
    { numRuns: RUNS },
  );
});

test("with no time at all some runs are counted, spread over the text from any place: on average it counts in full", () => {
  const text = `${" ".repeat(16_384)}${KINDS.Chinese?.(16_384)}`;
  const whole = countInRuns(text, Number.POSITIVE_INFINITY).tokens;
  // Begins at every place in turn, so that the average does not depend on chance.
  const draws = 512;
  let sum = 0;
  for (let i = 0; i < draws; i++) {
    const { tokens, chars } = countInRuns(text, Number.NEGATIVE_INFINITY, () => (i + 0.5) / draws);
    expect(chars).toBeGreaterThan(15 * 256);
    expect(chars).toBeLessThanOrEqual(16 * 256);
    const estimated = (tokens * text.length) / chars;
    expect(estimated / whole).toBeGreaterThan(0.75);
    expect(estimated / whole).toBeLessThan(1.25);
    sum += estimated;
  }
  expect(sum / draws / whole).toBeGreaterThan(0.95);
  expect(sum / draws / whole).toBeLessThan(1.05);
});

test("each run is counted once, whatever their number", () => {
  for (let runs = 1; runs <= 130; runs++) {
    const text = "7".repeat(256 * runs);
    for (const random of [() => 0, () => 0.5, () => 0.999]) {
      const { tokens, chars } = countInRuns(text, Number.POSITIVE_INFINITY, random);
      expect([tokens, chars]).toEqual([86 * runs, 256 * runs]);
    }
  }
});
