import type { Config } from "../config.ts";
import type { Bus } from "../platform/bus.ts";
import { decrypt, Secret } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import { imagePriceKey, type RouteChoice } from "./catalog_input.ts";
import { type CatalogRows, loadCatalog } from "./catalog_store.ts";
import { type Facts, factsOf } from "./dialects.ts";
import { storedDialect, storedFacts } from "./facts_input.ts";
import type { Modality } from "./modalities.ts";
import type { ModelBounds } from "./model_bounds.ts";
import { type TokenPrices, tokenPricesOf } from "./rates.ts";
import { type ColumnsRead, pricesOfColumns } from "./token_prices.ts";

/** A load that takes longer fails: if Postgres does not answer, postgres.js would wait forever. */
const LOAD_MS_MAX = 5_000;
/** The wait after a failed load, doubled up to the maximum. */
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;
/** Input tokens assumed for each output token when costs of routes are compared. */
const INPUT_FOR_OUTPUT = 3;

export type Model = ModelBounds & {
  readonly id: string;
  readonly name: string;
  readonly ownedBy: string;
  readonly contextLength: number | null;
  readonly status: "active" | "preview" | "deprecated";
  readonly modality: Modality;
  readonly architecture: Readonly<Record<string, unknown>> | null;
  readonly createdUnix: number;
  /** null: it is sold by package only, or by images. */
  readonly prices: TokenPrices | null;
  /** The row of `price_versions` with these prices; null: the model has never had any. */
  readonly priceVersionId: number | null;
  /** Micro-USD per image, by `imagePriceKey` of its size and quality. */
  readonly imagePrices: ReadonlyMap<string, number>;
  readonly defaultCapTokens: number;
  /** The operator's safety margin on every hold, in thousandths. */
  readonly marginPermille: number;
  /** It reports more tokens than it shows; null: not known. */
  readonly hidesTokens: boolean | null;
  /** Parameters that any of its routes allows beyond those of gateway/parameters.ts. */
  readonly allowedParams: ReadonlySet<string>;
  /** Parameters that all of its routes drop. */
  readonly droppedParams: ReadonlySet<string>;
  /** What its routes are ordered by. */
  readonly routeChoice: RouteChoice;
  /** If it is empty, no request can be served. */
  readonly routes: readonly ModelRoute[];
  /** There is more than one route or key to choose from. */
  readonly hasChoice: boolean;
};

/** A route: a model at a provider. */
export type Route = {
  readonly id: number;
  readonly providerId: number;
  readonly providerName: string;
  readonly baseUrl: string;
  readonly upstreamModel: string;
  /** Lowest number first. */
  readonly priority: number;
  readonly weight: number;
  /**
   * What the provider charges the operator, to compare the routes of one model: micro-USD for an image, or for 3 million input
   * tokens and 1 million output tokens. null: not known.
   */
  readonly cost: number | null;
  /** What its provider charges the operator; null: not set. */
  readonly costPrices: TokenPrices | null;
  readonly costImageMicroUsd: number | null;
  /** What the provider takes: its dialect, with the overrides of the provider and of the route. */
  readonly facts: Facts;
  /** Whether the provider has its own /responses: other routes get a translation to chat completions. Source: RSP-2. */
  readonly ownResponses: boolean;
  /** Parameters that are sent to it beyond those of gateway/parameters.ts. */
  readonly allowedParams: ReadonlySet<string>;
  /** Parameters that are not sent to it, whatever gateway/parameters.ts says: those of the facts too, unless the route allows them. */
  readonly droppedParams: ReadonlySet<string>;
};

/** A key of a provider: enabled, and decrypted. */
export type ProviderKey = { readonly id: number; readonly name: string; readonly weight: number };

/** A route with one of its provider's keys: what a request is sent to. */
export type KeyedRoute = Route & { readonly key: ProviderKey; readonly apiKey: Secret };

/** A route with each of its provider's keys; there is at least one. */
export type ModelRoute = Route & { readonly keyed: readonly KeyedRoute[] };

/** What a provider is called with. */
export type Upstream = Pick<KeyedRoute, "providerName" | "baseUrl" | "apiKey">;

export type Catalog = {
  model(id: string): Model | undefined;
  /** Every enabled model, oldest first: clients and people take the first of a list. */
  models(): readonly Model[];
  /** The provider of a key, with that key; undefined if either is disabled. */
  upstreamOf(keyId: number): Upstream | undefined;
  /** Resolves when a load that began after this call is in use; rejects if that load failed (it is then retried). */
  reload(): Promise<void>;
  close(): void;
};

