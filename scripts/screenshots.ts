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
 * Pictures of every page as each role sees it, light and dark, wide and on a phone: `bun scripts/screenshots.ts`, or with a
 * part of a page's name for that page alone. Into docs/panel/, as `<page>-<theme>[-phone].png`. The shop is seeded and its
 * requests are real; the browser's clock stands still. Fails where a page is not as it should be (axe, errors, CSP,
 * sideways scroll), after all pictures are written.
 */

const OUT_DIR = join(dirname(import.meta.dirname), "docs", "panel");
const DAYS = 24;
/** All pictures together. */
const BYTES_MAX = 6 * 1024 * 1024;
const COLOURS = 96;
const THEMES = ["light", "dark"] as const;
const SIZES = [
  ["", DESKTOP],
  ["-phone", PHONE],
] as const;

/** `show` brings an opened page to what is to be seen. */
type Shot = { name: string; path: string; show?: (page: Page, seeded: Seeded) => Promise<void> };
/** What one browser shows, signed in as `who`. */
type Group = { who: Person | null; host: string; shots: Shot[] };
type Stage = Visit & { tick: () => Promise<void> };

function groupsOf({ panel, mara, jonas, nora, receiptId, domain }: Seeded): Group[] {
  const ofCustomer: Shot[] = [
    { name: "home", path: "/" },
    { name: "keys", path: "/keys" },
    { name: "key-create", path: "/keys?create=1" },
    { name: "playground", path: "/playground", show: converse },
    { name: "playground-images", path: "/playground", show: draw },
    { name: "usage", path: "/usage?range=30" },
    { name: "usage-not-charged", path: "/usage?kind=not_charged" },
    { name: "receipt", path: `/usage?receipt=${receiptId}` },
    { name: "billing", path: "/billing" },
    { name: "settings", path: "/settings" },
    { name: "key-once", path: "/keys?create=1", show: createKey },
  ];
  const ofReseller: Shot[] = [
    { name: "reseller-billing", path: "/billing" },
    { name: "customers", path: "/customers" },
    { name: "orders", path: "/customers?view=orders" },
    { name: "statement", path: "/customers?view=statement" },
    { name: "customer", path: `/customers/${nora.accountId}` },
    { name: "assign", path: `/customers/${nora.accountId}`, show: preview },
    { name: "domain", path: `/domains/${domain}`, show: checkDomain },
    // After it, so that the list has what its page says.
    { name: "domains", path: "/domains" },
    { name: "brand", path: "/brand" },
  ];
  const ofAdmin: Shot[] = [
    { name: "admin-home", path: "/" },
    { name: "admin-people", path: "/admin/people" },
    { name: "admin-person", path: `/admin/people/${jonas.accountId}` },
    { name: "admin-orders", path: "/admin/orders" },
    { name: "admin-requests", path: "/admin/requests" },
    { name: "admin-offerings", path: "/admin/offerings" },
    { name: "admin-offering-new", path: "/admin/offerings", show: press("New offering") },
    { name: "admin-models", path: "/admin/models" },
    { name: "admin-model", path: "/admin/models?model=atlas-large" },
    { name: "admin-providers", path: "/admin/providers", show: press("Test Northwind Inference") },
    { name: "admin-domains", path: "/admin/domains" },
    { name: "admin-books", path: "/admin/books" },
    { name: "admin-audit", path: "/admin/audit" },
    { name: "viewing", path: `/admin/people/${jonas.accountId}`, show: press("View as Jonas Weber") },
  ];
  return [
    { who: null, host: LUMEN_HOST, shots: [{ name: "sign-in", path: "/sign-in" }] },
    { who: jonas, host: PANEL_HOST, shots: ofCustomer },
    { who: panel.acme, host: LUMEN_HOST, shots: ofReseller },
    { who: mara, host: PANEL_HOST, shots: ofAdmin },
  ];
}

const press = (name: string) => (page: Page) => page.getByRole("button", { name }).first().click();

