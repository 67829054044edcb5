import type { Route } from "../catalog/catalog.ts";
import { Refusal } from "../errors.ts";
import type { Span } from "../http/json_text.ts";
import { isRecord } from "../platform/records.ts";
import { type Namer, ownName } from "./end_users.ts";

/**
 * The list of all parameters that are sent on to a provider. All other fields of a request are accepted, dropped, and named in the
 * response header `x-dropped-params`. Source: PRV-1, PRV-2.
 *
 * Before you add a parameter, answer these questions. If one answer is yes, do not add it, or give it a condition:
 * - Does it change what the provider charges: a service tier, a search, a cache write, audio, a better image?
 * - Does it name another model, another provider or another body, directly or within an object?
 * - Does it produce more output than `n` choices of `max_tokens`, for example several candidates?
 * - Does it hide tokens from the stream? A client that leaves is charged for what it was sent.
 * - Does it store data at the provider, read data stored there, or run code or templates there?
 * - Does it add text to the prompt that `prompt.ts` does not count, or run a pattern of the customer for each token?
 * - Does it change the form of the answer, so that the gateway cannot read it?
 *
 * Then add its name to a group below, and run `bun scripts/parameters_table.ts`, which writes the tables of docs/api.md. A parameter
 * that only one provider needs is allowed on its route instead: `cli model route … --allow-param`. One that a provider does not take
 * is dropped on its route: `--drop-param`.
 *
 * Other files change only if the parameter's value must be checked (`request_shapes.ts`) or rewritten (`chatPayload` in
 * `chat_payload.ts`).
 */

/**
 * Filters a value: returns the value itself if all of it passes, a copy without the parts that do not, or undefined if nothing
 * passes. Dropped parts are noted in `filtering`.
 */
type Filter = (value: unknown, filtering: Filtering) => unknown;

/** Parameters that are sent on for the same reason. `filter`: only what passes it is sent on. */
export type ParameterGroup = {
  title: string;
  names: readonly string[];
  filter?: Filter;
  /** What the filter passes, in words. */
  condition?: string;
};

const words = (names: string): readonly string[] => names.trim().split(/\s+/);

const SCALAR_CHARS_MAX = 64;
export const END_USER_CHARS_MAX = 512;
const END_USER_NAME = `a string of at most ${END_USER_CHARS_MAX} characters, sent as a digest of the account's own`;
/** Maximum number of log probabilities of each token, beside its own. */
export const TOP_LOGPROBS_MAX = 20;
const SCALAR = "a number, a boolean or a string of at most 64 characters";

/** Long strings are refused: some chat templates print such values, and the prompt would grow uncounted. */
function isScalar(value: unknown): boolean {
  if (typeof value === "string") return value.length <= SCALAR_CHARS_MAX;
  return typeof value === "number" || typeof value === "boolean";
}

/** Only a number, which `answer_size.ts` counts: some providers would read a text as one. Source: END-16. */
export function isTopLogprobs(value: unknown): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= TOP_LOGPROBS_MAX;
}

