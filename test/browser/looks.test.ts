import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Locator, Page } from "playwright-core";
import sharp from "sharp";
import { isTab, placesOf } from "../../src/panel/web/places.ts";
import { maySee, ROUTES } from "../../src/panel/web/routes.tsx";
import { DESKTOP, PHONE, settled, textOf, type Visit } from "./browser.ts";
import { LUMEN_HOST, openSeededPanel, type Seeded } from "./seed.ts";

/**
 * Every page of every role: on desktop and phone, light and dark, by keyboard, with reduced motion.
 * Source: PAN-6, WCAG 2.2 AA.
 */

/** Each page is looked at four times. */
const ROLE_MS_MAX = 240_000;
const DAYS = 3;
/** More presses of Tab than any dialog of the panel has stops. */
const TABS_MAX = 40;
const TOUCH_PX_MIN = 44;
/** The brightest background of a dark page, of 255. */
const DARK_MAX = 60;

const UNKNOWN_REQUEST = "/requests/01990000-0000-7000-8000-000000000000";
const UNKNOWN_ORDER = "/billing/orders/999999";

let seeded: Seeded;
/** An order of jonas that waits for its payment. */
let orderId: number;
/** Vouchers of the operator. */
let operatorBatchId: number;

beforeAll(async () => {
  seeded = await openSeededPanel({ days: DAYS, dns: false });
  // One entry of each kind is enough; axe takes time for each element.
  await seeded.panel.shop.world
    .sql`delete from audit_entries where id not in (select max(id) from audit_entries group by subject, action)`;
  const [order] = await seeded.panel.shop.world.sql`
    insert into orders (account_id, kind, amount_nano_usd, price_nano_usd)
    values (${seeded.jonas.accountId}, 'top_up', 20000000000, 20000000000) returning id`;
  orderId = Number(order?.id);
  const [batch] = await seeded.panel.shop.world.sql`
    insert into voucher_batches (seller_id, name, amount_nano_usd, pay_with, codes, uses_per_code, ends_at)
    values (0, 'Spring', 5000000000, 'operator', 1, 1, now() + interval '9 days') returning id`;
  operatorBatchId = Number(batch?.id);
});
afterAll(() => seeded.close());

/** Pages of one thing, by their path in the table of routes. */
function ofOne(path: string): string[] {
  const { nora, jonas, acme, domain } = { ...seeded, acme: seeded.panel.acme };
  const known: Record<string, string[]> = {
    "/customers/:id": ["", "?tab=usage", "?tab=account"].map((tab) => `/customers/${nora.accountId}${tab}`),
    "/domains/:host": [`/domains/${domain}`],
    "/admin/domains/:resellerId/:host": [`/admin/domains/${acme.accountId}/${domain}`],
    // A request that is found redirects to its receipt.
    "/requests/:id": [UNKNOWN_REQUEST],
    "/billing/orders/:id": [UNKNOWN_ORDER],
    "/keys/:id": [`/keys/${seeded.keys.notebook.keyId}`],
    "/vouchers/:id": [`/vouchers/${seeded.voucherBatchId}`],
    "/admin/vouchers/:id": [`/admin/vouchers/${operatorBatchId}`],
    "/admin/people/:id": [jonas, acme].flatMap(({ accountId }) =>
      ["", "?tab=usage", "?tab=statement", "?tab=account"].map((tab) => `/admin/people/${accountId}${tab}`),
    ),
  };
  const paths = known[path];
  if (paths === undefined) throw new Error(`Which ${path} is to be looked at?`);
  return paths;
}

/** Views with a URL of their own. */
const VIEWS: Record<string, string[]> = {
  "/usage": ["/usage?kind=not_charged"],
  "/settings": ["/settings?tab=sign-in", "/settings?tab=notices"],
  "/admin/models": ["/admin/models?model=atlas-large"],
  "/admin/models/import": ["/admin/models/import?provider=openai&markup=20&new=1"],
};

function pathsOf(role: "customer" | "reseller" | "admin"): string[] {
  const own = ROUTES.filter(({ audience }) => maySee(role, audience)).flatMap(({ path }) =>
    path.includes("/:") ? ofOne(path) : [path, ...(VIEWS[path] ?? [])],
  );
  return [...own, "/nowhere"];
}

