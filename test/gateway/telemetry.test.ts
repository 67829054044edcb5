import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Buffer } from "node:buffer";
import { readConfig } from "../../src/config.ts";
import type { ErrorCode } from "../../src/errors.ts";
import { RequestRecord } from "../../src/gateway/request_record.ts";
import { CLIENT_LEFT, createTelemetry } from "../../src/gateway/telemetry.ts";
import type { RequestFacts } from "../../src/http/request_facts.ts";
import type { RequestLine } from "../../src/platform/log.ts";
import { createMetrics } from "../../src/platform/metrics.ts";
import { sleep, until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced } from "./checks.ts";
import { metricsOf } from "./metrics_reader.ts";
import { imageBody, openShop, type Shop } from "./shop.ts";

/** The reports about each finished request: one log line, and the metrics. */
const CHAT = "POST /v1/chat/completions";
let shop: Shop;
let replica: ReplicaProcess;
beforeAll(async () => {
  shop = await openShop({ env: { INTERNAL_PORT: "0" } });
  [replica] = shop.replicas as [ReplicaProcess];
});
afterAll(() => closeBalanced(shop));

type Line = Record<string, unknown>;

/** The request lines that a replica has logged. */
function requestLines(from: ReplicaProcess = replica): Line[] {
  const lines = from.logged().split("\n");
  return lines.filter((line) => line.includes('"message":"request"')).map((line): Line => JSON.parse(line));
}

/** The log line of a request, once it is written. */
async function lineOf(requestId: string | null, from: ReplicaProcess = replica): Promise<Line> {
  const found = () => requestLines(from).filter((line) => line.requestId === requestId);
  await until(() => found().length > 0);
  await sleep(150); // A second one would come with the next write.
  expect(found()).toHaveLength(1);
  return found()[0] ?? {};
}

const idOf = ({ headers }: { headers: Headers }) => headers.get("x-request-id");

