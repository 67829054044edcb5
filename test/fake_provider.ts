import type { Call } from "../src/demo/provider/journal.ts";
import {
  type SimulatedProvider,
  type SimulatedProviderOptions,
  startSimulatedProvider,
} from "../src/demo/provider/simulated_provider.ts";

const WAIT_MS_MAX = 5_000;
const POLL_MS = 2;

/** The simulated provider as tests use it: with control over HTTP, a key, and ways to wait for what it sees. */
export interface FakeProvider extends SimulatedProvider {
  readonly apiKey: string;
  /** Calls of a model since the start or the last reset. 0 proves that a refused request reached no provider. */
  callCount(): number;
  lastCall(): Readonly<Call> | undefined;
  /** Resolves with all calls of a model once there are `n`. Rejects after `timeoutMs`. */
  waitForCalls(n: number, timeoutMs?: number): Promise<Readonly<Call>[]>;
  /** Resolves once the call was left by its caller. Rejects after `timeoutMs`. */
  waitForAborted(id: number, timeoutMs?: number): Promise<Readonly<Call>>;
  /** Resolves once the call is over, however it ended. Rejects after `timeoutMs`. */
  waitForEnd(id: number, timeoutMs?: number): Promise<Readonly<Call>>;
}

/** Starts a simulated provider on a free port. It takes any model id and does not pace, unless told otherwise. */
export async function startFakeProvider(options: SimulatedProviderOptions = {}): Promise<FakeProvider> {
  const apiKey = options.apiKey ?? "sk-fake-provider-0123456789abcdef";
  const provider = await startSimulatedProvider({ models: "any", control: true, ...options, apiKey });
  const generations = () => provider.calls().filter(({ generation }) => generation);
  const waitForOutcome = async (
    id: number,
    what: string,
    isSo: (call: Readonly<Call>) => boolean,
    timeoutMs?: number,
  ) => {
    const seen = () => provider.call(id);
    await until(
      () => isSo(seen() ?? missing(id)),
      () => `call ${id} to be ${what}; it is ${seen()?.outcome}`,
      timeoutMs,
    );
    return seen() ?? missing(id);
  };
  return {
    ...provider,
    apiKey,
    callCount: () => provider.counters().generations,
    lastCall: () => generations().at(-1),
    waitForCalls: async (n, timeoutMs) => {
      const count = () => provider.counters().generations;
      await until(
        () => count() >= n,
        () => `${n} calls; there are ${count()}`,
        timeoutMs,
      );
      return generations();
    },
    waitForAborted: (id, timeoutMs) => waitForOutcome(id, "aborted", ({ outcome }) => outcome === "aborted", timeoutMs),
    waitForEnd: (id, timeoutMs) => waitForOutcome(id, "over", ({ outcome }) => outcome !== "open", timeoutMs),
  };
}

async function until(isSo: () => boolean, what: () => string, timeoutMs = WAIT_MS_MAX): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!isSo()) {
    if (performance.now() > deadline) throw new Error(`waited ${timeoutMs} ms for ${what()}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function missing(id: number): never {
  throw new Error(`the provider has no call ${id}`);
}
