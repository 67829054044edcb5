import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { keepIntegers, quirksOf } from "../../src/http/json_quirks.ts";
import { holds } from "../property.ts";

/** What JSON text says and its value does not. Source: STR-13, STR-14. */

const NONE = { repeats: false, hasLong: false };

describe("a member that stands twice", () => {
  test.each([
    ['{"a":1,"a":2}'],
    ['[{"a":{"b":1,"c":[],"b":2}}]'],
    ['{"a":1,"\\u0061":2}'],
    ['{"a" : 1 , "a"\n:2}'],
    [`{${Array.from({ length: 40 }, (_, i) => `"n${i}":${i}`).join(",")},"n7":0}`],
    ['{"a":{"b":1},"c":"}","a":2}'],
  ])("is found: %s", (text) => {
    expect(quirksOf(text)).toEqual({ ...NONE, repeats: true });
  });

  test("is in no text that JSON.stringify wrote", () => {
    const json = fc.jsonValue({ stringUnit: "binary" }).map((value) => JSON.stringify(value));
    holds(fc.property(json, (text) => expect(quirksOf(text).repeats).toBe(false)));
  });

  test("is not found where names are those of other objects, or values", () => {
    expect(quirksOf('{"a":{"a":{"a":"a"}},"b":[{"a":1},{"a":1}],"c":"\\"a\\":1,\\"a\\":2"}')).toEqual(NONE);
  });
});

describe("integers that a double does not have", () => {
  const kept = (text: string) => {
    const value: unknown = JSON.parse(text);
    expect(quirksOf(text).hasLong).toBe(true);
    keepIntegers(value, text);
    return value;
  };

  test("keep their digits in arguments and schemas, at any level", () => {
    const text =
      '{"calls":[{"arguments":{"id":9007199254740993,"of":[-9223372036854775808,1,"9007199254740993"]}}],' +
      '"tools":[{"function":{"parameters":{"properties":{"n":{"maximum":18446744073709551615}}}}},{"input_schema":{"minimum":1}}]}';
    expect(JSON.stringify(kept(text))).toBe(text);
  });

  test("stay numbers elsewhere: the gateway reads them", () => {
    expect(kept('{"seed":18446744073709551615,"input":[9007199254740993]}')).toEqual({
      seed: Number("18446744073709551615"),
      input: [Number("9007199254740993")],
    });
  });

  test("are no fractions, and have at most 40 characters", () => {
    const text = `{"arguments":{"a":1e400,"b":12345678901234567.5,"c":${"9".repeat(41)}}}`;
    expect(JSON.stringify(kept(text))).toBe(JSON.stringify(JSON.parse(text)));
  });

  test("with fewer digits are not looked for", () => {
    expect(quirksOf('{"a":-999999999999999,"b":"9007199254740993","c":0.1234567890}')).toEqual(NONE);
  });
});
