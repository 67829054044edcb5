import { describe, expect, test } from "bun:test";
import { FormatRegistry, type TSchema, Type } from "@sinclair/typebox";
import { ValueErrorType } from "@sinclair/typebox/errors";
import { Value } from "@sinclair/typebox/value";
import type { Deps } from "../../src/deps.ts";
import { Refusal } from "../../src/errors.ts";
import { ChatBody, ImageBody, UsageQuery } from "../../src/gateway/request_shapes.ts";
import { checker } from "../../src/http/checks.ts";
import { problemOf } from "../../src/http/field_errors.ts";
import { panelEndpoints } from "../../src/panel/api/endpoints.ts";
import { chatBody, imageBody } from "../gateway/shop.ts";

/** A refusal of a body or query names the field and says in one sentence what it must be. Source: ERR-6. */

const SENTENCE = /^The (?:field \S+|request) (?:must be|must not|is required|is not|has) ?[^A-Z]*.*\.$/;
/** Words of validation libraries and of programmers. */
const NO_WORDS =
  /expected|union|schema|property|properties|undefined|must be (?:string|number|integer|array|object|boolean)\b|length|greater|less or equal|equal to|one of \S+\.$|\[object|9007199254740991/i;

function sentenceFor(schema: TSchema, value: unknown): string {
  const { message } = problemOf(Value.Errors(schema, value).First());
  expect(message).toMatch(SENTENCE);
  expect(message).not.toMatch(NO_WORDS);
  return message;
}

describe("every kind of error", () => {
  FormatRegistry.Set("date", (text) => /^\d{4}-\d\d-\d\d$/.test(text));
  const field = (schema: TSchema) => Type.Object({ x: schema });
  const of = (x: unknown) => ({ x });
  const string = Type.String();
  const number = Type.Number();
  const cases: [kind: keyof typeof ValueErrorType, schema: TSchema, value: unknown, sentence: string][] = [
    ["ArrayContains", field(Type.Array(string, { contains: number })), of(["a"]), "must be an array"],
    [
      "ArrayMaxContains",
      field(Type.Array(number, { contains: number, maxContains: 1 })),
      of([1, 2]),
      "must be an array",
    ],
    ["ArrayMinContains", field(Type.Array(number, { contains: number, minContains: 3 })), of([1]), "must be an array"],
    [
      "ArrayMaxItems",
      field(Type.Array(string, { maxItems: 2 })),
      of(["a", "b", "c"]),
      "must be an array of at most 2 elements",
    ],
    ["ArrayMinItems", field(Type.Array(string, { minItems: 1 })), of([]), "must be an array of at least 1 element"],
    [
      "ArrayUniqueItems",
      field(Type.Array(string, { uniqueItems: true })),
      of(["a", "a"]),
      "must not have the same element twice",
    ],
    [
      "Array",
      field(Type.Array(string, { minItems: 1, maxItems: 10_000 })),
      of("a"),
      "must be an array of 1 to 10,000 elements",
    ],
    ["AsyncIterator", field(Type.AsyncIterator(string)), of(1), "is not valid"],
    ["BigIntExclusiveMaximum", field(Type.BigInt({ exclusiveMaximum: 1n })), of(2n), "is not valid"],
    ["BigIntExclusiveMinimum", field(Type.BigInt({ exclusiveMinimum: 1n })), of(0n), "is not valid"],
    ["BigIntMaximum", field(Type.BigInt({ maximum: 1n })), of(2n), "is not valid"],
    ["BigIntMinimum", field(Type.BigInt({ minimum: 1n })), of(0n), "is not valid"],
    ["BigIntMultipleOf", field(Type.BigInt({ multipleOf: 2n })), of(3n), "is not valid"],
    ["BigInt", field(Type.BigInt()), of(1), "is not valid"],
    ["Boolean", field(Type.Boolean()), of("true"), "must be true or false"],
    [
      "DateExclusiveMaximumTimestamp",
      field(Type.Date({ exclusiveMaximumTimestamp: 1 })),
      of(new Date(2)),
      "is not valid",
    ],
    [
      "DateExclusiveMinimumTimestamp",
      field(Type.Date({ exclusiveMinimumTimestamp: 1 })),
      of(new Date(0)),
      "is not valid",
    ],
    ["DateMaximumTimestamp", field(Type.Date({ maximumTimestamp: 1 })), of(new Date(2)), "is not valid"],
    ["DateMinimumTimestamp", field(Type.Date({ minimumTimestamp: 1 })), of(new Date(0)), "is not valid"],
    ["DateMultipleOfTimestamp", field(Type.Date({ multipleOfTimestamp: 2 })), of(new Date(3)), "is not valid"],
    ["Date", field(Type.Date()), of(1), "is not valid"],
    ["Function", field(Type.Function([], string)), of(1), "is not valid"],
    ["IntegerExclusiveMaximum", field(Type.Integer({ exclusiveMaximum: 5 })), of(5), "must be a whole number below 5"],
    ["IntegerExclusiveMinimum", field(Type.Integer({ exclusiveMinimum: 0 })), of(0), "must be a whole number above 0"],
    [
      "IntegerMaximum",
      field(Type.Integer({ minimum: 1, maximum: 1000 })),
      of(1001),
      "must be a whole number from 1 to 1000",
    ],
    [
      "IntegerMinimum",
      field(Type.Integer({ minimum: 1, maximum: 2_000_000_000 })),
      of(0),
      "must be a whole number from 1 to 2,000,000,000",
    ],
    [
      "IntegerMultipleOf",
      field(Type.Integer({ multipleOf: 4 })),
      of(5),
      "must be a whole number that is a multiple of 4",
    ],
    [
      "Integer",
      field(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
      of(1.5),
      "must be a whole number of at least 1",
    ],
    [
      "IntersectUnevaluatedProperties",
      field(Type.Intersect([Type.Object({ a: string }), Type.Object({})], { unevaluatedProperties: false })),
      of({ a: "", b: 1 }),
      "is not known here",
    ],
    [
      "Intersect",
      field(Type.Intersect([Type.Object({ a: string }), Type.Object({ b: string })])),
      of(5),
      "must be an object",
    ],
    ["Iterator", field(Type.Iterator(string)), of(1), "is not valid"],
    ["Literal", field(Type.Literal(1)), of(2), "must be 1"],
    ["Never", field(Type.Never()), of(1), "is not known here"],
    ["Not", field(Type.Not(string)), of("a"), "is not valid"],
    ["Null", field(Type.Null()), of(1), "must be null"],
    ["NumberExclusiveMaximum", field(Type.Number({ exclusiveMaximum: 0.5 })), of(1), "must be a number below 0.5"],
    ["NumberExclusiveMinimum", field(Type.Number({ exclusiveMinimum: 0 })), of(0), "must be a number above 0"],
    ["NumberMaximum", field(Type.Number({ minimum: 0, maximum: 2 })), of(3), "must be a number from 0 to 2"],
    ["NumberMinimum", field(Type.Number({ minimum: 0 })), of(-1), "must be a number of at least 0"],
    [
      "NumberMultipleOf",
      field(Type.Number({ multipleOf: 0.5 })),
      of(0.7),
      "must be a number that is a multiple of 0.5",
    ],
    ["Number", field(Type.Number({ maximum: 2 })), of("1"), "must be a number of at most 2"],
    ["ObjectAdditionalProperties", Type.Object({}, { additionalProperties: false }), of(1), "is not known here"],
    [
      "ObjectMaxProperties",
      field(Type.Object({}, { maxProperties: 1 })),
      of({ a: 1, b: 1 }),
      "must be an object of at most 1 field",
    ],
    [
      "ObjectMinProperties",
      field(Type.Object({}, { minProperties: 2 })),
      of({}),
      "must be an object of at least 2 fields",
    ],
    ["ObjectRequiredProperty", field(string), {}, "is required"],
    ["Object", field(Type.Object({})), of("a"), "must be an object"],
    ["Promise", field(Type.Promise(string)), of(1), "is not valid"],
    ["RegExp", field(Type.RegExp(/a/)), of("b"), "is not valid"],
    ["StringFormatUnknown", field(Type.String({ format: "nobody-knows" })), of("a"), "must be a string"],
    ["StringFormat", field(Type.String({ format: "date" })), of("a"), "must be a date, as in 2030-01-31"],
    [
      "StringMaxLength",
      field(Type.String({ minLength: 1, maxLength: 200 })),
      of("a".repeat(201)),
      "must be a string of 1 to 200 characters",
    ],
    ["StringMinLength", field(Type.String({ minLength: 10 })), of("a"), "must be a string of at least 10 characters"],
    ["StringPattern", field(Type.String({ pattern: "^[0-9]$", says: "a digit" })), of("a"), "must be a digit"],
    ["String", field(Type.String({ maxLength: 40 })), of(1), "must be a string of at most 40 characters"],
    ["Symbol", field(Type.Symbol()), of(1), "is not valid"],
    ["TupleLength", field(Type.Tuple([string])), of(["a", "b"]), "must be an array of 1 element"],
    ["Tuple", field(Type.Tuple([string, string])), of(1), "must be an array of 2 elements"],
    ["Uint8ArrayMaxByteLength", field(Type.Uint8Array({ maxByteLength: 1 })), of(new Uint8Array(2)), "is not valid"],
    ["Uint8ArrayMinByteLength", field(Type.Uint8Array({ minByteLength: 2 })), of(new Uint8Array(1)), "is not valid"],
    ["Uint8Array", field(Type.Uint8Array()), of(1), "is not valid"],
    ["Undefined", field(Type.Undefined()), of(1), "is not valid"],
    [
      "Union",
      field(Type.Union([string, Type.Array(Type.Object({})), Type.Null()])),
      of(1),
      "must be a string or an array",
    ],
    ["Void", field(Type.Void()), of(1), "is not valid"],
  ];

  for (const [kind, schema, value, predicate] of cases) {
    test(`${kind}: The field x ${predicate}.`, () => {
      const first = Value.Errors(schema, value).First();
      // In an intersection, the error of a member comes before its own.
      if (kind !== "Intersect") expect(first?.type).toBe(ValueErrorType[kind]);
      const { message, param } = problemOf(first);
      expect(param).toMatch(/^x(?:\.b)?$/);
      expect(message).toBe(`The field ${param} ${predicate}.`);
      expect(message).not.toMatch(NO_WORDS);
    });
  }

  test("every kind of error is in the table", () => {
    const kinds = Object.keys(ValueErrorType).filter((name) => Number.isNaN(Number(name)));
    // `Kind` is for custom types, which are not used.
    expect(cases.map(([kind]) => kind as string).sort()).toEqual(kinds.filter((kind) => kind !== "Kind").sort());
  });

  test("union: the error is that of the intended variant, or names the allowed constants or types", () => {
    const kinds = Type.Union([
      Type.Object({ kind: Type.Literal("a"), n: Type.Integer({ minimum: 1 }) }),
      Type.Object({ kind: Type.Literal("b"), s: string }),
    ]);
    expect(sentenceFor(kinds, { kind: "b" })).toBe("The field s is required.");
    expect(sentenceFor(kinds, { kind: "c", n: 1, s: "" })).toBe("The field kind must be one of a, b.");
    expect(sentenceFor(kinds, 5)).toBe("The request must be an object.");
    expect(sentenceFor(Type.Union([Type.Number({ maximum: 2 }), Type.Null()]), 3)).toBe(
      "The request must be a number of at most 2.",
    );
  });
});

describe("the gateway's own shapes", () => {
  const message = (over: Record<string, unknown>) => chatBody({ messages: [{ role: "user", content: "x", ...over }] });
  test.each<[TSchema, unknown, string, string]>([
    [ChatBody, chatBody({ temperature: 3 }), "temperature", "must be a number from 0 to 2"],
    [ChatBody, chatBody({ temperature: "1" }), "temperature", "must be a number from 0 to 2"],
    [ChatBody, chatBody({ max_tokens: 0 }), "max_tokens", "must be a whole number from 1 to 2,000,000,000"],
    [ChatBody, chatBody({ n: 129 }), "n", "must be a whole number from 1 to 128"],
    [ChatBody, chatBody({ stream: "yes" }), "stream", "must be true or false"],
    [ChatBody, chatBody({ stream_options: 1 }), "stream_options", "must be an object"],
    [
      ChatBody,
      chatBody({ stream_options: { include_usage: 1 } }),
      "stream_options.include_usage",
      "must be true or false",
    ],
    [ChatBody, chatBody({ messages: [] }), "messages", "must be an array of 1 to 10,000 elements"],
    [ChatBody, chatBody({ messages: "hi" }), "messages", "must be an array of 1 to 10,000 elements"],
    [ChatBody, chatBody({ messages: ["hi"] }), "messages.0", "must be an object"],
    [
      ChatBody,
      message({ role: "king" }),
      "messages.0.role",
      "must be one of system, user, assistant, tool, developer, function",
    ],
    [ChatBody, message({ content: 5 }), "messages.0.content", "must be a string or an array of at most 1000 elements"],
    [ChatBody, message({ content: [5] }), "messages.0.content.0", "must be an object"],
    [ChatBody, { messages: [] }, "model", "is required"],
    [ChatBody, chatBody({ model: "" }), "model", "must be a string of 1 to 200 characters"],
    [ImageBody, imageBody({ n: 2 }), "n", "must be 1"],
    [ImageBody, imageBody({ size: "1x1" }), "size", "must be one of 512x512, 1024x1024, 1024x1536, 1536x1024"],
    [ImageBody, imageBody({ response_format: "png" }), "response_format", "must be one of url, b64_json"],
    [ImageBody, imageBody({ prompt: 5 }), "prompt", "must be a string"],
    [UsageQuery, { limit: 0 }, "limit", "must be a whole number from 1 to 1000"],
    [UsageQuery, { limit: "ten" }, "limit", "must be a whole number from 1 to 1000"],
    [UsageQuery, { after: "x" }, "after", "must be the next_after of the previous page, or a requestId"],
    [
      UsageQuery,
      { start: "x" },
      "start",
      "must be a date, as in 2030-01-31, or a time with its zone, as in 2030-01-31T12:00:00Z",
    ],
    [
      UsageQuery,
      { end: "0000000000" },
      "end",
      "must be a date, as in 2030-01-31, or a time with its zone, as in 2030-01-31T12:00:00Z",
    ],
    [UsageQuery, { model: "" }, "model", "must be a string of 1 to 200 characters without NUL"],
  ])("%#", (schema, value, param, predicate) => {
    let thrown: unknown;
    try {
      checker(schema)(value);
    } catch (error) {
      thrown = error;
    }
    if (!(thrown instanceof Refusal)) throw new Error("it was accepted");
    expect([thrown.facts.param, thrown.message]).toEqual([param, `The field ${param} ${predicate}.`]);
  });
});

describe("the panel's shapes", () => {
  type Shape = { properties?: Record<string, TSchema>; anyOf?: TSchema[]; items?: TSchema };
  // The routes are only created: of the deps only the cookie's name is used.
  const deps = { config: { panelUrl: "http://panel.test" } } as unknown as Deps;
  const WRONG: readonly unknown[] = [
    null,
    "",
    "x",
    "\0",
    "x".repeat(3_000_000),
    -1,
    0,
    1.5,
    1e15,
    true,
    [],
    [1],
    ["x".repeat(5_000)],
    Array(5_000).fill("x"),
    {},
    { a: 1 },
  ];

  /** All fields of a shape, including those of objects in it. */
  function fieldsOf(shape: Shape): TSchema[] {
    const own = Object.values(shape.properties ?? {});
    const inner = [...own, ...(shape.anyOf ?? []), ...(shape.items ? [shape.items] : [])];
    return [...own, ...inner.flatMap((one) => fieldsOf(one as Shape))];
  }

  test("every error of a field of a body or query is one plain sentence", () => {
    const sentences = new Set<string>();
    for (const { hooks } of panelEndpoints(deps).routes) {
      for (const shape of [hooks.body, hooks.query] as (TSchema | undefined)[]) {
        if (shape === undefined) continue;
        for (const schema of fieldsOf(shape as Shape)) {
          for (const value of WRONG)
            if (!Value.Check(schema, value)) sentences.add(sentenceFor(Type.Object({ x: schema }), { x: value }));
        }
      }
    }
    expect(sentences.size).toBeGreaterThan(30);
    if (process.env.READ_SENTENCES) process.stdout.write(`${[...sentences].sort().join("\n")}\n`);
  });
});
