import { expect, test } from "bun:test";
import type { Refusal } from "../../src/errors.ts";
import { createRateLimiter } from "../../src/platform/rate_limit.ts";
import type { Owner } from "../../src/platform/share_limit.ts";
import { sleep, until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";
import { watchedRedis } from "./watched_redis.ts";

const { redis, spy, open } = await watchedRedis();

type Limits = Partial<Omit<Parameters<typeof createRateLimiter>[0], "log">>;
/** An owner without account and tenant. */
const WIDE = { accountPerMinute: 1_000_000, tenantPerMinute: 1_000_000 };
/** For tests of counting: a slow Redis on a busy machine must not count as unreachable. */
const patient = { budgetMs: 30_000 };

let probes = 0;

/** A replica's limiter, after Redis has counted a request for it. */
async function limiter({ redisUrl = redis.url, ...limits }: Limits = {}) {
  const { log, lines } = quietLog();
  const one = createRateLimiter({ ...WIDE, redisUrl, perMinute: 5, inFlight: 3, log, ...limits });
  open.push(one);
  const isCounting = async () => {
    const probe = `ready${probes++}`;
    await one.take(probe);
    return (await spy.del(`tollgate:minute:${probe}`)) === 1;
  };
  if (redisUrl !== "") await until(isCounting);
  lines.length = 0;
  const enter = async (id: string, owner?: Owner) => {
    const request = one.begin(id, owner);
    await request.enter();
    return () => request.release(0);
  };
  return { ...{ take: one.take.bind(one), close: one.close.bind(one) }, enter, lines };
}
/** How many slots of an id each replica reports. */
const slotsOf = async (id: string) =>
  (await spy.hvals(`tollgate:in-flight:${id}`)).map((slots) => Number(slots.split(" ")[0]));
/** The number of calls to Redis, and of counts in them. */
const stats = async () => {
  const text = await spy.info("commandstats");
  return ["evalsha", "incrby"].map((name) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(text)?.[1] ?? 0));
};

/** How many of `n` concurrent requests were granted. */
async function granted(n: number, ask: () => Promise<unknown>): Promise<number> {
  const results = await Promise.allSettled(Array.from({ length: n }, ask));
  for (const result of results)
    if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "too_many_requests" });
  return results.filter((result) => result.status === "fulfilled").length;
}
const refusalOf = (promise: Promise<unknown>): Promise<Refusal> =>
  promise.then(
    () => expect.unreachable(),
    (error) => error,
  );

test("429 too_many_requests: two replicas share a key's minute; another key has its own", async () => {
  const [a, b] = [await limiter(patient), await limiter(patient)];
  const results = [await granted(20, () => a.take("1")), await granted(20, () => b.take("1"))];
  expect(results).toEqual([5, 0]);
  const refusal = await refusalOf(b.take("1"));
  expect(refusal.facts.limit).toBe(5);
  expect(refusal.facts.retryAfterSeconds).toBeGreaterThanOrEqual(1);
  expect(refusal.facts.retryAfterSeconds).toBeLessThan(60);
  await a.take("2");
});

test("a refusal names an API key to whoever sent one, and not to visitors of the panel", async () => {
  const { take } = await limiter({ redisUrl: "", perMinute: 1 });
  for (const [id, whose] of [
    ["key:7", "This API key"],
    ["panel:7", "You"],
    ["passkey:192.0.2.1", "You"],
    ["model-prices:192.0.2.1", "You"],
    ["pay:0:192.0.2.1", "You"],
  ] as const) {
    await take(id);
    expect((await refusalOf(take(id))).message).toBe(`${whose} may send 1 requests a minute. Slow down and try again.`);
  }
});

test("without Redis a key's minute ends a minute after its first request", async () => {
  let nowMs = 0;
  const one = await limiter({ redisUrl: "", now: () => nowMs });
  expect(await granted(20, () => one.take("1"))).toBe(5);
  // OpenAI's older SDKs ignore a whole minute. Source: API-12.
  expect((await refusalOf(one.take("1"))).facts.retryAfterSeconds).toBe(59);
  nowMs = 45_500;
  expect((await refusalOf(one.take("1"))).facts.retryAfterSeconds).toBe(15);
  nowMs = 60_000;
  expect(await granted(20, () => one.take("1"))).toBe(5);
});

