import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { issueInvoice } from "../../src/commerce/invoices_store.ts";
import { signInTo } from "../panel/panel_client.ts";
import { ACME_HOST, openPanel, type Panel, said, textOf } from "./browser.ts";

/** Vouchers and invoices in the browser, on a reseller's domain. Source: VOU-1, VOU-3, INV-3. */

const SLOW_MS = 180_000;
const USD = 1_000_000_000n;

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel();
  await panel.shop.world.setBalance(panel.acme, 100n * USD);
});
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await panel.close();
});

test(
  "a seller makes codes and downloads them once; a customer redeems one; the seller sees who",
  async () => {
    const seller = await panel.visit(panel.acme, "/vouchers", { host: ACME_HOST });
    await seller.check();
    await seller.page.getByRole("button", { name: "Create vouchers" }).click();
    const form = seller.page.getByRole("dialog", { name: "Create vouchers" });
    await form.getByRole("button", { name: "Create codes" }).click();
    await said(seller.page, "Choose the last day.");
    await seller.check();
    await form.getByText("Amount", { exact: true }).click();
    await form.getByRole("textbox", { name: "Amount" }).fill("20");
    await form.getByLabel("Name").fill("Trade show");
    await form.getByLabel("Codes").fill("3");
    await form.getByLabel("Last day").fill("2029-06-30");
    await form.getByRole("button", { name: "Create codes" }).click();
    const once = seller.page.getByRole("dialog", { name: "3 codes for a top-up of $20.00" });
    await once.waitFor();
    expect(await once.getByRole("button", { name: "Done" }).isDisabled()).toBe(true);
    const downloading = seller.page.waitForEvent("download");
    await once.getByRole("button", { name: "Download CSV" }).click();
    const file = await (await downloading).path();
    const codes = readFileSync(file, "utf8")
      .trimEnd()
      .split("\r\n")
      .slice(1)
      .map((row) => String(row.split(",")[1]));
    expect(codes).toHaveLength(3);
    await once.getByRole("button", { name: "Done" }).click();
    await once.waitFor({ state: "hidden" });
    for (const code of codes) expect(await seller.page.content()).not.toContain(code);

    const person = await panel.shop.world.addCustomer(panel.acme.accountId);
    const customer = await panel.visit(person, "/billing", { host: ACME_HOST });
    customer.expectProblem(/^422 POST \/api\/panel\/vouchers\/redeem$/);
    await customer.page.getByRole("button", { name: "Redeem a voucher" }).click();
    const dialog = customer.page.getByRole("dialog", { name: "Redeem a voucher" });
    await dialog.getByLabel("Code").fill("1234 5678");
    await dialog.getByRole("button", { name: "Redeem" }).click();
    await said(customer.page, "This code is not valid here. Check it for mistyped characters.");
    await customer.check();
    await dialog.getByLabel("Code").fill(` ${String(codes[0]).toLowerCase().replaceAll("-", " ")}`);
    await dialog.getByRole("button", { name: "Redeem" }).click();
    await said(customer.page, /\$20\.00 was added to your balance/);
    await dialog.waitFor({ state: "hidden" });
    const [voucher] = await panel.shop.world
      .sql`select voucher_id from voucher_uses where account_id = ${person.accountId}`;
    await customer.page.getByText(`Voucher ${voucher?.voucher_id}`).waitFor();
    await customer.check();
    await customer.close();

    await seller.page.getByRole("link", { name: "Trade show" }).click();
    await seller.page.getByRole("heading", { name: "Redeemed by" }).waitFor();
    expect(await textOf(seller.page.getByRole("table", { name: "Redemptions" }))).toContain(`…${codes[0]?.slice(-4)}`);
    await seller.check();
    await seller.page.getByRole("button", { name: "Revoke", exact: true }).click();
    await seller.page.getByRole("button", { name: "Revoke codes" }).click();
    await said(seller.page, "Trade show is revoked.");
    await seller.close();
  },
  SLOW_MS,
);

test(
  "a customer enters its details, and downloads an invoice that has them",
  async () => {
    const { world } = panel.shop;
    const person = await world.addCustomer(panel.acme.accountId);
    const settings = await panel.visit(person, "/settings", { host: ACME_HOST });
    await settings.page.getByLabel("Name on invoices").fill("주식회사");
    settings.expectProblem(/^422 PUT \/api\/panel\/settings\/invoices$/);
    await settings.page.getByRole("button", { name: "Save invoice details" }).click();
    await said(settings.page, /U\+C8FC, which invoices cannot print/);
    await settings.page.getByLabel("Name on invoices").fill("Παπαδόπουλος");
    await settings.page.getByRole("button", { name: "Save invoice details" }).click();
    await said(settings.page, "Invoice details saved.");
    await settings.check();
    await settings.close();
    const session = await signInTo(panel.shop, panel.acme, { host: ACME_HOST });
    await session.put("/seller/invoice-details", { name: "Acme GmbH", address: "Torstraße 12", taxLine: null });
    const db = world.openDb();
    await db.orm.transaction((tx) =>
      issueInvoice(tx, {
        sellerId: panel.acme.accountId,
        accountId: person.accountId,
        orderId: null,
        kind: "invoice",
        lines: [{ text: "Pro", quantity: 1, amountNano: 29n * USD }],
        ...{ currency: "usd", tax: null, taxNano: 0n },
      }),
    );
    await db.close();
    const billing = await panel.visit(person, "/billing", { host: ACME_HOST });
    await billing.check();
    const downloading = billing.page.waitForEvent("download");
    await billing.page.getByRole("button", { name: "Download invoice 00001 as PDF" }).click();
    const download = await downloading;
    expect(download.suggestedFilename()).toBe("invoice-00001.pdf");
    const read = Bun.spawnSync(["pdftotext", await download.path(), "-"]);
    expect(read.stdout.toString()).toContain("Παπαδόπουλος");
    await billing.close();
  },
  SLOW_MS,
);
