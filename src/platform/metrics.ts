import process from "node:process";
import packageFacts from "../../package.json" with { type: "json" };
import { UNPRICED_PARTS } from "../price_parts.ts";
import { JOB_NAMES } from "./every.ts";
import { createHistogram, type Histogram } from "./histogram.ts";
import { runtimeName } from "./runtime.ts";

/**
 * What one replica exports to Prometheus. Each limit exports its usage (a gauge) and a rejection counter; each duration is a histogram.
 * Label values are closed lists: no label contains a tenant, key, host, model or anything else that a client can choose. The table is
 * in docs/operations.md.
 */

const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";
/** Upper bounds of buckets, in seconds: for the ledger, and for models. */
const LEDGER_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
const ANSWER_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
/** Rows of a batch, at most 512. */
const BATCH_ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/** Series of requests_total. There are about a hundred endpoints, each with a few outcomes. */
const REQUEST_SERIES_MAX = 5_000;

/** The limit that rejected a request. `draining`: no limit; the replica is shutting down. */
const SHED_REASONS = [
  "full",
  "lag",
  "draining",
  "spool_full",
  "ledger_queue",
  "ledger_timeout",
  "rate",
  "rate_per_account",
  "rate_per_tenant",
  "rate_per_model",
  "tokens_per_key",
  "tokens_per_account",
  "tokens_per_model",
  "in_flight_per_key",
  "at_once_per_account",
  "at_once_per_model",
  "long_reads",
  "reads",
  "in_flight_per_account",
  "in_flight_per_tenant",
  "body_reads_full",
  "body_reads_per_account",
  "body_reads_per_tenant",
  "body_bytes_full",
  "body_bytes_per_account",
  "body_bytes_per_tenant",
  "answer_bytes_full",
  "answer_bytes_per_account",
  "answer_bytes_per_tenant",
  "image_files",
  "read_on_full",
  "read_on_per_account",
  "read_on_per_tenant",
  "losses_per_account",
  "losses_per_tenant",
  "asked_calls",
] as const;
export type ShedReason = (typeof SHED_REASONS)[number];

const VOUCHER_GUESSES = ["wrong", "refused"] as const;

/** The time limit that was exceeded. */
const TIME_LIMITS = [
  "body",
  "client_idle",
  "provider_connect",
  "provider_first_byte",
  "provider_idle",
  "provider_total",
  "rate_redis",
  "long_read",
] as const;
export type TimeLimit = (typeof TIME_LIMITS)[number];

/** How an attempt at a provider failed. `hung_up`: the connection was closed without an answer. */
export const PROVIDER_FAILURES = [
  "connect",
  "hung_up",
  "timeout",
  "cut",
  "address",
  "redirect",
  "encoded",
  "oversized",
  "no_memory",
  "not_json",
  "empty",
  "rate_limited",
  "too_large",
  "context_length",
  "credentials",
  "no_credit",
  "unknown_model",
  "unsupported",
  "status",
] as const;
export type FailureKind = (typeof PROVIDER_FAILURES)[number];

/** What a metered request asks for. */
const ANSWER_KINDS = ["json", "stream", "image", "embedding"] as const;
export type AnswerKind = (typeof ANSWER_KINDS)[number];
/** How a stream ended. `failed`: its end could not be told to the ledger. */
export const STREAM_ENDS = [
  "complete",
  "client_left",
  "provider_broke_off",
  "timed_out",
  "ended_by_us",
  "failed",
] as const;
export type StreamEnd = (typeof STREAM_ENDS)[number];
const HOLD_ENDS = ["settle", "release"] as const;
export type HoldEnd = (typeof HOLD_ENDS)[number];
/** The ledger's queues: rows of unlocked accounts, rows that wait for a lock, and rows that wait for a lock that is held for long. */
const LANES = ["free", "waiting", "held"] as const;
const CACHES = ["keys", "hosts", "brands", "sessions"] as const;
export type CacheName = (typeof CACHES)[number];
const CHANGES = ["account", "catalog", "session", "provider_key", "gap"] as const;
export type ChangeKind = (typeof CHANGES)[number];
/** What the operator bears: `accounts/losses.ts`. */
const LOSSES = ["provider_time", "shortfall", "tokens"] as const;
export type LossKind = (typeof LOSSES)[number];
const LOSS_HOLDERS = ["account", "tenant"] as const;
/** What became of a response that was to be stored: `gateway/responses/stored_responses.ts`. */
const STORED = ["stored", "too_large", "no_room", "failed"] as const;
export type StoredResult = (typeof STORED)[number];
const BREAKER_STATES = ["open", "half_open"] as const;
const MAIL_SERVERS = ["operator", "reseller"] as const;
const KEY_STATES = ["cooling", "quarantined"] as const;
const CAPS = [
  "in_flight_requests",
  "body_reads",
  "body_bytes",
  "answer_bytes",
  "ledger_queue_rows",
  "spool_bytes",
  "event_loop_lag_seconds",
  "pool_queries",
  "long_reads",
] as const;

