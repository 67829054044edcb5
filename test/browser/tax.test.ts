import { afterAll, beforeAll, expect, test } from "bun:test";
import { ok, signInTo } from "../panel/panel_client.ts";
import { ACME_HOST, openPanel, type Panel, PHONE, said, settled } from "./browser.ts";

/** A seller sets its currency and tax, and a buyer sees what it pays. Source: TAX-1, TAX-2, TAX-3, CUR-1, CUR-2. */

const USD = 1_000_000_000n;
const YEN = { currency: "jpy", usdRateNano: "150000000000", taxCountry: "DE", packageTax: 19_000, topUpTax: 19_000 };
let panel: Panel;
beforeAll(async () => {
  panel = await openPanel();
  const acme = await signInTo(panel.shop, panel.acme, { host: ACME_HOST });
  ok(await acme.put("/payment-settings/instructions", { instructions: "IBAN XX00 1234" }));
});
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await panel.close();
});

test("the seller sets currency and tax, with its mistakes at their fields; the buyer sees price, tax and rate before it orders, and on the order", async () => {
  const { world } = panel.shop;
  const seller = await panel.visit(panel.acme, "/payments", { host: ACME_HOST });
  const { page } = seller;
  seller.expectProblem(/^422 PATCH \/api\/panel\/selling-terms$/);
  const section = page.getByRole("region", { name: "Currency and tax" });
  const choose = async (label: string, typed: string, option: string | RegExp) => {
    await section.getByRole("combobox", { name: label }).fill(typed);
    await page.getByRole("option", { name: option }).click();
  };
  const save = () => section.getByRole("button", { name: "Save currency and tax" }).click();
  await choose("Currency", "eur", /^EUR/);
  await choose("Country of the tax", "Germany", "Germany");
  await section.getByLabel("Tax on packages").fill("19.0001");
  await save();
  await said(page, "Enter what one US dollar costs.");
  await said(page, "From 0 to 100, with up to three decimals.");
  await section.getByLabel("One US dollar costs").fill("0.92");
  await section.getByLabel("Tax on packages").fill("19");
  await section.getByLabel("Tax on top-ups").fill("19");
  await section.getByLabel("Your VAT number").fill("DE136695975");
  await save();
  await said(page, /DE136695975 is not a VAT number/);
  await section.getByLabel("Your VAT number").fill("DE136695976");
  await said(page, /A top-up of \$100\.00 costs €109\.48/);
  await seller.check();
  await save();
  await said(page, "Currency and tax saved.");
  await page.setViewportSize(PHONE);
  await seller.check();
  await seller.close();

  const offeringId = await world.addOffering({ wholesaleNanoUsd: 4n * USD });
  await world.sql`update offerings set name = 'Atelier' where id = ${offeringId}`;
  await world.sql`insert into retail_prices values (${panel.acme.accountId}, ${offeringId}, ${String(10n * USD)}, false, 'eur')`;
  const person = await world.addCustomer(panel.acme.accountId);
  const buyer = await panel.visit(person, "/billing", { host: ACME_HOST });
  await said(buyer.page, "plus VAT 19 %");
  await buyer.check();
  await buyer.page.goto("/billing?ask=top_up");
  const dialog = buyer.page.getByRole("dialog");
  await dialog.getByLabel("Amount").fill("100");
  await said(buyer.page, "€109.48 (€92.00 + VAT 19 %: €17.48)");
  await said(buyer.page, "1 US dollar = 0.92 EUR");
  await buyer.check();
  await dialog.getByRole("button", { name: "Continue" }).click();
  await buyer.page.getByRole("heading", { name: "Pay €109.48" }).waitFor();
  await said(buyer.page, "€17.48");
  await said(buyer.page, "$100.00");
  await buyer.check();
  await buyer.page.setViewportSize(PHONE);
  await buyer.check();
  await buyer.page.goto("/settings");
  await settled(buyer.page);
  await buyer.page.getByLabel("VAT number").fill("ATU13585627");
  await buyer.page.getByRole("button", { name: "Save invoice details" }).click();
  await said(buyer.page, "Invoice details saved.");
  await buyer.page.goto("/billing");
  await said(buyer.page, "without VAT: reverse charge");
  await buyer.close();
});

test("yen have no decimals on any page: the price, the order, the payment and its refund, however many there are", async () => {
  const { world } = panel.shop;
  const seller = await panel.visit(panel.acme, "/prices", { host: ACME_HOST });
  ok(await (await signInTo(panel.shop, panel.acme, { host: ACME_HOST })).patch("/selling-terms", YEN));
  const offeringId = await world.addOffering({ wholesaleNanoUsd: 4n * USD });
  await world.sql`update offerings set name = 'Bureau' where id = ${offeringId}`;
  await seller.page.reload();
  await seller.page.getByRole("button", { name: "Set price of Bureau" }).click();
  const priced = seller.page.getByRole("dialog");
  await priced.getByLabel("Your customers pay").fill("12000000.5");
  await priced.getByRole("button", { name: "Set price" }).click();
  await said(seller.page, "A multiple of ¥1.");
  await priced.getByLabel("Your customers pay").fill("12000000");
  await priced.getByRole("button", { name: "Set price" }).click();
  await said(seller.page, "Bureau costs your customers ¥12,000,000.");
  await seller.check();

  const person = await world.addCustomer(panel.acme.accountId);
  const buyer = await panel.visit(person, "/billing", { host: ACME_HOST });
  await said(buyer.page, /¥12,000,000/);
  await buyer.page.getByRole("button", { name: "Buy Bureau" }).click();
  await buyer.page.getByRole("dialog").getByRole("button", { name: "Continue" }).click();
  await buyer.page.getByRole("heading", { name: "Pay ¥14,280,000" }).waitFor();
  await said(buyer.page, "¥2,280,000");
  await buyer.check();
  await buyer.close();

  const [order] = await world.sql`select id from orders where account_id = ${person.accountId}`;
  const acme = await signInTo(panel.shop, panel.acme, { host: ACME_HOST });
  await world.setBalance(panel.acme, 100n * USD);
  ok(await acme.post(`/orders/${order?.id}/fulfil`, {}));
  await seller.page.goto("/payments");
  await said(seller.page, "¥14,280,000");
  await seller.page.getByRole("button", { name: /^Refund/ }).click();
  const dialog = seller.page.getByRole("dialog");
  await said(seller.page, "¥14,280,000 of ¥14,280,000 can be refunded.");
  seller.expectProblem(/^422 POST \/api\/panel\/payments\/\d+\/refunds$/);
  await dialog.getByLabel("Amount").fill("10000000.5");
  await dialog.getByRole("button", { name: "Refund", exact: true }).click();
  await said(seller.page, "Only whole amounts of JPY can be refunded in this way.");
  await dialog.getByLabel("Amount").fill("10000000");
  await dialog.getByRole("button", { name: "Refund", exact: true }).click();
  await said(seller.page, "¥10,000,000 refunded");
  await seller.check();
  await seller.close();
});
