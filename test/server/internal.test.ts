import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import packageFacts from "../../package.json" with { type: "json" };
import { metricsTable } from "../../scripts/metrics_table.ts";
import { createMetrics, METRICS } from "../../src/platform/metrics.ts";
import { closeBalanced, expectRefusal } from "../gateway/checks.ts";
import { gaugeOf, internalOrigin, metricsOf } from "../gateway/metrics_reader.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { type ReplicaProcess, RUNTIME } from "../replica.ts";

/** The internal listener: metrics, probes, the version and /ask. None of them is on the public port. Source: DOM-7. */
let shop: Shop;
let replica: ReplicaProcess;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { INTERNAL_PORT: "0" } });
  [replica] = shop.replicas as [ReplicaProcess];
});
afterAll(() => closeBalanced(shop));

const internal = (path: string, method = "GET") => shop.call(path, { origin: internalOrigin(replica), method });

test("/metrics is in Prometheus's text format: every metric has its help and type, and starts at 0", async () => {
  const { status, headers, text } = await internal("/metrics");
  expect(status).toBe(200);
  expect(headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  expect((await internal("/metrics", "HEAD")).text).toBe("");
  const families = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name, type]) => `${name} ${type}`);
  expect(families.toSorted()).toEqual(METRICS.map(({ name, type }) => `${name} ${type}`).toSorted());
  expect(new Set(families).size).toBe(families.length);
  for (const family of families) expect(text).toContain(`# HELP ${family.split(" ")[0]} `);
  for (const [name, value] of await metricsOf(replica))
    if (/^tollgate_(?!requests|cache|changes|job_runs)\w+_total/.test(name)) expect([name, value]).toEqual([name, 0]);
});

test("every series belongs to a listed metric and has exactly its labels; series with closed labels exist from the start", async () => {
  await shop.chat("sk-nobody", {}); // An endpoint's series begin with its first request.
  const series = [...(await metricsOf(replica)).keys()].map(parseSeries);
  for (const { metric, labels } of series) {
    const facts = METRICS.find(({ name }) => name === metric);
    expect([metric, Object.keys(labels).sort()]).toEqual([metric, Object.keys(facts?.labels ?? {}).sort()]);
    for (const [label, value] of Object.entries(labels))
      expect(facts?.labels[label] ?? [value], metric).toContain(value);
  }
  for (const { name, labels } of METRICS.filter(({ labels }) => !Object.values(labels).includes(null))) {
    const [values = [""]] = Object.values(labels);
    const found = new Set(
      series.filter(({ metric }) => metric === name).map((one) => Object.values(one.labels)[0] ?? ""),
    );
    expect([name, [...found].sort()]).toEqual([name, [...(values ?? [])].sort()]);
  }
});

test("docs/operations.md has the table of all metrics", () => {
  const guide = readFileSync(new URL("../../docs/operations.md", import.meta.url), "utf8");
  const squeeze = (text: string) => text.replace(/ +/g, " ").replace(/-+/g, "-");
  expect(squeeze(guide)).toContain(squeeze(metricsTable()));
});

/** A series' metric and labels, without a histogram's suffix and `le`. */
function parseSeries(text: string): { metric: string; labels: Record<string, string> } {
  const [, name = "", inside = ""] = /^(\w+)(?:\{(.*)\})?$/.exec(text) ?? [];
  const labels = Object.fromEntries(
    [...inside.matchAll(/(\w+)="([^"]*)"/g)].map(([, label = "", value = ""]) => [label, value]),
  );
  const metric = name.replace(/_(?:bucket|sum|count)$/, "");
  if (METRICS.find((facts) => facts.name === metric)?.type !== "histogram") return { metric: name, labels };
  const { le: _, ...others } = labels;
  return { metric, labels: others };
}

test("gauges have current values: an open stream counts as a request, a stream and a hold", async () => {
  const { secret } = await shop.customer();
  const { held, open } = shop.provider.gateAfter(1);
  shop.provider.next(held);
  const answer = shop.chat(secret, { stream: true });
  await until(async () => (await gaugeOf(replica, "open_streams")) === 1);
  const metrics = await metricsOf(replica);
  expect([metrics.get("tollgate_in_flight_requests"), metrics.get("tollgate_live_holds")]).toEqual([1, 1]);
  open();
  expect((await answer).text).toContain("[DONE]");
  await until(async () => (await gaugeOf(replica, "in_flight_requests")) === 0);
  expect([await gaugeOf(replica, "open_streams"), await gaugeOf(replica, "live_holds")]).toEqual([0, 0]);
});

