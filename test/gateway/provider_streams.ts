import type { DialectName } from "../../src/catalog/dialects.ts";
import { VENDOR_STREAMS } from "./vendor_streams.ts";

/**
 * Chat streams in the shapes of real providers: field order, extra fields, comments and ends as public captures show them. The texts
 * are ours. Each shape names the capture or page that it was taken from. Used by provider_streams.test.ts and by `bun run bench:streams`.
 */

export type ProviderStream = {
  name: string;
  /** Whose shape it is, if it is that of a dialect. */
  dialect?: DialectName;
  /** Where the shape was seen. */
  source: string;
  /** Everything before the first text, as bytes on the wire. */
  opening: string;
  /** The payload of an event with `text`. `n` counts the events from 0. */
  event(text: string, n: number): string;
  /** Everything after the last text, as bytes on the wire. */
  ending: string;
  /** What the client reads: the field of the delta that has the text. */
  field: "content" | "reasoning_content" | "reasoning" | "arguments";
};

const ID = "chatcmpl-DIgPq3";
const CREATED = 1_763_856_000;
const DONE = "data: [DONE]\n\n";
const json = JSON.stringify;
const data = (payload: string) => `data: ${payload}\n\n`;

/** Padding that makes events of different texts equally long, as OpenAI sends it. */
function padding(n: number): string {
  const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  return Array.from({ length: 4 + ((n * 7) % 13) }, (_, i) => letters[(n * 31 + i * 17) % letters.length]).join("");
}

/** The completion tokens up to an event: at most those of the end. */
const soFar = (n: number) => Math.min(1 + n, 7);
const USAGE = `{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}`;
const OPENAI_USAGE = `{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`;

const openai = (delta: string, finish: string, n: number, usage = "null") =>
  `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1827dd0c55","choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}],"usage":${usage},"obfuscation":"${padding(n)}"}`;
const SAFE = `{"hate":{"filtered":false,"severity":"safe"},"self_harm":{"filtered":false,"severity":"safe"},"sexual":{"filtered":false,"severity":"safe"},"violence":{"filtered":false,"severity":"safe"}}`;
const azure = (filter: string, delta: string, finish: string) =>
  `{"choices":[{"content_filter_results":${filter},"delta":${delta},"finish_reason":${finish},"index":0,"logprobs":null}],"created":${CREATED},"id":"${ID}","model":"gpt-4o-mini-2024-07-18","object":"chat.completion.chunk","system_fingerprint":"fp_5154047bf2"}`;
const vllm = (delta: string, finish: string, usage = "") =>
  `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}]${usage}}`;
const llamacpp = (delta: string, finish: string, more = "") =>
  `{"choices":[{"finish_reason":${finish},"index":0,"delta":${delta}}],"created":${CREATED},"id":"${ID}","model":"stories","system_fingerprint":"b6970-7f09a680a","object":"chat.completion.chunk"${more}}`;
const deepseek = (delta: string, finish: string, more = "") =>
  `{"id":"5d3d7a6e","object":"chat.completion.chunk","created":${CREATED},"model":"deepseek-reasoner","system_fingerprint":"fp_ffc7281d48_prod","choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}]${more}}`;
const openrouter = (delta: string, finish: string, more = "") =>
  `{"id":"gen-1763856000-kUKF","provider":"OpenAI","model":"openai/gpt-4o-mini","object":"chat.completion.chunk","created":${CREATED},"choices":[{"index":0,"delta":${delta},"finish_reason":${finish},"native_finish_reason":${finish},"logprobs":null}],"system_fingerprint":"fp_72ed7ab54c"${more}}`;
const gemini = (delta: string, finish: string, tokens: number) =>
  `{"choices":[{"delta":${delta}${finish === "null" ? "" : `,"finish_reason":${finish}`},"index":0}],"created":${CREATED},"id":"xC3saJzHKp-_","model":"gemini-2.5-flash","object":"chat.completion.chunk","usage":{"completion_tokens":${tokens},"prompt_tokens":11,"total_tokens":${11 + tokens}}}`;
const anthropic = (delta: string, finish: string) =>
  `{"id":"msg_01Ab","choices":[{"index":0,"delta":${delta},"finish_reason":${finish},"logprobs":null}],"created":${CREATED},"model":"claude-sonnet-4-5","object":"chat.completion.chunk","usage":null}`;
