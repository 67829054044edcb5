import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Glob } from "bun";
import { readConfig } from "../../src/config.ts";
import { newTrace } from "../../src/platform/tracing.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { FROM_SOURCE, type ReplicaProcess, RUNTIME } from "../replica.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { type Collector, type SentSpan, startCollector } from "./collector.ts";
import { eventsOf, imageBody, openShop, type Shop } from "./shop.ts";

/** Traces: none unless a collector is configured; then the spans of a request show its steps. */
const SERVER = 2;
const CLIENT = 3;
const CLIENTS_TRACE = "0af7651916cd43dd8448eb211c80319c";
const CLIENTS_SPAN = "b7ad6b7169203331";
let shop: Shop;
let collector: Collector;

beforeAll(async () => {
  collector = await startCollector();
  // The shop's own replica makes no traces.
  shop = await openShop();
});
afterAll(() => closeBalanced(shop, collector.stop));

const idOf = ({ headers }: { headers: Headers }) => headers.get("x-request-id") ?? "";

/** The spans of a request, once received: its own first, then in order of their start times. */
async function spansOf(requestId: string, from = collector): Promise<[SentSpan, ...SentSpan[]]> {
  const find = () => from.spans().find(({ attributes }) => attributes["tollgate.request_id"] === requestId);
  await until(() => find() !== undefined);
  const root = find();
  if (root === undefined) throw new Error("a span was there and is not");
  return [root, ...from.spans().filter(({ parentSpanId }) => parentSpanId === root.spanId)];
}

/** The child spans belong to one trace, lie within the request's span, and follow each other. */
function expectWay([root, ...parts]: [SentSpan, ...SentSpan[]], names: string[]): void {
  expect(parts.map(({ name }) => name)).toEqual(names);
  let before = root.startNs;
  for (const part of parts) {
    expect(part.traceId).toBe(root.traceId);
    expect(part.startNs).toBeGreaterThanOrEqual(before);
    expect(part.endNs).toBeGreaterThanOrEqual(part.startNs);
    expect(part.endNs).toBeLessThanOrEqual(root.endNs);
    before = part.endNs;
  }
  expect(new Set([root, ...parts].map(({ spanId }) => spanId)).size).toBe(parts.length + 1);
}

