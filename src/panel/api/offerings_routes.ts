import { Type } from "@sinclair/typebox";
import { t } from "elysia";
import { addOffering, listOfferings, setOfferingEnabled } from "../../accounts/offerings_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { activePackages } from "./admin_store.ts";
import { Id, once, signedIn, toWire } from "./panel_session.ts";

/** What can be sold, for admins. An offering never changes, only its being for sale. */

const NAME_LENGTH_MAX = 200;
const ZONE_LENGTH_MAX = 100;
const MODELS_MAX = 200;
const MODEL_LENGTH_MAX = 128;

const NewOffering = t.Object({
  name: t.String({ maxLength: NAME_LENGTH_MAX }),
  kind: t.Union([t.Literal("daily"), t.Literal("custom")]),
  days: t.Optional(Type.Integer()),
  dailyLimit: Type.Integer(),
  totalLimit: t.Optional(Type.Integer()),
  carryover: t.Optional(t.Boolean()),
  tokenLimit: t.Optional(t.Union([Type.Integer(), t.Null()])),
  modelIds: t.Optional(
    t.Union([t.Array(t.String({ maxLength: MODEL_LENGTH_MAX }), { maxItems: MODELS_MAX }), t.Null()]),
  ),
  timeZone: t.Optional(t.String({ maxLength: ZONE_LENGTH_MAX })),
  wholesaleNanoUsd: t.String({ pattern: "^\\d{1,16}$", says: "nano-USD, as a string of digits" }),
});

export function offeringsRoutes(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/offerings", async () => {
      const offerings = await listOfferings(deps);
      const active = await activePackages(deps.db.sql);
      return toWire({
        offerings: offerings.map((offering) => ({ ...offering, activePackages: active.get(offering.offeringId) ?? 0 })),
        /** What a new one gets if it names no zone. */
        timeZone: deps.config.billingTimeZone,
      });
    })
    .post(
      "/admin/offerings",
      async ({ person, body: { wholesaleNanoUsd, timeZone = deps.config.billingTimeZone, ...wanted }, request }) => {
        const offering = { ...wanted, timeZone, wholesaleNanoUsd: BigInt(wholesaleNanoUsd) };
        const by = { ...deps, by: person.by };
        return toWire(await once(deps, person, request, () => addOffering(by, offering)));
      },
      { body: NewOffering },
    )
    .patch(
      "/admin/offerings/:id",
      async ({ person, params, body: { enabled } }) => {
        const known = await setOfferingEnabled({ ...deps, by: person.by }, { offeringId: params.id, enabled });
        if (!known) throw new Refusal("not_found");
        return { offeringId: params.id, enabled };
      },
      {
        params: t.Object({ id: Id }),
        body: t.Object({ enabled: t.Boolean() }),
      },
    );
}
