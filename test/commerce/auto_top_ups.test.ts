import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { ok, type PanelSession } from "../panel/panel_client.ts";
import { USD } from "./pay_shop.ts";
import { openRenewalShop, type RenewalShop } from "./renewal_shop.ts";
import type { Bank } from "./stripe_cards_stand_in.ts";

/** Balances that are topped up automatically from a card on file. Source: ATU-1, ATU-2, ATU-3, ATU-4, CRD-3, CRD-5, CRD-6. */

setDefaultTimeout(120_000);
let shop: RenewalShop;

beforeAll(async () => {
  shop = await openRenewalShop();
  await shop.topUp(shop.acme, 1_000n * USD);
});
afterAll(() => shop.close());

/** Of one account, without those that were paid. */
const TRIES_PER_DAY = 10;

const nano = (usd: number) => String(BigInt(usd) * USD);
/** Below $5, by $20, at most $50 a month. */
const AMOUNTS = { belowNanoUsd: nano(5), amountNanoUsd: nano(20), monthMaxNanoUsd: nano(50) };

async function topped({
  of = "house",
  bank = "pays",
}: {
  of?: "house" | "acme";
  bank?: Bank;
} = {}): Promise<PanelSession> {
  const buyer = await shop.newcomer(of);
  await shop.saveCard(buyer, bank);
  ok(await buyer.put("/auto-top-up", AMOUNTS));
  return buyer;
}

/** What is available is spent, but for a dollar. */
async function spend(buyer: { accountId: number }): Promise<void> {
  const balance = await shop.balanceOf(buyer);
  await shop.sql`select add_balance(${buyer.accountId}, ${String(USD - balance)}, 'correction', 'spent', null)`;
}

const ordersOf = ({ accountId }: { accountId: number }) =>
  shop.sql`select * from orders where account_id = ${accountId} order by id`;
const stateOf = async (buyer: PanelSession) => ok(await buyer.get("/auto-top-up")).autoTopUp;
const toldOf = async (buyer: PanelSession, kind: string) =>
  (await shop.told(buyer)).filter((one) => one.kind === kind).map(({ data }) => data);

test("one in another currency charges the card with tax, and credits its amount exactly", async () => {
  const terms = { currency: "eur", usdRateNano: "920000000", taxCountry: "DE", topUpTax: 20_000 };
  ok(await shop.as.admin.patch("/selling-terms", terms));
  const buyer = await topped();
  for (let i = 0; i < 2; i++) await shop.later();
  expect(await shop.balanceOf(buyer)).toBe(20n * USD);
  expect(
    await shop.sql`select currency, amount_nano::text as nano from payments where account_id = ${buyer.accountId}`,
  ).toMatchObject([{ currency: "eur", nano: String(22_080_000_000n) }]);
  ok(
    await shop.as.admin.patch("/selling-terms", { currency: "usd", usdRateNano: null, taxCountry: null, topUpTax: 0 }),
  );
});

test("one whose amount cannot be paid in the seller's new currency pauses, and is not in the way of others", async () => {
  const buyer = await topped({ of: "acme" });
  const sell = (terms: object) => shop.as.acme.patch("/selling-terms", terms);
  ok(await buyer.put("/auto-top-up", { ...AMOUNTS, amountNanoUsd: nano(9_000_000), monthMaxNanoUsd: nano(9_000_000) }));
  ok(await sell({ currency: "idr", usdRateNano: "1000000000000000" }));
  for (let i = 0; i < 2; i++) await shop.later();
  expect(await stateOf(buyer)).toMatchObject({ status: "paused", problem: "unpayable", orderId: null });
  expect(await ordersOf(buyer)).toHaveLength(0);
  expect(await toldOf(buyer, "auto_top_up_failed")).toMatchObject([{ problem: "unpayable" }]);
  ok(await sell({ currency: "usd", usdRateNano: null }));
});