const CHAT_GROUPS: readonly ParameterGroup[] = [
  { title: "Basics", names: words("model stream n max_tokens max_completion_tokens") },
  {
    title: "Messages",
    names: ["messages"],
    filter: filterMessages,
    condition:
      "parts of type `text`, `image_url`, `refusal`, `thinking` and `reasoning`; message members that OpenAI and others define",
  },
  {
    title: "Sampling",
    names: words(`
      temperature top_p top_k top_a min_p typical_p tfs_z top_n_sigma dynatemp_range dynatemp_exponent
      mirostat mirostat_tau mirostat_eta xtc_probability xtc_threshold seed random_seed do_sample
      frequency_penalty presence_penalty repetition_penalty repeat_penalty repeat_last_n
      dry_multiplier dry_base dry_allowed_length dry_penalty_last_n`),
    filter: only(isScalar),
    condition: SCALAR,
  },
  {
    title: "Token bias, stop sequences",
    names: words(`
      logit_bias samplers dry_sequence_breakers stop stop_token_ids bad_words allowed_token_ids`),
  },
  {
    title: "Text output",
    names: words(`
      include_stop_str_in_output no_stop_trim skip_special_tokens spaces_between_special_tokens
      add_generation_prompt continue_final_message logprobs`),
    filter: only((value) => typeof value === "boolean"),
    condition: "a boolean",
  },
  {
    title: "Log probabilities",
    names: ["top_logprobs"],
    filter: only(isTopLogprobs),
    condition: `0 to ${TOP_LOGPROBS_MAX}`,
  },
  {
    title: "Structured output",
    names: words(`
      response_format guided_json guided_regex guided_choice guided_grammar guided_whitespace_pattern
      structured_outputs json_schema grammar regex ebnf`),
  },
  {
    title: "Tools",
    names: ["tools"],
    filter: filterTools,
    condition: "tools of type `function` and `custom`, with their defined members",
  },
  {
    title: "Tool choice",
    names: ["tool_choice"],
    filter: filterToolChoice,
    condition: "a string, or one of type `function`, `custom` or `allowed_tools`",
  },
  { title: "Functions", names: words("functions function_call parallel_tool_calls") },
  {
    title: "Reasoning",
    names: words("reasoning_effort enable_thinking verbosity separate_reasoning"),
    filter: only(isScalar),
    condition: SCALAR,
  },
  {
    title: "Reasoning object",
    names: ["reasoning"],
    filter: membersOf("reasoning", words("effort enabled summary")),
    condition: "its members `effort`, `enabled`, `summary`",
  },
  {
    title: "Thinking object",
    names: ["thinking"],
    filter: membersOf("thinking", words("type budget_tokens clear_thinking")),
    condition: "its members `type`, `budget_tokens`, `clear_thinking`",
  },
  {
    title: "Chat template switches",
    names: ["chat_template_kwargs"],
    filter: membersOf(
      "chat_template_kwargs",
      words("enable_thinking thinking preserve_thinking clear_thinking reasoning_effort"),
    ),
    condition: "its members `enable_thinking`, `thinking`, `preserve_thinking`, `clear_thinking`, `reasoning_effort`",
  },
  {
    title: "Show reasoning",
    names: ["include_reasoning"],
    filter: only((value) => value === true),
    condition: "`true`",
  },
  {
    title: "Reasoning format",
    names: ["reasoning_format"],
    filter: only((value) => typeof value === "string" && isScalar(value) && value !== "hidden"),
    condition: "any string except `hidden`",
  },
  {
    title: "Streams",
    names: ["stream_options"],
    filter: membersOf("stream_options", words("include_usage include_obfuscation")),
    condition: "its members `include_usage`, `include_obfuscation`",
  },
  {
    title: "End user",
    names: words("user safety_identifier prompt_cache_key"),
    filter: endUserName,
    condition: END_USER_NAME,
  },
  {
    title: "Metadata",
    names: ["metadata"],
    filter: (value, { body }) => (body.store === true ? undefined : value),
    condition: "anything, unless `store` is `true`",
  },
  { title: "Storage", names: ["store"], filter: only((value) => value === false), condition: "`false`" },
];

const IMAGE_GROUPS: readonly ParameterGroup[] = [
  { title: "Basics", names: words("model prompt size n response_format") },
  {
    title: "Quality",
    names: ["quality"],
    condition: "`standard`, or a quality that the model has a price for in that size",
  },
  {
    title: "Image format",
    names: ["output_format"],
    filter: only((value) => value === "png" || value === "jpeg" || value === "webp"),
    condition: "`png`, `jpeg` or `webp`",
  },
  {
    title: "Image appearance",
    names: words("background style output_compression seed"),
    filter: only(isScalar),
    condition: SCALAR,
  },
  {
    title: "End user",
    names: words("user safety_identifier"),
    filter: endUserName,
    condition: END_USER_NAME,
  },
];

const EMBEDDING_GROUPS: readonly ParameterGroup[] = [
  { title: "Basics", names: words("model input encoding_format dimensions") },
  {
    title: "End user",
    names: words("user safety_identifier"),
    filter: endUserName,
    condition: END_USER_NAME,
  },
];

