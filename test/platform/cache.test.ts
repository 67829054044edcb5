import { expect, test } from "bun:test";
import { Refusal } from "../../src/errors.ts";
import { createCache } from "../../src/platform/cache.ts";

type Row = { name: string; tags: string[] };

/** A cache whose loads the test answers by hand, and whose clock it sets. */
function world(
  options: {
    max?: number;
    missesMax?: number;
    ttlMs?: () => number;
    staleMs?: () => number;
    loadTimeoutMs?: number;
  } = {},
) {
  const asked: { key: string; answer: (row: Row | undefined) => void; fail: (error: Error) => void }[] = [];
  let nowMs = 0;
  const cache = createCache<Row>({
    max: 100,
    missesMax: 10,
    ttlMs: () => 30_000,
    load: (key) => new Promise((answer, fail) => asked.push({ key, answer, fail })),
    tagsOf: (row) => row.tags,
    now: () => nowMs,
    ...options,
  });
  async function put(key: string, row: Row | undefined): Promise<void> {
    const got = cache.get(key);
    asked.at(-1)?.answer(row);
    await got;
  }
  const pass = (ms: number) => {
    nowMs += ms;
  };
  return { cache, asked, put, pass };
}
const row = (name: string, ...tags: string[]): Row => ({ name, tags });

test("a hit makes no promise and asks nobody", async () => {
  const { cache, asked, put } = world();
  await put("k", row("a"));
  expect(cache.peek("k")).toEqual(row("a"));
  expect(await cache.get("k")).toEqual(row("a"));
  expect(asked.length).toBe(1);
  expect(cache.counters).toEqual({ hits: 2, misses: 1, drops: 0 });
});

test("what does not exist is remembered as null, until clearMisses", async () => {
  const { cache, asked, put } = world();
  await put("k", undefined);
  expect(cache.peek("k")).toBeNull();
  expect(await cache.get("k")).toBeUndefined();
  expect(asked.length).toBe(1);
  cache.clearMisses();
  expect(cache.peek("k")).toBeUndefined();
});

test("many callers of one key share one load", async () => {
  const { cache, asked } = world();
  const all = Array.from({ length: 100 }, () => cache.get("k"));
  expect(asked.length).toBe(1);
  asked[0]?.answer(row("a"));
  expect(await Promise.all(all)).toEqual(Array(100).fill(row("a")));
});

test("a fill that an invalidation overtook is handed to its caller and not kept", async () => {
  const { cache, asked } = world();
  const early = cache.get("k");
  cache.drop("account:1");
  asked[0]?.answer(row("old", "account:1"));
  expect(await early).toEqual(row("old", "account:1"));
  expect(cache.peek("k")).toBeUndefined();
});

test("who asks after an invalidation does not join a load from before it", async () => {
  const { cache, asked } = world();
  const early = cache.get("k");
  cache.drop("account:1");
  const late = cache.get("k");
  expect(asked.length).toBe(2);
  asked[1]?.answer(row("new", "account:1"));
  expect(await late).toEqual(row("new", "account:1"));
  asked[0]?.answer(row("old", "account:1"));
  await early;
  expect(cache.peek("k")).toEqual(row("new", "account:1"));
});

test("a fill that another tag's invalidation overtook is kept", async () => {
  const { cache, asked } = world();
  const got = cache.get("k");
  cache.drop("account:2");
  asked[0]?.answer(row("a", "account:1"));
  await got;
  expect(cache.peek("k")).toEqual(row("a", "account:1"));
});

test("a fill that a flush overtook is not kept, found or not", async () => {
  const { cache, asked } = world();
  const both = [cache.get("k"), cache.get("none")];
  cache.flush();
  asked[0]?.answer(row("a"));
  asked[1]?.answer(undefined);
  await Promise.all(both);
  expect(cache.peek("k")).toBeUndefined();
  expect(cache.peek("none")).toBeUndefined();
});

test("a miss that any invalidation overtook is not kept: it may have been the one that made the row", async () => {
  for (const invalidate of ["drop", "clearMisses"] as const) {
    const { cache, asked } = world();
    const got = cache.get("k");
    if (invalidate === "drop") cache.drop("account:1");
    else cache.clearMisses();
    asked[0]?.answer(undefined);
    await got;
    expect(cache.peek("k")).toBeUndefined();
  }
});

test("drop forgets every entry with the tag and no other", async () => {
  const { cache, put } = world();
  await put("a", row("a", "account:1", "catalog"));
  await put("b", row("b", "account:1"));
  await put("c", row("c", "account:2"));
  cache.drop("account:1");
  expect([cache.peek("a"), cache.peek("b")]).toEqual([undefined, undefined]);
  expect(cache.peek("c")).toEqual(row("c", "account:2"));
  expect(cache.counters.drops).toBe(2);
});

test("an entry that was loaded again is dropped by its new tags, not its old ones", async () => {
  const { cache, put, pass } = world();
  await put("a", row("old", "account:1"));
  pass(30_000);
  await put("a", row("new", "account:2"));
  cache.drop("account:1");
  expect(cache.peek("a")?.name).toBe("new");
  cache.drop("account:2");
  expect(cache.peek("a")).toBeUndefined();
});

