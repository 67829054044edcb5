import type { Config } from "../config.ts";
import type { Bus } from "../platform/bus.ts";
import { decrypt, Secret } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import { imagePriceKey } from "./catalog_input.ts";
import { type CatalogRows, loadCatalog, type ProviderRow } from "./catalog_store.ts";
import { greaterOverhead, NO_OVERHEAD, type Overhead } from "./overhead.ts";

/** A load that takes longer is given up: Postgres may be silent, and postgres.js would wait for ever. */
const LOAD_MS_MAX = 5_000;
/** After a failed load: first wait, doubled up to the longest. */
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
  /** The row of `price_versions` that says these prices; null: it has never had any. */
  readonly priceVersionId: number | null;
  /** Micro-USD an image, by `imagePriceKey` of its size and quality. */
  readonly imagePrices: ReadonlyMap<string, number>;
  readonly defaultCapTokens: number;
  readonly imageInputTokens: number;
  /** What the operator holds on top. */
  readonly marginPermille: number;
  /** What its routes have been seen to use beyond bounds: of each part the dearest route's. */
  readonly overhead: Overhead;
  /** It reports more tokens than it shows; null: not known. */
  readonly hidesTokens: boolean | null;
  /** Parameters that one of its routes allows beyond those of gateway/parameters.ts. */
  readonly allowedParams: ReadonlySet<string>;
  /** May be empty: then no request can be served. */
  readonly routes: readonly Route[];
};

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
  /** The field in which the provider takes the output cap. */
  readonly capField: "max_tokens" | "max_completion_tokens";
  /** Whether the provider understands `stream_options`. */
  readonly streamOptions: boolean;
  /** Parameters that go to it beyond those of gateway/parameters.ts. */
  readonly allowedParams: ReadonlySet<string>;
  readonly overhead: Overhead;
};

export type Catalog = {
  model(id: string): Model | undefined;
  /** Every enabled model, by id. */
  models(): readonly Model[];
  /** Resolves once a load that began after this call is in use; rejects if that load failed (it is then retried). */
  reload(): Promise<void>;
  close(): void;
};

type CatalogDeps = { db: Db; bus: Bus; config: Pick<Config, "secretKey">; log: Log };

type Snapshot = { readonly byId: ReadonlyMap<string, Model>; readonly models: readonly Model[] };

/**
 * What is sold and where it is served, as an immutable snapshot in memory: enabled models, providers and routes only.
 * Loaded anew when a change of the catalog is announced or changes may have been missed. A failed load keeps the old
 * snapshot. Throws when the first load fails.
 */
export async function openCatalog({ db, bus, config, log }: CatalogDeps): Promise<Catalog> {
  let snapshot: Snapshot = { byId: new Map(), models: [] };
  let closed = false;
  let running: Promise<void> | undefined;
  let next: Promise<void> | undefined;
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

  function start(): Promise<void> {
    running = load().finally(() => {
      running = undefined;
    });
    return running;
  }

  /** A load under way may have read before the change: one more follows it, however many ask. */
  function reload(): Promise<void> {
    if (!running) return start();
    next ??= running
      .catch(() => {})
      .then(() => {
        next = undefined;
        return start();
      });
    return next;
  }

  /** A reload that nobody waits for. */
  function refresh(): void {
    if (!closed) reload().catch(() => {}); // Logged and retried by `load`.
  }

  // Before the first load, so that no change falls between the two.
  bus.subscribe((changes) => {
    if (changes.some(({ kind }) => kind === "catalog")) refresh();
  });
  bus.onGap(refresh);

  const close = () => {
    closed = true;
    clearTimeout(retry);
  };
  await reload().catch((thrown: unknown) => {
    close();
    throw thrown;
  });
  return { model: (id) => snapshot.byId.get(id), models: () => snapshot.models, reload, close };
}

function toSnapshot(rows: CatalogRows, secretKey: Uint8Array, log: Log): Snapshot {
  const providers = new Map<number, { row: ProviderRow; apiKey: Secret }>();
  for (const row of rows.providers) {
    const apiKey = readKey(row, secretKey, log);
    if (apiKey) providers.set(row.id, { row, apiKey });
  }
  const routes = new Map<string, Route[]>();
  const overheads = new Map(rows.overheads.map(({ routeId, overhead }) => [routeId, overhead]));
  for (const { modelId, allowedParams, ...route } of rows.routes) {
    const provider = providers.get(route.providerId);
    if (!provider) continue;
    const {
      row: { name, baseUrl },
      apiKey,
    } = provider;
    listIn(routes, modelId).push({
      ...route,
      allowedParams: new Set(allowedParams),
      providerName: name,
      baseUrl,
      apiKey,
      overhead: overheads.get(route.id) ?? NO_OVERHEAD,
    });
  }
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
          : // Without a price of its own, cached input costs what input costs.
            { inputMicroUsd, cachedInputMicroUsd: cachedInputMicroUsd ?? inputMicroUsd, outputMicroUsd },
      imagePrices: imagePrices.get(model.id) ?? new Map(),
      overhead: (routes.get(model.id) ?? []).map(({ overhead }) => overhead).reduce(greaterOverhead, NO_OVERHEAD),
      allowedParams: new Set((routes.get(model.id) ?? []).flatMap(({ allowedParams }) => [...allowedParams])),
      routes: Object.freeze(routes.get(model.id) ?? []),
    }),
  );
  return { byId: new Map(models.map((model) => [model.id, Object.freeze(model)])), models: Object.freeze(models) };
}

/** Undefined, and logged, when the key was encrypted with another SECRET_KEY: the other providers still serve. */
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
