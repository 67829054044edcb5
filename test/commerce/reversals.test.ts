import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { takeDispute } from "../../src/commerce/disputes_store.ts";
import { fulfilWaiting } from "../../src/commerce/order_fulfilment_store.ts";
import { failRefund } from "../../src/commerce/refunds_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { ok } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import type { Disputed, Made, Session } from "./stripe_stand_in.ts";

/** Reversals by Stripe: refunds made in its dashboard, disputes, bank debits that fail. Source: BUY-3, BUY-4, BUY-10, BUY-11. */
const CENT = USD / 100n;
let pay: PayShop;

beforeAll(async () => {
  pay = await openPayShop();
});
afterAll(() => pay.close());

type Sold = Awaited<ReturnType<typeof sold>>;

/** A paid order of $10: a top-up, or a package. */
async function sold(kind: "top_up" | "package" = "top_up", of: "house" | "acme" = "house") {
  const sellerId = of === "acme" ? pay.acme.accountId : 0;
  if (of === "acme") await pay.topUp(pay.acme, 20n * USD);
  const buyer = await pay.newcomer(of);
  const wanted =
    kind === "top_up"
      ? { kind, amountNanoUsd: String(10n * USD) }
      : { kind, offeringId: await pay.offering(10n * USD) };
  const order = await pay.order(buyer, wanted);
  ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
  const session: Session = pay.stripe.pay(order.reference);
  ok(await pay.hook(sellerId, { ...session }));
  return { sellerId, buyer, order, session, seller: of === "acme" ? pay.as.acme : pay.as.admin };
}
const tells = ({ sellerId }: { sellerId: number }, type: string, object: Made | Disputed | object) =>
  pay.hook(sellerId, object, { type });
const charge = ({ session }: Sold) => ({ id: "ch_1", object: "charge", payment_intent: session.payment_intent });
const spend = ({ accountId }: { accountId: number }, nano: bigint) =>
  pay.sql`select add_balance(${accountId}, ${String(-nano)}, 'correction', 'spent', null)`;
const refundsOf = ({ order }: Sold) =>
  pay.sql`select origin, status, amount_nano::text as nano, shortfall_nano_usd::text as short, external_id, problem
    from refunds where order_id = ${order.orderId} order by id`;
const invoicesOf = ({ order }: Sold) =>
  pay.sql`select kind, number, corrects_number as corrects, total_nano::text as total from invoices
    where order_id = ${order.orderId} order by number`;
const toldOf = async (kind: string, { order }: Sold) =>
  (
    await pay.sql`select data from outbox_messages where kind = ${kind} and (data ->> 'orderId')::bigint = ${order.orderId}`
  ).map(({ data }) => data);
/** Returns when this many transactions wait for the locks of a buyer and its seller. */
const waitersFor = ({ buyer, sellerId }: Sold, many: number) =>
  until(async () => {
    const found = await pay.sql`select 1 from pg_locks where locktype = 'advisory' and not granted
      and objid in (${buyer.accountId}, ${sellerId}) and database = (select oid from pg_database where datname = current_database())`;
    return found.length >= many;
  });
async function shownTo({ seller, order }: Sold) {
  const { payments } = ok(await seller.get("/payments"));
  return payments.find(({ orderId }: { orderId: number }) => orderId === order.orderId);
}

