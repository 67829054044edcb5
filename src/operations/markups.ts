import { Type } from "@sinclair/typebox";
import { EVERY_MODEL } from "../accounts/markups.ts";
import { markupsOf, setMarkup as set } from "../accounts/markups_store.ts";
import { MODEL_ID_CHARS_MAX } from "../limits.ts";
import { resellerInScope } from "./fence.ts";
import { NO_NUL, orNull, RowId } from "./fields.ts";
import { changing, operation } from "./operation.ts";

/** What a reseller adds to the operator's balance prices. An admin names the reseller. Source: MRK-1. */

const SELLERS = ["reseller", "admin"] as const;
const OfReseller = { resellerId: Type.Optional(RowId) };
const MarkupsShape = Type.Object(
  {
    resellerId: RowId,
    basisPoints: Type.Integer({ description: "Of every model without a markup of its own." }),
    models: Type.Array(Type.Object({ modelId: Type.String(), basisPoints: Type.Integer() })),
  },
  { title: "Markups" },
);

export const getMarkups = operation({
  name: "markups.get",
  says: "Returns the markups of a reseller, in basis points.",
  scope: "markups:read",
  roles: SELLERS,
  route: "GET /markups",
  input: OfReseller,
  output: MarkupsShape,
  async run(deps, { caller }, wanted) {
    const resellerId = await resellerInScope(deps, caller, wanted.resellerId);
    return shown(resellerId, await markupsOf(deps.db.orm, resellerId));
  },
});

export const setMarkup = operation({
  name: "markups.set",
  says: "Sets a markup of a reseller: of one model, or of every model without one of its own.",
  scope: "markups:write",
  roles: SELLERS,
  route: "PUT /markups",
  input: {
    ...OfReseller,
    modelId: orNull(
      Type.String({ minLength: 1, maxLength: MODEL_ID_CHARS_MAX, pattern: NO_NUL, says: "the id of a model" }),
    ),
    basisPoints: orNull(Type.Integer({ description: "1 % is 100. null removes it." })),
  },
  output: MarkupsShape,
  async run(deps, call, { modelId, basisPoints, ...wanted }) {
    const resellerId = await resellerInScope(deps, call.caller, wanted.resellerId);
    return shown(resellerId, await set(changing(deps, call), { resellerId, modelId, basisPoints }));
  },
});

function shown(resellerId: number, markups: ReadonlyMap<string, number>) {
  const models = [...markups].filter(([modelId]) => modelId !== EVERY_MODEL);
  return {
    resellerId,
    basisPoints: markups.get(EVERY_MODEL) ?? 0,
    models: models.map(([modelId, basisPoints]) => ({ modelId, basisPoints })),
  };
}
