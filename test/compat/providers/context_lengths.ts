import { context, type Entry, GOOD_STREAM, STREAMED, WHOLE } from "../form.ts";

export default [
  {
    says: "OpenAI: the client gets the code that agents know",
    source: "platform.openai.com, error context_length_exceeded",
    request: WHOLE,
    provider: context(400, {
      error: {
        message: "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        type: "invalid_request_error",
        param: "messages",
        code: "context_length_exceeded",
      },
    }),
    client: { error: "context_length_exceeded", message: "maximum context length is 8192" },
    charged: "nothing",
  },
  {
    says: "OpenAI, newer models: the client gets the code that agents know",
    source: "platform.openai.com, error context_length_exceeded",
    request: WHOLE,
    provider: context(400, {
      error: {
        message: "Your input exceeds the context window of this model. Please adjust your input and try again.",
        type: "invalid_request_error",
        param: "input",
        code: "context_length_exceeded",
      },
    }),
    client: { error: "context_length_exceeded", message: "exceeds the context window" },
    charged: "nothing",
  },
  {
    says: "SGLang: the client gets the code that agents know",
    source: "github.com/sgl-project/sglang, tokenizer_manager.py",
    request: WHOLE,
    provider: context(400, {
      object: "error",
      message: "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
      type: "BadRequestError",
      code: 400,
    }),
    client: { error: "context_length_exceeded", message: "longer than the model's context length" },
    charged: "nothing",
  },
  {
    says: "llama.cpp: the client gets the code that agents know",
    source: "github.com/ggml-org/llama.cpp, tools/server, ERROR_TYPE_EXCEED_CONTEXT_SIZE",
    request: WHOLE,
    provider: context(400, {
      error: {
        code: 400,
        message: "the request exceeds the available context size, try increasing it",
        type: "exceed_context_size_error",
        n_prompt_tokens: 5000,
        n_ctx: 4096,
      },
    }),
    client: { error: "context_length_exceeded", message: "exceeds the available context size" },
    charged: "nothing",
  },
  {
    says: "llama.cpp, older, with a 500: the client gets the code that agents know",
    source: "github.com/ggml-org/llama.cpp, tools/server, ERROR_TYPE_EXCEED_CONTEXT_SIZE",
    request: WHOLE,
    provider: context(500, {
      error: {
        code: 500,
        message:
          "the request exceeds the available context size. try increasing the context size or enable context shift",
        type: "server_error",
      },
    }),
    client: { error: "context_length_exceeded", message: "exceeds the available context size" },
    charged: "nothing",
  },
  {
    says: "Ollama: the client gets the code that agents know",
    source: "github.com/ollama/ollama, runner",
    request: WHOLE,
    provider: context(400, {
      error: {
        message: "the input length exceeds the context length",
        type: "invalid_request_error",
        param: null,
        code: null,
      },
    }),
    client: { error: "context_length_exceeded", message: "exceeds the context length" },
    charged: "nothing",
  },
  {
    says: "Mistral: the client gets the code that agents know",
    source: "docs.mistral.ai; github.com/BerriAI/litellm/issues/5650",
    request: WHOLE,
    provider: context(400, {
      object: "error",
      message: "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
      type: "invalid_request_error",
      param: null,
      code: null,
    }),
    client: { error: "context_length_exceeded", message: "too large for model with 32768" },
    charged: "nothing",
  },
  {
    says: "Anthropic: the client gets the code that agents know",
    source: "docs.claude.com, errors",
    request: WHOLE,
    provider: context(400, {
      type: "error",
      error: { type: "invalid_request_error", message: "prompt is too long: 210000 tokens > 200000 maximum" },
    }),
    client: { error: "context_length_exceeded", message: "prompt is too long: 210000" },
    charged: "nothing",
  },
  {
    says: "Anthropic, with the cap: the client gets the code that agents know",
    source: "docs.claude.com, errors",
    request: WHOLE,
    provider: context(400, {
      error: {
        type: "invalid_request_error",
        message:
          "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
      },
    }),
    client: { error: "context_length_exceeded", message: "exceed context limit" },
    charged: "nothing",
  },
  {
    says: "Gemini: the client gets the code that agents know",
    source: "ai.google.dev, troubleshooting",
    request: WHOLE,
    provider: context(400, [
      {
        error: {
          code: 400,
          message: "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
          status: "INVALID_ARGUMENT",
        },
      },
    ]),
    client: { error: "context_length_exceeded", message: "exceeds the maximum number of tokens" },
    charged: "nothing",
  },
  {
    says: "Groq: the client gets the code that agents know",
    source: "console.groq.com/docs/errors",
    request: WHOLE,
    provider: context(400, {
      error: {
        message: "Please reduce the length of the messages or completion.",
        type: "invalid_request_error",
        param: "messages",
        code: "context_length_exceeded",
      },
    }),
    client: { error: "context_length_exceeded", message: "reduce the length of the messages" },
    charged: "nothing",
  },
  {
    says: "Together: the client gets the code that agents know",
    source: "docs.together.ai; huggingface.co/docs/text-generation-inference",
    request: WHOLE,
    provider: context(422, {
      error: {
        message:
          "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 512 `max_new_tokens`",
        type: "invalid_request_error",
        param: null,
        code: null,
      },
    }),
    client: { error: "context_length_exceeded", message: "must be <= 8193" },
    charged: "nothing",
  },
  {
    says: "OpenRouter: the client gets the code that agents know",
    source: "openrouter.ai/docs/api-reference/errors",
    request: WHOLE,
    provider: context(400, {
      error: {
        message: "This endpoint's maximum context length is 128000 tokens. However, you requested about 150000 tokens.",
        code: 400,
        metadata: { provider_name: null },
      },
    }),
    client: { error: "context_length_exceeded", message: "maximum context length is 128000" },
    charged: "nothing",
  },
  {
    says: "Bedrock: the client gets the code that agents know",
    source: "docs.aws.amazon.com/bedrock, ValidationException",
    request: WHOLE,
    provider: context(400, { message: "Input is too long for requested model." }),
    client: { error: "context_length_exceeded", message: "Input is too long for requested model" },
    charged: "nothing",
  },
  {
    says: "xAI: the client gets the code that agents know",
    source: "docs.x.ai",
    request: WHOLE,
    provider: context(400, {
      code: "Client specified an invalid argument",
      error: "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    }),
    client: { error: "context_length_exceeded", message: "maximum prompt length is 131072" },
    charged: "nothing",
  },
  {
    says: "Qwen: the client gets the code that agents know",
    source: "help.aliyun.com, model-studio error codes",
    request: WHOLE,
    provider: context(400, {
      error: {
        code: "invalid_parameter_error",
        message: "Range of input length should be [1, 30720]",
        param: null,
        type: "invalid_request_error",
      },
    }),
    client: { error: "context_length_exceeded", message: "Range of input length" },
    charged: "nothing",
  },
  {
    says: "Moonshot: the client gets the code that agents know",
    source: "platform.moonshot.ai",
    request: WHOLE,
    provider: context(400, {
      error: {
        message: "Invalid request: Your request exceeded model token limit: 8192",
        type: "invalid_request_error",
      },
    }),
    client: { error: "context_length_exceeded", message: "exceeded model token limit: 8192" },
    charged: "nothing",
  },
  {
    says: "GitHub Models: the client gets the code that agents know",
    source: "github.com/cline/cline/issues/2115",
    request: WHOLE,
    provider: context(413, {
      error: {
        code: "tokens_limit_reached",
        message: "Request body too large for gpt-4o model. Max size: 8000 tokens.",
      },
    }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "GitHub Copilot: the client gets the code that agents know",
    source: "github.com/microsoft/vscode/issues/289514",
    request: WHOLE,
    provider: context(400, {
      error: {
        message: "prompt token count of 514673 exceeds the limit of 128000",
        code: "model_max_prompt_tokens_exceeded",
      },
    }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "GitHub Copilot, without its code: the client gets the code that agents know",
    source: "github.com/microsoft/vscode-copilot-release/issues/6700",
    request: WHOLE,
    provider: context(400, {
      error: { message: "prompt token count of 65446 exceeds the limit of 64000", param: "", code: "", type: "" },
    }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "vLLM, newer: the client gets the code that agents know",
    source: "docs.vllm.ai: serving_engine",
    request: WHOLE,
    provider: context(400, {
      error: {
        message:
          "You passed 4097 input tokens and requested 1 output tokens. However, the model's context length is only 4096 tokens.",
        code: 400,
      },
    }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "SGLang, at its limit: the client gets the code that agents know",
    source: "docs.sglang.ai: server arguments, allow-auto-truncate",
    request: WHOLE,
    provider: context(400, {
      object: "error",
      message: "Input length (5000) exceeds the maximum allowed length (4096). Use a shorter input.",
      code: 400,
    }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "Vertex AI: the client gets the code that agents know",
    source: "cloud.google.com/vertex-ai: api errors",
    request: WHOLE,
    provider: context(400, [
      {
        error: {
          code: 400,
          message:
            "Unable to submit request because the input token count is 1048577 but model only supports up to 32768.",
          status: "INVALID_ARGUMENT",
        },
      },
    ]),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "Cohere: the client gets the code that agents know",
    source: "docs.cohere.com/reference/errors",
    request: WHOLE,
    provider: context(400, {
      message: "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs.",
    }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "Bedrock, by its models: the client gets the code that agents know",
    source: "docs.aws.amazon.com/bedrock: troubleshooting",
    request: WHOLE,
    provider: context(400, {
      message:
        "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
    }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "DashScope, in Chinese: the client gets the code that agents know",
    source: "help.aliyun.com/zh/model-studio/error-code",
    request: WHOLE,
    provider: context(400, { code: "InvalidParameter", message: "输入长度超过模型最大上下文限制" }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "Zhipu, its code as a number: the client gets the code that agents know",
    source: "docs.bigmodel.cn/cn/faq/api-code",
    request: WHOLE,
    provider: context(400, { error: { code: 1261, message: "Prompt 超长" } }),
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "The next route is asked first: its model may take more",
    source: "openrouter.ai/docs, fallback models",
    request: STREAMED,
    provider: [
      context(400, {
        error: { message: "This model's maximum context length is 8192 tokens.", code: "context_length_exceeded" },
      }),
      GOOD_STREAM,
    ],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
] satisfies Entry[];