for (const redisUrl of [redis.url, ""]) {
  test(`429: a key's concurrent requests ${redisUrl ? "over two replicas" : "without Redis"}; a released slot is free, releasing is idempotent`, async () => {
    const a = await limiter({ redisUrl, perMinute: 100, ...patient });
    const b = redisUrl ? await limiter({ redisUrl, perMinute: 100, ...patient }) : a;
    const leave = await a.enter("1");
    await b.enter("1");
    expect(await granted(10, () => b.enter("1"))).toBe(1);
    expect((await refusalOf(a.enter("1"))).facts).toMatchObject({ limit: 3, retryAfterSeconds: 1 });
    leave();
    leave();
    if (redisUrl) await until(async () => (await slotsOf("1")).join() === "2");
    expect(await granted(10, () => b.enter("1"))).toBe(1);
    await b.enter("2");
  });
}

test("many concurrent requests over two replicas: exactly the limit is granted", async () => {
  const limits = { perMinute: 1000, inFlight: 50, ...patient };
  const [a, b] = [await limiter(limits), await limiter(limits)];
  const results = await Promise.all([granted(200, () => a.enter("1")), granted(200, () => b.enter("1"))]);
  expect((results[0] ?? 0) + (results[1] ?? 0)).toBe(50);
});

test("many replicas, ids and concurrent requests: never above the limits, and all slots are released", async () => {
  const limits = { perMinute: 150, inFlight: 7, ...patient };
  const replicas = [await limiter(limits), await limiter(limits), await limiter(limits)];
  const counts = new Map<string, { now: number; most: number; admitted: number }>();
  const visit = async (id: string, i: number) => {
    const count = counts.getOrInsertComputed(id, () => ({ now: 0, most: 0, admitted: 0 }));
    const replica = replicas[i % replicas.length];
    if (i % 10 === 0) {
      if ((await granted(1, async () => replica?.take(id))) === 1) count.admitted++;
      return;
    }
    await granted(1, async () => {
      const leave = await replica?.enter(id);
      count.admitted++;
      count.most = Math.max(count.most, ++count.now);
      await sleep(Math.random() * 15);
      count.now--;
      leave?.();
    });
  };
  const visitor = async (i: number) => {
    for (let round = 0; round < 25; round++) {
      await visit(`many${(i + round) % 3}`, i + round);
      await sleep(Math.random() * 10);
    }
  };
  await Promise.all(Array.from({ length: 90 }, (_, i) => visitor(i)));
  // Each id had more requests than its minute allows.
  for (const [id, { most, admitted }] of counts) {
    expect(most).toBeLessThanOrEqual(7);
    expect(admitted).toBeLessThanOrEqual(150);
    expect(Number(await spy.get(`tollgate:minute:${id}`))).toBeGreaterThan(150);
  }
  expect([...counts.values()].some(({ most }) => most === 7)).toBe(true);
  await until(async () => (await spy.keys("tollgate:in-flight:*")).length === 0);
  for (const { lines } of replicas) expect(lines.filter(({ level }) => level === "warn")).toEqual([]);
});

test("the last requests of a minute over three replicas, with and without a slot: exactly the limit is granted", async () => {
  const limits = { perMinute: 100, inFlight: 1000, ...patient };
  const replicas = [await limiter(limits), await limiter(limits), await limiter(limits)];
  let admitted = 0;
  for (let wave = 0; wave < 6; wave++) {
    const waves = replicas.flatMap((one) => [granted(5, () => one.enter("1")), granted(4, () => one.take("1"))]);
    for (const count of await Promise.all(waves)) admitted += count;
  }
  expect(admitted).toBe(100);
});

test("a dead replica's slots are released when their lease has ended, not before", async () => {
  const limits = { perMinute: 1000, ...patient };
  const [a, b] = [await limiter(limits), await limiter(limits)];
  await Promise.all([a.enter("1"), a.enter("1")]);
  await b.enter("1");
  a.close(); // Nothing is released or renewed.
  expect(await granted(4, () => b.enter("1"))).toBe(0);
  const all = Object.entries(await spy.hgetall("tollgate:in-flight:1"));
  const dead = all.find(([, slots]) => slots.startsWith("2 "))?.[0] ?? "";
  // By Redis's clock its lease ended in 1970.
  await spy.hset("tollgate:in-flight:1", dead, "2 1");
  expect(await granted(1, () => b.enter("1"))).toBe(1);
  expect(await granted(4, () => b.enter("1"))).toBe(1);
  expect(await slotsOf("1")).toEqual([3]);
});