describe("without a collector", () => {
  test("one file names the library, and imports it only when called", () => {
    const source = join(dirname(fileURLToPath(import.meta.url)), "../../src");
    const naming = [...new Glob("**/*.{ts,tsx}").scanSync({ cwd: source })].filter((path) =>
      readFileSync(join(source, path), "utf8").includes("@opentelemetry/"),
    );
    expect(naming).toEqual([join("platform", "tracing.ts")]);
    const lines = readFileSync(join(source, naming[0] ?? ""), "utf8").split("\n");
    const named = lines.filter((line) => line.includes("@opentelemetry/"));
    expect(named.filter((line) => !/^import type |^ {6}import\(/.test(line))).toEqual([]);
  });

  test("the library is not loaded; with a collector it is", async () => {
    // Deno has no such hook: only the test above runs there.
    if (RUNTIME === "deno") return;
    const preloads = ["../no_token_tables.ts", "tell_loaded.ts"].map(
      (name) => `--preload=${fileURLToPath(new URL(name, import.meta.url))}`,
    );
    const BUN_OPTIONS = preloads.join(" ");
    // In a bundle, no package is loaded from its own file.
    const off = await shop.start({ BUN_OPTIONS }, FROM_SOURCE);
    const on = await shop.start({ BUN_OPTIONS, OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint }, FROM_SOURCE);
    const { secret } = await shop.customer();
    expect((await shop.chat(secret, {}, { origin: off.origin })).status).toBe(200);
    expect([await off.stop(), await on.stop()]).toEqual([0, 0]);
    expect(off.logged()).not.toContain("@opentelemetry");
    expect(on.logged()).toContain("@opentelemetry/sdk-trace/");
  });

  test("the provider gets no traceparent, even if the client sends one", async () => {
    const { secret } = await shop.customer();
    const headers = { traceparent: `00-${CLIENTS_TRACE}-${CLIENTS_SPAN}-01`, tracestate: "a=b", baggage: "c=d" };
    expect((await shop.chat(secret, {}, { headers })).status).toBe(200);
    const told = Object.keys(shop.provider.lastCall()?.headers ?? {});
    expect(told.filter((name) => /^(trace|baggage)/.test(name))).toEqual([]);
  });
});

describe("with a collector", () => {
  let replica: ReplicaProcess;
  let origin: string;
  beforeAll(async () => {
    replica = await shop.start({
      OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.endpoint}/`,
      OTEL_EXPORTER_OTLP_HEADERS: "api-key=a%2Cb, x-team=gate",
    });
    ({ origin } = replica);
  });
  afterAll(async () => {
    expect(await replica.stop()).toBe(0);
    expect(replica.logged()).not.toContain("collector");
  });

  test("a chat has the spans admission, reserve, provider and settle, under the request's span", async () => {
    const { secret, accountId, keyId } = await shop.customer();
    const beganMs = Date.now();
    const answer = await shop.chat(secret, {}, { origin });
    const endedMs = Date.now();
    const spans = await spansOf(idOf(answer));
    expectWay(spans, ["admission", "reserve", "provider", "settle"]);
    const [root, , reserve, provider] = spans;
    expect(root).toMatchObject({ name: "POST /v1/chat/completions", kind: SERVER, parentSpanId: "", isFailure: false });
    expect(root.attributes).toEqual({
      "http.request.method": "POST",
      "http.route": "/v1/chat/completions",
      "http.response.status_code": 200,
      "tollgate.request_id": idOf(answer),
      "tollgate.account_id": accountId,
      "tollgate.key_id": keyId,
      "gen_ai.request.model": "chat-a",
      "tollgate.stream": false,
      "tollgate.end": "complete",
      "tollgate.bytes_out": Buffer.byteLength(answer.text),
    });
    // The test and the replica use the same clock, though not the same timer.
    expect(Number(root.startNs / 1_000_000n)).toBeGreaterThanOrEqual(beganMs - 1_000);
    expect(Number(root.endNs / 1_000_000n)).toBeLessThanOrEqual(endedMs + 1_000);
    expect(reserve?.attributes).toEqual({ "tollgate.held": true });
    expect(provider).toMatchObject({ kind: CLIENT, isFailure: false });
    expect(provider?.attributes).toEqual({
      "tollgate.provider": "first",
      "tollgate.route_id": expect.any(Number),
      "gen_ai.request.model": "up-chat-a",
    });
  });

  test("a stream has the span relay between the provider's first event and the settlement", async () => {
    const { secret } = await shop.customer();
    const answer = await shop.chat(secret, { stream: true }, { origin });
    expect(eventsOf(answer.text).at(-1)).toBe("[DONE]");
    const spans = await spansOf(idOf(answer));
    expectWay(spans, ["admission", "reserve", "provider", "relay", "settle"]);
    expect(spans[0].attributes).toMatchObject({ "tollgate.stream": true, "tollgate.end": "complete" });
    expect(spans[4]?.attributes).toEqual({
      "tollgate.end": "complete",
      "tollgate.bytes_out": Buffer.byteLength(answer.text),
    });
  });

  test("a stream whose provider broke off is a failure, and nothing was settled", async () => {
    const { secret } = await shop.customer();
    const answer = await shop.brokenOff({ cutAfterChunks: 2, tokens: 5 }, (onText) =>
      shop.chat(secret, { stream: true }, { origin, onText }),
    );
    expect(answer.status).toBe(200);
    const spans = await spansOf(idOf(answer));
    expectWay(spans, ["admission", "reserve", "provider", "relay", "release"]);
    expect([spans[0].isFailure, spans[3]?.isFailure, spans[4]?.isFailure]).toEqual([true, false, true]);
  });

  test("a 402 has a refused reserve span and no provider span", async () => {
    const { secret } = await shop.payer(1n);
    const answer = await shop.chat(secret, {}, { origin });
    expectRefusal(answer, "insufficient_balance");
    const spans = await spansOf(idOf(answer));
    expectWay(spans, ["admission", "reserve"]);
    expect(spans[0].attributes).toMatchObject({
      "http.response.status_code": 402,
      "error.type": "insufficient_balance",
    });
    expect(spans[0].isFailure).toBe(false);
    expect(spans[2]?.attributes).toEqual({ "tollgate.held": false });
  });

  test("a request refused before the reserve, or without a provider, has one span; a probe has none", async () => {
    const { secret } = await shop.customer();
    const refused = await shop.chat("sk-nobody", {}, { origin });
    const listed = await shop.call("/v1/models", { secret, origin });
    const nowhere = await shop.call("/v1/none/of/ours", { secret, origin });
    await shop.call("/healthz", { origin });
    expect((await spansOf(idOf(refused))).map(({ name }) => name)).toEqual(["POST /v1/chat/completions"]);
    expect((await spansOf(idOf(listed))).map(({ name }) => name)).toEqual(["GET /v1/models"]);
    expect((await spansOf(idOf(nowhere))).map(({ name }) => name)).toEqual(["none"]);
    // Spans are sent in order: a probe's would have come before this one's.
    await spansOf(idOf(await shop.call("/v1/models", { secret, origin })));
    expect(collector.spans().filter(({ name }) => name.includes("healthz"))).toEqual([]);
  });

  test("failover: each route that was tried has its own span and traceparent", async () => {
    const { secret } = await shop.customer();
    shop.provider.next({ status: 500 });
    const answer = await shop.chat(secret, { model: "chat-two-routes" }, { origin });
    expect(answer.status).toBe(200);
    const spans = await spansOf(idOf(answer));
    expectWay(spans, ["admission", "reserve", "provider", "provider", "settle"]);
    const [root, , , failed, served] = spans;
    expect(failed).toMatchObject({
      isFailure: true,
      attributes: { "tollgate.provider": "first", "error.type": "status", "http.response.status_code": 500 },
    });
    expect(served).toMatchObject({ isFailure: false, attributes: { "tollgate.provider": "second" } });
    expect(root.isFailure).toBe(false);
    const told = [shop.provider, shop.second].map((provider) => provider.lastCall()?.headers.traceparent);
    expect(told).toEqual([failed, served].map((span) => `00-${root.traceId}-${span?.spanId}-01`));
  });

  test("a request that no route serves ends with the span release, and has failed", async () => {
    const { secret } = await shop.customer();
    shop.provider.next({ status: 500 });
    const answer = await shop.chat(secret, {}, { origin });
    expectRefusal(answer, "provider_unavailable");
    const spans = await spansOf(idOf(answer));
    expectWay(spans, ["admission", "reserve", "provider", "release"]);
    expect(spans[0]).toMatchObject({ isFailure: true, attributes: { "error.type": "provider_unavailable" } });
  });

  test.each([
    ["a chat", {}],
    ["a stream", { stream: true }],
    ["an image", undefined],
  ] as const)("a client's traceparent is the parent; the provider gets only its own span: %s", async (_, over) => {
    const { secret } = await shop.customer();
    const headers = { traceparent: `00-${CLIENTS_TRACE}-${CLIENTS_SPAN}-01`, tracestate: "a=b", baggage: "c=d" };
    const path = over === undefined ? "/v1/images/generations" : "/v1/chat/completions";
    const answer =
      over === undefined
        ? await shop.call(path, { secret, body: imageBody(), headers, origin })
        : await shop.chat(secret, over, { headers, origin });
    expect(answer.status).toBe(200);
    const [root, ...parts] = await spansOf(idOf(answer));
    expect(root).toMatchObject({ traceId: CLIENTS_TRACE, parentSpanId: CLIENTS_SPAN });
    const provider = parts.find(({ name }) => name === "provider");
    const told = shop.provider.lastCall()?.headers ?? {};
    expect(told.traceparent).toBe(`00-${CLIENTS_TRACE}-${provider?.spanId}-01`);
    expect([told.tracestate, told.baggage]).toEqual([undefined, undefined]);
  });

  test("an unsampled client has no spans, and the provider's traceparent says so", async () => {
    const { secret } = await shop.customer();
    const traceId = CLIENTS_TRACE.replaceAll("0", "1");
    const headers = { traceparent: `00-${traceId}-${CLIENTS_SPAN}-00` };
    expect((await shop.chat(secret, {}, { headers, origin })).status).toBe(200);
    expect(shop.provider.lastCall()?.headers.traceparent).toMatch(new RegExp(`^00-${traceId}-[\\da-f]{16}-00$`));
    const next = await shop.chat(secret, {}, { origin });
    await spansOf(idOf(next)); // It was sent behind the other.
    expect(collector.spans().filter((span) => span.traceId === traceId)).toEqual([]);
  });

  test("no prompt, answer, secret or header of a client is sent to the collector; the collector's own headers are", async () => {
    const { secret } = await shop.customer();
    const headers = { "user-agent": "canary-agent", "x-canary": "canary-header", tracestate: "canary=state" };
    const body = { messages: [{ role: "user", content: "canary-prompt" }], user: "canary-user" };
    const path = "/v1/chat/completions?canary-query=1";
    const answer = await shop.call(path, { secret, origin, headers, body: { model: "chat-a", ...body } });
    expect(answer.status).toBe(200);
    const wrong = await shop.chat("sk-canary-of-a-stranger", { model: "canary-model" }, { origin, headers });
    shop.provider.next({ status: 400, body: JSON.stringify({ error: { message: "canary-words" } }) });
    const rejected = await shop.chat(secret, body, { origin, headers });
    expect([wrong.status, rejected.status]).toEqual([401, 400]);
    await Promise.all([answer, wrong, rejected].map((one) => spansOf(idOf(one))));
    const sent = collector.text();
    expect(sent).not.toContain("canary");
    for (const hidden of [secret, shop.provider.apiKey, answer.json.choices[0].message.content, "127.0.0.1"])
      expect(sent).not.toContain(hidden);
    expect(collector.calls.every(({ path }) => path === "/v1/traces")).toBe(true);
    expect(collector.calls.at(-1)?.headers).toMatchObject({ "api-key": "a,b", "x-team": "gate" });
    expect(sent).toContain('"stringValue":"tollgate"');
  });
});

describe("a failing collector", () => {
  test("down: requests are served; one log line says that it is down, and one that it is back", async () => {
    const { port, stop } = await startCollector();
    await stop();
    const replica = await shop.start({ OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` });
    const { secret } = await shop.customer({ dailyLimit: 1000 });
    const ask = async () => {
      const answer = await shop.chat(secret, {}, { origin: replica.origin });
      expect(answer.status).toBe(200);
      return answer;
    };
    const told = (text: string) => replica.logged().split(text).length - 1;
    await ask();
    await until(() => told("the trace collector does not accept spans") > 0);
    // Another batch is lost, which is not logged.
    await ask();
    await sleep(8000);
    expect(told("the trace collector does not accept spans")).toBe(1);
    const back = await startCollector({ port });
    try {
      await spansOf(idOf(await ask()), back);
      await until(() => told("the trace collector accepts spans again") === 1);
      // The last spans are sent at the end.
      const last = await ask();
      expect(await replica.stop()).toBe(0);
      expect((await spansOf(idOf(last), back)).length).toBe(5);
    } finally {
      await back.stop();
    }
    expect(told("the trace collector does not accept spans")).toBe(1);
  });

  test("silent: requests are served, and the drain still ends", async () => {
    const silent = await startCollector({ isHanging: true });
    try {
      const replica = await shop.start({ OTEL_EXPORTER_OTLP_ENDPOINT: silent.endpoint });
      const { secret } = await shop.customer();
      expect((await shop.chat(secret, {}, { origin: replica.origin })).status).toBe(200);
      await until(() => silent.calls.length > 0);
      expect((await shop.chat(secret, {}, { origin: replica.origin })).status).toBe(200);
      // The collector stays silent: this does not wait for it.
      expect(await replica.stop()).toBe(0);
      expect(replica.logged()).toContain('"late":["traces"]');
    } finally {
      await silent.stop();
    }
  });
});