type Family = { help: string; label?: readonly [name: string, values: readonly string[]] };
type HistogramFamily = Family & { bounds: readonly number[] };

const COUNTERS = {
  shed_requests_total: {
    help: "Requests rejected with 429 or 503 to protect other requests, by the limit that was reached.",
    label: ["reason", SHED_REASONS],
  },
  time_outs_total: {
    help: "Waits ended by a time limit, by the limit.",
    label: ["limit", TIME_LIMITS],
  },
  provider_failures_total: {
    help: "Failed attempts at a route, by kind. no_memory: ended by us, because it held most of the memory for answers. no_credit, credentials, unknown_model and too_large need the operator.",
    label: ["kind", PROVIDER_FAILURES],
  },
  overruns_total: { help: "Answers that cost more, or used more tokens of an allowance, than was reserved for them." },
  losses_total: {
    help: "Requests of which the operator bore something, by kind. provider_time: ended at a time limit, after a provider had begun to work. shortfall: cost more than could be charged. tokens: used more than their package had.",
    label: ["kind", LOSSES],
  },
  loss_amount_total: {
    help: "What the operator bore, by kind. provider_time: in milliseconds. shortfall: in nano-USD. tokens: in tokens.",
    label: ["kind", LOSSES],
  },
  voucher_guesses_total: {
    help: "Voucher codes that do not exist. wrong: looked up; refused: not looked up, because too many had been wrong.",
    label: ["kind", VOUCHER_GUESSES],
  },
  breaker_openings_total: { help: "How often the circuit breaker of a route opened after consecutive failures." },
  ledger_refusals_remembered_total: {
    help: "Requests refused without asking the ledger, because it had just refused an equal one.",
  },
  idempotent_replays_total: {
    help: "Requests answered with the stored answer of an earlier request with the same Idempotency-Key.",
  },
  responses_stored_total: {
    help: "Responses that were to be stored, by result. no_room: no memory for their input. failed: the database did not take them in time.",
    label: ["result", STORED],
  },
  settlements_spooled_total: {
    help: "Settlements and releases written to the spool because the database did not accept them.",
  },
  changes_total: {
    help: "Cache invalidations received, by what changed. gap: some may have been missed, so all caches were flushed.",
    label: ["kind", CHANGES],
  },
} as const satisfies Record<string, Family>;

const HISTOGRAMS = {
  first_byte_seconds: {
    help: "From receiving a metered request to the first byte of its answer. A JSON answer is sent in one piece.",
    label: ["kind", ANSWER_KINDS],
    bounds: ANSWER_SECONDS,
  },
  stream_seconds: {
    help: "From receiving a streaming request to the end of its stream, by how it ended.",
    label: ["end", STREAM_ENDS],
    bounds: ANSWER_SECONDS,
  },
  provider_seconds: {
    help: "From calling the provider to its complete answer, or to the first event of a stream. Includes failover.",
    label: ["kind", ANSWER_KINDS],
    bounds: ANSWER_SECONDS,
  },
  hold_seconds: { help: "Time of the ledger to reserve, or to refuse.", bounds: LEDGER_SECONDS },
  settle_seconds: {
    help: "Time of the ledger, or of the spool, to settle or release a hold.",
    label: ["kind", HOLD_ENDS],
    bounds: LEDGER_SECONDS,
  },
  ledger_batch_rows: {
    help: "Rows in a batch of the ledger, by lane.",
    label: ["lane", LANES],
    bounds: BATCH_ROWS,
  },
} as const satisfies Record<string, HistogramFamily>;

