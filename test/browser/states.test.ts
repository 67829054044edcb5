import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { givePassword } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";
import { ACME_HOST, openPanel, type Panel, settled, textOf, until } from "./browser.ts";

/** What pages say of what is old, unknown, wrong or on its way. Source: PAN-1, PAN-6, PAN-7, PRV-23, ACC-9. */

let panel: Panel;
let admin: Person;

beforeAll(async () => {
  panel = await openPanel();
  admin = await panel.shop.world.addAdmin();
});
afterAll(() => panel.close());

test("a page whose refresh failed says since when its data is old, until it loads again", async () => {
  const visit = await panel.visit(admin, "/admin/books");
  const { page } = visit;
  const notice = page.getByRole("alert").filter({ hasText: "This page could not be refreshed" });
  expect(await notice.count()).toBe(0);
  // A replica on a busy machine may be shown as late at first.
  const healthy = page.getByRole("table", { name: "Replicas" }).getByText("Healthy");
  await healthy.waitFor();
  visit.expectProblem(/^503 GET \/api\/panel\/admin\/replicas$/);
  const refused = { status: 503, contentType: "application/json", body: "{}" };
  await page.route("**/api/panel/admin/replicas", (route) => route.fulfill(refused));
  expect(await textOf(notice)).toMatch(/Some of it is from \d+ \w+, \d\d:\d\d:\d\d, and may have changed\./);
  // What was loaded stays.
  await healthy.waitFor();
  await visit.check();
  await page.unroute("**/api/panel/admin/replicas");
  await notice.getByRole("button", { name: "Try again" }).click();
  await notice.waitFor({ state: "hidden" });
  await visit.close();
});

test("a key that is off is not warned about as unused, and a key at its daily limit says so", async () => {
  const { shop } = panel;
  const person = await shop.customer();
  const { keyId } = await shop.world.addKey(person);
  const old = () =>
    shop.world.sql`update keys set created_at = created_at - interval '40 days', expires_at = null where id = ${keyId}`;
  await old();
  const visit = await panel.visit(person, "/keys");
  const { page } = visit;
  const warning = page.getByText("1 key is unused and never expires");
  await warning.waitFor();
  await shop.world.sql`update keys set status = 'disabled' where id = ${keyId}`;
  await page.reload();
  await page.getByText("Off", { exact: true }).waitFor();
  expect(await warning.count()).toBe(0);
  expect(await page.getByText("Never used").count()).toBe(0);

  await shop.world.sql`update keys set daily_units_max = 1 where id = ${person.keyId}`;
  expect((await shop.chat(person.secret)).status).toBe(200);
  await page.reload();
  await page.getByText("Limit reached").waitFor();
  await page.getByText("0 of 1 left").waitFor();
  await visit.check();
  await visit.close();
});

test("a route that was not called is untested; one that was has its times with their names", async () => {
  const { shop } = panel;
  const visit = await panel.visit(admin, "/admin/routes");
  const { page } = visit;
  const row = page.getByRole("row", { name: /vendor\/chat-b/ });
  expect(await textOf(row)).toContain("Untested");
  await page.getByText("Untested: there was no request.").waitFor();
  const customer = await shop.customer();
  expect((await shop.chat(customer.secret, { model: "vendor/chat-b" })).status).toBe(200);
  await until("the route answers", async () => (await textOf(row)).includes("Answers"));
  expect(await textOf(row)).toMatch(/p50 \d+ ms p95 \d+ ms/);
  await visit.check();
  await visit.close();
});

test("domains are well only if one is live; those that wait are not counted as live", async () => {
  const { sql } = panel.shop.world;
  await sql`insert into hosts (host, reseller_id, status) values ('waits.example.test', ${panel.acme.accountId}, 'pending')`;
  const tile = (page: Page) =>
    page.getByRole("region", { name: "The service" }).getByRole("link", { name: /^Domains/ });
  const visit = await panel.visit(admin, "/");
  expect(await textOf(tile(visit.page))).toBe("Domains OK 1 of 2 live");
  await sql`update hosts set status = 'pending' where host = ${ACME_HOST}`;
  await visit.page.reload();
  await until("no domain is live", async () => (await textOf(tile(visit.page))) === "Domains Waiting 0 of 2 live");
  await sql`update hosts set status = 'active' where host = ${ACME_HOST}`;
  await sql`delete from hosts where host = 'waits.example.test'`;
  await visit.check();
  await visit.close();
});