const mistral = (delta: string, finish: string, n: number, usage = "") =>
  `{"id":"a1b2c3","object":"chat.completion.chunk","created":${CREATED},"model":"mistral-small-latest","choices":[{"index":0,"delta":${delta},"finish_reason":${finish}}]${usage},"p":"${padding(n)}"}`;

const perplexity = (delta: string, finish: string, tokens: number) =>
  `{"id":"8b7f2d1c","model":"sonar","created":${CREATED},"usage":{"prompt_tokens":11,"completion_tokens":${tokens},"total_tokens":${11 + tokens},"search_context_size":"low"},"citations":["https://example.com/tolls"],"object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":${finish},"delta":${delta}}]}`;
const anew = (delta: string, finish: string, n: number) =>
  `{"id":"${ID}-${n}","object":"chat.completion.chunk","created":${CREATED + n},"seq":${n},"model":"up","choices":[{"index":0,"delta":${delta},"finish_reason":${finish}}]}`;
const timed = (delta: string, finish: string, n: number) =>
  `{"timings":{"prompt_n":11,"prompt_ms":1.5,"predicted_n":${n},"predicted_ms":${(n * 3.25).toFixed(3)}},"choices":[{"finish_reason":${finish},"index":0,"delta":${delta}}],"created":${CREATED},"id":"${ID}","model":"stories","object":"chat.completion.chunk"}`;

