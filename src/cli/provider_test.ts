import { listProviders, loadCatalog } from "../catalog/catalog_store.ts";
import { type ProviderTest, testProvider } from "../catalog/provider_test.ts";
import { InputError } from "../errors.ts";
import type { Context } from "./context.ts";

/** Tests one provider, or every enabled one. Throws InputError if there is none of that name. */
export async function testProviders(context: Context, name?: string): Promise<(ProviderTest & { name: string })[]> {
  const { providers } = await loadCatalog(context.db.orm);
  const asked = providers.filter((row) => name === undefined || row.name === name);
  if (name !== undefined && asked.length === 0) {
    const disabled = (await listProviders(context)).some((row) => row.name === name);
    throw new InputError(
      disabled ? `The provider ${name} is disabled.` : `There is no provider ${JSON.stringify(name)}.`,
    );
  }
  return await Promise.all(asked.map(async (row) => ({ name: row.name, ...(await testProvider(context, row)) })));
}
