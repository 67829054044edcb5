import { type CountedUsage, type ShownCharge, shownCharge } from "../usage_shown.ts";
import type { ResponsesBody } from "./request.ts";
import type { Tools } from "./tools.ts";

/** The response object: in JSON answers, and in the first and last events of streams. Source: RSP-8. */

/**
 * Longer tools and instructions are not repeated in the response: they would stay in memory while the stream is open.
 */
const ECHO_CHARS_MAX = 32 * 1024;

/** The fields of every response object. They are kept as long as the stream is open. */
export type ResponseFacts = {
  /** The response's id. The ids of its items begin in the same way. */
  id: string;
  createdUnix: number;
  modelId: string;
  /** The client's, as JSON. */
  metadata: string;
  previousResponseId: string | null;
  /** Whether the response is to be stored. */
  store: boolean;
  /** The other fields of the request that are repeated, as the inside of a JSON object; "": none. */
  echo: string;
};

export type ResponseStatus = "in_progress" | "completed" | "incomplete" | "failed";

/** The state of a response. `items`: those of the output, each as JSON. `usage`: as JSON. */
export type ResponseState = {
  status: ResponseStatus;
  items: readonly string[];
  usage?: string | undefined;
  error?: { code: string; message: string } | undefined;
  incompleteReason?: string | undefined;
};

/** The object as JSON. */
export function responseJson(
  { id, createdUnix, modelId, metadata, previousResponseId, store, echo }: ResponseFacts,
  state: ResponseState,
): string {
  const { status, items, usage = "null", error, incompleteReason } = state;
  const incomplete = incompleteReason === undefined ? null : { reason: incompleteReason };
  return (
    `{"id":"${id}","object":"response","created_at":${createdUnix},"status":"${status}",` +
    `"error":${JSON.stringify(error ?? null)},"incomplete_details":${JSON.stringify(incomplete)},` +
    `"model":${JSON.stringify(modelId)},"metadata":${metadata},"previous_response_id":${JSON.stringify(previousResponseId)},` +
    `"store":${store},${echo && `${echo},`}"output":[${items.join(",")}],"usage":${usage}}`
  );
}

/** The fields of the request that its response repeats. Hosted tools that were dropped are not among them. */
export function echoOf(request: ResponsesBody, tools: Tools): string {
  const { instructions, temperature, top_p, text, reasoning, max_output_tokens } = request;
  const kept = (request.tools ?? []).filter((_, i) => !tools.hosted.has(`tools.${i}`));
  const fields = {
    background: false,
    instructions: instructions !== undefined && instructions !== null ? unlessLong(instructions, null) : null,
    max_output_tokens: max_output_tokens ?? null,
    parallel_tool_calls: request.parallel_tool_calls ?? true,
    reasoning: { effort: reasoning?.effort ?? null, summary: reasoning?.summary ?? null },
    temperature: temperature ?? null,
    text: unlessLong({ ...text, format: text?.format ?? { type: "text" } }, { format: { type: "text" } }),
    tool_choice: unlessLong(request.tool_choice ?? "auto", "auto"),
    tools: unlessLong(kept, []),
    top_p: top_p ?? null,
    truncation: "disabled",
  };
  return JSON.stringify(fields).slice(1, -1);
}

/**
 * What a response object of a provider's own lacks, by name: fields that repeat the request, and those that strict clients need.
 * Source: RSP-13.
 */
export function missingIn(response: Readonly<Record<string, unknown>>, { createdUnix, echo }: ResponseFacts): Missing {
  const all: Missing = { created_at: createdUnix, error: null, incomplete_details: null, output: [] };
  const repeated: unknown = JSON.parse(`{${echo}}`);
  const entries = Object.entries({ ...all, ...Object(repeated) });
  return Object.fromEntries(entries.filter(([name]) => !Object.hasOwn(response, name)));
}
type Missing = Record<string, unknown>;

function unlessLong<T, U>(value: T, instead: U): T | U {
  return JSON.stringify(value).length <= ECHO_CHARS_MAX ? value : instead;
}

/** The usage as JSON. Every count is a number: some clients refuse null, and some a missing one. Source: RSP-8. */
export function usageJson(
  { promptTokens, cachedTokens, completionTokens, further = {} }: CountedUsage,
  charge?: ShownCharge,
): string {
  const { cache_write: written = 0, cache_write_1h: writtenForHour = 0, reasoning = 0 } = further;
  return JSON.stringify({
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens, cache_write_tokens: written + writtenForHour },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: promptTokens + completionTokens,
    ...shownCharge(charge),
  });
}
