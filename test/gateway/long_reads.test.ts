import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import type { TestKey } from "../world.ts";
import { type Answer, openShop, type Shop } from "./shop.ts";

/**
 * Reads that may take long have a pool of their own. One account reads its many usage records with a filter that matches none,
 * with all the requests that its keys may make; its neighbours must not notice.
 */

setDefaultTimeout(180_000);
const RECEIPTS = 200_000;
/** Per key. The service's default. */
const RATE_PER_MINUTE = 600;
const KEYS = 3;
/** Requests that each of the keys has under way. */
const AT_ONCE = 16;
const NEIGHBOURS = 30;

let shop: Shop;
let reader: { accountId: number; keys: TestKey[] };

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { RATE_PER_MINUTE: String(RATE_PER_MINUTE), INTERNAL_PORT: "0" } });
  const { accountId } = await shop.world.addCustomer();
  const keys = await Promise.all(Array.from({ length: KEYS }, () => shop.world.addKey({ accountId })));
  reader = { accountId, keys };
  await fill(accountId, keys[0]?.keyId ?? 0, RECEIPTS);
});
afterAll(async () => {
  try {
    await until(async () => (await shop.world.sql`select 1 from holds limit 1`).length === 0, 20_000);
    expect(await shop.world.unbalanced()).toEqual([]);
  } finally {
    await shop.close();
  }
});

/** Usage records of the last two days that cost nothing. */
async function fill(accountId: number, keyId: number, count: number): Promise<void> {
  await shop.world.sql`
    insert into receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, outcome, reason, units, held_nano_usd,
      charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
    select overlay(request_id_floor(at)::text placing '7000-8000-' || lpad(n::text, 12, '0') from 15)::uuid, ${accountId}, ${keyId}, 'chat-a',
      'api.tollgate.test', 'payg', null, null, 'settled', 'complete', 0, 0, 0, 0, 1, 0, 1, 0, false, at, at
    from (select n, clock_timestamp() - (n * 1.0 / ${count}::float8) * interval '2 days' as at from generate_series(1, ${count}::int) n) n`;
  await shop.world.sql`analyze receipts`;
}

const usageOf = (secret: string, query: string) => shop.call(`/v1/usage?${query}`, { secret });

test("three keys that hammer a filtered GET /v1/usage within their rate: no neighbour's request is refused", async () => {
  const neighbours = [];
  for (let i = 0; i < NEIGHBOURS; i++) neighbours.push(await shop.customer());
  let over = false;
  const hammered: Answer[] = [];
  const hammer = async ({ secret }: TestKey) => {
    while (!over) hammered.push(await usageOf(secret, "model=none&limit=1000"));
  };
  const hammers = reader.keys.flatMap((key) => Array.from({ length: AT_ONCE }, () => hammer(key)));
  await until(() => hammered.length >= 2 * KEYS, 60_000);
  const answers: Answer[] = [];
  // Each is a key that no replica has seen: two look-ups and a chat at once for each.
  await Promise.all(
    neighbours.map(async ({ secret }) => {
      answers.push(...(await Promise.all([shop.call("/v1/models", { secret }), shop.call("/v1/balance", { secret })])));
      answers.push(await shop.chat(secret));
    }),
  );
  over = true;
  await Promise.all(hammers);
  const tally = (all: readonly Answer[]) =>
    all.reduce<Record<number, number>>((sum, { status }) => ({ ...sum, [status]: (sum[status] ?? 0) + 1 }), {});
  console.log("neighbours:", tally(answers), "hammering:", tally(hammered));
  expect(tally(answers)).toEqual({ 200: 3 * NEIGHBOURS });
});
