import { expect } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import type { Answer } from "../gateway/shop.ts";
import type { ClientReads, Path } from "./form.ts";
import type { Run } from "./runs.ts";

/** What clients read of an answer, whatever its path and form. */
type Read = {
  text: string;
  reasoning: string;
  calls: { name: string; arguments: string }[];
  finish: string | undefined;
  usage: number[] | undefined;
  /** What the usage says of the charge. */
  spent: unknown[] | null;
  /** The code of an error event. */
  error: string | undefined;
  message: string | undefined;
};

/** The field that has the prompt. */
const PROMPTS: Readonly<Record<Path, string>> = {
  ...{ chat: "messages", responses: "input", completions: "prompt" },
  ...{ embeddings: "input", images: "prompt", rerank: "documents" },
};

// biome-ignore lint/suspicious/noExplicitAny: parsed answers, whose fields the checks compare.
type Json = any;

/** Checks what the client reads. */
export function expectRead({ path, body, entry: { client } }: Run, answer: Answer): void {
  const { error, text, param } = client;
  if (error !== undefined && text === undefined) {
    const ofPrompt = PROMPTS[path];
    expectRefusal(answer, error, { param: error === "context_length_exceeded" ? ofPrompt : (param ?? null) });
    expectMessage(client, answer.json.error.message);
    // Words by which clients know it that do not read the code.
    if (error === "context_length_exceeded") expect(answer.json.error.message).toMatch(/\bprompt is too long\b/i);
    expectWait(client, answer);
    for (const words of client.unsaid ?? []) expect(answer.text).not.toContain(words);
    return;
  }
  expect({ status: answer.status, text: answer.status === 200 ? "" : answer.text }).toEqual({ status: 200, text: "" });
  const isStream = body.stream === true;
  const payloads = isStream ? payloadsOf(answer.text) : [];
  const events = payloads.filter((payload) => payload !== "[DONE]").map((payload): Json => JSON.parse(payload));
  const read =
    path === "responses" ? readResponse(isStream ? events : answer.json) : readChat(isStream ? events : answer.json);
  if (isStream) expectEnd(path, payloads, error);
  for (const name of ["text", "reasoning", "calls", "finish", "usage", "spent"] as const) {
    if (name === "finish" && path === "responses") continue;
    // A stream tells the usage of a chat only if it was asked for.
    if (name === "usage" && isStream && path !== "responses" && !asksForUsage(body)) continue;
    if (client[name] !== undefined) expect({ [name]: read[name] }).toEqual({ [name]: client[name] as Json });
  }
  if (error !== undefined) expectMessage(client, read.message);
  if (error !== undefined && path === "chat") expect(read.error).toBe(error);
  if (client.json !== undefined) expect(answer.json).toMatchObject(client.json);
  if (client.events !== undefined) {
    expect(events).toMatchObject([...client.events]);
  }
  expectWire({ path, body, client }, answer.text, isStream ? events : [answer.json]);
}

/** What a strict client needs beside the values that it reads. */
function expectWire(
  { path, body, client }: Pick<Run, "path" | "body"> & { client: ClientReads },
  text: string,
  answers: readonly Json[],
): void {
  const { absent = [], unsaid = [], uniqueIds, wellFormed } = client;
  for (const words of unsaid) expect(text).not.toContain(words);
  for (const path of absent) for (const one of answers) expect(valueAt(one, path)).toBeUndefined();
  // Each half of a character that is left of an escape has no other half beside it.
  if (wellFormed === true) expect(text).not.toMatch(/\\ud[89ab]|\\ud[c-f][0-9a-f]{2}/i);
  if (uniqueIds !== true || path !== "chat") return;
  const part = body.stream === true ? "delta" : "message";
  const calls = answers.flatMap((one) => one.choices?.[0]?.[part]?.tool_calls ?? []);
  const ids = calls.flatMap((call: Json) => call.id ?? []);
  expect([new Set(ids).size, ids.every(Boolean)]).toEqual([client.calls?.length ?? 0, true]);
}

function valueAt(value: Json, path: string): Json {
  return path.split(".").reduce((inner, name) => inner?.[name], value);
}

