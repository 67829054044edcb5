import type Stripe from "stripe";
import { takeDispute } from "./disputes_store.ts";
import { databaseTime, isPayment, type ReportedRefund, takeRefund } from "./reversals_store.ts";
import { fromStripe } from "./stripe_amounts.ts";
import { askAboutIntent } from "./stripe_charges.ts";
import { type StripeDeps, takeSession } from "./stripe_checkout.ts";

/**
 * Money that Stripe took back by itself: refunds made in its dashboard, and disputes. Events arrive late, twice and in
 * another order, and may be lost. So an event only says which payment to ask about, and Stripe's answer decides.
 * Source: BUY-10, BUY-11.
 */

/** Refunds, and disputes, of one payment that are read. */
const READ_MAX = 1_000;
const PAGE_MAX = 100;

/** A payment at Stripe: its seller, a client with the seller's key, and the id of the payment intent. */
export type AtStripe = { sellerId: number; stripe: Stripe; intentId: string };

/**
 * Asks Stripe for the refunds and disputes of a payment, and records them. An unknown payment changes nothing. Throws
 * temporary errors: then Stripe must be asked again.
 */
export async function askAboutPayment(deps: StripeDeps, { sellerId, stripe, intentId }: AtStripe): Promise<void> {
  const whose = { sellerId, paymentExternalId: intentId };
  // This change has no actor: nobody here requested it.
  const plain = { db: deps.db, bus: deps.bus };
  if (!(await isPayment(plain, whose))) await recordFirst(deps, { sellerId, stripe, intentId });
  if (!(await isPayment(plain, whose))) return;
  const askedAt = await databaseTime(plain);
  const wanted = { payment_intent: intentId, limit: PAGE_MAX };
  const [refunds, disputes] = await Promise.all([
    stripe.refunds.list(wanted).autoPagingToArray({ limit: READ_MAX }),
    stripe.disputes.list(wanted).autoPagingToArray({ limit: READ_MAX }),
  ]);
  for (const refund of refunds.reverse()) await takeRefund(plain, { ...whose, ...asReported(refund) });
  for (const dispute of disputes.reverse())
    await takeDispute(plain, {
      ...whose,
      ...{ externalId: dispute.id, currency: dispute.currency, reason: dispute.reason, status: dispute.status },
      amountNano: fromStripe(dispute.amount, dispute.currency),
      dueAt: dispute.evidence_details.due_by ? new Date(dispute.evidence_details.due_by * 1000).toISOString() : null,
      askedAt,
    });
}

/** The event of a refund may arrive before that of its payment, which is then recorded first. */
async function recordFirst(deps: StripeDeps, { sellerId, stripe, intentId }: AtStripe): Promise<void> {
  const { data } = await stripe.checkout.sessions.list({ payment_intent: intentId, limit: 1 });
  for (const session of data) await takeSession(deps, sellerId, session);
  if (data.length === 0) await askAboutIntent(deps, { sellerId, stripe, intentId });
}

/** A refund of Stripe, as it is recorded. */
export function asReported(refund: Stripe.Refund): Omit<ReportedRefund, "sellerId" | "paymentExternalId"> {
  const { id, amount, currency, metadata, reason, status, failure_reason: why } = refund;
  const isOver = status === "failed" || status === "canceled";
  return {
    externalId: id,
    requestKey: metadata?.refund_key ?? null,
    amountNano: fromStripe(amount, currency),
    reason: reason?.replaceAll("_", " ") ?? null,
    state: isOver ? "failed" : status === "pending" || status === "requires_action" ? "waiting" : "done",
    problem: `Stripe could not make it${why ? `: ${why.replaceAll("_", " ")}` : ""}.`,
  };
}