const REQUESTS: Family = {
  help: "Finished requests, by endpoint, HTTP status and error code. A stream is counted at its end.",
};
const BUILD: Family = { help: "Always 1; labels: release and runtime." };
const PROCESS = {
  process_resident_memory_bytes: { type: "gauge", help: "Resident memory." },
  process_heap_bytes: { type: "gauge", help: "JavaScript heap in use." },
  process_cpu_seconds_total: { type: "counter", help: "CPU time, user and system." },
  process_uptime_seconds: { type: "gauge", help: "Time since the process started." },
} as const;

/** Read at each scrape. */
const GAUGES = {
  in_flight_requests: { help: "Metered requests in flight, after their body was read. Limit: IN_FLIGHT_MAX." },
  body_reads: { help: "Request bodies being read. Limit: BODY_READS_MAX." },
  body_bytes: { help: "Bytes of request bodies, and of expected embeddings, in memory. Limit: BODY_MEMORY_MAX." },
  answer_bytes: {
    help: "Bytes of answers in memory that cannot be passed on yet, or were not read by their clients yet. Limit: ANSWER_MEMORY_MAX.",
  },
  open_streams: { help: "Requests in flight that are streams whose answer has begun." },
  streams_read_on: { help: "Open streams whose client has left, read to their end." },
  live_holds: { help: "Open holds of this replica." },
  expired_holds: {
    help: "Accounts with escrows of ended leases, at the last run of this replica's reaper; at most 500.",
  },
  ledger_queue_rows: { help: "Reserves and settlements waiting or in progress. Limit: LEDGER_QUEUE_MAX." },
  ledger_lane_rows: { help: "Reserves and settlements waiting, by lane.", label: ["lane", LANES] },
  spool_bytes: { help: "Bytes of settlements on disk, waiting for the database. Limit: SPOOL_BYTES_MAX." },
  spool_settlements: { help: "Settlements in the spool, including those that wait for the disk." },
  spool_aside_settlements: {
    help: "Settlements that the ledger rejected, in aside.jsonl of the spool's folder, or in the spool while that file cannot be written.",
  },
  spool_disk_free_bytes: { help: "Free bytes on the spool's disk; also 0 if unknown." },
  event_loop_lag_seconds: { help: "Lag of the event loop at its last tick. Limit: EVENT_LOOP_LAG_MAX_MS." },
  draining: { help: "1: the replica is shutting down." },
  ready: { help: "1: metered requests are accepted. 0: draining, the spool is full, or the database is unreachable." },
  database_up: { help: "1: the last heartbeat reached the database." },
  bus_up: { help: "1: invalidations of other replicas arrive through Redis. Also 1 without Redis." },
  redis_takes_writes: { help: "0: Redis refused the last write, because it is full or read-only. 1 without Redis." },
  pool_queries: { help: "Queries and transactions running on the pool, or waiting for it. Limit: DB_POOL_MAX." },
  long_reads: { help: "Lists, charts and files being read, on separate connections. Limited." },
  breakers: {
    help: "Circuit breakers of routes: open, or half-open (one request tries). Includes breakers of single accounts.",
    label: ["state", BREAKER_STATES],
  },
  provider_keys: {
    help: "Keys of providers that are not active: cooling (the provider asked for a pause), or quarantined (refused, or out of credit).",
    label: ["state", KEY_STATES],
  },
  losses_stopped: {
    help: "Accounts and tenants that are refused, because the losses of their hour have reached the bound.",
    label: ["of", LOSS_HOLDERS],
  },
  books_broken: { help: "Invariants that the last check of the books found violated." },
  books_uncounted: { help: "Invariants that the last check of the books had no time to check." },
  books_checked_timestamp_seconds: { help: "Time of the last check of the books by any replica; 0: not known yet." },
  messages_waiting: { help: "Mails and webhook calls of all replicas that wait to be sent." },
  messages_oldest_seconds: { help: "Age of the message that has waited longest; 0: none waits." },
  messages_failed: { help: "Mails and webhook calls of all replicas that failed for good in the last 24 hours." },
  mail_servers_down: {
    help: "Mail servers that do not answer: the operator's own, and resellers'. Their mails wait.",
    label: ["of", MAIL_SERVERS],
  },
  receipt_export_receipts: { help: "Receipts that the export has delivered, of all replicas; 0: none is configured." },
  receipt_export_oldest_seconds: {
    help: "How long the next receipt to export has been waiting; 0: none waits, or no export is configured.",
  },
  receipt_export_failures: { help: "Failed calls of the receipt export since its last success." },
  job_success_age_seconds: {
    help: "Time since the last run of a background job that succeeded, or since its start.",
    label: ["name", JOB_NAMES],
  },
  cap: { help: "Configured limit of the gauge with that name.", label: ["of", CAPS] },
} as const satisfies Record<string, Family>;

