import { setTimeout as sleep } from "node:timers/promises";
import { chatBody } from "../../test/gateway/shop.ts";

/** Ordinary customers: one small chat every 40 ms, whatever the others do. */

const EVERY_MS = 40;
/** One request in this many has a key that the replica does not know yet, and must look up. */
const FRESH_EVERY = 5;
const GIVE_UP_MS = 30_000;

/** `secrets`: keys of enough customers to keep each within its rate, used in turn. `fresh`: keys that are used once. */
export type Neighbour = { port: number; secrets: readonly string[]; fresh: string[] };
export type Seen = { requests: number; refused: Record<string, number>; p50Ms: number; p99Ms: number };

/** Sends until `isOver`, and reports the results. */
export async function watch({ port, secrets, fresh }: Neighbour, isOver: () => boolean): Promise<Seen> {
  const tookMs: number[] = [];
  const refused: Record<string, number> = {};
  let turn = 0;
  const one = async () => {
    const known = secrets[turn++ % secrets.length] ?? "";
    const secret = turn % FRESH_EVERY === 0 ? (fresh.pop() ?? known) : known;
    const startedMs = performance.now();
    let status = "none";
    try {
      const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", host: "localhost" },
        body: JSON.stringify(chatBody()),
        signal: AbortSignal.timeout(GIVE_UP_MS),
      });
      await response.text();
      status = String(response.status);
    } catch {
      // Counted below as a missing answer.
    }
    tookMs.push(performance.now() - startedMs);
    if (status !== "200") refused[status] = (refused[status] ?? 0) + 1;
  };
  const open: Promise<void>[] = [];
  while (!isOver()) {
    open.push(one());
    await sleep(EVERY_MS);
  }
  await Promise.all(open);
  tookMs.sort((a, b) => a - b);
  const at = (share: number) => tookMs[Math.min(tookMs.length - 1, Math.floor(tookMs.length * share))] ?? 0;
  return { requests: tookMs.length, refused, p50Ms: at(0.5), p99Ms: at(0.99) };
}

export function refusals({ refused }: Seen): number {
  return Object.values(refused).reduce((sum, n) => sum + n, 0);
}
