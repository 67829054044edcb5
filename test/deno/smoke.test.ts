import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import OpenAI from "openai";
import { denoReplicaCommand } from "../../scripts/test_deno.ts";
import { hashPassword } from "../../src/accounts/passwords.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type CallOptions, chatBody, eventsOf, imageBody, openShop, type Shop } from "../gateway/shop.ts";
import { type ReplicaProcess, startReplicaProcess } from "../replica.ts";

/** The same replica, run by Deno: one database, one Redis, and beside it one on Bun. */

setDefaultTimeout(60_000);

let shop: Shop;
let deno: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop();
  deno = await startOnDeno();
});
afterAll(async () => {
  await deno?.kill();
  await shop?.close();
});

function startOnDeno(): Promise<ReplicaProcess> {
  const { world, provider, second } = shop;
  const env = {
    DATABASE_URL: world.url,
    REDIS_URL: process.env.REDIS_URL ?? "",
    SPOOL_DIR: `${world.spoolDir}/deno${performance.now()}`,
    PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port},127.0.0.1:${second.port}`,
    LOG_LEVEL: "info",
  };
  return startReplicaProcess(env, denoReplicaCommand());
}

const call = (path: string, options: CallOptions = {}) => shop.call(path, { origin: deno.origin, ...options });

async function until(isSo: () => Promise<boolean>, what: string): Promise<void> {
  for (const deadline = performance.now() + 10_000; !(await isSo()); ) {
    if (performance.now() > deadline) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("it is Deno that answers, alive and ready", async () => {
  expect(deno.logged()).toContain('"runtime":"deno"');
  expect((await call("/healthz")).json).toEqual({ status: "ok" });
  expect((await call("/readyz")).json).toEqual({ status: "ready" });
});

test("models: the list and one of them, also by HEAD and with a slash at the end", async () => {
  const { secret } = await shop.customer();
  const client = new OpenAI({ apiKey: secret, baseURL: `${deno.origin}/v1` });
  const ids: string[] = [];
  for await (const model of client.models.list()) ids.push(model.id);
  expect(ids).toContain("chat-a");
  expect((await client.models.retrieve("vendor/chat-b")).id).toBe("vendor/chat-b");
  expect((await call("/v1/models/", { secret })).status).toBe(200);
  const head = await call("/v1/models", { secret, method: "HEAD" });
  expect({ status: head.status, text: head.text }).toEqual({ status: 200, text: "" });
});

test("chat: answered, and one unit settled", async () => {
  const { secret, accountId } = await shop.customer();
  const answer = await call("/v1/chat/completions", { secret, body: chatBody() });
  expect({ status: answer.status, model: answer.json.model }).toEqual({ status: 200, model: "chat-a" });
  expect(answer.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
});

test("stream: chunks, usage as the provider reported it, [DONE]; the record says the same", async () => {
  const { secret } = await shop.customer();
  const body = chatBody({ stream: true, stream_options: { include_usage: true } });
  const answer = await call("/v1/chat/completions", { secret, body });
  expect(answer.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
  const events = eventsOf(answer.text);
  expect(events.at(-1)).toBe("[DONE]");
  const chunks = events.slice(0, -1).map((event) => JSON.parse(event));
  expect(chunks.length).toBeGreaterThan(3);
  const { usage } = chunks.at(-1);
  const [record] = (await call("/v1/usage", { secret })).json.data;
  expect(record).toMatchObject({
    promptTokens: usage.prompt_tokens,
    completionTokens: usage.completion_tokens,
    estimated: false,
  });
});

test("stream: the first words come before the last are made", async () => {
  const { secret } = await shop.customer();
  shop.provider.next({ chunkDelayMs: 100 });
  const client = new OpenAI({ apiKey: secret, baseURL: `${deno.origin}/v1` });
  const startedAt = performance.now();
  const stream = await client.chat.completions.create({
    model: "chat-a",
    messages: [{ role: "user", content: "Slowly" }],
    max_completion_tokens: 10,
    stream: true,
  });
  const times: number[] = [];
  for await (const _ of stream) times.push(performance.now() - startedAt);
  expect((times.at(-1) ?? 0) - (times[0] ?? 0)).toBeGreaterThan(300);
});

test("a client that leaves: the upstream call is aborted, and what was relayed is settled", async () => {
  const { secret, accountId } = await shop.customer();
  shop.provider.next({ chunkDelayMs: 50 });
  const gone = new AbortController();
  const response = await fetch(`${deno.origin}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
    body: JSON.stringify(chatBody({ stream: true })),
    signal: gone.signal,
  });
  const reader = response.body?.getReader();
  for (let i = 0; i < 3; i++) await reader?.read();
  const id = shop.provider.lastCall()?.id ?? 0;
  gone.abort();
  await reader?.read().catch(() => {});
  await shop.provider.waitForAborted(id);
  await until(async () => (await shop.counters(accountId)).usage === 1, "the settlement");
  expect(await shop.counters(accountId)).toMatchObject({ holds: 0, units: 1 });
  const [record] = (await call("/v1/usage", { secret })).json.data;
  expect(record).toMatchObject({ estimated: true });
  expect(record.completionTokens).toBeGreaterThan(0);
});

test("image: by balance, in the format asked for, charged its price", async () => {
  const { secret, accountId } = await shop.payer(1_000_000_000n);
  const body = imageBody({ response_format: "b64_json" });
  const answer = await call("/v1/images/generations", { secret, body });
  expect(Buffer.from(answer.json.data[0].b64_json, "base64").subarray(1, 4).toString()).toBe("PNG");
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, balance: 960_000_000 });
});

