import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { Ban, Check, Clock, Undo2 } from "lucide-react";
import { api, ask } from "../api.ts";
import { EMPTY } from "../copy.ts";
import { formatMoney } from "../format.ts";
import { Button } from "../ui/buttons.tsx";
import { Section } from "../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../ui/table.tsx";
import { Ago } from "../ui/time.tsx";
import { toast } from "../ui/toast.tsx";
import { useRefresh, useViewer } from "./page_hooks.ts";

/** What one asked for, and what became of it; and how an order looks wherever it is listed. */

type OwnOrder = NonNullable<Awaited<ReturnType<typeof api.orders.get>>["data"]>["orders"][number];
export type OrderStatus = OwnOrder["status"];
export type OrderKind = OwnOrder["kind"];

const STATES = {
  open: ["warn", Clock, "Waiting"],
  fulfilled: ["ok", Check, "Fulfilled"],
  declined: ["neutral", Ban, "Declined"],
  withdrawn: ["neutral", Undo2, "Withdrawn"],
} as const;

/** One's own orders, and what became of them. */
export function OwnOrders() {
  const { lock } = useViewer();
  const refresh = useRefresh();
  const orders = useInfiniteQuery({
    queryKey: ["orders", "own"],
    queryFn: ({ pageParam }) => ask(api.orders.get({ query: { ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ orders: rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.orderId : undefined),
  });
  const withdraw = useMutation({
    mutationFn: (orderId: number) => ask(api.orders({ id: orderId }).withdraw.post()),
    onSuccess: async ({ order }) => {
      await refresh();
      toast.done(`${wants(order)}: order withdrawn.`);
    },
    onError: (error) => toast.failed(error),
  });
  const columns: Column<OwnOrder>[] = [
    { head: "Asked for", cell: (order) => <Wish order={order} /> },
    { head: "Asked", cell: ({ createdAt }) => <Ago iso={createdAt} /> },
    { head: "State", cell: ({ status }) => <OrderState status={status} /> },
    { head: "Answer", cell: ({ answer }) => answer && <span className="whitespace-pre-line">{answer}</span> },
    {
      head: "Action",
      align: "right",
      cell: (order) =>
        order.status === "open" && (
          <Button
            size="sm"
            pending={withdraw.isPending && withdraw.variables === order.orderId}
            onClick={() => withdraw.mutate(order.orderId)}
            {...lock}
          >
            Withdraw<span className="sr-only"> {wants(order)}</span>
          </Button>
        ),
    },
  ];
  return (
    <Section title="Orders" flush>
      <Loaded query={orders} skeleton={<SkeletonRows rows={2} />}>
        {({ pages }) => (
          <DataTable
            caption="Orders"
            rows={pages.flatMap((page) => page.orders)}
            rowKey={({ orderId }) => String(orderId)}
            columns={columns}
            empty={<Empty>{EMPTY.orders}</Empty>}
            older={toOlder(orders)}
          />
        )}
      </Loaded>
    </Section>
  );
}

export function OrderState({ status }: { status: OrderStatus }) {
  const [tone, icon, words] = STATES[status];
  return (
    <Badge tone={tone} icon={icon}>
      {words}
    </Badge>
  );
}

/** What is wanted, in a few words. */
export function wants({ offering, amountNanoUsd }: Pick<OwnOrder, "offering" | "amountNanoUsd">): string {
  return offering ? offering.name : `Top-up of ${formatMoney(amountNanoUsd ?? "0")}`;
}

/** What is wanted, and the words that came with it: plain text, line by line. */
export function Wish({ order }: { order: Pick<OwnOrder, "offering" | "amountNanoUsd" | "note"> }) {
  return (
    <span className="grid min-w-0 text-left">
      <span className="font-medium">{wants(order)}</span>
      {order.note && <span className="max-w-[28rem] text-13 whitespace-pre-line text-ink-2">{order.note}</span>}
    </span>
  );
}
