import { afterAll, beforeAll, expect, test } from "bun:test";
import { ACME_HOST, openPanel, type Panel, textOf } from "./browser.ts";

/** A reseller's statement in the browser. Source: RES-5. */

const START_MS_MAX = 60_000;
const USD = 1_000_000_000n;

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel();
}, START_MS_MAX);
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await panel.close();
});

const statement = () => panel.visit(panel.acme, "/customers?view=statement", { host: ACME_HOST });

/** "+$20.00" → 20, "−$4.20" → −4.2, "–" → 0. */
const toNumber = (money: string) => (money === "–" ? 0 : Number(money.replace("−", "-").replace(/[+$,]/g, "")));

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
