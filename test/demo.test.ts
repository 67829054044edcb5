import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { AGENTS_SDK_MODEL } from "../src/demo/demo_provider.ts";
import { freePort } from "../src/demo/free_port.ts";
import { processExists } from "../src/demo/postgres/owned_process.ts";
import { startFakeProvider } from "./fake_provider.ts";

/** The demo as a user runs it: started as a process, its printed commands run in a shell, stopped by Ctrl-C. */

const repository = dirname(import.meta.dirname);
const DEMO = join(repository, "src/demo.ts");
const START_MS_MAX = 60_000;
const CREATING = "Creating a new database";
const END_MS_MAX = 60_000;
const PASTE_MS_MAX = 60_000;
/** The admin's, from the first test on. */
const OWN_PASSWORD = "a password of my own";

/** The tests of this file run in order on one folder, as repeated starts do. */
let folder: string;
let dataDir: string;
let path: string;
const demos: Demo[] = [];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-demo-`));
  chmodSync(folder, 0o755); // As root, PostgreSQL runs as another user.
  dataDir = join(folder, "data");
  path = pathWithCurl();
});
afterAll(async () => {
  for (const demo of demos) for (const pid of [demo.pid, ...demo.below()]) kill(pid, "SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

type Demo = {
  pid: number;
  process: ChildProcess;
  output(): string;
  /** Resolves when it prints that it is ready. Rejects with its output if it ends before. */
  ready: Promise<void>;
  /** Its exit code. */
  exited: Promise<number | null>;
  /** The processes that it started, directly or not. */
  below(): number[];
};

function startDemo(env: Record<string, string> = {}, command = [process.execPath, DEMO]): Demo {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    cwd: repository,
    // Its own process group, so that a signal reaches all of it, as a terminal's Ctrl-C does.
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: path, HOME: process.env.HOME ?? "/tmp", DEMO_DATA_DIR: dataDir, ...env },
  });
  let output = "";
  const exited = new Promise<number | null>((done) => child.once("exit", done));
  const ready = new Promise<void>((done, fail) => {
    const timer = setTimeout(() => fail(new Error(`not ready in time:\n${output}`)), START_MS_MAX);
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (bytes) => {
        output += bytes;
        if (!output.includes("Ctrl-C stops everything")) return;
        clearTimeout(timer);
        done();
      });
    }
    exited.then((code) => {
      clearTimeout(timer);
      fail(new Error(`ended with ${code}:\n${output}`));
    });
  });
  ready.catch(() => {}); // Not every test waits for it.
  const pid = child.pid ?? 0;
  const demo = { pid, process: child, output: () => output, ready, exited, below: () => descendants(pid) };
  demos.push(demo);
  return demo;
}

/** Runs the printed command below a title in a shell; returns its output. */
async function paste(demo: Demo, title: string, onOutput?: (output: string) => void): Promise<string> {
  const command = new RegExp(`^${title}.*\\n  (curl .*)$`, "m").exec(demo.output())?.[1];
  if (command === undefined) throw new Error(`no line under ${title}:\n${demo.output()}`);
  const child = spawn("/bin/sh", ["-c", command], { env: { PATH: path }, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (bytes) => {
      output += bytes;
      onOutput?.(output);
    });
  }
  const closed = await Promise.race([
    new Promise((done) => child.once("close", () => done(true))),
    sleep(PASTE_MS_MAX),
  ]);
  if (closed) return output;
  child.kill("SIGKILL");
  throw new Error(`${title} was not answered in time; so far: ${output}\n${readQuietly(join(dataDir, "demo.log"))}`);
}

const pasteJson = async (demo: Demo, title: string) => JSON.parse(await paste(demo, title));

const keysOf = (demo: Demo) =>
  demo
    .output()
    .match(/\bsk-\w+/g)
    ?.slice(0, 2);

/** The printed lines of the panel: address, role, e-mail address, password. */
const signInsOf = (demo: Demo) => [
  ...demo.output().matchAll(/(http:\/\/\S+) +(admin|customer|reseller) +(\S+@\S+) +(\S.*)$/gm),
];

/** Waits until it and everything below it has ended; returns its exit code. */
async function endOf(demo: Demo, below: number[]): Promise<number | null> {
  const code = await Promise.race([demo.exited, sleep(END_MS_MAX).then(() => "still running")]);
  expect(code).not.toBe("still running");
  const deadline = performance.now() + END_MS_MAX;
  while (below.some(isRunning) && performance.now() < deadline) await sleep(50);
  expect(below.filter(isRunning).map(commandOf)).toEqual([]);
  return code as number | null;
}

test("first start with the README's command: every printed command and sign-in works", async () => {
  const port = await freePort();
  const demo = startDemo({ PORT: String(port) }, [process.execPath, "run", "demo"]);
  await demo.ready;
  expect(demo.output()).toContain(`http://localhost:${port}/v1`);
  expect(demo.output()).not.toContain('"level"');

  const chat = await pasteJson(demo, "Chat");
  expect(chat).toMatchObject({ object: "chat.completion", model: "sim-small" });
  expect(chat.choices[0].message.content.length).toBeGreaterThan(20);
  const stream = (await paste(demo, "Stream")).trim().split("\n\n");
  expect(stream.at(-1)).toBe("data: [DONE]");
  expect(stream.length).toBeGreaterThan(20);
  const image = await pasteJson(demo, "Image");
  expect(image.data[0].url).toMatch(/^http:/);
  expect(
    (await fetch(image.data[0].url, { signal: AbortSignal.timeout(PASTE_MS_MAX) })).headers.get("content-type"),
  ).toBe("image/png");
  const response = await pasteJson(demo, "Responses");
  expect(response).toMatchObject({ object: "response", status: "completed", model: "sim-small" });
  const embeddings = await pasteJson(demo, "Embeddings");
  expect(embeddings).toMatchObject({ object: "list", model: "sim-embed" });
  expect(embeddings.data.map(({ embedding }: { embedding: number[] }) => embedding.length)).toEqual([8, 8]);
  const balance = await pasteJson(demo, "Balance");
  expect(balance).toMatchObject({ object: "balance", mode: "payg" });
  expect(balance.payg.balance_usd).toBeLessThan(25);
  expect(balance.payg.balance_usd).toBeGreaterThan(24.9);
  const usage = await pasteJson(demo, "Usage");
  expect(usage.data.map(({ model }: { model: string }) => model)).toEqual(["sim-image", "sim-small"]);

  // One sign-in for each role works at the printed URL.
  const signIns = signInsOf(demo);
  expect(signIns.map(([, , role]) => role)).toEqual(["admin", "customer", "reseller"]);
  // Node and Python do not resolve names below localhost, so the demo prints the line that they need.
  expect(demo.output()).toMatch(/\/etc\/hosts: 127\.0\.0\.1 ai\.reseller\.localhost$/m);
  for (const [, address = "", role, email, password] of signIns) {
    // Browsers resolve *.localhost themselves; here the name goes into the Host header.
    const { host, origin } = new URL(address);
    const at = (path: string, init: RequestInit = {}) =>
      fetch(`http://127.0.0.1:${port}${path}`, { ...init, headers: { host, ...init.headers } });
    const page = await at("/sign-in", { headers: { accept: "text/html" } });
    expect({ role, status: page.status, html: (await page.text()).includes('<div id="root">') }).toEqual({
      role,
      status: 200,
      html: true,
    });
    const signIn = await at("/api/panel/sign-in", {
      method: "POST",
      headers: { "content-type": "application/json", origin },
      body: JSON.stringify({ email, password }),
    });
    expect(signIn.status).toBe(200);
    const cookie = signIn.headers.get("set-cookie")?.split(";", 1)[0] ?? "";
    const me = (await (await at("/api/panel/me", { headers: { cookie } })).json()) as { person: { role: string } };
    expect(me.person.role).toBe(role ?? "");
    if (role !== "admin") continue;
    // For the second start.
    const { csrfToken } = (await signIn.json()) as { csrfToken: string };
    const changed = await at("/api/panel/settings/password", {
      method: "POST",
      headers: { "content-type": "application/json", origin, cookie, "x-csrf-token": csrfToken },
      body: JSON.stringify({ next: OWN_PASSWORD, proof: { password } }),
    });
    expect(changed.status).toBe(200);
  }

  const below = demo.below();
  // bun run's child, the demo, PostgreSQL with its own, the provider, and two guards.
  expect(below.length).toBeGreaterThan(5);
  expect(below.map(commandOf).join("\n")).toContain("simulated_provider.ts");
  kill(-demo.pid, "SIGINT");
  await endOf(demo, below);
  expect(demo.output()).toContain("Stopped.");
});

