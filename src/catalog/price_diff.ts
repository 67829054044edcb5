import { InputError, sentence } from "../errors.ts";
import { sha256Hex } from "../platform/runtime.ts";
import { PARTS, PRICE_PARTS } from "../price_parts.ts";
import { isModelId } from "./catalog_input.ts";
import type { Modality } from "./modalities.ts";
import { isEmbedding, type Markup, type ModelPrices, mapPrices } from "./price_import.ts";
import type { ListedModel, PriceList } from "./price_list.ts";
import type { Rates } from "./rates.ts";

/**
 * The changes that a price list would make in the catalog, model by model. They are shown first, then applied as
 * shown. Pure. Source: IMP-4.
 */

/** Models in one comparison. The longest list of a provider has 700. */
export const DIFF_MODELS_MAX = 2_000;
export const DIFF_PROVIDERS_MAX = 50;
const DIGEST_CHARS = 32;

type Status = "active" | "preview" | "deprecated";

/** A model of the catalog. */
export type OwnModel = {
  id: string;
  modality: Modality;
  status: Status;
  contextLength: number | null;
  prices: ModelPrices;
  /** Its names at providers. */
  upstreamNames: readonly string[];
};

export type ImportRequest = {
  /** Providers of the price list. */
  providers: readonly string[];
  markup: Markup;
  /**
   * Only these models: ids of the catalog, or names in the list for models to add. Undefined: every model of the
   * catalog that is in the list.
   */
  models?: readonly string[] | undefined;
  /** If `models` is absent: also every model of these providers that the catalog lacks. */
  addsNew?: boolean | undefined;
};

export type FieldChange = {
  /** As in "Input", "Output above 200,000 tokens", "Context". */
  label: string;
  /** Prices are micro-USD, per million tokens or per request. */
  unit: "per_million" | "per_request" | "tokens" | "text";
  /** null: it has none. */
  from: number | string | null;
  to: number | string | null;
};

export type ImportItem = {
  modelId: string;
  /** The provider and model of the list, as in `openai/gpt-5`; null: none. */
  listed: string | null;
  /** `unmapped`: its prices cannot be taken from the list, for the `reason`. */
  kind: "new" | "changed" | "unchanged" | "unmapped";
  changes: FieldChange[];
  /** Prices of the list that a model's prices cannot express, and prices that were rounded. */
  notes: string[];
  reason: string | null;
  /** A digest of the item as it is shown: the item is applied only if the digest is still the same. */
  digest: string;
};

/** The fields of a model that an import writes. */
export type Write = {
  name: string;
  modality: Modality;
  status: Status;
  contextLength: number | null;
  prices: ModelPrices;
};
/** An item, and the changes that applying it writes; null: none. */
export type Import = { item: ImportItem; write: Write | null };

export type Catalog = {
  models: readonly OwnModel[];
  /** Today in UTC, as 2026-01-31. */
  day: string;
  /** Why the catalog cannot store a model with these prices; null if it can. */
  unstorable: (write: Write) => string | null;
};

/** Compares the catalog with the list: new models first, then changed ones. Throws InputError for an unknown provider, or too many models. */
export function compare(list: PriceList, request: ImportRequest, catalog: Catalog): Import[] {
  checkProviders(list, request);
  const { models } = request;
  const own = models ? catalog.models.filter(({ id }) => models.includes(id)) : catalog.models;
  const found = own.map((model) => ({ model, listed: listedFor(model, list, request) }));
  const compared = [
    // Without a choice, models of other providers are not shown.
    ...found
      .filter(({ listed }) => models || listed.size > 0)
      .map(({ model, listed }) => [model.id, listed, model] as const),
    ...newNames(list, request, catalog).map((id) => [id, named([id], list, request)] as const),
  ];
  if (compared.length > DIFF_MODELS_MAX)
    throw new InputError(
      sentence("One import has at most {diffModelsMax} models: name those that you need.", {
        diffModelsMax: DIFF_MODELS_MAX,
      }),
      "models",
    );
  return compared
    .map(([id, listed, model]) => importOf({ id, listed, own: model }, { request, catalog }))
    .sort(inOrder);
}

