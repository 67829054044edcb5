import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { reportedUsageOf } from "../../src/gateway/usage_counts.ts";
import { UsageReports } from "../../src/gateway/usage_reports.ts";
import { holds } from "../property.ts";

/** How each provider's report becomes counts. Source: MON-15, MON-18. */

const counts = (promptTokens: number, cachedTokens: number, completionTokens: number, further?: object) => ({
  ...{ promptTokens, cachedTokens, completionTokens },
  further,
});

const SHAPES: [string, Record<string, unknown>, ReturnType<typeof counts>][] = [
  ["no details", { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }, counts(10, 0, 5)],
  [
    "OpenAI: everything is a part",
    {
      ...{ prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 },
      prompt_tokens_details: { cached_tokens: 20, audio_tokens: 7, cache_write_tokens: 30 },
      completion_tokens_details: { reasoning_tokens: 40, audio_tokens: 3, accepted_prediction_tokens: 1 },
    },
    counts(100, 20, 50, { audio_input: 7, cache_write: 30, reasoning: 40, audio_output: 3 }),
  ],
  [
    "OpenRouter: images too",
    {
      ...{ prompt_tokens: 100, completion_tokens: 50 },
      prompt_tokens_details: { cached_tokens: 0, image_tokens: 60 },
      completion_tokens_details: { image_tokens: 45 },
    },
    counts(100, 0, 50, { image_input: 60, image_output: 45 }),
  ],
  [
    "LiteLLM: Anthropic's counts, as a part of the prompt",
    {
      ...{ prompt_tokens: 100, completion_tokens: 5, total_tokens: 105 },
      prompt_tokens_details: { cached_tokens: 30, cache_creation_tokens: 50 },
      ...{ cache_creation_input_tokens: 50, cache_read_input_tokens: 30 },
    },
    counts(100, 30, 5, { cache_write: 50 }),
  ],
  [
    "Anthropic: by lifetime, beside a smaller prompt",
    {
      ...{ prompt_tokens: 10, completion_tokens: 5, cache_creation_input_tokens: 50, cache_read_input_tokens: 30 },
      cache_creation: { ephemeral_5m_input_tokens: 35, ephemeral_1h_input_tokens: 15 },
    },
    counts(90, 30, 5, { cache_write: 35, cache_write_1h: 15 }),
  ],
  [
    "Anthropic: beside a larger prompt, as the total says",
    {
      ...{ prompt_tokens: 100, completion_tokens: 5, total_tokens: 185 },
      ...{ cache_creation_input_tokens: 50, cache_read_input_tokens: 30 },
    },
    counts(180, 30, 5, { cache_write: 50 }),
  ],
  [
    "a lifetime without a total",
    { prompt_tokens: 100, completion_tokens: 5, cache_creation: { ephemeral_1h_input_tokens: 15 } },
    counts(100, 0, 5, { cache_write_1h: 15 }),
  ],
  [
    "DeepSeek: hits and misses",
    { prompt_tokens: 100, completion_tokens: 5, prompt_cache_hit_tokens: 64, prompt_cache_miss_tokens: 36 },
    counts(100, 64, 5),
  ],
  [
    "xAI: reasoning beside the completion",
    {
      ...{ prompt_tokens: 10, completion_tokens: 9, total_tokens: 201 },
      completion_tokens_details: { reasoning_tokens: 182 },
    },
    counts(10, 0, 191, { reasoning: 182 }),
  ],
  [
    "Gemini: thoughts in the total alone",
    { prompt_tokens: 10, completion_tokens: 9, total_tokens: 119 },
    counts(10, 0, 109, { reasoning: 100 }),
  ],
  [
    "more reasoning than completion, and no total",
    { prompt_tokens: 10, completion_tokens: 9, completion_tokens_details: { reasoning_tokens: 20 } },
    counts(10, 0, 29, { reasoning: 20 }),
  ],
  [
    "more cached than prompt tokens",
    { prompt_tokens: 10, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 99 } },
    counts(10, 10, 1),
  ],
  [
    "details that are no counts",
    {
      ...{ prompt_tokens: 10, completion_tokens: 1, total_tokens: "many" },
      prompt_tokens_details: { cached_tokens: -1, audio_tokens: "1e", image_tokens: null, cache_write_tokens: [9] },
      completion_tokens_details: [7],
      cache_creation: "many",
    },
    counts(10, 0, 1),
  ],
];

test.each(SHAPES)("%s", (_, usage, expected) => {
  expect(reportedUsageOf(usage)).toEqual(expected);
});

