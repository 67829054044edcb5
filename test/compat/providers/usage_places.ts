import { chunk, completion, DONE, type Entry, STOP, USAGE, USAGE_CHUNK, WHOLE } from "../form.ts";

/** Usages under other names, in other forms and in other places. Rule: MON-18. */

const CONSTRUCTED = "constructed";
const { usage: _, ...ANSWER } = completion({ content: "good" }) as { usage?: unknown };
const { usage: __, ...LAST_CHUNK } = USAGE_CHUNK as { usage?: unknown };
const read = { client: { text: "good", usage: [5, 7, 12] }, charged: { tokens: [5, 7] } } as const;
const STREAM_WITH_USAGE = { body: { stream: true, stream_options: { include_usage: true } } };

/** How it is reported, where it was seen, and the members that report it. */
const PLACES: readonly (readonly [says: string, source: string, members: object])[] = [
  ["as a text of JSON", CONSTRUCTED, { usage: JSON.stringify(USAGE) }],
  ["as a list", CONSTRUCTED, { usage: [USAGE] }],
  ["as a list of two parts", CONSTRUCTED, { usage: [{ prompt_tokens: 5 }, { completion_tokens: 7 }] }],
  [
    "as a list of named counts",
    CONSTRUCTED,
    {
      usage: [
        { type: "prompt_tokens", count: 5 },
        { type: "completion_tokens", count: 7 },
      ],
    },
  ],
  ["in `metrics`", CONSTRUCTED, { metrics: USAGE }],
  ["in `metrics`, beside a null", CONSTRUCTED, { usage: null, metrics: USAGE }],
  ["in `metrics`, as texts", CONSTRUCTED, { metrics: { prompt_tokens: "5", completion_tokens: "7" } }],
  ["in `metrics.usage`", CONSTRUCTED, { metrics: { usage: USAGE } }],
  [
    "in `stats`",
    "lmstudio.ai/crunch3r/ai-toolbox/files/src/lmStudioApi.ts: LM Studio's own API",
    { usage: null, stats: { input_tokens: 5, total_output_tokens: 7 } },
  ],
  ["in `token_usage`", CONSTRUCTED, { token_usage: USAGE }],
  ["in `response_metadata.token_usage`", CONSTRUCTED, { response_metadata: { token_usage: USAGE } }],
  [
    "in `Usage`, with capital letters",
    CONSTRUCTED,
    { Usage: { PromptTokens: 5, CompletionTokens: 7, TotalTokens: 12 } },
  ],
  ["at the top, beside a null", CONSTRUCTED, { usage: null, ...USAGE }],
  ["at the top, beside an empty usage", CONSTRUCTED, { usage: {}, ...USAGE }],
  ["at the top alone", CONSTRUCTED, USAGE],
  ["in an object of the usage", CONSTRUCTED, { usage: { usage: USAGE } }],
  ["by the model", CONSTRUCTED, { usage: { "gpt-x": USAGE } }],
  ["as input and output", CONSTRUCTED, { usage: { input: 5, output: 7, total: 12 } }],
  ["as tokens of input and output", CONSTRUCTED, { usage: { tokens: { input: 5, output: 7 } } }],
  ["as numbers of tokens", CONSTRUCTED, { usage: { num_prompt_tokens: 5, num_generated_tokens: 7 } }],
];

/** Counts that are no usage: what a model may use. Without a usage, the texts are counted. */
const NO_USAGE: readonly (readonly [says: string, members: object])[] = [
  ["a limit", { rate_limit: { total_tokens: 30_000 } }],
  ["a quota", { quota: { prompt_tokens: 900_000 } }],
  ["a rate", { tokens_per_second: 900 }],
  ["times", { timing: { prompt: 900, completion: 800, total: 1700 } }],
];

const other = (path: "embeddings" | "rerank", provider: unknown, tokens: number) => ({
  request: { path, ...(path === "embeddings" && { body: { encoding_format: "float" } }) },
  provider: { json: provider },
  client: { json: { usage: { prompt_tokens: tokens, total_tokens: tokens } } },
  charged: { tokens: [tokens, 0] } as const,
});
const EMBEDDING = { object: "list", data: [{ object: "embedding", index: 0, embedding: [0.5, 0.25] }], model: "up" };
const SCORES = [
  { index: 1, relevance_score: 0.9 },
  { index: 0, relevance_score: 0.1 },
];

export default [
  ...PLACES.flatMap(([says, source, members]): Entry[] => [
    { says: `A usage ${says}`, source, request: WHOLE, provider: { json: { ...ANSWER, ...members } }, ...read },
    {
      says: `A usage ${says}, in the last chunk`,
      source,
      request: STREAM_WITH_USAGE,
      provider: { events: [chunk({ content: "good" }), STOP, { ...LAST_CHUNK, ...members }, DONE] },
      ...read,
    },
    {
      says: `A usage ${says}, in the chunk that finishes`,
      source,
      request: STREAM_WITH_USAGE,
      provider: { events: [chunk({ content: "good" }), { ...STOP, ...members }, DONE] },
      ...read,
    },
  ]),
  ...NO_USAGE.map(
    ([says, members]): Entry => ({
      says: `No usage: ${says}`,
      source: CONSTRUCTED,
      request: WHOLE,
      provider: { json: { ...ANSWER, ...members } },
      client: { text: "good" },
      charged: { tokens: [12, 3] },
    }),
  ),
  {
    says: "A known place counts, not what else has counts",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: { json: { ...ANSWER, usage: USAGE, stats: { prompt_tokens: 900, completion_tokens: 900 } } },
    ...read,
  },
  {
    says: "Embeddings: a usage as a text",
    source: CONSTRUCTED,
    ...other("embeddings", { ...EMBEDDING, usage: '{"total_tokens":5}' }, 5),
  },
  {
    says: "Embeddings: a usage in `metrics`",
    source: CONSTRUCTED,
    ...other("embeddings", { ...EMBEDDING, metrics: { prompt_tokens: 5 } }, 5),
  },
  {
    says: "Embeddings: tokens alone",
    source: CONSTRUCTED,
    ...other("embeddings", { ...EMBEDDING, usage: { tokens: 5 } }, 5),
  },
  {
    says: "Embeddings: a usage that is a number",
    source: CONSTRUCTED,
    ...other("embeddings", { ...EMBEDDING, usage: 5 }, 5),
  },
  {
    says: "Embeddings: Titan's count of tokens",
    source: "docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html",
    ...other("embeddings", { embedding: [0.5, 0.25], inputTextTokenCount: 5 }, 5),
  },
  {
    says: "Embeddings: Vertex AI's count of tokens, in each prediction",
    source:
      "v03.api.js.langchain.com/interfaces/_langchain_google_vertexai.types.VertexEmbeddingsResponsePrediction.html",
    ...other(
      "embeddings",
      { predictions: [{ embeddings: { values: [0.5, 0.25], statistics: { token_count: 5 } } }] },
      5,
    ),
  },
  {
    says: "Scores: a usage as a text",
    source: CONSTRUCTED,
    ...other("rerank", { results: SCORES, usage: '{"total_tokens":5}' }, 5),
  },
  {
    says: "Scores: tokens at the top",
    source: CONSTRUCTED,
    ...other("rerank", { results: SCORES, usage: null, total_tokens: 5 }, 5),
  },
] satisfies Entry[];
