import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import {
  type Buyer,
  behave,
  booksAtRest,
  buyerOfOne,
  CALM,
  callsOf,
  flowing,
  HELD_NANO_USD,
  HELD_USAGE,
  openCall,
  type Purse,
  receiptsOf,
  SMALL_USAGE,
  withReplica,
} from "./fault_shop.ts";

/**
 * A replica killed at every place of a request's way: another one releases its hold once the lease has ended and not
 * before, nothing is given out twice, at most one usage record. Source: END-13, END-15, REL-3.
 */

setDefaultTimeout(120_000);
const LEASE_SECONDS = 3;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ env: { ...CALM, LEASE_SECONDS: String(LEASE_SECONDS) } });
});
afterAll(async () => {
  try {
    await booksAtRest(shop);
  } finally {
    await shop.close();
  }
});

type Place = "before_reserve" | "after_reserve" | "mid_answer" | "before_settle" | "after_settle";
/** What the death at each place leaves behind. */
const PLACES: [place: Place, left: { providerCalls: number; held: boolean; usage: number }][] = [
  ["before_reserve", { providerCalls: 0, held: false, usage: 0 }],
  ["after_reserve", { providerCalls: 0, held: true, usage: 0 }],
  ["mid_answer", { providerCalls: 1, held: true, usage: 0 }],
  ["before_settle", { providerCalls: 1, held: true, usage: 0 }],
  ["after_settle", { providerCalls: 1, held: false, usage: 1 }],
];

/** Has a replica die there while it serves one call of the buyer. Returns how often the provider was called. */
async function dieAt(place: Place, buyer: Buyer, stream: boolean): Promise<number> {
  let calls = 0;
  const env: Record<string, string> = place === "mid_answer" ? {} : { FAILPOINTS: `${place}=kill` };
  const behaviour: Behaviour = { tokens: 10, usage: HELD_USAGE };
  if (place === "mid_answer") Object.assign(behaviour, { hang: "mid_stream", cutAfterChunks: stream ? 3 : 1 });
  await withReplica(
    () => shop.start(env),
    async (victim) => {
      const mark = behave(shop, behaviour);
      const call = openCall(victim.origin, buyer.secret, { stream, ...mark });
      if (place === "mid_answer") {
        if (stream) await flowing([call]);
        else await until(() => callsOf(shop, mark) === 1, 20_000);
        await victim.kill();
      }
      await call.ended;
      const isDead = () => victim.process.signalCode === "SIGKILL";
      await until(isDead, 20_000).catch(() => {
        throw new Error(`the call came through: ${call.status()} ${call.got()} ${call.failure()}`);
      });
      expect(call.got()).not.toContain("[DONE]");
      if (!stream) expect(call.got()).toBe("");
      calls = callsOf(shop, mark);
    },
  );
  return calls;
}

/** Asks the surviving replica until it serves the buyer; every refusal until then is for want of what the dead one held. */
async function servedAtLast(buyer: Buyer, purse: Purse): Promise<void> {
  const mark = behave(shop, { tokens: 10, usage: SMALL_USAGE });
  const endsAt = performance.now() + 80_000;
  for (;;) {
    const answer = await shop.chat(buyer.secret, { max_tokens: 10, ...mark });
    if (answer.status === 200) return;
    expect(answer.json.error.code).toBe(purse === "package" ? "daily_quota_exceeded" : "insufficient_balance");
    if (performance.now() > endsAt) throw new Error("what the dead replica held never came back");
    await sleep(200);
  }
}

for (const [place, left] of PLACES) {
  for (const [purse, stream] of [
    ["package", false],
    ["balance", true],
  ] as const) {
    const kind = stream ? "stream" : "answer";
    test.concurrent(`killed ${place.replace("_", " ")}, ${purse}, ${kind}: ${outcome(left)}`, async () => {
      const buyer = await buyerOfOne(shop, purse);
      expect(await dieAt(place, buyer, stream)).toBe(left.providerCalls);
      const wanted = { usage: left.usage, holds: left.held ? 1 : 0, released: 0 };
      expect(await shop.counters(buyer.accountId)).toMatchObject(wanted);
      if (left.usage === 1) {
        const [receipt] = await receiptsOf(shop, buyer.accountId);
        expect(receipt).toMatchObject({ outcome: "settled", reason: "complete", shortfall: 0 });
        expect(receipt?.units).toBe(purse === "package" ? 1 : 0);
        expect(receipt?.charged).toBe(purse === "package" ? 0 : Number(HELD_NANO_USD));
        // Paid for and used up: there is nothing for a second one.
        expect((await shop.chat(buyer.secret, { max_tokens: 10 })).status).toBe(402);
        return;
      }
      await servedAtLast(buyer, purse);
      const receipts = await receiptsOf(shop, buyer.accountId);
      const served = receipts.at(-1);
      expect(served).toMatchObject({ outcome: "settled", reason: "complete" });
      if (!left.held) return expect(receipts).toHaveLength(1);
      const [dead] = receipts;
      expect(receipts).toHaveLength(2);
      expect(dead).toMatchObject({ outcome: "released", reason: "lease_ended", units: 0, charged: 0 });
      expect(dead?.livedSeconds).toBeGreaterThanOrEqual(LEASE_SECONDS);
      // What it held was granted anew only after it had been released.
      expect(Date.parse(served?.createdAt ?? "")).toBeGreaterThanOrEqual(Date.parse(dead?.finishedAt ?? ""));
      expect(await shop.counters(buyer.accountId)).toMatchObject({ usage: 1, released: 1, holds: 0 });
    });
  }
}

function outcome({ held, usage }: { held: boolean; usage: number }): string {
  if (usage === 1) return "exactly one usage record, nothing to release";
  return held ? "released after the lease and not before, no usage record" : "nothing was held, nothing is charged";
}
