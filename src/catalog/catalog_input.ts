import { InputError, sentence } from "../errors.ts";
import {
  CATALOG_NAME_CHARS_MAX,
  IMAGE_SIZES,
  MODEL_CAP_TOKENS,
  MODEL_CONTEXT_TOKENS,
  MODEL_MARGIN_PERMILLE,
  PRICE_MICRO_USD,
  PROVIDER_KEY_CHARS_MAX,
  PROVIDER_URL_CHARS_MAX,
  ROUTE_PRIORITY,
  ROUTE_WEIGHT,
} from "../limits.ts";
import { checkDialect, checkFacts } from "./facts_input.ts";
import { MODALITY_NAMES, type Modality } from "./modalities.ts";
import { type BoundsPatch, byBound, MODEL_BOUNDS } from "./model_bounds.ts";
import { checkAllowed, checkDropped } from "./route_params.ts";

/** What an operator enters to describe the catalog, and its checks: pure, each throws InputError with one sentence. */

const MODEL_ID = /^[A-Za-z0-9][\w.:@+/-]{0,127}$/;
const ARCHITECTURE_CHARS_MAX = 4_000;
const STATUSES = ["active", "preview", "deprecated"] as const;
/**
 * What a model's routes are ordered by: the lowest priority number first; at random, in proportion to the weights; the
 * lowest cost for the operator; the fastest answer. Source: PRV-19.
 */
export const ROUTE_CHOICES = ["order", "weight", "price", "latency"] as const;
export type RouteChoice = (typeof ROUTE_CHOICES)[number];
/** The quality of a request that names none. */
export const QUALITY_DEFAULT = "standard";
/** For example `high` or `hd`. The table has the same CHECK. */
const QUALITY = /^[a-z0-9_-]{1,20}$/;
export const QUALITY_CHARS_MAX = 20;
/**
 * Micro-USD per million tokens. `cachedInputMicroUsd` null: costs as much as input. `further`: FurtherPrices of
 * `rates.ts`, not checked yet; null:
 * none.
 */
export type PricesInput = {
  inputMicroUsd: number;
  cachedInputMicroUsd?: number | null | undefined;
  outputMicroUsd: number;
  further?: Readonly<Record<string, unknown>> | null | undefined;
};

export type ModelPatch = BoundsPatch & {
  name?: string | undefined;
  ownedBy?: string | undefined;
  contextLength?: number | null | undefined;
  status?: (typeof STATUSES)[number] | undefined;
  modality?: Modality | undefined;
  architecture?: Record<string, unknown> | null | undefined;
  enabled?: boolean | undefined;
  defaultCapTokens?: number | undefined;
  /** The safety margin on every bound, in thousandths. */
  marginPermille?: number | undefined;
  /** null: learned from its answers. */
  hidesTokens?: boolean | null | undefined;
  routeChoice?: RouteChoice | undefined;
};
/** `name` defaults to the id, `ownedBy` to "tollgate". */
export type ModelInput = ModelPatch & {
  id: string;
  prices?: PricesInput | null;
  /** By size, or size and quality, as `imagePriceKey` writes them. */
  imagePrices?: Readonly<Record<string, number>>;
};

/** `dialect` defaults to that of the base URL's host. `facts`: not checked yet; null: as the dialect says. */
export type ProviderInput = {
  name: string;
  baseUrl: string;
  apiKey: string;
  dialect?: string;
  facts?: Readonly<Record<string, unknown>>;
  enabled?: boolean;
};
export type ProviderPatch = { [Field in keyof ProviderInput]?: ProviderInput[Field] | undefined };

/** `weight` defaults to 1. */
export type ProviderKeyInput = { name: string; apiKey: string; weight?: number; enabled?: boolean };
export type ProviderKeyPatch = { [Field in keyof ProviderKeyInput]?: ProviderKeyInput[Field] | undefined };

