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
import { billingOf, EntriesPage, entriesOf, viewOf } from "./billing_routes.ts";
import { Amount, checkPayWith, PayWithName, When } from "./orders_routes.ts";
import { Id, IdInBody, once, type Person, signedIn, toWire, whole } from "./panel_session.ts";
import { accountInScope } from "./scope.ts";

/** What resellers hand out to their customers, and admins to everybody: packages, money, allotments. */

/** An account has no more keys that are not revoked. */
const KEYS_MAX = 1000;
const PAGE_MAX = 100;
const REASON_LENGTH_MAX = 1000;

const OfPerson = t.Object({ id: Id });
const Reason = t.String({ maxLength: REASON_LENGTH_MAX });
const Wanted = t.Object({ offeringId: IdInBody, when: When, payWith: t.Optional(PayWithName) });

export function peopleBillingRoutes(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(holdingRoutes(deps))
    .use(packageRoutes(deps))
    .use(moneyRoutes(deps))
    .use(allotmentRoutes(deps))
    .use(paygRoutes(deps))
    .use(adminRoutes(deps));
}

function holdingRoutes(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/people/:id/billing",
      async ({ person, params }) => toWire(await billingOf(deps, person, await holderInScope(deps, person, params.id))),
      { params: OfPerson },
    )
    .get(
      "/people/:id/billing/entries",
      async ({ person, params, query, request: { signal } }) => {
        const { accountId } = await holderInScope(deps, person, params.id);
        return toWire(await entriesOf(deps, { person, signal }, { ...query, accountId }));
      },
      { params: OfPerson, query: EntriesPage },
    );
}

function packageRoutes(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .post(
      "/people/:id/packages/preview",
      async ({ person, params, body }) => {
        const holder = await holderInScope(deps, person, params.id);
        return toWire(await previewFor(deps, holder, { ...body, ...payingFor(person, holder, body.payWith) }));
      },
      { params: OfPerson, body: Wanted },
    )
    .post(
      "/people/:id/packages",
      async ({ person, params, body: { offeringId, when, payWith }, request }) => {
        const holder = await holderInScope(deps, person, params.id);
        const { accountId } = holder;
        const payer = payingFor(person, holder, payWith);
        const wanted = { accountId, offeringId, when, ...payer, actorId: person.by.accountId };
        const assigned = await once(deps, person, request, () => assignPackage({ ...deps, by: person.by }, wanted));
        return toWire({ package: viewOf(person, assigned) });
      },
      { params: OfPerson, body: Wanted },
    )
    .post(
      "/people/:id/packages/:packageId/end",
      async ({ person, params: { id, packageId } }) => {
        const { accountId } = await holderInScope(deps, person, id);
        const found = await findPackage(deps, packageId);
        if (found?.accountId !== accountId) throw new Refusal("not_found");
        const ended = await endPackage({ ...deps, by: person.by }, { accountId, packageId });
        return toWire({ package: viewOf(person, ended), unitsDropped: ended.unitsDropped ?? 0 });
      },
      { params: t.Object({ id: Id, packageId: Id }) },
    );
}

function moneyRoutes(deps: Deps) {
  return signedIn(deps, "reseller", "admin").post(
    "/people/:id/balance",
    async ({ person, params, body, request }) => {
      const { accountId } = await accountInScope(deps, person, params.id);
      const nanoUsd = BigInt(body.amountNanoUsd);
      await once(deps, person, request, () => moveMoney(deps, person, { ...body, accountId, nanoUsd }));
      return toWire({ balance: (await holdingsOf(deps, accountId)).balance });
    },
    {
      params: OfPerson,
      body: t.Object({
        kind: t.Union([t.Literal("top_up"), t.Literal("correction")]),
        /** A correction may be below zero. */
        amountNanoUsd: t.Union([Amount, t.String({ pattern: "^-[1-9][0-9]{0,15}$", maxLength: 17 })], {
          says: "nano-USD other than 0, as a string of digits",
        }),
        reason: t.Optional(Reason),
      }),
    },
  );
}

type Movement = { kind: "top_up" | "correction"; accountId: number; nanoUsd: bigint; reason?: string };

/** An admin adds or corrects, and says why; a reseller moves money of its own. Throws InputError, insufficient_balance. */
async function moveMoney(deps: Deps, person: Person, { kind, accountId, nanoUsd, reason }: Movement): Promise<void> {
  const by = { ...deps, by: person.by };
  const actorId = person.by.accountId;
  const why = reason?.trim() || null;
  if (person.role === "admin") {
    if (why === null) throw new InputError("Say why: the reason is kept with the entry.", "reason");
    await addBalance(by, { accountId, nanoUsd, kind, reason: why, actorId });
    return;
  }
  if (kind !== "top_up") throw new InputError("Only the operator can correct a balance.", "kind");
  await transferBalance(by, { fromId: person.accountId, toId: accountId, nanoUsd, reason: why, actorId });
}

function allotmentRoutes(deps: Deps) {
  return signedIn(deps, "reseller", "admin").get(
    "/allotments",
    async ({ person, query }) => {
      const own = person.role === "reseller" ? { resellerId: person.accountId } : {};
      const { rows, hasMore } = await listAllotments(deps, { ...query, ...own });
      return toWire({ allotments: rows, hasMore });
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

/** Whether an account's balance pays for requests: for an admin to say, and for a reseller who was granted the right. */
function paygRoutes(deps: Deps) {
  return signedIn(deps, "reseller", "admin").patch(
    "/people/:id/payg",
    async ({ person, params, body: { enabled } }) => {
      const { accountId } = await accountInScope(deps, person, params.id);
      const resellerId = person.role === "admin" ? undefined : person.accountId;
      await setPayg({ ...deps, by: person.by }, accountId, enabled, resellerId);
      return { paygEnabled: enabled };
    },
    { params: OfPerson, body: t.Object({ enabled: t.Boolean() }) },
  );
}

/** What is an admin's alone. */
function adminRoutes(deps: Deps) {
  return signedIn(deps, "admin")
    .patch(
      "/people/:id/payg-right",
      async ({ person, params, body: { granted } }) => {
        const { accountId } = await accountInScope(deps, person, params.id);
        await setPaygRight({ ...deps, by: person.by }, accountId, granted);
        return { maySwitchPayg: granted };
      },
      { params: OfPerson, body: t.Object({ granted: t.Boolean() }) },
    )
    .post(
      "/allotments",
      async ({ person, body, request }) => {
        const reason = body.reason.trim();
        if (reason === "") throw new InputError("Say why: the reason is kept with the grant.", "reason");
        const grant = { ...body, reason, actorId: person.by.accountId };
        const allotment = await once(deps, person, request, () => grantAllotment({ ...deps, by: person.by }, grant));
        return toWire({ allotment });
      },
      { body: t.Object({ resellerId: IdInBody, offeringId: IdInBody, pieces: Type.Integer(), reason: Reason }) },
    )
    .post(
      "/allotments/:id/withdraw",
      async ({ person, params }) => toWire(await withdrawAllotment({ ...deps, by: person.by }, params.id)),
      { params: OfPerson },
    );
}

/** Who may hold packages before one's eyes: those in scope, and a reseller itself. Throws not_found. */
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

type Asked = { offeringId: number; when: "now" | "after"; payerId: number | null; fromAllotment: boolean };

/** What would happen, to the allowance, to who pays, and to what each key can reach. */
async function previewFor(deps: Deps, holder: Account, { offeringId, when, payerId, fromAllotment }: Asked) {
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

/** Models a key gets an answer from. Source: rulings › Which entitlement pays 3. */
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
