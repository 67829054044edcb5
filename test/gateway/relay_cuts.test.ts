import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import { expectRefusal } from "./checks.ts";
import { type Answer, eventsOf, openShop, PRICES, type Shop } from "./shop.ts";
import { payloadsIn, relayedChunks, shortTranscript, USAGE } from "./transcripts.ts";

/**
 * A provider's connection that breaks at any byte of its stream, through a replica that is a process: the client gets the
 * whole answer and pays, or gets an error and does not pay, unless the finish_reason had arrived. Source: END-3, END-11.
 */
const MODEL = "chat-a";
/** One less than the failures in a row that open a route's breaker. */
const AT_ONCE = 4;
/** So that sent data is read before the connection breaks; unread data is lost with it. */
const CUT_DELAY_MS = 20;
const BALANCE = 1_000_000_000_000n;
const CHARGE =
  USAGE.prompt_tokens * 1000 * (PRICES.inputMicroUsd / 1_000_000) +
  USAGE.completion_tokens * 1000 * (PRICES.outputMicroUsd / 1_000_000);
const { bytes, chunks } = shortTranscript();
const WIRE = new TextDecoder().decode(bytes);
/** What a client that asked for usage gets of it, event by event. */
const EVENTS = [
  ...relayedChunks(chunks, { modelId: MODEL, wantsUsage: true }).filter((chunk) => chunk !== undefined),
  { ...chunks.at(-1), model: MODEL },
];

let shop: Shop;
beforeAll(async () => {
  shop = await openShop();
});
afterAll(async () => {
  try {
    await until(
      async () => (await shop.world.sql`select 1 from escrows where units > 0 or nano_usd > 0 limit 1`).length === 0,
    );
    expect(await shop.world.unbalanced()).toEqual([]);
  } finally {
    await shop.close();
  }
});

type Cut = { at: number; answer: Answer };

/** Calls the model once for every byte of the stream; the provider's connection breaks there. */
async function cutAtEveryByte(secret: string, framing: { chunked?: boolean }): Promise<Cut[]> {
  const call = async (at: number): Promise<Cut> => ({
    at,
    answer: await shop.chat(secret, {
      stream: true,
      stream_options: { include_usage: true },
      messages: [{ role: "user", content: `cut@${at}@` }],
    }),
  });
  const behaviour = { contentType: "text/event-stream", body: WIRE, ...framing };
  const ats = Array.from({ length: bytes.length }, (_, at) => at);
  for (const at of ats) {
    shop.provider.when(({ body }) => body.includes(`cut@${at}@`), {
      ...behaviour,
      cutAfterBytes: at,
      cutDelayMs: CUT_DELAY_MS,
    });
  }
  shop.provider.always(behaviour);
  const cuts: Cut[] = [];
  const run = async () => {
    for (let at = ats.shift(); at !== undefined; at = ats.shift()) {
      const cut = await call(at);
      cuts.push(cut);
      // A cut before the first event is a failure of the route. A good answer after it keeps the breaker closed.
      if (cut.answer.status !== 200) cuts.push(await call(bytes.length));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, run));
  return cuts;
}

/** True if the answer is complete. Fails if it is incomplete without an error. */
function isWhole({ at, answer }: Cut): boolean {
  if (answer.status !== 200) {
    expectRefusal(answer, "provider_unavailable");
    return false;
  }
  const events = eventsOf(answer.text);
  if (events.at(-1) === "[DONE]") {
    expect(events.slice(0, -1).map((event) => JSON.parse(event))).toEqual(EVENTS);
    return true;
  }
  const last = JSON.parse(events.at(-1) ?? "");
  expect({ at, last }).toMatchObject({
    at,
    last: { error: { code: "provider_unavailable" }, request_id: answer.headers.get("x-request-id") },
  });
  expect(answer.text).not.toContain("[DONE]");
  expect(events.slice(0, -1).map((event) => JSON.parse(event))).toEqual(EVENTS.slice(0, events.length - 1));
  return false;
}