describe("the start of a trace", () => {
  test("only a traceparent in the standard's format is used", () => {
    const good = `00-${CLIENTS_TRACE}-${CLIENTS_SPAN}`;
    const read = (text: string | null) => newTrace(text, 0);
    expect(read(`${good}-01`)).toMatchObject({ traceId: CLIENTS_TRACE, parentId: CLIENTS_SPAN, sampled: true });
    expect(read(`${good}-00`)).toMatchObject({ traceId: CLIENTS_TRACE, parentId: CLIENTS_SPAN, sampled: false });
    expect(read(`${good}-03`).sampled).toBe(true);
    expect(read(`01-${CLIENTS_TRACE}-${CLIENTS_SPAN}-01-more`).parentId).toBe(CLIENTS_SPAN);
    for (const wrong of [
      null,
      "",
      "canary",
      good,
      `${good}-01-more`,
      `${good}-1`,
      `${good.toUpperCase()}-01`,
      `ff-${CLIENTS_TRACE}-${CLIENTS_SPAN}-01`,
      `00-${"0".repeat(32)}-${CLIENTS_SPAN}-01`,
      `00-${CLIENTS_TRACE}-${"0".repeat(16)}-01`,
      `${good}-01`.repeat(2000),
    ]) {
      const trace = read(wrong);
      expect(trace).toMatchObject({ parentId: "", sampled: false });
      expect(trace.traceId).toMatch(/^(?!0+$)[\da-f]{32}$/);
      expect(trace.traceId).not.toBe(CLIENTS_TRACE);
    }
  });

  test("the configured fraction of requests without a traceparent is sampled", () => {
    const sampled = (share: number) =>
      Array.from({ length: 2000 }, () => newTrace(null, share)).filter((t) => t.sampled);
    expect([sampled(0).length, sampled(1).length]).toEqual([0, 2000]);
    // Eight standard deviations to either side.
    expect(Math.abs(sampled(0.25).length - 500)).toBeLessThan(160);
  });

  test("the variables: off without an endpoint; headers are decoded, or refused", () => {
    const env = { DATABASE_URL: "postgres://x/x", SECRET_KEY: "11".repeat(32) };
    const read = (more: Record<string, string>) => readConfig({ ...env, ...more }).traces;
    const OTEL_EXPORTER_OTLP_ENDPOINT = "https://otel.example.com/at/";
    expect(read({})).toBeUndefined();
    expect(read({ OTEL_EXPORTER_OTLP_ENDPOINT })).toEqual({
      url: "https://otel.example.com/at/v1/traces",
      headers: {},
      share: 1,
      serviceName: "tollgate",
    });
    const given = { OTEL_TRACES_SAMPLER_ARG: "0.01", OTEL_SERVICE_NAME: "gate-eu" };
    const headers = (OTEL_EXPORTER_OTLP_HEADERS: string) =>
      read({ OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, ...given });
    expect(headers("authorization=Basic%20YTpi==, x=1,")).toMatchObject({
      headers: { authorization: "Basic YTpi==", x: "1" },
      share: 0.01,
      serviceName: "gate-eu",
    });
    for (const wrong of ["pw", "=pw", "a b=pw", "a=p w", "a=%", "a=%0d%0ab", "a=%ff"])
      expect(() => headers(wrong)).toThrow("OTEL_EXPORTER_OTLP_HEADERS must be comma-separated name=value pairs");
  });
});
