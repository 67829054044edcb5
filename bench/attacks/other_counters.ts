import { Redis } from "ioredis";
import type { FakeProvider } from "../../test/fake_provider.ts";
import { answerQuestions, startHelper } from "../helper.ts";

/**
 * How gateways count that do not reserve: three small ones that share a counter in Redis, with the same provider, as many requests at
 * once, and as many of them paid for. They do nothing else. They run in a process of their own, whose `fetch` has room for all.
 */

export type Counting =
  /** Reads the counter, calls the provider, and subtracts afterwards. */
  | "check, call, subtract"
  /** Calls while the last sum was below what is paid for; sums are made every SUM_EVERY_MS. */
  | "sum from time to time";

type Race = { counting: Counting; requests: number; units: number; gateways: number };
type Upstream = { url: string; apiKey: string; body: string };

const SUM_EVERY_MS = 2_000;
const FETCHES_MAX = "65535";
const RACE_MS_MAX = 60_000;

/** The number of requests that reached the provider. */
export async function callsLetThrough(provider: FakeProvider, body: string, race: Race): Promise<number> {
  const upstream: Upstream = { url: `${provider.baseUrl}/chat/completions`, apiKey: provider.apiKey, body };
  const { helper } = await startHelper<Race, string, null>(import.meta.path, {
    UPSTREAM: JSON.stringify(upstream),
    REDIS_URL: process.env.REDIS_URL ?? "",
    BUN_CONFIG_MAX_HTTP_REQUESTS: FETCHES_MAX,
  });
  try {
    const before = provider.callCount();
    await helper.ask(race, RACE_MS_MAX);
    return provider.callCount() - before;
  } finally {
    await helper.stop();
  }
}

if (import.meta.main) answerQuestions<Race, string>(null, async (race) => run(race));

async function run({ counting, requests, units, gateways }: Race): Promise<string> {
  const { url, apiKey, body }: Upstream = JSON.parse(process.env.UPSTREAM ?? "");
  const redis = new Redis(process.env.REDIS_URL ?? "");
  const key = `bench:attacks:${crypto.randomUUID()}`;
  await redis.set(key, units);
  let lastSum = units;
  const sums = setInterval(async () => {
    lastSum = Number(await redis.get(key));
  }, SUM_EVERY_MS);
  const left = async () => (counting === "check, call, subtract" ? Number(await redis.get(key)) : lastSum);
  const serve = async (request: Request): Promise<Response> => {
    if ((await left()) <= 0) return new Response(null, { status: 402 });
    const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
    const answer = await fetch(url, { method: "POST", headers, body: await request.text() });
    const text = await answer.text();
    await redis.decr(key);
    return new Response(text, { status: answer.status });
  };
  const servers = Array.from({ length: gateways }, () => Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: serve }));
  try {
    const asked = Array.from({ length: requests }, async (_, n) => {
      const answer = await fetch(`http://127.0.0.1:${servers[n % gateways]?.port}/`, { method: "POST", body });
      await answer.text();
    });
    await Promise.all(asked);
    return "done";
  } finally {
    clearInterval(sums);
    await Promise.all(servers.map((server) => server.stop(true)));
    await redis.del(key);
    redis.disconnect();
  }
}
