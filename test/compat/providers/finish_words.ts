import { chunk, completion, DONE, type Entry, GOOD_STREAM, STOP, USAGE_CHUNK } from "../form.ts";

/** Why an answer ended, in the words of vendors and servers. Rule: END-20. */

const charged = { tokens: [5, 7] } as const;

type Words = readonly (readonly [word: unknown, source: string])[];

const LENGTH: Words = [
  ["max_new_tokens", "constructed"],
  ["max_context_length", "constructed"],
  ["limit", "github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md: stop_type"],
  ["token_limit", "ibm.github.io/watsonx-ai-node-sdk/interfaces/0_1_x.WatsonXAI.TextGenResult-1.html"],
  ["time_limit", "ibm.github.io/watsonx-ai-node-sdk/interfaces/0_1_x.WatsonXAI.TextGenResult-1.html"],
  ["TOKEN_LIMIT", "github.com/caikit/caikit-nlp/issues/253"],
  ["max_output", "platform.minimax.io/docs/api-reference; form constructed"],
  ["maximum_tokens", "docs.aleph-alpha.com: completion_reason; form constructed"],
  [
    "ALTERNATIVE_STATUS_TRUNCATED_FINAL",
    "yandex.cloud/docs/foundation-models/text-generation/api-ref; form constructed",
  ],
  ["FinishReason.MAX_TOKENS", "constructed"],
  ["maxTokens", "constructed"],
  ["max-tokens", "constructed"],
  ["length_capped", "constructed"],
  ["truncated", "constructed"],
  ["context_window_exceeded", "constructed"],
  ["max_seq_len", "constructed"],
  ["Max Tokens", "constructed"],
  ["ERROR_LIMIT", "docs.cohere.com/reference/chat-v1; form constructed"],
  ["max_tokens_error", "constructed"],
  [["length"], "constructed"],
  [{ reason: "length" }, "constructed"],
  ["model_context_window_exceeded", "docs.anthropic.com/en/api/handling-stop-reasons"],
];
const FILTERED: Words = [
  ["blacklist", "developers.sber.ru/docs/ru/gigachat/api/reference/rest/post-chat; form constructed"],
  [
    "ALTERNATIVE_STATUS_CONTENT_FILTER",
    "yandex.cloud/docs/foundation-models/text-generation/api-ref; form constructed",
  ],
  ["content-filter", "github.com/vercel/ai, packages/provider: LanguageModelV2FinishReason"],
  ["ERROR_TOXIC", "docs.cohere.com/reference/chat-v1; form constructed"],
  ["blocked", "constructed"],
  ["CONTENT_FILTERED", "docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-text.html"],
];
const CALLED: Words = [
  ["tool-calls", "github.com/vercel/ai, packages/provider: LanguageModelV2FinishReason"],
  ["function_calls", "github.com/vballoli/autogen-openaiext-client/issues/3"],
  ["toolUse", "constructed"],
  ["TOOL_CALL", "docs.cohere.com/reference/chat; form constructed"],
];
const STOPPED: Words = [
  ["<|eot_id|>", "github.com/vespa-engine/vespa/pull/33327"],
  ["eos", "github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md: stop_type"],
  ["end", "github.com/earendil-works/pi/pull/2116"],
  ["COMPLETE", "docs.cohere.com/reference/chat; form constructed"],
  ["stop_sequence", "docs.anthropic.com/en/api/handling-stop-reasons"],
  ["FINISH", "docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-text.html"],
  ["normal", "cloud.baidu.com/doc/WENXINWORKSHOP; form constructed"],
  ["pause_turn", "docs.anthropic.com/en/api/handling-stop-reasons"],
  ["unknown", "github.com/vercel/ai/pull/2665"],
];
const FAILED: Words = [
  ["USER_CANCEL", "docs.cohere.com/reference/chat-v1; form constructed"],
  ["abort", "github.com/earendil-works/pi/pull/1509"],
  ["upstream_error", "constructed"],
  ["rate_limit_exceeded", "constructed"],
  ["internal_server_error", "constructed"],
  ["timed_out", "constructed"],
  ["invalid_tool_call", "constructed"],
  [{ type: "abort", message: "Abort before prefill" }, "github.com/sgl-project/sglang, FINISH_ABORT; form constructed"],
];
/** A part of an answer has it, and its end another. */
const UNFINISHED: Words = [
  ["not_finished", "ibm.github.io/watsonx-ai-node-sdk/interfaces/0_1_x.WatsonXAI.TextGenResult-1.html"],
  ["NOT_FINISHED", "github.com/caikit/caikit-nlp/issues/253; form constructed"],
  ["none", "github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md: stop_type"],
  ["ALTERNATIVE_STATUS_PARTIAL", "yandex.cloud/docs/foundation-models/text-generation/api-ref; form constructed"],
  ["FINISH_REASON_UNSPECIFIED", "ai.google.dev/api/generate-content"],
];

