import type { StaticDecode } from "@sinclair/typebox";
import type { Command } from "commander";
import { InputError } from "../errors.ts";
import { PAGE_MAX } from "../operations/operation.ts";
import { endRefund, fulfilOrder, listOrders, listPayments, refundPayment } from "../operations/orders.ts";
import { decimalAmount, formatAmount } from "../platform/currencies.ts";
import { defineOperations, sellerBy } from "./door.ts";
import { parseUsd } from "./money.ts";
import { idOf, integer, parsedBy, SELLER } from "./options.ts";
import { facts, type Output, table, withMore } from "./output.ts";

/** The commands `order` and `payment`: orders to be paid or fulfilled, payments, and refunds. */

type ListedOrder = StaticDecode<typeof fulfilOrder.output>["order"];

export function addOrderCommands(program: Command): void {
  const command = program.command("order").description("orders of packages and top-ups");
  defineOperations<{ all?: true; before?: number }>(
    command
      .command("list")
      .description("list orders of resellers and the operator's own customers, newest first")
      .option("--all", "also those of resellers' customers")
      .option("--before <order-id>", "the page after this one", integer),
    {},
    async (ask, { all, before }) => {
      const page = { limit: PAGE_MAX, ...(before !== undefined && { before }) };
      const { rows, hasMore } = await ask(listOrders, { scope: all ? "all" : "house", ...page });
      return showOrders(rows, hasMore);
    },
  );
  defineOperations<{ now?: true }>(
    command
      .command("paid <order-id>")
      .description("mark an open order paid, if it has a price, and fulfil it; also fulfils a paid one that waits")
      .option("--now", "start its package now; what is left of the active one is dropped (default: after all others)"),
    { changes: true },
    async (ask, { now }, [id]) => {
      const { order } = await ask(fulfilOrder, { orderId: idOf(id, "order's id"), when: now ? "now" : "after" });
      return { text: facts(factsOf(order)), json: order };
    },
  );
}

export function addPaymentCommands(program: Command): void {
  const command = program.command("payment").description("payments, and refunds of them");
  defineOperations<{ seller?: string; problems?: true; disputed?: true; before?: number }>(
    command
      .command("list")
      .description("list payments, newest first")
      .option("--seller <reseller>", SELLER)
      .option("--problems", "only those to give back")
      .option("--disputed", "only those that customers disputed at their banks")
      .option("--before <payment-id>", "the page after this one", integer),
    {},
    async (ask, { seller, problems, disputed, before }) => {
      if (problems && disputed) throw new InputError("Use --problems or --disputed, not both.");
      const show = problems ? "problems" : disputed ? "disputed" : "all";
      const page = { limit: PAGE_MAX, ...(before !== undefined && { before }) };
      return showPayments(await ask(listPayments, { ...(await sellerBy(ask, seller)), show, ...page }));
    },
  );
  defineOperations<{ amount: bigint; reason?: string; seller?: string; endPackage?: true }>(
    command
      .command("refund <payment-id>")
      .description("give money back; through Stripe if it was paid there, else only recorded")
      .requiredOption("--amount <amount>", "at most what is left of the payment, in its currency", parsedBy(parseUsd))
      .option("--reason <text>", "in the customer's transactions")
      .option("--end-package", "end the package that was paid for")
      .option("--seller <reseller>", SELLER),
    { changes: true, secretKey: true },
    async (ask, { amount, reason, seller, endPackage }, [id]) => {
      const { refund } = await ask(refundPayment, {
        ...(await sellerBy(ask, seller)),
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
  defineOperations<{ made?: true; notMade?: true; seller?: string }>(
    command
      .command("end-refund <refund-id>")
      .description("say how a refund ended for which a former account at Stripe no longer answers")
      .option("--made", "that account has made it")
      .option("--not-made", "it has not: what the refund took from a balance is returned")
      .option("--seller <reseller>", SELLER),
    { changes: true, secretKey: true },
    async (ask, { made, notMade, seller }, [id]) => {
      if (made === notMade) throw new InputError("Use --made or --not-made: look at the former account at Stripe.");
      const wanted = { ...(await sellerBy(ask, seller)), refundId: idOf(id, "refund's id") };
      return showRefund((await ask(endRefund, { ...wanted, isMade: made === true })).refund);
    },
  );
}

function showOrders(rows: readonly ListedOrder[], hasMore: boolean): Output {
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

function showPayments({ rows, hasMore }: StaticDecode<typeof listPayments.output>): Output {
  const listed = rows.map(({ refunds, disputes: _, ...row }) => ({
    ...row,
    pendingRefundIds: refunds.filter(({ status }) => status === "pending").map(({ refundId }) => refundId),
  }));
  const text = table(
    ["ID", "REFERENCE", "FROM", "BY", "AMOUNT", "REFUNDED", "PENDING REFUND", "PROBLEM", "RECEIVED"],
    listed.map((payment) => [
      String(payment.paymentId),
      payment.reference,
      payment.name,
      payment.method,
      formatAmount(payment.amountNano, payment.currency),
      formatAmount(payment.refundedNano, payment.currency),
      payment.pendingRefundIds.join(", "),
      payment.problem ?? "",
      payment.createdAt,
    ]),
    "There are no payments.",
  );
  return { text: withMore(text, hasMore, `--before ${rows.at(-1)?.paymentId}`), json: { payments: listed, hasMore } };
}

function showRefund(refund: StaticDecode<typeof endRefund.output>["refund"]): Output {
  const text = facts([
    ["refund", String(refund.refundId)],
    ["payment", String(refund.paymentId)],
    ["amount", `${decimalAmount(refund.amountNano)}, of which ${decimalAmount(refund.taxNano)} tax`],
    ["state", refund.status === "pending" ? "Stripe has not answered; a replica asks again" : refund.status],
  ]);
  return { text, json: refund };
}

function factsOf(order: ListedOrder): [string, string][] {
  return [
    ["order", String(order.orderId)],
    ["reference", order.reference],
    ["account", String(order.account.accountId)],
    ["price", priceOf(order)],
    ["state", order.status],
  ];
}

function priceOf({ totalNano, currency }: ListedOrder): string {
  return totalNano === null ? "on request" : formatAmount(totalNano, currency);
}
