import { gzipSync } from "node:zlib";
import { chatBody, embeddingBody, imageBody } from "../gateway/shop.ts";

/**
 * Bad and good input: what must be refused, and what must be accepted. The bodies are for the API and for the panel.
 * `bun scripts/bad_input_table.ts` writes docs/bad-input.md from these cases.
 */

/** `param` is null and `code` is invalid_request unless given. */
export type BodyCase = [what: string, body: unknown, param?: string | null, code?: string];
export type GoodBody = [what: string, body: unknown];

const message = (over: Record<string, unknown>) => chatBody({ messages: [{ role: "user", content: "x", ...over }] });
export const nested = (levels: number) => chatBody({ extra: JSON.parse("[".repeat(levels) + "]".repeat(levels)) });
const bytes = (...parts: (string | number[])[]) => Buffer.concat(parts.map((part) => Buffer.from(part as string)));

const rest = '"messages": [{"role": "user", "content": "x"}]';
const NULLABLE = ["stream", "stream_options", "temperature", "max_tokens", "max_completion_tokens", "n", "usage"];

/** Bodies that are not JSON objects. */
export const NO_JSON: readonly BodyCase[] = [
  ["empty", ""],
  ["blank", "  \n "],
  ["truncated", '{"model": "chat-a", "messages": ['],
  ["a trailing comma", '{"model": "chat-a",}'],
  ["a comment", '{"model": "chat-a" /* x */}'],
  ["single quotes", "{'model': 'chat-a'}"],
  ["two values", `${JSON.stringify(chatBody())}{}`],
  ["NaN", '{"model": NaN}'],
  ["HTML", "<html><body>hello</body></html>"],
  ["a form", "model=chat-a&prompt=x"],
  ["null", "null"],
  ["a number", "42"],
  ["a string", '"chat-a"'],
  ["true", "true"],
  ["an array", [chatBody()]],
  ["an empty array", []],
  ["a control character in a string", '{"model": "chat\u0001"}'],
  ["invalid UTF-8", bytes('{"model": "', [0xff, 0xfe], '"}')],
  ["overlong UTF-8", bytes('{"model": "', [0xc0, 0xaf], '"}')],
  ["a surrogate in UTF-8", bytes('{"model": "', [0xed, 0xa0, 0x80], '"}')],
  ["UTF-16", Buffer.from(`\ufeff${JSON.stringify(chatBody())}`, "utf16le")],
  ["a byte order mark", `\ufeff${JSON.stringify(chatBody())}`],
  ["nested too deeply", nested(70)],
  ["nested too deeply for parsers", `{"model": "chat-a", "messages": ${"[".repeat(100_000)}${"]".repeat(100_000)}}`],
  ["nested and never closed", `{"messages": ${'{"a":'.repeat(100_000)}`],
  ["gzip without Content-Encoding", gzipSync(JSON.stringify(chatBody()))],
];

/** Duplicate fields: a provider might read the other one. Source: API-13. */
export const TWICE: readonly BodyCase[] = [
  ["model", `{"model": "chat-a", ${rest}, "model": "vendor/chat-b"}`, "model"],
  ["model, once with escapes", `{"model": "chat-a", ${rest}, "mod\\u0065l": "vendor/chat-b"}`, "model"],
  ["max_tokens", `{"model": "chat-a", ${rest}, "max_tokens": 1, "max_tokens": 100000}`, "max_tokens"],
  ["an unknown field", `{"model": "chat-a", ${rest}, "seed": 1, "seed": 2}`, "seed"],
  ["__proto__", `{"model": "chat-a", ${rest}, "__proto__": 1, "__proto__": 2}`, "__proto__"],
  [
    "a message's content",
    '{"model": "chat-a", "messages": [{"role": "user", "content": "long", "content": "x"}]}',
    "messages.0.content",
  ],
  [
    "a message's content, once with escapes",
    '{"model": "chat-a", "messages": [{"role": "user", "content": "x"}, {"content": "long", "cont\\u0065nt": "x", "role": "user"}]}',
    "messages.1.content",
  ],
  [
    "a content part's text",
    '{"model": "chat-a", "messages": [{"role": "user", "content": [{"type": "text", "text": "long", "text": "x"}]}]}',
    "messages.0.content.0.text",
  ],
  [
    "a field of an unknown field",
    `{"model": "chat-a", ${rest}, "tools": [1, {"function": {"name": "f", "name": "g"}}]}`,
    "tools.1.function.name",
  ],
  [
    "the tenth field of an object",
    `{"model": "chat-a", ${rest}, "extra": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1, "a": 2}}`,
    "extra.a",
  ],
];

