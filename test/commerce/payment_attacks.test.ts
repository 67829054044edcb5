import { afterAll, beforeAll, expect, test } from "bun:test";
import Stripe from "stripe";
import { checkoutOf } from "../../src/commerce/checkouts_store.ts";
import { findOrder } from "../../src/commerce/orders_store.ts";
import { askAboutDue } from "../../src/commerce/stripe_checkout.ts";
import { isFinal } from "../../src/commerce/stripe_client.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { runCli } from "../cli/cli_process.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { ok, type PanelSession } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import { STRIPE_KEY, STRIPE_WEBHOOK_SECRET } from "./stripe_stand_in.ts";

/** Attempts of buyers to pay less, and concurrent reports of payments. Source: BUY-2, BUY-3, BUY-5. */
let pay: PayShop;

beforeAll(async () => {
  pay = await openPayShop();
});
afterAll(() => pay.close());

const packagesOf = (accountId: number) => pay.sql`select * from packages where account_id = ${accountId}`;

test("a checkout that this service did not create pays for no order, even with the order's reference and price", async () => {
  const buyer = await pay.newcomer();
  const order = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
  ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
  // A payment link of the same Stripe account, for a mug of the same price: the payer chooses its client_reference_id in the URL.
  const mug = {
    id: "cs_test_mug",
    status: "complete",
    payment_status: "paid",
    payment_intent: "pi_mug",
    client_reference_id: order.reference,
    amount_total: 1200,
    currency: "usd",
    metadata: {},
  };
  ok(await pay.hook(0, mug));
  expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open", paid_at: null });
  expect(await pay.paymentsOf(order.orderId)).toHaveLength(0);
  expect(await packagesOf(buyer.accountId)).toHaveLength(0);
  // The order's own page still works.
  ok(await pay.hook(0, pay.stripe.pay(order.reference)));
  expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled" });
});

test("a refund whose first call Stripe is still processing has not failed: its amount is not returned to the balance", () => {
  const { StripeIdempotencyError, StripeInvalidRequestError } = Stripe.errors;
  const inUse = { code: "idempotency_key_in_use", message: "in use", statusCode: 409 };
  expect(isFinal(new StripeIdempotencyError({ ...inUse, type: "idempotency_error" }))).toBe(false);
  expect(isFinal(new StripeInvalidRequestError({ ...inUse, type: "invalid_request_error" }))).toBe(false);
  const refused = { type: "invalid_request_error", code: "charge_disputed", message: "no", statusCode: 400 } as const;
  expect(isFinal(new StripeInvalidRequestError(refused))).toBe(true);
});

test("one of three concurrent reports of a payment, by Stripe, a shop and the seller, pays for the order; it is fulfilled once", async () => {
  for (let round = 0; round < 5; round++) {
    const buyer = await pay.newcomer();
    const order = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const paid = { ...pay.stripe.pay(order.reference) };
    const said = { order: order.reference, amount: "12.00", currency: "usd", payment_id: `p${round}` };
    await Promise.all([
      pay.hook(0, paid),
      pay.shopHook(0, said),
      pay.as.admin.post(`/orders/${order.orderId}/fulfil`),
      buyer.post(`/orders/${order.orderId}/withdraw`),
      pay.as.admin.post(`/orders/${order.orderId}/decline`, {}),
      pay.hook(0, paid),
      pay.shopHook(0, said),
    ]);
    const row = await pay.orderRow(order.orderId);
    const payments = await pay.paymentsOf(order.orderId);
    const isFulfilled = row.status === "fulfilled";
    expect(["fulfilled", "withdrawn", "declined"]).toContain(String(row.status));
    expect(payments.filter(({ problem }) => problem === null)).toHaveLength(isFulfilled ? 1 : 0);
    expect(await packagesOf(buyer.accountId)).toHaveLength(isFulfilled ? 1 : 0);
  }
});

