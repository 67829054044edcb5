import { addRefusals, minuteOf, type RefusalCount } from "../accounts/refusal_counts_store.ts";
import { Refusal } from "../errors.ts";
import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import type { RequestRecord } from "./request_record.ts";

/**
 * Counts refusals for the owners of the keys, in memory, by account, key, code, model and minute. A request that had a hold is not
 * counted: its receipt says more.
 */

/** Maximum number of different counts between two flushes. */
const COUNTS_MAX = 20_000;

export type RefusalCounts = { note(record: RequestRecord, code: string): void } & Pick<
  BufferedWrites<string, RefusalCount>,
  "flush" | "stop"
>;

export function openRefusalCounts({ db, log }: { db: Db; log: Log }): RefusalCounts {
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

/** Counts the error that a request ended with, if it is a refusal that counts. */
export function countRefusal({ refusals }: { refusals: RefusalCounts }, record: RequestRecord, error: unknown): void {
  if (error instanceof Refusal && isCounted(record, error)) refusals.note(record, error.code);
}

/** A refused key has no owner to count for. After the reserve only an unavailable provider counts. */
function isCounted({ accountId, isReserved }: RequestRecord, { code }: Refusal): boolean {
  if (accountId === 0 || code === "invalid_api_key") return false;
  return !isReserved || code === "provider_unavailable";
}
