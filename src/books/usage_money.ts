/**
 * Usage revenue, cost and margin, defined once: for single requests, and for sums of them. Pure. Source: MON-21, MON-22,
 * MON-23.
 */

/** What requests brought, in nano-USD; of one request or summed. */
export type UsageAmounts = {
  /** Charged to balances, and of that what is above the operator's prices: the reseller's. */
  chargedNanoUsd: bigint;
  earnedNanoUsd: bigint;
  /** What the units of packages are worth to the account's seller, and of that the operator's share. */
  unitsNanoUsd: bigint;
  unitsCostNanoUsd: bigint;
};

export type UsageMoney = {
  usageRevenueNanoUsd: bigint;
  /** The operator's: the provider cost as far as it is known. A reseller's: what the operator earns by the requests. */
  costNanoUsd: bigint;
  /** usage revenue − cost */
  marginNanoUsd: bigint;
};

/** The operator's figures: of a reseller's customer it earns its own prices. */
export function operatorMoney(amounts: UsageAmounts, providerCostNanoUsd: bigint): UsageMoney {
  const usageRevenueNanoUsd = operatorRevenue(amounts);
  const costNanoUsd = providerCostNanoUsd;
  return { usageRevenueNanoUsd, costNanoUsd, marginNanoUsd: usageRevenueNanoUsd - costNanoUsd };
}

/** A reseller's figures: its prices, and as its cost what the operator earns. */
export function resellerMoney(amounts: UsageAmounts): UsageMoney {
  const usageRevenueNanoUsd = amounts.chargedNanoUsd + amounts.unitsNanoUsd;
  const costNanoUsd = operatorRevenue(amounts);
  return { usageRevenueNanoUsd, costNanoUsd, marginNanoUsd: usageRevenueNanoUsd - costNanoUsd };
}

function operatorRevenue({ chargedNanoUsd, earnedNanoUsd, unitsCostNanoUsd }: UsageAmounts): bigint {
  return chargedNanoUsd - earnedNanoUsd + unitsCostNanoUsd;
}