export const BAD_CHAT: readonly BodyCase[] = [
  ["no fields", {}, "model"],
  ["no model", { messages: chatBody().messages }, "model"],
  ["model null", chatBody({ model: null }), "model"],
  ["model empty", chatBody({ model: "" }), "model"],
  ["model a number", chatBody({ model: 5 }), "model"],
  ["model an array", chatBody({ model: ["chat-a"] }), "model"],
  ["model too long", chatBody({ model: "m".repeat(5_000) }), "model"],
  ["model unknown", chatBody({ model: "nobody" }), "model", "model_not_found"],
  ["model __proto__", chatBody({ model: "__proto__" }), "model", "model_not_found"],
  ["model in another case", chatBody({ model: "CHAT-A" }), "model", "model_not_found"],
  ["model with a space", chatBody({ model: " chat-a" }), "model", "model_not_found"],
  ["model with NUL", chatBody({ model: "chat-a\0" }), "model", "model_not_found"],
  ["no messages", { model: "chat-a" }, "messages"],
  ["messages null", chatBody({ messages: null }), "messages"],
  ["messages empty", chatBody({ messages: [] }), "messages"],
  ["messages a string", chatBody({ messages: "hello" }), "messages"],
  ["messages an object", chatBody({ messages: { role: "user", content: "x" } }), "messages"],
  ["message null", chatBody({ messages: [null] }), "messages.0"],
  ["message a string", chatBody({ messages: ["hello"] }), "messages.0"],
  ["message an array", chatBody({ messages: [[]] }), "messages.0"],
  ["second message wrong", chatBody({ messages: [{ role: "user", content: "x" }, 7] }), "messages.1"],
  ["no role", chatBody({ messages: [{ content: "x" }] }), "messages.0.role"],
  ["role null", message({ role: null }), "messages.0.role"],
  ["role unknown", message({ role: "king" }), "messages.0.role"],
  ["role a number", message({ role: 1 }), "messages.0.role"],
  ["role in another case", message({ role: "User" }), "messages.0.role"],
  ["no content", chatBody({ messages: [{ role: "user" }] }), "messages.0.content"],
  ["content null from a user", message({ content: null }), "messages.0.content"],
  ["content null from a tool", message({ role: "tool", content: null }), "messages.0.content"],
  ["no tool_call_id from a tool", message({ role: "tool" }), "messages.0.tool_call_id"],
  ["tool_call_id null from a tool", message({ role: "tool", tool_call_id: null }), "messages.0.tool_call_id"],
  ["tool_call_id a number", message({ role: "tool", tool_call_id: 5 }), "messages.0.tool_call_id"],
  ["content null from the system", message({ role: "system", content: null }), "messages.0.content"],
  ["content a number", message({ content: 5 }), "messages.0.content"],
  ["content an object", message({ content: { text: "x" } }), "messages.0.content"],
  ["content part a string", message({ content: ["x"] }), "messages.0.content.0"],
  ["content part null", message({ content: [{ type: "text", text: "x" }, null] }), "messages.0.content.1"],
  [
    "more content parts than a message may have",
    message({ content: Array.from({ length: 1_001 }, () => ({})) }),
    "messages.0.content",
  ],
  ["stream a string", chatBody({ stream: "true" }), "stream"],
  ["stream a number", chatBody({ stream: 1 }), "stream"],
  ["stream_options a string", chatBody({ stream: true, stream_options: "usage" }), "stream_options"],
  ["usage a boolean", chatBody({ usage: true }), "usage"],
  ["usage a list", chatBody({ usage: ["include"] }), "usage"],
  ["usage.include a string", chatBody({ usage: { include: "yes" } }), "usage.include"],
  [
    "include_usage a string",
    chatBody({ stream: true, stream_options: { include_usage: "yes" } }),
    "stream_options.include_usage",
  ],
  ["temperature below 0", chatBody({ temperature: -0.1 }), "temperature"],
  ["temperature above 2", chatBody({ temperature: 2.0001 }), "temperature"],
  ["temperature a string", chatBody({ temperature: "1" }), "temperature"],
  [
    "temperature that overflows",
    `{"model": "chat-a", "messages": [{"role": "user", "content": "x"}], "temperature": 1e999}`,
    "temperature",
  ],
  ["max_tokens 0", chatBody({ max_tokens: 0 }), "max_tokens"],
  ["max_tokens below 0", chatBody({ max_tokens: -1 }), "max_tokens"],
  ["max_tokens a fraction", chatBody({ max_tokens: 1.5 }), "max_tokens"],
  ["max_tokens a string", chatBody({ max_tokens: "10" }), "max_tokens"],
  ["max_tokens true", chatBody({ max_tokens: true }), "max_tokens"],
  ["max_tokens above any model's", chatBody({ max_tokens: 3e9 }), "max_tokens"],
  ["max_completion_tokens 0", chatBody({ max_completion_tokens: 0 }), "max_completion_tokens"],
  ["n 0", chatBody({ n: 0 }), "n"],
  ["n a fraction", chatBody({ n: 1.5 }), "n"],
  ["n too large", chatBody({ n: 1000 }), "n"],
];

