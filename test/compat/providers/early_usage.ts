import { chunk, DONE, type Entry, STOP, STREAMED, USAGE_CHUNK, WHOLE } from "../form.ts";

/** Usages that come before the text that they should count, or are repeated as they were. Rule: MON-15. */

const CURSOR = "github.com/BerriAI/litellm/pull/30420";
const EACH_CHUNK = "github.com/langchain-ai/langchain/pull/20180";
const CONTINUOUS = "github.com/sgl-project/sglang/pull/20685";
const GEMINI = "github.com/ogx-ai/ogx/issues/5122";
const CONSTRUCTED = "constructed";

/** Of the first chunk's text. */
const FIRST = { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 };
/** Of all of the text. */
const ALL = { prompt_tokens: 5, completion_tokens: 24, total_tokens: 29 };
const WORDS = ["Toll", " gates", " stood", " on", " roads", " whose", " upkeep", " travellers", " paid", " for."];
const TEXT = WORDS.join("");
/** What the text counts by our own estimate. */
const COUNTED = 34;
const [first = "", ...rest] = WORDS;
const REST = rest.map((word) => chunk({ content: word }));
const ARGUMENTS = '{"city":"Lisbon","unit":"celsius","days":[1,2,3,4,5]}';
const call = (index: number, called: object, more: object = {}) =>
  chunk({ tool_calls: [{ index, ...more, function: called }] });

type Early = readonly [says: string, source: string, events: readonly (string | object)[]];

/** Of these the text is charged: it is more than what was reported. */
const TOO_EARLY: readonly Early[] = [
  ["with the first text, and never again", CURSOR, [chunk({ content: first }, null, { usage: FIRST }), ...REST, STOP]],
  ["before the text, and never again", CURSOR, [{ ...USAGE_CHUNK, usage: FIRST }, chunk({ content: TEXT }), STOP]],
  [
    "with the role, and never again",
    CURSOR,
    [chunk({ role: "assistant", content: "" }, null, { usage: FIRST }), chunk({ content: TEXT }), STOP],
  ],
  [
    "with the first text, then null",
    CURSOR,
    [
      chunk({ content: first }, null, { usage: FIRST }),
      ...rest.map((content) => chunk({ content }, null, { usage: null })),
      STOP,
    ],
  ],
  [
    "with the first text, and zeros at the end",
    CONSTRUCTED,
    [
      chunk({ content: first }, null, { usage: FIRST }),
      ...REST,
      STOP,
      { ...USAGE_CHUNK, usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 } },
    ],
  ],
  [
    "with the first text, and the same at the end",
    CONSTRUCTED,
    [chunk({ content: first }, null, { usage: FIRST }), ...REST, STOP, { ...USAGE_CHUNK, usage: FIRST }],
  ],
  [
    "of one token with each chunk",
    EACH_CHUNK,
    [...WORDS.map((content) => chunk({ content }, null, { usage: FIRST })), { ...STOP, usage: FIRST }],
  ],
  [
    "in the first choice, and never again",
    CONSTRUCTED,
    [
      { ...chunk({}), choices: [{ index: 0, delta: { content: first }, finish_reason: null, usage: FIRST }] },
      ...REST,
      STOP,
    ],
  ],
  [
    "in `x_groq` of the first chunk",
    CONSTRUCTED,
    [chunk({ content: first }, null, { x_groq: { usage: FIRST } }), ...REST, STOP],
  ],
  [
    "in the middle",
    CONSTRUCTED,
    [
      ...WORDS.slice(0, 5).map((content) => chunk({ content })),
      chunk({ content: "" }, null, { usage: { ...FIRST, completion_tokens: 5, total_tokens: 10 } }),
      ...WORDS.slice(5).map((content) => chunk({ content })),
      STOP,
    ],
  ],
];

