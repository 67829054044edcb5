import type { Span } from "../http/json_text.ts";

/**
 * THE list of parameters that are sent on to a provider. All other fields of a request are accepted, left out, and named in the
 * answer's header `x-dropped-params`. Source: rulings › What is sent on.
 *
 * To add a parameter, answer these questions first. If one answer is yes, leave it out or give it a condition:
 * - Does it change what the provider charges: a service tier, a search, a cache write, audio, a better image?
 * - Does it name another model, another provider or another body, directly or within an object?
 * - Does it make more output than `n` choices of `max_tokens`, under another name or by several candidates?
 * - Does it hide tokens from the stream? A client that leaves is charged by what it was sent.
 * - Does it store data with the provider, read what is stored there, or run code or templates there?
 * - Does it add text to the prompt that `prompt.ts` does not count, or run a pattern of the customer's at each token?
 * - Does it change the form of the answer, so that the gateway cannot read it?
 *
 * Then add its name to a group below and run `bun scripts/parameters_table.ts`, which writes the tables of docs/api.md. A parameter
 * that only one provider needs belongs to its route instead: `cli model route … --allow-param`.
 */

/**
 * What becomes of a value: it itself if all of it passes, a copy without what does not, or undefined if nothing of it passes. What is left
 * out is told to `sifting`.
 */
type Sieve = (value: unknown, sifting: Sifting) => unknown;

/** Parameters that pass for one reason. `sieve`: only values, or parts of values, that pass it. */
export type ParameterGroup = {
  title: string;
  names: readonly string[];
  sieve?: Sieve;
  /** What the sieve lets through, in words. */
  condition?: string;
};

const words = (names: string): readonly string[] => names.trim().split(/\s+/);

const SCALAR_CHARS_MAX = 64;
const TEXT_CHARS_MAX = 512;
const TOP_LOGPROBS_MAX = 20;
const SCALAR = "a number, a boolean or a string of at most 64 characters";

/** Long text here would reach the prompt uncounted: some chat templates print such values. */
function isScalar(value: unknown): boolean {
  if (typeof value === "string") return value.length <= SCALAR_CHARS_MAX;
  return typeof value === "number" || typeof value === "boolean";
}

