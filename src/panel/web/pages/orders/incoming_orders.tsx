import { ph, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Inbox } from "lucide-react";
import { lazy } from "react";
import { api, ask } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { useOpened, useViewer, type Viewer } from "../../shared/page_hooks.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button } from "../../ui/buttons.tsx";
import { NativeSelect } from "../../ui/fields.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Later } from "../../ui/later.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { DisputeState } from "../payments/payment_state.tsx";
import { type IncomingOrder, OrderState, type OrderStatus, paidByHand, totalOf, Wish, wants } from "./order_parts.tsx";

const DecideDialog = lazy(() => import("./decide_dialogs.tsx").then((m) => ({ default: m.DecideDialog })));

/** How many orders are waiting, counted on the first page; undefined until it is loaded. */
export function useWaitingOrders(): { count: number; hasMore: boolean } | undefined {
  const { data } = useIncoming("open", "house");
  const first = data?.pages[0];
  return first && { count: first.orders.length, hasMore: first.hasMore };
}

type Scope = "house" | "all";

function useIncoming(status: OrderStatus | "all", scope: Scope) {
  const { role } = useViewer();
  return useInfiniteQuery({
    queryKey: ["orders", "incoming", status, scope],
    queryFn: ({ pageParam }) =>
      ask(
        api.orders.incoming.get({
          query: {
            ...(status !== "all" && { status }),
            ...(role === "admin" && { scope }),
            ...(pageParam > 0 && { before: pageParam }),
          },
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: ({ orders, hasMore }) => (hasMore ? orders[orders.length - 1]?.orderId : undefined),
  });
}

const STATUS_FILTER = [
  { value: "open", label: t`Waiting` },
  { value: "paid", label: t`Paid, not fulfilled` },
  { value: "fulfilled", label: t`Fulfilled` },
  { value: "refunded", label: t`Refunded` },
  { value: "declined", label: t`Declined` },
  { value: "withdrawn", label: t`Withdrawn` },
  { value: "all", label: t`All` },
] as const satisfies readonly { value: OrderStatus | "all"; label: string }[];

const SCOPE_FILTER = [
  { value: "house", label: t`Resellers and your own customers` },
  { value: "all", label: t`Resellers' customers too` },
] as const satisfies readonly { value: Scope; label: string }[];

type Decision = { order: IncomingOrder; isFulfil: boolean };

/** Orders to answer: a reseller sees those of its customers, an admin those of everyone without a reseller, or of all. */
export function IncomingOrders({ personHref }: { personHref: (accountId: number) => string }) {
  const { role, lock } = useViewer();
  const [filters, setFilters] = useUrlState({ orders: "open", from: "house" });
  const status = oneOf(STATUS_FILTER, filters.orders, "open");
  const scope: Scope = filters.from === "all" ? "all" : "house";
  const orders = useIncoming(status, scope);
  const deciding = useOpened<Decision>();
  const columns = columnsFor(deciding.open, lock);
  return (
    <Section
      title={t`Orders`}
      flush
      action={
        <>
          {role === "admin" && (
            <NativeSelect
              label={t`Whose orders`}
              value={scope}
              onValue={(from) => setFilters({ from })}
              options={SCOPE_FILTER}
            />
          )}
          <NativeSelect
            label={t`State of the orders`}
            value={status}
            onValue={(next) => setFilters({ orders: next })}
            options={STATUS_FILTER}
          />
        </>
      }
    >
      <Loaded query={orders} skeleton={<SkeletonRows rows={3} />}>
        {({ pages }) => (
          <DataTable
            caption={t`Incoming orders`}
            rows={pages.flatMap((page) => page.orders)}
            rowKey={({ orderId }) => String(orderId)}
            rowHref={({ account }) => personHref(account.accountId)}
            columns={columns}
            empty={<Empty icon={Inbox}>{status === "open" ? EMPTY.incoming : t`No orders in this view.`}</Empty>}
            older={toOlder(orders)}
          />
        )}
      </Loaded>
      <Later>
        {deciding.what && (
          <DecideDialog key={deciding.times} open={deciding.isOpen} onClose={deciding.close} {...deciding.what} />
        )}
      </Later>
    </Section>
  );
}

/** The reason why a paid order waits. */
function PaidNote({ order: { waitsFor } }: { order: IncomingOrder }) {
  if (waitsFor === null)
    return (
      <Badge tone="warn">
        <Trans>Paid</Trans>
      </Badge>
    );
  return (
    <span className="grid justify-items-end gap-1 sm:justify-items-start">
      <Badge tone="warn">
        <Trans>Paid, waiting for you</Trans>
      </Badge>
      <span className="max-w-[20rem] text-ink-2">
        {waitsFor === "seller_balance"
          ? t`Your balance is too low for it. It is fulfilled automatically once there is enough.`
          : t`It could not be fulfilled. Fulfil it, or refund it under Payments.`}
      </span>
    </span>
  );
}

function Disputes({ order: { disputes } }: { order: IncomingOrder }) {
  return disputes.map((dispute) => <DisputeState key={dispute.disputeId} dispute={dispute} />);
}

function columnsFor(decide: (decision: Decision) => void, lock: Viewer["lock"]): Column<IncomingOrder>[] {
  return [
    {
      head: t({ message: "From", context: "who ordered" }),
      cell: ({ account }) => <TwoLines below={account.email}>{account.name}</TwoLines>,
    },
    { head: t`Order`, cell: (order) => <Wish order={order} /> },
    {
      head: t`Price`,
      align: "right",
      cell: (order) => totalOf(order) ?? t`On request`,
    },
    {
      head: t`Reference`,
      cell: ({ reference }) => <span className="font-mono text-13">{reference}</span>,
      hideBelow: "lg",
    },
    { head: t`Ordered`, cell: ({ createdAt }) => <Ago iso={createdAt} /> },
    {
      head: t`Decision`,
      cell: (order) =>
        order.status === "open" || order.status === "paid" ? (
          <span className="row-above inline-flex flex-wrap items-center justify-end gap-2">
            {order.status === "paid" && <PaidNote order={order} />}
            <Disputes order={order} />
            <Button size="sm" onClick={() => decide({ order, isFulfil: true })} {...lock}>
              {paidByHand(order) === null ? (
                <Trans>
                  Fulfil<span className="sr-only"> {ph({ order: wants(order) })}</span>
                </Trans>
              ) : (
                <Trans>
                  Mark as paid and fulfil<span className="sr-only"> {ph({ order: wants(order) })}</span>
                </Trans>
              )}
            </Button>
            {order.status === "open" && (
              <Button size="sm" variant="quiet" onClick={() => decide({ order, isFulfil: false })} {...lock}>
                <Trans>
                  Decline<span className="sr-only"> {ph({ order: wants(order) })}</span>
                </Trans>
              </Button>
            )}
          </span>
        ) : (
          <span className="grid justify-items-end gap-1 sm:justify-items-start">
            <OrderState order={order} />
            <Disputes order={order} />
            {order.answer && (
              <span className="max-w-[20rem] wrap-anywhere whitespace-pre-line text-ink-2">{order.answer}</span>
            )}
          </span>
        ),
    },
  ];
}
