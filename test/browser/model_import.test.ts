import { afterAll, beforeAll, expect, test } from "bun:test";
import { openPanel, type Panel, said, textOf } from "./browser.ts";

/** An admin imports prices in the browser. Source: IMP-4, IMP-5. */

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel();
});
afterAll(() => panel.close());

const inputOf = async (id: string) =>
  (await panel.shop.world.sql`select input_micro_usd::float8 as input from models where id = ${id}`)[0]?.input;

test("an admin compares, chooses models, and confirms; a price that changed meanwhile is shown anew instead", async () => {
  const { sql, addModels } = panel.shop.world;
  const prices = { inputMicroUsd: 1, outputMicroUsd: 2 };
  await addModels(
    { ...prices, id: "gpt-4o" },
    { ...prices, id: "gpt-4o-mini" },
    { ...prices, id: "gpt-5.4", modality: "image" },
  );
  const visit = await panel.visit(await panel.shop.world.addAdmin(), "/admin/models");
  const { page } = visit;
  await page.getByRole("link", { name: "Import prices" }).click();
  await page.getByLabel("Provider in the list").selectOption("openai");
  await page.getByLabel("Markup").fill("1,5");
  await page.getByRole("button", { name: "Compare" }).click();
  await page.getByText("From 0 to 1,000, with up to two decimals.").waitFor();
  await page.getByLabel("Markup").fill("20");
  await page.getByRole("button", { name: "Compare" }).click();
  const changes = page.getByRole("table", { name: "Changes" });
  const row = changes.getByRole("row", { name: /gpt-4o openai\/gpt-4o/ });
  expect(await textOf(row)).toMatch(/Input \$0\.000001\/M → \$\d\.\d+\/M/);
  // What cannot be imported is named, and cannot be chosen.
  const cannot = page.getByRole("table", { name: "Cannot be imported" }).getByRole("row", { name: /gpt-5\.4/ });
  expect(await textOf(cannot)).toContain("It is sold by the image, and the list has prices by the token.");
  expect(await cannot.getByRole("checkbox").count()).toBe(0);
  await visit.check();

  // Meanwhile another admin sets a price.
  await sql`update models set input_micro_usd = 7 where id = 'gpt-4o'`;
  await changes.getByRole("checkbox", { name: /gpt-4o-mini/ }).uncheck();
  await page.getByRole("button", { name: "Apply to 1 model" }).click();
  const dialog = page.getByRole("dialog", { name: "Apply to 1 model?" });
  visit.expectProblem(/^422 POST \/api\/panel\/admin\/model-import$/);
  await dialog.getByRole("button", { name: "Apply" }).click();
  await dialog.getByText(/^Nothing was changed: the comparison of gpt-4o is no longer what was shown/).waitFor();
  await visit.check();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  expect(await inputOf("gpt-4o")).toBe(7);
  await row.getByText("$0.000007/M").waitFor();

  await page.getByRole("button", { name: "Apply to 1 model" }).click();
  await dialog.getByRole("button", { name: "Apply" }).click();
  await said(page, "Prices of 1 model are imported.");
  await page.getByRole("table", { name: "Unchanged" }).getByText("gpt-4o", { exact: true }).waitFor();
  expect(await inputOf("gpt-4o")).toBeGreaterThan(1_000_000);
  expect(await inputOf("gpt-4o-mini")).toBe(1);

  // New models are shown on demand, none is chosen, and an added one is off.
  await page.getByRole("checkbox", { name: /^Also show \d+ models that you do not sell/ }).check();
  const added = page.getByRole("table", { name: "New models" }).getByRole("checkbox", { name: /^gpt-4\.1 openai/ });
  expect(await added.isChecked()).toBe(false);
  await added.check();
  await changes.getByRole("checkbox", { name: /gpt-4o-mini/ }).check();
  await page.getByRole("button", { name: "Apply to 2 models" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Apply" }).click();
  await said(page, "Prices of 2 models are imported.");
  expect((await sql`select enabled from models where id = 'gpt-4.1'`)[0]?.enabled).toBe(false);
  expect(await inputOf("gpt-4o-mini")).toBeGreaterThan(1);
  await visit.check();
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    if (process.env.SHOTS)
      await page.screenshot({ path: `${process.env.SHOTS}/import-${colorScheme}.png`, fullPage: false });
  }
  await page.goto("/admin/audit");
  await page.getByRole("list", { name: "Changes, newest first" }).getByText("import of prices").first().waitFor();
  await visit.check();
  await visit.close();
});
