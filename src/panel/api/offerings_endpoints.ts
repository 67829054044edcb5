import { Type } from "@sinclair/typebox";
import { Elysia, t } from "elysia";
import { listOfferings, setOfferingEnabled } from "../../accounts/offerings_store.ts";
import { addPricedOffering, listRetailPrices, offeredTo } from "../../commerce/retail_prices_store.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { MODEL_ID_CHARS_MAX, SCOPE_MODELS_MAX } from "../../limits.ts";
import { activePackages } from "./admin_counts_store.ts";
import { IdParam, NanoUsd, orNull, RateLimits } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { signedIn } from "./panel_session.ts";

/** Offerings: those on sale, for everyone; adding them and taking them off sale, for admins. An offering itself never changes. */

const NAME_LENGTH_MAX = 200;
const ZONE_LENGTH_MAX = 100;

const NewOffering = t.Object({
  name: t.String({ maxLength: NAME_LENGTH_MAX }),
  kind: t.Union([t.Literal("daily"), t.Literal("custom")]),
  days: t.Optional(Type.Integer()),
  dailyLimit: Type.Integer(),
  totalLimit: t.Optional(Type.Integer()),
  carryover: t.Optional(t.Boolean()),
  tokenLimit: t.Optional(orNull(Type.Integer())),
  limits: t.Optional(RateLimits),
  /** What one request may ask for; what is missing is the default. */
  requestBounds: t.Optional(
    t.Object({
      choices: t.Optional(Type.Integer()),
      inputs: t.Optional(Type.Integer()),
      promptTokens: t.Optional(Type.Integer()),
      outputTokens: t.Optional(orNull(Type.Integer())),
    }),
  ),
  modelIds: t.Optional(orNull(t.Array(t.String({ maxLength: MODEL_ID_CHARS_MAX }), { maxItems: SCOPE_MODELS_MAX }))),
  timeZone: t.Optional(t.String({ maxLength: ZONE_LENGTH_MAX })),
  wholesaleNanoUsd: NanoUsd,
  /** What the operator's own customers pay. */
  priceNanoUsd: t.Optional(orNull(NanoUsd)),
  belowWholesale: t.Optional(t.Boolean()),
});

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
    return toJson({ offerings });
  });
}

function adminEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/offerings", async () => {
      const offerings = await listOfferings(deps);
      const active = await activePackages(deps.db.sql);
      const prices = await listRetailPrices(deps, OPERATOR);
      return toJson({
        offerings: offerings.map((offering) => ({
          ...offering,
          activePackages: active.get(offering.offeringId) ?? 0,
          priceNanoUsd: prices.get(offering.offeringId)?.priceNanoUsd ?? null,
        })),
        /** The default time zone of a new offering. */
        timeZone: deps.config.billingTimeZone,
      });
    })
    .post(
      "/admin/offerings",
      async ({
        person,
        body: { wholesaleNanoUsd, priceNanoUsd = null, belowWholesale = false, ...wanted },
        request,
      }) => {
        const { timeZone = deps.config.billingTimeZone } = wanted;
        const offering = { ...wanted, timeZone, wholesaleNanoUsd: BigInt(wholesaleNanoUsd) };
        const retail = priceNanoUsd === null ? null : { priceNanoUsd: BigInt(priceNanoUsd), belowWholesale };
        const by = { ...deps, by: person.by };
        return toJson(await once(deps, { person, request }, () => addPricedOffering(by, offering, retail)));
      },
      { body: NewOffering },
    )
    .patch(
      "/admin/offerings/:id",
      async ({ person, params, body: { enabled } }) => {
        const known = await setOfferingEnabled({ ...deps, by: person.by }, { offeringId: params.id, enabled });
        if (!known) throw new Refusal("not_found");
        return { offeringId: params.id, enabled };
      },
      {
        params: IdParam,
        body: t.Object({ enabled: t.Boolean() }),
      },
    );
}
