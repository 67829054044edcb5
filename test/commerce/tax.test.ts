import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { invoicePdf } from "../../src/commerce/invoice_pdf.ts";
import { findInvoice } from "../../src/commerce/invoices_store.ts";
import { startRefund } from "../../src/commerce/refunds_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { ok, type PanelSession } from "../panel/panel_client.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { randomOf } from "../random.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import { LOOKS, textOf } from "./sample_invoice.ts";

/** Tax and currency of orders, through the service: settings, payment, invoice and refunds. Source: TAX-1, TAX-2, TAX-3, TAX-4, CUR-1, CUR-2, CUR-3. */

let pay: PayShop;
beforeAll(async () => {
  pay = await openPayShop();
});
afterAll(() => pay.close());

const GERMAN = {
  taxCountry: "DE",
  vatNumber: "DE136695976",
  packageTax: 19_000,
  topUpTax: 19_000,
  pricesWithTax: false,
};
const NO_TAX = { taxCountry: null, vatNumber: null, packageTax: 0, topUpTax: 0, pricesWithTax: false };
const PLAIN = { ...NO_TAX, currency: "usd", usdRateNano: null };
const sell = (terms: object, session = pay.as.admin) => session.patch("/selling-terms", terms);
const details = (vatNumber: string | null) => ({ name: null, address: null, taxNumber: null, vatNumber });
const nano = (amount: number) => String(Math.round(amount * 100) * 10_000_000);
const invoicesOf = async (orderId: number) => [
  ...(await pay.sql`select kind, currency, total_nano::text as total, tax_nano::text as tax, tax as facts from invoices where order_id = ${orderId} order by id`),
];
/** Records the payment by hand, and fulfils. */
const fulfil = async (orderId: number, session = pay.as.admin) =>
  ok(await session.post(`/orders/${orderId}/fulfil`, {}));
/** The text of the files of a buyer's invoices for an order, oldest first. */
async function filesOf({ accountId }: PanelSession, orderId: number): Promise<string[]> {
  const db = pay.world.openDb();
  const rows = await pay.sql`select id::int from invoices where order_id = ${orderId} order by id`;
  const invoices = await Promise.all(rows.map(({ id }) => findInvoice({ db }, { accountId }, id)));
  await db.close();
  return await Promise.all(invoices.map(async (invoice) => textOf(await invoicePdf(invoice, LOOKS))));
}
const paymentOf = async (orderId: number) => Number((await pay.paymentsOf(orderId))[0]?.id);
const refund = (orderId: number, amountNano: bigint | string, session: PanelSession = pay.as.admin) =>
  paymentOf(orderId).then((id) => session.post(`/payments/${id}/refunds`, { amountNano: String(amountNano) }));

/** The tax of invoices, added up from the invoices one by one: a line for each currency and tax. */
async function taxAgain(sellerId: number) {
  const rows = await pay.sql`
    select kind, currency, tax as facts, total_nano::text as total, tax_nano::text as tax from invoices where seller_id = ${sellerId}`;
  const lines = new Map<string, { invoices: number; creditNotes: number; net: bigint; tax: bigint }>();
  for (const { kind, currency, facts, total, tax } of rows) {
    const name = [currency, facts?.country, facts?.rate, facts?.reverseCharge].join();
    const line = lines.get(name) ?? { invoices: 0, creditNotes: 0, net: 0n, tax: 0n };
    const sign = kind === "invoice" ? 1n : -1n;
    line[kind === "invoice" ? "invoices" : "creditNotes"]++;
    line.net += sign * (BigInt(total) - BigInt(tax));
    line.tax += sign * BigInt(tax);
    lines.set(name, line);
  }
  return lines;
}

