import { addRefusals, type ErrorCount, minuteOf } from "../accounts/refusal_counts_store.ts";
import { asRefusal, type ErrorCode } from "../errors.ts";
import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { ClientLeft } from "./client_left.ts";
import type { RequestRecord } from "./request_record.ts";

/**
 * Counts requests that ended with an error, in memory, by account, key, code, model and minute. The owner of the key sees those
 * that had no hold; of the others a receipt says more, and they are counted for figures alone.
 */

/** Maximum number of different counts between two flushes. */
const COUNTS_MAX = 20_000;

export type RefusalCounts = { note(record: RequestRecord, code: ErrorCode, isListed: boolean): void } & Pick<
  BufferedWrites<string, ErrorCount>,
  "flush" | "stop"
>;

export function openRefusalCounts({ db, log }: { db: Db; log: Log }): RefusalCounts {
  const collector = createBufferedWrites<string, ErrorCount>({
    name: "refusals",
    max: COUNTS_MAX,
    merge: (older, newer) => ({ ...newer, count: older.count + newer.count }),
    write: (counts) => addRefusals({ db }, counts),
    log,
  });
  return {
    note({ requestId, accountId, keyId, modelId, host }, code, isListed) {
      const minute = minuteOf(requestId);
      const key = `${accountId} ${keyId} ${code} ${minute} ${modelId} ${isListed}`;
      collector.note(key, {
        accountId,
        keyId,
        code,
        modelId,
        host,
        minute,
        count: 1,
        lastRequestId: requestId,
        isListed,
      });
    },
    flush: collector.flush,
    stop: collector.stop,
  };
}

type Counting = { refusals: RefusalCounts };

/** Counts the error that a request ended with. After the reserve, its owner's list has only an unavailable provider. */
export function countRefusal(deps: Counting, record: RequestRecord, error: unknown): void {
  const code = codeOf(record, error);
  if (code !== undefined) deps.refusals.note(record, code, !record.isReserved || code === "provider_unavailable");
}

/** Counts the error that ended a stream which had begun. */
export function countStreamError(deps: Counting, record: RequestRecord, error: unknown): void {
  const code = codeOf(record, error);
  if (code !== undefined) deps.refusals.note(record, code, false);
}

/** undefined: it does not count. A client that left got no error, and a refused key has no owner. Source: MON-26. */
function codeOf({ accountId }: RequestRecord, error: unknown): ErrorCode | undefined {
  const { code } = asRefusal(error);
  return accountId === 0 || code === "invalid_api_key" || error instanceof ClientLeft ? undefined : code;
}
