import { Elysia, t } from "elysia";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { listAttempts, listDeliveries, sendAgain } from "../../messages/deliveries_store.ts";
import {
  addEndpoint,
  changeEndpoint,
  endpointToCall,
  findEndpoint,
  listEndpoints,
  removeEndpoint,
  rotateSecret,
  UNREADABLE_SECRET,
} from "../../messages/endpoints_store.ts";
import { kindsFor, WEBHOOK_KINDS } from "../../messages/kinds.ts";
import { callWebhook, checkWebhookUrl } from "../../messages/webhook_call.ts";
import { askedCall, countDelivery } from "../../operations/asked_calls.ts";
import { newRequestId } from "../../platform/crypto.ts";
import { Id, IdParam, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { signedIn } from "./panel_session.ts";

/** A person's webhooks: endpoints, their secrets, and their deliveries. */

const Kinds = t.Array(t.String({ maxLength: 100 }), { maxItems: 100 });
const DeliveryParam = t.Object({ id: Id, deliveryId: Id });

export function webhooksEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(endpointEndpoints(deps)).use(deliveryEndpoints(deps));
}

function endpointEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/webhooks", async ({ person }) => ({
      endpoints: await listEndpoints(deps, person.accountId),
      kinds: kindsFor(person.role, WEBHOOK_KINDS),
    }))
    .post(
      "/webhooks",
      ({ person, request, body: { url, kinds } }) =>
        once(deps, { person, request }, async () => {
          const checked = await askedCall(deps, { person, kind: "receiver" }, () =>
            checkWebhookUrl(url, { allowPrivate: deps.config.messagesAllowPrivate, owner: person }),
          );
          return await addEndpoint({ ...deps, by: person.by }, { accountId: person.accountId, url: checked, kinds });
        }),
      { body: t.Object({ url: t.String({ maxLength: 2_000 }), kinds: Kinds }) },
    )
    .patch(
      "/webhooks/:id",
      async ({ person, params, body }) => {
        const ref = { accountId: person.accountId, endpointId: params.id };
        await changeEndpoint({ ...deps, by: person.by }, ref, body);
        return { endpoint: await findEndpoint(deps, ref) };
      },
      { params: IdParam, body: t.Object({ kinds: t.Optional(Kinds), enabled: t.Optional(t.Boolean()) }) },
    )
    .delete(
      "/webhooks/:id",
      async ({ person, params }) => {
        await removeEndpoint({ ...deps, by: person.by }, { accountId: person.accountId, endpointId: params.id });
        return { removed: true };
      },
      { params: IdParam },
    )
    .post(
      "/webhooks/:id/rotate",
      ({ person, request, params, body }) =>
        once(deps, { person, request }, () => {
          const ref = { accountId: person.accountId, endpointId: params.id };
          return rotateSecret({ ...deps, by: person.by }, ref, body.overlapHours);
        }),
      { params: IdParam, body: t.Object({ overlapHours: t.Integer() }) },
    )
    .post(
      "/webhooks/:id/test",
      async ({ person, params }) => {
        const { endpointId, url } = await findEndpoint(deps, { accountId: person.accountId, endpointId: params.id });
        const endpoint = await endpointToCall({ db: deps.db, secretKey: deps.config.secretKey }, endpointId);
        if (endpoint === undefined) throw new Refusal("not_found");
        if (endpoint.secrets.length === 0) throw new InputError(UNREADABLE_SECRET);
        const { ok, status, answer } = await askedCall(deps, { person, kind: "receiver" }, () =>
          callWebhook({
            ...endpoint,
            messageId: `msg_test_${newRequestId()}`,
            body: JSON.stringify({ type: "test", timestamp: new Date(endpoint.unixMs).toISOString(), data: { url } }),
            allowPrivate: deps.config.messagesAllowPrivate,
            owner: person,
          }),
        );
        return { ok, status, answer: answer.slice(0, 300) };
      },
      { params: IdParam },
    );
}

/** The deliveries to an endpoint, with every attempt. */
function deliveryEndpoints(deps: Deps) {
  return signedIn(deps)
    .get(
      "/webhooks/:id/deliveries",
      async ({ person, params, query }) => {
        const { endpointId } = await findEndpoint(deps, { accountId: person.accountId, endpointId: params.id });
        const { rows, hasMore } = await listDeliveries(deps, { endpointId, ...query });
        return { deliveries: rows, hasMore };
      },
      { params: IdParam, query: t.Object({ before: t.Optional(Id), limit: t.Optional(whole(1, 100)) }) },
    )
    .get(
      "/webhooks/:id/deliveries/:deliveryId",
      async ({ person, params: { id, deliveryId } }) => {
        const { endpointId } = await findEndpoint(deps, { accountId: person.accountId, endpointId: id });
        return { attempts: await listAttempts(deps, { deliveryId, endpointId }) };
      },
      { params: DeliveryParam },
    )
    .post(
      "/webhooks/:id/deliveries/:deliveryId/send-again",
      async ({ person, params: { id, deliveryId } }) => {
        const { endpointId } = await findEndpoint(deps, { accountId: person.accountId, endpointId: id });
        await countDelivery(deps, person);
        await sendAgain(deps, { deliveryId, endpointId });
        return { waiting: true };
      },
      { params: DeliveryParam },
    );
}
