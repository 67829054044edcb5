import { type Entry, GOOD_STREAM, GOOD_WHOLE, type ProviderAnswer, STREAMED, WHOLE } from "../form.ts";

/**
 * Prompts that are too long, in the words of further servers and gateways: clients compact only if they get the code. Below are sentences
 * that are like them and mean something else.
 */

type Case = readonly [who: string, source: string, status: number, json: object, unsaid?: string];

const said = (message: string, more: object = {}) => ({ error: { message, type: "invalid_request_error", ...more } });

const CASES: readonly Case[] = [
  [
    "Ollama Cloud",
    "github.com/dyad-sh/dyad/issues/3498",
    400,
    {
      error:
        "prompt too long; exceeded max context length by 540451 tokens (ref: 00ad71bb-fea0-4639-9dc9-3ad800192057)",
    },
  ],
  [
    "oMLX",
    "github.com/ValueCell-ai/ClawX/issues/658",
    400,
    { error: { message: "Prompt too long: 41911 tokens exceeds max context window of 32768 tokens", code: null } },
  ],
  [
    "Atlas",
    "github.com/0xBakeer/inference-atlas/pull/186",
    400,
    said("Prompt too long: 5152 tokens exceeds max_seq_len 2048 (leave room for output tokens)"),
  ],
  ["mlx-serve", "github.com/ddalcu/mlx-serve/issues/66", 400, said("Prompt exceeds maximum context length")],
  [
    "Rapid-MLX, with a 500",
    "github.com/raullenchai/Rapid-MLX/issues/400",
    500,
    {
      detail:
        "Batch generation failed: Total prompt tokens (11573) exceeds safe limit (2048) for 1 requests. Reduce prompt length or batch size",
    },
  ],
  [
    "DS4",
    "github.com/earendil-works/pi, packages/ai/src/utils/overflow.ts",
    400,
    said("Prompt has 140,000 tokens, but the configured context size is 131,072 tokens"),
  ],
  [
    "MLC",
    "github.com/mlc-ai/mlc-llm/issues/2692",
    400,
    {
      object: "error",
      message: "Request prompt has 38726 tokens in total, larger than the model input length limit 8192.",
      code: null,
    },
  ],
  [
    "vLLM's first versions",
    "github.com/vllm-project/vllm/issues/525",
    400,
    { object: "error", message: "Input prompt (2664 tokens) is too long and exceeds limit of 2560" },
  ],
  [
    "SGLang",
    "github.com/ranxianglei/billion-context/pull/493",
    400,
    {
      object: "error",
      message: "The input (400013 tokens) is longer than the model's context length (262144 tokens).",
      type: "BadRequestError",
      param: null,
      code: 400,
    },
  ],
  [
    "llama.cpp, as text-generation-webui passes it on",
    "github.com/oobabooga/textgen/issues/7257",
    400,
    {
      error: {
        code: 400,
        message:
          "the request exceeds the available context size. try increasing the context size or enable context shift",
        type: "exceed_context_size_error",
        n_prompt_tokens: 14429,
        n_ctx: 8192,
      },
    },
  ],
  [
    "An OpenAI-compatible server, with both sizes in brackets",
    "github.com/earendil-works/pi/issues/5677",
    400,
    said("Input length (265330) exceeds model's maximum context length (262144)."),
  ],
  [
    "Xinference, behind its address",
    "github.com/xorbitsai/inference/issues/3785",
    400,
    {
      detail:
        "[address=0.0.0.0:41035, pid=21187] The decoder prompt (length 21535) is longer than the maximum model length of 16384",
    },
    "41035",
  ],
  [
    "Cerebras, without an error",
    "github.com/BerriAI/litellm/pull/17587",
    400,
    {
      message: "Current length is 131073 while limit is 131072",
      type: "invalid_request_error",
      param: "messages",
      code: "context_length_exceeded",
    },
  ],
  [
    "Cerebras, its sentence alone",
    "github.com/BerriAI/litellm/pull/17587",
    400,
    { message: "Please reduce the length. Current length is 131073 while limit is 131072" },
  ],
  [
    "Perplexity",
    "github.com/BerriAI/litellm/pull/21647",
    400,
    said("The total length of all messages is too long.", { type: "invalid_message", code: 400 }),
  ],
  [
    "Poolside",
    "github.com/earendil-works/pi/issues/4943",
    400,
    said("Input length 131393 exceeds the maximum allowed input length of 131040 tokens."),
  ],
  [
    "Salesforce",
    "github.com/forcedotcom/Einstein-GPT-for-Developers/issues/228",
    400,
    { message: "Request input tokens exceed model token limit. Reduce the input size." },
  ],
  [
    "Replicate",
    "github.com/run-llama/llama_index/issues/7974",
    400,
    { detail: "Your input is too long. Max input length is 4096 tokens, but you supplied 5441 tokens." },
  ],
  [
    "Cohere, by its limit",
    "docs.cohere.com/reference/errors",
    400,
    { message: "too many tokens: the total number of tokens in the prompt exceeds the limit of 4081." },
  ],
  [
    "Cohere, of a model",
    "github.com/openclaw/openclaw/issues/58839",
    400,
    { message: "total tokens exceeds the model's max of 4096" },
  ],
  [
    "Bedrock",
    "github.com/openclaw/openclaw/issues/58839",
    400,
    { __type: "ValidationException", message: "Input exceeds the max input token limit" },
  ],
  [
    "OpenAI, as an operator has limited it",
    "github.com/BerriAI/litellm, tests: exception_mapping_utils",
    400,
    said("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens."),
  ],
  [
    "OpenAI, of one text",
    "github.com/BerriAI/litellm, exception_mapping_utils: string too long",
    400,
    said(
      "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1540820 instead.",
      { param: "messages[1].content", code: "string_above_max_length" },
    ),
  ],
  [
    "DashScope, of the whole conversation",
    "help.aliyun.com/zh/model-studio/error-code: Total message token length exceed model limit; form constructed",
    400,
    { code: "InvalidParameter", message: "Total message token length exceed model limit (10000 tokens)." },
  ],
  [
    "Volcengine",
    "www.volcengine.com/docs/82379/1299023: error codes; form constructed",
    400,
    said("Total tokens of image and text exceed max message tokens", { code: "InvalidParameter" }),
  ],
  [
    "Baidu, by its number",
    "cloud.baidu.com/doc/WENXINWORKSHOP/s/tlmyncueh: 336103; form constructed",
    400,
    { error_code: 336103, error_msg: "Prompt tokens too long", id: "as-1" },
  ],
  [
    "FastChat, by its number",
    "github.com/lm-sys/FastChat, fastchat/constants.py: CONTEXT_OVERFLOW",
    400,
    { object: "error", message: "Please reduce it.", code: 40303 },
  ],
  [
    "watsonx",
    "cloud.ibm.com/apidocs/watsonx-ai: invalid_input_argument; form constructed",
    400,
    {
      errors: [
        {
          code: "invalid_input_argument",
          message: "the number of input tokens 6231 cannot exceed the total tokens limit 4096 for this model",
        },
      ],
      status_code: 400,
    },
  ],
  [
    "OpenRouter, in what it says of the provider behind it",
    "github.com/diegosouzapw/OmniRoute/issues/3044; github.com/earendil-works/pi/issues/4943",
    400,
    {
      error: {
        message: "Provider returned error",
        code: 400,
        metadata: {
          raw: JSON.stringify(said("Input length 131393 exceeds the maximum allowed input length of 131040 tokens.")),
          provider_name: "Poolside",
        },
      },
      user_id: "user_1",
    },
  ],
  [
    "LiteLLM, in what it says of the provider behind it",
    "github.com/BerriAI/litellm/issues/8821 (form); github.com/BerriAI/litellm/issues/2931",
    400,
    {
      error: {
        message:
          "litellm.BadRequestError: OpenAIException - Error code: 400 - {'error': {'message': \"This model's maximum context length is 8192 tokens.\"}}",
        type: "None",
        param: "None",
        code: "400",
      },
    },
  ],
  [
    "New API, by its code",
    "github.com/QuantumNous/new-api/issues/7399 (form)",
    400,
    said("该模型拒绝了请求", { type: "upstream_error", code: "context_length_exceeded" }),
  ],
  ["A Chinese gateway, of tokens", "constructed", 400, said("本次请求的token数量超过模型上限")],
];

