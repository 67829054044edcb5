import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { hash } from "@node-rs/argon2";
import { Redis } from "ioredis";
import { type Service, startPostgres, startRedis } from "../scripts/services.ts";
import type { Behaviour } from "../src/demo/provider/faults.ts";
import { newApiKey } from "../src/platform/crypto.ts";
import { codeAt } from "./accounts/authenticator.ts";
import { openNet } from "./canary_net.ts";
import { rawCall } from "./gateway/checks.ts";
import { type Answer, type CallOptions, chatBody, imageBody, openShop, type Shop } from "./gateway/shop.ts";
import { until } from "./platform/own_redis.ts";
import { type ReplicaProcess, TEST_SECRET_KEY } from "./replica.ts";
import { startTcpProxy, type TcpProxy } from "./tcp_proxy.ts";

/**
 * Secrets are sent through every path, good, refused and broken, and looked for wherever something is written down: logs, error
 * bodies, headers, metrics, the database's files, Redis, the spool. Source: KEY-4, SEC-2.
 */
const PANEL = "panel.tollgate.test";
const CLI = fileURLToPath(new URL("../src/cli.ts", import.meta.url));
/** What a key still shows of itself. */
const KEY_PREFIX_CHARS = 9;
const KEY_SUFFIX_CHARS = 4;
const ADMIN_EMAIL = "canary-admin@example.com";

const net = openNet();
const canary = (name: string): string => {
  const secret = `canary-${name.replaceAll(" ", "-")}-${randomBytes(18).toString("base64url").replace(/[-_]/g, "x")}`;
  net.plant(name, secret);
  return secret;
};
/** A secret of the service's own making. */
const plantKey = (name: string, secret: string) => net.plant(name, secret.slice(KEY_PREFIX_CHARS, -KEY_SUFFIX_CHARS));

const PASSWORD = canary("password");
const NEXT_PASSWORD = canary("next password");
const WRONG_PASSWORD = canary("wrong password");
const PROMPT = canary("prompt");
const IMAGE_PROMPT = canary("image prompt");
const ANSWER = canary("answer");
const PROVIDER_KEY = `sk-${canary("provider key")}`;
const FOREIGN_TOKEN = canary("foreign token").slice(0, 43).padEnd(43, "x");
const UNKNOWN_KEY = newApiKey().secret;
plantKey("unknown key", UNKNOWN_KEY);

let folder: string;
let postgres: Service;
let redis: Service;
let shop: Shop;
let proxy: TcpProxy;
/** Its database is behind the proxy; it logs all it can. */
let replica: ReplicaProcess;
let monitor: { text(): string; close(): void };
/** Everybody whose output was ever written. */
const replicas: ReplicaProcess[] = [];
let key: { secret: string; keyId: number; accountId: number };

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "tollgate-canary-"));
  [postgres, redis] = await Promise.all([startPostgres({ dataDir: join(folder, "postgres") }), startRedis()]);
  monitor = await watchRedis(redis.port);
  shop = await openOn(postgres.url, redis.url);
  proxy = await startTcpProxy(shop.world.url);
  replica = await start({ DATABASE_URL: proxy.url, LEDGER_TIMEOUT_MS: "1800" });
  net.plant("first provider's key", shop.provider.apiKey);
  key = await shop.customer();
  plantKey("API key", key.secret);
});
afterAll(async () => {
  for (const one of replicas) await one.kill();
  await shop?.close();
  await proxy?.close();
  monitor?.close();
  await Promise.all([postgres?.stop(), redis?.stop()]);
  rmSync(folder, { recursive: true, force: true });
});

/** A shop whose database is on a server of our own, whose files can be read. */
async function openOn(databaseUrl: string, redisUrl: string): Promise<Shop> {
  const usual = process.env.DATABASE_URL;
  process.env.DATABASE_URL = databaseUrl;
  try {
    const opened = await openShop({ redisUrl, env: { LOG_LEVEL: "trace" } });
    replicas.push(...opened.replicas);
    return opened;
  } finally {
    if (usual === undefined) delete process.env.DATABASE_URL;
    else process.env.DATABASE_URL = usual;
  }
}

