import { connect } from "node:net";
import { type Address, assertCallable, GuardError, type Resolve } from "./guard.ts";
import { ProviderFailure } from "./provider_errors.ts";

/** A provider that answered this lately is not probed. */
const REACHED_FOR_MS = 10_000;
/** Addresses tried at once, of each family. */
const ADDRESSES_PER_FAMILY = 2;
/** Providers remembered; base URLs change seldom, so this is far more than there are. */
const ORIGINS_MAX = 10_000;

export type Reach = {
  /** Returns at once if the provider answered lately, else once a TCP connection to it stands. Throws ProviderFailure (connect, timeout, address) or the reason of `signal`. */
  ensure(url: URL, signal: AbortSignal): Promise<void>;
  /** It answered just now. */
  reached(url: URL): void;
  /** It did not: the next call probes. */
  lost(url: URL): void;
};

type ReachOptions = { connectMs: number; allowPrivate: readonly string[]; now: () => number; resolve?: Resolve };

/**
 * Bounds the time to connect, which `fetch` cannot: it knows one limit for everything up to the headers, and a model
 * may think for minutes. The probe also checks anew that the provider's name leads to a public address.
 */
export function createReach({ connectMs, allowPrivate, now, resolve }: ReachOptions): Reach {
  const reachedAt = new Map<string, number>();
  const probes = new Map<string, Promise<void>>();

  function reached(url: URL): void {
    if (reachedAt.size >= ORIGINS_MAX) reachedAt.clear();
    reachedAt.set(url.origin, now());
  }

  async function probe(url: URL): Promise<void> {
    const deadline = new AbortController();
    const timer = setTimeout(
      () => deadline.abort(new ProviderFailure("timeout", `No connection within ${connectMs} ms.`)),
      connectMs,
    );
    try {
      const guard = { allowPrivate, purpose: "The provider's base URL", ...(resolve && { resolve }) };
      const target = await orAborted(assertCallable(url, guard), deadline.signal);
      await connectToAny(target.addresses, target.port, deadline.signal);
      reached(url);
    } catch (thrown) {
      throw toFailure(thrown);
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    async ensure(url, signal) {
      signal.throwIfAborted();
      const last = reachedAt.get(url.origin);
      if (last !== undefined && now() - last < REACHED_FOR_MS) return;
      // One probe for all who wait, so that a cold start does not open a thousand connections.
      let running = probes.get(url.origin);
      if (!running) {
        running = probe(url).finally(() => probes.delete(url.origin));
        probes.set(url.origin, running);
      }
      await orAborted(running, signal);
    },
    reached,
    lost: (url) => void reachedAt.delete(url.origin),
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
async function connectToAny(addresses: readonly Address[], port: number, signal: AbortSignal): Promise<void> {
  const chosen = [4, 6].flatMap((family) =>
    addresses.filter((one) => one.family === family).slice(0, ADDRESSES_PER_FAMILY),
  );
  const ended = new AbortController();
  try {
    await Promise.any(chosen.map(({ address }) => connectOnce(address, port, AbortSignal.any([signal, ended.signal]))));
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
