import { isRecord } from "../platform/records.ts";
import { opened } from "./provider_json.ts";

/**
 * The calls of a message or delta in the form of OpenAI's schema, however they are written: one alone, by their numbers, in a list in a list
 * or in a text; with name and arguments in the call itself, as the Responses API and Anthropic have them. Source: STR-6.
 */

type Fields = Readonly<Record<string, unknown>>;

/** The arguments under other names. */
const ARGUMENTS = ["arguments", "input", "args", "parameters"] as const;
/** Parts of a content that are calls. */
const CALL_PARTS: ReadonlySet<unknown> = new Set(["tool_use", "toolUse", "tool_call", "function_call"]);

/** The calls as a list, the same if it is one already; undefined: there are none. */
export function callsIn({ tool_calls: calls, toolCalls = calls }: Fields): readonly unknown[] | undefined {
  const given = typeof toolCalls === "string" ? opened(toolCalls) : toolCalls;
  const list = isRecord(given) ? listOf(given) : given;
  if (!Array.isArray(list)) return undefined;
  return list.some(isOdd) ? list.flat().filter(isRecord).map(plainCall) : list;
}

function listOf(calls: Fields): unknown[] {
  const all = Object.entries(calls);
  const isNumbered = all.length > 0 && all.every(([name, call]) => /^\d{1,4}$/.test(name) && isRecord(call));
  return isNumbered ? all.map(([, call]) => call) : [calls];
}

/** Whether a part of a content is a call. */
export function isCallPart(part: Fields): boolean {
  return CALL_PARTS.has(part.type) && typeof part.name === "string";
}

function isOdd(call: unknown): boolean {
  if (!isRecord(call)) return true;
  if (isRecord(call.custom)) return false;
  return isRecord(call.function) ? argumentsIn(call.function) !== call.function.arguments : hasOwn(call);
}

/** Whether a call, or a part of one, has its function in itself, or in a text. */
function hasOwn({ function: called, name, arguments: args }: Fields): boolean {
  return typeof called === "string" || typeof name === "string" || typeof args === "string" || isRecord(args);
}

export function plainCall(call: unknown): unknown {
  if (!isRecord(call) || !isOdd(call)) return call;
  const { index, id, call_id, type: _, function: given, name, ...others } = call;
  const opening = opened(given);
  const said = isRecord(opening) ? opening : { name: typeof given === "string" ? given : name, ...others };
  const rest = isRecord(opening) ? others : {};
  const called = { ...(said.name !== undefined && { name: said.name }), arguments: argumentsIn(said) };
  const own = id ?? call_id;
  return {
    ...(index !== undefined && { index }),
    ...(own !== undefined && { id: own }),
    type: "function",
    ...rest,
    function: called,
  };
}

function argumentsIn(called: Fields): unknown {
  const name = ARGUMENTS.find((one) => called[one] !== undefined && called[one] !== null && called[one] !== "");
  return name === undefined ? called.arguments : called[name];
}