async function createKey(page: Page): Promise<void> {
  const form = page.getByRole("dialog", { name: "Create key" });
  await form.getByLabel("Name").fill("mobile app");
  await form.getByRole("button", { name: "Create key" }).click();
  await page.getByRole("tabpanel").waitFor();
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

async function converse(page: Page, { panel }: Seeded): Promise<void> {
  panel.shop.provider.next({ content: ANSWER, delayMs: 400 });
  await page.getByRole("textbox", { name: "Message" }).fill("What does a toll gate do?");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText(/\d in, \d+ out/).waitFor();
}

async function draw(page: Page): Promise<void> {
  await page.getByText("Images", { exact: true }).click();
  await page.getByLabel("Prompt").fill("A toll gate at dawn, ink on paper");
  await page.getByRole("button", { name: "Create image" }).click();
  await page.getByText(/(?:1 request|\$0\.04), receipt/).waitFor();
}

async function preview(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Assign package" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("combobox", { name: "Offering" }).click();
  await dialog.getByRole("option", { name: /^Pro/ }).click();
  await dialog.getByRole("region", { name: "What this does" }).waitFor();
}

async function checkDomain(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Check now" }).click();
  await page.getByText(/^Found .*\. Change it to/).waitFor();
}

/** Opens a group's browser. Its clock and the server's, as the panel knows it, stand still at each `tick`. */
async function openGroup({ panel, timeZone }: Seeded, { who, host }: Group): Promise<Stage> {
  const visit = await panel.visit(who, "/sign-in", { host, timezoneId: timeZone });
  const { context, page } = visit;
  // Looked at again within seconds by a clock that stands still.
  visit.expectProblem(/^429 POST \/api\/panel\/domains\/[^/]+\/check$/);
  // A key that nobody copied asks before it is left.
  page.on("dialog", (dialog) => void dialog.accept());
  await nameBrowser(panel, page);
  let at = new Date();
  await context.route("**/api/panel/me", async (route) => {
    // Asked from here, where only the browser's own names for this machine are unknown.
    const request = route.request();
    const headers = { ...(await request.allHeaders()), host: new URL(request.url()).host };
    const response = await route.fetch({ url: `${panel.shop.origin}/api/panel/me`, headers });
    await route.fulfill({ response, json: { ...Object(await response.json()), serverTime: at.toISOString() } });
  });
  return {
    ...visit,
    async tick() {
      at = new Date();
      await context.clock.setFixedTime(at);
    },
  };
}

/** The list of devices says which browser it is; the session was begun by a program, which stands in no audit log. */
async function nameBrowser({ shop: { world } }: Seeded["panel"], page: Page): Promise<void> {
  const agent = await page.evaluate(() => navigator.userAgent.replace("Headless", ""));
  await world.sql`update sessions set user_agent = ${agent} where user_agent !~ '^Mozilla'`;
  await world.sql`delete from audit_entries where actor_id is null`;
}

/** One page in all its looks. Answers what is wrong with it. */
async function take({ page, check, tick }: Stage, shot: Shot, seeded: Seeded): Promise<string[]> {
  const wrong: string[] = [];
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
      await check().catch((error) => wrong.push(`${file} ${error.message}`));
      const png = await page.screenshot({ animations: "disabled", caret: "hide" });
      const small = await sharp(png)
        .png({ palette: true, colours: COLOURS, effort: 10, compressionLevel: 9 })
        .toBuffer();
      await writeFile(join(OUT_DIR, file), small);
    }
    if (suffix === "" && shot.show) await leave(page);
  }
  return wrong;
}

/** A reload forgets what `show` left in the tab, and an admin's look at somebody's panel ends. */
async function leave(page: Page): Promise<void> {
  const bar = page.getByRole("complementary", { name: "Viewing as another person" });
  if ((await bar.count()) > 0) {
    await bar.getByRole("button", { name: "Leave" }).click();
    await bar.waitFor({ state: "hidden" });
  }
  await page.evaluate(() => sessionStorage.clear());
}

async function main(): Promise<number> {
  const part = process.argv[2] ?? "";
  const postgres = process.env.DATABASE_URL ? undefined : await startPostgres();
  if (postgres) process.env.DATABASE_URL = postgres.url;
  const wrong: string[] = [];
  try {
    const seeded = await openSeededPanel({ days: DAYS });
    try {
      await mkdir(OUT_DIR, { recursive: true });
      if (part === "") for (const file of await pictures()) await rm(join(OUT_DIR, file));
      for (const group of groupsOf(seeded)) {
        const shots = group.shots.filter(({ name }) => name.includes(part));
        if (shots.length === 0) continue;
        const visit = await openGroup(seeded, group);
        for (const shot of shots) {
          const found = await take(visit, shot, seeded);
          wrong.push(...found);
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
  const bytes = (await Promise.all((await pictures()).map((file) => Bun.file(join(OUT_DIR, file)).size))).reduce(
    (sum, size) => sum + size,
    0,
  );
  if (bytes > BYTES_MAX) wrong.push(`The pictures are ${bytes} bytes, more than ${BYTES_MAX}.`);
  console.log(`${(bytes / 1024 / 1024).toFixed(1)} MB in ${OUT_DIR}`);
  for (const each of wrong) console.log(each);
  return wrong.length > 0 ? 1 : 0;
}

async function pictures(): Promise<string[]> {
  return (await readdir(OUT_DIR)).filter((file) => /-(?:light|dark)(?:-phone)?\.png$/.test(file));
}

if (import.meta.main) process.exit(await main());
