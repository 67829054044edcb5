import { responsesBody } from "../gateway/shop.ts";
import type { BodyCase, GoodBody } from "./body_cases.ts";

/** Bad and good input of POST /v1/responses, as in `body_cases.ts`. Source: RSP-3, RSP-4, RSP-5, RSP-6, RSP-7. */

const USER = { role: "user", content: "Hello" };
const call = { type: "function_call", call_id: "call_1", name: "a", arguments: "{}" };
const output = { type: "function_call_output", call_id: "call_1", output: "1" };
const schema = (of: unknown) => ({ tools: [{ type: "function", name: "a", parameters: of }] });

/** What is wrong, the fields, the field that the refusal names. */
const WRONG: readonly [what: string, over: Record<string, unknown>, param: string][] = [
  ["input missing", { input: undefined }, "input"],
  ["input null", { input: null }, "input"],
  ["input empty", { input: "" }, "input"],
  ["input an empty list", { input: [] }, "input"],
  ["input a number", { input: 7 }, "input"],
  ["input an object", { input: { role: "user" } }, "input"],
  ["an item that is a string", { input: ["Hello"] }, "input.0"],
  ["an item of an unknown type", { input: [USER, { type: "memory" }] }, "input.1.type"],
  ["an item whose type is a property of every object", { input: [USER, { type: "constructor" }] }, "input.1.type"],
  ["an item with a type that is a number", { input: [{ type: 1 }] }, "input.0.type"],
  ["a message without content", { input: [{ role: "user" }] }, "input.0.content"],
  ["a message with an unknown role", { input: [{ role: "owner", content: "Hello" }] }, "input.0.role"],
  [
    "a part of an unknown type",
    { input: [{ role: "user", content: [{ type: "text", text: "Hello" }] }] },
    "input.0.content.0.type",
  ],
  [
    "a part whose type is a property of every object",
    { input: [{ role: "user", content: [{ type: "toString" }] }] },
    "input.0.content.0.type",
  ],
  [
    "a text part without text",
    { input: [{ role: "user", content: [{ type: "input_text" }] }] },
    "input.0.content.0.text",
  ],
  [
    "an image by file id",
    { input: [{ role: "user", content: [{ type: "input_image", file_id: "file-1" }] }] },
    "input.0.content.0.file_id",
  ],
  [
    "a call with a role that has no text",
    { model: "chat-two-routes", input: [{ ...call, role: { toString: 1, valueOf: 1 } }] },
    "input.0.role",
  ],
  ["an item of a hosted tool with a role", { input: [USER, { type: "web_search_call", role: [] }] }, "input.1.role"],
  ["a call without arguments", { input: [{ ...call, arguments: undefined }] }, "input.0.arguments"],
  [
    "an output without its call",
    { input: [USER, { type: "function_call_output", call_id: "call_9", output: "1" }] },
    "input.1.call_id",
  ],
  [
    "an output before its call",
    { input: [{ type: "function_call_output", call_id: "call_1", output: "1" }, call] },
    "input.0.call_id",
  ],
  ["a reference to a message", { input: [USER, { type: "item_reference", id: "msg_1" }] }, "input.1"],
  [
    "sealed reasoning that was changed",
    { input: [{ type: "reasoning", summary: [], encrypted_content: "r1.AAAA" }, USER] },
    "input.0.encrypted_content",
  ],
  ["previous_response_id", { previous_response_id: "resp_1" }, "previous_response_id"],
  ["conversation", { conversation: "conv_1" }, "conversation"],
  ["prompt", { prompt: { id: "pmpt_1" } }, "prompt"],
  ["background", { background: true }, "background"],
  ["a tool of an unknown type", { tools: [{ type: "magic" }] }, "tools.0.type"],
  ["a tool without a type", { tools: [{ name: "a" }] }, "tools.0.type"],
  ["a tool without a name", { tools: [{ type: "function" }] }, "tools.0.name"],
  [
    "two tools with one name",
    {
      tools: [
        { type: "function", name: "a" },
        { type: "custom", name: "a" },
      ],
    },
    "tools.1.name",
  ],
  [
    "a namespace in a namespace",
    { tools: [{ type: "namespace", name: "a", tools: [{ type: "namespace", name: "b", tools: [] }] }] },
    "tools.0.tools.0.type",
  ],
  [
    "1,001 tools in two namespaces",
    {
      tools: [500, 501].map((count, i) => ({
        type: "namespace",
        name: `n${i}`,
        tools: Array.from({ length: count }, (_, j) => ({ type: "function", name: `f${j}` })),
      })),
    },
    "tools.1.tools.500",
  ],
  ["a schema that is only itself", schema({ $ref: "#" }), "tools.0.parameters"],
  [
    "definitions that lead only to each other",
    schema({ $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } }),
    "tools.0.parameters",
  ],
  [
    "a hosted tool that must be called",
    { tools: [{ type: "web_search" }], tool_choice: { type: "web_search" } },
    "tool_choice",
  ],
  ["a choice that is no tool", { ...schema({}), tool_choice: { type: "function", name: "b" } }, "tool_choice.name"],
  ["a choice of an unknown word", { tool_choice: "sometimes" }, "tool_choice"],
  [
    "text.format and response_format both",
    { text: { format: { type: "json_object" } }, response_format: { type: "json_object" } },
    "response_format",
  ],
  ["response_format alone", { response_format: { type: "json_object" } }, "response_format"],
  ["messages", { messages: [USER] }, "messages"],
  ["a format of an unknown type", { text: { format: { type: "xml" } } }, "text.format.type"],
  ["a schema without a name", { text: { format: { type: "json_schema", schema: {} } } }, "text.format.name"],
  [
    "a format's schema that is a list",
    { text: { format: { type: "json_schema", name: "a", schema: [] } } },
    "text.format.schema",
  ],
  ["an effort of 65 characters", { reasoning: { effort: "e".repeat(65) } }, "reasoning.effort"],
  ["a summary of 65 characters", { reasoning: { summary: "s".repeat(65) } }, "reasoning.summary"],
  ["a verbosity of 65 characters", { text: { verbosity: "v".repeat(65) } }, "text.verbosity"],
  ["a temperature of 3", { temperature: 3 }, "temperature"],
  ["max_output_tokens 0", { max_output_tokens: 0 }, "max_output_tokens"],
  ["metadata of numbers", { metadata: { a: 1 } }, "metadata.a"],
  ["stream a string", { stream: "yes" }, "stream"],
];

