import { Elysia, t } from "elysia";
import { sellersWithWebhooks, type WebhookSender } from "../../commerce/payment_settings_store.ts";
import { takeShopWebhook } from "../../commerce/shop_webhook.ts";
import { takeStripeEvent } from "../../commerce/stripe_events.ts";
import type { Deps } from "../../deps.ts";
import { Refusal, sentence } from "../../errors.ts";
import { readBody } from "../../http/body.ts";
import { networkOf } from "../../http/client_address.ts";
import { panelHostOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import { createBatchLoader } from "../../platform/batch_loader.ts";
import { inTime } from "../../platform/time_limit.ts";
import { whole } from "./fields.ts";

/** Where Stripe and shops report payments: no session and no CSRF token, but a signature over the body. Source: BUY-2, BUY-8. */

/** The largest event of Stripe is far below this. */
const BODY_BYTES_MAX = 256 * 1024;
const HEADER_CHARS_MAX = 2_000;
/**
 * An owner of bodies that is no account: all webhooks share what one account may use. Who sent a webhook is known only once its body
 * was read, so a forger must not get more.
 */
const WEBHOOKS_ID = -1;

/** 0: the operator. */
const OfSeller = { params: t.Object({ sellerId: whole(0, Number.MAX_SAFE_INTEGER) }), parse: "none" } as const;

export function payWebhooks(deps: Deps) {
  const receiveStripe = receiver(deps, "stripe");
  const receiveShop = receiver(deps, "shop");
  return new Elysia({ prefix: "/api/pay", normalize: false })
    .onRequest(({ request, set }) => {
      if (factsOf(request).url.pathname.startsWith("/api/pay/"))
        set.headers["x-request-id"] = factsOf(request).requestId;
    })
    .post(
      "/stripe/:sellerId",
      ({ request, params: { sellerId } }) =>
        receiveStripe(request, sellerId, async (body) => {
          await takeStripeEvent(deps, { sellerId, body, signature: headerOf(request, "stripe-signature") });
          return { received: true };
        }),
      OfSeller,
    )
    .post(
      "/shop/:sellerId",
      ({ request, params: { sellerId } }) =>
        receiveShop(request, sellerId, async (body) => {
          const headers = {
            "webhook-id": headerOf(request, "webhook-id"),
            "webhook-timestamp": headerOf(request, "webhook-timestamp"),
            "webhook-signature": headerOf(request, "webhook-signature"),
          };
          const { outcome, order, problem } = await takeShopWebhook(deps, { sellerId, body, headers });
          return { received: true, known: outcome === "known", status: order?.status ?? null, problem };
        }),
      OfSeller,
    );
}

/**
 * Gives a webhook's body to `take` as it was received, since its signature is over these bytes. A seller that takes no webhooks is
 * refused before the body is read. Throws host_not_allowed, not_found, too_many_requests, and as `readBody` and `take`.
 */
function receiver(deps: Deps, sender: WebhookSender) {
  // Concurrent look-ups share a read, so that a flood of made-up sellers takes no connections from others.
  const isKnown = createBatchLoader((sellerIds) => sellersWithWebhooks(deps, sender, sellerIds));
  return async <T>(request: Request, sellerId: number, take: (body: string) => Promise<T>): Promise<T> => {
    await panelHostOf(deps, request);
    const known = await inTime(isKnown(String(sellerId)));
    // Limited by seller and sender, so that a forger does not use up the limit of the seller's payment provider. Made-up sellers count
    // as one, so that they do not each have a limit.
    const network = networkOf(factsOf(request).peerAddress());
    await deps.limiter.take(`pay:${known ? sellerId : "unknown"}:${network}`);
    if (!known) throw new Refusal("not_found", { message: "This seller takes no such webhooks." });
    const owner = { accountId: WEBHOOKS_ID, tenantId: sellerId };
    const { text, room } = await readBody(deps, request, { bytesMax: BODY_BYTES_MAX, owner });
    try {
      return await take(text);
    } finally {
      room.close();
    }
  };
}

function headerOf(request: Request, name: string): string {
  const value = request.headers.get(name) ?? "";
  if (value === "" || value.length > HEADER_CHARS_MAX)
    throw new Refusal("invalid_request", {
      message: sentence("The header {name} is missing or too long.", { name }),
      param: name,
    });
  return value;
}