describe("tax", () => {
  test("is added to a top-up, which credits exactly its amount; it is in the payment, on the invoice, and refunded in proportion", async () => {
    for (const pricesWithTax of [false, true]) {
      ok(await sell({ ...PLAIN, ...GERMAN, topUpTax: 20_000, pricesWithTax }));
      const buyer = await pay.newcomer();
      const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: nano(100) });
      expect(order).toMatchObject({
        ...{ priceNanoUsd: nano(100), netNano: nano(100), taxNano: nano(20), totalNano: nano(120), currency: "usd" },
        tax: {
          country: "DE",
          rate: 20_000,
          reverseCharge: false,
          sellerVatNumber: "DE136695976",
          buyerVatNumber: null,
        },
      });
      await fulfil(order.orderId);
      expect(await pay.balanceOf(buyer)).toBe(100n * USD);
      expect(await pay.paymentsOf(order.orderId)).toMatchObject([{ amount_nano: nano(120), currency: "usd" }]);
      expect(ok(await refund(order.orderId, nano(40))).refund).toMatchObject({ taxNano: nano(6.67) });
      expect(await pay.balanceOf(buyer)).toBe(100n * USD - 33_333_333_333n);
      expect(ok(await refund(order.orderId, nano(80))).refund).toMatchObject({ taxNano: nano(13.33) });
      expect(await pay.balanceOf(buyer)).toBe(0n);
      expectRefusal(await refund(order.orderId, nano(0.01)), "validation_failed", { param: "amountNano" });
      expect(await invoicesOf(order.orderId)).toMatchObject([
        { kind: "invoice", total: nano(120), tax: nano(20), facts: { sellerVatNumber: "DE136695976" } },
        { kind: "credit_note", total: nano(40), tax: nano(6.67) },
        { kind: "credit_note", total: nano(80), tax: nano(13.33) },
      ]);
    }
  });

  test("is paid by card and in a shop; the net price without it pays for nothing", async () => {
    ok(await sell({ ...PLAIN, ...GERMAN }));
    const buyer = await pay.newcomer();
    const offeringId = await pay.offering(10n * USD);
    const byCard = await pay.order(buyer, { kind: "package", offeringId });
    ok(await buyer.post(`/orders/${byCard.orderId}/pay`, { method: "stripe" }));
    const session = pay.stripe.pay(byCard.reference);
    expect(session.amount_total).toBe(1_190);
    expect((await pay.hook(0, session)).status).toBe(200);
    expect(await pay.orderRow(byCard.orderId)).toMatchObject({ status: "fulfilled", tax_nano: nano(1.9) });
    const inShop = await pay.order(buyer, { kind: "package", offeringId });
    const { url } = ok(await buyer.post(`/orders/${inShop.orderId}/pay`, { method: "shop" }));
    expect(new URL(url).searchParams.get("amount")).toBe("11.90");
    const said = { order: inShop.reference, currency: "usd" };
    await pay.shopHook(0, { ...said, amount: "10.00", payment_id: `net-${inShop.reference}` });
    expect(await pay.paymentsOf(inShop.orderId)).toMatchObject([{ problem: "wrong_amount" }]);
    await pay.shopHook(0, { ...said, amount: "11.90", payment_id: `total-${inShop.reference}` });
    expect(await pay.orderRow(inShop.orderId)).toMatchObject({ status: "fulfilled" });
  });

  test("is not charged to a business of another country of the EU, whose number is frozen in the order and on the invoice", async () => {
    ok(await sell({ ...PLAIN, ...GERMAN, pricesWithTax: true }));
    const buyer = await pay.newcomer();
    ok(await buyer.put("/settings/invoices", details("at u13585627")));
    const offeringId = await pay.offering(119n * USD);
    const order = await pay.order(buyer, { kind: "package", offeringId });
    expect(order).toMatchObject({
      ...{ netNano: nano(100), taxNano: "0", totalNano: nano(100) },
      tax: { reverseCharge: true, rate: 19_000, buyerVatNumber: "ATU13585627", sellerVatNumber: "DE136695976" },
    });
    ok(await buyer.put("/settings/invoices", details(null)));
    await fulfil(order.orderId);
    expect(await invoicesOf(order.orderId)).toMatchObject([
      { total: nano(100), tax: "0", facts: { reverseCharge: true, buyerVatNumber: "ATU13585627" } },
    ]);
    const later = await pay.order(buyer, { kind: "package", offeringId });
    expect(later).toMatchObject({ totalNano: nano(119), tax: { reverseCharge: false } });
  });

  test.each([
    ["of the same country", GERMAN, "DE811907980"],
    ["of a seller without a number", { ...GERMAN, vatNumber: null }, "ATU13585627"],
    ["of a seller outside the EU", { ...GERMAN, taxCountry: "CH", vatNumber: null }, "ATU13585627"],
  ])("is charged to a business %s", async (_, terms, vatNumber) => {
    ok(await sell({ ...PLAIN, ...terms }));
    const buyer = await pay.newcomer();
    ok(await buyer.put("/settings/invoices", details(vatNumber)));
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: nano(10) });
    expect(order).toMatchObject({ taxNano: nano(1.9), tax: { reverseCharge: false } });
  });

  test.each([
    ["a digit wrong", "DE136695975"],
    ["a country outside the EU", "GB980780684"],
    ["the seller's own", "DE136695976"],
    ["no number", "hello"],
  ])("a buyer cannot enter %s", async (_, vatNumber) => {
    ok(await sell({ ...PLAIN, ...GERMAN }));
    const buyer = await pay.newcomer();
    expectRefusal(await buyer.put("/settings/invoices", details(vatNumber)), "validation_failed", {
      param: "vatNumber",
    });
    expect(ok(await buyer.get("/settings/invoices")).vatNumber).toBeNull();
  });
});

