import { beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { ChoiceRepair } from "../../src/gateway/chat_shape.ts";
import { ChunkRewriter } from "../../src/gateway/chunks.ts";
import { DuplicateField } from "../../src/http/json_text.ts";
import { holds, SEED } from "../property.ts";

/**
 * A provider's chunks are rewritten for the client. For any JSON, all fields except six pass unchanged. For any bytes, only the
 * documented errors are thrown. Source: STR-3, STR-4.
 */
const RUNS = 3_000;
const OURS = ["id", "object", "created", "model", "usage"];
const FACTS = { requestId: "r1", createdUnix: 5, modelId: 'client/"model"' };

beforeAll(() => console.log(`seed ${SEED}, ${RUNS} runs a property`));
const check = <T extends [unknown, ...unknown[]]>(property: fc.IProperty<T>) => holds(property, { numRuns: RUNS });

/** The payload that the client gets for a payload of the provider; undefined if none is sent now. */
function sentBy(rewriter: ChunkRewriter, payload: string): string | undefined {
  const event = rewriter.rewrite(payload);
  if (event === undefined) return undefined;
  expect(event.startsWith("data: ") && event.endsWith("\n\n")).toBe(true);
  return event.slice("data: ".length, -2);
}

/** Keys with a meaning here, keys that break careless code, and arbitrary ones. */
const key = fc.oneof(
  fc.constantFrom(
    ...OURS,
    "choices",
    "service_tier",
    "__proto__",
    "constructor",
    "",
    'a"b',
    "a\\",
    "\u2028",
    "é🚦",
    "}",
  ),
  fc.string({ unit: "grapheme", maxLength: 6 }),
);
const choice = fc.record(
  {
    index: fc.nat(3),
    // A text is a content: see answer_forms.test.ts.
    delta: fc.oneof(
      fc.record({ content: fc.string({ unit: "binary", maxLength: 20 }) }),
      fc.jsonValue().filter((delta) => typeof delta !== "string"),
    ),
    finish_reason: fc.constantFrom(null, "", "stop", 7),
  },
  { requiredKeys: [] },
);
const usage = fc.oneof(
  fc.record({ prompt_tokens: fc.nat(1000), completion_tokens: fc.nat(1000), x_vendor: fc.jsonValue() }),
  fc.jsonValue(),
);
/** The fields of a JSON object, each name once; never `error`, which would end the stream. */
const fields = fc
  .tuple(
    fc.uniqueArray(fc.tuple(key, fc.jsonValue()), { selector: ([name]) => name, maxLength: 8 }),
    fc.option(fc.array(choice, { maxLength: 3 }), { nil: undefined }),
    fc.option(usage, { nil: undefined }),
  )
  .map(([any, choices, used]) => {
    const all = any.filter(([name]) => name !== "error" && name !== "choices" && name !== "usage");
    if (choices !== undefined) all.push(["choices", choices]);
    if (used !== undefined) all.splice(all.length >> 1, 0, ["usage", used]);
    return all;
  });
type Fields = [string, unknown][];

/** JSON with white space, and integers too large for a double. */
function written(all: Fields, space: string): string {
  const inner = all.map(
    ([name, value]) => `${space}${JSON.stringify(name)}${space}:${space}${JSON.stringify(value)}${space}`,
  );
  return `${space}{${[...inner, `"x_big":${space}123456789012345678901234567890.10`].join(",")}}${space}`;
}

const entriesOf = (json: string) => {
  const value: unknown = JSON.parse(json);
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`no object: ${json}`);
  return Object.entries(value).map(([name, inner]): [string, string] => [name, JSON.stringify(inner)]);
};

/** More than a frame is learned from: behind a chunk, so much white space has it parsed whole. */
const TOO_LONG_TO_LEARN = " ".repeat(20_000);

/** The same as `told`, but the chunk is parsed whole. */
function toldWhole(rewriter: ChunkRewriter, payload: string) {
  const { out, ...others } = told(rewriter, payload + TOO_LONG_TO_LEARN);
  return { ...others, out: out?.trimEnd() };
}

/** What is sent in place of an empty list. */
const NO_CHOICE = [{ index: 0, delta: {}, finish_reason: null }];
/** The choices as they are sent: the shape of OpenAI's schema has its own tests. */
const shapeOf = () => new ChoiceRepair(FACTS.requestId, "delta");

