import { type Static, Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import packageFacts from "../../package.json" with { type: "json" };
import { InputError, sentence } from "../errors.ts";
import { problemOf } from "../http/field_errors.ts";
import { scanObject, TooDeep, TooManyValues } from "../http/json_scan.ts";
import { DuplicateField } from "../http/json_text.ts";
import { MODEL_CONTEXT_TOKENS } from "../limits.ts";

/**
 * The public list of providers' prices: from the package `@pydantic/genai-prices`, without a network, or from a file of
 * the same
 * shape. Prices are in USD, for the unit that the name of the price ends in: `input_mtok` for a million tokens, `requests_kcount` for a
 * thousand requests. Source: IMP-1.
 */

const PACKAGE = "@pydantic/genai-prices";
/** Eight times the package's own data. */
export const PRICE_FILE_BYTES_MAX = 4_000_000;
const PROVIDERS_MAX = 500;
const MODELS_OF_A_PROVIDER_MAX = 5_000;
const PRICES_OF_A_MODEL_MAX = 50;
/** Tiers of one price. */
const TIERS_MAX = 10;
/** Changes of a model's prices over time. */
const CHANGES_MAX = 100;
/** Names of a model that are compared. */
const MATCHES_MAX = 200;
const NAME_CHARS_MAX = 200;
/** The highest price, in USD for a unit. It is far above every real price: a higher one is a mistake. */
const LISTED_USD_MAX = 1_000_000;
const CURRENCY = "USD";

const Name = Type.String({
  minLength: 1,
  maxLength: NAME_CHARS_MAX,
  pattern: "^[^\\u0000-\\u001f\\u007f]*$",
  says: `text on one line, with 1 to ${NAME_CHARS_MAX} characters`,
});
const Usd = Type.Number({ minimum: 0, maximum: LISTED_USD_MAX });
/** The prices of requests with more than `start` input tokens: for all their tokens, not only those above it. */
const Tiered = Type.Object({
  base: Usd,
  tiers: Type.Array(
    Type.Object({ start: Type.Integer({ minimum: 1, maximum: MODEL_CONTEXT_TOKENS.max }), price: Usd }),
    { maxItems: TIERS_MAX },
  ),
});
const Prices = Type.Record(Type.String({ maxLength: NAME_CHARS_MAX }), Type.Union([Usd, Tiered]), {
  maxProperties: PRICES_OF_A_MODEL_MAX,
});
const Day = Type.String({ pattern: "^\\d{4}-\\d\\d-\\d\\d$", says: "a date, as in 2026-01-31" });
const From = Type.Object({ start_date: Day });
const AtTimeOfDay = Type.Object({ start_time: Type.String(), end_time: Type.String() });
/** Prices that are valid under a condition. The last valid one counts. */
const Conditional = Type.Object({
  constraint: Type.Optional(Type.Union([From, AtTimeOfDay])),
  prices: Prices,
});
const Text = Type.String({ maxLength: NAME_CHARS_MAX });
/** The names that mean a model. */
const Match = Type.Recursive((Self) =>
  Type.Union([
    Type.Object({ equals: Text }),
    Type.Object({ starts_with: Text }),
    Type.Object({ ends_with: Text }),
    Type.Object({ contains: Text }),
    Type.Object({ regex: Text }),
    Type.Object({ or: Type.Array(Self, { maxItems: MATCHES_MAX }) }),
    Type.Object({ and: Type.Array(Self, { maxItems: MATCHES_MAX }) }),
  ]),
);
const Model = Type.Object({
  id: Name,
  name: Type.Optional(Name),
  match: Match,
  context_window: Type.Optional(Type.Integer(rangeOf(MODEL_CONTEXT_TOKENS))),
  deprecated: Type.Optional(Type.Boolean()),
  currency: Type.Optional(Type.Literal(CURRENCY)),
  prices: Type.Union([Type.Array(Conditional, { minItems: 1, maxItems: CHANGES_MAX }), Prices]),
});
const Provider = Type.Object({
  id: Name,
  name: Name,
  currency: Type.Optional(Type.Literal(CURRENCY)),
  /** A regular expression: the base URLs of the provider. */
  api_pattern: Type.Optional(Text),
  fallback_model_providers: Type.Optional(Type.Array(Name, { maxItems: 10 })),
  models: Type.Array(Model, { maxItems: MODELS_OF_A_PROVIDER_MAX }),
});
const Providers = Type.Array(Provider, { minItems: 1, maxItems: PROVIDERS_MAX });

export type ListedPrices = Static<typeof Prices>;
export type ListedModel = Static<typeof Model>;
export type ListedProvider = Static<typeof Provider>;

export type PriceList = {
  /** The package and its version, or the file. */
  source: string;
  providers: readonly ListedProvider[];
  /** The provider's model with this name: by its id, an alias, or a dated version. Undefined: none. */
  find(providerId: string, name: string): ListedModel | undefined;
  /** The id of the provider that serves this base URL; undefined: none. */
  providerAt(baseUrl: string): string | undefined;
};

let packaged: Promise<PriceList> | undefined;

/** The list of the installed package. Loaded when it is first needed: it is 800 KB. */
export function packagedPriceList(): Promise<PriceList> {
  packaged ??= readPackage().catch((error: unknown) => {
    packaged = undefined;
    throw error;
  });
  return packaged;
}

async function readPackage(): Promise<PriceList> {
  const { waitForUpdate } = await import("@pydantic/genai-prices");
  return await priceListOf(await waitForUpdate(), `${PACKAGE} ${packageFacts.dependencies[PACKAGE]}`);
}

/**
 * The list in the text of a JSON file: an array of providers as in the package's `data.json`. `name` is shown as its source. Throws
 * InputError with the path of the wrong field, also for a field that occurs twice in one object.
 */
export async function parsePriceList(text: string, name: string): Promise<PriceList> {
  if (text.length > PRICE_FILE_BYTES_MAX)
    throw new InputError(
      sentence("A price list has at most {priceFileBytesMax} MB.", { priceFileBytesMax: PRICE_FILE_BYTES_MAX / 1e6 }),
    );
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InputError(sentence("{name} is not valid JSON. NaN and Infinity are no numbers in JSON.", { name }));
  }
  refuseDuplicateFields(text);
  return await priceListOf(value, name);
}

