import type { ChatAnswer, Piece } from "./chat.ts";
import type { Behaviour } from "./faults.ts";
import { type ChatRequest, ProviderError, readChatRequest } from "./request.ts";
import { isRecord, type JsonRecord } from "./text.ts";

/** The simulated provider's own POST /responses: the answers of its chat, as response objects and events. Nothing is stored. */

/** Reads a request. Throws ProviderError 400 with the invalid field. */
export function readResponsesRequest(body: unknown): ChatRequest {
  if (!isRecord(body)) throw new ProviderError(400, "The body must be a JSON object.");
  if (body.store !== false) throw new ProviderError(400, "The simulated provider stores nothing.", { param: "store" });
  const { input, instructions, tools, text, max_output_tokens, ...rest } = body;
  if (input === undefined) throw new ProviderError(400, "'input' is required.", { param: "input" });
  const items = typeof input === "string" ? [{ role: "user", content: input }] : input;
  if (!Array.isArray(items) || !items.every(isRecord))
    throw new ProviderError(400, "'input' must be a string or items.", { param: "input" });
  const system = typeof instructions === "string" ? [{ role: "system", content: instructions }] : [];
  const format = isRecord(text) && isRecord(text.format) ? text.format : {};
  return readChatRequest({
    ...rest,
    max_completion_tokens: max_output_tokens,
    messages: [...system, ...items.map(messageOf)],
    tools: Array.isArray(tools) ? tools.map((tool) => ({ type: "function", function: tool })) : undefined,
    response_format: format.type === "json_schema" ? { type: format.type, json_schema: format } : undefined,
    stream_options: { include_usage: true },
  });
}

function messageOf(item: JsonRecord): JsonRecord {
  const { type = "message", role, content, arguments: args, name, call_id: id, output } = item;
  if (type === "message") return { role, content };
  if (type === "function_call")
    return { role: "assistant", content: null, tool_calls: [{ id, function: { name, arguments: args } }] };
  if (type === "function_call_output") return { role: "tool", tool_call_id: id, content: output };
  return { role: "assistant", content: "" };
}

/** The response object. `status`: of the response and its items. */
function responseOf(answer: ChatAnswer, status: string, output: readonly JsonRecord[]): JsonRecord {
  const isCut = status === "incomplete";
  return {
    id: `resp_simulated_${answer.id}`,
    object: "response",
    created_at: answer.created,
    status,
    error: null,
    incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
    model: answer.model,
    output,
    usage: status === "in_progress" || answer.usageText === null ? null : usageOf(JSON.parse(answer.usageText)),
    store: false,
  };
}

function usageOf(usage: JsonRecord): JsonRecord {
  return {
    input_tokens: usage.prompt_tokens,
    input_tokens_details: usage.prompt_tokens_details,
    output_tokens: usage.completion_tokens,
    output_tokens_details: usage.completion_tokens_details,
    total_tokens: usage.total_tokens,
  };
}

function statusOf({ choices }: ChatAnswer): string {
  return choices[0]?.finish === "length" ? "incomplete" : "completed";
}

function itemsOf({ id, choices }: ChatAnswer, status: string): JsonRecord[] {
  const [choice] = choices;
  if (choice?.toolCall) {
    const { id: call_id, name, arguments: args } = choice.toolCall;
    return [{ id: `fc_${id}`, type: "function_call", status, call_id, name, arguments: args }];
  }
  const content = [{ type: "output_text", text: choice?.content.join("") ?? "", annotations: [], logprobs: [] }];
  return [{ id: `msg_${id}`, type: "message", status, role: "assistant", content }];
}

export function responseJson(answer: ChatAnswer): string {
  const status = statusOf(answer);
  return JSON.stringify(responseOf(answer, status, itemsOf(answer, status)));
}

/** The answer as events, as changed by the behaviour. */
export function responsePieces(answer: ChatAnswer, behaviour: Behaviour = {}): Piece[] {
  const pieces: Piece[] = [];
  let sequence = 0;
  const event = (type: string, fields: JsonRecord, chunk = false) => {
    const data = JSON.stringify({ type, sequence_number: sequence++, ...fields });
    pieces.push({ text: `event: ${type}\ndata: ${data}\n\n`, chunk });
  };
  const status = statusOf(answer);
  const [item = {}] = itemsOf(answer, status);
  const begun = { response: responseOf(answer, "in_progress", []) };
  event("response.created", begun);
  event("response.in_progress", begun);
  const isCall = item.type === "function_call";
  const fields = { item_id: item.id, output_index: 0 };
  event("response.output_item.added", {
    output_index: 0,
    item: { ...item, status: "in_progress", ...(isCall ? { arguments: "" } : { content: [] }) },
  });
  const part = { ...fields, content_index: 0, part: { type: "output_text", text: "", annotations: [], logprobs: [] } };
  if (!isCall) event("response.content_part.added", part);
  const deltas = isCall ? [String(item.arguments)] : (answer.choices[0]?.content ?? []);
  const what = isCall ? "response.function_call_arguments" : "response.output_text";
  for (const [i, delta] of deltas.entries()) {
    if (i === behaviour.errorEventAfterChunks) {
      const error = { code: "server_error", message: "The simulated provider failed (organization org-simulated)." };
      event("response.failed", { response: { ...responseOf(answer, "failed", []), error } });
      return pieces;
    }
    event(`${what}.delta`, { ...fields, ...(!isCall && { content_index: 0, logprobs: [] }), delta }, true);
  }
  const whole = deltas.join("");
  event(`${what}.done`, { ...fields, ...(isCall ? { arguments: whole } : { content_index: 0, text: whole }) });
  if (!isCall) event("response.content_part.done", { ...part, part: { ...part.part, text: whole } });
  event("response.output_item.done", { output_index: 0, item });
  if (!behaviour.endWithoutFinish) event(`response.${status}`, { response: responseOf(answer, status, [item]) });
  return pieces;
}
