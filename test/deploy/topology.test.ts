import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { randomUUID } from "node:crypto";
import { constants as http2 } from "node:http2";
import { connect } from "node:net";
import { type Service, startRedis } from "../../scripts/services.ts";
import { addHost, setHostStatus } from "../../src/accounts/hosts_store.ts";
import { readConfig } from "../../src/config.ts";
import { type Bus, redisBus } from "../../src/platform/bus.ts";
import type { Db } from "../../src/platform/db.ts";
import { behave, booksAtRest, callsOf, hasMark, receiptsOf } from "../faults/fault_shop.ts";
import { gaugeOf, internalOrigin } from "../gateway/metrics_reader.ts";
import { chatBody, eventsOf, openShop, type Shop } from "../gateway/shop.ts";
import { givePassword, PASSWORD } from "../panel/panel_client.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import type { ReplicaProcess } from "../replica.ts";
import { type Caddy, startCaddy, type TlsAnswer, type TlsRequest, type Try } from "./caddy.ts";

/**
 * The deployment of `deploy/`, running: Caddy with the Caddyfile, three replicas, Postgres and Redis.
 * Source: END-2, END-7, END-13.
 */
const API = "api.tollgate.test";
const PANEL = "panel.tollgate.test";
const LEASE_SECONDS = 3;
/** Clients that send requests without a pause while a replica dies. */
const AT_ONCE = 12;
const DEATHS = 2;
/** Connections are refused only if the replica dies between two readiness checks. */
const DEATHS_MAX = 6;
const RETRIES_MS_MAX = 60_000;

let redis: Service;
let shop: Shop;
let caddy: Caddy;
let db: Db;
let bus: Bus;
/** The replicas behind Caddy now, with their folders. */
const replicas: { running: ReplicaProcess; spoolDir: string }[] = [];

beforeAll(async () => {
  redis = await startRedis();
  shop = await openShop({
    replicas: 3,
    redisUrl: redis.url,
    keepsPorts: true,
    env: {
      BASE_URL: `https://${API}/v1`,
      PANEL_URL: `https://${PANEL}`,
      // As in production: otherwise 127.0.0.1 would be a served host.
      ALLOW_LOCAL_HOSTS: "false",
      INTERNAL_PORT: "0",
      TRUSTED_PROXIES: "127.0.0.1",
      LEASE_SECONDS: String(LEASE_SECONDS),
    },
  });
  for (const [i, running] of shop.replicas.entries())
    replicas.push({ running, spoolDir: `${shop.world.spoolDir}/replica${i + 1}` });
  db = shop.world.openDb();
  bus = redisBus(redis.url, quietLog().log);
  caddy = await startCaddy({
    replicas: shop.replicas.map(({ port }) => port),
    ask: `${internalOrigin(shop.replicas[0] as ReplicaProcess)}/ask`,
  });
});
afterAll(async () => {
  try {
    await booksAtRest(shop);
  } finally {
    await caddy?.stop();
    bus?.close();
    await db?.close();
    await Promise.all(replicas.map(({ running }) => running.kill()));
    await shop?.close();
    await redis?.stop();
  }
});

const json = (answer: TlsAnswer) => JSON.parse(answer.text);
const ask = (name: string, request: TlsRequest) => caddy.open(name, request).ended;
const chatRequest = (secret: string, over: Record<string, unknown> = {}, headers: Record<string, string> = {}) => ({
  path: "/v1/chat/completions",
  headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", ...headers },
  body: JSON.stringify(chatBody(over)),
});

function domainDeps() {
  const config = readConfig({
    DATABASE_URL: shop.world.url,
    SECRET_KEY: "11".repeat(32),
    BASE_URL: `https://${API}/v1`,
    PANEL_URL: `https://${PANEL}`,
  });
  return { db, bus, config };
}

/** Waits until the replica that Caddy asks gives this answer for a name: the bus updates its cache. */
async function untilAsked(name: string, status: number): Promise<void> {
  const origin = internalOrigin(shop.replicas[0] as ReplicaProcess);
  await until(async () => (await fetch(`${origin}/ask?domain=${name}`)).status === status);
}

const certificatesFor = (name: string) =>
  caddy
    .logged()
    .split("\n")
    .filter((line) => line.includes("certificate obtained successfully") && line.includes(`"${name}"`)).length;

