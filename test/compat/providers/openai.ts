import {
  chunk,
  completion,
  DONE,
  type Entry,
  GOOD_STREAM,
  GOOD_WHOLE,
  STOP,
  STREAMED,
  USAGE_CHUNK,
  WHOLE,
} from "../form.ts";

const error = (type: string, code: string | null, message: string, param: string | null = null) => ({
  error: { message, type, param, code },
});

export default [
  {
    says: "A whole answer",
    source: "platform.openai.com/docs/api-reference/chat/object",
    request: WHOLE,
    provider: { json: completion({ content: "Tolls are paid.", refusal: null, annotations: [] }) },
    client: { text: "Tolls are paid.", finish: "stop", usage: [5, 7, 12] },
    charged: { tokens: [5, 7] },
  },
  {
    says: "A stream with its usage in the last chunk",
    source: "platform.openai.com/docs/api-reference/chat/streaming",
    request: { body: { stream: true, stream_options: { include_usage: true } } },
    provider: {
      got: { stream_options: { include_usage: true } },
      events: [
        chunk({ role: "assistant", content: "", refusal: null }),
        chunk({ content: "Tolls are" }),
        chunk({ content: " paid." }),
        STOP,
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: { text: "Tolls are paid.", finish: "stop", usage: [5, 7, 12] },
    charged: { tokens: [5, 7] },
  },
  {
    says: "A call of a tool, whose arguments come in pieces",
    source: "platform.openai.com/docs/guides/function-calling#streaming",
    request: STREAMED,
    provider: {
      events: [
        chunk({
          role: "assistant",
          content: null,
          tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "toll", arguments: "" } }],
        }),
        chunk({ tool_calls: [{ index: 0, function: { arguments: '{"road":' } }] }),
        chunk({ tool_calls: [{ index: 0, function: { arguments: '"A1"}' } }] }),
        chunk({}, "tool_calls"),
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: { calls: [{ name: "toll", arguments: '{"road":"A1"}' }], finish: "tool_calls" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "A refusal of the request is the client's, and is nobody's failure",
    source: "platform.openai.com/docs/guides/error-codes",
    request: WHOLE,
    provider: {
      status: 400,
      json: error("invalid_request_error", null, "Unsupported value: 'temperature' does not support 3.", "temperature"),
    },
    client: { error: "invalid_request", message: "Unsupported value: 'temperature'", param: "temperature" },
    charged: "nothing",
  },
  {
    says: "A rate limit of the first route: the second answers",
    source: "platform.openai.com/docs/guides/error-codes",
    request: STREAMED,
    provider: [
      {
        status: 429,
        json: error("requests", "rate_limit_exceeded", "Rate limit reached for gpt-4o. Please try again in 20s."),
      },
      GOOD_STREAM,
    ],
    client: { text: "good", finish: "stop" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "No credit at the first provider: the second answers",
    source: "community.openai.com: 429 insufficient_quota",
    request: WHOLE,
    provider: [
      { status: 429, json: error("insufficient_quota", "insufficient_quota", "You exceeded your current quota.") },
      GOOD_WHOLE,
    ],
    client: { text: "good", finish: "stop", usage: [5, 7, 12] },
    charged: { tokens: [5, 7] },
  },
  {
    says: "An overloaded provider, and no other route",
    source: "platform.openai.com/docs/guides/error-codes",
    request: WHOLE,
    provider: { status: 503, json: error("server_error", null, "The engine is currently overloaded.") },
    client: { error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "A stream that ends after half an answer ends with an error, without [DONE], and is free",
    source: "github.com/openai/openai-python/issues/399",
    request: STREAMED,
    provider: { events: [chunk({ role: "assistant", content: "" }), chunk({ content: "Tolls" })], end: "closed" },
    client: { text: "Tolls", error: "provider_unavailable" },
    charged: "nothing",
  },
] satisfies Entry[];
