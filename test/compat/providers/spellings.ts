import {
  chunk,
  completion,
  DONE,
  type Entry,
  type ProviderAnswer,
  STOP,
  STREAMED,
  USAGE,
  USAGE_CHUNK,
  WHOLE,
} from "../form.ts";

/** What says one thing in several spellings: the end of a stream, bytes in front of a text, numbers, members that stand twice. */

const BEGIN = chunk({ role: "assistant", content: "" });
const GOOD = chunk({ content: "good" });
const READS = { text: "good" } as const;
const CHARGED = { tokens: [5, 7] } as const;
const TRIED = "tried on a replica on 29 November 2026";
const json = JSON.stringify;
const data = (event: object) => `data: ${json(event)}\n\n`;
const TEXTS = [
  { object: "text_completion", choices: [{ text: "good", index: 0, finish_reason: null }] },
  { object: "text_completion", choices: [{ text: "", index: 0, finish_reason: "stop" }], usage: USAGE },
];

/** A stream without a finish_reason, so that its end marker alone says that it is whole. */
const endsWith = (end: string): ProviderAnswer => ({ events: [BEGIN, GOOD, USAGE_CHUNK, end], end: "closed" });

const ENDS: readonly (readonly [end: string, says: string])[] = [
  ["data:[DONE]\n\n", "no space"],
  ["data: [done]\n\n", "small letters"],
  ['data: "[DONE]"\n\n', "a text of JSON"],
  ["data: '[DONE]'\n\n", "single quotes"],
  ["data: [DONE]                        \n\n", "many spaces behind it"],
  ["data: [DONE]\t\n\n", "a tab behind it"],
  ["data: [DONE]\r\r", "CR alone"],
  ["data: [DONE]\r\n\r\n", "CRLF"],
  ["data: [DONE]", "no line end"],
  ["data: DONE\n\n", "no brackets"],
  ["data: [ DONE ]\n\n", "spaces in the brackets"],
  ["data: [DONE].\n\n", "a full stop"],
  ["data: [DONE]\0\n\n", "a zero byte"],
  ["data: <DONE>\n\n", "angle brackets"],
  ["data: [DONE]data: [DONE]\n\n", "twice on one line"],
  ["[DONE]\n\n", "no field"],
  ["event: done\ndata: [DONE]\n\n", "an event with a name"],
  ["data : [DONE]\n\n", "a space in front of the colon"],
  [" data: [DONE]\n\n", "a space in front of the field"],
  ["DATA: [DONE]\n\n", "capital letters of the field"],
  ['data: [DONE]\n\ndata: {"choices":[{"index":0,"delta":{"content":" more"}}]}\n\n', "a chunk behind it"],
];

const BOM = "\uFEFF";
const wholeText = (text: string): ProviderAnswer => ({ text, headers: { "content-type": "application/json" } });
const EMBEDDING = { data: [{ index: 0, embedding: [0.5] }], usage: { prompt_tokens: 5 } };
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SCORES = {
  results: [
    { index: 1, relevance_score: 0.9 },
    { index: 0, relevance_score: 0.1 },
  ],
  usage: { total_tokens: 5 },
};

const BIG = '{"id":9007199254740993,"n":[12345678901234567890,-9223372036854775808]}';
/** Members that stand twice. */
const TWICE: readonly (readonly [says: string, part: string])[] = [
  ["in what is said", '"PART":{"role":"assistant","content":"bad","content":"good"},"finish_reason":"stop"'],
  [
    "in a choice",
    '"PART":{"role":"assistant","content":"bad"},"finish_reason":"length","PART":{"role":"assistant","content":"good"},"finish_reason":"stop"',
  ],
  ["with an escape", '"PART":{"role":"assistant","content":"bad","c\\u006fntent":"good"},"finish_reason":"stop"'],
  ["of which the first is empty", '"PART":{"content":"","role":"assistant","content":"good"},"finish_reason":"stop"'],
];
const called = (part: object, args: string) => json(part).replace('"ARGS"', args);
const CALL_WHOLE = completion(
  { content: null, tool_calls: [{ id: "a", type: "function", function: { name: "toll", arguments: "ARGS" } }] },
  "tool_calls",
);
const CALL_CHUNK = chunk({
  role: "assistant",
  tool_calls: [{ index: 0, id: "a", type: "function", function: { name: "toll", arguments: "ARGS" } }],
});

