import { isIPv4 } from "node:net";
import { parseResolver } from "./platform/dns_query.ts";

/**
 * Reads the environment once into a typed Config. Every variable, its default and its unit stand in VARIABLES;
 * the README's table is checked against it by a test.
 */

const SERVER_ADDRESSES_MAX = 10;
const DNS_RESOLVERS_MAX = 8;

type Kind = "string" | "url" | "integer" | "flag" | "list" | "secret";
type Variable = { kind: Kind; default?: string; min?: number; max?: number; unit?: string; what: string };

export const VARIABLES = {
  NODE_ENV: { kind: "string", default: "development", what: "production turns local hosts off" },
  PORT: { kind: "integer", default: "8080", min: 0, max: 65535, what: "public port; 0 takes a free one" },
  LISTEN_HOST: { kind: "string", default: "0.0.0.0", what: "address to listen on" },
  DATABASE_URL: { kind: "url", what: "Postgres 15 or newer" },
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
    what: "ledger batches under way at once",
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
  REDIS_URL: { kind: "url", default: "", what: "Redis 7 or newer, or Valkey; empty: one replica, in-process" },
  SECRET_KEY: { kind: "secret", what: "32 bytes in base64 or hex: encrypts provider keys" },
  BASE_URL: { kind: "url", default: "http://localhost:8080/v1", what: "the API's public address, ends in /v1" },
  ALIAS_URL: { kind: "url", default: "", what: "root-domain alias of the API, ends in /v1" },
  PANEL_URL: { kind: "url", default: "http://localhost:8080", what: "the panel's public address" },
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
    what: "addresses of proxies whose X-Forwarded-For is believed; empty: none",
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
  IN_FLIGHT_MAX: {
    kind: "integer",
    default: "10000",
    min: 1,
    unit: "requests",
    what: "metered requests under way in one replica",
  },
  RATE_PER_MINUTE: { kind: "integer", default: "600", min: 1, unit: "requests", what: "per key" },
  RATE_IN_FLIGHT: { kind: "integer", default: "300", min: 1, unit: "requests", what: "per key" },
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
  CACHE_TTL_MS: { kind: "integer", default: "30000", min: 100, unit: "ms", what: "longest life of a cached entry" },
  DRAIN_SECONDS: {
    kind: "integer",
    default: "30",
    min: 1,
    unit: "s",
    what: "streams may finish for this long after SIGTERM",
  },
  LOG_LEVEL: { kind: "string", default: "info", what: "trace, debug, info, warn, error, silent" },
} as const satisfies Record<string, Variable>;

export type Config = ReturnType<typeof build>;

/** Every problem at once, a line each, so that an operator mends them in one go. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/** Reads and checks the environment. Throws ConfigError naming every missing or wrong variable. */
export function readConfig(env: Record<string, string | undefined>): Config {
  const problems: string[] = [];
  const read = (name: keyof typeof VARIABLES): string => {
    const variable: Variable = VARIABLES[name];
    const value = env[name]?.trim() || variable.default;
    if (value === undefined) {
      problems.push(`${name} is not set: ${variable.what}`);
      return "";
    }
    const problem = value === "" ? undefined : check(variable, value);
    if (problem) problems.push(`${name} ${problem}: ${variable.what}`);
    return value;
  };
  const config = build(read, problems);
  if (problems.length > 0)
    throw new ConfigError(`The configuration is wrong:\n${problems.map((p) => `  - ${p}`).join("\n")}`);
  return config;
}

function check(variable: Variable, value: string): string | undefined {
  switch (variable.kind) {
    case "integer": {
      if (!/^\d{1,15}$/.test(value)) return "must be a whole number";
      const n = Number(value);
      if (variable.min !== undefined && n < variable.min) return `must be at least ${variable.min}`;
      if (variable.max !== undefined && n > variable.max) return `must be at most ${variable.max}`;
      return undefined;
    }
    case "url":
      return URL.canParse(value) ? undefined : "must be a URL";
    case "flag":
      return value === "true" || value === "false" ? undefined : "must be true or false";
    case "secret":
      return secretBytes(value)?.length === 32 ? undefined : "must be 32 bytes in base64 or hex";
    default:
      return undefined;
  }
}

function secretBytes(value: string): Buffer | undefined {
  if (/^[0-9a-f]{64}$/i.test(value)) return Buffer.from(value, "hex");
  return /^[A-Za-z0-9+/_-]+=*$/.test(value) ? Buffer.from(value, "base64") : undefined;
}

