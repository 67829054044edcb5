import { isIPv4 } from "node:net";
import {
  choice,
  flag,
  fraction,
  headers,
  hostsWithPorts,
  InvalidValue,
  integer,
  isAddressOrRange,
  list,
  mailAddress,
  optional,
  type Parse,
  secretKey,
  text,
  timeZone,
  url,
  webUrl,
} from "./config_values.ts";
import { LANGUAGE_TAGS, languageTag } from "./languages/languages.ts";
import { parseResolver } from "./platform/dns_query.ts";
import { type ArmedFailpoint, parseFailpoint } from "./platform/failpoints.ts";

/**
 * Configuration: VARIABLES lists every environment variable once. The typed Config, the checks and the documents' table
 * (`bun scripts/config_table.ts`) are made from that list.
 */

const SERVER_ADDRESSES_MAX = 10;
const DNS_RESOLVERS_MAX = 8;
/** An account counts towards its tenant's losses up to its own bound, so one alone never reaches twice that. */
const TENANT_LOSSES_MIN = 2;
/** The present secret, and the one before. */
const EXPORT_SECRETS_MAX = 2;
const EXPORT_SECRET_BYTES = { min: 24, max: 64 };
/** Characters of a wrong value that an error message repeats. */
const FOUND_CHARS_MAX = 80;
/** In production. A proxy that asks /readyz every second notices within this time. */
const DRAIN_NOTICE_SECONDS = 3;

type Variable = {
  /** The field of Config that has the parsed value. */
  field: string;
  /** Undefined: the variable is required. "": it is not set. */
  default?: string;
  unit?: string;
  /** What the variable sets: for documents and error messages, without a full stop at its end. */
  what: string;
  /** The value may hold a password or a key: no message repeats it. */
  secret?: true;
  parse: Parse<unknown>;
};

