import { t } from "@lingui/core/macro";
import { Ban, Check, Clock, Undo2 } from "lucide-react";
import type { api } from "../../api.ts";
import { formatAmount, formatMoney } from "../../format.ts";
import { Badge } from "../../ui/states.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";

/** What every list of orders shares: the types of an order, its state as a badge, and what it asks for. */

export type OwnOrder = NonNullable<Awaited<ReturnType<typeof api.orders.get>>["data"]>["orders"][number];
export type IncomingOrder = NonNullable<Awaited<ReturnType<typeof api.orders.incoming.get>>["data"]>["orders"][number];
export type OrderStatus = OwnOrder["status"];
export type OrderKind = OwnOrder["kind"];

const STATES = {
  open: ["warn", Clock, t`Waiting`],
  unpaid: ["warn", Clock, t`Not paid`],
  paid: ["warn", Clock, t`Paid, not fulfilled`],
  fulfilled: ["ok", Check, t`Fulfilled`],
  refunded: ["neutral", Undo2, t`Refunded`],
  declined: ["neutral", Ban, t`Declined`],
  withdrawn: ["neutral", Undo2, t`Withdrawn`],
} as const;

/** An open order with a price waits for its payment, another one for an answer. */
export function OrderState({ order: { status, totalNano } }: { order: Pick<OwnOrder, "status" | "totalNano"> }) {
  const [tone, icon, words] = STATES[status === "open" && totalNano !== null ? "unpaid" : status];
  return (
    <Badge tone={tone} icon={icon}>
      {words}
    </Badge>
  );
}

/** What the order asks for, in a few words. */
export function wants({ offering, amountNanoUsd }: Pick<OwnOrder, "offering" | "amountNanoUsd">): string {
  return offering ? offering.name : t`Top-up of ${{ amount: formatMoney(amountNanoUsd ?? "0") }}`;
}

/** What the order costs, with its tax; null: on request. */
export function totalOf({ totalNano, currency }: Pick<OwnOrder, "totalNano" | "currency">): string | null {
  return totalNano === null ? null : formatAmount(totalNano, currency);
}

/** What fulfilling records besides, for an order that was not paid by itself; null for others. */
export function paidByHand({ status, ...order }: Pick<OwnOrder, "status" | "totalNano" | "currency">): string | null {
  const price = totalOf(order);
  if (status !== "open" || price === null) return null;
  return t`Records the payment of ${price} and issues the invoice.`;
}

/** The button that fulfils such an order. */
export const PAID_FULFIL = t`Mark as paid and fulfil`;

/** What the order asks for, and its note as plain text with its line breaks. */
export function Wish({ order }: { order: Pick<OwnOrder, "offering" | "amountNanoUsd" | "note"> }) {
  return (
    <TwoLines below={order.note && <span className="block max-w-[28rem] whitespace-pre-line">{order.note}</span>}>
      {wants(order)}
    </TwoLines>
  );
}