/** Opens each page once, and checks it in both sizes and themes. */
async function lookAt({ page, check, expectProblem }: Visit, paths: string[]): Promise<void> {
  if (paths.includes(UNKNOWN_REQUEST)) expectProblem(/^404 GET \/api\/panel\/requests\//);
  if (paths.includes(UNKNOWN_ORDER)) expectProblem(/^404 GET \/api\/panel\/orders\/999999$/);
  const wrong: string[] = [];
  for (const path of paths) {
    await page.setViewportSize(DESKTOP);
    await page.goto(path);
    for (const viewport of [DESKTOP, PHONE]) {
      await page.setViewportSize(viewport);
      let inLight: string | undefined;
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        await settled(page);
        const shape = await shapeOf(page);
        // If only colours changed, only colours are checked again.
        const looking = shape === inLight ? check({ only: "colours" }) : check();
        await looking.catch((error) => wrong.push(`${viewport.width} ${colorScheme} ${error.message}`));
        inLight = shape;
      }
    }
  }
  expect(wrong).toEqual([]);
}

/** The page without colours and images: its elements with position, size and visibility. */
function shapeOf(page: Page): Promise<string> {
  return page.evaluate(() => {
    const boxes = [...document.body.querySelectorAll("*")].map((element) => {
      const { x, y, width, height } = element.getBoundingClientRect();
      return [x, y, width, height, element.checkVisibility({ visibilityProperty: true })].join();
    });
    const html = document.body.innerHTML.replace(/ (?:src|style|fill|stroke)="[^"]*"/g, "");
    return `${html} ${boxes.join(" ")}`;
  });
}

describe("at 1280 and 375 px, light and dark: no axe violation, no error, no CSP violation, no horizontal scroll", () => {
  test(
    "pages without a session",
    async () => {
      const { panel, felix } = seeded;
      const admin = await panel.visit(seeded.mara, `/admin/people/${felix.accountId}?tab=account`);
      await admin.page.getByRole("button", { name: /^Create (an invitation|a reset link)$/ }).click();
      await admin.page.getByRole("button", { name: "Create link" }).click();
      const url = new URL(await admin.page.getByLabel(/^(Invitation|Reset) link$/).inputValue());
      await admin.close();
      const visit = await panel.visit(null, "/sign-in", { host: url.hostname });
      visit.expectProblem(/^404 GET \/api\/panel\/(?:links|join)\/gone$/);
      await lookAt(visit, ["/sign-in", "/status", url.pathname, "/reset/gone", "/join/gone"]);
      await visit.close();
    },
    ROLE_MS_MAX,
  );

  test(
    "pages of a customer",
    async () => {
      const visit = await seeded.panel.visit(seeded.jonas);
      await lookAt(visit, [...pathsOf("customer"), `/usage?receipt=${seeded.receiptId}`, `/billing/orders/${orderId}`]);
      await visit.close();
    },
    ROLE_MS_MAX,
  );

  test(
    "pages of a reseller, in its brand",
    async () => {
      const visit = await seeded.panel.visit(seeded.panel.acme, "/", { host: LUMEN_HOST });
      await lookAt(visit, pathsOf("reseller"));
      await visit.close();
    },
    ROLE_MS_MAX,
  );

  test(
    "pages of an admin",
    async () => {
      const visit = await seeded.panel.visit(seeded.mara);
      await lookAt(visit, pathsOf("admin"));
      await visit.close();
    },
    ROLE_MS_MAX,
  );

  test(
    "pages of a new customer, without data",
    async () => {
      const visit = await seeded.panel.visit(await seeded.panel.shop.world.addCustomer());
      await lookAt(visit, pathsOf("customer"));
      await visit.close();
    },
    ROLE_MS_MAX,
  );
});

/** The page's background on a screenshot: the mean of red, green and blue. */
async function ground(page: Page): Promise<number> {
  await settled(page);
  const shot = await page.screenshot({ clip: { x: DESKTOP.width - 4, y: DESKTOP.height - 4, width: 1, height: 1 } });
  const [red = 0, green = 0, blue = 0] = await sharp(shot).removeAlpha().raw().toBuffer();
  return (red + green + blue) / 3;
}

test("dark mode follows the system until the user chooses; the choice survives a reload", async () => {
  const visit = await seeded.panel.visit(seeded.jonas, "/", { colorScheme: "dark" });
  const { page } = visit;
  expect(await ground(page)).toBeLessThan(DARK_MAX);
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("menuitemradio", { name: "Light" }).click();
  expect(await ground(page)).toBeGreaterThan(255 - DARK_MAX);
  await page.reload();
  await settled(page);
  expect(await ground(page)).toBeGreaterThan(255 - DARK_MAX);
  await visit.check();
  await visit.close();
});

test("in a dark dialog, the chosen one of several choices stands out from the dialog; the others do not", async () => {
  const visit = await seeded.panel.visit(seeded.jonas, "/settings?tab=sign-in", { colorScheme: "dark" });
  const { page } = visit;
  await page.getByRole("button", { name: "Change password" }).click();
  const dialog = page.getByRole("dialog", { name: "Change your password" });
  const chosen = dialog.locator("label").filter({ has: page.getByRole("radio", { checked: true }) });
  const ground = (of: Locator) => of.evaluate((element) => getComputedStyle(element).backgroundColor);
  expect(await ground(chosen)).not.toBe(await ground(dialog));
  await visit.check();
  await visit.close();
});

