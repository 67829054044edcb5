import { beforeEach, expect, test } from "bun:test";
import { type Bus, inProcessBus } from "../../src/platform/bus.ts";
import { type CachedLookup, openCachedLookup } from "../../src/platform/cached_lookup.ts";
import { quietLog } from "./quiet_log.ts";

/** What a change, a gap and a silent bus do to cached rows. The cache itself: cache.test.ts. Source: REL-1. */

type Row = { name: string; owner: string };

let rows: Map<string, Row>;
let reads: string[];
let nowMs: number;
let isHealthy: boolean;
let bus: Bus;
let lookup: CachedLookup<Row>;

beforeEach(() => {
  rows = new Map([["a", { name: "a", owner: "1" }]]);
  [reads, nowMs, isHealthy] = [[], 0, true];
  bus = { ...inProcessBus(quietLog().log), healthy: () => isHealthy };
  lookup = openCachedLookup<Row>({
    ...{ bus, nowMs: () => nowMs, max: 10, missesMax: 10, ttlMs: 30_000, serveStaleMs: 5_000 },
    kinds: ["account", "session"],
    tagsOf: ({ name, owner }) => [`session:${name}`, `account:${owner}`],
    async load(key) {
      reads.push(key);
      return rows.get(key);
    },
  });
});

test("a change of a lookup's kind drops the entries with its tag, and all misses; a change of another kind drops nothing", async () => {
  rows.set("b", { name: "b", owner: "2" });
  for (const key of ["a", "b", "none"]) await lookup.get(key);
  await bus.publish([{ kind: "catalog", ref: "1" }]);
  expect(["a", "b", "none"].map((key) => lookup.peek(key)?.name ?? lookup.peek(key))).toEqual(["a", "b", null]);
  await bus.publish([{ kind: "account", ref: "1" }]);
  expect(["a", "b", "none"].map((key) => lookup.peek(key)?.name)).toEqual([undefined, "b", undefined]);
  expect(lookup.peek("none")).toBeUndefined();
});

test("after a gap everything is read again", async () => {
  for (const key of ["a", "none"]) await lookup.get(key);
  bus.gap();
  expect(["a", "none"].map((key) => lookup.peek(key))).toEqual([undefined, undefined]);
});

test("while the bus is healthy, an entry that has expired is served for a while and read again", async () => {
  await lookup.get("a");
  nowMs = 34_999;
  expect(lookup.peek("a")?.name).toBe("a");
  expect(reads).toEqual(["a", "a"]);
});

test("while the bus is silent, an entry and a miss are used for a second, and then not until they are read again", async () => {
  for (const key of ["a", "none"]) await lookup.get(key);
  isHealthy = false;
  nowMs = 999;
  expect([lookup.peek("a")?.name, lookup.peek("none")]).toEqual(["a", null]);
  nowMs = 1_000;
  expect([lookup.peek("a"), lookup.peek("none")]).toEqual([undefined, undefined]);
  rows.delete("a");
  expect(await lookup.get("a")).toBeUndefined();
});
