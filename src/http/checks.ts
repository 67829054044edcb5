import type { Static, TSchema } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import { Refusal } from "../errors.ts";
import { problemOf } from "./field_errors.ts";

/** Checks bodies and queries against their schemas, and has patterns that several schemas share. */

/** A day of the calendar: no 30 February, and 29 February only in leap years. */
const DAY =
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))" +
  "|(?:\\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
const CLOCK = "(?:[01]\\d|2[0-3]):[0-5]\\d";
/** A day, or a time with its zone: exactly what the ledger accepts, so that the API reference promises no more. */
export const INSTANT = {
  pattern: `^${DAY}(?:T${CLOCK}(?::[0-5]\\d(?:\\.\\d{1,6})?)?(?:Z|[+-]${CLOCK}))?$`,
  says: "a date, as in 2030-01-31, or a time with its zone, as in 2030-01-31T12:00:00Z",
};

/** A compiled check that returns the value with its type. It throws invalid_request that names the first invalid field. */
export function checker<T extends TSchema>(schema: T): (value: unknown) => Static<T> {
  const compiled = TypeCompiler.Compile(schema);
  return (value) => {
    if (compiled.Check(value)) return value;
    throw new Refusal("invalid_request", problemOf(compiled.Errors(value).First()));
  };
}
