import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { measuredPrice } from "../../src/commerce/measured_price.ts";
import { pruneOrders } from "../../src/commerce/orders_store.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { ok, type PanelSession } from "../panel/panel_client.ts";
import { randomOf } from "../random.ts";
import { BAD_SIZES } from "./bad_cases.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";

/** Made-to-measure packages: prices, orders and payments. Source: MTM-1, MTM-2, MTM-3, MTM-4. */

const CENT = USD / 100n;
const BOUNDS = { daysMin: 1, daysMax: 30, dailyMin: 10, dailyMax: 1_000_000 };
const step = (fromRequests: number, nano: bigint) => ({ fromRequests, nano: String(nano) });
const RETAIL = { isOpen: true, ...BOUNDS, steps: [step(0, 60n * CENT), step(10_000, 50n * CENT)] };
const WHOLESALE = {
  isOpen: true,
  ...BOUNDS,
  dailyMax: 5_000,
  steps: [step(0, 20n * CENT), step(10_000, 100_000_001n)],
};
const SIZE = { kind: "measured", days: 7, dailyLimit: 500 };

let pay: PayShop;
beforeAll(async () => {
  pay = await openPayShop();
  await setAll();
  await pay.topUp(pay.acme, 50n * USD);
});
afterAll(() => pay.close());

const set = (session: PanelSession, prices: object, kind = "retail") =>
  session.put(`/measured-prices?kind=${kind}`, prices);
async function setAll() {
  ok(await set(pay.as.admin, WHOLESALE, "wholesale"));
  ok(await set(pay.as.admin, RETAIL));
  ok(await set(pay.as.acme, RETAIL));
}
const place = (session: PanelSession, wanted: object = {}) =>
  session.post("/orders", { ...SIZE, priceNano: String(210n * CENT), ...wanted });
const packagesOf = async ({ accountId }: { accountId: number }) => [
  ...(await pay.sql`select name, days, daily_limit, total_limit, paid_by_account_id::int from packages where account_id = ${accountId} order by id`),
];

describe("the price", () => {
  test("is the requests times the price for 1,000 of the last step that they reach, rounded up to cents, by another computation", () => {
    const { next: random } = randomOf(7);
    for (let round = 0; round < 2_000; round++) {
      const steps = [0, ...Array.from({ length: 3 }, () => 1 + Math.floor(random() * 1e6))]
        .filter((from, index, all) => all.indexOf(from) === index)
        .sort((a, b) => a - b)
        .map((fromRequests) => ({ fromRequests, nano: BigInt(1 + Math.floor(random() * 2e9)) }));
      const size = { days: 1 + Math.floor(random() * 30), dailyLimit: 1 + Math.floor(random() * 50_000) };
      const { requests, priceNano } = measuredPrice(steps, size, CENT);
      let perThousand = 0n;
      for (const { fromRequests, nano } of steps) if (fromRequests <= requests) perThousand = nano;
      let cents = (BigInt(requests) * perThousand) / (1_000n * CENT);
      if (cents * 1_000n * CENT < BigInt(requests) * perThousand) cents++;
      expect([requests, priceNano]).toEqual([size.days * size.dailyLimit, cents * CENT]);
    }
  });

  test("is shown with its bounds: a reseller's customers choose what both sellers sell", async () => {
    const shown = ok(await pay.as.customer.get("/measured"));
    expect(shown.offer).toEqual({ ...RETAIL, dailyMax: 5_000, currency: "usd" });
    expect(ok(await pay.as.house.get("/measured")).offer).toEqual({ ...RETAIL, currency: "usd" });
  });
});

