import { modelComponent } from "../catalog/answer_counts.ts";
import type { AnswerSums } from "../catalog/answer_sums.ts";
import type { ErrorCode } from "../errors.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { Log, RequestLine } from "../platform/log.ts";
import { type Metrics, STREAM_ENDS, type StreamEnd } from "../platform/metrics.ts";
import type { Tracing } from "../platform/tracing.ts";
import { RequestRecord } from "./request_record.ts";
import { type RequestEnd, spansOf } from "./trace_spans.ts";

/**
 * Reports every request when it has ended: in metrics, in one log line and, if tracing is on, in spans. While the request runs, its
 * steps only write to its record; the reporting happens after the client has its answer.
 */

/** The endpoint of a request, as in `POST /v1/chat/completions`, or one word for every other path. */
export type Endpoint = {
  name: string;
  /** It belongs to the API of the gateway or the panel: its requests are logged. */
  isApi: boolean;
};

/** Status in metrics and logs of a request whose client left before its answer. No client sees it. */
export const CLIENT_LEFT = 499;

export type Telemetry = {
  /** The request has its response. If that is a stream, it has only started, and is reported when it is over. */
  answered(endpoint: Endpoint, facts: RequestFacts, status: number): void;
  /** A request whose headers were sent while it waited has its answer, or has failed. It is reported as if it were answered now. */
  waited(record: RequestRecord, status: number): void;
  /** The last byte of a stream was handed over, and its hold has ended. */
  streamOver(record: RequestRecord, bytesOut: number): void;
};

type TelemetryOptions = {
  metrics: Pick<Metrics, "ended" | "firstByte" | "streamEnded" | "providerAnswered">;
  log: Pick<Log, "request">;
  answerSums: Pick<AnswerSums, "note">;
  /** Fraction of requests that are logged (0 to 1); 5xx always are. */
  logged: number;
  /** Undefined if tracing is off. */
  tracing?: Pick<Tracing, "end"> | undefined;
  nowMs: () => number;
  /** As Math.random. */
  random: () => number;
};

/** Makes the replica's telemetry. */
export function createTelemetry(options: TelemetryOptions): Telemetry {
  const { metrics, log, answerSums, logged, tracing, nowMs, random } = options;
  const isSampled = () => logged === 1 || (logged > 0 && random() < logged);

  function endSpans(of: RequestRecord | RequestFacts, end: RequestEnd): void {
    const { trace } = of;
    if (trace !== undefined) tracing?.end(trace, () => spansOf(trace, of, end));
  }

  /** Reports a stream, once its response has started and it is over, in whichever order. */
  function reportStream(record: RequestRecord, start: NonNullable<RequestRecord["streamStart"]>): void {
    const { endpoint, startedMs, firstByteMs } = start;
    const endedMs = nowMs();
    const totalMs = endedMs - startedMs;
    metrics.ended(endpoint, 200, "");
    const end = streamEndOf(record);
    metrics.streamEnded(end, totalMs);
    countAnswer(answerSums, { endpoint, modelId: record.modelId, failure: STREAM_FAILURES[end] });
    if (record.end === "provider_broke_off" || isSampled())
      log.request(lineOf(endpoint, record, { status: 200, refusal: "", totalMs, firstByteMs }));
    endSpans(record, { endpoint, status: 200, refusal: "", startedMs, endedMs });
  }

  function report({ name: endpoint, isApi }: Endpoint, facts: RequestFacts, status: number): void {
    const { refusal, startedMs } = facts;
    const record = recordOf(facts);
    const endedMs = nowMs();
    const totalMs = endedMs - startedMs;
    // With the status 200 a request can only have failed after it had waited.
    const hasFailed = status >= 500 || (status === 200 && refusal !== "");
    if (record !== undefined && status === 200 && !hasFailed) {
      if (record.isReserved) metrics.firstByte(record.kind, totalMs);
      if (record.answeredMs > 0) metrics.providerAnswered(record.kind, record.answeredMs - record.dispatchedMs);
      if (record.kind === "stream" && record.isReserved) {
        record.streamStart = { endpoint, startedMs, firstByteMs: totalMs };
        if (record.isStreamOver) reportStream(record, record.streamStart);
        return;
      }
    }
    metrics.ended(endpoint, status, refusal);
    if (!isApi) return;
    const failure = hasFailed ? refusal : status === 200 ? "" : null;
    countAnswer(answerSums, { endpoint, modelId: record?.modelId ?? "", failure });
    if (hasFailed || isSampled())
      log.request(lineOf(endpoint, record ?? facts, { status, refusal, totalMs, firstByteMs: totalMs }));
    endSpans(record ?? facts, { endpoint, status, refusal, startedMs, endedMs });
  }

  return {
    answered(endpoint, facts, status) {
      const wait = recordOf(facts)?.wait;
      if (wait === undefined) report(endpoint, facts, status);
      else if (wait.status !== undefined) report(endpoint, facts, wait.status);
      else wait.report = (ended) => report(endpoint, facts, ended);
    },

    waited({ wait }, status) {
      if (wait === undefined) return;
      wait.status = status;
      wait.report?.(status);
      wait.report = undefined;
    },

    streamOver(record, bytesOut) {
      record.bytesOut = bytesOut;
      record.isStreamOver = true;
      if (record.streamStart) reportStream(record, record.streamStart);
    },
  };
}

