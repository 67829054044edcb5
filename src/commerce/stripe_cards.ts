import type Stripe from "stripe";
import { InputError } from "../errors.ts";
import {
  type CardPlace,
  closeSetup,
  customerOf,
  dropSetup,
  isSetupOpen,
  noteDetached,
  noteSetup,
  openSetupsOf,
  saveCard,
  setupOf,
  takeDetaching,
  takeDueSetups,
} from "./cards_store.ts";
import { stripeSecretsOf } from "./payment_settings_store.ts";
import type { StripeDeps } from "./stripe_checkout.ts";
import { asStripeRefusal, createStripe, isMissing, isStripeError } from "./stripe_client.ts";
import { isUsable, modeOf, paysInMode } from "./test_money.ts";

/**
 * Cards at Stripe: the page on which a person saves one (Checkout in setup mode), and removed ones, which Stripe is told to forget. Card
 * numbers never come here. Source: CRD-1, CRD-2.
 */

const ASKED_MAX = 20;
const DETACHED_MAX = 20;

/**
 * The URL of the page on which a person saves a card. Throws InputError (the seller takes no cards), service_unavailable.
 */
export async function openSetup(
  deps: StripeDeps,
  { returnTo, email, ...place }: CardPlace & { returnTo: string; email: string },
): Promise<string> {
  const { sellerId } = place;
  const secrets = await stripeSecretsOf(deps, sellerId);
  if (secrets === undefined) throw new InputError("This seller does not charge cards.");
  const { apiKey } = secrets;
  // A card that is saved with test money would pay for nothing.
  if (!isUsable(deps.config, apiKey) || !paysInMode(deps.config, modeOf(apiKey) === "live"))
    throw new InputError("Cards cannot be saved while the seller's key is of Stripe's test mode.");
  const setup = await setupOf(deps, place);
  const customer = await customerOf(deps, place);
  try {
    const { sessions } = (await createStripe(deps.config, apiKey)).checkout;
    const session = await sessions.create(
      {
        mode: "setup",
        allowed_payment_method_types: ["card"],
        ...(customer === null ? { customer_creation: "always", customer_email: email } : { customer }),
        success_url: `${returnTo}?card=saved`,
        cancel_url: returnTo,
        expires_at: setup.expiresAt,
        metadata: { card_setup: String(setup.setupId) },
      },
      { idempotencyKey: setup.requestKey },
    );
    if (session.url === null) throw new Error("Stripe made a page without an address");
    await noteSetup(deps, setup, session.id);
    return session.url;
  } catch (error) {
    deps.log.warn({ err: error, sellerId }, "a page of Stripe to save a card could not be opened");
    // Without an answer the page may exist: the same key finds it.
    if (!isStripeError(error, "StripeConnectionError")) await dropSetup(deps, setup);
    throw asStripeRefusal(error);
  }
}

/** Asks Stripe about pages that are due, in case a webhook was lost. A failure is logged, and the page is asked about again later. */
export async function askAboutSetups(deps: StripeDeps): Promise<void> {
  for (const page of await takeDueSetups(deps, ASKED_MAX)) await ask(deps, page);
}

/** Asks Stripe about the pages of an account whose person has returned from one. */
export async function askAboutCard(deps: StripeDeps, place: CardPlace): Promise<void> {
  for (const page of await openSetupsOf(deps, place)) await ask(deps, page);
}

async function ask(deps: StripeDeps, page: { sellerId: number; sessionId: string }): Promise<void> {
  try {
    await takeSetup(deps, page.sellerId, page.sessionId);
  } catch (err) {
    deps.log.warn({ err, ...page }, "Stripe could not be asked about a page to save a card; it is asked again later");
  }
}

/**
 * Records what became of a page: its card is saved once it is completed. Stripe is asked, whatever the event said, so that events may come in
 * any order. Throws temporary errors. Source: CRD-1.
 */
export async function takeSetup(deps: StripeDeps, sellerId: number, sessionId: string): Promise<void> {
  if (!(await isSetupOpen(deps, sellerId, sessionId))) return;
  const secrets = await stripeSecretsOf(deps, sellerId);
  if (secrets === undefined) return;
  const { sessions } = (await createStripe(deps.config, secrets.apiKey)).checkout;
  const session = await sessions.retrieve(sessionId, {
    expand: ["setup_intent.payment_method"],
  });
  if (session.status === "expired") return await closeSetup(deps, sellerId, sessionId);
  const { customer, setup_intent: intent } = session;
  const customerId = typeof customer === "string" ? customer : customer?.id;
  const method = typeof intent === "string" ? undefined : intent?.payment_method;
  if (session.status !== "complete" || customerId === undefined || !method || typeof method === "string") return;
  const { card } = method;
  if (!card) return await closeSetup(deps, sellerId, sessionId);
  const { brand, last4: lastFour, exp_month: expiresMonth, exp_year: expiresYear } = card;
  const shown = { brand, lastFour, expiresMonth, expiresYear };
  await saveCard(deps, sellerId, sessionId, { ...shown, customerId, paymentMethodId: method.id });
}

/** Has Stripe forget cards that were removed here. Nothing is charged to them meanwhile. */
export async function forgetRemoved(deps: StripeDeps): Promise<void> {
  for (const { paymentMethodIds, ...place } of await takeDetaching(deps, DETACHED_MAX)) {
    try {
      const secrets = await stripeSecretsOf(deps, place.sellerId);
      for (const id of paymentMethodIds) {
        if (secrets !== undefined) await detach(await createStripe(deps.config, secrets.apiKey), id);
        await noteDetached(deps, place, id);
      }
    } catch (err) {
      deps.log.warn({ err, ...place }, "Stripe could not be told to forget a removed card; it is told again later");
    }
  }
}

async function detach(stripe: Stripe, paymentMethodId: string): Promise<void> {
  try {
    await stripe.paymentMethods.detach(paymentMethodId);
  } catch (error) {
    // It is no customer's any more.
    if (!isStripeError(error, "StripeInvalidRequestError") && !isMissing(error)) throw error;
  }
}