export const VARIABLES = {
  NODE_ENV: {
    field: "production",
    default: "development",
    what: "development, test or production; production turns local hosts off",
    parse: (value) => choice(["development", "test", "production"])(value) === "production",
  },
  PORT: {
    field: "port",
    default: "8080",
    what: "public port; 0 picks a free one",
    parse: integer({ min: 0, max: 65_535 }),
  },
  LISTEN_HOST: {
    field: "listenHost",
    default: "0.0.0.0",
    what: "address that the public port listens on",
    parse: text,
  },
  PROCESSES: {
    field: "processes",
    default: "1",
    what: "processes that share PORT, each a whole replica with connections and memory of its own; with Bun on Linux",
    parse: integer({ min: 1, max: 64 }),
  },
  PROCESS_SOCKET: {
    field: "processSocket",
    default: "",
    what: "set by the first process for those that it starts; leave it empty",
    parse: optional(null, text),
  },
  INTERNAL_PORT: {
    field: "internalPort",
    default: "",
    what: "port of /metrics, /version, /ask and the health checks, which must never be public; empty: no such port; 0 picks a free one",
    parse: optional(null, integer({ min: 0, max: 65_535 })),
  },
  INTERNAL_HOST: {
    field: "internalHost",
    default: "127.0.0.1",
    what: "address that the internal port listens on",
    parse: text,
  },
  DATABASE_URL: {
    field: "databaseUrl",
    what: "Postgres 15 or newer",
    secret: true,
    parse: url(["postgres", "postgresql"]),
  },
  DB_WAIT_SECONDS: {
    field: "dbWaitSeconds",
    default: "60",
    unit: "s",
    what: "how long each step of a replica's start waits for a Postgres that does not answer, or not yet",
    parse: integer({ min: 0, max: 3600 }),
  },
  DB_PREPARE: {
    field: "dbPrepare",
    default: "true",
    what: "whether prepared statements are used; false behind PgBouncer older than 1.21",
    parse: flag,
  },
  DB_POOL_MAX: {
    field: "dbPoolMax",
    default: "10",
    unit: "connections",
    what: "size of the connection pool for everything except the ledger",
    parse: integer({ min: 1, max: 200 }),
  },
  LEDGER_LANES: {
    field: "ledgerLanes",
    default: "4",
    unit: "connections",
    what: "maximum number of concurrent ledger batches",
    parse: integer({ min: 1, max: 32 }),
  },
  LEDGER_QUEUE_MAX: {
    field: "ledgerQueueMax",
    default: "20000",
    unit: "rows",
    what: "maximum number of reserves and settlements that wait, over all lanes",
    parse: integer({ min: 1 }),
  },
  LEDGER_TIMEOUT_MS: {
    field: "ledgerTimeoutMs",
    default: "1800",
    unit: "ms",
    what: "time after which a request is refused with 503 while its reserve, or a row that it needs, waits for Postgres",
    parse: integer({ min: 50 }),
  },
  LEASE_SECONDS: {
    field: "leaseSeconds",
    default: "60",
    unit: "s",
    what: "lease of a replica, which it renews every second; when it ends, the units and money that the replica had drawn are returned",
    parse: integer({ min: 2, max: 3600 }),
  },
  ESCROW_UNITS_MAX: {
    field: "escrowUnitsMax",
    default: "256",
    unit: "requests",
    what: "maximum units of a package that a replica draws ahead of requests; with 0, every request waits for Postgres",
    parse: integer({ min: 0, max: 10_000 }),
  },
  ESCROW_SHARE: {
    field: "escrowShare",
    default: "8",
    what: "a replica draws ahead at most what is left, divided by this number and by the number of replicas",
    parse: integer({ min: 1, max: 1_000_000 }),
  },
  SPOOL_DIR: {
    field: "spoolDir",
    default: ".data/spool",
    what: "folder for settlements that wait for Postgres; a separate folder for each replica, on a persistent disk",
    parse: text,
  },
  SPOOL_BYTES_MAX: {
    field: "spoolBytesMax",
    default: String(256 * 1024 * 1024),
    unit: "bytes",
    what: "size of the spool above which new work is refused",
    parse: integer({ min: 1024 }),
  },
  REDIS_URL: {
    field: "redisUrl",
    default: "",
    what: "Redis 7 or newer, or Valkey; empty: a single replica that uses its own memory",
    secret: true,
    parse: optional("", url(["redis", "rediss"])),
  },
  SECRET_KEY: {
    field: "secretKey",
    what: "32 bytes in base64 or hex; encrypts provider keys",
    secret: true,
    parse: secretKey,
  },
  BASE_URL: {
    field: "baseUrl",
    default: "http://localhost:8080/v1",
    what: "public URL of the API; ends in /v1",
    parse: webUrl("/v1"),
  },
  ALIAS_URL: {
    field: "aliasUrl",
    default: "",
    what: "second public URL of the API, on the root domain; ends in /v1",
    parse: optional("", webUrl("/v1")),
  },
  PANEL_URL: {
    field: "panelUrl",
    default: "http://localhost:8080",
    what: "public URL of the panel",
    parse: webUrl(""),
  },
  BRAND_NAME: { field: "brandName", default: "Tollgate", what: "name of the service on its own hosts", parse: text },
  BRAND_SUPPORT: {
    field: "brandSupport",
    default: "",
    what: "support contact: an e-mail address or an https URL",
    parse: optional("", (value) => {
      if (/^(?:https:\/\/[^\s]+|[^\s@/]+@[^\s@/]+)$/i.test(value)) return value;
      throw new InvalidValue("must be an e-mail address or an https URL");
    }),
  },
  BRAND_LANGUAGE: {
    field: "brandLanguage",
    default: "",
    what: `language of readers on the service's own hosts who chose none: ${LANGUAGE_TAGS.join(", ")}; empty: that of their browser, and English in mails`,
    parse: optional("", (value) => {
      if (languageTag(value) !== undefined) return value;
      throw new InvalidValue(`must be one of ${LANGUAGE_TAGS.join(", ")}`);
    }),
  },
  SERVER_ADDRESSES: {
    field: "serverAddresses",
    default: "",
    what: "public IPv4 addresses that the A records of resellers' domains must have; empty: no domain can be added",
    parse: list(
      (items) => items.length <= SERVER_ADDRESSES_MAX && items.every((address) => isIPv4(address)),
      `must be at most ${SERVER_ADDRESSES_MAX} IPv4 addresses`,
    ),
  },
  DNS_RESOLVERS: {
    field: "dnsResolvers",
    default: "1.1.1.1,9.9.9.9",
    what: "DNS resolvers that must agree on a reseller's records: two or more addresses, as in 127.0.0.1:5353",
    parse: list(areResolvers, `must be the addresses of 2 to ${DNS_RESOLVERS_MAX} different resolvers`),
  },
  NAME_SERVERS: {
    field: "nameServers",
    default: "",
    what: "name servers for outbound calls, as in 127.0.0.1:5353; empty: those of the system (/etc/resolv.conf)",
    parse: list(areServers, `must be at most ${DNS_RESOLVERS_MAX} addresses of name servers`),
  },
  TRUSTED_PROXIES: {
    field: "trustedProxies",
    default: "",
    what: "addresses or ranges (as in 10.0.0.0/8) of proxies whose X-Forwarded-For is trusted; empty: none",
    parse: list((items) => items.every(isAddressOrRange), "must be addresses or ranges, as in 10.0.0.2 or 10.0.0.0/8"),
  },
  PANEL_DIR: {
    field: "panelDir",
    default: "dist/panel",
    what: "folder of the built panel; without it only the API is served",
    parse: text,
  },
  ALLOW_LOCAL_HOSTS: {
    field: "allowLocalHosts",
    default: "",
    what: "whether localhost and 127.0.0.1 are served too; default: true outside production",
    parse: optional(undefined, flag),
  },
  BILLING_TIMEZONE: {
    field: "billingTimeZone",
    default: "UTC",
    what: "IANA time zone of a package's days, unless its offering names one",
    parse: timeZone,
  },
  BODY_BYTES_MAX: {
    field: "bodyBytesMax",
    default: String(20 * 1024 * 1024),
    unit: "bytes",
    what: "maximum size of a request body",
    parse: integer({ min: 1024 }),
  },
  BODY_READ_MS: {
    field: "bodyReadMs",
    default: "60000",
    unit: "ms",
    what: "time after which a request body that has not fully arrived is refused",
    parse: integer({ min: 1 }),
  },
  BODY_READS_MAX: {
    field: "bodyReadsMax",
    default: "4000",
    unit: "bodies",
    what: "maximum number of request bodies that a replica reads concurrently; above it, 503",
    parse: integer({ min: 1 }),
  },
  BODY_MEMORY_MAX: {
    field: "bodyMemoryMax",
    default: String(192 * 1024 * 1024),
    unit: "bytes",
    what: "maximum bytes of request bodies, and of expected embeddings, that a replica keeps in memory (the process needs up to four times as much memory); above it, 503",
    parse: integer({ min: 2048 }),
  },
  ANSWER_MEMORY_MAX: {
    field: "answerMemoryMax",
    default: String(256 * 1024 * 1024),
    unit: "bytes",
    what: "maximum bytes that a replica keeps of answers that it cannot pass on yet, as events that have not fully arrived and whole answers that their client has not read; above it, one of those who hold most is ended",
    parse: integer({ min: 2048 }),
  },
  IN_FLIGHT_MAX: {
    field: "inFlightMax",
    default: "10000",
    unit: "requests",
    what: "maximum number of metered requests that a replica serves concurrently; above it, 503",
    parse: integer({ min: 1 }),
  },
  ACCOUNT_SHARE: {
    field: "accountShare",
    default: "0.25",
    what: "fraction (0 to 1) of IN_FLIGHT_MAX, BODY_READS_MAX, BODY_MEMORY_MAX, ANSWER_MEMORY_MAX, and for reads of DB_POOL_MAX, that one account may use; above it, 429",
    parse: fraction,
  },
  TENANT_SHARE: {
    field: "tenantShare",
    default: "0.5",
    what: "fraction (0 to 1) of the same limits that a reseller and its customers may use together; above it, 429",
    parse: fraction,
  },
  EVENT_LOOP_LAG_MAX_MS: {
    field: "eventLoopLagMaxMs",
    default: "500",
    unit: "ms",
    what: "event-loop lag above which, in two consecutive samples, new metered work gets 503",
    parse: integer({ min: 10 }),
  },
  RATE_PER_MINUTE: {
    field: "ratePerMinute",
    default: "600",
    unit: "requests",
    what: "rate limit of a key, per minute",
    parse: integer({ min: 1 }),
  },
  RATE_ACCOUNT_PER_MINUTE: {
    field: "rateAccountPerMinute",
    default: "6000",
    unit: "requests",
    what: "rate limit of an account over all its keys, per minute",
    parse: integer({ min: 1 }),
  },
  RATE_TENANT_PER_MINUTE: {
    field: "rateTenantPerMinute",
    default: "60000",
    unit: "requests",
    what: "rate limit of a reseller over all its customers, per minute",
    parse: integer({ min: 1 }),
  },
  RATE_IN_FLIGHT: {
    field: "rateInFlight",
    default: "300",
    unit: "requests",
    what: "concurrency limit of a key",
    parse: integer({ min: 1 }),
  },
  RATE_REDIS_MS: {
    field: "rateRedisMs",
    default: "30",
    unit: "ms",
    what: "how long a rate limit waits for Redis before the replica decides alone",
    parse: integer({ min: 1, max: 1000 }),
  },
  UNPAID_ACCOUNT_MINUTES: {
    field: "unpaidAccountMinutes",
    default: "120",
    unit: "minutes",
    what: "provider time an hour that an account's requests may take unpaid, by ending at a time limit; then it is refused until the hour ends",
    parse: integer({ min: 1, max: 1_000_000 }),
  },
  UNPAID_TENANT_MINUTES: {
    field: "unpaidTenantMinutes",
    default: "1200",
    unit: "minutes",
    what: "the same for a reseller with its customers, of which each counts up to its own bound; at least twice that bound",
    parse: integer({ min: 1, max: 1_000_000 }),
  },
  UNPAID_ACCOUNT_USD: {
    field: "unpaidAccountUsd",
    default: "1",
    unit: "USD",
    what: "what an account's answers may cost in an hour beyond what could be charged, before it is refused until the hour ends",
    parse: integer({ min: 1, max: 1_000_000 }),
  },
  UNPAID_TENANT_USD: {
    field: "unpaidTenantUsd",
    default: "10",
    unit: "USD",
    what: "the same for a reseller with its customers, of which each counts up to its own bound; at least twice that bound",
    parse: integer({ min: 1, max: 1_000_000 }),
  },
  UNPAID_ACCOUNT_TOKENS: {
    field: "unpaidAccountTokens",
    default: "200000",
    unit: "tokens",
    what: "tokens that an account's answers may use in an hour beyond what their package had, before it is refused until the hour ends",
    parse: integer({ min: 1, max: 1_000_000_000 }),
  },
  UNPAID_TENANT_TOKENS: {
    field: "unpaidTenantTokens",
    default: "2000000",
    unit: "tokens",
    what: "the same for a reseller with its customers, of which each counts up to its own bound; at least twice that bound",
    parse: integer({ min: 1, max: 1_000_000_000 }),
  },
  PROVIDER_CONNECT_MS: {
    field: "providerConnectMs",
    default: "5000",
    unit: "ms",
    what: "time limit for the connection to a provider that was not reached recently",
    parse: integer({ min: 1 }),
  },
  PROVIDER_FIRST_BYTE_MS: {
    field: "providerFirstByteMs",
    default: "120000",
    unit: "ms",
    what: "time limit from dispatch to the first event of a stream",
    parse: integer({ min: 1 }),
  },
  PROVIDER_HEADERS_MS: {
    field: "providerHeadersMs",
    default: "20000",
    unit: "ms",
    what: "a client that leaves a stream is not charged if the provider has sent no headers for this long",
    parse: integer({ min: 1 }),
  },
  STREAM_HEADERS_MS: {
    field: "streamHeadersMs",
    default: "15000",
    unit: "ms",
    what: "a stream that no provider has begun by then gets its headers, and a comment every 15 s; 0: never",
    parse: integer({ min: 0, max: 600_000 }),
  },
  JSON_HEADERS_MS: {
    field: "jsonHeadersMs",
    default: "0",
    unit: "ms",
    what: "an answer that is not streamed and not complete by then gets its headers with the status 200, and white space every 15 s; 0: never",
    parse: integer({ min: 0, max: 600_000 }),
  },
  PROVIDER_IDLE_MS: {
    field: "providerIdleMs",
    default: "120000",
    unit: "ms",
    what: "time limit between two chunks of a stream",
    parse: integer({ min: 1 }),
  },
  PROVIDER_TOTAL_MS: {
    field: "providerTotalMs",
    default: "600000",
    unit: "ms",
    what: "time limit of a whole answer that is not streamed, and of reading a stream to its end after its client left",
    parse: integer({ min: 1 }),
  },
  IMAGE_URL_SECONDS: {
    field: "imageUrlSeconds",
    default: "3600",
    unit: "s",
    what: "how long the URL of an image can be used",
    // A kept answer, which is repeated for ten minutes, contains the URL.
    parse: integer({ min: 600, max: 7 * 86_400 }),
  },
  RESPONSES_KEEP_HOURS: {
    field: "responsesKeepHours",
    default: "24",
    unit: "hours",
    what: "how long a response of POST /v1/responses can be referred to, unless its request says store: false; 0: nothing is stored",
    parse: integer({ min: 0, max: 720 }),
  },
  CLIENT_IDLE_MS: {
    field: "clientIdleMs",
    default: "60000",
    unit: "ms",
    what: "a client that reads nothing for this long is disconnected",
    parse: integer({ min: 1 }),
  },
  SMTP_URL: {
    field: "smtpUrl",
    default: "",
    what: "mail server for the operator's own mail, as in smtp://name:password@mail.example.com:587 (smtps:// for TLS from the start; a password needs TLS); empty: no mail is sent",
    secret: true,
    parse: optional("", url(["smtp", "smtps"])),
  },
  MAIL_FROM: {
    field: "mailFrom",
    default: "",
    what: "sender of the operator's own mail, as in Acme <mail@example.com>; required with SMTP_URL",
    parse: optional(null, mailAddress),
  },
  MESSAGES_ALLOW_PRIVATE: {
    field: "messagesAllowPrivate",
    default: "",
    what: "host:port of mail servers and webhooks that may have private addresses, for every account; such a mail server gets its password even without TLS",
    parse: hostsWithPorts,
  },
  PROVIDER_ALLOW_PRIVATE: {
    field: "providerAllowPrivate",
    default: "",
    what: "host:port of providers, and of the servers of their images, that may have private addresses",
    parse: hostsWithPorts,
  },
  IDENTITY_ALLOW_PRIVATE: {
    field: "identityAllowPrivate",
    default: "",
    what: "host:port of identity providers that may have private addresses, and speak plain http",
    parse: hostsWithPorts,
  },
  TEST_SHOP: {
    field: "testShop",
    default: "false",
    what: "whether sellers may set keys of Stripe's test mode in production; such payments are recorded, and pay for nothing",
    parse: flag,
  },
  STRIPE_API_BASE: {
    field: "stripeApiBase",
    default: "https://api.stripe.com",
    what: "base URL of Stripe's API; only tests change it",
    parse: url(["http", "https"]),
  },
  SESSION_IDLE_SECONDS: {
    field: "sessionIdleSeconds",
    default: String(7 * 86_400),
    unit: "s",
    what: "a session ends when it was not used for this long",
    parse: integer({ min: 60 }),
  },
  SESSION_MAX_SECONDS: {
    field: "sessionMaxSeconds",
    default: String(30 * 86_400),
    unit: "s",
    what: "a session ends this long after sign-in",
    parse: integer({ min: 60 }),
  },
  HISTORY_DAYS: {
    field: "historyDays",
    default: "400",
    unit: "days",
    what: "how long the audit log, revoked keys, decided orders, vouchers and incidents that are over are kept; 0: forever",
    parse: integer({ min: 0, max: 36_500 }),
  },
  RECEIPTS_KEEP_MONTHS: {
    field: "receiptsKeepMonths",
    default: "0",
    unit: "months",
    what: "receipts of sealed months are dropped after so many whole months, and their totals stay; 0: forever",
    parse: integer({ min: 0, max: 1_200 }),
  },
  CACHE_TTL_MS: {
    field: "cacheTtlMs",
    default: "30000",
    unit: "ms",
    what: "maximum age of a cached entry",
    parse: integer({ min: 100 }),
  },
  DRAIN_NOTICE_SECONDS: {
    field: "drainNoticeSeconds",
    default: "",
    unit: "s",
    what: "how long a replica still serves after SIGTERM while /readyz says 503, so that the proxy notices; default: 3 in production, else 0",
    parse: optional(undefined, integer({ min: 0, max: 600 })),
  },
  DRAIN_SECONDS: {
    field: "drainSeconds",
    default: "30",
    unit: "s",
    what: "how long streams may finish after that notice",
    parse: integer({ min: 1 }),
  },
  LOG_LEVEL: {
    field: "logLevel",
    default: "info",
    what: "lowest level that is logged: trace, debug, info, warn, error or silent",
    parse: choice(["trace", "debug", "info", "warn", "error", "silent"]),
  },
  LOG_REQUESTS: {
    field: "logRequests",
    default: "1",
    what: "fraction of requests that are logged (0 to 1); 5xx always are",
    parse: fraction,
  },
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    field: "tracesEndpoint",
    default: "",
    what: "URL of a trace collector (OTLP over HTTP, JSON), without /v1/traces; empty: no traces",
    secret: true,
    parse: optional("", url(["http", "https"])),
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    field: "tracesHeaders",
    default: "",
    what: "headers for the trace collector, as in api-key=abc,x-team=gate; values percent-encoded",
    secret: true,
    parse: headers,
  },
  OTEL_TRACES_SAMPLER_ARG: {
    field: "tracesShare",
    default: "1",
    what: "fraction (0 to 1) of requests without a traceparent that are traced; a traceparent decides for its own request",
    parse: fraction,
  },
  OTEL_SERVICE_NAME: {
    field: "tracesServiceName",
    default: "tollgate",
    what: "name of the service in traces",
    parse: text,
  },
  RECEIPT_EXPORT_URL: {
    field: "exportUrl",
    default: "",
    what: "https URL that every receipt is sent to, in batches, for a warehouse of your own; empty: receipts are not exported",
    secret: true,
    parse: optional("", url(["http", "https"])),
  },
  RECEIPT_EXPORT_FORM: {
    field: "exportForm",
    default: "webhook",
    what: "webhook: signed calls; otlp: OTLP logs over HTTP, as JSON (the URL then ends in /v1/logs)",
    parse: exportForm,
  },
  RECEIPT_EXPORT_SECRET: {
    field: "exportSecrets",
    default: "",
    what: "signs the calls of the webhook: whsec_ and 24 to 64 bytes in base64; two, separated by a comma, while you rotate it",
    secret: true,
    parse: list(
      (items) => items.length <= EXPORT_SECRETS_MAX && items.every(isWebhookSecret),
      "must be one or two secrets, each whsec_ and 24 to 64 bytes in base64",
    ),
  },
  RECEIPT_EXPORT_HEADERS: {
    field: "exportHeaders",
    default: "",
    what: "headers of the calls, as in api-key=abc,x-team=gate; values percent-encoded",
    secret: true,
    parse: headers,
  },
  RECEIPT_EXPORT_ROWS: {
    field: "exportRows",
    default: "500",
    unit: "receipts",
    what: "maximum number of receipts in a batch",
    parse: integer({ min: 1, max: 5_000 }),
  },
  FAILPOINTS: {
    field: "failpoints",
    default: "",
    what: "for crash tests: where the process dies or freezes, as in after_reserve=kill@3; refused in production",
    parse: failpoints,
  },
} as const satisfies Record<string, Variable>;

