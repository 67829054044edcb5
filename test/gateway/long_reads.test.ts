import { afterAll, beforeAll, expect, test } from "bun:test";
import { signInTo } from "../panel/panel_client.ts";
import { sleep, until } from "../platform/own_redis.ts";
import type { TestKey } from "../world.ts";
import { closeBalanced, expectRefusal, tally } from "./checks.ts";
import { type Answer, openShop, type Shop } from "./shop.ts";

/**
 * Long reads have their own connections. One account reads its many usage records with a filter that matches none, as often as
 * its rate limits allow; other accounts must not notice.
 */
const RECEIPTS = 200_000;
/** Per key. The service's default. */
const RATE_PER_MINUTE = 600;
const KEYS = 3;
/** Concurrent requests of each key. */
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
afterAll(() => closeBalanced(shop));

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

/** Repeats `ask` until stopped, `AT_ONCE` at a time for each key. */
function hammer(ask: (key: TestKey) => Promise<Answer>) {
  const answers: Answer[] = [];
  let over = false;
  const send = async (key: TestKey) => {
    while (!over) {
      const answer = await ask(key);
      answers.push(answer);
      // Their rate is to last.
      if (answer.status === 429) await sleep(500);
    }
  };
  const sending = reader.keys.flatMap((key) => Array.from({ length: AT_ONCE }, () => send(key)));
  return {
    answers,
    async stop() {
      over = true;
      await Promise.all(sending);
    },
  };
}

test("three keys that flood a filtered GET /v1/usage within their rate limit cause no refusal of another account", async () => {
  const neighbours = [];
  for (let i = 0; i < NEIGHBOURS; i++) neighbours.push(await shop.customer());
  const owner = await signInTo(shop, reader);
  const hammering = hammer(({ secret }) => usageOf(secret, "model=none&limit=1000"));
  await until(() => hammering.answers.length >= 2 * KEYS);
  const answers: Answer[] = [];
  // Each key is new to the replica: three look-ups and a chat for each.
  await Promise.all(
    neighbours.map(async ({ secret }) => {
      answers.push(...(await Promise.all([shop.call("/v1/models", { secret }), shop.call("/v1/balance", { secret })])));
      answers.push(await shop.chat(secret));
    }),
  );
  // Long reads of others are served too, and the owner of the flooding account can use the panel.
  for (const { secret } of neighbours.slice(0, 3)) answers.push(await usageOf(secret, "model=none"));
  answers.push(await owner.get("/usage?model=none"), await owner.get("/keys"), await owner.get("/billing/entries"));
  await hammering.stop();
  expect(tally(answers)).toEqual({ served: 3 * NEIGHBOURS + 6 });
  const { served = 0, "429 too_many_requests": shared = 0, ...others } = tally(hammering.answers);
  expect(others).toEqual({});
  expect(Math.min(served, shared)).toBeGreaterThan(0);
});

test("an account above its share gets 429 with Retry-After, while others are served; afterwards it is served again", async () => {
  const [{ secret: mine }, neighbour] = [await shop.world.addKey(reader), await shop.customer()];
  let answers: Promise<Answer>[] = [];
  await shop.world.sql.begin(async (tx) => {
    // Only reads of the first receipts wait for this.
    await tx`lock table receipts in access exclusive mode`;
    answers = Array.from({ length: 16 }, () => usageOf(mine, "limit=1"));
    const refused: Answer[] = [];
    for (const answer of answers) void answer.then((one) => one.status === 429 && refused.push(one));
    await until(() => refused.length === 6);
    for (const one of refused) {
      expectRefusal(one, "too_many_requests");
      expect(one.headers.get("retry-after")).toBe("1");
    }
    // A look-up, and the ledger's refusal of a key without a package.
    expect((await shop.call("/v1/balance", { secret: neighbour.secret })).status).toBe(200);
  });
  const ended = tally(await Promise.all(answers));
  expect(ended["429 too_many_requests"]).toBe(6);
  await until(async () => (await usageOf(mine, "limit=1")).status === 200);
});

test("a client that leaves ends its read on the server", async () => {
  const [{ secret }, client] = [await shop.world.addKey(reader), new AbortController()];
  const waiting = async () => {
    const [row] = await shop.world.sql`
      select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and query like '%page as materialized%'`;
    return Number(row?.n);
  };
  await shop.world.sql.begin(async (tx) => {
    await tx`lock table receipts in access exclusive mode`;
    const leaving = fetch(`${shop.origin}/v1/usage`, {
      headers: { authorization: `Bearer ${secret}` },
      signal: client.signal,
    }).catch(() => "left");
    await until(async () => (await waiting()) === 1);
    client.abort();
    expect(await leaving).toBe("left");
    // The lock is held until then: the read did not get it.
    await until(async () => (await waiting()) === 0);
  });
});

test("pages continue where the previous one ended, until next_after is null; a filter with few matches finds them", async () => {
  const { secret } = await shop.world.addKey(reader);
  const [oldest] = await shop.world.sql`
    update receipts set model_id = 'rare' where request_id = (select min(request_id::text)::uuid from receipts where account_id = ${reader.accountId})
    returning request_id`;
  for (const [query, found] of [
    ["model=rare&limit=1", [oldest?.request_id]],
    ["model=none", []],
  ] as const) {
    const ids: string[] = [];
    for (let after: string | null = ""; after !== null; ) {
      const { status, json } = await usageOf(secret, query + (after && `&after=${after}`));
      expect(status).toBe(200);
      expect(json.has_more).toBe(json.next_after !== null);
      ids.push(...json.data.map(({ requestId }: { requestId: string }) => requestId));
      after = json.next_after;
    }
    expect(ids).toEqual([...found]);
  }
  const first = await usageOf(secret, "limit=2");
  expect(first.json.next_after).toBe(first.json.data[1].requestId);
});
