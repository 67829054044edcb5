import type { ProviderStream } from "./provider_streams.ts";

/** Chat streams of further vendors and servers, as `PROVIDER_STREAMS`, which has them. */

const ID = "chatcmpl-DIgPq3";
const CREATED = 1_763_856_000;
const DONE = "data: [DONE]\n\n";
const json = JSON.stringify;
const data = (payload: string) => `data: ${payload}\n\n`;
const USAGE = `{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}`;

const sglang = (delta: string, finish: string, stop = "null") =>
  `{"id":"669d24a3423f4012","object":"chat.completion.chunk","created":${CREATED},"model":"default","choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish},"matched_stop":${stop}}],"usage":null}`;
const ollama = (delta: string, finish: string) =>
  `{"id":"chatcmpl-318","object":"chat.completion.chunk","created":${CREATED},"model":"stories","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":${delta},"finish_reason":${finish}}]}`;
const lmStudio = (delta: string, finish: string) =>
  `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"qwen3-8b","system_fingerprint":"qwen3-8b","choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}]}`;
const tgi = (delta: string, finish: string) =>
  `{"object":"chat.completion.chunk","id":"","created":${CREATED},"model":"meta-llama/Llama-3.1-8B-Instruct","system_fingerprint":"3.3.4-sha-9f38d93","choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}],"usage":null}`;
const groq = (delta: string, finish: string, more = "") =>
  `{"id":"${ID}","object":"chat.completion.chunk","created":${CREATED},"model":"llama-3.1-8b-instant","system_fingerprint":"fp_b3ae7e594e","choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}]${more}}`;
const together = (text: string, finish: string, token: number, usage = "null") =>
  `{"id":"8b43a5cfadf99e5c-SJC","object":"chat.completion.chunk","created":${CREATED},"choices":[{"index":0,"text":${json(text)},"logprobs":null,"finish_reason":${finish},"seed":null,"delta":{"token_id":${token},"role":"assistant","content":${json(text)},"tool_calls":null}}],"model":"meta-llama/Meta-Llama-3.1-8B-Instruct-Turbo","usage":${usage}}`;
const fireworks = (delta: string, finish: string, usage = "null") =>
  `{"id":"5d1c9c0f-8a4e","object":"chat.completion.chunk","created":${CREATED},"model":"accounts/fireworks/models/glm-4p5","choices":[{"index":0,"delta":${delta},"finish_reason":${finish}}],"usage":${usage}}`;
const xai = (delta: string, finish = "") =>
  `{"id":"a3c1e5","object":"chat.completion.chunk","created":${CREATED},"model":"grok-4","choices":[{"index":0,"delta":${delta}${finish}}],"system_fingerprint":"fp_a8b7d5f1c2"}`;
const moonshot = (delta: string, finish: string) =>
  `{"id":"cmpl-1305b94c","object":"chat.completion.chunk","created":${CREATED},"model":"kimi-k2","choices":[{"index":0,"delta":${delta},"finish_reason":${finish}}],"system_fingerprint":"fpv0_ca1d2527"}`;
/** The members of a choice change their order within a stream. */
const qwen = (delta: string, finish: string, n: number) => {
  const choice =
    n % 3 === 0
      ? `{"finish_reason":${finish},"logprobs":null,"delta":${delta},"index":0}`
      : `{"delta":${delta},"finish_reason":${finish},"index":0,"logprobs":null}`;
  return `{"choices":[${choice}],"object":"chat.completion.chunk","usage":null,"created":${CREATED},"system_fingerprint":null,"model":"qwen-plus","id":"${ID}"}`;
};
const cohere = (delta: string, finish: string) =>
  `{"id":"0b6f1d2a","choices":[{"index":0,"finish_reason":${finish},"delta":${delta}}],"created":${CREATED},"model":"command-a-03-2025","object":"chat.completion.chunk"}`;
