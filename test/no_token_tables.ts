/**
 * Preloaded by the replicas of tests, except those that count tokens: the token counter's worker counts nothing, so that texts are
 * estimated at once. Its tables take a second of a processor at each start. Other workers are real.
 */
const CountsNothing = class extends EventTarget {
  constructor() {
    super();
    this.#say({ ready: true });
  }
  postMessage({ id }: { id: number }): void {
    this.#say({ id, error: "the tests have no tables" });
  }
  terminate(): void {}
  #say(data: unknown): void {
    queueMicrotask(() => this.dispatchEvent(new MessageEvent("message", { data })));
  }
};
globalThis.Worker = new Proxy(globalThis.Worker, {
  construct: (Real, [url, ...options]: ConstructorParameters<typeof Worker>) =>
    String(url).endsWith("/tokens_worker.ts") ? new CountsNothing() : new Real(url, ...options),
});
