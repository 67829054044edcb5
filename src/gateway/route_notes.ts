import type { KeyedRoute, Route } from "../catalog/catalog.ts";
import type { AnswerKind } from "../catalog/route_sums.ts";
import { noteProviderCost } from "../ledger/answered_by.ts";
import type { Usage } from "../ledger/ledger.ts";
import { chatCharge, imageCharge } from "../ledger/price.ts";
import { noteTried } from "../ledger/tried_routes.ts";
import type { PromptParts } from "./prompt.ts";
import type { ReservedRequest } from "./reserve.ts";
import { reportedCostOf } from "./usage_costs.ts";

/** What is noted of a route's answer and work. What is noted of its calls: `dispatch.ts`. Source: PRV-22, PRV-24, MON-8, MON-20, LOS-1. */

/** An answer, its route, and what was reserved for it. */
type Used = ReservedRequest & { prompt: PromptParts; choices: number };

/** Notes what an answer used: for its route, and for the bounds of its model. Our own estimate says nothing about how a provider counts. */
export function noteUsed(
  request: Used,
  { route, kind, usage }: { route: Route; kind: AnswerKind; usage: Usage },
): void {
  const { deps, model, prompt, choices, hold } = request;
  if (!usage.estimated) {
    deps.routeStats.used(route.id, kind, usage);
    const costNanoUsd = reportedCostOf(usage.rawUsage);
    if (costNanoUsd !== undefined && model.prices !== null)
      deps.routeStats.cost(route.id, kind, { costNanoUsd, pricedNanoUsd: Number(chatCharge(model.prices, usage)) });
    const capTokens = hold.capTokens === null ? null : hold.capTokens * choices;
    deps.boundUses.note(model, { prompt, capTokens, used: usage });
  }
  noteProviderCost(hold, textCost(request, route, usage));
  noteOverrun(request, route, usage);
}

/**
 * What the provider charges for an answer: its counts at the costs of its route, or else at the operator's prices; null: there are none.
 * Source: MON-20.
 */
function textCost({ model, hold }: Used, { costPrices }: Route, usage: Usage): bigint | null {
  if (costPrices !== null) return chatCharge(costPrices, usage);
  if (model.prices === null) return null;
  // A balance has been charged that already, or more by a markup.
  return hold.mode === "payg" ? (usage.costNanoUsd ?? usage.chargeNanoUsd) : chatCharge(model.prices, usage);
}

/** The same of an image. `microUsd`: the operator's price; undefined: there is none. */
export function noteImageCost(
  { hold }: ReservedRequest,
  { costImageMicroUsd }: Route,
  microUsd: number | undefined,
): void {
  const cost = costImageMicroUsd ?? microUsd;
  noteProviderCost(hold, cost === undefined ? null : imageCharge(cost));
}

/**
 * Counts and logs an answer that cost more than was reserved, or used more tokens of an allowance. The bounds of its model are too low, or the provider ignores the output
 * cap. Later reservations do not change: an operator decides. Source: MON-8.
 */
function noteOverrun({ deps, model, hold, caller }: ReservedRequest, route: Route, usage: Usage): void {
  const { heldNanoUsd } = hold;
  const { chargeNanoUsd, promptTokens, completionTokens, estimated } = usage;
  const isOver =
    hold.mode === "payg"
      ? chargeNanoUsd > heldNanoUsd
      : hold.heldTokens !== null && promptTokens + completionTokens > hold.heldTokens;
  if (!isOver) return;
  deps.metrics.overran();
  const { requestId, key } = caller;
  const { id: routeId, providerName: provider } = route;
  const facts = { requestId, accountId: key.accountId, model: model.id, provider, routeId };
  const used = { promptTokens, completionTokens, capTokens: hold.capTokens, estimated };
  deps.log.warn(
    { ...facts, ...used, heldNanoUsd: String(heldNanoUsd), chargeNanoUsd: String(chargeNanoUsd) },
    "an answer cost more than was reserved for it",
  );
}

/** The provider broke off a stream that had begun: an error of its route, and named on the receipt. */
export function noteBreak({ deps, caller, hold }: ReservedRequest, route: KeyedRoute): void {
  const { id, providerName: provider, upstreamModel, key } = route;
  const ms = deps.clock.nowMs() - caller.record.answeredMs;
  deps.routeStats.brokeOff(id);
  noteTried(hold, { routeId: id, provider, upstreamModel, key: key.name, ms, status: null, why: "broke_off" });
}

/** The provider has worked on the request since `sinceMs`, and nobody pays for it. Source: END-18, LOS-1. */
export function noteUnpaid({ deps, caller, model }: ReservedRequest, route: KeyedRoute, sinceMs: number): void {
  const ms = Math.ceil(deps.clock.nowMs() - sinceMs);
  deps.losses.note(caller.key, "provider_time", BigInt(ms));
  const { requestId, key } = caller;
  const { id: routeId, providerName: provider } = route;
  deps.log.warn(
    { requestId, accountId: key.accountId, model: model.id, provider, routeId, ms },
    "nobody pays for the time in which a provider worked",
  );
}
