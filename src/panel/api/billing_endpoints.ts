import type { Deps } from "../../deps.ts";
import { holdingsFor } from "../../operations/packages.ts";
import { EntriesPage, entriesOf, MovementsPage, monthsOf, movementsOf } from "./account_billing.ts";
import { toJson } from "./formats.ts";
import { signedIn } from "./panel_session.ts";

/** The person's own packages, balance and transactions. Those of other accounts: people_billing_endpoints.ts. */

export function billingEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/billing", async ({ person }) => toJson(await holdingsFor(deps, person, person)))
    .get(
      "/billing/entries",
      async ({ person, query, request: { signal } }) => {
        const { accountId } = person;
        return toJson(await entriesOf(deps, { person, signal }, { ...query, accountId }));
      },
      { query: EntriesPage },
    )
    .get(
      "/billing/movements",
      async ({ person, query, request: { signal } }) => {
        const { accountId } = person;
        return toJson(await movementsOf(deps, { person, signal }, { ...query, accountId }));
      },
      { query: MovementsPage },
    )
    .get("/billing/months", async ({ person, request: { signal } }) =>
      toJson(await monthsOf(deps, { person, signal }, person.accountId)),
    );
}