const chunkThat = (delta: object, finish: unknown) =>
  chunk({}, null, { choices: [{ index: 0, delta, finish_reason: finish }] });
const nameOf = (word: unknown) => (typeof word === "string" ? word : JSON.stringify(word));

const ended = (words: Words, finish: string) =>
  words.flatMap(([word, source]): Entry[] => [
    {
      says: `${nameOf(word)} is ${finish}`,
      source,
      request: { only: "chat" },
      provider: {
        json: completion({}, null, {
          choices: [{ index: 0, message: { role: "assistant", content: "good" }, finish_reason: word }],
        }),
      },
      client: { text: "good", finish },
      charged,
    },
    {
      says: `${nameOf(word)} is ${finish}, in a stream without [DONE]`,
      source,
      request: { only: "chat", body: { stream: true } },
      provider: { events: [chunk({ content: "good" }), chunkThat({}, word), USAGE_CHUNK], end: "closed" },
      client: { text: "good", finish },
      charged,
    },
  ]);

export default [
  ...ended(LENGTH, "length"),
  ...ended(FILTERED, "content_filter"),
  ...ended(CALLED, "tool_calls"),
  ...ended(STOPPED, "stop"),
  ...FAILED.map(
    ([word, source]): Entry => ({
      says: `${nameOf(word)} is a failure: the next route answers`,
      source,
      request: { body: { stream: true } },
      provider: [{ events: [chunkThat({ role: "assistant", content: "" }, word), DONE] }, GOOD_STREAM],
      client: { text: "good" },
      charged,
    }),
  ),
  ...FAILED.map(
    ([word, source]): Entry => ({
      says: `${nameOf(word)} behind half an answer is a failure`,
      source,
      request: { body: { stream: true } },
      provider: { events: [chunk({ content: "half" }), chunkThat({}, word), DONE] },
      client: { text: "half", error: "provider_unavailable" },
      charged: "nothing",
    }),
  ),
  ...UNFINISHED.flatMap(([word, source]): Entry[] => [
    {
      says: `${nameOf(word)} is no reason yet`,
      source,
      request: { only: "chat", body: { stream: true } },
      provider: {
        events: [chunkThat({ content: "go" }, word), chunkThat({ content: "od" }, word), STOP, USAGE_CHUNK, DONE],
      },
      client: {
        text: "good",
        events: [
          { choices: [{ finish_reason: null }] },
          { choices: [{ finish_reason: null }] },
          { choices: [{ finish_reason: "stop" }] },
        ],
      },
      charged,
    },
    {
      says: `${nameOf(word)} and then the end of the connection: the answer broke off`,
      source,
      request: { body: { stream: true } },
      provider: { events: [chunkThat({ content: "half" }, word)], end: "closed" },
      client: { text: "half", error: "provider_unavailable" },
      charged: "nothing",
    },
  ]),
] satisfies Entry[];
