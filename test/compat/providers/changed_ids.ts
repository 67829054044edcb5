import { chunk, DONE, type Entry, STOP, USAGE_CHUNK, WHOLE } from "../form.ts";

/** Answers whose head changes in the middle, as those of routes of several models do: the first one counts. Rule: STR-4. */

const ROUTED = "constructed";
const STREAM_WITH_USAGE = { body: { stream: true, stream_options: { include_usage: true } } };
const OTHER = { id: "gen-9", created: 1_763_856_999, model: "another" };
const HEAD = { id: "chatcmpl-7", created: 1_763_856_000 };
const charged = { tokens: [5, 7] } as const;

const CHANGES: readonly (readonly [says: string, events: readonly object[]])[] = [
  ["in the middle", [chunk({ content: "go" }), chunk({ content: "od" }, null, OTHER), STOP, USAGE_CHUNK]],
  [
    "in the middle, for good",
    [
      chunk({ content: "go" }),
      chunk({ content: "od" }, null, OTHER),
      { ...STOP, ...OTHER },
      { ...USAGE_CHUNK, ...OTHER },
    ],
  ],
  [
    "in the chunk with the usage",
    [chunk({ content: "go" }), chunk({ content: "od" }), STOP, { ...USAGE_CHUNK, ...OTHER }],
  ],
  [
    "in each chunk",
    [
      chunk({ content: "go" }, null, { id: "a" }),
      chunk({ content: "od" }, null, { id: "b" }),
      { ...STOP, id: "c" },
      { ...USAGE_CHUNK, id: "d" },
    ].map((e, i) => (i === 0 ? { ...e, id: "chatcmpl-7" } : e)),
  ],
  [
    "to none",
    [
      chunk({ content: "go" }),
      chunk({ content: "od" }, null, { id: "", created: 0 }),
      { ...STOP, id: null },
      { ...USAGE_CHUNK, id: undefined },
    ],
  ],
];

export default [
  ...CHANGES.flatMap(([says, events]): Entry[] => [
    {
      says: `The id changes ${says}`,
      source: ROUTED,
      request: { only: "chat", ...STREAM_WITH_USAGE },
      provider: { events: [...events, DONE] },
      client: {
        text: "good",
        usage: [5, 7, 12],
        events: events.map((_, i) => (i === 3 ? { ...HEAD, choices: [], usage: { prompt_tokens: 5 } } : HEAD)),
        unsaid: ["another", "gen-9", "1763856999"],
      },
      charged,
    },
    {
      says: `The id changes ${says}, of an answer that should be whole`,
      source: ROUTED,
      request: { only: "chat", ...WHOLE },
      provider: { events: [...events, DONE] },
      client: { text: "good", json: HEAD, unsaid: ["another", "gen-9", "1763856999"] },
      charged,
    },
  ]),
  {
    says: "The id changes in a text completion",
    source: ROUTED,
    request: { path: "completions", ...STREAM_WITH_USAGE },
    provider: {
      dialect: "vllm",
      events: [
        {
          id: "cmpl-7",
          object: "text_completion",
          created: 1_763_856_000,
          model: "up",
          choices: [{ text: "go", index: 0, finish_reason: null }],
        },
        { ...OTHER, object: "text_completion", choices: [{ text: "od", index: 0, finish_reason: "stop" }] },
        {
          ...OTHER,
          object: "text_completion",
          choices: [],
          usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 },
        },
        DONE,
      ],
    },
    client: {
      text: "good",
      events: [{ id: "cmpl-7" }, { id: "cmpl-7" }, { id: "cmpl-7", choices: [] }],
      unsaid: ["another"],
    },
    charged,
  },
] satisfies Entry[];
