import { expect, test } from "bun:test";
import { deadline } from "../../src/platform/deadline.ts";
import { sleep, until } from "./own_redis.ts";

test("each deadline fires once, not early; those of equal length fire in order", async () => {
  const startedMs = performance.now();
  const came: [string, number][] = [];
  const end = (name: string) => () => came.push([name, performance.now() - startedMs]);
  deadline(60, end("a"));
  await sleep(20);
  deadline(60, end("b"));
  deadline(10, end("short"));
  await until(() => came.length === 3);
  expect(came.map(([name]) => name)).toEqual(["short", "a", "b"]);
  for (const [name, leastMs] of [
    ["short", 30],
    ["a", 60],
    ["b", 80],
  ] as const)
    expect(came.find((one) => one[0] === name)?.[1]).toBeGreaterThanOrEqual(leastMs - 1);
  await sleep(100);
  expect(came).toHaveLength(3);
});

test("a cancelled deadline never fires; after all are cancelled the same length works again", async () => {
  let came = 0;
  const takeBack = Array.from({ length: 1000 }, () => deadline(30, () => came++));
  for (const back of takeBack) back();
  await sleep(100);
  expect(came).toBe(0);
  deadline(30, () => came++);
  await until(() => came === 1);
});
