import { setTimeout as sleep } from "node:timers/promises";
import packageFacts from "../package.json" with { type: "json" };
import { openAccounts } from "./accounts/parts.ts";
import { hashInWorker } from "./accounts/passwords.ts";
import { startBooksCheck } from "./books/check_schedule.ts";
import { startReceiptUpkeep } from "./books/receipt_upkeep.ts";
import { openCatalogParts } from "./catalog/parts.ts";
import { openCommerce } from "./commerce/parts.ts";
import { startPaymentUpkeep } from "./commerce/payment_upkeep.ts";
import type { Config } from "./config.ts";
import type { Deps } from "./deps.ts";
import { openGateway } from "./gateway/parts.ts";
import { turnResponseDays } from "./gateway/responses/stored_responses_store.ts";
import { createReadPlaces } from "./http/read_places.ts";
import { startLedgerJobs } from "./ledger/jobs.ts";
import { openLedger } from "./ledger/open_ledger.ts";
import { createReserveLatency, type ReserveLatency } from "./ledger/reserve_latency.ts";
import { startMessages } from "./messages/delivery.ts";
import { startReceiptExport } from "./messages/receipt_export.ts";
import { openOperations } from "./operations/parts.ts";
import { loadSite } from "./panel/built_site.ts";
import { type Base, close } from "./platform/base.ts";
import { inProcessBus, redisBus } from "./platform/bus.ts";
import { startChangeReader } from "./platform/changes_store.ts";
import type { MachineClock } from "./platform/clock.ts";
import { newRequestId } from "./platform/crypto.ts";
import { openDatabaseClock } from "./platform/database_clock_store.ts";
import { connect, openDb } from "./platform/db.ts";
import { every, type Job } from "./platform/every.ts";
import { createFailpoint } from "./platform/failpoints.ts";
import { inProcessIdempotencyClaims } from "./platform/idempotency_claims.ts";
import { createLog, type Log } from "./platform/log.ts";
import { openLongReads } from "./platform/long_reads.ts";
import { createMetrics } from "./platform/metrics.ts";
import { setNameServers } from "./platform/names.ts";
import { createRateLimiter, type RateLimiter } from "./platform/rate_limit.ts";
import { redisIdempotencyClaims } from "./platform/redis_idempotency_claims.ts";
import { giveMemoryBack, type Server } from "./platform/runtime.ts";
import { checkSecretKey } from "./platform/secret_key_store.ts";
import { createStartWait, type StartWait } from "./platform/start_wait.ts";
import { setLookUpMsMax, within } from "./platform/time_limit.ts";
import { openTracing } from "./platform/tracing.ts";
import { pruneAll } from "./retention.ts";
import { createApp } from "./server/app.ts";
import { createInternalApp } from "./server/internal.ts";
import { listen } from "./server/listen.ts";
import { trimMemory } from "./server/memory_trim.ts";
import { metricSources } from "./server/metric_sources.ts";

const PRUNE_EVERY_MS = 600_000;
/** Routes in the status that a replica writes every second. */
const ROUTES_REPORTED_MAX = 50;
/** For one kind of rows. It deletes in slices, so one that takes longer waits for something. */
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
  wait: StartWait = createStartWait({ waitSeconds: config.dbWaitSeconds, log, nowMs: machine.nowMs }),
): Promise<Replica> {
  const parts = await openParts(config, machine, log, wait);
  const { deps } = parts;
  const background = startBackground(parts);
  deps.metrics.watch(metricSources(deps, background.jobs));
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
type Parts = { deps: Deps; latency: ReserveLatency; closing: DisposableStack };

async function openParts(config: Config, machine: MachineClock, log: Log, wait: StartWait): Promise<Parts> {
  const base = await openBase(config, machine, log, wait);
  const catalog = await openCatalogParts(base, wait);
  const { ledger, latency } = await openMeasuredLedger(base, machine);
  const { closing, nowMs: _, ...shared } = base;
  const deps: Deps = {
    ...shared,
    ...catalog,
    ledger,
    ...openAccounts(base),
    booksCheck: startBooksCheck(base),
    ...openCommerce(base, catalog),
    messages: startMessages({ ...base, random: Math.random }),
    receiptExport: startReceiptExport({ ...base, version: packageFacts.version, random: Math.random }),
    ...openGateway(base, ledger, catalog.answerSums),
    ...openOperations(base),
    readPlaces: createReadPlaces({
      connections: config.dbPoolMax,
      fractions: config.shares,
      onShed: base.metrics.shed,
    }),
    site: await loadSite(config.panelDir, log),
  };
  ledger.onUnpaid(({ accountId, nanoUsd, tokens }) => {
    deps.losses.note({ accountId }, "shortfall", nanoUsd);
    deps.losses.note({ accountId }, "tokens", BigInt(tokens));
  });
  closing.defer(hashInWorker(log));
  return { deps, latency, closing };
}

/** What every room is built from. */
async function openBase(config: Config, machine: MachineClock, log: Log, wait: StartWait): Promise<Base> {
  const nowMs = () => machine.nowMs();
  const closing = new DisposableStack();
  setNameServers(config.nameServers);
  setLookUpMsMax(config.ledgerTimeoutMs);
  const db = openDb({ ...config, lockMsMax: Math.round(LOCK_SHARE * config.ledgerTimeoutMs) });
  // First: nothing may be decrypted or encrypted with a wrong key.
  await wait.step("the check of SECRET_KEY", () => checkSecretKey(db, config.secretKey));
  await wait.step("the days of stored responses", () => turnResponseDays({ db }, config.responsesKeepHours));
  const bus = closing.adopt(config.redisUrl === "" ? inProcessBus(log) : redisBus(config.redisUrl, log), close);
  const metrics = createMetrics();
  const { read, ...databaseClock } = openDatabaseClock({ db, log, nowMs, wallMs: () => machine.wallMs() });
  await wait.step("the database's clock", read);
  const clock = { nowMs, ...databaseClock };
  return {
    ...{ config, log, metrics, db, bus, clock, nowMs, closing },
    tracing: await openTracing({ config, version: packageFacts.version, clock, log }),
    longReads: openLongReads({ config, log, onShed: metrics.shed, onTimeOut: metrics.timedOut }),
    limiter: closing.adopt(createLimiter({ config, log, metrics }), close),
    claims:
      config.redisUrl === ""
        ? inProcessIdempotencyClaims({ nowMs })
        : redisIdempotencyClaims(config.redisUrl, { leaseMs: config.leaseSeconds * 1000, nowMs, log }),
    failpoint: createFailpoint(config.failpoints),
  };
}

function createLimiter({ config, log, metrics }: Pick<Base, "config" | "log" | "metrics">): RateLimiter {
  return createRateLimiter({
    redisUrl: config.redisUrl,
    perMinute: config.ratePerMinute,
    accountPerMinute: config.rateAccountPerMinute,
    tenantPerMinute: config.rateTenantPerMinute,
    inFlight: config.rateInFlight,
    budgetMs: config.rateRedisMs,
    log,
    onShed: metrics.shed,
    onTimeOut: metrics.timedOut,
  });
}

/** The ledger, and how long its reserves take. */
async function openMeasuredLedger(base: Base, machine: MachineClock) {
  const latency = createReserveLatency(base.nowMs);
  const wallMs = () => machine.wallMs();
  return { ledger: await openLedger({ ...base, wallMs, latency, startedMs: wallMs() }), latency };
}

type Background = ReturnType<typeof startBackground>;

/** Work that no request waits for. */
function startBackground({ deps, latency, closing }: Parts) {
  const { config, log, clock, db, bus, metrics, gate, ledger } = deps;
  bus.subscribe((changes) => {
    for (const { kind } of changes) if (kind !== "escrow") metrics.changed(kind);
  });
  bus.onGap(() => metrics.changed("gap"));
  closing.adopt(trimMemory({ inFlight: gate.inFlight, takePeak: gate.takePeak, giveBack: giveMemoryBack }), close);
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
        routes: deps.breakers.report(ROUTES_REPORTED_MAX),
      }),
      leaseSeconds: config.leaseSeconds,
      nowMs: () => clock.nowMs(),
    }),
    pruning: startPruning(deps),
    receiptUpkeep: startReceiptUpkeep(deps),
    paymentUpkeep: startPaymentUpkeep(deps),
  };
}

