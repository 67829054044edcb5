import { expect, test } from "bun:test";
import fc from "fast-check";
import { DEPTH_MAX, scanObject, TooDeep, TooManyValues, VALUES_MAX } from "../../src/http/json_scan.ts";
import { topLevelSpans } from "../../src/http/json_spans.ts";
import { DuplicateField } from "../../src/http/json_text.ts";
import { holds } from "../property.ts";

/** The scan before parsing: duplicate fields, depth and number of values. Messages are checked in bad_input.test.ts. Source: ADM-5, API-13, EMB-2. */

type Thrown = { name: string; path?: string; field?: string };

function thrownBy(text: string): Thrown | undefined {
  try {
    scanObject(text);
    return undefined;
  } catch (error) {
    return error as Thrown;
  }
}

const spaced = fc.array(fc.constantFrom(" ", "\n", "\t", "\r"), { maxLength: 2 }).map((all) => all.join(""));

/** Random objects as text, with white space where JSON allows it, and some characters escaped. */
const written = fc
  .tuple(
    fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue({ stringUnit: "binary" })),
    spaced,
    fc.constantFrom(0, 1, 4),
    fc.boolean(),
  )
  .map(([value, blank, indent, escaped]) => {
    const text = `${blank}${JSON.stringify(value, null, indent)}${blank}`;
    return escaped
      ? text.replace(/[^\x20-\x7e\s]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
      : text;
  });

test("the spans are those of the top-level fields, as topLevelSpans finds them", () => {
  holds(
    fc.property(written, (text) => {
      expect(scanObject(text)).toEqual(topLevelSpans(text) as Map<string, never>);
    }),
    { numRuns: 2_000 },
  );
});

test("a duplicate field is found in any object, whatever its escapes, and is named by its path", () => {
  const fields = fc.uniqueArray(fc.string({ unit: "binary", minLength: 1, maxLength: 5 }), {
    minLength: 1,
    maxLength: 20,
  });
  const path = fc.array(fc.oneof(fc.nat(3), fc.constantFrom("a", "b.c", "é")), { maxLength: 6 });
  holds(
    fc.property(fields, fc.nat(), path, fc.boolean(), (names, pick, steps, escaped) => {
      const twice = names[pick % names.length] as string;
      const again = escaped
        ? `"${[...twice].map((c) => [...Array(c.length).keys()].map((k) => `\\u${c.charCodeAt(k).toString(16).padStart(4, "0")}`).join("")).join("")}"`
        : JSON.stringify(twice);
      let text = `{${names.map((name) => `${JSON.stringify(name)}:{"x":1}`).join(",")}, ${again} : null}`;
      let whole = [twice];
      for (const step of steps) {
        // Objects that are closed before have the same names, and do not count.
        text =
          typeof step === "number"
            ? `[${'{"x":1},'.repeat(step)}${text}]`
            : `{"other":[{"x":{}}],${JSON.stringify(step)}:${text}}`;
        whole = [String(step), ...whole];
      }
      const thrown = thrownBy(`{"top":${text}}`);
      expect(thrown).toBeInstanceOf(DuplicateField);
      expect(thrown?.field).toBe(["top", ...whole].join("."));
      // Nothing of this text affects the next one.
      expect(thrownBy('{"top":{"x":1},"x":[{"x":1}]}')).toBeUndefined();
    }),
    { numRuns: 1_000 },
  );
});

test("VALUES_MAX values of any type are accepted, one more is refused, and the largest object or list is named", () => {
  // The whole object and the list count as values.
  const list = (count: number, value: string) =>
    `{"a":{"b":["in front"],"list":[${Array(count).fill(value).join(",")}]}}`;
  for (const value of ["1", "null", '"x"', "{}", "[]", '",,{}[]\\""']) {
    expect(thrownBy(list(VALUES_MAX - 5, value))).toBeUndefined();
    const thrown = thrownBy(list(VALUES_MAX - 4, value));
    expect(thrown).toBeInstanceOf(TooManyValues);
    expect(thrown?.path).toBe("a.list");
  }
  const object = (count: number) => `{${Array.from({ length: count }, (_, i) => `"f${i}":${i}`).join(",")}}`;
  expect(scanObject(object(VALUES_MAX - 1)).size).toBe(VALUES_MAX - 1);
  expect(thrownBy(object(VALUES_MAX))?.path).toBe("");
  const messages = Array(VALUES_MAX / 4).fill('{"role":"user","content":["x"]}');
  expect(thrownBy(`{"messages":[${messages.join(",")}]}`)?.path).toBe("messages");
});

test("the first numbersMax numbers are not counted as values; all other values are", () => {
  const listed = (value: string, count: number) => `{"a":[${Array(count).fill(value).join(",")}]}`;
  const more = 50;
  // The whole object and the list count as values.
  const countMax = VALUES_MAX + more - 2;
  expect(scanObject(listed("7", countMax), more).size).toBe(1);
  expect(() => scanObject(listed("7", countMax + 1), more)).toThrow(TooManyValues);
  for (const value of ['"7"', "[]", "{}"]) {
    expect(scanObject(listed(value, countMax - more), more).size).toBe(1);
    expect(() => scanObject(listed(value, countMax - more + 1), more)).toThrow(TooManyValues);
  }
});

test("the scan stops at the limit of values or of depth, without reading the rest", () => {
  // Who read on would meet a field that stands twice.
  const bomb = `{"model":"chat-a","messages":[{"role":"user","content":[${"{},".repeat(VALUES_MAX)}{"a":1,"a":2}]}]}`;
  expect(thrownBy(bomb)).toBeInstanceOf(TooManyValues);
  expect(thrownBy(bomb)?.path).toBe("messages.0.content");
  const few = `{"model":"chat-a","messages":[{"role":"user","content":[{},{"a":1,"a":2}]}]}`;
  expect(thrownBy(few)).toBeInstanceOf(DuplicateField);
  expect(thrownBy(`{"a":${"[".repeat(DEPTH_MAX - 1)}`)).toBeUndefined();
  expect(thrownBy(`{"a":${"[".repeat(DEPTH_MAX)}`)).toBeInstanceOf(TooDeep);
});

test("for invalid JSON, no error but DuplicateField is thrown", () => {
  const pieces = fc.constantFrom("{", "}", "[", "]", ",", ":", '"a"', '"', "\\", "1", "tru", " ", '"\\u00"', "\uFEFF");
  holds(
    fc.property(fc.array(pieces, { maxLength: 20 }), (parts) => {
      const thrown = thrownBy(parts.join(""));
      if (thrown !== undefined) expect(thrown).toBeInstanceOf(DuplicateField);
    }),
    { numRuns: 5_000 },
  );
});