describe("certificates", () => {
  test("are refused for a reseller's pending domain; once it is active, the first handshake gets one, and a chat is answered", async () => {
    const name = "ai.new-reseller.example";
    const reseller = await shop.world.addReseller();
    await addHost(domainDeps(), { host: name, resellerId: reseller.accountId });
    await expect(caddy.handshake(name)).rejects.toThrow(/alert/i);

    await setHostStatus(domainDeps(), { host: name, resellerId: reseller.accountId, status: "active" });
    await untilAsked(name, 200);
    expect(await caddy.handshake(name)).toEqual({
      names: `DNS:${name}`,
      issuer: expect.stringContaining("Caddy Local Authority"),
    });

    const customer = await shop.world.addCustomer(reseller.accountId);
    await shop.world.givePackage(customer);
    const { secret } = await shop.world.addKey(customer);
    const answer = await ask(name, chatRequest(secret));
    expect([answer.status, answer.whole]).toEqual([200, true]);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
    expect((await ask(name, { path: "/api/panel/brand/public" })).status).toBe(200);
    expect(certificatesFor(name)).toBe(1);
  });

  test("are issued for the service's own hosts", async () => {
    for (const name of [API, PANEL]) expect((await caddy.handshake(name)).names).toBe(`DNS:${name}`);
  });

  test("are refused at the handshake for an unknown name, a subdomain of ours and no name", async () => {
    const names = ["stranger.example", `other.${API}`, undefined];
    for (const name of names) await expect(caddy.handshake(name)).rejects.toThrow(/alert/i);
    expect(caddy.logged()).not.toMatch(/certificate obtained successfully.*(?:stranger|other\.api|127\.0\.0\.1)/);
  });

  test("are used for every request: http is redirected to https by 308, which keeps a POST", async () => {
    const answer = await fetch(`http://127.0.0.1:${caddy.httpPort}/v1/models?limit=1`, {
      method: "POST",
      headers: { host: API },
      redirect: "manual",
    });
    expect([answer.status, answer.headers.get("location")]).toEqual([308, `https://${API}/v1/models?limit=1`]);
  });
});

describe("a client that leaves", () => {
  test("gets each chunk of a stream without buffering; if it leaves then, it is settled as left, and the provider's call is aborted", async () => {
    const { secret, accountId } = await shop.customer();
    const mark = behave(shop, { tokens: 10, cutAfterChunks: 3, hang: "mid_stream" });
    const call = caddy.open(API, chatRequest(secret, { stream: true, ...mark }));
    // It sends three and then nothing: what has arrived did not wait for more.
    await until(() => eventsOf(call.sofar().text).filter((event) => event.includes('"content"')).length >= 3);
    const { status, headers, whole } = call.sofar();
    expect([status, whole]).toEqual([200, false]);
    expect(headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(headers.get("content-encoding")).toBeNull();

    const [seen] = shop.provider.calls().filter(({ body }) => hasMark(body, mark));
    expect(seen?.outcome).toBe("open");
    call.leave();
    await shop.provider.waitForAborted(Number(seen?.id));
    await until(async () => (await shop.counters(accountId)).usage === 1);
    expect(await receiptsOf(shop, accountId)).toMatchObject([{ outcome: "settled", reason: "client_left", units: 1 }]);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, released: 0, holds: 0 });
  });

  test("over HTTP/2, as browsers do: a reset stream is settled as left", async () => {
    const { secret, accountId } = await shop.customer();
    const mark = behave(shop, { tokens: 10, cutAfterChunks: 3, hang: "mid_stream" });
    const { path, headers, body } = chatRequest(secret, { stream: true, ...mark });
    const session = caddy.openHttp2(API);
    try {
      const stream = session.request({ ":method": "POST", ":path": path, ...headers });
      let got = "";
      stream.on("data", (bytes: Buffer) => {
        got += bytes;
      });
      stream.on("error", () => {}); // Reset by this test.
      stream.end(body);
      await until(() => eventsOf(got).filter((event) => event.includes('"content"')).length >= 3);
      // One stream of the connection, which stays open.
      stream.close(http2.NGHTTP2_CANCEL);
      await until(async () => (await shop.counters(accountId)).usage === 1);
      expect(await receiptsOf(shop, accountId)).toMatchObject([
        { outcome: "settled", reason: "client_left", units: 1 },
      ]);
      expect(session.closed).toBe(false);
    } finally {
      session.destroy();
    }
  });

  test("an answer that is not streamed: the provider's call runs to its end and is settled", async () => {
    const { secret, accountId } = await shop.customer();
    const mark = behave(shop, { delayMs: 1500 });
    const call = caddy.open(API, chatRequest(secret, mark));
    await until(() => callsOf(shop, mark) === 1);
    call.leave();
    await until(async () => (await shop.counters(accountId)).usage === 1);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, released: 0, holds: 0 });
    const [seen] = shop.provider.calls().filter(({ body }) => hasMark(body, mark));
    expect(seen?.outcome).toBe("complete");
  });
});

