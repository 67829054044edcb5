import { isRecord } from "../platform/records.ts";

/**
 * Log probabilities in the shape of OpenAI's schema: JSON has no minus infinity, so servers write `null` for a token that is impossible,
 * and clients expect a number. Source: STR-6.
 */

/** What vLLM writes for minus infinity. */
const IMPOSSIBLE = -9999;
const LISTS = ["content", "refusal"] as const;

/** The log probabilities of a choice; the same object if all are numbers. */
export function goodLogprobs(logprobs: unknown): unknown {
  if (!isRecord(logprobs)) return logprobs;
  let good: Record<string, unknown> | undefined;
  for (const name of LISTS) {
    const tokens = logprobs[name];
    if (!Array.isArray(tokens) || tokens.every(isGood)) continue;
    good ??= { ...logprobs };
    good[name] = tokens.map((token: unknown) => {
      if (!isRecord(token)) return token;
      const others: unknown[] = Array.isArray(token.top_logprobs) ? token.top_logprobs : [];
      return { ...withNumber(token), top_logprobs: others.map(withNumber) };
    });
  }
  return good ?? logprobs;
}

function isGood(token: unknown): boolean {
  if (!isRecord(token) || typeof token.logprob !== "number" || !Array.isArray(token.top_logprobs)) return false;
  return token.top_logprobs.every((other: unknown) => isRecord(other) && typeof other.logprob === "number");
}

function withNumber<T>(token: T): T {
  return isRecord(token) && typeof token.logprob !== "number" ? { ...token, logprob: IMPOSSIBLE } : token;
}
