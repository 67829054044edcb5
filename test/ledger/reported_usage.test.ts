import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { NAMES_MAX, reportedUsage } from "../../src/ledger/reported_usage.ts";
import { holds } from "../property.ts";
import { createWorld, type World } from "../world.ts";
import { openWorldLedger, reapLease, requestFor, usageOf } from "./ledger_world.ts";

/** What a receipt keeps of a provider's report. Source: MON-10. */

const KNOWN = { promptTokens: 100, cachedTokens: 20, completionTokens: 50 };
const COUNTED = {
  prompt_tokens: 100,
  completion_tokens: 50,
  total_tokens: 150,
  prompt_tokens_details: { cached_tokens: 20, audio_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: 0, audio_tokens: 0 },
};
const read = (usage: unknown, known: typeof KNOWN | undefined = KNOWN) =>
  JSON.parse(String(reportedUsage(usage, known)));

test("a report with only the known counts is not kept", () => {
  expect(reportedUsage(COUNTED, KNOWN)).toBeNull();
  expect(reportedUsage(undefined, KNOWN)).toBeNull();
  expect(reportedUsage("many", undefined)).toBeNull();
  expect(reportedUsage({}, undefined)).toBeNull();
});

test("every other count is kept, under any name and at any place", () => {
  expect(
    read({
      ...COUNTED,
      prompt_tokens_details: { cached_tokens: 20, cache_write_tokens: 7, audio_tokens: 3 },
      completion_tokens_details: { reasoning_tokens: 40, accepted_prediction_tokens: 2 },
      cache_creation_input_tokens: 7,
      cache_creation: { ephemeral_5m_input_tokens: 7 },
      prompt_cache_hit_tokens: 20,
      promptTokensDetails: [{ modality: "TEXT", tokenCount: 9 }],
      service_tier: "default",
      is_byok: false,
    }),
  ).toEqual({
    "prompt_tokens_details.cache_write_tokens": 7,
    "prompt_tokens_details.audio_tokens": 3,
    "completion_tokens_details.reasoning_tokens": 40,
    "completion_tokens_details.accepted_prediction_tokens": 2,
    cache_creation_input_tokens: 7,
    "cache_creation.ephemeral_5m_input_tokens": 7,
    prompt_cache_hit_tokens: 20,
    "promptTokensDetails.0.tokenCount": 9,
  });
});

test("a known count that the ledger corrected or rejected is kept as reported", () => {
  expect(read({ ...COUNTED, total_tokens: 151 })).toEqual({ total_tokens: 151 });
  expect(read({ ...COUNTED, prompt_tokens_details: { cached_tokens: 900 } })).toEqual({
    "prompt_tokens_details.cached_tokens": 900,
  });
  expect(reportedUsage({ input_tokens: 5, output_tokens: 6 }, undefined)).toBe('{"input_tokens":5,"output_tokens":6}');
});

test("an amount with a fraction is kept as decimal text", () => {
  expect(read({ cost: 0.00014, tiny: 1e-7, cost_details: { upstream_inference_cost: 1.5 } })).toEqual({
    cost: "0.00014",
    tiny: "0.0000001",
    "cost_details.upstream_inference_cost": "1.5",
  });
});

test("only numbers above zero are kept, and names are truncated and cleaned", () => {
  const bad = { a: -1, b: Number.NaN, c: Number.POSITIVE_INFINITY, d: 2 ** 60, e: "7", f: null, g: 1e-30, h: 1e300 };
  expect(reportedUsage(bad, undefined)).toBeNull();
  const long = "x".repeat(5000);
  const kept = read({ [long]: 1, 'a\u0000b"c\\': 2, __proto__x: 3, constructor: 4 }, undefined);
  expect(kept).toEqual({ ["x".repeat(100)]: 1, a_b_c_: 2, __proto__x: 3, constructor: 4 });
});

test("any report results in a small flat object of numbers", () => {
  holds(
    fc.property(fc.anything({ maxDepth: 6, withNullPrototype: true }), (usage) => {
      const text = reportedUsage(usage, undefined);
      if (text === null) return;
      expect(text.length).toBeLessThan(NAMES_MAX * 130);
      for (const [name, value] of Object.entries(JSON.parse(text))) {
        expect(name).toMatch(/^[\w.:-]{0,100}$/);
        expect(typeof value === "number" ? Number.isSafeInteger(value) && value > 0 : typeof value === "string").toBe(
          true,
        );
      }
    }),
  );
  const many = JSON.parse(`{${Array.from({ length: 100_000 }, (_, i) => `"n${i}":${i + 1}`).join(",")}}`);
  expect(Object.keys(read(many, undefined))).toHaveLength(NAMES_MAX);
  let deep: unknown = 1;
  for (let i = 0; i < 10_000; i++) deep = { deep };
  expect(reportedUsage(deep, undefined)).toBeNull();
});

const RAW = { prompt_tokens: 10, completion_tokens: 20, prompt_tokens_details: { cache_write_tokens: 6 } };
const KEPT = { "prompt_tokens_details.cache_write_tokens": 6 };

let world: World;
beforeAll(async () => {
  world = await createWorld();
});
afterAll(() => world.close());

async function customer() {
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  await world.givePackage(person);
  return { ask: () => requestFor(person, key) };
}
async function kept(requestId: string): Promise<unknown> {
  const [row] = await world.sql`select reported_usage from receipts where request_id = ${requestId}`;
  return row?.reported_usage;
}

test("each receipt of a batch keeps its own report, or none", async () => {
  const open = await openWorldLedger(world);
  const { ask } = await customer();
  const holds = await Promise.all(Array.from({ length: 6 }, () => open.ledger.reserve(ask())));
  const rawOf = (i: number) =>
    i % 2 === 0 ? undefined : { ...RAW, prompt_tokens_details: { cache_write_tokens: i }, 'quo"te\\d, {x}': i };
  await Promise.all(holds.map((hold, i) => open.ledger.settle(hold, usageOf({ rawUsage: rawOf(i) }))));
  for (const [i, { requestId }] of holds.entries()) {
    const report = { "prompt_tokens_details.cache_write_tokens": i, quo_te_d___x_: i };
    expect(await kept(requestId)).toEqual(i % 2 === 0 ? null : report);
  }
  await open.close();
});

test("a late settlement keeps its report", async () => {
  const open = await openWorldLedger(world);
  const hold = await open.ledger.reserve((await customer()).ask());
  expect(await reapLease(world, hold.leaseId)).toBe(1);
  await open.ledger.settle(hold, usageOf({ rawUsage: RAW }));
  expect(await kept(hold.requestId)).toEqual(KEPT);
  await open.close();
});

test("a spooled settlement keeps its report", async () => {
  const open = await openWorldLedger(world, { spool: "reported" });
  const hold = await open.ledger.reserve((await customer()).ask());
  // The process ends while the settlement is being sent. The next process replays its spool.
  const settling = open.ledger.settle(hold, usageOf({ rawUsage: RAW }));
  await open.ledger.abandon();
  expect((await settling).spooled).toBe(true);
  await open.db.close();
  const next = await openWorldLedger(world, { spool: "reported" });
  expect(await next.ledger.replaySpool()).toBe(1);
  expect(await kept(hold.requestId)).toEqual(KEPT);
  await next.close();
});
