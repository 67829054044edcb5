import { afterAll, afterEach, expect, test } from "bun:test";
import { Redis } from "ioredis";
import { type Bus, type Change, inProcessBus, redisBus } from "../../src/platform/bus.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { ownRedis, until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";

const redis = await ownRedis();
const open: Bus[] = [];
afterEach(() => {
  for (const bus of open.splice(0)) bus.close();
});
afterAll(() => redis.stop());

/** A replica's bus, with the changes that it received. */
function replica(url = redis.url) {
  const { log, lines } = quietLog();
  const bus = redisBus(url, log);
  open.push(bus);
  const heard: Change[] = [];
  const state = { bus, heard, gaps: 0, lines };
  bus.subscribe((changes) => void heard.push(...changes));
  bus.onGap(() => void state.gaps++);
  return state;
}
const change = (ref: string): Change => ({ kind: "account", ref });

test("a change reaches this replica synchronously, and the others through Redis, once", async () => {
  const [a, b] = [replica(), replica()];
  await until(() => a.bus.healthy() && b.bus.healthy());
  const published = a.bus.publish([change("1"), change("2")]);
  expect(a.heard).toEqual([change("1"), change("2")]);
  await published;
  await until(() => b.heard.length === 2);
  // Redis passes messages on in order: what would be heard twice is heard before this.
  await b.bus.publish([change("last")]);
  await until(() => a.heard.length > 2);
  expect(a.heard).toEqual([change("1"), change("2"), change("last")]);
  expect(b.heard).toEqual([change("1"), change("2"), change("last")]);
});

test("changes that do not fit one message all arrive", async () => {
  const [a, b] = [replica(), replica()];
  await until(() => a.bus.healthy() && b.bus.healthy());
  const many = Array.from({ length: 1700 }, (_, i) => change(String(i)));
  await a.bus.publish(many);
  await until(() => b.heard.length === many.length);
  expect(b.heard).toEqual(many);
});

test("a handler that throws does not stop the other handlers", async () => {
  const { log } = quietLog();
  const bus = inProcessBus(log);
  const heard: Change[] = [];
  bus.subscribe(() => {
    throw new Error("broken");
  });
  bus.subscribe((changes) => void heard.push(...changes));
  await bus.publish([change("1")]);
  expect(heard).toEqual([change("1")]);
});

test("deliver and gap reach this replica only", async () => {
  const [a, b] = [replica(), replica()];
  await until(() => a.bus.healthy() && b.bus.healthy());
  const gaps = { a: a.gaps, b: b.gaps };
  a.bus.deliver([change("1")]);
  a.bus.gap();
  await a.bus.publish([change("last")]);
  await until(() => b.heard.length > 0);
  expect([a.heard, b.heard]).toEqual([[change("1"), change("last")], [change("last")]]);
  expect([a.gaps, b.gaps]).toEqual([gaps.a + 1, gaps.b]);
});

test("a malformed message counts as a gap", async () => {
  const a = replica();
  await until(() => a.bus.healthy());
  const gaps = a.gaps;
  const foreign = new Redis(redis.url);
  for (const message of ["", "{}", "[1]", '{"from":"x","changes":[{"kind":"planet","ref":"1"}]}'])
    await foreign.publish("tollgate:changes", message);
  await until(() => a.gaps === gaps + 4);
  expect(a.heard).toEqual([]);
  foreign.disconnect();
});

test("when Redis is killed, the bus is unhealthy and caches are flushed immediately; when it restarts, they are flushed again and changes arrive", async () => {
  const [a, b] = [replica(), replica()];
  await until(() => a.bus.healthy() && b.bus.healthy());
  const gaps = a.gaps;
  await redis.stop();
  await until(() => !a.bus.healthy());
  expect(a.gaps).toBe(gaps + 1);
  // Redis is started only afterwards: this does not wait for it.
  await a.bus.publish([change("lost")]);
  expect(a.heard).toEqual([change("lost")]);
  await redis.start();
  await until(() => a.bus.healthy() && b.bus.healthy());
  // At least once more: a machine that stands still for seconds is a gap of its own.
  expect(a.gaps).toBeGreaterThanOrEqual(gaps + 2);
  expect(b.gaps).toBeGreaterThanOrEqual(2);
  await a.bus.publish([change("found")]);
  await until(() => b.heard.length > 0);
  expect(b.heard).toEqual([change("found")]);
});

