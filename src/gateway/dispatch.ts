import type { Model, Route } from "../catalog/catalog.ts";
import { withFailover } from "../catalog/failover.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import type { Hold } from "../ledger/ledger.ts";
import type { EndReason } from "../ledger/ledger_store.ts";
import { deadline } from "../platform/deadline.ts";
import { Stop, type StopSignal } from "../platform/stop.ts";
import { requesterOf } from "./admission.ts";
import type { Caller } from "./door.ts";
import { traced } from "./trace_spans.ts";

/**
 * Calls the providers for one request, and says how that ended. It ends no hold: the flow does, by the outcome.
 *
 * A request is dispatched when its first byte is written to a provider. `fetch` does not tell that moment. So a client that
 * leaves between the call of `fetch` and the provider's headers is not decided on at once: the call goes on for up to
 * SEND_MS_MAX, and what becomes of it decides. Source: rulings › Who pays when something breaks.
 */

/** After this a request has been sent, or its provider cannot be connected to: three round trips, and one lost packet. */
const SEND_MS_MAX = 2_000;

export type Outcome<T> =
  | { how: "answered"; answer: T }
  /** The client left while a provider was at work for it, and was sent nothing. The prompt is paid. */
  | { how: "client_left"; error: Refusal }
  /** Nobody pays. `error` is what the client gets. */
  | { how: "unpaid"; reason: EndReason; error: unknown };

/**
 * What becomes of a call whose client leaves once the request was sent. `finish`: it runs to its end, and is paid. `abort`: it is
 * ended as soon as the provider is known to be at work. `read_on`: the same, but it is not ended: the model hides tokens, and its
 * answer says at the end how many.
 */
export type WhenLeft = "finish" | "abort" | "read_on";

/** What each call of a provider is given. */
export type Attempt = {
  signal: StopSignal;
  traceparent: string | undefined;
  /** To be called right before the request is sent. Throws when it must not be. */
  beforeSend: () => void;
  /** To be called when the provider has sent the headers of a good answer. */
  onHeaders: () => void;
};

export type Dispatched = { deps: Deps; caller: Caller; model: Model; hold: Hold };

/** Calls the model's routes in turn until one answers. Never throws. */
export async function dispatch<T>(
  job: Dispatched,
  whenLeft: WhenLeft,
  attempt: (route: Route, own: Attempt) => Promise<T>,
): Promise<Outcome<T>> {
  const { deps, caller, model } = job;
  const calls = new Calls(job, whenLeft);
  try {
    calls.watch();
    const answer = await withFailover(
      {
        routes: model.routes,
        breakers: deps.breakers,
        requester: requesterOf(caller.key),
        random: Math.random,
        signal: calls.signal,
        log: deps.log,
        onTimeOut: deps.metrics.timedOut,
        onFailure: deps.metrics.providerFailed,
      },
      (route) => {
        calls.begin(route);
        return traced(caller.trail, route, deps.clock, (traceparent) => attempt(route, calls.attempt(traceparent)));
      },
    );
    caller.trail.answeredMs = deps.clock.nowMs();
    return { how: "answered", answer };
  } catch (error) {
    return calls.outcomeOf(error);
  } finally {
    calls.close();
  }
}

export function restarting(): Refusal {
  return new Refusal("service_unavailable", { message: "The service is restarting. Nothing was charged." });
}

/** The client is gone. Nobody reads this. */
class ClientLeft extends Refusal {
  constructor() {
    super("service_unavailable", { message: "The client left." });
  }
}

/** Calls that did not come to an end of their own: we shut down, or the client left, who pays or does not. */
type Ended = "by_us" | "paid" | "not_paid";

/** The calls of one request, one after another: how far the present one has come, and who ended it. */
class Calls {
  readonly signal = new Stop();
  readonly #job: Dispatched;
  readonly #whenLeft: WhenLeft;
  #ended: Ended | undefined;
  /** The route that is tried; undefined: none was. */
  #route: Route | undefined;
  /** When the present route's request began to be sent. */
  #sentMs: number | undefined;
  /** A route before the present one was sent the request, and failed. */
  #hasFailed = false;
  #hasHeaders = false;
  #takeBack = () => {};
  #stopClock: (() => void) | undefined;

