import { type StaticDecode, Type } from "@sinclair/typebox";
import { disputesOf } from "../commerce/disputes_store.ts";
import { fulfilOrder as fulfil } from "../commerce/order_fulfilment_store.ts";
import { type Decider, declineOrder as decline, listIncoming, type Order } from "../commerce/orders_store.ts";
import { listPayments as readPayments } from "../commerce/payments_store.ts";
import { type Refund, refundsOf } from "../commerce/refunds_store.ts";
import { endRefund as end, makeRefund } from "../commerce/stripe_refunds.ts";
import { Seller, sellerInScope } from "./fence.ts";
import { Amount, At, CurrencyCode, orNull, PackagePayment, PackageStart, RowId, text } from "./fields.ts";
import { type Caller, changing, listOperation, operation } from "./operation.ts";
import { checkPayWith, PackageShape, viewOf } from "./packages.ts";

/** Orders that a seller decides, the payments that it got for them, and refunds. Source: BUY-1. */

const SELLERS = ["reseller", "admin"] as const;
const TEXT_LENGTH_MAX = 2000;
const OfOrder = { orderId: RowId };
const PayMethod = Type.Union([Type.Literal("stripe"), Type.Literal("instructions"), Type.Literal("shop")]);

const OrderTaxShape = Type.Object({
  country: Type.String({ description: "Of the seller: ISO 3166-1." }),
  rate: Type.Integer({
    description: "In thousandths of a percent. Of a reverse charge: the rate that is not charged.",
  }),
  reverseCharge: Type.Boolean({ description: "The buyer owes the tax itself." }),
  sellerVatNumber: orNull(Type.String()),
  buyerVatNumber: orNull(Type.String()),
});
const OrderShape = Type.Object(
  {
    orderId: RowId,
    account: Type.Object({ accountId: RowId, name: Type.String(), email: Type.String(), resellerId: orNull(RowId) }),
    kind: Type.Union([Type.Literal("package"), Type.Literal("top_up")]),
    offering: orNull(Type.Object({ offeringId: RowId, name: Type.String() })),
    amountNanoUsd: orNull(Amount),
    note: orNull(Type.String()),
    status: Type.Union([
      Type.Literal("open"),
      Type.Literal("paid"),
      Type.Literal("fulfilled"),
      Type.Literal("refunded"),
      Type.Literal("declined"),
      Type.Literal("withdrawn"),
    ]),
    sellerId: Type.Integer({ minimum: 0, description: "0: the operator." }),
    reference: Type.String(),
    priceNanoUsd: orNull(Amount),
    currency: CurrencyCode,
    netNano: orNull(Amount),
    taxNano: Amount,
    totalNano: orNull(Amount),
    usdRateNano: orNull(Amount),
    tax: orNull(OrderTaxShape),
    unpayable: orNull(Type.Union([Type.Literal("not_on_sale"), Type.Literal("too_old")])),
    method: orNull(PayMethod),
    paidAt: orNull(At),
    waitsFor: orNull(Type.Union([Type.Literal("seller_balance"), Type.Literal("seller")])),
    packageId: orNull(RowId),
    refundedNano: Amount,
    answer: orNull(Type.String()),
    decidedAt: orNull(At),
    createdAt: At,
  },
  { title: "Order" },
);
const RefundShape = Type.Object(
  {
    refundId: RowId,
    paymentId: RowId,
    amountNano: Amount,
    origin: Type.String({ description: "Who began it." }),
    taxNano: Amount,
    shortfallNanoUsd: Amount,
    reason: orNull(Type.String()),
    status: Type.Union([Type.Literal("pending"), Type.Literal("done"), Type.Literal("failed")]),
    problem: orNull(Type.String()),
    createdAt: At,
    canEnd: Type.Boolean({ description: "Stripe cannot be asked any more: say how it ended." }),
  },
  { title: "Refund" },
);
const PaymentShape = Type.Object(
  {
    paymentId: RowId,
    orderId: RowId,
    reference: Type.String(),
    method: PayMethod,
    currency: Type.String(),
    amountNano: Amount,
    problem: orNull(Type.String({ description: "Why it does not pay for its order." })),
    refundedNano: Amount,
    name: Type.String({ description: "Who paid." }),
    isPackage: Type.Boolean(),
    createdAt: At,
    refunds: Type.Array(RefundShape),
    disputes: Type.Array(
      Type.Object({ externalId: Type.String(), status: Type.String(), amountNano: Amount, createdAt: At }),
    ),
  },
  { title: "Payment" },
);

export const listOrders = listOperation({
  name: "orders.list",
  says: "Lists the orders that you decide, newest first.",
  scope: "orders:read",
  roles: SELLERS,
  route: "GET /orders",
  filter: {
    status: Type.Optional(OrderShape.properties.status),
    scope: Type.Optional(
      Type.Union([Type.Literal("house"), Type.Literal("all")], {
        description: "For an admin: also orders that resellers decide, or only its own (house).",
      }),
    ),
  },
  before: Type.Optional(RowId),
  item: OrderShape,
  cursor: ({ orderId }: Order) => orderId,
  async list(_, { caller, read }, { scope, ...page }) {
    const houseOnly = caller.role === "admin" && scope !== "all";
    return read((reading) => listIncoming(reading, { ...page, ...deciderOf(caller), houseOnly }));
  },
});