type Name = keyof typeof VARIABLES;
/** The parsed values, by field. */
type Values = { [N in Name as (typeof VARIABLES)[N]["field"]]: ReturnType<(typeof VARIABLES)[N]["parse"]> };
export type Config = ReturnType<typeof toConfig>;

/** The environment is wrong. The message has one line for each problem. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/** Reads and checks the environment. Throws ConfigError that names every missing or wrong variable. */
export function readConfig(env: Record<string, string | undefined>): Config {
  const problems: string[] = [];
  const given = (variable: Variable, name: string) => env[name]?.trim() || variable.default;
  const fail = (name: Name, must: string) => {
    const variable: Variable = VARIABLES[name];
    problems.push(`${name} ${must}, not ${shown(variable, given(variable, name) ?? "")}: ${variable.what}`);
  };
  const values: Record<string, unknown> = {};
  for (const name of Object.keys(VARIABLES) as Name[]) {
    const variable: Variable = VARIABLES[name];
    const value = given(variable, name);
    if (value === undefined) {
      problems.push(`${name} is not set: ${variable.what}`);
      continue;
    }
    try {
      values[variable.field] = variable.parse(value);
    } catch (error) {
      if (!(error instanceof InvalidValue)) throw error;
      fail(name, error.message);
    }
  }
  checkTogether(values, fail);
  if (problems.length > 0)
    throw new ConfigError(`The configuration is wrong:\n${problems.map((problem) => `  - ${problem}`).join("\n")}`);
  return toConfig(values as Values);
}

