import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import type { AnswerCount, Component } from "./answer_counts.ts";
import { addAnswerSums } from "./answer_sums_store.ts";

/**
 * How many requests got an answer, as customers see it: a request that another route answered was answered. Each replica keeps sums in
 * memory, and adds them to the shared ones every few seconds (`buffered_writes.ts`). A replica that dies loses what it has not added.
 * For display only. Source: STA-1.
 */

/** Components in memory between two writes. */
const COMPONENTS_MAX = 5_000;

export type AnswerSums = {
  /** A request was answered, or failed through no fault of its client. */
  note(component: Component, isAnswered: boolean): void;
} & Pick<BufferedWrites<Component, AnswerCount>, "flush" | "stop">;

/** Opens the sums of this replica. */
export function openAnswerSums({ db, log }: { db: Db; log: Log }): AnswerSums {
  const buffer = createBufferedWrites<Component, AnswerCount>({
    name: "sums of answers",
    max: COMPONENTS_MAX,
    merge: (older, newer) => ({
      component: older.component,
      answered: older.answered + newer.answered,
      failed: older.failed + newer.failed,
    }),
    write: (counts) => addAnswerSums({ db }, counts),
    log,
  });
  return {
    note(component, isAnswered) {
      // In place: this runs for each request.
      const known = buffer.entry(component);
      if (known === undefined)
        buffer.note(component, { component, answered: Number(isAnswered), failed: Number(!isAnswered) });
      else if (isAnswered) known.answered += 1;
      else known.failed += 1;
    },
    flush: buffer.flush,
    stop: buffer.stop,
  };
}
