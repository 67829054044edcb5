import { chunk, completion, DONE, type Entry, STOP } from "../form.ts";

/** Gateways that mix the forms of several providers: LiteLLM, one-api, new-api, Bedrock's access gateway, proxies of Gemini. */

const ASKED = { body: { stream: true, stream_options: { include_usage: true } } };
const BEGIN = chunk({ role: "assistant", content: "good" });
const CHARGED = { tokens: [5, 7] } as const;
const READS = { text: "good", usage: [5, 7, 12] } as const;
const GOOD = { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 };
const last = (usage: unknown, more: object = {}) => ({ ...(STOP as object), choices: [], usage, ...more });

export default [
  {
    says: "Good counts are followed by zeros",
    source: "github.com/router-for-me/CLIProxyAPI/pull/3077: zeros beside the real counts",
    request: ASKED,
    provider: {
      events: [BEGIN, STOP, last(GOOD), last({ prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }), DONE],
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Good counts are followed by null",
    source: "github.com/router-for-me/CLIProxyAPI/pull/3077: null in place of counts",
    request: ASKED,
    provider: { events: [BEGIN, { ...(STOP as object), usage: GOOD }, { ...BEGIN, choices: [], usage: null }, DONE] },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A prompt and a total",
    source: "tried on a replica on 27 November 2026: the completion was counted by the gateway",
    request: {},
    provider: { json: completion({ content: "good" }, "stop", { usage: { prompt_tokens: 5, total_tokens: 12 } }) },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Anthropic's names, with the cache beside the input",
    source: "github.com/earendil-works/pi/issues/2326 (names); github.com/BerriAI/litellm/issues/39505 (cache)",
    request: {},
    provider: {
      json: completion({ content: "good" }, "stop", {
        usage: { input_tokens: 2, output_tokens: 7, cache_read_input_tokens: 3, cache_creation_input_tokens: 0 },
      }),
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Gemini's names, with thoughts",
    source: "ai.google.dev/api/generate-content#UsageMetadata",
    request: {},
    provider: {
      json: {
        ...completion({ content: "good" }, "stop", { usage: undefined }),
        usageMetadata: { promptTokenCount: 5, candidatesTokenCount: 4, thoughtsTokenCount: 3, totalTokenCount: 12 },
      },
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Counts as text",
    source: "tried on a replica on 27 November 2026: the counts were ignored",
    request: {},
    provider: {
      json: completion({ content: "good" }, "stop", {
        usage: { prompt_tokens: "5", completion_tokens: "7", total_tokens: "12" },
      }),
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Milliseconds as the time, and no index, role and id of a call, whose arguments are an object",
    source: "github.com/ggml-org/llama.cpp/issues/20198 (arguments)",
    request: { only: "chat" },
    provider: {
      json: {
        created: 1_763_856_000_530,
        choices: [
          {
            message: { content: null, tool_calls: [{ function: { name: "toll", arguments: { road: "A1" } } }] },
            finish_reason: "tool_calls",
          },
        ],
        usage: GOOD,
      },
    },
    client: {
      calls: [{ name: "toll", arguments: '{"road":"A1"}' }],
      finish: "tool_calls",
      json: { object: "chat.completion", created: 1_763_856_000 },
    },
    charged: CHARGED,
  },
  {
    says: "Two calls of a stream have neither index nor id",
    source: "github.com/openai/openai-python/issues/2806",
    request: ASKED,
    provider: {
      events: [
        chunk({ role: "assistant", tool_calls: [{ function: { name: "a", arguments: '{"n":1}' } }] }),
        chunk({ tool_calls: [{ function: { name: "b", arguments: '{"n":2}' } }] }),
        chunk({}, "tool_calls"),
        last(GOOD),
        DONE,
      ],
    },
    client: {
      calls: [
        { name: "a", arguments: '{"n":1}' },
        { name: "b", arguments: '{"n":2}' },
      ],
      usage: [5, 7, 12],
    },
    charged: CHARGED,
  },
  {
    says: "A content of thinking and text, and another vendor's finish_reason",
    source: "github.com/agentjido/req_llm/issues/742",
    request: {},
    provider: {
      json: completion(
        {
          content: [
            { type: "thinking", thinking: [{ type: "text", text: "Hm." }] },
            { type: "text", text: "good" },
          ],
        },
        "model_length",
      ),
    },
    client: { ...READS, reasoning: "Hm." },
    charged: CHARGED,
  },
  {
    says: "A finish reason in every chunk, and an error behind half an answer",
    source: "constructed",
    request: { body: { stream: true } },
    provider: {
      events: [
        chunk({ role: "assistant", content: "ha" }, "stop"),
        chunk({ content: "lf" }, "stop"),
        { error: { message: "overloaded", code: 503 } },
      ],
    },
    client: { text: "half", error: "provider_unavailable" },
    charged: "nothing",
  },
] satisfies Entry[];
