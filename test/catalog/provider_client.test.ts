import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import { gzipSync } from "node:zlib";
import { createProviderClient } from "../../src/catalog/provider_client.ts";
import { ProviderFailure, ProviderRejection } from "../../src/catalog/provider_errors.ts";
import { readUpTo } from "../../src/catalog/provider_response.ts";
import { Secret } from "../../src/platform/crypto.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { answerOf, rejectionOf, route, startHungPort, startRawServer } from "./sockets.ts";

let fake: FakeProvider;
beforeAll(async () => {
  fake = await startFakeProvider();
});
beforeEach(() => fake.reset());
afterAll(() => fake.stop());

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

const CHAT = JSON.stringify({ model: "up-1", messages: [{ role: "user", content: "hello" }] });
/** A limit that no call here reaches. */
const LONG_MS = 120_000;
const JSON_TYPE = { "content-type": "application/json" };

type Changes = { connectMs?: number; firstByteMs?: number; allow?: string[]; now?: () => number };

function client({ connectMs = 2000, firstByteMs = 2000, allow = [], now }: Changes = {}) {
  const { log, lines } = quietLog();
  const config = {
    providerConnectMs: connectMs,
    providerFirstByteMs: firstByteMs,
    providerAllowPrivate: [`127.0.0.1:${fake.port}`, ...allow],
  };
  return { ...createProviderClient({ config, log, ...(now && { now }) }), lines };
}

async function rawClient(answer: Parameters<typeof startRawServer>[0], changes: Changes = {}) {
  const server = await startRawServer(answer);
  closers.push(server.close);
  return { server, upstream: route(server.baseUrl), ...client({ ...changes, allow: [server.hostPort] }) };
}

const fakeRoute = () => route(fake.baseUrl, { apiKey: new Secret(fake.apiKey) });
const options = (fields: { signal?: AbortSignal; firstByteMs?: number; requestId?: string } = {}) => ({
  signal: new AbortController().signal,
  accept: "application/json" as const,
  ...fields,
});
const post = (changes: Changes = {}, fields: Parameters<typeof options>[0] = {}) =>
  client(changes).post(fakeRoute(), "/chat/completions", CHAT, options(fields));

async function kindOf(promise: Promise<unknown>): Promise<string> {
  const thrown = await rejectionOf(promise);
  return thrown instanceof ProviderFailure ? thrown.kind : `${thrown}`;
}

test("a usable answer is returned with its body unread", async () => {
  const response = await post();
  expect((await response.json()).object).toBe("chat.completion");
  expect(fake.lastCall()?.body).toBe(CHAT);
});

test("bytes and text are sent unchanged", async () => {
  await client().post(fakeRoute(), "/chat/completions", new TextEncoder().encode(CHAT), options());
  expect(fake.lastCall()?.body).toBe(CHAT);
});

test("the provider sees a fixed list of headers, and no other", async () => {
  const { server, upstream, post: send } = await rawClient((socket) => socket.end(answerOf(200, JSON_TYPE, "{}")));
  await send(upstream, "/chat/completions", "{}", options({ requestId: "0199-id" }));
  const headers = Object.fromEntries(
    (server.requests.at(-1) ?? "")
      .split("\r\n\r\n")[0]
      ?.split("\r\n")
      .slice(1)
      .map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 2)]) ?? [],
  );
  const { connection: _, ...rest } = headers;
  expect(rest).toEqual({
    host: server.hostPort,
    authorization: "Bearer sk-acme-0123456789abcdef",
    "content-type": "application/json",
    accept: "application/json",
    "accept-encoding": "identity",
    "user-agent": "tollgate",
    "x-request-id": "0199-id",
    "content-length": "2",
  });
});

test("the path is appended to the base URL's path, and its query stays", async () => {
  const { server, post: send } = await rawClient((socket) => socket.end(answerOf(200, JSON_TYPE, "{}")));
  await send(route(`http://${server.hostPort}/openai/v1/?api-version=1`), "/chat/completions", "{}", options());
  expect(server.requests.at(-1)).toStartWith("POST /openai/v1/chat/completions?api-version=1 HTTP/1.1");
});

test("a refused connection is a failure", async () => {
  const server = await startRawServer(() => {});
  server.close();
  const { post: send } = client({ allow: [server.hostPort] });
  expect(await kindOf(send(route(server.baseUrl), "/x", "{}", options()))).toBe("connect");
});