  constructor(job: Dispatched, whenLeft: WhenLeft) {
    this.#job = job;
    this.#whenLeft = whenLeft;
  }

  /** Listens to what may end the calls. Throws where the client has left by now. */
  watch(): void {
    const { deps, caller } = this.#job;
    this.#takeBack = deps.gate.onDeadline(this.#onDeadline);
    if (caller.signal.aborted) throw new ClientLeft();
    // A call that runs to its end needs no listener: whether the client is there is asked before each step.
    if (this.#whenLeft !== "finish") caller.signal.addEventListener("abort", this.#onLeft, { once: true });
  }

  close(): void {
    this.#takeBack();
    this.#stopClock?.();
    if (this.#whenLeft !== "finish") this.#job.caller.signal.removeEventListener("abort", this.#onLeft);
  }

  /** A route is tried. Throws where nothing may reach a provider any more. */
  begin(route: Route): void {
    const { deps, caller, hold } = this.#job;
    if (caller.signal.aborted) throw new ClientLeft();
    // Past its lease the reaper may have given the hold back, or a retry taken over.
    if (!deps.ledger.alive(hold) || caller.claim?.alive() === false) throw new Refusal("service_unavailable");
    this.#route = route;
    this.#hasFailed ||= this.#sentMs !== undefined;
    this.#sentMs = undefined;
    this.#hasHeaders = false;
    caller.trail.route = route;
  }

  attempt(traceparent: string | undefined): Attempt {
    return { signal: this.signal, traceparent, beforeSend: this.#beforeSend, onHeaders: this.#onHeaders };
  }

  /** What it means that the calls ended with this error. */
  outcomeOf(error: unknown): Outcome<never> {
    switch (this.#ended) {
      case "paid":
        return { how: "client_left", error: new ClientLeft() };
      case "by_us":
        return { how: "unpaid", reason: this.#route ? "ended_by_us" : "not_dispatched", error: restarting() };
      case "not_paid":
        return { how: "unpaid", reason: this.#unsentOrFailed(), error: new ClientLeft() };
    }
    if (error instanceof ClientLeft) return { how: "unpaid", reason: this.#unsentOrFailed(), error };
    if (this.#route === undefined) return { how: "unpaid", reason: "not_dispatched", error };
    const isRejection = error instanceof Refusal && error.code === "invalid_request";
    return { how: "unpaid", reason: isRejection ? "provider_rejected" : "provider_failed", error };
  }

  #unsentOrFailed(): EndReason {
    return this.#hasFailed || this.#sentMs !== undefined ? "provider_failed" : "not_dispatched";
  }

  #end(how: Ended): void {
    this.#ended ??= how;
    this.signal.stop();
  }

  readonly #beforeSend = (): void => {
    const { deps, caller } = this.#job;
    if (caller.signal.aborted) throw new ClientLeft();
    this.#sentMs = deps.clock.nowMs();
    caller.trail.dispatchedMs ||= this.#sentMs;
  };

  readonly #onHeaders = (): void => {
    this.#hasHeaders = true;
    if (this.#whenLeft === "abort" && this.#job.caller.signal.aborted) this.#end("paid");
  };

  readonly #onDeadline = (): void => {
    // Whoever left a provider that is at work has ended the request before us.
    this.#end(this.#hasHeaders && this.#whenLeft !== "finish" && this.#job.caller.signal.aborted ? "paid" : "by_us");
  };

  readonly #onLeft = (): void => {
    const { clock, config } = this.#job.deps;
    if (this.#hasHeaders) {
      if (this.#whenLeft === "abort") this.#end("paid");
    } else if (this.#sentMs === undefined || clock.nowMs() - this.#sentMs >= config.providerHeadersMs) {
      this.#end("not_paid");
    } else {
      this.#stopClock = deadline(SEND_MS_MAX, this.#onSent);
    }
  };

  /** The client left some time ago, and there are still no headers: a provider that can be connected to has the request. */
  readonly #onSent = async (): Promise<void> => {
    const { provider } = this.#job.deps;
    const route = this.#route;
    const hasIt = route !== undefined && (await provider.canConnect(route));
    if (!hasIt) this.#end("not_paid");
    else if (this.#whenLeft === "abort") this.#end("paid");
  };
}
