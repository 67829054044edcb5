import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Person } from "../world.ts";
import { ACME_HOST, openPanel, type Panel, PHONE, said, settled, textOf } from "./browser.ts";

/** Prices, plans and models on a reseller's domain. Source: RTL-2, RTL-3, RTL-6, RTL-9. */

let panel: Panel;
let buyer: Person;

beforeAll(async () => {
  panel = await openPanel({ env: { BRAND_NAME: "Nonesuch Operator" } });
  const { world } = panel.shop;
  buyer = await world.addCustomer(panel.acme.accountId);
  const add = async (name: string, spec: Parameters<typeof world.addOffering>[0]) => {
    const id = await world.addOffering(spec);
    await world.sql`update offerings set name = ${name} where id = ${id}`;
  };
  await add("Starter", { days: 30, dailyLimit: 500, carryover: true, wholesaleNanoUsd: 12_000_000_000n });
  await add("Chat only", { days: 7, dailyLimit: 100, modelIds: ["chat-a"], wholesaleNanoUsd: 3_000_000_000n });
});
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await panel.close();
});

test("a reseller sets its prices; one below wholesale asks for a confirmation", async () => {
  const visit = await panel.visit(panel.acme, "/prices", { host: ACME_HOST });
  const { page } = visit;
  await said(page, "You have not set a price yet.");
  await visit.check();
  await page.getByRole("button", { name: "Set price of Starter" }).click();
  const dialog = page.getByRole("dialog", { name: "Price of Starter" });
  await dialog.getByLabel("Your customers pay").fill("9.9951");
  await dialog.getByRole("button", { name: "Set price" }).click();
  await dialog.getByText("Whole cents.", { exact: true }).waitFor();
  await dialog.getByLabel("Your customers pay").fill("9");
  await dialog.getByRole("button", { name: "Set price" }).click();
  await dialog.getByText("Confirm it, or set a higher price.").waitFor();
  await visit.check();
  await dialog.getByLabel("Yes, $3.00 below the wholesale price").check();
  await dialog.getByRole("button", { name: "Set price" }).click();
  await dialog.waitFor({ state: "hidden" });
  const row = page.getByRole("row", { name: /Starter/ });
  await row.getByText("Below wholesale", { exact: true }).waitFor();
  await row.getByRole("button", { name: "Change of Starter" }).click();
  await dialog.getByLabel("Your customers pay").fill("24");
  await dialog.getByRole("button", { name: "Set price" }).click();
  await dialog.waitFor({ state: "hidden" });
  await row.getByText("+$12.00").waitFor();
  await visit.check();
  await visit.close();
});

test("a customer sees a card of what is priced, and what is in it; Buy places an order for it", async () => {
  const visit = await panel.visit(buyer, "/billing", { host: ACME_HOST });
  const { page } = visit;
  const plans = page.getByRole("region", { name: "Packages on sale" });
  const text = await textOf(plans);
  expect(text).toContain("Starter $24.00 for 30 days");
  expect(text).toContain("500 requests a day for 30 days");
  expect(text).toContain("Unused requests stay usable on later days");
  expect(text).not.toContain("Chat only");
  expect(text).not.toContain("12.00");
  await visit.check();
  await plans.getByRole("button", { name: "Buy Starter" }).click();
  const dialog = page.getByRole("dialog", { name: "Buy Starter" });
  await visit.check();
  await dialog.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL(/\/billing\/orders\/\d+$/);
  await page.getByText("$24.00").first().waitFor();
  await visit.check();
  await page.goto("/billing");
  await page.getByRole("row", { name: /Starter/ }).waitFor();
  await visit.close();
});

test("the cards and the price page fit a phone in both themes", async () => {
  for (const colorScheme of ["light", "dark"] as const) {
    const visit = await panel.visit(buyer, "/billing", { host: ACME_HOST, viewport: PHONE, colorScheme });
    await visit.check();
    await visit.page.goto("/models?compare=chat-a,image-a");
    await settled(visit.page);
    await visit.check();
    await visit.close();
  }
});