describe("a refund made in Stripe's dashboard", () => {
  test("is recorded as one refund, whatever the number, order and concurrency of its events", async () => {
    const it = await sold();
    const made = pay.stripe.refundInDashboard(it.session, 400, { reason: "requested_by_customer" });
    const events = [
      ["refund.updated", made],
      ["charge.refunded", charge(it)],
      ["refund.created", { ...made, status: "pending" }],
      ["charge.refund.updated", made],
    ] as const;
    const answers = await Promise.all([...events, ...events, ...events].map(([type, about]) => tells(it, type, about)));
    for (const { status } of answers) expect([200, 503]).toContain(status);
    ok(await tells(it, "refund.created", made));
    expect([...(await refundsOf(it))]).toEqual([
      { origin: "stripe", status: "done", nano: String(4n * USD), short: "0", external_id: made.id, problem: null },
    ]);
    expect(await pay.balanceOf(it.buyer)).toBe(6n * USD);
    expect((await invoicesOf(it)).map(({ kind, total }) => [kind, total])).toEqual([
      ["invoice", String(10n * USD)],
      ["credit_note", String(4n * USD)],
    ]);
    expect(await toldOf("refund_made", it)).toMatchObject([{ refundNano: String(4n * USD), currency: "usd" }]);
    expect(await toldOf("refund_shortfall", it)).toEqual([]);
    expect(await shownTo(it)).toMatchObject({ refundedNano: String(4n * USD), refunds: [{ origin: "stripe" }] });
  });

  test("is recorded part by part, in addition to a refund that was made in the panel", async () => {
    const it = await sold();
    const { paymentId } = await shownTo(it);
    pay.stripe.refundInDashboard(it.session, 100);
    pay.stripe.refundInDashboard(it.session, 250);
    ok(await it.seller.post(`/payments/${paymentId}/refunds`, { amountNano: String(5n * USD) }));
    ok(await tells(it, "charge.refunded", charge(it)));
    expect((await refundsOf(it)).map(({ origin, nano }) => [origin, nano])).toEqual([
      ["seller", String(5n * USD)],
      ["stripe", String(1n * USD)],
      ["stripe", String(250n * CENT)],
    ]);
    expect(await pay.balanceOf(it.buyer)).toBe(150n * CENT);
    const more = await it.seller.post(`/payments/${paymentId}/refunds`, { amountNano: String(2n * USD) });
    expectRefusal(more, "validation_failed", { param: "amountNano" });
  });

  test("is found in Stripe's list of events if its webhook was lost", async () => {
    const it = await sold("top_up", "acme");
    const made = pay.stripe.refundInDashboard(it.session, 300);
    pay.stripe.happened("refund.created", made);
    await pay.sql`update stripe_reads set due_at = now()`;
    await until(async () => (await refundsOf(it)).length === 1);
    expect(await pay.balanceOf(it.buyer)).toBe(7n * USD);
    // The next reading of the list has it again.
    await pay.sql`update stripe_reads set due_at = now()`;
    const [read] = await pay.sql`select read_until from stripe_reads where seller_id = ${it.sellerId}`;
    await until(async () => {
      const [next] = await pay.sql`select read_until from stripe_reads where seller_id = ${it.sellerId}`;
      return String(next?.read_until) !== String(read?.read_until);
    });
    expect(await refundsOf(it)).toHaveLength(1);
  });

  test("gets 503 while Stripe does not answer, and is recorded when the event is repeated", async () => {
    const it = await sold();
    const made = pay.stripe.refundInDashboard(it.session, 1000);
    pay.stripe.setDown(true);
    expectRefusal(await tells(it, "refund.created", made), "service_unavailable");
    pay.stripe.setDown(false);
    expect(await refundsOf(it)).toHaveLength(0);
    ok(await tells(it, "refund.created", made));
    expect(await pay.balanceOf(it.buyer)).toBe(0n);
  });

  test("of money that was spent takes at most the rest of the balance, and the seller is told the shortfall", async () => {
    const it = await sold("top_up", "acme");
    const before = await pay.balanceOf(pay.acme);
    await spend(it.buyer, 8n * USD);
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 700)));
    expect(await pay.balanceOf(it.buyer)).toBe(0n);
    expect(await pay.balanceOf(pay.acme)).toBe(before + 2n * USD);
    expect(await refundsOf(it)).toMatchObject([{ status: "done", nano: String(7n * USD), short: String(5n * USD) }]);
    expect(await toldOf("refund_shortfall", it)).toMatchObject([
      { refundNano: String(7n * USD), shortfallNanoUsd: String(5n * USD), origin: "stripe" },
    ]);
    expect((await shownTo(it)).refunds).toMatchObject([{ shortfallNanoUsd: String(5n * USD) }]);
    // All of it is spent, so there is no entry.
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 300)));
    expect(await pay.balanceOf(it.buyer)).toBe(0n);
    expect((await refundsOf(it)).map(({ short }) => short)).toEqual([String(5n * USD), String(3n * USD)]);
  });

  test("of a package leaves the decision about the package to the seller", async () => {
    const it = await sold("package");
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 1000)));
    expect(await refundsOf(it)).toMatchObject([{ status: "done", nano: String(10n * USD), short: "0" }]);
    const [bought] = await pay.sql`select ended_early from packages where account_id = ${it.buyer.accountId}`;
    expect(bought?.ended_early).toBeNull();
  });

  /** A package of the reseller for $10, paid by card while its balance is zero. */
  async function waiting(): Promise<Sold> {
    await pay.sql`select add_balance(${pay.acme.accountId}, -balance_nano_usd, 'correction', 'x', null) from balances
      where account_id = ${pay.acme.accountId} and balance_nano_usd > 0`;
    const buyer = await pay.newcomer("acme");
    const order = await pay.order(buyer, { kind: "package", offeringId: await pay.offering(10n * USD) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const session = pay.stripe.pay(order.reference);
    const sellerId = pay.acme.accountId;
    ok(await pay.hook(sellerId, { ...session }));
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "paid", waits_for: "seller_balance" });
    return { ...{ sellerId, buyer, order, session }, seller: pay.as.acme };
  }

  test("of an order that waits cancels the order if it is whole; after a part the order waits for the seller", async () => {
    const it = await waiting();
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 300)));
    expect(await pay.orderRow(it.order.orderId)).toMatchObject({ status: "paid", waits_for: "seller", try_at: null });
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 700)));
    expect(await pay.orderRow(it.order.orderId)).toMatchObject({ status: "refunded", package_id: null });
  });

  test("of a part of an order that waits: the seller refunds the rest in the panel, and the order is refunded", async () => {
    const it = await waiting();
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 300)));
    const { paymentId } = await shownTo(it);
    const give = (nano: bigint) => it.seller.post(`/payments/${paymentId}/refunds`, { amountNano: String(nano) });
    for (const nano of [6n * USD, 10n * USD])
      expectRefusal(await give(nano), "validation_failed", { param: "amountNano" });
    expect(ok(await give(7n * USD)).refund.status).toBe("done");
    expect(await pay.orderRow(it.order.orderId)).toMatchObject({ status: "refunded", package_id: null });
    expect((await invoicesOf(it)).map(({ kind, total }) => [kind, total])).toEqual([
      ["invoice", String(10n * USD)],
      ["credit_note", String(3n * USD)],
      ["credit_note", String(7n * USD)],
    ]);
  });

  test("of a part of an order that a replica is about to fulfil: the order waits for the seller and is not fulfilled", async () => {
    const it = await waiting();
    const { orderId } = it.order;
    const db = pay.world.openDb();
    const deps = { db, bus: inProcessBus(quietLog().log) };
    const holder = await pay.sql.reserve();
    try {
      await holder`begin`;
      await holder`select lock_accounts(array[${it.buyer.accountId}]::bigint[])`;
      await pay.topUp(pay.acme, 20n * USD);
      const told = tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 300));
      await waitersFor(it, 1);
      await pay.sql`update orders set try_at = now() where id = ${orderId}`;
      const filled = fulfilWaiting(deps, { ordersMax: 50, onFailure: (error) => expect(error).toBeUndefined() });
      await waitersFor(it, 2);
      await holder`commit`;
      ok(await told);
      await filled;
    } finally {
      holder.release();
      await db.close();
    }
    expect(await pay.orderRow(orderId)).toMatchObject({ status: "paid", waits_for: "seller", try_at: null });
    expect(await pay.sql`select 1 from packages where account_id = ${it.buyer.accountId}`).toHaveLength(0);
    // The seller may still fulfil it.
    ok(await it.seller.post(`/orders/${orderId}/fulfil`, {}));
  });

  test("that the bank delays is pending, gets a credit note when it succeeds, and is returned to the balance if it fails", async () => {
    const it = await sold();
    const made = pay.stripe.refundInDashboard(it.session, 400, { status: "pending" });
    ok(await tells(it, "refund.created", made));
    expect(await refundsOf(it)).toMatchObject([{ status: "pending" }]);
    expect(await pay.balanceOf(it.buyer)).toBe(6n * USD);
    expect(await invoicesOf(it)).toHaveLength(1);
    // Stripe has accepted it: a refusal of an earlier request for it, by a replica that is late, changes nothing.
    const db = pay.world.openDb();
    const [row] = await pay.sql`select id from refunds where order_id = ${it.order.orderId}`;
    await failRefund({ db, bus: inProcessBus(quietLog().log) }, Number(row?.id), "refused");
    await db.close();
    expect(await refundsOf(it)).toMatchObject([{ status: "pending" }]);
    const shown = ok(await it.buyer.get(`/orders/${it.order.orderId}`)).invoice;
    made.status = "succeeded";
    ok(await tells(it, "refund.updated", made));
    expect(await refundsOf(it)).toMatchObject([{ status: "done" }]);
    // Days later the bank returns it.
    Object.assign(made, { status: "failed", failure_reason: "expired_or_canceled_card" });
    ok(await tells(it, "refund.failed", made));
    expect(await refundsOf(it)).toMatchObject([
      { status: "failed", problem: "Stripe could not make it: expired or canceled card." },
    ]);
    expect(await pay.balanceOf(it.buyer)).toBe(10n * USD);
    const [invoice, note, again] = await invoicesOf(it);
    // The order's page still has the order's invoice.
    expect(ok(await it.buyer.get(`/orders/${it.order.orderId}`)).invoice).toEqual(shown);
    expect([note?.corrects, again?.kind, again?.corrects, again?.total]).toEqual([
      invoice?.number,
      "invoice",
      note?.number,
      String(4n * USD),
    ]);
    // An old event does not repeat it.
    ok(await tells(it, "refund.updated", { ...made, status: "succeeded" }));
    expect(await refundsOf(it)).toMatchObject([{ status: "failed" }]);
    // All of it can be refunded.
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 1000)));
    expect(await pay.balanceOf(it.buyer)).toBe(0n);
    expect(await refundsOf(it)).toMatchObject([{ status: "failed" }, { status: "done", nano: String(10n * USD) }]);
  });

  test("that fails after the reseller spent the money says so, and is returned once there is enough", async () => {
    const it = await sold("top_up", "acme");
    const made = pay.stripe.refundInDashboard(it.session, 1000);
    ok(await tells(it, "refund.created", made));
    await pay.sql`select add_balance(${pay.acme.accountId}, -balance_nano_usd, 'correction', 'x', null) from balances
      where account_id = ${pay.acme.accountId}`;
    made.status = "failed";
    expectRefusal(await tells(it, "refund.failed", made), "service_unavailable");
    expect((await shownTo(it)).refunds).toMatchObject([
      { status: "done", problem: expect.stringContaining("top it up") },
    ]);
    await pay.topUp(pay.acme, 10n * USD);
    ok(await tells(it, "refund.failed", made));
    expect(await refundsOf(it)).toMatchObject([{ status: "failed" }]);
    expect(await pay.balanceOf(it.buyer)).toBe(10n * USD);
    expect(await pay.balanceOf(pay.acme)).toBe(0n);
  });

  test("that failed or was cancelled before its first event takes nothing", async () => {
    const it = await sold();
    ok(await tells(it, "refund.failed", pay.stripe.refundInDashboard(it.session, 400, { status: "failed" })));
    ok(await tells(it, "refund.updated", pay.stripe.refundInDashboard(it.session, 400, { status: "canceled" })));
    expect(await refundsOf(it)).toHaveLength(0);
    expect(await pay.balanceOf(it.buyer)).toBe(10n * USD);
  });

  test("larger than the rest of the payment is recorded up to the rest, and says so; a refund requested here is settled first", async () => {
    const it = await sold();
    pay.stripe.setDown(true);
    const { paymentId } = await shownTo(it);
    const own = ok(await it.seller.post(`/payments/${paymentId}/refunds`, { amountNano: String(6n * USD) })).refund;
    expect(own.status).toBe("pending");
    pay.stripe.setDown(false);
    const made = pay.stripe.refundInDashboard(it.session, 700);
    expectRefusal(await tells(it, "refund.created", made), "service_unavailable");
    await pay.sql`update refunds set try_at = now() where id = ${own.refundId}`;
    await until(async () => (await refundsOf(it))[0]?.status === "failed");
    ok(await tells(it, "refund.created", made));
    expect(await refundsOf(it)).toMatchObject([{ origin: "seller" }, { nano: String(7n * USD), problem: null }]);
    expect(await pay.balanceOf(it.buyer)).toBe(3n * USD);
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 900)));
    const [, , capped] = await refundsOf(it);
    expect(capped).toMatchObject({ nano: String(3n * USD), problem: expect.stringContaining("more than was left") });
    expect(await pay.balanceOf(it.buyer)).toBe(0n);
  });

  test("of another seller's payment, or of an unknown payment, changes nothing", async () => {
    const it = await sold();
    const made = pay.stripe.refundInDashboard(it.session, 400);
    // Signed by the reseller, about a payment of the operator.
    ok(await tells({ sellerId: pay.acme.accountId }, "refund.created", made));
    ok(await tells(it, "refund.created", { ...made, payment_intent: "pi_of_something_else" }));
    ok(await tells(it, "refund.created", { ...made, payment_intent: null }));
    expect(await refundsOf(it)).toHaveLength(0);
    expect(await pay.balanceOf(it.buyer)).toBe(10n * USD);
    ok(await tells(it, "refund.created", made));
  });

  test("whose event arrives before its payment's records the payment first", async () => {
    const buyer = await pay.newcomer();
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(10n * USD) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const session = pay.stripe.pay(order.reference);
    const it = { sellerId: 0, buyer, order, session, seller: pay.as.admin };
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(session, 400)));
    ok(await pay.hook(0, { ...session }));
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled" });
    expect(await pay.balanceOf(buyer)).toBe(6n * USD);
  });

  test("that Stripe refuses leaves the order waiting, and its top-up can still be fulfilled", async () => {
    await pay.sql`select add_balance(${pay.acme.accountId}, -balance_nano_usd, 'correction', 'x', null) from balances
      where account_id = ${pay.acme.accountId} and balance_nano_usd > 0`;
    const buyer = await pay.newcomer("acme");
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(10n * USD) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    ok(await pay.hook(pay.acme.accountId, { ...pay.stripe.pay(order.reference) }));
    const [payment] = await pay.paymentsOf(order.orderId);
    pay.stripe.refuseRefunds("The charge is disputed.");
    const whole = { amountNano: String(10n * USD) };
    expect(ok(await pay.as.acme.post(`/payments/${payment?.id}/refunds`, whole)).refund.status).toBe("failed");
    pay.stripe.refuseRefunds("");
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "paid", waits_for: "seller" });
    await pay.topUp(pay.acme, 20n * USD);
    ok(await pay.as.acme.post(`/orders/${order.orderId}/fulfil`));
    expect(await pay.balanceOf(buyer)).toBe(10n * USD);
    expect(await pay.world.unbalanced()).toEqual([]);
  });

  test("of a duplicate payment that Stripe refuses does not revive the order, whose own payment was given back", async () => {
    await pay.sql`select add_balance(${pay.acme.accountId}, -balance_nano_usd, 'correction', 'x', null) from balances
      where account_id = ${pay.acme.accountId} and balance_nano_usd > 0`;
    const buyer = await pay.newcomer("acme");
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(10n * USD) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const session = pay.stripe.pay(order.reference);
    ok(await pay.hook(pay.acme.accountId, { ...session }));
    const twice = { ...session, id: `${session.id}_twice`, payment_intent: `${session.payment_intent}_twice` };
    ok(await pay.hook(pay.acme.accountId, twice));
    const [own, duplicate] = await pay.paymentsOf(order.orderId);
    const giveBack = (payment: typeof own) =>
      pay.as.acme.post(`/payments/${payment?.id}/refunds`, { amountNano: String(10n * USD) });
    expect(ok(await giveBack(own)).refund.status).toBe("done");
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "refunded" });
    pay.stripe.refuseRefunds("The charge is disputed.");
    expect(ok(await giveBack(duplicate)).refund.status).toBe("failed");
    pay.stripe.refuseRefunds("");
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "refunded", waits_for: null });
  });

  test("of a duplicate payment takes nothing from the balance, and has no credit note", async () => {
    const it = await sold();
    const twice = { ...it.session, id: "cs_twice", payment_intent: `${it.session.payment_intent}_twice` };
    ok(await pay.hook(0, twice));
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(twice, 1000)));
    expect(await refundsOf(it)).toMatchObject([{ status: "done", nano: String(10n * USD) }]);
    expect(await pay.balanceOf(it.buyer)).toBe(10n * USD);
    expect(await invoicesOf(it)).toHaveLength(1);
  });
});

