import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { Webhook } from "standardwebhooks";
import { accentCss } from "../../src/accounts/accent.ts";
import { STRIPE_KEY, STRIPE_WEBHOOK_SECRET, type StripeStandIn, startStripe } from "../commerce/stripe_stand_in.ts";
import { type MailBox, openMailBox, ownAddress } from "../messages/post.ts";
import { givePassword, ok, PASSWORD, signInTo } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";
import {
  ACME_HOST,
  openPanel,
  PANEL_HOST,
  type Panel,
  PHONE,
  said,
  settled,
  textOf,
  until,
  type Visit,
} from "./browser.ts";

/**
 * The whole way of a customer on a reseller's domain, in the browser: from the public prices to a request that the package pays for,
 * the mails and the invoice. Then the other ways to pay. Each test goes on where the one before it ended. Source: BUY-1, BUY-2, BUY-4, INV-1, MSG-5.
 */
const USD = 1_000_000_000n;
const SELLER = "Lumen";
const ACCENT = "#7c3aed";
/** Loopback, on a port that resellers' mail servers may have. */
const MAIL_HOST = ownAddress();
const SHOP = "https://shop.lumen.example";

let panel: Panel;
let stripe: StripeStandIn;
let sellersMail: MailBox;
let operatorsMail: MailBox;
let buyer: Person;
let buyersAddress: string;
let sellersAddress: string;
let visit: Visit;
let page: Page;
let secret: string;
let shopSecret: string;

beforeAll(async () => {
  stripe = await startStripe();
  sellersMail = await openMailBox({ host: MAIL_HOST, port: 2525 });
  operatorsMail = await openMailBox();
  panel = await openPanel({
    env: {
      STRIPE_API_BASE: stripe.base,
      SMTP_URL: operatorsMail.url,
      MAIL_FROM: "Nonesuch <mail@nonesuch.example>",
      BRAND_NAME: "Nonesuch Operator",
      MESSAGES_ALLOW_PRIVATE: `${MAIL_HOST}:2525`,
    },
  });
  const { world } = panel.shop;
  await openSellersShop();
  buyer = await world.addCustomer(panel.acme.accountId);
  buyersAddress = await givePassword(panel.shop, buyer);
  ({ secret } = await world.addKey(buyer));
});
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await visit?.close();
  await panel.close();
  await Promise.all([stripe.stop(), sellersMail.close(), operatorsMail.close()]);
});

/** A brand, two prices that everybody can read, a mail server, an address on invoices, and three ways to pay. */
async function openSellersShop() {
  const { shop, acme } = panel;
  for (const [name, price, days] of [
    ["Starter", 12n, 30],
    ["Day pass", 2n, 1],
  ] as const) {
    const id = await shop.world.addOffering({ days, dailyLimit: 500, wholesaleNanoUsd: USD });
    await shop.world.sql`update offerings set name = ${name} where id = ${id}`;
    await shop.world.sql`insert into retail_prices values (${acme.accountId}, ${id}, ${String(price * USD)})`;
  }
  await shop.world.setBalance(acme, 500n * USD);
  const seller = await signInTo(shop, acme, { host: ACME_HOST });
  sellersAddress = seller.email;
  ok(await seller.put("/brand", { name: SELLER, accent: ACCENT, support: "help@lumen.example" }));
  ok(await seller.patch("/prices", { pricesPublic: true }));
  const mails = { host: MAIL_HOST, port: 2525, userName: "lumen", password: "a secret" };
  ok(await seller.put("/mail-server", { ...mails, fromAddress: "hello@lumen.example", fromName: SELLER }));
  ok(
    await seller.put("/seller/invoice-details", {
      name: "Lumen GmbH",
      address: "Torstraße 12\n10119 Berlin",
      taxLine: null,
    }),
  );
  const keys = { apiKey: STRIPE_KEY, webhookSecret: STRIPE_WEBHOOK_SECRET };
  ok(await seller.put("/payment-settings/stripe", { stripe: keys }));
  ok(await seller.put("/payment-settings/instructions", { instructions: "Lumen GmbH, IBAN DE00 1234, BIC LUMEDEXX" }));
  shopSecret = ok(await seller.put("/payment-settings/shop", { shopUrl: `${SHOP}/pay` })).secret;
  stripe.whenPaid(async (session) => {
    const { body, headers } = await stripe.event(session);
    ok(await shop.call(`/api/pay/stripe/${acme.accountId}`, { host: PANEL_HOST, body, headers }));
  });
}

/** The reference of the buyer's newest order. */
async function reference(): Promise<string> {
  const [row] = await panel.shop.world
    .sql`select reference from orders where account_id = ${buyer.accountId} order by id desc limit 1`;
  return String(row?.reference);
}

const plans = () => page.getByRole("region", { name: "Packages on sale" });
const subjects = (box: MailBox, address: string) => box.to(address).map(({ subject }) => subject);

