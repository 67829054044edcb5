import { afterAll, beforeAll, expect, test } from "bun:test";
import { signInTo } from "../panel/panel_client.ts";
import { ACME_HOST, openPanel, PANEL_HOST, type Panel, said, textOf } from "./browser.ts";

/** The status page and its incidents in the browser. Source: STA-2, STA-4, STA-6, STA-9. */

const SLOW_MS = 180_000;

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel();
});
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await panel.close();
});

test(
  "a seller publishes an incident; visitors and customers see it as text; of two who change it one is told",
  async () => {
    const seller = await panel.visit(panel.acme, "/incidents", { host: ACME_HOST });
    await seller.page.getByRole("button", { name: "New incident" }).click();
    const form = seller.page.getByRole("dialog", { name: "New incident" });
    await form.getByRole("button", { name: "Publish" }).click();
    await said(seller.page, "Say what customers should know.");
    await seller.check();
    await form.getByLabel("Title").fill("<img src=x onerror=alert(1)> slow");
    await form.getByLabel("What happens").fill("First line.\nSecond line.");
    await form.getByRole("button", { name: "Publish" }).click();
    await form.waitFor({ state: "hidden" });
    const banner = seller.page.getByRole("complementary", { name: "Status" });
    await banner.waitFor();
    expect(await textOf(banner)).toContain("<img src=x onerror=alert(1)> slow");
    await seller.check();

    const visitor = await panel.visit(null, "/status", { host: ACME_HOST });
    await said(visitor.page, "Some systems are degraded");
    await said(visitor.page, /Second line\./);
    await visitor.check();
    await visitor.close();
    const elsewhere = await panel.visit(null, "/status", { host: PANEL_HOST });
    await said(elsewhere.page, "All systems are operational");
    expect(await elsewhere.page.content()).not.toContain("Second line.");
    await elsewhere.close();

    seller.expectProblem(/^422 PATCH \/api\/panel\/incidents\/\d+$/);
    await seller.page.getByRole("button", { name: /^Actions for/ }).click();
    await seller.page.getByRole("menuitem", { name: "Post an update" }).click();
    const update = seller.page.getByRole("dialog", { name: /^Update:/ });
    const other = await signInTo(panel.shop, panel.acme, { host: ACME_HOST });
    const { rows } = (await other.get("/incidents")).json;
    const elsewhereSaid = { version: 1, status: "identified", body: "A disk." };
    expect((await other.patch(`/incidents/${rows[0].incidentId}`, elsewhereSaid)).status).toBe(200);
    await update.getByLabel("Update").fill("It is over.");
    await update.getByRole("combobox", { name: "State" }).selectOption("resolved");
    await update.getByRole("button", { name: "Publish update" }).click();
    await said(seller.page, /Someone else has changed this/);
    await seller.check();
    await seller.close();
  },
  SLOW_MS,
);
