import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { ok, type PanelSession, signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import { USD } from "./pay_shop.ts";
import { openRenewalShop, PRICE, type RenewalShop, setupIdOf } from "./renewal_shop.ts";
import { STRIPE_WEBHOOK_SECRET } from "./stripe_stand_in.ts";

/** Packages that renew automatically, from a card on file or the balance. Source: REN-1, REN-2, REN-3, REN-4, REN-5, REN-6, CRD-3, CRD-4. */

setDefaultTimeout(120_000);
let shop: RenewalShop;

beforeAll(async () => {
  shop = await openRenewalShop();
  await shop.topUp(shop.acme, 1_000n * USD);
});
afterAll(() => shop.close());

type Renewing = Awaited<ReturnType<RenewalShop["renewing"]>>;

/** The one package that a renewal became follows the one that it renewed, at its price, and renews in turn. */
async function expectRenewed({ accountId, packageId }: Renewing, price = PRICE): Promise<void> {
  const renewal = await shop.renewalOf(packageId);
  expect(renewal).toMatchObject({ status: "done", paid_nano_usd: String(price) });
  const packages = await shop.packagesOf({ accountId });
  expect(packages).toHaveLength(2);
  const [first, second] = packages;
  expect(second).toMatchObject({ id: renewal.new_package_id, starts_at: first?.ends_at });
  expect(await shop.renewalOf(Number(second?.id))).toMatchObject({ status: "on", source: renewal.source });
}

async function expectNotRenewed({ accountId, packageId }: Renewing, problem: string): Promise<void> {
  expect(await shop.renewalOf(packageId)).toMatchObject({ status: "failed", problem });
  expect(await shop.packagesOf({ accountId })).toHaveLength(1);
  expect(await shop.sql`select 1 from payments where account_id = ${accountId}`).toHaveLength(0);
}

const failuresTold = async (who: { accountId: number }) =>
  (await shop.told(who)).filter(({ kind }) => kind === "renewal_failed").map(({ data }) => data);

describe("renewed from", () => {
  for (const of of ["house", "acme"] as const)
    test(`the card, of ${of === "house" ? "the operator" : "a reseller"}: told, charged once, invoiced, and the next package renews too`, async () => {
      const buyer = await shop.renewing({ of });
      await shop.later();
      expect((await shop.told(buyer)).at(-1)).toMatchObject({
        kind: "renewal_upcoming",
        data: { packageId: buyer.packageId, source: "card", totalNano: String(PRICE), timeZone: "UTC" },
      });
      await shop.later();
      await expectRenewed(buyer);
      for (let i = 0; i < 3; i++) await shop.later();
      expect(await shop.packagesOf(buyer)).toHaveLength(2);
      const [payment] = await shop.sql`select * from payments where account_id = ${buyer.accountId}`;
      expect(payment).toMatchObject({ method: "stripe", amount_nano: String(PRICE), problem: null });
      expect(shop.stripe.cards.charged.filter((id) => id === payment?.external_id)).toHaveLength(1);
      expect(await shop.sql`select 1 from invoices where account_id = ${buyer.accountId}`).toHaveLength(1);
      const [wholesale] = await shop.sql`
        select account_id, amount_nano_usd from balance_entries where package_id = ${(await shop.renewalOf(buyer.packageId)).new_package_id}`;
      expect(wholesale).toEqual(
        of === "house" ? undefined : { account_id: String(shop.acme.accountId), amount_nano_usd: String(-4n * USD) },
      );
    });

  for (const of of ["house", "acme"] as const)
    test(`the balance, of ${of === "house" ? "the operator" : "a reseller, who gets the price and pays the wholesale price"}`, async () => {
      const buyer = await shop.renewing({ of, source: "balance" });
      await shop.world.setBalance(buyer, 20n * USD);
      const sellerHad = await shop.balanceOf(shop.acme);
      await shop.later();
      await shop.later();
      await expectRenewed(buyer);
      for (let i = 0; i < 3; i++) await shop.later();
      expect(await shop.balanceOf(buyer)).toBe(8n * USD);
      expect(await shop.packagesOf(buyer)).toHaveLength(2);
      if (of === "acme") {
        expect((await shop.balanceOf(shop.acme)) - sellerHad).toBe(8n * USD);
        const { month } = ok(await shop.as.acme.get("/home/selling"));
        const [sold] =
          await shop.sql`select count(*)::int as n from orders where seller_id = ${shop.acme.accountId} and status = 'fulfilled'`;
        expect(month.revenueNanoUsd).toBe(String(PRICE * BigInt(sold?.n + 1)));
        expect(month.costNanoUsd).toBe(String(4n * USD * BigInt(sold?.n + 1)));
      }
      const [unit] = await shop.sql`
        select unit_nano_usd, unit_cost_nano_usd from packages where id = ${(await shop.renewalOf(buyer.packageId)).new_package_id}`;
      // The worth of a unit: the price, and the operator's share, ÷ 30,000 requests.
      expect(unit).toEqual({ unit_nano_usd: "400000", unit_cost_nano_usd: of === "house" ? "400000" : "133333" });
      expect((await shop.told(buyer)).at(-1)?.kind).toBe("package_assigned");
      const { entries } = ok(await buyer.session.get("/billing/movements"));
      expect(entries[0]).toMatchObject({ kind: "package", amountNanoUsd: String(-PRICE) });
    });
});

describe("when it is renewed", () => {
  test("it is told three days before, and charged a day before, of a package of 30 days", async () => {
    const buyer = await shop.renewing({ hoursLeft: 80 });
    await shop.later();
    expect(await shop.told(buyer)).toEqual([]);
    await shop.endsIn(buyer.packageId, 71);
    await shop.round();
    expect((await shop.told(buyer)).map(({ kind }) => kind)).toEqual(["renewal_upcoming"]);
    await shop.later();
    expect(await shop.renewalOf(buyer.packageId)).toMatchObject({ status: "on" });
    await shop.endsIn(buyer.packageId, 24);
    await shop.round();
    await expectRenewed(buyer);
  });

  test("a package of one day is charged in its last quarter", async () => {
    const buyer = await shop.renewing({ hoursLeft: 7, days: 1 });
    await shop.later();
    await shop.later();
    expect(await shop.packagesOf(buyer)).toHaveLength(1);
    await shop.endsIn(buyer.packageId, 6);
    await shop.round();
    expect(await shop.packagesOf(buyer)).toHaveLength(2);
  });

  test("a package that a person ends is not renewed; one that ended while no replica ran is not charged", async () => {
    const ended = await shop.renewing();
    ok(await shop.as.admin.post(`/people/${ended.accountId}/packages/${ended.packageId}/end`));
    const late = await shop.renewing();
    await shop.endsIn(late.packageId, -1);
    await shop.later();
    expect(await shop.renewalOf(ended.packageId)).toMatchObject({ status: "cancelled" });
    await expectNotRenewed(late, "too_late");
  });
});

describe("a card that", () => {
  test("is refused is tried three times, told of at the first and the last, and the package ends as any other", async () => {
    const buyer = await shop.renewing({ bank: "refuses" });
    for (let i = 0; i < 6; i++) await shop.later();
    await expectNotRenewed(buyer, "card_refused");
    expect(await shop.chargeOf(buyer.packageId)).toMatchObject({ status: "failed", tries: 3 });
    const told = await failuresTold(buyer);
    expect(told).toMatchObject([{ problem: "card_refused" }, { problem: "card_refused", retriesAt: null }]);
    expect(told[0]?.retriesAt).toBeString();
    const [order] = await shop.sql`select status from orders where account_id = ${buyer.accountId}`;
    expect(order).toEqual({ status: "withdrawn" });
  });

  test("is refused once is charged at the next try, once", async () => {
    const buyer = await shop.renewing({ bank: "refuses" });
    await shop.later();
    await shop.later();
    expect(await shop.chargeOf(buyer.packageId)).toMatchObject({ status: "due", tries: 1 });
    // Not before the pause is over.
    await shop.round();
    expect(await shop.chargeOf(buyer.packageId)).toMatchObject({ tries: 1 });
    shop.stripe.cards.setBank("pays");
    await shop.later();
    await expectRenewed(buyer);
  });

  test("has expired is told of as that, and another one is charged at the next try", async () => {
    const buyer = await shop.renewing({ bank: "expired" });
    await shop.later();
    await shop.later();
    expect(await failuresTold(buyer)).toMatchObject([{ problem: "card_expired" }]);
    await shop.saveCard(buyer.session);
    await shop.later();
    await expectRenewed(buyer);
  });

  for (const bank of ["asks", "asks_later"] as const)
    test(`asks for the person (${bank}) is charged no further: the person pays on the order's page`, async () => {
      const buyer = await shop.renewing({ bank, of: "acme" });
      await shop.later();
      await shop.later();
      expect(await shop.chargeOf(buyer.packageId)).toMatchObject({ status: "person", problem: "needs_person" });
      const told = (await shop.told(buyer)).at(-1);
      expect(told).toMatchObject({ kind: "payment_needs_you", data: { purpose: "renewal" } });
      const intentId = (await shop.chargeOf(buyer.packageId))?.intent_id;
      expect(shop.stripe.cards.intents.get(String(intentId))?.status).toBe("canceled");
      shop.stripe.cards.setBank("pays");
      await shop.later();
      expect(await shop.packagesOf(buyer)).toHaveLength(1);
      const orderId = Number(told?.data.orderId);
      ok(await buyer.session.post(`/orders/${orderId}/pay`, { method: "stripe" }));
      await shop.hook(buyer.sellerId, { ...shop.stripe.pay(String(told?.data.reference)) });
      await expectRenewed(buyer);
    });

  test("is removed before the charge is not charged; removed while Stripe charges it, the package comes or nothing is charged", async () => {
    const before = await shop.renewing();
    await shop.later();
    ok(await before.session.delete("/card"));
    for (let i = 0; i < 4; i++) await shop.later();
    await expectNotRenewed(before, "no_card");
    expect(await failuresTold(before)).toHaveLength(2);

    const during = await shop.renewing();
    await shop.later();
    const charged = shop.stripe.cards.charged.length;
    shop.stripe.cards.whenConfirming(async () => {
      ok(await during.session.delete("/card"));
      // Stripe forgets the card before it charges it.
      for (const method of shop.stripe.cards.methods.values()) if (method.bank === "pays") method.customer = null;
    });
    await shop.later();
    shop.stripe.cards.whenConfirming(async () => {});
    for (let i = 0; i < 3; i++) await shop.later();
    await expectNotRenewed(during, "no_card");
    expect(shop.stripe.cards.charged).toHaveLength(charged);

    const late = await shop.renewing();
    await shop.later();
    // Stripe has charged it when it hears that the card is gone.
    shop.stripe.cards.whenConfirming(async () => ok(await late.session.delete("/card")));
    await shop.later();
    shop.stripe.cards.whenConfirming(async () => {});
    expect(shop.stripe.cards.charged).toHaveLength(charged + 1);
    const [first, second] = await shop.packagesOf(late);
    expect(second).toMatchObject({ starts_at: first?.ends_at });
    expect(await shop.sql`select 1 from payments where account_id = ${late.accountId}`).toHaveLength(1);
    expect(ok(await late.session.get("/card")).card).toBeNull();
    for (let i = 0; i < 3; i++) await shop.later();
    expect(await shop.packagesOf(late)).toHaveLength(2);
    expect(shop.stripe.cards.charged).toHaveLength(charged + 1);
  });

  test("is still being processed by the bank is asked about until it is paid", async () => {
    const buyer = await shop.renewing({ bank: "processing" });
    await shop.later();
    await shop.later();
    const { intent_id } = (await shop.chargeOf(buyer.packageId)) ?? {};
    await shop.later();
    expect(await shop.chargeOf(buyer.packageId)).toMatchObject({ status: "charging", tries: 1 });
    Object.assign(shop.stripe.cards.intents.get(String(intent_id)) ?? {}, { status: "succeeded" });
    await shop.later();
    await expectRenewed(buyer);
  });
});

describe("what is sold", () => {
  test("an offering that is no longer sold is tried three times, and neither charged nor assigned", async () => {
    for (const source of ["card", "balance"] as const) {
      const buyer = await shop.renewing({ source });
      await shop.world.setBalance(buyer, 100n * USD);
      await shop.later();
      await shop.sql`update offerings set enabled = false where id = ${buyer.offeringId}`;
      for (let i = 0; i < 4; i++) await shop.later();
      await expectNotRenewed(buyer, "not_on_sale");
      expect(await shop.balanceOf(buyer)).toBe(100n * USD);
    }
  });

  test("an offering that is withdrawn after the order was placed is not charged", async () => {
    const buyer = await shop.renewing({ bank: "refuses" });
    await shop.later();
    await shop.later();
    shop.stripe.cards.setBank("pays");
    await shop.sql`update offerings set enabled = false where id = ${buyer.offeringId}`;
    for (let i = 0; i < 3; i++) await shop.later();
    await expectNotRenewed(buyer, "not_on_sale");
  });

  test("nothing is renewed while the seller or the customer is suspended, and all of it once they are active again", async () => {
    const buyer = await shop.renewing({ of: "acme", source: "balance" });
    const card = await shop.renewing({ of: "acme" });
    await shop.world.setBalance(buyer, 20n * USD);
    await shop.later();
    await shop.sql`update accounts set status = 'suspended' where id = ${shop.acme.accountId}`;
    await shop.later();
    for (const one of [buyer, card]) expect(await failuresTold(one)).toMatchObject([{ problem: "seller_suspended" }]);
    await shop.sql`update accounts set status = 'active' where id = ${shop.acme.accountId}`;
    await shop.sql`update accounts set status = 'suspended' where id = ${buyer.accountId}`;
    await shop.later();
    expect(await shop.renewalOf(buyer.packageId)).toMatchObject({ tries: 2, problem: "account_suspended" });
    await expectRenewed(card);
    await shop.sql`update accounts set status = 'active' where id = ${buyer.accountId}`;
    await shop.later();
    await expectRenewed(buyer);
  });

  test("a price that rises after the notice is told before it is paid; one that falls is paid at once", async () => {
    const setPrice = (offeringId: number, price: bigint) =>
      shop.sql`update retail_prices set price_nano = ${String(price)} where offering_id = ${offeringId}`;
    const rises = await shop.renewing();
    const falls = await shop.renewing({ source: "balance" });
    await shop.world.setBalance(falls, 20n * USD);
    await shop.later();
    await setPrice(rises.offeringId, 15n * USD);
    await setPrice(falls.offeringId, 9n * USD);
    await shop.later();
    await expectRenewed(falls, 9n * USD);
    expect(await shop.packagesOf(rises)).toHaveLength(1);
    const prices = (await shop.told(rises)).filter(({ kind }) => kind === "renewal_upcoming");
    expect(prices.map(({ data }) => data.totalNano)).toEqual([String(PRICE), String(15n * USD)]);
    // The customer has time to cancel.
    await shop.round();
    expect(await shop.packagesOf(rises)).toHaveLength(1);
    await shop.later();
    await expectRenewed(rises, 15n * USD);
  });

  test("the card pays the tax of the day, told again when it rises; the balance pays without tax, because its top-ups had it", async () => {
    const set = async (packageTax: number, terms = {}) =>
      ok(await shop.as.admin.patch("/selling-terms", { taxCountry: "DE", packageTax, topUpTax: 0, ...terms }));
    await set(10_000);
    const card = await shop.renewing();
    const balance = await shop.renewing({ source: "balance" });
    await shop.world.setBalance(balance, 20n * USD);
    await shop.round();
    await set(20_000);
    await shop.later();
    expect(await shop.packagesOf(card)).toHaveLength(1);
    await shop.later();
    const told = (await shop.told(card)).filter(({ kind }) => kind === "renewal_upcoming");
    expect(told.map(({ data }) => data.totalNano)).toEqual([String((PRICE * 11n) / 10n), String((PRICE * 12n) / 10n)]);
    expect(
      await shop.sql`select tax_nano::text as tax, price_nano_usd::text as price from orders where account_id = ${card.accountId}`,
    ).toMatchObject([{ tax: String(PRICE / 5n), price: String(PRICE) }]);
    await expectRenewed(card);
    await expectRenewed(balance);
    expect(await shop.balanceOf(balance)).toBe(20n * USD - PRICE);
    await set(0, { taxCountry: null });
  });

  test("terms that a seller changes between the price and the order charge nothing dearer than was told", async () => {
    const one = await shop.renewing();
    await shop.round();
    const reading = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    // The step reads the card after the price, and waits there.
    const locked = shop.sql.begin(async (tx) => {
      await tx`lock table cards in access exclusive mode`;
      reading.resolve();
      await released.promise;
    });
    await reading.promise;
    const stepping = shop.later();
    await until(async () => {
      const waiting = await shop.sql`
        select 1 from pg_locks l join pg_stat_activity a using (pid)
        where l.relation = 'cards'::regclass and not l.granted and a.application_name = 'steps'`;
      return waiting.length > 0;
    });
    await shop.sql`insert into sellers (seller_id) values (0) on conflict do nothing`;
    await shop.sql`update sellers set tax_country = 'DE', package_tax = 50000 where seller_id = 0`;
    released.resolve();
    await Promise.all([locked, stepping]);
    const ordered = () =>
      shop.sql`select price_nano_usd + tax_nano as total from orders where account_id = ${one.accountId}`;
    expect(await ordered()).toHaveLength(0);
    await shop.later();
    expect((await shop.told(one)).at(-1)).toMatchObject({ data: { totalNano: String((PRICE * 3n) / 2n) } });
    await shop.later();
    await expectRenewed(one);
    await shop.sql`update sellers set tax_country = null, package_tax = 0 where seller_id = 0`;
  });

  test("a balance that is too low is tried three times; topped up in between, it pays", async () => {
    const poor = await shop.renewing({ source: "balance" });
    const saved = await shop.renewing({ source: "balance" });
    for (let i = 0; i < 2; i++) await shop.later();
    await shop.world.setBalance(saved, 12n * USD);
    for (let i = 0; i < 3; i++) await shop.later();
    await expectNotRenewed(poor, "balance_low");
    await expectRenewed(saved);
    expect(await shop.balanceOf(saved)).toBe(0n);
    expect((await failuresTold(poor)).map(({ retriesAt }) => retriesAt === null)).toEqual([false, true]);
  });
});

describe("a customer", () => {
  test("cancels in one click, before the charge and between two tries; nothing is charged afterwards", async () => {
    for (const [bank, rounds] of [
      ["pays", 1],
      ["refuses", 2],
    ] as const) {
      const buyer = await shop.renewing({ bank });
      for (let i = 0; i < rounds; i++) await shop.later();
      const { renewals } = ok(await buyer.session.post("/renewals/cancel", { packageId: buyer.packageId }));
      expect(renewals[0].renewal.status).toBe("cancelled");
      shop.stripe.cards.setBank("pays");
      for (let i = 0; i < 3; i++) await shop.later();
      expect(await shop.packagesOf(buyer)).toHaveLength(1);
      expect(await shop.sql`select 1 from payments where account_id = ${buyer.accountId}`).toHaveLength(0);
    }
  });

  test("who cancels, withdraws or pays by hand while Stripe charges the card pays once, and nothing renews after a cancellation", async () => {
    const buyer = await shop.renewing();
    await shop.later();
    shop.stripe.cards.whenConfirming(async () => {
      const { order_id } = await shop.renewalOf(buyer.packageId);
      expectRefusal(await buyer.session.post(`/orders/${order_id}/withdraw`), "validation_failed");
      expectRefusal(await buyer.session.post(`/orders/${order_id}/pay`, { method: "stripe" }), "validation_failed");
      expectRefusal(await shop.as.admin.post(`/orders/${order_id}/fulfil`), "validation_failed");
      ok(await buyer.session.post("/renewals/cancel", { packageId: buyer.packageId }));
    });
    await shop.later();
    shop.stripe.cards.whenConfirming(async () => {});
    const packages = await shop.packagesOf(buyer);
    expect(packages).toHaveLength(2);
    expect(await shop.sql`select 1 from payments where account_id = ${buyer.accountId}`).toHaveLength(1);
    expect(await shop.renewalOf(Number(packages[1]?.id))).toEqual({});
  });

  test("chooses only what can be renewed: with a card, on sale, its own, not ended", async () => {
    const buyer = await shop.renewing({ source: "balance" });
    const { session, packageId } = buyer;
    const other = await shop.newcomer();
    expectRefusal(await session.put(`/packages/${packageId}/renewal`, { source: "card" }), "validation_failed", {
      param: "source",
    });
    expectRefusal(await session.put(`/packages/${packageId}/renewal`, { source: "gift" }), "validation_failed", {
      param: "source",
    });
    expectRefusal(await other.put(`/packages/${packageId}/renewal`, { source: "balance" }), "not_found");
    expectRefusal(await other.post("/renewals/cancel", { packageId }), "not_found");
    await shop.sql`update offerings set enabled = false where id = ${buyer.offeringId}`;
    expectRefusal(await session.put(`/packages/${packageId}/renewal`, { source: "balance" }), "validation_failed", {
      param: "packageId",
    });
    expect(ok(await session.get("/renewals")).renewals).toMatchObject([{ packageId, price: null }]);
    await shop.endsIn(packageId, -1);
    expectRefusal(await session.put(`/packages/${packageId}/renewal`, { source: "balance" }), "validation_failed", {
      param: "packageId",
    });
    expect(ok(await session.get("/renewals")).renewals).toEqual([]);
  });

  test("who disputes a payment of a renewal at its bank is charged nothing further", async () => {
    const buyer = await shop.renewing({ of: "acme" });
    for (let i = 0; i < 2; i++) await shop.later();
    await expectRenewed(buyer);
    const [payment] =
      await shop.sql`select external_id, amount_nano from payments where account_id = ${buyer.accountId}`;
    const account = `sk_test_0123456789abcdef${shop.acme.accountId}`;
    const paid = { payment_intent: String(payment?.external_id), amount_total: 1200, currency: "usd", account };
    const disputed = shop.stripe.dispute(paid, { status: "needs_response" });
    expect((await shop.hook(shop.acme.accountId, disputed, { type: "charge.dispute.created" })).status).toBe(200);
    const { new_package_id } = await shop.renewalOf(buyer.packageId);
    expect(await shop.renewalOf(Number(new_package_id))).toMatchObject({ status: "cancelled" });
  });

  test("switches it on again after a failure; its seller sees it, and can cancel it", async () => {
    const buyer = await shop.renewing({ of: "acme", bank: "refuses" });
    for (let i = 0; i < 6; i++) await shop.later();
    expect(ok(await buyer.session.get("/renewals")).renewals[0].renewal).toMatchObject({
      status: "failed",
      problem: "card_refused",
    });
    ok(await buyer.session.put(`/packages/${buyer.packageId}/renewal`, { source: "card" }));
    const { accountId, packageId } = buyer;
    const seen = ok(await shop.as.acme.get(`/renewals?accountId=${accountId}`)).renewals;
    expect(seen).toMatchObject([{ packageId, renewal: { status: "on", source: "card" } }]);
    expectRefusal(await shop.as.house.get(`/renewals?accountId=${accountId}`), "not_found");
    const { renewals } = ok(await shop.as.acme.post("/renewals/cancel", { accountId, packageId }));
    expect(renewals[0].renewal.status).toBe("cancelled");
  });
});

describe("a seller", () => {
  test("sees the renewals of its own customers alone, in the order in which the packages end, without what is done or has ended", async () => {
    const later = await shop.renewing({ of: "acme", hoursLeft: 20 });
    const sooner = await shop.renewing({ of: "acme", source: "balance", hoursLeft: 3 });
    const other = await shop.renewing({ of: "house", hoursLeft: 2 });
    const seenBy = async (session: PanelSession) => {
      const { rows } = ok(await session.get("/renewals/customers"));
      const made = [later, sooner, other].map(({ packageId }) => packageId);
      return rows.filter(({ packageId }: { packageId: number }) => made.includes(packageId));
    };
    expect(await seenBy(shop.as.acme)).toMatchObject([
      { packageId: sooner.packageId, accountId: sooner.accountId, source: "balance", status: "on", problem: null },
      { packageId: later.packageId, accountId: later.accountId, source: "card", status: "on", problem: null },
    ]);
    expect(await seenBy(shop.as.admin)).toMatchObject([{ packageId: other.packageId }]);
    expectRefusal(await later.session.get("/renewals/customers"), "not_found");

    ok(await shop.as.acme.post("/renewals/cancel", { accountId: later.accountId, packageId: later.packageId }));
    expect((await seenBy(shop.as.acme))[1]).toMatchObject({ packageId: later.packageId, status: "cancelled" });
    await shop.world.setBalance(sooner, 20n * USD);
    for (let i = 0; i < 2; i++) await shop.later();
    await expectRenewed(sooner);
    expect(await seenBy(shop.as.acme)).toMatchObject([{ packageId: later.packageId }]);
    await shop.endsIn(later.packageId, -1);
    expect(await seenBy(shop.as.acme)).toEqual([]);
  });

  test("and its customer are told of a package that is about to run out, unless it renews; one whose renewal fails is again", async () => {
    const buyer = await shop.renewing({ of: "acme", bank: "refuses", hoursLeft: 1 });
    const isTold = async () => {
      const { runningOut } = ok(await shop.as.acme.get("/home/selling"));
      const { notices } = ok(await buyer.session.get("/home"));
      const kinds = notices.map(({ kind }: { kind: string }) => kind);
      const isOnHome = kinds.includes("package_ending");
      expect(runningOut.rows.some(({ accountId }: { accountId: number }) => accountId === buyer.accountId)).toBe(
        isOnHome,
      );
      return isOnHome;
    };
    expect(await isTold()).toBe(false);
    for (let i = 0; i < 2; i++) await shop.later();
    expect(await shop.renewalOf(buyer.packageId)).toMatchObject({ problem: "card_refused" });
    expect(await isTold()).toBe(true);
  });
});

describe("at Stripe", () => {
  test("lost answers, an outage and forgotten idempotency keys charge once", async () => {
    const buyer = await shop.renewing();
    await shop.later();
    shop.stripe.loseAnswers(true);
    await shop.later();
    shop.stripe.forgetKeys();
    await shop.later();
    shop.stripe.loseAnswers(false);
    // Now the payment is stored, and the answer to its confirmation is lost: it has taken money.
    shop.stripe.cards.whenConfirming(async () => shop.stripe.loseAnswers(true));
    await shop.later();
    shop.stripe.cards.whenConfirming(async () => {});
    shop.stripe.loseAnswers(false);
    shop.stripe.setDown(true);
    await shop.later();
    shop.stripe.setDown(false);
    shop.stripe.forgetKeys();
    await shop.later();
    await shop.later();
    await expectRenewed(buyer);
    const [payment] = await shop.sql`select external_id from payments where account_id = ${buyer.accountId}`;
    expect(shop.stripe.cards.charged.filter((id) => id === payment?.external_id)).toHaveLength(1);
    const { order_id } = await shop.renewalOf(buyer.packageId);
    const { reference } = await shop.orderRow(Number(order_id));
    const made = [...shop.stripe.cards.intents.values()].filter(({ metadata }) => metadata.order === reference);
    // Payments that were made without an answer were never confirmed.
    expect(made.filter(({ status }) => status === "succeeded")).toHaveLength(1);
  });

  test("a webhook records the payment if the replica that charged is gone", async () => {
    const buyer = await shop.renewing();
    await shop.later();
    const confirming = new Promise<void>((resolve) => {
      shop.stripe.cards.whenConfirming(async () => {
        shop.stripe.loseAnswers(true);
        resolve();
      });
    });
    const round = shop.later();
    await confirming;
    await round;
    shop.stripe.cards.whenConfirming(async () => {});
    shop.stripe.loseAnswers(false);
    const { intent_id } = (await shop.chargeOf(buyer.packageId)) ?? {};
    const intent = shop.stripe.cards.intents.get(String(intent_id));
    if (!intent) throw new Error("nothing was charged");
    const about = { ...shop.stripe.cards.shown(intent) };
    for (let i = 0; i < 3; i++)
      expect((await shop.hook(0, about, { type: "payment_intent.succeeded" })).status).toBe(200);
    await expectRenewed(buyer);
    await shop.later();
    expect(await shop.sql`select 1 from payments where account_id = ${buyer.accountId}`).toHaveLength(1);
  });
});

describe("a card on file", () => {
  test("is shown by its brand, last four digits and expiry, replaced, and removed; Stripe forgets it", async () => {
    const buyer = await shop.newcomer();
    expect(ok(await buyer.get("/card"))).toEqual({ isOffered: true, card: null });
    await shop.saveCard(buyer, "refuses");
    const first = [...shop.stripe.cards.methods.values()].at(-1);
    expect(ok(await buyer.get("/card")).card).toEqual({
      ...{ brand: "visa", lastFour: "0341", expiresMonth: 4, expiresYear: 2031 },
    });
    await shop.saveCard(buyer);
    expect(ok(await buyer.get("/card")).card.lastFour).toBe("4242");
    await shop.later();
    expect(first?.customer).toBeNull();
    const second = [...shop.stripe.cards.methods.values()].at(-1);
    expect(second?.customer).toBeString();
    expect(ok(await buyer.delete("/card"))).toEqual({ removed: true });
    expect(ok(await buyer.delete("/card"))).toEqual({ removed: false });
    expect(ok(await buyer.get("/card")).card).toBeNull();
    await shop.round();
    expect(second?.customer).toBeNull();
  });

  test("is saved once by a page: webhooks that come twice, late, or after its removal change nothing", async () => {
    const buyer = await shop.newcomer("acme");
    const sellerId = shop.acme.accountId;
    const { url } = ok(await buyer.post("/card"));
    const setup = shop.stripe.cards.setups.get(setupIdOf(url));
    if (!setup) throw new Error("Stripe has no page");
    const event = () => shop.hook(sellerId, { ...setup, mode: "setup" }, { type: "checkout.session.completed" });
    // Before the person is done: the page is asked about, and is still open.
    expect((await event()).status).toBe(200);
    expect(ok(await buyer.get("/card")).card).toBeNull();
    shop.stripe.cards.complete(setup.id);
    await Promise.all([event(), event(), event()]);
    expect(ok(await buyer.get("/card")).card.lastFour).toBe("4242");
    ok(await buyer.delete("/card"));
    await event();
    expect(ok(await buyer.get("/card")).card).toBeNull();
    expectRefusal(
      await shop.hook(sellerId, { ...setup, mode: "setup" }, { secret: "whsec_forged0123456789" }),
      "invalid_request",
      { param: "stripe-signature" },
    );
  });

  test("is found without a webhook and without the person, when Stripe is asked", async () => {
    const buyer = await shop.newcomer();
    const { url } = ok(await buyer.post("/card"));
    shop.stripe.cards.complete(setupIdOf(url));
    await shop.sql`update card_setups set ask_at = now() where account_id = ${buyer.accountId}`;
    await shop.round();
    expect(ok(await buyer.get("/card")).card.lastFour).toBe("4242");
  });

  test("belongs to the seller's Stripe account: a new key of it keeps the cards, another account drops them", async () => {
    const buyer = await shop.renewing({ of: "acme" });
    const { acme } = shop.as;
    const stripe = (apiKey: string) => ({
      stripe: { apiKey, webhookSecret: `${STRIPE_WEBHOOK_SECRET}${shop.acme.accountId}` },
    });
    ok(await acme.put("/payment-settings/stripe", stripe(`sk_test_0123456789abcdef${shop.acme.accountId}`)));
    expect(ok(await buyer.session.get("/card")).card).not.toBeNull();
    ok(await acme.put("/payment-settings/stripe", stripe("sk_test_another0123456789")));
    expect(ok(await buyer.session.get("/card")).card).toBeNull();
    for (let i = 0; i < 5; i++) await shop.later();
    await expectNotRenewed(buyer, "no_card");
    ok(await acme.put("/payment-settings/stripe", stripe(`sk_test_0123456789abcdef${shop.acme.accountId}`)));
  });

  test("is not offered by a seller without Stripe, and its secrets are nobody's: no answer has Stripe's ids", async () => {
    const buyer = await shop.renewing({ of: "acme" });
    const text = JSON.stringify(
      [await buyer.session.get("/card"), await buyer.session.get("/renewals")].map((a) => a.json),
    );
    expect(text).not.toMatch(/cus_|pm_|seti_|pi_/);
    const audit = JSON.stringify(await shop.sql`select before, after from audit_entries where subject = 'cards'`);
    expect(audit).toContain("4242");
    expect(audit).not.toMatch(/cus_|pm_/);
    const reseller = await shop.world.addReseller();
    const lonely = await shop.world.addCustomer(reseller.accountId);
    await shop.sql`insert into hosts (host, reseller_id, status) values ('ai.lonely.test', ${reseller.accountId}, 'active')`;
    const session = await signInTo(shop.shop, lonely, { host: "ai.lonely.test" });
    expect(ok(await session.get("/card"))).toEqual({ isOffered: false, card: null });
    expectRefusal(await session.post("/card"), "validation_failed");
  });
});
