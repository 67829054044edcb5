import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { NOTHING_CHARGED } from "../../src/panel/web/copy.ts";
import { openPanel, type Panel, said, settled, textOf, until } from "./browser.ts";

/** Trying a model in the panel. Source: IDE-1, PAN-3, PAN-11. */

const START_MS_MAX = 60_000;
const SUM = { nanoUsd: 1_000_000_000n };
/** What an answer must not bring along: markup, scripts, addresses that run, pictures that tell who reads. */
const HOSTILE = `# Hello <b>there</b>

<script>window.pwned = 1</script>
<img src="x" onerror="window.pwned = 2">
<iframe src="https://evil.example/"></iframe>

[run](javascript:window.pwned=3) [data](data:text/html,<script>window.pwned=4</script>) <a href="javascript:window.pwned=5">raw</a>
![spy](https://evil.example/p.png) [fine](https://example.com/a?b=1) [mail](mailto:a@example.com)

| a | b |
| - | - |
| \`<i>\` | **2** |

\`\`\`html
<script>window.pwned = 6</script>
\`\`\`
`;

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel();
}, START_MS_MAX);
afterAll(() => panel.close());

async function send(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.getByRole("textbox", { name: "Message" }).press("Enter");
}

const answers = (page: Page) => page.getByRole("article", { name: /^Answer of / });
/** Waits for the last answer to end, and for what it cost. */
async function ended(page: Page): Promise<string> {
  await page.locator("article[aria-busy=false]").last().getByRole("link", { name: "receipt" }).waitFor();
  await answers(page)
    .last()
    .getByText(/\d in, \d+ out/)
    .waitFor();
  return textOf(answers(page).last());
}

