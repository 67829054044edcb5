import { Type } from "@sinclair/typebox";
import { type SellingSettings, sellingSettingsOf, setSellingSettings } from "../commerce/selling_terms_store.ts";
import { Seller, sellerInScope } from "./fence.ts";
import { Amount, CurrencyCode, orNull, PositiveNano, text } from "./fields.ts";
import { changing, operation } from "./operation.ts";

/** The currency in which a seller sells, and its tax. Source: TAX-1, CUR-1. */

const SELLERS = ["reseller", "admin"] as const;
const CODE_CHARS_MAX = 3;
const VAT_NUMBER_CHARS_MAX = 40;
const RATE = "In thousandths of a percent: 20000 is 20 %.";

const SellingShape = Type.Object(
  {
    sellerId: Type.Integer({ minimum: 0 }),
    currency: CurrencyCode,
    usdRateNano: orNull(Amount),
    taxCountry: orNull(Type.String({ description: "ISO 3166-1, as in DE. null: no tax is charged." })),
    vatNumber: orNull(Type.String()),
    packageTax: Type.Integer({ description: RATE }),
    topUpTax: Type.Integer({ description: RATE }),
    pricesWithTax: Type.Boolean({
      description: "Prices of packages contain the tax. The amount of a top-up never does.",
    }),
  },
  { title: "SellingTerms" },
);

export const getSelling = operation({
  name: "selling.get",
  says: "Returns the currency in which a seller sells, and its tax.",
  scope: "prices:read",
  roles: SELLERS,
  route: "GET /selling_terms",
  input: Seller,
  output: SellingShape,
  async run(deps, { caller }, { sellerId: wanted }) {
    const sellerId = await sellerInScope(deps, caller, wanted);
    return shown(sellerId, await sellingSettingsOf(deps, sellerId));
  },
});

export const setSelling = operation({
  name: "selling.set",
  says: "Changes the currency and the tax of a seller's later orders. What is left out stays as it is.",
  scope: "prices:write",
  roles: SELLERS,
  route: "PATCH /selling_terms",
  input: {
    ...Seller,
    currency: Type.Optional(
      text(CODE_CHARS_MAX, "ISO 4217, in lower case. Prices of another currency have no effect."),
    ),
    usdRateNano: Type.Optional(orNull(PositiveNano)),
    taxCountry: Type.Optional(orNull(text(CODE_CHARS_MAX))),
    vatNumber: Type.Optional(orNull(text(VAT_NUMBER_CHARS_MAX))),
    packageTax: Type.Optional(Type.Integer()),
    topUpTax: Type.Optional(Type.Integer()),
    pricesWithTax: Type.Optional(Type.Boolean()),
  },
  output: SellingShape,
  async run(deps, call, { sellerId: wanted, ...terms }) {
    const sellerId = await sellerInScope(deps, call.caller, wanted);
    return shown(sellerId, await setSellingSettings(changing(deps, call), sellerId, terms));
  },
});

function shown(sellerId: number, settings: SellingSettings) {
  return { sellerId, ...settings };
}
