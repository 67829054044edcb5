import type { Entry } from "../form.ts";

/** Embeddings, images, scores and text completions that do not stand where OpenAI's stand. Rule: STR-15. */

const CONSTRUCTED = "constructed";
const USAGE = { usage: { prompt_tokens: 5, total_tokens: 5 } };
const VECTOR = [0.5, 0.25];
const EMBEDDING = { object: "embedding", index: 0, embedding: VECTOR };
const LIST = { object: "list", data: [EMBEDDING], ...USAGE };
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SCORES = [
  { index: 1, relevance_score: 0.9 },
  { index: 0, relevance_score: 0.1 },
];
const scores = (entry: (index: number, score: number) => object) => ({
  results: SCORES.map(({ index, relevance_score }) => entry(index, relevance_score)),
  ...USAGE,
});
const TEXT = {
  ...{ id: "cmpl-7", object: "text_completion", created: 1_763_856_000, model: "up" },
  choices: [{ index: 0, text: "good", finish_reason: "stop", logprobs: null }],
  usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 },
};

type Case = readonly [says: string, source: string, json: unknown];

const EMBEDDINGS: readonly Case[] = [
  ["in `response`", CONSTRUCTED, { response: LIST }],
  ["in `result`, beside a message", CONSTRUCTED, { success: true, message: "ok", code: 0, result: LIST }],
  ["in `body`, as a text", CONSTRUCTED, { statusCode: 200, body: JSON.stringify(LIST) }],
  ["as a text of JSON", CONSTRUCTED, JSON.stringify(LIST)],
  ["in a list that is a text", CONSTRUCTED, { data: JSON.stringify([EMBEDDING]), ...USAGE }],
  ["by its number", CONSTRUCTED, { data: { 0: EMBEDDING }, ...USAGE }],
  ["whose numbers are a text", CONSTRUCTED, { data: [{ ...EMBEDDING, embedding: "[0.5,0.25]" }], ...USAGE }],
  ["whose numbers are texts", CONSTRUCTED, { data: [{ ...EMBEDDING, embedding: ["0.5", "2.5e-1"] }], ...USAGE }],
];
/** Two at once: a list of one is found wherever it stands. */
const PAIRS: readonly Case[] = [
  [
    "as Cohere has them",
    "docs.cohere.com/reference/embed; form constructed",
    { embeddings: { float: [VECTOR, VECTOR] }, ...USAGE },
  ],
  [
    "as Ollama's own API has them",
    "docs.ollama.com/api/embed; form constructed",
    { embeddings: [VECTOR, VECTOR], prompt_eval_count: 5 },
  ],
  [
    "as Gemini's own API has them",
    "ai.google.dev/api/embeddings#method:-models.batchembedcontents; form constructed",
    { embeddings: [{ values: VECTOR }, { values: VECTOR }], ...USAGE },
  ],
  [
    "as DashScope's own API has them",
    "help.aliyun.com/zh/model-studio/text-embedding-synchronous-api; form constructed",
    {
      output: {
        embeddings: [
          { text_index: 0, embedding: VECTOR },
          { text_index: 1, embedding: VECTOR },
        ],
      },
      usage: { total_tokens: 5 },
    },
  ],
  [
    "as MiniMax has them",
    "platform.minimax.io/docs/api-reference: vectors; form constructed",
    { vectors: [VECTOR, VECTOR], total_tokens: 5, base_resp: { status_code: 0, status_msg: "success" } },
  ],
  [
    "as watsonx has them",
    "cloud.ibm.com/apidocs/watsonx-ai#text-embeddings; form constructed",
    { results: [{ embedding: VECTOR }, { embedding: VECTOR }], input_token_count: 5 },
  ],
  ["as TEI's own API has them", "huggingface.co/docs/text-embeddings-inference: /embed", [VECTOR, VECTOR]],
  [
    "as Vertex AI has them, with the tokens of each",
    "cloud.google.com/vertex-ai/generative-ai/docs/model-reference/text-embeddings-api: statistics; form constructed",
    {
      predictions: [
        { embeddings: { values: VECTOR, statistics: { token_count: 2, truncated: false } } },
        { embeddings: { values: VECTOR, statistics: { token_count: 3, truncated: false } } },
      ],
    },
  ],
  [
    "that all have the index 0",
    "constructed",
    {
      data: [
        { index: 0, embedding: VECTOR },
        { index: 0, embedding: [0.25, 0.5] },
      ],
      ...USAGE,
    },
  ],
  [
    "in the order of their indexes",
    "constructed",
    {
      data: [
        { index: 1, embedding: [0.25, 0.5] },
        { index: 0, embedding: VECTOR },
      ].reverse(),
      ...USAGE,
    },
  ],
];
const IMAGES: readonly Case[] = [
  ["in `response`", CONSTRUCTED, { response: { created: 1, data: [{ b64_json: PNG }] } }],
  ["in `payload`, beside a message", CONSTRUCTED, { payload: { data: [{ b64_json: PNG }] }, message: "ok" }],
  ["in `body`, as a text", CONSTRUCTED, { statusCode: 200, body: JSON.stringify({ data: [{ b64_json: PNG }] }) }],
  ["as a text of JSON", CONSTRUCTED, JSON.stringify({ data: [{ b64_json: PNG }] })],
  [
    "as Vertex AI has it",
    "cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/Shared.Types/VisionGenerativeModelResult",
    { images: [{ mimeType: "image/png", bytesBase64Encoded: PNG }] },
  ],
  ["as a part of a chat", CONSTRUCTED, { data: [{ image_url: { url: `data:image/png;base64,${PNG}` } }] }],
];
const RERANK: readonly Case[] = [
  ["in `response`", CONSTRUCTED, { response: { results: SCORES, ...USAGE } }],
  ["in `body`, as a text", CONSTRUCTED, { body: JSON.stringify({ results: SCORES, ...USAGE }) }],
  ["by their numbers", CONSTRUCTED, { results: { 0: SCORES[0], 1: SCORES[1] }, ...USAGE }],
  ["as texts", CONSTRUCTED, scores((index, score) => ({ index, relevance_score: String(score) }))],
  [
    "as DashScope has them",
    "help.aliyun.com/zh/model-studio/text-rerank-api; form constructed",
    { output: { results: SCORES }, usage: { total_tokens: 5 }, request_id: "r" },
  ],
  [
    "as Voyage has them",
    "docs.voyageai.com/reference/reranker-api; form constructed",
    { object: "list", data: SCORES, usage: { total_tokens: 5 } },
  ],
  [
    "as SGLang and TEI have them",
    "docs.sglang.ai: rerank; huggingface.co/docs/text-embeddings-inference; form constructed",
    [
      { index: 1, score: 0.9, meta_info: { prompt_tokens: 2 } },
      { index: 0, score: 0.1, meta_info: { prompt_tokens: 3 } },
    ],
  ],
  [
    "as Bedrock has them",
    "docs.aws.amazon.com/bedrock/latest/APIReference/API_agent-runtime_Rerank.html; form constructed",
    { results: SCORES.map(({ index, relevance_score }) => ({ index, relevanceScore: relevance_score })), ...USAGE },
  ],
  [
    "as logits",
    "docs.nvidia.com/nim/nemo-retriever/text-reranking/latest/using-reranking.html",
    {
      rankings: [
        { index: 1, logit: 0.9 },
        { index: 0, logit: 0.1 },
      ],
      ...USAGE,
    },
  ],
  ["as similarities", CONSTRUCTED, scores((index, similarity) => ({ index, similarity }))],
  ["of documents by another name", CONSTRUCTED, scores((corpus_id, score) => ({ corpus_id, score }))],
  [
    "of documents with their places",
    CONSTRUCTED,
    scores((index, score) => ({ document: { index, text: "A gate." }, score })),
  ],
  ["beside a list of the places", CONSTRUCTED, { indices: [1, 0], scores: [0.9, 0.1], ...USAGE }],
];
const COMPLETIONS: readonly Case[] = [
  ["in `data`", CONSTRUCTED, { data: TEXT }],
  ["in `response`, a list", CONSTRUCTED, { response: [TEXT] }],
  ["as a text of JSON", CONSTRUCTED, JSON.stringify(TEXT)],
  ["whose choices are an object", CONSTRUCTED, { ...TEXT, choices: TEXT.choices[0] }],
  ["whose choices are texts", CONSTRUCTED, { ...TEXT, choices: ["good"] }],
  [
    "of llama.cpp's own API",
    "github.com/ggml-org/llama.cpp: tools/server/README.md, POST /completion",
    { content: "good", stop: true, tokens_evaluated: 5, tokens_predicted: 7 },
  ],
];