/** Rules about two variables. A field whose own value is wrong is undefined. */
function checkTogether(values: Partial<Values>, fail: (name: Name, must: string) => void): void {
  const { production, port, internalPort, bodyBytesMax = 0, bodyMemoryMax = Infinity } = values;
  if (bodyMemoryMax < 2 * bodyBytesMax) fail("BODY_MEMORY_MAX", "must be at least twice BODY_BYTES_MAX");
  for (const [account, tenant] of LOSS_BOUNDS) {
    const { [VARIABLES[account].field]: ofAccount = 0, [VARIABLES[tenant].field]: ofTenant = Infinity } = values;
    if (ofTenant < TENANT_LOSSES_MIN * ofAccount)
      fail(tenant, `must be at least twice ${account}, so that no customer alone can stop its reseller`);
  }
  if (port !== undefined && port !== 0 && port === internalPort) fail("INTERNAL_PORT", "must differ from PORT");
  if (port === 0 && values.processes !== undefined && values.processes > 1)
    fail("PORT", "must be a port of your choice if PROCESSES is above 1");
  if (values.smtpUrl && values.mailFrom === null) fail("MAIL_FROM", "must be set together with SMTP_URL");
  checkExport(values, fail);
  if (production && values.failpoints?.length !== 0) fail("FAILPOINTS", "must be empty in production");
}