test("a webhook, the buyer's return and the upkeep, repeated and concurrent, record one payment", async () => {
  const db = pay.world.openDb();
  const { log } = quietLog();
  const config = {
    secretKey: Buffer.from(TEST_SECRET_KEY, "base64"),
    stripeApiBase: pay.stripe.base,
    production: false,
    testShop: false,
  };
  const deps = { db, bus: inProcessBus(log), config, log };
  try {
    for (let round = 0; round < 3; round++) {
      const buyer = await pay.newcomer();
      const { orderId, reference } = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
      ok(await buyer.post(`/orders/${orderId}/pay`, { method: "stripe" }));
      const paid = { ...pay.stripe.pay(reference) };
      await pay.sql`update checkouts set ask_at = now() where order_id = ${orderId}`;
      const both = () => [buyer.post(`/orders/${orderId}/look`), pay.hook(0, paid), askAboutDue(deps)];
      await Promise.all([...both(), ...both(), ...both()]);
      await askAboutDue(deps);
      expect(await pay.orderRow(orderId)).toMatchObject({ status: "fulfilled" });
      expect(await pay.paymentsOf(orderId)).toMatchObject([{ problem: null, external_id: paid.payment_intent }]);
      expect(await packagesOf(buyer.accountId)).toHaveLength(1);
      expect(await pay.sql`select 1 from invoices where order_id = ${orderId}`).toHaveLength(1);
    }
  } finally {
    await db.close();
  }
});

test("one payment that a shop reports for two orders at once pays for one of them", async () => {
  for (let round = 0; round < 5; round++) {
    const buyer = await pay.newcomer();
    const wanted = { kind: "top_up", amountNanoUsd: String(5n * USD) };
    const placed = [await pay.order(buyer, wanted), await pay.order(buyer, wanted)];
    const other = await pay.newcomer();
    placed.push(await pay.order(other, wanted));
    const said = placed.map(({ reference }) => ({
      ...{ order: reference, amount: "5.00", currency: "usd", payment_id: `shared-${round}` },
    }));
    const answers = await Promise.all([...said, ...said].map((one) => pay.shopHook(0, one)));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    const states = await Promise.all(placed.map(async ({ orderId }) => (await pay.orderRow(orderId)).status));
    expect(states.sort()).toEqual(["fulfilled", "open", "open"]);
    expect((await pay.balanceOf(buyer)) + (await pay.balanceOf(other))).toBe(5n * USD);
  }
});

test("an order that is marked paid without further options leaves the customer's active package as it is", async () => {
  const buyer = await pay.newcomer();
  const had = await pay.world.givePackage(buyer);
  for (const body of [undefined, {}, { when: "after" }] as const) {
    const order = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
    expect(ok(await pay.as.admin.post(`/orders/${order.orderId}/fulfil`, body)).package.state).toBe("queued");
  }
  const order = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
  const env = { DATABASE_URL: pay.world.url, SPOOL_DIR: pay.world.spoolDir };
  expect(await runCli(`order paid ${order.orderId}`, { env })).toMatchObject({ code: 0, err: "" });
  const [first] = await packagesOf(buyer.accountId);
  expect(first).toMatchObject({ id: String(had), ended_early: null });
  // Only on request.
  const now = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
  expect(ok(await pay.as.admin.post(`/orders/${now.orderId}/fulfil`, { when: "now" })).package.state).toBe("active");
  expect((await packagesOf(buyer.accountId))[0]).toMatchObject({ ended_early: "replaced" });
});

test("an account has at most five open orders, even with concurrent requests", async () => {
  const buyer = await pay.newcomer();
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => buyer.post("/orders", { kind: "top_up", amountNanoUsd: String(USD) })),
  );
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(5);
});

test("a reseller's balance that covers one of ten orders fulfils one; the others follow after a top-up, and the balance is never overdrawn", async () => {
  const offeringId = await pay.offering(12n * USD, 4n * USD);
  const before = await pay.balanceOf(pay.acme);
  await pay.topUp(pay.acme, 5n * USD - before);
  const orders = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const buyer = await pay.newcomer("acme");
      return { buyer, order: await pay.order(buyer, { kind: "package", offeringId }) };
    }),
  );
  await Promise.all(
    orders.map(({ order }, i) =>
      pay.shopHook(pay.acme.accountId, {
        order: order.reference,
        amount: "12.00",
        currency: "USD",
        payment_id: `short${i}`,
      }),
    ),
  );
  const states = async () =>
    Promise.all(orders.map(async ({ order }) => String((await pay.orderRow(order.orderId)).status)));
  expect((await states()).filter((status) => status === "fulfilled")).toHaveLength(1);
  expect(await pay.balanceOf(pay.acme)).toBe(1n * USD);
  await pay.topUp(pay.acme, 35n * USD);
  // The upkeep may be faster: then the order is already fulfilled.
  for (const { order } of orders) await pay.as.acme.post(`/orders/${order.orderId}/fulfil`, { when: "after" });
  expect((await states()).filter((status) => status === "fulfilled")).toHaveLength(10);
  expect(await pay.balanceOf(pay.acme)).toBe(0n);
});

