import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { isFrozen, type ReplicaProcess } from "../replica.ts";
import {
  accountAtRest,
  type Buyer,
  behave,
  behaveHeld,
  buyerOfOne,
  callsOf,
  closeAtRest,
  flowing,
  HELD_NANO_USD,
  HELD_USAGE,
  openCall,
  type Purse,
  receiptsOf,
  withReplica,
} from "./fault_shop.ts";

/**
 * A replica that is frozen past its lease, and then continues, after another replica has returned what it had drawn.
 * Source: END-13, REL-3.
 */
/** What is drawn is looked at before its lease ends: on a slow machine some seconds after the replica has stopped. */
const LEASE_SECONDS = 8;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ env: { LEASE_SECONDS: String(LEASE_SECONDS) } });
});
afterAll(() => closeAtRest(shop));

const PURSES: Purse[] = ["package", "balance"];
const signal = (replica: ReplicaProcess, name: "SIGSTOP" | "SIGCONT") => replica.process.kill(name);

/** Waits until the surviving replica has returned what the frozen one has drawn for the buyer. It leaves no receipt. */
async function reaped(buyer: Buyer): Promise<void> {
  // More than one row if a draw was not answered in time, and the request drew again.
  expect((await escrowsOf(buyer)).length).toBeGreaterThanOrEqual(1);
  await until(async () => (await escrowsOf(buyer)).length === 0);
  expect(await receiptsOf(shop, buyer.accountId)).toEqual([]);
}

const escrowsOf = ({ accountId }: Buyer) => shop.world.sql`select 1 from escrows where account_id = ${accountId}`;

/** Waits until the surviving replica has looked for dead replicas so often. */
async function reapedRounds(rounds: number): Promise<void> {
  const last = async () => {
    const [row] = await shop.world.sql`select max(status->>'reapedAt') as at from replicas`;
    return String(row?.at);
  };
  for (let round = 0; round < rounds; round++) {
    const before = await last();
    await until(async () => (await last()) !== before);
  }
}

const withVictim = (env: Record<string, string>, work: (victim: ReplicaProcess) => Promise<void>) =>
  withReplica(() => shop.start(env), work);

for (const purse of PURSES) {
  const stream = purse === "balance";

  test.concurrent(`frozen between reserve and dispatch, past its lease, ${purse}: the request gets 503; nothing is dispatched or charged`, () =>
    withVictim({ FAILPOINTS: "after_reserve=freeze" }, async (victim) => {
      const buyer = await buyerOfOne(shop, purse);
      const mark = behave(shop, { tokens: 10, usage: HELD_USAGE });
      const answer = shop.chat(buyer.secret, { stream, max_tokens: 10, ...mark }, { origin: victim.origin });
      await until(() => isFrozen(victim));
      expect(await shop.counters(buyer.accountId)).toMatchObject({ holds: 1, released: 0 });
      await reaped(buyer);
      signal(victim, "SIGCONT");
      expectRefusal(await answer, "service_unavailable");
      expect(callsOf(shop, mark)).toBe(0);
      expect(await shop.counters(buyer.accountId)).toMatchObject({ usage: 0, units: 0, released: 0, holds: 0 });
      // It is alive, and serves under a new lease.
      expect((await shop.chat(buyer.secret, { max_tokens: 10, ...mark }, { origin: victim.origin })).status).toBe(200);
      expect(callsOf(shop, mark)).toBe(1);
    }));

  for (const taken of [false, true]) {
    const meanwhile = taken ? "used by another request meanwhile: a recorded loss" : "still free: charged late";

    test.concurrent(`frozen in mid-stream, past its lease, ${purse} ${meanwhile}; the stream completes`, () =>
      withVictim({}, async (victim) => {
        const buyer = await buyerOfOne(shop, purse);
        const { mark, open } = behaveHeld(shop, { tokens: 10, usage: HELD_USAGE });
        const call = openCall(victim.origin, buyer.secret, { stream: true, ...mark });
        await flowing([call]);
        signal(victim, "SIGSTOP");
        await until(() => isFrozen(victim));
        open();
        await reaped(buyer);
        if (taken) await take(buyer);
        signal(victim, "SIGCONT");
        await call.ended;
        expect(call.got()).toEndWith("data: [DONE]\n\n");
        expect(callsOf(shop, mark)).toBe(1);
        await expectLate(buyer, purse, taken);
      }));

    test.concurrent(`frozen before settle, past its lease, ${purse} ${meanwhile}; the answer is delivered`, () =>
      withVictim({ FAILPOINTS: "before_settle=freeze" }, async (victim) => {
        const buyer = await buyerOfOne(shop, purse);
        const mark = behave(shop, { tokens: 10, usage: HELD_USAGE });
        const answer = shop.chat(buyer.secret, { stream, max_tokens: 10, ...mark }, { origin: victim.origin });
        await until(() => isFrozen(victim));
        await reaped(buyer);
        if (taken) await take(buyer);
        signal(victim, "SIGCONT");
        expect((await answer).status).toBe(200);
        expect(callsOf(shop, mark)).toBe(1);
        await expectLate(buyer, purse, taken);
      }));
  }
}

