import { chunk, completion, DONE, type Entry, STOP, STREAMED, USAGE_CHUNK, WHOLE } from "../form.ts";

/** Answers in the form of another API, as gateways pass them on whose conversion is missing. Rule: STR-15. */

const CONSTRUCTED = "constructed";
const RESPONSES = "developers.openai.com/api/reference/resources/responses: the objects of its stream";
const ANTHROPIC = "docs.anthropic.com/en/api/messages-streaming";
const CHARGED = { tokens: [5, 7] } as const;
const WITH_USAGE = { body: { stream: true, stream_options: { include_usage: true } } };
const CALL = { name: "toll", arguments: '{"gate":1}' } as const;

const INPUT_USAGE = { input_tokens: 5, output_tokens: 7, total_tokens: 12 };
const RESPONSE = { id: "resp_1", object: "response", created_at: 1_763_856_000, model: "up", status: "completed" };
const SAID = {
  type: "message",
  id: "msg_1",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text: "good", annotations: [] }],
};
const THOUGHT = { type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "Hm." }] };
const CALLED = { type: "function_call", id: "fc_1", call_id: "call_1", ...CALL, status: "completed" };

/** Events as the Responses API and Anthropic name them: in a line before the data, and in the data. */
const named = (type: string, more: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
const response = (type: string, more: object) => named(`response.${type}`, more);
const whole = (output: readonly object[], more: object = {}) => ({ ...RESPONSE, output, usage: INPUT_USAGE, ...more });
const created = response("created", { response: { ...RESPONSE, status: "in_progress", output: [] } });
const textEvents = [
  created,
  response("output_item.added", { output_index: 0, item: { ...SAID, content: [] } }),
  response("content_part.added", { output_index: 0, content_index: 0, part: { type: "output_text", text: "" } }),
  response("output_text.delta", { output_index: 0, content_index: 0, delta: "go" }),
  response("output_text.delta", { output_index: 0, content_index: 0, delta: "od" }),
  response("output_text.done", { output_index: 0, content_index: 0, text: "good" }),
  response("output_item.done", { output_index: 0, item: SAID }),
  response("completed", { response: whole([SAID]) }),
];

const MESSAGE = { id: "msg_1", type: "message", role: "assistant", model: "up", content: [] };
const start = named("message_start", { message: { ...MESSAGE, usage: { input_tokens: 5, output_tokens: 1 } } });
const block = (index: number, delta: object) => named("content_block_delta", { index, delta });
const ended = (stop_reason: string) => [
  named("message_delta", { delta: { stop_reason }, usage: { output_tokens: 7 } }),
  named("message_stop", {}),
];

export default [
  {
    says: "A response in place of a chat completion",
    source: RESPONSES,
    request: WHOLE,
    provider: { json: whole([THOUGHT, SAID]) },
    client: { text: "good", reasoning: "Hm.", finish: "stop", usage: [5, 7, 12] },
    charged: CHARGED,
  },
  {
    says: "A response with a call in place of a chat completion",
    source: RESPONSES,
    request: WHOLE,
    provider: { json: whole([CALLED]) },
    client: { calls: [CALL], finish: "tool_calls" },
    charged: CHARGED,
  },
  {
    says: "A response that reached its limit in place of a chat completion",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: {
      json: whole([SAID], { status: "incomplete", incomplete_details: { reason: "max_output_tokens" } }),
    },
    client: { text: "good", finish: "length" },
    charged: CHARGED,
  },
  {
    says: "A response in place of a stream",
    source: CONSTRUCTED,
    request: WITH_USAGE,
    provider: { json: whole([SAID]) },
    client: { text: "good", usage: [5, 7, 12] },
    charged: CHARGED,
  },
  ...[WITH_USAGE, WHOLE].map(
    (request): Entry => ({
      says: `The events of a response, to a ${request === WHOLE ? "whole request" : "stream"}`,
      source: RESPONSES,
      request,
      provider: { events: textEvents },
      client: { text: "good", finish: "stop", usage: [5, 7, 12] },
      charged: CHARGED,
    }),
  ),
  {
    says: "The events of a response that thinks and calls",
    source: RESPONSES,
    request: STREAMED,
    provider: {
      events: [
        created,
        response("reasoning_summary_text.delta", { output_index: 0, summary_index: 0, delta: "Hm." }),
        response("output_item.added", { output_index: 1, item: { ...CALLED, arguments: "" } }),
        response("function_call_arguments.delta", { output_index: 1, delta: '{"gate"' }),
        response("function_call_arguments.delta", { output_index: 1, delta: ":1}" }),
        response("output_item.done", { output_index: 1, item: CALLED }),
        response("completed", { response: whole([CALLED]) }),
      ],
    },
    client: { reasoning: "Hm.", calls: [CALL], finish: "tool_calls" },
    charged: CHARGED,
  },
  {
    says: "The events of a response that fails behind half an answer",
    source: CONSTRUCTED,
    request: STREAMED,
    provider: {
      events: [
        created,
        response("output_text.delta", { output_index: 0, delta: "half" }),
        response("failed", { response: { ...RESPONSE, status: "failed", error: { code: "server_error" } } }),
      ],
    },
    client: { text: "half", error: "provider_unavailable" },
    charged: "nothing",
  },
  ...[WITH_USAGE, WHOLE].map(
    (request): Entry => ({
      says: `Anthropic's events, to a ${request === WHOLE ? "whole request" : "stream"}`,
      source: ANTHROPIC,
      request,
      provider: {
        events: [
          start,
          named("ping", {}),
          named("content_block_start", { index: 0, content_block: { type: "thinking", thinking: "" } }),
          block(0, { type: "thinking_delta", thinking: "Hm." }),
          block(0, { type: "signature_delta", signature: "c2ln" }),
          named("content_block_start", { index: 1, content_block: { type: "text", text: "" } }),
          block(1, { type: "text_delta", text: "go" }),
          block(1, { type: "text_delta", text: "od" }),
          named("content_block_stop", { index: 1 }),
          ...ended("end_turn"),
        ],
      },
      client: { text: "good", reasoning: "Hm.", finish: "stop", usage: [5, 7, 12] },
      charged: CHARGED,
    }),
  ),
  {
    says: "Anthropic's events with a call",
    source: ANTHROPIC,
    request: STREAMED,
    provider: {
      events: [
        start,
        named("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
        block(0, { type: "text_delta", text: "good" }),
        named("content_block_start", {
          index: 1,
          content_block: { type: "tool_use", id: "toolu_1", name: "toll", input: {} },
        }),
        block(1, { type: "input_json_delta", partial_json: "" }),
        block(1, { type: "input_json_delta", partial_json: '{"gate":1}' }),
        ...ended("tool_use"),
      ],
    },
    client: { text: "good", calls: [CALL], finish: "tool_calls" },
    charged: CHARGED,
  },
  {
    says: "Anthropic's events that end before their reason",
    source: CONSTRUCTED,
    request: STREAMED,
    provider: {
      events: [start, block(0, { type: "text_delta", text: "half" })],
      end: "closed",
    },
    client: { text: "half", error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "Several chunks as a list in one event",
    source: CONSTRUCTED,
    request: WITH_USAGE,
    provider: {
      events: [
        `data: ${JSON.stringify([chunk({ role: "assistant", content: "" }), chunk({ content: "go" })])}\n\n`,
        `data: ${JSON.stringify([chunk({ content: "od" }), STOP, USAGE_CHUNK])}\n\n`,
        DONE,
      ],
    },
    client: { text: "good", usage: [5, 7, 12] },
    charged: CHARGED,
  },
  {
    says: "Counts whose thousands are set apart",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: {
      json: completion({ content: "good" }, "stop", {
        usage: { prompt_tokens: "1,005", completion_tokens: "7", total_tokens: "1,012" },
      }),
    },
    client: { text: "good", usage: [1005, 7, 1012] },
    charged: { tokens: [1005, 7] },
  },
  {
    says: "A call of a stream whose arguments are null",
    source: CONSTRUCTED,
    request: STREAMED,
    provider: {
      events: [
        chunk({
          role: "assistant",
          tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "toll", arguments: null } }],
        }),
        chunk({ tool_calls: [{ index: 0, function: { name: null, arguments: '{"gate":1}' } }] }),
        chunk({ tool_calls: [{ index: 0, function: { arguments: null } }] }),
        chunk({}, "tool_calls"),
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: { calls: [CALL], finish: "tool_calls" },
    charged: CHARGED,
  },
] satisfies Entry[];
