import type { Command } from "commander";
import { fulfilOrder } from "../commerce/order_fulfilment_store.ts";
import { listIncoming, type Order } from "../commerce/orders_store.ts";
import { type ListedPayment, listPayments } from "../commerce/payments_store.ts";
import { type Refund, refundsOf } from "../commerce/refunds_store.ts";
import { endRefund, makeRefund } from "../commerce/stripe_refunds.ts";
import { InputError } from "../errors.ts";
import { defineCommand } from "./context.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { idOf, integer, parsedBy, SELLER, sellerOf } from "./options.ts";
import { facts, type Output, table, withMore } from "./output.ts";

/** The commands `order` and `payment`: orders to be paid or fulfilled, payments, and refunds. */

export function addOrderCommands(program: Command): void {
  const command = program.command("order").description("orders of packages and top-ups");
  defineCommand<{ all?: true; before?: number }>(
    command
      .command("list")
      .description("list orders of resellers and the operator's own customers, newest first")
      .option("--all", "also those of resellers' customers")
      .option("--before <order-id>", "the page after this one", integer),
    {},
    async (context, { all, before }) => {
      const page = { ...(before !== undefined && { before }) };
      const { rows, hasMore } = await listIncoming(context, { resellerId: null, houseOnly: !all, ...page });
      return showOrders(rows, hasMore);
    },
  );
  defineCommand<{ now?: true }>(
    command
      .command("paid <order-id>")
      .description("mark an open order paid, if it has a price, and fulfil it; also fulfils a paid one that waits")
      .option("--now", "start its package now; what is left of the active one is dropped (default: after all others)"),
    { changes: true },
    async (context, { now }, [id]) => {
      const wanted = { orderId: idOf(id, "order's id"), resellerId: null, payWith: undefined };
      const { order } = await fulfilOrder(context, { ...wanted, when: now ? "now" : "after" });
      return { text: facts(factsOf(order)), json: order };
    },
  );
}

export function addPaymentCommands(program: Command): void {
  const command = program.command("payment").description("payments, and refunds of them");
  defineCommand<{ seller?: string; problems?: true; disputed?: true; before?: number }>(
    command
      .command("list")
      .description("list payments, newest first")
      .option("--seller <reseller>", SELLER)
      .option("--problems", "only those to give back")
      .option("--disputed", "only those that customers disputed at their banks")
      .option("--before <payment-id>", "the page after this one", integer),
    {},
    async (context, { seller, problems, disputed, before }) => {
      if (problems && disputed) throw new InputError("Use --problems or --disputed, not both.");
      const show = problems ? "problems" : disputed ? "disputed" : "all";
      const wanted = { sellerId: await sellerOf(context, seller), show } as const;
      const { rows, hasMore } = await listPayments(context, { ...wanted, ...(before !== undefined && { before }) });
      const paymentIds = rows.map(({ paymentId }) => paymentId);
      return showPayments(rows, { hasMore, refunds: await refundsOf(context, paymentIds) });
    },
  );
  defineCommand<{ amount: bigint; reason?: string; seller?: string; endPackage?: true }>(
    command
      .command("refund <payment-id>")
      .description("give money back; through Stripe if it was paid there, else only recorded")
      .requiredOption("--amount <usd>", "at most what is left of the payment", parsedBy(parseUsd))
      .option("--reason <text>", "in the customer's transactions")
      .option("--end-package", "end the package that was paid for")
      .option("--seller <reseller>", SELLER),
    { changes: true, secretKey: true },
    async (context, { amount, reason, seller, endPackage }, [id]) => {
      const refund = await makeRefund(context, {
        sellerId: await sellerOf(context, seller),
        paymentId: idOf(id, "payment's id"),
        amountNano: amount,
        reason: reason ?? null,
        endPackage: endPackage === true,
      });
      if (refund.status === "failed")
        throw new InputError(`Stripe refuses this refund, and nothing was given back. ${refund.problem}`);
      return showRefund(refund);
    },
  );
  defineCommand<{ made?: true; notMade?: true; seller?: string }>(
    command
      .command("end-refund <refund-id>")
      .description("say how a refund ended for which a former account at Stripe no longer answers")
      .option("--made", "that account has made it")
      .option("--not-made", "it has not: what the refund took from a balance is returned")
      .option("--seller <reseller>", SELLER),
    { changes: true, secretKey: true },
    async (context, { made, notMade, seller }, [id]) => {
      if (made === notMade) throw new InputError("Use --made or --not-made: look at the former account at Stripe.");
      const wanted = { sellerId: await sellerOf(context, seller), refundId: idOf(id, "refund's id") };
      return showRefund(await endRefund(context, { ...wanted, isMade: made === true }));
    },
  );
}

function showOrders(rows: readonly Order[], hasMore: boolean): Output {
  const text = table(
    ["ID", "REFERENCE", "ACCOUNT", "WANTS", "PRICE", "STATE", "ORDERED"],
    rows.map((order) => [
      String(order.orderId),
      order.reference,
      order.account.email,
      order.offering?.name ?? "top-up",
      priceOf(order),
      order.waitsFor === null ? order.status : `${order.status}, waits for ${order.waitsFor}`,
      order.createdAt,
    ]),
    "There are no orders.",
  );
  return { text: withMore(text, hasMore, `--before ${rows.at(-1)?.orderId}`), json: { orders: rows, hasMore } };
}

function showPayments(
  rows: readonly ListedPayment[],
  { hasMore, refunds }: { hasMore: boolean; refunds: readonly Refund[] },
): Output {
  const pending = Map.groupBy(
    refunds.filter(({ status }) => status === "pending"),
    ({ paymentId }) => paymentId,
  );
  const listed = rows.map((row) => ({
    ...row,
    pendingRefundIds: (pending.get(row.paymentId) ?? []).map(({ refundId }) => refundId),
  }));
  const text = table(
    ["ID", "REFERENCE", "FROM", "BY", "AMOUNT", "REFUNDED", "PENDING REFUND", "PROBLEM", "RECEIVED"],
    listed.map((payment) => [
      String(payment.paymentId),
      payment.reference,
      payment.name,
      payment.method,
      `${formatUsd(payment.amountNano)} ${payment.currency}`,
      formatUsd(payment.refundedNano),
      payment.pendingRefundIds.join(", "),
      payment.problem ?? "",
      payment.createdAt,
    ]),
    "There are no payments.",
  );
  return { text: withMore(text, hasMore, `--before ${rows.at(-1)?.paymentId}`), json: { payments: listed, hasMore } };
}

function showRefund(refund: Refund): Output {
  const text = facts([
    ["refund", String(refund.refundId)],
    ["payment", String(refund.paymentId)],
    ["amount", formatUsd(refund.amountNano)],
    ["state", refund.status === "pending" ? "Stripe has not answered; a replica asks again" : refund.status],
  ]);
  return { text, json: refund };
}

function factsOf(order: Order): [string, string][] {
  return [
    ["order", String(order.orderId)],
    ["reference", order.reference],
    ["account", String(order.account.accountId)],
    ["price", priceOf(order)],
    ["state", order.status],
  ];
}

function priceOf({ priceNanoUsd }: Order): string {
  return priceNanoUsd === null ? "on request" : formatUsd(priceNanoUsd);
}
