import { afterAll, afterEach, describe, expect, test } from "bun:test";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Redis } from "ioredis";
import {
  type ClaimLimits,
  type Found,
  type IdempotencyClaim,
  type IdempotencyClaims,
  inProcessIdempotencyClaims,
} from "../../src/platform/idempotency_claims.ts";
import { redisIdempotencyClaims } from "../../src/platform/redis_idempotency_claims.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { ownRedis, until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";

/** A claimed request is served once. Each replica opens its own claims. */
const redis = await ownRedis();
const spy = new Redis(redis.url, { retryStrategy: () => 50 });
spy.on("error", () => {});
const open: IdempotencyClaims[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
  await spy.flushall();
});
afterAll(async () => {
  spy.disconnect();
  await redis.stop();
});

type Options = { leaseMs?: number; limits?: Partial<ClaimLimits>; redisUrl?: string; nowMs?: () => number };

/** A slow Redis on a busy machine must not count as unreachable. */
function replica({ redisUrl = redis.url, leaseMs = 60_000, nowMs = () => performance.now(), limits }: Options = {}) {
  const { log, lines } = quietLog();
  const options = { leaseMs, nowMs, log, budgetMs: 5000, ...(limits && { limits }) };
  const claims = redisUrl === "" ? inProcessIdempotencyClaims(options) : redisIdempotencyClaims(redisUrl, options);
  open.push(claims);
  return Object.assign(claims, { lines });
}

let ids = 0;
const wanted = (id: string, over: { content?: string; owner?: string } = {}) => ({
  id,
  owner: "1",
  content: "what is asked for",
  requestId: `request-${++ids}`,
  servedBy: "a replica",
  ...over,
});

async function taken(claims: IdempotencyClaims, id: string, over = {}): Promise<IdempotencyClaim> {
  const found = await claims.take(wanted(id, over));
  if (found.state !== "ours") throw new Error(`${id} is ${found.state}`);
  return found.claim;
}

const answerIn = (found: Found) => (found.state === "done" ? found.answer && String(Buffer.from(found.answer)) : null);

for (const [name, redisUrl] of [
  ["in Redis", redis.url],
  ["in this process", ""],
] as const) {
  describe(name, () => {
    test("of 50 concurrent claims of an id one succeeds; the others learn who has it", async () => {
      const both = redisUrl === "" ? [replica({ redisUrl })] : [replica({ redisUrl }), replica({ redisUrl })];
      const asked = Array.from({ length: 50 }, () => wanted("a"));
      const found = await Promise.all(asked.map((one, i) => (both[i % both.length] as IdempotencyClaims).take(one)));
      expect(found.filter(({ state }) => state === "ours")).toHaveLength(1);
      const winner = asked[found.findIndex(({ state }) => state === "ours")];
      for (const other of found.filter(({ state }) => state !== "ours"))
        expect(other).toMatchObject({
          state: "in_flight",
          requestId: winner?.requestId ?? "",
          servedBy: "a replica",
          content: "what is asked for",
        });
    });

    test("a served request keeps its answer byte for byte; a failed one frees the id", async () => {
      const claims = replica({ redisUrl });
      const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
      await (await taken(claims, "a")).finish(bytes);
      const found = await claims.take(wanted("a"));
      expect(found.state === "done" && found.answer && Buffer.from(found.answer).equals(bytes)).toBe(true);
      await (await taken(claims, "b")).free();
      await taken(claims, "b");
      await (await taken(claims, "c")).finish();
      expect(await claims.take(wanted("c"))).toMatchObject({ state: "done", answer: undefined });
    });

    test("an answer above the limit is not kept", async () => {
      const claims = replica({ redisUrl, limits: { answerBytesMax: 1000 } });
      await (await taken(claims, "a")).finish(Buffer.alloc(1000, "x"));
      await (await taken(claims, "b")).finish(Buffer.alloc(1001, "x"));
      expect(answerIn(await claims.take(wanted("a")))).toHaveLength(1000);
      expect(await claims.take(wanted("b"))).toMatchObject({ state: "done", answer: undefined });
    });
  });
}

