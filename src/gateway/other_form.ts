import { ProviderFailure } from "../catalog/provider_errors.ts";
import { isRecord } from "../platform/records.ts";
import { parseChat } from "./answer_forms.ts";
import { numberOf } from "./call_numbers.ts";
import { finishOf } from "./finish_reasons.ts";
import { parseAnswer } from "./provider_json.ts";
import { saidIn, saysSomething } from "./said.ts";
import { isDone, SseReader } from "./sse.ts";
import type { UsageReports } from "./usage_reports.ts";

/** Answers in another form than was asked for: a whole one to a stream, and a stream to a whole request. Source: STR-8. */

type Fields = Record<string, unknown>;

/** How a body begins that is events, whatever its content type says. */
const EVENTS = /^\uFEFF?\s*(?:(?:data|event|id|retry|error)[ \t]*:|:)/i;
/** … or lines of JSON. */
const LINES = /^\s*\{[^\n]*\}\s*\n\s*\{/;
/** … or a list of chunks. */
const LIST = /^\s*\[/;
/** Texts of a delta that are continued by those of the next one. */
const CONTINUED = ["content", "reasoning_content", "reasoning", "refusal"];
const UTF_8 = new TextEncoder();

/** What gives the payloads of a body that is events, or a list of chunks; undefined if it is neither. */
export function payloadsIn(text: string): (() => string[]) | undefined {
  if (EVENTS.test(text) || LINES.test(text))
    return () => {
      const reader = new SseReader();
      return [...reader.push(UTF_8.encode(text)), ...reader.end()];
    };
  const list = LIST.test(text) ? parseList(text) : undefined;
  return Array.isArray(list) ? () => list.map((chunk) => JSON.stringify(chunk)) : undefined;
}

/** undefined: the text is no JSON, which whoever reads the answer says. */
function parseList(text: string): unknown {
  try {
    return parseAnswer(text);
  } catch {
    return undefined;
  }
}

/** The payloads of a short stream that says what a whole chat answer says. `raw`: its usage, if it stands elsewhere. */
export function payloadsOfWhole({ choices, usage, ...head }: Fields, { raw }: UsageReports): string[] {
  const all = (Array.isArray(choices) ? choices : []).filter(isRecord);
  const begun = all.map((choice, place) => {
    const { message, delta, text, finish_reason, ...others } = choice;
    return { index: place, ...others, delta: deltaOf(saidIn(choice, "message")), finish_reason: null };
  });
  const ended = all.map(({ index = 0, finish_reason }, place) => ({
    ...{ index: all.length > 1 ? place : index, delta: {} },
    finish_reason: finish_reason ?? "stop",
  }));
  const object = "chat.completion.chunk";
  const chunks: Fields[] = [
    { ...head, object, choices: begun },
    { ...head, object, choices: ended },
  ];
  const reported = usage ?? raw;
  if (typeof reported === "object" || typeof reported === "string")
    chunks.push({ ...head, object, choices: [], usage: reported });
  return [...chunks.map((chunk) => JSON.stringify(chunk)), "[DONE]"];
}

/** In a stream each call of a tool has its place. */
function deltaOf(message: unknown): unknown {
  if (!isRecord(message) || !Array.isArray(message.tool_calls)) return message;
  const calls = message.tool_calls.map((call: unknown, index) => (isRecord(call) ? { index, ...call } : call));
  return { ...message, tool_calls: calls };
}

/** The JSON of the whole chat answer that payloads say. `check` may throw for an event. Throws ProviderFailure if it is not complete. */
export function wholeOf(payloads: readonly string[], check: (event: Fields) => void): string {
  const choices = new Map<number, Fields>();
  let head: Fields = {};
  let hasEnd = false;
  for (const payload of payloads) {
    hasEnd = isDone(payload);
    if (hasEnd) break;
    const event = parseChat(payload)?.value;
    if (event === undefined) throw notAnAnswer();
    check(event);
    const { choices: more, usage: _, ...rest } = event;
    head = { ...rest, ...head };
    for (const choice of Array.isArray(more) ? more : []) if (isRecord(choice)) addChoice(choices, choice);
  }
  const all = [...choices.values()];
  if (all.length === 0 || !(hasEnd || all.every((choice) => finishOf(choice) !== undefined))) throw notAnAnswer();
  return JSON.stringify({ ...head, object: "chat.completion", choices: all });
}

function notAnAnswer(): ProviderFailure {
  return new ProviderFailure("not_json", "the events are not a whole chat completion");
}

function addChoice(choices: Map<number, Fields>, choice: Fields): void {
  const { index, delta, message: __, text, finish_reason, ...more } = choice;
  const place = numberOf(index) ?? 0;
  const before = choices.get(place) ?? { index: place, message: { role: "assistant" }, finish_reason: null };
  // A message behind deltas repeats what they said.
  const said = isRecord(delta) || !saysSomething(before.message) ? saidIn(choice, "delta") : undefined;
  const message = { ...(isRecord(before.message) ? before.message : {}) };
  if (isRecord(said)) addDelta(message, said);
  const finish = finishOf(choice) === undefined ? before.finish_reason : finish_reason;
  choices.set(place, { ...before, ...more, message, finish_reason: finish });
}

function addDelta(message: Fields, { tool_calls: calls, ...fields }: Fields): void {
  for (const [name, value] of Object.entries(fields)) {
    const said = message[name];
    if (CONTINUED.includes(name) && typeof said === "string" && typeof value === "string") message[name] = said + value;
    else if (value !== null || said === undefined) message[name] = value;
  }
  if (!Array.isArray(calls)) return;
  const all: unknown[] = Array.isArray(message.tool_calls) ? [...message.tool_calls] : [];
  for (const call of calls) if (isRecord(call)) addCall(all, call);
  message.tool_calls = all;
}

/** A piece without an index continues the last call, unless it has an id of its own. */
function addCall(all: unknown[], { index, ...piece }: Fields): void {
  const last = typeof piece.id === "string" && piece.id !== "" ? all.length : Math.max(0, all.length - 1);
  const theirs = numberOf(index);
  const place = theirs !== undefined && theirs <= all.length ? theirs : last;
  const before = all[place];
  const call: Fields = isRecord(before) ? { ...before } : { type: "function" };
  for (const [name, value] of Object.entries(piece)) {
    const own = call[name];
    if (!isRecord(value)) call[name] = value ?? own;
    else call[name] = isRecord(own) ? joined(own, value) : value;
  }
  all[place] = call;
}

/** Name and arguments of a call: a text continues the one before it. */
function joined(before: Fields, more: Fields): Fields {
  const all: Fields = { ...before };
  for (const [name, value] of Object.entries(more)) {
    const said = all[name];
    all[name] = typeof said === "string" && typeof value === "string" ? said + value : (value ?? said);
  }
  return all;
}
