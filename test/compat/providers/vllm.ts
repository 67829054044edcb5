import { chunk, DONE, type Entry, GOOD_STREAM, STREAMED, WHOLE } from "../form.ts";

export default [
  {
    says: "An error as the first event of a stream is the client's",
    source: "github.com/vllm-project/vllm, entrypoints/openai/serving_chat.py, create_streaming_error_response",
    request: STREAMED,
    provider: {
      events: [
        {
          object: "error",
          message: "top_p must be in (0, 1], got 3.",
          type: "BadRequestError",
          param: null,
          code: 400,
        },
        DONE,
      ],
    },
    client: { error: "invalid_request", message: "top_p must be in" },
    charged: "nothing",
  },
  {
    says: "The same with the error under its key",
    source: "github.com/vllm-project/vllm/pull/19165",
    request: STREAMED,
    provider: {
      events: [
        { error: { message: "top_p must be in (0, 1], got 3.", type: "BadRequestError", param: null, code: 400 } },
        DONE,
      ],
    },
    client: { error: "invalid_request", message: "top_p must be in" },
    charged: "nothing",
  },
  {
    says: "A whole error with status 200",
    source: "github.com/vllm-project/vllm/issues/1127",
    request: WHOLE,
    provider: {
      json: { object: "error", message: "n must be 1", type: "invalid_request_error", param: null, code: 400 },
    },
    client: { error: "invalid_request", message: "n must be 1" },
    charged: "nothing",
  },
  {
    says: "An internal error as the first event: the next route answers",
    source: "github.com/vllm-project/vllm/issues/1127",
    request: STREAMED,
    provider: [
      { events: [{ object: "error", message: "EngineDeadError", type: "InternalServerError", code: 500 }] },
      GOOD_STREAM,
    ],
    client: { text: "good", finish: "stop" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "An error after half an answer is no chunk",
    source: "github.com/vllm-project/vllm, generator of serving_chat.py",
    request: STREAMED,
    provider: {
      events: [
        chunk({ role: "assistant", content: "" }),
        chunk({ content: "Tolls" }),
        { object: "error", message: "boom", type: "InternalServerError", code: 500 },
        DONE,
      ],
    },
    client: { text: "Tolls", error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "A prompt that is too long, by the decoder's words: the client gets the code that agents know",
    source: "docs.vllm.ai, --max-model-len",
    request: WHOLE,
    provider: {
      status: 400,
      json: {
        object: "error",
        message: "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        type: "BadRequestError",
        code: 400,
      },
    },
    client: { error: "context_length_exceeded", message: "longer than the maximum model length of 4096" },
    charged: "nothing",
  },
  {
    says: "A prompt that is too long, as the first event: the client gets the code that agents know",
    source: "docs.vllm.ai, --max-model-len",
    request: WHOLE,
    provider: {
      events: [
        {
          error: {
            message: "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.",
            type: "BadRequestError",
            code: 400,
          },
        },
      ],
    },
    client: { error: "context_length_exceeded", message: "maximum context length is 4096 tokens" },
    charged: "nothing",
  },
] satisfies Entry[];
