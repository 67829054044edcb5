import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { drawn } from "../ledger/ledger_world.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, expectRefusal, rawCall, withoutEffect } from "./checks.ts";
import { expectConflict, isFirst, isReplay } from "./idempotent_answers.ts";
import { ask, METERED_MODELS, METERED_ROWS, type MeteredRow, modelOf } from "./metered_endpoints.ts";
import { type Answer, type CallOptions, openShop, type Shop } from "./shop.ts";

/**
 * The same rules for every metered endpoint: in each situation who pays, what is recorded, what the client sees, and how many calls the
 * provider gets. The rows are in metered_endpoints.ts. Source: API-14, EMB-1, ERR-2, ERR-5, ERR-11, END-1, END-2, END-3, END-4, END-5,
 * END-6, END-7, END-12, IDE-2, MON-7, PRV-2, QUO-1.
 */
const BALANCE = 1_000_000_000;
const DRAIN_SECONDS = 6;
let shop: Shop;
/** One request a minute. */
let narrow: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop({ env: { CACHE_TTL_MS: "100" }, models: METERED_MODELS });
  // Without Redis, whose counts other test files share.
  narrow = await shop.start({ RATE_PER_MINUTE: "1", REDIS_URL: "" });
});
afterEach(() => {
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop, narrow.kill));

const calls = () => shop.provider.callCount() + shop.second.callCount();

/** The one receipt of an account, once its request has ended. */
async function receiptOf(accountId: number): Promise<Record<string, unknown>> {
  const find = () => shop.world.sql`select * from receipts where account_id = ${accountId}`;
  await until(async () => (await find()).length === 1);
  await until(async () => (await shop.counters(accountId)).holds === 0);
  return (await find())[0] as Record<string, unknown>;
}

async function expectReleased(accountId: number, reason: string): Promise<void> {
  expect(await receiptOf(accountId)).toMatchObject({ outcome: "released", reason, charged_nano_usd: "0" });
  expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
}

/** A good answer of the first route: failures in a row would open its breaker. */
async function heal(row: MeteredRow, model: "main" | "two-routes" = "main"): Promise<void> {
  const { secret } = await shop.customer();
  shop.provider.reset();
  await until(async () => (await ask(shop, row, { secret, model })).status === 200);
  expect(shop.provider.callCount()).toBeGreaterThan(0);
}

/** A client that leaves once `when` has resolved. */
async function leaves(
  row: MeteredRow,
  options: CallOptions & { model?: "main" | "hides" },
  when: () => Promise<unknown>,
) {
  const leave = new AbortController();
  const { secret = "", model, headers } = options;
  const asked = fetch(`${shop.origin}${row.path}`, {
    method: "POST",
    signal: leave.signal,
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", ...headers },
    body: JSON.stringify({ model: modelOf(row, model), ...row.body("that is left") }),
  }).then(async (response) => {
    const reader = response.body?.getReader();
    while (!(await reader?.read())?.done) {}
  });
  const left = asked.catch(() => {}); // Aborted below.
  await when();
  leave.abort();
  await left;
}

type Expected = NonNullable<Parameters<typeof expectRefusal>[2]>;
type Prepared = { secret: string; accountId: number };