test("one that a seller's new terms make dearer than agreed is not charged: they pause until the customer agrees to the new price", async () => {
  const sell = async (terms: object) => ok(await shop.as.acme.patch("/selling-terms", terms));
  const euro = { currency: "eur", taxCountry: "DE" };
  await sell({ ...euro, usdRateNano: "920000000" });
  const buyer = await topped({ of: "acme" });
  for (const terms of [
    { usdRateNano: "1012000001" },
    { topUpTax: 100_000 },
    { currency: "jpy", usdRateNano: "10000000" },
    { currency: "usd", usdRateNano: null },
  ]) {
    await sell(terms);
    for (let i = 0; i < 2; i++) await shop.later();
    expect(await stateOf(buyer)).toMatchObject({ status: "paused", problem: "price_changed", orderId: null });
    expect(await ordersOf(buyer)).toHaveLength(0);
    await sell({ ...euro, usdRateNano: "920000000", topUpTax: 0 });
    ok(await buyer.put("/auto-top-up", AMOUNTS));
  }
  // A rate of the day, up to a tenth.
  await sell({ usdRateNano: "1012000000" });
  for (let i = 0; i < 2; i++) await shop.later();
  expect(await shop.balanceOf(buyer)).toBe(20n * USD);
  await spend(buyer);
  await sell({ topUpTax: 20_000 });
  await shop.later();
  expect(await ordersOf(buyer)).toHaveLength(1);
  ok(await buyer.put("/auto-top-up", AMOUNTS));
  await shop.later();
  expect(await ordersOf(buyer)).toHaveLength(2);
  await sell({ currency: "usd", usdRateNano: null, taxCountry: null, topUpTax: 0 });
});

for (const of of ["house", "acme"] as const)
  test(`a low balance is topped up once, with its payment and invoice (${of})`, async () => {
    const buyer = await topped({ of });
    for (let i = 0; i < 4; i++) await shop.later();
    expect(await shop.balanceOf(buyer)).toBe(20n * USD);
    expect(await ordersOf(buyer)).toMatchObject([{ status: "fulfilled", method: "stripe", price_nano_usd: nano(20) }]);
    expect(await shop.sql`select 1 from payments where account_id = ${buyer.accountId}`).toHaveLength(1);
    expect(await shop.sql`select 1 from invoices where account_id = ${buyer.accountId}`).toHaveLength(1);
    expect(await stateOf(buyer)).toEqual({
      ...AMOUNTS,
      status: "on",
      problem: null,
      orderId: null,
      monthNanoUsd: nano(20),
    });
  });

test("a reseller's own balance is topped up from its card at the operator", async () => {
  const reseller = await shop.world.addReseller();
  await shop.addCardRow(reseller, 0);
  await shop.sql`
    insert into auto_top_ups (account_id, below_nano_usd, amount_nano_usd, month_max_nano_usd, told_nano)
    values (${reseller.accountId}, ${nano(5)}, ${nano(20)}, ${nano(50)}, ${nano(20)})`;
  await shop.later();
  expect(await shop.balanceOf(reseller)).toBe(20n * USD);
});

test("a balance at the amount is not topped up; one below it is", async () => {
  const buyer = await topped();
  await shop.world.setBalance(buyer, 5n * USD);
  await shop.later();
  expect(await ordersOf(buyer)).toHaveLength(0);
  await shop.sql`select add_balance(${buyer.accountId}, -1, 'correction', 'spent', null)`;
  await shop.later();
  expect(await shop.balanceOf(buyer)).toBe(25n * USD - 1n);
});

test("eight replicas that see the low balance at once order one top-up", async () => {
  const buyers = await Promise.all(Array.from({ length: 6 }, () => topped()));
  await Promise.all(Array.from({ length: 8 }, () => shop.orderTopUps()));
  for (const buyer of buyers) expect(await ordersOf(buyer)).toHaveLength(1);
  await Promise.all(Array.from({ length: 4 }, () => shop.later()));
  for (const buyer of buyers) {
    expect(await shop.balanceOf(buyer)).toBe(20n * USD);
    expect(await ordersOf(buyer)).toHaveLength(1);
  }
});