function startPruning(deps: Deps): Job {
  const late = new Set<string>();
  const failure = "not everything could be pruned";
  return every({ name: "pruning", ms: PRUNE_EVERY_MS, run: () => pruneAll(deps, { late }), log: deps.log, failure });
}

type Servers = { main: Server; internal: Server | undefined };

function startServers(deps: Deps): Servers {
  const { port, listenHost, internalPort, internalHost, processSocket } = deps.config;
  const sharesPort = processSocket !== null;
  const main = listen(deps, { variable: "PORT", port, hostname: listenHost, fetch: createApp(deps).fetch, sharesPort });
  if (internalPort === null) return { main, internal: undefined };
  const fetch = createInternalApp(deps);
  return {
    main,
    internal: listen(deps, { variable: "INTERNAL_PORT", port: internalPort, hostname: internalHost, fetch }),
  };
}

async function drain({ deps, closing }: Parts, background: Background, servers: Servers): Promise<boolean> {
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
  const { booksCheck, domainChecks, messages, keyUses, refusals, losses, routeStats, answerSums, boundUses, claims } =
    deps;
  await closeInTime(log, {
    jobs: background.jobs.stop(),
    paymentUpkeep: background.paymentUpkeep.close(),
    pruning: background.pruning.close(),
    receiptUpkeep: background.receiptUpkeep.close(),
    booksCheck: booksCheck.close(),
    domainChecks: domainChecks.close(),
    identityProofs: deps.identityProofs.close(),
    messages: messages.close(),
    receiptExport: deps.receiptExport?.close() ?? Promise.resolve(),
  });
  await ledger.close();
  const { spoolEmpty, holds } = ledger.status();
  // The last bytes of ended streams are on their way: clients get this long to read them.
  await closeInTime(log, {
    keyUses: keyUses.stop(),
    refusals: refusals.stop(),
    losses: losses.stop(),
    routeStats: routeStats.stop(),
    answerSums: answerSums.stop(),
    boundUses: boundUses.stop(),
    claims: claims.close(),
    clients,
  });
  await servers.main.closeNow();
  await servers.internal?.closeNow();
  // What nothing uses any more.
  closing.dispose();
  await closeInTime(log, {
    traces: deps.tracing?.close() ?? Promise.resolve(),
    pools: Promise.all([deps.db.close(), deps.longReads.close()]),
    changeReader: background.changeReader.close(),
  });
  return spoolEmpty && holds === 0;
}

/** Waits up to CLOSE_MS_MAX for parts to close. Those that are late wait for a database or for clients, and lose nothing. */
async function closeInTime(log: Log, closing: Record<string, Promise<unknown>>): Promise<void> {
  const late = new Set(Object.keys(closing));
  const all = Object.entries(closing).map(([name, closed]) => closed.then(() => late.delete(name)));
  await within(CLOSE_MS_MAX, Promise.all(all)).catch((err) => log.warn({ err, late: [...late] }, "not closed in time"));
}