test("an answer is drawn as it comes, and says what it cost; its receipt is one click away", async () => {
  const { shop } = panel;
  const person = await shop.customer();
  const visit = await panel.visit(person, "/playground");
  const { page } = visit;
  await visit.check();
  shop.provider.next({ chunkDelayMs: 20, tokens: 60 });
  await send(page, "Tell me about tolls.\nIn two lines.");
  const answer = answers(page).last();
  const lengths = new Set<number>();
  await until("it to grow while it comes", async () => {
    if ((await answer.getAttribute("aria-busy")) === "true") lengths.add((await textOf(answer)).length);
    return lengths.size > 4;
  });
  const text = await ended(page);
  expect(text).toMatch(/^chat-a You asked: .*\. \d+ in, 60 out, \d.* m?s, 1 request, receipt$/);
  expect(await shop.counters(person.accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
  expect(await textOf(page.getByRole("list", { name: "Conversation" }))).toContain(
    "Tell me about tolls. In two lines.",
  );
  await visit.check();

  // Typed while an answer came, kept over a reload; so is the conversation.
  await page.getByRole("textbox", { name: "Message" }).fill("And then?");
  await page.reload();
  await settled(page);
  expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toBe("And then?");
  await answers(page).last().getByRole("link", { name: "receipt" }).click();
  const receipt = page.getByRole("dialog");
  await receipt.getByText(/60/).first().waitFor();
  await visit.check();
  await visit.close();
});

test("Stop stands where Send was: the provider is let go, and what had arrived is charged", async () => {
  const { shop } = panel;
  const person = await shop.customer();
  const visit = await panel.visit(person, "/playground");
  const { page } = visit;
  shop.provider.next({ chunkDelayMs: 40, tokens: 1_000 });
  await page.getByRole("textbox", { name: "Message" }).fill("Tell me everything.");
  const sendButton = page.getByRole("button", { name: "Send" });
  const before = await sendButton.boundingBox();
  await sendButton.click();
  await until("some of it to arrive", async () => (await textOf(answers(page).last())).length > 60);
  const stop = page.getByRole("button", { name: "Stop" });
  const after = await stop.boundingBox();
  expect([after?.x, after?.y, after?.width]).toEqual([before?.x, before?.y, before?.width]);
  await visit.check();
  await stop.click();
  const call = shop.provider.lastCall();
  expect((await shop.provider.waitForAborted(call?.id ?? 0)).chunksSent).toBeLessThan(1_000);
  const note = answers(page)
    .last()
    .getByText(/^Stopped\. Charged for what arrived, about \d+ tokens\.$/);
  await note.waitFor();
  await until("it to be settled", async () => (await shop.counters(person.accountId)).usage === 1);
  expect(await shop.counters(person.accountId)).toMatchObject({ units: 1, holds: 0, released: 0 });
  expect(await sendButton.evaluate((button) => button === document.activeElement)).toBe(true);
  await visit.check();
  await visit.close();
});

test("an answer that breaks off says so, keeps what came, and another can be asked for", async () => {
  const { shop } = panel;
  const person = await shop.customer();
  const visit = await panel.visit(person, "/playground");
  const { page } = visit;
  shop.provider.next({ errorEventAfterChunks: 5, tokens: 50 });
  await send(page, "Break, please.");
  const note = await textOf(
    answers(page)
      .last()
      .getByText(/^The answer broke off\. (?:Nothing|Charged)/),
  );
  // What it says is what the books say.
  expect(note.includes(NOTHING_CHARGED)).toBe((await shop.counters(person.accountId)).usage === 0);
  await visit.check();
  await send(page, "Once more.");
  expect(await ended(page)).toContain("1 request");
  await visit.close();
});

test("hostile Markdown stays text: no element of it, no address that runs, no picture that is fetched", async () => {
  const visit = await panel.visit(await panel.shop.customer(), "/playground");
  const { page } = visit;
  panel.shop.provider.next({ content: HOSTILE });
  await send(page, "<img src=x onerror=alert(1)>");
  await ended(page);
  const answer = answers(page).last();
  await answer.getByRole("table").waitFor();
  expect(await answer.locator("script, img, iframe, b").count()).toBe(0);
  const text = await textOf(answer);
  for (const kept of ["<script>window.pwned = 1</script>", '<img src="x"', "<iframe", "<b>there</b>", "<i>"]) {
    expect(text).toContain(kept);
  }
  const links = await answer.locator(".prose a").evaluateAll((all) => all.map((link) => link.getAttribute("href")));
  expect(links).toEqual(["https://evil.example/p.png", "https://example.com/a?b=1", "mailto:a@example.com"]);
  expect(await answer.locator(".prose a[rel~=noreferrer]").count()).toBe(links.length);
  expect(await page.evaluate(() => Reflect.get(window, "pwned"))).toBeUndefined();
  expect(await page.locator("ol img").count()).toBe(0);
  await visit.check();
  await visit.close();
});

test("a picture: counted by code points, drawn, charged once, to be downloaded", async () => {
  const { shop } = panel;
  const person = await shop.payer(SUM.nanoUsd);
  const visit = await panel.visit(person, "/playground");
  const { page } = visit;
  await page.getByRole("radio", { name: "Images" }).check({ force: true });
  await page.getByLabel("Prompt").fill("🌙🌙");
  await said(page, "2 of 4,000");
  await said(page, "Describe the image in at least 3 characters.");
  expect(await page.getByRole("button", { name: "Create image" }).isDisabled()).toBe(true);
  await page.getByLabel("Prompt").fill("A toll gate at dawn 🌙");
  await said(page, "Costs $0.04.");
  await visit.check();
  await page.getByRole("button", { name: "Create image" }).click();
  const picture = page.getByRole("list", { name: "Images" }).getByRole("img");
  await picture.waitFor();
  expect(await picture.getAttribute("src")).toMatch(/^(?:blob|data):/);
  expect(await picture.evaluate((image) => image instanceof HTMLImageElement && image.naturalWidth)).toBeGreaterThan(0);
  await page.getByText(/\$0\.04, receipt/).waitFor();
  expect(await shop.counters(person.accountId)).toMatchObject({ usage: 1, balance: 960_000_000 });
  const downloading = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download" }).click();
  expect((await downloading).suggestedFilename()).toMatch(/\.(?:png|jpe?g|webp)$/);
  await visit.check();
  await visit.close();
});

test("out of today's requests it says so, and when there are more, by the package's clock and the reader's", async () => {
  const { shop } = panel;
  const person = await shop.customer({ dailyLimit: 3, days: 5, timeZone: "Europe/Berlin" });
  for (let sent = 0; sent < 3; sent++) await shop.chat(person.secret);
  const visit = await panel.visit(person, "/playground", { timezoneId: "Asia/Tokyo" });
  const { page } = visit;
  visit.expectProblem(/^402 POST \/api\/panel\/ai\/chat$/);
  const calls = shop.provider.callCount();
  await send(page, "One more?");
  const alert = page.getByRole("alert").filter({ hasText: /^Today's.*Berlin/ });
  const [clock] = await shop.world.sql`
    select to_char(midnight at time zone 'Asia/Tokyo', 'HH24:MI') as tokyo, extract(epoch from midnight - now())::int as seconds
    from (select ((now() at time zone 'Europe/Berlin')::date + 1)::timestamp at time zone 'Europe/Berlin' as midnight) m`;
  const words =
    /^Today's 3 requests are used\. 3 more in (?:(\d+) h)? ?(?:(\d+) min)?(?: \d+ s)?, at 00:00 Berlin \((\d\d:\d\d) your time\)\./;
  const [, hours = "0", minutes = "0", tokyo] = words.exec(await textOf(alert)) ?? [];
  expect(tokyo).toBe(clock?.tokyo);
  expect(Math.abs(Number(hours) * 60 + Number(minutes) - Number(clock?.seconds) / 60)).toBeLessThan(2);
  expect(await textOf(alert)).toContain(NOTHING_CHARGED);
  expect(await textOf(alert)).toMatch(/Request [0-9a-f]{8}…[0-9a-f]{4}/);
  // The message is back, and no provider saw it.
  expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toBe("One more?");
  expect(shop.provider.callCount()).toBe(calls);
  await visit.check();
  await visit.close();
});

test("a balance that is too small says how much it takes and how much is available", async () => {
  const { shop } = panel;
  const person = await shop.payer(5_000n);
  const visit = await panel.visit(person, "/playground");
  const { page } = visit;
  visit.expectProblem(/^402 POST \/api\/panel\/ai\/chat$/);
  await send(page, "Tell me about tolls.");
  const alert = page.getByRole("alert").filter({ hasText: "This could cost" });
  expect(await textOf(alert)).toMatch(
    /^This could cost up to \$0\.\d+; \$0\.000005 is available\. Lower max tokens or ask for a top-up\. Nothing was charged\. /,
  );
  expect(await shop.counters(person.accountId)).toMatchObject({ usage: 0, balance: 5_000, holds: 0 });
  await visit.check();
  await shop.world.setBalance(person, SUM.nanoUsd);
  await page.getByRole("textbox", { name: "Message" }).press("Enter");
  expect(await ended(page)).toMatch(/ out, .*, \$0\.\d+, receipt$/);
  await visit.close();
});
