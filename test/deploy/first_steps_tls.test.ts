import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../../src/demo/free_port.ts";
import { createTestDatabase, type TestDatabase } from "../database.ts";
import { type Started, start, toItsEnd } from "../doc_shell.ts";
import { blocksOf } from "../doc_text.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { freshClone } from "../fresh_clone.ts";
import { sleep } from "../platform/own_redis.ts";
import { REPOSITORY } from "./image.ts";

/**
 * The first steps in production as they stand, from a clone with nothing in it to a request over TLS: the settings file of the document
 * with values in it, the blocks as they are pasted, and its one Caddy command. Caddy's certificates are of its own authority, and its ports
 * are free ones; everything else is as on a machine on the Internet.
 */

const DOCUMENT = join(REPOSITORY, "docs/production.md");
const API_HOST = "api.shop.test";
const PANEL_HOST = "panel.shop.test";
const STEP_MS_MAX = 400_000;
const POLL_MS = 100;

setDefaultTimeout(2 * STEP_MS_MAX);

const blocks = blocksOf(readFileSync(DOCUMENT, "utf8")).filter(({ language }) => language === "sh");
/** The one block that has this in it. */
function blockWith(part: string): string {
  const [found, ...others] = blocks.filter(({ text }) => text.includes(part));
  if (found === undefined || others.length > 0) throw new Error(`not one block of the document has ${part}`);
  return found.text;
}

let folder: string;
let clone: string;
let database: TestDatabase;
let provider: FakeProvider;
let env: Record<string, string>;
let ports: { replica: number; internal: number; http: number; https: number };
const running: Started[] = [];
const adminPassword = randomBytes(18).toString("base64");

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-steps-`));
  clone = freshClone(join(folder, "clone"));
  database = await createTestDatabase();
  provider = await startFakeProvider({ models: ["provider-mini"] });
  ports = { replica: await freePort(), internal: await freePort(), http: await freePort(), https: await freePort() };
  const bin = join(folder, "bin");
  mkdirSync(bin);
  symlinkSync(process.execPath, join(bin, "bun"));
  // There may be no sudo here, and no need of it: the ports are not those of the system.
  writeFileSync(join(bin, "sudo"), '#!/bin/sh\nexec env "$@"\n', { mode: 0o755 });
  env = {
    PATH: `${bin}:${process.env.PATH}`,
    HOME: process.env.HOME ?? "/tmp",
    XDG_DATA_HOME: join(folder, "data"),
    XDG_CONFIG_HOME: join(folder, "config"),
    CADDY_OPTIONS: [
      ...["local_certs", "skip_install_trust", "admin off"],
      ...[`http_port ${ports.http}`, `https_port ${ports.https}`],
    ].join("\n"),
    PORT: String(ports.replica),
    SPOOL_DIR: join(folder, "spool"),
    DRAIN_NOTICE_SECONDS: "0",
    EVENT_LOOP_LAG_MAX_MS: "20000",
  };
  writeFileSync(join(clone, "settings.sh"), settings());
}, STEP_MS_MAX);

afterAll(async () => {
  for (const one of running.reverse()) await one.end();
  await provider?.stop();
  await database?.drop();
  rmSync(folder, { recursive: true, force: true });
}, STEP_MS_MAX);

/** The document's settings, with values for each `…` and example. The other lines are as they stand. */
function settings(): string {
  const values: Record<string, string> = {
    DATABASE_URL: database.url,
    SECRET_KEY: randomBytes(32).toString("base64"),
    API_HOST,
    PANEL_HOST,
    INTERNAL_PORT: String(ports.internal),
    PROVIDER_BASE_URL: provider.baseUrl,
    PROVIDER_API_KEY: provider.apiKey,
    PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port}`,
    PROVIDER_MODEL: "provider-mini",
    ADMIN_PASSWORD: adminPassword,
  };
  const used = new Set<string>();
  const text = blockWith("export DATABASE_URL=")
    .replace("# export PROVIDER_ALLOW_PRIVATE", "export PROVIDER_ALLOW_PRIVATE")
    .replaceAll(/\b([A-Z_]+)=(\S+)/g, (given, name: string) => {
      if (values[name] === undefined) return given;
      used.add(name);
      return `${name}='${values[name]}'`;
    });
  expect([...used].sort()).toEqual(Object.keys(values).sort());
  return text;
}

/** Runs a block as it is pasted, in the clone. */
function paste(name: string, text: string, more: Record<string, string> = {}): Started {
  const script = join(folder, `${name}.sh`);
  writeFileSync(script, text);
  return start("/bin/sh", ["-eu", script], { env: { ...env, ...more }, cwd: clone });
}