describe("in this process", () => {
  test("an answer is deleted earlier than the record that it was given", async () => {
    let nowMs = 0;
    const claims = replica({ redisUrl: "", nowMs: () => nowMs, limits: { answerKeptMs: 300, doneKeptMs: 1500 } });
    await (await taken(claims, "a")).finish(Buffer.from("answer"));
    nowMs = 299;
    expect(answerIn(await claims.take(wanted("a")))).toBe("answer");
    nowMs = 300;
    expect(await claims.take(wanted("a"))).toMatchObject({ state: "done", answer: undefined });
    nowMs = 1499;
    expect(await claims.take(wanted("a"))).toMatchObject({ state: "done", answer: undefined });
    nowMs = 1500;
    expect((await claims.take(wanted("a"))).state).toBe("ours");
  });

  test("answers and records are limited: the oldest are deleted first, claims in flight never", async () => {
    const claims = replica({ redisUrl: "", limits: { doneMax: 100, answersBytesMax: 5000, answerBytesMax: 1000 } });
    await taken(claims, "in flight");
    for (let i = 0; i < 150; i++) await (await taken(claims, `id${i}`)).finish(Buffer.alloc(100, "x"));
    expect((await claims.take(wanted("id149"))).state).toBe("done");
    const kept = await Promise.all(Array.from({ length: 100 }, (_, i) => claims.take(wanted(`id${i + 50}`))));
    expect(kept.every(({ state }) => state === "done")).toBe(true);
    expect(kept.filter((found) => answerIn(found) !== undefined)).toHaveLength(50);
    expect((await claims.take(wanted("id49"))).state).toBe("ours");
    expect((await claims.take(wanted("in flight"))).state).toBe("in_flight");
  });

  test("a new claim of an id does not return an earlier answer", async () => {
    const claims = replica({ redisUrl: "", limits: { doneMax: 1 } });
    await (await taken(claims, "a")).finish(Buffer.from("old"));
    await (await taken(claims, "b")).finish();
    await (await taken(claims, "a")).finish();
    expect(await claims.take(wanted("a"))).toMatchObject({ state: "done", answer: undefined });
  });
});