test("a seller's statement has the tax of its invoices less credit notes, by currency, rate and reverse charge; so has its file", async () => {
  const session = pay.as.acme;
  const terms = [
    { ...PLAIN, ...GERMAN },
    { ...PLAIN, ...GERMAN, topUpTax: 7_000, currency: "eur", usdRateNano: "920000000" },
    PLAIN,
  ];
  for (const [i, each] of terms.entries()) {
    ok(await sell(each, session));
    for (const vatNumber of [null, "ATU13585627"]) {
      const buyer = await pay.newcomer("acme");
      ok(await buyer.put("/settings/invoices", details(vatNumber)));
      const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: nano(10 + i) });
      await pay.topUp(pay.acme, 100n * USD);
      await fulfil(order.orderId, session);
      if (vatNumber === null) ok(await refund(order.orderId, nano(3), session));
    }
  }
  ok(await sell(PLAIN, session));
  const again = await taxAgain(pay.acme.accountId);
  expect([...again.keys()].length).toBe(5);
  const [now] =
    await pay.sql`select to_char(clock_timestamp() at time zone ${ok(await session.get("/me")).billingTimeZone}, 'YYYY-MM') as month`;
  const { tax } = ok(await session.get(`/statement?month=${now?.month}`));
  const named = ({ currency, tax: of }: (typeof tax)[number]) =>
    [currency, of?.country, of?.rate, of?.reverseCharge].join();
  const shown = tax.map((line: (typeof tax)[number]) => {
    expect(BigInt(line.totalNano)).toBe(BigInt(line.netNano) + BigInt(line.taxNano));
    const { invoices, creditNotes, netNano, taxNano } = line;
    return [named(line), { invoices, creditNotes, net: BigInt(netNano), tax: BigInt(taxNano) }];
  });
  expect(new Map(shown)).toEqual(again);
  const [head, ...lines] = (await session.get(`/statement.csv?month=${now?.month}`)).text.trimEnd().split("\r\n");
  const at = (name: string) => String(head).split(",").indexOf(name);
  const inFile = lines.map((line) => line.split(",")).filter((cells) => cells[0] === "tax");
  expect(inFile.map((cells) => cells[at("tax_nano")])).toEqual(tax.map(({ taxNano }: { taxNano: string }) => taxNano));
  expect(inFile.map((cells) => cells[at("tax_percent")]).sort()).toEqual(["", "19", "19", "7", "7"]);
});

