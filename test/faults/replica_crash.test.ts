import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import {
  type Buyer,
  behave,
  buyerOfOne,
  callsOf,
  closeAtRest,
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
 * A replica is killed at every step of a request: another one returns what it had drawn once its lease has ended and
 * not before, nothing is granted twice, and there is at most one usage record. A request that died with its replica
 * leaves no receipt.
 * Source: END-13, END-15, REL-3.
 */
/** What is drawn is looked at before its lease ends: on a slow machine many seconds after the replica has stopped. */
const LEASE_SECONDS = 20;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ env: { LEASE_SECONDS: String(LEASE_SECONDS) } });
});
afterAll(() => closeAtRest(shop));

type Place = "before_reserve" | "after_reserve" | "mid_answer" | "before_settle" | "after_settle";
/** What a death at each step leaves behind. */
const PLACES: [place: Place, left: { providerCalls: number; held: boolean; usage: number }][] = [
  ["before_reserve", { providerCalls: 0, held: false, usage: 0 }],
  ["after_reserve", { providerCalls: 0, held: true, usage: 0 }],
  ["mid_answer", { providerCalls: 1, held: true, usage: 0 }],
  ["before_settle", { providerCalls: 1, held: true, usage: 0 }],
  ["after_settle", { providerCalls: 1, held: false, usage: 1 }],
];

/** Lets a replica die at this step while it serves one call of the buyer. Returns the number of provider calls. */
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
        else await until(() => callsOf(shop, mark) === 1);
        await victim.kill();
      }
      await call.ended;
      const isDead = () => victim.process.signalCode === "SIGKILL";
      await until(isDead).catch(() => {
        throw new Error(`the call came through: ${call.status()} ${call.got()} ${call.failure()}`);
      });
      expect(call.got()).not.toContain("[DONE]");
      if (!stream) expect(call.got()).toBe("");
      calls = callsOf(shop, mark);
    },
  );
  return calls;
}

/** The end of the lease under which something is drawn for the buyer; undefined: nothing is drawn. */
async function leaseOf({ accountId }: Buyer): Promise<string | undefined> {
  const [row] = await shop.world.sql`
    select ends_at::text as "endsAt" from escrows e join leases l on l.id = e.lease_id
    where account_id = ${accountId} and (units > 0 or nano_usd > 0)`;
  return row?.endsAt;
}

/**
 * Sends requests to the surviving replica until it serves the buyer; every refusal until then is for lack of what the
 * dead one held.
 */
async function servedAtLast(buyer: Buyer, purse: Purse): Promise<void> {
  const mark = behave(shop, { tokens: 10, usage: SMALL_USAGE });
  const endsAt = performance.now() + 150_000;
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
      const leaseEndsAt = await leaseOf(buyer);
      expect(leaseEndsAt === undefined).toBe(!left.held);
      if (left.usage === 1) {
        const [receipt] = await receiptsOf(shop, buyer.accountId);
        expect(receipt).toMatchObject({ outcome: "settled", reason: "complete", shortfall: 0 });
        expect(receipt?.units).toBe(purse === "package" ? 1 : 0);
        expect(receipt?.charged).toBe(purse === "package" ? 0 : Number(HELD_NANO_USD));
        // The unit or balance is used up: a second request gets nothing.
        expect((await shop.chat(buyer.secret, { max_tokens: 10 })).status).toBe(402);
        return;
      }
      await servedAtLast(buyer, purse);
      const receipts = await receiptsOf(shop, buyer.accountId);
      expect(receipts).toHaveLength(1);
      expect(receipts[0]).toMatchObject({ outcome: "settled", reason: "complete" });
      // What the dead replica held was granted again only after its lease had ended.
      if (leaseEndsAt !== undefined)
        expect(Date.parse(receipts[0]?.createdAt ?? "")).toBeGreaterThanOrEqual(Date.parse(leaseEndsAt));
      expect(await leaseOf(buyer)).toBeUndefined();
      expect(await shop.counters(buyer.accountId)).toMatchObject({ usage: 1, released: 0, holds: 0 });
    });
  }
}

test.concurrent("killed with units drawn ahead: no request gets 402 for want of them, and all are served once the lease has ended", async () => {
  const UNITS = 120;
  const customer = await shop.customer({ dailyLimit: UNITS, days: 1 });
  const mark = behave(shop, { tokens: 1 });
  const ask = (origin: string) => shop.chat(customer.secret, { ...mark }, { origin });
  const idle = async () => {
    const [row] = await shop.world.sql`
      select coalesce(sum(idle_units), 0)::int as units from escrows where account_id = ${customer.accountId}`;
    return Number(row?.units);
  };
  await withReplica(
    () => shop.start({}),
    async (victim) => {
      for (let i = 0; i < UNITS / 2 && (await idle()) === 0; i++)
        for (const { status } of await Promise.all([ask(victim.origin), ask(victim.origin)])) expect(status).toBe(200);
      await victim.kill();
    },
  );
  expect(await idle()).toBeGreaterThan(0);
  // The first refusal comes when every unit has been granted, the dead replica's too.
  const untilRefused = async () => {
    for (;;) {
      const answer = await ask(shop.origin);
      if (answer.status === 402) return { code: answer.json.error.code, idle: await idle() };
      if (answer.status !== 200) expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "1"]);
      if (answer.status === 503) await sleep(200);
    }
  };
  for (const refusal of await Promise.all(Array.from({ length: 4 }, untilRefused)))
    expect(refusal).toEqual({ code: "daily_quota_exceeded", idle: 0 });
  expect(await shop.counters(customer.accountId)).toMatchObject({ usage: UNITS, units: UNITS, released: 0, holds: 0 });
});

function outcome({ held, usage }: { held: boolean; usage: number }): string {
  if (usage === 1) return "exactly one usage record, nothing to release";
  return held
    ? "the hold is returned after the lease and not before, no usage record"
    : "nothing was held, nothing is charged";
}
