import { Type } from "@sinclair/typebox";
import { Elysia, t } from "elysia";
import { listOfferings } from "../../accounts/offerings_store.ts";
import { listRetailPrices, offeredTo } from "../../commerce/retail_prices_store.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import type { Deps } from "../../deps.ts";
import { MODEL_ID_CHARS_MAX, SCOPE_MODELS_MAX } from "../../limits.ts";
import { createOffering, setOnSale } from "../../operations/offerings.ts";
import { perform } from "../../operations/operation.ts";
import { activePackages } from "./admin_counts_store.ts";
import { IdParam, NanoUsd, orNull, RateLimits } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { callBy, signedIn } from "./panel_session.ts";

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
      async ({ person, body: { wholesaleNanoUsd, priceNanoUsd = null, ...body }, request }) => {
        const wanted = {
          ...body,
          wholesaleNanoUsd: BigInt(wholesaleNanoUsd),
          priceNanoUsd: priceNanoUsd === null ? null : BigInt(priceNanoUsd),
        };
        const call = callBy(deps, { person, request });
        return toJson(await once(deps, { person, request }, () => perform(deps, createOffering, call, wanted)));
      },
      { body: NewOffering },
    )
    .patch(
      "/admin/offerings/:id",
      ({ person, params, body, request }) =>
        perform(deps, setOnSale, callBy(deps, { person, request }), { ...body, offeringId: params.id }),
      {
        params: IdParam,
        body: t.Object({ enabled: t.Boolean() }),
      },
    );
}
