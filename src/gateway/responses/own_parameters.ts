import { isRecord } from "../../platform/records.ts";
import { type Namer, ownName } from "../end_users.ts";
import type { OwnRules } from "../filtering.ts";
import { END_USER_CHARS_MAX, isTopLogprobs, type ParameterGroup, TOP_LOGPROBS_MAX } from "../parameters.ts";
import { isHostedTool } from "./hosted.ts";
import { readCallId } from "./kept_in_ids.ts";
import { isMessageType, placeOf, type ResponsesBody } from "./request.ts";
import { isSealedHere } from "./sealed_reasoning.ts";

/**
 * The list of everything that is sent on to a provider's own /responses. Everything else is dropped and named in
 * `x-dropped-params`. Before you add something, answer the questions in `parameters.ts`. Source: RSP-5, PRV-1, PRV-2.
 */

const words = (names: string): readonly string[] => names.trim().split(/\s+/);

/** The table of docs/api.md: names, and what passes of them. */
export const OWN_RESPONSES_GROUPS: readonly Omit<ParameterGroup, "filter">[] = [
  { title: "Basics", names: words("model input instructions stream max_output_tokens") },
  { title: "Sampling", names: words("temperature top_p") },
  { title: "Log probabilities", names: ["top_logprobs"], condition: `0 to ${TOP_LOGPROBS_MAX}` },
  {
    title: "Tools",
    names: words("tools tool_choice parallel_tool_calls"),
    condition: "tools of type `function`, `custom` and `namespace`",
  },
  { title: "Text output", names: ["text"], condition: "its members `format`, `verbosity`" },
  { title: "Reasoning", names: ["reasoning"], condition: "its members `effort`, `summary`" },
  {
    title: "Included output",
    names: ["include"],
    condition: "`reasoning.encrypted_content`, `message.output_text.logprobs`",
  },
  { title: "Truncation", names: ["truncation"], condition: "a string of at most 64 characters" },
  {
    title: "End user",
    names: words("user safety_identifier prompt_cache_key"),
    condition: "a string of at most 512 characters, sent as a digest of the account's own",
  },
  { title: "Storage", names: ["store"], condition: "always sent as `false`" },
];

const SCALAR_CHARS_MAX = 64;
const INCLUDES: readonly unknown[] = ["reasoning.encrypted_content", "message.output_text.logprobs"];
const TEXT_MEMBERS = new Set(["format", "verbosity"]);
const REASONING_MEMBERS = new Set(["effort", "summary"]);
/** Fields that are neither sent on nor named: they have no effect, or the gateway handles them. */
const SILENT: ReadonlySet<string> = new Set(
  words(
    "model metadata client_metadata store stream_options previous_response_id conversation prompt background usage",
  ),
);
/** Items of these types are sent on, without their ids: a provider that stores nothing does not know them. */
const ITEMS: ReadonlySet<unknown> = new Set(
  words(
    "message function_call function_call_output custom_tool_call custom_tool_call_output reasoning additional_tools",
  ),
);
const PARTS: ReadonlySet<unknown> = new Set(words("input_text output_text refusal input_image"));
const TOOLS: ReadonlySet<unknown> = new Set(words("function custom namespace"));

type Fields = Readonly<Record<string, unknown>>;

/** The fields that are sent on, without `model`, the paths of those that are not, and that of the first part of an item that may not be sent. */
export type OwnBody = { fields: Record<string, unknown>; dropped: string[]; unsent?: string | undefined };

/** Filters a request by the list and by what the route, or the model, allows and drops. Names are those of /responses: `reasoning.effort`. */
export function ownBody(request: ResponsesBody, by: OwnRules, namer: Namer): OwnBody {
  const body: OwnBody = { fields: { store: false }, dropped: [] };
  const filtering: Filtering = { request, by, namer, dropped: body.dropped };
  for (const [name, value] of Object.entries(request as Fields)) {
    if (SILENT.has(name) || value === null || value === undefined) continue;
    const passes = passing(name, value, filtering);
    if (passes === undefined) body.dropped.push(name);
    else body.fields[name] = passes;
  }
  body.unsent = filtering.unsent;
  // Providers refuse parameters about tools in a request without tools.
  if (!Array.isArray(body.fields.tools) || body.fields.tools.length === 0) {
    for (const name of ["tools", "tool_choice", "parallel_tool_calls"]) delete body.fields[name];
  }
  return body;
}

/** Of what is only looked through. */
const NOBODY: Namer = { secretKey: new Uint8Array(), accountId: 0 };

type Filtering = { request: ResponsesBody; by: OwnRules; namer: Namer; dropped: string[]; unsent?: string };

