import { t } from "elysia";
import type { Deps } from "../../deps.ts";
import {
  createIncident,
  getIncident,
  listIncidents,
  removeIncident,
  updateIncident,
} from "../../operations/incidents.ts";
import { PAGE_MAX } from "../../operations/operation.ts";
import { Id, IdParam, whole } from "./fields.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/** The incidents and the maintenance that a seller describes for its status page. Source: STA-4. */

const OF_INCIDENT = { path: { id: "incidentId" } } as const;
const params = IdParam;

export function incidentsEndpoints(deps: Deps) {
  return signedIn(deps, ...listIncidents.roles)
    .get("/incidents", operate(deps, listIncidents), {
      query: t.Object({ before: t.Optional(Id), limit: t.Optional(whole(1, PAGE_MAX)) }),
    })
    .post("/incidents", operate(deps, createIncident), { body: bodyOf(createIncident, "sellerId") })
    .get("/incidents/:id", operate(deps, getIncident, OF_INCIDENT), { params })
    .patch("/incidents/:id", operate(deps, updateIncident, OF_INCIDENT), {
      params,
      body: bodyOf(updateIncident, "incidentId", "sellerId"),
    })
    .delete("/incidents/:id", operate(deps, removeIncident, OF_INCIDENT), { params });
}
