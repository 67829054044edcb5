import { Elysia, t } from "elysia";
import type { Account } from "../../accounts/accounts_store.ts";
import { type Key, listKeys } from "../../accounts/keys_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import type { Deps } from "../../deps.ts";
import { previewAssignment, type Terms } from "../../ledger/holdings_store.ts";
import { type PayWith, payerOf } from "../../ledger/packages_store.ts";
import { setPayg, setPaygRight } from "../../operations/accounts.ts";
import { changeBalance } from "../../operations/balances.ts";
import { holderInScope } from "../../operations/fence.ts";
import { perform } from "../../operations/operation.ts";
import {
  assignPackage,
  checkPayWith,
  endPackage,
  grantAllotment,
  holdingsFor,
  listAllotments,
  withdrawAllotment,
} from "../../operations/packages.ts";
import { EntriesPage, entriesOf, MovementsPage, monthsOf, movementsOf } from "./account_billing.ts";
import { Id, IdInBody, IdParam, PackagePayment, PackageStart, whole } from "./fields.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { callBy, type Person, signedIn } from "./panel_session.ts";

/**
 * Packages, balance and allotments of the accounts that a person manages: a reseller its customers, an admin everyone. A reseller may
 * also assign packages to itself.
 */

/** More than the keys that an account may have unrevoked. */
const KEYS_MAX = 1000;
const PAGE_MAX = 100;

/** The path's id is an account's. */
const OF_PERSON = { path: { id: "accountId" } } as const;
const Assignment = t.Object({ offeringId: IdInBody, when: PackageStart, payWith: t.Optional(PackagePayment) });

export function peopleBillingEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(holdingEndpoints(deps))
    .use(packageEndpoints(deps))
    .use(moneyEndpoints(deps))
    .use(allotmentEndpoints(deps))
    .use(paygEndpoints(deps))
    .use(adminEndpoints(deps));
}

function holdingEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/people/:id/billing",
      async ({ person, params }) =>
        toJson(await holdingsFor(deps, person, await holderInScope(deps, person, params.id))),
      { params: IdParam },
    )
    .get(
      "/people/:id/billing/entries",
      async ({ person, params, query, request: { signal } }) => {
        const { accountId } = await holderInScope(deps, person, params.id);
        return toJson(await entriesOf(deps, { person, signal }, { ...query, accountId }));
      },
      { params: IdParam, query: EntriesPage },
    )
    .get(
      "/people/:id/billing/movements",
      async ({ person, params, query, request: { signal } }) => {
        const { accountId } = await holderInScope(deps, person, params.id);
        return toJson(await movementsOf(deps, { person, signal }, { ...query, accountId }));
      },
      { params: IdParam, query: MovementsPage },
    )
    .get(
      "/people/:id/billing/months",
      async ({ person, params, request: { signal } }) => {
        const { accountId } = await holderInScope(deps, person, params.id);
        return toJson(await monthsOf(deps, { person, signal }, accountId));
      },
      { params: IdParam },
    );
}

function packageEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .post(
      "/people/:id/packages/preview",
      async ({ person, params, body }) => {
        const holder = await holderInScope(deps, person, params.id);
        return toJson(await previewFor(deps, holder, { ...body, ...payingFor(person, holder, body.payWith) }));
      },
      { params: IdParam, body: Assignment },
    )
    .post("/people/:id/packages", operate(deps, assignPackage, OF_PERSON), {
      params: IdParam,
      body: bodyOf(assignPackage, "accountId"),
    })
    .post("/people/:id/packages/:packageId/end", operate(deps, endPackage, OF_PERSON), {
      params: t.Object({ id: Id, packageId: Id }),
    });
}

function moneyEndpoints(deps: Deps) {
  return signedIn(deps, ...changeBalance.roles).post("/people/:id/balance", operate(deps, changeBalance, OF_PERSON), {
    params: IdParam,
    body: bodyOf(changeBalance, "accountId"),
  });
}

