import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { connect } from "node:net";
import { freePort } from "../src/demo/free_port.ts";
import { merged } from "../src/platform/merged_metrics.ts";
import { closeBalanced } from "./gateway/checks.ts";
import { chatBody, openShop, type Shop } from "./gateway/shop.ts";
import { until } from "./platform/own_redis.ts";
import type { ReplicaProcess } from "./replica.ts";

/** Several processes that share a port: how connections spread, and what happens when one ends, dies, or is replaced. Source: PRC-1, PRC-2, PRC-3. */

setDefaultTimeout(180_000);
const PROCESSES = 2;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ replicas: 0 });
});
afterAll(() => closeBalanced(shop));

type Group = ReplicaProcess & { internal: string };

async function start(env: Record<string, string> = {}): Promise<Group> {
  const [port, internalPort] = [await freePort(), await freePort()];
  const group = await shop.start({
    ...{ PROCESSES: String(PROCESSES), PORT: String(port), INTERNAL_PORT: String(internalPort) },
    ...env,
  });
  return { ...group, internal: `http://localhost:${internalPort}` };
}

/** A chat on a connection of its own, which the kernel gives to any of the processes. */
function chat({ origin }: Group, secret: string, over: Record<string, unknown> = {}) {
  return shop.call("/v1/chat/completions", { secret, body: chatBody(over), origin, headers: { connection: "close" } });
}

/** As a client does it: what was refused before it arrived is sent again. */
async function chatAgain(group: Group, secret: string): Promise<number> {
  for (let tries = 0; ; tries++) {
    try {
      return (await chat(group, secret)).status;
    } catch (error) {
      if (tries === 5) throw error;
    }
  }
}

const metricsOf = async ({ internal }: Group) => await (await fetch(`${internal}/metrics`)).text();
/** Requests for chats that each process has answered. */
async function answered(group: Group): Promise<Record<string, number>> {
  const found = [
    ...(await metricsOf(group)).matchAll(/^tollgate_requests_total\{process="(\d)",[^}]*chat[^}]*\} (\d+)$/gm),
  ];
  const counts: Record<string, number> = {};
  for (const [, number = "", count] of found) counts[number] = (counts[number] ?? 0) + Number(count);
  return counts;
}
/** The ids of the processes that have begun to serve, oldest first. */
const pidsOf = (group: Group) =>
  [...group.logged().matchAll(/"pid":(\d+),"message":"one of several processes serves"/g)].map(([, pid]) =>
    Number(pid),
  );
const isRunning = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

test("connections are spread over all processes, limits are exact over them, and one internal port has the metrics of each", async () => {
  const group = await start();
  const { secret, accountId } = await shop.customer({ dailyLimit: 25 });
  const statuses = await Promise.all(Array.from({ length: 60 }, async () => (await chat(group, secret)).status));
  expect(statuses.filter((status) => status === 200)).toHaveLength(25);
  expect(statuses.filter((status) => status === 402)).toHaveLength(35);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 25, units: 25 });
  await until(async () => {
    const { secret: other } = await shop.customer();
    await chat(group, other);
    const counts = await answered(group);
    return Object.keys(counts).length === PROCESSES && Object.values(counts).every((count) => count > 0);
  });
  const text = await metricsOf(group);
  const heads = [...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name);
  expect(new Set(heads).size).toBe(heads.length);
  for (const path of ["/healthz", "/readyz", "/version"])
    expect({ path, status: (await fetch(`${group.internal}${path}`)).status }).toEqual({ path, status: 200 });
  expect((await fetch(`${group.internal}/nothing`)).status).toBe(404);
  expect(await group.stop()).toBe(0);
});

test("a process that is killed is started again, and the others serve meanwhile", async () => {
  const group = await start();
  const { secret, accountId } = await shop.customer();
  await until(() => pidsOf(group).length === PROCESSES);
  const [killed = 0] = pidsOf(group);
  process.kill(killed, "SIGKILL");
  for (let i = 0; i < 10; i++) expect(await chatAgain(group, secret)).toBe(200);
  await until(() => pidsOf(group).length === PROCESSES + 1);
  expect(group.logged()).toContain("a process has exited; it is started again");
  await until(
    async () => Object.keys(await answered(group)).length === PROCESSES || (await chatAgain(group, secret)) !== 200,
  );
  expect(await group.stop()).toBe(0);
  expect((await shop.counters(accountId)).holds).toBe(0);
});

