import type { KeyedRoute, Route } from "../catalog/catalog.ts";
import { type Observer, withFailover } from "../catalog/failover.ts";
import type { ProviderFailure, ProviderRejection } from "../catalog/provider_errors.ts";
import type { AnswerKind } from "../catalog/route_sums.ts";
import { Refusal } from "../errors.ts";
import { noteAnswer } from "../ledger/answered_by.ts";
import type { EndReason } from "../ledger/ledger_store.ts";
import { noteTried } from "../ledger/tried_routes.ts";
import { deadline } from "../platform/deadline.ts";
import { Stop, type StopSignal } from "../platform/stop.ts";
import { hasLeft, requesterOf } from "./authenticate.ts";
import { ClientLeft } from "./client_left.ts";
import type { DeadlineWaiter } from "./gate.ts";
import type { ReservedRequest } from "./reserve.ts";
import { noteUnpaid } from "./route_notes.ts";
import { traced } from "./trace_spans.ts";

/**
 * Calls the providers for one request, and says how that ended. It does not end the hold: `flow.ts` does, by the result.
 *
 * A request is dispatched when its first byte is written to a provider. `fetch` does not report that moment. If the client leaves
 * after `fetch` was called and before the provider sends headers, the call therefore goes on for up to SEND_MS_MAX, and is decided by
 * what happens until then. Source: END-8, END-9, END-10.
 *
 * What became of each route goes to the sums of the route (`deps.routeStats`) and, if a route failed, to the hold, whose receipt
 * keeps it. Source: PRV-22, PRV-24.
 */

/** After this a request has been sent, or its provider cannot be connected to: three round trips and one lost packet. */
const SEND_MS_MAX = 2_000;

/** `sentMs`: when the request was sent to the route. */
export type Answered<T> = { how: "answered"; answer: T; route: KeyedRoute; sentMs: number };
/** Nobody pays. `error` is what the client gets. */
type Failed = { how: "failed"; reason: EndReason; error: unknown };

/** No provider's answer can be used. `error` is what the client gets. */
export type Unanswered =
  /** The client left while a provider worked on the request, and was sent nothing. The prompt is charged. Never with `finish`. */
  { how: "client_left"; error: Refusal } | Failed;

/**
 * What happens to a call when its client leaves after the request was sent:
 *
 * - `finish`: the call runs to its end, and is charged.
 * - `abort`: the call is aborted as soon as the provider is known to work on it.
 * - `read_on`: as `abort`, but the call is not aborted: the model hides tokens, and reports them only at the end of its answer.
 */
export type WhenLeft = "finish" | "abort" | "read_on";

/** What each call of a provider is given. */
export type Attempt = {
  signal: StopSignal;
  traceparent: string | undefined;
  /** Must be called immediately before the request is sent. Throws if it must not be sent. */
  beforeSend: () => void;
  /** Must be called when the provider has sent the headers of a good answer. */
  onHeaders: () => void;
};

/** The codes of requests that a provider did not take. */
const REJECTIONS: ReadonlySet<Refusal["code"]> = new Set(["invalid_request", "context_length_exceeded"]);

type Try<T> = (route: KeyedRoute, own: Attempt) => Promise<T>;
/** `isEmpty`: it has nothing in it, and no route had a better one. Nobody pays it. */
type Answer = { dropped: string | undefined; isEmpty?: boolean };

/** Calls the model's routes in turn until one answers. Never throws. */
export function dispatch<T extends Answer>(
  request: ReservedRequest,
  whenLeft: "finish",
  attempt: Try<T>,
): Promise<Answered<T> | Failed>;
export function dispatch<T extends Answer>(
  request: ReservedRequest,
  whenLeft: WhenLeft,
  attempt: Try<T>,
): Promise<Answered<T> | Unanswered>;
export async function dispatch<T extends Answer>(
  request: ReservedRequest,
  whenLeft: WhenLeft,
  attempt: Try<T>,
): Promise<Answered<T> | Unanswered> {
  const { deps, caller, model } = request;
  const calls = new Calls(request, whenLeft);
  try {
    caller.wait?.begin();
    calls.watch();
    const answer = await withFailover<T>(
      {
        modelId: model.id,
        promptParam: request.promptParam,
        routes: model.routes,
        choice: model.routeChoice,
        speeds: deps.routeSpeeds.ranks(calls.kind),
        breakers: deps.breakers,
        keys: deps.keyStates.pool,
        requester: requesterOf(caller.key),
        affinity: request.affinity,
        random: Math.random,
        signal: calls.signal,
        log: deps.log,
        observer: calls,
        isEmpty: (answer) => answer.isEmpty === true,
      },
      (route) => {
        calls.begin(route);
        return traced(caller.record, route, deps.clock, (traceparent) => attempt(route, calls.attempt(traceparent)));
      },
    );
    if (answer.isEmpty) caller.record.answeredMs = deps.clock.nowMs();
    else calls.answered();
    return { how: "answered", answer, route: calls.route, sentMs: calls.sentMs };
  } catch (error) {
    return calls.resultOf(error);
  } finally {
    calls.close();
  }
}

