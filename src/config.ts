import { isIP, isIPv4 } from "node:net";
import ipaddr from "ipaddr.js";
import { parseResolver } from "./platform/dns_query.ts";
import { parseFailpoint } from "./platform/failpoints.ts";

/**
 * Reads the environment once into a typed Config. Every variable, its default and its unit stand in VARIABLES;
 * the README's table is checked against it by a test.
 */

const SERVER_ADDRESSES_MAX = 10;
const DNS_RESOLVERS_MAX = 8;
const SECRET_KEY_BYTES = 32;
/** Of what was found, said in a problem. */
const FOUND_CHARS_MAX = 80;
/** In production: a proxy that asks /readyz each second has then noticed. */
const NOTICE_SECONDS = 3;

/** A `service` is a URL that may carry a password: its value is never shown, nor those of headers and secrets. */
type Kind = "string" | "choice" | "url" | "service" | "headers" | "integer" | "share" | "flag" | "list" | "secret";
type Variable = {
  kind: Kind;
  default?: string;
  min?: number;
  max?: number;
  unit?: string;
  /** Of a choice; `what` names them all. */
  choices?: readonly string[];
  /** Of a URL: those that are taken. */
  schemes?: readonly string[];
  what: string;
};

const WEB = ["http", "https"] as const;

