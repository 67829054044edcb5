import type Stripe from "stripe";
import { Refusal } from "../errors.ts";
import type { Clock } from "../platform/clock.ts";
import { stripeSecretsOf } from "./payment_settings_store.ts";
import { takeSetup } from "./stripe_cards.ts";
import { takeSucceeded } from "./stripe_charges.ts";
import { type StripeDeps, takeSession } from "./stripe_checkout.ts";
import { createStripe, isStripeError } from "./stripe_client.ts";
import { noteRead, takeDueReads } from "./stripe_reads_store.ts";
import { askAboutPayment } from "./stripe_reversals.ts";
import { requireMode } from "./test_money.ts";

/**
 * Stripe's events: those that it sends by webhook, and those of its list, which includes events whose webhook was
 * lost. Source: BUY-2, BUY-10, BUY-11.
 */

/** How old a webhook's signature may be. */
const TOLERANCE_SECONDS = 300;
/** Sellers whose events one round reads. */
const SELLERS_MAX = 20;
const PAGE_MAX = 100;
const RETRY_AFTER_SECONDS = 30;
/** Payments that one reading remembers as done. Beyond this number a payment may be asked about twice. */
const REMEMBERED_MAX = 10_000;

/** Events from which only the payment is read: see `stripe_reversals.ts`. */
const REVERSALS = [
  "charge.refunded",
  "charge.refund.updated",
  "refund.created",
  "refund.updated",
  "refund.failed",
  "charge.dispute.created",
  "charge.dispute.updated",
  "charge.dispute.funds_withdrawn",
  "charge.dispute.funds_reinstated",
  "charge.dispute.closed",
] as const satisfies readonly Stripe.Event["type"][];

/**
 * Takes a webhook of Stripe: `body` exactly as received. Other events are accepted and change nothing. Throws
 * invalid_request (a wrong or old signature, or another mode), not_found (the seller has no Stripe), and temporary errors: then Stripe
 * sends it again.
 */
export async function takeStripeEvent(
  deps: StripeDeps & { clock: Pick<Clock, "unixMs"> },
  { sellerId, body, signature }: { sellerId: number; body: string; signature: string },
): Promise<void> {
  const secrets = await stripeSecretsOf(deps, sellerId);
  if (secrets === undefined) throw new Refusal("not_found", { message: "This seller takes no webhooks of Stripe." });
  const stripe = await createStripe(deps.config, secrets.apiKey);
  let event: Stripe.Event;
  try {
    event = await stripe.webhooks.constructEventAsync(
      body,
      signature,
      secrets.webhookSecret.reveal(),
      TOLERANCE_SECONDS,
      undefined,
      deps.clock.unixMs(),
    );
  } catch (error) {
    if (!isStripeError(error, "StripeSignatureVerificationError")) throw error;
    throw new Refusal("invalid_request", {
      message: "The signature does not fit this body and this address, or it is older than five minutes.",
      param: "stripe-signature",
    });
  }
  requireMode(deps.config, { isLive: event.livemode, apiKey: secrets.apiKey });
  await takeEvent(deps, { sellerId, stripe, event });
}

type Received = { sellerId: number; stripe: Stripe; event: Stripe.Event };

async function takeEvent(deps: StripeDeps, { sellerId, stripe, event }: Received): Promise<void> {
  switch (event.type) {
    case "checkout.session.completed":
    case "checkout.session.async_payment_succeeded":
    case "checkout.session.expired":
      if (event.data.object.mode === "setup") return await takeSetup(deps, sellerId, event.data.object.id);
      return await takeSession(deps, sellerId, event.data.object);
    case "payment_intent.succeeded":
      return await takeSucceeded(deps, sellerId, event.data.object);
    case "checkout.session.async_payment_failed":
      return await takeSession(deps, sellerId, event.data.object, true);
  }
  const intentId = reversedBy(event);
  if (intentId === undefined) return;
  try {
    await askAboutPayment(deps, { sellerId, stripe, intentId });
  } catch (error) {
    deps.log.warn({ err: error, sellerId, event: event.type }, "a refund or dispute of Stripe was not recorded yet");
    if (!(isStripeError(error, "StripeError") || error instanceof Refusal)) throw error;
    // Stripe sends it again.
    throw new Refusal("service_unavailable", {
      message: "This event cannot be recorded right now. Send it again later.",
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }
}

type Reversal = Extract<Stripe.Event, { type: (typeof REVERSALS)[number] }>;

function isReversal(event: Stripe.Event): event is Reversal {
  return REVERSALS.some((type) => type === event.type);
}

/** The payment of a refund or dispute event; undefined: the event is another one, or its payment has no intent. */
function reversedBy(event: Stripe.Event): string | undefined {
  if (!isReversal(event)) return undefined;
  const { payment_intent: intent } = event.data.object;
  return typeof intent === "string" ? intent : intent?.id;
}

/**
 * Reads the events of refunds and disputes since the last reading, for sellers that are due: webhooks may be lost, or
 * set up without these events. If a reading fails, it is logged and repeated from the same place.
 */
export async function readMissedEvents(deps: StripeDeps): Promise<void> {
  for (const { sellerId, from, until } of await takeDueReads(deps, SELLERS_MAX)) {
    try {
      if (await readSince(deps, sellerId, from)) await noteRead(deps, sellerId, until);
    } catch (err) {
      deps.log.warn({ err, sellerId }, "the events of Stripe could not be read; they are read again later");
    }
  }
}

/** Returns whether all of them were recorded. `from`: Unix time in seconds. */
async function readSince(deps: StripeDeps, sellerId: number, from: number): Promise<boolean> {
  const secrets = await stripeSecretsOf(deps, sellerId);
  if (secrets === undefined) return false;
  const stripe = await createStripe(deps.config, secrets.apiKey);
  const asked = new Set<string>();
  let areTaken = true;
  for await (const event of stripe.events.list({ types: [...REVERSALS], created: { gte: from }, limit: PAGE_MAX })) {
    const intentId = reversedBy(event);
    if (intentId === undefined || asked.has(intentId)) continue;
    if (asked.size < REMEMBERED_MAX) asked.add(intentId);
    try {
      await askAboutPayment(deps, { sellerId, stripe, intentId });
    } catch (err) {
      areTaken = false;
      deps.log.warn({ err, sellerId, intentId }, "a refund or dispute of Stripe was not recorded; it is tried again");
    }
  }
  return areTaken;
}