test("SIGHUP replaces the processes one by one: streams that run go on to their end, and every request is answered once", async () => {
  const group = await start({ DRAIN_SECONDS: "120" });
  const { secret, accountId } = await shop.customer({ dailyLimit: 100_000 });
  const before = pidsOf(group);
  const earlier = shop.provider.callCount();
  const { held, open } = shop.provider.gateAfter(1);
  shop.provider.next(held);
  const streamed = chat(group, secret, { stream: true });
  await until(() => shop.provider.callCount() > earlier);
  const called = shop.provider.callCount();
  group.process.kill("SIGHUP");
  let served = 0;
  await until(async () => {
    expect(await chatAgain(group, secret)).toBe(200);
    served++;
    if (pidsOf(group).length === 2 * PROCESSES - 1) open();
    return group.logged().includes("all processes are replaced");
  });
  expect((await streamed).text).toContain("[DONE]");
  expect(before.filter(isRunning)).toEqual([]);
  expect(shop.provider.callCount() - called).toBe(served);
  expect(await group.stop()).toBe(0);
  expect(await shop.counters(accountId)).toMatchObject({ usage: served + 1, holds: 0 });
});

test("SIGTERM ends all at once, also while one that died waits to be started again", async () => {
  const group = await start();
  await until(() => pidsOf(group).length === PROCESSES);
  for (const pid of pidsOf(group)) process.kill(pid, "SIGKILL");
  await until(() => group.logged().split("it is started again").length > PROCESSES);
  // They had not drained.
  expect(await group.stop()).toBe(1);
  expect(pidsOf(group).filter(isRunning)).toEqual([]);
});

test("processes whose first one was killed drain and end by themselves", async () => {
  const group = await start();
  const pids = pidsOf(group);
  expect(pids.filter(isRunning)).toHaveLength(PROCESSES);
  process.kill(group.process.pid ?? 0, "SIGKILL");
  await until(() => pids.filter(isRunning).length === 0);
  await expect(
    new Promise((resolve, reject) => connect(group.port, "127.0.0.1", () => resolve("open")).once("error", reject)),
  ).rejects.toThrow();
});

describe("does not start", () => {
  test.each([
    ["without a port of its own", { PORT: "0" }, "must be a port of your choice"],
    ["with no process", { PROCESSES: "0" }, "PROCESSES"],
    ["with too many", { PROCESSES: "65" }, "PROCESSES"],
    ["with half a process", { PROCESSES: "1.5" }, "PROCESSES"],
  ])("%s", async (_, env, says) => {
    await expect(start(env)).rejects.toThrow(says);
  });

  test("on a port that another program listens on", async () => {
    const taken = Bun.serve({ port: 0, fetch: () => new Response("taken") });
    await expect(start({ PORT: String(taken.port) })).rejects.toThrow(`cannot listen on 127.0.0.1:${taken.port}`);
    await taken.stop(true);
  });

  test("on an internal port that another program listens on", async () => {
    const taken = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response("taken") });
    await expect(start({ INTERNAL_PORT: String(taken.port) })).rejects.toThrow("INTERNAL_PORT: cannot listen");
    await taken.stop(true);
  });

  test("if a process cannot: all end, with its exit code", async () => {
    await expect(start({ DATABASE_URL: "postgres://nobody@127.0.0.1:1/none", DB_WAIT_SECONDS: "1" })).rejects.toThrow(
      "exited with 1",
    );
  });
});

test("metrics of several processes have each help and type once, and each series the label of its process", () => {
  const text = (count: number) => `# HELP a_total What.\n# TYPE a_total counter\na_total ${count}\na_total{x="1"} 2\n`;
  const all = merged([
    { label: 'process="1"', text: text(3) },
    { label: 'process="2"', text: text(4) },
  ]);
  expect(all.split("\n")).toEqual([
    "# HELP a_total What.",
    "# TYPE a_total counter",
    'a_total{process="1"} 3',
    'a_total{process="1",x="1"} 2',
    'a_total{process="2"} 4',
    'a_total{process="2",x="1"} 2',
    "",
  ]);
});