export const BAD_RESPONSES: readonly BodyCase[] = [
  ...WRONG.map(([what, over, param]): BodyCase => [what, responsesBody(over), param]),
  ["no model", { input: "Hello" }, "model"],
  ["model a number", responsesBody({ model: 5 }), "model"],
  ["model unknown", responsesBody({ model: "nobody" }), "model", "model_not_found"],
  ["model for images", responsesBody({ model: "image-a" }), "model"],
  ["input twice", '{"model": "chat-a", "input": "x", "input": ["x"]}', "input"],
  [
    "a tool's name twice",
    '{"model": "chat-a", "input": "x", "tools": [{"type": "function", "name": "a", "name": "b"}]}',
    "tools.0.name",
  ],
];

export const GOOD_RESPONSES: readonly GoodBody[] = [
  ["a text", responsesBody()],
  ["items", responsesBody({ input: [{ type: "message", ...USER }, call, output] })],
  ["parts", responsesBody({ input: [{ role: "user", content: [{ type: "input_text", text: "Hello" }] }] })],
  [
    "what has no meaning without storage",
    responsesBody({ store: true, include: [], truncation: "auto", metadata: { a: "b" } }),
  ],
  [
    "null in place of what is left out",
    responsesBody({ instructions: null, tools: null, previous_response_id: null, max_output_tokens: null }),
  ],
  ["unknown fields", responsesBody({ unheard_of: { a: 1 } })],
  ["a hosted tool", responsesBody({ tools: [{ type: "web_search" }] })],
  [
    "a schema that contains itself, as that of a tree does",
    responsesBody(schema({ type: "object", properties: { left: { $ref: "#" } } })),
  ],
];
