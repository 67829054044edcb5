import { expect, test } from "bun:test";
import fc from "fast-check";
import { affinityOf, drawsOf } from "../../src/catalog/affinity.ts";
import { orderKeys } from "../../src/catalog/key_pool.ts";
import { holds } from "../property.ts";
import { route } from "./sockets.ts";

/** Cache affinity as arithmetic. On replicas: test/gateway/affinity.test.ts. Source: PRV-17, PRV-18. */

const user = (content: unknown) => ({ role: "user", content });
const system = (content: unknown) => ({ role: "system", content });
const turns = (first: string, later: number) => [
  system("You are terse."),
  user(first),
  ...Array.from({ length: later }, (_, i) => (i % 2 === 0 ? { role: "assistant", content: `a${i}` } : user(`q${i}`))),
];
const keyed = (weights: readonly number[]) =>
  weights.map((weight, i) => ({ ...route("https://a.example/v1"), key: { id: i + 1, name: `k${i + 1}`, weight } }));
const firstKey = (affinity: number, weights: readonly number[]) =>
  orderKeys(keyed(weights), drawsOf(affinity))[0]?.key.id ?? 0;
const shareOf = (weights: readonly number[], seeds = 20_000): number[] => {
  const counts = weights.map(() => 0);
  for (let i = 0; i < seeds; i++) {
    const id = firstKey(affinityOf(1, { messages: [user(`conversation ${i}`)] }), weights);
    counts[id - 1] = (counts[id - 1] ?? 0) + 1;
  }
  return counts.map((count) => count / seeds);
};

test("all turns of a conversation have the same affinity; another first message, or another account, has another", () => {
  const first = affinityOf(1, { messages: turns("Why toll gates?", 0) });
  for (let later = 1; later < 9; later++)
    expect(affinityOf(1, { messages: turns("Why toll gates?", later) })).toBe(first);
  expect(affinityOf(1, { messages: turns("Why bridges?", 0) })).not.toBe(first);
  expect(affinityOf(2, { messages: turns("Why toll gates?", 0) })).not.toBe(first);
});

test("prompt_cache_key decides the affinity, else user, else the beginning of the prompt", () => {
  const messages = turns("one", 0);
  const others = turns("two", 4);
  const of = (body: Record<string, unknown>) => affinityOf(7, body);
  expect(of({ messages, user: "u", prompt_cache_key: "c" })).toBe(
    of({ messages: others, user: "v", prompt_cache_key: "c" }),
  );
  expect(of({ messages, user: "u" })).toBe(of({ messages: others, user: "u" }));
  expect(of({ messages, user: "c" })).not.toBe(of({ messages, prompt_cache_key: "c" }));
  for (const empty of [null, "", undefined, 7])
    expect(of({ messages, user: empty, prompt_cache_key: empty })).toBe(of({ messages }));
});

test("parts of a message count: texts, and the addresses of images", () => {
  const of = (content: unknown) => affinityOf(1, { messages: [user(content)] });
  const image = (url: string) => ({ type: "image_url", image_url: { url } });
  const first = of([{ type: "text", text: "What is this?" }, image("https://a.example/1.png")]);
  expect(of([{ type: "text", text: "What is this?" }, image("https://a.example/1.png")])).toBe(first);
  expect(of([{ type: "text", text: "What is this?" }, image("https://a.example/2.png")])).not.toBe(first);
  expect(of([{ type: "text", text: "And this?" }, image("https://a.example/1.png")])).not.toBe(first);
});

test("every body has an affinity, and a megabyte costs no more than its beginning", () => {
  for (const messages of [undefined, null, 7, [], [null], [{}], [user(null)], [user([null, 7, {}])], [[]]])
    expect(Number.isInteger(affinityOf(1, { messages }))).toBe(true);
  // What follows the beginning is not read: it changes nothing.
  const long = "x".repeat(1_000_000);
  expect(affinityOf(1, { messages: [user(`${long}a`)] })).toBe(affinityOf(1, { messages: [user(`${long}b`)] }));
  expect(affinityOf(1, { messages: [user(`a${long}`)] })).not.toBe(affinityOf(1, { messages: [user(`b${long}`)] }));
});

test("each key is first in proportion to its weight", () => {
  for (const share of shareOf([1, 1, 1, 1])) expect(share).toBeWithin(0.235, 0.265);
  const [light = 0, heavy = 0] = shareOf([1, 3]);
  expect(light).toBeWithin(0.235, 0.265);
  expect(heavy).toBeWithin(0.735, 0.765);
});

test("only the share of a removed key moves, evenly to the others; when the key is back, the same share returns", () => {
  const all = keyed([1, 1, 1, 1]);
  const without = all.filter(({ key }) => key.id !== 2);
  const moved = new Map<number, number>();
  let stayed = 0;
  for (let i = 0; i < 10_000; i++) {
    const draw = drawsOf(affinityOf(3, { prompt_cache_key: `c${i}` }));
    const before = orderKeys(all, draw)[0]?.key.id ?? 0;
    const after = orderKeys(without, draw)[0]?.key.id ?? 0;
    if (before === after) stayed++;
    else {
      expect(before).toBe(2);
      moved.set(after, (moved.get(after) ?? 0) + 1);
    }
  }
  expect(stayed).toBeWithin(7_300, 7_700);
  for (const id of [1, 3, 4]) expect(moved.get(id) ?? 0).toBeWithin(730, 940);
});

test("fields of any type have an affinity: nothing throws", () => {
  const value = fc.jsonValue().chain((json) => fc.constantFrom(json, { toString: 1, valueOf: 1 }, [{ toString: 1 }]));
  const message = fc.record({ role: value, content: value });
  const body = fc.record({ prompt_cache_key: value, user: value, messages: fc.oneof(value, fc.array(message)) });
  holds(fc.property(body, (fields) => expect(affinityOf(1, fields)).toBeNumber()));
});