describe("a dispute", () => {
  test("is shown to the seller with state, amount and deadline, and takes nothing while it is open or if it is won", async () => {
    const it = await sold();
    const disputed = pay.stripe.dispute(it.session, { amount: 900 });
    ok(await tells(it, "charge.dispute.created", disputed));
    ok(await tells(it, "charge.dispute.funds_withdrawn", disputed));
    const open = { status: "needs_response", amountNano: String(9n * USD), isClosed: false, reason: "fraudulent" };
    expect((await shownTo(it)).disputes).toMatchObject([{ ...open, dueAt: "2030-03-17T17:46:40.000Z" }]);
    const { orders } = ok(await it.seller.get("/orders/incoming?status=fulfilled"));
    const shown = orders.find(({ orderId }: { orderId: number }) => orderId === it.order.orderId);
    expect(shown.disputes).toMatchObject([open]);
    expect(await toldOf("dispute_opened", it)).toMatchObject([
      { disputedNano: String(9n * USD), dueAt: expect.any(String) },
    ]);
    expect(await pay.balanceOf(it.buyer)).toBe(10n * USD);
    /** The payments that wait for an answer: the Overview counts what the list has. */
    const toAnswer = async () => {
      const { payments } = ok(await it.seller.get("/payments?show=to_answer"));
      const home = it.sellerId === 0 ? "/admin/overview" : "/home/selling";
      expect(ok(await it.seller.get(home)).disputesToAnswer).toBe(payments.length);
      return payments.filter(({ orderId }: { orderId: number }) => orderId === it.order.orderId).length;
    };
    expect(await toAnswer()).toBe(1);
    disputed.status = "under_review";
    ok(await tells(it, "charge.dispute.updated", disputed));
    expect(await toAnswer()).toBe(0);
    disputed.status = "won";
    await Promise.all([1, 2, 3].map(() => tells(it, "charge.dispute.closed", disputed)));
    // An old event: Stripe's current answer counts.
    ok(await tells(it, "charge.dispute.created", { ...disputed, status: "needs_response" }));
    expect((await shownTo(it)).disputes).toMatchObject([{ status: "won", isClosed: true }]);
    expect(await toldOf("dispute_closed", it)).toHaveLength(1);
    expect(await refundsOf(it)).toHaveLength(0);
    expect(await pay.balanceOf(it.buyer)).toBe(10n * USD);
  });

  test("that is lost is recorded as one refund: the rest of the balance is taken, and the seller is told the shortfall", async () => {
    const it = await sold();
    await spend(it.buyer, 4n * USD);
    const disputed = pay.stripe.dispute(it.session, { status: "lost", evidence_details: { due_by: 0 } });
    await Promise.all([1, 2, 3].map(() => tells(it, "charge.dispute.closed", disputed)));
    ok(await tells(it, "charge.dispute.closed", disputed));
    expect(await refundsOf(it)).toMatchObject([
      { origin: "dispute", status: "done", nano: String(10n * USD), short: String(4n * USD), external_id: disputed.id },
    ]);
    expect(await pay.balanceOf(it.buyer)).toBe(0n);
    expect((await shownTo(it)).disputes).toMatchObject([{ status: "lost", dueAt: null }]);
    expect(await toldOf("refund_shortfall", it)).toMatchObject([{ origin: "dispute" }]);
    // The customer's bank informs the customer.
    expect(await toldOf("refund_made", it)).toEqual([]);
    expect((await invoicesOf(it)).map(({ kind }) => kind)).toEqual(["invoice", "credit_note"]);
    // An appeal is won: the money is back.
    disputed.status = "won";
    ok(await tells(it, "charge.dispute.closed", disputed));
    expect(await refundsOf(it)).toMatchObject([{ status: "failed" }]);
    expect(await pay.balanceOf(it.buyer)).toBe(6n * USD);
    expect((await invoicesOf(it)).map(({ kind }) => kind)).toEqual(["invoice", "credit_note", "invoice"]);
  });

  test("that is lost after a partial refund takes only the rest", async () => {
    const it = await sold();
    ok(await tells(it, "refund.created", pay.stripe.refundInDashboard(it.session, 400)));
    ok(await tells(it, "charge.dispute.closed", pay.stripe.dispute(it.session, { status: "lost" })));
    expect((await refundsOf(it)).map(({ nano }) => nano)).toEqual([String(4n * USD), String(6n * USD)]);
    expect(await pay.balanceOf(it.buyer)).toBe(0n);
  });

  test("has the state of the latest query to Stripe, whatever the order of the answers", async () => {
    const it = await sold();
    const db = pay.world.openDb();
    const said = (status: string, askedAt: string) =>
      takeDispute(
        { db, bus: inProcessBus(quietLog().log) },
        {
          ...{ sellerId: 0, paymentExternalId: String(it.session.payment_intent), externalId: "du_slow" },
          ...{ currency: "usd", amountNano: 10n * USD, reason: "general", status, dueAt: null, askedAt },
        },
      );
    try {
      await said("won", "2026-01-01T00:00:02Z");
      await said("lost", "2026-01-01T00:00:01Z");
    } finally {
      await db.close();
    }
    expect((await shownTo(it)).disputes).toMatchObject([{ status: "won" }]);
    expect(await refundsOf(it)).toHaveLength(0);
  });

  test("that is lost in the bank's currency takes the amount that was paid in dollars", async () => {
    const it = await sold();
    const lost = pay.stripe.dispute(it.session, { status: "lost", currency: "eur", amount: 870 });
    ok(await tells(it, "charge.dispute.closed", lost));
    expect(await refundsOf(it)).toMatchObject([{ nano: String(10n * USD), problem: null }]);
    expect((await shownTo(it)).disputes).toMatchObject([{ currency: "eur", amountNano: String(870n * CENT) }]);
  });

  test("in a currency without cents, or with three decimals, has its amount in that currency", async () => {
    const it = await sold();
    const amounts: [currency: string, amount: number, nano: bigint][] = [
      ["jpy", 1_500, 1_500n * USD],
      ["kwd", 5_120, 5_120n * (USD / 1_000n)],
      ["isk", 150_000, 1_500n * USD],
      ["eur", 870, 870n * CENT],
    ];
    for (const [currency, amount, nano] of amounts) {
      const disputed = pay.stripe.dispute(it.session, { currency, amount, status: "warning_needs_response" });
      ok(await tells(it, "charge.dispute.created", disputed));
      const { disputes } = await shownTo(it);
      const shown = disputes.find(({ externalId }: { externalId: string }) => externalId === disputed.id);
      expect(shown).toMatchObject({ currency, amountNano: String(nano) });
    }
  });

  test("is found in Stripe's list if its webhook was lost, and is shown only to its seller", async () => {
    const it = await sold("package");
    pay.stripe.happened("charge.dispute.created", pay.stripe.dispute(it.session, { status: "warning_needs_response" }));
    await pay.sql`update stripe_reads set due_at = now()`;
    await until(async () => ((await shownTo(it))?.disputes.length ?? 0) === 1);
    expect((await it.buyer.get(`/orders/${it.order.orderId}`)).text).not.toContain("dispute");
    expect((await pay.as.acme.get("/payments")).text).not.toContain(it.order.reference);
  });
});