function checkExport(values: Partial<Values>, fail: (name: Name, must: string) => void): void {
  const { exportUrl, exportForm: form, exportSecrets, messagesAllowPrivate = [] } = values;
  if (!exportUrl) return;
  const { protocol, hostname, port } = new URL(exportUrl);
  // What is sent could be read on its way. A private address that the operator allowed is in its own network.
  if (protocol !== "https:" && !messagesAllowPrivate.includes(`${hostname}:${port || "80"}`))
    fail("RECEIPT_EXPORT_URL", "must begin with https://, unless MESSAGES_ALLOW_PRIVATE names its host and port");
  if (form === "webhook" && exportSecrets?.length === 0)
    fail("RECEIPT_EXPORT_SECRET", "must be set together with RECEIPT_EXPORT_URL, unless RECEIPT_EXPORT_FORM is otlp");
}

/** What each account may lose in an hour, and what its tenant may. Source: LOS-2. */
const LOSS_BOUNDS = [
  ["UNPAID_ACCOUNT_MINUTES", "UNPAID_TENANT_MINUTES"],
  ["UNPAID_ACCOUNT_USD", "UNPAID_TENANT_USD"],
  ["UNPAID_ACCOUNT_TOKENS", "UNPAID_TENANT_TOKENS"],
] as const satisfies [Name, Name][];