export const GOOD_CHAT: readonly GoodBody[] = [
  [
    "as many content parts as a message may have",
    message({ content: Array.from({ length: 1_000 }, () => ({ type: "text", text: "a" })) }),
  ],
  [
    "one name in many objects",
    chatBody({ extra: { name: { name: [{ name: 1 }, { name: { name: 2 } }] }, b: { name: 1 }, names: "name" } }),
  ],
  ...NULLABLE.map((field): [string, unknown] => [`${field} null`, chatBody({ [field]: null })]),
  [
    "every optional field null at once",
    chatBody(
      Object.fromEntries(
        [...NULLABLE, "tools", "tool_choice", "stop", "user", "seed", "top_p", "response_format"].map((field) => [
          field,
          null,
        ]),
      ),
    ),
  ],
  ["include_usage null", chatBody({ stream_options: { include_usage: null } })],
  ["usage.include null", chatBody({ usage: { include: null } })],
  ["temperature 0", chatBody({ temperature: 0 })],
  ["temperature 2", chatBody({ temperature: 2 })],
  ["max_tokens 1", chatBody({ max_tokens: 1 })],
  ["unknown fields", chatBody({ frobnicate: { deep: [1, null, "x"] }, "": 1 })],
  ["a message's unknown fields", message({ name: "anna", cache_control: { type: "ephemeral" } })],
  ["role developer", message({ role: "developer" })],
  [
    "content parts",
    message({
      content: [
        { type: "text", text: "x" },
        { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
      ],
    }),
  ],
  ["content empty", message({ content: "" })],
  [
    "an assistant without content",
    chatBody({
      messages: [
        { role: "user", content: "x" },
        { role: "assistant", tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }] },
        { role: "tool", tool_call_id: "1", content: "5" },
      ],
    }),
  ],
  [
    "a lone surrogate, NUL, and characters of all planes",
    '{"model": "chat-a", "messages": [{"role": "user", "content": "\\ud800 \\u0000 👍 \u{10ffff}"}]}',
  ],
  ["white space around everything", ` \r\n\t${JSON.stringify(chatBody(), null, 4)}\n\n`],
  ["an id with a slash", chatBody({ model: "vendor/chat-b" })],
  ["an id with an escaped slash", '{"model": "vendor\\/chat-b", "messages": [{"role": "user", "content": "x"}]}'],
];

