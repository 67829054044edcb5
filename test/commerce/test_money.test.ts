import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { encrypt } from "../../src/platform/crypto.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { ok } from "../panel/panel_client.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import { STRIPE_WEBHOOK_SECRET } from "./stripe_stand_in.ts";

/** Stripe's test mode in production: nothing is delivered for money that is none. Source: BUY-13. */

const LIVE = { apiKey: "sk_live_0123456789abcdef0", webhookSecret: `${STRIPE_WEBHOOK_SECRET}0` };
const TEST = { apiKey: "sk_test_0123456789abcdef0", webhookSecret: `${STRIPE_WEBHOOK_SECRET}0` };

async function topUpPaid(pay: PayShop, session = pay.as.house) {
  const { orderId, reference } = await pay.order(session, { kind: "top_up", amountNanoUsd: String(10n * USD) });
  ok(await session.post(`/orders/${orderId}/pay`, { method: "stripe" }));
  return { orderId, reference, paid: pay.stripe.pay(reference) };
}

describe("without TEST_SHOP", () => {
  let pay: PayShop;
  beforeAll(async () => {
    pay = await openPayShop({ NODE_ENV: "production" }, { stripeMode: "live" });
  });
  afterAll(() => pay.close());

  test("a key of the test mode is refused, for the operator and for a reseller, and the live key stays", async () => {
    for (const session of [pay.as.admin, pay.as.acme]) {
      for (const apiKey of [TEST.apiKey, "rk_test_0123456789abcdef0"]) {
        const refused = await session.put("/payment-settings/stripe", { stripe: { ...TEST, apiKey } });
        expectRefusal(refused, "validation_failed", { param: "apiKey" });
      }
      expect(ok(await session.get("/payment-settings")).settings.stripe).toBe("live");
    }
  });

  test("an event of the test mode is refused and credits nothing; the live one of the same order does, once", async () => {
    const before = await pay.balanceOf(pay.house);
    const { orderId, paid } = await topUpPaid(pay);
    for (let i = 0; i < 3; i++)
      expectRefusal(await pay.hook(0, paid, { livemode: false }), "invalid_request", { param: "livemode" });
    expect(await pay.balanceOf(pay.house)).toBe(before);
    expect(await pay.paymentsOf(orderId)).toHaveLength(0);
    await Promise.all(Array.from({ length: 4 }, () => pay.hook(0, paid)));
    expect(await pay.balanceOf(pay.house)).toBe(before + 10n * USD);
  });

  test("a test key that was stored before opens no page", async () => {
    const [row] = await pay.sql`select stripe_key_ciphertext as key from sellers where seller_id = 0`;
    const { orderId } = await pay.order(pay.as.house, { kind: "top_up", amountNanoUsd: String(10n * USD) });
    const ciphertext = encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), TEST.apiKey);
    await pay.sql`update sellers set stripe_key_ciphertext = ${ciphertext} where seller_id = 0`;
    expectRefusal(await pay.as.house.post(`/orders/${orderId}/pay`, { method: "stripe" }), "service_unavailable");
    await pay.sql`update sellers set stripe_key_ciphertext = ${row?.key} where seller_id = 0`;
  });
});

describe("with TEST_SHOP", () => {
  let pay: PayShop;
  beforeAll(async () => {
    pay = await openPayShop({ NODE_ENV: "production", TEST_SHOP: "true" });
  });
  afterAll(() => pay.close());

  test("a payment is recorded with a problem, and its order stays open; doubled and shuffled events deliver nothing", async () => {
    for (const [session, person, sellerId] of [
      [pay.as.house, pay.house, 0],
      [pay.as.customer, pay.customer, pay.acme.accountId],
    ] as const) {
      const before = await pay.balanceOf(person);
      const { orderId, paid } = await topUpPaid(pay, session);
      const types = ["checkout.session.completed", "checkout.session.async_payment_succeeded"];
      await Promise.all([...types, ...types].map((type) => pay.hook(sellerId, paid, { type })));
      expect(await pay.paymentsOf(orderId)).toMatchObject([{ problem: "test_money" }]);
      expect((await pay.orderRow(orderId)).status).toBe("open");
      expect(await pay.balanceOf(person)).toBe(before);
      expect(await pay.tells(orderId)).not.toContain("order_paid");
    }
  });

  test("asking Stripe in place of a webhook delivers nothing either, and neither does a package", async () => {
    const offeringId = await pay.offering();
    const { orderId, reference } = await pay.order(pay.as.house, { kind: "package", offeringId });
    ok(await pay.as.house.post(`/orders/${orderId}/pay`, { method: "stripe" }));
    pay.stripe.pay(reference);
    ok(await pay.as.house.post(`/orders/${orderId}/look`));
    expect(await pay.paymentsOf(orderId)).toMatchObject([{ problem: "test_money" }]);
    const [packages] =
      await pay.sql`select count(*)::int as count from packages where account_id = ${pay.house.accountId}`;
    expect(packages?.count).toBe(0);
  });

  test("an event of the other mode than the seller's key is refused, whichever it is", async () => {
    const { orderId, paid } = await topUpPaid(pay);
    expectRefusal(await pay.hook(0, paid, { livemode: true }), "invalid_request", { param: "livemode" });
    expect(await pay.paymentsOf(orderId)).toHaveLength(0);
    ok(await pay.as.admin.put("/payment-settings/stripe", { stripe: LIVE }));
    expectRefusal(await pay.hook(0, paid, { livemode: false }), "invalid_request", { param: "livemode" });
    // The page of the former account was asked after, when the key was changed.
    expect(await pay.paymentsOf(orderId)).toMatchObject([{ problem: "test_money" }]);
  });
});
