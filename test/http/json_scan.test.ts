import { expect, test } from "bun:test";
import fc from "fast-check";
import { DEPTH_MAX, scanObject, TooDeep, TooManyValues, VALUES_MAX } from "../../src/http/json_scan.ts";
import { topLevelSpans } from "../../src/http/json_spans.ts";
import { DuplicateField } from "../../src/http/json_text.ts";

/** What is refused before a parser sees it. What is said of it, and of doubled fields, stands in body_cases.ts. */

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

/** The same value as text, with blanks wherever JSON allows them, and some characters escaped. */
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

test("the spans of an object are its top-level fields, as the other reading of them finds", () => {
  fc.assert(
    fc.property(written, (text) => {
      expect(scanObject(text)).toEqual(topLevelSpans(text) as Map<string, never>);
    }),
    { numRuns: 2_000 },
  );
});

test("a field that stands twice is found in any object, however either is escaped, and is named by its path", () => {
  const fields = fc.uniqueArray(fc.string({ unit: "binary", minLength: 1, maxLength: 5 }), {
    minLength: 1,
    maxLength: 20,
  });
  const path = fc.array(fc.oneof(fc.nat(3), fc.constantFrom("a", "b.c", "é")), { maxLength: 6 });
  fc.assert(
    fc.property(fields, fc.nat(), path, fc.boolean(), (names, pick, steps, escaped) => {
      const twice = names[pick % names.length] as string;
      const again = escaped
        ? `"${[...twice].map((c) => [...Array(c.length).keys()].map((k) => `\\u${c.charCodeAt(k).toString(16).padStart(4, "0")}`).join("")).join("")}"`
        : JSON.stringify(twice);
      let text = `{${names.map((name) => `${JSON.stringify(name)}:{"x":1}`).join(",")}, ${again} : null}`;
      let whole = [twice];
      for (const step of steps) {
        // Objects that are closed by then have names too, and no part in it.
        text =
          typeof step === "number"
            ? `[${'{"x":1},'.repeat(step)}${text}]`
            : `{"other":[{"x":{}}],${JSON.stringify(step)}:${text}}`;
        whole = [String(step), ...whole];
      }
      const thrown = thrownBy(`{"top":${text}}`);
      expect(thrown).toBeInstanceOf(DuplicateField);
      expect(thrown?.field).toBe(["top", ...whole].join("."));
      // The next text finds nothing left of this one.
      expect(thrownBy('{"top":{"x":1},"x":[{"x":1}]}')).toBeUndefined();
    }),
    { numRuns: 1_000 },
  );
});

test("as many values as allowed pass, one more does not, whatever they are; the largest object or list is named", () => {
  // The whole and the list are values too.
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

test("the scan stops at the limit: it does not look at the rest, nor at what is nested too deeply", () => {
  const bomb = `{"model":"chat-a","messages":[{"role":"user","content":[${"{},".repeat(6_000_000)}{}]}]}`;
  const startedMs = performance.now();
  expect(thrownBy(bomb)?.path).toBe("messages.0.content");
  expect(performance.now() - startedMs).toBeLessThan(1_000);
  expect(thrownBy(`{"a":${"[".repeat(DEPTH_MAX - 1)}`)).toBeUndefined();
  expect(thrownBy(`{"a":${"[".repeat(DEPTH_MAX)}`)).toBeInstanceOf(TooDeep);
});

test("a text that is not valid JSON has no spans, or the parser refuses it; nothing else is thrown", () => {
  const pieces = fc.constantFrom("{", "}", "[", "]", ",", ":", '"a"', '"', "\\", "1", "tru", " ", '"\\u00"', "\uFEFF");
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 20 }), (parts) => {
      const thrown = thrownBy(parts.join(""));
      if (thrown !== undefined) expect(thrown).toBeInstanceOf(DuplicateField);
    }),
    { numRuns: 5_000 },
  );
});
