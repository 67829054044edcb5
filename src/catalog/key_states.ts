import { setTimeout as sleep } from "node:timers/promises";
import type { Bus } from "../platform/bus.ts";
import type { Db } from "../platform/db.ts";
import { every, type Job } from "../platform/every.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import { type Catalog, oneAfterAnother } from "./catalog.ts";
import { createKeyPool, type KeyPool, type KeyReport, NOBODY } from "./key_pool.ts";
import { endQuarantine, loadKeyRests, storeRest, takeProbe } from "./key_states_store.ts";
import type { ProviderClient } from "./provider_client.ts";
import { ProviderFailure } from "./provider_errors.ts";

/**
 * Shares the states of providers' keys between replicas, through Postgres and the bus, and probes keys in quarantine. No request waits
 * for any of it. Source: PRV-14, PRV-15.
 */

/** A load that takes longer fails; the last states stay in use. */
const LOAD_MS_MAX = 5_000;
/** Interval of looking for due probes, and of repeating failed writes. */
const TICK_MS = 1_000;
/** Pause between writes, so that a key whose state changes with each request is not written for each. */
const WRITE_PAUSE_MS = 200;
/** The lease of a probe: longer than a list of models may take. */
const PROBE_LEASE_SECONDS = 15;
/** Reports that may wait for the database: one for each key and model. */
const REPORTS_MAX = 10_000;
/** Keys whose lists of models are requested concurrently. */
const LISTS_MAX = 8;

export type KeyStates = { readonly pool: KeyPool; close(): void };

type StatesDeps = {
  db: Db;
  bus: Bus;
  catalog: Pick<Catalog, "upstreamOf">;
  provider: Pick<ProviderClient, "listModels">;
  log: Log;
  /** A monotonic clock, ms. */
  nowMs: () => number;
  /** What the first load may take. Default: as others. */
  firstLoadMs?: number;
};

/** Opens the key pool, with the states that the database has. Throws when they cannot be loaded. */
export async function openKeyStates(deps: StatesDeps): Promise<KeyStates> {
  const states = new SharedStates(deps);
  try {
    await states.start();
  } catch (thrown) {
    states.close();
    throw thrown;
  }
  return states;
}

class SharedStates implements KeyStates {
  readonly pool: KeyPool;
  readonly #deps: StatesDeps;
  readonly #reload: () => Promise<void>;
  /** Reports that are not yet written, by key and model. The latest report contains the earlier ones. */
  readonly #reports = new Map<string, KeyReport>();
  /** The key whose report is being written. */
  #writing: number | undefined;
  readonly #listing = new Set<number>();
  #job: Job | undefined;
  #isFlushing = false;
  #isClosed = false;