test("a field's error goes when the field is changed, and comes back with the next attempt", async () => {
  const customer = await panel.shop.customer();
  const visit = await panel.visit(customer, "/settings");
  const { page } = visit;
  const name = page.getByRole("textbox", { name: "Name", exact: true }).first();
  const wrong = page.getByText("Enter your name, as others see it.");
  await name.fill("");
  await page.getByRole("button", { name: "Save name" }).click();
  await wrong.waitFor();
  await name.press("Space");
  await wrong.waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Save name" }).click();
  await wrong.waitFor();
  await visit.close();

  await givePassword(panel.shop, customer);
  const out = await panel.visit(null, "/sign-in");
  await out.page.getByRole("button", { name: "Sign in", exact: true }).click();
  const noEmail = out.page.getByText("Enter your e-mail address.");
  await noEmail.waitFor();
  await out.page.getByLabel("E-mail").press("a");
  await noEmail.waitFor({ state: "hidden" });
  await out.close();
});

test("a dialog whose script is slow shows that it opens", async () => {
  const visit = await panel.enter(admin);
  const { page } = visit;
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.goto("/admin/people");
  await settled(page);
  await page.route("**/assets/*.js", async (route) => {
    await held;
    await route.continue();
  });
  await page.getByRole("button", { name: "Add person" }).first().click();
  await page.getByRole("status").filter({ hasText: "Opening…" }).waitFor();
  release();
  await page.getByRole("dialog", { name: "Add a person" }).waitFor();
  await visit.check();
  await visit.close();
});

test("an explanation is shown by the keyboard and by a tap, and closes with Escape", async () => {
  const { shop } = panel;
  const person = await shop.customer();
  await shop.world.sql`update keys set model_ids = array['chat-a', 'vendor/chat-b'] where id = ${person.keyId}`;
  const visit = await panel.visit(person, "/keys", { hasTouch: true });
  const { page } = visit;
  const words = page.getByRole("button", { name: "2 models" });
  const explained = page.getByRole("tooltip").filter({ hasText: "chat-a, vendor/chat-b" });
  await words.focus();
  await explained.waitFor();
  await page.keyboard.press("Escape");
  await explained.waitFor({ state: "hidden" });
  await words.tap();
  await explained.waitFor();
  await visit.check();
  await visit.close();
});

test("the preview of a brand is the sign-in page of its host, and cannot be used", async () => {
  const reseller = await panel.visit(panel.acme, "/brand", { host: ACME_HOST });
  const preview = reseller.page.getByRole("figure", { name: /^Sign-in page and panel of/, includeHidden: true });
  await preview.waitFor();
  const shown = await textOf(preview);
  const out = await panel.visit(null, "/sign-in", { host: ACME_HOST });
  const real = await textOf(out.page.getByRole("main"));
  expect(shown).toContain(real);
  expect(await preview.getAttribute("inert")).not.toBeNull();
  await reseller.check();
  await out.close();
  await reseller.close();
});

test("the audit log is filtered by days, and exported with the same filter", async () => {
  const visit = await panel.visit(admin, "/admin/audit");
  const { page } = visit;
  const entries = page.getByRole("list", { name: "Changes, newest first" });
  await entries.waitFor();
  await page.getByLabel("To", { exact: true }).fill("2020-01-01");
  await page.getByText("Nothing in this view.", { exact: false }).waitFor();
  await page.getByLabel("To", { exact: true }).fill("");
  await page.getByLabel("From", { exact: true }).fill("2020-01-01");
  await entries.waitFor();
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "CSV export" }).click();
  const lines = readFileSync(await (await downloading).path(), "utf8")
    .trim()
    .split(/\r?\n/);
  expect(lines[0]).toBe(
    "entry_id,at,actor_id,actor,token,action,subject,subject_id,subject_name,account_id,account,before,after,request_id",
  );
  const [sums] = await panel.shop.world.sql`select count(*)::int as entries from audit_entries`;
  expect(lines.length - 1).toBe(sums?.entries);
  await visit.check();
  await visit.close();
});
