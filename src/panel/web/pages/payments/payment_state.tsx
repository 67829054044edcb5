import type { ReactNode } from "react";
import { formatMoney } from "../../format.ts";
import { Badge } from "../../ui/states.tsx";
import { Instant } from "../../ui/time.tsx";
import { amountOf, type ListedPayment } from "./payment_amounts.ts";

/** The state of a payment: refunded, disputed, or neither. */

const PROBLEMS = {
  wrong_amount: "Wrong amount",
  wrong_currency: "Wrong currency",
  paid_twice: "Paid twice",
  order_closed: "Order was closed",
  test_money: "Test money",
} as const;

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
  if (status === "won") return <Badge tone="ok">Dispute won</Badge>;
  if (status === "lost") return <Badge tone="bad">{`Dispute of ${amount} lost`}</Badge>;
  if (dispute.isClosed) return <Badge>Dispute closed</Badge>;
  const isAsked = status.endsWith("needs_response");
  return (
    <>
      <Badge tone="bad">{`${amount} disputed: ${reason.replaceAll("_", " ")}`}</Badge>
      <Note>
        {!isAsked ? (
          "The bank is reviewing your answer."
        ) : dueAt === null ? (
          "The bank does not accept an answer."
        ) : (
          <>
            Answer in Stripe's dashboard by <Instant iso={dueAt} />, or the money is lost.
          </>
        )}{" "}
        Dispute {dispute.externalId}.
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
        <Badge tone="warn">Refund is on its way</Badge>
        {waiting.problem && <Note>{waiting.problem}</Note>}
      </>
    );
  if (failed) return <span className="text-13 text-bad">Refund failed: {failed.problem}</span>;
  if (given > 0n && given === BigInt(amountNano)) return <Badge>Refunded</Badge>;
  if (problem !== null) return <Badge tone="warn">{`${PROBLEMS[problem]}: refund it`}</Badge>;
  return given > 0n ? <Badge>{`${amountOf(refundedNano, currency)} refunded`}</Badge> : <Badge tone="ok">Paid</Badge>;
}

/** What the seller must know about money that Stripe took back by itself. */
function Shortfall({ payment: { refunds, isPackage, problem } }: { payment: ListedPayment }) {
  const made = refunds.filter(({ origin, status }) => origin !== "seller" && status !== "failed");
  const missing = made.reduce((sum, { shortfallNanoUsd }) => sum + BigInt(shortfallNanoUsd), 0n);
  const noted = refunds.find((refund) => refund.status === "done" && refund.problem !== null);
  return (
    <>
      {missing > 0n && <Note>{formatMoney(missing)} of it was already spent, and was not taken from the balance.</Note>}
      {made.length > 0 && isPackage && problem === null && (
        <Note>The package stays active. You can end it on the customer's page.</Note>
      )}
      {noted && <Note>{noted.problem}</Note>}
    </>
  );
}

function Note({ children }: { children: ReactNode }) {
  return <span className="max-w-[22rem] text-13 text-ink-2">{children}</span>;
}