async function start(env: Record<string, string>): Promise<ReplicaProcess> {
  const started = await shop.start({ LOG_LEVEL: "trace", LEASE_SECONDS: "3", INTERNAL_PORT: "0", ...env });
  replicas.push(started);
  return started;
}

/** Every command that Redis is sent, as MONITOR shows it. */
async function watchRedis(port: number): Promise<{ text(): string; close(): void }> {
  let text = "";
  const socket = await new Promise<Socket>((resolve, reject) => {
    const dialled = connect(port, "127.0.0.1", () => resolve(dialled));
    dialled.on("error", reject);
  });
  socket.on("data", (bytes) => {
    text += bytes.toString("latin1");
  });
  socket.write("MONITOR\r\n");
  return { text: () => text, close: () => socket.destroy() };
}

type Sent = CallOptions & { mayShow?: string[] };

/** One call; its whole answer goes into the net. */
async function go(what: string, path: string, { mayShow = [], ...options }: Sent = {}): Promise<Answer> {
  const answer = await shop.call(path, { origin: replica.origin, ...options });
  net.catch(what, `${answer.status} ${JSON.stringify([...answer.headers])}\n${answer.text}`, mayShow);
  return answer;
}

const chatOf = (over: Record<string, unknown> = {}) =>
  chatBody({ messages: [{ role: "user", content: `${PROMPT} please` }], ...over });

/** The service's good answers bring the model's words, which may repeat the question's. */
const WORDS = ["prompt", "image prompt", "answer"];
const chat = (what: string, over: Record<string, unknown> = {}, sent: Sent = {}) =>
  go(what, "/v1/chat/completions", { secret: key.secret, body: chatOf(over), ...sent });

/**
 * Sends good chats until one is served, so that neither a breaker nor a pause keeps the next one from the provider. The quarantine of a
 * key, which grows with each refusal, is ended by hand.
 */
async function untilServed(): Promise<void> {
  await until(async () => {
    // Each time: the refusal before may be written only now.
    await shop.world
      .sql`update provider_keys set state = 'active', until = null, failures = 0, met_account_id = null, met_payer_id = null where state <> 'active'`;
    return (await chat("a good one", {}, { mayShow: WORDS })).status === 200;
  });
}

/** A chat that the provider answers badly. */
async function spoiled(what: string, behaviour: Behaviour, over: Record<string, unknown>): Promise<Answer> {
  await untilServed();
  const calls = shop.provider.callCount();
  shop.provider.next(behaviour);
  // What came before a stream broke off is the answer's beginning.
  const answer = await chat(what, over, { mayShow: ["answer"] });
  expect(shop.provider.callCount(), what).toBe(calls + 1);
  return answer;
}

type Person = { cookie: string; csrf: string };
const NOBODY: Person = { cookie: "", csrf: "" };

/** A call of the panel. */
function ask(who: Person, what: string, path: string, { method, body, mayShow, headers }: Sent = {}): Promise<Answer> {
  return go(what, `/api/panel${path}`, {
    host: PANEL,
    headers: { cookie: who.cookie, origin: `http://${PANEL}`, "x-csrf-token": who.csrf, ...headers },
    ...(method !== undefined && { method }),
    ...(body !== undefined && { body }),
    ...(mayShow && { mayShow }),
  });
}

/** Signs in; what is in the cookie is a secret from then on. */
async function signIn(name: string, body: unknown): Promise<Person> {
  const answer = await ask(NOBODY, `sign-in of ${name}`, "/sign-in", { body, mayShow: [`session of ${name}`] });
  expect(answer.status, answer.text).toBe(200);
  const cookie = answer.headers.get("set-cookie")?.split(";", 1)[0] ?? "";
  net.plant(`session of ${name}`, cookie.split("=")[1] ?? "");
  return { cookie, csrf: String(answer.json.csrfToken) };
}