const REFUSAL = { client: { error: "context_length_exceeded" }, charged: "nothing" } as const;

/** The reason for the end of an answer without a word: the prompt fills the context. */
const FULL = { index: 0, message: { role: "assistant", content: "" }, finish_reason: "model_context_window_exceeded" };
const FULL_CHUNK = { index: 0, delta: { role: "assistant", content: "" }, finish_reason: FULL.finish_reason };
const PROMPT_ALONE = { prompt_tokens: 131072, completion_tokens: 0, total_tokens: 131072 };
const FULL_WHOLE: ProviderAnswer = { json: { id: "1", choices: [FULL], usage: PROMPT_ALONE } };
const FULL_STREAM: ProviderAnswer = {
  events: [{ id: "1", choices: [FULL_CHUNK], usage: PROMPT_ALONE }, "data: [DONE]\n\n"],
};
const ZAI = "github.com/moltis-org/moltis/pull/580: model_context_window_exceeded as a finish_reason";

/** Refusals that are not of the prompt's length. */
const OTHERS: readonly (readonly [what: string, source: string, message: string])[] = [
  [
    "The id of a call",
    "community.openai.com: string_above_max_length of tool_calls",
    "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 53 instead.",
  ],
  [
    "The name of a person",
    "platform.openai.com/docs/api-reference/chat/create: name",
    "Invalid 'messages[0].name': string too long. Expected a string with maximum length 64, but got a string with length 70 instead.",
  ],
  [
    "The output limit",
    "github.com/langgenius/dify/issues/13451",
    "Model Parameter max_tokens should be less than or equal to 12288.0",
  ],
  [
    "The output limit, of OpenAI",
    "community.openai.com: max_tokens is too large",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
  ],
  [
    "Images of one prompt",
    "github.com/diegosouzapw/OmniRoute/issues/3044",
    "Model 'moonshotai/kimi-k2.6' supports at most 1 image per prompt.",
  ],
];

