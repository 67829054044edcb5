import { describe, expect, test } from "bun:test";
import { DuplicateField, patch, topLevelSpans } from "../../src/gateway/json_spans.ts";

/** The JSON patcher: top-level fields change, every other byte stays. */

type Edits = Record<string, string | null>;

function patched(text: string, edits: Edits): string {
  const spans = topLevelSpans(text);
  if (spans === undefined) throw new Error("no object");
  return patch(text, spans, new Map(Object.entries(edits)));
}

describe("one field", () => {
  test.each([
    ["first", '{"a":1,"b":2,"c":3}', { a: "9" }, '{"a":9,"b":2,"c":3}'],
    ["in the middle", '{"a":1,"b":2,"c":3}', { b: '"x"' }, '{"a":1,"b":"x","c":3}'],
    ["last", '{"a":1,"b":2,"c":3}', { c: "[1]" }, '{"a":1,"b":2,"c":[1]}'],
    ["only", '{"a":1}', { a: "{}" }, '{"a":{}}'],
  ] as const)("is replaced: %s", (_, text, edits, expected) => {
    expect(patched(text, edits)).toBe(expected);
  });

  test.each([
    ["first", '{"a":1,"b":2,"c":3}', "a", '{"b":2,"c":3}'],
    ["in the middle", '{"a":1,"b":2,"c":3}', "b", '{"a":1,"c":3}'],
    ["last", '{"a":1,"b":2,"c":3}', "c", '{"a":1,"b":2}'],
    ["only", '{"a":1}', "a", "{}"],
    ["only, in a wide place", '{ \n "a" : 1 \t}', "a", "{ \n  \t}"],
  ])("is taken away: %s", (_, text, name, expected) => {
    expect(patched(text, { [name]: null })).toBe(expected);
  });

  test("is added behind the others, or alone in an empty object", () => {
    expect(patched('{"a":1}', { b: "2" })).toBe('{"a":1,"b":2}');
    expect(patched(" { } ", { b: "2" })).toBe(' { "b":2} ');
    expect(patched('{"a":1}', { 'q"\n': "2" })).toBe('{"a":1,"q\\"\\n":2}');
  });
});

describe("several fields at once", () => {
  const text = '{"a":1, "b":2 ,"c":3,"d":4}';
  const names = ["a", "b", "c", "d"];

  test("every set of fields may go", () => {
    for (let set = 0; set < 16; set++) {
      const gone = names.filter((_, i) => set & (1 << i));
      const expected = Object.fromEntries(Object.entries(JSON.parse(text)).filter(([name]) => !gone.includes(name)));
      expect(JSON.parse(patched(text, Object.fromEntries(gone.map((name) => [name, null]))))).toEqual(expected);
    }
  });

  test("every set of fields may go while others are replaced and added", () => {
    for (let set = 0; set < 16; set++) {
      const gone = names.filter((_, i) => set & (1 << i));
      const edits: Edits = {
        e: "5",
        ...Object.fromEntries(names.map((name) => [name, gone.includes(name) ? null : '"new"'])),
      };
      const kept = names.filter((name) => !gone.includes(name)).map((name) => [name, "new"]);
      expect(JSON.parse(patched(text, edits))).toEqual({ ...Object.fromEntries(kept), e: 5 });
    }
  });

  test("the order in which edits are named does not matter", () => {
    const one = patched(text, { d: null, c: null, a: "0" });
    expect(one).toBe(patched(text, { a: "0", c: null, d: null }));
    expect(JSON.parse(one)).toEqual({ a: 0, b: 2 });
  });
});

test("nothing to change returns the very same text", () => {
  const text = '{ "a" : 1 ,"b":[ ]}';
  expect(patched(text, {})).toBe(text);
  expect(patched(text, { a: "1", b: "[ ]", z: null })).toBe(text);
});

test("fields of the same name further inside, and inside strings, are left alone", () => {
  const text = '{"x":{"model":"in","l":[{"model":1}]},"s":"{\\"model\\":2,","model":"out","t":"]}"}';
  expect(patched(text, { model: '"new"' })).toBe(text.replace('"out"', '"new"'));
  expect(JSON.parse(patched(text, { model: null }))).toEqual({
    x: { model: "in", l: [{ model: 1 }] },
    s: '{"model":2,',
    t: "]}",
  });
});

