import { isRecord } from "../platform/records.ts";
import { type Filtering, filterEntries, filterMembers, isScalar, type Origin } from "./filtering.ts";

/** What of a chat's tools, and of the choice among them, is sent on. Forms of other APIs become those of a chat. Source: PRV-1, PRV-31. */

const TOOL_MEMBERS = new Set(["type", "function", "custom"]);
const FUNCTION_MEMBERS = new Set(["name", "description", "parameters", "strict"]);

/** Built-in tools (search, code, connectors) are dropped: they run at the provider and cost extra there. */
export function filterTools(tools: unknown, filtering: Filtering): unknown {
  if (!Array.isArray(tools)) return undefined;
  const origins: Origin[] = [];
  const passes = filterEntries(tools, (tool, i) => {
    const path = `tools.${i}`;
    const kept = filterTool(tool, path, filtering);
    if (kept !== undefined) origins.push({ path });
    return kept;
  });
  if (passes.length < tools.length) filtering.origins.set("tools", origins);
  return passes.length === 0 && tools.length > 0 ? undefined : passes;
}

/** A function as the Responses API or Anthropic's has it, without a member `function`: it becomes a chat's. */
function asChatTool(tool: unknown): unknown {
  if (!isRecord(tool) || tool.function !== undefined || typeof tool.name !== "string") return tool;
  const { type = "function", input_schema: schema, ...named } = tool;
  if (isRecord(schema)) return { type: "function", function: { ...named, parameters: schema } };
  return type === "function" ? { type, function: named } : tool;
}

function filterTool(given: unknown, path: string, filtering: Filtering): unknown {
  const tool = asChatTool(given);
  // A tool without a type is a function, as some servers have it.
  const type = isRecord(tool) ? (tool.type ?? "function") : undefined;
  if (typeof type === "string" && filtering.allows("tools", type)) return tool;
  if (!isRecord(tool) || !(type === "custom" || (type === "function" && isRecord(tool.function)))) {
    filtering.drop(path);
    return undefined;
  }
  const passes = filterMembers(tool, { field: "tools", path, known: TOOL_MEMBERS }, filtering);
  if (!isRecord(tool.function)) return passes;
  const place = { field: "tools.function", path: `${path}.function`, known: FUNCTION_MEMBERS };
  const named = withoutNulls(filterMembers(tool.function, place, filtering));
  return named === tool.function ? passes : { ...passes, function: named };
}

/** Mistral and strict gateways refuse a function whose parameters are null. Source: DIA-15. */
function withoutNulls(called: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const members = Object.entries(called);
  return members.some(([, value]) => value === null)
    ? Object.fromEntries(members.filter(([, value]) => value !== null))
    : called;
}

const TOOL_CHOICES = new Set(["function", "custom", "allowed_tools"]);
/** Choices that have one name in a chat: Anthropic's types, and Mistral's word. */
const NAMED_CHOICES: ReadonlyMap<unknown, string> = new Map([
  ["auto", "auto"],
  ["none", "none"],
  ["any", "required"],
  ["required", "required"],
]);

export function filterToolChoice(given: unknown, filtering: Filtering): unknown {
  const named = asChatTool(given);
  // A choice without a type is that of a function, as a tool without one is.
  const isFunction = isRecord(named) && named.type === undefined && isRecord(named.function);
  const choice = isFunction ? { type: "function", ...named } : named;
  if (typeof choice === "string") return isScalar(choice) ? (NAMED_CHOICES.get(choice) ?? choice) : undefined;
  if (!isRecord(choice) || typeof choice.type !== "string") return undefined;
  const { type, name, disable_parallel_tool_use: isSingle } = choice;
  if (filtering.allows("tool_choice", type) || filtering.allows("tools", type) || TOOL_CHOICES.has(type)) return choice;
  const chosen = type === "tool" && typeof name === "string" ? { type: "function", function: { name } } : undefined;
  const known = chosen ?? NAMED_CHOICES.get(type);
  if (known !== undefined && isSingle === true && !("parallel_tool_calls" in filtering.body))
    filtering.changed.set("parallel_tool_calls", false);
  return known;
}
