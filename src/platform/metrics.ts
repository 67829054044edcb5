import process from "node:process";
import packageFacts from "../../package.json" with { type: "json" };
import { createHistogram, type Histogram } from "./histogram.ts";
import { runtimeName } from "./runtime.ts";

/**
 * What one replica tells Prometheus: a gauge for everything that has a cap, a counter for everything that a cap or a time
 * limit turned away, a histogram for everything that takes time. Every label's values are a closed list: no label carries a
 * tenant, a key, a host, a model or anything else that a client can make up. The operator's guide has the table.
 */

const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";
/** Upper bounds of buckets, in seconds: of what waits for the ledger, and of what waits for a model. */
const LEDGER_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
const ANSWER_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
/** Rows of a batch, which has 512 at most. */
const BATCH_ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/** Different routes and ends that are counted. There are a hundred routes, and each ends in a handful of ways. */
const REQUEST_SERIES_MAX = 5_000;

/** Which cap turned a request away. `draining`: none did, the replica is on its way out. */
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
  "in_flight_per_key",
  "long_reads",
  "in_flight_per_account",
  "in_flight_per_tenant",
  "body_reads_full",
  "body_reads_per_account",
  "body_reads_per_tenant",
  "body_bytes_full",
  "body_bytes_per_account",
  "body_bytes_per_tenant",
] as const;
export type ShedReason = (typeof SHED_REASONS)[number];

/** Which time limit was passed. */
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

/** How an attempt at a provider failed. `hung_up`: the connection stood, and ended without an answer. */
const PROVIDER_FAILURES = [
  "connect",
  "hung_up",
  "timeout",
  "cut",
  "address",
  "redirect",
  "encoded",
  "oversized",
  "not_json",
  "rate_limited",
  "too_large",
  "credentials",
  "no_credit",
  "unknown_model",
  "status",
] as const;
export type FailureKind = (typeof PROVIDER_FAILURES)[number];

/** What a metered request asks for. */
const ANSWER_KINDS = ["json", "stream", "image"] as const;
export type AnswerKind = (typeof ANSWER_KINDS)[number];
/** How a stream ended. `failed`: its end could not be told to the ledger. */
const STREAM_ENDS = ["complete", "client_left", "provider_broke_off", "ended_by_us", "failed"] as const;
export type StreamEnd = (typeof STREAM_ENDS)[number];
const HOLD_ENDS = ["settle", "release"] as const;
export type HoldEnd = (typeof HOLD_ENDS)[number];
/** The ledger's queues: of what nobody has locked, of what waits for a lock, and of what waits for one that is held for long. */
const LANES = ["free", "waiting", "held"] as const;
const CACHES = ["keys", "hosts", "brands", "sessions"] as const;
export type CacheName = (typeof CACHES)[number];
const CHANGES = ["account", "catalog", "host", "session", "gap"] as const;
export type ChangeKind = (typeof CHANGES)[number];
const BREAKER_STATES = ["open", "half_open", "cooling"] as const;
const CAPS = [
  "in_flight_requests",
  "body_reads",
  "body_bytes",
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
    help: "Requests turned away with 429 or 503 to keep the rest served, by the cap that was reached.",
    label: ["reason", SHED_REASONS],
  },
  time_outs_total: {
    help: "Waits that were ended by a time limit, by the limit.",
    label: ["limit", TIME_LIMITS],
  },
  provider_failures_total: {
    help: "Attempts at a route that failed, by how. no_credit, credentials, unknown_model and too_large are the operator's to mend.",
    label: ["kind", PROVIDER_FAILURES],
  },
  overruns_total: { help: "Answers that cost more than was held for them, paid by balance." },
  breaker_openings_total: { help: "How often a provider's route was left alone after failures in a row." },
  ledger_refusals_remembered_total: {
    help: "Requests refused by what the ledger had just told another, without asking it.",
  },
  idempotent_replays_total: { help: "Requests answered with the kept answer of an earlier one." },
  settlements_spooled_total: {
    help: "Ends of holds that the database could not take at once: they went to the spool.",
  },
  changes_total: {
    help: "Invalidations that arrived, by what changed. gap: some may have been missed, and all was forgotten.",
    label: ["kind", CHANGES],
  },
} as const satisfies Record<string, Family>;

