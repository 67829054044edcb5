import { afterAll, beforeAll, expect, test } from "bun:test";
import { ok, type PanelSession } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";

/** Everything about an order at once, at several replicas. Source: BUY-3, BUY-4, BUY-6, BUY-9, BUY-10, BUY-11, VOU-3, INV-1. */
let pay: PayShop;
let more: ReplicaProcess[] = [];

beforeAll(async () => {
  pay = await openPayShop();
  more = await Promise.all([pay.shop.start(), pay.shop.start()]);
});
afterAll(async () => {
  await Promise.all(more.map((replica) => replica.kill()));
  await pay.close();
});

let turn = 0;
/** The address of the next replica. */
const next = () =>
  [pay.shop.origin, ...more.map(({ origin }) => origin)][turn++ % (more.length + 1)] ?? pay.shop.origin;
const post = (session: PanelSession, path: string, body: object = {}) =>
  session.call(path, { method: "POST", body, origin: next() });

test("an order that is paid, withdrawn, declined, fulfilled, refunded and disputed at once has one outcome, and the money fits", async () => {
  await pay.topUp(pay.acme, 30n * USD);
  const offeringId = await pay.offering(10n * USD, 4n * USD);
  const ofEach = Array.from({ length: 9 }, (_, n) => (n % 3 === 0 ? "house" : "acme"));
  const buyers: PanelSession[] = [];
  for (const of of ofEach) buyers.push(await pay.newcomer(of));
  const outcomes = await Promise.all(
    buyers.map(async (buyer, n) => {
      const of = ofEach[n];
      const [sellerId, seller] = of === "acme" ? [pay.acme.accountId, pay.as.acme] : [0, pay.as.admin];
      const wanted = n % 2 ? { kind: "package", offeringId } : { kind: "top_up", amountNanoUsd: String(10n * USD) };
      const order = await pay.order(buyer, wanted);
      ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
      const session = pay.stripe.pay(order.reference);
      const shop = { order: order.reference, amount: "10.00", currency: "usd", payment_id: `shop-${order.reference}` };
      const first = [
        () => post(buyer, `/orders/${order.orderId}/withdraw`),
        () => post(seller, `/orders/${order.orderId}/decline`),
        () => post(seller, `/orders/${order.orderId}/fulfil`),
        () => pay.hook(sellerId, { ...session }, { origin: next() }),
        () => pay.hook(sellerId, { ...session }, { origin: next() }),
        () => pay.shopHook(sellerId, shop),
        () => post(buyer, `/orders/${order.orderId}/look`),
      ];
      // Another order of calls for each order.
      await Promise.all([...first.slice(n % first.length), ...first.slice(0, n % first.length)].map((call) => call()));
      const payments = await pay.paymentsOf(order.orderId);
      const back = { amountNano: String(6n * USD) };
      const made = pay.stripe.refundInDashboard(session, 300);
      const disputed = pay.stripe.dispute(session, { status: "lost", amount: 1000 });
      const event = (type: string, about: object) => () => pay.hook(sellerId, about, { type, origin: next() });
      const events = [event("refund.created", made), event("charge.dispute.closed", disputed)];
      const second = [
        ...payments.flatMap(({ id }) => [0, 1].map(() => () => post(seller, `/payments/${id}/refunds`, back))),
        ...events,
        ...events,
      ];
      await Promise.all(second.map((call) => call()));
      // Refused ones are sent again, as Stripe does.
      await until(
        async () => (await Promise.all(events.map((call) => call()))).every(({ status }) => status === 200),
        60_000,
      );
      return { orderId: Number(order.orderId), session };
    }),
  );
  const orderIds = outcomes.map(({ orderId }) => orderId);
  await pay.sql`update refunds set try_at = now() where status = 'pending'`;
  await until(async () => (await pay.sql`select 1 from refunds where status = 'pending'`).length === 0);
  const paid = await pay.sql`
    select p.order_id, count(*) filter (where problem is null)::int as paying from payments p where order_id = any(${orderIds}::bigint[])
    group by 1 having count(*) filter (where problem is null) > 1`;
  expect([...paid]).toEqual([]);
  // All that Stripe gave back is recorded, as far as there was a payment left to give back.
  for (const { session } of outcomes) {
    const sent = pay.stripe.refunds.filter((one) => one.payment_intent === session.payment_intent);
    const cents = sent.reduce((sum, { amount }) => sum + amount, 0);
    const [row] = await pay.sql`
      select p.amount_nano::text as amount, coalesce(sum(r.amount_nano) filter (where r.status = 'done'), 0)::text as back
      from payments p left join refunds r on r.payment_id = p.id where p.external_id = ${session.payment_intent} group by p.id`;
    expect(cents).toBeLessThanOrEqual(1000);
    expect(BigInt(row?.back)).toBe(BigInt(row?.amount));
  }
  const [row] = await pay.sql`
    select (select min(balance_nano_usd - held_nano_usd) from balances)::text as least,
      (select count(*)::int from (select seller_id, number, row_number() over (partition by seller_id order by number) as place from invoices) n
        where number <> place) as gaps`;
  expect(BigInt(row?.least)).toBeGreaterThanOrEqual(0n);
  expect(row?.gaps).toBe(0);
  expect(await pay.sql`select * from inv_payments`).toHaveLength(0);
});

test("a code of five uses is redeemed five times by twelve customers at three replicas", async () => {
  const endsAt = new Date(Date.now() + 86_400_000).toISOString();
  const batch = { name: "five", amountNanoUsd: String(3n * USD), codes: 1, usesPerCode: 5, endsAt };
  const { csv } = ok(await pay.as.admin.post("/vouchers", batch));
  const [code] = /\b(?:[0-9A-Z]{4}-){4}[0-9A-Z]{4}\b/.exec(csv) ?? [];
  const buyers: PanelSession[] = [];
  for (let n = 0; n < 12; n++) buyers.push(await pay.newcomer());
  const answers = await Promise.all([...buyers, ...buyers].map((buyer) => post(buyer, "/vouchers/redeem", { code })));
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(5);
  const balances = await Promise.all(buyers.map((buyer) => pay.balanceOf(buyer)));
  expect(balances.filter((nano) => nano === 3n * USD)).toHaveLength(5);
  expect(balances.filter((nano) => nano === 0n)).toHaveLength(7);
});
