import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import type { Page } from "playwright-core";
import sharp from "sharp";
import { DESKTOP, PANEL_HOST, PHONE, settled, type Visit } from "../test/browser/browser.ts";
import { LUMEN_HOST, openSeededPanel, type Seeded } from "../test/browser/seed.ts";
import type { Person } from "../test/world.ts";
import { startPostgres } from "./services.ts";

/**
 * Takes screenshots of every page for each role, in the light and the dark theme, on a desktop and a phone:
 * `bun scripts/screenshots.ts`, or with parts of pages' names for only those pages. Writes docs/panel/`<page>-<theme>[-phone].png`.
 * The database is seeded with real requests, and the browser's clock is fixed. After all screenshots it fails if a page had a
 * problem: axe, errors, CSP, horizontal scrolling.
 */

const OUT_DIR = join(dirname(import.meta.dirname), "docs", "panel");
const DAYS = 24;
/** Limit of all screenshots together. Letters at parts of a pixel have more shades than at whole ones: 8 % more bytes. */
const BYTES_MAX = 10 * 1024 * 1024;
const COLOURS = 96;
const THEMES = ["light", "dark"] as const;
const SIZES = [
  ["", DESKTOP],
  ["-phone", PHONE],
] as const;

/** `show`: steps on the opened page before the screenshot. */
type Shot = { name: string; path: string; show?: (page: Page, seeded: Seeded) => Promise<void> };
/** Screenshots taken by one browser, signed in as `who`. */
type Group = { who: Person | null; host: string; shots: Shot[] };
type Stage = Visit & { tick: () => Promise<void> };

function groupsOf({ panel, mara, jonas, nora, receiptId, domain, emailLink, voucherBatchId }: Seeded): Group[] {
  const ofCustomer: Shot[] = [
    { name: "home", path: "/" },
    { name: "keys", path: "/keys" },
    { name: "key", path: "/keys", show: openKey },
    { name: "key-create", path: "/keys?create=1" },
    { name: "playground", path: "/playground", show: compare },
    { name: "playground-images", path: "/playground", show: draw },
    { name: "playground-embeddings", path: "/playground", show: embed },
    { name: "usage", path: "/usage?range=30" },
    { name: "usage-not-charged", path: "/usage?kind=not_charged" },
    { name: "receipt", path: `/usage?receipt=${receiptId}` },
    { name: "billing", path: "/billing" },
    { name: "billing-card", path: "/billing", show: scrollTo("Card on file") },
    { name: "plan-buy", path: "/billing", show: open("Buy Starter") },
    { name: "models", path: "/models?compare=atlas-large,quill-2" },
    { name: "voucher-redeem", path: "/billing", show: open("Redeem a voucher") },
    { name: "order", path: "/billing", show: orderTopUp },
    { name: "settings", path: "/settings" },
    { name: "email-waiting", path: "/settings?tab=sign-in", show: scrollTo("E-mail") },
    { name: "passkeys", path: "/settings?tab=sign-in", show: scrollTo("Passkeys") },
    { name: "passkey-add", path: "/settings?tab=sign-in", show: open("Add passkey") },
    { name: "webhooks", path: "/webhooks" },
    { name: "webhook-new", path: "/webhooks", show: open("Add endpoint") },
    { name: "webhook-calls", path: "/webhooks", show: press("jonas-weber.example") },
    { name: "key-once", path: "/keys?create=1", show: createKey },
  ];
  const ofReseller: Shot[] = [
    { name: "reseller-home", path: "/" },
    { name: "prices", path: "/prices" },
    { name: "price-set", path: "/prices", show: open("Change of Pro") },
    { name: "reseller-billing", path: "/billing" },
    { name: "customers", path: "/customers" },
    { name: "orders", path: "/orders" },
    { name: "payments", path: "/payments" },
    { name: "statement", path: "/statement" },
    { name: "markup", path: "/markup", show: markUp },
    { name: "markup-model", path: "/markup", show: open("Change the markup on atlas-large") },
    { name: "customer", path: `/customers/${nora.accountId}` },
    { name: "assign", path: `/customers/${nora.accountId}`, show: preview },
    { name: "domain", path: `/domains/${domain}`, show: checkDomain },
    // After `domain`, so that the list has the result of its check.
    { name: "domains", path: "/domains" },
    { name: "brand", path: "/brand" },
    { name: "sign-up-settings", path: "/sign-up-settings" },
    { name: "vouchers", path: "/vouchers" },
    { name: "voucher-batch", path: `/vouchers/${voucherBatchId}` },
    { name: "voucher-create", path: "/vouchers", show: open("Create vouchers") },
    { name: "voucher-codes", path: "/vouchers", show: createVouchers },
    { name: "invoices", path: "/invoices" },
    { name: "mail", path: "/messages" },
    { name: "tokens", path: "/tokens" },
    { name: "token-create", path: "/tokens", show: open("Create token") },
  ];
  const ofAdmin: Shot[] = [
    { name: "admin-home", path: "/" },
    { name: "admin-people", path: "/admin/people" },
    { name: "admin-person", path: `/admin/people/${jonas.accountId}` },
    { name: "admin-limits", path: `/admin/people/${jonas.accountId}?tab=account`, show: open("Set limits") },
    { name: "admin-orders", path: "/admin/orders" },
    { name: "admin-payments", path: "/admin/payments" },
    { name: "admin-requests", path: "/admin/requests" },
    { name: "admin-offerings", path: "/admin/offerings" },
    { name: "admin-offering-new", path: "/admin/offerings", show: open("New offering") },
    { name: "admin-models", path: "/admin/models" },
    { name: "admin-model", path: "/admin/models?model=atlas-large" },
    { name: "admin-model-prices", path: "/admin/models?model=atlas-large", show: open("Change prices") },
    { name: "admin-model-import", path: "/admin/models/import?provider=openai&markup=20&new=1" },
    { name: "admin-routes", path: "/admin/routes" },
    { name: "admin-providers", path: "/admin/providers", show: press("Test Northwind Inference") },
    { name: "admin-provider-keys", path: "/admin/providers", show: openProvider },
    { name: "admin-provider-new", path: "/admin/providers", show: addProvider },
    { name: "admin-provider-probe", path: "/admin/providers", show: probeProvider },
    { name: "admin-route", path: "/admin/models?model=atlas-large", show: openRoute },
    { name: "admin-domains", path: "/admin/domains" },
    { name: "admin-mail", path: "/admin/messages" },
    { name: "admin-books", path: "/admin/books" },
    { name: "admin-books-unpriced", path: "/admin/books", show: scrollTo("Counted, but not priced") },
    { name: "admin-audit", path: "/admin/audit" },
    { name: "viewing", path: `/admin/people/${jonas.accountId}`, show: press("View as Jonas Weber") },
  ];
  return [
    {
      who: null,
      host: LUMEN_HOST,
      shots: [
        { name: "sign-in", path: "/sign-in" },
        { name: "sign-up", path: "/sign-up" },
        { name: "model-prices-public", path: "/model-prices" },
        { name: "status", path: "/status" },
        { name: "model-public", path: "/model-prices?model=atlas-large" },
      ],
    },
    {
      who: null,
      host: PANEL_HOST,
      shots: [
        { name: "forgot", path: "/forgot" },
        { name: "email-change", path: emailLink },
      ],
    },
    { who: jonas, host: PANEL_HOST, shots: ofCustomer },
    { who: panel.acme, host: LUMEN_HOST, shots: ofReseller },
    { who: mara, host: PANEL_HOST, shots: ofAdmin },
  ];
}