const HISTOGRAMS = {
  first_byte_seconds: {
    help: "From a metered request's arrival to its answer's first byte. A JSON answer leaves whole.",
    label: ["kind", ANSWER_KINDS],
    bounds: ANSWER_SECONDS,
  },
  stream_seconds: {
    help: "From a stream's arrival to its end, by how it ended.",
    label: ["end", STREAM_ENDS],
    bounds: ANSWER_SECONDS,
  },
  provider_seconds: {
    help: "From calling the provider to its whole answer, or to a stream's first event. Failover included.",
    label: ["kind", ANSWER_KINDS],
    bounds: ANSWER_SECONDS,
  },
  hold_seconds: { help: "How long the ledger took to hold, or to refuse.", bounds: LEDGER_SECONDS },
  settle_seconds: {
    help: "How long the ledger, or the spool, took to end a hold.",
    label: ["kind", HOLD_ENDS],
    bounds: LEDGER_SECONDS,
  },
  ledger_batch_rows: {
    help: "Rows of a batch of the ledger, by its lane.",
    label: ["lane", LANES],
    bounds: BATCH_ROWS,
  },
} as const satisfies Record<string, HistogramFamily>;

const REQUESTS: Family = {
  help: "Requests that have ended, by route, HTTP status, and the code of a refusal. A stream when it is over.",
};
const BUILD: Family = { help: "1, with the release and the runtime." };
const PROCESS = {
  process_resident_memory_bytes: { type: "gauge", help: "Memory of the process." },
  process_heap_bytes: { type: "gauge", help: "Of it, the JavaScript heap in use." },
  process_cpu_seconds_total: { type: "counter", help: "Processor time, user and system." },
  process_uptime_seconds: { type: "gauge", help: "Since the process started." },
} as const;

/** Read when somebody asks. */
const GAUGES = {
  in_flight_requests: { help: "Metered requests in flight, their bodies read. Cap: IN_FLIGHT_MAX." },
  body_reads: { help: "Bodies of requests that are being read. Cap: BODY_READS_MAX." },
  body_bytes: { help: "Bytes of bodies that are being read or kept. Cap: BODY_MEMORY_MAX." },
  open_streams: { help: "Of them, streams whose answer has begun." },
  streams_read_on: { help: "Of them, streams read to their end for clients who have left." },
  live_holds: { help: "Holds of this replica that have not ended." },
  expired_holds: { help: "Holds of any replica past their lease, when this one's reaper looked last; 500 at most." },
  ledger_queue_rows: { help: "Reserves and settlements waiting or under way. Cap: LEDGER_QUEUE_MAX." },
  ledger_lane_rows: { help: "Of them, those that wait for a lane.", label: ["lane", LANES] },
  spool_bytes: { help: "Settlements on disk, waiting for the database. Cap: SPOOL_BYTES_MAX." },
  spool_settlements: { help: "The same, counted, with those that wait for the disk." },
  spool_aside_settlements: {
    help: "Settlements that the ledger would not take, in aside.jsonl of the spool's folder.",
  },
  spool_disk_free_bytes: { help: "Room on the spool's disk; 0 too if it cannot be asked." },
  event_loop_lag_seconds: { help: "How late the event loop's last tick was. Cap: EVENT_LOOP_LAG_MAX_MS." },
  draining: { help: "1 from the signal to end until the end." },
  ready: { help: "1: metered work is taken. 0: it drains, its spool is full, or the database is away." },
  database_up: { help: "1: the last heartbeat reached the database." },
  bus_up: { help: "1: invalidations of other replicas arrive by Redis. 1 too without Redis." },
  pool_queries: { help: "Queries and transactions under way on the pool, or waiting for it. Cap: DB_POOL_MAX." },
  long_reads: { help: "Lists, charts and files that are being read, on connections of their own. Capped." },
  breakers: {
    help: "Routes that are left alone, that one request tries, or whose provider asked for a pause. Also those that are so for one account alone.",
    label: ["state", BREAKER_STATES],
  },
  route_overheads: { help: "Routes for which more than the bound is held, because several payers' answers used more." },
  books_broken: { help: "Invariants that the last check of the books found broken." },
  books_uncounted: { help: "Invariants that the last check of the books had no time to count." },
  books_checked_timestamp_seconds: { help: "When the books were checked last, by any replica; 0: not known yet." },
  cap: { help: "What the gauge of that name may reach at most, as configured.", label: ["of", CAPS] },
} as const satisfies Record<string, Family>;