/** Adds the defaults that depend on another variable, and groups what belongs together. */
function toConfig(values: Values) {
  const { accountShare, tenantShare, tracesEndpoint, tracesHeaders, tracesShare, tracesServiceName, ...rest } = values;
  const { exportUrl, exportForm: form, exportSecrets, exportHeaders, exportRows, ...plain } = rest;
  const { production, allowLocalHosts, drainNoticeSeconds } = plain;
  return {
    ...plain,
    allowLocalHosts: allowLocalHosts ?? !production,
    drainNoticeSeconds: drainNoticeSeconds ?? (production ? DRAIN_NOTICE_SECONDS : 0),
    /** Fractions of the replica's limits, from 0 to 1. */
    shares: { account: accountShare, tenant: tenantShare },
    /** Undefined: no traces. */
    traces:
      tracesEndpoint === ""
        ? undefined
        : {
            url: `${tracesEndpoint.replace(/\/+$/, "")}/v1/traces`,
            headers: tracesHeaders,
            share: tracesShare,
            serviceName: tracesServiceName,
          },
    /** Undefined: receipts are not exported. */
    receiptExport:
      exportUrl === ""
        ? undefined
        : {
            url: exportUrl,
            form,
            secrets: exportSecrets,
            headers: exportHeaders,
            rowsMax: exportRows,
            serviceName: tracesServiceName,
          },
  };
}

