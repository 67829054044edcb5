import packageFacts from "../package.json" with { type: "json" };
import { pruneAudit } from "./accounts/audit_store.ts";
import { openBrandLookup } from "./accounts/brand_lookup.ts";
import { startDomainChecks } from "./accounts/domain_checks.ts";
import { pruneEmailChanges } from "./accounts/email_changes_store.ts";
import { pruneForms } from "./accounts/forms_store.ts";
import { openHostLookup } from "./accounts/host_lookup.ts";
import { ownHosts } from "./accounts/host_names.ts";
import { openKeyLookup } from "./accounts/key_lookup.ts";
import { openKeyUses } from "./accounts/key_uses.ts";
import { pruneKeys } from "./accounts/keys_store.ts";
import { lossBoundsOf, openLosses } from "./accounts/losses.ts";
import { pruneChallenges } from "./accounts/passkeys_store.ts";
import { pruneRefusals } from "./accounts/refusal_counts_store.ts";
import { openSessions } from "./accounts/sessions.ts";
import { pruneSessions } from "./accounts/sessions_store.ts";
import { startBooksCheck } from "./books/check_schedule.ts";
import { openBoundUses } from "./catalog/bound_uses.ts";
import { pruneBoundUses } from "./catalog/bound_uses_store.ts";
import { createBreakers } from "./catalog/breaker.ts";
import { openCatalog } from "./catalog/catalog.ts";
import { openKeyStates } from "./catalog/key_states.ts";
import { prunePauses } from "./catalog/key_states_store.ts";
import { createProviderTests } from "./catalog/provider_check.ts";
import { createProviderClient } from "./catalog/provider_client.ts";
import { openRouteSpeeds } from "./catalog/route_speeds.ts";
import { openRouteStats } from "./catalog/route_stats.ts";
import { pruneRouteStats } from "./catalog/route_stats_store.ts";
import { pruneOrders } from "./commerce/orders_store.ts";
import { startPaymentUpkeep } from "./commerce/payment_upkeep.ts";
import { createPdfDrawer } from "./commerce/pdf_drawer.ts";
import { openPricesPublicLookup } from "./commerce/prices_public_lookup.ts";
import { pruneGuesses } from "./commerce/voucher_guesses_store.ts";
import { pruneVouchers } from "./commerce/vouchers_store.ts";
import type { Config } from "./config.ts";
import type { Deps, MachineClock } from "./deps.ts";
import { createHiddenTokens } from "./gateway/hidden_tokens.ts";
import { createImagePlaces } from "./gateway/image_files.ts";
import { LargeEmbeddings } from "./gateway/large_embeddings.ts";
import { createBodies, createGate, type LagWatch, watchLag } from "./gateway/limits.ts";
import { openRefusalCounts } from "./gateway/refusal_counts.ts";
import { createRelays } from "./gateway/relay.ts";
import { createStoredResponses } from "./gateway/responses/stored_responses.ts";
import { turnResponseDays } from "./gateway/responses/stored_responses_store.ts";
import { createTelemetry } from "./gateway/telemetry.ts";
import { createTokenCounter } from "./gateway/tokens.ts";
import { EMBEDDINGS_BYTES_MAX } from "./gateway/upstream_embeddings.ts";
import { IMAGE_ANSWER_BYTES_MAX } from "./gateway/upstream_images.ts";
import { startLedgerJobs } from "./ledger/jobs.ts";
import type { Ledger } from "./ledger/ledger.ts";
import { openLedger } from "./ledger/open_ledger.ts";
import { createReserveLatency, type ReserveLatency } from "./ledger/reserve_latency.ts";
import { pruneOutbox } from "./messages/deliveries_store.ts";
import { startMessages } from "./messages/delivery.ts";
import { createCallPlaces } from "./panel/api/asked_calls.ts";
import { loadSite } from "./panel/built_site.ts";
import { AnswerMemory } from "./platform/answer_memory.ts";
import { inProcessBus, redisBus } from "./platform/bus.ts";
import { pruneChanges, startChangeReader } from "./platform/changes_store.ts";
import { newRequestId } from "./platform/crypto.ts";
import { type DatabaseClock, openDatabaseClock } from "./platform/database_clock_store.ts";
import { connect, openDb } from "./platform/db.ts";
import { every, type Job } from "./platform/every.ts";
import { createFailedAttemptLimiter } from "./platform/failed_attempt_limit.ts";
import { createFailpoint } from "./platform/failpoints.ts";
import { inProcessIdempotencyClaims } from "./platform/idempotency_claims.ts";
import { createLog, type Log } from "./platform/log.ts";
import { openLongReads } from "./platform/long_reads.ts";
import { createMetrics } from "./platform/metrics.ts";
import { setNameServers } from "./platform/names.ts";
import { createRateLimiter } from "./platform/rate_limit.ts";
import { redisIdempotencyClaims } from "./platform/redis_idempotency_claims.ts";
import { giveMemoryBack, type Server } from "./platform/runtime.ts";
import { checkSecretKey } from "./platform/secret_key_store.ts";
import { setLookUpMsMax, within } from "./platform/time_limit.ts";
import { openTracing } from "./platform/tracing.ts";
import { createApp } from "./server/app.ts";
import { createInternalApp } from "./server/internal.ts";
import { listen } from "./server/listen.ts";
import { trimMemory } from "./server/memory_trim.ts";
import { metricSources } from "./server/metric_sources.ts";

