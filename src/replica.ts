import { statfs } from "node:fs/promises";
import packageFacts from "../package.json" with { type: "json" };
import { pruneAudit } from "./accounts/audit_store.ts";
import { openBrandLookup } from "./accounts/brand_lookup.ts";
import { startDomainChecks } from "./accounts/domain_checks.ts";
import { pruneForms } from "./accounts/forms_store.ts";
import { openHostLookup } from "./accounts/host_lookup.ts";
import { ownHosts } from "./accounts/host_names.ts";
import { openKeyLookup } from "./accounts/key_lookup.ts";
import { openKeyUses } from "./accounts/key_uses.ts";
import { pruneKeys } from "./accounts/keys_store.ts";
import { pruneRefusals } from "./accounts/refusal_counts_store.ts";
import { openSessions } from "./accounts/sessions.ts";
import { pruneSessions } from "./accounts/sessions_store.ts";
import { startBooksCheck } from "./books/books_check.ts";
import { createBreakers } from "./catalog/breaker.ts";
import { openCatalog } from "./catalog/catalog.ts";
import { isNone } from "./catalog/overhead.ts";
import { decayOverheads } from "./catalog/overhead_store.ts";
import { createProviderClient } from "./catalog/provider_client.ts";
import { createProviderTests } from "./catalog/provider_test.ts";
import { type Config, ConfigError } from "./config.ts";
import type { Clock, Deps } from "./deps.ts";
import { asRefusal, toErrorResponse } from "./errors.ts";
import { createHiddenTokens } from "./gateway/hidden_tokens.ts";
import { createBodies, createGate, type LagWatch, watchLag } from "./gateway/limits.ts";
import { openRefusalCounts } from "./gateway/refusal_counts.ts";
import { createRelays } from "./gateway/relay.ts";
import { createTelemetry } from "./gateway/telemetry.ts";
import { createTokenCounter } from "./gateway/tokens.ts";
import { openDatabaseClock } from "./ledger/clock_store.ts";
import { type LedgerJobs, startLedgerJobs } from "./ledger/jobs.ts";
import { createLatency, timed } from "./ledger/latency.ts";
import { openLedger } from "./ledger/ledger.ts";
import { pruneOrders } from "./ledger/orders_store.ts";
import { rememberRefused } from "./ledger/refused.ts";
import { loadSite } from "./panel/site.ts";
import { createAttemptLimiter } from "./platform/attempt_limit.ts";
import { inProcessBus, redisBus } from "./platform/bus.ts";
import type { CacheCounters } from "./platform/cache.ts";
import { pruneChanges, startChangeReader } from "./platform/changes_store.ts";
import { openClaims } from "./platform/claims.ts";
import { newRequestId } from "./platform/crypto.ts";
import { connect, openDb } from "./platform/db.ts";
import { createFailpoint } from "./platform/failpoints.ts";
import { createLog, type Log } from "./platform/log.ts";
import { LONG_READS_MAX, openLongReads } from "./platform/long_reads.ts";
import { createMetrics, type MetricSources } from "./platform/metrics.ts";
import { createRateLimiter } from "./platform/rate_limit.ts";
import { giveMemoryBack, type ServeOptions, type Server, serve, within } from "./platform/runtime.ts";
import { checkSecretKey } from "./platform/secret_key_store.ts";
import { openTracing } from "./platform/tracing.ts";
import { createApp } from "./server/app.ts";
import { createInternalApp } from "./server/internal.ts";
import { watchPeak } from "./server/memory_trim.ts";

/** Wrong passwords: ten in a quarter of an hour, by account and by address. */
const SIGN_IN_POINTS = 10;
const SIGN_IN_WINDOW_SECONDS = 900;
const PRUNE_EVERY_MS = 600_000;
/** After the drain's time: to release what was ended. */
const END_MS_MAX = 3_000;
const SPOOL_POLL_MS = 50;
const CLOSE_MS_MAX = 3_000;

export type Replica = {
  port: number;
  /** Of the internal listener; undefined: there is none. */
  internalPort: number | undefined;
  deps: Deps;
  /**
   * Not ready, still serving → no new work → streams finish or are ended → settled. False: settlements still wait in the
   * spool.
   */
  drain(): Promise<boolean>;
  /** For a process that ends now: what is being settled goes to the spool. */
  abandon(): Promise<void>;
};

