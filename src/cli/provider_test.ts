import { loadCatalog } from "../catalog/catalog_store.ts";
import { type ProviderTest, testProvider } from "../catalog/provider_check.ts";
import { listProviders } from "../catalog/providers_store.ts";
import { InputError } from "../errors.ts";
import type { Context } from "./context.ts";

/** Model names that one line shows. */
const NAMED_MAX = 5;

/** Tests one provider, or all enabled ones: asks for its models and compares them with the routes of enabled models. Throws InputError for an unknown name. */
export async function testProviders(context: Context, name?: string): Promise<(ProviderTest & { name: string })[]> {
  const { providers, models, routes } = await loadCatalog(context.db.orm);
  const sold = new Set(models.map(({ id }) => id));
  const upstreamModelsOf = (id: number) =>
    routes.filter(({ providerId, modelId }) => providerId === id && sold.has(modelId)).map((one) => one.upstreamModel);
  const asked = providers.filter((row) => name === undefined || row.name === name);
  if (name !== undefined && asked.length === 0) {
    const disabled = (await listProviders(context)).some((row) => row.name === name);
    throw new InputError(
      disabled ? `The provider ${name} is disabled.` : `There is no provider ${JSON.stringify(name)}.`,
    );
  }
  const test = (row: (typeof asked)[number]) =>
    testProvider(context, row, { upstreamModels: upstreamModelsOf(row.id) });
  return await Promise.all(asked.map(async (row) => ({ name: row.name, ...(await test(row)) })));
}

/** "does not list A, B": the models of routes that the provider does not list; "" if it lists them all. */
export function unlistedSentence({ unlisted }: Pick<ProviderTest, "unlisted">): string {
  if (unlisted.length === 0) return "";
  const more = unlisted.length - NAMED_MAX;
  return `does not list ${unlisted.slice(0, NAMED_MAX).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
