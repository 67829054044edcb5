import { InputError, sentence } from "../errors.ts";
import { LIMITED_MODELS_MAX, REQUESTS_AT_ONCE, REQUESTS_PER_MINUTE, TOKENS_PER_MINUTE } from "../limits.ts";
import type { LimitSet, RateLimits, RequestLimits } from "../platform/rate_tallies.ts";
import { checkInteger } from "./input_checks.ts";

/**
 * The limits that people set: requests a minute, tokens a minute, and requests at once, of an offering, an account or a key. Every limit
 * that is set applies, and the lowest decides. Pure. Source: LIM-1, LIM-2.
 */

/** Limits as they are given: what is missing is not limited. */
export type LimitSetInput = { readonly [Name in keyof LimitSet]?: number | null | undefined };
export type RateLimitsInput = LimitSetInput & {
  readonly models?: Readonly<Record<string, LimitSetInput>> | undefined;
};

const KINDS = {
  requestsPerMinute: REQUESTS_PER_MINUTE,
  tokensPerMinute: TOKENS_PER_MINUTE,
  requestsAtOnce: REQUESTS_AT_ONCE,
} as const;
type KindName = keyof typeof KINDS;
const KIND_NAMES = Object.keys(KINDS) as KindName[];
const NO_LIMITS: LimitSet = { requestsPerMinute: null, tokensPerMinute: null, requestsAtOnce: null };

/** Limits that may not be exceeded, and whose they are. */
export type Ceiling = { limits: RateLimits | null; of: keyof typeof ABOVE };

const ABOVE = {
  account: "The field {param} must be at most {most}, the limit of the account.",
  reseller: "The field {param} must be at most {most}, the reseller's own limit.",
} as const;

/**
 * Checks limits, and returns them in full; null if nothing is limited. With a ceiling, none may be above it. Throws InputError, which names
 * the field: `limits.tokensPerMinute`, `limits.models.gpt-x.requestsAtOnce`.
 */
export function checkRateLimits(given: RateLimitsInput | null, ceiling?: Ceiling): RateLimits | null {
  if (given === null) return null;
  const own = checkSet(given, "limits", ceiling);
  const models: [string, LimitSet][] = [];
  const ids = Object.keys(given.models ?? {});
  if (ids.length > LIMITED_MODELS_MAX)
    throw new InputError(
      sentence("At most {limitedModelsMax} models may have limits of their own.", {
        limitedModelsMax: LIMITED_MODELS_MAX,
      }),
      "limits.models",
    );
  for (const id of ids) {
    const ofModel = ceiling?.limits ? lowest(ceiling.limits, ceiling.limits.models[id] ?? null) : null;
    const set = checkSet(given.models?.[id] ?? {}, `limits.models.${id}`, ceiling && { ...ceiling, limits: ofModel });
    if (isLimited(set)) models.push([id, set]);
  }
  return isLimited(own) || models.length > 0 ? { ...own, models: Object.fromEntries(models) } : null;
}

function checkSet(
  given: LimitSetInput,
  at: string,
  ceiling: (Omit<Ceiling, "limits"> & { limits: LimitSet | null }) | undefined,
): LimitSet {
  const set: Record<KindName, number | null> = { ...NO_LIMITS };
  for (const name of KIND_NAMES) {
    const value = given[name] ?? null;
    if (value === null) continue;
    const param = `${at}.${name}`;
    checkInteger(value, { param, ...KINDS[name] });
    const most = ceiling?.limits?.[name] ?? null;
    if (ceiling && most !== null && value > most)
      throw new InputError(sentence(ABOVE[ceiling.of], { param, most }), param);
    set[name] = value;
  }
  return set;
}

function isLimited(set: LimitSet): boolean {
  return KIND_NAMES.some((name) => set[name] !== null);
}

/** The lowest of each limit; null: no limit at all. */
export function lowest(...sets: readonly (LimitSet | null | undefined)[]): LimitSet | null {
  const low: Record<KindName, number | null> = { ...NO_LIMITS };
  for (const set of sets) {
    for (const name of KIND_NAMES) {
      const value = set?.[name] ?? null;
      if (value !== null) low[name] = Math.min(value, low[name] ?? value);
    }
  }
  return isLimited(low) ? low : null;
}

/** Where the limits of an account come from; each null: it sets none. */
export type AccountLimits = {
  /** Set for the account itself. */
  own: RateLimits | null;
  /** Those of its active package. */
  package: RateLimits | null;
  /** Those of its reseller: no customer may have more. */
  reseller: RateLimits | null;
};

/** The limits that apply to an account: the lowest of all that were set. null: none. */
export function appliedLimits({ own, package: ofPackage, reseller }: AccountLimits): RateLimits | null {
  const all = [own, ofPackage, reseller].filter((limits) => limits !== null);
  if (all.length === 0) return null;
  const ids = new Set(all.flatMap((limits) => Object.keys(limits.models)));
  const models = [...ids].map((id) => [id, lowest(...all.map((limits) => limits.models[id])) ?? NO_LIMITS] as const);
  return { ...(lowest(...all) ?? NO_LIMITS), models: Object.fromEntries(models) };
}

/** The limits as the rate limiter takes them; null: none. */
export function requestLimits(key: RateLimits | null, account: AccountLimits): RequestLimits | null {
  const applied = appliedLimits(account);
  if (key === null && applied === null) return null;
  return { key: lowest(key), account: lowest(applied), models: new Map(Object.entries(applied?.models ?? {})) };
}