/** Counted elsewhere, and read at each scrape. */
const COUNTED = {
  cache_hits_total: { help: "Lookups answered from memory.", label: ["cache", CACHES] },
  cache_misses_total: { help: "Lookups that read the database.", label: ["cache", CACHES] },
  cache_drops_total: { help: "Cache entries removed by invalidations.", label: ["cache", CACHES] },
  job_runs_total: { help: "Runs of background jobs.", label: ["name", JOB_NAMES] },
  job_failures_total: { help: "Runs of background jobs that failed or took too long.", label: ["name", JOB_NAMES] },
  holds_reaped_total: { help: "Escrows of dead replicas that this replica's reaper returned." },
  unpriced_tokens_total: {
    help: "Tokens without a rate in the model's prices, by rate: reported by providers and paid by balances. Sum of all replicas.",
    label: ["kind", UNPRICED_PARTS],
  },
} as const satisfies Record<string, Family>;

type Read<F> = F extends { label: readonly [string, readonly (infer Value extends string)[]] }
  ? () => Readonly<Record<Value, number>>
  : () => number | Promise<number>;
type MetricType = "counter" | "gauge" | "histogram";
/** A metric's name and help. `labels`: the values of each label; null: the app's endpoints, its codes, or this release. */
export type MetricFacts = {
  name: string;
  type: MetricType;
  help: string;
  labels: Readonly<Record<string, readonly string[] | null>>;
};

/** Every metric, in the order of the table in docs/operations.md. */
export const METRICS: readonly MetricFacts[] = [
  factsOf("requests_total", "counter", REQUESTS, { route: null, code: null, refusal: null }),
  ...entries(HISTOGRAMS).map(([name, family]) => factsOf(name, "histogram", family)),
  ...entries(COUNTERS).map(([name, family]) => factsOf(name, "counter", family)),
  ...entries(COUNTED).map(([name, family]) => factsOf(name, "counter", family)),
  ...entries(GAUGES).map(([name, family]) => factsOf(name, "gauge", family)),
  ...Object.entries(PROCESS).map(([name, facts]) => ({ name, ...facts, labels: {} })),
  factsOf("build_info", "gauge", BUILD, { version: null, runtime: ["bun", "deno"] }),
];

function factsOf(
  name: string,
  type: MetricType,
  { help, label }: Family,
  labels: MetricFacts["labels"] = label ? { [label[0]]: label[1] } : {},
): MetricFacts {
  return { name: `tollgate_${name}`, type, help, labels };
}

/** Sources of the values that are read at each scrape. */
export type MetricSources = {
  readonly [Name in keyof typeof GAUGES]: Read<(typeof GAUGES)[Name]>;
} & { readonly [Name in keyof typeof COUNTED]: Read<(typeof COUNTED)[Name]> };

