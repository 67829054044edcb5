import { setTimeout as sleep } from "node:timers/promises";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import type { Shop } from "../../test/gateway/shop.ts";
import type { Attack, Begin, Outcome } from "./attack.ts";

/**
 * Attempts of a customer to let providers work for nothing, with requests that reach the time limits. The limits, and the bound of what
 * is borne in an hour, are shortened: seconds in place of minutes, a minute in place of two hours.
 */

const LIMIT_MS = 2_000;
const BOUND_MINUTES = 1;
const AT_ONCE = 50;
const WAVES = 3;
/** Every replica knows by then who has reached the bound. Source: LOS-3. */
const KNOWN_MS = 3_000;
const BALANCE = 1_000_000_000n;
const MARK = "forever";
const ENV = {
  ...{ PROVIDER_TOTAL_MS: String(LIMIT_MS), PROVIDER_FIRST_BYTE_MS: String(LIMIT_MS) },
  ...{ PROVIDER_IDLE_MS: String(LIMIT_MS), UNPAID_ACCOUNT_MINUTES: String(BOUND_MINUTES) },
};

const WAYS: readonly { what: string; stream: boolean; behaviour: Behaviour }[] = [
  { what: "whole answers beyond the time limit", stream: false, behaviour: { hang: "headers" } },
  { what: "streams with a late first event", stream: true, behaviour: { hang: "first_byte" } },
  { what: "streams with late headers", stream: true, behaviour: { hang: "headers" } },
  { what: "silence in mid-stream", stream: true, behaviour: { tokens: 20, hang: "mid_stream" } },
];

export const unpaidAttacks: Attack[] = WAYS.map(({ what, stream, behaviour }) => ({
  name: `${what}, ${WAVES} times ${AT_ONCE} at once, through two replicas and with two routes`,
  replicas: 2,
  env: ENV,
  run: (shop, begin) => attack(shop, begin, { stream, behaviour }),
}));

type Way = { stream: boolean; behaviour: Behaviour };

async function attack(shop: Shop, begin: Begin, { stream, behaviour }: Way): Promise<Outcome> {
  const { secret, accountId } = await shop.payer(BALANCE);
  for (const provider of [shop.provider, shop.second]) provider.when(({ body }) => body.includes(MARK), behaviour);
  await begin();
  const waves: { refused: number; calls: number }[] = [];
  for (let wave = 0; wave < WAVES; wave++) {
    const before = marked(shop);
    const asked = Array.from({ length: AT_ONCE }, (_, i) => {
      const origin = shop.replicas[i % shop.replicas.length]?.origin ?? shop.origin;
      const messages = [{ role: "user", content: MARK }];
      return shop.chat(secret, { model: "chat-two-routes", stream, messages }, { origin });
    });
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    waves.push({ refused: statuses.filter((status) => status === 429).length, calls: marked(shop) - before });
    // With limits of minutes, the bound is known everywhere long before a wave ends.
    await sleep(KNOWN_MS);
  }
  const calls = waves.reduce((sum, wave) => sum + wave.calls, 0);
  const paid = Number(BALANCE) - (await shop.counters(accountId)).balance;
  return {
    attacker: `${WAVES * AT_ONCE} requests, ${calls} provider calls (by wave: ${waves.map((wave) => wave.calls).join(", ")}), paid $${paid / 1e9}, ${((calls * LIMIT_MS) / 60_000).toFixed(1)} minutes unpaid, refused by wave: ${waves.map(({ refused }) => refused).join(", ")}`,
    isStopped: waves.at(-1)?.refused === AT_ONCE,
  };
}

/** The provider calls of the attacker. */
function marked({ provider, second }: Shop): number {
  const all = [...provider.calls(), ...second.calls()];
  return all.filter(({ generation, body }) => generation && body.includes(MARK)).length;
}
