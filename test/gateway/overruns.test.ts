import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { pngUrl } from "./image_urls.ts";
import { openShop, PRICES, type Shop } from "./shop.ts";

/** What is reserved for images from the first request on, and answers that cost more all the same. Source: MON-3, MON-7, MON-8. */
const CENT = 10_000_000n;
const INPUT_NANO = PRICES.inputMicroUsd / 1000;
const OUTPUT_NANO = PRICES.outputMicroUsd / 1000;
const CAP = 16;
/** As a small model of a large provider counts an image of six tiles: 2,833 and 5,667 for each. */
const REPORTED = 36_835;
/** "What is this?": 13 bytes, one message, the images, the cap. */
const ASKED = "What is this?";
const heldWith = (imageTokens: number) => (13 + 16 + imageTokens) * INPUT_NANO + CAP * OUTPUT_NANO;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ replicas: 2 });
});
afterAll(() => closeBalanced(shop));

const MODEL = "vendor/chat-b";
const imageOf = (url: string) => ({ type: "image_url", image_url: { url } });
const SIX_TILES = imageOf(pngUrl(1_536, 1_024));
const ELSEWHERE = imageOf("https://pictures.example/large.png");
const asking = (...images: object[]) => ({
  messages: [{ role: "user", content: [{ type: "text", text: ASKED }, ...images] }],
});
const ask = (secret: string, over: Record<string, unknown> = {}, origin = shop.origin) =>
  shop.chat(secret, { model: MODEL, max_tokens: CAP, ...over }, { origin });
const used = (promptTokens: number, completionTokens = 1) => ({
  usage: { prompt_tokens: promptTokens, completion_tokens: completionTokens },
});
const receiptOf = async (accountId: number) => {
  const [row] = await shop.world.sql`
    select held_nano_usd::float8 as held, charged_nano_usd::float8 as charged, shortfall_nano_usd::float8 as shortfall
    from receipts where account_id = ${accountId} order by request_id desc limit 1`;
  return { ...row };
};

describe("an image that costs 36,835 tokens", () => {
  const charge = (13 + REPORTED) * INPUT_NANO + OUTPUT_NANO;
  for (const stream of [false, true])
    test(`is reserved for before the first request${stream ? ", of a stream" : ""}: an account with a cent gets 402, and no provider is called`, async () => {
      const { secret } = await shop.payer(CENT);
      const calls = shop.provider.callCount();
      for (const image of [SIX_TILES, ELSEWHERE])
        for (const { origin } of shop.replicas)
          expectRefusal(await ask(secret, { ...asking(image), stream }, origin), "insufficient_balance");
      expect(shop.provider.callCount()).toBe(calls);
    });

  test("is covered by what is reserved: for its size if the data has it, and otherwise for the most", async () => {
    for (const [image, imageTokens] of [
      [SIX_TILES, REPORTED],
      [ELSEWHERE, 50_000 + 35],
    ] as const) {
      const { secret, accountId } = await shop.payer(CENT * 100n);
      shop.provider.next(used(13 + REPORTED));
      expect((await ask(secret, asking(image))).status).toBe(200);
      expect(await receiptOf(accountId)).toEqual({ held: heldWith(imageTokens), charged: charge, shortfall: 0 });
    }
  });

  test("20 at once, of an account that can pay for three: three reach the provider, and all are paid", async () => {
    const held = heldWith(REPORTED);
    const { secret, accountId } = await shop.payer(BigInt(3 * held));
    const calls = shop.provider.callCount();
    shop.provider.always(used(13 + REPORTED));
    const statuses = await Promise.all(
      Array.from({ length: 20 }, async (_, i) => {
        return (await ask(secret, asking(SIX_TILES), shop.replicas[i % 2]?.origin)).status;
      }),
    );
    expect(statuses.filter((status) => status === 200)).toHaveLength(3);
    expect(shop.provider.callCount() - calls).toBe(3);
    shop.provider.reset();
    expect(await shop.counters(accountId)).toMatchObject({ usage: 3, holds: 0, balance: 3 * (held - charge) });
  });
});

test("a provider that reports more than any bound changes nothing for later requests, of its account or of others", async () => {
  const { secret, accountId } = await shop.payer(CENT * 1_000n);
  for (const tokens of [2_000_000, 200, 20]) {
    shop.provider.next(used(tokens));
    expect((await ask(secret)).status).toBe(200);
    expect((await receiptOf(accountId)).held).toBe(36 * INPUT_NANO + CAP * OUTPUT_NANO);
  }
});

test("an admin raises a bound: it applies to the next request on every replica", async () => {
  const { sql } = shop.world;
  await sql`update models set request_tokens = 408 where id = 'chat-two-routes'`;
  const { secret, accountId } = await shop.payer(CENT * 100n);
  for (const { origin } of shop.replicas)
    await until(async () => {
      shop.provider.next(used(20 + 8 + 408));
      expect((await ask(secret, { model: "chat-two-routes" }, origin)).status).toBe(200);
      return (await receiptOf(accountId)).held === (20 + 8 + 408) * INPUT_NANO + CAP * OUTPUT_NANO;
    });
});

test("what answers used of what was reserved is counted, for the model's page", async () => {
  const read = async () => {
    const rows = await shop.world.sql`
      select part, sum(requests)::int as requests, sum(overruns)::int as overruns, max(most_permille) as most
      from bound_uses where model_id = ${MODEL} group by part order by part`;
    return rows.map((row) => ({ ...row }));
  };
  // Each replica writes every few seconds. Of the 36 tokens of a plain request, 20 are text.
  const ofText = { part: "text", requests: 3, overruns: 2, most: Math.ceil((2_000_000 * 1_000) / 36) };
  await until(async () =>
    Bun.deepEquals(await read(), [{ ...(await read())[0], part: "images", requests: 5 }, ofText]),
  );
  expect((await read())[0]).toMatchObject({ part: "images", overruns: 0 });
});

describe("a megabyte that is sent on is reserved for", () => {
  const x = "x ".repeat(550_000);
  const toolCall = (args: string) => ({
    role: "assistant",
    content: null,
    tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: args } }],
  });
  const PLACES: [string, Record<string, unknown>][] = [
    ["a tool's description", { tools: [{ type: "function", function: { name: "f", description: x } }] }],
    ["a field of a message", { messages: [{ role: "user", content: "hi", name: "n", documents: x }] }],
    ["a part beside a picture", { messages: [{ role: "user", content: [{ ...ELSEWHERE, text: x }] }] }],
    ["a stop sequence", { stop: [x] }],
    ["a call's arguments", { messages: [toolCall(x), { role: "user", content: "hi" }] }],
  ];
  for (const [place, over] of PLACES)
    test(`in ${place}: an account with one cent is refused without a provider call, unless the megabyte is dropped`, async () => {
      const { secret } = await shop.payer(CENT);
      const calls = shop.provider.callCount();
      const answer = await shop.chat(secret, { max_tokens: CAP, ...over });
      if (answer.status === 402) {
        expectRefusal(answer, "insufficient_balance");
        expect(shop.provider.callCount()).toBe(calls);
      } else {
        expect(answer.status).toBe(200);
        expect(shop.provider.lastCall()?.body.length).toBeLessThan(1_000);
      }
    });
});
