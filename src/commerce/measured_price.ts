/** The price of a made-to-measure package. Pure; the panel in the browser computes with it too. Source: MTM-2. */

/** A price for 1,000 requests in billionths of a currency, of packages with at least so many requests. */
export type Step = { fromRequests: number; nano: bigint };

export type MeasuredPrice = {
  /** In the whole package. */
  requests: number;
  /** For 1,000 requests: of the last step that begins at or below them. It counts for all of them. */
  perThousandNano: bigint;
  priceNano: bigint;
};

const THOUSAND = 1_000n;

/**
 * What `days` of `dailyLimit` requests cost. Rounded up to a multiple of `unitNano`: a cent of what people pay. Steps are in the order of their
 * requests, and the first begins at 0.
 */
export function measuredPrice(
  steps: readonly Step[],
  { days, dailyLimit }: { days: number; dailyLimit: number },
  unitNano: bigint,
): MeasuredPrice {
  const requests = days * dailyLimit;
  const step = steps.findLast(({ fromRequests }) => fromRequests <= requests);
  if (step === undefined) throw new RangeError("no step begins at 0");
  const perUnit = THOUSAND * unitNano;
  const units = (BigInt(requests) * step.nano + perUnit - 1n) / perUnit;
  return { requests, perThousandNano: step.nano, priceNano: units * unitNano };
}
