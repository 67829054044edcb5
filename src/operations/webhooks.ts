import { Type } from "@sinclair/typebox";
import { InputError, Refusal } from "../errors.ts";
import { WEBHOOK_OVERLAP_HOURS, WEBHOOK_URL_CHARS_MAX } from "../limits.ts";
import {
  type Delivery,
  listAttempts,
  listDeliveries as readDeliveries,
  sendAgain,
} from "../messages/deliveries_store.ts";
import {
  addEndpoint,
  changeEndpoint,
  type Endpoint,
  endpointToCall,
  findEndpoint,
  listEndpoints,
  removeEndpoint,
  rotateSecret,
  UNREADABLE_SECRET,
} from "../messages/endpoints_store.ts";
import { kindsFor, WEBHOOK_KINDS } from "../messages/kinds.ts";
import { callWebhook, checkWebhookUrl } from "../messages/webhook_call.ts";
import { newRequestId } from "../platform/crypto.ts";
import { At, orNull, RowId, text } from "./fields.ts";
import { type Call, changing, listOperation, type OperationDeps, operation } from "./operation.ts";

/** Webhooks, everyone's own: endpoints, their secrets, and their deliveries. Source: MSG-9. */

const EVERYONE = ["customer", "reseller", "admin"] as const;
const KIND_CHARS_MAX = 100;
const KINDS_MAX = 100;
/** Of the receiver's answer to a test. */
const ANSWER_CHARS_MAX = 300;

const OfEndpoint = { endpointId: RowId };
const OfDelivery = { ...OfEndpoint, deliveryId: RowId };
const Kinds = Type.Array(text(KIND_CHARS_MAX), { maxItems: KINDS_MAX, description: "What it is called for." });
const SECRET = { secret: Type.String({ description: "It signs the calls. It is shown only in this answer." }) };
const EndpointShape = Type.Object(
  {
    endpointId: RowId,
    url: Type.String(),
    kinds: Type.Array(Type.String()),
    enabled: Type.Boolean(),
    pausedWhy: orNull(Type.String({ description: "Why it was switched off." })),
    failingSince: orNull(At),
    oldSecretUntil: orNull(Type.String({ format: "date-time", description: "Until then the old secret signs too." })),
    createdAt: At,
  },
  { title: "Webhook" },
);

export const listWebhooks = operation({
  name: "webhooks.list",
  says: "Lists your webhooks, and the kinds of messages that they can be called for.",
  scope: "webhooks:read",
  roles: EVERYONE,
  route: "GET /webhooks",
  input: {},
  output: Type.Object({ endpoints: Type.Array(EndpointShape), kinds: Type.Array(Type.String()) }),
  run: async (deps, { caller: { accountId, role } }) => ({
    endpoints: await listEndpoints(deps, accountId),
    kinds: kindsFor(role, WEBHOOK_KINDS),
  }),
});

export const addWebhook = operation({
  name: "webhooks.create",
  says: "Adds a webhook.",
  scope: "webhooks:write",
  roles: EVERYONE,
  route: "POST /webhooks",
  input: { url: text(WEBHOOK_URL_CHARS_MAX), kinds: Kinds },
  output: Type.Object({ endpoint: EndpointShape, ...SECRET }, { title: "NewWebhook" }),
  async run(deps, call, { url, kinds }) {
    const { caller } = call;
    const allowPrivate = deps.config.messagesAllowPrivate;
    const checked = await call.callOut("receiver", () => checkWebhookUrl(url, { allowPrivate, owner: caller }));
    return addEndpoint(changing(deps, call), { accountId: caller.accountId, url: checked, kinds });
  },
});

export const updateWebhook = operation({
  name: "webhooks.update",
  says: "Changes what a webhook is called for, or switches it on or off. What is left out stays.",
  scope: "webhooks:write",
  roles: EVERYONE,
  route: "PATCH /webhooks/{endpointId}",
  input: { ...OfEndpoint, kinds: Type.Optional(Kinds), enabled: Type.Optional(Type.Boolean()) },
  output: Type.Object({ endpoint: EndpointShape }),
  async run(deps, call, { endpointId, ...change }) {
    const ref = refOf(call, endpointId);
    await changeEndpoint(changing(deps, call), ref, change);
    return { endpoint: await findEndpoint(deps, ref) };
  },
});

export const removeWebhook = operation({
  name: "webhooks.remove",
  says: "Removes a webhook, with the list of its deliveries.",
  scope: "webhooks:write",
  roles: EVERYONE,
  route: "DELETE /webhooks/{endpointId}",
  input: OfEndpoint,
  output: Type.Object({ removed: Type.Boolean() }),
  async run(deps, call, { endpointId }) {
    await removeEndpoint(changing(deps, call), refOf(call, endpointId));
    return { removed: true };
  },
});

