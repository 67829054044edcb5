import { expect } from "bun:test";
import { randomBytes } from "node:crypto";
import { eventsOf, type Shop } from "../gateway/shop.ts";
import { sleep } from "../platform/own_redis.ts";
import type { Buyer } from "./fault_shop.ts";

/** Clients that send small chats one after another, JSON and streams in turns, and repeat a refused one with its `Idempotency-Key`. */

/** The wait of a client before it repeats a request: shorter than `Retry-After` asks, so that a short outage is measured too. */
const RETRY_MS = 50;

export type Load = {
  /** Requests that got a whole answer: their ids, by account. */
  served: ReadonlyMap<number, string[]>;
  servedCount(): number;
  refusedCount(): number;
  /** Ms from `from` (performance.now()) to the end of the last refusal. */
  refusedMs(from: number): number;
  /** Resolves when each client's last request was served. */
  stop(): Promise<void>;
};

/** One client for each buyer and origin. Any answer but a whole one and a 503 with Retry-After is an error of `stop`. */
export function startLoad(shop: Shop, origins: readonly string[], buyers: readonly Buyer[]): Load {
  const served = new Map<number, string[]>(buyers.map(({ accountId }) => [accountId, []]));
  const refusedAt: number[] = [];
  let isStopping = false;

  async function serve({ accountId, secret }: Buyer, stream: boolean, origin: string): Promise<void> {
    const headers = { "idempotency-key": randomBytes(12).toString("hex") };
    for (;;) {
      const answer = await shop.chat(secret, { stream, max_tokens: 10 }, { origin, headers });
      if (answer.status === 200) {
        if (stream) expect(eventsOf(answer.text).at(-1)).toBe("[DONE]");
        served.get(accountId)?.push(answer.headers.get("x-request-id") ?? "");
        return;
      }
      expect([answer.status, answer.json?.error?.code]).toEqual([503, "service_unavailable"]);
      expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
      refusedAt.push(performance.now());
      await sleep(RETRY_MS);
    }
  }
  async function client(buyer: Buyer, origin: string): Promise<void> {
    for (let i = 0; !isStopping; i++) await serve(buyer, i % 2 === 0, origin);
  }
  const clients = Promise.all(buyers.flatMap((buyer) => origins.map((origin) => client(buyer, origin))));
  clients.catch(() => {}); // `stop` throws it.
  return {
    served,
    servedCount: () => [...served.values()].reduce((sum, ids) => sum + ids.length, 0),
    refusedCount: () => refusedAt.length,
    refusedMs: (from) => Math.max(...refusedAt) - from,
    async stop() {
      isStopping = true;
      await clients;
    },
  };
}
