import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import sharp from "sharp";
import { NOTHING_CHARGED } from "../../src/panel/web/failures.ts";
import { openPanel, type Panel, PHONE, said, settled, textOf, until, type Visit } from "./browser.ts";

/** Conversations of the playground with one or two models, their images, their history and their code. Source: PAN-3, PAN-11, PAN-14, PAN-15. */

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel();
});
afterAll(() => panel.close());

const message = (page: Page) => page.getByRole("textbox", { name: "Message" });
const answers = (page: Page) => page.getByRole("article", { name: /^Answer of / });
const answerOf = (page: Page, model: string) => page.getByRole("article", { name: `Answer of ${model}` });

async function send(page: Page, text: string): Promise<void> {
  await message(page).fill(text);
  await message(page).press("Enter");
}

/** Waits until no answer streams and each has its receipt. */
async function allEnded(page: Page, count: number): Promise<void> {
  await until(`${count} answers to end`, async () => {
    const receipts = page.locator("article[aria-busy=false]").getByText(/\d in, \d+ out/);
    return (await receipts.count()) === count;
  });
}

/** A visit whose second model is vendor/chat-b; it costs a request each. */
async function compare(look: { viewport?: typeof PHONE } = {}): Promise<Visit & { accountId: number }> {
  const person = await panel.shop.customer();
  const visit = await panel.visit(person, "/playground", look);
  if (look.viewport) await visit.page.getByRole("button", { name: "chat-a", exact: true }).click();
  await visit.page.getByRole("button", { name: "Compare with another model" }).click();
  await choose(visit.page, "Second model", "vendor/chat-b");
  return { ...visit, accountId: person.accountId };
}

async function choose(page: Page, field: string, model: string): Promise<void> {
  await page.getByRole("combobox", { name: field }).click();
  await page.getByRole("option", { name: new RegExp(`^${model}`) }).click();
}

const png = (width: number, height: number) =>
  sharp({ create: { width, height, channels: 3, background: { r: 20, g: 120, b: 90 } } })
    .png()
    .toBuffer();
const file = (name: string, buffer: Buffer) => ({ name, mimeType: "image/png", buffer });
const attach = (page: Page, files: ReturnType<typeof file>[]) => page.locator("input[type=file]").setInputFiles(files);
const attached = (page: Page) => page.getByRole("list", { name: "Attached images" }).getByRole("listitem");

for (const [where, look] of [
  ["", {}],
  [" on a phone", { viewport: PHONE }],
] as const) {
  test(`two models answer one message side by side, each with its receipt and its own conversation${where}`, async () => {
    const { page, accountId, ...visit } = await compare(look);
    const { provider } = panel.shop;
    await send(page, "Tell me about tolls.");
    await allEnded(page, 2);
    for (const model of ["chat-a", "vendor/chat-b"])
      expect(await textOf(answerOf(page, model))).toMatch(/ out, .* 1 request, receipt Regenerate Code$/);
    const receipts = await answers(page)
      .getByRole("link", { name: "receipt" })
      .evaluateAll((links) => links.map((link) => link.getAttribute("href")));
    expect(new Set(receipts).size).toBe(2);
    expect(await panel.shop.counters(accountId)).toMatchObject({ usage: 2, units: 2, holds: 0 });
    await visit.check();

    // Each model continues what it said itself.
    const before = provider.callCount();
    await send(page, "And then?");
    await allEnded(page, 4);
    expect(provider.callCount()).toBe(before + 2);
    await visit.close();
  });
}