describe("the limit of a month", () => {
  test("is never exceeded: reached in mid-month, the customer is told once, and nothing is charged until it is raised, or until the next month", async () => {
    const buyer = await topped();
    for (let i = 0; i < 6; i++) {
      await shop.later();
      await spend(buyer);
    }
    expect(await ordersOf(buyer)).toHaveLength(2);
    expect((await stateOf(buyer)).monthNanoUsd).toBe(nano(40));
    const capped = { amountNanoUsd: nano(20), monthMaxNanoUsd: nano(50), monthNanoUsd: nano(40) };
    expect(await toldOf(buyer, "auto_top_up_capped")).toEqual([capped]);
    ok(await buyer.put("/auto-top-up", { ...AMOUNTS, monthMaxNanoUsd: nano(60) }));
    await shop.later();
    expect(await ordersOf(buyer)).toHaveLength(3);
    // Exactly at the limit.
    await spend(buyer);
    await shop.later();
    expect(await ordersOf(buyer)).toHaveLength(3);
    // One that a bank refused does not count; those of the month before do not either.
    await shop.sql`update card_charges set created_at = date_trunc('month', now()) - interval '1 second' where account_id = ${buyer.accountId}`;
    await shop.later();
    expect(await ordersOf(buyer)).toHaveLength(4);
    expect((await stateOf(buyer)).monthNanoUsd).toBe(nano(20));
  });

  test("that is lowered below what was charged charges nothing further", async () => {
    const buyer = await topped();
    for (let i = 0; i < 2; i++) {
      await shop.later();
      await spend(buyer);
    }
    ok(await buyer.put("/auto-top-up", { ...AMOUNTS, monthMaxNanoUsd: nano(20) }));
    for (let i = 0; i < 2; i++) await shop.later();
    expect(await ordersOf(buyer)).toHaveLength(2);
  });
});

describe("a card that", () => {
  for (const [bank, problem] of [
    ["refuses", "card_refused"],
    ["expired", "card_expired"],
  ] as const)
    test(`the bank refuses (${problem}) pauses them, is told once, and is not tried again until the customer says so`, async () => {
      const buyer = await topped({ bank });
      for (let i = 0; i < 4; i++) await shop.later();
      expect(await stateOf(buyer)).toMatchObject({ status: "paused", problem, orderId: null, monthNanoUsd: "0" });
      expect(await ordersOf(buyer)).toMatchObject([{ status: "withdrawn" }]);
      expect(await toldOf(buyer, "auto_top_up_failed")).toEqual([{ amountNanoUsd: nano(20), problem }]);
      await shop.saveCard(buyer);
      ok(await buyer.put("/auto-top-up", AMOUNTS));
      await shop.later();
      expect(await shop.balanceOf(buyer)).toBe(20n * USD);
    });

  test("was not paid ten times within 24 hours is not tried again that day, however often a customer switches charges on", async () => {
    const buyer = await topped({ bank: "refuses" });
    for (let tries = 1; tries < TRIES_PER_DAY; tries++) {
      await shop.later();
      ok(await buyer.put("/auto-top-up", AMOUNTS));
    }
    await shop.later();
    expect(await ordersOf(buyer)).toHaveLength(TRIES_PER_DAY);
    const refused = await buyer.put("/auto-top-up", AMOUNTS);
    expectRefusal(refused, "validation_failed");
    expect(refused.json.error.message).toContain(`${TRIES_PER_DAY} times within 24 hours`);
    await shop.later();
    expect(await ordersOf(buyer)).toHaveLength(TRIES_PER_DAY);
    await shop.sql`update card_charges set created_at = created_at - interval '24 hours' where account_id = ${buyer.accountId}`;
    await shop.saveCard(buyer);
    ok(await buyer.put("/auto-top-up", AMOUNTS));
    await shop.later();
    expect(await shop.balanceOf(buyer)).toBe(20n * USD);
  });

  test("asks for the person is left to the person, whose link is mailed; meanwhile there is no second one", async () => {
    const buyer = await topped({ of: "acme", bank: "asks" });
    for (let i = 0; i < 4; i++) await shop.later();
    const [told] = await toldOf(buyer, "payment_needs_you");
    expect(told).toMatchObject({ purpose: "top_up", amountNanoUsd: nano(20) });
    expect(await ordersOf(buyer)).toHaveLength(1);
    expect(await stateOf(buyer)).toMatchObject({ status: "on", orderId: told?.orderId });
    ok(await buyer.post(`/orders/${told?.orderId}/pay`, { method: "stripe" }));
    await shop.hook(shop.acme.accountId, { ...shop.stripe.pay(String(told?.reference)) });
    expect(await shop.balanceOf(buyer)).toBe(20n * USD);
    expect(await stateOf(buyer)).toMatchObject({ status: "on", orderId: null });
  });

  test("asks for the person, who withdraws the order: they are paused, and nothing is charged", async () => {
    const buyer = await topped({ bank: "asks" });
    await shop.later();
    const { orderId } = await stateOf(buyer);
    ok(await buyer.post(`/orders/${orderId}/withdraw`));
    shop.stripe.cards.setBank("pays");
    for (let i = 0; i < 3; i++) await shop.later();
    expect(await stateOf(buyer)).toMatchObject({ status: "paused", problem: "withdrawn" });
    expect(await ordersOf(buyer)).toHaveLength(1);
  });

  test("was removed pauses them", async () => {
    const buyer = await topped();
    ok(await buyer.delete("/card"));
    for (let i = 0; i < 2; i++) await shop.later();
    expect(await stateOf(buyer)).toMatchObject({ status: "paused", problem: "no_card" });
    expect(await ordersOf(buyer)).toHaveLength(0);
    expectRefusal(await buyer.put("/auto-top-up", AMOUNTS), "validation_failed");
  });
});

