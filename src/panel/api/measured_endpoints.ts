import { Type } from "@sinclair/typebox";
import { Elysia, t } from "elysia";
import { measuredOfferOf } from "../../commerce/measured_store.ts";
import type { Deps } from "../../deps.ts";
import { MEASURED_STEPS_MAX } from "../../limits.ts";
import { getMeasured, setMeasured } from "../../operations/measured.ts";
import { perform } from "../../operations/operation.ts";
import { PositiveNanoUsd } from "./fields.ts";
import { toJson } from "./formats.ts";
import { callBy, signedIn } from "./panel_session.ts";

/** Made-to-measure packages: what a customer can choose, and a seller's prices of them. Source: MTM-1, MTM-2. */

const Kind = t.Object({ kind: t.Optional(t.Union([t.Literal("retail"), t.Literal("wholesale")])) });
const Prices = t.Object(
  {
    isOpen: t.Boolean(),
    daysMin: Type.Integer(),
    daysMax: Type.Integer(),
    dailyMin: Type.Integer(),
    dailyMax: Type.Integer(),
    steps: t.Array(
      t.Object({ fromRequests: Type.Integer(), nanoUsd: PositiveNanoUsd }, { additionalProperties: false }),
      {
        maxItems: MEASURED_STEPS_MAX,
      },
    ),
  },
  { additionalProperties: false },
);

export function measuredEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(offerEndpoint(deps)).use(pricesEndpoints(deps));
}

function offerEndpoint(deps: Deps) {
  return signedIn(deps, "customer").get("/measured", async ({ person }) => {
    const offer = await measuredOfferOf(deps, person.tenantId);
    return toJson({ offer, timeZone: deps.config.billingTimeZone });
  });
}

function pricesEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/measured-prices",
      async ({ person, query, request }) =>
        toJson(await perform(deps, getMeasured, callBy(deps, { person, request }), query)),
      { query: Kind },
    )
    .put(
      "/measured-prices",
      async ({ person, query, body, request }) => {
        const steps = body.steps.map(({ fromRequests, nanoUsd }) => ({ fromRequests, nanoUsd: BigInt(nanoUsd) }));
        const call = callBy(deps, { person, request });
        return toJson(await perform(deps, setMeasured, call, { ...query, ...body, steps }));
      },
      { query: Kind, body: Prices },
    );
}
