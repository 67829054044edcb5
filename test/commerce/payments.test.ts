import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { failRefund } from "../../src/commerce/refunds_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { ok, PANEL, type PanelSession } from "../panel/panel_client.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import { STRIPE_KEY, STRIPE_WEBHOOK_SECRET } from "./stripe_stand_in.ts";

/** Orders and payments: each is chosen, paid and fulfilled once. Source: BUY-1, BUY-2, BUY-3, BUY-4, BUY-5, BUY-6, BUY-7, BUY-8, BUY-9. */
let pay: PayShop;

beforeAll(async () => {
  pay = await openPayShop();
});
afterAll(() => pay.close());

const invoicesOf = (orderId: number) =>
  pay.sql`select kind, number, corrects_number, total_nano::text as total from invoices where order_id = ${orderId} order by id`;
const packagesOf = (accountId: number) => pay.sql`select * from packages where account_id = ${accountId}`;
/** A new customer's order of a package, with its Stripe checkout page open. */
async function opened(of: "house" | "acme" = "house", price = 12n * USD) {
  const buyer = await pay.newcomer(of);
  const offeringId = await pay.offering(price);
  const order = await pay.order(buyer, { kind: "package", offeringId });
  const { url } = ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
  return { buyer, order, url, offeringId };
}

describe("an order", () => {
  test("keeps the price at which it was placed; a top-up costs its amount; the seller sets the price of an offering that has none", async () => {
    const offeringId = await pay.offering(12n * USD);
    const order = await pay.order(pay.as.house, { kind: "package", offeringId });
    expect(order).toMatchObject({ priceNanoUsd: String(12n * USD), status: "open", method: null });
    await pay.sql`update retail_prices set price_nano = ${String(99n * USD)} where offering_id = ${offeringId}`;
    expect(ok(await pay.as.house.get(`/orders/${order.orderId}`)).order.priceNanoUsd).toBe(String(12n * USD));
    const topUp = await pay.order(pay.as.house, { kind: "top_up", amountNanoUsd: String(5n * USD) });
    expect(topUp.priceNanoUsd).toBe(String(5n * USD));
    const unpriced = await pay.world.addOffering();
    expectRefusal(await pay.as.house.post("/orders", { kind: "package", offeringId: unpriced }), "validation_failed", {
      param: "offeringId",
    });
    // While no offering on sale has a price, all of them can be ordered without a price.
    await pay.sql`update offerings set enabled = false where id in (select offering_id from retail_prices where seller_id = 0)`;
    const asked = await pay.order(pay.as.house, { kind: "package", offeringId: unpriced });
    expect(asked.priceNanoUsd).toBeNull();
    expectRefusal(
      await pay.as.house.post(`/orders/${asked.orderId}/pay`, { method: "instructions" }),
      "validation_failed",
      { param: "method" },
    );
    await pay.sql`update offerings set enabled = true`;
    for (const { orderId } of [order, topUp, asked]) ok(await pay.as.house.post(`/orders/${orderId}/withdraw`));
  });

  test("cannot be paid once its offering is not on sale, or after 14 days; money on a page that was open before still pays for it", async () => {
    const { buyer, order, offeringId } = await opened();
    const session = pay.stripe.pay(order.reference);
    const unpayable = async () => ok(await buyer.get(`/orders/${order.orderId}`)).order.unpayable;
    const expectRefused = async (message: string) => {
      for (const method of ["stripe", "shop", "instructions"]) {
        const answer = await buyer.post(`/orders/${order.orderId}/pay`, { method });
        expectRefusal(answer, "validation_failed");
        expect(answer.json.error.message).toContain(message);
      }
    };
    ok(await pay.as.admin.patch(`/admin/offerings/${offeringId}`, { enabled: false }));
    expect(await unpayable()).toBe("not_on_sale");
    await expectRefused("no longer on sale");
    ok(await pay.as.admin.patch(`/admin/offerings/${offeringId}`, { enabled: true }));
    const age = (time: string) =>
      pay.sql`update orders set created_at = clock_timestamp() - ${time}::interval where id = ${order.orderId}`;
    await age("13 days 23 hours");
    expect(await unpayable()).toBeNull();
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "instructions" }));
    await age("14 days 1 second");
    expect(await unpayable()).toBe("too_old");
    await expectRefused("order again");
    ok(await pay.hook(0, { ...session }));
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled" });
    expect(await unpayable()).toBeNull();
  });

  test("shows its buyer neither the seller's id nor the wholesale price, and others nothing", async () => {
    const { buyer, order } = await opened("acme");
    const { text } = await buyer.get(`/orders/${order.orderId}`);
    expect(text).not.toContain("sellerId");
    expect(text).not.toContain("wholesale");
    for (const [path, method] of [
      [`/orders/${order.orderId}`, "GET"],
      [`/orders/${order.orderId}/look`, "POST"],
      [`/orders/${order.orderId}/pay`, "POST"],
    ] as const)
      expectRefusal(
        await pay.as.house.call(path, { method, ...(method === "POST" && { body: { method: "stripe" } }) }),
        "not_found",
      );
  });

  test("is paid by instructions: the seller records the payment by hand, and it is fulfilled", async () => {
    const buyer = await pay.newcomer();
    const order = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
    expect(ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "instructions" }))).toEqual({
      method: "instructions",
      url: null,
    });
    expect(ok(await buyer.get(`/orders/${order.orderId}`)).ways.instructions).toBe("IBAN XX00 1234");
    ok(await pay.as.admin.post(`/orders/${order.orderId}/fulfil`));
    expect(await pay.paymentsOf(order.orderId)).toMatchObject([{ method: "instructions", problem: null }]);
    expect(ok(await buyer.get(`/orders/${order.orderId}`))).toMatchObject({
      order: { status: "fulfilled" },
      package: { state: "active" },
    });
    expect(await pay.tells(order.orderId)).toEqual(["order_placed", "order_paid", "order_fulfilled"]);
  });

  test("starts after the buyer's active package, also if fulfilled by hand, unless the seller asks for now", async () => {
    const buyer = await pay.newcomer();
    await pay.world.givePackage(buyer);
    const offeringId = await pay.offering();
    const fulfilled = async (body: object) => {
      const { orderId } = await pay.order(buyer, { kind: "package", offeringId });
      return ok(await pay.as.admin.post(`/orders/${orderId}/fulfil`, body)).package.state;
    };
    expect(await fulfilled({})).toBe("queued");
    expect(await fulfilled({ when: "now" })).toBe("active");
  });
});