export const BAD_IMAGE: readonly BodyCase[] = [
  ["no prompt", { model: "image-a" }, "prompt"],
  ["prompt null", imageBody({ prompt: null }), "prompt"],
  ["prompt a number", imageBody({ prompt: 12345 }), "prompt"],
  ["prompt an array", imageBody({ prompt: ["a toll gate"] }), "prompt"],
  ["prompt empty", imageBody({ prompt: "" }), "prompt"],
  ["prompt of 2 characters", imageBody({ prompt: "ab" }), "prompt"],
  ["prompt of 2 emoji, 4 UTF-16 units", imageBody({ prompt: "👍👍" }), "prompt"],
  ["prompt of 4001 characters", imageBody({ prompt: "a".repeat(4001) }), "prompt"],
  ["prompt of 4001 emoji", imageBody({ prompt: "👍".repeat(4001) }), "prompt"],
  ["no model", { prompt: "A toll gate" }, "model"],
  ["model null", imageBody({ model: null }), "model"],
  ["model unknown", imageBody({ model: "nobody" }), "model", "model_not_found"],
  ["model for chat", imageBody({ model: "chat-a" }), "model"],
  ["size unknown", imageBody({ size: "256x256" }), "size"],
  ["size auto", imageBody({ size: "auto" }), "size"],
  ["size a number", imageBody({ size: 1024 }), "size"],
  ["n 0", imageBody({ n: 0 }), "n"],
  ["n 2", imageBody({ n: 2 }), "n"],
  ["n a string", imageBody({ n: "1" }), "n"],
  ["response_format unknown", imageBody({ response_format: "png" }), "response_format"],
  ["response_format an object", imageBody({ response_format: { type: "url" } }), "response_format"],
  ["n twice", '{"model": "image-a", "prompt": "A toll gate", "n": 1, "n": 4}', "n"],
];

export const GOOD_IMAGE: readonly GoodBody[] = [
  ["prompt of 3 characters", imageBody({ prompt: "abc" })],
  ["prompt of 3 emoji", imageBody({ prompt: "👍👍👍" })],
  ["prompt of 4000 characters", imageBody({ prompt: "a".repeat(4000) })],
  ["prompt of 4000 emoji, 8000 UTF-16 units", imageBody({ prompt: "👍".repeat(4000) })],
  ["size, n and response_format null", imageBody({ size: null, n: null, response_format: null })],
  ...["512x512", "1024x1024", "1024x1536", "1536x1024"].map((size): [string, unknown] => [size, imageBody({ size })]),
  ["n 1", imageBody({ n: 1 })],
  ["unknown fields", imageBody({ quality: "high", style: null })],
];