test("concurrent orders, vouchers, refunds and manual fulfilments on a balance that does not cover all create no money, and leave no gap in the numbers", async () => {
  const sellerId = pay.acme.accountId;
  const offeringId = await pay.offering(12n * USD, 4n * USD);
  await pay.topUp(pay.acme, 20n * USD);
  const endsAt = new Date(Date.now() + 86_400_000).toISOString();
  const batch = { name: "fair", amountNanoUsd: String(3n * USD), codes: 6, usesPerCode: 1, endsAt };
  const { csv } = ok(await pay.as.acme.post("/vouchers", batch));
  const codes = [...String(csv).matchAll(/\b(?:[0-9A-Z]{4}-){4}[0-9A-Z]{4}\b/g)].map(([code]) => code);
  expect(codes).toHaveLength(6);
  const said = (order: { reference: string }, amount: string) => ({
    ...{ order: order.reference, amount, currency: "usd", payment_id: order.reference },
  });
  const one = async (n: number) => {
    const buyer = await pay.newcomer("acme");
    const isPackage = n % 2 === 0;
    const wanted = isPackage ? { kind: "package", offeringId } : { kind: "top_up", amountNanoUsd: String(5n * USD) };
    const order = await pay.order(buyer, wanted);
    const hook = said(order, isPackage ? "12.00" : "5.00");
    await Promise.all([
      pay.shopHook(sellerId, hook),
      pay.shopHook(sellerId, hook),
      pay.as.acme.post(`/orders/${order.orderId}/fulfil`, {}),
      buyer.post("/vouchers/redeem", { code: codes[n % codes.length] }),
    ]);
    const [payment] = await pay.paymentsOf(order.orderId);
    const refund = { amountNano: String(payment?.amount_nano) };
    await Promise.all(Array.from({ length: 3 }, () => pay.as.acme.post(`/payments/${payment?.id}/refunds`, refund)));
    return order.orderId as number;
  };
  // The first one alone, while the balance covers it, so that at least one is redeemed and refunded.
  const orderIds = [await one(0), ...(await Promise.all(Array.from({ length: 9 }, (_, n) => one(n + 1))))];
  const [row] = await pay.sql`
    select (select min(balance_nano_usd - held_nano_usd) from balances)::text as least,
      (select count(*)::int from (select order_id from refunds where order_id = any(${orderIds}::bigint[])
        group by order_id having count(*) filter (where status <> 'failed') > 1) twice) as twice,
      (select count(*)::int from (select number, row_number() over (order by number) as place from invoices where seller_id = ${sellerId}) n
        where number <> place) as gaps,
      (select count(*)::int from voucher_uses u join voucher_batches b on b.id = u.batch_id where b.seller_id = ${sellerId}) as redeemed,
      (select used::int from voucher_batches where seller_id = ${sellerId}) as used,
      (select count(*)::int from refunds where order_id = any(${orderIds}::bigint[])) as refunds`;
  expect(BigInt(String(row?.least))).toBeGreaterThanOrEqual(0n);
  expect(Math.min(row?.refunds, row?.used)).toBeGreaterThan(0);
  expect(row).toMatchObject({ twice: 0, gaps: 0, redeemed: row?.used });
});

const page = (buyer: PanelSession, { orderId }: { orderId: number }) =>
  buyer.post(`/orders/${orderId}/pay`, { method: "stripe" });

test("a checkout that Stripe failed to create can be created by the next try, even shortly before it expires and if Stripe replays the error", async () => {
  const buyer = await pay.newcomer();
  const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(5n * USD) });
  pay.stripe.setDown(true);
  expectRefusal(await page(buyer, order), "service_unavailable");
  pay.stripe.setDown(false);
  // A Stripe checkout page lasts at least 30 minutes.
  await pay.sql`update checkouts set expires_at = clock_timestamp() + interval '30 minutes 30 seconds' where order_id = ${order.orderId}`;
  pay.stripe.setBroken(true);
  expectRefusal(await page(buyer, order), "service_unavailable");
  pay.stripe.setBroken(false);
  const { url } = ok(await page(buyer, order));
  expect(url).toBe(pay.stripe.sessionOf(order.reference).url);
  expect(ok(await page(buyer, order)).url).toBe(url);
});

