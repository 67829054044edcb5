import { expect, test } from "bun:test";
import { Refusal } from "../../src/errors.ts";
import { createCache } from "../../src/platform/cache.ts";

type Row = { name: string; tags: string[] };

/** A cache whose loads and clock the test controls. */
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

test("a hit makes no promise and causes no load", async () => {
  const { cache, asked, put } = world();
  await put("k", row("a"));
  expect(cache.peek("k")).toEqual(row("a"));
  expect(await cache.get("k")).toEqual(row("a"));
  expect(asked.length).toBe(1);
  expect(cache.counters).toEqual({ hits: 2, misses: 1, drops: 0 });
});

test("a missing value is cached as null, until clearMisses", async () => {
  const { cache, asked, put } = world();
  await put("k", undefined);
  expect(cache.peek("k")).toBeNull();
  expect(await cache.get("k")).toBeUndefined();
  expect(asked.length).toBe(1);
  cache.clearMisses();
  expect(cache.peek("k")).toBeUndefined();
});

test("concurrent callers of one key share one load", async () => {
  const { cache, asked } = world();
  const all = Array.from({ length: 100 }, () => cache.get("k"));
  expect(asked.length).toBe(1);
  asked[0]?.answer(row("a"));
  expect(await Promise.all(all)).toEqual(Array(100).fill(row("a")));
});

test("a load that was invalidated meanwhile is returned to its caller and not cached", async () => {
  const { cache, asked } = world();
  const early = cache.get("k");
  cache.drop("account:1");
  asked[0]?.answer(row("old", "account:1"));
  expect(await early).toEqual(row("old", "account:1"));
  expect(cache.peek("k")).toBeUndefined();
});

test("a caller after an invalidation does not share a load from before it", async () => {
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

test("a load is cached if another tag was invalidated meanwhile", async () => {
  const { cache, asked } = world();
  const got = cache.get("k");
  cache.drop("account:2");
  asked[0]?.answer(row("a", "account:1"));
  await got;
  expect(cache.peek("k")).toEqual(row("a", "account:1"));
});

test("a load during a flush is not cached, found or not", async () => {
  const { cache, asked } = world();
  const both = [cache.get("k"), cache.get("none")];
  cache.flush();
  asked[0]?.answer(row("a"));
  asked[1]?.answer(undefined);
  await Promise.all(both);
  expect(cache.peek("k")).toBeUndefined();
  expect(cache.peek("none")).toBeUndefined();
});

test("a miss is not cached if anything was invalidated meanwhile, because the row may have been created then", async () => {
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

test("drop removes every entry with the tag and no other", async () => {
  const { cache, put } = world();
  await put("a", row("a", "account:1", "catalog"));
  await put("b", row("b", "account:1"));
  await put("c", row("c", "account:2"));
  cache.drop("account:1");
  expect([cache.peek("a"), cache.peek("b")]).toEqual([undefined, undefined]);
  expect(cache.peek("c")).toEqual(row("c", "account:2"));
  expect(cache.counters.drops).toBe(2);
});

test("a reloaded entry is dropped by its new tags, not its old ones", async () => {
  const { cache, put, pass } = world();
  await put("a", row("old", "account:1"));
  pass(30_000);
  await put("a", row("new", "account:2"));
  cache.drop("account:1");
  expect(cache.peek("a")?.name).toBe("new");
  cache.drop("account:2");
  expect(cache.peek("a")).toBeUndefined();
});

test("unknown keys cannot evict found entries", async () => {
  const { cache, put } = world({ max: 5, missesMax: 5 });
  for (let i = 0; i < 5; i++) await put(`real${i}`, row("a"));
  for (let i = 0; i < 1000; i++) await put(`garbage${i}`, undefined);
  for (let i = 0; i < 5; i++) expect(cache.peek(`real${i}`)).toEqual(row("a"));
  expect(cache.peek("garbage0")).toBeUndefined();
});

test("found entries are limited too, and evicted ones leave nothing in the tags", async () => {
  const { cache, put } = world({ max: 5 });
  for (let i = 0; i < 1000; i++) await put(`k${i}`, row("a", "all"));
  cache.drop("all");
  expect(cache.counters.drops).toBe(5);
});

test("an entry's TTL counts from the start of its load", async () => {
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

test("a shorter TTL applies to existing entries", async () => {
  let ttl = 30_000;
  const { cache, put, pass } = world({ ttlMs: () => ttl });
  await put("k", row("a"));
  pass(1500);
  ttl = 1000;
  expect(cache.peek("k")).toBeUndefined();
});

test("an expired entry is returned while one load renews it, for a limited time", async () => {
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
  // The database has not answered: now callers wait for it.
  expect(cache.peek("k")).toBeUndefined();
  const got = cache.get("k");
  expect(asked.length).toBe(3);
  asked[2]?.answer(row("newer"));
  expect(await got).toEqual(row("newer"));
});

test("an invalidated entry is not returned while it is loaded again, however new it was", async () => {
  const { cache, asked, put, pass } = world({ staleMs: () => 5_000 });
  await put("k", row("old", "account:1"));
  pass(30_000);
  expect(cache.peek("k")).toEqual(row("old", "account:1"));
  cache.drop("account:1");
  expect(cache.peek("k")).toBeUndefined();
  // Nor is the result of a load that began before the invalidation.
  asked[1]?.answer(row("old", "account:1"));
  await Bun.sleep(0);
  expect(cache.peek("k")).toBeUndefined();
});

test("an entry that no longer exists when it is renewed is not returned any more", async () => {
  const { cache, asked, put, pass } = world({ staleMs: () => 5_000 });
  await put("k", row("old"));
  pass(30_000);
  expect(cache.peek("k")).toEqual(row("old"));
  asked[1]?.answer(undefined);
  await Bun.sleep(0);
  expect(cache.peek("k")).toBeNull();
});

test("a failed renewal is repeated by the next caller, and reported once the time is over", async () => {
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

test("a failed load rejects for all its callers, and the next caller tries again", async () => {
  const { cache, asked } = world();
  const all = [cache.get("k"), cache.get("k")];
  asked[0]?.fail(new Error("down"));
  for (const result of await Promise.allSettled(all)) expect(result.status).toBe("rejected");
  const again = cache.get("k");
  asked[1]?.answer(row("a"));
  expect(await again).toEqual(row("a"));
});

test("503: concurrent loads are limited", async () => {
  const { cache, asked } = world();
  const all = Array.from({ length: 5000 }, (_, i) => cache.get(`k${i}`));
  expect(asked.length).toBe(4096);
  for (const { answer } of asked) answer(undefined);
  const refused = (await Promise.allSettled(all)).filter((result) => result.status === "rejected");
  expect(refused.length).toBe(5000 - 4096);
  expect(refused[0]?.reason).toBeInstanceOf(Refusal);
  await Promise.all([cache.get("next"), asked.at(-1)?.answer(undefined)]);
});

test("503: callers do not wait for a load that does not end", async () => {
  const { cache } = world({ loadTimeoutMs: 20 });
  expect(cache.get("k")).rejects.toMatchObject({ code: "service_unavailable" });
});
