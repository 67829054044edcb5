import { Elysia, t } from "elysia";
import { listOfferings } from "../../accounts/offerings_store.ts";
import { priceWorth } from "../../commerce/order_amounts.ts";
import { listRetailPrices } from "../../commerce/retail_prices_store.ts";
import { arePricesPublic, sellerOfPerson, setPricesPublic } from "../../commerce/sellers_store.ts";
import { sellingSettingsOf } from "../../commerce/selling_terms_store.ts";
import type { Deps } from "../../deps.ts";
import { removePrice, setRetailPrice } from "../../operations/offerings.ts";
import { getSelling, setSelling } from "../../operations/selling.ts";
import { IdParam } from "./fields.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/** A seller's own retail prices: the operator's for an admin, else the reseller's. Source: RTL-1, RTL-2, RTL-6. */

export function pricesEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(
    signedIn(deps, "reseller", "admin")
      .get("/selling-terms", operate(deps, getSelling))
      .patch("/selling-terms", operate(deps, setSelling), { body: bodyOf(setSelling, "sellerId") })
      .get("/prices", async ({ person }) => toJson(await pricesOf(deps, sellerOfPerson(person))))
      .put("/prices/:id", operate(deps, setRetailPrice, { path: { id: "offeringId" } }), {
        params: IdParam,
        body: bodyOf(setRetailPrice, "offeringId", "sellerId"),
      })
      .delete("/prices/:id", operate(deps, removePrice, { path: { id: "offeringId" } }), { params: IdParam })
      .patch(
        "/prices",
        async ({ person, body: { pricesPublic } }) => {
          await setPricesPublic({ ...deps, by: person.by }, { sellerId: sellerOfPerson(person), pricesPublic });
          return { pricesPublic };
        },
        { body: t.Object({ pricesPublic: t.Boolean() }, { additionalProperties: false }) },
      ),
  );
}

/** The offerings on sale, and those off sale that still have a price, with what the seller pays and earns for each. */
async function pricesOf(deps: Deps, sellerId: number) {
  const [offerings, prices, pricesPublic, terms] = await Promise.all([
    listOfferings(deps),
    listRetailPrices(deps, sellerId),
    arePricesPublic(deps, sellerId),
    sellingSettingsOf(deps, sellerId),
  ]);
  const rows = offerings.flatMap((offering) => {
    const price = prices.get(offering.offeringId);
    if (!offering.enabled && price === undefined) return [];
    const { wholesaleNanoUsd } = offering;
    return [
      {
        ...offering,
        priceNano: price?.priceNano ?? null,
        marginNanoUsd: price === undefined ? null : priceWorth(terms, price.priceNano) - wholesaleNanoUsd,
        belowWholesaleConfirmed: price?.belowWholesaleConfirmed ?? false,
      },
    ];
  });
  return { offerings: rows, pricesPublic, terms };
}
