import { ProviderFailure } from "../catalog/provider_errors.ts";
import { isRecord } from "../platform/records.ts";
import { numberOf } from "./call_numbers.ts";
import { finishOf } from "./finish_reasons.ts";
import { parseObject } from "./provider_json.ts";
import { saidIn, saysSomething } from "./said.ts";
import { isDone, SseReader } from "./sse.ts";

/** Answers in another form than was asked for: a whole one to a stream, and a stream to a whole request. Source: STR-8. */

type Fields = Record<string, unknown>;

/** How a body begins that is events, whatever its content type says. */
const EVENTS = /^\uFEFF?\s*(?:(?:data|event|id|retry|error)[ \t]*:|:)/i;
/** … or lines of JSON. */
const LINES = /^\s*\{[^\n]*\}\s*\n\s*\{/;
/** Texts of a delta that are continued by those of the next one. */
const CONTINUED = ["content", "reasoning_content", "reasoning", "refusal"];
const UTF_8 = new TextEncoder();

export function isEvents(text: string): boolean {
  return EVENTS.test(text) || LINES.test(text);
}

/** The payloads of a short stream that says what a whole chat answer says. */
export function payloadsOfWhole({ choices, usage, ...head }: Fields): string[] {
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
  if (isRecord(usage)) chunks.push({ ...head, object, choices: [], usage });
  return [...chunks.map((chunk) => JSON.stringify(chunk)), "[DONE]"];
}

/** In a stream each call of a tool has its place. */
function deltaOf(message: unknown): unknown {
  if (!isRecord(message) || !Array.isArray(message.tool_calls)) return message;
  const calls = message.tool_calls.map((call: unknown, index) => (isRecord(call) ? { index, ...call } : call));
  return { ...message, tool_calls: calls };
}

/** The JSON of the whole chat answer that a stream says. `check` may throw for an event. Throws ProviderFailure if it is not complete. */
export function wholeOfEvents(text: string, check: (event: Fields) => void): string {
  const reader = new SseReader();
  const payloads = [...reader.push(UTF_8.encode(text)), ...reader.end()];
  const choices = new Map<number, Fields>();
  let head: Fields = {};
  let usage: unknown;
  let hasEnd = false;
  for (const payload of payloads) {
    hasEnd = isDone(payload);
    if (hasEnd) break;
    const event = parseObject(payload)?.value;
    if (event === undefined) throw notAnAnswer();
    check(event);
    const { choices: more, usage: reported, ...rest } = event;
    head = { ...rest, ...head };
    if (isRecord(reported)) usage = reported;
    for (const choice of Array.isArray(more) ? more : []) if (isRecord(choice)) addChoice(choices, choice);
  }
  const all = [...choices.values()];
  if (all.length === 0 || !(hasEnd || all.every((choice) => finishOf(choice) !== undefined))) throw notAnAnswer();
  return JSON.stringify({ ...head, object: "chat.completion", choices: all, usage });
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
