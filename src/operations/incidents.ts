import { Type } from "@sinclair/typebox";
import {
  changeIncident,
  createIncident as create,
  findIncident,
  type Incident,
  listIncidents as list,
  removeIncident as remove,
} from "../commerce/incidents_store.ts";
import { INCIDENT_BODY_CHARS_MAX, INCIDENT_COMPONENTS_MAX, MODEL_ID_CHARS_MAX } from "../limits.ts";
import { Seller, sellerInScope } from "./fence.ts";
import { At, Instant, orNull, RowId, text } from "./fields.ts";
import { changing, listOperation, operation } from "./operation.ts";

/** Incidents and planned maintenance of a seller's status page. Those of the operator are on the page of every brand. Source: STA-4. */

const SELLERS = ["reseller", "admin"] as const;
const TITLE_LENGTH_MAX = 500;
const COMPONENT_LENGTH_MAX = MODEL_ID_CHARS_MAX + 20;

const OfIncident = { ...Seller, incidentId: RowId };
const STATUSES = [
  Type.Literal("investigating"),
  Type.Literal("identified"),
  Type.Literal("monitoring"),
  Type.Literal("resolved"),
] as const;
const Kind = Type.Union([Type.Literal("incident"), Type.Literal("maintenance")]);
const Status = Type.Union([...STATUSES]);
const Impact = Type.Union([Type.Literal("degraded"), Type.Literal("outage")]);
const Components = Type.Array(text(COMPONENT_LENGTH_MAX), {
  maxItems: 2 * INCIDENT_COMPONENTS_MAX,
  description: "What it affects: api, panel, models (all of them), or model: and a model's id.",
});
const Title = text(TITLE_LENGTH_MAX);
/** Twice the limit, so that the message about it is shown. */
const Body = text(2 * INCIDENT_BODY_CHARS_MAX, "Plain text for customers: an update.");

const IncidentShape = Type.Object(
  {
    incidentId: RowId,
    sellerId: Type.Integer({ minimum: 0 }),
    kind: Kind,
    title: Type.String(),
    impact: orNull(Impact),
    status: Type.Union([
      ...STATUSES,
      Type.Literal("scheduled"),
      Type.Literal("in_progress"),
      Type.Literal("completed"),
    ]),
    components: Type.Array(Type.String()),
    beginsAt: At,
    endsAt: orNull(At),
    version: Type.Integer({ description: "Counts changes. A change names the version that it was made from." }),
    createdAt: At,
    updates: Type.Array(
      Type.Object(
        { updateId: RowId, status: orNull(Status), body: Type.String(), at: At },
        { title: "IncidentUpdate" },
      ),
      { description: "Newest first. A list has the latest 10 of each incident." },
    ),
  },
  { title: "Incident" },
);

export const listIncidents = listOperation({
  name: "incidents.list",
  says: "Lists the incidents and the planned maintenance of a seller's status page, newest first.",
  scope: "incidents:read",
  roles: SELLERS,
  route: "GET /incidents",
  filter: Seller,
  before: Type.Optional(RowId),
  item: IncidentShape,
  cursor: ({ incidentId }: Incident) => incidentId,
  list: async (deps, { caller }, { sellerId, ...page }) =>
    list(deps, { ...page, sellerId: await sellerInScope(deps, caller, sellerId) }),
});

export const getIncident = operation({
  name: "incidents.get",
  says: "Returns an incident or planned maintenance, with its updates.",
  scope: "incidents:read",
  roles: SELLERS,
  route: "GET /incidents/{incidentId}",
  input: OfIncident,
  output: IncidentShape,
  run: async (deps, { caller }, { sellerId, incidentId }) =>
    findIncident(deps, { sellerId: await sellerInScope(deps, caller, sellerId), incidentId }),
});

export const createIncident = operation({
  name: "incidents.create",
  says: "Publishes an incident, or planned maintenance with its begin and end. The operator's are shown on the status page of every brand.",
  scope: "incidents:write",
  roles: SELLERS,
  route: "POST /incidents",
  input: {
    ...Seller,
    kind: Kind,
    title: Title,
    body: Body,
    components: Components,
    impact: Type.Optional(orNull(Impact)),
    status: Type.Optional(orNull(Status)),
    beginsAt: Type.Optional(orNull(Instant)),
    endsAt: Type.Optional(orNull(Instant)),
  },
  output: IncidentShape,
  run: async (deps, call, { sellerId, ...wanted }) =>
    create(changing(deps, call), { ...wanted, sellerId: await sellerInScope(deps, call.caller, sellerId) }),
});

export const updateIncident = operation({
  name: "incidents.update",
  says: "Changes an incident or maintenance, and adds an update if there is a text. What is left out stays.",
  scope: "incidents:write",
  roles: SELLERS,
  route: "PATCH /incidents/{incidentId}",
  input: {
    ...OfIncident,
    version: Type.Integer({ description: "The version that you have seen. If it has changed since, nothing is done." }),
    title: Type.Optional(Title),
    body: Type.Optional(orNull(Body)),
    components: Type.Optional(Components),
    impact: Type.Optional(orNull(Impact)),
    status: Type.Optional(orNull(Status)),
    beginsAt: Type.Optional(orNull(Instant)),
    endsAt: Type.Optional(orNull(Instant)),
  },
  output: IncidentShape,
  run: async (deps, call, { sellerId, ...change }) =>
    changeIncident(changing(deps, call), { ...change, sellerId: await sellerInScope(deps, call.caller, sellerId) }),
});

export const removeIncident = operation({
  name: "incidents.remove",
  says: "Removes an incident or maintenance from the status page, with its updates.",
  scope: "incidents:write",
  roles: SELLERS,
  route: "DELETE /incidents/{incidentId}",
  input: OfIncident,
  output: Type.Object({ removed: Type.Boolean() }),
  async run(deps, call, { sellerId, incidentId }) {
    await remove(changing(deps, call), { sellerId: await sellerInScope(deps, call.caller, sellerId), incidentId });
    return { removed: true };
  },
});