export type RoutePatch = {
  upstreamModel?: string | undefined;
  priority?: number | undefined;
  weight?: number | undefined;
  /** Facts of the provider's dialect that are different here: not checked yet; null: as the provider has it. */
  facts?: Readonly<Record<string, unknown>> | undefined;
  ownResponses?: boolean | undefined;
  /** For example `documents`, `reasoning.max_tokens` or `tools.web_search`: src/gateway/parameters.ts. */
  allowedParams?: string[] | undefined;
  /** What the provider does not take, as `reasoning_effort`; a member as `reasoning.effort`. */
  droppedParams?: string[] | undefined;
  /** What the provider charges the operator: micro-USD per million tokens, or per image. null: not known. */
  costInputMicroUsd?: number | null | undefined;
  costOutputMicroUsd?: number | null | undefined;
  costImageMicroUsd?: number | null | undefined;
  enabled?: boolean | undefined;
};
/** `upstreamModel` defaults to the model's id. */
export type RouteInput = RoutePatch & { modelId: string; providerId: number };

/** Whether `id` has the form of a model's id: any other is unknown without a query. */
export function isModelId(id: string): boolean {
  return MODEL_ID.test(id);
}

export function checkModelId(id: string): string {
  if (!isModelId(id)) {
    throw new InputError(
      "A model's id begins with a letter or digit and has up to 128 letters, digits and . _ : @ + / -.",
      "id",
    );
  }
  return id;
}

/** The checked fields and nothing else. Absent fields are undefined, which leaves their columns unchanged. */
export function checkModel(patch: ModelPatch): ModelPatch {
  return {
    name: given(patch.name, (name) => checkLine(name, "name", CATALOG_NAME_CHARS_MAX)),
    ownedBy: given(patch.ownedBy, (owner) => checkLine(owner, "ownedBy", CATALOG_NAME_CHARS_MAX)),
    contextLength: given(patch.contextLength, (length) =>
      length === null ? null : checkInteger(length, "contextLength", MODEL_CONTEXT_TOKENS),
    ),
    status: given(patch.status, (status) => checkOneOf(status, "status", STATUSES)),
    modality: given(patch.modality, (modality) => checkOneOf(modality, "modality", MODALITY_NAMES)),
    architecture: given(patch.architecture, (architecture) =>
      architecture === null ? null : checkArchitecture(architecture),
    ),
    enabled: patch.enabled,
    defaultCapTokens: given(patch.defaultCapTokens, (cap) => checkInteger(cap, "defaultCapTokens", MODEL_CAP_TOKENS)),
    ...checkBounds(patch),
    marginPermille: given(patch.marginPermille, (margin) =>
      checkInteger(margin, "marginPermille", MODEL_MARGIN_PERMILLE),
    ),
    hidesTokens: patch.hidesTokens,
    routeChoice: given(patch.routeChoice, (choice) => checkOneOf(choice, "routeChoice", ROUTE_CHOICES)),
  };
}

function checkBounds(patch: BoundsPatch): BoundsPatch {
  return byBound((name) => given(patch[name], (value) => checkInteger(value, name, MODEL_BOUNDS[name])));
}

/** The key of an image price: `1024x1024`, or `1024x1024/high` for another quality than the default. */
export function imagePriceKey(size: string, quality: string = QUALITY_DEFAULT): string {
  return quality === QUALITY_DEFAULT ? size : `${size}/${quality}`;
}

/** The size, quality and price of an image, from the key of its price. */
export function checkImagePrice(
  key: string,
  microUsd: number,
): { size: (typeof IMAGE_SIZES)[number]; quality: string; microUsd: number } {
  const [size = "", quality = QUALITY_DEFAULT, ...rest] = key.split("/");
  if (rest.length > 0 || !QUALITY.test(quality))
    throw new InputError("A quality has 1 to 20 lower-case letters, digits, - and _, as in 1024x1024/high.", "quality");
  return {
    size: checkOneOf(size, "size", IMAGE_SIZES),
    quality,
    microUsd: checkInteger(microUsd, "microUsd", PRICE_MICRO_USD),
  };
}

export function checkProvider(patch: ProviderPatch): ProviderPatch {
  return {
    name: given(patch.name, (name) => checkLine(name, "name", CATALOG_NAME_CHARS_MAX)),
    baseUrl: given(patch.baseUrl, (url) => checkLine(url, "baseUrl", PROVIDER_URL_CHARS_MAX).replace(/\/+$/, "")),
    apiKey: given(patch.apiKey, checkKey),
    dialect: given(patch.dialect, checkDialect),
    facts: given(patch.facts, (facts) => checkFacts(facts, "provider")),
    enabled: patch.enabled,
  };
}

