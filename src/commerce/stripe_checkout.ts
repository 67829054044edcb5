import type Stripe from "stripe";
import type { Config } from "../config.ts";
import type { ChangeDeps } from "../platform/changes_store.ts";
import type { Failpoint } from "../platform/failpoints.ts";
import type { Log } from "../platform/log.ts";
import { sha256 } from "../platform/runtime.ts";
import {
  type Asked,
  checkoutOf,
  closeCheckout,
  noteSession,
  renewRequestKey,
  takeCheckoutsOf,
  takeDueCheckouts,
} from "./checkouts_store.ts";
import type { Order } from "./orders_store.ts";
import { stripeSecretsOf } from "./payment_settings_store.ts";
import { EXTERNAL_ID_CHARS_MAX, receivePayment } from "./payments_store.ts";
import { fromStripe, toStripe } from "./stripe_amounts.ts";
import { asStripeRefusal, createStripe, isStripeError } from "./stripe_client.ts";
import { isUsable, paysInMode, type TestMoneyConfig } from "./test_money.ts";

/**
 * Stripe Checkout: the page on which an order is paid, and what Stripe says about it, by webhooks (`stripe_events.ts`)
 * and when asked. Both are recorded in the same way. Source: BUY-2, BUY-3, BUY-4.
 */

/** Pages that one round asks about. */
const ASKED_MAX = 20;

export type StripeDeps = ChangeDeps & {
  config: Pick<Config, "secretKey" | "stripeApiBase"> & TestMoneyConfig;
  log: Log;
  failpoint?: Failpoint;
};

/**
 * The URL of the page on which the customer pays. It stays the same while the page is open, also after a crash. Throws
 * InputError,
 * service_unavailable.
 */
export async function openCheckout(
  deps: StripeDeps,
  { order, returnTo }: { order: Order; returnTo: string },
): Promise<string> {
  const checkout = await checkoutOf(deps, order, returnTo);
  const secrets = await stripeSecretsOf(deps, order.sellerId);
  if (secrets === undefined) throw asStripeRefusal(new Error("Stripe is not set up"));
  if (!isUsable(deps.config, secrets.apiKey)) throw asStripeRefusal(new Error("the key is of Stripe's test mode"));
  if (checkout.url !== null) return checkout.url;
  const stripe = await createStripe(deps.config, secrets.apiKey);
  try {
    const session = await createSession(stripe, checkout.requestKey, sessionFor(order, checkout));
    if (session.url === null) throw new Error("Stripe made a page without an address");
    const url = await noteSession(deps, checkout, { sessionId: session.id, url: session.url });
    if (url === undefined) throw new Error("the seller has changed its account at Stripe");
    return url;
  } catch (error) {
    deps.log.warn({ err: error, sellerId: order.sellerId }, "a checkout page of Stripe could not be opened");
    // Without an answer the page may exist: the same key finds it.
    if (!isStripeError(error, "StripeConnectionError")) await renewRequestKey(deps, checkout);
    throw asStripeRefusal(error);
  }
}

/** Leaves out the customer's address if Stripe refuses it: then the page asks for one. */
async function createSession(stripe: Stripe, requestKey: string, params: Params): Promise<Stripe.Checkout.Session> {
  const create = async (sent: Params) => {
    // Stripe refuses a key with other parameters, and the customer's address may have changed since the last try.
    const idempotencyKey = `${requestKey}.${Buffer.from(sha256(JSON.stringify(sent))).toString("base64url")}`;
    return await stripe.checkout.sessions.create(sent, { idempotencyKey });
  };
  try {
    return await create(params);
  } catch (error) {
    if (!isStripeError(error, "StripeInvalidRequestError") || error.param !== "customer_email") throw error;
    const { customer_email: _, ...others } = params;
    return await create(others);
  }
}

type Params = Stripe.Checkout.SessionCreateParams;

