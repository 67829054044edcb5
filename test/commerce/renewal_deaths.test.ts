import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { fullCheck } from "../cli/cli_process.ts";
import { withReplica } from "../faults/fault_shop.ts";
import { until } from "../platform/own_redis.ts";
import { USD } from "./pay_shop.ts";
import { openRenewalShop, PRICE, type RenewalShop } from "./renewal_shop.ts";

/** Replicas that die between the charge and what it pays for, and many that renew at once. Source: REN-5, ATU-2, CRD-3. */

setDefaultTimeout(900_000);
/** RENEWAL_KILLS=30 is the long run. All three of it take more than a file may: RENEWAL_KILLS_OF is `card`, `balance` or `top_up`. */
const killsOf = (what: "card" | "balance" | "top_up"): number =>
  (process.env.RENEWAL_KILLS_OF ?? what) === what ? Number(process.env.RENEWAL_KILLS ?? 3) : 1;
/** RENEWAL_WEBHOOKS=1000 is the long run. */
const WEBHOOKS = Number(process.env.RENEWAL_WEBHOOKS ?? 200);
const AT_ONCE = 20;
let shop: RenewalShop;

beforeAll(async () => {
  shop = await openRenewalShop({ replicasToo: true });
  await shop.topUp(shop.acme, 10_000n * USD);
});
afterAll(async () => {
  try {
    expect(await fullCheck(shop.world)).toEqual(["ok"]);
  } finally {
    await shop.close();
  }
});

type Renewing = Awaited<ReturnType<RenewalShop["ofRow"]>>;

const isDone = async ({ packageId }: Renewing) => (await shop.renewalOf(packageId)).status === "done";

/** One charge, one payment, one package; or one transaction of the balance. */
async function expectOnce(buyer: Renewing, source: "card" | "balance"): Promise<void> {
  const { accountId } = buyer;
  expect(await shop.packagesOf(buyer)).toHaveLength(2);
  const payments = await shop.sql`select external_id from payments where account_id = ${accountId}`;
  expect(payments).toHaveLength(source === "card" ? 1 : 0);
  for (const { external_id } of payments)
    expect(shop.stripe.cards.charged.filter((id) => id === external_id)).toHaveLength(1);
  const { charged, intents } = shop.stripe.cards;
  const references = (await shop.sql`select reference from orders where account_id = ${accountId}`).map(
    (row) => row.reference,
  );
  expect(charged.filter((id) => references.includes(intents.get(id)?.metadata.order))).toHaveLength(payments.length);
  const paid = await shop.sql<{ amount_nano_usd: string }[]>`
    select amount_nano_usd from balance_entries where account_id = ${accountId} and kind = 'package'`;
  expect(paid.map((row) => row.amount_nano_usd)).toEqual(source === "card" ? [] : [String(-PRICE)]);
}

/** Starts a replica that dies at its next charge. */
async function killCharging(): Promise<void> {
  await withReplica(
    () => shop.pay.shop.start({ FAILPOINTS: "after_charge=kill" }),
    async (victim) => {
      await until(() => victim.process.signalCode === "SIGKILL", 60_000);
    },
  );
}

for (const source of ["card", "balance"] as const)
  test(`${killsOf(source)} replicas are killed between the charge of the ${source} and the package: each is charged once, and renewed once`, async () => {
    // The shop's own replica would make the steps first.
    await shop.pay.shop.replicas[0]?.kill();
    for (let n = 0; n < killsOf(source); n++) {
      const buyer = await shop.ofRow({ of: n % 2 ? "acme" : "house", source });
      if (source === "balance") await shop.world.setBalance(buyer, 20n * USD);
      await killCharging();
      expect(await isDone(buyer)).toBe(false);
      expect(await shop.packagesOf(buyer)).toHaveLength(1);
      if (source === "card") expect(await shop.chargeOf(buyer.packageId)).toMatchObject({ status: "charging" });
      // A day later Stripe has forgotten its idempotency keys.
      if (n % 3 === 2) shop.stripe.forgetKeys();
      await shop.later();
      await shop.later();
      expect(await isDone(buyer)).toBe(true);
      await expectOnce(buyer, source);
    }
  });

