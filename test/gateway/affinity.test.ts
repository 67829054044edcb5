import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import { closeBalanced } from "./checks.ts";
import { type KeyShop, MODEL, openKeyShop } from "./key_shop.ts";

/** Cache affinity on three replicas with four keys, which share nothing for it. Source: PRV-17, PRV-18. */

setDefaultTimeout(300_000);
const CONVERSATIONS = 1_000;
const TURNS = 5;
const AT_ONCE = 16;
let keys: KeyShop;
let people: { secret: string }[];

beforeAll(async () => {
  keys = await openKeyShop({ keys: 4, replicas: 3 });
  people = await Promise.all(Array.from({ length: 10 }, () => keys.customer()));
});
afterAll(() => closeBalanced(keys.shop, keys.close));

/** Sends one turn of every conversation, on changing replicas. Returns the key that served each conversation. */
async function turn(number: number): Promise<number[]> {
  keys.provider.reset();
  const served: number[] = [];
  const keyByRequest = new Map<string, number>();
  const requests: [conversation: number, requestId: string][] = [];
  let next = 0;
  const work = async () => {
    for (let i = next++; i < CONVERSATIONS; i = next++) {
      const origin = keys.origins[(i + number) % keys.origins.length] ?? "";
      const { secret } = people[i % people.length] ?? { secret: "" };
      const answer = await keys.shop.chat(secret, { model: MODEL, messages: messagesOf(i, number) }, { origin });
      expect(answer.status).toBe(200);
      requests.push([i, answer.headers.get("x-request-id") ?? ""]);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  for (const call of keys.provider.calls())
    if (call.generation && call.status === 200)
      keyByRequest.set(String(call.headers["x-request-id"]), keys.keyOf(call));
  for (const [i, id] of requests) served[i] = keyByRequest.get(id) ?? 0;
  return served;
}

const messagesOf = (conversation: number, number: number) => [
  { role: "system", content: "You are terse." },
  { role: "user", content: `Conversation ${conversation}` },
  ...Array.from({ length: number }, (_, i) => [
    { role: "assistant", content: `Answer ${i}` },
    { role: "user", content: `Turn ${i}` },
  ]).flat(),
];

const differing = (a: readonly number[], b: readonly number[]) => a.flatMap((key, i) => (key === b[i] ? [] : [i]));

test("the turns of 1,000 conversations stay on their keys; only a disabled key's conversations move, and they return when it is back", async () => {
  const first = await turn(0);
  for (const key of [1, 2, 3, 4]) expect(first.filter((one) => one === key).length).toBeWithin(200, 300);
  let stayed = CONVERSATIONS;
  for (let number = 1; number < TURNS; number++) stayed += CONVERSATIONS - differing(first, await turn(number)).length;
  expect(stayed / (CONVERSATIONS * TURNS)).toBeGreaterThanOrEqual(0.99);

  const own = first.flatMap((key, i) => (key === 1 ? [i] : []));
  const refused = JSON.stringify({ error: { message: "no", type: "x", code: "invalid_api_key", param: null } });
  let isFaulty = true;
  const setFault = () =>
    keys.provider.when(({ headers }) => isFaulty && headers.authorization === keys.bearer(1), {
      status: 401,
      body: refused,
    });
  setFault();
  // Another account's equal conversation may go to another key.
  const [moved = 0] = own;
  const { secret } = people[moved % people.length] ?? { secret: "" };
  await until(async () => {
    await keys.shop.chat(secret, { model: MODEL, messages: messagesOf(moved, 0) });
    return (await keys.states())[0] === "quarantined";
  });
  const without = await turnWith(setFault);
  expect(differing(first, without)).toEqual(own);
  for (const key of [2, 3, 4]) expect(own.filter((i) => without[i] === key).length).toBeGreaterThan(own.length / 6);

  isFaulty = false;
  await until(async () => (await keys.states())[0] === "active");
  // The other replicas are told within a moment.
  await until(async () => differing(first, await turn(TURNS)).length === 0);
});

/** A turn under a fault: a turn begins with a reset of the provider. */
async function turnWith(setFault: () => void): Promise<number[]> {
  const reset = keys.provider.reset;
  keys.provider.reset = () => {
    reset();
    setFault();
  };
  try {
    return await turn(TURNS);
  } finally {
    keys.provider.reset = reset;
  }
}
