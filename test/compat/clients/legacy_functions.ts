import { chunk, completion, DONE, type Entry, GOOD_WHOLE, USAGE_CHUNK } from "../form.ts";

/** Clients from before tools, such as agents of LangChain until 2024: `functions`, and the role `function`. */

const FUNCTIONS = [{ name: "toll", description: "The toll of a gate", parameters: { type: "object", properties: {} } }];
const ASKED = { functions: FUNCTIONS, function_call: "auto" };
const call = (part: object) => chunk({ tool_calls: [part] });
const CHARGED = { tokens: [5, 7] } as const;

export default [
  {
    says: "A call comes back as function_call",
    source: "github.com/langchain-ai/langchain: OpenAIFunctionsAgentOutputParser",
    request: { only: "chat", body: ASKED },
    provider: {
      json: completion(
        {
          content: null,
          tool_calls: [{ id: "a", type: "function", function: { name: "toll", arguments: '{"gate":1}' } }],
        },
        "tool_calls",
      ),
      got: { functions: FUNCTIONS },
    },
    client: {
      json: {
        choices: [
          {
            message: { role: "assistant", content: null, function_call: { name: "toll", arguments: '{"gate":1}' } },
            finish_reason: "function_call",
          },
        ],
      },
    },
    charged: CHARGED,
  },
  {
    says: "A call in pieces, and a second one, which the form cannot have",
    source: "platform.openai.com/docs/api-reference/chat-streaming: delta.function_call",
    request: { only: "chat", body: { ...ASKED, stream: true } },
    provider: {
      events: [
        call({ index: 0, id: "a", type: "function", function: { name: "toll", arguments: "" } }),
        call({ index: 0, function: { arguments: '{"gate"' } }),
        call({ index: 0, function: { arguments: ":1}" } }),
        call({ index: 1, id: "b", type: "function", function: { name: "gate", arguments: "{}" } }),
        chunk({}, "tool_calls"),
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: {
      events: [
        { choices: [{ delta: { role: "assistant", function_call: { name: "toll", arguments: "" } } }] },
        { choices: [{ delta: { function_call: { arguments: '{"gate"' } } }] },
        { choices: [{ delta: { function_call: { arguments: ":1}" } } }] },
        { choices: [{ delta: {} }] },
        { choices: [{ delta: {}, finish_reason: "function_call" }] },
      ],
    },
    charged: CHARGED,
  },
  {
    says: "A provider that knows the form answers in it",
    source: "platform.openai.com/docs/api-reference/chat/object: function_call",
    request: { only: "chat", body: ASKED },
    provider: {
      json: completion({ content: null, function_call: { name: "toll", arguments: "{}" } }, "function_call"),
    },
    client: { json: { choices: [{ message: { function_call: { name: "toll" } }, finish_reason: "function_call" }] } },
    charged: CHARGED,
  },
  {
    says: "Tools beside functions: the calls are those of tools",
    source: "tried on a replica on 28 November 2026",
    request: {
      only: "chat",
      body: { ...ASKED, tools: [{ type: "function", function: { name: "toll", parameters: { type: "object" } } }] },
    },
    provider: {
      json: completion(
        { content: null, tool_calls: [{ id: "a", type: "function", function: { name: "toll", arguments: "{}" } }] },
        "tool_calls",
      ),
    },
    client: { calls: [{ name: "toll", arguments: "{}" }], finish: "tool_calls" },
    charged: CHARGED,
  },
  {
    says: "Empty functions are not sent",
    source: "github.com/langchain-ai/langchain",
    request: { only: "chat", body: { functions: [], function_call: "none" } },
    provider: { ...GOOD_WHOLE, got: { functions: undefined, function_call: undefined } },
    client: { text: "good" },
    charged: CHARGED,
  },
] satisfies Entry[];
