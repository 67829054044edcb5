import type { BrandLookup } from "./accounts/brand_lookup.ts";
import type { DomainChecks } from "./accounts/domain_checks.ts";
import type { HostLookup } from "./accounts/host_lookup.ts";
import type { KeyLookup } from "./accounts/key_lookup.ts";
import type { KeyUses } from "./accounts/key_uses.ts";
import type { Sessions } from "./accounts/sessions.ts";
import type { BooksCheck } from "./books/books_check.ts";
import type { Breakers } from "./catalog/breaker.ts";
import type { Catalog } from "./catalog/catalog.ts";
import type { ProviderClient } from "./catalog/provider_client.ts";
import type { ProviderTests } from "./catalog/provider_test.ts";
import type { Config } from "./config.ts";
import type { HiddenTokens } from "./gateway/hidden_tokens.ts";
import type { Gate } from "./gateway/limits.ts";
import type { RefusalCounts } from "./gateway/refusal_counts.ts";
import type { Relays } from "./gateway/relay.ts";
import type { Telemetry } from "./gateway/telemetry.ts";
import type { TokenCounter } from "./gateway/tokens.ts";
import type { Ledger } from "./ledger/ledger.ts";
import type { Site } from "./panel/site.ts";
import type { AttemptLimiter } from "./platform/attempt_limit.ts";
import type { Bus } from "./platform/bus.ts";
import type { Claims } from "./platform/claims.ts";
import type { Db } from "./platform/db.ts";
import type { Failpoint } from "./platform/failpoints.ts";
import type { Log } from "./platform/log.ts";
import type { LongReads } from "./platform/long_reads.ts";
import type { Metrics } from "./platform/metrics.ts";
import type { RateLimiter } from "./platform/rate_limit.ts";
import type { Owner } from "./platform/shares.ts";
import type { Tracing } from "./platform/tracing.ts";

/** Everything one replica is made of. Constructed in main.ts, handed down as the first argument. */
export type Deps = {
  config: Config;
  log: Log;
  metrics: Metrics;
  telemetry: Telemetry;
  /** Undefined where no collector of traces is configured. */
  tracing: Tracing | undefined;
  db: Db;
  /** What may take long is read by these, never from `db`. */
  longReads: LongReads;
  bus: Bus;
  keys: KeyLookup;
  keyUses: KeyUses;
  refusals: RefusalCounts;
  hosts: HostLookup;
  domainChecks: DomainChecks;
  brands: BrandLookup;
  /** The service's own hosts. */
  ownHosts: ReadonlySet<string>;
  /** Those of them that serve the API. */
  apiHosts: ReadonlySet<string>;
  /** Those of them that serve the panel. */
  panelHosts: ReadonlySet<string>;
  sessions: Sessions;
  /** The panel's pages; undefined where they were not built. */
  site: Site | undefined;
  catalog: Catalog;
  breakers: Breakers;
  provider: ProviderClient;
  providerTests: ProviderTests;
  limiter: RateLimiter;
  signInLimiter: AttemptLimiter;
  /** Requests that are to be served once, by their Idempotency-Key. */
  claims: Claims;
  tokens: TokenCounter;
  hiddenTokens: HiddenTokens;
  ledger: Ledger;
  booksCheck: BooksCheck;
  relays: Relays;
  clock: Clock;
  gate: Gate;
  bodies: Bodies;
  failpoint: Failpoint;
};

export type Clock = {
  /** Monotonic, ms. */
  nowMs(): number;
  /** Unix time, ms. For keys' expiry in the cache and `created`; the ledger uses the database's. */
  unixMs(): number;
};

/** Limits how many request bodies are read at once, and how many bytes of them are kept; an account and a tenant get a share. */
export type Bodies = {
  /**
   * Makes room for a body of so many bytes, as declared, which is to be read now. Throws service_unavailable when the replica
   * has no room, too_many_requests when the account or the tenant holds its share.
   */
  open(owner: Owner, bytes: number): BodyRoom;
  /** Bodies that are being read. */
  reading(): number;
  /** Bytes that are held. */
  bytes(): number;
};

/** The room that one body takes. */
export type BodyRoom = {
  /** More of a body came whose length was not declared. Throws as `open`, and an Error when nobody waits for it any more. */
  grow(bytes: number): void;
  /** It was read: its bytes are still kept. */
  wasRead(): void;
  /** Its text is kept no longer. A second call does nothing. */
  close(): void;
};