describe("Stripe", () => {
  test("an order is paid by checkout and fulfilled once by the webhook: repeated, late and reordered webhooks change nothing", async () => {
    const { buyer, order, url } = await opened();
    expect(url).toStartWith(pay.stripe.base);
    expect(ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" })).url).toBe(url);
    const session = pay.stripe.sessionOf(order.reference);
    expect(session).toMatchObject({ amount_total: 1200, currency: "usd" });
    // Completed, but the money has not arrived: a bank debit.
    ok(await pay.hook(0, { ...session, status: "complete" }));
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open" });
    const paid = { ...pay.stripe.pay(order.reference) };
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        pay.hook(0, paid, i % 2 ? { type: "checkout.session.async_payment_succeeded" } : {}),
      ),
    );
    for (const { status } of answers) expect([200, 503]).toContain(status);
    ok(await pay.hook(0, paid));
    ok(
      await pay.hook(0, { ...paid, status: "expired", payment_status: "unpaid" }, { type: "checkout.session.expired" }),
    );
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled", waits_for: null });
    expect(await pay.paymentsOf(order.orderId)).toMatchObject([{ method: "stripe", problem: null }]);
    expect(await packagesOf(buyer.accountId)).toHaveLength(1);
    expect(await pay.tells(order.orderId)).toEqual([
      "order_placed",
      "order_paid",
      "payment_received",
      "order_fulfilled",
    ]);
  });

  test("a lost webhook loses no payment: Stripe is asked when the customer returns, and by the upkeep job", async () => {
    const returned = await opened();
    pay.stripe.pay(returned.order.reference);
    expect(ok(await returned.buyer.post(`/orders/${returned.order.orderId}/look`)).order.status).toBe("fulfilled");
    const gone = await opened();
    pay.stripe.pay(gone.order.reference);
    await pay.sql`update checkouts set ask_at = now() where order_id = ${gone.order.orderId}`;
    await until(async () => (await pay.orderRow(gone.order.orderId)).status === "fulfilled");
    expect(await packagesOf(gone.buyer.accountId)).toHaveLength(1);
  });

  test("the checkout of a withdrawn order is expired; money that still arrives is listed for a refund", async () => {
    const { buyer, order } = await opened();
    ok(await buyer.post(`/orders/${order.orderId}/withdraw`));
    const paid = {
      ...pay.stripe.sessionOf(order.reference),
      status: "complete",
      payment_status: "paid",
      payment_intent: "pi_late",
    };
    ok(await buyer.post(`/orders/${order.orderId}/look`));
    expect(pay.stripe.sessionOf(order.reference).status).toBe("expired");
    ok(await pay.hook(0, paid));
    expect(await pay.paymentsOf(order.orderId)).toMatchObject([{ problem: "order_closed" }]);
    expect(await packagesOf(buyer.accountId)).toHaveLength(0);
    const { payments } = ok(await pay.as.admin.get("/payments?show=problems"));
    const [late] = payments.filter(({ orderId }: { orderId: number }) => orderId === order.orderId);
    const { refund } = ok(
      await pay.as.admin.post(`/payments/${late.paymentId}/refunds`, { amountNano: late.amountNano }),
    );
    expect(refund.status).toBe("done");
    expect(pay.stripe.refunds.at(-1)).toMatchObject({ payment_intent: "pi_late", amount: 1200 });
    // The payment paid for nothing, so there is neither an invoice nor a credit note.
    expect([...(await invoicesOf(order.orderId))]).toEqual([]);
    expect((await pay.orderRow(order.orderId)).status).toBe("withdrawn");
  });

  for (const [what, change, problem] of [
    ["a cent too little", { amount_total: 1199 }, "wrong_amount"],
    ["a cent too much", { amount_total: 1201 }, "wrong_amount"],
    ["nothing", { amount_total: 0, payment_status: "no_payment_required" }, "wrong_amount"],
    ["another currency", { currency: "eur" }, "wrong_currency"],
  ] as const)
    test(`${what} is recorded, and fulfils nothing`, async () => {
      const { buyer, order } = await opened();
      ok(await pay.hook(0, { ...pay.stripe.pay(order.reference), ...change }));
      expect(await pay.paymentsOf(order.orderId)).toMatchObject([{ problem }]);
      expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open", paid_at: null });
      expect(await packagesOf(buyer.accountId)).toHaveLength(0);
    });

  test("money paid twice is recorded twice, and buys one package", async () => {
    const { buyer, order } = await opened();
    const paid = { ...pay.stripe.pay(order.reference) };
    ok(await pay.hook(0, paid));
    ok(await pay.hook(0, { ...paid, id: "cs_other", payment_intent: "pi_again" }));
    expect(await pay.paymentsOf(order.orderId)).toMatchObject([{ problem: null }, { problem: "paid_twice" }]);
    expect(await packagesOf(buyer.accountId)).toHaveLength(1);
  });

  test("a webhook that is forged, old, changed, for another seller, too large or not signed changes nothing", async () => {
    const { order } = await opened();
    const paid = { ...pay.stripe.pay(order.reference) };
    const at = Math.floor(Date.now() / 1000);
    const refused = async (sellerId: number, options: object) =>
      expectRefusal(await pay.hook(sellerId, paid, { ...options }), "invalid_request", { param: "stripe-signature" });
    await refused(0, { secret: "whsec_guessed0123456789" });
    await refused(0, { timestamp: at - 310 });
    await refused(pay.acme.accountId, { secret: "whsec_guessed0123456789" });
    const { body, headers } = await pay.stripe.event(paid, { secret: `whsec_0123456789abcdef0123456789abcdef0` });
    const send = (sent: string, with_: Record<string, string> = headers) =>
      pay.shop.call("/api/pay/stripe/0", { host: PANEL, body: sent, headers: with_ });
    expectRefusal(await send(body.replace("1200", "1201")), "invalid_request", { param: "stripe-signature" });
    expectRefusal(await send(`${body} `), "invalid_request", { param: "stripe-signature" });
    expectRefusal(await send(body, {}), "invalid_request", { param: "stripe-signature" });
    expectRefusal(await send(JSON.stringify({ pad: "x".repeat(1024 * 1024) })), "request_too_large");
    expectRefusal(await send("[]"), "invalid_request");
    expectRefusal(await pay.hook(987_654_321, paid, { secret: "whsec_guessed0123456789" }), "not_found");
    // Signed by the reseller, for an order of the operator.
    ok(await pay.hook(pay.acme.accountId, paid));
    expect(await pay.paymentsOf(order.orderId)).toHaveLength(0);
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open" });
    // Other kinds of events are accepted.
    ok(await pay.hook(0, { id: "cs_foreign", payment_status: "paid", metadata: null, amount_total: 5 }));
    ok(
      await pay.hook(0, { id: "cs_foreign", payment_status: "paid", metadata: { order: "'; drop" }, amount_total: 5 }),
    );
    ok(await pay.hook(0, { id: "in_1" }, { type: "invoice.paid" }));
  });

  test("while Stripe is unreachable, or refuses the key, the customer is told, and the order stays open", async () => {
    const buyer = await pay.newcomer();
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(5n * USD) });
    pay.stripe.setDown(true);
    expectRefusal(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }), "service_unavailable");
    pay.stripe.setDown(false);
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const tiny = await pay.order(buyer, { kind: "top_up", amountNanoUsd: "10000000" });
    expectRefusal(await buyer.post(`/orders/${tiny.orderId}/pay`, { method: "stripe" }), "validation_failed", {
      param: "method",
    });
    // As it could be ordered before top-ups had to be whole cents. Five dollars alone can be paid in each of these ways.
    const odd = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(5n * USD) });
    const nano = String(5n * USD + 1n);
    await pay.sql`update orders set amount_nano_usd = ${nano}, price_nano_usd = ${nano} where id = ${odd.orderId}`;
    for (const method of ["stripe", "shop"])
      expectRefusal(await buyer.post(`/orders/${odd.orderId}/pay`, { method }), "validation_failed", {
        param: "method",
      });
    ok(await buyer.post(`/orders/${odd.orderId}/pay`, { method: "instructions" }));
    const bad = { apiKey: "sk_test_revoked000000", webhookSecret: "whsec_0123456789ab" };
    expectRefusal(await pay.as.admin.put("/payment-settings/stripe", { stripe: bad }), "validation_failed", {
      param: "apiKey",
    });
    const publishable = { apiKey: "pk_test_0123456789ab", webhookSecret: "whsec_0123456789ab" };
    expectRefusal(await pay.as.admin.put("/payment-settings/stripe", { stripe: publishable }), "validation_failed", {
      param: "apiKey",
    });
    for (const amountNanoUsd of ["0", "-5", "10000001", "9000000000000001", "1.5", ""])
      expect((await buyer.post("/orders", { kind: "top_up", amountNanoUsd })).json.error).toMatchObject({
        code: "validation_failed",
        param: "amountNanoUsd",
      });
  });
});

