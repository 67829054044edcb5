import { expect } from "bun:test";
import { expectRefusal } from "./checks.ts";
import type { Answer } from "./shop.ts";

/** The kinds of responses to a request with an Idempotency-Key. */

export const isReplay = ({ status, headers }: Answer) =>
  status === 200 && headers.get("idempotent-replayed") === "true";
export const isFirst = ({ status, headers }: Answer) => status === 200 && !headers.has("idempotent-replayed");

/** 409, with Retry-After or with x-should-retry: false. */
export function expectConflict(
  answer: Answer,
  { first, inFlight }: { first?: string | null; inFlight: boolean },
): void {
  expectRefusal(answer, "idempotency_conflict");
  expect(answer.headers.has("retry-after")).toBe(inFlight);
  if (first) expect(answer.json.error.message).toContain(first);
}
