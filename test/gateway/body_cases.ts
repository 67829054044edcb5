import { gzipSync } from "node:zlib";
import { chatBody, imageBody } from "./shop.ts";

/** Bodies that must be refused, and bodies that must pass, at the API's door and at the panel's alike. */

/** `param` is null and `code` is invalid_request unless given. */
export type BodyCase = [what: string, body: unknown, param?: string | null, code?: string];
export type GoodBody = [what: string, body: unknown];

const message = (over: Record<string, unknown>) => chatBody({ messages: [{ role: "user", content: "x", ...over }] });
export const nested = (levels: number) => chatBody({ extra: JSON.parse("[".repeat(levels) + "]".repeat(levels)) });
const bytes = (...parts: (string | number[])[]) => Buffer.concat(parts.map((part) => Buffer.from(part as string)));

const rest = '"messages": [{"role": "user", "content": "x"}]';
const NULLABLE = ["stream", "stream_options", "temperature", "max_tokens", "max_completion_tokens", "n"];

/** What is no JSON object. */
export const NO_JSON: readonly BodyCase[] = [
  ["empty", ""],
  ["blank", "  \n "],
  ["cut short", '{"model": "chat-a", "messages": ['],
  ["a comma too many", '{"model": "chat-a",}'],
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
  ["bad UTF-8", bytes('{"model": "', [0xff, 0xfe], '"}')],
  ["overlong UTF-8", bytes('{"model": "', [0xc0, 0xaf], '"}')],
  ["a surrogate in UTF-8", bytes('{"model": "', [0xed, 0xa0, 0x80], '"}')],
  ["UTF-16", Buffer.from(`\ufeff${JSON.stringify(chatBody())}`, "utf16le")],
  ["a byte order mark", `\ufeff${JSON.stringify(chatBody())}`],
  ["nested too deeply", nested(70)],
  ["nested until parsers give up", `{"model": "chat-a", "messages": ${"[".repeat(100_000)}${"]".repeat(100_000)}}`],
  ["nested and never closed", `{"messages": ${'{"a":'.repeat(100_000)}`],
  ["gzip without saying so", gzipSync(JSON.stringify(chatBody()))],
];

/** A field that stands twice, which providers would read otherwise than we. */
export const TWICE: readonly BodyCase[] = [
  ["model", `{"model": "chat-a", ${rest}, "model": "vendor/chat-b"}`, "model"],
  ["model, once in escapes", `{"model": "chat-a", ${rest}, "mod\\u0065l": "vendor/chat-b"}`, "model"],
  ["max_tokens", `{"model": "chat-a", ${rest}, "max_tokens": 1, "max_tokens": 100000}`, "max_tokens"],
  ["an unknown field", `{"model": "chat-a", ${rest}, "seed": 1, "seed": 2}`, "seed"],
  ["a field of the prototype", `{"model": "chat-a", ${rest}, "__proto__": 1, "__proto__": 2}`, "__proto__"],
];

export const BAD_CHAT: readonly BodyCase[] = [
  ["no fields", {}, "model"],
  ["no model", { messages: chatBody().messages }, "model"],
  ["model null", chatBody({ model: null }), "model"],
  ["model empty", chatBody({ model: "" }), "model"],
  ["model a number", chatBody({ model: 5 }), "model"],
  ["model an array", chatBody({ model: ["chat-a"] }), "model"],
  ["model endless", chatBody({ model: "m".repeat(5_000) }), "model"],
  ["model unknown", chatBody({ model: "nobody" }), "model", "model_not_found"],
  ["model of the prototype", chatBody({ model: "__proto__" }), "model", "model_not_found"],
  ["model in another case", chatBody({ model: "CHAT-A" }), "model", "model_not_found"],
  ["model with a blank", chatBody({ model: " chat-a" }), "model", "model_not_found"],
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
  ["content null from the system", message({ role: "system", content: null }), "messages.0.content"],
  ["content a number", message({ content: 5 }), "messages.0.content"],
  ["content an object", message({ content: { text: "x" } }), "messages.0.content"],
  ["content part a string", message({ content: ["x"] }), "messages.0.content.0"],
  ["content part null", message({ content: [{ type: "text", text: "x" }, null] }), "messages.0.content.1"],
  ["stream a string", chatBody({ stream: "true" }), "stream"],
  ["stream a number", chatBody({ stream: 1 }), "stream"],
  ["stream_options a string", chatBody({ stream: true, stream_options: "usage" }), "stream_options"],
  [
    "include_usage a string",
    chatBody({ stream: true, stream_options: { include_usage: "yes" } }),
    "stream_options.include_usage",
  ],
  ["temperature below 0", chatBody({ temperature: -0.1 }), "temperature"],
  ["temperature above 2", chatBody({ temperature: 2.0001 }), "temperature"],
  ["temperature a string", chatBody({ temperature: "1" }), "temperature"],
  [
    "temperature out of all range",
    `{"model": "chat-a", "messages": [{"role": "user", "content": "x"}], "temperature": 1e999}`,
    "temperature",
  ],
  ["max_tokens 0", chatBody({ max_tokens: 0 }), "max_tokens"],
  ["max_tokens below 0", chatBody({ max_tokens: -1 }), "max_tokens"],
  ["max_tokens a fraction", chatBody({ max_tokens: 1.5 }), "max_tokens"],
  ["max_tokens a string", chatBody({ max_tokens: "10" }), "max_tokens"],
  ["max_tokens true", chatBody({ max_tokens: true }), "max_tokens"],
  ["max_tokens beyond any model", chatBody({ max_tokens: 3e9 }), "max_tokens"],
  ["max_completion_tokens 0", chatBody({ max_completion_tokens: 0 }), "max_completion_tokens"],
  ["n 0", chatBody({ n: 0 }), "n"],
  ["n a fraction", chatBody({ n: 1.5 }), "n"],
  ["n beyond reason", chatBody({ n: 1000 }), "n"],
];

export const GOOD_CHAT: readonly GoodBody[] = [
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
    "half a surrogate pair, NUL, and all planes",
    '{"model": "chat-a", "messages": [{"role": "user", "content": "\\ud800 \\u0000 👍 \u{10ffff}"}]}',
  ],
  ["blanks and new lines around everything", ` \r\n\t${JSON.stringify(chatBody(), null, 4)}\n\n`],
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