test("secrets are readable by their owner only, and none is in the log", () => {
  for (const name of ["demo.json", "secret_key"]) expect(statSync(join(dataDir, name)).mode & 0o777).toBe(0o600);
  expect(readFileSync(join(dataDir, "demo.log"), "utf8")).not.toMatch(/sk-\w{20}/);
});

test("second start: the database is not created again; the same keys and usage; SIGTERM to the process ends everything with exit code 0", async () => {
  const demo = startDemo({ PORT: String(await freePort()) });
  await demo.ready;
  expect(demos[0]?.output()).toContain(CREATING);
  expect(demo.output()).not.toContain(CREATING);
  // Clients take the first model of a list; the name that looks like a real one is the last.
  const [base = "", resellerBase = ""] =
    demo
      .output()
      .match(/http:\/\/(?:ai\.reseller\.)?localhost:\d+\/v1/g)
      ?.filter((url, i, all) => all.indexOf(url) === i) ?? [];
  const [key = ""] = keysOf(demo) ?? [];
  const listed = await (await fetch(`${base}/models`, { headers: { authorization: `Bearer ${key}` } })).json();
  const ids = listed.data.map(({ id }: { id: string }) => id);
  expect([ids[0], ids.at(-1)]).toEqual(["sim-small", AGENTS_SDK_MODEL]);
  // The key beside the reseller's base URL works on that host.
  const [, resellerKey = ""] = /(sk-\S+) {2}a key of the reseller's customer/.exec(demo.output()) ?? [];
  const headers = { authorization: `Bearer ${resellerKey}`, host: new URL(resellerBase).host };
  expect((await fetch(`${base}/models`, { headers })).status).toBe(200);
  expect(keysOf(demo)).toEqual(keysOf(demos[0] as Demo));
  // A password that somebody changed is not printed as if it still worked.
  const before = signInsOf(demos[0] as Demo).map(([, , role, , password]) => [role, password]);
  expect(signInsOf(demo).map(([, , role, , password]) => [role, password])).toEqual([
    ["admin", "changed in the panel"],
    ...before.slice(1),
  ]);
  expect((await pasteJson(demo, "Usage")).data).toHaveLength(2);
  expect((await pasteJson(demo, "Balance")).payg.balance_usd).toBeLessThan(25);
  expect(await pasteJson(demo, "Chat")).toMatchObject({ object: "chat.completion" });
  const below = demo.below();
  kill(demo.pid, "SIGTERM");
  expect(await endOf(demo, below)).toBe(0);
});