/** Another request, through another replica, uses up what was released. */
async function take(buyer: Buyer): Promise<void> {
  const mark = behave(shop, { tokens: 10, usage: HELD_USAGE });
  expect((await shop.chat(buyer.secret, { max_tokens: 10, ...mark })).status).toBe(200);
}

/** The late settlement wrote its record, once, and took what was there. */
async function expectLate({ accountId }: Buyer, purse: Purse, taken: boolean): Promise<void> {
  const receipts = await receiptsOf(shop, accountId);
  expect(receipts).toHaveLength(taken ? 2 : 1);
  const held = Number(HELD_NANO_USD);
  const paid =
    purse === "package" ? { charged: 0, shortfall: 0 } : { charged: taken ? 0 : held, shortfall: taken ? held : 0 };
  const units = purse === "package" && !taken ? 1 : 0;
  expect(receipts[0]).toMatchObject({ outcome: "settled", reason: "late", units, ...paid });
  if (taken) expect(receipts[1]).toMatchObject({ outcome: "settled", reason: "complete", shortfall: 0 });
  const counters = await shop.counters(accountId);
  expect(counters).toMatchObject({ usage: receipts.length, released: 0, holds: 0 });
  if (purse === "package") expect(counters.units).toBe(1);
  else expect(counters.balance).toBe(0);
}

/** What a key may use a day, and how many of its requests are in flight when their replica is frozen. */
const KEY_LIMIT = 20;
const FROZEN_CALLS = 10;