/** Builds one replica and serves: config → deps → app → jobs. The one place that constructs things. */
export async function startReplica(
  config: Config,
  clock: Clock,
  log: Log = createLog(config.logLevel),
): Promise<Replica> {
  const nowMs = () => clock.nowMs();
  const db = openDb(config);
  // Before anything is read or begun with it.
  await checkSecretKey(db, config.secretKey);
  const bus = config.redisUrl === "" ? inProcessBus(log) : redisBus(config.redisUrl, log);
  const cached = { db, bus, config, nowMs };
  const catalog = await openCatalog({ db, bus, config, log });
  const latency = createLatency(nowMs);
  const metrics = createMetrics();
  const opened = await openLedger({
    config,
    db,
    log,
    nowMs,
    startedMs: clock.unixMs(),
    onShed: metrics.shed,
    onBatch: metrics.batched,
  });
  const ledger = rememberRefused(timed(opened, { latency, metrics, nowMs }), {
    bus,
    clock: openDatabaseClock({ db, log, nowMs }),
    nowMs,
    onRemembered: metrics.refusalRemembered,
    onShed: metrics.shed,
  });
  const tracing = await openTracing({ config, version: packageFacts.version, clock, log });
  const lag = watchLag({ nowMs, maxMs: config.eventLoopLagMaxMs, log });
  const deps: Deps = {
    config,
    log,
    metrics,
    telemetry: createTelemetry({ metrics, log, logged: config.logRequests, tracing, nowMs, random: Math.random }),
    tracing,
    db,
    longReads: openLongReads({ config, log, onShed: metrics.shed, onTimeOut: metrics.timedOut }),
    bus,
    keys: openKeyLookup(cached),
    keyUses: openKeyUses({ db, log, nowMs }),
    refusals: openRefusalCounts({ db, log }),
    hosts: openHostLookup(cached),
    domainChecks: startDomainChecks({ db, bus, config, log }),
    brands: openBrandLookup(cached),
    ownHosts: ownHosts(config),
    apiHosts: ownHosts({ ...config, panelUrl: config.baseUrl }),
    panelHosts: ownHosts({ ...config, baseUrl: config.panelUrl, aliasUrl: "" }),
    sessions: openSessions(cached),
    site: await loadSite(config.panelDir),
    catalog,
    breakers: createBreakers({ now: nowMs, onOpen: metrics.breakerOpened }),
    provider: createProviderClient({ config, log, now: nowMs }),
    providerTests: createProviderTests({ config, db, log }),
    limiter: createRateLimiter({
      redisUrl: config.redisUrl,
      perMinute: config.ratePerMinute,
      accountPerMinute: config.rateAccountPerMinute,
      tenantPerMinute: config.rateTenantPerMinute,
      inFlight: config.rateInFlight,
      budgetMs: config.rateRedisMs,
      log,
      onShed: metrics.shed,
      onTimeOut: metrics.timedOut,
    }),
    signInLimiter: createAttemptLimiter({
      redisUrl: config.redisUrl,
      points: SIGN_IN_POINTS,
      windowSeconds: SIGN_IN_WINDOW_SECONDS,
      name: "sign-in",
      log,
    }),
    claims: openClaims({ redisUrl: config.redisUrl, leaseMs: config.leaseSeconds * 1000, nowMs, log }),
    tokens: createTokenCounter(log),
    hiddenTokens: createHiddenTokens({ db, bus, log }),
    ledger,
    booksCheck: startBooksCheck({ config, log }),
    relays: createRelays({
      providerIdleMs: config.providerIdleMs,
      clientIdleMs: config.clientIdleMs,
      readOnMs: config.providerTotalMs,
      nowMs,
      onTimeout: metrics.timedOut,
      onFailure: (err) => log.error({ err }, "a stream's end could not be told to the ledger"),
    }),
    clock,
    gate: createGate({
      max: config.inFlightMax,
      fractions: config.shares,
      isSpoolFull: () => !ledger.ready(),
      lag: lag.state,
      onShed: metrics.shed,
    }),
    bodies: createBodies({
      readsMax: config.bodyReadsMax,
      bytesMax: config.bodyMemoryMax,
      bodyBytesMax: config.bodyBytesMax,
      fractions: config.shares,
      onShed: metrics.shed,
    }),
    failpoint: createFailpoint(config.failpoints),
  };

  const changeReader = startChangeReader({
    connect: () => connect(config, 1),
    onChanges: bus.deliver,
    onGap: bus.gap,
    log,
  });
  const jobs = startLedgerJobs({
    ledger,
    db,
    log,
    replicaId: newRequestId(),
    version: packageFacts.version,
    health: () => ({
      inFlight: deps.gate.inFlight(),
      ledgerP99Ms: latency.p99Ms(),
      draining: deps.gate.draining(),
      busHealthy: bus.healthy(),
    }),
    leaseSeconds: config.leaseSeconds,
    nowMs,
  });
  const prune = setInterval(() => {
    pruneAll(deps).catch((err) => log.warn({ err }, "pruning waits"));
  }, PRUNE_EVERY_MS);

  bus.subscribe((changes) => {
    for (const { kind } of changes) metrics.changed(kind);
  });
  bus.onGap(() => metrics.changed("gap"));
  metrics.watch(sourcesOf(deps, { jobs, lag }));

  const peak = watchPeak({ inFlight: deps.gate.inFlight, giveBack: giveMemoryBack });
  const server = listen(deps, {
    variable: "PORT",
    port: config.port,
    hostname: config.listenHost,
    fetch: createApp(deps).fetch,
  });
  const internal =
    config.internalPort === null
      ? undefined
      : listen(deps, {
          variable: "INTERNAL_PORT",
          port: config.internalPort,
          hostname: config.internalHost,
          fetch: createInternalApp(deps),
        });

  return {
    port: server.port,
    internalPort: internal?.port,
    deps,
    abandon: ledger.abandon,
    async drain() {
      deps.gate.announce();
      await sleep(config.drainNoticeSeconds * 1000);
      const idle = deps.gate.drain();
      const stopped = server.stop();
      const deadlineMs = nowMs() + config.drainSeconds * 1000;
      await Promise.race([idle, sleep(config.drainSeconds * 1000)]);
      deps.gate.endAll();
      await deps.relays.endAll();
      // What was ended is still being released: nothing may be left for a reaper.
      await Promise.race([idle, sleep(END_MS_MAX)]);
      // A database that comes back in time still gets what waits for it.
      while (!ledger.status().spoolEmpty && nowMs() < deadlineMs) await sleep(SPOOL_POLL_MS);
      const { booksCheck, domainChecks, keyUses, refusals, claims, longReads } = deps;
      await inTime(log, { jobs: jobs.stop(), booksCheck: booksCheck.close(), domainChecks: domainChecks.close() });
      await ledger.close();
      const { spoolEmpty, holds } = ledger.status();
      // The last bytes of ended streams are on their way; who does not take them is cut.
      const clients = stopped;
      await inTime(log, { keyUses: keyUses.stop(), refusals: refusals.stop(), claims: claims.close(), clients });
      await server.closeNow();
      await internal?.closeNow();
      clearInterval(prune);
      lag.close();
      peak.close();
      deps.relays.close();
      deps.limiter.close();
      deps.signInLimiter.close();
      deps.tokens.close();
      deps.keys.close();
      deps.hosts.close();
      deps.brands.close();
      deps.sessions.close();
      catalog.close();
      bus.close();
      const traces = tracing?.close() ?? Promise.resolve();
      const pools = Promise.all([db.close(), longReads.close()]);
      await inTime(log, { changeReader: changeReader.close(), pools, traces });
      return spoolEmpty && holds === 0;
    },
  };
}

