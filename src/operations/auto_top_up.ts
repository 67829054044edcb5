import { Type } from "@sinclair/typebox";
import { findAutoTopUp, removeAutoTopUp as remove, setAutoTopUp as set } from "../commerce/auto_top_up_store.ts";
import { Amount, orNull, PositiveNanoUsd } from "./fields.ts";
import { type Caller, changing, type OperationDeps, operation } from "./operation.ts";

/** Automatic top-ups of a buyer's own balance, from its card on file. Source: ATU-1. */

const BUYERS = ["customer", "reseller"] as const;

const AutoTopUpShape = Type.Object(
  {
    autoTopUp: orNull(
      Type.Object({
        belowNanoUsd: Amount,
        amountNanoUsd: Amount,
        monthMaxNanoUsd: Amount,
        status: Type.Union([Type.Literal("on"), Type.Literal("paused")]),
        problem: orNull(Type.String({ description: "Why it is paused, as card_refused." })),
        orderId: orNull(Type.Integer({ minimum: 1, description: "The order of the one that is under way." })),
        monthNanoUsd: Amount,
      }),
    ),
  },
  { title: "AutoTopUp" },
);

export const getAutoTopUp = operation({
  name: "auto_top_up.get",
  says: "Returns when your balance is topped up automatically, and what was charged for it this month.",
  scope: "balances:read",
  roles: BUYERS,
  route: "GET /auto_top_up",
  input: {},
  output: AutoTopUpShape,
  run: async (deps, { caller }) => shown(deps, caller),
});

export const setAutoTopUp = operation({
  name: "auto_top_up.set",
  says: "Tops your balance up from your card on file whenever it falls below an amount. Switches it on again if it was paused.",
  scope: "balances:write",
  roles: BUYERS,
  route: "PUT /auto_top_up",
  input: { belowNanoUsd: PositiveNanoUsd, amountNanoUsd: PositiveNanoUsd, monthMaxNanoUsd: PositiveNanoUsd },
  output: AutoTopUpShape,
  async run(deps, call, amounts) {
    await set(changing(deps, call), { ...amounts, accountId: call.caller.accountId });
    return await shown(deps, call.caller);
  },
});

export const removeAutoTopUp = operation({
  name: "auto_top_up.remove",
  says: "Switches automatic top-ups off.",
  scope: "balances:write",
  roles: BUYERS,
  route: "DELETE /auto_top_up",
  input: {},
  output: Type.Object({ removed: Type.Boolean() }),
  run: async (deps, call) => ({ removed: await remove(changing(deps, call), call.caller.accountId) }),
});

async function shown(deps: OperationDeps, { accountId }: Caller) {
  return { autoTopUp: await findAutoTopUp(deps, { accountId, timeZone: deps.config.billingTimeZone }) };
}