export default [
  ...CASES.flatMap(([who, source, status, json, unsaid]): Entry[] => [
    {
      says: `${who}: the client gets the code that agents know`,
      source,
      request: WHOLE,
      provider: { status, json },
      ...REFUSAL,
      client: { ...REFUSAL.client, ...(unsaid !== undefined && { message: new RegExp(`^(?!.*${unsaid})`) }) },
    },
  ]),
  ...CASES.filter(([, , status]) => status === 400).map(
    ([who, source, , json]): Entry => ({
      says: `${who}, as the first event: the next route answers`,
      source,
      request: STREAMED,
      provider: [{ events: [{ code: 400, ...json }] }, GOOD_STREAM],
      client: { text: "good" },
      charged: { tokens: [5, 7] },
    }),
  ),
  { says: "Zhipu: an answer without a word", source: ZAI, request: WHOLE, provider: FULL_WHOLE, ...REFUSAL },
  { says: "Zhipu: a stream without a word", source: ZAI, request: STREAMED, provider: FULL_STREAM, ...REFUSAL },
  {
    says: "Zhipu: an answer without a word; the next route answers",
    source: ZAI,
    request: WHOLE,
    provider: [FULL_WHOLE, GOOD_WHOLE],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  ...OTHERS.map(
    ([what, source, message]): Entry => ({
      says: `${what} is no long prompt`,
      source,
      request: WHOLE,
      provider: { status: 400, json: said(message) },
      client: { error: "invalid_request" },
      charged: "nothing",
    }),
  ),
] satisfies Entry[];