/** An account that signs in with the canary's password. */
async function member(role: "admin" | "customer", email: string): Promise<{ accountId: number }> {
  const { world } = shop;
  const person = role === "admin" ? await world.addAdmin() : await world.addCustomer();
  const digest = await hash(PASSWORD, { memoryCost: 1024, timeCost: 1, parallelism: 1 });
  await world.sql`update accounts set password_hash = ${digest}, email = ${email} where id = ${person.accountId}`;
  return person;
}

describe("the search for secrets", () => {
  test("finds a secret as text, in hex, in base64 at any place, in a URL, and half of one", () => {
    const trap = openNet();
    const secret = `trap+/${randomBytes(24).toString("base64")}`;
    trap.plant("trap", secret);
    const forms = [
      secret,
      Buffer.from(secret).toString("hex"),
      Buffer.from(secret).toString("hex").toUpperCase(),
      encodeURIComponent(secret),
      secret.slice(0, 22),
      secret.slice(-22),
      ...["", "a", "ab", "abc", "abcd"].flatMap((lead) => [
        Buffer.from(`${lead}${secret}tail`).toString("base64"),
        Buffer.from(`${lead}${secret}tail`).toString("base64url"),
      ]),
    ];
    for (const form of forms) expect(trap.find("there", `x ${form} y`), form).not.toEqual([]);
    expect(trap.find("there", "nothing")).toEqual([]);
    expect(trap.find("there", secret, ["trap"])).toEqual([]);
    trap.catch("an answer", `{"secret":"${secret}"}`);
    expect(trap.findInCaught()).toEqual(["trap as text in an answer"]);
  });
});

