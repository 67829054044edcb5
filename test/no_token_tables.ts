/**
 * Preloaded by the replicas of tests, except those that count tokens: the token counter's worker never gets ready, so
 * that texts are estimated, as in the first second of any replica. Its tables take a second of a processor at each
 * start. Other workers are real.
 */
const Silent = class extends EventTarget {
  postMessage(): void {}
  terminate(): void {}
};
globalThis.Worker = new Proxy(globalThis.Worker, {
  construct: (Real, [url, ...options]: ConstructorParameters<typeof Worker>) =>
    String(url).endsWith("/tokens_worker.ts") ? new Silent() : new Real(url, ...options),
});