export type RequestKind = "chat" | "image" | "embedding";
export const PARAMETER_GROUPS: Readonly<Record<RequestKind, readonly ParameterGroup[]>> = {
  chat: CHAT_GROUPS,
  image: IMAGE_GROUPS,
  embedding: EMBEDDING_GROUPS,
};

/** In place of a filter: the value passes unchanged. */
const UNFILTERED = null;
const FILTERS: Readonly<Record<RequestKind, ReadonlyMap<string, Filter | typeof UNFILTERED>>> = {
  chat: filtersOf(CHAT_GROUPS),
  image: filtersOf(IMAGE_GROUPS),
  embedding: filtersOf(EMBEDDING_GROUPS),
};

function filtersOf(groups: readonly ParameterGroup[]): Map<string, Filter | typeof UNFILTERED> {
  return new Map(groups.flatMap(({ names, filter }) => names.map((name) => [name, filter ?? UNFILTERED] as const)));
}

/** What must be changed in a body before it is sent on. */
export type Filtered = {
  /** The fields that do not pass unchanged: what passes of each, or undefined. */
  changed: ReadonlyMap<string, unknown>;
  /** The first part of a message of which nothing passes. */
  emptied?: string | undefined;
  /** What was dropped, for the header `x-dropped-params`; undefined if nothing was. */
  dropped: string | undefined;
};

/** What a route allows and drops. Of a model: what any of its routes allows, and what all of them drop. */
export type OwnRules = Pick<Route, "allowedParams" | "droppedParams">;

/** Whether a body that was filtered by the model's rules can be sent to one of its routes as it is. */
export function hasSameRules(route: OwnRules, model: OwnRules): boolean {
  // A route allows no more than its model, and drops no less.
  return route.allowedParams.size === model.allowedParams.size && route.droppedParams.size === model.droppedParams.size;
}

/** Refuses a message of which nothing would be sent: its prompt would vanish, and be charged. Source: PRV-29. */
export function checkKept(emptied: string | undefined): void {
  if (emptied === undefined) return;
  throw new Refusal("invalid_request", {
    message: `The model does not take ${emptied}, a part of another kind than text or image, and nothing else is in its message.`,
    param: emptied,
  });
}

export type ToFilter = {
  kind: RequestKind;
  /** The checked body, and where its fields are in its text. */
  body: Fields;
  spans: ReadonlyMap<string, Span>;
  /** The route, or the model. */
  by: OwnRules;
  /** Whose names of end users are in it. */
  namer: Namer;
  /** A listed parameter that is dropped from this request. */
  leaveOut?: string | undefined;
};

/** Fields for the gateway itself. They are sent on only if a route allows them, and are not named as dropped. Source: USE-7. */
const OWN_FIELDS: ReadonlySet<string> = new Set(["usage"]);

/** Filters a body by the list. Costs one look-up for each field, and for each field of a message. */
export function filterParameters({ kind, body, spans, by, namer, leaveOut }: ToFilter): Filtered {
  const { allowedParams: allowed, droppedParams: left } = by;
  const filtering = new Filtering(body, by, namer);
  const filters = FILTERS[kind];
  for (const name of spans.keys()) {
    const isLeft = name === leaveOut || (left.size > 0 && left.has(name));
    const filter = isLeft ? undefined : filters.get(name);
    if (filter === UNFILTERED || (!isLeft && allowed.has(name))) continue;
    const value = body[name];
    // SDKs send null for options that were not set. A listed field is sent on with null; an unlisted one is not.
    if (filter !== undefined && value === null) continue;
    const before = filtering.count;
    const passes = filter?.(value, filtering);
    if (passes === value) continue;
    filtering.changed.set(name, passes);
    const isNamed = passes === undefined && value !== null && !OWN_FIELDS.has(name);
    if (isNamed && filtering.count === before) filtering.drop(name);
  }
  if (filtering.changed.has("tools") && filtering.changed.get("tools") === undefined) dropToolChoice(filtering);
  return filtering;
}

/** Providers refuse parameters about tools in a request without tools. */
function dropToolChoice(filtering: Filtering): void {
  for (const name of ["tool_choice", "parallel_tool_calls"]) {
    if (filtering.body[name] === undefined) continue;
    if (!filtering.changed.has(name) && filtering.body[name] !== null) filtering.drop(name);
    filtering.changed.set(name, undefined);
  }
}

