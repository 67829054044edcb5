import { randomBytes } from "node:crypto";
import type { ReadableSpan, SpanExporter } from "@opentelemetry/sdk-trace";
import type { Config } from "../config.ts";
import type { Log } from "./log.ts";

/**
 * OpenTelemetry traces, if a collector is configured. A request carries only ids and timestamps; its spans are created when it has
 * ended, and sent in the background. The only file that uses the library, which is loaded only if needed.
 */

/** Spans that wait to be sent; further ones are dropped. */
const QUEUE_SPANS_MAX = 4096;
const BATCH_SPANS_MAX = 512;
const BATCH_EVERY_MS = 1_000;
/** Time limit of a batch, with all attempts. */
const SEND_MS_MAX = 5_000;
/** The library's own time limit, longer than ours. */
const GIVE_UP_MS = 2 * SEND_MS_MAX;
/** At shutdown all waiting batches are sent concurrently: a full queue, and the batch in progress. */
const SENDS_AT_ONCE_MAX = QUEUE_SPANS_MAX / BATCH_SPANS_MAX + 1;
const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;
/** The hex digits of a trace id that the standard defines as random; sampling compares them with the configured fraction. */
const SHARE_DIGITS = 14;

/** The trace context of a request. */
export type Trace = {
  traceId: string;
  /** The request's own span. */
  spanId: string;
  /** The client's span; "": none was sent. */
  parentId: string;
  sampled: boolean;
  calls: ProviderCall[];
};

/** One attempt at a provider. Times are on the monotonic clock, in ms. */
export type ProviderCall = {
  spanId: string;
  routeId: number;
  providerName: string;
  upstreamModel: string;
  startedMs: number;
  /** 0: not ended. */
  endedMs: number;
  /** The kind of failure; "": it did not fail. */
  failure: string;
  /** The HTTP status of a failed answer; 0: no answer. */
  status: number;
};

/** Contains no client's text, as in the log. Times are on the monotonic clock, in ms. */
export type SpanFacts = {
  name: string;
  kind: "server" | "client" | "internal";
  spanId: string;
  parentId: string;
  startedMs: number;
  endedMs: number;
  isFailure: boolean;
  attributes: Record<string, string | number | boolean | undefined>;
};

export type Tracing = {
  /** Begins the trace of a request with this `traceparent` header. */
  begin(traceparent: string | null): Trace;
  /** Ends the trace. `spans` is called only if the trace is sampled. */
  end(trace: Trace, spans: () => SpanFacts[]): void;
  /** Sends the waiting spans. Takes as long as the collector does. */
  close(): Promise<void>;
};

type TracingOptions = {
  config: Pick<Config, "traces">;
  version: string;
  clock: { nowMs(): number; unixMs(): number };
  log: Pick<Log, "info" | "warn">;
};

