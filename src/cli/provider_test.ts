import type { ProviderTest } from "../catalog/provider_check.ts";
import { InputError } from "../errors.ts";
import { getProvider, testProvider } from "../operations/providers.ts";
import { allProviders } from "./provider_options.ts";
import type { Door } from "./server_door.ts";

/** Model names that one line shows. */
const NAMED_MAX = 5;
/** Providers that are tested at once: an account may wait for as many. */
const AT_ONCE = 3;

/** `name`: of the provider, with that of the key if the provider has several. */
type NamedTest = ProviderTest & { name: string };

/**
 * Tests one provider, or all enabled ones, with each enabled key: asks for its models and compares them with the routes of enabled models. Throws
 * InputError for an unknown name.
 */
export async function testProviders(ask: Door, name?: string, probe?: boolean): Promise<NamedTest[]> {
  const known = await allProviders(ask);
  const named = known.filter((row) => name === undefined || row.name === name.trim());
  const asked = named.filter(({ enabled }) => enabled);
  if (name !== undefined && asked.length === 0)
    throw new InputError(
      named.length > 0 ? `The provider ${name} is disabled.` : `There is no provider ${JSON.stringify(name)}.`,
    );
  const tests: NamedTest[][] = [];
  for (let first = 0; first < asked.length; first += AT_ONCE)
    tests.push(
      ...(await Promise.all(asked.slice(first, first + AT_ONCE).map((row) => testKeys(ask, { ...row, probe })))),
    );
  return tests.flat();
}

/** One after the other: a provider has one test at a time. */
async function testKeys(
  ask: Door,
  { id: providerId, name, probe }: { id: number; name: string; probe: boolean | undefined },
): Promise<NamedTest[]> {
  const keys = (await ask(getProvider, { providerId })).keys.filter(({ enabled }) => enabled);
  const tests: NamedTest[] = [];
  for (const { id: keyId, name: key } of keys) {
    const test = await ask(testProvider, { providerId, keyId, probe });
    tests.push({ name: keys.length === 1 ? name : `${name}, key ${key}`, ...test });
  }
  return tests;
}

/** What a probe found, in a sentence; "" if there was none. */
export function probeSentence({ probe }: Pick<ProviderTest, "probe">): string {
  if (probe === null) return "";
  const facts = Object.entries(probe.proposed).map(([name, value]) => `--fact ${name}=${String(value)}`);
  const unknown = probe.unknown.length > 0 ? `; takes no form of ${probe.unknown.join(", ")}` : "";
  const kind = probe.recognised === null ? "" : `; its list of models is that of the dialect ${probe.recognised}`;
  return `${facts.length > 0 ? `proposed: ${facts.join(" ")}` : "its facts hold"} (${probe.calls} requests)${unknown}${kind}`;
}

/** "does not list A, B": the models of routes that the provider does not list; "" if it lists them all. */
export function unlistedSentence({ unlisted }: Pick<ProviderTest, "unlisted">): string {
  if (unlisted.length === 0) return "";
  const more = unlisted.length - NAMED_MAX;
  return `does not list ${unlisted.slice(0, NAMED_MAX).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