export default [
  ...ENDS.map(
    ([end, says]): Entry => ({
      says: `The end of a stream: ${says}`,
      source: TRIED,
      request: STREAMED,
      provider: endsWith(end),
      client: READS,
      charged: CHARGED,
    }),
  ),
  ...ENDS.slice(0, 8).map(
    ([end, says]): Entry => ({
      says: `The end of a text completion: ${says}`,
      source: TRIED,
      request: { path: "completions", body: { stream: true } },
      provider: { dialect: "vllm", events: [...TEXTS, end], end: "closed" },
      client: READS,
      charged: CHARGED,
    }),
  ),
  {
    says: "A byte order mark in front of a whole answer",
    source: TRIED,
    request: WHOLE,
    provider: wholeText(BOM + json(completion({ content: "good" }))),
    client: READS,
    charged: CHARGED,
  },
  {
    says: "Two byte order marks in front of a whole answer",
    source: TRIED,
    request: WHOLE,
    provider: wholeText(BOM + BOM + json(completion({ content: "good" }))),
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A byte order mark in front of a whole answer to a stream",
    source: TRIED,
    request: STREAMED,
    provider: wholeText(BOM + json(completion({ content: "good" }))),
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A byte order mark in front of a stream",
    source: TRIED,
    request: STREAMED,
    provider: { events: [BOM + data(BEGIN), GOOD, STOP, USAGE_CHUNK, DONE] },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A byte order mark in front of a stream in answer to a whole request",
    source: TRIED,
    request: WHOLE,
    provider: { events: [BOM + data(BEGIN), GOOD, STOP, USAGE_CHUNK, DONE] },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A byte order mark in front of each event's data",
    source: TRIED,
    request: STREAMED,
    provider: { events: [BEGIN, GOOD, STOP, USAGE_CHUNK].map((e) => `data: ${BOM}${json(e)}\n\n`).concat(DONE) },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A byte order mark in front of a text completion",
    source: TRIED,
    request: { path: "completions" },
    provider: {
      dialect: "vllm",
      ...wholeText(BOM + json({ ...TEXTS[1], choices: [{ text: "good", index: 0, finish_reason: "stop" }] })),
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A byte order mark in front of embeddings",
    source: TRIED,
    request: { path: "embeddings" },
    provider: wholeText(BOM + json(EMBEDDING)),
    client: { json: { data: [{ index: 0, embedding: [0.5] }] } },
    charged: { tokens: [5, 0] },
  },
  {
    says: "A byte order mark in front of an image",
    source: TRIED,
    request: { path: "images", body: { response_format: "b64_json" } },
    provider: wholeText(BOM + json({ data: [{ b64_json: PNG }] })),
    client: { json: { data: [{ b64_json: PNG }] } },
    charged: { tokens: [0, 0] },
  },
  {
    says: "A byte order mark in front of scores",
    source: TRIED,
    request: { path: "rerank" },
    provider: wholeText(BOM + json(SCORES)),
    client: { json: { results: SCORES.results } },
    charged: { tokens: [5, 0] },
  },
  {
    says: "A byte order mark in front of a refusal",
    source: TRIED,
    request: WHOLE,
    provider: { status: 400, ...wholeText(BOM + json({ error: { message: "no such role" } })) },
    client: { error: "invalid_request", message: "no such role" },
    charged: "nothing",
  },
  ...[BIG].flatMap((args): Entry[] => [
    {
      says: "Integers that a double does not have, in arguments as an object",
      source: TRIED,
      request: WHOLE,
      provider: wholeText(called(CALL_WHOLE, args)),
      client: { calls: [{ name: "toll", arguments: args }] },
      charged: CHARGED,
    },
    {
      says: "Such integers in a stream",
      source: TRIED,
      request: STREAMED,
      provider: { events: [`data: ${called(CALL_CHUNK, args)}\n\n`, chunk({}, "tool_calls"), USAGE_CHUNK, DONE] },
      client: { calls: [{ name: "toll", arguments: args }] },
      charged: CHARGED,
    },
    {
      says: "Such integers in a whole answer to a stream",
      source: TRIED,
      request: STREAMED,
      provider: wholeText(called(CALL_WHOLE, args)),
      client: { calls: [{ name: "toll", arguments: args }] },
      charged: CHARGED,
    },
    {
      says: "Such integers in a stream in answer to a whole request",
      source: TRIED,
      request: WHOLE,
      provider: { events: [`data: ${called(CALL_CHUNK, args)}\n\n`, chunk({}, "tool_calls"), USAGE_CHUNK, DONE] },
      client: { calls: [{ name: "toll", arguments: args }] },
      charged: CHARGED,
    },
  ]),
  ...(
    [
      ["a list of lists", [[0.5], [1.5]]],
      [
        "a list of objects",
        [
          { embedding: [0.5], index: 0 },
          { embedding: [1.5], index: 1 },
        ],
      ],
      [
        "a list of objects, each in a list of its own",
        [
          { embedding: [[0.5]], index: 0 },
          { embedding: [[1.5]], index: 1 },
        ],
      ],
      ["`embeddings`, with Ollama's count", { embeddings: [[0.5], [1.5]], prompt_eval_count: 5 }],
      ["`embeddings` by form", { embeddings: { float: [[0.5], [1.5]] }, meta: { billed_units: { input_tokens: 5 } } }],
      ["`embeddings` with values", { embeddings: [{ values: [0.5] }, { values: [1.5] }] }],
      ["`data` in `result`", { success: true, errors: [], result: { shape: [2, 1], data: [[0.5], [1.5]] } }],
    ] as const
  ).map(
    ([says, answer]): Entry => ({
      says: `Embeddings as ${says}`,
      source: TRIED,
      request: { path: "embeddings", body: { input: ["a", "b"] } },
      provider: { json: answer },
      client: {
        json: {
          data: [
            { index: 0, embedding: [0.5] },
            { index: 1, embedding: [1.5] },
          ],
        },
      },
      charged: { tokens: [/Ollama|by form/.test(says) ? 5 : 3, 0] },
    }),
  ),
  ...(
    [
      ["one list of numbers", [0.5, 1.5]],
      ["a list of one list", [[0.5, 1.5]]],
      ["a list of one object", [{ embedding: [0.5, 1.5] }]],
      ["`embedding`", { embedding: [0.5, 1.5] }],
      ["`embedding` with values", { embedding: { values: [0.5, 1.5] } }],
      ["`data` as one object", { data: { embedding: [0.5, 1.5] } }],
    ] as const
  ).map(
    ([says, answer]): Entry => ({
      says: `One embedding as ${says}`,
      source: TRIED,
      request: { path: "embeddings" },
      provider: { json: answer },
      client: { json: { data: [{ index: 0, embedding: [0.5, 1.5] }] } },
      charged: { tokens: [12, 0] },
    }),
  ),
  ...TWICE.flatMap(([says, part]): Entry[] => {
    const choice = (name: string) => `{"index":0,${part.replaceAll("PART", name)}}`;
    const chunkOf = (choices: string) =>
      `data: ${json(chunk({})).replace(/"choices":.*/, `"choices":[${choices}]}`)}\n\n`;
    const client = { ...READS, finish: "stop", unsaid: ["bad"] };
    const shared = { source: TRIED, request: { only: "chat" }, client, charged: CHARGED } as const;
    const whole = json(completion({})).replace(
      /"choices":.*/,
      `"choices":[${choice("message")}],"usage":${json(USAGE)}}`,
    );
    return [
      { says: `A member that stands twice ${says}: the last counts`, ...shared, provider: wholeText(whole) },
      {
        says: `The same in a stream: ${says}`,
        ...shared,
        request: { only: "chat", ...STREAMED },
        provider: { events: [BEGIN, GOOD, chunk({ content: "" }), chunkOf(choice("delta")), USAGE_CHUNK, DONE] },
        client: { ...client, text: "goodgood" },
      },
    ];
  }),
  {
    says: "The choices twice: the last count",
    source: TRIED,
    request: { only: "chat" },
    provider: wholeText(
      json(completion({ content: "good" })).replace(
        '"choices":',
        '"choices":[{"message":{"content":"bad"}}],"choices":',
      ),
    ),
    client: { ...READS, unsaid: ["bad"] },
    charged: CHARGED,
  },
  {
    says: "Without a usage, the text that counts is counted",
    source: TRIED,
    request: { only: "chat" },
    provider: wholeText(
      json(completion({ content: "good" }, "stop", { usage: undefined })).replace(
        '"content":',
        `"content":"${"bad ".repeat(500)}","content":`,
      ),
    ),
    client: { ...READS, unsaid: ["bad"] },
    charged: { tokens: [12, 3] },
  },
  ...(
    [
      ["a list", [{ b64_json: PNG }]],
      ["a list of texts", [`data:image/png;base64,${PNG}`]],
      ["one object", { b64_json: PNG }],
      ["`image` in `result`", { success: true, errors: [], result: { image: PNG } }],
      ["`data` as one object", { data: { b64_json: PNG } }],
      ["`images` in `data`", { data: { images: [{ url: `data:image/png;base64,${PNG}` }] } }],
    ] as const
  ).map(
    ([says, answer]): Entry => ({
      says: `An image as ${says}`,
      source: TRIED,
      request: { path: "images", body: { response_format: "b64_json" } },
      provider: { json: answer },
      client: { json: { data: [{ b64_json: PNG }] } },
      charged: { tokens: [0, 0] },
    }),
  ),
  ...(
    [
      ["a list", SCORES.results],
      ["`results` in `output`", { output: { results: SCORES.results } }],
      ["bare numbers", { scores: [0.1, 0.9] }],
      [
        "`data` with indexes as text",
        {
          data: [
            { index: "1", score: 0.9 },
            { index: "0", score: 0.1 },
          ],
        },
      ],
    ] as const
  ).map(
    ([says, answer]): Entry => ({
      says: `Scores as ${says}`,
      source: TRIED,
      request: { path: "rerank" },
      provider: { json: answer },
      client: { json: { results: SCORES.results } },
      charged: { tokens: [37, 0] },
    }),
  ),
] satisfies Entry[];
