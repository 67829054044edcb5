import { type StaticDecode, Type } from "@sinclair/typebox";
import { listOfferings as readOfferings, setOfferingEnabled } from "../accounts/offerings_store.ts";
import { priceWorth } from "../commerce/order_amounts.ts";
import {
  addPricedOffering,
  listRetailPrices,
  removeRetailPrice,
  setRetailPrice as setPrice,
} from "../commerce/retail_prices_store.ts";
import { sellingSettingsOf } from "../commerce/selling_terms_store.ts";
import { Refusal } from "../errors.ts";
import { MODEL_ID_CHARS_MAX, SCOPE_MODELS_MAX } from "../limits.ts";
import { Seller, sellerInScope } from "./fence.ts";
import {
  Amount,
  At,
  CurrencyCode,
  NanoUsd,
  orNull,
  PositiveNano,
  RateLimits,
  RowId,
  ShownLimits,
  text,
} from "./fields.ts";
import { changing, operation } from "./operation.ts";

/** Offerings, and what the customers of a seller pay for them. An offering itself never changes. */

const SELLERS = ["reseller", "admin"] as const;
const NAME_LENGTH_MAX = 200;
const ZONE_LENGTH_MAX = 100;
const OfOffering = { offeringId: RowId };

const OFFERING = {
  offeringId: RowId,
  name: Type.String(),
  kind: Type.Union([Type.Literal("daily"), Type.Literal("custom")]),
  days: Type.Integer(),
  dailyLimit: Type.Integer(),
  totalLimit: Type.Integer(),
  carryover: Type.Boolean(),
  tokenLimit: orNull(Type.Integer()),
  limits: orNull(ShownLimits),
  requestBounds: Type.Object({
    choices: Type.Integer(),
    inputs: Type.Integer(),
    promptTokens: Type.Integer(),
    outputTokens: orNull(Type.Integer()),
  }),
  modelIds: orNull(Type.Array(Type.String())),
  timeZone: Type.String(),
  wholesaleNanoUsd: Amount,
  enabled: Type.Boolean({ description: "It is on sale." }),
  createdAt: At,
};
const RetailPrice = Type.Object(
  { offeringId: RowId, priceNano: Amount, currency: CurrencyCode, belowWholesaleConfirmed: Type.Boolean() },
  { title: "RetailPrice" },
);

const PricedOffering = Type.Object(
  {
    ...OFFERING,
    priceNano: orNull(Amount),
    currency: CurrencyCode,
    marginNanoUsd: orNull(Amount),
    belowWholesaleConfirmed: Type.Boolean(),
  },
  { title: "PricedOffering" },
);
export type PricedOffering = StaticDecode<typeof PricedOffering>;

export const listOfferings = operation({
  name: "offerings.list",
  says: "Lists all offerings, with what a seller's customers pay.",
  scope: "offerings:read",
  roles: SELLERS,
  route: "GET /offerings",
  input: Seller,
  output: Type.Object({ offerings: Type.Array(PricedOffering) }),
  async run(deps, { caller }, { sellerId }) {
    const seller = await sellerInScope(deps, caller, sellerId);
    const [offerings, prices, settings] = await Promise.all([
      readOfferings(deps),
      listRetailPrices(deps, seller),
      sellingSettingsOf(deps, seller),
    ]);
    const rows = offerings.map((offering) => {
      const price = prices.get(offering.offeringId);
      return {
        ...offering,
        priceNano: price?.priceNano ?? null,
        currency: settings.currency,
        marginNanoUsd: price === undefined ? null : priceWorth(settings, price.priceNano) - offering.wholesaleNanoUsd,
        belowWholesaleConfirmed: price?.belowWholesaleConfirmed ?? false,
      };
    });
    // A reseller sees what it can sell, and what it has a price for.
    const isSeen = (row: (typeof rows)[number]) => caller.role === "admin" || row.enabled || row.priceNano !== null;
    return { offerings: rows.filter(isSeen) };
  },
});

