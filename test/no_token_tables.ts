/**
 * Preloaded by the replicas of tests, but for those that count: their token counter's worker never gets ready, so that texts are
 * estimated, as in the first second of any replica. Its tables take a second of a processor at each start.
 */
globalThis.Worker = class extends EventTarget {
  postMessage(): void {}
  terminate(): void {}
} as unknown as typeof Worker;
