import { plainFinish } from "../catalog/error_reports.ts";
import { isRecord } from "../platform/records.ts";
import { withLegacyCall } from "./legacy_functions.ts";
import { isCount } from "./usage_counts.ts";

/**
 * The shape of a chat's answers, whole and in chunks, as OpenAI's schema has it: what providers leave out is added, and what they send
 * in another form is sent on in this one. What is good is passed on as it is. Source: STR-6.
 */

/** From here on a time is in milliseconds: as seconds it would be the year 5138. Each unit is a thousand times finer than the one before. */
const UNIX_SECONDS_MAX = 1e11;
/** From nanoseconds to seconds. */
const UNITS_MAX = 3;

/** A provider's `created` as whole seconds: it may have a fraction, be in a finer unit, or be a text. `instead` if it is no time. */
export function createdOf(created: unknown, instead: number): number {
  let seconds = typeof created === "string" ? secondsOf(created) : created;
  if (typeof seconds !== "number") return instead;
  for (let unit = 0; unit < UNITS_MAX && seconds >= UNIX_SECONDS_MAX; unit++) seconds /= 1000;
  return seconds >= 1 && seconds < UNIX_SECONDS_MAX ? Math.floor(seconds) : instead;
}

function secondsOf(text: string): number {
  return /^\d{1,19}(?:\.\d{1,9})?$/.test(text) ? Number(text) : Date.parse(text) / 1000;
}

type Fields = Readonly<Record<string, unknown>>;

/** OpenAI's finish reasons, by those of other vendors in lower case. Others are passed on as they are. Those of failures: `error_reports.ts`. */
const FINISH_REASONS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    stop: ["stop", "end_turn", "stop_sequence", "stop_token", "eos", "eos_token", "end", "complete", "completed"],
    length: [
      ...["length", "model_length", "max_length", "max_tokens", "max_output_tokens", "token_limit", "length_capped"],
      ...["error_limit", "context_length", "context_length_exceeded", "model_context_window_exceeded"],
    ],
    content_filter: [
      ...["content_filter", "content_filtered", "sensitive", "safety", "recitation", "prohibited_content", "blocklist"],
      ...["spii", "image_safety", "guardrail_intervened", "refusal", "error_toxic"],
    ],
    tool_calls: ["tool_calls", "tool_call", "tool_use"],
  }).flatMap(([ours, theirs]) => theirs.map((reason) => [reason, ours] as const)),
);

/** OpenAI's word for a finish reason; null while there is none. Some providers write that as a text. */
function plainReason(finish: unknown): string | null {
  if (typeof finish !== "string" || finish === "" || finish === "null") return null;
  return finish === "stop" ? finish : (FINISH_REASONS.get(plainFinish(finish)) ?? finish);
}

/** OpenAI's word for a choice's finish reason; undefined if it has none. */
export function finishOf(choice: unknown): string | undefined {
  return isRecord(choice) ? (plainReason(choice.finish_reason) ?? undefined) : undefined;
}

/** A whole number from 0, also as a text; undefined if it is none. */
export function numberOf(index: unknown): number | undefined {
  if (isCount(index)) return index;
  return typeof index === "string" && /^\d{1,9}$/.test(index) ? Number(index) : undefined;
}

type PartName = "message" | "delta";

/** What a choice says: its message in a whole answer, its delta in a stream, or else the other one, or a text as in legacy completions. */
export function saidIn(choice: Fields, part: PartName): unknown {
  const other = choice[part === "delta" ? "message" : "delta"];
  if (isRecord(choice[part])) return choice[part];
  if (isRecord(other)) return other;
  return typeof choice.text === "string" ? { content: choice.text } : choice[part];
}

/** Repairs the choices of one answer: of a whole one, or of a stream chunk by chunk, whose tool calls are numbered in their order. */
export class ChoiceRepair {
  readonly #requestId: string;
  readonly #part: PartName;
  readonly #hasLegacyCalls: boolean;
  /** By choice. Absent until its first delta. */
  readonly #streams = new Map<number, CallNumbers>();

  /** `requestId`: what ids that a provider leaves out are made of. `hasLegacyCalls`: the client reads `function_call`. */
  constructor(requestId: string, part: PartName, hasLegacyCalls = false) {
    this.#requestId = requestId;
    this.#part = part;
    this.#hasLegacyCalls = hasLegacyCalls;
  }

  /** The choices as they are sent on; the same list if nothing is to be repaired. */
  repaired(choices: unknown[]): unknown[] {
    let repaired: unknown[] | undefined;
    for (let place = 0; place < choices.length; place++) {
      const choice = choices[place];
      if (!isRecord(choice)) continue;
      const shaped = this.#choice(choice, place);
      const good = this.#hasLegacyCalls ? withLegacyCall(shaped, this.#part) : shaped;
      if (good === choice) continue;
      repaired ??= [...choices];
      repaired[place] = good;
    }
    return repaired ?? choices;
  }

