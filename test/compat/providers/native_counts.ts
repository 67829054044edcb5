import { chunk, completion, DONE, type Entry, STOP, USAGE, WHOLE } from "../form.ts";

/** Counts under the names that servers and vendors have of their own, beside no usage in OpenAI's form. Rule: MON-18. */

const { usage: _, ...ANSWER } = completion({ content: "good" }) as { usage?: unknown };
const STREAM_WITH_USAGE = { body: { stream: true, stream_options: { include_usage: true } } };
const read = { client: { text: "good", usage: [5, 7, 12] }, charged: { tokens: [5, 7] } } as const;

const LLAMA = "github.com/ggml-org/llama.cpp/pull/15827: the context that is used is prompt_n + cache_n + predicted_n";
const TIMINGS = { cache_n: 4, prompt_n: 1, prompt_ms: 30.958, prompt_per_token_ms: 30.958, predicted_n: 7 };
const COHERE = "docs.cohere.com/reference/chat-stream: message-end";
const COHERE_USAGE = {
  billed_units: { input_tokens: 5, output_tokens: 7 },
  tokens: { input_tokens: 71, output_tokens: 9 },
};
const TGI = "app.unpkg.com/@huggingface/tasks@0.19.78/files/src/tasks/text-generation/spec/stream_output.json";
const WATSONX = "ibm.github.io/watsonx-ai-node-sdk/interfaces/0_1_x.WatsonXAI.TextGenResult-1.html";

/** The members that report the counts, whole and in the chunk that finishes. */
const MEMBERS: readonly (readonly [says: string, source: string, members: object])[] = [
  ["llama.cpp: `timings`", LLAMA, { timings: TIMINGS }],
  ["llama.cpp: `timings` beside a usage of null", LLAMA, { usage: null, timings: TIMINGS }],
  ["Cohere: `usage` with billed units", COHERE, { usage: COHERE_USAGE }],
  [
    "Cohere: `usage` with tokens alone",
    "docs.cohere.com/reference/chat; form constructed",
    { usage: { tokens: { input_tokens: 5, output_tokens: 7 } } },
  ],
  ["Cohere: `delta.usage`", COHERE, { delta: { usage: COHERE_USAGE } }],
  [
    "TGI: `details`",
    TGI,
    { details: { finish_reason: "eos_token", generated_tokens: 7, input_length: 5, seed: null } },
  ],
  ["watsonx: counts beside the answer", WATSONX, { input_token_count: 5, generated_token_count: 7 }],
  [
    "Replicate: `metrics` with counts and times",
    "replicate.com/docs/reference/http; form constructed",
    { metrics: { input_token_count: 5, output_token_count: 7, predict_time: 0.9, total_time: 900 } },
  ],
  [
    "mlx-vlm: tokens of input and output beside their rates",
    "github.com/earendil-works/pi/issues/2326",
    { usage: { input_tokens: 5, output_tokens: 7, total_tokens: 12, prompt_tps: 21.55, generation_tps: 81.56 } },
  ],
  [
    "SambaNova: rates and times in the usage",
    "docs.sambanova.ai/cloud/api-reference; form constructed",
    {
      usage: {
        ...USAGE,
        completion_tokens_after_first_per_sec: 321.7,
        completion_tokens_per_sec: 900.1,
        total_tokens_per_sec: 900.2,
        time_to_first_token: 0.9,
        stop_reason: "stop",
      },
    },
  ],
];

/** Counts as texts. */
const TEXTS: readonly (readonly [says: string, prompt: unknown, completion: unknown])[] = [
  ["with an exponent", "5e0", "7e0"],
  ["with an exponent and a fraction", "0.5e1", "7.0E+00"],
  ["with an exponent below zero", "50e-1", "70E-1"],
  ["with a fraction", "5.0", "7.0"],
  ["with a plus", "+5", "+7"],
  ["with a zero in front", "05", "007"],
  ["as integers of Protocol Buffers", { low: 5, high: 0, unsigned: true }, { low: 7, high: 0, unsigned: true }],
];

export default [
  ...MEMBERS.flatMap(([says, source, members]): Entry[] => [
    { says, source, request: WHOLE, provider: { json: { ...ANSWER, ...members } }, ...read },
    {
      says: `${says}, in the chunk that finishes`,
      source,
      request: STREAM_WITH_USAGE,
      provider: { events: [chunk({ content: "good" }), { ...STOP, ...members }, DONE] },
      ...read,
    },
  ]),
  ...TEXTS.map(
    ([says, prompt_tokens, completion_tokens]): Entry => ({
      says: `Counts as texts: ${says}`,
      source: "constructed",
      request: WHOLE,
      provider: { json: { ...ANSWER, usage: { prompt_tokens, completion_tokens } } },
      ...read,
    }),
  ),
  {
    says: "llama.cpp: `timings` in each chunk",
    source: `${LLAMA}; timings_per_token`,
    request: STREAM_WITH_USAGE,
    provider: {
      events: [
        chunk({ role: "assistant", content: null }),
        chunk({ content: "go" }, null, { timings: { ...TIMINGS, predicted_n: 3 } }),
        chunk({ content: "od" }, null, { timings: { ...TIMINGS, predicted_n: 6 } }),
        { ...STOP, timings: TIMINGS },
        DONE,
      ],
    },
    ...read,
  },
  {
    says: "llama.cpp: the same `timings` in each chunk",
    source: "constructed",
    request: STREAM_WITH_USAGE,
    provider: {
      events: [
        ...["go", "o", "d"].map((content) => chunk({ content }, null, { timings: TIMINGS })),
        { ...STOP, timings: TIMINGS },
        DONE,
      ],
    },
    ...read,
  },
  {
    says: "llama.cpp: the usage counts, not the `timings` of the chunks before",
    source: `${LLAMA}; timings_per_token`,
    request: STREAM_WITH_USAGE,
    provider: {
      events: [
        chunk({ content: "good" }, null, { timings: { ...TIMINGS, cache_n: 900, predicted_n: 900 } }),
        STOP,
        { ...STOP, choices: [], usage: USAGE, timings: TIMINGS },
        DONE,
      ],
    },
    ...read,
  },
  {
    says: "llama.cpp, older: without `cache_n` the `timings` have only a part of the prompt, which is counted here",
    source: "github.com/ggml-org/llama.cpp, tools/server/README.md: prompt_n is what was processed",
    request: WHOLE,
    provider: { json: { ...ANSWER, timings: { prompt_n: 1, predicted_n: 7, predicted_ms: 9 } } },
    client: { text: "good", usage: [12, 7, 19] },
    charged: { tokens: [12, 7] },
  },
  {
    says: "A length of the input beside no count of the answer is none",
    source: "constructed",
    request: WHOLE,
    provider: { json: { ...ANSWER, stats: { input_length: 900 } } },
    client: { text: "good" },
    charged: { tokens: [12, 3] },
  },
  {
    says: "llama.cpp: a balance pays by the `timings`, the cached part at its price",
    source: LLAMA,
    request: { payer: "balance", ...STREAM_WITH_USAGE },
    provider: { events: [chunk({ content: "good" }), { ...STOP, timings: TIMINGS }, DONE] },
    ...read,
  },
] satisfies Entry[];