describe("a client's address", () => {
  /** Signs in, and returns the address recorded in the new session. */
  async function signedInFrom(signIn: (body: string, headers: Record<string, string>) => Promise<number>) {
    const person = await shop.world.addAdmin();
    const email = await givePassword(shop, person);
    const headers = {
      "content-type": "application/json",
      origin: `https://${PANEL}`,
      "x-forwarded-for": "198.51.100.7",
    };
    expect(await signIn(JSON.stringify({ email, password: PASSWORD }), headers)).toBe(200);
    const [row] = await shop.world.sql`select address from sessions where account_id = ${person.accountId}`;
    return row?.address;
  }
  const path = "/api/panel/sign-in";

  test("is the address that Caddy sees, whatever the client's headers say", async () => {
    const from = "127.0.0.7";
    const address = await signedInFrom(
      async (body, headers) => (await ask(PANEL, { path, headers, body, from })).status,
    );
    expect(address).toBe(from);
  });

  test("without Caddy is taken from the headers of a trusted proxy only", async () => {
    const port = (replicas[0] as { running: ReplicaProcess }).running.port;
    const directly = (from: string) => (body: string, headers: Record<string, string>) =>
      plainCall({ port, from }, { path, headers: { host: PANEL, ...headers }, body });
    expect(await signedInFrom(directly("127.0.0.9"))).toBe("127.0.0.9");
    expect(await signedInFrom(directly("127.0.0.1"))).toBe("198.51.100.7");
  });
});

