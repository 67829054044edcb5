import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { ACME_HOST, DESKTOP, openPanel, PANEL_HOST, type Panel, PHONE } from "./browser.ts";

/** The page about the API in a real browser: as it looks, and without JavaScript. */

const START_MS_MAX = 60_000;
const LOOKS_MS_MAX = 120_000;
const PAGE = "/docs/api";

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel();
}, START_MS_MAX);
afterAll(() => panel.close());

const groundOf = (page: Page) => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);

test(
  "at 1280 and 375 px, light and dark: nothing wrong by axe, no error, no broken CSP, no sideways scroll",
  async () => {
    const grounds = new Set<string>();
    for (const viewport of [DESKTOP, PHONE]) {
      for (const colorScheme of ["light", "dark"] as const) {
        const visit = await panel.enter(null, { viewport, colorScheme });
        await visit.page.goto(PAGE);
        await visit.check();
        grounds.add(await groundOf(visit.page));
        await visit.close();
      }
    }
    expect(grounds.size).toBe(2);
  },
  LOOKS_MS_MAX,
);

test("the panel's menu, its More on a phone and its search lead to it, and its first link leads back", async () => {
  const person = await panel.shop.customer();
  const ways: [typeof DESKTOP, (page: Page) => Promise<void>][] = [
    [DESKTOP, (page) => page.getByRole("navigation").getByRole("link", { name: "API reference" }).click()],
    [
      PHONE,
      async (page) => {
        await page.getByRole("button", { name: "More" }).click();
        await page.getByRole("dialog").getByRole("link", { name: "API reference" }).click();
      },
    ],
    [
      DESKTOP,
      async (page) => {
        await page.getByRole("button", { name: "Go to" }).click();
        await page.getByPlaceholder("A page, a key, or a request id").fill("API ref");
        await page.keyboard.press("Enter");
      },
    ],
  ];
  for (const [viewport, way] of ways) {
    const visit = await panel.visit(person, "/", { viewport });
    const { page } = visit;
    await way(page);
    await page.getByRole("heading", { level: 1, name: "Tollgate API" }).waitFor();
    expect(new URL(page.url()).pathname).toBe(PAGE);
    await page.getByRole("link", { name: "Open the panel" }).click();
    await page.getByRole("heading", { level: 1, name: "Home" }).waitFor();
    await visit.check();
    await visit.close();
  }
});

test("the theme that was chosen by hand in the panel holds here too", async () => {
  const visit = await panel.enter(null, { colorScheme: "light" });
  await visit.page.goto(PAGE);
  const light = await groundOf(visit.page);
  await visit.page.evaluate(() => localStorage.setItem("theme", "dark"));
  await visit.page.reload();
  expect(await groundOf(visit.page)).not.toBe(light);
  await visit.check();
  await visit.close();
});

test("without JavaScript: all of it can be read, and its links lead to where they say", async () => {
  for (const host of [PANEL_HOST, ACME_HOST]) {
    const visit = await panel.enter(null, { host, javaScriptEnabled: false });
    const { page } = visit;
    await page.goto(PAGE);
    await page.getByRole("heading", { level: 1 }).waitFor();
    for (const path of ["/models", "/chat/completions", "/images/generations", "/balance", "/usage"])
      expect(await page.getByRole("heading", { level: 2, name: path, exact: false }).first().isVisible()).toBe(true);
    await page.getByRole("navigation").getByRole("link", { name: "ErrorEnvelope" }).click();
    expect(new URL(page.url()).hash).toBe("#ErrorEnvelope");
    expect(await page.locator("#ErrorEnvelope").isVisible()).toBe(true);
    expect(visit.problems).toEqual([]);
    await visit.close();
  }
});