/** What a rewriter returns for a payload, and its state afterwards. */
function told(rewriter: ChunkRewriter, payload: string) {
  try {
    return { out: sentBy(rewriter, payload), relayed: rewriter.relayed, finished: rewriter.finished };
  } catch (error) {
    return { thrown: error instanceof Error ? error.message : error };
  }
}

test("a usage of zeros leaves the place of the usage to what is sent", () => {
  const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: true });
  sentBy(rewriter, '{"usage":{"prompt_tokens":0,"completion_tokens":0}}');
  expect(JSON.parse(sentBy(rewriter, '{"choices":[{"delta":{"content":"a"}}]}') ?? "")).toHaveProperty("usage", null);
});

describe("any JSON objects", () => {
  test("unknown fields keep their text and order; all chunks have one id, created and model; the output is always valid JSON on one line", () => {
    check(
      fc.property(
        fc.array(fields, { minLength: 1, maxLength: 5 }),
        fc.constantFrom("", " ", "\n", "\t \n"),
        fc.boolean(),
        (chunks, space, wantsUsage) => {
          const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage });
          const heads = new Set<string>();
          const shape = shapeOf();
          for (const all of chunks) {
            const sent = written(all, space);
            const got = sentBy(rewriter, sent);
            const value = new Map(all);
            const hasUsage = value.get("usage") !== undefined && value.get("usage") !== null;
            const choices = value.get("choices");
            // A usage alone is kept for the end; what has neither is no chunk.
            const hasChoices = Array.isArray(choices) && !(hasUsage && choices.length === 0);
            expect(got === undefined).toBe(!hasChoices);
            if (got === undefined) continue;

            expect(got).not.toContain("\n");
            expect(got).toContain("123456789012345678901234567890.10");
            const came = new Map(entriesOf(got));
            heads.add(JSON.stringify([came.get("id"), came.get("created"), came.get("model"), came.get("object")]));
            expect(came.get("usage")).toBe(wantsUsage ? "null" : undefined);
            const isKept = ([name]: [string, string]) => ![...OURS, "choices", "service_tier"].includes(name);
            expect([...came].filter(isKept)).toEqual(entriesOf(sent).filter(isKept));
            const given = Array.isArray(choices) && choices.length > 0 ? choices : NO_CHOICE;
            expect(came.get("choices")).toBe(JSON.stringify(shape.repaired(given)));
          }
          expect(heads.size).toBeLessThanOrEqual(1);
          for (const head of heads) expect(head).toContain(JSON.stringify(JSON.stringify(FACTS.modelId)).slice(1, -1));
          const last = rewriter.usageChunk();
          expect(last !== undefined).toBe(wantsUsage && rewriter.relayed.usage !== undefined);
          if (last === undefined) return;
          const lastEntries = new Map(entriesOf(last));
          expect(lastEntries.get("choices")).toBe("[]");
          // The client gets the usage that it is charged for.
          expect(JSON.parse(lastEntries.get("usage") ?? "")).toMatchObject({
            prompt_tokens: rewriter.relayed.usage?.promptTokens,
            completion_tokens: rewriter.relayed.usage?.completionTokens,
          });
        },
      ),
    );
  });

  test("the fast path for a repeated envelope gives the same result as parsing the whole chunk", () => {
    const frame = fc.constantFrom<[string, string]>(
      ['{"id":"i","created":1,"choices":', "}"],
      ['{"id":"i","created":1,"model":"m","choices": ', ',"usage":null,"error":null}'],
      ['{"choices":', ',"object":"o","id":"i","created":1}'],
    );
    const tricks = [
      '],"choices":[',
      '],"x":[',
      '"',
      "]",
      "[]",
      "{}",
      "null",
      " [] ",
      "[] []",
      "",
      '],"usage":{"prompt_tokens":1}',
    ];
    const raw = fc.oneof(
      fc.array(choice, { maxLength: 2 }).map((choices) => JSON.stringify(choices)),
      fc.constantFrom(...tricks, ...tricks.map((trick) => `[${trick}]`)),
    );
    check(
      fc.property(
        frame,
        fc.array(raw, { minLength: 1, maxLength: 3 }),
        fc.boolean(),
        ([head, tail], all, wantsUsage) => {
          const [short, long] = [1, 2].map(() => new ChunkRewriter({ ...FACTS, wantsUsage })) as [
            ChunkRewriter,
            ChunkRewriter,
          ];
          for (const rewriter of [short, long]) rewriter.rewrite(`${head}[]${tail}`);
          for (const one of all) {
            const payload = `${head}${one}${tail}`;
            const got = told(short, payload);
            expect({ ...got, out: got.out?.trimEnd() }).toEqual(toldWhole(long, payload));
          }
        },
      ),
    );
  });

  test("the fast path for a repeated text envelope gives the same result as parsing the whole chunk", () => {
    const shapes: ((raw: string) => string)[] = [
      (raw) => `[{"index":0,"delta":{"content":"${raw}"},"finish_reason":null}]`,
      (raw) => `[ { "delta" : {"role":"assistant","content":null,"reasoning":"${raw}"} } ]`,
      (raw) =>
        `[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"${raw}"}}]},"logprobs":{"content":"index"}}]`,
      (raw) => `[{"delta":{"tool_calls":[{"id":"index","function":{"name":"${raw}","arguments":"index"}}]}}]`,
      (raw) => `[{"index":0,"delta":{"content":"${raw}"},"finish_reason":"${raw}"}]`,
      (raw) => `[{"delta":{"content":"${raw}","content":"last"}},{"delta":{"content":"another"}}]`,
      (raw) => `[{"delta":{"content":"index"},"x":"${raw}"}]`,
      (raw) => `[{"delta":{"content":"a~"},"x":"${raw}"}]`,
      (raw) => `[{"delta":{"content":"index"},"${raw}":1}]`,
      (raw) => `[{"delta":{"content":"a"}},{"delta":{"content":"${raw}"}}]`,
      (raw) => `[{"delta":{"content":"${raw}","content":"last"}}]`,
    ];
    const frame = fc.constantFrom<[string, string]>(
      ['{"id":"index","created":1,"choices":', "}"],
      ['{"choices":', ',"id":"index","created":1,"x_text":"a"}'],
    );
    const raw = fc.oneof(
      {
        weight: 4,
        arbitrary: fc.string({ unit: "grapheme", maxLength: 6 }).map((text) => JSON.stringify(text).slice(1, -1)),
      },
      { weight: 2, arbitrary: fc.constantFrom("a", "index", "content", "a~", "\\n", "\\u00e9", '\\"', "\\\\", "") },
      // Strings that end too early or too late, and values that are not strings.
      {
        weight: 1,
        arbitrary: fc.constantFrom(
          '"',
          "\\",
          "\\x",
          "\\u12",
          "\t",
          "\u0000",
          '","content":"b',
          '"}},{"delta":{"content":"b',
        ),
      },
    );
    check(
      fc.property(
        frame,
        fc.constantFrom(...shapes),
        fc.array(raw, { minLength: 1, maxLength: 6 }),
        fc.boolean(),
        ([head, tail], shape, texts, wantsUsage) => {
          const learning = new ChunkRewriter({ ...FACTS, wantsUsage });
          const reference = new ChunkRewriter({ ...FACTS, wantsUsage });
          for (const rewriter of [learning, reference]) rewriter.rewrite(`${head}[]${tail}`);
          for (const raw of texts) {
            const payload = `${head}${shape(raw)}${tail}`;
            const got = told(learning, payload);
            const whole = toldWhole(reference, payload);
            // Choices that are repaired are written anew, and then without needless escapes.
            const comparable = (out: string | undefined) =>
              raw.includes("\\u") && out !== undefined ? JSON.parse(out) : out;
            expect([comparable(got.out), got.thrown]).toEqual([comparable(whole.out), whole.thrown]);
            expect(learning.relayed).toEqual(reference.relayed);
            expect(learning.finished).toBe(reference.finished);
          }
        },
      ),
    );
  });

  test("the relayed text is all that the model wrote, and a finish_reason is noticed", () => {
    check(
      fc.property(fc.array(fc.array(choice, { maxLength: 3 }), { maxLength: 6 }), (chunks) => {
        const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: false });
        let text = "";
        let isFinished = false;
        for (const choices of chunks) {
          rewriter.rewrite(JSON.stringify({ choices }));
          for (const one of choices) {
            const { delta } = one;
            if (typeof delta === "object" && delta !== null && "content" in delta && typeof delta.content === "string")
              text += delta.content;
            isFinished ||= one.finish_reason === "stop" || one.finish_reason === 7;
          }
        }
        expect([rewriter.relayed.text, rewriter.relayed.chars, rewriter.finished]).toEqual([
          text,
          text.length,
          isFinished,
        ]);
      }),
    );
  });
});

