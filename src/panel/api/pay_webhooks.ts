import { Elysia, t } from "elysia";
import { takeShopWebhook } from "../../commerce/shop_webhook.ts";
import { takeStripeEvent } from "../../commerce/stripe_events.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { readBody } from "../../http/body.ts";
import { networkOf } from "../../http/client_address.ts";
import { factsOf } from "../../http/request_facts.ts";
import { whole } from "./fields.ts";
import { panelHostOf } from "./session_auth.ts";

/** Where Stripe and shops report payments: no session and no CSRF token, but a signature over the body. Source: BUY-2, BUY-8. */

/** The largest event of Stripe is far below this. */
const BODY_BYTES_MAX = 256 * 1024;
const HEADER_CHARS_MAX = 2_000;

/** 0: the operator. */
const OfSeller = { params: t.Object({ sellerId: whole(0, Number.MAX_SAFE_INTEGER) }), parse: "none" } as const;

export function payWebhooks(deps: Deps) {
  return new Elysia({ prefix: "/api/pay", normalize: false })
    .onRequest(({ request, set }) => {
      if (factsOf(request).url.pathname.startsWith("/api/pay/"))
        set.headers["x-request-id"] = factsOf(request).requestId;
    })
    .post(
      "/stripe/:sellerId",
      async ({ request, params: { sellerId } }) => {
        const body = await bodyOf(deps, request, sellerId);
        await takeStripeEvent(deps, { sellerId, body, signature: headerOf(request, "stripe-signature") });
        return { received: true };
      },
      OfSeller,
    )
    .post(
      "/shop/:sellerId",
      async ({ request, params: { sellerId } }) => {
        const body = await bodyOf(deps, request, sellerId);
        const headers = {
          "webhook-id": headerOf(request, "webhook-id"),
          "webhook-timestamp": headerOf(request, "webhook-timestamp"),
          "webhook-signature": headerOf(request, "webhook-signature"),
        };
        const { outcome, order, problem } = await takeShopWebhook(deps, { sellerId, body, headers });
        return { received: true, known: outcome === "known", status: order?.status ?? null, problem };
      },
      OfSeller,
    );
}

/** The body as received: its signature is over these bytes. Throws host_not_allowed, too_many_requests, and as `readBody`. */
async function bodyOf(deps: Deps, request: Request, sellerId: number): Promise<string> {
  await panelHostOf(deps, request);
  // Limited by seller and sender, so that a forger does not use up the limit of the seller's payment provider.
  await deps.limiter.take(`pay:${sellerId}:${networkOf(factsOf(request).peerAddress())}`);
  const { text, room } = await readBody(deps, request, { bytesMax: BODY_BYTES_MAX, owner: undefined });
  room.close();
  return text;
}

function headerOf(request: Request, name: string): string {
  const value = request.headers.get(name) ?? "";
  if (value === "" || value.length > HEADER_CHARS_MAX)
    throw new Refusal("invalid_request", { message: `The header ${name} is missing or too long.`, param: name });
  return value;
}
