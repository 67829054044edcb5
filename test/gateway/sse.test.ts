import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { isDone, OversizedEvent, SseReader } from "../../src/gateway/sse.ts";
import { holds, SEED } from "../property.ts";
import { payloadsIn } from "./transcripts.ts";

/** The SSE parser: the payloads are the same however the network splits the bytes. */

const bytesOf = (text: string) => new TextEncoder().encode(text);
const EVENT_CHARS_MAX = 8 * 1024 * 1024;

function readIn(parts: readonly Uint8Array[]): string[] {
  const reader = new SseReader();
  return [...parts.flatMap((part) => reader.push(part)), ...reader.end()];
}
const read = (text: string) => readIn([bytesOf(text)]);

function splitAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const ends = [...cuts, bytes.length];
  return ends.map((end, i) => bytes.subarray(i === 0 ? 0 : ends[i - 1], end));
}

/** Everything at once: comments, other fields, every line ending, characters of two to four bytes, several data lines. */
const TRANSCRIPT = [
  ": hello\r\n\r\n",
  'data: {"a":"é"}\n\n',
  'event: message\r\nid: 7\r\ndata:{"b":"中文"}\r\n\r\n',
  'data: {"c":\rdata: "🚦🏁"}\r\r',
  "retry: 10\ndata:  two spaces\ndata\ndatum: no\n\n",
  ": keep-alive\n\n\n\n",
  "data: mixed\rdata: line\r\ndata: endings\n\r\n",
  "data: [DONE]\n\n",
].join("");
const PAYLOADS = ['{"a":"é"}', '{"b":"中文"}', '{"c":\n"🚦🏁"}', " two spaces", "mixed\nline\nendings", "[DONE]"];

describe("the same payloads whatever the split", () => {
  test("in one piece", () => {
    expect(read(TRANSCRIPT)).toEqual(PAYLOADS);
  });

  test("cut in two at every byte, characters and CRLF included", () => {
    const bytes = bytesOf(TRANSCRIPT);
    for (let at = 0; at <= bytes.length; at++) expect(readIn(splitAt(bytes, [at]))).toEqual(PAYLOADS);
  });

  test("cut in three at every pair of bytes", () => {
    const bytes = bytesOf("data: é中\r\ndata: 🚦\r\r: c\n\ndata: x\n\n");
    const whole = readIn([bytes]);
    expect(whole).toEqual(["é中\n🚦", "x"]);
    for (let a = 0; a <= bytes.length; a++)
      for (let b = a; b <= bytes.length; b++) expect(readIn(splitAt(bytes, [a, b]))).toEqual(whole);
  });

  test("byte by byte, with empty chunks between", () => {
    const parts = [...bytesOf(TRANSCRIPT)].flatMap((byte) => [new Uint8Array(0), Uint8Array.of(byte)]);
    expect(readIn(parts)).toEqual(PAYLOADS);
  });
});

test("a payload is returned with the chunk that completes it, not later", () => {
  const reader = new SseReader();
  expect(reader.push(bytesOf("data: one\n\ndata: two\n"))).toEqual(["one"]);
  expect(reader.push(bytesOf("\ndata: thr"))).toEqual(["two"]);
  expect(reader.push(bytesOf("ee\r\n\r\n"))).toEqual(["three"]);
  expect(reader.end()).toEqual([]);
});

test.each([
  ["no line end", "data: a\n\ndata: last"],
  ["one LF", "data: a\n\ndata: last\n"],
  ["one CR", "data: a\r\rdata: last\r"],
  ["one CRLF", "data: a\r\n\r\ndata: last\r\n"],
  ["half a CRLF of the blank line", "data: a\r\n\r\ndata: last\r\n\r"],
])("a missing last blank line: the payload comes with the end (%s)", (_, text) => {
  expect(read(text)).toEqual(["a", "last"]);
});

test("a stream without data has no payload, and a byte order mark is no part of the first line", () => {
  expect(read("")).toEqual([]);
  expect(read(": only a comment\n\nevent: ping\n\n")).toEqual([]);
  expect(read("\uFEFFdata: a\n\n")).toEqual(["a"]);
  expect(read("data\n\ndata:\n\ndata: \r\n\r\ndata: a\n\n")).toEqual(["a"]);
});

test("a character cut off by the end of the stream does not lose its event", () => {
  expect(readIn([bytesOf("data: ok"), Uint8Array.of(0xe4, 0xb8)])).toEqual(["ok\uFFFD"]);
});

describe("an event may not grow without limit", () => {
  const chunk = bytesOf("x".repeat(1024 * 1024));

  function fill(before: string, part: Uint8Array, times: number): number {
    const reader = new SseReader();
    reader.push(bytesOf(before));
    for (let i = 1; i <= times; i++) {
      try {
        reader.push(part);
      } catch (error) {
        expect(error).toBeInstanceOf(OversizedEvent);
        return i;
      }
    }
    return Number.POSITIVE_INFINITY;
  }

  test("one line of data", () => expect(fill("data: ", chunk, 20)).toBeLessThan(10));
  test("a comment", () => expect(fill(": ", chunk, 20)).toBeLessThan(10));
  test("many lines of data", () => expect(fill("", bytesOf(`data: ${"x".repeat(1_000_000)}\n`), 20)).toBeLessThan(10));
  test("very many empty lines of data", () =>
    expect(fill("", bytesOf("data:\n".repeat(1_000_000)), 20)).toBeLessThan(10));

  test("an event just below the limit passes, and the next one has the full limit again", () => {
    const text = "y".repeat(EVENT_CHARS_MAX - 100);
    const reader = new SseReader();
    for (let i = 0; i < 3; i++) {
      const got = [...reader.push(bytesOf("data: ")), ...reader.push(bytesOf(text)), ...reader.push(bytesOf("\n\n"))];
      expect(got.map(({ length }) => length)).toEqual([text.length]);
    }
  });

  test("many small events in one chunk are not one large event", () => {
    expect(read(`data: ${"z".repeat(1000)}\n\n`.repeat(12_000)).length).toBe(12_000);
  });
});

