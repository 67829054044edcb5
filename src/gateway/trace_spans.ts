import type { Route } from "../catalog/catalog.ts";
import { ProviderFailure, ProviderRejection } from "../catalog/provider_errors.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { Clock } from "../platform/clock.ts";
import { newSpanId, type SpanFacts, type Trace, traceparentOf } from "../platform/tracing.ts";
import { RequestRecord } from "./request_record.ts";

/**
 * The spans of one request, made from its record when it has ended: `admission` (everything before the reserve), `reserve`, one `provider`
 * for each route that was tried, `relay` for a stream, and `settle` or `release`; all are children of the request's span.
 */

/** How a request ended. */
export type RequestEnd = {
  /** As in `POST /v1/chat/completions`. */
  endpoint: string;
  status: number;
  /** "" if it was not refused. */
  refusal: string;
  startedMs: number;
  endedMs: number;
};

/** The spans of a request. `of` is its record, or only its facts if it did not reach the gateway. */
export function spansOf(trace: Trace, of: RequestRecord | RequestFacts, end: RequestEnd): SpanFacts[] {
  const { startedMs, endedMs } = end;
  const spans: SpanFacts[] = [requestSpan(trace, of, end)];
  if (!(of instanceof RequestRecord)) return spans;
  const add = (name: string, fromMs: number, toMs: number, more: Partial<SpanFacts> = {}) => {
    // A step without an end of its own ended with the request.
    if (fromMs > 0) spans.push({ ...partOf(trace, name), startedMs: fromMs, endedMs: toMs || endedMs, ...more });
  };
  if (of.reserveStartedMs > 0) add("admission", startedMs, of.reserveStartedMs);
  add("reserve", of.reserveStartedMs, of.reservedMs || of.reserveRefusedMs, {
    attributes: { "tollgate.held": of.isReserved },
  });
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
    add("relay", of.answeredMs, of.settleStartedMs || of.releaseStartedMs, {
      isFailure: of.end === "provider_broke_off",
      attributes: { "tollgate.end": of.end || undefined, "tollgate.bytes_out": of.bytesOut },
    });
  }
  add("settle", of.settleStartedMs, of.settledMs);
  add("release", of.releaseStartedMs, of.releasedMs);
  return spans;
}

/**
 * Calls a provider's route and, if the request is traced, records what its span will say. `call` is given the `traceparent` for the
 * provider.
 */
export function traced<T>(
  { trace }: RequestRecord,
  route: Route,
  clock: Pick<Clock, "nowMs">,
  call: Call<T>,
): Promise<T> {
  return trace === undefined ? call(undefined) : recorded(trace, route, clock, call);
}

type Call<T> = (traceparent: string | undefined) => Promise<T>;

async function recorded<T>(trace: Trace, route: Route, clock: Pick<Clock, "nowMs">, call: Call<T>): Promise<T> {
  const { id: routeId, providerName, upstreamModel } = route;
  const [spanId, startedMs] = [newSpanId(), clock.nowMs()];
  const providerCall = { spanId, routeId, providerName, upstreamModel, startedMs, endedMs: 0, failure: "", status: 0 };
  trace.calls.push(providerCall);
  try {
    return await call(traceparentOf(trace, spanId));
  } catch (thrown) {
    const known = thrown instanceof ProviderFailure || thrown instanceof ProviderRejection;
    providerCall.failure = thrown instanceof ProviderFailure ? thrown.kind : known ? "rejected" : "ended_by_us";
    providerCall.status = (known && thrown.status) || 0;
    throw thrown;
  } finally {
    providerCall.endedMs = clock.nowMs();
  }
}

function requestSpan(trace: Trace, of: RequestRecord | RequestFacts, end: RequestEnd): SpanFacts {
  const { endpoint, status, refusal, startedMs, endedMs } = end;
  const record = of instanceof RequestRecord ? of : undefined;
  const [method, path] = endpoint.split(" ");
  return {
    name: endpoint,
    kind: "server",
    spanId: trace.spanId,
    parentId: trace.parentId,
    startedMs,
    endedMs,
    isFailure: status >= 500 || record?.end === "provider_broke_off",
    attributes: {
      "http.request.method": path === undefined ? undefined : method,
      "http.route": path,
      "http.response.status_code": status,
      "error.type": refusal || undefined,
      "tollgate.request_id": of.requestId,
      "tollgate.account_id": of.accountId,
      "tollgate.key_id": record?.keyId || undefined,
      "gen_ai.request.model": record?.modelId || undefined,
      "tollgate.stream": record && record.kind === "stream",
      "tollgate.end": record?.end || undefined,
      "tollgate.bytes_out": record?.bytesOut || undefined,
    },
  };
}

function partOf(trace: Trace, name: string): Omit<SpanFacts, "startedMs" | "endedMs"> {
  return { name, kind: "internal", spanId: newSpanId(), parentId: trace.spanId, isFailure: false, attributes: {} };
}
