import { randomBytes } from "node:crypto";
import type { ReadableSpan, SpanExporter } from "@opentelemetry/sdk-trace";
import type { Config } from "../config.ts";
import type { Log } from "./log.ts";

/**
 * Traces for OpenTelemetry, where a collector is configured. A request only carries ids and leaves its moments; its spans are made
 * when it has ended, and sent behind everybody's back. The one file that names the library, which is loaded here and only then.
 */

/** Spans that wait to be sent; more are lost. */
const QUEUE_SPANS_MAX = 4096;
const BATCH_SPANS_MAX = 512;
const BATCH_EVERY_MS = 1_000;
/** One batch, from its first attempt to its last. */
const SEND_MS_MAX = 5_000;
/** The library's own watch over a batch, past ours. */
const GIVE_UP_MS = 2 * SEND_MS_MAX;
/** At the end of the process what waits is sent at once: a whole queue, and the batch that was under way. */
const SENDS_AT_ONCE_MAX = QUEUE_SPANS_MAX / BATCH_SPANS_MAX + 1;
const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;
/** The digits of a trace id that are random by the standard, as a share of all they could be. */
const SHARE_DIGITS = 14;

/** What a request carries of its trace. */
export type Trace = {
  traceId: string;
  /** Of the request's own span. */
  spanId: string;
  /** The client's span; "": it named none. */
  parentId: string;
  sampled: boolean;
  calls: ProviderCall[];
};

/** One attempt at a provider. Moments are of the monotonic clock, in ms. */
export type ProviderCall = {
  spanId: string;
  routeId: number;
  providerName: string;
  upstreamModel: string;
  startedMs: number;
  /** 0: it has not ended. */
  endedMs: number;
  /** Why it failed, in one of our words; "": it did not. */
  failure: string;
  /** Of the answer that it failed with; 0: there was none. */
  status: number;
};

/** Nothing in it is a client's text, as in the log. Moments are of the monotonic clock, in ms. */
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
  /** A request comes in, with this `traceparent`. */
  begin(traceparent: string | null): Trace;
  /** It has ended. `spans` is asked only where the trace is sampled. */
  end(trace: Trace, spans: () => SpanFacts[]): void;
  /** Sends what waits. Takes as long as the collector does. */
  close(): Promise<void>;
};

type TracingOptions = {
  config: Pick<Config, "traces">;
  version: string;
  clock: { nowMs(): number; unixMs(): number };
  log: Pick<Log, "info" | "warn">;
};

/** Loads the library and makes the replica's tracing; undefined where no collector is configured. */
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

  /** A span as the library's own would be when it has ended: that one cannot be given its id beforehand. */
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
      // Of one moment for all of them, so that a clock that is set meanwhile does not tear a request apart.
      const unixOffsetMs = clock.unixMs() - clock.nowMs();
      for (const span of spans()) processor.onEnd(ended(traceId, span, unixOffsetMs));
    },
    close: () => processor.shutdown(),
  };
}

/** The client's trace, if it names one, and else a new one, of which `share` are sampled. Source: W3C Trace Context. */
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

/** What tells the other side of a call which span it belongs to. Source: W3C Trace Context. */
export function traceparentOf({ traceId, sampled }: Trace, spanId: string): string {
  return `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`;
}

export function newSpanId(): string {
  return randomBytes(SPAN_ID_BYTES).toString("hex");
}

/** Undefined: it is none. A later version may say more behind what this one says. */
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

/** The exporter, with one line in the log when the collector is lost, and one when it is back. */
function telling(exporter: SpanExporter, log: TracingOptions["log"]): SpanExporter {
  let lost = 0;
  return {
    export(spans, done) {
      exporter.export(spans, ({ code, error }) => {
        if (code !== 0) {
          if (lost === 0) log.warn({ err: error }, "the collector takes no traces: spans are lost until it does");
          lost += spans.length;
        } else if (lost > 0) {
          log.info({ lost }, "the collector takes traces again");
          lost = 0;
        }
        // It is told: the library would speak of it again, batch for batch.
        done({ code: 0 });
      });
    },
    shutdown: () => exporter.shutdown(),
  };
}
