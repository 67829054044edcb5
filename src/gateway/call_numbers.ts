import { isRecord } from "../platform/records.ts";
import { isCount } from "./usage_counts.ts";

/** Tool calls in the shape of OpenAI's schema: each has its number, an id of its own, a type, and a text as its arguments. Source: STR-6. */

type Fields = Readonly<Record<string, unknown>>;

/** A whole number from 0, also as a text; undefined if it is none. */
export function numberOf(index: unknown): number | undefined {
  if (isCount(index)) return index;
  return typeof index === "string" && /^\d{1,9}$/.test(index) ? Number(index) : undefined;
}

/** The numbers of a choice's tool calls, and the ids of those that have none. */
export class CallNumbers {
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

  #placeOf({ index, id, name, place, isOther }: CallPart): Begun {
    const theirs = numberOf(index);
    const open = theirs === undefined ? undefined : this.#byIndex.get(theirs);
    const known = id === "" ? undefined : this.#numberOf.get(id);
    if (known !== undefined && (isOther || this.#isSecond({ theirs, known, name })))
      return open?.id === id && !isOther ? this.#at(open.number, false) : this.#beginSecond(theirs, id);
    if (known !== undefined) return this.#at(known, false);
    if (theirs !== undefined) return this.#byTheirIndex(theirs, { id, name });
    if (!continues({ id, name }) || this.#count === 0) return this.#begin(id);
    return this.#at(place === undefined ? this.#last : Math.min(place, this.#count - 1), false);
  }

  /** Some providers give two calls one id: then the index tells them apart. */
  #isSecond({ theirs, known, name }: { theirs: number | undefined; known: number; name: string }): boolean {
    if (theirs === undefined) return false;
    const open = this.#byIndex.get(theirs);
    if (open !== undefined) return open.number !== known;
    return name !== "" && [...this.#byIndex.values()].some(({ number }) => number === known);
  }

  /** A call whose id is that of an earlier one. */
  #beginSecond(theirs: number | undefined, id: string): Begun {
    const begun = { ...this.#begin(""), isSecond: true };
    if (theirs !== undefined) this.#byIndex.set(theirs, { number: begun.number, id });
    return begun;
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

/** `isSecond`: its id is that of another call. */
type Begun = { number: number; begins: boolean; isSecond?: boolean };
/** `repeatsName`: the name is that of the beginning once more. */
type CallPlace = Begun & { repeatsName: boolean };

/**
 * A part of a call. `place`: among the parts of its delta that continue calls; undefined if it is the only one. `isOther`: it is another
 * call than those before it that have its id.
 */
type CallPart = { index: unknown; id: string; name: string; place: number | undefined; isOther: boolean };

/** A part without an id and a name continues a call: the last one or, beside other such parts, the one of its place. */
function continues({ id, name }: Pick<CallPart, "id" | "name">): boolean {
  return id === "" && name === "";
}

/** The calls of a message or delta as they are sent; the same list if all are good. */
export function repairedCalls(calls: readonly unknown[], numbers: CallNumbers, isDelta: boolean): readonly unknown[] {
  const parts = calls.map(partOf);
  const isAlone = parts.filter((part) => part !== undefined && continues(part)).length < 2;
  const ids = new Set<string>();
  let repaired: unknown[] | undefined;
  let continued = 0;
  for (const [i, call] of calls.entries()) {
    const part = parts[i];
    if (part === undefined || !isRecord(call)) continue;
    const place = isAlone || !continues(part) ? undefined : continued++;
    // Two calls by name in one delta are never parts of one call, nor are two entries of a whole message.
    const isOther = ids.has(part.id) && (!isDelta || part.name !== "");
    if (part.id !== "") ids.add(part.id);
    const at = numbers.placeOf({ index: call.index, ...part, place, isOther });
    const own = at.isSecond ? "" : part.id;
    const good = repairedCall(call, { ...at, id: own || (at.begins ? numbers.idOf(at.number) : ""), isDelta });
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
    // Mistral writes the word "null" where it repeats no id.
    id: typeof call.id === "string" && call.id !== "null" ? call.id : "",
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
export function withTextArguments(called: Fields): Fields {
  const { arguments: args } = called;
  return typeof args === "object" && args !== null ? { ...called, arguments: JSON.stringify(args) } : called;
}
