import packageFacts from "../package.json" with { type: "json" };
import { openBrandLookup } from "./accounts/brand_lookup.ts";
import { startDomainChecks } from "./accounts/domain_checks.ts";
import { pruneForms } from "./accounts/forms_store.ts";
import { openHostLookup } from "./accounts/host_lookup.ts";
import { ownHosts } from "./accounts/host_names.ts";
import { openKeyLookup } from "./accounts/key_lookup.ts";
import { openKeyUses } from "./accounts/key_uses.ts";
import { pruneRefusals } from "./accounts/refusal_counts_store.ts";
import { openSessions } from "./accounts/sessions.ts";
import { pruneSessions } from "./accounts/sessions_store.ts";
import { createBreakers } from "./catalog/breaker.ts";
import { openCatalog } from "./catalog/catalog.ts";
import { createProviderClient } from "./catalog/provider_client.ts";
import { createProviderTests } from "./catalog/provider_test.ts";
import type { Config } from "./config.ts";
import type { Clock, Deps } from "./deps.ts";
import { asRefusal, toErrorResponse } from "./errors.ts";
import { openRefusals } from "./gateway/refusals.ts";
import { createRelays } from "./gateway/relay.ts";
import { createTokenCounter } from "./gateway/tokens.ts";
import { createApp } from "./http/app.ts";
import { createGate } from "./http/gate.ts";
import { startBooksCheck } from "./ledger/books_check.ts";
import { startLedgerJobs } from "./ledger/jobs.ts";
import { createLatency, timed } from "./ledger/latency.ts";
import { openLedger } from "./ledger/ledger.ts";
import { loadSite } from "./panel/site.ts";
import { inProcessBus, redisBus } from "./platform/bus.ts";
import { pruneChanges, startChangeReader } from "./platform/changes_store.ts";
import { newRequestId } from "./platform/crypto.ts";
import { connect, openDb } from "./platform/db.ts";
import { createLog, type Log } from "./platform/log.ts";
import { createAttemptLimiter, createRateLimiter } from "./platform/rate_limit.ts";
import { serve } from "./platform/runtime.ts";

/** Wrong passwords: ten in a quarter of an hour, by account and by address. */
const SIGN_IN_POINTS = 10;
const SIGN_IN_WINDOW_SECONDS = 900;
const PRUNE_EVERY_MS = 600_000;
/** After the drain's time: to release what was ended. */
const END_MS_MAX = 3_000;

export type Replica = {
  port: number;
  deps: Deps;
  /** Not ready → no new work → streams finish or are ended → settled. False: settlements still wait in the spool. */
  drain(): Promise<boolean>;
};

/** Builds one replica and serves: config → deps → app → jobs. The one place that constructs things. */
export async function startReplica(
  config: Config,
  clock: Clock,
  log: Log = createLog(config.logLevel),
): Promise<Replica> {
  const nowMs = () => clock.nowMs();
  const db = openDb(config);
  const bus = config.redisUrl === "" ? inProcessBus(log) : redisBus(config.redisUrl, log);
  const cached = { db, bus, config, nowMs };
  const catalog = await openCatalog({ db, bus, config, log });
  const latency = createLatency(nowMs);
  const ledger = timed(await openLedger({ config, db, log, nowMs, startedMs: clock.unixMs() }), latency, nowMs);
  const deps: Deps = {
    config,
    log,
    db,
    bus,
    keys: openKeyLookup(cached),
    keyUses: openKeyUses({ db, log, nowMs }),
    refusals: openRefusals({ db, log }),
    hosts: openHostLookup(cached),
    domainChecks: startDomainChecks({ db, bus, config, log }),
    brands: openBrandLookup(cached),
    ownHosts: ownHosts(config),
    apiHosts: ownHosts({ ...config, panelUrl: config.baseUrl }),
    panelHosts: ownHosts({ ...config, baseUrl: config.panelUrl, aliasUrl: "" }),
    sessions: openSessions(cached),
    site: await loadSite(config.panelDir),
    catalog,
    breakers: createBreakers({ now: nowMs }),
    provider: createProviderClient({ config, log, now: nowMs }),
    providerTests: createProviderTests({ config, db, log }),
    limiter: createRateLimiter({
      redisUrl: config.redisUrl,
      perMinute: config.ratePerMinute,
      inFlight: config.rateInFlight,
      log,
    }),
    signInLimiter: createAttemptLimiter({
      redisUrl: config.redisUrl,
      points: SIGN_IN_POINTS,
      windowSeconds: SIGN_IN_WINDOW_SECONDS,
      name: "sign-in",
      log,
    }),
    tokens: createTokenCounter(log),
    ledger,
    booksCheck: startBooksCheck({ config, log }),
    relays: createRelays({ providerIdleMs: config.providerIdleMs, clientIdleMs: config.clientIdleMs, nowMs }),
    clock,
    gate: createGate(config.inFlightMax),
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
    Promise.all([
      pruneChanges(db),
      pruneSessions(deps, config.sessionIdleSeconds),
      pruneForms(deps),
      pruneRefusals(deps),
    ]).catch((err) => log.warn({ err }, "pruning waits"));
  }, PRUNE_EVERY_MS);

  const app = createApp(deps);
  const server = serve({
    port: config.port,
    hostname: config.listenHost,
    fetch: app.fetch,
    onError: (error) => {
      const requestId = newRequestId();
      log.error({ err: error, requestId }, "a request failed at the door");
      return toErrorResponse(asRefusal(error), requestId);
    },
  });

  return {
    port: server.port,
    deps,
    async drain() {
      const idle = deps.gate.drain();
      const stopped = server.stop();
      await Promise.race([idle, sleep(config.drainSeconds * 1000)]);
      deps.gate.endAll();
      await deps.relays.endAll();
      // What was ended is still being released: nothing may be left for a reaper.
      await Promise.race([idle, sleep(END_MS_MAX)]);
      await jobs.stop();
      await deps.booksCheck.close();
      await deps.domainChecks.close();
      await ledger.close();
      await Promise.all([deps.keyUses.stop(), deps.refusals.stop()]);
      const settled = ledger.status().spoolEmpty;
      // The last bytes of ended streams are on their way; who does not take them is cut.
      await Promise.race([stopped, sleep(1000)]);
      await server.closeNow();
      clearInterval(prune);
      deps.relays.close();
      deps.limiter.close();
      deps.signInLimiter.close();
      deps.tokens.close();
      deps.keys.close();
      deps.hosts.close();
      deps.brands.close();
      deps.sessions.close();
      catalog.close();
      await changeReader.close();
      bus.close();
      await db.close();
      return settled;
    },
  };
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