const bedrock = (delta: string, finish: string) =>
  `{"id":"${ID}","created":${CREATED},"model":"anthropic.claude-3-sonnet","system_fingerprint":"fp","choices":[{"index":0,"finish_reason":${finish},"logprobs":null,"delta":${delta}}],"object":"chat.completion.chunk","usage":null}`;
const zhipu = (delta: string, more = "", usage = "") =>
  `{"id":"20251123080000a1b2","created":${CREATED},"object":"chat.completion.chunk","model":"glm-4.6","choices":[{"index":0${more},"delta":${delta}}]${usage}}`;
const minimax = (delta: string, finish = "") =>
  `{"id":"07008f4a82fecea8","choices":[{"index":0,"delta":${delta}${finish}}],"created":${CREATED},"model":"MiniMax-M2.7","object":"chat.completion.chunk","usage":null,"input_sensitive":false,"output_sensitive":false,"input_sensitive_type":0,"output_sensitive_type":0,"output_sensitive_int":0}`;
const thought = (text: string) =>
  `{"role":"assistant","name":"MiniMax AI","audio_content":"","reasoning_content":${json(text)},"reasoning_details":[{"type":"reasoning.text","id":"reasoning-text-1","format":"MiniMax-response-v1","index":0,"text":${json(text)}}]}`;

