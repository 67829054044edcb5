import type { Command } from "commander";
import { InputError } from "../errors.ts";
import { listProviders } from "../operations/providers.ts";
import { readSecret } from "./options.ts";
import type { Door } from "./server_door.ts";

/** What the commands of providers and of their keys share. */

const KEY_VARIABLE = "PROVIDER_KEY";
/** Providers that are looked at: more than anybody has. */
const PROVIDERS_MAX = 1000;

export type KeyOptions = { key?: string; keyStdin?: true };

/** The options of a command that adds a key. */
export function addedKeyOptions(command: Command): Command {
  return keyOptions(command, `--key-stdin, or the variable ${KEY_VARIABLE}`);
}

/** The options of a command that may replace a key. */
export function replacedKeyOptions(command: Command): Command {
  return keyOptions(command, "--key-stdin");
}

function keyOptions(command: Command, safer: string): Command {
  return command
    .option("--key <key>", `its API key; safer: ${safer}`)
    .option("--key-stdin", "read its API key from standard input");
}

/** The key of a command that adds one. Throws InputError if none was given. */
export async function readAddedKey({ key, keyStdin }: KeyOptions): Promise<string> {
  const apiKey = await readSecret({ given: key, stdin: keyStdin, variable: KEY_VARIABLE });
  if (apiKey === undefined)
    throw new InputError(`Give its API key: --key-stdin, --key, or the variable ${KEY_VARIABLE}.`);
  return apiKey;
}

/**
 * The key of a command that may replace one; undefined: it stays. Not from the environment: a variable that was left there for another
 * provider would replace the stored key at every change.
 */
export function readReplacedKey({ key, keyStdin }: KeyOptions): Promise<string | undefined> {
  return readSecret({ given: key, stdin: keyStdin });
}

export async function allProviders(ask: Door) {
  return (await ask(listProviders, { limit: PROVIDERS_MAX })).rows;
}

/** Throws InputError if there is no provider of this name. */
export async function providerIdOf(ask: Door, name: string): Promise<number> {
  const found = (await allProviders(ask)).find((row) => row.name === name.trim());
  if (!found) throw new InputError(`There is no provider ${JSON.stringify(name)}.`);
  return found.id;
}

export function switched({ enable, disable }: { enable?: true; disable?: true }): boolean | undefined {
  return enable ? true : disable ? false : undefined;
}