test("single requests are on Billing only when asked for", async () => {
  const { world } = panel.shop;
  await world.setBalance(buyer, 5_000_000_000n);
  const { secret } = await world.addKey(buyer, { mode: "payg" });
  expect((await panel.shop.chat(secret, {}, { host: ACME_HOST })).status).toBe(200);
  const visit = await panel.visit(buyer, "/billing", { host: ACME_HOST });
  const { page } = visit;
  const months = page.getByRole("table", { name: "The balance by month" });
  expect(await textOf(months)).toContain("+$5.00");
  const list = page.getByRole("table", { name: "Transactions of the balance" });
  expect(await textOf(list)).not.toContain("Receipt");
  await page.getByLabel("Kind of transaction").selectOption({ label: "All, each request too" });
  await list.getByRole("link", { name: "Receipt" }).waitFor();
  await visit.check();
  await visit.close();
});

test("without a session the models are shown only where the seller made them public, under its brand", async () => {
  const closed = await panel.enter(null, { host: ACME_HOST });
  closed.expectProblem(/^401 GET \/api\/panel\/model-prices$/);
  await closed.page.goto("/model-prices");
  await said(closed.page, "Sign in to see the models and what they cost you.");
  await closed.check();
  await closed.close();

  const reseller = await panel.visit(panel.acme, "/prices", { host: ACME_HOST });
  await reseller.page.getByRole("switch", { name: /Show them without a sign-in/ }).click();
  await said(reseller.page, "Everyone can see your prices now.");
  await reseller.close();

  const open = await panel.visit(null, "/model-prices", { host: ACME_HOST });
  const { page } = open;
  const table = page.getByRole("table", { name: "Models and their prices" });
  expect(await textOf(table)).toContain("$3.00");
  expect((await page.content()).toLowerCase()).not.toContain("nonesuch");
  await open.check();
  await page.getByLabel("Search by name").fill("chat-a");
  await page.getByText("1 model. In US dollars").waitFor();
  await page.getByLabel("Compare chat-a").check();
  await page.getByRole("table", { name: "Compared models" }).waitFor();
  await open.check();
  await page.getByLabel("Search by name").fill("no such model");
  await said(page, "No model matches.");

  await page.goto("/model-prices");
  await table.getByRole("link").filter({ hasText: "vendor/chat-b" }).first().click();
  await page.getByRole("heading", { level: 1, name: "vendor/chat-b" }).waitFor();
  expect(await page.getByLabel("Base URL").inputValue()).toContain(ACME_HOST);
  expect(await textOf(page.getByRole("tabpanel"))).toContain('"model": "vendor/chat-b"');
  await open.check();
  await page.getByRole("link", { name: "Try it" }).click();
  await page.getByRole("heading", { level: 1, name: "Sign in" }).waitFor();
  await page.goto("/model-prices?model=nobody");
  await page.getByRole("heading", { level: 1, name: "nobody" }).waitFor();
  open.expectProblem(/^404 GET \/api\/panel\/model-prices\/model/);
  await open.close();

  // After signing in, the playground has the model.
  const buyer = await panel.shop.world.addCustomer(panel.acme.accountId);
  await panel.shop.world.givePackage(buyer);
  await panel.shop.world.addKey(buyer);
  const tried = await panel.visit(buyer, "/models?model=vendor/chat-b", { host: ACME_HOST });
  await tried.page.getByRole("link", { name: "Try it" }).click();
  await tried.page.getByRole("heading", { level: 1, name: "Playground" }).waitFor();
  await tried.page
    .getByRole("combobox", { name: "Model" })
    .and(tried.page.locator("[value='vendor/chat-b'], [placeholder='vendor/chat-b']"))
    .waitFor();
  await tried.close();
});
