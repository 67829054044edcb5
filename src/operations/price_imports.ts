import { Type } from "@sinclair/typebox";
import { DIFF_MODELS_MAX, DIFF_PROVIDERS_MAX, type ImportRequest } from "../catalog/price_diff.ts";
import { readMarkup } from "../catalog/price_import.ts";
import { applyImport, previewImport } from "../catalog/price_import_store.ts";
import { type PriceList, packagedPriceList } from "../catalog/price_list.ts";
import { MODEL_ID_CHARS_MAX } from "../limits.ts";
import { orNull, text } from "./fields.ts";
import { type Call, changing, operation } from "./operation.ts";

/** Prices from a price list, for admins. The comparison is made with every call, and not stored. Source: IMP-4, IMP-5. */

const PROVIDER_CHARS_MAX = 200;
const MARKUP_CHARS_MAX = 10;
const Digest = Type.String({ pattern: "^[0-9a-f]{32}$", says: "the digest of a comparison" });

const ModelId = text(MODEL_ID_CHARS_MAX);
const REQUEST = {
  providers: Type.Array(text(PROVIDER_CHARS_MAX), {
    minItems: 1,
    maxItems: DIFF_PROVIDERS_MAX,
    description: "Ids of providers in the price list.",
  }),
  markup: text(MARKUP_CHARS_MAX, 'Added to its prices, in percent, as in "20" or "12.5".'),
};
const Value = Type.Union([Type.Number(), Type.String(), Type.Null()]);
const PreviewShape = Type.Object(
  {
    source: Type.String({ description: "The price list, with its version." }),
    items: Type.Array(
      Type.Object({
        modelId: Type.String(),
        listed: orNull(Type.String({ description: "Provider and model in the price list." })),
        kind: Type.Union(
          [Type.Literal("new"), Type.Literal("changed"), Type.Literal("unchanged"), Type.Literal("unmapped")],
          { description: "unmapped: its prices cannot be taken from the list, for the reason." },
        ),
        changes: Type.Array(
          Type.Object({
            label: Type.String(),
            unit: Type.Union([
              Type.Literal("per_million"),
              Type.Literal("per_request"),
              Type.Literal("tokens"),
              Type.Literal("text"),
            ]),
            from: Value,
            to: Value,
          }),
          { description: "Prices are micro-USD." },
        ),
        notes: Type.Array(Type.String()),
        reason: orNull(Type.String()),
        digest: Type.String({ description: "Confirms the item as it is shown here." }),
      }),
    ),
    newModels: Type.Integer({ description: "Models of these providers that the catalog lacks." }),
  },
  { title: "PriceImportPreview" },
);

export const getPriceList = operation({
  name: "price_imports.list",
  says: "Returns the installed price list's providers.",
  scope: "models:read",
  roles: ["admin"],
  route: "GET /price_list",
  input: {},
  output: Type.Object(
    {
      source: Type.String(),
      providers: Type.Array(Type.Object({ id: Type.String(), name: Type.String(), models: Type.Integer() })),
    },
    { title: "PriceList" },
  ),
  async run(_deps, call) {
    const { source, providers } = await listOf(call);
    return { source, providers: providers.map(({ id, name, models }) => ({ id, name, models: models.length })) };
  },
});

export const previewPriceImport = operation({
  name: "price_imports.preview",
  says: "Returns the changes that a price list would make in the catalog. Changes nothing.",
  scope: "models:read",
  roles: ["admin"],
  route: "POST /price_imports/preview",
  input: {
    ...REQUEST,
    models: Type.Optional(
      Type.Array(ModelId, {
        maxItems: DIFF_MODELS_MAX,
        description: "Only these. Those that the catalog lacks are shown as new.",
      }),
    ),
    addsNew: Type.Optional(Type.Boolean({ description: "Without models: also shows all that the catalog lacks." })),
  },
  output: PreviewShape,
  run: async (deps, call, { markup, ...wanted }) =>
    previewImport(deps, await listOf(call), requestOf({ ...wanted, markup })),
});

export const applyPriceImport = operation({
  name: "price_imports.create",
  says: "Applies the confirmed items of a comparison, all or none. New models are disabled.",
  scope: "models:write",
  roles: ["admin"],
  route: "POST /price_imports",
  input: {
    ...REQUEST,
    confirmed: Type.Array(Type.Object({ modelId: ModelId, digest: Digest }, { additionalProperties: false }), {
      minItems: 1,
      maxItems: DIFF_MODELS_MAX,
      description: "Each with the digest that the comparison showed.",
    }),
  },
  output: Type.Object(
    { added: Type.Array(Type.String()), changed: Type.Array(Type.String()) },
    { title: "PriceImport" },
  ),
  run: async (deps, call, { confirmed, ...wanted }) =>
    applyImport(changing(deps, call), await listOf(call), { ...requestOf(wanted), confirmed }),
});

function listOf({ brings }: Call): Promise<PriceList> | PriceList {
  return brings?.priceList ?? packagedPriceList();
}

/** Throws InputError. */
function requestOf<Wanted extends { markup: string }>({ markup, ...wanted }: Wanted) {
  return { ...wanted, markup: readMarkup(markup) } satisfies { markup: ImportRequest["markup"] };
}
