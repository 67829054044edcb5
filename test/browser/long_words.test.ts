import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import type { Person } from "../world.ts";
import { ACME_HOST, DESKTOP, openPanel, type Panel, PHONE, settled } from "./browser.ts";

/** Texts that people type, as long as they may be and without a space. Source: PAN-6. */

const WALK_MS_MAX = 180_000;
const NAME = "W".repeat(100);
const NOTE = "N".repeat(500);
const EMAIL = `${"x".repeat(60)}@${"d".repeat(60)}.example`;

let panel: Panel;
let customer: Person;
beforeAll(async () => {
  panel = await openPanel();
  const { world } = panel.shop;
  const { sql } = world;
  customer = await world.addCustomer(panel.acme.accountId);
  const { accountId } = customer;
  await world.givePackage(customer);
  await world.addKey(customer);
  await sql`select add_balance(${accountId}, 1000000000, 'top_up', ${NOTE}, null)`;
  await sql`update accounts set name = ${NAME}, email = ${EMAIL} where id = ${accountId}`;
  await sql`update packages set name = ${NAME} where account_id = ${accountId}`;
  await sql`update keys set name = ${NAME} where account_id = ${accountId}`;
  await sql`
    insert into orders (account_id, seller_id, kind, amount_nano_usd, price_nano_usd, note, status, answer, decided_at)
    values (${accountId}, ${panel.acme.accountId}, 'top_up', 5000000000, 5000000000, ${NOTE}, 'open', null, null),
      (${accountId}, ${panel.acme.accountId}, 'top_up', 5000000000, 5000000000, ${NOTE}, 'declined', ${NOTE}, now())`;
});
afterAll(async () => {
  expect(await panel.shop.world.unbalanced()).toEqual([]);
  await panel.close();
});

/** Texts that reach beyond the window, or beyond a box that hides what is outside it. A text that ends in "…" is meant to. */
function cutOff(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const root = document.documentElement;
    const found = new Set<string>();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text !== null; text = texts.nextNode()) {
      const within = text.parentElement;
      if (within === null || within.closest(".sr-only, caption, thead, option, script, style")) continue;
      const range = document.createRange();
      range.selectNodeContents(text);
      const { left, right, width } = range.getBoundingClientRect();
      if (width === 0) continue;
      for (let box: Element | null = within; box !== null; box = box.parentElement) {
        const { overflowX, textOverflow } = getComputedStyle(box);
        if (overflowX !== "visible" && textOverflow === "ellipsis") break;
        if (box !== root && !/hidden|clip/.test(overflowX)) continue;
        const edge = box === root ? { left: 0, right: root.clientWidth } : box.getBoundingClientRect();
        if (right > edge.right + 1 || left < edge.left - 1) found.add(String(text.nodeValue).slice(0, 30));
      }
    }
    return [...found];
  });
}

/** What is cut off on these pages, on a desktop and a phone. */
async function walk(person: Person, paths: readonly string[], host?: string): Promise<string[]> {
  const { page, check, close } = await panel.visit(person, "/", { ...(host !== undefined && { host }) });
  const wrong: string[] = [];
  for (const path of paths) {
    await page.goto(path);
    for (const viewport of [DESKTOP, PHONE]) {
      await page.setViewportSize(viewport);
      await settled(page);
      for (const text of await cutOff(page)) wrong.push(`${path} ${viewport.width}: ${text}`);
      await check({ only: "colours" }).catch(({ message }: Error) => wrong.push(message));
    }
  }
  await close();
  return wrong;
}

test(
  "a name, note or reason of one long word cuts off neither itself nor the buttons and amounts beside it",
  async () => {
    const { accountId } = customer;
    expect(
      await walk(
        customer,
        ["/", "/billing", "/settings", "/settings?tab=sign-in", "/settings?tab=notices", "/keys"],
        ACME_HOST,
      ),
    ).toEqual([]);
    const ofSeller = [
      "/",
      "/customers",
      "/orders?orders=all",
      "/statement",
      `/customers/${accountId}`,
      `/customers/${accountId}?tab=usage`,
      `/customers/${accountId}?tab=account`,
      "/messages",
    ];
    expect(await walk(panel.acme, ofSeller, ACME_HOST)).toEqual([]);
    const admin = await panel.shop.world.addAdmin();
    const ofAdmin = [
      "/admin/people",
      `/admin/people/${accountId}`,
      `/admin/people/${accountId}?tab=usage`,
      `/admin/people/${accountId}?tab=account`,
      "/admin/orders?orders=all&from=all",
    ];
    expect(await walk(admin, ofAdmin)).toEqual([]);
  },
  WALK_MS_MAX,
);