/** The larger ones are in embeddings.test.ts. Source: EMB-2. */
export const BAD_EMBEDDING: readonly BodyCase[] = [
  ["no input", { model: "embed-a" }, "input"],
  ["input null", embeddingBody({ input: null }), "input"],
  ["input a number", embeddingBody({ input: 5 }), "input"],
  ["input an object", embeddingBody({ input: { text: "x" } }), "input"],
  ["input empty", embeddingBody({ input: "" }), "input"],
  ["no inputs", embeddingBody({ input: [] }), "input"],
  ["2,049 texts", embeddingBody({ input: Array(2_049).fill("x") }), "input"],
  ["2,049 arrays of token ids", embeddingBody({ input: Array(2_049).fill([1]) }), "input"],
  ["an empty text among texts", embeddingBody({ input: ["a", "", "b"] }), "input.1"],
  ["a number among texts", embeddingBody({ input: ["a", 5] }), "input.1"],
  ["null among texts", embeddingBody({ input: ["a", null] }), "input.1"],
  ["an object as the first input", embeddingBody({ input: [{}] }), "input.0"],
  ["an array among texts", embeddingBody({ input: ["a", [1]] }), "input.1"],
  ["a text among arrays", embeddingBody({ input: [[1], "a"] }), "input.1"],
  ["an empty array among arrays", embeddingBody({ input: [[1], []] }), "input.1"],
  ["a token id below zero", embeddingBody({ input: [1, -1] }), "input.1"],
  ["a token id below zero in an array", embeddingBody({ input: [[1], [2, -7]] }), "input.1.1"],
  ["a token id with a fraction", embeddingBody({ input: [[1.5]] }), "input.0.0"],
  ["a token id that is a string", embeddingBody({ input: [1, "2"] }), "input.1"],
  ["a token id that no vocabulary has", embeddingBody({ input: [2 ** 31] }), "input.0"],
  ["an array in an array of arrays", embeddingBody({ input: [[[1]]] }), "input.0.0"],
  ["8,193 token ids", embeddingBody({ input: Array(8_193).fill(1) }), "input"],
  ["8,193 token ids in an array", embeddingBody({ input: [[1], Array(8_193).fill(1)] }), "input.1"],
  ["dimensions 0", embeddingBody({ dimensions: 0 }), "dimensions"],
  ["dimensions with a fraction", embeddingBody({ dimensions: 1.5 }), "dimensions"],
  ["dimensions a string", embeddingBody({ dimensions: "8" }), "dimensions"],
  ["dimensions 65,537", embeddingBody({ dimensions: 65_537 }), "dimensions"],
  ["encoding_format unknown", embeddingBody({ encoding_format: "int8" }), "encoding_format"],
  ["encoding_format an object", embeddingBody({ encoding_format: {} }), "encoding_format"],
  ["user a number", embeddingBody({ user: 5 }), "user"],
  ["no model", { input: "A toll gate" }, "model"],
  ["model a number", embeddingBody({ model: 5 }), "model"],
  ["model unknown", embeddingBody({ model: "nobody" }), "model", "model_not_found"],
  ["model for chat", embeddingBody({ model: "chat-a" }), "model"],
  ["model for chat and images", embeddingBody({ model: "vendor/chat-b" }), "model"],
  ["input twice", '{"model": "embed-a", "input": "x", "input": ["x"]}', "input"],
];

export const GOOD_EMBEDDING: readonly GoodBody[] = [
  ["a text", embeddingBody({ input: "A toll gate" })],
  ["a text of one space", embeddingBody({ input: " " })],
  ["texts", embeddingBody({ input: ["A toll gate", "A road", "été 🚦"] })],
  ["token ids", embeddingBody({ input: [1, 2, 3, 0] })],
  ["arrays of token ids", embeddingBody({ input: [[1, 2], [3], [2 ** 31 - 1]] })],
  ["128 texts", embeddingBody({ input: Array(128).fill("x"), dimensions: 1 })],
  ["8,192 token ids", embeddingBody({ input: Array(8_192).fill(1) })],
  ["options null", embeddingBody({ encoding_format: null, dimensions: null, user: null })],
  ["options", embeddingBody({ encoding_format: "base64", dimensions: 512, user: "u-1" })],
  ["unknown fields", embeddingBody({ input_type: "query", truncate: null })],
];

/** The maximum body size of the replica in these tests. */
export const BYTES_MAX = 20_000;

/** Bodies above the limit: `declared` only has a Content-Length, `chunked` is sent. */
export const TOO_LARGE: readonly [what: string, how: "declared" | "chunked", bytes: number][] = [
  ["one byte above the limit, declared", "declared", BYTES_MAX + 1],
  ["100 GB, declared", "declared", 99_999_999_999],
  ["one byte above the limit, chunked", "chunked", BYTES_MAX + 1],
  ["twenty times the limit, chunked", "chunked", BYTES_MAX * 20],
];