describe("probes", () => {
  test("/healthz and /readyz answer as on the public port; HEAD has no body", async () => {
    for (const path of ["/healthz", "/readyz"]) {
      const [inside, outside] = [await internal(path), await shop.call(path)];
      expect([inside.status, inside.json]).toEqual([outside.status, outside.json]);
      expect(inside.headers.get("cache-control")).toBe("no-store");
      expect(inside.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
      expect(await internal(path, "HEAD")).toMatchObject({ status: 200, text: "" });
    }
    expect((await internal("/healthz")).json).toEqual({ status: "ok" });
    expect((await internal("/readyz")).json).toEqual({ status: "ready" });
  });

  test("a draining replica is alive and not ready, on both ports", async () => {
    const other = await shop.start({ DRAIN_NOTICE_SECONDS: "4" });
    const origin = internalOrigin(other);
    expect((await shop.call("/readyz", { origin })).status).toBe(200);
    const stopped = other.stop();
    await until(async () => (await shop.call("/readyz", { origin })).status === 503);
    expect((await shop.call("/readyz", { origin })).json).toEqual({ status: "not_ready", reason: "draining" });
    expect((await shop.call("/readyz", { origin: other.origin })).json).toEqual({
      status: "not_ready",
      reason: "draining",
    });
    expect((await shop.call("/healthz", { origin })).status).toBe(200);
    expect(await stopped).toBe(0);
  });

  test("/version names the release and the runtime", async () => {
    expect((await internal("/version")).json).toEqual({ version: packageFacts.version, runtime: RUNTIME });
  });
});

describe("/ask: whether a TLS proxy may get a certificate for a name", () => {
  const ask = (query: string) => internal(`/ask${query}`);

  test("200 for the service's own hosts, in any case", async () => {
    for (const host of ["api.tollgate.test", "tollgate.test", "panel.tollgate.test", "API.Tollgate.Test"])
      expect(await ask(`?domain=${host}`)).toMatchObject({ status: 200, json: { status: "served" } });
    expect(await internal("/ask?domain=tollgate.test", "HEAD")).toMatchObject({ status: 200, text: "" });
  });

  test("200 for a reseller domain soon after it became active; 404 if it is pending or suspended, or its reseller is", async () => {
    const { sql, addReseller } = shop.world;
    const { accountId } = await addReseller();
    const status = async () => (await ask("?domain=ai.acme.test")).status;
    expectRefusal(await ask("?domain=ai.acme.test"), "not_found");
    await sql`insert into hosts (host, reseller_id, status) values ('ai.acme.test', ${accountId}, 'pending')`;
    await sleep(1500);
    expect(await status()).toBe(404);
    await sql`update hosts set status = 'active' where host = 'ai.acme.test'`;
    await until(async () => (await status()) === 200);
    await sql`update accounts set status = 'suspended' where id = ${accountId}`;
    await until(async () => (await status()) === 404);
    await sql`update accounts set status = 'active' where id = ${accountId}`;
    await until(async () => (await status()) === 200);
    await sql`update hosts set status = 'suspended' where host = 'ai.acme.test'`;
    await until(async () => (await status()) === 404);
  });

  test("404 for other names, subdomains, parent domains, and invalid names", async () => {
    for (const name of ["x.tollgate.test", "test", "tollgate.test.", "*.tollgate.test", "10.0.0.1", "%00", "a b", "é"])
      expectRefusal(await ask(`?domain=${name}`), "not_found");
  });

  test("400 unless there is exactly one name of at most 253 characters", async () => {
    for (const query of ["", "?domain=", "?name=tollgate.test", "?domain=tollgate.test&domain=ai.other.test"])
      expectRefusal(await ask(query), "invalid_request", { param: "domain" });
    expectRefusal(await ask(`?domain=${"x".repeat(254)}`), "invalid_request", { param: "domain" });
  });
});

describe("what is not exposed", () => {
  test("the public port has none of the internal endpoints, and the internal port no others", async () => {
    expectRefusal(await shop.call("/metrics", { host: "api.tollgate.test" }), "not_found");
    // On the panel's hosts every path is a page of the panel, if it was built.
    expect((await shop.call("/metrics")).text).not.toContain("tollgate_");
    for (const path of ["/version", "/ask?domain=api.tollgate.test"]) {
      expectRefusal(await shop.call(path, { host: "api.tollgate.test" }), "not_found");
      expect((await shop.call(path)).text).not.toMatch(/"version"|"served"/);
    }
    for (const path of ["/", "/v1/models", "/v1/chat/completions", "/metrics/x", "/%6detrics", "/ask/", "/constructor"])
      expectRefusal(await internal(path), "not_found");
    for (const path of ["/metrics", "/healthz", "/readyz", "/version", "/ask?domain=api.tollgate.test"]) {
      const refused = await internal(path, "POST");
      expectRefusal(refused, "method_not_allowed");
      expect(refused.headers.get("allow")).toBe("GET, HEAD");
    }
  });

  test("metrics contain no key, account, host, model or prompt", async () => {
    const { secret } = await shop.customer();
    await shop.chat(secret, { messages: [{ role: "user", content: "canary-in-a-prompt" }] });
    await shop.chat(secret, { model: "canary-model" });
    await shop.chat("sk-canary-canary-canary-canary", {});
    const { text } = await internal("/metrics");
    expect(text).not.toMatch(/canary|\bsk-|chat-a|localhost|127\.0\.0\.1/);
    expect(text).not.toContain(secret);
  });

  test("without INTERNAL_PORT there is no internal listener", async () => {
    const other = await shop.start({ INTERNAL_PORT: "" });
    try {
      expect(other.logged()).not.toContain("internalPort");
    } finally {
      await other.kill();
    }
  });
});

test("two replicas in one process have separate metrics", async () => {
  const [one, two] = [createMetrics(), createMetrics()];
  one.shed("full");
  expect(await one.text()).toContain('tollgate_shed_requests_total{reason="full"} 1');
  expect(await two.text()).toContain('tollgate_shed_requests_total{reason="full"} 0');
});
