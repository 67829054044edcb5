import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Locator,
  type Page,
} from "playwright-core";
import { buildPanel, isPanelBuilt } from "../../scripts/build_panel.ts";
import { freePort } from "../../src/demo/free_port.ts";
import { openShop } from "../gateway/shop.ts";
import { signInTo } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";

/**
 * The panel in a real browser: a shop whose replica serves the built panel, and Chromium, which takes `*.localhost` for
 * this machine and for a place as safe as https. What a page must not do is written down while it does it: errors, broken
 * CSP, failed requests, strangers asked. `check` throws all of it, with what axe finds and a page wider than its window.
 */

export const PANEL_HOST = "panel.localhost";
export const ACME_HOST = "ai.acme.localhost";
export const DESKTOP = { width: 1280, height: 900 };
export const PHONE = { width: 375, height: 812 };

const CHROMIUM = "/usr/bin/chromium";
const QUIET = [
  "no-sandbox",
  "disable-gpu",
  "disable-background-networking",
  "disable-component-update",
  "disable-sync",
];
/** For what has to appear, and for a page to load. */
const WAIT_MS_MAX = 15_000;
const LAUNCH_MS_MAX = 30_000;
const PROBLEMS_MAX = 50;
const AXE_WORLD = "axe";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export type Panel = Awaited<ReturnType<typeof openPanel>>;
export type Visit = Awaited<ReturnType<Panel["visit"]>>;
type Look = Pick<
  BrowserContextOptions,
  "viewport" | "colorScheme" | "reducedMotion" | "timezoneId" | "hasTouch" | "extraHTTPHeaders" | "javaScriptEnabled"
>;

/**
 * Opens the shop, a reseller with a domain of its own, and the browser. `env` is the replica's. With PANEL_DIR in the
 * environment that build is served as it is; otherwise the repository's, built anew if the sources have changed.
 */
export async function openPanel({ env = {} }: { env?: Record<string, string> } = {}) {
  const { PANEL_DIR } = process.env;
  if (PANEL_DIR === undefined && !(await isPanelBuilt())) await buildPanel();
  const port = await freePort();
  const at = (host: string) => `http://${host}:${port}`;
  const shop = await openShop({
    redisUrl: "",
    env: {
      PORT: String(port),
      PANEL_URL: at(PANEL_HOST),
      BASE_URL: `${at("api.localhost")}/v1`,
      ALIAS_URL: "",
      BRAND_NAME: "Tollgate",
      ...(PANEL_DIR !== undefined && { PANEL_DIR }),
      ...env,
    },
  });
  const acme = await shop.world.addReseller();
  await shop.world
    .sql`insert into hosts (host, reseller_id, status) values (${ACME_HOST}, ${acme.accountId}, 'active')`;
  // A profile of its own, in a folder that goes with it; the browser ends when its pipe to this process closes.
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: QUIET.map((name) => `--${name}`),
    timeout: LAUNCH_MS_MAX,
  });
  /** A browser of its own with an empty page, signed in as `person` without the form; null stays outside. */
  async function enter(person: Person | null, { host = PANEL_HOST, ...look }: { host?: string } & Look = {}) {
    const visit = await openVisit(browser, at(host), look);
    /** Puts a new session into this browser. */
    const signIn = async (somebody: Person) => {
      const { cookie } = await signInTo(shop, somebody, { host });
      const [name = "", value = ""] = cookie.split("=");
      await visit.context.addCookies([{ name, value, url: at(host), httpOnly: true, sameSite: "Lax" }]);
    };
    // Whoever is not signed in is told so.
    if (person === null) visit.expectProblem(/^401 GET \/api\/panel\/me$/);
    else await signIn(person);
    return { ...visit, signIn };
  }

  return {
    shop,
    acme,
    /** Where a host's pages are, without a slash at the end. */
    at,
    enter,

    /** The same on a page that stands. */
    async visit(person: Person | null, path = "/", look: Parameters<typeof enter>[1] = {}) {
      const visit = await enter(person, look);
      await visit.page.goto(path);
      await settled(visit.page);
      return visit;
    },

    async close(): Promise<void> {
      await browser.close();
      await shop.close();
    },
  };
}