/** Whether the answer is incomplete but has its finish_reason: it is charged. */
function isFinished({ answer }: Cut): boolean {
  const events = answer.status === 200 ? eventsOf(answer.text) : [];
  return events.at(-1) !== "[DONE]" && events.some((event) => JSON.parse(event).choices?.[0]?.finish_reason);
}

/** Whether the client got everything that was sent up to the cut, by another parser. */
function isExact({ at, answer }: Cut): boolean {
  const payloads = payloadsIn(bytes.subarray(0, at));
  if (payloads.length === 0) return answer.status === 503;
  const events = eventsOf(answer.text);
  if (payloads.includes("[DONE]")) return events.at(-1) === "[DONE]";
  // The chunk with the usage is only sent at a complete end.
  return answer.status === 200 && events.length === Math.min(payloads.length, EVENTS.length - 1) + 1;
}

describe.each([
  ["in chunks, paid by package", { chunked: true }, false],
  ["with a length, paid by balance", {}, true],
] as const)("%s", (name, framing, isByBalance) => {
  test("streams cut at every byte: usage records = complete or finished answers, provider calls = holds, the books balance", async () => {
    const { secret, accountId } = isByBalance
      ? await shop.payer(BALANCE)
      : await shop.customer({ dailyLimit: 100_000 });
    shop.provider.reset();
    const cuts = await cutAtEveryByte(secret, framing);
    const whole = cuts.filter(isWhole);
    const finished = cuts.filter(isFinished);
    const paid = [...whole, ...finished];
    const exact = cuts.filter(isExact).length;
    console.log(
      `${name}: ${cuts.length} calls, ${whole.length} whole, ${finished.length} finished, ${exact} with all that was sent`,
    );
    expect(finished.length).toBeGreaterThan(0);
    // Every cut before the end gives no answer; the uncut calls give one.
    for (const { at } of cuts.filter((cut) => !whole.includes(cut))) expect(at).toBeLessThan(bytes.length);
    for (const { at } of whole) expect(at).toBeGreaterThanOrEqual(bytes.length - 1);
    expect(exact).toBeGreaterThan(cuts.length * 0.5);

    await until(async () => (await shop.counters(accountId)).holds === 0);
    const receipts = await shop.world
      .sql`select request_id, outcome, reason, estimated, charged_nano_usd from receipts where account_id = ${accountId}`;
    expect(receipts.length).toBe(cuts.length);
    expect(shop.provider.callCount()).toBe(cuts.length);
    const settled = receipts.filter(({ outcome }) => outcome === "settled");
    expect(settled.map(({ request_id }) => request_id).sort()).toEqual(
      paid.map(({ answer }) => answer.headers.get("x-request-id")).sort(),
    );
    // By the provider's usage if it had arrived, otherwise by what was relayed.
    const reported = settled.filter(({ estimated }) => !estimated);
    expect(reported.length).toBeGreaterThan(whole.length);
    if (isByBalance) for (const row of reported) expect(Number(row.charged_nano_usd)).toBe(CHARGE);
    const refused = cuts.filter(({ answer }) => answer.status !== 200).length;
    const reasons = Map.groupBy(receipts, ({ reason }) => String(reason));
    expect(Object.fromEntries([...reasons].map(([reason, rows]) => [reason, rows.length]))).toEqual({
      complete: paid.length,
      provider_failed: refused,
      provider_broke_off: cuts.length - paid.length - refused,
    });
    const counters = await shop.counters(accountId);
    const charged = settled.reduce((sum, row) => sum + Number(row.charged_nano_usd), 0);
    if (isByBalance) expect(counters.balance).toBe(Number(BALANCE) - charged);
    else expect(counters.units).toBe(paid.length);
    expect(await shop.world.unbalanced()).toEqual([]);
  });
});