test("a hung connect fails after PROVIDER_CONNECT_MS, however long headers may take", async () => {
  const hung = await startHungPort();
  closers.push(hung.close);
  const { post: send } = client({ connectMs: 200, firstByteMs: 3_600_000, allow: [`127.0.0.1:${hung.port}`] });
  expect(await kindOf(send(route(`http://127.0.0.1:${hung.port}/v1`), "/x", "{}", options()))).toBe("timeout");
});

test("a hung look-up fails after PROVIDER_CONNECT_MS", async () => {
  const { log } = quietLog();
  const config = { providerConnectMs: 100, providerFirstByteMs: 3_600_000, providerAllowPrivate: [] };
  const { post: send } = createProviderClient({ config, log, resolve: () => new Promise(() => {}) });
  expect(await kindOf(send(route("https://slow.example/v1"), "/x", "{}", options()))).toBe("timeout");
});

test("hung headers fail after the first-byte limit, and the provider sees the call end", async () => {
  fake.next({ hang: "headers" });
  expect(await kindOf(post({}, { firstByteMs: 150 }))).toBe("timeout");
  const [call] = await fake.waitForCalls(1);
  await fake.waitForAborted(call?.id ?? 0);
});

test("a socket closed or reset before the headers is a failure", async () => {
  fake.next({ cutBeforeHeaders: true });
  expect(await kindOf(post())).toBe("hung_up");
  const reset = await rawClient((socket) => void socket.resetAndDestroy());
  expect(await kindOf(reset.post(reset.upstream, "/x", "{}", options()))).toBe("hung_up");
});

test("an answer that is not HTTP is a failure", async () => {
  const { upstream, post: send } = await rawClient((socket) => socket.end("SSH-2.0-OpenSSH_9\r\n"));
  expect(await kindOf(send(upstream, "/x", "{}", options()))).toBe("hung_up");
});

test("HTML instead of JSON is a failure with an error status", async () => {
  fake.next({ html: true, status: 400 });
  expect(await kindOf(post())).toBe("not_json");
  fake.next({ html: true, status: 502 });
  expect(await kindOf(post())).toBe("status");
});

test("a gzip bomb ends at the limit of an answer", async () => {
  const bomb = gzipSync(Buffer.alloc(50_000_000, " "));
  // The second half never comes: what reads on beyond the limit would wait for it.
  const { upstream, post: send } = await rawClient((socket) => {
    const whole = answerOf(200, { ...JSON_TYPE, "content-encoding": "gzip" }, bomb);
    socket.write(whole.subarray(0, whole.length / 2));
  });
  const response = await send(upstream, "/x", "{}", options({ firstByteMs: 3_600_000 }));
  const { signal } = new AbortController();
  expect(await kindOf(readUpTo(response, { bytesMax: 1_000_000, signal }))).toBe("oversized");
});

test("what no encoding has is a failure that says so", async () => {
  // A block of the kind that is reserved. Source: RFC 1951 § 3.2.3.
  const broken = Buffer.concat([gzipSync(Buffer.from("{}")).subarray(0, 10), Buffer.alloc(100, 0xff)]);
  const { upstream, post: send } = await rawClient((socket) => socket.end(answerOf(200, JSON_TYPE, broken)));
  const response = await send(upstream, "/x", "{}", options());
  const { signal } = new AbortController();
  expect(await kindOf(readUpTo(response, { bytesMax: 1_000_000, signal }))).toBe("encoded");
});

test("a redirect is a failure and is not followed", async () => {
  fake.next({ redirectTo: `${fake.url}/v1/chat/completions` });
  expect(await kindOf(post())).toBe("redirect");
  expect(fake.callCount()).toBe(1);
});

test("401, 403, 404, 429, 500 and 503 are failures with kind and status", async () => {
  const seen: unknown[] = [];
  for (const status of [401, 403, 404, 429, 500, 503]) {
    fake.next({ status, ...(status === 429 && { headers: { "retry-after": "9" } }) });
    const thrown = (await rejectionOf(post())) as ProviderFailure;
    seen.push([thrown.kind, thrown.status, thrown.retryAfterSeconds]);
  }
  expect(seen).toEqual([
    ["credentials", 401, null],
    ["credentials", 403, null],
    ["unknown_model", 404, null],
    ["rate_limited", 429, 9],
    ["status", 500, null],
    ["status", 503, null],
  ]);
});