/** Loads the library and opens the replica's tracing; undefined: no collector is configured. */
export async function openTracing({ config, version, clock, log }: TracingOptions): Promise<Tracing | undefined> {
  const { traces } = config;
  if (traces === undefined) return undefined;
  const [{ SpanKind, SpanStatusCode }, { BatchSpanProcessor }, { OTLPTraceExporter }, { resourceFromAttributes }] =
    await Promise.all([
      import("@opentelemetry/api"),
      import("@opentelemetry/sdk-trace"),
      import("@opentelemetry/exporter-trace-otlp-http"),
      import("@opentelemetry/resources"),
    ]);
  const exporter = new OTLPTraceExporter({
    url: traces.url,
    headers: traces.headers,
    timeoutMillis: SEND_MS_MAX,
    concurrencyLimit: SENDS_AT_ONCE_MAX,
  });
  const processor = new BatchSpanProcessor({
    exporter: telling(exporter, log),
    maxQueueSize: QUEUE_SPANS_MAX,
    maxExportBatchSize: BATCH_SPANS_MAX,
    scheduledDelayMillis: BATCH_EVERY_MS,
    exportTimeoutMillis: GIVE_UP_MS,
  });
  const resource = resourceFromAttributes({ "service.name": traces.serviceName, "service.version": version });
  const kinds = { server: SpanKind.SERVER, client: SpanKind.CLIENT, internal: SpanKind.INTERNAL };

  /** An ended span in the library's form. The library's own spans cannot be given an id in advance. */
  function ended(traceId: string, span: SpanFacts, unixOffsetMs: number): ReadableSpan {
    const { name, kind, spanId, parentId, startedMs, endedMs, isFailure, attributes } = span;
    const contextOf = (id: string) => ({ traceId, spanId: id, traceFlags: 1 });
    return {
      name,
      kind: kinds[kind],
      spanContext: () => contextOf(spanId),
      ...(parentId !== "" && { parentSpanContext: { ...contextOf(parentId), isRemote: kind === "server" } }),
      startTime: parted(startedMs + unixOffsetMs),
      endTime: parted(endedMs + unixOffsetMs),
      duration: parted(endedMs - startedMs),
      ended: true,
      status: { code: isFailure ? SpanStatusCode.ERROR : SpanStatusCode.UNSET },
      attributes: Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined)),
      links: [],
      events: [],
      resource,
      instrumentationScope: { name: "tollgate", version },
      droppedAttributesCount: 0,
      droppedEventsCount: 0,
      droppedLinksCount: 0,
    };
  }

  return {
    begin: (traceparent) => newTrace(traceparent, traces.share),
    end({ traceId, sampled }, spans) {
      if (!sampled) return;
      // One offset for all spans, so that a clock adjustment does not shift them against each other.
      const unixOffsetMs = clock.unixMs() - clock.nowMs();
      for (const span of spans()) processor.onEnd(ended(traceId, span, unixOffsetMs));
    },
    close: () => processor.shutdown(),
  };
}

/** The client's trace, or a new one, of which the fraction `share` is sampled. Source: W3C Trace Context. */
export function newTrace(traceparent: string | null, share: number): Trace {
  const given = traceparent === null ? undefined : readTraceparent(traceparent);
  const traceId = given?.traceId ?? randomBytes(TRACE_ID_BYTES).toString("hex");
  return {
    traceId,
    spanId: newSpanId(),
    parentId: given?.parentId ?? "",
    sampled: given?.sampled ?? Number.parseInt(traceId.slice(-SHARE_DIGITS), 16) < share * 16 ** SHARE_DIGITS,
    calls: [],
  };
}

/** The `traceparent` header of a call that belongs to a span. Source: W3C Trace Context. */
export function traceparentOf({ traceId, sampled }: Trace, spanId: string): string {
  return `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`;
}

export function newSpanId(): string {
  return randomBytes(SPAN_ID_BYTES).toString("hex");
}

/** undefined: invalid. Later versions may append further fields. */
function readTraceparent(text: string): Pick<Trace, "traceId" | "parentId" | "sampled"> | undefined {
  const match = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/.exec(text.trim());
  const [, version, traceId = "", parentId = "", flags = "", more] = match ?? [];
  if (match === null || version === "ff" || (version === "00" && more !== undefined)) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(parentId)) return undefined;
  return { traceId, parentId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

/** Seconds and nanoseconds, to the microsecond. */
function parted(ms: number): [number, number] {
  const us = Math.round(ms * 1000);
  return [Math.floor(us / 1_000_000), (us % 1_000_000) * 1000];
}

/** The exporter, which logs once when the collector is lost and once when it is back. */
function telling(exporter: SpanExporter, log: TracingOptions["log"]): SpanExporter {
  let lost = 0;
  return {
    export(spans, done) {
      exporter.export(spans, ({ code, error }) => {
        if (code !== 0) {
          if (lost === 0)
            log.warn({ err: error }, "the trace collector does not accept spans; they are dropped until it does");
          lost += spans.length;
        } else if (lost > 0) {
          log.info({ lost }, "the trace collector accepts spans again");
          lost = 0;
        }
        // Reports success, since the library would log every failed batch.
        done({ code: 0 });
      });
    },
    shutdown: () => exporter.shutdown(),
  };
}
