import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Banknote } from "lucide-react";
import { lazy } from "react";
import { api, ask } from "../../api.ts";
import { useOpened, useViewer, type Viewer } from "../../shared/page_hooks.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button } from "../../ui/buttons.tsx";
import { NativeSelect } from "../../ui/fields.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Later } from "../../ui/later.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { amountOf, type ListedPayment, type ListedRefund } from "./payment_amounts.ts";
import { PaymentSettings } from "./payment_settings.tsx";
import { PaymentState } from "./payment_state.tsx";
import { SellingTermsSection } from "./selling_terms.tsx";

const EndRefundDialog = lazy(() => import("./end_refund_dialog.tsx").then((m) => ({ default: m.EndRefundDialog })));
const RefundDialog = lazy(() => import("./refund_dialog.tsx").then((m) => ({ default: m.RefundDialog })));

/** A seller's payments and refunds, and its ways to be paid: an admin's page is the operator's. */

export function PaymentsPage() {
  const { role } = useViewer();
  return (
    <Page
      title={t`Payments`}
      lead={
        role === "admin"
          ? t`What resellers and your own customers paid, and how they can pay. Resellers are paid by their customers themselves.`
          : t`What your customers paid you, and how they can pay. The money goes to you, not to the operator.`
      }
    >
      <Payments />
      <SellingTermsSection />
      <PaymentSettings />
    </Page>
  );
}

const SHOWN = [
  { value: "all", label: t`All payments` },
  { value: "problems", label: t`To refund` },
  { value: "to_answer", label: t`Disputes to answer` },
  { value: "disputed", label: t`Disputed` },
] as const;

const NOTHING = {
  all: t`No payments yet. They are listed here.`,
  problems: t`There is nothing to refund.`,
  to_answer: t`No dispute waits for your answer.`,
  disputed: t`No payment was disputed.`,
} as const;

const METHODS = { stripe: /* not a text */ "Stripe", instructions: t`By hand`, shop: t`Shop` } as const;
function Payments() {
  const { role, lock } = useViewer();
  const [filters, setFilters] = useUrlState({ show: "all" });
  const show = oneOf(SHOWN, filters.show, "all");
  const payments = useInfiniteQuery({
    queryKey: ["payments", show],
    queryFn: ({ pageParam }) => ask(api.payments.get({ query: { show, ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ payments: rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.paymentId : undefined),
  });
  const refunding = useOpened<ListedPayment>();
  const ending = useOpened<{ payment: ListedPayment; refund: ListedRefund }>();
  const people = role === "admin" ? "/admin/people" : "/customers";
  return (
    <Section
      title={t`Received`}
      flush
      action={
        <NativeSelect
          label={t`Which payments`}
          value={show}
          onValue={(next) => setFilters({ show: next })}
          options={SHOWN}
        />
      }
    >
      <Loaded query={payments} skeleton={<SkeletonRows rows={3} />}>
        {({ pages }) => (
          <DataTable
            caption={t`Payments`}
            rows={pages.flatMap((page) => page.payments)}
            rowKey={({ paymentId }) => String(paymentId)}
            rowHref={({ accountId }) => `${people}/${accountId}`}
            columns={columnsFor({ refund: refunding.open, end: ending.open, lock })}
            empty={<Empty icon={Banknote}>{NOTHING[show]}</Empty>}
            older={toOlder(payments)}
          />
        )}
      </Loaded>
      <Later>
        {refunding.what && (
          <RefundDialog
            key={refunding.times}
            open={refunding.isOpen}
            onClose={refunding.close}
            payment={refunding.what}
          />
        )}
        {ending.what && (
          <EndRefundDialog key={ending.times} open={ending.isOpen} onClose={ending.close} {...ending.what} />
        )}
      </Later>
    </Section>
  );
}

type Actions = {
  refund: (payment: ListedPayment) => void;
  end: (what: { payment: ListedPayment; refund: ListedRefund }) => void;
  lock: Viewer["lock"];
};

function columnsFor(actions: Actions): Column<ListedPayment>[] {
  return [
    {
      head: t({ message: "From", context: "who paid" }),
      cell: ({ name }) => <span className="font-medium wrap-anywhere">{name}</span>,
    },
    { head: t`Received`, cell: ({ createdAt }) => <Ago iso={createdAt} /> },
    { head: t({ message: "By", context: "way of payment" }), cell: ({ method }) => METHODS[method], hideBelow: "md" },
    {
      head: t({ message: "Order", context: "a purchase" }),
      cell: ({ reference }) => <span className="font-mono text-13">{reference}</span>,
      hideBelow: "lg",
    },
    { head: t`Amount`, align: "right", cell: ({ amountNano, currency }) => amountOf(amountNano, currency) },
    { head: t`State`, cell: (payment) => <PaymentState payment={payment} /> },
    {
      head: t`Action`,
      align: "right",
      cell: (payment) => <PaymentActions payment={payment} {...actions} />,
    },
  ];
}

function PaymentActions({ payment, refund, end, lock }: Actions & { payment: ListedPayment }) {
  const { name } = payment;
  const unanswered = payment.refunds.find(({ canEnd }) => canEnd);
  return (
    <span className="inline-flex flex-wrap justify-end gap-2">
      {unanswered && (
        <Button size="sm" className="row-above" onClick={() => end({ payment, refund: unanswered })} {...lock}>
          <Trans>
            End refund<span className="sr-only"> of {name}</span>
          </Trans>
        </Button>
      )}
      {BigInt(payment.refundedNano) < BigInt(payment.amountNano) && (
        <Button size="sm" className="row-above" onClick={() => refund(payment)} {...lock}>
          <Trans>
            Refund<span className="sr-only"> {name}</span>
          </Trans>
        </Button>
      )}
    </span>
  );
}
