import {
  chunk,
  completion,
  DONE,
  type Entry,
  GOOD_STREAM,
  GOOD_WHOLE,
  STOP,
  USAGE,
  USAGE_CHUNK,
  WHOLE,
} from "../form.ts";

/** Answers that do not stand where OpenAI's stand, or whose choices have another form. Rule: STR-15. */

const CONSTRUCTED = "constructed";
const IN_DATA = "github.com/smallmain/vscode-unify-chat-provider/pull/71";
const IN_BODY = "github.com/CodeGenieApp/serverless-express/issues/164: the object of a lambda function, with its body";
const BARE_MESSAGE = "github.com/SillyTavern/SillyTavern/issues/5128: Ollama's own form behind a proxy";
const TEXT_MESSAGE = "github.com/dimagi/open-chat-studio/pull/526: the message is its text";
const DASHSCOPE = "docs.rs/crate/qwen/latest/source/src/types.rs: output.choices";

const ANSWER = completion({ content: "good" });
const { choices } = ANSWER as { choices: readonly object[] };
const [CHOICE = {}] = choices;
const { usage: _, ...WITHOUT_USAGE } = ANSWER as { usage?: unknown };
const without = (name: string) => Object.fromEntries(Object.entries(ANSWER).filter(([one]) => one !== name));
const read = { client: { text: "good", usage: [5, 7, 12] }, charged: { tokens: [5, 7] } } as const;
const STREAM_WITH_USAGE = { body: { stream: true, stream_options: { include_usage: true } } };

/** The form, where it was seen, and the answer. */
const WHOLES: readonly (readonly [says: string, source: string, json: unknown])[] = [
  ["in `data`", IN_DATA, { data: ANSWER }],
  ["in `data`, a list", CONSTRUCTED, { data: [ANSWER] }],
  ["in `data`, beside a code and a message", CONSTRUCTED, { code: 0, msg: "ok", message: "success", data: ANSWER }],
  ["in `response`", CONSTRUCTED, { response: ANSWER }],
  ["in `response`, with the usage outside", CONSTRUCTED, { response: WITHOUT_USAGE, usage: USAGE }],
  ["in `response`, as a text", CONSTRUCTED, { response: JSON.stringify(ANSWER) }],
  ["in `data.response`", CONSTRUCTED, { data: { response: ANSWER } }],
  ["in a member that nobody knows, beside a message", CONSTRUCTED, { envelope: ANSWER, message: "success" }],
  ["in `body`, as a text", IN_BODY, { statusCode: 200, headers: {}, body: JSON.stringify(ANSWER) }],
  [
    "in `output`, with Anthropic's names of the usage",
    DASHSCOPE,
    { output: { choices }, usage: { input_tokens: 5, output_tokens: 7 } },
  ],
  ["in a list", CONSTRUCTED, [ANSWER]],
  ["as a text of JSON", CONSTRUCTED, JSON.stringify(ANSWER)],
  ["as a text of a text", CONSTRUCTED, JSON.stringify(JSON.stringify(ANSWER))],
  ["whose choices are an object", CONSTRUCTED, { ...ANSWER, choices: CHOICE }],
  ["whose choices are an object by their numbers", CONSTRUCTED, { ...ANSWER, choices: { 0: CHOICE } }],
  ["whose choices are a text", CONSTRUCTED, { ...ANSWER, choices: JSON.stringify(choices) }],
  ["whose choices are lists in a list", CONSTRUCTED, { ...ANSWER, choices: [choices] }],
  ["whose choices are texts", CONSTRUCTED, { ...ANSWER, choices: ["good"] }],
  ["whose message is a text", TEXT_MESSAGE, { ...ANSWER, choices: [{ ...CHOICE, message: "good" }] }],
  [
    "whose content stands in the choice",
    CONSTRUCTED,
    { ...ANSWER, choices: [{ index: 0, content: "good", finish_reason: "stop" }] },
  ],
  ["whose choice is called so", CONSTRUCTED, { ...without("choices"), choice: CHOICE }],
  [
    "that is a message and its counts",
    BARE_MESSAGE,
    {
      model: "up",
      message: { role: "assistant", content: "good" },
      done: true,
      done_reason: "stop",
      prompt_eval_count: 5,
      eval_count: 7,
    },
  ],
];

