import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Model } from "../../src/catalog/catalog.ts";
import { Refusal } from "../../src/errors.ts";
import { ANSWER_BYTES_MAX, checkChatAnswer, checkOwnAnswer } from "../../src/gateway/answer_size.ts";
import type { Filtered } from "../../src/gateway/filtering.ts";
import type { ChatBody } from "../../src/gateway/request_shapes.ts";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, expectRefusal, withoutEffect } from "./checks.ts";
import { chatBody, openShop, responsesBody, type Shop } from "./shop.ts";

/** No request can bring about an answer that is too large to be read, which nobody would pay. Source: END-16, PRV-8. */
const MIB = 1024 * 1024;
/** A token of four letters, as most have. */
const ENTRY = { token: "word", logprob: -12.345678, bytes: [119, 111, 114, 100] };

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ models: [{ id: "own", routes: [{ provider: "first", ownResponses: true }] }] });
});
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop));

describe("what a request may ask for", () => {
  const UNFILTERED: Filtered = { changed: new Map(), dropped: undefined };
  const model: Pick<Model, "contextLength" | "defaultCapTokens"> = { contextLength: null, defaultCapTokens: 4096 };
  /** The field that is to be changed; null: the answer fits. */
  const refusedField = (check: () => void): string | null => {
    try {
      check();
      return null;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return error.facts.param ?? null;
    }
  };
  const refused = (over: Record<string, unknown>, limits = model, filtered = UNFILTERED) =>
    refusedField(() => checkChatAnswer(chatBody(over) as ChatBody, filtered, limits));

  test("fits: one choice of any length without log probabilities, and usual numbers of choices and log probabilities", () => {
    for (const over of [
      {},
      { max_tokens: 2_000_000_000 },
      { n: 64 },
      { n: 128, max_tokens: 2_048 },
      { n: 8, max_completion_tokens: 32_768 },
      { logprobs: true, top_logprobs: 20 },
      { logprobs: true, top_logprobs: 5, n: 5, max_tokens: 4_000 },
      { logprobs: true, max_tokens: 100_000 },
      { logprobs: false, top_logprobs: null, n: 64 },
    ])
      expect([over, refused(over)]).toEqual([over, null]);
  });

  test("does not fit: the field that makes it too large is named", () => {
    for (const [over, param] of [
      [{ n: 128, logprobs: true, top_logprobs: 20 }, "top_logprobs"],
      [{ logprobs: true, top_logprobs: 20, max_tokens: 16_384 }, "top_logprobs"],
      [{ n: 128, logprobs: true }, "logprobs"],
      [{ n: 128 }, "n"],
      [{ n: 8, max_tokens: 40_000 }, "n"],
      [{ n: 2, max_tokens: 140_000 }, "n"],
    ] as const)
      expect([over, refused(over)]).toEqual([over, param]);
  });

  test("a stream is not read whole; what is dropped does not count; no model writes more than its context", () => {
    const huge = { n: 128, logprobs: true, top_logprobs: 20 };
    expect(refused({ ...huge, stream: true })).toBeNull();
    const changed = new Map<string, unknown>([
      ["logprobs", undefined],
      ["top_logprobs", undefined],
    ]);
    expect(refused({ ...huge, n: 64 }, model, { changed, dropped: "logprobs, top_logprobs" })).toBeNull();
    expect(refused({ n: 16, max_tokens: 2_000_000_000 }, { ...model, contextLength: 16_384 })).toBeNull();
  });

  test("the largest answer that is asked for fits, also if its JSON is indented", () => {
    let tokens = 1;
    while (refused({ logprobs: true, top_logprobs: 20, max_tokens: tokens + 1 }) === null) tokens++;
    expect(tokens).toBeGreaterThan(4096);
    const content = Array(tokens).fill({ ...ENTRY, top_logprobs: Array(20).fill(ENTRY) });
    const answer = { choices: [{ index: 0, message: { content: "word".repeat(tokens) }, logprobs: { content } }] };
    expect(JSON.stringify(answer, null, 2).length).toBeLessThan(32 * MIB);
  });

  test("several choices of the longest tokens fit", () => {
    let tokens = 1;
    while (refused({ n: 8, max_tokens: tokens + 1 }) === null) tokens++;
    const choice = {
      index: 0,
      message: { role: "assistant", content: " ".repeat(128 * tokens) },
      finish_reason: "stop",
    };
    const answer = { id: "x", choices: Array(8).fill(choice), usage: {} };
    expect(JSON.stringify(answer, null, 2).length).toBeLessThan(ANSWER_BYTES_MAX);
  });

  test("of a provider's own /responses: the last event of a stream has all of it, so less fits", () => {
    const own = (over: Record<string, unknown>) => refusedField(() => checkOwnAnswer(over, model));
    const include = ["message.output_text.logprobs"];
    expect(own({ max_output_tokens: 2_000_000_000 })).toBeNull();
    expect(own({ include, top_logprobs: 20, max_output_tokens: 6_000 })).toBeNull();
    expect(own({ include, top_logprobs: 20, max_output_tokens: 8_000 })).toBe("top_logprobs");
    expect(own({ include, top_logprobs: 20, max_output_tokens: 6_000, stream: true })).toBe("top_logprobs");
    expect(own({ include, top_logprobs: 20, max_output_tokens: 1_500, stream: true })).toBeNull();
    expect(own({ include, max_output_tokens: 100_000, stream: true })).toBe("include");
    // Only where an admin allows the parameter as it comes.
    expect(own({ top_logprobs: "20", max_output_tokens: 8_000 })).toBe("top_logprobs");
  });
});