describe("an order", () => {
  test("of the operator's customer: frozen at its price, paid, and fulfilled with exactly that package", async () => {
    const buyer = await pay.newcomer();
    const { order } = ok(await place(buyer));
    expect(order).toMatchObject({ kind: "package", priceNanoUsd: String(210n * CENT), status: "open" });
    expect(order.offering.name).toBe("500 requests a day for 7 days");
    // The order keeps its price.
    ok(await set(pay.as.admin, { ...RETAIL, steps: [step(0, 90n * CENT)] }));
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    ok(await pay.hook(0, { ...pay.stripe.pay(order.reference) }));
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled" });
    expect(await packagesOf(buyer)).toEqual([
      {
        ...{ name: "500 requests a day for 7 days", days: 7, daily_limit: 500, total_limit: 3_500 },
        paid_by_account_id: null,
      },
    ]);
    await setAll();
  });

  test("of a reseller's customer: the reseller pays the wholesale price of the day of the order, to the nano-USD", async () => {
    const buyer = await pay.newcomer("acme");
    const size = { days: 30, dailyLimit: 777 };
    const { order } = ok(await place(buyer, { ...size, priceNano: String(1_166n * CENT) }));
    ok(await set(pay.as.admin, { ...WHOLESALE, steps: [step(0, 45n * CENT)] }, "wholesale"));
    const before = await pay.balanceOf(pay.acme);
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    ok(await pay.hook(pay.acme.accountId, { ...pay.stripe.pay(order.reference) }));
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "fulfilled" });
    // 23,310 requests at 0.100000001 for 1,000, rounded up to a nano-USD.
    expect(before - (await pay.balanceOf(pay.acme))).toBe(2_331_000_024n);
    expect(await packagesOf(buyer)).toMatchObject([{ total_limit: 23_310, paid_by_account_id: pay.acme.accountId }]);
    await setAll();
  });

  test("waits while the reseller's balance is too small, and is fulfilled later at the same cost", async () => {
    const poor = await pay.world.addReseller("ai.poor.test");
    const buyerOf = await pay.world.addCustomer(poor.accountId);
    const { signInTo } = await import("../panel/panel_client.ts");
    const seller = await signInTo(pay.shop, poor, { host: "ai.poor.test" });
    const buyer = await signInTo(pay.shop, buyerOf, { host: "ai.poor.test" });
    ok(await set(seller, RETAIL));
    ok(await seller.put("/payment-settings/instructions", { instructions: "IBAN" }));
    const { order } = ok(await place(buyer));
    expectRefusal(await seller.post(`/orders/${order.orderId}/fulfil`, {}), "insufficient_balance");
    expect(await pay.orderRow(order.orderId)).toMatchObject({ status: "open" });
    await pay.topUp(poor, 70n * CENT);
    ok(await seller.post(`/orders/${order.orderId}/fulfil`, {}));
    expect(await pay.balanceOf(poor)).toBe(0n);
  });

  test("whose price changed between page and order is refused with the new price; nothing is placed", async () => {
    const buyer = await pay.newcomer();
    for (const priceNano of [209n * CENT, 211n * CENT, 1n]) {
      const answer = await place(buyer, { priceNano: String(priceNano) });
      expectRefusal(answer, "validation_failed", { param: "priceNano" });
      expect(answer.json.error.message).toBe("The price has changed. It is $2.10 now.");
    }
    expect(await pay.sql`select 1 from orders where account_id = ${buyer.accountId}`).toHaveLength(0);
  });

  test("can no longer be paid when its seller, or the operator for a reseller, has stopped selling; and can again later", async () => {
    const buyer = await pay.newcomer("acme");
    const { order } = ok(await place(buyer));
    const choose = () => buyer.post(`/orders/${order.orderId}/pay`, { method: "instructions" });
    ok(await set(pay.as.acme, { ...RETAIL, isOpen: false }));
    expectRefusal(await choose(), "validation_failed");
    expectRefusal(await place(buyer), "validation_failed", { param: "kind" });
    expect(ok(await buyer.get("/measured")).offer).toBeNull();
    ok(await set(pay.as.acme, RETAIL));
    ok(await set(pay.as.admin, { ...WHOLESALE, isOpen: false }, "wholesale"));
    expectRefusal(await choose(), "validation_failed");
    expectRefusal(await place(buyer), "validation_failed", { param: "kind" });
    await setAll();
    ok(await choose());
  });

  test("below what the reseller would pay is not sold: the operator has raised its price since", async () => {
    const buyer = await pay.newcomer("acme");
    ok(await set(pay.as.admin, { ...WHOLESALE, steps: [step(0, 61n * CENT)] }, "wholesale"));
    expectRefusal(await place(buyer), "validation_failed", { param: "kind" });
    await setAll();
  });

  test("of a reseller or an admin is refused", async () => {
    expectRefusal(await place(pay.as.acme), "validation_failed", { param: "kind" });
    expectRefusal(await pay.as.acme.get("/measured"), "not_found");
  });

  for (const [what, change, param] of BAD_SIZES)
    test(`${what}: ${param} is refused, and nothing is placed`, async () => {
      const buyer = await pay.newcomer("acme");
      expectRefusal(await place(buyer, change as object), "validation_failed", { param: param ?? null });
      expect(await pay.sql`select 1 from orders where account_id = ${buyer.accountId}`).toHaveLength(0);
    });

  test("that costs more than $9,000,000 is refused", async () => {
    const buyer = await pay.newcomer();
    ok(await set(pay.as.admin, { ...RETAIL, steps: [step(0, 1_000n * USD)] }));
    const size = { days: 30, dailyLimit: 1_000_000, priceNano: String(9_000_000n * USD) };
    expectRefusal(await place(buyer, size), "validation_failed", { param: "dailyLimit" });
    await setAll();
  });
});