/** Chunks in the same forms: what each becomes. */
const CHUNKS: readonly (readonly [says: string, form: (chunk: { choices: object[] }) => string | object])[] = [
  ["in `data`", (one) => ({ data: one })],
  ["in `data`, as a text", (one) => ({ data: JSON.stringify(one) })],
  ["in `response`", (one) => ({ response: one })],
  ["as texts of JSON", (one) => `data: ${JSON.stringify(JSON.stringify(one))}\n\n`],
  ["whose choices are an object", (one) => ({ ...one, choices: one.choices[0] ?? [] })],
  [
    "whose delta is a text",
    (one) => ({ ...one, choices: one.choices.map((choice) => ({ ...choice, delta: textOf(choice) })) }),
  ],
];
const GOOD_CHUNKS = [
  chunk({ role: "assistant", content: "" }),
  chunk({ content: "go" }),
  chunk({ content: "od" }),
  STOP,
  USAGE_CHUNK,
];

function textOf(choice: { delta?: { content?: string } }): string {
  return choice.delta?.content ?? "";
}

const REFUSAL = { error: { message: "max_tokens must be at most 100", type: "invalid_request_error", code: 400 } };

/** A refusal in the same places. */
const REFUSALS: readonly (readonly [says: string, json: unknown])[] = [
  ["in `data`", { data: REFUSAL }],
  ["in `payload`, as a text", { payload: JSON.stringify(REFUSAL) }],
  ["as a text of JSON", JSON.stringify(REFUSAL)],
  ["in choices that are an object", { choices: REFUSAL }],
  ["by `ret_code` and `ret_msg`", { ret_code: 400, ret_msg: "max_tokens must be at most 100" }],
];

/** What is no answer in any form. */
const NOTHING: readonly (readonly [says: string, json: unknown])[] = [
  ["an empty list in `data`", { data: [] }],
  ["a text that says no more", { response: "Internal failure" }],
  ["choices that are an empty object", { choices: {}, usage: USAGE }],
  ["choices that are an empty text", { choices: "[]", usage: USAGE }],
  ["an answer without choices in `data`", { data: { choices: [], usage: USAGE } }],
];

export default [
  ...WHOLES.flatMap(([says, source, json]): Entry[] => [
    { says: `An answer ${says}`, source, request: WHOLE, provider: { json }, ...read },
    { says: `An answer ${says}, to a stream`, source, request: STREAM_WITH_USAGE, provider: { json }, ...read },
  ]),
  ...CHUNKS.flatMap(([says, form]): Entry[] => {
    const events = [...(GOOD_CHUNKS as { choices: object[] }[]).map(form), DONE];
    return [
      { says: `Chunks ${says}`, source: CONSTRUCTED, request: STREAM_WITH_USAGE, provider: { events }, ...read },
      {
        says: `Chunks ${says}, to a whole request`,
        source: CONSTRUCTED,
        request: WHOLE,
        provider: { events },
        ...read,
      },
    ];
  }),
  {
    says: "A list of chunks in place of a stream",
    source: CONSTRUCTED,
    request: STREAM_WITH_USAGE,
    provider: { json: GOOD_CHUNKS },
    ...read,
  },
  ...REFUSALS.flatMap(([says, json]): Entry[] => {
    const refused = {
      source: CONSTRUCTED,
      client: { error: "invalid_request", message: "at most 100" },
      charged: "nothing",
    } as const;
    const event = typeof json === "string" ? `data: ${JSON.stringify(json)}\n\n` : (json as object);
    return [
      { says: `A refusal ${says}`, request: WHOLE, provider: { json }, ...refused },
      {
        says: `A refusal ${says}, as the first event`,
        request: { body: { stream: true } },
        provider: { events: [event, DONE] },
        ...refused,
      },
      {
        says: `A refusal ${says}, behind half an answer`,
        source: CONSTRUCTED,
        request: { body: { stream: true } },
        provider: { events: [chunk({ content: "half" }), event, DONE] },
        client: { text: "half", error: "provider_unavailable" },
        charged: "nothing",
      },
    ];
  }),
  ...NOTHING.flatMap(([says, json]): Entry[] => {
    const answered = { source: CONSTRUCTED, client: { text: "good" }, charged: { tokens: [5, 7] } } as const;
    return [
      {
        says: `No answer: ${says}; the next route answers`,
        request: WHOLE,
        provider: [{ json }, GOOD_WHOLE],
        ...answered,
      },
      {
        says: `No answer to a stream: ${says}; the next route answers`,
        request: { body: { stream: true } },
        provider: [{ json }, GOOD_STREAM],
        ...answered,
      },
    ];
  }),
] satisfies Entry[];
