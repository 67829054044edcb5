import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI, { AuthenticationError } from "openai";
import type { Page } from "playwright-core";
import { SECRET } from "../../src/panel/web/copy.ts";
import type { Person } from "../world.ts";
import { openPanel, type Panel, said, settled, textOf, until, type Visit } from "./browser.ts";

/** A key from its making to its end. Source: KEY-4, PAN-2. */

const START_MS_MAX = 60_000;
/** A key that is gone is gone: the answer to its owner's next request. */
const REVOKED_MS_MAX = 1_000;
const MESSAGES = [{ role: "user" as const, content: "Tell me about tolls." }];

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel();
}, START_MS_MAX);
afterAll(() => panel.close());

/** A customer with a package, on the page of keys. */
async function openKeys(): Promise<{ visit: Visit; page: Page; person: Person }> {
  const { world } = panel.shop;
  const person = await world.addCustomer();
  await world.givePackage(person);
  const visit = await panel.visit(person, "/keys");
  return { visit, page: visit.page, person };
}

/** Creates a key with its form. Its secret stands on the page then. */
async function create(page: Page, name: string): Promise<string> {
  await page.getByRole("button", { name: "Create key" }).first().click();
  const form = page.getByRole("dialog", { name: "Create key" });
  await form.getByLabel("Name").fill(name);
  await form.getByRole("button", { name: "Create key" }).click();
  const ready = page.getByRole("dialog", { name: `Key ${name} is ready` });
  return ready.getByLabel("API key").inputValue();
}

/** Copies the secret as a person would, and closes. */
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
const row = (page: Page, name: string) => page.getByRole("row", { name: new RegExp(`^${name} `) });

test("a key made in the panel works in the SDK as it was copied, for chat and stream; the list then says it was used", async () => {
  const { visit, page } = await openKeys();
  await visit.check();
  await page.getByRole("button", { name: "Create key" }).first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
  await said(page, "Enter a name for this key.");
  await visit.check();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").waitFor({ state: "hidden" });

  const shown = await create(page, "ci");
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
  // The secret is nowhere any more.
  expect(await page.content()).not.toContain(secret);
  await visit.close();
});

test("a secret that was not copied cannot be lost by Esc, a click outside, the X or a reload", async () => {
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
  // Nothing is asked any more.
  await page.reload();
  await row(page, "precious").waitFor();
  await visit.check();
  await visit.close();
});

test("a double click on Create makes one key, and shows its secret", async () => {
  const { visit, page, person } = await openKeys();
  // The second press of the same form is known by it, where it gets out at all.
  visit.expectProblem(/^409 POST \/api\/panel\/keys$/);
  await page.getByRole("button", { name: "Create key" }).first().click();
  const form = page.getByRole("dialog", { name: "Create key" });
  await form.getByLabel("Name").fill("twice");
  await form.getByRole("button", { name: "Create key" }).dblclick();
  await page.getByRole("dialog", { name: "Key twice is ready" }).waitFor();
  const secret = await takeSecret(page);
  expect((await panel.shop.chat(secret)).status).toBe(200);
  const made = await panel.shop.world
    .sql`select count(*)::int as count from keys where account_id = ${person.accountId}`;
  expect(made[0]?.count).toBe(1);
  await visit.check();
  await visit.close();
});

test("rotated with an overlap both keys work, and the old one says when it ends", async () => {
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

test("switched off it is refused at once, and works again when that is undone", async () => {
  const { visit, page } = await openKeys();
  await create(page, "laptop");
  const client = sdk(await takeSecret(page));
  await choose(page, "laptop", "Switch off");
  await said(page, "Key laptop is off. Requests with it get 401.");
  await expect(ask(client)).rejects.toBeInstanceOf(AuthenticationError);
  await visit.check();
  await page.getByRole("button", { name: "Undo" }).click();
  await row(page, "laptop").getByText("Active").waitFor();
  expect((await ask(client)).object).toBe("chat.completion");
  await visit.close();
});

test("revoking asks first, on the safe button; then the SDK gets 401 within a second", async () => {
  const { visit, page } = await openKeys();
  await create(page, "old");
  const client = sdk(await takeSecret(page));
  await ask(client);
  await page.reload();
  await choose(page, "old", "Revoke");
  const question = page.getByRole("dialog", { name: "Revoke key old?" });
  await question.getByText("1 request used it in the last 24 h. They will get 401 immediately.").waitFor();
  expect(await question.getByRole("button", { name: "Keep key" }).evaluate((it) => it === document.activeElement)).toBe(
    true,
  );
  await visit.check();
  await page.keyboard.press("Enter");
  await question.waitFor({ state: "hidden" });
  expect((await ask(client)).object).toBe("chat.completion");

  await choose(page, "old", "Revoke");
  // Waited for from before the click: the answer may be there before the next line runs.
  const revoked = page.waitForResponse("**/revoke");
  await question.getByRole("button", { name: "Revoke key" }).click();
  expect((await revoked).status()).toBe(200);
  const at = performance.now();
  await expect(ask(client)).rejects.toBeInstanceOf(AuthenticationError);
  expect(performance.now() - at).toBeLessThan(REVOKED_MS_MAX);
  await said(page, "Key old is revoked.");
  await page.getByText("Revoked and expired keys (1)").click();
  await row(page, "old").getByText("Revoked").waitFor();
  await visit.check();
  await visit.close();
});
