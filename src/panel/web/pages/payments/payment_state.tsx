import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ReactNode } from "react";
import { formatMoney } from "../../format.ts";
import { Badge } from "../../ui/states.tsx";
import { Instant } from "../../ui/time.tsx";
import { amountOf, type ListedPayment } from "./payment_amounts.ts";

/** The state of a payment: refunded, disputed, or neither. */

const PROBLEMS = {
  wrong_amount: t`Wrong amount: refund it`,
  wrong_currency: t`Wrong currency: refund it`,
  paid_twice: t`Paid twice: refund it`,
  order_closed: t`Order was closed: refund it`,
  test_money: t`Test money: refund it`,
} as const;

/** Stripe's reasons of disputes; it may add some. */
const DISPUTED: Readonly<Record<string, (amount: string) => string>> = {
  bank_cannot_process: (amount) => t`${amount} disputed: bank cannot process`,
  check_returned: (amount) => t`${amount} disputed: check returned`,
  credit_not_processed: (amount) => t`${amount} disputed: credit not processed`,
  customer_initiated: (amount) => t`${amount} disputed: customer initiated`,
  debit_not_authorized: (amount) => t`${amount} disputed: debit not authorized`,
  duplicate: (amount) => t`${amount} disputed: duplicate`,
  fraudulent: (amount) => t`${amount} disputed: fraudulent`,
  general: (amount) => t`${amount} disputed: general`,
  incorrect_account_details: (amount) => t`${amount} disputed: incorrect account details`,
  insufficient_funds: (amount) => t`${amount} disputed: insufficient funds`,
  noncompliant: (amount) => t`${amount} disputed: noncompliant`,
  product_not_received: (amount) => t`${amount} disputed: product not received`,
  product_unacceptable: (amount) => t`${amount} disputed: product unacceptable`,
  subscription_canceled: (amount) => t`${amount} disputed: subscription canceled`,
  unrecognized: (amount) => t`${amount} disputed: unrecognized`,
};

export function PaymentState({ payment }: { payment: ListedPayment }) {
  const dispute = payment.disputes.at(-1);
  return (
    <span className="grid max-w-[22rem] justify-items-end gap-1 sm:justify-items-start">
      {dispute && <DisputeState dispute={dispute} />}
      {(!dispute || payment.refunds.length > 0) && <RefundState payment={payment} />}
      <Shortfall payment={payment} />
    </span>
  );
}

type Dispute = ListedPayment["disputes"][number];

/** A dispute. The seller answers it in Stripe's dashboard; this shows the reason and the deadline. */
export function DisputeState({ dispute }: { dispute: Dispute }) {
  const amount = amountOf(dispute.amountNano, dispute.currency);
  const { status, dueAt, reason } = dispute;
  if (status === "won")
    return (
      <Badge tone="ok">
        <Trans>Dispute won</Trans>
      </Badge>
    );
  if (status === "lost") return <Badge tone="bad">{t`Dispute of ${amount} lost`}</Badge>;
  if (dispute.isClosed)
    return (
      <Badge>
        <Trans>Dispute closed</Trans>
      </Badge>
    );
  const isAsked = status.endsWith("needs_response");
  return (
    <>
      <Badge tone="bad">
        {DISPUTED[reason]?.(amount) ?? t`${amount} disputed: ${{ reason: reason.replaceAll("_", " ") }}`}
      </Badge>
      <Note>
        {!isAsked ? (
          t`The bank is reviewing your answer.`
        ) : dueAt === null ? (
          t`The bank does not accept an answer.`
        ) : (
          <Trans>
            Answer in Stripe's dashboard by <Instant iso={dueAt} />, or the money is lost.
          </Trans>
        )}{" "}
        {t`Dispute ${{ id: dispute.externalId }}.`}
      </Note>
    </>
  );
}

function RefundState({
  payment: { problem, amountNano, refundedNano, currency, refunds },
}: {
  payment: ListedPayment;
}) {
  const waiting = refunds.find(({ status }) => status === "pending");
  const failed = refunds.at(-1)?.status === "failed" ? refunds.at(-1) : undefined;
  const given = BigInt(refundedNano);
  if (waiting)
    return (
      <>
        <Badge tone="warn">
          <Trans>Refund is on its way</Trans>
        </Badge>
        {waiting.problem && <Note>{waiting.problem}</Note>}
      </>
    );
  if (failed) return <span className="text-13 text-bad">{t`Refund failed: ${{ problem: failed.problem ?? "" }}`}</span>;
  if (given > 0n && given === BigInt(amountNano))
    return <Badge>{t({ message: "Refunded", context: "state of a payment" })}</Badge>;
  if (problem !== null) return <Badge tone="warn">{PROBLEMS[problem]}</Badge>;
  if (given > 0n) return <Badge>{t`${{ amount: amountOf(refundedNano, currency) }} refunded`}</Badge>;
  return <Badge tone="ok">{t({ message: "Paid", context: "state of a payment" })}</Badge>;
}

/** What the seller must know about money that Stripe took back by itself. */
function Shortfall({ payment: { refunds, isPackage, problem } }: { payment: ListedPayment }) {
  const made = refunds.filter(({ origin, status }) => origin !== "seller" && status !== "failed");
  const missing = made.reduce((sum, { shortfallNanoUsd }) => sum + BigInt(shortfallNanoUsd), 0n);
  const noted = refunds.find((refund) => refund.status === "done" && refund.problem !== null);
  return (
    <>
      {missing > 0n && (
        <Note>{t`${{ amount: formatMoney(missing) }} of it was already spent, and was not taken from the balance.`}</Note>
      )}
      {made.length > 0 && isPackage && problem === null && (
        <Note>
          <Trans>The package stays active. You can end it on the customer's page.</Trans>
        </Note>
      )}
      {noted && <Note>{noted.problem}</Note>}
    </>
  );
}

function Note({ children }: { children: ReactNode }) {
  return <span className="max-w-[22rem] text-13 text-ink-2">{children}</span>;
}
