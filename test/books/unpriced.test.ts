import { afterAll, beforeAll, expect, test } from "bun:test";
import { foldAll, foldAnew } from "../../src/books/folding_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import { listUnpriced, sumUnpricedTokens } from "../../src/books/unpriced_store.ts";
import { runCli } from "../cli/cli_process.ts";
import { closeBalanced } from "../gateway/checks.ts";
import { metricsOf } from "../gateway/metrics_reader.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { ok, signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";

/** Counts that providers report and that no price names are told to admins. Source: IMP-6. */

const SLOW_MS = 180_000;
let shop: Shop;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { INTERNAL_PORT: "0" } });
});
afterAll(() => closeBalanced(shop));

const day = () => new Date().toISOString().slice(0, 10);

async function fold(): Promise<void> {
  expect(await foldAll(openSlices(shop.world.sql))).toBe(true);
}
const listed = async () =>
  (await listUnpriced(shop.world.sql)).map(({ modelId, kind, tokens, requests }) => [modelId, kind, tokens, requests]);

/** One answer whose usage is `details` beside 100 tokens of input and 50 of output. */
async function answer(secret: string, details: Record<string, unknown>, model = "chat-a"): Promise<void> {
  shop.provider.next({ usage: { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150, ...details } });
  expect((await shop.chat(secret, { model })).status).toBe(200);
}

test(
  "counts without a rate of their own are summed once by model and kind, however the receipts are folded",
  async () => {
    const payer = await shop.payer(5_000_000_000n);
    const packager = await shop.customer();
    expect(await listed()).toEqual([]);
    await answer(payer.secret, {
      prompt_tokens_details: { cached_tokens: 10, audio_tokens: 30 },
      completion_tokens_details: { reasoning_tokens: 40, audio_tokens: 7 },
    });
    // Two names of one count; its part for an hour is another rate.
    await answer(payer.secret, {
      prompt_tokens_details: { cache_write_tokens: 20 },
      cache_creation_input_tokens: 20,
      cache_creation: { ephemeral_1h_input_tokens: 5 },
    });
    await answer(payer.secret, { prompt_tokens_details: { audio_tokens: 3 } }, "vendor/chat-b");
    await answer(payer.secret, { prompt_tokens_details: { audio_tokens: 2 } });
    // A package pays by request: no price matters.
    await answer(packager.secret, { prompt_tokens_details: { audio_tokens: 1_000 } });
    await answer(payer.secret, {});
    const expected = [
      ["chat-a", "audio_input", 32n, 2],
      ["chat-a", "cache_write", 20n, 1],
      ["chat-a", "audio_output", 7n, 1],
      ["chat-a", "cache_write_1h", 5n, 1],
      ["vendor/chat-b", "audio_input", 3n, 1],
    ];
    await fold();
    expect(await listed()).toEqual(expected as never);
    await fold();
    await foldAnew(openSlices(shop.world.sql));
    await fold();
    expect(await listed()).toEqual(expected as never);
    expect(await sumUnpricedTokens(shop.world.sql)).toEqual({
      ...{ cache_write: 20, cache_write_1h: 5, audio_input: 35, audio_output: 7, image_input: 0, image_output: 0 },
    });
  },
  SLOW_MS,
);

test(
  "the books page, a metric and doctor show them, with the time of the first one",
  async () => {
    const admin = await signInTo(shop, await shop.world.addAdmin());
    expect(ok(await admin.get("/admin/books")).unpriced[0]).toEqual({
      ...{ modelId: "chat-a", kind: "audio_input", tokens: "32", requests: 2 },
      ...{ since: expect.stringMatching(/^\d{4}-\d\d-\d\d$/), until: day() },
    });
    const replica = shop.replicas[0] as ReplicaProcess;
    await until(
      async () => (await metricsOf(replica)).get('tollgate_unpriced_tokens_total{kind="audio_input"}') === 35,
    );
    const { code, out } = await runCli("doctor", {
      env: { DATABASE_URL: shop.world.url, SPOOL_DIR: shop.world.spoolDir },
    });
    expect(out).toMatch(
      /warning {2}unpriced chat-a: its provider has reported 32 tokens of audio_input in 2 requests since \d{4}-\d\d-\d\d, and it has no such price: charged at its highest input price\n/,
    );
    expect(out).toMatch(/unpriced chat-a: .* 7 tokens of audio_output .* charged at its highest output price\n/);
    // Only the missing SECRET_KEY is wrong.
    expect([code, out.match(/^wrong /gm)?.length]).toEqual([1, 1]);
  },
  SLOW_MS,
);

test("a count is no longer shown once the model has the price; later requests are not counted", async () => {
  const { sql } = shop.world;
  await sql`
    insert into price_versions (model_id, prices)
    select model_id, jsonb_set(prices, '{tokens,audio_input}', '9000000') from price_versions where model_id = 'vendor/chat-b' order by id desc limit 1`;
  expect((await listed()).map(([modelId]) => modelId)).not.toContain("vendor/chat-b");
  // What was counted stays counted.
  expect((await sumUnpricedTokens(sql)).audio_input).toBe(35);
});