test("a live replica's slots stay taken beyond their lease, also after Redis lost its data", async () => {
  const limits = { perMinute: 1000, slotLeaseMs: 3_000, ...patient };
  const [a, b] = [await limiter(limits), await limiter(limits)];
  const leaves = [await a.enter("1"), await a.enter("1")];
  const leaseEnds = async () => Number((await spy.hvals("tollgate:in-flight:1"))[0]?.split(" ")[1]);
  const first = await leaseEnds();
  const redisUnixMs = async () => Number((await spy.time())[0]) * 1000;
  await until(async () => (await redisUnixMs()) > first);
  expect(await leaseEnds()).toBeGreaterThan(first);
  expect(await granted(5, () => b.enter("1"))).toBe(1);
  await spy.flushall();
  await until(async () => (await slotsOf("1")).length === 2);
  expect((await slotsOf("1")).toSorted()).toEqual([1, 2]);
  expect(await granted(5, () => b.enter("1"))).toBe(0);
  for (const leave of leaves) leave();
  await until(async () => (await slotsOf("1")).length === 1);
  expect(await granted(5, () => b.enter("1"))).toBe(2);
});

test("a lease is a minute", async () => {
  const redisMs = async () => {
    const [seconds, micros] = await spy.time();
    return Number(seconds) * 1000 + Number(micros) / 1000;
  };
  const one = await limiter(patient);
  const before = await redisMs();
  await one.enter("1");
  const [lease = 0] = (await spy.hvals("tollgate:in-flight:1")).map((slots) => Number(slots.split(" ")[1]));
  const expires = await spy.pexpiretime("tollgate:in-flight:1");
  const after = await redisMs();
  for (const endsMs of [lease, expires]) {
    expect(endsMs).toBeGreaterThanOrEqual(Math.floor(before) + 60_000);
    expect(endsMs).toBeLessThanOrEqual(Math.ceil(after) + 60_000);
  }
});

test("each call reports all slots of a replica: what Redis lost is restored immediately", async () => {
  const [a, b] = [await limiter({ perMinute: 1000, ...patient }), await limiter({ perMinute: 1000, ...patient })];
  await a.enter("1");
  await spy.flushall();
  await a.enter("1");
  expect(await granted(5, () => b.enter("1"))).toBe(1);
});

test("slots released just before a replica ends are free immediately", async () => {
  const [a, b] = [await limiter(patient), await limiter(patient)];
  const leaves = [await a.enter("1"), await a.enter("1"), await a.enter("1")];
  for (const leave of leaves) leave();
  a.close();
  await until(async () => (await slotsOf("1")).length === 0);
  await b.enter("1");
});

test("after a late answer, the grants of Redis and of the replica are reconciled", async () => {
  const limits = { perMinute: 1000, inFlight: 3 };
  const [a, b] = [await limiter(limits), await limiter({ ...limits, ...patient })];
  await b.enter("1");
  redis.freeze();
  try {
    // This replica does not know of b's: it grants what Redis, once thawed, refuses.
    const results = await Promise.all([a.enter("1"), a.enter("1"), a.enter("1"), a.enter("2")]);
    results[3]?.();
  } finally {
    redis.thaw();
  }
  await until(async () => (await slotsOf("1")).toSorted().join() === "1,3");
  await until(async () => (await slotsOf("2")).length === 0);
  expect(await granted(3, () => b.enter("1"))).toBe(0);
});

test("while Redis is frozen, the replica decides by its own counts, and does not ask for each request; afterwards Redis counts again", async () => {
  let stoppedMs: number | undefined;
  const one = await limiter({ now: () => stoppedMs ?? performance.now() });
  await one.take("warm");
  redis.freeze();
  stoppedMs = performance.now();
  try {
    // Redis goes on only afterwards: none of this waits for its answer.
    expect(await granted(8, () => one.take("1"))).toBe(5);
    expect(await granted(4, () => one.enter("3"))).toBe(3);
    // It is asked again after a while, also when the connection was closed meanwhile.
    await until(() => one.lines.some(({ message }) => message === "Redis is away"));
    stoppedMs += 3_500;
    await one.take("2");
  } finally {
    redis.thaw();
  }
  stoppedMs += 3_500;
  await until(async () => {
    await one.take(`probe${Math.random()}`).catch(() => {});
    return (await spy.keys("tollgate:minute:probe*")).length > 0;
  });
  // What it decided while it did not ask, it never asked.
  expect(await spy.exists("tollgate:minute:3")).toBe(0);
  expect(
    one.lines.filter(({ message }) => message === "Redis does not answer in time; this replica decides by itself")
      .length,
  ).toBeLessThanOrEqual(2);
});