export function checkProviderKey(patch: ProviderKeyPatch): ProviderKeyPatch {
  return {
    name: given(patch.name, (name) => checkLine(name, "name", CATALOG_NAME_CHARS_MAX)),
    apiKey: given(patch.apiKey, checkKey),
    weight: given(patch.weight, (weight) => checkInteger(weight, "weight", ROUTE_WEIGHT)),
    enabled: patch.enabled,
  };
}

export function checkRoute(patch: RoutePatch): RoutePatch {
  const { costInputMicroUsd: input, costOutputMicroUsd: output } = patch;
  if (((input ?? null) === null) !== ((output ?? null) === null) || (input === undefined) !== (output === undefined))
    throw new InputError(
      "Give the costs of input and output together, or neither.",
      (input ?? null) === null ? "costInputMicroUsd" : "costOutputMicroUsd",
    );
  return {
    upstreamModel: given(patch.upstreamModel, (name) => checkLine(name, "upstreamModel", CATALOG_NAME_CHARS_MAX)),
    priority: given(patch.priority, (priority) => checkInteger(priority, "priority", ROUTE_PRIORITY)),
    weight: given(patch.weight, (weight) => checkInteger(weight, "weight", ROUTE_WEIGHT)),
    facts: given(patch.facts, (facts) => checkFacts(facts, "route")),
    ownResponses: patch.ownResponses,
    allowedParams: given(patch.allowedParams, checkAllowed),
    droppedParams: given(patch.droppedParams, checkDropped),
    costInputMicroUsd: given(input, (cost) => checkCost(cost, "costInputMicroUsd")),
    costOutputMicroUsd: given(output, (cost) => checkCost(cost, "costOutputMicroUsd")),
    costImageMicroUsd: given(patch.costImageMicroUsd, (cost) => checkCost(cost, "costImageMicroUsd")),
    enabled: patch.enabled,
  };
}

function checkCost(microUsd: number | null, param: string): number | null {
  return microUsd === null ? null : checkInteger(microUsd, param, PRICE_MICRO_USD);
}

function given<T, U>(value: T | undefined, check: (value: T) => U): U | undefined {
  return value === undefined ? undefined : check(value);
}

/** The key is sent as a header: an invisible character in it would make every call fail. */
function checkKey(value: string): string {
  const key = value.trim();
  if (key.length === 0 || key.length > PROVIDER_KEY_CHARS_MAX || !/^[\x21-\x7E]+$/.test(key)) {
    throw new InputError("The provider's key must be visible ASCII characters without spaces.", "apiKey");
  }
  return key;
}

function checkArchitecture(value: Record<string, unknown>): Record<string, unknown> {
  const json = JSON.stringify(value);
  if (json.length > ARCHITECTURE_CHARS_MAX)
    throw new InputError(
      sentence("The architecture may have at most {architectureCharsMax} characters of JSON.", {
        architectureCharsMax: ARCHITECTURE_CHARS_MAX,
      }),
      "architecture",
    );
  // Postgres's jsonb does not accept NUL.
  if (json.includes("\\u0000"))
    throw new InputError("The architecture must not contain NUL characters.", "architecture");
  return value;
}

function checkLine(value: string, param: string, charsMax: number): string {
  const text = value.trim();
  if (text === "" || text.length > charsMax)
    throw new InputError(
      sentence("The field {param} must have 1 to {charsMax} characters.", { param, charsMax }),
      param,
    );
  if (/[\p{Cc}\p{Cs}]/u.test(text))
    throw new InputError(sentence("The field {param} must be plain text on one line.", { param }), param);
  return text;
}

export function checkInteger(value: unknown, param: string, { min, max }: { min: number; max: number }): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < min || value > max) {
    throw new InputError(
      sentence("The field {param} must be a whole number from {min} to {max}.", { param, min, max }),
      param,
    );
  }
  return value;
}

function checkOneOf<T extends string>(value: string, param: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  if (found === undefined)
    throw new InputError(
      sentence("The field {param} must be one of {allowed}.", { param, allowed: allowed.join(", ") }),
      param,
    );
  return found;
}
