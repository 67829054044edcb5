import { ConfigError } from "../config.ts";
import { InputError, Refusal } from "../errors.ts";
import { DriverError } from "../platform/db.ts";
import { SchemaError } from "../platform/migrate.ts";

/** What a person can do about an error of Postgres, by SQLSTATE or by the driver's code. */
const SENTENCES: Readonly<Record<string, string>> = {
  ECONNREFUSED: "Postgres does not answer: start it, or correct DATABASE_URL.",
  ECONNRESET:
    "Postgres closed the connection: try again, and if DATABASE_URL asks for TLS, check that Postgres has it.",
  EHOSTUNREACH: "The host in DATABASE_URL cannot be reached: check the network, or correct DATABASE_URL.",
  ENETUNREACH: "The host in DATABASE_URL cannot be reached: check the network, or correct DATABASE_URL.",
  ENOTFOUND: "The host in DATABASE_URL is unknown: correct it.",
  EAI_AGAIN: "The name server does not answer for the host in DATABASE_URL: try again.",
  CONNECT_TIMEOUT: "Postgres does not answer in time: start it, or correct DATABASE_URL.",
  CONNECTION_ENDED: "Postgres closed the connection: try again.",
  CONNECTION_CLOSED: "Postgres closed the connection: try again.",
  ERR_TLS_CERT_ALTNAME_INVALID:
    "The certificate of Postgres is for another host than the one in DATABASE_URL: correct one of them.",
  "25006": "Postgres is read-only, as a standby is: name the primary in DATABASE_URL.",
  "28000":
    "Postgres rejects the user in DATABASE_URL, or its address, or a connection without TLS: correct DATABASE_URL, or pg_hba.conf.",
  "28P01": "Postgres rejects the password in DATABASE_URL: correct it.",
  "3D000": "The database in DATABASE_URL does not exist: create it, or correct DATABASE_URL.",
  "42501": "The user in DATABASE_URL has no right to do this: name the user that owns the database and its tables.",
  "42P01": "The database has no schema yet, or an old one: run migrate first.",
  "42703": "The database has an old schema: run migrate first.",
  "42883": "The database has no schema yet, or an old one: run migrate first.",
  "55P03": "Another transaction holds a lock that this needs: wait until it has ended, or end it.",
  "57014": "Postgres cancelled a statement that took too long: try again, or raise its statement_timeout.",
  "53100": "The disk of Postgres is full: free space on it.",
  "53300":
    "Postgres allows no more connections: end some, or raise its max_connections or the user's connection limit.",
  "57P03": "Postgres does not accept connections yet: wait until it has started.",
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
