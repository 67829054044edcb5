import { InputError } from "../errors.ts";
import { EMAIL_CHARS_MAX } from "../limits.ts";

/** Checks of what people type, shared by this room's stores. Each returns the clean value or throws InputError. */

// Control characters included: Postgres takes no NUL in text, and the others forge lines in logs and tables.
const EMAIL = /^[^\s@\p{Cc}]+@[^\s@\p{Cc}]+$/u;
const CONTROL = /\p{Cc}/u;
const SURROGATE = /\p{Cs}/u;

/** A name of 1 to `charsMax` characters (code points), trimmed, on one line. */
export function checkName(value: string, { param, charsMax }: { param: string; charsMax: number }): string {
  const name = value.trim();
  const chars = [...name].length;
  if (chars < 1 || chars > charsMax) throw new InputError(`The ${param} must have 1 to ${charsMax} characters.`, param);
  if (CONTROL.test(name) || SURROGATE.test(name))
    throw new InputError(`The ${param} must be plain text on one line.`, param);
  return name;
}

/** An e-mail address, trimmed and in lower case. */
export function checkEmail(value: string): string {
  const email = value.trim().toLowerCase();
  if (email.length > EMAIL_CHARS_MAX || !EMAIL.test(email))
    throw new InputError("This is not an e-mail address.", "email");
  return email;
}

/** A whole number within its range; `what` names it in words. */
export function checkInteger(
  value: number,
  { param, what, min, max }: { param: string; what: string; min: number; max: number },
): number {
  if (!Number.isSafeInteger(value) || value < min || value > max) {
    throw new InputError(`The ${what} must be a whole number from ${min} to ${max}.`, param);
  }
  return value;
}

/** A list without repeats, of at most `max` entries; null stands for "all" and stays. */
export function checkList(
  values: readonly string[] | null,
  { param, what, max }: { param: string; what: string; max: number },
): string[] | null {
  if (values === null) return null;
  const list = [...new Set(values.map((value) => value.trim()))];
  if (list.length === 0) throw new InputError(`The list of ${what} is empty: leave it out to allow all.`, param);
  if (list.some((value) => value === "" || CONTROL.test(value)))
    throw new InputError(`The list of ${what} has an entry that is no name.`, param);
  if (list.length > max) throw new InputError(`The list of ${what} may have at most ${max} entries.`, param);
  return list;
}

/** Whether `id` can be the id of a row: what cannot is not found, without asking the database. */
export function isRowId(id: number): boolean {
  return Number.isSafeInteger(id) && id > 0;
}

/** Postgres's text of an instant as ISO 8601 in UTC. */
export function toIso(instant: string): string;
export function toIso(instant: string | null): string | null;
export function toIso(instant: string | null): string | null {
  return instant === null ? null : new Date(instant).toISOString();
}