export const VARIABLES = {
  NODE_ENV: {
    kind: "choice",
    default: "development",
    choices: ["development", "test", "production"],
    what: "development, test or production, which turns local hosts off",
  },
  PORT: { kind: "integer", default: "8080", min: 0, max: 65535, what: "public port; 0 takes a free one" },
  LISTEN_HOST: { kind: "string", default: "0.0.0.0", what: "address to listen on" },
  INTERNAL_PORT: {
    kind: "integer",
    default: "",
    min: 0,
    max: 65535,
    what: "port of /metrics, /version, /ask and the probes, never to be published; empty: none; 0 takes a free one",
  },
  INTERNAL_HOST: { kind: "string", default: "127.0.0.1", what: "address of the internal port" },
  DATABASE_URL: { kind: "service", schemes: ["postgres", "postgresql"], what: "Postgres 15 or newer" },
  DB_WAIT_SECONDS: {
    kind: "integer",
    default: "30",
    min: 0,
    max: 3600,
    unit: "s",
    what: "at the start: how long a Postgres that does not answer is tried again",
  },
  DB_PREPARE: { kind: "flag", default: "true", what: "false behind PgBouncer older than 1.21" },
  DB_POOL_MAX: {
    kind: "integer",
    default: "10",
    min: 1,
    max: 200,
    unit: "connections",
    what: "pool for everything but the ledger",
  },
  LEDGER_LANES: {
    kind: "integer",
    default: "4",
    min: 1,
    max: 32,
    unit: "connections",
    what: "ledger batches under way at once, at most",
  },
  LEDGER_QUEUE_MAX: {
    kind: "integer",
    default: "20000",
    min: 1,
    unit: "rows",
    what: "reserves and settlements waiting, over all lanes",
  },
  LEDGER_TIMEOUT_MS: {
    kind: "integer",
    default: "1800",
    min: 50,
    unit: "ms",
    what: "a reserve that takes longer is refused with 503",
  },
  LEASE_SECONDS: { kind: "integer", default: "60", min: 2, max: 3600, unit: "s", what: "a hold's lease" },
  SPOOL_DIR: {
    kind: "string",
    default: ".data/spool",
    what: "settlements wait here while Postgres is away; one folder a replica, on a disk that lasts",
  },
  SPOOL_BYTES_MAX: {
    kind: "integer",
    default: String(256 * 1024 * 1024),
    min: 1024,
    unit: "bytes",
    what: "with more than this waiting in the spool no new work is taken",
  },
  REDIS_URL: {
    kind: "service",
    schemes: ["redis", "rediss"],
    default: "",
    what: "Redis 7 or newer, or Valkey; empty: one replica, in-process",
  },
  SECRET_KEY: { kind: "secret", what: "32 bytes in base64 or hex: encrypts provider keys" },
  BASE_URL: {
    kind: "url",
    schemes: WEB,
    default: "http://localhost:8080/v1",
    what: "the API's public address, ends in /v1",
  },
  ALIAS_URL: { kind: "url", schemes: WEB, default: "", what: "root-domain alias of the API, ends in /v1" },
  PANEL_URL: { kind: "url", schemes: WEB, default: "http://localhost:8080", what: "the panel's public address" },
  BRAND_NAME: { kind: "string", default: "Tollgate", what: "the service's name on its own hosts" },
  BRAND_SUPPORT: { kind: "string", default: "", what: "whom people ask for help: an e-mail address or an https URL" },
  SERVER_ADDRESSES: {
    kind: "list",
    default: "",
    what: "public IPv4 addresses that resellers' A records must say; empty: no domain can be added",
  },
  DNS_RESOLVERS: {
    kind: "list",
    default: "1.1.1.1,9.9.9.9",
    what: "two or more who are asked for resellers' records, and must agree; as in 127.0.0.1:5353",
  },
  TRUSTED_PROXIES: {
    kind: "list",
    default: "",
    what: "addresses or ranges of proxies whose X-Forwarded-For is believed, as in 10.0.0.0/8; empty: none",
  },
  PANEL_DIR: {
    kind: "string",
    default: "dist/panel",
    what: "the built panel; where it is missing only the API is served",
  },
  ALLOW_LOCAL_HOSTS: {
    kind: "flag",
    default: "",
    what: "answer on localhost and 127.0.0.1 too; default: true outside production",
  },
  BILLING_TIMEZONE: {
    kind: "string",
    default: "UTC",
    what: "IANA zone of a package's days, where the offering names none",
  },
  BODY_BYTES_MAX: {
    kind: "integer",
    default: String(20 * 1024 * 1024),
    min: 1024,
    unit: "bytes",
    what: "largest request body",
  },
  BODY_READ_MS: {
    kind: "integer",
    default: "60000",
    min: 1,
    unit: "ms",
    what: "a request body that takes longer to arrive is refused",
  },
  BODY_READS_MAX: {
    kind: "integer",
    default: "4000",
    min: 1,
    unit: "bodies",
    what: "request bodies that one replica reads at once; more are refused with 503",
  },
  BODY_MEMORY_MAX: {
    kind: "integer",
    default: String(192 * 1024 * 1024),
    min: 2048,
    unit: "bytes",
    what: "bytes of request bodies that one replica keeps at once (the process takes up to four times as much); more are refused with 503",
  },
  IN_FLIGHT_MAX: {
    kind: "integer",
    default: "10000",
    min: 1,
    unit: "requests",
    what: "metered requests under way in one replica; more are refused with 503",
  },
  ACCOUNT_SHARE: {
    kind: "share",
    default: "0.25",
    what: "fraction of IN_FLIGHT_MAX, BODY_READS_MAX and BODY_MEMORY_MAX that one account may use, from 0 to 1; more is refused with 429",
  },
  TENANT_SHARE: {
    kind: "share",
    default: "0.5",
    what: "the same for a reseller together with its customers",
  },
  EVENT_LOOP_LAG_MAX_MS: {
    kind: "integer",
    default: "500",
    min: 10,
    unit: "ms",
    what: "a replica that is later than this, twice in a row, refuses new metered work with 503",
  },
  RATE_PER_MINUTE: { kind: "integer", default: "600", min: 1, unit: "requests", what: "per key" },
  RATE_ACCOUNT_PER_MINUTE: {
    kind: "integer",
    default: "6000",
    min: 1,
    unit: "requests",
    what: "per account, over all its keys",
  },
  RATE_TENANT_PER_MINUTE: {
    kind: "integer",
    default: "60000",
    min: 1,
    unit: "requests",
    what: "per reseller, over all its customers",
  },
  RATE_IN_FLIGHT: { kind: "integer", default: "300", min: 1, unit: "requests", what: "per key" },
  RATE_REDIS_MS: {
    kind: "integer",
    default: "30",
    min: 1,
    max: 1000,
    unit: "ms",
    what: "to ask Redis for a key's rates; then the replica decides by itself",
  },
  PROVIDER_CONNECT_MS: {
    kind: "integer",
    default: "5000",
    min: 1,
    unit: "ms",
    what: "to reach a provider that was not reached lately",
  },
  PROVIDER_FIRST_BYTE_MS: {
    kind: "integer",
    default: "120000",
    min: 1,
    unit: "ms",
    what: "from dispatch to a stream's first event",
  },
  PROVIDER_HEADERS_MS: {
    kind: "integer",
    default: "20000",
    min: 1,
    unit: "ms",
    what: "a client that leaves a stream whose provider has sent no headers for this long is not charged",
  },
  PROVIDER_IDLE_MS: { kind: "integer", default: "120000", min: 1, unit: "ms", what: "between two chunks of a stream" },
  PROVIDER_TOTAL_MS: {
    kind: "integer",
    default: "600000",
    min: 1,
    unit: "ms",
    what: "a whole answer that is not streamed",
  },
  CLIENT_IDLE_MS: {
    kind: "integer",
    default: "60000",
    min: 1,
    unit: "ms",
    what: "a client that takes no byte for this long is cut",
  },
  PROVIDER_ALLOW_PRIVATE: {
    kind: "list",
    default: "",
    what: "host:port of providers that may live on private addresses",
  },
  SESSION_IDLE_SECONDS: {
    kind: "integer",
    default: String(7 * 86400),
    min: 60,
    unit: "s",
    what: "a session not used for this long ends",
  },
  SESSION_MAX_SECONDS: {
    kind: "integer",
    default: String(30 * 86400),
    min: 60,
    unit: "s",
    what: "a session ends after this long",
  },
  HISTORY_DAYS: {
    kind: "integer",
    default: "400",
    min: 0,
    max: 36500,
    unit: "days",
    what: "the audit log, revoked keys and decided orders are kept for so long; 0: for ever",
  },
  CACHE_TTL_MS: { kind: "integer", default: "30000", min: 100, unit: "ms", what: "longest life of a cached entry" },
  DRAIN_NOTICE_SECONDS: {
    kind: "integer",
    default: "",
    min: 0,
    max: 600,
    unit: "s",
    what: "after SIGTERM: not ready, but still serving, until the proxy has noticed; default: 3 in production, else 0",
  },
  DRAIN_SECONDS: {
    kind: "integer",
    default: "30",
    min: 1,
    unit: "s",
    what: "after the notice: streams may finish for this long",
  },
  LOG_LEVEL: {
    kind: "choice",
    default: "info",
    choices: ["trace", "debug", "info", "warn", "error", "silent"],
    what: "trace, debug, info, warn, error, silent",
  },
  LOG_REQUESTS: {
    kind: "share",
    default: "1",
    what: "of the API's and the panel's requests, so large a share has a line in the log, from 0 to 1; those that end in 5xx always",
  },
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    kind: "service",
    schemes: WEB,
    default: "",
    what: "a collector of traces (OTLP over HTTP, JSON), without /v1/traces; empty: no traces",
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    kind: "headers",
    default: "",
    what: "what the collector wants to see, as in api-key=abc,x-team=gate; values percent-encoded",
  },
  OTEL_TRACES_SAMPLER_ARG: {
    kind: "share",
    default: "1",
    what: "of the requests that bring no traceparent, so large a share is traced, from 0 to 1; the others as theirs says",
  },
  OTEL_SERVICE_NAME: { kind: "string", default: "tollgate", what: "the service's name in its traces" },
  FAILPOINTS: {
    kind: "list",
    default: "",
    what: "for tests of crashes: where the process dies or freezes, as in after_reserve=kill@3; refused in production",
  },
} as const satisfies Record<string, Variable>;