describe("its offering", () => {
  test("is shared by orders of the same size and cost, is in no list, and cannot be assigned, priced or given in another way", async () => {
    const [one, two] = [await pay.newcomer("acme"), await pay.newcomer("acme")];
    const orders = await Promise.all([place(one), place(two)]);
    const ids = orders.map((answer) => Number(ok(answer).order.offering.offeringId));
    expect(new Set(ids).size).toBe(1);
    const [offeringId = 0] = ids;
    const listed = [
      ...ok(await pay.as.admin.get("/admin/offerings")).offerings,
      ...ok(await pay.as.acme.get("/prices")).offerings,
      ...ok(await one.get("/offerings")).offerings,
    ];
    expect(listed.filter((row: { offeringId: number }) => row.offeringId === offeringId)).toEqual([]);
    const assign = { offeringId, when: "now" };
    expectRefusal(await pay.as.acme.post(`/people/${one.accountId}/packages`, assign), "validation_failed", {
      param: "offeringId",
    });
    expectRefusal(await pay.as.acme.post(`/people/${one.accountId}/packages/preview`, assign), "validation_failed", {
      param: "offeringId",
    });
    expectRefusal(await one.post("/orders", { kind: "package", offeringId }), "validation_failed", {
      param: "offeringId",
    });
    expectRefusal(await pay.as.acme.put(`/prices/${offeringId}`, { priceNano: String(USD) }), "validation_failed", {
      param: "offeringId",
    });
    const batch = {
      name: "x",
      offeringId,
      codes: 1,
      usesPerCode: 1,
      endsAt: new Date(Date.now() + 86_400_000).toISOString(),
    };
    expectRefusal(await pay.as.acme.post("/vouchers", batch), "validation_failed", { param: "offeringId" });
    const pieces = { resellerId: pay.acme.accountId, offeringId, pieces: 1, reason: "x" };
    expectRefusal(await pay.as.admin.post("/allotments", pieces), "validation_failed", { param: "offeringId" });
    expectRefusal(await pay.as.acme.patch("/sign-up/settings", { trialOfferingId: offeringId }), "validation_failed", {
      param: "trialOfferingId",
    });
    expect(await packagesOf(one)).toEqual([]);
  });

  describe("that has ended unpaid", () => {
    const KEPT_DAYS = 30;
    const price = (dailyLimit: number) => String(BigInt(7 * dailyLimit) * 6n * (CENT / 100n));
    const placed = async (buyer: PanelSession, dailyLimit: number) =>
      ok(await place(buyer, { dailyLimit, priceNano: price(dailyLimit) })).order;
    const end = async (buyer: PanelSession, order: { orderId: number }) => {
      ok(await buyer.post(`/orders/${order.orderId}/withdraw`));
      await pay.sql`update orders set decided_at = decided_at - make_interval(days => ${KEPT_DAYS + 1}) where id = ${order.orderId}`;
    };
    const left = async () => [
      ...(await pay.sql`select daily_limit from offerings where measured and daily_limit between 1000 and 1999 order by 1`),
    ];

    test("is deleted with its offering, unless another order or a package names that", async () => {
      const [one, two] = [await pay.newcomer(), await pay.newcomer()];
      const deps = { db: pay.world.openDb() };
      for (const dailyLimit of [1000, 1100]) await end(one, await placed(one, dailyLimit));
      const other = await placed(two, 1100);
      const assigned = await placed(one, 1200);
      await pay.world.assign(one, assigned.offering.offeringId);
      await end(one, assigned);
      expect(await pruneOrders(deps, KEPT_DAYS)).toBe(3);
      expect(await left()).toEqual([{ daily_limit: 1100 }, { daily_limit: 1200 }]);
      await end(two, other);
      expect(await pruneOrders(deps, KEPT_DAYS)).toBe(1);
      expect(await left()).toEqual([{ daily_limit: 1200 }]);
      expect(await packagesOf(one)).toMatchObject([{ daily_limit: 1200 }]);
    });

    test("is deleted while others order the same size: each order has its offering", async () => {
      const buyers = await Promise.all(Array.from({ length: 4 }, () => pay.newcomer()));
      const deps = { db: pay.world.openDb() };
      let isOver = false;
      const pruning = (async () => {
        while (!isOver) await pruneOrders(deps, KEPT_DAYS);
      })();
      await Promise.all(
        buyers.map(async (buyer) => {
          for (let n = 0; n < 10; n++) await end(buyer, await placed(buyer, 1300));
        }),
      );
      isOver = true;
      await pruning;
      await pruneOrders(deps, KEPT_DAYS);
      expect(await left()).toEqual([{ daily_limit: 1200 }]);
    });
  });
});