export type Metrics = {
  /** A request ended. `route` is an endpoint of the app, not the path that was sent; `refusal` is an error code or "". */
  ended(route: string, status: number, refusal: string): void;
  firstByte(kind: AnswerKind, ms: number): void;
  streamEnded(end: StreamEnd, ms: number): void;
  providerAnswered(kind: AnswerKind, ms: number): void;
  /** The ledger has granted or refused a reserve. */
  held(ms: number): void;
  /** A hold ended; `spooled`: written to disk for now. */
  holdEnded(end: HoldEnd, ms: number, spooled: boolean): void;
  batched(lane: (typeof LANES)[number], rows: number): void;
  shed(reason: ShedReason): void;
  timedOut(limit: TimeLimit): void;
  /** An answer cost more than was reserved for it. */
  overran(): void;
  /** The operator bore something of a request. */
  lost(kind: LossKind, amount: number): void;
  /** An attempt at a provider failed. */
  providerFailed(kind: FailureKind): void;
  /** A voucher code was not found, or not looked up after too many wrong ones. */
  voucherGuessed(kind: (typeof VOUCHER_GUESSES)[number]): void;
  /** The circuit breaker of a route opened. */
  breakerOpened(): void;
  /** A request was refused because the ledger had just refused an equal one. */
  refusalRemembered(): void;
  /** A request was answered with a stored answer. */
  replayed(): void;
  responseStored(result: StoredResult): void;
  changed(kind: ChangeKind): void;
  /** Sets the sources of the values read at each scrape. Call it once. */
  watch(sources: MetricSources): void;
  /** All metrics in Prometheus's text format. */
  text(): Promise<string>;
  /** Its media type. */
  readonly contentType: string;
};

/** Creates a replica's metrics. */
export function createMetrics(): Metrics {
  const counters = tallies(COUNTERS);
  const histograms = Object.fromEntries(
    Object.entries(HISTOGRAMS).map(([name, { bounds, ...family }]) => [name, histogramsOf(family, bounds)]),
  ) as Record<keyof typeof HISTOGRAMS, Record<string, Histogram>>;
  const requests = createRequestCounter();
  let sources: MetricSources | undefined;

  const count = (name: keyof typeof COUNTERS, value = "", amount = 1) => {
    const series = counters[name];
    series[value] = (series[value] ?? 0) + amount;
  };
  const observe = (name: keyof typeof HISTOGRAMS, value: string, measured: number) =>
    histograms[name][value]?.observe(measured);

  return {
    ended: requests.count,
    firstByte: (kind, ms) => observe("first_byte_seconds", kind, ms / 1000),
    streamEnded: (end, ms) => observe("stream_seconds", end, ms / 1000),
    providerAnswered: (kind, ms) => observe("provider_seconds", kind, ms / 1000),
    held: (ms) => observe("hold_seconds", "", ms / 1000),
    holdEnded(end, ms, spooled) {
      observe("settle_seconds", end, ms / 1000);
      if (spooled) count("settlements_spooled_total");
    },
    batched: (lane, rows) => observe("ledger_batch_rows", lane, rows),
    voucherGuessed: (kind) => count("voucher_guesses_total", kind),
    shed: (reason) => count("shed_requests_total", reason),
    timedOut: (limit) => count("time_outs_total", limit),
    overran: () => count("overruns_total"),
    lost(kind, amount) {
      count("losses_total", kind);
      count("loss_amount_total", kind, amount);
    },
    providerFailed: (kind) => count("provider_failures_total", kind),
    breakerOpened: () => count("breaker_openings_total"),
    refusalRemembered: () => count("ledger_refusals_remembered_total"),
    replayed: () => count("idempotent_replays_total"),
    responseStored: (result) => count("responses_stored_total", result),
    changed: (kind) => count("changes_total", kind),
    watch(named) {
      sources = named;
    },
    async text() {
      let out = requests.text() + processText();
      for (const [name, family] of entries(COUNTERS))
        out += headOf(name, family, "counter") + series(name, family, counters[name]);
      for (const [name, family] of entries(HISTOGRAMS)) {
        out += headOf(name, family, "histogram");
        for (const [value, histogram] of Object.entries(histograms[name]))
          out += histogram.text(`tollgate_${name}`, labelText(family, value));
      }
      for (const [name, family] of entries(GAUGES))
        if (sources) out += headOf(name, family, "gauge") + series(name, family, await sources[name]());
      for (const [name, family] of entries(COUNTED))
        if (sources) out += headOf(name, family, "counter") + series(name, family, await sources[name]());
      return out;
    },
    contentType: CONTENT_TYPE,
  };
}