test("one of two answers is stopped alone: the other goes on to its end", async () => {
  const { page, accountId, ...visit } = await compare();
  const { provider } = panel.shop;
  visit.expectProblem(/^404 GET \/api\/panel\/receipts\//);
  provider.when(({ body }) => body.includes("Endless, please"), { chunkDelayMs: 40, tokens: 4_000 });
  await send(page, "Endless, please.");
  const [first, second] = [answerOf(page, "chat-a"), answerOf(page, "vendor/chat-b")];
  for (const answer of [first, second])
    await until("some of it to arrive", async () => (await textOf(answer)).length > 60);
  await page.getByRole("button", { name: "Stop chat-a" }).click();
  await first.getByText(/^Stopped\. Charged for what arrived, about \d+ tokens\.$/).waitFor();
  expect(await second.getAttribute("aria-busy")).toBe("true");
  await visit.check();
  await page.getByRole("button", { name: "Stop", exact: true }).last().click();
  await second.getByText(/^Stopped\. Charged/).waitFor();
  await until("both to be settled", async () => (await panel.shop.counters(accountId)).usage === 2);
  await visit.close();
});

test("one of two is refused: its reason stands beside the other's answer; both refused, the message comes back", async () => {
  const { shop } = panel;
  const person = await shop.customer({ dailyLimit: 1, days: 2 });
  const visit = await panel.visit(person, "/playground");
  const { page } = visit;
  visit.expectProblem(/^402 POST \/api\/panel\/ai\/chat$/);
  await page.getByRole("button", { name: "Compare with another model" }).click();
  await choose(page, "Second model", "vendor/chat-b");
  await send(page, "Only one of you.");
  await allEnded(page, 1);
  const refusal = answers(page).getByRole("alert");
  expect(await textOf(refusal)).toContain(NOTHING_CHARGED);
  expect(await answers(page).count()).toBe(2);
  expect(await shop.counters(person.accountId)).toMatchObject({ usage: 1, holds: 0 });
  await visit.check();

  await send(page, "And now?");
  const refusals = page.getByRole("alert").filter({ hasText: /^Today's/ });
  await until("one refusal beside the answer, and two above the composer", async () => (await refusals.count()) === 3);
  expect(await message(page).inputValue()).toBe("And now?");
  expect(await answers(page).count()).toBe(2);
  await visit.close();
});

test("Regenerate replaces the answer by a new one of the same request; refused, the old answer stays", async () => {
  const { shop } = panel;
  const person = await shop.customer({ dailyLimit: 2, days: 2 });
  const visit = await panel.visit(person, "/playground");
  const { page } = visit;
  shop.provider.next({ content: "The first answer." });
  await send(page, "Tell me about tolls.");
  await allEnded(page, 1);
  const first = shop.provider.lastCall()?.body;
  const again = page.getByRole("button", { name: "Regenerate" });
  shop.provider.next({ content: "The second answer." });
  await again.click();
  await answers(page).getByText("The second answer.").waitFor();
  await allEnded(page, 1);
  expect(shop.provider.lastCall()?.body).toEqual(first as string);
  expect(await textOf(answers(page))).not.toContain("The first answer.");
  expect(await shop.counters(person.accountId)).toMatchObject({ usage: 2 });

  visit.expectProblem(/^402 POST \/api\/panel\/ai\/chat$/);
  await again.click();
  await page
    .getByRole("alert")
    .filter({ hasText: /^Today's/ })
    .waitFor();
  expect(await textOf(answers(page))).toContain("The second answer.");
  await visit.check();
  await visit.close();
});

test("Edit takes a message back into its field, and Undo puts the conversation back", async () => {
  const visit = await panel.visit(await panel.shop.customer(), "/playground");
  const { page } = visit;
  await send(page, "First message.");
  await allEnded(page, 1);
  await send(page, "Second message.");
  await allEnded(page, 2);
  await page.getByRole("button", { name: "Edit this message" }).first().click();
  expect(await message(page).inputValue()).toBe("First message.");
  expect(await answers(page).count()).toBe(0);
  await page.getByRole("button", { name: "Undo" }).click();
  expect(await answers(page).count()).toBe(2);
  expect(await message(page).inputValue()).toBe("");

  await page.getByRole("button", { name: "Edit this message" }).last().click();
  await send(page, "Better message.");
  await allEnded(page, 2);
  const sent = JSON.stringify(panel.shop.provider.lastCall()?.body);
  expect(sent).toContain("First message.");
  expect(sent).toContain("Better message.");
  expect(sent).not.toContain("Second message.");
  await visit.check();
  await visit.close();
});

test("images are attached, pasted, shown and sent; the conversation's later messages send them too", async () => {
  const visit = await panel.visit(await panel.shop.customer(), "/playground");
  const { page } = visit;
  await choose(page, "Model", "vendor/chat-b");
  const image = await png(64, 48);
  await attach(page, [file("gate.png", image)]);
  await attached(page).getByText("gate.png").waitFor();
  await visit.check();
  // Pasted from the clipboard.
  await message(page).evaluate((field, base64) => {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const clipboardData = new DataTransfer();
    clipboardData.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
    field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
  }, image.toString("base64"));
  await attached(page).getByText("pasted.png").waitFor();
  await page.getByRole("button", { name: "Remove pasted.png" }).click();
  expect(await attached(page).count()).toBe(1);

  const asked = page.waitForRequest(/\/api\/panel\/ai\/chat$/);
  await send(page, "What is this?");
  expect((await asked).postDataJSON().messages).toEqual([
    {
      role: "user",
      content: [
        { type: "text", text: "What is this?" },
        { type: "image_url", image_url: { url: `data:image/png;base64,${image.toString("base64")}` } },
      ],
    },
  ]);
  await allEnded(page, 1);
  expect(
    await page.getByRole("img", { name: "gate.png" }).evaluate((it) => (it as HTMLImageElement).naturalWidth),
  ).toBe(64);
  await visit.check();

  // To the other endpoint, with the same image.
  await page.getByRole("combobox", { name: "Endpoint" }).selectOption("Responses");
  const next = page.waitForRequest(/\/api\/panel\/ai\/responses$/);
  await send(page, "And its colour?");
  expect((await next).postDataJSON().input[0].content[1].type).toBe("input_image");
  await allEnded(page, 2);

  // A model that reads no images cannot continue it.
  await choose(page, "Model", "chat-a");
  await said(page, "This conversation has images. chat-a does not read images. Choose a model for text and images.");
  await message(page).fill("And now?");
  expect(await page.getByRole("button", { name: "Send" }).getAttribute("aria-disabled")).toBe("true");
  await visit.close();
});

test("files that cannot be attached are refused, each with its reason", async () => {
  const visit = await panel.visit(await panel.shop.customer(), "/playground");
  const { page } = visit;
  const small = await png(8, 8);
  const heavy = Buffer.concat([small, Buffer.alloc(4 * 1024 * 1024)]);
  const refused = async (files: ReturnType<typeof file>[], reason: string) => {
    await attach(page, files);
    await page.getByRole("alert").getByText(reason).waitFor();
    await visit.check();
  };
  await refused([file("gate.png", small)], "chat-a does not read images. Choose a model for text and images.");
  await choose(page, "Model", "vendor/chat-b");
  await refused([file("notes.png", Buffer.from("%PDF-1.7"))], "notes.png is not a PNG, JPEG, WebP or GIF image.");
  await refused([file("empty.png", Buffer.alloc(0))], "empty.png is not a PNG, JPEG, WebP or GIF image.");
  await refused([file("torn.png", small.subarray(0, 20))], "torn.png is damaged.");
  await refused(
    [file("huge.png", Buffer.concat([small, Buffer.alloc(5 * 1024 * 1024)]))],
    "huge.png is larger than 5.0 MB.",
  );
  expect(await attached(page).count()).toBe(0);
  await refused(
    [1, 2, 3, 4].map((n) => file(`${n}.png`, heavy)),
    "The images of one conversation can have at most 12.0 MB together.",
  );
  expect(await attached(page).count()).toBe(2);
  await refused(
    [3, 4, 5].map((n) => file(`${n}.png`, small)),
    "A message can have at most 4 images.",
  );
  expect(await attached(page).count()).toBe(4);
  // The next thing that is typed clears the message.
  await message(page).fill("Hi");
  expect(await page.getByText("A message can have at most 4 images.").count()).toBe(0);
  await visit.close();
});

describe("history", () => {
  const row = (page: Page, title: string) =>
    page.getByRole("list", { name: "Conversations" }).getByRole("listitem").filter({ hasText: title });
  const openHistory = (page: Page) => page.getByRole("button", { name: "History" }).click();
  /** The databases of this browser that have anything in them. */
  const keptIn = (page: Page) =>
    page.evaluate(async () => JSON.stringify((await indexedDB.databases()).map(({ name }) => name)));

  /** Waits until this text is kept, with all answers of its conversation ended. */
  const kept = (page: Page, text: string) =>
    until(`"${text}" to be kept`, () =>
      page.evaluate(async (text) => {
        const done = <Value>(request: IDBRequest<Value>) =>
          new Promise<Value>((resolve) => {
            request.onsuccess = () => resolve(request.result);
          });
        const database = await done(indexedDB.open("kept-here"));
        const all = await done(database.transaction("bodies").objectStore("bodies").getAll());
        database.close();
        return all
          .map((each) => JSON.stringify(each))
          .some((each) => each.includes(text) && !each.includes('"end":null'));
      }, text),
    );

  test("conversations are listed, opened, renamed and removed; a reload keeps the current one", async () => {
    const visit = await panel.visit(await panel.shop.customer(), "/playground");
    const { page } = visit;
    await openHistory(page);
    await page.getByText("No conversations yet.").waitFor();
    await visit.check();
    await page.keyboard.press("Escape");
    await send(page, "The first conversation.");
    await allEnded(page, 1);
    await page.getByRole("button", { name: "New chat" }).click();
    await send(page, "The second conversation.");
    await allEnded(page, 1);
    await kept(page, "The second conversation.");
    await page.reload();
    await settled(page);
    await page.getByText("The second conversation.", { exact: true }).waitFor();

    await openHistory(page);
    await row(page, "The second conversation.").getByText("open now").waitFor();
    await visit.check();
    await row(page, "The first conversation.").getByRole("button").first().click();
    await page.locator("main").getByText("The first conversation.", { exact: true }).waitFor();
    await answers(page).getByRole("link", { name: "receipt" }).waitFor();

    await openHistory(page);
    await page.getByRole("button", { name: "Rename The first conversation." }).click();
    const name = page.getByRole("dialog").getByRole("textbox", { name: "Name" });
    await name.fill("  ");
    await name.press("Enter");
    await said(page, "Enter a name.");
    await name.fill("Tolls");
    await name.press("Enter");
    await row(page, "Tolls").waitFor();
    await page.getByRole("button", { name: "Remove The second conversation." }).click();
    await row(page, "The second conversation.").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Undo" }).click();
    await row(page, "The second conversation.").waitFor();
    await page.getByRole("button", { name: "Remove all" }).click();
    await page
      .getByRole("dialog", { name: "Remove all conversations?" })
      .getByRole("button", { name: "Remove all" })
      .click();
    await page.getByText("No conversations yet.").waitFor();
    await page.reload();
    await settled(page);
    expect(await answers(page).count()).toBe(0);
    await visit.close();
  });

  test("signing out deletes them, and another person on the same browser finds nothing, also after an ended session", async () => {
    const [ann, bob] = [await panel.shop.customer(), await panel.shop.customer()];
    const visit = await panel.visit(ann, "/playground");
    const { page } = visit;
    visit.expectProblem(/^401 GET \/api\/panel\/me$/);
    await send(page, "A secret of Ann.");
    await allEnded(page, 1);
    await until("it to be kept", async () => (await keptIn(page)) !== "[]");

    // Her session ends without a sign-out; Bob signs in.
    await visit.context.clearCookies();
    await visit.signIn(bob);
    await page.goto("/playground");
    await settled(page);
    await openHistory(page);
    await page.getByText("No conversations yet.").waitFor();
    expect(await page.getByText("A secret of Ann.").count()).toBe(0);
    await page.keyboard.press("Escape");

    await send(page, "A secret of Bob.");
    await allEnded(page, 1);
    await page.getByRole("button", { name: /^Account/ }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.waitForURL(/sign-in/);
    expect(await keptIn(page)).toBe("[]");
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
    await visit.close();
  });

  test("two tabs that continue one conversation lose nothing: the second's becomes a conversation of its own", async () => {
    const visit = await panel.visit(await panel.shop.customer(), "/playground");
    const { page } = visit;
    await send(page, "Shared beginning.");
    await allEnded(page, 1);
    const other = await visit.context.newPage();
    await other.goto("/playground");
    await settled(other);
    await openHistory(other);
    await row(other, "Shared beginning.").getByRole("button").first().click();
    await answers(other).getByRole("link", { name: "receipt" }).waitFor();
    await send(page, "From the first tab.");
    await allEnded(page, 2);
    await send(other, "From the second tab.");
    await allEnded(other, 2);
    await until("both to be kept", async () => {
      await other.getByRole("button", { name: "History" }).click();
      // The list is read when it is opened.
      await row(other, "Shared beginning.").first().waitFor();
      const count = await row(other, "Shared beginning.").count();
      await other.keyboard.press("Escape");
      return count === 2;
    });
    await visit.close();
  });

  /** Writes conversations into the browser's database, as an older version or the person might. */
  const plant = (page: Page, planted: { id: string; savedAtMs: number; chars: number; exchanges: unknown }[]) =>
    page.evaluate(async (planted) => {
      const database = await new Promise<IDBDatabase>((resolve) => {
        const opening = indexedDB.open("kept-here");
        opening.onsuccess = () => resolve(opening.result);
      });
      const transaction = database.transaction(["heads", "bodies"], "readwrite");
      for (const { exchanges, ...head } of planted) {
        transaction.objectStore("heads").put({ ...head, title: head.id, version: 1 });
        transaction.objectStore("bodies").put(exchanges, head.id);
      }
      await new Promise<void>((resolve) => {
        transaction.oncomplete = () => resolve();
      });
      database.close();
    }, planted);
  const NOTHING = { savedAtMs: 1, chars: 0, exchanges: [] as unknown };

  test("at most 100 are kept, and 60 million characters: the oldest are removed", async () => {
    const visit = await panel.visit(await panel.shop.customer(), "/playground");
    const { page } = visit;
    await send(page, "The newest.");
    await allEnded(page, 1);
    await kept(page, "The newest.");
    const many = Array.from({ length: 120 }, (_, i) => ({ ...NOTHING, id: `old ${i}.`, savedAtMs: 1_000 + i }));
    await plant(page, many);
    await send(page, "And again.");
    await allEnded(page, 2);
    await kept(page, "And again.");
    await openHistory(page);
    await row(page, "The newest.").waitFor();
    const rows = page.getByRole("list", { name: "Conversations" }).getByRole("listitem");
    expect(await rows.count()).toBe(100);
    expect(await row(page, "old 119.").count()).toBe(1);
    expect(await row(page, "old 20.").count()).toBe(0);
    await page.keyboard.press("Escape");

    await plant(page, [{ ...NOTHING, id: "huge.", savedAtMs: 2_000, chars: 60_000_000 }]);
    await send(page, "Once more.");
    await allEnded(page, 3);
    await kept(page, "Once more.");
    await openHistory(page);
    await row(page, "open now").waitFor();
    expect(await rows.count()).toBe(1);
    await visit.close();
  });

  test("a conversation of 100 messages is full; stored data that does not fit is left out", async () => {
    const visit = await panel.visit(await panel.shop.customer(), "/playground");
    const { page } = visit;
    await send(page, "Hello.");
    await allEnded(page, 1);
    await kept(page, "Hello.");
    const sent = { endpoint: "chat", model: "chat-a", system: "" };
    const exchange = {
      text: "Said.",
      images: [],
      answers: [{ sent, text: "Answered.", thoughts: "", end: "complete" }],
    };
    const wrong = [null, 7, { text: 7 }, { ...exchange, answers: [] }, { ...exchange, answers: [{ text: "x" }] }];
    const image = { name: "x", src: "javascript:alert(1)", bytes: 1 };
    await plant(page, [
      { ...NOTHING, id: "full.", exchanges: Array.from({ length: 100 }, () => exchange) },
      { ...NOTHING, id: "torn.", exchanges: [...wrong, { ...exchange, images: [image] }] },
      { ...NOTHING, id: "lost.", exchanges: "nothing" },
    ]);
    const open = async (title: string, count: number) => {
      await openHistory(page);
      await row(page, title).getByRole("button").first().click();
      await until(`${count} answers`, async () => (await answers(page).count()) === count);
    };
    await open("full.", 100);
    await said(page, "This conversation is full. Start a new one.");
    await open("torn.", 1);
    expect(await page.locator("main img").count()).toBe(0);
    await open("lost.", 0);
    await visit.check();
    await visit.close();
  });

  test("a browser without room for it says so; the conversation goes on", async () => {
    const visit = await panel.enter(await panel.shop.customer());
    const { page } = visit;
    await page.addInitScript(() => {
      IDBFactory.prototype.open = () => {
        throw new DOMException("No.", "SecurityError");
      };
    });
    await page.goto("/playground");
    await settled(page);
    await send(page, "Tell me about tolls.");
    await allEnded(page, 1);
    await openHistory(page);
    await page.getByText("This browser keeps no conversations. Its settings may forbid it.").waitFor();
    await visit.check();
    await visit.close();
  });
});

test("Code shows exactly the request that was sent, without the key", async () => {
  const visit = await panel.visit(await panel.shop.customer(), "/playground");
  const { page } = visit;
  await page.getByRole("textbox", { name: "Temperature" }).fill("0.5");
  await page.getByRole("textbox", { name: "System prompt" }).fill("It's short.");
  const asked = page.waitForRequest(/\/api\/panel\/ai\/chat$/);
  await send(page, 'Say "hi" to O\'Brien.\nTwice.');
  const { api_key_id: _, ...body } = (await asked).postDataJSON();
  await allEnded(page, 1);
  await page.getByRole("button", { name: "Code" }).click();
  const dialog = page.getByRole("dialog", { name: "Code of this request" });
  await dialog.getByRole("tabpanel").waitFor();
  await visit.check();
  await dialog.getByRole("button", { name: "Copy the curl example" }).click();
  const curl = await page.evaluate(() => navigator.clipboard.readText());
  expect(curl).toContain(`/v1/chat/completions`);
  expect(curl).toContain("Bearer $API_KEY");
  const sent = /-d '(.*)'$/s.exec(curl)?.[1]?.replaceAll("'\\''", "'") ?? "";
  expect(JSON.parse(sent)).toEqual(body);
  for (const language of ["Python", "JavaScript"]) {
    await dialog.getByRole("tab", { name: language }).click();
    await dialog.getByRole("tabpanel").getByText("0.5").waitFor();
  }
  await visit.check();
  await visit.close();
});
