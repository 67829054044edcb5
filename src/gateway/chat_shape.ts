import { isRecord } from "../platform/records.ts";
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

/** OpenAI's finish reasons for those of other vendors. Others are passed on as they are. Those of failures: `error_reports.ts`. */
const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ...["model_length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "MODEL_LENGTH", "token_limit"].map(
    (reason) => [reason, "length"] as const,
  ),
  ...[
    "sensitive",
    "SAFETY",
    "safety",
    "RECITATION",
    "PROHIBITED_CONTENT",
    "content_filtered",
    "guardrail_intervened",
  ].map((reason) => [reason, "content_filter"] as const),
  ...["end_turn", "stop_sequence", "eos", "eos_token", "STOP", "COMPLETE", "complete"].map(
    (reason) => [reason, "stop"] as const,
  ),
  ...["tool_use", "tool_call", "TOOL_CALL"].map((reason) => [reason, "tool_calls"] as const),
]);

/** OpenAI's word for a choice's finish reason; undefined if it has none. */
export function finishOf(choice: unknown): string | undefined {
  if (!isRecord(choice)) return undefined;
  const { finish_reason: finish } = choice;
  return typeof finish === "string" && finish !== "" ? (FINISH_REASONS.get(finish) ?? finish) : undefined;
}

/** Repairs the choices of one answer: of a whole one, or of a stream chunk by chunk, whose tool calls are numbered in their order. */
export class ChoiceRepair {
  readonly #requestId: string;
  readonly #part: "message" | "delta";
  /** By choice. Absent until its first delta. */
  readonly #streams = new Map<number, CallNumbers>();

  /** `requestId`: what ids that a provider leaves out are made of. */
  constructor(requestId: string, part: "message" | "delta") {
    this.#requestId = requestId;
    this.#part = part;
  }

  /** The choices as they are sent on; the same list if nothing is to be repaired. */
  repaired(choices: unknown[]): unknown[] {
    let repaired: unknown[] | undefined;
    for (let place = 0; place < choices.length; place++) {
      const choice = choices[place];
      if (!isRecord(choice)) continue;
      const good = this.#choice(choice, place);
      if (good === choice) continue;
      repaired ??= [...choices];
      repaired[place] = good;
    }
    return repaired ?? choices;
  }

  #choice(choice: Fields, place: number): Fields {
    const index = isCount(choice.index) ? choice.index : place;
    const finish = FINISH_REASONS.get(choice.finish_reason);
    const said = choice[this.#part];
    const good = isRecord(said) ? this.#said(said, index) : said;
    if (good === said && finish === undefined && choice.index === index && choice.usage === undefined) return choice;
    const { usage: _, index: __, ...others } = choice;
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
    if (Array.isArray(said.content)) good = withText(good, said.content);
    if (Array.isArray(said.tool_calls)) {
      const calls = repairedCalls(said.tool_calls, numbers, this.#part === "delta");
      if (calls !== said.tool_calls) good = { ...good, tool_calls: calls };
    }
    if (isRecord(said.function_call)) {
      const call = withTextArguments(said.function_call);
      if (call !== said.function_call) good = { ...good, function_call: call };
    }
    if (typeof said.role === "string" ? said.role === "" : isFirst) good = { ...good, role: "assistant" };
    if (this.#part === "message" && said.content === undefined) good = { ...good, content: null };
    return good;
  }
}

/** The numbers of a choice's tool calls, and the ids of those that have none. */
class CallNumbers {
  readonly #prefix: string;
  readonly #numberOf = new Map<string, number>();
  /** By the provider's index: our number, and the id, if it said one. */
  readonly #byIndex = new Map<number, { number: number; id: string }>();
  #count = 0;
  /** The call that was begun or continued last. */
  #last = 0;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  /** The number of the call that a part belongs to, and whether the part begins it. */
  numberOf({ index, id, name, place }: CallPart): CallPlace {
    const known = id === "" ? undefined : this.#numberOf.get(id);
    if (known !== undefined) return this.#at(known, false);
    if (isCount(index)) return this.#byTheirIndex(index, { id, name });
    if (!continues({ id, name }) || this.#count === 0) return this.#begin(id);
    return this.#at(place === undefined ? this.#last : Math.min(place, this.#count - 1), false);
  }

  /** Some providers give all calls the index 0, each with an id of its own. */
  #byTheirIndex(index: number, { id, name }: { id: string; name: string }): CallPlace {
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

  #begin(id: string): CallPlace {
    const number = this.#count++;
    if (id !== "") this.#numberOf.set(id, number);
    return this.#at(number, true);
  }

  #at(number: number, begins: boolean): CallPlace {
    this.#last = number;
    return { number, begins };
  }

  /** The id of a call whose provider says none. */
  idOf(number: number): string {
    return `${this.#prefix}_${number}`;
  }
}

type CallPlace = { number: number; begins: boolean };

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
    const at = numbers.numberOf({ index: call.index, ...part, place });
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

function repairedCall(
  call: Fields,
  { number, begins, id, isDelta }: CallPlace & { id: string; isDelta: boolean },
): Fields {
  const called = isRecord(call.function) ? withTextArguments(call.function) : call.function;
  const type = begins && typeof call.type !== "string" ? (isRecord(call.custom) ? "custom" : "function") : call.type;
  const isSame =
    (!isDelta || call.index === number) &&
    (id === "" || call.id === id) &&
    type === call.type &&
    called === call.function;
  if (isSame) return call;
  return {
    ...call,
    ...(isDelta && { index: number }),
    ...(id !== "" && { id }),
    ...(type !== undefined && { type }),
    ...(called !== undefined && { function: called }),
  };
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
