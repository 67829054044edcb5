import { asc, eq, gt, sql } from "drizzle-orm";
import type { Config } from "../config.ts";
import { ExistsError, InputError, sentence } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { encrypt } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { providers } from "../platform/schema_catalog.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { checkProvider, type ProviderInput, type ProviderPatch } from "./catalog_input.ts";
import { givenFields, type RowPage, refusing, UNIQUE_VIOLATION } from "./catalog_store.ts";
import { dialectOfUrl } from "./dialects.ts";
import { shownFacts, withoutNulls } from "./facts_input.ts";
import { changedFacts, checkFactsAgree } from "./facts_store.ts";
import { assertCallable, GuardError } from "./guard.ts";
import { insertKey, replaceOnlyKey } from "./provider_keys_store.ts";

/** Providers, as an operator lists and changes them. Their keys: `provider_keys_store.ts`. */

/** The name of the key that a provider is added with. */
export const FIRST_KEY_NAME = "default";

type ProviderDeps = ChangeDeps & { config: Pick<Config, "secretKey" | "providerAllowPrivate"> };

const providerColumns = {
  id: providers.id,
  name: providers.name,
  baseUrl: providers.baseUrl,
  dialect: providers.dialect,
  facts: providers.facts,
  enabled: providers.enabled,
};

/** Providers by name, without their keys: all of them, or a page (`after` is a name). */
export async function listProviders({ db }: { db: Db }, page?: RowPage) {
  const query = db.orm
    .select({
      ...providerColumns,
      /** How many routes it has, disabled ones included. */
      routes: sql<number>`(select count(*)::int from routes where routes.provider_id = providers.id)`,
      keys: sql<number>`(select count(*)::int from provider_keys where provider_keys.provider_id = providers.id)`,
    })
    .from(providers)
    .where(page?.after === undefined ? undefined : gt(providers.name, page.after))
    .orderBy(asc(providers.name));
  const rows = await (page === undefined ? query : query.limit(page.limit));
  return rows.map(shown);
}

/** A provider, disabled or not; undefined if there is none. */
export async function findProvider({ db }: { db: Db }, id: number) {
  const [row] = await db.orm.select(providerColumns).from(providers).where(eq(providers.id, id));
  return row && shown(row);
}

/** A row with what is set of its facts, and with what it takes. */
function shown<R extends { dialect: string; facts: unknown }>(row: R) {
  const { dialect, ofProvider, dialectTakes, takes } = shownFacts(row.dialect, row.facts);
  return { ...row, dialect, facts: ofProvider, dialectTakes, takes };
}

/**
 * Adds a provider with its first key, encrypted, and returns its id. The base URL must be callable now. Throws service_unavailable
 * if the database belongs to another SECRET_KEY.
 */
export async function addProvider(deps: ProviderDeps, input: ProviderInput): Promise<number> {
  const { name = "", baseUrl = "", apiKey = "", enabled, ...rest } = checkProvider(input);
  const { dialect = dialectOfUrl(baseUrl), facts = {} } = rest;
  await checkBaseUrl(baseUrl, deps.config.providerAllowPrivate);
  return await changing(deps, async (tx) => {
    await holdSecretKey(tx, deps.config.secretKey);
    const [added] = await tx
      .insert(providers)
      .values({ name, baseUrl, enabled, dialect, facts: withoutNulls(facts) })
      .onConflictDoNothing()
      .returning({ id: providers.id });
    if (!added) throw new ExistsError(sentence("The provider {name} exists already.", { name }), "name");
    const first = { providerId: added.id, name: FIRST_KEY_NAME };
    await insertKey(tx, first, encrypt(deps.config.secretKey, apiKey));
    await checkFactsAgree(tx, added.id);
    return added.id;
  });
}

/**
 * Changes the given fields of a provider. `apiKey` replaces the key of a provider that has one alone. A base URL at
 * another origin needs a new key, so that no service gets the key of another. Throws service_unavailable for a new key
 * if the database
 * belongs to another SECRET_KEY.
 */
export async function updateProvider(deps: ProviderDeps, id: number, patch: ProviderPatch): Promise<void> {
  const { apiKey, facts, ...rest } = checkProvider(patch);
  if (apiKey === undefined) givenFields({ ...rest, facts });
  const values = { ...rest, ...(facts !== undefined && { facts: changedFacts(providers.facts, facts) }) };
  if (rest.baseUrl !== undefined) await checkBaseUrl(rest.baseUrl, deps.config.providerAllowPrivate);
  await refusing(
    {
      [UNIQUE_VIOLATION]: new ExistsError(
        sentence("The provider {name} exists already.", { name: rest.name ?? "" }),
        "name",
      ),
    },
    () =>
      changing(deps, async (tx) => {
        const known = await lockProvider(tx, id);
        if (apiKey !== undefined) await replaceOnlyKey(tx, deps, { providerId: id, apiKey });
        else if (rest.baseUrl !== undefined) checkSameOrigin(known.baseUrl, rest.baseUrl);
        if (Object.values(values).some((value) => value !== undefined))
          await tx.update(providers).set(values).where(eq(providers.id, id));
        if (facts !== undefined || rest.dialect !== undefined) await checkFactsAgree(tx, id);
      }),
  );
}

async function lockProvider(tx: Tx, id: number): Promise<{ baseUrl: string }> {
  const [known] = await tx
    .select({ baseUrl: providers.baseUrl })
    .from(providers)
    .where(eq(providers.id, id))
    .for("update");
  if (!known) throw new InputError("There is no such provider.", "providerId");
  return known;
}

function checkSameOrigin(known: string, baseUrl: string): void {
  if (new URL(known).origin !== new URL(baseUrl).origin)
    throw new InputError(
      "This is another service: give its key too. The stored one stays with the old address.",
      "apiKey",
    );
}

/** The same check as before each call, so that the operator sees a wrong address before a customer does. */
async function checkBaseUrl(baseUrl: string, allowPrivate: readonly string[]): Promise<void> {
  try {
    const { url } = await assertCallable(baseUrl, {
      allowPrivate,
      purpose: "The provider's base URL",
      tellsAddresses: true,
    });
    if (url.hash !== "") throw new InputError("The provider's base URL must not contain a #.", "baseUrl");
  } catch (thrown) {
    throw thrown instanceof GuardError ? new InputError(thrown.message, "baseUrl") : thrown;
  }
}
