import { reportIn } from "../catalog/error_reports.ts";
import { patch, topLevelSpans } from "../http/json_spans.ts";
import { isRecord } from "../platform/records.ts";
import { chatOfResponse, chunkOfEvent } from "./event_forms.ts";
import { type JsonObject, opened, parseObject } from "./provider_json.ts";
import { reportsTokens } from "./usage_reports.ts";

/**
 * A chat's answer, or a chunk of one, in OpenAI's form, wherever it stands in what a provider sent: gateways put it into a member of an
 * object of their own, into a list or into a text, and servers write the choices as one object, by their numbers, or as texts. It is found
 * by what it has, not by the names of the members around it. Source: STR-15.
 */

type Fields = Readonly<Record<string, unknown>>;

/** Answers in answers are searched so deep, and so many members of each. */
const LEVELS_MAX = 4;
const MEMBERS_MAX = 50;
/** Why a choice ended, under the names of other APIs. */
const FINISHES = ["finishReason", "stop_reason", "stopReason", "done_reason", "stop_type"] as const;
/** Members that say whether an answer ends here: what has one is a piece of an answer, in the native streams of Ollama and llama.cpp. */
const ENDS = ["done", "stop"] as const;
/** Members with the text of an answer that has no message, as in the native APIs of servers. */
const TEXTS = ["response", "generated_text", "output_text", "completion", "content", "text"] as const;

/** Parses an answer of a chat, or a chunk. Returns undefined if the text is no JSON object. */
export function parseChat(text: string): JsonObject | undefined {
  const parsed = parseObject(text);
  if (parsed === undefined || isPlain(parsed.value)) return parsed;
  const event = chunkOfEvent(parsed.value);
  if (event !== undefined) return jsonOf(event, JSON.stringify(event));
  const chat = chatIn(parsed.value, 0);
  if (chat === undefined) return parsed;
  if (choicesIn(parsed.value.choices).length === 0) return jsonOf(chat, JSON.stringify(chat));
  // All else keeps its text.
  return jsonOf(chat, patch(parsed.text, parsed.spans, new Map([["choices", JSON.stringify(chat.choices)]])));
}

/** Parses a provider's own response. Returns undefined if the text is no JSON object. */
export function parseResponse(text: string): JsonObject | undefined {
  const parsed = parseObject(text);
  if (parsed === undefined || Array.isArray(parsed.value.output)) return parsed;
  const response = within(parsed.value, 0, responseIn);
  return response === undefined ? parsed : jsonOf(response, JSON.stringify(response));
}

function responseIn(value: Fields, level: number): Fields | undefined {
  return Array.isArray(value.output) ? value : within(value, level, responseIn);
}

/** Whether an object has choices in OpenAI's form, or none of them. */
function isPlain({ choices }: Fields): boolean {
  return Array.isArray(choices) && !hasOdd(choices);
}

function jsonOf(value: Fields, text: string): JsonObject {
  return { value, spans: topLevelSpans(text) ?? new Map(), text };
}

/** The answer in an object, with what is around it; undefined: there is none. */
function chatIn(value: Fields, level: number): Fields | undefined {
  const choices = choicesIn(value.choices);
  // A chunk with only a usage has none.
  if (choices.length > 0 || (Array.isArray(value.choices) && reportsTokens(value))) return { ...value, choices };
  return chatOfResponse(value) ?? withMessage(value) ?? within(value, level, chatIn) ?? withText(value);
}

/**
 * What `find` finds in the members of an object, with what else is in the object. An error in a member is found as well. Undefined: there
 * is nothing, or the object reports an error itself, although there is an answer in it.
 */
function within(
  outer: Fields,
  level: number,
  find: (inner: Fields, level: number) => Fields | undefined,
): Fields | undefined {
  if (level === LEVELS_MAX) return undefined;
  for (const [name, member] of Object.entries(outer).slice(0, MEMBERS_MAX)) {
    const inner = opened(member);
    const { [name]: _, ...around } = outer;
    if (
      Array.isArray(inner) &&
      inner.length > 0 &&
      inner.every((one) => isRecord(one) && withMessage(one) !== undefined)
    )
      return { ...around, choices: inner.map(plainChoice) };
    if (!isRecord(inner)) continue;
    const found = isError(inner) ? inner : find(inner, level + 1);
    if (found === undefined) continue;
    if (reportIn({ ...around, data: found }) !== undefined) return undefined;
    const filled = Object.entries(found).filter(([, value]) => isFilled(value));
    return { ...around, ...Object.fromEntries(filled) };
  }
  return undefined;
}

/** An answer with the error that one of its members reports; undefined: there is none. */
export function errorWithin(answer: Fields, level = 0): Fields | undefined {
  return within(answer, level, errorWithin);
}