export function restarting(): Refusal {
  return new Refusal("service_unavailable", { message: "The service is restarting. Nothing was charged." });
}

/** Why we ended the calls: the replica shuts down, or the client left, and is charged for it or not. */
type Cut = "shutdown" | "left_charged" | "left_free";

/** The calls of one request, one after another: the state of the current call, and why the calls were cut. */
class Calls implements Observer, DeadlineWaiter {
  readonly signal = new Stop();
  /** Only a stream's calls may end when the client leaves. */
  readonly kind: AnswerKind;
  readonly #request: ReservedRequest;
  readonly #whenLeft: WhenLeft;
  #cut: Cut | undefined;
  /** The current route; undefined before the first. */
  #route: KeyedRoute | undefined;
  /** When the call of the current route began. */
  #beganMs = 0;
  /** The current route has neither answered nor failed. */
  #isOpen = false;
  /** When the request was sent to the current route. */
  #sentMs: number | undefined;
  /** The request was sent to an earlier route, which failed. */
  #hasFailed = false;
  #hasHeaders = false;
  #isLeft = false;
  /** A time limit of ours ended the work of a provider. */
  #isTimedOut = false;
  #stopListening: (() => void) | undefined;
  #stopClock: (() => void) | undefined;

  constructor(request: ReservedRequest, whenLeft: WhenLeft) {
    this.#request = request;
    this.#whenLeft = whenLeft;
    this.kind = whenLeft === "finish" ? "whole" : "stream";
  }

