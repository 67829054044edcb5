import { afterAll, beforeAll, expect, test } from "bun:test";
import { PASSWORD } from "../panel/panel_client.ts";
import { ACME_HOST, openPanel, type Panel, said } from "./browser.ts";

/** Tokens of the management API in the browser. Source: MGT-1, MGT-2, MGT-4. */

const SLOW_MS = 180_000;

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel();
});
afterAll(() => panel.close());

const ask = (secret: string) => panel.shop.call("/api/v1/accounts", { secret, host: ACME_HOST });

test(
  "a reseller makes a token with its password, uses it, rotates it and revokes it; each secret is shown once",
  async () => {
    const seller = await panel.visit(panel.acme, "/tokens", { host: ACME_HOST });
    const { page } = seller;
    await seller.check();
    seller.expectProblem(/^422 POST \/api\/panel\/tokens$/);

    await page.getByRole("button", { name: "Create token" }).first().click();
    const form = page.getByRole("dialog", { name: "Create token" });
    await form.getByLabel("Name").fill("Billing program");
    await form.getByRole("button", { name: "Create token" }).click();
    await said(page, "Choose what the token may do.");
    await seller.check();
    await form.getByText("accounts, read", { exact: true }).click();
    await form.getByLabel("Current password").fill("not my password");
    await form.getByRole("button", { name: "Create token" }).click();
    await said(page, "This is not your password.");
    await form.getByLabel("Current password").fill(PASSWORD);
    await form.getByRole("button", { name: "Create token" }).click();

    const shown = page.getByRole("dialog", { name: "The token is ready" });
    await shown.waitFor();
    const first = await shown.getByLabel("Token", { exact: true }).inputValue();
    expect(first).toMatch(/^mt-[0-9A-Za-z]{49}$/);
    await seller.check();
    await shown.getByRole("checkbox").check();
    await shown.getByRole("button", { name: "Done" }).click();
    await shown.waitFor({ state: "hidden" });
    expect(await page.content()).not.toContain(first);
    expect((await ask(first)).status).toBe(200);

    await page.getByRole("button", { name: "Actions for Billing program" }).click();
    await page.getByRole("menuitem", { name: "Rotate" }).click();
    const rotating = page.getByRole("dialog", { name: "Rotate token Billing program?" });
    await rotating.getByLabel(/^Not at all/).check();
    await rotating.getByLabel("Current password").fill(PASSWORD);
    await rotating.getByRole("button", { name: "Rotate token" }).click();
    await shown.waitFor();
    const second = await shown.getByLabel("Token", { exact: true }).inputValue();
    await shown.getByRole("checkbox").check();
    await shown.getByRole("button", { name: "Done" }).click();
    await shown.waitFor({ state: "hidden" });
    expect([(await ask(first)).status, (await ask(second)).status]).toEqual([401, 200]);

    await page.getByRole("button", { name: "Actions for Billing program" }).click();
    await page.getByRole("menuitem", { name: "Revoke" }).click();
    await page.getByRole("button", { name: "Revoke token" }).click();
    await said(page, "Token Billing program is revoked.");
    expect((await ask(second)).status).toBe(401);
    await seller.check();
    await seller.close();
  },
  SLOW_MS,
);
