import type Stripe from "stripe";
import {
  type Charge,
  type ChargeProblem,
  type Failure,
  leaveCharge,
  noteFailure,
  noteIntent,
  noteUnanswered,
  orderOfIntent,
  takeDueCharges,
} from "./card_charges_store.ts";
import { forgetCard, type SavedCard } from "./cards_store.ts";
import { stripeSecretsOf } from "./payment_settings_store.ts";
import { receivePayment } from "./payments_store.ts";
import { fromStripe, toStripe } from "./stripe_amounts.ts";
import type { StripeDeps } from "./stripe_checkout.ts";
import { createStripe, isFinal, isMissing, isStripeError } from "./stripe_client.ts";
import { isUsable, paysInMode } from "./test_money.ts";

/**
 * Charges the card on file for an order, without the person. The payment is made at Stripe first, stored, and then confirmed: Stripe confirms
 * a payment once, so neither a crash nor a second replica charges twice. Source: CRD-3, CRD-4, CRD-5.
 */

const CHARGES_MAX = 20;

/** Makes the tries that are due. One that fails does not stop the others. */
export async function chargeDue(deps: StripeDeps): Promise<void> {
  for (const charge of await takeDueCharges(deps, CHARGES_MAX)) {
    try {
      await makeTry(deps, charge);
    } catch (err) {
      const { orderId, sellerId } = charge;
      deps.log.warn({ err, orderId, sellerId }, "a card could not be charged; it is tried again later");
      await noteUnanswered(deps, charge);
    }
  }
}

/** Throws what has no outcome: Stripe gave no answer, or the database did not. */
async function makeTry(deps: StripeDeps, charge: Charge): Promise<void> {
  const secrets = await stripeSecretsOf(deps, charge.sellerId);
  if (secrets === undefined || !isUsable(deps.config, secrets.apiKey))
    return await noteFailure(deps, charge, { problem: "stripe", isFinal: false, intentEnded: false });
  const stripe = await createStripe(deps.config, secrets.apiKey);
  const { intentId, blocked, card } = charge;
  try {
    // An earlier call may have succeeded without an answer.
    const known = intentId === null ? null : await stripe.paymentIntents.retrieve(intentId);
    if (known && (known.status === "succeeded" || known.status === "processing"))
      return await takeIntent(deps, charge, { stripe, intent: known });
    if (blocked !== null || card === undefined)
      return await giveUp(deps, charge, { stripe, problem: blocked ?? "no_card" });
    if (known?.status === "canceled")
      return await noteFailure(deps, charge, { problem: "card_refused", isFinal: false, intentEnded: true });
    const made = known?.id ?? (await createIntent(deps, charge, { stripe, card }));
    const intent = await stripe.paymentIntents.confirm(
      made,
      { payment_method: card.paymentMethodId, off_session: true },
      { idempotencyKey: `${charge.requestKey}.${charge.tries}.${card.paymentMethodId}` },
    );
    deps.failpoint?.("after_charge");
    await takeIntent(deps, { ...charge, intentId: made }, { stripe, intent });
  } catch (error) {
    await takeError(deps, charge, { stripe, error });
  }
}

type Asking = { stripe: Stripe; card: SavedCard };

/** Makes the payment at Stripe, unconfirmed: it takes no money yet. */
async function createIntent(deps: StripeDeps, charge: Charge, { stripe, card }: Asking): Promise<string> {
  const { order, requestKey } = charge;
  if (order.totalNano === null) throw new Error("an order without a price cannot be charged");
  const intent = await stripe.paymentIntents.create(
    {
      amount: toStripe(order.totalNano, order.currency),
      currency: order.currency,
      customer: card.customerId,
      allowed_payment_method_types: ["card"],
      description: `${order.offering?.name ?? "Top-up"}, order ${order.reference}`,
      metadata: { order: order.reference },
    },
    { idempotencyKey: `${requestKey}.${card.customerId}` },
  );
  return await noteIntent(deps, charge, intent.id);
}

/** Records Stripe's state of a payment. */
async function takeIntent(
  deps: StripeDeps,
  charge: Charge,
  { stripe, intent }: { stripe: Stripe; intent: Stripe.PaymentIntent },
): Promise<void> {
  if (intent.status === "succeeded") return await takePaid(deps, charge.sellerId, charge.order.reference, intent);
  // It is asked about again after the claim.
  if (intent.status === "processing") return;
  if (intent.status === "requires_action") return await leaveToPerson(deps, charge, { stripe, intentId: intent.id });
  await noteFailure(deps, charge, { problem: "card_refused", isFinal: false, intentEnded: false });
}