test("while Redis is down, no answer waits for it; when it is back, it is used again without a restart of the replica", async () => {
  // An answer that waited for Redis would wait for an hour.
  const one = await limiter({ budgetMs: 3_600_000 });
  const leave = await one.enter("1");
  await redis.stop();
  await until(() => one.lines.some(({ message }) => message === "Redis is away"));
  expect(await granted(8, () => one.take("1"))).toBe(4);
  leave();
  await redis.start();
  // Another id each time: one over its limit would not be asked for until its minute ends.
  await until(async () => {
    await one.take(`back${Math.random()}`).catch(() => {});
    return (await spy.keys("tollgate:minute:back*")).length > 0;
  });
  const other = await limiter(patient);
  expect(await granted(8, () => other.take("9"))).toBe(5);
  expect(await granted(8, () => one.take("9"))).toBe(0);
});

test("grants of a replica still count if Redis is lost in the middle of the minute", async () => {
  const one = await limiter();
  await Promise.all([one.take("1"), one.take("1"), one.take("1")]);
  redis.freeze();
  try {
    expect(await granted(8, () => one.take("1"))).toBe(2);
  } finally {
    redis.thaw();
  }
});

test("a pause of this process does not count as an outage of Redis", async () => {
  const one = await limiter();
  // Stands still until Redis has answered, which is longer than a process of its own takes to begin. Ends with 3 if the call was not
  // sent before the pause: then another one is tried.
  const standStill = (id: string) => {
    const script = `
      import { Redis } from "ioredis";
      const spy = new Redis(${JSON.stringify(redis.url)});
      let looks = 2_000;
      while ((await spy.get("tollgate:minute:${id}")) === null && looks-- > 0);
      spy.disconnect();
      process.exit(looks > 0 ? 0 : 3);`;
    return Bun.spawnSync([process.execPath, "-e", script], { stderr: "inherit" }).exitCode;
  };
  let code: number | null = 3;
  for (let call = 1; code === 3 && call <= 20; call++) {
    const taken = one.take(`paused${call}`);
    for (let turn = 0; turn < call; turn++) await new Promise((resolve) => setImmediate(resolve));
    code = standStill(`paused${call}`);
    await taken;
    expect(await spy.get(`tollgate:minute:paused${call}`)).toBe("1");
  }
  expect(code).toBe(0);
  expect(one.lines.filter(({ level }) => level === "warn")).toEqual([]);
});

test("a Redis that cannot run the script counts as down", async () => {
  const one = await limiter();
  await spy.set("tollgate:minute:1", "not a number");
  expect(await granted(8, () => one.take("1"))).toBe(5);
});

test("a refused request takes no slot; a request that needs no slot counts too", async () => {
  const one = await limiter({ perMinute: 4, inFlight: 2, ...patient });
  const leaves = [await one.enter("1"), await one.enter("1")];
  expect(await granted(1, () => one.enter("1"))).toBe(0);
  for (const leave of leaves) leave();
  await one.enter("1");
  expect((await refusalOf(one.enter("1"))).facts.retryAfterSeconds).toBeGreaterThan(1);
  await until(async () => (await slotsOf("1")).join() === "1");
  // All calls use one connection: what it had still to report is reported before this is answered.
  await one.enter("2");
  expect(await slotsOf("1")).toEqual([1]);
});

test("an id over its limit is refused without asking Redis, until its minute ends", async () => {
  let nowMs = 1000;
  const one = await limiter({ perMinute: 5, now: () => nowMs, ...patient });
  expect(await granted(20, () => one.take("1"))).toBe(5);
  const before = await spy.get("tollgate:minute:1");
  expect(await granted(100, () => one.enter("1"))).toBe(0);
  expect(await spy.get("tollgate:minute:1")).toBe(before);
  nowMs += 60_000;
  await spy.del("tollgate:minute:1");
  expect(await granted(20, () => one.take("1"))).toBe(5);
});

