import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { newApiKey } from "../../src/platform/crypto.ts";
import { until } from "../platform/own_redis.ts";
import { type ReplicaProcess, RUNTIME } from "../replica.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { closeBalanced, ERRORS, expectRefusal, rawCall, withoutEffect } from "./checks.ts";
import { type Answer, type CallOptions, chatBody, embeddingBody, imageBody, openShop, type Shop } from "./shop.ts";

/** Source: API-4, API-11, ERR-1, ERR-2, ERR-3, ERR-5, ERR-8, ERR-11, KEY-1, KEY-2, KEY-5, ADM-8, MON-9, MOD-2. */

const BASE = "api.tollgate.test";
const _ALIAS = "tollgate.test";

let shop: Shop;
/** One request a minute. */
let narrow: ReplicaProcess;

beforeAll(async () => {
  // Without Redis: a busy one that answers late would have the replica count by itself, from zero.
  shop = await openShop({ redisUrl: "", env: { CACHE_TTL_MS: "100" } });
  narrow = await shop.start({ RATE_PER_MINUTE: "1", REDIS_URL: "" });
});
afterAll(() => closeBalanced(shop, narrow.kill));

/** Refused the same way for JSON and streams, and without effect. */
async function expectChatRefused(
  secret: string,
  code: string,
  over: Record<string, unknown> = {},
  expected: Parameters<typeof expectRefusal>[2] = {},
): Promise<Answer> {
  return withoutEffect(shop, async () => {
    expectRefusal(await shop.chat(secret, { ...over, stream: true }), code, expected);
    const answer = await shop.chat(secret, over);
    expectRefusal(answer, code, expected);
    return answer;
  });
}

/** Refusals that metered_endpoints.test.ts has for every metered endpoint. */
const IN_METERED_ENDPOINTS = [
  "package_required",
  "package_expired",
  "package_quota_exceeded",
  "daily_quota_exceeded",
  "carryover_quota_exceeded",
  "insufficient_balance",
  "key_request_limit_exceeded",
  "key_spend_limit_exceeded",
  "model_not_in_package",
  "provider_unavailable",
];

