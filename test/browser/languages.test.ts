import { afterAll, beforeAll, expect, test } from "bun:test";
import { compileMessage } from "@lingui/message-utils/compileMessage";
import type { Page } from "playwright-core";
import { idOf, panelCatalogue } from "../../scripts/catalogues.ts";
import { LANGUAGE_COOKIE, LANGUAGE_TAGS, LANGUAGES } from "../../src/languages/languages.ts";
import { maySee, ROUTES } from "../../src/panel/web/routes.tsx";
import { DESKTOP, PANEL_HOST, PHONE, settled, type Visit } from "./browser.ts";
import { LUMEN_HOST, openSeededPanel, type Seeded } from "./seed.ts";

/** The panel in its languages, and in one that nobody speaks, which shows what was not collected. Source: LNG-1, LNG-2, LNG-5. */

const ROLE_MS_MAX = 240_000;
const DAYS = 2;
const PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const ACCENTED = "áƀćđéƒǵĥíĵķłḿńóṕɋŕśťúṽŵẋýžÁƁĆĐÉƑǴĤÍĴĶŁḾŃÓṔɊŔŚŤÚṼŴẊÝŽ";

let seeded: Seeded;
/** A script that sets the panel's texts: each letter with an accent, and a third longer. */
let pseudo: string;

beforeAll(async () => {
  seeded = await openSeededPanel({ days: DAYS, dns: false });
  const { texts } = await panelCatalogue("de");
  const entries = [...texts].map(([id, text]) => [idOf(id, text), compileMessage(text.english, accented)]);
  pseudo = `globalThis.panelTexts=${JSON.stringify(Object.fromEntries(entries))};`;
});
afterAll(() => seeded.close());

function accented(text: string): string {
  const letters = [...text].map((sign) => ACCENTED[PLAIN.indexOf(sign)] ?? sign).join("");
  return letters.replace(/<\/?\d+\/?>/g, (tag) => tag) + " ··".repeat(Math.floor(text.length / 9));
}

/** Pages without a parameter, and the settings' tabs. */
function pathsOf(role: "customer" | "reseller" | "admin"): string[] {
  const paths = ROUTES.filter(({ audience }) => maySee(role, audience)).map(({ path }) => path);
  return [
    ...paths.filter((path) => !path.includes("/:")),
    "/settings?tab=sign-in",
    "/settings?tab=notices",
    "/nowhere",
  ];
}

/** Words that are the same in every language. */
const NAMES =
  /\b(?:API|APIs|JSON|CSV|USD|EUR|URL|UTC|OpenAI|DNS|TXT|AAAA|MCP|SDK|VAT|Tollgate|Stripe|HTTPS?|SMTP|KB|MB|Python|JavaScript|TypeScript|curl|Google|GitHub|ISO|IANA|Atom|RFC|PDF|CNAME|IPv[46]|GHz|Chrome|Firefox|Safari|Chromium|Linux|iPhone|Bun|Deno)\b/g;

/**
 * Fields of the server's answers that name something, whose text people wrote, or another machine: an `error` is what a mail server or an
 * endpoint said. `what` is the line of an invoice, in the language of its buyer. Any other text must be translated before it is shown.
 */
const NAMED = /^(?:\w*[nN]ame|title|provider|brand|source|what|note|reason|instructions|\w*address|error)$/;
/** Joins lists in English, which is the locale of the page. */
const LIST_WORDS = /^(?:and|or)$/;

/** The words of the data in an answer: of names, and of texts that no sentence is, as ids, addresses and hosts. */
function dataWords(value: unknown, field = ""): string[] {
  if (typeof value === "string") return NAMED.test(field) || /^\S*[\d@./:_-]\S*$/.test(value) ? wordsOf(value) : [];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => [
    ...dataWords(key),
    ...dataWords(each, Array.isArray(value) ? field : key),
  ]);
}

function wordsOf(text: string): string[] {
  return text
    .replaceAll("_", " ")
    .toLowerCase()
    .split(/[^\p{L}\d.@-]+/u);
}

/** Visible texts with words that are neither a text of the panel nor data. */
async function uncollected(page: Page, data: ReadonlySet<string>): Promise<string[]> {
  const shown = await page.evaluate((names) => {
    const months = [..."abcdefghijkl"].flatMap((_, month) =>
      (["short", "long"] as const).map((form) => new Date(2026, month, 1).toLocaleString("en-GB", { month: form })),
    );
    const known = new RegExp(`${names}|\\b(?:${months.join("|")}|AM|PM)\\b`, "g");
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found: [text: string, rest: string][] = [];
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      const parent = node.parentElement;
      const text = (node.textContent ?? "").replace(/\s+/g, " ").trim();
      const silent = "code, pre, kbd, .font-mono, script, style, noscript, textarea, option, [lang]:not(html)";
      if (parent === null || parent.closest(silent) || !/[a-z]{3,}/i.test(text) || !parent.checkVisibility()) continue;
      found.push([text, text.replace(known, "")]);
    }
    return found;
  }, NAMES.source);
  const isUnknown = (word: string) => /[a-z]{3,}/.test(word) && !data.has(word) && !LIST_WORDS.test(word);
  return [...new Set(shown.flatMap(([text, rest]) => (wordsOf(rest).some(isUnknown) ? [text] : [])))];
}