const CHAT_GROUPS: readonly ParameterGroup[] = [
  { title: "The request itself", names: words("model stream n max_tokens max_completion_tokens") },
  {
    title: "Messages",
    names: ["messages"],
    sieve: siftMessages,
    condition:
      "parts of type `text`, `image_url`, `refusal`, `thinking` and `reasoning`; members of messages that OpenAI and others define",
  },
  {
    title: "Sampling",
    names: words(`
      temperature top_p top_k top_a min_p typical_p tfs_z top_n_sigma dynatemp_range dynatemp_exponent
      mirostat mirostat_tau mirostat_eta xtc_probability xtc_threshold seed random_seed do_sample
      frequency_penalty presence_penalty repetition_penalty repeat_penalty repeat_last_n
      dry_multiplier dry_base dry_allowed_length dry_penalty_last_n`),
    sieve: only(isScalar),
    condition: SCALAR,
  },
  {
    title: "Bias, lists of tokens and stops",
    names: words(`
      logit_bias samplers dry_sequence_breakers stop stop_token_ids bad_words allowed_token_ids`),
  },
  {
    title: "Form of the text",
    names: words(`
      include_stop_str_in_output no_stop_trim skip_special_tokens spaces_between_special_tokens
      add_generation_prompt continue_final_message logprobs`),
    sieve: only((value) => typeof value === "boolean"),
    condition: "a boolean",
  },
  {
    title: "Log probabilities",
    names: ["top_logprobs"],
    sieve: only((value) => Number.isInteger(value) && Number(value) >= 0 && Number(value) <= TOP_LOGPROBS_MAX),
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
    sieve: siftTools,
    condition: "entries of type `function` and `custom`, by their own members",
  },
  {
    title: "Choice of a tool",
    names: ["tool_choice"],
    sieve: siftToolChoice,
    condition: "a string, or one of type `function`, `custom` or `allowed_tools`",
  },
  { title: "Functions", names: words("functions function_call parallel_tool_calls") },
  {
    title: "Reasoning",
    names: words("reasoning_effort enable_thinking verbosity separate_reasoning"),
    sieve: only(isScalar),
    condition: SCALAR,
  },
  {
    title: "Reasoning, by an object",
    names: ["reasoning"],
    sieve: membersOf("reasoning", words("effort enabled summary")),
    condition: "its members `effort`, `enabled`, `summary`",
  },
  {
    title: "Thinking, by an object",
    names: ["thinking"],
    sieve: membersOf("thinking", words("type budget_tokens clear_thinking")),
    condition: "its members `type`, `budget_tokens`, `clear_thinking`",
  },
  {
    title: "The chat template's switches",
    names: ["chat_template_kwargs"],
    sieve: membersOf(
      "chat_template_kwargs",
      words("enable_thinking thinking preserve_thinking clear_thinking reasoning_effort"),
    ),
    condition: "its members `enable_thinking`, `thinking`, `preserve_thinking`, `clear_thinking`, `reasoning_effort`",
  },
  {
    title: "Reasoning shown",
    names: ["include_reasoning"],
    sieve: only((value) => value === true),
    condition: "`true`",
  },
  {
    title: "Form of the reasoning",
    names: ["reasoning_format"],
    sieve: only((value) => typeof value === "string" && isScalar(value) && value !== "hidden"),
    condition: "any string but `hidden`",
  },
  {
    title: "Streams",
    names: ["stream_options"],
    sieve: membersOf("stream_options", words("include_usage include_obfuscation")),
    condition: "its members `include_usage`, `include_obfuscation`",
  },
  {
    title: "Who asks",
    names: words("user safety_identifier prompt_cache_key"),
    sieve: only((value) => typeof value === "string" && value.length <= TEXT_CHARS_MAX),
    condition: `a string of at most ${TEXT_CHARS_MAX} characters`,
  },
  {
    title: "Notes on the request",
    names: ["metadata"],
    sieve: (value, { body }) => (body.store === true ? undefined : value),
    condition: "without `store: true`, to which it belongs",
  },
  { title: "Not stored", names: ["store"], sieve: only((value) => value === false), condition: "`false`" },
];

const IMAGE_GROUPS: readonly ParameterGroup[] = [
  { title: "The request itself", names: words("model prompt size n response_format") },
  {
    title: "Quality",
    names: ["quality"],
    condition: "`standard`, or a quality that the model has a price for in that size",
  },
  {
    title: "Form of the image",
    names: ["output_format"],
    sieve: only((value) => value === "png" || value === "jpeg" || value === "webp"),
    condition: "`png`, `jpeg` or `webp`",
  },
  {
    title: "Look of the image",
    names: words("background style output_compression seed"),
    sieve: only(isScalar),
    condition: SCALAR,
  },
  {
    title: "Who asks",
    names: words("user safety_identifier"),
    sieve: only((value) => typeof value === "string" && value.length <= TEXT_CHARS_MAX),
    condition: `a string of at most ${TEXT_CHARS_MAX} characters`,
  },
];

export type RequestKind = "chat" | "image";
export const PARAMETER_GROUPS: Readonly<Record<RequestKind, readonly ParameterGroup[]>> = {
  chat: CHAT_GROUPS,
  image: IMAGE_GROUPS,
};

/** Passes whole: said by a sieve that is not even called. */
const WHOLE = null;
const SIEVES: Readonly<Record<RequestKind, ReadonlyMap<string, Sieve | typeof WHOLE>>> = {
  chat: sievesOf(CHAT_GROUPS),
  image: sievesOf(IMAGE_GROUPS),
};

function sievesOf(groups: readonly ParameterGroup[]): Map<string, Sieve | typeof WHOLE> {
  return new Map(groups.flatMap(({ names, sieve }) => names.map((name) => [name, sieve ?? WHOLE] as const)));
}

/** What is to be changed in a body before it is sent on. */
export type Sifted = {
  /** Fields that do not pass as they came: what passes of each, or undefined. */
  changed: ReadonlyMap<string, unknown>;
  /** What was left out, for the header `x-dropped-params`; undefined: nothing. */
  dropped: string | undefined;
};

