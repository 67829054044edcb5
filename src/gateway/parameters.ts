import type { Span } from "../http/json_text.ts";
import { isRecord } from "../platform/records.ts";
import { type Namer, ownName } from "./end_users.ts";
import {
  type Fields,
  type Filter,
  type Filtered,
  Filtering,
  filterMembers,
  isScalar,
  type OwnRules,
} from "./filtering.ts";
import { filterMessages } from "./message_filter.ts";
import { filterToolChoice, filterTools } from "./tool_filter.ts";

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

/** Parameters that are sent on for the same reason. `filter`: only what passes it is sent on. */
export type ParameterGroup = {
  title: string;
  names: readonly string[];
  filter?: Filter;
  /** What the filter passes, in words. */
  condition?: string;
};

const words = (names: string): readonly string[] => names.trim().split(/\s+/);

export const END_USER_CHARS_MAX = 512;
const END_USER_NAME = `a string of at most ${END_USER_CHARS_MAX} characters, sent as a digest of the account's own`;
/** Maximum number of log probabilities of each token, beside its own. */
export const TOP_LOGPROBS_MAX = 20;
const SCALAR = "a number, a boolean or a string of at most 64 characters";

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
    condition: "a string, or one of type `function`, `custom`, `allowed_tools`, or of Anthropic's types",
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

/** In place of a filter: the value passes unchanged. */
const UNFILTERED = null;

/** The parameters of an endpoint: in groups, and the filter of each. */
export type ParameterList = {
  readonly groups: readonly ParameterGroup[];
  readonly filters: ReadonlyMap<string, Filter | typeof UNFILTERED>;
};

/** Makes the list of an endpoint. */
export function parameterList(groups: readonly ParameterGroup[]): ParameterList {
  const named = groups.flatMap(({ names, filter }) => names.map((name) => [name, filter ?? UNFILTERED] as const));
  return { groups, filters: new Map(named) };
}

export const CHAT_PARAMETERS = parameterList(CHAT_GROUPS);
export const IMAGE_PARAMETERS = parameterList(IMAGE_GROUPS);
export const EMBEDDING_PARAMETERS = parameterList(EMBEDDING_GROUPS);

/** Groups of the chat list by their titles, for an endpoint that takes the same. */
export function chatGroups(...titles: readonly string[]): ParameterGroup[] {
  return CHAT_GROUPS.filter(({ title }) => titles.includes(title));
}

/** Whether a body that was filtered by the model's rules can be sent to one of its routes as it is. */
export function hasSameRules(route: OwnRules, model: OwnRules): boolean {
  // A route allows no more than its model, and drops no less.
  return route.allowedParams.size === model.allowedParams.size && route.droppedParams.size === model.droppedParams.size;
}

export type ToFilter = {
  list: ParameterList;
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
export function filterParameters({ list, body, spans, by, namer, leaveOut }: ToFilter): Filtered {
  const { allowedParams: allowed, droppedParams: left } = by;
  const filtering = new Filtering(body, by, namer);
  const { filters } = list;
  for (const name of spans.keys()) {
    const value = body[name];
    // SDKs send null for options that were not set, and some providers refuse it. Source: DIA-15.
    if (value === null) {
      filtering.changed.set(name, undefined);
      continue;
    }
    const isLeft = name === leaveOut || (left.size > 0 && left.has(name));
    const filter = isLeft ? undefined : filters.get(name);
    if (filter === UNFILTERED || (!isLeft && allowed.has(name))) continue;
    const before = filtering.count;
    const passes = filter?.(value, filtering);
    if (passes === value) continue;
    filtering.changed.set(name, passes);
    const isNamed = passes === undefined && !OWN_FIELDS.has(name);
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
