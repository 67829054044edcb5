/**
 * A cheap AbortSignal. The runtime's own is an expensive event target, and a request has several reasons to end: they are combined here,
 * and an AbortController is created only where the runtime needs one.
 */

/** The part of AbortSignal that is needed; every AbortSignal is a StopSignal. */
export type StopSignal = Pick<AbortSignal, "aborted" | "reason" | "throwIfAborted"> & {
  addEventListener(type: "abort", listener: () => void, options?: { once: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
};

/** Can be stopped once. Listeners must not throw, and are called once. */
export class Stop implements StopSignal {
  aborted = false;
  reason: unknown = undefined;
  #listeners: (() => void)[] = [];

  /** Calls the listeners. Idempotent. */
  stop(reason: unknown = new DOMException("The operation was aborted.", "AbortError")): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) listener();
  }

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }

  addEventListener(_type: "abort", listener: () => void): void {
    this.#listeners.push(listener);
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    this.#listeners = this.#listeners.filter((one) => one !== listener);
  }
}

/** An AbortController for the runtime that aborts with `signal`. */
export function controllerBy(signal: StopSignal): AbortController {
  const controller = new AbortController();
  if (signal.aborted) controller.abort(signal.reason);
  else signal.addEventListener("abort", () => controller.abort(signal.reason), { once: true });
  return controller;
}

/** `promise`, or the reason of `signal` if that comes first. A later failure of `promise` is ignored. */
export async function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let abort: () => void = () => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
  return await Promise.race([promise, aborted]).finally(() => signal.removeEventListener("abort", abort));
}
