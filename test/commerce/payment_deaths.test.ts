import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { withReplica } from "../faults/fault_shop.ts";
import { ok, PANEL } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import { STRIPE_WEBHOOK_SECRET } from "./stripe_stand_in.ts";

/** Replicas that die between an order's payment and its fulfilment. Source: BUY-4. */

setDefaultTimeout(900_000);
/** PAYMENT_KILLS=30 is the long run. */
const KILLS = Number(process.env.PAYMENT_KILLS ?? 3);
let pay: PayShop;

beforeAll(async () => {
  pay = await openPayShop();
});
afterAll(() => pay.close());

test(`${KILLS} replicas are killed between paid and fulfilled: no payment is lost, no order is fulfilled twice`, async () => {
  await pay.topUp(pay.acme, 1_000n * USD);
  for (let kill = 0; kill < KILLS; kill++) {
    const of = kill % 2 ? "acme" : "house";
    const sellerId = of === "acme" ? pay.acme.accountId : 0;
    const buyer = await pay.newcomer(of);
    const order = await pay.order(buyer, { kind: "package", offeringId: await pay.offering() });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    const paid = { ...pay.stripe.pay(order.reference) };
    const { body, headers } = await pay.stripe.event(paid, { secret: `${STRIPE_WEBHOOK_SECRET}${sellerId}` });
    await withReplica(
      () => pay.shop.start({ FAILPOINTS: "after_paid=kill" }),
      async (victim) => {
        const url = `${victim.origin}/api/pay/stripe/${sellerId}`;
        const init = { method: "POST", body, headers: { ...headers, host: PANEL, "content-type": "application/json" } };
        await fetch(url, init).catch(() => undefined); // It died before its answer.
        await until(() => victim.process.signalCode === "SIGKILL");
      },
    );
    expect((await pay.orderRow(order.orderId)).status).toBe("open");
    // Every third time the webhook is not sent again: the survivor asks Stripe. Otherwise Stripe sends it again, twice concurrently.
    if (kill % 3 === 2) await pay.sql`update checkouts set ask_at = now() where order_id = ${order.orderId}`;
    else await Promise.all([pay.hook(sellerId, paid), pay.hook(sellerId, paid)]);
    await until(async () => (await pay.orderRow(order.orderId)).status === "fulfilled");
    expect(await pay.paymentsOf(order.orderId)).toHaveLength(1);
    expect(await pay.sql`select 1 from packages where account_id = ${buyer.accountId}`).toHaveLength(1);
  }
});

test("an order that is paid and not fulfilled is fulfilled once by the replicas that are left, also if several try", async () => {
  const buyer = await pay.newcomer();
  const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(3n * USD) });
  // The state after a failed fulfilment: paid, and its replica is gone.
  await pay.sql.begin(async (tx) => {
    await tx`insert into payments (order_id, account_id, seller_id, method, external_id, currency, amount_nano)
      values (${order.orderId}, ${buyer.accountId}, 0, 'stripe', 'pi_left', 'usd', ${String(3n * USD)})`;
    await tx`update orders set status = 'paid', paid_at = now(), try_at = now() where id = ${order.orderId}`;
  });
  await withReplica(
    () => pay.shop.start(),
    async () => {
      await until(async () => (await pay.orderRow(order.orderId)).status === "fulfilled");
    },
  );
  expect(await pay.balanceOf(buyer)).toBe(3n * USD);
});