/** One window with cookies of its own. */
async function openVisit(browser: Browser, origin: string, look: Look) {
  const context = await browser.newContext({
    baseURL: origin,
    viewport: DESKTOP,
    locale: "en-GB",
    timezoneId: "UTC",
    permissions: ["clipboard-read", "clipboard-write"],
    ...look,
  });
  context.setDefaultTimeout(WAIT_MS_MAX);
  const problems: string[] = [];
  const expected: RegExp[] = [];
  await watch(context, origin, (problem) => {
    if (problems.length < PROBLEMS_MAX && !expected.some((pattern) => pattern.test(problem))) problems.push(problem);
  });
  const page = await context.newPage();
  return {
    context,
    page,
    problems,
    /** What a test provokes is no problem: `expectProblem(/^402 POST .*chat/)`. Say it before. */
    expectProblem: (pattern: RegExp) => void expected.push(pattern),

    /** Throws everything that is wrong with the page as it stands, and with its visit so far. `only`: of axe's rules those of colours. */
    async check({ only }: { only?: "colours" } = {}): Promise<void> {
      await settled(page);
      const found = [...problems, ...(await sidewaysScroll(page)), ...(await axeViolations(context, page, only))];
      problems.length = 0;
      if (found.length > 0) throw new Error(`${page.url()}:\n${found.join("\n")}`);
    },
    close: () => context.close(),
  };
}

/**
 * Waits until the page stands: its data is there, its fonts are, and nothing moves. What moves is taken to its end at once,
 * unless it is what the test is about.
 */
export async function settled(page: Page, { keepsMoving = false }: { keepsMoving?: boolean } = {}): Promise<void> {
  /** "" when it stands, or what it waits for. */
  const lacks = (keepsMoving: boolean): string => {
    const moving = document
      .getAnimations()
      .filter(({ playState, effect }) => playState === "running" && effect?.getTiming().iterations !== Infinity);
    if (!keepsMoving) for (const motion of moving) motion.finish();
    if (moving.length > 0) return "something moves";
    // An answer that is being written is not waited for.
    if (document.querySelector("[role=status].animate-late, [aria-busy=true]:not(article)")) return "data is loading";
    if (document.fonts.status !== "loaded") return "fonts are loading";
    return document.querySelector("h1") === null ? "there is no h1" : "";
  };
  const ask = () =>
    page.evaluate(lacks, keepsMoving).catch((error: unknown) => {
      // As when nobody is signed in: the page leads on, maybe while it is being asked.
      if (error instanceof Error && error.message.includes("because of a navigation"))
        return "it leads to another page";
      throw error;
    });
  const endsAt = performance.now() + WAIT_MS_MAX;
  for (let why = await ask(); why !== ""; why = await ask()) {
    if (performance.now() > endsAt) throw new Error(`${page.url()} does not come to rest: ${why}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Waits until `isSo` answers true. Throws with what was awaited. */
export async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const endsAt = performance.now() + WAIT_MS_MAX;
  while (!(await isSo())) {
    if (performance.now() > endsAt) throw new Error(`waited ${WAIT_MS_MAX} ms for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Waits for it to be seen; its text. */
export async function textOf(locator: Locator): Promise<string> {
  await locator.waitFor();
  // biome-ignore lint/performance/useDomNodeTextContent: what is hidden is not read.
  return (await locator.innerText()).replace(/\s+/g, " ").trim();
}

/** Waits for a notice, or any other words. */
export async function said(page: Page, words: string | RegExp): Promise<void> {
  await page
    .getByText(words, typeof words === "string" ? { exact: true } : {})
    .first()
    .waitFor();
}

async function watch(context: BrowserContext, origin: string, problem: (text: string) => void): Promise<void> {
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sample }) => {
      console.error(`CSP ${violatedDirective}: ${blockedURI} ${sample}`);
    });
  });
  context.on("console", (message) => {
    // Of an answer that is an error the console says the status alone; below stands which it was.
    const isStatus = message.text().startsWith("Failed to load resource");
    if (["error", "warning"].includes(message.type()) && !isStatus) problem(`console: ${message.text()}`);
  });
  context.on("weberror", (error) => problem(`uncaught: ${error.error().stack ?? error.error().message}`));
  context.on("response", (response) => {
    const { pathname } = new URL(response.url());
    if (response.status() >= 400) problem(`${response.status()} ${response.request().method()} ${pathname}`);
  });
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith("http") && url.origin !== origin) problem(`another host was asked: ${url.href}`);
  });
  context.on("requestfailed", (request) => {
    const why = request.failure()?.errorText ?? "";
    // What a page or a person took back.
    if (why !== "net::ERR_ABORTED") problem(`failed: ${request.method()} ${request.url()} ${why}`);
  });
}