export type ToSift = {
  kind: RequestKind;
  /** A checked body, and where its fields stand in its text. */
  body: Fields;
  spans: ReadonlyMap<string, Span>;
  /** What the route allows beyond the list. */
  allowed: ReadonlySet<string>;
  /** A listed parameter that does not pass this time. */
  leaveOut?: string | undefined;
};

/** Sifts a body by the list. One of listed parameters costs a look-up for each field, and for each field of a message. */
export function sift({ kind, body, spans, allowed, leaveOut }: ToSift): Sifted {
  const sifting = new Sifting(body, allowed);
  const sieves = SIEVES[kind];
  for (const name of spans.keys()) {
    const sieve = name === leaveOut ? undefined : sieves.get(name);
    if (sieve === WHOLE || (name !== leaveOut && allowed.has(name))) continue;
    const value = body[name];
    // SDKs send null for what was not set. Of a field that is not on the list not even that is sent on.
    if (sieve !== undefined && value === null) continue;
    const before = sifting.count;
    const passes = sieve?.(value, sifting);
    if (passes === value) continue;
    sifting.changed.set(name, passes);
    if (passes === undefined && value !== null && sifting.count === before) sifting.drop(name);
  }
  if (sifting.changed.has("tools") && sifting.changed.get("tools") === undefined) dropToolChoice(sifting);
  return sifting;
}

/** Without tools providers refuse what speaks of them. */
function dropToolChoice(sifting: Sifting): void {
  for (const name of ["tool_choice", "parallel_tool_calls"]) {
    if (sifting.body[name] === undefined) continue;
    if (!sifting.changed.has(name) && sifting.body[name] !== null) sifting.drop(name);
    sifting.changed.set(name, undefined);
  }
}

/** Of the header: names, and characters of one. */
const NAMES_MAX = 20;
const NAME_CHARS_MAX = 60;

class Sifting implements Sifted {
  readonly body: Fields;
  readonly changed = new Map<string, unknown>();
  readonly #allowed: ReadonlySet<string>;
  readonly #names: string[] = [];
  /** How many were left out. */
  count = 0;

  constructor(body: Fields, allowed: ReadonlySet<string>) {
    this.body = body;
    this.#allowed = allowed;
  }

  /** Whether the route allows it: `field.member`, without the places in lists. */
  allows(field: string, member: string): boolean {
    return this.#allowed.size > 0 && this.#allowed.has(`${field}.${member}`);
  }

  /** Notes what is left out, by its path as in `messages.0.content.1`. */
  drop(path: string): void {
    if (this.count++ < NAMES_MAX) this.#names.push(safeName(path));
  }