describe("secrets are put in", () => {
  test("the API: answers, refusals, malformed bodies, keys in wrong places", async () => {
    const { secret } = key;
    shop.provider.next({ content: ANSWER });
    expect((await chat("chat", {}, { mayShow: WORDS })).status).toBe(200);
    shop.provider.next({ content: ANSWER });
    expect((await chat("stream", { stream: true }, { mayShow: WORDS })).status).toBe(200);
    const kept = { headers: { "idempotency-key": "once" }, mayShow: WORDS };
    shop.provider.next({ content: ANSWER });
    expect((await chat("kept answer", {}, kept)).status).toBe(200);
    expect((await chat("replayed answer", {}, kept)).headers.get("idempotent-replayed")).toBe("true");
    expect((await chat("another body", { n: 2 }, kept)).status).toBe(400);
    const image = { secret, body: imageBody({ prompt: IMAGE_PROMPT }), mayShow: WORDS };
    expect((await go("image", "/v1/images/generations", image)).status).toBe(200);

    await chat("unknown model", { model: "nobody" });
    await chat("wrong field", { temperature: PROMPT });
    await chat("wrong role", { messages: [{ role: PROMPT, content: PROMPT }] });
    await chat(
      "field twice",
      {},
      { body: `{"model":"chat-a","messages":[{"role":"user","content":"${PROMPT}"}],"seed":1,"seed":2}` },
    );
    for (const [what, body] of [
      ["cut short", `{"model":"chat-a","messages":[{"role":"user","content":"${PROMPT}`],
      ["no JSON", PROMPT],
      ["control character", `{"model":"chat-a\u0001","messages":"${PROMPT}"}`],
      ["an array", JSON.stringify([PROMPT])],
    ] as const) {
      expect((await chat(what, {}, { body })).status).toBe(400);
    }
    await chat("wrong type", {}, { headers: { "content-type": `text/plain; x=${PROMPT}` } });
    await chat("encoded", {}, { headers: { "content-encoding": PROMPT } });

    for (const [what, headers] of [
      ["unknown key", { authorization: `Bearer ${UNKNOWN_KEY}` }],
      ["key and more", { authorization: `Bearer ${secret}x` }],
      ["half a key", { authorization: `Bearer ${secret.slice(0, -8)}` }],
      ["key as Basic", { authorization: `Basic ${Buffer.from(`user:${secret}`).toString("base64")}` }],
      ["key without Bearer", { authorization: secret }],
      ["key in another header", { "x-api-key": secret }],
      ["key in a cookie", { cookie: `key=${secret}; tollgate_session=${FOREIGN_TOKEN}` }],
    ] as const) {
      expect((await go(what, "/v1/chat/completions", { body: chatOf(), headers })).status, what).toBe(401);
    }
    await go("key in the query", `/v1/usage?api_key=${secret}&limit=${secret}`, { secret });
    await go("key in the path", `/v1/models/${secret}`, { secret });
    await go("key in an unknown path", `/v1/${secret}/x`, { secret });
    await go("prompt in a query", `/v1/usage?model=${PROMPT}&after=${PROMPT}`, { secret });
    await chat("foreign host", {}, { host: "foreign.test" });
    const { port } = replica;
    for (const [what, bytes] of [
      [
        "giant header",
        `GET /v1/models HTTP/1.1\r\nHost: api.tollgate.test\r\nAuthorization: Bearer ${secret}${"x".repeat(40_000)}\r\n\r\n`,
      ],
      ["no HTTP", `${secret} ${PROMPT}\r\n\r\n`],
      [
        "absolute target",
        `GET http://${secret}@api.tollgate.test/v1/models HTTP/1.1\r\nHost: api.tollgate.test\r\n\r\n`,
      ],
      [
        "two hosts",
        `GET /v1/models HTTP/1.1\r\nHost: a.test\r\nHost: ${secret}\r\nAuthorization: Bearer ${secret}\r\n\r\n`,
      ],
    ] as const) {
      const answer = await rawCall(port, bytes);
      net.catch(what, `${answer.status} ${JSON.stringify([...answer.headers])} ${answer.text}`);
    }
  });

  test("providers' answers: errors that quote the prompt and our key, in every status, in events, in HTML", async () => {
    const words = `Refused: "${PROMPT} please" from ${shop.provider.apiKey}, Authorization: Bearer ${shop.provider.apiKey}`;
    const asJson = JSON.stringify({
      error: { message: words, param: PROMPT, code: PROMPT, type: PROMPT },
      input: chatOf(),
    });
    for (const status of [400, 401, 403, 404, 413, 422, 429, 500, 503]) {
      for (const body of [asJson, words, `<html>${words}</html>`]) {
        for (const stream of [false, true]) {
          const behaviour = { status, body, contentType: "application/json" };
          const answer = await spoiled(`provider's ${status}`, behaviour, { stream });
          expect([400, 503], answer.text).toContain(answer.status);
        }
      }
    }
    const event = {
      contentType: "text/event-stream",
      body: `data: {"error":{"message":${JSON.stringify(words)}}}\n\n`,
    };
    const behaviours: Behaviour[] = [
      event,
      { contentType: "text/event-stream", body: `data: ${PROMPT}\n\n` },
      { contentType: `text/${PROMPT}`, body: PROMPT },
      { errorEventAfterChunks: 1, content: ANSWER },
      { cutAfterChunks: 1, content: ANSWER },
      { redirectTo: `http://127.0.0.1:1/${PROMPT}` },
      { html: true },
      { headers: { "content-encoding": PROMPT }, content: ANSWER },
      { headers: { "retry-after": PROMPT }, status: 429 },
    ];
    for (const behaviour of behaviours) {
      for (const stream of [true, false]) {
        await spoiled(`provider's ${JSON.stringify(behaviour).slice(0, 40)}`, behaviour, { stream });
      }
    }
    await untilServed();
    shop.provider.next({ usageRaw: JSON.stringify(PROMPT) });
    await chat("usage that is none", {}, { mayShow: WORDS });
    for (const imageUrl of [`http://169.254.169.254/${PROMPT}`, `http://${PROMPT}.invalid/`, PROMPT]) {
      for (const response_format of ["b64_json", "url"]) {
        shop.provider.next({ imageReturn: "url", imageUrl });
        const body = imageBody({ prompt: IMAGE_PROMPT, response_format });
        const answer = await go("image at a bad address", "/v1/images/generations", { secret: key.secret, body });
        expect(answer.status, answer.text).toBe(503);
      }
    }
  });

  test("the panel's sign-in: passwords, sessions, second factor, links", async () => {
    const email = "canary@example.com";
    await member("customer", email);
    for (const [what, body] of [
      ["wrong password", { email, password: WRONG_PASSWORD }],
      ["unknown person", { email: "nobody@example.com", password: WRONG_PASSWORD }],
      ["password too long", { email, password: WRONG_PASSWORD.repeat(40) }],
      ["password as a list", { email, password: [WRONG_PASSWORD] }],
      ["password as the address", { email: WRONG_PASSWORD, password: WRONG_PASSWORD }],
      ["password as the code", { email, password: WRONG_PASSWORD, code: WRONG_PASSWORD.repeat(3) }],
      ["broken JSON", `{"email":"${email}","password":"${WRONG_PASSWORD}`],
    ] as const) {
      expect([401, 422]).toContain((await ask(NOBODY, what, "/sign-in", { body })).status);
    }
    await ask(NOBODY, "foreign origin", "/sign-in", {
      body: { email, password: PASSWORD },
      headers: { origin: "http://evil.test" },
    });
    const person = await signIn("the customer", { email, password: PASSWORD });
    for (const token of [FOREIGN_TOKEN, FOREIGN_TOKEN.slice(0, 20), `${FOREIGN_TOKEN}${FOREIGN_TOKEN}`]) {
      const forged = { cookie: `tollgate_session=${token}`, csrf: person.csrf };
      expect((await ask(forged, "forged cookie", "/me")).status).toBe(401);
      expect((await ask(forged, "forged cookie", "/keys", { body: {} })).status).toBe(401);
    }
    for (const body of [
      { next: NEXT_PASSWORD, proof: { password: WRONG_PASSWORD } },
      { next: NEXT_PASSWORD.repeat(10), proof: { password: PASSWORD } },
      { next: NEXT_PASSWORD, proof: { password: [PASSWORD] } },
      { next: { a: NEXT_PASSWORD }, proof: { password: PASSWORD } },
      { next: NEXT_PASSWORD, proof: { password: PASSWORD }, role: "admin" },
      `{"proof":{"password":"${PASSWORD}"},"next":"${NEXT_PASSWORD}`,
    ]) {
      expect((await ask(person, "password form", "/settings/password", { body })).status).toBe(422);
    }
    const changed = await ask(person, "new password", "/settings/password", {
      body: { next: NEXT_PASSWORD, proof: { password: PASSWORD } },
    });
    expect(changed.status, changed.text).toBe(200);

    await ask(person, "second factor, wrong password", "/settings/totp", {
      body: { proof: { password: WRONG_PASSWORD } },
    });
    const begun = await ask(person, "second factor", "/settings/totp", {
      body: { proof: { password: NEXT_PASSWORD } },
      mayShow: ["TOTP secret"],
    });
    net.plant("TOTP secret", begun.json.secret);
    await ask(person, "wrong code", "/settings/totp/confirm", { body: { code: "00000a" } });
    const confirmed = await ask(person, "recovery codes", "/settings/totp/confirm", {
      body: { code: codeAt(begun.json.secret) },
      mayShow: ["recovery code"],
    });
    const recovery = String(confirmed.json.recoveryCodes[0]);
    net.plant("recovery code", recovery);
    const codes = { email, code: recovery };
    await ask(NOBODY, "recovery code, wrong password", "/sign-in", { body: { ...codes, password: WRONG_PASSWORD } });
    await ask(NOBODY, "recovery code too long", "/sign-in", {
      body: { email, password: NEXT_PASSWORD, code: recovery.repeat(9) },
    });
    await signIn("the customer with a code", { ...codes, password: NEXT_PASSWORD });
    await ask(NOBODY, "recovery code again", "/sign-in", { body: { ...codes, password: NEXT_PASSWORD } });
    await ask(person, "remove, wrong code", "/settings/totp/remove", {
      body: { proof: { password: NEXT_PASSWORD, code: recovery } },
    });
  });

  test("the panel's forms: links, keys and providers, accepted and refused", async () => {
    await member("admin", ADMIN_EMAIL);
    const admin = await signIn("the admin", { email: ADMIN_EMAIL, password: PASSWORD });
    const invited = await ask(admin, "invitation", "/people", {
      body: { email: "new@example.com", name: "New" },
      mayShow: ["link's token"],
    });
    const token = String(invited.json.link.url).split("/").at(-1) ?? "";
    net.plant("link's token", token);
    await ask(admin, "invitation again", "/people", { body: { email: "new@example.com", name: "New" } });
    await ask(NOBODY, "link", `/links/${token}`);
    await ask(NOBODY, "link, wrong form", `/links/${token}`, { body: { password: [PASSWORD] } });
    await ask(NOBODY, "link, short password", `/links/${token}`, { body: { password: "short" } });
    await ask(NOBODY, "link, foreign origin", `/links/${token}`, {
      body: { password: PASSWORD },
      headers: { origin: "http://evil.test" },
    });
    await ask(NOBODY, "link that is none", `/links/${token}x`, { body: { password: PASSWORD } });
    await go("link's page", `/invite/${token}`, { host: PANEL, headers: { accept: "text/html" } });
    const taken = await ask(NOBODY, "link taken", `/links/${token}`, {
      body: { password: NEXT_PASSWORD },
      mayShow: ["session of the invited"],
    });
    expect(taken.status, taken.text).toBe(200);
    net.plant("session of the invited", taken.headers.get("set-cookie")?.split(/[=;]/)[1] ?? "");
    await ask(NOBODY, "link used", `/links/${token}`, { body: { password: NEXT_PASSWORD } });
    await ask(admin, "people", "/people?q=new");

    const made = await ask(admin, "new key", "/keys", { body: { name: "k", mode: "package" }, mayShow: ["panel key"] });
    plantKey("panel key", made.json.secret);
    await ask(admin, "key in a path", `/keys/${made.json.secret}/disable`, { body: {} });
    await ask(admin, "key as a name", "/keys", { body: { name: made.json.secret, mode: made.json.secret } });
    const rotated = await ask(admin, "rotated key", `/keys/${made.json.key.keyId}/rotate`, {
      body: { overlapSeconds: 0 },
      mayShow: ["rotated key"],
    });
    plantKey("rotated key", rotated.json.secret);
    await ask(admin, "keys", "/keys");

    const form = { name: "canary", baseUrl: `http://127.0.0.1:${shop.provider.port}/v1`, apiKey: PROVIDER_KEY };
    for (const wrong of [
      { ...form, baseUrl: "http://127.0.0.1:1/v1" },
      { ...form, apiKey: `${PROVIDER_KEY} ${PROVIDER_KEY}` },
      { ...form, apiKey: [PROVIDER_KEY] },
      { ...form, apiKey: PROVIDER_KEY.repeat(200) },
      { ...form, name: "first" },
      { ...form, extra: PROVIDER_KEY },
      { ...form, baseUrl: `http://user:${PROVIDER_KEY}@127.0.0.1:${shop.provider.port}/v1` },
    ]) {
      expect((await ask(admin, "provider form", "/admin/providers", { body: wrong })).status).toBe(422);
    }
    const added = await ask(admin, "provider added", "/admin/providers", { body: form });
    expect(added.status, added.text).toBe(200);
    const { id } = added.json;
    await ask(admin, "provider's new key", `/admin/providers/${id}`, {
      method: "PATCH",
      body: { apiKey: PROVIDER_KEY },
    });
    await ask(admin, "provider's new address", `/admin/providers/${id}`, {
      method: "PATCH",
      body: { baseUrl: "https://x.invalid/v1" },
    });
    shop.provider.when(({ path }) => path.endsWith("/models"), {
      status: 401,
      body: JSON.stringify({ error: { message: `Bad key ${PROVIDER_KEY}`, code: PROVIDER_KEY } }),
    });
    await ask(admin, "provider tested", `/admin/providers/${id}/test`, { body: {} });
    shop.provider.reset();
    for (const path of [
      "/admin/providers",
      `/admin/providers/${id}`,
      "/audit",
      "/admin/overview",
      "/home",
      "/settings/devices",
    ]) {
      expect((await ask(admin, path, path)).status).toBe(200);
    }
    const playground = { body: chatOf({ api_key_id: PROMPT }) };
    await ask(admin, "playground, no key", "/ai/chat", playground);
    await ask(admin, "playground, no prompt", "/ai/chat", { body: { model: PROMPT, messages: PROMPT } });
  });

  test("the command line", async () => {
    const run = async (args: string[], more: Record<string, string> = {}) => {
      const child = Bun.spawn([process.execPath, CLI, ...args], {
        env: {
          PATH: process.env.PATH ?? "",
          DATABASE_URL: shop.world.url,
          SECRET_KEY: TEST_SECRET_KEY,
          REDIS_URL: redis.url,
          SPOOL_DIR: shop.world.spoolDir,
          ...more,
        },
        stdout: "pipe",
        stderr: "pipe",
      });
      const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
      net.catch(`cli ${args.slice(0, 2).join(" ")}`, out + err, ["CLI key"]);
      return { code: await child.exited, out, err };
    };
    const PROVIDER = { PROVIDER_KEY, PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port}` };
    const url = `http://127.0.0.1:${shop.provider.port}/v1`;
    expect(await run(["provider", "add", "--name", "cli", "--url", url], PROVIDER)).toMatchObject({ code: 0 });
    await run(["provider", "add", "--name", "cli", "--url", url], PROVIDER);
    await run(["provider", "add", "--name", "bad", "--url", `http://x:${PROVIDER_KEY}@127.0.0.1/`], PROVIDER);
    await run(["provider", "test", "cli"], PROVIDER);
    const added = await run(["key", "add", "--account", ADMIN_EMAIL, "--name", "cli", "--json"]);
    const secret = /sk-[0-9A-Za-z]{49}/.exec(added.out)?.[0] ?? "";
    plantKey("CLI key", secret);
    await run(["doctor"], PROVIDER);
  });

  test("requests while the database fails: without tables, and unreachable, so that settlements wait in the spool", async () => {
    const { sql } = shop.world;
    const email = "canary@example.com";
    for (const table of ["sessions", "accounts", "links", "keys", "providers", "packages"]) {
      await sql.unsafe(`alter table ${table} rename to ${table}_away`);
      try {
        await ask(NOBODY, `without ${table}`, "/sign-in", { body: { email, password: NEXT_PASSWORD } });
        await ask(NOBODY, `without ${table}`, `/links/${canary(`token without ${table}`)}`, {
          body: { password: PASSWORD },
        });
        await ask({ cookie: `tollgate_session=${FOREIGN_TOKEN}`, csrf: "x" }, `without ${table}`, "/me");
        await chat(`without ${table}`, {}, { mayShow: WORDS });
        await chat(`stream without ${table}`, { stream: true }, { mayShow: WORDS });
        await go(`balance without ${table}`, "/v1/balance", { secret: key.secret });
      } finally {
        await sql.unsafe(`alter table ${table}_away rename to ${table}`);
      }
    }
    await until(async () => (await go("back", "/readyz")).status === 200);

    const calls = shop.provider.callCount();
    shop.provider.next({ content: ANSWER, chunkDelayMs: 200 });
    const stream = chat("stream without a database", { stream: true }, { mayShow: WORDS });
    await shop.provider.waitForCalls(calls + 1);
    proxy.cut();
    expect((await stream).status).toBe(200);
    for (const path of ["/v1/balance", "/v1/models"]) await go("no database", path, { secret: key.secret });
    await chat("no database", {}, { mayShow: WORDS });
    await ask(NOBODY, "no database", "/sign-in", { body: { email, password: NEXT_PASSWORD } });
    expect(net.findInFolder("spool", shop.world.spoolDir)).toEqual([]);
    const spooled = await spoolBytes();
    expect(spooled).toBeGreaterThan(0);
    proxy.mend();
    await until(async () => (await spoolBytes()) === 0 && (await go("back", "/readyz")).status === 200);
  });

  test("requests of replicas that are killed: after the hold, and before it is settled", async () => {
    for (const place of ["after_reserve", "before_settle"]) {
      const doomed = await start({ FAILPOINTS: `${place}=kill@1` });
      shop.provider.next({ content: ANSWER });
      const lost = shop.call("/v1/chat/completions", { secret: key.secret, body: chatOf(), origin: doomed.origin });
      await expect(lost).rejects.toThrow();
      await doomed.kill();
    }
  });
});

