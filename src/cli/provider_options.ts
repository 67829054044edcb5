import type { Command } from "commander";
import { listProviders } from "../catalog/providers_store.ts";
import { InputError } from "../errors.ts";
import type { Context } from "./context.ts";
import { readSecret } from "./options.ts";

/** What the commands of providers and of their keys share. */

const KEY_VARIABLE = "PROVIDER_KEY";

export type KeyOptions = { key?: string; keyStdin?: true };

export function keyOptions(command: Command): Command {
  return command
    .option("--key <key>", `its API key; safer: --key-stdin, or the variable ${KEY_VARIABLE}`)
    .option("--key-stdin", "read its API key from standard input");
}

export function readKey({ key, keyStdin }: KeyOptions): Promise<string | undefined> {
  return readSecret({ given: key, stdin: keyStdin, variable: KEY_VARIABLE });
}

export function withoutKey(): InputError {
  return new InputError(`Give its API key: --key-stdin, --key, or the variable ${KEY_VARIABLE}.`);
}

/** Throws InputError if there is no provider of this name. */
export async function providerIdOf(context: Context, name: string): Promise<number> {
  const found = (await listProviders(context)).find((row) => row.name === name);
  if (!found) throw new InputError(`There is no provider ${JSON.stringify(name)}.`);
  return found.id;
}

export function switched({ enable, disable }: { enable?: true; disable?: true }): boolean | undefined {
  return enable ? true : disable ? false : undefined;
}