test.concurrent.each(PURSES)(
  "frozen with ten requests of a key in flight, while another replica serves what the key's daily limits allow, %s: the late ones take nothing",
  (purse) =>
    withVictim({}, async (victim) => {
      const buyer =
        purse === "package"
          ? await shop.customer({ dailyLimit: 10 * KEY_LIMIT })
          : await shop.payer(HELD_NANO_USD * BigInt(10 * KEY_LIMIT));
      const spendMax = HELD_NANO_USD * BigInt(KEY_LIMIT);
      const { sql } = shop.world;
      if (purse === "package") await sql`update keys set daily_units_max = ${KEY_LIMIT} where id = ${buyer.keyId}`;
      else await sql`update keys set daily_spend_max_nano_usd = ${String(spendMax)} where id = ${buyer.keyId}`;
      const { mark, open } = behaveHeld(shop, { tokens: 10, usage: HELD_USAGE });
      const calls = Array.from({ length: FROZEN_CALLS }, () =>
        openCall(victim.origin, buyer.secret, { stream: true, ...mark }),
      );
      await flowing(calls);
      signal(victim, "SIGSTOP");
      await until(() => isFrozen(victim));
      open();
      const drawn = () => sql`select 1 from escrows where account_id = ${buyer.accountId}`;
      expect((await drawn()).length).toBeGreaterThanOrEqual(2);
      await until(async () => (await drawn()).length === 0);
      for (let i = 0; i < KEY_LIMIT; i++) await take(buyer);
      const code = purse === "package" ? "key_request_limit_exceeded" : "key_spend_limit_exceeded";
      expectRefusal(await shop.chat(buyer.secret, { max_tokens: 10 }), code);
      signal(victim, "SIGCONT");
      await Promise.all(calls.map(({ ended }) => ended));
      for (const call of calls) expect(call.got()).toEndWith("data: [DONE]\n\n");
      // A late settlement has nothing drawn, so the account is at rest before it.
      await until(async () => (await receiptsOf(shop, buyer.accountId)).length >= KEY_LIMIT + FROZEN_CALLS);
      const receipts = await receiptsOf(shop, buyer.accountId);
      const late = receipts.filter(({ reason }) => reason === "late");
      expect([receipts.length, late.length]).toEqual([KEY_LIMIT + FROZEN_CALLS, FROZEN_CALLS]);
      const shortfall = purse === "package" ? 0 : Number(HELD_NANO_USD);
      for (const receipt of late) expect(receipt).toMatchObject({ units: 0, charged: 0, shortfall });
      // A limit of spending does not bind the count of requests.
      const units = purse === "package" ? KEY_LIMIT : KEY_LIMIT + FROZEN_CALLS;
      const [counted] = await sql`
        select units_taken as units, taken_nano_usd::text as spent from key_days where key_id = ${buyer.keyId}`;
      expect({ ...counted }).toEqual({ units, spent: purse === "package" ? "0" : String(spendMax) });
    }),
);

test.concurrent("frozen for less than its lease: the request continues and is served", () =>
  withVictim({ FAILPOINTS: "after_reserve=freeze", LEASE_SECONDS: "60" }, async (victim) => {
    const buyer = await buyerOfOne(shop, "package");
    const answer = shop.chat(buyer.secret, {}, { origin: victim.origin });
    await until(() => isFrozen(victim));
    await reapedRounds(3);
    signal(victim, "SIGCONT");
    expect((await answer).status).toBe(200);
    expect(await receiptsOf(shop, buyer.accountId)).toMatchObject([
      { outcome: "settled", reason: "complete", units: 1 },
    ]);
  }));

test.concurrent("frozen in the middle of forty requests: every 200 has one usage record, and no refusal has one", () =>
  withVictim({}, async (victim) => {
    const customer = await shop.customer({ dailyLimit: 100 });
    const mark = behave(shop, { delayMs: 50, tokens: 10 });
    const answers: Promise<Answer>[] = [];
    for (let i = 0; i < 40; i++) {
      answers.push(shop.chat(customer.secret, { stream: i % 2 === 0, ...mark }, { origin: victim.origin }));
      await sleep(5);
      // In the middle: some have ended, others have not begun.
      if (i === 25) await answers[0];
      if (i === 25) signal(victim, "SIGSTOP");
    }
    await until(async () => (await escrowsOf(customer)).length === 0);
    signal(victim, "SIGCONT");
    const ended = await Promise.all(answers);
    await accountAtRest(shop, customer.accountId);
    const settled = (await receiptsOf(shop, customer.accountId))
      .filter(({ outcome }) => outcome === "settled")
      .map(({ requestId }) => requestId);
    const good = ended.filter(({ status }) => status === 200).map(({ headers }) => headers.get("x-request-id") ?? "");
    for (const answer of ended) if (answer.status !== 200) expectRefusal(answer, "service_unavailable");
    expect(settled.sort()).toEqual(good.sort());
    expect(good.length).toBeGreaterThan(0);
    expect((await shop.counters(customer.accountId)).units).toBe(good.length);
  }));
