import { listProviders, loadCatalog, type ProviderRow } from "../catalog/catalog_store.ts";
import { createProviderClient, type ProviderClient } from "../catalog/provider_client.ts";
import { InputError } from "../errors.ts";
import { decrypt, Secret } from "../platform/crypto.ts";
import type { Context } from "./context.ts";

export type ProviderTest = { name: string; ok: boolean; tookMs: number; models: number; problem: string | null };

/** Asks one provider, or every enabled one, for its models. Throws InputError if there is none of that name. */
export async function testProviders(context: Context, name?: string): Promise<ProviderTest[]> {
  const { providers } = await loadCatalog(context.db.orm);
  const asked = providers.filter((row) => name === undefined || row.name === name);
  if (name !== undefined && asked.length === 0) {
    const disabled = (await listProviders(context)).some((row) => row.name === name);
    throw new InputError(
      disabled ? `The provider ${name} is disabled.` : `There is no provider ${JSON.stringify(name)}.`,
    );
  }
  const client = createProviderClient(context);
  return await Promise.all(asked.map((row) => test(context, client, row)));
}

async function test(
  { config }: Context,
  client: ProviderClient,
  { name, baseUrl, keyCiphertext }: ProviderRow,
): Promise<ProviderTest> {
  let apiKey: Secret;
  try {
    apiKey = new Secret(decrypt(config.secretKey, keyCiphertext));
  } catch {
    const problem =
      "its key cannot be decrypted: it was stored under another SECRET_KEY; store it again with provider set --key-stdin";
    return { name, ok: false, tookMs: 0, models: 0, problem };
  }
  return { name, ...(await client.ping({ providerName: name, baseUrl, apiKey })) };
}
