import { Value } from "@sinclair/typebox/value";
import type { Command } from "commander";
import type { Account } from "../accounts/accounts_store.ts";
import { InputError, Refusal } from "../errors.ts";
import { getAccount, listAccounts } from "../operations/accounts.ts";
import { toJson } from "../operations/json.ts";
import { listOfferings, type PricedOffering } from "../operations/offerings.ts";
import { type Brings, type Call, perform } from "../operations/operation.ts";
import { type Context, defineCommand, type Need } from "./context.ts";
import type { Output } from "./output.ts";
import { type Door, serverDoor } from "./server_door.ts";
import { terminal } from "./terminal.ts";

/** Commands that do operations: with the database as the operator, or with `--server` through the management API. */

const SERVER_VARIABLE = "TOLLGATE_SERVER";
const TOKEN_VARIABLE = "TOLLGATE_TOKEN";

type Where = { server?: string; token?: string };

/** The operator's door with what only the operator has. */
type DoorWith = (brings: Brings) => Door;

/**
 * As `defineCommand`, for a command that only does operations. It has --server and --token too. Without a server, `work` gets a `doorWith`
 * too.
 */
export function defineOperations<Options extends object>(
  command: Command,
  need: Need,
  work: (ask: Door, options: Options, args: readonly string[], doorWith?: DoorWith) => Promise<Output>,
): void {
  command
    .option("--server <url>", `the panel's URL, instead of the database (or the variable ${SERVER_VARIABLE})`)
    .option("--token <token>", `a token of the management API; safer: the variable ${TOKEN_VARIABLE}`);
  defineCommand<Options & Where>(command, { ...need, server: serverOf }, async (context, options, args) => {
    const { server = terminal().env[SERVER_VARIABLE], token = terminal().env[TOKEN_VARIABLE] } = options;
    if (!server) return await work(operatorDoor(context), options, args, (brings) => operatorDoor(context, brings));
    if (!token) throw new InputError(`Give a token of the management API: the variable ${TOKEN_VARIABLE}, or --token.`);
    return await work(serverDoor({ server, token }), options, args);
  });
}

const serverOf = (options: Where): boolean => Boolean(options.server ?? terminal().env[SERVER_VARIABLE]);

/** The operator: an admin without an account, whose changes the audit log notes as the command line's. */
export function operatorDoor(context: Context, brings: Brings = {}): Door {
  const call: Call = {
    caller: { accountId: 0, role: "admin", member: "owner", tenantId: 0, by: undefined },
    hostName: null,
    read: (work) => work(context),
    callOut: (_, work) => work(),
    countDelivery: async () => {},
    makeBatch: (_, work) => work(),
    brings,
  };
  // Only the fields of the output, as a server gives: a command prints the same by both doors.
  return async (operation, input) =>
    Value.Decode(operation.output, toJson(operation.output, await perform(context, operation, call, input)));
}

/** What `asked` gives; if there is nothing with that id, the message as an InputError. */
export async function orNone<T>(asked: Promise<T>, message: string): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    throw error instanceof Refusal && error.code === "not_found" ? new InputError(message) : error;
  }
}

/** The account with this id or e-mail address. Throws InputError if there is none, or more than one. */
export async function accountBy(ask: Door, reference: string | undefined): Promise<Account> {
  const text = reference?.trim() ?? "";
  if (/^\d{1,15}$/.test(text))
    return await orNone(ask(getAccount, { accountId: Number(text) }), `There is no account ${text}.`);
  const { rows } = await ask(listAccounts, { email: text });
  const [account] = rows;
  if (!account) throw new InputError(`There is no account ${JSON.stringify(text)}: give its id or its e-mail address.`);
  if (rows.length > 1)
    throw new InputError(
      `Several accounts have this e-mail address: give the id (${rows.map(({ accountId }) => accountId).join(", ")}).`,
    );
  return account;
}

/** The seller that the option --seller names; undefined: the operator, or the reseller whose token is used. Throws InputError. */
export async function sellerBy(ask: Door, reference: string | undefined): Promise<{ sellerId?: number }> {
  if (reference === undefined) return {};
  const { accountId, role } = await accountBy(ask, reference);
  if (role !== "reseller") throw new InputError("Only the operator and resellers are sellers.");
  return { sellerId: accountId };
}

/** The offering with this id or name. Throws InputError. */
export async function offeringBy(ask: Door, reference = ""): Promise<PricedOffering> {
  const { offerings } = await ask(listOfferings, {});
  const text = reference.trim();
  const found =
    offerings.find(({ name }) => name === text) ?? offerings.find(({ offeringId }) => String(offeringId) === text);
  if (!found) throw new InputError(`There is no offering ${JSON.stringify(text)}.`);
  return found;
}