/** Ten wrong passwords in a quarter of an hour, counted by account and by address. */
const SIGN_IN_POINTS = 10;
const SIGN_IN_WINDOW_SECONDS = 900;
const PRUNE_EVERY_MS = 600_000;
/** For one kind of rows. It deletes in slices, so one that takes longer waits for something. */
const PRUNE_MS_MAX = 120_000;
/** After the drain's time: for the holds of the requests that were ended to be released. */
const RELEASE_MS_MAX = 3_000;
/** Of the time that a request may wait for Postgres: what a transaction may wait for a lock. The rest is for its own work. */
const LOCK_SHARE = 5 / 6;
/** Before that: for the tokens of the streams that were ended to be counted. */
const COUNT_MS_MAX = 1_000;
const SPOOL_POLL_MS = 50;
const CLOSE_MS_MAX = 3_000;

export type Replica = {
  port: number;
  /** Port of the internal listener; undefined if there is none. */
  internalPort: number | undefined;
  deps: Deps;
  /**
   * Not ready but serving → no new work → streams finish or are ended → all holds settled or released. False: settlements
   * still wait in the spool.
   */
  drain(): Promise<boolean>;
  /** For a process that exits now: settlements under way are written to the spool. */
  abandon(): Promise<void>;
};

/**
 * Builds one replica and serves: dependencies → background work → listeners. Everything is constructed in this file.
 * Throws ConfigError.
 */
export async function startReplica(
  config: Config,
  machine: MachineClock,
  log: Log = createLog(config.logLevel),
): Promise<Replica> {
  const parts = await openParts(config, machine, log);
  const { deps } = parts;
  const background = startBackground(parts);
  deps.metrics.watch(metricSources(deps, { jobs: background.jobs, lag: parts.lag }));
  const servers = startServers(deps);
  return {
    port: servers.main.port,
    internalPort: servers.internal?.port,
    deps,
    abandon: deps.ledger.abandon,
    drain: () => drain(parts, background, servers),
  };
}

/** Deps, with what only this file uses. */
type Parts = { deps: Deps; latency: ReserveLatency; lag: LagWatch };
/** What most parts are built from. */
type Base = Pick<Deps, "config" | "log" | "metrics" | "db" | "bus"> & {
  nowMs: () => number;
  clock: Deps["clock"] & Pick<DatabaseClock, "earliestMs">;
};

