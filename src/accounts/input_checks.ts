import { InputError, sentence } from "../errors.ts";
import { INSTANT } from "../http/checks.ts";
import { EMAIL_CHARS_MAX } from "../limits.ts";
import { toIso } from "../platform/iso_time.ts";

/** Checks of what people type. Each returns the normalized value or throws InputError. */

// Excludes control, formatting and unassigned characters: Postgres rejects NUL in text, and the others could forge lines in logs, tables and the
// headers of mail. Excludes what separates addresses, comments and names in such headers too. Source: RFC 5322 › 3.4.
const EMAIL = /^[^\s@\p{C}()<>[\]:;,"\\]+@[^\s@\p{C}()<>[\]:;,"\\]+$/u;
// Excludes line separators and marks that turn the direction of what follows too: an amount behind such a name would read backwards.
const CONTROL = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u;
const CONTROL_IN_LINES = /[^\P{Cc}\n]|[\u202a-\u202e\u2066-\u2069]/u;
const SURROGATE = /\p{Cs}/u;
const OVERLAP_SECONDS_MAX = 30 * 86_400;
const IS_INSTANT = new RegExp(INSTANT.pattern);
// The years 1 to 9999: Postgres has no year 0, and a later one is written with a sign.
const HAS_YEAR = /^(?!0000)\d{4}-/;

/** A name of 1 to `charsMax` characters (code points) on one line, trimmed. */
export function checkName(value: string, { param, charsMax }: { param: string; charsMax: number }): string {
  const name = value.trim();
  const chars = [...name].length;
  if (chars < 1 || chars > charsMax)
    throw new InputError(
      sentence("The field {param} must have 1 to {charsMax} characters.", { param, charsMax }),
      param,
    );
  if (CONTROL.test(name) || SURROGATE.test(name))
    throw new InputError(sentence("The field {param} must be plain text on one line.", { param }), param);
  return name;
}

/**
 * A typed e-mail address in the form in which addresses are stored, looked up and counted by limits: with a form of its own, each could take
 * for one address what another takes for many.
 */
export function emailForm(typed: string): string {
  return typed.trim().toLowerCase();
}

/** An e-mail address, trimmed and in lower case. */
export function checkEmail(value: string): string {
  const email = emailForm(value);
  if (email.length > EMAIL_CHARS_MAX || !EMAIL.test(email))
    throw new InputError("This is not an e-mail address.", "email");
  return email;
}

/** Plain text that may have several lines. Empty text becomes null. */
export function checkLines(
  value: string | null,
  { param, charsMax }: { param: string; charsMax: number },
): string | null {
  const text = value?.trim().replaceAll("\r\n", "\n") ?? "";
  if ([...text].length > charsMax)
    throw new InputError(
      sentence("The field {param} may have at most {charsMax} characters.", { param, charsMax }),
      param,
    );
  if (CONTROL_IN_LINES.test(text) || SURROGATE.test(text))
    throw new InputError(sentence("The field {param} must be plain text.", { param }), param);
  return text === "" ? null : text;
}

/** A whole number in a range. */
export function checkInteger(value: number, { param, min, max }: { param: string; min: number; max: number }): number {
  if (!Number.isSafeInteger(value) || value < min || value > max) {
    throw new InputError(
      sentence("The field {param} must be a whole number from {min} to {max}.", { param, min, max }),
      param,
    );
  }
  return value;
}

/** How long a key or token that was replaced may still work, in seconds. Throws InputError. */
export function checkOverlap(overlapSeconds: number): void {
  checkInteger(overlapSeconds, { param: "overlapSeconds", min: 0, max: OVERLAP_SECONDS_MAX });
}

/** A time with its zone, or a date, which is its first moment: in UTC, as ISO 8601. Without a zone the time would depend on the machine. */
export function checkInstant(value: string, param: string): string {
  const utc = IS_INSTANT.test(value) ? toIso(value) : "";
  if (!HAS_YEAR.test(utc))
    throw new InputError(
      sentence(
        "The field {param} must be a date, as in 2030-01-31, or a time with its zone, as in 2030-01-31T12:00:00Z.",
        { param },
      ),
      param,
    );
  return utc;
}

/** A list without duplicates, of at most `max` entries; null means "all" and is kept. */
export function checkList(
  values: readonly string[] | null,
  { param, max }: { param: string; max: number },
): string[] | null {
  if (values === null) return null;
  const list = [...new Set(values.map((value) => value.trim()))];
  if (list.length === 0)
    throw new InputError(sentence("The list {param} is empty. Leave it out to allow all.", { param }), param);
  if (list.some((value) => value === "" || CONTROL.test(value)))
    throw new InputError(sentence("The list {param} has an entry that is not a name.", { param }), param);
  if (list.length > max)
    throw new InputError(sentence("The list {param} may have at most {max} entries.", { param, max }), param);
  return list;
}

/** Whether `id` can be the id of a row. If not, nothing is found, without a query. */
export function isRowId(id: number): boolean {
  return Number.isSafeInteger(id) && id > 0;
}