describe("in Redis", () => {
  /** A replica that died: its claims are no longer renewed. */
  async function dead(id: string, leaseMs: number): Promise<{ claim: IdempotencyClaim; requestId: string }> {
    const victim = redisIdempotencyClaims(redis.url, {
      leaseMs,
      nowMs: () => performance.now(),
      log: quietLog().log,
      budgetMs: 5000,
    });
    const asked = wanted(id);
    const found = await victim.take(asked);
    await victim.close();
    if (found.state !== "ours") throw new Error(found.state);
    return { claim: found.claim, requestId: asked.requestId };
  }

  test("an answer is deleted earlier than the record that it was given, by Redis", async () => {
    const limits = { answerKeptMs: 300_000, doneKeptMs: 3_000_000 };
    const claims = replica({ limits });
    await (await taken(claims, "a")).finish(Buffer.from("answer"));
    expect(answerIn(await claims.take(wanted("a")))).toBe("answer");
    const [answer = ""] = await spy.keys("tollgate:answer:*");
    // When they end, by Redis's clock.
    const apartMs = (await spy.pexpiretime("tollgate:claim:a")) - (await spy.pexpiretime(answer));
    expect(apartMs).toBe(limits.doneKeptMs - limits.answerKeptMs);
    expect(await spy.pttl(answer)).toBeWithin(1, limits.answerKeptMs + 1);
    await spy.del(answer);
    expect(await claims.take(wanted("a"))).toMatchObject({ state: "done", answer: undefined });
    await spy.del("tollgate:claim:a");
    expect((await claims.take(wanted("a"))).state).toBe("ours");
  });

  test("a claim is renewed while its replica lives, for longer than a lease", async () => {
    const [holder, other] = [replica({ leaseMs: 3000 }), replica()];
    const claim = await taken(holder, "a");
    const leaseEnds = async () => Number(await spy.hget("tollgate:claim:a", "lease"));
    const first = await leaseEnds();
    await until(async () => Number((await spy.time())[0]) * 1000 > first);
    expect(await leaseEnds()).toBeGreaterThan(first);
    expect(claim.alive()).toBe(true);
    expect((await other.take(wanted("a"))).state).toBe("in_flight");
  });

  test("a dead replica's claim lapses; of 20 concurrent take-overs one succeeds, and none before", async () => {
    const { requestId } = await dead("a", 400);
    const claims = replica();
    await until(async () => (await claims.take(wanted("a"))).state === "lapsed");
    const found = await Promise.all(Array.from({ length: 20 }, () => claims.take(wanted("a"))));
    const lapsed = found.flatMap((one) => (one.state === "lapsed" ? [one] : []));
    expect(lapsed).toHaveLength(20);
    expect(lapsed.every((one) => one.requestId === requestId)).toBe(true);
    const claimed = await Promise.all(lapsed.map((one) => one.lapsed.takeOver()));
    expect(claimed.filter((claim) => claim !== undefined)).toHaveLength(1);
    expect((await claims.take(wanted("a"))).state).toBe("in_flight");
  });

  test("a claim that was taken over is not alive, and its answer, failure or renewal changes nothing", async () => {
    for (const ending of ["finish", "free", "renew"] as const) {
      let now = 0;
      // Frozen: its timers do not run, but its clock does.
      const frozen = replica({ leaseMs: 60_000, nowMs: () => now });
      const old = await taken(frozen, ending);
      expect(old.alive()).toBe(true);
      await spy.hset(`tollgate:claim:${ending}`, "lease", "1");
      now = 60_001;
      expect(old.alive()).toBe(false);
      const other = replica();
      const found = await other.take(wanted(ending));
      const claim = found.state === "lapsed" ? await found.lapsed.takeOver() : undefined;
      expect(claim?.alive()).toBe(true);
      if (ending === "finish") await old.finish(Buffer.from("of the old"));
      if (ending === "free") await old.free();
      expect((await other.take(wanted(ending))).state).toBe("in_flight");
      await claim?.finish(Buffer.from("of the new"));
      if (ending !== "renew") continue;
      await old.free();
      expect(answerIn(await other.take(wanted(ending)))).toBe("of the new");
    }
  });

  test("a lapsed claim that is renewed before a take-over is kept", async () => {
    const holder = replica({ leaseMs: 1500 });
    const claim = await taken(holder, "a");
    const other = replica();
    await spy.hset("tollgate:claim:a", "lease", "1");
    const found = await other.take(wanted("a"));
    await until(async () => Number(await spy.hget("tollgate:claim:a", "lease")) > 1);
    if (found.state === "lapsed") expect(await found.lapsed.takeOver()).toBeUndefined();
    expect(claim.alive()).toBe(true);
    await claim.finish(Buffer.from("answer"));
    expect(answerIn(await other.take(wanted("a")))).toBe("answer");
  });

  test("a lapsed claim that turns out to be served is served for all callers", async () => {
    await dead("a", 200);
    const claims = replica();
    await until(async () => (await claims.take(wanted("a"))).state === "lapsed");
    const found = await claims.take(wanted("a"));
    if (found.state === "lapsed") await found.lapsed.finish();
    expect(await replica().take(wanted("a"))).toMatchObject({ state: "done", answer: undefined });
  });

  test("a claim that another replica has found to be served stays served when its own replica renews it late", async () => {
    // By the holder's clock, which stands still, its lease does not end: only Redis's answer to a renewal ends it.
    const [holder, other] = [replica({ leaseMs: 1500, nowMs: () => 0 }), replica()];
    const claim = await taken(holder, "a");
    await spy.hset("tollgate:claim:a", "lease", "1");
    const found = await other.take(wanted("a"));
    if (found.state === "lapsed") await found.lapsed.finish();
    await until(() => !claim.alive());
    expect((await other.take(wanted("a"))).state).toBe("done");
    await claim.finish(Buffer.from("answer"));
    expect(answerIn(await other.take(wanted("a")))).toBe("answer");
  });

  test("after Redis lost its data, claims in flight are written again", async () => {
    const [holder, other] = [replica({ leaseMs: 1500 }), replica()];
    await taken(holder, "a");
    await spy.flushall();
    await until(async () => (await spy.exists("tollgate:claim:a")) === 1);
    expect((await other.take(wanted("a"))).state).toBe("in_flight");
  });

  test("answers are limited in bytes, per owner and in total; one owner's flood leaves room for others", async () => {
    const claims = replica({ limits: { ownerAnswersBytesMax: 1000, answersBytesMax: 1500 } });
    const kept = async (id: string, owner: string) => {
      await (await taken(claims, id, { owner })).finish(Buffer.alloc(300, "x"));
      return answerIn(await claims.take(wanted(id))) !== undefined;
    };
    const ofOne = await Promise.all(Array.from({ length: 10 }, (_, i) => kept(`one${i}`, "1")));
    expect(ofOne.filter(Boolean)).toHaveLength(3);
    const ofTwo = await Promise.all(Array.from({ length: 10 }, (_, i) => kept(`two${i}`, "2")));
    expect(ofTwo.filter(Boolean)).toHaveLength(2);
    const keys = await spy.keys("tollgate:answer:*");
    expect(keys).toHaveLength(5);
    for (const key of [...keys, ...(await spy.keys("*"))]) expect(await spy.pttl(key)).toBeGreaterThan(0);
  });

  test("records above an owner's limit are kept only as long as answers", async () => {
    const claims = replica({ limits: { ownerDoneMax: 3, doneMax: 4 } });
    const keptMs = async (id: string, owner: string) => {
      await (await taken(claims, id, { owner })).finish();
      return await spy.pttl(`tollgate:claim:${id}`);
    };
    const times: number[] = [];
    for (let i = 0; i < 5; i++) times.push(await keptMs(`one${i}`, "1"));
    times.push(await keptMs("two0", "2"), await keptMs("two1", "2"));
    const day = 24 * 3_600_000;
    const ofOne = ["day", "day", "day", "minutes", "minutes"];
    const ofTwo = ["day", "minutes"];
    expect(times.map((ms) => (ms > day / 2 ? "day" : ms > 500_000 ? "minutes" : String(ms)))).toEqual([
      ...ofOne,
      ...ofTwo,
    ]);
  });

  test("503 if Redis is silent or down; a late success claims nothing", async () => {
    const { log } = quietLog();
    const claims = redisIdempotencyClaims(redis.url, { leaseMs: 60_000, nowMs: () => performance.now(), log });
    open.push(claims);
    await (await taken(claims, "warm")).free();
    redis.freeze();
    try {
      // Redis goes on only afterwards: this does not wait for it.
      await expect(claims.take(wanted("a"))).rejects.toMatchObject({ code: "service_unavailable" });
    } finally {
      redis.thaw();
    }
    await until(async () => (await spy.exists("tollgate:claim:a")) === 0);
    await until(async () => (await claims.take(wanted("a")).catch(() => undefined))?.state === "ours");
    await redis.stop();
    await expect(claims.take(wanted("b"))).rejects.toMatchObject({ code: "service_unavailable" });
    await redis.start();
    await until(async () => (await claims.take(wanted("b")).catch(() => undefined))?.state === "ours");
  });
});

