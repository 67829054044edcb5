import { Elysia } from "elysia";
import { listOfferings } from "../../accounts/offerings_store.ts";
import { priceWorth } from "../../commerce/order_amounts.ts";
import { listRetailPrices, offeredTo } from "../../commerce/retail_prices_store.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import { sellingSettingsOf, sellingTermsIn } from "../../commerce/selling_terms_store.ts";
import type { Deps } from "../../deps.ts";
import { createOffering, setOnSale } from "../../operations/offerings.ts";
import { activePackages } from "./admin_counts_store.ts";
import { IdParam } from "./fields.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/** Offerings: those on sale, for everyone; adding them and taking them off sale, for admins. An offering itself never changes. */

export function offeringsEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(saleEndpoints(deps)).use(adminEndpoints(deps));
}

function saleEndpoints(deps: Deps) {
  return signedIn(deps).get("/offerings", async ({ person }) => {
    const rows = await offeredTo(deps, person);
    // Customers of a reseller do not see what their reseller pays.
    const offerings = rows.map(({ enabled: _, wholesaleNanoUsd, ...offering }) => ({
      ...offering,
      wholesaleNanoUsd: person.role === "customer" ? null : wholesaleNanoUsd,
    }));
    // What the person pays in addition, and in which currency.
    const sellerId = person.role === "customer" ? person.tenantId : OPERATOR;
    const { accountId } = person;
    const {
      sellerVatNumber: _,
      buyerVatNumber: _buyer,
      ...terms
    } = await sellingTermsIn(deps.db.orm, { sellerId, accountId });
    return toJson({ offerings, terms });
  });
}

function adminEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/offerings", async () => {
      const offerings = await listOfferings(deps);
      const active = await activePackages(deps.db.sql);
      const prices = await listRetailPrices(deps, OPERATOR);
      const terms = await sellingSettingsOf(deps, OPERATOR);
      return toJson({
        terms,
        offerings: offerings.map((offering) => {
          const price = prices.get(offering.offeringId);
          return {
            ...offering,
            activePackages: active.get(offering.offeringId) ?? 0,
            priceNano: price?.priceNano ?? null,
            currency: terms.currency,
            marginNanoUsd: price ? priceWorth(terms, price.priceNano) - offering.wholesaleNanoUsd : null,
          };
        }),
        /** The default time zone of a new offering. */
        timeZone: deps.config.billingTimeZone,
      });
    })
    .post("/admin/offerings", operate(deps, createOffering), { body: bodyOf(createOffering) })
    .patch("/admin/offerings/:id", operate(deps, setOnSale, { path: { id: "offeringId" } }), {
      params: IdParam,
      body: bodyOf(setOnSale, "offeringId"),
    });
}