type CatalogDeps = {
  db: Db;
  bus: Bus;
  config: Pick<Config, "secretKey">;
  log: Log;
  /** What the first load may take. Default: as others. */
  firstLoadMs?: number;
};

type Snapshot = {
  readonly byId: ReadonlyMap<string, Model>;
  readonly models: readonly Model[];
  readonly upstreams: ReadonlyMap<number, Upstream>;
};

/**
 * The models on sale and their routes, as an immutable snapshot in memory: enabled models, providers and routes only. It is
 * reloaded when a change of the catalog is announced, or when changes may have been missed. A failed load keeps the old snapshot
 * and is retried. Throws when the first load fails.
 */
export async function openCatalog({ db, bus, config, log, firstLoadMs = LOAD_MS_MAX }: CatalogDeps): Promise<Catalog> {
  let snapshot: Snapshot = { byId: new Map(), models: [], upstreams: new Map() };
  let closed = false;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;
  let isOpen = false;

  async function load(): Promise<void> {
    clearTimeout(retry);
    try {
      const rows = await within(isOpen ? LOAD_MS_MAX : firstLoadMs, loadCatalog(db.orm));
      if (closed) return;
      snapshot = toSnapshot(rows, config.secretKey, log);
      failures = 0;
      log.debug({ models: snapshot.models.length }, "the catalog is loaded");
    } catch (thrown) {
      scheduleRetry(thrown);
      throw thrown;
    }
  }

  function scheduleRetry(thrown: unknown): void {
    if (closed || !isOpen) return;
    const waitMs = Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** failures);
    failures += 1;
    log.error({ err: thrown, retryInMs: waitMs }, "the catalog could not be loaded; the last one stays in use");
    retry = setTimeout(refresh, waitMs);
  }

  const reload = oneAfterAnother(load);

  /** Reloads in the background. */
  function refresh(): void {
    if (!closed) reload().catch(() => {}); // Logged and retried by `load`.
  }

  function close(): void {
    closed = true;
    clearTimeout(retry);
  }

  // Before the first load, so that no change between the two is missed.
  bus.subscribe((changes) => {
    if (changes.some(({ kind }) => kind === "catalog")) refresh();
  });
  bus.onGap(refresh);
  try {
    await reload();
  } catch (thrown) {
    close();
    throw thrown;
  }
  isOpen = true;
  return {
    model: (id) => snapshot.byId.get(id),
    models: () => snapshot.models,
    upstreamOf: (keyId) => snapshot.upstreams.get(keyId),
    reload,
    close,
  };
}

/**
 * Runs `work` once at a time. The returned function resolves after a run that began after it was called: the run in progress
 * may have read before the change, so one more follows it, however many callers ask.
 */
export function oneAfterAnother(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  let next: Promise<void> | undefined;

  function start(): Promise<void> {
    running = work().finally(() => {
      running = undefined;
    });
    return running;
  }

  return () => {
    if (!running) return start();
    next ??= running
      .catch(() => {})
      .then(() => {
        next = undefined;
        return start();
      });
    return next;
  };
}

function toSnapshot(rows: CatalogRows, secretKey: Uint8Array, log: Log): Snapshot {
  const providers = keysByProvider(rows, secretKey, log);
  const routes = routesByModel(rows, providers, log);
  const imagePrices = new Map<string, Map<string, number>>();
  for (const { modelId, size, quality, microUsd } of rows.imagePrices) {
    const known = imagePrices.get(modelId) ?? new Map<string, number>();
    imagePrices.set(modelId, known.set(imagePriceKey(size, quality), microUsd));
  }
  const models = rows.models.map(
    ({ inputMicroUsd, cachedInputMicroUsd, outputMicroUsd, furtherPrices, ...model }): Model => ({
      ...model,
      prices: readPrices(
        { inputMicroUsd, cachedInputMicroUsd, outputMicroUsd, furtherPrices },
        { model: model.id, log },
      ),
      imagePrices: imagePrices.get(model.id) ?? new Map(),
      allowedParams: new Set((routes.get(model.id) ?? []).flatMap(({ allowedParams }) => [...allowedParams])),
      droppedParams: droppedByAll(routes.get(model.id) ?? []),
      routes: Object.freeze(routes.get(model.id) ?? []),
      hasChoice: (routes.get(model.id) ?? []).flatMap(({ keyed }) => keyed).length > 1,
    }),
  );
  return {
    byId: new Map(models.map((model) => [model.id, Object.freeze(model)])),
    models: Object.freeze(models),
    upstreams: new Map([...providers.values()].flatMap((keys) => keys.map((one) => [one.key.id, one]))),
  };
}

