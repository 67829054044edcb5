import { afterAll, beforeAll, expect, test } from "bun:test";
import { type HttpProxy, startHttpProxy } from "../http_proxy.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { startTcpProxy, type TcpProxy } from "../tcp_proxy.ts";
import { closeBalanced } from "./checks.ts";
import { type Answer, eventsOf, openShop, type Shop } from "./shop.ts";

/** Two replicas behind a proxy are replaced one after the other under load: no request fails. */
const AT_ONCE = 20;
/** The proxy polls every 100 ms; a test machine may be slower. */
const NOTICE_SECONDS = "3";

/** One-way latency between proxy and replica: a connection closed on one side is still open on the other for this long. */
const NETWORK_MS = 15;

let shop: Shop;
let proxy: HttpProxy;
const networks: TcpProxy[] = [];
beforeAll(async () => {
  shop = await openShop({ replicas: 2, env: { DRAIN_NOTICE_SECONDS: NOTICE_SECONDS, DRAIN_SECONDS: "20" } });
  proxy = await startHttpProxy();
});
afterAll(() => closeBalanced(shop, proxy.close, () => Promise.all(networks.map((network) => network.close()))));

/** Adds a replica to the proxy. Resolves with its port there, once it is served. */
async function serve({ port }: ReplicaProcess): Promise<number> {
  const network = await startTcpProxy(`http://127.0.0.1:${port}`);
  network.latency(NETWORK_MS);
  networks.push(network);
  proxy.add(network.port);
  await until(() => proxy.isReady(network.port));
  return network.port;
}

test("a rolling replacement of 2 replicas under load: no failed request; answers = usage records = provider calls", async () => {
  const ports = [await serve(shop.replicas[0] as ReplicaProcess), await serve(shop.replicas[1] as ReplicaProcess)];
  const customers = await Promise.all(Array.from({ length: 4 }, () => shop.customer({ dailyLimit: 1_000_000 })));
  // Streams are slow; the other requests follow each other immediately, so that one is always in flight.
  shop.provider.when(({ body }) => body.includes('"stream":true'), { chunkDelayMs: 30, tokens: 20 });
  shop.provider.always({ tokens: 3 });
  const answers: { stream: boolean; answer: Answer }[] = [];
  const thrown: string[] = [];
  let over = false;
  const client = async (i: number) => {
    const { secret } = customers[i % customers.length] as { secret: string };
    const stream = i % 2 === 0;
    while (!over) {
      try {
        answers.push({ stream, answer: await shop.chat(secret, { stream }, { origin: proxy.origin }) });
      } catch (error) {
        thrown.push(String(error));
      }
    }
  };
  const clients = Array.from({ length: AT_ONCE }, (_, i) => client(i));
  await until(() => answers.length > 2 * AT_ONCE);

  const fresh: ReplicaProcess[] = [];
  try {
    for (const [i, old] of shop.replicas.entries()) {
      const replica = await shop.start();
      fresh.push(replica);
      const port = await serve(replica);
      expect(await old.stop()).toBe(0);
      proxy.remove(ports[i] as number);
      await until(() => proxy.passed(port) > 0);
    }
    const served = answers.length;
    await until(() => answers.length > served + 2 * AT_ONCE);
    over = true;
    await Promise.all(clients);

    expect(thrown).toEqual([]);
    expect(proxy.failures()).toEqual([]);
    const bad = answers.filter(({ stream, answer }) => answer.status !== 200 || !isWhole(stream, answer));
    expect(bad.map(({ answer }) => [answer.status, answer.text.slice(0, 200)])).toEqual([]);
    const counters = await Promise.all(customers.map(({ accountId }) => shop.counters(accountId)));
    const usage = counters.reduce((sum, one) => sum + one.usage, 0);
    expect({ usage, calls: shop.provider.callCount() }).toEqual({ usage: answers.length, calls: answers.length });
    expect(counters.map(({ holds, released }) => [holds, released])).toEqual(customers.map(() => [0, 0]));
    console.log(`${answers.length} requests through the replacement of two replicas, none failed`);
  } finally {
    over = true;
    await Promise.all(fresh.map((replica) => replica.kill()));
  }
});

/** The client got its complete answer. */
function isWhole(stream: boolean, { text, json }: Answer): boolean {
  if (!stream) return json?.choices?.[0]?.finish_reason !== undefined;
  return eventsOf(text).at(-1) === "[DONE]" && !text.includes('"error"');
}
