import type { Log, RequestLine } from "../platform/log.ts";
import type { Metrics, StreamEnd } from "../platform/metrics.ts";
import type { RequestFacts, Trail } from "../platform/request_facts.ts";
import type { Tracing } from "../platform/tracing.ts";
import { type RequestEnd, spansOf } from "./trace_spans.ts";

/**
 * The end of every request: counted, timed, and told in one line of the log and, where traces are made, in its spans. What happens
 * on its way only leaves its marks on the trail; here, past the client's wait, they become metrics, a line and spans.
 */

/** Where a request came in: one of the app's routes, as in `POST /v1/chat/completions`, or one word for all others. */
export type RouteName = {
  name: string;
  /** Of the gateway's API or of the panel's: it has a line in the log. */
  isApi: boolean;
};

export type Sight = {
  /** The request has its answer. That of a stream has only begun: it is told when it is over. */
  answered(route: RouteName, facts: RequestFacts, status: number): void;
  /** The last byte of a stream was handed over, and its hold has ended. */
  streamOver(trail: Trail, bytesOut: number): void;
};

type SightOptions = {
  metrics: Pick<Metrics, "ended" | "firstByte" | "streamEnded" | "providerAnswered">;
  log: Pick<Log, "request">;
  /** Of the requests with a status below 500, so large a share has a line: from 0 to 1. */
  logged: number;
  /** Undefined: no traces are made. */
  tracing?: Pick<Tracing, "end"> | undefined;
  nowMs: () => number;
  /** From 0 up to 1, as Math.random. */
  random: () => number;
};

/** The beginning of a request's trail. */
export function newTrail(requestId: string, host: string, whose: { accountId: number; keyId: number }): Trail {
  return {
    requestId,
    accountId: whose.accountId,
    keyId: whose.keyId,
    keyPrefix: "",
    modelId: "",
    host,
    held: false,
    settled: false,
    kind: "json",
    route: undefined,
    askedMs: 0,
    heldMs: 0,
    refusedMs: 0,
    dispatchedMs: 0,
    answeredMs: 0,
    settlingMs: 0,
    settledMs: 0,
    releasingMs: 0,
    releasedMs: 0,
    end: "",
    bytesOut: 0,
    begun: undefined,
    over: false,
    trace: undefined,
  };
}

/** Makes the replica's sight. */
export function createSight({ metrics, log, logged, tracing, nowMs, random }: SightOptions): Sight {
  const isSampled = () => logged === 1 || (logged > 0 && random() < logged);

  function tellSpans(of: Trail | RequestFacts, end: RequestEnd): void {
    const { trace } = of;
    if (trace !== undefined) tracing?.end(trace, () => spansOf(trace, of, end));
  }

  /** Both moments of a stream have come: its answer has begun, and it is over. */
  function tellStream(trail: Trail, begun: NonNullable<Trail["begun"]>): void {
    const { route, startedMs } = begun;
    const endedMs = nowMs();
    const totalMs = endedMs - startedMs;
    metrics.ended(route, 200, "");
    metrics.streamEnded(streamEndOf(trail), totalMs);
    if (trail.end === "provider_broke_off" || isSampled())
      log.request(lineOf(route, trail, { status: 200, refusal: "", totalMs, firstByteMs: begun.firstByteMs }));
    tellSpans(trail, { route, status: 200, refusal: "", startedMs, endedMs });
  }

  return {
    answered({ name, isApi }, facts, status) {
      const { trail, refusal } = facts;
      const endedMs = nowMs();
      const totalMs = endedMs - facts.startedMs;
      if (trail !== undefined && status === 200) {
        if (trail.held) metrics.firstByte(trail.kind, totalMs);
        if (trail.answeredMs > 0) metrics.providerAnswered(trail.kind, trail.answeredMs - trail.dispatchedMs);
        if (trail.kind === "stream" && trail.held) {
          trail.begun = { route: name, startedMs: facts.startedMs, firstByteMs: totalMs };
          if (trail.over) tellStream(trail, trail.begun);
          return;
        }
      }
      metrics.ended(name, status, refusal);
      if (!isApi) return;
      if (status >= 500 || isSampled())
        log.request(lineOf(name, trail ?? facts, { status, refusal, totalMs, firstByteMs: totalMs }));
      tellSpans(trail ?? facts, { route: name, status, refusal, startedMs: facts.startedMs, endedMs });
    },

    streamOver(trail, bytesOut) {
      trail.bytesOut = bytesOut;
      trail.over = true;
      if (trail.begun) tellStream(trail, trail.begun);
    },
  };
}

/** A stream that the ledger was not told of has no end. */
function streamEndOf({ end }: Trail): StreamEnd {
  return end === "complete" || end === "client_left" || end === "provider_broke_off" || end === "ended_by_us"
    ? end
    : "failed";
}

type Ending = Pick<RequestLine, "status" | "refusal" | "totalMs"> & { firstByteMs: number };

function lineOf(
  route: string,
  of: Trail | RequestFacts,
  { status, refusal, totalMs, firstByteMs }: Ending,
): RequestLine {
  const trail = "kind" in of ? of : undefined;
  const { dispatchedMs = 0, answeredMs = 0, settlingMs = 0 } = trail ?? {};
  // A stream's provider is at work until the end; the ledger is told at once.
  const providerEndMs = trail?.kind === "stream" && settlingMs > 0 ? settlingMs : answeredMs;
  return {
    requestId: of.requestId,
    accountId: of.accountId,
    keyId: trail?.keyId || undefined,
    keyPrefix: trail?.keyPrefix || undefined,
    model: trail?.modelId || undefined,
    route,
    status,
    refusal: refusal || undefined,
    stream: trail && trail.kind === "stream",
    provider: trail?.route?.providerName,
    routeId: trail?.route?.id,
    end: trail?.end || undefined,
    totalMs: tenths(totalMs),
    reserveMs: trail && between(trail.askedMs, trail.heldMs),
    firstByteMs: tenths(firstByteMs),
    providerMs: between(dispatchedMs, providerEndMs),
    settleMs: trail && between(settlingMs, trail.settledMs),
    bytesOut: trail?.bytesOut || undefined,
  };
}

/** Undefined where one of the moments did not come. */
function between(fromMs: number, toMs: number): number | undefined {
  return fromMs > 0 && toMs > 0 ? tenths(toMs - fromMs) : undefined;
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}