test("a 400 is a rejection whose message is passed on without our key and without addresses", async () => {
  fake.next({
    status: 400,
    body: JSON.stringify({
      error: {
        message: `Too long. Key ${fake.apiKey}. See https://acme.example/docs`,
        type: "invalid_request_error",
        param: "messages",
        code: null,
      },
    }),
    contentType: "application/json",
  });
  const rejection = (await rejectionOf(post())) as ProviderRejection;
  expect(rejection).toBeInstanceOf(ProviderRejection);
  expect([rejection.message, rejection.param, rejection.status]).toEqual([
    "Too long. Key [secret]. See [address]",
    "messages",
    400,
  ]);
});

test("at most 64 KB of an error's body are read, for a limited time", async () => {
  let closed = 0;
  const { upstream, post: send } = await rawClient((socket) => {
    socket.once("close", () => closed++);
    socket.write("HTTP/1.1 500 X\r\ncontent-type: application/json\r\n\r\n");
    const pour = () => {
      if (!socket.writable) return;
      socket.write(Buffer.alloc(65_536, 32), () => setImmediate(pour));
    };
    pour();
  });
  expect(await kindOf(send(upstream, "/x", "{}", options()))).toBe("status");
  // It would pour for ever: the call was ended.
  await until(() => closed === 1);
});

test("an abort ends the wait immediately with its reason: while connecting, waiting for headers, and reading the body", async () => {
  const reason = new Error("client left");
  const abortSoon = () => {
    const control = new AbortController();
    setTimeout(() => control.abort(reason), 50);
    return control.signal;
  };
  const { log } = quietLog();
  const config = { providerConnectMs: LONG_MS, providerFirstByteMs: LONG_MS, providerAllowPrivate: [] };
  const connecting = createProviderClient({ config, log, resolve: () => new Promise(() => {}) });
  expect(
    await rejectionOf(connecting.post(route("https://slow.example/v1"), "/x", "{}", options({ signal: abortSoon() }))),
  ).toBe(reason);

  fake.next({ hang: "headers" });
  expect(await rejectionOf(post({}, { signal: abortSoon() }))).toBe(reason);

  fake.next({ hang: "first_byte" });
  const signal = abortSoon();
  expect(await rejectionOf(readUpTo(await post({}, { signal }), { bytesMax: 1000, signal }))).toBe(reason);
  for (const call of await fake.waitForCalls(2)) await fake.waitForAborted(call.id);
});

test("an aborted signal sends nothing", async () => {
  await rejectionOf(post({}, { signal: AbortSignal.abort(new Error("gone")) }));
  expect(fake.counters().calls).toBe(0);
});

test("a private base URL that is not allowed is never connected to, whatever the database says", async () => {
  const server = await startRawServer(() => {});
  closers.push(server.close);
  for (const host of ["127.0.0.1", "localhost"]) {
    expect(await kindOf(client().post(route(`http://${host}:${server.port}/v1`), "/x", "{}", options()))).toBe(
      "address",
    );
  }
  expect(server.connections()).toBe(0);
});

test("a provider that answered in the last 10 s is not probed; a cold start of fifty requests probes once", async () => {
  const clock = { ms: 0 };
  const {
    server,
    upstream,
    post: send,
  } = await rawClient((socket) => socket.end(answerOf(200, JSON_TYPE, "{}")), { now: () => clock.ms });
  const probes = () => server.connections() - server.requests.length;
  await Promise.all(Array.from({ length: 50 }, () => send(upstream, "/x", "{}", options())));
  expect([server.requests.length, probes()]).toEqual([50, 1]);
  clock.ms = 9_999;
  await send(upstream, "/x", "{}", options());
  expect(probes()).toBe(1);
  clock.ms += 10_000;
  await send(upstream, "/x", "{}", options());
  expect(probes()).toBe(2);
});