test(`${killsOf("top_up")} replicas are killed between the charge of the card and an automatic top-up: each is charged once, and topped up once`, async () => {
  await shop.pay.shop.replicas[0]?.kill();
  const { charged, intents } = shop.stripe.cards;
  for (let n = 0; n < killsOf("top_up"); n++) {
    const buyer = await shop.ofTopUp({ of: n % 2 ? "acme" : "house" });
    await killCharging();
    expect(await shop.balanceOf(buyer)).toBe(0n);
    const [order] = await shop.sql`select reference from orders where account_id = ${buyer.accountId}`;
    expect(charged.filter((id) => intents.get(id)?.metadata.order === order?.reference)).toHaveLength(1);
    if (n % 3 === 2) shop.stripe.forgetKeys();
    for (let round = 0; round < 3; round++) await shop.later();
    expect(await shop.balanceOf(buyer)).toBe(20n * USD);
    expect(await shop.sql`select 1 from payments where account_id = ${buyer.accountId}`).toHaveLength(1);
    expect(charged.filter((id) => intents.get(id)?.metadata.order === order?.reference)).toHaveLength(1);
    expect(await shop.sql`select 1 from orders where account_id = ${buyer.accountId}`).toHaveLength(1);
  }
});

test("four replicas at once renew each of 24 packages once", async () => {
  const buyers: Renewing[] = [];
  for (let n = 0; n < 24; n++) {
    const source = n % 3 === 0 ? "balance" : "card";
    const buyer = await shop.ofRow({ of: n % 2 ? "acme" : "house", source });
    if (source === "balance") await shop.world.setBalance(buyer, 20n * USD);
    buyers.push(buyer);
  }
  for (let round = 0; round < 4; round++) await Promise.all(Array.from({ length: 4 }, () => shop.later()));
  for (const [n, buyer] of buyers.entries()) {
    expect(await isDone(buyer)).toBe(true);
    await expectOnce(buyer, n % 3 === 0 ? "balance" : "card");
  }
});

test(`${WEBHOOKS} webhooks of renewals, repeated and shuffled, while replicas charge: nothing twice, nothing lost`, async () => {
  const { origin, kill: stop } = await shop.pay.shop.start();
  try {
    const buyers: Renewing[] = [];
    for (let n = 0; n < 50; n++) buyers.push(await shop.ofRow({ of: n % 2 ? "acme" : "house", source: "card" }));
    await shop.later();
    // The answers of the charges are lost: only webhooks and further questions tell of them.
    shop.stripe.cards.whenConfirming(async () => shop.stripe.loseAnswers(true));
    for (let round = 0; round < 3; round++) {
      await shop.later();
      shop.stripe.loseAnswers(false);
    }
    shop.stripe.cards.whenConfirming(async () => {});
    shop.stripe.loseAnswers(false);
    const sends: (() => Promise<{ status: number }>)[] = [];
    for (let n = 0; n < WEBHOOKS; n++) {
      const buyer = buyers[n % buyers.length] as Renewing;
      sends.push(async () => {
        const { intent_id } = (await shop.chargeOf(buyer.packageId)) ?? {};
        const intent = shop.stripe.cards.intents.get(String(intent_id));
        // The charge is yet to be begun.
        if (!intent) return { status: 503 };
        const type = intent.status === "succeeded" ? "payment_intent.succeeded" : "payment_intent.created";
        return await shop.hook(buyer.sellerId, { ...shop.stripe.cards.shown(intent) }, { type, origin });
      });
    }
    sends.sort(() => Math.random() - 0.5);
    const work = [...sends];
    const worker = async () => {
      for (let send = work.pop(); send; send = work.pop()) {
        const { status } = await send();
        expect([200, 503]).toContain(status);
        if (status === 503) work.unshift(send);
      }
    };
    await Promise.all([...Array.from({ length: AT_ONCE }, worker), shop.later(), shop.later()]);
    for (let round = 0; round < 3; round++) await shop.later();
    for (const buyer of buyers) {
      expect(await isDone(buyer)).toBe(true);
      await expectOnce(buyer, "card");
    }
  } finally {
    await stop();
  }
});