describe("a request for more", () => {
  test("is 400 before anything is reserved or sent, for packages and balances; as a stream it is served", async () => {
    const huge = { n: 128, logprobs: true, top_logprobs: 20 };
    for (const { secret } of [await shop.customer(), await shop.payer(1_000_000_000n)]) {
      await withoutEffect(shop, async () => {
        const refused = await shop.chat(secret, huge);
        expectRefusal(refused, "invalid_request", { param: "top_logprobs" });
        expect(refused.json.error.message).toContain("32 MiB");
        const own = { model: "own", top_logprobs: 20, max_output_tokens: 8_000 };
        const response = await shop.call("/v1/responses", { secret, body: responsesBody(own) });
        expectRefusal(response, "invalid_request", { param: "top_logprobs" });
      });
    }
    const { secret } = await shop.customer();
    const asText = { model: "own", include: ["message.output_text.logprobs"], top_logprobs: "20", stream: true };
    const served = await shop.call("/v1/responses", { secret, body: responsesBody(asText) });
    expect(served.headers.get("x-dropped-params")).toBe("top_logprobs");
    expect(JSON.parse(shop.provider.lastCall()?.body ?? "{}")).not.toHaveProperty("top_logprobs");
    expect((await shop.chat(secret, { ...huge, n: 2, stream: true })).status).toBe(200);
    expect((await shop.chat(secret, { n: 2, logprobs: true, top_logprobs: 5, max_tokens: 100 })).status).toBe(200);
  });

  test("an answer that is too large all the same is the provider's failure: 503, nobody pays, and no other route is asked", async () => {
    const { accountId, secret } = await shop.payer(1_000_000_000n);
    shop.provider.next({ giantLineBytes: 33 * MIB });
    // Another route would make it again, at the operator's cost.
    const refused = await shop.chat(secret, { model: "chat-two-routes" });
    expectRefusal(refused, "provider_unavailable");
    expect(refused.headers.get("x-should-retry")).toBe("false");
    expect(shop.second.callCount()).toBe(0);
    await until(async () => (await shop.counters(accountId)).released === 1);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, holds: 0, balance: 1_000_000_000 });
  });
});