export type Config = ReturnType<typeof build>;

type Name = keyof typeof VARIABLES;
/** Says what is wrong with a variable: what it must be and, unless it is a secret, what was found. The first problem counts. */
type Fail = (name: Name, must: string) => void;

/** Every problem at once, a line each, so that an operator mends them in one go. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/** Reads and checks the environment. Throws ConfigError naming every missing or wrong variable. */
export function readConfig(env: Record<string, string | undefined>): Config {
  const problems = new Map<Name, string>();
  const given = (name: Name): string | undefined => {
    const { default: value }: Variable = VARIABLES[name];
    return env[name]?.trim() || value;
  };
  const fail: Fail = (name, must) => {
    if (!problems.has(name))
      problems.set(name, `${name} ${must}${notThis(VARIABLES[name], given(name))}: ${VARIABLES[name].what}`);
  };
  const read = (name: Name): string => {
    const value = given(name);
    if (value === undefined) problems.set(name, `${name} is not set: ${VARIABLES[name].what}`);
    const must = value ? check(VARIABLES[name], value) : undefined;
    if (must !== undefined) fail(name, must);
    return value ?? "";
  };
  const config = build(read, fail);
  if (problems.size > 0)
    throw new ConfigError(`The configuration is wrong:\n${[...problems.values()].map((p) => `  - ${p}`).join("\n")}`);
  return config;
}

