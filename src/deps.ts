import type { BrandLookup } from "./accounts/brand_lookup.ts";
import type { DomainChecks } from "./accounts/domain_checks.ts";
import type { HostLookup } from "./accounts/host_lookup.ts";
import type { KeyLookup } from "./accounts/key_lookup.ts";
import type { KeyUses } from "./accounts/key_uses.ts";
import type { Losses } from "./accounts/losses.ts";
import type { Sessions } from "./accounts/sessions.ts";
import type { BooksCheck } from "./books/check_schedule.ts";
import type { BoundUses } from "./catalog/bound_uses.ts";
import type { Breakers } from "./catalog/breaker.ts";
import type { Catalog } from "./catalog/catalog.ts";
import type { KeyStates } from "./catalog/key_states.ts";
import type { ProviderTests } from "./catalog/provider_check.ts";
import type { ProviderClient } from "./catalog/provider_client.ts";
import type { RouteSpeeds } from "./catalog/route_speeds.ts";
import type { RouteStats } from "./catalog/route_stats.ts";
import type { PdfDrawer } from "./commerce/pdf_drawer.ts";
import type { PricesPublicLookup } from "./commerce/prices_public_lookup.ts";
import type { Config } from "./config.ts";
import type { HiddenTokens } from "./gateway/hidden_tokens.ts";
import type { LargeEmbeddings } from "./gateway/large_embeddings.ts";
import type { Bodies, Gate } from "./gateway/limits.ts";
import type { RefusalCounts } from "./gateway/refusal_counts.ts";
import type { Relays } from "./gateway/relay.ts";
import type { StoredResponses } from "./gateway/responses/stored_responses.ts";
import type { Telemetry } from "./gateway/telemetry.ts";
import type { TokenCounter } from "./gateway/tokens.ts";
import type { Ledger } from "./ledger/ledger.ts";
import type { Messages } from "./messages/delivery.ts";
import type { CallPlaces } from "./panel/api/asked_calls.ts";
import type { Site } from "./panel/built_site.ts";
import type { AnswerMemory } from "./platform/answer_memory.ts";
import type { Bus } from "./platform/bus.ts";
import type { Db } from "./platform/db.ts";
import type { FailedAttemptLimiter } from "./platform/failed_attempt_limit.ts";
import type { Failpoint } from "./platform/failpoints.ts";
import type { IdempotencyClaims } from "./platform/idempotency_claims.ts";
import type { Log } from "./platform/log.ts";
import type { LongReads } from "./platform/long_reads.ts";
import type { Metrics } from "./platform/metrics.ts";
import type { RateLimiter } from "./platform/rate_limit.ts";
import type { Places } from "./platform/semaphore.ts";
import type { Tracing } from "./platform/tracing.ts";

/** Everything that one replica consists of. Constructed in replica.ts, passed down as the first argument. */
export type Deps = {
  config: Config;
  log: Log;
  metrics: Metrics;
  telemetry: Telemetry;
  /** Undefined if no trace collector is configured. */
  tracing: Tracing | undefined;
  db: Db;
  /** For reads that may take long, instead of `db`. */
  longReads: LongReads;
  bus: Bus;
  keys: KeyLookup;
  keyUses: KeyUses;
  refusals: RefusalCounts;
  /** What the operator bears of requests that nobody pays, and who is stopped for it. */
  losses: Losses;
  hosts: HostLookup;
  domainChecks: DomainChecks;
  messages: Messages;
  brands: BrandLookup;
  pricesPublic: PricesPublicLookup;
  /** The service's own hosts. */
  ownHosts: ReadonlySet<string>;
  /** Those own hosts that serve the API. */
  apiHosts: ReadonlySet<string>;
  /** Those own hosts that serve the panel. */
  panelHosts: ReadonlySet<string>;
  sessions: Sessions;
  /** The panel's pages; undefined if they were not built. */
  site: Site | undefined;
  catalog: Catalog;
  breakers: Breakers;
  routeStats: RouteStats;
  boundUses: BoundUses;
  /** For models that choose their routes by latency. */
  routeSpeeds: RouteSpeeds;
  keyStates: KeyStates;
  provider: ProviderClient;
  providerTests: ProviderTests;
  limiter: RateLimiter;
  signInLimiter: FailedAttemptLimiter;
  /** Idempotency claims: requests with the same Idempotency-Key are served once. */
  claims: IdempotencyClaims;
  tokens: TokenCounter;
  pdfs: PdfDrawer;
  hiddenTokens: HiddenTokens;
  largeEmbeddings: LargeEmbeddings;
  storedResponses: StoredResponses;
  ledger: Ledger;
  booksCheck: BooksCheck;
  relays: Relays;
  clock: Clock;
  gate: Gate;
  bodies: Bodies;
  answerMemory: AnswerMemory;
  /** For images that were handed out by URL, and are being fetched. */
  imagePlaces: Places;
  /** For calls to other servers that people ask for. */
  callPlaces: CallPlaces;
  failpoint: Failpoint;
};

export type Clock = {
  /** Monotonic, ms. */
  nowMs(): number;
  /** Unix time by the database's clock, ms, as this replica estimates it: never ahead of it. For the expiry of cached keys, and for `created`. */
  unixMs(): number;
};

/** The clocks of the machine. Rooms get no `wallMs`: it may be minutes off, and no due time, claim or expiry may depend on it. */
export type MachineClock = {
  /** Monotonic, ms. */
  nowMs(): number;
  /** Unix time, ms. */
  wallMs(): number;
};
