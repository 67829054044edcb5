import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { listLosses } from "../../src/accounts/losses_store.ts";
import type { Db } from "../../src/platform/db.ts";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { openShop, PRICES, type Shop } from "./shop.ts";

/** Answers that cost more than their payer has: each is a loss, whatever became of it, and stops the payer. Source: MON-7, LOS-1, LOS-2, QUO-9. */
const OUTPUT_NANO = PRICES.outputMicroUsd / 1000;
const PROMPT_NANO = (PRICES.inputMicroUsd / 1000) * 20;
/** A provider that ignores the cap. */
const OVER = { usage: { prompt_tokens: 20, completion_tokens: 10_000 } };
const COST = PROMPT_NANO + 10_000 * OUTPUT_NANO;
const CAP = 100;

let shop: Shop;
let db: Db;

beforeAll(async () => {
  shop = await openShop({ replicas: 2, env: { UNPAID_ACCOUNT_USD: "1", UNPAID_ACCOUNT_TOKENS: "20000" } });
  db = shop.world.openDb();
});
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop, db.close));

const ask = (secret: string, over: Record<string, unknown> = {}, replica = 0) =>
  shop.chat(
    secret,
    { model: "vendor/chat-b", max_tokens: CAP, ...over },
    { origin: shop.replicas[replica]?.origin ?? "" },
  );
const lossOf = async (accountId: number, kind: string) =>
  (await listLosses({ db }, { holderId: accountId, limit: 10 })).find((loss) => loss.kind === kind)?.amount ?? 0n;
const receiptsOf = (accountId: number) => shop.world.sql<
  { outcome: string; reason: string; charged: number; shortfall: number }[]
>`
  select outcome, reason, charged_nano_usd::float8 as charged, shortfall_nano_usd::float8 as shortfall
  from receipts where account_id = ${accountId} order by request_id`;
const isStopped = async (secret: string) => {
  const answers = await Promise.all([0, 1].map((replica) => ask(secret, {}, replica)));
  return answers.every(({ status }) => status === 429);
};

test("an answer that becomes 402 has no usage record and costs nothing, but all of it is recorded as a loss", async () => {
  const payer = await shop.payer(10_000_000n);
  shop.provider.next(OVER);
  expectRefusal(await ask(payer.secret), "insufficient_balance");
  const [receipt] = await receiptsOf(payer.accountId);
  expect({ ...receipt }).toEqual({ outcome: "released", reason: "overrun_refused", charged: 0, shortfall: COST });
  expect(await shop.counters(payer.accountId)).toMatchObject({ usage: 0, holds: 0, balance: 10_000_000 });
  await until(async () => (await lossOf(payer.accountId, "shortfall")) === BigInt(COST));
});

test("a stream that costs more than its payer has: its hold is charged, the rest is a loss", async () => {
  const payer = await shop.payer(10_000_000n);
  shop.provider.next(OVER);
  expect((await ask(payer.secret, { stream: true })).status).toBe(200);
  const [receipt] = await receiptsOf(payer.accountId);
  expect((receipt?.charged ?? 0) + (receipt?.shortfall ?? 0)).toBe(COST);
  expect(receipt?.charged).toBeGreaterThan(0);
  await until(async () => (await lossOf(payer.accountId, "shortfall")) === BigInt(receipt?.shortfall ?? 0));
});

test("a payer whose losses of an hour reach the bound is refused by every replica; others are served", async () => {
  const payer = await shop.payer(10_000_000n);
  const neighbour = await shop.payer(10_000_000n);
  shop.provider.always(OVER);
  for (let n = 0; n * COST < 1_000_000_000; n++) expectRefusal(await ask(payer.secret), "insufficient_balance");
  await until(() => isStopped(payer.secret));
  const calls = shop.provider.callCount();
  const refused = await ask(payer.secret);
  expectRefusal(refused, "too_many_requests");
  expect(refused.json.error.message).toContain("cost more than could be charged");
  expect(Number(refused.headers.get("retry-after"))).toBeLessThan(60);
  expect(shop.provider.callCount()).toBe(calls);
  shop.provider.reset();
  expect((await ask(neighbour.secret)).status).toBe(200);
});

test("tokens that a provider uses beyond an allowance are a loss in tokens, and stop their payer", async () => {
  const buyer = await shop.customer({ dailyLimit: 100, tokenLimit: 1_000 });
  shop.provider.next({ usage: { prompt_tokens: 20, completion_tokens: 30_000 } });
  expect((await ask(buyer.secret)).status).toBe(200);
  await until(async () => (await lossOf(buyer.accountId, "tokens")) === 29_020n);
  await until(() => isStopped(buyer.secret));
});

test("a customer's loss counts for its reseller too, whoever noted it", async () => {
  const { world } = shop;
  const reseller = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  await world.setBalance(person, 10_000_000n);
  const key = await world.addKey(person, { mode: "payg" });
  shop.provider.next(OVER);
  expectRefusal(await ask(key.secret), "insufficient_balance");
  await until(async () => (await lossOf(reseller.accountId, "shortfall")) === BigInt(COST));
});