/** Opens Billing and orders a plan. What the dialog says is returned. */
async function buy(plan: string): Promise<string> {
  await page.getByRole("link", { name: "Billing" }).first().click();
  await plans()
    .getByRole("button", { name: `Buy ${plan}` })
    .click();
  const dialog = page.getByRole("dialog", { name: `Buy ${plan}` });
  await dialog.getByText("Starts", { exact: true }).waitFor();
  await visit.check();
  const words = await textOf(dialog);
  await dialog.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL(/\/billing\/orders\/\d+$/);
  await settled(page);
  return words;
}

/** Checks the page as it is, and on a phone. */
async function checkBoth(): Promise<void> {
  await visit.check();
  const before = page.viewportSize();
  await page.setViewportSize(PHONE);
  await visit.check();
  if (before) await page.setViewportSize(before);
}

test("from the public prices to the seller's plans: a visitor signs in and finds them", async () => {
  visit = await panel.visit(null, "/model-prices", { host: ACME_HOST });
  page = visit.page;
  await page.getByRole("table", { name: "Models and their prices" }).waitFor();
  await checkBoth();
  await page.getByRole("link", { name: "Sign in" }).first().click();
  await page.getByLabel("E-mail").fill(buyersAddress);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.waitForURL(/\/billing$/);
  const words = await textOf(plans());
  expect(words).toContain("Starter $12.00 for 30 days");
  expect(words).toContain("Day pass $2.00 for one day");
  await checkBoth();
});

