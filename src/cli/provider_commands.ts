import { type Command, Option } from "commander";
import { DIALECTS, PROBE_CALLS_MAX } from "../catalog/dialects.ts";
import { InputError } from "../errors.ts";
import { createProvider, getProvider, updateProvider } from "../operations/providers.ts";
import { defineOperations } from "./door.ts";
import { dialectOption, type FactsGiven, factOption, factRows, factsTable } from "./fact_options.ts";
import { type Output, table, yesNo } from "./output.ts";
import { addProviderKeyCommands } from "./provider_key_commands.ts";
import {
  addedKeyOptions,
  allProviders,
  type KeyOptions,
  providerIdOf,
  readAddedKey,
  readReplacedKey,
  replacedKeyOptions,
  switched,
} from "./provider_options.ts";
import { probeSentence, testProviders, unlistedSentence } from "./provider_test.ts";
import type { Door } from "./server_door.ts";

/** The command `provider`. */

export function addProviderCommands(program: Command): void {
  const provider = program.command("provider").description("the services that serve the models");
  addAdd(provider);
  addSet(provider);
  addListAndTest(provider);
  addProviderKeyCommands(provider);
}

type FactOptions = { dialect?: string; fact?: FactsGiven };

function factOptions(command: Command, byDefault: string): Command {
  return factOption(dialectOption(command, byDefault));
}

function addAdd(provider: Command): void {
  defineOperations<KeyOptions & FactOptions & { name: string; url: string }>(
    factOptions(
      addedKeyOptions(
        provider
          .command("add")
          .description("add a provider; its key is stored encrypted")
          .requiredOption("--name <name>", "its name here")
          .requiredOption("--url <url>", "its OpenAI-compatible base URL, as in https://api.example.com/v1"),
      ),
      " (default: by the host of its URL)",
    ),
    { changes: true, secretKey: true, adds: true },
    async (ask, { name, url, dialect, fact: facts, ...key }) => {
      const apiKey = await readAddedKey(key);
      await ask(createProvider, { name, baseUrl: url, apiKey, dialect, facts });
      return showProviders(ask, name);
    },
  );
}

function addSet(provider: Command): void {
  defineOperations<KeyOptions & FactOptions & { url?: string; enable?: true; disable?: true }>(
    factOptions(
      replacedKeyOptions(
        provider
          .command("set <name>")
          .description("change a provider's URL, its dialect, or its key if it has only one, or enable or disable it")
          .option("--url <url>", "its base URL")
          .addOption(new Option("--enable", "use it again").conflicts("disable"))
          .option("--disable", "stop using it"),
      ),
      "",
    ),
    { changes: true, secretKey: true },
    async (ask, { url, enable, disable, dialect, fact: facts, ...key }, [name = ""]) => {
      const apiKey = await readReplacedKey(key);
      await ask(updateProvider, {
        providerId: await providerIdOf(ask, name),
        baseUrl: url,
        apiKey,
        dialect,
        facts,
        enabled: switched({ enable, disable }),
      });
      return showProviders(ask, name);
    },
  );
}

function addListAndTest(provider: Command): void {
  defineOperations(
    provider.command("list").description("list providers by name, without their keys"),
    {},
    async (ask) => showProviders(ask),
  );

  defineOperations(
    provider.command("show <name>").description("show a provider's dialect and facts, and where each is known from"),
    {},
    async (ask, _options, [name = ""]) => {
      const shown = await ask(getProvider, { providerId: await providerIdOf(ask, name) });
      const text = `${shown.name}: ${shown.baseUrl}\n${DIALECTS[shown.dialect].title} (${shown.dialect})\n\n${factsTable(shown)}`;
      return { text, json: { provider: { ...shown, facts: factRows(shown) } } };
    },
  );

  defineOperations<{ probe?: true; apply?: true }>(
    provider
      .command("test [name]")
      .description(
        "ask one provider, or all enabled ones, for their models; shows the time or the failure, and models of its routes that it does not list",
      )
      .option(
        "--probe",
        `send at most ${PROBE_CALLS_MAX} tiny requests to find out which facts hold, and propose others`,
      )
      .option("--apply", "probe one provider, and set the facts that are proposed"),
    { secretKey: true, changes: true },
    async (ask, { probe, apply }, [name]) => {
      if (apply && name === undefined) throw new InputError("Name the provider whose facts are to be set.");
      const tests = await testProviders(ask, name, probe ?? apply);
      const proposed = tests.find((test) => test.probe !== null)?.probe?.proposed ?? {};
      if (apply && name !== undefined && Object.keys(proposed).length > 0)
        await ask(updateProvider, { providerId: await providerIdOf(ask, name), facts: proposed });
      const text = table(
        ["PROVIDER", "RESULT", "TIME", "MODELS"],
        tests.map((test) => [
          test.name,
          test.ok ? resultWords(test) : (test.problem ?? "failed"),
          test.ok ? `${test.tookMs} ms` : "",
          test.ok ? String(test.models) : "",
        ]),
        "No enabled providers.",
      );
      return { text, json: { providers: tests }, exitCode: tests.every(({ ok }) => ok) ? 0 : 1 };
    },
  );
}

function resultWords(test: Awaited<ReturnType<typeof testProviders>>[number]): string {
  const answers = ["answers", unlistedSentence(test)].filter(Boolean).join(", but ");
  return [answers, probeSentence(test)].filter(Boolean).join("; ");
}

async function showProviders(ask: Door, name?: string): Promise<Output> {
  const rows = (await allProviders(ask)).filter((row) => name === undefined || row.name === name.trim());
  const text = table(
    ["ID", "PROVIDER", "URL", "DIALECT", "ENABLED", "KEYS"],
    rows.map((row) => [String(row.id), row.name, row.baseUrl, row.dialect, yesNo(row.enabled), String(row.keys)]),
    "No providers.",
  );
  return { text, json: { providers: rows } };
}
