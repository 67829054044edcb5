import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { type KeyUse, saveKeyUses } from "./key_uses_store.ts";

/** Keys remembered between two flushes; uses of further keys are dropped. */
const KEYS_MAX = 50_000;

export type KeyUses = {
  /** Records that a request of this key was granted. */
  note(keyId: number, host: string): void;
} & Pick<BufferedWrites<number, KeyUse>, "flush" | "stop">;

/** When and on which host keys were last used. Written every few seconds in one statement. `nowMs`: the monotonic clock. */
export function openKeyUses({ db, log, nowMs }: { db: Db; log: Log; nowMs: () => number }): KeyUses {
  const writes = createBufferedWrites<number, KeyUse>({
    name: "key uses",
    max: KEYS_MAX,
    merge: (_, newer) => newer,
    write: (uses) => saveKeyUses({ db }, uses, nowMs()),
    log,
  });
  return {
    note: (keyId, host) => writes.note(keyId, { keyId, host, atMs: nowMs() }),
    flush: writes.flush,
    stop: writes.stop,
  };
}
