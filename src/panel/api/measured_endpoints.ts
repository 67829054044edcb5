import { Elysia, t } from "elysia";
import { measuredOfferOf } from "../../commerce/measured_store.ts";
import type { Deps } from "../../deps.ts";
import { getMeasured, setMeasured } from "../../operations/measured.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/** Made-to-measure packages: what a customer can choose, and a seller's prices of them. Source: MTM-1, MTM-2. */

const Kind = t.Object({ kind: t.Optional(t.Union([t.Literal("retail"), t.Literal("wholesale")])) });
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
    .get("/measured-prices", operate(deps, getMeasured), { query: Kind })
    .put("/measured-prices", operate(deps, setMeasured), {
      query: Kind,
      body: bodyOf(setMeasured, "kind", "sellerId"),
    });
}
