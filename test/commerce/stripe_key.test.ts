import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { ok } from "../panel/panel_client.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import { STRIPE_KEY, STRIPE_WEBHOOK_SECRET } from "./stripe_stand_in.ts";

/** A restricted key of Stripe is refused with the names of the permissions that it lacks. Source: BUY-7. */

/** What selling needs, by the names in Stripe's dashboard and in Stripe's answers. */
const PERMISSIONS = {
  "Checkout Sessions": "rak_checkout_session_write",
  Refunds: "rak_charge_write",
  Customers: "rak_customer_write",
  PaymentIntents: "rak_payment_intent_write",
  PaymentMethods: "rak_payment_method_write",
  SetupIntents: "rak_setup_intent_write",
  Disputes: "rak_dispute_read",
  Events: "rak_event_read",
};
const NAMES = Object.values(PERMISSIONS);
const RESTRICTED = "rk_test_0123456789abcdef";

let pay: PayShop;
beforeAll(async () => {
  pay = await openPayShop();
});
afterAll(() => pay.close());

const put = (apiKey: string) =>
  pay.as.acme.put("/payment-settings/stripe", { stripe: { apiKey, webhookSecret: STRIPE_WEBHOOK_SECRET } });
const stored = async () => {
  const [row] = await pay.sql`select stripe_key_ciphertext from sellers where seller_id = ${pay.acme.accountId}`;
  return row?.stripe_key_ciphertext;
};
const restrict = (names: readonly string[]) => {
  const withReads = names.flatMap((name) => [name, name.replace(/_write$/, "_read")]);
  pay.stripe.restricted.set(RESTRICTED, new Set(withReads));
};

describe("a restricted key", () => {
  test.each(Object.entries(PERMISSIONS))(
    "without %s is refused with that name, and is not stored",
    async (name, of) => {
      const before = await stored();
      restrict(NAMES.filter((other) => other !== of));
      const answer = await put(RESTRICTED);
      expectRefusal(answer, "validation_failed", { param: "apiKey" });
      expect(answer.json.error.message).toContain(`: ${name} (${of}).`);
      expect(await stored()).toEqual(before);
    },
  );

  test("that may only read is told all that it may not write", async () => {
    pay.stripe.restricted.set(RESTRICTED, new Set(NAMES.map((name) => name.replace(/_write$/, "_read"))));
    const { message } = (await put(RESTRICTED)).json.error;
    const written = Object.entries(PERMISSIONS).filter(([, of]) => of.endsWith("_write"));
    expect(message).toContain(`: ${written.map(([name, of]) => `${name} (${of})`).join(", ")}.`);
  });

  test("with all of them is stored, and sells; asking about it has changed nothing at Stripe", async () => {
    restrict(NAMES);
    const count = () => [pay.stripe.sessions.size, pay.stripe.refunds.length, pay.stripe.cards.intents.size];
    const before = count();
    ok(await put(RESTRICTED));
    expect(count()).toEqual(before);
    const buyer = await pay.newcomer("acme");
    const offeringId = await pay.offering(12n * USD);
    const order = await pay.order(buyer, { kind: "package", offeringId });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    expect(pay.stripe.sessionOf(order.reference).account).toBe(RESTRICTED);
  });
});

test("a key that Stripe does not know is told apart from one that may not do all, and from an outage", async () => {
  const message = async (apiKey: string) => (await put(apiKey)).json.error.message;
  expect(await message(`${STRIPE_KEY}_revoked`)).toBe("Stripe does not accept this key. Nothing was changed.");
  pay.stripe.setDown(true);
  expect(await message(RESTRICTED)).toBe("Stripe cannot be asked about this key right now. Nothing was changed.");
  pay.stripe.setDown(false);
});
