import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Locator, Page } from "playwright-core";
import { encrypt } from "../../src/platform/crypto.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { Person } from "../world.ts";
import { openPanel, type Panel, said, settled, textOf } from "./browser.ts";

/** What a provider takes, in the browser: its dialect, facts that are set, and a probe that proposes others. Source: DIA-1, DIA-2, DIA-13. */

const START_MS = 60_000;

let panel: Panel;
let admin: Person;
/** It takes what DeepSeek takes, and nobody has told the gateway. */
let deepseek: FakeProvider;

beforeAll(async () => {
  deepseek = await startFakeProvider({ dialect: "deepseek" });
  panel = await openPanel({ env: { PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${deepseek.port}` } });
  admin = await panel.shop.world.addAdmin();
}, START_MS);
afterAll(async () => {
  await panel.close();
  await deepseek.stop();
});

/** A provider of the catalog with a model, at the address of `deepseek`, with nothing set. Returns its id. */
async function addUntold(name: string, modelId: string): Promise<number> {
  const { world } = panel.shop;
  const key = encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), deepseek.apiKey);
  const id = await world.addProvider(name, deepseek.baseUrl, key);
  await world.addModels({ id: modelId, contextLength: 8192, defaultCapTokens: 100, routes: [{ provider: name }] });
  return id;
}

async function stored(name: string) {
  const [row] = await panel.shop.world.sql`select id, dialect, facts from providers where name = ${name}`;
  return { id: Number(row?.id), dialect: row?.dialect, facts: row?.facts };
}

const facts = (dialog: Locator) => dialog.locator("summary", { hasText: "What the provider takes" });
const optionsOf = (select: Locator) => select.locator("option").allInnerTexts();
const dialectIn = (page: Page) => page.getByRole("dialog").locator("dl").filter({ hasText: "Dialect" }).first();

test("a provider is added with a dialect and a fact of its own; wrong values are refused at their fields, and nothing is stored", async () => {
  const visit = await panel.visit(admin, "/admin/providers");
  const { page } = visit;
  await page.getByRole("button", { name: "Add provider" }).click();
  const dialog = page.getByRole("dialog", { name: "Add provider" });
  const dialect = dialog.getByLabel("Dialect");
  expect((await optionsOf(dialect))[0]).toBe("By its address: As most providers");
  await dialog.getByLabel("Base URL").fill("https://api.openai.com/v1");
  expect((await optionsOf(dialect))[0]).toBe("By its address: OpenAI");
  await facts(dialog).click();
  expect((await optionsOf(dialog.getByLabel("Output limit")))[0]).toBe("max_completion_tokens (by the dialect)");
  await dialog.getByLabel("Base URL").fill(deepseek.baseUrl);
  await dialog.getByLabel("Name", { exact: true }).fill("Deep <b>");
  await dialog.getByLabel("Key", { exact: true }).fill(deepseek.apiKey);
  await dialect.selectOption("deepseek");
  expect((await optionsOf(dialog.getByLabel("Content", { exact: true })))[0]).toBe("text (by the dialect)");
  const seconds = dialog.getByLabel("Silence before the first token");
  expect(await seconds.getAttribute("placeholder")).toBe("600");
  await visit.check();

  const save = dialog.getByRole("button", { name: "Add provider" });
  for (const wrong of ["0", "3601", "soon", "1.5"]) {
    await seconds.fill(wrong);
    await save.click();
    await dialog.getByText("A whole number from 1 to 3,600.").waitFor();
    expect(await seconds.getAttribute("aria-invalid")).toBe("true");
  }
  await visit.check();
  await seconds.fill("900");

  // Only the server knows what contradicts.
  visit.expectProblem(/^422 POST \/api\/panel\/admin\/providers$/);
  await dialog.getByLabel("Images in tool messages").selectOption("kept");
  await save.click();
  const alert = dialog.getByRole("alert").filter({ hasText: "contradict each other" });
  expect(await textOf(alert)).toBe(
    "contentForm text and toolImages kept contradict each other: an image needs a list. Set toolImages to moved.",
  );
  expect(await seconds.getAttribute("aria-invalid")).toBeNull();
  await visit.check();
  await dialog.getByLabel("Images in tool messages").selectOption("");

  const dropped = dialog.getByLabel("Parameters not sent");
  for (const [wrong, words] of [
    ["seed stream", /cannot drop stream/],
    ["se$ed", /A parameter is named as in documents/],
  ] as const) {
    await dropped.fill(wrong);
    await save.click();
    await dialog.getByText(words).waitFor();
    expect(await dropped.getAttribute("aria-invalid")).toBe("true");
  }
  expect(await stored("Deep <b>")).toEqual({ id: Number.NaN, dialect: undefined, facts: undefined });
  await dropped.fill("seed, logit_bias");
  await save.click();
  await said(page, "Deep <b> is added. Test it now.");
  expect(await stored("Deep <b>")).toMatchObject({
    dialect: "deepseek",
    facts: { firstTokenSeconds: 900, droppedParams: ["logit_bias", "seed"] },
  });
  // Its drawer is open.
  await page.getByRole("dialog", { name: "Deep <b>" }).waitFor();
  expect(await textOf(dialectIn(page))).toContain(
    "DeepSeek Silence before the first token: 900 Parameters not sent: logit_bias seed",
  );
  // Without a model there is nothing to probe with.
  expect(await page.getByRole("button", { name: "Probe now" }).count()).toBe(0);
  await visit.check();
  await visit.close();
});

test("a fact is overridden and reset; an empty list of parameters stays one through other changes", async () => {
  const id = await addUntold("Override", "override-model");
  const visit = await panel.visit(admin, `/admin/providers?provider=${id}`);
  const { page } = visit;
  const change = async (edit: (dialog: Locator) => Promise<unknown>) => {
    await page.getByRole("button", { name: "Change", exact: true }).last().click();
    const dialog = page.getByRole("dialog", { name: "Change Override" });
    await edit(dialog);
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.waitFor({ state: "hidden" });
  };
  await change(async (dialog) => {
    await dialog.getByLabel("Dialect").selectOption("openai");
    await facts(dialog).click();
    await dialog.getByLabel("Developer messages").selectOption("system");
    await dialog.getByLabel("Parameters not sent").fill("none");
    await visit.check();
  });
  const set = { dialect: "openai", facts: { developerRole: "system", droppedParams: [] } };
  expect(await stored("Override")).toMatchObject(set);
  await page.getByText("Developer messages:").waitFor();
  expect(await textOf(dialectIn(page))).toContain("OpenAI Developer messages: system Parameters not sent: none");

  await change(async (dialog) => {
    expect(await textOf(facts(dialog))).toBe("What the provider takes: 1 set here");
    expect(await dialog.getByLabel("Parameters not sent").inputValue()).toBe("none");
    await dialog.getByLabel("Name", { exact: true }).fill("Override");
  });
  expect(await stored("Override")).toMatchObject(set);

  await change(async (dialog) => {
    await facts(dialog).click();
    await dialog.getByLabel("Developer messages").selectOption("");
    await dialog.getByLabel("Parameters not sent").fill("");
  });
  expect(await stored("Override")).toEqual({ id, dialect: "openai", facts: {} });
  await visit.close();
});

test("a route has facts of its own, beside what its provider takes", async () => {
  const id = await addUntold("Routed", "routed-model");
  await panel.shop.world.sql`update providers set dialect = 'openai', facts = '{"usage":"none"}' where id = ${id}`;
  const visit = await panel.visit(admin, "/admin/models?model=routed-model");
  const { page } = visit;
  await page.getByRole("button", { name: "Actions for the route to Routed, up" }).click();
  await page.getByRole("menuitem", { name: "Change" }).click();
  const dialog = page.getByRole("dialog", { name: "Change the route to Routed" });
  expect(await textOf(facts(dialog))).toBe("What the provider takes: as the provider says");
  await facts(dialog).click();
  expect((await optionsOf(dialog.getByLabel("Usage of streams")))[0]).toBe("none (by the provider)");
  await dialog.getByLabel("Output limit").selectOption("max_tokens");
  await visit.check();
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "hidden" });
  await page.getByText("OpenAI, max_tokens, with facts of its own").waitFor();
  const [route] = await panel.shop.world.sql`select facts from routes where provider_id = ${id}`;
  expect(route?.facts).toEqual({ capField: "max_tokens" });
  await visit.check();
  await visit.close();
});

test("a probe proposes the facts of the provider, which are set; after that they hold", async () => {
  const id = await addUntold("Untold", "untold-model");
  const visit = await panel.visit(admin, `/admin/providers?provider=${id}`);
  const { page } = visit;
  const section = page.getByRole("region", { name: "What it takes" });
  await section.getByRole("button", { name: "Probe now" }).click();
  await section.getByText(/^\d+ requests: \d facts should change\.$/).waitFor();
  const proposal = await section.locator("dl > div").allInnerTexts();
  expect(proposal.map((line) => line.replace(/\s+/g, " "))).toEqual(
    expect.arrayContaining([
      "Content list → text",
      "Images in tool messages kept → moved",
      "Legacy functions kept → tools",
    ]),
  );
  // Nothing is changed before it is asked for.
  expect((await stored("Untold")).facts).toEqual({});
  await visit.check();
  await section.getByRole("button", { name: "Set these facts" }).click();
  await said(page, "What Untold takes is changed.");
  const { facts: found } = await stored("Untold");
  expect(found).toMatchObject({ contentForm: "text", toolImages: "moved", functions: "tools" });
  await page.getByText("Legacy functions:").waitFor();
  expect(await section.getByRole("button", { name: "Set these facts" }).count()).toBe(0);

  await section.getByRole("button", { name: "Probe now" }).click();
  await section.getByText(/^\d+ requests: its facts hold\.$/).waitFor();
  expect((await stored("Untold")).facts).toEqual(found);
  await visit.check();
  await visit.close();
});

test("a probe says what it could not find out, and why it failed; neither changes anything", async () => {
  const id = await addUntold("Half", "half-model");
  await panel.shop.world.sql`update providers set dialect = 'deepseek' where id = ${id}`;
  deepseek.when(({ body }) => body.includes('"developer"') || body.includes('"system"'), { status: 400 });
  const visit = await panel.visit(admin, `/admin/providers?provider=${id}`);
  const { page } = visit;
  const section = page.getByRole("region", { name: "What it takes" });
  const probe = section.getByRole("button", { name: "Probe now" });
  await probe.click();
  await section.getByText(/^\d+ requests: nothing should change\.$/).waitFor();
  await said(
    page,
    "It refused every form of these, so nothing is proposed for them: Developer messages, System messages in a row.",
  );
  expect(await section.getByRole("button", { name: "Set these facts" }).count()).toBe(0);
  await settled(page);
  await visit.check();

  deepseek.when(({ path }) => path === "/v1/chat/completions", {
    status: 402,
    body: JSON.stringify({ error: { message: "Insufficient Balance" } }),
  });
  await probe.click();
  await section.getByText("It answered with status 402: Insufficient Balance").waitFor();
  expect(await section.getByText("nothing should change").count()).toBe(0);
  await visit.check();

  // An image would cost, so a provider of images alone is not probed.
  await panel.shop.world.sql`update models set modality = 'image' where id = 'half-model'`;
  visit.expectProblem(/^422 POST \/api\/panel\/admin\/providers\/\d+\/test$/);
  await probe.click();
  await section.getByText("Give a model a route to Half first: its facts are found with that model.").waitFor();
  expect((await stored("Half")).facts).toEqual({});
  await visit.check();
  await visit.close();
});