/** What the end of a stream was for its client: "" an answer, a code as of a refusal, or null: the client did not wait for it. */
const STREAM_FAILURES: Readonly<Record<StreamEnd, ErrorCode | "" | null>> = {
  complete: "",
  client_left: null,
  provider_broke_off: "provider_unavailable",
  timed_out: "provider_unavailable",
  ended_by_us: "service_unavailable",
  failed: "internal_error",
};
/** Failures of the service itself. */
const OWN_FAILURES: readonly string[] = ["service_unavailable", "internal_error"] satisfies ErrorCode[];

type Answer = { endpoint: string; modelId: string; failure: string | null };

/**
 * Counts an answered or failed request for its model, and for the API or the panel; what the client is to blame for is not counted. A
 * provider that failed is no failure of the API. Source: STA-1.
 */
function countAnswer(answerSums: Pick<AnswerSums, "note">, { endpoint, modelId, failure }: Answer): void {
  if (failure === null) return;
  const isOwn = OWN_FAILURES.includes(failure);
  if (failure !== "" && !isOwn && failure !== "provider_unavailable") return;
  if (modelId !== "") answerSums.note(modelComponent(modelId), failure === "");
  answerSums.note(endpoint.includes(" /api/panel/") ? "panel" : "api", !isOwn);
}

function recordOf({ record }: RequestFacts): RequestRecord | undefined {
  return record instanceof RequestRecord ? record : undefined;
}

/** "failed" if the end of the hold could not be written to the ledger. */
function streamEndOf({ end }: RequestRecord): StreamEnd {
  return STREAM_ENDS.find((known) => known === end) ?? "failed";
}

type LineEnd = Pick<RequestLine, "status" | "refusal" | "totalMs"> & { firstByteMs: number };

function lineOf(
  endpoint: string,
  of: RequestRecord | RequestFacts,
  { status, refusal, totalMs, firstByteMs }: LineEnd,
): RequestLine {
  const record = of instanceof RequestRecord ? of : undefined;
  const { dispatchedMs = 0, answeredMs = 0, settleStartedMs = 0 } = record ?? {};
  // The provider of a stream works until its end, which is when settling starts.
  const providerEndMs = record?.kind === "stream" && settleStartedMs > 0 ? settleStartedMs : answeredMs;
  return {
    requestId: of.requestId,
    accountId: of.accountId,
    keyId: record?.keyId || undefined,
    keyPrefix: record?.keyPrefix || undefined,
    model: record?.modelId || undefined,
    route: endpoint,
    status,
    refusal: refusal || undefined,
    stream: record && record.kind === "stream",
    provider: record?.route?.providerName,
    routeId: record?.route?.id,
    end: record?.end || undefined,
    totalMs: tenths(totalMs),
    reserveMs: record && between(record.reserveStartedMs, record.reservedMs),
    firstByteMs: tenths(firstByteMs),
    providerMs: between(dispatchedMs, providerEndMs),
    settleMs: record && between(settleStartedMs, record.settledMs),
    bytesOut: record?.bytesOut || undefined,
  };
}

/** Undefined if the request did not reach one of the two times. */
function between(fromMs: number, toMs: number): number | undefined {
  return fromMs > 0 && toMs > 0 ? tenths(toMs - fromMs) : undefined;
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}
