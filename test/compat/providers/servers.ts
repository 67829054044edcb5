import { deflateRawSync, gzipSync, zstdCompressSync } from "node:zlib";
import {
  chunk,
  completion,
  DONE,
  type Entry,
  GOOD_STREAM,
  STOP,
  STREAMED,
  USAGE,
  USAGE_CHUNK,
  WHOLE,
} from "../form.ts";

/** Servers that people run, and small services: how they frame, shape and compress what is a good answer. */

const BEGIN = chunk({ role: "assistant", content: "" });
const GOOD = chunk({ content: "good" });
const READS = { text: "good" } as const;
const CHARGED = { tokens: [5, 7] } as const;
const json = JSON.stringify;
const line = (event: object) => `data: ${json(event)}\n`;
const whole = Buffer.from(json(completion({ content: "good" })));
const stream = Buffer.from([BEGIN, GOOD, STOP, USAGE_CHUNK].map((event) => `${line(event)}\n`).join("") + DONE);
const encoded = (encoding: string, bytes: Uint8Array) => ({ headers: { "content-encoding": encoding }, bytes });
const call = (part: object) => chunk({ tool_calls: [part] });
const CALL = { calls: [{ name: "toll", arguments: '{"gate":1}' }] } as const;

export default [
  {
    says: "No blank line between events",
    source: "github.com/anomalyco/opencode/issues/27365",
    request: STREAMED,
    provider: { events: [line(BEGIN), line(GOOD), line(STOP), line(USAGE_CHUNK), "data: [DONE]\n"] },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "[DONE] in the event of the last chunk",
    source: "github.com/anomalyco/opencode/issues/27365",
    request: STREAMED,
    provider: { events: [BEGIN, GOOD, STOP, `${line(USAGE_CHUNK)}data: [DONE]\n\n`] },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Each event's data on the line behind its field",
    source: "github.com/0xPlaygrounds/rig/issues/534",
    request: STREAMED,
    provider: { events: [...[BEGIN, GOOD, STOP, USAGE_CHUNK].map((event) => `data:\n ${json(event)}\n\n`), DONE] },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Lines that end with CR alone, fields of all kinds, and comments within events",
    source: "html.spec.whatwg.org/multipage/server-sent-events.html",
    request: STREAMED,
    provider: {
      events: [
        `retry: 3000\r\rid: 1\revent: message\rdata: ${json(BEGIN)}\r\r`,
        `: a comment\rdata: ${json(GOOD)}\r: another\rid\r\r`,
        `data:${json(STOP)}\r\r:\r\rdata: ${json(USAGE_CHUNK)}\r\rdata:[DONE]\r\r`,
      ],
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Null and empty data, heartbeats as objects",
    source: "github.com/openai/openai-python/pull/2721",
    request: STREAMED,
    provider: {
      events: [
        { type: "heartbeat" },
        BEGIN,
        "data: null\n\n",
        GOOD,
        "data:\n\n",
        { object: "keep-alive" },
        STOP,
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Lines of JSON in answer to a stream",
    source: "docs.ollama.com/api/streaming",
    request: STREAMED,
    provider: { text: [BEGIN, GOOD, STOP, USAGE_CHUNK].map((event) => json(event)).join("\n") },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "llama.cpp until September 2025: an error as a field of its own",
    source: "github.com/ggml-org/llama.cpp/pull/16109",
    request: STREAMED,
    provider: {
      events: ['error: {"code":400,"message":"the grammar is invalid","type":"invalid_request_error"}\n\n', DONE],
    },
    client: { error: "invalid_request", message: "the grammar is invalid" },
    charged: "nothing",
  },
  {
    says: "The same behind half an answer",
    source: "github.com/coddy-project/coddy-agent/pull/106",
    request: STREAMED,
    provider: { events: [BEGIN, GOOD, 'error: {"code":500,"message":"boom","type":"server_error"}\n\n', DONE] },
    client: { text: "good", error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "The body of an error in a stream, without a field, behind the role",
    source: "github.com/lemonade-sdk/lemonade/issues/2826",
    request: STREAMED,
    provider: {
      events: [
        BEGIN,
        '{"error":{"code":400,"message":"request (19185 tokens) exceeds the available context size (16384 tokens)"}}\n',
      ],
    },
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "An event that is an error by its name alone",
    source: "tried on a replica on 28 November 2026: dropped, and the half answer was charged",
    request: STREAMED,
    provider: { events: [BEGIN, GOOD, 'event: error\ndata: {"reason":"upstream"}\n\n', DONE] },
    client: { text: "good", error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "A whole completion as the only event",
    source: "tried on a replica on 28 November 2026; servers that only wrap their answer",
    request: STREAMED,
    provider: { events: [completion({ content: "good" }), DONE] },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Chunks of legacy completions",
    source: "github.com/abetlen/llama-cpp-python/issues/133",
    request: STREAMED,
    provider: {
      events: [
        { object: "text_completion", choices: [{ text: "good", index: 0, finish_reason: null }] },
        { object: "text_completion", choices: [{ text: "", index: 0, finish_reason: "stop" }], usage: USAGE },
        DONE,
      ],
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A whole legacy completion",
    source: "github.com/abetlen/llama-cpp-python",
    request: WHOLE,
    provider: {
      json: { object: "text_completion", choices: [{ text: "good", index: 0, finish_reason: "stop" }], usage: USAGE },
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "An empty finish_reason in every chunk is none",
    source: "github.com/ollama/ollama/issues/4357",
    request: { only: "chat", body: { stream: true } },
    provider: {
      events: [chunk({ role: "assistant", content: "go" }, ""), chunk({ content: "od" }, ""), STOP, USAGE_CHUNK, DONE],
    },
    client: {
      ...READS,
      finish: "stop",
      events: [{ choices: [{ finish_reason: null }] }, { choices: [{ finish_reason: null }] }, {}],
    },
    charged: CHARGED,
  },
  {
    says: "The word null as finish_reason is none: what breaks off then is free",
    source: "help.aliyun.com/zh/model-studio/qwen-api-via-dashscope",
    request: STREAMED,
    provider: {
      events: [chunk({ role: "assistant", content: "go" }, "null"), chunk({ content: "od" }, "null")],
      end: "closed",
    },
    client: { ...READS, error: "provider_unavailable" },
    charged: "nothing",
  },
  ...(
    [
      ["FINISH_REASON_STOP", "stop"],
      ["Stop", "stop"],
      ["max_length", "length"],
      ["BLOCKLIST", "content_filter"],
      ["refusal", "content_filter"],
      ["ERROR_TOXIC", "content_filter"],
      ["TOOL_CALLS", "tool_calls"],
    ] as const
  ).map(
    ([theirs, finish]): Entry => ({
      says: `The finish reason ${theirs} of a vendor`,
      source: "ai.google.dev/api/generate-content#FinishReason; docs.cohere.com; docs.claude.com",
      request: { only: "chat" },
      provider: { json: completion({ content: "good" }, theirs) },
      client: { ...READS, finish },
      charged: CHARGED,
    }),
  ),
  {
    says: "Parts that continue a call have nulls",
    source: "github.com/anomalyco/opencode/issues/43328",
    request: STREAMED,
    provider: {
      events: [
        call({ index: 0, id: "a", type: "function", function: { name: "toll", arguments: "" } }),
        call({ index: 0, id: null, type: null, function: { name: null, arguments: '{"gate"' } }),
        call({ index: 0, id: null, type: null, function: { name: null, arguments: ":1}" } }),
        chunk({}, "tool_calls"),
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: CALL,
    charged: CHARGED,
  },
  {
    says: "The name of a call in each of its parts",
    source: "github.com/NousResearch/hermes-agent/pull/11984",
    request: STREAMED,
    provider: {
      events: [
        call({ index: 0, id: "a", type: "function", function: { name: "toll", arguments: '{"gate"' } }),
        call({ index: 0, id: "a", type: "function", function: { name: "toll", arguments: ":1}" } }),
        chunk({}, "tool_calls"),
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: CALL,
    charged: CHARGED,
  },
  {
    says: "Indexes as text, of two calls in turn, the first is 1",
    source: "github.com/pipecat-ai/pipecat/issues/4987 (the first is 1); tried on a replica (text)",
    request: STREAMED,
    provider: {
      events: [
        call({ index: "1", id: "a", type: "function", function: { name: "toll", arguments: "" } }),
        call({ index: "2", id: "b", type: "function", function: { name: "gate", arguments: "" } }),
        call({ index: "1", function: { arguments: '{"gate":1}' } }),
        call({ index: "2", function: { arguments: "{}" } }),
        chunk({}, "tool_calls"),
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: { calls: [...CALL.calls, { name: "gate", arguments: "{}" }] },
    charged: CHARGED,
  },
  {
    says: "A call without arguments has an empty object",
    source: "tried on a replica on 28 November 2026; tools without parameters",
    request: WHOLE,
    provider: {
      json: completion(
        { content: null, tool_calls: [{ id: "a", type: "function", function: { name: "toll" } }] },
        "tool_calls",
      ),
    },
    client: { calls: [{ name: "toll", arguments: "{}" }] },
    charged: CHARGED,
  },
  {
    says: "A role that is not the assistant's, and a content that is one part",
    source: "tried on a replica on 28 November 2026; gateways of Gemini",
    request: { only: "chat" },
    provider: { json: completion({ role: "model", content: { type: "text", text: "good" } }) },
    client: { ...READS, json: { choices: [{ message: { role: "assistant" } }] } },
    charged: CHARGED,
  },
  {
    says: "A whole answer in zstd, which was not asked for",
    source: "www.rfc-editor.org/rfc/rfc8878; proxies",
    request: WHOLE,
    provider: encoded("zstd", zstdCompressSync(whole)),
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A whole answer in deflate without its header",
    source: "www.rfc-editor.org/rfc/rfc9110#deflate.coding: some servers leave it out",
    request: WHOLE,
    provider: encoded("deflate", deflateRawSync(whole)),
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Encoded twice",
    source: "www.rfc-editor.org/rfc/rfc9110#field.content-encoding",
    request: WHOLE,
    provider: encoded("gzip, zstd", zstdCompressSync(gzipSync(whole))),
    client: READS,
    charged: CHARGED,
  },
  {
    says: "The header of gzip, and a stream that is not encoded",
    source: "tried on a replica on 28 November 2026; proxies that decode and leave the header",
    request: STREAMED,
    provider: encoded("gzip", stream),
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Half a stream in gzip",
    source: "tried on a replica on 28 November 2026",
    request: STREAMED,
    provider: [encoded("gzip", gzipSync(stream).subarray(0, 40)), GOOD_STREAM],
    client: READS,
    charged: CHARGED,
  },
  {
    says: "The header of an encoding that nobody knows, and an answer that is not encoded",
    source: "tried on a replica on 28 November 2026",
    request: WHOLE,
    provider: encoded("snappy", whole),
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Embeddings with indexes as text, each in a list of its own",
    source: "tried on a replica on 28 November 2026; llama.cpp's /embedding nests them",
    request: { path: "embeddings", body: { input: ["a", "b"] } },
    provider: {
      json: {
        data: [
          { index: "1", embedding: [[1.5]] },
          { index: "0", embedding: [[0.5]] },
        ],
        usage: { prompt_tokens: 5 },
      },
    },
    client: {
      json: {
        data: [
          { index: 0, embedding: [0.5] },
          { index: 1, embedding: [1.5] },
        ],
      },
    },
    charged: { tokens: [5, 0] },
  },
  {
    says: "Embeddings as bare lists",
    source: "huggingface.co/docs/text-embeddings-inference: /embed",
    request: { path: "embeddings", body: { input: ["a", "b"] } },
    provider: { json: { data: [[0.5], [1.5]], usage: { total_tokens: 5 } } },
    client: {
      json: {
        data: [
          { index: 0, embedding: [0.5] },
          { index: 1, embedding: [1.5] },
        ],
      },
    },
    charged: { tokens: [5, 0] },
  },
] satisfies Entry[];
