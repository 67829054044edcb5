import type Stripe from "stripe";
import { InputError, Refusal } from "../errors.ts";
import type { ChangeDeps } from "../platform/changes_store.ts";
import { stripeSecretsOf } from "./payment_settings_store.ts";
import {
  callOf,
  decideRefund,
  failRefund,
  findRefund,
  type NewRefund,
  noteRefundProblem,
  type Refund,
  type RefundCall,
  startRefund,
  takePendingRefunds,
  unansweredRefundsOf,
} from "./refunds_store.ts";
import { takeRefund } from "./reversals_store.ts";
import { toStripe } from "./stripe_amounts.ts";
import type { StripeDeps } from "./stripe_checkout.ts";
import { createStripe, isFinal, isMissing } from "./stripe_client.ts";
import { asReported } from "./stripe_reversals.ts";

/** Refunds through Stripe: requested under one idempotency key until Stripe has answered. Source: BUY-6. */

/** Refunds that one round requests. */
const REFUNDS_MAX = 20;
/** Refunds of one payment that are searched for one that is already made. */
const SEARCHED_MAX = 1_000;
const PAGE_MAX = 100;
const OTHER_ACCOUNT =
  "The account at Stripe that is set now does not know this payment. The former one may have made the refund: set a key of it again, or look there.";
const MAY_ANSWER =
  "The account at Stripe that is set now has not said that it does not know this payment. Try again in a minute; if its key is no longer accepted, remove the key first.";
const UNKNOWN_END = "how a refund ended is not known yet; it is asked for again";

/**
 * Refunds a payment. A refund that Stripe has not made yet is returned as pending, and requested again later. Throws
 * as `startRefund`; then no refund was recorded.
 */
export async function makeRefund(deps: StripeDeps, wanted: NewRefund): Promise<Refund> {
  const begun = await startRefund(deps, wanted);
  if (begun.status !== "pending") return begun;
  const { refundId } = begun;
  try {
    await send(deps, await callOf(deps, refundId), true);
    return (await callOf(deps, refundId)).refund;
  } catch (err) {
    // The refund is recorded: a person who saw an error would start a second one.
    deps.log.warn({ err, refundId }, UNKNOWN_END);
    return begun;
  }
}

/** Requests again the refunds that Stripe has not made yet. A refund that fails is logged and requested again later. */
export async function sendPendingRefunds(deps: StripeDeps): Promise<void> {
  await sendEach(deps, await takePendingRefunds(deps, REFUNDS_MAX));
}

/**
 * Ends a refund that a former account at Stripe may have made, and that this account no longer answers for: its seller has looked
 * there, and says whether it was made. The account that is set now is asked first, and its answer comes before the seller's. Returns
 * the refund as it ended. Throws not_found, service_unavailable (the present account may still answer) and InputError (no other account
 * was ever set); also what `failIn` throws. Source: BUY-12.
 */
export async function endRefund(
  deps: StripeDeps & Pick<ChangeDeps, "by">,
  wanted: { sellerId: number; refundId: number; isMade: boolean },
): Promise<Refund> {
  const refund = await findRefund(deps, wanted);
  if (refund.status !== "pending") return refund;
  if (!refund.isBeforeChange)
    throw new InputError("Stripe is still asked for this refund. Only Stripe can say how it ends.");
  const isAsked = (await stripeSecretsOf(deps, refund.sellerId)) !== undefined;
  if (isAsked && (await send(deps, await callOf(deps, refund.refundId))) !== "elsewhere") {
    const now = await findRefund(deps, wanted);
    if (now.status !== "pending") return now;
    throw new Refusal("service_unavailable", { message: MAY_ANSWER, retryAfterSeconds: 60 });
  }
  return decideRefund(deps, wanted);
}

/**
 * Asks for a seller's refunds that have no answer yet. Returns whether this account at Stripe has answered all that it
 * may have made: those of a former account wait for that one.
 */
export async function settleRefunds(deps: StripeDeps, sellerId: number): Promise<boolean> {
  const elsewhere = await sendEach(deps, await unansweredRefundsOf(deps, sellerId));
  return (await unansweredRefundsOf(deps, sellerId)).every(({ refund }) => elsewhere.has(refund.refundId));
}

/** Returns the ids of those whose payment another account at Stripe has. */
async function sendEach(deps: StripeDeps, calls: readonly RefundCall[]): Promise<ReadonlySet<number>> {
  const elsewhere = new Set<number>();
  for (const call of calls) {
    const { refundId } = call.refund;
    try {
      if ((await send(deps, call)) === "elsewhere") elsewhere.add(refundId);
    } catch (err) {
      deps.log.warn({ err, refundId }, UNKNOWN_END);
    }
  }
  return elsewhere;
}

/**
 * `isFirst`: Stripe was not asked for this refund before. Returns `elsewhere` if another account at Stripe has its
 * payment, and may have made it. Throws only the database's errors.
 */
async function send(deps: StripeDeps, call: RefundCall, isFirst = false): Promise<"elsewhere" | undefined> {
  const { refundId, sellerId } = call.refund;
  // This change has no actor: it follows from an earlier change that a person made.
  const plain = { db: deps.db, bus: deps.bus };
  try {
    const made = await askStripe(deps, call);
    const whose = { sellerId, paymentExternalId: call.paymentExternalId };
    await takeRefund(plain, { ...whose, ...asReported(made), requestKey: call.requestKey });
  } catch (error) {
    deps.log.warn({ err: error, sellerId, refundId }, "a refund was not made by Stripe");
    // An earlier request may have gone to a former account, and may have been granted: only that account knows.
    const isElsewhere = isMissing(error) && !isFirst && call.refund.isBeforeChange;
    const problem = isElsewhere ? OTHER_ACCOUNT : error instanceof Error ? error.message : String(error);
    // A refund that Stripe has accepted cannot be requested again; only its state can be read.
    if (isFinal(error) && !isElsewhere && call.refund.externalId === null) {
      try {
        await failRefund(plain, refundId, problem);
        return undefined;
      } catch (other) {
        // The balance cannot take its money again now: a reseller has spent it, or the balance is full.
        if (!(other instanceof Refusal || other instanceof InputError)) throw other;
      }
    }
    await noteRefundProblem(deps, refundId, problem);
    return isElsewhere ? "elsewhere" : undefined;
  }
  return undefined;
}

/**
 * The refund as Stripe has it. Stripe forgets a key after a day, so a refund that was already made is looked for
 * first.
 */
async function askStripe(
  deps: StripeDeps,
  { refund, requestKey, paymentExternalId, currency }: RefundCall,
): Promise<Stripe.Refund> {
  const secrets = await stripeSecretsOf(deps, refund.sellerId);
  if (secrets === undefined)
    throw new Error("Stripe's key was removed. As soon as one is set, this refund is asked for.");
  const { refunds } = await createStripe(deps.config, secrets.apiKey);
  if (refund.externalId !== null) return await refunds.retrieve(refund.externalId);
  const made = await refunds
    .list({ payment_intent: paymentExternalId, limit: PAGE_MAX })
    .autoPagingToArray({ limit: SEARCHED_MAX });
  const known = made.find(({ metadata }) => metadata?.refund_key === requestKey);
  if (known) return known;
  return await refunds.create(
    {
      payment_intent: paymentExternalId,
      amount: toStripe(refund.amountNano, currency),
      metadata: { refund_key: requestKey },
    },
    { idempotencyKey: requestKey },
  );
}
