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
      title="Payments"
      lead={
        role === "admin"
          ? "What resellers and your own customers paid, and how they can pay. Resellers are paid by their customers themselves."
          : "What your customers paid you, and how they can pay. The money goes to you, not to the operator."
      }
    >
      <Payments />
      <SellingTermsSection />
      <PaymentSettings />
    </Page>
  );
}

const SHOWN = [
  { value: "all", label: "All payments" },
  { value: "problems", label: "To refund" },
  { value: "disputed", label: "Disputed" },
] as const;

const NOTHING = {
  all: "No payments yet. They are listed here.",
  problems: "There is nothing to refund.",
  disputed: "No payment was disputed.",
} as const;

const METHODS = { stripe: "Stripe", instructions: "By hand", shop: "Shop" } as const;
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
      title="Received"
      flush
      action={
        <NativeSelect
          label="Which payments"
          value={show}
          onValue={(next) => setFilters({ show: next })}
          options={SHOWN}
        />
      }
    >
      <Loaded query={payments} skeleton={<SkeletonRows rows={3} />}>
        {({ pages }) => (
          <DataTable
            caption="Payments"
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
    { head: "From", cell: ({ name }) => <span className="font-medium wrap-anywhere">{name}</span> },
    { head: "Received", cell: ({ createdAt }) => <Ago iso={createdAt} /> },
    { head: "By", cell: ({ method }) => METHODS[method], hideBelow: "md" },
    { head: "Order", cell: ({ reference }) => <span className="font-mono text-13">{reference}</span>, hideBelow: "lg" },
    { head: "Amount", align: "right", cell: ({ amountNano, currency }) => amountOf(amountNano, currency) },
    { head: "State", cell: (payment) => <PaymentState payment={payment} /> },
    {
      head: "Action",
      align: "right",
      cell: (payment) => <PaymentActions payment={payment} {...actions} />,
    },
  ];
}

function PaymentActions({ payment, refund, end, lock }: Actions & { payment: ListedPayment }) {
  const unanswered = payment.refunds.find(({ canEnd }) => canEnd);
  return (
    <span className="inline-flex flex-wrap justify-end gap-2">
      {unanswered && (
        <Button size="sm" className="row-above" onClick={() => end({ payment, refund: unanswered })} {...lock}>
          End refund<span className="sr-only"> of {payment.name}</span>
        </Button>
      )}
      {BigInt(payment.refundedNano) < BigInt(payment.amountNano) && (
        <Button size="sm" className="row-above" onClick={() => refund(payment)} {...lock}>
          Refund<span className="sr-only"> {payment.name}</span>
        </Button>
      )}
    </span>
  );
}
