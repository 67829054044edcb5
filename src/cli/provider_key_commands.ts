import { type Command, Option } from "commander";
import { InputError } from "../errors.ts";
import {
  addProviderKey,
  getProvider,
  type Provider,
  removeProviderKey,
  updateProviderKey,
} from "../operations/providers.ts";
import { defineOperations } from "./door.ts";
import { integer } from "./options.ts";
import { type Output, table, yesNo } from "./output.ts";
import {
  addedKeyOptions,
  type KeyOptions,
  providerIdOf,
  readAddedKey,
  readReplacedKey,
  replacedKeyOptions,
  switched,
} from "./provider_options.ts";
import type { Door } from "./server_door.ts";

/** The command `provider key`: the keys of one provider. */

export function addProviderKeyCommands(provider: Command): void {
  const key = provider
    .command("key")
    .description("the keys of a provider: several share its requests by their weights");
  addAdd(key);
  addSet(key);
  addRemove(key);
  defineOperations(
    key.command("list <provider>").description("list a provider's keys and their states, without the keys themselves"),
    {},
    async (ask, _options, [provider = ""]) =>
      showKeys(await ask(getProvider, { providerId: await providerIdOf(ask, provider) })),
  );
}

function addAdd(key: Command): void {
  defineOperations<KeyOptions & { name: string; weight?: number }>(
    addedKeyOptions(
      key
        .command("add <provider>")
        .description("add a key, which is stored encrypted")
        .requiredOption("--name <name>", "its name here")
        .option("--weight <weight>", "its share of the requests, beside the other keys' weights; default 1", integer),
    ),
    { changes: true, secretKey: true },
    async (ask, { name, weight, ...options }, [provider = ""]) => {
      const apiKey = await readAddedKey(options);
      const providerId = await providerIdOf(ask, provider);
      return showKeys(await ask(addProviderKey, { providerId, name, apiKey, weight }));
    },
  );
}

type Changes = KeyOptions & { rename?: string; weight?: number; enable?: true; disable?: true };

function addSet(key: Command): void {
  defineOperations<Changes>(
    replacedKeyOptions(
      key
        .command("set <provider> <name>")
        .description("replace a key, rename it, change its weight, or enable or disable it")
        .option("--rename <name>", "its new name")
        .option("--weight <weight>", "its share of the requests", integer)
        .addOption(new Option("--enable", "use it again").conflicts("disable"))
        .option("--disable", "stop using it"),
    ),
    { changes: true, secretKey: true },
    async (ask, { rename, weight, enable, disable, ...options }, [provider = "", name = ""]) => {
      const apiKey = await readReplacedKey(options);
      const providerKeyId = await keyNamed(ask, provider, name);
      const enabled = switched({ enable, disable });
      return showKeys(await ask(updateProviderKey, { providerKeyId, name: rename, weight, apiKey, enabled }));
    },
  );
}

function addRemove(key: Command): void {
  defineOperations(
    key.command("remove <provider> <name>").description("delete a key; a provider keeps at least one"),
    { changes: true },
    async (ask, _options, [provider = "", name = ""]) =>
      showKeys(await ask(removeProviderKey, { providerKeyId: await keyNamed(ask, provider, name) })),
  );
}

async function keyNamed(ask: Door, provider: string, name: string): Promise<number> {
  const { keys } = await ask(getProvider, { providerId: await providerIdOf(ask, provider) });
  const found = keys.find((row) => row.name === name);
  if (!found) throw new InputError(`The provider ${provider} has no key ${JSON.stringify(name)}.`);
  return found.id;
}

function showKeys({ keys: rows }: Provider): Output {
  const text = table(
    ["KEY", "WEIGHT", "ENABLED", "STATE", "SINCE", "UNTIL", "WHY", "LAST PROBE"],
    rows.map((row) => [
      row.name,
      String(row.weight),
      yesNo(row.enabled),
      row.state,
      row.since,
      row.until ?? "",
      whyOf(row),
      row.probedAt ?? "",
    ]),
    "No keys.",
  );
  return { text, json: { keys: rows } };
}

function whyOf({ state, why, models }: Provider["keys"][number]): string {
  return state === "cooling" ? `rate_limited: ${models.join(", ")}` : (why ?? "");
}
