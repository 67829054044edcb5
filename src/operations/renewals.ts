import { Type } from "@sinclair/typebox";
import {
  cancelRenewal as cancel,
  listRenewals as list,
  type RenewingPackage,
  setRenewal as set,
} from "../commerce/renewals_store.ts";
import { holderInScope } from "./fence.ts";
import { Amount, At, CurrencyCode, orNull, RowId } from "./fields.ts";
import { changing, type OperationDeps, operation } from "./operation.ts";

/** Packages that renew automatically: a customer's own. Its seller sees them, and can cancel them. Source: REN-1, REN-6. */

const EVERYONE = ["customer", "reseller", "admin"] as const;
const Source = Type.Union([Type.Literal("card"), Type.Literal("balance")]);

const RenewalShape = Type.Object(
  {
    packageId: RowId,
    name: Type.String(),
    endsAt: At,
    timeZone: Type.String(),
    renewsAt: Type.String({ format: "date-time", description: "When it is, or would be, renewed." }),
    price: orNull(
      Type.Object(
        { currency: CurrencyCode, totalNano: Amount, taxNano: Amount, priceNanoUsd: Amount },
        { description: "Of today. A card pays totalNano of the currency, with the tax; a balance pays priceNanoUsd." },
      ),
    ),
    renewal: orNull(
      Type.Object({
        source: Source,
        status: Type.Union([
          Type.Literal("on"),
          Type.Literal("ordered"),
          Type.Literal("failed"),
          Type.Literal("cancelled"),
        ]),
        problem: orNull(Type.String({ description: "Why the last try failed, as card_refused." })),
        orderId: orNull(RowId),
      }),
    ),
  },
  { title: "Renewal" },
);
const Renewals = Type.Object({ renewals: Type.Array(RenewalShape) });

export const listRenewals = operation({
  name: "renewals.list",
  says: "Lists the packages of an account that have not ended, with today's price, and whether they renew. Your own, or those of an account that you manage.",
  scope: "packages:read",
  roles: EVERYONE,
  route: "GET /renewals",
  input: { accountId: Type.Optional(RowId) },
  output: Renewals,
  async run(deps, { caller }, { accountId = caller.accountId }) {
    return await shown(deps, (await holderInScope(deps, caller, accountId)).accountId);
  },
});

export const setRenewal = operation({
  name: "renewals.set",
  says: "Renews a package of your own automatically before it ends, from your card or your balance.",
  scope: "packages:write",
  roles: ["customer"],
  route: "PUT /packages/{packageId}/renewal",
  input: { packageId: RowId, source: Source },
  output: Renewals,
  async run(deps, call, wanted) {
    const { accountId } = call.caller;
    await set(changing(deps, call), { ...wanted, accountId });
    return await shown(deps, accountId);
  },
});

export const cancelRenewal = operation({
  name: "renewals.cancel",
  says: "Cancels the renewal of a package: your own, or that of an account that you manage. The package ends as any other.",
  scope: "packages:write",
  roles: EVERYONE,
  route: "POST /renewals/cancel",
  input: { accountId: Type.Optional(RowId), packageId: RowId },
  output: Renewals,
  async run(deps, call, { accountId = call.caller.accountId, packageId }) {
    const holder = await holderInScope(deps, call.caller, accountId);
    await cancel(changing(deps, call), { accountId: holder.accountId, packageId });
    return await shown(deps, holder.accountId);
  },
});

async function shown(deps: OperationDeps, accountId: number): Promise<{ renewals: RenewingPackage[] }> {
  return { renewals: await list(deps, accountId) };
}