async function spoolBytes(): Promise<number> {
  const glob = new Bun.Glob("**/*.spool").scan({ cwd: shop.world.spoolDir });
  let bytes = 0;
  for await (const path of glob) bytes += Bun.file(join(shop.world.spoolDir, path)).size;
  return bytes;
}

describe("no secret is found", () => {
  test("in answers, their headers included", () => {
    expect(net.names().length).toBeGreaterThan(20);
    expect(net.findInCaught()).toEqual([]);
  });

  test("in the logs of every process", () => {
    for (const [i, one] of replicas.entries()) {
      expect(one.logged()).toContain("listening");
      expect(net.find(`log of replica ${i}`, one.logged())).toEqual([]);
    }
    // Otherwise nothing of what was done would be in it.
    expect(replica.logged()).toContain("provider failed");
    const told = (what: string) => expect(replica.logged()).toMatch(new RegExp(`"message":"request",.*${what}`));
    told('"route":"POST /v1/chat/completions","status":200,"stream":true');
    told(`"keyPrefix":"${key.secret.slice(0, KEY_PREFIX_CHARS)}","model":"image-a"`);
    told('"refusal":"invalid_api_key"');
    told('"route":"POST /api/panel/sign-in","status":401');
    told('"route":"none","status":404');
    expect(replica.logged()).toContain("a request failed");
  });

  test("in the metrics", async () => {
    const port = Number(/"internalPort":(\d+)/.exec(replica.logged())?.[1]);
    const response = await fetch(`http://127.0.0.1:${port}/metrics`);
    const text = await response.text();
    expect(text).toContain("tollgate_");
    expect(text).toContain('route="POST /api/panel/sign-in",code="401"');
    expect(net.find("metrics", text + JSON.stringify([...response.headers]))).toEqual([]);
  });

  test("in the database: in every row, in its files, its write-ahead log and its own log", async () => {
    const { sql } = shop.world;
    const tables = await sql`
      select table_schema as schema, table_name as name from information_schema.tables
      where table_type = 'BASE TABLE' and table_schema not in ('pg_catalog', 'information_schema')`;
    expect(tables.length).toBeGreaterThan(20);
    for (const { schema, name } of tables) {
      const rows = await sql.unsafe(`select t::text as row from "${schema}"."${name}" t`);
      expect(net.find(`table ${name}`, rows.map(({ row }) => row).join("\n"))).toEqual([]);
    }
    await sql.unsafe("checkpoint");
    expect(net.findInFolder("Postgres", join(folder, "postgres"))).toEqual([]);
  });

  test("in Redis: in every value, and in every command that it received", async () => {
    const client = new Redis(redis.url);
    try {
      const keys = await client.keys("*");
      const values = await Promise.all(keys.map(async (name) => `${name} ${await heldUnder(client, name)}`));
      expect(values.length).toBeGreaterThan(0);
      expect(net.find("Redis", values.join("\n"))).toEqual([]);
    } finally {
      client.disconnect();
    }
    expect(monitor.text()).toMatch(/"publish"/i);
    expect(net.find("what Redis was sent", monitor.text())).toEqual([]);
  });

  test("in the spool's files", () => {
    expect(net.findInFolder("spool", shop.world.spoolDir)).toEqual([]);
  });
});

async function heldUnder(client: Redis, name: string): Promise<string> {
  switch (await client.type(name)) {
    case "string":
      return (await client.getBuffer(name))?.toString("latin1") ?? "";
    case "hash":
      return JSON.stringify(await client.hgetall(name));
    case "zset":
      return JSON.stringify(await client.zrange(name, "0", "-1"));
    case "set":
      return JSON.stringify(await client.smembers(name));
    default:
      return JSON.stringify(await client.lrange(name, 0, -1));
  }
}

test("in the end the books balance and no hold is left", async () => {
  const { sql } = shop.world;
  await until(async () => (await sql`select 1 from escrows where units > 0 or nano_usd > 0`).length === 0);
  expect(await shop.world.unbalanced()).toEqual([]);
});
