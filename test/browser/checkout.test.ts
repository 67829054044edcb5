import { afterAll, beforeAll, expect, test } from "bun:test";
import { STRIPE_KEY, STRIPE_WEBHOOK_SECRET, type StripeStandIn, startStripe } from "../commerce/stripe_stand_in.ts";
import { ok, signInTo } from "../panel/panel_client.ts";
import { ACME_HOST, openPanel, PANEL_HOST, type Panel, PHONE, said, settled } from "./browser.ts";

/** A customer buys in the browser: from the price to the package, on a reseller's domain. Source: BUY-2, BUY-4, PAN-9. */

const USD = 1_000_000_000n;
let panel: Panel;
let stripe: StripeStandIn;

beforeAll(async () => {
  stripe = await startStripe();
  panel = await openPanel({ env: { STRIPE_API_BASE: stripe.base } });
  const acme = await signInTo(panel.shop, panel.acme, { host: ACME_HOST });
  ok(
    await acme.put("/payment-settings/stripe", {
      stripe: { apiKey: STRIPE_KEY, webhookSecret: STRIPE_WEBHOOK_SECRET },
    }),
  );
  ok(await acme.put("/payment-settings/instructions", { instructions: "IBAN XX00 1234" }));
});
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await panel.close();
  await stripe.stop();
});