test("429: two replicas count an account's minute over all its keys, and a tenant's over all its accounts; others have their own", async () => {
  const limits = { perMinute: 100, inFlight: 100, accountPerMinute: 5, tenantPerMinute: 8, ...patient };
  const [a, b] = [await limiter(limits), await limiter(limits)];
  const ofAccount = (accountId: number, tenantId = 9) => ({ accountId, tenantId });
  let key = 0;
  expect(await granted(10, () => a.take(`key:${key++}`, ofAccount(1)))).toBe(5);
  expect(await granted(10, () => b.enter(`key:${key++}`, ofAccount(1)))).toBe(0);
  const refusal = await refusalOf(b.take("key:0", ofAccount(1)));
  expect(refusal.facts).toMatchObject({ limit: 5, message: expect.stringContaining("This account") });
  expect(await granted(2, () => b.take("key:100", ofAccount(3, 0)))).toBe(2);
  // Requests that the account's limit refused counted for the tenant too.
  await spy.del("tollgate:minute:tenant:9");
  const [c, d] = [await limiter(limits), await limiter(limits)];
  const results = [
    await granted(5, () => c.enter("key:200", ofAccount(4))),
    await granted(5, () => d.enter("key:300", ofAccount(5))),
  ];
  expect(results).toEqual([5, 3]);
  expect((await refusalOf(d.take("key:400", ofAccount(6)))).facts.limit).toBe(8);
  // Refused requests have released their slots.
  await until(async () => (await slotsOf("key:300")).join() === "3");
});

test("requests in one turn of the event loop are counted in one call: each id, account and tenant once", async () => {
  const one = await limiter({ perMinute: 1000, inFlight: 500, heartbeatMs: 3_600_000, ...patient });
  await one.enter("warm");
  const [callsBefore = 0, countsBefore = 0] = await stats();
  const owner = { accountId: 1, tenantId: 2 };
  const leaves = await Promise.all(Array.from({ length: 200 }, (_, i) => one.enter(String(i % 10), owner)));
  const [calls = 0, counts = 0] = await stats();
  expect(calls - callsBefore).toBe(1);
  expect(counts - countsBefore).toBe(10 + 1 + 1);
  expect(await spy.get("tollgate:minute:3")).toBe("20");
  expect(await spy.get("tollgate:minute:account:1")).toBe("200");
  expect(await spy.get("tollgate:minute:tenant:2")).toBe("200");
  expect(await slotsOf("3")).toEqual([20]);
  // Only ids have slots: ten, and "warm".
  expect(await spy.keys("tollgate:in-flight:*")).toHaveLength(11);
  // Slots are released together too.
  for (const leave of leaves) leave();
  await until(async () => (await spy.keys("tollgate:in-flight:*")).length === 1);
  expect((await stats())[0] ?? 0).toBeLessThanOrEqual(calls + 2);
});

test("concurrent ids that do not fit one call are all answered, and all slots are released", async () => {
  const one = await limiter({ perMinute: 2, inFlight: 1, ...patient });
  await one.take("warm");
  const [callsBefore = 0] = await stats();
  const entering = Array.from({ length: 1200 }, (_, i) => one.enter(`id${i % 600}`));
  const leaves = (await Promise.allSettled(entering)).flatMap((result) =>
    result.status === "fulfilled" ? [result.value] : [],
  );
  expect(leaves).toHaveLength(600);
  expect(await spy.keys("tollgate:in-flight:*")).toHaveLength(600);
  expect((await stats())[0]).toBeGreaterThanOrEqual(callsBefore + 3);
  for (const leave of leaves) leave();
  await until(async () => (await spy.keys("tollgate:in-flight:*")).length === 0);
});

test("slots that a frozen Redis counts from a closed connection are released once the connection is back, not after their lease", async () => {
  const a = await limiter({ perMinute: 1000 });
  (await a.enter("warm"))();
  await until(async () => (await slotsOf("warm")).length === 0);
  redis.freeze();
  try {
    const leaves = await Promise.all([a.enter("1"), a.enter("1"), a.enter("1")]);
    // The connection is closed after two seconds without an answer, with the question in its socket.
    await until(() => a.lines.some(({ message }) => message === "Redis is away"));
    // That they are free again cannot be reported.
    for (const leave of leaves) leave();
  } finally {
    redis.thaw();
  }
  // By then Redis has read the question.
  await until(() => a.lines.some(({ message }) => message === "Redis is back"));
  await until(async () => (await slotsOf("1")).length === 0);
});
