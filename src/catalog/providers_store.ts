import { asc, eq, gt, sql } from "drizzle-orm";
import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { encrypt } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { providers } from "../platform/schema.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { checkProvider, type ProviderInput, type ProviderPatch } from "./catalog_input.ts";
import { givenFields, type RowPage, refusing, UNIQUE_VIOLATION } from "./catalog_store.ts";
import { assertCallable, GuardError } from "./guard.ts";

/** Providers, as an operator lists and changes them. Their keys are encrypted, and never listed. */

type ProviderDeps = ChangeDeps & { config: Pick<Config, "secretKey" | "providerAllowPrivate"> };

const providerColumns = {
  id: providers.id,
  name: providers.name,
  baseUrl: providers.baseUrl,
  enabled: providers.enabled,
};

/** Providers by name, without their keys: all of them, or a page (`after` is a name). */
export async function listProviders({ db }: { db: Db }, page?: RowPage) {
  const query = db.orm
    .select({
      ...providerColumns,
      /** How many routes it has, disabled ones included. */
      routes: sql<number>`(select count(*)::int from routes where routes.provider_id = providers.id)`,
    })
    .from(providers)
    .where(page?.after === undefined ? undefined : gt(providers.name, page.after))
    .orderBy(asc(providers.name));
  return await (page === undefined ? query : query.limit(page.limit));
}

/** A provider, disabled or not, with its encrypted key; undefined if there is none. */
export async function findProvider({ db }: { db: Db }, id: number) {
  const [row] = await db.orm
    .select({ ...providerColumns, keyCiphertext: providers.keyCiphertext })
    .from(providers)
    .where(eq(providers.id, id));
  return row;
}

/**
 * Adds a provider, encrypts its key, and returns its id. The base URL must be callable now. Throws service_unavailable
 * if the database belongs to another SECRET_KEY.
 */
export async function addProvider(deps: ProviderDeps, input: ProviderInput): Promise<number> {
  const { name = "", baseUrl = "", apiKey = "", enabled } = checkProvider(input);
  await checkBaseUrl(baseUrl, deps.config.providerAllowPrivate);
  return await changing(deps, async (tx) => {
    await holdSecretKey(tx, deps.config.secretKey);
    const [added] = await tx
      .insert(providers)
      .values({ name, baseUrl, enabled, keyCiphertext: encrypt(deps.config.secretKey, apiKey) })
      .onConflictDoNothing()
      .returning({ id: providers.id });
    if (!added) throw new InputError(`The provider ${name} exists already.`, "name");
    return added.id;
  });
}

/**
 * Changes the given fields of a provider; a new key replaces the old one. A base URL at another origin needs a new key,
 * so that no service gets the key of another. Throws service_unavailable for a new key if the database belongs to
 * another SECRET_KEY.
 */
export async function updateProvider(deps: ProviderDeps, id: number, patch: ProviderPatch): Promise<void> {
  const { apiKey, ...rest } = checkProvider(patch);
  const values = givenFields({
    ...rest,
    ...(apiKey !== undefined && { keyCiphertext: encrypt(deps.config.secretKey, apiKey) }),
  });
  if (rest.baseUrl !== undefined) await checkBaseUrl(rest.baseUrl, deps.config.providerAllowPrivate);
  await refusing({ [UNIQUE_VIOLATION]: new InputError(`The provider ${rest.name} exists already.`, "name") }, () =>
    changing(deps, async (tx) => {
      if (apiKey !== undefined) await holdSecretKey(tx, deps.config.secretKey);
      if (rest.baseUrl !== undefined && apiKey === undefined) await checkSameOrigin(tx, id, rest.baseUrl);
      const rows = await tx.update(providers).set(values).where(eq(providers.id, id)).returning({ id: providers.id });
      if (rows.length === 0) throw new InputError("There is no such provider.", "providerId");
    }),
  );
}

async function checkSameOrigin(tx: Tx, id: number, baseUrl: string): Promise<void> {
  const [known] = await tx
    .select({ baseUrl: providers.baseUrl })
    .from(providers)
    .where(eq(providers.id, id))
    .for("update");
  if (known && new URL(known.baseUrl).origin !== new URL(baseUrl).origin)
    throw new InputError(
      "This is another service: give its key too. The stored one stays with the old address.",
      "apiKey",
    );
}

/** The same check as before each call, so that the operator sees a wrong address, and not the first customer. */
async function checkBaseUrl(baseUrl: string, allowPrivate: readonly string[]): Promise<void> {
  try {
    const { url } = await assertCallable(baseUrl, { allowPrivate, purpose: "The provider's base URL" });
    if (url.hash !== "") throw new InputError("The provider's base URL must not contain a #.", "baseUrl");
  } catch (thrown) {
    throw thrown instanceof GuardError ? new InputError(thrown.message, "baseUrl") : thrown;
  }
}