test("a taken port is reported, and the next free one is used in every line; then everything is killed", async () => {
  const taken = createServer();
  const port = await new Promise<number>((done) => {
    taken.listen(0, "127.0.0.1", () => done((taken.address() as { port: number }).port));
  });
  const demo = startDemo({ PORT: String(port) });
  await demo.ready;
  taken.close();
  expect(demo.output()).toMatch(new RegExp(`Port ${port} is taken, so the demo uses \\d+\\.`));
  expect(demo.output()).not.toContain(`localhost:${port}/`);
  expect(await pasteJson(demo, "Chat")).toMatchObject({ object: "chat.completion" });
  const below = demo.below();
  for (const pid of [demo.pid, ...below]) kill(pid, "SIGKILL");
  await endOf(demo, below);
});

test("a start after kill -9 keeps keys and usage; Ctrl-C during a stream ends it in time with exit code 0", async () => {
  const demo = startDemo({ PORT: String(await freePort()) });
  await demo.ready;
  expect(keysOf(demo)).toEqual(keysOf(demos[0] as Demo));
  expect((await pasteJson(demo, "Usage")).data).toHaveLength(4);
  const begun = Promise.withResolvers<void>();
  const streaming = paste(demo, "Stream", (output) => {
    if (output.includes("data: ")) begun.resolve();
  });
  await Promise.race([begun.promise, streaming]);
  const below = demo.below();
  kill(-demo.pid, "SIGINT");
  expect(await endOf(demo, below)).toBe(0);
  expect(await streaming).toContain("data: ");
});

test("Ctrl-C during the first start leaves nothing running, and the next start succeeds", async () => {
  const env = { DEMO_DATA_DIR: join(folder, "interrupted"), PORT: String(await freePort()) };
  const cut = startDemo(env);
  while (!cut.output().includes(CREATING)) await sleep(10);
  await sleep(100);
  const below = cut.below();
  kill(-cut.pid, "SIGINT");
  expect({ code: await endOf(cut, below), output: cut.output() }).toMatchObject({ code: 0 });
  const whole = startDemo(env);
  await whole.ready;
  const all = whole.below();
  kill(whole.pid, "SIGTERM");
  expect(await endOf(whole, all)).toBe(0);
});

