import type { Slices } from "../books/short_transactions_store.ts";
import { terminal } from "./terminal.ts";

const PROGRESS_MS = 2_000;

/** Reports the progress of long work on stderr, every few seconds. */
export function progressOf(what: string): Slices["onSlice"] {
  let saidMs = performance.now();
  const { err } = terminal();
  return ({ doing, done, longestMs }) => {
    if (performance.now() - saidMs < PROGRESS_MS) return;
    saidMs = performance.now();
    err(`${what}: ${doing}, ${done} slices, the longest ${Math.round(longestMs)} ms\n`);
  };
}