  /** The current route. */
  get route(): KeyedRoute {
    if (this.#route === undefined) throw new Error("no route was tried");
    return this.#route;
  }

  /** When the request was sent to the current route. */
  get sentMs(): number {
    return this.#sentMs ?? this.#beganMs;
  }

  /** Listens for what may cut the calls. Throws ClientLeft if the client has left already. */
  watch(): void {
    const { deps, caller } = this.#request;
    const { signal, wait } = caller;
    deps.gate.addWaiter(this);
    if (signal.aborted) throw new ClientLeft();
    // With "finish" no listener is needed: the signal is checked before each step.
    if (this.#whenLeft === "finish") return;
    const onLeft = () => this.#onLeft();
    signal.addEventListener("abort", onLeft, { once: true });
    if (wait !== undefined) wait.onLeft = onLeft;
    this.#stopListening = () => {
      signal.removeEventListener("abort", onLeft);
      if (wait !== undefined) wait.onLeft = undefined;
    };
  }

  close(): void {
    this.#request.deps.gate.removeWaiter(this);
    this.#stopListening?.();
    this.#stopClock?.();
  }

  /** Starts the call of a route. Throws if no provider may be called any more. */
  begin(route: KeyedRoute): void {
    const { deps, caller, hold } = this.#request;
    if (hasLeft(caller)) throw new ClientLeft();
    // Past its lease the hold may have been released by the reaper, or a retry may have taken the claim over.
    if (!deps.ledger.alive(hold) || caller.claim?.alive() === false) throw new Refusal("service_unavailable");
    this.#route = route;
    this.#beganMs = deps.clock.nowMs();
    this.#isOpen = true;
    this.#hasFailed ||= this.#sentMs !== undefined;
    this.#sentMs = undefined;
    this.#hasHeaders = false;
    caller.record.route = route;
  }

  attempt(traceparent: string | undefined): Attempt {
    return { signal: this.signal, traceparent, beforeSend: this.#beforeSend, onHeaders: this.#onHeaders };
  }

  /** The current route answered. */
  answered(): void {
    const { deps, caller, hold } = this.#request;
    const { route } = this;
    const nowMs = deps.clock.nowMs();
    this.#isOpen = false;
    caller.record.answeredMs = nowMs;
    deps.routeStats.answered(route.id, this.kind, nowMs - this.#beganMs);
    noteAnswer(hold, { routeId: route.id, firstMs: nowMs - caller.record.arrivedMs });
    // The receipt of a request that the first route answered names none.
    if (hold.tried !== undefined) this.#note(route, "answered");
  }

  skipped({ id, providerName, upstreamModel }: Route): void {
    const tried = { routeId: id, provider: providerName, upstreamModel, key: null, ms: 0, status: null };
    noteTried(this.#request.hold, { ...tried, why: "skipped" });
  }

  failed(route: KeyedRoute, { kind, status, limit, blame, work }: ProviderFailure): void {
    const { metrics, routeStats } = this.#request.deps;
    this.#isOpen = false;
    metrics.providerFailed(kind);
    if (limit !== null) metrics.timedOut(limit);
    this.#isTimedOut = work === "begun";
    if (this.#sentMs !== undefined && (limit !== null || work !== "none"))
      noteUnpaid(this.#request, route, this.#sentMs);
    // Requests that a route cannot serve do not make it look bad: one account could send many. Source: PRV-5.
    if (blame === "request" || blame === "replica" || blame === "nobody") routeStats.rejected(route.id, this.kind);
    else routeStats.failed(route.id, this.kind);
    this.#note(route, kind, status);
  }

  rejected(route: KeyedRoute, { status }: ProviderRejection): void {
    this.#isOpen = false;
    this.#request.deps.routeStats.rejected(route.id, this.kind);
    this.#note(route, "rejected", status);
  }

  /** Adds the current attempt to the hold, for the receipt. */
  #note({ id, providerName, upstreamModel, key }: KeyedRoute, why: string, status: number | null = null): void {
    const { deps, hold } = this.#request;
    const ms = deps.clock.nowMs() - this.#beganMs;
    noteTried(hold, { routeId: id, provider: providerName, upstreamModel, key: key.name, ms, status, why });
  }

  /** The result of calls that ended with this error. */
  resultOf(error: unknown): Unanswered {
    if (this.#cut !== undefined && this.#isOpen) this.#noteCut(this.route);
    switch (this.#cut) {
      case "left_charged":
        return { how: "client_left", error: new ClientLeft() };
      case "shutdown":
        return { how: "failed", reason: this.#route ? "ended_by_us" : "not_dispatched", error: restarting() };
      case "left_free":
        return { how: "failed", reason: this.#unsentOrFailed(), error: new ClientLeft() };
    }
    if (error instanceof ClientLeft) return { how: "failed", reason: this.#unsentOrFailed(), error };
    if (!(error instanceof Refusal)) return { how: "failed", reason: "gateway_failed", error };
    if (this.#route === undefined) return { how: "failed", reason: "not_dispatched", error };
    if (this.#isTimedOut) return { how: "failed", reason: "timed_out", error };
    return { how: "failed", reason: REJECTIONS.has(error.code) ? "provider_rejected" : "provider_failed", error };
  }

  /** We ended the call of this route. A provider that left its client waiting until it was gone has failed. */
  #noteCut(route: KeyedRoute): void {
    const { deps, hold } = this.#request;
    const isFailure = this.#cut === "left_free" && this.#sentMs !== undefined;
    if (isFailure) {
      deps.routeStats.failed(route.id, this.kind);
      noteUnpaid(this.#request, route, this.sentMs);
    }
    if (isFailure || hold.tried !== undefined) this.#note(route, "ended");
  }

  #unsentOrFailed(): EndReason {
    return this.#hasFailed || this.#sentMs !== undefined ? "provider_failed" : "not_dispatched";
  }

  #end(cut: Cut): void {
    this.#cut ??= cut;
    this.signal.stop();
  }

  readonly #beforeSend = (): void => {
    const { deps, caller } = this.#request;
    if (hasLeft(caller)) throw new ClientLeft();
    this.#sentMs = deps.clock.nowMs();
    caller.record.dispatchedMs ||= this.#sentMs;
  };

  readonly #onHeaders = (): void => {
    this.#hasHeaders = true;
    if (this.#whenLeft === "abort" && hasLeft(this.#request.caller)) this.#end("left_charged");
  };

  onDeadline(): void {
    // A client that left a provider at work ended the request before the shutdown did.
    this.#end(
      this.#hasHeaders && this.#whenLeft !== "finish" && hasLeft(this.#request.caller) ? "left_charged" : "shutdown",
    );
  }

  #onLeft(): void {
    const { clock, config } = this.#request.deps;
    // Both a signal and a stream may tell of it.
    if (this.#isLeft) return;
    this.#isLeft = true;
    if (this.#hasHeaders) {
      if (this.#whenLeft === "abort") this.#end("left_charged");
    } else if (this.#sentMs === undefined || clock.nowMs() - this.#sentMs >= config.providerHeadersMs) {
      this.#end("left_free");
    } else {
      this.#stopClock = deadline(SEND_MS_MAX, () => void this.#onSent());
    }
  }

  /** SEND_MS_MAX after the client left there are still no headers: a provider that can be connected to has the request. */
  async #onSent(): Promise<void> {
    const { provider } = this.#request.deps;
    const route = this.#route;
    const hasIt = route !== undefined && (await provider.canConnect(route));
    if (!hasIt) this.#end("left_free");
    else if (this.#whenLeft === "abort") this.#end("left_charged");
  }
}