test("fields behind the random letters of a chunk are read, though the chunks before had none", () => {
  const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: false });
  const start = '{"id":"c","object":"chat.completion.chunk","created":7,"model":"up",';
  const choices = '"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]';
  const chunk = (letters: string) => `${start}${choices},"obfuscation":"${letters}"}`;
  for (let i = 0; i < 3; i++) sentBy(rewriter, chunk("aB12"));
  const sent = sentBy(rewriter, chunk('aB","usage":{"prompt_tokens":9,"completion_tokens":4},"more":"aB'));
  expect(JSON.parse(sent ?? "")).not.toHaveProperty("usage");
  expect(rewriter.usage).toMatchObject({ promptTokens: 9, completionTokens: 4 });
});

describe("several choices finish the answer once each that began has finished", () => {
  const piece = (index: number | undefined, finish: string | null = null, content = "a") => ({
    choices: [{ index, delta: finish === null ? { content } : {}, finish_reason: finish }],
  });
  const finishedAfter = (asked: number | undefined, ...chunks: unknown[]) => {
    const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: false, ...(asked !== undefined && { choices: asked }) });
    return chunks.map((chunk) => {
      rewriter.rewrite(JSON.stringify(chunk));
      return rewriter.finished;
    });
  };

  test("in turn, one after the other, in one chunk, and with more behind the finish", () => {
    const both = { choices: [...piece(0, "stop").choices, ...piece(1, "length").choices] };
    expect(finishedAfter(2, piece(0), piece(1), piece(0, "stop"), piece(1, null, "b"), piece(1, "stop"))).toEqual([
      ...[false, false, false, false, true],
    ]);
    expect(finishedAfter(2, piece(0), piece(0, "stop"), piece(1), piece(1, "stop"), piece(0))).toEqual([
      ...[false, true, false, true, true],
    ]);
    expect(finishedAfter(2, piece(1), piece(0), both, { choices: [] })).toEqual([false, false, true, true]);
  });

  test("a provider that sends one of them, or leaves out the index, also ends", () => {
    expect(finishedAfter(8, piece(0), piece(0, "stop"))).toEqual([false, true]);
    expect(finishedAfter(2, piece(undefined), piece(undefined, "stop"))).toEqual([false, true]);
    expect(finishedAfter(2, piece(7), piece(1, "stop"))).toEqual([false, true]);
  });

  test("with one choice any finish_reason does", () => {
    for (const asked of [1, undefined]) expect(finishedAfter(asked, piece(0), piece(1, "stop"))).toEqual([false, true]);
  });

  test("also where most chunks have the frame of earlier ones", () => {
    const pieces = Array.from({ length: 200 }, (_, n) => piece(n % 2, null, `word${n}`));
    const finished = finishedAfter(2, ...pieces, piece(1, "stop"), ...pieces, piece(0, "stop"));
    expect([finished.indexOf(true), finished.length]).toEqual([401, 402]);
  });
});