function sessionFor(order: Order, { returnTo, expiresAt }: { returnTo: string; expiresAt: number }): Params {
  const { reference, offering, currency, totalNano, account } = order;
  if (totalNano === null) throw new Error("an order without a price cannot be paid");
  const metadata = { order: reference };
  return {
    mode: "payment",
    client_reference_id: reference,
    customer_email: account.email,
    success_url: `${returnTo}?back=paid`,
    cancel_url: returnTo,
    expires_at: expiresAt,
    metadata,
    payment_intent_data: { metadata },
    line_items: [
      {
        quantity: 1,
        price_data: {
          currency,
          unit_amount: toStripe(totalNano, currency),
          product_data: { name: offering?.name ?? "Top-up" },
        },
      },
    ],
  };
}

/** Asks Stripe about open pages that are due. A failure is logged, and the page is tried again later. */
export async function askAboutDue(deps: StripeDeps): Promise<void> {
  for (const checkout of await takeDueCheckouts(deps, ASKED_MAX)) await ask(deps, checkout);
}

/** Asks Stripe about an order whose customer waits, at most every few seconds. */
export async function askAboutOrder(deps: StripeDeps, orderId: number): Promise<void> {
  for (const checkout of await takeCheckoutsOf(deps, orderId)) await ask(deps, checkout);
}

async function ask(deps: StripeDeps, { sellerId, sessionId, orderIsOpen }: Asked): Promise<void> {
  if (sessionId === null) return;
  try {
    const secrets = await stripeSecretsOf(deps, sellerId);
    if (secrets === undefined) return;
    const { sessions } = (await createStripe(deps.config, secrets.apiKey)).checkout;
    const session = await sessions.retrieve(sessionId, { expand: ["payment_intent"] });
    // An order that was withdrawn or paid otherwise must not be paid any more.
    const isToEnd = session.status === "open" && !orderIsOpen;
    await takeSession(deps, sellerId, isToEnd ? await sessions.expire(sessionId) : session, hasFailed(session));
  } catch (err) {
    deps.log.warn({ err, sellerId, sessionId }, "Stripe could not be asked about a page; it is asked again later");
  }
}

/** The state of a completed page whose money will never arrive: a bank debit that was refused days later. */
export function hasFailed({
  status,
  payment_status: paymentStatus,
  payment_intent: intent,
}: Stripe.Checkout.Session): boolean {
  if (status !== "complete" || paymentStatus !== "unpaid" || intent === null || typeof intent === "string")
    return false;
  return intent.status === "requires_payment_method" || intent.status === "canceled";
}

/**
 * Records Stripe's state of a page. A completed page may still be unpaid, since a bank debit takes days: only money
 * that has arrived pays for an order. `failed`: the money will never arrive. Source: BUY-3, BUY-4.
 */
export async function takeSession(
  deps: StripeDeps,
  sellerId: number,
  session: Stripe.Checkout.Session,
  failed = false,
): Promise<void> {
  const { payment_status: paymentStatus, payment_intent: intent, metadata } = session;
  // Not the client_reference_id: on a payment link of the seller, the payer chooses it. Metadata are set by the creator
  // of the page.
  const reference = metadata?.order;
  const isPaid = paymentStatus !== "unpaid";
  if (isPaid && reference !== undefined) {
    const paidBy = typeof intent === "string" ? intent : intent?.id;
    const externalId = paidBy ?? session.id;
    if (externalId.length > EXTERNAL_ID_CHARS_MAX) throw new Error("Stripe's id is longer than any of its ids");
    const currency = session.currency ?? "";
    const amountNano = fromStripe(session.amount_total ?? 0, currency);
    const isTest = !paysInMode(deps.config, session.livemode);
    await receivePayment(deps, { sellerId, reference, method: "stripe", externalId, currency, amountNano, isTest });
  }
  const hasEnded = session.status === "expired" || (session.status === "complete" && isPaid);
  if (hasEnded || failed) await closeCheckout(deps, { sellerId, sessionId: session.id, failed: failed && !isPaid });
}