describe("the runtime's own answers, without a body or a request id", () => {
  /** Sends bytes unchanged over TLS and reads until the connection is closed. */
  const rawAsk = (...parts: string[]) => caddy.raw(API, parts);
  const get = (path: string, extra = "") => `GET ${path} HTTP/1.1\r\nHost: ${API}\r\nConnection: close\r\n${extra}\r\n`;

  function expectEnvelope(answer: TlsAnswer, status: number, code: string): void {
    expect({ status: answer.status, text: answer.text }).toEqual({
      status,
      text: expect.stringContaining(`"${code}"`),
    });
    const { error, request_id: id } = json(answer);
    const type = status === 503 ? "server_error" : "invalid_request_error";
    expect(error).toEqual({ message: expect.any(String), type, code, param: null });
    expect(answer.headers.get("x-request-id")).toBe(id);
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    expect(answer.headers.get("content-type")).toBe("application/json");
    expect(answer.headers.get("retry-after")).toBe(status === 503 ? "1" : null);
  }

  test("431 for an address or headers above 16 KB, and for more than 200 headers", async () => {
    const many = Array.from({ length: 250 }, (_, i) => `X-${i}: a\r\n`).join("");
    for (const request of [
      get("/v1/models", `X-Big: ${"a".repeat(20_000)}\r\n`),
      get(`/v1/models?x=${"a".repeat(20_000)}`),
    ])
      expectEnvelope(await rawAsk(request), 431, "invalid_request");
    expectEnvelope(await rawAsk(get("/v1/models", many)), 431, "invalid_request");
  });

  test("405 for an unknown method, 413 for a declared length above every limit, 400 for malformed chunks", async () => {
    const answer = await rawAsk(get("/v1/models").replace("GET", "FOO"));
    expectEnvelope(answer, 405, "method_not_allowed");
    expect(answer.headers.get("allow")).toContain("POST");
    const { secret } = await shop.customer();
    const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: ${API}\r\nConnection: close\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n`;
    for (const length of ["3000000000", "9007199254740993"])
      expectEnvelope(await rawAsk(`${head}Content-Length: ${length}\r\n\r\n{`), 413, "request_too_large");
    const chunks = `${head}Transfer-Encoding: chunked\r\n\r\n`;
    for (const body of ["zz\r\n{}\r\n0\r\n\r\n", `2;${"a".repeat(20_000)}\r\n{}\r\n0\r\n\r\n`])
      expectEnvelope(await rawAsk(`${chunks}${body}`), 400, "invalid_request");
  });

  test("pipelined requests, line ends and trailers after a body, and bytes during an open stream harm no request", async () => {
    const { secret, accountId } = await shop.customer();
    const post = (over: Record<string, unknown>, extra = "") => {
      const body = JSON.stringify(chatBody(over));
      return `POST /v1/chat/completions HTTP/1.1\r\nHost: ${API}\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n${extra}Content-Length: ${body.length}\r\n\r\n${body}`;
    };
    const last = get("/healthz");
    for (const [sent, answers] of [
      [[post({}) + post({}) + last], 3],
      [[`${post({})}\r\n${last}`], 2],
    ] as const)
      expect((await rawAsk(...sent)).raw.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(answers);
    const body = JSON.stringify(chatBody());
    const chunked = post({}, "Transfer-Encoding: chunked\r\n").replace(
      /Content-Length: \d+\r\n\r\n.*$/,
      "Connection: close\r\n\r\n",
    );
    const trailed = `${chunked}${body.length.toString(16)}\r\n${body}\r\n0\r\nX-Trailer: a\r\n\r\n`;
    expect((await rawAsk(trailed)).status).toBe(200);
    for (const tail of ["\r\n", "BAD\r\n\r\n", last]) {
      const mark = behave(shop, { tokens: 6, chunkDelayMs: 60 });
      const call = caddy.openRaw(API, [post({ stream: true, ...mark })]);
      await until(() => call.sofar().includes("data: "));
      call.send(tail === last ? tail : `${tail}${last}`);
      expect((await call.ended).raw).toContain("data: [DONE]");
    }
    expect(await shop.counters(accountId)).toMatchObject({ usage: 7, units: 7, released: 0, holds: 0 });
    const reasons = (await receiptsOf(shop, accountId)).map(({ reason }) => reason);
    expect(new Set(reasons)).toEqual(new Set(["complete"]));
  });

  test("the host of an absolute target wins over the Host header", async () => {
    const { secret } = await shop.customer();
    const asked = (target: string, host: string) =>
      rawAsk(
        `GET ${target}/v1/models HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${secret}\r\nConnection: close\r\n\r\n`,
      );
    expect((await asked(`https://${API}`, "foreign.test")).status).toBe(200);
    const refused = await asked("https://foreign.test", API);
    expect([refused.status, json(refused).error.code]).toEqual([403, "host_not_allowed"]);
  });
});

test("the internal port cannot be reached through Caddy: its paths get the public answer", async () => {
  const internal = new URL(internalOrigin(shop.replicas[0] as ReplicaProcess)).host;
  for (const path of ["/metrics", "/version", "/ask?domain=stranger.example", `/ask?domain=${API}`]) {
    const answer = await ask(API, { path });
    expect([path, answer.status, json(answer).error.code]).toEqual([path, 404, "not_found"]);
  }
  for (const path of ["/healthz", "/readyz"]) {
    const answer = await ask(API, { path });
    expect([answer.status, Object.keys(json(answer))]).toEqual([200, ["status"]]);
  }
  // Nor by its name: the name only selects the tenant.
  for (const request of [{ path: "/metrics", headers: { host: internal } }, { path: `http://${internal}/metrics` }]) {
    const answer = await ask(API, request);
    expect([answer.status >= 400, answer.text.includes("tollgate_")]).toEqual([true, false]);
  }
});

test("broken bodies take no replica out of service", async () => {
  const { secret } = await shop.customer();
  const broken = {
    path: "/v1/chat/completions",
    headers: { "transfer-encoding": "chunked" },
    body: "5\r\nabcde\r\nzz\r\n",
  };
  const refused = await Promise.all(Array.from({ length: 12 }, () => ask(API, broken)));
  for (const { status } of refused) expect(status).not.toBe(200);
  const answers = await Promise.all(Array.from({ length: 12 }, () => ask(API, chatRequest(secret))));
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
});

describe("a replica is killed under load", () => {
  type Order = { id: string; stream: boolean; secret: string; mark: string };
  type Fate = { order: Order; first: TlsAnswer; last: "served" | "charged_unanswered" };
  let tries: Try[] = [];
  const fates: Fate[] = [];

  const send = ({ id, stream, secret, mark }: Order, attempt: string) =>
    ask(API, chatRequest(secret, { stream, metadata: { mark } }, { "idempotency-key": id, "x-attempt": attempt }));

  function isServed({ stream }: Order, { status, whole, text }: TlsAnswer): boolean {
    if (status !== 200 || !whole) return false;
    return stream ? eventsOf(text).at(-1) === "[DONE]" && !text.includes('"error"') : text.includes('"finish_reason"');
  }

  /** The client's own retries with the same idempotency key, as SDKs make them. */
  async function askAgain(order: Order): Promise<Fate["last"]> {
    const endsAt = performance.now() + RETRIES_MS_MAX;
    for (let n = 2; performance.now() < endsAt; n++) {
      const answer = await send(order, `${order.id}.${n}`);
      if (isServed(order, answer)) return "served";
      // This one reached a replica that died as well.
      if (answer.status === 200) continue;
      const { code } = json(answer).error;
      // The replica died between settling and answering. The client learns that it was served once, and by which request.
      if (code === "idempotency_conflict" && !answer.headers.has("retry-after")) return "charged_unanswered";
      if (!["idempotency_conflict", "service_unavailable"].includes(code))
        throw new Error(`a retry was answered ${answer.status} ${answer.text}`);
      await sleep(200);
    }
    throw new Error(`never served: ${order.id}`);
  }

  /** Attempts that one replica refused (no connection) and another answered. */
  function rerouted(all: readonly Try[]): ReadonlySet<string> {
    const refused = new Set(all.filter(({ error }) => error.startsWith("dial ")).map(({ attempt }) => attempt));
    return new Set(
      all.filter(({ attempt, error }) => error === "" && refused.has(attempt)).map(({ attempt }) => attempt),
    );
  }

  /**
   * One death, with requests in progress on the victim and clients that continue; `burst` sends more at once, before Caddy's next health
   * check, so that some find nobody at the victim's port. Then the same replica starts again.
   */
  async function die(
    place: number,
    { served, burst }: { served: () => number; burst: () => Promise<unknown> },
  ): Promise<void> {
    const { running: victim, spoolDir } = replicas[place] as (typeof replicas)[number];
    await until(async () => ((await gaugeOf(victim, "in_flight_requests")) ?? 0) >= 2);
    await victim.kill();
    const before = served();
    await burst();
    await until(() => served() >= before + 2 * AT_ONCE);
    const running = await shop.start({ PORT: String(victim.port), SPOOL_DIR: spoolDir });
    replicas[place] = { running, spoolDir };
  }

  test("requests that it had not accepted are answered by another replica; accepted ones fail with an error, and the client's own retry is served", async () => {
    const customers = await Promise.all(Array.from({ length: 4 }, () => shop.customer({ dailyLimit: 1_000_000 })));
    shop.provider.when(({ body }) => body.includes('"stream":true'), { chunkDelayMs: 30, tokens: 15 });
    shop.provider.always({ tokens: 3, delayMs: 150 });
    let over = false;
    const once = async (i: number) => {
      const { secret } = customers[i % customers.length] as { secret: string };
      const id = randomUUID();
      const order = { id, stream: i % 2 === 0, secret, mark: `order-${id}` };
      const first = await send(order, `${id}.1`);
      fates.push({ order, first, last: isServed(order, first) ? "served" : await askAgain(order) });
    };
    const client = async (i: number) => {
      while (!over) await once(i);
    };
    const all = (ask: (i: number) => Promise<void>) => Promise.all(Array.from({ length: AT_ONCE }, (_, i) => ask(i)));
    const clients = all(client);
    try {
      for (let death = 0; death < DEATHS || (rerouted(caddy.tries()).size === 0 && death < DEATHS_MAX); death++)
        // Not the first one, which Caddy asks about names.
        await Promise.race([die(1 + (death % 2), { served: () => fates.length, burst: () => all(once) }), clients]);
    } finally {
      over = true;
      await clients;
    }
    tries = caddy.tries();

    const ports = replicas.slice(1).map(({ running }) => running.port);
    const taken = Map.groupBy(
      tries.filter(({ error }) => !error.startsWith("dial ")),
      ({ attempt }) => attempt,
    );
    const failed = fates.filter(({ order, first }) => !isServed(order, first));
    // No POST was sent to a second replica once a first may have read it.
    for (const [attempt, its] of taken) expect([attempt, its.length]).toEqual([attempt, 1]);
    // Only requests that the dead replica had accepted failed: broken off, or answered 503 by Caddy.
    for (const { order, first } of failed) {
      const port = Number(taken.get(`${order.id}.1`)?.[0]?.port);
      const end = first.text.slice(-300);
      const { status } = first;
      expect({ port, status, end, died: ports.includes(port) }).toEqual({ port, status, end, died: true });
      if (first.status === 200) {
        expect(order.stream).toBe(true);
        expect(first.text).not.toContain("[DONE]");
      } else {
        expect([first.status, json(first)]).toEqual([
          503,
          { error: expect.anything(), request_id: expect.any(String) },
        ]);
        expect(json(first).error).toMatchObject({ type: "server_error", code: "service_unavailable", param: null });
        expect(first.headers.get("retry-after")).toBe("1");
        expect(first.headers.get("x-request-id")).toBe(json(first).request_id);
      }
    }
    // Requests whose connection was refused were answered by another replica, without a retry of the client.
    const again = rerouted(tries);
    const firsts = fates.filter(({ order }) => again.has(`${order.id}.1`));
    expect(firsts.map(({ order, first }) => isServed(order, first))).toEqual(firsts.map(() => true));
    expect(again.size).toBeGreaterThan(0);
    expect(failed.length).toBeGreaterThan(0);

    const unanswered = fates.filter(({ last }) => last === "charged_unanswered").length;
    const broken = failed.filter(({ first }) => first.status === 200).length;
    console.log(
      `${fates.length} requests: ${again.size} went to another replica by the proxy's retry, ${failed.length} were on one that ` +
        `died (${broken} streams broken off, ${failed.length - broken} answered 503), ${failed.length - unanswered} of them ` +
        `served at the client's retry, ${unanswered} charged before the death and not answered`,
    );
    await until(
      async () => (await shop.world.sql`select 1 from escrows where units > 0 or nano_usd > 0 limit 1`).length === 0,
    );
    const counters = await Promise.all(customers.map(({ accountId }) => shop.counters(accountId)));
    const sum = (of: "usage" | "units" | "released") => counters.reduce((total, one) => total + one[of], 0);
    // Each order is charged once, however often it was sent. An attempt has at most one hold, and the serving one was settled: what
    // was released was of attempts that did not serve, those of retries that came too early among them.
    expect({ usage: sum("usage"), units: sum("units") }).toEqual({ usage: fates.length, units: fates.length });
    expect(sum("released")).toBeLessThanOrEqual(taken.size - fates.filter(({ last }) => last === "served").length);
    for (const { accountId } of customers) {
      const released = (await receiptsOf(shop, accountId)).filter(({ outcome }) => outcome === "released");
      // The second if a retry was faster than a late settlement could be.
      for (const { reason } of released) expect(["replica_died", "ended_by_us"]).toContain(reason);
    }
    // A retry may meet the next death too: the provider is called at most once for each attempt that a replica accepted.
    const attempts = [...taken.keys()];
    for (const { order, first } of fates) {
      const calls = shop.provider
        .calls()
        .filter(({ generation, body }) => generation && body.includes(order.mark)).length;
      if (isServed(order, first)) expect([order.id, calls]).toEqual([order.id, 1]);
      else expect(calls).toBeLessThanOrEqual(attempts.filter((attempt) => attempt.startsWith(order.id)).length);
    }
  });
});

type PlainCall = { path: string; headers: Record<string, string>; body: string };

/** One POST to a replica directly, from that loopback address. Returns the status. */
function plainCall(
  { port, from }: { port: number; from: string },
  { path, headers, body }: PlainCall,
): Promise<number> {
  const fields = { ...headers, connection: "close", "content-length": String(Buffer.byteLength(body)) };
  const head = Object.entries(fields).map(([field, value]) => `${field}: ${value}`);
  return new Promise((resolve, reject) => {
    let got = "";
    const socket = connect({ host: "127.0.0.1", port, localAddress: from }, () =>
      socket.write(`POST ${path} HTTP/1.1\r\n${head.join("\r\n")}\r\n\r\n${body}`),
    );
    socket.on("data", (bytes) => {
      got += bytes;
    });
    socket.once("error", reject);
    socket.once("close", () => resolve(Number(got.split(" ")[1])));
  });
}