/** Forgets what has been kept for long enough, one kind after the other, in slices: it takes one connection of the pool. */
async function pruneAll(deps: Deps): Promise<void> {
  const { db, config } = deps;
  await pruneChanges(db);
  await pruneSessions(deps, config.sessionIdleSeconds);
  await pruneForms(deps);
  await pruneRefusals(deps);
  await decayOverheads(deps);
  if (config.historyDays === 0) return;
  await pruneAudit(deps, config.historyDays);
  await pruneKeys(deps, config.historyDays);
  await pruneOrders(deps, config.historyDays);
}

/** What the metrics read when somebody asks. */
function sourcesOf(deps: Deps, { jobs, lag }: { jobs: LedgerJobs; lag: LagWatch }): MetricSources {
  const { config, gate, bodies, ledger, booksCheck } = deps;
  const counted = (name: keyof CacheCounters) => () => ({
    keys: deps.keys.counters[name],
    hosts: deps.hosts.counters[name],
    brands: deps.brands.counters[name],
    sessions: deps.sessions.counters[name],
  });
  return {
    in_flight_requests: gate.inFlight,
    body_reads: bodies.reading,
    body_bytes: bodies.bytes,
    open_streams: deps.relays.count,
    streams_read_on: deps.relays.readOn,
    live_holds: () => ledger.status().holds,
    expired_holds: () => jobs.reaper().found,
    holds_reaped_total: () => jobs.reaper().reaped,
    ledger_queue_rows: () => ledger.status().queued,
    ledger_lane_rows: ledger.waiting,
    spool_bytes: () => ledger.spooled().bytes,
    spool_settlements: () => ledger.spooled().settlements,
    spool_aside_settlements: () => ledger.aside(),
    spool_disk_free_bytes: () => freeBytes(config.spoolDir),
    event_loop_lag_seconds: () => lag.lagMs() / 1000,
    draining: () => Number(gate.draining()),
    ready: () => Number(!gate.draining() && ledger.ready() && jobs.databaseUp()),
    database_up: () => Number(jobs.databaseUp()),
    bus_up: () => Number(deps.bus.healthy()),
    pool_queries: deps.db.underWay,
    long_reads: deps.longReads.underWay,
    breakers: deps.breakers.states,
    route_overheads: () =>
      deps.catalog
        .models()
        .reduce((sum, { routes }) => sum + routes.filter((route) => !isNone(route.overhead)).length, 0),
    books_broken: () => booksCheck.last().broken,
    books_uncounted: () => booksCheck.last().uncounted,
    books_checked_timestamp_seconds: () => booksCheck.last().checkedUnix,
    cache_hits_total: counted("hits"),
    cache_misses_total: counted("misses"),
    cache_drops_total: counted("drops"),
    cap: () => ({
      in_flight_requests: config.inFlightMax,
      body_reads: config.bodyReadsMax,
      body_bytes: config.bodyMemoryMax,
      ledger_queue_rows: config.ledgerQueueMax,
      spool_bytes: config.spoolBytesMax,
      event_loop_lag_seconds: config.eventLoopLagMaxMs / 1000,
      pool_queries: config.dbPoolMax,
      long_reads: LONG_READS_MAX,
    }),
  };
}