/** The data of all events: those of a response have a name in a line of their own. */
function payloadsOf(text: string): string[] {
  return text.split("\n").flatMap((line) => (line.startsWith("data: ") ? [line.slice(6)] : []));
}

function asksForUsage({ stream_options: options, usage }: Json): boolean {
  return options?.include_usage === true || usage?.include === true;
}

/** A chat ends with [DONE], once, and only if it is whole. A response ends with an event that says how. */
function expectEnd(path: string, payloads: readonly string[], error: string | undefined): void {
  const done = payloads.filter((payload) => payload === "[DONE]").length;
  if (path !== "responses") {
    expect([done, error]).toEqual([error === undefined ? 1 : 0, error]);
    return;
  }
  const type: unknown = JSON.parse(payloads.at(-1) ?? "{}").type;
  if (error !== undefined) expect(type).toBe("response.failed");
  else expect(["response.completed", "response.incomplete"]).toContain(String(type));
}

function expectMessage({ message }: ClientReads, said: string | undefined): void {
  if (typeof message === "string") expect(said).toContain(message);
  else if (message !== undefined) expect(String(said)).toMatch(message);
}

function expectWait({ retryAfter }: ClientReads, { headers }: Answer): void {
  if (retryAfter === undefined) return;
  const [from, to] = retryAfter;
  const seconds = Number(headers.get("retry-after"));
  expect(seconds).toBeGreaterThanOrEqual(from);
  expect(seconds).toBeLessThanOrEqual(to);
}

/** A whole chat or text completion, or the chunks of one, by the first choice. */
function readChat(answer: Json | Json[]): Read {
  const chunks: Json[] = Array.isArray(answer) ? answer : [answer];
  const parts = chunks.flatMap((chunk) => saidIn(chunk.choices?.[0] ?? {}));
  const calls: { name: string; arguments: string }[] = [];
  for (const { tool_calls: called } of parts)
    for (const [place, call] of (called ?? []).entries()) {
      // The calls of a whole message have no index: their place is it.
      const index = call.index ?? place;
      const before = calls[index] ?? { name: "", arguments: "" };
      const { name = "", arguments: more = "" } = call.function ?? {};
      calls[index] = { name: before.name + name, arguments: before.arguments + more };
    }
  const failed = chunks.find(({ error }) => error)?.error;
  const usage = chunks.findLast((chunk) => chunk.usage)?.usage;
  return {
    text: parts.map(({ content }) => content ?? "").join(""),
    reasoning: parts.map((part) => part.reasoning_content ?? part.reasoning ?? "").join(""),
    calls,
    finish: chunks.map((chunk) => chunk.choices?.[0]?.finish_reason).find(Boolean),
    usage: usage && [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens],
    spent: spentIn(usage),
    error: failed?.code,
    message: failed?.message,
  };
}

function saidIn({ message, delta = message, text }: Json): Json[] {
  return [delta ?? (text === undefined ? [] : { content: text })].flat();
}

function spentIn(usage: Json): unknown[] | null {
  return usage?.cost === undefined && usage?.mode === undefined ? null : [usage.cost, usage.mode];
}

/** A whole response, or the events of one. */
function readResponse(answer: Json | Json[]): Read {
  const isStream = Array.isArray(answer);
  const response: Json = isStream ? (answer.at(-1)?.response ?? {}) : answer;
  const output: Json[] = response.output ?? [];
  const textOf = (type: string) =>
    output
      .flatMap((item) => [...(item.content ?? []), ...(item.summary ?? [])])
      .filter((part) => part.type === type)
      .map(({ text }) => text)
      .join("");
  const deltas = (type: string) =>
    (isStream ? answer : [])
      .filter((event: Json) => event.type === type)
      .map(({ delta }: Json) => delta)
      .join("");
  const { usage, error } = response;
  return {
    text: isStream ? deltas("response.output_text.delta") : textOf("output_text"),
    reasoning: textOf("reasoning_text") || textOf("summary_text"),
    calls: output
      .filter(({ type }) => type === "function_call")
      .map((call) => ({ name: call.name, arguments: call.arguments })),
    finish: undefined,
    usage: usage && [usage.input_tokens, usage.output_tokens, usage.total_tokens],
    spent: spentIn(usage),
    error: error?.code,
    message: error?.message,
  };
}
