import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { openPanel, type Panel, PHONE, settled, textOf, until, type Visit } from "./browser.ts";

/** Home on the first day of each role: the first steps, and where their buttons lead. Source: PAN-13, PAN-6. */

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel();
});
afterAll(() => panel.close());

const listOf = (page: Page) => page.getByRole("region", { name: "First steps" });
const stepsOf = (page: Page) => listOf(page).getByRole("listitem");

/** Checks Home in both sizes and themes. */
async function checkEverywhere({ page, check }: Visit): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    await check();
  }
  await page.setViewportSize(PHONE);
  await check();
}

test("a customer: each step leads to its page, is ticked off when it is done, and the list goes with the last", async () => {
  const { world } = panel.shop;
  const customer = await world.addCustomer();
  const visit = await panel.visit(customer);
  const { page } = visit;
  expect(await textOf(listOf(page))).toContain("0 of 3 done.");
  // The list says it; a second section would repeat it.
  expect(await page.getByRole("heading", { name: "No package is active" }).count()).toBe(0);
  await listOf(page).getByRole("link", { name: "Open billing" }).click();
  await page.getByRole("heading", { level: 1, name: "Billing" }).waitFor();
  await page.goto("/");
  await listOf(page).getByRole("link", { name: "Create key" }).click();
  await page.getByRole("dialog", { name: "Create key" }).waitFor();

  await world.givePackage(customer);
  await page.goto("/");
  await settled(page);
  expect(await textOf(listOf(page))).toContain("1 of 3 done.");
  expect(await textOf(stepsOf(page).first())).toBe("Get a package : done");
  await checkEverywhere(visit);

  const { secret } = await world.addKey(customer);
  expect((await panel.shop.chat(secret)).status).toBe(200);
  await until("the steps to be done", async () => {
    await page.goto("/");
    await settled(page);
    return (await listOf(page).count()) === 0;
  });
  await visit.close();
});

test("a reseller: six steps in order, and the balance is asked for from the first", async () => {
  const visit = await panel.visit(await panel.shop.world.addReseller());
  const { page } = visit;
  await listOf(page).waitFor();
  expect(await listOf(page).getByRole("link").allTextContents()).toEqual([
    "Top up the balance",
    "Open domains",
    "Open brand",
    "Open prices",
    "Open payments",
    "Open customers",
  ]);
  await checkEverywhere(visit);
  await listOf(page).getByRole("link", { name: "Top up the balance" }).click();
  await page.getByRole("dialog", { name: "New order" }).waitFor();
  await visit.close();
});

test("an admin without a provider: the next step is to connect one, and no figure says that it is well", async () => {
  const { world } = panel.shop;
  await world.sql`update providers set enabled = false`;
  const visit = await panel.visit(await world.addAdmin());
  const { page } = visit;
  expect(await textOf(stepsOf(page).first())).toContain("Connect a provider");
  const tile = page.getByRole("region", { name: "The service" }).getByRole("link", { name: /^Providers/ });
  expect(await textOf(tile)).toBe("Providers None none is on");
  await checkEverywhere(visit);
  await world.sql`update providers set enabled = true`;
  await page.reload();
  await settled(page);
  // Only what was called is said to be well; here one provider may have answered before.
  expect(await textOf(tile)).toMatch(/^Providers (?:OK 1 answering and 1 untested|Untested no request in 24 hours)$/);
  await visit.close();
});
