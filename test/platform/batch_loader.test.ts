import { afterEach, expect, jest, test } from "bun:test";
import { createBatchLoader } from "../../src/platform/batch_loader.ts";
import { sleep } from "./own_redis.ts";

afterEach(() => void jest.useRealTimers());

/** A reader that finds keys which begin with "k", and answers when the test says so. */
function openReader() {
  const reads: { keys: string[]; answer(): void; fail(error: Error): void }[] = [];
  const lookUp = createBatchLoader<string>((keys) => {
    const { promise, resolve, reject } = Promise.withResolvers<Map<string, string>>();
    const found = new Map(keys.filter((key) => key.startsWith("k")).map((key) => [key, `value of ${key}`]));
    reads.push({ keys, answer: () => resolve(found), fail: reject });
    return promise;
  });
  return { reads, lookUp };
}

test("look-ups that are made together, or during two reads, are read together; each gets its own result", async () => {
  const { reads, lookUp } = openReader();
  const first = [lookUp("k1"), lookUp("none")];
  await sleep(0);
  const second = lookUp("k2");
  await sleep(0);
  const waiting = Array.from({ length: 300 }, (_, i) => lookUp(`k${i}`));
  await sleep(0);
  expect(reads.map(({ keys }) => keys.length)).toEqual([2, 1]);
  reads[1]?.answer();
  expect(await second).toBe("value of k2");
  reads[0]?.answer();
  expect(await Promise.all(first)).toEqual(["value of k1", undefined]);
  await sleep(0);
  expect(reads.map(({ keys }) => keys.length)).toEqual([2, 1, 256, 44]);
  for (const { answer } of reads) answer();
  expect(await Promise.all(waiting)).toEqual(Array.from({ length: 300 }, (_, i) => `value of k${i}`));
});

test("a failed read fails only its own look-ups; the next ones are read", async () => {
  const { reads, lookUp } = openReader();
  const failing = lookUp("k1");
  await sleep(0);
  const other = lookUp("k2");
  await sleep(0);
  const behind = lookUp("k3");
  reads[0]?.fail(new Error("no connection"));
  await expect(failing).rejects.toThrow("no connection");
  for (const { answer } of reads) answer();
  expect([await other, await behind]).toEqual(["value of k2", "value of k3"]);
});

test("a read that does not end is abandoned after 5 s, and its slot is free again", async () => {
  const { reads, lookUp } = openReader();
  const lost = [lookUp("k1")];
  await sleep(0);
  lost.push(lookUp("k2"));
  await sleep(0);
  const behind = lookUp("k3");
  const ends = await Promise.allSettled(lost);
  expect(ends.map((end) => end.status === "rejected" && end.reason.code)).toEqual([
    "service_unavailable",
    "service_unavailable",
  ]);
  await sleep(0);
  reads[2]?.answer();
  expect(await behind).toBe("value of k3");
});

test("with a pause, a read begins no sooner than that after the one before, however many look-ups there are", async () => {
  jest.useFakeTimers();
  let reads = 0;
  let found = 0;
  const lookUp = createBatchLoader<string>(
    async (keys) => {
      reads++;
      return new Map(keys.map((key) => [key, key]));
    },
    { readsMax: 1, pauseMs: 20 },
  );
  for (let ms = 0; ms < 1_000; ms++) {
    void lookUp(`k${ms}`).then(() => found++);
    jest.advanceTimersByTime(1);
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  }
  expect(reads).toBe(50);
  expect(found).toBeGreaterThan(950);
});