describe.each(METERED_ROWS.map((row) => [row.name, row] as const))("%s", (_, row) => {
  const send = (secret: string, options: Omit<Parameters<typeof ask>[2], "secret"> = {}) =>
    ask(shop, row, { secret, ...options });

  // Refusals are decided before the route, and so before it matters whether its provider has the endpoint itself.
  const others = METERED_ROWS.filter(
    ({ path, stream }) => path === row.path && (stream === null) === (row.stream === null),
  );
  if (others[0] === row)
    describe("is refused: no provider is called, nothing is charged or recorded", () => {
      const refused = async (answering: () => Promise<Answer>, code: string, expected: Expected = {}) => {
        const answer = await withoutEffect(shop, answering);
        expectRefusal(answer, code, expected);
        return answer.json.error;
      };
      /** A customer who has used up what the package allows. */
      const usedUp = async (spec: Parameters<Shop["customer"]>[0], times: number): Promise<Prepared> => {
        const customer = await shop.customer(spec);
        for (let i = 0; i < times; i++) expect((await send(customer.secret)).status).toBe(200);
        return customer;
      };

      test("401 invalid_api_key: no key, an unknown one, a disabled, revoked or expired one, a suspended account", async () => {
        await refused(() => ask(shop, row, {}), "invalid_api_key");
        await refused(() => send("sk-unknown"), "invalid_api_key");
        for (const status of ["disabled", "revoked"]) {
          const { secret, keyId } = await shop.customer();
          await shop.world.sql`update keys set status = ${status} where id = ${keyId}`;
          await refused(() => send(secret), "invalid_api_key");
        }
        const expired = await shop.customer({}, { expiresAt: "2020-01-01T00:00:00Z" });
        await refused(() => send(expired.secret), "invalid_api_key");
        const suspended = await shop.customer();
        await shop.world.sql`update accounts set status = 'suspended' where id = ${suspended.accountId}`;
        await refused(() => send(suspended.secret), "invalid_api_key");
      });

      test("401 invalid_api_key: a key that is disabled while it is in use", async () => {
        const { secret, keyId } = await shop.customer();
        expect((await send(secret)).status).toBe(200);
        await shop.world.sql`update keys set status = 'disabled' where id = ${keyId}`;
        await until(async () => (await send(secret)).status === 401);
        await refused(() => send(secret), "invalid_api_key");
      });

      test("403 host_not_allowed", async () => {
        const { secret } = await shop.customer();
        await refused(() => send(secret, { host: "foreign.test" }), "host_not_allowed");
      });

      test("429 too_many_requests, with Retry-After below 60 s", async () => {
        const { secret } = await shop.customer();
        expect((await send(secret, { origin: narrow.origin })).status).toBe(200);
        const answer = await withoutEffect(shop, () => send(secret, { origin: narrow.origin }));
        expectRefusal(answer, "too_many_requests");
        expect(Number(answer.headers.get("retry-after"))).toBeLessThan(60);
      });

      test("413, 415 and 400 for a body that is too large, of another type, or no JSON object", async () => {
        const { secret } = await shop.customer();
        const head = `POST ${row.path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n`;
        const port = shop.replicas[0]?.port ?? 0;
        await refused(
          () => rawCall(port, `${head}Content-Length: ${20 * 1024 * 1024 + 1}\r\n\r\n{`),
          "request_too_large",
        );
        const headers = { "content-type": "text/plain" };
        await refused(() => send(secret, { headers }), "unsupported_media_type");
        for (const body of ["[]", "{", '{"model":"a","model":"b"}']) {
          const param = body.includes("model") ? "model" : null;
          await refused(() => shop.call(row.path, { secret, body }), "invalid_request", { param });
        }
      });

      test("400 invalid_request: an invalid field, no model, a model of another modality", async () => {
        const { secret } = await shop.customer();
        const { over, param } = row.invalid;
        await refused(() => send(secret, { over }), "invalid_request", { param });
        await refused(() => send(secret, { over: { model: 5 } }), "invalid_request", { param: "model" });
        await refused(() => send(secret, { over: { model: row.wrongModel } }), "invalid_request", { param: "model" });
      });

      test("400 invalid_request: a part of the prompt that cannot be sent, beside one that can", async () => {
        const { secret } = await shop.customer();
        const { over, param } = row.unsent;
        await refused(() => send(secret, { over }), "invalid_request", { param });
      });

      test("404 model_not_found: unknown, or outside the key's scope", async () => {
        const { secret } = await shop.customer({}, { modelIds: [modelOf(row, "unpriced")] });
        await refused(() => send(secret, { over: { model: "nobody" } }), "model_not_found", { param: "model" });
        await refused(() => send(secret), "model_not_found", { param: "model" });
      });

      test("403 model_not_in_package", async () => {
        const { secret } = await shop.customer({ modelIds: [modelOf(row, "unpriced")] });
        await refused(() => send(secret), "model_not_in_package", { param: "model" });
      });

      test("402 package_required: no package, and a pay-as-you-go key whose account has it off", async () => {
        for (const keySpec of [{}, { mode: "payg" }] as const) {
          const { secret } = await shop.customer(null, keySpec);
          await refused(() => send(secret), "package_required");
        }
      });

      test("402 package_expired: the key is kept, and works under a new package", async () => {
        const person = await shop.customer();
        const [row_] = await shop.world.sql`select id from packages where account_id = ${person.accountId}`;
        await shop.world.sql`select end_package(${person.accountId}, ${row_?.id})`;
        await refused(() => send(person.secret), "package_expired");
        await shop.world.givePackage(person);
        // It was granted without the panel, so it takes effect when the remembered refusal expires.
        await until(async () => (await send(person.secret)).status === 200);
      });

      test("402 package_quota_exceeded, with limit, used and remaining", async () => {
        const { secret } = await usedUp({ dailyLimit: 10, totalLimit: 1 }, 1);
        const error = await refused(() => send(secret), "package_quota_exceeded");
        expect(error).toMatchObject({ limit: 1, used: 1, remaining: 0 });
      });

      test("402 daily_quota_exceeded, with the next midnight", async () => {
        const { secret } = await usedUp({ dailyLimit: 2, days: 3 }, 2);
        const error = await refused(() => send(secret), "daily_quota_exceeded");
        expect(error).toMatchObject({ limit: 2, used: 2, remaining: 0 });
        expect(error.resets_at).toMatch(/^\d{4}-\d\d-\d\dT00:00:00(\.0+)?Z$/);
        expect(Date.parse(error.resets_at)).toBeGreaterThan(Date.now());
      });

      test("402 carryover_quota_exceeded; resets_at is null when no day is left", async () => {
        for (const [days, resets] of [
          [3, expect.stringMatching(/Z$/)],
          [1, null],
        ] as const) {
          const { secret } = await usedUp({ dailyLimit: 1, days, carryover: true }, 1);
          const error = await refused(() => send(secret), "carryover_quota_exceeded");
          expect(error).toMatchObject({ limit: 1, used: 1, remaining: 0, resets_at: resets });
        }
      });

      test("402 insufficient_balance, with the needed and the available amount", async () => {
        const { secret } = await shop.payer(1_000n);
        const error = await refused(() => send(secret), "insufficient_balance");
        expect(error.remaining).toBe(0.000001);
        expect(error.limit).toBeGreaterThanOrEqual(row.costNano(4, 16) / 1e9);
      });

      test("402 payg_pricing_unavailable; a package serves the same model", async () => {
        const { secret } = await shop.payer(BigInt(BALANCE));
        await refused(() => send(secret, { model: "unpriced" }), "payg_pricing_unavailable");
        expect((await send((await shop.customer()).secret, { model: "unpriced" })).status).toBe(200);
      });

      test("402 key_request_limit_exceeded and key_spend_limit_exceeded", async () => {
        const [one, other] = [await shop.customer(), await shop.payer(BigInt(BALANCE))];
        await shop.world.sql`update keys set daily_units_max = 1 where id = ${one.keyId}`;
        expect((await send(one.secret)).status).toBe(200);
        const error = await refused(() => send(one.secret), "key_request_limit_exceeded");
        expect(error).toMatchObject({ limit: 1, used: 1, remaining: 0, resets_at: expect.any(String) });
        await shop.world.sql`update keys set daily_spend_max_nano_usd = 1000 where id = ${other.keyId}`;
        const spent = await refused(() => send(other.secret), "key_spend_limit_exceeded");
        expect(spent).toMatchObject({ limit: 0.000001, used: 0, remaining: 0.000001, resets_at: expect.any(String) });
      });

      test("402 key_request_limit_exceeded, also while units lie ready that another key of the account has drawn ahead", async () => {
        const limited = await shop.customer();
        const other = await shop.world.addKey(limited);
        await shop.world.sql`update keys set daily_units_max = 1 where id = ${limited.keyId}`;
        const isDrawnAhead = async () => {
          expect((await send(other.secret)).status).toBe(200);
          return (await drawn(shop.world, limited.accountId)).idle_units > 0;
        };
        await until(isDrawnAhead);
        expect((await send(limited.secret)).status).toBe(200);
        await until(isDrawnAhead);
        await refused(() => send(limited.secret), "key_request_limit_exceeded");
      });

      test("405 for another method", async () => {
        const answer = await withoutEffect(shop, () => shop.call(row.path, { method: "GET" }));
        expectRefusal(answer, "method_not_allowed");
        expect(answer.headers.get("allow")).toBe("POST");
      });
    });

  describe("is served", () => {
    test("by a package: one unit, no money, one usage record", async () => {
      const customer = await shop.customer();
      await shop.world.setBalance(customer, 5_000n);
      const answer = await send(customer.secret);
      row.expectAnswer(answer, modelOf(row));
      expect(calls()).toBe(1);
      expect(await receiptOf(customer.accountId)).toMatchObject({
        request_id: answer.headers.get("x-request-id"),
        outcome: "settled",
        reason: "complete",
        model_id: modelOf(row),
        charged_nano_usd: "0",
        estimated: false,
      });
      expect(await shop.counters(customer.accountId)).toMatchObject({ units: 1, usage: 1, balance: 5_000, holds: 0 });
    });

    test("by the balance: exactly the price, within the reservation", async () => {
      const { secret, accountId } = await shop.payer(BigInt(BALANCE));
      row.expectAnswer(await send(secret), modelOf(row));
      const receipt = await receiptOf(accountId);
      const cost = row.costNano(Number(receipt.prompt_tokens), Number(receipt.completion_tokens));
      expect(receipt).toMatchObject({ outcome: "settled", charged_nano_usd: String(cost), shortfall_nano_usd: "0" });
      expect(cost).toBeGreaterThan(0);
      expect(Number(receipt.held_nano_usd)).toBeGreaterThanOrEqual(cost);
      expect(await shop.counters(accountId)).toMatchObject({ units: 0, usage: 1, balance: BALANCE - cost, holds: 0 });
    });

    test("without the parameters that are not supported; they are named", async () => {
      const { secret } = await shop.customer();
      const answer = await send(secret, { over: { unheard_of: "x", service_tier: "priority", another: null } });
      row.expectAnswer(answer, modelOf(row));
      expect(answer.headers.get("x-dropped-params")).toBe("unheard_of, service_tier");
      const sent = JSON.parse(shop.provider.lastCall()?.body ?? "");
      expect(sent.model).toBe(`up-${modelOf(row)}`);
      for (const name of ["unheard_of", "service_tier", "another"]) expect(sent).not.toHaveProperty(name);
    });
  });

  describe("the provider fails before the answer: 503, released, nothing charged", () => {
    const FAILURES: [what: string, behaviour: Behaviour][] = [
      ["500", { status: 500 }],
      ["a page", { html: true }],
      ["a connection that is closed", { cutBeforeHeaders: true }],
      ["a redirect", { redirectTo: "/v1/models" }],
      ["a body that is cut in its first bytes", { cutAfterBytes: 5 }],
      ["an empty body", { body: "" }],
    ];
    test.each(FAILURES)("%s", async (_, behaviour) => {
      const { secret, accountId } = await shop.payer(BigInt(BALANCE));
      shop.provider.next(behaviour);
      expectRefusal(await send(secret), "provider_unavailable");
      expect(calls()).toBe(1);
      await expectReleased(accountId, "provider_failed");
      expect((await shop.counters(accountId)).balance).toBe(BALANCE);
      await heal(row);
    });

    test.each(FAILURES)("the next route serves it, and it is charged once: %s", async (_, behaviour) => {
      const { secret, accountId } = await shop.payer(BigInt(BALANCE));
      shop.provider.next(behaviour);
      row.expectAnswer(await send(secret, { model: "two-routes" }), modelOf(row, "two-routes"));
      expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 1]);
      const receipt = await receiptOf(accountId);
      const cost = row.costNano(Number(receipt.prompt_tokens), Number(receipt.completion_tokens));
      expect(receipt).toMatchObject({ outcome: "settled", charged_nano_usd: String(cost) });
      await heal(row, "two-routes");
    });

    test("both routes fail: 503, released", async () => {
      const { secret, accountId } = await shop.payer(BigInt(BALANCE));
      shop.provider.next({ status: 500 });
      shop.second.next({ status: 500 });
      expectRefusal(await send(secret, { model: "two-routes" }), "provider_unavailable");
      expect(calls()).toBe(2);
      await expectReleased(accountId, "provider_failed");
      await heal(row, "two-routes");
    });
  });

  test("the provider refuses the request itself: 400 with its message, released, and no other route is tried", async () => {
    const { secret, accountId } = await shop.customer();
    const error = { message: "Rejected by the safety system.", type: "invalid_request_error", code: "content_policy" };
    shop.provider.next({ status: 400, body: JSON.stringify({ error }) });
    const answer = await send(secret, { model: "two-routes" });
    expectRefusal(answer, "invalid_request");
    expect(answer.json.error.message).toContain("safety system");
    expect(calls()).toBe(1);
    await expectReleased(accountId, "provider_rejected");
  });

  test("the provider breaks off in the middle: released; the client never sees a complete answer", async () => {
    const { secret, accountId } = await shop.payer(BigInt(BALANCE));
    if (!row.stream) shop.provider.next({ cutAfterBytes: 60 });
    const cut = { tokens: 20, cutAfterChunks: 3 };
    const answer = row.stream ? await shop.brokenOff(cut, (onText) => send(secret, { onText })) : await send(secret);
    if (row.stream) expect(row.stream.brokenBy(answer).code).toBe("provider_unavailable");
    else expectRefusal(answer, "provider_unavailable");
    expect(calls()).toBe(1);
    await expectReleased(accountId, row.stream ? "provider_broke_off" : "provider_failed");
    expect((await shop.counters(accountId)).balance).toBe(BALANCE);
    await heal(row);
  });

  const { stream } = row;
  if (stream !== null)
    test("the provider breaks off after the finish: charged by the known usage; the client keeps the relayed output", async () => {
      const { secret, accountId } = await shop.payer(BigInt(BALANCE));
      const { sent, ends } = stream.finish;
      // Less than what was announced.
      const cut = {
        body: `${sent}data: {"`,
        contentType: "text/event-stream",
        cutAfterBytes: sent.length,
      };
      const hasRead = (text: string) => text.includes("Whole.");
      const answer = await shop.brokenOff(cut, (onText) => send(secret, { onText }), { hasRead });
      if (ends === "whole") expect(stream.isWhole(answer)).toBe(true);
      else expect(stream.brokenBy(answer).message).toContain("It was charged.");
      expect(answer.text).toContain("Whole.");
      const receipt = await receiptOf(accountId);
      const cost = row.costNano(Number(receipt.prompt_tokens), Number(receipt.completion_tokens));
      expect(receipt).toMatchObject({ outcome: "settled", charged_nano_usd: String(cost) });
      expect(cost).toBeGreaterThan(0);
      expect(calls()).toBe(1);
      await heal(row);
    });

  describe("the client leaves", () => {
    const slow: Behaviour = row.stream ? { tokens: 60, chunkDelayMs: 100 } : { delayMs: 2_000 };
    const begun = async (options: CallOptions & { model?: "main" | "hides" }) => {
      shop.provider.next(slow);
      await leaves(row, options, async () => {
        await shop.provider.waitForCalls(1);
        if (row.stream) await Bun.sleep(300);
      });
      return await shop.provider.waitForEnd(shop.provider.lastCall()?.id ?? 0);
    };

    test(`in the middle: ${row.stream ? "the call is aborted" : "the call runs to its end"}, and is settled`, async () => {
      const { secret, accountId } = await shop.payer(BigInt(BALANCE));
      const { outcome } = await begun({ secret });
      expect(outcome).toBe(row.stream ? "aborted" : "complete");
      const receipt = await receiptOf(accountId);
      const cost = row.costNano(Number(receipt.prompt_tokens), Number(receipt.completion_tokens));
      expect(receipt).toMatchObject({
        outcome: "settled",
        reason: "client_left",
        charged_nano_usd: String(cost),
        estimated: row.stream !== null,
      });
      expect(cost).toBeGreaterThan(0);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, balance: BALANCE - cost, holds: 0 });
      expect(calls()).toBe(1);
    });

    test("a package is charged one unit", async () => {
      const { secret, accountId } = await shop.customer();
      await begun({ secret });
      expect(await receiptOf(accountId)).toMatchObject({ outcome: "settled", reason: "client_left" });
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
    });

    test("of a model that hides tokens: the answer is read to its end, and settled by the provider's report", async () => {
      const { secret, accountId } = await shop.customer();
      expect((await begun({ secret, model: "hides" })).outcome).toBe("complete");
      expect(await receiptOf(accountId)).toMatchObject({ outcome: "settled", reason: "client_left", estimated: false });
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
    });

    test("a retry with the same Idempotency-Key is not served again", async () => {
      const { secret, accountId } = await shop.customer();
      const headers = { "idempotency-key": `left-${row.slug}` };
      await begun({ secret, headers });
      await receiptOf(accountId);
      const again = () => send(secret, { text: "that is left", headers });
      if (row.stream) expectConflict(await again(), { inFlight: false });
      // Between its charge and the moment at which it is kept, an answer is in flight.
      else await until(async () => isReplay(await again()));
      expect(calls()).toBe(1);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1 });
    });
  });

  const { overrun } = row;
  if (overrun !== null)
    describe("the answer costs more than was reserved", () => {
      const CHARGE = row.costNano(5_000, overrun.usage?.completion_tokens === undefined ? 0 : 1);

      test("covered by the rest of the balance: the whole charge is taken", async () => {
        const { secret, accountId } = await shop.payer(BigInt(CHARGE));
        shop.provider.next(overrun);
        expect((await send(secret, { model: "over-covered" })).status).toBe(200);
        expect(await receiptOf(accountId)).toMatchObject({ outcome: "settled", charged_nano_usd: String(CHARGE) });
        expect(await shop.counters(accountId)).toMatchObject({ usage: 1, balance: 0 });
      });

      test(`not covered: ${row.stream ? "the reserved amount is charged, and the rest is the operator's loss" : "402, and nothing is charged"}`, async () => {
        const { secret, accountId } = await shop.payer(BigInt(CHARGE - 1));
        shop.provider.next(overrun);
        const answer = await send(secret, { model: "over-rest" });
        expect(calls()).toBe(1);
        const receipt = await receiptOf(accountId);
        if (!row.stream) {
          expectRefusal(answer, "insufficient_balance");
          expect(receipt).toMatchObject({ outcome: "released", charged_nano_usd: "0" });
          expect(await shop.counters(accountId)).toMatchObject({ usage: 0, balance: CHARGE - 1 });
          return;
        }
        expect(row.stream.isWhole(answer)).toBe(true);
        const held = Number(receipt.held_nano_usd);
        expect(receipt).toMatchObject({ charged_nano_usd: String(held), shortfall_nano_usd: String(CHARGE - held) });
        expect(await shop.counters(accountId)).toMatchObject({ usage: 1, balance: CHARGE - 1 - held });
      });
    });

  describe("with an Idempotency-Key", () => {
    const once = (secret: string, key: string, options: Omit<Parameters<typeof ask>[2], "secret"> = {}) =>
      send(secret, { ...options, headers: { "idempotency-key": `${row.slug}-${key}` } });

    test(`a second request is charged nothing: ${row.stream ? "409" : "the same answer"}; another body gets 400`, async () => {
      const { secret, accountId } = await shop.payer(BigInt(BALANCE));
      const first = await once(secret, "twice");
      expect(isFirst(first)).toBe(true);
      await receiptOf(accountId);
      const second = await once(secret, "twice");
      if (row.stream) expectConflict(second, { inFlight: false, first: first.headers.get("x-request-id") });
      else {
        expect(isReplay(second)).toBe(true);
        expect(second.text).toBe(first.text);
        expect(second.headers.get("x-request-id")).toBe(first.headers.get("x-request-id"));
      }
      expectRefusal(await once(secret, "twice", { text: "at dusk" }), "idempotency_mismatch");
      expect(calls()).toBe(1);
      expect((await shop.counters(accountId)).usage).toBe(1);
    });

    test("while the first is in flight, a second gets 409 with Retry-After", async () => {
      const { secret, accountId } = await shop.customer();
      const { held, open } = shop.provider.gate();
      shop.provider.next(held);
      const first = once(secret, "in-flight");
      await shop.provider.waitForCalls(1);
      expectConflict(await once(secret, "in-flight"), { inFlight: true });
      open();
      expect((await first).status).toBe(200);
      expect(calls()).toBe(1);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1 });
    });

    test("after a first that failed or was refused, a second is served and charged once", async () => {
      const { secret, accountId } = await shop.customer(null);
      expectRefusal(await once(secret, "again"), "package_required");
      await shop.world.givePackage({ accountId });
      shop.provider.next({ status: 500 });
      await until(async () => (await once(secret, "again")).status !== 402);
      await until(async () => (await once(secret, "again")).status === 200);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, released: 1 });
    });
  });
});

