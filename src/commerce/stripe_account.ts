import type Stripe from "stripe";
import { InputError, Refusal, sentence } from "../errors.ts";
import type { ChangeDeps } from "../platform/changes_store.ts";
import type { Secret } from "../platform/crypto.ts";
import { anyCustomerOf } from "./cards_store.ts";
import { type Asked, closeCheckout, openPagesOf } from "./checkouts_store.ts";
import { type StripeSecrets, setStripe, stripeSecretsOf } from "./payment_settings_store.ts";
import { hasFailed, type StripeDeps, takeSession } from "./stripe_checkout.ts";
import { createStripe, isBarredFromRefunds, isMissing, isStripeError } from "./stripe_client.ts";
import { settleRefunds } from "./stripe_refunds.ts";
import { requireUsable } from "./test_money.ts";

/**
 * Sets a seller's secrets of Stripe, or removes them. Before the account is changed or removed, its open pages are expired: money that is
 * paid there later would not be noticed. Its refunds without an answer are settled first, too. Source: BUY-12.
 */

/** Pages that one call expires. */
const PAGES_MAX = 100;
/** Pages that are expired concurrently. */
const AT_ONCE = 10;
const RETRY_AFTER_SECONDS = 10;

type Change = { sellerId: number; secrets: StripeSecrets | null; by: ChangeDeps["by"] };

/**
 * Throws InputError (a key of Stripe's test mode that may not be used here; an order is being paid by bank debit; the former key is not accepted any more), service_unavailable (Stripe cannot be
 * asked, or a refund has no answer). Then nothing was changed, but pages may have been expired: their customers can open new ones.
 */
export async function changeStripe(deps: StripeDeps, { sellerId, secrets, by }: Change): Promise<void> {
  if (secrets !== null) requireUsable(deps.config, secrets.apiKey);
  const former = await stripeSecretsOf(deps, sellerId);
  const pages = await openPagesOf(deps, sellerId, PAGES_MAX);
  const [first] = pages;
  // All open pages, and all customers, belong to one account, so any of them shows which.
  const isSameAccount = secrets !== null && (await isOfAccount(deps, secrets.apiKey, sellerId, first));
  const keepsPages = isSameAccount || former === undefined;
  if (!keepsPages) {
    await settle(deps, sellerId, former.apiKey);
    await endPages(deps, former.apiKey, pages);
  }
  await setStripe({ ...deps, ...(by && { by }) }, { sellerId, secrets, keepsPages });
}

/** Hears of refunds that have no answer yet: asked for at another account, they would be refused, though they may have been made. */
async function settle(deps: StripeDeps, sellerId: number, apiKey: Secret): Promise<void> {
  if (await settleRefunds(deps, sellerId)) return;
  // Nobody can ask with it any more. With a new key of its account somebody could.
  if (await isBarredFromRefunds(deps.config, apiKey)) return;
  throw new Refusal("service_unavailable", {
    message: "A refund has no answer from Stripe yet. Nothing was changed. Try again.",
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

/** Whether a key is of the account that made a page, or a customer for a card on file. False if there is neither. */
async function isOfAccount(
  deps: StripeDeps,
  apiKey: Secret,
  sellerId: number,
  page: Asked | undefined,
): Promise<boolean> {
  const customerId = page === undefined ? await anyCustomerOf(deps, sellerId) : null;
  const stripe = await createStripe(deps.config, apiKey);
  try {
    if (page !== undefined) await stripe.checkout.sessions.retrieve(String(page.sessionId));
    else if (customerId !== null) await stripe.customers.retrieve(customerId);
    else return false;
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw notAsked();
  }
}

async function endPages(deps: StripeDeps, apiKey: Secret, pages: readonly Asked[]): Promise<void> {
  const stripe = await createStripe(deps.config, apiKey);
  const paying: string[] = [];
  for (let start = 0; start < pages.length; start += AT_ONCE) {
    const ended = pages.slice(start, start + AT_ONCE).map(async (page) => {
      if (!(await endPage(deps, stripe, page))) paying.push(page.reference);
    });
    const failed = (await Promise.allSettled(ended)).find((one) => one.status === "rejected");
    if (failed) throw failed.reason;
  }
  if (paying.length > 0)
    throw new InputError(
      sentence(
        "Nothing was changed: Stripe is still waiting for the bank of order {paying}. Wait until it is paid, or decline it.",
        { paying: paying.join(", ") },
      ),
      "stripe",
    );
}

/** Returns whether nothing can be paid on a page any more. */
async function endPage(deps: StripeDeps, stripe: Stripe, page: Asked): Promise<boolean> {
  const { sellerId, orderIsOpen } = page;
  const sessionId = String(page.sessionId);
  try {
    const { sessions } = stripe.checkout;
    const found = await sessions.retrieve(sessionId, { expand: ["payment_intent"] });
    const session = found.status === "open" ? await sessions.expire(sessionId) : found;
    const failed = hasFailed(session);
    await takeSession(deps, sellerId, session, failed);
    const isPending = session.status === "complete" && session.payment_status === "unpaid" && !failed;
    if (isPending && orderIsOpen) return false;
  } catch (error) {
    if (!isStripeError(error, "StripeError")) throw error;
    deps.log.warn({ err: error, sellerId, sessionId }, "a checkout page of Stripe could not be expired");
    const isRefused = isStripeError(error, "StripeAuthenticationError", "StripePermissionError");
    if (!isRefused && !isMissing(error)) throw notAsked();
    // It cannot be expired, but it expires by itself.
    if (isRefused && !page.hasEnded) throw keyRefused(page);
  }
  await closeCheckout(deps, { sellerId, sessionId });
  return true;
}

function notAsked(): Refusal {
  return new Refusal("service_unavailable", {
    message:
      "Customers have open checkout pages, and Stripe cannot be asked to close them right now. Nothing was changed.",
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

function keyRefused({ expiresAt }: Asked): InputError {
  const until = new Date(expiresAt * 1000).toISOString();
  return new InputError(
    sentence(
      "Nothing was changed: customers can still pay on checkout pages of the former key, which Stripe no longer accepts. Set a new key of the same account, or try again after {until}.",
      { until },
    ),
    "stripe",
  );
}
