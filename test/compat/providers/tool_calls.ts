import { chunk, completion, DONE, type Entry, STREAMED, USAGE_CHUNK, WHOLE } from "../form.ts";

/** Calls of tools whose ids, lists or arguments are not those of OpenAI. */

const BEGIN = chunk({ role: "assistant", content: "" });
const END = [chunk({}, "tool_calls"), USAGE_CHUNK, DONE];
const CHARGED = { tokens: [5, 7] } as const;
const calls = (...tool_calls: object[]) => chunk({ tool_calls });
const toll = (args: string) => ({ type: "function", function: { name: "toll", arguments: args } });
const TWO = {
  calls: [
    { name: "toll", arguments: "{}" },
    { name: "toll", arguments: '{"gate":1}' },
  ],
} as const;
const UNIQUE = { uniqueIds: true } as const;

export default [
  {
    says: "Two calls of a stream with one id, and two indexes: each has an id of its own",
    source: "github.com/HKUDS/nanobot/pull/3943 (Zhipu, DeepSeek); github.com/HKUDS/nanobot/issues/4473 (Kimi)",
    request: STREAMED,
    provider: {
      events: [
        BEGIN,
        calls({ index: 0, id: "grep:3", ...toll("") }),
        calls({ index: 0, function: { arguments: "{}" } }),
        calls({ index: 1, id: "grep:3", ...toll("") }),
        calls({ index: 1, id: "grep:3", function: { arguments: '{"gate":1}' } }),
        ...END,
      ],
    },
    client: { ...TWO, ...UNIQUE },
    charged: CHARGED,
  },
  {
    says: "Two calls of one delta with one id, and no index",
    source: "github.com/brainlid/langchain/pull/620: ids that are made of the tool's name",
    request: STREAMED,
    provider: { events: [BEGIN, calls({ id: "toll", ...toll("{}") }, { id: "toll", ...toll('{"gate":1}') }), ...END] },
    client: { ...TWO, ...UNIQUE },
    charged: CHARGED,
  },
  {
    says: "Two calls of a whole answer with one id",
    source: "github.com/HKUDS/nanobot/issues/4059",
    request: WHOLE,
    provider: {
      json: completion(
        {
          content: null,
          tool_calls: [
            { id: "a", ...toll("{}") },
            { id: "a", ...toll('{"gate":1}') },
          ],
        },
        "tool_calls",
      ),
    },
    client: { ...TWO, ...UNIQUE },
    charged: CHARGED,
  },
  {
    says: 'Mistral: the word "null" is no id, where a call goes on',
    source: "github.com/zed-industries/zed/pull/53605",
    request: STREAMED,
    provider: {
      dialect: "mistral",
      events: [
        BEGIN,
        calls({ id: "WcG8xhSs1", function: { name: "toll", arguments: "" }, index: 0 }),
        calls({ id: "null", function: { name: "", arguments: '{"gate"' }, index: 0 }),
        calls({ id: "null", function: { name: "", arguments: ":1}" }, index: 0 }),
        ...END,
      ],
    },
    client: { calls: [{ name: "toll", arguments: '{"gate":1}' }] },
    charged: CHARGED,
  },
  {
    says: 'Mistral: the word "null" as the id of each of two calls',
    source: "github.com/mistralai/client-js/issues/69",
    request: STREAMED,
    provider: {
      dialect: "mistral",
      events: [BEGIN, calls({ id: "null", ...toll("{}") }, { id: "null", ...toll('{"gate":1}') }), ...END],
    },
    client: { ...TWO, ...UNIQUE },
    charged: CHARGED,
  },
  {
    says: "An empty list of calls is not sent on: clients send it back, and providers refuse it",
    source: "github.com/moonbitlang/maria/issues/242 (Kimi); github.com/openai/openai-node/pull/1341",
    request: { only: "chat" },
    provider: { json: completion({ content: "good", tool_calls: [] }) },
    client: { text: "good", absent: ["choices.0.message.tool_calls"] },
    charged: CHARGED,
  },
  {
    says: "The same in a stream",
    source: "github.com/openai/openai-agents-js/pull/308",
    request: { only: "chat", ...STREAMED },
    provider: {
      events: [chunk({ role: "assistant", content: "good", tool_calls: [] }), chunk({}, "stop"), USAGE_CHUNK, DONE],
    },
    client: { text: "good", absent: ["choices.0.delta.tool_calls"] },
    charged: CHARGED,
  },
] satisfies Entry[];
