import type { Config } from "../config.ts";
import type { Bus } from "../platform/bus.ts";
import { decrypt, Secret } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import { imagePriceKey } from "./catalog_input.ts";
import { type CatalogRows, loadCatalog, type ProviderRow } from "./catalog_store.ts";
import { greaterOverhead, NO_OVERHEAD, type Overhead } from "./overhead.ts";

/** A load that takes longer fails: if Postgres does not answer, postgres.js would wait forever. */
const LOAD_MS_MAX = 5_000;
/** The wait after a failed load, doubled up to the maximum. */
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;

export type Model = {
  readonly id: string;
  readonly name: string;
  readonly ownedBy: string;
  readonly contextLength: number | null;
  readonly status: "active" | "preview" | "deprecated";
  readonly modality: "text" | "image" | "multimodal";
  readonly architecture: Readonly<Record<string, unknown>> | null;
  readonly createdUnix: number;
  /** Micro-USD per million tokens; null: sold by package only. */
  readonly prices: {
    readonly inputMicroUsd: number;
    readonly cachedInputMicroUsd: number;
    readonly outputMicroUsd: number;
  } | null;
  /** The row of `price_versions` with these prices; null: the model has never had any. */
  readonly priceVersionId: number | null;
  /** Micro-USD per image, by `imagePriceKey` of its size and quality. */
  readonly imagePrices: ReadonlyMap<string, number>;
  readonly defaultCapTokens: number;
  readonly imageInputTokens: number;
  /** The operator's safety margin on every hold, in thousandths. */
  readonly marginPermille: number;
  /** What its routes used beyond their bounds: of each part the largest of any route. */
  readonly overhead: Overhead;
  /** It reports more tokens than it shows; null: not known. */
  readonly hidesTokens: boolean | null;
  /** Parameters that any of its routes allows beyond those of gateway/parameters.ts. */
  readonly allowedParams: ReadonlySet<string>;
  /** If empty, no request can be served. */
  readonly routes: readonly Route[];
};

/** A route: a model at a provider. */
export type Route = {
  readonly id: number;
  readonly providerId: number;
  readonly providerName: string;
  readonly baseUrl: string;
  readonly apiKey: Secret;
  readonly upstreamModel: string;
  /** Lowest number first. */
  readonly priority: number;
  readonly weight: number;
  /** The field that the provider reads the output cap from. */
  readonly capField: "max_tokens" | "max_completion_tokens";
  /** Whether the provider understands `stream_options`. */
  readonly streamOptions: boolean;
  /** Parameters that are sent to it beyond those of gateway/parameters.ts. */
  readonly allowedParams: ReadonlySet<string>;
  readonly overhead: Overhead;
};

export type Catalog = {
  model(id: string): Model | undefined;
  /** Every enabled model, by id. */
  models(): readonly Model[];
  /** Resolves when a load that began after this call is in use; rejects if that load failed (it is then retried). */
  reload(): Promise<void>;
  close(): void;
};

type CatalogDeps = { db: Db; bus: Bus; config: Pick<Config, "secretKey">; log: Log };

type Snapshot = { readonly byId: ReadonlyMap<string, Model>; readonly models: readonly Model[] };

/**
 * The models on sale and their routes, as an immutable snapshot in memory: enabled models, providers and routes only. It is
 * reloaded when a change of the catalog is announced, or when changes may have been missed. A failed load keeps the old snapshot
 * and is retried. Throws when the first load fails.
 */
export async function openCatalog({ db, bus, config, log }: CatalogDeps): Promise<Catalog> {
  let snapshot: Snapshot = { byId: new Map(), models: [] };
  let closed = false;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;

  async function load(): Promise<void> {
    clearTimeout(retry);
    try {
      const rows = await within(LOAD_MS_MAX, loadCatalog(db.orm));
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
    if (closed) return;
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
  return { model: (id) => snapshot.byId.get(id), models: () => snapshot.models, reload, close };
}

/**
 * Runs `work` once at a time. The returned function resolves after a run that began after it was called: the run in progress
 * may have read before the change, so one more follows it, however many callers ask.
 */
function oneAfterAnother(work: () => Promise<void>): () => Promise<void> {
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
  const routes = routesByModel(rows, secretKey, log);
  const imagePrices = new Map<string, Map<string, number>>();
  for (const { modelId, size, quality, microUsd } of rows.imagePrices) {
    const known = imagePrices.get(modelId) ?? new Map<string, number>();
    imagePrices.set(modelId, known.set(imagePriceKey(size, quality), microUsd));
  }
  const models = rows.models.map(
    ({ inputMicroUsd, cachedInputMicroUsd, outputMicroUsd, ...model }): Model => ({
      ...model,
      prices:
        inputMicroUsd === null || outputMicroUsd === null
          ? null
          : // Without a price of its own, cached input costs the same as input.
            { inputMicroUsd, cachedInputMicroUsd: cachedInputMicroUsd ?? inputMicroUsd, outputMicroUsd },
      imagePrices: imagePrices.get(model.id) ?? new Map(),
      overhead: (routes.get(model.id) ?? []).map(({ overhead }) => overhead).reduce(greaterOverhead, NO_OVERHEAD),
      allowedParams: new Set((routes.get(model.id) ?? []).flatMap(({ allowedParams }) => [...allowedParams])),
      routes: Object.freeze(routes.get(model.id) ?? []),
    }),
  );
  return { byId: new Map(models.map((model) => [model.id, Object.freeze(model)])), models: Object.freeze(models) };
}

function routesByModel(rows: CatalogRows, secretKey: Uint8Array, log: Log): Map<string, Route[]> {
  const providers = new Map<number, { row: ProviderRow; apiKey: Secret }>();
  for (const row of rows.providers) {
    const apiKey = readKey(row, secretKey, log);
    if (apiKey) providers.set(row.id, { row, apiKey });
  }
  const overheads = new Map(rows.overheads.map(({ routeId, overhead }) => [routeId, overhead]));
  const routes = new Map<string, Route[]>();
  for (const { modelId, allowedParams, ...route } of rows.routes) {
    const provider = providers.get(route.providerId);
    if (!provider) continue;
    listIn(routes, modelId).push({
      ...route,
      allowedParams: new Set(allowedParams),
      providerName: provider.row.name,
      baseUrl: provider.row.baseUrl,
      apiKey: provider.apiKey,
      overhead: overheads.get(route.id) ?? NO_OVERHEAD,
    });
  }
  return routes;
}

/** Undefined, and logged, if the key was encrypted with another SECRET_KEY: the other providers still serve. */
function readKey({ name, keyCiphertext }: ProviderRow, secretKey: Uint8Array, log: Log): Secret | undefined {
  try {
    return new Secret(decrypt(secretKey, keyCiphertext));
  } catch (thrown) {
    log.error({ provider: name, err: thrown }, "a provider is left out: its key cannot be decrypted");
    return undefined;
  }
}

function listIn<K, V>(map: Map<K, V[]>, key: K): V[] {
  const list = map.get(key) ?? [];
  map.set(key, list);
  return list;
}