/** What the value must be, if it is not that. */
function check(variable: Variable, value: string): string | undefined {
  switch (variable.kind) {
    case "integer": {
      if (!/^\d{1,15}$/.test(value)) return "must be a whole number";
      const n = Number(value);
      if (variable.min !== undefined && n < variable.min) return `must be at least ${variable.min}`;
      if (variable.max !== undefined && n > variable.max) return `must be at most ${variable.max}`;
      return undefined;
    }
    case "choice":
      return variable.choices?.includes(value) ? undefined : "must be one of these";
    case "share":
      return /^(?:0(?:\.\d{1,9})?|1(?:\.0{1,9})?)$/.test(value) ? undefined : "must be a number from 0 to 1";
    case "url":
    case "service": {
      const fits = URL.canParse(value) && variable.schemes?.includes(new URL(value).protocol.slice(0, -1));
      return fits ? undefined : `must be a URL that begins with ${variable.schemes?.join(":// or ")}://`;
    }
    case "headers":
      return headersIn(value) ? undefined : "must be name=value pairs with commas between them";
    case "flag":
      return value === "true" || value === "false" ? undefined : "must be true or false";
    case "secret":
      return secretBytes(value) ? undefined : "must be 32 bytes in base64 or hex";
    default:
      return undefined;
  }
}

/** What was found, for a person; of what may be a secret only its size. */
function notThis({ kind }: Variable, value = ""): string {
  if (kind === "secret" || kind === "service" || kind === "headers") return `, not these ${value.length} characters`;
  const shown = value.length > FOUND_CHARS_MAX ? `${value.slice(0, FOUND_CHARS_MAX)}…` : value;
  return `, not ${JSON.stringify(shown)}`;
}

/** The key's 32 bytes; undefined: the text is no such key. */
export function secretBytes(value: string): Buffer | undefined {
  if (/^[0-9a-f]{64}$/i.test(value)) return Buffer.from(value, "hex");
  const bytes = /^[A-Za-z0-9+/_-]+=*$/.test(value) ? Buffer.from(value, "base64") : undefined;
  return bytes?.length === SECRET_KEY_BYTES ? bytes : undefined;
}

/** Headers written as OpenTelemetry has them in a variable; undefined: they cannot be read. */
function headersIn(text: string): Record<string, string> | undefined {
  const headers: Record<string, string> = {};
  for (const pair of text.split(",").filter((part) => part.trim() !== "")) {
    const [, name, value = ""] = /^\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*([!-~]*)\s*$/.exec(pair) ?? [];
    if (name === undefined) return undefined;
    const decoded = percentDecoded(value);
    if (decoded === undefined) return undefined;
    headers[name] = decoded;
  }
  return headers;
}

/** Undefined: it is no UTF-8, or has what no header's value may have. */
function percentDecoded(text: string): string | undefined {
  try {
    const decoded = decodeURIComponent(text);
    return /^[ -~]*$/.test(decoded) ? decoded : undefined;
  } catch {
    return undefined; // decodeURIComponent has no other way to say it.
  }
}