  constructor(deps: StatesDeps) {
    this.#deps = deps;
    this.pool = createKeyPool({ now: deps.nowMs, onReport: (report) => this.#note(report) });
    this.#reload = oneAfterAnother(() => this.#load());
  }

  async start(): Promise<void> {
    const { bus } = this.#deps;
    bus.subscribe((changes) => {
      if (changes.some(({ kind }) => kind === "provider_key")) this.#refresh();
    });
    bus.onGap(() => this.#refresh());
    await this.#reload();
    this.#job = every({
      name: "key_states",
      ms: TICK_MS,
      run: () => this.#onTick(),
      log: this.#deps.log,
      failure: "provider keys could not be probed",
    });
  }

  close(): void {
    this.#isClosed = true;
    void this.#job?.close();
  }

  async #load(): Promise<void> {
    const { firstLoadMs = LOAD_MS_MAX } = this.#deps;
    const rows = await within(this.#job === undefined ? firstLoadMs : LOAD_MS_MAX, loadKeyRests(this.#deps));
    const now = this.#deps.nowMs();
    const rests = rows.map(({ leftMs, ...rest }) => ({ ...rest, untilMs: now + leftMs }));
    const untold = new Set([...this.#reports.values()].map(({ keyId }) => keyId));
    this.pool.replace(rests, (keyId) => untold.has(keyId) || this.#writing === keyId);
  }

  #refresh(): void {
    if (this.#isClosed) return;
    this.#reload().catch((err) => this.#deps.log.warn({ err }, "the states of provider keys could not be loaded"));
  }

  #note(report: KeyReport): void {
    const name = nameOf(report);
    if (this.#reports.size >= REPORTS_MAX && !this.#reports.has(name)) return;
    this.#reports.set(name, report);
    void this.#flush();
  }

  /** Writes all reports. A failed write is repeated at the next tick, unless a newer report replaces it. */
  async #flush(): Promise<void> {
    if (this.#isFlushing || this.#isClosed) return;
    this.#isFlushing = true;
    try {
      while (this.#reports.size > 0 && !this.#isClosed) {
        for (const report of [...this.#reports.values()]) await this.#write(report);
        await sleep(WRITE_PAUSE_MS);
      }
    } catch (err) {
      this.#deps.log.warn({ err }, "the state of a provider key could not be stored; it is tried again");
    } finally {
      this.#isFlushing = false;
    }
  }

  async #write(report: KeyReport): Promise<void> {
    const { keyId } = report;
    const name = nameOf(report);
    this.#reports.delete(name);
    this.#writing = keyId;
    try {
      if (report.is === "recovered") await endQuarantine(this.#deps, { keyId, isServed: true });
      else await storeRest(this.#deps, { ...report.rest, ...report });
      this.#log(report);
    } catch (error) {
      if (!this.#reports.has(name)) this.#reports.set(name, report);
      throw error;
    } finally {
      this.#writing = undefined;
    }
    // The change was announced while this replica kept its own state.
    this.#refresh();
  }

  #log(report: KeyReport): void {
    const { log, catalog } = this.#deps;
    const provider = catalog.upstreamOf(report.keyId)?.providerName;
    const { keyId } = report;
    if (report.is === "recovered") log.info({ provider, keyId }, "a provider key works again");
    else log.warn({ provider, keyId, state: report.rest.state, why: report.rest.why }, "a provider key rests");
  }

  async #onTick(): Promise<void> {
    void this.#flush();
    for (const { keyId, why, isWanted } of this.pool.due()) {
      // The key's provider is disabled.
      if (this.#deps.catalog.upstreamOf(keyId) === undefined) continue;
      // A list of models says nothing about credit: then a request is the probe, on a replica that gets one.
      const isListed = why === "credentials";
      if (this.#listing.has(keyId) || (isListed ? this.#listing.size >= LISTS_MAX : !isWanted)) continue;
      try {
        if (!(await takeProbe(this.#deps, { keyId, leaseSeconds: PROBE_LEASE_SECONDS }))) this.#refresh();
        else if (isListed) void this.#probeByList(keyId);
        else this.pool.letOneProbe(keyId, PROBE_LEASE_SECONDS * 1000);
      } catch (err) {
        this.#deps.log.warn({ err, keyId }, "the probe of a provider key could not be taken; it is tried again");
      }
    }
  }

  /** Asks the provider for its models with the key, and stores the result. Never throws. */
  async #probeByList(keyId: number): Promise<void> {
    const { catalog, provider, log } = this.#deps;
    const upstream = catalog.upstreamOf(keyId);
    if (upstream === undefined) return;
    this.#listing.add(keyId);
    try {
      const failure = await provider.listModels(upstream).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      const isAccepted = failure === undefined || mayNotList(failure);
      if (isAccepted) await endQuarantine(this.#deps, { keyId, isServed: false });
      else await this.#storeFailedProbe(keyId, failure);
      const { providerName } = upstream;
      if (isAccepted) log.info({ provider: providerName, keyId }, "a provider key works again");
      else log.warn({ provider: providerName, keyId, err: failure }, "a provider key is still refused");
    } catch (err) {
      log.warn({ err, keyId }, "the result of a provider key's probe could not be stored; it is probed again");
    } finally {
      this.#listing.delete(keyId);
    }
  }

  async #storeFailedProbe(keyId: number, failure: unknown): Promise<void> {
    // A provider that cannot be reached says nothing about the key.
    const isProven = failure instanceof ProviderFailure && failure.blame === "key";
    await storeRest(this.#deps, {
      ...{ keyId, state: "quarantined", why: "credentials", model: null, seconds: 0 },
      ...{ accountId: NOBODY, payerId: NOBODY, isProbe: true, isProven },
    });
  }
}

/** The provider knows the key, and only does not let it list models: it may be restricted to what requests need. */
function mayNotList(failure: unknown): boolean {
  return failure instanceof ProviderFailure && failure.kind === "credentials" && failure.status === 403;
}

/** The key of a report: a quarantine and its end replace each other, and each pause has its own. */
function nameOf(report: KeyReport): string {
  return `${report.keyId} ${(report.is === "resting" && report.rest.model) || ""}`;
}
