import { ph, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { ButtonLink } from "../../ui/buttons.tsx";
import { Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { OrderState, type OwnOrder, totalOf, Wish, wants } from "./order_parts.tsx";
import { WithdrawOrder } from "./withdraw_order.tsx";

/** The person's own orders and their state. */
export function OwnOrders() {
  const orders = useInfiniteQuery({
    queryKey: ["orders", "own"],
    queryFn: ({ pageParam }) => ask(api.orders.get({ query: { ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ orders: rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.orderId : undefined),
  });
  const columns: Column<OwnOrder>[] = [
    { head: t`Order`, cell: (order) => <Wish order={order} /> },
    { head: t`Placed`, cell: ({ createdAt }) => <Ago iso={createdAt} /> },
    { head: t`Price`, align: "right", cell: totalOf },
    { head: t`State`, cell: (order) => <OrderState order={order} /> },
    {
      head: t`Answer`,
      cell: ({ answer }) => answer && <span className="wrap-anywhere whitespace-pre-line">{answer}</span>,
    },
    {
      head: t`Action`,
      align: "right",
      cell: (order) =>
        order.status === "open" && (
          <span className="row-above inline-flex flex-wrap justify-end gap-2">
            {order.totalNano !== null && order.unpayable === null && (
              <ButtonLink size="sm" href={`/billing/orders/${order.orderId}`}>
                <Trans>
                  Pay<span className="sr-only"> for {ph({ order: wants(order) })}</span>
                </Trans>
              </ButtonLink>
            )}
            <WithdrawOrder order={order} variant="quiet" />
          </span>
        ),
    },
  ];
  return (
    <Section title={t`Orders`} flush>
      <Loaded query={orders} skeleton={<SkeletonRows rows={2} />}>
        {({ pages }) => (
          <DataTable
            caption={t`Orders`}
            rows={pages.flatMap((page) => page.orders)}
            rowKey={({ orderId }) => String(orderId)}
            rowHref={({ orderId }) => `/billing/orders/${orderId}`}
            columns={columns}
            empty={<Empty>{EMPTY.orders}</Empty>}
            older={toOlder(orders)}
          />
        )}
      </Loaded>
    </Section>
  );
}
