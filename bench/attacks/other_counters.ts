import { Redis } from "ioredis";
import type { FakeProvider } from "../../test/fake_provider.ts";
import { answerQuestions, startHelper } from "../helper.ts";

/**
 * How gateways count that do not reserve: small ones, each a process, that share a counter in Redis and call the same provider. They
 * do nothing else.
 */

export type Counting =
  /** Reads the counter, calls the provider, and subtracts afterwards. */
  | "check, call, subtract"
  /** Calls while the last sum was below what is paid for; sums are made every SUM_EVERY_MS. */
  | "sum from time to time";

type Race = { counting: Counting; body: string; requests: number; units: number; gateways: number };
type Gateway = { counting: Counting; counter: string; url: string; apiKey: string };
type Ready = { port: number };

const SUM_EVERY_MS = 2_000;
const FETCHES_MAX = "65535";

/** The number of requests that reached the provider. All are sent at once, to each gateway in turn. */
export async function callsLetThrough(provider: FakeProvider, race: Race): Promise<number> {
  const { counting, body, requests, units } = race;
  const redisUrl = process.env.REDIS_URL ?? "";
  const counter = `bench:attacks:${crypto.randomUUID()}`;
  const gateway: Gateway = { counting, counter, url: `${provider.baseUrl}/chat/completions`, apiKey: provider.apiKey };
  const redis = new Redis(redisUrl);
  await redis.set(counter, units);
  const env = { GATEWAY: JSON.stringify(gateway), REDIS_URL: redisUrl, BUN_CONFIG_MAX_HTTP_REQUESTS: FETCHES_MAX };
  const started = await Promise.all(
    Array.from({ length: race.gateways }, () => startHelper<string, string, Ready>(import.meta.path, env)),
  );
  try {
    const before = provider.callCount();
    const answers = Array.from({ length: requests }, async (_, n) => {
      const { port } = started[n % started.length]?.ready ?? { port: 0 };
      await (await fetch(`http://127.0.0.1:${port}/`, { method: "POST", body })).text();
    });
    await Promise.all(answers);
    return provider.callCount() - before;
  } finally {
    await Promise.all(started.map(({ helper }) => helper.stop()));
    await redis.del(counter);
    redis.disconnect();
  }
}

if (import.meta.main) await serve(JSON.parse(process.env.GATEWAY ?? ""));

async function serve({ counting, counter, url, apiKey }: Gateway): Promise<void> {
  const redis = new Redis(process.env.REDIS_URL ?? "");
  const left = async () => Number(await redis.get(counter));
  let lastSum = await left();
  if (counting === "sum from time to time") {
    setInterval(async () => {
      lastSum = await left();
    }, SUM_EVERY_MS);
  }
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      if ((counting === "check, call, subtract" ? await left() : lastSum) <= 0)
        return new Response(null, { status: 402 });
      const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
      const answer = await fetch(url, { method: "POST", headers, body: await request.text() });
      const text = await answer.text();
      await redis.decr(counter);
      return new Response(text, { status: answer.status });
    },
  });
  answerQuestions<string, string>({ port: server.port ?? 0 } satisfies Ready, async () => "here");
}
