import type { Deps } from "../deps.ts";
import { type Entitlement, entitlementOf, type PackageState } from "../ledger/entitlement_store.ts";
import { toUsd } from "../ledger/price.ts";
import type { Caller } from "./door.ts";
import type { Balance, PackageEntitlement } from "./response_shapes.ts";

/** GET /balance, shaped by the key's mode. Source: contract › Balance, rulings › Counting. */
export async function getBalance(deps: Deps, { key, requestId }: Caller): Promise<Response> {
  const entitlement = await entitlementOf(deps.db.sql, key.accountId);
  const body = key.mode === "package" ? packageBalance(entitlement) : paygBalance(entitlement);
  return Response.json(body, { headers: { "x-request-id": requestId } });
}

function packageBalance(entitlement: Entitlement): Balance {
  const state = entitlement.package;
  return {
    object: "balance",
    mode: "package",
    quota: state?.tokenLimit ?? null,
    used_tokens: state?.tokensUsed ?? 0,
    remaining_tokens: state?.tokensRemaining ?? null,
    package: state && packageToWire(state),
    payg: paygToWire(entitlement),
  };
}

function paygBalance(entitlement: Entitlement): Balance {
  return {
    object: "balance",
    mode: "payg",
    quota: null,
    used_tokens: entitlement.balanceTokensUsed,
    remaining_tokens: null,
    package: null,
    payg: paygToWire(entitlement),
  };
}

function packageToWire(state: PackageState): PackageEntitlement {
  return {
    id: state.id,
    name: state.name,
    starts_at: state.startsAt,
    ends_at: state.endsAt,
    daily_limit: state.dailyLimit,
    daily_remaining: state.dailyRemaining,
    total_limit: state.totalLimit,
    total_remaining: state.totalRemaining,
    carryover: state.carryover,
  };
}

/** The one place where nano-USD become a double: on their way out. `held_usd` is part of `balance_usd`. */
function paygToWire({ paygEnabled, balanceNanoUsd, heldNanoUsd }: Entitlement) {
  return {
    enabled: paygEnabled,
    balance_usd: toUsd(balanceNanoUsd),
    held_usd: toUsd(heldNanoUsd),
  };
}