export default [
  ...EMBEDDINGS.map(
    ([says, source, json]): Entry => ({
      ...{ says: `An embedding ${says}`, source, provider: { json } },
      request: { path: "embeddings", body: { encoding_format: "float" } },
      client: { json: { data: [EMBEDDING], usage: { prompt_tokens: 5, total_tokens: 5 } } },
      charged: { tokens: [5, 0] },
    }),
  ),
  ...PAIRS.map(
    ([says, source, json]): Entry => ({
      ...{ says: `Two embeddings ${says}`, source, provider: { json } },
      request: { path: "embeddings", body: { input: ["A gate.", "A bird."], encoding_format: "float" } },
      client: { json: { data: [{ index: 0, embedding: VECTOR }, { index: 1 }] } },
      // What reports nothing is counted here.
      charged: { tokens: [Array.isArray(json) ? 11 : 5, 0] },
    }),
  ),
  ...IMAGES.map(
    ([says, source, json]): Entry => ({
      ...{ says: `An image ${says}`, source, provider: { json } },
      request: { path: "images", body: { response_format: "b64_json" } },
      client: { json: { data: [{ b64_json: PNG }] } },
      charged: { tokens: [0, 0] },
    }),
  ),
  ...RERANK.map(
    ([says, source, json]): Entry => ({
      ...{ says: `Scores ${says}`, source, provider: { json }, request: { path: "rerank" } },
      client: { json: { results: SCORES, usage: { prompt_tokens: 5 } } },
      charged: { tokens: [5, 0] },
    }),
  ),
  ...COMPLETIONS.flatMap(([says, source, json]) =>
    [false, true].map(
      (stream): Entry => ({
        ...{ says: `A text completion ${says}${stream ? ", to a stream" : ""}`, source },
        request: { path: "completions", body: stream ? { stream, stream_options: { include_usage: true } } : {} },
        provider: { dialect: "vllm", json },
        client: { text: "good", usage: [5, 7, 12] },
        charged: { tokens: [5, 7] },
      }),
    ),
  ),
] satisfies Entry[];