test("without a count of tokens there is no usage", () => {
  const details = { prompt_tokens_details: { cached_tokens: 5 } };
  const none = { prompt_tokens: -1, completion_tokens: null, total_tokens: 2 ** 31 };
  for (const usage of [null, "usage", [], [1, 2], {}, none, details, { cost: 1 }, { prompt_tokens: " " }])
    expect(reportedUsageOf(usage)).toBeUndefined();
});

test.each<[string, Record<string, unknown>, object]>([
  ["a prompt and a total", { prompt_tokens: 21, total_tokens: 81 }, counts(21, 0, 60)],
  ["a completion and a total", { completion_tokens: 60, total_tokens: 81 }, counts(21, 0, 60)],
  ["a prompt alone", { prompt_tokens: 21 }, counts(21, 0, 0)],
  ["a total alone", { total_tokens: 81 }, { ...counts(0, 0, 0), totalTokens: 81 }],
  ["a prompt that is too large to be one", { prompt_tokens: 2 ** 31, completion_tokens: 1 }, counts(0, 0, 1)],
  ["text", { prompt_tokens: " 21 ", completion_tokens: "60.0" }, counts(21, 0, 60)],
  ["text with an exponent", { prompt_tokens: "2.1e1", completion_tokens: "600e-1" }, counts(21, 0, 60)],
  ["llama.cpp", { cache_n: 20, prompt_n: 1, predicted_n: 60 }, counts(21, 20, 60)],
  ["llama.cpp, older: a part of the prompt", { prompt_n: 1, predicted_n: 60 }, counts(0, 0, 60)],
  ["TGI", { finish_reason: "length", generated_tokens: 60, input_length: 21 }, counts(21, 0, 60)],
  ["fractions", { prompt_tokens: 20.5, completion_tokens: 60.0000000001 }, counts(21, 0, 60)],
  ["Moonshot", { prompt_tokens: 21, completion_tokens: 60, cached_tokens: 20 }, counts(21, 20, 60)],
  [
    "Anthropic: a cache beside the input",
    { input_tokens: 21, output_tokens: 60, cache_read_input_tokens: 9, cache_creation_input_tokens: 5 },
    counts(35, 9, 60, { cache_write: 5 }),
  ],
  [
    "Anthropic's names, the cache within the total",
    { input_tokens: 21, output_tokens: 60, total_tokens: 81, cache_read_input_tokens: 9 },
    counts(21, 9, 60),
  ],
  [
    "Bedrock",
    { inputTokens: 21, outputTokens: 60, totalTokens: 95, cacheReadInputTokens: 9, cacheWriteInputTokens: 5 },
    counts(35, 9, 60, { cache_write: 5 }),
  ],
  [
    "Gemini: tools and thoughts beside",
    {
      ...{ promptTokenCount: 20, toolUsePromptTokenCount: 1, candidatesTokenCount: 50, thoughtsTokenCount: 10 },
      ...{ totalTokenCount: 81, cachedContentTokenCount: 4 },
    },
    counts(21, 4, 60, { reasoning: 10 }),
  ],
  [
    "Gemini: parts by modality",
    {
      ...{ promptTokenCount: 21, candidatesTokenCount: 60, totalTokenCount: 81 },
      promptTokensDetails: [
        { modality: "TEXT", tokenCount: 10 },
        { modality: "AUDIO", tokenCount: 8 },
        { modality: "IMAGE", tokenCount: 3 },
      ],
      candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 50 }, null, {}],
    },
    counts(21, 0, 60, { audio_input: 8, image_input: 3, image_output: 50 }),
  ],
  [
    "Gemini: parts by modality, in its other spelling",
    {
      ...{ prompt_token_count: 21, candidates_token_count: 60 },
      ...{ prompt_tokens_details: [{ modality: "AUDIO", token_count: 8 }] },
    },
    counts(21, 0, 60, { audio_input: 8 }),
  ],
  ["Ollama", { prompt_eval_count: 21, eval_count: 60 }, counts(21, 0, 60)],
  ["Cohere", { billed_units: { input_tokens: 21, output_tokens: 60 }, tokens: {} }, counts(21, 0, 60)],
  ["two names", { prompt_tokens: 0, input_tokens: 21, completion_tokens: 60, output_tokens: 0 }, counts(21, 0, 60)],
])("other forms: %s", (_, usage, expected) => {
  expect(reportedUsageOf(usage)).toEqual(expected as never);
});

