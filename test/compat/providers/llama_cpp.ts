import { chunk, context, DONE, type Entry, GOOD_WHOLE, STREAMED, WHOLE } from "../form.ts";

/** Answers of llama-server, build 10434, with a model of 512 tokens, as they came. */
const SEEN = "llama-server b10434";
const IMAGE = {
  error: {
    code: 500,
    message: "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
    type: "server_error",
  },
};
const CANNOT = "does not take what the request has";
const TOOLS = [{ type: "function", function: { name: "lookup", parameters: { type: "object", properties: {} } } }];

/** The chunk with the usage of one choice. */
const usageOfOne = (completion_tokens: number) => ({
  choices: [],
  created: 1795832694,
  id: "chatcmpl-cmMENsk3gr0DNTePAApFEyMc1ZzmTgGM",
  model: "/models/stories260K.gguf",
  system_fingerprint: "b1-7e4c0a9",
  object: "chat.completion.chunk",
  usage: {
    completion_tokens,
    prompt_tokens: 6,
    total_tokens: 6 + completion_tokens,
    prompt_tokens_details: { cached_tokens: 5 },
  },
  timings: { cache_n: 5, prompt_n: 1, prompt_ms: 46.802, predicted_n: completion_tokens, predicted_ms: 71.193 },
});
/** A chunk of one of several choices. */
const of = (index: number, delta: object, finish: string | null = null) =>
  chunk({}, null, { choices: [{ finish_reason: finish, index, delta }] });

