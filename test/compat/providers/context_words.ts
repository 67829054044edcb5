import { context, type Entry, GOOD_STREAM, STREAMED, WHOLE } from "../form.ts";

/** What further providers say of a prompt that is too long: agents know it by its code, whatever the words are. Rule: END-21. */

const WORDS: readonly (readonly [who: string, source: string, status: number, message: string, more?: object])[] = [
  [
    "DashScope",
    "help.aliyun.com/zh/model-studio/error-code; form constructed",
    400,
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
    { code: "invalid_parameter_error" },
  ],
  [
    "Groq",
    "console.groq.com/docs/errors; form constructed",
    400,
    "Please reduce the length of the messages or completion.",
    { code: "context_length_exceeded" },
  ],
  [
    "Cohere",
    "docs.cohere.com/reference/errors; form constructed",
    400,
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt",
  ],
  [
    "xAI",
    "docs.x.ai; form constructed",
    400,
    "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
  ],
  [
    "Copilot",
    "github.com/anomalyco/opencode/issues; form constructed",
    400,
    "prompt token count of 130000 exceeds the limit of 128000",
    { code: "model_max_prompt_tokens_exceeded" },
  ],
  ["Bedrock", "docs.aws.amazon.com/bedrock; form constructed", 400, "Input is too long for requested model."],
  [
    "LM Studio",
    "github.com/lmstudio-ai/lmstudio-bug-tracker/issues; form constructed",
    400,
    "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
  ],
  [
    "Volcengine",
    "www.volcengine.com/docs/82379; form constructed",
    400,
    "Total tokens of image and text exceed max message tokens. Request id: 1",
    { code: "InvalidParameter" },
  ],
  [
    "Anthropic, with the limit of the answer",
    "docs.anthropic.com/en/docs/build-with-claude/context-windows; form constructed",
    400,
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
  ],
  [
    "OpenAI's Responses",
    "platform.openai.com/docs/guides/error-codes; form constructed",
    400,
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
  ],
  [
    "OpenAI, gpt-5",
    "platform.openai.com/docs/guides/error-codes; form constructed",
    400,
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens. Please reduce the length of the messages.",
  ],
  [
    "Gemini",
    "ai.google.dev; form constructed",
    400,
    "The input token count (1050000) exceeds the maximum number of tokens allowed (1048576).",
  ],
  [
    "TGI",
    "github.com/huggingface/text-generation-inference; form constructed",
    422,
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`",
  ],
  [
    "llama-cpp-python",
    "github.com/abetlen/llama-cpp-python; form constructed",
    400,
    "Requested tokens (9000) exceed context window of 8192",
  ],
  [
    "Fireworks",
    "docs.fireworks.ai; form constructed",
    400,
    "The prompt is too long: 140000, model maximum context length: 131071",
  ],
  [
    "Together",
    "docs.together.ai; form constructed",
    422,
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193.",
  ],
  [
    "Mistral",
    "docs.mistral.ai; form constructed",
    400,
    "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
  ],
  [
    "Moonshot",
    "platform.moonshot.cn; form constructed",
    400,
    "Invalid request: Your request exceeded model token limit: 8192",
  ],
  ["Zhipu", "docs.bigmodel.cn/cn/faq/api-code; form constructed", 400, "Prompt exceeds max length", { code: "1261" }],
  ["MiniMax", "platform.minimax.io; form constructed", 400, "invalid params, context window exceeds limit (2013)"],
  [
    "SambaNova",
    "docs.sambanova.ai; form constructed",
    400,
    "This model's maximum context length is 4096 tokens. Please reduce the length of the prompt",
  ],
  [
    "Cerebras",
    "inference-docs.cerebras.ai; form constructed",
    400,
    "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
  ],
  [
    "Databricks",
    "docs.databricks.com; form constructed",
    400,
    "BAD_REQUEST: prompt token count (9000) cannot exceed 8192. Please provide a shorter prompt",
  ],
  [
    "MLX",
    "github.com/ml-explore/mlx-lm; form constructed",
    400,
    "Prompt length 9000 exceeds maximum context length 8192",
  ],
  [
    "TensorRT-LLM",
    "github.com/NVIDIA/TensorRT-LLM; form constructed",
    400,
    "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)",
  ],
  [
    "SGLang",
    "github.com/sgl-project/sglang; form constructed",
    400,
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
  ],
  ["Perplexity", "docs.perplexity.ai; form constructed", 400, "Prompt length is too long for the model"],
  [
    "OpenRouter",
    "openrouter.ai/docs; form constructed",
    400,
    'This endpoint\'s maximum context length is 32768 tokens. However, you requested about 40000 tokens (40000 of text input). Please reduce the length of either one, or use the "middle-out" transform to compress your prompt automatically.',
  ],
  [
    "Vertex AI",
    "cloud.google.com/vertex-ai; form constructed",
    400,
    "Unable to submit request because the input token count is 40000 but model only supports up to 32768. Reduce the input token count and try again.",
  ],
  [
    "vLLM, with images",
    "github.com/vllm-project/vllm; form constructed",
    400,
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
  ],
];

export default [
  ...WORDS.flatMap(([who, source, status, message, more = {}]): Entry[] => {
    const error = { error: { message, type: "invalid_request_error", ...more } };
    const shared = { source, client: { error: "context_length_exceeded" }, charged: "nothing" } as const;
    return [
      { says: `${who}: the code that agents know`, request: WHOLE, provider: context(status, error), ...shared },
      {
        says: `${who}: the same in the first event of a stream`,
        request: STREAMED,
        provider: { events: [error] },
        ...shared,
      },
    ];
  }),
  {
    says: "A word of a prompt's length in another error is none",
    source: "constructed",
    request: STREAMED,
    provider: [context(500, { error: { message: "out of memory while the context was read" } }), GOOD_STREAM],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
] satisfies Entry[];