describe("a currency", () => {
  const EURO = { currency: "eur", usdRateNano: "920000000" };

  test("has prices of its own; an order keeps currency, rate and tax of its day, whatever changes before it is paid", async () => {
    ok(await sell({ ...PLAIN, ...GERMAN, ...EURO }));
    const buyer = await pay.newcomer();
    const offeringId = await pay.world.addOffering({ wholesaleNanoUsd: 4n * USD });
    const price = await pay.as.admin.put(`/prices/${offeringId}`, { priceNano: nano(10) });
    expect(ok(price)).toMatchObject({ priceNano: nano(10), currency: "eur" });
    const bought = await pay.order(buyer, { kind: "package", offeringId });
    const topUp = await pay.order(buyer, { kind: "top_up", amountNanoUsd: nano(100) });
    expect(bought).toMatchObject({
      ...{ currency: "eur", netNano: nano(10), taxNano: nano(1.9), totalNano: nano(11.9), usdRateNano: "920000000" },
      priceNanoUsd: "10869565217",
    });
    expect(topUp).toMatchObject({
      netNano: nano(92),
      taxNano: nano(17.48),
      totalNano: nano(109.48),
      priceNanoUsd: nano(100),
    });
    ok(await sell({ ...PLAIN, ...GERMAN, topUpTax: 7_000, currency: "jpy", usdRateNano: "150000000000" }));
    for (const { orderId, reference, totalNano } of [bought, topUp]) {
      ok(await buyer.post(`/orders/${orderId}/pay`, { method: "stripe" }));
      const session = pay.stripe.pay(reference);
      expect([session.currency, String(BigInt(session.amount_total ?? 0) * 10_000_000n)]).toEqual(["eur", totalNano]);
      await pay.hook(0, session);
      expect(await pay.orderRow(orderId)).toMatchObject({ status: "fulfilled", currency: "eur" });
    }
    expect(await pay.balanceOf(buyer)).toBe(100n * USD);
    ok(await refund(topUp.orderId, nano(54.74)));
    expect(await pay.balanceOf(buyer)).toBe(50n * USD);
    expect(await invoicesOf(topUp.orderId)).toMatchObject([
      { currency: "eur", total: nano(109.48), tax: nano(17.48) },
      { kind: "credit_note", currency: "eur", total: nano(54.74), tax: nano(8.74) },
    ]);
    // The euro's price has no effect while the seller sells in yen.
    const { offerings } = ok(await pay.as.admin.get("/admin/offerings"));
    expect(offerings.find((row: { offeringId: number }) => row.offeringId === offeringId)).toMatchObject({
      priceNano: null,
    });
  });

  test("money in another one pays for nothing", async () => {
    ok(await sell({ ...PLAIN, ...EURO }));
    const buyer = await pay.newcomer();
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: nano(10) });
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "shop" }));
    await pay.shopHook(0, {
      order: order.reference,
      currency: "usd",
      amount: "9.20",
      payment_id: `usd-${order.reference}`,
    });
    expect(await pay.paymentsOf(order.orderId)).toMatchObject([{ problem: "wrong_currency" }]);
  });

  test("without decimals is in whole units from the price to the refund: by card, in a shop, on the invoice and the credit note", async () => {
    ok(await sell({ ...PLAIN, ...GERMAN, currency: "jpy", usdRateNano: "151333333333" }));
    const offeringId = await pay.world.addOffering({ wholesaleNanoUsd: 0n });
    const price = (nano: string) => pay.as.admin.put(`/prices/${offeringId}`, { priceNano: nano });
    expectRefusal(await price(nano(10.5)), "validation_failed", { param: "priceNano" });
    ok(await price(nano(1_234)));
    const buyer = await pay.newcomer();
    const { offerings } = ok(await buyer.get("/offerings"));
    expect(offerings.find((one: { offeringId: number }) => one.offeringId === offeringId)).toMatchObject({
      priceNano: nano(1_234),
    });
    // 19 % of ¥1,234 are ¥234.46. $10 are ¥1,513.33, rounded up; 19 % of ¥1,514 are ¥287.66.
    const bought = await pay.order(buyer, { kind: "package", offeringId });
    const topUp = await pay.order(buyer, { kind: "top_up", amountNanoUsd: nano(10) });
    expect([bought, topUp]).toMatchObject([
      { netNano: nano(1_234), taxNano: nano(234), totalNano: nano(1_468) },
      { netNano: nano(1_514), taxNano: nano(288), totalNano: nano(1_802) },
    ]);
    ok(await buyer.post(`/orders/${topUp.orderId}/pay`, { method: "stripe" }));
    const session = pay.stripe.pay(topUp.reference);
    expect([session.currency, session.amount_total]).toEqual(["jpy", 1_802]);
    ok(await pay.hook(0, { ...session }));
    const { url } = ok(await buyer.post(`/orders/${bought.orderId}/pay`, { method: "shop" }));
    const asked = new URL(url).searchParams;
    expect([asked.get("currency"), asked.get("amount")]).toEqual(["jpy", "1468"]);
    await pay.shopHook(0, { order: bought.reference, currency: "jpy", amount: "1468", payment_id: bought.reference });
    for (const { orderId } of [bought, topUp])
      expect(await pay.orderRow(orderId)).toMatchObject({ status: "fulfilled", currency: "jpy" });
    expect(await pay.balanceOf(buyer)).toBe(10n * USD);

    expectRefusal(await refund(topUp.orderId, nano(900.5)), "validation_failed", { param: "amountNano" });
    expect(ok(await refund(topUp.orderId, nano(901))).refund).toMatchObject({ status: "done", taxNano: nano(144) });
    expect(pay.stripe.refunds.at(-1)).toMatchObject({ currency: "jpy", amount: 901 });
    expect(await pay.balanceOf(buyer)).toBe(5n * USD);
    const byHand = await pay.order(buyer, { kind: "top_up", amountNanoUsd: nano(10) });
    await fulfil(byHand.orderId);
    expectRefusal(await refund(byHand.orderId, nano(900.5)), "validation_failed", { param: "amountNano" });
    ok(await refund(byHand.orderId, nano(1_802)));
    const [invoice, creditNote] = await filesOf(buyer, topUp.orderId);
    expect(invoice).toMatch(/Net +¥1,514\s+VAT 19 % +¥288\s+Total in JPY +¥1,802/);
    expect(creditNote).toMatch(/Net +−¥757\s+VAT 19 % +−¥144\s+Total in JPY +−¥901/);
  });

  test.each([0, 100_000])(
    "and a tax of %d thousandths of a percent: price, payment, invoice and refunds agree, with prices with and without it",
    async (rate) => {
      for (const pricesWithTax of [false, true]) {
        const terms = { ...PLAIN, ...GERMAN, ...EURO, packageTax: rate, topUpTax: rate, pricesWithTax };
        ok(await sell(terms));
        const buyer = await pay.newcomer();
        const offeringId = await pay.world.addOffering({ wholesaleNanoUsd: 0n });
        ok(await pay.as.admin.put(`/prices/${offeringId}`, { priceNano: nano(9.2) }));
        const [net, whole] = [pricesWithTax && rate > 0 ? 4.6 : 9.2, rate > 0 && !pricesWithTax ? 18.4 : 9.2];
        const bought = await pay.order(buyer, { kind: "package", offeringId });
        expect(bought).toMatchObject({
          netNano: nano(net),
          taxNano: nano(whole - net),
          totalNano: nano(whole),
          tax: { rate },
        });
        const topUp = await pay.order(buyer, { kind: "top_up", amountNanoUsd: nano(10) });
        const [tax, total] = rate > 0 ? [9.2, 18.4] : [0, 9.2];
        expect(topUp).toMatchObject({ netNano: nano(9.2), taxNano: nano(tax), totalNano: nano(total), tax: { rate } });
        for (const { orderId, reference, totalNano } of [bought, topUp]) {
          ok(await buyer.post(`/orders/${orderId}/pay`, { method: "stripe" }));
          const session = pay.stripe.pay(reference);
          expect(String(BigInt(session.amount_total) * 10_000_000n)).toBe(totalNano);
          ok(await pay.hook(0, { ...session }));
          expect(await pay.orderRow(orderId)).toMatchObject({ status: "fulfilled" });
        }
        expect(await pay.balanceOf(buyer)).toBe(10n * USD);
        for (const part of [total / 4, total - total / 4]) ok(await refund(topUp.orderId, nano(part)));
        expect(await pay.balanceOf(buyer)).toBe(0n);
        expect(await invoicesOf(topUp.orderId)).toMatchObject([
          { kind: "invoice", total: nano(total), tax: nano(tax), facts: { rate } },
          { kind: "credit_note", total: nano(total / 4), tax: nano(tax / 4) },
          { kind: "credit_note", total: nano(total - total / 4), tax: nano(tax - tax / 4) },
        ]);
      }
    },
  );

  test("a rate that makes a price worth more than any amount stops its sale; nothing overflows", async () => {
    const [cheap, dear] = [
      { currency: "idr", usdRateNano: "1000000000000000" },
      { currency: "idr", usdRateNano: "10000000" },
    ];
    ok(await sell({ ...PLAIN, ...cheap }, pay.as.acme));
    const buyer = await pay.newcomer("acme");
    const offeringId = await pay.world.addOffering({ wholesaleNanoUsd: 0n });
    // One fits in a bigint at the new rate, and two of them do not.
    for (const price of ["92000000000000000", "450000000000000000"]) {
      ok(await sell(cheap, pay.as.acme));
      ok(await pay.as.acme.put(`/prices/${offeringId}`, { priceNano: price }));
      ok(await sell(dear, pay.as.acme));
      expectRefusal(await buyer.post("/orders", { kind: "package", offeringId }), "validation_failed", {
        param: "amountNanoUsd",
      });
      ok(await pay.as.acme.get("/offerings"));
      ok(await buyer.get("/offerings"));
    }
    ok(await sell(PLAIN, pay.as.acme));
  });

  test("a price is compared with the wholesale price by what it is worth without tax", async () => {
    ok(await sell({ ...PLAIN, ...GERMAN, ...EURO, pricesWithTax: true }, pay.as.acme));
    const offeringId = await pay.world.addOffering({ wholesaleNanoUsd: 10n * USD });
    const set = (euros: number) => pay.as.acme.put(`/prices/${offeringId}`, { priceNano: nano(euros) });
    // 10 USD are 9.20 EUR, and 10.948 EUR with the tax.
    expectRefusal(await set(10.94), "validation_failed", { param: "belowWholesale" });
    ok(await set(10.95));
    ok(await sell(PLAIN, pay.as.acme));
  });
});