describe("every row of the table", () => {
  const proven = new Set<string>();
  const row = (code: string, what: string, prove: () => Promise<void>) =>
    test(`${ERRORS[code]?.[0]} ${code}: ${what}`, async () => {
      await prove();
      proven.add(code);
    });

  row("invalid_api_key", "no key", async () => {
    await withoutEffect(shop, async () =>
      expectRefusal(await shop.call("/v1/chat/completions", { body: chatBody() }), "invalid_api_key"),
    );
  });

  row("host_not_allowed", "a host that is not served", async () => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () =>
      expectRefusal(await shop.chat(secret, {}, { host: "foreign.test" }), "host_not_allowed"),
    );
  });

  row("payg_pricing_unavailable", "402, never a 5xx that an SDK would repeat", async () => {
    const { secret } = await shop.payer(1_000_000_000n);
    await expectChatRefused(secret, "payg_pricing_unavailable", { model: "chat-unpriced" });
    await withoutEffect(shop, async () => {
      const body = imageBody({ size: "512x512" });
      const answer = await shop.call("/v1/images/generations", { secret, body });
      expectRefusal(answer, "payg_pricing_unavailable", { param: "size" });
    });
  });

  row("model_not_found", "unknown, disabled, and outside the key's scope read the same", async () => {
    await shop.world.addModels({ id: "chat-off", enabled: false });
    const { secret } = await shop.customer({}, { modelIds: ["vendor/chat-b"] });
    const texts = new Set<string>();
    for (const model of ["nobody", "chat-off", "chat-a"]) {
      const { json } = await expectChatRefused(secret, "model_not_found", { model }, { param: "model" });
      expect(json.error.message).toStartWith(`The model '${model}' does not exist, or this API key cannot use it.`);
      texts.add(JSON.stringify(json.error).replaceAll(model, "…"));
      const read = await shop.call(`/v1/models/${model}`, { secret });
      expectRefusal(read, "model_not_found", { param: "model" });
      texts.add(JSON.stringify(read.json.error).replaceAll(model, "…"));
    }
    expect(texts.size).toBe(1);
  });

  row("invalid_request", "param is the path of the bad field; a model of the wrong modality", async () => {
    const { secret } = await shop.customer();
    await expectChatRefused(
      secret,
      "invalid_request",
      { messages: [{ role: "king", content: "x" }] },
      { param: "messages.0.role" },
    );
    await expectChatRefused(secret, "invalid_request", { model: "image-a" }, { param: "model" });
    await withoutEffect(shop, async () => {
      const answer = await shop.call("/v1/images/generations", { secret, body: imageBody({ model: "chat-a" }) });
      expectRefusal(answer, "invalid_request", { param: "model" });
    });
  });

  row("not_found", "unknown paths; APIs out of contract point to the right one", async () => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () => {
      // On a path outside the API, a client that does not prefer JSON gets the panel's page.
      const headers = { accept: "application/json" };
      for (const path of ["/", "/v1", "/v2/models", "/v1/chat", "/v1/%zz", "/api/panel/nothing"]) {
        expectRefusal(await shop.call(path, { secret, headers }), "not_found");
      }
      const answer = await shop.call("/v1/responses/resp_1/cancel", { secret, headers, body: {} });
      expectRefusal(answer, "not_found");
      expect(answer.json.error.message).toContain("A response cannot be cancelled here.");
    });
  });

  row("method_not_allowed", "with the methods that work", async () => {
    const { secret } = await shop.customer();
    const wrong: [method: string, path: string, allow: string][] = [
      ["GET", "/v1/chat/completions", "POST"],
      ["PUT", "/v1/images/generations", "POST"],
      ["GET", "/v1/embeddings", "POST"],
      ["POST", "/v1/models", "GET, HEAD"],
      ["DELETE", "/v1/models/chat-a", "GET, HEAD"],
      ["PATCH", "/v1/balance", "GET, HEAD"],
      ["OPTIONS", "/v1/usage", "GET, HEAD"],
      ["GET", "/api/panel/ai/chat", "POST"],
    ];
    await withoutEffect(shop, async () => {
      for (const [method, path, allow] of wrong) {
        const answer = await shop.call(path, { secret, method });
        expectRefusal(answer, "method_not_allowed");
        expect(answer.headers.get("allow")).toBe(allow);
      }
    });
  });

  row("context_length_exceeded", "however the provider says it, JSON and streams; nothing is charged", async () => {
    const { secret, accountId } = await shop.customer();
    const message = "This model's maximum context length is 8192 tokens.";
    for (const stream of [false, true]) {
      shop.provider.next({ status: 400, body: JSON.stringify({ error: { message, type: "invalid_request_error" } }) });
      const answer = await shop.chat(secret, { stream });
      expectRefusal(answer, "context_length_exceeded", { param: "messages" });
      expect(answer.json.error.message).toBe(`The prompt is too long for the model: ${message}`);
    }
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0 });
  });

  row("request_too_large", "above 20 MiB by default", async () => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () => {
      const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: ${BASE}\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n`;
      const answer = await rawCall(
        shop.replicas[0]?.port ?? 0,
        `${head}Content-Length: ${20 * 1024 * 1024 + 1}\r\n\r\n{`,
      );
      expectRefusal(answer, "request_too_large");
    });
  });

  row("too_many_requests", "429 with Retry-After, and only for the rate", async () => {
    const { secret } = await shop.customer();
    expect((await shop.call("/v1/balance", { secret, origin: narrow.origin })).status).toBe(200);
    await withoutEffect(shop, async () => {
      for (const path of ["/v1/models", "/v1/balance", "/v1/usage"])
        expectRefusal(await shop.call(path, { secret, origin: narrow.origin }), "too_many_requests");
      const answer = await shop.chat(secret, {}, { origin: narrow.origin });
      expectRefusal(answer, "too_many_requests");
      expect(Number(answer.headers.get("retry-after"))).toBeLessThan(60);
    });
  });

  row("internal_error", "says nothing of the cause, which is in the log under the request id", async () => {
    const { secret } = await shop.customer();
    await shop.world.sql`alter table package_days rename to package_days_away`;
    const answer = await withoutEffect(shop, () => shop.call("/v1/balance", { secret })).finally(
      () => shop.world.sql`alter table package_days_away rename to package_days`,
    );
    expectRefusal(answer, "internal_error");
    expect(answer.text).not.toContain("package_days");
    const lines = () => shop.replicas[0]?.logged().split("\n") ?? [];
    await until(() => lines().some((line) => line.includes(answer.json.request_id) && line.includes("package_days")));
  });

  row("session_required", "the panel without a session", async () => {
    await withoutEffect(shop, async () => {
      expectRefusal(
        await shop.call("/api/panel/ai/chat", { body: chatBody(), host: "panel.tollgate.test" }),
        "session_required",
      );
    });
  });

  test("every error is covered, except those of other files and those that only the panel returns", () => {
    const left = Object.keys(ERRORS).filter((code) => !proven.has(code));
    expect(left.sort()).toEqual(
      [
        ...IN_METERED_ENDPOINTS,
        "insufficient_role",
        "csrf_failed",
        // In idempotency.test.ts.
        "idempotency_conflict",
        "idempotency_mismatch",
        // In test/operations.
        "already_exists",
        "insufficient_scope",
        "invalid_token",
        "no_active_key",
        "read_only",
        "second_factor_required",
        // In overload.test.ts.
        "service_unavailable",
        // In bad_input.test.ts.
        "unsupported_media_type",
        "validation_failed",
      ].sort(),
    );
  });
});

describe("503 service_unavailable while the database is away", () => {
  async function charges() {
    const [books] = await shop.world.sql<{ settled: number; entries: number; units: number }[]>`
      select (select count(*)::int from receipts where outcome = 'settled') as settled,
        (select count(*)::int from balance_entries) as entries,
        (select coalesce(sum(units_taken - package_drawn(packages)), 0)::int from packages) as units`;
    if (books === undefined) throw new Error("no books");
    return { ...books, providerCalls: shop.provider.callCount() + shop.second.callCount() };
  }
  const holds = async () =>
    (await shop.world.sql`select count(*)::int as count from escrows where units > 0 or nano_usd > 0`)[0]?.count;

  for (const how of ["cut", "dropReplies"] as const) {
    test(`${how === "cut" ? "unreachable" : "silent"}: no request is served unmetered, none waits for the database, and the service recovers`, async () => {
      const known = await shop.customer();
      const unknown = await shop.customer();
      const proxy = await startTcpProxy(shop.world.url);
      const replica = await shop.start({ DATABASE_URL: proxy.url, LEASE_SECONDS: "2", LEDGER_TIMEOUT_MS: "1800" });
      const { origin } = replica;
      try {
        // The next poll of changes evicts a new key from the cache. This one is cached when the database goes down.
        await Bun.sleep(1_300);
        expect((await shop.chat(known.secret, {}, { origin })).status).toBe(200);
        const before = await charges();
        proxy[how]();
        // The database stays away until all are answered.
        const answers = await Promise.all([
          shop.chat(known.secret, {}, { origin }),
          shop.chat(known.secret, { stream: true }, { origin }),
          shop.chat(unknown.secret, {}, { origin }),
          shop.chat(known.secret, {}, { origin, host: "never.seen.test" }),
          shop.call("/nothing", { origin, host: "never.seen.either.test" }),
          shop.call("/v1/images/generations", { secret: known.secret, body: imageBody(), origin }),
          shop.call("/v1/embeddings", { secret: known.secret, body: embeddingBody(), origin }),
          ...["models", "models/chat-a", "balance", "usage"].map((path) =>
            shop.call(`/v1/${path}`, { secret: known.secret, origin }),
          ),
          shop.call("/api/panel/me", {
            origin,
            host: "panel.tollgate.test",
            headers: { cookie: `tollgate_session=${"A".repeat(43)}` },
          }),
          shop.call("/api/panel/sign-in", {
            origin,
            host: "panel.tollgate.test",
            headers: { origin: "http://panel.tollgate.test" },
            body: { email: "a@example.com", password: "x" },
          }),
        ]);
        for (const answer of answers) expectRefusal(answer, "service_unavailable");
        expect(await charges()).toEqual(before);
        // Silent connections stay silent until they are reset.
        proxy.cut();
        proxy.mend();
        await until(async () => (await shop.chat(known.secret, {}, { origin })).status === 200);
        // A silent server may have granted the reserve if the key was cached: that hold is released.
        await until(async () => (await holds()) === 0);
        const { settled, units, providerCalls } = before;
        const once = { settled: settled + 1, units: units + 1, providerCalls: providerCalls + 1 };
        expect(await charges()).toEqual({ ...before, ...once });
      } finally {
        await replica.kill();
        await proxy.close();
      }
    });
  }
});

describe("order of refusals", () => {
  type Wrong = { secret: () => Promise<string>; options?: CallOptions; raw?: string; model?: string; narrow?: true };
  /** One fault each; a request can have several. `secret` is created late, because the narrow replica admits a key once. */
  const FAULTS: [code: string, fault: Partial<Wrong>][] = [
    ["host_not_allowed", { options: { host: "foreign.test" } }],
    ["invalid_api_key", { secret: async () => newApiKey().secret }],
    ["too_many_requests", { narrow: true }],
    ["invalid_request", { raw: '{"model": 1' }],
    ["model_not_found", { model: "nobody" }],
    ["package_required", { secret: async () => (await shop.customer(null)).secret }],
  ];

  for (const [i, [first, one]] of FAULTS.entries()) {
    for (const [second, other] of FAULTS.slice(i + 1)) {
      test(`${first} before ${second}`, async () => {
        // A wrong key has no account, so it wins over the key without a package.
        const wrong: Partial<Wrong> = { ...other, ...one };
        const secret = await (wrong.secret ?? (async () => (await shop.customer()).secret))();
        const origin = wrong.narrow ? narrow.origin : shop.origin;
        if (wrong.narrow) await shop.call("/v1/models", { secret, origin });
        const options = { ...wrong.options, origin };
        await withoutEffect(shop, async () => {
          const answer =
            wrong.raw === undefined
              ? await shop.chat(secret, wrong.model === undefined ? {} : { model: wrong.model }, options)
              : await shop.call("/v1/chat/completions", { secret, body: wrong.raw, ...options });
          expectRefusal(answer, first, { param: first === "model_not_found" ? "model" : null });
        });
      });
    }
  }

  test("the body is checked before the model: a message without content, a prompt too short", async () => {
    const { secret } = await shop.customer();
    await expectChatRefused(
      secret,
      "invalid_request",
      { model: "nobody", messages: [{ role: "user" }] },
      { param: "messages.0.content" },
    );
    await withoutEffect(shop, async () => {
      const answer = await shop.call("/v1/images/generations", { secret, body: { model: "nobody", prompt: "x" } });
      expectRefusal(answer, "invalid_request", { param: "prompt" });
    });
  });

  test("the modality is checked before the entitlement", async () => {
    await expectChatRefused(
      (await shop.customer(null)).secret,
      "invalid_request",
      { model: "image-a" },
      { param: "model" },
    );
  });
});

describe("keys", () => {
  test("401 invalid_api_key has one message for every reason, and never echoes the key", async () => {
    const { sql } = shop.world;
    const made = async (change: (keyId: number) => Promise<unknown>) => {
      const { keyId, secret } = await shop.customer();
      await change(keyId);
      return `Bearer ${secret}`;
    };
    const good = await shop.customer();
    const flipped = good.secret.slice(0, -1) + (good.secret.endsWith("a") ? "b" : "a");
    const suspended = await shop.customer();
    await sql`update accounts set status = 'suspended' where id = ${suspended.accountId}`;
    const forms: Record<string, string | undefined> = {
      missing: undefined,
      empty: "",
      "scheme alone": "Bearer",
      "no scheme": good.secret,
      basic: `Basic ${Buffer.from(`user:${good.secret}`).toString("base64")}`,
      "two keys": `Bearer ${good.secret} ${good.secret}`,
      "one letter": "Bearer x",
      "right form, wrong checksum": `Bearer ${flipped}`,
      "right form, unknown": `Bearer ${newApiKey().secret}`,
      quoted: `Bearer "${good.secret}"`,
      "a letter too many": `Bearer ${good.secret}x`,
      punctuation: "Bearer '; drop table keys; --",
      revoked: await made((id) => sql`update keys set status = 'revoked' where id = ${id}`),
      disabled: await made((id) => sql`update keys set status = 'disabled' where id = ${id}`),
      expired: await made((id) => sql`update keys set expires_at = now() - interval '1 second' where id = ${id}`),
      "of a suspended account": `Bearer ${suspended.secret}`,
      ...Object.fromEntries(
        [100, 1_000, 8_000, 14_000].map((n) => [`${n} letters`, `Bearer ${"sk-0123456789".repeat(n).slice(0, n)}`]),
      ),
    };
    const errors = new Set<string>();
    await withoutEffect(shop, async () => {
      for (const [what, authorization] of Object.entries(forms)) {
        for (const call of [{ path: "/v1/models" }, { path: "/v1/chat/completions", body: chatBody() }]) {
          const answer = await shop.call(call.path, {
            ...call,
            ...(authorization !== undefined && { headers: { authorization } }),
          });
          expect({ what, status: answer.status }).toEqual({ what, status: 401 });
          expectRefusal(answer, "invalid_api_key");
          errors.add(JSON.stringify(answer.json.error));
          const token = authorization?.split(" ")[1] ?? "";
          if (token.length > 8)
            expect(answer.text + JSON.stringify([...answer.headers])).not.toContain(token.slice(0, 12));
        }
      }
    });
    expect(errors.size).toBe(1);
  });

  test("a header that is too large for the HTTP parser ends the connection and echoes nothing", async () => {
    for (const letters of [20_000, 100_000]) {
      const answer = await rawCall(
        shop.replicas[0]?.port ?? 0,
        `GET /v1/models HTTP/1.1\r\nHost: ${BASE}\r\nAuthorization: Bearer ${"secret12".repeat(letters / 8)}\r\n\r\n`,
      );
      // Deno's parser accepts headers up to 64 KB, and this is then an unknown key; beyond that it responds with 400.
      expect(answer.status).toBe(RUNTIME === "bun" ? 431 : letters === 20_000 ? 401 : 400);
      expect(answer.text).not.toContain("secret12");
    }
  });

  test("Bearer is case-insensitive, and several spaces may follow it", async () => {
    const { secret } = await shop.customer();
    for (const scheme of ["Bearer", "bearer", "BEARER", "bEaReR", "Bearer  "]) {
      expect((await shop.call("/v1/models", { headers: { authorization: `${scheme} ${secret}` } })).status).toBe(200);
    }
  });

  test("every response has our own X-Request-Id, also when the client sends one", async () => {
    const { secret } = await shop.customer();
    const ids = new Set<string | null>();
    for (const path of ["/v1/models", "/v1/models/chat-a", "/v1/balance", "/v1/usage"]) {
      ids.add((await shop.call(path, { secret, headers: { "x-request-id": "mine" } })).headers.get("x-request-id"));
    }
    for (const stream of [false, true])
      ids.add(
        (await shop.chat(secret, { stream }, { headers: { "x-request-id": "mine" } })).headers.get("x-request-id"),
      );
    expect(ids.size).toBe(6);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("no response allows CORS", async () => {
    const { secret } = await shop.customer();
    const answers = [
      await shop.call("/v1/models", { secret, headers: { origin: "https://evil.test" } }),
      await shop.call("/v1/models", {
        method: "OPTIONS",
        headers: { origin: "https://evil.test", "access-control-request-method": "GET" },
      }),
    ];
    for (const { headers } of answers)
      expect([...headers.keys()].filter((name) => name.startsWith("access-control"))).toEqual([]);
  });
});