function isError({ error }: Fields): boolean {
  return isRecord(error) && reportIn({ error }) !== undefined;
}

/** The choices as a list of objects. Empty, if they are none. */
function choicesIn(given: unknown): unknown[] {
  const choices = typeof given === "string" ? opened(given) : given;
  if (Array.isArray(choices)) return choices.flat().map(plainChoice);
  if (!isRecord(choices)) return [];
  if (CHOICE_MEMBERS.some((name) => name in choices)) return [plainChoice(choices)];
  const all = Object.entries(choices);
  return all.every(([name, choice]) => /^\d/.test(name) && isRecord(choice))
    ? all.map(([, one]) => plainChoice(one))
    : [];
}

const CHOICE_MEMBERS = ["message", "delta", "text", "content", "finish_reason", "error"];

/** Whether a choice in a list is in another form than OpenAI's. */
export function hasOdd(choices: readonly unknown[]): boolean {
  return choices.some(isOdd);
}

function isOdd(choice: unknown): boolean {
  if (!isRecord(choice)) return isFilled(choice);
  const { message, delta, content, finish_reason } = choice;
  if (isUnopened(message) || isUnopened(delta) || (isFilled(content) && !isRecord(message) && !isRecord(delta)))
    return true;
  return !isFilled(finish_reason) && FINISHES.some((name) => isFilled(choice[name]));
}

/** A text, or a list of messages or parts, where an object should be. */
function isUnopened(said: unknown): boolean {
  if (!Array.isArray(said)) return typeof said === "string" && said !== "";
  return (
    said.length > 0 && said.every((one) => isRecord(one) && [...SAID_OF_MODEL, "text"].some((name) => name in one))
  );
}

function plainChoice(choice: unknown): unknown {
  if (!isOdd(choice)) return choice;
  if (!isRecord(choice)) return typeof choice === "string" ? { message: { content: choice } } : choice;
  const { content, finish_reason, ...plain } = choice;
  const { message, delta } = plain;
  if (isUnopened(message)) plain.message = saidIn(message);
  if (isUnopened(delta)) plain.delta = saidIn(delta);
  if (isFilled(content) && !isRecord(plain.message) && !isRecord(plain.delta))
    plain.message = { content: textsIn(content) };
  return { ...plain, finish_reason: isFilled(finish_reason) ? finish_reason : finishIn(choice) };
}

function finishIn(value: Fields): unknown {
  if (ENDS.some((name) => value[name] === false)) return null;
  return (
    FINISHES.map((name) => value[name]).find(isFilled) ??
    (ENDS.some((name) => value[name] === true) ? "stop" : undefined)
  );
}

/** What a choice has what was said in. */
function partOf(value: Fields): "delta" | "message" {
  return ENDS.some((name) => typeof value[name] === "boolean") ? "delta" : "message";
}

/** A message in a list or a text, or else the content of one. */
function saidIn(said: unknown): Fields {
  const one = opened(said);
  return isRecord(one) && !("type" in one || "text" in one) ? one : { content: said };
}

const SAID_OF_MODEL = ["role", "content", "tool_calls"];

/** The parts of Gemini's content; any other stays as it is. */
function textsIn(content: unknown): unknown {
  return isRecord(content) && Array.isArray(content.parts) ? content.parts : content;
}

/** An answer whose only choice is the object itself: it has a message of a model. */
function withMessage(value: Fields): Fields | undefined {
  const { message, delta, content, index: _, finish_reason = finishIn(value), ...head } = value;
  const said = [message, delta].find((one) => isRecord(one) && SAID_OF_MODEL.some((name) => isFilled(one[name])));
  const parts = textsIn(content);
  if (said === undefined && parts === content) return undefined;
  return { ...head, choices: [{ [partOf(value)]: said ?? { content: parts }, finish_reason }] };
}

/** An answer that is a text alone. It counts only beside a reason for its end, or a usage: errors are texts too. */
function withText(value: Fields): Fields | undefined {
  const part = partOf(value);
  const name = TEXTS.find((one) => isText(value[one]) || (part === "delta" && value[one] === ""));
  if (name === undefined) return undefined;
  const { [name]: content, finish_reason = finishIn(value), ...head } = value;
  if (part === "message" && !isFilled(finish_reason) && !reportsTokens(value)) return undefined;
  return { ...head, choices: [{ [part]: { content }, finish_reason }] };
}

function isText(content: unknown): boolean {
  const isTextPart = (part: unknown) => isRecord(part) && typeof part.text === "string";
  return Array.isArray(content) ? content.length > 0 && content.every(isTextPart) : isFilled(content);
}

function isFilled(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "";
}
