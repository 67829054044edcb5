import { isRecord } from "../platform/records.ts";

/**
 * Answers of a chat in the form of another API: a whole response of OpenAI's Responses API, and the events of its stream and of those of
 * Anthropic, Cohere, Bedrock's Converse, TGI and Workers AI.
 * Gateways whose conversion is missing or incomplete pass them on. Each event becomes a chunk by itself. Source: STR-15.
 */

type Fields = Readonly<Record<string, unknown>>;

/** By the type of an event, the chunk that says the same. */
const EVENTS: ReadonlyMap<string, (event: Fields) => Fields> = new Map([
  // The Responses API.
  ["response.output_text.delta", ({ delta }) => deltaChunk({ content: delta })],
  ["response.refusal.delta", ({ delta }) => deltaChunk({ refusal: delta })],
  ["response.reasoning_text.delta", ({ delta }) => deltaChunk({ reasoning_content: delta })],
  ["response.reasoning_summary_text.delta", ({ delta }) => deltaChunk({ reasoning_content: delta })],
  ["response.output_item.added", ({ item, output_index }) => begunItem(item, output_index)],
  ["response.function_call_arguments.delta", ({ delta, output_index }) => argumentsChunk(output_index, delta)],
  ["response.completed", ({ response }) => endOfResponse(response)],
  ["response.incomplete", ({ response }) => endOfResponse(response)],
  // Anthropic's.
  ["message_start", ({ message }) => usageChunk(isRecord(message) ? message.usage : undefined)],
  ["content_block_start", ({ content_block, index }) => begunItem(content_block, index)],
  ["content_block_delta", ({ delta, index }) => blockDelta(delta, index)],
  ["message_delta", ({ delta, usage }) => ({ ...endChunk(isRecord(delta) ? delta.stop_reason : null), usage })],
  // Cohere's.
  ["content-delta", ({ delta }) => deltaChunk(saidByCohere(delta))],
  ["tool-plan-delta", ({ delta }) => deltaChunk({ reasoning_content: messageIn(delta).tool_plan })],
  ["tool-call-start", ({ delta, index }) => cohereCall(delta, index)],
  ["tool-call-delta", ({ delta, index }) => cohereCall(delta, index)],
  ["message-end", ({ delta }) => (isRecord(delta) ? { ...endChunk(delta.finish_reason), usage: delta.usage } : {})],
]);
/** Events that say nothing which is not said by the others. */
const SAID_BY_OTHERS =
  /^(?:response\.(?!error|failed)|content_block_stop$|message_stop$|(?:message|content)-start$|(?:content|tool-call)-end$|citation-(?:start|end)$)/;
/** Bedrock's events: each is an object with one member. Its stream of bytes has them so, and gateways send them on as JSON. */
const MEMBERS: ReadonlyMap<string, (event: Fields) => Fields> = new Map<string, (event: Fields) => Fields>([
  ["messageStart", () => ({})],
  ["contentBlockStart", ({ start, contentBlockIndex }) => begunTool(start, contentBlockIndex)],
  ["contentBlockDelta", ({ delta, contentBlockIndex }) => bedrockDelta(delta, contentBlockIndex)],
  ["contentBlockStop", () => ({})],
  ["messageStop", ({ stopReason }) => endChunk(stopReason)],
  ["metadata", ({ usage }) => usageChunk(usage)],
]);

/** The chunk that an event of another API is; undefined: it is none. */
export function chunkOfEvent(event: Fields): Fields | undefined {
  const { type } = event;
  if (typeof type !== "string") return chunkWithoutType(event);
  const form = EVENTS.get(type);
  if (form !== undefined) return form(event);
  return SAID_BY_OTHERS.test(type) ? {} : undefined;
}

/** The same of an event that does not say its type. */
function chunkWithoutType(event: Fields): Fields | undefined {
  const [name = "", ...others] = Object.keys(event);
  const said = event[name];
  if (others.length === 0 && isRecord(said)) return MEMBERS.get(name)?.(said);
  if (isRecord(event.token) && typeof event.token.text === "string" && "generated_text" in event)
    return tgiChunk(event);
  // Of Workers AI: it pads each text.
  const isText = typeof event.response === "string" && typeof event.p === "string" && others.length === 1;
  return isText ? deltaChunk({ content: event.response }) : undefined;
}

