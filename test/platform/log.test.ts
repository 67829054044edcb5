import { expect, test } from "bun:test";
import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { createLog, type RequestLine } from "../../src/platform/log.ts";
import { until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";

test("a line is JSON with time, level, message and plain fields", () => {
  const { log, lines } = quietLog();
  log
    .child({ replica: "a" })
    .info({ requestId: "r1", status: 200, nanoUsd: 12n, ok: true, models: ["a", "b"] }, "answered");
  expect(lines[0]).toMatchObject({
    level: "info",
    message: "answered",
    replica: "a",
    requestId: "r1",
    status: 200,
    nanoUsd: "12",
    ok: true,
    models: ["a", "b"],
  });
  expect(lines[0]?.time).toMatch(/^\d{4}-\d\d-\d\dT/);
});

test("keys, cookies, authorization and prompts are not written, under any field name", () => {
  const { log, lines } = quietLog();
  log.info(
    {
      Authorization: "Bearer abc.def",
      "set-cookie": "s=hunter2",
      api_key: "hunter2",
      password: "hunter2",
      messages: [{ content: "hunter2" }],
      prompt: "hunter2",
      request: { headers: { cookie: "hunter2" } },
      list: [{ a: "hunter2" }],
      note: "used sk-abcdefghijklmnop and Bearer hunter2hunter2",
      url: "postgres://u:hunter2@db/x",
    },
    "key sk-hunter2hunter2 was refused",
  );
  const line = JSON.stringify(lines[0]);
  expect(line).not.toContain("hunter2");
  expect(line).not.toContain("abcdefghijklmnop");
});

test("an error is logged with code, stack and cause, without the query's values", () => {
  const { log, lines } = quietLog();
  const cause = Object.assign(new Error("duplicate key"), { code: "23505" });
  const error = new Error("Failed query: insert into accounts values ($1)\nparams: someone@example.com,hunter2", {
    cause,
  });
  log.error({ err: error }, "failed");
  const line = JSON.stringify(lines[0]);
  expect(line).not.toContain("hunter2");
  expect(lines[0]?.err).toMatchObject({ type: "Error", cause: { message: "duplicate key", code: "23505" } });
});

test("a query's values are removed completely, also with several lines, and the stack stays", () => {
  const { log, lines } = quietLog();
  const error = new Error("Failed query: update accounts\nparams: a first line,\nhunter2\n   at hunter2,x");
  log.error({ err: error }, "failed");
  expect(JSON.stringify(lines[0])).not.toContain("hunter2");
  expect(JSON.stringify(lines[0]?.err)).toContain("log.test.ts");
});

test("long text is cut", () => {
  const { log, lines } = quietLog();
  log.info({ note: "x".repeat(1_000_000) }, "y".repeat(1_000_000));
  expect(JSON.stringify(lines[0]).length).toBeLessThan(3000);
});

test("nothing below the level is written", () => {
  const lines: string[] = [];
  const log = createLog("warn", { write: (line) => void lines.push(line) });
  log.info({}, "no");
  log.warn("yes");
  expect(lines.length).toBe(1);
});

test("standard output gets every line, also when the process exits immediately", async () => {
  const script = `
    import { createLog } from ${JSON.stringify(new URL("../../src/platform/log.ts", import.meta.url).href)};
    const log = createLog("info");
    for (let i = 0; i < 5000; i++) log.info({ i }, "line");
    await log.flush();
    process.exit(0);`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "inherit" });
  const lines = (await new Response(child.stdout).text()).trim().split("\n");
  expect(await child.exited).toBe(0);
  expect(lines.length).toBe(5000);
});

test("the last line is written before the process exits, also while the thread pool is busy", async () => {
  const script = `
    import { pbkdf2 } from "node:crypto";
    import { createLog } from ${JSON.stringify(new URL("../../src/platform/log.ts", import.meta.url).href)};
    const log = createLog("info");
    log.info("first");
    await new Promise((resolve) => setTimeout(resolve, 30));
    for (let i = 0; i < 16; i++) pbkdf2("a", "b", 100000, 64, "sha512", () => {});
    log.info("last");
    await log.flush();
    process.exit(0);`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "inherit" });
  expect((await new Response(child.stdout).text()).trim().split("\n").length).toBe(2);
});

