import { type Command, InvalidArgumentError } from "commander";
import {
  DIALECT_NAMES,
  DIALECTS,
  type DialectName,
  FACT_NAMES,
  type FactName,
  type Facts,
} from "../catalog/dialects.ts";
import { table } from "./output.ts";

/** The option of commands that set facts, and how facts are shown. */

export type FactsGiven = Record<string, unknown>;

/** Adds `--fact`. `but`: facts that it does not set. */
export function factOption(command: Command, { but = [] }: { but?: readonly FactName[] } = {}): Command {
  const names = FACT_NAMES.filter((name) => !but.includes(name));
  return command.option(
    "--fact <name=value>",
    `what the provider takes, where it differs from its dialect; default: as the dialect says again; repeat for more. Facts: ${names.join(", ")}`,
    fact,
  );
}

/** Adds `--dialect`. */
export function dialectOption(command: Command, byDefault: string): Command {
  return command.option("--dialect <name>", `what it takes${byDefault}: ${DIALECT_NAMES.join(", ")}`);
}

/** Collects `name=value`. The stores check names and values. */
function fact(text: string, before: FactsGiven = {}): FactsGiven {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("It must be a fact and its value, as in capField=max_completion_tokens.");
  const [name, value] = [text.slice(0, at).trim(), text.slice(at + 1).trim()];
  return { ...before, [name]: readValue(name, value) };
}

function readValue(name: string, value: string): unknown {
  if (value === "default") return null;
  if (name === "droppedParams") return value === "none" ? [] : value.split(",");
  return name === "firstTokenSeconds" && /^\d{1,9}$/.test(value) ? Number(value) : value;
}

/** The facts of a provider as a table: each value, and where it is from. */
export function factsTable(provider: { dialect: DialectName; facts: Partial<Facts>; takes: Facts }): string {
  return table(
    ["FACT", "VALUE", "FROM"],
    factRows(provider).map(({ fact: name, value, from }) => [name, value, from]),
    "",
  );
}

export function factRows({ dialect, facts, takes }: { dialect: DialectName; facts: Partial<Facts>; takes: Facts }) {
  const known: Partial<Record<FactName, { source: string }>> = DIALECTS[dialect].known;
  return FACT_NAMES.map((name) => {
    const value = [takes[name] ?? "as configured"].flat().join(" ") || "none";
    const from = facts[name] === undefined ? (known[name]?.source ?? "most providers") : "set here";
    return { fact: name, value, from };
  });
}