/** Limits of the header: the number of names, and the characters of one name. */
const NAMES_MAX = 20;
const NAME_CHARS_MAX = 60;

class Filtering implements Filtered {
  readonly body: Fields;
  readonly namer: Namer;
  readonly changed = new Map<string, unknown>();
  readonly #by: OwnRules;
  readonly #names: string[] = [];
  /** The number of dropped parts. */
  count = 0;
  emptied: string | undefined;

  constructor(body: Fields, by: OwnRules, namer: Namer) {
    this.body = body;
    this.#by = by;
    this.namer = namer;
  }

  /** Whether the route allows `field.member`; indexes of lists are not part of it. */
  allows(field: string, member: string): boolean {
    const { allowedParams: allowed } = this.#by;
    return allowed.size > 0 && allowed.has(`${field}.${member}`);
  }

  /** Whether the route drops `field.member`. */
  leavesOut(field: string, member: string): boolean {
    const { droppedParams: left } = this.#by;
    return left.size > 0 && left.has(`${field}.${member}`);
  }

  /** Notes a dropped part by its path, as in `messages.0.content.1`. */
  drop(path: string): void {
    if (this.count++ < NAMES_MAX) this.#names.push(path);
  }

  get dropped(): string | undefined {
    return droppedNames(this.#names, this.count);
  }
}

/** What the header says of dropped parts: undefined if there are none. `count`: of all, if `paths` are only the first. */
export function droppedNames(paths: readonly string[], count = paths.length): string | undefined {
  if (count === 0) return undefined;
  const names = paths.slice(0, NAMES_MAX).map(safeName);
  return (count > NAMES_MAX ? [...names, `+${count - NAMES_MAX}`] : names).join(", ");
}

/** Makes a name that the client chose safe for a header. */
function safeName(path: string): string {
  const short = path.length <= NAME_CHARS_MAX ? path : `${path.slice(0, NAME_CHARS_MAX - 3)}...`;
  return short.replace(/[^\w.-]/g, "?") || "?";
}

/** A name of the client's, as it is sent. Source: PRV-28. */
function endUserName(value: unknown, { namer }: Filtering): string | undefined {
  return typeof value === "string" && value.length <= END_USER_CHARS_MAX ? ownName(namer, value) : undefined;
}

/** Passes a value unchanged, or drops it. */
function only(fits: (value: unknown) => boolean): Filter {
  return (value) => (fits(value) ? value : undefined);
}

/** Passes the named members of an object, if they are scalar. */
function membersOf(field: string, names: readonly string[]): Filter {
  const known = new Set(names);
  return (value, filtering) => {
    if (!isRecord(value)) return undefined;
    return filterMembers(value, { field, path: field, known, scalar: true }, filtering);
  };
}

type Fields = Readonly<Record<string, unknown>>;
/** The place of an object: its `field` in the list, and its `path` in this body. `scalar`: known members must be scalar. */
type Place = { field: string; path: string; known: ReadonlySet<string>; scalar?: boolean };

/** Returns the object itself if all its members pass, or a copy with those that do. */
function filterMembers(value: Fields, { field, path, known, scalar = false }: Place, filtering: Filtering): Fields {
  let passes: Record<string, unknown> | undefined;
  for (const name in value) {
    const isKnown = known.has(name) && (!scalar || value[name] === null || isScalar(value[name]));
    if ((isKnown || filtering.allows(field, name)) && !filtering.leavesOut(field, name)) continue;
    passes ??= { ...value };
    delete passes[name];
    if (value[name] !== null) filtering.drop(`${path}.${name}`);
  }
  return passes ?? value;
}

/** Filters the entries of a list. Returns the list itself if all of them pass unchanged. */
function filterEntries(
  list: readonly unknown[],
  filterEntry: (entry: unknown, i: number) => unknown,
): readonly unknown[] {
  let passes: unknown[] | undefined;
  for (const [i, entry] of list.entries()) {
    const kept = filterEntry(entry, i);
    if (kept !== entry) passes ??= list.slice(0, i);
    if (kept !== undefined) passes?.push(kept);
  }
  return passes ?? list;
}

const TOOL_MEMBERS = new Set(["type", "function", "custom"]);
const FUNCTION_MEMBERS = new Set(["name", "description", "parameters", "strict"]);

/** Built-in tools (search, code, connectors) are dropped: they run at the provider and cost extra there. */
function filterTools(tools: unknown, filtering: Filtering): unknown {
  if (!Array.isArray(tools)) return undefined;
  const passes = filterEntries(tools, (tool, i) => filterTool(tool, `tools.${i}`, filtering));
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
  const named = filterMembers(tool.function, place, filtering);
  return named === tool.function ? passes : { ...passes, function: named };
}

const TOOL_CHOICES = new Set(["function", "custom", "allowed_tools"]);

function filterToolChoice(given: unknown, filtering: Filtering): unknown {
  const choice = asChatTool(given);
  if (typeof choice === "string") return isScalar(choice) ? choice : undefined;
  if (!isRecord(choice) || typeof choice.type !== "string") return undefined;
  if (filtering.allows("tool_choice", choice.type) || filtering.allows("tools", choice.type)) return choice;
  return TOOL_CHOICES.has(choice.type) ? choice : undefined;
}

const MESSAGE_MEMBERS = new Set(
  words(`
    role content name tool_calls tool_call_id function_call refusal reasoning reasoning_content reasoning_details
    annotations prefix partial`),
);
/** The members of a content part, by its type. Files, audio and video are missing: they cost extra, or are read from the operator's storage. */
const PART_MEMBERS: ReadonlyMap<unknown, ReadonlySet<string>> = new Map([
  ["text", new Set(["type", "text"])],
  ["image_url", new Set(["type", "image_url"])],
  ["refusal", new Set(["type", "refusal"])],
  ["thinking", new Set(["type", "thinking", "text", "signature"])],
  ["reasoning", new Set(["type", "reasoning", "text"])],
]);

function filterMessages(messages: unknown, filtering: Filtering): unknown {
  if (!Array.isArray(messages)) return undefined;
  return filterEntries(messages, (message, i) => {
    if (!isRecord(message)) return undefined;
    const path = `messages.${i}`;
    const passes = filterMembers(message, { field: "messages", path, known: MESSAGE_MEMBERS }, filtering);
    if (!Array.isArray(message.content)) return passes;
    const content = filterEntries(message.content, (part, j) => filterPart(part, `${path}.content.${j}`, filtering));
    if (content.length === 0 && message.content.length > 0) filtering.emptied ??= `${path}.content.0`;
    return content === message.content ? passes : { ...passes, content };
  });
}

/** Parts of the Responses API and of Anthropic's, and parts without a type, as a chat has them. */
function asChatPart(part: unknown): unknown {
  if (!isRecord(part)) return part;
  const { type = "input_text", image_url: image, source } = part;
  if ((type === "input_text" || type === "output_text") && typeof part.text === "string")
    return { ...part, type: "text" };
  if ((type === "input_image" || type === "image_url") && typeof image === "string")
    return { type: "image_url", image_url: imageOf(part) };
  const url = type === "image" && isRecord(source) ? urlOfSource(source) : undefined;
  return url === undefined ? part : { type: "image_url", image_url: { url } };
}

/** Anthropic's source of an image, as a URL. */
function urlOfSource({ type, url, media_type: mediaType, data }: Fields): string | undefined {
  if (type === "url") return typeof url === "string" ? url : undefined;
  const isData = type === "base64" && typeof mediaType === "string" && typeof data === "string";
  return isData ? `data:${mediaType};base64,${data}` : undefined;
}

function imageOf({ image_url: url, detail }: Fields): Fields {
  return { url, ...(typeof detail === "string" && { detail }) };
}

function filterPart(given: unknown, path: string, filtering: Filtering): unknown {
  const part = asChatPart(given);
  const known = isRecord(part) ? PART_MEMBERS.get(part.type) : undefined;
  if (isRecord(part) && known !== undefined) return filterMembers(part, { field: "content", path, known }, filtering);
  if (isRecord(part) && typeof part.type === "string" && filtering.allows("content", part.type)) return part;
  filtering.drop(path);
  return undefined;
}