test("an order that is paid before its buyer opens Stripe's page gets no page, not even its earlier one", async () => {
  const db = pay.world.openDb();
  try {
    for (const hasPage of [false, true]) {
      const buyer = await pay.newcomer();
      const { orderId } = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(5n * USD) });
      // The order as it was before the seller marked it paid.
      const open = await findOrder({ db }, { accountId: buyer.accountId, orderId });
      if (hasPage) ok(await page(buyer, open));
      ok(await pay.as.admin.post(`/orders/${orderId}/fulfil`));
      await expect(checkoutOf({ db }, open, "https://panel.example/back")).rejects.toThrow("already fulfilled");
      expect(await pay.sql`select 1 from checkouts where order_id = ${orderId}`).toHaveLength(hasPage ? 1 : 0);
    }
  } finally {
    await db.close();
  }
});

test("a customer whose e-mail address has changed, or is refused by Stripe, can still pay by card", async () => {
  const buyer = await pay.newcomer();
  const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(5n * USD) });
  const address = `new${buyer.accountId}@example.test`;
  const forget = () => pay.sql`update checkouts set session_id = null, url = null where order_id = ${order.orderId}`;
  ok(await page(buyer, order));
  // A crash before the page was recorded: Stripe has kept the first address under its idempotency key.
  await forget();
  await pay.sql`update accounts set email = ${address} where id = ${buyer.accountId}`;
  ok(await page(buyer, order));
  expect(pay.stripe.sessionOf(order.reference).customer_email).toBe(address);
  await forget();
  await pay.sql`update accounts set email = ${`x${address}`} where id = ${buyer.accountId}`;
  pay.stripe.refuseEmail(`x${address}`);
  ok(await page(buyer, order));
  pay.stripe.refuseEmail("");
  expect(pay.stripe.sessionOf(order.reference).customer_email).toBeNull();
  // All concurrent attempts get one page.
  await forget();
  const urls = await Promise.all(Array.from({ length: 5 }, () => page(buyer, order)));
  expect(new Set(urls.map((answer) => ok(answer).url)).size).toBe(1);
});

/** Two accounts at Stripe; the first is the operator's. */
const [own, other] = [`${STRIPE_KEY}0`, `${STRIPE_KEY}other`];
const secretsOf = (apiKey: string) => ({ stripe: { apiKey, webhookSecret: `${STRIPE_WEBHOOK_SECRET}0` } });
const put = (body: object) => pay.as.admin.put("/payment-settings/stripe", body);

test("no open checkout of a seller's former Stripe account can be paid", async () => {
  const statusOf = ({ reference }: { reference: string }) => pay.stripe.sessionOf(reference).status;
  const opened = async () => {
    const buyer = await pay.newcomer();
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(5n * USD) });
    ok(await page(buyer, order));
    return { buyer, order };
  };
  try {
    const [open, paid] = [await opened(), await opened()];
    // The same account: the page stays.
    ok(await put(secretsOf(own)));
    expect(statusOf(open.order)).toBe("open");
    // Its webhook is lost.
    pay.stripe.pay(paid.order.reference);
    ok(await put(secretsOf(other)));
    expect(statusOf(open.order)).toBe("expired");
    expect(await pay.orderRow(paid.order.orderId)).toMatchObject({ status: "fulfilled" });
    // The order is paid through the other account.
    ok(await page(open.buyer, open.order));
    expect(pay.stripe.sessionOf(open.order.reference).account).toBe(other);
    // While Stripe cannot be asked, nothing is changed. Without open pages, Stripe is not needed.
    pay.stripe.setDown(true);
    expectRefusal(await put({ stripe: null }), "service_unavailable");
    pay.stripe.setDown(false);
    expect(statusOf(open.order)).toBe("open");
    expect(ok(await pay.as.admin.get("/payment-settings")).settings.stripe).toBe("test");
    // A bank debit is pending: the order waits for it, or its seller declines it.
    Object.assign(pay.stripe.sessionOf(open.order.reference), { status: "complete", payment_intent: "pi_debit" });
    expectRefusal(await put({ stripe: null }), "validation_failed", { param: "stripe" });
    ok(await pay.as.admin.post(`/orders/${open.order.orderId}/decline`, {}));
    ok(await put({ stripe: null }));
    pay.stripe.setDown(true);
    ok(await put({ stripe: null }));
    pay.stripe.setDown(false);
    // The pages of a revoked key cannot be expired. With a new key of the same account they stay, and they expire by themselves.
    ok(await put(secretsOf(own)));
    const { order } = await opened();
    pay.stripe.revoked.add(own);
    expectRefusal(await put({ stripe: null }), "validation_failed", { param: "stripe" });
    expectRefusal(await put(secretsOf(other)), "validation_failed", { param: "stripe" });
    await pay.sql`update checkouts set expires_at = clock_timestamp() where order_id = ${order.orderId}`;
    ok(await put({ stripe: null }));
  } finally {
    pay.stripe.setDown(false);
    pay.stripe.revoked.clear();
    ok(await put(secretsOf(own)));
  }
});