/** A process that logs each line of its input to a named pipe: "many" 20,000 times. */
function logsInput(pipe: string) {
  const script = `
    import { createInterface } from "node:readline";
    import { createLog } from ${JSON.stringify(new URL("../../src/platform/log.ts", import.meta.url).href)};
    const log = createLog("info");
    for await (const line of createInterface(process.stdin))
      for (let left = line === "many" ? 20_000 : 1; left > 0; left--) log.info(line.padEnd(900));
    await log.flush();
    process.exit(0);`;
  return spawn("sh", ["-c", 'exec "$1" -e "$2" > "$0"', pipe, process.execPath, script], {
    stdio: ["pipe", "ignore", "inherit"],
  });
}

/** Reads messages from a named pipe until one of them is `last`, then closes it; how many there were of each. */
async function messagesUntil(last: string, pipe: string): Promise<Record<string, number>> {
  const { stdout } = await promisify(execFile)("sed", [`/"${last} /q`, pipe], { maxBuffer: 64 * 1024 * 1024 });
  const lines = stdout.trim().split("\n");
  return Object.fromEntries(
    Map.groupBy(lines, (line) => JSON.parse(line).message.trim())
      .entries()
      .map(([message, of]) => [message, of.length]),
  );
}

test("lines that could not be written are written with later ones, also after more of them than the buffer has room for", async () => {
  const folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-log-`));
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  const child = logsInput(pipe);
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const say = (line: string) => void child.stdin?.write(`${line}\n`);
  /** Reads what was logged until it finds `line`, which is logged until somebody reads. */
  const read = async (line: string) => {
    const timer = setInterval(() => say(line), 100);
    return await messagesUntil(line, pipe).finally(() => clearInterval(timer));
  };
  try {
    expect(await read("first")).toMatchObject({ first: 1 });
    say("alone"); // Nobody reads: the write fails.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await read("second")).toMatchObject({ alone: 1 });
    say("many");
    await new Promise((resolve) => setTimeout(resolve, 1500));
    expect((await read("third")).many).toBeGreaterThan(15_000);
    child.stdin?.end();
    expect(await exited).toBe(0);
  } finally {
    child.kill("SIGKILL");
    rmSync(folder, { recursive: true });
  }
});

const LINE: RequestLine = {
  requestId: "r1",
  accountId: 1,
  keyId: undefined,
  keyPrefix: undefined,
  model: undefined,
  route: "GET /v1/models",
  status: 200,
  refusal: undefined,
  stream: undefined,
  provider: undefined,
  routeId: undefined,
  end: undefined,
  totalMs: 1.5,
  reserveMs: undefined,
  firstByteMs: 1.5,
  providerMs: undefined,
  settleMs: undefined,
  bytesOut: undefined,
};

test("request lines are written together, before later lines, and on flush", async () => {
  const writes: string[] = [];
  const log = createLog("info", { write: (text) => void writes.push(text) });
  log.request(LINE);
  log.request({ ...LINE, requestId: "r2" });
  expect(writes).toEqual([]);
  log.info("another line");
  log.request({ ...LINE, requestId: "r3" });
  await log.flush();
  expect(writes).toHaveLength(3);
  const lines = writes
    .join("")
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
  expect(lines).toMatchObject([
    { requestId: "r1" },
    { requestId: "r2" },
    { message: "another line" },
    { requestId: "r3" },
  ]);
  expect(lines[0]).toEqual({
    level: "info",
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    message: "request",
    requestId: "r1",
    accountId: 1,
    route: "GET /v1/models",
    status: 200,
    totalMs: 1.5,
    firstByteMs: 1.5,
  });
  for (let i = 0; i < 400; i++) log.request(LINE);
  expect(writes.length).toBeGreaterThan(3); // This many lines are not delayed.
  log.request({ ...LINE, requestId: "r4" });
  await until(() => writes.join("").includes('"r4"'));
});

test("a request's line obeys the level: 5xx are warnings", async () => {
  for (const [level, ids] of [
    ["info", ["ok", "bad"]],
    ["warn", ["bad"]],
    ["error", []],
  ] as const) {
    const writes: string[] = [];
    const log = createLog(level, { write: (text) => void writes.push(text) });
    log.request({ ...LINE, requestId: "ok" });
    log.request({ ...LINE, requestId: "bad", status: 503 });
    await log.flush();
    expect([...writes.join("").matchAll(/"requestId":"(\w+)"/g)].map(([, id]) => id)).toEqual([...ids]);
  }
});
