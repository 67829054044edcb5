import { Refusal } from "../errors.ts";

/** A database look-up that takes longer has met a silent server: its client gets 503. */
export const LOOK_UP_MS_MAX = 1_800;

/** Resolves as `promise` does; rejects with what `late` returns, or an Error, when that takes longer than `ms`. */
export function within<T>(ms: number, promise: Promise<T>, late?: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(late?.() ?? new Error(`no answer within ${ms} ms`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** The result of a database look-up for a request. Throws service_unavailable after LOOK_UP_MS_MAX. */
export function inTime<T>(lookUp: Promise<T>): Promise<T> {
  return within(LOOK_UP_MS_MAX, lookUp, () => new Refusal("service_unavailable"));
}