test("price, order, Stripe's page, back, paid, the package is active: without a problem of the content security policy", async () => {
  const { world } = panel.shop;
  const offeringId = await world.addOffering({ wholesaleNanoUsd: 4n * USD });
  await world.sql`update offerings set name = 'Atelier' where id = ${offeringId}`;
  await world.sql`insert into retail_prices values (${panel.acme.accountId}, ${offeringId}, ${String(12n * USD)})`;
  await world.sql`select add_balance(${panel.acme.accountId}, ${String(50n * USD)}, 'top_up', 'test', null)`;
  const person = await world.addCustomer(panel.acme.accountId);
  const visit = await panel.visit(person, "/billing", { host: ACME_HOST });
  const { page } = visit;
  await page.getByRole("button", { name: "New order" }).click();
  await page.getByRole("combobox", { name: "Offering" }).click();
  await page.getByRole("option", { name: /^Atelier/ }).click();
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("heading", { name: "Pay $12.00" }).waitFor();
  await visit.check();
  visit.expectProblem(/^another host was asked: http:\/\/127\.0\.0\.1:\d+\/pay\//);
  await page.getByRole("button", { name: "Continue to Stripe" }).click();
  await page.waitForURL(`${stripe.base}/**`);
  const [row] = await world.sql`select reference from orders where account_id = ${person.accountId}`;
  // Back before the money is there: the page waits, and then shows it by itself. No webhook comes.
  await page.getByRole("link", { name: "Back" }).click();
  await said(page, "We are waiting for the payment.");
  stripe.pay(String(row?.reference));
  await said(page, "Your package Atelier is active.");
  await visit.check();
  await page.setViewportSize(PHONE);
  await visit.check();
  await page.goto("/billing");
  await settled(page);
  expect(await page.getByText("Atelier").count()).toBeGreaterThan(0);
  expect(await page.content()).not.toContain("Tollgate");
  await visit.close();
});

test("a top-up is in whole cents, at most nine million dollars: anything else is refused at its field, in plain words", async () => {
  const person = await panel.shop.world.addCustomer(panel.acme.accountId);
  const visit = await panel.visit(person, "/billing?ask=top_up", { host: ACME_HOST });
  const dialog = visit.page.getByRole("dialog");
  for (const [amount, why] of [
    ["20.0050", "Whole cents."],
    ["10000000", "From $0.01 to $9,000,000."],
  ] as const) {
    await dialog.getByLabel("Amount").fill(amount);
    await dialog.getByRole("button", { name: "Continue" }).click();
    await said(visit.page, why);
  }
  await visit.check();
  await dialog.getByLabel("Amount").fill("20.05");
  await dialog.getByRole("button", { name: "Continue" }).click();
  await visit.page.getByRole("heading", { name: "Pay $20.05" }).waitFor();
  await visit.close();
});

test("an order that is too old to be paid says so, offers no way to pay, and can be withdrawn there", async () => {
  const { world } = panel.shop;
  const person = await world.addCustomer(panel.acme.accountId);
  const [order] = await world.sql`
    insert into orders (account_id, seller_id, kind, amount_nano_usd, price_nano_usd, method, created_at)
    values (${person.accountId}, ${panel.acme.accountId}, 'top_up', 5000000000, 5000000000, 'instructions', now() - interval '15 days') returning id`;
  const visit = await panel.visit(person, `/billing/orders/${order?.id}`, { host: ACME_HOST });
  const { page } = visit;
  await said(page, "This order can no longer be paid.");
  expect(await page.getByText("IBAN XX00 1234").count()).toBe(0);
  expect(await page.getByRole("button", { name: /pay/i }).count()).toBe(0);
  await visit.check();
  await page.goto("/billing");
  await page.getByRole("button", { name: /^Withdraw/ }).waitFor();
  expect(await page.getByRole("link", { name: /^Pay/ }).count()).toBe(0);
  await page.goBack();
  await page.getByRole("button", { name: "Withdraw Top-up of $5.00" }).click();
  await said(page, "Withdrawn");
  expect(await page.getByText("This order can no longer be paid.").count()).toBe(0);
  await visit.close();
});

test("a reseller sees the payment, and gives a part of it back", async () => {
  const visit = await panel.visit(panel.acme, "/payments", { host: ACME_HOST });
  const { page } = visit;
  await page.getByRole("button", { name: /^Refund/ }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Amount").fill("50");
  await dialog.getByRole("button", { name: "Refund", exact: true }).click();
  await said(page, "That is more than what is left of the payment.");
  await dialog.getByLabel("Amount").fill("5");
  await visit.check();
  await dialog.getByRole("button", { name: "Refund", exact: true }).click();
  await said(page, "$5.00 refunded");
  await visit.check();
  expect(stripe.refunds).toMatchObject([{ amount: 500 }]);
  await visit.close();
});

test("a reseller sees what Stripe took back: a disputed payment with its last day, and a refund of money that was spent", async () => {
  const { shop, acme } = panel;
  const customer = await shop.world.addCustomer(acme.accountId);
  const buyer = await signInTo(shop, customer, { host: ACME_HOST });
  const tell = async (object: object, type: string) => {
    const { body, headers } = await stripe.event(object, { type });
    ok(await shop.call(`/api/pay/stripe/${acme.accountId}`, { host: ACME_HOST, body, headers }));
  };
  const sessions = [];
  for (const amount of [20n, 10n]) {
    const { order } = ok(await buyer.post("/orders", { kind: "top_up", amountNanoUsd: String(amount * USD) }));
    ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
    sessions.push(stripe.pay(order.reference));
    await tell({ ...stripe.sessionOf(order.reference) }, "checkout.session.completed");
  }
  const [disputed, refunded] = sessions;
  if (!disputed || !refunded) throw new Error("two orders were paid");
  await tell(stripe.dispute(disputed, { amount: 1500 }), "charge.dispute.created");
  await shop.world.sql`select add_balance(${customer.accountId}, ${String(-26n * USD)}, 'correction', 'spent', null)`;
  await tell(stripe.refundInDashboard(refunded, 1000), "refund.created");
  const visit = await panel.visit(acme, "/payments", { host: ACME_HOST });
  const { page } = visit;
  await said(page, "$15.00 disputed: fraudulent");
  await said(page, /^Answer in Stripe's dashboard by/);
  await said(page, "$6.00 of it was already spent, and was not taken from the balance.");
  await visit.check();
  await page.setViewportSize(PHONE);
  await visit.check();
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.getByLabel("Which payments").selectOption("disputed");
  await said(page, "$15.00 disputed: fraudulent");
  expect(await page.getByText("was already spent").count()).toBe(0);
  await visit.close();
});

/** A refund whose answer was lost, and whose account at Stripe no longer answers. `restore` sets the account again. */
async function lostRefund() {
  const { shop, acme } = panel;
  const seller = await signInTo(shop, acme, { host: ACME_HOST });
  const buyer = await signInTo(shop, await shop.world.addCustomer(acme.accountId), { host: ACME_HOST });
  const { order } = ok(await buyer.post("/orders", { kind: "top_up", amountNanoUsd: String(9n * USD) }));
  ok(await buyer.post(`/orders/${order.orderId}/pay`, { method: "stripe" }));
  stripe.pay(order.reference);
  ok(await buyer.post(`/orders/${order.orderId}/look`, {}));
  const [payment] = ok(await seller.get("/payments")).payments;
  stripe.loseAnswers(true);
  ok(await seller.post(`/payments/${payment.paymentId}/refunds`, { amountNano: String(9n * USD) }));
  stripe.loseAnswers(false);
  stripe.revoked.add(STRIPE_KEY);
  ok(await seller.put("/payment-settings/stripe", { stripe: null }));
  const [{ refunds }] = ok(await seller.get("/payments")).payments;
  const restore = async () => {
    stripe.revoked.clear();
    const keys = { apiKey: STRIPE_KEY, webhookSecret: STRIPE_WEBHOOK_SECRET };
    ok(await seller.put("/payment-settings/stripe", { stripe: keys }));
  };
  return { seller, refundId: refunds[0].refundId, restore };
}

test("a refund whose account at Stripe was closed is ended by the reseller: it must choose, and the list shows the end", async () => {
  const { acme } = panel;
  const { restore } = await lostRefund();
  const visit = await panel.visit(acme, "/payments", { host: ACME_HOST });
  const { page } = visit;
  await page.getByRole("button", { name: /^End refund/ }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Record it" }).click();
  await said(page, "Choose one.");
  // Neither choice looks chosen.
  const marks = await dialog
    .getByRole("radio")
    .evaluateAll((all) => all.map((one) => getComputedStyle(one, "::before").transform));
  expect(marks).toEqual(Array(2).fill("matrix(0, 0, 0, 0, 0, 0)"));
  await visit.check();
  await page.setViewportSize(PHONE);
  await visit.check();
  await dialog.getByLabel(/^It was not made/).check();
  await dialog.getByRole("button", { name: "Record it" }).click();
  await said(page, "Refund failed: The seller found that the former account at Stripe had not made it.");
  expect(await page.getByRole("button", { name: /^End refund/ }).count()).toBe(0);
  await visit.check();
  await visit.close();
  await restore();
});

test("a refund that a colleague has ended meanwhile keeps its end, and the page says so", async () => {
  const { acme } = panel;
  const { seller, refundId, restore } = await lostRefund();
  const visit = await panel.visit(acme, "/payments", { host: ACME_HOST });
  const { page } = visit;
  await page.getByRole("button", { name: /^End refund/ }).click();
  ok(await seller.post(`/refunds/${refundId}/end`, { isMade: true }));
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/^It was not made/).check();
  await dialog.getByRole("button", { name: "Record it" }).click();
  await said(page, /is recorded as done\. It had ended before you answered\.$/);
  await visit.close();
  await restore();
});

test("a top-up that was paid by bank transfer: the dialog says what fulfilling it records", async () => {
  const { shop, acme } = panel;
  const { accountId } = await shop.world.addCustomer(acme.accountId);
  await shop.world.sql`
    insert into orders (account_id, kind, amount_nano_usd, price_nano_usd)
    values (${accountId}, 'top_up', 7000000000, 7000000000)`;
  const visit = await panel.visit(acme, "/customers", { host: ACME_HOST });
  const { page } = visit;
  await page.getByRole("link", { name: "See orders" }).click();
  await page.getByRole("button", { name: "Mark as paid and fulfil Top-up of $7.00" }).click();
  const dialog = page.getByRole("dialog", { name: "Top up $7.00?" });
  await dialog.getByText("Records the payment of $7.00 and issues the invoice.").waitFor();
  await visit.check();
  await page.setViewportSize(PHONE);
  await visit.check();
  await dialog.getByRole("button", { name: "Mark as paid and fulfil" }).click();
  await dialog.waitFor({ state: "hidden" });
  const paid = await shop.world
    .sql`select p.amount_nano::text as nano, i.kind from payments p join invoices i using (order_id) where p.account_id = ${accountId}`;
  expect([...paid]).toEqual([{ nano: "7000000000", kind: "invoice" }]);
  await visit.close();
});

test("ways to be paid: an empty field says what is missing, an error of the server stands at its field, what was saved shows none", async () => {
  const visit = await panel.visit(panel.acme, "/payments", { host: ACME_HOST });
  const { page } = visit;
  visit.expectProblem(/^422 PUT \/api\/panel\/payment-settings\/shop$/);
  const shop = page.getByRole("region", { name: /^Your own shop/ });
  const address = shop.getByLabel("Address of the shop");
  await shop.getByRole("button", { name: "Offer the shop" }).click();
  await said(page, "Enter the address of your shop.");
  await address.fill("http://shop.example.com");
  await shop.getByRole("button", { name: "Offer the shop" }).click();
  await said(page, "The address of the shop must begin with https://.");
  expect(await address.getAttribute("aria-invalid")).toBe("true");
  await visit.check();
  await address.fill("https://shop.example.com/pay");
  await shop.getByRole("button", { name: "Offer the shop" }).click();
  const secret = page.getByRole("dialog");
  await secret.getByRole("checkbox").check();
  await secret.getByRole("button", { name: "Done" }).click();
  await address.fill("");
  await shop.getByRole("button", { name: "Stop offering the shop" }).click();
  await said(page, "No longer offered.");

  const stripeForm = page.getByRole("region", { name: /^Stripe/ });
  await stripeForm.getByLabel("Secret key").fill(STRIPE_KEY);
  await stripeForm.getByLabel("Signing secret of the webhook").fill(STRIPE_WEBHOOK_SECRET);
  await stripeForm.getByRole("button", { name: "Replace both" }).click();
  await said(page, "Stripe accepts the key. Customers can pay by card now.");
  expect(await stripeForm.getByLabel("Secret key").inputValue()).toBe("");
  expect(await page.locator("[aria-invalid=true]").count()).toBe(0);
  await visit.check();
  await visit.close();
});

test("the operator's page of payments offers its own address for webhooks", async () => {
  const visit = await panel.visit(await panel.shop.world.addAdmin(), "/admin/payments");
  const address = await visit.page.getByLabel("Address for Stripe's webhooks").inputValue();
  expect(address).toBe(`${panel.at(PANEL_HOST)}/api/pay/stripe/0`);
  await visit.check();
  await visit.close();
});