async function openParts(config: Config, machine: MachineClock, log: Log): Promise<Parts> {
  const nowMs = () => machine.nowMs();
  const wallMs = () => machine.wallMs();
  setNameServers(config.nameServers);
  setLookUpMsMax(config.ledgerTimeoutMs);
  const db = openDb({ ...config, lockMsMax: Math.round(LOCK_SHARE * config.ledgerTimeoutMs) });
  // First: nothing may be decrypted or encrypted with a wrong key.
  await checkSecretKey(db, config.secretKey);
  await turnResponseDays({ db }, config.responsesKeepHours);
  const bus = config.redisUrl === "" ? inProcessBus(log) : redisBus(config.redisUrl, log);
  const metrics = createMetrics();
  const { read, ...databaseClock } = openDatabaseClock({ db, log, nowMs, wallMs });
  await read();
  const clock = { nowMs, ...databaseClock };
  const base: Base = { config, log, clock, metrics, db, bus, nowMs };
  const catalog = await openCatalog(base);
  const providerParts = createProviderParts(base);
  const keyStates = await openKeyStates({ ...base, catalog, provider: providerParts.provider });
  const { ledger, latency } = await openMeasuredLedger(base, wallMs);
  const tracing = await openTracing({ config, version: packageFacts.version, clock, log });
  const lag = watchLag({ nowMs, maxMs: config.eventLoopLagMaxMs, log });
  const failpoint = createFailpoint(config.failpoints);
  const limits = createLimits(base, ledger, lag);
  const deps: Deps = {
    config,
    log,
    clock,
    metrics,
    tracing,
    telemetry: createTelemetry({ metrics, log, logged: config.logRequests, tracing, nowMs, random: Math.random }),
    db,
    longReads: openLongReads({ config, log, onShed: metrics.shed, onTimeOut: metrics.timedOut }),
    bus,
    ledger,
    catalog,
    keyStates,
    routeSpeeds: openRouteSpeeds({ db, catalog, log }),
    ...openLookups(base),
    ...openRecords(base),
    messages: startMessages({ config, log, db, bus, random: Math.random, failpoint }),
    ...providerParts,
    ...limits,
    storedResponses: createStoredResponses({ ...base, bodies: limits.bodies }),
    site: await loadSite(config.panelDir, log),
    failpoint,
  };
  ledger.onUnpaid(({ accountId, nanoUsd, tokens }) => {
    deps.losses.note({ accountId }, "shortfall", nanoUsd);
    deps.losses.note({ accountId }, "tokens", BigInt(tokens));
  });
  return { deps, latency, lag };
}

/** The ledger, and how long its reserves take. */
async function openMeasuredLedger({ config, log, clock, metrics, db, bus, nowMs }: Base, wallMs: () => number) {
  const latency = createReserveLatency(nowMs);
  const ledger = await openLedger({
    ...{ config, db, log, nowMs, wallMs, metrics, latency, bus, clock },
    startedMs: wallMs(),
  });
  return { ledger, latency };
}

/** Cached look-ups, and the service's own hosts. */
function openLookups(base: Base) {
  const { config } = base;
  return {
    keys: openKeyLookup(base),
    hosts: openHostLookup(base),
    brands: openBrandLookup(base),
    pricesPublic: openPricesPublicLookup(base),
    sessions: openSessions(base),
    ownHosts: ownHosts(config),
    apiHosts: ownHosts({ ...config, panelUrl: config.baseUrl }),
    panelHosts: ownHosts({ ...config, baseUrl: config.panelUrl, aliasUrl: "" }),
  };
}

/** What is written or checked in the background of requests. */
function openRecords({ config, log, metrics, db, bus, nowMs }: Base) {
  return {
    keyUses: openKeyUses({ db, log, nowMs }),
    refusals: openRefusalCounts({ db, log }),
    losses: openLosses({ db, log, nowMs, metrics, bounds: lossBoundsOf(config) }),
    routeStats: openRouteStats({ db, log }),
    boundUses: openBoundUses({ db, log }),
    domainChecks: startDomainChecks({ db, bus, config, log }),
    booksCheck: startBooksCheck({ config, log }),
    pdfs: createPdfDrawer(log),
  };
}

function createProviderParts({ config, log, metrics, db, bus, nowMs }: Base) {
  return {
    breakers: createBreakers({ now: nowMs, onOpen: metrics.breakerOpened }),
    provider: createProviderClient({ config, log, now: nowMs }),
    providerTests: createProviderTests({ config, db, log }),
    tokens: createTokenCounter({ log, waitingMax: 2 * config.inFlightMax }),
    hiddenTokens: createHiddenTokens({ db, bus, log }),
    largeEmbeddings: new LargeEmbeddings(EMBEDDINGS_BYTES_MAX),
    relays: createRelays({
      providerIdleMs: config.providerIdleMs,
      clientIdleMs: config.clientIdleMs,
      readOnMs: config.providerTotalMs,
      onShed: metrics.shed,
      nowMs,
      onTimeout: metrics.timedOut,
      onFailure: (err) => log.error({ err }, "the end of a stream could not be settled or released"),
    }),
  };
}