test.each([
  ["a rate below 0", { ...GERMAN, packageTax: -1 }, "packageTax"],
  ["a rate above 100 %", { ...GERMAN, topUpTax: 100_001 }, "topUpTax"],
  ["a rate with too many digits", { ...GERMAN, packageTax: 19_000.5 }, "packageTax"],
  ["a tax without a country", { ...PLAIN, packageTax: 19_000 }, "taxCountry"],
  ["an unknown country", { ...GERMAN, taxCountry: "QQ" }, "taxCountry"],
  ["a country that is gone", { ...GERMAN, taxCountry: "DD" }, "taxCountry"],
  ["a country in lower case", { ...GERMAN, taxCountry: "de" }, "taxCountry"],
  ["a VAT number with a wrong digit", { ...GERMAN, vatNumber: "DE136695975" }, "vatNumber"],
  ["a VAT number of another country", { ...GERMAN, vatNumber: "ATU13585627" }, "vatNumber"],
  ["a VAT number outside the EU", { ...GERMAN, taxCountry: "CH", vatNumber: "CHE116281710" }, "vatNumber"],
  ["an unknown currency", { currency: "xyz", usdRateNano: "1000000000" }, "currency"],
  ["a currency that is no longer used", { currency: "dem", usdRateNano: "1000000000" }, "currency"],
  ["a currency in upper case", { currency: "EUR", usdRateNano: "920000000" }, "currency"],
  ["a currency without a rate", { currency: "eur", usdRateNano: null }, "usdRateNano"],
  ["a rate of exchange of 0", { currency: "eur", usdRateNano: "0" }, "usdRateNano"],
  ["a negative rate of exchange", { currency: "eur", usdRateNano: "-920000000" }, "usdRateNano"],
  ["a rate of exchange beyond a million", { currency: "eur", usdRateNano: "1000000000000001" }, "usdRateNano"],
  ["a rate of exchange of the dollar", { currency: "usd", usdRateNano: "1000000000" }, "usdRateNano"],
  ["another field", { vat: 19 }, "vat"],
])("a seller cannot set %s", async (_, terms, param) => {
  ok(await sell(PLAIN));
  const answer = await sell(terms);
  expect([answer.status, answer.json.error.param]).toEqual([answer.status === 422 ? 422 : 400, param]);
  expect(ok(await pay.as.admin.get("/selling-terms"))).toEqual({ sellerId: 0, ...PLAIN });
});

