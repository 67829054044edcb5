import type { Host } from "../http/host.ts";
import { factsOf } from "../http/request_facts.ts";
import type { AnswerKind } from "../platform/metrics.ts";
import type { LimitedRequest } from "../platform/rate_limit.ts";
import type { Trace } from "../platform/tracing.ts";

/**
 * What telemetry keeps of one request. The steps of the request write to it; when the request has ended, `telemetry.ts` turns it
 * into metrics, a log line and spans. Nothing is decided by it.
 *
 * Times are of the monotonic clock, in ms; 0 means that the request has not reached that point.
 */
export class RequestRecord {
  readonly requestId: string;
  readonly host: string;
  /** 0 if unknown. */
  accountId: number;
  /** 0 if unknown. */
  keyId: number;
  /** The part of the key that the panel shows; "" if the key is unknown, or the panel chose it. */
  keyPrefix = "";
  /** "" until the request has named a model of the catalog. */
  modelId = "";
  kind: AnswerKind = "json";
  /** The last route that was tried: the one that served, if any did. */
  route: { readonly id: number; readonly providerName: string } | undefined;
  /** The ledger granted a hold. */
  isReserved = false;
  reserveStartedMs = 0;
  reservedMs = 0;
  reserveRefusedMs = 0;
  /** The request arrived. */
  arrivedMs = 0;
  /** The first request to a provider was sent. */
  dispatchedMs = 0;
  /** A provider answered: with the whole answer, or with the first event of a stream. */
  answeredMs = 0;
  settleStartedMs = 0;
  settledMs = 0;
  releaseStartedMs = 0;
  releasedMs = 0;
  /** How the request ended, once its hold has: mostly the ledger's `EndReason`. */
  end = "";
  /** Bytes of the answer that were handed to the client's connection. */
  bytesOut = 0;
  /** Set when the response of a stream has started: what its log line will need. */
  streamStart: { endpoint: string; startedMs: number; firstByteMs: number } | undefined;
  /**
   * Set when the headers were sent while the request still waited for a provider. `status`: with what it ended the wait; undefined while
   * it waits. `report` then reports the request.
   */
  wait: { status: number | undefined; report: ((status: number) => void) | undefined } | undefined;
  /** The stream is over, and its hold has ended. */
  isStreamOver = false;
  /** What a metered request counts towards: its answer's headers say how much is left. */
  limits: LimitedRequest | undefined;
  /** The request's trace, which is passed on to its provider; undefined if tracing is off. */
  trace: Trace | undefined;

  constructor(requestId: string, host: string, { accountId = 0, keyId = 0 }: { accountId?: number; keyId?: number }) {
    this.requestId = requestId;
    this.host = host;
    this.accountId = accountId;
    this.keyId = keyId;
  }
}

/** Starts the record of a request, and stores it with the request's facts. `known`: whose request it is, as far as known. */
export function startRecord(
  request: Request,
  host: Host,
  known: { accountId?: number; keyId?: number } = {},
): RequestRecord {
  const facts = factsOf(request);
  const record = new RequestRecord(facts.requestId, host.name, known);
  record.trace = facts.trace;
  record.arrivedMs = facts.startedMs;
  facts.record = record;
  return record;
}