/** A top-up of $10, of which Stripe refunds $4, and the answer is lost. */
async function unansweredRefund() {
  const buyer = await pay.newcomer();
  const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(10n * USD) });
  ok(await page(buyer, order));
  ok(await pay.hook(0, { ...pay.stripe.pay(order.reference) }));
  const [payment] = await pay.paymentsOf(order.orderId);
  pay.stripe.loseAnswers(true);
  const { refund } = ok(await pay.as.admin.post(`/payments/${payment?.id}/refunds`, { amountNano: String(4n * USD) }));
  pay.stripe.loseAnswers(false);
  expect(refund.status).toBe("pending");
  const row = async () => (await pay.sql`select * from refunds where id = ${refund.refundId}`)[0];
  const status = async () => (await row())?.status;
  /** Waits until Stripe was asked for it once more. */
  const askAgain = async () => {
    await pay.sql`update refunds set try_at = now(), problem = null where id = ${refund.refundId}`;
    await until(async () => (await row())?.problem !== null);
  };
  return { buyer, order, refundId: refund.refundId, row, status, askAgain, paymentId: payment?.id };
}

test("before a seller's Stripe account is changed, Stripe is asked about refunds without an answer: none is made twice", async () => {
  try {
    const first = await unansweredRefund();
    pay.stripe.setDown(true);
    expectRefusal(await put({ stripe: null }), "service_unavailable");
    pay.stripe.setDown(false);
    expect(ok(await pay.as.admin.get("/payment-settings")).settings.stripe).toBe("test");
    ok(await put(secretsOf(other)));
    expect(await first.status()).toBe("done");
    expect(await pay.balanceOf(first.buyer)).toBe(6n * USD);
    ok(await put(secretsOf(own)));
    // Stripe cannot be asked with a revoked key.
    const second = await unansweredRefund();
    pay.stripe.revoked.add(own);
    ok(await put({ stripe: null }));
    expect(await second.status()).toBe("pending");
    // The other account knows nothing of the payment, so it cannot say that the refund was not made.
    ok(await put(secretsOf(other)));
    await second.askAgain();
    expect(await second.status()).toBe("pending");
    expect(await pay.balanceOf(second.buyer)).toBe(6n * USD);
    // A refund that no other account was asked for is refused for good, and can be made in another way: at once, or later.
    const refund = async () =>
      ok(await pay.as.admin.post(`/payments/${second.paymentId}/refunds`, { amountNano: String(USD) })).refund;
    expect((await refund()).status).toBe("failed");
    pay.stripe.setDown(true);
    const { refundId } = await refund();
    pay.stripe.setDown(false);
    // As if the account had been changed earlier.
    await pay.sql`update refunds set try_at = now(), created_at = now() + interval '5 minutes' where id = ${refundId}`;
    const isOver = async () => (await pay.sql`select 1 from refunds where id = ${refundId} and status = 'failed'`)[0];
    await until(async () => (await isOver()) !== undefined);
    expect(await pay.balanceOf(second.buyer)).toBe(6n * USD);
    // It is asked for at every account that is set, until the one that made it answers.
    ok(await put({ stripe: null }));
    pay.stripe.revoked.clear();
    ok(await put(secretsOf(own)));
    ok(await put(secretsOf(other)));
    expect(await second.status()).toBe("done");
  } finally {
    pay.stripe.setDown(false);
    pay.stripe.loseAnswers(false);
    pay.stripe.revoked.clear();
    ok(await put(secretsOf(own)));
  }
});

