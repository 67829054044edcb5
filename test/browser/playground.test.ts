import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { imageUrl } from "../../src/gateway/image_addresses.ts";
import { NOTHING_CHARGED } from "../../src/panel/web/failures.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { openPanel, type Panel, said, settled, textOf, until } from "./browser.ts";

/** The playground in the browser. Source: PAN-3, PAN-11. */

let panel: Panel;

beforeAll(async () => {
  panel = await openPanel();
});
afterAll(() => panel.close());

/** A hostile response: markup, scripts, script URLs, images that reveal the reader. */
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

describe("the playground", () => {
  const SUM = { nanoUsd: 1_000_000_000n };
  /** Hours, at one token in 40 ms. */
  const ENDLESS_TOKENS = 200_000;

  async function send(page: Page, text: string): Promise<void> {
    await page.getByRole("textbox", { name: "Message" }).fill(text);
    await page.getByRole("textbox", { name: "Message" }).press("Enter");
  }

  const answers = (page: Page) => page.getByRole("article", { name: /^Answer of / });
  /** Waits for the last response to end and show its cost; returns its text. */
  async function ended(page: Page): Promise<string> {
    await page.locator("article[aria-busy=false]").last().getByRole("link", { name: "receipt" }).waitFor();
    await answers(page)
      .last()
      .getByText(/\d in, \d+ out/)
      .waitFor();
    return textOf(answers(page).last());
  }

  test("a response is shown as it streams, with its cost and a link to its receipt", async () => {
    const { shop } = panel;
    const person = await shop.customer();
    const visit = await panel.visit(person, "/playground");
    const { page } = visit;
    await visit.check();
    shop.provider.next({ chunkDelayMs: 100, tokens: 60 });
    // Noted in the page, which misses nothing of what it shows.
    await page.evaluate(() => {
      const lengths = new Set<number>();
      Reflect.set(window, "lengths", lengths);
      new MutationObserver(() => {
        const [answer] = document.querySelectorAll("article[aria-busy=true]");
        if (answer) lengths.add(answer.textContent?.length ?? 0);
      }).observe(document, { subtree: true, childList: true, characterData: true });
    });
    await send(page, "Tell me about tolls.\nIn two lines.");
    const text = await ended(page);
    expect(await page.evaluate(() => Reflect.get(window, "lengths").size)).toBeGreaterThan(4);
    expect(text).toMatch(/^chat-a You asked: .*\. \d+ in, 60 out, \d.* m?s, 1 request, receipt/);
    expect(await shop.counters(person.accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
    expect(await textOf(page.getByRole("list", { name: "Conversation" }))).toContain(
      "Tell me about tolls. In two lines.",
    );
    await visit.check();

    // A draft and the conversation survive a reload.
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

  test("a conversation goes to /responses where that is chosen, at the same cost", async () => {
    const { shop } = panel;
    const person = await shop.customer();
    const visit = await panel.visit(person, "/playground");
    const { page } = visit;
    await page.getByRole("combobox", { name: "Endpoint" }).selectOption("Responses");
    await page.getByRole("textbox", { name: "Max tokens" }).fill("60");
    const asked = page.waitForRequest(/\/api\/panel\/ai\/responses$/);
    shop.provider.next({ tokens: 60 });
    await send(page, "Tell me about tolls.");
    expect((await asked).postDataJSON()).toMatchObject({
      input: [{ role: "user", content: "Tell me about tolls." }],
      max_output_tokens: 60,
      stream: true,
    });
    expect(await ended(page)).toMatch(/^chat-a You asked: .*\. \d+ in, 60 out, \d.* m?s, 1 request, receipt/);
    expect(await shop.counters(person.accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
    await visit.check();
    // The choice survives a reload.
    await page.reload();
    await settled(page);
    expect(await page.getByRole("combobox", { name: "Endpoint" }).inputValue()).toBe("responses");
    await visit.close();
  });

  test("Stop replaces Send: the provider's stream is aborted, and what arrived is charged", async () => {
    const { shop } = panel;
    const person = await shop.customer();
    const visit = await panel.visit(person, "/playground");
    const { page } = visit;
    // The page asks for the receipt until the request is settled.
    visit.expectProblem(/^404 GET \/api\/panel\/receipts\//);
    // It ends only when it is stopped: the checks below take as long as the machine needs.
    shop.provider.next({ chunkDelayMs: 40, tokens: ENDLESS_TOKENS });
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
    expect((await shop.provider.waitForAborted(call?.id ?? 0)).chunksSent).toBeLessThan(ENDLESS_TOKENS);
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

  test("a response that breaks off says so and keeps its text; the next request works", async () => {
    const { shop } = panel;
    const person = await shop.customer();
    const visit = await panel.visit(person, "/playground");
    const { page } = visit;
    shop.provider.next({ errorEventAfterChunks: 5, tokens: 50 });
    await send(page, "Break, please.");
    const note = await textOf(
      answers(page)
        .last()
        .getByText(/^The answer was cut off\. (?:Nothing|Charged)/),
    );
    // The note agrees with the ledger.
    expect(note.includes(NOTHING_CHARGED)).toBe((await shop.counters(person.accountId)).usage === 0);
    await visit.check();
    await send(page, "Once more.");
    expect(await ended(page)).toContain("1 request");
    await visit.close();
  });

  test("hostile Markdown stays text: no elements, no script URLs, no images", async () => {
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

  test("a page may show an image by URL that the panel handed out", async () => {
    const { provider } = panel.shop;
    const ordered = await fetch(`${provider.baseUrl}/images/generations`, {
      method: "POST",
      headers: { authorization: `Bearer ${provider.apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "image", prompt: "A toll gate", size: "512x512", response_format: "url" }),
    });
    const { data } = (await ordered.json()) as { data: { url: string }[] };
    const visit = await panel.visit(await panel.shop.customer(), "/playground");
    const { page } = visit;
    const src = imageUrl(Buffer.from(TEST_SECRET_KEY, "base64"), new URL(page.url()).origin, {
      url: data[0]?.url ?? "",
      providerId: 1,
      keyId: 1,
      accountId: 1,
      tenantId: 0,
      expiresUnixMs: Date.now() + 60_000,
    });
    const width = await page.evaluate(
      (src) =>
        new Promise((resolve) => {
          const image = new Image();
          image.onload = () => resolve(image.naturalWidth);
          image.onerror = () => resolve(0);
          image.src = src;
        }),
      src,
    );
    expect(width).toBe(512);
    await visit.check();
    await visit.close();
  });

  test("an image: the prompt is counted in code points, the image is shown, charged once and downloadable", async () => {
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
    expect(await picture.evaluate((image) => image instanceof HTMLImageElement && image.naturalWidth)).toBeGreaterThan(
      0,
    );
    await page.getByText(/\$0\.04, receipt/).waitFor();
    expect(await shop.counters(person.accountId)).toMatchObject({ usage: 1, balance: 960_000_000 });
    const downloading = page.waitForEvent("download");
    await page.getByRole("link", { name: "Download" }).click();
    expect((await downloading).suggestedFilename()).toMatch(/\.(?:png|jpe?g|webp)$/);
    await visit.check();
    await visit.close();
  });

  test("a used-up daily quota shows when it resets, in the package's time zone and the reader's", async () => {
    const { shop } = panel;
    // Where it is day: the quota must not be reset before the test ends.
    const [place] = await shop.world.sql`
      select zone, split_part(zone, '/', 2) as city from unnest(array['Europe/Berlin', 'Pacific/Auckland']) as zone
      where extract(hour from now() at time zone zone) between 6 and 21`;
    const { zone, city } = place as { zone: string; city: string };
    const person = await shop.customer({ dailyLimit: 3, days: 5, timeZone: zone });
    for (let sent = 0; sent < 3; sent++) await shop.chat(person.secret);
    const visit = await panel.visit(person, "/playground", { timezoneId: "Asia/Tokyo" });
    const { page } = visit;
    visit.expectProblem(/^402 POST \/api\/panel\/ai\/chat$/);
    const calls = shop.provider.callCount();
    await send(page, "One more?");
    const alert = page.getByRole("alert").filter({ hasText: new RegExp(`^Today's.*${city}`) });
    const [clock] = await shop.world.sql`
      select to_char(midnight at time zone 'Asia/Tokyo', 'HH24:MI') as tokyo, floor(extract(epoch from midnight - now()))::int as seconds
      from (select ((now() at time zone ${zone})::date + 1)::timestamp at time zone ${zone} as midnight) m`;
    const words = new RegExp(
      `^Today's 3 requests are used\\. 3 more in (?:(\\d+) h)? ?(?:(\\d+) min)?, at 00:00 ${city} \\((\\d\\d:\\d\\d) your time\\)\\.`,
    );
    const [, hours = "0", minutes = "0", tokyo] = words.exec(await textOf(alert)) ?? [];
    expect(tokyo).toBe(clock?.tokyo);
    // It is shown for a moment a little earlier than the database's.
    const shownSeconds = (Number(hours) * 60 + Number(minutes)) * 60;
    expect(Math.abs(shownSeconds - Number(clock?.seconds))).toBeLessThan(15 * 60);
    expect(await textOf(alert)).toContain(NOTHING_CHARGED);
    expect(await textOf(alert)).toMatch(/Request [0-9a-f]{8}…[0-9a-f]{4}/);
    // The message is back in its field, and no provider was called.
    expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toBe("One more?");
    expect(shop.provider.callCount()).toBe(calls);
    await visit.check();
    await visit.close();
  });

  test("a balance that is too small shows the possible cost and what is available", async () => {
    const { shop } = panel;
    const person = await shop.payer(5_000n);
    const visit = await panel.visit(person, "/playground");
    const { page } = visit;
    visit.expectProblem(/^402 POST \/api\/panel\/ai\/chat$/);
    await send(page, "Tell me about tolls.");
    const alert = page.getByRole("alert").filter({ hasText: "This could cost" });
    expect(await textOf(alert)).toMatch(
      /^This could cost up to \$0\.\d+; \$0\.000005 is available\. Lower max tokens or top up the balance\. Nothing was charged\. /,
    );
    expect(await shop.counters(person.accountId)).toMatchObject({ usage: 0, balance: 5_000, holds: 0 });
    await visit.check();
    await shop.world.setBalance(person, SUM.nanoUsd);
    await page.getByRole("textbox", { name: "Message" }).press("Enter");
    expect(await ended(page)).toMatch(/ out, .*, \$0\.\d+, receipt/);
    await visit.close();
  });
});