async function walk(visit: Visit, paths: string[]): Promise<void> {
  const { page, context } = visit;
  const wrong: string[] = [];
  const data = new Set<string>();
  const heard: Promise<void>[] = [];
  page.on("response", (response) => {
    if (!new URL(response.url()).pathname.startsWith("/api/panel/")) return;
    // A redirect has no body, one that a navigation cut off is not read, and a file is no JSON.
    const answer: Promise<unknown> = response.json().catch(() => null);
    heard.push(
      answer.then((json) => {
        for (const word of dataWords(json)) data.add(word);
      }),
    );
  });
  await context.addInitScript({ content: pseudo });
  for (const path of paths) {
    await page.goto(path);
    for (const viewport of [DESKTOP, PHONE]) {
      await page.setViewportSize(viewport);
      await settled(page);
      await Promise.all(heard);
      wrong.push(...(await uncollected(page, data)).map((text) => `${path}: ${text}`));
    }
    await visit.check().catch((error: Error) => wrong.push(error.message));
  }
  expect([...new Set(wrong)]).toEqual([]);
}

test(
  "a customer's pages show no word that is not collected, and no text that is a third longer breaks them",
  async () => {
    const visit = await seeded.panel.enter(seeded.jonas);
    await walk(visit, pathsOf("customer"));
    await visit.close();
  },
  ROLE_MS_MAX,
);

test(
  "nor do an admin's pages",
  async () => {
    const visit = await seeded.panel.enter(seeded.mara);
    await walk(visit, pathsOf("admin"));
    await visit.close();
  },
  ROLE_MS_MAX,
);

test(
  "nor do a reseller's pages",
  async () => {
    const visit = await seeded.panel.enter(seeded.panel.acme, { host: LUMEN_HOST });
    await walk(visit, pathsOf("reseller"));
    await visit.close();
  },
  ROLE_MS_MAX,
);

test("the sign-in page is in the browser's language, and a choice is kept", async () => {
  const visit = await seeded.panel.enter(null, { locale: "de-DE" });
  const { page } = visit;
  await page.goto("/sign-in");
  await settled(page);
  const choice = page.getByRole("combobox", { name: "Sprache" });
  expect(await choice.inputValue()).toBe("de");
  await page.getByRole("button", { name: "Anmelden", exact: true }).waitFor();
  await choice.selectOption("ar");
  await page.waitForFunction(() => document.documentElement.lang === "ar");
  await settled(page);
  expect(await page.evaluate(() => document.documentElement.dir)).toBe("rtl");
  await page.reload();
  await settled(page);
  expect(await page.evaluate(() => document.documentElement.lang)).toBe("ar");
  await visit.check();
  await visit.close();
});

/** A page where the service shows what it is, and one where a reseller does. */
const PUBLIC_PAGES = [
  [LUMEN_HOST, "/model-prices", "Modelle und Preise", "النماذج والأسعار"],
  [PANEL_HOST, "/status", "Status", "الحالة"],
] as const;

for (const [host, path, german, arabic] of PUBLIC_PAGES)
  test(
    `${path} has the choice of a language too, which is kept, turns the page and fits a phone`,
    async () => {
      const visit = await seeded.panel.enter(null, { host, locale: "de-DE" });
      const { page } = visit;
      const heading = (name: string) => page.getByRole("heading", { level: 1, name }).waitFor();
      await page.goto(path);
      await heading(german);
      const choice = page.getByRole("contentinfo").getByRole("combobox", { name: "Sprache" });
      expect(await choice.inputValue()).toBe("de");
      await visit.check();
      await choice.selectOption("ar");
      await heading(arabic);
      // Another public page, and a full load, are in the language that was chosen.
      await page.goto("/sign-in");
      await settled(page);
      expect(await page.evaluate(() => document.documentElement.lang)).toBe("ar");
      await page.goto(path);
      await heading(arabic);
      for (const viewport of [DESKTOP, PHONE]) {
        await page.setViewportSize(viewport);
        await visit.check();
      }
      expect(await page.evaluate(() => document.documentElement.dir)).toBe("rtl");
      expect(await page.getByRole("contentinfo").getByRole("combobox").inputValue()).toBe("ar");
      await visit.close();
    },
    ROLE_MS_MAX,
  );

/** Opens each page on a desktop and a phone, and checks it. */
async function lookAt(visit: Visit, paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    await visit.page.goto(path);
    for (const viewport of [DESKTOP, PHONE]) {
      await visit.page.setViewportSize(viewport);
      await visit.check();
    }
  }
}

test(
  "an admin's overview and lists fit in every language",
  async () => {
    for (const tag of LANGUAGE_TAGS) {
      const visit = await seeded.panel.enter(seeded.mara);
      await visit.context.addCookies([{ name: LANGUAGE_COOKIE, value: tag, url: seeded.panel.at(PANEL_HOST) }]);
      await lookAt(visit, ["/", "/admin/people", "/admin/models", "/admin/requests", "/admin/books"]);
      await visit.close();
    }
  },
  ROLE_MS_MAX,
);

test(
  "a person's choice holds on every device, in every language; no page scrolls sideways or breaks a rule of axe",
  async () => {
    for (const tag of LANGUAGE_TAGS) {
      const here = await seeded.panel.visit(seeded.jonas, "/settings");
      await here.page.locator("select").filter({ hasText: "English" }).selectOption(tag);
      await here.page.waitForFunction((wanted) => document.documentElement.lang === wanted, tag);
      await here.close();
      // Another browser, which knows only the session.
      const there = await seeded.panel.visit(seeded.jonas, "/");
      await there.page.waitForFunction((wanted) => document.documentElement.lang === wanted, tag);
      await lookAt(there, ["/", "/keys", "/billing", "/usage", "/settings", "/playground"]);
      expect(await there.page.evaluate(() => document.documentElement.dir)).toBe(LANGUAGES[tag].direction);
      await there.close();
    }
  },
  ROLE_MS_MAX,
);
