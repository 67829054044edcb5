import type { Route } from "../catalog/catalog.ts";
import { Refusal } from "../errors.ts";
import type { Namer } from "./end_users.ts";

/** How a body is filtered: what is noted of it, and what passes of objects and lists. The lists are in `parameters.ts`. */

export type Fields = Readonly<Record<string, unknown>>;

/**
 * Filters a value: returns the value itself if all of it passes, a copy without the parts that do not, or undefined if nothing
 * passes. Dropped parts are noted in `filtering`.
 */
export type Filter = (value: unknown, filtering: Filtering) => unknown;

/** What a route allows and drops. Of a model: what any of its routes allows, and what all of them drop. */
export type OwnRules = Pick<Route, "allowedParams" | "droppedParams">;

/**
 * Where an entry of a list that is sent comes from: its path in the client's body. `parts`, `calls`: the path of each part of its
 * content and of each of its calls, if they are elsewhere there.
 */
export type Origin = { path: string; parts?: readonly string[]; calls?: readonly string[] };

/** What must be changed in a body before it is sent on. */
export type Filtered = {
  /** The fields that do not pass unchanged: what passes of each, or undefined. */
  changed: ReadonlyMap<string, unknown>;
  /** Of lists whose entries have other indexes than the client's: the origin of each entry. */
  origins?: ReadonlyMap<string, readonly Origin[]>;
  /** The path of the first part of the prompt that may not be sent. */
  unsent?: string | undefined;
  /** What was dropped, for the header `x-dropped-params`; undefined if nothing was. */
  dropped: string | undefined;
};

/** Refuses a prompt of which a part would not be sent: it would vanish, and be charged. Source: PRV-29. */
export function checkSent(unsent: string | undefined): void {
  if (unsent === undefined) return;
  throw new Refusal("invalid_request", {
    message: `The model does not take ${unsent}: it is neither text nor an image, or has another form than these.`,
    param: unsent,
  });
}

/** Limits of the header: the number of names, and the characters of one name. */
const NAMES_MAX = 20;
const NAME_CHARS_MAX = 60;
const SCALAR_CHARS_MAX = 64;

export class Filtering implements Filtered {
  readonly body: Fields;
  readonly namer: Namer;
  readonly changed = new Map<string, unknown>();
  readonly origins = new Map<string, readonly Origin[]>();
  readonly #by: OwnRules;
  readonly #names: string[] = [];
  /** The number of dropped parts. */
  count = 0;
  unsent: string | undefined;

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

  /** Notes a dropped part by its path, as in `messages.0.name`. */
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

/** Long strings are refused: some chat templates print such values, and the prompt would grow uncounted. */
export function isScalar(value: unknown): boolean {
  if (typeof value === "string") return value.length <= SCALAR_CHARS_MAX;
  return typeof value === "number" || typeof value === "boolean";
}

/** The place of an object: its `field` in the list, and its `path` in this body. `scalar`: known members must be scalar. */
export type Place = { field: string; path: string; known: ReadonlySet<string>; scalar?: boolean };

/** Returns the object itself if all its members pass, or a copy with those that do. */
export function filterMembers(
  value: Fields,
  { field, path, known, scalar = false }: Place,
  filtering: Filtering,
): Fields {
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
export function filterEntries(
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