describe("a reseller", () => {
  test("is paid by its customer and pays the wholesale price; if it cannot, the order waits as paid, says so, and is fulfilled later", async () => {
    const { buyer, order } = await opened("acme");
    const before = await pay.balanceOf(pay.acme);
    expect(before).toBe(0n);
    ok(await pay.hook(pay.acme.accountId, { ...pay.stripe.pay(order.reference) }));
    expect(ok(await buyer.get(`/orders/${order.orderId}`)).order).toMatchObject({
      status: "paid",
      waitsFor: "seller_balance",
    });
    expect(ok(await pay.as.acme.get("/orders/incoming?status=paid")).orders).toMatchObject([
      { waitsFor: "seller_balance" },
    ]);
    for (const action of ["decline", "withdraw"])
      expectRefusal(
        await (action === "decline" ? pay.as.acme : buyer).post(`/orders/${order.orderId}/${action}`),
        "validation_failed",
      );
    // A second attempt sends no second message.
    await pay.sql`update orders set try_at = now() where id = ${order.orderId}`;
    await until(
      async () => (await pay.sql`select try_at > now() as again from orders where id = ${order.orderId}`)[0]?.again,
    );
    const told = async (kind: string) =>
      (await pay.sql`select data from outbox_messages where kind = ${kind} and account_id = ${buyer.accountId}`).map(
        ({ data }) => data,
      );
    expect(await told("order_waits")).toMatchObject([
      { orderId: order.orderId, sellerId: pay.acme.accountId, waitsFor: "seller_balance" },
    ]);
    expect(await told("order_fulfilled")).toEqual([]);
    await pay.topUp(pay.acme, 10n * USD);
    await pay.sql`update orders set try_at = now() where id = ${order.orderId}`;
    await until(async () => (await pay.orderRow(order.orderId)).status === "fulfilled");
    expect(await pay.balanceOf(pay.acme)).toBe(6n * USD);
    expect(await packagesOf(buyer.accountId)).toHaveLength(1);
    expect(await told("order_fulfilled")).toHaveLength(1);
  });

  test("pays for a customer's paid top-up by a transfer from its balance", async () => {
    await pay.topUp(pay.acme, 10n * USD);
    const before = await pay.balanceOf(pay.acme);
    const buyer = await pay.newcomer("acme");
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(7n * USD) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    ok(await pay.hook(pay.acme.accountId, { ...pay.stripe.pay(order.reference) }));
    expect(await pay.balanceOf(buyer)).toBe(7n * USD);
    expect(await pay.balanceOf(pay.acme)).toBe(before - 7n * USD);
  });

  test("reaches only its own payments, settings and refunds: those of the operator and of its customers are not found", async () => {
    const { order } = await opened("house");
    ok(await pay.hook(0, { ...pay.stripe.pay(order.reference) }));
    const [payment] = await pay.paymentsOf(order.orderId);
    const wanted = { amountNano: "10000000" };
    expectRefusal(await pay.as.acme.post(`/payments/${payment?.id}/refunds`, wanted), "not_found");
    expectRefusal(await pay.as.customer.post(`/payments/${payment?.id}/refunds`, wanted), "not_found");
    expectRefusal(await pay.as.customer.get("/payments"), "not_found");
    expectRefusal(await pay.as.customer.get("/payment-settings"), "not_found");
    const listed = ok(await pay.as.acme.get("/payments")).payments;
    expect(listed.some(({ orderId }: { orderId: number }) => orderId === order.orderId)).toBe(false);
    const { text } = await pay.as.acme.get("/payment-settings");
    expect(text).not.toContain("sk_test");
    expect(text).not.toContain("whsec_");
    const audited = await pay.sql`select before, after from audit_entries where subject = 'sellers'`;
    expect(audited.length).toBeGreaterThan(0);
    expect(JSON.stringify(audited)).toContain("(hidden)");
    expect(JSON.stringify(audited)).not.toContain("\\\\x01");
  });
});

