import { afterAll, beforeAll, expect, test } from "bun:test";
import { denoReplicaCommand } from "../../scripts/test_deno.ts";
import { hashPassword } from "../../src/accounts/passwords.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type CallOptions, chatBody, eventsOf, openShop, type Shop } from "../gateway/shop.ts";
import { type ReplicaProcess, startReplicaProcess } from "../replica.ts";

/**
 * A replica on Deno and one on Bun, of one database and one Redis; and the panel on Deno. The API on Deno is the contract suite's,
 * which runs on both (`scripts/run_tests.ts`).
 */

let shop: Shop;
let deno: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop();
  const { world, provider } = shop;
  const env = {
    DATABASE_URL: world.url,
    REDIS_URL: process.env.REDIS_URL ?? "",
    SPOOL_DIR: `${world.spoolDir}/deno`,
    PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port}`,
    LOG_LEVEL: "info",
  };
  deno = await startReplicaProcess(env, denoReplicaCommand());
});
afterAll(async () => {
  try {
    expect(await shop.world.unbalanced()).toEqual([]);
  } finally {
    await deno.kill();
    await shop.close();
  }
});

const call = (path: string, options: CallOptions = {}) => shop.call(path, { origin: deno.origin, ...options });

test("it is Deno that answers, alive and ready", async () => {
  expect([deno, shop.replicas[0]].map((replica) => /"runtime":"(\w+)"/.exec(replica?.logged() ?? "")?.[1])).toEqual([
    "deno",
    "bun",
  ]);
  expect((await call("/healthz")).json).toEqual({ status: "ok" });
  expect((await call("/readyz")).json).toEqual({ status: "ready" });
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

  // Our own hook reads forms, and the framework's shapes refuse them.
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