const scrollTo = (name: string) => (page: Page) =>
  page.getByRole("region", { name }).evaluate((section) => section.scrollIntoView({ block: "center" }));
/** Orders a top-up, and shows how to pay for it. */
async function orderTopUp(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Top up the balance" }).click();
  await page.getByRole("textbox", { name: "Amount" }).fill("25");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("button", { name: "Show how to pay" }).click();
  await page.getByText("IBAN").waitFor();
}

const press = (name: string) => (page: Page) => page.getByRole("button", { name }).first().click();
/** Presses a button, and waits for its dialog. */
const open = (name: string) => async (page: Page) => {
  await press(name)(page);
  await page.getByRole("dialog").waitFor();
};

async function openKey(page: Page): Promise<void> {
  await page
    .getByRole("link", { name: /^notebook/ })
    .first()
    .click();
  await page.getByRole("region", { name: "Limits" }).waitFor();
}

async function createKey(page: Page): Promise<void> {
  const form = page.getByRole("dialog", { name: "Create key" });
  await form.getByLabel("Name").fill("mobile app");
  await form.getByRole("button", { name: "Create key" }).click();
  await page.getByRole("tabpanel").waitFor();
}

async function createVouchers(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Create vouchers" }).click();
  const form = page.getByRole("dialog", { name: "Create vouchers" });
  await form.getByText("Amount", { exact: true }).click();
  await form.getByLabel("Amount").last().fill("20");
  await form.getByLabel("Name").fill("Trade show");
  await form.getByLabel("Last day").fill("2028-06-30");
  await form.getByRole("button", { name: "Create codes" }).click();
  await page.getByRole("dialog", { name: /codes for/ }).waitFor();
}

const ANSWER = `A toll gate does three things for each carriage: it **counts**, it **charges**, and it keeps the book.

| Carriage | Toll | Paid by |
| --- | ---: | --- |
| Mail coach | 4 d | season ticket |
| Drover, 20 oxen | 10 d | purse |

\`\`\`ts
const open = purse >= toll; // Or the gate stays shut.
\`\`\`

So the keeper never has to trust anybody's memory.`;

