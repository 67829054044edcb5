import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { fullCheck } from "../cli/cli_process.ts";
import { expectRefusal } from "../gateway/checks.ts";
import type { Answer } from "../gateway/shop.ts";
import { ok, PANEL } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";

/** A thousand webhooks of Stripe: repeated, shuffled, some forged, twenty at a time. Source: BUY-3, BUY-4, BUY-8. */

setDefaultTimeout(300_000);
const ORDERS = 200;
const WEBHOOKS = 1_000;
const AT_ONCE = 20;
let pay: PayShop;

beforeAll(async () => {
  pay = await openPayShop();
});
afterAll(() => pay.close());

test("1,000 webhooks, repeated, shuffled and some forged, fulfil each paid order once, and the books balance", async () => {
  const offeringId = await pay.offering();
  await pay.topUp(pay.acme, 10_000n * USD);
  const placed = await Promise.all(
    Array.from({ length: ORDERS }, async (_, i) => {
      const of = i % 2 ? "acme" : "house";
      const person = await pay.world.addCustomer(of === "acme" ? pay.acme.accountId : undefined);
      const sellerId = of === "acme" ? pay.acme.accountId : 0;
      const isTopUp = i % 3 === 0;
      const [row] = await pay.sql`
        insert into orders (account_id, seller_id, kind, offering_id, amount_nano_usd, price_nano_usd, method)
        values (${person.accountId}, ${sellerId}, ${isTopUp ? "top_up" : "package"}, ${isTopUp ? null : offeringId},
          ${isTopUp ? String(12n * USD) : null}, ${String(12n * USD)}, 'stripe') returning id, reference`;
      return { ...person, sellerId, orderId: Number(row?.id), reference: String(row?.reference), isPaid: i % 10 !== 9 };
    }),
  );
  const sessionOf = ({ orderId, reference }: (typeof placed)[number]) => ({
    ...{ id: `cs_${orderId}`, status: "complete", payment_status: "paid", payment_intent: `pi_${orderId}` },
    ...{ client_reference_id: reference, metadata: { order: reference }, amount_total: 1200, currency: "usd" },
  });
  const sends = shuffled(
    Array.from({ length: WEBHOOKS }, (_, i) => {
      const order = placed[i % ORDERS] as (typeof placed)[number];
      // Unpaid orders get forged webhooks, and webhooks without a payment.
      if (!order.isPaid && i % 2)
        return () => pay.hook(order.sellerId, sessionOf(order), { secret: "whsec_forged0123456789" });
      const state = order.isPaid ? {} : { payment_status: "unpaid" };
      const type = i % 4 === 3 ? "checkout.session.async_payment_succeeded" : "checkout.session.completed";
      return () => pay.hook(order.sellerId, { ...sessionOf(order), ...state }, { type });
    }),
  );
  const statuses = new Map<number, number>();
  const worker = async () => {
    for (let send = sends.pop(); send; send = sends.pop()) {
      const { status } = await send();
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      // As Stripe does, webhooks that were not accepted are sent again.
      if (status >= 500) sends.unshift(send);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  expect([...statuses.keys()].filter((status) => ![200, 400, 503].includes(status))).toEqual([]);
  for (const { orderId, isPaid, accountId } of placed) {
    const [row] = await pay.sql`
      select status, kind, (select count(*)::int from payments where order_id = o.id) as payments,
        (select count(*)::int from packages where account_id = o.account_id)
          + (select count(*)::int from balance_entries where account_id = o.account_id) as got
      from orders o where id = ${orderId} and account_id = ${accountId}`;
    expect(row).toMatchObject(
      isPaid ? { status: "fulfilled", payments: 1, got: 1 } : { status: "open", payments: 0, got: 0 },
    );
  }
  const [wholesale] = await pay.sql`
    select count(*)::int as n from balance_entries where account_id = ${pay.acme.accountId} and kind in ('wholesale', 'transfer')`;
  expect(wholesale?.n).toBe(placed.filter(({ isPaid, sellerId }) => isPaid && sellerId !== 0).length);
  expect(await pay.world.unbalanced()).toEqual([]);
  expect(await fullCheck(pay.world)).toEqual(["ok"]);
  // Only panel hosts accept webhooks.
  const elsewhere = await pay.shop.call("/api/pay/stripe/0", { host: "api.tollgate.test", body: {} });
  expect(elsewhere.status).toBe(403);
  expect(ok(await pay.as.admin.get("/payments")).payments.length).toBeGreaterThan(0);
  expect(PANEL).not.toBe("api.tollgate.test");
});

test("600 events about payments, refunds and disputes, repeated and shuffled, record each refund and lost dispute once", async () => {
  const PAID = 10n * USD;
  await pay.topUp(pay.acme, 1_000n * USD);
  const sold = [];
  const about: (() => Promise<{ status: number }>)[] = [];
  for (let i = 0; i < 40; i++) {
    const of = i % 2 ? "acme" : "house";
    const sellerId = of === "acme" ? pay.acme.accountId : 0;
    const buyer = await pay.newcomer(of);
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(PAID) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const session = pay.stripe.pay(order.reference);
    // Of every four, one is refunded in parts, one loses a dispute after a partial refund, one wins a dispute, and one stays paid.
    const parts = i % 4 === 0 ? [200, 300, 500] : i % 4 === 1 ? [400] : [];
    const refunds = parts.map((cents) => pay.stripe.refundInDashboard(session, cents));
    const status = i % 4 === 1 ? "lost" : "won";
    const disputes = i % 4 === 1 || i % 4 === 2 ? [pay.stripe.dispute(session, { status })] : [];
    const leftNano = i % 4 < 2 ? 0n : PAID;
    sold.push({ buyer, orderId: order.orderId, leftNano, refunds: parts.length + (status === "lost" ? 1 : 0) });
    const events: [string, object][] = [
      ["checkout.session.completed", { ...session }],
      ...refunds.map((one): [string, object] => ["refund.created", one]),
      ...disputes.map((one): [string, object] => ["charge.dispute.closed", one]),
    ];
    for (let n = 0; n < 15; n++) {
      const [type, object] = events[n % events.length] as [string, object];
      about.push(() => pay.hook(sellerId, object, { type }));
    }
  }
  const sends = shuffled(about);
  expect(sends).toHaveLength(600);
  const worker = async () => {
    for (let send = sends.pop(); send; send = sends.pop()) {
      const { status } = await send();
      expect([200, 503]).toContain(status);
      if (status === 503) sends.unshift(send);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  for (const { buyer, orderId, leftNano, refunds } of sold) {
    expect(await pay.orderRow(orderId)).toMatchObject({ status: "fulfilled" });
    expect(await pay.balanceOf(buyer)).toBe(leftNano);
    expect(await pay.sql`select 1 from refunds where order_id = ${orderId} and status = 'done'`).toHaveLength(refunds);
    expect(await pay.sql`select 1 from refunds where order_id = ${orderId} and shortfall_nano_usd > 0`).toHaveLength(0);
  }
  expect(await pay.world.unbalanced()).toEqual([]);
  expect(await fullCheck(pay.world)).toEqual(["ok"]);
});

function shuffled<T>(items: T[]): T[] {
  for (let i = items.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [items[i], items[j]] = [items[j] as T, items[i] as T];
  }
  return items;
}

describe("webhooks of strangers", () => {
  let small: PayShop;
  beforeAll(async () => {
    // One account may have a quarter of the bodies.
    small = await openPayShop({ RATE_PER_MINUTE: "20", BODY_READS_MAX: "8", ACCOUNT_SHARE: "0.25" });
  });
  afterAll(() => small.close());

  const send = (path: string, body: unknown) =>
    small.shop.call(`/api/pay/${path}`, { host: PANEL, body, method: "POST" });
  /** A body that does not end until `end`. */
  function unended() {
    let end = () => {};
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode("{"));
        end = () => controller.close();
      },
    });
    return { body, end };
  }

  test("for sellers that take none are refused before the body, and have one limit together, whichever sellers they name", async () => {
    expectRefusal(await send("stripe/999999", unended().body), "not_found");
    await small.as.acme.put("/payment-settings/shop", { shopUrl: null });
    expectRefusal(await send(`shop/${small.acme.accountId}`, unended().body), "not_found");
    const answers = await Promise.all(Array.from({ length: 60 }, (_, i) => send(`stripe/${1_000_000 + i}`, {})));
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 404).length).toBeLessThanOrEqual(20);
    expect(statuses.filter((status) => status !== 404 && status !== 429)).toEqual([]);
    // A seller's own limit is not used up.
    expectRefusal(await send("stripe/0", {}), "invalid_request", { param: "stripe-signature" });
  });

  test("take no more bodies than one account may have, and customers are served meanwhile", async () => {
    const bodies = [unended(), unended()];
    const path = `stripe/${small.acme.accountId}`;
    const held = bodies.map(({ body }) => send(path, body));
    let refused: Answer | undefined;
    await until(async () => {
      await Bun.sleep(300); // Seldom enough for the limit of requests a minute.
      refused = await send(path, {});
      return refused.status === 429;
    });
    expect(refused?.json.error.message).toContain("bodies");
    const { secret } = await small.shop.customer();
    expect((await small.shop.chat(secret)).status).toBe(200);
    for (const { end } of bodies) end();
    await Promise.all(held);
  });
});
