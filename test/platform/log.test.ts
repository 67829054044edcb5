import { expect, test } from "bun:test";
import { createLog } from "../../src/platform/log.ts";
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

test("keys, cookies, authorization and prompts are not written, whatever they are called", () => {
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

test("an error keeps its code, stack and cause, and loses the query's values", () => {
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

test("long text is cut", () => {
  const { log, lines } = quietLog();
  log.info({ note: "x".repeat(1_000_000) }, "y".repeat(1_000_000));
  expect(JSON.stringify(lines[0]).length).toBeLessThan(3000);
});

test("below its level nothing is written", () => {
  const lines: string[] = [];
  const log = createLog("warn", { write: (line) => void lines.push(line) });
  log.info({}, "no");
  log.warn("yes");
  expect(lines.length).toBe(1);
});

test("standard output gets every line, also when the process exits at once", async () => {
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