export const declineOrder = operation({
  name: "orders.decline",
  says: "Declines an open order.",
  scope: "orders:write",
  roles: SELLERS,
  route: "POST /orders/{orderId}/decline",
  input: { ...OfOrder, answer: Type.Optional(orNull(text(TEXT_LENGTH_MAX, "For the customer."))) },
  output: Type.Object({ order: OrderShape }),
  async run(deps, call, { orderId, answer = null }) {
    const decision = { ...deciderOf(call.caller), orderId, answer };
    return { order: await decline(changing(deps, call), decision) };
  },
});

export const fulfilOrder = operation({
  name: "orders.fulfil",
  says: "Marks an open order as paid, if it has a price, and fulfils it. Also fulfils a paid one that waits.",
  scope: "orders:write",
  roles: SELLERS,
  route: "POST /orders/{orderId}/fulfil",
  input: { ...OfOrder, when: Type.Optional(PackageStart), payWith: Type.Optional(PackagePayment) },
  output: Type.Object({ order: OrderShape, package: orNull(PackageShape) }),
  // The rest of the active package is dropped only on request.
  async run(deps, call, { orderId, when = "after", payWith }) {
    const { caller } = call;
    checkPayWith(caller, payWith);
    const wanted = { ...deciderOf(caller), orderId, when, payWith };
    const { order, package: assigned } = await fulfil(changing(deps, call), wanted);
    return { order, package: assigned && viewOf(caller, assigned) };
  },
});

export const listPayments = listOperation({
  name: "payments.list",
  says: "Lists the payments of a seller with their refunds and disputes, newest first.",
  scope: "payments:read",
  roles: SELLERS,
  route: "GET /payments",
  filter: {
    ...Seller,
    show: Type.Optional(
      Type.Union([Type.Literal("all"), Type.Literal("problems"), Type.Literal("disputed"), Type.Literal("to_answer")]),
    ),
  },
  before: Type.Optional(RowId),
  item: PaymentShape,
  cursor: ({ paymentId }: { paymentId: number }) => paymentId,
  async list(deps, { caller }, { sellerId, ...page }) {
    const wanted = { ...page, sellerId: await sellerInScope(deps, caller, sellerId) };
    const { rows, hasMore } = await readPayments(deps, wanted);
    const paymentIds = rows.map(({ paymentId }) => paymentId);
    const [given, disputed] = await Promise.all([refundsOf(deps, paymentIds), disputesOf(deps, { paymentIds })]);
    const refunds = Map.groupBy(given.map(refundView), ({ paymentId }) => paymentId);
    const disputes = Map.groupBy(disputed, ({ paymentId }) => paymentId);
    const withReversals = rows.map((row) => ({
      ...row,
      refunds: refunds.get(row.paymentId) ?? [],
      disputes: disputes.get(row.paymentId) ?? [],
    }));
    return { rows: withReversals, hasMore };
  },
});

export const refundPayment = operation({
  name: "payments.refund",
  says: "Gives a payment back, or a part of it: through Stripe if it was paid there, else it is only recorded.",
  scope: "payments:write",
  roles: SELLERS,
  route: "POST /payments/{paymentId}/refunds",
  input: {
    ...Seller,
    paymentId: RowId,
    amountNano: Type.Transform(
      Type.String({ maxLength: 18, pattern: "^[1-9][0-9]*$", says: "an amount above 0, as a string of digits" }),
    )
      .Decode(BigInt)
      .Encode(String),
    reason: Type.Optional(orNull(text(TEXT_LENGTH_MAX))),
    endPackage: Type.Optional(Type.Boolean({ description: "Ends the package that was paid for." })),
  },
  output: Type.Object({ refund: RefundShape }),
  async run(deps, call, { sellerId, endPackage = false, ...wanted }) {
    const seller = await sellerInScope(deps, call.caller, sellerId);
    const refund = { ...wanted, sellerId: seller, reason: wanted.reason?.trim() || null, endPackage };
    return { refund: refundView(await call.callOut("stripe", () => makeRefund(changing(deps, call), refund))) };
  },
});

export const endRefund = operation({
  name: "payments.end_refund",
  says: "Says how a refund ended for which a former account at Stripe no longer answers.",
  scope: "payments:write",
  roles: SELLERS,
  route: "POST /refunds/{refundId}/end",
  input: { ...Seller, refundId: RowId, isMade: Type.Boolean() },
  output: Type.Object({ refund: RefundShape }),
  async run(deps, call, { sellerId, ...wanted }) {
    const ended = { ...wanted, sellerId: await sellerInScope(deps, call.caller, sellerId) };
    return { refund: refundView(await call.callOut("stripe", () => end(changing(deps, call), ended))) };
  },
});

function deciderOf({ role, accountId }: Pick<Caller, "role" | "accountId">): Decider {
  return { resellerId: role === "admin" ? null : accountId };
}

export function refundView(refund: Refund): StaticDecode<typeof RefundShape> {
  const { refundId, paymentId, amountNano, taxNano, origin, shortfallNanoUsd, reason, status, problem, createdAt } =
    refund;
  // Not before Stripe was asked in vain.
  const canEnd = status === "pending" && refund.isBeforeChange && problem !== null;
  return {
    refundId,
    paymentId,
    amountNano,
    taxNano,
    origin,
    shortfallNanoUsd,
    reason,
    status,
    problem,
    createdAt,
    canEnd,
  };
}
