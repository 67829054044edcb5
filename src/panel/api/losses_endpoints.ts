import { t } from "elysia";
import type { Deps } from "../../deps.ts";
import { forgetLosses, listLosses } from "../../operations/losses.ts";
import { Id, IdParam, whole } from "./fields.ts";
import { operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/** What nobody paid, and who is refused for it, for admins. Source: LOS-1. */

const PAGE_MAX = 100;

export function lossesEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/losses", operate(deps, listLosses), {
      query: t.Object({ accountId: t.Optional(Id), limit: t.Optional(whole(1, PAGE_MAX)) }),
    })
    .post("/people/:id/losses/forget", operate(deps, forgetLosses, { path: { id: "accountId" } }), { params: IdParam });
}