test("over random terms, orders and refunds: total is net and tax, refunds are at most what was paid, invoices are the orders, and credits are exact", async () => {
  const { next: random } = randomOf(23);
  const whole = (min: number, max: number) => min + Math.floor(random() * (max - min + 1));
  const ROUNDS = 24;
  const db = pay.world.openDb();
  const deps = { db, bus: inProcessBus(quietLog().log) };
  const RATES = { usd: null, eur: "920000000", jpy: "151333333333", kwd: "307123456", isk: "137990000000" } as const;
  for (let round = 0; round < ROUNDS; round++) {
    const currency = (Object.keys(RATES) as (keyof typeof RATES)[])[round % 5] ?? "usd";
    const [packageTax, topUpTax] = [whole(0, 100_000), whole(0, 30_000)];
    ok(await sell({ ...PLAIN, ...GERMAN, packageTax, topUpTax, currency, usdRateNano: RATES[currency] }));
    const buyer = await pay.newcomer();
    if (random() < 0.3) ok(await buyer.put("/settings/invoices", details("ATU13585627")));
    const credit = BigInt(whole(500, 20_000)) * 10_000_000n;
    const order = await pay.order(buyer, { kind: "top_up", amountNanoUsd: String(credit) });
    await fulfil(order.orderId);
    expect(await pay.balanceOf(buyer)).toBe(credit);
    const total = BigInt(order.totalNano);
    expect(BigInt(order.netNano) + BigInt(order.taxNano)).toBe(total);
    const step = currency === "jpy" || currency === "isk" ? 1_000_000_000n : 10_000_000n;
    let refunded = 0n;
    const paymentId = await paymentOf(order.orderId);
    // Without the limit of a person's refunds a minute.
    const start = (amountNano: bigint) =>
      startRefund(deps, { sellerId: 0, paymentId, amountNano, reason: null, endPackage: false });
    for (let part = 0; part < 4 && refunded < total; part++) {
      const left = total - refunded;
      const amount = part === 3 ? left : (left / step / BigInt(whole(2, 5)) || 1n) * step;
      await start(amount);
      refunded += amount;
      await expect(start(total - refunded + step)).rejects.toMatchObject({ param: "amountNano" });
    }
    expect(refunded).toBe(total);
    expect(await pay.balanceOf(buyer)).toBe(0n);
    const [invoice, ...notes] = await invoicesOf(order.orderId);
    expect(invoice).toMatchObject({ kind: "invoice", currency, total: order.totalNano, tax: order.taxNano });
    const sumOf = (name: string) => notes.reduce((sum, row) => sum + BigInt(String(row[name])), 0n);
    expect([sumOf("total"), sumOf("tax")]).toEqual([total, BigInt(order.taxNano)]);
  }
  await db.close();
}, 120_000);