test("a refund for which a closed account at Stripe no longer answers is ended by its seller, as that one found it", async () => {
  const end = (refundId: number, isMade: boolean, session = pay.as.admin) =>
    session.post(`/refunds/${refundId}/end`, { isMade });
  const canEnd = async (refundId: number) => {
    const { payments } = ok(await pay.as.admin.get("/payments"));
    type Listed = { refunds: { refundId: number; canEnd: boolean }[] };
    const refunds = payments.flatMap((payment: Listed) => payment.refunds) as Listed["refunds"];
    return refunds.find((one) => one.refundId === refundId)?.canEnd;
  };
  try {
    const [made, lost, late] = [await unansweredRefund(), await unansweredRefund(), await unansweredRefund()];
    // While the account is set that was asked, only that one decides.
    await pay.sql`update sellers set updated_at = now() - interval '5 minutes' where seller_id = 0`;
    pay.stripe.revoked.add(own);
    expect(await canEnd(made.refundId)).toBe(false);
    expectRefusal(await end(made.refundId, false), "validation_failed");
    // Its key is no longer accepted: it is removed, and another account is set.
    ok(await put({ stripe: null }));
    ok(await put(secretsOf(other)));
    expect(await canEnd(made.refundId)).toBe(true);
    for (const session of [pay.as.acme, pay.as.house])
      expectRefusal(await end(made.refundId, true, session), "not_found");
    expectRefusal(await end(999_999, true), "not_found");
    pay.stripe.setDown(true);
    expectRefusal(await end(made.refundId, true), "service_unavailable");
    pay.stripe.setDown(false);
    expect(await made.status()).toBe("pending");

    // It was made: a credit note, and the balance keeps what was taken. Repeated, and said otherwise, it changes nothing.
    expect(ok(await end(made.refundId, true)).refund).toMatchObject({ status: "done", problem: null, canEnd: false });
    expect(ok(await end(made.refundId, false)).refund.status).toBe("done");
    expect(await made.row()).toMatchObject({ credit_note: expect.anything(), return_entry_id: null });
    expect(await pay.balanceOf(made.buyer)).toBe(6n * USD);
    expect(await pay.tells(made.order.orderId)).toContain("refund_made");

    // It was not made: the balance has its money again, and the payment can be refunded in another way. Also without a key.
    ok(await put({ stripe: null }));
    const env = { DATABASE_URL: pay.world.url, SECRET_KEY: TEST_SECRET_KEY, STRIPE_API_BASE: pay.stripe.base };
    const cli = (args: string) => runCli(`payment ${args}`, { env });
    const isIts = ({ paymentId }: { paymentId: number }) => paymentId === Number(lost.paymentId);
    expect(JSON.parse((await cli("list --json")).out).payments.find(isIts).pendingRefundIds).toEqual([lost.refundId]);
    expect((await cli(`end-refund ${lost.refundId}`)).code).toBe(1);
    expect(await cli(`end-refund ${lost.refundId} --not-made`)).toMatchObject({ code: 0, err: "" });
    expect(await lost.status()).toBe("failed");
    expect(await pay.balanceOf(lost.buyer)).toBe(10n * USD);

    // The former account answers after all: what is known changes nothing, and what the seller got wrong is taken once.
    expect(ok(await end(late.refundId, false)).refund.status).toBe("failed");
    pay.stripe.revoked.clear();
    ok(await put(secretsOf(own)));
    for (const { payment_intent } of [made, late].map(({ order }) => pay.stripe.sessionOf(order.reference)))
      for (const refund of pay.stripe.refunds.filter((one) => one.payment_intent === payment_intent))
        for (let i = 0; i < 2; i++) ok(await pay.hook(0, refund, { type: "refund.updated" }));
    expect(await pay.balanceOf(made.buyer)).toBe(6n * USD);
    expect(await pay.balanceOf(late.buyer)).toBe(6n * USD);
    const rows = await pay.sql`select origin, status from refunds where payment_id = ${late.paymentId} order by id`;
    expect([...rows]).toEqual([
      { origin: "seller", status: "failed" },
      { origin: "stripe", status: "done" },
    ]);
    expect(await pay.sql`select 1 from refunds where payment_id = ${made.paymentId}`).toHaveLength(1);
  } finally {
    pay.stripe.setDown(false);
    pay.stripe.loseAnswers(false);
    pay.stripe.revoked.clear();
    ok(await put(secretsOf(own)));
  }
});
