import fc from "fast-check";

/** Random answers of providers: of the right shape, with values of any type in any place. */

/** Values that are not what anybody expects, among them some that throw when they are turned into text or numbers. */
const odd: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 3, arbitrary: fc.jsonValue({ maxDepth: 2 }) },
  fc.constantFrom<unknown>(
    { toString: 1, valueOf: 1 },
    [{ toString: 1, valueOf: 1 }],
    { length: -1 },
    { constructor: null, hasOwnProperty: 1, toJSON: "x" },
    Number.MAX_VALUE,
    -1,
    0.5,
    "",
    "\ud800",
    "constructor",
    "__proto__",
    null,
  ),
);
const or = (arbitrary: fc.Arbitrary<unknown>) =>
  fc.oneof({ weight: 4, arbitrary }, { weight: 1, arbitrary: odd }) as fc.Arbitrary<unknown>;
/** An object that has some of these members. */
const some = (members: Record<string, fc.Arbitrary<unknown>>) => or(fc.record(members, { requiredKeys: [] }));
const list = (of: fc.Arbitrary<unknown>) => or(fc.array(of, { maxLength: 4 }));
const count = or(fc.integer({ min: 0, max: 50 }));
const text = or(fc.string({ maxLength: 20 }));

const details = some({
  ...{ cached_tokens: count, reasoning_tokens: count, audio_tokens: count, image_tokens: count },
  cache_write_tokens: count,
});
const usage = some({
  ...{ prompt_tokens: count, completion_tokens: count, total_tokens: count, cost: odd },
  ...{ input_tokens: count, output_tokens: count, cache_creation_input_tokens: count },
  ...{ prompt_tokens_details: details, completion_tokens_details: details },
  ...{ input_tokens_details: details, output_tokens_details: details },
});
const error = some({
  message: text,
  code: or(fc.constantFrom(400, 502, "invalid_request_error")),
  type: text,
  param: text,
  metadata: odd,
});
const toolCall = some({
  ...{ index: count, id: text, type: or(fc.constantFrom("function", "custom")) },
  ...{ function: some({ name: text, arguments: text }), custom: some({ name: text, input: text }) },
});
const message = some({
  ...{ role: text, content: or(list(some({ type: text, text }))), refusal: text },
  ...{ reasoning: text, reasoning_content: text, reasoning_details: list(odd), tool_calls: list(toolCall) },
  ...{ function_call: some({ name: text, arguments: text }), audio: odd, annotations: list(odd), images: list(odd) },
});
const finish = or(fc.constantFrom("stop", "length", "tool_calls", "content_filter", "error", null));
const choices = list(
  some({ index: count, message, delta: message, finish_reason: finish, logprobs: odd, error: odd, text }),
);
const head = { id: text, created: count, model: text, system_fingerprint: odd, provider: odd, service_tier: odd };
const chat = some({ ...head, object: text, choices, usage, error: fc.oneof(odd, error) });
const chunk = some({ ...head, object: text, choices, usage });

const itemType = or(
  fc.constantFrom("message", "function_call", "custom_tool_call", "reasoning", "web_search_call", "constructor"),
);
const part = some({
  ...{ type: or(fc.constantFrom("output_text", "refusal", "summary_text", "reasoning_text")), text, refusal: text },
  ...{ annotations: list(odd), logprobs: list(odd) },
});
const item = some({
  ...{ id: text, type: itemType, status: text, role: text, content: list(part), summary: list(part) },
  ...{ call_id: text, name: text, arguments: text, input: text, encrypted_content: text, namespace: text },
});
const response = some({
  ...{ id: text, object: text, status: or(fc.constantFrom("completed", "incomplete", "failed", "in_progress")) },
  ...{ output: list(item), usage, error: fc.oneof(odd, error), incomplete_details: odd, metadata: odd, model: text },
  ...{ tools: list(odd), instructions: odd, text: odd, reasoning: odd },
});
const eventType = or(
  fc.constantFrom(
    ...["created", "in_progress", "completed", "incomplete", "failed"].map((end) => `response.${end}`),
    ...["added", "done"].flatMap((end) => [`response.output_item.${end}`, `response.content_part.${end}`]),
    ...[
      "output_text",
      "refusal",
      "function_call_arguments",
      "custom_tool_call_input",
      "reasoning_summary_text",
    ].flatMap((kind) => [`response.${kind}.delta`, `response.${kind}.done`]),
    ...["error", "constructor", "response.web_search_call.searching"],
  ),
);
const event = some({
  ...{ type: eventType, sequence_number: count, output_index: count, content_index: count, summary_index: count },
  ...{ item_id: text, item, part, delta: text, text, arguments: text, response, message: text, code: text },
});

const image = some({
  ...{ created: count, data: list(some({ url: text, b64_json: text, revised_prompt: text })), usage },
  ...{ size: odd, quality: odd, background: odd, error: fc.oneof(odd, error) },
});
const vector = or(fc.oneof(fc.array(or(fc.double()), { maxLength: 3 }), fc.constantFrom("AACAPwAAAEA=", "AAA")));
const embeddings = some({ object: text, data: list(some({ index: count, embedding: vector, object: text })), usage });

const textChoice = some({ index: count, text, logprobs: or(fc.constant(null)), finish_reason: text });
const completion = some({ id: text, object: text, created: count, model: text, choices: list(textChoice), usage });
const scores = some({
  object: text,
  results: list(some({ index: count, relevance_score: count, score: count })),
  data: list(some({ index: count, relevance_score: count })),
  usage,
});

const whole = (of: fc.Arbitrary<unknown>) => of.map((value) => JSON.stringify(value) ?? "null");
const stream = (of: fc.Arbitrary<unknown>) =>
  fc
    .tuple(fc.array(of, { minLength: 1, maxLength: 8 }), fc.boolean())
    .map(([events, isDone]) => [
      ...events.map((one) => `data: ${JSON.stringify(one) ?? "null"}\n\n`),
      ...(isDone ? ["data: [DONE]\n\n"] : []),
    ])
    .map((payloads) => payloads.join(""));

/** The bodies of answers, by the beginning of a metered row's model ids. */
export const ODD_ANSWERS: Readonly<Record<string, fc.Arbitrary<string>>> = {
  json: whole(chat),
  stream: stream(chunk),
  "told-json": whole(chat),
  "told-stream": stream(chunk),
  "own-json": whole(response),
  "own-stream": stream(event),
  image: whole(image),
  embed: whole(embeddings),
  "text-json": whole(chat),
  "text-stream": stream(chunk),
  "own-text-json": whole(completion),
  "own-text-stream": stream(completion),
  rank: whole(scores),
};
