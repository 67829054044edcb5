import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import OpenAI, { AuthenticationError } from "openai";
import type { Page } from "playwright-core";
import { SECRET } from "../../src/panel/web/copy.ts";
import { PASSWORD } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";
import {
  ACME_HOST,
  DESKTOP,
  openPanel,
  PANEL_HOST,
  type Panel,
  PHONE,
  said,
  settled,
  textOf,
  until,
  type Visit,
} from "./browser.ts";

/** A customer in the browser: API keys, the API reference. Source: IDE-1, KEY-4, PAN-2. */

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel();
});
afterAll(() => panel.close());

describe("API keys", () => {
  const MESSAGES = [{ role: "user" as const, content: "Tell me about tolls." }];

  /** A customer with a package, on the page of keys. */
  async function openKeys(): Promise<{ visit: Visit; page: Page; person: Person }> {
    const { world } = panel.shop;
    const person = await world.addCustomer();
    await world.givePackage(person);
    const visit = await panel.visit(person, "/keys");
    return { visit, page: visit.page, person };
  }

  /** Creates a key with its form; returns the secret that the page shows. */
  async function create(page: Page, name: string, { isDoubleClick = false } = {}): Promise<string> {
    await page.getByRole("button", { name: "Create key" }).first().click();
    const form = page.getByRole("dialog", { name: "Create key" });
    await form.getByLabel("Name").fill(name);
    await form.getByRole("button", { name: "Create key" }).click({ clickCount: isDoubleClick ? 2 : 1 });
    const ready = page.getByRole("dialog", { name: `Key ${name} is ready` });
    return ready.getByLabel("API key").inputValue();
  }

  /** Copies the secret with the page's button, and closes the dialog. */
  async function takeSecret(page: Page): Promise<string> {
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Copy api key" }).click();
    await dialog.getByRole("button", { name: "Done" }).click();
    await dialog.waitFor({ state: "hidden" });
    return page.evaluate(() => navigator.clipboard.readText());
  }

  async function choose(page: Page, name: string, action: string): Promise<void> {
    await page
      .getByRole("button", { name: `Actions for ${name}` })
      .first()
      .click();
    await page.getByRole("menuitem", { name: action }).click();
  }

  const sdk = (apiKey: string) => new OpenAI({ apiKey, baseURL: `${panel.shop.origin}/v1`, maxRetries: 0 });
  const ask = async (client: OpenAI) => await client.chat.completions.create({ model: "chat-a", messages: MESSAGES });
  /** What a request throws; null if it is served. Not `.rejects`, which would reorder Playwright's messages: see `browser.ts`. */
  const refusalOf = (client: OpenAI): Promise<unknown> =>
    ask(client).then(
      () => null,
      (error: unknown) => error,
    );
  const row = (page: Page, name: string) => page.getByRole("row", { name: new RegExp(`^${name} `) });

  test("a key from the panel works in the SDK for chat and streams; a double click creates one key; the list shows its use", async () => {
    const { visit, page, person } = await openKeys();
    await visit.check();
    await page.getByRole("button", { name: "Create key" }).first().click();
    await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
    await said(page, "Enter a name for this key.");
    await visit.check();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").waitFor({ state: "hidden" });

    // A second submit of the same form, if it is sent at all, gets 409.
    visit.expectProblem(/^409 POST \/api\/panel\/keys$/);
    const shown = await create(page, "ci", { isDoubleClick: true });
    expect(await panel.shop.world.sql`select 1 from keys where account_id = ${person.accountId}`).toHaveLength(1);
    await visit.check();
    const tabs = page.getByRole("tablist", { name: "Example request" });
    await tabs.getByRole("tab", { name: "Python" }).click();
    await page.getByRole("tabpanel").getByText(shown, { exact: false }).waitFor();
    const secret = await takeSecret(page);
    expect(secret).toBe(shown);
    expect(await textOf(row(page, "ci"))).toMatch(/Never/);
    await visit.check();

    const client = sdk(secret);
    expect((await ask(client)).choices[0]?.message.content).toBeTruthy();
    let text = "";
    for await (const chunk of await client.chat.completions.create({
      model: "chat-a",
      messages: MESSAGES,
      stream: true,
    })) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    expect(text.length).toBeGreaterThan(10);

    await until("the list to say that it was used", async () => {
      await page.reload();
      await settled(page);
      return (await textOf(row(page, "ci"))).includes("just now 2 in 24 h");
    });
    // The secret is not on the page any more.
    expect(await page.content()).not.toContain(secret);
    await visit.close();
  });

  test("a secret that was not copied is not lost by Esc, a click outside, Close or a reload", async () => {
    const { visit, page } = await openKeys();
    const secret = await create(page, "precious");
    const dialog = page.getByRole("dialog");
    const isStill = async () => expect(await dialog.getByLabel("API key").inputValue()).toBe(secret);
    expect(await dialog.getByRole("button", { name: "Done" }).isDisabled()).toBe(true);

    await page.keyboard.press("Escape");
    await dialog.getByRole("alert").getByText(SECRET.closeEarly).waitFor();
    await isStill();
    await visit.check();
    await page.mouse.click(4, 4);
    await isStill();
    await dialog.getByRole("button", { name: "Close", exact: true }).click();
    await isStill();

    const warned = page.waitForEvent("dialog");
    void page.evaluate(() => location.reload()).catch(() => undefined);
    const warning = await warned;
    expect(warning.type()).toBe("beforeunload");
    await warning.dismiss();
    await isStill();

    await dialog.getByLabel(SECRET.stored).check();
    await dialog.getByRole("button", { name: "Done" }).click();
    await dialog.waitFor({ state: "hidden" });
    // A reload asks nothing now.
    await page.reload();
    await row(page, "precious").waitFor();
    await visit.check();
    await visit.close();
  });

  test("rotation with an overlap: both keys work, and the old one shows when it ends", async () => {
    const { visit, page } = await openKeys();
    await create(page, "web");
    const old = await takeSecret(page);
    await choose(page, "web", "Rotate");
    const question = page.getByRole("dialog", { name: "Rotate key web?" });
    expect(await question.getByRole("radio", { name: "24 hours" }).isChecked()).toBe(true);
    await visit.check();
    await question.getByRole("button", { name: "Rotate key" }).click();
    await page.getByRole("dialog", { name: "New key web: the old one works for 24 hours more" }).waitFor();
    const fresh = await takeSecret(page);
    expect(fresh).not.toBe(old);
    for (const secret of [old, fresh]) expect((await ask(sdk(secret))).object).toBe("chat.completion");
    await row(page, "web")
      .filter({ hasText: /Ends in (24 h|23 h \d+ min|1 day)/ })
      .waitFor();
    expect(await row(page, "web").count()).toBe(2);
    await visit.check();
    await visit.close();
  });

  test("a key's page: what it used, what is left of its limits, its base URL, and its models, which can be changed there", async () => {
    const { visit, page, person } = await openKeys();
    const key = await panel.shop.world.addKey(person);
    await page.goto("/keys");
    await row(page, "key").getByRole("link").first().click();
    await page.getByRole("heading", { level: 1, name: "Key key" }).waitFor();
    await page.getByText("No requests were charged.").waitFor();
    await page.getByText("It has no limits of its own.").waitFor();
    expect(await page.getByLabel("Base URL").inputValue()).toMatch(/\/v1$/);
    await visit.check();

    await ask(sdk(key.secret));
    await page.getByRole("button", { name: "Set limits" }).click();
    const limits = page.getByRole("dialog", { name: "Key key" });
    await limits.getByLabel("Requests a day").fill("10");
    await limits.getByLabel("Spending in total").fill("5");
    await limits.getByRole("button", { name: "Save" }).click();
    await page.getByRole("meter", { name: "Requests today" }).waitFor();
    await page.getByText(/^Resets in /).waitFor();
    expect(await page.getByRole("meter", { name: /^Spending in total since / }).getAttribute("aria-valuetext")).toBe(
      "$5.00 of $5.00 left",
    );
    await until("the chart to have the request", async () => {
      await page.reload();
      await settled(page);
      return (await page.getByText(/^1 request, /).count()) === 1;
    });
    await visit.check();

    await page.getByRole("button", { name: "Change models and hosts" }).click();
    const scope = page.getByRole("dialog", { name: "Models and hosts of key key" });
    await scope.getByLabel("All models, new ones too").uncheck();
    for (const box of await scope.getByRole("group", { name: "Models the key may use" }).getByRole("checkbox").all())
      if (await box.isChecked()) await box.uncheck();
    await scope.getByRole("button", { name: "Save" }).click();
    await said(page, "Choose a model, or allow all.");
    await visit.check();
    await scope.getByLabel("vendor/chat-b").check();
    await scope.getByRole("button", { name: "Save" }).click();
    await scope.waitFor({ state: "hidden" });
    expect(await refusalOf(sdk(key.secret))).toMatchObject({ status: 404, code: "model_not_found" });
    await page.getByRole("link", { name: "Requests", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Usage" }).waitFor();
    await page.goto("/keys/999999");
    await page.getByText("There is no such key, or it was revoked long ago.").waitFor();
    await visit.check();
    await visit.close();
  });

  test("a key that is switched off is refused immediately, and works again after Undo", async () => {
    const { visit, page } = await openKeys();
    await create(page, "laptop");
    const client = sdk(await takeSecret(page));
    await choose(page, "laptop", "Switch off");
    await said(page, "Key laptop is off. Requests with it get a 401 error.");
    expect(await refusalOf(client)).toBeInstanceOf(AuthenticationError);
    await visit.check();
    await page.getByRole("button", { name: "Undo" }).click();
    await row(page, "laptop").getByText("Active").waitFor();
    expect((await ask(client)).object).toBe("chat.completion");
    await visit.close();
  });

  test("revoking asks first, with the focus on the safe button; then the very next request of the SDK gets 401", async () => {
    const { visit, page } = await openKeys();
    await create(page, "old");
    const client = sdk(await takeSecret(page));
    await ask(client);
    await page.reload();
    await choose(page, "old", "Revoke");
    const question = page.getByRole("dialog", { name: "Revoke key old?" });
    await question.getByText("1 request used it in the last 24 h. They will get a 401 error immediately.").waitFor();
    expect(
      await question.getByRole("button", { name: "Keep key" }).evaluate((it) => it === document.activeElement),
    ).toBe(true);
    await visit.check();
    await page.keyboard.press("Enter");
    await question.waitFor({ state: "hidden" });
    expect((await ask(client)).object).toBe("chat.completion");

    await choose(page, "old", "Revoke");
    // Registered before the click, since the response may arrive before the next line.
    const revoked = page.waitForResponse("**/revoke");
    await question.getByRole("button", { name: "Revoke key" }).click();
    expect((await revoked).status()).toBe(200);
    expect(await refusalOf(client)).toBeInstanceOf(AuthenticationError);
    await said(page, "Key old is revoked.");
    await page.getByText("Revoked and expired keys (1)").click();
    await row(page, "old").getByText("Revoked").waitFor();
    await visit.check();
    await visit.close();
  });
});

describe("the API reference", () => {
  const LOOKS_MS_MAX = 120_000;
  const REFERENCE = "/docs/api";

  const groundOf = (page: Page) => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);

  test(
    "at 1280 and 375 px, light and dark: no axe violation, no error, no CSP violation, no horizontal scroll",
    async () => {
      const grounds = new Set<string>();
      for (const viewport of [DESKTOP, PHONE]) {
        for (const colorScheme of ["light", "dark"] as const) {
          const visit = await panel.enter(null, { viewport, colorScheme });
          await visit.page.goto(REFERENCE);
          await visit.check();
          grounds.add(await groundOf(visit.page));
          await visit.close();
        }
      }
      expect(grounds.size).toBe(2);
    },
    LOOKS_MS_MAX,
  );

  test("the menu, More on a phone and the search lead to it; its first link leads back", async () => {
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
      expect(new URL(page.url()).pathname).toBe(REFERENCE);
      await page.getByRole("link", { name: "Open the panel" }).click();
      await page.getByRole("heading", { level: 1, name: "Home" }).waitFor();
      await visit.check();
      await visit.close();
    }
  });

  test("the theme chosen in the panel applies here too", async () => {
    const visit = await panel.enter(null, { colorScheme: "light" });
    await visit.page.goto(REFERENCE);
    const light = await groundOf(visit.page);
    await visit.page.evaluate(() => localStorage.setItem("theme", "dark"));
    await visit.page.reload();
    expect(await groundOf(visit.page)).not.toBe(light);
    await visit.check();
    await visit.close();
  });

  test("without JavaScript it is complete and its links work", async () => {
    for (const host of [PANEL_HOST, ACME_HOST]) {
      const visit = await panel.enter(null, { host, javaScriptEnabled: false });
      const { page } = visit;
      await page.goto(REFERENCE);
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
});

test("a customer erases their own account: what is erased and kept is said, the password is asked for, and nobody comes in again", async () => {
  const { shop } = panel;
  const person = await shop.world.addCustomer();
  const rowOf = async () =>
    (await shop.world.sql`select email, name, status from accounts where id = ${person.accountId}`)[0];
  const email = String((await rowOf())?.email);
  const visit = await panel.visit(person, "/settings");
  const { page } = visit;
  await page.getByRole("button", { name: "Erase your account" }).click();
  const dialog = page.getByRole("dialog", { name: "Erase the account" });
  await dialog.getByText(/^Your name, address, keys, sessions and mails are deleted at once/).waitFor();
  await dialog.getByText(/^Kept for good: invoices/).waitFor();
  await dialog.getByLabel("E-mail address").fill(email);
  await visit.check();
  await dialog.getByRole("button", { name: "Erase for good" }).click();
  await dialog.getByText("Enter your current password.").waitFor();
  // The next page asks who is there with the session that has ended.
  visit.expectProblem(/^401 GET \/api\/panel\/me$/);
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await dialog.getByRole("button", { name: "Erase for good" }).click();
  await page.waitForURL((url) => url.pathname === "/sign-in");
  expect(await rowOf()).toMatchObject({ name: `Erased ${person.accountId}`, status: "suspended" });
  expect(await shop.world.unbalanced()).toEqual([]);
  await page.getByLabel("E-mail").fill(email);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  visit.expectProblem(/^401 POST \/api\/panel\/sign-in$/);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await said(page, "Wrong e-mail or password.");
  await visit.check();
  await visit.close();
});