describe("text that is counted for a client that leaves", () => {
  const relayedOf = (...deltas: unknown[]) => {
    const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: false });
    for (const delta of deltas) rewriter.rewrite(JSON.stringify({ choices: [{ index: 0, delta }] }));
    return rewriter.relayed.text;
  };

  test("calls of custom tools, as of functions", () => {
    const call = (custom: unknown) => ({ tool_calls: [{ index: 0, type: "custom", custom }] });
    expect(relayedOf(call({ name: "patch", input: "" }), call({ input: "one " }), call({ input: "two" }))).toBe(
      "patchone two",
    );
  });

  test("a content that is a list of parts, and thinking with parts of its own", () => {
    const thinking = (text: string) => ({ content: [{ type: "thinking", thinking: [{ type: "text", text }] }] });
    const text = { content: [{ type: "text", text: "Tolls." }] };
    expect(relayedOf(thinking("Hm. "), thinking("Well. "), text, text)).toBe("Hm. Well. Tolls.Tolls.");
  });

  test("reasoning that is in two fields counts once", () => {
    expect(relayedOf({ reasoning: "Hm.", reasoning_content: "Hm." }, { reasoning: " So." })).toBe("Hm. So.");
  });
});

test("no chunk has the provider's name or what it charges the operator", () => {
  const envelope = {
    id: "c",
    provider: "Acme",
    x_groq: { id: "req_1" },
    choices: [{ index: 0, delta: { content: "a" } }],
  };
  const usage = { prompt_tokens: 3, cost: 0.1, cost_details: { upstream: 0.2 }, is_byok: false, completion_tokens: 1 };
  const shown = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
  for (const ending of [
    { ...envelope, choices: [], usage },
    { ...envelope, usage },
  ]) {
    const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: true });
    let text = "";
    // From the second one on, the frame is known.
    for (let i = 0; i < 4; i++) text += rewriter.rewrite(JSON.stringify(envelope)) ?? "";
    text += (rewriter.rewrite(JSON.stringify(ending)) ?? "") + rewriter.lastEvents();
    expect(text).not.toMatch(/provider|Acme|groq|cost|byok|upstream/);
    expect(JSON.parse(rewriter.usageChunk() ?? "").usage).toEqual(shown);
    expect(rewriter.relayed.rawUsage).toEqual(usage);
  }
});