describe("a shop", () => {
  const said = (reference: string, over = {}) => ({
    order: reference,
    amount: "12.00",
    currency: "USD",
    payment_id: `shop-${reference}`,
    ...over,
  });
  async function placed() {
    const buyer = await pay.newcomer();
    const order = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
    const { url } = ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "shop" }));
    return { buyer, order, url };
  }

  test("gets the customer with the order and amount, and reports the payment by a signed webhook; a repeated webhook changes nothing", async () => {
    const { buyer, order, url } = await placed();
    expect(url).toBe(`https://shop.example/pay?order=${order.reference}&amount=12.00&currency=usd`);
    expect(ok(await pay.shopHook(0, said(order.reference)))).toMatchObject({
      known: false,
      status: "fulfilled",
      problem: null,
    });
    expect(ok(await pay.shopHook(0, said(order.reference)))).toMatchObject({ known: true, status: "fulfilled" });
    expect(ok(await pay.shopHook(0, said(order.reference, { payment_id: "other" }))).problem).toBe("paid_twice");
    expect(await packagesOf(buyer.accountId)).toHaveLength(1);
  });

  test("cannot report with a wrong signature, an old timestamp, a changed body, another seller's order or malformed fields", async () => {
    const { order } = await placed();
    const right = said(order.reference);
    const refuse = async (answer: ReturnType<PayShop["shopHook"]>, param: string) =>
      expectRefusal(await answer, "invalid_request", { param });
    const wrong = `whsec_${Buffer.alloc(32).toString("base64")}`;
    await refuse(pay.shopHook(0, right, { secret: wrong }), "webhook-signature");
    await refuse(pay.shopHook(0, right, { at: new Date(Date.now() - 301_000) }), "webhook-signature");
    await refuse(pay.shopHook(0, right, { at: new Date(Date.now() + 330_000) }), "webhook-signature");
    await refuse(
      pay.shopHook(0, right, { sent: JSON.stringify(said(order.reference, { amount: "0.01" })) }),
      "webhook-signature",
    );
    await refuse(
      pay.shopHook(0, right, { secret: pay.shopSecrets.get(pay.acme.accountId) ?? "" }),
      "webhook-signature",
    );
    expectRefusal(await pay.shopHook(pay.acme.accountId, right), "not_found", { param: "order" });
    for (const amount of ["-12.00", "12.001", "1e2", "", "0x10", "99999999999"])
      await refuse(pay.shopHook(0, said(order.reference, { amount })), "amount");
    await refuse(pay.shopHook(0, said(order.reference, { amount: 12 })), "amount");
    await refuse(pay.shopHook(0, said(order.reference, { currency: "dollars" })), "currency");
    await refuse(pay.shopHook(0, said(order.reference, { payment_id: "a\u0000b" })), "payment_id");
    expect(ok(await pay.shopHook(0, said(order.reference, { amount: "0", payment_id: "zero" }))).problem).toBe(
      "wrong_amount",
    );
    expect(ok(await pay.shopHook(0, said(order.reference, { currency: "eur", payment_id: "eur" }))).problem).toBe(
      "wrong_currency",
    );
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open" });
  });

  test("must have an https address, and sees its secret once", async () => {
    for (const shopUrl of ["http://shop.example", "javascript:alert(1)", "https://u:p@shop.example", "x"])
      expectRefusal(await pay.as.admin.put("/payment-settings/shop", { shopUrl }), "validation_failed", {
        param: "shopUrl",
      });
    expect((await pay.as.admin.get("/payment-settings")).text).not.toContain(pay.shopSecrets.get(0) ?? "-");
  });
});

