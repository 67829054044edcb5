import { Type } from "@sinclair/typebox";
import { t } from "elysia";
import { EVERY_MODEL, type Markups } from "../../accounts/markups.ts";
import { markupsOf } from "../../accounts/markups_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import type { Deps } from "../../deps.ts";
import { MODEL_ID_CHARS_MAX } from "../../limits.ts";
import { setMarkup } from "../../operations/markups.ts";
import { perform } from "../../operations/operation.ts";
import { NO_NUL, orNull } from "./fields.ts";
import { toJson } from "./formats.ts";
import { callBy, signedIn } from "./panel_session.ts";

/** A reseller's markups on balance prices. Source: MRK-1. */

const NewMarkup = t.Object({
  /** null: every model that has no markup of its own. */
  modelId: orNull(
    t.String({ minLength: 1, maxLength: MODEL_ID_CHARS_MAX, pattern: NO_NUL, says: "the id of a model" }),
  ),
  /** null removes it. */
  basisPoints: orNull(Type.Integer()),
});

export function markupEndpoints(deps: Deps) {
  return signedIn(deps, "reseller")
    .get("/markup", async ({ person }) => toJson(shown(deps, await markupsOf(deps.db.orm, person.accountId))))
    .put(
      "/markup",
      async ({ person, body, request }) => {
        await perform(deps, setMarkup, callBy(deps, { person, request }), body);
        return toJson(shown(deps, await markupsOf(deps.db.orm, person.accountId)));
      },
      { body: NewMarkup },
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
