import { expect } from "bun:test";
import { expectRefusal } from "./checks.ts";
import type { Answer } from "./shop.ts";

/** Kinds of answers to a request with an Idempotency-Key. */

export const isReplay = ({ status, headers }: Answer) =>
  status === 200 && headers.get("idempotent-replayed") === "true";
export const isFirst = ({ status, headers }: Answer) => status === 200 && !headers.has("idempotent-replayed");

/** 409, and whether it is worth waiting for the first answer. */
export function expectConflict(
  answer: Answer,
  { first, inFlight }: { first?: string | null; inFlight: boolean },
): void {
  expectRefusal(answer, "idempotency_conflict");
  expect(answer.headers.has("retry-after")).toBe(inFlight);
  if (first) expect(answer.json.error.message).toContain(first);
}