describe("anything else", () => {
  /** JSON with a few characters changed, or text that only looks like it. */
  const broken = fc.oneof(
    fc.string({ unit: "binary", maxLength: 60 }),
    fc
      .array(fc.constantFrom("{", "}", "[", "]", '"', ":", ",", "\\", "id", "error", "1", "null", " ", "\n"), {
        maxLength: 40,
      })
      .map((parts) => parts.join("")),
    fc.tuple(fields, fc.nat(), fc.constantFrom("", '"', "\\", "{", "\u0000", "}")).map(([all, at, by]) => {
      const text = written(all, "");
      return text.slice(0, at % text.length) + by + text.slice((at % text.length) + 1);
    }),
    fc.json(),
  );

  test("is refused with a clear error", () => {
    check(
      fc.property(broken, (payload) => {
        const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: true });
        try {
          const got = sentBy(rewriter, payload);
          if (got !== undefined) entriesOf(got);
        } catch (error) {
          const isSaid =
            error instanceof SyntaxError ||
            error instanceof DuplicateField ||
            (error instanceof Error &&
              /^the provider sent an (?:event that is not a JSON object|error event)$/.test(error.message));
          if (!isSaid) throw error;
        }
      }),
    );
  });

  test.each([{ error: { code: 502 } }, { error: "no" }, { finish_reason: "error" }])(
    "a choice with an error is none of an answer, also where earlier chunks have the same frame: %j",
    (broken) => {
      const chunk = (over: object) =>
        JSON.stringify({ id: "c", created: 1, choices: [{ index: 0, delta: { content: "a" }, ...over }] });
      for (const before of [0, 1, 3]) {
        const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: true });
        for (let i = 0; i < before; i++) rewriter.rewrite(chunk({}));
        expect(() => rewriter.rewrite(chunk(broken))).toThrow("the provider sent an error event");
        expect(rewriter.relayed.text).toBe("a".repeat(before));
      }
    },
  );

  test.each([",", "\n,", "\r,", "\r\n,"])(
    "in the text of a read, a line break within an event ends its line: %j",
    (comma) => {
      const event = (text: string, between: string) =>
        `data: {"id":"c","created":1,"choices":[{"index":0${between}"delta":{"content":"${text}"}}]}\n\n`;
      const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage: true });
      // After two events both frames are known: around the choices, and around their text.
      for (const text of ["one", "two"]) rewriter.rewrite(event(text, ",").slice("data: ".length, -2));
      expect(rewriter.rewriteEvent(event("three", comma), 0) > 0).toBe(comma === ",");
      expect(rewriter.relayed.text).toBe(comma === "," ? "onetwothree" : "onetwo");
    },
  );

  // A parser that reads any of these again for each of its parts would take hours: the runner ends such a test.
  test("is refused or rewritten in linear time, also if it is deeply nested, very long or very many chunks", () => {
    const hostile = [
      "[".repeat(1_000_000),
      `{"a":${"[".repeat(500_000)}${"]".repeat(500_000)}}`,
      `{"a":"${"\\\\".repeat(2_000_000)}"}`,
      `{"a":"${'\\"'.repeat(2_000_000)}"}`,
      `{${Array.from({ length: 200_000 }, (_, i) => `"k${i}":${i}`).join(",")}}`,
      `{"choices":[${Array.from({ length: 100_000 }, () => '{"delta":{"content":"x"}}').join(",")}]}`,
      `{"a":1${" ".repeat(4_000_000)}}`,
    ];
    for (const payload of hostile) {
      try {
        new ChunkRewriter({ ...FACTS, wantsUsage: true }).rewrite(payload);
      } catch (error) {
        // The parser has its own limit on nesting.
        expect(error).toBeInstanceOf(Error);
      }
    }
  });
});
