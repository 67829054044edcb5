import { t } from "elysia";
import type { Deps } from "../../deps.ts";
import { PAGE_MAX } from "../../operations/operation.ts";
import {
  addWebhook,
  getDelivery,
  listDeliveries,
  listWebhooks,
  removeWebhook,
  rotateWebhookSecret,
  sendDeliveryAgain,
  testWebhook,
  updateWebhook,
} from "../../operations/webhooks.ts";
import { Id, IdParam, whole } from "./fields.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/** A person's webhooks: endpoints, their secrets, and their deliveries. */

const OF_ENDPOINT = { path: { id: "endpointId" } } as const;
const params = IdParam;
const ofDelivery = { params: t.Object({ id: Id, deliveryId: Id }) };

export function webhooksEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/webhooks", operate(deps, listWebhooks))
    .post("/webhooks", operate(deps, addWebhook), { body: bodyOf(addWebhook) })
    .patch("/webhooks/:id", operate(deps, updateWebhook, OF_ENDPOINT), {
      params,
      body: bodyOf(updateWebhook, "endpointId"),
    })
    .delete("/webhooks/:id", operate(deps, removeWebhook, OF_ENDPOINT), { params })
    .post("/webhooks/:id/rotate", operate(deps, rotateWebhookSecret, OF_ENDPOINT), {
      params,
      body: bodyOf(rotateWebhookSecret, "endpointId"),
    })
    .post("/webhooks/:id/test", operate(deps, testWebhook, OF_ENDPOINT), { params })
    .get(
      "/webhooks/:id/deliveries",
      async (asked) => {
        const { rows, hasMore } = await operate(deps, listDeliveries, OF_ENDPOINT)(asked);
        return { deliveries: rows, hasMore };
      },
      { params, query: t.Object({ before: t.Optional(Id), limit: t.Optional(whole(1, PAGE_MAX)) }) },
    )
    .get("/webhooks/:id/deliveries/:deliveryId", operate(deps, getDelivery, OF_ENDPOINT), ofDelivery)
    .post("/webhooks/:id/deliveries/:deliveryId/send-again", operate(deps, sendDeliveryAgain, OF_ENDPOINT), ofDelivery);
}