describe("prices", () => {
  const wrong: [what: string, change: object, param: string][] = [
    ["no price", { steps: [] }, "steps"],
    ["a first price that does not begin at 0", { steps: [step(5, USD)] }, "steps"],
    ["prices out of order", { steps: [step(0, USD), step(10, USD), step(10, USD)] }, "steps"],
    ["a step beyond the largest package", { steps: [step(0, USD), step(30_000_001, USD)] }, "steps"],
    ["a price above $1,000", { steps: [step(0, 1_000n * USD + 1n)] }, "steps"],
    ["11 prices", { steps: Array.from({ length: 11 }, (_, n) => step(n * 10, USD)) }, "steps"],
    ["a price of 0", { steps: [{ fromRequests: 0, nano: "0" }] }, "steps.0.nano"],
    ["below the wholesale price, from one volume on", { steps: [step(0, USD), step(20_000, 9n * CENT)] }, "steps"],
    ["0 days", { daysMin: 0 }, "daysMin"],
    ["31 days", { daysMax: 31 }, "daysMax"],
    ["half a day", { daysMin: 1.5 }, "daysMin"],
    ["fewer days at most than at least", { daysMin: 9, daysMax: 8 }, "daysMax"],
    ["0 requests a day", { dailyMin: 0 }, "dailyMin"],
    ["too many requests a day", { dailyMax: 1_000_001 }, "dailyMax"],
    ["another field", { currency: "eur" }, "currency"],
  ];
  for (const [what, change, param] of wrong)
    test(`${what}: ${param} is refused, and nothing changes`, async () => {
      const before = ok(await pay.as.acme.get("/measured-prices"));
      expectRefusal(await set(pay.as.acme, { ...RETAIL, ...change }), "validation_failed", { param });
      expect(ok(await pay.as.acme.get("/measured-prices"))).toEqual(before);
    });

  test("a reseller reads the operator's wholesale prices and does not set them, nor opens before the operator", async () => {
    expect(ok(await pay.as.acme.get("/measured-prices?kind=wholesale")).prices).toEqual({
      ...WHOLESALE,
      currency: "usd",
    });
    expectRefusal(await set(pay.as.acme, WHOLESALE, "wholesale"), "not_found");
    ok(await set(pay.as.admin, { ...WHOLESALE, isOpen: false }, "wholesale"));
    expectRefusal(await set(pay.as.acme, RETAIL), "validation_failed", { param: "isOpen" });
    await setAll();
  });
});