/** Two models about one image. */
async function compare(page: Page, { panel }: Seeded): Promise<void> {
  const settings = page.getByRole("button", { name: "atlas-large", exact: true });
  if (await settings.isVisible()) await settings.click();
  await page.getByRole("button", { name: "Compare with another model" }).click();
  await choose(page, "Second model", "atlas-mini");
  const image = await sharp(join(OUT_DIR, "sign-in-light.png")).resize(320).png().toBuffer();
  await page.locator("input[type=file]").setInputFiles([{ name: "gate.png", mimeType: "image/png", buffer: image }]);
  await page.getByText("gate.png").waitFor();
  panel.shop.provider.next({ content: "A form to sign in, under the name of its owner." });
  panel.shop.provider.next({ content: ANSWER });
  await page.getByRole("textbox", { name: "Message" }).fill("What is on this picture?");
  await page.getByRole("button", { name: "Send" }).click();
  await page
    .getByText(/\d in, \d+ out/)
    .nth(1)
    .waitFor();
}

async function choose(page: Page, field: string, model: string): Promise<void> {
  await page.getByRole("combobox", { name: field }).click();
  await page.getByRole("option", { name: new RegExp(`^${model}`) }).click();
}

async function draw(page: Page): Promise<void> {
  await page.getByText("Images", { exact: true }).click();
  await page.getByLabel("Prompt").fill("A toll gate at dawn, ink on paper");
  await page.getByRole("button", { name: "Create image" }).click();
  await page.getByText(/(?:1 request|\$0\.04), receipt/).waitFor();
}

async function embed(page: Page): Promise<void> {
  await page.getByText("Embeddings", { exact: true }).click();
  await page.getByLabel("Texts").fill("A toll gate at dawn\nA road with a barrier\nApple pie with cream");
  await page.getByRole("button", { name: "Create embeddings" }).click();
  await page.getByText(/dimensions/).waitFor();
}

async function openProvider(page: Page): Promise<void> {
  await page.getByText("Northwind Inference").first().click();
  await page.getByRole("dialog").getByText("Quarantined").waitFor();
}

/** The dialog of a new provider, with its facts open. */
async function addProvider(page: Page): Promise<void> {
  await open("Add provider")(page);
  const form = page.getByRole("dialog");
  await form.getByLabel("Name").fill("Tidewater AI");
  await form.getByLabel("Base URL").fill("https://inference.tidewater.example/v1");
  await form.getByLabel("Dialect").selectOption("vllm");
  await form.getByText("What the provider takes").click();
  await form.getByLabel("Developer messages").selectOption("developer");
  await form.getByText("What the provider takes").scrollIntoViewIfNeeded();
}