export const rotateWebhookSecret = operation({
  name: "webhooks.rotate",
  says: "Makes a new secret for a webhook. The old one signs too for a while.",
  scope: "webhooks:write",
  roles: EVERYONE,
  route: "POST /webhooks/{endpointId}/rotate",
  input: {
    ...OfEndpoint,
    overlapHours: Type.Integer({
      description: `How long the old secret signs too: ${WEBHOOK_OVERLAP_HOURS.min} to ${WEBHOOK_OVERLAP_HOURS.max}.`,
    }),
  },
  output: Type.Object(SECRET, { title: "RotatedWebhookSecret" }),
  run: (deps, call, { endpointId, overlapHours }) =>
    rotateSecret(changing(deps, call), refOf(call, endpointId), overlapHours),
});

export const testWebhook = operation({
  name: "webhooks.test",
  says: "Calls a webhook once, and returns what it answers.",
  scope: "webhooks:write",
  roles: EVERYONE,
  route: "POST /webhooks/{endpointId}/test",
  input: OfEndpoint,
  output: Type.Object({ ok: Type.Boolean(), status: orNull(Type.Integer()), answer: Type.String() }),
  async run(deps, call, { endpointId }) {
    const { url } = await endpointOf(deps, call, endpointId);
    const endpoint = await endpointToCall({ db: deps.db, secretKey: deps.config.secretKey }, endpointId);
    if (endpoint === undefined) throw new Refusal("not_found");
    if (endpoint.secrets.length === 0) throw new InputError(UNREADABLE_SECRET);
    const timestamp = new Date(endpoint.unixMs).toISOString();
    const { ok, status, answer } = await call.callOut("receiver", () =>
      callWebhook({
        ...endpoint,
        messageId: `msg_test_${newRequestId()}`,
        body: JSON.stringify({ type: "test", timestamp, data: { url } }),
        allowPrivate: deps.config.messagesAllowPrivate,
        owner: call.caller,
      }),
    );
    return { ok, status, answer: answer.slice(0, ANSWER_CHARS_MAX) };
  },
});

export const listDeliveries = listOperation({
  name: "webhooks.deliveries",
  says: "Lists the deliveries to a webhook, newest first.",
  scope: "webhooks:read",
  roles: EVERYONE,
  route: "GET /webhooks/{endpointId}/deliveries",
  filter: OfEndpoint,
  before: Type.Optional(RowId),
  item: Type.Object(
    {
      deliveryId: RowId,
      kind: Type.String(),
      status: Type.Union([Type.Literal("waiting"), Type.Literal("sent"), Type.Literal("failed")]),
      attempts: Type.Integer(),
      error: orNull(Type.String()),
      createdAt: At,
      endedAt: orNull(At),
      nextAt: orNull(Type.String({ format: "date-time", description: "When it is tried again, at the earliest." })),
    },
    { title: "Delivery" },
  ),
  cursor: ({ deliveryId }: Delivery) => deliveryId,
  async list(deps, call, { endpointId, ...page }) {
    await endpointOf(deps, call, endpointId);
    return readDeliveries(deps, { ...page, endpointId });
  },
});

export const getDelivery = operation({
  name: "webhooks.delivery",
  says: "Returns the last attempts of a delivery, newest first.",
  scope: "webhooks:read",
  roles: EVERYONE,
  route: "GET /webhooks/{endpointId}/deliveries/{deliveryId}",
  input: OfDelivery,
  output: Type.Object(
    {
      attempts: Type.Array(
        Type.Object({
          at: At,
          tookMs: Type.Integer(),
          ok: Type.Boolean(),
          status: orNull(Type.Integer()),
          answer: Type.String(),
        }),
      ),
    },
    { title: "DeliveryAttempts" },
  ),
  async run(deps, call, ref) {
    await endpointOf(deps, call, ref.endpointId);
    return { attempts: await listAttempts(deps, ref) };
  },
});

export const sendDeliveryAgain = operation({
  name: "webhooks.send_again",
  says: "Sends a delivery again, also one that has arrived.",
  scope: "webhooks:write",
  roles: EVERYONE,
  route: "POST /webhooks/{endpointId}/deliveries/{deliveryId}/send_again",
  input: OfDelivery,
  output: Type.Object({ waiting: Type.Boolean() }),
  async run(deps, call, ref) {
    await endpointOf(deps, call, ref.endpointId);
    await call.countDelivery();
    await sendAgain(deps, ref);
    return { waiting: true };
  },
});

function refOf({ caller: { accountId } }: Call, endpointId: number) {
  return { accountId, endpointId };
}

/** Throws not_found, also for another account's. */
function endpointOf(deps: OperationDeps, call: Call, endpointId: number): Promise<Endpoint> {
  return findEndpoint(deps, refOf(call, endpointId));
}
