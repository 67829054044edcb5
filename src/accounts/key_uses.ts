import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { type KeyUse, saveKeyUses } from "./key_uses_store.ts";

/** Keys used between two flushes that are remembered; a use of one more is forgotten. */
const KEYS_MAX = 50_000;

export type KeyUses = {
  /** Notes that a request of this key was granted. */
  note(keyId: number, host: string): void;
} & Pick<BufferedWrites<number, KeyUse>, "flush" | "stop">;

/** When and where keys were used last: one look-up a request, one statement every few seconds. `nowMs` is the monotonic clock. */
export function openKeyUses({ db, log, nowMs }: { db: Db; log: Log; nowMs: () => number }): KeyUses {
  const collector = createBufferedWrites<number, KeyUse>({
    name: "key uses",
    max: KEYS_MAX,
    merge: (_, newer) => newer,
    write: (uses) => saveKeyUses({ db }, uses, nowMs()),
    log,
  });
  return {
    note: (keyId, host) => collector.note(keyId, { keyId, host, atMs: nowMs() }),
    flush: collector.flush,
    stop: collector.stop,
  };
}