test("by card: the dialog says what and when, Stripe's page is paid, and the package pays for a request", async () => {
  const words = await buy("Starter");
  expect(words).toContain("$12.00 for 30 days");
  expect(words).toContain("As soon as it is paid");
  expect(words).toContain("500 requests a day for 30 days");
  await checkBoth();
  visit.expectProblem(/^another host was asked: http:\/\/127\.0\.0\.1:\d+\/pay\//);
  await page.getByRole("radio", { name: /By card/ }).check();
  await page.getByRole("button", { name: "Continue to Stripe" }).click();
  await page.getByRole("button", { name: "Pay 12.00 USD" }).click();
  await said(page, "Your package Starter is active.");
  await page.getByRole("button", { name: "Download invoice 00001 as PDF" }).waitFor();
  await checkBoth();
  await page.getByRole("link", { name: "Show in Billing" }).click();
  await page.getByRole("heading", { name: "Starter Active" }).waitFor();
  await checkBoth();
  expect((await panel.shop.chat(secret, {}, { host: ACME_HOST })).status).toBe(200);
  expect(await panel.shop.counters(buyer.accountId)).toMatchObject({ usage: 1, units: 1 });
});

test("buyer and seller are mailed: who, what, how much and which order, in the seller's name and looks", async () => {
  await until("the mails", () => sellersMail.to(buyersAddress).length >= 2 && operatorsMail.mails.length >= 1);
  expect(subjects(sellersMail, buyersAddress)).toEqual([
    "Payment received: Starter",
    "Your order is complete: Starter",
  ]);
  const number = await reference();
  const [paid] = sellersMail.to(buyersAddress);
  expect(paid?.from?.value).toEqual([{ address: "hello@lumen.example", name: SELLER }]);
  for (const fact of ["$12.00", number, `${panel.at(ACME_HOST)}/billing/orders/`]) expect(paid?.text).toContain(fact);
  expect(String(paid?.html)).toContain(`solid ${accentCss(ACCENT).light.accent}`);
  for (const { raw } of sellersMail.mails) expect(raw.toLowerCase()).not.toMatch(/nonesuch|tollgate/);
  const [placed] = operatorsMail.to(sellersAddress);
  const [{ name }] = (await panel.shop.world
    .sql`select name from accounts where id = ${buyer.accountId}`) as unknown as [{ name: string }];
  expect(placed?.subject).toBe(`New order from ${name}: Starter`);
  for (const fact of [name, "Starter", "$12.00", number]) expect(placed?.text).toContain(fact);
});

test("the invoice is on Billing and says who sold what to whom", async () => {
  const invoices = page.getByRole("table", { name: "Invoices" });
  await invoices.scrollIntoViewIfNeeded();
  const downloading = page.waitForEvent("download");
  await invoices.getByRole("button", { name: "Download invoice 00001 as PDF" }).click();
  const file = await (await downloading).path();
  const text = Bun.spawnSync(["pdftotext", "-layout", file, "-"]).stdout.toString();
  for (const words of ["Lumen GmbH", "10119 Berlin", "Starter", await reference(), "12.00", "00001"])
    expect(text).toContain(words);
  expect(text).not.toMatch(/nonesuch|tollgate/i);
});

test("a top-up is paid by card too, and is in the balance", async () => {
  await page.getByRole("button", { name: "Top up the balance" }).click();
  const dialog = page.getByRole("dialog", { name: "New order" });
  await dialog.getByRole("textbox", { name: "Amount" }).fill("20");
  await visit.check();
  await dialog.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("heading", { name: "Pay $20.00" }).waitFor();
  await page.getByRole("button", { name: "Continue to Stripe" }).click();
  await page.getByRole("button", { name: "Pay 20.00 USD" }).click();
  await said(page, "$20.00 is in your balance.");
  await said(page, "It does not pay for requests yet: ask Lumen to switch on pay-as-you-go for you.");
  await checkBoth();
  expect(await panel.shop.counters(buyer.accountId)).toMatchObject({ balance: 20_000_000_000 });
});

test("by bank transfer: the buyer is told when it starts, gets the reference, and sees the seller's answer without a reload", async () => {
  const words = await buy("Day pass");
  expect(words).toMatch(/On \d+ \w+( \d{4})? at \d\d:\d\d UTC When Starter has ended/);
  await page.getByRole("radio", { name: /By bank transfer/ }).check();
  await page.getByRole("button", { name: "Show how to pay" }).click();
  await said(page, "Lumen GmbH, IBAN DE00 1234, BIC LUMEDEXX");
  const wanted = await textOf(page.getByRole("region", { name: "Pay $2.00" }));
  expect(wanted).toContain(await reference());
  await checkBoth();

  const seller = await panel.visit(panel.acme, "/customers", { host: ACME_HOST });
  await seller.page.getByRole("link", { name: "See orders" }).click();
  const row = seller.page.getByRole("row", { name: /Day pass/ });
  await row.getByRole("button", { name: "Mark as paid and fulfil Day pass" }).click();
  const dialog = seller.page.getByRole("dialog", { name: "Fulfil order: Day pass" });
  // What the buyer was told is chosen.
  expect(await dialog.getByRole("radio", { name: /^After Starter/ }).isChecked()).toBe(true);
  await dialog.getByText("Records the payment of $2.00 and issues the invoice.").waitFor();
  await seller.check();
  await seller.page.setViewportSize(PHONE);
  await seller.check();
  await dialog.getByRole("button", { name: "Mark as paid and fulfil" }).click();
  await dialog.waitFor({ state: "hidden" });
  await seller.close();
  await said(page, "You have the package Day pass.");
  await said(page, /^It starts on \d+ \w+( \d{4})? at \d\d:\d\d UTC, when your other packages have ended\.$/);
  await checkBoth();
});

test("in a shop: the buyer goes there with the reference, and its signed webhook is shown without a reload", async () => {
  await buy("Day pass");
  visit.expectProblem(/^another host was asked: https:\/\/shop\.lumen\.example\//);
  let asked = "";
  await page.route(`${SHOP}/**`, async (route) => {
    asked = route.request().url();
    await route.fulfill({ contentType: "text/html", body: "<title>Shop</title><h1>Shop</h1>" });
  });
  const order = page.url();
  await page.getByRole("radio", { name: /In the shop/ }).check();
  await page.getByRole("button", { name: "Continue to the shop" }).click();
  await page.waitForURL(`${SHOP}/**`);
  const number = await reference();
  expect(asked).toBe(`${SHOP}/pay?order=${number}&amount=2.00&currency=usd`);
  await page.goto(order);
  await said(page, "We are waiting for the payment.");
  await checkBoth();
  const body = JSON.stringify({ order: number, amount: "2.00", currency: "usd", payment_id: "shop-1" });
  const at = new Date();
  const headers = {
    "webhook-id": "msg_1",
    "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
    "webhook-signature": new Webhook(shopSecret).sign("msg_1", at, body),
  };
  ok(await panel.shop.call(`/api/pay/shop/${panel.acme.accountId}`, { host: PANEL_HOST, body, headers }));
  await said(page, "You have the package Day pass.");
  await visit.check();
});

test("by voucher: the code gives a package, and its start is said", async () => {
  const seller = await signInTo(panel.shop, panel.acme, { host: ACME_HOST });
  const [pass] = await panel.shop.world.sql`select id::int as id from offerings where name = 'Day pass'`;
  const wanted = { name: "Show", offeringId: pass?.id, codes: 1, usesPerCode: 1, endsAt: "2029-06-30T00:00:00Z" };
  const { csv } = ok(await seller.post("/vouchers", wanted));
  const code = String(/(?:[0-9A-Z]{4}-){4}[0-9A-Z]{4}/.exec(csv)?.[0]);
  await page.getByRole("link", { name: "Billing" }).first().click();
  await page.getByRole("button", { name: "Redeem a voucher" }).click();
  const dialog = page.getByRole("dialog", { name: "Redeem a voucher" });
  await dialog.getByLabel("Code").fill(code);
  await visit.check();
  await dialog.getByRole("button", { name: "Redeem" }).click();
  await said(page, /^Day pass is yours\. It starts on \d+ \w+/);
  await dialog.waitFor({ state: "hidden" });
  await checkBoth();
});
