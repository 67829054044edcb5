import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { newVoucherCode } from "../../src/commerce/voucher_codes.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { ok, PANEL, type PanelSession } from "../panel/panel_client.ts";
import {
  BAD_REFUNDS,
  BAD_SHOP_FIELDS,
  BAD_SHOP_SIGNATURES,
  BAD_STRIPE_SIGNATURES,
  BAD_TOP_UPS,
  BAD_WEBHOOK_URLS,
  GUESSES_MAX,
  IGNORED,
  INJECTIONS,
  KEPT,
  SPELLINGS,
  STRANGERS,
  WRONG_CODES,
} from "./bad_cases.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import { STRIPE_WEBHOOK_SECRET } from "./stripe_stand_in.ts";

/** Bad input of sales and payments: the refusal names the field, and nothing changes. Source: BUY-2, BUY-3, BUY-6, VOU-2, VOU-5, VOU-6, MSG-7, MSG-9. */
let pay: PayShop;

beforeAll(async () => {
  pay = await openPayShop();
});
afterAll(() => pay.close());

/** An open order of $10.00 at the operator, with its Stripe checkout page. */
async function opened() {
  const buyer = await pay.newcomer();
  const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(10n * USD) });
  ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
  return { buyer, order, paid: { ...pay.stripe.pay(order.reference) } };
}
async function expectUntouched(orderId: number, buyer: { accountId: number }) {
  expect(await pay.orderRow(orderId)).toMatchObject({ status: "open", paid_at: null });
  expect(await pay.sql`select 1 from balance_entries where account_id = ${buyer.accountId}`).toHaveLength(0);
}

describe("top-ups", () => {
  for (const [what, body, param, code] of BAD_TOP_UPS)
    test(`${what}: ${code}, and no order is placed`, async () => {
      const buyer = await pay.newcomer();
      expectRefusal(await buyer.post("/orders", body as object), "validation_failed", { param: param ?? null });
      expect(await pay.sql`select 1 from orders where account_id = ${buyer.accountId}`).toHaveLength(0);
    });
});

describe("refunds", () => {
  let paymentId = 0;
  let buyer: PanelSession;
  beforeAll(async () => {
    const sold = await opened();
    buyer = sold.buyer;
    ok(await pay.hook(0, sold.paid));
    paymentId = Number((await pay.paymentsOf(sold.order.orderId))[0]?.id);
  });
  const expectNone = async () => {
    expect(await pay.sql`select 1 from refunds where payment_id = ${paymentId}`).toHaveLength(0);
    expect(await pay.balanceOf(buyer)).toBe(10n * USD);
  };
  for (const [what, body, param] of BAD_REFUNDS)
    test(`${what}: no refund is made`, async () => {
      const answer = await pay.as.admin.post(`/payments/${paymentId}/refunds`, body as object);
      expectRefusal(answer, "validation_failed", { param: param ?? null });
      await expectNone();
    });
  for (const who of STRANGERS)
    test(`by ${who}: not_found`, async () => {
      const session = who === "another seller" ? pay.as.acme : buyer;
      expectRefusal(await session.post(`/payments/${paymentId}/refunds`, { amountNano: "10000000" }), "not_found");
      await expectNone();
    });
});

describe("webhooks of Stripe", () => {
  for (const how of BAD_STRIPE_SIGNATURES)
    test(`${how}: invalid_request, and nothing is recorded`, async () => {
      const { buyer, order, paid } = await opened();
      const right = `${STRIPE_WEBHOOK_SECRET}0`;
      const secrets: Record<string, string> = {
        "signed with another secret": "whsec_guessed0123456789",
        "signed for another seller": `${STRIPE_WEBHOOK_SECRET}${pay.acme.accountId}`,
      };
      const timestamp = Math.floor(Date.now() / 1000) - (how === "signed 310 s ago" ? 310 : 0);
      const { body, headers } = await pay.stripe.event(paid, { secret: secrets[how] ?? right, timestamp });
      const sent: Record<string, string> = {
        "a body changed after signing": body.replace("1000", "1001"),
        "a byte more than was signed": `${body} `,
      };
      const answer = await pay.shop.call("/api/pay/stripe/0", {
        host: PANEL,
        body: sent[how] ?? body,
        headers: how === "no signature" ? {} : headers,
      });
      expectRefusal(answer, "invalid_request", { param: "stripe-signature" });
      expect(await pay.paymentsOf(order.orderId)).toHaveLength(0);
      await expectUntouched(order.orderId, buyer);
    });

  for (const [what, change, problem] of KEPT)
    test(`${what}: kept as ${problem}, and buys nothing`, async () => {
      const { buyer, order, paid } = await opened();
      ok(await pay.hook(0, { ...paid, ...change }));
      expect(await pay.paymentsOf(order.orderId)).toMatchObject([{ problem }]);
      await expectUntouched(order.orderId, buyer);
    });

  for (const [what, change] of IGNORED)
    test(`${what}: accepted, and nothing changes`, async () => {
      const { buyer, order, paid } = await opened();
      ok(await pay.hook(what === "another seller's order" ? pay.acme.accountId : 0, { ...paid, ...change }));
      expect(await pay.paymentsOf(order.orderId)).toHaveLength(0);
      await expectUntouched(order.orderId, buyer);
    });
});