/** Requests by endpoint and outcome. A series begins with its first request: most endpoints are the panel's and rarely used. */
function createRequestCounter() {
  const routes = new Map<string, Map<number | string, number>>();
  let series = 0;
  return {
    count(route: string, status: number, refusal: string): void {
      const ends = routes.get(route) ?? new Map<number | string, number>();
      if (ends.size === 0) routes.set(route, ends);
      // Requests without a refusal, nearly all, are keyed by number.
      const end = refusal === "" ? status : `${status} ${refusal}`;
      const before = ends.get(end);
      if (before === undefined && ++series > REQUEST_SERIES_MAX) return;
      ends.set(end, (before ?? 0) + 1);
    },
    text(): string {
      let out = headOf("requests_total", REQUESTS, "counter");
      for (const [route, ends] of routes) {
        for (const [end, count] of ends) {
          const [code = "", refusal = ""] = String(end).split(" ");
          out += `tollgate_requests_total{route="${route}",code="${code}",refusal="${refusal}"} ${count}\n`;
        }
      }
      return out;
    },
  };
}

/** Metrics of the process, under the names of Prometheus's client libraries, and the release. */
function processText(): string {
  const { rss, heapUsed } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  const values: Record<keyof typeof PROCESS, number> = {
    process_resident_memory_bytes: rss,
    process_heap_bytes: heapUsed,
    process_cpu_seconds_total: (user + system) / 1e6,
    process_uptime_seconds: process.uptime(),
  };
  const release = `{version="${packageFacts.version}",runtime="${runtimeName}"}`;
  let out = `${headOf("build_info", BUILD, "gauge")}tollgate_build_info${release} 1\n`;
  for (const [name, { type, help }] of Object.entries(PROCESS))
    out += `${head(name, help, type)}${name} ${values[name as keyof typeof PROCESS]}\n`;
  return out;
}

/** Zero for every value of a family's label: a series that begins with its first event would show no increase. */
function tallies<Name extends string>(families: Record<Name, Family>): Record<Name, Record<string, number>> {
  return Object.fromEntries(
    entries(families).map(([name, family]) => [name, Object.fromEntries(valuesOf(family).map((value) => [value, 0]))]),
  ) as Record<Name, Record<string, number>>;
}

function histogramsOf(family: Family, bounds: readonly number[]): Record<string, Histogram> {
  return Object.fromEntries(valuesOf(family).map((value) => [value, createHistogram(bounds)]));
}

function valuesOf({ label }: Family): readonly string[] {
  return label?.[1] ?? [""];
}

function head(name: string, help: string, type: MetricType): string {
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
}

function headOf(name: string, { help }: Family, type: MetricType): string {
  return head(`tollgate_${name}`, help, type);
}

function series(name: string, family: Family, read: number | Readonly<Record<string, number>>): string {
  const values = typeof read === "number" ? { "": read } : read;
  return Object.entries(values)
    .map(([value, number]) => {
      const labels = labelText(family, value);
      return `tollgate_${name}${labels === "" ? "" : `{${labels}}`} ${number}\n`;
    })
    .join("");
}

function labelText({ label }: Family, value: string): string {
  return label === undefined ? "" : `${label[0]}="${value}"`;
}

function entries<T extends object>(record: T): [keyof T & string, Family][] {
  return Object.entries(record) as [keyof T & string, Family][];
}
