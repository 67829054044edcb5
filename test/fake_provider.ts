import type { Behaviour } from "../src/demo/provider/faults.ts";
import type { Call } from "../src/demo/provider/journal.ts";
import {
  type SimulatedProvider,
  type SimulatedProviderOptions,
  startSimulatedProvider,
} from "../src/demo/provider/simulated_provider.ts";

/** For what happens at once on an idle machine. */
const WAIT_MS_MAX = 60_000;
const POLL_MS = 2;

export type Gate = { held: Behaviour; open(): void };

/** The simulated provider for tests: with control endpoints, an API key, and functions that wait for calls. */
export interface FakeProvider extends SimulatedProvider {
  readonly apiKey: string;
  /** Model calls since the start or the last reset. 0 proves that a refused request did not reach the provider. */
  callCount(): number;
  lastCall(): Readonly<Call> | undefined;
  /**
   * `held`: this behaviour, with answers that wait before their headers until `open` is called. What a test does meanwhile has all the
   * time that it needs, unlike during a delay.
   */
  gate(behaviour?: Behaviour): Gate;
  /** The same, but the answers wait after this many chunks; 0: after their headers. */
  gateAfter(afterChunks: number, behaviour?: Behaviour): Gate;
  /** The same, but what cuts the connection waits: a reader that a busy machine stops would lose what it had not read. */
  gateCut(behaviour: Behaviour): Gate;
  /** Resolves with all model calls when there are `n`. Rejects after `timeoutMs`. */
  waitForCalls(n: number, timeoutMs?: number): Promise<Readonly<Call>[]>;
  /** Resolves when the caller has left the call. Rejects after `timeoutMs`. */
  waitForAborted(id: number, timeoutMs?: number): Promise<Readonly<Call>>;
  /** Resolves when the call has ended in any way. Rejects after `timeoutMs`. */
  waitForEnd(id: number, timeoutMs?: number): Promise<Readonly<Call>>;
}

/** Starts a simulated provider on a free port. By default it accepts any model id and answers without delays. */
export async function startFakeProvider(options: SimulatedProviderOptions = {}): Promise<FakeProvider> {
  const apiKey = options.apiKey ?? "sk-fake-provider-0123456789abcdef";
  const provider = await startSimulatedProvider({ models: "any", control: true, ...options, apiKey });
  let gates = 0;
  const generations = () => provider.calls().filter(({ generation }) => generation);
  const waitForOutcome = async (
    id: number,
    what: string,
    condition: (call: Readonly<Call>) => boolean,
    timeoutMs?: number,
  ) => {
    const seen = () => provider.call(id);
    await until(
      () => condition(seen() ?? missing(id)),
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
    gate(behaviour = {}) {
      const gate = `gate ${++gates}`;
      return { held: { ...behaviour, gate }, open: () => provider.open(gate) };
    },
    gateCut(behaviour) {
      const cutGate = `gate ${++gates}`;
      return { held: { ...behaviour, cutGate }, open: () => provider.open(cutGate) };
    },
    gateAfter(afterChunks, behaviour = {}) {
      const gate = `gate ${++gates}`;
      return { held: { ...behaviour, gateInside: { gate, afterChunks } }, open: () => provider.open(gate) };
    },
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

async function until(condition: () => boolean, what: () => string, timeoutMs = WAIT_MS_MAX): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`waited ${timeoutMs} ms for ${what()}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function missing(id: number): never {
  throw new Error(`the provider has no call ${id}`);
}
