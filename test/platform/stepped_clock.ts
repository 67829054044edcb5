import type { Redis } from "ioredis";
import { until } from "./own_redis.ts";

/** A monotonic clock that passes only when the test says so. */
export function steppedClock() {
  let nowMs = 1_000;
  return {
    now: () => nowMs,
    pass(ms: number) {
      nowMs += ms;
    },
  };
}

/** Waits until `count` replicas have sent two heartbeats from now on: the answer to the first was read. */
export async function untilBeaten(spy: Redis, count: number): Promise<void> {
  const seen = new Map<string, Set<string>>();
  await until(async () => {
    const leases = await spy.zrange("tollgate:limiters", "0", "-1", "WITHSCORES").catch((): string[] => []);
    for (let i = 0; i < leases.length; i += 2)
      seen.getOrInsertComputed(leases[i] ?? "", () => new Set()).add(leases[i + 1] ?? "");
    const beaten = [...seen.values()].filter((scores) => scores.size >= 3);
    return leases.length === 2 * count && beaten.length >= count;
  });
}
