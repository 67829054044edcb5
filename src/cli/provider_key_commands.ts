import { type Command, Option } from "commander";
import {
  addProviderKey,
  type ListedKey,
  listProviderKeys,
  removeProviderKey,
  updateProviderKey,
} from "../catalog/provider_keys_store.ts";
import { InputError } from "../errors.ts";
import { type Context, defineCommand } from "./context.ts";
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

/** The command `provider key`: the keys of one provider. */

export function addProviderKeyCommands(provider: Command): void {
  const key = provider
    .command("key")
    .description("the keys of a provider: several share its requests by their weights");
  addAdd(key);
  addSet(key);
  addRemove(key);
  defineCommand(
    key.command("list <provider>").description("list a provider's keys and their states, without the keys themselves"),
    {},
    async (context, _options, [provider = ""]) => showKeys(context, await providerIdOf(context, provider)),
  );
}

function addAdd(key: Command): void {
  defineCommand<KeyOptions & { name: string; weight?: number }>(
    addedKeyOptions(
      key
        .command("add <provider>")
        .description("add a key, which is stored encrypted")
        .requiredOption("--name <name>", "its name here")
        .option("--weight <weight>", "its share of the requests, beside the other keys' weights; default 1", integer),
    ),
    { changes: true, secretKey: true },
    async (context, { name, weight, ...options }, [provider = ""]) => {
      const apiKey = await readAddedKey(options);
      const providerId = await providerIdOf(context, provider);
      await addProviderKey(context, providerId, { name, apiKey, ...(weight !== undefined && { weight }) });
      return showKeys(context, providerId);
    },
  );
}

type Changes = KeyOptions & { rename?: string; weight?: number; enable?: true; disable?: true };

function addSet(key: Command): void {
  defineCommand<Changes>(
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
    async (context, { rename, weight, enable, disable, ...options }, [provider = "", name = ""]) => {
      const apiKey = await readReplacedKey(options);
      const { providerId, keyId } = await keyNamed(context, provider, name);
      const enabled = switched({ enable, disable });
      await updateProviderKey(context, keyId, { name: rename, weight, apiKey, enabled });
      return showKeys(context, providerId);
    },
  );
}

function addRemove(key: Command): void {
  defineCommand(
    key.command("remove <provider> <name>").description("delete a key; a provider keeps at least one"),
    { changes: true },
    async (context, _options, [provider = "", name = ""]) => {
      const { keyId } = await keyNamed(context, provider, name);
      return showKeys(context, await removeProviderKey(context, keyId));
    },
  );
}

async function keyNamed(context: Context, provider: string, name: string) {
  const providerId = await providerIdOf(context, provider);
  const found = (await listProviderKeys(context, [providerId])).find((row) => row.name === name);
  if (!found) throw new InputError(`The provider ${provider} has no key ${JSON.stringify(name)}.`);
  return { providerId, keyId: found.id };
}

async function showKeys(context: Context, providerId: number): Promise<Output> {
  const rows = await listProviderKeys(context, [providerId]);
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

function whyOf({ state, why, models }: ListedKey): string {
  return state === "cooling" ? `rate_limited: ${models.join(", ")}` : (why ?? "");
}