describe("a refund", () => {
  async function toppedUp(of: "house" | "acme" = "house") {
    if (of === "acme") await pay.topUp(pay.acme, 10n * USD);
    const buyer = await pay.newcomer(of);
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(10n * USD) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const sellerId = of === "acme" ? pay.acme.accountId : 0;
    ok(await pay.hook(sellerId, { ...pay.stripe.pay(order.reference) }));
    const [payment] = await pay.paymentsOf(order.orderId);
    return { buyer, order, paymentId: Number(payment?.id) };
  }
  const refund = (session: PanelSession, paymentId: number, nano: bigint, over = {}) =>
    session.post(`/payments/${paymentId}/refunds`, { amountNano: String(nano), ...over });

  test("takes a top-up from the balance by an entry, through Stripe, in parts, never above the payment", async () => {
    const { buyer, order, paymentId } = await toppedUp();
    expect(ok(await refund(pay.as.admin, paymentId, 4n * USD)).refund.status).toBe("done");
    expect(await pay.balanceOf(buyer)).toBe(6n * USD);
    expectRefusal(await refund(pay.as.admin, paymentId, 7n * USD), "validation_failed", { param: "amountNano" });
    expectRefusal(await refund(pay.as.admin, paymentId, 1n), "validation_failed", { param: "amountNano" });
    expectRefusal(await pay.as.admin.post(`/payments/${paymentId}/refunds`, { amountNano: "0" }), "validation_failed", {
      param: "amountNano",
    });
    expectRefusal(
      await pay.as.admin.post(`/payments/${paymentId}/refunds`, { amountNano: "-5" }),
      "validation_failed",
      { param: "amountNano" },
    );
    const race = await Promise.all(Array.from({ length: 8 }, () => refund(pay.as.admin, paymentId, 5n * USD)));
    expect(race.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(await pay.balanceOf(buyer)).toBe(1n * USD);
    const kinds =
      await pay.sql`select kind, amount_nano_usd::text as nano from balance_entries where account_id = ${buyer.accountId} order by id`;
    expect(kinds.map(({ kind }) => kind)).toEqual(["top_up", "refund", "refund"]);
    expect(pay.stripe.refunds.filter((made) => made.amount === 400 || made.amount === 500)).toHaveLength(2);
    expect(await pay.tells(order.orderId)).toContain("refund_made");
    expect(ok(await buyer.get(`/orders/${order.orderId}`)).order.refundedNano).toBe(String(9n * USD));
    const [invoice, ...notes] = await invoicesOf(order.orderId);
    expect(invoice).toMatchObject({ kind: "invoice", total: String(10n * USD), corrects_number: null });
    expect(notes.map(({ kind, total, corrects_number }) => [kind, total, corrects_number])).toEqual([
      ["credit_note", String(4n * USD), invoice?.number],
      ["credit_note", String(5n * USD), invoice?.number],
    ]);
  });

  test("is limited to what is available: money that was spent is not refunded", async () => {
    const { buyer, paymentId } = await toppedUp();
    await pay.sql`select add_balance(${buyer.accountId}, ${String(-8n * USD)}, 'correction', 'spent', null)`;
    expectRefusal(await refund(pay.as.admin, paymentId, 3n * USD), "insufficient_balance");
    ok(await refund(pay.as.admin, paymentId, 2n * USD));
    expect(await pay.balanceOf(buyer)).toBe(0n);
  });

  test("of a reseller's customer goes back to the reseller's balance, from which the top-up came", async () => {
    const { buyer, paymentId } = await toppedUp("acme");
    const before = await pay.balanceOf(pay.acme);
    ok(await refund(pay.as.acme, paymentId, 10n * USD));
    expect(await pay.balanceOf(pay.acme)).toBe(before + 10n * USD);
    expect(await pay.balanceOf(buyer)).toBe(0n);
  });

  test("of a reseller's customer whose top-up the operator paid changes no balance of the reseller, made or failed", async () => {
    const empty = () =>
      pay.sql`select add_balance(${pay.acme.accountId}, -balance_nano_usd, 'correction', 'x', null) from balances where account_id = ${pay.acme.accountId}`;
    await empty();
    const buyer = await pay.newcomer("acme");
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(10n * USD) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    ok(await pay.hook(pay.acme.accountId, { ...pay.stripe.pay(order.reference) }));
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "paid", waits_for: "seller_balance" });
    ok(await pay.as.admin.post(`/orders/${order.orderId}/fulfil`, { payWith: "operator" }));
    const paymentId = Number((await pay.paymentsOf(order.orderId))[0]?.id);
    const balances = async () => [await pay.balanceOf(buyer), await pay.balanceOf(pay.acme)];
    ok(await refund(pay.as.acme, paymentId, 4n * USD));
    expect(await balances()).toEqual([6n * USD, 0n]);
    await pay.topUp(pay.acme, 3n * USD);
    pay.stripe.refuseRefunds("The charge is disputed.");
    const failed = ok(await refund(pay.as.acme, paymentId, 6n * USD)).refund;
    pay.stripe.refuseRefunds("");
    expect(failed.status).toBe("failed");
    expect(await balances()).toEqual([6n * USD, 3n * USD]);
    await empty();
  });

  test("of a package ends it if wanted", async () => {
    const { buyer, order } = await opened();
    ok(await pay.hook(0, { ...pay.stripe.pay(order.reference) }));
    const [payment] = await pay.paymentsOf(order.orderId);
    // All have read the payment before the first of them has the order's lock.
    const race = await pay.sql.begin(async (tx) => {
      await tx`select 1 from orders where id = ${order.orderId} for update`;
      const refunds = Array.from({ length: 4 }, () =>
        refund(pay.as.admin, Number(payment?.id), 12n * USD, { endPackage: true }),
      );
      await sleep(500);
      return { answers: Promise.all(refunds) };
    });
    expect((await race.answers).map(({ status }) => status).sort()).toEqual([200, 422, 422, 422]);
    const [ended] = await packagesOf(buyer.accountId);
    expect(ended?.ended_early).toBe("ended");
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled" });
  });

  test("of an order that waits returns the whole payment, and the order is refunded, never fulfilled", async () => {
    await pay.sql`select add_balance(${pay.acme.accountId}, -balance_nano_usd, 'correction', 'x', null) from balances where account_id = ${pay.acme.accountId}`;
    const { order } = await opened("acme");
    ok(await pay.hook(pay.acme.accountId, { ...pay.stripe.pay(order.reference) }));
    const [payment] = await pay.paymentsOf(order.orderId);
    expectRefusal(await refund(pay.as.acme, Number(payment?.id), 1n * USD), "validation_failed", {
      param: "amountNano",
    });
    ok(await refund(pay.as.acme, Number(payment?.id), 12n * USD));
    await pay.topUp(pay.acme, 50n * USD);
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "refunded", package_id: null });
    expectRefusal(await pay.as.acme.post(`/orders/${order.orderId}/fulfil`), "validation_failed");
  });

  test("of a payment in a currency without cents, or with three decimals, is requested in that currency's unit", async () => {
    const cases: [currency: string, amount: number, nano: bigint, tooFine: bigint][] = [
      ["jpy", 1_500, 1_500n * USD, USD / 2n],
      ["kwd", 5_120, 5_120n * (USD / 1_000n), USD / 1_000n],
    ];
    for (const [currency, amount, nano, tooFine] of cases) {
      const { buyer, order } = await opened();
      const session = Object.assign(pay.stripe.pay(order.reference), { currency, amount_total: amount });
      ok(await pay.hook(0, { ...session }));
      const [payment] = await pay.paymentsOf(order.orderId);
      expect(payment).toMatchObject({ problem: "wrong_currency", currency, amount_nano: String(nano) });
      expectRefusal(await refund(pay.as.admin, Number(payment?.id), tooFine), "validation_failed", {
        param: "amountNano",
      });
      expect(ok(await refund(pay.as.admin, Number(payment?.id), nano)).refund).toMatchObject({
        status: "done",
        amountNano: String(nano),
      });
      expect(pay.stripe.refunds.at(-1)).toMatchObject({ currency, amount });
      // It is no amount in dollars.
      expect(ok(await buyer.get(`/orders/${order.orderId}`)).order.refundedNano).toBe("0");
    }
  });

  test("that Stripe refuses for good fails, and the balance gets the money back; one without an answer is requested again, and made once", async () => {
    const { buyer, paymentId } = await toppedUp();
    pay.stripe.refuseRefunds("The charge is disputed.");
    const failed = ok(await refund(pay.as.admin, paymentId, 4n * USD)).refund;
    expect(failed).toMatchObject({ status: "failed", problem: "The charge is disputed." });
    expect(await pay.balanceOf(buyer)).toBe(10n * USD);
    // Another replica has the same answer, later.
    const db = pay.world.openDb();
    const again = await failRefund({ db, bus: inProcessBus(quietLog().log) }, failed.refundId, "again");
    await db.close();
    expect(again).toMatchObject({ status: "failed", problem: "The charge is disputed." });
    expect(await pay.balanceOf(buyer)).toBe(10n * USD);
    pay.stripe.refuseRefunds("");
    pay.stripe.setDown(true);
    const { refund: waiting } = ok(await refund(pay.as.admin, paymentId, 3n * USD));
    expect(waiting.status).toBe("pending");
    expect(await pay.balanceOf(buyer)).toBe(7n * USD);
    pay.stripe.setDown(false);
    await pay.sql`update refunds set try_at = now() where id = ${waiting.refundId}`;
    const state = async () => (await pay.sql`select status from refunds where id = ${waiting.refundId}`)[0]?.status;
    await until(async () => (await state()) === "done");
    expect(pay.stripe.refunds.filter(({ amount }) => amount === 300)).toHaveLength(1);
  });

  test("through Stripe is refused while no key is set, and takes nothing", async () => {
    const { buyer, paymentId } = await toppedUp("acme");
    ok(await pay.as.acme.put("/payment-settings/stripe", { stripe: null }));
    expectRefusal(await refund(pay.as.acme, paymentId, 4n * USD), "validation_failed");
    expect(await pay.balanceOf(buyer)).toBe(10n * USD);
    const { accountId } = pay.acme;
    const keys = { apiKey: `${STRIPE_KEY}${accountId}`, webhookSecret: `${STRIPE_WEBHOOK_SECRET}${accountId}` };
    ok(await pay.as.acme.put("/payment-settings/stripe", { stripe: keys }));
    expect(ok(await refund(pay.as.acme, paymentId, 4n * USD)).refund.status).toBe("done");
  });

  test("that Stripe has made, and whose answer was lost, is found there a day later, and made once", async () => {
    const { buyer, paymentId } = await toppedUp();
    pay.stripe.loseAnswers(true);
    const { refund: lost } = ok(await refund(pay.as.admin, paymentId, 4n * USD));
    pay.stripe.loseAnswers(false);
    pay.stripe.forgetKeys();
    expect(lost.status).toBe("pending");
    await pay.sql`update refunds set try_at = now() where id = ${lost.refundId}`;
    const row = async () => (await pay.sql`select * from refunds where id = ${lost.refundId}`)[0];
    await until(async () => (await row())?.status === "done");
    const key = (await row())?.request_key;
    expect(pay.stripe.refunds.filter(({ metadata }) => metadata.refund_key === key)).toHaveLength(1);
    expect(await pay.balanceOf(buyer)).toBe(6n * USD);
  });

  test("whose money cannot be returned to the balance now is kept, and its form makes no second refund", async () => {
    const { buyer, paymentId } = await toppedUp();
    const add = (nano: bigint) =>
      pay.sql`select add_balance(${buyer.accountId}, ${String(nano)}, 'correction', 'x', null)`;
    const form = { "idempotency-key": "refund-form-1" };
    const send = () => pay.as.admin.post(`/payments/${paymentId}/refunds`, { amountNano: String(4n * USD) }, form);
    const room = 9_000_000n * USD - 6n * USD;
    pay.stripe.refuseRefunds("The charge is disputed.");
    // The balance is filled up to its limit while Stripe is called.
    pay.stripe.whenRefunding(() => add(room));
    const { refund: kept } = ok(await send());
    pay.stripe.whenRefunding(async () => {});
    expect(kept).toMatchObject({ status: "pending", problem: "The charge is disputed." });
    expectRefusal(await send(), "idempotency_conflict");
    expect(await pay.sql`select 1 from refunds where payment_id = ${paymentId}`).toHaveLength(1);
    await add(-room);
    await pay.sql`update refunds set try_at = now() where id = ${kept.refundId}`;
    const state = async () => (await pay.sql`select status from refunds where id = ${kept.refundId}`)[0]?.status;
    await until(async () => (await state()) === "failed");
    pay.stripe.refuseRefunds("");
    expect(await pay.balanceOf(buyer)).toBe(10n * USD);
  });
});
