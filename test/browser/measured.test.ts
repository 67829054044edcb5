import { afterAll, beforeAll, expect, test } from "bun:test";
import { openPanel, type Panel, PHONE, settled } from "./browser.ts";

/** Made-to-measure packages in the browser. Source: MTM-2. */

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel();
  await panel.shop.world.sql`
    insert into measured_prices (seller_id, kind, is_open, days_min, days_max, daily_min, daily_max, steps)
    values (0, 'retail', true, 1, 30, 100, 5000, '[{"fromRequests":0,"nano":"600000000"},{"fromRequests":10000,"nano":"500000000"}]')`;
});
afterAll(() => panel.close());

test("a customer chooses a size with fields and sliders, sees the sum, and orders it at that price; a changed price is shown first", async () => {
  const customer = await panel.shop.world.addCustomer();
  const visit = await panel.visit(customer, "/billing", { viewport: PHONE });
  const { page } = visit;
  const section = page.getByRole("region", { name: "Made to measure" });
  await section.getByLabel("Days", { exact: true }).fill("31");
  await section.getByRole("button", { name: "Buy this package" }).click();
  await section.getByText("A whole number from 1 to 30.").waitFor();
  await section.getByLabel("Days", { exact: true }).fill("7");
  await section.getByLabel("Requests a day", { exact: true }).fill("500");
  await section.getByText("7 days × 500 requests = 3,500 requests, at $0.60 for 1,000: $2.10").waitFor();
  await section.getByLabel("Days, slider").press("End");
  await section.getByText("30 days × 500 requests = 15,000 requests, at $0.50 for 1,000: $7.50").waitFor();
  await visit.check();
  await panel.shop.world.sql`update measured_prices set steps = '[{"fromRequests":0,"nano":"400000000"}]'`;
  visit.expectProblem(/^422 POST \/api\/panel\/orders$/);
  await section.getByRole("button", { name: "Buy this package" }).click();
  await section.getByText("at $0.40 for 1,000").waitFor();
  await settled(page);
  await section.getByLabel("Days", { exact: true }).fill("7");
  await section.getByLabel("Requests a day", { exact: true }).fill("500");
  await section.getByRole("button", { name: "Buy this package" }).click();
  await page.waitForURL("**/billing/orders/*");
  await visit.check();
  const rows = await panel.shop.world
    .sql`select price_nano_usd::text as price from orders where account_id = ${customer.accountId}`;
  expect(rows.map(({ price }) => price)).toEqual(["1400000000"]);
  await visit.close();
});

test("an admin sets prices by volume", async () => {
  const visit = await panel.visit(await panel.shop.world.addAdmin(), "/admin/offerings");
  const { page } = visit;
  const section = page.getByRole("region", { name: "Made to measure, wholesale" });
  await section.getByLabel("Price", { exact: true }).fill("0.20");
  await section.getByRole("button", { name: "Add a price for more requests" }).click();
  await section.getByLabel("From requests").last().fill("10,000");
  await section.getByLabel("Price", { exact: true }).last().fill("0.15");
  await section.getByRole("checkbox", { name: "Resellers can sell made-to-measure packages" }).check();
  await section.getByRole("button", { name: "Save prices" }).click();
  await page.getByText("Prices saved. Orders that were placed keep theirs.").first().waitFor();
  await visit.check();
  const [row] = await panel.shop.world.sql`select steps, is_open from measured_prices where kind = 'wholesale'`;
  expect(row).toEqual({
    steps: [
      { fromRequests: 0, nano: "200000000" },
      { fromRequests: 10_000, nano: "150000000" },
    ],
    is_open: true,
  });
  await visit.close();
});