/** The number of models of the chosen providers that the catalog lacks. */
export function countNew(list: PriceList, request: ImportRequest, catalog: Catalog): number {
  return newNames(list, { ...request, models: undefined, addsNew: true }, catalog).length;
}

const KINDS = ["new", "changed", "unmapped", "unchanged"] as const;

function inOrder({ item: a }: Import, { item: b }: Import): number {
  return KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || (a.modelId < b.modelId ? -1 : 1);
}

function checkProviders(list: PriceList, { providers }: ImportRequest): void {
  if (providers.length === 0 || providers.length > DIFF_PROVIDERS_MAX)
    throw new InputError(
      sentence("Name 1 to {diffProvidersMax} providers of the price list.", { diffProvidersMax: DIFF_PROVIDERS_MAX }),
      "providers",
    );
  for (const wanted of providers) {
    if (!list.providers.some(({ id }) => id === wanted))
      throw new InputError(
        `The price list has no provider ${JSON.stringify(wanted)}. It has: ${list.providers.map(({ id }) => id).join(", ")}.`,
        "providers",
      );
  }
}

/** Listed models by provider and id. */
type Listed = ReadonlyMap<string, ListedModel>;

/**
 * The listed models that may be the same as a model of the catalog: found by its names at providers, else by its id.
 */
function listedFor({ id, upstreamNames }: OwnModel, list: PriceList, request: ImportRequest): Listed {
  const byRoute = named(upstreamNames, list, request);
  return byRoute.size > 0 ? byRoute : named([id], list, request);
}

function named(names: readonly string[], list: PriceList, { providers }: ImportRequest): Listed {
  const found = new Map<string, ListedModel>();
  for (const provider of providers) {
    for (const name of names) {
      const model = list.find(provider, name);
      if (model) found.set(`${provider}/${model.id}`, model);
    }
  }
  return found;
}

/** The ids of models to add: those requested by name, or all that match no model of the catalog. */
function newNames(list: PriceList, request: ImportRequest, { models }: Catalog): string[] {
  const ownIds = new Set(models.map(({ id }) => id));
  if (request.models) return [...new Set(request.models)].filter((id) => !ownIds.has(id));
  if (!request.addsNew) return [];
  const taken = new Set(models.flatMap((model) => [...listedFor(model, list, request).keys()]));
  const names = list.providers
    .filter(({ id }) => request.providers.includes(id))
    .flatMap((provider) => provider.models.filter(({ id }) => !taken.has(`${provider.id}/${id}`)).map(({ id }) => id));
  return [...new Set(names)].filter((id) => !ownIds.has(id));
}

type Compared = { id: string; listed: Listed; own: OwnModel | undefined };

function importOf(
  { id, listed, own }: Compared,
  { request, catalog }: { request: ImportRequest; catalog: Catalog },
): Import {
  const [[key, model] = [null, undefined]] = listed;
  const unmapped = (reason: string) => toImport({ id, key: listed.size === 1 ? key : null, reason });
  if (model === undefined) return unmapped(`The price list has no such model of ${request.providers.join(", ")}.`);
  if (listed.size > 1) return unmapped(`It may be one of several: ${[...listed.keys()].join(", ")}.`);
  const misfit = misfitOf(id, own, model);
  if (misfit !== null) return unmapped(misfit);
  const mapped = mapPrices(model, { markup: request.markup, day: catalog.day });
  if ("reason" in mapped) return unmapped(mapped.reason);
  const write = writeOf({ id, model, own, prices: mapped.prices });
  const unstorable = catalog.unstorable(write);
  if (unstorable !== null) return unmapped(unstorable);
  return toImport({ id, key, write, own, notes: mapped.notes });
}

