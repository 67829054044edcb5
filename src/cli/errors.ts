import { ConfigError } from "../config.ts";
import { InputError, Refusal } from "../errors.ts";
import { DriverError } from "../platform/db.ts";
import { SchemaError } from "../platform/migrate.ts";

/** What a person can do about an error of Postgres, by SQLSTATE or by the driver's code. */
const SENTENCES: Readonly<Record<string, string>> = {
  ECONNREFUSED: "Postgres does not answer: start it, or correct DATABASE_URL.",
  ENOTFOUND: "The host in DATABASE_URL is unknown: correct it.",
  CONNECT_TIMEOUT: "Postgres does not answer in time: start it, or correct DATABASE_URL.",
  CONNECTION_ENDED: "Postgres closed the connection: try again.",
  CONNECTION_CLOSED: "Postgres closed the connection: try again.",
  "28000": "Postgres rejects the user in DATABASE_URL: correct it.",
  "28P01": "Postgres rejects the password in DATABASE_URL: correct it.",
  "3D000": "The database in DATABASE_URL does not exist: create it, or correct DATABASE_URL.",
  "42P01": "The database has no schema yet, or an old one: run migrate first.",
  "42703": "The database has an old schema: run migrate first.",
  "42883": "The database has no schema yet, or an old one: run migrate first.",
};

/** One sentence for any error, without the values of a query, which may be secrets. */
export function sentenceOf(error: unknown): string {
  const known = knownSentence(error);
  if (known !== undefined) return known;
  const { cause, code } = causeOf(error);
  if (!(cause instanceof Error)) return "An unknown error occurred.";
  const words = cause.message.split("\n", 1)[0] || cause.name;
  return code === "" ? `Unexpected: ${words}` : `Unexpected: ${words} (${code})`;
}

/** A sentence for an error that a person can act on; undefined for others, whose stack says more. */
export function knownSentence(error: unknown): string | undefined {
  const isOurs = [InputError, Refusal, ConfigError, SchemaError, DriverError].some((kind) => error instanceof kind);
  if (error instanceof Error && isOurs) return error.message;
  return SENTENCES[causeOf(error).code];
}

/** drizzle's own message repeats the query with its values; its cause is the error of Postgres. */
function causeOf(error: unknown): { cause: unknown; code: string } {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return { cause, code: cause instanceof Error && "code" in cause ? String(cause.code) : "" };
}
