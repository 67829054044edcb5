/**
 * Which route answered a request, how soon, and what that costs the operator: its receipt keeps it, for admins. Source: MON-20.
 */

/** Column names of a receipt that keep it; each is null if no route answered. */
export type AnsweredBy = {
  readonly routeId: number;
  /** From the request's arrival to the first event of a stream, or to the whole answer, in ms. */
  readonly firstMs: number;
  /** What the provider charges the operator for it; null: not known, or nothing was counted. */
  providerCostNanoUsd: bigint | null;
};

/** Where it is noted: the request's hold. */
export type AnswerHolder = { answeredBy?: AnsweredBy };

/** The largest `firstMs`: a column of 32 bits. */
const MS_MAX = 2_147_483_647;

/** A route has answered, or begun to. */
export function noteAnswer(hold: AnswerHolder, { routeId, firstMs }: { routeId: number; firstMs: number }): void {
  hold.answeredBy = { routeId, firstMs: Math.min(Math.max(Math.round(firstMs), 0), MS_MAX), providerCostNanoUsd: null };
}

/** What the answer costs the operator, once it is counted. */
export function noteProviderCost({ answeredBy }: AnswerHolder, nanoUsd: bigint | null): void {
  if (answeredBy !== undefined) answeredBy.providerCostNanoUsd = nanoUsd;
}
