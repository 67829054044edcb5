import { isRecord } from "../platform/records.ts";

/**
 * OpenAI's first form of tools, which most providers do not know: `functions`, `function_call` and messages of the role `function`. Here
 * they become tools, and the calls of an answer become a `function_call`. Source: DIA-9.
 */

type Fields = Readonly<Record<string, unknown>>;

const FUNCTION_MEMBERS = ["name", "description", "parameters", "strict"] as const;
/** A legacy call has no id. Mistral takes only ids of nine letters and digits. */
const ID_DIGITS = 5;

/** Functions as tools, and the choice among them; undefined: none was made. */
export function toolsOf(functions: readonly unknown[], called: unknown): { tools: Fields[]; choice: unknown } {
  const tools = functions.filter(isRecord).map((one) => ({ type: "function", function: functionOf(one) }));
  const choice = isRecord(called) ? { type: "function", function: { name: called.name } } : (called ?? undefined);
  return { tools, choice };
}

function functionOf(one: Fields): Fields {
  const entries = FUNCTION_MEMBERS.map((name) => [name, one[name]] as const);
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
}

/** Whether a client reads `function_call`, and knows nothing of tool calls. */
export function readsLegacyCalls({ functions, tools }: Fields): boolean {
  const hasTools = Array.isArray(tools) && tools.length > 0;
  return Array.isArray(functions) && functions.length > 0 && !hasTools;
}

/** A choice with its call in the first form, in which a message has one: its first. `part`: where the choice has it. */
export function withLegacyCall(choice: Fields, part: "message" | "delta"): Fields {
  const said = choice[part];
  const isEnd = choice.finish_reason === "tool_calls";
  const calls = isRecord(said) ? said.tool_calls : undefined;
  if (!isEnd && calls === undefined) return choice;
  const { tool_calls: _, ...others } = isRecord(said) ? said : {};
  const first: unknown = Array.isArray(calls) ? calls.find(isFirst) : undefined;
  const called = isRecord(first) && isRecord(first.function) ? { function_call: first.function } : {};
  return {
    ...choice,
    ...(isRecord(said) && { [part]: { ...others, ...called } }),
    ...(isEnd && { finish_reason: "function_call" }),
  };
}

/** A message or delta whose call in the first form is one of a tool: some servers answer tools so. The message itself if it has none. */
export function withToolCall(said: Fields): Fields {
  const { function_call: call, ...others } = said;
  if (!isRecord(call) || Array.isArray(said.tool_calls)) return said;
  return { ...others, tool_calls: [{ index: 0, function: call }] };
}

function isFirst(call: unknown, place: number): boolean {
  return isRecord(call) && (call.index ?? place) === 0;
}

/** Turns the legacy calls of a conversation into tool calls: an answer has the id of the last call before it. */
export class LegacyCalls {
  #calls = 0;

  /** The message itself if it has no legacy call and is no answer to one. */
  converted(message: Fields): Fields {
    if (message.role === "function") {
      const { role: _, name: __, ...rest } = message;
      return { ...rest, role: "tool", tool_call_id: this.#id(), content: message.content ?? "" };
    }
    const { function_call: call, ...rest } = message;
    if (call === undefined) return message;
    if (!isRecord(call) || Array.isArray(message.tool_calls)) return rest;
    this.#calls += 1;
    const { name, arguments: args = "{}" } = call;
    return { ...rest, tool_calls: [{ id: this.#id(), type: "function", function: { name, arguments: args } }] };
  }

  #id(): string {
    return `call${String(this.#calls).padStart(ID_DIGITS, "0")}`;
  }
}
