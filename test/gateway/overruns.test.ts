import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { openShop, PRICES, type Shop } from "./shop.ts";

/** Answers that cost more than was reserved, and which accounts reserve more afterwards. Source: MON-7, MON-8. */

setDefaultTimeout(60_000);
const CENT = 10_000_000n;
const INPUT_NANO = PRICES.inputMicroUsd / 1000;
const OUTPUT_NANO = PRICES.outputMicroUsd / 1000;
const CAP = 16;
/** As a small model of a large provider counted one image. */
const REPORTED = 36_835;
const IMAGE_TOKENS = 2048;
/** "What is this?": 13 bytes, one message, one image, the cap. */
const ASKED = "What is this?";
const honestBound = (images: number) => (13 + 16 + images * IMAGE_TOKENS) * INPUT_NANO + CAP * OUTPUT_NANO;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ replicas: 2 });
});
afterAll(() => closeBalanced(shop));

/** Each test has its own model, so that learned overheads do not affect other tests. */
async function newModel(id: string): Promise<string> {
  const { sql } = shop.world;
  await sql`
    insert into models (id, name, owned_by, modality, input_micro_usd, output_micro_usd, image_input_tokens)
    values (${id}, ${id}, 'tollgate', 'multimodal', ${PRICES.inputMicroUsd}, ${PRICES.outputMicroUsd}, ${IMAGE_TOKENS})`;
  await sql`insert into routes (model_id, provider_id, upstream_model) select ${id}, id, ${id} from providers where name = 'first'`;
  const { secret } = await shop.customer();
  for (const { origin } of shop.replicas)
    await until(async () => (await shop.call(`/v1/models/${id}`, { secret, origin })).status === 200);
  return id;
}

const IMAGE = { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } };
const pictures = (count: number) => [
  { role: "user", content: [{ type: "text", text: ASKED }, ...Array.from({ length: count }, () => IMAGE)] },
];
const ask = (secret: string, model: string, over: Record<string, unknown> = {}, origin = shop.origin) =>
  shop.chat(secret, { model, max_tokens: CAP, ...over }, { origin });
const used = (promptTokens: number, completionTokens = 1) => ({
  usage: { prompt_tokens: promptTokens, completion_tokens: completionTokens },
});
const overheadsOf = async (accountId: number) => {
  const rows = await shop.world.sql`
    select constant_tokens as constant, image_tokens as image, factor_permille as factor from route_overheads where account_id = ${accountId}`;
  return rows.map((row) => ({ ...row }));
};
const kept = (accountId: number) => until(async () => (await overheadsOf(accountId)).length > 0);

/** The hold of one request, while the provider is still working. */
async function heldFor(model: string, over: Record<string, unknown>, origin = shop.origin): Promise<number> {
  const { secret, accountId } = await shop.payer(1_000_000_000n);
  const calls = shop.provider.callCount();
  shop.provider.next({ delayMs: 100, ...used(1) });
  const asking = ask(secret, model, over, origin);
  await shop.provider.waitForCalls(calls + 1);
  const [row] = await shop.world
    .sql`select held_nano_usd::float8 as held from balances where account_id = ${accountId}`;
  expect((await asking).status).toBe(200);
  return row?.held as number;
}