test("nothing is ordered for a suspended account or seller; switched off while one is charged, it is completed", async () => {
  const buyer = await topped({ of: "acme" });
  await shop.sql`update accounts set status = 'suspended' where id = ${shop.acme.accountId}`;
  await shop.later();
  await shop.sql`update accounts set status = 'active' where id = ${shop.acme.accountId}`;
  await shop.sql`update accounts set status = 'suspended' where id = ${buyer.accountId}`;
  await shop.later();
  await shop.sql`update accounts set status = 'active' where id = ${buyer.accountId}`;
  expect(await ordersOf(buyer)).toHaveLength(0);
  shop.stripe.cards.whenConfirming(async () => {
    expect(ok(await buyer.delete("/auto-top-up"))).toEqual({ removed: true });
  });
  await shop.later();
  shop.stripe.cards.whenConfirming(async () => {});
  await spend(buyer);
  for (let i = 0; i < 2; i++) await shop.later();
  expect(await ordersOf(buyer)).toMatchObject([{ status: "fulfilled" }]);
  expect(ok(await buyer.delete("/auto-top-up"))).toEqual({ removed: false });
});

test("while a paid one waits for the seller's balance, there is no second one", async () => {
  const poor = await shop.world.addReseller();
  const person = await shop.world.addCustomer(poor.accountId);
  const [keys] = await shop.sql`select * from sellers where seller_id = ${shop.acme.accountId}`;
  await shop.sql`
    insert into sellers (seller_id, stripe_key_ciphertext, stripe_webhook_ciphertext)
    values (${poor.accountId}, ${keys?.stripe_key_ciphertext}, ${keys?.stripe_webhook_ciphertext})`;
  await shop.addCardRow(person, poor.accountId, shop.acme.accountId);
  await shop.sql`
    insert into auto_top_ups (account_id, below_nano_usd, amount_nano_usd, month_max_nano_usd, told_nano)
    values (${person.accountId}, ${nano(5)}, ${nano(20)}, ${nano(50)}, ${nano(20)})`;
  for (let i = 0; i < 3; i++) await shop.later();
  expect(await ordersOf(person)).toMatchObject([{ status: "paid", waits_for: "seller_balance" }]);
});

test("amounts are whole cents, at least $1, and a month has at least one; a card is needed", async () => {
  const buyer = await topped();
  const refused = async (over: object, param: string) =>
    expectRefusal(await buyer.put("/auto-top-up", { ...AMOUNTS, ...over }), "validation_failed", { param });
  await refused({ belowNanoUsd: "5" }, "belowNanoUsd");
  await refused({ belowNanoUsd: "0" }, "belowNanoUsd");
  await refused({ amountNanoUsd: String(USD / 2n) }, "amountNanoUsd");
  await refused({ amountNanoUsd: "-1" }, "amountNanoUsd");
  await refused({ monthMaxNanoUsd: nano(19) }, "monthMaxNanoUsd");
  await refused({ monthMaxNanoUsd: "9999999999999999" }, "monthMaxNanoUsd");
  const other = await shop.newcomer();
  expectRefusal(await other.put("/auto-top-up", AMOUNTS), "validation_failed");
  expect(await stateOf(other)).toBeNull();
});

test("a payment that is disputed at the bank pauses them", async () => {
  const buyer = await topped({ of: "acme" });
  await shop.later();
  const [payment] = await shop.sql`select external_id from payments where account_id = ${buyer.accountId}`;
  const account = `sk_test_0123456789abcdef${shop.acme.accountId}`;
  const paid = { payment_intent: String(payment?.external_id), amount_total: 2000, currency: "usd", account };
  const disputed = shop.stripe.dispute(paid, { status: "needs_response" });
  expect((await shop.hook(shop.acme.accountId, disputed, { type: "charge.dispute.created" })).status).toBe(200);
  await spend(buyer);
  await shop.later();
  expect(await stateOf(buyer)).toMatchObject({ status: "paused" });
  expect(await ordersOf(buyer)).toHaveLength(1);
});