const isFocused = (locator: Locator) => locator.evaluate((element) => element === document.activeElement);

test("by keyboard: skip link, Ctrl+K, a menu, into a dialog and out", async () => {
  const visit = await seeded.panel.visit(seeded.jonas, "/keys");
  const { page } = visit;
  const { keyboard } = page;
  await keyboard.press("Tab");
  const skip = page.getByRole("link", { name: "Skip to content" });
  expect(await isFocused(skip)).toBe(true);
  await visit.check();
  await keyboard.press("Enter");
  expect(await isFocused(page.getByRole("main"))).toBe(true);

  await keyboard.press("Control+k");
  const palette = page.getByRole("dialog", { name: "Go to" });
  await palette.getByRole("option", { name: "Usage" }).waitFor();
  await visit.check();
  await keyboard.type("billing");
  await keyboard.press("Enter");
  await page.getByRole("heading", { name: "Billing", level: 1 }).waitFor();
  expect(await isFocused(page.getByRole("main"))).toBe(true);

  await page.goto("/keys");
  const menu = page.getByRole("button", { name: "Actions for website" });
  await menu.focus();
  await keyboard.press("Enter");
  await page.getByRole("menu").waitFor();
  await keyboard.press("ArrowDown");
  await visit.check();
  await keyboard.press("Escape");
  await page.getByRole("menu").waitFor({ state: "hidden" });
  expect(await isFocused(menu)).toBe(true);

  const opener = page.getByRole("button", { name: "Create key" }).first();
  await opener.focus();
  await keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Create key" });
  await dialog.getByLabel("Name").waitFor();
  expect(await isFocused(dialog.getByLabel("Name"))).toBe(true);
  const stops = new Set<string>();
  for (let pressed = 0; pressed < TABS_MAX; pressed++) {
    await keyboard.press("Tab");
    const inside = await dialog.evaluate((element) => element.contains(document.activeElement));
    expect(inside).toBe(true);
    stops.add(await page.evaluate(() => document.activeElement?.outerHTML ?? ""));
  }
  expect(stops.size).toBeGreaterThan(4);
  await keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  expect(await isFocused(opener)).toBe(true);
  await visit.close();
});

test("on a phone: four tabs and More, each at least 44 px; More has every other page", async () => {
  const visit = await seeded.panel.visit(seeded.mara, "/", { viewport: PHONE, hasTouch: true });
  const { page } = visit;
  const tabs = page.getByRole("navigation", { name: "Main" });
  const stops = [...(await tabs.getByRole("link").all()), tabs.getByRole("button", { name: "More" })];
  expect(await Promise.all(stops.map(textOf))).toEqual(["Overview", "Customers", "Orders", "Requests", "More"]);
  for (const stop of stops) {
    const box = await stop.boundingBox();
    expect(Math.min(box?.width ?? 0, box?.height ?? 0)).toBeGreaterThanOrEqual(TOUCH_PX_MIN);
  }
  await tabs.getByRole("button", { name: "More" }).tap();
  const more = page.getByRole("dialog", { name: "More" });
  await visit.check();
  const others = placesOf("admin").filter((place) => !isTab(place, "admin"));
  for (const { label } of others) await more.getByRole("link", { name: label, exact: true }).waitFor();
  await more.getByRole("link", { name: "Books" }).tap();
  await page.getByRole("heading", { name: "Books", level: 1 }).waitFor();
  await more.waitFor({ state: "hidden" });
  await visit.check();
  await visit.close();
});

test("no animation with reduced motion", async () => {
  /** The longest animation when a dialog opens, in ms. */
  const motion = async (reducedMotion: "reduce" | "no-preference") => {
    const visit = await seeded.panel.visit(seeded.jonas, "/keys", { reducedMotion });
    const { page } = visit;
    await page.evaluate(() => {
      let longest = 0;
      for (const kind of ["animationstart", "transitionrun"]) {
        document.addEventListener(kind, () => {
          for (const { effect } of document.getAnimations()) {
            longest = Math.max(longest, Number(effect?.getComputedTiming().activeDuration ?? 0));
          }
          document.body.dataset.longest = String(longest);
        });
      }
    });
    await page.getByRole("button", { name: "Create key" }).first().click();
    await page.getByRole("dialog").waitFor();
    await settled(page, { keepsMoving: true });
    const longest = Number(await page.locator("body").getAttribute("data-longest"));
    await visit.close();
    return longest;
  };
  expect(await motion("no-preference")).toBeGreaterThan(100);
  expect(await motion("reduce")).toBeLessThanOrEqual(1);
});
