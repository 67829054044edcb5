import { EVERY_MODEL, type Markups } from "../../accounts/markups.ts";
import { markupsOf } from "../../accounts/markups_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import type { Deps } from "../../deps.ts";
import { setMarkup } from "../../operations/markups.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/** A reseller's markups on balance prices. Source: MRK-1. */

export function markupEndpoints(deps: Deps) {
  return signedIn(deps, "reseller")
    .get("/markup", async ({ person }) => toJson(shown(deps, await markupsOf(deps.db.orm, person.accountId))))
    .put(
      "/markup",
      async (asked) => {
        await operate(deps, setMarkup)(asked);
        return toJson(shown(deps, await markupsOf(deps.db.orm, asked.person.accountId)));
      },
      { body: bodyOf(setMarkup, "resellerId") },
    );
}

/** The markups, and every model with a balance price. */
function shown({ catalog }: Deps, markups: Markups) {
  return {
    basisPoints: markups.get(EVERY_MODEL) ?? 0,
    models: catalog.models().flatMap((model) => {
      const prices = pricesOf(model);
      return prices.length === 0
        ? []
        : [{ modelId: model.id, name: model.name, own: markups.get(model.id) ?? null, prices }];
    }),
  };
}

/** What the operator charges: in micro-USD, per million tokens, or per image of a size or a size and quality. */
function pricesOf({ prices, imagePrices }: Model): { part: string; microUsd: number }[] {
  const rates = prices?.tiers[0].rates;
  return [
    ...(rates ? [{ part: "input", microUsd: rates.input }] : []),
    ...(rates && rates.output > 0 ? [{ part: "output", microUsd: rates.output }] : []),
    ...[...imagePrices].map(([part, microUsd]) => ({ part, microUsd })),
  ];
}
