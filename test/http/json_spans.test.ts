import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { patch, topLevelSpans } from "../../src/http/json_spans.ts";
import { DuplicateField, type Span } from "../../src/http/json_text.ts";
import { holds } from "../property.ts";

/** The JSON patcher changes top-level fields and leaves every other byte unchanged. */

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
    ["only, with white space", '{ \n "a" : 1 \t}', "a", "{ \n  \t}"],
  ])("is removed: %s", (_, text, name, expected) => {
    expect(patched(text, { [name]: null })).toBe(expected);
  });

  test("is added after the others, or to an empty object", () => {
    expect(patched('{"a":1}', { b: "2" })).toBe('{"a":1,"b":2}');
    expect(patched(" { } ", { b: "2" })).toBe(' { "b":2} ');
    expect(patched('{"a":1}', { 'q"\n': "2" })).toBe('{"a":1,"q\\"\\n":2}');
  });
});

test("the order of the edits does not matter", () => {
  const text = '{"a":1, "b":2 ,"c":3,"d":4}';
  const one = patched(text, { d: null, c: null, a: "0" });
  expect(one).toBe(patched(text, { a: "0", c: null, d: null }));
  expect(JSON.parse(one)).toEqual({ a: 0, b: 2 });
});

test("no change returns the same text", () => {
  const text = '{ "a" : 1 ,"b":[ ]}';
  expect(patched(text, {})).toBe(text);
  expect(patched(text, { a: "1", b: "[ ]", z: null })).toBe(text);
});

test("fields of the same name in inner objects and in strings are not changed", () => {
  const text = '{"x":{"model":"in","l":[{"model":1}]},"s":"{\\"model\\":2,","model":"out","t":"]}"}';
  expect(patched(text, { model: '"new"' })).toBe(text.replace('"out"', '"new"'));
  expect(JSON.parse(patched(text, { model: null }))).toEqual({
    x: { model: "in", l: [{ model: 1 }] },
    s: '{"model":2,',
    t: "]}",
  });
});

test("a field may have the name of an inherited property", () => {
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
])("text that is not an object has no spans: %s", (text) => expect(topLevelSpans(text)).toBeUndefined());
const RUNS = 2000;

// Any JSON in any notation that JSON allows.
const space = fc.constantFrom("", "", "", " ", "\n\t", "\r\n ");
const odd = ["model", "a", 'q"uote', "back\\slash", "é", "🚦", "", "}", "nest,ed", "\n", "__proto__", "constructor"];
const name = fc.oneof(fc.constantFrom(...odd), fc.string({ unit: "binary", maxLength: 6 }));
const raw = fc.oneof(
  fc.json(),
  fc.constantFrom("1E+2", "-0.0", "12345678901234567890.10", '"\\u00e9\\/"', "[ ]", "{ \n}", '"]}"', "null", "true"),
);
/** A field as text: its name may be escaped, and white space may surround its parts. */
const field = fc.record({ name, raw, escaped: fc.boolean(), spaces: fc.tuple(space, space, space, space) });
const fields = fc.uniqueArray(field, { selector: (one) => one.name, maxLength: 8 });
const edit = fc.record({ of: fc.nat(7), raw: fc.option(raw) });
const added = fc.record({ name, raw: fc.option(raw) });
type Field = typeof field extends fc.Arbitrary<infer T> ? T : never;

function written({ name, raw, escaped, spaces: [before, behind, between, after] }: Field): string {
  return `${before}${escaped ? escapes(name) : JSON.stringify(name)}${behind}:${between}${raw}${after}`;
}

/** The string with all its characters as \u escapes. */
function escapes(text: string): string {
  const units = Array.from({ length: text.length }, (_, i) => text.charCodeAt(i).toString(16).padStart(4, "0"));
  return `"${units.map((unit) => `\\u${unit}`).join("")}"`;
}

function object(list: readonly Field[], [before, after]: readonly [string, string] = ["", ""]): string {
  return `${before}{${list.map(written).join(",")}}${after}`;
}

function check<T>(arbitrary: fc.Arbitrary<T>, rule: (value: T) => void): void {
  holds(fc.property(arbitrary, rule), { numRuns: RUNS });
}

test("the spans of an object are its fields as JSON.parse reads them; other values have none", () => {
  check(fc.record({ fields, around: fc.tuple(space, space) }), ({ fields, around }) => {
    const text = object(fields, around);
    const spans = topLevelSpans(text) ?? new Map<string, Span>();
    expect([...spans.keys()]).toEqual(fields.map((one) => one.name));
    for (const one of fields) {
      const span = spans.get(one.name);
      expect(text.slice(span?.start, span?.end)).toBe(one.raw);
      expect(JSON.parse(`{${text.slice(span?.keyStart, span?.end)}}`)).toEqual(JSON.parse(`{${written(one)}}`));
    }
  });
  check(raw, (text) => {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    expect(topLevelSpans(text) !== undefined).toBe(isObject);
  });
});

test("replacing fields leaves every other byte unchanged", () => {
  check(fc.record({ fields, edits: fc.array(edit), around: fc.tuple(space, space) }), ({ fields, edits, around }) => {
    const changes = new Map<string, string>();
    for (const { of, raw } of edits) {
      const target = fields[of];
      if (target !== undefined && raw !== null) changes.set(target.name, raw);
    }
    const wanted = fields.map((one) => ({ ...one, raw: changes.get(one.name) ?? one.raw }));
    const text = object(fields, around);
    expect(patch(text, topLevelSpans(text) ?? new Map(), changes)).toBe(object(wanted, around));
  });
});

test("removing and adding fields leaves the others unchanged and in order, and the object valid", () => {
  const plan = fc.record({ fields, edits: fc.array(edit), more: fc.array(added, { maxLength: 4 }) });
  check(plan, ({ fields, edits, more }) => {
    const changes = new Map<string, string | null>(more.map((one) => [one.name, one.raw]));
    for (const { of, raw } of edits) {
      const target = fields[of];
      if (target !== undefined) changes.set(target.name, raw);
    }
    const text = object(fields);
    const got = patch(text, topLevelSpans(text) ?? new Map(), changes);

    const wanted = new Map(fields.map((one) => [one.name, one.raw]));
    for (const [name, raw] of changes) raw === null ? wanted.delete(name) : wanted.set(name, raw);
    const spans = topLevelSpans(got) ?? new Map<string, Span>();
    expect([...spans].map(([name, { start, end }]) => [name, got.slice(start, end)])).toEqual([...wanted]);
    expect(() => JSON.parse(got)).not.toThrow();
    for (const one of fields) {
      const span = spans.get(one.name);
      if (changes.has(one.name) || span === undefined) continue;
      expect(written(one)).toContain(got.slice(span.keyStart, span.end));
    }
    // Applied again, it changes nothing.
    expect(patch(got, spans, changes)).toBe(got);
  });
});

test("a duplicate field is refused, whatever its notation", () => {
  const twice = fc.record({ fields, of: fc.nat(7), at: fc.nat(8), raw, escaped: fc.boolean() });
  check(twice, ({ fields, of, at, raw, escaped }) => {
    const one = fields[of];
    if (one === undefined) return;
    const list = [...fields];
    list.splice(at, 0, { ...one, raw, escaped });
    expect(() => topLevelSpans(object(list))).toThrow(DuplicateField);
  });
});
