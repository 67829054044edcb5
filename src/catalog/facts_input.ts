import { InputError, sentence } from "../errors.ts";
import { isRecord } from "../platform/records.ts";
import {
  DIALECT_NAMES,
  type DialectName,
  FACT_CHOICES,
  FACT_NAMES,
  type FactChoice,
  type FactName,
  type Facts,
  type FactsOverride,
  FIRST_TOKEN_SECONDS,
  factsOf,
  isDialect,
} from "./dialects.ts";
import { checkDropped } from "./route_params.ts";

/** Checks what an operator says of a dialect and its facts: pure, each throws InputError with one sentence. Source: DIA-1, DIA-2. */

/** Whose facts are overridden. Parameters that one route drops are its own list. */
export type FactsOwner = "provider" | "route";
/** Facts to set; null: as the dialect says, or the provider. */
export type FactsPatch = { readonly [Name in FactName]?: FactsOverride[Name] | null };

const NAME_CHARS_MAX = 60;

export function checkDialect(name: string): DialectName {
  if (isDialect(name)) return name;
  throw new InputError(
    sentence("There is no dialect {name}. There are {dialectNames}.", {
      name: quoted(name),
      dialectNames: DIALECT_NAMES.join(", "),
    }),
    "dialect",
  );
}

/** The checked facts. Throws InputError for a fact that does not exist, and for a value that it cannot have. */
export function checkFacts(facts: Readonly<Record<string, unknown>>, owner: FactsOwner): FactsPatch {
  const entries = Object.entries(facts).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries.map(([name, value]) => [name, checkFact(name, value, owner)]));
}

function checkFact(name: string, value: unknown, owner: FactsOwner): unknown {
  const isOwn = name === "droppedParams" && owner === "route";
  if (!FACT_NAMES.some((known) => known === name) || isOwn) {
    const names = owner === "route" ? FACT_NAMES.filter((known) => known !== "droppedParams") : FACT_NAMES;
    throw new InputError(
      sentence("There is no fact {name}. There are {names}.", { name: quoted(name), names: names.join(", ") }),
      "facts",
    );
  }
  if (value === null) return null;
  if (name === "droppedParams") return checkDropped(listOf(value));
  if (name === "firstTokenSeconds") return checkSeconds(value);
  const { values }: { values: readonly string[] } = FACT_CHOICES[name as FactChoice];
  if (typeof value === "string" && values.includes(value)) return value;
  throw new InputError(
    sentence("The fact {name} must be one of {values}.", { name, values: values.join(", ") }),
    `facts.${name}`,
  );
}

function listOf(value: unknown): string[] {
  if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value;
  throw new InputError("The fact droppedParams must be a list of names.", "facts.droppedParams");
}

function checkSeconds(value: unknown): number {
  const { min, max } = FIRST_TOKEN_SECONDS;
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  throw new InputError(
    sentence("The fact firstTokenSeconds must be a whole number from {min} to {max}.", { min, max }),
    "facts.firstTokenSeconds",
  );
}

function quoted(name: string): string {
  return JSON.stringify(name.slice(0, NAME_CHARS_MAX));
}

/** A dialect as it is stored; undefined if it is not known here. */
export function storedDialect(name: string | undefined): DialectName | undefined {
  return name !== undefined && isDialect(name) ? name : undefined;
}

/** Facts as they are stored; undefined if they cannot be read. */
export function storedFacts(facts: unknown, owner: FactsOwner): FactsOverride | undefined {
  try {
    return isRecord(facts) ? withoutNulls(checkFacts(facts, owner)) : undefined;
  } catch (thrown) {
    if (thrown instanceof InputError) return undefined;
    throw thrown;
  }
}

/**
 * The dialect and the facts of a provider or route as a list shows them: `facts`, what is set here; `takes`, with what the dialect says.
 * What cannot be read is left out, as the catalog does.
 */
export function shownFacts(dialect: string, facts: unknown, ofRoute: unknown = {}): ShownFacts {
  const known = storedDialect(dialect) ?? "generic";
  const ofProvider = storedFacts(facts, "provider") ?? {};
  const own = storedFacts(ofRoute, "route") ?? {};
  return {
    ...{ dialect: known, ofProvider, own },
    ...{
      dialectTakes: factsOf(known),
      providerTakes: factsOf(known, ofProvider),
      takes: factsOf(known, ofProvider, own),
    },
  };
}

export type ShownFacts = {
  dialect: DialectName;
  ofProvider: FactsOverride;
  own: FactsOverride;
  dialectTakes: Facts;
  providerTakes: Facts;
  takes: Facts;
};

/** The facts that are set. */
export function withoutNulls(facts: FactsPatch): FactsOverride {
  return Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== null));
}