/** Content types; an empty one is not sent. */
export const BAD_TYPES: readonly string[] = [
  "",
  "text/plain",
  "text/json",
  "application/jsonx",
  "application/x-www-form-urlencoded",
  "multipart/form-data; boundary=x",
  "application/json-patch+json",
  "json",
  "*/*",
];

export const BAD_ENCODINGS: readonly string[] = ["gzip", "br", "deflate", "zstd", "gzip, identity", "x"];

/** Model ids in a path that do not exist. */
export const BAD_MODEL_IDS: readonly string[] = [
  "vendor",
  "chat-b",
  "vendor%252Fchat-b",
  "%zz",
  "%00",
  "%ff",
  "..%2Fbalance",
  "x".repeat(5_000),
  "<script>",
  "__proto__",
  "constructor",
];

export const UNKNOWN_PATHS: readonly string[] = [
  "/v1/chat/completions/x",
  "/v1/images",
  "/v1/usage/1",
  "/favicon.ico",
  "/.env",
  "/v1/%2e%2e%2f",
  `/${"x/".repeat(500)}`,
];

export const BAD_METHODS: readonly [path: string, methods: readonly string[]][] = [
  ["/v1/completions", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"]],
  ["/v1/rerank", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"]],
  ["/v1/chat/completions", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"]],
  ["/v1/images/generations", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"]],
  ["/v1/embeddings", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"]],
  ["/v1/usage", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"]],
];

/** Queries of GET /v1/usage, and the parameter that each refusal names. */
export const BAD_QUERIES: readonly [query: string, param: string][] = [
  ["limit=0", "limit"],
  ["limit=1001", "limit"],
  ["limit=-1", "limit"],
  ["limit=1.5", "limit"],
  ["limit=", "limit"],
  ["limit=ten", "limit"],
  ["limit=1e2", "limit"],
  ["limit=99999999999999999999", "limit"],
  ["after=1", "after"],
  ["after=", "after"],
  ["after=';drop table receipts;--", "after"],
  ["after=00000000-0000-4000-8000-000000000000", "after"],
  ["start=yesterday", "start"],
  ["start=2026-13-01", "start"],
  ["start=2026-02-30", "start"],
  ["start=2026-01-01T00:00:00", "start"],
  ["start=2026-01-01T25:00:00Z", "start"],
  ["start=2026-01-01T24:00:01Z", "start"],
  ["start=2026-01-01T00:00:00%2B99:00", "start"],
  ["end=1767225600", "end"],
  ["end=2026-06-31T00:00:00Z", "end"],
  ["end=2026-01-01T00:60:00Z", "end"],
  [`model=${"m".repeat(201)}`, "model"],
  ["model=", "model"],
  ["model=%00", "model"],
  ["limit=1&limit=2", "limit"],
  ["model=a&limit=1&model=a", "model"],
  ["%6dodel=a&model=b", "model"],
  ["page=1&page=2", "page"],
];

/** Bytes that are not valid HTTP, or are two messages in one. `HEAD` stands for a valid request line and headers. */
export const NO_HTTP: readonly [what: string, bytes: string][] = [
  ["random bytes", "\0\x01\x02garbage\r\n\r\n"],
  ["a word", "HELLO\r\n\r\n"],
  ["a length that is not a number", "HEADContent-Length: abc\r\n\r\n{}"],
  ["a length below 0", "HEADContent-Length: -5\r\n\r\n{}"],
  ["two lengths", "HEADContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"],
  ["a length and chunks", "HEADContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"],
  ["a chunk whose length is not a number", "HEADTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"],
];

/**
 * What the runtimes' HTTP parsers answer themselves, before the service sees a request. Each runtime has the responses that were
 * measured, in the words of `answerOf` in bad_input.test.ts. `POST` stands for a valid request with a body, `HEAD` for its head
 * without a length, `GET` for the beginning of a valid GET. `proxy`: behind `deploy/Caddyfile`. `ends`: what else prevents it.
 */
export type RuntimeCase = { what: string; bytes: string; bun: string[]; deno: string[]; proxy: string; ends: string };

const SMALL_CHAT = '{"model":"chat-a","messages":[{"role":"user","content":"Hi"}]}';
const BARE_400 = ["400, no body"];
const CLOSED = "closed without an answer";
const PROXY_TEXT = "Caddy's own 400, as text";

export const BY_THE_RUNTIME: readonly RuntimeCase[] = [
  {
    what: "more than 16 KB of address and headers",
    bytes: `GETX-Big: ${"a".repeat(20_000)}\r\n\r\n`,
    bun: ["431, no body"],
    deno: ["200"],
    proxy: "431 with the envelope; from 1 MB on Caddy's own, as text",
    ends: "`BUN_OPTIONS=--max-http-header-size=65536`",
  },
  {
    what: "more than 200 headers",
    bytes: `GET${Array.from({ length: 250 }, (_, i) => `X-${i}: a\r\n`).join("")}\r\n`,
    bun: ["431, no body"],
    deno: BARE_400,
    proxy: "431 with the envelope",
    ends: "no setting",
  },
  {
    what: "an unknown method",
    bytes: "FOO /v1/models HTTP/1.1\r\nHost: api.tollgate.test\r\n\r\n",
    bun: [CLOSED],
    deno: ["405 with the envelope"],
    proxy: "405 with the envelope",
    ends: "no setting",
  },
  {
    what: "no Host",
    bytes: "GET /v1/models HTTP/1.1\r\n\r\n",
    bun: BARE_400,
    deno: ["403 with the envelope"],
    proxy: PROXY_TEXT,
    ends: "no setting",
  },
  {
    what: "a wrong version of HTTP",
    bytes: "GET /v1/models HTTP/2.0\r\nHost: api.tollgate.test\r\n\r\n",
    bun: ["505, no body"],
    deno: BARE_400,
    proxy: "Caddy's own 505, as text",
    ends: "no setting",
  },
  {
    what: "a declared length beyond 2^53",
    bytes: "HEADContent-Length: 9007199254740993\r\n\r\n{",
    bun: ["413, no body"],
    deno: ["413 with the envelope"],
    proxy: "413 with the envelope",
    ends: "no setting",
  },
  {
    what: "a chunk extension of 20 KB",
    bytes: `HEADTransfer-Encoding: chunked\r\n\r\n2;${"a".repeat(20_000)}\r\n{}\r\n0\r\n\r\n`,
    bun: ["413, no body"],
    deno: ["400 with the envelope", CLOSED],
    proxy: "400 with the envelope",
    ends: "no setting",
  },
  {
    what: "trailers after chunks",
    bytes: `HEADTransfer-Encoding: chunked\r\n\r\n${SMALL_CHAT.length.toString(16)}\r\n${SMALL_CHAT}\r\n0\r\nX-Trailer: a\r\n\r\n`,
    bun: BARE_400,
    deno: ["200"],
    proxy: "served, without the trailers",
    ends: "no setting",
  },
  {
    what: "a second request before the first is answered",
    bytes: "POSTPOST",
    bun: [CLOSED],
    deno: ["200"],
    proxy: "both are answered, in order",
    ends: "[oven-sh/bun#38128](https://github.com/oven-sh/bun/pull/38128), not merged",
  },
  {
    what: "a line end after a body",
    bytes: "POST\r\n",
    bun: BARE_400,
    deno: ["200"],
    proxy: "served",
    ends: "no setting",
  },
  {
    what: "a line end before a request",
    bytes: "\r\nPOST",
    bun: BARE_400,
    deno: ["200"],
    proxy: PROXY_TEXT,
    ends: "no setting",
  },
];