test("garbage keys cannot push out real entries", async () => {
  const { cache, put } = world({ max: 5, missesMax: 5 });
  for (let i = 0; i < 5; i++) await put(`real${i}`, row("a"));
  for (let i = 0; i < 1000; i++) await put(`garbage${i}`, undefined);
  for (let i = 0; i < 5; i++) expect(cache.peek(`real${i}`)).toEqual(row("a"));
  expect(cache.peek("garbage0")).toBeUndefined();
});

test("real entries are bounded too, and what was pushed out leaves no trace in the tags", async () => {
  const { cache, put } = world({ max: 5 });
  for (let i = 0; i < 1000; i++) await put(`k${i}`, row("a", "all"));
  cache.drop("all");
  expect(cache.counters.drops).toBe(5);
});

test("an entry lives for its TTL, counted from before it was read", async () => {
  const { cache, asked, pass } = world();
  const got = cache.get("k");
  pass(10_000);
  asked[0]?.answer(row("a"));
  await got;
  pass(19_999);
  expect(cache.peek("k")).toEqual(row("a"));
  pass(1);
  expect(cache.peek("k")).toBeUndefined();
});

test("a shorter TTL ends the life of what is already there", async () => {
  let ttl = 30_000;
  const { cache, put, pass } = world({ ttlMs: () => ttl });
  await put("k", row("a"));
  pass(1500);
  ttl = 1000;
  expect(cache.peek("k")).toBeUndefined();
});

test("an entry whose life is over is given out while it is read again, once, for a bounded time", async () => {
  const { cache, asked, put, pass } = world({ staleMs: () => 5_000 });
  await put("k", row("old"));
  pass(30_000);
  for (let i = 0; i < 3; i++) expect(cache.peek("k")).toEqual(row("old"));
  expect(await cache.get("k")).toEqual(row("old"));
  expect(asked.length).toBe(2);
  asked[1]?.answer(row("new"));
  await Bun.sleep(0);
  expect(cache.peek("k")).toEqual(row("new"));
  pass(30_000);
  expect(cache.peek("k")).toEqual(row("new"));
  pass(5_000);
  // The database has not answered: now it is waited for.
  expect(cache.peek("k")).toBeUndefined();
  const got = cache.get("k");
  expect(asked.length).toBe(3);
  asked[2]?.answer(row("newer"));
  expect(await got).toEqual(row("newer"));
});

test("what an invalidation dropped is not given out, however young, while it is read again", async () => {
  const { cache, asked, put, pass } = world({ staleMs: () => 5_000 });
  await put("k", row("old", "account:1"));
  pass(30_000);
  expect(cache.peek("k")).toEqual(row("old", "account:1"));
  cache.drop("account:1");
  expect(cache.peek("k")).toBeUndefined();
  // Nor is what was read from before the invalidation on.
  asked[1]?.answer(row("old", "account:1"));
  await Bun.sleep(0);
  expect(cache.peek("k")).toBeUndefined();
});

test("an entry that is gone when it is read again is given out no more", async () => {
  const { cache, asked, put, pass } = world({ staleMs: () => 5_000 });
  await put("k", row("old"));
  pass(30_000);
  expect(cache.peek("k")).toEqual(row("old"));
  asked[1]?.answer(undefined);
  await Bun.sleep(0);
  expect(cache.peek("k")).toBeNull();
});

test("reading again that fails is begun again by the next look, and once the time is over it is told of", async () => {
  const { cache, asked, put, pass } = world({ staleMs: () => 5_000 });
  await put("k", row("old"));
  pass(30_000);
  for (let i = 1; i <= 3; i++) {
    expect(cache.peek("k")).toEqual(row("old"));
    asked[i]?.fail(new Error("down"));
    await Bun.sleep(0);
  }
  expect(asked.length).toBe(4);
  pass(5_000);
  const got = cache.get("k");
  asked[4]?.fail(new Error("down"));
  await expect(got).rejects.toThrow("down");
});

test("a load that fails tells all its callers and is tried again by the next", async () => {
  const { cache, asked } = world();
  const all = [cache.get("k"), cache.get("k")];
  asked[0]?.fail(new Error("down"));
  for (const result of await Promise.allSettled(all)) expect(result.status).toBe("rejected");
  const again = cache.get("k");
  asked[1]?.answer(row("a"));
  expect(await again).toEqual(row("a"));
});

test("503: loads under way are bounded", async () => {
  const { cache, asked } = world();
  const all = Array.from({ length: 5000 }, (_, i) => cache.get(`k${i}`));
  expect(asked.length).toBe(4096);
  for (const { answer } of asked) answer(undefined);
  const refused = (await Promise.allSettled(all)).filter((result) => result.status === "rejected");
  expect(refused.length).toBe(5000 - 4096);
  expect(refused[0]?.reason).toBeInstanceOf(Refusal);
  await Promise.all([cache.get("next"), asked.at(-1)?.answer(undefined)]);
});

test("503: a load that does not end keeps no caller waiting", async () => {
  const { cache } = world({ loadTimeoutMs: 20 });
  expect(cache.get("k")).rejects.toMatchObject({ code: "service_unavailable" });
});