/** Names the innermost elements that reach out of the window. */
async function sidewaysScroll(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const room = document.documentElement.clientWidth;
    const width = document.scrollingElement?.scrollWidth ?? 0;
    // Inside a dialog as well, but for what can be reached by keyboard to be scrolled.
    const inside = [...document.querySelectorAll("[role=dialog] *")].filter(
      (element) =>
        /auto|scroll/.test(getComputedStyle(element).overflowX) &&
        element.scrollWidth > element.clientWidth + 1 &&
        !element.matches("[tabindex], [role=tablist], textarea"),
    );
    if (inside.length > 0)
      return inside.map((element) => `scrolls sideways in a dialog: ${element.outerHTML.slice(0, 300)}`);
    if (width <= room) return [];
    const outside = [...document.querySelectorAll("body *")].filter(
      (element) => element.getBoundingClientRect().right > room + 1,
    );
    const innermost = outside.filter(
      (element) => !outside.some((other) => other !== element && element.contains(other)),
    );
    const named = innermost.slice(0, 3).map((element) => element.outerHTML.slice(0, 200));
    return [`scrolls sideways: ${width} px wide in ${room} px: ${named.join("; ")}`];
  });
}

const ALL_RULES = `{ resultTypes: ["violations"], rules: { "target-size": { enabled: true } } }`;
const COLOUR_RULES = `{ resultTypes: ["violations"], runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } }`;

type Finding = { id: string; help: string; nodes: { html: string; target: string[] }[] };

/** In a world of its own: the page's CSP holds for the page, and the page does not see the script. */
async function axeViolations(context: BrowserContext, page: Page, only?: "colours"): Promise<string[]> {
  const client = await context.newCDPSession(page);
  try {
    const { frameTree } = await client.send("Page.getFrameTree");
    const world = { frameId: frameTree.frame.id, worldName: AXE_WORLD };
    const { executionContextId: contextId } = await client.send("Page.createIsolatedWorld", world);
    const evaluate = async (expression: string) => {
      const how = { contextId, awaitPromise: true, returnByValue: true };
      const { result, exceptionDetails } = await client.send("Runtime.evaluate", { expression, ...how });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    };
    if ((await evaluate("typeof axe")) === "undefined") await evaluate(`${axe};undefined`);
    const rules = only === undefined ? ALL_RULES : COLOUR_RULES;
    const found: string = await evaluate(
      `axe.run(document, ${rules}).then(({ violations }) => JSON.stringify(violations))`,
    );
    const violations: Finding[] = JSON.parse(found);
    return violations.map(
      ({ id, help, nodes }) => `axe ${id}: ${help}: ${nodes.map(({ target, html }) => `${target} ${html}`).join("; ")}`,
    );
  } finally {
    await client.detach();
  }
}