test("a key is found however it is escaped", () => {
  expect(patched('{"m\\u006fdel":1,"b":2}', { model: "3" })).toBe('{"m\\u006fdel":3,"b":2}');
  expect(JSON.parse(patched('{"a\\"b":1,"c\\\\":2,"é🚦":3}', { 'a"b': null, "c\\": "4", "é🚦": "5" }))).toEqual({
    "c\\": 4,
    "é🚦": 5,
  });
});

test("white space, numbers and escapes stay as they were written", () => {
  const text = '{\n\t"big" : 12345678901234567890.10 ,\r\n "e":1E+2, "u":"\\u00e9\\/" , "model" : "a" \n}\n';
  expect(patched(text, { model: '"b"' })).toBe(text.replace('"a"', '"b"'));
});

test.each(['{"a":1,"a":2}', '{"a":1,"b":{},"\\u0061":2}', '{"__proto__":1,"__proto__":2}'])(
  "a field that stands twice is refused: %s",
  (text) => expect(() => topLevelSpans(text)).toThrow(DuplicateField),
);

test("a field may be called as anything that objects inherit", () => {
  const text = '{"__proto__":1,"constructor":2,"toString":3}';
  expect(patched(text, { constructor: "4" })).toBe('{"__proto__":1,"constructor":4,"toString":3}');
  expect(patched("{}", { hasOwnProperty: "1" })).toBe('{"hasOwnProperty":1}');
});

test.each([
  "",
  "[]",
  '"a"',
  "null",
  "{",
  '{"a"',
  '{"a":',
  '{"a":1',
  '{"a":1,',
  '{"a":1}}',
  '{"a":1} x',
  '{"a":[1}',
  '{"a":"b}',
  "{a:1}",
  '{"a" 1}',
  '{"a":1 "b":2}',
  '{"a":1,,"b":2}',
])("what is no object is not taken for one: %s", (text) => expect(topLevelSpans(text)).toBeUndefined());

test("2,000 random objects and edits: the patched text parses to the edited object", () => {
  const random = randomFrom(77);
  for (let round = 0; round < 2000; round++) {
    const fields = new Map<string, unknown>();
    for (let i = 0, n = below(random, 7); i < n; i++) fields.set(key(random), value(random, 3));
    const text = write(random, fields);
    const edits = new Map<string, string | null>();
    for (const name of fields.keys())
      if (random() < 0.5) edits.set(name, random() < 0.5 ? null : JSON.stringify(value(random, 2)));
    for (let i = 0, n = below(random, 3); i < n; i++)
      edits.set(key(random), random() < 0.3 ? null : JSON.stringify(value(random, 2)));
    const expected = new Map(fields);
    for (const [name, raw] of edits) raw === null ? expected.delete(name) : expected.set(name, JSON.parse(raw));
    const got = patch(text, topLevelSpans(text) ?? new Map(), edits);
    const parsed = parse(got);
    const wanted = Object.fromEntries(expected);
    if (!Bun.deepEquals(parsed, wanted))
      expect({ round, text, edits, got, parsed }).toEqual({ round, text, edits, got, parsed: wanted });
  }
});

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return "not JSON"; // The test shows the text.
  }
}

/** Numbers from 0 up to 1, the same for the same seed. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const below = (random: () => number, n: number) => Math.floor(random() * n);

function key(random: () => number): string {
  return ["model", "a", "b", 'q"uote', "back\\slash", "é", "🚦", "", "}", "nest,ed", "\n"][below(random, 11)] as string;
}

function value(random: () => number, depth: number): unknown {
  const kind = below(random, depth > 0 ? 8 : 6);
  if (kind === 0) return null;
  if (kind === 1) return random() < 0.5;
  if (kind === 2) return below(random, 1000) / 8;
  if (kind < 6) return ["", "text", '"', "\\", '\\"', "{[", "]},", "é🚦\u2028", "\\\\"][below(random, 9)];
  const items = Array.from({ length: below(random, 4) }, () => value(random, depth - 1));
  return kind === 6 ? items : Object.fromEntries(items.map((item) => [key(random), item]));
}

/** The object as JSON with white space wherever it may stand. */
function write(random: () => number, fields: ReadonlyMap<string, unknown>): string {
  const space = () => ["", "", " ", "\n\t", "\r\n"][below(random, 5)] as string;
  const parts = [...fields].map(
    ([name, content]) =>
      `${space()}${JSON.stringify(name)}${space()}:${space()}${JSON.stringify(content, null, below(random, 3))}${space()}`,
  );
  return `${space()}{${parts.length > 0 ? parts.join(",") : space()}}${space()}`;
}
