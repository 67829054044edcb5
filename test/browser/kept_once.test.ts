import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { codeAt } from "../accounts/authenticator.ts";
import { givePassword, PASSWORD } from "../panel/panel_client.ts";
import { openPanel, type Panel, settled, textOf } from "./browser.ts";

/** Values that are shown once: the browser's Back button does not lose them. */

const HOST = "ai.once.localhost";
/** Of an endpoint, which is not called. */
const SERVER = "127.0.0.1:9";

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel({ env: { MESSAGES_ALLOW_PRIVATE: SERVER } });
});
afterAll(() => panel.close());

/** `back`: the page that Back leads to, unless it is the Overview. */
type Case = {
  what: string;
  link: string;
  back?: string;
  make: (page: Page) => Promise<void>;
  keep: (page: Page) => Promise<void>;
};

const dialogOf = (page: Page) => page.getByRole("dialog");
const tick = (page: Page) => dialogOf(page).getByRole("checkbox").check();

const CASES: Case[] = [
  {
    what: "the codes of vouchers",
    link: "Vouchers",
    async make(page) {
      await page.getByRole("button", { name: "Create vouchers" }).first().click();
      const form = dialogOf(page);
      await form.getByText("Amount", { exact: true }).click();
      await form.getByRole("textbox", { name: "Amount" }).fill("5");
      await form.getByLabel("Name").fill("Spring");
      await form.getByLabel("Last day").fill("2029-06-30");
      await form.getByRole("button", { name: "Create codes" }).click();
    },
    async keep(page) {
      const downloading = page.waitForEvent("download");
      await dialogOf(page).getByRole("button", { name: "Download CSV" }).click();
      await downloading;
    },
  },
  {
    what: "the secret of a webhook's endpoint",
    link: "Webhooks",
    async make(page) {
      await page.getByRole("button", { name: "Add endpoint" }).click();
      await dialogOf(page).getByLabel("URL").fill(`http://${SERVER}/hooks`);
      await dialogOf(page).getByRole("button", { name: "Add endpoint" }).click();
    },
    keep: tick,
  },
  {
    what: "the secret of a shop",
    link: "Payments",
    async make(page) {
      await page.getByLabel("Address of the shop").fill("https://shop.example.com/pay");
      await page.getByRole("button", { name: "Offer the shop" }).click();
    },
    keep: tick,
  },
  {
    what: "the recovery codes of a second factor",
    link: "Settings",
    back: "Settings",
    async make(page) {
      await page.getByRole("navigation", { name: "Settings" }).getByRole("link", { name: "Sign-in" }).click();
      await page.getByRole("button", { name: "Set up" }).click();
      const dialog = dialogOf(page);
      await dialog.getByLabel("Current password", { exact: true }).fill(PASSWORD);
      await dialog.getByRole("button", { name: "Continue" }).click();
      await dialog.getByRole("img", { name: /QR code/ }).waitFor();
      const [key = ""] = /(?:[A-Z2-7]{4} ){7}[A-Z2-7]{4}/.exec(await textOf(dialog)) ?? [];
      await dialog.getByLabel("Code", { exact: true }).fill(codeAt(key.replaceAll(" ", "")));
      await dialog.getByRole("button", { name: "Switch on" }).click();
    },
    keep: tick,
  },
];

test("after Back and Forward, what is shown once is shown again, until it is stored", async () => {
  const seller = await panel.shop.world.addReseller(HOST);
  await givePassword(panel.shop, seller);
  const visit = await panel.visit(seller, "/", { host: HOST });
  const { page } = visit;
  for (const { what, link, back = "Overview", make, keep } of CASES) {
    await page.goto("/");
    await page.getByRole("navigation").getByRole("link", { name: link, exact: true }).first().click();
    await page.getByRole("heading", { name: link, level: 1 }).waitFor();
    await settled(page);
    await make(page);
    const done = dialogOf(page).getByRole("button", { name: "Done" });
    await done.waitFor();
    const shown = await textOf(dialogOf(page));
    await page.goBack();
    await page.getByRole("heading", { name: back, level: 1 }).waitFor();
    expect([what, await dialogOf(page).count()]).toEqual([what, 0]);
    await page.goForward();
    await done.waitFor();
    expect([what, await textOf(dialogOf(page))]).toEqual([what, shown]);
    await visit.check();
    await keep(page);
    await done.click();
    await dialogOf(page).waitFor({ state: "hidden" });
    await page.goBack();
    await page.goForward();
    await page.getByRole("heading", { name: link, level: 1 }).waitFor();
    expect([what, await dialogOf(page).count()]).toEqual([what, 0]);
    await visit.check();
  }
  await visit.close();
});