async function priceListOf(value: unknown, source: string): Promise<PriceList> {
  const providers = checkProviders(value);
  const { calcPrice } = await import("@pydantic/genai-prices");
  const byId = new Map(providers.map((provider) => [provider.id, provider]));
  /** The providers without prices: the package only matches names with them, and has nothing to calculate. */
  const unpriced = new Map(
    providers.map((provider) => [
      provider.id,
      {
        id: provider.id,
        name: provider.name,
        api_pattern: "",
        models: provider.models.map(({ id, match }) => ({ id, match, prices: {} })),
      },
    ]),
  );
  const findIn = (providerId: string, name: string) => {
    const models = byId.get(providerId)?.models ?? [];
    const named = models.find(({ id }) => isSame(id, name));
    const provider = unpriced.get(providerId);
    if (named || !provider) return named;
    const matched = calcPrice({}, name, { provider })?.model.id;
    return matched === undefined ? undefined : models.find(({ id }) => id === matched);
  };
  return {
    source,
    providers,
    providerAt: (baseUrl) =>
      providers.find(({ api_pattern: pattern }) => pattern && new RegExp(`^(?:${pattern})`).test(baseUrl))?.id,
    find(providerId, name) {
      const others = byId.get(providerId)?.fallback_model_providers ?? [];
      for (const id of [providerId, ...others]) {
        const found = findIn(id, name);
        if (found) return found;
      }
      return undefined;
    },
  };
}

/** The providers of a list. Throws InputError: a list with one wrong price is not used at all. */
function checkProviders(value: unknown): readonly ListedProvider[] {
  if (!Value.Check(Providers, value)) {
    const { message, param } = problemOf(Value.Errors(Providers, value).First());
    throw new InputError(message.replace("The request must", "A price list must"), param);
  }
  refuseDuplicateIds(value, "");
  for (const [place, { id, api_pattern, models }] of value.entries()) {
    refuseBadPattern({ regex: api_pattern ?? "" }, id, `${place}`);
    refuseDuplicateIds(models, `${place}.models.`);
    for (const [row, model] of models.entries()) checkModel(model, `${place}.models.${row}`);
  }
  return value;
}

function refuseDuplicateIds(rows: readonly { id: string }[], path: string): void {
  const seen = new Set<string>();
  for (const [place, { id }] of rows.entries()) {
    const folded = id.toLowerCase();
    if (seen.has(folded))
      throw new InputError(sentence("The id {id} occurs twice.", { id: JSON.stringify(id) }), `${path}${place}.id`);
    seen.add(folded);
  }
}

function checkModel({ id, match, prices }: ListedModel, path: string): void {
  refuseBadPattern(match, id, path);
  const versions = Array.isArray(prices) ? prices : [{ prices }];
  for (const [place, version] of versions.entries()) {
    const at = Array.isArray(prices) ? `${path}.prices.${place}.prices` : `${path}.prices`;
    for (const [name, price] of Object.entries(version.prices)) {
      const starts = typeof price === "number" ? [] : price.tiers.map(({ start }) => start);
      if (new Set(starts).size < starts.length)
        throw new InputError(
          sentence("Two tiers of {name} of {id} begin at the same number of tokens.", { name, id }),
          `${at}.${name}.tiers`,
        );
    }
  }
}

/** A regular expression that does not compile would fail only when a name is looked up. */
function refuseBadPattern(match: unknown, id: string, path: string): void {
  if (typeof match !== "object" || match === null) return;
  for (const [how, what] of Object.entries(match)) {
    if (Array.isArray(what)) for (const part of what) refuseBadPattern(part, id, path);
    if (how !== "regex") continue;
    try {
      if (typeof what !== "string") throw new TypeError("not a pattern");
      new RegExp(what);
    } catch {
      throw new InputError(sentence("The regular expression of {id} is not valid.", { id }), `${path}.match`);
    }
  }
}

/** A parser would keep the last of two fields of one name, and the intended price would be unknown. */
function refuseDuplicateFields(text: string): void {
  try {
    scanObject(`{"list":${text}}`);
  } catch (error) {
    if (error instanceof DuplicateField) {
      const field = error.field.replace(/^list\./, "");
      throw new InputError(sentence("The field {field} occurs twice.", { field }), field);
    }
    if (error instanceof TooDeep || error instanceof TooManyValues)
      throw new InputError("The price list has too many values, or is nested too deeply.");
    throw error;
  }
}

function isSame(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase();
}

function rangeOf({ min, max }: { min: number; max: number }) {
  return { minimum: min, maximum: max };
}