describe("one log line per request, at its end", () => {
  test("a chat has account, key, model, provider, the duration of each step, and the bytes of its answer", async () => {
    const { secret, accountId, keyId } = await shop.customer();
    const answer = await shop.chat(secret);
    const line = await lineOf(idOf(answer));
    expect(line).toEqual({
      level: "info",
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      message: "request",
      requestId: idOf(answer),
      accountId,
      keyId,
      keyPrefix: secret.slice(0, 9),
      model: "chat-a",
      route: CHAT,
      status: 200,
      stream: false,
      provider: "first",
      routeId: expect.any(Number),
      end: "complete",
      totalMs: expect.any(Number),
      reserveMs: expect.any(Number),
      firstByteMs: expect.any(Number),
      providerMs: expect.any(Number),
      settleMs: expect.any(Number),
      bytesOut: Buffer.byteLength(answer.text),
    });
    const { totalMs, reserveMs, providerMs, settleMs } = line as Record<string, number>;
    expect(Number(reserveMs) + Number(providerMs) + Number(settleMs)).toBeLessThanOrEqual(Number(totalMs) + 0.3);
    expect(replica.logged()).not.toContain(secret);
    expect(replica.logged()).not.toContain("Tell me about tolls");
  });

  test("a stream is logged when it is over, with all bytes sent", async () => {
    const { secret } = await shop.customer();
    shop.provider.next({ chunkDelayMs: 100, tokens: 5 });
    const answer = await shop.chat(secret, { stream: true });
    const line = await lineOf(idOf(answer));
    expect(line).toMatchObject({
      stream: true,
      status: 200,
      end: "complete",
      bytesOut: Buffer.byteLength(answer.text),
    });
    const { totalMs, firstByteMs, providerMs } = line as Record<string, number>;
    expect(Number(totalMs)).toBeGreaterThan(Number(firstByteMs));
    // The provider waits for longer between its chunks.
    expect(providerMs).toBeGreaterThan(200);
  });

  test("a stream that broke off, and one whose client left, are logged as such", async () => {
    const { secret } = await shop.customer();
    const broken = await shop.brokenOff({ cutAfterChunks: 2, tokens: 5 }, (onText) =>
      shop.chat(secret, { stream: true }, { onText }),
    );
    expect(await lineOf(idOf(broken))).toMatchObject({ status: 200, stream: true, end: "provider_broke_off" });

    shop.provider.next({ chunkDelayMs: 100, tokens: 50 });
    const leaving = new AbortController();
    const response = await fetch(`${shop.origin}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "chat-a", stream: true, messages: [{ role: "user", content: "Hello" }] }),
      signal: leaving.signal,
    });
    await response.body?.getReader().read();
    leaving.abort();
    expect(await lineOf(idOf(response))).toMatchObject({ status: 200, stream: true, end: "client_left" });
  });

  test("an image and a list of models are logged", async () => {
    const { secret, accountId } = await shop.customer();
    const image = await shop.call("/v1/images/generations", { secret, body: imageBody() });
    expect(await lineOf(idOf(image))).toMatchObject({
      route: "POST /v1/images/generations",
      model: "image-a",
      status: 200,
    });
    const models = await shop.call("/v1/models/vendor%2Fchat-b", { secret });
    const line = await lineOf(idOf(models));
    expect(line).toMatchObject({ route: "GET /v1/models/*", status: 200, accountId });
    expect(Object.keys(line)).not.toContain("model");
  });

  test("a refusal has its code, and no durations of steps that were not reached", async () => {
    const { secret, accountId } = await shop.customer(null);
    const refused = await shop.chat(secret);
    const line = await lineOf(idOf(refused));
    expect(line).toMatchObject({ status: 402, refusal: "package_required", accountId, model: "chat-a", level: "info" });
    for (const field of ["provider", "providerMs", "settleMs", "end", "bytesOut", "reserveMs"])
      expect(Object.keys(line)).not.toContain(field);
  });

  test("a client's unknown keys, paths and queries are not logged", async () => {
    const strange = `sk-strange-${"x".repeat(30)}`;
    expect(await lineOf(idOf(await shop.chat(strange)))).toMatchObject({ status: 401, accountId: 0, route: CHAT });
    const other = await shop.call("/v1/strange/path?strange=query", { secret: strange });
    expect(await lineOf(idOf(other))).toMatchObject({ status: 404, refusal: "not_found", route: "none" });
    const listed = await shop.call("/v1/usage?limit=1&strange=query", { secret: (await shop.customer()).secret });
    expect(await lineOf(idOf(listed))).toMatchObject({ status: listed.status, route: "GET /v1/usage" });
    expect(replica.logged()).not.toContain("strange");
  });

  test("requests of the panel's API are logged too; pages and probes are not", async () => {
    const panel = await shop.call("/api/panel/me", { host: "panel.tollgate.test" });
    expect(await lineOf(idOf(panel))).toMatchObject({
      route: "GET /api/panel/me",
      status: 401,
      refusal: "session_required",
    });
    const before = requestLines().length;
    for (const path of ["/healthz", "/readyz", "/nowhere"]) await shop.call(path);
    await sleep(300);
    expect(requestLines()).toHaveLength(before);
  });

  test("with LOG_REQUESTS=0 a 5xx is still logged, at level warn", async () => {
    const silent = await shop.start({ LOG_REQUESTS: "0", LOG_LEVEL: "info" });
    try {
      const { secret } = await shop.customer();
      const good = await shop.chat(secret, {}, { origin: silent.origin });
      const refused = await shop.chat(secret, { model: "nobody" }, { origin: silent.origin });
      expect([good.status, refused.status]).toEqual([200, 404]);
      shop.provider.next({ status: 500, body: "{}" });
      const failed = await shop.chat(secret, {}, { origin: silent.origin });
      expect(failed.status).toBe(503);
      const line = await lineOf(idOf(failed), silent);
      expect(line).toMatchObject({ level: "warn", refusal: "provider_unavailable", provider: "first", status: 503 });
      expect(requestLines(silent)).toHaveLength(1);
      expect(await silent.stop()).toBe(0);
    } finally {
      await silent.kill();
    }
  });

  test("a replica that stops has written all its lines", async () => {
    const ending = await shop.start({});
    const { secret } = await shop.customer();
    const answer = await shop.chat(secret, {}, { origin: ending.origin });
    expect(await ending.stop()).toBe(0);
    expect(requestLines(ending).map(({ requestId }) => requestId)).toEqual([idOf(answer)]);
  });
});

describe("sampling", () => {
  const facts = (): RequestFacts => ({
    requestId: "r",
    url: new URL("http://x/v1/models"),
    peerAddress: () => "",
    startedMs: 0,
    accountId: 0,
    refusal: "",
    record: undefined,
    leaveRead: undefined,
    closes: false,
    trace: undefined,
  });
  /** The number of log lines for 100 requests with this status. */
  function linesAt(logged: number, status: number): number {
    const lines: RequestLine[] = [];
    let turn = 0;
    const log = { request: (line: RequestLine) => void lines.push(line) };
    const telemetry = createTelemetry({
      metrics: createMetrics(),
      answerSums: { note() {} },
      log,
      logged,
      nowMs: () => 1,
      random: () => (turn++ % 100) / 100,
    });
    for (let i = 0; i < 100; i++) telemetry.answered({ name: "GET /v1/models", isApi: true }, facts(), status);
    return lines.length;
  }

  test("the configured fraction is logged, and every 5xx", () => {
    expect([linesAt(1, 200), linesAt(0.25, 200), linesAt(0.25, 404), linesAt(0, 200)]).toEqual([100, 25, 25, 0]);
    expect([linesAt(1, 500), linesAt(0.25, 503), linesAt(0, 503)]).toEqual([100, 100, 100]);
  });

  test("answers and failures are counted for the model, and for the API or the panel; what a client is to blame for is not", () => {
    const counted = (name: string, of: { status: number; refusal?: ErrorCode; end?: string; modelId?: string }) => {
      const notes: [string, boolean][] = [];
      const telemetry = createTelemetry({
        metrics: createMetrics(),
        answerSums: { note: (component, isAnswered) => void notes.push([component, isAnswered]) },
        log: { request() {} },
        logged: 0,
        nowMs: () => 1,
        random: Math.random,
      });
      const record = new RequestRecord("r", "x", {});
      record.modelId = of.modelId ?? "m";
      const known: RequestFacts = { ...facts(), record, refusal: of.refusal ?? "" };
      if (of.end !== undefined) {
        record.kind = "stream";
        record.isReserved = true;
        record.end = of.end;
        telemetry.streamOver(record, 1);
      }
      telemetry.answered({ name, isApi: true }, known, of.status);
      return notes;
    };
    const model = (isAnswered: boolean): [string, boolean] => ["model:m", isAnswered];
    expect(counted(CHAT, { status: 200 })).toEqual([model(true), ["api", true]]);
    expect(counted("POST /api/panel/ai/chat", { status: 200 })).toEqual([model(true), ["panel", true]]);
    expect(counted("GET /v1/models", { status: 200, modelId: "" })).toEqual([["api", true]]);
    expect(counted(CHAT, { status: 503, refusal: "provider_unavailable" })).toEqual([model(false), ["api", true]]);
    for (const refusal of ["service_unavailable", "internal_error"] as const)
      expect(counted(CHAT, { status: 503, refusal })).toEqual([model(false), ["api", false]]);
    for (const refusal of ["invalid_request", "insufficient_balance"] as const) {
      expect(counted(CHAT, { status: 400, refusal })).toEqual([]);
      expect(counted(CHAT, { status: 200, refusal })).toEqual([]);
    }
    expect(counted(CHAT, { status: CLIENT_LEFT })).toEqual([]);
    const ends = { complete: true, provider_broke_off: false, timed_out: false } as const;
    for (const [end, isAnswered] of Object.entries(ends))
      expect(counted(CHAT, { status: 200, end })).toEqual([model(isAnswered), ["api", true]]);
    expect(counted(CHAT, { status: 200, end: "ended_by_us" })).toEqual([model(false), ["api", false]]);
    expect(counted(CHAT, { status: 200, end: "client_left" })).toEqual([]);
  });

  test("LOG_REQUESTS is a number from 0 to 1", () => {
    const env = { DATABASE_URL: "postgres://x/x", SECRET_KEY: "11".repeat(32) };
    const read = (LOG_REQUESTS: string) => readConfig({ ...env, LOG_REQUESTS }).logRequests;
    expect([read(""), read("0"), read("0.01"), read("1"), read("1.0")]).toEqual([1, 0, 0.01, 1, 1]);
    for (const wrong of ["2", "-1", "1.1", "10%", "all", ".5", "1e-3", "NaN"])
      expect(() => read(wrong)).toThrow("LOG_REQUESTS must be a number from 0 to 1");
  });

  test("a stream that is over before its response has started is logged once", () => {
    const lines: RequestLine[] = [];
    const log = { request: (line: RequestLine) => void lines.push(line) };
    const telemetry = createTelemetry({
      metrics: createMetrics(),
      answerSums: { note() {} },
      log,
      logged: 1,
      nowMs: () => 5,
      random: Math.random,
    });
    const record = new RequestRecord("r", "x", { accountId: 1, keyId: 2 });
    record.kind = "stream";
    record.isReserved = true;
    record.end = "ended_by_us";
    telemetry.streamOver(record, 17);
    expect(lines).toHaveLength(0);
    telemetry.answered({ name: CHAT, isApi: true }, { ...facts(), record }, 200);
    expect(lines).toMatchObject([{ bytesOut: 17, end: "ended_by_us", status: 200, stream: true }]);
  });

  test.each([
    ["after its response has started", true],
    ["before that", false],
  ])("a request that failed behind its headers is logged once, %s, whatever the fraction", (_, isAnsweredFirst) => {
    const lines: RequestLine[] = [];
    const log = { request: (line: RequestLine) => void lines.push(line) };
    const telemetry = createTelemetry({
      metrics: createMetrics(),
      answerSums: { note() {} },
      log,
      logged: 0,
      nowMs: () => 5,
      random: Math.random,
    });
    const record = new RequestRecord("r", "x", { accountId: 1, keyId: 2 });
    record.kind = "stream";
    record.isReserved = true;
    record.wait = { status: undefined, report: undefined };
    const known: RequestFacts = { ...facts(), record };
    const answered = () => telemetry.answered({ name: CHAT, isApi: true }, known, 200);
    if (isAnsweredFirst) answered();
    expect(lines).toHaveLength(0);
    known.refusal = "provider_unavailable";
    telemetry.waited(record, 200);
    if (!isAnsweredFirst) answered();
    expect(lines).toMatchObject([{ status: 200, refusal: "provider_unavailable", stream: true }]);
  });
});

describe("metrics of requests", () => {
  test("are by endpoint, status and error code; unknown paths add no series", async () => {
    const { secret } = await shop.customer();
    // Others get the panel's page.
    const json = { headers: { accept: "application/json" } };
    await shop.chat(secret);
    await shop.chat("sk-nobody", {});
    await shop.chat(secret, { model: "nobody" });
    await shop.call("/v1/none/of/ours", { secret });
    await shop.call("/none/of/ours", json);
    await shop.call("/v1/models/nobody", { secret });
    await shop.call("/v1/models", { secret, method: "PUT" });
    const before = await metricsOf(replica);
    for (let i = 0; i < 30; i++) {
      const garbage = `garbage-${i}`;
      await shop.chat(`sk-${garbage}`, {});
      await shop.chat(secret, { model: garbage });
      await shop.call(`/v1/${garbage}/${i}?${garbage}`, { secret });
      await shop.call(`/${garbage}`, json);
      await shop.call(`/v1/models/${garbage}`, { secret });
      await shop.call("/v1/models", { secret, method: "PUT" });
    }
    const after = await metricsOf(replica);
    expect([...after.keys()].sort()).toEqual([...before.keys()].sort());
    expect([...after.keys()].join("\n")).not.toMatch(/garbage|nobody/);
    const rise = (series: string) => Number(after.get(series)) - Number(before.get(series));
    const ended = (route: string, code: number, refusal: string) =>
      rise(`tollgate_requests_total{route="${route}",code="${code}",refusal="${refusal}"}`);
    expect(ended(CHAT, 401, "invalid_api_key")).toBe(30);
    expect(ended(CHAT, 404, "model_not_found")).toBe(30);
    expect(ended("GET /v1/models/*", 404, "model_not_found")).toBe(30);
    expect(ended("none", 404, "not_found")).toBe(60);
    expect(ended("none", 405, "method_not_allowed")).toBe(30);
  });

  test("time and count first byte, provider, reserve, settlement, stream and batches once each", async () => {
    const { secret, keyId } = await shop.customer();
    // The database decides about every request of a key that has a limit: nothing is drawn ahead.
    await shop.world.sql`update keys set daily_units_max = 1000 where id = ${keyId}`;
    const before = await metricsOf(replica);
    await shop.chat(secret);
    await lineOf(idOf(await shop.chat(secret, { stream: true })));
    await shop.call("/v1/images/generations", { secret, body: imageBody() });
    shop.provider.next({ status: 500, body: "{}" });
    await shop.chat(secret);
    const after = await metricsOf(replica);
    const rise = (series: string) => Number(after.get(series)) - Number(before.get(series));
    for (const kind of ["json", "stream", "image"]) {
      expect(rise(`tollgate_first_byte_seconds_count{kind="${kind}"}`)).toBe(1);
      expect(rise(`tollgate_provider_seconds_count{kind="${kind}"}`)).toBe(1);
    }
    expect(rise(`tollgate_stream_seconds_count{end="complete"}`)).toBe(1);
    expect(rise("tollgate_hold_seconds_count")).toBe(4);
    expect(rise(`tollgate_settle_seconds_count{kind="settle"}`)).toBe(3);
    expect(rise(`tollgate_settle_seconds_count{kind="release"}`)).toBe(1);
    expect(rise(`tollgate_ledger_batch_rows_sum{lane="free"}`)).toBe(8);
    expect(after.get(`tollgate_ledger_batch_rows_bucket{lane="free",le="+Inf"}`)).toBe(
      Number(after.get(`tollgate_ledger_batch_rows_count{lane="free"}`)),
    );
  });

  test("exist for replays, caches, limits, the books and the process", async () => {
    const { secret } = await shop.customer();
    const before = await metricsOf(replica);
    const once = { headers: { "idempotency-key": "sight" } };
    expect((await shop.chat(secret, {}, once)).status).toBe(200);
    expect((await shop.chat(secret, {}, once)).headers.get("idempotent-replayed")).toBe("true");
    const rises = async () => {
      const after = await metricsOf(replica);
      const rise = (series: string) => Number(after.get(series)) - Number(before.get(series));
      return {
        replays: rise("tollgate_idempotent_replays_total"),
        misses: rise(`tollgate_cache_misses_total{cache="keys"}`),
        hits: rise(`tollgate_cache_hits_total{cache="keys"}`),
      };
    };
    await until(async () => (await rises()).replays === 1 && (await rises()).misses >= 1);
    // The notification of the new account may arrive after its first request; then the key is looked up again.
    await until(async () => {
      expect((await shop.chat(secret)).status).toBe(200);
      return (await rises()).hits >= 1;
    });
    expect((await rises()).replays).toBe(1);
    const now = await metricsOf(replica);
    expect(now.get("tollgate_database_up")).toBe(1);
    expect(now.get("tollgate_ready")).toBe(1);
    expect(now.get("tollgate_bus_up")).toBe(1);
    expect(now.get(`tollgate_cap{of="pool_queries"}`)).toBe(5);
    expect(Number(now.get("tollgate_spool_disk_free_bytes"))).toBeGreaterThan(1e6);
    expect(Number(now.get("process_resident_memory_bytes"))).toBeGreaterThan(1e7);
    await until(async () => Number((await metricsOf(replica)).get("tollgate_books_checked_timestamp_seconds")) > 1.7e9);
    expect((await metricsOf(replica)).get("tollgate_books_broken")).toBe(0);
  });
});