async function pasted(name: string, text: string, more?: Record<string, string>): Promise<string> {
  const { code, output } = await toItsEnd(paste(name, text, more));
  expect({ code, output }).toMatchObject({ code: 0 });
  return output;
}

/** Pastes a block that runs until it is stopped, and waits for what shows that it serves. Throws its output if it ends before. */
async function serving(name: string, text: string, isReady: () => Promise<boolean>): Promise<void> {
  const shell = paste(name, text);
  running.push(shell);
  for (const endsAt = performance.now() + STEP_MS_MAX; !(await isReady()); ) {
    if (shell.hasExited() || performance.now() > endsAt) throw new Error(`${name} does not serve:\n${shell.output()}`);
    await sleep(POLL_MS);
  }
}

type Asked = { method?: string; path: string; headers?: Record<string, string>; body?: string };

/** A request to a name, over TLS, by whoever trusts Caddy's authority. Rejects if there is no certificate for the name. */
function ask(name: string, { method = "GET", path, headers = {}, body }: Asked) {
  const ca = readFileSync(join(folder, "data/caddy/pki/authorities/local/root.crt"), "utf8");
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const to = { host: "127.0.0.1", port: ports.https, servername: name, ca, agent: false as const };
    const call = request({ ...to, method, path, headers: { host: name, ...headers } }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => {
        text += part;
      });
      response.once("end", () => resolve({ status: response.statusCode ?? 0, text }));
      response.once("error", reject);
    });
    call.once("error", reject);
    call.end(body);
  });
}

test("the first steps as they stand, then Caddy's command: the API and the panel are served by TLS under their names, and no other name is", async () => {
  const installed = await pasted("install", blockWith("bun install --frozen-lockfile"));
  const [apiKey = ""] = /sk-[\w-]{30,}/.exec(installed) ?? [];
  expect(apiKey).not.toBe("");
  await serving("start", blockWith("bun run start"), async () => {
    const answer = await fetch(`http://127.0.0.1:${ports.replica}/readyz`).catch(() => undefined); // It does not listen yet.
    return answer?.status === 200;
  });
  const first = await pasted("request", blockWith("/v1/chat/completions"), { API_KEY: apiKey });
  expect(first).toContain('"object":"chat.completion"');

  const isServed = () =>
    ask(API_HOST, { path: "/v1/models" }).then(
      ({ status }) => status === 401,
      () => false, // Caddy has no certificate yet.
    );
  const hasAuthority = () => existsSync(join(folder, "data/caddy/pki/authorities/local/root.crt"));
  await serving("caddy", blockWith("caddy run"), async () => hasAuthority() && (await isServed()));

  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
  const body = '{"model": "gpt-mini", "messages": [{"role": "user", "content": "Hello"}]}';
  const chat = await ask(API_HOST, { method: "POST", path: "/v1/chat/completions", headers, body });
  expect(chat).toEqual({ status: 200, text: expect.stringContaining('"object":"chat.completion"') });
  const stream = await ask(API_HOST, {
    ...{ method: "POST", path: "/v1/chat/completions", headers },
    body: body.replace("{", '{"stream": true, '),
  });
  expect([stream.status, stream.text.trimEnd().endsWith("data: [DONE]")]).toEqual([200, true]);

  const page = await ask(PANEL_HOST, { path: "/", headers: { accept: "text/html" } });
  expect([page.status, page.text.startsWith("<!doctype html>")]).toEqual([200, true]);
  const signIn = (password: string) =>
    ask(PANEL_HOST, {
      ...{ method: "POST", path: "/api/panel/sign-in" },
      headers: { "content-type": "application/json", origin: `https://${PANEL_HOST}` },
      body: JSON.stringify({ email: "ada@example.com", password }),
    });
  expect((await signIn(adminPassword)).status).toBe(200);
  expect((await signIn("another password")).status).toBe(401);

  await expect(ask("someone.else.test", { path: "/v1/models" })).rejects.toThrow();
  const plain = await fetch(`http://127.0.0.1:${ports.http}/v1/models`, {
    headers: { host: API_HOST },
    redirect: "manual",
  });
  expect([plain.status, plain.headers.get("location")]).toEqual([308, `https://${API_HOST}/v1/models`]);

  const used = await pasted("usage", ". ./settings.sh\nbun run cli usage --account ann@example.com\n");
  expect(used.match(/ 1 request +complete$/gm)).toHaveLength(3);
});