/** A token of TGI; the last one has the whole text once more, and the counts. */
function tgiChunk({ token, details }: Fields): Fields {
  const { text, special } = isRecord(token) ? token : {};
  const finish = isRecord(details) ? details.finish_reason : null;
  const delta = { content: special === true ? "" : text };
  return { choices: [{ index: 0, delta, finish_reason: finish }], ...(isRecord(details) && { usage: details }) };
}

/** The chat answer that a response is; undefined: it has no output. */
export function chatOfResponse(response: Fields): Fields | undefined {
  const { output, status, incomplete_details: _, ...head } = response;
  const items = Array.isArray(output) ? output.filter(isRecord) : [];
  if (!items.some(({ type }) => ITEMS.has(type))) return undefined;
  const ofType = (type: string) => items.filter((item) => item.type === type);
  const calls = ofType("function_call");
  const thoughts = ofType("reasoning").flatMap(({ summary, content }) => [content, summary].find(isFilledList) ?? []);
  const message = {
    role: "assistant",
    content: ofType("message").flatMap(({ content }) => content),
    ...(thoughts.length > 0 && { reasoning: thoughts }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
  return { ...head, choices: [{ index: 0, message, finish_reason: finishOfResponse(response) }] };
}

const ITEMS: ReadonlySet<unknown> = new Set(["message", "function_call"]);

function isFilledList(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0;
}

function deltaChunk(delta: Fields): Fields {
  return { choices: [{ index: 0, delta, finish_reason: null }] };
}

function endChunk(finish: unknown): Fields {
  return { choices: [{ index: 0, delta: {}, finish_reason: finish }] };
}

function usageChunk(usage: unknown): Fields {
  return usage === undefined ? {} : { choices: [], usage };
}

/** A call of a tool begins; other items begin with their first text. */
function begunItem(item: unknown, index: unknown): Fields {
  if (!isRecord(item) || (item.type !== "function_call" && item.type !== "tool_use")) return {};
  const { call_id, id = call_id, name } = item;
  return deltaChunk({
    tool_calls: [{ index, id: call_id ?? id, type: "function", function: { name, arguments: "" } }],
  });
}

function argumentsChunk(index: unknown, text: unknown): Fields {
  return deltaChunk({ tool_calls: [{ index, function: { arguments: text } }] });
}

function blockDelta(delta: unknown, index: unknown): Fields {
  if (!isRecord(delta)) return {};
  if (delta.type === "input_json_delta") return argumentsChunk(index, delta.partial_json);
  if (typeof delta.thinking === "string") return deltaChunk({ reasoning_content: delta.thinking });
  return typeof delta.text === "string" ? deltaChunk({ content: delta.text }) : {};
}

function messageIn(delta: unknown): Fields {
  return isRecord(delta) && isRecord(delta.message) ? delta.message : {};
}

function saidByCohere(delta: unknown): Fields {
  const { content } = messageIn(delta);
  if (!isRecord(content)) return {};
  return typeof content.thinking === "string" ? { reasoning_content: content.thinking } : { content: content.text };
}

/** A call or a part of one: Cohere has each in an event of its own. */
function cohereCall(delta: unknown, index: unknown): Fields {
  const { tool_calls: call } = messageIn(delta);
  return isRecord(call) ? deltaChunk({ tool_calls: [{ index, ...call }] }) : {};
}

function begunTool(start: unknown, index: unknown): Fields {
  const tool = isRecord(start) ? start.toolUse : undefined;
  return isRecord(tool) ? begunItem({ type: "tool_use", id: tool.toolUseId, name: tool.name }, index) : {};
}

function bedrockDelta(delta: unknown, index: unknown): Fields {
  if (!isRecord(delta)) return {};
  const { text, toolUse: tool, reasoningContent: thought } = delta;
  if (isRecord(tool)) return argumentsChunk(index, tool.input);
  if (isRecord(thought)) return typeof thought.text === "string" ? deltaChunk({ reasoning_content: thought.text }) : {};
  return typeof text === "string" ? deltaChunk({ content: text }) : {};
}

/** What the response says was said by the events before. */
function endOfResponse(response: unknown): Fields {
  if (!isRecord(response)) return endChunk("stop");
  return { ...endChunk(finishOfResponse(response)), usage: response.usage };
}

function finishOfResponse({ status, incomplete_details: details, output }: Fields): unknown {
  if (status === "incomplete") return (isRecord(details) ? details.reason : undefined) ?? "length";
  const hasCalls = Array.isArray(output) && output.some((item) => isRecord(item) && item.type === "function_call");
  return hasCalls ? "tool_calls" : "stop";
}