/** Limits of rates and of what is served at once, and the idempotency claims. */
function createLimits({ config, log, metrics, nowMs }: Base, ledger: Ledger, lag: LagWatch) {
  const { redisUrl } = config;
  const onShed = metrics.shed;
  return {
    limiter: createRateLimiter({
      redisUrl,
      perMinute: config.ratePerMinute,
      accountPerMinute: config.rateAccountPerMinute,
      tenantPerMinute: config.rateTenantPerMinute,
      inFlight: config.rateInFlight,
      budgetMs: config.rateRedisMs,
      log,
      onShed,
      onTimeOut: metrics.timedOut,
    }),
    signInLimiter: createFailedAttemptLimiter({
      redisUrl,
      points: SIGN_IN_POINTS,
      windowSeconds: SIGN_IN_WINDOW_SECONDS,
      name: "sign-in",
      log,
    }),
    claims:
      redisUrl === ""
        ? inProcessIdempotencyClaims({ nowMs })
        : redisIdempotencyClaims(redisUrl, { leaseMs: config.leaseSeconds * 1000, nowMs, log }),
    gate: createGate({
      max: config.inFlightMax,
      fractions: config.shares,
      isSpoolFull: () => !ledger.ready(),
      lag: lag.state,
      onShed,
    }),
    bodies: createBodies({
      readsMax: config.bodyReadsMax,
      bytesMax: config.bodyMemoryMax,
      bodyBytesMax: config.bodyBytesMax,
      fractions: config.shares,
      onShed,
    }),
    answerMemory: new AnswerMemory({
      max: config.answerMemoryMax,
      fractions: config.shares,
      min: IMAGE_ANSWER_BYTES_MAX,
      onShed,
    }),
    imagePlaces: createImagePlaces(onShed),
    callPlaces: createCallPlaces(onShed),
  };
}

type Background = ReturnType<typeof startBackground>;

/** Work that no request waits for. */
function startBackground({ deps, latency }: Parts) {
  const { config, log, clock, db, bus, metrics, gate, ledger } = deps;
  bus.subscribe((changes) => {
    for (const { kind } of changes) if (kind !== "escrow") metrics.changed(kind);
  });
  bus.onGap(() => metrics.changed("gap"));
  return {
    changeReader: startChangeReader({
      connect: () => connect(config, 1),
      onChanges: bus.deliver,
      onGap: bus.gap,
      onNewServer: deps.longReads.reconnect,
      log,
    }),
    jobs: startLedgerJobs({
      ledger,
      db,
      log,
      replicaId: newRequestId(),
      version: packageFacts.version,
      health: () => ({
        inFlight: gate.inFlight(),
        ledgerP99Ms: latency.p99Ms(),
        draining: gate.draining(),
        busHealthy: bus.healthy(),
      }),
      leaseSeconds: config.leaseSeconds,
      nowMs: () => clock.nowMs(),
    }),
    pruning: startPruning(deps),
    paymentUpkeep: startPaymentUpkeep(deps),
    memoryTrim: trimMemory({ inFlight: gate.inFlight, takePeak: gate.takePeak, giveBack: giveMemoryBack }),
  };
}

function startPruning(deps: Deps): Job {
  const late = new Set<string>();
  const failure = "not everything could be pruned";
  return every({ name: "pruning", ms: PRUNE_EVERY_MS, run: () => pruneAll(deps, { late }), log: deps.log, failure });
}

/**
 * Deletes what is past its retention, one kind after the other and in slices, so that it uses one connection of the pool. A kind that
 * fails, or takes longer than `msMax`, is logged, and the others are deleted all the same. `late`: kinds that have not ended; they are left
 * out until they have. Throws if a kind failed.
 */
export async function pruneAll(
  deps: Pick<Deps, "db" | "bus" | "config" | "log">,
  { late = new Set(), msMax = PRUNE_MS_MAX }: { late?: Set<string>; msMax?: number } = {},
): Promise<void> {
  const { db, config, log } = deps;
  const { sessionIdleSeconds, historyDays } = config;
  const short: Record<string, () => Promise<unknown>> = {
    changes: () => pruneChanges(db),
    sessions: () => pruneSessions(deps, sessionIdleSeconds),
    challenges: () => pruneChallenges(deps),
    emailChanges: () => pruneEmailChanges(deps),
    forms: () => pruneForms(deps),
    guesses: () => pruneGuesses(deps),
    refusals: () => pruneRefusals(deps),
    routeStats: () => pruneRouteStats(deps),
    boundUses: () => pruneBoundUses(deps),
    pauses: () => prunePauses(deps),
    outbox: () => pruneOutbox(deps),
    responses: () => turnResponseDays(deps, config.responsesKeepHours),
  };
  const history: typeof short = {
    audit: () => pruneAudit(deps, historyDays),
    keys: () => pruneKeys(deps, historyDays),
    orders: () => pruneOrders(deps, historyDays),
    vouchers: () => pruneVouchers(deps, historyDays),
  };
  const failed: string[] = [];
  for (const [kind, prune] of Object.entries({ ...short, ...(historyDays > 0 && history) })) {
    if (late.has(kind)) continue;
    late.add(kind);
    const pruning = prune().finally(() => late.delete(kind));
    await within(msMax, pruning).catch((err: unknown) => {
      log.warn({ err, kind }, "pruning failed; it is tried again later");
      failed.push(kind);
    });
  }
  if (failed.length > 0) throw new Error(`not pruned: ${failed.join(", ")}`);
}