describe("the reports of a stream", () => {
  const GOOD = { prompt_tokens: 500, completion_tokens: 300, prompt_tokens_details: { cached_tokens: 7 } };
  const readAll = (...chunks: Record<string, unknown>[]) => {
    const reports = new UsageReports();
    for (const chunk of chunks) reports.read(chunk);
    return reports;
  };

  test("later ones count, but no count becomes smaller", () => {
    const first = { usage: { prompt_tokens: 500, completion_tokens: 1 } };
    for (const last of [{ usage: { prompt_tokens: 0, completion_tokens: 0 } }, { usage: null }, { usage: [] }, {}]) {
      const { usage, raw } = readAll(first, { usage: GOOD }, last);
      expect(usage).toEqual(counts(500, 7, 300));
      expect(raw).toEqual(GOOD);
    }
    expect(readAll({ usage: { prompt_tokens: 500 } }, { usage: { completion_tokens: 300 } }).usage).toEqual(
      counts(500, 0, 300),
    );
  });

  test("they are of the text up to the last one that counted more than those before", () => {
    const coverageOf = (...chunks: readonly (readonly [text: string, completionTokens?: number])[]) => {
      const reports = new UsageReports();
      let chars = 0;
      for (const [text, tokens] of chunks) {
        reports.read(tokens === undefined ? {} : { usage: { prompt_tokens: 5, completion_tokens: tokens } });
        chars += text.length;
        expect(reports.mark(chars)).toBe(tokens !== undefined);
      }
      return reports.coverageOf(chars);
    };
    expect(coverageOf(["To"], ["ll"], ["", 2])).toBe("whole");
    expect(coverageOf(["To", 1], ["ll", 2], ["", 2])).toBe("whole");
    expect(coverageOf(["To", 1], ["ll", 1])).toEqual({ firstShare: 0.5 });
    expect(coverageOf(["To", 1], ["ll"], ["", 1])).toEqual({ firstShare: 0.5 });
    expect(coverageOf(["", 1], ["Toll", 1])).toEqual({ firstShare: 0 });
    expect(coverageOf(["To", 1], ["ll"])).toBe("part");
    expect(coverageOf(["", 1], ["Toll"])).toBe("part");
    expect(coverageOf(["To", 1], ["l", 2], ["l"])).toBe("part");
  });

  test("they are read wherever they stand", () => {
    for (const chunk of [
      { choices: [{ index: 0, usage: GOOD }] },
      { usageMetadata: GOOD },
      { x_groq: { id: "r", usage: GOOD } },
      { usage: { prompt_tokens: 0, completion_tokens: 0 }, choices: [{}, { usage: GOOD }] },
      { message: { usage: GOOD } },
    ])
      expect(readAll(chunk).usage).toEqual(counts(500, 7, 300));
    for (const chunk of [{ choices: [1, null, {}] }, { x_groq: 1, message: "x" }, {}])
      expect(readAll(chunk as Record<string, unknown>).usage).toBeUndefined();
  });
});

test("whatever a provider reports: whole counts within the receipt's range, the cached ones within the prompt", () => {
  const any = fc.oneof(fc.nat(2_000_000_000), fc.nat(100), fc.jsonValue());
  const details = fc.oneof(
    fc.record(
      { cached_tokens: any, audio_tokens: any, reasoning_tokens: any, cache_write_tokens: any },
      { requiredKeys: [] },
    ),
    fc.jsonValue(),
  );
  const usage = fc.record(
    {
      ...{ prompt_tokens: any, completion_tokens: any, total_tokens: any, prompt_cache_hit_tokens: any },
      ...{ prompt_tokens_details: details, completion_tokens_details: details },
      ...{ cache_creation_input_tokens: any, cache_read_input_tokens: any, cache_creation: details },
    },
    { requiredKeys: ["prompt_tokens", "completion_tokens"] },
  );
  holds(
    fc.property(usage, (reported) => {
      const found = reportedUsageOf(reported);
      if (found === undefined) return;
      const { further = {}, ...counted } = found;
      for (const count of [...Object.values(counted), ...Object.values(further)])
        expect(Number.isInteger(count) && Number(count) >= 0 && Number(count) <= 2_000_000_000).toBe(true);
      expect(found.cachedTokens).toBeLessThanOrEqual(found.promptTokens);
      // Nothing that is reported is dropped.
      const isInt = (value: unknown) => Number.isInteger(value) && Number(value) <= 2_000_000_000;
      if (isInt(reported.prompt_tokens))
        expect(found.promptTokens).toBeGreaterThanOrEqual(Number(reported.prompt_tokens));
      if (isInt(reported.completion_tokens))
        expect(found.completionTokens).toBeGreaterThanOrEqual(Number(reported.completion_tokens));
    }),
    { numRuns: 3_000 },
  );
});
