import { loadCatalog } from "../catalog/catalog_store.ts";
import { shownFacts } from "../catalog/facts_input.ts";
import { type ProviderTest, probedOf, testProvider } from "../catalog/provider_check.ts";
import { listProviders } from "../catalog/providers_store.ts";
import { InputError } from "../errors.ts";
import type { Context } from "./context.ts";

/** Model names that one line shows. */
const NAMED_MAX = 5;

/** `name`: of the provider, with that of the key if the provider has several. */
type NamedTest = ProviderTest & { name: string };

/**
 * Tests one provider, or all enabled ones, with each enabled key: asks for its models and compares them with the routes of enabled
 * models. Throws InputError for an unknown name.
 */
export async function testProviders(context: Context, name?: string, probes = false): Promise<NamedTest[]> {
  const { providers, providerKeys, models, routes } = await loadCatalog(context.db.orm);
  const sold = new Set(models.map(({ id }) => id));
  const upstreamModelsOf = (id: number) =>
    routes.filter(({ providerId, modelId }) => providerId === id && sold.has(modelId)).map((one) => one.upstreamModel);
  const asked = providers.filter((row) => name === undefined || row.name === name);
  if (name !== undefined && asked.length === 0) {
    const disabled = (await listProviders(context)).some((row) => row.name === name);
    throw new InputError(
      disabled ? `The provider ${name} is revoked.` : `There is no provider ${JSON.stringify(name)}.`,
    );
  }
  const tested = asked.flatMap((provider) => {
    const keys = providerKeys.filter(({ providerId }) => providerId === provider.id);
    return keys.map(({ name: key, keyCiphertext }) => ({
      ...provider,
      keyCiphertext,
      called: keys.length === 1 ? provider.name : `${provider.name}, key ${key}`,
    }));
  });
  return await Promise.all(
    tested.map(async ({ called, facts, dialect, ...row }) => {
      const { takes } = shownFacts(dialect, facts);
      const probe = probes ? await probedOf(context, { ...row, takes }) : undefined;
      const test = await testProvider(context, row, { upstreamModels: upstreamModelsOf(row.id), probe });
      return { name: called, ...test };
    }),
  );
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