function exportForm(value: string): "webhook" | "otlp" {
  if (value === "webhook" || value === "otlp") return value;
  throw new InvalidValue("must be webhook or otlp");
}

function isWebhookSecret(value: string): boolean {
  const [, encoded = ""] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(value) ?? [];
  const { length } = Buffer.from(encoded, "base64");
  return length >= EXPORT_SECRET_BYTES.min && length <= EXPORT_SECRET_BYTES.max;
}

/** A wrong value for a message; only the length of one that may hold a secret. */
function shown({ secret }: Variable, value: string): string {
  if (secret) return `these ${value.length} characters`;
  return JSON.stringify(value.length > FOUND_CHARS_MAX ? `${value.slice(0, FOUND_CHARS_MAX)}…` : value);
}

function areResolvers(items: string[]): boolean {
  return items.length >= 2 && areServers(items);
}

function areServers(items: string[]): boolean {
  try {
    const different = new Set(items.map((item) => JSON.stringify(parseResolver(item))));
    return different.size === items.length && items.length <= DNS_RESOLVERS_MAX;
  } catch {
    return false; // parseResolver throws for text that is not an address.
  }
}

function failpoints(value: string): ArmedFailpoint[] {
  return list(
    () => true,
    "",
  )(value).map((item) => {
    const point = parseFailpoint(item);
    if (point === undefined) throw new InvalidValue("must be like after_reserve=kill or before_settle=freeze@3");
    return point;
  });
}