test("while Redis is frozen, publish does not hang; after a silence caches are flushed once and the bus is unhealthy, until messages arrive", async () => {
  const proxy = await startTcpProxy(redis.url);
  const a = replica(proxy.url);
  await until(() => a.bus.healthy());
  const gaps = a.gaps;
  redis.freeze();
  try {
    // Redis goes on only afterwards: none of this waits for it.
    await a.bus.publish([change("1")]);
    await until(() => a.gaps > gaps);
    expect(a.bus.healthy()).toBe(false);
    // It looks again and again, and replaces its connections; caches stay flushed.
    const before = proxy.connections();
    await until(() => proxy.connections() >= before + 4);
    expect(a.gaps).toBe(gaps + 1);
  } finally {
    redis.thaw();
  }
  await until(() => a.bus.healthy());
  expect(a.gaps).toBeGreaterThan(gaps + 1);
  a.bus.close();
  await proxy.close();
});

test("a subscriber whose connection is dead notices the silence and subscribes again", async () => {
  const proxy = await startTcpProxy(redis.url);
  const [a, b] = [replica(proxy.url), replica()];
  await until(() => a.bus.healthy() && b.bus.healthy());
  const gaps = a.gaps;
  proxy.dropReplies();
  await b.bus.publish([change("missed")]);
  await until(() => a.gaps > gaps);
  expect(a.heard).toEqual([]);
  expect(a.bus.healthy()).toBe(false);
  proxy.mend();
  await until(() => a.bus.healthy());
  await b.bus.publish([change("after")]);
  await until(() => a.heard.length > 0);
  expect(a.heard).toEqual([change("after")]);
  a.bus.close();
  await proxy.close();
});

test("a failover of Redis whose former primary stays as a replica: the bus publishes at the new primary, where the others hear it", async () => {
  const former = await ownRedis();
  const admin = new Redis(former.url);
  const name = await startTcpProxy(former.url);
  const [a, b] = [replica(name.url), replica()];
  try {
    await until(() => a.bus.healthy() && b.bus.healthy());
    name.moveTo(redis.url);
    const { hostname, port } = new URL(redis.url);
    await admin.replicaof(hostname, Number(port));
    await until(async () => {
      await a.bus.publish([change("moved")]);
      return b.heard.length > 0;
    });
    // The subscriber may still be at the replica, which passes on what its primary publishes.
    await until(async () => {
      await b.bus.publish([change("back")]);
      return a.heard.some(({ ref }) => ref === "back");
    });
  } finally {
    a.bus.close();
    await name.close();
    admin.disconnect();
    await former.stop();
  }
});

test("an outage is logged once", async () => {
  const proxy = await startTcpProxy(redis.url);
  const a = replica(proxy.url);
  await until(() => a.bus.healthy());
  const before = proxy.connections();
  proxy.cut();
  // Each of the two connections is attempted several times.
  await until(() => proxy.connections() >= before + 10);
  const away = () => a.lines.filter((line) => line.message === "Redis is away").length;
  expect(away()).toBe(2); // The publisher's connection and the subscriber's.
  proxy.mend();
  await until(() => a.bus.healthy());
  expect(away()).toBe(2);
  a.bus.close();
  await proxy.close();
});

test("a Redis that is full says so, once, and so does one that has room again", async () => {
  const a = replica();
  const [full, room] = ["Redis refuses writes", "Redis takes writes again"];
  const said = () => a.lines.map(({ message }) => message).filter((message) => message === full || message === room);
  const admin = new Redis(redis.url);
  try {
    await until(() => a.bus.healthy());
    expect(a.bus.takesWrites()).toBe(true);
    await admin.config("SET", "maxmemory", "1");
    await until(() => !a.bus.takesWrites());
    const refused = async () => Number(/errorstat_OOM:count=(\d+)/.exec(await admin.info("errorstats"))?.[1] ?? 0);
    const before = await refused();
    await until(async () => (await refused()) >= before + 2);
    expect(said()).toEqual([full]);
    expect(a.bus.healthy()).toBe(true);
    await admin.config("SET", "maxmemory", "0");
    await until(() => a.bus.takesWrites());
    expect(said()).toEqual([full, room]);
  } finally {
    await admin.config("SET", "maxmemory", "0");
    admin.disconnect();
    a.bus.close();
  }
});
