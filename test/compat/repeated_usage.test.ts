import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeBalanced } from "../gateway/checks.ts";
import { COUNTING } from "../replica.ts";
import { openCompatShop } from "./compat_shop.ts";
import { chunk, DONE, type Entry, STOP } from "./form.ts";
import { expectRead } from "./reads.ts";
import { type Run, runsOf } from "./runs.ts";

/**
 * Usages that are repeated while an answer goes on, with the tokenizer: it tells a count of the first text from one of all of it. The
 * corpus' replicas only estimate. Source: MON-15.
 */
const FIRST = "Toll gates stood on roads";
const TEXT = `${FIRST} whose upkeep travellers paid for.`;
/** By o200k_base. */
const COUNTED = 12;
const usage = (completion_tokens: number) => ({ usage: { prompt_tokens: 5, completion_tokens } });
const streamed = (says: string, events: readonly object[], tokens: number): Entry => ({
  says,
  source: "constructed",
  request: { body: { stream: true, stream_options: { include_usage: true } } },
  provider: { events: [...events, DONE] },
  client: { text: TEXT, usage: [5, tokens, 5 + tokens] },
  charged: { tokens: [5, tokens] },
});
const inTwo = (of: number) => [
  chunk({ content: FIRST }, null, usage(of)),
  chunk({ content: TEXT.slice(FIRST.length) }, null, usage(of)),
  { ...STOP, ...usage(of) },
];
const inThree = (counts: readonly [number, number, number]) =>
  [FIRST, " whose upkeep", " travellers paid for."].map((content, i) =>
    chunk({ content }, i === 2 ? "stop" : null, usage(counts[i] ?? 0)),
  );

const ENTRIES = [
  streamed("the count of the first half, repeated to the end", inTwo(5), COUNTED),
  streamed("the count of each chunk alone", inThree([5, 4, 4]), COUNTED),
  streamed("the count of each chunk alone, the last one the largest", inThree([5, 3, 5]), COUNTED),
  streamed("the count of all, with each chunk", inTwo(COUNTED), COUNTED),
  streamed("the count of all by another tokenizer, which has fewer", inTwo(10), 10),
  streamed("the count of all by another tokenizer, which has more", inTwo(20), 20),
  streamed("the count of all with thinking that is not shown", inTwo(400), 400),
  streamed("a count that grows", inThree([4, 6, 11]), 11),
];

const runs = ENTRIES.flatMap((entry) => runsOf("repeated_usage", entry));
let shop: Awaited<ReturnType<typeof openCompatShop>>;

beforeAll(async () => {
  shop = await openCompatShop(runs, COUNTING);
});
afterAll(() => closeBalanced(shop, shop.stopProvider));

test.each(runs.map((run): [string, Run] => [run.name, run]))("%s", async (_, run) => {
  const { answer, receipt } = await shop.run(run);
  expectRead(run, answer);
  const { charged } = run.entry;
  expect(receipt).toEqual(charged === "nothing" ? { units: 0 } : { units: 1, tokens: [...charged.tokens] });
});
