import { type Entry, exactly, GOOD_WHOLE, type ProviderAnswer } from "../form.ts";

/** Integers beyond 2^53 in what clients send: a provider reads the digits that the client wrote, also where the gateway writes the JSON anew. */

const BIG = "9007199254740993";
const MAX = "9223372036854775807";
const SOURCE =
  "discord.com/developers/docs/reference#snowflakes: ids of 19 digits; github.com/BerriAI/litellm: arguments";
const SHARED = { source: SOURCE, client: { text: "good" }, charged: { tokens: [5, 7] } } as const;
const SCHEMA = { type: "object", properties: { id: { type: "integer", maximum: exactly(MAX) } } };
const got = (...gotText: string[]): ProviderAnswer => ({ ...GOOD_WHOLE, gotText });
const HI = { role: "user", content: "hi" };
const RESULT = { role: "tool", tool_call_id: "a", content: "1" };

export default [
  {
    says: "Arguments as an object",
    request: {
      only: "chat",
      body: {
        messages: [
          HI,
          {
            role: "assistant",
            content: null,
            tool_calls: [
              { id: "a", function: { name: "toll", arguments: { id: exactly(BIG), far: [exactly(`-${MAX}`)] } } },
            ],
          },
          RESULT,
        ],
      },
    },
    provider: got(JSON.stringify(`{"id":${BIG},"far":[-${MAX}]}`)),
    ...SHARED,
  },
  {
    says: "The input of a call in Anthropic's form",
    request: {
      only: "chat",
      body: {
        messages: [
          HI,
          { role: "assistant", content: [{ type: "tool_use", id: "a", name: "toll", input: { id: exactly(BIG) } }] },
          { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: "1" }] },
        ],
      },
    },
    provider: got(JSON.stringify(`{"id":${BIG}}`)),
    ...SHARED,
  },
  {
    says: "The schema of a tool",
    request: { body: { tools: [{ type: "function", function: { name: "toll", parameters: SCHEMA } }] } },
    provider: got(`"maximum":${MAX}`),
    ...SHARED,
  },
  {
    says: "The schema of a tool in Anthropic's form",
    request: { only: "chat", body: { tools: [{ name: "toll", input_schema: SCHEMA }] } },
    provider: got(`"maximum":${MAX}`),
    ...SHARED,
  },
  {
    says: "The schema of a function that is sent as a tool",
    request: { only: "chat", body: { functions: [{ name: "toll", parameters: SCHEMA }] } },
    provider: { dialect: "mistral", ...got(`"maximum":${MAX}`) },
    ...SHARED,
  },
  {
    says: "The schema of an answer",
    request: {
      path: "responses",
      body: { text: { format: { type: "json_schema", name: "toll", schema: SCHEMA } } },
    },
    provider: got(`"maximum":${MAX}`),
    ...SHARED,
  },
] satisfies Entry[];