test("a replica shuts down: requests that end within the drain time are answered and settled, the others are released with an error", async () => {
  const replica = await shop.start({ DRAIN_SECONDS: String(DRAIN_SECONDS) });
  try {
    const { origin } = replica;
    const isStream = (body: string) => body.includes('"stream":true');
    // Each stream has begun when the drain time is over.
    const [whole, stream] = [shop.provider.gate(), shop.provider.gateAfter(2, { tokens: 20 })];
    const ends: [string, Behaviour, Behaviour][] = [
      ["quickly", whole.held, stream.held],
      ["slowly", { hang: "headers" }, { hang: "mid_stream", cutAfterChunks: 2, tokens: 20 }],
    ];
    for (const [word, ofWhole, ofStream] of ends) {
      shop.provider.when(({ body }) => body.includes(word), ofWhole);
      shop.provider.when(({ body }) => body.includes(word) && isStream(body), ofStream);
    }
    const begun = await Promise.all(
      METERED_ROWS.map(async (row) => {
        const [quick, slow] = [await shop.customer(), await shop.customer()];
        // Caught below; a rejection before that must not end the test.
        const served = ask(shop, row, { secret: quick.secret, text: "quickly", origin });
        const cut = ask(shop, row, { secret: slow.secret, text: "slowly", origin });
        return { row, quick, slow, answers: Promise.allSettled([served, cut]) };
      }),
    );
    await shop.provider.waitForCalls(2 * METERED_ROWS.length);
    const exited = replica.stop();
    await until(() => replica.logged().includes('"message":"draining"'));
    whole.open();
    stream.open();
    expect(await exited).toBe(0);
    for (const { row, quick, slow, answers } of begun) {
      const [served, cut] = (await answers).map((one) => (one.status === "fulfilled" ? one.value : undefined));
      if (served === undefined || cut === undefined) throw new Error(`${row.name}: closed without an answer`);
      row.expectAnswer(served, modelOf(row));
      expect(await receiptOf(quick.accountId)).toMatchObject({ outcome: "settled", reason: "complete" });
      if (row.stream) expect(row.stream.brokenBy(cut).code).toBe("service_unavailable");
      else expectRefusal(cut, "service_unavailable");
      await expectReleased(slow.accountId, "ended_by_us");
    }
  } finally {
    await replica.kill();
  }
});