/** If they cannot be read, returns null and logs it: a wrong price must not be charged. */
function readPrices(columns: ColumnsRead, { model, log }: { model: string; log: Log }): TokenPrices | null {
  const prices = pricesOfColumns(columns);
  if (prices === undefined) log.error({ model }, "a model is sold by package only: its further prices cannot be read");
  return prices?.tokens ?? null;
}

type KeyedProvider = Upstream & { readonly key: ProviderKey };

/** The providers' keys by provider. Those that were encrypted with another SECRET_KEY are left out, and logged: the others still serve. */
function keysByProvider(rows: CatalogRows, secretKey: Uint8Array, log: Log): Map<number, KeyedProvider[]> {
  const providers = new Map(rows.providers.map((provider) => [provider.id, provider]));
  const keys = new Map<number, KeyedProvider[]>();
  for (const { id, providerId, name, weight, keyCiphertext } of rows.providerKeys) {
    const provider = providers.get(providerId);
    if (!provider) continue;
    try {
      const apiKey = new Secret(decrypt(secretKey, keyCiphertext));
      const { name: providerName, baseUrl } = provider;
      listIn(keys, providerId).push({ providerName, baseUrl, apiKey, key: { id, name, weight } });
    } catch (thrown) {
      log.error(
        { provider: provider.name, key: name, err: thrown },
        "a provider's key is left out: it cannot be decrypted",
      );
    }
  }
  return keys;
}

function routesByModel(
  rows: CatalogRows,
  providers: ReadonlyMap<number, KeyedProvider[]>,
  log: Log,
): Map<string, ModelRoute[]> {
  const dialects = new Map(rows.providers.map((provider) => [provider.id, provider]));
  const imageModels = new Set(rows.models.filter(({ modality }) => modality === "image").map(({ id }) => id));
  const routes = new Map<string, ModelRoute[]>();
  for (const {
    modelId,
    facts: ownFacts,
    allowedParams,
    droppedParams,
    costInputMicroUsd,
    costOutputMicroUsd,
    costImageMicroUsd,
    ...row
  } of rows.routes) {
    const keys = providers.get(row.providerId);
    if (!keys?.[0]) continue;
    const { providerName, baseUrl } = keys[0];
    const cost = imageModels.has(modelId) ? costImageMicroUsd : tokenCost(costInputMicroUsd, costOutputMicroUsd);
    const facts = readFacts(dialects.get(row.providerId), ownFacts, log);
    const dropped = [...facts.droppedParams, ...droppedParams].filter((name) => !allowedParams.includes(name));
    const params = { allowedParams: new Set(allowedParams), droppedParams: new Set(dropped) };
    const costPrices = costPricesOf(costInputMicroUsd, costOutputMicroUsd);
    const route: Route = { ...row, ...params, facts, cost, costPrices, costImageMicroUsd, providerName, baseUrl };
    const keyed = keys.map(({ key, apiKey }): KeyedRoute => Object.freeze({ ...route, key, apiKey }));
    listIn(routes, modelId).push({ ...route, keyed: Object.freeze(keyed) });
  }
  return routes;
}

/** The facts of a route. What cannot be read is as if it were not set, and logged: the others still apply. */
function readFacts(provider: CatalogRows["providers"][number] | undefined, ownFacts: unknown, log: Log): Facts {
  const dialect = storedDialect(provider?.dialect);
  const overrides = [storedFacts(provider?.facts ?? {}, "provider"), storedFacts(ownFacts, "route")];
  if (dialect === undefined || overrides.includes(undefined))
    log.error({ provider: provider?.name }, "a dialect or its facts cannot be read: set them again");
  return Object.freeze(factsOf(dialect ?? "generic", ...overrides.filter((one) => one !== undefined)));
}

function droppedByAll([first, ...others]: readonly Route[]): ReadonlySet<string> {
  const names = [...(first?.droppedParams ?? [])];
  return new Set(names.filter((name) => others.every(({ droppedParams }) => droppedParams.has(name))));
}

function costPricesOf(inputMicroUsd: number | null, outputMicroUsd: number | null): TokenPrices | null {
  if (inputMicroUsd === null || outputMicroUsd === null) return null;
  return tokenPricesOf({ input: inputMicroUsd, output: outputMicroUsd, cached_input: inputMicroUsd });
}

function tokenCost(inputMicroUsd: number | null, outputMicroUsd: number | null): number | null {
  return inputMicroUsd === null || outputMicroUsd === null ? null : INPUT_FOR_OUTPUT * inputMicroUsd + outputMicroUsd;
}

function listIn<K, V>(map: Map<K, V[]>, key: K): V[] {
  const list = map.get(key) ?? [];
  map.set(key, list);
  return list;
}
