import type { Route } from "../catalog/catalog.ts";
import { ProviderFailure, ProviderRejection } from "../catalog/provider_errors.ts";
import type { Clock } from "../deps.ts";
import type { RequestFacts, Trail } from "../platform/request_facts.ts";
import { newSpanId, type SpanFacts, type Trace, traceparentOf } from "../platform/tracing.ts";

/**
 * The spans of one request, read off its trail when it has ended: `door`, `reserve`, one `provider` for each route that was tried,
 * `relay` of a stream, `settle` or `release`, all under the request's own.
 */

/** How a request ended. */
export type RequestEnd = {
  /** One of the app's routes, as in `POST /v1/chat/completions`. */
  route: string;
  status: number;
  /** "": it was not refused. */
  refusal: string;
  startedMs: number;
  endedMs: number;
};

/** What is sent of a request. `of` is its trail, or all that is known of one which did not come through the gateway's door. */
export function spansOf(trace: Trace, of: Trail | RequestFacts, end: RequestEnd): SpanFacts[] {
  const { startedMs, endedMs } = end;
  const spans: SpanFacts[] = [requestSpan(trace, of, end)];
  if (!("kind" in of)) return spans;
  const add = (name: string, fromMs: number, toMs: number, more: Partial<SpanFacts> = {}) => {
    // What has begun and did not come to its own end has the request's.
    if (fromMs > 0) spans.push({ ...partOf(trace, name), startedMs: fromMs, endedMs: toMs || endedMs, ...more });
  };
  if (of.askedMs > 0) add("door", startedMs, of.askedMs);
  add("reserve", of.askedMs, of.heldMs || of.refusedMs, { attributes: { "tollgate.held": of.held } });
  for (const call of trace.calls) {
    add("provider", call.startedMs, call.endedMs, {
      spanId: call.spanId,
      kind: "client",
      isFailure: call.failure !== "",
      attributes: {
        "tollgate.provider": call.providerName,
        "tollgate.route_id": call.routeId,
        "gen_ai.request.model": call.upstreamModel,
        "error.type": call.failure || undefined,
        "http.response.status_code": call.status || undefined,
      },
    });
  }
  if (of.kind === "stream") {
    add("relay", of.answeredMs, of.settlingMs || of.releasingMs, {
      isFailure: of.end === "provider_broke_off",
      attributes: { "tollgate.end": of.end || undefined, "tollgate.bytes_out": of.bytesOut },
    });
  }
  add("settle", of.settlingMs, of.settledMs);
  add("release", of.releasingMs, of.releasedMs);
  return spans;
}

/**
 * Calls a provider's route, and keeps what its span will say where the request is traced. `call` is given the `traceparent` that
 * the provider is told.
 */
export function traced<T>({ trace }: Trail, route: Route, clock: Pick<Clock, "nowMs">, call: Call<T>): Promise<T> {
  return trace === undefined ? call(undefined) : keeping(trace, route, clock, call);
}

type Call<T> = (traceparent: string | undefined) => Promise<T>;

async function keeping<T>(trace: Trace, route: Route, clock: Pick<Clock, "nowMs">, call: Call<T>): Promise<T> {
  const { id: routeId, providerName, upstreamModel } = route;
  const [spanId, startedMs] = [newSpanId(), clock.nowMs()];
  const kept = { spanId, routeId, providerName, upstreamModel, startedMs, endedMs: 0, failure: "", status: 0 };
  trace.calls.push(kept);
  try {
    return await call(traceparentOf(trace, spanId));
  } catch (thrown) {
    const known = thrown instanceof ProviderFailure || thrown instanceof ProviderRejection;
    kept.failure = thrown instanceof ProviderFailure ? thrown.kind : known ? "rejected" : "ended_by_us";
    kept.status = (known && thrown.status) || 0;
    throw thrown;
  } finally {
    kept.endedMs = clock.nowMs();
  }
}

function requestSpan(trace: Trace, of: Trail | RequestFacts, end: RequestEnd): SpanFacts {
  const { route, status, refusal, startedMs, endedMs } = end;
  const trail = "kind" in of ? of : undefined;
  const [method, path] = route.split(" ");
  return {
    name: route,
    kind: "server",
    spanId: trace.spanId,
    parentId: trace.parentId,
    startedMs,
    endedMs,
    isFailure: status >= 500 || trail?.end === "provider_broke_off",
    attributes: {
      "http.request.method": path === undefined ? undefined : method,
      "http.route": path,
      "http.response.status_code": status,
      "error.type": refusal || undefined,
      "tollgate.request_id": of.requestId,
      "tollgate.account_id": of.accountId,
      "tollgate.key_id": trail?.keyId || undefined,
      "gen_ai.request.model": trail?.modelId || undefined,
      "tollgate.stream": trail && trail.kind === "stream",
      "tollgate.end": trail?.end || undefined,
      "tollgate.bytes_out": trail?.bytesOut || undefined,
    },
  };
}

function partOf(trace: Trace, name: string): Omit<SpanFacts, "startedMs" | "endedMs"> {
  return { name, kind: "internal", spanId: newSpanId(), parentId: trace.spanId, isFailure: false, attributes: {} };
}
