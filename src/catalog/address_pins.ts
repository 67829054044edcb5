import { connect } from "node:net";
import { type Address, assertCallable, GuardError, type Resolve } from "./guard.ts";
import { ProviderFailure } from "./provider_errors.ts";

/** A provider that answered this lately is not probed. */
const REACHED_FOR_MS = 10_000;
/** A busy provider's name is looked up and checked anew this often, beside the requests. */
const CHECKED_FOR_MS = 60_000;
/** Addresses tried at once, of each family. */
const ADDRESSES_PER_FAMILY = 2;
/** Providers remembered; base URLs change seldom, so this is far more than there are. */
const ORIGINS_MAX = 10_000;

/** A provider's URL, with its origin, which the URL itself puts together anew each time. */
type Spot = { readonly url: URL; readonly origin: string };

export type Reach = {
  /** The checked address to call, if the provider answered lately. */
  known(spot: Spot): string | undefined;
  /**
   * The same once a TCP connection to it stands. Throws ProviderFailure (connect, timeout, address) or the reason of `signal`.
   */
  ensure(spot: Spot, signal: AbortSignal): Promise<string>;
  /** Connects anew, whatever is known. Throws ProviderFailure (connect, timeout, address). */
  check(spot: Spot): Promise<string>;
  /** It answered just now. */
  reached(spot: Spot): void;
  /** It did not: the next call probes. */
  lost(spot: Spot): void;
};

type ReachOptions = { connectMs: number; allowPrivate: readonly string[]; now: () => number; resolve?: Resolve };

/** An address that was checked and connected to, when it answered last, and when its name was looked up. */
type Pin = { address: string; reachedMs: number; checkedMs: number };

/**
 * Bounds the time to connect, which `fetch` cannot: it knows one limit for everything up to the headers, and a model
 * may think for minutes. The probe looks the name up, and calls go to the address it checked and to no other: what the
 * name leads to a moment later (rebinding) is checked before it is called.
 */
export function createReach({ connectMs, allowPrivate, now, resolve }: ReachOptions): Reach {
  const pins = new Map<string, Pin>();
  const probes = new Map<string, Promise<string>>();

  async function probe({ url, origin }: Spot): Promise<string> {
    const deadline = new AbortController();
    const limit = "provider_connect";
    const timer = setTimeout(
      () => deadline.abort(new ProviderFailure("timeout", `No connection within ${connectMs} ms.`, { limit })),
      connectMs,
    );
    try {
      const guard = { allowPrivate, purpose: "The provider's base URL", ...(resolve && { resolve }) };
      const target = await orAborted(assertCallable(url, guard), deadline.signal);
      const address = await connectToAny(target.addresses, target.port, deadline.signal);
      if (pins.size >= ORIGINS_MAX) pins.clear();
      pins.set(origin, { address, reachedMs: now(), checkedMs: now() });
      return address;
    } catch (thrown) {
      const failure = toFailure(thrown);
      // Its name leads to where nobody may call: what it led to before is not called either.
      if (failure.kind === "address") pins.delete(origin);
      throw failure;
    } finally {
      clearTimeout(timer);
    }
  }

  /** One probe for all who wait, so that a cold start does not open a thousand connections. */
  function sharedProbe(spot: Spot): Promise<string> {
    const { origin } = spot;
    let running = probes.get(origin);
    if (!running) {
      running = probe(spot).finally(() => probes.delete(origin));
      probes.set(origin, running);
    }
    return running;
  }

  return {
    known(spot) {
      const pin = pins.get(spot.origin);
      const nowMs = now();
      if (!pin || nowMs - pin.reachedMs >= REACHED_FOR_MS) return undefined;
      if (nowMs - pin.checkedMs >= CHECKED_FOR_MS) {
        pin.checkedMs = nowMs;
        // Nobody waits for it: a resolver that fails must not fail a provider that answers.
        sharedProbe(spot).catch(() => {});
      }
      return pin.address;
    },
    ensure: (spot, signal) => orAborted(sharedProbe(spot), signal),
    check: sharedProbe,
    reached({ origin }) {
      const pin = pins.get(origin);
      if (pin) pin.reachedMs = now();
    },
    lost: ({ origin }) => void pins.delete(origin),
  };
}

/** `promise`, or the reason of `signal` if that comes first. A late failure of `promise` is nobody's business any more. */
export async function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let abort: () => void = () => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
  return await Promise.race([promise, aborted]).finally(() => signal.removeEventListener("abort", abort));
}

/** The first that connects wins: an address family without a way out must not use up the time of the other. */
async function connectToAny(addresses: readonly Address[], port: number, signal: AbortSignal): Promise<string> {
  const chosen = [4, 6].flatMap((family) =>
    addresses.filter((one) => one.family === family).slice(0, ADDRESSES_PER_FAMILY),
  );
  const ended = new AbortController();
  const attempt = async ({ address }: Address) => {
    await connectOnce(address, port, AbortSignal.any([signal, ended.signal]));
    return address;
  };
  try {
    return await Promise.any(chosen.map(attempt));
  } catch (thrown) {
    signal.throwIfAborted();
    throw thrown instanceof AggregateError ? thrown.errors[0] : thrown;
  } finally {
    ended.abort();
  }
}

function connectOnce(host: string, port: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port });
    const abort = () => finish(() => reject(signal.reason));
    const finish = (tell: () => void) => {
      signal.removeEventListener("abort", abort);
      socket.destroy();
      tell();
    };
    signal.addEventListener("abort", abort, { once: true });
    socket.once("connect", () => finish(resolve));
    // Stays on: a destroyed socket may still raise an error, which nobody else would catch.
    socket.on("error", (error) => finish(() => reject(error)));
  });
}

function toFailure(thrown: unknown): ProviderFailure {
  if (thrown instanceof ProviderFailure) return thrown;
  if (thrown instanceof GuardError) {
    const failure = new ProviderFailure(thrown.kind === "refused" ? "address" : "connect", thrown.message);
    failure.cause = thrown; // It tells a name that cannot be looked up from an address that does not answer.
    return failure;
  }
  return new ProviderFailure("connect", thrown instanceof Error ? thrown.message : String(thrown));
}