describe("what providers write beside the standard", () => {
  const done = "data: [DONE]\n";
  test.each<[string, string, string[]]>([
    ["no blank line between events", `data: {"a":1}\ndata: {"b":2}\n${done}\n`, ['{"a":1}', '{"b":2}', "[DONE]"]],
    ["an object on several lines", 'data: {\ndata: "a":1}\n\n', ['{\n"a":1}']],
    ["data without its name", 'data: {"a":1}\n\n{"error":{"code":400}}\n\n', ['{"a":1}', '{"error":{"code":400}}']],
    ["data on the next line", 'data:\n {"a":1}\n\n', ['\n{"a":1}']],
    ["null and empty data", "data: null\n\ndata: \n\ndata\n\n", []],
    ["an error by its field", 'error: {"code":400}\n\n', ['{"object":"error","error":{"code":400}}']],
    ["an error by its name", 'event: error\ndata: {"code":400}\n\n', ['{"object":"error","error":{"code":400}}']],
    ["an exception in words", "event:myException\ndata:boom\n\n", ['{"object":"error","error":"boom"}']],
    ["a name is that of one event", 'event: error\n\ndata: {"a":1}\n\n', ['{"a":1}']],
    ["another name", 'event: terror.\ndata: {"a":1}\n\n', ['{"a":1}']],
  ])("%s", (_, stream, payloads) => {
    expect(read(stream)).toEqual(payloads);
  });
});

describe("any bytes at all", () => {
  const RUNS = 5_000;
  /** Parts of streams, sequences that break parsers, and noise. */
  const part = fc
    .oneof(
      {
        weight: 6,
        arbitrary: fc.constantFrom(
          "data:",
          "data: ",
          "data",
          ":",
          " ",
          "\n",
          "\r",
          "\r\n",
          "\n\n",
          "event: x",
          "data: a\n\n",
          "data: a\n\n",
        ),
      },
      { weight: 2, arbitrary: fc.constantFrom("é", "中", "🚦", "\uFEFF", "\u2028", "\u0000", "[DONE]", "[]") },
    )
    .map(bytesOf);
  const noise = fc.uint8Array({ maxLength: 6 });
  const stream = fc
    .array(fc.oneof({ weight: 5, arbitrary: part }, { weight: 1, arbitrary: noise }), { maxLength: 40 })
    .map((parts) => new Uint8Array(Buffer.concat(parts)))
    // Lines that are read here, and by the standard are nothing or other data: without the field, or with spaces around its name, or with a
    // byte order mark before the data. By the standard a bare `data` is an empty data line; here it is ignored. Source: WHATWG HTML › 9.2.6.
    .filter(
      (bytes) =>
        !/(?:^|[\r\n])\uFEFF*(?:data[\r\n]|[ \t]+data[ \t]*:|data[ \t]+:|[ \t]*\[DONE\]|data: ?\uFEFF)/.test(
          new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes),
        ),
    );

  test("are parsed without an error, to the same payloads for every split, which equal another parser's", () => {
    let payloads = 0;
    holds(
      fc.property(stream, fc.array(fc.nat(), { maxLength: 8 }), (bytes, cuts) => {
        const reader = new SseReader();
        const whole = reader.push(bytes);
        expect(whole).toEqual(payloadsIn(bytes));
        const all = [...whole, ...reader.end()];
        const at = cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b);
        expect(readIn(splitAt(bytes, at))).toEqual(all);
        expect(readIn([...bytes].map((byte) => Uint8Array.of(byte)))).toEqual(all);
        payloads += all.length;
      }),
      { numRuns: RUNS },
    );
    console.log(`seed ${SEED}, ${RUNS} streams with ${payloads} payloads`);
    expect(payloads).toBeGreaterThan(RUNS / 4);
  });

  test.each([
    ["a line that never ends", "x"],
    ["a line of data that never ends", "data: "],
    ["CR", "\r"],
    ["LF", "\n"],
    ["CRLF", "\r\n"],
    ["empty lines of data", "data:\n"],
    ["comments", ": x\n"],
    ["events", "data: x\n\n"],
    ["halves of characters", "\u4e2d"],
  ])("a megabyte of %s, a byte at a time: in linear time", (_, unit) => {
    const bytes = bytesOf(unit.repeat(Math.ceil((1024 * 1024) / bytesOf(unit).length)));
    const reader = new SseReader();
    // Takes less than a second. A parser that reads the line again for each piece would take hours: the runner ends such a test.
    for (let at = 0; at < bytes.length; at++) reader.push(bytes.subarray(at, at + 1));
    reader.end();
  });
});

test("the end of a stream is known in every spelling, and not in a part of one", () => {
  const spellings = [
    "[DONE]",
    "[done]",
    '"[DONE]"',
    "'[DONE]'",
    "DONE",
    "[ DONE ]",
    "[DONE].",
    "[DONE]\0",
    "<DONE>",
    "<|DONE|>",
  ];
  for (const one of [...spellings, `${" ".repeat(9)}[DONE]${" ".repeat(90)}`, "[DONE]data: [DONE]"])
    expect(isDone(one)).toBe(true);
  for (const one of [
    "[DONE",
    "[DON",
    "<DONE",
    "<|DONE",
    '"[DONE',
    "[",
    "",
    "DON",
    "{DONE}",
    "[DONE] more",
    "UNDONE",
    '["DONE"',
  ])
    expect([one, isDone(one)]).toEqual([one, false]);
});
