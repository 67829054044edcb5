import { Type } from "@sinclair/typebox";
import { Elysia, t } from "elysia";
import { type Account, findAccount, setPaygRight } from "../../accounts/accounts_store.ts";
import { type Key, listKeys } from "../../accounts/keys_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { grantAllotment, listAllotments, withdrawAllotment } from "../../ledger/allotments_store.ts";
import { addBalance, setPayg, transferBalance } from "../../ledger/balances_store.ts";
import { holdingsOf, previewAssignment, type Terms } from "../../ledger/holdings_store.ts";
import { assignPackage, endPackage, findPackage, type PayWith, payerOf } from "../../ledger/packages_store.ts";
import {
  billingOf,
  checkPayWith,
  EntriesPage,
  entriesOf,
  MovementsPage,
  monthsOf,
  movementsOf,
  viewOf,
} from "./account_billing.ts";
import { Id, IdInBody, IdParam, PackagePayment, PackageStart, PositiveNanoUsd, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { accountInScope, type Person, signedIn } from "./panel_session.ts";

/**
 * Packages, balance and allotments of the accounts that a person manages: a reseller its customers, an admin everyone. A reseller may
 * also assign packages to itself.
 */

/** More than the keys that an account may have unrevoked. */
const KEYS_MAX = 1000;
const PAGE_MAX = 100;
const REASON_LENGTH_MAX = 1000;

const Reason = t.String({ maxLength: REASON_LENGTH_MAX });
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
      async ({ person, params }) => toJson(await billingOf(deps, person, await holderInScope(deps, person, params.id))),
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
    .post(
      "/people/:id/packages",
      async ({ person, params, body: { offeringId, when, payWith }, request }) => {
        const holder = await holderInScope(deps, person, params.id);
        const { accountId } = holder;
        const payer = payingFor(person, holder, payWith);
        const wanted = { accountId, offeringId, when, ...payer, actorId: person.by.accountId };
        const assigned = await once(deps, { person, request }, () => assignPackage({ ...deps, by: person.by }, wanted));
        return toJson({ package: viewOf(person, assigned) });
      },
      { params: IdParam, body: Assignment },
    )
    .post(
      "/people/:id/packages/:packageId/end",
      async ({ person, params: { id, packageId } }) => {
        const { accountId } = await holderInScope(deps, person, id);
        const found = await findPackage(deps, packageId);
        if (found?.accountId !== accountId) throw new Refusal("not_found");
        const ended = await endPackage({ ...deps, by: person.by }, { accountId, packageId });
        return toJson({ package: viewOf(person, ended), unitsDropped: ended.unitsDropped ?? 0 });
      },
      { params: t.Object({ id: Id, packageId: Id }) },
    );
}

function moneyEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin").post(
    "/people/:id/balance",
    async ({ person, params, body, request }) => {
      const { accountId } = await accountInScope(deps, person, params.id);
      const nanoUsd = BigInt(body.amountNanoUsd);
      await once(deps, { person, request }, () => moveMoney(deps, person, { ...body, accountId, nanoUsd }));
      return toJson({ balance: (await holdingsOf(deps, accountId)).balance });
    },
    {
      params: IdParam,
      body: t.Object({
        kind: t.Union([t.Literal("top_up"), t.Literal("correction")]),
        /** A correction may be negative. */
        amountNanoUsd: t.Union([PositiveNanoUsd, t.String({ pattern: "^-[1-9][0-9]{0,15}$", maxLength: 17 })], {
          says: "nano-USD other than 0, as a string of digits",
        }),
        reason: t.Optional(Reason),
      }),
    },
  );
}

type Transaction = { kind: "top_up" | "correction"; accountId: number; nanoUsd: bigint; reason?: string };

/**
 * An admin adds to or corrects a balance, with a reason; a reseller transfers from its own balance. Throws InputError,
 * insufficient_balance.
 */
async function moveMoney(deps: Deps, person: Person, { kind, accountId, nanoUsd, reason }: Transaction): Promise<void> {
  const by = { ...deps, by: person.by };
  const actorId = person.by.accountId;
  const why = reason?.trim() || null;
  if (person.role === "admin") {
    if (why === null) throw new InputError("Give a reason. It is kept with the transaction.", "reason");
    await addBalance(by, { accountId, nanoUsd, kind, reason: why, actorId });
    return;
  }
  if (kind !== "top_up") throw new InputError("Only the operator can correct a balance.", "kind");
  await transferBalance(by, { fromId: person.accountId, toId: accountId, nanoUsd, reason: why, actorId });
}

function allotmentEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin").get(
    "/allotments",
    async ({ person, query }) => {
      const own = person.role === "reseller" ? { resellerId: person.accountId } : {};
      const { rows, hasMore } = await listAllotments(deps, { ...query, ...own });
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
  return signedIn(deps, "reseller", "admin").patch(
    "/people/:id/payg",
    async ({ person, params, body: { enabled } }) => {
      const { accountId } = await accountInScope(deps, person, params.id);
      const resellerId = person.role === "admin" ? undefined : person.accountId;
      await setPayg({ ...deps, by: person.by }, accountId, enabled, resellerId);
      return { paygEnabled: enabled };
    },
    { params: IdParam, body: t.Object({ enabled: t.Boolean() }) },
  );
}

/** Granting resellers the right to switch pay-as-you-go, and allotments. */
function adminEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .patch(
      "/people/:id/payg-right",
      async ({ person, params, body: { granted } }) => {
        const { accountId } = await accountInScope(deps, person, params.id);
        await setPaygRight({ ...deps, by: person.by }, accountId, granted);
        return { maySwitchPayg: granted };
      },
      { params: IdParam, body: t.Object({ granted: t.Boolean() }) },
    )
    .post(
      "/allotments",
      async ({ person, body, request }) => {
        const reason = body.reason.trim();
        if (reason === "") throw new InputError("Give a reason. It is kept with the grant.", "reason");
        const grant = { ...body, reason, actorId: person.by.accountId };
        const allotment = await once(deps, { person, request }, () =>
          grantAllotment({ ...deps, by: person.by }, grant),
        );
        return toJson({ allotment });
      },
      { body: t.Object({ resellerId: IdInBody, offeringId: IdInBody, pieces: Type.Integer(), reason: Reason }) },
    )
    .post(
      "/allotments/:id/withdraw",
      async ({ person, params }) => toJson(await withdrawAllotment({ ...deps, by: person.by }, params.id)),
      { params: IdParam },
    );
}

/** An account that the person may assign packages to: one it manages, or itself. Throws not_found. */
async function holderInScope(deps: Deps, person: Person, accountId: number): Promise<Account> {
  if (accountId !== person.accountId) return accountInScope(deps, person, accountId);
  const own = await findAccount(deps, accountId);
  if (!own) throw new Refusal("not_found");
  return own;
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
