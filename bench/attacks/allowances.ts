import { setTimeout as sleep } from "node:timers/promises";
import type { Shop } from "../../test/gateway/shop.ts";
import type { Attack, Begin, Outcome } from "./attack.ts";

/**
 * Attempts to use more than was paid for by many requests at once: of a token allowance, and of balances whose answers cost more than
 * was reserved. "Billed" is what the provider calls cost at the model's prices, 3 and 15 USD per million tokens.
 */

const ALLOWANCE = 100_000;
const RACERS = 280;
/** The simulated provider writes as many words, unless a cap is sent. */
const LONG = "Write 4000 words about tolls.";

const CUSTOMERS = 5;
const STREAMS = 200;
const WAVES = 4;
/** Each has so much: what 200 streams cost by the bound of 2,048 tokens an image, and a little more. */
const BALANCE = 1_500_000_000n;
const PICTURE_TOKENS = 36_835;
const PICTURE = { type: "image_url", image_url: { url: "https://pictures.example/large.png" } };
const INPUT_USD = 3 / 1e6;
const OUTPUT_USD = 15 / 1e6;
/** What a provider that ignores the cap writes. */
const OVERRUN_TOKENS = 7_000;
/** Every replica knows by then who has reached the bound. Source: LOS-3. */
const KNOWN_MS = 5_000;

export const allowanceAttacks: Attack[] = [
  {
    name: `${RACERS} requests without max_tokens at once, through three replicas, against an allowance of ${ALLOWANCE} tokens`,
    replicas: 3,
    async run(shop, begin) {
      const buyer = await shop.customer({ dailyLimit: 10_000, tokenLimit: ALLOWANCE });
      const messages = [{ role: "user", content: LONG }];
      await begin();
      const ask = (n: number) => shop.chat(buyer.secret, { messages }, { origin: originOf(shop, n) });
      const answers = await Promise.all(Array.from({ length: RACERS }, (_, n) => ask(n)));
      const [row] = await shop.world.sql`
        select sum(prompt_tokens + completion_tokens)::int as used, sum(charged_tokens)::int as charged from receipts
        where account_id = ${buyer.accountId} and outcome = 'settled'`;
      const served = answers.filter(({ status }) => status === 200).length;
      return {
        attacker: `${served} of ${RACERS} served, ${row?.used} tokens used, ${row?.charged} charged`,
        isStopped: Number(row?.used) <= ALLOWANCE,
      };
    },
  },
  {
    name: `${CUSTOMERS} new customers of one reseller, ${STREAMS} streams each, each with an image of ${PICTURE_TOKENS} tokens`,
    replicas: 2,
    run: (shop, begin) =>
      burst(shop, begin, {
        over: { stream: true, max_tokens: 10, messages: [{ role: "user", content: [PICTURE] }] },
        usage: { prompt_tokens: PICTURE_TOKENS, completion_tokens: 5 },
        waves: 1,
      }),
  },
  ...[true, false].map(
    (stream): Attack => ({
      name: `the same with a provider that ignores the output cap, ${WAVES} times; ${stream ? "streams" : "not streamed"}`,
      replicas: 2,
      run: (shop, begin) =>
        burst(shop, begin, {
          over: { stream, max_tokens: 100 },
          usage: { prompt_tokens: 20, completion_tokens: OVERRUN_TOKENS },
          waves: WAVES,
        }),
    }),
  ),
];

type Burst = {
  over: Record<string, unknown>;
  usage: { prompt_tokens: number; completion_tokens: number };
  waves: number;
};

async function burst(shop: Shop, begin: Begin, { over, usage, waves }: Burst): Promise<Outcome> {
  const { world, provider } = shop;
  const reseller = await world.addReseller();
  const customerWith = async (nanoUsd: bigint) => {
    const person = await world.addCustomer(reseller.accountId);
    await world.setBalance(person, nanoUsd);
    return { ...person, ...(await world.addKey(person, { mode: "payg" })) };
  };
  const attackers = await Promise.all(Array.from({ length: CUSTOMERS }, () => customerWith(BALANCE)));
  const neighbour = await customerWith(BALANCE);
  provider.when(({ body }) => body.includes("attack"), { usage, tokens: 5, delayMs: 200 });
  await begin();
  const before = provider.callCount();
  const callsOf: number[] = [];
  for (let wave = 0; wave < waves; wave++) {
    const sent = provider.callCount();
    const body = { model: "vendor/chat-b", user: "attack", metadata: { attack: "attack" }, ...over };
    const asks = attackers.flatMap(({ secret }) =>
      Array.from({ length: STREAMS }, (_, n) => shop.chat(secret, body, { origin: originOf(shop, n) })),
    );
    await Promise.all(asks);
    callsOf.push(provider.callCount() - sent);
    await sleep(KNOWN_MS);
  }
  const calls = provider.callCount() - before;
  const refused = (
    await Promise.all(
      [0, 1].map((n) => shop.chat(neighbour.secret, { model: "vendor/chat-b" }, { origin: originOf(shop, n) })),
    )
  ).filter(({ status }) => status !== 200);
  const balances = await Promise.all(attackers.map(({ accountId }) => shop.counters(accountId)));
  const paid = balances.reduce((sum, { balance }) => sum + (Number(BALANCE) - balance) / 1e9, 0);
  const billed = calls * (usage.prompt_tokens * INPUT_USD + usage.completion_tokens * OUTPUT_USD);
  const [row] = await world.sql`
    select coalesce(sum(shortfall_nano_usd), 0)::float8 / 1e9 as shortfall from receipts
    where account_id = any(${attackers.map(({ accountId }) => accountId)})`;
  const shortfall = Number(row?.shortfall);
  return {
    attacker: `${calls} provider calls (by wave: ${callsOf.join(", ")}), paid $${paid.toFixed(2)}, billed $${billed.toFixed(2)}, recorded as a loss $${shortfall.toFixed(2)}`,
    others: `a customer of the same reseller: ${refused.length} of 2 refused`,
    // Nothing is unpaid that no receipt has; and who left much unpaid reaches no provider any more.
    isStopped: Math.abs(billed - paid - shortfall) < 0.01 && (billed - paid < 0.01 || callsOf.at(-1) === 0),
  };
}

function originOf(shop: Shop, n: number): string {
  return shop.replicas[n % shop.replicas.length]?.origin ?? shop.origin;
}