export const VENDOR_STREAMS: readonly ProviderStream[] = [
  {
    name: "SGLang",
    dialect: "sglang",
    source: "github.com/sgl-project/sglang, srt/entrypoints/openai/protocol.py: DeltaMessage; NVIDIA NIM",
    opening: data(sglang(`{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null}`, "null")),
    event: (text) => sglang(`{"role":null,"content":${json(text)},"reasoning_content":null,"tool_calls":null}`, "null"),
    ending:
      data(sglang(`{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}`, `"stop"`, "2")) +
      data(
        `{"id":"669d24a3423f4012","object":"chat.completion.chunk","created":${CREATED},"model":"default","choices":[],"usage":${USAGE}}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "Ollama",
    dialect: "ollama",
    source: "Ollama v0.33.0-rc2, as it came",
    opening: data(ollama(`{"role":"assistant","content":""}`, "null")),
    event: (text) => ollama(`{"content":${json(text)}}`, "null"),
    ending:
      data(ollama("{}", `"stop"`)) +
      data(
        `{"id":"chatcmpl-318","object":"chat.completion.chunk","created":${CREATED},"model":"stories","system_fingerprint":"fp_ollama","choices":[],"usage":${USAGE}}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "LM Studio",
    dialect: "lm-studio",
    source: "lmstudio.ai/docs/developer/openai-compat/chat-completions",
    opening: "",
    event: (text) => lmStudio(`{"role":"assistant","content":${json(text)}}`, "null"),
    ending: data(lmStudio("{}", `"stop"`)) + DONE,
    field: "content",
  },
  {
    name: "Text Generation Inference",
    dialect: "tgi",
    source: "huggingface.co/docs/text-generation-inference/reference/api_reference: ChatCompletionChunk",
    opening: "",
    event: (text) => tgi(`{"role":"assistant","content":${json(text)}}`, "null"),
    ending: data(tgi(`{"role":"assistant","content":""}`, `"stop"`)) + DONE,
    field: "content",
  },
  {
    name: "Groq",
    dialect: "groq",
    source: "github.com/vercel/ai, packages/groq, and github.com/angerman/llm-groq: recorded chunks",
    opening: data(groq(`{"role":"assistant","content":""}`, "null", `,"x_groq":{"id":"req_01j47pdq9cer"}`)),
    event: (text) => groq(`{"content":${json(text)}}`, "null"),
    ending: data(groq("{}", `"stop"`, `,"x_groq":{"id":"req_01j47pdq9cer"}`)) + DONE,
    field: "content",
  },
  {
    name: "Together AI: the text twice, and its token",
    dialect: "together",
    source: "github.com/lzell/AIProxySwift, TogetherAIChatCompletionStreamingChunkTests",
    opening: "",
    event: (text, n) => together(text, "null", 30 + ((n * 7919) % 128_000)),
    ending: data(together("", `"stop"`, 128_009, USAGE)) + DONE,
    field: "content",
  },
  {
    name: "Fireworks AI",
    dialect: "fireworks",
    source: "docs.fireworks.ai/guides/querying-text-models: streaming",
    opening: data(fireworks(`{"role":"assistant"}`, "null")),
    event: (text) => fireworks(`{"content":${json(text)}}`, "null"),
    ending: data(fireworks("{}", `"stop"`, USAGE)) + DONE,
    field: "content",
  },
  {
    name: "xAI",
    dialect: "xai",
    source: "docs.x.ai/docs/guides/streaming-response",
    opening: data(xai(`{"content":"","role":"assistant"}`)),
    event: (text) => xai(`{"content":${json(text)},"role":"assistant"}`),
    ending:
      data(xai(`{"content":"","role":"assistant"}`, `,"finish_reason":"stop"`)) +
      data(
        `{"id":"a3c1e5","object":"chat.completion.chunk","created":${CREATED},"model":"grok-4","choices":[],"usage":${USAGE},"system_fingerprint":"fp_a8b7d5f1c2"}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "Moonshot",
    dialect: "moonshot",
    source: "platform.moonshot.ai/docs/api/chat: streamed answers",
    opening: data(moonshot(`{"role":"assistant","content":""}`, "null")),
    event: (text) => moonshot(`{"content":${json(text)}}`, "null"),
    ending: data(moonshot("{}", `"stop"`)) + DONE,
    field: "content",
  },
  {
    name: "Qwen: a choice whose members change their order",
    dialect: "qwen",
    source:
      "www.bioinfo.online/articleList/20261642327.html; help.aliyun.com/model-studio: streamed answers of qwen-plus",
    opening: data(qwen(`{"content":"","role":"assistant"}`, "null", 1)),
    event: (text, n) => qwen(`{"content":${json(text)}}`, "null", n),
    ending:
      data(qwen(`{"content":""}`, `"stop"`, 1)) +
      data(
        `{"choices":[],"object":"chat.completion.chunk","usage":${USAGE},"created":${CREATED},"system_fingerprint":null,"model":"qwen-plus","id":"${ID}"}`,
      ) +
      DONE,
    field: "content",
  },
  {
    name: "Cohere, OpenAI-compatible",
    dialect: "cohere-compatible",
    source: "docs.cohere.com/docs/compatibility-api: streaming",
    opening: data(cohere(`{"content":"","role":"assistant"}`, "null")),
    event: (text) => cohere(`{"content":${json(text)}}`, "null"),
    ending: data(cohere("{}", `"stop"`)) + DONE,
    field: "content",
  },
  {
    name: "Gateway to Amazon Bedrock",
    dialect: "bedrock-gateway",
    source: "github.com/aws-samples/bedrock-access-gateway, src/api/schema.py: ChatStreamResponse",
    opening: data(bedrock(`{"role":"assistant","content":""}`, "null")),
    event: (text) => bedrock(`{"content":${json(text)}}`, "null"),
    ending: data(bedrock("{}", `"stop"`)) + DONE,
    field: "content",
  },
  {
    name: "Zhipu, reasoning",
    source: "docs.bigmodel.cn/cn/guide/develop: streamed answers of glm-4.6",
    opening: "",
    event: (text) => zhipu(`{"role":"assistant","reasoning_content":${json(text)}}`),
    ending: data(zhipu(`{"role":"assistant","content":""}`, `,"finish_reason":"stop"`, `,"usage":${USAGE}`)) + DONE,
    field: "reasoning_content",
  },
  {
    name: "MiniMax, reasoning: the text twice",
    source: "github.com/enterpilot/gomodel, internal/providers/minimax: a recorded stream",
    opening: "",
    event: (text) => minimax(thought(text)),
    ending: data(minimax(`{"role":"assistant","content":""}`, `,"finish_reason":"stop"`)) + DONE,
    field: "reasoning_content",
  },
];