function allotmentEndpoints(deps: Deps) {
  return signedIn(deps, ...listAllotments.roles).get(
    "/allotments",
    async ({ person, query, request }) => {
      const { rows, hasMore } = await perform(deps, listAllotments, callBy(deps, { person, request }), {
        ...query,
        limit: query.limit ?? PAGE_MAX,
      });
      return toJson({ allotments: rows, hasMore });
    },
    {
      query: t.Object({
        resellerId: t.Optional(Id),
        before: t.Optional(Id),
        limit: t.Optional(whole(1, PAGE_MAX)),
      }),
    },
  );
}

/** Switches pay-as-you-go for an account: an admin may, and a reseller that was granted the right. */
function paygEndpoints(deps: Deps) {
  return signedIn(deps, ...setPayg.roles).patch("/people/:id/payg", operate(deps, setPayg, OF_PERSON), {
    params: IdParam,
    body: bodyOf(setPayg, "accountId"),
  });
}

/** Granting resellers the right to switch pay-as-you-go, and allotments. */
function adminEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .patch("/people/:id/payg-right", operate(deps, setPaygRight, OF_PERSON), {
      params: IdParam,
      body: bodyOf(setPaygRight, "accountId"),
    })
    .post("/allotments", operate(deps, grantAllotment), { body: bodyOf(grantAllotment) })
    .post("/allotments/:id/withdraw", operate(deps, withdrawAllotment, { path: { id: "allotmentId" } }), {
      params: IdParam,
    });
}

function payingFor(person: Person, holder: Account, payWith: PayWith | undefined) {
  checkPayWith(person, payWith);
  return payerOf(holder, payWith);
}

type Assigning = { offeringId: number; when: "now" | "after"; payerId: number | null; fromAllotment: boolean };

/** What an assignment would change: the limits, the payment, and the models that each key can use. */
async function previewFor(deps: Deps, holder: Account, { offeringId, when, payerId, fromAllotment }: Assigning) {
  const { accountId } = holder;
  const wanted = { accountId, offeringId, when, payerId, fromAllotment };
  const { before, after, ...preview } = await previewAssignment(deps, wanted);
  const keys = (await listKeys(deps, { accountId, limit: KEYS_MAX })).rows.filter(({ status }) => status === "enabled");
  const paygUsable = holder.paygEnabled && holder.balanceNanoUsd > 0n;
  return {
    ...preview,
    limits: { before: before && limitsOf(before), after: limitsOf(after) },
    keys: keys.map((key) => {
      const had = reachable(deps.catalog.models(), key, before, paygUsable);
      const has = reachable(deps.catalog.models(), key, after, paygUsable);
      return {
        keyId: key.keyId,
        name: key.name,
        masked: key.masked,
        mode: key.mode,
        added: has.filter((id) => !had.includes(id)),
        removed: had.filter((id) => !has.includes(id)),
      };
    }),
  };
}

function limitsOf({ name, days, dailyLimit, totalLimit, carryover, tokenLimit, timeZone, modelIds }: Terms): Terms {
  return { name, days, dailyLimit, totalLimit, carryover, tokenLimit, timeZone, modelIds };
}

/** The models that a key can use. Source: PAY-7. */
function reachable(
  models: readonly Model[],
  { modelIds, mode }: Key,
  terms: Pick<Terms, "modelIds"> | null,
  paygUsable: boolean,
): string[] {
  const inPackage = (id: string) =>
    mode === "package" && terms !== null && (terms.modelIds === null || terms.modelIds.includes(id));
  const byBalance = ({ prices, imagePrices }: Model) => paygUsable && (prices !== null || imagePrices.size > 0);
  return models
    .filter((model) => (modelIds === null || modelIds.includes(model.id)) && (inPackage(model.id) || byBalance(model)))
    .map(({ id }) => id);
}