test("PROVIDER_BASE_URL: the demo sells that provider's models, also from an address of this machine", async () => {
  const models = ["tiny-chat-1b", "big-chat", "paint-image", "text-embedding-9"];
  const provider = await startFakeProvider({ models });
  const env = {
    PROVIDER_BASE_URL: provider.baseUrl,
    PROVIDER_API_KEY: provider.apiKey,
    PORT: String(await freePort()),
  };
  const demo = startDemo(env);
  await demo.ready;
  expect(demo.output()).toContain("Prices are made up");
  expect(await pasteJson(demo, "Chat")).toMatchObject({ model: "tiny-chat-1b" });
  expect(await paste(demo, "Stream")).toContain("data: [DONE]");
  expect((await pasteJson(demo, "Image")).data).toHaveLength(1);
  const embedded = await pasteJson(demo, "Embeddings");
  expect(embedded).toMatchObject({ object: "list", model: "text-embedding-9" });
  expect(provider.callCount()).toBe(4);
  const [key] = keysOf(demo) ?? [];
  const port = /localhost:(\d+)\/v1/.exec(demo.output())?.[1];
  const listed = await fetch(`http://localhost:${port}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  const { data } = (await listed.json()) as { data: { id: string }[] };
  expect(data.map(({ id }) => id).sort()).toEqual(["big-chat", "paint-image", "text-embedding-9", "tiny-chat-1b"]);
  const below = demo.below();
  kill(demo.pid, "SIGTERM");
  expect(await endOf(demo, below)).toBe(0);
  await provider.stop();
});

/** Address and key of the simulated provider, from the command line of its process. */
function simulatedOf(demo: Demo): { url: string; headers: Record<string, string> } {
  const command = demo
    .below()
    .map(commandOf)
    .find((line) => line.includes("--pace-ms="));
  const of = (name: string) => new RegExp(`--${name}=(\\S+)`).exec(command ?? "")?.[1];
  const headers = { authorization: `Bearer ${of("api-key")}`, "content-type": "application/json" };
  return { url: `http://127.0.0.1:${of("port")}/v1/chat/completions`, headers };
}

test("--dialect: the simulated provider refuses what that one refuses, and the gateway knows; another start has another one", async () => {
  const streamed = JSON.stringify({
    model: "sim-small",
    messages: [{ role: "user", content: "Tell me a story." }],
    ...{ stream: true, stream_options: { include_usage: true } },
  });
  for (const [dialect, status] of [
    ["mistral", 422],
    ["openai", 200],
  ] as const) {
    const port = await freePort();
    const demo = startDemo({ PORT: String(port) }, [process.execPath, DEMO, "--dialect", dialect]);
    await demo.ready;
    // The same request, at the provider itself and by the gateway.
    const { url, headers } = simulatedOf(demo);
    const direct = await fetch(url, { method: "POST", headers, body: streamed });
    await direct.body?.cancel();
    expect([dialect, direct.status]).toEqual([dialect, status]);
    expect(await paste(demo, "Stream")).toContain('"usage":{"prompt_tokens"');
    expect(await pasteJson(demo, "Chat")).toMatchObject({ object: "chat.completion" });
    const admin = await adminOf(demo, port);
    const { providers } = await admin("GET", "/admin/providers");
    const { id, ...provider } = providers.find(({ name }: { name: string }) => name === "simulated");
    expect(provider).toMatchObject({ dialect, facts: {} });
    // What was set for one is not said of the next.
    await admin("PATCH", `/admin/providers/${id}`, { facts: { firstTokenSeconds: 77 } });
    const below = demo.below();
    kill(demo.pid, "SIGTERM");
    expect(await endOf(demo, below)).toBe(0);
  }
});

/** Calls the panel as the admin. */
async function adminOf(demo: Demo, port: number) {
  const origin = `http://localhost:${port}`;
  const call = async (method: string, path: string, body: unknown, headers: Record<string, string>) => {
    const response = await fetch(`${origin}/api/panel${path}`, {
      method,
      headers: { origin, "content-type": "application/json", ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    expect({ path, status: response.status, text: response.status === 200 ? "" : text }).toMatchObject({ text: "" });
    return { response, json: JSON.parse(text) };
  };
  const [, , , email] = signInsOf(demo).find(([, , role]) => role === "admin") ?? [];
  const signedIn = await call("POST", "/sign-in", { email, password: OWN_PASSWORD }, {});
  const cookie = signedIn.response.headers.getSetCookie()[0]?.split(";")[0] ?? "";
  const { csrfToken } = (await call("GET", "/me", undefined, { cookie })).json;
  return async (method: string, path: string, body?: unknown) =>
    (await call(method, path, body, { cookie, "x-csrf-token": csrfToken })).json;
}

const wrong: { what: string; env?: () => Promise<Record<string, string>>; args?: string[]; says: RegExp }[] = [
  {
    what: "PROVIDER_BASE_URL without its key",
    env: async () => ({ PROVIDER_BASE_URL: "http://127.0.0.1:9/v1" }),
    says: /^PROVIDER_BASE_URL is set without PROVIDER_API_KEY/,
  },
  {
    what: "a provider that does not answer",
    env: async () => ({ PROVIDER_BASE_URL: `http://127.0.0.1:${await freePort()}/v1`, PROVIDER_API_KEY: "key" }),
    says: /^The provider at http:\/\/127\.0\.0\.1:\d+\/v1 does not list its models/,
  },
  {
    what: "a data folder that cannot be created",
    env: async () => {
      writeFileSync(join(folder, "a_file"), "");
      return { DEMO_DATA_DIR: join(folder, "a_file", "data") };
    },
    says: /^The demo cannot use the folder/,
  },
  { what: "a PORT that is not a number", env: async () => ({ PORT: "http" }), says: /^PORT is not a port number/ },
];
wrong.push(
  {
    what: "an unknown dialect",
    args: ["--dialect", "gpt"],
    says: /^There is no dialect "gpt"\. There are generic, openai, /,
  },
  {
    what: "--dialect without a name",
    args: ["--dialect"],
    says: /^Option '--dialect <value>' argument missing\. The demo takes --dialect NAME, and nothing else\./,
  },
  {
    what: "another option",
    args: ["--port", "80"],
    says: /^Unknown option '--port'\. The demo takes --dialect NAME, and nothing else\. NAME is .*: generic, openai, /,
  },
  {
    what: "a name without --dialect",
    args: ["openai"],
    says: /^Unexpected argument 'openai'\. The demo takes --dialect NAME, and nothing else\./,
  },
  {
    what: "--dialect for a real provider",
    env: async () => ({ PROVIDER_BASE_URL: "http://127.0.0.1:9/v1", PROVIDER_API_KEY: "key" }),
    args: ["--dialect", "openai"],
    says: /^--dialect is for the simulated provider: leave it out, or PROVIDER_BASE_URL\.$/,
  },
);
for (const { what, env, args = [], says } of wrong) {
  test(`${what}: one sentence, exit code 1, nothing started`, async () => {
    // Of a usual port that is taken, it would say so too.
    const demo = startDemo({ PORT: String(await freePort()), ...(await env?.()) }, [process.execPath, DEMO, ...args]);
    expect(await endOf(demo, demo.below())).toBe(1);
    const sentences = demo.output().replace("Tollgate demo", "").trim().split("\n");
    expect(sentences).toHaveLength(1);
    expect(sentences[0]).toMatch(says);
  });
}

function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended already.
  }
}

/** Everything below a process. */
function descendants(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const [child, parent] of processes()) children.set(parent, [...(children.get(parent) ?? []), child]);
  const found: number[] = [];
  for (const waiting = [pid]; waiting.length > 0; ) {
    const next = children.get(waiting.pop() ?? 0) ?? [];
    found.push(...next);
    waiting.push(...next);
  }
  return found;
}

/** Process and parent, of all there are. */
function processes(): [number, number][] {
  if (existsSync("/proc/self/stat")) {
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map((name) => [Number(name), Number(/\) \S (\d+)/.exec(readQuietly(`/proc/${name}/stat`))?.[1] ?? 0)]);
  }
  const { stdout } = spawnSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" });
  return stdout
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number) as [number, number]);
}

/** A zombie has ended, even if its parent has not collected it. */
function isRunning(pid: number): boolean {
  return processExists(pid) && !/\) Z /.test(readQuietly(`/proc/${pid}/stat`));
}

function commandOf(pid: number): string {
  return `${pid} ${readQuietly(`/proc/${pid}/cmdline`).replaceAll("\0", " ")}`;
}

function readQuietly(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return ""; // It has ended in the meantime, or this system has no /proc.
  }
}

/** The PATH, with a replacement for curl if the machine has none. */
function pathWithCurl(): string {
  const own = process.env.PATH ?? "";
  if (spawnSync("curl", ["--version"]).status === 0) return own;
  const script = join(import.meta.dirname, "curl_stand_in.ts");
  writeFileSync(join(folder, "curl"), `#!/bin/sh\nexec "${process.execPath}" "${script}" "$@"\n`, { mode: 0o755 });
  return `${folder}:${own}`;
}
