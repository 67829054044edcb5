import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import OpenAI, { AuthenticationError } from "openai";
import type { Page } from "playwright-core";
import { imageUrl } from "../../src/gateway/image_addresses.ts";
import { NOTHING_CHARGED, SECRET } from "../../src/panel/web/copy.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
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

/** A customer in the browser: API keys, the playground, the API reference. Source: IDE-1, KEY-4, PAN-2, PAN-3, PAN-11. */

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
    expect(text).toMatch(/^chat-a You asked: .*\. \d+ in, 60 out, \d.* m?s, 1 request, receipt$/);
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
    expect(await ended(page)).toMatch(/^chat-a You asked: .*\. \d+ in, 60 out, \d.* m?s, 1 request, receipt$/);
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
    expect(await ended(page)).toMatch(/ out, .*, \$0\.\d+, receipt$/);
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
