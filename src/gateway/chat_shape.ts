import { isRecord } from "../platform/records.ts";
import { callsIn } from "./call_forms.ts";
import { CallNumbers, numberOf, repairedCalls, withTextArguments } from "./call_numbers.ts";
import { plainReason, reasonOfWhole } from "./finish_reasons.ts";
import { Halves } from "./halves.ts";
import { withLegacyCall, withToolCall } from "./legacy_functions.ts";
import { goodLogprobs } from "./logprobs.ts";
import { type PartName, saidIn, saysSomething, withText, withThought } from "./said.ts";

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

/** Repairs the choices of one answer: of a whole one, or of a stream chunk by chunk, whose tool calls are numbered in their order. */
export class ChoiceRepair {
  readonly #requestId: string;
  readonly #part: PartName;
  readonly #hasLegacyCalls: boolean;
  /** Of the choice that had the first delta, which most often is the only one, and of the others by their index. */
  #state: ChoiceState | undefined;
  #others: Map<number, ChoiceState> | undefined;
  /** Made for the first half of a character. */
  #halves: Halves | undefined;

  /** `requestId`: what ids that a provider leaves out are made of. `hasLegacyCalls`: the client reads `function_call`. */
  constructor(requestId: string, part: PartName, hasLegacyCalls = false) {
    this.#requestId = requestId;
    this.#part = part;
    this.#hasLegacyCalls = hasLegacyCalls;
  }

  /** What is sent of the next text depends on more than the text. */
  get isHolding(): boolean {
    return this.#halves?.isHolding === true;
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
    const said = this.#saidIn(choice, index);
    const good = isRecord(said) ? this.#said(said, index) : said;
    const finish = this.#finishOf(choice, good);
    const logprobs = choice.logprobs === undefined ? undefined : goodLogprobs(choice.logprobs);
    const isSame = good === choice[this.#part] && finish === choice.finish_reason && choice.index === index;
    const isPlain = choice.usage === undefined && choice[otherPart(this.#part)] === undefined;
    if (isSame && isPlain && logprobs === choice.logprobs) return choice;
    const { usage: _, index: __, delta, message, text, ...others } = choice;
    return {
      index,
      ...others,
      ...(logprobs !== undefined && { logprobs }),
      ...(good !== undefined && { [this.#part]: good }),
      finish_reason: finish,
    };
  }

  /** Every chunk has a delta. A message behind deltas repeats what they said, as MiniMax and Perplexity end a stream. */
  #saidIn(choice: Fields, index: number): unknown {
    if (this.#part === "message") return saidIn(choice, "message");
    const state = this.#stateOf(index);
    const isDelta = isRecord(choice.delta);
    if (!isDelta && state.hasDeltas) return {};
    if (isDelta && !state.hasDeltas) state.hasDeltas = saysSomething(choice.delta);
    return saidIn(choice, "delta") ?? {};
  }

  #stateOf(index: number): ChoiceState {
    this.#state ??= newState(index);
    if (this.#state.index === index) return this.#state;
    this.#others ??= new Map();
    let state = this.#others.get(index);
    if (state === undefined) {
      state = newState(index);
      this.#others.set(index, state);
    }
    return state;
  }

  #finishOf({ finish_reason: finish }: Fields, said: unknown): string | null {
    const plain = plainReason(finish);
    const reason = plain === "function_call" && !this.#hasLegacyCalls ? "tool_calls" : plain;
    return reason === null && this.#part === "message" && isRecord(said) ? reasonOfWhole(said) : reason;
  }

  /** A message, or the delta of a choice. */
  #said(said: Fields, index: number): Fields {
    const state = this.#stateOf(index);
    const isFirst = !state.hasBegun;
    state.hasBegun = true;
    let good = withThought(said);
    const { content, role } = said;
    if (typeof content === "object" && content !== null) good = withText(good, content);
    else if (typeof content === "number" || typeof content === "boolean") good = { ...good, content: String(content) };
    if (!this.#hasLegacyCalls) good = withToolCall(good);
    const { tool_calls: called, toolCalls } = good;
    const calls = callsIn(good);
    if (toolCalls !== undefined) good = without(good, "toolCalls");
    if (calls !== undefined) {
      state.numbers ??= new CallNumbers(`call_${this.#requestId}_${index}`);
      const repaired = this.#completedCalls(repairedCalls(calls, state.numbers, this.#part === "delta"), index);
      // Clients send an empty list back, and providers refuse it.
      if (repaired.length === 0) good = without(good, "tool_calls");
      else if (repaired !== called) good = { ...good, tool_calls: repaired };
    }
    if (isRecord(good.function_call)) {
      const call = withTextArguments(good.function_call);
      if (call !== good.function_call) good = { ...good, function_call: call };
    }
    for (const name of OPERATORS) if (good[name] !== undefined) good = without(good, name);
    good = this.#completed(good, index);
    if (role !== "assistant" && (role !== undefined || isFirst)) good = { ...good, role: "assistant" };
    if (this.#part === "message" && content === undefined) good = { ...good, content: null };
    return good;
  }

  /** The texts of a message or delta with whole characters. */
  #completed(said: Fields, index: number): Fields {
    let good = said;
    for (const name of TEXTS) {
      const text = good[name];
      if (typeof text !== "string") continue;
      const completed = this.#wellFormed(`${index} ${name}`, text);
      if (completed !== text) good = { ...good, [name]: completed };
    }
    return good;
  }

  #completedCalls(calls: readonly unknown[], index: number): readonly unknown[] {
    return mapped(calls, (call, place) => {
      const called = isRecord(call) ? call.function : undefined;
      if (!isRecord(call) || !isRecord(called) || typeof called.arguments !== "string") return call;
      const args = this.#wellFormed(`${index} call ${numberOf(call.index) ?? place}`, called.arguments);
      return args === called.arguments ? call : { ...call, function: { ...called, arguments: args } };
    });
  }

  #wellFormed(name: string, text: string): string {
    if (this.#part !== "delta") return text.toWellFormed();
    if (this.#halves === undefined && text.isWellFormed()) return text;
    this.#halves ??= new Halves();
    return this.#halves.completed(name, text);
  }
}

/**
 * `index`: that of the choice. `numbers`: made for its first call. `hasDeltas`: deltas have said something. `hasBegun`: its first delta
 * has been sent.
 */
type ChoiceState = { readonly index: number; numbers: CallNumbers | undefined; hasDeltas: boolean; hasBegun: boolean };

function newState(index: number): ChoiceState {
  return { index, numbers: undefined, hasDeltas: false, hasBegun: false };
}

/** Members of a message or delta that say what the operator pays: Vercel's gateway has it there. Source: PRV-25. */
const OPERATORS = ["provider_metadata", "providerMetadata"] as const;
/** The members of a message or delta that are texts. */
const TEXTS = ["content", "reasoning_content", "reasoning", "refusal"] as const;

function otherPart(part: PartName): PartName {
  return part === "delta" ? "message" : "delta";
}

function without(fields: Fields, name: string): Fields {
  const { [name]: _, ...others } = fields;
  return others;
}

/** The list itself if no entry changes. */
function mapped(list: readonly unknown[], change: (entry: unknown, place: number) => unknown): readonly unknown[] {
  const changed = list.map(change);
  return changed.every((entry, place) => entry === list[place]) ? list : changed;
}