describe("an account with one cent whose images cost eighteen times what was reserved", () => {
  for (const images of [1, 4])
    test(`causes no refusal of another account that can pay the normal bound, by a dozen requests with ${images} image_url each`, async () => {
      const model = await newModel(`images-${images}`);
      const attacker = await shop.payer(CENT * BigInt(images));
      for (let i = 0; i < 12; i++) {
        shop.provider.next(used(REPORTED * images));
        await ask(attacker.secret, model, { messages: pictures(images), stream: i % 3 === 0 });
      }
      await kept(attacker.accountId);
      shop.provider.reset();
      shop.provider.always(used(20));
      const statuses: number[] = [];
      for (let i = 0; i < 10; i++) {
        const neighbour = await shop.payer(BigInt(honestBound(images)));
        const origin = shop.replicas[i % 2]?.origin;
        statuses.push((await ask(neighbour.secret, model, { messages: pictures(images) }, origin)).status);
      }
      expect(statuses.filter((status) => status !== 200)).toEqual([]);
      shop.provider.reset();
    });

  test("reserves for its next image what the last one cost, so that no image reaches a provider unpaid", async () => {
    const model = await newModel("own-images");
    const attacker = await shop.payer(CENT);
    shop.provider.next(used(REPORTED));
    expectRefusal(await ask(attacker.secret, model, { messages: pictures(1) }), "insufficient_balance");
    await kept(attacker.accountId);
    const calls = shop.provider.callCount();
    for (const { origin } of shop.replicas) {
      await until(async () => {
        const before = shop.provider.callCount();
        shop.provider.next(used(20));
        const answer = await ask(attacker.secret, model, { messages: pictures(1) }, origin);
        if (shop.provider.callCount() > before) return false;
        expectRefusal(answer, "insufficient_balance");
        return true;
      });
    }
    shop.provider.reset();
    expect(calls).toBeGreaterThan(0);
    // A text of its own has no picture in it.
    shop.provider.next(used(20));
    expect((await ask(attacker.secret, model)).status).toBe(200);
  });

  test("any number of overruns by one reseller's customers changes nothing for others", async () => {
    const model = await newModel("one-reseller");
    const reseller = await shop.world.addReseller();
    for (let i = 0; i < 5; i++) {
      const person = await shop.world.addCustomer(reseller.accountId);
      await shop.world.setBalance(person, CENT);
      const { secret } = await shop.world.addKey(person, { mode: "payg" });
      shop.provider.next(used(REPORTED));
      await ask(secret, model, { messages: pictures(1) });
      await kept(person.accountId);
    }
    expect(await heldFor(model, { messages: pictures(1) })).toBe(honestBound(1));
  });
});

describe("an overrun that several payers meet applies to the route", () => {
  test('"hi" and 400 tokens that a provider adds: a constant, for everybody, once three have met it, on every replica', async () => {
    const model = await newModel("hidden-prompt");
    const hi = { messages: [{ role: "user", content: "hi" }] };
    const long = { messages: [{ role: "user", content: "word ".repeat(2_000) }] };
    const bound = (bytes: number) => (bytes + 16) * INPUT_NANO + CAP * OUTPUT_NANO;
    for (let i = 0; i < 3; i++) {
      expect(await heldFor(model, hi)).toBe(bound(2));
      const payer = await shop.payer(CENT);
      shop.provider.next(used(18 + 400, CAP));
      expect((await ask(payer.secret, model, hi)).status).toBe(200);
      await kept(payer.accountId);
      expect(await overheadsOf(payer.accountId)).toEqual([{ constant: 400, image: 0, factor: 1000 }]);
    }
    for (const { origin } of shop.replicas)
      await until(async () => (await heldFor(model, hi, origin)) === bound(2) + 400 * INPUT_NANO);
    expect(await heldFor(model, long)).toBe(bound(10_000) + 400 * INPUT_NANO);
    expect(await heldFor(model, { messages: pictures(2) })).toBe(honestBound(2) + 400 * INPUT_NANO);
  });

  test("is learned as a factor if the cap is long, of at most four for all accounts", async () => {
    const model = await newModel("no-cap");
    for (let i = 0; i < 3; i++) {
      const payer = await shop.payer(1_000_000_000n);
      shop.provider.next(used(18, 50_000));
      await ask(payer.secret, model, { max_tokens: 5_000 });
      await kept(payer.accountId);
      expect(await overheadsOf(payer.accountId)).toEqual([{ constant: 0, image: 0, factor: 10_000 }]);
    }
    const honest = 36 * INPUT_NANO + CAP * OUTPUT_NANO;
    await until(
      async () =>
        (await heldFor(model, { messages: [{ role: "user", content: "Tell me about tolls." }] })) === 4 * honest,
    );
  });

  test("is bounded in the overhead that an account reserves, whatever a provider reports", async () => {
    const model = await newModel("absurd");
    const payer = await shop.payer(CENT);
    shop.provider.next(used(2_000_000_000, 2_000_000_000));
    await ask(payer.secret, model, { messages: pictures(1) });
    await kept(payer.accountId);
    expect(await overheadsOf(payer.accountId)).toEqual([{ constant: 262_144, image: 262_144, factor: 1000 }]);
  });
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
    ["a part beside a picture", { messages: [{ role: "user", content: [{ ...IMAGE, text: x }] }] }],
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