describe("a bank debit", () => {
  async function debited() {
    const buyer = await pay.newcomer();
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(10n * USD) });
    const { url } = ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const session = Object.assign(pay.stripe.sessionOf(order.reference), {
      status: "complete",
      payment_intent: `pi_debit_${order.orderId}`,
    });
    ok(await pay.hook(0, { ...session }));
    return { buyer, order, session, url };
  }

  test("fulfils nothing while it is pending, and fulfils once when it succeeds", async () => {
    const { buyer, order, session } = await debited();
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open", paid_at: null });
    ok(await buyer.post(`/orders/${order.orderId}/look`));
    expect(await pay.paymentsOf(order.orderId)).toHaveLength(0);
    session.payment_status = "paid";
    const type = "checkout.session.async_payment_succeeded";
    await Promise.all([1, 2, 3].map(() => pay.hook(0, { ...session }, { type })));
    ok(await pay.hook(0, { ...session }, { type }));
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled" });
    expect(await pay.balanceOf(buyer)).toBe(10n * USD);
  });

  for (const how of ["webhook", "question"] as const)
    test(`that fails leaves the order open, is told to the customer once, and allows a new checkout (by ${how})`, async () => {
      const { buyer, order, session, url } = await debited();
      session.failed = true;
      if (how === "webhook")
        for (let i = 0; i < 2; i++)
          ok(await pay.hook(0, { ...session }, { type: "checkout.session.async_payment_failed" }));
      else ok(await buyer.post(`/orders/${order.orderId}/look`));
      expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open", paid_at: null });
      expect((await pay.tells(order.orderId)).filter((kind) => kind === "payment_failed")).toHaveLength(1);
      const again = ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" })).url;
      expect(again).not.toBe(url);
      ok(await pay.hook(0, { ...pay.stripe.pay(order.reference) }));
      expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled" });
    });

  test("whose checkout has expired fulfils nothing", async () => {
    const { order } = await debited();
    const session = { ...pay.stripe.sessionOf(order.reference), status: "expired", payment_intent: null };
    ok(await pay.hook(0, session, { type: "checkout.session.expired" }));
    const [page] = await pay.sql`select status from checkouts where order_id = ${order.orderId}`;
    expect(page?.status).toBe("closed");
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open" });
    expect(await pay.tells(order.orderId)).not.toContain("payment_failed");
  });
});