test("one caller's abort does not end the probe that others wait for", async () => {
  const server = await startRawServer((socket) => socket.end(answerOf(200, JSON_TYPE, "{}")));
  closers.push(server.close);
  const { log } = quietLog();
  const config = {
    providerConnectMs: LONG_MS,
    providerFirstByteMs: LONG_MS,
    providerAllowPrivate: [`slow.example:${server.port}`],
  };
  const resolve = async () => {
    await new Promise((then) => setTimeout(then, 100));
    return [{ address: "127.0.0.1", family: 4 as const }];
  };
  const { post: send } = createProviderClient({ config, log, resolve });
  const upstream = route(`http://slow.example:${server.port}/v1`);
  const control = new AbortController();
  const first = send(upstream, "/x", "{}", options({ signal: control.signal }));
  const second = send(upstream, "/x", "{}", options());
  const reason = new Error("client left");
  control.abort(reason);
  expect(await rejectionOf(first)).toBe(reason);
  expect((await second).status).toBe(200);
  expect([server.connections(), server.requests.length]).toEqual([2, 1]);
});

test("readUpTo: a body that is too large is refused, declared or not, and the rest is cancelled", async () => {
  const signal = new AbortController().signal;
  let isCancelled = false;
  const endless = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(new Uint8Array(1000).fill(" ".charCodeAt(0))),
    cancel() {
      isCancelled = true;
    },
  });
  expect(await kindOf(readUpTo(new Response(endless), { bytesMax: 10_000, signal }))).toBe("oversized");
  expect(isCancelled).toBe(true);
  const read = (text: string | null, headers = {}) =>
    readUpTo(new Response(text, { headers }), { bytesMax: 100, signal });
  const text = "é".repeat(50);
  for (const headers of [{}, { "content-length": "100" }]) expect(await read(text, headers)).toBe(text);
  for (const headers of [{}, { "content-length": "101" }])
    expect(await kindOf(read(`${text}x`, headers))).toBe("oversized");
  expect(await read(null)).toBe("");
});

test("postWhole: an answer that is too large, stalls, drips or is cut is a failure, with and without a length", async () => {
  const asking = { signal: new AbortController().signal, totalMs: 300, bytesMax: 100_000 };
  const whole = (changes = {}) => client().postWhole(fakeRoute(), "/chat/completions", CHAT, { ...asking, ...changes });
  expect(JSON.parse(await whole({ totalMs: LONG_MS })).object).toBe("chat.completion");
  expect(await kindOf(whole({ bytesMax: 10, totalMs: LONG_MS }))).toBe("oversized");
  fake.next({ hang: "headers" });
  expect(await kindOf(whole())).toBe("timeout");
  fake.next({ hang: "mid_stream", cutAfterChunks: 1 });
  expect(await kindOf(whole())).toBe("timeout");
  fake.next({ cutAfterBytes: 10 });
  expect(await kindOf(whole({ totalMs: LONG_MS }))).toBe("cut");
  for (const length of ["", "content-length: 1000000\r\n"]) {
    let isClosed = false;
    const { upstream, postWhole } = await rawClient((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${length}\r\n{`);
      const drip = setInterval(() => socket.write(" "), 20);
      socket.on("error", () => {});
      socket.on("close", () => {
        clearInterval(drip);
        isClosed = true;
      });
    });
    expect(await kindOf(postWhole(upstream, "/x", "{}", { ...asking, bytesMax: 2_000_000 }))).toBe("timeout");
    await until(() => isClosed);
  }
});

test("listModels returns the ids of the provider's models, and who owns them", async () => {
  const { ids, owners } = await client().listModels(route(fake.baseUrl, { apiKey: new Secret(fake.apiKey) }));
  expect(ids).toContain("sim-small");
  expect(owners.size).toBeGreaterThan(0);
  const { upstream, listModels } = await rawClient((socket) => socket.end(answerOf(200, JSON_TYPE, '{"data":"?"}')));
  expect(await kindOf(listModels(upstream))).toBe("not_json");
});

test("ping says whether the provider answers and accepts the key, and never throws", async () => {
  const good = await client().ping(fakeRoute());
  expect([good.ok, good.problem, good.models > 0]).toEqual([true, null, true]);
  const wrongKey = await client().ping(route(fake.baseUrl, { apiKey: new Secret("sk-wrong-0123456789") }));
  expect(wrongKey.ok).toBe(false);
  expect(wrongKey.problem).not.toContain("sk-wrong");
  expect((await client().ping(route("http://127.0.0.1:9/v1"))).ok).toBe(false);
});
