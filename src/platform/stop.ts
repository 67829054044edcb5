/**
 * What ends work under way. An AbortSignal is an event target of the runtime's own, with a price to match, and a request has several
 * reasons to end: they meet here, and one AbortController is made where the runtime wants one.
 */

/** As much of AbortSignal as is needed to hear of an end; every AbortSignal is one. */
export type StopSignal = Pick<AbortSignal, "aborted" | "reason" | "throwIfAborted"> & {
  addEventListener(type: "abort", listener: () => void, options?: { once: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
};

/** An end that comes once or never. Listeners throw nothing, and are told once. */
export class Stop implements StopSignal {
  aborted = false;
  reason: unknown = undefined;
  #listeners: (() => void)[] = [];

  /** Ends what listens. A second call does nothing. */
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

/** A controller for what the runtime does, which ends with `signal` too. */
export function controllerBy(signal: StopSignal): AbortController {
  const controller = new AbortController();
  if (signal.aborted) controller.abort(signal.reason);
  else signal.addEventListener("abort", () => controller.abort(signal.reason), { once: true });
  return controller;
}
