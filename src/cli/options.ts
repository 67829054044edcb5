import { InvalidArgumentError } from "commander";
import { type Account, findAccount, findAccountsByEmail } from "../accounts/accounts_store.ts";
import { InputError } from "../errors.ts";
import type { Context } from "./context.ts";
import { terminal } from "./terminal.ts";

/** Reads options: parsers for commander, secrets, and accounts by id or e-mail address. */

const SECRET_BYTES_MAX = 64 * 1024;

/** A parser for commander that shows the message of an InputError. */
export function parsedBy<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw error instanceof InputError ? new InvalidArgumentError(error.message) : error;
    }
  };
}

/** A whole number; its range is checked where it is used. */
export function integer(text: string): number {
  if (!/^-?\d{1,15}$/.test(text)) throw new InvalidArgumentError("It must be a whole number.");
  return Number(text);
}

/** Collects an option that is repeated, or given once with commas. */
export function list(text: string, before: string[] = []): string[] {
  return [...before, ...text.split(",")];
}

/** An id as an argument. Throws InputError. */
export function idOf(text: string | undefined, what: string): number {
  if (text === undefined || !/^\d{1,15}$/.test(text))
    throw new InputError(`The ${what} must be a number, as its list command shows it.`);
  return Number(text);
}

/** What `endOfDay` reads. */
export const END_OF_DAY = "2030-01-31 (the end of that day, UTC) or 2030-01-31T12:00:00Z";

/** A date without a time is the last day, as in the panel. The stores check the rest. */
export function endOfDay(text: string): string {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T23:59:59Z` : text;
}

/** A secret from the option, else from standard input if `stdin`, else from the environment variable, if one is named. Throws InputError. */
export async function readSecret({
  given,
  stdin,
  variable,
}: {
  given?: string;
  stdin?: boolean;
  variable?: string;
}): Promise<string | undefined> {
  if (given !== undefined && stdin)
    throw new InputError("Give the secret as an option or on standard input, not both.");
  if (given !== undefined) return given;
  if (stdin) return await readStdin();
  return variable === undefined ? undefined : terminal().env[variable] || undefined;
}

async function readStdin(): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of terminal().stdin) {
    const part = Buffer.from(chunk);
    bytes += part.length;
    if (bytes > SECRET_BYTES_MAX) throw new InputError("The secret on standard input is too long.");
    chunks.push(part);
  }
  const text = Buffer.concat(chunks)
    .toString("utf8")
    .replace(/\r?\n$/, "");
  if (text === "") throw new InputError("Standard input is empty.");
  return text;
}

/** What `sellerBy` reads. */
export const SELLER = "a reseller, by id or e-mail address (default: the operator)";

/** The account with this id or e-mail address. Throws InputError if there is none, or more than one. */
export async function accountOf(context: Context, reference: string | undefined): Promise<Account> {
  const text = reference?.trim() ?? "";
  if (/^\d+$/.test(text)) {
    const account = await findAccount(context, Number(text));
    if (!account) throw new InputError(`There is no account ${text}.`);
    return account;
  }
  const found = await findAccountsByEmail(context, text);
  const [account] = found;
  if (!account) throw new InputError(`There is no account ${JSON.stringify(text)}: give its id or its e-mail address.`);
  if (found.length > 1) {
    throw new InputError(
      `Several accounts have this e-mail address: give the id (${found.map(({ accountId }) => accountId).join(", ")}).`,
    );
  }
  return account;
}