/** A probe of a provider that takes less than its dialect says. */
async function probeProvider(page: Page, { panel }: Seeded): Promise<void> {
  panel.shop.second.when(({ body }) => /"(?:max_tokens|functions|developer)"|"content":\[/.test(body), { status: 400 });
  await page.getByText("Fabrikam Models").first().click();
  const section = page.getByRole("region", { name: "What it takes" });
  await section.getByRole("button", { name: "Probe now" }).click();
  await section.getByRole("button", { name: "Set these facts" }).waitFor();
  await section.evaluate((element) => element.scrollIntoView({ block: "center" }));
}

async function openRoute(page: Page): Promise<void> {
  await press("Actions for the route to Northwind Inference")(page);
  await page.getByRole("menuitem", { name: "Change" }).click();
  const form = page.getByRole("dialog");
  await form.getByText("What the provider takes").click();
  await form.getByText("What the provider takes").evaluate((element) => element.scrollIntoView());
}

async function preview(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Assign package" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("combobox", { name: "Offering" }).click();
  await dialog.getByRole("option", { name: /^Pro/ }).click();
  await dialog.getByRole("region", { name: "What this does" }).waitFor();
}

/** Sets a markup on every model. */
async function markUp(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Change the markup on every model" }).click();
  const form = page.getByRole("dialog");
  await form.getByLabel("Markup").fill("15");
  await form.getByRole("button", { name: "Save markup" }).click();
  await form.waitFor({ state: "detached" });
}

async function checkDomain(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Check now" }).click();
  await page.getByText(/^Found .*\. Change it to/).waitFor();
}

/** Opens a group's browser. `tick` sets its clock, and the server time that the panel sees, to now; they then stand still. */
async function openGroup({ panel, timeZone }: Seeded, { who, host }: Group): Promise<Stage> {
  const visit = await panel.visit(who, "/sign-in", { host, timezoneId: timeZone });
  const { context, page } = visit;
  // The page checks the domain again within seconds, which is too soon.
  visit.expectProblem(/^429 POST \/api\/panel\/domains\/[^/]+\/check$/);
  // The page asks before it is left with an uncopied key.
  page.on("dialog", (dialog) => void dialog.accept());
  await nameBrowser(panel, page);
  let at = new Date();
  await context.route("**/api/panel/me", async (route) => {
    // Fetched by its address, because this process cannot resolve the browser's host names.
    const request = route.request();
    const headers = { ...(await request.allHeaders()), host: new URL(request.url()).host };
    const response = await route.fetch({ url: `${panel.shop.origin}/api/panel/me`, headers });
    await route.fulfill({ response, json: { ...Object(await response.json()), serverTime: at.toISOString() } });
  });
  return {
    ...visit,
    async close() {
      // The page may be asking.
      await context.unrouteAll({ behavior: "ignoreErrors" });
      await visit.close();
    },
    async tick() {
      at = new Date();
      await context.clock.setFixedTime(at);
    },
  };
}

/** Gives the session the browser's user agent, for the list of devices, and removes audit entries of this program's sign-in. */
async function nameBrowser({ shop: { world } }: Seeded["panel"], page: Page): Promise<void> {
  const agent = await page.evaluate(() => navigator.userAgent.replace("Headless", ""));
  await world.sql`update sessions set user_agent = ${agent} where user_agent !~ '^Mozilla'`;
  await world.sql`delete from audit_entries where actor_id is null`;
}

/** Takes all screenshots of one page. Returns its problems. */
async function takeShots({ page, check, tick }: Stage, shot: Shot, seeded: Seeded): Promise<string[]> {
  const problems: string[] = [];
  for (const [suffix, viewport] of SIZES) {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme: "light" });
    await tick();
    await page.goto(shot.path);
    await settled(page);
    await shot.show?.(page, seeded);
    for (const colorScheme of THEMES) {
      await page.emulateMedia({ colorScheme });
      const file = `${shot.name}-${colorScheme}${suffix}.png`;
      await check().catch((error) => problems.push(`${file} ${error.message}`));
      const png = await page.screenshot({ animations: "disabled", caret: "hide" });
      const small = await sharp(png)
        .png({ palette: true, colours: COLOURS, effort: 10, compressionLevel: 9 })
        .toBuffer();
      await writeFile(join(OUT_DIR, file), small);
    }
    if (shot.show) await undo(page);
  }
  return problems;
}

/** Undoes `show`: clears the tab's storage, and ends an admin's view of another person's panel. */
async function undo(page: Page): Promise<void> {
  const bar = page.getByRole("complementary", { name: "Viewing as another person" });
  if ((await bar.count()) > 0) {
    await bar.getByRole("button", { name: "Leave" }).click();
    await bar.waitFor({ state: "hidden" });
  }
  await page.evaluate(() => sessionStorage.clear());
}

async function main(): Promise<number> {
  const parts = process.argv.slice(2);
  const postgres = process.env.DATABASE_URL ? undefined : await startPostgres();
  if (postgres) process.env.DATABASE_URL = postgres.url;
  const problems: string[] = [];
  try {
    const seeded = await openSeededPanel({ days: DAYS });
    try {
      await mkdir(OUT_DIR, { recursive: true });
      if (parts.length === 0) for (const file of await screenshotFiles()) await rm(join(OUT_DIR, file));
      for (const group of groupsOf(seeded)) {
        const shots = group.shots.filter(({ name }) => parts.length === 0 || parts.some((part) => name.includes(part)));
        if (shots.length === 0) continue;
        const visit = await openGroup(seeded, group);
        for (const shot of shots) {
          const found = await takeShots(visit, shot, seeded);
          problems.push(...found);
          console.log(`${found.length === 0 ? "ok  " : "FAIL"} ${shot.name}`);
        }
        await visit.close();
      }
    } finally {
      await seeded.close();
    }
  } finally {
    await postgres?.stop();
  }
  const bytes = (await Promise.all((await screenshotFiles()).map((file) => Bun.file(join(OUT_DIR, file)).size))).reduce(
    (sum, size) => sum + size,
    0,
  );
  if (bytes > BYTES_MAX) problems.push(`The screenshots are ${bytes} bytes, more than the limit of ${BYTES_MAX}.`);
  console.log(`${(bytes / 1024 / 1024).toFixed(1)} MB in ${OUT_DIR}`);
  for (const problem of problems) console.log(problem);
  return problems.length > 0 ? 1 : 0;
}

async function screenshotFiles(): Promise<string[]> {
  return (await readdir(OUT_DIR)).filter((file) => /-(?:light|dark)(?:-phone)?\.png$/.test(file));
}

if (import.meta.main) process.exit(await main());