export const PROVIDER_STREAMS: readonly ProviderStream[] = [
  {
    name: "OpenAI, with obfuscation",
    dialect: "openai",
    source:
      "github.com/llamastack/llama-stack tests/integration/recordings; charm fantasy providertests/testdata (api.openai.com, 2026)",
    opening: data(openai(`{"role":"assistant","content":"","refusal":null}`, "null", 1)),
    event: (text, n) => openai(`{"content":${json(text)}}`, "null", n),
    ending:
      data(openai("{}", `"stop"`, 5)) +
      data(
        `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1827dd0c55","choices":[],"usage":${OPENAI_USAGE},"obfuscation":"${padding(9)}"}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "OpenAI, arguments of a tool call",
    source:
      "charm fantasy providertests/testdata/TestOpenAICommon/openai-o4-mini/tool_streaming.yaml (api.openai.com, 2026)",
    opening: data(
      openai(
        `{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_IPFx","type":"function","function":{"name":"weather","arguments":""}}],"refusal":null}`,
        "null",
        1,
      ),
    ),
    event: (text, n) => openai(`{"tool_calls":[{"index":0,"function":{"arguments":${json(text)}}}]}`, "null", n),
    ending: data(openai("{}", `"tool_calls"`, 5)) + DONE,
    field: "arguments",
  },
  {
    name: "Azure OpenAI, content filter",
    dialect: "azure",
    source: "github.com/langchain4j/langchain4j issue 2385; github.com/AbanteAI/archive-old-cli-mentat issue 429",
    opening:
      data(
        `{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":${SAFE}}]}`,
      ) + data(azure("{}", `{"content":"","refusal":null,"role":"assistant"}`, "null")),
    event: (text) => azure(SAFE, `{"content":${json(text)}}`, "null"),
    ending: data(azure("{}", "{}", `"stop"`)) + DONE,
    field: "content",
  },
  {
    name: "Azure OpenAI, asynchronous content filter",
    source: "github.com/openai/openai-python issue 1677; github.com/microsoft/autogen issue 6465",
    opening:
      data(
        `{"id":"","object":"","created":0,"model":"","prompt_annotations":[{"prompt_index":0,"content_filter_results":${SAFE}}],"choices":[],"usage":null}`,
      ) +
      data(
        `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"gpt-35-turbo","choices":[{"index":0,"finish_reason":null,"delta":{"role":"assistant"}}],"usage":null}`,
      ),
    event: (text) =>
      `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"gpt-35-turbo","choices":[{"index":0,"finish_reason":null,"delta":{"content":${json(text)}}}],"usage":null}`,
    ending:
      data(
        `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"gpt-35-turbo","choices":[{"index":0,"finish_reason":"stop","delta":{}}],"usage":null}`,
      ) +
      data(
        `{"id":"","object":"","created":0,"model":"","choices":[{"index":0,"finish_reason":null,"content_filter_results":${SAFE},"content_filter_offsets":{"check_offset":44,"start_offset":44,"end_offset":198}}],"usage":null}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "vLLM",
    dialect: "vllm",
    source: "docs.vllm.ai, OpenAI-compatible server",
    opening: data(vllm(`{"role":"assistant","content":""}`, "null")),
    event: (text) => vllm(`{"content":${json(text)}}`, "null"),
    ending:
      data(
        vllm(`{"content":""}`, `"stop"`).replace(`"finish_reason":"stop"`, `"finish_reason":"stop","stop_reason":null`),
      ) +
      data(
        `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[],"usage":${USAGE}}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "vLLM, usage in every event",
    source: "docs.vllm.ai, stream_options.continuous_usage_stats",
    opening: data(
      vllm(`{"role":"assistant","content":""}`, "null", `,"usage":${USAGE.replace("7", "0").replace("18", "11")}`),
    ),
    event: (text, n) =>
      vllm(
        `{"content":${json(text)}}`,
        "null",
        `,"usage":{"prompt_tokens":11,"total_tokens":${11 + soFar(n)},"completion_tokens":${soFar(n)}}`,
      ),
    ending: data(vllm(`{"content":""}`, `"stop"`, `,"usage":${USAGE}`)) + DONE,
    field: "content",
  },
  {
    name: "llama.cpp",
    dialect: "llama.cpp",
    source: "github.com/ggml-org/llama.cpp tools/server/README.md and tests/unit/test_chat_completion.py",
    opening: data(llamacpp(`{"role":"assistant","content":null}`, "null")),
    event: (text) => llamacpp(`{"content":${json(text)}}`, "null"),
    ending:
      data(llamacpp("{}", `"stop"`, `,"timings":{"prompt_n":11,"prompt_ms":1.5,"predicted_n":7,"predicted_ms":3.25}`)) +
      data(
        `{"choices":[],"created":${CREATED},"id":"${ID}","model":"stories","system_fingerprint":"b6970-7f09a680a","object":"chat.completion.chunk","usage":{"completion_tokens":7,"prompt_tokens":11,"total_tokens":18},"timings":{"prompt_n":11}}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "DeepSeek, reasoning",
    dialect: "deepseek",
    source: "api-docs.deepseek.com, reasoning model and keep-alive comments",
    opening: `: keep-alive\n\n${data(deepseek(`{"role":"assistant","content":null,"reasoning_content":""}`, "null"))}`,
    event: (text) => deepseek(`{"content":null,"reasoning_content":${json(text)}}`, "null"),
    ending:
      data(
        deepseek(
          `{"content":"","reasoning_content":null}`,
          `"stop"`,
          `,"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":5},"prompt_cache_hit_tokens":0,"prompt_cache_miss_tokens":11}`,
        ),
      ) + DONE,
    field: "reasoning_content",
  },
  {
    name: "OpenRouter",
    dialect: "openrouter",
    source: "github.com/openai/openai-go issue 227; github.com/speakeasy-api/gram pull 921",
    opening: `: OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n${data(openrouter(`{"role":"assistant","content":""}`, "null"))}`,
    event: (text) => openrouter(`{"role":"assistant","content":${json(text)}}`, "null"),
    ending:
      data(openrouter(`{"role":"assistant","content":""}`, `"stop"`)) +
      data(openrouter(`{"role":"assistant","content":""}`, "null", `,"usage":${OPENAI_USAGE}`)) +
      DONE,
    field: "content",
  },
  {
    name: "Gemini, usage in every event",
    dialect: "gemini",
    source: "ai.google.dev, OpenAI compatibility",
    opening: data(gemini(`{"role":"assistant"}`, "null", 0)),
    event: (text, n) => gemini(`{"content":${json(text)},"role":"assistant"}`, "null", soFar(n)),
    ending: data(gemini(`{"role":"assistant"}`, `"stop"`, 7)) + DONE,
    field: "content",
  },
  {
    name: "Anthropic, OpenAI-compatible",
    dialect: "anthropic-compatible",
    source: "docs.claude.com, OpenAI SDK compatibility",
    opening: data(anthropic(`{"role":"assistant","content":""}`, "null")),
    event: (text) => anthropic(`{"content":${json(text)}}`, "null"),
    ending:
      data(anthropic("{}", `"stop"`)) +
      data(
        `{"id":"msg_01Ab","choices":[],"created":${CREATED},"model":"claude-sonnet-4-5","object":"chat.completion.chunk","usage":${USAGE}}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "Mistral, with padding",
    dialect: "mistral",
    source: "docs.mistral.ai, chat completion; the field p since 2025",
    opening: data(mistral(`{"role":"assistant","content":""}`, "null", 3)),
    event: (text, n) => mistral(`{"content":${json(text)}}`, "null", n),
    ending: data(mistral(`{"content":""}`, `"stop"`, 4, `,"usage":${USAGE}`)) + DONE,
    field: "content",
  },
  {
    name: "Perplexity, usage and sources in front of the choices in every event",
    dialect: "perplexity",
    source: "docs.perplexity.ai, chat completions with stream",
    opening: data(perplexity(`{"role":"assistant","content":""}`, "null", 0)),
    event: (text, n) => perplexity(`{"role":"assistant","content":${json(text)}}`, "null", soFar(n)),
    ending: data(perplexity(`{"role":"assistant","content":""}`, `"stop"`, 7)) + DONE,
    field: "content",
  },
  {
    name: "another id and time in every event, in front of the choices",
    source: "tried on a replica on 27 November 2026; proxies that make each chunk anew",
    opening: data(anew(`{"role":"assistant","content":""}`, "null", 0)),
    event: (text, n) => anew(`{"content":${json(text)}}`, "null", 1 + n),
    ending: data(anew("{}", `"stop"`, 99)) + DONE,
    field: "content",
  },
  {
    name: "timings as an object in front of the choices in every event",
    source: "github.com/ggml-org/llama.cpp tools/server/README.md, timings_per_token",
    opening: data(timed(`{"role":"assistant","content":null}`, "null", 0)),
    event: (text, n) => timed(`{"content":${json(text)}}`, "null", 1 + n),
    ending:
      data(timed("{}", `"stop"`, 99)) +
      data(
        `{"choices":[],"created":${CREATED},"id":"${ID}","model":"stories","object":"chat.completion.chunk","usage":{"completion_tokens":99,"prompt_tokens":11,"total_tokens":110},"timings":{"prompt_n":11,"predicted_n":99}}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "log probabilities in every event",
    source: "platform.openai.com, chat completions with logprobs",
    opening: data(openai(`{"role":"assistant","content":""}`, "null", 1)),
    event: (text, n) =>
      openai(`{"content":${json(text)}}`, "null", n).replace(
        `"logprobs":null`,
        `"logprobs":{"content":[{"token":"t${n}","logprob":${-0.25 - n / 1000},"bytes":[116,${48 + (n % 10)}],"top_logprobs":[]}],"refusal":null}`,
      ),
    ending: data(openai("{}", `"stop"`, 5)) + DONE,
    field: "content",
  },
  {
    name: "two choices in turn",
    source: "platform.openai.com, chat completions with n",
    opening:
      data(openai(`{"role":"assistant","content":""}`, "null", 1)) +
      data(openai(`{"role":"assistant","content":""}`, "null", 1).replace(`"index":0`, `"index":1`)),
    event: (text, n) => openai(`{"content":${json(text)}}`, "null", n).replace(`"index":0`, `"index":${n % 2}`),
    ending: data(openai("{}", `"stop"`, 5)) + data(openai("{}", `"stop"`, 5).replace(`"index":0`, `"index":1`)) + DONE,
    field: "content",
  },
  {
    name: "escapes in every text",
    source: "any provider that writes code: quotes and line breaks in JSON",
    opening: data(openai(`{"role":"assistant","content":""}`, "null", 1)),
    event: (text, n) => openai(`{"content":${json(`${text}\n"`)}}`, "null", n),
    ending: data(openai("{}", `"stop"`, 5)) + DONE,
    field: "content",
  },
  ...VENDOR_STREAMS,
];

/** A whole stream of `texts`, as bytes on the wire. */
export function wireOf(stream: ProviderStream, texts: readonly string[]): string {
  return stream.opening + texts.map((text, n) => data(stream.event(text, n))).join("") + stream.ending;
}