test("image: fetched by the guarded client where the provider answers with an address only", async () => {
  const { secret } = await shop.customer();
  shop.provider.next({ imageReturn: "url" });
  const answer = await call("/v1/images/generations", { secret, body: imageBody({ response_format: "b64_json" }) });
  expect(Buffer.from(answer.json.data[0].b64_json, "base64").subarray(1, 4).toString()).toBe("PNG");
});

test("balance and usage", async () => {
  const { secret } = await shop.payer(2_500_000_000n);
  expect((await call("/v1/balance", { secret })).json).toMatchObject({ object: "balance", payg: { balance_usd: 2.5 } });
  expect((await call("/v1/usage?limit=5", { secret })).json).toMatchObject({
    object: "list",
    data: [],
    has_more: false,
  });
});

test("200 at once on both runtimes against 50 units: exactly 50 are served", async () => {
  const { secret, accountId } = await shop.customer({ dailyLimit: 50, days: 1 });
  const origins = [deno.origin, shop.origin];
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, i) => shop.chat(secret, {}, { origin: origins[i % 2] ?? "" })),
  );
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(50);
  expect(answers.filter(({ status }) => status === 402)).toHaveLength(150);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 50, units: 50, holds: 0 });
});

test("errors are the envelope: key, body, route, method, host", async () => {
  const { secret } = await shop.customer();
  expectRefusal(await call("/v1/models", { secret: "sk-wrong" }), "invalid_api_key");
  expectRefusal(await call("/v1/chat/completions", { secret, body: "{" }), "invalid_request");
  expectRefusal(await call("/v1/chat/completions", { secret, body: chatBody({ model: "none" }) }), "model_not_found", {
    param: "model",
  });
  expectRefusal(await call("/v1/nothing", { secret }), "not_found");
  expectRefusal(await call("/v1/models", { secret, method: "DELETE" }), "method_not_allowed");
  expectRefusal(await call("/v1/models", { secret, host: "elsewhere.example" }), "host_not_allowed");
  shop.provider.next({ status: 500 });
  expectRefusal(await call("/v1/chat/completions", { secret, body: chatBody() }), "provider_unavailable");
});

test("panel: sign-in sets the cookie, /me knows it, a wrong password is refused", async () => {
  const { accountId } = await shop.customer();
  const passwordHash = await hashPassword("correct horse battery");
  const [row] = await shop.world.sql`
    update accounts set password_hash = ${passwordHash} where id = ${accountId} returning email`;
  const signIn = (password: string) =>
    call("/api/panel/sign-in", { headers: { origin: deno.origin }, body: { email: row?.email, password } });
  expectRefusal(await signIn("wrong horse battery"), "session_required");
  const signedIn = await signIn("correct horse battery");
  expect(signedIn.status).toBe(200);
  const cookie = signedIn.headers.get("set-cookie")?.split(";", 1)[0] ?? "";
  const me = await call("/api/panel/me", { headers: { cookie } });
  expect(me.json).toMatchObject({ person: { accountId }, csrfToken: signedIn.json.csrfToken });

  // Forms are read by a hook of ours, and refused by shapes of the framework's.
  const form = (path: string, body: unknown) =>
    call(path, { headers: { cookie, origin: deno.origin, "x-csrf-token": me.json.csrfToken }, body });
  const created = await form("/api/panel/keys", { name: "from Deno", mode: "package" });
  expect((await call("/v1/chat/completions", { secret: created.json.secret, body: chatBody() })).status).toBe(200);
  expectRefusal(await form("/api/panel/keys", { name: 5, mode: "package" }), "validation_failed", { param: "name" });
  const chat = await form("/api/panel/ai/chat", chatBody({ stream: true }));
  expect(eventsOf(chat.text).at(-1)).toBe("[DONE]");
});

test("panel: a page with its policy, and the files that it names", async () => {
  const page = await call("/", { headers: { accept: "text/html" } });
  expect({ status: page.status, type: page.headers.get("content-type") }).toEqual({
    status: 200,
    type: "text/html; charset=utf-8",
  });
  expect(page.headers.get("content-security-policy")).toContain("script-src 'self'");
  const files = [...page.text.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, path]) => path ?? "");
  expect(files.length).toBeGreaterThan(2);
  for (const path of files) {
    const file = await call(path);
    expect({ path, status: file.status }).toEqual({ path, status: 200 });
    expect((await call(path, { headers: { "if-none-match": file.headers.get("etag") ?? "" } })).status).toBe(304);
  }
  expectRefusal(await call("/assets/none.js"), "not_found");
});

test("SIGTERM: a stream under way ends whole, then exit code 0 and books that balance", async () => {
  const { secret, accountId } = await shop.customer();
  const replica = await startOnDeno();
  shop.provider.next({ chunkDelayMs: 20 });
  const response = await fetch(`${replica.origin}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
    body: JSON.stringify(chatBody({ stream: true, max_completion_tokens: 40 })),
  });
  const reader = response.body?.getReader();
  let text = new TextDecoder().decode((await reader?.read())?.value);
  const stopped = replica.stop();
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    text += new TextDecoder().decode(part.value);
  }
  expect(eventsOf(text).at(-1)).toBe("[DONE]");
  expect({ code: await stopped, log: replica.logged() }).toMatchObject({ code: 0 });
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
  expect(await shop.world.unbalanced()).toEqual([]);
});