export const createOffering = operation({
  name: "offerings.create",
  says: "Adds a package that can be sold.",
  scope: "offerings:write",
  roles: ["admin"],
  route: "POST /offerings",
  input: {
    name: text(NAME_LENGTH_MAX),
    kind: Type.Union([Type.Literal("daily"), Type.Literal("custom")]),
    days: Type.Optional(Type.Integer()),
    dailyLimit: Type.Integer(),
    totalLimit: Type.Optional(Type.Integer()),
    carryover: Type.Optional(Type.Boolean()),
    tokenLimit: Type.Optional(orNull(Type.Integer())),
    limits: Type.Optional(RateLimits),
    requestBounds: Type.Optional(
      Type.Object(
        {
          choices: Type.Optional(Type.Integer()),
          inputs: Type.Optional(Type.Integer()),
          promptTokens: Type.Optional(Type.Integer()),
          outputTokens: Type.Optional(orNull(Type.Integer())),
        },
        {
          additionalProperties: false,
          description: "What one request may ask for. What is missing is the default.",
        },
      ),
    ),
    modelIds: Type.Optional(orNull(Type.Array(text(MODEL_ID_CHARS_MAX), { maxItems: SCOPE_MODELS_MAX }))),
    timeZone: Type.Optional(text(ZONE_LENGTH_MAX)),
    wholesaleNanoUsd: NanoUsd,
    priceNano: Type.Optional(orNull(PositiveNano)),
    belowWholesale: Type.Optional(Type.Boolean({ description: "Confirms a price below the wholesale price." })),
  },
  output: Type.Object({ ...OFFERING, priceNano: orNull(Amount) }, { title: "NewOffering" }),
  async run(deps, call, { priceNano = null, belowWholesale = false, ...wanted }) {
    const { timeZone = deps.config.billingTimeZone } = wanted;
    const retail = priceNano === null ? null : { priceNano, belowWholesale };
    const added = await addPricedOffering(changing(deps, call), { ...wanted, timeZone }, retail);
    return { ...added, priceNano };
  },
});

export const setOnSale = operation({
  name: "offerings.update",
  says: "Puts an offering on sale, or takes it off. Packages that exist stay.",
  scope: "offerings:write",
  roles: ["admin"],
  route: "PATCH /offerings/{offeringId}",
  input: { ...OfOffering, enabled: Type.Boolean() },
  output: Type.Object({ offeringId: RowId, enabled: Type.Boolean() }),
  async run(deps, call, wanted) {
    if (!(await setOfferingEnabled(changing(deps, call), wanted))) throw noOffering();
    return wanted;
  },
});

export const setRetailPrice = operation({
  name: "prices.set",
  says: "Sets what the customers of a seller pay for an offering.",
  scope: "prices:write",
  roles: SELLERS,
  route: "PUT /prices/{offeringId}",
  input: { ...OfOffering, ...Seller, priceNano: PositiveNano, belowWholesale: Type.Optional(Type.Boolean()) },
  output: RetailPrice,
  async run(deps, call, { sellerId, belowWholesale = false, ...price }) {
    const seller = await sellerInScope(deps, call.caller, sellerId);
    return setPrice(changing(deps, call), { ...price, sellerId: seller, belowWholesale });
  },
});

export const removePrice = operation({
  name: "prices.remove",
  says: "Removes what the customers of a seller pay for an offering: they ask for it.",
  scope: "prices:write",
  roles: SELLERS,
  route: "DELETE /prices/{offeringId}",
  input: { ...OfOffering, ...Seller },
  output: Type.Object({ offeringId: RowId, priceNano: Type.Null() }),
  async run(deps, call, { sellerId, offeringId }) {
    const seller = await sellerInScope(deps, call.caller, sellerId);
    if (!(await removeRetailPrice(changing(deps, call), { sellerId: seller, offeringId }))) throw noOffering();
    return { offeringId, priceNano: null };
  },
});

function noOffering(): Refusal {
  return new Refusal("not_found");
}
