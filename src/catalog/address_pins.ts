import { firstReachable } from "../platform/connect_any.ts";
import { orAborted } from "../platform/stop.ts";
import { messageOf } from "../platform/thrown.ts";
import { assertCallable, GuardError, type Resolve } from "./guard.ts";
import { ProviderFailure } from "./provider_errors.ts";

/** A provider that answered within this time is called without a new probe. */
const PINNED_FOR_MS = 10_000;
/** How often a busy provider's name is looked up and checked again, in the background. */
const CHECKED_FOR_MS = 60_000;
/** Pins kept; base URLs change seldom, so this is far more than there are. */
const ORIGINS_MAX = 10_000;

/** A provider's URL with its origin, which `URL.origin` would build anew each time. */
type ProviderUrl = { readonly url: URL; readonly origin: string };

export type AddressPins = {
  /** The checked address to call, if the provider answered recently. */
  pinned(provider: ProviderUrl): string | undefined;
  /**
   * The checked address to call, once a TCP connection to it was made. Throws ProviderFailure (connect, timeout, address) or
   * the reason of `signal`.
   */
  connected(provider: ProviderUrl, signal: AbortSignal): Promise<string>;
  /** Looks up the name and connects again, whatever is pinned. Throws ProviderFailure (connect, timeout, address). */
  probe(provider: ProviderUrl): Promise<string>;
  /** The provider answered just now. */
  answered(provider: ProviderUrl): void;
  /** The provider failed to answer: the next call probes. */
  unpin(provider: ProviderUrl): void;
};

type PinOptions = { connectMs: number; allowPrivate: readonly string[]; now: () => number; resolve?: Resolve };

/**
 * A checked address that accepted a connection, with the times of its last answer and of the last look-up of its name.
 */
type Pin = { address: string; answeredMs: number; checkedMs: number };

/**
 * Limits the time to connect, which `fetch` cannot: it has one limit for everything up to the headers, and a model may think for
 * minutes. A probe looks the name up, checks its addresses and connects; calls go to that address only. So an address that the
 * name points to later (DNS rebinding) is checked before it is called.
 */
export function createAddressPins({ connectMs, allowPrivate, now, resolve }: PinOptions): AddressPins {
  const pins = new Map<string, Pin>();
  const probes = new Map<string, Promise<string>>();

  async function probe({ url, origin }: ProviderUrl): Promise<string> {
    const deadline = new AbortController();
    const limit = "provider_connect";
    const timer = setTimeout(
      () => deadline.abort(new ProviderFailure("timeout", `No connection within ${connectMs} ms.`, { limit })),
      connectMs,
    );
    try {
      const guard = {
        allowPrivate,
        purpose: "The provider's base URL",
        tellsAddresses: true,
        ...(resolve && { resolve }),
      };
      const target = await orAborted(assertCallable(url, guard), deadline.signal);
      const address = await firstReachable(target.addresses, target.port, deadline.signal);
      if (pins.size >= ORIGINS_MAX) pins.clear();
      pins.set(origin, { address, answeredMs: now(), checkedMs: now() });
      return address;
    } catch (thrown) {
      const failure = toFailure(thrown);
      // The name now points to an address that must not be called: do not call the old address either.
      if (failure.kind === "address") pins.delete(origin);
      throw failure;
    } finally {
      clearTimeout(timer);
    }
  }

  /** All waiting calls share one probe, so that a cold start does not open a thousand connections. */
  function sharedProbe(provider: ProviderUrl): Promise<string> {
    const { origin } = provider;
    let running = probes.get(origin);
    if (!running) {
      running = probe(provider).finally(() => probes.delete(origin));
      probes.set(origin, running);
    }
    return running;
  }

  return {
    pinned(provider) {
      const pin = pins.get(provider.origin);
      const nowMs = now();
      if (!pin || nowMs - pin.answeredMs >= PINNED_FOR_MS) return undefined;
      if (nowMs - pin.checkedMs >= CHECKED_FOR_MS) {
        pin.checkedMs = nowMs;
        // In the background: a resolver that fails must not fail a provider that answers.
        sharedProbe(provider).catch(() => {});
      }
      return pin.address;
    },
    connected: (provider, signal) => orAborted(sharedProbe(provider), signal),
    probe: sharedProbe,
    answered({ origin }) {
      const pin = pins.get(origin);
      if (pin) pin.answeredMs = now();
    },
    unpin: ({ origin }) => void pins.delete(origin),
  };
}

function toFailure(thrown: unknown): ProviderFailure {
  if (thrown instanceof ProviderFailure) return thrown;
  if (thrown instanceof GuardError) {
    const failure = new ProviderFailure(thrown.kind === "refused" ? "address" : "connect", thrown.message);
    failure.cause = thrown; // Distinguishes a name that cannot be looked up from an address that does not answer.
    return failure;
  }
  return new ProviderFailure("connect", messageOf(thrown));
}