async function takePaid(
  deps: StripeDeps,
  sellerId: number,
  reference: string,
  { id: externalId, currency, amount_received: amount, livemode }: Stripe.PaymentIntent,
): Promise<void> {
  const isTest = !paysInMode(deps.config, livemode);
  const amountNano = fromStripe(amount, currency);
  await receivePayment(deps, { sellerId, reference, method: "stripe", externalId, currency, amountNano, isTest });
}

const PROBLEMS: Readonly<Record<string, ChargeProblem>> = { expired_card: "card_expired" };

/** Records a refused call. Throws an error that says nothing about the payment. */
async function takeError(
  deps: StripeDeps,
  charge: Charge,
  { stripe, error }: { stripe: Stripe; error: unknown },
): Promise<void> {
  const failed = (failure: Partial<Failure> & Pick<Failure, "problem">) =>
    noteFailure(deps, charge, { isFinal: false, intentEnded: false, ...failure });
  if (isStripeError(error, "StripeCardError")) {
    const intentId = error.payment_intent?.id ?? charge.intentId;
    if (error.code === "authentication_required" && intentId)
      return await leaveToPerson(deps, charge, { stripe, intentId });
    return await failed({ problem: PROBLEMS[String(error.code)] ?? "card_refused" });
  }
  if (isStripeError(error, "StripeAuthenticationError", "StripePermissionError"))
    return await failed({ problem: "stripe" });
  if (!isFinal(error)) throw error;
  deps.log.warn({ err: error, orderId: charge.orderId }, "Stripe refused a charge to a card");
  // The state of the payment has changed meanwhile: another replica may have charged it. It is read by the next try.
  if (isStripeError(error, "StripeInvalidRequestError") && error.code === "payment_intent_unexpected_state")
    return await noteUnanswered(deps, charge);
  // The customer or its card is gone, perhaps removed in Stripe's dashboard.
  if (isMissing(error) && charge.card) {
    await forgetCard(deps, charge, charge.card.paymentMethodId);
    return await failed({ problem: "no_card", intentEnded: true });
  }
  await failed({ problem: "card_refused", isFinal: true });
}

type Ending = { stripe: Stripe; intentId: string };

/** The bank wants the person. The payment is cancelled first, so that only the order's page can be paid on. */
async function leaveToPerson(deps: StripeDeps, charge: Charge, ending: Ending): Promise<void> {
  const paid = await cancelIntent(ending);
  if (paid) return await takePaid(deps, charge.sellerId, charge.order.reference, paid);
  await leaveCharge(deps, charge);
}

/** Nothing may be charged now. A payment that was made is cancelled, so that none is left open. */
async function giveUp(
  deps: StripeDeps,
  charge: Charge,
  { stripe, problem }: { stripe: Stripe; problem: ChargeProblem },
): Promise<void> {
  const { intentId } = charge;
  const paid = intentId === null ? undefined : await cancelIntent({ stripe, intentId });
  if (paid) return await takePaid(deps, charge.sellerId, charge.order.reference, paid);
  const isFinal = problem === "too_late" || problem === "withdrawn";
  await noteFailure(deps, charge, { problem, isFinal, intentEnded: intentId !== null });
}

/** Returns the payment if it had succeeded. Otherwise it can take no money any more. */
async function cancelIntent({ stripe, intentId }: Ending): Promise<Stripe.PaymentIntent | undefined> {
  try {
    await stripe.paymentIntents.cancel(intentId);
    return undefined;
  } catch (error) {
    if (isMissing(error)) return undefined;
    if (!isStripeError(error, "StripeInvalidRequestError")) throw error;
    const intent = await stripe.paymentIntents.retrieve(intentId);
    if (intent.status === "succeeded") return intent;
    if (intent.status === "canceled") return undefined;
    throw error;
  }
}

/** Records a payment that was made here and of which only the id is known, if it succeeded. */
export async function askAboutIntent(
  deps: StripeDeps,
  { sellerId, stripe, intentId }: { sellerId: number; stripe: Stripe; intentId: string },
): Promise<void> {
  if ((await orderOfIntent(deps, sellerId, intentId)) === undefined) return;
  const intent = await stripe.paymentIntents.retrieve(intentId);
  if (intent.status === "succeeded") await takeSucceeded(deps, sellerId, intent);
}

/** A webhook says that a payment succeeded. Payments that were not made here are left to the checkout page that made them. */
export async function takeSucceeded(deps: StripeDeps, sellerId: number, intent: Stripe.PaymentIntent): Promise<void> {
  const reference = await orderOfIntent(deps, sellerId, intent.id);
  if (reference !== undefined) await takePaid(deps, sellerId, reference, intent);
}
