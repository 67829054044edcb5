import { and, asc, desc, eq, inArray, type SQLWrapper, sql } from "drizzle-orm";
import type { Config } from "../config.ts";
import { ExistsError, InputError, sentence } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { encrypt } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { providerKeyPauses, providerKeys, providers } from "../platform/schema_catalog.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { checkProviderKey, type ProviderKeyInput, type ProviderKeyPatch } from "./catalog_input.ts";
import { givenFields, refusing, UNIQUE_VIOLATION } from "./catalog_store.ts";

/** The keys of providers, as an operator lists and changes them. They are encrypted, and never listed. Source: PRV-9. */

/** Keys of one provider. */
export const KEYS_MAX = 50;

type KeyDeps = ChangeDeps & { config: Pick<Config, "secretKey"> };

const toIso = (moment: SQLWrapper) =>
  sql<string | null>`to_char(${moment} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** The pauses of a key that are not over, as one row. */
const pauses = sql`(
  select min(p.since) as since, max(p.until) as until, array_agg(p.model order by p.model) as models, bool_and(p.met_payer_id is null) as for_all
  from provider_key_pauses p where p.key_id = provider_keys.id and p.until > clock_timestamp())`;
const isQuarantined = sql`${providerKeys.state} = 'quarantined'`;
const coolingSince = sql`(select since from ${pauses} as paused)`;
/** Of the quarantine, else of the pauses. */
const either = (quarantine: SQLWrapper, pause: SQLWrapper) =>
  sql`case when ${isQuarantined} then ${quarantine} else ${pause} end`;
const ofPauses = (column: string) => sql`(select ${sql.raw(column)} from ${pauses} as paused)`;

const keyColumns = {
  id: providerKeys.id,
  providerId: providerKeys.providerId,
  name: providerKeys.name,
  weight: providerKeys.weight,
  enabled: providerKeys.enabled,
  state: sql<"active" | "cooling" | "quarantined">`case when ${isQuarantined} then 'quarantined'
    when ${coolingSince} is not null then 'cooling' else 'active' end`,
  /** When the state began. */
  since: sql<string>`${toIso(sql`coalesce(${either(providerKeys.since, coolingSince)}, ${providerKeys.since})`)}`,
  /** When a pause ends, or when a quarantined key is probed next; null: active. */
  until: toIso(either(providerKeys.until, ofPauses("until"))),
  /** Why it is in quarantine; null: it is not. */
  why: providerKeys.why,
  /** The upstream models that are paused. */
  models: sql<string[]>`coalesce(${ofPauses("models")}, '{}')`,
  /** Whether it is closed for every request; false: only for accounts that met the failure. */
  forAll: sql<boolean>`coalesce(${either(sql`${providerKeys.metPayerId} is null`, ofPauses("for_all"))}, false)`,
  probedAt: toIso(providerKeys.probedAt),
};
export type ListedKey = Awaited<ReturnType<typeof listProviderKeys>>[number];

/** The keys of some providers in the order in which they were added, without the keys themselves. */
export async function listProviderKeys({ db }: { db: Db }, providerIds: readonly number[]) {
  if (providerIds.length === 0) return [];
  return await db.orm
    .select(keyColumns)
    .from(providerKeys)
    .where(inArray(providerKeys.providerId, [...providerIds]))
    .orderBy(asc(providerKeys.id));
}

/** One encrypted key of a provider: the given one, or its first, enabled ones before others. */
export async function findStoredKey(
  { db }: { db: Db },
  { providerId, keyId }: { providerId: number; keyId?: number | undefined },
) {
  const [row] = await db.orm
    .select({ name: providerKeys.name, keyCiphertext: providerKeys.keyCiphertext })
    .from(providerKeys)
    .where(and(eq(providerKeys.providerId, providerId), keyId === undefined ? undefined : eq(providerKeys.id, keyId)))
    .orderBy(desc(providerKeys.enabled), asc(providerKeys.id))
    .limit(1);
  return row;
}

/** Adds a key to a provider, encrypted, and returns its id. Throws InputError, service_unavailable as `addProvider` does. */
export async function addProviderKey(deps: KeyDeps, providerId: number, input: ProviderKeyInput): Promise<number> {
  const { apiKey = "", ...checked } = checkProviderKey(input);
  return await changing(deps, async (tx) => {
    await holdSecretKey(tx, deps.config.secretKey);
    const keys = await lockKeys(tx, providerId);
    if (keys.length >= KEYS_MAX)
      throw new InputError(sentence("A provider may have at most {keysMax} keys.", { keysMax: KEYS_MAX }), "name");
    return await insertKey(
      tx,
      { ...checked, providerId, name: checked.name ?? "" },
      encrypt(deps.config.secretKey, apiKey),
    );
  });
}

type NewKey = { providerId: number; name: string; weight?: number | undefined; enabled?: boolean | undefined };

/** Adds a key within a transaction. Throws InputError if the provider has one of that name. */
export async function insertKey(tx: Tx, key: NewKey, keyCiphertext: Buffer): Promise<number> {
  const [added] = await tx
    .insert(providerKeys)
    .values({ ...key, keyCiphertext })
    .onConflictDoNothing()
    .returning({ id: providerKeys.id });
  if (!added) throw nameTaken(key.name);
  return added.id;
}

/** Changes the given fields of a key, and returns its provider's id. A new secret makes the key active. Throws as `addProviderKey` does. */
export async function updateProviderKey(deps: KeyDeps, keyId: number, patch: ProviderKeyPatch): Promise<number> {
  const { apiKey, ...rest } = checkProviderKey(patch);
  const values = givenFields({ ...rest, ...(apiKey !== undefined && newSecret(deps, apiKey)) });
  return await refusing({ [UNIQUE_VIOLATION]: nameTaken(rest.name ?? "") }, () =>
    changing(deps, async (tx) => {
      if (apiKey !== undefined) await holdSecretKey(tx, deps.config.secretKey);
      const [changed] = await tx
        .update(providerKeys)
        .set(values)
        .where(eq(providerKeys.id, keyId))
        .returning({ providerId: providerKeys.providerId });
      if (!changed) throw noSuchKey();
      if (apiKey !== undefined) await forgetPauses(tx, keyId);
      return changed.providerId;
    }),
  );
}

/**
 * Deletes a key, and returns its provider's id. Throws InputError for the last one: a provider without a key could serve nothing, and
 * not be tested.
 */
export async function removeProviderKey(deps: ChangeDeps, keyId: number): Promise<number> {
  return await changing(deps, async (tx) => {
    const [key] = await tx
      .select({ providerId: providerKeys.providerId })
      .from(providerKeys)
      .where(eq(providerKeys.id, keyId));
    if (!key) throw noSuchKey();
    const keys = await lockKeys(tx, key.providerId);
    if (keys.length === 1 && keys[0] === keyId)
      throw new InputError("This is the provider's only key. Replace it, or disable the provider.", "keyId");
    await tx.delete(providerKeys).where(eq(providerKeys.id, keyId));
    return key.providerId;
  });
}

/** Replaces the key of a provider that has one. Throws InputError if it has several. */
export async function replaceOnlyKey(
  tx: Tx,
  deps: KeyDeps,
  { providerId, apiKey }: { providerId: number; apiKey: string },
) {
  await holdSecretKey(tx, deps.config.secretKey);
  const [only, ...others] = await lockKeys(tx, providerId);
  if (only === undefined) return;
  if (others.length > 0)
    throw new InputError(
      sentence(
        "The provider has {othersCount} keys: replace one of them by its name, and remove those that belong to another service.",
        { othersCount: others.length + 1 },
      ),
      "apiKey",
    );
  await tx.update(providerKeys).set(newSecret(deps, apiKey)).where(eq(providerKeys.id, only));
  await forgetPauses(tx, only);
}

async function forgetPauses(tx: Tx, keyId: number): Promise<void> {
  await tx.delete(providerKeyPauses).where(eq(providerKeyPauses.keyId, keyId));
}

/** A new secret has no failures. */
function newSecret({ config }: KeyDeps, apiKey: string) {
  return { keyCiphertext: encrypt(config.secretKey, apiKey), ...ACTIVE, failures: 0, probedAt: null };
}

/** The columns of an active key. */
export const ACTIVE = {
  state: "active" as const,
  since: sql`clock_timestamp()`,
  until: null,
  why: null,
  metAccountId: null,
  metPayerId: null,
};

/** The ids of a provider's keys; nobody adds or removes one until the transaction ends. */
async function lockKeys(tx: Tx, providerId: number): Promise<number[]> {
  const [provider] = await tx
    .select({ id: providers.id })
    .from(providers)
    .where(eq(providers.id, providerId))
    .for("no key update");
  if (!provider) throw new InputError("There is no such provider.", "providerId");
  const rows = await tx
    .select({ id: providerKeys.id })
    .from(providerKeys)
    .where(eq(providerKeys.providerId, providerId))
    .orderBy(asc(providerKeys.id));
  return rows.map(({ id }) => id);
}

function nameTaken(name: string): InputError {
  return new ExistsError(sentence("The provider has a key {name} already.", { name: JSON.stringify(name) }), "name");
}

function noSuchKey(): InputError {
  return new InputError("There is no such key of a provider.", "keyId");
}
