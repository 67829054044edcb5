import { Refusal } from "../errors.ts";

/** A database look-up that takes longer has met a silent server: its client gets 503. As `LEDGER_TIMEOUT_MS` says for reserves. */
let lookUpMsMax = 1_800;

/** Sets the time limit of this process's look-ups. */
export function setLookUpMsMax(ms: number): void {
  lookUpMsMax = ms;
}

/** Resolves as `promise` does; rejects with what `late` returns, or an Error, when that takes longer than `ms`. */
export function within<T>(ms: number, promise: Promise<T>, late?: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(late?.() ?? new Error(`no answer within ${ms} ms`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** The result of a database look-up for a request. Throws service_unavailable when it takes too long. */
export function inTime<T>(lookUp: Promise<T>, ms = lookUpMsMax): Promise<T> {
  return within(ms, lookUp, () => new Refusal("service_unavailable"));
}
