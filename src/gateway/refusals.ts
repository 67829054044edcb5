import { addRefusals, minuteOf, type RefusalCount } from "../accounts/refusal_counts_store.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import type { Trail } from "../platform/request_facts.ts";

/**
 * Refusals, counted for the people whose keys they meet: in memory, by account, key, code, model and minute. A request that
 * got a hold has a receipt, which says more.
 */

/** Different counts between two flushes. */
const COUNTS_MAX = 20_000;

export type Refusals = { note(trail: Trail, code: string): void } & Pick<
  BufferedWrites<string, RefusalCount>,
  "flush" | "stop"
>;

export function openRefusals({ db, log }: { db: Db; log: Log }): Refusals {
  const collector = createBufferedWrites<string, RefusalCount>({
    name: "refusals",
    max: COUNTS_MAX,
    merge: (older, newer) => ({ ...newer, count: older.count + newer.count }),
    write: (counts) => addRefusals({ db }, counts),
    log,
  });
  return {
    note({ requestId, accountId, keyId, modelId, host }, code) {
      const minute = minuteOf(requestId);
      const key = `${accountId} ${keyId} ${code} ${minute} ${modelId}`;
      collector.note(key, { accountId, keyId, code, modelId, host, minute, count: 1, lastRequestId: requestId });
    },
    flush: collector.flush,
    stop: collector.stop,
  };
}

/** Does the work, and counts the refusal it may end in. Throws what the work throws. */
export async function countingRefusals<T>(
  deps: Pick<Deps, "refusals">,
  trail: Trail,
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    countRefusal(deps, trail, error);
    throw error;
  }
}

/** Counts what a request ended in, if that is a refusal. */
export function countRefusal({ refusals }: Pick<Deps, "refusals">, trail: Trail, error: unknown): void {
  if (error instanceof Refusal && isCounted(trail, error)) refusals.note(trail, error.code);
}

/** A key that may not act is nobody's. Of what came after the hold only a provider out of reach is worth a count. */
function isCounted({ accountId, held }: Trail, { code }: Refusal): boolean {
  if (accountId === 0 || code === "invalid_api_key") return false;
  return !held || code === "provider_unavailable";
}
