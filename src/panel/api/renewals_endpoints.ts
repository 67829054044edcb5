import { Elysia, t } from "elysia";
import { customerRenewals } from "../../commerce/customer_renewals_store.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import type { Deps } from "../../deps.ts";
import { originOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import { getAutoTopUp, removeAutoTopUp, setAutoTopUp } from "../../operations/auto_top_up.ts";
import { getCard, lookForCard, removeCard, saveCard } from "../../operations/cards.ts";
import { perform } from "../../operations/operation.ts";
import { cancelRenewal, listRenewals, setRenewal } from "../../operations/renewals.ts";
import { Id, IdParam } from "./fields.ts";
import { bodyOf, operate } from "./operate.ts";
import { callBy, longRead, signedIn } from "./panel_session.ts";

/** The card on file, automatic top-ups from it, and packages that renew automatically. */

/** Renewals of customers that a seller's page shows. */
const CUSTOMERS_MAX = 50;

export function renewalsEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(cardEndpoints(deps)).use(renewingEndpoints(deps));
}

function cardEndpoints(deps: Deps) {
  return signedIn(deps, ...getCard.roles)
    .get("/card", operate(deps, getCard))
    .post("/card", async ({ person, request }) => {
      const returnTo = `${originOf(deps, factsOf(request).url)}/billing`;
      return await perform(deps, saveCard, callBy(deps, { person, request }), { returnTo });
    })
    .post("/card/look", operate(deps, lookForCard))
    .delete("/card", operate(deps, removeCard))
    .get("/auto-top-up", operate(deps, getAutoTopUp))
    .put("/auto-top-up", operate(deps, setAutoTopUp), { body: bodyOf(setAutoTopUp) })
    .delete("/auto-top-up", operate(deps, removeAutoTopUp));
}

function renewingEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(
      signedIn(deps, ...listRenewals.roles)
        .get("/renewals", operate(deps, listRenewals), { query: t.Object({ accountId: t.Optional(Id) }) })
        .post("/renewals/cancel", operate(deps, cancelRenewal), { body: bodyOf(cancelRenewal) }),
    )
    .use(
      signedIn(deps, "reseller", "admin").get("/renewals/customers", async ({ person, request: { signal } }) => {
        const sellerId = person.role === "admin" ? OPERATOR : person.accountId;
        return await longRead(deps, { person, signal }, (reading) =>
          customerRenewals(reading, { sellerId, limit: CUSTOMERS_MAX }),
        );
      }),
    )
    .use(
      signedIn(deps, ...setRenewal.roles).put(
        "/packages/:id/renewal",
        operate(deps, setRenewal, { path: { id: "packageId" } }),
        { params: IdParam, body: bodyOf(setRenewal, "packageId") },
      ),
    );
}