function build(read: (name: Name) => string, fail: Fail) {
  const integer = (name: Name) => Number(read(name));
  const list = (name: Name) =>
    read(name)
      .split(",")
      .map((item) => item.trim())
      .filter(Boolean);
  const production = read("NODE_ENV") === "production";
  const timeZone = read("BILLING_TIMEZONE");
  if (!isTimeZone(timeZone)) fail("BILLING_TIMEZONE", "must be an IANA time zone, as in Europe/Berlin");
  const brandSupport = read("BRAND_SUPPORT");
  if (brandSupport !== "" && !/^(?:https:\/\/[^\s]+|[^\s@/]+@[^\s@/]+)$/i.test(brandSupport))
    fail("BRAND_SUPPORT", "must be an e-mail address or an https URL");
  const serverAddresses = list("SERVER_ADDRESSES");
  if (serverAddresses.length > SERVER_ADDRESSES_MAX || !serverAddresses.every((address) => isIPv4(address)))
    fail("SERVER_ADDRESSES", `must be at most ${SERVER_ADDRESSES_MAX} IPv4 addresses`);
  const trustedProxies = list("TRUSTED_PROXIES");
  if (!trustedProxies.every(isAddressOrRange))
    fail("TRUSTED_PROXIES", "must be addresses or ranges, as in 10.0.0.2 or 10.0.0.0/8");
  const dnsResolvers = list("DNS_RESOLVERS");
  if (!areResolvers(dnsResolvers))
    fail("DNS_RESOLVERS", `must be the addresses of 2 to ${DNS_RESOLVERS_MAX} different resolvers`);
  const providerAllowPrivate = list("PROVIDER_ALLOW_PRIVATE");
  if (!providerAllowPrivate.every((place) => /^(?:\[[\da-f:.]+\]|[^\s:/@[\]]+):\d{1,5}$/i.test(place)))
    fail("PROVIDER_ALLOW_PRIVATE", "must be hosts with their ports, as in 10.0.0.7:8000");
  const failpoints = list("FAILPOINTS").map(parseFailpoint);
  if (production && failpoints.length > 0) fail("FAILPOINTS", "must be empty in production");
  if (failpoints.includes(undefined)) fail("FAILPOINTS", "must be like after_reserve=kill or before_settle=freeze@3");
  const address = (name: "BASE_URL" | "ALIAS_URL" | "PANEL_URL", path: "" | "/v1") => {
    const value = read(name).replace(/\/+$/, "");
    if (URL.canParse(value) && new URL(value).pathname.replace(/\/$/, "") !== path)
      fail(name, path === "" ? "must have no path" : `must end in ${path}`);
    return value;
  };
  const [bodyBytesMax, bodyMemoryMax] = [integer("BODY_BYTES_MAX"), integer("BODY_MEMORY_MAX")];
  if (bodyMemoryMax < 2 * bodyBytesMax) fail("BODY_MEMORY_MAX", "must be at least twice BODY_BYTES_MAX");
  const [port, internalPort] = [integer("PORT"), read("INTERNAL_PORT") === "" ? null : integer("INTERNAL_PORT")];
  if (port === internalPort && port !== 0) fail("INTERNAL_PORT", "must be another than PORT");
  const collector = read("OTEL_EXPORTER_OTLP_ENDPOINT").replace(/\/+$/, "");
  // All of them are read, so that what is wrong is said wherever traces go.
  const traces = {
    url: `${collector}/v1/traces`,
    headers: headersIn(read("OTEL_EXPORTER_OTLP_HEADERS")) ?? {},
    share: Number(read("OTEL_TRACES_SAMPLER_ARG")),
    serviceName: read("OTEL_SERVICE_NAME"),
  };
  return {
    production,
    port,
    listenHost: read("LISTEN_HOST"),
    /** null: no internal listener. */
    internalPort,
    internalHost: read("INTERNAL_HOST"),
    databaseUrl: read("DATABASE_URL"),
    dbWaitSeconds: integer("DB_WAIT_SECONDS"),
    dbPrepare: read("DB_PREPARE") === "true",
    dbPoolMax: integer("DB_POOL_MAX"),
    ledgerLanes: integer("LEDGER_LANES"),
    ledgerQueueMax: integer("LEDGER_QUEUE_MAX"),
    ledgerTimeoutMs: integer("LEDGER_TIMEOUT_MS"),
    leaseSeconds: integer("LEASE_SECONDS"),
    spoolDir: read("SPOOL_DIR"),
    spoolBytesMax: integer("SPOOL_BYTES_MAX"),
    redisUrl: read("REDIS_URL"),
    secretKey: secretBytes(read("SECRET_KEY")) ?? Buffer.alloc(0),
    baseUrl: address("BASE_URL", "/v1"),
    aliasUrl: address("ALIAS_URL", "/v1"),
    panelUrl: address("PANEL_URL", ""),
    brandName: read("BRAND_NAME"),
    brandSupport,
    panelDir: read("PANEL_DIR"),
    allowLocalHosts: read("ALLOW_LOCAL_HOSTS") === "" ? !production : read("ALLOW_LOCAL_HOSTS") === "true",
    serverAddresses,
    dnsResolvers,
    trustedProxies,
    billingTimeZone: timeZone,
    bodyBytesMax,
    bodyReadMs: integer("BODY_READ_MS"),
    bodyReadsMax: integer("BODY_READS_MAX"),
    bodyMemoryMax,
    /** From 0 to 1. */
    shares: { account: Number(read("ACCOUNT_SHARE")), tenant: Number(read("TENANT_SHARE")) },
    inFlightMax: integer("IN_FLIGHT_MAX"),
    eventLoopLagMaxMs: integer("EVENT_LOOP_LAG_MAX_MS"),
    ratePerMinute: integer("RATE_PER_MINUTE"),
    rateAccountPerMinute: integer("RATE_ACCOUNT_PER_MINUTE"),
    rateTenantPerMinute: integer("RATE_TENANT_PER_MINUTE"),
    rateInFlight: integer("RATE_IN_FLIGHT"),
    rateRedisMs: integer("RATE_REDIS_MS"),
    providerConnectMs: integer("PROVIDER_CONNECT_MS"),
    providerFirstByteMs: integer("PROVIDER_FIRST_BYTE_MS"),
    providerHeadersMs: integer("PROVIDER_HEADERS_MS"),
    providerIdleMs: integer("PROVIDER_IDLE_MS"),
    providerTotalMs: integer("PROVIDER_TOTAL_MS"),
    clientIdleMs: integer("CLIENT_IDLE_MS"),
    providerAllowPrivate,
    sessionIdleSeconds: integer("SESSION_IDLE_SECONDS"),
    sessionMaxSeconds: integer("SESSION_MAX_SECONDS"),
    historyDays: integer("HISTORY_DAYS"),
    cacheTtlMs: integer("CACHE_TTL_MS"),
    drainNoticeSeconds:
      read("DRAIN_NOTICE_SECONDS") === "" ? (production ? NOTICE_SECONDS : 0) : integer("DRAIN_NOTICE_SECONDS"),
    drainSeconds: integer("DRAIN_SECONDS"),
    logLevel: read("LOG_LEVEL"),
    logRequests: Number(read("LOG_REQUESTS")),
    /** undefined: no traces are made. */
    traces: collector === "" ? undefined : traces,
    failpoints: failpoints.filter((point) => point !== undefined),
  };
}

function isAddressOrRange(text: string): boolean {
  const [address = ""] = text.split("/");
  // Of itself the parser takes a short form such as 10.1 too.
  return isIP(address) !== 0 && (!text.includes("/") || ipaddr.isValidCIDR(text));
}

function areResolvers(texts: string[]): boolean {
  try {
    const different = new Set(texts.map((text) => JSON.stringify(parseResolver(text))));
    return different.size === texts.length && texts.length >= 2 && texts.length <= DNS_RESOLVERS_MAX;
  } catch {
    return false; // One of them is no address.
  }
}

/** Whether the runtime knows the IANA zone `name`. */
export function isTimeZone(name: string): boolean {
  // Intl takes bare offsets too, which Postgres reads with the opposite sign.
  if (!/^[A-Za-z]/.test(name)) return false;
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false; // Intl has no other way to ask.
  }
}
