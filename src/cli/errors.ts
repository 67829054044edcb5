import { ConfigError } from "../config.ts";
import { InputError, Refusal } from "../errors.ts";
import { DriverError } from "../platform/db.ts";
import { SchemaError } from "../platform/migrate.ts";

/** What a person can do about Postgres's answer, by SQLSTATE or the driver's code. */
const SENTENCES: Readonly<Record<string, string>> = {
  ECONNREFUSED: "Postgres does not answer: start it, or correct DATABASE_URL.",
  ENOTFOUND: "The host in DATABASE_URL is not known: correct it.",
  CONNECT_TIMEOUT: "Postgres does not answer in time: start it, or correct DATABASE_URL.",
  CONNECTION_ENDED: "Postgres closed the connection: try again.",
  CONNECTION_CLOSED: "Postgres closed the connection: try again.",
  "28000": "Postgres refuses the user in DATABASE_URL: correct it.",
  "28P01": "Postgres refuses the password in DATABASE_URL: correct it.",
  "3D000": "The database in DATABASE_URL does not exist: create it, or correct DATABASE_URL.",
  "42P01": "The database has no schema yet, or an old one: run migrate first.",
  "42703": "The database has an old schema: run migrate first.",
  "42883": "The database has no schema yet, or an old one: run migrate first.",
};

/** One plain sentence about anything thrown, without the values of a query: they may be secrets. */
export function sentenceOf(error: unknown): string {
  const known = knownSentence(error);
  if (known !== undefined) return known;
  const { cause, code } = causeOf(error);
  if (!(cause instanceof Error)) return "Something went wrong that has no name.";
  const words = cause.message.split("\n", 1)[0] || cause.name;
  return code === "" ? `Unexpected: ${words}` : `Unexpected: ${words} (${code})`;
}

/** The same, for what a person can do something about; undefined: its stack says more. */
export function knownSentence(error: unknown): string | undefined {
  const isOurs = [InputError, Refusal, ConfigError, SchemaError, DriverError].some((kind) => error instanceof kind);
  if (error instanceof Error && isOurs) return error.message;
  return SENTENCES[causeOf(error).code];
}

/** drizzle's own message repeats the query with its values; the cause is what Postgres said. */
function causeOf(error: unknown): { cause: unknown; code: string } {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return { cause, code: cause instanceof Error && "code" in cause ? String(cause.code) : "" };
}
