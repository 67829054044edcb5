import { isRecord } from "../platform/records.ts";

/**
 * OpenAI's first form of tools, which most providers do not know: `functions`, `function_call` and messages of the role `function`. Here
 * they become tools. Source: DIA-9.
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