type Servers = { main: Server; internal: Server | undefined };

function startServers(deps: Deps): Servers {
  const { port, listenHost, internalPort, internalHost } = deps.config;
  const main = listen(deps, { variable: "PORT", port, hostname: listenHost, fetch: createApp(deps).fetch });
  if (internalPort === null) return { main, internal: undefined };
  const fetch = createInternalApp(deps);
  return {
    main,
    internal: listen(deps, { variable: "INTERNAL_PORT", port: internalPort, hostname: internalHost, fetch }),
  };
}

async function drain({ deps, lag }: Parts, background: Background, servers: Servers): Promise<boolean> {
  const { config, log, clock, gate, ledger } = deps;
  gate.announce();
  await sleep(config.drainNoticeSeconds * 1000);
  const idle = gate.drain();
  const clients = servers.main.stop();
  const deadlineMs = clock.nowMs() + config.drainSeconds * 1000;
  await Promise.race([idle, sleep(config.drainSeconds * 1000)]);
  gate.endAll();
  const ended = deps.relays.endAll();
  await Promise.race([Promise.all([ended, idle]), sleep(COUNT_MS_MAX)]);
  // What was not counted until then is estimated, so that it is settled in time.
  deps.tokens.close();
  await ended;
  // The requests that were ended still release their holds: nothing may be left for the reaper.
  await Promise.race([idle, sleep(RELEASE_MS_MAX)]);
  // A database that comes back in time still gets what waits in the spool.
  while (!ledger.status().spoolEmpty && clock.nowMs() < deadlineMs) await sleep(SPOOL_POLL_MS);
  const { booksCheck, domainChecks, messages, keyUses, refusals, losses, routeStats, boundUses, claims } = deps;
  await closeInTime(log, {
    jobs: background.jobs.stop(),
    paymentUpkeep: background.paymentUpkeep.close(),
    pruning: background.pruning.close(),
    booksCheck: booksCheck.close(),
    domainChecks: domainChecks.close(),
    messages: messages.close(),
  });
  await ledger.close();
  const { spoolEmpty, holds } = ledger.status();
  // The last bytes of ended streams are on their way: clients get this long to read them.
  await closeInTime(log, {
    keyUses: keyUses.stop(),
    refusals: refusals.stop(),
    losses: losses.stop(),
    routeStats: routeStats.stop(),
    boundUses: boundUses.stop(),
    claims: claims.close(),
    clients,
  });
  await servers.main.closeNow();
  await servers.internal?.closeNow();
  background.memoryTrim.close();
  lag.close();
  await closeDeps(deps, background);
  return spoolEmpty && holds === 0;
}

/** Closes what nothing uses any more. */
async function closeDeps(deps: Deps, { changeReader }: Background): Promise<void> {
  deps.relays.close();
  deps.limiter.close();
  deps.signInLimiter.close();
  deps.tokens.close();
  deps.pdfs.close();
  deps.keys.close();
  deps.hosts.close();
  deps.brands.close();
  deps.pricesPublic.close();
  deps.sessions.close();
  deps.routeSpeeds.close();
  deps.catalog.close();
  deps.keyStates.close();
  deps.bus.close();
  await closeInTime(deps.log, {
    traces: deps.tracing?.close() ?? Promise.resolve(),
    pools: Promise.all([deps.db.close(), deps.longReads.close()]),
    changeReader: changeReader.close(),
  });
}

/** Waits up to CLOSE_MS_MAX for parts to close. Those that are late wait for a database or for clients, and lose nothing. */
async function closeInTime(log: Log, closing: Record<string, Promise<unknown>>): Promise<void> {
  const late = new Set(Object.keys(closing));
  const all = Object.entries(closing).map(([name, closed]) => closed.then(() => late.delete(name)));
  await within(CLOSE_MS_MAX, Promise.all(all)).catch((err) => log.warn({ err, late: [...late] }, "not closed in time"));
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
