/**
 * Answers of a provider's own /responses in the shapes of OpenAI: field order, extra fields and lengths of ids as public captures show
 * them. The texts are ours. Used by responses_streams.test.ts and by `bun run bench`.
 */

type Fields = Readonly<Record<string, unknown>>;

export type ResponsesStream = {
  name: string;
  /** Where the shape was seen. */
  source: string;
  /** The events before the first text, as they stand on the wire. */
  opening: string;
  /** The event that brings `text`, as it stands on the wire. `n` counts the texts from 0. */
  event(text: string, n: number): string;
  /** The events after the last of `texts` texts, which together are `whole`. */
  ending(whole: string, texts: number): string;
  /** The same answer as JSON. */
  json(whole: string): string;
};

const RESPONSE_ID = "resp_0c4bb6cd4369e1aa016968ca75fe08819fb1f268f54afb5782";
const ITEM_ID = "msg_0c4bb6cd4369e1aa016968ca768e4c819faaeeabe2970ec1fe";
const PLACE = { item_id: ITEM_ID, output_index: 0, content_index: 0 };
/** The events before the first text. */
const OPENING_EVENTS = 4;
const USAGE = {
  input_tokens: 11,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 7,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 18,
};

const partOf = (text: string) => ({ type: "output_text", annotations: [], logprobs: [], text });
const itemOf = (status: string, content: readonly Fields[]) => ({
  ...{ id: ITEM_ID, type: "message", status, content, role: "assistant" },
});

function responseOf(status: string, output: readonly Fields[]): Fields {
  const isOver = status === "completed";
  return {
    ...{ id: RESPONSE_ID, object: "response", created_at: 1_763_856_000, status, background: false },
    ...{ completed_at: isOver ? 1_763_856_003 : null, error: null, frequency_penalty: 0, incomplete_details: null },
    ...{ instructions: null, max_output_tokens: 1000, max_tool_calls: null, model: "gpt-4o-mini-2024-07-18", output },
    ...{ parallel_tool_calls: true, presence_penalty: 0, previous_response_id: null, prompt_cache_key: null },
    ...{ prompt_cache_retention: null, reasoning: { effort: null, summary: null }, safety_identifier: null },
    ...{ service_tier: isOver ? "default" : "auto", store: false, temperature: 1 },
    ...{ text: { format: { type: "text" }, verbosity: "medium" }, tool_choice: "auto", tools: [], top_logprobs: 0 },
    ...{ top_p: 1, truncation: "disabled", usage: isOver ? USAGE : null, user: null, metadata: {} },
  };
}

/** Letters that make the lengths of texts unreadable, as OpenAI sends them. */
function padding(n: number): string {
  const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  return Array.from({ length: 4 + ((n * 7) % 13) }, (_, i) => letters[(n * 31 + i * 17) % letters.length]).join("");
}

/** A stream whose events have their fields in the order of `ordered`, which gets them with the sequence number first. */
function streamOf(name: string, source: string, ordered: (fields: Fields) => Fields): ResponsesStream {
  const event = (type: string, sequence: number, fields: Fields): string => {
    const data = { type, ...ordered({ sequence_number: sequence, ...fields }) };
    return `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
  };
  const begun = { response: responseOf("in_progress", []) };
  return {
    ...{ name, source },
    opening:
      event("response.created", 0, begun) +
      event("response.in_progress", 1, begun) +
      event("response.output_item.added", 2, { output_index: 0, item: itemOf("in_progress", []) }) +
      event("response.content_part.added", 3, { ...PLACE, part: partOf("") }),
    event: (text, n) =>
      event("response.output_text.delta", OPENING_EVENTS + n, {
        ...{ ...PLACE, delta: text, logprobs: [], obfuscation: padding(n) },
      }),
    ending(whole, texts) {
      const part = partOf(whole);
      const item = itemOf("completed", [part]);
      const at = OPENING_EVENTS + texts;
      return (
        event("response.output_text.done", at, { ...PLACE, text: whole, logprobs: [] }) +
        event("response.content_part.done", at + 1, { ...PLACE, part }) +
        event("response.output_item.done", at + 2, { output_index: 0, item }) +
        event("response.completed", at + 3, { response: responseOf("completed", [item]) })
      );
    },
    json: (whole) => JSON.stringify(responseOf("completed", [itemOf("completed", [partOf(whole)])])),
  };
}

export const RESPONSES_STREAMS: readonly [ResponsesStream, ResponsesStream] = [
  streamOf(
    "OpenAI, fields by name",
    "github.com/SwiftedMind/SwiftAgent OpenAIStreamingToolCallsTests.swift (api.openai.com, 2026)",
    (fields) => Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1))),
  ),
  streamOf(
    "OpenAI, sequence number first",
    "charm fantasy providertests/testdata/TestOpenAIResponsesCommon/openai-gpt-4o-mini/simple_streaming.yaml (api.openai.com, 2025)",
    (fields) => fields,
  ),
];