  get dropped(): string | undefined {
    if (this.count === 0) return undefined;
    return [...this.#names, ...(this.count > NAMES_MAX ? [`+${this.count - NAMES_MAX}`] : [])].join(", ");
  }
}

/** A name that a stranger chose, as it may stand in a header. */
function safeName(path: string): string {
  const short = path.length <= NAME_CHARS_MAX ? path : `${path.slice(0, NAME_CHARS_MAX - 3)}...`;
  return short.replace(/[^\w.-]/g, "?") || "?";
}

/** Passes whole or not at all. */
function only(fits: (value: unknown) => boolean): Sieve {
  return (value) => (fits(value) ? value : undefined);
}

/** Of an object, the members that are named, where they are scalar. */
function membersOf(field: string, names: readonly string[]): Sieve {
  const known = new Set(names);
  return (value, sifting) => {
    if (!isRecord(value)) return undefined;
    return siftMembers(value, { field, path: field, known, scalar: true }, sifting);
  };
}

type Fields = Readonly<Record<string, unknown>>;
/** Where an object stands: by the list, and in this body. `scalar`: its known members pass only as such. */
type Place = { field: string; path: string; known: ReadonlySet<string>; scalar?: boolean };

/** The object itself if all its members pass, or a copy of those that do. */
function siftMembers(value: Fields, { field, path, known, scalar = false }: Place, sifting: Sifting): Fields {
  let passes: Record<string, unknown> | undefined;
  for (const name in value) {
    if (known.has(name) && (!scalar || value[name] === null || isScalar(value[name]))) continue;
    if (sifting.allows(field, name)) continue;
    passes ??= { ...value };
    delete passes[name];
    if (value[name] !== null) sifting.drop(`${path}.${name}`);
  }
  return passes ?? value;
}

/** Sifts a list by its entries: the list itself if all of them pass as they are. */
function siftEntries(list: readonly unknown[], siftEntry: (entry: unknown, i: number) => unknown): readonly unknown[] {
  let passes: unknown[] | undefined;
  for (const [i, entry] of list.entries()) {
    const kept = siftEntry(entry, i);
    if (kept !== entry) passes ??= list.slice(0, i);
    if (kept !== undefined) passes?.push(kept);
  }
  return passes ?? list;
}

const TOOL_MEMBERS = new Set(["type", "function", "custom"]);
const FUNCTION_MEMBERS = new Set(["name", "description", "parameters", "strict"]);

/** Built-in tools run at the provider, and are charged there: searches, code, connectors. */
function siftTools(tools: unknown, sifting: Sifting): unknown {
  if (!Array.isArray(tools)) return undefined;
  const passes = siftEntries(tools, (tool, i) => siftTool(tool, `tools.${i}`, sifting));
  return passes.length === 0 && tools.length > 0 ? undefined : passes;
}

function siftTool(tool: unknown, path: string, sifting: Sifting): unknown {
  // Without a type it is a function's: some servers take it so.
  const type = isRecord(tool) ? (tool.type ?? "function") : undefined;
  if (typeof type === "string" && sifting.allows("tools", type)) return tool;
  if (!isRecord(tool) || !(type === "custom" || (type === "function" && isRecord(tool.function)))) {
    sifting.drop(path);
    return undefined;
  }
  const passes = siftMembers(tool, { field: "tools", path, known: TOOL_MEMBERS }, sifting);
  if (!isRecord(tool.function)) return passes;
  const place = { field: "tools.function", path: `${path}.function`, known: FUNCTION_MEMBERS };
  const named = siftMembers(tool.function, place, sifting);
  return named === tool.function ? passes : { ...passes, function: named };
}

const TOOL_CHOICES = new Set(["function", "custom", "allowed_tools"]);

function siftToolChoice(choice: unknown, sifting: Sifting): unknown {
  if (typeof choice === "string") return isScalar(choice) ? choice : undefined;
  if (!isRecord(choice) || typeof choice.type !== "string") return undefined;
  if (sifting.allows("tool_choice", choice.type) || sifting.allows("tools", choice.type)) return choice;
  return TOOL_CHOICES.has(choice.type) ? choice : undefined;
}

const MESSAGE_MEMBERS = new Set(
  words(`
    role content name tool_calls tool_call_id function_call refusal reasoning reasoning_content reasoning_details
    annotations prefix partial`),
);
/** The members of a part of a message's content, by its type. Files, audio and video are charged apart, or read from the operator's store. */
const PART_MEMBERS: ReadonlyMap<unknown, ReadonlySet<string>> = new Map([
  ["text", new Set(["type", "text"])],
  ["image_url", new Set(["type", "image_url"])],
  ["refusal", new Set(["type", "refusal"])],
  ["thinking", new Set(["type", "thinking", "text", "signature"])],
  ["reasoning", new Set(["type", "reasoning", "text"])],
]);

function siftMessages(messages: unknown, sifting: Sifting): unknown {
  if (!Array.isArray(messages)) return undefined;
  return siftEntries(messages, (message, i) => {
    if (!isRecord(message)) return undefined;
    const path = `messages.${i}`;
    const passes = siftMembers(message, { field: "messages", path, known: MESSAGE_MEMBERS }, sifting);
    if (!Array.isArray(message.content)) return passes;
    const content = siftEntries(message.content, (part, j) => siftPart(part, `${path}.content.${j}`, sifting));
    return content === message.content ? passes : { ...passes, content };
  });
}

function siftPart(part: unknown, path: string, sifting: Sifting): unknown {
  const known = isRecord(part) ? PART_MEMBERS.get(part.type) : undefined;
  if (isRecord(part) && known !== undefined) return siftMembers(part, { field: "content", path, known }, sifting);
  if (isRecord(part) && typeof part.type === "string" && sifting.allows("content", part.type)) return part;
  sifting.drop(path);
  return undefined;
}

function isRecord(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