function build(read: (name: keyof typeof VARIABLES) => string, problems: string[]) {
  const integer = (name: keyof typeof VARIABLES) => Number(read(name));
  const list = (name: keyof typeof VARIABLES) =>
    read(name)
      .split(",")
      .map((item) => item.trim())
      .filter(Boolean);
  const production = read("NODE_ENV") === "production";
  const timeZone = read("BILLING_TIMEZONE");
  if (!isTimeZone(timeZone)) problems.push("BILLING_TIMEZONE must be an IANA time zone, as in Europe/Berlin");
  const brandSupport = read("BRAND_SUPPORT");
  if (brandSupport !== "" && !/^(?:https:\/\/[^\s]+|[^\s@/]+@[^\s@/]+)$/i.test(brandSupport))
    problems.push("BRAND_SUPPORT must be an e-mail address or an https URL");
  const serverAddresses = list("SERVER_ADDRESSES");
  if (serverAddresses.length > SERVER_ADDRESSES_MAX || !serverAddresses.every((address) => isIPv4(address)))
    problems.push(`SERVER_ADDRESSES must be at most ${SERVER_ADDRESSES_MAX} IPv4 addresses`);
  const dnsResolvers = list("DNS_RESOLVERS");
  if (!areResolvers(dnsResolvers))
    problems.push(`DNS_RESOLVERS must be the addresses of 2 to ${DNS_RESOLVERS_MAX} different resolvers`);
  const apiUrl = (name: "BASE_URL" | "ALIAS_URL") => {
    const value = read(name);
    if (value !== "" && URL.canParse(value) && new URL(value).pathname.replace(/\/$/, "") !== "/v1")
      problems.push(`${name} must end in /v1`);
    return value.replace(/\/$/, "");
  };
  return {
    production,
    port: integer("PORT"),
    listenHost: read("LISTEN_HOST"),
    databaseUrl: read("DATABASE_URL"),
    dbPrepare: read("DB_PREPARE") === "true",
    dbPoolMax: integer("DB_POOL_MAX"),
    ledgerLanes: integer("LEDGER_LANES"),
    ledgerQueueMax: integer("LEDGER_QUEUE_MAX"),
    ledgerTimeoutMs: integer("LEDGER_TIMEOUT_MS"),
    leaseSeconds: integer("LEASE_SECONDS"),
    spoolDir: read("SPOOL_DIR"),
    redisUrl: read("REDIS_URL"),
    secretKey: secretBytes(read("SECRET_KEY")) ?? Buffer.alloc(0),
    baseUrl: apiUrl("BASE_URL"),
    aliasUrl: apiUrl("ALIAS_URL"),
    panelUrl: read("PANEL_URL").replace(/\/$/, ""),
    brandName: read("BRAND_NAME"),
    brandSupport,
    panelDir: read("PANEL_DIR"),
    allowLocalHosts: read("ALLOW_LOCAL_HOSTS") === "" ? !production : read("ALLOW_LOCAL_HOSTS") === "true",
    serverAddresses,
    dnsResolvers,
    trustedProxies: list("TRUSTED_PROXIES"),
    billingTimeZone: timeZone,
    bodyBytesMax: integer("BODY_BYTES_MAX"),
    inFlightMax: integer("IN_FLIGHT_MAX"),
    ratePerMinute: integer("RATE_PER_MINUTE"),
    rateInFlight: integer("RATE_IN_FLIGHT"),
    providerConnectMs: integer("PROVIDER_CONNECT_MS"),
    providerFirstByteMs: integer("PROVIDER_FIRST_BYTE_MS"),
    providerIdleMs: integer("PROVIDER_IDLE_MS"),
    providerTotalMs: integer("PROVIDER_TOTAL_MS"),
    clientIdleMs: integer("CLIENT_IDLE_MS"),
    providerAllowPrivate: list("PROVIDER_ALLOW_PRIVATE"),
    sessionIdleSeconds: integer("SESSION_IDLE_SECONDS"),
    sessionMaxSeconds: integer("SESSION_MAX_SECONDS"),
    cacheTtlMs: integer("CACHE_TTL_MS"),
    drainSeconds: integer("DRAIN_SECONDS"),
    logLevel: read("LOG_LEVEL"),
  };
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