function passing(name: string, value: unknown, filtering: Filtering): unknown {
  const { allowedParams, droppedParams } = filtering.by;
  if (droppedParams.has(name)) return undefined;
  if (allowedParams.has(name)) return value;
  switch (name) {
    case "input":
      return Array.isArray(value)
        ? entries(value, (item, i) => itemOf(item, placeOf(filtering.request, i), filtering))
        : value;
    case "instructions":
    case "stream":
    case "max_output_tokens":
    case "temperature":
    case "top_p":
    case "parallel_tool_calls":
      return value;
    case "top_logprobs":
      return isTopLogprobs(value) ? value : undefined;
    case "tools":
      return Array.isArray(value) ? entries(value, (tool, i) => toolOf(tool, `tools.${i}`, filtering)) : undefined;
    case "tool_choice":
      return isRecord(value) && isHostedChoice(value, allowedParams) ? undefined : value;
    case "text":
      return members(value, { name, known: TEXT_MEMBERS }, filtering);
    case "reasoning":
      return members(value, { name, known: REASONING_MEMBERS }, filtering);
    case "include":
      return Array.isArray(value) ? entries(value, (one, i) => includeOf(one, `include.${i}`, filtering)) : undefined;
    case "truncation":
      return typeof value === "string" && value.length <= SCALAR_CHARS_MAX ? value : undefined;
    case "user":
    case "safety_identifier":
    case "prompt_cache_key":
      return typeof value === "string" && value.length <= END_USER_CHARS_MAX
        ? ownName(filtering.namer, value)
        : undefined;
    default:
      return undefined;
  }
}

/** The entries that pass. `pass` has recorded the others. */
function entries(list: readonly unknown[], pass: (entry: unknown, i: number) => unknown): unknown[] {
  return list.map(pass).filter((entry) => entry !== undefined);
}

/** Whether a route's list has a value of a field, as in `tools.web_search`. */
function lists(params: ReadonlySet<string>, field: string, value: unknown): boolean {
  return typeof value === "string" && params.has(`${field}.${value}`);
}

/** An unlisted value is not named: it asks for output of what the request does not have, such as a hosted tool. */
function includeOf(one: unknown, path: string, { by: { allowedParams, droppedParams }, dropped }: Filtering): unknown {
  if (lists(droppedParams, "include", one)) dropped.push(path);
  else if (INCLUDES.includes(one) || lists(allowedParams, "include", one)) return one;
  return undefined;
}

function members(
  value: unknown,
  { name, known }: { name: string; known: ReadonlySet<string> },
  { by: { allowedParams, droppedParams }, dropped }: Filtering,
) {
  const passes: Record<string, unknown> = {};
  for (const [member, set] of Object.entries(value as Fields)) {
    if (set === null || set === undefined) continue;
    const path = `${name}.${member}`;
    if ((known.has(member) || allowedParams.has(path)) && !droppedParams.has(path)) passes[member] = set;
    else dropped.push(path);
  }
  return passes;
}

function itemOf(item: unknown, path: string, filtering: Filtering): unknown {
  const { id, ...given } = item as Record<string, unknown>;
  // Only a chat's provider gets what a call's id keeps.
  const fields = typeof given.call_id === "string" ? { ...given, call_id: readCallId(given.call_id).id } : given;
  const { type = "message" } = fields;
  if (type === "item_reference") return undefined;
  if (type === "reasoning") return isForeign(fields) ? fields : undefined;
  if (!ITEMS.has(type)) {
    // Such an item is identified by its id.
    if (lists(filtering.by.allowedParams, "input", type)) return item;
    filtering.dropped.push(path);
    return undefined;
  }
  if (type === "additional_tools") {
    const tools = entries(fields.tools as unknown[], (tool, i) => toolOf(tool, `${path}.tools.${i}`, filtering));
    return { ...fields, tools };
  }
  const name = isMessageType(type) ? "content" : "output";
  const content = fields[name];
  if (!Array.isArray(content)) return fields;
  const parts = entries(content, (part, j) => partOf(part, `${path}.${name}.${j}`, filtering));
  return { ...fields, [name]: parts };
}

/** The places in the request of the items and tools that are sent on: a provider counts without those that are not. */
export function ownPlaces(request: ResponsesBody, by: OwnRules): { input: number[]; tools: number[] } {
  const { input, tools } = request;
  const filtering = { request, by, namer: NOBODY, dropped: [] };
  const kept = (list: readonly unknown[], pass: typeof itemOf) =>
    list.flatMap((entry, i) => (pass(entry, "", filtering) === undefined ? [] : [i]));
  return { input: typeof input === "string" ? [] : kept(input, itemOf), tools: kept(tools ?? [], toolOf) };
}

/** Only the provider itself can read the reasoning that it encrypted. Without it, or sealed here, the provider would refuse the item. */
function isForeign({ encrypted_content: sealed }: Fields): boolean {
  return typeof sealed === "string" && sealed !== "" && !isSealedHere(sealed);
}

/** Files and audio cost extra: as in chat completions, a route must allow `content.file` or `content.input_audio`. Source: PRV-29. */
function partOf(part: unknown, path: string, filtering: Filtering): unknown {
  const { allowedParams: allowed } = filtering.by;
  const { type } = part as { type: unknown };
  if (PARTS.has(type) || lists(allowed, "content", type === "input_file" ? "file" : type)) return part;
  filtering.unsent ??= path;
  return undefined;
}

function toolOf(tool: unknown, path: string, { by: { allowedParams: allowed }, dropped }: Filtering): unknown {
  const { type } = tool as { type: unknown };
  if (TOOLS.has(type) || lists(allowed, "tools", type)) return tool;
  dropped.push(path);
  return undefined;
}

function isHostedChoice({ type }: Fields, allowed: ReadonlySet<string>): boolean {
  return typeof type === "string" && isHostedTool(type) && !allowed.has(`tools.${type}`);
}