/** Room on a folder's disk for who is not root; 0 for a disk that cannot be asked, which is as bad as a full one. */
async function freeBytes(folder: string): Promise<number> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch {
    return 0;
  }
}

type Listening = Pick<ServeOptions, "port" | "hostname" | "fetch"> & { variable: "PORT" | "INTERNAL_PORT" };

/** Throws ConfigError naming `variable` where nobody can listen. */
function listen({ config, log }: Deps, { variable, ...where }: Listening): Server {
  const { clientIdleMs } = config;
  const onError = (error: unknown) => {
    const requestId = newRequestId();
    log.error({ err: error, requestId }, "a request failed at the door");
    return toErrorResponse(asRefusal(error), requestId);
  };
  try {
    return serve({ ...where, onError, clientIdleMs });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`${variable}: nothing can listen on ${where.hostname}:${where.port} (${why})`, {
      cause: error,
    });
  }
}

/** Waits for what closes, but not for long: it waits for a database or for clients, and has nothing to lose. */
async function inTime(log: Log, closing: Record<string, Promise<unknown>>): Promise<void> {
  const late = new Set(Object.keys(closing));
  const all = Object.entries(closing).map(([name, closed]) => closed.then(() => late.delete(name)));
  await within(CLOSE_MS_MAX, Promise.all(all)).catch((err) => log.warn({ err, late: [...late] }, "not closed in time"));
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
