import { afterAll, expect, test } from "bun:test";
import { fileURLToPath } from "node:url";
import { ownRedis } from "./own_redis.ts";

const redis = await ownRedis();
afterAll(() => redis.stop());

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

test("the platform's rules hold on Deno too, and the process ends by itself", async () => {
  const child = Bun.spawn(
    [here("../../node_modules/.bin/deno"), "run", "--allow-all", "--no-check", here("deno_check.ts"), redis.url],
    {
      stdout: "pipe",
      stderr: "ignore", // Deno reports the worker that fails on purpose there.
    },
  );
  const lines = (await new Response(child.stdout).text()).trim().split("\n");
  expect(lines.filter((line) => line.startsWith("NOT OK"))).toEqual([]);
  expect(lines.filter((line) => line.startsWith("ok: ")).length).toBe(12);
  const logged = lines.filter((line) => line.includes("a line of the log"));
  expect(logged.length).toBe(1);
  expect(logged[0]).not.toContain("hunter2");
  expect(await child.exited).toBe(0);
});
