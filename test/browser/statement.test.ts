import { afterAll, beforeAll, expect, test } from "bun:test";
import { ACME_HOST, openPanel, type Panel, said, settled, textOf, type Visit } from "./browser.ts";

/** A reseller's statement in the browser. Source: RES-5. */

const USD = 1_000_000_000n;

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel({ env: { BILLING_TIMEZONE: "America/Los_Angeles" } });
});
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await panel.close();
});

const statement = () => panel.visit(panel.acme, "/statement", { host: ACME_HOST });

/** Sets the ledger's clock, and the server's time that a page is told. */
async function setNow({ page }: Visit, now: string): Promise<void> {
  await panel.shop.world.setClock(now);
  await page.route("**/api/panel/me", async (route) => {
    // Fetched by its address, because this process cannot resolve the browser's host names.
    const request = route.request();
    const headers = { ...(await request.allHeaders()), host: new URL(request.url()).host };
    const response = await route.fetch({ url: `${panel.shop.origin}/api/panel/me`, headers });
    await route.fulfill({ response, json: { ...Object(await response.json()), serverTime: now } });
  });
}

/** "+$20.00" → 20, "−$4.20" → −4.2, "–" → 0. */
const toNumber = (money: string) => (money === "–" ? 0 : Number(money.replace("−", "-").replace(/[+$,]/g, "")));

test("a top-up is listed, however many packages were assigned before it", async () => {
  const { world } = panel.shop;
  const seller = await world.addReseller("ai.busy.localhost");
  const packages = 1_001;
  await world.setBalance(seller, BigInt(packages) * USD);
  const price = -Number(USD);
  await world.sql`
    with paid as (
      insert into balance_entries (account_id, amount_nano_usd, kind)
      select ${seller.accountId}, ${price}, 'wholesale' from generate_series(1, ${packages}) returning amount_nano_usd)
    update balances set balance_nano_usd = balance_nano_usd + (select sum(amount_nano_usd) from paid)
    where account_id = ${seller.accountId}`;
  await world.sql`select add_balance(${seller.accountId}, ${String(7n * USD)}, 'top_up', 'the last one', null)`;
  const visit = await panel.visit(seller, "/statement", { host: "ai.busy.localhost" });
  const list = visit.page.getByRole("table", { name: "Top-ups, transfers" });
  expect(await textOf(list.getByRole("row").filter({ hasText: "the last one" }))).toContain("+$7.00");
  expect(await list.getByRole("row").count()).toBe(3);
  await visit.check();
  await visit.close();
});

test("the lines of the balance add up, with a refund too, which is listed below", async () => {
  const { world } = panel.shop;
  await world.setBalance(panel.acme, 31n * USD);
  const { accountId } = await world.addCustomer(panel.acme.accountId);
  await world.sql`select transfer_balance(${panel.acme.accountId}, ${accountId}, ${String(20n * USD)}, 'an order', null)`;
  await world.sql`select * from refund_balance(${accountId}, ${panel.acme.accountId}, ${String(15n * USD)}, 'paid twice', null)`;
  const visit = await statement();
  const sums = visit.page.locator("dl").filter({ hasText: "Opening" });
  await sums.waitFor();
  const labels = await sums.locator("dt").allTextContents();
  const amounts = (await sums.locator("dd").allTextContents()).map(toNumber);
  expect(amounts[labels.indexOf("Refunds")]).toBe(15);
  const now = amounts.pop();
  expect(now).toBe(26);
  expect(amounts.reduce((sum, amount) => sum + amount, 0)).toBe(26);
  const list = visit.page.getByRole("table", { name: "Top-ups, transfers, corrections, refunds and earnings" });
  expect(await textOf(list.getByRole("row").filter({ hasText: "paid twice" }))).toContain("Refund");
  await visit.check();
  await visit.close();
});

test("it begins with the current month of the billing time zone, as the invoices do", async () => {
  const visit = await panel.enter(panel.acme, { host: ACME_HOST });
  // December in UTC, and November in Los Angeles.
  await setNow(visit, "2026-12-01T03:00:00.000Z");
  const { page } = visit;
  await page.goto("/statement");
  await said(page, /^Balance so far/);
  const months = async (label: string) => {
    const options = page.getByRole("combobox", { name: label, exact: true }).getByRole("option");
    return [await options.first().textContent(), await options.count()];
  };
  expect(await months("Month")).toEqual(["November 2026", 24]);
  await page.goto("/invoices");
  await settled(page);
  expect(await months("Month of the CSV file")).toEqual(["November 2026", 24]);
  await visit.check();
  await visit.close();
  await panel.shop.world.setClock(null);
});