describe("webhooks of a shop", () => {
  const said = (order: string, over = {}) => ({ order, amount: "10.00", currency: "usd", payment_id: order, ...over });

  for (const how of BAD_SHOP_SIGNATURES)
    test(`${how}: invalid_request, and nothing is recorded`, async () => {
      const { buyer, order } = await opened();
      const right = said(order.reference);
      const after = (seconds: number) => ({ at: new Date(Date.now() + seconds * 1000) });
      const options = {
        "signed with another secret": { secret: `whsec_${Buffer.alloc(32).toString("base64")}` },
        "signed 310 s ago": after(-310),
        "signed 301 s ahead": after(301),
        "a body changed after signing": { sent: JSON.stringify({ ...right, amount: "0.01" }) },
        "signed by another seller": { secret: pay.shopSecrets.get(pay.acme.accountId) ?? "" },
      }[how];
      expectRefusal(await pay.shopHook(0, right, options), "invalid_request", { param: "webhook-signature" });
      expect(await pay.paymentsOf(order.orderId)).toHaveLength(0);
      await expectUntouched(order.orderId, buyer);
    });

  for (const [what, change, param, code] of BAD_SHOP_FIELDS)
    test(`${what}: ${code}, param ${param}`, async () => {
      const { buyer, order } = await opened();
      const answer = await pay.shopHook(0, said(order.reference, change as object));
      expectRefusal(answer, code === "not_found" ? "not_found" : "invalid_request", { param: param ?? null });
      expect(await pay.paymentsOf(order.orderId)).toHaveLength(0);
      await expectUntouched(order.orderId, buyer);
    });
});

describe("vouchers", () => {
  const redeem = (session: PanelSession, code: string) => session.post("/vouchers/redeem", { code });
  async function newCode(): Promise<string> {
    const endsAt = new Date(Date.now() + 86_400_000).toISOString();
    const batch = { name: "spring", amountNanoUsd: String(5n * USD), codes: 1, usesPerCode: 1, endsAt };
    const { csv } = ok(await pay.as.admin.post("/vouchers", batch));
    return /([0-9A-Z]{4}-){4}[0-9A-Z]{4}/.exec(csv)?.[0] ?? "";
  }

  for (const [what, typed] of SPELLINGS)
    test(`a valid code typed with ${what} is redeemed`, async () => {
      const person = await pay.newcomer();
      ok(await redeem(person, typed(await newCode())));
      expect(await pay.balanceOf(person)).toBe(5n * USD);
    });

  test(`all wrong codes get the same answer; after ${GUESSES_MAX} of them a valid code is refused too`, async () => {
    const person = await pay.newcomer();
    const answers = new Set<string>();
    const wrong = [...WRONG_CODES.map(([, code]) => code), newVoucherCode().code, newVoucherCode().code];
    expect(wrong).toHaveLength(GUESSES_MAX);
    for (const code of wrong) {
      const answer = await redeem(person, code);
      expectRefusal(answer, "validation_failed", { param: "code" });
      answers.add(answer.json.error.message);
    }
    expect(answers.size).toBe(1);
    expectRefusal(await redeem(person, await newCode()), "too_many_requests");
    expect(await pay.sql`select 1 from balance_entries where account_id = ${person.accountId}`).toHaveLength(0);
  });
});

describe("private addresses and injected text", () => {
  for (const url of BAD_WEBHOOK_URLS)
    test(`a webhook to ${url} is refused`, async () => {
      expectRefusal(await pay.as.acme.post("/webhooks", { url, kinds: ["order_paid"] }), "validation_failed", {
        param: "url",
      });
      expect(await pay.sql`select 1 from webhook_endpoints where account_id = ${pay.acme.accountId}`).toHaveLength(0);
    });

  for (const [what, path, body, param] of INJECTIONS)
    test(`${what} is refused`, async () => {
      expectRefusal(await pay.as.acme.put(path, body), "validation_failed", { param });
    });
});