test("claims that a frozen Redis makes from a closed connection, once it goes on, belong to nobody and are freed", async () => {
  const { log, lines } = quietLog();
  // No test lasts as long as this lease.
  const claims = redisIdempotencyClaims(redis.url, { leaseMs: 3_600_000, nowMs: () => performance.now(), log });
  open.push(claims);
  await (await taken(claims, "warm")).free();
  const names = Array.from({ length: 40 }, (_, i) => `frozen-${i}`);
  redis.freeze();
  const connections = async () => String(await spy.client("LIST")).split("name=tollgate:claims").length - 1;
  try {
    for (const answer of await Promise.allSettled(names.map((name) => claims.take(wanted(name)))))
      expect(answer).toMatchObject({ status: "rejected", reason: { code: "service_unavailable" } });
    // The connection is closed after two seconds without an answer, with the scripts in its socket.
    await until(() => lines.some(({ message }) => message === "Redis is away"));
  } finally {
    redis.thaw();
  }
  await until(async () => (await connections()) === 1);
  for (const name of names)
    await until(async () => (await claims.take(wanted(name)).catch(() => undefined))?.state === "ours");
});

/** A proxy that keeps what open connections send, also when they are closed, and delivers it later. New connections pass. */
async function delayingProxy(targetUrl: string) {
  const target = new URL(targetUrl);
  const kept: { upstream: Socket; bytes: Buffer | string }[] = [];
  const held = new WeakSet<Socket>();
  const links = new Map<Socket, Socket>();
  let replies = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname);
    links.set(client, upstream);
    client.on("error", () => {});
    upstream.on("error", () => {});
    client.on("data", (bytes) => {
      if (held.has(client)) kept.push({ upstream, bytes });
      else upstream.write(bytes);
    });
    upstream.on("data", (bytes) => {
      if (!held.has(client)) client.write(bytes);
      else replies++;
    });
    client.on("close", () => !held.has(client) && upstream.destroy());
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `redis://127.0.0.1:${port}`,
    keep() {
      for (const client of links.keys()) held.add(client);
    },
    /** Resolves when the server has answered. */
    async deliver() {
      for (const { upstream, bytes } of kept) upstream.write(bytes);
      await until(() => replies > 0);
    },
    close() {
      for (const [client, upstream] of links) for (const socket of [client, upstream]) socket.destroy();
      server.close();
    },
  };
}