/** Why a model is priced in another way than the list. */
function misfitOf(id: string, own: OwnModel | undefined, listed: ListedModel): string | null {
  if (own === undefined) return isModelId(id) ? null : "Its name cannot be the id of a model.";
  if (own.modality === "image") return "It is sold by the image, and the list has prices by the token.";
  return isEmbedding(listed) === (own.modality === "embedding") ? null : "Only one of the two is an embedding model.";
}

function writeOf({
  id,
  model,
  own,
  prices,
}: {
  id: string;
  model: ListedModel;
  own: OwnModel | undefined;
  prices: ModelPrices;
}): Write {
  const { name = id, context_window = null, deprecated = false } = model;
  return {
    name,
    modality: own?.modality ?? modalityOf(model, prices),
    // The status stays unless the list says "deprecated": the operator decides how the model is sold.
    status: deprecated ? "deprecated" : (own?.status ?? "active"),
    contextLength: context_window ?? own?.contextLength ?? null,
    // A fee per request that the list does not have is the operator's own.
    prices: { ...own?.prices, ...prices },
  };
}

/** The kind of a model as its prices show it. The list does not state it. */
function modalityOf(model: ListedModel, { tokens }: ModelPrices): Modality {
  if (isEmbedding(model)) return "embedding";
  return tokens?.image_input === undefined ? "text" : "multimodal";
}

type Outcome = {
  id: string;
  key: string | null;
  own?: OwnModel | undefined;
  write?: Write;
  notes?: string[];
  reason?: string;
};

function toImport({ id, key, own, write, notes = [], reason }: Outcome): Import {
  const changes = write ? changesOf(own, write) : [];
  const kind = !write ? "unmapped" : !own ? "new" : changes.length > 0 ? "changed" : "unchanged";
  const shown = { modelId: id, listed: key, kind, changes, notes, reason: reason ?? null } as const;
  const digest = sha256Hex(JSON.stringify([shown, write ?? null])).slice(0, DIGEST_CHARS);
  return { item: { ...shown, digest }, write: kind === "new" || kind === "changed" ? (write ?? null) : null };
}

/** The fields that differ, prices first. */
function changesOf(own: OwnModel | undefined, write: Write): FieldChange[] {
  const [before, after] = [own ? flatten(own.prices) : new Map<string, Flat>(), flatten(write.prices)];
  const labels = [...new Set([...after.keys(), ...before.keys()])];
  const fields: FieldChange[] = [
    ...labels.map((label): FieldChange => {
      const [was, is] = [before.get(label), after.get(label)];
      return { label, unit: (is ?? was)?.unit ?? "text", from: was?.microUsd ?? null, to: is?.microUsd ?? null };
    }),
    { label: /*i18n*/ "Context", unit: "tokens", from: own?.contextLength ?? null, to: write.contextLength },
    // A new model is active unless the list says otherwise.
    { label: /*i18n*/ "Status", unit: "text", from: own?.status ?? "active", to: write.status },
  ];
  return fields.filter(({ from, to }) => from !== to);
}

type Flat = { unit: "per_million" | "per_request"; microUsd: number };

/** Prices by their labels. */
function flatten({ tokens, request }: ModelPrices): Map<string, Flat> {
  const flat = new Map<string, Flat>();
  const add = (rates: Rates, words: string) => {
    for (const part of PARTS) {
      const microUsd = rates[part];
      if (microUsd !== undefined) flat.set(`${PRICE_PARTS[part].label}${words}`, { unit: "per_million", microUsd });
    }
  };
  if (tokens) add(tokens, "");
  for (const tier of tokens?.tiers ?? []) add(tier, ` above ${tier.above_input_tokens.toLocaleString("en-US")} tokens`);
  if (request !== undefined) flat.set(/*i18n*/ "Request", { unit: "per_request", microUsd: request });
  return flat;
}