export default [
  {
    says: "A whole answer: `timings` beside the usage pass",
    source: SEEN,
    request: { only: "chat" },
    provider: {
      json: {
        choices: [
          {
            finish_reason: "length",
            index: 0,
            message: { role: "assistant", content: "Anna liked to go on adventure" },
          },
        ],
        created: 1795832163,
        model: "/models/stories260K.gguf",
        system_fingerprint: "b1-7e4c0a9",
        object: "chat.completion",
        usage: {
          completion_tokens: 16,
          prompt_tokens: 4,
          total_tokens: 20,
          prompt_tokens_details: { cached_tokens: 0 },
        },
        id: "chatcmpl-TUnBI7sY6CQLJ4xC9MzhOuizdgNnFqth",
        timings: { cache_n: 0, prompt_n: 4, prompt_ms: 0.928, predicted_n: 16, predicted_ms: 87.18 },
      },
    },
    client: {
      text: "Anna liked to go on adventure",
      finish: "length",
      usage: [4, 16, 20],
      json: { timings: { cache_n: 0, prompt_n: 4 } },
    },
    charged: { tokens: [4, 16] },
  },
  {
    says: "A stream begins with a role and a content of null",
    source: SEEN,
    request: { body: { stream: true, stream_options: { include_usage: true } } },
    provider: {
      events: [
        chunk({ role: "assistant", content: null }),
        chunk({ content: "Joe" }),
        chunk({ content: " and " }),
        chunk({}, "length"),
        usageOfOne(16),
        DONE,
      ],
    },
    client: { text: "Joe and ", finish: "length", usage: [6, 16, 22] },
    charged: { tokens: [6, 16] },
  },
  {
    says: "`timings` in the chunk that ends an answer pass in a stream that asks for no usage",
    source: "github.com/ggml-org/llama.cpp, tools/server: to_json_oaicompat_chat_stream",
    request: { only: "chat", body: { stream: true } },
    provider: {
      events: [
        chunk({ role: "assistant", content: null }),
        chunk({ content: "Joe" }, null, { timings: { cache_n: 5, predicted_n: 1 } }),
        chunk({}, "stop", { timings: { cache_n: 5, prompt_n: 1, predicted_n: 2 } }),
        usageOfOne(2),
        DONE,
      ],
    },
    client: {
      events: [
        { choices: [{ delta: { role: "assistant" } }] },
        { choices: [{ delta: { content: "Joe" } }], timings: { predicted_n: 1 } },
        { choices: [{ delta: {}, finish_reason: "stop" }], timings: { predicted_n: 2 } },
      ],
    },
    charged: { tokens: [6, 2] },
  },
  {
    says: "No usage, although it is asked for: it is counted here",
    source: "github.com/ggml-org/llama.cpp, tools/server: stream_options.include_usage is false by default",
    request: { only: "chat", body: { stream: true, stream_options: { include_usage: true } } },
    provider: { events: [chunk({ role: "assistant", content: "Joe" }), chunk({}, "stop"), DONE] },
    client: { text: "Joe", usage: [12, 2, 14] },
    charged: { tokens: [12, 2] },
  },
  {
    says: "`timings` alone are the usage",
    source: "github.com/ggml-org/llama.cpp, tools/server: stream_options.include_usage is false by default",
    request: { only: "chat", body: { stream: true, stream_options: { include_usage: true } } },
    provider: {
      events: [
        chunk({ role: "assistant", content: "Joe" }),
        chunk({}, "stop", { timings: { cache_n: 5, prompt_n: 1, predicted_n: 2 } }),
        DONE,
      ],
    },
    client: { text: "Joe", usage: [6, 2, 8] },
    charged: { tokens: [6, 2] },
  },
  {
    says: "A model without images answers 500: the request is refused, and the route has not failed",
    source: SEEN,
    request: WHOLE,
    provider: { status: 500, json: IMAGE },
    client: { error: "invalid_request", message: CANNOT },
    charged: "nothing",
  },
  {
    says: "The same to a stream",
    source: SEEN,
    request: STREAMED,
    provider: { status: 500, json: IMAGE },
    client: { error: "invalid_request", message: CANNOT },
    charged: "nothing",
  },
  {
    says: "The same of audio, and the next route answers",
    source: SEEN,
    request: WHOLE,
    provider: [
      {
        status: 500,
        json: {
          error: {
            code: 500,
            message: "audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            type: "server_error",
          },
        },
      },
      GOOD_WHOLE,
    ],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "Tools, of a server that was started without templates",
    source: `${SEEN} --no-jinja`,
    request: { body: { tools: TOOLS }, only: "chat" },
    provider: {
      status: 500,
      json: { error: { code: 500, message: "tools param requires --jinja flag", type: "server_error" } },
    },
    client: { error: "invalid_request", message: CANNOT },
    charged: "nothing",
  },
  {
    says: "Embeddings of a server that has none: 501",
    source: SEEN,
    request: { path: "embeddings" },
    provider: {
      status: 501,
      json: {
        error: {
          code: 501,
          message: "This server does not support embeddings. Start it with `--embeddings`",
          type: "not_supported_error",
        },
      },
    },
    client: { error: "invalid_request", message: CANNOT },
    charged: "nothing",
  },
  {
    says: "Embeddings of a text that does not fit into one batch: 500, and the client gets the code of a prompt that is too long",
    source: `${SEEN} --embeddings`,
    request: { path: "embeddings" },
    provider: context(500, {
      error: {
        code: 500,
        message:
          "input (1802 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
        type: "server_error",
      },
    }),
    client: { error: "context_length_exceeded", message: "input (1802 tokens) is too large to process" },
    charged: "nothing",
  },
  {
    says: "A prompt that is too long: the client gets the code that agents know",
    source: SEEN,
    request: WHOLE,
    provider: context(400, {
      error: {
        code: 400,
        message: "request (1803 tokens) exceeds the available context size (512 tokens), try increasing it",
        type: "exceed_context_size_error",
        n_prompt_tokens: 1803,
        n_ctx: 512,
      },
    }),
    client: { error: "context_length_exceeded", message: "exceeds the available context size (512 tokens)" },
    charged: "nothing",
  },
  {
    says: "A template that refuses the order of roles: 400, with its sentence",
    source: `${SEEN} --chat-template-file`,
    request: WHOLE,
    provider: {
      status: 400,
      json: {
        error: {
          code: 400,
          message:
            "Unable to generate parser for this template. Automatic parser generation failed: \n------------\nWhile executing CallExpression at line 1, column 125 in source:\n...op.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user...\n                                           ^\nError: Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...",
          type: "invalid_request_error",
        },
      },
    },
    client: { error: "invalid_request", message: "Conversation roles must alternate user/assistant" },
    charged: "nothing",
  },
  {
    says: "Two choices in a stream: each reports its own usage when it ends, and both are charged",
    source: `${SEEN}, n: 2`,
    request: { only: "chat", body: { stream: true, n: 2, max_tokens: 5, stream_options: { include_usage: true } } },
    provider: {
      events: [
        of(1, { role: "assistant", content: null }),
        of(1, { content: "is" }),
        of(0, { role: "assistant", content: null }),
        of(0, { content: "A" }),
        of(1, { content: " a" }),
        of(0, { content: "nna" }),
        of(1, { content: " rich" }),
        of(1, {}, "length"),
        usageOfOne(5),
        of(0, { content: " a" }),
        of(0, {}, "length"),
        usageOfOne(4),
        DONE,
      ],
    },
    client: { text: "isA anna rich a", usage: [6, 9, 15] },
    charged: { tokens: [6, 9] },
  },
  {
    says: "Two choices in a stream, and one usage of both that comes twice: it is charged once",
    source: "openai.com, stream_options: the usage is of the entire request",
    request: { only: "chat", body: { stream: true, n: 2, max_tokens: 5, stream_options: { include_usage: true } } },
    provider: {
      events: [
        of(0, { role: "assistant", content: "A" }),
        of(1, { role: "assistant", content: "B" }),
        of(0, {}, "stop"),
        of(1, {}, "stop"),
        usageOfOne(9),
        usageOfOne(9),
        DONE,
      ],
    },
    client: { text: "AB", usage: [6, 9, 15] },
    charged: { tokens: [6, 9] },
  },
] satisfies Entry[];
