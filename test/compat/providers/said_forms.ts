import { chunk, completion, DONE, type Entry, STOP, USAGE_CHUNK } from "../form.ts";

/** Calls and reasoning in other forms than OpenAI's. Rule: STR-6. */

const CONSTRUCTED = "constructed";
const ARGUMENTS = '{"a":1}';
const NAMED = { name: "f", arguments: ARGUMENTS };
const CALL = { id: "c1", type: "function", function: NAMED };
const TOOLS = { tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }] };
const charged = { tokens: [5, 7] } as const;

type Case = readonly [says: string, source: string, said: object];

const CALLS: readonly Case[] = [
  ["alone, not in a list", CONSTRUCTED, { tool_calls: CALL }],
  ["by their numbers", CONSTRUCTED, { tool_calls: { 0: CALL } }],
  ["as a text", CONSTRUCTED, { tool_calls: JSON.stringify([CALL]) }],
  ["in a list in a list", CONSTRUCTED, { tool_calls: [[CALL]] }],
  ["under a name in camel case", CONSTRUCTED, { toolCalls: [CALL] }],
  [
    "with name and arguments in the call, as the Responses API has them",
    CONSTRUCTED,
    { tool_calls: [{ id: "c1", type: "function", ...NAMED }] },
  ],
  [
    "with an input, as Anthropic has it",
    CONSTRUCTED,
    { tool_calls: [{ id: "c1", type: "tool_use", name: "f", input: { a: 1 } }] },
  ],
  [
    "with a function that is a text",
    CONSTRUCTED,
    { tool_calls: [{ id: "c1", type: "function", function: JSON.stringify(NAMED) }] },
  ],
  [
    "with parameters as the arguments",
    CONSTRUCTED,
    { tool_calls: [{ id: "c1", type: "function", function: { name: "f", parameters: { a: 1 } } }] },
  ],
  ["as a part of the content", CONSTRUCTED, { content: [{ type: "tool_use", id: "c1", name: "f", input: { a: 1 } }] }],
];

const THOUGHTS: readonly Case[] = [
  ["in an object with a text", "github.com/envoyproxy/ai-gateway/pull/1222", { reasoning_content: { text: "think" } }],
  ["in an object with a content", CONSTRUCTED, { reasoning: { content: "think" } }],
  ["in a list of texts", CONSTRUCTED, { reasoning: [{ type: "text", text: "think" }] }],
  ["under the name `thinking`", CONSTRUCTED, { thinking: "think" }],
  ["under the name `reasoning_text`", CONSTRUCTED, { reasoning_text: "think" }],
];

export default [
  ...CALLS.flatMap(([says, source, said]): Entry[] => [
    {
      ...{ says: `A call ${says}`, source, charged },
      request: { body: TOOLS },
      provider: { json: completion({ content: null, ...said }, "tool_calls") },
      client: { calls: [NAMED], uniqueIds: true, finish: "tool_calls" },
    },
    {
      ...{ says: `A call ${says}, in a stream`, source, charged },
      request: { body: { ...TOOLS, stream: true } },
      provider: { events: [chunk({ role: "assistant", ...said }), chunk({}, "tool_calls"), USAGE_CHUNK, DONE] },
      client: { calls: [NAMED], uniqueIds: true, finish: "tool_calls" },
    },
  ]),
  ...THOUGHTS.flatMap(([says, source, said]): Entry[] => [
    {
      ...{ says: `Reasoning ${says}`, source, charged, request: {} },
      provider: { json: completion({ content: "good", ...said }) },
      client: { text: "good", reasoning: "think" },
    },
    {
      ...{ says: `Reasoning ${says}, in a stream`, source, charged, request: { body: { stream: true } } },
      provider: {
        events: [chunk({ role: "assistant", ...said }), chunk({ content: "good" }), STOP, USAGE_CHUNK, DONE],
      },
      client: { text: "good", reasoning: "think" },
    },
  ]),
  {
    ...{ says: "A stream whose end is only true", source: CONSTRUCTED, charged, request: { body: { stream: true } } },
    provider: { events: [chunk({ content: "good" }), chunk({}, true as never), USAGE_CHUNK, DONE] },
    client: { text: "good", finish: "stop" },
  },
] satisfies Entry[];
