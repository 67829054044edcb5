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
import { CHROMIUM } from "../../scripts/chromium.ts";
import { freePort } from "../../src/demo/free_port.ts";
import { openShop } from "../gateway/shop.ts";
import { signInTo } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";

/**
 * The panel in a real browser: a replica that serves the built panel, and Chromium, which resolves `*.localhost` to this machine
 * and treats it as a secure context. Errors, CSP violations, failed requests and requests to other hosts are recorded as they
 * happen. `check` throws them, with axe's violations and horizontal scrolling.
 *
 * Playwright's client and server talk to each other in this process, each message in a `setImmediate` of its own. A matcher that waits
 * for a promise (`expect(...).rejects`, `.resolves`, `toThrow` of an async function) runs Bun's event loop inside the call, so messages
 * that come during the wait overtake those that were queued before it. A response then arrives before its request, and the connection
 * is broken for the rest of the file. Tests here await the promise, and then expect; `house_rules.ts` holds that.
 */

export const PANEL_HOST = "panel.localhost";
export const ACME_HOST = "ai.acme.localhost";
export const DESKTOP = { width: 1280, height: 900 };
export const PHONE = { width: 375, height: 812 };

const QUIET = [
  "no-sandbox",
  "disable-gpu",
  "disable-background-networking",
  "disable-component-update",
  "disable-sync",
];
/** Each window would load two hidden pages for suggestions in the address bar: 1.5 s of a processor. */
const UNUSED_FEATURES = ["WebUIOmniboxPopup", "WebUIOmniboxAimPopup"];
/** What Playwright turns off. Chromium takes the last list of this name alone, so ours repeats it. */
const PLAYWRIGHT_OFF_FEATURES = [
  "AimEnabled",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsFirstBalancedModeAutoEnable",
  "HttpsUpgrades",
  "LensOverlay",
  "MediaRouter",
  "NetworkTimeServiceQuerying",
  "OptimizationHints",
  "PaintHolding",
  "PreconnectToSearch",
  "ThirdPartyStoragePartitioning",
];
const SWITCHES = [
  ...QUIET.map((name) => `--${name}`),
  // Without a window, letters would stand at whole pixels.
  "--font-render-hinting=none",
  `--disable-features=${[...PLAYWRIGHT_OFF_FEATURES, ...UNUSED_FEATURES].join(",")}`,
];
/** For an element to appear, and for a page to load. */
const WAIT_MS_MAX = 45_000;
const LAUNCH_MS_MAX = 30_000;
const PROBLEMS_MAX = 50;
const AXE_WORLD = "axe";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export type Panel = Awaited<ReturnType<typeof openPanel>>;
export type Visit = Awaited<ReturnType<Panel["visit"]>>;
type Look = Pick<
  BrowserContextOptions,
  | "viewport"
  | "colorScheme"
  | "reducedMotion"
  | "locale"
  | "timezoneId"
  | "hasTouch"
  | "extraHTTPHeaders"
  | "javaScriptEnabled"
>;

/**
 * Opens the shop, a reseller with a domain, and the browser. `env` is the replica's. Serves the build in PANEL_DIR if that is set;
 * otherwise the repository's, which is rebuilt if the sources have changed.
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
  const acme = await shop.world.addReseller(ACME_HOST);
  // The browser has a temporary profile, and ends when its pipe to this process closes.
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: SWITCHES,
    timeout: LAUNCH_MS_MAX,
  });
  /** A new browser context with an empty page, signed in as `person` without the form; null: not signed in. */
  async function enter(person: Person | null, { host = PANEL_HOST, ...look }: { host?: string } & Look = {}) {
    const visit = await openVisit(browser, at(host), look);
    /** Puts a new session into this context. */
    const signIn = async (somebody: Person) => {
      const { cookie } = await signInTo(shop, somebody, { host });
      const [name = "", value = ""] = cookie.split("=");
      await visit.context.addCookies([{ name, value, url: at(host), httpOnly: true, sameSite: "Lax" }]);
    };
    // The page asks who is signed in.
    if (person === null) visit.expectProblem(/^401 GET \/api\/panel\/me$/);
    else await signIn(person);
    return { ...visit, signIn };
  }

  return {
    shop,
    acme,
    /** The origin of a host, without a final slash. */
    at,
    enter,

    /** The same on a page that has loaded. */
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

/** One window with its own cookies. */
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
    /** Ignores a problem that the test provokes: `expectProblem(/^402 POST .*chat/)`. Call it before. */
    expectProblem: (pattern: RegExp) => void expected.push(pattern),

    /** Throws every problem of the page now, and of the visit so far. `only: "colours"` limits axe to colour rules. */
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
 * Waits until the page has loaded its data and fonts and nothing moves. Animations are finished immediately unless
 * `keepsMoving`.
 */
export async function settled(page: Page, { keepsMoving = false }: { keepsMoving?: boolean } = {}): Promise<void> {
  /** What the page still waits for, or "". */
  const lacks = (keepsMoving: boolean): string => {
    const moving = document
      .getAnimations()
      .filter(({ playState, effect }) => playState === "running" && effect?.getTiming().iterations !== Infinity);
    if (!keepsMoving) for (const motion of moving) motion.finish();
    if (moving.length > 0) return "something moves";
    // A streaming response is not waited for.
    if (document.querySelector("[role=status].animate-late, [aria-busy=true]:not(article)")) return "data is loading";
    if (document.fonts.status !== "loaded") return "fonts are loading";
    const tooWide = (chart: Element) => Math.abs(chart.clientWidth - (chart.parentElement?.clientWidth ?? 0)) > 1;
    if ([...document.querySelectorAll("svg[role=group]")].some(tooWide)) return "a chart is not as wide as its place";
    return document.querySelector("h1") === null ? "there is no h1" : "";
  };
  const ask = () =>
    page.evaluate(lacks, keepsMoving).catch((error: unknown) => {
      // A redirect, such as to the sign-in, can happen during this call.
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

/** Waits until `isSo` returns true. Throws Error with `what`. */
export async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const endsAt = performance.now() + WAIT_MS_MAX;
  while (!(await isSo())) {
    if (performance.now() > endsAt) throw new Error(`waited ${WAIT_MS_MAX} ms for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Waits until it is visible; returns its text. */
export async function textOf(locator: Locator): Promise<string> {
  await locator.waitFor();
  // biome-ignore lint/performance/useDomNodeTextContent: hidden text is left out.
  return (await locator.innerText()).replace(/\s+/g, " ").trim();
}

/** Waits for a text on the page. */
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
    // The console has only the status of a failed request; the response handler below names the request.
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
    // Aborted by the page or the user.
    if (why !== "net::ERR_ABORTED") problem(`failed: ${request.method()} ${request.url()} ${why}`);
  });
}

/** Names the innermost elements that are wider than the window. */
async function sidewaysScroll(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const room = document.documentElement.clientWidth;
    const width = document.scrollingElement?.scrollWidth ?? 0;
    // In dialogs too, except elements that the keyboard can reach and scroll.
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

/** Runs axe in an isolated world: the page's CSP does not apply to it, and the page does not see it. */
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
