import type { Config } from "../config.ts";
import { InputError, Refusal } from "../errors.ts";
import type { Bus } from "../platform/bus.ts";
import type { Actor } from "../platform/changes_store.ts";
import type { Db } from "../platform/db.ts";
import { every } from "../platform/every.ts";
import type { Log } from "../platform/log.ts";
import { checkDns } from "./dns_check.ts";
import { finishCheck, type StartedCheck, startCheck, startDueChecks } from "./domain_checks_store.ts";
import { nameBeside, proofNameOf } from "./domain_records.ts";
import { CHECK_GAP_SECONDS, findHost, type HostRef, type ResellerHost } from "./hosts_store.ts";

/** Runs checks of resellers' domains: the due ones, each in any one replica, and the requested ones. */

/** How often each replica looks for due checks. */
const TICK_MS = 2000;
/** Concurrent checks in one replica: resolvers limit their clients. */
const DUE_AT_ONCE = 4;
const ASKED_AT_ONCE = 8;
/** The same for the domains of one reseller: whose name servers do not answer must not take the places of others. */
const ASKED_OF_RESELLER = 2;
/** Time limit for all DNS questions of a check; shorter than the gap between two checks of a domain. */
const DNS_MS_MAX = 3000;
/** A replica that shuts down waits this long for its checks. Unfinished ones are started again by another replica. */
const CLOSE_MS_MAX = DNS_MS_MAX + 1000;

export type DomainChecks = {
  /** Checks a domain now and returns its new state. Throws not_found, too_many_requests, InputError. */
  now(ref: HostRef, by: Actor): Promise<ResellerHost>;
  close(): Promise<void>;
};

type DomainChecksOptions = {
  db: Db;
  bus: Bus;
  config: Pick<Config, "serverAddresses" | "dnsResolvers">;
  log: Log;
  /** 0: only requested checks. */
  tickMs?: number;
};

/** Starts looking for due checks. Without SERVER_ADDRESSES there is nothing to check. */
export function startDomainChecks({ db, bus, config, log, tickMs = TICK_MS }: DomainChecksOptions): DomainChecks {
  const { serverAddresses: addresses, dnsResolvers: resolvers } = config;
  let closed = false;
  const places = createPlaces();

  async function check(started: StartedCheck, by?: Actor): Promise<void> {
    const { host, resellerId, contested, isNew, token } = started;
    const proof = { name: proofNameOf(host), value: token };
    const report = await checkDns({
      ...{ host, addresses, resolvers, timeoutMs: DNS_MS_MAX },
      txt: contested ? proof : null,
      ...(isNew && { beside: { name: nameBeside(host, token), txt: proof } }),
    });
    const outcome = await finishCheck({ db, bus, ...(by && { by }) }, started, report);
    if (outcome && outcome.from !== outcome.to)
      log.info({ host, resellerId, from: outcome.from, to: outcome.to }, "a check changed the status of a domain");
  }

  /** Runs checks until none is due. */
  async function checkDue(): Promise<void> {
    while (!closed) {
      const due = await startDueChecks({ db }, DUE_AT_ONCE);
      const failures = (await Promise.allSettled(due.map((started) => check(started)))).flatMap((result) =>
        result.status === "rejected" ? [result.reason] : [],
      );
      if (failures.length > 0) throw failures[0];
      if (due.length < DUE_AT_ONCE) break;
    }
  }

  // Checks that were started are started again after a while.
  const failure = "domains could not be checked";
  const job =
    tickMs > 0 && addresses.length > 0
      ? every({ name: "domain_checks", ms: tickMs, run: checkDue, log, failure, closeMs: CLOSE_MS_MAX })
      : undefined;
  return {
    async now(ref, by) {
      requireAddresses(config);
      if (!(await findHost({ db }, ref))) throw new Refusal("not_found");
      const leave = places.take(ref.resellerId);
      try {
        const started = await startCheck({ db, bus, by }, ref);
        if (!started) throw tooSoon("This domain is being checked, or was checked a moment ago.");
        await check(started, by);
      } finally {
        leave();
      }
      const host = await findHost({ db }, ref);
      if (!host) throw new Refusal("not_found");
      return host;
    },
    async close() {
      closed = true;
      await job?.close();
    },
  };
}

/** The places of requested checks. */
function createPlaces() {
  let all = 0;
  const ofReseller = new Map<number, number>();
  return {
    /** Takes a place; returns what gives it back. Throws too_many_requests. */
    take(resellerId: number): () => void {
      const own = ofReseller.get(resellerId) ?? 0;
      if (own >= ASKED_OF_RESELLER) throw tooSoon("Other domains of this account are being checked right now.");
      if (all >= ASKED_AT_ONCE) throw tooSoon("Many domains are being checked right now.");
      all++;
      ofReseller.set(resellerId, own + 1);
      return () => {
        all--;
        const left = (ofReseller.get(resellerId) ?? 1) - 1;
        if (left > 0) ofReseller.set(resellerId, left);
        else ofReseller.delete(resellerId);
      };
    },
  };
}

function tooSoon(message: string): Refusal {
  return new Refusal("too_many_requests", { message, retryAfterSeconds: CHECK_GAP_SECONDS });
}

/** Throws InputError while SERVER_ADDRESSES is not set. */
export function requireAddresses({ serverAddresses }: Pick<Config, "serverAddresses">): void {
  if (serverAddresses.length === 0)
    throw new InputError("No domain can be set up yet: the addresses of the servers (SERVER_ADDRESSES) are not set.");
}
