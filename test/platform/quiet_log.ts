import { createLog, type Log } from "../../src/platform/log.ts";

/** A log that keeps its lines for the test. */
export function quietLog(): { log: Log; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  return { log: createLog("trace", { write: (line) => void lines.push(JSON.parse(line)) }), lines };
}