test("what a closed connection had sent, and arrives after its claims were freed, claims nothing", async () => {
  const proxy = await delayingProxy(redis.url);
  const { log } = quietLog();
  const options = { leaseMs: 3_600_000, nowMs: () => performance.now(), log };
  const claims = redisIdempotencyClaims(proxy.url, options);
  open.push(claims);
  await (await taken(claims, "warm")).free();
  proxy.keep();
  const names = Array.from({ length: 10 }, (_, i) => `kept-${i}`);
  for (const answer of await Promise.allSettled(names.map((name) => claims.take(wanted(name)))))
    expect(answer).toMatchObject({ status: "rejected", reason: { code: "service_unavailable" } });
  // The connection is closed after two seconds without an answer. Then another one is there, and has freed what was not answered.
  await until(async () => (await claims.take(wanted("after")).catch(() => undefined))?.state === "ours");
  await proxy.deliver();
  for (const name of names) expect(await claims.take(wanted(name))).toMatchObject({ state: "ours" });
  await claims.close();
  proxy.close();
});

test("a failover of Redis whose former primary stays as a replica: after a refusal or two, claims are taken at the new one", async () => {
  const former = await ownRedis();
  const admin = new Redis(former.url);
  const name = await startTcpProxy(former.url);
  const claims = replica({ redisUrl: name.url });
  const isTaken = async (id: string) => (await claims.take(wanted(id)).catch(() => undefined))?.state === "ours";
  try {
    await until(() => isTaken("before"));
    name.moveTo(redis.url);
    const { hostname, port } = new URL(redis.url);
    await admin.replicaof(hostname, Number(port));
    await expect(claims.take(wanted("refused"))).rejects.toMatchObject({ code: "service_unavailable" });
    let tries = 0;
    await until(() => isTaken(`after${tries++}`));
  } finally {
    await name.close();
    admin.disconnect();
    await former.stop();
  }
});
