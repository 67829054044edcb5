import { within } from "../src/platform/time_limit.ts";

/** Shorter than a hook may take, so that a file that does not end says what it waited for. */
const STEP_MS_MAX = 100_000;

/** One step of what ends a test file. Rejects, and names the step, if it does not end. */
export async function closing<T>(step: string, ended: Promise<T>): Promise<T> {
  return within(STEP_MS_MAX, ended, () => new Error(`${step}: not ended after ${STEP_MS_MAX / 1000} s`));
}