  #choice(choice: Fields, place: number): Fields {
    const index = numberOf(choice.index) ?? place;
    const finish = choice.finish_reason === undefined ? undefined : plainReason(choice.finish_reason);
    const said = saidIn(choice, this.#part);
    const good = isRecord(said) ? this.#said(said, index) : said;
    const isSame = good === choice[this.#part] && finish === choice.finish_reason && choice.index === index;
    if (isSame && choice.usage === undefined) return choice;
    const { usage: _, index: __, delta, message, text, ...others } = choice;
    return {
      index,
      ...others,
      ...(said !== undefined && { [this.#part]: good }),
      ...(finish !== undefined && { finish_reason: finish }),
    };
  }

  /** A message, or the delta of a choice. */
  #said(said: Fields, index: number): Fields {
    let numbers = this.#streams.get(index);
    const isFirst = numbers === undefined;
    if (numbers === undefined) {
      numbers = new CallNumbers(`call_${this.#requestId}_${index}`);
      this.#streams.set(index, numbers);
    }
    let good = said;
    const { content, role, tool_calls: called } = said;
    if (typeof content === "object" && content !== null)
      good = withText(good, Array.isArray(content) ? content : [content]);
    else if (typeof content === "number" || typeof content === "boolean") good = { ...good, content: String(content) };
    const calls = isRecord(called) ? [called] : called;
    if (Array.isArray(calls)) {
      const repaired = repairedCalls(calls, numbers, this.#part === "delta");
      if (repaired !== called) good = { ...good, tool_calls: repaired };
    }
    if (isRecord(said.function_call)) {
      const call = withTextArguments(said.function_call);
      if (call !== said.function_call) good = { ...good, function_call: call };
    }
    if (role !== "assistant" && (role !== undefined || isFirst)) good = { ...good, role: "assistant" };
    if (this.#part === "message" && content === undefined) good = { ...good, content: null };
    return good;
  }
}

/** The numbers of a choice's tool calls, and the ids of those that have none. */
class CallNumbers {
  readonly #prefix: string;
  readonly #numberOf = new Map<string, number>();
  /** By the provider's index: our number, and the id, if it said one. */
  readonly #byIndex = new Map<number, { number: number; id: string }>();
  /** By number. */
  readonly #names: string[] = [];
  #count = 0;
  /** The call that was begun or continued last. */
  #last = 0;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  /** The number of the call that a part belongs to, and whether the part begins it. */
  placeOf(part: CallPart): CallPlace {
    const at = this.#placeOf(part);
    const known = at.begins ? "" : (this.#names[at.number] ?? "");
    const repeatsName = known !== "" && part.name === known;
    if (!repeatsName) this.#names[at.number] = known + part.name;
    return { ...at, repeatsName };
  }

  #placeOf({ index, id, name, place }: CallPart): Begun {
    const known = id === "" ? undefined : this.#numberOf.get(id);
    if (known !== undefined) return this.#at(known, false);
    const theirs = numberOf(index);
    if (theirs !== undefined) return this.#byTheirIndex(theirs, { id, name });
    if (!continues({ id, name }) || this.#count === 0) return this.#begin(id);
    return this.#at(place === undefined ? this.#last : Math.min(place, this.#count - 1), false);
  }

  /** Some providers give all calls the index 0, each with an id of its own. */
  #byTheirIndex(index: number, { id, name }: { id: string; name: string }): Begun {
    const open = this.#byIndex.get(index);
    const isOther = open !== undefined && id !== "" && open.id !== "" && name !== "";
    if (open !== undefined && !isOther) {
      if (id !== "" && open.id === "") {
        open.id = id;
        this.#numberOf.set(id, open.number);
      }
      return this.#at(open.number, false);
    }
    const begun = this.#begin(id);
    this.#byIndex.set(index, { number: begun.number, id });
    return begun;
  }

  #begin(id: string): Begun {
    const number = this.#count++;
    if (id !== "") this.#numberOf.set(id, number);
    return this.#at(number, true);
  }

  #at(number: number, begins: boolean): Begun {
    this.#last = number;
    return { number, begins };
  }

  /** The id of a call whose provider says none. */
  idOf(number: number): string {
    return `${this.#prefix}_${number}`;
  }
}

type Begun = { number: number; begins: boolean };
/** `repeatsName`: the name is that of the beginning once more. */
type CallPlace = Begun & { repeatsName: boolean };

/** A part of a call. `place`: among the parts of its delta that continue calls; undefined if it is the only one. */
type CallPart = { index: unknown; id: string; name: string; place: number | undefined };

/** A part without an id and a name continues a call: the last one or, beside other such parts, the one of its place. */
function continues({ id, name }: Pick<CallPart, "id" | "name">): boolean {
  return id === "" && name === "";
}

function repairedCalls(calls: unknown[], numbers: CallNumbers, isDelta: boolean): unknown[] {
  const parts = calls.map(partOf);
  const isAlone = parts.filter((part) => part !== undefined && continues(part)).length < 2;
  let repaired: unknown[] | undefined;
  let continued = 0;
  for (const [i, call] of calls.entries()) {
    const part = parts[i];
    if (part === undefined || !isRecord(call)) continue;
    const place = isAlone || !continues(part) ? undefined : continued++;
    const at = numbers.placeOf({ index: call.index, ...part, place });
    const good = repairedCall(call, { ...at, id: part.id || (at.begins ? numbers.idOf(at.number) : ""), isDelta });
    if (good === call) continue;
    repaired ??= [...calls];
    repaired[i] = good;
  }
  return repaired ?? calls;
}

function partOf(call: unknown): Pick<CallPart, "id" | "name"> | undefined {
  if (!isRecord(call)) return undefined;
  const called = isRecord(call.function) ? call.function : isRecord(call.custom) ? call.custom : {};
  return {
    id: typeof call.id === "string" ? call.id : "",
    name: typeof called.name === "string" ? called.name : "",
  };
}

type RepairedPart = CallPlace & { id: string; isDelta: boolean };

function repairedCall(call: Fields, part: RepairedPart): Fields {
  const { number, begins, id, isDelta } = part;
  const called = isRecord(call.function) ? goodFunction(call.function, part) : call.function;
  const { index: _, id: __, type: theirs, ...others } = call;
  const type = typeof theirs === "string" && theirs !== "" ? theirs : isRecord(call.custom) ? "custom" : "function";
  const good = {
    ...(isDelta && { index: number }),
    // A part that continues a call has neither: some clients would add them to those of its beginning.
    ...((begins || !isDelta) && { ...(id !== "" && { id }), type }),
    ...others,
    ...(called !== undefined && { function: called }),
  };
  return isSame(good, call) ? call : good;
}

/** The function of a call: its arguments are a text, and nothing in it is null or stands twice. */
function goodFunction(called: Fields, { begins, isDelta, repeatsName }: RepairedPart): Fields {
  const { name, arguments: args, ...others } = withTextArguments(called);
  const isMissing = args === undefined || args === null || (args === "" && !isDelta);
  const none = isDelta ? "" : "{}";
  const good = {
    ...(name !== undefined && name !== null && !repeatsName && (begins || name !== "") && { name }),
    ...(isMissing ? begins && { arguments: none } : { arguments: args }),
    ...others,
  };
  return isSame(good, called) ? called : good;
}

/** Whether two objects have the same members. */
function isSame(one: Fields, other: Fields): boolean {
  let members = 0;
  for (const name in one) {
    if (one[name] !== other[name]) return false;
    members++;
  }
  return members === Object.keys(other).length;
}

/** A function's call whose arguments are a text. Some providers send the object itself. */
function withTextArguments(called: Fields): Fields {
  const { arguments: args } = called;
  return typeof args === "object" && args !== null ? { ...called, arguments: JSON.stringify(args) } : called;
}

/**
 * A message whose content is a list of parts, with the text in `content`, and what the model thought in `reasoning_content`. Parts of
 * other types are passed on as `content_parts`.
 */
function withText(said: Fields, parts: readonly unknown[]): Fields {
  let text = "";
  let thought = "";
  const others: unknown[] = [];
  for (const part of parts) {
    if (typeof part === "string") text += part;
    else if (!isRecord(part)) continue;
    else if (part.type === "thinking" || part.type === "reasoning") thought += thoughtIn(part);
    else if (typeof part.text === "string") text += part.text;
    else others.push(part);
  }
  const { content: _, ...rest } = said;
  const hasReasoning = typeof said.reasoning_content === "string" && said.reasoning_content !== "";
  return {
    ...rest,
    content: text === "" && thought !== "" ? null : text,
    ...(thought !== "" && !hasReasoning && { reasoning_content: thought }),
    ...(others.length > 0 && { content_parts: others }),
  };
}

/** The text of a part with thinking, which may be a list of texts. */
function thoughtIn({ thinking, reasoning, text }: Fields): string {
  const said = thinking ?? reasoning ?? text;
  if (typeof said === "string") return said;
  if (!Array.isArray(said)) return "";
  return said.map((one) => (isRecord(one) && typeof one.text === "string" ? one.text : "")).join("");
}