/** Of these the last report is charged. */
const IN_TIME: readonly Early[] = [
  [
    "that grows with each chunk",
    CONTINUOUS,
    [
      ...WORDS.map((content, i) =>
        chunk({ content }, null, { usage: { ...ALL, completion_tokens: i + 1, total_tokens: i + 6 } }),
      ),
      { ...STOP, usage: ALL },
    ],
  ],
  [
    "with each chunk, of the text so far",
    GEMINI,
    WORDS.map((content, i) =>
      chunk({ content }, i + 1 === WORDS.length ? "stop" : null, {
        usage: { prompt_tokens: 5, completion_tokens: Math.ceil((24 * (i + 1)) / WORDS.length) },
      }),
    ),
  ],
  [
    "of the whole answer with each chunk",
    CONSTRUCTED,
    [...WORDS.map((content) => chunk({ content }, null, { usage: ALL })), { ...STOP, usage: ALL }],
  ],
  [
    "with the first text, and the true one at the end",
    CURSOR,
    [chunk({ content: first }, null, { usage: FIRST }), ...REST, STOP, { ...USAGE_CHUNK, usage: ALL }],
  ],
  [
    "of the prompt first, and of the answer at the end",
    "github.com/Portkey-AI/gateway/issues/350",
    [
      chunk({ content: first }, null, { usage: { input_tokens: 5, output_tokens: 1 } }),
      ...REST,
      { ...STOP, usage: { output_tokens: 24 } },
    ],
  ],
];

export default [
  ...TOO_EARLY.map(
    ([says, source, events]): Entry => ({
      says: `A usage ${says}: the text counts`,
      source,
      request: STREAMED,
      provider: { events: [...events, DONE] },
      client: { text: TEXT, usage: [5, COUNTED, 5 + COUNTED] },
      charged: { tokens: [5, COUNTED] },
    }),
  ),
  ...IN_TIME.map(
    ([says, source, events]): Entry => ({
      says: `A usage ${says}: it counts as it stands`,
      source,
      request: { body: { stream: true, stream_options: { include_usage: true } } },
      provider: { events: [...events, DONE] },
      client: { text: TEXT, usage: [5, 24, 29] },
      charged: { tokens: [5, 24] },
    }),
  ),
  {
    says: "A usage with the name of a call: its arguments count",
    source: CONSTRUCTED,
    request: STREAMED,
    provider: {
      events: [
        { ...call(0, { name: "weather", arguments: "" }, { id: "a", type: "function" }), usage: FIRST },
        call(0, { arguments: ARGUMENTS.slice(0, 20) }),
        call(0, { arguments: ARGUMENTS.slice(20) }),
        chunk({}, "tool_calls"),
        DONE,
      ],
    },
    client: { calls: [{ name: "weather", arguments: ARGUMENTS }] },
    charged: { tokens: [5, 43] },
  },
  {
    says: "A usage with the reasoning: the text behind it counts",
    source: CONSTRUCTED,
    request: STREAMED,
    provider: {
      events: [chunk({ reasoning_content: "Tolls." }, null, { usage: FIRST }), chunk({ content: TEXT }), STOP, DONE],
    },
    client: { text: TEXT, reasoning: "Tolls." },
    charged: { tokens: [5, 38] },
  },
  {
    says: "A usage with the first event of an answer that should be whole: the text counts",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: { events: [chunk({ content: first }, null, { usage: FIRST }), ...REST, STOP, DONE] },
    client: { text: TEXT, usage: [5, COUNTED, 5 + COUNTED] },
    charged: { tokens: [5, COUNTED] },
  },
  {
    says: "A usage in the middle that counts more than the text: the larger counts",
    source: CONSTRUCTED,
    request: STREAMED,
    provider: {
      events: [
        chunk({ content: first }),
        chunk({}, null, { usage: { ...ALL, completion_tokens: 70, total_tokens: 75 } }),
        ...REST,
        STOP,
        DONE,
      ],
    },
    client: { text: TEXT, usage: [5, 70, 75] },
    charged: { tokens: [5, 70] },
  },
  {
    says: "A balance pays the text that came behind the usage",
    source: CURSOR,
    request: { body: { stream: true, stream_options: { include_usage: true } }, payer: "balance" },
    provider: { events: [chunk({ content: first }, null, { usage: FIRST }), ...REST, STOP, DONE] },
    client: { text: TEXT, usage: [5, COUNTED, 5 + COUNTED] },
    charged: { tokens: [5, COUNTED] },
  },
] satisfies Entry[];