/** Counted elsewhere, and read when somebody asks. */
const COUNTED = {
  cache_hits_total: { help: "Look-ups answered from memory.", label: ["cache", CACHES] },
  cache_misses_total: { help: "Look-ups that had to ask the database.", label: ["cache", CACHES] },
  cache_drops_total: { help: "Entries that invalidations took out of memory.", label: ["cache", CACHES] },
  holds_reaped_total: { help: "Holds of dead replicas that this one's reaper gave back." },
} as const satisfies Record<string, Family>;

type Read<F> = F extends { label: readonly [string, readonly (infer Value extends string)[]] }
  ? () => Readonly<Record<Value, number>>
  : () => number | Promise<number>;
type MetricType = "counter" | "gauge" | "histogram";
/** A metric's name and words. `labels`: the values each may have; null: those of the app's routes, codes or this release. */
export type MetricFacts = {
  name: string;
  type: MetricType;
  help: string;
  labels: Readonly<Record<string, readonly string[] | null>>;
};

/** Every metric, in the order of the guide's table. */
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

/** Where the values come from that are read when somebody asks. */
export type MetricSources = {
  readonly [Name in keyof typeof GAUGES]: Read<(typeof GAUGES)[Name]>;
} & { readonly [Name in keyof typeof COUNTED]: Read<(typeof COUNTED)[Name]> };

export type Metrics = {
  /** A request ended. `route` is one of the app's, not what was sent; `refusal` is a code, or "". */
  ended(route: string, status: number, refusal: string): void;
  firstByte(kind: AnswerKind, ms: number): void;
  streamEnded(end: StreamEnd, ms: number): void;
  providerAnswered(kind: AnswerKind, ms: number): void;
  /** The ledger answered a reserve, with a hold or without. */
  held(ms: number): void;
  /** A hold ended; `spooled`: on disk for now. */
  holdEnded(end: HoldEnd, ms: number, spooled: boolean): void;
  batched(lane: (typeof LANES)[number], rows: number): void;
  shed(reason: ShedReason): void;
  timedOut(limit: TimeLimit): void;
  /** An answer cost more than was held for it. */
  overran(): void;
  /** An attempt at a provider failed. */
  providerFailed(kind: FailureKind): void;
  /** A provider's route is left alone for a while. */
  breakerOpened(): void;
  /** A request was refused by what the ledger had just told another. */
  refusalRemembered(): void;
  /** A request was answered with a kept answer. */
  replayed(): void;
  changed(kind: ChangeKind): void;
  /** Names the sources of what is read when somebody asks. To be called once. */
  watch(sources: MetricSources): void;
  /** Everything in Prometheus's text format. */
  text(): Promise<string>;
  /** Its media type. */
  readonly contentType: string;
};

/** Makes a replica's metrics. */
export function createMetrics(): Metrics {
  const counters = tallies(COUNTERS);
  const histograms = Object.fromEntries(
    Object.entries(HISTOGRAMS).map(([name, { bounds, ...family }]) => [name, histogramsOf(family, bounds)]),
  ) as Record<keyof typeof HISTOGRAMS, Record<string, Histogram>>;
  const requests = createRequestCounter();
  let sources: MetricSources | undefined;

  const count = (name: keyof typeof COUNTERS, value = "") => {
    const series = counters[name];
    series[value] = (series[value] ?? 0) + 1;
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
    shed: (reason) => count("shed_requests_total", reason),
    timedOut: (limit) => count("time_outs_total", limit),
    overran: () => count("overruns_total"),
    providerFailed: (kind) => count("provider_failures_total", kind),
    breakerOpened: () => count("breaker_openings_total"),
    refusalRemembered: () => count("ledger_refusals_remembered_total"),
    replayed: () => count("idempotent_replays_total"),
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

/** Requests by route and end. A route's first series begins with its first request: most routes are the panel's, and hardly asked. */
function createRequestCounter() {
  const routes = new Map<string, Map<number | string, number>>();
  let series = 0;
  return {
    count(route: string, status: number, refusal: string): void {
      const ends = routes.get(route) ?? new Map<number | string, number>();
      if (ends.size === 0) routes.set(route, ends);
      // What is not refused, nearly all, is found by its number.
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

/** Of the process, under the names that Prometheus's own libraries use; and the release. */
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

/** A number for every value of a family's label: a series that begins with its first event shows no rise. */
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
